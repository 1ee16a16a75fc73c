/* Directed scenarios: sizes of files whose data were lost. */
#include <fcntl.h>

#include "sim_scenario.h"

#define FAR 100000
#define LENGTH 1000

static const struct extent near_and_far[] = { { 0, LENGTH }, { FAR, LENGTH } };

static void write_extents(struct world *w, struct cfile *f, const struct extent *ext, size_t n)
{
	static char bytes[2 * LENGTH];
	struct iovec mem = { bytes, n * LENGTH };
	struct cop *c = scene_call(w, 0);
	int64_t r;

	memset(bytes, 1, sizeof(bytes));
	client_write(c, f, &mem, 1, ext, n);
	r = scene_end(w, c);
	scene_check(w, r == (int64_t)mem.iov_len, "a write is answered with %d", (int)r);
}

static uint64_t size_seen(struct world *w, uint32_t client, const char *path)
{
	struct cop *c = scene_call(w, client);
	uint64_t size;
	int64_t r;

	client_lookup(c, scene_root, path);
	r = scene_wait(w, c);
	size = c->attr.size;
	scene_check(w, !r, "stat %s: %d", path, (int)r);
	scene_end(w, c);
	return size;
}

static int64_t sync_file(struct world *w, struct cfile *f)
{
	struct cop *c = scene_call(w, 0);

	client_fsync(c, f);
	return scene_end(w, c);
}

/* ---- what was lost is no part of the size ---- */

static void lose_power(struct world *w)
{
	scene_down(w, 0, true);
	scene_up(w, 0);
	scene_pass(w, 5 * NSEC_PER_SEC);
}

/* Other clients have seen how small the file is after a power loss: no report of its writer makes it grow again. */
static void check_stays(struct world *w, struct cfile *f, int64_t expected)
{
	uint64_t before = size_seen(w, 1, "f"), after;
	int64_t r;

	if (before < FAR + LENGTH)
		scene_met(w);
	r = sync_file(w, f);
	scene_check(w, r == expected || r == 0, "fsync is answered with %d", (int)r);
	after = size_seen(w, 1, "f");
	scene_check(w, after == before, "fsync makes a file of %llu bytes %llu long",
		    (unsigned long long)before, (unsigned long long)after);
	scene_close(w, 0, f);
	scene_pass(w, 5 * NSEC_PER_SEC);
	after = size_seen(w, 1, "f");
	scene_check(w, after == before, "close makes a file of %llu bytes %llu long",
		    (unsigned long long)before, (unsigned long long)after);
}

static void lost_end_reported(struct world *w)
{
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);

	write_extents(w, f, near_and_far, 2);
	lose_power(w);
	check_stays(w, f, -EIO);
}

/* The writer notices the loss with its next write, which is shorter. */
static void lost_end_noticed(struct world *w)
{
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);

	write_extents(w, f, near_and_far, 2);
	lose_power(w);
	write_extents(w, f, near_and_far, 1);
	check_stays(w, f, -EIO);
}

/* An fsync failed, as did its report: the client does not notice that the power goes afterwards. */
static void lost_end_forgiven(struct world *w)
{
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	int64_t r;

	write_extents(w, f, near_and_far, 2);
	w->sim.faults.sync_eio = w->sim.faults.meta_eio = 1000000;
	r = sync_file(w, f);
	w->sim.faults.sync_eio = w->sim.faults.meta_eio = 0;
	scene_check(w, r == -EIO, "fsync with a bad disk is answered with %d", (int)r);
	lose_power(w);
	check_stays(w, f, 0);
}

const struct scenario scenes_data[] = {
	{ "lost-end-reported", lost_end_reported, 1, 1, 2, false },
	{ "lost-end-noticed", lost_end_noticed, 1, 1, 2, false },
	{ "lost-end-forgiven", lost_end_forgiven, 1, 1, 2, false },
	{ 0 },
};
