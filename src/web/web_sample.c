/* The sampler: asks all servers for their state and their requests, once every interval.
 *
 * Threads: one that lives as long as the page, and while a sample is taken one for each server, at
 * most BATCH at a time, so that several dead servers cost one timeout. The state is locked only to
 * take the answers over. Errors: a server without an answer is down, with the reason. */
#include <stdlib.h>
#include <time.h>

#include "web/web_impl.h"

#define BATCH 32
#define OWN_REQUESTS 2 /* of each sample, at each server */
#define STOP_WAIT_S 3

struct answer {
	struct web_state *w;
	int i;
	pthread_t thread;
	bool threaded;
	struct sheaf_server s;
	struct sheaf_server_times times;
	int n_rows;
	struct sheaf_request rows[WEB_REQUESTS_MAX];
};

static void *ask(void *arg)
{
	struct answer *a = arg;
	struct sheaf *fs = a->w->cli->fs;
	int r = sheaf_server_times(fs, a->i, CLI_STATUS_MS, &a->s, &a->times);

	if (r) {
		a->s.up = 0;
		snprintf(a->s.why, sizeof(a->s.why), "%s", sheaf_strerror(r));
	}
	if (a->s.up)
		a->n_rows =
			sheaf_server_requests(fs, a->i, CLI_STATUS_MS, a->rows, WEB_REQUESTS_MAX);
	return NULL;
}

/* ---- taking an answer over; the state is locked ---- */

static bool find_rates(const struct sheaf_server *old, const struct sheaf_server *now,
		       struct web_rates *out)
{
	uint64_t n = now->requests - old->requests;
	double s;

	if (!now->up || !old->up || now->pid != old->pid || now->uptime_ns <= old->uptime_ns)
		return false;
	s = (double)(now->uptime_ns - old->uptime_ns) / (double)NSEC_PER_SEC;
	*out = (struct web_rates){ .requests = (double)(n - MIN(n, OWN_REQUESTS)) / s,
				   .read = (double)(now->bytes_read - old->bytes_read) / s,
				   .written =
					   (double)(now->bytes_written - old->bytes_written) / s };
	return true;
}

static void add_times(struct web_point *p, const struct sheaf_server_times *old,
		      const struct sheaf_server_times *now)
{
	for (int k = 0; k < SHEAF_TIMES; k++)
		for (int i = 0; i < SHEAF_TIME_OCTAVES; i++)
			p->octaves[k][i] +=
				(uint32_t)(now->of[k].octaves[i] - old->of[k].octaves[i]);
}

/* One line on stderr when a server goes down or comes back: the log of the unit. */
static void tell_change(const struct web_server *old, const struct sheaf_server *now)
{
	if (!now->up && (!old->asked || old->s.up))
		fprintf(stderr, "sheaf web: %s (%s) is down: %s\n", now->name, now->address,
			now->why);
	else if (now->up && old->asked && !old->s.up)
		fprintf(stderr, "sheaf web: %s (%s) is up\n", now->name, now->address);
}

static void take(struct web_state *w, const struct answer *a, uint64_t now, double seconds)
{
	struct web_history *h = &w->history;
	struct web_point *p = &h->points[h->point % WEB_POINTS];
	struct web_minute *m = &h->minutes[a->i][h->minute % WEB_MINUTES];
	struct web_server *s = &w->servers[a->i];

	tell_change(s, &a->s);
	s->has_rates = s->asked && find_rates(&s->s, &a->s, &s->rates);
	m->seen++;
	m->up += a->s.up != 0;
	if (s->has_rates) {
		p->read += s->rates.read * seconds;
		p->written += s->rates.written * seconds;
		p->requests += s->rates.requests * seconds;
		m->bytes += (float)((s->rates.read + s->rates.written) * seconds);
		add_times(p, &s->times, &a->times);
	}
	s->s = a->s;
	s->times = a->times;
	s->asked = true;
	for (int k = 0; k < a->n_rows; k++)
		web_seen_add(&w->seen, a->s.name, &a->rows[k], now);
}

