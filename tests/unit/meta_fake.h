/* A metadata database in a temporary directory under a fake environment: the clock advances with
 * every call, and the jobs of the worker wait in a list until the test runs them. So the test
 * decides which records form one transaction and where a crash happens. */
#ifndef SHEAF_META_FAKE_H
#define SHEAF_META_FAKE_H

#include <ftw.h>
#include <unistd.h>

#include "meta/meta.h"
#include "test.h"

struct worker {
	struct list jobs;
};

struct fake {
	struct env env;
	struct loop loop;
	struct meta *m;
	struct meta_opts o;
	char dir[64];
	char err[512];
	struct arena arena; /* memory of results; reset by fake_reset */
	struct worker worker;
	uint64_t clock;
	unsigned n_jobs; /* jobs run so far, one transaction each */
};

struct call {
	struct req q;
	struct change c;
	struct fake *f;
	bool done;
	int error;
};

static inline uint64_t fake_now(struct env *e)
{
	return container_of(e, struct fake, env)->clock += 10;
}

static inline void fake_random(struct env *e, void *p, size_t n)
{
	(void)e;
	memset(p, 7, n);
}

static inline int fake_loop_init(struct env *e, struct loop *l)
{
	(void)e;
	(void)l;
	return 0;
}

static inline void fake_loop_fini(struct env *e, struct loop *l)
{
	(void)e;
	(void)l;
}

static inline int fake_worker_start(struct env *e, struct loop *l, const char *name,
				    struct worker **w)
{
	(void)l;
	(void)name;
	*w = &container_of(e, struct fake, env)->worker;
	list_init(&(*w)->jobs);
	return 0;
}

static inline void fake_worker_submit(struct worker *w, struct job *j)
{
	list_push(&w->jobs, &j->link);
}

static inline void fake_worker_stop(struct worker *w)
{
	struct list *it;

	while ((it = list_pop(&w->jobs))) {
		struct job *j = list_entry(it, struct job, link);

		j->run(j);
		j->done(j);
	}
}

static const struct clock_ops fake_clock = {
	.now = fake_now,
	.wall = fake_now,
	.random = fake_random,
};
static const struct sock_ops fake_sock = {
	.loop_init = fake_loop_init,
	.loop_fini = fake_loop_fini,
};
static const struct exec_ops fake_exec = {
	.worker_start = fake_worker_start,
	.worker_submit = fake_worker_submit,
	.worker_stop = fake_worker_stop,
};

static inline int fake_open(struct fake *f)
{
	return meta_open(&f->loop, &f->o, &f->m, f->err, sizeof(f->err));
}

static char fake_litter[64]; /* the latest directory; removed when a test fails */

static inline int fake_rm(const char *path, const struct stat *st, int type, struct FTW *w)
{
	(void)st;
	(void)type;
	(void)w;
	return remove(path);
}

static inline void fake_sweep(void)
{
	if (fake_litter[0])
		nftw(fake_litter, fake_rm, 8, FTW_DEPTH | FTW_PHYS);
	fake_litter[0] = 0;
}

#ifndef FAKE_MAPPED
#define FAKE_MAPPED false /* test_meta_*_mapped set this to true */
#endif

