/* What the files of the server share. Private to src/server. */
#ifndef SHEAF_SRV_H
#define SHEAF_SRV_H

#include <assert.h>

#include "disk/disk.h"
#include "layout/layout.h"
#include "meta/meta.h"
#include "net/net.h"
#include "server/locks.h"
#include "server/server.h"
#include "xdr/xdr.h"

struct sreq;
struct inode;
struct split;
struct open_file;
struct removals;

#define MAX_REMOVING 256 /* files at a time, by default; the others wait in their rows */
#define WINDOW_BYTES (256 * KIB) /* of one step of a bulk transfer */
#define WINDOW_PIECES 2048 /* in it */
#define WINDOW_IOS 128 /* file accesses at a time */
#define WINDOW_STATES 7
#define WINDOWS 2 /* of one request at a time: network and disk overlap */
#define COPY_BYTES (8 * MIB) /* of the pool for copies: a session's share is the windows of two */
#define CAP_LIFE_NS (3600 * NSEC_PER_SEC)
#define CAP_CACHE 256

/* One operation: what it takes, what it gives, and how it is done: a handler that answers at once, a
 * pair around one metadata record, or a step function of its own. */
struct op_row {
	const char *name;
	unsigned flags;
	xdr_any args_filter, res_filter;
	uint16_t args_size, res_size, state_size; /* state_size: of sreq->op */
	int (*handle)(struct sreq *s);
	int (*prepare)(
		struct sreq *s); /* fills s->change.rec; or CHANGES_NOTHING: s->res is filled */
	int (*finish)(struct sreq *s); /* s->change.res.status was 0 */
	int (*split)(struct sreq *s,
		     struct split *x); /* into parts, when one server is not enough */
	const struct req_ops *ops;
};
enum {
	OP_NEEDS_META = 1,
	OP_NEEDS_DATA = 2,
	OP_FROM_SERVERS = 4, /* only links that proved the server key */
	OP_NO_SESSION = 8,
	OP_WRITES = 16, /* what it changed may be lost until a sync */
	OP_ADMIN = 32, /* only uid 0 */
};
#define CHANGES_NOTHING 1
extern const struct op_row op_rows[];
extern const unsigned n_op_rows;
const struct op_row *op_row(uint32_t op);

/* A request in service. */
struct sreq {
	struct req q;
	struct server *srv;
	struct list link_mate; /* spare list, or srv->parked */
	struct link *link;
	struct session *session; /* NULL for OP_NO_SESSION */
	const struct op_row *row;
	struct wire_req_head head;
	struct cred cred;
	struct msg *in;
	uint64_t tag;
	uint64_t verifier; /* when it came */
	uint8_t digest[DIGEST_BYTES]; /* of the request, once a record or a stored reply needs it */
	bool has_digest;
	struct arena arena;
	uint64_t charged; /* bytes of it that count for its link */
	size_t arena_bytes; /* of them for the arena: the most that it has held */
	bool no_room; /* some were refused: the client asks again */
	struct usage *reserved_by; /* one unit is held for it, or NULL ... */
	enum limit reserved; /* ... of this limit */
	bool cancelled;
	uint64_t deadline; /* 0: none; the client has given up then */
	uint64_t ino; /* what it is about, for people */
	void *args, *res, *op; /* in the arena */
	struct change change;
	struct wire_referral referral; /* when the error is -EREMOTE */
	struct lease *leases[2]; /* of names that it changes */
};

/* Names of directories elsewhere that clients may take for granted (lease.c). */
#define LEASES 1024
#define LEASE_NS (NSEC_PER_SEC / 4)
struct lease {
	uint64_t session, until; /* who got one last */
	uint64_t others; /* until when others have one */
	uint64_t closed; /* no new ones until then: somebody waits */
	uint32_t changes; /* under way: no new ones */
};

/* A capability that was found to be good over links with this key. */
struct known_cap {
	struct wire_capability cap;
	char key[CONF_NAME_MAX];
};

