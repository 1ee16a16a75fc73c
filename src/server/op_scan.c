/* For administrators: pages of metadata rows and of objects as they are stored, and repairs.
 *
 * SCAN reads one short page inline. OBJECTS reads directories on a worker: LIST -> REPLY. REPAIR is
 * one record that checks its precondition again. Buffers: pages are in the request's arena. */
#include <endian.h>

#include "server/task.h"
#include "server/sreq.h"

#define PAGE_BYTES (96 * KIB) /* per reply */
#define OBJECT_KEY 17 /* directory, inode, generation, index; big-endian */

int do_scan(struct sreq *s)
{
	const struct wire_scan_args *a = s->args;

	s->ino = a->only;
	return meta_scan(s->srv->meta, a, PAGE_BYTES, s->res, &s->arena);
}

/* ---- objects ---- */

static int object_key(struct sreq *s, const struct disk_object *o, struct wire_bytes *key)
{
	uint8_t *p = arena_alloc(&s->arena, OBJECT_KEY);
	uint64_t ino = htobe64(o->id.ino);
	uint32_t gen = htobe32(o->id.gen), index = htobe32(o->id.index);

	if (!p)
		return -ENOMEM;
	p[0] = (uint8_t)o->dir;
	memcpy(p + 1, &ino, sizeof(ino));
	memcpy(p + 9, &gen, sizeof(gen));
	memcpy(p + 13, &index, sizeof(index));
	*key = (struct wire_bytes){ OBJECT_KEY, p };
	return 0;
}

static int objects_start(struct sreq *s, struct disk_scan *d)
{
	const struct wire_scan_args *a = s->args;
	uint64_t ino;
	uint32_t gen, index;

	if (a->kind != SCAN_OBJECT || (a->after.len && a->after.len != OBJECT_KEY))
		return -EINVAL;
	d->only = s->ino = a->only;
	d->max = MIN(MAX(a->max, 1u), (uint32_t)SCAN_MAX);
	d->rows = arena_alloc(&s->arena, d->max * sizeof(*d->rows));
	if (!d->rows)
		return -ENOMEM;
	if (a->after.len) {
		memcpy(&ino, a->after.p + 1, sizeof(ino));
		memcpy(&gen, a->after.p + 9, sizeof(gen));
		memcpy(&index, a->after.p + 13, sizeof(index));
		d->begun = true;
		d->dir = a->after.p[0];
		d->last = (struct object_id){ be64toh(ino), be32toh(gen), be32toh(index) };
	}
	disk_scan(s->srv->disk, d, &s->q);
	return 0;
}

static int objects_answer(struct sreq *s, const struct disk_scan *d)
{
	struct wire_scan_res *r = s->res;
	int e = 0;

	r->rows = arena_alloc(&s->arena, MAX(d->n, 1u) * sizeof(*r->rows));
	if (!r->rows)
		return -ENOMEM;
	for (; r->n_rows < d->n && !e; r->n_rows++) {
		const struct disk_object *o = &d->rows[r->n_rows];
		struct wire_scan_row *row = &r->rows[r->n_rows];

		row->h.ino = o->id.ino;
		row->second = o->id.gen;
		row->index = o->id.index;
		row->size = o->end;
		row->epoch = o->floor;
		e = object_key(s, o, &row->key);
	}
	r->end = d->end;
	return e;
}

static_assert(OBJECT_NO_INDEX == OBJECT_OLD, "no index is no index");
enum { LIST, REPLY };
static const char *const names[] = { [LIST] = "list", [REPLY] = "reply" };

static bool objects_step(struct req *q)
{
	struct sreq *s = sreq_of(q);

	if (q->state == LIST) {
		req_goto(q, REPLY);
		req_fail(q, objects_start(s, s->op));
		return true;
	}
	if (!q->error)
		q->error = objects_answer(s, s->op);
	return sreq_reply(s);
}

const struct req_ops objects_ops = REQ_OPS("objects", objects_step, REPLY, names);

/* ---- repairs ---- */

int prepare_repair(struct sreq *s)
{
	const struct wire_repair_args *a = s->args;
	struct wire_record *r = &s->change.rec;

	s->ino = a->h.ino;
	if (a->kind == REPAIR_LAYOUT && a->value != s->srv->map.n_targets)
		return -EAGAIN; /* a client that does not know all targets cannot judge a layout */
	sreq_record(s, REC_REPAIR);
	r->which = a->kind;
	r->h = a->h;
	r->dir = a->dir;
	r->name = a->name;
	r->mode = a->mode;
	r->size = a->change;
	r->epoch = a->value;
	r->layout = a->layout;
	r->data = a->key;
	return 0;
}

/* Keeps used inode numbers from being given again, and starts settling where a size is unknown. */
int finish_repair(struct sreq *s)
{
	const struct wire_repair_args *a = s->args;

	log_at(LOG_INFO, "server", s->head.trace, "repair: %s of inode %llu",
	       wire_repair_kind_name(a->kind), (unsigned long long)a->h.ino);
	if (a->kind == REPAIR_NEXT || a->kind == REPAIR_MAKE)
		meta_raise_ino(s->srv->meta, a->h.ino);
	if (a->kind == REPAIR_UNSETTLE || (a->kind == REPAIR_MAKE && a->mode == S_IFREG))
		return task_start(s->srv, TASK_SETTLE, &a->h, 0, 0);
	return 0;
}
