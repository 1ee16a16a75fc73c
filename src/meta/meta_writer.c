/* The way of a change through the writer: queue, group commit, answers.
 *
 *	loop: meta_submit -> queue		worker: batch_run (one transaction)
 *	loop: batch_done -> req_done	<-
 *
 * All changes that are queued when the worker looks are one transaction. Where a transaction is
 * cheap (memory), two batches alternate, so that the worker need not wait for the loop to report
 * the last one. Where it costs a disk flush, the next transaction waits for more changes: clients
 * that were just answered send their next request within a fraction of that time, and all share one
 * flush instead of two half-empty ones. Where transactions are as quick as waking a thread (memory,
 * or no sync), the changes of one turn of the loop are one transaction on the loop itself, until
 * transactions take longer again.
 *
 * Threads: meta_submit and batch_done run on the loop; batch_run runs on the worker, or on the loop
 * while the worker has no batch. They share the queue, `armed` and `abandoned` under the lock.
 * Buffers: a change's bytes come from its own arena and are read-only for the worker; answers are
 * in the batch's arena until batch_done has decoded them. Errors: when a transaction fails, its
 * changes are tried one by one; those that fail then get the database's errno. */
#include <sys/statvfs.h>

#include "meta/meta_state.h"

#define BATCH_MAX 4096 /* changes in one transaction; bounds its dirty pages */
#define NEARLY_FULL (1 * MIB)
#define SLOW_NS (100 * UINT64_C(1000)) /* after a slower one the next waits for more changes */
#define FAST_NS (60 * UINT64_C(1000)) /* a faster transaction may run on the loop ... */
#define FAST_TMPFS_NS \
	(200 * UINT64_C(1000)) /* ... in memory, where it waits only for the processor ... */
#define FAST_EACH_NS (10 * UINT64_C(1000)) /* ... plus this for each change in it ... */
#define FAST_RUN 64 /* ... after this score of fast ones */
#define FAST_MOST \
	(4 * FAST_RUN) /* limit of the score; a slow one costs SLOW_WEIGHT, a stuck one all */
#define SLOW_WEIGHT 8
#define STUCK_NS (5 * NSEC_PER_MSEC)
#define COPY_SPACE (2 * MIB) /* changes continue during a copy while this is left */
#define TIGHT_CHANGES 4 /* per transaction if space is tight, so that one cannot take it all */
#define GATHER_NS NSEC_PER_MSEC /* at most, and at most half the duration of the last batch */

/* ---- worker ---- */

static void change_apply(struct batch *b, struct apply *ap, struct change *c, int *rc)
{
	arena_reset(&b->m->scratch);
	c->error = 0;
	*rc = apply_bytes(ap, c->bytes, c->n_bytes, &b->arena, &c->answer, &c->n_answer);
	if (*rc == -EBADMSG) { /* not a record: nothing was changed */
		c->error = *rc;
		*rc = 0;
	}
}

static int apply_begin(struct meta *m, struct apply *ap)
{
	ap->n_locks = m->stored_locks;
	return db_error(mdb_txn_begin(m->db.env, NULL, 0, &ap->txn));
}

/* Stores the inode counter, many numbers ahead: those not used before the next stop are lost. */
static int put_next(struct meta *m, struct apply *ap)
{
	struct key k = key_next(m->partition);

	if (ap->next_ino <= m->stored_next) {
		ap->next_ino = m->stored_next;
		return 0;
	}
	ap->next_ino += NUMBERS_AHEAD;
	return row_put(&m->db, ap->txn, T_SYS, &k, &ap->next_ino, sizeof(ap->next_ino));
}

/* LMDB reports a short write as EIO; on a nearly full disk that means ENOSPC. */
static int commit(struct meta *m, MDB_txn *txn)
{
	int rc = db_error(mdb_txn_commit(txn));
	struct statvfs s;
	mdb_filehandle_t fd;

	if (rc == -EIO && mdb_env_get_fd(m->db.env, &fd) == 0 && fstatvfs(fd, &s) == 0 &&
	    (uint64_t)s.f_bavail * s.f_frsize < NEARLY_FULL)
		return -ENOSPC;
	return rc;
}