/* Objects whose loss was told of lately. */
#define DAMAGE_KNOWN 64
#define DAMAGE_TELL_NS (600 * NSEC_PER_SEC)
struct damage {
	uint64_t accesses; /* that met lost data */
	struct {
		struct object_id id;
		uint64_t told;
	} known[DAMAGE_KNOWN];
	uint32_t next;
};

/* Files that wait in their rows for a task of one kind. */
struct backlog {
	uint32_t n; /* tasks that there are */
	bool left; /* there may be more rows than tasks */
	struct timer refill;
};

struct server {
	struct loop *loop;
	const struct conf *conf;
	const struct conf *doors; /* keys and networks: conf, or a newer one */
	const struct conf_target *self;
	uint32_t target;
	struct net net;
	struct pool pool;
	struct pool
		copies; /* of windows that wait for other targets: two full pools never wait for each other */
	struct disk *disk; /* or NULL */
	struct meta *meta; /* or NULL */
	struct sessions sessions;
	struct peer *peers; /* one for each target of the map; room for all there can be */
	uint32_t n_peers;
	uint64_t started;
	uint64_t boot;
	uint64_t requests;
	uint64_t bytes_read, bytes_written; /* of data */
	struct wire_map_res map; /* version 0: of a server without metadata */
	struct arena map_arena;
	struct list spare_reqs, spare_windows;
	unsigned n_spare_reqs, n_spare_windows;
	uint32_t in_service;
	struct htab inodes; /* open or being worked on */
	struct htab opens; /* struct open_file */
	struct lock_table locks;
	struct list tasks; /* background work */
	struct list delayed; /* tasks that wait for the grace period */
	struct backlog removing, settling;
	uint32_t max_removing;
	struct removals *removals[TARGETS_MAX]; /* objects that are removed together, or NULL */
	bool in_grace;
	struct timer grace;
	struct lease leases[LEASES];
	uint32_t n_durable; /* requests that wait until files are on disk */
	struct list pairs; /* changes over several servers that we coordinate */
	struct list pair_tasks; /* those whose end somebody must still hear of */
	struct list parked; /* requests that met one, until it is over */
	struct timer unpark, pair_scan;
	uint64_t *old_pairs; /* prepared when the last scan looked */
	size_t n_old_pairs;
	bool stopping;
	struct evp_mac_ctx_st *signer; /* with the server key */
	struct known_cap cap_cache[CAP_CACHE]; /* verified ones */
	struct damage damage;
	struct metrics_http *http; /* or NULL */
	struct hist **state_times; /* by operation: one a state */
	struct hist *op_times; /* by operation: from the message to the reply */
	struct hist window_times[WINDOW_STATES];
	struct {
		struct meta_copy *copy; /* or NULL */
		uint64_t id, session;
		int64_t time;
		uint32_t readers; /* requests that read it now */
	} backup;
	struct req map_req; /* stores the map; on the loop when its loop is set */
	struct change map_change;
	struct arena store_arena; /* of map_req */
	bool map_dirty; /* it changed while it was being stored */
	struct {
		struct req q; /* on the loop when its loop is set */
		struct call call;
		struct wire_void_args args;
		struct wire_map_res res;
		struct arena arena;
		uint64_t over; /* when it was answered last, or 0 */
	} ask; /* a metadata server for its map */
};

/* ---- dispatch.c ---- */
void srv_request(void *owner, struct link *l, uint64_t tag, struct msg *m);
void srv_cancel(void *owner, struct link *l, uint64_t tag);
void srv_link_down(void *owner, struct link *l);
/* Last state of every step function: answers with q->error or the result, and frees; returns false. With
 * -EINPROGRESS it begins again instead, when the change it met is over. */
