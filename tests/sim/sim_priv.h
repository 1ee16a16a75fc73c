/* Shared by the files of the simulated environment. */
#ifndef SHEAF_SIM_PRIV_H
#define SHEAF_SIM_PRIV_H

#include "sim_env.h"

enum sim_kind {
	SIM_CLOCK = 1,
	SIM_TURN,
	SIM_USER,
	SIM_SYN,
	SIM_CONNECTED,
	SIM_ARRIVE,
	SIM_BREAK,
	SIM_READ,
	SIM_WRITE,
	SIM_CLOSE,
	SIM_IO,
	SIM_JOB_RUN,
	SIM_JOB_DONE,
	SIM_FILE,
	SIM_CRASH,
	SIM_KILL,
	SIM_RESTART,
	SIM_PARTITION,
	SIM_CUT,
	SIM_CLOCKS,
	SIM_CARD_ARRIVE,
	SIM_CARD_PLACE,
	SIM_CARD_ANSWER,
	SIM_CARD_ACK,
	SIM_CARD_NAK,
	SIM_CARD_TIME_OUT,
	SIM_CARD_FLUSH,
	SIM_CARD_POST,
	SIM_CARD_POLL,
	SIM_CARD_COMPLETION,
	SIM_CARD_REFUSED,
	SIM_CARD_MEMORY,
	SIM_CARD_QP,
	SIM_CARD_PORT,
	SIM_TEST = 1000 /* first kind of the tests */
};

struct sim_event {
	uint64_t time, seq;
	enum sim_kind kind;
	struct sim_node *node; /* the node that the event belongs to, or NULL */
	struct loop *loop; /* a file access: ends when its loop is destroyed */
	void (*fire)(struct sim *s, struct sim_event *e); /* NULL: cancelled */
	void (*fn)(void *arg); /* for SIM_USER */
	void *arg;
	uint64_t n;
};

/* The environment's state of a loop. */
struct sim_loop {
	struct list link; /* in the node, oldest first */
	struct loop *loop;
	struct sim_node *node;
	struct list watches; /* struct sim_watch, oldest first */
	struct list todo; /* sources being dispatched */
	struct list finished; /* struct sim_done */
	struct list calling; /* of those, the ones that this turn calls */
	bool woken;
	uint64_t n_turns; /* since a loop last waited */
};

/* A callback that the loop has to make. */
struct sim_done {
	struct list link;
	void (*fn)(void *arg);
	void *arg;
};

struct sim_watch {
	struct list link, todo;
	struct source *source;
	struct sim_loop *loop;
	struct sim_sock *sock;
	unsigned events;
};

static inline struct sim_node *sim_node_of(struct env *e)
{
	return container_of(e, struct sim_node, env);
}

void *sim_alloc(size_t n); /* zeroed, never NULL */
void sim_count_work(void); /* counts a call made by the loop that has its turn */
/* Decides whether a fault is injected now, and counts it. */
bool sim_inject(struct sim *s, enum sim_injected what, uint32_t per_million);
uint64_t sim_delay(struct sim *s, uint64_t lo, uint64_t hi);
struct sim_event *sim_schedule(struct sim *s, enum sim_kind kind, struct sim_node *n,
			       uint64_t delay, void (*fire)(struct sim *s, struct sim_event *e),
			       void *arg);
void sim_loop_finished(struct sim_loop *l, void (*fn)(void *arg), void *arg);
/* Drops the callbacks with this argument, if the loop still exists. */
void sim_loop_forget(struct sim_node *n, const struct sim_loop *l, const void *arg);

extern const struct sock_ops sim_sock_ops;
extern const struct file_ops sim_file_ops;
extern const struct exec_ops sim_exec_ops;
extern const struct fabric_ops sim_fabric_ops;

/* sim_net.c */
void sim_net_crash(struct sim_node *n);
void sim_net_restart(struct sim_node *n);
void sim_net_fini(struct sim *s);
bool sim_loop_poll(struct sim_loop *l); /* a source is ready, or work has finished */

/* sim_fs.c */
struct sim_fs *sim_fs_new(struct sim_node *n);
void sim_fs_free(struct sim_fs *fs);
void sim_fs_crash(struct sim_fs *fs,
		  bool power); /* Closes descriptors. power: also discards what may be lost. */

/* Memory that a socket reads or writes may be a mapping of this node. sim_fs_usable() returns
 * how much of it can be read. sim_fs_store() is called before a store and returns 0 or -EFAULT. */
size_t sim_fs_usable(struct sim_node *n, const void *p, size_t len);
int sim_fs_store(struct sim_node *n, const void *p, size_t len);
bool sim_fs_is_map(struct sim_node *n, const void *p);

/* sim_lmdb.c */
void sim_db_crash(struct sim_node *n, bool power); /* the database has been closed */
void sim_db_stop(struct sim_node *n); /* nothing is written any more until sim_db_crash() */
void sim_db_free(struct sim_node *n);

/* sim_tables.c */
struct meta;
/* Checks that every table is empty except for the root directory. Returns 0, or 1 with a line in
 * why. */
int sim_tables_check(const struct meta *m, char *why, size_t n);

/* sim_exec.c */
void sim_exec_crash(struct sim_node *n);

/* sim_fabric.c */
void sim_fabric_init(struct sim *s);
void sim_fabric_crash(struct sim_node *n);
void sim_fabric_fini(struct sim *s);

#endif
