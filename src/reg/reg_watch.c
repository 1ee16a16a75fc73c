/* The watch of the address space: userfaultfd tells when watched memory is unmapped, moved or
 * discarded. Ranges are registered in write-protect mode, and no page is ever write-protected: so
 * there are events, and no faults. One watch per process, which ends with the process.
 *
 * The kernel holds munmap() until its event was read. So the monitor, which reads them, takes no
 * lock and calls nothing that may: it puts each event into the line of every cache, a ring with one
 * producer. A cache takes the events under its own lock, before it looks anything up. README.md
 * has the argument why nothing is missed.
 *
 * Threads: any; the monitor is a thread of this file. Buffers: none. Errors: -errno. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reg/reg_impl.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define FEATURES \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | \
	 UFFD_FEATURE_EVENT_REMOVE)
#define MAX_LINES 8
#define LINE_EVENTS 2048

struct watch_line {
	atomic_bool is_used;
	atomic_uint lost; /* the ring was full: enum watch_lost */
	atomic_uint head, tail; /* taken by the cache, put by the monitor */
	_Atomic(sem_t *) wake;
	struct watch_event ring[LINE_EVENTS];
};

static struct {
	pthread_mutex_t lock; /* of opening and closing */
	int fd; /* -1: not opened in this process */
	const char *why; /* it cannot be opened */
	atomic_bool is_reading; /* an event was perhaps read and is not in the lines yet */
	struct watch_line lines[MAX_LINES];
} watch = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

/* ---- the monitor ---- */

static void put(struct watch_line *l, struct watch_event e)
{
	unsigned tail = atomic_load_explicit(&l->tail, memory_order_relaxed);
	sem_t *wake;

	if (!atomic_load(&l->is_used))
		return;
	if (tail - atomic_load(&l->head) == LINE_EVENTS) {
		atomic_fetch_or(&l->lost, e.kind == WATCH_DISCARDED ? WATCH_LOST_DISCARDED :
								      WATCH_LOST_UNMAPPED);
		return;
	}
	l->ring[tail % LINE_EVENTS] = e;
	atomic_store(&l->tail, tail + 1);
	wake = atomic_load(&l->wake);
	if (wake)
		sem_post(wake);
}

static void put_all(uintptr_t start, uintptr_t end, enum watch_kind kind)
{
	for (int i = 0; i < MAX_LINES; i++)
		put(&watch.lines[i], (struct watch_event){ { start, end }, kind });
}

static void take(const struct uffd_msg *m)
{
	uintptr_t start = m->arg.remove.start, end = m->arg.remove.end;

	if (m->event == UFFD_EVENT_UNMAP) {
		put_all(start, end, WATCH_UNMAPPED);
	} else if (m->event == UFFD_EVENT_REMOVE) {
		put_all(start, end, WATCH_DISCARDED);
	} else if (m->event == UFFD_EVENT_REMAP) {
		start = m->arg.remap.from;
		put_all(start, start + m->arg.remap.len, WATCH_UNMAPPED);
		start = m->arg.remap.to;
		put_all(start, start + m->arg.remap.len, WATCH_UNMAPPED);
	}
}

/* Nothing here may allocate, free, lock or log. */
static void *monitor(void *arg)
{
	struct pollfd p = { .fd = (int)(intptr_t)arg, .events = POLLIN };
	struct uffd_msg m;

	for (;;) {
		if (poll(&p, 1, -1) < 0)
			continue;
		atomic_store(&watch.is_reading, true);
		atomic_thread_fence(memory_order_seq_cst);
		while (read(p.fd, &m, sizeof(m)) == sizeof(m))
			take(&m);
		atomic_store(&watch.is_reading, false);
	}
	return NULL;
}

/* The program's signal handlers must not run on the monitor: they may unmap memory. */
static int monitor_start(int fd)
{
	sigset_t all, before;
	pthread_t t;
	int e;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	e = pthread_create(&t, NULL, monitor, (void *)(intptr_t)fd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!e)
		pthread_detach(t);
	return -e;
}

/* ---- opening ---- */

/* The child has the descriptor, but neither the monitor nor watched memory. */
static void after_fork(void)
{
	pthread_mutex_init(&watch.lock, NULL);
	if (watch.fd >= 0)
		close(watch.fd);
	watch.fd = -1;
	watch.why = NULL;
	atomic_store(&watch.is_reading, false);
	for (int i = 0; i < MAX_LINES; i++)
		atomic_store(&watch.lines[i].is_used, false);
}

static void install_after_fork(void)
{
	pthread_atfork(NULL, NULL, after_fork);
}

