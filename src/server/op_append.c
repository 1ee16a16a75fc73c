/* Appends: this server gives each append its place, the client sends the data to the data targets
 * and then reports the append as done.
 *
 *   APPEND: FIND -> LOCKED -> ASK -> GRANT -> REPLY
 *
 * The end of the file is known here while only appends extend it. The first append after a start
 * fences the objects with a new epoch (places given before and not claimed again are lost) and asks
 * them for their ends. While the file has other writers, each append asks. Places are given in
 * order and never twice; one that is never written reads as zeros. A truncate takes back all places
 * (appends_forget): a repeated request then gets a new place. So does a claim after a restart
 * if the file was fenced since: the old place may belong to another append by now, or be cut off.
 *
 * fallocate through a file opened for appending takes part: its place is the range beyond
 * the end. */
#include <stdlib.h>

#include "server/op_state.h"

/* A place that was given and not reported as done yet. */
struct append {
	struct list in_inode, in_open;
	struct open_file *open;
	uint64_t id, offset, length;
};

static void append_free(struct append *a)
{
	list_del(&a->in_inode);
	list_del(&a->in_open);
	if (a->open->session)
		usage_give(&a->open->session->held, LIMIT_APPENDS, 1);
	free(a);
}

static int append_add(struct sreq *s, struct open_file *o, uint64_t id, uint64_t offset,
		      uint64_t length)
{
	struct append *a;
	int e = sreq_take(s, &o->session->held, LIMIT_APPENDS, 1);

	if (e)
		return e;
	a = malloc(sizeof(*a));
	if (!a) {
		usage_give(&o->session->held, LIMIT_APPENDS, 1);
		return -ENOMEM;
	}
	a->open = o;
	a->id = id;
	a->offset = offset;
	a->length = length;
	list_push(&o->inode->appends, &a->in_inode);
	list_push(&o->appends, &a->in_open);
	o->inode->append_end = MAX(o->inode->append_end, offset + length);
	return 0;
}

static struct append *append_find(struct open_file *o, uint64_t id)
{
	struct append *a;

	list_for_each(a, &o->appends, in_open)
		if (a->id == id)
			return a;
	return NULL;
}

void appends_drop(struct open_file *o)
{
	struct append *a, *tmp;

	list_for_each_safe(a, tmp, &o->appends, in_open)
		append_free(a);
}

void appends_forget(struct inode *i)
{
	struct append *a, *tmp;

	list_for_each_safe(a, tmp, &i->appends, in_inode)
		append_free(a);
	i->append_end = 0;
	i->append_known = false;
}

uint64_t append_limit(const struct inode *i)
{
	bool exact = i->append_known && i->appenders && i->writers == i->appenders;
	uint64_t limit = exact ? i->append_end : UINT64_MAX;
	const struct append *a;

	list_for_each(a, &i->appends, in_inode)
		limit = MIN(limit, a->offset);
	return limit;
}

int append_claim(struct sreq *s, struct open_file *o, const struct wire_append_claim *c,
		 uint64_t epoch)
{
	if (c->length > INT64_MAX || c->offset > INT64_MAX - c->length)
		return -EFBIG;
	if (c->epoch != epoch || append_find(o, c->id))
		return 0;
	return append_add(s, o, c->id, c->offset, c->length);
}

/* ---- the operation ---- */

enum { FIND, LOCKED, ASK, GRANT, REPLY };
static const char *const names[] = {
	[FIND] = "find", [LOCKED] = "lock", [ASK] = "ask", [GRANT] = "grant", [REPLY] = "reply"
};

static struct open_file *open_of(struct sreq *s, uint64_t id)
{
	struct open_file *o = open_find(s->session, id);

	return o && (o->flags & OPEN_WRITE) ? o : NULL;
}

