/* OP_SESSION: makes a session, or resumes one over a new link. OP_BYE ends one.
 *
 *   CHECK -> ATTACH -> REPLY
 *
 * One at a time per channel of a link. A session is tied to the key it was made with: its row has
 * a proof of both the key and the client's secret, not the secret. The session leaves its old link
 * first. It is attached to the new one only when none of its requests is in service any more, so
 * that no retransmitted request still runs.
 *
 * A gateway gives each of its clients a named session. Where another gateway, or the next process,
 * makes a session of the same name, it gets the locks of the older one, which then ends. */
#include "server/op_state.h"
#include "server/task.h"

#define JOINING_MAX 256 /* of a link */

enum { CHECK, ATTACH, REPLY };
static const char *const names[] = { [CHECK] = "check", [ATTACH] = "attach", [REPLY] = "reply" };

static uint64_t new_id(struct server *srv)
{
	uint64_t id;

	do
		id = env_random_u64(srv->loop->env);
	while (!id || session_find(&srv->sessions, id));
	return id;
}

/* The session of the same name that the new one replaces, or NULL. One on this channel is of the
 * same client, which did not get the answer to its last request. */
static struct session *older_of(struct sreq *s)
{
	const struct wire_session_args *a = s->args;
	struct session *old =
		a->name.len == SESSION_NAME ? session_named(&s->srv->sessions, a->name.p) : NULL;

	if (!old || old->held.key != s->link->held.key)
		return NULL;
	return a->inherits || old == session_on(s->link, tag_channel(s->tag)) ? old : NULL;
}

/* The session goes on over another link, or on another channel. */
static void leave_link(const struct sreq *s, struct session *ss)
{
	if (!ss->link || (ss->link == s->link && ss->channel == tag_channel(s->tag)))
		return;
	/* a client that still believes that the old link is up notices at once */
	if (ss->link != s->link)
		link_close(ss->link, -ECONNRESET);
	else
		srv_session_down(ss);
}

static void check(struct sreq *s)
{
	struct wire_session_args *a = s->args;
	struct session_state *st = s->op;
	struct session *ss = a->id ? session_find(&s->srv->sessions, a->id) : NULL, *old;
	struct session *before = session_on(s->link, tag_channel(s->tag));

	session_mac(s, a->secret, st->mac);
	if (ss && !ss->doomed) {
		if (memcmp(ss->secret, st->mac, sizeof(st->mac)) != 0) {
			link_refused(s->link, REFUSED_SESSION, "it has not the secret and the key");
			s->q.error = -EACCES;
			return;
		}
		st->found = ss;
		st->resumed = true;
		leave_link(s, ss);
		session_quiesce(ss, &st->wait, &s->q);
		return;
	}
	if (before && before != older_of(s)) /* a channel has one session at a time */
		task_end_session(s->srv, before);
	s->q.error = sreq_reserve(s, &s->link->held, LIMIT_SESSIONS);
	if (s->q.error)
		return;
	st->id = new_id(s->srv);
	old = older_of(s);
	if (old) { /* what it has asked for ends first */
		leave_link(s, old);
		session_quiesce(old, &st->wait, &s->q);
	}
	if (!s->srv->meta ||
	    s->link->role == LINK_SERVER) /* not durable: requests of servers are safe to repeat */
		return;
	sreq_record(s, REC_SESSION_NEW);
	s->change.rec.session = st->id;
	s->change.rec.client = a->client;
	memcpy(s->change.rec.token, st->mac, sizeof(st->mac));
	meta_submit(s->srv->meta, &s->change, &s->q);
}

/* Tells a client on the Unix socket where the object files are, for direct reads. */
static void tell_object_dir(struct sreq *s, struct wire_session_res *r)
{
	char *path = s->srv->disk && s->link->local_label[0] ?
			     arena_alloc(&s->arena, PATH_MAX_LEN) :
			     NULL;
	ssize_t n = path ? disk_objects_dir(s->srv->disk, path, PATH_MAX_LEN, &r->objects.dev,
					    &r->objects.ino) :
			   0;

	if (n > 0)
		r->objects.path = (struct wire_bytes){ (uint32_t)n, (uint8_t *)path };
}