/* Applies `one` change, or all of the batch, in one transaction. */
static int batch_transact(struct batch *b, struct change *one)
{
	struct meta *m = b->m;
	struct apply ap = { .m = m,
			    .arena = &m->scratch,
			    .next_ino = m->stored_next,
			    .may_take_space = space_is_left(m) };
	uint64_t used = space_used(m);
	struct change *c;
	int rc = apply_begin(m, &ap);

	if (rc)
		return rc;
	if (one) {
		change_apply(b, &ap, one, &rc);
	} else {
		list_for_each(c, &b->changes, link) {
			change_apply(b, &ap, c, &rc);
			if (rc)
				break;
		}
	}
	if (!rc)
		rc = put_next(m, &ap);
	if (rc) {
		mdb_txn_abort(ap.txn);
		return rc == -ENOENT ? -EIO : rc;
	}
	if (ap.n_locks > m->n_locks) /* before any reader can see the new rows */
		m->n_locks = ap.n_locks;
	rc = commit(m, ap.txn);
	if (rc)
		return rc;
	m->n_locks = ap.n_locks;
	m->stored_next = ap.next_ino;
	m->stored_locks = ap.n_locks;
	space_note_use(m, used, ap.took_space, ap.freed_space);
	return 0;
}

/* Applies the changes one by one, each in its own transaction. */
static void batch_singly(struct batch *b, int why)
{
	struct change *c;
	unsigned n = 0, failed = 0;
	int rc = why;

	b->touched.n = b->touched.n_more = 0; /* by the transaction that failed */
	list_for_each(c, &b->changes, link) {
		if (b->changes.next->next != &b->changes) /* a single change has just been tried */
			rc = batch_transact(b, c);
		if (rc)
			c->error = rc;
		n++;
		failed += rc != 0;
	}
	log_warn("meta", "a transaction of %u changes failed: %s; one by one %u of them failed", n,
		 error_text(why), failed);
}

/* Under the lock. */
static void batch_fill(struct batch *b)
{
	struct meta *m = b->m;
	uint32_t most = space_is_tight(m) ? TIGHT_CHANGES :
			m->space.mapped	  ? MAPPED_CHANGES :
					    BATCH_MAX;
	uint64_t bytes = 0;

	for (uint32_t n = 0; n < most && m->n_queued && (!m->space.mapped || bytes < MAPPED_BYTES);
	     n++) {
		struct change *c = list_entry(list_pop(&m->queue), struct change, link);

		bytes += c->n_bytes;
		list_push(&b->changes, &c->link);
		m->n_queued--;
	}
}

static void batch_run(struct job *j)
{
	struct batch *b = container_of(j, struct batch, job);
	struct meta *m = b->m;
	struct env *e = m->loop->env;
	bool abandoned;
	int rc;

	pthread_mutex_lock(&m->lock);
	m->job_submitted = false;
	abandoned = m->abandoned;
	if (!abandoned)
		batch_fill(b);
	pthread_mutex_unlock(&m->lock);
	if (abandoned || list_empty(&b->changes))
		return;
	b->ran_ns = e->clock->now(e);
	m->db.touched = m->watch ? &b->touched : NULL;
	if (!m->space.mapped && space_should_grow(m))
		space_grow(m);
	rc = batch_transact(b, NULL);
	if (rc)
		batch_singly(b, rc);
	m->db.touched = NULL;
	b->ran_ns = e->clock->now(e) - b->ran_ns;
}

/* ---- loop ---- */

static void change_decode(struct change *c)
{
	struct xdr x;

	if (c->error)
		return;
	xdr_decoder(&x, c->answer, c->n_answer, c->arena);
	if (!xdr_wire_record_res(&x, &c->res))
		c->error = -EIO; /* or its arena is full; the change and its slot are committed */
	else if (!xdr_wire_dirs_after(&x, &c->after)) /* a stored answer has none */
		c->after = (struct wire_dirs_after){ 0 };
}

/* True: wait for the clients that were just answered, so that their next changes share the
 * flush. */
static bool must_gather(struct meta *m, uint32_t queued)
{
	if (m->commit_ns < SLOW_NS)
		return false;
	if (m->batches[0].began || m->batches[1].began)
		return true; /* the end of that batch calls writer_try_start() */
	if (queued >= m->expected_changes || m->loop->now >= m->gather_until)
		return false;
	return timer_set(m->loop, &m->gather, m->gather_until) == 0;
}

/* The map moves when it grows, so it cannot grow during a transaction or a copy: false, and their
 * end calls writer_try_start(). */
