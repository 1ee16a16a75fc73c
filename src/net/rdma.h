/* RDMA on an authenticated TCP link. Private to net.
 *
 *   net_rdma.c      attaching to a link and detaching, the table of operations
 *   rdma_device.c   the card of a net: its memory, shared receives, completions
 *   rdma_send.c     units of work become chains of work requests
 *   rdma_fetch.c    long requests, which the server reads
 *   rdma_progress.c the server tells how far long requests are
 *   rdma_share.c    how much a link has outstanding while others move data
 *   rdma_mem.c      a client's exposed memory and its descriptor
 *   rdma_costs.c    what a work request costs
 *
 * TCP stays connected: it tells that the peer has died, and moves requests whose memory cannot be
 * registered (TAG_STREAM). Messages of all other requests, and their data, go by the queue pair. */
#ifndef SHEAF_RDMA_H
#define SHEAF_RDMA_H

#include "core/fabric.h"
#include "net/backend.h"
#include "net/credit.h"
#include "reg/reg.h"

#define RDMA_CHAIN 256 /* most work requests posted at once */
#define RDMA_SENDS 512 /* most work requests outstanding on a link */
#define MAX_INVITED (16 * MIB) /* bytes of a range of an invitation */
#define SEGMENT_BYTES 20 /* of an encoded range */
/* A get of more remote ranges is written by the client. The server spares a message and a
 * registration if it reads them, as long as it has less to do than the client. */
#define RDMA_READS 4
#define RDMA_READS_LOADED 1

/* A range of local memory with its key, or of the peer's. */
struct rdma_range {
	uint64_t addr, len;
	uint32_t key;
};

/* A link that moved bulk, and when it last did. */
struct rdma_mover {
	const struct rdma_link *link;
	uint64_t at;
};

/* The card of a net. */
struct rdma_device {
	struct net *net;
	const struct fabric_ops *ops;
	struct fabric *fabric;
	const struct fabric_caps *caps;
	struct fabric_mem bulk; /* net->bulk, if has_bulk */
	bool has_bulk, is_troubled;
	struct msg **receives; /* posted, by id; a free place is NULL */
	uint32_t n_receives, n_wanted; /* posted, and promised to links */
	struct list links; /* with a queue pair: struct rdma_link */
	uint32_t n_lost; /* receives that may be lost, with peers that died while they sent */
	struct rdma_mover movers[2]; /* the last two */
	uint32_t load; /* transfers under way and exposed memory */
	uint32_t next_receive; /* where to look for a free place */
	struct deferred again; /* completions are left for the next turn */
	struct net_costs costs;
	struct reg *reg; /* of user memory; NULL: every request is packed */
	struct iovec pieces[SEGMENTS_MAX]; /* while memory is exposed */
	struct rdma_range remote[SEGMENTS_MAX]; /* while a transfer begins */
	struct list bounces; /* unused ones */
	uint64_t bounce_spare; /* their bytes */
	struct fabric_wr wr[RDMA_CHAIN];
	struct fabric_sge sge[RDMA_CHAIN * FABRIC_SGES];
};

/* A registered buffer into which pieces are packed. */
struct rdma_bounce {
	struct list link;
	uint64_t size;
	struct fabric_mem registered;
	uint8_t mem[];
};

/* Registered memory of a descriptor (client). */
struct rdma_exposed {
	struct rdma_device *dev;
	struct net_desc *desc;
	struct link *link; /* while it ends */
	struct rdma_bounce *bounce; /* holds the stream; NULL: the ranges are the user's memory */
	struct reg_use use;
	uint32_t n_fills; /* units that read this memory */
	uint64_t told; /* bytes that the server has moved, as it says */
	uint64_t driven; /* bytes that the server has invited this client to write */
	bool is_ending; /* retracted: ends with the last fill */
	uint64_t length; /* of the stream: of all ranges */
	uint32_t n_ranges;
	struct rdma_range ranges[]; /* in the order of the stream, local keys */
};

enum rdma_kind { RDMA_MESSAGE, RDMA_PUT, RDMA_READ, RDMA_FILL, RDMA_FETCH };

