/* The search of sim_lin.h: just-in-time linearization.
 *
 * The history is walked once. At any time a set of possible worlds is known: a state of the name
 * space, and which of the operations under way have taken effect in it. When an operation ends, the
 * worlds in which it has not taken effect yet are continued by every sequence of operations under
 * way that ends with it; a world that cannot give its answer is dropped. If no world is left,
 * nothing explains the history. Equal worlds are kept once. An operation that only reads takes
 * effect as soon as it fits, since that excludes nothing.
 *
 * The sequential rules are those of docs/metadata.md, written again independently. */
#include "sim_lin.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#include "sim_priv.h"

#define MAX_OBJS 40
#define MAX_ENTS 32
#define MAX_WORLDS 20000
#define MAX_OPEN 64 /* operations under way, and those that never ended */
#define TEXT_LEN 8 /* text length of a symbolic link */
#define UNSEEN \
	(UINT64_C(1) << 63) /* object of an unanswered operation: its inode number is unknown */

const char *const lin_names[] = { "create",   "mkdir",	 "symlink", "link",    "unlink",
				  "rmdir",    "rename",	 "lookup",  "getattr", "chmod",
				  "truncate", "readdir", "readlink" };

struct obj {
	uint64_t id, size;
	uint32_t type, mode, nlink; /* nlink of files and symbolic links; 0: no name is left */
	uint32_t text;
};

struct ent {
	uint64_t dir, obj;
	uint64_t name;
};

struct state { /* both arrays sorted, so that equal states are equal bytes */
	uint32_t n_objs, n_ents;
	struct obj objs[MAX_OBJS];
	struct ent ents[MAX_ENTS];
};

struct lworld {
	uint64_t hash, done; /* done: bits of the operations under way that took effect */
	struct state s;
};

struct worlds {
	struct lworld **v;
	size_t n, cap;
	uint32_t *index; /* hash table: 1 + index in v */
	size_t n_index;
};

struct lin {
	const struct lin_op *ops;
	uint32_t n;
	bool spread; /* several servers keep names */
	uint32_t open[MAX_OPEN]; /* by bit: 1 + index of the operation; 0: free */
	struct worlds now;
	bool too_large;
};

/* ---- the name space ---- */

static struct obj *find_obj(struct state *s, uint64_t id)
{
	for (uint32_t i = 0; i < s->n_objs; i++)
		if (s->objs[i].id == id)
			return &s->objs[i];
	return NULL;
}

static struct ent *find_ent(struct state *s, uint64_t dir, uint32_t name)
{
	for (uint32_t i = 0; i < s->n_ents; i++)
		if (s->ents[i].dir == dir && s->ents[i].name == name)
			return &s->ents[i];
	return NULL;
}

static struct obj *dir_of(struct state *s, uint64_t id)
{
	struct obj *o = find_obj(s, id);

	return o && o->type == LIN_DIR ? o : NULL;
}

static uint32_t count_in(const struct state *s, uint64_t dir)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_ents; i++)
		n += s->ents[i].dir == dir;
	return n;
}

static uint32_t dirs_in(struct state *s, uint64_t dir)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_ents; i++)
		n += s->ents[i].dir == dir && find_obj(s, s->ents[i].obj)->type == LIN_DIR;
	return n;
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = ((const struct obj *)a)->id, y = ((const struct obj *)b)->id;

	return x < y ? -1 : x > y;
}

