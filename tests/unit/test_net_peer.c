/* The client's side of a session: calls over links that break, and servers that lose sessions or do
 * not answer. */
#include <math.h>

#include "toy_client.h"

static struct net_world w;
static struct toy_server srv;
static struct toy_client cli;

static void begin(void)
{
	net_world_start(&w, false);
	toy_server_start(&srv, &w, "loop:s", net_id(1, 2));
	toy_client_start(&cli, &w, "loop:s", net_id(1, 0), LINK_CLIENT);
}

static void end(void)
{
	toy_client_stop(&cli);
	toy_server_stop(&srv);
	net_world_end(&w);
}

/* Connects and completes one call. */
static void warm_up(void)
{
	struct toy_call a;

	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(cli.peer.state, PEER_UP);
	srv.n_seen = 0;
}

static void settle(void)
{
	net_world_pass(&w, NSEC_PER_MSEC);
}

static void calls_take_slots_and_number_them(void)
{
	struct toy_call a[3];

	begin();
	warm_up();
	for (int i = 0; i < 3; i++)
		toy_call_start(&a[i], &cli.peer, OP_PING, false);
	for (int i = 0; i < 3; i++)
		net_world_until(&w, &a[i].over);
	CHECK_EQ(srv.n_seen, 3);
	CHECK_EQ(srv.seen[0].tag, 2); /* the second request on slot 0 */
	CHECK_EQ(srv.seen[1].tag, UINT64_C(1) << 32 | 1);
	CHECK_EQ(srv.seen[2].tag, UINT64_C(2) << 32 | 1);
	CHECK_EQ(srv.seen[0].head.session, 1);
	end();
}

static void ask_later(struct toy_call *a)
{
	toy_call_init(a, &cli.peer, OP_PING, 10 * NSEC_PER_SEC);
	a->call.is_deferred = true;
	peer_call(&cli.peer, &a->call, &a->q);
}

static void a_deferred_call_is_sent_with_the_next_or_after_a_delay(void)
{
	struct toy_call a[3];

	begin();
	warm_up();
	ask_later(&a[0]);
	ask_later(&a[1]);
	net_world_pass(&w, NSEC_PER_MSEC / 4);
	CHECK_EQ(srv.n_seen, 0);
	toy_call_start(&a[2], &cli.peer, OP_PING, false);
	net_world_until(&w, &a[2].over);
	CHECK_EQ(srv.n_seen, 3);
	CHECK_EQ(srv.seen[0].tag, 2); /* sent in order */
	CHECK(a[0].over && a[1].over);
	settle(); /* the deferral time of the first call has passed */
	ask_later(&a[0]);
	net_world_pass(&w, NSEC_PER_MSEC);
	CHECK(a[0].over && !a[0].error);
	end();
}

static void a_deferred_call_outlives_a_broken_link_and_ends_with_its_peer(void)
{
	struct toy_call a;

	begin();
	warm_up();
	ask_later(&a);
	link_close(cli.peer.link, -ECONNRESET);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	ask_later(&a);
	peer_halt(&cli.peer);
	net_world_pass(&w, NSEC_PER_MSEC);
	CHECK_EQ(a.error, -ESHUTDOWN);
	CHECK(!cli.peer.defer_timer.when);
	end();
}

static void calls_beyond_the_slots_wait_in_order(void)
{
	static struct toy_call a[SESSION_SLOTS + 6];
	unsigned last = 0;

	begin();
	warm_up();
	srv.hold = true;
	for (unsigned i = 0; i < ARRAY_LEN(a); i++) {
		toy_call_start(&a[i], &cli.peer, OP_PING, false);
		a[i].call.trace = i;
	}
	settle();
	CHECK_EQ(srv.n_seen, SESSION_SLOTS - 1); /* the last slot is reserved for claims */
	srv.hold = false;
	toy_server_release(&srv, 0);
	for (unsigned i = 0; i < ARRAY_LEN(a); i++) {
		net_world_until(&w, &a[i].over);
		CHECK_EQ(a[i].error, 0);
		CHECK(a[i].order > last);
		last = a[i].order;
	}
	CHECK_EQ(srv.n_seen, ARRAY_LEN(a));
	end();
}

static void a_call_is_repeated_over_a_new_link_with_the_same_numbers(void)
{
	struct toy_call a;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_start(&a, &cli.peer, OP_MKDIR, true);
	settle();
	CHECK_EQ(srv.n_seen, 1);
	srv.hold = false;
	link_close(srv.link, -ECONNRESET);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(srv.n_seen, 2);
	CHECK_EQ(srv.seen[1].tag, srv.seen[0].tag);
	CHECK_EQ(srv.seen[1].head.session, srv.seen[0].head.session);
	CHECK_EQ(srv.n_sessions, 2);
	CHECK_EQ(cli.peer.n_resent, 1);
	end();
}

static void a_reply_of_the_old_link_is_not_heard(void)
{
	struct toy_call a;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_start(&a, &cli.peer, OP_MKDIR, true);
	settle();
	link_close(srv.link, -ECONNRESET);
	toy_server_release(&srv, EACCES);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK(!a.over);
	toy_server_release(&srv, 0);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	end();
}

