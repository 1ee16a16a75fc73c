/* The simulated world: many nodes in one process behind the tables of core.h, under one virtual clock.
 *
 * Everything that happens is an event (time, sequence); every choice comes from one seeded generator;
 * nothing is ordered by addresses or by real time. So a seed names a run, and the trace hash says
 * whether two runs were the same. One thread. Running out of memory aborts: this is a test. */
#ifndef SHEAF_SIM_ENV_H
#define SHEAF_SIM_ENV_H

#include "core/core.h"

#define SIM_MAX_NODES 32

struct sim_node;
struct sim_event;
struct sim_fs;

/* What may go wrong and how long things take. Probabilities are per million; times are virtual ns. */
struct sim_faults {
	uint32_t partial; /* readv/writev moves only a part */
	uint32_t one_byte; /* ... of one byte */
	uint32_t cut; /* a writev: the connection breaks within what it sends */
	uint32_t refuse; /* a connect, by a node that is up */
	uint32_t wrong_server; /* a connect to a Unix socket: another server of the host answers */
	uint32_t slow; /* any delay becomes up to 100 times as long */
	uint32_t read_eio, write_eio, sync_eio;
	uint32_t store_fault; /* a socket's readv into a mapping: there is no room for a page */
	uint32_t meta_eio,
		meta_full; /* a write or sync of the database fails; there is no room for it */
	uint32_t meta_torn; /* a write of the database: the power goes right then */
	uint64_t net_min, net_max; /* flight of a piece */
	uint64_t io_min, io_max; /* a file access */
	uint64_t sync_min, sync_max; /* a sync of a file or a directory */
	uint32_t job_struck; /* a job of file operations: the node goes down between two of them */
	uint64_t job_min, job_max; /* until a job runs, and until it is reported */
	uint64_t turn_ns; /* cost of one turn of a loop */
	uint64_t commit_ns; /* of a sync of the database */
	uint64_t stall_ns; /* after so long in a partition a connection breaks, a connect times out */
	size_t buffer_min, buffer_max; /* bytes a connection holds per direction */
};

/* What was injected, each time that it was. */
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
	/* shortcuts of one host that were taken: the seeds of `make check` must take each of them */
	SIM_LOCAL_LINK,
	SIM_NEAR_READ,
	SIM_MAPPED_SEND,
	SIM_MAPPED_STORE,
	SIM_DIRECT_STORE,
	SIM_INJECTED,
	SIM_SHORTCUTS = SIM_LOCAL_LINK
};
extern const char *const sim_injected_names[];

/* What a run may take at most; beyond that it does not end. Far above what any good run takes. */
struct sim_bounds {
	uint64_t events; /* in all */
	uint64_t busy; /* turns in a row between which no loop waited */
	uint64_t work; /* calls of one turn: into this environment, reads of the database */
};

struct sim {
	uint64_t seed, rng[4];
	uint64_t n_aside; /* numbers of the second generator that were taken */
	uint64_t now, seq;
	uint64_t hash, n_events, n_turns; /* the trace */
	struct sim_bounds bounds;
	uint64_t n_busy, n_work; /* now, of those */
	bool endless; /* a bound was passed: no more steps */
	/* A bound was passed, here between two turns. Within a turn, which cannot be ended, it must not return. */
	void (*on_endless)(struct sim *s, const char *why, bool within);
	struct sim_faults faults;
	struct sim_event **heap;
	size_t n_heap, cap_heap;
	struct sim_node *nodes[SIM_MAX_NODES];
	uint32_t n_nodes;
	bool apart[SIM_MAX_NODES][SIM_MAX_NODES]; /* from, to */
	bool calls_held[SIM_MAX_NODES][SIM_MAX_NODES]; /* likewise */
	uint64_t injected[SIM_INJECTED];
	struct list conns;
};

