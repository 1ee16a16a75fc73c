/* Shared by the files of the server. Private to src/server. */
#ifndef SHEAF_SRV_H
#define SHEAF_SRV_H

#include <assert.h>

#include "disk/disk.h"
#include "layout/layout.h"
#include "meta/meta.h"
#include "net/bulk.h"
#include "net/link.h"
#include "net/mac.h"
#include "net/net.h"
#include "net/peer.h"
#include "net/session.h"
#include "server/locks.h"
#include "server/server.h"
#include "xdr/xdr.h"

struct sreq;
struct inode;
struct split;
struct open_file;
struct removals;

#define MAX_REMOVING 256 /* files removed at a time, by default; the others wait in their rows */
#define CAP_LIFE_NS (3600 * NSEC_PER_SEC)
#define CAP_CACHE 256

/* How one operation is executed: by a handler that answers at once, by a prepare/finish pair around
 * one metadata record, or by a step function of its own. */
struct op_row {
	const struct wire_op_row *wire;
	uint16_t state_size; /* of sreq->op */
	int (*handle)(struct sreq *s);
	/* Fills s->change.rec; or returns CHANGES_NOTHING after it has filled s->res. */
	int (*prepare)(struct sreq *s);
	int (*finish)(struct sreq *s); /* called if s->change.res.status is 0 */
	int (*split)(struct sreq *s,
		     struct split *x); /* splits the change into parts for several servers */
	const struct req_ops *ops;
};
#define CHANGES_NOTHING 1
extern const struct op_row op_rows[N_OPS];
const struct op_row *op_row(uint32_t op); /* NULL: there is no such operation */

/* The functions that proto/ops.def names. */
#define HANDLE(h) int h(struct sreq *s)
#define CHANGE(p, f) int p(struct sreq *s), f(struct sreq *s)
#define NAMES(p, f, sp) \
	int p(struct sreq *s), f(struct sreq *s), sp(struct sreq *s, struct split *x)
#define STEPS(o, state) extern const struct req_ops o
#define OP(number, NAME, name, args, res, flags, how) how;
#include "proto/ops.def"
#undef HANDLE
#undef CHANGE
#undef NAMES
#undef STEPS
#undef OP

/* A request in service. */
struct sreq {
	struct req q;
	struct server *srv;
	struct list link_mate; /* in srv->spare_reqs, or in srv->parked */
	struct link *link;
	struct session *session; /* NULL for OPF_NO_SESSION */
	const struct op_row *row;
	struct wire_req_head head;
	struct cred cred;
	struct msg *in;
	uint64_t tag;
	uint64_t verifier; /* the disk's, when the request arrived */
	uint8_t digest[DIGEST_BYTES]; /* of the request, made when it is needed */
	bool has_digest;
	struct arena arena;
	uint64_t charged; /* bytes charged to the link */
	size_t arena_bytes; /* part of charged: the largest size of the arena so far */
	bool no_room; /* a charge was refused: the client is told to retry */
	struct usage *reserved_by; /* holds the reserved unit, or NULL */
	enum limit reserved; /* the limit of this unit */
	bool cancelled;
	uint64_t deadline; /* then the client has given up; 0: none */
	uint64_t ino; /* the inode that it accesses, also for REQUESTS and the log */
	void *args, *res, *op; /* in the arena */
	struct change change;
	struct wire_referral referral; /* set when the error is -EREMOTE */
	struct lease *leases[2]; /* buckets of the names that it changes */
};

/* A bucket of leases on names of directories of other servers (lease.c). */
#define LEASES 1024
#define LEASE_NS (NSEC_PER_SEC / 4)
struct lease {
	uint64_t session, until; /* the last session with a lease, and its end */
	uint64_t others; /* when the leases of other sessions end */
	uint64_t closed; /* no new leases until then: a request waits for their end */
	uint32_t changes; /* in progress: no new leases */
};

