/* The simulated environment: many nodes in one process behind the tables of core.h, under one
 * virtual clock.
 *
 * Everything that happens is an event (time, sequence). Every choice comes from one seeded
 * generator; nothing is ordered by addresses or by real time. So a seed names a run, and equal
 * trace hashes mean equal runs. One thread. Running out of memory aborts: this is a test. */
#ifndef SHEAF_SIM_ENV_H
#define SHEAF_SIM_ENV_H

#include "core/core.h"

#define SIM_MAX_NODES 32

struct sim_node;
struct sim_event;
struct sim_fs;
struct sim_card;

/* Faults and delays. Probabilities are per million; times are virtual ns. */
struct sim_faults {
	uint32_t partial; /* readv or writev transfers only a part */
	uint32_t one_byte; /* ... and only one byte */
	uint32_t cut; /* writev: the connection breaks within the data sent */
	uint32_t refuse; /* connect: a node that is up refuses */
	uint32_t wrong_server; /* connect to a Unix socket: another server of the host answers */
	uint32_t slow; /* a delay becomes up to 100 times as long */
	uint32_t read_eio, write_eio, sync_eio;
	uint32_t store_fault; /* a socket's readv into a mapping: there is no room for a page */
	uint32_t meta_eio,
		meta_full; /* a write or sync of the database fails; the disk has no room for it */
	uint32_t meta_torn; /* a write of the database: the power fails at this moment */
	uint64_t net_min, net_max; /* time until a piece arrives */
	uint64_t io_min, io_max; /* duration of a file access */
	uint64_t sync_min, sync_max; /* duration of a sync of a file or a directory */
	uint32_t job_crash; /* a job: the node goes down between two of its file operations */
	/* time until a job runs; time until its completion is reported */
	uint64_t job_min, job_max;
	uint64_t turn_ns; /* cost of one turn of a loop */
	uint64_t commit_ns; /* cost of a sync of the database */
	/* In a partition a connection breaks, and a connect times out, after this time. */
	uint64_t stall_ns;
	size_t buffer_min, buffer_max; /* buffer size of a connection per direction, bytes */
};

/* Injected faults, and shortcuts that were taken; each occurrence is counted. */
enum sim_injected {
	SIM_PARTIAL,
	SIM_SLOW,
	SIM_CUT_WITHIN,
	SIM_REFUSED,
	SIM_HELD_BACK,
	SIM_READ_EIO,
	SIM_WRITE_EIO,
	SIM_WRITE_HALF,
	SIM_SYNC_EIO,
	SIM_SYNC_OVERTAKEN,
	SIM_NO_SPACE,
	SIM_META_EIO,
	SIM_META_FULL,
	SIM_META_TORN,
	SIM_PAGES_LOST,
	SIM_SIZES_LOST,
	SIM_CHANGES_LOST,
	SIM_META_LOST,
	SIM_WRONG_SERVER,
	SIM_STORE_FAULT,
	/* shortcuts of one host: the seeds of `make check` must take each of them */
	SIM_LOCAL_LINK,
	SIM_DIRECT_READ,
	SIM_MAPPED_SEND,
	SIM_MAPPED_STORE,
	SIM_DIRECT_STORE,
	/* network cards */
	SIM_CARD_JOINED,
	SIM_CARD_WROTE,
	SIM_CARD_READ,
	SIM_CARD_GRANTED,
	SIM_CARD_LATE,
	SIM_CARD_OVERTAKEN,
	SIM_CARD_WAITED,
	SIM_CARD_DOWN,
	SIM_INJECTED,
	SIM_SHORTCUTS = SIM_LOCAL_LINK
};
extern const char *const sim_injected_names[];

