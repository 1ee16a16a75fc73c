/* Hints, by inode: what the kernel was told, as far as it helps to keep its caches, and the
 * attributes of directories after this mount's last change of a name in them. The table has a fixed
 * size, and many inodes share an entry. A lost hint costs a request, never a wrong answer. */
#include <time.h>

#include "mount/mount_priv.h"

static struct hint *hint_slot(struct mount *m, uint64_t ino)
{
	return &m->hints[hash_u64(ino) % HINTS];
}

/* Under the lock: the entry of this inode, reset if another inode had it. */
static struct hint *hint_at(struct mount *m, uint64_t ino)
{
	struct hint *h = hint_slot(m, ino);

	if (h->ino != ino)
		*h = (struct hint){ .ino = ino,
				    .listed = h->listed,
				    .reading = h->reading,
				    .progress_at = h->progress_at,
				    .changing = h->changing,
				    .unknown = h->unknown + 1,
				    .changed = h->changed,
				    .asked_by = h->asked_by,
				    .asked_at = h->asked_at,
				    .other_asked_at = h->other_asked_at };
	return h;
}

bool hint_opened(struct mount *m, uint64_t ino, uint64_t change, bool growing)
{
	struct hint *h;
	bool same;

	pthread_mutex_lock(&m->lock);
	h = hint_at(m, ino);
	same = h->pages && h->pages == change && !growing;
	h->pages = growing ? 0 : change;
	pthread_mutex_unlock(&m->lock);
	return same;
}

void hint_listed(struct mount *m, uint64_t ino)
{
	pthread_mutex_lock(&m->lock);
	hint_slot(m, ino)->listed = time_now();
	pthread_mutex_unlock(&m->lock);
}

bool hint_was_listed(struct mount *m, uint64_t ino)
{
	uint64_t listed;

	pthread_mutex_lock(&m->lock);
	listed = hint_slot(m, ino)->listed;
	pthread_mutex_unlock(&m->lock);
	return listed && time_now() - listed < (uint64_t)(MAX(m->o.attr_s, m->o.entry_s) * 1e9);
}

void hint_reading(struct mount *m, uint64_t ino, int begins)
{
	struct hint *h = hint_slot(m, ino);

	pthread_mutex_lock(&m->lock);
	if (!begins || !h->reading)
		h->progress_at = time_now();
	h->reading += begins ? 1 : -1u;
	pthread_mutex_unlock(&m->lock);
}

bool hint_stuck(struct mount *m, uint64_t ino)
{
	struct hint *h = hint_slot(m, ino);
	bool stuck;

	pthread_mutex_lock(&m->lock);
	stuck = h->reading && time_now() - h->progress_at > NSEC_PER_SEC / 4;
	pthread_mutex_unlock(&m->lock);
	return stuck;
}

/* Index of an attribute that the kernel asks for before writes and in permission checks, or -1. */
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
	yes = i >= 0 && hint_at(m, ino)->lacks_until[i] > time_now();
	pthread_mutex_unlock(&m->lock);
	return yes;
}

void hint_set_lacks(struct mount *m, uint64_t ino, const char *name, uint64_t sets)
{
	int i = hint_xattr(name);

	pthread_mutex_lock(&m->lock);
	if (i >= 0 && m->n_xattr_sets == sets)
		hint_at(m, ino)->lacks_until[i] = time_now() + (uint64_t)(m->o.attr_s * 1e9);
	pthread_mutex_unlock(&m->lock);
}

void hint_has(struct mount *m, uint64_t ino, const char *name)
{
	int i = hint_xattr(name);

	pthread_mutex_lock(&m->lock);
	m->n_xattr_sets++;
	if (i >= 0)
		hint_at(m, ino)->lacks_until[i] = 0;
	pthread_mutex_unlock(&m->lock);
}

/* ---- a lookup and the getattr that follows it ---- */

#define MEMO_NS NSEC_PER_MSEC
/* Between the lookup and the open of one system call, on a busy host. */
#define MEMO_OPEN_NS (100 * NSEC_PER_MSEC)

void lookup_memo_put(struct worker *w, uint64_t n_answered, const struct stat *st)
{
	struct mount *m = w->m;

	pthread_mutex_lock(&m->lock);
	m->lookup_memos[(unsigned)w->ctx.pid % LOOKUP_MEMOS] = (struct lookup_memo){
		.pid = w->ctx.pid, .n_answered = n_answered, .at = time_now(), .st = *st
	};
	pthread_mutex_unlock(&m->lock);
}

/* Under the lock. */
static bool memo_matches(const struct lookup_memo *g, const struct worker *w, uint64_t ino)
{
	return g->pid && g->pid == w->ctx.pid && g->st.st_ino == ino;
}

bool lookup_memo_is_recent(struct worker *w, uint64_t ino)
{
	struct mount *m = w->m;
	const struct lookup_memo *g = &m->lookup_memos[(unsigned)w->ctx.pid % LOOKUP_MEMOS];
	bool yes;

	pthread_mutex_lock(&m->lock);
	yes = memo_matches(g, w, ino) && time_now() - g->at < MEMO_OPEN_NS &&
	      hint_slot(m, ino)->listed < g->at;
	pthread_mutex_unlock(&m->lock);
	return yes;
}

bool lookup_memo_take(struct worker *w, uint64_t ino, struct stat *st)
{
	struct mount *m = w->m;
	struct lookup_memo *g = &m->lookup_memos[(unsigned)w->ctx.pid % LOOKUP_MEMOS];
	bool good;

	pthread_mutex_lock(&m->lock);
	good = memo_matches(g, w, ino) && !g->taken && g->n_answered == m->n_answered &&
	       time_now() - g->at < MEMO_NS;
	if (good) {
		*st = g->st;
		g->taken = true; /* once */
	}
	pthread_mutex_unlock(&m->lock);
	return good;
}

