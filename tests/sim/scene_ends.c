/* Scenarios: operations that must end, and state that must be gone afterwards. */
#include <fcntl.h>
#include <stdio.h>

#include "sim_scenario.h"

/* ---- directories that move ---- */

/* Directories of target 1: x, and below it the file f and the directories s and s/c. */
struct tree {
	char path[40];
	struct sheaf_handle x, s, c;
};

static struct sheaf_handle make_below(struct world *w, const char *path, const char *name)
{
	char full[80];

	snprintf(full, sizeof(full), "%s/%s", path, name);
	return scene_mkdir(w, 0, full);
}

static void make_tree(struct world *w, struct tree *t)
{
	char top[16], full[80];

	scene_dir_at(w, 0, 1, top);
	/* directories of the second level are on several servers as well */
	for (int i = 0; i < 100 && !w->failed; i++) {
		snprintf(t->path, sizeof(t->path), "%s/x%d", top, i);
		t->x = scene_mkdir(w, 0, t->path);
		if (!w->failed && client_meta_of(w->actors[0].client, t->x.ino) == 1)
			break;
	}
	t->s = make_below(w, t->path, "s");
	t->c = make_below(w, t->path, "s/c");
	snprintf(full, sizeof(full), "%s/f", t->path);
	if (!w->failed)
		scene_close(w, 0, scene_open(w, 0, full, O_CREAT | O_RDONLY));
}

static struct cop *rename_start(struct world *w, uint32_t client, struct sheaf_handle from,
				const char *name, struct sheaf_handle to, const char *name2,
				unsigned flags)
{
	struct cop *c = scene_call(w, client);

	client_rename(c, from, name, to, name2, flags);
	return c;
}

/* An exchange of f and s/c checks whether c may move to x. Before it is decided, f and s swap
 * their names within x, which needs no check: now the exchange would put s into itself. */
static void exchange_renamed_meanwhile(struct world *w)
{
	struct sim_node *t0 = w->targets[0].node, *t1 = w->targets[1].node;
	struct tree t = { 0 };
	struct cop *slow;
	int64_t r;

	make_tree(w, &t);
	if (w->failed)
		return;
	scene_lookup(w, 1, t.path, NULL); /* makes sure that the link is up */
	scene_hold(w, t0, t1, true);
	slow = rename_start(w, 0, t.x, "f", t.s, "c", RENAME_EXCHANGE);
	if (scene_reaches(w, 1, "rename", "answer")) {
		r = scene_end(w, rename_start(w, 1, t.x, "f", t.x, "s", RENAME_EXCHANGE));
		scene_check(w, !r, "the exchange within a directory: %d", (int)r);
		if (!slow->finished)
			scene_met(w);
	}
	scene_hold(w, t0, t1, false);
	r = scene_end(w, slow);
	scene_check(w, r == -EINVAL, "a directory goes into itself: %d", (int)r);
}

struct place {
	const struct server *server;
	struct sheaf_handle dir;
	const char *name;
};

static bool is_named(void *arg)
{
	const struct place *p = arg;

	return peek_name(p->server, p->dir.ino, p->name) != 0;
}

/* A database has directories below themselves, as an earlier bug may have left it: a climb
 * through them must end. */
static void climb_in_a_circle(struct world *w)
{
	struct server *server = w->targets[1].server;
	struct tree t = { 0 };
	struct place circle, before;
	int64_t r;

	make_tree(w, &t);
	make_below(w, t.path, "m");
	if (w->failed)
		return;
	circle = (struct place){ server, t.c, "s" };
	before = (struct place){ server, t.x, "s" };
	peek_move(server, t.x, "s", t.c, "s");
	if (scene_until(w, is_named, &circle, "the circle is not closed"))
		scene_met(w);
	r = scene_end(w, rename_start(w, 0, t.x, "m", t.c, "m", 0));
	scene_check(w, r == -ELOOP, "a rename into a circle: %d", (int)r);
	peek_move(server, t.c, "s", t.x, "s");
	scene_until(w, is_named, &before, "the circle is not opened");
}

/* ---- removal ---- */

struct failures {
	const struct sim *s;
	uint64_t n;
};

static bool have_failed(void *arg)
{
	const struct failures *f = arg;

	return f->s->injected[SIM_SYNC_EIO] >= f->n;
}

static void write_synced(struct world *w, const char *path)
{
	static char byte = 1;
	static const struct extent at = { 0, 1 };
	struct iovec mem = { &byte, 1 };
	struct cfile *f = scene_open(w, 0, path, O_CREAT | O_RDWR);
	struct cop *c = w->failed ? NULL : scene_call(w, 0);
	int64_t r;

	if (!c)
		return;
	client_write(c, f, &mem, 1, &at, 1);
	r = scene_end(w, c);
	scene_check(w, r == 1, "write: %d", (int)r);
	if (w->failed)
		return;
	c = scene_call(w, 0);
	client_fsync(c, f);
	r = scene_end(w, c);
	scene_check(w, !r, "fsync: %d", (int)r);
	scene_close(w, 0, f);
}

/* The sync after the removal of an object fails, and so does the one of the second try, which
 * finds no object. Then the power fails: the object may exist again, and its row must still
 * exist. */
static void removal_not_synced(struct world *w)
{
	struct sim *s = &w->sim;
	struct failures f = { s, s->injected[SIM_SYNC_EIO] + 1 };
	struct cop *c;
	uint64_t first;
	int64_t r;

	write_synced(w, "f");
	s->faults.sync_eio = 1000000;
	c = scene_call(w, 0);
	client_unlink(c, scene_root, "f");
	r = scene_end(w, c);
	scene_check(w, !r, "unlink: %d", (int)r);
	scene_until(w, have_failed, &f, "no removal is synced");
	first = s->now;
	f.n++;
	scene_until(w, have_failed, &f, "a removal that failed is not repeated");
	scene_check(w, s->now - first < 3 * NSEC_PER_SEC / 2, "the second try comes after %llu ms",
		    (unsigned long long)((s->now - first) / NSEC_PER_MSEC));
	s->faults.sync_eio = 0;
	scene_met(w);
	scene_pass(w, 200 * NSEC_PER_MSEC);
	scene_down(w, 0, true);
	scene_up(w, 0);
}

const struct scenario scenes_ends[] = {
	{ "exchange-renamed-meanwhile", exchange_renamed_meanwhile, 2, 2, 2, false },
	{ "climb-in-a-circle", climb_in_a_circle, 2, 2, 1, false },
	{ "removal-not-synced", removal_not_synced, 1, 1, 1, false },
	{ 0 },
};