/* The network cards with RDMA (core/fabric.h) of all nodes. Times are virtual ns. */
struct sim_fabric {
	/* Capabilities, as in struct fabric_caps. Regions are always exact. */
	bool is_ordered;
	uint32_t sge_max; /* 1 .. FABRIC_SGES */
	uint32_t send_depth, receive_depth, read_depth;
	uint64_t message_max;
	uint32_t qps_max; /* queue pairs of a device; 0: no limit */
	uint64_t memory_max; /* bytes registered at a device, in whole pages; 0: no limit */
	uint32_t no_device; /* per million: a node has no device */
	uint32_t no_path; /* number of the next calls of qp_connect() that get no answer */
	uint32_t port_down; /* per million calls of post(): the port goes down for a while */
	uint64_t down_min, down_max; /* how long */
	uint64_t step_min, step_max; /* time until a piece arrives, an answer, a flush */
	uint64_t retry_min, retry_max; /* a peer without an answer is given up after this time */
	uint64_t late_max; /* pieces of a QP that was stopped may land for so long */
	/* 0: no limit. Else all cards share one wire, which moves the data of WRITEs and READs in
	 * the order in which they were posted, so that those who post more get more. */
	uint64_t kib_ns; /* time on that wire for 1 KiB */
	uint64_t wire_until; /* it has work until then */
};

/* Counts since the node was added. */
struct sim_fabric_counts {
	uint64_t opens, connects, doorbells, requests, receives, completions, registrations;
	uint64_t qps, mems; /* that exist now */
	uint64_t refused; /* accesses to this node's memory, by a peer or itself: wrong keys */
	uint64_t late; /* pieces that landed here after their sender's QP was stopped */
	uint64_t overtaken; /* messages received here before a WRITE ahead of them had landed */
	uint64_t reread; /* pieces of READs that were read here again */
	uint64_t waits; /* messages that waited here for a receive */
	uint64_t port_downs;
};

/* Limits of a run, far above what a correct run needs. A run beyond them is reported as endless. */
struct sim_bounds {
	uint64_t events; /* in the whole run */
	uint64_t busy; /* consecutive turns between which no loop waited */
	uint64_t work; /* calls within one turn: into this environment, and reads of the database */
};

struct sim {
	uint64_t seed, rng[4];
	uint64_t n_second; /* numbers taken from the second generator */
	uint64_t now, seq;
	uint64_t hash, n_events, n_turns; /* the trace */
	struct sim_bounds bounds;
	uint64_t n_busy, n_work; /* current values of bounds.busy and bounds.work */
	bool endless; /* a bound was passed: no more steps */
	/* Called when a bound was passed. within: inside a turn, which cannot be ended; then the
	 * callback must not return. */
	void (*on_endless)(struct sim *s, const char *why, bool within);
	struct sim_faults faults;
	struct sim_event **heap;
	size_t n_heap, cap_heap;
	struct sim_node *nodes[SIM_MAX_NODES];
	uint32_t n_nodes;
	bool apart[SIM_MAX_NODES][SIM_MAX_NODES]; /* [from][to]: no bytes pass */
	bool calls_held[SIM_MAX_NODES][SIM_MAX_NODES]; /* [from][to]: no calls pass */
	uint64_t injected[SIM_INJECTED];
	struct list conns;
	struct sim_fabric fabric;
	struct list flows; /* between cards */
	uint32_t n_keys, n_qpns; /* numbers given out */
};

struct sim_node {
	struct env env; /* what the code under test sees of the node */
	struct sim *sim;
	uint32_t id;
	char name[32];
	/* nodes of one host reach each other by Unix sockets; initially each has its own */
	uint32_t host;
	bool up;
	uint64_t n_crashes; /* power losses */
	bool stopped; /* its loops take no turns, like those of a process after SIGSTOP */
	int64_t wall_offset; /* offset of its wall clock, ns */
	uint64_t rate; /* rate of its clocks, in units of 2^-20 */
	/* time of the last change of the rate; its clock at that time */
	uint64_t rate_at, rate_from;
	uint64_t capacity; /* size of its disk in bytes; 0: no limit */
	uint64_t bad_lo, bad_hi; /* reads of these bytes, in any of its files, fail with EIO */
	bool on_tmpfs; /* its files need no disk accesses, but survive a power loss like others */
	struct list loops;
	struct list workers;
	struct sim_sock **socks; /* by descriptor */
	size_t n_socks;
	struct sim_card *card; /* or NULL */
	struct sim_fs *fs;
	struct sim_db *db; /* files of its database, or NULL */
	void (*torn)(void *arg); /* called when the power fails within a write of the database */
	void *torn_arg;
	void (*synced)(void *arg); /* called after a successful sync of a file, or NULL */
	void *synced_arg;
	/* The node goes down before its crash_in_ops-th file operation from now; 0: it does not. */
	uint32_t crash_in_ops;
	bool (*may_crash)(void *arg); /* asked before a strike within a job, or NULL */
	/* called when crash_in_ops has run out: the node must go down */
	void (*crashed)(void *arg, bool power);
	void *crashed_arg;
};