static int by_name(const void *a, const void *b)
{
	const struct ent *x = a, *y = b;

	if (x->dir != y->dir)
		return x->dir < y->dir ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

static void sort(struct state *s)
{
	qsort(s->objs, s->n_objs, sizeof(s->objs[0]), by_id);
	qsort(s->ents, s->n_ents, sizeof(s->ents[0]), by_name);
}

static bool put_ent(struct state *s, uint64_t dir, uint32_t name, uint64_t obj)
{
	if (s->n_ents == MAX_ENTS)
		return false;
	s->ents[s->n_ents++] = (struct ent){ dir, obj, name };
	return true;
}

static void del_ent(struct state *s, struct ent *e)
{
	*e = s->ents[--s->n_ents];
	s->ents[s->n_ents] = (struct ent){ 0 };
}

static void del_obj(struct state *s, struct obj *o)
{
	*o = s->objs[--s->n_objs];
	s->objs[s->n_objs] = (struct obj){ 0 };
}

/* A name of the object is removed. */
static void drop(struct state *s, uint64_t id)
{
	struct obj *o = find_obj(s, id);

	if (o->type == LIN_DIR || (--o->nlink == 0 && o->type == LIN_SYM))
		del_obj(s, o);
}

/* Is `dir` the directory `id`, or below it? */
static bool below(struct state *s, uint64_t dir, uint64_t id)
{
	for (uint32_t depth = 0; depth <= MAX_ENTS; depth++) {
		uint32_t i = 0;

		if (dir == id)
			return true;
		while (i < s->n_ents && s->ents[i].obj != dir)
			i++;
		if (i == s->n_ents)
			return false;
		dir = s->ents[i].dir;
	}
	return false;
}

/* Is the object the one that was seen? An object with an unknown number may turn out to be it. */
static bool is(struct lin *l, struct state *s, uint64_t *id, uint64_t seen)
{
	uint64_t old = *id;

	if (old == seen)
		return true;
	if (!(old & UNSEEN) || find_obj(s, seen))
		return false;
	for (uint32_t i = 0; i < l->n; i++)
		if (l->ops[i].created && l->ops[i].got.ino == seen)
			return false; /* another operation made that object */
	for (uint32_t i = 0; i < s->n_ents; i++)
		if (s->ents[i].obj == old)
			s->ents[i].obj = seen;
	find_obj(s, old)->id = seen;
	*id = seen;
	return true;
}

/* ---- one operation: 0 or the errno; only success changes the state ---- */

static bool answered(const struct lin_op *op)
{
	return op->ended != 0;
}

/* A file without a name goes away with its last close. Opens are not tracked here, so it may be
 * gone at any time. */
static bool gone(const struct obj *o, const struct lin_op *op)
{
	return answered(op) && op->result == -ESTALE && !o->nlink && o->type != LIN_DIR;
}

static bool fits_obj(struct lin *l, struct state *s, const struct obj *o,
		     const struct lin_attr *got)
{
	if (got->type != o->type)
		return false;
	if (o->type != LIN_SYM && got->mode != o->mode)
		return false;
	if (o->type != LIN_DIR)
		return (l->spread || got->nlink == o->nlink) &&
		       got->size == (o->type == LIN_SYM ? TEXT_LEN : o->size);
	return l->spread ||
	       (got->size == count_in(s, o->id) && got->nlink == 2 + dirs_in(s, o->id));
}

static bool fits_attr(struct lin *l, struct state *s, uint64_t id, const struct lin_op *op)
{
	const struct lin_attr *got = &op->got;
	bool later = l->spread && op->kind == LIN_LOOKUP && op->dir >> 48 != got->ino >> 48;
	const struct obj *o;

	if (!is(l, s, &id, got->ino))
		return false;
	o = find_obj(s, id);
	return later ? got->type == o->type : fits_obj(l, s, o, got);
}

/* Does the state fit what the answer to a change told of its directories? */
static bool fits_after(struct lin *l, struct state *s, const struct lin_op *op)
{
	for (uint32_t i = 0; i < op->n_after; i++) {
		uint64_t dir = i ? op->dir2 : op->dir;

		if (op->after[i].ino != dir || !fits_obj(l, s, dir_of(s, dir), &op->after[i]))
			return false;
	}
	return true;
}

static int make(struct lin *l, struct state *s, const struct lin_op *op, enum lin_type type)
{
	uint32_t number = (uint32_t)(op - l->ops);
	struct obj o = { .id = answered(op) ? op->got.ino : UNSEEN | number,
			 .type = type,
			 .mode = type == LIN_SYM ? 0 : op->mode,
			 .nlink = type == LIN_DIR ? 0 : 1,
			 .text = type == LIN_SYM ? number : 0 };

	if (answered(op) && find_obj(s, o.id))
		return EIO; /* matches no answer */
	if (s->n_objs == MAX_OBJS || !put_ent(s, op->dir, op->name, o.id)) {
		l->too_large = true;
		return ENFILE;
	}
	s->objs[s->n_objs++] = o;
	return 0;
}

static int do_new(struct lin *l, struct state *s, const struct lin_op *op)
{
	struct ent *e = find_ent(s, op->dir, op->name);
	struct obj *o = e ? find_obj(s, e->obj) : NULL;

	if (!dir_of(s, op->dir))
		return ESTALE;
	if (op->kind == LIN_LINK) {
		struct obj *f = find_obj(s, op->ino);

		if (e)
			return EEXIST;
		if (!f)
			return ESTALE;
		if (f->type == LIN_DIR)
			return EPERM;
		if (!f->nlink)
			return gone(f, op) ? ESTALE : ENOENT;
		if (answered(op) && !l->spread && op->got.nlink != f->nlink + 1)
			return EIO; /* matches no answer */
		if (!put_ent(s, op->dir, op->name, op->ino))
			l->too_large = true;
		f->nlink++;
		return 0;
	}
	if (!o)
		return make(l, s, op,
			    op->kind == LIN_CREATE ? LIN_FILE :
			    op->kind == LIN_MKDIR  ? LIN_DIR :
						     LIN_SYM);
	if (op->kind != LIN_CREATE || (op->flags & O_EXCL))
		return EEXIST;
	return o->type == LIN_DIR ? EISDIR : o->type == LIN_SYM ? ELOOP : 0;
}

static int do_unlink(struct state *s, const struct lin_op *op)
{
	struct ent *e = find_ent(s, op->dir, op->name);
	struct obj *o = e ? find_obj(s, e->obj) : NULL;
	uint64_t id;

	if (!dir_of(s, op->dir))
		return ESTALE;
	if (!e)
		return ENOENT;
	if (op->kind == LIN_UNLINK ? o->type == LIN_DIR : o->type != LIN_DIR)
		return op->kind == LIN_UNLINK ? EISDIR : ENOTDIR;
	if (o->type == LIN_DIR && count_in(s, o->id))
		return ENOTEMPTY;
	id = o->id;
	del_ent(s, e);
	drop(s, id);
	return 0;
}

/* The reason why the object at the second name may not be replaced, or 0. */
static int rename_refused(struct state *s, const struct lin_op *op, const struct obj *o,
			  const struct obj *old)
{
	if (op->flags == RENAME_EXCHANGE)
		return old->type == LIN_DIR && op->dir != op->dir2 && below(s, op->dir, old->id) ?
			       EINVAL :
			       0;
	if ((o->type == LIN_DIR) != (old->type == LIN_DIR))
		return old->type == LIN_DIR ? EISDIR : ENOTDIR;
	return old->type == LIN_DIR && count_in(s, old->id) ? ENOTEMPTY : 0;
}

static int do_rename(struct state *s, const struct lin_op *op)
{
	struct ent *e = find_ent(s, op->dir, op->name), *e2 = find_ent(s, op->dir2, op->name2);
	struct obj *o = e ? find_obj(s, e->obj) : NULL, *old = e2 ? find_obj(s, e2->obj) : NULL;
	uint64_t id, old_id;
	int rc;

	if (!dir_of(s, op->dir) || !dir_of(s, op->dir2))
		return ESTALE;
	if (!e)
		return ENOENT;
	if (e2 && op->flags == RENAME_NOREPLACE)
		return EEXIST;
	if (e2 && e->obj == e2->obj)
		return 0;
	if (o->type == LIN_DIR && op->dir != op->dir2 && below(s, op->dir2, o->id))
		return EINVAL;
	if (!e2 && op->flags == RENAME_EXCHANGE)
		return ENOENT;
	rc = e2 ? rename_refused(s, op, o, old) : 0;
	if (rc)
		return rc;
	id = e->obj;
	if (!e2) { /* the entry moves */
		e->dir = op->dir2;
		e->name = op->name2;
		return 0;
	}
	old_id = e2->obj;
	e2->obj = id;
	if (op->flags == RENAME_EXCHANGE) {
		e->obj = old_id;
		return 0;
	}
	del_ent(s, e);
	drop(s, old_id);
	return 0;
}

/* Operations by handle. */
static int do_inode(struct state *s, const struct lin_op *op)
{
	struct obj *o = find_obj(s, op->ino);

	if (!o || gone(o, op))
		return ESTALE;
	if (op->kind == LIN_CHMOD && o->type == LIN_SYM)
		return EOPNOTSUPP;
	if (op->kind == LIN_TRUNCATE && o->type != LIN_FILE)
		return o->type == LIN_DIR ? EISDIR : EINVAL;
	if (op->kind == LIN_CHMOD)
		o->mode = op->mode;
	if (op->kind == LIN_TRUNCATE)
		o->size = op->size;
	return 0;
}

static int do_look(struct state *s, const struct lin_op *op)
{
	struct ent *e = find_ent(s, op->dir, op->name);

	if (!dir_of(s, op->dir))
		return ESTALE;
	if (op->kind == LIN_READDIR)
		return 0;
	if (!e)
		return ENOENT;
	return op->kind == LIN_READLINK && find_obj(s, e->obj)->type != LIN_SYM ? EINVAL : 0;
}

static int execute(struct lin *l, struct state *s, const struct lin_op *op)
{
	switch (op->kind) {
	case LIN_CREATE:
	case LIN_MKDIR:
	case LIN_SYMLINK:
	case LIN_LINK:
		return do_new(l, s, op);
	case LIN_UNLINK:
	case LIN_RMDIR:
		return do_unlink(s, op);
	case LIN_RENAME:
		return do_rename(s, op);
	case LIN_GETATTR:
	case LIN_CHMOD:
	case LIN_TRUNCATE:
		return do_inode(s, op);
	default:
		return do_look(s, op);
	}
}

static bool fits_list(struct lin *l, struct state *s, const struct lin_op *op)
{
	if (count_in(s, op->dir) != op->n_list)
		return false;
	for (uint32_t i = 0; i < op->n_list; i++) {
		struct ent *e = find_ent(s, op->dir, op->list[i].name);
		uint64_t id = e ? e->obj : 0;

		if (!e || !is(l, s, &id, op->list[i].ino))
			return false;
	}
	return true;
}

/* Does the answer of a successful operation fit the state after it? */
static bool fits(struct lin *l, struct state *s, const struct lin_op *op, bool created)
{
	struct ent *e = find_ent(s, op->dir, op->name);
	uint64_t id = e ? e->obj : 0;

	if (!fits_after(l, s, op))
		return false;
	switch (op->kind) {
	case LIN_CREATE:
		return op->created == created && is(l, s, &id, op->got.ino);
	case LIN_LOOKUP:
		return fits_attr(l, s, id, op);
	case LIN_GETATTR:
	case LIN_CHMOD:
		return fits_attr(l, s, op->ino, op);
	case LIN_READDIR:
		return fits_list(l, s, op);
	case LIN_READLINK:
		return find_obj(s, id)->text == op->text;
	default:
		return true;
	}
}

/* Is the result a valid reason to refuse the operation, whatever other reasons there are? */
static bool reason_holds(struct state *s, const struct lin_op *op)
{
	bool is_rename = op->kind == LIN_RENAME;
	struct ent *e = find_ent(s, op->dir, op->name), *e2 = find_ent(s, op->dir2, op->name2);
	struct ent *there = is_rename ? e2 : e;
	struct obj *f = find_obj(s, op->ino), *o = there ? find_obj(s, there->obj) : NULL;

	switch (-op->result) {
	case ENOENT:
		return !e || (is_rename && op->flags == RENAME_EXCHANGE && !e2) || (f && !f->nlink);
	case ESTALE:
		return (op->dir && !dir_of(s, op->dir)) || (op->dir2 && !dir_of(s, op->dir2)) ||
		       (op->ino && (!f || gone(f, op)));
	case EEXIST:
		return there;
	case EISDIR:
		return o && o->type == LIN_DIR;
	case ENOTDIR:
		return o && o->type != LIN_DIR;
	case ENOTEMPTY:
		return o && o->type == LIN_DIR && count_in(s, o->id);
	case EINVAL:
		return is_rename &&
		       ((e && below(s, op->dir2, e->obj)) || (e2 && below(s, op->dir, e2->obj)));
	case EXDEV:
		return op->flags == RENAME_EXCHANGE;
	case EPERM:
		return op->kind == LIN_LINK && f && f->type == LIN_DIR;
	default:
		return false;
	}
}

/* Returns true if the operation may take effect now; then *s is the state after it. */
static bool step(struct lin *l, struct state *s, const struct lin_op *op)
{
	uint32_t objs = s->n_objs;
	int rc;

	if (l->spread && answered(op) && op->result && reason_holds(s, op))
		return true;
	rc = execute(l, s, op);
	if (!answered(op)) /* without an effect there is nothing to explore */
		return rc == 0 && (op->kind != LIN_CREATE || s->n_objs > objs);
	if (rc != -op->result)
		return false;
	return rc || fits(l, s, op, s->n_objs > objs);
}

/* ---- sets of worlds ---- */

static void hash_world(struct lworld *w)
{
	uint64_t h = hash_bytes(w->s.objs, w->s.n_objs * sizeof(struct obj), w->done);

	w->hash = hash_bytes(w->s.ents, w->s.n_ents * sizeof(struct ent), h);
}

static bool same(const struct lworld *a, const struct lworld *b)
{
	return a->hash == b->hash && a->done == b->done && a->s.n_objs == b->s.n_objs &&
	       a->s.n_ents == b->s.n_ents &&
	       !memcmp(a->s.objs, b->s.objs, a->s.n_objs * sizeof(struct obj)) &&
	       !memcmp(a->s.ents, b->s.ents, a->s.n_ents * sizeof(struct ent));
}

static void index_put(struct worlds *t, uint32_t at)
{
	size_t i = t->v[at]->hash & (t->n_index - 1);

	while (t->index[i])
		i = (i + 1) & (t->n_index - 1);
	t->index[i] = at + 1;
}

static void worlds_grow(struct worlds *t)
{
	if (t->n < t->cap)
		return;
	t->cap = t->cap ? 2 * t->cap : 64;
	t->n_index = 2 * t->cap;
	t->v = realloc(t->v, t->cap * sizeof(*t->v));
	free(t->index);
	t->index = sim_alloc(t->n_index * sizeof(*t->index));
	if (!t->v)
		abort();
	for (uint32_t i = 0; i < t->n; i++)
		index_put(t, i);
}

/* Returns false if the world is there already. */
static bool worlds_add(struct worlds *t, const struct lworld *w)
{
	worlds_grow(t);
	for (size_t i = w->hash & (t->n_index - 1); t->index[i]; i = (i + 1) & (t->n_index - 1))
		if (same(t->v[t->index[i] - 1], w))
			return false;
	t->v[t->n] = sim_alloc(sizeof(*w));
	*t->v[t->n] = *w;
	index_put(t, (uint32_t)t->n++);
	return true;
}

static void worlds_free(struct worlds *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i]);
	free(t->v);
	free(t->index);
	*t = (struct worlds){ 0 };
}