static void a_lost_session_fails_changes_and_repeats_the_rest(void)
{
	struct toy_call change, read;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_start(&change, &cli.peer, OP_MKDIR, true);
	toy_call_start(&read, &cli.peer, OP_GETATTR, false);
	settle();
	CHECK_EQ(srv.n_seen, 2);
	srv.hold = false;
	srv.forget = true;
	link_close(srv.link, -ECONNRESET);
	net_world_until(&w, &change.over);
	net_world_until(&w, &read.over);
	CHECK_EQ(change.error, -EIO);
	CHECK_EQ(read.error, 0);
	CHECK_EQ(srv.n_seen, 3);
	CHECK_EQ(srv.seen[2].head.op, OP_GETATTR);
	CHECK_EQ(srv.seen[2].head.session, 2);
	CHECK_EQ(srv.seen[2].head.sequence, 1);
	end();
}

static void a_server_that_does_not_know_the_session_gets_a_new_one(void)
{
	struct toy_call a;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_start(&a, &cli.peer, OP_GETATTR, false);
	settle();
	srv.hold = false;
	srv.seen[0].held = false;
	toy_server_reply(&srv, srv.seen[0].link, srv.seen[0].tag, ESTALE, 0, NULL, NULL);
	link_unref(srv.seen[0].link);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(cli.peer.session, 2);
	end();
}

