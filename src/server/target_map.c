/* The cluster map: which targets there are. It is made from the cluster file at the start, kept by
 * the metadata, and grows while the server runs.
 *
 *   ADD: CHECK -> COMMIT -> REPLY
 *
 * Targets are never removed and never change their ids, because files name them. At the start the
 * cluster file decides about the targets that it lists (an address may have changed). The stored
 * map decides about targets that the file lacks: the file is older then. If the result differs from
 * the stored map, it is a new version. A new target is committed before it is visible.
 *
 * A target's storage has an incarnation. The metadata server learns it whenever a link to the
 * target comes up, and the map keeps the first one. A different one later means that the target's
 * storage was exchanged: the data of files there are lost. The log reports this error until an
 * administrator confirms that the target was emptied.
 *
 * Threads: the loop's. Memory: the map's arena, with room for the maximal number of targets.
 * Errors: a start without a map fails; a map that could not be stored is reported in the log and
 * stored by the next start. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/pair.h"

#define ASK_AGAIN_NS NSEC_PER_SEC /* pause after an answer that lacked the target */

/* ---- making the map ---- */

static int copy_text(struct server *s, struct wire_bytes *b)
{
	char *text = arena_strndup(&s->map_arena, (const char *)b->p, b->len);

	b->p = (uint8_t *)text;
	return text ? 0 : -ENOMEM;
}

/* Appends a copy of the target. */
static int map_put(struct server *s, struct wire_map_target t)
{
	struct wire_map_res *m = &s->map;

	if (m->n_targets == TARGETS_MAX || copy_text(s, &t.name) || copy_text(s, &t.address))
		return -ENOMEM;
	m->targets[m->n_targets++] = t;
	if (t.roles & ROLE_META)
		m->meta[m->n_meta++] = t.id;
	return 0;
}

static int map_from_conf(struct server *s)
{
	const struct conf *c = s->conf;
	struct wire_map_res *m = &s->map;
	int r = 0;

	arena_init(&s->map_arena, 0);
	m->stripe_unit = c->stripe_unit;
	m->width = c->width;
	m->targets = arena_alloc(&s->map_arena, TARGETS_MAX * sizeof(*m->targets));
	m->meta = arena_alloc(&s->map_arena, TARGETS_MAX * sizeof(*m->meta));
	if (!m->targets || !m->meta)
		return -ENOMEM;
	for (uint32_t i = 0; !r && i < c->n_targets; i++) {
		const struct conf_target *t = &c->targets[i];

		r = map_put(s, (struct wire_map_target){ .id = t->id,
							 .roles = t->roles,
							 .name = wire_text(t->name),
							 .address = wire_text(t->address) });
	}
	return r;
}

/* A map as an earlier version of Sheaf stored it: no incarnation is known. */
static int decode_old(const struct wire_bytes *blob, struct arena *a, struct wire_map_res *out)
{
	struct wire_old_map m = { 0 };
	struct xdr x;

	xdr_decoder(&x, blob->p, blob->len, a);
	if (!xdr_wire_old_map(&x, &m))
		return -EIO;
	out->targets = arena_alloc(a, (m.n_targets + 1) * sizeof(*out->targets));
	if (!out->targets)
		return -ENOMEM;
	out->n_targets = m.n_targets;
	for (uint32_t i = 0; i < m.n_targets; i++)
		out->targets[i] = (struct wire_map_target){ .id = m.targets[i].id,
							    .roles = m.targets[i].roles,
							    .name = m.targets[i].name,
							    .address = m.targets[i].address };
	return 0;
}

static int map_decode(const struct wire_bytes *blob, struct arena *a, struct wire_map_res *out)
{
	struct xdr x;

	xdr_decoder(&x, blob->p, blob->len, a);
	if (xdr_wire_map_res(&x, out) && !xdr_left(&x))
		return 0;
	*out = (struct wire_map_res){ 0 };
	return decode_old(blob, a, out);
}

/* Adds the targets that the stored map has and the cluster file lacks, and takes over
 * incarnations. */
