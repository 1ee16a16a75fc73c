/* Opening and closing files, capabilities, and claims of clients after a restart.
 *
 *   OPEN:  WALK -> MADE -> LOCKED -> UNSETTLED -> FENCE -> FENCED -> GRANT -> REPLY
 *          WALK -> LOOKED -> WALK ...	a data server may have lost unsynced data of earlier writers
 *   CLOSE: FIND -> RECORD -> DROP -> REPLY
 *
 * An open for reading goes from WALK to GRANT. An open for writing makes the unsettled row durable
 * before the capability is sent; the inode lock keeps the row until then. A create locks the new
 * inode before its record is queued. O_TRUNC runs a truncate to 0 (FENCE, FENCED) under the same
 * lock. */
#include "server/cap.h"
#include "server/op_state.h"
#include "server/task.h"

enum { WALK, MADE, LOCKED, UNSETTLED, FENCE, FENCED, GRANT, LOOKED, REPLY };
static const char *const names[] = {
	[WALK] = "walk",	  [MADE] = "create", [LOCKED] = "lock",
	[UNSETTLED] = "unsettle", [FENCE] = "begin", [FENCED] = "fence",
	[GRANT] = "grant",	  [LOOKED] = "look", [REPLY] = "reply"
};

/* The flags that an open file keeps. */
static uint32_t open_kind(uint32_t flags)
{
	return flags & (OPEN_READ | OPEN_WRITE | (flags & OPEN_WRITE ? OPEN_APPEND : 0));
}

static int lock_inode(struct sreq *s, const struct wire_handle *h)
{
	struct open_state *st = s->op;

	return inode_lock_handle(s->srv, h, &st->t.lock, &s->q);
}

int layout_choose(struct sreq *s, uint64_t ino, uint32_t unit, uint32_t width,
		  struct wire_layout_rec *l)
{
	const struct wire_map_res *map = &s->srv->map;
	uint32_t data[TARGETS_MAX], n = 0;

	for (uint32_t i = 0; i < map->n_targets; i++)
		if (map->targets[i].roles & ROLE_DATA)
			data[n++] = map->targets[i].id;
	*l = (struct wire_layout_rec){ .version = 1,
				       .unit = unit ? unit : map->stripe_unit,
				       .obj_gen = 1 };
	if (l->unit % 4096 || l->unit > 1024 * MIB)
		return -EINVAL;
	l->n_targets = width ? width : map->width ? map->width : n;
	l->n_targets = MIN(l->n_targets, n);
	l->targets = arena_alloc(&s->arena, l->n_targets * sizeof(uint32_t));
	if (!l->targets)
		return -ENOMEM;
	layout_targets(ino, data, n, l->targets, l->n_targets);
	return 0;
}

static int create(struct sreq *s)
{
	struct wire_open_args *a = s->args;
	struct open_state *st = s->op;
	struct wire_record *r = &s->change.rec;
	struct wire_handle h = { .ino = meta_new_ino(s->srv->meta), .gen = 1 };
	int e;

	sreq_record(s, REC_CREATE);
	r->dir = st->dir;
	r->name = st->leaf.name;
	r->mode = a->mode & 07777;
	r->owner = a->umask;
	r->new_ino = h.ino;
	r->flags = (a->flags & OPEN_EXCL ? REC_EXCL : 0) | (a->flags & OPEN_WRITE ? REC_WRITER : 0);
	e = layout_choose(s, h.ino, a->unit, a->width, &r->layout);
	if (!e)
		e = lock_inode(s, &h);
	if (e)
		return e;
	req_goto(&s->q, MADE);
	meta_submit(s->srv->meta, &s->change, &s->q);
	return 0;
}

/* Decides about a file without a name (st->t.node). An open by path needs it to be open already,
 * since its objects may be in removal otherwise; a file that this request created and locked is
 * exempt. An open by handle needs an open of the same session, or OPEN_NAMELESS before the removal
 * has begun; others get ESTALE, since the name that they remember may mean another file now. */
