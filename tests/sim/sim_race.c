/* Clients that contend for the same few names, and the judgement of what they saw: one order of all
 * operations must explain every answer (sim_lin.c).
 *
 * There are two directories of three names each, and the files and directories made in them.
 * Each operation is on one name in one directory given by its handle, so the server executes it
 * at one instant. A client has RACE_LANES operations under way. An operation without an answer
 * (timeout, death of its client, lost session, failed disk) may take effect later or never. */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define PATIENCE (400 * NSEC_PER_SEC)
/* then no operation starts any more: each one in doubt doubles the possible states */
#define MAX_IN_DOUBT 8
#define N_PLACES 3 /* names in a directory */

static const struct sheaf_cred root_cred = { 0 };
static const struct sheaf_handle root = { 1, 1 };
static const char *const dir_paths[] = { "r0", "r1" };
static const char *const place_names[] = { "a", "b", "c" };

static struct sheaf_handle handle_of(uint64_t ino)
{
	return (struct sheaf_handle){
		ino, 1
	}; /* inode numbers are never reused, so the generation is 1 */
}

static bool changes(enum lin_kind k)
{
	return k != LIN_LOOKUP && k != LIN_GETATTR && k != LIN_READDIR && k != LIN_READLINK;
}

/* ---- one operation ---- */

static void race_done(struct cop *c);

static void launch(struct race_lane *r)
{
	struct lin_op *op = &r->op;
	const char *name = place_names[op->name], *name2 = place_names[op->name2];
	struct cop *c = cop_new(r->a->client, &root_cred);
	struct stat st = { .st_mode = op->mode };

	c->done = race_done;
	c->user = r;
	switch (op->kind) {
	case LIN_CREATE:
		client_open(c, handle_of(op->dir), name,
			    O_RDONLY | O_CREAT | O_NOFOLLOW | (int)op->flags, op->mode, NULL);
		break;
	case LIN_MKDIR:
		client_mkdir(c, handle_of(op->dir), name, op->mode);
		break;
	case LIN_SYMLINK:
		client_symlink(c, r->text, handle_of(op->dir), name);
		break;
	case LIN_LINK:
		client_link(c, handle_of(op->ino), handle_of(op->dir), name);
		break;
	case LIN_UNLINK:
		client_unlink(c, handle_of(op->dir), name);
		break;
	case LIN_RMDIR:
		client_rmdir(c, handle_of(op->dir), name);
		break;
	case LIN_RENAME:
		client_rename(c, handle_of(op->dir), name, handle_of(op->dir2), name2, op->flags);
		break;
	case LIN_LOOKUP:
		client_lookup(c, handle_of(op->dir), name);
		break;
	case LIN_GETATTR:
		client_getattr(c, handle_of(op->ino));
		break;
	case LIN_CHMOD:
		client_setattr(c, handle_of(op->ino), SHEAF_SET_MODE, &st);
		break;
	case LIN_TRUNCATE:
		client_truncate(c, handle_of(op->ino), op->size);
		break;
	case LIN_READDIR:
		client_readdir(c, handle_of(op->dir), 0, LIN_LIST, false);
		break;
	default:
		client_readlink(c, handle_of(op->dir), name);
		break;
	}
}

static void race_begin(struct race_lane *r, bool recorded)
{
	struct world *w = r->a->w;
	struct race *race = &w->race;

	r->busy = true;
	r->recorded = recorded;
	r->began = w->sim.now;
	r->starts = w->n_starts;
	r->op.client = r->a->id;
	r->op.began = ++w->seq;
	r->number = race->n;
	snprintf(r->text, sizeof(r->text), "%08u", r->number);
	if (recorded) {
		if (race->n == race->cap) {
			race->cap = race->cap ? 2 * race->cap : 64;
			race->ops = realloc(race->ops, race->cap * sizeof(*race->ops));
			if (!race->ops)
				abort();
		}
		race->ops[race->n++] = r->op;
		w->count->race_ops++;
	}
	sim_trace(&w->sim, SIM_TEST + 3 * DO_KINDS + r->op.kind, r->a->node->id, r->number);
	launch(r);
	if (recorded && r->op.kind == LIN_CREATE && !(r->op.flags & O_EXCL))
		faults_lose_answer(r->a); /* its repetition may find another file at the name */
	if (recorded && changes(r->op.kind))
		faults_part_servers(w); /* perhaps between its prepares and its decision */
}

