/* Further connections of the mount, for requests that need no open file: each is a lock and a loop of its own, so
 * requests of several processes do not wait for each other inside this one.
 *
 * The first is the mount's main connection, which has all open files and their locks. When all are in use a thread makes
 * one more, up to a limit, and they stay. A successor makes its own: there is nothing in them to keep.
 *
 * What a writer of this mount knows about its file (times that were set meanwhile) is known to the connection that
 * has it open: attributes of such files are asked for there.
 *
 * Threads: the crew's; the table is guarded by the mount's lock. Errors: without a further connection the main one serves. */
#include <string.h>

#include "mount/mount_priv.h"

#define AGAIN_NS (10 * NSEC_PER_SEC) /* when one could not be made */
#define GOODBYE_MS 200 /* a server that is away finds out by itself */

static void *make(void *arg)
{
	struct mount *m = arg;
	struct sheaf *fs = NULL;
	struct stat st;
	bool keep;
	int r = sheaf_connect(m->o.conf, &fs);

	if (!r)
		r = sheaf_h_getattr(fs, NULL, sheaf_root(fs), &st); /* does it answer? */
	pthread_mutex_lock(&m->lock);
	keep = !r && !m->lanes_over;
	if (keep)
		m->lanes[m->n_lanes++].fs = fs;
	m->lane_after = r ? time_now() + AGAIN_NS : 0;
	pthread_mutex_unlock(&m->lock);
	if (!keep)
		sheaf_disconnect(fs);
	return NULL;
}

/* Under the lock: one more, unless one is being made. */
static void want(struct mount *m)
{
	pthread_attr_t detached;
	pthread_t t;

	if (m->n_lanes == LANES || strncmp(m->o.conf, "local:", 6) == 0 ||
	    time_now() < m->lane_after)
		return;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	m->lane_after = UINT64_MAX; /* one at a time */
	if (pthread_create(&t, &detached, make, m))
		m->lane_after = time_now() + AGAIN_NS;
	pthread_attr_destroy(&detached);
}

void lanes_init(struct mount *m)
{
	m->lanes[0].fs = m->fs;
	m->n_lanes = 1;
}

void lanes_end(struct mount *m)
{
	pthread_mutex_lock(&m->lock);
	m->lanes_over = true;
	pthread_mutex_unlock(&m->lock);
	for (unsigned i = 1; i < m->n_lanes; i++) {
		sheaf_set_timeout(m->lanes[i].fs, GOODBYE_MS);
		sheaf_disconnect(m->lanes[i].fs);
	}
}

/* Under the lock: a free one. */
static struct lane *find(struct mount *m)
{
	for (unsigned i = 0; i < m->n_lanes; i++)
		if (!m->lanes[i].busy)
			return &m->lanes[i];
	want(m);
	return NULL;
}

struct sheaf *lane_of(struct worker *w, uint64_t ino)
{
	struct mount *m = w->m;
	bool ours;

	pthread_mutex_lock(&m->lock);
	ours = ino && m->writers[hash_u64(ino) % WRITERS];
	if (!ours && !w->lane) {
		w->lane = find(m);
		if (w->lane)
			w->lane->busy = true;
	}
	pthread_mutex_unlock(&m->lock);
	return ours || !w->lane ? m->fs : w->lane->fs;
}

void lane_give(struct worker *w)
{
	if (!w->lane)
		return;
	pthread_mutex_lock(&w->m->lock);
	w->lane->busy = false;
	pthread_mutex_unlock(&w->m->lock);
	w->lane = NULL;
}

bool lane_is_main(struct worker *w)
{
	return !w->lane || w->lane->fs == w->m->fs;
}
