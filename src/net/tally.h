/* What sessions have asked of a server, added up by client, user or job: requests and bytes.
 *
 * A table has a fixed number of rows, so that no client can make it grow. A row is in use as long
 * as sessions refer to it. A new name takes a free row, else the row that has been unused for
 * longest, whose counts go into the row "(other)"; where all rows are in use, the new name is
 * counted in "(other)", too. So the sum over a table never decreases.
 *
 * Counting takes constant time, without locks or memory. Threads: the loop's. Errors: none. */
#ifndef SHEAF_TALLY_H
#define SHEAF_TALLY_H

#include "base/base.h"

#define TALLY_ROWS 256
#define TALLY_NAME 65
#define TALLY_NONE "(none)" /* the row of sessions without a name */
#define TALLY_RECENT 64 /* users whose rows are found without a search */

struct tally_row {
	char name[TALLY_NAME]; /* as label_clean() makes it; "": a free row */
	uint32_t uid; /* of a user */
	uint32_t sessions; /* that are counted here now */
	uint64_t requests, bytes_read, bytes_written;
	uint64_t used_at; /* loop time */
	struct tally_row *next; /* of the same hash */
};

struct tally {
	struct tally_row rows[TALLY_ROWS], other;
	struct tally_row *heads[TALLY_ROWS]; /* rows by hash of their names */
	struct tally_row *recent[TALLY_RECENT]; /* rows of users, by uid modulo */
	uint32_t n; /* rows that are taken, the first ones */
};

void tally_init(struct tally *t);
/* The row of this name, taken if it is new. Never NULL. */
struct tally_row *tally_find(struct tally *t, const char *name, uint64_t now);
struct tally_row *tally_user(struct tally *t, uint32_t uid, uint64_t now);
/* A session of this name is counted in the row that is returned, and no longer in `before`, which
 * may be NULL. The name is made a label. */
struct tally_row *tally_join(struct tally *t, struct tally_row *before, const char *name,
			     uint64_t now);
void tally_leave(struct tally_row *r, uint64_t now); /* a session ends; r may be NULL */
/* The rows of a table: i from 0 on; the last one is "(other)"; NULL behind it. */
const struct tally_row *tally_row_at(const struct tally *t, uint32_t i);

#endif
