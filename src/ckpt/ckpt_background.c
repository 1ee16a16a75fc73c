/* A checkpoint that is written while the program continues. Each process has a thread that writes
 * its image (or a forked child does: ckpt_fork.c) and then a record into the file `parts` of the
 * checkpoint; the thread of process 0 waits for the records of all and makes the checkpoint
 * complete. So the threads need no messages of the program's processes (an MPI library may not
 * permit threads).
 *
 * Threads: one per process and checkpoint. The program's thread joins it before it uses anything
 * that belongs to checkpoints again. Errors: as results of ckpt_background_join(). */
#include <fcntl.h>
#include <inttypes.h>
#include <semaphore.h>
#include <time.h>

#include "ckpt/ckpt_impl.h"

#define RECORD 512 /* bytes of a record in `parts` */
#define READY UINT32_C(0x72656164)
#define POLL_MS_MOST 50
#define TRIES 10

struct record {
	uint32_t ready, sum; /* of `done` */
	struct ckpt_done done;
};
_Static_assert(sizeof(struct record) <= RECORD, "a record is too long");

struct ckpt_background {
	struct sheaf_ckpt *c;
	pthread_t thread;
	bool has_thread;
	atomic_bool ended;
	sem_t may_change; /* the memory, as far as this thread is concerned */
	struct ckpt_plan plan;
	struct ckpt_run *runs;
	size_t n_runs;
	uint64_t bytes, begun;
	double total_s;
	int status; /* process 0: of all, else of this one */
	char why[CKPT_WHY];
};

static void parts_path(const struct ckpt_background *b, char out[CKPT_PATH])
{
	ckpt_store_path(&b->c->store, b->plan.number, "parts", out);
}

static void explain(struct ckpt_background *b, int status)
{
	b->status = status;
	snprintf(b->why, sizeof(b->why), "%s", status ? sheaf_ckpt_why() : "");
}

/* ---- what this process writes ---- */

static int publish_once(struct ckpt_background *b, const struct ckpt_done *done)
{
	struct record v = { .ready = READY, .done = *done };
	char path[CKPT_PATH], text[RECORD] = "";
	struct sheaf_file *f;
	ssize_t put;
	int r, end;

	v.sum = crc32c(0, &v.done, sizeof(v.done));
	memcpy(text, &v, sizeof(v));
	parts_path(b, path);
	r = sheaf_open(b->c->fs, path, O_WRONLY, 0, NULL, &f);
	if (r)
		return ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	put = sheaf_pwrite(f, text, RECORD, (off_t)b->c->x.comm.rank * RECORD);
	r = put < 0 ? (int)put : sheaf_fsync(f);
	end = sheaf_close(f);
	r = r ? r : end;
	return r ? ckpt_fail(r, "%s: %s", path, sheaf_strerror(r)) : 0;
}

/* A server that restarts may lose the record: without it process 0 would wait for long. */
static int publish(struct ckpt_background *b, const struct ckpt_done *done)
{
	const struct timespec nap = { .tv_nsec = 200 * (long)NSEC_PER_MSEC };
	int r = publish_once(b, done);

	for (int i = 1; r && i < TRIES; i++) {
		nanosleep(&nap, NULL);
		r = publish_once(b, done);
	}
	return r;
}

/* ---- process 0 ---- */

/* Reads the records that are missing; how many are. */
static int look(const struct ckpt_background *b, struct sheaf_file *f, struct ckpt_done *all,
		bool *there)
{
	int n = b->c->x.comm.n, missing = 0;

	for (int i = 0; i < n; i++) {
		struct record v;

		if (there[i])
			continue;
		there[i] = sheaf_pread(f, &v, sizeof(v), (off_t)i * RECORD) == sizeof(v) &&
			   v.ready == READY && v.sum == crc32c(0, &v.done, sizeof(v.done));
		if (there[i])
			all[i] = v.done;
		missing += !there[i];
	}
	return missing;
}

/* Waits for the records of all; the time starts anew with each. */
static int wait_for_parts(const struct ckpt_background *b, struct sheaf_file *f,
			  struct ckpt_done *all, bool *there)
{
	uint64_t limit = b->c->o.timeout_ms * NSEC_PER_MSEC * CKPT_WRITING, since = time_now();
	int missing = look(b, f, all, there), ms = 1;

	while (missing) {
		const struct timespec nap = { .tv_nsec = ms * (long)NSEC_PER_MSEC };
		int before = missing;

		if (time_now() - since > limit)
			break;
		nanosleep(&nap, NULL);
		ms = MIN(2 * ms, POLL_MS_MOST);
		missing = look(b, f, all, there);
		if (missing < before)
			since = time_now();
	}
	for (int i = 0; missing && i < b->c->x.comm.n; i++)
		if (!there[i])
			return ckpt_fail(
				-ETIMEDOUT,
				"%d processes, process %d among them, have not written their "
				"images within %.0f s",
				missing, i, (double)limit / 1e9);
	return 0;
}

