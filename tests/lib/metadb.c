#include <ftw.h>

#include "metadb.h"

static uint64_t metadb_now(struct env *e)
{
	return container_of(e, struct metadb, env)->clock += 10;
}

static void metadb_random(struct env *e, void *p, size_t n)
{
	(void)e;
	memset(p, 7, n);
}

static int metadb_loop_init(struct env *e, struct loop *l)
{
	(void)e;
	(void)l;
	return 0;
}

static void metadb_loop_fini(struct env *e, struct loop *l)
{
	(void)e;
	(void)l;
}

static int metadb_worker_start(struct env *e, struct loop *l, const char *name, struct worker **w)
{
	(void)l;
	(void)name;
	*w = &container_of(e, struct metadb, env)->worker;
	list_init(&(*w)->jobs);
	return 0;
}

static void metadb_worker_submit(struct worker *w, struct job *j)
{
	list_push(&w->jobs, &j->link);
}

static void metadb_worker_stop(struct worker *w)
{
	struct list *it;

	while ((it = list_pop(&w->jobs))) {
		struct job *j = list_entry(it, struct job, link);

		j->run(j);
		j->done(j);
	}
}

static const struct clock_ops metadb_clock = {
	.now = metadb_now,
	.wall = metadb_now,
	.random = metadb_random,
};

static const struct sock_ops metadb_sock = {
	.loop_init = metadb_loop_init,
	.loop_fini = metadb_loop_fini,
};

static const struct exec_ops metadb_exec = {
	.worker_start = metadb_worker_start,
	.worker_submit = metadb_worker_submit,
	.worker_stop = metadb_worker_stop,
};

int metadb_open(struct metadb *f)
{
	return meta_open(&f->loop, &f->o, &f->m, f->err, sizeof(f->err));
}

static char metadb_litter[64]; /* the latest directory; removed when a test fails */

static int metadb_rm(const char *path, const struct stat *st, int type, struct FTW *w)
{
	(void)st;
	(void)type;
	(void)w;
	return remove(path);
}

void metadb_sweep(void)
{
	if (metadb_litter[0])
		nftw(metadb_litter, metadb_rm, 8, FTW_DEPTH | FTW_PHYS);
	metadb_litter[0] = 0;
}

bool metadb_mapped(void)
{
	return getenv("SHEAF_TEST_META_MAPPED") != NULL;
}

