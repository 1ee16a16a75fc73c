/* Changes of names: one record where this server owns all that changes, else a change over several
 * servers that this one coordinates.
 *
 *   PREPARE -> COMMIT -> REPLY			here
 *   PREPARE -> FLUSHED -> PREPARE ...			flush a file before it replaces another
 *   ... -> SPLIT -> NEXT <-> ANSWER -> DECIDE -> DECIDED -> TELL -> TOLD -> REPLY	over several
 *
 * A change that reaches beyond this server's partition (EXDEV) is split into parts: an entry that
 * is added or removed, an inode that is made, gets or loses a name, or moves. In NEXT, the servers
 * of the parts prepare them one after another. DECIDE does this server's own parts in the
 * transaction that decides the change and stores the answer. TELL makes the others finish. No
 * server waits while it holds a part: when one is busy, all parts are taken back and the request
 * begins again (sreq_park). A server that does not learn the outcome asks for it (pairs.c); no
 * decision means that the change did not happen. Only one directory of the whole file system gets
 * another parent at a time (PART_ALONE at the server of the root), so that the result of a climb
 * from the new parent stays true. */
#include "server/pair.h"

/* then pair_tell() continues after the reply, or the servers ask */
#define TELL_NS (2 * NSEC_PER_SEC)

enum { PREPARE, FLUSHED, COMMIT, SPLIT, NEXT, ANSWER, DECIDE, DECIDED, TELL, TOLD, REPLY };
static const char *const names[] = {
	[PREPARE] = "prepare", [FLUSHED] = "flush", [COMMIT] = "commit", [SPLIT] = "split",
	[NEXT] = "ask-next",   [ANSWER] = "answer", [DECIDE] = "decide", [DECIDED] = "decided",
	[TELL] = "tell",       [TOLD] = "told",	    [REPLY] = "reply"
};

struct part {
	uint32_t target; /* the server of this part */
	bool own; /* this server's, done in the deciding transaction */
	bool asked;
	struct wire_record rec;
};

/* One direction of a move: is `ino` an ancestor of `at`? Meeting `mark` again means a cycle. */
struct climb {
	uint64_t ino;
	struct wire_handle at, mark;
	uint32_t n, next_mark; /* answers so far; after answer next_mark, mark is set to at */
	bool over;
};

struct split {
	struct part parts[PARTS_MAX];
	uint32_t n_parts;
	struct part *asked; /* the part being prepared now */
	struct climb climbs[2], *climbing;
	uint32_t n_climbs;
	struct wire_handle child; /* the inode that a rename moves */
	uint32_t type; /* of the child */
	uint32_t touched[PARTS_MAX], n_touched; /* servers that may have prepared a part */
	struct wire_attr at; /* the attributes to answer with */
	struct call call, tells[PARTS_MAX];
	struct wire_prepare_args prepare_args;
	struct wire_prepare_res prepare_res;
	struct wire_climb_args climb_args;
	struct wire_climb_res climb_res;
	struct wire_finish_args finish_args;
	struct wire_void_res none;
	bool nothing; /* both names are of the same file: nothing to do */
	bool asked_for; /* the decision was submitted to the writer thread */
	bool decided;
	int error;
};

static struct pair_state *state_of(struct sreq *s)
{
	return s->op;
}

uint32_t meta_owner(const struct server *srv, uint64_t ino)
{
	return srv->map.meta[INO_PARTITION(ino) % srv->map.n_meta];
}

/* ---- parts ---- */

static struct wire_record *part_add(struct sreq *s, struct split *x, uint32_t kind, uint32_t target)
{
	struct part *p = &x->parts[x->n_parts++];
	struct wire_record *keep = &s->change.rec, saved = *keep;

	assert(x->n_parts <= PARTS_MAX);
	sreq_record(s, kind);
	p->rec = *keep;
	p->rec.session = 0;
	*keep = saved;
	p->target = target;
	p->own = target == s->srv->target && kind != PART_ALONE;
	return &p->rec;
}

