/* A check of histories for linearizability: is there one order of the operations on names that
 * explains every answer, where each operation takes effect at an instant between its start and its
 * end?
 *
 * Objects are named by their inode numbers, as clients see them. An operation that was never
 * answered may have taken effect at any time after its start, or never. */
#ifndef SHEAF_SIM_LIN_H
#define SHEAF_SIM_LIN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define LIN_LIST 8 /* most entries of a listing */

enum lin_kind {
	LIN_CREATE, /* open with O_CREAT; flags: O_EXCL */
	LIN_MKDIR,
	LIN_SYMLINK,
	LIN_LINK, /* ino gets a new name */
	LIN_UNLINK,
	LIN_RMDIR,
	LIN_RENAME, /* flags: RENAME_NOREPLACE or RENAME_EXCHANGE */
	LIN_LOOKUP,
	LIN_GETATTR, /* of ino */
	LIN_CHMOD, /* of ino */
	LIN_TRUNCATE, /* of ino */
	LIN_READDIR, /* in one part, so that it is atomic */
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
	uint64_t dir, dir2, ino; /* handles passed to the call */
	uint32_t name, name2, flags, mode;
	uint64_t size; /* truncate: the new size */
	uint64_t began, ended; /* positions in the history; ended 0: the outcome is unknown */
	int result; /* 0 or -errno */
	bool created;
	struct lin_attr got;
	uint32_t n_after; /* number of directories in the answer: dir, then dir2 */
	struct lin_attr after[2];
	uint32_t text; /* readlink: number of the operation that made the link */
	uint32_t n_list;
	struct {
		uint32_t name;
		uint64_t ino;
	} list[LIN_LIST];
};

enum lin_verdict { LIN_OK, LIN_WRONG, LIN_TOO_LARGE };
/* The directories d0 and d1 exist and are empty at the start of the history, and are never removed.
 * *bad: the operation whose answer nothing explains.
 *
 * With several metadata servers (spread) the guarantees are weaker. A change still takes effect
 * at one instant. But the reason of a refusal only has to hold by itself, since each server
 * checks at its own time; link and entry counts may lag; and a lookup that continues at the
 * server of the inode reads the attributes later. */
enum lin_verdict lin_check(const struct lin_op *ops, uint32_t n, uint64_t d0, uint64_t d1,
			   bool spread, uint32_t *bad);
void lin_print(FILE *to, const struct lin_op *op); /* prints one line */

#endif