/* As after a change of the server key: the secret is not valid any more. */
static void a_session_that_is_denied_is_made_anew(void)
{
	struct toy_call a;

	begin();
	warm_up();
	srv.deny = true;
	link_close(cli.peer.link, -ECONNRESET);
	toy_call_start(&a, &cli.peer, OP_GETATTR, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(cli.peer.session, 2);
	end();
}

static unsigned n_restarts, n_lost;

static void restarted(struct peer *p, bool lost)
{
	(void)p;
	n_restarts++;
	n_lost += lost;
}

static void a_restart_of_the_server_is_reported(void)
{
	struct toy_call a;

	begin();
	cli.peer.on_restart = restarted;
	warm_up();
	n_restarts = n_lost = 0;
	link_close(srv.link, -ECONNRESET);
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(n_restarts, 0); /* only a link broke */
	srv.boot++;
	link_close(srv.link, -ECONNRESET);
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(n_restarts, 1);
	CHECK_EQ(n_lost, 0);
	srv.forget = true;
	link_close(srv.link, -ECONNRESET);
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(n_restarts, 2);
	CHECK_EQ(n_lost, 1);
	end();
}

static void a_call_ends_at_its_deadline_and_is_cancelled(void)
{
	struct toy_call a, b;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_init(&a, &cli.peer, OP_PING, NSEC_PER_SEC);
	peer_call(&cli.peer, &a.call, &a.q);
	net_world_pass(&w, 900 * NSEC_PER_MSEC);
	CHECK(!a.over);
	net_world_pass(&w, 200 * NSEC_PER_MSEC);
	CHECK(a.over);
	CHECK_EQ(a.error, -ETIMEDOUT);
	CHECK_EQ(srv.n_cancels, 1);
	CHECK_EQ(srv.cancelled, srv.seen[0].tag);
	/* the slot stays busy until the reply comes */
	CHECK(cli.peer.slots[0].busy);
	toy_server_release(&srv, 0);
	settle();
	CHECK(!cli.peer.slots[0].busy);
	srv.hold = false;
	toy_call_start(&b, &cli.peer, OP_PING, false);
	net_world_until(&w, &b.over);
	CHECK_EQ(b.error, 0);
	end();
}

static void a_cancelled_call_ends_at_once(void)
{
	struct toy_call sent, queued;

	begin();
	toy_call_start(&queued, &cli.peer, OP_PING, false); /* the peer is not even dialled */
	peer_cancel(&queued.call, -EINTR);
	net_world_until(&w, &queued.over);
	CHECK_EQ(queued.error, -EINTR);
	warm_up();
	srv.hold = true;
	toy_call_start(&sent, &cli.peer, OP_PING, false);
	settle();
	peer_cancel(&sent.call, -EINTR);
	peer_cancel(&sent.call, -EINTR); /* cancelling twice is harmless */
	net_world_until(&w, &sent.over);
	CHECK_EQ(sent.error, -EINTR);
	settle();
	CHECK_EQ(srv.n_cancels, 1);
	link_close(srv.link, -ECONNRESET); /* no call is retransmitted */
	toy_server_drop(&srv);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(srv.n_seen, 0);
	CHECK(!cli.peer.slots[0].busy);
	end();
}

static void an_absent_server_is_an_error_after_the_deadline(void)
{
	struct toy_call a;

	net_world_start(&w, false);
	toy_client_start(&cli, &w, "loop:nobody", net_id(1, 0), LINK_CLIENT);
	toy_call_init(&a, &cli.peer, OP_PING, 3 * NSEC_PER_SEC);
	peer_call(&cli.peer, &a.call, &a.q);
	net_world_pass(&w, 2 * NSEC_PER_SEC);
	CHECK(!a.over);
	net_world_pass(&w, 2 * NSEC_PER_SEC);
	CHECK(a.over);
	CHECK_EQ(a.error, -ECONNREFUSED);
	toy_client_stop(&cli);
	net_world_end(&w);
}

static void a_server_that_comes_later_gets_the_call(void)
{
	struct toy_call a;

	net_world_start(&w, false);
	toy_client_start(&cli, &w, "loop:s", net_id(1, 0), LINK_CLIENT);
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_pass(&w, 3 * NSEC_PER_SEC);
	CHECK(!a.over);
	toy_server_start(&srv, &w, "loop:s", net_id(1, 2));
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	end();
}

static void a_server_that_gives_no_session_is_tried_again(void)
{
	struct toy_call a;

	begin();
	srv.mute = true;
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_pass(&w, 4900 * NSEC_PER_MSEC); /* the timeout of the cluster file is 5 s */
	CHECK_EQ(srv.n_downs, 0);
	srv.mute = false;
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(srv.n_downs, 1);
	end();
}

static void an_idle_peer_renews_its_lease(void)
{
	begin();
	warm_up();
	net_world_pass(&w, 35 * NSEC_PER_SEC);
	CHECK(srv.n_seen >= 3 && srv.n_seen <= 4);
	CHECK_EQ(srv.seen[0].head.op, OP_PING);
	end();
}

/* ---- peers that halt ---- */

static void a_halted_peer_ends_its_calls_and_takes_none(void)
{
	struct toy_call sent, front, after;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_start(&sent, &cli.peer, OP_MKDIR, true);
	toy_call_init(&front, &cli.peer, OP_RECLAIM, NSEC_PER_SEC);
	front.call.front = true;
	peer_call(&cli.peer, &front.call, &front.q);
	settle();
	CHECK_EQ(srv.n_seen, 2);
	peer_halt(&cli.peer);
	net_world_until(&w, &sent.over);
	net_world_until(&w, &front.over);
	CHECK_EQ(sent.error, -ESHUTDOWN);
	CHECK_EQ(front.error, -ESHUTDOWN);
	toy_call_init(&after, &cli.peer, OP_RECLAIM, NSEC_PER_SEC);
	after.call.front = true;
	peer_call(&cli.peer, &after.call, &after.q);
	net_world_until(&w, &after.over);
	CHECK_EQ(after.error, -ESHUTDOWN);
	net_world_pass(&w, 40 * NSEC_PER_SEC); /* no lease renewal is sent */
	CHECK_EQ(srv.n_seen, 2);
	CHECK_EQ(srv.n_sessions, 1);
	CHECK_EQ(cli.peer.n_front, 0);
	end();
}

static void a_halted_peer_keeps_its_session_and_numbers(void)
{
	struct toy_call a;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_start(&a, &cli.peer, OP_MKDIR, true);
	settle();
	peer_halt(&cli.peer);
	net_world_until(&w, &a.over);
	toy_server_drop(&srv);
	srv.hold = false;
	peer_resume(&cli.peer);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(cli.peer.state, PEER_UP); /* although there is no call */
	CHECK_EQ(srv.n_sessions, 2);
	CHECK_EQ(srv.session, 1);
	CHECK_EQ(srv.n_seen, 0); /* a cancelled call is not retransmitted */
	toy_call_start(&a, &cli.peer, OP_MKDIR, true);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(srv.seen[0].tag, 3); /* after the first call and the cancelled one */
	CHECK_EQ(srv.seen[0].head.session, 1);
	end();
}

static void claims_without_an_answer_are_asked_for_again(void)
{
	begin();
	cli.peer.on_restart = restarted;
	warm_up();
	n_restarts = n_lost = 0;
	peer_halt(&cli.peer);
	settle();
	cli.peer.unclaimed = true;
	peer_resume(&cli.peer);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(n_restarts, 1);
	CHECK_EQ(n_lost, 0);
	peer_halt(&cli.peer);
	settle();
	peer_resume(&cli.peer);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(n_restarts, 1);
	end();
}

/* A peer that never had a session is not dialled. */
static void a_peer_without_a_session_waits_for_a_call(void)
{
	begin();
	peer_halt(&cli.peer);
	peer_resume(&cli.peer);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(cli.peer.state, PEER_IDLE);
	CHECK_EQ(srv.n_sessions, 0);
	warm_up();
	end();
}

/* ---- servers that lie ---- */

static void lie(uint64_t tag, int status)
{
	struct toy_call a;
	unsigned downs;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_start(&a, &cli.peer, OP_GETATTR, false);
	settle();
	downs = srv.n_downs;
	toy_server_zeros(&srv, srv.link, tag, OP_GETATTR, status);
	settle();
	/* the link is closed, and the call continues on another link */
	CHECK_EQ(srv.n_downs, downs + 1);
	CHECK_EQ(cli.net.bad_links, 1);
	CHECK(!a.over);
	srv.hold = false;
	toy_server_drop(&srv);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	end();
}

static void a_reply_to_nothing_closes_the_link(void)
{
	lie(1, 0); /* slot 0, an older sequence */
	lie(99, 0); /* slot 0, a newer one */
	lie(UINT64_C(1) << 32 | 1, 0); /* a slot without a pending call */
	lie(UINT64_C(64) << 32 | 1, 0); /* an invalid slot */
	lie(UINT64_C(0xfffffffe) << 32 | 1, 0);
}

static void a_reply_with_a_strange_status_closes_the_link(void)
{
	lie(2, -1);
	lie(2, 4096);
	lie(2, INT32_MIN);
}

static void a_result_that_does_not_decode_ends_call_and_link(void)
{
	struct wire_attr_res much = { { 0 } };
	struct toy_call a;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_start(&a, &cli.peer, OP_GETATTR, false);
	settle();
	toy_server_reply(&srv, srv.link, srv.seen[0].tag, 0, SESSION_SLOTS,
			 XDR_ANY(xdr_wire_attr_res), &much);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, -EBADMSG);
	CHECK_EQ(cli.net.bad_links, 1);
	end();
}

