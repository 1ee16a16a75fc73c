/* Operations on a whole object: SYNC, OBJSTAT, SEEK, and from metadata servers FENCE and REMOVE.
 *
 *   GET -> WORK -> REPLY */
#include <unistd.h>

#include "server/cap.h"
#include "server/op_state.h"

enum { GET, WORK, REPLY };
static const char *const names[] = { [GET] = "open", [WORK] = "work", [REPLY] = "reply" };

static bool reply(struct sreq *s)
{
	struct object_state *st = s->op;

	cap_refused(s);
	object_put(st->object);
	st->object = NULL;
	return sreq_reply(s);
}

static void get(struct sreq *s, const struct wire_access *a)
{
	struct object_state *st = s->op;

	s->ino = a->cap.ino;
	req_fail(&s->q, access_check(s, a, 0));
	if (!s->q.error)
		object_get(s->srv->disk, object_of(a), a->cap.epoch, false, &st->object, &s->q);
}

/* Refuses capabilities without the right to read or write: those for OBJSTAT are given to every
 * client. */
static void get_entitled(struct sreq *s, const struct wire_access *a)
{
	if (a->cap.rights & (CAP_READ | CAP_WRITE))
		get(s, a);
	else
		req_fail(&s->q, -EACCES);
}

/* A missing object was never written: that is no error, its end is 0. */
static void answer(struct sreq *s)
{
	struct object_state *st = s->op;
	struct wire_object_res *r = s->res;

	if (s->q.error == -ENOENT)
		s->q.error = 0;
	if (st->object) {
		r->end = object_end(st->object);
		r->blocks = object_blocks(st->object);
		r->mtime = object_mtime(st->object);
	}
}

/* Checks that the object reaches its recorded end, for an access from `from` on. */
static int whole(struct sreq *s, const struct wire_access *a, uint64_t from)
{
	const struct object_state *st = s->op;
	uint64_t end = st->object ? object_end(st->object) : 0;

	return end < a->recorded && from < a->recorded ? object_damaged(s, a, end) : 0;
}

static bool sync_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	const struct wire_sync_args *a = s->args;
	struct object_state *st = s->op;

	switch (q->state) {
	case GET:
		req_goto(q, WORK);
		get_entitled(s, &a->at);
		break;
	case WORK:
		req_goto(q, REPLY);
		object_sync(st->object, q);
		break;
	case REPLY:
		answer(s);
		if (!q->error)
			q->error = whole(s, &a->at, 0);
		if (!q->error && a->unsynced &&
		    !disk_data_survived(s->srv->disk, a->unsynced, a->written))
			q->error = -EIO;
		return reply(s);
	}
	return true;
}

const struct req_ops sync_ops = REQ_OPS("sync", sync_step, REPLY, names);

static bool objstat_step(struct req *q)
{
	struct sreq *s = sreq_of(q);

	if (q->state == GET) {
		req_goto(q, REPLY);
		get(s, &((struct wire_objstat_args *)s->args)->at);
		return true;
	}
	answer(s);
	return reply(s);
}

const struct req_ops objstat_ops = REQ_OPS("objstat", objstat_step, REPLY, names);

static_assert(WHENCE_DATA == SEEK_DATA && WHENCE_HOLE == SEEK_HOLE,
	      "what is sought goes to the system as it is");

static bool seek_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_seek_args *a = s->args;
	struct wire_seek_res *r = s->res;
	struct object_state *st = s->op;

	switch (q->state) {
	case GET:
		req_goto(q, WORK);
		if ((a->whence != WHENCE_DATA && a->whence != WHENCE_HOLE) || a->offset > INT64_MAX)
			req_fail(q, -EINVAL);
		else
			get_entitled(s, &a->at);
		break;
	case WORK:
		req_goto(q, REPLY);
		st->io.off = a->offset;
		object_seek(st->object, &st->io, (int)a->whence, q);
		break;
	case REPLY:
		if (q->error == -ENOENT && !st->object) { /* never written: one hole */
			q->error = 0;
			st->io.bytes = a->whence == WHENCE_HOLE ? a->offset : SEEK_NONE;
		}
		r->offset = st->io.bytes;
		r->end = st->object ? object_end(st->object) : 0;
		if (!q->error)
			q->error = whole(s, &a->at, a->offset);
		return reply(s);
	}
	return true;
}

const struct req_ops seek_ops = REQ_OPS("seek", seek_step, REPLY, names);

static bool fence_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_fence_args *a = s->args;
	struct wire_object_res *r = s->res;
	struct object_state *st = s->op;

	if (q->state == GET) {
		req_goto(q, REPLY);
		s->ino = a->ino;
		disk_fence(s->srv->disk, (struct object_id){ a->ino, a->obj_gen, a->index },
			   a->epoch, a->truncate_to, &st->stat, q);
		return true;
	}
	*r = (struct wire_object_res){ st->stat.end, st->stat.blocks, st->stat.mtime };
	return reply(s);
}

const struct req_ops fence_ops = REQ_OPS("fence", fence_step, REPLY, names);

/* Removes all objects concurrently, each with its own status. */
static int remove_all(struct sreq *s, const struct wire_remove_args *a, struct wire_remove_res *r)
{
	r->status = arena_alloc(&s->arena, MAX(a->n_list, 1u) * sizeof(*r->status));
	if (!r->status)
		return -ENOMEM;
	r->n_status = a->n_list;
	for (uint32_t i = 0; i < a->n_list; i++) {
		const struct wire_removal *o = &a->list[i];

		s->ino = o->ino;
		disk_remove(s->srv->disk, (struct object_id){ o->ino, o->obj_gen, o->index },
			    o->epoch, &r->status[i], &s->q);
	}
	return 0;
}

static bool remove_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_remove_args *a = s->args;
	struct wire_remove_res *r = s->res;

	if (q->state == GET) {
		req_goto(q, REPLY);
		req_fail(q, remove_all(s, a, r));
		return true;
	}
	for (uint32_t i = 0; i < r->n_status; i++)
		r->status[i] = -r->status[i];
	return reply(s);
}

const struct req_ops remove_ops = REQ_OPS("remove", remove_step, REPLY, names);