static bool has_space(struct meta *m)
{
	if (!m->space.mapped || !space_should_grow(m))
		return true;
	if (m->copies && m->space.bytes >= space_used(m) + COPY_SPACE)
		return true;
	if (m->batches[0].began || m->batches[1].began || m->copies)
		return false;
	reader_reset(m);
	space_grow(m);
	return true;
}

/* Should the next transaction run on the loop? If so, it runs at the end of this turn, with all
 * changes of the turn. */
static bool plan_inline(struct meta *m)
{
	if (m->speed_score < FAST_RUN || m->batches[0].began || m->batches[1].began)
		return false;
	return m->inline_timer.when || timer_set(m->loop, &m->inline_timer, m->loop->now) == 0;
}

/* Submits a free batch for the queued changes, unless a job is submitted already. */
void writer_try_start(struct meta *m)
{
	struct batch *b = !m->batches[0].began ? &m->batches[0] : &m->batches[1];
	bool go;

	if (b->began || m->closing || !has_space(m) || plan_inline(m))
		return;
	pthread_mutex_lock(&m->lock);
	go = !m->job_submitted && m->n_queued && !must_gather(m, m->n_queued);
	if (go)
		m->job_submitted = true;
	pthread_mutex_unlock(&m->lock);
	if (!go)
		return;
	timer_del(m->loop, &m->gather);
	b->began = MAX(m->loop->now, UINT64_C(1));
	reader_reset(m);
	m->loop->env->exec->worker_submit(m->worker, &b->job);
}

static void gathered(struct timer *t)
{
	writer_try_start(container_of(t, struct meta, gather));
}

static void batch_done(struct job *j);

static void run_inline(struct timer *t)
{
	struct meta *m = container_of(t, struct meta, inline_timer);
	struct batch *b = &m->batches[0];

	if (!m->n_queued || m->closing || b->began || m->batches[1].began)
		return;
	b->began = MAX(m->loop->now, UINT64_C(1));
	reader_reset(m);
	batch_run(&b->job);
	batch_done(&b->job);
}

/* A slow transaction may have lost the processor to others; only many in a row mean a slow
 * device. */
static uint32_t score_speed(const struct meta *m, uint64_t ns, uint32_t n)
{
	uint64_t fast = m->loop->on_tmpfs ? FAST_TMPFS_NS : FAST_NS;

	if (ns < fast + n * FAST_EACH_NS)
		return MIN(m->speed_score + 1, FAST_MOST);
	return ns > STUCK_NS ? 0 : m->speed_score - MIN(m->speed_score, (uint32_t)SLOW_WEIGHT);
}

static void batch_done(struct job *j)
{
	struct batch *b = container_of(j, struct batch, job);
	struct meta *m = b->m;
	struct list done = LIST_INIT(done), *l;
	struct change *c;
	uint32_t n = 0;

	if (m->abandoned) /* set on this thread, so no lock */
		return;
	list_for_each(c, &b->changes, link) {
		change_decode(c);
		n++;
	}
	list_splice(&done, &b->changes);
	arena_reset(&b->arena);
	if (m->watch && b->touched.n)
		m->watch(m->watch_arg, b->touched.list, b->touched.n, b->touched.n_more);
	b->touched.n = b->touched.n_more = 0;
	space_note_change(m);
	m->commit_ns = m->loop->now - b->began;
	m->speed_score = score_speed(m, b->ran_ns, n);
	m->gather_until = m->loop->now + MIN(m->commit_ns / 2, GATHER_NS);
	b->began = 0;
	pthread_mutex_lock(&m->lock);
	m->expected_changes = n + m->n_queued;
	pthread_mutex_unlock(&m->lock);
	writer_try_start(m);
	while ((l = list_pop(&done))) {
		c = container_of(l, struct change, link);
		c->answer = NULL; /* it was in the batch's arena */
		req_done(c->q, c->error, 0); /* this may free c */
	}
}

#define OBJECT_NOTE 28 /* bytes of an encoded struct object_note */

static size_t record_bound(const struct wire_record *r)
{
	const struct wire_layout_rec *l = &r->layout;

	return 512 + 4 * (size_t)r->n_gids + 4 * (size_t)l->n_targets + 8 * (size_t)l->n_ends +
	       OBJECT_NOTE * (size_t)r->n_objects + r->name.len + r->name2.len + r->client.len +
	       r->data.len;
}

