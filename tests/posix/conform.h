/* Shared by the parts of `conform`: checks that count failures and continue, other users, files
 * with known content, and checks of timestamps.
 *
 * A group is a function that runs in a process of its own, in an empty directory of its own, with
 * umask 022 and relative names. So a group may leave anything behind, and a hang or a crash ends
 * only this group. The counters of checks are in shared memory, so any child process may check. */
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
	const char *feature; /* or NULL; --lacks may list it */
};

/* Each array ends with a row of zeros. */
extern const struct test_group acl_groups[], attr_groups[], blocks_groups[], dir_groups[],
	io_groups[], limit_groups[], lock_groups[], map_groups[], name_groups[], open_groups[],
	perm_groups[], range_groups[], rename_groups[], self_groups[], time_groups[], two_groups[],
	xattr_groups[];

/* ---- checks ---- */

/* Checks one case: `got` is the return value of a system call that has just set errno; `want` is 0
 * or an errno. Prints one line if they do not agree. Returns got. */
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

/* An unmapped address. It is a variable so that the compiler does not see its value. Only for
 * syscall(): sanitizers check the arguments of C library wrappers. */
extern char *no_memory;

/* False if --lacks lists the feature. */
bool feature(const char *name);
bool is_root(void);
/* The same name below --dir2. The text is valid until the eighth following call. */
const char *other(const char *name);

/* ---- users ---- */

/* USER and its group own files; MEMBER has USER's group as a supplementary group; STRANGER has
 * neither. SELF keeps the identity of the process. */
enum who { SELF, USER, MEMBER, STRANGER };
uid_t uid_of(enum who w);
gid_t gid_of(enum who w);
/* Forks. Returns 0 in the child, which has the identity `w`; returns not 0 in the parent after the
 * child has exited. */
pid_t become(enum who w);
#define AS(who) for (; become(who) == 0; _exit(0))
/* Waits for a child that runs beside its parent; `pid` comes from fork(). */
int reap(pid_t pid);
/* Waits until the process sleeps in the kernel, at most two seconds. */
void until_asleep(pid_t pid);

/* ---- files ---- */

void put(const char *path, const char *text); /* creates or replaces the file */
bool has(const char *path, const char *text);
uint8_t pattern_at(uint64_t seed, uint64_t offset);
void pattern_fill(void *to, size_t len, uint64_t seed, uint64_t offset);
/* The index of the first of len bytes that differs from the pattern, or len. */
size_t pattern_match(const void *b, size_t len, uint64_t seed, uint64_t offset);
size_t zeros_match(const void *b, size_t len);
/* Creates a file of `size` bytes of the pattern of seed 0, open for reading and writing. */
int filled(const char *path, size_t size);
off_t size_of(int fd);
struct stat stat_of(const char *path); /* lstat; all zeros if there is no such file */
mode_t mode_of(const char *path); /* permission bits, 12 bits */
int times_set(const char *path, time_t atime, time_t mtime);

/* ---- times ---- */

/* Remembers the times of `path`. At the next seen(), the times listed in `changes` (of "amc") must
 * be later and all others unchanged. */
void watch(const char *path, const char *changes);
/* Waits until the file system's clock has advanced since the last watch(). */
void tick(void);
void seen(const char *what);

#endif