/* A capability that was verified over a link with this key. */
struct known_cap {
	struct wire_capability cap;
	char key[CONF_NAME_MAX];
};

/* Objects whose loss was logged lately. */
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

/* Rows that wait for a task of one kind. */
struct backlog {
	uint32_t n; /* tasks that exist */
	bool left; /* there may be more rows than tasks */
	struct timer refill;
};

struct server {
	struct loop *loop;
	const struct conf *conf;
	const struct conf *doors; /* the source of keys and networks: conf, or a newer one */
	const struct conf_target *self;
	uint32_t target;
	struct net net;
	struct pool pool;
	struct pool copies; /* for COPY: full pools of two servers never wait for each other */
	struct disk *disk; /* or NULL */
	struct meta *meta; /* or NULL */
	struct sessions sessions;
	struct peer *peers; /* one per target of the map; room for CONF_MAX_TARGETS */
	uint32_t n_peers;
	uint64_t started;
	uint64_t boot;
	uint64_t requests;
	uint64_t bytes_read, bytes_written; /* data bytes */
	struct wire_map_res map; /* version 0: this server has no metadata */
	struct arena map_arena;
	struct list spare_reqs, spare_windows;
	unsigned n_spare_reqs, n_spare_windows;
	uint32_t in_service;
	struct htab inodes; /* struct inode: open, or used by a request or task */
	struct htab opens; /* struct open_file */
	struct lock_table locks;
	struct list tasks; /* background work */
	struct list delayed; /* tasks that wait for the end of the grace period */
	struct backlog removing, settling;
	uint32_t max_removing;
	struct removals *removals[TARGETS_MAX]; /* batches of objects to remove, or NULL */
	bool in_grace;
	struct timer grace;
	struct lease leases[LEASES];
	uint32_t n_durable; /* requests that wait for durable_ask() */
	struct list pairs; /* struct pair_state: changes over several servers, coordinated here */
	struct list pair_tasks; /* changes whose outcome must be learned or told */
	struct list parked; /* requests that met an unfinished change */
	struct timer unpark, pair_scan;
	uint64_t *old_pairs; /* prepared changes that the last scan saw */
	size_t n_old_pairs;
	bool stopping;
	struct evp_mac_ctx_st *signer; /* the server key, for HMACs */
	struct known_cap cap_cache[CAP_CACHE]; /* verified ones */
	struct damage damage;
	struct metrics_http *http; /* or NULL */
	struct hist **state_times; /* by operation and state */
	struct hist *op_times; /* by operation: from the message to the reply */
	struct hist *window_times; /* by state of a window */
	struct {
		struct meta_copy *copy; /* or NULL */
		uint64_t id, session;
		int64_t time;
		uint32_t readers; /* requests that read the copy now */
	} backup;
	struct req map_req; /* stores the map; active if its loop is set */
	struct change map_change;
	struct arena store_arena; /* memory of map_req */
	bool map_dirty; /* the map changed while it was being stored */
	struct {
		struct req q; /* active if its loop is set */
		struct call call;
		struct wire_void_args args;
		struct wire_map_res res;
		struct arena arena;
		uint64_t over; /* time of the last answer, or 0 */
	} ask; /* asks a metadata server for its map */
};

/* ---- dispatch.c ---- */
void srv_request(void *owner, struct link *l, uint64_t tag, struct msg *m);
void srv_cancel(void *owner, struct link *l, uint64_t tag);
void srv_link_down(void *owner, struct link *l);
/* The last state of every step function: replies with q->error or the result, frees s, returns
 * false. On -EINPROGRESS it parks the request instead, to begin again when the change that it met
 * is over. */
bool sreq_reply(struct sreq *s);
/* Fills in a record with the caller's credential, slot and time. */
void sreq_record(struct sreq *s, uint32_t kind);
/* The stored answer of an earlier execution, in s->change.res: 0, -ENOENT (there is none), or
 * -errno. An answer that belongs to another request is refused (-EBADMSG) and counted. */
