/* Turns a message into a request in service, and its result into a reply.
 *
 * A request borrows a slot of its session from here to sreq_answer(), and is in service to
 * sreq_end(). It holds a reference to its link. When the link breaks, the request still runs to its
 * end: its transfers fail and its reply is dropped.
 * Buffers: the message is kept to the end, because the decoded arguments point into it.
 * Errors: a message that breaks the protocol closes its link; all others become a status in a
 * reply. */
#include <stdlib.h>

#include "server/inode.h"
#include "server/pair.h"
#include "server/task.h"

#define ARENA_LIMIT (1 * MIB) /* per request */
#define SPARE_REQS 1024 /* free requests kept for reuse */

static struct sreq *sreq_new(struct server *srv)
{
	struct list *it = list_pop(&srv->spare_reqs);
	struct sreq *s;

	if (it) {
		struct arena keep;

		srv->n_spare_reqs--;
		s = list_entry(it, struct sreq, node);
		keep = s->arena;
		memset(s, 0, sizeof(*s));
		s->arena = keep;
	} else {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		arena_init(&s->arena, ARENA_LIMIT);
		s->arena.may_grow = sreq_may_grow;
	}
	list_init(&s->node);
	s->srv = srv;
	s->arena_bytes = s->arena.held;
	s->change.arena = &s->arena;
	return s;
}

/* Also drops the request's reference to its link. */
static void sreq_free(struct sreq *s)
{
	struct server *srv = s->srv;

	sreq_release(s);
	link_unref(s->link);
	msg_free(s->in);
	arena_reset(&s->arena);
	srv->in_service--;
	if (srv->n_spare_reqs == SPARE_REQS) {
		arena_destroy(&s->arena);
		free(s);
		return;
	}
	srv->n_spare_reqs++;
	list_push_front(&srv->spare_reqs, &s->node);
}

void spare_requests_free(struct server *srv)
{
	struct list *it;

	while ((it = list_pop(&srv->spare_reqs))) {
		struct sreq *s = list_entry(it, struct sreq, node);

		arena_destroy(&s->arena);
		free(s);
	}
}

void sreq_abandon(struct sreq *s)
{
	req_abandon(&s->q);
	if (s->q.ops->abandon)
		s->q.ops->abandon(&s->q);
	list_del(&s->node);
	sreq_free(s);
}

/* ---- replies ---- */

/* A failed sync changes the verifier, which tells every client with unsynced data of the loss. The
 * reply to a write has the verifier of its arrival: a sync that failed since may have lost it. */
static uint64_t verifier_of(const struct sreq *s)
{
	struct server *srv = s->srv;

	srv->net.id.verifier = disk_verifier(srv->disk);
	return s->row && s->row->wire->flags & OPF_UNSYNCED ? s->verifier : srv->net.id.verifier;
}

static void send_reply(struct sreq *s, int error, uint32_t slots)
{
	struct server *srv = s->srv;
	bool busy = !list_empty(&srv->pool.waiting);
	struct wire_rep_head h = {
		.status = -error,
		.slot = s->head.slot,
		.sequence = s->head.sequence,
		.verifier = verifier_of(s),
		.map_version = srv->map.version,
		.slots = slots,
		.eager_bytes = busy ? 0 : INLINE_MAX,
		.load = srv->pool.n_holders,
	};
	struct msg *m = NULL;

	if (error == -EREMOTE)
		m = msg_encode(&srv->net, XDR_ANY(xdr_wire_rep_head), &h,
			       XDR_ANY(xdr_wire_referral), &s->referral);
	else if (!error)
		m = msg_encode(&srv->net, XDR_ANY(xdr_wire_rep_head), &h, s->row->wire->res,
			       s->res);
	if (!m) {
		if (!error) /* the result does not fit: an error of this server */
			h.status = EMSGSIZE;
		m = msg_encode(&srv->net, XDR_ANY(xdr_wire_rep_head), &h, NULL, NULL);
	}
	if (m)
		link_send(s->link, FRAME_REPLY, s->tag, m);
	else
		link_close(s->link, -ENOMEM);
}

