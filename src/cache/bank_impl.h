/* The bank of a client or server: its workers. Private to src/cache. */
#ifndef SHEAF_BANK_IMPL_H
#define SHEAF_BANK_IMPL_H

#include <stdlib.h>

#include "cache/cache.h"

#define WORKERS 4

struct bank_worker {
	struct bank *b;
	struct worker *w;
	void *handle;
	struct seal_context *x;
	unsigned busy; /* conversations */
	uint8_t *value; /* room for one */
	uint8_t *found; /* room for a batch */
};

struct bank {
	struct loop *loop;
	struct conf_bank conf;
	struct seal *seal;
	struct bank_worker workers[WORKERS];
	unsigned n_workers;
	uint64_t n_storing; /* bytes of stores under way */
	bool is_broken; /* no memory for a further worker: those that run do */
	bool is_stopped;
	struct bank_counts counts;
	struct bank_choice choice;
	bool is_probing;
	struct bank_notices *notices; /* of a server, or NULL */
};

/* ---- bank.c ---- */
/* Gives the call to a worker. */
void bank_submit(struct bank_call *c, void (*run)(struct job *j), void (*done)(struct job *j));
void bank_count(struct bank_call *c); /* done() begins with it */

/* ---- attrs.c: the worker's part of calls for attributes ---- */
void look_find(struct job *j);
void look_store(struct job *j);

#endif