static void part_name(struct sreq *s, struct split *x, uint32_t kind, const struct wire_handle *dir,
		      const struct wire_bytes *name, const struct wire_handle *h, uint32_t type,
		      uint32_t flags)
{
	struct wire_record *r = part_add(s, x, kind, meta_owner(s->srv, dir->ino));

	r->dir = *dir;
	r->name = *name;
	r->h = *h;
	r->mode = type;
	r->flags = flags;
}

/* A part for an inode whose name in `dir` is removed or moved. */
static struct wire_record *part_inode(struct sreq *s, struct split *x, uint32_t kind,
				      const struct wire_handle *h, const struct wire_attr *dir)
{
	struct wire_record *r = part_add(s, x, kind, meta_owner(s->srv, h->ino));

	r->h = *h;
	if (dir && (dir->mode & S_ISVTX)) {
		r->flags |= PART_STICKY;
		r->owner = dir->uid;
	}
	return r;
}

/* Checks that a directory of this server exists and that its names may be changed. */
static int writable_dir(struct sreq *s, const struct wire_handle *h, struct meta_node *n)
{
	int e = meta_get(s->srv->meta, h, n, &s->arena);

	if (!e && (n->attr.mode & S_IFMT) != S_IFDIR)
		e = -ENOTDIR;
	return e ? e : may_access(s, n, MAY_WRITE | MAY_EXEC);
}

/* Checks that the name does not exist yet and may be made. */
static int vacancy(struct sreq *s, struct meta_node *dir)
{
	const struct wire_record *r = &s->change.rec;
	struct wire_handle h;
	uint32_t type;
	int e = meta_lookup(s->srv->meta, &r->dir, &r->name, &h, &type);

	if (e != -ENOENT)
		return e ? e : -EEXIST;
	if ((r->flags & REC_SLASH) && r->kind != REC_MKDIR)
		return -ENOENT;
	return writable_dir(s, &r->dir, dir);
}

/* ---- how each operation is split; s->change.rec is its record for one server ---- */

int split_mkdir(struct sreq *s, struct split *x)
{
	const struct wire_record *r = &s->change.rec;
	struct wire_record *made;
	struct meta_node dir;
	int e = vacancy(s, &dir);

	if (e)
		return e;
	made = part_add(s, x, PART_NEW, state_of(s)->place);
	made->dir = r->dir;
	made->mode = r->mode;
	made->owner = r->owner;
	made->n_set = r->n_set;
	made->set = r->set;
	made->which = dir.attr.mode;
	made->group = dir.attr.gid;
	made->data = dir.default_acl;
	made->obj_gen = dir.cache;
	part_name(s, x, PART_ADD, &r->dir, &r->name, &r->h, S_IFDIR, REC_NOREPLACE);
	return 0;
}

int split_link(struct sreq *s, struct split *x)
{
	const struct wire_record *r = &s->change.rec;
	struct meta_node dir;
	int e = vacancy(s, &dir);

	if (e)
		return e;
	part_inode(s, x, PART_LINK, &r->h, NULL);
	part_name(s, x, PART_ADD, &r->dir, &r->name, &r->h, 0, REC_NOREPLACE);
	return 0;
}

int split_remove(struct sreq *s, struct split *x)
{
	const struct wire_record *r = &s->change.rec;
	struct wire_handle h;
	struct meta_node dir;
	uint32_t type;
	int e = meta_lookup(s->srv->meta, &r->dir, &r->name, &h, &type);

	if (!e)
		e = writable_dir(s, &r->dir, &dir);
	if (e)
		return e;
	if ((type == S_IFDIR) != (r->kind == REC_RMDIR))
		return type == S_IFDIR ? -EISDIR : -ENOTDIR;
	if (type != S_IFDIR && (r->flags & REC_SLASH))
		return -ENOTDIR;
	part_inode(s, x, PART_DROP, &h, &dir.attr)->mode = type;
	part_name(s, x, PART_DEL, &r->dir, &r->name, &h, type, 0);
	return 0;
}

/* Adds a climb for a directory that gets another parent, and PART_ALONE once. */
static void move_alone(struct sreq *s, struct split *x, uint64_t ino, const struct wire_handle *to)
{
	if (!x->n_climbs)
		part_add(s, x, PART_ALONE, meta_owner(s->srv, META_ROOT_INO));
	x->climbs[x->n_climbs++] = (struct climb){ .ino = ino, .at = *to };
}

