/* What the files of objects are called.
 *
 * Threads: any. Buffers: the caller's. Errors: none. */
#include <stdio.h>

#include "base/base.h"

unsigned object_dir_index(uint64_t ino)
{
	return (unsigned)(hash_u64(ino) % OBJECT_DIRS);
}

void object_name(char out[OBJECT_NAME], uint64_t ino, uint32_t gen)
{
	snprintf(out, OBJECT_NAME, "%016jx.%08x", (uintmax_t)ino, gen);
}

void object_path(char out[OBJECT_PATH], uint64_t ino, uint32_t gen)
{
	char name[OBJECT_NAME];

	object_name(name, ino, gen);
	snprintf(out, OBJECT_PATH, "%02x/%s", object_dir_index(ino) & 0xff, name);
}
