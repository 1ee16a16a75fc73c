/* One operation: its expected result, its start, and whether the result is right.
 *
 * Operations on names of one client do not overlap, so their answer is known beforehand, down to
 * the errno. Network errors are allowed only after the whole timeout; then the outcome is in
 * doubt and the lane looks it up (op_resolve) before it continues. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>

#include "sim_priv.h"
#include "sim_world.h"

#define REST_NS (10 * NSEC_PER_SEC) /* pause after a network error */
#define POISON 0xa5

const char *const do_names[] = { "open",	"close",   "read",     "write",	   "fsync",
				 "truncate",	"stat",	   "fstat",    "unlink",   "rename",
				 "mkdir",	"rmdir",   "readdir",  "chmod",	   "utimens",
				 "link",	"symlink", "readlink", "setxattr", "getxattr",
				 "removexattr", "copy",	   "allocate", "seek",	   "bye" };

static const struct sheaf_handle root = { 1, 1 };
static const struct sheaf_cred root_cred = { 0 };

void op_path(char out[48], const struct actor *a, int dir, int name)
{
	static const char *const below[] = { "", "/d0", "/d1" };

	if (dir == DIR_SHARED && name < 0)
		snprintf(out, 48, "shared");
	else if (dir == DIR_SHARED && name == NAME_DATA)
		snprintf(out, 48, "shared/data");
	else if (dir == DIR_SHARED && name == NAME_LINK)
		snprintf(out, 48, "shared/c%u_l", a->id);
	else if (dir == DIR_SHARED)
		snprintf(out, 48, "shared/c%u_f%d", a->id, name);
	else if (name < 0)
		snprintf(out, 48, "c%u%s", a->id, below[dir]);
	else if (name == NAME_LINK)
		snprintf(out, 48, "c%u%s/l", a->id, below[dir]);
	else
		snprintf(out, 48, "c%u%s/f%d", a->id, below[dir], name);
}

/* ---- names and counters ---- */

/* How many names a file has; all belong to its client. */
static uint32_t names_of(const struct actor *a, const struct mfile *f)
{
	uint32_t n = 0;

	for (int d = 0; d < N_DIRS; d++)
		for (int i = 0; i <= N_NAMES; i++)
			n += a->dirs[d].files[i] == f;
	return n;
}

static void link_text(const struct op *op, int link, char out[LINK_TEXT])
{
	out[0] = '/';
	op_path(out + 1, op->a, (link - 1) / N_NAMES, (link - 1) % N_NAMES);
}

static bool on_names(enum do_kind k)
{
	return k == DO_OPEN || k == DO_UNLINK || k == DO_RENAME || k == DO_MKDIR || k == DO_RMDIR ||
	       k == DO_READDIR || k == DO_LINK || k == DO_SYMLINK;
}

/* These are serialized, too, so that the names they use do not go away. */
static bool serial(enum do_kind k)
{
	return on_names(k) || k == DO_STAT || k == DO_CHMOD || k == DO_UTIMENS ||
	       k == DO_TRUNCATE || k == DO_READLINK || k == DO_SETXATTR || k == DO_GETXATTR ||
	       k == DO_REMOVEXATTR;
}

static bool on_content(const struct op *op)
{
	return op->kind == DO_READ || op->kind == DO_WRITE || op->kind == DO_FSYNC ||
	       op->kind == DO_CLOSE || op->kind == DO_TRUNCATE || copies_kind(op->kind) ||
	       (op->kind == DO_OPEN && (op->flags & O_TRUNC));
}

static bool looks(const struct op *op)
{
	return op->kind == DO_STAT || op->kind == DO_FSTAT || op->kind == DO_CHMOD ||
	       op->kind == DO_UTIMENS;
}

/* Counts the operations under way on a file. */
static void count_in(struct op *op)
{
	struct mfile *f = op->f;

	if (!f)
		return;
	f->n_busy += on_content(op);
	if (op->source)
		op->source->n_busy++;
	f->n_looking += looks(op);
	f->n_writing += op->kind == DO_WRITE;
	f->n_cutting += op->kind == DO_TRUNCATE;
	if (op->kind == DO_TRUNCATE) {
		f->cut_race_end = 0;
		f->cut_to = f->n_writing ? MIN(f->cut_to, op->size) : op->size;
	}
}