static bool same_handle(const struct wire_handle *a, const struct wire_handle *b)
{
	return a->ino == b->ino && a->gen == b->gen;
}

/* A part that drops the inode that the new name has now. */
static void drop_old(struct sreq *s, struct split *x, const struct wire_handle *old,
		     const struct wire_attr *dir)
{
	x->nothing = same_handle(old, &x->child);
	if (old->ino && !x->nothing)
		part_inode(s, x, PART_DROP, old, dir)->mode = x->type;
}

/* An exchange stays one record, on one server. */
static int split_exchange(struct sreq *s, struct split *x)
{
	const struct wire_record *r = &s->change.rec;
	struct part *p;
	struct wire_handle b;
	uint32_t type_b;
	int e = meta_owns(s->srv->meta, r->dir2.ino) ? 0 : -EXDEV;

	if (!e)
		e = meta_lookup(s->srv->meta, &r->dir2, &r->name2, &b, &type_b);
	if (e)
		return e;
	if (!meta_owns(s->srv->meta, x->child.ino) || !meta_owns(s->srv->meta, b.ino))
		return -EXDEV;
	if (x->type == S_IFDIR)
		move_alone(s, x, x->child.ino, &r->dir2);
	if (type_b == S_IFDIR)
		move_alone(s, x, b.ino, &r->dir);
	if (!x->n_climbs) /* one record is enough: the names changed meanwhile */
		return -EINPROGRESS;
	p = &x->parts[x->n_parts++];
	p->own = true;
	p->rec = *r;
	p->rec.flags = (r->flags & ~(uint32_t)REC_SPREAD) | REC_CLIMBED;
	p->rec.h = x->child;
	p->rec.new_ino = b.ino;
	p->rec.session = 0;
	return 0;
}

static void rename_parts(struct sreq *s, struct split *x, const struct wire_attr *from)
{
	const struct wire_record *r = &s->change.rec;
	bool parent = !same_handle(&r->dir, &r->dir2);
	struct wire_record *move;

	if (parent && x->type == S_IFDIR)
		move_alone(s, x, x->child.ino, &r->dir2);
	move = part_inode(s, x, PART_MOVE, &x->child, from);
	move->flags |= parent ? PART_PARENT : 0;
	move->dir = r->dir2;
	part_name(s, x, PART_DEL, &r->dir, &r->name, &x->child, x->type, 0);
	part_name(s, x, PART_ADD, &r->dir2, &r->name2, &x->child, x->type,
		  r->flags & REC_NOREPLACE);
}

int split_rename(struct sreq *s, struct split *x)
{
	const struct wire_record *r = &s->change.rec;
	struct meta *m = s->srv->meta;
	struct meta_node from, to;
	struct wire_handle old = { 0 };
	struct wire_record *add;
	uint32_t type;
	int e = meta_lookup(m, &r->dir, &r->name, &x->child, &x->type);

	if (!e && rename_needs_dir(r->flags) && x->type != S_IFDIR)
		e = -ENOTDIR;
	if (!e)
		e = writable_dir(s, &r->dir, &from);
	if (!e && (r->flags & REC_EXCHANGE))
		return split_exchange(s, x);
	if (e)
		return e;
	rename_parts(s, x, &from.attr);
	if (!meta_owns(m, r->dir2.ino)) /* its server checks what is there */
		return 0;
	e = writable_dir(s, &r->dir2, &to);
	if (!e)
		e = meta_lookup(m, &r->dir2, &r->name2, &old, &type);
	if (e && e != -ENOENT)
		return e;
	if (!e && (r->flags & REC_NOREPLACE))
		return -EEXIST;
	add = &x->parts[x->n_parts - 1].rec;
	add->flags |= PART_EXPECT;
	add->dir2 = old;
	drop_old(s, x, &old, &to.attr);
	return 0;
}

/* ---- asking ---- */

static void ask(struct sreq *s, struct split *x, uint32_t target, uint32_t op, void *args,
		void *res)
{
	x->call = server_call(s->srv, s->q.trace, op, args, res);
	x->call.arena = &s->arena;
	peer_call(&s->srv->peers[target], &x->call, &s->q);
}

