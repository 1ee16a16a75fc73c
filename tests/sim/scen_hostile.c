/* Directed scenarios: a client whose card breaks the protocol of RDMA links. It is one of our
 * clients, but its work requests and messages are changed on their way to its card. Each attack
 * must end as its row says: the server closes the link, or the request fails or succeeds. Then the
 * server holds nothing of the attacker: no buffers, grants, keys or receives. The link of the other
 * client stays up, and its data are right. */
#include <fcntl.h>
#include <stdlib.h>

#include "client/client_impl.h"
#include "net/frame.h"
#include "net/rdma.h"
#include "sim_card.h"
#include "sim_scenario.h"

#define PIECES 64
#define PIECE 5000
#define BYTES (PIECES * PIECE)
#define OPS 2 /* operations of the attacker at once */
#define CALLS 50 /* further calls of the attacker */
#define HONEST 0
#define EVIL 1
#define FOREVER_S 7200
#define TIMEOUT_MS 8000 /* of the server: shorter than a lease */
#define PATIENCE_S 20 /* until it must have closed the link */

/* A work request on its way to the attacker's card. */
struct prey {
	struct fabric_qp *qp;
	struct fabric_wr *wr;
	struct fabric_sge sge; /* of a message */
	struct wire_frame_head h; /* of a message */
	uint8_t *body;
	uint32_t len; /* of the body */
};

enum ending {
	CLOSES, /* the server counts a refusal and closes the link */
	BREAKS, /* a card refuses an access: the link breaks */
	FAILS, /* the request fails, or the link is closed */
	SUCCEEDS
};

struct attack {
	const char *name;
	bool (*strike)(struct prey *p); /* true: it has changed something */
	uint32_t strikes; /* 0: until it ends */
	enum ending ending;
	enum refusal why; /* CLOSES */
	bool reads; /* with reads, not with writes */
};

static struct {
	struct fabric_ops ops;
	struct sim *sim;
	const struct attack *attack; /* NULL: the client is honest */
	uint32_t n_struck;
	bool has_grant; /* a grant of an earlier request: */
	uint64_t remote;
	uint32_t rkey;
	struct wire_rdma_segment foreign; /* memory of the other client */
} evil;

static uint8_t memory[OPS + 1][BYTES];

/* ---- changes ---- */

static struct link *link_of(const struct prey *p)
{
	return ((struct rdma_link *)p->qp->owner)->l;
}

static bool is_request(const struct prey *p)
{
	return p->wr->op == FABRIC_SEND && p->h.kind == FRAME_REQUEST;
}

static bool is_too_short(struct prey *p)
{
	p->sge.len = (uint32_t)sim_below(evil.sim, FRAME_HEAD);
	return true;
}

static bool is_empty(struct prey *p)
{
	p->wr->n_sge = 0;
	return true;
}

static bool has_other_length(struct prey *p)
{
	if (!is_request(p))
		return false;
	p->h.length = (uint32_t)sim_below(evil.sim, p->len);
	return true;
}

static bool is_longer_than_allowed(struct prey *p)
{
	p->h.length = MSG_MAX + 1;
	return is_request(p);
}

static bool is_never_complete(struct prey *p)
{
	p->h.length += 1000;
	return is_request(p);
}

static bool begins_twice(struct prey *p)
{
	if (!is_request(p))
		return false;
	p->h.length += 1000;
	return true;
}

static bool continues_nothing(struct prey *p)
{
	p->h.kind = FRAME_MORE;
	return true;
}

/* A beginning that lacks ten bytes, then a continuation with more. */
static bool continues_too_far(struct prey *p)
{
	if (!is_request(p) || p->len <= 10)
		return false;
	if (evil.n_struck)
		p->h.kind = FRAME_MORE;
	else
		p->h.length += 10;
	return true;
}

static bool continues_with_other_length(struct prey *p)
{
	if (!is_request(p))
		return false;
	if (evil.n_struck) {
		p->h.kind = FRAME_MORE;
		p->h.length++;
	} else {
		p->h.length += 5000;
	}
	return true;
}

static bool has_wrong_magic(struct prey *p)
{
	p->h.magic = SHEAF_MAGIC + 1;
	return true;
}

static bool is_of_wrong_kind(struct prey *p)
{
	static const uint32_t kinds[] = {
		0,	    FRAME_HELLO,  FRAME_RESPONSE, FRAME_REPLY,	FRAME_DATA,
		FRAME_PULL, FRAME_ATTACH, FRAME_ATTACHED, FRAME_INVITE, FRAME_CREDIT + 1,
		UINT32_MAX
	};

	p->h.kind = kinds[sim_below(evil.sim, ARRAY_LEN(kinds))];
	return true;
}

