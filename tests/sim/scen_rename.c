/* Directed scenarios: a file is written under another name, closed and renamed over the old one,
 * without an fsync, and a server loses power at some moment. The name must have all of the old
 * contents or all of the new ones. */
#include <fcntl.h>
#include <stdio.h>

#include "sim_scenario.h"

#define LENGTH 150000 /* three stripe units */
#define ROUNDS 12 /* per seed, each with the power loss at another time */
#define OLD 1 /* value of every byte of the old file */
#define NEW 2

static const struct extent all = { 0, LENGTH };

struct replace {
	struct world *w;
	uint32_t victim;
	uint64_t loss_at; /* time of the power loss; UINT64_MAX: none during the calls */
	bool lost, in_time; /* the power loss has happened; ... before the rename was answered */
	bool keep_open; /* close the file only after the rename, and the power loss after that */
	char from[40], to[40];
};

/* ---- calls during which the power may fail ---- */

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

/* Like scene_wait(), with the power loss at r->loss_at. */
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

/* Returns 0, or the error that the program gets; after an error of the close it does not rename. */
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

/* OLD or NEW: all bytes; 0: something else; or -errno. */
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

/* answer: the result of the replacement. */
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

/* The second round measures the duration (the first one waits for leases on names). In later
 * rounds the power fails at times spread over this duration and a little beyond. */
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

/* Two servers keep the names. */
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

/* One server keeps both names, another the inode of the new file, which was renamed there while
 * it was empty. */
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

/* The writer has not closed the file: what it has written before the rename must be complete.
 * Its own fsync and close report earlier losses. */
static void source_open(struct world *w)
{
	struct replace r = { .w = w, .victim = (uint32_t)sim_below(&w->sim, 2), .keep_open = true };

	rounds(&r, "tmp", "name");
}

/* ---- losses and syncs between the close and the rename ---- */

/* Gives the metadata server links to the other targets, which it needs to fence. */
static void meet_servers(struct world *w)
{
	struct cfile *f = scene_open(w, 0, "met", O_CREAT | O_RDWR);
	struct cop *c;

	if (w->failed)
		return;
	c = scene_call(w, 0);
	client_ftruncate(c, f, 1);
	scene_end(w, c);
	scene_close(w, 0, f);
}

static struct replace begin_new(struct world *w, struct cfile **f)
{
	struct replace r = {
		.w = w, .victim = 1, .loss_at = UINT64_MAX, .from = "tmp", .to = "name"
	};

	meet_servers(w);
	make_old(&r);
	*f = open_new(&r, r.from);
	return r;
}

/* The file is closed: a power loss, then the rename. kept: nothing was unsynced, so it must
 * succeed. */
static void end_new(struct replace *r, bool kept)
{
	int64_t e;

	lose_power(r);
	scene_pass(r->w, 5 * NSEC_PER_SEC);
	e = rename_it(r);
	scene_check(r->w, !kept || !e, "rename: %d", (int)e);
	judge(r, e, "after the rename");
	scene_met(r->w);
}

/* Makes the old file, and the new one under another name, closed without an fsync. */
static struct replace left_unsynced(struct world *w)
{
	struct cfile *f;
	struct replace r = begin_new(w, &f);
	int64_t e;

	if (w->failed)
		return r;
	write_all(&r, f, NEW);
	e = close_it(&r, f);
	scene_check(w, !e, "close: %d", (int)e);
	return r;
}

static uint64_t change_seen(struct world *w, const char *path)
{
	struct cop *c = scene_call(w, 1);
	uint64_t change;
	int64_t e;

	client_open(c, scene_root, path, O_RDONLY, 0, NULL);
	e = scene_wait(w, c);
	scene_check(w, !e, "open %s: %d", path, (int)e);
	change = e ? 0 : c->res.open.at.change;
	if (!e)
		scene_close(w, 1, c->file);
	scene_end(w, c);
	return change;
}

/* A server lost power since the file was written: the rename must be refused, even after the
 * remaining data were flushed. */
static void lost_before_rename(struct world *w)
{
	struct replace r = left_unsynced(w),
		       other = { .w = w, .loss_at = UINT64_MAX, .to = "other" };
	int64_t e;

	lose_power(&r);
	scene_pass(w, 5 * NSEC_PER_SEC);
	for (int i = 0; i < 3 && !w->failed; i++) {
		e = rename_it(&r);
		if (e == -EIO)
			scene_met(w);
		scene_check(w, e == -EIO, "rename %d of a file that lost data: %d", i, (int)e);
		scene_check(w, contents(&r) == OLD, "it took the place of the old one");
		make_old(&other);
		scene_pass(w, 70 * NSEC_PER_SEC);
	}
}

