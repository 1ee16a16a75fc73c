/* Directed scenarios: a file is written under another name, closed and renamed over the old one, without an fsync, and a
 * server loses its power at some moment of that. The name has all of the old contents or all of the new ones. */
#include <fcntl.h>
#include <stdio.h>

#include "sim_scenario.h"

#define LENGTH 150000 /* three stripe units */
#define ROUNDS 12 /* in each seed: moments of the loss */
#define OLD 1 /* what the files are full of */
#define NEW 2

static const struct extent all = { 0, LENGTH };

struct replace {
	struct world *w;
	uint32_t victim;
	uint64_t loss_at; /* UINT64_MAX: later than everything */
	bool lost, in_time; /* it is over; before the rename was answered */
	bool keep_open; /* the file is closed after the rename, and the power goes between the two */
	char from[40], to[40];
};

/* ---- calls, while the power may go ---- */

static void lose_power(struct replace *r)
{
	r->lost = true;
	scene_down(r->w, r->victim, true);
	if (sim_chance(&r->w->sim, 300000))
		scene_pass(r->w, 2 * NSEC_PER_SEC);
	scene_up(r->w, r->victim);
}

struct due {
	const struct replace *r;
	const struct cop *c;
};

static bool is_due(void *arg)
{
	const struct due *d = arg;

	return d->c->finished || (!d->r->lost && d->r->w->sim.now >= d->r->loss_at);
}

/* As scene_wait(). */
static int64_t wait_for(struct replace *r, struct cop *c)
{
	struct due d = { r, c };

	while (!c->finished && scene_until(r->w, is_due, &d, "a call does not end"))
		if (!c->finished)
			lose_power(r);
	return scene_wait(r->w, c);
}

static int64_t end_of(struct replace *r, struct cop *c)
{
	int64_t e = wait_for(r, c);

	if (c->finished)
		cop_free(c);
	return e;
}

static struct cfile *open_new(struct replace *r, const char *path)
{
	struct cop *c = scene_call(r->w, 0);
	struct cfile *f;
	int64_t e;

	client_open(c, scene_root, path, O_CREAT | O_RDWR, 0644, NULL);
	e = wait_for(r, c);
	f = e ? NULL : c->file;
	scene_check(r->w, !e, "open %s: %d", path, (int)e);
	scene_end(r->w, c);
	return f;
}

static int64_t write_all(struct replace *r, struct cfile *f, int value)
{
	static char bytes[LENGTH];
	struct iovec mem = { bytes, LENGTH };
	struct cop *c = scene_call(r->w, 0);
	int64_t e;

	memset(bytes, value, sizeof(bytes));
	client_write(c, f, &mem, 1, &all, 1);
	e = end_of(r, c);
	scene_check(r->w, e == LENGTH, "write: %d", (int)e);
	return e;
}

static int64_t close_it(struct replace *r, struct cfile *f)
{
	struct cop *c = scene_call(r->w, 0);

	client_close(c, f);
	return end_of(r, c);
}

static int64_t rename_it(struct replace *r)
{
	struct cop *c = scene_call(r->w, 0);

	client_rename(c, scene_root, r->from, scene_root, r->to, 0);
	return end_of(r, c);
}

/* ---- one replacement ---- */

static void make_old(struct replace *r)
{
	struct cfile *f = open_new(r, r->to);
	struct cop *c;
	int64_t e;

	if (r->w->failed)
		return;
	write_all(r, f, OLD);
	c = scene_call(r->w, 0);
	client_fsync(c, f);
	e = end_of(r, c);
	scene_check(r->w, !e, "fsync: %d", (int)e);
	close_it(r, f);
}

/* 0, or what its program learned: then it does not rename. */
static int64_t replace(struct replace *r)
{
	struct cfile *f = open_new(r, r->from);
	int64_t e;

	if (r->w->failed)
		return -EIO;
	write_all(r, f, NEW);
	e = r->keep_open ? 0 : close_it(r, f);
	if (!e)
		e = rename_it(r);
	r->in_time = r->lost;
	if (r->keep_open) {
		lose_power(r);
		close_it(r, f);
	}
	return e;
}

/* OLD or NEW: all of it; 0: neither; or -errno. */
static int64_t contents(struct replace *r)
{
	static char bytes[LENGTH + 1], same[LENGTH];
	static const struct extent more = { 0, LENGTH + 1 };
	struct iovec mem = { bytes, sizeof(bytes) };
	struct cfile *f = scene_open(r->w, 1, r->to, O_RDONLY);
	struct cop *c;
	int64_t e;

	if (r->w->failed)
		return 0;
	c = scene_call(r->w, 1);
	memset(bytes, 0, sizeof(bytes));
	client_read(c, f, &mem, 1, &more, 1);
	e = scene_end(r->w, c);
	scene_close(r->w, 1, f);
	if (e < 0)
		return e;
	memset(same, bytes[0], sizeof(same));
	return e == LENGTH && !memcmp(bytes, same, LENGTH) ? bytes[0] : 0;
}

static void lose_all_power(struct world *w)
{
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		scene_down(w, i, true);
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		scene_up(w, i);
	scene_pass(w, 5 * NSEC_PER_SEC);
}

/* answer: of the replacement. */
static void judge(struct replace *r, int64_t answer, const char *when)
{
	int64_t is = contents(r);

	scene_check(r->w, is == OLD || is == NEW, "%s is damaged %s: %d (the replacement: %d)",
		    r->to, when, (int)is, (int)answer);
	scene_check(r->w, answer || is == NEW, "%s is the old one again %s", r->to, when);
}

