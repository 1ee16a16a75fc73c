/* Checks that the parts of a storage directory belong together.
 *
 * Threads: any. Errors: -EUCLEAN, and one line that names the part and the remedy. */
#include <stdio.h>

#include "base/base.h"

int stamp_check(const struct stamp *id, const struct stamp *part, const char *what, char *err,
		size_t n)
{
	unsigned long long has = part->count, want = id->count;

	if (part->incarnation != id->incarnation)
		snprintf(
			err, n,
			"%s belongs to other storage than the sheaf.id beside it: put back what was "
			"there, or is the wrong disk mounted?",
			what);
	else if (has < want)
		snprintf(err, n,
			 "%s is older than the rest of its storage (start %llu, not %llu): it was "
			 "restored from a copy; put back what was there, or restore metadata with "
			 "`sheaf restore`",
			 what, has, want);
	else if (has > want + 1)
		snprintf(
			err, n,
			"%s is newer than the sheaf.id beside it (start %llu, not %llu): sheaf.id was "
			"restored from a copy; put back what was there",
			what, has, want);
	else
		return 0;
	return -EUCLEAN;
}