static bool is_garbage(struct prey *p)
{
	if (!is_request(p))
		return false;
	for (uint32_t i = 0; i < p->len; i++)
		p->body[i] = (uint8_t)sim_random(evil.sim);
	return true;
}

/* ---- immediate data and grants ---- */

static bool is_imm_of_no_grant(struct prey *p)
{
	if (p->wr->op != FABRIC_SEND)
		return false;
	*p->wr = (struct fabric_wr){ .op = FABRIC_WRITE_IMM,
				     .is_signalled = p->wr->is_signalled,
				     .id = p->wr->id,
				     .imm = (uint32_t)sim_random(evil.sim) };
	return true;
}

static bool is_imm_of_other_grant(struct prey *p)
{
	if (p->wr->op != FABRIC_WRITE_IMM)
		return false;
	p->wr->imm += 1000;
	return true;
}

/* The client believes that it has written. */
static bool never_writes(struct prey *p)
{
	if (p->wr->op != FABRIC_WRITE && p->wr->op != FABRIC_WRITE_IMM)
		return false;
	*p->wr = (struct fabric_wr){ .op = FABRIC_WRITE,
				     .is_signalled = p->wr->is_signalled,
				     .id = p->wr->id };
	return true;
}

static bool is_filling(const struct prey *p)
{
	return (p->wr->op == FABRIC_WRITE || p->wr->op == FABRIC_WRITE_IMM) && p->wr->n_sge;
}

static bool writes_with_a_forged_key(struct prey *p)
{
	if (!is_filling(p))
		return false;
	p->wr->rkey ^= (uint32_t)sim_random(evil.sim) | 1;
	return true;
}

/* All bytes of a grant are written one further: only the last one is outside. */
static bool writes_a_byte_beyond(struct prey *p)
{
	if (!is_filling(p))
		return false;
	p->wr->remote++;
	return true;
}

/* Writes into memory that a request before this one was granted. */
static bool writes_after_the_grant(struct prey *p)
{
	if (!is_request(p) || !evil.has_grant)
		return false;
	p->wr->op = FABRIC_WRITE;
	p->wr->remote = evil.remote;
	p->wr->rkey = evil.rkey;
	p->sge.len = 1;
	return true;
}

/* ---- credits ---- */

static bool gives_no_credits(struct prey *p)
{
	p->h.want = 0;
	return p->wr->op == FABRIC_SEND;
}

/* ---- descriptors ---- */

/* The keys of exposed memory in a request; NULL: it has none. */
static uint8_t *find_keys(const struct prey *p, uint32_t *n)
{
	struct net_desc *d;
	uint8_t *at;

	if (!is_request(p))
		return NULL;
	list_for_each(d, &link_of(p)->descs, link) {
		at = d->keys.len ? memmem(p->body, p->len, d->keys.p, d->keys.len) : NULL;
		if (!at)
			continue;
		*n = (d->keys.len - 4) / SEGMENT_BYTES;
		return at;
	}
	return NULL;
}

static struct wire_rdma_segment segment(uint8_t *keys, uint32_t i)
{
	struct wire_rdma_segment s;
	struct xdr x;

	xdr_decoder(&x, keys + 4 + i * SEGMENT_BYTES, SEGMENT_BYTES, NULL);
	xdr_wire_rdma_segment(&x, &s);
	return s;
}

static void set_segment(uint8_t *keys, uint32_t i, struct wire_rdma_segment s)
{
	struct xdr x;

	xdr_encoder(&x, keys + 4 + i * SEGMENT_BYTES, SEGMENT_BYTES);
	xdr_wire_rdma_segment(&x, &s);
}

/* Changes every segment to what change() makes of it. */
static bool change_segments(struct prey *p,
			    struct wire_rdma_segment (*change)(struct wire_rdma_segment s,
							       struct wire_rdma_segment first))
{
	uint32_t n;
	uint8_t *keys = find_keys(p, &n);
	struct wire_rdma_segment first;

	if (!keys)
		return false;
	first = segment(keys, 0);
	for (uint32_t i = 0; i < n; i++)
		set_segment(keys, i, change(segment(keys, i), first));
	return true;
}

static struct wire_rdma_segment other_key(struct wire_rdma_segment s,
					  struct wire_rdma_segment first)
{
	(void)first;
	s.key ^= (uint32_t)sim_random(evil.sim) | 1;
	return s;
}

static bool names_unknown_memory(struct prey *p)
{
	return change_segments(p, other_key);
}

static struct wire_rdma_segment of_other_client(struct wire_rdma_segment s,
						struct wire_rdma_segment first)
{
	(void)first;
	s.addr = evil.foreign.addr;
	s.key = evil.foreign.key;
	return s;
}

static bool names_foreign_memory(struct prey *p)
{
	return change_segments(p, of_other_client);
}