/* True if this memory can be watched and the probe of watch_is_idle() works. */
static bool try_watching(int fd)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_zeropage zero = { .mode = 0 };
	size_t len = page_size();
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool works;

	if (p == MAP_FAILED)
		return false;
	*(volatile char *)p = 1;
	reg.range = (struct uffdio_range){ (uintptr_t)p, len };
	works = ioctl(fd, UFFDIO_REGISTER, &reg) == 0;
	if (works) {
		zero.range = reg.range;
		works = ioctl(fd, UFFDIO_ZEROPAGE, &zero) < 0 && errno == EEXIST;
		ioctl(fd, UFFDIO_UNREGISTER, &reg.range);
	}
	munmap(p, len);
	return works;
}

static int open_descriptor(void)
{
	int flags = O_CLOEXEC | O_NONBLOCK, fd;

	fd = (int)syscall(__NR_userfaultfd, flags | UFFD_USER_MODE_ONLY);
	if (fd < 0 && errno == EINVAL) /* kernels before 5.11 */
		fd = (int)syscall(__NR_userfaultfd, flags);
	return fd;
}

/* With the lock held. Sets watch.fd or watch.why. */
static void start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct uffdio_api api = { .api = UFFD_API, .features = FEATURES };
	int fd = open_descriptor();

	pthread_once(&once, install_after_fork);
	if (fd < 0)
		watch.why = errno == ENOSYS ? "the kernel has no userfaultfd" :
					      "userfaultfd is not permitted";
	else if (ioctl(fd, UFFDIO_API, &api) < 0)
		watch.why = "userfaultfd does not report unmapped memory";
	else if (!try_watching(fd))
		watch.why = "userfaultfd has no write-protect mode";
	else if (monitor_start(fd) < 0)
		watch.why = "no thread for userfaultfd";
	else
		watch.fd = fd;
	if (watch.why && fd >= 0)
		close(fd);
}

struct watch_line *watch_open(const char **why, sem_t *wake)
{
	struct watch_line *l = NULL;

	pthread_mutex_lock(&watch.lock);
	if (watch.fd < 0 && !watch.why)
		start();
	*why = watch.why;
	for (int i = 0; !watch.why && !l && i < MAX_LINES; i++)
		if (!atomic_load(&watch.lines[i].is_used))
			l = &watch.lines[i];
	if (l) {
		atomic_store(&l->head, atomic_load(&l->tail));
		atomic_store(&l->lost, 0);
		atomic_store(&l->wake, wake);
		atomic_store(&l->is_used, true);
	} else if (!watch.why) {
		*why = "too many devices";
	}
	pthread_mutex_unlock(&watch.lock);
	return l;
}

void watch_close(struct watch_line *l)
{
	pthread_mutex_lock(&watch.lock);
	atomic_store(&l->wake, NULL);
	atomic_store(&l->is_used, false);
	pthread_mutex_unlock(&watch.lock);
	while (atomic_load(&watch.is_reading)) /* the monitor may be about to post */
		sched_yield();
}

/* ---- watching ---- */

int watch_add(struct span s)
{
	struct uffdio_register r = { .range = { s.start, s.end - s.start },
				     .mode = UFFDIO_REGISTER_MODE_WP };

	return ioctl(watch.fd, UFFDIO_REGISTER, &r) < 0 ? -errno : 0;
}

struct cover {
	struct span s;
	uintptr_t at; /* everything below is covered */
};

/* A mapping that is watched in one page is watched everywhere. UFFDIO_ZEROPAGE answers EEXIST for a
 * page that is there and watched, ENOENT if it is not watched; it changes neither. */
static bool covers_mapping(void *arg, const struct mapping *m)
{
	struct cover *c = arg;
	struct uffdio_zeropage z = { .range = { MAX(m->at.start, c->s.start), page_size() } };

	if (m->at.start > c->at || !m->is_private_memory)
		return false;
	if (ioctl(watch.fd, UFFDIO_ZEROPAGE, &z) == 0 || errno != EEXIST)
		return false;
	c->at = m->at.end;
	return c->at < c->s.end;
}

bool watch_covers(int maps_fd, struct span s)
{
	struct cover c = { s, s.start };

	return maps_walk(maps_fd, s, covers_mapping, &c) == 0 && c.at >= s.end;
}

/* The kernel refuses UFFDIO_ZEROPAGE with EAGAIN from before a change of watched memory until its
 * event was read. An empty range is refused with EINVAL otherwise. */
bool watch_is_idle(void)
{
	struct uffdio_zeropage z = { .mode = 0 };

	if (ioctl(watch.fd, UFFDIO_ZEROPAGE, &z) == 0 || errno != EINVAL)
		return false;
	atomic_thread_fence(memory_order_seq_cst);
	return !atomic_load(&watch.is_reading);
}

bool watch_next(struct watch_line *l, struct watch_event *e, unsigned *lost)
{
	unsigned head = atomic_load_explicit(&l->head, memory_order_relaxed);

	*lost = atomic_exchange(&l->lost, 0);
	if (head == atomic_load(&l->tail))
		return false;
	*e = l->ring[head % LINE_EVENTS];
	atomic_store(&l->head, head + 1);
	return true;
}
