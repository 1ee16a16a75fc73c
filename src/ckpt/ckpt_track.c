/* Which pages of the registered memory change, and what they were when a checkpoint began.
 *
 * Whole pages inside of a piece (ckpt_areas.c) are write-protected: by userfaultfd where the kernel
 * permits it, else by mprotect. The first write to a page of which the running checkpoint still
 * needs the old contents copies it to a pool of bounded size, or waits until the checkpoint has
 * written some.
 * Other bytes of pieces (their first and last pages, which they share with foreign data) are copied
 * when the checkpoint begins.
 *
 * Threads: the program's own fault at any time; one thread reads the snapshot. A unit (some pages)
 * is changed by the thread that has set BUSY. The signal handler calls only what a handler may.
 * Buffers: what serves a fault is in mappings of its own, never in a page that may be protected.
 * Errors: -errno, explained; none of them leaves memory protected. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define NEED 1 /* the old contents are in place, and the checkpoint has not read all of them */
#define COPIED 2 /* they are in the pool */
#define DIRTY 4 /* changed since the last checkpoint began */
#define BUSY 8

#define COARSE 16 /* pages of a unit where only the copies count, not which pages changed */
#define MAPS_MOST 16384 /* areas, and units of mprotect: each may split a mapping */
#define JOBS_MOST 64 /* trackers of a process that use mprotect */
#define STUCK_NS \
	(2 * NSEC_PER_SEC) /* without progress: then a writer gets memory beyond the bound */

struct area {
	char *begin;
	size_t bytes, unit; /* index of the first unit */
	bool by_mprotect; /* userfaultfd does not take mappings of files */
};

struct ckpt_track {
	const struct ckpt_pieces *p;
	bool by_mprotect, fine;
	size_t mprotect_bytes; /* of the areas */
	bool is_user_only; /* userfaultfd does not serve faults of system calls */
	int fd, stop; /* userfaultfd; event that ends its thread */
	pthread_t thread;
	bool has_thread, may_protect;
	/* an area was unprotected as a whole: its changes and its old contents are not known */
	atomic_bool is_lost;
	struct area *areas; /* ascending, disjoint */
	size_t n_areas, n_units, unit_bytes, page;
	_Atomic uint8_t *state; /* of each unit */
	uint32_t *slot; /* in the pool, of copied ones */
	uint32_t *bytes; /* of pieces in the unit */
	uint32_t *left; /* of them the snapshot has not read; used by its thread */
	struct ckpt_run *eager; /* bytes of the stream in no unit, ascending */
	size_t n_eager;
	uint64_t *eager_before; /* bytes of the eager runs before each */
	char *eager_copy;
	struct ckpt_pool pool;
	atomic_ullong copied, waits, progress;
	/* 1 + the progress at which a writer gave up waiting: until there is more, no other one
	 * waits */
	atomic_ullong stuck_at;
};

static _Atomic(struct ckpt_track *) trackers[JOBS_MOST]; /* by mprotect */
static atomic_int handlers; /* threads in take_fault() */
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;

/* ---- units ---- */