static int collect(struct ckpt_background *b, const struct ckpt_done *mine)
{
	size_t n = (size_t)b->c->x.comm.n;
	struct ckpt_done *all = calloc(n, sizeof(*all));
	bool *there = calloc(n, sizeof(*there));
	struct sheaf_file *f = NULL;
	char path[CKPT_PATH];
	int r = all && there ? 0 : ckpt_fail(-ENOMEM, "out of memory");

	parts_path(b, path);
	if (!r && n > 1) {
		r = sheaf_open(b->c->fs, path, O_RDONLY, 0, NULL, &f);
		if (r)
			ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	}
	if (!r) {
		all[0] = *mine;
		there[0] = true;
		r = n > 1 ? wait_for_parts(b, f, all, there) : 0;
	}
	if (f)
		sheaf_close(f);
	if (r) {
		explain(b, r);
		ckpt_store_drop(&b->c->store, b->plan.number);
		ckpt_fail(r, "%s", b->why);
	} else {
		r = ckpt_finish(b->c, &b->plan, all, (double)(time_now() - b->begun) / 1e9);
	}
	free(all);
	free(there);
	return r;
}

static int write_mine(struct ckpt_background *b, struct ckpt_image *image)
{
	struct sheaf_ckpt *c = b->c;
	struct ckpt_child *child;
	int r;

	if (ckpt_copies(c)) {
		sem_post(&b->may_change);
		r = ckpt_write(c, &b->plan, b->runs, b->n_runs, true, image);
		explain(b, r);
		ckpt_track_end(c->track, c->o.flags & SHEAF_CKPT_INCREMENTAL);
		return r;
	}
	r = ckpt_child_start(c, &b->plan, b->runs, b->n_runs, &child);
	sem_post(&b->may_change);
	if (!r)
		r = ckpt_child_wait(child, image);
	explain(b, r);
	return r;
}

static void *run(void *arg)
{
	struct ckpt_background *b = arg;
	struct sheaf_ckpt *c = b->c;
	struct ckpt_done mine = { .status = b->status };

	if (!mine.status)
		mine.status = write_mine(b, &mine.image);
	else
		sem_post(&b->may_change);
	snprintf(mine.why, sizeof(mine.why), "%s", b->why);
	if (!c->x.comm.rank)
		explain(b, collect(b, &mine));
	else if (publish(b, &mine) && !b->status)
		explain(b, -EIO);
	b->total_s = (double)(time_now() - b->begun) / 1e9;
	atomic_store(&b->ended, true);
	return NULL;
}

/* ---- the program's thread ---- */

void ckpt_background_start(struct sheaf_ckpt *c, const struct ckpt_plan *p, struct ckpt_run *runs,
			   size_t n, uint64_t bytes, int status, uint64_t begun)
{
	struct ckpt_background *b = calloc(1, sizeof(*b));

	if (!b) { /* process 0 does not hear of this one */
		if (c->track)
			ckpt_track_end(c->track, false);
		c->baseline = 0;
		c->is_pending = true;
		c->result = -ENOMEM;
		snprintf(c->result_why, sizeof(c->result_why), "out of memory");
		free(runs);
		return;
	}
	b->c = c;
	b->plan = *p;
	b->runs = runs;
	b->n_runs = n;
	b->bytes = bytes;
	b->begun = begun;
	explain(b, status);
	c->back = b;
	c->is_pending = true;
	sem_init(&b->may_change, 0, 0);
	b->has_thread = ckpt_thread_start(&b->thread, run, b) == 0;
	if (!b->has_thread)
		run(b); /* then the program waits */
	while (sem_wait(&b->may_change)) /* EINTR */
		;
}

bool ckpt_background_is_busy(const struct sheaf_ckpt *c)
{
	return c->back && !atomic_load(&c->back->ended);
}

int ckpt_background_join(struct sheaf_ckpt *c)
{
	struct ckpt_background *b = c->back;

	if (b) {
		if (b->has_thread)
			pthread_join(b->thread, NULL);
		c->back = NULL;
		c->result = b->status;
		snprintf(c->result_why, sizeof(c->result_why), "%s", b->why);
		c->cost.number = b->status ? 0 : b->plan.number;
		c->cost.total_s = b->total_s;
		c->cost.bytes = b->bytes;
		if (c->track)
			ckpt_track_cost(c->track, &c->cost);
		if (b->status && !c->x.comm.rank)
			ckpt_say(c, "checkpoint %" PRIu64 " is not complete: %s", b->plan.number,
				 b->why);
		sem_destroy(&b->may_change);
		free(b->runs);
		free(b);
	}
	return c->result ? ckpt_fail(c->result, "%s", c->result_why) : 0;
}