static int change_encode(struct change *c)
{
	size_t bound = record_bound(&c->rec);
	struct xdr x;

	c->bytes = arena_alloc(c->arena, bound);
	if (!c->bytes)
		return -ENOMEM;
	xdr_encoder(&x, c->bytes, bound);
	if (!xdr_wire_record(&x, &c->rec))
		return -EINVAL;
	c->n_bytes = (uint32_t)xdr_used(&x);
	return 0;
}

void meta_submit(struct meta *m, struct change *c, struct req *q)
{
	req_hold(q);
	c->q = q;
	c->res = (struct wire_record_res){ 0 };
	c->after = (struct wire_dirs_after){ 0 };
	c->answer = NULL;
	if (c->rec.name.len > NAME_MAX_LEN || c->rec.name2.len > NAME_MAX_LEN) {
		c->res.status = ENAMETOOLONG; /* too long for a record */
		req_done(q, 0, 0);
		return;
	}
	c->error = change_encode(c);
	if (c->error) {
		req_done(q, c->error, 0);
		return;
	}
	pthread_mutex_lock(&m->lock);
	list_push(&m->queue, &c->link);
	m->n_queued++;
	pthread_mutex_unlock(&m->lock);
	writer_try_start(m);
}

void meta_watch(struct meta *m, meta_watch_fn *fn, void *arg)
{
	m->watch_arg = arg;
	m->watch = fn;
}

uint64_t meta_new_ino(struct meta *m)
{
	return INO_MAKE(m->partition, m->next_ino++);
}

void meta_raise_ino(struct meta *m, uint64_t ino)
{
	if (meta_owns(m, ino))
		m->next_ino = MAX(m->next_ino, INO_COUNTER(ino) + 1);
}

int meta_apply_bytes(struct meta *m, const void *rec, size_t len)
{
	struct apply ap = { .m = m, .may_take_space = true };
	struct arena arena;
	uint8_t *answer;
	uint32_t n;
	int rc = apply_begin(m, &ap);

	if (rc)
		return rc;
	arena_init(&arena, 0);
	ap.arena = &arena;
	rc = apply_bytes(&ap, rec, len, &arena, &answer, &n);
	mdb_txn_abort(ap.txn);
	arena_destroy(&arena);
	return rc;
}

/* ---- start and stop ---- */

int writer_init(struct meta *m)
{
	list_init(&m->queue);
	m->gather.fire = gathered;
	m->inline_timer.fire = run_inline;
	arena_init(&m->scratch, 0);
	for (size_t i = 0; i < ARRAY_LEN(m->batches); i++) {
		struct batch *b = &m->batches[i];

		b->m = m;
		b->job = (struct job){ .run = batch_run, .done = batch_done };
		list_init(&b->job.link);
		list_init(&b->changes);
		arena_init(&b->arena, 0);
	}
	if (pthread_mutex_init(&m->lock, NULL))
		return -ENOMEM;
	m->has_lock = true;
	return m->loop->env->exec->worker_start(m->loop->env, m->loop, "meta", &m->worker);
}

/* Stops the worker. Changes that it has not taken are applied here, or dropped if `abandon`. */
void writer_stop(struct meta *m, bool abandon)
{
	struct batch *b = &m->batches[0];

	if (!m->worker)
		return;
	reader_reset(m);
	timer_del(m->loop, &m->gather);
	timer_del(m->loop, &m->inline_timer);
	pthread_mutex_lock(&m->lock);
	m->closing = true;
	m->abandoned = abandon;
	pthread_mutex_unlock(&m->lock);
	m->loop->env->exec->worker_stop(m->worker);
	m->worker = NULL;
	while (!abandon && m->n_queued) {
		reader_reset(m);
		if (m->space.mapped && space_should_grow(m))
			space_grow(m);
		batch_run(&b->job);
		batch_done(&b->job);
	}
}

void writer_fini(struct meta *m)
{
	for (size_t i = 0; i < ARRAY_LEN(m->batches); i++)
		if (m->batches[i].m)
			arena_destroy(&m->batches[i].arena);
	if (m->batches[0].m)
		arena_destroy(&m->scratch);
	if (m->has_lock)
		pthread_mutex_destroy(&m->lock);
}
