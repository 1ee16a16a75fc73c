/* The client side of a session with one target: its links, its session, its lease.
 *
 *   IDLE -> DIALLING -> SESSION -> UP          the session exists, calls are sent
 *     ^________ WAITING <___|_______|          the link broke: dial again after a delay
 *
 * A peer may use the link of another one, on a channel of its own. Then DIALLING waits for that
 * link, also after a break. While others use the link, a peer that gets no session goes from
 * SESSION to WAITING, and the link stays.
 *
 * HALTED, from any state: no link and no calls; the session waits for peer_resume() or for another
 * process. calls.c has the calls.
 *
 * Threads: the loop's. */
#include "net/backend.h"
#include "net/peer_private.h"
#include "net/rdma.h"

#define BACKOFF_MIN_MS 20
#define BACKOFF_MAX_MS 1000

/* ---- the session ---- */

static void renew(struct peer *p)
{
	uint64_t third = p->lease_ms * NSEC_PER_MSEC / 3;

	if (p->keep_alive && p->state == PEER_UP)
		timer_set(loop_of(p), &p->timer, p->last_traffic + MAX(third, NSEC_PER_MSEC));
}

static bool ping_step(struct req *q)
{
	struct peer *p = container_of(q, struct peer, ping_req);

	call_fini(&p->ping);
	req_fini(q);
	p->ping_busy = false;
	renew(p);
	return false;
}

static const char *const one_state[] = { "wait" };
static const struct req_ops ping_ops = REQ_OPS("ping", ping_step, 0, one_state);

static bool has_calls(const struct peer *p)
{
	for (uint32_t i = 0; i < SESSION_SLOTS; i++)
		if (p->slots[i].call)
			return true;
	return !list_empty(&p->queue);
}

/* Nothing moves over its link; small calls of its users are sent again over the next one. */
static bool is_idle(const struct peer *p)
{
	return list_empty(&p->link->descs) && !has_calls(p);
}

/* When the session was last used. Bulk is traffic, too, but not that of others. */
static uint64_t used_at(const struct peer *p)
{
	return p->last_traffic && p->link && !p->through ? MAX(p->last_traffic, p->link->progress) :
							   p->last_traffic;
}

static void ask_for_session(struct peer *p, struct link *l);

static void peer_timer(struct timer *t)
{
	struct peer *p = container_of(t, struct peer, timer);
	struct loop *l = loop_of(p);
	uint64_t third = p->lease_ms * NSEC_PER_MSEC / 3, used;

	if (p->state == PEER_WAITING) {
		if (p->link)
			ask_for_session(p, p->link);
		else
			peer_dial(p);
		return;
	}
	if (p->state != PEER_UP || p->ping_busy)
		return;
	used = used_at(p);
	if (l->now < used + third) {
		timer_set(l, t, used + MAX(third, NSEC_PER_MSEC));
		return;
	}
	if (!p->through && rdma_is_due(p) &&
	    is_idle(p)) { /* the session goes on over the next link */
		link_close(p->link, -ECONNRESET);
		return;
	}
	p->ping_busy = true;
	req_init(&p->ping_req, l, &ping_ops, 0);
	p->ping = (struct call){ .op = OP_PING,
				 .args = &p->ping_args,
				 .res = &p->ping_res,
				 .deadline = l->now + MAX(third, NSEC_PER_SEC) };
	peer_call(p, &p->ping, &p->ping_req);
}

/* Dials again, or asks again for a session over a link that others use, after a delay, which
 * grows. */
static void wait_and_dial(struct peer *p)
{
	struct loop *l = loop_of(p);
	uint32_t jitter;

	l->env->clock->random(l->env, &jitter, sizeof(jitter));
	p->state = PEER_WAITING;
	p->backoff_ms =
		MIN(MAX(2 * p->backoff_ms, (uint32_t)BACKOFF_MIN_MS), (uint32_t)BACKOFF_MAX_MS);
	timer_set(l, &p->timer,
		  l->now + (p->backoff_ms + jitter % p->backoff_ms) * NSEC_PER_MSEC / 2);
}