static int encode_part(struct sreq *s, struct wire_record *r, struct wire_bytes *out)
{
	uint8_t *p = arena_alloc(&s->arena, PART_MAX);
	struct xdr x;

	if (!p)
		return -ENOMEM;
	xdr_encoder(&x, p, PART_MAX);
	if (!xdr_wire_record(&x, r))
		return -ENAMETOOLONG;
	*out = (struct wire_bytes){ (uint32_t)xdr_used(&x), p };
	return 0;
}

static void touch(struct split *x, uint32_t target)
{
	for (uint32_t i = 0; i < x->n_touched; i++)
		if (x->touched[i] == target)
			return;
	x->touched[x->n_touched++] = target;
}

/* Sends the next call: a climb once PART_ALONE is prepared, else a part. False: nothing is left. */
static bool ask_next(struct sreq *s, struct split *x)
{
	x->asked = NULL;
	x->climbing = NULL;
	for (uint32_t i = 0; i < x->n_climbs && x->parts[0].asked; i++) {
		struct climb *c = &x->climbs[i];

		if (c->over)
			continue;
		x->climbing = c;
		x->climb_args = (struct wire_climb_args){ c->at, c->ino };
		ask(s, x, meta_owner(s->srv, c->at.ino), OP_CLIMB, &x->climb_args, &x->climb_res);
		return true;
	}
	for (uint32_t i = 0; i < x->n_parts; i++) {
		struct part *p = &x->parts[i];

		if (p->own || p->asked)
			continue;
		x->asked = p;
		p->asked = true;
		touch(x, p->target);
		x->prepare_args = (struct wire_prepare_args){ .id = state_of(s)->id,
							      .coordinator = s->srv->target,
							      .index = i };
		req_fail(&s->q, encode_part(s, &p->rec, &x->prepare_args.part));
		if (!s->q.error)
			ask(s, x, p->target, OP_PREPARE, &x->prepare_args, &x->prepare_res);
		return true;
	}
	return false;
}

static int climbed(struct split *x)
{
	struct climb *c = x->climbing;

	if (x->climb_res.end == CLIMB_MET)
		return -EINVAL;
	c->over = x->climb_res.end == CLIMB_ROOT;
	c->at = x->climb_res.at;
	if (!c->over && same_handle(&c->at, &c->mark)) {
		log_error("server", "directory %llx is below itself: run sheaf check",
			  (unsigned long long)c->at.ino);
		return -ELOOP;
	}
	/* Brent's algorithm: the distance doubles, so a cycle of any length is found */
	if (c->n++ == c->next_mark) {
		c->mark = c->at;
		c->next_mark = 2 * c->n;
	}
	return 0;
}

/* Uses the answer to a PREPARE: other parts may need it, or it adds a part. */
static void answered(struct sreq *s, struct split *x)
{
	const struct wire_prepare_res *r = &x->prepare_res;
	struct wire_record *last = &x->parts[x->n_parts - 1].rec;

	switch (x->asked->rec.kind) {
	case PART_NEW:
		last->h = (struct wire_handle){ r->at.ino, r->at.gen };
		x->at = r->at;
		break;
	case PART_LINK:
		last->mode = r->at.mode & S_IFMT;
		x->at = r->at;
		break;
	case PART_ADD: /* only in a rename */
		drop_old(s, x, &r->old, &r->at);
		break;
	default:
		break;
	}
}

/* ---- the decision ---- */

static int decide(struct sreq *s, struct split *x)
{
	struct wire_own_part own[PARTS_MAX];
	struct wire_decision d = {
		.at = x->at, .n_targets = x->n_touched, .targets = x->touched, .parts = own
	};
	size_t cap = PARTS_MAX * (PART_MAX + 8);
	uint8_t *text = arena_alloc(&s->arena, cap);
	struct xdr out;
	int e = text ? 0 : -ENOMEM;

	for (uint32_t i = 0; !e && i < x->n_parts; i++)
		if (x->parts[i].own)
			e = encode_part(s, &x->parts[i].rec, &own[d.n_parts++].rec);
	if (e)
		return e;
	xdr_encoder(&out, text, cap);
	if (!xdr_wire_decision(&out, &d))
		return -EMSGSIZE;
	x->asked_for = true;
	sreq_record(s, REC_DECIDE);
	s->change.rec.pair = state_of(s)->id;
	s->change.rec.data = (struct wire_bytes){ (uint32_t)xdr_used(&out), text };
	meta_submit(s->srv->meta, &s->change, &s->q);
	return 0;
}

