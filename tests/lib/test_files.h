/* Files of system tests: contents that identify themselves, paths, and local text files. Every
 * error is a failed check. */
#ifndef SHEAF_TEST_TEST_FILES_H
#define SHEAF_TEST_TEST_FILES_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "sheaf.h"
#include "test.h"

/* Returns the whole file as text; the caller frees it. */
char *read_text(const char *path);

/* Replaces the contents of a file. */
void write_text(const char *path, const char *text);

/* Replaces the first occurrence of `old` in a file. */
void edit_file(const char *path, const char *old, const char *new);

/* ---- helpers of many tests ---- */

/* Opens a file with mode 0644; it must succeed. */
struct sheaf_file *open_file(struct sheaf *fs, const char *path, int flags);

/* Fills p with bytes that depend on seed and offset, so that misplaced data are recognized. */
void fill_pattern(void *p, size_t n, uint64_t seed, uint64_t off);

/* Are these the bytes of fill_pattern()? */
bool is_pattern(const void *p, size_t n, uint64_t seed, uint64_t off);

/* Creates a file of n pattern bytes and closes it. */
void make_file(struct sheaf *fs, const char *path, size_t n, uint64_t seed);

/* The file has the n bytes of make_file(). */
void check_file(struct sheaf *fs, const char *path, size_t n, uint64_t seed);

/* Creates a new directory for the calling test. The path is valid until the next call. */
const char *fresh_dir(struct sheaf *fs);

/* The path of a name in a directory. The last 64 results stay valid. */
const char *path_in(const char *dir, const char *name);

/* The attributes of an existing file; symbolic links are not followed. */
struct stat stat_of(struct sheaf *fs, const char *path);

/* Opens and closes a file: 0, or the error of the open. */
int open_error(struct sheaf *fs, const char *path, int flags);

#endif