/* The first area that ends behind this address; n_areas if there is none. */
static size_t area_from(const struct ckpt_track *t, const char *at)
{
	size_t low = 0, high = t->n_areas;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (t->areas[mid].begin + t->areas[mid].bytes <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* SIZE_MAX: in none */
static size_t unit_of(const struct ckpt_track *t, const char *at)
{
	size_t i = area_from(t, at);

	if (i == t->n_areas || at < t->areas[i].begin)
		return SIZE_MAX;
	return t->areas[i].unit + (size_t)(at - t->areas[i].begin) / t->unit_bytes;
}

/* The memory of the unit that has this address, which is in one. */
static char *unit_place(const struct ckpt_track *t, const char *at, size_t *len)
{
	const struct area *a = &t->areas[area_from(t, at)];
	size_t off = (size_t)(at - a->begin) / t->unit_bytes * t->unit_bytes;

	*len = MIN(t->unit_bytes, a->bytes - off);
	return a->begin + off;
}

static uint8_t unit_lock(struct ckpt_track *t, size_t u)
{
	for (;;) {
		uint8_t s = atomic_load(&t->state[u]);

		if (!(s & BUSY) &&
		    atomic_compare_exchange_weak(&t->state[u], &s, (uint8_t)(s | BUSY)))
			return s;
		if (s & BUSY)
			sched_yield();
	}
}

static void unit_unlock(struct ckpt_track *t, size_t u, uint8_t s)
{
	atomic_store(&t->state[u], s);
}

/* ---- protection ---- */

static int protect(struct ckpt_track *t, char *at, size_t len, bool on)
{
	struct uffdio_writeprotect w = { .range = { (uintptr_t)at, len },
					 .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };

	if (t->areas[area_from(t, at)].by_mprotect)
		return mprotect(at, len, on ? PROT_READ : PROT_READ | PROT_WRITE) ? -errno : 0;
	while (ioctl(t->fd, UFFDIO_WRITEPROTECT, &w))
		if (errno != EAGAIN)
			return -errno;
	return 0;
}

/* The limit of mappings may not permit to split one; as a whole it becomes one again. */
static bool unprotect(struct ckpt_track *t, char *place, size_t len)
{
	struct area *a = &t->areas[area_from(t, place)];

	if (!protect(t, place, len, false))
		return true;
	atomic_store(&t->is_lost, true);
	return !protect(t, a->begin, a->bytes, false);
}

/* A write to a protected page. Any thread, also in a signal handler. false: it stays protected */
static bool written(struct ckpt_track *t, size_t u, const char *at)
{
	const struct timespec nap = { .tv_nsec = 200000 };
	uint64_t seen = atomic_load(&t->progress), since = 0;
	bool waited = false, is_free;
	size_t len;
	char *place = unit_place(t, at, &len);

	for (;;) {
		uint8_t s = unit_lock(t, u);
		uint32_t slot;

		if (s & NEED) {
			/* the checkpoint may be waiting for this very thread */
			bool stuck = since && time_now() - since > STUCK_NS;

			if (stuck)
				atomic_store(&t->stuck_at, seen + 1);
			if (!ckpt_pool_get(&t->pool,
					   stuck || atomic_load(&t->stuck_at) ==
							    atomic_load(&t->progress) + 1,
					   &slot)) {
				unit_unlock(t, u, s);
				atomic_fetch_add(&t->waits, !waited);
				waited = true;
				if (!since || atomic_load(&t->progress) != seen)
					since = time_now();
				seen = atomic_load(&t->progress);
				nanosleep(&nap, NULL);
				continue;
			}
			memcpy(ckpt_pool_slot(&t->pool, slot), place, len);
			t->slot[u] = slot;
			s = (uint8_t)((s & ~NEED) | COPIED);
			atomic_fetch_add(&t->copied, len / t->page);
		}
		is_free = unprotect(t, place, len);
		unit_unlock(t, u, (uint8_t)(s | DIRTY));
		return is_free;
	}
}

/* ---- faults by userfaultfd: a thread ---- */

static void *serve_faults(void *arg)
{
	struct ckpt_track *t = arg;
	struct pollfd p[2] = { { .fd = t->fd, .events = POLLIN },
			       { .fd = t->stop, .events = POLLIN } };

	while (!p[1].revents) {
		struct uffd_msg m;

		if (poll(p, 2, -1) < 0)
			continue;
		while (read(t->fd, &m, sizeof(m)) == (ssize_t)sizeof(m)) {
			char *at = (char *)(uintptr_t)m.arg.pagefault.address;
			size_t u = unit_of(t, at);

			if (m.event == UFFD_EVENT_PAGEFAULT && u != SIZE_MAX)
				written(t, u, at);
		}
	}
	return NULL;
}

static int register_areas(struct ckpt_track *t, bool populate)
{
	for (size_t i = 0; i < t->n_areas; i++) {
		struct area *a = &t->areas[i];
		struct uffdio_register r = { .range = { (uintptr_t)a->begin, a->bytes },
					     .mode = UFFDIO_REGISTER_MODE_WP };

		if (populate && madvise(a->begin, a->bytes, MADV_POPULATE_READ))
			return -errno;
		a->by_mprotect = ioctl(t->fd, UFFDIO_REGISTER, &r) ||
				 !(r.ioctls & (UINT64_C(1) << _UFFDIO_WRITEPROTECT));
		t->mprotect_bytes += a->by_mprotect ? a->bytes : 0;
	}
	return 0;
}

/* Areas that userfaultfd does not take are left to mprotect. */
static int start_uffd(struct ckpt_track *t)
{
	bool populate = false;
	int r;

	t->fd = ckpt_uffd_open(true, &t->is_user_only);
	if (t->fd < 0) {
		populate = true;
		t->fd = ckpt_uffd_open(false, &t->is_user_only);
	}
	if (t->fd < 0)
		return -EOPNOTSUPP;
	r = register_areas(t, populate);
	t->stop = r ? -1 : eventfd(0, EFD_CLOEXEC);
	if (!r)
		r = t->stop < 0 ? -errno : ckpt_thread_start(&t->thread, serve_faults, t);
	t->has_thread = !r;
	if (!r)
		return 0;
	close(t->fd); /* unregisters */
	if (t->stop >= 0)
		close(t->stop);
	t->fd = t->stop = -1;
	return r;
}

/* ---- faults by mprotect: a signal handler ---- */

static bool take_fault(char *at)
{
	bool done = false, found = false;

	atomic_fetch_add(&handlers, 1); /* ckpt_track_free() waits for this one */
	for (int i = 0; i < JOBS_MOST && !found; i++) {
		struct ckpt_track *t = atomic_load(&trackers[i]);
		size_t u = t ? unit_of(t, at) : SIZE_MAX;

		found = u != SIZE_MAX && t->areas[area_from(t, at)].by_mprotect;
		done = found && written(t, u, at);
	}
	atomic_fetch_sub(&handlers, 1);
	return done;
}

/* Has the page been unprotected since the fault, by the end of its tracker? The call writes
 * nothing; Linux before 5.14 has none. */
static bool is_writable(const char *at)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	return madvise((void *)((uintptr_t)at & ~(page - 1)), page, MADV_POPULATE_WRITE) == 0;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	bool is_served = info->si_code == SEGV_ACCERR &&
			 (take_fault(info->si_addr) || is_writable(info->si_addr));

	errno = saved;
	if (is_served)
		return;
	pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(sig, info, context);
	} else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
		sigaction(sig, &before, NULL);
		if (info->si_code <= 0)
			raise(sig);
	} else {
		before.sa_handler(sig);
	}
}