/* ---- the map ---- */

static struct toy_call news;
static unsigned n_news;

static void map_is_new(struct peer *p)
{
	n_news++;
	toy_call_init(&news, p, OP_MAP, 10 * NSEC_PER_SEC);
	news.call.front = true;
	peer_call(p, &news.call, &news.q);
}

static void calls_with_an_older_map_go_again_behind_the_news_of_it(void)
{
	struct toy_call a[3], later;
	uint64_t tags[3];

	begin();
	n_news = 0;
	cli.peer.on_map_change = map_is_new;
	warm_up();
	CHECK_EQ(n_news, 0); /* the cluster file is version 1 */
	srv.hold = true;
	for (int i = 0; i < 3; i++)
		toy_call_start(&a[i], &cli.peer, OP_MKDIR, true);
	settle();
	CHECK_EQ(srv.n_seen, 3);
	CHECK_EQ(srv.seen[0].head.map_version, 1);
	for (int i = 0; i < 3; i++)
		tags[i] = srv.seen[i].tag;
	srv.net.id.map_version = 2;
	toy_server_release(&srv, EREMCHG);
	toy_server_drop(&srv);
	settle();
	CHECK_EQ(n_news, 1);
	CHECK_EQ(srv.n_seen, 1); /* only the request for the map */
	CHECK_EQ(srv.seen[0].head.op, OP_MAP);
	CHECK_EQ(srv.seen[0].head.map_version, 2);
	toy_call_start(&later, &cli.peer, OP_PING, false);
	settle();
	CHECK_EQ(srv.n_seen, 1);
	toy_server_release(&srv, 0);
	toy_server_drop(&srv);
	settle();
	CHECK(news.over);
	CHECK_EQ(srv.n_seen, 4);
	for (int i = 0; i < 3; i++) { /* with the old numbers: they may have been executed */
		CHECK_EQ(srv.seen[i].tag, tags[i]);
		CHECK_EQ(srv.seen[i].head.map_version, 2);
		CHECK(!a[i].over);
	}
	toy_server_release(&srv, 0);
	for (int i = 0; i < 3; i++) {
		net_world_until(&w, &a[i].over);
		CHECK_EQ(a[i].error, 0);
	}
	net_world_until(&w, &later.over);
	end();
}

/* A claim is in front of all other calls: when it is refused for the map, no other call brings it
 * back. */
static void a_claim_with_an_older_map_is_repeated(void)
{
	struct toy_call claim;

	begin();
	n_news = 0;
	cli.peer.on_map_change = map_is_new;
	warm_up();
	srv.hold = true;
	toy_call_init(&claim, &cli.peer, OP_RECLAIM, 10 * NSEC_PER_SEC);
	claim.call.front = true;
	peer_call(&cli.peer, &claim.call, &claim.q);
	settle();
	CHECK_EQ(srv.n_seen, 1);
	srv.net.id.map_version = 2;
	toy_server_release(&srv, EREMCHG);
	toy_server_drop(&srv);
	settle();
	CHECK_EQ(n_news, 1);
	CHECK_EQ(srv.n_seen, 2); /* the claim and the question for the map */
	toy_server_release(&srv, 0);
	net_world_until(&w, &claim.over);
	CHECK_EQ(claim.error, 0);
	net_world_until(&w, &news.over);
	end();
}

static void a_server_that_refuses_for_ever_is_believed(void)
{
	struct toy_call a;

	begin();
	warm_up();
	srv.status = EREMCHG; /* with a map version that the client has */
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, -EREMCHG);
	end();
}