static struct wire_rdma_segment outside(struct wire_rdma_segment s, struct wire_rdma_segment first)
{
	(void)first;
	s.addr += 1 * MIB;
	return s;
}

static bool names_memory_outside(struct prey *p)
{
	return change_segments(p, outside);
}

static struct wire_rdma_segment wrapping(struct wire_rdma_segment s, struct wire_rdma_segment first)
{
	(void)first;
	s.addr = UINT64_MAX - sim_below(evil.sim, s.length);
	return s;
}

static bool wraps_around(struct prey *p)
{
	return change_segments(p, wrapping);
}

static struct wire_rdma_segment nothing(struct wire_rdma_segment s, struct wire_rdma_segment first)
{
	(void)first;
	s.length = 0;
	return s;
}

static bool has_empty_segments(struct prey *p)
{
	return change_segments(p, nothing);
}

static struct wire_rdma_segment overlapping(struct wire_rdma_segment s,
					    struct wire_rdma_segment first)
{
	s.addr = first.addr;
	s.key = first.key;
	return s;
}

static bool overlaps(struct prey *p)
{
	return change_segments(p, overlapping);
}

static bool has_other_count(struct prey *p)
{
	static const uint32_t counts[] = { 0, 1, SEGMENTS_MAX, SEGMENTS_MAX + 1, UINT32_MAX };
	uint32_t n, count = counts[sim_below(evil.sim, ARRAY_LEN(counts))];
	uint8_t *keys = find_keys(p, &n);
	struct xdr x;

	if (!keys)
		return false;
	xdr_encoder(&x, keys, 4);
	return xdr_u32(&x, &count);
}

/* ---- requests that the server reads ---- */

/* Sends a FETCH instead of a request. */
static bool name_request(struct prey *p, struct wire_rdma_segment s)
{
	struct xdr x;

	if (!is_request(p))
		return false;
	xdr_encoder(&x, p->body, SEGMENT_BYTES);
	xdr_wire_rdma_segment(&x, &s);
	p->h.kind = FRAME_FETCH;
	p->h.length = (uint32_t)xdr_used(&x);
	p->sge.len = FRAME_HEAD + p->h.length;
	return true;
}

static bool names_request_without_key(struct prey *p)
{
	uint32_t key = (uint32_t)sim_below(evil.sim, UINT32_MAX);

	return name_request(p, (struct wire_rdma_segment){ (uintptr_t)p->body, 20000, key });
}

static bool names_request_too_long(struct prey *p)
{
	return name_request(p, (struct wire_rdma_segment){ (uintptr_t)p->body, MSG_MAX + 1, 7 });
}

static bool names_request_of_no_bytes(struct prey *p)
{
	return name_request(p, (struct wire_rdma_segment){ (uintptr_t)p->body, 0, 7 });
}

static bool names_request_that_wraps(struct prey *p)
{
	return name_request(p, (struct wire_rdma_segment){ UINT64_MAX - 10, 20000, 7 });
}

/* ---- the card of the attacker ---- */

static void catch_grant(const struct fabric_wr *wr)
{
	if ((wr->op != FABRIC_WRITE && wr->op != FABRIC_WRITE_IMM) || !wr->n_sge)
		return;
	evil.has_grant = true;
	evil.remote = wr->remote;
	evil.rkey = wr->rkey;
}

static void strike(struct prey *p)
{
	const struct attack *a = evil.attack;
	uint8_t *head = NULL;
	struct xdr x;

	if (!a || !a->strike || (a->strikes && evil.n_struck >= a->strikes))
		return;
	if (p->wr->op == FABRIC_SEND) {
		p->sge = p->wr->sge[0];
		head = p->sge.addr;
		p->body = head + FRAME_HEAD;
		p->len = p->sge.len - FRAME_HEAD;
		xdr_decoder(&x, head, FRAME_HEAD, NULL);
		xdr_wire_frame_head(&x, &p->h);
		p->wr->sge = &p->sge;
	}
	if (!a->strike(p))
		return;
	evil.n_struck++;
	if (head && p->wr->op == FABRIC_SEND) {
		xdr_encoder(&x, head, FRAME_HEAD);
		xdr_wire_frame_head(&x, &p->h);
	}
}

static int evil_post(struct fabric_qp *q, const struct fabric_wr *wr, size_t n)
{
	static struct fabric_wr changed[RDMA_CHAIN];
	static struct prey prey[RDMA_CHAIN];

	for (size_t i = 0; i < n; i++) {
		changed[i] = wr[i];
		prey[i] = (struct prey){ .qp = q, .wr = &changed[i] };
		catch_grant(&wr[i]);
		strike(&prey[i]);
	}
	return sim_fabric_ops.post(q, changed, n);
}

/* ---- the two clients ---- */

