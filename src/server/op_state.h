/* The state that step functions of operations keep between steps. Private to src/server. */
#ifndef SHEAF_SERVER_OP_STATE_H
#define SHEAF_SERVER_OP_STATE_H

#include "server/fan.h"
#include "server/inode.h"

struct session_state {
	struct session_wait wait;
	struct session *found;
	uint64_t id;
	uint8_t mac[16];
	bool resumed;
	struct list in_link; /* link.joining */
	uint32_t channel;
	bool is_joining;
};
struct backup_state {
	struct io io;
	struct iovec iov;
};
struct truncate_state {
	struct inode_wait lock;
	struct fan fan;
	struct meta_node node;
	struct wire_handle h;
	struct wire_layout_rec layout;
	uint64_t epoch, size;
	bool begun, ended; /* the intent is durable; the final record is queued */
};
struct open_state {
	struct truncate_state t;
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
void trunc_begin(struct sreq *s, struct truncate_state *t, const struct wire_handle *h,
		 uint64_t size);
int trunc_fence(struct sreq *s, struct truncate_state *t);
/* of a request whose state begins with a struct truncate_state */
void trunc_abandon(struct req *q);
int trunc_end(struct sreq *s, struct truncate_state *t);
void trunc_fini(struct sreq *s,
		/* unlocks; starts a task if the truncate is unfinished */
		struct truncate_state *t);

#endif
