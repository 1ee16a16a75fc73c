/* Images by libsheaf-ckpt: the arrays are parts of global ones, so another number of processes can
 * continue. Compared with one new file for each process, written and read by plain calls. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "blocktri.h"

static struct sheaf *fs;
static struct sheaf_ckpt *ckpt;

static void ckpt_must(const char *what, int r)
{
	if (r < 0)
		fail(what, sheaf_ckpt_why());
}

static void register_array(struct grid *g, int i)
{
	uint64_t n = (uint64_t)g->n, sizes[] = { n, n * n * UNKNOWNS };
	uint64_t part[] = { (uint64_t)g->planes, sizes[1] }, starts[] = { (uint64_t)g->first, 0 };
	struct sheaf_type *number, *where;

	must("type", sheaf_type_bytes(sizeof(double), &number));
	must("type", sheaf_type_subarray(2, sizes, part, starts, number, &where));
	ckpt_must(array_names[i],
		  sheaf_ckpt_add_global(ckpt, array_names[i], g->array[i], NULL, g->bytes, where));
	sheaf_type_free(number);
	sheaf_type_free(where);
}

static void register_all(struct grid *g)
{
	struct sheaf_type *all;

	must("type", sheaf_type_bytes(sizeof(g->step), &all));
	ckpt_must("step",
		  sheaf_ckpt_add_global(ckpt, "step", &g->step, NULL, sizeof(g->step), all));
	sheaf_type_free(all);
	for (int i = 0; i < ARRAYS; i++)
		register_array(g, i);
}

static void open_job(struct images *m)
{
	const struct options *o = m->o;
	struct sheaf_ckpt_options c = { .size = sizeof(c),
					.keep = o->remove > 0,
					.rate = (uint64_t)o->rate,
					.chain = (uint32_t)o->chain,
					.timeout_ms = (uint32_t)(o->timeout * 1000) };
	int r;

	c.flags = (o->async > 0 ? SHEAF_CKPT_ASYNC : 0) |
		  (o->incremental > 0 ? SHEAF_CKPT_INCREMENTAL : 0);
	if (sheaf_connect(NULL, &fs))
		fail("connect", sheaf_why());
	ckpt_must("begin a job", ranks_open(fs, o->job, &c, &ckpt));
	register_all(m->g);
	r = sheaf_ckpt_restore(ckpt, &m->restored);
	if (r == -ENOENT)
		grid_begin(m->g);
	else
		ckpt_must("restore", r);
}

/* Which modes the last checkpoint shows at work. */
static void look_back(struct images *m)
{
	struct sheaf_ckpt_cost c = { .size = sizeof(c) };
	struct sheaf_ckpt_info info = { .size = sizeof(info) };

	sheaf_ckpt_cost(ckpt, &c);
	m->overlapped |= c.total_s > c.blocked_s;
	if (!rank && sheaf_ckpt_list(fs, NULL, m->o->job, &info, 1) > 0)
		m->depend += info.since != 0;
}

static void take(struct images *m, double *bytes)
{
	struct sheaf_ckpt_cost c = { .size = sizeof(c) };

	(void)m;
	ckpt_must("take a checkpoint", sheaf_ckpt_take(ckpt));
	sheaf_ckpt_cost(ckpt, &c);
	*bytes = (double)c.bytes;
}

static void finish(struct images *m)
{
	ckpt_must("complete a checkpoint", sheaf_ckpt_wait(ckpt));
	look_back(m);
}

static void restore(struct images *m)
{
	(void)m;
	ckpt_must("restore", sheaf_ckpt_restore(ckpt, NULL));
}

/* ---- plain calls ---- */

static const char *raw_path(const struct images *m, char path[256])
{
	snprintf(path, 256, "/ckpt/%.128s.raw.%d", m->o->job, rank);
	return path;
}

static void whole(const char *what, ssize_t moved, size_t want)
{
	must(what, moved < 0 ? moved : (size_t)moved < want ? -EIO : 0);
}

static void raw_write(struct images *m)
{
	struct grid *g = m->g;
	struct sheaf_file *f;
	char path[256];

	must("create",
	     sheaf_open(fs, raw_path(m, path), O_WRONLY | O_CREAT | O_EXCL, 0600, NULL, &f));
	for (int i = 0; i < ARRAYS; i++)
		whole("write", sheaf_pwrite(f, g->array[i], g->bytes, (off_t)g->bytes * i),
		      g->bytes);
	must("fsync", sheaf_fsync(f));
	must("close", sheaf_close(f));
}

static void raw_read(struct images *m)
{
	struct grid *g = m->g;
	struct sheaf_file *f;
	char path[256];

	must("open", sheaf_open(fs, raw_path(m, path), O_RDONLY, 0, NULL, &f));
	for (int i = 0; i < ARRAYS; i++)
		whole("read", sheaf_pread(f, g->array[i], g->bytes, (off_t)g->bytes * i), g->bytes);
	must("close", sheaf_close(f));
}

static void raw_drop(struct images *m)
{
	char path[256];

	must("remove", sheaf_unlink(fs, raw_path(m, path)));
}

/* The newest first: others depend on older ones. */
static void remove_all(const char *job)
{
	struct sheaf_ckpt_info info = { .size = sizeof(info) };

	while (sheaf_ckpt_list(fs, NULL, job, &info, 1) > 0)
		ckpt_must("remove a checkpoint", sheaf_ckpt_remove(fs, NULL, job, info.number));
}

static void close_job(struct images *m)
{
	ckpt_must("end the job", sheaf_ckpt_close(ckpt));
	if (m->o->remove > 0 && !rank)
		remove_all(m->o->job);
	sheaf_disconnect(fs);
}

const struct way way_sheaf = { .open = open_job,
			       .take = take,
			       .finish = finish,
			       .raw_write = raw_write,
			       .raw_drop = raw_drop,
			       .raw_read = raw_read,
			       .restore = restore,
			       .close = close_job };