/* ---- results ---- */

static struct lin_attr attr_seen(const struct wire_attr *a)
{
	return (struct lin_attr){ .ino = a->ino,
				  .size = a->size,
				  .type = S_ISREG(a->mode) ? LIN_FILE :
					  S_ISDIR(a->mode) ? LIN_DIR :
							     LIN_SYM,
				  .mode = a->mode & 07777,
				  .nlink = a->nlink };
}

static void remember(struct actor *a, uint64_t ino, bool is_dir)
{
	a->race_seen[a->n_race_seen++ % ARRAY_LEN(a->race_seen)] = (struct seen){ ino, is_dir };
}

/* Returns the number in the text of a symbolic link, which is not terminated. */
static uint32_t text_seen(const struct wire_bytes *b)
{
	char text[9] = "";

	if (b->len != 8)
		return UINT32_MAX;
	memcpy(text, b->p, 8);
	return (uint32_t)atoi(text);
}

static void listing_seen(struct race_lane *r, const struct wire_readdir_res *res)
{
	struct lin_op *op = &r->op;

	if (!res->end || res->n_entries > LIN_LIST)
		world_fail(r->a->w, NO_FILE, "a directory of %u names lists %u", N_PLACES,
			   res->n_entries);
	for (uint32_t i = 0; i < res->n_entries && i < LIN_LIST; i++) {
		const struct wire_dir_entry *e = &res->entries[i];

		op->list[i].ino = e->h.ino;
		op->list[i].name = e->name.len == 1 ? (uint32_t)(e->name.p[0] - 'a') : UINT32_MAX;
		remember(r->a, e->h.ino, e->type == S_IFDIR);
	}
	op->n_list = MIN(res->n_entries, (uint32_t)LIN_LIST);
}

static void after_seen(struct lin_op *op, const struct wire_dirs_after *after)
{
	op->n_after = after->n_dirs;
	for (uint32_t i = 0; i < after->n_dirs; i++)
		op->after[i] = attr_seen(&after->dirs[i]);
}

static void answer_seen(struct race_lane *r, struct cop *c)
{
	struct lin_op *op = &r->op;

	switch (op->kind) {
	case LIN_CREATE:
		op->got = attr_seen(&c->res.open.at);
		op->created = c->res.open.created;
		after_seen(op, &c->res.open.after);
		break;
	case LIN_MKDIR:
	case LIN_SYMLINK:
	case LIN_LINK:
		op->created = op->kind != LIN_LINK;
		op->got = attr_seen(&c->res.made.at);
		after_seen(op, &c->res.made.after);
		break;
	case LIN_UNLINK:
	case LIN_RMDIR:
	case LIN_RENAME:
		after_seen(op, &c->res.after);
		break;
	case LIN_CHMOD:
		op->got = attr_seen(&c->res.attr.at);
		break;
	case LIN_LOOKUP:
	case LIN_GETATTR:
		op->got = attr_seen(&c->attr);
		break;
	case LIN_READDIR:
		listing_seen(r, &c->res.readdir);
		break;
	case LIN_READLINK:
		op->text = text_seen(&c->res.readlink.target);
		break;
	default:
		break;
	}
	if (op->got.ino)
		remember(r->a, op->got.ino, op->got.type == LIN_DIR);
}

