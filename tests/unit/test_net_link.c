/* The handshake of a link: which peers are accepted, which are refused and why, and the cost of
 * unauthenticated links. */
#include "base/mac.h"
#include "toy_client.h"

/* ---- an accepted link; the test is the dialler ---- */

struct raw {
	struct link l;
	bool closed;
	uint32_t kind; /* kind of the last frame sent */
	uint8_t body[HELLO_MAX];
	uint32_t len;
};

static struct raw *raw_of(struct link *l)
{
	return container_of(l, struct raw, l);
}

static void raw_send(struct link *l, struct msg *m)
{
	struct raw *r = raw_of(l);
	struct wire_frame_head h;
	struct xdr x;

	xdr_decoder(&x, m->head, FRAME_HEAD, NULL);
	CHECK(xdr_wire_frame_head(&x, &h) && h.length == m->len && m->len <= HELLO_MAX);
	r->kind = h.kind;
	r->len = m->len;
	memcpy(r->body, m->body, m->len);
	msg_free(m);
}

static void raw_shut(struct link *l, int error, bool now)
{
	(void)error;
	(void)now;
	raw_of(l)->closed = true;
	link_shut(l);
}

static void raw_destroy(struct link *l)
{
	free(raw_of(l));
}

static const struct net_ops raw_ops = {
	.name = "raw", .send = raw_send, .shut = raw_shut, .destroy = raw_destroy
};

static struct raw *raw_new(struct net *n)
{
	struct raw *r = calloc(1, sizeof(*r));

	CHECK(r);
	link_init(&r->l, n, &raw_ops, NULL, 0);
	link_ref(&r->l);
	link_admit(&r->l);
	return r;
}

/* Checks the head first, as the backends do. */
static int raw_say(struct raw *r, uint32_t kind, xdr_any filter, void *v)
{
	struct msg *m = msg_encode(r->l.net, filter, v, NULL, NULL);
	struct wire_frame_head h = { .kind = kind, .length = m->len };
	int e = link_check_head(&r->l, &h);

	if (e) {
		msg_free(m);
		link_close(&r->l, e);
		return e;
	}
	return link_message(&r->l, kind, 0, m);
}

static struct wire_hello hello_of(const struct net *n)
{
	struct wire_hello h = { .version_min = SHEAF_VERSION,
				.version_max = SHEAF_VERSION,
				.role = LINK_CLIENT,
				.backends = BACKEND_TCP,
				.target = n->id.target,
				.host = wire_text("raw") };

	memcpy(h.fs_id, n->id.fs.b, sizeof(h.fs_id));
	memset(h.nonce, 7, sizeof(h.nonce));
	return h;
}

/* The errno of a refusal. */
static int raw_refused(const struct raw *r)
{
	struct wire_welcome w;
	struct xdr x;

	CHECK_EQ(r->kind, FRAME_WELCOME);
	xdr_decoder(&x, r->body, r->len, NULL);
	CHECK(xdr_wire_welcome(&x, &w));
	CHECK(w.status == 0 || w.reason.len > 0);
	return w.status;
}

static struct net_world w;
static struct toy_server srv;

static void begin(void)
{
	net_world_start(&w, false);
	toy_server_start(&srv, &w, "loop:s", net_id(1, 2));
}

static void end(void)
{
	toy_server_stop(&srv);
	net_world_end(&w);
}

static void raw_free(struct raw *r)
{
	link_close(&r->l, -ESHUTDOWN);
	link_unref(&r->l);
}

/* Sends a HELLO. Returns 0 if the server answers with a challenge, or the errno of its refusal. */
static int greet(const struct wire_hello *h)
{
	struct raw *r = raw_new(&srv.net);
	struct wire_hello copy = *h;
	int e = raw_say(r, FRAME_HELLO, XDR_ANY(xdr_wire_hello), &copy);

	if (!e) {
		CHECK_EQ(r->kind, FRAME_CHALLENGE);
		CHECK_EQ(r->l.state, LINK_WAIT_RESPONSE);
	} else {
		CHECK(r->closed);
		e = r->kind ? raw_refused(r) : EPROTO;
	}
	raw_free(r);
	CHECK_EQ(srv.net.n_unproven, 0);
	return e;
}