/* The number of slots that the client may use from now on. */
static uint32_t credit(const struct sreq *s)
{
	bool busy = !list_empty(&s->srv->pool.waiting) ||
		    usage_over(sreq_payer(s), LIMIT_REQUEST_BYTES, 0, 2);

	return busy ? BUSY_SLOTS : SESSION_SLOTS;
}

/* Counts a request that failed for lack of space; the log has one line a minute. */
static void note_no_space(struct sreq *s)
{
	struct server *srv = s->srv;
	uint64_t now = srv->loop->now;

	if (srv->no_space++ && now - srv->no_space_logged_at < NO_SPACE_TELL_NS)
		return;
	srv->no_space_logged_at = now;
	log_warn("server",
		 "no space left in %s: refused a %s of %s; remove files, or add a server with "
		 "'sheaf add-server'",
		 srv->self->storage, s->row->wire->name, s->link->host);
}

void sreq_answer(struct sreq *s)
{
	int error = s->q.error;

	/* SETXATTR: mostly the limit of one inode, not a full disk; other requests tell of that */
	if ((error == -ENOSPC || error == -EDQUOT) && s->head.op != OP_SETXATTR)
		note_no_space(s);

	log_at(LOG_DEBUG, "server", s->head.trace, "%s of %s: %s after %llu us", s->row->wire->name,
	       s->link->host, error_text(error),
	       (unsigned long long)(s->srv->loop->now - s->q.born) / 1000);
	hist_add(&s->srv->op_times[s->head.op], s->srv->loop->now - s->q.born);
	sreq_unreserve(s);
	sreq_count(s);
	if (s->session)
		session_answered(s->session, s->head.slot);
	if (error && error != -ESHUTDOWN && s->no_room)
		send_reply(s, -EBUSY, 0);
	else if (error != -ESHUTDOWN) /* else the client retransmits after the restart */
		send_reply(s, error, credit(s));
}

bool sreq_end(struct sreq *s)
{
	sreq_release(s);
	if (s->session)
		session_leave(s->session);
	s->session = NULL; /* it may end now */
	req_fini(&s->q);
	sreq_free(s);
	return false;
}

bool sreq_reply(struct sreq *s)
{
	lease_unblock(s);
	if (s->q.error == -EINPROGRESS && sreq_park(s))
		return true;
	sreq_answer(s);
	return sreq_end(s);
}

/* ---- the two short kinds of operations ---- */

enum { HANDLE, HANDLE_REPLY };
static const char *const handle_names[] = { [HANDLE] = "handle", [HANDLE_REPLY] = "reply" };

static bool handle_step(struct req *q)
{
	struct sreq *s = sreq_of(q);

	if (q->state == HANDLE_REPLY)
		return sreq_reply(s);
	req_goto(q, HANDLE_REPLY);
	q->error = s->row->handle(s);
	return true;
}

const struct req_ops handle_ops = REQ_OPS("handle", handle_step, HANDLE_REPLY, handle_names);

/* PREPARE -> COMMIT -> REPLY */
enum { CHANGE_PREPARE, CHANGE_COMMIT, CHANGE_REPLY };
static const char *const change_names[] = {
	[CHANGE_PREPARE] = "prepare", [CHANGE_COMMIT] = "commit", [CHANGE_REPLY] = "reply"
};

