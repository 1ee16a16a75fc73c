/* The directories that sheaf cp -r fills for its arguments. When they lie in a tree that it copies,
 * it must not descend into them: the copy would grow for ever. Private to cmd_cp.c. */
#ifndef SHEAF_CP_MADE_H
#define SHEAF_CP_MADE_H

#include "commands/cp_place.h"

struct made_dirs {
	pthread_mutex_t lock;
	struct htab inodes;
};

int made_init(struct made_dirs *m); /* 0 or -ENOMEM */
void made_destroy(struct made_dirs *m);
/* Any thread. An inode number of the file system inside; 0 or -ENOMEM. */
int made_add(struct made_dirs *m, uint64_t ino);
bool made_has(struct made_dirs *m, uint64_t ino);
/* Is the directory, with these attributes, in the file system that the command is connected to:
 * inside, or outside in a mount of it? Inode numbers of other file systems mean nothing here. */
bool made_is_ours(struct cli *c, const struct place *p, const struct stat *st);

#endif