static int map_from_stored(struct server *s, const struct wire_bytes *blob)
{
	struct wire_map_res old = { 0 };
	int r = map_decode(blob, &s->map_arena, &old);

	if (r)
		return r;
	for (uint32_t i = 0; i < MIN(s->map.n_targets, old.n_targets); i++)
		s->map.targets[i].incarnation = old.targets[i].incarnation;
	for (uint32_t i = s->map.n_targets; !r && i < old.n_targets; i++) {
		if (old.targets[i].id != i)
			return -EIO;
		log_warn("server", "%s: the cluster file lacks %.*s; it is in the map",
			 s->self->name, (int)old.targets[i].name.len,
			 (const char *)old.targets[i].name.p);
		r = map_put(s, old.targets[i]);
	}
	return r;
}

/* Encodes the map for storage: without its version, which is stored beside it. */
static int map_encode(struct wire_map_res m, struct arena *a, struct wire_bytes *out)
{
	uint8_t *text = arena_alloc(a, MSG_MAX);
	struct xdr x;

	m.version = 0;
	xdr_encoder(&x, text, MSG_MAX);
	if (!text || !xdr_wire_map_res(&x, &m))
		return text ? -EMSGSIZE : -ENOMEM;
	*out = (struct wire_bytes){ (uint32_t)xdr_used(&x), text };
	return 0;
}

/* ---- storing the map ---- */

static struct wire_record map_record(struct server *s, struct wire_bytes blob, uint32_t version)
{
	struct env *e = s->loop->env;

	return (struct wire_record){ .kind = REC_MAP,
				     .time = (int64_t)e->clock->wall(e),
				     .epoch = version,
				     .flags = version == s->map.version ? REC_REPLACE : 0,
				     .data = blob };
}

static void map_store(struct server *s, uint32_t version);

static bool store_step(struct req *q)
{
	struct server *s = container_of(q, struct server, map_req);
	uint32_t status = s->map_change.res.status;

	s->map_unsaved = q->error || status || s->map_dirty;
	if (!q->error && status == EINVAL) /* a map with another target was committed first */
		s->map_dirty = true;
	else if (q->error || status)
		log_error("server", "%s could not store the cluster map", s->self->name);
	req_fini(q);
	s->map_req.loop = NULL;
	arena_destroy(&s->store_arena);
	if (s->map_dirty)
		map_store(s, s->map.version);
	return false;
}

static const char *const store_names[] = { "commit" };
static const struct req_ops store_ops = REQ_OPS("store-map", store_step, 0, store_names);

/* Stores the present map under this version. If one is being stored, stores again after that. */
static void map_store(struct server *s, uint32_t version)
{
	struct wire_bytes blob;

	s->map_unsaved = true;
	s->map_dirty = s->map_req.loop;
	if (s->map_req.loop || s->stopping)
		return;
	arena_init(&s->store_arena, 0);
	if (map_encode(s->map, &s->store_arena, &blob)) {
		log_error("server", "%s could not store the cluster map: out of memory",
			  s->self->name);
		arena_destroy(&s->store_arena);
		return;
	}
	s->map_change =
		(struct change){ .arena = &s->store_arena, .rec = map_record(s, blob, version) };
	req_init(&s->map_req, s->loop, &store_ops, 0);
	meta_submit(s->meta, &s->map_change, &s->map_req);
}

/* ---- incarnations ---- */

/* Notes a target's first storage (true). Logs an error if the map knows other storage. */
static bool storage_is_new(struct server *s, uint32_t target, uint64_t incarnation)
{
	struct wire_map_target *t = &s->map.targets[target];

	if (!incarnation || t->incarnation == incarnation)
		return false;
	if (!t->incarnation) {
		t->incarnation = incarnation;
		return true;
	}
	log_error("server",
		  "%.*s has other storage than the map knows: data that files had there are lost; "
		  "put back its storage, or run `sheaf add-server %.*s --emptied`",
		  (int)t->name.len, (const char *)t->name.p, (int)t->name.len,
		  (const char *)t->name.p);
	return false;
}

static void on_incarnation(struct peer *p)
{
	struct server *s = p->owner;

	if (s->meta && p->target < s->map.n_targets && storage_is_new(s, p->target, p->incarnation))
		map_store(s, s->map.version);
}

/* ---- the start ---- */

