/* Directed scenarios: one function each, which brings about one situation in a small world where nothing goes wrong by
 * itself, with the real calls of clients, and says what must come of it.
 *
 * A scenario runs for SCENE_SEEDS seeds, so that delays vary. It calls scene_met() when its situation is there; when that
 * is so for fewer than half of the seeds the scenario fails. Behind it everything is healed and removed, and nothing may be
 * left in the servers. Failures go to world_fail(): after one, every helper returns at once. */
#ifndef SHEAF_SIM_SCENARIO_H
#define SHEAF_SIM_SCENARIO_H

#include "sim_world.h"

#define SCENE_SEEDS 20

struct scenario {
	const char *name;
	void (*run)(struct world *w);
	uint32_t targets, metas, clients; /* the first `metas` targets have metadata */
	bool hub; /* net_loop instead of tcp */
};

/* One array a file, ended by an empty row; sim_scenario.c lists them. */
extern const struct scenario scenes_basic[], scenes_names[], scenes_data[], scenes_ends[],
	scenes_rename[], scenes_near[], scenes_acl[], scenes_join[];

/* 0, or 1 after saying what is wrong. name NULL: all; seed UINT64_MAX: all of them. */
int scenarios_run(const char *name, uint64_t seed, const struct world_opts *o);

/* The situation that this scenario is about is there. */
void scene_met(struct world *w);
/* It must be so; else the scenario fails with these words. */
#define scene_check(w, so, ...) \
	do { \
		if (!(so)) \
			world_fail(w, 0, __VA_ARGS__); \
	} while (0)

/* ---- calls ---- */

extern const struct sheaf_handle scene_root;
/* A call of client i as root: fill it with client_mkdir() or another one, which starts it. n_actors: the caretaker. */
struct cop *scene_call(struct world *w, uint32_t client);
int64_t scene_wait(struct world *w, struct cop *c); /* until it has ended; its result */
int64_t scene_end(struct world *w, struct cop *c); /* ... and frees it */
/* Whole calls, by paths from the root. 0 or -errno; of scene_mkdir() the handle, which must come. */
struct sheaf_handle scene_mkdir(struct world *w, uint32_t client, const char *path);
int64_t scene_lookup(struct world *w, uint32_t client, const char *path, struct sheaf_handle *out);
/* Opens, to make it or not, and waits: the file must come. */
struct cfile *scene_open(struct world *w, uint32_t client, const char *path, int flags);
int64_t scene_close(struct world *w, uint32_t client, struct cfile *f);
/* Removes everything below a directory, as the caretaker. */
void scene_sweep(struct world *w, struct sheaf_handle dir);
/* A directory in the root that this target keeps, and its name; what others keep stays beside it. */
struct sheaf_handle scene_dir_at(struct world *w, uint32_t client, uint32_t target, char name[16]);

/* ---- time ---- */

void scene_pass(struct world *w, uint64_t ns);
/* Steps the world until it is so; not within ten minutes: the scenario fails with `what`. */
bool scene_until(struct world *w, bool (*so)(void *arg), void *arg, const char *what);
/* Until a request is in this state at a target, between two turns of its loop. name: of the operation as in op_table.c,
 * or of a task's req_ops. False: 10 s have passed without it. */
bool scene_reaches(struct world *w, uint32_t target, const char *name, const char *state);

/* ---- what goes wrong ---- */

/* While it is on, nothing that `from` sends reaches `to`; what was under way comes later. A connection that is held
 * for longer than sim.faults.stall_ns breaks. */
void scene_hold(struct world *w, struct sim_node *from, struct sim_node *to, bool on);
/* Holds the calls of `from` to `to` alone (tcp): what `to` asks of `from` is answered. */
void scene_hold_calls(struct world *w, uint32_t from, uint32_t to, bool on); /* targets */
void scene_apart(struct world *w, struct sim_node *a, struct sim_node *b, bool on); /* both ways */
void scene_cut(struct world *w, struct sim_node *a, struct sim_node *b); /* tcp: links break */
/* Down until scene_up(); power: what no sync has covered may be gone. */
void scene_down(struct world *w, uint32_t target, bool power);
void scene_up(struct world *w, uint32_t target);
/* A client's process ends, with its calls and open files; another one begins on the same node. */
void scene_die(struct world *w, uint32_t client);
void scene_revive(struct world *w, uint32_t client);

#endif