/* Makes a new directory without opening a database in it. */
static inline void fake_prepare(struct fake *f)
{
	memset(f, 0, sizeof(*f));
	f->env.clock = &fake_clock;
	f->env.sock = &fake_sock;
	f->env.exec = &fake_exec;
	CHECK_EQ(loop_init(&f->loop, &f->env), 0);
	f->loop.on_tmpfs = FAKE_MAPPED;
	arena_init(&f->arena, 0);
	snprintf(f->dir, sizeof(f->dir), "%s/sheaf-meta-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	CHECK(mkdtemp(f->dir));
	if (!fake_litter[0])
		atexit(fake_sweep);
	memcpy(fake_litter, f->dir, sizeof(fake_litter));
	memset(f->o.fs.b, 0xf5, sizeof(f->o.fs.b));
	f->o.dir = f->dir;
	f->o.root = true;
	f->o.nosync = true;
}

static inline void fake_start(struct fake *f)
{
	fake_prepare(f);
	CHECK_EQ(fake_open(f), 0);
}

static inline void fake_reopen(struct fake *f)
{
	meta_close(f->m);
	f->m = NULL;
	CHECK_EQ(fake_open(f), 0);
}

static inline void fake_end(struct fake *f)
{
	meta_close(f->m);
	arena_destroy(&f->arena);
	loop_fini(&f->loop);
	fake_sweep();
}

static inline void fake_reset(struct fake *f) /* releases the memory of results */
{
	arena_reset(&f->arena);
}

/* Runs one job on the fake worker. The caller calls its done(). */
static inline struct job *fake_run_one(struct fake *f)
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

static inline void fake_pump(struct fake *f)
{
	struct job *j;

	do {
		while ((j = fake_run_one(f)))
			j->done(j);
		loop_run_ready(&f->loop);
	} while (!list_empty(&f->worker.jobs) || !list_empty(&f->loop.runnable));
}

static inline bool call_step(struct req *q)
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

static const struct req_ops call_ops = {
	.name = "call", .step = call_step, .on_error = 1, .n_states = 2
};

static inline void call_submit(struct fake *f, struct call *c, const struct wire_record *rec)
{
	memset(c, 0, sizeof(*c));
	c->f = f;
	c->c.rec = *rec;
	c->c.arena = &f->arena;
	req_init(&c->q, &f->loop, &call_ops, 0);
	req_run(&c->q);
}

/* Submits the record, runs the worker and returns the result. */
static inline struct wire_record_res fake_apply(struct fake *f, const struct wire_record *rec)
{
	struct call c;

	call_submit(f, &c, rec);
	fake_pump(f);
	CHECK(c.done);
	CHECK_EQ(c.error, 0);
	return c.c.res;
}

static const struct wire_handle fake_root = { META_ROOT_INO, META_ROOT_GEN };

static inline struct wire_handle attr_handle(const struct wire_attr *a)
{
	return (struct wire_handle){ a->ino, a->gen };
}

/* A record of one directory entry, by root. */
static inline struct wire_record rec_name(struct fake *f, uint32_t kind, struct wire_handle dir,
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

/* A record of one inode, by root. */
static inline struct wire_record rec_on(struct fake *f, uint32_t kind, struct wire_handle h)
{
	struct wire_record r = { .kind = kind, .h = h };

	r.time = (int64_t)(f->clock += 1000);
	return r;
}

static inline struct wire_record_res fake_name(struct fake *f, uint32_t kind,
					       struct wire_handle dir, const char *name)
{
	struct wire_record r = rec_name(f, kind, dir, name);

	return fake_apply(f, &r);
}

static inline struct wire_handle fake_make(struct fake *f, uint32_t kind, struct wire_handle dir,
					   const char *name)
{
	struct wire_record_res res = fake_name(f, kind, dir, name);

	CHECK_EQ(res.status, 0);
	CHECK(res.created);
	return attr_handle(&res.at);
}

static inline int fake_rename(struct fake *f, struct wire_handle d1, const char *n1,
			      struct wire_handle d2, const char *n2, uint32_t flags)
{
	struct wire_record r = rec_name(f, REC_RENAME, d1, n1);

	r.dir2 = d2;
	r.name2 = wire_text(n2);
	r.flags = flags;
	return fake_apply(f, &r).status;
}

/* Prepares one part of a change over two servers; the rows it touches are held. Returns the number
 * that a new inode would get. */
static inline uint64_t fake_hold(struct fake *f, uint64_t pair, struct wire_record *part)
{
	struct wire_record r = rec_on(f, REC_PREPARE, (struct wire_handle){ 0 });
	uint8_t bytes[PART_MAX];
	struct xdr x;

	xdr_encoder(&x, bytes, sizeof(bytes));
	CHECK(xdr_wire_record(&x, part));
	r.pair = pair;
	r.new_ino = meta_new_ino(f->m);
	r.data = (struct wire_bytes){ (uint32_t)xdr_used(&x), bytes };
	CHECK_EQ(fake_apply(f, &r).status, 0);
	return r.new_ino;
}

static inline void fake_finish(struct fake *f, uint64_t pair, uint32_t flags)
{
	struct wire_record r = rec_on(f, REC_FINISH, (struct wire_handle){ 0 });

	r.pair = pair;
	r.flags = flags;
	CHECK_EQ(fake_apply(f, &r).status, 0);
}

static inline struct meta_node fake_node(struct fake *f, struct wire_handle h)
{
	struct meta_node n;

	memset(&n, 0, sizeof(n));
	CHECK_EQ(meta_get(f->m, &h, &n, &f->arena), 0);
	return n;
}

static inline int fake_lookup(struct fake *f, struct wire_handle dir, const char *name,
			      struct wire_handle *out)
{
	struct wire_bytes n = wire_text(name);
	uint32_t type;

	return meta_lookup(f->m, &dir, &n, out, &type);
}

static inline bool count_row(void *arg, const struct meta_row *r)
{
	(void)r;
	++*(unsigned *)arg;
	return true;
}

static inline unsigned fake_rows(struct fake *f, enum meta_rows which)
{
	unsigned n = 0;

	CHECK_EQ(meta_each_row(f->m, which, count_row, &n), 0);
	return n;
}

static inline int fake_readdir(struct fake *f, struct wire_handle dir, uint64_t cookie,
			       uint32_t max, size_t max_bytes, struct wire_readdir_res *res)
{
	struct wire_readdir_args ask = { dir, cookie, max, false };

	return meta_readdir(f->m, &ask, max_bytes, res, &f->arena);
}

#endif
