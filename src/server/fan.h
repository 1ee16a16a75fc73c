/* Calls to other servers: the objects of a file, removals, flushes. Private to src/server. */
#ifndef SHEAF_SERVER_FAN_H
#define SHEAF_SERVER_FAN_H

#include "server/sreq.h"

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

/* ---- op_durable.c: unsynced data that earlier writers of a file have left ---- */
struct durable_call {
	struct call call;
	struct wire_durable_args args;
	struct wire_void_res res;
	bool waits; /* the call was started and not ended by durable_end() */
};
/* Has these data flushed, and holds s->q until the answer. -EINPROGRESS: retry later, as the syncs
 * need slots, too. */
int durable_ask(struct sreq *s, struct durable_call *d, const struct wire_handle *h, bool doubtful);
void durable_end(struct sreq *s, struct durable_call *d); /* after the answer, or to give up */

#endif
