/* Links: their life, and the handshake that precedes all other messages:
 *
 *   dialler                                   acceptor
 *   HELLO(who, nonce)                 ->      checks versions and names
 *                                     <-      CHALLENGE(nonce, proof)
 *   checks the proof; RESPONSE(proof) ->      checks the proof
 *                                     <-      WELCOME(verifier, lease)
 *
 * Both proofs cover both nonces and all of HELLO, which names the key; a client's key says which
 * users it may act for. Errors: a link that breaks a rule is closed, counted and logged
 * (refusal.c); other links are not affected. Buffers: one small message at a time until the link is
 * up. The number of links without a proof is bounded: see link_admit(). */
#include <stdio.h>
#include <stdlib.h>

#include "net/backend.h"
#include "net/frame.h"
#include "base/mac.h"
#include "net/peer_private.h"
#include "net/rdma.h"

#define HANDSHAKE_NS (5 * NSEC_PER_SEC)
#define LOCAL_NS (NSEC_PER_SEC / 2) /* handshake over a Unix socket; then TCP is dialled */
#define MAX_UNPROVEN 256
#define QUEUE_BYTES ((size_t)SESSION_SLOTS * MSG_MAX)
#define SESSION_QUEUE 4 /* further messages for each session */
#define QUEUE_ALL (8 * QUEUE_BYTES)
#define QUEUE_CROWDED (256 * KIB) /* of one link, while all links exceed QUEUE_ALL */
#define SOURCE_BUCKETS 1024 /* hash of the addresses of links without a proof */

static void link_timed_out(struct timer *t)
{
	link_close(container_of(t, struct link, timeout), -ETIMEDOUT);
}

void link_init(struct link *l, struct net *n, const struct net_ops *ops, struct peer *p,
	       uint32_t target)
{
	l->ops = ops;
	l->net = n;
	l->refs = 1;
	l->dialled = p != NULL;
	l->peer = p;
	l->account = p ? &p->account : &n->account;
	l->costs = &n->costs[MEDIUM_TCP];
	l->want_target = target;
	l->state = p ? LINK_CONNECTING : LINK_WAIT_HELLO;
	l->role = p ? p->role : 0;
	l->progress = n->loop->now;
	l->timeout.fire = link_timed_out;
	list_init(&l->descs);
	list_init(&l->joining);
	list_init(&l->sessions);
	l->from.local = true; /* unless the backend sets it */
	list_push(p ? &n->links : &n->unproven_links, &l->in_net);
	n->n_links++;
	n->n_dialling += p != NULL;
	n->loop->env->clock->random(n->loop->env, l->nonce, sizeof(l->nonce));
	timer_set(n->loop, &l->timeout, n->loop->now + HANDSHAKE_NS);
	n->n_unproven += p == NULL;
}

/* ---- links without a proof ---- */

/* Hashes the remote address into a bucket. Of an IPv6 address only the upper 64 bits count, since
 * one host may have all addresses of such a network. */
static uint32_t source_of(const struct link *l)
{
	static const uint8_t v4[12] = { [10] = 0xff, [11] = 0xff };
	size_t n = memcmp(l->from.addr, v4, sizeof(v4)) == 0 ? 16 : 8;

	if (l->from.local)
		return 0;
	return (uint32_t)hash_bytes(l->from.addr, n, l->net->source_seed) % SOURCE_BUCKETS;
}

/* The oldest link of the busiest address of unproven links; links without a HELLO come first. */
static struct link *link_to_evict(struct net *n)
{
	uint16_t counts[SOURCE_BUCKETS] = { 0 };
	struct link *l, *oldest = NULL;
	uint32_t most = 0;

	list_for_each(l, &n->unproven_links, in_net) {
		uint32_t source = source_of(l);

		if (++counts[source] > counts[most])
			most = source;
	}
	list_for_each(l, &n->unproven_links, in_net) {
		if (source_of(l) != most)
			continue;
		if (l->state == LINK_WAIT_HELLO)
			return l;
		oldest = oldest ? oldest : l;
	}
	return oldest;
}

void link_admit(struct link *l)
{
	struct net *n = l->net;

	if (!n->source_seed)
		n->source_seed = env_random_u64(n->loop->env) | 1;
	if (n->n_unproven > MAX_UNPROVEN)
		link_close(link_to_evict(n), -EBUSY);
}

void link_set_local(struct link *l, uint32_t user)
{
	snprintf(l->local_label, sizeof(l->local_label), "local %u:", user);
	l->costs = &l->net->costs[MEDIUM_LOCAL];
	if (l->dialled)
		timer_set(l->net->loop, &l->timeout, l->net->loop->now + LOCAL_NS);
}