/* ---- directories, as changes by this mount left them ----
 *
 * The reply to a change has the attributes of its directories right after it, and `change` tells
 * which of two replies is newer. They are remembered only if nothing unknown happened since the
 * change began: no other change of the directory by this mount ended without such attributes, the
 * kernel was told nothing about the directory that may be newer, and no directory was removed or
 * moved. While a change is in progress it is unknown whether it has happened: other clients may see
 * its name already, so the server is asked. */

struct dir_change dirs_begin(struct mount *m, uint64_t dir, uint64_t dir2, bool moves)
{
	struct dir_change d = { .dirs = { dir, dir2 == dir ? 0 : dir2 }, .moves = moves };

	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < 2 && d.dirs[i]; i++)
		hint_at(m, d.dirs[i])->changing++;
	for (int i = 0; i < 2 && d.dirs[i]; i++) /* both may share an entry */
		d.unknown[i] = hint_slot(m, d.dirs[i])->unknown;
	m->moving += moves;
	d.moved = m->moved;
	pthread_mutex_unlock(&m->lock);
	d.asked = time_now();
	return d;
}

/* The kernel processes a reply when the thread that asked runs again. By then a change by another
 * thread may have ended, and the kernel would cache older attributes for a while. So if other
 * threads asked for a directory lately, a change of it notifies the kernel before it ends: from
 * then on the kernel drops replies to older requests, and these need no further notification. */
#define RECENT_NS NSEC_PER_SEC

void dir_note_asked(struct mount *m, uint64_t ino)
{
	struct hint *h = hint_slot(m, ino);
	pid_t who = worker_self->ctx.pid;

	pthread_mutex_lock(&m->lock);
	if (h->asked_by != who)
		h->other_asked_at = h->asked_at;
	h->asked_by = who;
	h->asked_at = time_now();
	pthread_mutex_unlock(&m->lock);
}

bool dir_is_changing(struct mount *m, uint64_t ino)
{
	const struct hint *h = hint_slot(m, ino);
	bool busy;

	pthread_mutex_lock(&m->lock);
	busy = h->changing || (h->changed && time_now() - h->changed < RECENT_NS);
	pthread_mutex_unlock(&m->lock);
	return busy;
}

/* Under the lock: true if the kernel must be notified of this directory's change. */
static bool must_notify(const struct hint *h, uint64_t ino)
{
	uint64_t at = h->asked_by == worker_self->ctx.pid ? h->other_asked_at : h->asked_at;

	return at && time_now() - at < RECENT_NS && (h->ino != ino || at >= h->notified_at);
}

static void notify_kernel(struct mount *m, uint64_t ino)
{
	struct hint *h = hint_slot(m, ino);
	uint64_t now = time_now();

	fuse_lowlevel_notify_inval_inode(m->se, ino, -1, 0);
	pthread_mutex_lock(&m->lock);
	if (h->ino == ino)
		h->notified_at = MAX(h->notified_at, now);
	pthread_mutex_unlock(&m->lock);
}

static void forget(struct hint *h)
{
	h->dir_asked = 0;
	h->unknown++;
}

/* Under the lock: a change of one directory has ended; a: its attributes now, or NULL. */
static void dir_changed(struct mount *m, const struct dir_change *d, int i,
			const struct sheaf_dir_after *a)
{
	struct hint *h = hint_slot(m, d->dirs[i]);

	h->changing--;
	h->changed = time_now();
	if (!a || h->ino != d->dirs[i] || h->unknown != d->unknown[i] ||
	    m->moved != d->moved + d->moves) {
		forget(h);
	} else if (!h->dir_asked || a->change > h->dir_change) {
		h->dir = a->st;
		h->dir_change = a->change;
		h->dir_asked = d->asked;
		h->dir_moved = m->moved;
	}
}

void dirs_end(struct mount *m, const struct dir_change *d, bool has_result)
{
	struct sheaf_dir_after after[2];
	int n = has_result ? sheaf_h_dir_after(after) : 0;
	bool changed[2] = { false, false };

	pthread_mutex_lock(&m->lock);
	m->moving -= d->moves;
	m->moved += d->moves;
	for (int i = 0; i < 2 && d->dirs[i]; i++) {
		const struct sheaf_dir_after *a = NULL;

		for (int k = 0; k < n; k++)
			if (after[k].dir.ino == d->dirs[i] && after[k].dir.gen == SHEAF_GEN)
				a = &after[k];
		dir_changed(m, d, i, a);
		changed[i] = must_notify(hint_slot(m, d->dirs[i]), d->dirs[i]);
	}
	pthread_mutex_unlock(&m->lock);
	for (int i = 0; i < 2; i++)
		if (changed[i])
			notify_kernel(m, d->dirs[i]);
}

void dir_forget(struct mount *m, uint64_t ino)
{
	pthread_mutex_lock(&m->lock);
	forget(hint_slot(m, ino));
	pthread_mutex_unlock(&m->lock);
}

bool dir_known(struct mount *m, uint64_t ino, struct stat *st, double *left)
{
	const struct hint *h = hint_slot(m, ino);
	double age;
	bool known;

	pthread_mutex_lock(&m->lock);
	age = (double)(time_now() - h->dir_asked) / 1e9;
	known = h->ino == ino && h->dir_asked && !h->changing && !m->moving &&
		h->dir_moved == m->moved && age < m->o.attr_s;
	if (known) {
		*st = h->dir;
		*left = m->o.attr_s - age;
	}
	pthread_mutex_unlock(&m->lock);
	return known;
}
