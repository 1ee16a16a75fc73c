/* Truncate: a logged intent, a fence that cuts every object, the commit.
 *
 *   CHECK -> LOCKED -> FENCE -> FENCED -> DONE -> REPLY
 *   CHECK -> AGAIN -> REPLY                                its retransmission
 *
 * Once the intent is durable, the truncate will happen exactly once. When a target does not answer
 * in time, or a disk is full, the caller gets an error and a task continues, also after a restart.
 * The intent is stored as the answer to the request: a retransmission waits for the lock, until the
 * truncate has happened. */
#include "server/op_state.h"
#include "server/task.h"

void trunc_begin(struct sreq *s, struct truncate_state *t, const struct wire_handle *h,
		 uint64_t size)
{
	t->h = *h;
	t->size = size;
	sreq_record(s, REC_TRUNC_BEGIN);
	s->change.rec.h = *h;
	s->change.rec.size = size;
	meta_submit(s->srv->meta, &s->change, &s->q);
}

int trunc_fence(struct sreq *s, struct truncate_state *t)
{
	const struct wire_record_res *r = &s->change.res;
	int e;

	if (r->status)
		return -r->status;
	t->epoch = r->epoch;
	t->begun = true;
	t->layout = r->layout;
	e = fan_init(&t->fan, &t->layout, &s->arena);
	if (!e)
		fan_fence(s->srv, &t->fan, &t->layout, t->h.ino, t->epoch, t->size, &s->q);
	return e;
}

int trunc_end(struct sreq *s, struct truncate_state *t)
{
	struct wire_record *r = &s->change.rec;
	int e;

	sreq_record(s, REC_TRUNC_END);
	r->session = 0; /* its answer was stored with the intent */
	r->h = t->h;
	r->size = t->size;
	r->epoch = t->epoch;
	fan_end(&t->fan, &t->layout, &r->mtime);
	e = fan_notes(&t->fan, &t->layout, t->size, &s->arena, r);
	if (e)
		return e;
	t->ended = true;
	if (t->lock.inode)
		appends_forget(t->lock.inode);
	meta_submit(s->srv->meta, &s->change, &s->q);
	return 0;
}

void trunc_fini(struct sreq *s, struct truncate_state *t)
{
	if (t->begun && (!t->ended || s->q.error))
		task_start(s->srv, TASK_TRUNCATE, &t->h, t->size, t->epoch);
	/* clients repeat a request that found no space, but this one has an effect already */
	if (t->begun && s->q.error == -ENOSPC)
		s->q.error = -EIO;
	fan_fini(&t->fan);
	inode_unlock(&t->lock);
}

enum { CHECK, LOCKED, FENCE, FENCED, DONE, AGAIN, REPLY };
static const char *const names[] = {
	[CHECK] = "check", [LOCKED] = "lock", [FENCE] = "begin", [FENCED] = "fence",
	[DONE] = "commit", [AGAIN] = "again", [REPLY] = "reply"
};

static bool through_open(struct sreq *s, const struct wire_truncate_args *a)
{
	const struct open_file *o = a->open ? open_find(s->session, a->open) : NULL;

	return o && o->inode->h.ino == a->h.ino && (o->flags & OPEN_WRITE);
}

static int may_begin(struct sreq *s)
{
	struct wire_truncate_args *a = s->args;
	struct truncate_state *t = s->op;
	int e = meta_get(s->srv->meta, &a->h, &t->node, &s->arena);

	if (e)
		return e;
	if ((t->node.attr.mode & S_IFMT) != S_IFREG)
		return (t->node.attr.mode & S_IFMT) == S_IFDIR ? -EISDIR : -EINVAL;
	if (a->size > INT64_MAX)
		return -EFBIG;
	return through_open(s, a) ? 0 : may_access(s, &t->node, MAY_WRITE);
}

static int check(struct sreq *s)
{
	struct wire_truncate_args *a = s->args;
	struct truncate_state *t = s->op;
	int e = sreq_replay(s);

	s->ino = a->h.ino;
	if (e == 0 && s->change.res.status)
		return -s->change.res.status;
	if (e == 0)
		req_goto(&s->q, AGAIN);
	else if (e == -ENOENT)
		e = may_begin(s);
	if (e)
		return e;
	return inode_lock_handle(s->srv, &a->h, &t->lock, &s->q);
}

static bool step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_truncate_args *a = s->args;
	struct wire_attr_res *r = s->res;
	struct truncate_state *t = s->op;

	switch (q->state) {
	case CHECK:
		req_goto(q, LOCKED);
		req_fail(q, check(s));
		break;
	case LOCKED:
		req_goto(q, FENCE);
		trunc_begin(s, t, &a->h, a->size);
		break;
	case FENCE:
		req_goto(q, FENCED);
		req_fail(q, trunc_fence(s, t));
		break;
	case FENCED:
		req_goto(q, DONE);
		req_fail(q, trunc_end(s, t));
		break;
	case DONE:
		req_goto(q, REPLY);
		r->at = s->change.res.at;
		q->error = -s->change.res.status;
		break;
	case AGAIN: /* the earlier truncate has ended; the file may be gone, too */
		req_goto(q, REPLY);
		r->at = s->change.res.at;
		r->at.size = a->size;
		if (!meta_get(s->srv->meta, &a->h, &t->node, &s->arena))
			r->at = t->node.attr;
		break;
	case REPLY:
		trunc_fini(s, t);
		return sreq_reply(s);
	}
	return true;
}

void trunc_abandon(struct req *q)
{
	struct truncate_state *t = sreq_of(q)->op;

	fan_fini(&t->fan);
}

const struct req_ops truncate_ops =
	REQ_OPS("truncate", step, REPLY, names, .abandon = trunc_abandon);
