/* Permissions and access control lists in the simulation: the model, the histories of files and
 * directories whose permissions change, and the calls that are judged against them.
 *
 * sim_aclmodel.c follows acl(5) and uses nothing of src/. sim_acl.c changes permissions and
 * tries what they grant. sim_inherit.c makes files and directories below directories with
 * default ACLs. */
#ifndef SHEAF_SIM_ACL_H
#define SHEAF_SIM_ACL_H

#include "sim_world.h"

#define MACL_NAMED 2 /* most users, and most groups, that a list names */
#define MACL_ABSENT 8 /* instead of permissions: the list has no entry for it */
#define MACL_BYTES (4 + 8 * (4 + 2 * MACL_NAMED))
#define ACL_USERS 4 /* callers: root and three others */
#define ACL_STEPS 32 /* most states of one subject */
#define ACL_LANES 2 /* calls that a client has under way at most */
#define ACL_THINGS 12 /* things that exist in subjects at most */
/* Subjects are in the root: directories one level below may be on another metadata server. */
#define ACL_DIR "acl%u"
#define ACL_FILE "acl-file%u"

/* ---- sim_aclmodel.c ---- */

enum { MACL_X = 1, MACL_W = 2, MACL_R = 4 };

struct macl_list {
	uint8_t owner, group, mask, other; /* permissions */
	bool has_mask; /* a list without a mask has three entries and equals a mode */
	uint8_t users[MACL_NAMED], groups[MACL_NAMED]; /* permissions, or MACL_ABSENT */
};

/* The entry of a list that decides for a caller. */
enum macl_class { MACL_ROOT, MACL_OWNER, MACL_USER, MACL_GROUP, MACL_NAMED_GROUP, MACL_OTHER };

struct macl {
	uint32_t uid, gid;
	uint32_t special; /* S_ISGID, S_ISVTX; only for directories */
	struct macl_list access, def;
	bool has_def;
};

extern const struct sheaf_cred macl_creds[ACL_USERS]; /* the first is root */
extern const uint32_t macl_uids[MACL_NAMED], macl_gids[MACL_NAMED]; /* ids that lists name */

bool macl_in_group(const struct sheaf_cred *c, uint32_t gid);
bool macl_owns(const struct macl *m, const struct sheaf_cred *c); /* owner or root */
uint32_t macl_mode(const struct macl *m); /* permissions and special bits */
/* *by: the class that decided; *masked: only the mask refuses the call. Both may be NULL. */
bool macl_grants(const struct macl *m, const struct sheaf_cred *c, uint32_t want,
		 enum macl_class *by, bool *masked);
/* Apply a change that is allowed. */
void macl_chmod(struct macl *m, const struct sheaf_cred *c, uint32_t mode);
void macl_set(struct macl *m, const struct sheaf_cred *c, const struct macl_list *l);
void macl_drop(struct macl *m);
/* The permissions of a file or directory that `c` makes with this mode in `dir`. */
struct macl macl_inherit(const struct macl *dir, const struct sheaf_cred *c, uint32_t mode,
			 bool is_dir);
/* Encodes a list as the extended attribute; returns the number of bytes. */
size_t macl_encode(const struct macl_list *l, uint8_t out[MACL_BYTES]);

/* ---- what sim_acl.c and sim_inherit.c share ---- */

/* A directory, or a file beside it, that only one client changes, one change at a time. */
struct subject {
	struct sheaf_handle h;
	bool is_dir;
	struct acl_step {
		struct period when; /* time of the change to this state */
		struct macl m;
	} steps[ACL_STEPS];
	uint32_t n;
	bool in_doubt; /* the last step may not have happened; no step follows */
};

