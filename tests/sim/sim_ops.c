/* The script of a client: random operations, several at a time where the model allows it.
 *
 * Operations on names do not overlap; neither do operations on one open file. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/xattr.h>

#include "sim_priv.h"
#include "sim_world.h"

#define FAR_AWAY (UINT64_C(4) << 30)

struct op *actor_lane(struct actor *a)
{
	for (int i = 0; i < N_LANES; i++)
		if (!a->lanes[i].busy) {
			a->lanes[i] = (struct op){ .a = a };
			return &a->lanes[i];
		}
	return NULL;
}

bool actor_idle(const struct actor *a)
{
	for (int i = 0; i < N_LANES; i++)
		if (a->lanes[i].busy)
			return false;
	return !a->ops_left && race_idle(a) && duel_idle(a) && appends_idle(a) && paths_idle(a) &&
	       copies_idle(a) && acls_idle(a);
}

static struct sim *sim_of(struct op *op)
{
	return &op->a->w->sim;
}

/* ---- lists ---- */

/* Splits the memory into pieces, in any order, with guards between them. */
static void make_memory(struct op *op)
{
	struct sim *s = sim_of(op);
	uint64_t left = op->total;
	size_t at = 0, n = 0;

	op->mem_len = op->total + 8 * MAX_IOV;
	op->mem = sim_alloc(op->mem_len);
	while (left && n < MAX_IOV - 1) {
		uint64_t len = sim_chance(s, 300000) ? left : sim_between(s, 0, left);

		at += sim_between(s, 1, 7);
		op->iov[n++] = (struct iovec){ op->mem + at, len };
		at += len;
		left -= len;
	}
	if (left) {
		op->iov[n++] = (struct iovec){ op->mem + at + 1, left };
	}
	op->n_iov = n;
	for (size_t i = n; i > 1; i--) { /* shuffled: the stream is not in the order of memory */
		size_t j = sim_below(s, i);
		struct iovec t = op->iov[i - 1];

		op->iov[i - 1] = op->iov[j];
		op->iov[j] = t;
	}
}

static void add_extent(struct op *op, uint64_t off, uint64_t len)
{
	op->ext[op->n_ext++] = (struct extent){ off, len };
	op->total += len;
}

/* Chooses ascending extents that do not overlap, then sometimes shuffles them. */
static void list_extents(struct op *op, uint64_t base, uint64_t span)
{
	struct sim *s = sim_of(op);
	uint64_t n = sim_between(s, 2, MAX_EXT), off = base, step = MAX(span / n, (uint64_t)2);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t skip = sim_below(s, step / 2 + 1), len = sim_below(s, step / 2 + 1);

		add_extent(op, off + skip, sim_chance(s, 100000) ? 0 : len);
		off += step;
	}
	if (!sim_chance(s, 300000))
		return;
	for (size_t i = op->n_ext; i > 1; i--) {
		size_t j = sim_below(s, i);
		struct extent t = op->ext[i - 1];

		op->ext[i - 1] = op->ext[j];
		op->ext[j] = t;
	}
}

/* Chooses extents within the client's own blocks. */
static void shared_extents(struct op *op)
{
	struct sim *s = sim_of(op);
	const struct mfile *f = op->h->f;
	uint64_t n = sim_between(s, 1, MAX_EXT), k = sim_below(s, 6);

	for (uint64_t i = 0; i < n; i++, k += sim_between(s, 1, 3)) {
		uint64_t first = (k * f->n_owners + op->a->id) * f->block;
		uint64_t skip = sim_chance(s, 400000) ? 0 : sim_below(s, f->block);

		add_extent(op, first + skip, sim_between(s, 0, f->block - skip));
	}
}

static void make_access(struct op *op)
{
	struct sim *s = sim_of(op);
	uint64_t span = op->a->w->span, base, len;

	op->n_ext = 0;
	op->total = 0;
	if (op->h->f->n_owners) {
		shared_extents(op);
		make_memory(op);
		return;
	}
	base = sim_below(s, span);
	if (sim_chance(s, 200000))
		base &= ~(uint64_t)4095;
	len = sim_chance(s, 600000) ? sim_below(s, 6000) : sim_below(s, span - base + 1);
	if (sim_chance(s, 30000))
		base += FAR_AWAY;
	if (op->a->w->bulk && sim_chance(s, 200000)) /* whole windows of the existing data */
		add_extent(op, base % 6000, span - base % 6000);
	else if (sim_chance(s, 500000))
		add_extent(op, base, len);
	else
		list_extents(op, base, len);
	make_memory(op);
}

