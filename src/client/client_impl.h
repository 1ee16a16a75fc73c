/* Shared by the files of the client. Private to src/client. */
#ifndef SHEAF_CLIENT_IMPL_H
#define SHEAF_CLIENT_IMPL_H

#include "client/client.h"

/* A cached referral: from a directory, by one or more names, to one on another server. */
#define REFERRALS_MAX 256
struct cached_referral {
	struct wire_handle dir, to;
	uint64_t cred_hash, until;
	uint8_t len;
	uint8_t names[63];
};

#define LIST_USUAL 32 /* most extents for which a pattern does not pay */

struct client {
	struct loop *loop;
	const struct conf *conf;
	struct net net;
	struct peer *peers; /* by target id; room for CONF_MAX_TARGETS, so none ever moves */
	struct conf_target *targets; /* likewise: the cluster file's, then added ones */
	uint32_t n_peers;
	uint32_t meta[CONF_MAX_TARGETS]; /* partition p belongs to meta[p % n_meta] */
	uint32_t n_meta;
	struct list files;
	struct htab holdings; /* struct holding by inode */
	struct list spare_ops, spare_lanes;
	unsigned n_spare_lanes;
	struct htab imported; /* imported files that client_imported() has not returned yet */
	struct cred_wire self; /* our own credential, for calls without one */
	bool has_self; /* self is set: no lookup for each call */
	uint32_t n_ops; /* operations taken and not freed */
	uint64_t next_open;
	bool halted; /* from client_export() to client_resume() */
	struct list lockings; /* struct locking: operations that wait for locks */
	uint64_t n_tickets;
	uint64_t trace_base, n_traces;
	uint64_t timeout_ns;
	enum net_mover mover; /* forced for all transfers, or MOVER_AUTO */
	size_t max_list_extents; /* most extents of a pattern that are sent as a list */
	struct cached_referral referrals[REFERRALS_MAX];
	struct direct direct;
	union { /* scratch memory to plan a request in */
		struct extent scratch[LIST_MAX];
		struct copy_piece scratch_copy[LIST_MAX];
	};
};

#define LOCK_SETS 2 /* byte ranges, and the whole file */

/* The locks that this client has on a file, through any of its opens (range.open): an owner has its
 * locks on the file, not on one open. Lives as long as one of the opens. */
struct holding {
	struct hnode node;
	uint64_t ino;
	uint32_t opens;
	struct list locks[LOCK_SETS], lost[LOCK_SETS]; /* struct range */
};

/* An open file. */
struct cfile {
	struct list link;
	struct client *c;
	void *user; /* struct sheaf_file of the blocking interface */
	struct hnode by_id; /* in c->imported */
	bool imported; /* by_id is in c->imported */
	struct wire_handle h;
	uint64_t id; /* of the open */
	uint32_t flags; /* OPEN_READ, OPEN_WRITE, OPEN_APPEND */
	struct list appends; /* struct append under way */
	struct layout layout;
	uint32_t *targets; /* layout.width target ids */
	struct wire_capability cap;
	uint64_t opened_change; /* `change` at the open */
	struct wire_wrote wrote;
	uint64_t n_wrote; /* writes answered so far */
	bool punched; /* holes were punched: only the objects know their blocks */
	int64_t seen_mtime; /* latest of all its writes */
	int64_t held_mtime; /* not reported while a SETATTR of mtime is under way */
	uint64_t *unsynced; /* per object: verifier of the oldest write without an fsync, or 0 */
	uint64_t *writes; /* per object: writes answered so far */
	struct file_object {
		uint64_t recorded; /* recorded end: an object that ends before it has lost data */
		uint64_t end, blocks; /* as of our latest write */
		bool wrote; /* since the last report */
	} * objects; /* per object */
	bool lost; /* a server lost unsynced data */
	bool has_unsynced_before; /* earlier writers left data that may be unsynced */
	bool beyond_recorded; /* the metadata server knows that objects may reach beyond the size */
	struct cred_wire cred;
	struct holding *holding;
	struct direct_file *direct; /* NULL: no direct read yet */
};

/* ---- client.c ---- */
void client_add(struct client *c, const struct conf_target *t, const char *address);
struct peer *meta_peer(struct client *c, uint64_t ino); /* the metadata server of ino */
/* Makes a call of this operation; the caller adds what is special. */
struct call call_make(struct cop *op, uint32_t number, void *args, void *res);
uint64_t trace_new(struct client *c);
/* With an error, the operation starts in the state that `ops` names for errors. */
void cop_start(struct cop *op, const struct req_ops *ops, int error);
bool cop_end(struct cop *op, int64_t result); /* ends a step function; returns false */
static inline struct cop *cop_of(struct req *q)
{
	return container_of(q, struct cop, q);
}

/* A path is longer than a message can carry. */
static inline bool path_too_long(const struct cop *op)
{
	return (op->place && op->place->path.len > PATH_MAX_LEN) ||
	       (op->place2 && op->place2->path.len > PATH_MAX_LEN);
}

/* ---- learn.c: targets added after our cluster file was written ---- */
/* Asks the server for its map and adds the targets that are new; holds q (or NULL) until then. */
void map_learn(struct client *c, struct peer *p, struct req *q);
void map_changed(struct peer *p);
/* Adds one target of a map, unless it is known. */
void target_learn(struct client *c, const struct wire_map_target *t);
/* True: the layout names unknown targets, and the server that owns the inode is asked for its map,
 * once per operation; q is held, and its next state must call this again. */
