/* Scenarios for names: changes over two servers that meet other changes of the same names, and
 * requests that outlive their client. */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>

#include "sim_scenario.h"

/* Makes a directory below `parent` that a target keeps; returns its path from the root, too. */
static struct sheaf_handle below(struct world *w, const char *parent, uint32_t target,
				 char path[32])
{
	struct sheaf_handle h = { 0 };

	for (int i = 0; i < 100 && !w->failed; i++) {
		snprintf(path, 32, "%.15s/e%u-%d", parent, target, i);
		h = scene_mkdir(w, 0, path);
		if (!w->failed && client_meta_of(w->actors[0].client, h.ino) == target)
			return h;
	}
	world_fail(w, 0, "no directory of target %u below %s", target, parent);
	return h;
}

static int64_t rename_by(struct world *w, uint32_t client, struct sheaf_handle from,
			 const char *name, struct sheaf_handle to, const char *name2)
{
	struct cop *c = scene_call(w, client);

	client_rename(c, from, name, to, name2, 0);
	return scene_end(w, c);
}

static int64_t unlink_by(struct world *w, uint32_t client, struct sheaf_handle dir,
			 const char *name)
{
	struct cop *c = scene_call(w, client);

	client_unlink(c, dir, name);
	return scene_end(w, c);
}

/* Makes a file and closes it. */
static struct sheaf_handle make_file(struct world *w, const char *dir, const char *name)
{
	struct sheaf_handle h = { 0 };
	char path[48];

	snprintf(path, sizeof(path), "%.31s/%.15s", dir, name);
	scene_close(w, 0, scene_open(w, 0, path, O_CREAT | O_RDONLY));
	scene_check(w, !scene_lookup(w, 0, path, &h), "%s is not there", path);
	return h;
}

/* A rename waits for the server of the new name. Meanwhile its old name is removed, and
 * afterwards the new name is made to name the same file. At no time did both names exist, so the
 * rename must not succeed. */
static void rename_to_same_file(struct world *w)
{
	char a[16], b[16];
	struct sheaf_handle da = scene_dir_at(w, 0, 0, a), db = scene_dir_at(w, 0, 1, b);
	struct sheaf_handle f = make_file(w, a, "x");
	struct cop *c = scene_call(w, 0);
	int64_t r;

	client_link(c, f, db, "w");
	scene_check(w, !scene_end(w, c), "no link");
	scene_hold_calls(w, 0, 1, true);
	c = scene_call(w, 0);
	client_rename(c, da, "x", db, "y", 0);
	scene_check(w, scene_reaches(w, 0, "rename", "answer"), "the rename is not split");
	scene_check(w, !unlink_by(w, 1, da, "x"), "x cannot be unlinked");
	scene_check(w, !rename_by(w, 1, db, "w", db, "y"), "w cannot be renamed");
	if (!c->finished)
		scene_met(w);
	scene_hold_calls(w, 0, 1, false);
	r = scene_end(w, c);
	scene_check(w, r == -ENOENT, "the rename of a name that is gone ends with %d", (int)r);
}

/* An exchange waits for its turn at the server of the root. Meanwhile the names change: now they
 * are a directory and a name in it. Checks made before that do not hold for them. */
static void exchange_of_others(struct world *w)
{
	char top[16], path[32], sub[48];
	struct sheaf_handle dp, db;
	struct cop *c;
	int64_t r;

	scene_dir_at(w, 0, 1, top);
	dp = below(w, top, 1, path);
	make_file(w, path, "a");
	snprintf(sub, sizeof(sub), "%s/b", path);
	db = scene_mkdir(w, 0, sub);
	snprintf(sub, sizeof(sub), "%s/b/c", path);
	scene_mkdir(w, 0, sub);
	scene_hold_calls(w, 1, 0, true);
	c = scene_call(w, 0);
	client_rename(c, dp, "a", db, "c", RENAME_EXCHANGE);
	scene_check(w, scene_reaches(w, 1, "rename", "answer"), "the exchange is not split");
	scene_check(w, !unlink_by(w, 1, dp, "a"), "a cannot be unlinked");
	scene_check(w, !rename_by(w, 1, dp, "b", dp, "a"), "b cannot be renamed");
	if (!c->finished)
		scene_met(w);
	scene_hold_calls(w, 1, 0, false);
	r = scene_end(w, c);
	scene_check(w, r == -EINVAL, "a directory is exchanged with a name in it: %d", (int)r);
}

