/* One server (metadata and data) on a scratch directory, in a world without threads and with a
 * virtual clock: jobs wait in a list until the world turns, and timers fire when the clock is
 * moved. */
#ifndef SHEAF_TEST_SERVER_WORLD_H
#define SHEAF_TEST_SERVER_WORLD_H

#include <unistd.h>

#include "server/cap.h"
#include "server/op_state.h"
#include "server/pair.h"
#include "server/task.h"
#include "server/window.h"
#include "test.h"

#define WORLD_TURNS 20000 /* more turns than this mean an endless loop */

struct worker {
	struct list *jobs;
};

struct world {
	struct env env;
	struct clock_ops clock;
	struct exec_ops exec;
	struct loop loop;
	struct loopback_hub hub;
	struct conf *conf;
	struct server *srv;
	struct worker worker;
	struct list jobs;
	uint64_t now, rng;
	char dir[64];
	uint8_t client_key[KEY_BYTES], server_key[KEY_BYTES];
};

uint64_t world_wall(struct env *e);

/* ---- turning ---- */

/* Moves the clock by 1 us, runs all jobs and all requests that are ready. */
void world_turn(struct world *w);

/* Is nothing left to do without moving the clock? */
bool world_idle(const struct world *w);

/* Turns until nothing is left to do without moving the clock. */
void world_settle(struct world *w);

/* Turns for `ns` of virtual time. */
void world_pass(struct world *w, uint64_t ns);

/* Turns, and moves the clock where needed, until no request is in service. Returns false if
 * requests are still in service after 10 minutes. */
bool world_quiet(struct world *w);

/* ---- start and end ---- */

const char *world_parent(void);

/* Starts the server on its storage. */
void world_start_server(struct world *w);

/* Formats a storage in a scratch directory and starts a server on it. */
void world_start(struct world *w);

/* Stops the server and removes its directory. */
void world_end(struct world *w);

#endif