/* ... and DURABLE comes after the flush. The lost data had overwritten data on disk, so no
 * object is too short. */
static void lost_then_flushed(struct world *w)
{
	struct replace other = { .w = w, .loss_at = UINT64_MAX, .to = "other" };
	struct cfile *f;
	struct replace r = begin_new(w, &f);
	struct cop *c;
	int64_t e;

	if (w->failed)
		return;
	write_all(&r, f, OLD);
	c = scene_call(w, 0);
	client_fsync(c, f);
	scene_end(w, c);
	write_all(&r, f, NEW);
	close_it(&r, f);
	lose_power(&r);
	for (int i = 0; i < 2; i++) {
		make_old(&other);
		scene_pass(w, 70 * NSEC_PER_SEC);
	}
	e = rename_it(&r);
	if (e == -EIO)
		scene_met(w);
	scene_check(w, e == -EIO, "rename of a file that lost data: %d", (int)e);
}

/* The loss changes `change` when the file is opened, once. */
static void loss_shows_in_change(struct world *w)
{
	struct replace r = left_unsynced(w);
	uint64_t before = change_seen(w, r.from), after;

	lose_power(&r);
	scene_pass(w, 5 * NSEC_PER_SEC);
	after = change_seen(w, r.from);
	scene_check(w, after > before, "change is %llu as before the loss",
		    (unsigned long long)after);
	scene_check(w, change_seen(w, r.from) == after, "change grows without a change");
	scene_met(w);
}

/* A killed server has lost nothing: neither `change` nor the rename may show a loss. */
static void killed_before_rename(struct world *w)
{
	struct replace r = left_unsynced(w);
	uint64_t before = change_seen(w, r.from);
	int64_t e;

	scene_down(w, r.victim, false);
	scene_up(w, r.victim);
	scene_pass(w, 5 * NSEC_PER_SEC);
	scene_check(w, change_seen(w, r.from) == before, "change grows without a change");
	e = rename_it(&r);
	scene_check(w, !e, "rename: %d", (int)e);
	judge(&r, e, "after the rename");
	scene_met(w);
}

static void sync_and_close(struct world *w, uint32_t client, struct cfile *f)
{
	struct cop *c = scene_call(w, client);
	int64_t e;

	client_fsync(c, f);
	e = scene_end(w, c);
	scene_check(w, !e, "fsync: %d", (int)e);
	scene_close(w, client, f);
}

/* The file was opened and synced before the power loss: nothing is lost, so nothing is refused. */
static void synced_before_loss(struct world *w)
{
	struct replace r = left_unsynced(w);
	struct cfile *f = scene_open(w, 1, r.from, O_RDONLY);

	if (w->failed)
		return;
	sync_and_close(w, 1, f);
	end_new(&r, true);
}

/* The writer died, and the server settles the file soon after, since another client waits for
 * the lock: that must sync it, too. */
static void settled_before_loss(struct world *w)
{
	struct wire_lock want = { .owner = 1, .last = UINT64_MAX, .kind = LOCK_EXCLUSIVE };
	struct replace r = {
		.w = w, .victim = 1, .loss_at = UINT64_MAX, .from = "tmp", .to = "name"
	};
	struct cfile *f, *g;
	struct cop *c;
	int64_t e;

	make_old(&r);
	f = open_new(&r, r.from);
	g = scene_open(w, 1, r.from, O_RDWR);
	if (w->failed)
		return;
	c = scene_call(w, 0);
	client_lock(c, f, &want, true);
	scene_end(w, c);
	write_all(&r, f, NEW);
	scene_die(w, 0);
	scene_pass(w, 20 * NSEC_PER_SEC);
	scene_down(w, r.victim, false); /* its next flush comes after all of this */
	scene_up(w, r.victim);
	c = scene_call(w, 1);
	client_lock(c, g, &want, true);
	e = scene_end(w, c);
	scene_check(w, !e, "lock: %d", (int)e);
	scene_close(w, 1, g);
	scene_revive(w, 0);
	end_new(&r, true);
}

/* ---- the same with other histories of the file ---- */

static void put_byte(struct world *w, uint32_t who, struct cfile *f, uint64_t at)
{
	static char b = NEW;
	struct iovec mem = { &b, 1 };
	struct extent x = { at, 1 };
	struct cop *c = scene_call(w, who);
	int64_t e;

	client_write(c, f, &mem, 1, &x, 1);
	e = scene_end(w, c);
	scene_check(w, e == 1, "byte: %d", (int)e);
}

/* One object is written, truncated and written again: all of it must be marked in spite of the
 * fence between the writes. */