bool link_has_rdma(const struct link *l)
{
	return l->rdma != NULL;
}

const char *link_route(const struct link *l)
{
	return l->local_label[0] ? "unix" : l->ops->name; /* "rdma" where it is attached */
}

void link_ref(struct link *l)
{
	l->refs++;
}

void link_unref(struct link *l)
{
	if (--l->refs)
		return;
	usage_fini(&l->held);
	l->ops->destroy(l);
}

struct key_account *link_key_account(struct link *l)
{
	enum key_kind kind = l->role == LINK_SERVER ? KEY_OF_SERVERS :
			     l->acts_for.any	    ? KEY_ANY_USER :
						      KEY_ONE_USER;

	return account_get(&l->net->limits, l->key, kind);
}

static void link_established(struct link *l)
{
	timer_del(l->net->loop, &l->timeout);
	msg_free(l->hello);
	l->hello = NULL;
	l->state = LINK_UP;
	if (l->dialled) {
		l->net->n_dialling--;
		return;
	}
	l->net->n_unproven--;
	list_del(&l->in_net);
	list_push(&l->net->links, &l->in_net);
}

/* Errors that close a link through the peer's fault: in which states, and whether the link counts
 * as bad (it sent or did something wrong, or named another cluster). */
static const struct cause {
	int error;
	enum link_state lo, hi;
	bool bad;
	enum refusal why;
	const char *text; /* NULL: the text of the error */
} causes[] = {
	{ -EPROTO, LINK_CONNECTING, LINK_UP, true, REFUSED_PROTOCOL, NULL },
	{ -EBADMSG, LINK_CONNECTING, LINK_UP, true, REFUSED_PROTOCOL, NULL },
	{ -EXDEV, LINK_CONNECTING, LINK_UP, true, REFUSED_CLUSTER, NULL },
	{ -EREMCHG, LINK_CONNECTING, LINK_UP, true, REFUSED_CLUSTER, NULL },
	{ -EPROTONOSUPPORT, LINK_CONNECTING, LINK_UP, true, REFUSED_CLUSTER, NULL },
	{ -EKEYREJECTED, LINK_CONNECTING, LINK_UP, true, REFUSED_KEY, NULL },
	{ -ENOBUFS, LINK_CONNECTING, LINK_UP, true, REFUSED_LIMIT, "it does not read its replies" },
	{ -EKEYREVOKED, LINK_WAIT_RESPONSE, LINK_UP, false, REFUSED_REVOKED,
	  "its key was revoked or changed" },
	{ -ECONNRESET, LINK_WAIT_RESPONSE, LINK_WAIT_RESPONSE, false, REFUSED_KEY,
	  "it closed the link after the proof of this server: its key is a different one" },
	{ -ETIMEDOUT, LINK_WAIT_HELLO, LINK_WAIT_RESPONSE, false, REFUSED_HANDSHAKE,
	  "it sent no proof of its key in time" },
	{ -EBUSY, LINK_WAIT_HELLO, LINK_WAIT_RESPONSE, false, REFUSED_HANDSHAKE,
	  "too many links without a proof of their key: closed to make room" },
	{ -ETIME, LINK_UP, LINK_UP, false, REFUSED_STALLED,
	  "data is due to it or from it, and did not move within the timeout" },
};

static void log_close(struct link *l, int error, enum link_state state)
{
	const struct cause *c = causes, *end = causes + ARRAY_LEN(causes);
	const char *text = l->reason;

	while (c < end && (c->error != error || state < c->lo || state > c->hi))
		c++;
	if (c == end)
		return;
	text = text ? text : c->text ? c->text : error_text(error);
	l->net->bad_links += c->bad;
	if (!l->dialled)
		link_refused(l, c->why, "%s", text);
	else if (c->bad && (state == LINK_UP || !routes_has_next(&l->peer->routes)))
		log_warn("net", "closed the link with %s: %s", l->peer->address, text);
}

int link_fault(struct link *l, const char *what)
{
	l->reason = what;
	return -EPROTO;
}

