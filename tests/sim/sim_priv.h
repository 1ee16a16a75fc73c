/* What the files of the simulated environment share. */
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
	SIM_TEST = 1000 /* kinds of the tests begin here */
};

struct sim_event {
	uint64_t time, seq;
	enum sim_kind kind;
	struct sim_node *node; /* whose it is, or NULL */
	struct loop *loop; /* an access: gone with its loop */
	void (*fire)(struct sim *s, struct sim_event *e); /* NULL: cancelled */
	void (*fn)(void *arg); /* SIM_USER */
	void *arg;
	uint64_t n;
};

/* A loop as this environment sees it. */
struct sim_loop {
	struct list link; /* in the node, by age */
	struct loop *loop;
	struct sim_node *node;
	struct list watches; /* struct sim_watch, by age */
	struct list todo; /* the batch being dispatched */
	struct list finished; /* struct sim_done */
	bool woken;
	uint64_t n_turns; /* since no loop had anything to do */
};

/* Something to be called back by the loop. */
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
void sim_count_work(void); /* the code of the loop whose turn it is has called something */
/* Is it so this time? Then it counts. */
bool sim_inject(struct sim *s, enum sim_injected what, uint32_t per_million);
uint64_t sim_delay(struct sim *s, uint64_t lo, uint64_t hi);
struct sim_event *sim_schedule(struct sim *s, enum sim_kind kind, struct sim_node *n,
			       uint64_t delay, void (*fire)(struct sim *s, struct sim_event *e),
			       void *arg);
void sim_loop_finished(struct sim_loop *l, void (*fn)(void *arg), void *arg);

extern const struct sock_ops sim_sock_ops;
extern const struct file_ops sim_file_ops;
extern const struct exec_ops sim_exec_ops;

/* sim_net.c */
void sim_net_crash(struct sim_node *n);
void sim_net_restart(struct sim_node *n);
void sim_net_fini(struct sim *s);
bool sim_loop_poll(struct sim_loop *l); /* a source is ready, or something finished */

/* sim_fs.c */
struct sim_fs *sim_fs_new(struct sim_node *n);
void sim_fs_free(struct sim_fs *fs);
void sim_fs_crash(struct sim_fs *fs,
		  bool power); /* closes descriptors; power: loses what may be lost */

/* Memory that a socket reads from or writes to may be a mapping of this node. How much of it can be read; and before
 * something is stored there: 0, or -EFAULT. */
size_t sim_fs_usable(struct sim_node *n, const void *p, size_t len);
int sim_fs_store(struct sim_node *n, const void *p, size_t len);

/* sim_lmdb.c */
void sim_db_crash(struct sim_node *n, bool power); /* its database is closed */
void sim_db_stop(struct sim_node *n); /* nothing is written any more until sim_db_crash() */
void sim_db_free(struct sim_node *n);

/* sim_tables.c */
struct meta;
/* Every table is empty, but for the root directory; 0, or 1 with a line in why. */
int sim_tables_check(const struct meta *m, char *why, size_t n);

/* sim_exec.c */
void sim_exec_crash(struct sim_node *n);

#endif