/* Blocks all other signals while on_fault() runs: a handler that interrupts it and writes to the
 * same page would wait for the unit that this thread itself holds. */
static void install(void)
{
	struct sigaction a = { .sa_sigaction = on_fault,
			       .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };

	sigfillset(&a.sa_mask);
	sigdelset(&a.sa_mask, SIGSEGV);
	sigaction(SIGSEGV, &a, &before);
}

static bool is_shared(const struct ckpt_track *t, const struct ckpt_track *other)
{
	for (size_t i = 0; i < t->n_areas; i++) {
		const struct area *a = &t->areas[i];
		size_t k = area_from(other, a->begin);

		for (; a->by_mprotect && k < other->n_areas &&
		       other->areas[k].begin < a->begin + a->bytes;
		     k++)
			if (other->areas[k].by_mprotect)
				return true;
	}
	return false;
}

/* One of them would unprotect what the other one watches. */
static int enter_tracker(struct ckpt_track *t)
{
	int found = -1;

	for (int i = 0; i < JOBS_MOST; i++) {
		struct ckpt_track *other = atomic_load(&trackers[i]);

		if (other && is_shared(t, other))
			return ckpt_fail(-EADDRINUSE,
					 "another job of this process tracks changes of the same "
					 "memory: register it in one of them, or close that job "
					 "first");
		if (!other && found < 0)
			found = i;
	}
	if (found < 0)
		return ckpt_fail(-EUSERS, "more than %d jobs of this process track changes",
				 JOBS_MOST);
	atomic_store(&trackers[found], t);
	return 0;
}

static int start_mprotect(struct ckpt_track *t)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int r;

	pthread_once(&once, install);
	pthread_mutex_lock(&registering);
	r = enter_tracker(t);
	pthread_mutex_unlock(&registering);
	return r;
}

/* ---- what is tracked ---- */

/* The whole pages of each piece; those of several pieces are joined. Each area may split a mapping:
 * where there are too many, the bytes of the shortest are copied when a checkpoint begins. */
static int find_areas(struct ckpt_track *t)
{
	uintptr_t page = t->page;
	struct ckpt_span *spans;
	size_t pages = 0;
	int r = ckpt_areas(t->p, page, MAPS_MOST, &spans, &t->n_areas);

	t->areas = r ? NULL : calloc(t->n_areas + 1, sizeof(*t->areas));
	if (!t->areas) {
		t->n_areas = 0;
		free(spans);
		return ckpt_fail(r ? r : -ENOMEM, "registered memory: %s",
				 sheaf_strerror(r ? r : -ENOMEM));
	}
	for (size_t i = 0; i < t->n_areas; i++) {
		t->areas[i].begin = (char *)spans[i].begin;
		t->areas[i].bytes = spans[i].end - spans[i].begin;
		pages += t->areas[i].bytes / page;
	}
	free(spans);
	t->unit_bytes = t->fine ? page : COARSE * page;
	while (t->by_mprotect && pages / (t->unit_bytes / page) > MAPS_MOST)
		t->unit_bytes *= 2;
	for (size_t i = 0; i < t->n_areas; i++) {
		t->areas[i].unit = t->n_units;
		t->n_units += (t->areas[i].bytes + t->unit_bytes - 1) / t->unit_bytes;
	}
	return 0;
}