/* Does this result leave the outcome in doubt? Fails the run if it must not. */
static bool in_doubt(struct race_lane *r, int64_t e)
{
	struct world *w = r->a->w;
	uint64_t took = w->sim.now - r->began;
	struct op like = { .a = r->a, .kind = r->op.kind == LIN_TRUNCATE ? DO_TRUNCATE : DO_MKDIR };

	if (is_network_error(e) && took >= (w->conf.timeout_s - 1) * NSEC_PER_SEC) {
		w->count->network_errors++;
		r->a->rest_until = w->sim.now + 10 * NSEC_PER_SEC;
		return true;
	}
	if (op_excused(&like, e))
		return true;
	/* The file was made, the answer was lost, and another client unlinked the file before
	 * the server was back and got the retransmission. */
	if (r->op.kind == LIN_CREATE && (e == -ENOENT || e == -ESTALE) && r->starts != w->n_starts)
		return true;
	if (is_network_error(e) || e == -EIO || e == -ENOSPC)
		world_fail(w, NO_FILE, "%s by c%u: %s after %.3f s", lin_names[r->op.kind],
			   r->a->id, error_text((int)e), (double)took / 1e9);
	return false;
}

static void lane_ends(struct race_lane *r, bool answered)
{
	struct race *race = &r->a->w->race;

	r->busy = false;
	if (!r->recorded)
		return;
	if (answered)
		r->op.ended = ++r->a->w->seq;
	else if (changes(r->op.kind))
		race->n_doubt++;
	else
		r->op.began = 0; /* as if it had never begun */
	race->ops[r->number] = r->op;
}

static void closed(struct cop *c)
{
	struct race_lane *r = c->user;

	cop_free(c);
	r->busy = false;
}

/* A file that was opened is closed before the lane continues; this is not part of the history. */
static void close_file(struct race_lane *r, struct cfile *f)
{
	struct cop *c = cop_new(r->a->client, &root_cred);

	r->busy = true;
	r->recorded = false;
	c->done = closed;
	c->user = r;
	client_close(c, f);
}

static void race_done(struct cop *c)
{
	struct race_lane *r = c->user;
	struct world *w = r->a->w;
	struct cfile *f = c->result == 0 && r->op.kind == LIN_CREATE ? c->file : NULL;
	bool doubt = c->result < 0 && in_doubt(r, c->result);

	sim_trace(&w->sim, SIM_TEST + 4 * DO_KINDS + r->op.kind, r->a->node->id,
		  (uint64_t)c->result);
	r->op.result = (int)c->result;
	if (!c->result)
		answer_seen(r, c);
	world_note(w, NO_FILE, "c%u race %u %s %llx/%u %llx/%u %llx = %d", r->a->id, r->number,
		   lin_names[r->op.kind], (unsigned long long)r->op.dir, r->op.name,
		   (unsigned long long)r->op.dir2, r->op.name2, (unsigned long long)r->op.ino,
		   r->op.result);
	cop_free(c);
	lane_ends(r, !doubt);
	if (f)
		close_file(r, f);
	if (!r->op.result && changes(r->op.kind))
		faults_after_sync(w, DO_RENAME);
}

void race_abandon(struct actor *a)
{
	for (int i = 0; i < RACE_LANES; i++)
		if (a->race_lanes[i].busy)
			lane_ends(&a->race_lanes[i], false);
}

/* ---- the script ---- */

static uint64_t any_dir(struct actor *a)
{
	struct sim *s = &a->w->sim;
	struct seen seen = a->race_seen[sim_below(s, ARRAY_LEN(a->race_seen))];

	if (seen.is_dir && sim_chance(s, 500000))
		return seen.ino;
	return a->w->race.dirs[sim_below(s, 2)];
}