static int nameless(struct sreq *s)
{
	const struct wire_open_args *a = s->args;
	const struct open_state *st = s->op;
	const struct inode *i = inode_find(s->srv, st->h.ino);

	if (st->t.node.attr.nlink || (st->created && st->t.lock.held))
		return 0;
	if (a->where.path.len == 0)
		return session_holds(s->session, st->h.ino) ||
				       ((a->flags & OPEN_NAMELESS) && !(i && i->removal_begun)) ?
			       0 :
			       -ESTALE;
	return i && i->opens ? 0 : -ENOENT;
}

/* A create opens the new file whatever its mode says. So does its replay, unless owner or mode have
 * changed. */
static bool is_creation(const struct sreq *s)
{
	const struct open_state *st = s->op;
	const struct wire_attr *then = &s->change.res.at, *now = &st->t.node.attr;

	return st->replayed && st->created && then->mode == now->mode && then->uid == now->uid &&
	       then->gid == now->gid;
}

/* Was a server with unsynced data of earlier writers perhaps restarted since? Then it is asked
 * first: `change` must grow if the data are lost. */
static bool in_doubt(struct sreq *s)
{
	struct open_state *st = s->op;
	const struct meta_node *n = &st->t.node;

	for (uint32_t i = 0; !st->looked && n->unsynced && i < n->layout.n_targets; i++)
		if (fan_doubts(s->srv, n, i))
			return true;
	return false;
}

static int look(struct sreq *s)
{
	struct open_state *st = s->op;

	st->looked = true;
	req_goto(&s->q, LOOKED);
	return durable_ask(s, &st->durable, &st->h, true);
}

/* The file exists: checks whether it may be opened so. Continues with the lock or, for readers,
 * GRANT. */
static int existing(struct sreq *s)
{
	struct wire_open_args *a = s->args;
	struct open_state *st = s->op;
	struct meta_node *n = &st->t.node;
	uint32_t type;
	int what = (a->flags & OPEN_READ ? MAY_READ : 0) |
		   (a->flags & (OPEN_WRITE | OPEN_TRUNC) ? MAY_WRITE : 0);
	int e;

	s->ino = st->h.ino;
	if (!meta_owns(s->srv->meta, st->h.ino)) {
		s->referral = (struct wire_referral){ .at = st->h, .consumed = a->where.path.len };
		return -EREMOTE;
	}
	e = meta_get(s->srv->meta, &st->h, n, &s->arena);
	if (!e && a->where.path.len == 0)
		e = nameless(s);
	if (e)
		return e;
	type = n->attr.mode & S_IFMT;
	if (!st->replayed && (a->flags & OPEN_EXCL) && (a->flags & OPEN_CREATE))
		return -EEXIST;
	if (type == S_IFLNK) /* the path ends in a symbolic link that is not followed */
		return a->flags & OPEN_DIRECTORY ? -ENOTDIR : -ELOOP;
	if (type == S_IFDIR && ((what & MAY_WRITE) || (a->flags & OPEN_CREATE)))
		return -EISDIR;
	if (type != S_IFDIR && (a->flags & OPEN_DIRECTORY))
		return -ENOTDIR;
	if (type != S_IFDIR && type != S_IFREG) /* special files are for mounts only */
		return -ENXIO;
	if (type == S_IFREG && !what) /* no right requested, so none would be checked */
		return -EINVAL;
	e = is_creation(s) ? 0 : may_access(s, n, what);
	if (e)
		return e;
	if (in_doubt(s))
		return look(s);
	if (!(what & MAY_WRITE)) {
		req_goto(&s->q, GRANT);
		return 0;
	}
	req_goto(&s->q, LOCKED);
	return lock_inode(s, &st->h);
}

/* The servers have answered, or did not within LOOK_NS: then the open goes on without them. */
static void looked(struct sreq *s)
{
	struct open_state *st = s->op;
	struct req *q = &s->q;
	bool again = q->error == -EINPROGRESS && q->loop->now < q->born + LOOK_NS;

	durable_end(s, &st->durable);
	q->error = 0;
	req_fail(q, again ? -EINPROGRESS : existing(s));
}

/* Makes the client walk the path again, under a new sequence. */
static int from_the_beginning(struct sreq *s)
{
	struct wire_open_args *a = s->args;

	s->referral = (struct wire_referral){ .at = a->where.dir };
	return -EREMOTE;
}

/* The error for a refused record. If a symbolic link appeared at the name after the walk, the
 * client walks again. */