static void cut_then_written(struct world *w)
{
	struct cfile *f;
	struct replace r = begin_new(w, &f);
	struct cop *c;
	int64_t e;

	if (w->failed)
		return;
	write_all(&r, f, NEW);
	c = scene_call(w, 0);
	client_ftruncate(c, f, LENGTH);
	scene_end(w, c);
	put_byte(w, 0, f, 0);
	e = close_it(&r, f);
	scene_check(w, !e, "close: %d", (int)e);
	end_new(&r, false);
}

/* Another process has had the file open since before the close, and syncs it. */
static void synced_by_another(struct world *w)
{
	struct cfile *f, *g;
	struct replace r = begin_new(w, &f);

	g = scene_open(w, 1, r.from, O_RDONLY);
	if (w->failed)
		return;
	write_all(&r, f, NEW);
	close_it(&r, f);
	sync_and_close(w, 1, g);
	end_new(&r, true);
}

/* The writer syncs the file during its writes, then once more. */
static void synced_beside_writes(struct world *w)
{
	static char bytes[LENGTH];
	struct iovec mem = { bytes, LENGTH };
	struct cfile *f;
	struct replace r = begin_new(w, &f);
	struct cop *c, *d;
	int64_t e;

	memset(bytes, NEW, sizeof(bytes));
	if (w->failed)
		return;
	w->sim.faults.io_max = 10 * NSEC_PER_MSEC;
	for (int i = 0; i < 10; i++) {
		c = scene_call(w, 0);
		d = scene_call(w, 0);
		client_write(d, f, &mem, 1, &all, 1);
		client_fsync(c, f);
		scene_end(w, d);
		scene_end(w, c);
	}
	c = scene_call(w, 0);
	client_fsync(c, f);
	e = scene_end(w, c);
	scene_check(w, !e, "fsync: %d", (int)e);
	e = close_it(&r, f);
	scene_check(w, !e, "close: %d", (int)e);
	end_new(&r, true);
}

/* A second writer, which had the file open all the time, writes long after the loss of the first
 * one's data. */
static void second_writer_later(struct world *w)
{
	struct cfile *f, *g;
	struct replace r = begin_new(w, &f);
	int64_t e;

	g = scene_open(w, 1, r.from, O_RDWR);
	if (w->failed)
		return;
	write_all(&r, f, NEW);
	e = close_it(&r, f);
	scene_check(w, !e, "close: %d", (int)e);
	lose_power(&r);
	scene_pass(w, 100 * NSEC_PER_SEC);
	put_byte(w, 1, g, 131071);
	put_byte(w, 1, g, LENGTH - 1);
	scene_close(w, 1, g);
	e = rename_it(&r);
	judge(&r, e, "after the rename");
	scene_met(w);
}

/* The server restarts more often than it remembers, and nothing is lost. */
static void many_lives(struct world *w)
{
	struct replace r = left_unsynced(w),
		       other = { .w = w, .loss_at = UINT64_MAX, .to = "other" };
	int64_t e;

	scene_pass(w, 40 * NSEC_PER_SEC);
	make_old(&other);
	scene_pass(w, 70 * NSEC_PER_SEC);
	for (int i = 0; i < 17 && !w->failed; i++) {
		scene_down(w, r.victim, false);
		scene_up(w, r.victim);
		scene_pass(w, 5 * NSEC_PER_SEC);
	}
	e = rename_it(&r);
	scene_check(w, !e, "rename: %d", (int)e);
	judge(&r, e, "after the rename");
	scene_met(w);
}

const struct scenario scenes_rename[] = {
	{ "replace-cut-before", cut_then_written, 2, 1, 2, false },
	{ "replace-synced-by-another", synced_by_another, 2, 1, 2, false },
	{ "replace-synced-beside-writes", synced_beside_writes, 2, 1, 2, false },
	{ "replace-second-writer", second_writer_later, 2, 1, 2, false },
	{ "replace-many-lives", many_lives, 2, 1, 2, false },
	{ "replace-data-server", data_server_lost, 2, 1, 2, false },
	{ "replace-meta-server", meta_server_lost, 2, 1, 2, false },
	{ "replace-between-servers", between_servers, 3, 2, 2, false },
	{ "replace-inode-elsewhere", inode_elsewhere, 3, 2, 2, false },
	{ "replace-source-open", source_open, 2, 1, 2, false },
	{ "replace-lost-before", lost_before_rename, 2, 1, 2, false },
	{ "replace-lost-flushed", lost_then_flushed, 2, 1, 2, false },
	{ "replace-killed-before", killed_before_rename, 2, 1, 2, false },
	{ "replace-synced-before", synced_before_loss, 2, 1, 2, false },
	{ "replace-settled-before", settled_before_loss, 2, 1, 2, false },
	{ "loss-shows-in-change", loss_shows_in_change, 2, 1, 2, false },
	{ 0 },
};
