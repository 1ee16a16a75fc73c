/* Background work of the server. Each task is repeated until it succeeds:
 *
 *   SETTLE    all writers of a file are gone: fence its objects, sync them, record size and mtime.
 *             Also beside living writers when locks wait for the fence; the writers then fetch
 *             fresh capabilities
 *   REMOVE    a file has no name and is not open: remove its objects, then its inode
 *   TRUNCATE  an intent whose request did not finish: fence and cut, then commit
 *
 *   LOCK -> START -> FAN (-> SYNC) -> COMMIT -> DONE -> END; after an error: a pause, then LOCK
 *
 * All tasks are safe to repeat from the beginning, so a crash needs only the rows that
 * tasks_recover() reads. After a restart they wait for the end of the grace period, in which
 * clients claim their opens. Truncates do not wait: their outcome was decided before. */
#include <stdlib.h>

#include "server/fan.h"
#include "server/inode.h"
#include "server/task.h"

#define RETRY_NS NSEC_PER_SEC
#define RETRY_MAX 30
/* delay of a removal: a client that has just looked up the name may still open the file */
#define LINGER_NS (20 * NSEC_PER_MSEC)
#define MAX_SETTLING 1024 /* settling tasks at a time; those that a close starts are always added */

enum { LOCK, START, FAN, SYNC, COMMIT, DONE, END };
static const char *const names[] = {
	[LOCK] = "lock",     [START] = "start", [FAN] = "fan", [SYNC] = "sync",
	[COMMIT] = "commit", [DONE] = "done",	[END] = "end"
};

struct task {
	struct req q;
	struct list link;
	struct server *srv;
	enum task_kind kind;
	struct wire_handle h;
	/* size: REMOVE: no object reaches beyond it; TRUNCATE: the new size */
	uint64_t size, epoch;
	struct inode *inode; /* NULL: the task ends a session */
	struct inode_wait lock;
	struct session *session;
	struct session_wait wait;
	struct change change;
	struct fan fan;
	struct meta_node node;
	struct arena arena;
	struct timer retry;
	uint32_t tries;
	bool nothing; /* there is nothing to do */
	bool lingered;
};

static void task_record(struct task *t, uint32_t kind)
{
	struct env *e = t->srv->loop->env;

	t->change.arena = &t->arena;
	t->change.rec =
		(struct wire_record){ .kind = kind, .time = (int64_t)e->clock->wall(e), .h = t->h };
}

static bool settle_needed(struct task *t)
{
	return (!t->inode->writers || t->inode->fencing) && meta_unsettled(t->srv->meta, t->h.ino);
}

/* Reads the node and queues the record that precedes the calls to the objects. */
static int start(struct task *t)
{
	int e = meta_get(t->srv->meta, &t->h, &t->node, &t->arena);
	bool died; /* a writer may have died: only the objects know the size */

	if (e == -ESTALE || e == -ENOENT)
		t->nothing = true;
	if (e || t->kind == TASK_TRUNCATE)
		return t->nothing ? 0 : e;
	if (t->kind == TASK_SETTLE) {
		t->nothing = !settle_needed(t);
		if (t->nothing)
			return 0;
		task_record(t, REC_SETTLE_BEGIN);
		meta_submit(t->srv->meta, &t->change, &t->q);
		return 0;
	}
	if (t->inode->opens)
		t->inode->removed = true;
	t->nothing = t->inode->opens || t->node.attr.nlink;
	t->inode->removal_begun = !t->nothing;
	/* settled and closed by all writers: no fence is needed, and the reported size holds */
	died = t->node.attr.unsettled || t->inode->orphaned;
	t->epoch = died ? t->node.epoch + 1 : 0;
	t->size = !died && t->node.objects_within_size ? t->node.attr.size : INT64_MAX;
	return 0;
}

static int fan(struct task *t)
{
	const struct wire_layout_rec *l = &t->node.layout;
	int e;

	if (t->kind == TASK_SETTLE) {
		if (t->change.res.status)
			return -t->change.res.status;
		t->epoch = t->change.res.epoch;
	}
	e = fan_init(&t->fan, l, &t->arena);
	if (e)
		return e;
	if (t->kind == TASK_REMOVE)
		fan_remove(t->srv, &t->fan, l, t->h.ino, t->epoch, t->size, &t->q);
	else
		fan_fence(t->srv, &t->fan, l, t->h.ino, t->epoch,
			  t->kind == TASK_SETTLE ? FENCE_KEEP : t->size, &t->q);
	return 0;
}

/* The writers did not report which of their data are on disk, so all objects are synced. */
static int sync_objects(struct task *t)
{
	fan_fini(&t->fan);
	t->node.epoch = t->epoch;
	return fan_sync(t->srv, &t->fan, &t->node, SYNC_ALL, false, &t->arena, &t->q);
}