int sreq_replay(struct sreq *s);
int sreq_decode(struct sreq *s); /* decodes its message: 0, -EPROTO or -ENOMEM */
bool is_sreq(const struct req *q); /* else a task, a window or a fetch */
static inline struct sreq *sreq_of(struct req *q)
{
	return container_of(q, struct sreq, q);
}
/* Step functions of HANDLE, CHANGE and NAMES. */
extern const struct req_ops handle_ops, change_ops, pair_ops;
void spare_requests_free(struct server *srv);
void sreq_abandon(struct sreq *s); /* frees it, as a crash would */

/* ---- metrics.c ---- */
int times_init(struct server *srv);
/* ---- http.c ---- */
void metrics_stop(struct server *s); /* no-op if not started */
void times_free(struct server *srv);

/* ---- target_map.c ---- */
int map_open(struct server *s); /* call after the metadata are open, before the network */
int map_peers(struct server *s); /* call after the network is open: makes one peer per target */
void map_abandon(struct server *s);
/* Is there a peer for this target? 0: yes; -EINPROGRESS: the metadata server of this inode is being
 * asked; -EINVAL: no. */
int map_knows(struct server *s, uint32_t target, uint64_t ino);

/* ---- op_backup.c ---- */
void backup_session_ended(struct server *s, uint64_t session);
void backup_cancel(struct server *s); /* when the server stops */
void backup_end(struct server *s);

/* ---- server.c ---- */
uint16_t partition_of(const struct conf *c, uint32_t target);

/* ---- op_names.c ---- */
/* Fills s->referral on -EREMOTE. leaf NULL: *at is the last component itself. */
int walk_place(struct sreq *s, const struct wire_place *p, struct meta_leaf *leaf,
	       struct wire_handle *at);
int may(struct sreq *s, const struct meta_node *n, int what);
/* The mtime of a writer's report; 0: it has none, or none newer than an mtime set by SETATTR. */
int64_t reported_mtime(const struct inode *i, const struct wire_wrote *w);
/* The file has no name left: starts its removal, or leaves that to the last close. */
void file_removed(struct server *srv, const struct wire_handle *h);

/* ---- identity.c: the user that a request acts for ---- */
/* 0, or -EPERM: the key of the link does not allow this user. Root of untrusted networks becomes
 * nobody, in s->head and s->cred. */
int sreq_identify(struct sreq *s);
/* May requests of this link act as root? Then permissions protect nothing from it. */
bool sreq_may_be_root(const struct sreq *s);
/* The proof of a session: a HMAC of the client's secret and its key. */
void session_proof(const struct sreq *s, const uint8_t secret[16], uint8_t out[16]);

/* ---- room.c: limits ---- */
/* Takes n units: 0, or the error for the client. A refusal is counted and logged. */
int sreq_take(struct sreq *s, struct usage *h, enum limit what, uint64_t n);
/* Takes one unit, reserved until sreq_use(), sreq_unreserve() or the reply. A request has at most
 * one. */
int sreq_reserve(struct sreq *s, struct usage *h, enum limit what);
int sreq_use(struct sreq *s, struct usage *h, enum limit what); /* the reserved one, or takes one */
void sreq_unreserve(struct sreq *s); /* no-op without a reservation */
/* Charges memory of the request. False: sreq_reply() will tell the client to retry. */
bool sreq_charge(struct sreq *s, uint64_t bytes);
bool sreq_charge_spare(struct sreq *s, uint64_t bytes); /* optional memory */
bool sreq_may_grow(struct arena *a, size_t bytes); /* callback of sreq.arena */
void sreq_release(struct sreq *s); /* gives back its reservation and its charges */

/* ---- caps.c ---- */
void cap_make(const struct sreq *s, struct wire_capability *c, const struct meta_node *n,
	      uint32_t rights);
/* 0, -EKEYREJECTED (forged, or of another key), -EKEYEXPIRED (expired or fenced: fetch a fresh
 * one), -EACCES. */