static int make(struct sreq *s, struct session **out)
{
	const struct wire_session_args *a = s->args;
	const struct session_state *st = s->op;
	char client[LINK_HOST_MAX] = "";
	int e;

	memcpy(client, a->client.p, MIN(a->client.len, sizeof(client) - 1));
	e = session_new(&s->srv->sessions, st->id, st->mac, client, out);
	if (e)
		return e;
	(*out)->reclaimed = true;
	sreq_unreserve(s);
	usage_add(&(*out)->held, LIMIT_SESSIONS, 1);
	return 0;
}

/* Charges what the session holds to the key of its link. The key is unknown after a restart, and
 * the roles of keys may change. */
static int own(struct sreq *s, struct session *ss)
{
	struct key_account *k = link_key_account(s->link);

	if (!k)
		return -ENOMEM; /* a new session ends with its lease */
	usage_move(&ss->held, k);
	return 0;
}

/* Gives the session its name, and the locks of an older one: that of check(), or one that was made
 * meanwhile. */
static void name_session(struct sreq *s, struct session *ss)
{
	const struct wire_session_args *a = s->args;
	struct session *old = ss->is_named ? NULL : older_of(s);

	if (old && old != ss) {
		((struct wire_session_res *)s->res)->inherited = locks_pass(old, ss);
		task_end_session(s->srv, old);
	}
	if (a->name.len == SESSION_NAME)
		session_set_name(ss, a->name.p);
}

static int attach(struct sreq *s)
{
	struct wire_session_res *r = s->res;
	struct session_state *st = s->op;
	struct session *ss = st->found;
	int e;

	if (s->change.res.status)
		return -s->change.res.status;
	if (st->resumed && ss->doomed)
		return -ESTALE;
	e = st->resumed ? 0 : make(s, &ss);
	if (!e)
		e = own(s, ss);
	if (e)
		return e;
	tallies_join(s->srv, ss, &((const struct wire_session_args *)s->args)->job);
	name_session(s, ss);
	if (s->link->state != LINK_UP)
		return -ECONNRESET;
	leave_link(s, ss); /* the newest link wins */
	e = session_attach(ss, s->link, tag_channel(s->tag));
	if (e)
		return e;
	*r = (struct wire_session_res){ .id = ss->id,
					.resumed = st->resumed,
					.slots = SESSION_SLOTS,
					.lease_ms = s->srv->net.id.lease_ms,
					.boot = s->srv->boot,
					.inherited = r->inherited,
					.unchanged_ns = notices_unchanged(s->srv) };
	tell_object_dir(s, r);
	return 0;
}

/* May it ask now? Not twice on a channel, and not with all sessions of a link at once. */
static bool may_join(const struct link *l, uint32_t channel)
{
	struct session_state *st;
	int n = 0;

	list_for_each(st, &l->joining, in_link)
		if (st->channel == channel || ++n == JOINING_MAX)
			return false;
	return true;
}

static bool step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct session_state *st = s->op;

	switch (q->state) {
	case CHECK:
		req_goto(q, ATTACH);
		st->channel = tag_channel(s->tag);
		st->is_joining = may_join(s->link, st->channel);
		if (!st->is_joining) {
			req_fail(q, -EBUSY);
			break;
		}
		list_push(&s->link->joining, &st->in_link);
		check(s);
		break;
	case ATTACH:
		req_goto(q, REPLY);
		req_fail(q, attach(s));
		break;
	case REPLY:
		if (st->is_joining)
			list_del(&st->in_link);
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops session_open_ops = REQ_OPS("session", step, REPLY, names);

int do_kept(struct sreq *s)
{
	const struct wire_kept_args *a = s->args;
	struct wire_kept_res *r = s->res;

	r->n = locks_kept(s->session, a->drops);
	return 0;
}

int do_bye(struct sreq *s)
{
	task_end_session(s->srv, s->session);
	return 0;
}