static void a_good_greeting_is_challenged(void)
{
	struct wire_hello h;

	begin();
	h = hello_of(&srv.net);
	CHECK_EQ(greet(&h), 0);
	h.version_max = SHEAF_VERSION + 2;
	CHECK_EQ(greet(&h), 0);
	h.role = LINK_SERVER;
	CHECK_EQ(greet(&h), 0);
	end();
}

static void the_wrong_file_system_target_version_or_role_is_turned_away(void)
{
	struct wire_hello h, good;

	begin();
	good = hello_of(&srv.net);
	h = good;
	h.fs_id[3] ^= 1;
	CHECK_EQ(greet(&h), EXDEV);
	h = good;
	h.target = 1;
	CHECK_EQ(greet(&h), EXDEV);
	h = good;
	h.version_min = h.version_max = SHEAF_VERSION + 1;
	CHECK_EQ(greet(&h), EPROTONOSUPPORT);
	h = good;
	h.version_min = h.version_max = 0;
	CHECK_EQ(greet(&h), EPROTONOSUPPORT);
	h = good;
	h.role = 3;
	CHECK_EQ(greet(&h), EPROTO);
	srv.net.id.has_server_key = false;
	h.role = LINK_SERVER;
	CHECK_EQ(greet(&h), EPROTO);
	end();
}

/* ---- cards ---- */

static uint32_t n_opens;

static int open_no_card(struct env *e, struct loop *l, const struct fabric_want *want,
			void (*ready)(void *arg), void *arg, struct fabric **out, char *why,
			size_t why_len)
{
	(void)e;
	(void)l;
	(void)want;
	(void)ready;
	(void)arg;
	(void)out;
	snprintf(why, why_len, "no such device");
	n_opens++;
	return -ENODEV;
}

static const struct fabric_ops no_card = { .open = open_no_card };

/* The link greets and proves its key. */
static void raw_join(struct raw *r, struct wire_hello *h)
{
	struct msg *hello = msg_encode(r->l.net, XDR_ANY(xdr_wire_hello), h, NULL, NULL);
	struct mac_part parts[] = { { "client", 6 },
				    { r->l.nonce, sizeof(r->l.nonce) },
				    { hello->body, hello->len },
				    { NULL, 0 } };
	struct wire_response proof;

	CHECK_EQ(raw_say(r, FRAME_HELLO, XDR_ANY(xdr_wire_hello), h), 0);
	mac_make(proof.mac, r->l.net->id.client_key, parts);
	CHECK_EQ(raw_say(r, FRAME_RESPONSE, XDR_ANY(xdr_wire_response), &proof), 0);
	msg_free(hello);
}

static void only_a_proof_makes_a_server_look_for_a_card(void)
{
	struct wire_hello h;
	struct raw *r;

	begin();
	w.env.fabric = &no_card;
	srv.net.hub = NULL; /* as with sockets */
	h = hello_of(&srv.net);
	h.backends |= BACKEND_RDMA;
	n_opens = 0;
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(greet(&h), 0);
		net_world_pass(&w, 100 * NSEC_PER_SEC);
	}
	CHECK_EQ(n_opens, 0);
	r = raw_new(&srv.net);
	raw_join(r, &h);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(n_opens, 1);
	net_world_pass(&w, 60 * NSEC_PER_SEC); /* and again while clients are there */
	CHECK_EQ(n_opens, 2);
	raw_free(r);
	net_world_pass(&w, 60 * NSEC_PER_SEC);
	CHECK_EQ(n_opens, 3);
	net_world_pass(&w, 600 * NSEC_PER_SEC);
	CHECK_EQ(n_opens, 3);
	end();
}

