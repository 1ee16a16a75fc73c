/* A check of histories: is there one order of the operations on names, in which each one takes effect at an
 * instant between its beginning and its end, that explains every answer?
 *
 * Objects are named by their inode number, as clients see it. An operation that was never answered may
 * have taken effect at any time after it began, or never. */
#ifndef SHEAF_SIM_LIN_H
#define SHEAF_SIM_LIN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define LIN_LIST 8 /* entries of a listing */

enum lin_kind {
	LIN_CREATE, /* open with O_CREAT; flags: O_EXCL */
	LIN_MKDIR,
	LIN_SYMLINK,
	LIN_LINK, /* ino gets the name */
	LIN_UNLINK,
	LIN_RMDIR,
	LIN_RENAME, /* flags: RENAME_NOREPLACE or RENAME_EXCHANGE */
	LIN_LOOKUP,
	LIN_GETATTR, /* of ino */
	LIN_CHMOD, /* of ino */
	LIN_TRUNCATE, /* of ino */
	LIN_READDIR, /* in one part: it is one look */
	LIN_READLINK,
	LIN_KINDS
};
extern const char *const lin_names[];

enum lin_type { LIN_FILE = 1, LIN_DIR, LIN_SYM };

struct lin_attr {
	uint64_t ino, size;
	uint32_t type, mode, nlink;
};

struct lin_op {
	enum lin_kind kind;
	uint32_t client;
	uint64_t dir, dir2, ino; /* handles given */
	uint32_t name, name2, flags, mode;
	uint64_t size; /* truncate: to be set */
	uint64_t began, ended; /* positions in the history; ended 0: the outcome is unknown */
	int result; /* 0 or -errno */
	bool created;
	struct lin_attr got;
	uint32_t n_after; /* directories that the answer told of: dir, then dir2 */
	struct lin_attr after[2];
	uint32_t text; /* readlink: number of the operation that made it */
	uint32_t n_list;
	struct {
		uint32_t name;
		uint64_t ino;
	} list[LIN_LIST];
};

enum lin_verdict { LIN_OK, LIN_WRONG, LIN_TOO_LARGE };
/* The directories d0 and d1 are there and empty when the history begins, and stay. *bad: the operation whose
 * answer nothing explains.
 *
 * With several metadata servers (spread) less is promised. What changes takes effect at one instant all the same. But
 * the reason of a refusal need hold by itself only, since each server looks when its turn comes; numbers of links and
 * of entries may lag; and a lookup that goes on at the server of the inode finds its attributes later. */
enum lin_verdict lin_check(const struct lin_op *ops, uint32_t n, uint64_t d0, uint64_t d1,
			   bool spread, uint32_t *bad);
void lin_print(FILE *to, const struct lin_op *op); /* one line */

#endif
