/* Checkpoints that are written while the program changes its memory, and of changed pages alone:
 * what comes back is what was there when the checkpoint was taken, bit for bit. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "ckpt_ranks.h"
#include "cluster.h"

#define PAGE 4096
#define BIG (600 * PAGE)
#define ODD (37 * PAGE + 123)
#define WRITERS 2

static struct cluster c;

static void begin(void)
{
	const struct cluster_opts o = { .servers = 2, .timeout = 10, .lease = 3 };

	cluster_create(&c, &o);
	cluster_start(&c);
}

static void end(void)
{
	cluster_stop(&c);
}

/* ---- memory of all kinds ---- */

static char in_data[5 * PAGE + 17] = "data"; /* a mapping of a file */
static char in_bss[9 * PAGE];

struct memory {
	char *big, *odd, *strided;
	char small[100];
	struct sheaf_type *stride;
	char *copy; /* of all, as it was */
	size_t copy_bytes;
};

struct part {
	char *at;
	size_t n;
};

static int parts_of(struct memory *m, struct part p[6])
{
	p[0] = (struct part){ m->big, BIG };
	p[1] = (struct part){ m->odd, ODD };
	p[2] = (struct part){ m->strided, 300 * 1000 };
	p[3] = (struct part){ m->small, sizeof(m->small) };
	p[4] = (struct part){ in_data, sizeof(in_data) };
	p[5] = (struct part){ in_bss, sizeof(in_bss) };
	return 6;
}

static void memory_begin(struct memory *m, struct sheaf_ckpt *k)
{
	struct sheaf_type *t;
	struct part p[6];

	m->big = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m->odd = (char *)malloc(ODD + 100) + 3;
	m->strided = malloc(300 * 1000);
	CHECK_EQ(sheaf_type_bytes(700, &t), 0);
	CHECK_EQ(sheaf_type_resized(t, 0, 1000, &m->stride), 0);
	sheaf_type_free(t);
	CHECK_EQ(sheaf_ckpt_add(k, "big", m->big, NULL, BIG), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "odd", m->odd, NULL, ODD), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "strided", m->strided, m->stride, 300), 0);
	/* the last part of what is registered already: pages of two pieces */
	CHECK_EQ(sheaf_ckpt_add(k, "again", m->big + BIG - 5000, NULL, 5000), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "small", m->small, NULL, sizeof(m->small)), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "data", in_data, NULL, sizeof(in_data)), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "bss", in_bss, NULL, sizeof(in_bss)), 0);
	m->copy_bytes = 0;
	for (int i = 0; i < parts_of(m, p); i++)
		m->copy_bytes += p[i].n;
	m->copy = malloc(m->copy_bytes);
}

static void memory_end(struct memory *m)
{
	munmap(m->big, BIG);
	free(m->odd - 3);
	free(m->strided);
	free(m->copy);
	sheaf_type_free(m->stride);
}

static void remember(struct memory *m)
{
	struct part p[6];
	char *to = m->copy;

	for (int i = 0; i < parts_of(m, p); to += p[i++].n)
		memcpy(to, p[i].at, p[i].n);
}

static void compare(struct memory *m)
{
	struct part p[6];
	const char *was = m->copy;

	for (int i = 0; i < parts_of(m, p); was += p[i++].n)
		for (size_t k = 0; k < p[i].n; k++)
			if ((i != 2 || k % 1000 < 700) && p[i].at[k] != was[k]) {
				printf("part %d, byte %zu\n", i, k);
				CHECK_EQ(p[i].at[k], was[k]);
			}
}

/* Writes anywhere; `share` of 256 of the pages. */
static void scribble(struct memory *m, uint64_t *seed, unsigned share)
{
	struct part p[6];
	int n = parts_of(m, p);

	for (int i = 0; i < n; i++)
		for (size_t at = 0; at < p[i].n; at += PAGE)
			if (test_random(seed) % 256 < share) {
				size_t place = at + test_random(seed) % PAGE;

				p[i].at[MIN(place, p[i].n - 1)] = (char)test_random(seed);
			}
}

struct writer {
	struct memory *m;
	atomic_bool stop;
	uint64_t seed;
	unsigned long rounds;
};

static void *keep_writing(void *arg)
{
	struct writer *w = arg;

	while (!atomic_load(&w->stop)) {
		scribble(w->m, &w->seed, 60);
		w->rounds++;
		usleep(500);
	}
	return NULL;
}

/* May this process use it for any fault? */
static bool uffd_is_there(void)
{
	long fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd >= 0)
		close((int)fd);
	return fd >= 0;
}