static void count_out(struct op *op)
{
	struct mfile *f = op->f;

	if (!f)
		return;
	f->n_busy -= on_content(op);
	if (op->source)
		op->source->n_busy--;
	f->n_looking -= looks(op);
	f->n_writing -= op->kind == DO_WRITE;
	f->n_cutting -= op->kind == DO_TRUNCATE;
}

/* ---- starting ---- */

static void fill_memory(struct op *op)
{
	uint64_t o = 0, i = 0;

	memset(op->mem, POISON, op->mem_len);
	for (size_t k = 0; op->kind == DO_WRITE && k < op->n_iov; k++) {
		uint8_t *p = op->iov[k].iov_base;

		for (size_t n = 0; n < op->iov[k].iov_len; n++) {
			while (o == op->ext[i].length) {
				i++;
				o = 0;
			}
			p[n] = model_value(op->number, op->ext[i].offset + o++);
		}
	}
}

static void op_done(struct cop *cop)
{
	op_judge(cop->user, cop);
}

/* Zeros within the file may be made by punching a hole as well. */
static uint32_t zero_how(struct op *op)
{
	struct world *w = op->a->w;

	if (op->ext[0].offset + op->ext[0].length > op->f->size_lo || !sim_chance(&w->sim, 500000))
		return ALLOC_ZERO;
	w->count->punched++;
	return ALLOC_PUNCH | ALLOC_KEEP_SIZE;
}

static void start_content(struct op *op, struct cop *c)
{
	switch (op->kind) {
	case DO_CLOSE:
		client_close(c, op->h->cf);
		break;
	case DO_READ:
		op_move(op, c);
		break;
	case DO_WRITE:
		if (model_zeroes(op->number) && op->n_ext == 1)
			client_allocate(c, op->h->cf, zero_how(op), op->ext[0].offset,
					op->ext[0].length);
		else
			op_move(op, c);
		break;
	case DO_FSYNC:
		client_fsync(c, op->h->cf);
		break;
	case DO_FSTAT:
		client_getattr(c, cfile_handle(op->h->cf));
		break;
	case DO_COPY:
	case DO_ALLOCATE:
	case DO_SEEK:
		copies_launch(op, c);
		break;
	default:
		client_truncate(c, op->f->h, op->size);
		break;
	}
}

static void start_attr(struct op *op, struct cop *c)
{
	struct stat st = { .st_mode = op->mode };

	st.st_mtim.tv_sec = op->mtime / (int64_t)NSEC_PER_SEC;
	st.st_mtim.tv_nsec = op->mtime % (int64_t)NSEC_PER_SEC;
	client_setattr(c, op->f->h, op->kind == DO_CHMOD ? SHEAF_SET_MODE : SHEAF_SET_MTIME, &st);
}

static void start_link(struct op *op, struct cop *c)
{
	switch (op->kind) {
	case DO_LINK:
		client_link(c, op->f->h, root, op->path);
		break;
	case DO_SYMLINK:
		link_text(op, 1 + op->dir2 * N_NAMES + op->name2, op->path2);
		client_symlink(c, op->path2, root, op->path);
		break;
	default:
		client_readlink(c, root, op->path);
		break;
	}
}

static void start_xattr(struct op *op, struct cop *c)
{
	switch (op->kind) {
	case DO_SETXATTR:
		snprintf(op->value, sizeof(op->value), "%u", op->number);
		client_setxattr(c, op->f->h, "user.x", op->value, sizeof(op->value), op->flags);
		break;
	case DO_GETXATTR:
		client_getxattr(c, op->f->h, "user.x", sizeof(op->value));
		break;
	default:
		client_removexattr(c, op->f->h, "user.x");
		break;
	}
}

