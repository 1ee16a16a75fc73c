/* For the tests of core and disk: a request that starts one operation and stores its result, a loop
 * to run it on, and scratch directories. */
#ifndef SHEAF_CORE_TRIAL_H
#define SHEAF_CORE_TRIAL_H

#include <fcntl.h>
#include <unistd.h>

#include "core/core.h"

#include "test.h"

struct trial {
	struct req req;
	void (*start)(struct trial *t, struct req *q);
	void *arg;
	bool over;
	int error;
	uint64_t bytes;
};

static inline bool trial_step(struct req *q)
{
	struct trial *t = container_of(q, struct trial, req);

	if (q->state == 0) {
		req_goto(q, 1);
		t->start(t, q);
		return true;
	}
	t->over = true;
	t->error = q->error;
	t->bytes = q->bytes;
	req_fini(q);
	return false;
}

static const char *const trial_names[] = { "start", "end" };
static const struct req_ops trial_ops = REQ_OPS("trial", trial_step, 1, trial_names);

static inline void trial_start(struct trial *t, struct loop *l,
			       void (*start)(struct trial *t, struct req *q), void *arg)
{
	*t = (struct trial){ .start = start, .arg = arg };
	req_init(&t->req, l, &trial_ops, 0);
	req_run(&t->req);
}

static inline void trial_wait(struct trial *t)
{
	struct loop *l = t->req.loop;
	uint64_t until = l->env->clock->now(l->env) + 20 * NSEC_PER_SEC;

	while (!t->over) {
		CHECK(l->env->clock->now(l->env) < until);
		loop_turn(l, NSEC_PER_SEC);
	}
}

static inline int trial_run(struct loop *l, void (*start)(struct trial *t, struct req *q),
			    void *arg)
{
	struct trial t;

	trial_start(&t, l, start, arg);
	trial_wait(&t);
	return t.error;
}

/* Makes a new directory under `parent`. The returned name is in a static buffer. */
static inline const char *scratch_make(const char *parent)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/sheaf-test-XXXXXX", parent);
	CHECK(mkdtemp(path));
	return path;
}

static inline void scratch_remove(const char *path)
{
	char cmd[600];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", path);
	CHECK_EQ(system(cmd), 0);
}

#endif