static void a_wrong_proof_is_refused_and_counted(void)
{
	struct wire_response resp = { { 0 } };
	struct wire_hello h;
	struct raw *r;

	begin();
	h = hello_of(&srv.net);
	r = raw_new(&srv.net);
	CHECK_EQ(raw_say(r, FRAME_HELLO, XDR_ANY(xdr_wire_hello), &h), 0);
	CHECK(raw_say(r, FRAME_RESPONSE, XDR_ANY(xdr_wire_response), &resp) != 0);
	CHECK(r->closed);
	CHECK_EQ(raw_refused(r), EKEYREJECTED);
	CHECK_EQ(srv.net.bad_links, 1);
	raw_free(r);
	/* nonces differ, so the proof of one link is not valid on another */
	r = raw_new(&srv.net);
	CHECK_EQ(raw_say(r, FRAME_HELLO, XDR_ANY(xdr_wire_hello), &h), 0);
	raw_free(r);
	end();
}

static void frames_out_of_turn_close_the_link(void)
{
	static const uint32_t kinds[] = { FRAME_CHALLENGE,
					  FRAME_RESPONSE,
					  FRAME_WELCOME,
					  FRAME_REQUEST,
					  FRAME_REPLY,
					  FRAME_DATA,
					  FRAME_PULL,
					  FRAME_CANCEL,
					  0,
					  10,
					  UINT32_MAX };

	begin();
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct raw *r = raw_new(&srv.net);
		struct wire_frame_head h = { .kind = kinds[i] };

		CHECK_EQ(link_check_head(&r->l, &h), -EPROTO);
		h = (struct wire_frame_head){ .kind = FRAME_HELLO, .length = HELLO_MAX + 1 };
		CHECK_EQ(link_check_head(&r->l, &h), -EPROTO);
		h.length = HELLO_MAX;
		CHECK_EQ(link_check_head(&r->l, &h), 0);
		raw_free(r);
	}
	end();
}

static void a_silent_stranger_has_five_seconds(void)
{
	struct raw *r;

	begin();
	r = raw_new(&srv.net);
	CHECK_EQ(srv.net.n_unproven, 1);
	net_world_pass(&w, 4900 * NSEC_PER_MSEC);
	CHECK(!r->closed);
	net_world_pass(&w, 200 * NSEC_PER_MSEC);
	CHECK(r->closed);
	CHECK_EQ(srv.net.n_unproven, 0);
	CHECK_EQ(srv.net.n_links, 0);
	raw_free(r);
	end();
}

static void of_too_many_strangers_the_oldest_goes(void)
{
	struct raw *r[300];

	begin();
	for (int i = 0; i < 300; i++)
		r[i] = raw_new(&srv.net);
	CHECK_EQ(srv.net.n_unproven, 256);
	for (int i = 0; i < 300; i++) {
		CHECK_EQ(r[i]->closed, i < 44);
		raw_free(r[i]);
	}
	CHECK_EQ(srv.net.n_unproven, 0);
	end();
}

static struct raw *raw_from(uint8_t last, uint8_t low)
{
	struct raw *r = calloc(1, sizeof(*r));

	CHECK(r);
	link_init(&r->l, &srv.net, &raw_ops, NULL, 0);
	r->l.from = (struct origin){ .addr = { 0x20, 1, [7] = last, [15] = low } };
	link_ref(&r->l);
	link_admit(&r->l);
	return r;
}

/* Addresses in one network of 64 bits count as one source. */
static void strangers_displace_those_of_the_largest_source_first(void)
{
	struct raw *few[3], *many[300];

	begin();
	for (int i = 0; i < 3; i++)
		few[i] = raw_from((uint8_t)(2 + i), 1);
	for (int i = 0; i < 300; i++)
		many[i] = raw_from(1, (uint8_t)i);
	CHECK_EQ(srv.net.n_unproven, 256);
	for (int i = 0; i < 3; i++) {
		CHECK(!few[i]->closed);
		raw_free(few[i]);
	}
	for (int i = 0; i < 300; i++) {
		CHECK_EQ(many[i]->closed, i < 47);
		raw_free(many[i]);
	}
	end();
}