static void start_readdir(struct op *op, struct cop *c)
{
	/* a stat finds the directory first */
	if (!op->size)
		client_stat(c, root, op->path);
	else
		client_readdir(c, (struct sheaf_handle){ op->size, op->mode }, op->cookie, 3,
			       false);
}

/* Starts the operation, or its next part. */
static void launch(struct op *op)
{
	struct cop *c = cop_new(op->a->client, &root_cred);

	c->done = op_done;
	c->user = op;
	if (op->resolving) {
		if (op->name == NAME_LINK)
			client_lookup(c, root, op->path);
		else
			client_stat(c, root, op->path);
		return;
	}
	switch (op->kind) {
	case DO_OPEN:
		client_open(c, root, op->path, op->flags, op->mode, &op->layout);
		break;
	case DO_STAT:
		client_stat(c, root, op->path);
		break;
	case DO_UNLINK:
		client_unlink(c, root, op->path);
		break;
	case DO_RENAME:
		client_rename(c, root, op->path, root, op->path2, (unsigned)op->flags);
		break;
	case DO_MKDIR:
		client_mkdir(c, root, op->path, op->mode);
		break;
	case DO_RMDIR:
		client_rmdir(c, root, op->path);
		break;
	case DO_READDIR:
		start_readdir(op, c);
		break;
	case DO_CHMOD:
	case DO_UTIMENS:
		start_attr(op, c);
		break;
	case DO_LINK:
	case DO_SYMLINK:
	case DO_READLINK:
		start_link(op, c);
		break;
	case DO_SETXATTR:
	case DO_GETXATTR:
	case DO_REMOVEXATTR:
		start_xattr(op, c);
		break;
	case DO_BYE:
		client_bye(c);
		break;
	default:
		start_content(op, c);
		break;
	}
}

static struct mfile *file_of(const struct op *op)
{
	if (op->h && op->h->cf)
		return op->h->f;
	if (op->f || op->name < 0 || op->name == NAME_LINK || !op->a->dirs[op->dir].there)
		return op->f;
	return op->a->dirs[op->dir].files[op->name];
}

void op_begin(struct op *op)
{
	struct actor *a = op->a;
	struct world *w = a->w;

	op->busy = true;
	op->number = ++w->n_ops;
	op->began = w->sim.now;
	op->seq = ++w->seq;
	op->sure = !w->n_unclean;
	op->expect = op_expect(op);
	op->f = file_of(op);
	op->source = op->from ? op->from->f : NULL;
	for (uint32_t t = 0; t < w->conf.n_targets; t++)
		op->losses[t] = w->targets[t].losses;
	if (op->via)
		op_path(op->path, a, op->via - 1, NAME_LINK);
	else
		op_path(op->path, a, op->dir, op->name);
	if (op->kind == DO_RENAME)
		op_path(op->path2, a, op->dir2, op->name2);
	if (op->f)
		op->size_lo = op->f->size_lo;
	if (op->source)
		op->source_lo = op->source->size_lo;
	count_in(op);
	if (op->h)
		op->h->busy = true;
	if (op->from)
		op->from->busy = true;
	a->name_busy |= serial(op->kind);
	w->count->ops++;
	sim_trace(&w->sim, SIM_TEST + op->kind, a->node->id, op->number);
	if (op->kind == DO_WRITE || op->kind == DO_ALLOCATE)
		model_write_begin(op);
	if (op->kind == DO_COPY && !op->expect)
		model_copy_begin(op);
	if (op->mem)
		fill_memory(op);
	launch(op);
}

/* ---- the end ---- */

void op_free(struct op *op)
{
	struct actor *a = op->a;

	count_out(op);
	if (op->h)
		op->h->busy = false;
	if (op->from)
		op->from->busy = false;
	if (serial(op->kind))
		a->name_busy = false;
	free(op->mem);
	type_free(op->types[0]);
	type_free(op->types[1]);
	*op = (struct op){ .a = a };
}