struct how {
	uint32_t flags;
	uint64_t copy_bytes, rate;
	int rounds, writers;
};

static int job(const struct sheaf_ckpt_comm *comm, void *arg)
{
	const struct how *h = arg;
	const struct sheaf_ckpt_options o = { .size = sizeof(o),
					      .flags = h->flags,
					      .copy_bytes = h->copy_bytes,
					      .rate = h->rate,
					      .chain = 3 };
	struct sheaf *fs = client_connect(c.conf);
	uint64_t seed = 1 + (unsigned)comm->rank, number;
	struct sheaf_ckpt_cost cost = { .size = sizeof(cost) };
	struct sheaf_ckpt_info info[8];
	struct sheaf_ckpt *k;
	struct memory m;
	char name[32];

	snprintf(name, sizeof(name), "job%x-%d-%llu", h->flags, comm->n,
		 (unsigned long long)h->copy_bytes);
	CHECK_EQ(sheaf_ckpt_open(fs, name, comm, &o, &k), 0);
	memory_begin(&m, k);
	for (int i = 0; i < h->rounds; i++) {
		int takes = 1 + (int)(i % 6); /* the same in all processes */

		for (int t = 0; t < takes; t++) {
			struct writer w[WRITERS] = { { .m = &m } };
			pthread_t thread[WRITERS];

			scribble(&m, &seed, t ? 20 : 256);
			remember(&m);
			CHECK_EQ(sheaf_ckpt_take(k), 0);
			for (int j = 0; j < h->writers; j++) {
				w[j] = (struct writer){ .m = &m, .seed = seed + (unsigned)j };
				CHECK_EQ(pthread_create(&thread[j], NULL, keep_writing, &w[j]), 0);
			}
			CHECK_EQ(sheaf_ckpt_wait(k), 0);
			sheaf_ckpt_cost(k, &cost);
			for (int j = 0; j < h->writers; j++) {
				atomic_store(&w[j].stop, true);
				pthread_join(thread[j], NULL);
			}
		}
		CHECK(sheaf_ckpt_list(fs, NULL, name, info, 8) > 0);
		CHECK_EQ(info[0].since != 0,
			 (h->flags & SHEAF_CKPT_INCREMENTAL) && (takes - 1) % 4 != 0);
		scribble(&m, &seed, 256);
		CHECK_EQ(sheaf_ckpt_restore(k, &number), 0);
		CHECK_EQ(number, info[0].number);
		compare(&m);
	}
	if (h->flags & SHEAF_CKPT_FORK)
		CHECK_EQ(cost.copied_pages, 0);
	else if (h->flags & SHEAF_CKPT_MPROTECT)
		CHECK(cost.mprotect_bytes > BIG);
	else if (uffd_is_there())
		CHECK(cost.mprotect_bytes <= sizeof(in_data) + sizeof(in_bss));
	if (h->copy_bytes)
		CHECK(cost.waits > 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	scribble(&m, &seed, 256); /* nothing is protected any more */
	memory_end(&m);
	sheaf_disconnect(fs);
	return 0;
}

static void the_program_continues_while_it_is_written(void)
{
	struct how h = { .flags = SHEAF_CKPT_ASYNC, .rounds = 4, .writers = WRITERS };

	CHECK_EQ(ckpt_ranks_run(1, job, &h), 0);
	CHECK_EQ(ckpt_ranks_run(3, job, &h), 0);
	h.flags |= SHEAF_CKPT_MPROTECT;
	CHECK_EQ(ckpt_ranks_run(1, job, &h), 0);
	CHECK_EQ(ckpt_ranks_run(2, job, &h), 0);
}

static void memory_for_copies_is_bounded(void)
{
	struct how h = { .flags = SHEAF_CKPT_ASYNC,
			 .rounds = 1,
			 .writers = 1,
			 .copy_bytes = 16 * PAGE,
			 .rate = 2 * MIB };

	CHECK_EQ(ckpt_ranks_run(1, job, &h), 0);
	h.flags |= SHEAF_CKPT_MPROTECT;
	CHECK_EQ(ckpt_ranks_run(1, job, &h), 0);
}

static void only_changes_are_written(void)
{
	struct how h = { .flags = SHEAF_CKPT_INCREMENTAL, .rounds = 6 };

	CHECK_EQ(ckpt_ranks_run(1, job, &h), 0);
	CHECK_EQ(ckpt_ranks_run(3, job, &h), 0);
	h.flags |= SHEAF_CKPT_MPROTECT | SHEAF_CKPT_ONE_FILE;
	CHECK_EQ(ckpt_ranks_run(2, job, &h), 0);
}

static void only_changes_are_written_while_the_program_continues(void)
{
	struct how h = { .flags = SHEAF_CKPT_INCREMENTAL | SHEAF_CKPT_ASYNC, .rounds = 6 };

	CHECK_EQ(ckpt_ranks_run(1, job, &h), 0);
	h.flags |= SHEAF_CKPT_ONE_FILE;
	CHECK_EQ(ckpt_ranks_run(2, job, &h), 0);
	h.flags |= SHEAF_CKPT_MPROTECT;
	CHECK_EQ(ckpt_ranks_run(2, job, &h), 0);
}

/* ---- a forked child ---- */

/* A sanitizer of threads ends processes that forked with several. */
#ifdef __SANITIZE_THREAD__
#define MAY_FORK 0
#else
#define MAY_FORK 1
#endif

static bool may_fork(void)
{
	if (!MAY_FORK)
		puts("    left out: the sanitizer does not permit it");
	return MAY_FORK;
}

static void a_child_writes_what_was_there_at_the_fork(void)
{
	struct how h = { .flags = SHEAF_CKPT_FORK, .rounds = 3, .writers = WRITERS };

	if (!may_fork())
		return;
	CHECK_EQ(ckpt_ranks_run(1, job, &h), 0);
	CHECK_EQ(ckpt_ranks_run(3, job, &h), 0);
	h = (struct how){ .flags = SHEAF_CKPT_FORK | SHEAF_CKPT_INCREMENTAL, .rounds = 6 };
	CHECK_EQ(ckpt_ranks_run(2, job, &h), 0);
	h.flags |= SHEAF_CKPT_MPROTECT | SHEAF_CKPT_ONE_FILE;
	CHECK_EQ(ckpt_ranks_run(2, job, &h), 0);
}

/* A child that a thread of this process has forked, other than the first one; or 0. */
static pid_t child_of(pid_t parent)
{
	char path[64], text[64] = "";
	DIR *d;
	struct dirent *e;
	pid_t found = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)parent);
	d = opendir(path);
	while (d && !found && (e = readdir(d))) {
		FILE *f;

		if (atoi(e->d_name) == parent)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", (int)parent,
			 e->d_name);
		f = fopen(path, "re");
		if (f && fgets(text, sizeof(text), f))
			found = atoi(text);
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return found;
}