int map_open(struct server *s)
{
	struct wire_bytes old = { 0 }, new;
	struct arena mem;
	int r = map_from_conf(s);

	if (r || !s->meta)
		return r;
	r = meta_map(s->meta, &s->map.version, &old, &s->map_arena);
	if (!r && s->map.version)
		r = map_from_stored(s, &old);
	if (r)
		return r;
	storage_is_new(s, s->target, disk_stamp(s->disk).incarnation);
	arena_init(&mem, 0);
	r = map_encode(s->map, &mem, &new);
	if (!r && (old.len != new.len || memcmp(old.p, new.p, old.len) != 0)) {
		map_store(s, s->map.version + 1);
		s->map.version++;
	}
	arena_destroy(&mem);
	return r;
}

void map_abandon(struct server *s)
{
	if (s->map_req.loop)
		req_abandon(&s->map_req);
	if (s->ask.q.loop) {
		req_abandon(&s->ask.q);
		call_fini(&s->ask.call);
		arena_destroy(&s->ask.arena);
	}
}

/* ---- peers ---- */

static void peer_add(struct server *s, const struct wire_map_target *t)
{
	char address[CONF_ADDR_MAX];

	snprintf(address, sizeof(address), "%.*s", (int)t->address.len, (const char *)t->address.p);
	peer_init(&s->peers[t->id], &s->net, LINK_SERVER, t->id, address);
	s->peers[t->id].owner = s;
	s->peers[t->id].on_incarnation = on_incarnation;
	s->n_peers++;
}

int map_peers(struct server *s)
{
	s->peers = calloc(CONF_MAX_TARGETS, sizeof(*s->peers)); /* untouched memory costs nothing */
	if (!s->peers)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->map.n_targets; i++)
		peer_add(s, &s->map.targets[i]);
	return 0;
}

/* A target without metadata, or with an older cluster file, may be asked to copy from a target that
 * it does not know yet. It asks a metadata server for the map; the request that needs the target
 * parks. */

static bool ask_step(struct req *q)
{
	struct server *s = container_of(q, struct server, ask.q);
	const struct wire_map_res *m = &s->ask.res;

	for (uint32_t i = 0; !q->error && i < m->n_targets; i++)
		if (m->targets[i].id == s->n_peers && s->n_peers < CONF_MAX_TARGETS)
			peer_add(s, &m->targets[i]);
	s->ask.over = q->error ? 0 : s->loop->now;
	call_fini(&s->ask.call);
	arena_destroy(&s->ask.arena);
	req_fini(q);
	s->ask.q.loop = NULL;
	return false;
}

static const char *const ask_names[] = { "ask" };
static const struct req_ops ask_ops = REQ_OPS("ask-map", ask_step, 0, ask_names);

int map_knows(struct server *s, uint32_t target, uint64_t ino)
{
	if (target < s->n_peers)
		return 0;
	if (target >= CONF_MAX_TARGETS ||
	    (s->ask.over && s->loop->now < s->ask.over + ASK_AGAIN_NS)) /* no server knows it */
		return -EINVAL;
	if (s->ask.q.loop)
		return -EINPROGRESS;
	arena_init(&s->ask.arena, MIB);
	s->ask.res = (struct wire_map_res){ 0 };
	req_init(&s->ask.q, s->loop, &ask_ops, 0);
	s->ask.call = server_call(s, s->ask.q.trace, OP_MAP, &s->ask.args, &s->ask.res);
	s->ask.call.arena = &s->ask.arena;
	peer_call(&s->peers[meta_owner(s, ino)], &s->ask.call, &s->ask.q);
	return -EINPROGRESS;
}

/* ---- operations ---- */

int do_map(struct sreq *s)
{
	struct wire_map_res *r = s->res;

	*r = s->srv->map;
	return 0;
}

static bool same(const struct wire_bytes *a, const struct wire_bytes *b)
{
	return a->len == b->len && memcmp(a->p, b->p, a->len) == 0;
}

static bool is_word(const struct wire_bytes *b)
{
	for (uint32_t i = 0; i < b->len; i++)
		if (!isgraph(b->p[i]))
			return false;
	return b->len > 0;
}

/* The target is in the map. 0: its incarnation is to be changed; -EALREADY: it is the same;
 * -ESTALE: other storage, not declared as emptied. */