bool sreq_reply(struct sreq *s);
/* A record with the caller's credential, slot and time. */
void sreq_record(struct sreq *s, uint32_t kind);
/* The stored reply of an earlier execution, in s->change.res: 0, -ENOENT (there was none), or
 * -errno. A reply that belongs to another request is refused (-EBADMSG) and counted. */
int sreq_replay(struct sreq *s);
int sreq_decode(struct sreq *s); /* its message; or -EPROTO, -ENOMEM */
bool is_sreq(const struct req *q); /* or a task, or a window */
static inline struct sreq *sreq_of(struct req *q)
{
	return container_of(q, struct sreq, q);
}
/* Step functions of the two short flavours. */
extern const struct req_ops handle_ops, change_ops;
void spare_requests_free(struct server *srv);
void sreq_abandon(struct sreq *s); /* as a crash: frees it */

/* ---- metrics.c ---- */
int times_init(struct server *srv);
/* ---- http.c ---- */
void metrics_stop(struct server *s); /* harmless without one */
void times_free(struct server *srv);

/* ---- target_map.c ---- */
int map_open(struct server *s); /* after the metadata, before the net */
int map_peers(struct server *s); /* after the net: one for each of its targets */
void map_abandon(struct server *s);
/* Is there a peer for this target? 0; -EINPROGRESS: the metadata server of this inode is being asked; -EINVAL. */
int map_knows(struct server *s, uint32_t target, uint64_t ino);

/* ---- op_backup.c ---- */
void backup_session_ended(struct server *s, uint64_t session);
void backup_cancel(struct server *s); /* the server stops */
void backup_end(struct server *s);

/* ---- server.c ---- */
uint16_t partition_of(const struct conf *c, uint32_t target);

/* ---- op_names.c ---- */
/* Fills s->referral on -EREMOTE. leaf NULL: the node itself. */
int walk_place(struct sreq *s, const struct wire_place *p, struct meta_leaf *leaf,
	       struct wire_handle *at);
int may(struct sreq *s, const struct meta_node *n, int what);
/* The time of a writer's latest write; 0: none, or none that is newer than a time set by hand. */
int64_t reported_mtime(const struct inode *i, const struct wire_wrote *w);
void file_removed(struct server *srv, const struct wire_handle *h); /* no names: its objects go */

/* ---- identity.c: whom a request speaks for ---- */
/* 0, or -EPERM: its link's key does not speak for that user. Root of networks that are not trusted becomes
 * nobody, in s->head and s->cred. */
int sreq_identify(struct sreq *s);
/* Is root of this link root? Then there is nothing to hide from it. */
bool sreq_may_be_root(const struct sreq *s);
/* What proves a session: the client's secret and its key. */
void session_proof(const struct sreq *s, const uint8_t secret[16], uint8_t out[16]);

/* ---- room.c: what a request takes of the limits ---- */
/* 0, or the error of the client; a refusal is counted and logged. */
int sreq_take(struct sreq *s, struct usage *h, enum limit what, uint64_t n);
/* One unit, held from now until sreq_use(), sreq_unreserve() or the reply. A request has at most
 * one. */
int sreq_reserve(struct sreq *s, struct usage *h, enum limit what);
int sreq_use(struct sreq *s, struct usage *h, enum limit what); /* without one: takes it */
void sreq_unreserve(struct sreq *s); /* harmless without one */
/* Memory for the request; false: sreq_reply() will ask the client to come again. */
bool sreq_charge(struct sreq *s, uint64_t bytes);
bool sreq_charge_spare(struct sreq *s, uint64_t bytes); /* which it can do without */
bool sreq_may_grow(struct arena *a, size_t bytes); /* of struct sreq.arena */
void sreq_release(struct sreq *s); /* everything that is taken for it, not by it */

/* ---- caps.c ---- */
void cap_make(const struct sreq *s, struct wire_capability *c, const struct meta_node *n,
	      uint32_t rights);