/* ---- changes that are decided but not finished ---- */

enum { LOOK_CHMOD, LOOK_SET, LOOK_REMOVE, LOOK_GET, LOOK_LIST, LOOK_UP, LOOK_SELF, LOOKS };

static struct cop *look(struct world *w, int how, struct sheaf_handle h)
{
	static const struct stat st = { .st_mode = 0700 };
	struct cop *c = scene_call(w, 1);

	if (how == LOOK_CHMOD)
		client_setattr(c, h, SHEAF_SET_MODE, &st);
	else if (how == LOOK_SET)
		client_setxattr(c, h, "user.a", "1", 1, 0);
	else if (how == LOOK_REMOVE)
		client_removexattr(c, h, "user.b");
	else if (how == LOOK_GET)
		client_getxattr(c, h, "user.b", 100);
	else if (how == LOOK_LIST)
		client_listxattr(c, h, 100);
	else if (how == LOOK_UP)
		client_lookup(c, h, "name");
	else
		client_lookup(c, h, "");
	return c;
}

/* A directory's removal is decided and answered, but the server of its inode does not know it
 * yet. No call by handle may find the directory any more. */
static void removed_but_not_finished(struct world *w)
{
	char a[16], path[32];
	struct sheaf_handle da = scene_dir_at(w, 0, 0, a), h = below(w, a, 1, path);
	struct cop *c = scene_call(w, 0), *looks[LOOKS];
	int64_t r;

	client_rmdir(c, da, path + strlen(a) + 1);
	scene_check(w, scene_reaches(w, 0, "rmdir", "decided"), "it is not decided");
	scene_hold_calls(w, 0, 1, true);
	r = scene_end(w, c);
	scene_check(w, !r, "rmdir: %d", (int)r);
	for (int i = 0; i < LOOKS && !w->failed; i++)
		looks[i] = look(w, i, h);
	scene_pass(w, NSEC_PER_SEC / 2);
	scene_met(w);
	scene_hold_calls(w, 0, 1, false);
	for (int i = 0; i < LOOKS && !w->failed; i++) {
		r = scene_end(w, looks[i]);
		scene_check(w, r == -ESTALE, "look %d at a removed directory: %d", i, (int)r);
	}
}

/* ---- the judge ---- */

/* A client dies while a server waits for another server with its request. As long as the server
 * has the request, peek_serves() must report it, even if the server's loop is idle. */
static void old_request_seen(struct world *w)
{
	char a[16], path[32];
	struct sheaf_handle da = scene_dir_at(w, 0, 0, a);
	const struct target *t = &w->targets[0];
	struct cop *c;
	uint64_t since;

	below(w, a, 1, path);
	scene_hold_calls(w, 0, 1, true);
	c = scene_call(w, 0);
	client_rmdir(c, da, path + strlen(a) + 1);
	scene_check(w, scene_reaches(w, 0, "rmdir", "answer"), "it is not split");
	since = w->sim.now;
	for (int i = 0; i < 100 && !w->failed; i++) {
		scene_pass(w, 20 * NSEC_PER_MSEC);
		if (w->sim.now > since + 50 * NSEC_PER_MSEC)
			scene_check(w, peek_serves(t->server, w->sim.now - since - NSEC_PER_MSEC),
				    "a request of %.3f s is not seen",
				    (double)(w->sim.now - since) / 1e9);
	}
	scene_met(w);
	scene_hold_calls(w, 0, 1, false);
	scene_check(w, !scene_end(w, c), "rmdir fails");
}

const struct scenario scenes_names[] = {
	{ "rename-to-same-file", rename_to_same_file, 2, 2, 2, false },
	{ "exchange-of-others", exchange_of_others, 2, 2, 2, false },
	{ "removed-but-not-finished", removed_but_not_finished, 2, 2, 2, false },
	{ "old-request-seen", old_request_seen, 2, 2, 1, false },
	{ 0 },
};
