/* Shared by the files of src/reg: address ranges, the watch of the address space, the cache. */
#ifndef SHEAF_REG_IMPL_H
#define SHEAF_REG_IMPL_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "reg/reg.h"

/* Addresses [start, end). */
struct span {
	uintptr_t start, end;
};

static inline bool span_overlaps(struct span a, struct span b)
{
	return a.start < b.end && b.start < a.end;
}

static inline bool span_contains(struct span a, struct span b)
{
	return a.start <= b.start && b.end <= a.end;
}

uintptr_t page_size(void);
struct span span_of_pages(struct span s); /* the pages that hold s */

/* ---------------------------------------------------------------- reg_spans.c */

/* A sorted set of spans of bounded size: a set that would grow too large also takes in addresses
 * between two of its spans. */
#define SPANS_MAX 64
struct spans {
	size_t n;
	struct span of[SPANS_MAX];
};
void spans_add(struct spans *set, struct span s);
void spans_remove(struct spans *set, struct span s);
bool spans_overlap(const struct spans *set, struct span s);

/* ---------------------------------------------------------------- reg_maps.c: mappings */

struct mapping {
	struct span at;
	bool is_readable, is_writable;
	bool is_private_memory; /* anonymous and private */
};
int maps_open(void); /* descriptor for maps_walk() in this process, or -errno */
/* Calls fn for each mapping that overlaps s, in order, until it returns false. 0 or -errno. */
int maps_walk(int fd, struct span s, bool (*fn)(void *arg, const struct mapping *m), void *arg);
/* The same without PROCMAP_QUERY (kernels before 6.11). */
int maps_walk_text(int fd, struct span s, bool (*fn)(void *arg, const struct mapping *m),
		   void *arg);

/* ---------------------------------------------------------------- reg_watch.c: userfaultfd */

enum watch_kind {
	WATCH_UNMAPPED, /* unmapped, replaced or moved; it has happened */
	WATCH_DISCARDED, /* its pages are being discarded, now or at any later time */
};
struct watch_event {
	struct span at;
	enum watch_kind kind;
};

struct watch_line; /* the events for one cache */
/* NULL: the kernel does not report changes, *why says why. wake: posted after events. */
struct watch_line *watch_open(const char **why, sem_t *wake);
void watch_close(struct watch_line *l);
/* From now on the changes of these mappings are reported. 0 or -errno (other memory). */
int watch_add(struct span s);
/* True: all of s is private memory that has been watched since a watch_add() of it, unless an event
 * says otherwise. All pages must be present. */
bool watch_covers(int maps_fd, struct span s);
/* True: all changes up to now are in the lines. False: a change may be in progress. */
bool watch_is_idle(void);
enum watch_lost { /* bits: events that did not fit; they may be of any memory */
		  WATCH_LOST_UNMAPPED = 1,
		  WATCH_LOST_DISCARDED = 2,
};
/* The next event, and which were lost since the last call. One thread at a time. */
bool watch_next(struct watch_line *l, struct watch_event *e, unsigned *lost);

/* ---------------------------------------------------------------- reg_group.c: OGR */

struct group_piece {
	struct span at;
	uint32_t index; /* in the caller's list */
};
/* Sorts the pieces that have bytes into out[n], and sets *n_out. 0, or -EFAULT: an address is
 * beyond the address space. */
int group_sort(struct group_piece *out, const struct iovec *pieces, size_t n, size_t *n_out);
/* The end of the group that begins with p[0]: pieces whose pages are at most max_gap bytes apart.
 * *span: its pages. */
size_t group_next(const struct group_piece *p, size_t n, uint64_t max_gap, uint64_t max_len,
		  struct span *span);
uint64_t group_bytes(const struct group_piece *p, size_t n, uint64_t max_gap, uint64_t max_len);

/* ---------------------------------------------------------------- reg_costs.c */

/* T = page_ns * pages + call_ns, of a registration and its deregistration. */
struct reg_costs {
	double page_ns, call_ns;
	double query_ns; /* of finding the mappings of a range */
};
void costs_measure(struct reg_costs *c, const struct reg_ops *ops, void *device, int maps_fd);
/* Pages between two pieces that cost as much as a registration of its own. In bytes. */
uint64_t costs_max_gap(const struct reg_costs *c);

/* ---------------------------------------------------------------- reg_cache.c: the cache */

enum region_state {
	REGION_PENDING, /* being registered; events mark it stale */
	REGION_CACHED,
	REGION_PRIVATE, /* in no index: for the requests that use it now */
};
struct region {
	struct reg_memory m;
	struct span at;
	struct list link; /* on the LRU or the dead list */
	uint32_t uses;
	bool is_writable, is_stale;
	enum region_state state;
};

/* Regions by start. They may overlap: furthest[i] is the largest end of of[0..i]. */
struct region_index {
	struct region **of;
	uintptr_t *furthest;
	size_t n, room;
};

struct reg {
	const struct reg_ops *ops;
	void *device;
	pid_t pid; /* a forked child must not use it */
	size_t max_len; /* of a region */
	struct reg_costs costs;
	bool is_exact; /* REG_EXACT */
	int maps_fd;
	struct watch_line *line; /* NULL: no caching */
	const char *why_not;
	pthread_t sweeper;
	atomic_bool stop;
	sem_t wake; /* for the sweeper */

	pthread_mutex_t burying; /* held while dead regions are deregistered; taken before `lock` */
	pthread_mutex_t lock; /* of what follows */
	struct region_index index;
	struct list lru; /* cached and unused, the oldest first */
	struct list dead; /* to be deregistered */
	struct spans discarded; /* where pages may vanish at any time; never cached */
	struct reg_counts counts;
};

/* All with the lock held. */
/* Takes note of all events. False: a change may be in progress, so nothing in the cache is sure. */
bool cache_sync(struct reg *r);
struct region *cache_find(struct reg *r, struct span s, bool writable);
int cache_insert(struct reg *r, struct region *g); /* 0 or -ENOMEM */
void cache_remove(struct reg *r, struct region *g);
/* The region becomes findable; unused regions within it are of no use any more. */
void cache_publish(struct reg *r, struct region *g);
void cache_use(struct reg *r, struct region *g);
void cache_unuse(struct reg *r, struct region *g);
bool cache_evict(struct reg *r); /* moves the oldest to the dead list; false: there is none */
/* Deregisters what is on the dead list. Without the lock. */
void cache_bury(struct reg *r);
/* cache_sync() with the lock taken, after a few tries. */
bool cache_lock_synced(struct reg *r);

#endif