/* 0, -EKEYREJECTED (forged, or another key's), -EKEYEXPIRED (old or fenced: fetch a fresh one), -EACCES. */
int cap_check(struct sreq *s, const struct wire_capability *c, uint32_t rights);
int access_check(struct sreq *s, const struct wire_access *a, uint32_t rights); /* or -EINVAL */
/* A fence that only the disk knew, or that came meanwhile, has failed the request with -ESTALE:
 * as if by cap_check(). */
void cap_refused(struct sreq *s);
void cap_sign(const struct server *srv, const char *key, struct wire_capability *c);
/* For this server itself, towards other targets. */
struct wire_capability cap_own(const struct server *srv, const struct meta_node *n,
			       uint32_t rights);

/* ---- damage.c: recorded data that are not there ---- */
static inline struct object_id object_of(const struct wire_access *a)
{
	return (struct object_id){ a->cap.ino, a->cap.obj_gen, a->index };
}
/* The object ends at `end`, before its recorded end: tells of it. -EIO, or -EKEYEXPIRED when it
 * was cut meanwhile. */
int object_damaged(struct sreq *s, const struct wire_access *a, uint64_t end);
/* Does reading these extents reach into what is lost? Then as object_damaged(), else 0. */
int read_damaged(struct sreq *s, const struct wire_access *a, const struct wire_extent *list,
		 uint32_t n, uint64_t end);
/* Would writing them leave zeros in the place of what is lost? One extent from the end on, or
 * from before it, does not. */
int write_damaged(struct sreq *s, const struct wire_access *a, const struct wire_extent *list,
		  uint32_t n, uint64_t end);

/* ---- op_lock.c ---- */
void lock_released(struct inode *i); /* something that locks waited for has come: who may go on? */
void lock_closed(struct open_file *o); /* an open goes: its locks and waits do, too */
void lock_waits_answer(struct server *srv, struct session *ss); /* ss NULL: of all sessions */
void lock_waits_free(struct server *srv); /* as a crash */
void lock_hurry(struct sreq *s); /* its client asks for an answer now; any request */
int lock_claim(struct sreq *s, struct inode *i); /* what a RECLAIM says of locks */
bool lock_parked(const struct sreq *s);

/* ---- inodes.c: files that are open or being worked on ---- */
enum { LOCKS_OF_RANGES, LOCKS_OF_WHOLE, LOCK_SPACES };
struct inode {
	struct hnode node;
	struct server *srv;
	struct wire_handle h;
	uint32_t refs, opens, writers;
	uint32_t appenders; /* of the writers */
	bool append_known; /* append_end is where the file ends, but for what other writers add */
	uint64_t append_end;
	struct list appends; /* places given and not reported */
	int64_t touched; /* its mtime was set while others wrote, then: writes up to it are older; 0: was not */
	bool row_durable; /* its unsettled row is on disk, and nothing queued removes it */
	bool orphaned; /* a writer died: settling needs a fence */
	bool removed; /* no names: objects go with the last open */
	bool removing; /* a task is at it */
	bool going; /* it has begun: nobody opens it any more */
	uint32_t settling; /* tasks that are at it */
	bool locked;
	bool fencing; /* locks wait for a fence against a writer that died */
	struct list waiters; /* struct inode_wait */
	struct lock_space locks[LOCK_SPACES]; /* advisory ones */
};
struct inode_wait {
	struct list link;
	struct inode *inode;
	struct req *q;
	bool held;
};
struct open_file {
	struct hnode node; /* by session and id */
	struct list in_session;
	struct session *session;
	struct inode *inode;
	uint64_t id;
	uint32_t flags;
	struct list appends;
};
struct inode *inode_get(struct server *srv, const struct wire_handle *h); /* NULL: out of memory */
struct inode *inode_find(struct server *srv, uint64_t ino); /* no reference taken */
/* The file has no name and no open: its removal has begun, maybe before our restart, or begins
 * at any time. */