void op_extents_whole(struct op *op, uint64_t off, uint64_t len, bool write)
{
	op->kind = write ? DO_WRITE : DO_READ;
	op->n_ext = 0;
	op->total = 0;
	add_extent(op, off, len);
	make_memory(op);
}

/* ---- choices ---- */

static struct handle *free_handle(struct actor *a)
{
	for (int i = 0; i < SHARED_HANDLE; i++)
		if (!a->handles[i].cf && !a->handles[i].busy)
			return &a->handles[i];
	return NULL;
}

static struct handle *open_handle(struct op *op, int flags)
{
	struct actor *a = op->a;
	uint64_t first = sim_below(sim_of(op), N_HANDLES);

	for (uint64_t i = 0; i < N_HANDLES; i++) {
		struct handle *h = &a->handles[(first + i) % N_HANDLES];

		if (h->cf && !h->busy && (flags < 0 || h->flags == O_RDWR || h->flags == flags))
			return h;
	}
	return NULL;
}

static bool is_open(const struct actor *a, const struct mfile *f)
{
	for (int i = 0; i < N_HANDLES; i++)
		if (a->handles[i].cf && a->handles[i].f == f)
			return true;
	return false;
}

static void any_name(struct op *op)
{
	op->dir = (int)sim_below(sim_of(op), N_DIRS);
	op->name = (int)sim_below(sim_of(op), N_NAMES);
}

static struct mfile *named(struct op *op)
{
	struct mdir *d = &op->a->dirs[op->dir];

	return op->name >= 0 && d->there ? d->files[op->name] : NULL;
}

/* Sometimes reaches a name through an existing symbolic link, which determines the name. */
static void go_via_link(struct op *op)
{
	int d = (int)sim_below(sim_of(op), N_DIRS), link = op->a->dirs[d].link;

	if (!link || !op->a->dirs[d].there)
		return;
	op->via = 1 + d;
	op->dir = (link - 1) / N_NAMES;
	op->name = (link - 1) % N_NAMES;
}

static bool choose_open(struct op *op)
{
	struct sim *s = sim_of(op);
	struct mfile *f;
	struct handle *sh = &op->a->handles[SHARED_HANDLE];

	any_name(op);
	if (!sh->cf && !sh->busy) {
		op->h = sh;
		op->dir = DIR_SHARED;
		op->name = NAME_DATA;
		op->flags = O_RDWR;
		return true;
	}
	op->h = free_handle(op->a);
	if (sim_chance(s, 150000))
		go_via_link(op);
	f = named(op);
	if (!op->h || (f && (is_open(op->a, f) || f->n_busy || f->n_looking)))
		return false;
	op->flags = sim_chance(s, 800000) ? O_RDWR : sim_chance(s, 500000) ? O_RDONLY : O_WRONLY;
	if (sim_chance(s, 600000))
		op->flags |= O_CREAT;
	if (sim_chance(s, 150000) && !op->via)
		op->flags |= O_EXCL;
	if (sim_chance(s, 100000) && op->flags & O_ACCMODE)
		op->flags |= O_TRUNC;
	op->mode = (uint32_t)sim_below(s, 01000);
	op->layout = (struct sheaf_layout){ .size = sizeof(op->layout) };
	if (sim_chance(s, 300000))
		op->layout.stripe_unit = 4096u << sim_below(s, 5);
	if (sim_chance(s, 300000))
		op->layout.width = (uint32_t)sim_between(s, 1, 5);
	return true;
}

static bool choose_truncate(struct op *op)
{
	struct sim *s = sim_of(op);

	any_name(op);
	op->f = named(op);
	if (!op->f || !op->f->known || op->f->n_busy > op->f->n_writing || op->f->n_looking)
		return false;
	op->size = sim_below(s, op->a->w->span);
	if (sim_chance(s, 20000))
		op->size += FAR_AWAY;
	return true;
}

static bool choose_data(struct op *op)
{
	const struct mfile *f;

	op->h = open_handle(op, op->kind == DO_READ ? O_RDONLY : O_WRONLY);
	if (!op->h)
		return false;
	f = op->h->f;
	if (f->n_busy > 8 ||
	    (!f->n_owners && f->n_busy > (op->kind == DO_WRITE ? f->n_cutting : 0)))
		return false;
	make_access(op);
	return true;
}

static bool choose_handle(struct op *op)
{
	op->h = open_handle(op, -1);
	if (!op->h ||
	    (op->kind == DO_CLOSE && op->h->f->n_owners && !sim_chance(sim_of(op), 300000)))
		return false;
	if (op->kind == DO_FSTAT && op->h->f->n_looking && !op->h->f->n_owners)
		return false;
	return op->h->f->n_owners || !op->h->f->n_busy;
}