/* ---- the walk ---- */

/* Can the operation, with the answer it got, change nothing at any time? */
static bool only_looks(const struct lin_op *op)
{
	return answered(op) && (op->result || op->kind == LIN_LOOKUP || op->kind == LIN_GETATTR ||
				op->kind == LIN_READDIR || op->kind == LIN_READLINK);
}

/* Operations that only read take effect if their answers fit. */
static void settle(struct lin *l, struct lworld *w)
{
	struct state s;

	sort(&w->s);
	for (uint32_t b = 0; b < MAX_OPEN; b++) {
		const struct lin_op *op = l->open[b] ? &l->ops[l->open[b] - 1] : NULL;

		if (!op || !only_looks(op) || w->done & UINT64_C(1) << b)
			continue;
		s = w->s;
		if (!step(l, &s, op))
			continue;
		sort(&s);
		if (!memcmp(&s, &w->s, sizeof(s)))
			w->done |= UINT64_C(1) << b;
	}
	hash_world(w);
}

/* Drops objects without a name that no later operation uses by handle. */
static void forget(struct lin *l, struct state *s, uint64_t now)
{
	for (uint32_t i = s->n_objs; i-- > 0;) {
		struct obj *o = &s->objs[i];
		bool wanted = o->type != LIN_FILE || o->nlink;

		for (uint32_t k = 0; !wanted && k < l->n; k++)
			wanted = l->ops[k].ino == o->id &&
				 (!l->ops[k].ended || l->ops[k].ended > now);
		if (!wanted)
			del_obj(s, o);
	}
}