static void note_op(struct op *op, int64_t result)
{
	struct world *w = op->a->w;
	char what[160] = "";
	int n = 0;

	if (op->kind == DO_SEEK)
		snprintf(what, sizeof(what), " %s from %llu", op->flags ? "hole" : "data",
			 (unsigned long long)op->at);
	else if (op->kind == DO_COPY)
		snprintf(what, sizeof(what), " %llu+%llu of file %u to %llu",
			 (unsigned long long)op->at, (unsigned long long)op->total, op->source->id,
			 (unsigned long long)op->ext[0].offset);
	else if (op->kind == DO_ALLOCATE)
		snprintf(what, sizeof(what), " %llu+%llu mode %x",
			 (unsigned long long)op->ext[0].offset,
			 (unsigned long long)op->ext[0].length, op->mode);
	else if (op->kind == DO_READ || op->kind == DO_WRITE)
		for (size_t i = 0; i < op->n_ext && n < 120; i++)
			n += snprintf(what + n, sizeof(what) - (size_t)n, " %llu+%llu",
				      (unsigned long long)op->ext[i].offset,
				      (unsigned long long)op->ext[i].length);
	else if ((op->h && op->kind != DO_OPEN) || op->kind == DO_TRUNCATE)
		snprintf(what, sizeof(what), " %llu", (unsigned long long)op->size);
	else
		snprintf(what, sizeof(what), " %s %s %o", op->path, op->path2, (unsigned)op->flags);
	world_note(w, op->f ? op->f->id : NO_FILE, "c%u #%u %s%s%s = %lld (from %.6f)", op->a->id,
		   op->number, do_names[op->kind], op->resolving ? "?" : "", what,
		   (long long)result, (double)op->began / 1e9);
}

bool is_network_error(int64_t e)
{
	return e == -ETIMEDOUT || e == -ECONNREFUSED || e == -ECONNRESET || e == -EHOSTUNREACH ||
	       e == -EPIPE || e == -ENETUNREACH || e == -ENOTCONN;
}

static void stop_checking(struct op *op)
{
	if (op->f && !op->f->unchecked) {
		op->f->unchecked = true;
		op->a->w->count->unchecked++;
	}
}

/* ---- names ---- */

static struct mfile **slot_of(struct op *op, int dir, int name)
{
	return &op->a->dirs[dir].files[name];
}

static void moved(struct op *op)
{
	struct mdir *d = op->a->dirs;
	struct mfile **from, **to;

	if (op->name < 0) {
		if (op->dir == op->dir2)
			return;
		d[op->dir2] = d[op->dir];
		memset(&d[op->dir], 0, sizeof(d[0]));
		return;
	}
	from = slot_of(op, op->dir, op->name);
	to = slot_of(op, op->dir2, op->name2);
	if (*from == *to) /* two names of one file: no change */
		return;
	*to = *from;
	*from = NULL;
}

static void created(struct op *op)
{
	struct mfile **at = slot_of(op, op->dir, op->name);

	if (*at)
		return;
	*at = op->f = model_file(op->a->w);
	op->f->mode = op->mode;
	op->f->mode_sure = true;
}

/* The operation took effect: updates the model. */
static void name_changed(struct op *op)
{
	switch (op->kind) {
	case DO_UNLINK:
		if (op->name == NAME_LINK)
			op->a->dirs[op->dir].link = 0;
		else
			*slot_of(op, op->dir, op->name) = NULL;
		break;
	case DO_LINK:
		*slot_of(op, op->dir, op->name) = op->f;
		break;
	case DO_SYMLINK:
		op->a->dirs[op->dir].link = 1 + op->dir2 * N_NAMES + op->name2;
		break;
	case DO_MKDIR:
		op->a->dirs[op->dir].there = true;
		break;
	case DO_RMDIR:
		op->a->dirs[op->dir].there = false;
		break;
	case DO_RENAME:
		moved(op);
		break;
	case DO_OPEN:
		created(op);
		break;
	default:
		break;
	}
}

static bool makes_name(const struct op *op)
{
	return op->kind == DO_MKDIR || op->kind == DO_OPEN || op->kind == DO_LINK ||
	       op->kind == DO_SYMLINK;
}

