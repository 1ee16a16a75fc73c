/* net: links (connections), their bulk transfers, sessions and slots; client and server side.
 *
 * This header has what all of them share: the net of one loop, its identity, the callbacks of a
 * server, and listening. Users include what they need beside it:
 *
 *   link.h      a connection that both ends have authenticated
 *   bulk.h      transfers between local buffers and the memory of the peer
 *   session.h   server: the state of one client, which outlives its links
 *   peer.h      client: the other side of a session, and calls
 *   msg.h, mac.h, costs.h, limits.h, refusal.h, tally.h
 *
 * The other headers of this folder are private to it. Everything runs on the loop of the struct
 * net. */
#ifndef SHEAF_NET_H
#define SHEAF_NET_H

#include "core/core.h"
#include "core/fabric.h"
#include "net/costs.h"
#include "net/limits.h"
#include "net/refusal.h"
#include "xdr/xdr.h"

struct link;
struct msg;
struct net;

#define LINK_HOST_MAX 65
#define SESSION_SLOTS 64
_Static_assert(SESSION_SLOTS < NO_SLOT, "a tag has room for both");
#define BUSY_SLOTS 8 /* granted while the server is short of buffers or of request memory */

static inline uint64_t tag_make(uint32_t channel, uint32_t slot, uint32_t sequence)
{
	return (uint64_t)channel << TAG_CHANNEL | (uint64_t)slot << TAG_SLOT | sequence;
}

static inline uint32_t tag_channel(uint64_t tag)
{
	return (uint32_t)(tag >> TAG_CHANNEL) & CHANNEL_MAX;
}

static inline uint32_t tag_slot(uint64_t tag)
{
	return (uint32_t)(tag >> TAG_SLOT) & 0xff;
}

/* The same channel and slot, whatever the sequence? */
static inline bool tag_same_slot(uint64_t a, uint64_t b)
{
	return ((a ^ b) & ~TAG_STREAM) >> TAG_SLOT == 0;
}

/* The identity of this process and its keys. A server has all keys, a client only its own. */
struct net_identity {
	struct uuid fs;
	uint32_t target; /* server only */
	uint64_t verifier; /* server only */
	uint64_t incarnation; /* server only: of its storage */
	uint32_t lease_ms, timeout_ms, map_version;
	uint8_t client_key[KEY_BYTES], server_key[KEY_BYTES];
	bool has_server_key;
	char key_name[CONF_NAME_MAX]; /* client only: the name of its key; "": the default key */
	const struct conf *named_keys; /* server only: borrowed; or NULL */
	char host[LINK_HOST_MAX];
};

/* Callbacks of a server for accepted links. Each of them may close the link. */
struct net_server_ops {
	void (*request)(void *owner, struct link *l, uint64_t tag, struct msg *m); /* takes m */
	void (*cancel)(void *owner, struct link *l, uint64_t tag);
	void (*down)(void *owner, struct link *l); /* its transfers end now, or soon */
};

/* Where net_loopback finds the other end: one for all targets of a process, or per simulation. */
struct loopback_hub {
	struct list acceptors;
	/* Nanoseconds until a parcel arrives; 0 if NULL. UINT64_MAX: the link breaks instead. */
	uint64_t (*delay)(struct loopback_hub *h, struct net *from, struct net *to, size_t bytes);
	/* Nanoseconds that it takes to close a link at this end or to withdraw memory, 0 if NULL.
	 * Transfers in flight may still access the memory meanwhile. */
	uint64_t (*lingers)(struct loopback_hub *h, struct net *n);
};

/* What all servers send to this process; see inflow.c. */
struct inflow {
	uint64_t budget; /* bytes on their way at once; 0: no limit */
	uint64_t shrunk_at, grown_at;
	uint64_t period; /* number of the current period */
	uint64_t bytes, bytes_before; /* received in it, and in the one before */
	uint32_t n_links, n_links_before; /* that received */
};

struct rdma_device;

/* RDMA of a net. */
struct net_rdma {
	bool is_off, is_required; /* required: links without it are closed */
	bool never_driven; /* clients do not write into this process's memory */
	bool caches; /* keeps user memory registered; not in the simulation */
	uint64_t pinned_max; /* bytes of user memory; 0: as the host permits */
	struct fabric_want want;
	struct iovec bulk; /* what puts and gets use (the server's pool); registered once */
	struct rdma_device *device;
	int error; /* of the last attempt to open the device */
	uint64_t retry_at; /* loop time: of the next attempt */
	struct timer look; /* server: opens the card, when clients are there that know RDMA */
	char why[RDMA_WHY_MAX]; /* why there is no device */
	struct unreachable {
		uint8_t addr[16];
		uint64_t pause, until; /* how long it is not tried, and until when */
	} unreachable[16]; /* hosts whose queue pairs could not be reached */
	uint32_t next_unreachable;
};

struct net {
	struct loop *loop;
	struct loopback_hub *hub; /* NULL: no "loop:" addresses */
	uint8_t *scratch; /* NET_SCRATCH bytes: for dropped bytes, and for bytes to be unpacked */
	struct net_costs costs[N_MEDIA];
	struct net_account account; /* accepted links */
	struct limits limits; /* for accepted links and sessions */
	struct net_identity id;
	const struct net_server_ops *server;
	void *owner;
	struct list links, unproven_links; /* accepted links without a proof yet, oldest first */
	struct list closing_links; /* of both kinds, until nothing can touch their memory */
	uint32_t n_links, n_unproven, n_dialling;
	uint64_t source_seed; /* seed of the hash of unproven links' addresses; 0: not chosen yet */
	const struct link *last_small_link; /* had work and moved no bulk; only compared */
	uint64_t small_work_at;
	uint64_t bulk_turn; /* turn of the loop in which accepted links last moved bulk */
	uint32_t n_bulk_links,
		n_bulk_links_before; /* number of such links in that turn, and in the one before */
	size_t queued; /* bytes of queued messages, over all links */
	struct inflow inflow;
	struct net_rdma rdma;
	struct list slabs, spare_msgs, spare_longs; /* see msg.c */
	struct list spare_xfers;
	uint32_t n_slab_msgs, slab_msgs_max;
	uint32_t n_longs, longs_max;
	struct list acceptors;
	uint64_t bad_links; /* links refused or closed because of what they sent */
	uint64_t refused[N_REFUSALS];
	struct refusal_log refusal_logs[N_REFUSALS]; /* by reason */
};

void net_init(struct net *n, struct loop *l, const struct net_identity *id);
void net_fini(struct net *n); /* closes links and acceptors */
/* How network cards are used; before links exist. */
void net_set_rdma(struct net *n, const struct conf_rdma *c);
/* Server: opens the card, if there is one, and reports it in the log. */
void net_open_card(struct net *n);
/* Listens at "HOST:PORT", or "loop:NAME" in this process. `err` says what is wrong. */
int net_listen(struct net *n, const char *address, char *err, size_t err_len);
/* Listens at the Unix socket for clients of this host that dial `address`. 0 also if this
 * environment has no Unix sockets; -EOPNOTSUPP: they are switched off. */
int net_listen_local(struct net *n, const char *address);
void net_stop_listening(struct net *n);

/* The server's keys (net.id) have changed: closes links whose key is gone, or has changed its
 * secret or role. */
void net_recheck_keys(struct net *n);

#endif
