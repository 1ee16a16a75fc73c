/* The public interface: a thread that drives a connection permanently and makes its own calls from
 * tasks. See api.c for what leading means. */
#include "client/api_impl.h"

static void on_driver(struct source *s, unsigned events)
{
	(void)events;
	container_of(s, struct driver, source)->source_ready = true;
}

static int watch(struct driver *d, unsigned events)
{
	if (d->source.fd < 0)
		return 0;
	return d->loop->env->sock->watch(d->loop->env, d->loop, &d->source, events);
}

int sheaf_drive_begin(struct sheaf *fs, const struct sheaf_tasks *t, int fd)
{
	struct driver *d = fs->d;
	int r;

	pthread_mutex_lock(&d->lock);
	while (d->driving)
		api_follow(d);
	d->source = (struct source){ .fd = fd, .ready = on_driver };
	r = watch(d, EV_IN); /* can fd be waited for? */
	if (!r) {
		d->driving = true;
		d->tasks = t;
		fs->b.client->is_front = true;
		client_cache_cred(fs->b.client, true);
	}
	api_unlock(fs);
	return r;
}

int sheaf_drive(struct sheaf *fs, int want_fd, int ms)
{
	struct driver *d = fs->d;
	bool ready;

	pthread_mutex_lock(&d->lock);
	watch(d, want_fd ? EV_IN : 0);
	d->source_ready = false;
	api_turn(d, ms < 0 ? UINT64_MAX : (uint64_t)ms * NSEC_PER_MSEC);
	ready = d->source_ready;
	pthread_mutex_unlock(&d->lock);
	return ready;
}

void sheaf_drive_wake(struct sheaf *fs)
{
	loop_wake(fs->d->loop);
}

void sheaf_drive_end(struct sheaf *fs)
{
	struct driver *d = fs->d;

	pthread_mutex_lock(&d->lock);
	watch(d, 0);
	d->driving = false;
	d->tasks = NULL;
	client_cache_cred(fs->b.client, false);
	api_unlock(fs);
}