static bool choose_attr(struct op *op)
{
	struct sim *s = sim_of(op);

	any_name(op);
	op->f = named(op);
	if (!op->f || !op->f->known || op->f->n_busy || op->f->n_looking)
		return false;
	op->mode = (uint32_t)sim_below(s, 01000);
	op->mtime = (int64_t)sim_below(s, UINT64_C(1) << 60);
	return true;
}

static bool choose_rename(struct op *op)
{
	struct sim *s = sim_of(op);

	any_name(op);
	op->dir2 = (int)sim_below(s, N_DIRS);
	op->name2 = (int)sim_below(s, N_NAMES);
	op->flags = sim_chance(s, 200000);
	if (sim_chance(s, 150000)) { /* a directory */
		op->dir = (int)sim_between(s, 1, 2);
		op->dir2 = (int)sim_between(s, 1, 2);
		op->name = op->name2 = -1;
	} else if (sim_chance(s, 60000)) { /* into itself */
		op->dir = op->dir2 = (int)sim_between(s, 1, 2);
		op->name = -1;
	}
	return true;
}

static bool choose_dir(struct op *op)
{
	struct sim *s = sim_of(op);

	op->name = -1;
	op->mode = 0755;
	op->dir =
		(int)sim_between(s, op->kind == DO_READDIR ? 0 : 1, op->kind == DO_READDIR ? 3 : 2);
	return true;
}

static bool choose_look(struct op *op)
{
	struct mfile *f;

	any_name(op);
	if (sim_chance(sim_of(op), 200000))
		op->name = -1;
	else if (sim_chance(sim_of(op), 200000))
		go_via_link(op);
	f = named(op);
	return !f || (!f->n_busy && !f->n_looking);
}

static bool choose_unlink(struct op *op)
{
	any_name(op);
	if (sim_chance(sim_of(op), 200000))
		op->name = NAME_LINK;
	return true;
}

/* Chooses a file with a known handle, which gets a new name. */
static bool choose_link(struct op *op)
{
	struct mfile *f;

	any_name(op);
	f = named(op);
	any_name(op);
	op->f = f;
	return f && f->known;
}

static bool choose_symlink(struct op *op)
{
	op->dir2 = (int)sim_below(sim_of(op), N_DIRS);
	op->name2 = (int)sim_below(sim_of(op), N_NAMES);
	op->dir = (int)sim_below(sim_of(op), N_DIRS);
	op->name = NAME_LINK;
	return true;
}

static bool choose_xattr(struct op *op)
{
	static const int flags[] = { 0, 0, XATTR_CREATE, XATTR_REPLACE };

	any_name(op);
	op->f = named(op);
	if (!op->f || !op->f->known || (op->f->xattr_unsure && op->kind == DO_REMOVEXATTR))
		return false;
	if (op->kind == DO_SETXATTR)
		op->flags = op->f->xattr_unsure ? 0 : flags[sim_below(sim_of(op), 4)];
	return !(op->kind == DO_GETXATTR && op->f->xattr_unsure);
}

static const struct {
	enum do_kind kind;
	uint32_t weight;
	bool (*choose)(struct op *op);
} choices[] = {
	{ DO_OPEN, 22, choose_open },	     { DO_READ, 24, choose_data },
	{ DO_WRITE, 26, choose_data },	     { DO_FSYNC, 8, choose_handle },
	{ DO_CLOSE, 7, choose_handle },	     { DO_FSTAT, 3, choose_handle },
	{ DO_TRUNCATE, 6, choose_truncate }, { DO_STAT, 6, choose_look },
	{ DO_UNLINK, 6, choose_unlink },     { DO_RENAME, 5, choose_rename },
	{ DO_MKDIR, 4, choose_dir },	     { DO_RMDIR, 2, choose_dir },
	{ DO_READDIR, 3, choose_dir },	     { DO_CHMOD, 2, choose_attr },
	{ DO_UTIMENS, 1, choose_attr },	     { DO_LINK, 8, choose_link },
	{ DO_SYMLINK, 4, choose_symlink },   { DO_READLINK, 2, choose_symlink },
	{ DO_SETXATTR, 6, choose_xattr },    { DO_GETXATTR, 2, choose_xattr },
	{ DO_REMOVEXATTR, 1, choose_xattr },
};