static struct peer *peer_of(struct world *w, uint32_t client)
{
	return &w->actors[client].client->peers[0];
}

static struct net *server_net(struct world *w)
{
	return peek_net(w->targets[0].server);
}

/* An operation of many pieces, which the server lets the client write. */
static struct cop *begin_op(struct world *w, uint32_t client, struct cfile *f, uint8_t *mem,
			    bool write)
{
	static struct iovec iov[2][OPS][PIECES];
	struct iovec *v = iov[client][mem == memory[1]];
	struct cop *c = scene_call(w, client);
	static const struct extent all = { 0, BYTES };

	for (int i = 0; i < PIECES; i++) /* in another order: they do not become one piece */
		v[i] = (struct iovec){ mem + (i ^ 1) * PIECE, PIECE };
	if (write)
		client_write(c, f, v, PIECES, &all, 1);
	else
		client_read(c, f, v, PIECES, &all, 1);
	return c;
}

/* The honest client writes, reads, and compares. */
static void work_honestly(struct world *w, struct cfile *f)
{
	uint8_t *mem = memory[OPS], value = (uint8_t)sim_between(&w->sim, 1, 255);
	int64_t r;

	memset(mem, value, BYTES);
	r = scene_end(w, begin_op(w, HONEST, f, mem, true));
	scene_check(w, r == BYTES, "a write of the other client is answered with %d", (int)r);
	memset(mem, 0, BYTES);
	r = scene_end(w, begin_op(w, HONEST, f, mem, false));
	scene_check(w, r == BYTES, "a read of the other client is answered with %d", (int)r);
	for (size_t i = 0; i < BYTES && !w->failed; i++)
		scene_check(w, mem[i] == value, "byte %zu of the other client is %d, not %d", i,
			    mem[i], value);
}

/* ---- the server ---- */

static uint64_t refusals(struct world *w, enum refusal why)
{
	return server_net(w)->refused[why];
}

/* Nothing of the attacker is left. */
static bool server_rests(void *arg)
{
	struct world *w = arg;
	const struct net *n = server_net(w);
	const struct rdma_device *d = n->rdma.device;
	uint32_t promised = 0;
	struct fabric *f;
	struct region *m;
	struct link *l;

	if (!peek_idle(w->targets[0].server) || !d || d->load || !list_empty(&n->closing_links))
		return false;
	list_for_each(l, &n->links, in_net)
		promised += l->rdma ? l->rdma->promised : 0;
	list_for_each(f, &w->targets[0].node->card->fabrics, link)
		list_for_each(m, &f->regions, link)
			if (m->rights & FABRIC_REMOTE_WRITE)
				return false;
	return d->n_wanted == promised &&
	       d->n_receives == MIN(d->n_wanted + d->n_lost, d->caps->receive_depth);
}

struct watch {
	struct world *w;
	struct link *l; /* of the attacker; referenced */
	uint64_t refused, began;
	struct cop *ops[OPS], *calls[CALLS];
	uint32_t n_calls;
};

static bool link_is_gone(void *arg)
{
	return ((struct watch *)arg)->l->state >= LINK_CLOSING;
}

static bool is_refused(void *arg)
{
	struct watch *x = arg;

	return refusals(x->w, evil.attack->why) > x->refused && link_is_gone(arg);
}

static bool has_ended(void *arg)
{
	struct watch *x = arg;

	for (int i = 0; i < OPS; i++)
		if (!x->ops[i]->finished)
			return false;
	return true;
}

/* ---- one attack ---- */

/* The attacker's next link has RDMA at once. */
static void link_by_rdma(struct world *w)
{
	struct peer *p = peer_of(w, EVIL);

	p->rdma_retry_at = 0;
	if (p->link && !link_has_rdma(p->link))
		link_close(p->link, -ECONNRESET);
	scene_lookup(w, EVIL, "none", NULL);
	scene_check(w, p->link && link_has_rdma(p->link),
		    "the link of the attacker has no RDMA: %s", p->rdma_why);
}

static void await_ending(struct world *w, struct watch *x, const struct attack *a)
{
	static const struct {
		bool (*so)(void *arg);
		const char *text;
	} by[] = { [CLOSES] = { is_refused, "the server tolerates it" },
		   [BREAKS] = { link_is_gone, "no card refuses it" },
		   [FAILS] = { has_ended, "its request does not end" },
		   [SUCCEEDS] = { has_ended, "its request does not end" } };

	/* meanwhile it sends other requests: a server must not take them for progress */
	for (int i = 0; i < PATIENCE_S && !sim_run(&w->sim, by[a->ending].so, x, NSEC_PER_SEC);
	     i++) {
		x->calls[x->n_calls] = scene_call(w, EVIL);
		client_getattr(x->calls[x->n_calls++], scene_root);
	}
	scene_check(w, by[a->ending].so(x), "%s: %s", a->name, by[a->ending].text);
	scene_check(w, w->sim.now - x->began < PATIENCE_S * NSEC_PER_SEC,
		    "%s: the server tolerates it for too long", a->name);
	scene_check(w, evil.n_struck, "%s: nothing was changed", a->name);
}

