/* Registration for requests: takes regions from the cache, and registers what is missing in groups,
 * optimistically. A group that contains a hole is registered between its holes, or piece by piece.
 *
 * Threads: any; the sweeper is a thread of each struct reg that deregisters regions whose memory
 * was unmapped while no request came. Buffers: pinned by the device. Errors: -errno. */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reg/reg_impl.h"

#define UNLIMITED_SHARE 4 /* of the host's memory, where memlock does not limit */

/* ---- opening and closing ---- */

static bool may_lock_memory(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = { { 0 } };

	if (syscall(SYS_capget, &head, caps))
		return false;
	return caps[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK);
}

static uint64_t default_limit(void)
{
	struct rlimit l;

	if (!may_lock_memory() && getrlimit(RLIMIT_MEMLOCK, &l) == 0 && l.rlim_cur != RLIM_INFINITY)
		return l.rlim_cur;
	return (uint64_t)sysconf(_SC_PHYS_PAGES) / UNLIMITED_SHARE * page_size();
}

static void *sweep(void *arg)
{
	struct reg *r = arg;

	while (!atomic_load(&r->stop)) {
		while (sem_wait(&r->wake) && errno == EINTR)
			;
		pthread_mutex_lock(&r->lock);
		cache_sync(r);
		pthread_mutex_unlock(&r->lock);
		cache_bury(r);
	}
	return NULL;
}

static void start_caching(struct reg *r)
{
	r->line = watch_open(&r->why_not, &r->wake);
	if (!r->line || !pthread_create(&r->sweeper, NULL, sweep, r))
		return;
	watch_close(r->line);
	r->line = NULL;
	r->why_not = "no thread for the cache";
}

int reg_open(struct reg **out, const struct reg_ops *ops, void *device, uint64_t limit_bytes,
	     unsigned flags)
{
	struct reg *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	*r = (struct reg){ .ops = ops, .device = device, .pid = getpid() };
	r->max_len = ops->max_len ? ops->max_len : SIZE_MAX / 2;
	r->max_len &= ~(page_size() - 1);
	r->counts.limit_bytes = limit_bytes ? limit_bytes : default_limit();
	r->maps_fd = maps_open();
	pthread_mutex_init(&r->lock, NULL);
	pthread_mutex_init(&r->burying, NULL);
	sem_init(&r->wake, 0, 0);
	list_init(&r->lru);
	list_init(&r->dead);
	r->is_exact = flags & REG_EXACT;
	if (r->is_exact)
		r->costs = (struct reg_costs){ .page_ns = 90, .call_ns = 600, .query_ns = 50000 };
	else
		costs_measure(&r->costs, ops, device, r->maps_fd);
	if (flags & REG_NO_CACHE)
		r->why_not = "it is switched off";
	else
		start_caching(r);
	*out = r;
	return 0;
}

void reg_flush(struct reg *r)
{
	if (r->pid != getpid())
		return;
	pthread_mutex_lock(&r->lock);
	while (cache_evict(r))
		;
	pthread_mutex_unlock(&r->lock);
	cache_bury(r);
}

void reg_close(struct reg *r)
{
	if (!r)
		return;
	if (r->pid == getpid()) {
		if (r->line) {
			watch_close(r->line);
			atomic_store(&r->stop, true);
			sem_post(&r->wake);
			pthread_join(r->sweeper, NULL);
		}
		reg_flush(r);
		sem_destroy(&r->wake);
		pthread_mutex_destroy(&r->burying);
		pthread_mutex_destroy(&r->lock);
	} else { /* a forked child: the regions are the parent's */
		for (size_t i = 0; i < r->index.n; i++)
			free(r->index.of[i]);
	}
	if (r->maps_fd >= 0)
		close(r->maps_fd);
	free(r->index.of);
	free(r->index.furthest);
	free(r);
}

void reg_get_counts(struct reg *r, struct reg_counts *out)
{
	pthread_mutex_lock(&r->lock);
	cache_sync(r);
	*out = r->counts;
	pthread_mutex_unlock(&r->lock);
	out->page_ns = r->costs.page_ns;
	out->call_ns = r->costs.call_ns;
	out->is_caching = r->line;
	out->why_not = r->why_not;
}

/* ---- one region ---- */

/* Makes room: true if there may be more than before. */
static bool give_up_one(struct reg *r)
{
	bool any;

	pthread_mutex_lock(&r->lock);
	any = !list_empty(&r->dead) || cache_evict(r);
	pthread_mutex_unlock(&r->lock);
	cache_bury(r); /* also waits for another thread that deregisters */
	return any;
}

static int reserve(struct reg *r, uint64_t bytes)
{
	bool fits, more = true;

	for (;;) {
		pthread_mutex_lock(&r->lock);
		fits = bytes <= r->counts.limit_bytes &&
		       r->counts.pinned_bytes <= r->counts.limit_bytes - bytes;
		if (fits)
			r->counts.pinned_bytes += bytes;
		pthread_mutex_unlock(&r->lock);
		if (fits)
			return 0;
		if (!more)
			return -ENOBUFS;
		more = give_up_one(r);
	}
}