bool layout_learn(struct cop *op, const struct wire_layout_rec *l, uint64_t ino, struct req *q);

/* ---- sizing.c: attributes with the true size ---- */
struct sizing {
	struct req q;
	struct cop *op;
	struct wire_handle h;
	struct call attr_call;
	struct wire_getattr_args attr_args;
	struct wire_getattr_res attr_res;
	struct call *calls;
	struct wire_objstat_args *stat_args;
	struct wire_object_res *ends;
	uint32_t n, tries;
};
/* Holds op->q until op->attr has the true size and mtime. */
void sizing_start(struct cop *op, const struct wire_handle *h);

/* shape.c: the file side of an access as a pattern. */
struct shape {
	struct wire_bytes type; /* encoded; empty: lists are sent */
	int64_t base; /* file offset where the pattern begins */
	uint64_t end; /* upper bound of where it ends */
};
void shape_of_type(struct cop *op, const struct type *type,
		   struct shape *out); /* leaves base and end unset */
void shape_of_list(struct cop *op, struct shape *out); /* of op->access */

/* ---- refresh.c: fresh capabilities; lanes.c: spare lanes ---- */
void cap_ask(struct cop *op, struct cfile *f, struct call *c, struct req *q); /* holds q */
void cap_take(struct cfile *f, struct call *c); /* the answer, when q goes on */
void lanes_free(struct client *c); /* frees the spare ones */

/* ---- space_wait.c ---- */
/* After -ENOSPC. True: q is held; in its next state call space_wait_end() and repeat the request.
 * False: the refusal is final. */
bool space_wait_begin(struct client *c, struct space_wait *r, struct req *q);
void space_wait_end(struct space_wait *r);

struct append;
/* Writes or allocates at the place that the append was given. -EAGAIN: the place may be gone. */
void append_there(struct cop *op, struct cfile *f, const struct append *a);

/* ---- referrals.c ---- */
void referral_add(struct cop *op, const struct wire_place *p, const struct wire_referral *r,
		  uint64_t sent_at);
void referral_walk(struct cop *op, struct wire_place *p); /* as far as referrals are cached */
void referrals_forget(struct client *c);

/* ---- append.c ---- */
struct append {
	struct list link; /* in f->appends */
	uint64_t id, length, offset, epoch;
	bool placed; /* the server gave it `offset`, under this epoch */
	uint32_t places; /* how often it asked for a place again */
	const struct iovec *mem;
	size_t n_mem;
	struct extent ext;
	bool allocates; /* ext, as client_allocate(); its place is the part behind the end */
	uint32_t mode;
	struct cop *write;
	struct wire_append_args args;
	struct wire_append_res res;
	struct wire_appended_args done_args;
	int64_t result;
};
/* `a` says what is written, and must live as long as op. */
void append_start(struct cop *op, struct append *a, struct cfile *f);
uint32_t append_claims(const struct cfile *f, struct wire_append_claim *out); /* out: APPENDS_MAX */

/* ---- names.c ---- */
struct wire_place name_place(struct sheaf_handle dir, const char *path, bool follow);
/* `error` is reported by the operation, not here. p NULL: the arguments begin with a handle. */
void name_start(struct cop *op, uint32_t number, struct wire_place *p, int error);
void inode_start(struct cop *op, uint32_t number, const struct wire_handle *h, int error);

/* ---- file.c ---- */
int file_make(struct cop *op); /* makes op->file from the answer to an open */
/* A file with this layout and nothing else set; no targets: a directory. -EIO: invalid layout. */
int file_new(struct client *c, const struct wire_handle *h, uint64_t id,
	     const struct wire_layout_rec *l, struct cfile **out);
/* A write to object `index` was answered: the file is at least `end` bytes long. */
void file_wrote(struct cfile *f, uint32_t index, uint64_t epoch, uint64_t end,
		const struct wire_write_res *r);
/* Takes the recorded ends of the objects, as the metadata server has them under this epoch. */
void file_recorded(struct cfile *f, uint64_t epoch, const struct wire_layout_rec *l);
/* One object of the file, as requests name it. */
struct wire_access file_access(const struct cfile *f, uint32_t index);
/* What was written since the last report, with the notes in the arena. doubt is also set after
 * holes were punched, and without memory for the notes. */
struct wire_wrote file_report(const struct cfile *f, struct arena *a);
/* A server with this verifier answered a write to object `index`. */
void file_unsynced(struct cfile *f, uint32_t index, uint64_t verifier);
/* A SETATTR of mtime begins: the new time outlives our earlier writes. Returns the latest mtime of
 * these; writes up to it are not reported from now on, or again if the SETATTR fails. */
int64_t file_mtime_begin(struct client *c, uint64_t ino, uint32_t uid);
void file_mtime_end(struct client *c, uint64_t ino, int64_t upto, bool set);
void file_reclaim(struct peer *p, bool session_lost);
void file_free(struct cfile *f);

/* ---- locking.c ---- */
int file_locks_init(struct cfile *f); /* 0 or -ENOMEM */
void file_locks_free(struct cfile *f); /* drops the locks taken through f */
void file_lose_locks(struct cfile *f); /* moves the locks taken through f to `lost` */
bool file_lost_own_locks(
	const struct cfile *f); /* f lost locks, and their owners have not been told */
/* Lists the locks of `sets` (holding->locks or ->lost) that were taken through this open: from
 * number `skip` on, at most max, to out (or NULL). Returns how many there are in all. */
size_t locks_list(const struct list sets[LOCK_SETS], uint64_t open, struct wire_lock *out,
		  size_t skip, size_t max);

#endif