/* The writer thread's answer was lost (out of memory): the database decides. If it cannot be read
 * either, no server is told: those that have prepared will ask. */
static void look_again(struct sreq *s, struct split *x)
{
	int e = meta_decided(s->srv->meta, state_of(s)->id);

	x->decided = e == 0;
	if (e && e != -ENOENT)
		x->n_touched = 0;
	if (!sreq_replay(s))
		s->q.error = 0;
}

/* then: the inode that the name had; 0: it did not exist. */
static bool name_changed(struct sreq *s, const struct wire_handle *dir,
			 const struct wire_bytes *name, uint64_t then)
{
	struct wire_handle now = { 0 };
	uint32_t type;
	int e = meta_lookup(s->srv->meta, dir, name, &now, &type);

	return (e && e != -ENOENT) || now.ino != then;
}

/* Have own names changed since the split? They are not locked. */
static bool names_changed(struct sreq *s, const struct split *x)
{
	bool changed = false;

	for (uint32_t i = 0; i < x->n_parts && !changed; i++) {
		const struct wire_record *r = &x->parts[i].rec;

		if (!x->parts[i].own)
			continue;
		if (r->kind == PART_DEL || r->kind == REC_RENAME)
			changed = name_changed(s, &r->dir, &r->name, r->h.ino);
		else if (r->kind == PART_ADD)
			changed = name_changed(s, &r->dir, &r->name, r->dir2.ino);
		if (!changed && r->kind == REC_RENAME)
			changed = name_changed(s, &r->dir2, &r->name2, r->new_ino);
	}
	return changed;
}

static void tell(struct sreq *s, struct split *x)
{
	x->finish_args = (struct wire_finish_args){ state_of(s)->id, x->decided };
	for (uint32_t i = 0; i < x->n_touched; i++) {
		x->tells[i] = server_call(s->srv, s->q.trace, OP_FINISH, &x->finish_args, &x->none);
		x->tells[i].deadline = s->srv->loop->now + TELL_NS;
		peer_call(&s->srv->peers[x->touched[i]], &x->tells[i], &s->q);
	}
}

/* All servers were told, or the calls failed: pair_tell() continues after the reply. */
static void told(struct sreq *s, struct split *x)
{
	for (uint32_t i = 0; i < x->n_touched; i++)
		call_fini(&x->tells[i]);
	if (x->decided && x->n_touched) {
		struct meta_pair p = { .id = state_of(s)->id, .n = x->n_touched };

		memcpy(p.targets, x->touched, sizeof(p.targets));
		pair_tell(s->srv, &p, s->q.error == 0);
	}
	s->q.error = x->error == -EAGAIN ? -EINPROGRESS : x->error;
}

static int begin_split(struct sreq *s)
{
	struct pair_state *st = s->op;
	int e;

	st->x = arena_alloc(&s->arena, sizeof(*st->x));
	if (!st->x)
		return -ENOMEM;
	st->id = env_random_u64(s->srv->loop->env) | 1;
	list_push(&s->srv->pairs, &st->link);
	e = s->row->split(s, st->x);
	/* the names changed: one record is enough */
	return !e && st->x->nothing ? -EINPROGRESS : e;
}

static void pair_abandon(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct pair_state *st = s->op;

	durable_end(s, &st->durable);
	if (!st->x)
		return;
	call_fini(&st->x->call);
	for (uint32_t i = 0; i < st->x->n_touched; i++)
		call_fini(&st->x->tells[i]);
}

/* Does the record rename a file over a name that exists, or may exist? Then *h is the file that is
 * renamed. */