static int commit(struct task *t)
{
	static const uint32_t kind[] = {
		[TASK_SETTLE] = REC_SETTLE_END, [TASK_REMOVE] = REC_REMOVED, [TASK_TRUNCATE] = REC_TRUNC_END
	};
	struct wire_record *r = &t->change.rec;
	const struct wire_layout_rec *l = &t->node.layout;
	int e = 0;

	task_record(t, kind[t->kind]);
	r->epoch = t->epoch;
	r->size = t->size;
	r->obj_gen = l->obj_gen;
	if (t->kind != TASK_REMOVE) {
		uint64_t end = fan_end(&t->fan, l, &r->mtime);

		r->size = t->kind == TASK_SETTLE ? end : t->size;
		e = fan_notes(&t->fan, l, t->kind == TASK_SETTLE ? FENCE_KEEP : t->size, &t->arena,
			      r);
	}
	if (e)
		return e;
	if (t->kind == TASK_TRUNCATE)
		appends_forget(t->inode);
	if (t->kind == TASK_SETTLE && t->inode->writers) { /* living writers keep the row */
		r->kind = REC_RECORD;
		if (r->mtime <= t->node.attr.written)
			r->mtime = 0;
	} else if (t->kind == TASK_SETTLE) {
		t->inode->row_durable = false;
	}
	meta_submit(t->srv->meta, &t->change, &t->q);
	return 0;
}

static void task_free(struct task *t)
{
	list_del(&t->link);
	timer_del(t->srv->loop, &t->retry);
	arena_destroy(&t->arena);
	free(t);
}

static void retry(struct timer *tm)
{
	req_done(&container_of(tm, struct task, retry)->q, 0, 0);
}

/* A task ended. At half of the limit, tasks for further rows are started. */
static void backlog_less(struct server *srv, struct backlog *b, uint32_t most)
{
	if (--b->n > most / 2 || !b->left || srv->stopping)
		return;
	b->left = false;
	timer_set(srv->loop, &b->refill, srv->loop->now);
}

/* Releases everything. After an error, the task runs again after a pause. */
static bool finish(struct task *t)
{
	struct req *q = &t->q;
	bool again = q->error && !t->srv->stopping;
	uint64_t pause;

	t->tries++;
	pause = RETRY_NS * MIN(t->tries, (uint32_t)RETRY_MAX);
	fan_fini(&t->fan);
	memset(&t->fan, 0, sizeof(t->fan));
	if (t->kind == TASK_SETTLE && !q->error && (!t->nothing || t->inode->fencing)) {
		t->inode->orphaned = t->inode->fencing = false;
		lock_released(t->inode);
	}
	if (!again || t->kind != TASK_TRUNCATE)
		inode_unlock(&t->lock);
	arena_reset(&t->arena);
	if (again) {
		log_at(LOG_WARN, "server", q->trace,
		       "background work on inode %llx failed and is retried in %llu s: %s",
		       (unsigned long long)t->h.ino, (unsigned long long)(pause / NSEC_PER_SEC),
		       error_text(q->error));
		q->error = 0;
		req_goto(q, t->lock.held ? START : LOCK);
		req_hold(q);
		timer_set(t->srv->loop, &t->retry, t->srv->loop->now + pause);
		return true;
	}
	if (t->kind == TASK_REMOVE) {
		t->inode->removing = t->inode->removal_begun = false;
		backlog_less(t->srv, &t->srv->removing, t->srv->max_removing);
	} else if (t->kind == TASK_SETTLE) {
		t->inode->settling--;
		backlog_less(t->srv, &t->srv->settling, MAX_SETTLING);
	}
	inode_put(t->inode);
	req_fini(q);
	task_free(t);
	return false;
}

/* Removals of the same time end together, so that their records share a transaction. */
static uint64_t linger_end(uint64_t now)
{
	return (now / LINGER_NS + 2) * LINGER_NS;
}

static bool step(struct req *q)
{
	struct task *t = container_of(q, struct task, q);

	/* its row restarts it after the server's restart */
	if (t->srv->stopping && q->state != END) {
		req_goto(q, END);
		q->error = -ESHUTDOWN;
		return true;
	}
	switch (q->state) {
	case LOCK:
		if (t->kind == TASK_REMOVE && !t->lingered) {
			t->lingered = true;
			req_hold(q);
			if (timer_set(t->srv->loop, &t->retry, linger_end(q->loop->now)))
				req_done(q, 0, 0);
			break;
		}
		req_goto(q, START);
		inode_lock(t->inode, &t->lock, q);
		break;
	case START:
		req_goto(q, FAN);
		req_fail(q, start(t));
		break;
	case FAN:
		req_goto(q, t->nothing ? END : t->kind == TASK_SETTLE ? SYNC : COMMIT);
		req_fail(q, t->nothing ? 0 : fan(t));
		break;
	case SYNC:
		req_goto(q, COMMIT);
		req_fail(q, sync_objects(t));
		break;
	case COMMIT:
		req_goto(q, DONE);
		req_fail(q, commit(t));
		break;
	case DONE:
		req_goto(q, END);
		q->error = -t->change.res.status;
		break;
	case END:
		return finish(t);
	}
	return true;
}