static void choose(struct race_lane *r)
{
	static const struct {
		enum lin_kind kind;
		uint32_t weight;
	} table[] = { { LIN_CREATE, 15 }, { LIN_MKDIR, 9 }, { LIN_SYMLINK, 4 },	 { LIN_LINK, 8 },
		      { LIN_UNLINK, 12 }, { LIN_RMDIR, 6 }, { LIN_RENAME, 20 },	 { LIN_LOOKUP, 10 },
		      { LIN_GETATTR, 5 }, { LIN_CHMOD, 4 }, { LIN_TRUNCATE, 4 }, { LIN_READDIR, 6 },
		      { LIN_READLINK, 3 } };
	static const uint32_t renames[] = {
		0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_EXCHANGE
	};
	struct actor *a = r->a;
	struct sim *s = &a->w->sim;
	uint64_t x = sim_below(s, 106),
		 seen = a->race_seen[sim_below(s, ARRAY_LEN(a->race_seen))].ino;
	struct lin_op op = { 0 };
	size_t i = 0;

	while (i + 1 < ARRAY_LEN(table) && x >= table[i].weight)
		x -= table[i++].weight;
	op.kind = table[i].kind;
	op.mode = (uint32_t)sim_below(s, 01000);
	op.name = (uint32_t)sim_below(s, N_PLACES);
	op.name2 = (uint32_t)sim_below(s, N_PLACES);
	if (op.kind == LIN_LINK || op.kind == LIN_GETATTR || op.kind == LIN_CHMOD ||
	    op.kind == LIN_TRUNCATE) {
		op.ino = seen;
		if (!seen || (seen == a->w->race.dirs[0] || seen == a->w->race.dirs[1]))
			op = (struct lin_op){ .kind = LIN_LOOKUP, .name = op.name };
	}
	if (op.kind != LIN_GETATTR && op.kind != LIN_CHMOD && op.kind != LIN_TRUNCATE)
		op.dir = any_dir(a);
	if (op.kind == LIN_RENAME) {
		op.dir2 = any_dir(a);
		op.flags = renames[sim_below(s, ARRAY_LEN(renames))];
	}
	if (op.kind == LIN_CREATE && sim_chance(s, 500000))
		op.flags = O_EXCL;
	op.size = op.kind == LIN_TRUNCATE ? sim_below(s, 100000) : 0;
	r->op = op;
}

static void think(void *arg)
{
	struct actor *a = arg;
	struct world *w = a->w;
	struct race_lane *r = NULL;
	uint64_t pause = sim_chance(&w->sim, 100000) ? 200 * NSEC_PER_MSEC : 1500000;

	if (w->failed || !a->race_left)
		return;
	if (w->race.n_doubt >= MAX_IN_DOUBT)
		a->race_left = 0;
	sim_after(&w->sim, sim_between(&w->sim, 1, pause), think, a);
	for (int i = 0; i < RACE_LANES && !r; i++)
		if (!a->race_lanes[i].busy)
			r = &a->race_lanes[i];
	if (!r || !a->client || a->rest_until > w->sim.now || !a->race_left)
		return;
	a->race_left--;
	choose(r);
	race_begin(r, true);
}

bool race_idle(const struct actor *a)
{
	for (int i = 0; i < RACE_LANES; i++)
		if (a->race_lanes[i].busy)
			return false;
	return !a->race_left;
}

void race_start(struct actor *a)
{
	struct world *w = a->w;

	if (!w->race.dirs[0])
		return;
	a->race_left = (uint32_t)sim_between(&w->sim, 5, 60);
	think(a);
}

/* ---- setup and cleanup: one operation at a time ---- */

static bool lane_ended(void *arg)
{
	const struct race_lane *r = arg;

	return !r->busy || r->a->w->failed;
}

static bool wait_for(struct race_lane *r)
{
	struct world *w = r->a->w;

	if (!sim_run(&w->sim, lane_ended, r, PATIENCE)) {
		world_fail(w, NO_FILE, "%s does not end", lin_names[r->op.kind]);
		world_requests(w);
	}
	return !w->failed;
}

/* Returns 0 or -errno; the lane's op has the rest. */
static int run(struct race_lane *r, struct lin_op op, bool recorded)
{
	r->op = op;
	race_begin(r, recorded);
	return wait_for(r) ? r->op.result : -EIO;
}