static bool replaces(struct sreq *s, struct wire_handle *h)
{
	const struct wire_record *r = &s->change.rec;
	struct wire_handle old;
	uint32_t type;

	if (r->kind != REC_RENAME || (r->flags & (REC_NOREPLACE | REC_EXCHANGE)) ||
	    meta_lookup(s->srv->meta, &r->dir, &r->name, h, &type) || type != S_IFREG)
		return false;
	return !meta_owns(s->srv->meta, r->dir2.ino) ||
	       meta_lookup(s->srv->meta, &r->dir2, &r->name2, &old, &type) == 0;
}

/* After a power loss the new name must have all of the old contents or all of the new ones.
 * 1: the request waits for the flush; 0: no need; -EINPROGRESS: retry, as syncs need slots, too. */
static int flush_first(struct sreq *s)
{
	struct pair_state *st = state_of(s);
	struct wire_handle h;
	struct meta_node n;
	int e;

	if (!replaces(s, &h) || same_handle(&h, &st->durable.args.h))
		return 0;
	if (meta_owns(s->srv->meta, h.ino) &&
	    (meta_get(s->srv->meta, &h, &n, &s->arena) || (!n.attr.unsettled && !n.unsynced)))
		return 0;
	req_goto(&s->q, FLUSHED);
	e = durable_ask(s, &st->durable, &h, false);
	return e ? e : 1;
}

static int first(struct sreq *s)
{
	int e = sreq_replay(s);

	if (e != -ENOENT)
		return e;
	e = s->row->prepare(s);
	if (!e || e == -EXDEV) {
		int flush = flush_first(s);

		if (flush)
			return MIN(flush, 0);
	}
	if (e == -EXDEV) {
		req_goto(&s->q, SPLIT);
		return 0;
	}
	if (!e)
		meta_submit(s->srv->meta, &s->change, &s->q);
	return e;
}

/* The states after SPLIT, where st->x is set. */
static bool split_step(struct req *q, struct sreq *s, struct split *x)
{
	switch (q->state) {
	case NEXT:
		req_goto(q, ANSWER);
		if (!ask_next(s, x))
			req_goto(q, DECIDE);
		break;
	case ANSWER:
		req_goto(q, NEXT);
		if (x->climbing)
			req_fail(q, climbed(x));
		else
			answered(s, x);
		call_fini(&x->call);
		if (x->nothing)
			req_goto(q, TELL);
		break;
	case DECIDE:
		req_goto(q, DECIDED);
		req_fail(q, decide(s, x));
		break;
	case DECIDED:
		req_goto(q, TELL);
		x->decided = s->change.res.status == 0;
		req_fail(q, -s->change.res.status);
		break;
	case TELL:
		req_goto(q, TOLD);
		call_fini(&x->call);
		if (q->error && x->asked_for && !s->change.res.status)
			look_again(s, x);
		else if ((q->error || x->nothing) && names_changed(s, x))
			q->error = -EAGAIN; /* it was for an inode that lost the name */
		x->error = q->error;
		q->error = 0;
		tell(s, x);
		break;
	case TOLD:
		req_goto(q, REPLY);
		told(s, x);
		break;
	}
	return true;
}

static bool pair_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct pair_state *st = s->op;

	switch (q->state) {
	case PREPARE:
		req_goto(q, COMMIT);
		req_fail(q, first(s));
		return true;
	case FLUSHED: /* the file may be gone by now: then the record is refused */
		req_goto(q, PREPARE);
		durable_end(s, &st->durable);
		lease_unblock(s);
		return true;
	case COMMIT:
		req_goto(q, s->change.res.status == EXDEV ? SPLIT : REPLY);
		if (q->state == REPLY)
			req_fail(q, -s->change.res.status);
		return true;
	case SPLIT:
		req_goto(q, NEXT);
		req_fail(q, begin_split(s));
		return true;
	case REPLY:
		durable_end(s, &st->durable);
		if (st->x)
			list_del(&st->link);
		if (!q->error)
			q->error = s->row->finish(s);
		return sreq_reply(s);
	}
	if (!st->x) { /* an error before the split */
		req_goto(q, REPLY);
		return true;
	}
	return split_step(q, s, st->x);
}

const struct req_ops pair_ops = REQ_OPS("names", pair_step, TELL, names, .abandon = pair_abandon);