static char slow[4 * MIB];

/* The rate makes sure that the child is still there. */
static struct sheaf_ckpt *forked_job(struct sheaf *fs, const char *name, uint64_t rate)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o),
					      .flags = SHEAF_CKPT_FORK | SHEAF_CKPT_REFUSE,
					      .rate = rate };
	struct sheaf_ckpt *k;

	CHECK_EQ(sheaf_ckpt_open(fs, name, NULL, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "slow", slow, NULL, sizeof(slow)), 0);
	return k;
}

static void a_child_that_dies_is_a_failed_checkpoint(void)
{
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k = may_fork() ? forked_job(fs, "dies", 64 * KIB) : NULL;
	pid_t child;

	if (!k)
		return sheaf_disconnect(fs);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	CHECK_EQ(sheaf_ckpt_take(k), -EBUSY);
	child = child_of(getpid());
	CHECK(child > 0);
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(sheaf_ckpt_wait(k), -EIO);
	CHECK(strstr(sheaf_ckpt_why(), "the forked child was ended by signal 9"));
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	k = forked_job(fs, "dies", 0);
	CHECK_EQ(sheaf_ckpt_restore(k, NULL), -ENOENT);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0); /* waits for it */
	k = forked_job(fs, "dies", 0);
	CHECK_EQ(sheaf_ckpt_restore(k, NULL), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
}

struct pids {
	atomic_int parent, child;
};

static int begins_and_goes(const struct sheaf_ckpt_comm *comm, void *arg)
{
	struct pids *p = arg;
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k = forked_job(fs, "goes", 64 * KIB);

	(void)comm;
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	atomic_store(&p->child, child_of(getpid()));
	atomic_store(&p->parent, getpid());
	return 0; /* without sheaf_ckpt_close() */
}

static bool is_running(pid_t pid)
{
	char path[64], state = 'Z';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = '?';
	if (f)
		fclose(f);
	return state != 'Z';
}

static void a_child_ends_with_its_parent(void)
{
	struct pids *p =
		mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sheaf_ckpt_info info[4];
	struct sheaf *fs;

	if (!may_fork())
		return;
	CHECK_EQ(ckpt_ranks_run(1, begins_and_goes, p), 0);
	CHECK(p->child > 0);
	CHECK(WITHIN(PATIENCE_S, !is_running(p->child)));
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_ckpt_list(fs, NULL, "goes", info, 4), 1);
	CHECK_EQ(info[0].complete, 0);
	sheaf_disconnect(fs);
	munmap(p, sizeof(*p));
}