static int may_change(const struct wire_map_target *known, const struct wire_add_target_args *a)
{
	if (!a->target.incarnation || a->target.incarnation == known->incarnation)
		return -EALREADY;
	return known->incarnation && !a->emptied ? -ESTALE : 0;
}

/* May this be the next target, or a known one with other storage? 0; -EALREADY: it is in the map;
 * or the error. */
static int may_add(const struct wire_map_res *m, const struct wire_add_target_args *a)
{
	const struct wire_map_target *t = &a->target;

	if (!is_word(&t->name) || !is_word(&t->address))
		return -EINVAL;
	for (uint32_t i = 0; i < m->n_targets; i++) {
		bool name = same(&m->targets[i].name, &t->name);
		bool address = same(&m->targets[i].address, &t->address);

		if (name && address && t->id == i && t->roles == m->targets[i].roles)
			return may_change(&m->targets[i], a);
		if (name || address || t->id == i)
			return -EEXIST;
	}
	if (t->roles != ROLE_DATA || a->emptied)
		return -EINVAL;
	if (t->id >= TARGETS_MAX)
		return -ENOSPC;
	return t->id == m->n_targets ? 0 : -EINVAL;
}

enum { CHECK, COMMIT, REPLY };
static const char *const add_names[] = { [CHECK] = "check", [COMMIT] = "commit", [REPLY] = "reply" };

static int add_check(struct sreq *s)
{
	const struct wire_add_target_args *a = s->args;
	struct wire_map_res m = s->srv->map;
	struct wire_map_target *targets;
	struct wire_bytes blob;
	bool is_new = a->target.id == m.n_targets;
	int r = may_add(&m, a);
	bool is_known = r == -EALREADY;

	if (r && !(is_known && s->srv->map_unsaved)) /* the answer promises that it is durable */
		return r;
	targets = arena_alloc(&s->arena, (m.n_targets + 1) * sizeof(*targets));
	if (!targets)
		return -ENOMEM;
	memcpy(targets, m.targets, m.n_targets * sizeof(*targets));
	if (!is_known)
		targets[a->target.id] = a->target;
	m.n_targets = MAX(m.n_targets, a->target.id + 1);
	m.targets = targets;
	r = map_encode(m, &s->arena, &blob);
	if (r)
		return r;
	s->change.rec = map_record(s->srv, blob, m.version + is_new);
	meta_submit(s->srv->meta, &s->change, &s->q);
	return 0;
}

/* The new map is durable: from now on files may use the target. */
static int add_commit(struct sreq *s)
{
	const struct wire_add_target_args *a = s->args;
	struct server *srv = s->srv;
	int r;

	if (s->change.res.status) /* another change of the map was committed first */
		return s->change.res.status == EINVAL ? -EAGAIN : -s->change.res.status;
	if (a->target.id < srv->map.n_targets) {
		if (may_add(&srv->map, a) == -EALREADY)
			return 0;
		srv->map.targets[a->target.id].incarnation = a->target.incarnation;
		log_warn("server", "%.*s: the map now has its present storage",
			 (int)a->target.name.len, (const char *)a->target.name.p);
		/* a map without it may have been queued meanwhile */
		map_store(srv, srv->map.version);
		return 0;
	}
	r = map_put(srv, a->target);
	if (r)
		return r;
	srv->map.version = srv->net.id.map_version = (uint32_t)s->change.res.epoch;
	if (a->target.id == srv->n_peers) /* else the peer exists, from an answer to map_knows() */
		peer_add(srv, &a->target);
	log_info("server", "%.*s (%.*s) is in the map, version %u", (int)a->target.name.len,
		 (const char *)a->target.name.p, (int)a->target.address.len,
		 (const char *)a->target.address.p, srv->map.version);
	return 0;
}

static bool add_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	int r;

	switch (q->state) {
	case CHECK:
		req_goto(q, COMMIT);
		r = add_check(s);
		if (r)
			req_goto(q, REPLY);
		if (r != -EALREADY)
			req_fail(q, r);
		break;
	case COMMIT:
		req_goto(q, REPLY);
		req_fail(q, add_commit(s));
		break;
	case REPLY:
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops add_target_ops = REQ_OPS("add-target", add_step, REPLY, add_names);