int cap_check(struct sreq *s, const struct wire_capability *c, uint32_t rights);
int access_check(struct sreq *s, const struct wire_access *a, uint32_t rights); /* also -EINVAL */
/* Turns -ESTALE of the request into the error of cap_check(): a fence that was only on disk, or
 * that was set meanwhile, refused its capability. */
void cap_refused(struct sreq *s);
void cap_sign(const struct server *srv, const char *key, struct wire_capability *c);
/* A capability of this server itself, for calls to other targets. */
struct wire_capability cap_own(const struct server *srv, const struct meta_node *n,
			       uint32_t rights);

/* ---- damage.c: recorded data that are lost ---- */
static inline struct object_id object_of(const struct wire_access *a)
{
	return (struct object_id){ a->cap.ino, a->cap.obj_gen, a->index };
}
/* The object ends at `end`, before its recorded end: counts and logs that. Returns -EIO, or
 * -EKEYEXPIRED if the object was cut meanwhile. */
int object_damaged(struct sreq *s, const struct wire_access *a, uint64_t end);
/* If a read of these extents reaches into lost data: as object_damaged(); else 0. */
int read_damaged(struct sreq *s, const struct wire_access *a, const struct wire_extent *list,
		 uint32_t n, uint64_t end);
/* The same for a write that would leave zeros in place of lost data. A single extent that begins at
 * or before the end does not. */
int write_damaged(struct sreq *s, const struct wire_access *a, const struct wire_extent *list,
		  uint32_t n, uint64_t end);

/* ---- op_lock.c ---- */
void lock_released(struct inode *i); /* a lock, wait or fence ended: grants waits */
void lock_closed(struct open_file *o); /* ends the locks and waits of an open */
void lock_waits_answer(struct server *srv, struct session *ss); /* ss NULL: of all sessions */
void lock_waits_free(struct server *srv); /* as a crash would */
void lock_hurry(struct sreq *s); /* answers any request now if it is parked for a lock */
int lock_claim(struct sreq *s, struct inode *i); /* takes the locks of a RECLAIM */
bool lock_parked(const struct sreq *s);

