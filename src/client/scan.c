/* include/sheaf_admin.h: pages of rows and of objects, repairs, and which server has what.
 *
 * Threads: any; each call takes the connection's lock through api_begin() (api.c). Buffers: rows
 * are copied out before the operation is freed. Errors: -errno; a reply with more rows than were
 * asked for is -EBADMSG. */
#include <assert.h>

#include "client/api_impl.h"
#include "sheaf_admin.h"

static_assert(SHEAF_SCAN_MAX == SCAN_MAX && SHEAF_SCAN_KEY == SCAN_KEY &&
		      SHEAF_MAX_TARGETS == TARGETS_MAX,
	      "limits are those of the wire");
static_assert((int)SHEAF_SCAN_LOCK == SCAN_LOCK && (int)SHEAF_REPAIR_ACL == REPAIR_ACL &&
		      SHEAF_HAS_ACL == HAS_ACL && SHEAF_HAS_CAPABILITY == HAS_CAPABILITY,
	      "kinds are those of the wire");
static_assert(SHEAF_OBJECT_OLD == OBJECT_OLD, "no index is that of the wire");

static struct sheaf_handle handle_of(const struct wire_handle *h)
{
	return (struct sheaf_handle){ h->ino, h->gen };
}

static struct wire_handle wire_of(struct sheaf_handle h)
{
	return (struct wire_handle){ h.ino, h.gen };
}

static void stripes_take(struct sheaf_stripes *s, const struct wire_layout_rec *l)
{
	s->version = l->version;
	s->type = l->type;
	s->unit = l->unit;
	s->start = l->start;
	s->obj_gen = l->obj_gen;
	s->redundancy = l->redundancy;
	s->n_targets = l->n_targets;
	for (uint32_t i = 0; i < l->n_targets; i++)
		s->targets[i] = l->targets[i];
}

static void row_take(struct sheaf_row *out, const struct wire_scan_row *r)
{
	out->h = handle_of(&r->h);
	out->to = handle_of(&r->to);
	out->second = r->second;
	out->size = r->size;
	out->epoch = r->epoch;
	out->change = r->change;
	out->mode = r->mode;
	out->nlink = r->nlink;
	out->has = r->has;
	out->bad = r->bad;
	out->name_len = r->name.len;
	out->key_len = r->key.len;
	if (r->name.len)
		memcpy(out->name, r->name.p, r->name.len);
	out->name[r->name.len] = 0;
	if (r->key.len)
		memcpy(out->key, r->key.p, r->key.len);
	stripes_take(&out->stripes, &r->layout);
	out->index = r->index;
	for (uint32_t i = 0; i < r->layout.n_targets; i++)
		out->ends[i] = i < r->layout.n_ends ? r->layout.ends[i] : 0;
}

/* Copies a page out and remembers where it ended. */
static int page_take(const struct wire_scan_res *r, struct sheaf_scan *s, struct sheaf_row *rows,
		     uint32_t max)
{
	const struct wire_scan_row *last;

	if (r->n_rows > max || (!r->n_rows && !r->end))
		return -EBADMSG;
	for (uint32_t i = 0; i < r->n_rows; i++)
		row_take(&rows[i], &r->rows[i]);
	s->end = r->end;
	s->total = r->total;
	if (!r->n_rows)
		return 0;
	last = &r->rows[r->n_rows - 1];
	s->key_len = last->key.len;
	if (last->key.len)
		memcpy(s->key, last->key.p, last->key.len);
	return (int)r->n_rows;
}

int sheaf_scan(struct sheaf *fs, int i, enum sheaf_scan_kind kind, struct sheaf_scan *s,
	       struct sheaf_row *rows, int max)
{
	struct cop *op;
	int r;

	if (i < 0 || i >= sheaf_server_count(fs) || max < 1 || s->key_len > SCAN_KEY)
		return -EINVAL;
	if (s->end)
		return 0;
	op = api_begin(fs, NULL);
	op->args.SCAN = (struct wire_scan_args){ .kind = kind,
						 .only = s->only,
						 .after = { s->key_len, s->key },
						 .max = MIN((uint32_t)max, SCAN_MAX) };
	client_ask(op, kind == SHEAF_SCAN_OBJECT ? OP_OBJECTS : OP_SCAN, (uint32_t)i,
		   op->c->timeout_ns);
	r = (int)api_wait(fs, op);
	if (!r)
		r = page_take(&op->res.scan, s, rows, (uint32_t)max);
	api_release(fs, op);
	return r;
}

int sheaf_server_of(struct sheaf *fs, uint64_t ino)
{
	struct client *c = fs->b.client;

	return (int)(meta_peer(c, ino) - c->peers);
}

void sheaf_default_stripes(struct sheaf *fs, uint64_t ino, uint32_t unit, uint32_t width,
			   struct sheaf_stripes *out)
{
	const struct conf *conf = fs->b.client->conf;
	uint32_t data[TARGETS_MAX], n = 0;

	for (uint32_t i = 0; i < conf->n_targets; i++)
		if (conf->targets[i].roles & ROLE_DATA)
			data[n++] = i;
	memset(out, 0, sizeof(*out));
	out->version = 1;
	out->unit = unit ? unit : conf->stripe_unit;
	out->obj_gen = 1;
	out->n_targets = MIN(width ? width : conf->width ? conf->width : n, n);
	if (n)
		layout_targets(ino, data, n, out->targets, out->n_targets);
}

uint64_t sheaf_stripes_end(const struct sheaf_stripes *s, uint32_t server, uint64_t end)
{
	struct layout l = { s->unit, s->n_targets, s->start };

	for (uint32_t i = 0; i < s->n_targets; i++)
		if (s->targets[i] == server)
			return layout_file_end(&l, i, end);
	return UINT64_MAX;
}

int sheaf_repair(struct sheaf *fs, int i, const struct sheaf_repair *r)
{
	struct wire_repair_args *a;
	struct cop *op;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = api_begin(fs, NULL);
	a = &op->args.REPAIR;
	*a = (struct wire_repair_args){ .kind = r->kind,
					.h = wire_of(r->h),
					.dir = wire_of(r->dir),
					.name = { r->name_len, (const uint8_t *)r->name },
					.key = { r->key_len, r->key },
					.mode = r->mode,
					.change = r->change,
					.value = r->value };
	if (r->stripes)
		a->layout = (struct wire_layout_rec){
			.version = r->stripes->version,
			.type = r->stripes->type,
			.unit = r->stripes->unit,
			.start = r->stripes->start,
			.obj_gen = r->stripes->obj_gen,
			.redundancy = r->stripes->redundancy,
			.n_targets = r->stripes->n_targets,
			.targets = (uint32_t *)(uintptr_t)r->stripes->targets
		};
	client_ask(op, OP_REPAIR, (uint32_t)i, op->c->timeout_ns);
	return (int)api_finish(fs, op);
}