/* EBUSY without slots: the server refused the request and did not execute it. */
static void calls_that_a_server_has_no_room_for_go_again(void)
{
	struct toy_call a[2];
	uint64_t tags[2];

	begin();
	warm_up();
	srv.hold = true;
	for (int i = 0; i < 2; i++)
		toy_call_start(&a[i], &cli.peer, OP_MKDIR, true);
	settle();
	for (int i = 0; i < 2; i++)
		tags[i] = srv.seen[i].tag;
	for (int round = 0; round < 5; round++) {
		CHECK_EQ(srv.n_seen, 2);
		for (int i = 0; i < 2; i++) {
			CHECK_EQ(srv.seen[i].tag, tags[i]); /* the same numbers in every attempt */
			toy_server_reply(&srv, srv.seen[i].link, tags[i], EBUSY, 0, NULL, NULL);
		}
		toy_server_drop(&srv);
		net_world_pass(&w, NSEC_PER_SEC / 5);
		CHECK(!a[0].over && !a[1].over);
		CHECK(cli.peer.n_slots <= BUSY_SLOTS);
	}
	toy_server_release(&srv, 0);
	for (int i = 0; i < 2; i++) {
		net_world_until(&w, &a[i].over);
		CHECK_EQ(a[i].error, 0);
	}
	CHECK_EQ(cli.peer.n_slots, SESSION_SLOTS);
	end();
}

static void a_call_without_room_ends_with_its_deadline_or_its_peer(void)
{
	struct toy_call a, b;

	begin();
	warm_up();
	srv.hold = true;
	toy_call_start(&a, &cli.peer, OP_PING, false);
	while (!a.over) {
		net_world_pass(&w, NSEC_PER_SEC / 10);
		for (unsigned i = 0; i < srv.n_seen; i++)
			toy_server_reply(&srv, srv.seen[i].link, srv.seen[i].tag, EBUSY, 0, NULL,
					 NULL);
		toy_server_drop(&srv);
	}
	CHECK_EQ(a.error, -ETIMEDOUT);
	toy_call_start(&b, &cli.peer, OP_PING, false);
	settle();
	toy_server_reply(&srv, srv.seen[0].link, srv.seen[0].tag, EBUSY, 0, NULL, NULL);
	toy_server_drop(&srv);
	settle();
	peer_halt(&cli.peer);
	net_world_until(&w, &b.over);
	CHECK_EQ(b.error, -ESHUTDOWN);
	net_world_pass(&w, NSEC_PER_SEC);
	end();
}

/* EBUSY with slots is a normal result. */
static void a_server_that_answers_busy_is_believed(void)
{
	struct toy_call a;

	begin();
	warm_up();
	srv.status = EBUSY;
	toy_call_start(&a, &cli.peer, OP_BACKUP, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, -EBUSY);
	end();
}

static void the_welcome_tells_of_a_newer_map(void)
{
	struct toy_call a;

	begin();
	n_news = 0;
	cli.peer.on_map_change = map_is_new;
	srv.net.id.map_version = 5;
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(n_news, 1);
	CHECK(news.over && news.order < a.order);
	CHECK_EQ(srv.seen[0].head.op, OP_MAP);
	CHECK_EQ(srv.seen[1].head.map_version, 5);
	end();
}

/* ---- outstanding bytes ---- */

#define N_MOVES 6

static uint8_t memory[8 * MIB];
static struct toy_call moves[N_MOVES];

/* Starts reads of these sizes at a server with many clients: 4 MiB may be outstanding. */
static void start_moves(const size_t *bytes, unsigned n)
{
	static struct iovec mem[N_MOVES];

	srv.load = 1000;
	warm_up();
	CHECK_EQ(peer_outstanding_max(&cli.peer), 4 * MIB);
	srv.hold = true;
	for (unsigned i = 0; i < n; i++) {
		mem[i] = (struct iovec){ memory, bytes[i] };
		toy_call_move(&moves[i], &cli.peer, &mem[i], 1, false);
	}
	settle();
}

static void answer_read(unsigned i)
{
	struct wire_read_res r = { .end = UINT64_MAX };
	struct seen *s = &srv.seen[i];

	CHECK(s->held);
	s->held = false;
	toy_server_reply(&srv, s->link, s->tag, 0, SESSION_SLOTS, XDR_ANY(xdr_wire_read_res), &r);
	link_unref(s->link);
	settle();
}

/* Calls wait in order; calls without memory pass them. */
static void what_is_outstanding_at_a_loaded_server_is_bounded(void)
{
	static const size_t bytes[] = { 3 * MIB, MIB, 2 * MIB, 7 * MIB, 100 };
	struct toy_call a;

	begin();
	start_moves(bytes, 5);
	CHECK_EQ(srv.n_seen, 2);
	CHECK_EQ(cli.peer.outstanding, 4 * MIB);
	toy_call_start(&a, &cli.peer, OP_PING, false);
	settle();
	CHECK_EQ(srv.n_seen, 3);
	answer_read(1);
	/* 3 and 2 MiB exceed the limit, and the small read does not pass */
	CHECK_EQ(srv.n_seen, 3);
	answer_read(0);
	CHECK_EQ(srv.n_seen, 4);
	answer_read(3); /* a call of more than 4 MiB runs alone */
	CHECK_EQ(srv.n_seen, 5);
	CHECK_EQ(cli.peer.outstanding, 7 * MIB);
	answer_read(4);
	CHECK_EQ(srv.n_seen, 6);
	answer_read(5);
	srv.load = 0;
	toy_server_release(&srv, 0);
	net_world_until(&w, &a.over);
	for (int i = 0; i < 5; i++)
		CHECK(moves[i].over && !moves[i].error);
	CHECK_EQ(cli.peer.outstanding, 0);
	CHECK_EQ(peer_outstanding_max(&cli.peer), 128 * MIB);
	end();
}