/* A link that has sent a valid HELLO is displaced after the links that have sent nothing. */
static void a_handshake_that_is_under_way_goes_last(void)
{
	struct raw *r[300];
	struct wire_hello h;

	begin();
	r[0] = raw_new(&srv.net);
	h = hello_of(&srv.net);
	CHECK_EQ(raw_say(r[0], FRAME_HELLO, XDR_ANY(xdr_wire_hello), &h), 0);
	for (int i = 1; i < 300; i++)
		r[i] = raw_new(&srv.net);
	for (int i = 0; i < 300; i++) {
		CHECK_EQ(r[i]->closed, i > 0 && i < 45);
		raw_free(r[i]);
	}
	end();
}

/* ---- both ends ---- */

static void both_sides_prove_their_key_and_calls_go_through(void)
{
	struct toy_client c;
	struct toy_call a;

	begin();
	toy_client_start(&c, &w, "loop:s", net_id(1, 0), LINK_CLIENT);
	toy_call_start(&a, &c.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(srv.link->role, LINK_CLIENT);
	CHECK_EQ(srv.net.bad_links + c.net.bad_links, 0);
	CHECK_EQ(srv.net.n_unproven, 0);
	CHECK_EQ(c.peer.verifier, 99);
	CHECK_STR(srv.link->host, "test");
	toy_client_stop(&c);
	end();
}

/* Calls with a wrong identity: the call fails at once with this error. */
static void turned_away(struct net_identity id, uint32_t role, int error)
{
	struct toy_client c;
	struct toy_call a;
	uint64_t began;

	begin();
	began = w.now;
	toy_client_start(&c, &w, "loop:s", id, role);
	toy_call_start(&a, &c.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, error);
	CHECK(w.now - began < NSEC_PER_SEC);
	CHECK_EQ(srv.n_sessions, 0);
	toy_client_stop(&c);
	end();
}

static void a_wrong_key_or_cluster_fails_calls_at_once(void)
{
	struct net_identity id = net_id(1, 0);

	turned_away(net_id(9, 0), LINK_CLIENT, -EKEYREJECTED);
	id.fs.b[0] ^= 1;
	turned_away(id, LINK_CLIENT, -EREMCHG);
}

static void a_server_proves_the_server_key(void)
{
	struct toy_client c;
	struct toy_call a;

	turned_away(net_id(1, 3), LINK_SERVER, -EKEYREJECTED);
	turned_away(net_id(1, 0), LINK_SERVER, -EKEYREJECTED);
	begin();
	toy_client_start(&c, &w, "loop:s", net_id(9, 2),
			 LINK_SERVER); /* the client key does not matter */
	toy_call_start(&a, &c.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(srv.link->role, LINK_SERVER);
	toy_client_stop(&c);
	end();
}

/* ---- named keys ---- */

static struct client_key named[2];
static struct conf auth_conf;

/* A server with the keys "one" (for uid 1000) and "two" (not loaded). */
static void begin_named(void)
{
	begin();
	named[0] = (struct client_key){ .name = "one",
					.role = { .uid = 1000, .n_gids = 1, .gids = { 100 } },
					.loaded = true };
	memset(named[0].secret, 5, KEY_BYTES);
	named[1] = (struct client_key){ .name = "two", .role = { .any = true } };
	auth_conf = (struct conf){ .n_keys = 2, .keys = named };
	srv.net.id.named_keys = &auth_conf;
}

static struct net_identity named_id(const char *name, uint8_t key)
{
	struct net_identity id = net_id(key, 0);

	strcpy(id.key_name, name);
	return id;
}

/* The result of a call by a client with this key. */
static int call_with(struct toy_client *c, const char *name, uint8_t key)
{
	struct toy_call a;

	toy_client_start(c, &w, "loop:s", named_id(name, key), LINK_CLIENT);
	toy_call_start(&a, &c->peer, OP_PING, false);
	net_world_until(&w, &a.over);
	return a.error;
}

static void a_named_key_is_accepted_with_its_role(void)
{
	struct toy_client c;

	begin_named();
	CHECK_EQ(call_with(&c, "one", 5), 0);
	CHECK_STR(srv.link->key, "one");
	CHECK(!srv.link->acts_for.any);
	CHECK_EQ(srv.link->acts_for.uid, 1000);
	toy_client_stop(&c);
	CHECK_EQ(call_with(&c, "", 1), 0);
	CHECK_STR(srv.link->key, "");
	CHECK(srv.link->acts_for.any);
	toy_client_stop(&c);
	end();
}

static void links_of_a_key_of_one_user_are_bounded(void)
{
	struct toy_client c[4];
	struct toy_call late;

	begin_named();
	srv.net.limits.most[LIMIT_LINKS] = 16; /* 2 per key */
	CHECK_EQ(call_with(&c[0], "one", 5), 0);
	CHECK_EQ(call_with(&c[1], "one", 5), 0);
	/* fails at its deadline, after several attempts */
	CHECK_EQ(call_with(&c[2], "one", 5), -EUSERS);
	CHECK(srv.net.refused[REFUSED_LIMIT] > 1);
	CHECK_EQ(call_with(&c[3], "", 1), 0); /* another key is accepted */
	toy_call_start(&late, &c[2].peer, OP_PING, false);
	toy_client_stop(&c[0]);
	net_world_until(&w, &late.over); /* a link is free again */
	CHECK_EQ(late.error, 0);
	for (int i = 1; i < 4; i++)
		toy_client_stop(&c[i]);
	net_world_pass(&w, NSEC_PER_SEC / 10);
	CHECK_EQ(srv.net.limits.used[LIMIT_LINKS], 0);
	end();
}

static void names_and_keys_that_do_not_match_are_refused(void)
{
	static const struct {
		const char *name;
		uint8_t key;
	} bad[] = { { "one", 1 }, { "", 5 }, { "three", 5 }, { "two", 0 } };
	struct toy_client c;

	begin_named();
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK_EQ(call_with(&c, bad[i].name, bad[i].key), -EKEYREJECTED);
		toy_client_stop(&c);
		net_world_pass(&w, NSEC_PER_SEC / 10);
		CHECK(srv.net.refused[REFUSED_KEY] >= i + 1);
	}
	CHECK_EQ(srv.n_sessions, 0);
	end();
}

static void a_key_that_is_taken_back_or_changed_closes_its_links(void)
{
	struct toy_client one, other;

	begin_named();
	CHECK_EQ(call_with(&one, "one", 5), 0);
	CHECK_EQ(call_with(&other, "", 1), 0);
	net_recheck_keys(&srv.net); /* nothing has changed */
	net_world_pass(&w, NSEC_PER_MSEC);
	CHECK_EQ(srv.net.n_links, 2);
	named[0].role.uid = 1001;
	net_recheck_keys(&srv.net);
	CHECK_EQ(srv.net.refused[REFUSED_REVOKED], 1);
	CHECK_EQ(srv.net.n_links, 1);
	net_world_pass(&w, NSEC_PER_SEC); /* the client reconnects in its new role */
	CHECK_EQ(srv.net.n_links, 2);
	CHECK_EQ(srv.link->acts_for.uid, 1001);
	named[0].secret[0] ^= 1;
	net_recheck_keys(&srv.net);
	CHECK_EQ(srv.net.refused[REFUSED_REVOKED], 2);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(srv.net.n_links, 1);
	srv.net.id.client_key[0] ^= 1;
	net_recheck_keys(&srv.net);
	CHECK_EQ(srv.net.refused[REFUSED_REVOKED], 3);
	toy_client_stop(&one);
	toy_client_stop(&other);
	end();
}

static void the_log_of_refusals_is_bounded_and_the_count_is_not(void)
{
	static struct raw *r[200];

	begin();
	for (int i = 0; i < 200; i++) {
		r[i] = raw_new(&srv.net);
		for (int k = 0; k < 3; k++)
			link_refused(&r[i]->l, REFUSED_FORGED, "number %d", i);
	}
	CHECK_EQ(srv.net.refused[REFUSED_FORGED], 600);
	/* logged once per link, at most ten times a minute */
	CHECK_EQ(srv.net.refusal_logs[REFUSED_FORGED].n_logged, 10);
	CHECK_EQ(srv.net.refusal_logs[REFUSED_FORGED].n_suppressed, 3 * 190);
	net_world_pass(&w, 61 * NSEC_PER_SEC);
	link_refused(&r[20]->l, REFUSED_FORGED, "later");
	CHECK_EQ(srv.net.refusal_logs[REFUSED_FORGED].n_logged, 1);
	CHECK_EQ(srv.net.refusal_logs[REFUSED_FORGED].n_suppressed, 0);
	for (int i = 0; i < 200; i++)
		raw_free(r[i]);
	end();
}

/* ---- a dialler; the test is the acceptor ---- */

static void a_refusal_with_a_strange_status_is_a_broken_rule(void)
{
	static const int32_t strange[] = { INT32_MIN, -1, 4096, INT32_MAX };

	for (size_t i = 0; i < ARRAY_LEN(strange); i++) {
		struct wire_welcome wl = { .status = strange[i], .reason = wire_text("because") };
		struct toy_client c;
		struct raw *r = calloc(1, sizeof(*r));

		CHECK(r);
		net_world_start(&w, false);
		toy_client_start(&c, &w, "loop:s", net_id(1, 0), LINK_CLIENT);
		link_init(&r->l, &c.net, &raw_ops, &c.peer, 0);
		link_ref(&r->l);
		link_connected(&r->l);
		CHECK_EQ(r->kind, FRAME_HELLO);
		raw_say(r, FRAME_WELCOME, XDR_ANY(xdr_wire_welcome), &wl);
		CHECK(r->closed);
		CHECK_EQ(c.net.bad_links, 1);
		raw_free(r);
		toy_client_stop(&c);
		net_world_end(&w);
	}
}

static void an_impostor_of_a_server_is_found_out(void)
{
	struct wire_challenge ch = { .version = SHEAF_VERSION };
	struct wire_welcome wl = { .verifier = 1 };
	struct toy_client c;
	struct raw *r = calloc(1, sizeof(*r));

	CHECK(r);
	net_world_start(&w, false);
	toy_client_start(&c, &w, "loop:s", net_id(1, 0), LINK_CLIENT);
	link_init(&r->l, &c.net, &raw_ops, &c.peer, 0);
	link_ref(&r->l);
	link_connected(&r->l);
	raw_say(r, FRAME_CHALLENGE, XDR_ANY(xdr_wire_challenge), &ch);
	CHECK(r->closed);
	CHECK_EQ(r->kind, FRAME_HELLO); /* the dialler has not sent its proof */
	raw_free(r);
	/* a WELCOME before the challenge is not accepted */
	r = calloc(1, sizeof(*r));
	CHECK(r);
	link_init(&r->l, &c.net, &raw_ops, &c.peer, 0);
	link_ref(&r->l);
	link_connected(&r->l);
	raw_say(r, FRAME_WELCOME, XDR_ANY(xdr_wire_welcome), &wl);
	CHECK(r->closed);
	raw_free(r);
	toy_client_stop(&c);
	net_world_end(&w);
}

TEST_MAIN(TEST(a_good_greeting_is_challenged),
	  TEST(the_wrong_file_system_target_version_or_role_is_turned_away),
	  TEST(only_a_proof_makes_a_server_look_for_a_card),
	  TEST(a_wrong_proof_is_refused_and_counted), TEST(frames_out_of_turn_close_the_link),
	  TEST(a_silent_stranger_has_five_seconds), TEST(of_too_many_strangers_the_oldest_goes),
	  TEST(strangers_displace_those_of_the_largest_source_first),
	  TEST(a_handshake_that_is_under_way_goes_last),
	  TEST(links_of_a_key_of_one_user_are_bounded),
	  TEST(both_sides_prove_their_key_and_calls_go_through),
	  TEST(a_wrong_key_or_cluster_fails_calls_at_once), TEST(a_server_proves_the_server_key),
	  TEST(a_named_key_is_accepted_with_its_role),
	  TEST(names_and_keys_that_do_not_match_are_refused),
	  TEST(a_key_that_is_taken_back_or_changed_closes_its_links),
	  TEST(the_log_of_refusals_is_bounded_and_the_count_is_not),
	  TEST(a_refusal_with_a_strange_status_is_a_broken_rule),
	  TEST(an_impostor_of_a_server_is_found_out))