/* The attacker becomes honest, and its calls end. */
static void end_watch(struct world *w, struct watch *x)
{
	evil.attack = NULL;
	peer_of(w, EVIL)->rdma_retry_at = 0;
	for (uint32_t i = 0; i < x->n_calls; i++)
		scene_end(w, x->calls[i]);
	link_unref(x->l);
}

static void attack_once(struct world *w, const struct attack *a, struct cfile *bad,
			struct cfile *good)
{
	struct link *honest = peer_of(w, HONEST)->link;
	struct watch x = { .w = w, .began = w->sim.now };

	link_by_rdma(w);
	if (w->failed)
		return;
	world_note(w, 0, "attack: %s", a->name);
	x.l = peer_of(w, EVIL)->link;
	link_ref(x.l);
	x.refused = refusals(w, a->why);
	evil.attack = a;
	evil.n_struck = 0;
	for (int i = 0; i < OPS; i++)
		x.ops[i] = begin_op(w, EVIL, bad, memory[i], !a->reads);
	work_honestly(w, good);
	await_ending(w, &x, a);
	evil.attack = NULL;
	for (int i = 0; i < OPS && !w->failed; i++) {
		int64_t r = scene_end(w, x.ops[i]);

		scene_check(w, r == BYTES || a->ending != SUCCEEDS, "%s: answered with %d", a->name,
			    (int)r);
	}
	end_watch(w, &x);
	work_honestly(w, good);
	scene_until(w, server_rests, w, "the server keeps something of the attacker");
	scene_check(w, a->ending != CLOSES || server_net(w)->rdma.device->n_lost,
		    "%s: a receive that a dead sender may have taken is not replaced", a->name);
	scene_check(w, peer_of(w, HONEST)->link == honest && honest->state == LINK_UP,
		    "%s: the other client has lost its link", a->name);
}

static const struct attack messages[] = {
	{ "shorter than a head", is_too_short, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "without bytes", is_empty, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "longer than its head says", has_other_length, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "longer than allowed", is_longer_than_allowed, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "long, never complete", is_never_complete, 1, CLOSES, REFUSED_STALLED, false },
	{ "two beginnings", begins_twice, 2, CLOSES, REFUSED_PROTOCOL, false },
	{ "continues nothing", continues_nothing, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "continues too far", continues_too_far, 2, CLOSES, REFUSED_PROTOCOL, false },
	{ "continues with another length", continues_with_other_length, 2, CLOSES, REFUSED_PROTOCOL,
	  false },
	{ "wrong magic", has_wrong_magic, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "wrong kind", is_of_wrong_kind, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "garbage", is_garbage, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ 0 },
};

static const struct attack fetches[] = {
	{ "request without a key", names_request_without_key, 1, BREAKS, 0, false },
	{ "request too long", names_request_too_long, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "request of no bytes", names_request_of_no_bytes, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "request that wraps", names_request_that_wraps, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ 0 },
};

static const struct attack grants[] = {
	{ "immediate data of no grant", is_imm_of_no_grant, 1, CLOSES, REFUSED_PROTOCOL, false },
	{ "immediate data of another grant", is_imm_of_other_grant, 1, CLOSES, REFUSED_PROTOCOL,
	  false },
	{ "writes with a forged key", writes_with_a_forged_key, 1, BREAKS, 0, false },
	{ "writes a byte beyond the grant", writes_a_byte_beyond, 0, BREAKS, 0, false },
	{ "never writes", never_writes, 0, CLOSES, REFUSED_STALLED, false },
	{ "writes after the grant", writes_after_the_grant, 1, BREAKS, 0, false },
	{ 0 },
};

static const struct attack descriptors[] = {
	{ "unknown memory, written", names_unknown_memory, 1, BREAKS, 0, true },
	{ "unknown memory, read", names_unknown_memory, 1, FAILS, 0, false },
	{ "memory of another client, written", names_foreign_memory, 1, BREAKS, 0, true },
	{ "memory of another client, read", names_foreign_memory, 1, FAILS, 0, false },
	{ "memory outside, written", names_memory_outside, 1, BREAKS, 0, true },
	{ "wraps around, written", wraps_around, 1, FAILS, 0, true },
	{ "wraps around, read", wraps_around, 1, FAILS, 0, false },
	{ "empty segments, written", has_empty_segments, 1, FAILS, 0, true },
	{ "empty segments, read", has_empty_segments, 1, FAILS, 0, false },
	{ "overlaps, written", overlaps, 1, SUCCEEDS, 0, true },
	{ "overlaps, read", overlaps, 1, SUCCEEDS, 0, false },
	{ "other count, written", has_other_count, 1, FAILS, 0, true },
	{ "other count, read", has_other_count, 1, FAILS, 0, false },
	{ 0 },
};

