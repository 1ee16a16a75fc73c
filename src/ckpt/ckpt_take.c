/* One checkpoint: all processes meet, process 0 makes a directory for it, each writes and syncs its
 * image, and process 0 writes the manifest. Until its rename the checkpoint does not exist.
 *
 * Threads: that of the call. Errors: on any of them, in any process, nothing has changed but files
 * that the next checkpoint removes. */
#include <fcntl.h>
#include <time.h>

#include "ckpt/ckpt_impl.h"

#define TRIES 3 /* of data that a restarted server had lost */

struct arrival {
	int32_t status;
	bool is_busy; /* still writes the last one, and refuses another */
	uint64_t digest;
	uint64_t baseline; /* changes since that one are known; 0: of none */
	uint64_t full, changed; /* bytes of data */
	uint64_t full_room, changed_room; /* in one file, with the table */
	char why[CKPT_WHY];
};

/* ---- the image ---- */

static int write_table(struct sheaf_file *f, const struct ckpt_plan *p, struct ckpt_table *t,
		       struct ckpt_image *out)
{
	size_t len;
	ssize_t put;
	void *buf;
	int r = ckpt_table_encode(t, &buf, &len);

	if (r)
		return r;
	put = sheaf_pwrite(f, buf, len, (off_t)(p->base + t->data));
	*out = (struct ckpt_image){
		.base = p->base, .data = t->data, .table = len, .table_sum = crc32c(0, buf, len)
	};
	free(buf);
	if (put < 0 || (size_t)put < len) {
		r = put < 0 ? (int)put : -ENOSPC;
		return ckpt_fail(r, "writing the image: %s", sheaf_strerror(r));
	}
	return 0;
}

static int write_once(struct sheaf_ckpt *c, const char *path, const struct ckpt_plan *p,
		      struct ckpt_table *t, bool kept, struct ckpt_image *out)
{
	struct sheaf_file *f;
	int r = sheaf_open(c->fs, path, O_WRONLY | O_CREAT, 0600, NULL, &f), end;

	if (r)
		return ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	if (kept)
		r = ckpt_image_write_kept(f, p->base, c->track, t->runs, t->n_runs,
					  c->o.flags & SHEAF_CKPT_INCREMENTAL, c->o.rate, t->sums);
	else
		r = ckpt_image_write(f, p->base, &c->pieces, t->runs, t->n_runs,
				     c->o.flags & SHEAF_CKPT_FORK ? c->o.rate : 0, t->sums);
	if (!r)
		r = write_table(f, p, t, out);
	if (!r) {
		r = sheaf_fsync(f);
		if (r)
			ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	}
	end = sheaf_close(f);
	if (!r && end)
		r = ckpt_fail(end, "%s: %s", path, sheaf_strerror(end));
	return r;
}

int ckpt_write(struct sheaf_ckpt *c, const struct ckpt_plan *p, const struct ckpt_run *runs,
	       size_t n_runs, bool kept, struct ckpt_image *out)
{
	struct ckpt_table t = { .rank = (uint32_t)c->x.comm.rank,
				.n = (uint32_t)c->x.comm.n,
				.number = p->number,
				.stream = c->pieces.bytes,
				.pieces = c->pieces,
				.runs = (struct ckpt_run *)runs,
				.n_runs = n_runs };
	char path[CKPT_PATH];
	int r = -EIO;

	for (size_t i = 0; i < n_runs; i++)
		t.data += runs[i].len;
	t.n_sums = ckpt_sums_of(t.data);
	t.sums = calloc(t.n_sums + 1, sizeof(*t.sums));
	if (!t.sums)
		return ckpt_fail(-ENOMEM, "out of memory");
	ckpt_image_path(&c->store, p->number, p->one_file, t.rank, path);
	for (int i = 0; i < (kept ? 1 : TRIES) && r == -EIO; i++)
		r = write_once(c, path, p, &t, kept, out);
	free(t.sums);
	return r;
}

/* ---- process 0 ---- */

/* The first process that failed, as an error of all. */
static int any_failed(const struct arrival *a, int n)
{
	for (int i = 0; i < n; i++) {
		if (a[i].is_busy)
			return ckpt_fail(-EBUSY, "the last checkpoint is still being written");
		if (a[i].status)
			return ckpt_fail(a[i].status, "process %d: %s", i, a[i].why);
		if (a[i].digest != a[0].digest)
			return ckpt_fail(
				-EINVAL,
				"process %d registered other pieces than process 0: all register "
				"the same names in the same order, with global arrays of the same "
				"sizes",
				i);
	}
	return 0;
}