static void begin_close(struct link *l, int error, bool now)
{
	struct net *n = l->net;
	enum link_state state = l->state;

	l->state = LINK_CLOSING;
	l->error = error;
	if (l->dialled)
		l->peer->failed_at = state;
	if (state < LINK_UP)
		--*(l->dialled ? &n->n_dialling : &n->n_unproven);
	log_close(l, error, state);
	timer_del(n->loop, &l->timeout);
	msg_free(l->hello); /* now: the net may be gone when the last reference is dropped */
	l->hello = NULL;
	list_del(&l->in_net);
	list_push(&n->closing_links, &l->in_net);
	l->had_sessions = !list_empty(&l->sessions);
	if (!l->dialled && n->server)
		n->server->down(n->owner, l);
	l->ops->shut(l, -ECONNRESET, now);
}

void link_close(struct link *l, int error)
{
	if (l->state < LINK_CLOSING)
		begin_close(l, error, false);
}

void link_close_now(struct link *l, int error)
{
	link_ref(l);
	if (l->state < LINK_CLOSING)
		begin_close(l, error, true);
	else if (l->state == LINK_CLOSING)
		l->ops->shut(l, -ECONNRESET, true);
	link_unref(l);
}

bool link_queue_is_over(const struct link *l, uint32_t messages, size_t bytes)
{
	size_t most = l->net->queued > QUEUE_ALL ? QUEUE_CROWDED : QUEUE_BYTES;
	size_t n = l->by_channel.count;

	return !l->dialled && (messages > QUEUE_MAX + n * SESSION_QUEUE ||
			       bytes > most + n * SESSION_QUEUE * MSG_SHORT ||
			       usage_over(&l->held, LIMIT_REPLY_BYTES, 0, 1));
}

void link_shut(struct link *l)
{
	struct net_desc *d;

	l->state = LINK_CLOSED;
	usage_give(&l->held, LIMIT_LINKS, l->held.used[LIMIT_LINKS]);
	list_del(&l->in_net);
	l->net->n_links--;
	while ((d = list_first(&l->descs, struct net_desc, link))) {
		if (l->ops->retract)
			l->ops->retract(l, d);
		link_desc_end(d);
	}
	if (l->dialled)
		peer_link_down(l->peer, l, l->error);
	link_unref(l);
}

void link_send(struct link *l, uint32_t kind, uint64_t tag, struct msg *m)
{
	struct wire_frame_head h = { .kind = kind, .length = m->len, .tag = tag };

	if (l->state >= LINK_CLOSING) {
		msg_free(m);
		return;
	}
	frame_head_encode(m->head, &h);
	m->sent = 0;
	m->tag = tag;
	m->behind = kind == FRAME_REPLY ? tag : 0;
	l->account->messages_sent++;
	l->account->frames++;
	l->account->sent += FRAME_HEAD + m->len;
	l->ops->send(l, m);
}

/* ---- the handshake ---- */

/* The key that a link has to prove, and the users it may act for. False: no key of that name. */
static bool find_key(const struct net_identity *id, uint32_t role, const char *name,
		     const uint8_t **secret, struct key_role *acts_for)
{
	const struct client_key *k = id->named_keys ? conf_key_find(id->named_keys, name) : NULL;

	*acts_for = (struct key_role){ .any = true };
	*secret = role == LINK_SERVER ? id->server_key : id->client_key;
	if (role == LINK_SERVER || strcmp(name, id->key_name) == 0)
		return true;
	if (!k || !k->loaded)
		return false;
	*secret = k->secret;
	*acts_for = k->role;
	return true;
}

/* The role of the link must be known. */
static bool take_key(struct link *l, const struct wire_bytes *name)
{
	const uint8_t *secret;

	memcpy(l->key, name->p, MIN(name->len, sizeof(l->key) - 1));
	if (!find_key(&l->net->id, l->role, l->key, &secret, &l->acts_for))
		return false;
	memcpy(l->secret, secret, KEY_BYTES);
	return true;
}

static bool same_role(const struct key_role *a, const struct key_role *b)
{
	return a->any == b->any && a->uid == b->uid && a->n_gids == b->n_gids &&
	       memcmp(a->gids, b->gids, sizeof(a->gids)) == 0;
}

void net_recheck_keys(struct net *n)
{
	struct list *lists[] = { &n->unproven_links, &n->links };
	struct link *l, *tmp;

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		list_for_each_safe(l, tmp, lists[i], in_net) {
			struct key_role acts_for;
			const uint8_t *secret;

			if (l->dialled || l->state == LINK_WAIT_HELLO)
				continue;
			if (!find_key(&n->id, l->role, l->key, &secret, &acts_for) ||
			    memcmp(secret, l->secret, KEY_BYTES) != 0 ||
			    !same_role(&acts_for, &l->acts_for))
				link_close(l, -EKEYREVOKED);
		}
	}
}