static void memory_that_a_fork_shares_is_refused(void)
{
	char *shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k = forked_job(fs, "shared", 0);

	CHECK_EQ(sheaf_ckpt_add(k, "shared", shared + 100, NULL, 5000), 0);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	CHECK_EQ(sheaf_ckpt_wait(k), -EOPNOTSUPP);
	CHECK(strstr(sheaf_ckpt_why(), "is shared with other processes"));
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
	munmap(shared, MIB);
}

/* A write of another process causes no fault here: old bytes would pass for what is there. */
static void shared_memory_is_not_tracked(void)
{
	static const uint32_t flags[] = { SHEAF_CKPT_ASYNC, SHEAF_CKPT_INCREMENTAL,
					  SHEAF_CKPT_ASYNC | SHEAF_CKPT_MPROTECT };
	char *shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;

	for (size_t i = 0; i <= ARRAY_LEN(flags); i++) {
		bool tracks = i < ARRAY_LEN(flags);
		const struct sheaf_ckpt_options o = { .size = sizeof(o),
						      .flags = tracks ? flags[i] : 0 };

		CHECK_EQ(sheaf_ckpt_open(fs, "window", NULL, &o, &k), 0);
		CHECK_EQ(sheaf_ckpt_add(k, "window", shared + 100, NULL, 9000), 0);
		CHECK_EQ(sheaf_ckpt_take(k), tracks ? -EOPNOTSUPP : 0);
		CHECK_EQ(sheaf_ckpt_close(k), 0);
	}
	sheaf_disconnect(fs);
	munmap(shared, MIB);
}

/* ---- one at a time ---- */

static char field[MIB];

static void a_second_one_waits_or_is_refused(void)
{
	struct sheaf_ckpt_options o = { .size = sizeof(o),
					.flags = SHEAF_CKPT_ASYNC | SHEAF_CKPT_REFUSE,
					.signal_now = SIGUSR1,
					.rate = MIB / 2 };
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;

	CHECK_EQ(sheaf_ckpt_open(fs, "second", NULL, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "field", field, NULL, sizeof(field)), 0);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	CHECK_EQ(sheaf_ckpt_take(k), -EBUSY);
	CHECK_EQ(sheaf_ckpt_wait(k), 0);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	raise(SIGUSR1);
	CHECK_EQ(sheaf_ckpt_poll(k), 0); /* not now */
	CHECK(WITHIN(PATIENCE_S, sheaf_ckpt_poll(k) == 1));
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	o.flags = SHEAF_CKPT_ASYNC;
	CHECK_EQ(sheaf_ckpt_open(fs, "second", NULL, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "field", field, NULL, sizeof(field)), 0);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
}

/* ---- triggers ---- */

static int polls(const struct sheaf_ckpt_comm *comm, void *arg)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o),
					      .signal_now = SIGUSR1,
					      .signal_end = SIGUSR2 };
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;
	int taken = 0, r;

	(void)arg;
	CHECK_EQ(sheaf_ckpt_open(fs, "polls", comm, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "field", field, NULL, 1000), 0);
	CHECK_EQ(sheaf_ckpt_poll(k), 0);
	if (comm->rank == 1)
		raise(SIGUSR1);
	CHECK_EQ(sheaf_ckpt_poll(k), 1);
	CHECK_EQ(sheaf_ckpt_poll(k), 0);
	if (!comm->rank)
		CHECK_EQ(sheaf_ckpt_now(fs, NULL, "polls"), 0);
	for (int i = 0; i < 1000 && !taken; i++) {
		r = sheaf_ckpt_poll(k);
		CHECK(r >= 0);
		taken += r;
		pause_ms(10);
	}
	CHECK_EQ(taken, 1);
	CHECK_EQ(sheaf_ckpt_ending(k), 0);
	if (comm->rank == 2)
		raise(SIGUSR2);
	CHECK_EQ(sheaf_ckpt_poll(k), 1);
	CHECK_EQ(sheaf_ckpt_ending(k), 1);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
	return 0;
}

static void signals_and_requests_reach_all_processes(void)
{
	CHECK_EQ(ckpt_ranks_run(3, polls, NULL), 0);
}