/* There is no session, so no call of this peer was sent: other peers go on with the link. */
static void session_failed(struct peer *p, int error)
{
	p->last_error = error;
	if (error == -ESTALE || error == -EACCES) /* the next one is new */
		p->session = 0;
	if (!p->through && list_empty(&p->users)) {
		link_close(p->link, error);
		return;
	}
	if (p->through)
		p->link = NULL;
	wait_and_dial(p);
}

static bool session_step(struct req *q)
{
	struct peer *p = container_of(q, struct peer, session_req);
	struct wire_session_res *r = &p->session_res;
	int error = q->error;
	bool lost, restarted, up;

	req_fini(q);
	p->session_busy = false;
	up = p->state == PEER_SESSION && p->link && p->link->state == LINK_UP;
	if (!error && p->on_session_up && up)
		p->on_session_up(p, r);
	call_fini(&p->session_call);
	if (!up)
		return false;
	if (error) {
		session_failed(p, error);
		return false;
	}
	lost = !r->resumed;
	restarted = p->unclaimed || (p->boot && p->boot != r->boot);
	p->unclaimed = false;
	if (lost)
		peer_forget_session(p);
	if (lost)
		p->inherited = r->inherited;
	p->was_lost |= lost && p->boot;
	p->session = r->id;
	p->boot = r->boot;
	p->lease_ms = r->lease_ms;
	p->n_slots = MIN(MAX(r->slots, 1u), (uint32_t)SESSION_SLOTS);
	if (p->on_restart && (lost || restarted)) /* queues its claims; the state is not UP yet */
		p->on_restart(p, lost);
	p->state = PEER_UP;
	p->backoff_ms = 0;
	p->last_error = 0;
	p->refusal[0] = 0;
	peer_release_cancelled(p);
	if (restarted) /* send a PING soon, so that the server does not wait longer for claims */
		p->last_traffic = 0;
	peer_resend(p);
	peer_pump(p);
	renew(p);
	return false;
}

static const struct req_ops session_ops = REQ_OPS("session", session_step, 0, one_state);

static void ask_for_session(struct peer *p, struct link *l)
{
	struct loop *lp = loop_of(p);

	p->link = l;
	p->state = PEER_SESSION;
	p->round = 0;
	p->byte_ns = 0;
	p->verifier = l->verifier;
	p->incarnation = l->incarnation;
	if (p->on_incarnation)
		p->on_incarnation(p);
	if (!p->session)
		lp->env->clock->random(lp->env, p->secret, sizeof(p->secret));
	p->session_args = (struct wire_session_args){
		.id = p->session,
		.client = wire_text(p->host ? p->host : p->net->id.host),
		.job = wire_text(p->job ? p->job : ""),
	};
	memcpy(p->session_args.secret, p->secret, sizeof(p->secret));
	if (p->name)
		p->session_args.name = (struct wire_bytes){ SESSION_NAME, p->name };
	/* later, a gateway that came after this one may have the locks */
	p->session_args.inherits = p->name && !p->boot && lp->now < p->inherits_until;
	req_init(&p->session_req, lp, &session_ops, 0);
	p->session_busy = true;
	p->session_call =
		(struct call){ .op = OP_SESSION,
			       .args = &p->session_args,
			       .res = &p->session_res,
			       .peer = p,
			       .q = &p->session_req,
			       .slot = NO_SLOT,
			       .sequence = ++p->n_session_calls,
			       .deadline = lp->now + p->net->id.timeout_ms * NSEC_PER_MSEC };
	p->session_call.timer.fire = call_timeout;
	list_init(&p->session_call.link);
	req_hold(&p->session_req);
	timer_set(lp, &p->session_call.timer, p->session_call.deadline);
	call_transmit(p, &p->session_call);
}