static int find(struct sreq *s)
{
	struct wire_append_args *a = s->args;
	struct truncate_state *t = s->op;
	struct open_file *o = open_of(s, a->open);

	s->ino = a->h.ino;
	if (s->srv->in_grace) /* other clients may still claim their places */
		return -EINPROGRESS;
	if (!o || o->inode->h.ino != a->h.ino)
		return -EBADF;
	inode_lock(o->inode, &t->lock, &s->q);
	return 0;
}

/* Must the objects be asked for their ends? A new epoch comes first when places may be lost. */
static int locked(struct sreq *s)
{
	struct wire_append_args *a = s->args;
	struct truncate_state *t = s->op;
	struct inode *i = t->lock.inode;
	struct open_file *o = open_of(s, a->open);

	if (!o)
		return -EBADF;
	if (append_find(o, a->id) || (i->append_known && i->writers == i->appenders)) {
		req_goto(&s->q, GRANT);
		return 0;
	}
	if (i->append_known)
		return 0;
	sreq_record(s, REC_SETTLE_BEGIN);
	s->change.rec.session = 0;
	s->change.rec.h = i->h;
	meta_submit(s->srv->meta, &s->change, &s->q);
	return 0;
}

static int ask(struct sreq *s)
{
	struct truncate_state *t = s->op;
	struct inode *i = t->lock.inode;
	int e = -s->change.res.status;

	t->begun = !e && s->change.res.epoch;
	if (!e)
		e = meta_get(s->srv->meta, &i->h, &t->node, &s->arena);
	if (!e)
		e = fan_init(&t->fan, &t->node.layout, &s->arena);
	if (!e)
		fan_fence(s->srv, &t->fan, &t->node.layout, i->h.ino, s->change.res.epoch,
			  FENCE_KEEP, &s->q);
	return e;
}

static int grant(struct sreq *s)
{
	struct wire_append_args *a = s->args;
	struct wire_append_res *r = s->res;
	struct truncate_state *t = s->op;
	struct inode *i = t->lock.inode;
	struct open_file *o = open_of(s, a->open);
	struct append *old = o ? append_find(o, a->id) : NULL;
	uint64_t length = a->length;
	int64_t mtime;
	int e = o ? meta_get(s->srv->meta, &i->h, &t->node, &s->arena) : -EBADF;

	if (e)
		return e;
	r->epoch = t->node.epoch;
	if (old) {
		r->offset = old->offset;
		return 0;
	}
	if (t->fan.n) {
		i->append_end = MAX(i->append_end, t->node.attr.size);
		i->append_end = MAX(i->append_end, fan_end(&t->fan, &t->node.layout, &mtime));
		i->append_known = true;
	}
	if (a->upto)
		length = a->upto - MIN(a->upto, i->append_end);
	if (length > INT64_MAX || i->append_end > INT64_MAX - length)
		return -EFBIG;
	r->offset = i->append_end;
	return append_add(s, o, a->id, i->append_end, length);
}

static bool append_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct truncate_state *t = s->op;

	switch (q->state) {
	case FIND:
		req_goto(q, LOCKED);
		req_fail(q, find(s));
		break;
	case LOCKED:
		req_goto(q, ASK);
		req_fail(q, locked(s));
		break;
	case ASK:
		req_goto(q, GRANT);
		req_fail(q, ask(s));
		break;
	case GRANT:
		req_goto(q, REPLY);
		req_fail(q, grant(s));
		break;
	case REPLY:
		if (q->error &&
		    t->begun) /* a new epoch, but the ends of the objects were not recorded */
			t->lock.inode->orphaned = true;
		t->begun = false;
		trunc_fini(s, t);
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops append_ops =
	REQ_OPS("append", append_step, REPLY, names, .abandon = trunc_abandon);

int do_appended(struct sreq *s)
{
	struct wire_appended_args *a = s->args;
	struct open_file *o = open_find(s->session, a->open);
	struct append *old = o ? append_find(o, a->id) : NULL;

	s->ino = a->h.ino;
	if (old) /* else it was reported before */
		append_free(old);
	return 0;
}