static int refused(struct sreq *s, int status)
{
	struct wire_open_args *a = s->args;

	return status == ELOOP && a->where.follow ? from_the_beginning(s) : -status;
}

static int walk(struct sreq *s)
{
	struct wire_open_args *a = s->args;
	struct open_state *st = s->op;
	struct wire_record_res *old = &s->change.res;
	uint32_t type;
	int e;

	e = sreq_replay(s);
	if (e == 0) {
		st->replayed = true;
		st->created = old->created;
		st->h = (struct wire_handle){ old->at.ino, old->at.gen };
		return old->status ? refused(s, old->status) : existing(s);
	}
	if (e != -ENOENT)
		return e;
	if (a->where.path.len == 0) {
		st->h = a->where.dir;
		return existing(s);
	}
	if (!(a->flags & OPEN_CREATE)) {
		e = walk_place(s, &a->where, NULL, &st->h);
		return e ? e : existing(s);
	}
	e = walk_place(s, &a->where, &st->leaf, &st->dir);
	if (e)
		return e == -EINVAL ? -EISDIR : e; /* the path ends in an existing directory */
	if (st->leaf.slash)
		return -EISDIR;
	e = meta_lookup(s->srv->meta, &st->dir, &st->leaf.name, &st->h, &type);
	if (e == -ENOENT)
		return create(s);
	if (!e && type == S_IFLNK && a->where.follow)
		return refused(s, ELOOP);
	return e ? e : existing(s);
}

static int made(struct sreq *s)
{
	struct open_state *st = s->op;
	struct wire_record_res *r = &s->change.res;

	/* the name appeared meanwhile, and its inode is on another server: look it up again */
	if (r->status == EXDEV)
		return -EINPROGRESS;
	if (r->status)
		return refused(s, r->status);
	st->h = (struct wire_handle){ r->at.ino, r->at.gen };
	st->created = r->created;
	if (r->created) {
		st->t.lock.inode->row_durable = ((struct wire_open_args *)s->args)->flags &
						OPEN_WRITE;
		req_goto(&s->q, GRANT);
		return 0;
	}
	inode_unlock(&st->t.lock); /* another request created the file meanwhile */
	return existing(s);
}

static void unsettle(struct sreq *s)
{
	struct wire_open_args *a = s->args;
	struct open_state *st = s->op;

	s->change.res.status = 0;
	if (!(a->flags & OPEN_WRITE) || (st->t.lock.inode->row_durable && !st->t.node.privileged))
		return;
	sreq_record(s, REC_UNSETTLE);
	s->change.rec.session = 0;
	s->change.rec.h = st->h;
	meta_submit(s->srv->meta, &s->change, &s->q);
}

static int unsettled(struct sreq *s)
{
	struct wire_open_args *a = s->args;
	struct open_state *st = s->op;
	int e;

	if (s->change.res.status)
		return -s->change.res.status;
	if (a->flags & OPEN_WRITE)
		st->t.lock.inode->row_durable = true;
	e = meta_get(s->srv->meta, &st->h, &st->t.node, &s->arena);
	if (e)
		return e;
	if (!(a->flags & OPEN_TRUNC) || st->replayed ||
	    (st->t.node.attr.size == 0 && st->t.node.attr.blocks == 0 &&
	     !st->t.node.attr.unsettled)) {
		req_goto(&s->q, GRANT);
		return 0;
	}
	trunc_begin(s, &st->t, &st->h, 0);
	return 0;
}

static int grant(struct sreq *s)
{
	struct wire_open_args *a = s->args;
	struct wire_open_res *r = s->res;
	struct open_state *st = s->op;
	struct meta_node *n = &st->t.node;
	struct inode *i;
	int e = s->change.res.status ? -s->change.res.status : 0;

	if (!e && st->created && !st->replayed)
		*n = (struct meta_node){ .attr = s->change.res.at,
					 .layout = s->change.res.layout,
					 .epoch = s->change.res.epoch };
	else if (!e)
		e = meta_get(s->srv->meta, &st->h, n, &s->arena);
	if (!e)
		e = nameless(s);
	if (e)
		return e;
	r->at = n->attr;
	r->created = st->created;
	r->after = s->change.after;
	if ((n->attr.mode & S_IFMT) != S_IFREG)
		return 0;
	i = inode_get(s->srv, &st->h);
	if (!i)
		return -ENOMEM;
	e = open_add(s, i, a->id, open_kind(a->flags));
	inode_put(i);
	if (e)
		return e;
	r->layout = n->layout;
	r->unsynced = n->unsynced != NULL;
	r->cache = n->cache;
	cap_make(s, &r->cap, n, a->flags & (CAP_READ | CAP_WRITE));
	return 0;
}