/* ---- a sample ---- */

static void ask_some(struct web_state *w, struct answer *a, int at, int n)
{
	for (int i = 0; i < n; i++) {
		a[i].w = w;
		a[i].i = at + i;
		a[i].n_rows = 0;
		a[i].times.size = sizeof(a[i].times);
		a[i].threaded = pthread_create(&a[i].thread, NULL, ask, &a[i]) == 0;
		if (!a[i].threaded)
			ask(&a[i]);
	}
	for (int i = 0; i < n; i++)
		if (a[i].threaded)
			pthread_join(a[i].thread, NULL);
}

static void sample(struct web_state *w, struct answer *a)
{
	uint64_t start = time_now();
	int n = MIN(sheaf_server_count(w->cli->fs), SHEAF_MAX_SERVERS);
	double seconds = w->samples ? (double)(start - w->sampled) / (double)NSEC_PER_SEC : 0;

	for (int at = 0; at < n; at += BATCH) {
		int some = MIN(n - at, BATCH);

		ask_some(w, a, at, some);
		pthread_mutex_lock(&w->lock);
		if (at == 0) {
			web_history_advance(&w->history, start);
			web_seen_begin(&w->seen, start);
			w->history.points[w->history.point % WEB_POINTS].seconds += seconds;
		}
		for (int i = 0; i < some; i++)
			take(w, &a[i], start, seconds);
		pthread_mutex_unlock(&w->lock);
	}
	pthread_mutex_lock(&w->lock);
	w->n = n;
	w->samples++;
	w->sampled = start;
	w->took_ns = time_now() - start;
	pthread_mutex_unlock(&w->lock);
}

static void wait_until(struct web_state *w, uint64_t end)
{
	struct timespec t = { (time_t)(end / NSEC_PER_SEC), (long)(end % NSEC_PER_SEC) };

	while (!w->stop && pthread_cond_timedwait(&w->stop_changed, &w->lock, &t) == 0)
		;
}

static void *sampler(void *arg)
{
	struct web_state *w = arg;
	struct answer *a = calloc(BATCH, sizeof(*a));
	uint64_t start;
	bool stop = !a;

	if (stop)
		cli_error(w->cli, "out of memory: the servers are not asked");
	while (!stop) {
		start = time_now();
		sample(w, a);
		pthread_mutex_lock(&w->lock);
		wait_until(w, start + w->interval_ns);
		stop = w->stop;
		pthread_mutex_unlock(&w->lock);
	}
	free(a);
	return NULL;
}

/* ---- the thread ---- */

static int init_cond(pthread_cond_t *c)
{
	pthread_condattr_t attr;
	int r = pthread_condattr_init(&attr);

	if (r)
		return -r;
	r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	r = r ? r : pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
	return -r;
}

int web_sampler_start(struct web_state *w)
{
	sigset_t all, old;
	int r = init_cond(&w->stop_changed);

	if (r)
		return r;
	pthread_mutex_init(&w->lock, NULL);
	w->servers = calloc(SHEAF_MAX_SERVERS, sizeof(*w->servers));
	r = w->servers ? web_history_init(&w->history) : -ENOMEM;
	if (r)
		goto fail;
	sigfillset(&all); /* signals are for the main thread */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&w->thread, NULL, sampler, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r == 0)
		return 0;
fail:
	web_history_free(&w->history);
	free(w->servers);
	return r;
}

bool web_sampler_stop(struct web_state *w)
{
	struct timespec t;

	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->stop_changed);
	pthread_mutex_unlock(&w->lock);
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += STOP_WAIT_S;
	if (pthread_timedjoin_np(w->thread, NULL, &t))
		return false; /* a server does not answer */
	web_history_free(&w->history);
	free(w->servers);
	return true;
}
