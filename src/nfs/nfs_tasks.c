/* Tasks: each executes one call on a fiber, and is parked while libsheaf waits for servers. All run
 * in the gateway's thread; other threads of libsheaf only make a task ready. */
#include <stdlib.h>

#include "nfs/nfs_priv.h"

#define STACK (256 * KIB)
#define KEEP 32 /* idle tasks that keep their stack */

struct task {
	struct fiber fiber;
	struct list all; /* in all_tasks */
	struct list link; /* in idle_tasks or ready_tasks */
	struct gateway *g;
	void (*run)(void *arg); /* NULL: it has ended */
	void *arg;
};

static struct task *running;

static void *task_current(void)
{
	return running;
}

static void task_park(void *arg)
{
	struct task *t = arg;

	fiber_switch(&t->fiber, &t->g->main);
}

static void task_resume(void *arg)
{
	struct task *t = arg;
	struct gateway *g = t->g;

	pthread_mutex_lock(&g->ready_lock);
	list_push(&g->ready_tasks, &t->link);
	pthread_mutex_unlock(&g->ready_lock);
	if (!pthread_equal(pthread_self(), g->thread))
		sheaf_drive_wake(g->fs);
}

static const struct sheaf_tasks hooks = { task_current, task_park, task_resume };

static void task_main(void *arg)
{
	struct task *t = arg;

	for (;;) {
		t->run(t->arg);
		t->run = NULL;
		fiber_switch(&t->fiber, &t->g->main);
	}
}

/* An idle task; NULL: there are enough, or no memory. */
static struct task *task_take(struct gateway *g)
{
	struct list *it = list_pop(&g->idle_tasks);
	struct task *t;

	if (it) {
		g->n_idle--;
		return list_entry(it, struct task, link);
	}
	if (g->n_tasks == TASKS_MAX)
		return NULL;
	t = calloc(1, sizeof(*t));
	if (!t || fiber_init(&t->fiber, STACK, task_main, t)) {
		free(t);
		return NULL;
	}
	t->g = g;
	list_init(&t->link);
	list_push(&g->all_tasks, &t->all);
	g->n_tasks++;
	return t;
}

static void task_free(struct task *t)
{
	list_del(&t->all);
	fiber_fini(&t->fiber);
	free(t);
}

static void task_give(struct task *t)
{
	struct gateway *g = t->g;

	if (g->n_idle < KEEP) {
		list_push_front(&g->idle_tasks, &t->link);
		g->n_idle++;
		return;
	}
	g->n_tasks--;
	task_free(t);
}

static void run_call(void *arg)
{
	call_execute(arg);
}

/* Runs it until it is parked, or has ended and no call waits. */
static void task_run(struct task *t)
{
	struct gateway *g = t->g;
	struct list *next;

	for (;;) {
		running = t;
		fiber_switch(&g->main, &t->fiber);
		running = NULL;
		if (t->run)
			return;
		next = list_pop(&g->waiting_calls);
		if (!next)
			break;
		t->run = run_call;
		t->arg = list_entry(next, struct nfs_call, link);
	}
	task_give(t);
}

void nfs_task_submit(struct nfs_call *c)
{
	struct task *t = task_take(c->g);

	if (!t && c->g->n_tasks == 0) {
		c->transport->drop(c); /* no memory: the client sends it again */
		return;
	}
	if (!t) {
		list_push(&c->g->waiting_calls, &c->link);
		return;
	}
	t->run = run_call;
	t->arg = c;
	task_run(t);
}

bool nfs_task_is_free(struct gateway *g)
{
	return !list_empty(&g->idle_tasks) || g->n_tasks < TASKS_MAX;
}

int nfs_task_start(struct gateway *g, void (*run)(void *arg), void *arg)
{
	struct task *t = task_take(g);

	if (!t)
		return -ENOMEM;
	t->run = run;
	t->arg = arg;
	task_run(t);
	return 0;
}

int nfs_task_later(struct gateway *g, void (*run)(void *arg), void *arg)
{
	struct task *t = task_take(g);

	if (!t)
		return -ENOMEM;
	t->run = run;
	t->arg = arg;
	task_resume(t);
	return 0;
}

void *nfs_task_self(void)
{
	return running;
}

void nfs_task_sleep(void)
{
	task_park(running);
}

void nfs_task_wake(void *task)
{
	task_resume(task);
}

void nfs_tasks_run_ready(struct gateway *g)
{
	struct list batch = LIST_INIT(batch), *it;

	pthread_mutex_lock(&g->ready_lock);
	list_splice(&batch, &g->ready_tasks);
	pthread_mutex_unlock(&g->ready_lock);
	while ((it = list_pop(&batch)))
		task_run(list_entry(it, struct task, link));
}

bool nfs_tasks_are_ready(struct gateway *g)
{
	bool any;

	pthread_mutex_lock(&g->ready_lock);
	any = !list_empty(&g->ready_tasks);
	pthread_mutex_unlock(&g->ready_lock);
	return any;
}

int nfs_tasks_init(struct gateway *g, int fd)
{
	list_init(&g->all_tasks);
	list_init(&g->idle_tasks);
	list_init(&g->ready_tasks);
	list_init(&g->waiting_calls);
	pthread_mutex_init(&g->ready_lock, NULL);
	g->thread = pthread_self();
	fiber_of_thread(&g->main);
	return sheaf_drive_begin(g->fs, &hooks, fd);
}

void nfs_tasks_free(struct gateway *g)
{
	while (!list_empty(&g->all_tasks))
		task_free(list_first(&g->all_tasks, struct task, all));
}

void nfs_tasks_end(struct gateway *g)
{
	sheaf_drive_end(g->fs);
	nfs_tasks_free(g);
}
