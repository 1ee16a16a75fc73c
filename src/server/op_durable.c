/* DURABLE: flushes unsynced data that earlier writers of a file have left. It runs before the file
 * replaces another (op_pair.c), and before an open when a data server may have lost some
 * (op_open.c). Metadata servers send it to the owner of the inode. FSYNC is the same for a client
 * that has the file open and syncs it.
 *
 *   LOCK -> SYNC -> NOTE -> END -> REPLY
 *
 * The request needs the inode's lock, so that no close is recorded meanwhile. While the lock is
 * taken, the answer is EINPROGRESS and the caller repeats the request: waiting here would occupy a
 * slot of the peer while the lock is held, even after the caller has given up. A close reports
 * under which verifier each server had data that no sync covered: the mark of the object. A server
 * that has lost these data since, by a power loss or a failed sync, reports that. Then the answer
 * is EIO, the mark becomes MARK_LOST, `change` grows, and the file does not replace another until
 * it was emptied. While the file has writers, all objects are synced; later writes and earlier
 * losses are left to the writers' own fsync and close. */
#include "server/op_state.h"
#include "server/pair.h"

#define MAX_DURABLE 4 /* at a time: fewer than the slots of a peer that is short of buffers */

enum { LOCK, SYNC, NOTE, END, REPLY };
static const char *const names[] = {
	[LOCK] = "lock", [SYNC] = "sync", [NOTE] = "note", [END] = "end", [REPLY] = "reply"
};

static int lock(struct sreq *s)
{
	const struct wire_durable_args *a = s->args;
	const struct inode *i = inode_find(s->srv, a->h.ino);
	struct durable_state *st = s->op;

	s->ino = a->h.ino;
	if (s->head.op == OP_FSYNC && !session_holds(s->session, a->h.ino))
		return -EBADF;
	if (i && i->locked)
		return -EINPROGRESS;
	return inode_lock_handle(s->srv, &a->h, &st->lock, &s->q);
}

static bool has_lost(const struct meta_node *n)
{
	for (uint32_t i = 0; n->unsynced && i < n->layout.n_targets; i++)
		if (n->unsynced[i].verifier == MARK_LOST)
			return true;
	return false;
}

static int sync_objects(struct sreq *s)
{
	const struct wire_durable_args *a = s->args;
	struct durable_state *st = s->op;
	int e = meta_get(s->srv->meta, &a->h, &st->node, &s->arena);

	if (e || !st->node.layout.n_targets || (!st->node.attr.unsettled && !st->node.unsynced)) {
		req_goto(&s->q, END);
		return e == -ESTALE ? 0 : e; /* the file is gone: the rename notices that itself */
	}
	if (!a->doubtful && has_lost(&st->node))
		return -EIO;
	e = fan_init(&st->fan, &st->node.layout, &s->arena);
	if (!e)
		e = fan_sync(s->srv, &st->fan, &st->node, a->doubtful ? SYNC_DOUBTFUL : SYNC_LEFT,
			     s->head.op == OP_FSYNC || a->doubtful, &s->arena, &s->q);
	return e;
}

/* Adds the answer about a marked object to the record. Ignores other objects and missing
 * answers. */
static void note_object(struct sreq *s, uint32_t i)
{
	const struct durable_state *st = s->op;
	const struct call *c = &st->fan.calls[i];
	struct wire_record *r = &s->change.rec;
	bool lost = c->status == -EIO;

	if (!c->op || !st->node.unsynced[i].verifier || (c->status && !lost))
		return;
	if (lost)
		log_at(LOG_ERROR, "server", s->head.trace,
		       "inode %llx has lost unsynced data in object %u: it cannot replace another "
		       "file until it is written again",
		       (unsigned long long)s->ino, i);
	r->objects[r->n_objects++] = (struct wire_object_note){
		.index = i,
		.unsynced = st->node.unsynced[i].verifier,
		.end = lost ? MARK_LOST : 0,
		.blocks = (uint64_t)st->node.unsynced[i].last_write,
	};
}

static int note(struct sreq *s)
{
	const struct wire_durable_args *a = s->args;
	struct durable_state *st = s->op;
	struct wire_record *r = &s->change.rec;

	if (!st->node.unsynced || !st->fan.n)
		return 0;
	sreq_record(s, REC_SYNCED);
	r->session = 0; /* no stored answer: the record may be applied twice */
	r->h = a->h;
	r->objects = arena_alloc(&s->arena, st->fan.n * sizeof(*r->objects));
	if (!r->objects)
		return -ENOMEM;
	for (uint32_t i = 0; i < st->fan.n; i++)
		note_object(s, i);
	if (r->n_objects)
		meta_submit(s->srv->meta, &s->change, &s->q);
	return 0;
}

static bool step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct durable_state *st = s->op;

	switch (q->state) {
	case LOCK:
		req_goto(q, SYNC);
		req_fail(q, lock(s));
		break;
	case SYNC:
		req_goto(q, NOTE);
		req_fail(q, sync_objects(s));
		break;
	case NOTE: /* also after an error: each answer is examined */
		req_goto(q, END);
		req_fail(q, note(s));
		break;
	case END:
		req_goto(q, REPLY);
		req_fail(q, -s->change.res.status);
		break;
	case REPLY:
		fan_fini(&st->fan);
		inode_unlock(&st->lock);
		return sreq_reply(s);
	}
	return true;
}

static void durable_abandon(struct req *q)
{
	struct durable_state *d = sreq_of(q)->op;

	fan_fini(&d->fan);
}

const struct req_ops durable_ops =
	REQ_OPS("durable", step, NOTE, names, .abandon = durable_abandon);

int durable_ask(struct sreq *s, struct durable_call *d, const struct wire_handle *h, bool doubtful)
{
	struct server *srv = s->srv;

	if (srv->n_durable >= MAX_DURABLE)
		return -EINPROGRESS;
	srv->n_durable++;
	d->waits = true;
	d->args = (struct wire_durable_args){ *h, doubtful };
	d->call = server_call(srv, s->q.trace, OP_DURABLE, &d->args, &d->res);
	peer_call(&srv->peers[meta_owner(srv, h->ino)], &d->call, &s->q);
	return 0;
}

void durable_end(struct sreq *s, struct durable_call *d)
{
	if (d->waits)
		s->srv->n_durable--;
	d->waits = false;
	call_fini(&d->call);
}