void metadb_prepare(struct metadb *f)
{
	memset(f, 0, sizeof(*f));
	f->env.clock = &metadb_clock;
	f->env.sock = &metadb_sock;
	f->env.exec = &metadb_exec;
	CHECK_EQ(loop_init(&f->loop, &f->env), 0);
	f->loop.on_tmpfs = metadb_mapped();
	arena_init(&f->arena, 0);
	snprintf(f->dir, sizeof(f->dir), "%s/sheaf-meta-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	CHECK(mkdtemp(f->dir));
	if (!metadb_litter[0])
		atexit(metadb_sweep);
	memcpy(metadb_litter, f->dir, sizeof(metadb_litter));
	memset(f->o.fs.b, 0xf5, sizeof(f->o.fs.b));
	f->o.dir = f->dir;
	f->o.root = true;
	f->o.nosync = true;
}

void metadb_start(struct metadb *f)
{
	metadb_prepare(f);
	CHECK_EQ(metadb_open(f), 0);
}

void metadb_reopen(struct metadb *f)
{
	meta_close(f->m);
	f->m = NULL;
	CHECK_EQ(metadb_open(f), 0);
}

void metadb_end(struct metadb *f)
{
	meta_close(f->m);
	arena_destroy(&f->arena);
	loop_fini(&f->loop);
	metadb_sweep();
}

void metadb_reset(struct metadb *f)
{
	arena_reset(&f->arena);
}

struct job *metadb_run_one(struct metadb *f)
{
	struct list *it = list_pop(&f->worker.jobs);
	struct job *j;

	if (!it)
		return NULL;
	j = list_entry(it, struct job, link);
	f->n_jobs++;
	j->run(j);
	return j;
}

void metadb_pump(struct metadb *f)
{
	struct job *j;

	do {
		while ((j = metadb_run_one(f)))
			j->done(j);
		loop_run_ready(&f->loop);
	} while (!list_empty(&f->worker.jobs) || !list_empty(&f->loop.runnable));
}

static bool call_step(struct req *q)
{
	struct call *c = container_of(q, struct call, q);

	if (q->state == 0) {
		req_goto(q, 1);
		meta_submit(c->f->m, &c->c, q);
		return true;
	}
	c->done = true;
	c->error = q->error;
	req_fini(q);
	return false;
}

const struct req_ops call_ops = { .name = "call", .step = call_step, .on_error = 1, .n_states = 2 };

void call_submit(struct metadb *f, struct call *c, const struct wire_record *rec)
{
	memset(c, 0, sizeof(*c));
	c->f = f;
	c->c.rec = *rec;
	c->c.arena = &f->arena;
	req_init(&c->q, &f->loop, &call_ops, 0);
	req_run(&c->q);
}

struct wire_record_res metadb_apply(struct metadb *f, const struct wire_record *rec)
{
	struct call c;

	call_submit(f, &c, rec);
	metadb_pump(f);
	CHECK(c.done);
	CHECK_EQ(c.error, 0);
	return c.c.res;
}

const struct wire_handle metadb_root = { META_ROOT_INO, META_ROOT_GEN };

struct wire_handle attr_handle(const struct wire_attr *a)
{
	return (struct wire_handle){ a->ino, a->gen };
}

struct wire_record rec_name(struct metadb *f, uint32_t kind, struct wire_handle dir,
			    const char *name)
{
	static uint32_t targets[] = { 3, 1, 2 };
	struct wire_record r = { .kind = kind, .dir = dir, .mode = 0755, .name = wire_text(name) };

	r.time = (int64_t)(f->clock += 1000);
	if (kind == REC_CREATE || kind == REC_MKDIR)
		r.new_ino = meta_new_ino(f->m);
	if (kind == REC_CREATE)
		r.layout = (struct wire_layout_rec){ .version = 1,
						     .unit = 65536,
						     .obj_gen = 1,
						     .n_targets = 3,
						     .targets = targets };
	return r;
}

struct wire_record rec_on(struct metadb *f, uint32_t kind, struct wire_handle h)
{
	struct wire_record r = { .kind = kind, .h = h };

	r.time = (int64_t)(f->clock += 1000);
	return r;
}

struct wire_record_res metadb_name(struct metadb *f, uint32_t kind, struct wire_handle dir,
				   const char *name)
{
	struct wire_record r = rec_name(f, kind, dir, name);

	return metadb_apply(f, &r);
}

struct wire_handle metadb_make(struct metadb *f, uint32_t kind, struct wire_handle dir,
			       const char *name)
{
	struct wire_record_res res = metadb_name(f, kind, dir, name);

	CHECK_EQ(res.status, 0);
	CHECK(res.created);
	return attr_handle(&res.at);
}

int metadb_rename(struct metadb *f, struct wire_handle d1, const char *n1, struct wire_handle d2,
		  const char *n2, uint32_t flags)
{
	struct wire_record r = rec_name(f, REC_RENAME, d1, n1);

	r.dir2 = d2;
	r.name2 = wire_text(n2);
	r.flags = flags;
	return metadb_apply(f, &r).status;
}

uint64_t metadb_hold(struct metadb *f, uint64_t pair, struct wire_record *part)
{
	struct wire_record r = rec_on(f, REC_PREPARE, (struct wire_handle){ 0 });
	uint8_t bytes[PART_MAX];
	struct xdr x;

	xdr_encoder(&x, bytes, sizeof(bytes));
	CHECK(xdr_wire_record(&x, part));
	r.pair = pair;
	r.new_ino = meta_new_ino(f->m);
	r.data = (struct wire_bytes){ (uint32_t)xdr_used(&x), bytes };
	CHECK_EQ(metadb_apply(f, &r).status, 0);
	return r.new_ino;
}

void metadb_finish(struct metadb *f, uint64_t pair, uint32_t flags)
{
	struct wire_record r = rec_on(f, REC_FINISH, (struct wire_handle){ 0 });

	r.pair = pair;
	r.flags = flags;
	CHECK_EQ(metadb_apply(f, &r).status, 0);
}

struct meta_node metadb_node(struct metadb *f, struct wire_handle h)
{
	struct meta_node n;

	memset(&n, 0, sizeof(n));
	CHECK_EQ(meta_get(f->m, &h, &n, &f->arena), 0);
	return n;
}

int metadb_lookup(struct metadb *f, struct wire_handle dir, const char *name,
		  struct wire_handle *out)
{
	struct wire_bytes n = wire_text(name);
	uint32_t type;

	return meta_lookup(f->m, &dir, &n, out, &type);
}

static bool count_row(void *arg, const struct meta_row *r)
{
	(void)r;
	++*(unsigned *)arg;
	return true;
}

unsigned metadb_rows(struct metadb *f, enum meta_rows which)
{
	unsigned n = 0;

	CHECK_EQ(meta_each_row(f->m, which, count_row, &n), 0);
	return n;
}

int metadb_readdir(struct metadb *f, struct wire_handle dir, uint64_t cookie, uint32_t max,
		   size_t max_bytes, struct wire_readdir_res *res)
{
	struct wire_readdir_args ask = { dir, cookie, max, false };

	return meta_readdir(f->m, &ask, max_bytes, res, &f->arena);
}