/* True: from now on events mark the region stale. */
static bool begin_watch(struct reg *r, struct region *g)
{
	bool is_watched;

	if (!r->line)
		return false;
	pthread_mutex_lock(&r->lock);
	cache_sync(r);
	is_watched = !spans_overlap(&r->discarded, g->at) && cache_insert(r, g) == 0;
	pthread_mutex_unlock(&r->lock);
	if (!is_watched || watch_add(g->at) == 0)
		return is_watched;
	pthread_mutex_lock(&r->lock);
	cache_remove(r, g);
	pthread_mutex_unlock(&r->lock);
	return false;
}

/* The memory is registered: caches the region, unless a change may have come between. */
static void end_watch(struct reg *r, struct region *g, bool is_watched)
{
	bool is_sure = is_watched && watch_covers(r->maps_fd, g->at);

	is_sure &= cache_lock_synced(r);
	r->counts.registrations++;
	if (is_sure && !g->is_stale)
		cache_publish(r, g);
	else if (is_watched)
		cache_remove(r, g);
	pthread_mutex_unlock(&r->lock);
}

static int make(struct reg *r, struct region *g)
{
	size_t len = g->at.end - g->at.start;
	bool more = true;
	int e;

	for (;;) {
		e = r->ops->make(r->device, (void *)g->at.start, len, g->is_writable, &g->m);
		if (e != -ENOMEM || !more)
			return e;
		more = give_up_one(r);
	}
}

static void undo(struct reg *r, struct region *g, bool is_watched)
{
	pthread_mutex_lock(&r->lock);
	if (is_watched)
		cache_remove(r, g);
	r->counts.pinned_bytes -= g->at.end - g->at.start;
	r->counts.failed++;
	pthread_mutex_unlock(&r->lock);
	free(g);
}

/* A new region with one use. The watch begins before the memory is pinned. */
static int region_make(struct reg *r, struct span s, bool writable, struct region **out)
{
	struct region *g;
	bool is_watched;
	int e;

	if (s.end - s.start > r->max_len)
		return -ENOBUFS;
	e = reserve(r, s.end - s.start);
	if (e)
		return e;
	g = malloc(sizeof(*g));
	if (!g) {
		pthread_mutex_lock(&r->lock);
		r->counts.pinned_bytes -= s.end - s.start;
		pthread_mutex_unlock(&r->lock);
		return -ENOBUFS;
	}
	*g = (struct region){ .at = s, .uses = 1, .is_writable = writable };
	list_init(&g->link);
	is_watched = begin_watch(r, g);
	e = make(r, g);
	if (e) {
		undo(r, g, is_watched);
		return e == -EFAULT ? -EFAULT : -ENOBUFS;
	}
	end_watch(r, g, is_watched);
	*out = g;
	return 0;
}

/* ---- groups ---- */

struct acquire {
	struct reg *r;
	bool writable;
	struct reg_use *out;
};

static void attach(struct reg_use *out, struct region *g, const struct group_piece *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out->region_of[p[i].index] = (uint32_t)out->n_regions;
	out->regions[out->n_regions++] = &g->m;
}

static int make_one(struct acquire *a, struct span s, const struct group_piece *p, size_t n)
{
	struct region *g;
	int e = region_make(a->r, s, a->writable, &g);

	if (!e)
		attach(a->out, g, p, n);
	a->out->n_made += !e;
	return e;
}

static int make_each(struct acquire *a, const struct group_piece *p, size_t n)
{
	int e = 0;

	for (size_t i = 0; !e && i < n; i++)
		e = make_one(a, span_of_pages(p[i].at), &p[i], 1);
	return e;
}

struct runs { /* of mapped memory with the rights that are needed */
	bool writable;
	size_t n, room;
	struct span *of;
	int error;
};

static bool add_run(void *arg, const struct mapping *m)
{
	struct runs *u = arg;
	struct span *more;

	if (!m->is_readable || (u->writable && !m->is_writable))
		return true;
	if (u->n && u->of[u->n - 1].end == m->at.start) {
		u->of[u->n - 1].end = m->at.end;
		return true;
	}
	if (u->n == u->room) {
		u->room = u->room ? 2 * u->room : 32;
		more = realloc(u->of, u->room * sizeof(*more));
		if (!more) {
			u->error = -ENOBUFS;
			return false;
		}
		u->of = more;
	}
	u->of[u->n++] = m->at;
	return true;
}

