/* What the parts of `conform` share: checks that count and go on, other users, files with known content,
 * and a watch over times.
 *
 * A group is a function that runs in a process of its own, in an empty directory of its own, with umask 022
 * and relative names; so it may leave anything behind, and a hang or a crash ends only the group. Checks
 * count in shared memory, so they may stand in any child. */
#ifndef SHEAF_CONFORM_H
#define SHEAF_CONFORM_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { NEEDS_ROOT = 1, NEEDS_TWO = 2, NEEDS_LONG = 4 };

struct test_group {
	const char *name;
	void (*run)(void);
	unsigned needs;
	const char *feature; /* or NULL; --lacks may name it */
};

/* Each ends with a row of zeros. */
extern const struct test_group acl_groups[], attr_groups[], blocks_groups[], dir_groups[],
	io_groups[], limit_groups[], lock_groups[], map_groups[], name_groups[], open_groups[],
	perm_groups[], range_groups[], rename_groups[], self_groups[], time_groups[], two_groups[],
	xattr_groups[];

/* ---- checks ---- */

/* One case: `got` is what a system call returned, errno is still its own. want is 0 or an errno. Says so in
 * one line when it is otherwise. Returns got. */
long expect(int want, long got, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void expect_value(intmax_t want, intmax_t got, const char *what, const char *file, int line);

#define AT_LINE "%s (%s:%d)"
#define OK(call) expect(0, (long)(call), AT_LINE, #call, __FILE_NAME__, __LINE__)
#define FAILS(err, call) expect(err, (long)(call), AT_LINE, #call, __FILE_NAME__, __LINE__)
#define EQ(got, want) expect_value((intmax_t)(want), (intmax_t)(got), #got, __FILE_NAME__, __LINE__)
#define TRUE(cond) expect_value(1, !!(cond), #cond, __FILE_NAME__, __LINE__)
#ifndef __FILE_NAME__
#define __FILE_NAME__ (strrchr("/" __FILE__, '/') + 1)
#endif
#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

/* An address where nothing is; a variable, or the compiler would see it. Only for syscall(): sanitizers look at what
 * the wrappers of the C library are given. */
extern char *no_memory;

/* Without the named feature this is false. */
bool feature(const char *name);
bool is_root(void);
/* The same place below --dir2. The text is the caller's until the eighth call from now. */
const char *other(const char *name);

/* ---- users ---- */

/* USER and its group own things; MEMBER has USER's group as a supplementary one; STRANGER has nothing to do
 * with them. SELF stays who it is. */
enum who { SELF, USER, MEMBER, STRANGER };
uid_t uid_of(enum who w);
gid_t gid_of(enum who w);
/* Forks, and returns 0 in the child, which is `w`; in the parent, when the child has ended, not 0. */
pid_t become(enum who w);
#define AS(who) for (; become(who) == 0; _exit(0))
/* Ends a child that goes on beside its parent: its pid is what fork() returned. */
int reap(pid_t pid);
/* Waits until that process sleeps in the kernel, or two seconds. */
void until_asleep(pid_t pid);

/* ---- files ---- */

void put(const char *path, const char *text); /* makes or replaces it */
bool has(const char *path, const char *text);
uint8_t pattern_at(uint64_t seed, uint64_t offset);
void pattern_fill(void *to, size_t len, uint64_t seed, uint64_t offset);
/* The first of len bytes that is not the pattern's, or len. */
size_t pattern_match(const void *b, size_t len, uint64_t seed, uint64_t offset);
size_t zeros_match(const void *b, size_t len);
/* A new file of `size` bytes of the pattern of seed 0, open for both. */
int filled(const char *path, size_t size);
off_t size_of(int fd);
struct stat stat_of(const char *path); /* lstat; zeros when there is none */
mode_t mode_of(const char *path); /* the 12 bits */
int times_set(const char *path, time_t atime, time_t mtime);

/* ---- times ---- */

/* Remembers the times of `path`; after the next seen() those named in `changes` (of "amc") must be
 * later, all others the same. */
void watch(const char *path, const char *changes);
/* Waits until the file system's clock has moved on since the last watch(). */
void tick(void);
void seen(const char *what);

#endif