static bool change_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct change *c = &s->change;
	int r;

	switch (q->state) {
	case CHANGE_PREPARE: /* a stored answer of an earlier execution takes precedence */
		req_goto(q, CHANGE_COMMIT);
		r = sreq_replay(s);
		if (r != -ENOENT) {
			q->error = r;
			break;
		}
		r = s->row->prepare(s);
		if (r == CHANGES_NOTHING)
			req_goto(q, CHANGE_REPLY);
		else if (!r)
			meta_submit(s->srv->meta, c, q);
		else
			q->error = r;
		break;
	case CHANGE_COMMIT:
		req_goto(q, CHANGE_REPLY);
		q->error = c->res.status ? -c->res.status : s->row->finish(s);
		break;
	case CHANGE_REPLY:
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops change_ops = REQ_OPS("change", change_step, CHANGE_REPLY, change_names);

/* The HMAC, under the server key, of the part of the message that a retransmission repeats. */
static const uint8_t *digest_of(struct sreq *s)
{
	if (!s->has_digest)
		mac_make_with(
			s->digest, s->srv->signer,
			(struct mac_part[]){ { "request", 7 },
					     { s->in->body + REQ_VARIES, s->in->len - REQ_VARIES },
					     { NULL, 0 } });
	s->has_digest = true;
	return s->digest;
}

static int replay_refused(struct sreq *s)
{
	link_refused(s->link, REFUSED_REPLAY, "%s under the sequence of another request",
		     s->row->wire->name);
	return -EBADMSG;
}

int sreq_replay(struct sreq *s)
{
	const struct wire_bytes *call = &s->head.call_id;
	struct env *e = s->srv->loop->env;
	struct slot_key k = { s->head.session,
			      s->head.slot,
			      s->head.sequence,
			      digest_of(s),
			      call->len ? call->p : NULL,
			      (int64_t)e->clock->wall(e) };
	int r = meta_replay(s->srv->meta, &k, &s->change.res, &s->arena);

	return r == -EKEYREJECTED ? replay_refused(s) : r;
}

void sreq_record(struct sreq *s, uint32_t kind)
{
	struct env *e = s->srv->loop->env;

	s->change.rec = (struct wire_record){
		.kind = kind,
		.time = (int64_t)e->clock->wall(e),
		.session = s->head.session,
		.slot = s->head.slot,
		.sequence = s->head.sequence,
		.uid = s->head.uid,
		.gid = s->head.gid,
		.n_gids = s->head.n_gids,
		.gids = s->head.gids,
	};
	memcpy(s->change.rec.digest, digest_of(s), DIGEST_BYTES);
	if (s->head.call_id.len)
		memcpy(s->change.rec.token, s->head.call_id.p, CALL_ID_BYTES);
}

bool is_sreq(const struct req *q)
{
	for (unsigned i = 0; i < N_OPS; i++)
		if (op_rows[i].ops == q->ops)
			return true;
	return false;
}

/* ---- requests ---- */

int sreq_decode(struct sreq *s)
{
	struct xdr x;

	xdr_decoder(&x, s->in->body, s->in->len, &s->arena);
	if (!xdr_wire_req_head(&x, &s->head))
		return -EPROTO;
	s->row = op_row(s->head.op);
	if (!s->row)
		return -EPROTO;
	s->args = arena_alloc(&s->arena, s->row->wire->args_size);
	s->res = arena_alloc(&s->arena, s->row->wire->res_size);
	s->op = arena_alloc(&s->arena, MAX(s->row->state_size, (uint16_t)1));
	if (!s->args || !s->res || !s->op)
		return -ENOMEM;
	if (!s->row->wire->args(&x, s->args) || xdr_left(&x))
		return -EPROTO;
	return 0;
}

/* May this request be executed here and over this link? Returns 0 or the status to answer with. */
static int permitted(struct sreq *s)
{
	const struct server *srv = s->srv;
	unsigned flags = s->row->wire->flags;
	int r = sreq_identify(s);

	if (r)
		return r;
	if ((flags & OPF_SERVERS) && s->link->role != LINK_SERVER) {
		link_refused(s->link, REFUSED_SERVERS_ONLY, "%s is for servers",
			     s->row->wire->name);
		return -EPERM;
	}
	if ((flags & OPF_ADMIN) && s->head.uid != 0)
		return -EPERM;
	if (((flags & OPF_META) && !srv->meta) ||
	    ((flags & OPF_DATA) && !(srv->self->roles & ROLE_DATA)))
		return -EOPNOTSUPP;
	if (s->head.map_version && s->head.map_version < srv->map.version &&
	    !(flags & (OPF_NO_SESSION | OPF_ANY_MAP)))
		return -EREMCHG;
	return 0;
}

/* Answers a request that gets no slot, and frees it. -ESTALE: no such session. -EBUSY: the client
 * may retransmit it with the same slot and sequence. */
static void turn_away(struct sreq *s, int status)
{
	s->head.slot = tag_slot(s->tag);
	s->head.sequence = (uint32_t)s->tag;
	send_reply(s, status, 0);
	sreq_free(s);
}

void srv_request(void *owner, struct link *l, uint64_t tag, struct msg *m)
{
	struct server *srv = owner;
	struct session *ss = session_on(l, tag_channel(tag));
	struct sreq *s;
	int r = 0;

	if (ss) /* also by a request that is turned away */
		ss->renewed = srv->loop->now;

	/* No reply: the link breaks, and the client retransmits after the restart. Requests of
	 * servers are served: requests in service, here or on another stopping server, may wait for
	 * them. */
	if (srv->stopping && l->role != LINK_SERVER) {
		msg_free(m);
		return;
	}
	s = sreq_new(srv);
	if (!s) {
		msg_free(m);
		link_close(l, -ENOMEM);
		return;
	}
	srv->in_service++;
	srv->requests++;
	s->link = l;
	s->in = m;
	s->tag = tag;
	s->verifier = disk_verifier(srv->disk);
	link_ref(l);
	if (sreq_charge(s, sizeof(*s) + sizeof(*m) + m->cap + s->arena.held))
		r = sreq_decode(s);
	if (s->no_room) {
		turn_away(s, -EBUSY);
		return;
	}
	if (r == -EPROTO)
		link_fault(l, "a request that cannot be decoded");
	if (!r && (tag & ~TAG_STREAM) != tag_make(tag_channel(tag), s->head.slot, s->head.sequence))
		r = link_fault(l, "a request of another slot or sequence than its frame");
	if (!r && !(s->row->wire->flags & OPF_NO_SESSION)) {
		if (!ss || ss->doomed || ss->id != s->head.session) {
			if (session_find(&srv->sessions, s->head.session) != ss)
				link_refused(l, REFUSED_SESSION, "%s in another's session",
					     s->row->wire->name);
			turn_away(s, -ESTALE);
			return;
		}
		if (usage_over(&ss->held, LIMIT_REQUEST_BYTES, s->charged, 1)) {
			turn_away(s, -EBUSY);
			return;
		}
		r = session_enter(ss, s->head.slot, s->head.sequence, s->head.op, s);
		if (r == -EKEYREJECTED) {
			turn_away(s, replay_refused(s));
			return;
		}
	}
	if (r) {
		link_close(l, r);
		sreq_free(s);
		return;
	}
	if (!(s->row->wire->flags & OPF_NO_SESSION)) {
		s->session = ss;
		usage_give(&l->held, LIMIT_REQUEST_BYTES, s->charged);
		usage_add(&ss->held, LIMIT_REQUEST_BYTES, s->charged);
		if (!s->session->reclaimed && !(s->row->wire->flags & OPF_CLAIM)) {
			s->session->reclaimed = true;
			grace_check(srv);
		}
	}
	req_init(&s->q, srv->loop, s->row->ops, 0);
	s->q.trace = s->head.trace;
	s->q.hists = srv->state_times[s->head.op];
	if (s->head.time_left_ms)
		s->deadline = srv->loop->now + s->head.time_left_ms * NSEC_PER_MSEC;
	s->q.error = permitted(s);
	req_run(&s->q);
}

/* The request was cancelled or its link broke: stops a copy, answers a parked lock request. */
static void cancel(struct sreq *s)
{
	if (s->q.ops->cancel)
		s->q.ops->cancel(&s->q);
	lock_wait_end(s);
}

void srv_cancel(void *owner, struct link *l, uint64_t tag)
{
	struct session *ss = session_on(l, tag_channel(tag));
	struct sreq *s;

	(void)owner;
	if (!ss || tag_slot(tag) >= SESSION_SLOTS)
		return;
	s = ss->slots[tag_slot(tag)].request;
	if (!s || s->head.sequence != (uint32_t)tag)
		return;
	s->cancelled = true;
	cancel(s);
}

void srv_session_down(struct session *ss)
{
	for (uint32_t i = 0; i < SESSION_SLOTS; i++) {
		struct sreq *s = ss->slots[i].request;

		if (s) {
			s->cancelled = true;
			cancel(s);
		}
	}
	session_detach(ss);
}

void srv_link_down(void *owner, struct link *l)
{
	struct session *ss;

	(void)owner;
	while ((ss = list_first(&l->sessions, struct session, in_link)))
		srv_session_down(ss);
}