void race_setup(struct world *w)
{
	struct race_lane *r = &caretaker(w)->race_lanes[0];

	for (int i = 0; i < 2 && !w->failed; i++) {
		struct cop *c = cop_new(r->a->client, &root_cred);

		r->op = (struct lin_op){ .kind = LIN_MKDIR };
		r->busy = true;
		c->done = race_done;
		c->user = r;
		client_mkdir(c, root, dir_paths[i], 0755);
		if (wait_for(r) && !r->op.result)
			w->race.dirs[i] = r->op.got.ino;
		else
			world_fail(w, NO_FILE, "mkdir %s: %d", dir_paths[i], r->op.result);
	}
}

/* Reads everything that exists, as the last part of the history. */
static void look_at_all(struct race_lane *r, uint64_t dir, int depth)
{
	struct lin_op list;

	if (run(r, (struct lin_op){ .kind = LIN_READDIR, .dir = dir }, true))
		return;
	list = r->op;
	for (uint32_t i = 0; i < list.n_list; i++) {
		struct lin_op op = { .kind = LIN_LOOKUP, .dir = dir, .name = list.list[i].name };

		if (!run(r, op, true) && r->op.got.type == LIN_DIR && depth < 10)
			look_at_all(r, list.list[i].ino, depth + 1);
	}
}

static void say_what_is_wrong(struct world *w, uint32_t bad)
{
	const struct race *race = &w->race;
	uint64_t end = race->ops[bad].ended;

	world_fail(w, NO_FILE,
		   "no order of the operations on r0 (%llx) and r1 (%llx) explains this answer",
		   (unsigned long long)race->dirs[0], (unsigned long long)race->dirs[1]);
	lin_print(stdout, &race->ops[bad]);
	printf("  what was before and beside it (begin, end, client, operation):\n");
	for (uint32_t i = 0; i < race->n; i++)
		if (race->ops[i].began && race->ops[i].began < end)
			lin_print(stdout, &race->ops[i]);
}

void race_judge(struct world *w)
{
	struct race_lane *r = &caretaker(w)->race_lanes[0];
	struct race *race = &w->race;
	uint32_t bad = 0;

	if (!race->dirs[0])
		return;
	look_at_all(r, race->dirs[0], 0);
	look_at_all(r, race->dirs[1], 0);
	if (w->failed)
		return;
	switch (lin_check(race->ops, race->n, race->dirs[0], race->dirs[1], world_spread(w),
			  &bad)) {
	case LIN_WRONG:
		say_what_is_wrong(w, bad);
		break;
	case LIN_TOO_LARGE:
		w->count->race_unchecked++;
		break;
	default:
		w->count->races++;
		break;
	}
}

static bool clean_dir(struct race_lane *r, uint64_t dir)
{
	struct lin_op list;

	if (run(r, (struct lin_op){ .kind = LIN_READDIR, .dir = dir }, false))
		return false;
	list = r->op;
	for (uint32_t i = 0; i < list.n_list; i++) {
		struct lin_op op = { .kind = LIN_UNLINK, .dir = dir, .name = list.list[i].name };
		int e = run(r, op, false);

		if (e == -EISDIR && clean_dir(r, list.list[i].ino)) {
			op.kind = LIN_RMDIR;
			e = run(r, op, false);
		}
		if (e) {
			world_fail(r->a->w, NO_FILE, "cannot clean r: %d", e);
			return false;
		}
	}
	return true;
}

void race_cleanup(struct world *w)
{
	struct race_lane *r = &caretaker(w)->race_lanes[0];

	for (int i = 0; i < 2 && w->race.dirs[i] && !w->failed; i++) {
		struct cop *c;

		if (!clean_dir(r, w->race.dirs[i]))
			return;
		c = cop_new(r->a->client, &root_cred);
		r->op = (struct lin_op){ .kind = LIN_RMDIR };
		r->busy = true;
		c->done = race_done;
		c->user = r;
		client_rmdir(c, root, dir_paths[i]);
		if (!wait_for(r) || r->op.result)
			world_fail(w, NO_FILE, "rmdir %s: %d", dir_paths[i], r->op.result);
	}
}