/* The file existed and lost its last name before it was open. The name is free now, so the path is
 * walked again; the client does so itself when it opened by handle (ESTALE). */
static bool vanished(struct sreq *s)
{
	struct wire_open_args *a = s->args;
	struct open_state *st = s->op;

	return (s->q.error == -ENOENT || s->q.error == -ESTALE) && (a->flags & OPEN_CREATE) &&
	       st->h.ino && !st->replayed;
}

/* The open failed after its unsettled row was committed: settles the file, since no close will. */
static void take_back(struct sreq *s)
{
	const struct wire_open_args *a = s->args;
	const struct open_state *st = s->op;

	if (s->q.error && s->q.error != -EINPROGRESS && (a->flags & OPEN_WRITE) && st->h.ino &&
	    !s->srv->stopping && meta_unsettled(s->srv->meta, st->h.ino))
		task_start(s->srv, TASK_SETTLE, &st->h, 0, 0);
}

static bool open_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct open_state *st = s->op;

	switch (q->state) {
	case WALK:
		if (((struct wire_open_args *)s->args)->flags & ~(uint32_t)OPEN_ALL)
			req_fail(q, -EINVAL);
		req_fail(q, open_room(s, ((struct wire_open_args *)s->args)->id));
		if (!q->error)
			req_fail(q, walk(s));
		break;
	case MADE:
		req_fail(q, made(s));
		break;
	case LOCKED:
		req_goto(q, UNSETTLED);
		unsettle(s);
		break;
	case UNSETTLED:
		req_goto(q, FENCE);
		req_fail(q, unsettled(s));
		break;
	case FENCE:
		req_goto(q, FENCED);
		req_fail(q, trunc_fence(s, &st->t));
		break;
	case FENCED:
		req_goto(q, GRANT);
		req_fail(q, trunc_end(s, &st->t));
		break;
	case GRANT:
		req_goto(q, REPLY);
		req_fail(q, grant(s));
		break;
	case LOOKED: /* also reached after an error */
		if (st->durable.waits)
			looked(s);
		else
			req_goto(q, REPLY);
		break;
	case REPLY:
		trunc_fini(s, &st->t);
		take_back(s);
		if (vanished(s))
			q->error = ((struct wire_open_args *)s->args)->where.path.len ?
					   from_the_beginning(s) :
					   -ESTALE;
		return sreq_reply(s);
	}
	return true;
}

static_assert((int)OPEN_READ == (int)CAP_READ && (int)OPEN_WRITE == (int)CAP_WRITE,
	      "rights are open flags");
static void open_abandon(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct open_state *st = s->op;

	durable_end(s, &st->durable);
	fan_fini(&st->t.fan);
}

const struct req_ops open_ops = REQ_OPS("open", open_step, LOOKED, names, .abandon = open_abandon);

/* ---- close ---- */

enum { FIND, RECORD, DROP, CLOSED };
static const char *const close_names[] = {
	[FIND] = "find", [RECORD] = "record", [DROP] = "drop", [CLOSED] = "reply"
};