/* Finds the worlds in which the operation of `bit` has taken effect, starting from *all, which
 * grows meanwhile. */
static void continue_worlds(struct lin *l, struct worlds *all, struct worlds *out, uint32_t bit,
			    uint64_t now)
{
	for (size_t i = 0; i < all->n && !l->too_large; i++) {
		struct lworld w = *all->v[i];

		if (w.done & UINT64_C(1) << bit) {
			w.done &= ~(UINT64_C(1) << bit);
			forget(l, &w.s, now);
			sort(&w.s);
			hash_world(&w);
			worlds_add(out, &w);
			continue;
		}
		for (uint32_t b = 0; b < MAX_OPEN; b++) {
			if (!l->open[b] || all->v[i]->done & UINT64_C(1) << b)
				continue;
			w = *all->v[i];
			if (!step(l, &w.s, &l->ops[l->open[b] - 1]))
				continue;
			w.done |= UINT64_C(1) << b;
			settle(l, &w);
			worlds_add(all, &w);
		}
		l->too_large |= all->n > MAX_WORLDS;
	}
}

static bool op_ends(struct lin *l, uint32_t number, uint64_t now)
{
	struct worlds all = { 0 }, out = { 0 };
	uint32_t bit = 0;

	while (l->open[bit] != number + 1)
		bit++;
	for (size_t i = 0; i < l->now.n; i++) {
		struct lworld w = *l->now.v[i];

		settle(l, &w);
		worlds_add(&all, &w);
	}
	continue_worlds(l, &all, &out, bit, now);
	l->open[bit] = 0;
	worlds_free(&all);
	worlds_free(&l->now);
	l->now = out;
	return out.n > 0;
}