/* A file, directory or pipe that a client made in the directory of a subject. */
struct thing {
	enum { THING_NONE, THING_RESTS, THING_BUSY } state;
	uint32_t number; /* number in its name */
	uint32_t in; /* the client whose directory has it now */
	mode_t type;
	struct sheaf_handle h;
	uint32_t maker, user; /* the client that made it, and the user that it did so as */
	uint32_t mode; /* mode in the call that made it */
	uint32_t made_in; /* the client in whose directory it was made */
	uint32_t from; /* bit mask of the steps that it may have inherited from */
};

enum acl_kind {
	/* changes of the client's own subjects */
	ACL_CHMOD,
	ACL_CHOWN,
	ACL_SET,
	ACL_DROP,
	ACL_SET_DEFAULT,
	ACL_DROP_DEFAULT,
	ACL_SET_INVALID,
	ACL_CHANGES,
	/* calls on any client's subjects */
	ACL_SEE_MODE = ACL_CHANGES,
	ACL_SEE_LIST,
	ACL_SEE_DEFAULT,
	ACL_SETXATTR,
	ACL_GETXATTR,
	ACL_ONLY_FILES,
	ACL_OPEN = ACL_ONLY_FILES,
	ACL_TRUNCATE,
	ACL_ONLY_DIRS,
	ACL_SEARCH = ACL_ONLY_DIRS,
	ACL_READDIR,
	/* calls on things */
	ACL_OF_THINGS,
	ACL_MAKE = ACL_OF_THINGS,
	ACL_THING_MODE,
	ACL_THING_LIST,
	ACL_THING_DEFAULT,
	ACL_THING_OPEN,
	ACL_UNLINK,
	ACL_RENAME,
	ACL_CLOSE, /* follows an open */
	ACL_KINDS
};
extern const char *const acl_names[];

/* A call under way. */
struct acl_lane {
	struct actor *a;
	bool busy;
	enum acl_kind kind;
	uint32_t user;
	struct subject *s; /* NULL: the call is on a thing */
	struct thing *t; /* or NULL */
	uint32_t of, to; /* clients whose subjects the call uses; `to`: new directory of a rename */
	bool by_path; /* the call walked to the directory */
	int expect; /* result of a change */
	uint32_t want; /* permissions that an open asks for */
	uint32_t number; /* number in the new name */
	struct period when;
	uint64_t started; /* start time */
	char path[48], path2[48];
	uint8_t bytes[MACL_BYTES]; /* list that is set or was read */
	size_t n_bytes;
	uint32_t mode, uid, gid; /* attributes that were read */
};

struct acl_play {
	uint64_t rng; /* its own generator, so that other clients' choices do not depend on it */
	uint32_t left[MAX_CLIENTS];
	struct {
		uint32_t of, user;
	} searched[MAX_CLIENTS]; /* last search of each client */
	struct subject subjects[MAX_CLIENTS][2]; /* [0]: the directory, [1]: the file */
	struct acl_lane lanes[MAX_CLIENTS][ACL_LANES];
	struct thing things[ACL_THINGS];
	uint32_t n_things; /* numbers used so far */
};

uint32_t acl_pick(struct world *w, uint32_t n); /* 0 .. n-1 */
bool acl_chance(struct world *w, uint32_t percent);
struct macl_list acl_pick_list(struct world *w);
struct cop *acl_begin(struct acl_lane *l, enum acl_kind kind, uint32_t user);
const struct subject *acl_dir(const struct world *w, uint32_t client);
/* Returns a bit mask of the steps that may have been current during a call. */
uint32_t acl_possible(const struct subject *s, const struct period *call);
bool acl_sees_list(const struct acl_lane *l, bool there, const struct macl_list *list,
		   int64_t result);
/* Returns the answer (0 or -errno) that the permissions imply; with `counts`, counts what
 * decided. */
int acl_answer(struct world *w, const struct macl *m, uint32_t user, uint32_t want, bool counts);

/* sim_inherit.c */
bool thing_start(struct acl_lane *l); /* false: there is nothing to do */
void thing_done(struct acl_lane *l, const struct cop *c, int64_t result);
void thing_lost(struct acl_lane *l); /* its call ended in doubt */

#endif