static int by_time(const struct sheaf_ckpt_comm *comm, void *arg)
{
	struct sheaf_ckpt_options o = { .size = sizeof(o),
					.interval_s = SHEAF_CKPT_BEST,
					.flags = *(uint32_t *)arg };
	struct sheaf_ckpt_cost cost = { .size = sizeof(cost) };
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;
	int taken = 0;

	CHECK_EQ(sheaf_ckpt_open(fs, "time", comm, &o, &k), -EINVAL);
	o.mtbf_s = 0.5; /* failures that often need one soon */
	CHECK_EQ(sheaf_ckpt_open(fs, "time", comm, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "field", field, NULL, 1000), 0);
	CHECK_EQ(sheaf_ckpt_poll(k), 1); /* the first one is measured */
	for (int i = 0; i < 2000 && taken < 2; i++) {
		int r = sheaf_ckpt_poll(k);

		CHECK(r >= 0);
		taken += r;
		pause_ms(10);
	}
	CHECK_EQ(taken, 2);
	sheaf_ckpt_cost(k, &cost);
	if (!comm->rank)
		CHECK(cost.interval_s > 0 && cost.interval_s < 30);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
	return 0;
}

static void the_best_interval_comes_from_the_measured_cost(void)
{
	for (uint32_t flags = 0; flags <= SHEAF_CKPT_ASYNC; flags++)
		CHECK_EQ(ckpt_ranks_run(2, by_time, &flags), 0);
}

/* ---- timeouts and failures ---- */

static atomic_int *gave_up; /* in shared memory */

/* Process 0 comes when process 1 has given up: then it alone waits for data. */
static int comes_too_late(const struct sheaf_ckpt_comm *comm, void *arg)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o),
					      .flags = *(uint32_t *)arg,
					      .timeout_ms = 100 };
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;
	int r;

	CHECK(WITHIN(PATIENCE_S, sheaf_ckpt_open(fs, "later", comm, &o, &k) == 0));
	CHECK_EQ(sheaf_ckpt_add(k, "field", field, NULL, 1000), 0);
	if (comm->rank) {
		CHECK_EQ(sheaf_ckpt_take(k), -ETIMEDOUT);
		atomic_store(gave_up, 1);
	} else {
		CHECK(WITHIN(PATIENCE_S, atomic_load(gave_up)));
		r = sheaf_ckpt_take(k);
		CHECK(r == 0 || r == -ETIMEDOUT);
	}
	CHECK_EQ(sheaf_ckpt_wait(k), -ETIMEDOUT);
	CHECK(WITHIN(PATIENCE_S, sheaf_ckpt_take(k) == 0 && sheaf_ckpt_wait(k) == 0));
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
	return 0;
}

static void processes_meet_again_after_one_gave_up(void)
{
	uint32_t flags = SHEAF_CKPT_ASYNC;

	gave_up = mmap(NULL, sizeof(*gave_up), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	CHECK_EQ(ckpt_ranks_run(2, comes_too_late, &flags), 0);
	munmap(gave_up, sizeof(*gave_up));
}

/* The directory of the job is gone for a moment: what was asked for is taken later. */
static void a_request_that_failed_is_tried_again(void)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o), .signal_now = SIGUSR1 };
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;

	CHECK_EQ(sheaf_ckpt_open(fs, "again", NULL, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "field", field, NULL, 1000), 0);
	CHECK_EQ(sheaf_rename(fs, "/ckpt/again", "/ckpt/elsewhere"), 0);
	raise(SIGUSR1);
	CHECK(sheaf_ckpt_poll(k) < 0);
	CHECK_EQ(sheaf_rename(fs, "/ckpt/elsewhere", "/ckpt/again"), 0);
	CHECK(WITHIN(PATIENCE_S, sheaf_ckpt_poll(k) == 1));
	CHECK_EQ(sheaf_ckpt_poll(k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
}

SYS_MAIN(NULL, begin, end, TEST(the_program_continues_while_it_is_written),
	 TEST(memory_for_copies_is_bounded), TEST(only_changes_are_written),
	 TEST(only_changes_are_written_while_the_program_continues),
	 TEST(a_child_writes_what_was_there_at_the_fork),
	 TEST(a_child_that_dies_is_a_failed_checkpoint), TEST(a_child_ends_with_its_parent),
	 TEST(memory_that_a_fork_shares_is_refused), TEST(shared_memory_is_not_tracked),
	 TEST(a_second_one_waits_or_is_refused), TEST(signals_and_requests_reach_all_processes),
	 TEST(the_best_interval_comes_from_the_measured_cost),
	 TEST(processes_meet_again_after_one_gave_up), TEST(a_request_that_failed_is_tried_again))