/* ---- inodes.c: files that are open, or used by a request or task ---- */
enum { LOCKS_OF_RANGES, LOCKS_OF_WHOLE, LOCK_SPACES };
struct inode {
	struct hnode node;
	struct server *srv;
	struct wire_handle h;
	uint32_t refs, opens, writers;
	uint32_t appenders; /* of the writers */
	bool append_known; /* append_end is the file's end, except for what other writers add */
	uint64_t append_end;
	struct list appends; /* places given and not reported as done */
	/* when its mtime was set while others wrote: writes up to then are older; 0: never */
	int64_t touched;
	bool row_durable; /* its unsettled row is on disk, and no queued record removes it */
	bool orphaned; /* a writer died: settling needs a fence */
	bool removed; /* has no names: its objects are removed after the last close */
	bool removing; /* a REMOVE task exists */
	bool going; /* the removal has begun: no further opens */
	uint32_t settling; /* SETTLE tasks */
	bool locked;
	bool fencing; /* locks wait for a fence against a dead writer */
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
struct inode *inode_find(struct server *srv, uint64_t ino); /* takes no reference */
/* The file has no name and is not open: its removal has begun, maybe before a restart, or may begin
 * at any time. */
bool inode_is_gone(struct server *srv, const struct meta_node *n);
/* Is the session known to have held what it claims when the server went down? A session that is
 * newer, or that has ended its claims, may have lost it: other sessions may have had the locks, and
 * files without a name may be gone. */
bool claims_own(const struct sreq *s);
void inode_put(struct inode *i);
/* One holder at a time: a truncate, settling, a removal, an open or close of a writer. Holds q
 * until it has the lock. */
void inode_lock(struct inode *i, struct inode_wait *w, struct req *q);
/* The same by handle: 0 or -ENOMEM. The lock keeps a reference to the inode. */
int inode_lock_handle(struct server *srv, const struct wire_handle *h, struct inode_wait *w,
		      struct req *q);
void inode_lock_next(struct inode *i, struct inode_wait *w,
		     struct req *q); /* before all waiting requests */
void inode_unlock(struct inode_wait *w); /* no-op if not locked */
struct open_file *open_find(struct session *s, uint64_t id);
uint32_t session_holds(const struct session *s, uint64_t ino); /* OPEN_READ, OPEN_WRITE */
bool session_writes(const struct session *s, uint64_t ino);
bool others_write(const struct session *s, const struct inode *i);
/* Reserves an open file, unless this id is open already: 0, -EMFILE or -ENFILE. */
int open_room(struct sreq *s, uint64_t id);
/* Idempotent. Uses the unit reserved by open_room(). */
int open_add(struct sreq *s, struct inode *i, uint64_t id, uint32_t flags);
void open_drop(struct open_file *o); /* also starts the tasks of a last close */
void open_lose(struct open_file *o); /* drops it unclosed: a writer's data need a fence */
void opens_abandon(struct server *srv);

/* ---- op_append.c ---- */
void appends_drop(struct open_file *o); /* when its open ends */
void appends_forget(struct inode *i); /* when the file is cut */
/* The lowest place not reported as done; while only appends extend the file, at most its end; or
 * UINT64_MAX. */
uint64_t append_limit(const struct inode *i);
/* A claim of an older epoch than the file's is ignored. */
int append_claim(struct sreq *s, struct open_file *o, const struct wire_append_claim *c,
		 uint64_t epoch);

/* ---- op_durable.c: unsynced data that earlier writers of a file have left ---- */
struct durable_call {
	struct call call;
	struct wire_durable_args args;
	struct wire_void_res res;
	bool waits; /* the call was started and not ended by durable_over() */
};
/* Has these data flushed, and holds s->q until the answer. -EINPROGRESS: retry later, as the syncs
 * need slots, too. */
int durable_ask(struct sreq *s, struct durable_call *d, const struct wire_handle *h, bool doubtful);
void durable_over(struct sreq *s, struct durable_call *d); /* after the answer, or to give up */

/* ---- op_pair.c: changes that may need several servers ---- */
struct pair_state {
	struct list link; /* in srv->pairs after the split */
	uint64_t id;
	uint32_t place; /* the server of a new directory */
	struct durable_call durable; /* the flush of a file before it replaces another */
	struct split *x; /* NULL: not split */
};
uint32_t meta_owner(const struct server *srv, uint64_t ino); /* the target that owns it */

/* ---- lease.c ---- */
/* Grants a lease on the name. Returns its length in ms; 0: none. */
uint32_t lease_grant(struct server *srv, uint64_t session, uint64_t dir,
		     const struct wire_bytes *name);
/* 0: no other session has a lease on the name (NULL: on any name in dir), and none will get one
 * before the request has ended; else -EINPROGRESS. At most two names per request. */
int lease_over(struct sreq *s, uint64_t session, uint64_t dir, const struct wire_bytes *name);
void lease_done(struct sreq *s); /* the request has ended, or begins again */

/* ---- pairs.c: the participants' side of these changes, and their recovery ---- */
bool sreq_park(struct sreq *s); /* until the change that it met is over; false: reply now */
void unpark(struct server *srv);
/* Tells the participants of a decision until all have finished. told: they have. */
void pair_tell(struct server *srv, const struct meta_pair *p, bool told);
void pairs_recover(struct server *srv);
void pairs_abandon(struct server *srv);

/* ---- fan.c: calls to other targets ---- */
/* A call as root, with the default timeout, which the caller may change. */
struct call server_call(struct server *srv, uint64_t trace, uint32_t op, void *args, void *res);
/* An object to be removed, and the request that waits for it (removals.c). */
struct removal {
	struct list link;
	struct wire_removal what;
	struct req *q;
};
/* Holds r->q until the object is removed, or fails it. */
void removal_add(struct server *srv, uint32_t target, struct removal *r);
void removals_abandon(struct server *srv);
/* One call to each target of a layout. */
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
	SYNC_ALL, /* all objects, whatever they have lost before */
	SYNC_LEFT, /* all objects while the file has writers, else those with unsynced data */
	SYNC_DOUBTFUL, /* those of fan_doubts() */
};
#define LOOK_NS (2 * NSEC_PER_SEC)
/* brief: with a timeout of LOOK_NS at most. */
int fan_sync(struct server *srv, struct fan *f, const struct meta_node *n, enum fan_sync which,
	     bool brief, struct arena *a, struct req *q);