static void drop_source(struct replace *r)
{
	struct cop *c = scene_call(r->w, 0);
	int64_t e;

	client_unlink(c, scene_root, r->from);
	e = scene_end(r->w, c);
	scene_check(r->w, !e || e == -ENOENT, "unlink %s: %d", r->from, (int)e);
}

/* The second round tells how long it takes (the first one waits for leases on names); the others lose the power at moments spread over that, and beyond. */
static void round_of(struct replace *r, int i, uint64_t *took)
{
	struct world *w = r->w;
	uint64_t begun;
	int64_t e;

	r->lost = r->in_time = false;
	r->loss_at = UINT64_MAX;
	make_old(r);
	begun = w->sim.now;
	if (i > 1 && !r->keep_open)
		r->loss_at = begun + *took * (uint64_t)(i - 1) / (ROUNDS - 3) +
			     sim_below(&w->sim, *took / ROUNDS + 1);
	e = replace(r);
	if (i < 2)
		*took = w->sim.now - begun;
	scene_check(w, !e || (e == -EIO && r->lost), "the replacement: %d", (int)e);
	if (r->in_time || r->keep_open)
		scene_met(w);
	scene_pass(w, NSEC_PER_SEC);
	judge(r, e, "after the loss");
	lose_all_power(w);
	judge(r, e, "after the power of all");
	drop_source(r);
}

static void rounds(struct replace *r, const char *from, const char *to)
{
	uint64_t took = 0;

	for (int i = 0; i < ROUNDS && !r->w->failed; i++) {
		snprintf(r->from, sizeof(r->from), "%s%d", from, i);
		snprintf(r->to, sizeof(r->to), "%s%d", to, i);
		round_of(r, i, &took);
	}
}

static void data_server_lost(struct world *w)
{
	struct replace r = { .w = w, .victim = 1 };

	rounds(&r, "tmp", "name");
}

static void meta_server_lost(struct world *w)
{
	struct replace r = { .w = w, .victim = 0 };

	rounds(&r, "tmp", "name");
}

/* Its names are kept by two servers. */
static void between_servers(struct world *w)
{
	struct replace r = { .w = w, .victim = (uint32_t)sim_below(&w->sim, 3) };
	char a[16], b[16], from[24], to[24];

	scene_dir_at(w, 0, 0, a);
	scene_dir_at(w, 0, 1, b);
	snprintf(from, sizeof(from), "%s/tmp", a);
	snprintf(to, sizeof(to), "%s/name", b);
	rounds(&r, from, to);
}

/* Both names are kept by one server, the inode of the new file by another: it was renamed before, while it was empty. */
static void inode_elsewhere(struct world *w)
{
	struct replace r = { .w = w, .victim = (uint32_t)sim_below(&w->sim, 3) };
	char a[16], b[16], from[24], to[24], empty[40];

	scene_dir_at(w, 0, 0, a);
	scene_dir_at(w, 0, 1, b);
	snprintf(empty, sizeof(empty), "%s/empty", a);
	snprintf(from, sizeof(from), "%s/tmp", b);
	snprintf(to, sizeof(to), "%s/name", b);
	for (int i = 0; i < ROUNDS && !w->failed; i++) {
		struct cop *c;
		char name[40];
		int64_t e;

		scene_close(w, 0, scene_open(w, 0, empty, O_CREAT | O_RDWR));
		snprintf(name, sizeof(name), "%s%d", from, i);
		c = scene_call(w, 0);
		client_rename(c, scene_root, empty, scene_root, name, 0);
		e = scene_end(w, c);
		scene_check(w, !e, "rename of the empty file: %d", (int)e);
	}
	rounds(&r, from, to);
}

/* Its writer has not closed it: what it has written when it is renamed is complete. What was lost before, its own fsync
 * and close tell. */
static void source_open(struct world *w)
{
	struct replace r = { .w = w, .victim = (uint32_t)sim_below(&w->sim, 2), .keep_open = true };

	rounds(&r, "tmp", "name");
}

/* Closed well before, and renamed when a server with its data has lost its power since. */
static void lost_before_rename(struct world *w)
{
	struct replace r = { .w = w, .victim = 1, .loss_at = UINT64_MAX };
	struct cfile *f;
	int64_t e;

	strcpy(r.from, "tmp");
	strcpy(r.to, "name");
	make_old(&r);
	f = open_new(&r, r.from);
	if (w->failed)
		return;
	write_all(&r, f, NEW);
	e = close_it(&r, f);
	scene_check(w, !e, "close: %d", (int)e);
	lose_power(&r);
	scene_pass(w, 5 * NSEC_PER_SEC);
	e = rename_it(&r);
	if (e == -EIO)
		scene_met(w);
	scene_check(w, e == -EIO, "rename of a file that lost data: %d", (int)e);
	scene_check(w, contents(&r) == OLD, "it took the place of the old one");
	e = rename_it(
		&r); /* that was told once, as by an fsync; what is missing is told each time */
	scene_check(w, !e || e == -EIO, "the second rename: %d", (int)e);
}

const struct scenario scenes_rename[] = {
	{ "replace-data-server", data_server_lost, 2, 1, 2, false },
	{ "replace-meta-server", meta_server_lost, 2, 1, 2, false },
	{ "replace-between-servers", between_servers, 3, 2, 2, false },
	{ "replace-inode-elsewhere", inode_elsewhere, 3, 2, 2, false },
	{ "replace-source-open", source_open, 2, 1, 2, false },
	{ "replace-lost-before", lost_before_rename, 2, 1, 2, false },
	{ 0 },
};