/* 0, or an error: then the report is not recorded and the file stays open. */
static int record(struct sreq *s, struct open_file *o)
{
	struct wire_close_args *a = s->args;
	struct close_state *st = s->op;
	struct wire_record *r = &s->change.rec;
	struct inode *i = o->inode;

	bool tells = a->w.mtime || a->w.end || a->w.n_objects;
	int e = tells ? sreq_replay(s) : -ENOENT;

	if (e && e != -ENOENT)
		return e;
	st->again = e == 0;
	st->last = i->writers == 1 && !i->orphaned && !a->w.doubt;
	if (!st->last && !tells)
		return 0;
	sreq_record(s, REC_RECORD);
	if (!tells) /* safe to repeat: needs no stored answer */
		r->session = 0;
	r->h = i->h;
	r->epoch = a->w.epoch;
	r->size = MIN(a->w.end, (uint64_t)INT64_MAX);
	r->mtime = reported_mtime(i, &a->w);
	r->n_objects = a->w.n_objects;
	r->objects = a->w.objects;
	r->flags = st->last ? REC_LAST_WRITER : 0;
	if (st->last)
		i->row_durable = false;
	if (!st->again)
		meta_submit(s->srv->meta, &s->change, &s->q);
	return 0;
}

/* Must the file be settled by a fence after this close, because its report is not reliable? */
static bool leaves_doubt(struct sreq *s, const struct open_file *o)
{
	struct wire_close_args *a = s->args;
	struct close_state *st = s->op;

	if (a->w.doubt) /* one of its writes may still arrive */
		return true;
	if (a->w.mtime && a->w.epoch < s->change.res.epoch) /* it wrote before a fence */
		return true;
	/* its record was committed before a restart, and a claim has made the row again since */
	return st->again && st->last && o->inode->writers == 1 &&
	       meta_unsettled(s->srv->meta, o->inode->h.ino);
}