bool inode_is_gone(struct server *srv, const struct meta_node *n);
/* Did the session have what it claims when the server went down? One that is new since then, or
 * has claimed before, may have lost it: others may have had the locks, and files without a name
 * may be gone. */
bool claims_own(const struct sreq *s);
void inode_put(struct inode *i);
/* One at a time: truncates, settling, writers coming and going, removal. Holds q until granted. */
void inode_lock(struct inode *i, struct inode_wait *w, struct req *q);
/* The same by its handle: 0 or -ENOMEM. The lock keeps the inode. */
int inode_lock_handle(struct server *srv, const struct wire_handle *h, struct inode_wait *w,
		      struct req *q);
void inode_lock_next(struct inode *i, struct inode_wait *w,
		     struct req *q); /* before all who wait */
void inode_unlock(struct inode_wait *w); /* harmless when not locked */
struct open_file *open_find(struct session *s, uint64_t id);
uint32_t session_holds(const struct session *s, uint64_t ino); /* OPEN_READ, OPEN_WRITE */
bool session_writes(const struct session *s, uint64_t ino);
bool others_write(const struct session *s, const struct inode *i);
/* Reserves an open file, unless it is this one again: 0, -EMFILE or -ENFILE. */
int open_room(struct sreq *s, uint64_t id);
/* Idempotent. Uses what was reserved. */
int open_add(struct sreq *s, struct inode *i, uint64_t id, uint32_t flags);
void open_drop(struct open_file *o); /* starts what the last close starts */
void open_lose(struct open_file *o); /* it was not closed: what a writer did is settled by a fence */
void opens_abandon(struct server *srv);
void open_abandon(struct sreq *s); /* what an OPEN waits for */

/* ---- op_append.c ---- */
void appends_drop(struct open_file *o); /* with its open */
void appends_forget(struct inode *i); /* the file was cut */
/* The first place that is not reported; when only appends extend the file, the next one; or UINT64_MAX. */
uint64_t append_limit(const struct inode *i);
/* A place of an older epoch than the file's is not given back. */
int append_claim(struct sreq *s, struct open_file *o, const struct wire_append_claim *c,
		 uint64_t epoch);
int do_appended(struct sreq *s);

/* ---- op_durable.c: data that earlier writers of a file have left ---- */
struct durable_call {
	struct call call;
	struct wire_durable_args args;
	struct wire_void_res res;
	bool waits; /* for its answer */
};
/* Has them brought to disk, and waits for the answer; -EINPROGRESS: later, as the syncs need slots
 * too. */
int durable_ask(struct sreq *s, struct durable_call *d, const struct wire_handle *h, bool doubtful);
void durable_over(struct sreq *s, struct durable_call *d); /* its answer came, or is not wanted */

/* ---- op_pair.c: changes that may take several servers ---- */
struct pair_state {
	struct list link; /* in srv->pairs from the split on */
	uint64_t id;
	uint32_t place; /* of a new directory: its server */
	struct durable_call
		durable; /* what a rename puts in another's place, brought to disk first */
	struct split *x; /* or NULL: not split */
};
uint32_t meta_owner(const struct server *srv, uint64_t ino); /* the target that has it */
int split_mkdir(struct sreq *s, struct split *x), split_link(struct sreq *s, struct split *x),
	split_remove(struct sreq *s, struct split *x),
	split_rename(struct sreq *s, struct split *x);
void pair_abandon(struct sreq *s);
extern const struct req_ops pair_ops;

/* ---- lease.c ---- */
/* How long, in ms, this session may take the name for granted. */
uint32_t lease_grant(struct server *srv, uint64_t session, uint64_t dir,
		     const struct wire_bytes *name);
/* 0 when nobody but this session takes it (NULL: any name in dir) for granted, nor will before the request has
 * ended; else -EINPROGRESS. For two names at most. */
int lease_over(struct sreq *s, uint64_t session, uint64_t dir, const struct wire_bytes *name);
void lease_done(struct sreq *s); /* the request has ended, or begins again */