/* The outcome was in doubt: this is the result of looking for the name. */
static void resolved(struct op *op, int64_t result)
{
	bool there = result == 0;

	if (result && result != -ENOENT) { /* still no answer */
		op_resolve(op);
		return;
	}
	if (there == makes_name(op))
		name_changed(op);
	op_free(op);
}

/* Does a server still have a request of this age? Then the operation may still take effect.
 * Clocks may differ by some per cent. */
static bool may_happen_yet(const struct op *op)
{
	const struct world *w = op->a->w;
	uint64_t age = (w->sim.now - op->ended) / 10 * 9;

	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		if (w->targets[i].server && peek_serves(w->targets[i].server, age))
			return true;
	return false;
}

static void resolve_later(void *arg)
{
	struct op *op = arg;

	if (op->a->dead || !op->busy || !op->resolving || op->a->w->sim.now < op->resolve_at)
		return; /* or a later call was planned since: its client has died and is back */
	op->resolve_at = UINT64_MAX;
	if (may_happen_yet(op) || !op->a->client)
		op_resolve(op);
	else
		launch(op);
}

void op_resolve(struct op *op)
{
	struct world *w = op->a->w;

	if (!op->resolving)
		op->ended = w->sim.now;
	op->resolving = true;
	op->resolve_at = w->sim.now + REST_NS / 2;
	sim_after(&w->sim, REST_NS / 2, resolve_later, op);
}

/* May the operation have changed a name? */
static bool in_doubt(const struct op *op)
{
	const struct mdir *d = &op->a->dirs[op->dir];

	if (op->expect || !on_names(op->kind) || op->kind == DO_READDIR)
		return false;
	if (op->kind == DO_OPEN)
		return !d->files[op->name];
	return !(op->kind == DO_RENAME && op->dir == op->dir2 && op->name == op->name2);
}

/* ---- the judges ---- */

static void opened(struct op *op, struct cop *cop)
{
	struct handle *h = op->h;

	if (cop->res.open.created == !!*slot_of(op, op->dir, op->name)) {
		world_fail(op->a->w, op->f ? op->f->id : 0, "open says created = %d of %s",
			   cop->res.open.created, op->path);
		return;
	}
	created(op);
	*h = (struct handle){ .cf = cop->file,
			      .f = op->f,
			      .busy = true,
			      .flags = op->flags & O_ACCMODE,
			      .unclean = op->a->w->n_unclean,
			      .isolations = op->a->isolations };
	peek_file(cop->file, op->f);
	join_opened(op->a->w, op->f);
	model_opened(op);
	if (op->flags & O_TRUNC) {
		model_truncated(op, 0);
	}
}

static void check_attr(struct op *op, const struct wire_attr *at)
{
	struct world *w = op->a->w;
	struct mfile *f = op->f;

	if (op->name < 0 && !op->h) {
		if (!S_ISDIR(at->mode))
			world_fail(w, 0, "%s is no directory (%o)", op->path, at->mode);
		return;
	}
	if (!f || !S_ISREG(at->mode) || (f->mode_sure && (at->mode & 07777) != f->mode))
		world_fail(w, f ? f->id : 0, "%s has mode %o, not %o", op->path, at->mode,
			   f ? f->mode : 0);
	else
		model_size_seen(op, at->size);
	if (world_spread(w) && !w->healing) /* link counts may lag */
		return;
	if (f && !op->h && !w->failed && at->nlink != names_of(op->a, f))
		world_fail(w, f->id, "%s has %u links, not %u", op->path, at->nlink,
			   names_of(op->a, f));
}

static void judge_readlink(struct op *op, struct cop *cop)
{
	const struct wire_bytes *t = &cop->res.readlink.target;
	char want[LINK_TEXT];

	link_text(op, op->a->dirs[op->dir].link, want);
	if (t->len != strlen(want) || memcmp(t->p, want, t->len))
		world_fail(op->a->w, 0, "%s points to %.*s, not %s", op->path, (int)t->len,
			   (const char *)t->p, want);
}