static int make_file(struct sheaf_ckpt *c, const char *path)
{
	struct sheaf_file *f;
	int r = sheaf_open(c->fs, path, O_WRONLY | O_CREAT, 0600, NULL, &f);

	return r ? r : sheaf_close(f);
}

static int make_place(struct sheaf_ckpt *c, struct ckpt_plan *p)
{
	char path[CKPT_PATH];
	int r;

	for (;;) {
		p->number = c->next++;
		r = ckpt_store_reserve(&c->store, p->number);
		if (r)
			return r;
		ckpt_store_path(&c->store, p->number, "", path);
		r = sheaf_mkdir(c->fs, path, 0700);
		if (r != -EEXIST)
			break;
	}
	if (!r && p->one_file) {
		ckpt_image_path(&c->store, p->number, true, 0, path);
		r = make_file(c, path);
	}
	if (!r && c->o.flags & SHEAF_CKPT_ASYNC) {
		ckpt_store_path(&c->store, p->number, "parts", path);
		r = make_file(c, path);
	}
	return r ? ckpt_fail(r, "%s: %s", path, sheaf_strerror(r)) : 0;
}

/* Only what changed is written where all processes know it, since the newest complete one, and
 * where that saves much. */
static uint64_t choose_since(struct sheaf_ckpt *c, const struct arrival *a)
{
	uint64_t full = 0, changed = 0;

	for (int i = 0; i < c->x.comm.n; i++) {
		if (!c->newest || a[i].baseline != c->newest)
			return 0;
		full += a[i].full;
		changed += a[i].changed;
	}
	return c->depth < c->o.chain && changed < full / 4 * 3 ? c->newest : 0;
}