/* Work that is posted in order, as one or more work requests. */
struct rdma_unit {
	struct list link;
	enum rdma_kind kind;
	struct msg *m; /* MESSAGE; FETCH: the request that is read, NULL before its turn */
	uint64_t tag; /* FETCH */
	bool is_cancelled; /* FETCH: CANCEL came before the request itself */
	bool is_credit; /* MESSAGE: it has only credits */
	uint32_t message_key;
	bool is_registered; /* by message_mem, for this unit alone */
	struct fabric_mem message_mem;
	struct xfer *x; /* PUT, READ */
	bool is_offer; /* READ: the client is invited to write the data, if it can be granted */
	struct rdma_exposed *exposed; /* FILL */
	uint32_t imm;
	uint64_t len, done; /* bytes of data; posted */
	uint64_t last; /* number of its last work request with data */
	struct rdma_range *local, *remote; /* what is left begins at these ... */
	uint64_t local_at, remote_at; /* ... and there within them */
	struct rdma_range ranges[];
};

/* A get that the client writes. */
struct rdma_grant {
	struct list link;
	struct xfer *x;
	uint32_t id, n_mems;
	struct fabric_mem mems[];
};

/* Bytes that a server has moved for a request. */
struct rdma_moved {
	uint64_t tag, bytes; /* tag 0: none */
	uint64_t at; /* when bytes last moved, or the request came */
	uint64_t told_at; /* when the client last heard of it, or the request came */
};

/* RDMA of one link. */
struct rdma_link {
	struct list in_device;
	struct link *l;
	struct rdma_device *dev;
	struct fabric_qp *qp; /* NULL: dropped */
	bool is_connected, is_closing;
	bool is_starved; /* no message can be registered, and none is under way */
	uint32_t promised; /* receives */
	struct credits credits;
	uint32_t peer_load; /* as dev->load, told by the peer */
	struct list control, bulk; /* units to post; control first */
	uint32_t n_messages; /* in units */
	size_t queued; /* their memory */
	struct list posted; /* units, in order */
	uint64_t outstanding; /* bytes of transfers that are posted or granted */
	uint64_t n_posted, n_completed; /* work requests */
	struct list grants;
	uint32_t next_grant;
	struct rdma_moved moved[SESSION_SLOTS];
	struct list offers; /* client: requests that the server may read; see rdma_fetch.c */
	struct list fetches; /* server: units that wait until one is over */
	uint32_t n_fetches; /* with the one that is read */
	struct rdma_unit *fetching; /* the one that is read */
	struct msg *partial; /* a long message that is arriving */
	struct wire_frame_head partial_head;
	struct deferred deferred;
	struct timer stall; /* work waits, or the peer owes data */
	uint64_t moved_at; /* when work last completed, or began to wait */
	uint64_t granted_at; /* since when the first grant is the first one */
	uint64_t partial_at; /* when the long message began to arrive */
	int close_error;
};

/* ---- rdma_device.c ---- */

/* The card of the net, opened when first needed; NULL: there is none, net->rdma_why says why. */
struct rdma_device *rdma_device_get(struct net *n);
void rdma_device_close(struct net *n);
/* The card is open and works. Opens nothing, so peers without a proof may cause this call. */
bool rdma_is_ready(const struct net *n);
/* Server: clients may ask for RDMA. Also if its card cannot be used: then they are told why. Not if
 * there is no card. Opens nothing. */
bool rdma_is_offered(const struct net *n);
/* Server: a client that has proved its key knows RDMA. If no card works, the server looks for one
 * as soon as the next attempt is due, and again while it has links. */
void rdma_look(struct net *n);
/* As mem_make() of the card; cached user memory makes room. */
int rdma_make(struct rdma_device *d, void *addr, size_t len, unsigned rights,
	      struct fabric_mem *out);
/* The key of memory in net->bulk. False: it is not registered. */
bool rdma_local_key(struct rdma_device *d, const void *addr, uint64_t len, uint32_t *key);
/* The key of a message's slab, registered when it is first used; NULL: it is not registered. Long
 * messages of a client can be read by its servers. */
const struct fabric_mem *rdma_message_mem(struct rdma_device *d, struct msg *m);
uint32_t rdma_sends(const struct rdma_device *d); /* length of a link's send queue */
/* Posts receives as promised: -ENOMEM. */
int rdma_receives_post(struct rdma_device *d);
/* The link ends: its peer may have died in the middle of a message, whose receive never completes
 * then. Another one takes its place until the card is opened again. */
void rdma_note_lost(struct rdma_link *r);
/* Counts the receives that the link may need now. */
void rdma_promise(struct rdma_link *r);

/* ---- rdma_costs.c ---- */