static void judge_xattr(struct op *op, struct cop *cop)
{
	const struct wire_xattr_res *r = &cop->res.xattr;
	struct mfile *f = op->f;
	char want[sizeof(op->value)] = "";

	if (op->kind == DO_SETXATTR || op->kind == DO_REMOVEXATTR) {
		f->xattr = op->kind == DO_SETXATTR ? op->number : 0;
		f->xattr_unsure = false;
		return;
	}
	snprintf(want, sizeof(want), "%u", f->xattr);
	if (!f->xattr_unsure &&
	    (r->data.len != sizeof(want) || memcmp(r->data.p, want, sizeof(want))))
		world_fail(op->a->w, f->id, "the attribute of file %u is %.*s, not %s", f->id,
			   (int)r->data.len, (const char *)r->data.p, want);
}

static void judge_stat(struct op *op, struct cop *cop)
{
	check_attr(op, &cop->attr);
}

static bool own_name(const struct op *op, const char *s, size_t n, int *bit)
{
	char full[48];

	for (int i = 0; i < N_NAMES + 3; i++) {
		bool dir = i >= N_NAMES && i < N_NAMES + 2;
		const char *base;

		if (dir)
			op_path(full, op->a, i - N_NAMES + 1, -1);
		else
			op_path(full, op->a, op->dir, i < N_NAMES ? i : NAME_LINK);
		base = strrchr(full, '/') + 1;
		if (strlen(base) == n && !memcmp(base, s, n) && (!dir || op->dir == 0)) {
			*bit = i;
			return true;
		}
	}
	return false;
}

static uint32_t should_see(const struct op *op)
{
	const struct mdir *d = &op->a->dirs[op->dir];
	uint32_t bits = 0;

	for (int i = 0; i < N_NAMES; i++)
		bits |= d->files[i] ? 1u << i : 0;
	for (int i = 1; op->dir == 0 && i <= 2; i++)
		bits |= op->a->dirs[i].there ? 1u << (N_NAMES + i - 1) : 0;
	return bits | (d->link ? 1u << (N_NAMES + 2) : 0);
}

/* Judges one part of a listing. Returns true if there is more. */
static bool judge_readdir(struct op *op, struct cop *cop)
{
	const struct wire_readdir_res *r = &cop->res.readdir;
	struct world *w = op->a->w;
	int bit;

	if (!op->size) { /* the stat has ended */
		op->size = cop->attr.ino;
		op->mode = cop->attr.gen;
		return true;
	}
	for (uint32_t i = 0; i < r->n_entries; i++) {
		const struct wire_dir_entry *e = &r->entries[i];

		op->cookie = e->cookie;
		if (own_name(op, (const char *)e->name.p, e->name.len, &bit)) {
			if (op->seen & 1u << bit)
				world_fail(w, 0, "%s lists %.*s twice", op->path, (int)e->name.len,
					   (const char *)e->name.p);
			op->seen |= 1u << bit;
		} else if (op->dir != DIR_SHARED) {
			world_fail(w, 0, "%s lists %.*s", op->path, (int)e->name.len,
				   (const char *)e->name.p);
		}
	}
	if (!r->end)
		return !w->failed;
	if (op->seen != should_see(op))
		world_fail(w, 0, "%s lists names %x, not %x", op->path, op->seen, should_see(op));
	return false;
}

static void judge_attr_change(struct op *op, struct cop *cop)
{
	struct mfile *f = op->f;
	const struct wire_attr *at = &cop->res.attr.at;

	if (op->kind == DO_CHMOD) {
		f->mode = op->mode;
		f->mode_sure = true;
	}
	if (op->kind == DO_CHMOD ? (at->mode & 07777) != op->mode : at->mtime != op->mtime)
		world_fail(op->a->w, f->id, "%s of file %u answers mode %o, mtime %lld",
			   do_names[op->kind], f->id, at->mode, (long long)at->mtime);
}

/* The memory between the pieces must not have changed. */
static void check_guards(struct op *op)
{
	for (size_t i = 0; i < op->mem_len; i++) {
		size_t skip = 0;

		for (size_t k = 0; k < op->n_iov && !skip; k++)
			if (op->mem + i == op->iov[k].iov_base)
				skip = op->iov[k].iov_len;
		if (skip) {
			i += skip - 1;
		} else if (op->mem[i] != POISON) {
			world_fail(op->a->w, op->f->id, "a read wrote beside its memory");
			return;
		}
	}
}