/* Dialling again will not help. */
static bool is_final(const struct peer *p, int error)
{
	switch (error) {
	case -EKEYREJECTED:
	case -EREMCHG:
	case -EPROTONOSUPPORT:
		return true;
	case -EDESTADDRREQ: /* no such name; a server that was reached before may be again */
		return p->role == LINK_CLIENT && !p->boot;
	case -ENONET: /* the server may have RDMA again soon */
		return !p->net->rdma.device;
	}
	return false;
}

void peer_link_up(struct peer *p, struct link *l)
{
	struct peer *u;

	routes_succeeded(&p->routes);
	ask_for_session(p, l);
	list_for_each(u, &p->users, in_users)
		if (u->state == PEER_DIALLING && p->link == l && l->state == LINK_UP)
			ask_for_session(u, l);
}

/* The peer has no link any more, for this reason; is_last: nor does it get one at once. */
static void lose_link(struct peer *p, int error, bool is_last)
{
	p->link = NULL;
	if (p->on_link_down)
		p->on_link_down(p);
	if (is_last) /* the error of the last route tells why the server is not reached */
		p->last_error = error;
	p->state = p->through ? PEER_DIALLING : PEER_WAITING;
	peer_unsend(p);
	if (p->session_call.q)
		call_finish(&p->session_call, error);
	if (is_last && is_final(p, error))
		peer_fail_queued(p, error);
}

void peer_link_down(struct peer *p, struct link *l, int error)
{
	struct loop *lp;
	bool has_next = false;
	struct peer *u;

	if (p->link != l)
		return;
	lp = loop_of(p);
	if (l && p->state == PEER_DIALLING)
		has_next = routes_failed(&p->routes, error, lp->now);
	lose_link(p, error, !has_next);
	list_for_each(u, &p->users, in_users)
		if (u->state == PEER_DIALLING || (l && u->link == l))
			lose_link(u, error, !has_next);
	if (has_next) /* dial the next route at once */
		timer_set(lp, &p->timer, lp->now);
	else
		wait_and_dial(p);
}

/* Uses the link of the other peer, now or when it is up. */
static void join(struct peer *p)
{
	struct peer *o = p->through;

	if (o->state == PEER_IDLE)
		peer_dial(o);
	else if (o->link && o->link->state == LINK_UP && o->state != PEER_DIALLING)
		ask_for_session(p, o->link);
}

void peer_dial(struct peer *p)
{
	struct routes *to = &p->routes;
	uint64_t now = loop_of(p)->now;
	int r;

	p->state = PEER_DIALLING;
	p->link = NULL;
	if (p->through) {
		join(p);
		return;
	}
	routes_begin(to, now);
	do
		r = to->row[to->at].kind->dial(p->net, p, p->address, p->target, &p->link);
	while (r && routes_failed(to, r, now));
	if (r)
		peer_link_down(p, NULL, r);
}

struct peer *peer_on(struct peer *owner, uint32_t channel)
{
	struct hnode *n = NULL;

	if (!channel)
		return owner;
	if (owner->by_channel.count)
		n = htab_first(&owner->by_channel, channel);
	return n ? container_of(n, struct peer, on_channel) : NULL;
}

static void leave_channel(struct peer *p)
{
	if (p->channel)
		htab_remove(&p->through->by_channel, &p->on_channel);
	p->channel = 0;
}

/* A channel that no user has. Replies to the one before are dropped. 0 or -ENOMEM. */
static int take_channel(struct peer *p)
{
	struct peer *o = p->through;

	leave_channel(p);
	if (!o->by_channel.n_slots && htab_init(&o->by_channel))
		return -ENOMEM;
	do
		o->last_channel = o->last_channel % CHANNEL_MAX + 1;
	while (peer_on(o, o->last_channel));
	if (htab_insert(&o->by_channel, &p->on_channel, o->last_channel))
		return -ENOMEM;
	p->channel = o->last_channel;
	return 0;
}