/* The pieces of each run of mapped memory are one region. */
static int make_runs(struct acquire *a, const struct runs *u, const struct group_piece *p, size_t n)
{
	size_t run = 0;
	int e = 0;

	for (size_t i = 0, k; !e && i < n; i += k) {
		struct span s = span_of_pages(p[i].at);

		while (run < u->n && u->of[run].end <= s.start)
			run++;
		if (run == u->n || !span_contains(u->of[run], s))
			return -EFAULT;
		for (k = 1; i + k < n; k++) {
			struct span next = span_of_pages(p[i + k].at);

			if (next.end > u->of[run].end)
				break;
			s.end = MAX(s.end, next.end);
		}
		e = make_one(a, s, p + i, k);
		if (e == -EFAULT && k > 1)
			e = make_each(a, p + i, k);
	}
	return e;
}

static int make_group(struct acquire *a, struct span s, const struct group_piece *p, size_t n)
{
	const struct reg_costs *c = &a->r->costs;
	struct runs u = { .writable = a->writable };
	int e = make_one(a, s, p, n);

	if (e != -EFAULT || n == 1)
		return e;
	if ((double)n * c->call_ns <= c->query_ns)
		return make_each(a, p, n);
	e = maps_walk(a->r->maps_fd, s, add_run, &u);
	if (!e)
		e = u.error;
	if (!e)
		e = make_runs(a, &u, p, n);
	free(u.of);
	return e;
}

static int make_groups(struct acquire *a, const struct group_piece *p, size_t n)
{
	uint64_t gap = costs_max_gap(&a->r->costs), limit = a->r->counts.limit_bytes;
	size_t k, max_len = a->r->max_len;
	struct span s;
	int e = 0;

	if (group_bytes(p, n, gap, max_len) > limit)
		gap = 0;
	if (!gap && group_bytes(p, n, gap, max_len) > limit)
		return -ENOBUFS;
	for (size_t i = 0; !e && i < n; i += k) {
		k = group_next(p + i, n - i, gap, max_len, &s);
		pthread_mutex_lock(&a->r->lock);
		a->r->counts.groups++;
		pthread_mutex_unlock(&a->r->lock);
		e = make_group(a, s, p + i, k);
	}
	return e;
}

static int make_exact(struct acquire *a, const struct iovec *pieces, size_t n)
{
	int e = 0;

	for (size_t i = 0; !e && i < n; i++) {
		uintptr_t start = (uintptr_t)pieces[i].iov_base;
		struct group_piece p = { { start, start + pieces[i].iov_len }, (uint32_t)i };

		if (pieces[i].iov_len)
			e = make_one(a, p.at, &p, 1);
	}
	return e;
}

/* ---- requests ---- */

/* Takes what is cached; the other pieces stay in p. Returns their number. */
static size_t take_cached(struct acquire *a, struct group_piece *p, size_t n)
{
	struct region *g = NULL;
	size_t missing = 0;

	if (!a->r->line)
		return n;
	if (!cache_lock_synced(a->r)) {
		pthread_mutex_unlock(&a->r->lock);
		return n;
	}
	for (size_t i = 0; i < n; i++) {
		if (g && span_contains(g->at, p[i].at)) {
			a->out->region_of[p[i].index] = (uint32_t)a->out->n_regions - 1;
			a->r->counts.hits++;
			continue;
		}
		g = cache_find(a->r, p[i].at, a->writable);
		if (!g) {
			p[missing++] = p[i];
			continue;
		}
		cache_use(a->r, g);
		attach(a->out, g, &p[i], 1);
		a->r->counts.hits++;
	}
	pthread_mutex_unlock(&a->r->lock);
	return missing;
}

int reg_acquire(struct reg *r, const struct iovec *pieces, size_t n, bool writable,
		struct reg_use *out)
{
	struct acquire a = { r, writable, out };
	struct group_piece *p;
	size_t left = 0, n_made;
	int e;

	*out = (struct reg_use){ 0 };
	if (!n || r->pid != getpid())
		return n ? -ENOBUFS : 0;
	out->regions = malloc(n * (sizeof(out->regions[0]) + sizeof(out->region_of[0])));
	p = malloc(n * sizeof(*p));
	e = out->regions && p ? group_sort(p, pieces, n, &left) : -ENOBUFS;
	if (!e) {
		out->region_of = (uint32_t *)(out->regions + n);
		memset(out->region_of, 0, n * sizeof(out->region_of[0]));
		left = take_cached(&a, p, left);
	}
	if (!e && r->is_exact)
		e = make_exact(&a, pieces, n);
	else if (!e && left)
		e = make_groups(&a, p, left);
	free(p);
	n_made = out->n_made;
	if (e)
		reg_release(r, out);
	out->n_made = n_made;
	return e;
}

void reg_release(struct reg *r, struct reg_use *u)
{
	bool any_dead = false;

	if (u->n_regions && r->pid == getpid()) {
		pthread_mutex_lock(&r->lock);
		for (size_t i = 0; i < u->n_regions; i++)
			cache_unuse(r, container_of(u->regions[i], struct region, m));
		any_dead = !list_empty(&r->dead);
		pthread_mutex_unlock(&r->lock);
	}
	if (any_dead)
		cache_bury(r);
	free(u->regions);
	*u = (struct reg_use){ 0 };
}