/* ---- scenarios ---- */

/* What the card of the honest client has registered. */
static void find_foreign_memory(struct world *w)
{
	struct fabric *f;
	struct region *m;

	list_for_each(f, &w->actors[HONEST].node->card->fabrics, link)
		list_for_each(m, &f->regions, link)
			evil.foreign =
				(struct wire_rdma_segment){ (uintptr_t)m->addr, m->len, m->rkey };
	scene_check(w, evil.foreign.key, "the other client has registered nothing");
}

/* Both clients have cards; the second one never loses patience. */
static void prepare(struct world *w, struct cfile *files[2])
{
	struct client *c = w->actors[EVIL].client;

	scene_cards(w);
	memset(&evil, 0, sizeof(evil));
	evil.sim = &w->sim;
	evil.ops = sim_fabric_ops;
	evil.ops.post = evil_post;
	server_net(w)->id.timeout_ms = TIMEOUT_MS;
	w->actors[EVIL].node->env.fabric = &evil.ops;
	c->net->id.timeout_ms = FOREVER_S * 1000;
	c->timeout_ns = FOREVER_S * NSEC_PER_SEC;
	for (uint32_t i = 0; i < 2; i++) {
		client_set_mover(w->actors[i].client, METHOD_GATHER);
		files[i] = scene_open(w, i, i == EVIL ? "bad" : "good", O_CREAT | O_RDWR);
	}
	work_honestly(w, files[HONEST]);
	link_by_rdma(w);
	scene_check(w, w->failed || link_has_rdma(peer_of(w, HONEST)->link),
		    "the link of the other client has no RDMA");
	find_foreign_memory(w);
	scene_end(w, begin_op(w, EVIL, files[EVIL], memory[0], true));
}

static void finish(struct world *w, struct cfile *files[2])
{
	evil.attack = NULL;
	if (w->failed)
		return;
	w->actors[EVIL].node->env.fabric = &sim_fabric_ops;
	for (uint32_t i = 0; i < 2; i++)
		scene_close(w, i, files[i]);
	scene_met(w);
}

static void attack_all(struct world *w, const struct attack *a)
{
	struct cfile *files[2];

	prepare(w, files);
	for (; a->name && !w->failed; a++)
		attack_once(w, a, files[EVIL], files[HONEST]);
	finish(w, files);
}

static void messages_that_lie(struct world *w)
{
	attack_all(w, messages);
}

static void fetches_that_lie(struct world *w)
{
	attack_all(w, fetches);
}

static void grants_abused(struct world *w)
{
	attack_all(w, grants);
}

static void descriptors_that_lie(struct world *w)
{
	attack_all(w, descriptors);
}

/* ---- credits ---- */

/* The client gives no credits while it waits for many replies. */
static void no_credits(struct world *w)
{
	static const struct attack a = {
		"gives no credits", gives_no_credits, 0, CLOSES, REFUSED_STALLED, false
	};
	struct cfile *files[2];
	struct watch x = { .w = w, .began = w->sim.now };

	prepare(w, files);
	if (w->failed)
		return;
	x.l = peer_of(w, EVIL)->link;
	link_ref(x.l);
	x.refused = refusals(w, a.why);
	evil.attack = &a;
	for (; x.n_calls < CALLS - PATIENCE_S; x.n_calls++) {
		x.calls[x.n_calls] = scene_call(w, EVIL);
		client_getattr(x.calls[x.n_calls], scene_root);
	}
	work_honestly(w, files[HONEST]);
	await_ending(w, &x, &a);
	end_watch(w, &x);
	scene_until(w, server_rests, w, "the server keeps something of the attacker");
	work_honestly(w, files[HONEST]);
	finish(w, files);
}

struct flood {
	struct watch x;
	struct msg *m; /* empty */
	const struct fabric_mem *mem; /* of its slab */
};

/* Sends as many empty messages as its card takes, beside those of the client. */
static bool flood(void *arg)
{
	struct flood *f = arg;
	struct rdma_link *r = f->x.l->rdma;
	struct fabric_sge sge = { f->m->head, FRAME_HEAD, f->mem->lkey };
	struct fabric_wr wr = { .op = FABRIC_SEND,
				.is_signalled = true,
				.id = r->n_completed,
				.sge = &sge,
				.n_sge = 1 };

	if (!r->is_closing && r->qp->used < r->qp->sends / 2)
		sim_fabric_ops.post(r->qp, &wr, 1);
	return is_refused(&f->x);
}

