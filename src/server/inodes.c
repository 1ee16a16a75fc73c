/* Files that are open, or used by a request or task: their opens, and a lock for each.
 * An inode lives while it has references: opens, waiting requests, tasks. */
#include <stdlib.h>

#include "server/inode.h"
#include "server/task.h"

struct inode *inode_find(struct server *srv, uint64_t ino)
{
	for (struct hnode *n = htab_first(&srv->inodes, hash_u64(ino)); n; n = htab_next(n)) {
		struct inode *i = container_of(n, struct inode, node);

		if (i->h.ino == ino)
			return i;
	}
	return NULL;
}

bool inode_is_gone(struct server *srv, const struct meta_node *n)
{
	const struct inode *i = inode_find(srv, n->attr.ino);

	return n->attr.nlink == 0 && !(i && i->opens);
}

bool claims_own(const struct sreq *s)
{
	return s->srv->in_grace && !s->session->reclaimed;
}

struct inode *inode_get(struct server *srv, const struct wire_handle *h)
{
	struct inode *i = inode_find(srv, h->ino);

	if (i) {
		i->refs++;
		return i;
	}
	i = calloc(1, sizeof(*i));
	if (!i || htab_insert(&srv->inodes, &i->node, hash_u64(h->ino))) {
		free(i);
		return NULL;
	}
	i->srv = srv;
	i->h = *h;
	i->refs = 1;
	/* not open, and yet unsettled: its writers are gone */
	i->orphaned = srv->meta && meta_unsettled(srv->meta, h->ino);
	list_init(&i->waiters);
	list_init(&i->appends);
	for (int k = 0; k < LOCK_SPACES; k++)
		lock_space_init(&i->locks[k]);
	return i;
}

void inode_put(struct inode *i)
{
	if (--i->refs)
		return;
	htab_remove(&i->srv->inodes, &i->node);
	free(i);
}

static void lock(struct inode *i, struct inode_wait *w, struct req *q, bool next)
{
	list_init(&w->link);
	w->inode = i;
	i->refs++;
	if (!i->locked) {
		i->locked = true;
		w->held = true;
		return;
	}
	w->q = q;
	req_hold(q);
	if (next)
		list_push_front(&i->waiters, &w->link);
	else
		list_push(&i->waiters, &w->link);
}

void inode_lock(struct inode *i, struct inode_wait *w, struct req *q)
{
	lock(i, w, q, false);
}

int inode_lock_handle(struct server *srv, const struct wire_handle *h, struct inode_wait *w,
		      struct req *q)
{
	struct inode *i = inode_get(srv, h);

	if (!i)
		return -ENOMEM;
	inode_lock(i, w, q);
	inode_put(i); /* the lock has its own reference */
	return 0;
}

void inode_lock_next(struct inode *i, struct inode_wait *w, struct req *q)
{
	lock(i, w, q, true);
}

void inode_unlock(struct inode_wait *w)
{
	struct inode *i = w->inode;
	struct list *next;

	if (!w->held)
		return;
	w->held = false;
	i->locked = false;
	next = list_pop(&i->waiters);
	if (next) {
		struct inode_wait *n = list_entry(next, struct inode_wait, link);

		i->locked = true;
		n->held = true;
		req_done(n->q, 0, 0);
	}
	inode_put(i);
}

static uint64_t open_hash(const struct session *s, uint64_t id)
{
	return hash_u64(s->id ^ hash_u64(id));
}

static struct server *server_of(const struct session *s)
{
	return s->table->owner;
}

struct open_file *open_find(struct session *s, uint64_t id)
{
	for (struct hnode *n = htab_first(&server_of(s)->opens, open_hash(s, id)); n;
	     n = htab_next(n)) {
		struct open_file *o = container_of(n, struct open_file, node);

		if (o->session == s && o->id == id)
			return o;
	}
	return NULL;
}

uint32_t session_holds(const struct session *s, uint64_t ino)
{
	struct open_file *o;
	uint32_t held = 0;

	list_for_each(o, &s->opens, in_session)
		if (o->inode->h.ino == ino)
			held |= o->flags;
	return held;
}

bool session_writes(const struct session *s, uint64_t ino)
{
	return session_holds(s, ino) & OPEN_WRITE;
}

bool others_write(const struct session *s, const struct inode *i)
{
	const struct open_file *o;
	uint32_t own = 0;

	if (!i->writers)
		return false;
	list_for_each(o, &s->opens, in_session)
		own += o->inode == i && (o->flags & OPEN_WRITE);
	return i->writers > own;
}

int open_room(struct sreq *s, uint64_t id)
{
	return open_find(s->session, id) ? 0 : sreq_reserve(s, &s->session->held, LIMIT_OPENS);
}

int open_add(struct sreq *q, struct inode *i, uint64_t id, uint32_t flags)
{
	struct session *s = q->session;
	struct open_file *o = open_find(s, id);
	int e;

	if (o && o->inode == i)
		return o->flags == flags ? 0 : -EINVAL;
	if (o) /* the answer of an earlier execution was lost; the name is another file's now */
		open_lose(o);
	e = sreq_use(q, &s->held, LIMIT_OPENS);
	if (e)
		return e;
	o = calloc(1, sizeof(*o));
	if (!o || htab_insert(&i->srv->opens, &o->node, open_hash(s, id))) {
		usage_give(&s->held, LIMIT_OPENS, 1);
		free(o);
		return -ENOMEM;
	}
	o->session = s;
	o->inode = i;
	o->id = id;
	o->flags = flags;
	list_init(&o->appends);
	i->refs++;
	i->opens++;
	i->writers += !!(flags & OPEN_WRITE);
	i->appenders += !!(flags & OPEN_APPEND);
	list_push(&s->opens, &o->in_session);
	return 0;
}

void open_drop(struct open_file *o)
{
	struct inode *i = o->inode;
	struct server *srv = i->srv;

	lock_closed(o);
	list_del(&o->in_session);
	usage_give(&o->session->held, LIMIT_OPENS, 1);
	htab_remove(&srv->opens, &o->node);
	i->opens--;
	i->writers -= !!(o->flags & OPEN_WRITE);
	i->appenders -= !!(o->flags & OPEN_APPEND);
	/* it may have written anywhere */
	if ((o->flags & (OPEN_WRITE | OPEN_APPEND)) == OPEN_WRITE)
		i->append_known = false;
	appends_drop(o);
	free(o);
	if (i->removed && !i->opens)
		task_start(srv, TASK_REMOVE, &i->h, 0, 0);
	else if (i->orphaned && !i->writers)
		task_start(srv, TASK_SETTLE, &i->h, 0, 0);
	lock_released(i);
	inode_put(i);
}

void open_lose(struct open_file *o)
{
	if (o->flags & OPEN_WRITE)
		o->inode->orphaned = true;
	open_drop(o);
}

static void free_inode(struct hnode *n, void *arg)
{
	struct inode *i = container_of(n, struct inode, node);
	struct htab *t = arg;

	htab_remove(t, n);
	for (int k = 0; k < LOCK_SPACES; k++)
		ranges_free(&i->locks[k].held);
	free(i);
}

static void free_open(struct hnode *n, void *arg)
{
	struct open_file *o = container_of(n, struct open_file, node);
	struct htab *t = arg;

	htab_remove(t, n);
	o->session = NULL; /* the session was freed before */
	appends_drop(o);
	free(o);
}

/* Frees all opens and inodes, as a crash would. */
void opens_abandon(struct server *srv)
{
	lock_waits_free(srv);
	htab_walk(&srv->opens, free_open, &srv->opens);
	htab_walk(&srv->inodes, free_inode, &srv->inodes);
}