static const struct req_ops task_ops[] = {
	[TASK_SETTLE] = REQ_OPS("settle", step, END, names),
	[TASK_REMOVE] = REQ_OPS("remove-objects", step, END, names),
	[TASK_TRUNCATE] = REQ_OPS("finish-truncate", step, END, names),
};

static struct task *task_new(struct server *srv, enum task_kind kind)
{
	struct task *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->srv = srv;
	t->kind = kind;
	t->retry.fire = retry;
	list_init(&t->link);
	arena_init(&t->arena, 0);
	return t;
}

static void begin(struct task *t)
{
	req_init(&t->q, t->srv->loop, &task_ops[t->kind], LOCK);
	t->q.trace = env_random_u64(t->srv->loop->env);
	/* before all waiting writers: none may write between a truncate's intent and its end */
	if (t->kind == TASK_TRUNCATE) {
		req_goto(&t->q, START);
		inode_lock_next(t->inode, &t->lock, &t->q);
	}
	if (!t->q.pending) /* runs from the loop, never from its caller */
		list_push(&t->srv->loop->runnable, &t->q.link);
}

/* Leaves removals in their rows until running ones end, or for RETRY_NS if those wait for a
 * target. */
static int remove_later(struct server *srv)
{
	srv->removing.left = true;
	return timer_set(srv->loop, &srv->removing.refill, srv->loop->now + RETRY_NS);
}

int task_start(struct server *srv, enum task_kind kind, const struct wire_handle *h, uint64_t size,
	       uint64_t epoch)
{
	struct task *t;

	if (srv->stopping) /* its row restarts it after the server's restart */
		return 0;
	if (kind == TASK_REMOVE && (srv->in_grace || srv->removing.n >= srv->max_removing))
		return remove_later(srv);
	t = task_new(srv, kind);
	if (!t)
		return -ENOMEM;
	t->h = *h;
	t->size = size;
	t->epoch = epoch;
	t->inode = inode_get(srv, h);
	if (!t->inode) {
		task_free(t);
		return -ENOMEM;
	}
	if (kind == TASK_REMOVE && t->inode->removing) {
		inode_put(t->inode);
		task_free(t);
		return 0;
	}
	if (kind == TASK_REMOVE) {
		t->inode->removing = true;
		srv->removing.n++;
	} else if (kind == TASK_SETTLE) {
		t->inode->settling++;
		srv->settling.n++;
	}
	if (srv->in_grace && kind != TASK_TRUNCATE) {
		list_push(&srv->delayed, &t->link);
		return 0;
	}
	list_push(&srv->tasks, &t->link);
	begin(t);
	return 0;
}

/* ---- the end of a session ---- */

/* QUIET -> RECORD -> DROP, and after an error back to RECORD after a pause. The opens of a session
 * are dropped only after its end is durable: a session that exists after a restart still owns all
 * that it claims. */
enum { QUIET, RECORD, DROP };
static const char *const end_names[] = { [QUIET] = "quiesce", [RECORD] = "record", [DROP] = "drop" };

static void drop_opens(struct session *ss)
{
	struct open_file *o;

	while ((o = list_first(&ss->opens, struct open_file, in_session)))
		open_lose(o);
	locks_kept(ss, true);
}

/* The record could not be written: tries again after a pause. */
static void end_again(struct task *t)
{
	struct req *q = &t->q;

	arena_reset(&t->arena);
	q->error = 0;
	req_goto(q, RECORD);
	req_hold(q);
	if (timer_set(q->loop, &t->retry, q->loop->now + RETRY_NS))
		req_done(q, 0, 0);
}

static bool end_step(struct req *q)
{
	struct task *t = container_of(q, struct task, q);

	switch (q->state) {
	case QUIET:
		req_goto(q, RECORD);
		session_quiesce(t->session, &t->wait, q);
		break;
	case RECORD:
		req_goto(q, DROP);
		/* the lease expires again after the next start */
		if (!t->srv->meta || t->srv->stopping)
			break;
		task_record(t, REC_SESSION_END);
		t->change.rec.session = t->session->id;
		meta_submit(t->srv->meta, &t->change, q);
		break;
	case DROP:
		if (q->error && !t->srv->stopping) {
			end_again(t);
			break;
		}
		drop_opens(t->session);
		backup_session_ended(t->srv, t->session->id);
		session_free(t->session);
		grace_check(t->srv);
		req_fini(q);
		task_free(t);
		return false;
	}
	return true;
}

