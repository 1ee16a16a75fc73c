/* net_loopback: both ends in one process, with delays and cuts from the hub. */
#include "toy_client.h"

static struct net_world w;
static struct toy_server srv;
static struct toy_client cli;

static void begin(void)
{
	net_world_start(&w, false);
	toy_server_start(&srv, &w, "loop:s", net_id(1, 2));
	toy_client_start(&cli, &w, "loop:s", net_id(1, 0), LINK_CLIENT);
	moving_piece = 65536;
}

static void end(void)
{
	toy_client_stop(&cli);
	toy_server_stop(&srv);
	net_world_end(&w);
}

static void scattered_memory_arrives_in_its_place(void)
{
	static const size_t sizes[] = { 1, 4095, 3, 100, 65537, 2 };
	struct scatter s;
	struct toy_call a;

	begin();
	for (int write = 0; write < 2; write++) {
		scatter_make(&s, 60, sizes, 6);
		if (write)
			scatter_fill(&s);
		toy_call_move(&a, &cli.peer, s.iov, s.n, write);
		net_world_until(&w, &a.over);
		CHECK_EQ(a.error, 0);
		CHECK_EQ(moving_result, 0);
		CHECK_EQ(moving_sum, 0);
		scatter_check(&s);
		scatter_free(&s);
	}
	end();
}

static uint64_t slow(struct loopback_hub *h, struct net *from, struct net *to, size_t bytes)
{
	static unsigned n;

	(void)h;
	(void)from;
	(void)to;
	(void)bytes;
	return (n++ % 3) * NSEC_PER_MSEC; /* a later message may have a shorter delay */
}

static void what_was_sent_first_arrives_first(void)
{
	static struct toy_call a[30];

	begin();
	w.hub.delay = slow;
	for (int i = 0; i < 30; i++)
		toy_call_start(&a[i], &cli.peer, OP_PING, false);
	for (int i = 0; i < 30; i++) {
		net_world_until(&w, &a[i].over);
		CHECK_EQ(a[i].error, 0);
		CHECK(i == 0 || a[i].order > a[i - 1].order);
	}
	end();
}

static unsigned parcels, cut_at;

static uint64_t cut(struct loopback_hub *h, struct net *from, struct net *to, size_t bytes)
{
	(void)h;
	(void)from;
	(void)to;
	(void)bytes;
	return ++parcels == cut_at ? UINT64_MAX : 1000;
}

/* Wherever the link is cut, the call completes in the end. */
static void a_cut_anywhere_is_got_over(void)
{
	static const size_t sizes[] = { 100000, 7 };
	struct scatter s;
	struct toy_call a;

	for (unsigned i = 1; i < 14; i++) {
		begin();
		w.hub.delay = cut;
		parcels = 0;
		cut_at = i;
		scatter_make(&s, 8, sizes, 2);
		if (i % 2)
			scatter_fill(&s);
		toy_call_move(&a, &cli.peer, s.iov, s.n, i % 2);
		net_world_until(&w, &a.over);
		CHECK_EQ(a.error, 0);
		scatter_check(&s);
		scatter_free(&s);
		end();
	}
}

static uint64_t even(struct loopback_hub *h, struct net *from, struct net *to, size_t bytes)
{
	(void)h;
	(void)from;
	(void)to;
	(void)bytes;
	return NSEC_PER_MSEC;
}

static void a_link_that_breaks_ends_its_transfers(void)
{
	static const size_t sizes[] = { 100000 };
	struct scatter s;
	struct toy_call a;

	for (int write = 0; write < 2; write++) {
		begin();
		w.hub.delay = even;
		scatter_make(&s, 1, sizes, 1);
		moving_over = false;
		toy_call_move(&a, &cli.peer, s.iov, s.n, write);
		while (list_empty(&srv.xfers))
			net_world_turn(&w);
		peer_fini(&cli.peer);
		net_world_until(&w, &moving_over);
		CHECK_EQ(moving_result, -ECONNRESET);
		net_world_until(&w, &a.over);
		CHECK_EQ(a.error, -ESHUTDOWN);
		scatter_free(&s);
		end();
	}
}

/* The memory belongs to the caller again: what it writes there now stays. */
static void reuse(struct scatter *s)
{
	memset(s->base, 0x77, s->bytes);
	net_world_pass(&w, 200 * NSEC_PER_MSEC);
	for (size_t i = 0; i < s->bytes; i++)
		CHECK_EQ(s->base[i], 0x77);
}

static void a_cancelled_call_ends_when_its_memory_is_safe(void)
{
	static const size_t sizes[] = { 100000 };
	struct scatter s;
	struct toy_call a;

	for (int write = 0; write < 2; write++) {
		begin();
		w.hub.delay = even;
		scatter_make(&s, 1, sizes, 1);
		moving_over = false;
		toy_call_move(&a, &cli.peer, s.iov, s.n, write);
		while (list_empty(&srv.xfers))
			net_world_turn(&w);
		peer_cancel(&a.call, -EINTR);
		CHECK(!a.over);
		net_world_until(&w, &a.over);
		CHECK_EQ(a.error, -EINTR);
		reuse(&s);
		CHECK(moving_over);
		CHECK_EQ(srv.net.n_links, 1);
		scatter_free(&s);
		end();
	}
}