/* The client sends more messages than it was granted. */
static void too_many_messages(struct world *w)
{
	static const struct attack a = { "floods", gives_no_credits, 0,
					 CLOSES,   REFUSED_PROTOCOL, false };
	struct cfile *files[2];
	struct flood f = { .x = { .w = w } };
	struct wire_frame_head h = { .kind = FRAME_CREDIT };

	prepare(w, files);
	if (w->failed)
		return;
	f.x.l = peer_of(w, EVIL)->link;
	link_ref(f.x.l);
	f.x.refused = refusals(w, a.why);
	f.m = msg_new(f.x.l->net, 0);
	f.mem = f.m ? rdma_message_mem(f.x.l->rdma->dev, f.m) : NULL;
	if (!f.mem)
		abort();
	frame_head_encode(f.m->head, &h);
	evil.attack = &a;
	scene_check(w, sim_run(&w->sim, flood, &f, NSEC_PER_SEC / 10),
		    "the server takes all messages");
	msg_free(f.m);
	end_watch(w, &f.x);
	work_honestly(w, files[HONEST]);
	scene_until(w, server_rests, w, "the server keeps something of the attacker");
	finish(w, files);
}

/* ---- who gets grants ---- */

static bool leaves_grants_empty(struct prey *p)
{
	bool writes = p->wr->op == FABRIC_WRITE || p->wr->op == FABRIC_WRITE_IMM;

	if (writes)
		p->wr->n_sge = 0;
	return writes;
}

/* A client that leaves its grants empty does not see what was in the server's buffers before. */
static void empty_grants(struct world *w)
{
	static const struct attack a = {
		"leaves grants empty", leaves_grants_empty, 0, SUCCEEDS, 0, false
	};
	struct cfile *files[2];
	int64_t r;

	prepare(w, files);
	work_honestly(w, files[HONEST]);
	evil.attack = &a;
	r = scene_end(w, begin_op(w, EVIL, files[EVIL], memory[0], true));
	scene_check(w, r == BYTES && evil.n_struck, "no grant was left empty: %d", (int)r);
	evil.attack = NULL;
	memset(memory[1], 1, BYTES);
	r = scene_end(w, begin_op(w, EVIL, files[EVIL], memory[1], false));
	scene_check(w, r == BYTES, "reading the file is answered with %d", (int)r);
	for (size_t i = 0; i < BYTES && !w->failed; i++)
		scene_check(w, !memory[1][i], "byte %zu was in the server's buffer: %d", i,
			    memory[1][i]);
	finish(w, files);
}

/* ---- attaching ---- */

enum body { VALID, CUT, TRAILING, RANDOM, TOO_LONG, REQUEST };

struct attach {
	const char *name;
	bool by_tcp; /* the link has no RDMA */
	enum link_state state; /* of the link when it sends the message */
	uint64_t tag; /* TAG_STREAM: by TCP in any case */
	enum body body;
};

static const struct attach attaches[] = {
	{ "attaches before the proofs", true, LINK_WAIT_CHALLENGE, TAG_STREAM, VALID },
	{ "attaches with a session", true, LINK_UP, TAG_STREAM, VALID },
	{ "attaches with a part of a message", true, LINK_UP, TAG_STREAM, CUT },
	{ "attaches with more than a message", true, LINK_UP, TAG_STREAM, TRAILING },
	{ "attaches with garbage", true, LINK_UP, TAG_STREAM, RANDOM },
	{ "attaches with a long message", true, LINK_UP, TAG_STREAM, TOO_LONG },
	{ "attaches twice", false, LINK_UP, TAG_STREAM, VALID },
	{ "attaches twice, by RDMA", false, LINK_UP, 0, VALID },
	{ "sends a request by TCP", false, LINK_UP, 0, REQUEST },
};

static struct msg *attach_message(struct net *n, enum body body)
{
	struct wire_attach a = { .qpn = 5, .psn = 6, .mtu = 4096, .read_depth = 16, .receives = 4 };
	struct msg *m = msg_encode(n, XDR_ANY(xdr_wire_attach), &a, NULL, NULL);

	if (!m)
		abort();
	if (body == CUT)
		m->len -= 4;
	if (body == TRAILING || body == TOO_LONG)
		memset(m->body + m->len, 0, HELLO_MAX);
	if (body == TRAILING)
		m->len += 4;
	if (body == TOO_LONG)
		m->len = HELLO_MAX + 1;
	if (body == RANDOM) {
		m->len = (uint32_t)sim_below(evil.sim, HELLO_MAX + 1);
		for (uint32_t i = 0; i < m->len; i++)
			m->body[i] = (uint8_t)sim_random(evil.sim);
	}
	return m;
}