/* ---- pairs.c: the other side of them, and what is left to do ---- */
bool sreq_park(struct sreq *s); /* until a change over two servers is over; false: answer */
void unpark(struct server *srv);
/* Goes on telling those who prepared that it is decided; told: they have heard. */
void pair_tell(struct server *srv, const struct meta_pair *p, bool told);
void pairs_recover(struct server *srv);
void pairs_abandon(struct server *srv);
int do_outcome(struct sreq *s), do_climb(struct sreq *s), prepare_part(struct sreq *s),
	finish_prepared(struct sreq *s), prepare_finish(struct sreq *s),
	finish_finish(struct sreq *s);

/* ---- fan.c: calls to other targets ---- */
/* As root, with the ordinary patience; the caller may change it. */
struct call server_call(struct server *srv, uint64_t trace, uint32_t op, xdr_any put, void *args,
			xdr_any get, void *res);
/* An object to be removed, for whoever waits for that (removals.c). */
struct removal {
	struct list link;
	struct wire_removal what;
	struct req *q;
};
/* Holds r->q until it is gone, or with an error. */
void removal_add(struct server *srv, uint32_t target, struct removal *r);
void removals_abandon(struct server *srv);
/* One to each target of a layout. */
struct fan {
	uint32_t n;
	struct call *calls;
	struct wire_fence_args *fence;
	struct removal *removals;
	struct wire_sync_args *sync;
	struct wire_object_res *object;
};
int fan_init(struct fan *f, const struct wire_layout_rec *l, struct arena *a);
/* truncate_to: file size, or FENCE_KEEP */
void fan_fence(struct server *srv, struct fan *f, const struct wire_layout_rec *l, uint64_t ino,
	       uint64_t epoch, uint64_t truncate_to, struct req *q);
enum fan_sync {
	SYNC_ALL, /* whatever they have lost */
	SYNC_LEFT, /* of a file with writers all, else those with data that no sync covers */
	SYNC_DOUBTFUL, /* fan_doubts() */
};
#define LOOK_NS (2 * NSEC_PER_SEC)
/* brief: for LOOK_NS at most. */
int fan_sync(struct server *srv, struct fan *f, const struct meta_node *n, enum fan_sync which,
	     bool brief, struct arena *a, struct req *q);
/* Has the object a mark of unsynced data, and was its server perhaps started again since? True
 * also before there is a link to it; false while the server is unreachable. */
bool fan_doubts(const struct server *srv, const struct meta_node *n, uint32_t index);
/* Only the objects that a file of this size can have. */
void fan_remove(struct server *srv, struct fan *f, const struct wire_layout_rec *l, uint64_t ino,
		uint64_t epoch, uint64_t size, struct req *q);
void fan_fini(struct fan *f);
/* What the answers to fan_fence() tell of each object, for a record; cut_to: the file size, or
 * FENCE_KEEP. */
int fan_notes(const struct fan *f, const struct wire_layout_rec *l, uint64_t cut_to,
	      struct arena *a, struct wire_record *r);
/* File size and mtime that the answers to fan_fence() amount to. */
uint64_t fan_end(const struct fan *f, const struct wire_layout_rec *l, int64_t *mtime);

/* ---- tasks.c: what the server does by itself ---- */
enum task_kind { TASK_SETTLE, TASK_REMOVE, TASK_TRUNCATE, TASK_END_SESSION };
int task_start(struct server *srv, enum task_kind kind, const struct wire_handle *h, uint64_t size,
	       uint64_t epoch);
void task_end_session(struct server *srv, struct session *ss);
void tasks_recover(struct server *srv); /* at start: everything that was left undone */
void tasks_abandon(struct server *srv);
void grace_start(struct server *srv);
void grace_check(struct server *srv); /* ends when every session has come back */