static void judge_read(struct op *op, int64_t result)
{
	if ((uint64_t)result > op->total)
		world_fail(op->a->w, op->f->id, "a read of %llu bytes returned %lld",
			   (unsigned long long)op->total, (long long)result);
	else if (!op->f->unchecked)
		model_read_end(op, (uint64_t)result);
	check_guards(op);
}

static void judge_ok(struct op *op, struct cop *cop, int64_t result)
{
	struct mfile *f = op->f;

	switch (op->kind) {
	case DO_OPEN:
		opened(op, cop);
		break;
	case DO_READ:
		judge_read(op, result);
		break;
	case DO_WRITE:
		model_write_end(op, true);
		if ((uint64_t)result != op->total)
			world_fail(op->a->w, f->id, "a write of %llu bytes returned %lld",
				   (unsigned long long)op->total, (long long)result);
		break;
	case DO_FSYNC:
		model_synced(op);
		break;
	case DO_CLOSE:
		model_closed(op);
		break;
	case DO_TRUNCATE:
		model_truncated(op, op->size);
		actor_follow(op);
		break;
	case DO_STAT:
	case DO_FSTAT:
		judge_stat(op, cop);
		break;
	case DO_CHMOD:
	case DO_UTIMENS:
		judge_attr_change(op, cop);
		break;
	case DO_READLINK:
		judge_readlink(op, cop);
		break;
	case DO_SETXATTR:
	case DO_GETXATTR:
	case DO_REMOVEXATTR:
		judge_xattr(op, cop);
		break;
	case DO_BYE:
	case DO_READDIR:
		break;
	default:
		name_changed(op);
		break;
	}
}

/* Does it change a database? A database whose disk fails can still be read. */
static bool changes_database(const struct op *op)
{
	switch (op->kind) {
	case DO_READ:
	case DO_WRITE:
	case DO_STAT:
	case DO_FSTAT:
	case DO_READDIR:
	case DO_READLINK:
	case DO_GETXATTR:
	case DO_COPY:
	case DO_SEEK:
		return false;
	default:
		return true;
	}
}

/* A server has restarted, or the client has no session there yet: the server stores something
 * before it executes the operation. */
static bool may_claim(const struct op *op)
{
	const struct world *w = op->a->w;

	return w->n_starts > w->conf.n_targets || w->enabled[FAULT_DEATH] ||
	       w->enabled[FAULT_REPLACED];
}

/* Disk errors are allowed where disks fail or a power loss took data. */
bool op_excused(const struct op *op, int64_t e)
{
	const struct world *w = op->a->w;
	bool disk = w->enabled[FAULT_DISK];
	uint32_t isolations = op->h && op->h->cf ? op->h->isolations : 0;

	if (op->from)
		isolations = MIN(isolations, op->from->isolations);
	if ((e == -EIO || e == -ESTALE) &&
	    op->a->isolations != isolations) /* its session is lost */
		return true;
	if ((e == -EIO || e == -ENOSPC) && w->enabled[FAULT_META] &&
	    (changes_database(op) || may_claim(op)))
		return true;
	if (e == -ENOSPC)
		return w->enabled[FAULT_FULL] &&
		       (op->kind == DO_WRITE || op->kind == DO_TRUNCATE || op->kind == DO_OPEN ||
			op->kind == DO_COPY || op->kind == DO_ALLOCATE);
	if (e != -EIO)
		return false;
	switch (op->kind) {
	case DO_READ:
	case DO_WRITE:
		return disk || op->f->damaged;
	case DO_TRUNCATE:
	case DO_OPEN:
	case DO_STAT:
	case DO_FSTAT:
		return disk;
	case DO_RENAME: /* over another file: reports that its own unsynced data are lost */
		return disk || op->f->damaged;
	case DO_FSYNC:
	case DO_CLOSE:
		return disk || op->h->unclean != w->n_unclean || op->f->damaged;
	case DO_COPY:
	case DO_ALLOCATE:
	case DO_SEEK:
		return copies_excused(op);
	default:
		return false;
	}
}