/* Bytes from mem on up to the end of its unit or, outside of units, up to the next one. */
static size_t part_of(const struct ckpt_track *t, const char *mem, const char *end)
{
	size_t i = area_from(t, mem), off;
	const struct area *a = &t->areas[i];

	if (i == t->n_areas)
		return (size_t)(end - mem);
	if (mem < a->begin)
		return (size_t)(MIN((const char *)a->begin, end) - mem);
	off = ((size_t)(mem - a->begin) / t->unit_bytes + 1) * t->unit_bytes;
	return (size_t)(MIN((const char *)a->begin + MIN(off, a->bytes), end) - mem);
}

/* Calls fn for each part of the stream that is in one unit, or (SIZE_MAX) in none. */
static int each_part(const struct ckpt_track *t, uint64_t at, uint64_t len,
		     int (*fn)(void *arg, size_t u, uint64_t at, char *mem, size_t len), void *arg)
{
	struct iovec iov[64];
	int r = 0;

	while (!r && len) {
		size_t n = 0;
		ssize_t got = ckpt_stream_memory(t->p, at, len, iov, ARRAY_LEN(iov), &n);

		if (got <= 0)
			return got ? (int)got : -EINVAL;
		for (size_t i = 0; !r && i < n; i++) {
			char *mem = iov[i].iov_base, *end = mem + iov[i].iov_len;

			while (!r && mem < end) {
				size_t u = unit_of(t, mem), part = part_of(t, mem, end);

				r = fn(arg, u, at, mem, part);
				mem += part;
				at += part;
			}
		}
		len -= (uint64_t)got;
	}
	return r;
}

/* The writer may continue before the thread that served its fault has noted the change; the unit is
 * BUSY until then. */
static bool is_dirty(struct ckpt_track *t, size_t u)
{
	uint8_t s = unit_lock(t, u);

	unit_unlock(t, u, s);
	return s & DIRTY || atomic_load(&t->is_lost);
}

struct runs {
	struct ckpt_track *t;
	bool all; /* also units that have not changed */
	bool only_eager;
	struct ckpt_run *v;
	size_t n, cap;
	uint64_t bytes;
};

static int add_run(void *arg, size_t u, uint64_t at, char *mem, size_t len)
{
	struct runs *s = arg;
	struct ckpt_run *last = s->n ? &s->v[s->n - 1] : NULL;

	(void)mem;
	if (u != SIZE_MAX && (s->only_eager || (!s->all && !is_dirty(s->t, u))))
		return 0;
	s->bytes += len;
	if (last && last->at + last->len == at) {
		last->len += len;
		return 0;
	}
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 16;
		struct ckpt_run *v = realloc(s->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n++] = (struct ckpt_run){ at, len };
	return 0;
}

static int count_bytes(void *arg, size_t u, uint64_t at, char *mem, size_t len)
{
	struct ckpt_track *t = arg;

	(void)at;
	(void)mem;
	if (u != SIZE_MAX)
		t->bytes[u] += (uint32_t)len;
	return 0;
}

static int prepare(struct ckpt_track *t, uint64_t bound)
{
	struct runs eager = { .t = t, .only_eager = true };
	int r = find_areas(t);

	if (r)
		return r;
	t->state = ckpt_own_alloc((t->n_units + 1) * sizeof(*t->state));
	t->slot = ckpt_own_alloc((t->n_units + 1) * sizeof(*t->slot));
	t->left = ckpt_own_alloc((t->n_units + 1) * sizeof(*t->left));
	t->bytes = calloc(t->n_units + 1, sizeof(*t->bytes));
	if (!t->state || !t->slot || !t->bytes || !t->left)
		return ckpt_fail(-ENOMEM, "out of memory");
	r = each_part(t, 0, t->p->bytes, count_bytes, t);
	if (!r)
		r = each_part(t, 0, t->p->bytes, add_run, &eager);
	t->eager = eager.v;
	t->n_eager = eager.n;
	t->eager_before = calloc(eager.n + 1, sizeof(*t->eager_before));
	t->eager_copy = malloc(eager.bytes + 1);
	if (r || !t->eager_copy || !t->eager_before)
		return ckpt_fail(r ? r : -ENOMEM, "out of memory");
	for (size_t i = 0; i < t->n_eager; i++)
		t->eager_before[i + 1] = t->eager_before[i] + t->eager[i].len;
	return ckpt_pool_make(&t->pool, bound, t->unit_bytes);
}