/* ---- fetch.c: bytes of an object here or on another target, for a COPY ---- */
struct fetch {
	struct req q;
	struct req *parent;
	struct server *srv;
	struct sreq *s; /* the COPY */
	const struct wire_access *at;
	uint32_t source; /* target */
	struct extent ext[WINDOW_IOS]; /* what is wanted, in the order of the buffer */
	struct extent list[WINDOW_IOS]; /* neighbours joined */
	uint32_t n_list;
	struct access access; /* the buffer and where its bytes come from */
	struct view view;
	struct call call; /* to another target */
	struct wire_read_args args;
	struct wire_read_res res;
	struct object *object; /* here */
	struct turn turn;
	struct io ios[WINDOW_IOS];
	struct iovec iov[WINDOW_IOS + BUF_MAX_UNITS];
	bool busy;
};
void fetch_init(struct fetch *f, struct sreq *s, const struct wire_access *at, uint32_t source);
/* Holds q until f->ext[0 .. n) are in buf, zeros where the object has none. All of it is borrowed. */
void fetch_start(struct fetch *f, uint32_t n, const struct buf *buf, struct req *q);
void fetch_cancel(struct fetch *f); /* ends it with -ECANCELED if it waits for another target */
struct fetch *fetch_of(const struct server *srv, struct req *q); /* NULL: q is something else */
void fetch_abandon(struct fetch *f);

/* ---- mapped.c: pieces of a cached file, copied out of its mapping ---- */

/* Pieces further apart are not asked for at once whether they are in memory. */
#define HULL_MAX (1 * MIB)
/* Pieces of an object within [lo, hi) as memory, until object_unmap(); false: there is no such thing. */
bool map_pieces(struct object *o, const struct extent *pieces, size_t n, uint64_t lo, uint64_t hi,
		struct iovec *out);
/* Pieces [lo, hi) of an object to where dst says, n of either; the caller has a turn. src: room for as many as there are
 * pieces. False: they are not all there without waiting, nothing counts. */
bool mapped_read(struct object *o, const struct extent *pieces, size_t n, uint64_t lo, uint64_t hi,
		 struct iovec *src, const struct iovec *dst, size_t n_dst);
/* Is it a file in memory, all of the range there already? No page is made or waited for. */
bool mapped_can_write(const struct loop *l, struct object *o, uint64_t lo, uint64_t hi);
/* The other way, where the loop's files are in memory. False: they are to be written, all of them. */
bool mapped_write(struct object *o, const struct extent *pieces, size_t n, uint64_t lo, uint64_t hi,
		  struct iovec *dst, const struct iovec *src, size_t n_src);

/* ---- windows.c: bulk transfer between an object and a client ---- */
/* A pattern of a request, expanded a few extents at a time. */
#define PART_BATCH 256
struct part_list {
	struct type *type;
	struct pattern pattern;
	struct portion portion;
	struct extent batch[PART_BATCH];
};

struct mover {
	struct sreq *s;
	struct object *object;
	const struct wire_mem_desc *mem;
	const uint8_t *data; /* instead of that memory, in the message; or NULL */
	const struct wire_extent *list;
	uint32_t n_list;
	struct part_list *part; /* where more of the list comes from, or NULL */
	uint64_t epoch, end; /* reads are clipped at end */
	bool clipped; /* one was */
	bool write;
	const struct wire_extent
		*from; /* COPY: where the bytes of `list` come from, instead of mem */
	struct fetch *fetches; /* one for each window */
	/* where the next window begins */
	uint32_t i;
	uint64_t o, at; /* within extent i; in the stream */
	uint64_t moved;
};
/* Holds s->q until everything has moved or one window failed. */
void mover_start(struct mover *m);
void spare_windows_free(struct server *srv);
bool is_window(const struct server *srv, const struct req *q);
void window_abandon(struct req *q);
const char *window_state_name(unsigned state);
static inline struct layout layout_of(const struct wire_layout_rec *l)
{
	return (struct layout){ l->unit, l->n_targets, l->start };
}