/* Breaks, lost sessions and cancels never count bytes twice or leave them counted. */
static void what_is_outstanding_ends_with_its_call(void)
{
	static const size_t bytes[] = { 3 * MIB, MIB, 2 * MIB, 2 * MIB, 2 * MIB };

	begin();
	start_moves(bytes, 5);
	peer_cancel(&moves[0].call, -EINTR);
	peer_cancel(&moves[2].call, -EINTR);
	settle();
	CHECK(!moves[0].over && moves[2].over); /* the server has not confirmed the first one */
	CHECK_EQ(cli.peer.outstanding, 4 * MIB);
	link_close(srv.link, -ECONNRESET);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(cli.peer.outstanding, 3 * MIB); /* the second call again, and the fourth */
	srv.forget = true;
	link_close(srv.link, -ECONNRESET);
	net_world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(cli.peer.outstanding, 3 * MIB);
	srv.hold = false;
	link_close(srv.link, -ECONNRESET);
	for (int i = 0; i < 5; i++) {
		net_world_until(&w, &moves[i].over);
		CHECK_EQ(moves[i].error, i % 2 || i == 4 ? 0 : -EINTR);
	}
	CHECK_EQ(cli.peer.outstanding, 0);
	start_moves(bytes, 5);
	peer_halt(&cli.peer);
	settle();
	for (int i = 0; i < 5; i++)
		CHECK_EQ(moves[i].error, -ESHUTDOWN);
	CHECK_EQ(cli.peer.outstanding, 0);
	end();
}

/* Answers one of the started reads after this time, with so many bytes moved. */
static void finish_move(unsigned i, size_t moved, uint64_t after_ns)
{
	net_world_pass(&w, after_ns - NSEC_PER_MSEC); /* a millisecond has passed in settle() */
	cli.peer.account.bytes[METHOD_GATHER] += moved;
	answer_read(i);
	CHECK(moves[i].over && !moves[i].error);
}

static void start_and_finish_move(size_t moved, uint64_t after_ns)
{
	static const size_t bytes[] = { MIB };

	srv.hold = false;
	start_moves(bytes, 1);
	finish_move(0, moved, after_ns);
}

/* Only a large call that has the link alone tells its rate, and the fastest one counts. */
static void the_rate_of_a_slow_link_is_measured(void)
{
	static const size_t bytes[] = { MIB, MIB };
	double usual;

	begin();
	start_moves(bytes, 2);
	usual = peer_costs(&cli.peer).byte;
	finish_move(0, MIB, 5 * NSEC_PER_MSEC);
	finish_move(1, MIB, 5 * NSEC_PER_MSEC); /* was not alone */
	CHECK(peer_costs(&cli.peer).byte <= usual);
	start_and_finish_move(4 * KIB, 10 * NSEC_PER_MSEC); /* the file has no more */
	CHECK(peer_costs(&cli.peer).byte <= usual);
	start_and_finish_move(MIB, 20 * NSEC_PER_MSEC);
	CHECK(fabs(peer_costs(&cli.peer).byte * (double)MIB / NSEC_PER_MSEC - 20) < 1);
	start_and_finish_move(MIB, 10 * NSEC_PER_MSEC);
	CHECK(fabs(peer_costs(&cli.peer).byte * (double)MIB / NSEC_PER_MSEC - 10) < 1);
	end();
}

/* A call that waits for other calls of its client does not time out while they make progress.
 * Without progress, it does. */
static void progress_of_earlier_transfers_extends_the_deadline(void)
{
	static const size_t bytes[] = { 4 * MIB, MIB };

	begin();
	start_moves(bytes, 2);
	net_world_pass(&w, 19 * NSEC_PER_SEC);
	CHECK(!moves[0].over && !moves[1].over);
	moves[0].call.desc.moved = cli.peer.link->progress = w.now;
	net_world_pass(&w, 2 * NSEC_PER_SEC); /* after the deadline */
	CHECK(!moves[0].over && !moves[1].over);
	net_world_pass(&w, 5 * NSEC_PER_SEC);
	CHECK_EQ(moves[1].error, -ETIMEDOUT);
	CHECK(!moves[0].over); /* its memory is safe when the server confirms or the link closes */
	net_world_pass(&w, cli.net.id.timeout_ms * NSEC_PER_MSEC);
	CHECK_EQ(moves[0].error, -ETIMEDOUT);
	CHECK_EQ(cli.peer.outstanding, 0);
	end();
}