static void unprepare(struct ckpt_track *t)
{
	ckpt_pool_free(&t->pool);
	ckpt_own_free(t->state, (t->n_units + 1) * sizeof(*t->state));
	ckpt_own_free(t->slot, (t->n_units + 1) * sizeof(*t->slot));
	ckpt_own_free(t->left, (t->n_units + 1) * sizeof(*t->left));
	free(t->areas);
	free(t->bytes);
	free(t->eager);
	free(t->eager_before);
	free(t->eager_copy);
	ckpt_own_free(t, sizeof(*t));
}

static void unprotect_all(struct ckpt_track *t)
{
	for (size_t i = 0; t->state && i < t->n_areas; i++)
		protect(t, t->areas[i].begin, t->areas[i].bytes, false);
}

void ckpt_track_free(struct ckpt_track *t)
{
	const uint64_t one = 1;

	if (!t)
		return;
	if (t->may_protect)
		unprotect_all(t);
	pthread_mutex_lock(&registering);
	for (int i = 0; i < JOBS_MOST; i++) {
		struct ckpt_track *this = t;

		atomic_compare_exchange_strong(&trackers[i], &this, NULL);
	}
	pthread_mutex_unlock(&registering);
	while (atomic_load(&handlers)) /* one of them may use t */
		sched_yield();
	if (t->has_thread) {
		/* a fault that is being served ends first */
		if (write(t->stop, &one, sizeof(one)) == (ssize_t)sizeof(one))
			pthread_join(t->thread, NULL);
		close(t->stop);
		close(t->fd);
	}
	unprepare(t);
}

static int new_one(const struct ckpt_pieces *p, uint64_t bound, bool fine, bool by_mprotect,
		   struct ckpt_track **out)
{
	struct ckpt_track *t = ckpt_own_alloc(sizeof(*t));
	int r;

	if (!t)
		return ckpt_fail(-ENOMEM, "out of memory");
	t->p = p;
	t->page = (size_t)sysconf(_SC_PAGESIZE);
	t->fd = t->stop = -1;
	t->by_mprotect = by_mprotect;
	t->fine = fine;
	r = prepare(t, bound);
	if (!r && !by_mprotect)
		r = start_uffd(t);
	if (!r && !by_mprotect && t->mprotect_bytes / t->unit_bytes > MAPS_MOST)
		r = -EOPNOTSUPP; /* larger units, for all */
	for (size_t i = 0; by_mprotect && i < t->n_areas; i++) {
		t->areas[i].by_mprotect = true;
		t->mprotect_bytes += t->areas[i].bytes;
	}
	if (!r && t->mprotect_bytes)
		r = start_mprotect(t);
	t->may_protect = !r;
	if (r)
		ckpt_track_free(t);
	else
		*out = t;
	return r;
}

int ckpt_track_new(const struct ckpt_pieces *p, uint64_t bound, bool fine, bool by_mprotect,
		   struct ckpt_track **out)
{
	int r = ckpt_check_private(
		p, "changes by other processes cannot be seen: leave SHEAF_CKPT_ASYNC and "
		   "SHEAF_CKPT_INCREMENTAL away");

	*out = NULL;
	if (r || (!by_mprotect && new_one(p, bound, fine, false, out) == 0))
		return r;
	return new_one(p, bound, fine, true, out);
}

/* ---- a checkpoint ---- */

int ckpt_track_runs(struct ckpt_track *t, bool all, struct ckpt_run **runs, size_t *n,
		    uint64_t *bytes)
{
	struct runs s = { .t = t, .all = all };
	int r = each_part(t, 0, t->p->bytes, add_run, &s);

	*runs = s.v;
	*n = s.n;
	*bytes = s.bytes;
	return r ? ckpt_fail(r, "the changed pages: %s", sheaf_strerror(r)) : 0;
}