/* The proof of one side covers: the Unix socket's label, the side's name, the acceptor's nonce, and
 * all of HELLO with the dialler's nonce. */
static void handshake_mac(const struct link *l, const char *side, const uint8_t *acceptor_nonce,
			  uint8_t out[MAC_BYTES])
{
	struct mac_part parts[] = { { l->local_label, strlen(l->local_label) },
				    { side, strlen(side) },
				    { acceptor_nonce, 32 },
				    { l->hello->body, l->hello->len },
				    { NULL, 0 } };

	mac_make(out, l->secret, parts);
}

static int send_value(struct link *l, uint32_t kind, xdr_any filter, void *v)
{
	struct msg *m = msg_encode(l->net, filter, v, NULL, NULL);

	if (!m)
		return -ENOMEM;
	link_send(l, kind, 0, m);
	return 0;
}

static bool decode(struct msg *m, xdr_any filter, void *v)
{
	struct xdr x;

	xdr_decoder(&x, m->body, m->len, NULL);
	return filter(&x, v) && xdr_left(&x) == 0;
}

void link_connected(struct link *l)
{
	struct net *n = l->net;
	struct wire_hello h = { .version_min = SHEAF_VERSION,
				.version_max = SHEAF_VERSION,
				.role = l->role,
				.backends = BACKEND_TCP | BACKEND_LOOPBACK | BACKEND_RDMA |
					    BACKEND_FETCH,
				.target = l->want_target,
				.host = wire_text(n->id.host),
				.key = wire_text(l->role == LINK_CLIENT ? n->id.key_name : "") };

	take_key(l, &h.key);
	memcpy(h.fs_id, n->id.fs.b, sizeof(h.fs_id));
	memcpy(h.nonce, l->nonce, sizeof(h.nonce));
	l->hello = msg_encode(n, XDR_ANY(xdr_wire_hello), &h, NULL, NULL);
	l->state = LINK_WAIT_CHALLENGE;
	if (!l->hello || send_value(l, FRAME_HELLO, XDR_ANY(xdr_wire_hello), &h))
		link_close(l, -ENOMEM);
}

/* Acceptor: tells the dialler why it is refused; the caller closes the link. */
static int refuse(struct link *l, int error, const char *reason)
{
	struct wire_welcome w = { .status = -error, .reason = wire_text(reason) };

	l->reason = reason;
	send_value(l, FRAME_WELCOME, XDR_ANY(xdr_wire_welcome), &w);
	return error;
}

static int on_hello(struct link *l, struct msg *m, bool *kept)
{
	struct net *n = l->net;
	struct wire_challenge c = { .version = SHEAF_VERSION, .target = n->id.target };
	struct wire_hello h;

	if (!decode(m, XDR_ANY(xdr_wire_hello), &h))
		return -EPROTO;
	memcpy(l->host, h.host.p, MIN(h.host.len, sizeof(l->host) - 1));
	if (h.version_min > SHEAF_VERSION || h.version_max < SHEAF_VERSION)
		return refuse(l, -EPROTONOSUPPORT,
			      "no protocol version in common: upgrade the older side");
	if (memcmp(h.fs_id, n->id.fs.b, sizeof(h.fs_id)) != 0)
		return refuse(l, -EXDEV,
			      "this server belongs to another file system: check the cluster "
			      "file's id and address");
	if (h.target != n->id.target)
		return refuse(l, -EXDEV,
			      "this server is another target of the file system: check the "
			      "addresses in the cluster file");
	if (h.role != LINK_CLIENT && !(h.role == LINK_SERVER && n->id.has_server_key))
		return -EPROTO;
	l->role = h.role;
	if (!take_key(l, &h.key))
		return refuse(l, -EKEYREJECTED,
			      "no key of that name here: add it to the servers' cluster file");
	l->hello = m;
	*kept = true;
	l->peer_fetches = h.backends & BACKEND_FETCH;
	c.backend = h.backends & (BACKEND_TCP | BACKEND_LOOPBACK | BACKEND_FETCH);
	l->peer_knows_rdma = (h.backends & BACKEND_RDMA) && !n->hub && !l->local_label[0];
	if (l->peer_knows_rdma && rdma_is_offered(n))
		c.backend |= BACKEND_RDMA;
	memcpy(c.nonce, l->nonce, sizeof(c.nonce));
	handshake_mac(l, "server", l->nonce, c.mac);
	l->state = LINK_WAIT_RESPONSE;
	return send_value(l, FRAME_CHALLENGE, XDR_ANY(xdr_wire_challenge), &c);
}