/* ---- peers that share a link ---- */

#define USERS 3
static struct peer users[USERS];

static void begin_sharing(void)
{
	begin();
	for (int i = 0; i < USERS; i++) {
		peer_init(&users[i], &cli.net, LINK_CLIENT, 0, "loop:s");
		CHECK_EQ(peer_use_link(&users[i], &cli.peer), 0);
	}
}

static void end_sharing(void)
{
	for (int i = 0; i < USERS; i++)
		peer_fini(&users[i]);
	end();
}

static void ask_each(struct toy_call a[USERS])
{
	for (int i = 0; i < USERS; i++)
		toy_call_start(&a[i], &users[i], OP_PING, false);
}

static void answered_each(struct toy_call a[USERS])
{
	for (int i = 0; i < USERS; i++) {
		net_world_until(&w, &a[i].over);
		CHECK_EQ(a[i].error, 0);
	}
}

static void peers_share_a_link(void)
{
	struct toy_call a[USERS];

	begin_sharing();
	ask_each(a);
	answered_each(a);
	CHECK_EQ(cli.net.n_links, 1);
	CHECK_EQ(srv.n_sessions, USERS + 1);
	for (int i = 0; i < USERS; i++) {
		CHECK_EQ(srv.seen[i].tag, tag_make((uint32_t)i + 1, 0, 1));
		CHECK_EQ(srv.seen[i].head.session, users[i].session);
		CHECK(users[i].session != cli.peer.session);
	}
	end_sharing();
}

static void peers_that_share_a_link_outlive_its_break(void)
{
	struct toy_call a[USERS];
	uint64_t session;

	begin_sharing();
	ask_each(a);
	answered_each(a);
	session = users[1].session;
	srv.hold = true;
	ask_each(a);
	settle();
	srv.hold = false;
	link_close(cli.peer.link, -ECONNRESET);
	for (int i = 0; i < USERS; i++)
		CHECK(!users[i].link);
	toy_server_drop(&srv);
	answered_each(a);
	CHECK_EQ(cli.net.n_links, 1);
	CHECK_EQ(srv.seen[1].tag, tag_make(2, 0, 2)); /* with the same numbers */
	CHECK_EQ(users[1].session, session);
	end_sharing();
}

static void a_peer_leaves_the_link_to_others(void)
{
	struct toy_call a[USERS];

	begin_sharing();
	ask_each(a);
	answered_each(a);
	srv.hold = true;
	ask_each(a);
	settle();
	peer_halt(&users[0]); /* its reply comes later */
	peer_fini(&users[1]);
	settle();
	for (int i = 0; i < 2; i++)
		CHECK(a[i].over && a[i].error == -ESHUTDOWN);
	toy_server_release(&srv, 0);
	net_world_until(&w, &a[2].over);
	CHECK_EQ(a[2].error, 0);
	CHECK_EQ(srv.n_downs, 0);
	peer_init(&users[1], &cli.net, LINK_CLIENT, 0, "loop:s");
	CHECK_EQ(peer_use_link(&users[1], &cli.peer), 0);
	CHECK_EQ(users[1].channel, USERS + 1); /* replies to the old one are not for this one */
	end_sharing();
}

static void a_peer_leaves_while_it_asks_for_a_session(void)
{
	struct toy_call a[USERS];

	begin_sharing();
	warm_up();
	srv.mute = true;
	ask_each(a);
	net_world_pass(&w, NSEC_PER_MSEC / 10);
	CHECK(users[0].state == PEER_SESSION && users[1].state == PEER_SESSION);
	peer_halt(&users[0]);
	peer_fini(&users[1]);
	settle();
	for (int i = 0; i < 2; i++)
		CHECK(a[i].over && a[i].error == -ESHUTDOWN);
	srv.mute = false;
	net_world_until(&w, &a[2].over); /* it asks again, over the same link */
	CHECK_EQ(a[2].error, 0);
	CHECK_EQ(srv.n_downs, 0);
	end_sharing();
}

static void memory_in_use_ends_with_the_link(void)
{
	static uint8_t bytes[64 * KIB];
	struct iovec mem = { bytes, sizeof(bytes) };
	struct toy_call a[USERS], move;

	begin_sharing();
	ask_each(a);
	answered_each(a);
	srv.hold = true;
	toy_call_move(&move, &users[0], &mem, 1, false);
	toy_call_start(&a[1], &users[1], OP_PING, false);
	settle();
	srv.hold = false;
	peer_halt(&users[0]); /* the server could still write into it */
	CHECK(!users[1].link);
	settle();
	CHECK(move.over && move.error == -ESHUTDOWN);
	toy_server_drop(&srv);
	net_world_until(&w, &a[1].over); /* over the next link */
	CHECK_EQ(a[1].error, 0);
	end_sharing();
}

