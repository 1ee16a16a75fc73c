/* DURABLE: all data that the writers of a file have left are brought to disk, before the file
 * takes the place of another (op_pair.c). From metadata servers, to the one that owns the inode.
 *
 *   LOCK -> SYNC -> NOTE -> END -> REPLY
 *
 * The inode's lock makes it wait for a close that is being recorded. A close reports under which
 * verifier each server had data that no sync covered. A server that has lost them since, with
 * the power of its host or by a failed sync, says so: then the answer is EIO, and the file does
 * not replace another until it was emptied. While it has writers, all objects are synced; what
 * they write later, and what was lost before, is for their own fsync and close. */
#include "server/srv.h"

enum { LOCK, SYNC, NOTE, END, REPLY };
static const char *const names[] = { "lock", "sync", "note", "end", "reply" };

static int sync_objects(struct sreq *s)
{
	const struct wire_durable_args *a = s->args;
	struct durable_state *st = s->op;
	int e = meta_get(s->srv->meta, &a->h, &st->node, &s->arena);

	if (e || !st->node.layout.n_targets || (!st->node.attr.unsettled && !st->node.unsynced)) {
		req_goto(&s->q, END);
		return e == -ESTALE ? 0 : e; /* it is gone: the rename finds that out */
	}
	e = fan_init(&st->fan, &st->node.layout, &s->arena);
	if (!e)
		e = fan_sync(s, &st->fan, &st->node);
	return e;
}

static int note(struct sreq *s)
{
	const struct wire_durable_args *a = s->args;
	struct durable_state *st = s->op;
	const struct meta_unsynced *unsynced = st->node.unsynced;
	struct wire_record *r = &s->change.rec;

	if (!unsynced)
		return 0;
	sreq_record(s, REC_SYNCED);
	r->session = 0; /* those of servers are not stored, and it may be done twice */
	r->h = a->h;
	r->objects = arena_alloc(&s->arena, st->fan.n * sizeof(*r->objects));
	if (!r->objects)
		return -ENOMEM;
	for (uint32_t i = 0; i < st->fan.n; i++)
		if (unsynced[i].verifier)
			r->objects[r->n_objects++] =
				(struct wire_object_note){ .index = i,
							   .unsynced = unsynced[i].verifier };
	meta_submit(s->srv->meta, &s->change, &s->q);
	return 0;
}

static bool step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	const struct wire_durable_args *a = s->args;
	struct durable_state *st = s->op;

	switch (q->state) {
	case LOCK:
		req_goto(q, SYNC);
		s->ino = a->h.ino;
		req_fail(q, inode_lock_handle(s->srv, &a->h, &st->lock, q));
		break;
	case SYNC:
		req_goto(q, NOTE);
		req_fail(q, sync_objects(s));
		break;
	case NOTE:
		req_goto(q, END);
		req_fail(q, note(s));
		break;
	case END:
		req_goto(q, REPLY);
		req_fail(q, -s->change.res.status);
		break;
	case REPLY:
		if (q->error == -EIO)
			log_at(LOG_ERROR, "server", s->head.trace,
			       "inode %llx has lost unsynced data: it does not replace another "
			       "file; write it anew",
			       (unsigned long long)a->h.ino);
		fan_fini(&st->fan);
		inode_unlock(&st->lock);
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops durable_ops = { "durable", step, REPLY, 5, names };