/* Updates the model after an error that is allowed. */
static void failed(struct op *op)
{
	switch (op->kind) {
	case DO_WRITE:
		model_write_end(op, false);
		break;
	case DO_FSYNC:
	case DO_CLOSE:
		model_forgiven(op->f, op->a);
		break;
	case DO_TRUNCATE:
		stop_checking(op);
		break;
	case DO_COPY:
	case DO_ALLOCATE:
	case DO_SEEK:
		if (copies_failed(op))
			stop_checking(op);
		break;
	case DO_OPEN:
		if (op->flags & O_TRUNC)
			stop_checking(op);
		break;
	case DO_CHMOD:
		op->f->mode_sure = false;
		break;
	case DO_SETXATTR:
	case DO_REMOVEXATTR:
		op->f->xattr_unsure = true;
		break;
	default:
		break;
	}
}

static void judge_error(struct op *op, int64_t e)
{
	struct world *w = op->a->w;
	uint64_t took = w->sim.now - op->began;

	if (is_network_error(e) && took >= (w->conf.timeout_s - 1) * NSEC_PER_SEC) {
		w->count->network_errors++;
		op->a->rest_until = w->sim.now + REST_NS;
	} else if (!op_excused(op, e)) {
		world_fail(w, op->f ? op->f->id : 0, "%s %s %s: %s (%lld) after %.3f s",
			   do_names[op->kind], op->path, op->path2, error_text((int)e),
			   (long long)e, (double)took / 1e9);
		return;
	}
	failed(op);
}

void op_judge(struct op *op, struct cop *cop)
{
	struct world *w = op->a->w;
	int64_t result = cop->result;
	bool more = false, doubt = false;

	sim_trace(&w->sim, SIM_TEST + DO_KINDS + op->kind, op->a->node->id, (uint64_t)result);
	note_op(op, result);
	if (op->resolving) {
		cop_free(cop);
		resolved(op, result);
		return;
	}
	op->result = result;
	if (op->expect && op_expected(op, result))
		w->count->copies_refused += op->kind == DO_COPY;
	else if (result < 0 && !(op->kind == DO_SEEK && result == -ENXIO))
		judge_error(op, result);
	else if (op->expect)
		world_fail(w, op->f ? op->f->id : 0, "%s %s %s succeeded, not %s",
			   do_names[op->kind], op->path, op->path2, error_text(op->expect));
	else if (op->kind == DO_READDIR)
		more = judge_readdir(op, cop);
	else if (copies_kind(op->kind))
		copies_judge(op, result);
	else
		judge_ok(op, cop, result);
	if (result >= 0 && (op->kind == DO_FSYNC || on_names(op->kind) || op->kind == DO_TRUNCATE))
		faults_after_sync(w, op->kind);
	doubt = result < 0 && !op_expected(op, result) && in_doubt(op) && !w->failed;
	if (op->kind == DO_CLOSE)
		*op->h = (struct handle){ 0 };
	cop_free(cop);
	if (more)
		launch(op);
	else if (doubt)
		op_resolve(op);
	else
		op_free(op);
}

/* The client died: the outcome is in doubt. The memory of the operation is leaked. An operation
 * on names stays busy and is looked up when the client is back. */
void op_abandon(struct op *op)
{
	struct actor *a = op->a;

	if (!op->busy)
		return;
	note_op(op, -ESHUTDOWN);
	if (op->kind == DO_OPEN && !in_doubt(op) && op->f && (op->flags & O_TRUNC))
		stop_checking(op);
	else if (op->kind != DO_OPEN)
		failed(op);
	count_out(op);
	op->mem = NULL;
	if (op->resolving || in_doubt(op)) {
		if (!op->resolving)
			op->ended = a->w->sim.now;
		op->resolving = true;
		op->h = NULL;
		a->name_busy = true; /* until the outcome is known */
		return;
	}
	*op = (struct op){ .a = a };
}