/* Sets the defaults: delays and partial transfers, but no failures. */
void sim_init(struct sim *s, uint64_t seed);
void sim_fini(struct sim *s); /* the loops of all nodes must have been destroyed */
struct sim_node *sim_node_add(struct sim *s, const char *name);

/* One step: a loop that has work takes one turn; if no loop has work, the clock advances to the
 * next event or timer. Returns false if nothing can happen any more. */
bool sim_step(struct sim *s);
/* Prints what work each loop has, and what it did since a loop last waited. */
void sim_print_loops(const struct sim *s);
/* Steps until cond(arg), for at most ns of virtual time. Returns whether cond holds. */
bool sim_run(struct sim *s, bool (*cond)(void *arg), void *arg, uint64_t ns);
/* Calls fn(arg) after `delay`, outside of every loop. */
void sim_after(struct sim *s, uint64_t delay, void (*fn)(void *arg), void *arg);

/* Power loss: connections break, accesses and jobs under way never end, and the disk is left in
 * one of the states that its syncs allow. Until the restart every call of the node's code fails
 * or has no effect, so its objects can be destroyed safely. */
void sim_node_crash(struct sim_node *n);
/* The same for the process alone (kill -9): what was written stays. */
void sim_node_kill(struct sim_node *n);
/* The loops and workers from before the crash must have been destroyed. */
void sim_node_restart(struct sim_node *n);
/* While on, no bytes pass between two nodes (sim_one_way: from one to the other). */
void sim_partition(struct sim *s, struct sim_node *a, struct sim_node *b, bool on);
void sim_one_way(struct sim *s, struct sim_node *from, struct sim_node *to, bool on);
/* The same for what `from` sends over connections that it dialled: its answers to `to` pass. */
void sim_hold_calls(struct sim *s, struct sim_node *from, struct sim_node *to, bool on);
/* Makes the node's clocks faster or slower from now on, by `ppm` millionths. */
void sim_drift(struct sim_node *n, int32_t ppm);
/* Puts a simulated disk below LMDB's writes and syncs of a real database file: a power loss may
 * take what was not synced. Call it before the database is opened. The name is copied. */
void sim_db_add(struct sim_node *n, const char *file);
/* Breaks every connection between two nodes (b NULL: every connection of a). */
void sim_cut(struct sim *s, struct sim_node *a, struct sim_node *b);

/* Gives a node a card: sets env.fabric. Its open() may still fail, see no_device. Without cards
 * nothing takes a number of the generator. A partition also separates cards; sim_cut() does not
 * affect them. */
void sim_fabric_add(struct sim_node *n);
/* Chooses the switches by the seed, not by the generator: capabilities; with_faults: also limits,
 * missing devices, failing ports. Call it before the cards are added. */
void sim_fabric_choose(struct sim *s, bool with_faults);
/* Takes the port of the node's card down for so long. */
void sim_fabric_port_down(struct sim_node *n, uint64_t ns);
const struct sim_fabric_counts *sim_fabric_counts(const struct sim_node *n);

/* The generator and the trace, for tests that are built on this environment. */
uint64_t sim_random(struct sim *s);
uint64_t sim_below(struct sim *s, uint64_t n); /* 0 .. n-1; 0 for n = 0 */
uint64_t sim_between(struct sim *s, uint64_t lo, uint64_t hi); /* both bounds included */
bool sim_chance(struct sim *s, uint32_t per_million);
/* 0 .. n-1 from a second generator: code that uses it does not change runs without that code. */
uint64_t sim_second_below(struct sim *s, uint64_t n);
void sim_trace(struct sim *s, uint32_t kind, uint32_t node, uint64_t size);

void sim_lintest(void); /* parts of sim_selftest() */
void sim_selfabric(void);
int sim_selftest(void); /* 0, or 1 after printing what is wrong */

#endif
