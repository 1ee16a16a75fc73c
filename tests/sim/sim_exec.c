/* Work outside of the loop: file accesses and the jobs of workers. Each is executed in one event
 * and reported to the loop in a later one, so completions come late and in any order.
 *
 * An access or a job is borrowed from its submission to its report; a crash drops it. */
#include <assert.h>
#include <stdlib.h>

#include "sim_priv.h"

struct worker {
	struct list link; /* in the node's list */
	struct sim_node *node;
	struct sim_loop *loop;
	struct list queued; /* jobs that have not run */
	struct list ran; /* jobs whose done() has not been called, in order */
	bool scheduled;
};

static void fire_run(struct sim *s, struct sim_event *e);

static void report_job(void *arg)
{
	struct worker *w = arg;
	struct list *it = list_pop(&w->ran);
	struct job *j = it ? list_entry(it, struct job, link) : NULL;

	if (j)
		j->done(j);
}

static void fire_done(struct sim *s, struct sim_event *e)
{
	struct worker *w = e->arg;

	(void)s;
	sim_loop_finished(w->loop, report_job, w);
}

static void schedule_run(struct worker *w)
{
	struct sim *s = w->node->sim;

	if (w->scheduled || list_empty(&w->queued))
		return;
	w->scheduled = true;
	sim_schedule(s, SIM_JOB_RUN, w->node, sim_delay(s, s->faults.job_min, s->faults.job_max),
		     fire_run, w);
}

static void run_one(struct worker *w)
{
	struct job *j = list_entry(list_pop(&w->queued), struct job, link);

	j->run(j);
	list_push(&w->ran, &j->link);
}

static void fire_run(struct sim *s, struct sim_event *e)
{
	struct worker *w = e->arg;

	w->scheduled = false;
	if (list_empty(&w->queued))
		return;
	run_one(w);
	sim_schedule(s, SIM_JOB_DONE, w->node, sim_delay(s, s->faults.job_min, s->faults.job_max),
		     fire_done, w);
	schedule_run(w);
}

static int worker_start(struct env *e, struct loop *l, const char *name, struct worker **out)
{
	struct sim_node *n = sim_node_of(e);
	struct worker *w;

	(void)name;
	if (!n->up)
		return -EIO;
	w = sim_alloc(sizeof(*w));
	w->node = n;
	w->loop = l->impl;
	list_init(&w->queued);
	list_init(&w->ran);
	list_push(&n->workers, &w->link);
	*out = w;
	return 0;
}

static void worker_submit(struct worker *w, struct job *j)
{
	if (!w->node->up)
		return;
	list_push(&w->queued, &j->link);
	schedule_run(w);
}

/* Cancels the worker's events and its reports to the loop. */
static void worker_forget(struct worker *w)
{
	struct sim *s = w->node->sim;
	struct sim_done *d, *next;

	for (size_t i = 0; i < s->n_heap; i++)
		if (s->heap[i]->arg == w &&
		    (s->heap[i]->fire == fire_run || s->heap[i]->fire == fire_done))
			s->heap[i]->fire = NULL;
	if (!w->loop)
		return;
	list_for_each_safe(d, next, &w->loop->finished, link) {
		if (d->fn == report_job && d->arg == w) {
			list_del(&d->link);
			free(d);
		}
	}
}

static void worker_stop(struct worker *w)
{
	if (!w)
		return;
	while (w->node->up && !(list_empty(&w->queued) && list_empty(&w->ran))) {
		if (!list_empty(&w->queued))
			run_one(w);
		report_job(w);
	}
	worker_forget(w);
	list_del(&w->link);
	free(w);
}

void sim_exec_crash(struct sim_node *n)
{
	struct worker *w;

	list_for_each(w, &n->workers, link) {
		while (list_pop(&w->queued) || list_pop(&w->ran))
			;
		w->scheduled = false;
	}
}

const struct exec_ops sim_exec_ops = {
	.worker_start = worker_start,
	.worker_submit = worker_submit,
	.worker_stop = worker_stop,
};