static int on_challenge(struct link *l, struct msg *m)
{
	struct wire_challenge c;
	struct wire_response r;
	uint8_t mac[MAC_BYTES];

	if (!decode(m, XDR_ANY(xdr_wire_challenge), &c))
		return -EPROTO;
	if (c.version != SHEAF_VERSION)
		return -EPROTONOSUPPORT;
	handshake_mac(l, "server", c.nonce, mac);
	if (!mac_equal(mac, c.mac))
		return -EKEYREJECTED;
	l->peer_has_rdma = c.backend & BACKEND_RDMA;
	l->peer_fetches = c.backend & BACKEND_FETCH;
	handshake_mac(l, "client", c.nonce, r.mac);
	l->state = LINK_WAIT_WELCOME;
	return send_value(l, FRAME_RESPONSE, XDR_ANY(xdr_wire_response), &r);
}

/* The link has proved its key: charges it to the key's limit of links. */
static int charge_link(struct link *l)
{
	struct key_account *k = link_key_account(l);
	enum limit_scope full;

	if (!k)
		return -ENOMEM;
	usage_move(&l->held, k);
	full = usage_take(&l->held, LIMIT_LINKS, 1);
	if (!full)
		return 0;
	link_refused(l, REFUSED_LIMIT, "%s: %llu is the limit %s", limit_name(LIMIT_LINKS),
		     (unsigned long long)limit_value(&l->net->limits, LIMIT_LINKS, full),
		     limit_scope_name(full));
	return refuse(l, -EUSERS,
		      "too many connections of this key or of all keys: see the server's log");
}

static int on_response(struct link *l, struct msg *m)
{
	const struct net_identity *id = &l->net->id;
	struct wire_welcome w = { .verifier = id->verifier,
				  .lease_ms = id->lease_ms,
				  .map_version = id->map_version,
				  .incarnation = id->incarnation };
	struct wire_response r;
	uint8_t mac[MAC_BYTES];
	int e;

	if (!decode(m, XDR_ANY(xdr_wire_response), &r))
		return -EPROTO;
	handshake_mac(l, "client", l->nonce, mac);
	if (!mac_equal(mac, r.mac))
		return refuse(l, -EKEYREJECTED, "wrong key");
	e = charge_link(l);
	if (e)
		return e;
	link_established(l);
	if (l->peer_knows_rdma && l->role == LINK_CLIENT)
		rdma_look(l->net);
	return send_value(l, FRAME_WELCOME, XDR_ANY(xdr_wire_welcome), &w);
}

/* Dialler: keeps the server's words. EXDEV, of a handshake, gets a text of its own. */
static int on_refusal(struct link *l, const struct wire_welcome *w)
{
	struct peer *p = l->peer;

	snprintf(p->refusal, sizeof(p->refusal), "%.*s", (int)w->reason.len,
		 (const char *)w->reason.p);
	label_clean(p->refusal); /* the server may not have proved its key yet */
	if (!routes_has_next(&p->routes))
		log_warn("net", "%s refused the link: %s", p->address, p->refusal);
	if (w->status == EXDEV)
		return -EREMCHG;
	return w->status > 0 && w->status < 4096 ? -w->status : -EPROTO;
}

static int on_welcome(struct link *l, struct msg *m)
{
	struct wire_welcome w;

	if (!decode(m, XDR_ANY(xdr_wire_welcome), &w))
		return -EPROTO;
	if (w.status)
		return on_refusal(l, &w);
	if (l->state != LINK_WAIT_WELCOME)
		return -EPROTO;
	l->verifier = w.verifier;
	l->incarnation = w.incarnation;
	link_established(l);
	peer_map(l->peer, w.map_version);
	return rdma_attach(l);
}

static int handshake(struct link *l, uint32_t kind, struct msg *m)
{
	bool kept = false;
	int r;

	switch (kind) {
	case FRAME_HELLO:
		r = on_hello(l, m, &kept);
		break;
	case FRAME_CHALLENGE:
		r = on_challenge(l, m);
		break;
	case FRAME_RESPONSE:
		r = on_response(l, m);
		break;
	case FRAME_WELCOME:
		r = on_welcome(l, m);
		break;
	default:
		r = -EPROTO;
		break;
	}
	if (!kept)
		msg_free(m);
	return r;
}