static bool close_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_close_args *a = s->args;
	struct close_state *st = s->op;
	struct open_file *o = s->session ? open_find(s->session, a->id) : NULL;

	s->ino = a->h.ino;
	switch (q->state) {
	case FIND: /* not open: an earlier execution closed it */
		req_goto(q, o && (o->flags & OPEN_WRITE) ? RECORD : DROP);
		if (q->state == RECORD)
			inode_lock(o->inode, &st->lock, q);
		break;
	case RECORD:
		req_goto(q, DROP);
		if (o) /* else a concurrent close of it was faster */
			req_fail(q, record(s, o));
		break;
	case DROP:
		req_goto(q, CLOSED);
		if (o && leaves_doubt(s, o))
			o->inode->orphaned = true;
		if (o)
			open_drop(o);
		break;
	case CLOSED:
		if (o && (q->error == -EIO ||
			  q->error == -ENOSPC)) { /* the report was lost: ask the objects */
			o->inode->orphaned = true;
			open_drop(o);
		}
		inode_unlock(&st->lock);
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops close_ops = REQ_OPS("close", close_step, CLOSED, close_names);

/* ---- fresh capabilities, and claims after a restart ---- */

static int fresh_cap(struct sreq *s)
{
	struct wire_cap_args *a = s->args;
	struct wire_cap_res *r = s->res;
	struct meta_node n;
	int e = meta_get(s->srv->meta, &a->h, &n, &s->arena);

	if (e)
		return e;
	if (!a->flags || (session_holds(s->session, a->h.ino) & a->flags) != a->flags)
		return -EBADF; /* not open any more: the session was lost */
	cap_make(s, &r->cap, &n, a->flags & (CAP_READ | CAP_WRITE));
	r->layout = n.layout;
	r->at = n.attr;
	return 0;
}

/* WAIT -> GIVE -> REPLY: no capability of a new epoch is sent while a truncate is in progress. */
enum { CAP_WAIT, CAP_GIVE, CAP_REPLY };
static const char *const cap_names[] = {
	[CAP_WAIT] = "lock", [CAP_GIVE] = "give", [CAP_REPLY] = "reply"
};

static bool cap_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_cap_args *a = s->args;
	struct close_state *st = s->op;

	switch (q->state) {
	case CAP_WAIT:
		req_goto(q, CAP_GIVE);
		s->ino = a->h.ino;
		req_fail(q, inode_lock_handle(s->srv, &a->h, &st->lock, q));
		break;
	case CAP_GIVE:
		req_goto(q, CAP_REPLY);
		req_fail(q, fresh_cap(s));
		break;
	case CAP_REPLY:
		inode_unlock(&st->lock);
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops cap_ops = REQ_OPS("cap", cap_step, CAP_REPLY, cap_names);

/* CLAIM -> CLAIMED -> REPLY. A claim does not take the inode's lock: all other requests of its
 * client wait for the claim, and a truncate holds the lock while a data target is away. So the
 * claim counts as a writer before its record is queued. A close or settling queued later leaves the
 * row; after one queued before, the claim's record makes the row again. The client asks for
 * capabilities only after the row is durable. */
enum { CLAIM, CLAIMED, CLAIM_REPLY };
static const char *const claim_names[] = {
	[CLAIM] = "claim", [CLAIMED] = "claimed", [CLAIM_REPLY] = "reply"
};

/* Must permissions be checked, as in an open? Not in a claim after a restart by the file's owner or
 * over a link that may act as root: these gain nothing by a false claim. The server kept no record
 * of opens. */
static bool must_ask(const struct sreq *s, const struct wire_attr *at)
{
	return s->session->reclaimed || (s->cred.uid != at->uid && !sreq_may_be_root(s));
}

static int claim(struct sreq *s)
{
	struct wire_reclaim_args *a = s->args;
	struct claim_state *st = s->op;
	const struct open_file *old = open_find(s->session, a->id);
	bool again;
	struct meta_node n;
	struct inode *i;
	int e = open_room(s, a->id);

	s->ino = a->h.ino;
	if (!e)
		e = meta_get(s->srv->meta, &a->h, &n, &s->arena);
	if (!e && ((n.attr.mode & S_IFMT) != S_IFREG || !(a->flags & (OPEN_READ | OPEN_WRITE))))
		e = -EINVAL;
	if (!e && must_ask(s, &n.attr))
		e = may_access(s, &n,
			       (a->flags & OPEN_READ ? MAY_READ : 0) |
				       (a->flags & OPEN_WRITE ? MAY_WRITE : 0));
	if (e)
		return e;
	i = inode_get(s->srv, &a->h);
	if (!i)
		return -ENOMEM;
	again = old && old->inode == i;
	if (inode_is_gone(s->srv, &n) && !claims_own(s))
		e = -ESTALE;
	if (!e)
		e = open_add(s, i, a->id, open_kind(a->flags));
	st->added = !e && (a->flags & OPEN_WRITE) && !again;
	if (!e && n.attr.nlink == 0)
		i->removed = true;
	inode_put(i);
	if (e || !(a->flags & OPEN_WRITE))
		return e;
	sreq_record(s, REC_UNSETTLE);
	s->change.rec.session = 0;
	s->change.rec.h = a->h;
	meta_submit(s->srv->meta, &s->change, &s->q);
	return 0;
}

static int claimed(struct sreq *s)
{
	struct wire_reclaim_args *a = s->args;
	struct claim_state *st = s->op;
	struct open_file *o = open_find(s->session, a->id);
	struct meta_node n;
	int e = -s->change.res.status;

	if (!e)
		e = meta_get(s->srv->meta, &a->h, &n, &s->arena);
	if (e || !o) /* !o: it was closed meanwhile */
		return e;
	st->added = false;
	for (uint32_t k = 0; !e && k < a->n_appends; k++)
		e = append_claim(s, o, &a->appends[k], n.epoch);
	return e ? e : lock_claim(s, o->inode);
}

/* Was the row there although the claim's record failed (disk full)? Then it stays: records are
 * applied in order, and everything queued later counts this claim as a writer. */
static bool is_unsettled(struct sreq *s)
{
	struct wire_reclaim_args *a = s->args;
	struct meta_node n;

	return meta_get(s->srv->meta, &a->h, &n, &s->arena) == 0 && n.attr.unsettled;
}

static bool claim_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct claim_state *st = s->op;
	struct open_file *o;

	switch (q->state) {
	case CLAIM:
		req_goto(q, CLAIMED);
		req_fail(q, claim(s));
		break;
	case CLAIMED:
		req_goto(q, CLAIM_REPLY);
		req_fail(q, claimed(s));
		break;
	case CLAIM_REPLY:
		if (q->error && st->added && is_unsettled(s)) {
			s->change.res.status = 0;
			q->error = claimed(s);
		}
		o = st->added ? open_find(s->session, ((struct wire_reclaim_args *)s->args)->id) :
				NULL;
		if (o) /* its row does not exist */
			open_lose(o);
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops reclaim_ops = REQ_OPS("reclaim", claim_step, CLAIM_REPLY, claim_names);