static bool names_only(enum do_kind k)
{
	return k == DO_OPEN || k == DO_STAT || k == DO_UNLINK || k == DO_RENAME || k == DO_MKDIR ||
	       k == DO_RMDIR || k == DO_READDIR || k == DO_CHMOD || k == DO_UTIMENS ||
	       k == DO_TRUNCATE || k == DO_LINK || k == DO_SYMLINK || k == DO_READLINK ||
	       k == DO_SETXATTR || k == DO_GETXATTR || k == DO_REMOVEXATTR;
}

/* ---- further operations on the same file ---- */

/* After a truncate of an open file: a write with the fenced capability, which the close reports. */
static const enum do_kind follow_up[] = { DO_WRITE, DO_CLOSE, DO_STAT };

void actor_follow(struct op *op)
{
	struct actor *a = op->a;

	if (op->kind != DO_TRUNCATE || a->follow || !is_open(a, op->f) ||
	    !sim_chance(&a->w->sim, 500000))
		return;
	a->follow = op->f;
	a->follow_at = 0;
}

static struct handle *writable(struct actor *a, const struct mfile *f)
{
	for (int i = 0; i < SHARED_HANDLE; i++) {
		struct handle *h = &a->handles[i];

		if (h->cf && h->f == f && !h->busy && h->flags != O_RDONLY)
			return h;
	}
	return NULL;
}

static bool find_name(struct op *op, const struct mfile *f)
{
	for (op->dir = 0; op->dir < N_DIRS; op->dir++)
		for (op->name = 0; op->name < N_NAMES; op->name++)
			if (named(op) == f)
				return true;
	return false;
}

static bool choose_follow_up(struct op *op)
{
	struct actor *a = op->a;
	struct mfile *f = a->follow;

	if (f->n_busy || f->n_looking || a->name_busy)
		return false;
	op->kind = follow_up[a->follow_at++];
	if (a->follow_at == ARRAY_LEN(follow_up))
		a->follow = NULL;
	if (op->kind == DO_STAT)
		return find_name(op, f);
	op->h = writable(a, f);
	if (op->h && op->kind == DO_WRITE)
		make_access(op);
	if (!op->h)
		a->follow = NULL;
	return op->h;
}

static bool choose(struct op *op)
{
	uint32_t sum = 0, x;
	size_t i = 0;

	if (op->a->follow)
		return choose_follow_up(op);
	for (size_t k = 0; k < ARRAY_LEN(choices); k++)
		sum += choices[k].weight;
	x = (uint32_t)sim_below(sim_of(op), sum);
	while (x >= choices[i].weight)
		x -= choices[i++].weight;
	op->kind = choices[i].kind;
	if (op->a->name_busy && names_only(op->kind))
		return false;
	return choices[i].choose(op);
}

/* ---- the script ---- */

static void think(void *arg);

static void think_later(struct actor *a)
{
	struct sim *s = &a->w->sim;
	uint64_t how = sim_below(s, 100), d;

	if (how < 75)
		d = sim_between(s, 50000, 3 * NSEC_PER_MSEC);
	else if (how < 97)
		d = sim_between(s, NSEC_PER_MSEC, 100 * NSEC_PER_MSEC);
	else
		d = sim_between(s, NSEC_PER_MSEC, 4 * NSEC_PER_SEC);
	sim_after(s, d, think, a);
}

/* Starts a truncate during a write. */
static void truncate_during_write(void *arg)
{
	struct actor *a = arg;
	struct mfile *f = a->to_truncate;
	struct op *op = a->w->failed || !a->client || a->name_busy ? NULL : actor_lane(a);

	a->to_truncate = NULL;
	if (!op || !f || !f->known || !f->n_writing || f->n_busy > f->n_writing || f->n_looking ||
	    !find_name(op, f))
		return;
	op->kind = DO_TRUNCATE;
	op->f = f;
	op->size = sim_below(&a->w->sim, f->size_hi + 1);
	op_begin(op);
}

static void plan_truncate(struct op *op)
{
	struct actor *a = op->a;
	struct sim *s = &a->w->sim;

	if (op->kind != DO_WRITE || op->f->n_owners || a->to_truncate || !sim_chance(s, 150000))
		return;
	a->to_truncate = op->f;
	sim_after(s, sim_below(s, 1500000), truncate_during_write, a);
}

static void think(void *arg)
{
	struct actor *a = arg;
	struct op *op;

	if (a->w->failed || !a->ops_left)
		return;
	think_later(a);
	if (!a->client || a->rest_until > a->w->sim.now)
		return;
	op = actor_lane(a);
	if (!op)
		return;
	if (!choose(op)) {
		free(op->mem);
		*op = (struct op){ .a = a };
		return;
	}
	a->ops_left--;
	op_begin(op);
	plan_truncate(op);
}

void actor_start(struct actor *a)
{
	think_later(a);
}
