/* Tells on stderr which server a command waits for, and until when: a command that waits in silence
 * looks as if it hung.
 *
 * Threads: one of its own for each connection, which looks four times a second and asks no server.
 * Errors: without a thread nothing is told. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

#define LOOK_NS (NSEC_PER_SEC / 4)
#define AGAIN_NS (10 * NSEC_PER_SEC) /* between two lines about one server */
#define ROWS 16

struct cli_waits {
	struct sheaf *fs;
	const char *command;
	pthread_t thread;
	pthread_mutex_t lock; /* guards stop */
	pthread_cond_t cond;
	bool stop;
	struct {
		char name[32];
		uint64_t at; /* when it was told */
	} told[SHEAF_MAX_SERVERS];
	size_t n_told;
};

/* False: that server was told a short time ago. */
static bool is_news(struct cli_waits *w, const char *name)
{
	uint64_t now = time_now();
	size_t i = 0;

	while (i < w->n_told && strcmp(w->told[i].name, name) != 0)
		i++;
	if (i < w->n_told && now - w->told[i].at < AGAIN_NS)
		return false;
	if (i == ARRAY_LEN(w->told))
		return false;
	w->n_told = MAX(w->n_told, i + 1);
	snprintf(w->told[i].name, sizeof(w->told[i].name), "%.31s", name);
	w->told[i].at = now;
	return true;
}

static void tell(struct cli_waits *w, const struct sheaf_wait *r)
{
	uint64_t left = (r->left_ns + NSEC_PER_SEC - 1) / NSEC_PER_SEC;
	time_t end = time(NULL) + (time_t)left;
	char until[16] = "";
	struct tm tm;

	if (!left || !is_news(w, r->name)) /* the command is about to say so itself */
		return;
	if (localtime_r(&end, &tm))
		strftime(until, sizeof(until), "%H:%M:%S", &tm);
	fprintf(stderr, "%ssheaf %s: waiting for %s (%s) for up to %llu s, until %s: %s\n",
		isatty(STDERR_FILENO) ? "\r\033[K" : "", w->command, r->name, r->address,
		(unsigned long long)left, until, r->why);
}

static void *watch(void *arg)
{
	struct cli_waits *w = arg;
	struct sheaf_wait rows[ROWS];
	struct timespec until;
	uint64_t next;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		next = time_now() + LOOK_NS;
		until = (struct timespec){ (time_t)(next / NSEC_PER_SEC),
					   (long)(next % NSEC_PER_SEC) };
		pthread_cond_timedwait(&w->cond, &w->lock, &until);
		if (w->stop)
			break;
		pthread_mutex_unlock(&w->lock);
		for (int i = 0, n = sheaf_waiting(w->fs, CLI_SILENCE_NS, rows, ROWS); i < n; i++)
			tell(w, &rows[i]);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

struct cli_waits *cli_waits_start(struct sheaf *fs, const char *command)
{
	struct cli_waits *w = calloc(1, sizeof(*w));
	pthread_condattr_t monotonic;
	sigset_t all, old;
	int r;

	if (!w)
		return NULL;
	w->fs = fs;
	w->command = command;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w->cond, &monotonic);
	pthread_condattr_destroy(&monotonic);
	sigfillset(&all); /* signals are for the command's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&w->thread, NULL, watch, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!r)
		return w;
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	free(w);
	return NULL;
}

void cli_waits_end(struct cli_waits *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
