/* Inodes in use: opens, locks, appends. Private to src/server. */
#ifndef SHEAF_SERVER_INODE_H
#define SHEAF_SERVER_INODE_H

#include "server/sreq.h"

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
	bool removal_begun; /* the removal has begun: no further opens */
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

/* ---- op_lock.c ---- */
void lock_released(struct inode *i); /* a lock, wait or fence ended: grants waits */
void lock_closed(struct open_file *o); /* ends the locks and waits of an open */
void lock_waits_answer(struct server *srv, struct session *ss); /* ss NULL: of all sessions */
void lock_waits_free(struct server *srv); /* as a crash would */
void lock_wait_end(struct sreq *s); /* answers any request now if it is parked for a lock */
int lock_claim(struct sreq *s, struct inode *i); /* takes the locks of a RECLAIM */
bool lock_parked(const struct sreq *s);
/* All locks of `from`; returns their number. */
uint32_t locks_pass(struct session *from, struct session *to);
/* The locks that were passed to it: how many are left; `drops` ends them. */
uint32_t locks_kept(struct session *ss, bool drops);
void locks_kept_free(struct server *srv); /* as a crash would */

/* ---- op_append.c ---- */
void appends_drop(struct open_file *o); /* when its open ends */
void appends_forget(struct inode *i); /* when the file is cut */
/* The lowest place not reported as done; while only appends extend the file, at most its end; or
 * UINT64_MAX. */
uint64_t append_limit(const struct inode *i);
/* A claim of an older epoch than the file's is ignored. */
int append_claim(struct sreq *s, struct open_file *o, const struct wire_append_claim *c,
		 uint64_t epoch);

#endif
