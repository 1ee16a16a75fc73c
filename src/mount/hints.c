/* What the kernel was told about inodes, so far as it helps to keep its caches: a table of fixed size, one
 * place for many inodes. Forgetting costs a question, never a wrong answer. */
#include <time.h>

#include "mount/mount_priv.h"

/* Under the lock: its place, emptied if another inode had it. */
static struct hint *hint_at(struct mount *m, uint64_t ino)
{
	struct hint *h = &m->hints[hash_u64(ino) % HINTS];

	if (h->ino != ino)
		*h = (struct hint){
			.ino = ino, .listed = h->listed, .reading = h->reading, .moved = h->moved
		};
	return h;
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Changed so lately that another change could carry the same time. */
static bool fresh(const struct stat *st)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return st->st_mtim.tv_sec + 2 >= now.tv_sec;
}

bool hint_opened(struct mount *m, const struct stat *st, bool growing)
{
	struct hint *h;
	bool same;

	pthread_mutex_lock(&m->lock);
	h = hint_at(m, st->st_ino);
	same = h->mtime.tv_sec && same_time(h->mtime, st->st_mtim) &&
	       same_time(h->ctime, st->st_ctim) && h->size == st->st_size && !growing;
	if (growing || fresh(st)) {
		h->mtime.tv_sec = 0;
	} else {
		h->mtime = st->st_mtim;
		h->ctime = st->st_ctim;
		h->size = st->st_size;
	}
	pthread_mutex_unlock(&m->lock);
	return same;
}

void hint_listed(struct mount *m, uint64_t ino)
{
	pthread_mutex_lock(&m->lock);
	m->hints[hash_u64(ino) % HINTS].listed = time_now();
	pthread_mutex_unlock(&m->lock);
}

bool hint_was_listed(struct mount *m, uint64_t ino)
{
	uint64_t listed;

	pthread_mutex_lock(&m->lock);
	listed = m->hints[hash_u64(ino) % HINTS].listed;
	pthread_mutex_unlock(&m->lock);
	return listed && time_now() - listed < (uint64_t)(m->o.attr_s * 1e9);
}

void hint_reading(struct mount *m, uint64_t ino, int begins)
{
	struct hint *h = &m->hints[hash_u64(ino) % HINTS];

	pthread_mutex_lock(&m->lock);
	if (!begins || !h->reading)
		h->moved = time_now();
	h->reading += begins ? 1 : -1u;
	pthread_mutex_unlock(&m->lock);
}

bool hint_stuck(struct mount *m, uint64_t ino)
{
	struct hint *h = &m->hints[hash_u64(ino) % HINTS];
	bool stuck;

	pthread_mutex_lock(&m->lock);
	stuck = h->reading && time_now() - h->moved > NSEC_PER_SEC / 4;
	pthread_mutex_unlock(&m->lock);
	return stuck;
}

/* The number of an attribute that the kernel asks for before writes and with permission checks, or -1. */
static int hint_xattr(const char *name)
{
	static const char *const names[HINT_XATTRS] = { "security.capability",
							"system.posix_acl_access",
							"system.posix_acl_default" };

	for (int i = 0; i < HINT_XATTRS; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

bool hint_lacks(struct mount *m, uint64_t ino, const char *name)
{
	int i = hint_xattr(name);
	bool yes;

	pthread_mutex_lock(&m->lock);
	yes = i >= 0 && hint_at(m, ino)->lacks[i] > time_now();
	pthread_mutex_unlock(&m->lock);
	return yes;
}

void hint_set_lacks(struct mount *m, uint64_t ino, const char *name, uint64_t sets)
{
	int i = hint_xattr(name);

	pthread_mutex_lock(&m->lock);
	if (i >= 0 && m->sets == sets)
		hint_at(m, ino)->lacks[i] = time_now() + (uint64_t)(m->o.attr_s * 1e9);
	pthread_mutex_unlock(&m->lock);
}

void hint_has(struct mount *m, uint64_t ino, const char *name)
{
	int i = hint_xattr(name);

	pthread_mutex_lock(&m->lock);
	m->sets++;
	if (i >= 0)
		hint_at(m, ino)->lacks[i] = 0;
	pthread_mutex_unlock(&m->lock);
}

/* ---- a lookup and the getattr behind it ---- */

#define GLANCE_NS NSEC_PER_MSEC

void glance_keep(struct worker *w, uint64_t acts, const struct stat *st)
{
	struct mount *m = w->m;

	pthread_mutex_lock(&m->lock);
	m->glances[(unsigned)w->ctx.pid % GLANCES] =
		(struct glance){ .pid = w->ctx.pid, .acts = acts, .at = time_now(), .st = *st };
	pthread_mutex_unlock(&m->lock);
}

bool glance_take(struct worker *w, uint64_t ino, struct stat *st)
{
	struct mount *m = w->m;
	struct glance *g = &m->glances[(unsigned)w->ctx.pid % GLANCES];
	bool good;

	pthread_mutex_lock(&m->lock);
	good = g->pid && g->pid == w->ctx.pid && g->st.st_ino == ino && g->acts == m->acts &&
	       time_now() - g->at < GLANCE_NS;
	if (good) {
		*st = g->st;
		g->pid = 0; /* once */
	}
	pthread_mutex_unlock(&m->lock);
	return good;
}