static const struct req_ops end_ops = REQ_OPS("end-session", end_step, DROP, end_names);

void task_end_session(struct server *srv, struct session *ss)
{
	struct task *t;

	if (ss->doomed)
		return;
	t = task_new(srv, TASK_END_SESSION);
	if (!t) { /* out of memory: the lease runs once more */
		timer_set(srv->loop, &ss->lease, srv->loop->now + srv->sessions.lease_ns);
		return;
	}
	ss->doomed = true;
	lock_waits_answer(srv, ss);
	timer_del(srv->loop, &ss->lease);
	t->session = ss;
	list_push(&srv->tasks, &t->link);
	req_init(&t->q, srv->loop, &end_ops, QUIET);
	req_run(&t->q);
}

/* ---- restart and grace ---- */

static void grace_end(struct server *srv)
{
	struct list *it;

	if (!srv->in_grace)
		return;
	srv->in_grace = false;
	timer_del(srv->loop, &srv->grace);
	while ((it = list_pop(&srv->delayed))) {
		struct task *t = list_entry(it, struct task, link);

		list_push(&srv->tasks, &t->link);
		begin(t);
	}
	lock_waits_answer(srv, NULL); /* their clients ask again */
}

static void grace_timer(struct timer *t)
{
	grace_end(container_of(t, struct server, grace));
}

void grace_start(struct server *srv)
{
	srv->grace.fire = grace_timer;
	srv->in_grace = srv->sessions.count > 0;
	if (srv->in_grace)
		timer_set(srv->loop, &srv->grace, srv->loop->now + srv->sessions.lease_ns);
}

void grace_check(struct server *srv)
{
	struct session *ss;

	if (!srv->in_grace)
		return;
	list_for_each(ss, &srv->sessions.all, all)
		if (!ss->reclaimed)
			return;
	grace_end(srv);
}

struct recovery {
	struct server *srv;
	enum task_kind kind;
	struct meta_row *rows;
	size_t n, cap, limit; /* limit 0: none */
};

/* Will an active task or the last close re-check this inode? */
static bool is_taken(const struct recovery *r, uint64_t ino)
{
	const struct inode *in = inode_find(r->srv, ino);

	if (!in)
		return false;
	return r->kind == TASK_SETTLE ? in->writers || in->settling : in->opens || in->removing;
}

static bool collect(void *arg, const struct meta_row *row)
{
	struct recovery *r = arg;

	if (r->limit && is_taken(r, row->h.ino))
		return true;
	if (r->n == r->cap) {
		size_t cap = r->cap ? 2 * r->cap : 64;
		struct meta_row *rows = realloc(r->rows, cap * sizeof(*rows));

		if (!rows)
			return false;
		r->rows = rows;
		r->cap = cap;
	}
	r->rows[r->n++] = *row;
	return r->n != r->limit;
}

/* Starts a task for each row, up to the limit. True: there may be more rows. */
static bool recover(struct server *srv, enum meta_rows which, enum task_kind kind, size_t limit)
{
	struct recovery r = { .srv = srv, .kind = kind, .limit = limit };

	meta_each_row(srv->meta, which, collect, &r);
	for (size_t i = 0; i < r.n; i++)
		task_start(srv, kind, &r.rows[i].h, r.rows[i].size, r.rows[i].epoch);
	free(r.rows);
	return limit && r.n == limit;
}

static void refill_settling(struct timer *t)
{
	struct server *srv = container_of(t, struct server, settling.refill);

	if (!srv->stopping && srv->settling.n < MAX_SETTLING)
		srv->settling.left =
			recover(srv, ROWS_UNSETTLED, TASK_SETTLE, MAX_SETTLING - srv->settling.n);
	else
		srv->settling.left = true;
}

static void refill_removing(struct timer *t)
{
	struct server *srv = container_of(t, struct server, removing.refill);

	if (!srv->stopping &&
	    (srv->removing.n >= srv->max_removing ||
	     recover(srv, ROWS_REMOVE, TASK_REMOVE, srv->max_removing - srv->removing.n)))
		remove_later(srv);
}

void tasks_recover(struct server *srv)
{
	srv->settling.refill.fire = refill_settling;
	srv->removing.refill.fire = refill_removing;
	recover(srv, ROWS_TRUNCATE, TASK_TRUNCATE, 0);
	refill_settling(&srv->settling.refill);
	refill_removing(&srv->removing.refill);
}

void tasks_abandon(struct server *srv)
{
	struct list *lists[] = { &srv->tasks, &srv->delayed };
	struct list *it;

	for (int i = 0; i < 2; i++) {
		while ((it = list_pop(lists[i]))) {
			struct task *t = list_entry(it, struct task, link);

			if (i == 0) /* it has started */
				req_abandon(&t->q);
			fan_fini(&t->fan);
			task_free(t);
		}
	}
}
