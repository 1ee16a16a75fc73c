/* Workers: a thread with a queue, for blocking calls. done() is called on the loop.
 *
 * Threads: submit from any; start and stop on the loop's. The worker's lock passes a job to the
 * thread, the loop's completion lock passes it back, so a job's memory needs no lock of its own.
 * Errors: start returns -errno if no thread can be created. */
#include <signal.h>
#include <stdlib.h>

#include "core/env_real.h"

struct worker {
	struct loop *loop;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list queue; /* struct job */
	bool stopping, sleeping;
	char name[16]; /* shown by the kernel */
};

static struct job *next_job(struct worker *w)
{
	struct list *it;

	pthread_mutex_lock(&w->lock);
	while (!(it = list_pop(&w->queue)) && !w->stopping) {
		w->sleeping = true;
		pthread_cond_wait(&w->more, &w->lock);
		w->sleeping = false;
	}
	pthread_mutex_unlock(&w->lock);
	return it ? list_entry(it, struct job, link) : NULL;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct job *j;

	pthread_setname_np(pthread_self(), w->name);
	while ((j = next_job(w))) {
		j->run(j);
		loop_real_complete(w->loop, j);
	}
	return NULL;
}

static void worker_free(struct worker *w)
{
	pthread_cond_destroy(&w->more);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* Blocks all signals: they are for other threads. */
static int start_thread(struct worker *w)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&w->thread, NULL, worker_main, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

static int worker_start(struct env *e, struct loop *l, const char *name, struct worker **out)
{
	struct worker *w = calloc(1, sizeof(*w));
	int r;

	(void)e;
	if (!w)
		return -ENOMEM;
	w->loop = l;
	list_init(&w->queue);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	strncpy(w->name, name, sizeof(w->name) - 1);
	r = start_thread(w);
	if (r < 0) {
		worker_free(w);
		return r;
	}
	*out = w;
	return 0;
}

static void worker_submit(struct worker *w, struct job *j)
{
	pthread_mutex_lock(&w->lock);
	list_push(&w->queue, &j->link);
	if (w->sleeping)
		pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
}

/* A done() may have queued jobs after the thread ended: those run here. */
static void worker_stop(struct worker *w)
{
	struct list *it;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	loop_real_run_completed(w->loop);
	while ((it = list_pop(&w->queue))) {
		struct job *j = list_entry(it, struct job, link);

		j->run(j);
		j->done(j);
	}
	worker_free(w);
}

const struct exec_ops exec_real_ops = {
	.worker_start = worker_start,
	.worker_submit = worker_submit,
	.worker_stop = worker_stop,
};