int ckpt_track_begin(struct ckpt_track *t, bool all, bool copies)
{
	int r = 0;

	atomic_store(&t->copied, 0);
	atomic_store(&t->waits, 0);
	atomic_store(&t->stuck_at, 0);
	all = atomic_exchange(&t->is_lost, false) || all;
	for (size_t u = 0; u < t->n_units; u++) {
		uint8_t s = unit_lock(t, u);
		bool wanted = copies && t->bytes[u] && (all || (s & DIRTY));

		t->left[u] = wanted ? t->bytes[u] : 0;
		unit_unlock(t, u, wanted ? NEED : 0);
	}
	for (size_t i = 0; !r && i < t->n_areas; i++)
		r = protect(t, t->areas[i].begin, t->areas[i].bytes, true);
	for (size_t i = 0; !r && copies && i < t->n_eager; i++)
		r = ckpt_stream_copy(t->p, t->eager[i].at, t->eager[i].len,
				     t->eager_copy + t->eager_before[i]);
	if (!r)
		return 0;
	ckpt_track_end(t, false);
	return ckpt_fail(r, "write protection of the registered memory: %s", sheaf_strerror(r));
}

struct copying {
	struct ckpt_track *t;
	char *out;
	bool keeps; /* pages stay protected, to see changes */
	char *free_from, *free_to; /* memory that the snapshot does not need any more */
};

/* Where eager_copy has this byte of the stream. */
static uint64_t eager_place(const struct ckpt_track *t, uint64_t at)
{
	size_t low = 0, high = t->n_eager;

	while (high - low > 1) {
		size_t mid = (low + high) / 2;

		if (t->eager[mid].at <= at)
			low = mid;
		else
			high = mid;
	}
	return t->eager_before[low] + (at - t->eager[low].at);
}

static void release(struct copying *k)
{
	if (k->free_to > k->free_from)
		protect(k->t, k->free_from, (size_t)(k->free_to - k->free_from), false);
	k->free_from = k->free_to = NULL;
}

static int copy_part(void *arg, size_t u, uint64_t at, char *mem, size_t len)
{
	struct copying *k = arg;
	struct ckpt_track *t = k->t;
	size_t unit_len;
	char *place;
	uint8_t s;

	if (u == SIZE_MAX) {
		memcpy(k->out, t->eager_copy + eager_place(t, at), len);
		k->out += len;
		return 0;
	}
	place = unit_place(t, mem, &unit_len);
	s = unit_lock(t, u);
	memcpy(k->out, s & COPIED ? ckpt_pool_slot(&t->pool, t->slot[u]) + (mem - place) : mem,
	       len);
	k->out += len;
	if (atomic_load(&t->is_lost)) {
		unit_unlock(t, u, s);
		return -ENOMEM;
	}
	t->left[u] -= (uint32_t)MIN(len, t->left[u]);
	if (!t->left[u]) {
		if (s & COPIED)
			ckpt_pool_put(&t->pool, t->slot[u]);
		s &= (uint8_t) ~(NEED | COPIED);
	}
	unit_unlock(t, u, s);
	atomic_fetch_add(&t->progress, 1);
	if (!t->left[u] && !k->keeps && !(s & DIRTY)) {
		if (k->free_to != place)
			release(k);
		k->free_from = k->free_from ? k->free_from : place;
		k->free_to = place + unit_len;
	}
	return 0;
}

int ckpt_track_copy(struct ckpt_track *t, uint64_t at, uint64_t len, char *out, bool keeps)
{
	struct copying k = { .t = t, .out = out, .keeps = keeps };
	int r = each_part(t, at, len, copy_part, &k);

	release(&k);
	return r ? ckpt_fail(r, "registered memory: %s", sheaf_strerror(r)) : 0;
}

void ckpt_track_end(struct ckpt_track *t, bool keeps)
{
	for (size_t u = 0; u < t->n_units; u++) {
		uint8_t s;

		if (!(atomic_load(&t->state[u]) & (NEED | COPIED)))
			continue;
		s = unit_lock(t, u);
		if (s & COPIED)
			ckpt_pool_put(&t->pool, t->slot[u]);
		unit_unlock(t, u, s & (uint8_t) ~(NEED | COPIED));
	}
	if (!keeps)
		unprotect_all(t);
}

void ckpt_track_cost(const struct ckpt_track *t, struct sheaf_ckpt_cost *cost)
{
	cost->copied_pages = atomic_load(&t->copied);
	cost->waits = atomic_load(&t->waits);
	cost->mprotect_bytes = t->mprotect_bytes;
	for (size_t i = 0; t->is_user_only && i < t->n_areas; i++)
		cost->mprotect_bytes += t->areas[i].by_mprotect ? 0 : t->areas[i].bytes;
}
