/* Random changes of the names below one directory, which only one client uses. Whatever fails
 * meanwhile, each change must happen exactly once, so the model predicts every result.
 *
 * The model is a small tree of nodes: files, directories and symbolic links. A change is an
 * operation (op_log.h), so another process can replay a log of operations into its model and
 * compare that with the file system. */
#ifndef SHEAF_TEST_NAMES_MODEL_H
#define SHEAF_TEST_NAMES_MODEL_H

#include "op_log.h"

#define NAMES 10 /* possible names in each directory */
#define NAMES_NODES 48

enum {
	NAMES_CREATE,
	NAMES_MKDIR,
	NAMES_SYMLINK,
	NAMES_UNLINK,
	NAMES_RMDIR,
	NAMES_RENAME,
	NAMES_LINK,
	NAMES_SETXATTR,
	NAMES_CHMOD,
	NAMES_TRUNCATE,
	NAMES_VERBS
};

extern const char *const names_verbs[];

struct names_node {
	mode_t mode; /* with the file type; 0: node not in use */
	uint32_t links; /* number of names of this node */
	uint32_t size, xattr, text; /* 0: none */
	uint32_t parent, name; /* directories only */
	uint32_t child[NAMES]; /* directories only; 0: no such name (0 is the root) */
	uint64_t ino; /* set while comparing */
};

struct names {
	struct sheaf *fs;
	char dir[32];
	uint64_t rnd;
	struct names_node node[NAMES_NODES]; /* node 0 is `dir` */
};

/* ---- predicting ---- */

/* The result that the operation must have: 0, -errno, or 1 if the model cannot tell. */
int names_foretell(const struct names *m, const struct logged_op *d);

/* ---- changing the model ---- */

/* Applies an operation that succeeded. */
void names_apply(struct names *m, const struct logged_op *d);

/* ---- executing ---- */

/* Chooses a random operation whose result the model can tell. */
void names_pick(struct names *m, struct logged_op *d);

/* Executes the operation. Returns 0 or -errno. */
int names_do(struct names *m, const struct logged_op *d);

/* Chooses, executes, checks and applies one operation. */
void names_change(struct names *m);

/* ---- comparing ---- */

/* Does the file system have exactly what the model has? */
bool names_same(struct names *m, char *why, size_t n);

/* names_same() must hold. */
void names_verify(struct names *m);

#endif