/* ---- the operations ---- */
int do_ping(struct sreq *s), do_status(struct sreq *s), do_requests(struct sreq *s),
	do_map(struct sreq *s);
int do_lookup(struct sreq *s), do_getattr(struct sreq *s), do_readdir(struct sreq *s),
	do_readlink(struct sreq *s), do_getxattr(struct sreq *s), do_listxattr(struct sreq *s);
int prepare_setattr(struct sreq *s), prepare_mkdir(struct sreq *s), prepare_unlink(struct sreq *s),
	prepare_rmdir(struct sreq *s), prepare_rename(struct sreq *s),
	prepare_record(struct sreq *s), prepare_link(struct sreq *s),
	prepare_symlink(struct sreq *s), prepare_setxattr(struct sreq *s),
	prepare_removexattr(struct sreq *s), prepare_mknod(struct sreq *s);
int finish_attr(struct sreq *s), finish_recorded(struct sreq *s), finish_recorded(struct sreq *s),
	finish_made(struct sreq *s), finish_removed(struct sreq *s), finish_void(struct sreq *s);
int do_bye(struct sreq *s);
extern const struct req_ops add_target_ops, backup_ops, reclaim_ops, session_open_ops, open_ops,
	cap_ops, close_ops, truncate_ops, append_ops, lock_ops, read_ops, write_ops, sync_ops,
	objstat_ops, fence_ops, remove_ops, allocate_ops, copy_ops, seek_ops, durable_ops;

int do_scan(struct sreq *s), prepare_repair(struct sreq *s), finish_repair(struct sreq *s);
extern const struct req_ops objects_ops;

/* What operations with steps of their own keep between steps. */
struct session_state {
	struct session_wait wait;
	struct session *found;
	uint64_t id;
	uint8_t proof[16];
	bool resumed;
	bool first; /* no other was under way on its link */
};
struct backup_state {
	struct io io;
	struct iovec iov;
};
struct trunc {
	struct inode_wait lock;
	struct fan fan;
	struct meta_node node;
	struct wire_handle h;
	struct wire_layout_rec layout;
	uint64_t epoch, size;
	bool begun, ended; /* its intent is durable; its end is queued */
};
struct open_state {
	struct trunc t;
	struct wire_handle dir, h;
	struct meta_leaf leaf;
	struct durable_call durable;
	bool created, replayed;
	bool looked; /* whether data that earlier writers left were lost */
};
struct close_state {
	struct inode_wait lock;
	bool last; /* writer */
	bool again; /* its record was made by an earlier execution */
};
struct durable_state {
	struct inode_wait lock;
	struct meta_node node;
	struct fan fan;
};
struct claim_state {
	bool added; /* a writer whose row is not durable yet */
};
struct lock_state {
	struct lock_wait *wait; /* while it is parked */
};
struct data_state {
	struct mover m;
	struct part_list *part; /* or NULL */
	struct object *object;
	struct buf buf; /* of inline data */
	struct turn turn;
	struct io ios[16];
	uint32_t tries; /* of a read that was clipped at an end that moved meanwhile */
};
struct object_state {
	struct object *object;
	struct io io; /* of a seek */
	struct object_stat stat; /* of a fence */
};

/* ---- op_data.c ---- */
void copy_cancel(struct sreq *s); /* the client has given up, or its link is gone */
void data_abandon(struct sreq *s); /* of a READ or WRITE */

/* ---- op_truncate.c: steps shared with O_TRUNC ---- */
void trunc_begin(struct sreq *s, struct trunc *t, const struct wire_handle *h, uint64_t size);
int trunc_fence(struct sreq *s, struct trunc *t);
int trunc_end(struct sreq *s, struct trunc *t);
void trunc_fini(struct sreq *s,
		struct trunc *t); /* unlocks; leaves a task behind when it must go on */

#endif