void rdma_costs_measure(struct rdma_device *d); /* before links use it */

/* ---- rdma_send.c ---- */

void rdma_message(struct rdma_link *r, struct msg *m);
void rdma_put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
	      size_t n, struct req *q);
void rdma_get(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *dst,
	      size_t n, struct net_direct *direct, struct req *q);
/* The server invites: 0 or -errno, which closes the link. */
int rdma_invited(struct rdma_link *r, const struct wire_frame_head *h, struct msg *m);
void rdma_filled(struct rdma_link *r, uint32_t imm); /* immediate data have arrived */
void rdma_sent(struct rdma_link *r); /* work requests have completed */
void rdma_flush(struct rdma_link *r);
void rdma_flush_deferred(struct deferred *d);
/* Ends all units and grants; nothing can reach their buffers any more. */
void rdma_end_units(struct rdma_link *r, int error);

struct rdma_unit *rdma_unit_new(enum rdma_kind kind, size_t n_local, size_t n_remote);
void rdma_queue_control(struct rdma_link *r, struct rdma_unit *u); /* before data that wait */

/* ---- rdma_fetch.c ---- */

/* Client: lets the server read this request, and takes m. False: it is to be sent in parts. */
bool rdma_offer(struct rdma_link *r, struct msg *m);
void rdma_answered(struct rdma_link *r, uint64_t tag); /* the reply is there */
void rdma_end_offers(struct rdma_link *r);
/* Server: the client names a request. 0 or -errno, which closes the link. */
int rdma_fetch(struct rdma_link *r, const struct wire_frame_head *h, struct msg *m);
/* It has been read; takes m. is_cancelled: the server is told so behind it. */
void rdma_fetched(struct rdma_link *r, struct msg *m, bool is_cancelled);
/* A CANCEL came. True: its request has not been read yet, and will be told of it. */
bool rdma_cancel_fetch(struct rdma_link *r, uint64_t tag);

/* ---- rdma_progress.c ---- */

/* Server: a request has come; bytes of it have moved (may close the link). */
void rdma_begin_moved(struct rdma_link *r, uint64_t tag);
void rdma_add_moved(struct rdma_link *r, uint64_t tag, uint64_t bytes);
/* Client: the server says so, by TCP. */
void rdma_working(struct link *l, const struct wire_frame_head *h);
void rdma_note_fill(struct rdma_link *r, struct rdma_exposed *e); /* this end has moved bytes */
/* ---- rdma_share.c ---- */

/* May the next transfer of this link be posted or granted now? */
bool rdma_may_begin(struct rdma_link *r);
void rdma_note_begin(struct rdma_link *r, uint64_t bytes);
void rdma_note_end(struct rdma_link *r, uint64_t bytes);
void rdma_share_leave(struct rdma_link *r); /* the link ends */

/* ---- rdma_mem.c ---- */

int rdma_expose(struct link *l, struct net_desc *d);
bool rdma_retract(struct link *l, struct net_desc *d);
void rdma_fill_ended(struct rdma_exposed *e);
void rdma_bounces_free(struct rdma_device *d);
/* Prepares registration of the user's memory; without it every request is packed. */
void rdma_reg_open(struct rdma_device *d);

/* ---- net_rdma.c ---- */

/* Client: begins to attach RDMA to a link that is up, or leaves it on TCP; then the peer hears that
 * the link is up. 0 or -errno, which closes the link. */
int rdma_attach(struct link *l);
/* The messages of that, by TCP; they take m. 0 or -errno, which closes the link. */
int rdma_asked(struct link *l, struct msg *m);
int rdma_attached(struct link *l, struct msg *m);
/* Work of a link that closes has completed. */
void rdma_closing(struct rdma_link *r);
/* RDMA worked and failed, its pause is over, and the link is on TCP: a new link would ask again. */
bool rdma_is_due(const struct peer *p);
/* Client: the next links to this server stay on TCP for a while. */
void rdma_failed(struct link *l, const char *why);

void rdma_received(struct rdma_link *r, struct msg *m, uint32_t len); /* takes m */
/* A whole message is there; takes m. May close the link. */
void rdma_deliver(struct rdma_link *r, uint32_t kind, uint64_t tag, struct msg *m);
/* Call it before work is added, or the peer begins to owe data: from then on the link is closed
 * when nothing moves within the timeout. */
void rdma_watch(struct rdma_link *r);

#endif