struct dial {
	const struct peer *p;
	enum link_state state;
};

static bool has_come_to(void *arg)
{
	const struct dial *d = arg;

	return d->p->link && d->p->link->state == d->state;
}

static void attach_wrongly(struct world *w, const struct attach *a)
{
	static const struct attack any = { .name = "attaches", .why = REFUSED_PROTOCOL };
	struct dial d = { peer_of(w, EVIL), a->state };
	struct watch x = { .w = w, .began = w->sim.now };
	struct cop *c;

	world_note(w, 0, "attack: %s", a->name);
	if (d.p->link)
		link_close(d.p->link, -ECONNRESET);
	w->actors[EVIL].client->net->rdma.is_off = a->by_tcp;
	if (!a->by_tcp)
		link_by_rdma(w);
	c = scene_call(w, EVIL);
	client_getattr(c, scene_root);
	if (!scene_until(w, has_come_to, &d, "the attacker does not dial"))
		return;
	x.l = d.p->link;
	link_ref(x.l);
	x.refused = refusals(w, REFUSED_PROTOCOL);
	evil.attack = &any;
	if (a->body == REQUEST) { /* a good one */
		x.l->rdma->is_connected = false; /* as far as the attacker knows */
		x.calls[x.n_calls] = scene_call(w, EVIL);
		client_getattr(x.calls[x.n_calls++], scene_root);
	} else {
		link_send(x.l, FRAME_ATTACH, a->tag, attach_message(x.l->net, a->body));
	}
	scene_check(w, sim_run(&w->sim, is_refused, &x, 10 * NSEC_PER_SEC),
		    "%s: the server tolerates it", a->name);
	end_watch(w, &x);
	scene_end(w, c);
}

static void attaches_that_lie(struct world *w)
{
	struct link *honest;
	struct cfile *files[2];

	prepare(w, files);
	honest = w->failed ? NULL : peer_of(w, HONEST)->link;
	for (size_t i = 0; i < ARRAY_LEN(attaches) && !w->failed; i++) {
		attach_wrongly(w, &attaches[i]);
		work_honestly(w, files[HONEST]);
		scene_until(w, server_rests, w, "the server keeps something of the attacker");
		scene_check(w, peer_of(w, HONEST)->link == honest,
			    "%s: the other client has lost its link", attaches[i].name);
	}
	w->actors[EVIL].client->net->rdma.is_off = false;
	finish(w, files);
}

/* The address of the attacker's queue pair is wrong: nothing can be sent to it or read from it. */
static int make_elsewhere(struct fabric *f, uint32_t sends, void *owner, struct fabric_qp **out,
			  struct fabric_addr *ours)
{
	int r = sim_fabric_ops.qp_make(f, sends, owner, out, ours);

	for (size_t i = 0; i < sizeof(ours->gid); i++)
		ours->gid[i] = (uint8_t)sim_random(evil.sim);
	ours->qpn = (uint32_t)sim_random(evil.sim);
	ours->read_depth = (uint32_t)sim_random(evil.sim) % 2;
	return r;
}

static void attached_to_nothing(struct world *w)
{
	struct cfile *files[2];
	struct link *honest;
	int64_t r;

	prepare(w, files);
	if (w->failed)
		return;
	honest = peer_of(w, HONEST)->link;
	evil.ops.qp_make = make_elsewhere;
	link_close(peer_of(w, EVIL)->link, -ECONNRESET);
	r = scene_end(w, begin_op(w, EVIL, files[EVIL], memory[0], true));
	scene_check(w, r == BYTES, "a write is answered with %d", (int)r);
	scene_check(w, !link_has_rdma(peer_of(w, EVIL)->link), "an address leads nowhere");
	work_honestly(w, files[HONEST]);
	scene_until(w, server_rests, w, "the server keeps something of the attacker");
	scene_check(w, peer_of(w, HONEST)->link == honest, "the other client has lost its link");
	finish(w, files);
}

const struct scenario scenes_hostile[] = {
	{ "rdma-attaches-that-lie", attaches_that_lie, 1, 1, 2, false },
	{ "rdma-attached-to-nothing", attached_to_nothing, 1, 1, 2, false },
	{ "rdma-empty-grants", empty_grants, 1, 1, 2, false },
	{ "rdma-no-credits", no_credits, 1, 1, 2, false },
	{ "rdma-too-many-messages", too_many_messages, 1, 1, 2, false },
	{ "rdma-messages-that-lie", messages_that_lie, 1, 1, 2, false },
	{ "rdma-fetches-that-lie", fetches_that_lie, 1, 1, 2, false },
	{ "rdma-grants-abused", grants_abused, 1, 1, 2, false },
	{ "rdma-descriptors-that-lie", descriptors_that_lie, 1, 1, 2, false },
	{ 0 },
};
