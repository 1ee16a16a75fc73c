/* One server: its state, start and end. Private to src/server. */
#ifndef SHEAF_SRV_H
#define SHEAF_SRV_H

#include <assert.h>
#include <stdio.h>

#include "disk/disk.h"
#include "layout/layout.h"
#include "meta/meta.h"
#include "net/bulk.h"
#include "net/link.h"
#include "base/mac.h"
#include "net/net.h"
#include "net/peer.h"
#include "net/session.h"
#include "meta/locks.h"
#include "server/server.h"
#include "xdr/xdr.h"

struct sreq;
struct inode;
struct removals;

#define MAX_REMOVING 256 /* files removed at a time, by default; the others wait in their rows */
#define CAP_LIFE_NS (3600 * NSEC_PER_SEC)
#define CAP_CACHE 256

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
#define NO_SPACE_TELL_NS (60 * NSEC_PER_SEC)
struct damage {
	uint64_t accesses; /* that met lost data */
	struct {
		struct object_id id;
		uint64_t logged_at;
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
	const struct conf *auth_conf; /* for what may change while it runs: conf, or a newer one */
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
	struct mac_key *signer; /* the server key, for HMACs */
	struct known_cap cap_cache[CAP_CACHE]; /* verified ones */
	struct damage damage;
	uint64_t no_space; /* requests that failed for lack of space */
	uint64_t no_space_logged_at;
	bool was_unclean; /* the last stop was no clean one */
	struct http *http; /* or NULL */
	struct {
		struct bank *bank; /* NULL: there are no notices */
		struct conf_bank conf; /* of it */
		struct server_filler *filler; /* or NULL */
		uint64_t opened;
		uint64_t life; /* ns for which clients may use attributes */
		uint64_t asked[4096]; /* by hash of the inode: when its attributes were asked for */
		uint64_t changed; /* when any metadata were changed last; 0: not known */
	} notices; /* for the cache bank (notices.c) */
	struct tally *tallies; /* TALLY_KINDS of them */
	struct hist **state_times; /* by operation and state */
	struct hist *op_times; /* by operation: from the message to the reply */
	struct hist *window_times; /* by state of a window */
	uint64_t *window_counts; /* windows that have moved their bytes, by strategy */
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
	bool map_unsaved; /* it is being stored, or that failed */
	struct {
		struct req q; /* active if its loop is set */
		struct call call;
		struct wire_void_args args;
		struct wire_map_res res;
		struct arena arena;
		uint64_t over; /* time of the last answer, or 0 */
	} ask; /* asks a metadata server for its map */
};

/* ---- metrics.c ---- */
int times_init(struct server *srv);
void times_free(struct server *srv);

/* ---- tallies.c ---- */
int tallies_init(struct server *srv);
void tallies_free(struct server *srv); /* after its sessions */
/* Where the requests of this session are counted from now on. */
void tallies_join(struct server *srv, struct session *ss, const struct wire_bytes *job);
void tallies_write(FILE *f, const struct server *srv); /* as metrics */

/* ---- target_map.c ---- */
int map_open(struct server *s); /* call after the metadata are open, before the network */
int map_peers(struct server *s); /* call after the network is open: makes one peer per target */
void map_abandon(struct server *s);
/* Is there a peer for this target? 0: yes; -EINPROGRESS: the metadata server of this inode is being
 * asked; -EINVAL: no. */
int map_knows(struct server *s, uint32_t target, uint64_t ino);

/* ---- notices.c ---- */
void notices_open(struct server *s);
void notices_set(
	struct server *s,
	const struct conf_bank *conf); /* if none are set yet; later changes need a restart */
void notices_asked(struct server *s, uint64_t ino); /* a client gets its attributes */
uint64_t notices_unchanged(const struct server *s); /* for how many ns; 0: not known */

/* ---- op_backup.c ---- */
void backup_session_ended(struct server *s, uint64_t session);
void backup_cancel(struct server *s); /* when the server stops */
void backup_end(struct server *s);

/* ---- server.c ---- */
uint16_t partition_of(const struct conf *c, uint32_t target);

static inline struct layout layout_of(const struct wire_layout_rec *l)
{
	return (struct layout){ l->unit, l->n_targets, l->start };
}

#endif