/* Decides where each process writes. */
static void make_plans(struct sheaf_ckpt *c, const struct arrival *a, struct ckpt_plan *plans)
{
	struct ckpt_plan p = { .one_file = ckpt_form_choose(c), .since = choose_since(c, a) };
	uint64_t at = 0;

	p.status = any_failed(a, c->x.comm.n);
	if (!p.status)
		p.status = ckpt_lock_check(c);
	if (!p.status)
		p.status = make_place(c, &p);
	if (p.status)
		snprintf(p.why, sizeof(p.why), "%s", sheaf_ckpt_why());
	for (int i = 0; i < c->x.comm.n; i++) {
		uint64_t room = p.since ? a[i].changed_room : a[i].full_room;

		plans[i] = p;
		plans[i].base = at;
		if (p.one_file)
			at += (room + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN;
	}
}

/* One that has only changes needs the one before, down to a full one. */
static int is_there(struct sheaf_ckpt *c, uint64_t number)
{
	int r = ckpt_store_chain(&c->store, number);
	char why[CKPT_WHY];

	snprintf(why, sizeof(why), "%s", sheaf_ckpt_why());
	return r ? ckpt_fail(r, "checkpoint %llu, on which this one depends: %s",
			     (unsigned long long)number, why) :
		   0;
}

static int commit(struct sheaf_ckpt *c, const struct ckpt_plan *p, const struct ckpt_done *all,
		  double seconds)
{
	struct ckpt_manifest m = { .number = p->number,
				   .since = p->since,
				   .n = (uint32_t)c->x.comm.n,
				   .one_file = p->one_file,
				   .taken = time(NULL),
				   .seconds = seconds };
	uint64_t bytes = 0;
	int r;

	m.images = calloc(m.n, sizeof(*m.images));
	if (!m.images)
		return ckpt_fail(-ENOMEM, "out of memory");
	for (uint32_t i = 0; i < m.n; i++) {
		m.images[i] = all[i].image;
		bytes += all[i].image.data;
	}
	if (!p->since)
		ckpt_form_measured(c, p->one_file, bytes, seconds);
	memcpy(m.rate, c->rate, sizeof(m.rate));
	r = ckpt_lock_check(c);
	if (!r && p->since)
		r = is_there(c, p->since);
	if (!r)
		r = ckpt_store_commit(&c->store, &m);
	ckpt_manifest_free(&m);
	return r;
}

int ckpt_finish(struct sheaf_ckpt *c, const struct ckpt_plan *p, const struct ckpt_done *all,
		double seconds)
{
	uint32_t keep = ckpt_store_kept(&c->store);
	char path[CKPT_PATH];
	int r = 0;

	for (int i = 0; !r && i < c->x.comm.n; i++)
		if (all[i].status)
			r = ckpt_fail(all[i].status, "process %d: %s", i, all[i].why);
	if (!r)
		r = commit(c, p, all, seconds);
	if (r) {
		char why[CKPT_WHY];

		snprintf(why, sizeof(why), "%s", sheaf_ckpt_why());
		ckpt_store_drop(&c->store, p->number);
		c->newest = 0; /* the next one is full */
		return ckpt_fail(r, "%s", why);
	}
	c->newest = p->number;
	c->fulls += !p->since;
	c->depth = p->since ? c->depth + 1 : 0;
	ckpt_store_path(&c->store, p->number, "parts", path);
	if (c->o.flags & SHEAF_CKPT_ASYNC)
		sheaf_unlink(c->fs, path);
	if (ckpt_store_prune(&c->store, keep ? keep : c->o.keep) < 0)
		ckpt_say(c, "an old checkpoint could not be removed: %s", sheaf_ckpt_why());
	return 0;
}

/* ---- all processes ---- */

static int meet(struct sheaf_ckpt *c, const struct arrival *mine, struct ckpt_plan *p)
{
	int n = c->x.comm.n, ms = (int)c->o.timeout_ms, r;
	/* process 0 may first have to wait for the images of the last checkpoint */
	bool may_be_late = (c->o.flags & SHEAF_CKPT_ASYNC) && !(c->o.flags & SHEAF_CKPT_REFUSE);
	struct ckpt_plan *plans;
	struct arrival *all;

	if (c->x.comm.rank) {
		r = ckpt_up(&c->x, mine, sizeof(*mine), NULL, ms);
		if (!r)
			r = ckpt_down(&c->x, p, sizeof(*p), true,
				      may_be_late ? ckpt_long_ms(c) : ms);
	} else {
		all = calloc((size_t)n, sizeof(*all));
		plans = calloc((size_t)n, sizeof(*plans));
		r = all && plans ? ckpt_up(&c->x, mine, sizeof(*mine), all, ms) :
				   ckpt_fail(-ENOMEM, "out of memory");
		if (!r) {
			make_plans(c, all, plans);
			r = ckpt_down(&c->x, plans, sizeof(*plans), true, ms);
			*p = plans[0];
		}
		free(all);
		free(plans);
	}
	if (!r && p->status)
		r = ckpt_fail(p->status, "%s", p->why);
	return r;
}

/* Tells process 0 what this one has written; all get the same result. */
static int conclude(struct sheaf_ckpt *c, const struct ckpt_plan *p, struct ckpt_done *mine,
		    double seconds)
{
	struct ckpt_done result = { .status = 0 }, *all;
	int ms = ckpt_long_ms(c), r;

	if (c->x.comm.rank) {
		r = ckpt_up(&c->x, mine, sizeof(*mine), NULL, ms);
	} else {
		all = calloc((size_t)c->x.comm.n, sizeof(*all));
		r = all ? ckpt_up(&c->x, mine, sizeof(*mine), all, ms) :
			  ckpt_fail(-ENOMEM, "out of memory");
		if (r)
			ckpt_store_drop(&c->store, p->number);
		else
			result.status = ckpt_finish(c, p, all, seconds);
		snprintf(result.why, sizeof(result.why), "%s", sheaf_ckpt_why());
		free(all);
	}
	if (!r)
		r = ckpt_down(&c->x, &result, sizeof(result), false, ms);
	return !r && result.status ? ckpt_fail(result.status, "%s", result.why) : r;
}

/* ---- what is written ---- */

struct contents {
	struct ckpt_run *runs;
	size_t n;
	uint64_t bytes;
};

static int whole(struct sheaf_ckpt *c, struct contents *v)
{
	v->runs = malloc(sizeof(*v->runs));
	if (!v->runs)
		return ckpt_fail(-ENOMEM, "out of memory");
	*v->runs = (struct ckpt_run){ 0, c->pieces.bytes };
	v->n = 1;
	v->bytes = c->pieces.bytes;
	return 0;
}

/* What this process would write, if all were full or had only changes. */
static void prepare(struct sheaf_ckpt *c, struct arrival *a, struct contents *changed)
{
	a->digest = ckpt_pieces_digest(&c->pieces);
	a->full = c->pieces.bytes;
	a->full_room = a->full + ckpt_table_room(&c->pieces, 1, a->full);
	if ((c->o.flags & SHEAF_CKPT_INCREMENTAL || ckpt_copies(c)) && !c->track)
		a->status = ckpt_track_new(&c->pieces, c->o.copy_bytes,
					   c->o.flags & SHEAF_CKPT_INCREMENTAL,
					   c->o.flags & SHEAF_CKPT_MPROTECT, &c->track);
	if (!a->status && c->baseline) {
		a->status = ckpt_track_runs(c->track, false, &changed->runs, &changed->n,
					    &changed->bytes);
		a->baseline = c->baseline;
		a->changed = changed->bytes;
		a->changed_room =
			changed->bytes + ckpt_table_room(&c->pieces, changed->n, changed->bytes);
	}
	if (a->status)
		snprintf(a->why, sizeof(a->why), "%s", sheaf_ckpt_why());
}

/* From here on the memory may change (in the background), or changes are seen. */
static int begin(struct sheaf_ckpt *c, const struct ckpt_plan *p)
{
	bool keeps = c->o.flags & SHEAF_CKPT_INCREMENTAL;
	int r = c->track ? ckpt_track_begin(c->track, !p->since, ckpt_copies(c)) : 0;

	c->baseline = !r && keeps ? p->number : 0;
	return r;
}

static int write_now(struct sheaf_ckpt *c, const struct ckpt_plan *p, const struct contents *v,
		     int status, uint64_t begun)
{
	struct ckpt_done mine = { .status = status };
	int r;

	if (!status)
		mine.status = ckpt_write(c, p, v->runs, v->n, false, &mine.image);
	if (mine.status)
		snprintf(mine.why, sizeof(mine.why), "%s", sheaf_ckpt_why());
	r = conclude(c, p, &mine, (double)(time_now() - begun) / 1e9);
	c->cost.total_s = (double)(time_now() - begun) / 1e9;
	c->cost.number = r ? 0 : p->number;
	c->cost.bytes = mine.image.data;
	if (c->track)
		ckpt_track_cost(c->track, &c->cost);
	return r;
}

int sheaf_ckpt_take(struct sheaf_ckpt *c)
{
	bool async = c->o.flags & SHEAF_CKPT_ASYNC, refuse = c->o.flags & SHEAF_CKPT_REFUSE;
	struct arrival mine = { .is_busy = refuse && ckpt_background_is_busy(c) };
	struct contents changed = { .n = 0 }, all = { .n = 0 }, *v = &all;
	uint64_t begun = time_now();
	struct ckpt_plan p;
	int r, status;

	c->is_fixed = true;
	ckpt_exchange_call(&c->x);
	if (!mine.is_busy) {
		ckpt_background_join(c); /* its failure was printed; the next one is full */
		prepare(c, &mine, &changed);
	}
	r = meet(c, &mine, &p);
	if (r) {
		free(changed.runs);
		return r;
	}
	c->is_pending = false;
	c->result = 0;
	v = p.since ? &changed : &all;
	status = p.since ? 0 : whole(c, v);
	if (!status)
		status = begin(c, &p);
	if (async) {
		ckpt_background_start(c, &p, v->runs, v->n, v->bytes, status, begun);
		v->runs = NULL;
	} else {
		r = write_now(c, &p, v, status, begun);
	}
	free(changed.runs);
	free(all.runs);
	c->cost.one_file = p.one_file;
	c->cost.blocked_s = (double)(time_now() - begun) / 1e9;
	ckpt_trigger_taken(c);
	return r;
}

/* All get the result of process 0. After a timeout processes may differ in whether one is pending,
 * so all take part in any case. */
int sheaf_ckpt_wait(struct sheaf_ckpt *c)
{
	struct ckpt_done result = { .status = 0 };
	int r;

	ckpt_exchange_call(&c->x);
	r = ckpt_background_join(c);
	if (c->is_pending && r) {
		result.status = r;
		snprintf(result.why, sizeof(result.why), "%s", sheaf_ckpt_why());
	}
	c->is_pending = false;
	r = ckpt_down(&c->x, &result, sizeof(result), false, ckpt_long_ms(c));
	return !r && result.status ? ckpt_fail(result.status, "%s", result.why) : r;
}
