/* The client: its peers, and what all its operations use. Private to src/client; open files are in
 * file_impl.h, names in names_impl.h, transfers in transfer.h. */
#ifndef SHEAF_CLIENT_IMPL_H
#define SHEAF_CLIENT_IMPL_H

#include <stdio.h>

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
	bool is_front; /* of a mount or a gateway: see banked_attrs.c */
	struct client *of; /* the client whose net and bank this one uses, or NULL */
	struct net *net;
	struct peer *peers; /* by target id; room for CONF_MAX_TARGETS, so none ever moves */
	struct conf_target *targets; /* likewise: the cluster file's, then added ones */
	uint32_t n_peers;
	char host[LINK_HOST_MAX]; /* names this client to servers */
	char job[JOB_MAX]; /* that it belongs to, for the servers' counters; "": none */
	bool has_name;
	uint8_t name[SESSION_NAME]; /* of its sessions */
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
	enum net_method mover; /* forced for all transfers, or METHOD_AUTO */
	size_t max_list_extents; /* most extents of a pattern that are sent as a list */
	struct cached_referral referrals[REFERRALS_MAX];
	struct direct direct;
	struct bank *bank; /* the cache bank, or NULL: */
	char bank_why[256]; /* why not */
	struct kept_wholes *wholes; /* banked_whole.c; NULL: none yet */
	bool bank_tried; /* to open it, at the first open or stat that could use it */
	uint64_t wall_started;
	/* by server: wall clock of its last change before our first session; 0: not known */
	uint64_t changed_before[CONF_MAX_TARGETS];
	struct { /* wall clock of our latest changes, for attributes in the bank */
		uint64_t names; /* of any name, or of permissions of directories */
		uint64_t inodes[256]; /* by hash */
	} changed;
	union { /* scratch memory to plan a request in */
		struct extent scratch[LIST_MAX];
		struct copy_piece scratch_copy[LIST_MAX];
	};
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

static inline int64_t ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * (int64_t)NSEC_PER_SEC + t.tv_nsec;
}

static inline void text_copy(char *out, size_t size, struct wire_bytes b)
{
	snprintf(out, size, "%.*s", (int)b.len, (const char *)b.p);
}

/* ---- learn.c: targets added after our cluster file was written ---- */
void map_changed(struct peer *p);
/* Adds one target of a map, unless it is known. */
void target_learn(struct client *c, const struct wire_map_target *t);
/* True: the layout names unknown targets, and the server that owns the inode is asked for its map,
 * once per operation; q is held, and its next state must call this again. */
bool layout_learn(struct cop *op, const struct wire_layout_rec *l, uint64_t ino, struct req *q);

/* ---- sizing.c: attributes with the true size ---- */
/* Holds op->q until op->attr has the true size and mtime. */
void sizing_start(struct cop *op, const struct wire_handle *h);

/* ---- lanes.c ---- */
void lanes_free(struct client *c); /* frees the spare ones */

/* ---- space.c ---- */
/* After -ENOSPC. True: q is held; in its next state call space_wait_end() and repeat the request.
 * False: the refusal is final. */
bool space_wait_begin(struct client *c, struct space_wait *r, struct req *q);
void space_wait_end(struct space_wait *r);

#endif