/* All ask for their sessions at once. */
static void thousands_share_a_link(void)
{
	enum { MANY = 2500 };
	struct peer *many = calloc(MANY, sizeof(*many));

	begin();
	CHECK(many);
	for (int i = 0; i < MANY; i++) {
		peer_init(&many[i], &cli.net, LINK_CLIENT, 0, "loop:s");
		CHECK_EQ(peer_use_link(&many[i], &cli.peer), 0);
		peer_connect(&many[i]);
	}
	for (int round = 0; round < 2; round++) {
		net_world_pass(&w, 2 * NSEC_PER_SEC);
		for (int i = 0; i < MANY; i++)
			CHECK_EQ(many[i].state, PEER_UP);
		CHECK_EQ(srv.n_downs, (unsigned)round);
		if (!round)
			link_close(cli.peer.link, -ECONNRESET);
	}
	for (int i = 0; i < MANY; i++)
		peer_fini(&many[i]);
	free(many);
	end();
}

/* A peer cannot be used through one that has no link of its own. */
static void a_user_of_a_user_uses_the_same_link(void)
{
	struct toy_call a;
	struct peer p;

	begin_sharing();
	peer_init(&p, &cli.net, LINK_CLIENT, 0, "loop:s");
	CHECK_EQ(peer_use_link(&p, &users[0]), 0);
	CHECK(p.through == &cli.peer && p.channel == USERS + 1);
	toy_call_start(&a, &p, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(cli.net.n_links, 1);
	peer_fini(&p);
	end_sharing();
}

static void a_peer_without_a_session_disturbs_no_other(void)
{
	struct toy_call a[USERS], b;

	begin_sharing();
	ask_each(a);
	answered_each(a);
	peer_fini(&users[0]);
	peer_init(&users[0], &cli.net, LINK_CLIENT, 0, "loop:s");
	CHECK_EQ(peer_use_link(&users[0], &cli.peer), 0);
	users[0].session = 77;
	srv.deny = true;
	toy_call_start(&b, &users[0], OP_PING, false);
	settle();
	CHECK(users[0].state == PEER_WAITING && !b.over);
	CHECK_EQ(users[0].session, 0); /* the next one is new */
	CHECK_EQ(srv.n_downs, 0);
	srv.deny = false;
	net_world_until(&w, &b.over);
	CHECK_EQ(b.error, 0);
	ask_each(a);
	answered_each(a);
	end_sharing();
}

TEST_MAIN(TEST(calls_take_slots_and_number_them),
	  TEST(a_deferred_call_is_sent_with_the_next_or_after_a_delay),
	  TEST(a_deferred_call_outlives_a_broken_link_and_ends_with_its_peer),
	  TEST(calls_beyond_the_slots_wait_in_order),
	  TEST(a_call_is_repeated_over_a_new_link_with_the_same_numbers),
	  TEST(a_reply_of_the_old_link_is_not_heard),
	  TEST(a_lost_session_fails_changes_and_repeats_the_rest),
	  TEST(a_server_that_does_not_know_the_session_gets_a_new_one),
	  TEST(a_session_that_is_denied_is_made_anew), TEST(a_restart_of_the_server_is_reported),
	  TEST(a_call_ends_at_its_deadline_and_is_cancelled), TEST(a_cancelled_call_ends_at_once),
	  TEST(an_absent_server_is_an_error_after_the_deadline),
	  TEST(a_server_that_comes_later_gets_the_call),
	  TEST(a_server_that_gives_no_session_is_tried_again), TEST(an_idle_peer_renews_its_lease),
	  TEST(a_halted_peer_ends_its_calls_and_takes_none),
	  TEST(a_halted_peer_keeps_its_session_and_numbers),
	  TEST(claims_without_an_answer_are_asked_for_again),
	  TEST(calls_that_a_server_has_no_room_for_go_again),
	  TEST(a_call_without_room_ends_with_its_deadline_or_its_peer),
	  TEST(a_server_that_answers_busy_is_believed),
	  TEST(a_peer_without_a_session_waits_for_a_call), TEST(a_reply_to_nothing_closes_the_link),
	  TEST(a_reply_with_a_strange_status_closes_the_link),
	  TEST(a_result_that_does_not_decode_ends_call_and_link),
	  TEST(calls_with_an_older_map_go_again_behind_the_news_of_it),
	  TEST(a_claim_with_an_older_map_is_repeated),
	  TEST(a_server_that_refuses_for_ever_is_believed), TEST(the_welcome_tells_of_a_newer_map),
	  TEST(what_is_outstanding_at_a_loaded_server_is_bounded),
	  TEST(what_is_outstanding_ends_with_its_call), TEST(the_rate_of_a_slow_link_is_measured),
	  TEST(progress_of_earlier_transfers_extends_the_deadline), TEST(peers_share_a_link),
	  TEST(peers_that_share_a_link_outlive_its_break), TEST(a_peer_leaves_the_link_to_others),
	  TEST(a_peer_leaves_while_it_asks_for_a_session), TEST(memory_in_use_ends_with_the_link),
	  TEST(thousands_share_a_link), TEST(a_user_of_a_user_uses_the_same_link),
	  TEST(a_peer_without_a_session_disturbs_no_other))