/* Does its link know memory of its calls? */
static bool exposes_memory(const struct peer *p)
{
	const struct net_desc *d;

	list_for_each(d, &p->link->descs, link)
		if (container_of(d, struct call, desc)->peer == p)
			return true;
	return false;
}

void peer_note_failure(struct peer *p, int error)
{
	if (error != -EIO && error != -ENOSPC && error != -EDQUOT && error != -EROFS)
		return;
	p->failed = error;
	p->failed_time = loop_of(p)->now;
}

/* ---- life ---- */

void peer_init(struct peer *p, struct net *n, uint32_t role, uint32_t target, const char *address)
{
	memset(p, 0, sizeof(*p));
	p->net = n;
	p->role = role;
	p->target = target;
	p->n_slots = 1;
	p->eager_bytes = INLINE_MAX;
	p->lease_ms = 30000;
	p->map_version = 1; /* that of the cluster file; servers tell later ones */
	p->keep_alive = true;
	strncpy(p->address, address, sizeof(p->address) - 1);
	routes_init(&p->routes, p->address);
	list_init(&p->users);
	list_init(&p->in_users);
	peer_calls_init(p);
	p->timer.fire = peer_timer;
}

int peer_use_link(struct peer *p, struct peer *owner)
{
	int r;

	p->through = owner->through ? owner->through : owner;
	r = take_channel(p);
	if (r)
		p->through = NULL;
	else
		list_push(&p->through->users, &p->in_users);
	return r;
}

struct net_costs peer_costs(const struct peer *p)
{
	struct net_costs c = p->link ? *p->link->costs : p->net->costs[MEDIUM_TCP];

	c.far = p->round >= NET_FAR_NS ? (double)p->round : 0;
	c.byte = MAX(c.byte, p->byte_ns); /* a slow network takes longer than the processors */
	return c;
}

bool peer_is_local(const struct peer *p)
{
	return p->link && p->link->local_label[0];
}

const char *peer_medium(const struct peer *p)
{
	return p->link ? link_route(p->link) : NULL;
}

void peer_halt(struct peer *p)
{
	if (p->link && (!p->through || exposes_memory(p)))
		link_close_now(p->link, -ESHUTDOWN);
	else if (p->link && p->on_link_down)
		p->on_link_down(p);
	p->link = NULL;
	timer_del(loop_of(p), &p->timer);
	timer_del(loop_of(p), &p->defer_timer);
	timer_del(loop_of(p), &p->retry_timer);
	p->state = PEER_HALTED;
	if (p->session_call.q) /* the link stays */
		call_finish(&p->session_call, -ESHUTDOWN);
	peer_fail_all(p, -ESHUTDOWN);
}

void peer_connect(struct peer *p)
{
	if (p->state == PEER_IDLE)
		peer_dial(p);
}

void peer_resume(struct peer *p)
{
	p->state = PEER_IDLE;
	p->backoff_ms = 0;
	p->last_error = 0;
	routes_init(&p->routes, p->address); /* the last failures may have another cause */
	if (p->through)
		(void)take_channel(p); /* replies to calls before are not for later ones */
	if (p->boot || !list_empty(&p->users)) /* a server has had a session of this peer */
		peer_dial(p);
}

void peer_fini(struct peer *p)
{
	struct link *l, *tmp;

	if (!p->net)
		return;
	peer_halt(p);
	list_for_each_safe(l, tmp, &p->net->closing_links, in_net)
		if (l->peer == p)
			link_close_now(l, -ESHUTDOWN);
	if (p->ping_busy)
		req_fini(&p->ping_req);
	if (p->session_busy)
		req_fini(&p->session_req);
	call_fini(&p->ping);
	call_fini(&p->session_call);
	leave_channel(p);
	list_del(&p->in_users);
	htab_destroy(&p->by_channel);
	p->net = NULL;
}