int link_message(struct link *l, uint32_t kind, uint64_t tag, struct msg *m)
{
	struct net *n = l->net;
	int r = 0;

	l->progress = n->loop->now;
	l->account->messages_received++;
	switch (kind) {
	case FRAME_REQUEST:
		n->server->request(n->owner, l, tag, m);
		break;
	case FRAME_REPLY:
		r = peer_reply(l->peer, tag, m);
		if (r == -EPROTO)
			link_fault(l, "a reply that does not fit a request");
		break;
	case FRAME_CANCEL:
		msg_free(m);
		n->server->cancel(n->owner, l, tag);
		break;
	case FRAME_ATTACH:
		r = rdma_asked(l, m);
		break;
	case FRAME_ATTACHED:
		r = rdma_attached(l, m);
		break;
	default:
		r = handshake(l, kind, m);
		break;
	}
	if (r)
		link_close(l, r);
	return l->state >= LINK_CLOSING ? -ESHUTDOWN : 0;
}

/* Which frames may arrive on which side in which state, and how long their bodies may be. */
static int check_head(struct link *l, const struct wire_frame_head *h)
{
	static const struct {
		bool dialled;
		enum link_state lo, hi;
		uint32_t max;
	} rule[] = {
		[FRAME_HELLO] = { false, LINK_WAIT_HELLO, LINK_WAIT_HELLO, HELLO_MAX },
		[FRAME_CHALLENGE] = { true, LINK_WAIT_CHALLENGE, LINK_WAIT_CHALLENGE, HELLO_MAX },
		[FRAME_RESPONSE] = { false, LINK_WAIT_RESPONSE, LINK_WAIT_RESPONSE, HELLO_MAX },
		[FRAME_WELCOME] = { true, LINK_WAIT_CHALLENGE, LINK_WAIT_WELCOME, HELLO_MAX },
		[FRAME_REQUEST] = { false, LINK_UP, LINK_UP, MSG_MAX },
		[FRAME_REPLY] = { true, LINK_UP, LINK_UP, MSG_MAX },
		[FRAME_PULL] = { true, LINK_UP, LINK_UP, 0 },
		[FRAME_CANCEL] = { false, LINK_UP, LINK_UP, 0 },
		[FRAME_ATTACH] = { false, LINK_UP, LINK_UP, HELLO_MAX },
		[FRAME_ATTACHED] = { true, LINK_UP, LINK_UP, HELLO_MAX },
		[FRAME_INVITE] = { true, LINK_UP, LINK_UP, HELLO_MAX },
		[FRAME_FETCH] = { false, LINK_UP, LINK_UP, HELLO_MAX },
		[FRAME_WORKING] = { true, LINK_UP, LINK_UP, 0 },
	};

	if (h->kind >= ARRAY_LEN(rule) || h->kind < FRAME_HELLO ||
	    rule[h->kind].dialled != l->dialled || l->state < rule[h->kind].lo ||
	    l->state > rule[h->kind].hi || h->length > rule[h->kind].max)
		return link_fault(l, "a frame of a kind or length that does not belong here");
	return 0;
}

int link_check_head(struct link *l, const struct wire_frame_head *h)
{
	/* The queue pair would answer such a request without a credit, so a client could queue any
	 * number of replies; data would reach memory that RDMA has exposed. */
	bool goes_by_rdma = l->rdma && l->rdma->is_connected && !(h->tag & TAG_STREAM) &&
			    (h->kind == FRAME_REQUEST || h->kind == FRAME_REPLY ||
			     h->kind == FRAME_DATA || h->kind == FRAME_PULL);
	bool is_of_rdma = h->kind >= FRAME_INVITE && h->kind <= FRAME_FETCH;

	if (h->kind == FRAME_DATA && !goes_by_rdma)
		return l->state == LINK_UP && h->length <= CHUNK_MAX ?
			       0 :
			       link_fault(l, "data before the link is up, or too many");
	if (is_of_rdma || goes_by_rdma)
		return link_fault(l, "a frame by TCP that must come by RDMA");
	return check_head(l, h);
}

int link_check_rdma(struct link *l, const struct wire_frame_head *h)
{
	if (l->state != LINK_UP || h->kind < FRAME_REQUEST || h->kind == FRAME_PULL ||
	    h->kind == FRAME_ATTACH || h->kind == FRAME_ATTACHED || h->kind == FRAME_WORKING)
		return link_fault(l, "a frame by RDMA that must come by TCP");
	if (h->kind == FRAME_MORE || h->kind == FRAME_CREDIT)
		return h->length <= MSG_SHORT ? 0 : link_fault(l, "a part that is too long");
	return check_head(l, h);
}
