/* Before and after the run: makes the shared directories, reads everything back, and removes
 * everything. In a blocking style: an operation is started and the world stepped until it has
 * ended. */
#include <fcntl.h>
#include <stdlib.h>

#include "sim_world.h"

#define PATIENCE (400 * NSEC_PER_SEC)

static bool ended(void *arg)
{
	const struct op *op = arg;

	return !op->busy || op->a->w->failed;
}

bool op_run(struct op *op)
{
	struct world *w = op->a->w;
	enum do_kind kind = op->kind;

	op_begin(op);
	if (!sim_run(&w->sim, ended, op, PATIENCE)) {
		world_fail(w, op->f ? op->f->id : 0, "%s %s does not end", do_names[kind],
			   op->path);
		world_requests(w);
	}
	return !w->failed;
}

static bool simple(struct actor *a, enum do_kind kind, int dir, int name)
{
	struct op *op = actor_lane(a);

	op->kind = kind;
	op->dir = dir;
	op->name = name;
	op->mode = 0755;
	return op_run(op);
}

static bool open_file(struct actor *a, struct handle *h, int dir, int name, int flags)
{
	struct op *op = actor_lane(a);

	op->kind = DO_OPEN;
	op->dir = dir;
	op->name = name;
	op->flags = flags;
	op->mode = 0644;
	op->h = h;
	op->layout = (struct sheaf_layout){ .size = sizeof(op->layout) };
	return op_run(op);
}

static bool with_handle(struct actor *a, enum do_kind kind, struct handle *h)
{
	struct op *op = actor_lane(a);

	op->kind = kind;
	op->name = -1;
	op->h = h;
	return op_run(op);
}

/* ---- before ---- */

void world_setup(struct world *w)
{
	struct actor *c = caretaker(w);
	struct handle *h = &c->handles[SHARED_HANDLE];

	if (!simple(c, DO_MKDIR, DIR_SHARED, -1))
		return;
	for (uint32_t i = 0; i < w->n_actors; i++) {
		if (!simple(&w->actors[i], DO_MKDIR, 0, -1))
			return;
		w->actors[i].dirs[DIR_SHARED].there = true;
	}
	if (!open_file(c, h, DIR_SHARED, NAME_DATA, O_RDWR | O_CREAT | O_EXCL))
		return;
	w->shared = h->f;
	w->shared->block = sim_between(&w->sim, 500, 9000);
	w->shared->n_owners = w->n_actors;
	for (uint32_t i = 0; i < w->n_actors; i++)
		w->actors[i].dirs[DIR_SHARED].files[NAME_DATA] = w->shared;
	if (with_handle(c, DO_CLOSE, h))
		locks_setup(w);
}

/* ---- reading back ---- */

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

struct page_list {
	uint64_t *v;
	size_t n;
};

static void add_page(struct hnode *n, void *arg)
{
	struct page_list *l = arg;

	l->v[l->n++] = container_of(n, struct mpage, node)->index;
}

static bool read_range(struct actor *a, struct handle *h, uint64_t off, uint64_t len)
{
	struct op *op = actor_lane(a);

	op->name = -1;
	op->h = h;
	op_extents_whole(op, off, len, false);
	return op_run(op);
}

/* Reads every page that was ever written, in order, adjacent pages at once, and 100 bytes after
 * them. */
static bool read_all(struct actor *a, struct handle *h)
{
	struct page_list l = { calloc(h->f->pages.count + 1, sizeof(uint64_t)), 0 };
	bool ok = true;

	htab_walk(&h->f->pages, add_page, &l);
	qsort(l.v, l.n, sizeof(l.v[0]), by_number);
	for (size_t i = 0, k; ok && i < l.n; i = k) {
		for (k = i + 1; k < l.n && l.v[k] == l.v[k - 1] + 1 && k - i < 64; k++)
			;
		ok = read_range(a, h, l.v[i] * MODEL_PAGE,
				(l.v[k - 1] - l.v[i] + 1) * MODEL_PAGE + 100);
	}
	free(l.v);
	return ok;
}