static void op_begins(struct lin *l, uint32_t number)
{
	uint32_t bit = 0;

	while (bit < MAX_OPEN && l->open[bit])
		bit++;
	if (bit < MAX_OPEN)
		l->open[bit] = number + 1;
	else
		l->too_large = true;
}

/* Finds the operation whose start or end comes next after `at`. */
static uint64_t next_event(const struct lin *l, uint64_t at, uint32_t *number, bool *begins)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < l->n; i++) {
		const struct lin_op *op = &l->ops[i];

		if (op->began > at && op->began < next) {
			next = op->began;
			*number = i;
			*begins = true;
		}
		if (op->ended > at && op->ended < next) {
			next = op->ended;
			*number = i;
			*begins = false;
		}
	}
	return next;
}

/* No inode number is used twice. */
static bool numbers_differ(const struct lin_op *ops, uint32_t n, uint32_t *bad)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < i && ops[i].created; k++)
			if (ops[k].created && ops[k].got.ino == ops[i].got.ino) {
				*bad = i;
				return false;
			}
	return true;
}

enum lin_verdict lin_check(const struct lin_op *ops, uint32_t n, uint64_t d0, uint64_t d1,
			   bool spread, uint32_t *bad)
{
	struct lin *l = sim_alloc(sizeof(*l));
	struct lworld *w = sim_alloc(sizeof(*w));
	enum lin_verdict v = LIN_OK;
	uint64_t at = 0;
	bool begins;

	if (!numbers_differ(ops, n, bad))
		v = LIN_WRONG;
	l->ops = ops;
	l->n = n;
	l->spread = spread;
	w->s.n_objs = 2;
	w->s.objs[0] = (struct obj){ .id = d0, .type = LIN_DIR, .mode = 0755 };
	w->s.objs[1] = (struct obj){ .id = d1, .type = LIN_DIR, .mode = 0755 };
	settle(l, w);
	worlds_add(&l->now, w);
	while (v == LIN_OK && (at = next_event(l, at, bad, &begins)) != UINT64_MAX) {
		if (begins)
			op_begins(l, *bad);
		else if (!op_ends(l, *bad, at))
			v = LIN_WRONG;
		if (l->too_large)
			v = LIN_TOO_LARGE;
	}
	worlds_free(&l->now);
	free(w);
	free(l);
	return v;
}

