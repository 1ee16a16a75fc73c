/* What the files of the client share. Private to src/client. */
#ifndef SHEAF_CLI_PRIV_H
#define SHEAF_CLI_PRIV_H

#include "client/client.h"

/* From a directory by one or more names to one on another server; for a while. */
#define WAYS 256
struct way {
	struct wire_handle dir, to;
	uint64_t who, until;
	uint8_t len;
	uint8_t names[63];
};

/* Where a server of this host has its files. */
struct home {
	char *path; /* NULL: not known, or not for us */
	uint64_t dev, ino; /* of the directory */
	bool visited; /* the rest is good */
	bool memory; /* they are nowhere else */
	int dir;
};

/* The file of an object there. */
struct near {
	struct list lru;
	bool open, gone; /* gone: closed by its last user */
	int fd;
	uint32_t users;
};

#define LIST_USUAL 32 /* extents for which a pattern is not worth it */

struct client {
	struct loop *loop;
	const struct conf *conf;
	struct net net;
	struct peer *peers; /* by target id; room for as many as there can be, they never move */
	struct conf_target *targets; /* likewise: the cluster file's, then those that were added */
	uint32_t n_peers;
	uint32_t meta[CONF_MAX_TARGETS]; /* partition p belongs to meta[p mod n] */
	uint32_t n_meta;
	struct list files;
	struct htab holdings; /* struct holding by inode */
	struct list spare_ops, spare_lanes;
	unsigned n_spare_lanes;
	struct htab imported; /* those of them that nobody has asked for yet */
	struct cred_wire self; /* whose calls without credentials are, */
	bool has_self; /* if they need not be looked up each time */
	uint32_t n_ops; /* operations that were taken and not given back */
	uint64_t next_open;
	bool halted; /* by client_export() */
	struct list lockings; /* operations that wait for locks */
	uint64_t n_tickets;
	uint64_t trace_base, n_traces;
	uint64_t timeout_ns;
	enum net_mover mover; /* that is forced, or MOVER_AUTO */
	size_t list_most; /* extents of a pattern that go as a list */
	struct way ways[WAYS];
	_Atomic bool near_reads; /* past servers of this host */
	struct home *homes; /* of targets, by id */
	struct list near_lru; /* struct near that are open */
	uint32_t n_near;
	union { /* where a request is planned */
		struct extent scratch[LIST_MAX];
		struct copy_piece scratch_copy[LIST_MAX];
	};
};

#define LOCK_SETS 2 /* of ranges, and of the whole file */

/* The locks of a file, through whichever of our opens of it they were taken (range.open): an owner has its locks of the
 * file, not of one open. Lives as long as one of the opens. */
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
	void *user; /* of the blocking interface */
	struct hnode by_id; /* in c->imported */
	bool imported; /* it is in there */
	struct wire_handle h;
	uint64_t id; /* of the open */
	uint32_t flags; /* OPEN_READ, OPEN_WRITE, OPEN_APPEND */
	struct list appends; /* under way */
	struct layout layout;
	uint32_t *targets; /* layout.width ids */
	struct wire_capability cap;
	uint64_t opened_change; /* `change` when it was opened */
	struct wire_wrote wrote;
	uint64_t n_wrote; /* writes that were answered */
	bool punched; /* holes: only its objects know how many blocks they have */
	int64_t seen_mtime; /* of all its writes */
	int64_t held_mtime; /* not reported while a time is set by hand */
	uint64_t *unsynced; /* per object: verifier of the oldest write that no fsync covered, or 0 */
	uint64_t *writes; /* per object: writes that were answered */
	struct reach {
		uint64_t recorded; /* end that the metadata server knows: the object has lost data if it ends before */
		uint64_t end, blocks; /* after our latest write */
		bool wrote; /* since the last report */
	} * reach; /* per object */
	bool lost; /* a server lost unsynced data */
	bool left; /* earlier writers left data that no sync is known to cover */
	bool told_beyond; /* the metadata server knows that there may be objects beyond the size */
	struct cred_wire cred;
	struct holding *holding;
	struct near *near; /* one an object, or NULL */
};

/* ---- client.c ---- */
void client_add(struct client *c, const struct conf_target *t, const char *address);
struct peer *peer_of(struct client *c, uint64_t ino); /* the metadata server */
/* A call of this operation; the caller adds what is special. */
struct call call_make(struct cop *op, uint32_t number, xdr_any put, void *args, xdr_any get,
		      void *res);
uint64_t trace_new(struct client *c);
/* With an error it begins where its ops answer. */
void cop_start(struct cop *op, const struct req_ops *ops, int error);
bool cop_end(struct cop *op, int64_t result); /* last thing a step function does; returns false */
static inline struct cop *cop_of(struct req *q)
{
	return container_of(q, struct cop, q);
}

/* More than a message can carry. */
static inline bool path_too_long(const struct cop *op)
{
	return (op->place && op->place->path.len > PATH_MAX_LEN) ||
	       (op->place2 && op->place2->path.len > PATH_MAX_LEN);
}