struct sim_node {
	struct env env; /* first thing that the code under test sees */
	struct sim *sim;
	uint32_t id;
	char name[32];
	uint32_t host; /* nodes of one host reach each other by Unix sockets; at first each has its own */
	bool up;
	uint64_t n_crashes; /* power losses */
	bool stopped; /* its loops make no turns, as those of a process that got SIGSTOP */
	int64_t wall_offset; /* of its wall clock, ns */
	uint64_t rate; /* of its clocks, in 2^-20 */
	uint64_t rate_at, rate_from; /* since when, and what its clock said then */
	uint64_t capacity; /* bytes of its disk, 0: no limit */
	bool in_memory; /* its files wait for no disk, and survive all the same */
	struct list loops;
	struct list workers;
	struct sim_sock **socks; /* by descriptor */
	size_t n_socks;
	struct sim_fs *fs;
	struct sim_db *db; /* the files of its database, or NULL */
	void (*torn)(void *arg); /* its power goes in the middle of a write of the database */
	void *torn_arg;
	void (*synced)(void *arg); /* a sync of a file has succeeded, or NULL */
	void *synced_arg;
	uint32_t strike_in; /* its file operations until it goes down in front of one; 0: it does not */
	bool (*may_be_struck)(void *arg); /* within a job, or NULL */
	void (*struck)(void *arg, bool power); /* strike_in has passed: it must go down */
	void *struck_arg;
};

/* Sets defaults: delays and partial transfers, but nothing fails. */
void sim_init(struct sim *s, uint64_t seed);
void sim_fini(struct sim *s); /* the loops of all nodes must be gone */
struct sim_node *sim_node_add(struct sim *s, const char *name);

/* One thing happens: a loop that has something to do makes one turn, or else the clock goes on to the
 * next event or timer. False: nothing will ever happen again. */
bool sim_step(struct sim *s);
/* For people: what each loop has to do, and what it did since a loop last waited. */
void sim_print_loops(const struct sim *s);
/* Steps until cond(arg), for at most ns of virtual time. True: cond holds. */
bool sim_run(struct sim *s, bool (*cond)(void *arg), void *arg, uint64_t ns);
/* Calls fn(arg) after so long, outside of every loop. */
void sim_after(struct sim *s, uint64_t delay, void (*fn)(void *arg), void *arg);

/* Power loss: connections break, accesses and jobs under way never end, the disk is left in one of the
 * states that the syncs allow. Until the restart every call of the node's code fails or does nothing,
 * so its objects can be destroyed without any effect outside. */
void sim_node_crash(struct sim_node *n);
/* The same for a process alone (kill -9): what was written stays written. */
void sim_node_kill(struct sim_node *n);
/* The loops and workers of the former life must be gone. */
void sim_node_restart(struct sim_node *n);
/* No bytes pass between two nodes while it is on; sim_one_way: from one to the other. */
void sim_partition(struct sim *s, struct sim_node *a, struct sim_node *b, bool on);
void sim_one_way(struct sim *s, struct sim_node *from, struct sim_node *to, bool on);
/* The same for what `from` says over connections that it has dialled: answers to `to` pass. */
void sim_hold_calls(struct sim *s, struct sim_node *from, struct sim_node *to, bool on);
/* Its clocks go faster or slower from now on, by so many millionths. */
void sim_drift(struct sim_node *n, int32_t ppm);
/* The database of a node is real, but below LMDB's writes and syncs there is a simulated disk: what was not
 * synced may be lost with the power. Before it is opened. The name is copied. */
void sim_db_add(struct sim_node *n, const char *file);
/* Breaks every connection between two nodes (b NULL: all of a). */
void sim_cut(struct sim *s, struct sim_node *a, struct sim_node *b);

/* The generator and the trace, for the tests that are built on this. */
uint64_t sim_random(struct sim *s);
uint64_t sim_below(struct sim *s, uint64_t n); /* 0 .. n-1; 0 for n = 0 */
uint64_t sim_between(struct sim *s, uint64_t lo, uint64_t hi); /* both included */
bool sim_chance(struct sim *s, uint32_t per_million);
/* 0 .. n-1 of a second generator: what takes its numbers here leaves other seeds as they are. */
uint64_t sim_aside(struct sim *s, uint64_t n);
void sim_trace(struct sim *s, uint32_t kind, uint32_t node, uint64_t size);

void sim_lintest(void); /* a part of it */
int sim_selftest(void); /* 0, or 1 after saying what is wrong */

#endif
