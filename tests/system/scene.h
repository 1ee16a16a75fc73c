/* A connection and a fresh directory for each test, for programs that test the public interface. */
#ifndef SHEAF_SCENE_H
#define SHEAF_SCENE_H

#include "cluster.h"

static struct sheaf *fs;
static int dir_number;

/* Creates a new directory for the calling test. */
static inline const char *fresh_dir(void)
{
	static char dir[32];

	snprintf(dir, sizeof(dir), "/d%d", ++dir_number);
	CHECK_EQ(sheaf_mkdir(fs, dir, 0755), 0);
	return dir;
}

static inline const char *in(const char *dir, const char *name)
{
	static char paths[64][400];
	static int at;
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	at = (at + 1) % 64;
	return memcpy(paths[at], path, sizeof(path));
}

static inline struct stat stat_of(const char *path)
{
	struct stat st;

	CHECK_EQ(sheaf_lstat(fs, path, &st), 0);
	return st;
}

static inline int open_error(const char *path, int flags)
{
	struct sheaf_file *f;
	int r = sheaf_open(fs, path, flags, 0644, NULL, &f);

	if (r == 0)
		CHECK_EQ(sheaf_close(f), 0);
	return r;
}

#endif