/* ---- printing ---- */

void lin_print(FILE *to, const struct lin_op *op)
{
	fprintf(to, "%6llu ", (unsigned long long)op->began);
	if (answered(op))
		fprintf(to, "%6llu ", (unsigned long long)op->ended);
	else
		fprintf(to, "%6s ", "-");
	fprintf(to, "c%u %s", op->client, lin_names[op->kind]);
	if (op->dir)
		fprintf(to, " %llx/%u", (unsigned long long)op->dir, op->name);
	if (op->kind == LIN_RENAME)
		fprintf(to, " to %llx/%u", (unsigned long long)op->dir2, op->name2);
	if (op->ino)
		fprintf(to, " of %llx", (unsigned long long)op->ino);
	if (op->kind == LIN_TRUNCATE)
		fprintf(to, " to %llu", (unsigned long long)op->size);
	fprintf(to, " mode %o flags %x", op->mode, op->flags);
	if (!answered(op))
		fprintf(to, " = ?");
	else
		fprintf(to, " = %d", op->result);
	if (answered(op) && !op->result && op->got.ino)
		fprintf(to, " (%llx type %u mode %o links %u size %llu%s)",
			(unsigned long long)op->got.ino, op->got.type, op->got.mode, op->got.nlink,
			(unsigned long long)op->got.size, op->created ? ", created" : "");
	for (uint32_t i = 0; answered(op) && i < op->n_after; i++)
		fprintf(to, " %llx: links %u size %llu", (unsigned long long)op->after[i].ino,
			op->after[i].nlink, (unsigned long long)op->after[i].size);
	if (op->kind == LIN_READLINK && !op->result)
		fprintf(to, " text %u", op->text);
	for (uint32_t i = 0; answered(op) && i < op->n_list; i++)
		fprintf(to, " %u:%llx", op->list[i].name, (unsigned long long)op->list[i].ino);
	fprintf(to, "\n");
}
