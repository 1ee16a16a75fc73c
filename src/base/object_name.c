/* The names of object files.
 *
 * Threads: any. Buffers: the caller's. Errors: none. */
#include <stdio.h>

#include "base/base.h"

unsigned object_dir_index(uint64_t ino)
{
	return (unsigned)(hash_u64(ino) % OBJECT_DIRS);
}

void object_name(char out[OBJECT_NAME], const struct object_id *id)
{
	snprintf(out, OBJECT_NAME, "%016jx.%08x.%04x", (uintmax_t)id->ino, id->gen,
		 id->index & 0xffff);
}

void object_old_name(char out[OBJECT_NAME], const struct object_id *id)
{
	snprintf(out, OBJECT_NAME, "%016jx.%08x", (uintmax_t)id->ino, id->gen);
}

void object_path(char out[OBJECT_PATH], const struct object_id *id)
{
	char name[OBJECT_NAME];

	object_name(name, id);
	snprintf(out, OBJECT_PATH, "%02x/%s", object_dir_index(id->ino) & 0xff, name);
}
