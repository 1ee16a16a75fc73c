/* The public interface: a thread that drives a connection permanently and makes its own calls from
 * tasks. See api.c for what leading means. */
#include "client/api_impl.h"

static void on_driver(struct source *s, unsigned events)
{
	(void)events;
	container_of(s, struct sheaf, driver)->driver_ready = true;
}

static int watch(struct sheaf *fs, unsigned events)
{
	struct loop *l = fs->b.loop;

	return l->env->sock->watch(l->env, l, &fs->driver, events);
}

int sheaf_drive_begin(struct sheaf *fs, const struct sheaf_tasks *t, int fd)
{
	int r;

	pthread_mutex_lock(&fs->lock);
	while (fs->driving)
		api_follow(fs);
	fs->driver = (struct source){ .fd = fd, .ready = on_driver };
	r = watch(fs, EV_IN); /* can fd be waited for? */
	if (!r) {
		fs->driving = true;
		fs->tasks = t;
		client_cache_cred(fs->b.client, true);
	}
	api_unlock(fs);
	return r;
}

int sheaf_drive(struct sheaf *fs, int want_fd, int ms)
{
	bool ready;

	pthread_mutex_lock(&fs->lock);
	watch(fs, want_fd ? EV_IN : 0);
	fs->driver_ready = false;
	api_turn(fs, ms < 0 ? UINT64_MAX : (uint64_t)ms * NSEC_PER_MSEC);
	ready = fs->driver_ready;
	pthread_mutex_unlock(&fs->lock);
	return ready;
}

void sheaf_drive_wake(struct sheaf *fs)
{
	loop_wake(fs->b.loop);
}

void sheaf_drive_end(struct sheaf *fs)
{
	pthread_mutex_lock(&fs->lock);
	watch(fs, 0);
	fs->driving = false;
	fs->tasks = NULL;
	client_cache_cred(fs->b.client, false);
	api_unlock(fs);
}
