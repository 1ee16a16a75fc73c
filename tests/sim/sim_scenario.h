/* Directed scenarios: each is one function that creates one situation, with the real calls of
 * clients in a small world without random faults, and checks the outcome.
 *
 * A scenario runs for SCENE_SEEDS seeds, so that delays vary. It calls scene_met() when its
 * situation has occurred; if it does so in fewer than half of the seeds, the scenario fails.
 * Afterwards everything is healed and removed, and nothing may be left in the servers. Failures
 * go to world_fail(): after one, every helper returns at once. */
#ifndef SHEAF_SIM_SCENARIO_H
#define SHEAF_SIM_SCENARIO_H

#include "sim_world.h"

#define SCENE_SEEDS 20

struct scenario {
	const char *name;
	void (*run)(struct world *w);
	uint32_t targets, metas, clients; /* the first `metas` targets have metadata */
	bool hub; /* net_loopback instead of tcp */
};

/* One array per file, ended by an empty row; sim_scenario.c lists them. */
extern const struct scenario scenes_basic[], scenes_names[], scenes_data[], scenes_ends[],
	scenes_rename[], scenes_host[], scenes_acl[], scenes_join[], scenes_sieve[], scenes_links[],
	scenes_shares[], scenes_hostile[], scenes_guests[], scenes_bank[], scenes_gateway[],
	scenes_nfs[];

/* Runs the seeds from `first` to `end` - 1. Returns 0, or 1 after printing what is wrong. name
 * NULL: all scenarios. */
int scenarios_run(const char *name, uint64_t first, uint64_t end, const struct world_opts *o);

/* The situation that the scenario tests has occurred. */
void scene_met(struct world *w);
/* If the condition does not hold, the scenario fails with this message. */
#define scene_check(w, so, ...) \
	do { \
		if (!(so)) \
			world_fail(w, 0, __VA_ARGS__); \
	} while (0)

/* Gives all nodes network cards with RDMA. Call it first, before anything is connected. */
void scene_cards(struct world *w);

/* ---- calls ---- */

extern const struct sheaf_handle scene_root;
/* A call of client i as root: pass it to client_mkdir() or another function, which starts it.
 * client n_actors: the caretaker. */
struct cop *scene_call(struct world *w, uint32_t client);
int64_t scene_wait(struct world *w, struct cop *c); /* waits until it has ended; its result */
int64_t scene_end(struct world *w, struct cop *c); /* waits and frees it */
/* Whole calls, by paths from the root. Return 0 or -errno. scene_mkdir() returns the handle; an
 * error there fails the scenario. */
struct sheaf_handle scene_mkdir(struct world *w, uint32_t client, const char *path);
int64_t scene_lookup(struct world *w, uint32_t client, const char *path, struct sheaf_handle *out);
/* Opens a file (with O_CREAT: creates it) and waits. An error fails the scenario. */
struct cfile *scene_open(struct world *w, uint32_t client, const char *path, int flags);
int64_t scene_close(struct world *w, uint32_t client, struct cfile *f);
/* Removes everything below a directory, as the caretaker. */
void scene_sweep(struct world *w, struct sheaf_handle dir);
/* Makes a directory in the root that this target keeps, and returns its name. Directories that
 * other targets keep may be left beside it. */
struct sheaf_handle scene_dir_at(struct world *w, uint32_t client, uint32_t target, char name[16]);

/* ---- time ---- */

void scene_pass(struct world *w, uint64_t ns);
/* Steps the world until so(arg) holds; after ten minutes the scenario fails with `what`. */
bool scene_until(struct world *w, bool (*so)(void *arg), void *arg, const char *what);
/* Steps until a request is in this state at a target, between two turns of its loop. name: the
 * operation in op_table.c, or the name in a task's req_ops. Returns false after 10 s. */
bool scene_reaches(struct world *w, uint32_t target, const char *name, const char *state);

/* ---- faults ---- */

/* While on, nothing that `from` sends reaches `to`; data in flight arrive later. A connection
 * that is held for longer than sim.faults.stall_ns breaks. */
void scene_hold(struct world *w, struct sim_node *from, struct sim_node *to, bool on);
/* Holds only the calls of `from` to `to` (tcp): calls of `to` are still answered by `from`. */
void scene_hold_calls(struct world *w, uint32_t from, uint32_t to, bool on); /* targets */
/* both directions */
void scene_apart(struct world *w, struct sim_node *a, struct sim_node *b, bool on);
void scene_cut(struct world *w, struct sim_node *a, struct sim_node *b); /* tcp: links break */
/* The target is down until scene_up(). power: data that no sync has covered may be lost. */
void scene_down(struct world *w, uint32_t target, bool power);
void scene_up(struct world *w, uint32_t target);
/* The client's process ends, with its calls and open files; scene_revive() starts another on the
 * same node. */
void scene_die(struct world *w, uint32_t client);
void scene_revive(struct world *w, uint32_t client);

#endif