static void a_peer_that_does_not_confirm_loses_its_link(void)
{
	static const size_t sizes[] = { 1000 };
	struct scatter s;
	struct toy_call a;

	begin();
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	srv.hold = true; /* never answers, not even a CANCEL */
	scatter_make(&s, 1, sizes, 1);
	toy_call_move(&a, &cli.peer, s.iov, s.n, false);
	net_world_pass(&w, NSEC_PER_MSEC);
	CHECK_EQ(srv.n_seen, 2);
	peer_cancel(&a.call, -EINTR);
	net_world_pass(&w, cli.net.id.timeout_ms * NSEC_PER_MSEC / 2);
	CHECK(!a.over);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, -EINTR);
	reuse(&s);
	scatter_free(&s);
	end();
}

static uint64_t long_time(struct loopback_hub *h, struct net *n)
{
	(void)h;
	(void)n;
	return 10 * NSEC_PER_MSEC;
}

/* The link breaks while a put or get is in flight, and the device goes on for a while: neither side
 * ends its transfer before, and the call is not sent over another link before. */
static void memory_is_not_free_until_the_link_has_closed(void)
{
	static const size_t sizes[] = { 100000 };
	struct scatter s;
	struct toy_call a;

	for (int i = 0; i < 6; i++) {
		bool write = i % 2;

		begin();
		w.hub.delay = even;
		w.hub.lingers = long_time;
		scatter_make(&s, 1, sizes, 1);
		if (write)
			scatter_fill(&s);
		moving_over = false;
		toy_call_move(&a, &cli.peer, s.iov, s.n, write);
		while (list_empty(&srv.xfers))
			net_world_turn(&w);
		link_close(cli.peer.link, -ECONNRESET);
		CHECK_EQ(cli.peer.link->state, LINK_CLOSING);
		if (i / 2 == 1)
			peer_cancel(&a.call, -EINTR);
		net_world_pass(&w, 5 * NSEC_PER_MSEC);
		CHECK(!moving_over && !a.over && cli.peer.n_resent == 0);
		if (i / 2 == 2)
			peer_fini(&cli.peer);
		net_world_until(&w, &a.over);
		CHECK_EQ(a.error, i / 2 == 0 ? 0 : i / 2 == 1 ? -EINTR : -ESHUTDOWN);
		if (i / 2 == 0)
			scatter_check(&s);
		reuse(&s);
		CHECK(moving_over);
		scatter_free(&s);
		end();
	}
}

/* The server puts data for which the client has not exposed memory. */
static void misplaced_put(uint64_t length, uint64_t wrong_tag)
{
	static const size_t sizes[] = { 1000 };
	struct wire_mem_desc d = { .length = length };
	struct scatter s;
	struct toy_call a;

	begin();
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	srv.hold = true;
	scatter_make(&s, 1, sizes, 1);
	toy_call_move(&a, &cli.peer, s.iov, s.n, false);
	net_world_pass(&w, NSEC_PER_MSEC);
	CHECK_EQ(srv.n_seen, 2);
	d.tag = srv.seen[1].tag ^ wrong_tag;
	moving_over = false;
	toy_server_move(&srv, srv.seen[1].link, srv.seen[1].tag, &d, false);
	net_world_until(&w, &moving_over);
	CHECK_EQ(moving_result, -ECONNRESET);
	CHECK_EQ(cli.net.bad_links, 1);
	for (size_t i = 0; i < s.bytes; i++)
		CHECK_EQ(s.base[i], SCATTER_GUARD);
	peer_cancel(&a.call, -EINTR);
	net_world_until(&w, &a.over);
	scatter_free(&s);
	end();
}

static void a_put_outside_of_the_exposed_memory_closes_the_link(void)
{
	misplaced_put(5000, 0);
}

static void a_put_to_withdrawn_memory_closes_the_link(void)
{
	misplaced_put(1000, 1);
}

static void an_address_without_a_listener_is_refused(void)
{
	struct link *l;
	char err[128];

	begin();
	CHECK_EQ(loopback_dial(&cli.net, &cli.peer, "loop:nobody", 0, &l), -ECONNREFUSED);
	net_stop_listening(&srv.net);
	CHECK_EQ(loopback_dial(&cli.net, &cli.peer, "loop:s", 0, &l), -ECONNREFUSED);
	cli.net.hub = NULL;
	CHECK_EQ(loopback_dial(&cli.net, &cli.peer, "loop:s", 0, &l), -EADDRNOTAVAIL);
	CHECK_EQ(net_listen(&cli.net, "loop:x", err, sizeof(err)), -EADDRNOTAVAIL);
	CHECK(strstr(err, "loop:x"));
	end();
}

TEST_MAIN(TEST(scattered_memory_arrives_in_its_place), TEST(what_was_sent_first_arrives_first),
	  TEST(a_cut_anywhere_is_got_over), TEST(a_link_that_breaks_ends_its_transfers),
	  TEST(a_cancelled_call_ends_when_its_memory_is_safe),
	  TEST(a_peer_that_does_not_confirm_loses_its_link),
	  TEST(memory_is_not_free_until_the_link_has_closed),
	  TEST(a_put_outside_of_the_exposed_memory_closes_the_link),
	  TEST(a_put_to_withdrawn_memory_closes_the_link),
	  TEST(an_address_without_a_listener_is_refused))