/* ---- learn.c: targets that were added ---- */
/* Asks the server for its map and takes up what is new in it; holds q (or NULL) until then. */
void map_learn(struct client *c, struct peer *p, struct req *q);
void map_changed(struct peer *p);
/* One target of a map; nothing happens when it is known. */
void target_learn(struct client *c, const struct wire_map_target *t);
/* Are all its targets known? If not, and this was not tried yet, asks the server that owns the inode; true: q goes on
 * in the state it names, to look again. */
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
/* Holds op->q until op->attr is filled with size and mtime made right. */
void sizing_start(struct cop *op, const struct wire_handle *h);

/* shape.c: what of an access goes out as a pattern. */
struct shape {
	struct wire_bytes type; /* encoded; none: lists go out */
	int64_t base; /* where it begins in the file */
	uint64_t end; /* and ends, at most */
};
void shape_of_type(struct cop *op, const struct type *type,
		   struct shape *out); /* not base and end */
void shape_of_list(struct cop *op, struct shape *out); /* of op->access */

/* ---- transfer.c: a fresh capability, and its memory ---- */
void cap_ask(struct cop *op, struct cfile *f, struct call *c, struct req *q); /* holds q */
void cap_take(struct cfile *f, struct call *c); /* when q goes on */
void lanes_free(struct client *c); /* those kept for reuse */

/* ---- full.c ---- */
/* After -ENOSPC. True: q is held; when it goes on, call room_waited() and send the request
 * again. False: the refusal is final. */
bool room_wait(struct client *c, struct room *r, struct req *q);
void room_waited(struct room *r);

struct append;
/* What an append does at the place that it was given; -EAGAIN: that may be gone. */
void append_there(struct cop *op, struct cfile *f, const struct append *a);

/* ---- near.c ---- */
void near_met(struct peer *p, const struct wire_session_res *r);
void near_parted(struct peer *p);
void near_free(struct cfile *f);

/* ---- ways.c ---- */
void way_learn(struct cop *op, const struct wire_place *p, const struct wire_referral *r,
	       uint64_t asked);
void way_walk(struct cop *op, struct wire_place *p); /* as far as ways are known */
void ways_forget(struct client *c);

/* ---- append.c ---- */
struct append {
	struct list link; /* in f->appends */
	uint64_t id, length, offset, epoch;
	bool placed; /* offset was given, under this epoch */
	uint32_t places; /* that it was given so far */
	const struct iovec *mem;
	size_t n_mem;
	struct extent ext;
	bool room; /* for ext, as client_allocate() makes it: its place is what of that is behind the end */
	uint32_t mode;
	struct cop *write;
	struct wire_append_args args;
	struct wire_append_res res;
	struct wire_appended_args done_args;
	int64_t result;
};
/* `a` says what is written, and lives as long as op. */
void append_start(struct cop *op, struct append *a, struct cfile *f);
uint32_t append_claims(const struct cfile *f, struct wire_append_claim *out); /* APPENDS_MAX */

/* ---- names.c ---- */
struct wire_place name_place(struct sheaf_handle dir, const char *path, bool follow);
/* Errors come out of the operation, not of here. place NULL: the arguments begin with a handle. */
void name_start(struct cop *op, uint32_t number, xdr_any put, xdr_any get, struct wire_place *p,
		int error);

/* ---- file.c ---- */
int file_make(struct cop *op); /* the answer to an open becomes op->file */
/* A file of this layout, without everything else; one without targets is a directory. -EIO: it makes no sense. */
int file_new(struct client *c, const struct wire_handle *h, uint64_t id,
	     const struct wire_layout_rec *l, struct cfile **out);
/* A write to object `index` was answered: the file ends at `end` at least. */
void file_wrote(struct cfile *f, uint32_t index, uint64_t epoch, uint64_t end,
		const struct wire_write_res *r);
/* What the metadata server has recorded of its objects, under this epoch. */
void file_recorded(struct cfile *f, uint64_t epoch, const struct wire_layout_rec *l);
/* One of its objects, as requests name it. */
struct wire_access file_access(const struct cfile *f, uint32_t index);
/* What it has written since the last report, with the notes in the arena; doubt: also without
 * memory for them. */
struct wire_wrote file_report(const struct cfile *f, struct arena *a);
/* A write to object `index` was answered by a server with this verifier. */
void file_unsynced(struct cfile *f, uint32_t index, uint64_t verifier);
/* A time is being set by hand: it outlives our own writes before it. Those up to what is returned are not reported from
 * now on; when it failed, they are again. */
int64_t file_mtime_begin(struct client *c, uint64_t ino, uint32_t uid);
void file_mtime_end(struct client *c, uint64_t ino, int64_t upto, bool set);
void file_reclaim(struct peer *p, bool session_lost);
void file_free(struct cfile *f);

/* ---- locking.c ---- */
int file_locks_init(struct cfile *f); /* 0 or -ENOMEM */
void file_locks_free(struct cfile *f); /* with it go those taken through it */
void file_lose_locks(struct cfile *f); /* those taken through it */
bool file_lost_own(const struct cfile *f); /* some of them, and their owners have not heard of it */
/* Of holding->locks or holding->lost, those taken through this open: writes them from number `skip` on, at most max, to out
 * (or NULL); returns how many there are in all. */
size_t locks_list(const struct list sets[LOCK_SETS], uint64_t open, struct wire_lock *out,
		  size_t skip, size_t max);

#endif