/* Does the object have a mark of unsynced data, and was its server perhaps restarted since? True
 * also before there is a link to it; false while the server is unreachable. */
bool fan_doubts(const struct server *srv, const struct meta_node *n, uint32_t index);
/* Removes only the objects that a file of this size can have. */
void fan_remove(struct server *srv, struct fan *f, const struct wire_layout_rec *l, uint64_t ino,
		uint64_t epoch, uint64_t size, struct req *q);
void fan_fini(struct fan *f);
/* Notes for a record, from the answers to fan_fence(). cut_to: the new file size, or FENCE_KEEP. */
int fan_notes(const struct fan *f, const struct wire_layout_rec *l, uint64_t cut_to,
	      struct arena *a, struct wire_record *r);
/* File size and mtime that result from the answers to fan_fence(). */
uint64_t fan_end(const struct fan *f, const struct wire_layout_rec *l, int64_t *mtime);

/* ---- tasks.c: background work ---- */
enum task_kind { TASK_SETTLE, TASK_REMOVE, TASK_TRUNCATE, TASK_END_SESSION };
int task_start(struct server *srv, enum task_kind kind, const struct wire_handle *h, uint64_t size,
	       uint64_t epoch);
void task_end_session(struct server *srv, struct session *ss);
void tasks_recover(struct server *srv); /* at start: resumes all unfinished work */
void tasks_abandon(struct server *srv);
void grace_start(struct server *srv);
void grace_check(struct server *srv); /* ends the grace period when every session has claimed */

static inline struct layout layout_of(const struct wire_layout_rec *l)
{
	return (struct layout){ l->unit, l->n_targets, l->start };
}

/* ---- the operations ---- */
/* The state that step functions keep between steps. */
struct session_state {
	struct session_wait wait;
	struct session *found;
	uint64_t id;
	uint8_t proof[16];
	bool resumed;
	bool first; /* no other OP_SESSION was active on its link */
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
	bool begun, ended; /* the intent is durable; the final record is queued */
};
struct open_state {
	struct trunc t;
	struct wire_handle dir, h;
	struct meta_leaf leaf;
	struct durable_call durable;
	bool created, replayed;
	bool looked; /* has checked for lost data of earlier writers */
};
struct close_state {
	struct inode_wait lock;
	bool last; /* the last writer closes */
	bool again; /* an earlier execution has committed its record */
};
struct durable_state {
	struct inode_wait lock;
	struct meta_node node;
	struct fan fan;
};
struct claim_state {
	bool added; /* it counts as a writer, but its row is not durable yet */
};
struct lock_state {
	struct lock_wait *wait; /* while the request is parked */
};
struct object_state {
	struct object *object;
	struct io io; /* of a seek */
	struct object_stat stat; /* of a fence */
};

/* ---- op_truncate.c: steps shared with O_TRUNC ---- */
void trunc_begin(struct sreq *s, struct trunc *t, const struct wire_handle *h, uint64_t size);
int trunc_fence(struct sreq *s, struct trunc *t);
void trunc_abandon(struct req *q); /* of a request whose state begins with a struct trunc */
int trunc_end(struct sreq *s, struct trunc *t);
void trunc_fini(struct sreq *s,
		struct trunc *t); /* unlocks; starts a task if the truncate is unfinished */

#endif