static bool verify_handle(struct actor *a, struct handle *h)
{
	if (h->flags != O_RDONLY && !with_handle(a, DO_FSYNC, h))
		return false;
	if (!with_handle(a, DO_FSTAT, h))
		return false;
	if (h->flags != O_WRONLY && !read_all(a, h))
		return false;
	return with_handle(a, DO_CLOSE, h);
}

/* Data that were cut off must not come back when the file grows again. */
static bool grow(struct actor *a, int dir, int name)
{
	struct mfile *f = a->dirs[dir].files[name];
	struct op *op;

	if (f->unchecked || !f->known || model_end(f) <= f->size_hi ||
	    !sim_chance(&a->w->sim, 500000))
		return true;
	op = actor_lane(a);
	op->kind = DO_TRUNCATE;
	op->dir = dir;
	op->name = name;
	op->f = f;
	op->size = model_end(f);
	return op_run(op);
}

static bool xattr_is_right(struct actor *a, struct mfile *f)
{
	struct op *op = actor_lane(a);

	op->kind = DO_GETXATTR;
	op->name = -1;
	op->f = f;
	return op_run(op);
}

static bool verify_names(struct actor *a)
{
	for (int d = 0; d < N_DIRS; d++) {
		if (!simple(a, DO_READDIR, d, -1) || !simple(a, DO_READLINK, d, NAME_LINK))
			return false;
		for (int i = 0; i < N_NAMES; i++) {
			struct mfile *f = a->dirs[d].files[i];

			if (!simple(a, DO_STAT, d, i))
				return false;
			if (!f)
				continue;
			if (f->h.ino && !f->xattr_unsure && !xattr_is_right(a, f))
				return false;
			if (!grow(a, d, i) || !open_file(a, &a->handles[0], d, i, O_RDONLY) ||
			    !verify_handle(a, &a->handles[0]))
				return false;
		}
	}
	return true;
}

static bool verify_actor(struct actor *a)
{
	for (int i = 0; i < N_HANDLES; i++)
		if (a->handles[i].cf && !verify_handle(a, &a->handles[i]))
			return false;
	return verify_names(a);
}

/* The caretaker reads the shared file once as each client, since each byte belongs to a client. */
static bool verify_shared(struct world *w)
{
	struct actor *c = caretaker(w);
	struct handle *h = &c->handles[0];

	if (!open_file(c, h, DIR_SHARED, NAME_DATA, O_RDONLY))
		return false;
	for (uint32_t i = 0; i < w->n_actors; i++) {
		uint32_t id = c->id;
		bool ok;

		c->id = i; /* checks the bytes of this client */
		ok = read_all(c, h);
		c->id = id;
		if (!ok)
			return false;
	}
	return verify_handle(c, h);
}

void world_verify(struct world *w)
{
	for (uint32_t i = 0; i < w->n_actors; i++)
		if (!verify_actor(&w->actors[i]))
			return;
	verify_shared(w);
}

/* ---- cleanup ---- */

static bool clean_actor(struct actor *a)
{
	for (int d = N_DIRS - 1; d >= 0; d--) {
		for (int i = 0; i < N_NAMES; i++)
			if (a->dirs[d].files[i] && !simple(a, DO_UNLINK, d, i))
				return false;
		if (a->dirs[d].link && !simple(a, DO_UNLINK, d, NAME_LINK))
			return false;
		if (d != DIR_SHARED && a->dirs[d].there && !simple(a, DO_RMDIR, d, -1))
			return false;
	}
	return with_handle(a, DO_BYE, NULL);
}

void world_cleanup(struct world *w)
{
	struct actor *c = caretaker(w);

	for (uint32_t i = 0; i < w->n_actors; i++)
		if (!clean_actor(&w->actors[i]))
			return;
	if (locks_cleanup(w) && simple(c, DO_UNLINK, DIR_SHARED, NAME_DATA) &&
	    simple(c, DO_RMDIR, DIR_SHARED, -1))
		with_handle(c, DO_BYE, NULL);
}
