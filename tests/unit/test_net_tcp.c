/* net_tcp on real sockets of this host: scattered memory in both directions, order, retracting
 * during a transfer, links that break or stall, and peers that do not read. */
#include <limits.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/net_tcp.h"
#include "toy_client.h"

static struct net_world w;
static struct toy_server srv;
static struct toy_client cli;
static bool local; /* the server listens on the Unix socket, too */

/* The address of an unused port. */
static const char *free_address(struct net_world *at, struct toy_server *f, struct net_identity id)
{
	static char address[64];
	char err[256];

	for (int i = 0; i < 200; i++) {
		toy_server_start(f, at, NULL, id);
		snprintf(address, sizeof(address), "127.0.0.1:%d",
			 20000 + (getpid() * 7 + i * 13) % 12000);
		if (net_listen(&f->net, address, err, sizeof(err)) == 0)
			return address;
		net_fini(&f->net);
	}
	CHECK(!"no free port");
	return NULL;
}

/* Listens on the Unix socket of the address. Tests that use it come last. */
static void listen_local(const char *address)
{
	int r = net_listen_local(&srv.net, address);

	if (r == -EOPNOTSUPP)
		SKIP_ALL("Unix sockets are off where users have other numbers; TCP works");
	CHECK_EQ(r, 0);
}

static void begin_with(struct net_identity id)
{
	const char *address;

	net_world_start(&w, true);
	address = free_address(&w, &srv, id);
	if (local)
		listen_local(address);
	toy_client_start(&cli, &w, address, net_id(1, 0), LINK_CLIENT);
	moving_piece = 65536;
}

static void begin(void)
{
	begin_with(net_id(1, 2));
}

static void end(void)
{
	toy_client_stop(&cli);
	toy_server_stop(&srv);
	net_world_end(&w);
}

static void ping(void)
{
	struct toy_call a;

	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_STR(peer_medium(&cli.peer), local ? "unix" : "tcp");
}

static void a_call_goes_over_the_wire(void)
{
	begin();
	ping();
	CHECK_EQ(srv.n_seen, 1);
	CHECK_EQ(srv.net.n_links, 1);
	end();
}

/* A socket that took all that was to be sent is not watched for room. */
static void a_message_costs_no_further_wakeup(void)
{
	struct toy_call a;

	begin();
	ping();
	toy_call_start(&a, &cli.peer, OP_PING, false);
	for (; !a.over; net_world_turn(&w)) {
		CHECK_EQ(container_of(cli.peer.link, struct tcp_link, l)->src.events, EV_IN);
		CHECK_EQ(container_of(srv.link, struct tcp_link, l)->src.events, EV_IN);
	}
	end();
}

/* A message that is used again does not wait behind data. */
static void a_new_message_follows_no_data(void)
{
	struct msg *m;

	begin();
	m = msg_new(&srv.net, 0);
	m->behind = 7;
	msg_free(m);
	m = msg_new(&srv.net, 0);
	CHECK_EQ(m->behind, 0);
	msg_free(m);
	end();
}

/* A client that sends a request twice may get two replies of one tag: both are sent or freed. */
static void two_replies_behind_the_same_data_are_freed(void)
{
	static char data[300000];
	struct iovec iov = { data, sizeof(data) };
	struct wire_mem_desc d = { .tag = 77, .length = 2 * sizeof(data) };
	struct wire_void_res res = { 0 };
	struct toy_call puts[2];

	begin();
	ping();
	for (int i = 0; i < 2; i++) {
		toy_call_init(&puts[i], &cli.peer, OP_PING, NSEC_PER_SEC);
		net_put(srv.link, &d, 0, &iov, 1, &puts[i].q);
	}
	for (int i = 0; i < 2; i++)
		toy_server_reply(&srv, srv.link, d.tag, 0, SESSION_SLOTS,
				 XDR_ANY(xdr_wire_void_res), &res);
	net_world_pass(&w, NSEC_PER_SEC / 2);
	CHECK_EQ(srv.net.queued, 0);
	end();
}

static void both_ends_count_the_messages_of_their_links(void)
{
	const struct net_account *c = &cli.peer.account, *s = &srv.net.account;

	begin();
	ping();
	CHECK_EQ(c->messages_sent, 4); /* HELLO, RESPONSE, and two calls */
	CHECK_EQ(c->messages_received, 4);
	CHECK_EQ(s->messages_received, c->messages_sent);
	CHECK_EQ(s->messages_sent, c->messages_received);
	CHECK_EQ(c->frames, 8);
	CHECK(c->calls && s->calls);
	CHECK(!c->work_requests && !c->registrations && !c->copied);
	link_close(cli.peer.link, -ECONNRESET);
	ping();
	CHECK_EQ(c->messages_sent, 8); /* the counters outlive a link */
	CHECK_EQ(s->frames, c->frames);
	end();
}

static void move_both_ways(size_t n, const size_t *sizes, size_t n_sizes, size_t piece)
{
	struct scatter s;
	struct toy_call a;

	moving_piece = piece;
	scatter_make(&s, n, sizes, n_sizes);
	toy_call_move(&a, &cli.peer, s.iov, s.n, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	scatter_check(&s);
	memset(s.base, SCATTER_GUARD, s.bytes);
	scatter_fill(&s);
	toy_call_move(&a, &cli.peer, s.iov, s.n, true);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(moving_sum, 0);
	scatter_check(&s);
	scatter_free(&s);
}

static void scattered_memory_of_many_shapes_arrives_in_its_place(void)
{
	static const size_t one[] = { 1 }, odd[] = { 1, 4095, 3, 100, 65537, 2 },
			    big[] = { 3000000 }, page[] = { 4096 }, chunk[] = { CHUNK_MAX };

	begin();
	move_both_ways(1, one, 1, 65536);
	move_both_ways(3000, one, 1, 65536); /* more pieces than one system call takes */
	move_both_ways(1, big, 1, 65536);
	move_both_ways(1, big, 1, 1000); /* many pieces at the server */
	move_both_ways(60, odd, 6, 4096);
	move_both_ways(2500, page, 1, 7777);
	move_both_ways(3, chunk, 1, 65536);
	move_both_ways(1, chunk, 1, CHUNK_MAX);
	end();
}

static void get_directly(size_t bytes, uint64_t len, int may)
{
	struct scatter s;
	struct toy_call a;

	moving_direct_len = len;
	moving_direct_may = may;
	memset(moving_direct, 0, MOVING_DIRECT / 2);
	scatter_make(&s, 1, &bytes, 1);
	scatter_fill(&s);
	toy_call_move(&a, &cli.peer, s.iov, s.n, true);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(moving_sum, 0);
	CHECK(moving_direct_done <= len);
	for (size_t i = moving_direct_done; i < MOVING_DIRECT / 2; i++)
		CHECK_EQ(moving_direct[i], 0);
	scatter_free(&s);
}

/* The first bytes go directly to one place as long as it is permitted, the others to the buffers.
 * No byte is lost, and none is placed there without permission. */
static void what_is_got_goes_to_the_better_place_while_it_may(void)
{
	const size_t half = MOVING_DIRECT / 2;

	begin();
	moving_direct = mmap(NULL, MOVING_DIRECT, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(moving_direct != MAP_FAILED);
	get_directly(half, half, INT_MAX);
	CHECK_EQ(moving_direct_done, half);
	get_directly(half, half - 4096, INT_MAX);
	CHECK_EQ(moving_direct_done, half - 4096);
	get_directly(half, 1, INT_MAX);
	CHECK_EQ(moving_direct_done, 1);
	get_directly(half, half, 0);
	CHECK_EQ(moving_direct_done, 0);
	for (int may = 1; may < 20; may++)
		get_directly(half, half - 77, may);
	/* the memory becomes inaccessible: all following bytes go to the buffers */
	CHECK_EQ(mprotect(moving_direct + half, half, PROT_NONE), 0);
	moving_direct += half / 2;
	moving_direct_len = half;
	moving_direct_may = INT_MAX;
	move_both_ways(1, &half, 1, 65536);
	CHECK(moving_direct_done > 0 && moving_direct_done <= half / 2);
	ping();
	moving_direct -= half / 2;
	munmap(moving_direct, MOVING_DIRECT);
	moving_direct = NULL;
	end();
}

#define MAP_BYTES (16 * MIB) /* larger than any file in this test */

static void open_file(uint64_t bytes, bool map)
{
	FILE *f = tmpfile();
	uint8_t *b = malloc(bytes);

	CHECK(f && b);
	for (uint64_t i = 0; i < bytes; i++)
		b[i] = pattern_byte(i);
	CHECK_EQ(fwrite(b, 1, bytes, f), bytes);
	free(b);
	CHECK_EQ(fflush(f), 0);
	moving_file = dup(fileno(f));
	CHECK(moving_file >= 0);
	fclose(f);
	if (map)
		moving_map = env_real()->file->map(env_real(), moving_file, MAP_BYTES, false);
	CHECK(!map || moving_map);
}

static void close_file(void)
{
	if (moving_map)
		env_real()->file->unmap(env_real(), moving_map, MAP_BYTES);
	moving_map = NULL;
	close(moving_file);
	moving_file = -1;
}

static void send_file(bool map)
{
	static const size_t odd[] = { 1, 4095, 3, 100, 65537, 2 }, big[] = { 5000000 };
	static const size_t pieces[] = { 4100, 20000, 65536, 1000000 };
	struct scatter s;
	struct toy_call a;

	begin();
	ping();
	CHECK(net_can_put_file(srv.link));
	open_file(5000000, map);
	for (size_t i = 0; i < 2 * ARRAY_LEN(pieces); i++) {
		moving_piece = pieces[i / 2];
		scatter_make(&s, i % 2 ? 60 : 1, i % 2 ? odd : big, i % 2 ? 6 : 1);
		toy_call_move(&a, &cli.peer, s.iov, s.n, false);
		net_world_until(&w, &a.over);
		CHECK_EQ(a.error, 0);
		scatter_check(&s);
		scatter_free(&s);
	}
	close_file();
	end();
}

static void a_file_goes_out_as_memory_does(void)
{
	send_file(false);
	send_file(true);
}

static void send_cut_file(bool map)
{
	static const size_t big[] = { 3000000 };
	struct scatter s;
	struct toy_call a;
	uint64_t wrong = 0;

	begin();
	open_file(1000001, map);
	moving_piece = 700000;
	scatter_make(&s, 1, big, 1);
	toy_call_move(&a, &cli.peer, s.iov, s.n, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	for (size_t i = 0; i < s.total; i++)
		wrong += s.base[i] != (i < 1000001 ? pattern_byte(i) : 0);
	CHECK_EQ(wrong, 0);
	ping();
	CHECK_EQ(srv.net.n_links, 1);
	scatter_free(&s);
	close_file();
	end();
}

/* The file was cut after its length was announced: zeros are sent instead, and the link stays
 * up. */
static void what_a_file_does_not_hold_any_more_arrives_as_zeros(void)
{
	send_cut_file(false);
	send_cut_file(true);
}

static void many_transfers_share_a_link(void)
{
	static const size_t sizes[] = { 100, 70000, 1 };
	static struct scatter s[20];
	static struct toy_call a[20];

	begin();
	for (int i = 0; i < 20; i++) {
		scatter_make(&s[i], 30, sizes, 3);
		if (i % 2)
			scatter_fill(&s[i]);
		toy_call_move(&a[i], &cli.peer, s[i].iov, s[i].n, i % 2);
	}
	for (int i = 0; i < 20; i++) {
		net_world_until(&w, &a[i].over);
		CHECK_EQ(a[i].error, 0);
		scatter_check(&s[i]);
		scatter_free(&s[i]);
	}
	end();
}

static void small_messages_overtake_bulk(void)
{
	static const size_t big[] = { 48 * 1024 * 1024 };
	struct scatter s;
	struct toy_call a, b;

	for (int write = 0; write < 2; write++) {
		begin();
		ping();
		scatter_make(&s, 1, big, 1);
		scatter_fill(&s);
		toy_call_move(&a, &cli.peer, s.iov, s.n, write);
		toy_call_start(&b, &cli.peer, OP_PING, false);
		net_world_until(&w, &b.over);
		CHECK(!a.over);
		net_world_until(&w, &a.over);
		CHECK(a.order > b.order);
		scatter_check(&s);
		scatter_free(&s);
		end();
	}
}

/* A call is cancelled during its transfer: its memory belongs to the user again at once, and the
 * link stays up. */
static void retract(bool write)
{
	static const size_t big[] = { 32 * 1024 * 1024 };
	struct scatter s;
	struct toy_call a;
	uint64_t touched = 0;

	begin();
	ping();
	scatter_make(&s, 1, big, 1);
	scatter_fill(&s);
	moving_over = false;
	toy_call_move(&a, &cli.peer, s.iov, s.n, write);
	for (int i = 0; i < 3; i++)
		net_world_turn(&w);
	CHECK(!a.over);
	peer_cancel(&a.call, -EINTR);
	memset(s.base, SCATTER_GUARD, s.bytes);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, -EINTR);
	net_world_until(&w, &moving_over);
	CHECK_EQ(moving_result, write ? -ECANCELED : 0);
	CHECK(!write || moving_strange == 0);
	ping();
	CHECK_EQ(srv.n_cancels, 1);
	CHECK_EQ(srv.net.n_links, 1);
	for (size_t i = 0; i < s.bytes; i++)
		touched += s.base[i] != SCATTER_GUARD;
	CHECK_EQ(touched, 0);
	scatter_free(&s);
	end();
}

static void memory_is_not_touched_after_it_was_retracted_from_a_read(void)
{
	retract(false);
}

static void memory_is_not_read_after_it_was_retracted_from_a_write(void)
{
	retract(true);
}

static void a_link_that_breaks_ends_its_transfers(void)
{
	static const size_t big[] = { 32 * 1024 * 1024 };
	struct scatter s;
	struct toy_call a;

	for (int write = 0; write < 2; write++) {
		begin();
		ping();
		scatter_make(&s, 1, big, 1);
		moving_over = false;
		toy_call_move(&a, &cli.peer, s.iov, s.n, write);
		for (int i = 0; i < 3; i++)
			net_world_turn(&w);
		CHECK(!moving_over);
		peer_fini(&cli.peer);
		net_world_until(&w, &moving_over);
		CHECK_EQ(moving_result, -ECONNRESET);
		net_world_until(&w, &a.over);
		CHECK_EQ(a.error, -ESHUTDOWN);
		CHECK_EQ(srv.net.n_links, 0);
		scatter_free(&s);
		end();
	}
}

static void a_transfer_starts_over_when_its_link_broke(void)
{
	static const size_t big[] = { 16 * 1024 * 1024 };
	struct scatter s;
	struct toy_call a;

	for (int write = 0; write < 2; write++) {
		begin();
		ping();
		scatter_make(&s, 1, big, 1);
		if (write)
			scatter_fill(&s);
		toy_call_move(&a, &cli.peer, s.iov, s.n, write);
		for (int i = 0; i < 3; i++)
			net_world_turn(&w);
		CHECK(!a.over);
		link_close(srv.link, -ECONNRESET);
		net_world_until(&w, &a.over);
		CHECK_EQ(a.error, 0);
		CHECK_EQ(cli.peer.n_resent, 1);
		scatter_check(&s);
		scatter_free(&s);
		end();
	}
}

/* ---- two loops, one of which does not run ---- */

struct pair {
	struct net_world there; /* the world of the client */
	struct toy_client cli;
};

static void pair_begin(struct pair *p, uint32_t timeout_ms)
{
	struct net_identity id = net_id(1, 2);
	const char *address;
	struct toy_call a;

	id.timeout_ms = timeout_ms;
	net_world_start(&w, true);
	net_world_start(&p->there, true);
	address = free_address(&w, &srv, id);
	if (local)
		listen_local(address);
	toy_client_start(&p->cli, &p->there, address, net_id(1, 0), LINK_CLIENT);
	toy_call_start(&a, &p->cli.peer, OP_PING, false);
	while (!a.over) {
		loop_turn(&p->there.loop, 0);
		loop_turn(&w.loop, NSEC_PER_MSEC);
	}
	CHECK_EQ(a.error, 0);
	CHECK_STR(peer_medium(&p->cli.peer), local ? "unix" : "tcp");
}

static void pair_end(struct pair *p)
{
	toy_client_stop(&p->cli);
	toy_server_stop(&srv);
	net_world_end(&p->there);
	net_world_end(&w);
}

static void a_peer_that_stalls_is_closed_after_the_timeout(void)
{
	static const size_t big[] = { 64 * 1024 * 1024 };
	static struct pair p;
	struct scatter s;
	struct toy_call a;
	uint64_t began;

	for (int write = 0; write < 2; write++) {
		pair_begin(&p, 200);
		scatter_make(&s, 1, big, 1);
		moving_over = false;
		toy_call_move(&a, &p.cli.peer, s.iov, s.n, write);
		loop_run_deferred(&p.there.loop); /* its request is sent, */
		began = w.env.clock->now(&w.env);
		net_world_until(&w, &moving_over); /* and the client's loop does not run any more */
		CHECK_EQ(moving_result, -ECONNRESET);
		CHECK(w.env.clock->now(&w.env) - began >= 200 * NSEC_PER_MSEC);
		CHECK_EQ(srv.net.n_links, 0);
		pair_end(&p);
		CHECK(a.over);
		scatter_free(&s);
	}
}

static void an_idle_link_is_not_a_stalled_one(void)
{
	static const size_t some = 100000;
	struct scatter s;
	struct toy_call a;

	begin();
	srv.net.id.timeout_ms = cli.net.id.timeout_ms = 1000;
	ping();
	net_world_pass(&w, 1500 * NSEC_PER_MSEC);
	CHECK_EQ(srv.net.n_links, 1);
	ping(); /* the stall timer starts with the message, not with the silence before it */
	net_world_pass(&w, 20 * NSEC_PER_MSEC);
	CHECK_EQ(srv.net.n_links, 1);
	CHECK_EQ(srv.n_downs, 0);
	for (int write = 0; write < 2; write++) { /* the same holds for data */
		net_world_pass(&w, 1500 * NSEC_PER_MSEC);
		scatter_make(&s, 1, &some, 1);
		toy_call_move(&a, &cli.peer, s.iov, s.n, write);
		net_world_until(&w, &a.over);
		CHECK_EQ(a.error, 0);
		CHECK_EQ(srv.n_downs, 0);
		scatter_free(&s);
	}
	end();
}

/* The peer repeatedly takes a few bytes of its data, in all much less than a frame within the time
 * limit. */
static void a_peer_that_reads_in_drops_is_closed(void)
{
	static const size_t big[] = { 4 * 1024 * 1024 };
	static struct pair p;
	static char drop[12288];
	struct scatter s;
	struct toy_call a;
	int room = 8192, fd;
	uint64_t began;

	local = true; /* TCP buffers hold more than a frame */
	pair_begin(&p, 300);
	scatter_make(&s, 1, big, 1);
	moving_over = false;
	CHECK_EQ(setsockopt(tcp_of(srv.link)->src.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)),
		 0);
	fd = tcp_of(p.cli.peer.link)->src.fd;
	toy_call_move(&a, &p.cli.peer, s.iov, s.n, false);
	loop_run_deferred(&p.there.loop);
	began = w.env.clock->now(&w.env);
	while (!moving_over && w.env.clock->now(&w.env) - began < 60 * NSEC_PER_SEC) {
		net_world_pass(&w, 50 * NSEC_PER_MSEC);
		CHECK(recv(fd, drop, sizeof(drop), MSG_DONTWAIT) >= 0);
	}
	CHECK(moving_over);
	CHECK_EQ(moving_result, -ECONNRESET);
	pair_end(&p);
	CHECK(a.over);
	scatter_free(&s);
	local = false;
}

/* The peer sends requests and does not read the replies. */
static void a_peer_that_does_not_read_is_closed_before_it_fills_the_memory(void)
{
	static struct pair p;
	uint64_t tag = UINT64_C(9) << 32;
	struct link *l;

	pair_begin(&p, 20000);
	l = p.cli.peer.link;
	srv.hold = false;
	for (int i = 0; i < 200000 && srv.net.n_links; i++) {
		struct wire_req_head h = { .op = OP_PING, .slot = 9, .sequence = (uint32_t)++tag };
		struct wire_void_args none = { 0 };

		for (int k = 0; k < 50; k++) {
			struct msg *m = msg_encode(&p.cli.net, XDR_ANY(xdr_wire_req_head), &h,
						   XDR_ANY(xdr_wire_void_args), &none);

			link_send(l, FRAME_REQUEST, tag, m);
		}
		loop_run_deferred(&p.there.loop);
		loop_turn(&w.loop, 0);
	}
	CHECK_EQ(srv.net.n_links, 0);
	CHECK_EQ(srv.net.bad_links, 1);
	pair_end(&p);
}

static void garbage_closes_only_its_own_link(void)
{
	static const char rubbish[] =
		"GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: somebody\r\n\r\n";
	struct env *e;
	struct iovec iov = { (void *)(uintptr_t)rubbish, sizeof(rubbish) - 1 };
	char answer[64], address[CONF_ADDR_MAX + 1];
	bool closed = false;
	int fd;

	begin();
	ping();
	e = &w.env;
	snprintf(address, sizeof(address), "%s%s", local ? "@" : "", cli.peer.address);
	fd = e->sock->connect(e, address);
	CHECK(fd >= 0);
	net_world_pass(&w, 10 * NSEC_PER_MSEC);
	CHECK_EQ(srv.net.n_unproven, 1);
	CHECK_EQ(e->sock->writev(e, fd, &iov, 1), (ssize_t)iov.iov_len);
	for (int i = 0; i < 1000 && !closed; i++) {
		struct iovec in = { answer, sizeof(answer) };
		ssize_t r;

		net_world_turn(&w);
		r = e->sock->readv(e, fd, &in, 1);
		CHECK(r <= 0);
		closed = r != -EAGAIN;
	}
	CHECK(closed);
	e->sock->close(e, fd);
	CHECK_EQ(srv.net.bad_links, 1);
	CHECK_EQ(srv.net.n_unproven, 0);
	ping();
	CHECK_EQ(cli.peer.n_resent, 0);
	end();
}

/* A starved process moves nothing for long, and a new link takes many turns. */
#define PATIENT_MS 300000

/* Turns of the loop that a transfer of 16 MiB takes. With `chat`, another client sends a request in
 * every turn. */
static uint64_t turns_of_bulk(bool write, bool chat)
{
	static const size_t big[] = { 16 * MIB };
	struct toy_client other;
	struct scatter s;
	struct toy_call a, b;
	uint64_t turns, most = 0;

	begin();
	toy_client_start(&other, &w, cli.peer.address, net_id(1, 0), LINK_CLIENT);
	toy_call_ns = PATIENT_MS * NSEC_PER_MSEC;
	srv.net.id.timeout_ms = cli.net.id.timeout_ms = other.net.id.timeout_ms = PATIENT_MS;
	ping();
	toy_call_start(&b, &other.peer, OP_PING, false);
	net_world_until(&w, &b.over);
	net_world_pass(&w, 20 * NSEC_PER_MSEC); /* the first client counts as alone again */
	scatter_make(&s, 1, big, 1);
	scatter_fill(&s);
	turns = w.loop.turns;
	toy_call_move(&a, &cli.peer, s.iov, s.n, write);
	while (!a.over) {
		uint64_t at = w.loop.turns;

		if (chat)
			toy_call_start(&b, &other.peer, OP_PING, false);
		do
			net_world_turn(&w);
		while (!b.over);
		most = MAX(most, w.loop.turns - at);
	}
	turns = w.loop.turns - turns;
	CHECK_EQ(a.error, 0);
	CHECK(most < 8); /* does not depend on the size of the transfer */
	scatter_check(&s);
	scatter_free(&s);
	toy_client_stop(&other);
	end();
	toy_call_ns = 10 * NSEC_PER_SEC;
	return turns;
}

/* The bytes per turn are bounded, and the bound is lower when other links are active. */
static void links_of_a_server_take_turns(void)
{
	for (int write = 0; write < 2; write++) { /* links had saved some unused turns */
		CHECK(turns_of_bulk(write, false) >= 12 * MIB / CHUNK_MAX);
		CHECK(turns_of_bulk(write, true) >= 8 * MIB / (64 * KIB));
	}
}

/* ---- the Unix socket of the host ---- */

static void all_that_works_by_tcp_works_by_the_shorter_way(void)
{
	local = true;
	a_call_goes_over_the_wire();
	links_of_a_server_take_turns();
	scattered_memory_of_many_shapes_arrives_in_its_place();
	what_is_got_goes_to_the_better_place_while_it_may();
	a_file_goes_out_as_memory_does();
	what_a_file_does_not_hold_any_more_arrives_as_zeros();
	many_transfers_share_a_link();
	small_messages_overtake_bulk();
	memory_is_not_touched_after_it_was_retracted_from_a_read();
	memory_is_not_read_after_it_was_retracted_from_a_write();
	a_link_that_breaks_ends_its_transfers();
	a_transfer_starts_over_when_its_link_broke();
	a_peer_that_stalls_is_closed_after_the_timeout();
	an_idle_link_is_not_a_stalled_one();
	a_peer_that_does_not_read_is_closed_before_it_fills_the_memory();
	garbage_closes_only_its_own_link();
	local = false;
}

/* The origin of a local client is the same over TCP and over the Unix socket. */
static void the_shorter_way_begins_at_the_address_it_leads_to(void)
{
	const struct origin *from;
	struct ip_net loopback;
	char text[ORIGIN_TEXT];

	CHECK_EQ(ip_net_parse(&loopback, "127.0.0.1"), 0);
	for (int i = 0; i < 2; i++) {
		local = i;
		begin();
		ping();
		from = &list_first(&srv.net.links, struct link, in_net)->from;
		CHECK(from->local && ip_net_holds(&loopback, from));
		origin_format(text, from);
		CHECK_STR(text, "this host");
		end();
	}
	local = false;
}

static void a_dial_to_the_wildcard_address_comes_from_loopback(void)
{
	struct origin from = { 0 };
	struct ip_net v4, v6, other;

	net_world_start(&w, true);
	CHECK_EQ(ip_net_parse(&v4, "127.0.0.1"), 0);
	CHECK_EQ(ip_net_parse(&v6, "::1"), 0);
	CHECK_EQ(ip_net_parse(&other, "127.0.0.2"), 0);
	w.env.sock->origin_local(&w.env, "@127.0.0.2:7430", &from);
	CHECK(from.local && ip_net_holds(&other, &from));
	w.env.sock->origin_local(&w.env, "@0.0.0.0:7430", &from);
	CHECK(from.local && ip_net_holds(&v4, &from));
	w.env.sock->origin_local(&w.env, "@[::]:7430", &from);
	CHECK(from.local && ip_net_holds(&v6, &from));
	net_world_end(&w);
}

/* Forwards all received bytes from one socket to the other. */
static void pass_on(struct env *e, int from, int to)
{
	char b[4096];
	struct iovec iov = { b, sizeof(b) };
	ssize_t r = e->sock->readv(e, from, &iov, 1);

	iov.iov_len = (size_t)r;
	if (r > 0)
		CHECK_EQ(e->sock->writev(e, to, &iov, 1), r);
}

/* Another process listens on the Unix socket: it hangs up, sends garbage, says nothing, or relays
 * everything to the server and back. */
static void a_stranger_on_the_unix_socket_does_not_block_clients(void)
{
	enum { HANGS_UP, TALKS, IS_SILENT, PASSES_ON };
	static const char rubbish[] =
		"220 mail.example.org ESMTP\r\n220 mail.example.org ESMTP\r\n";

	for (int how = HANGS_UP; how <= PASSES_ON; how++) {
		char name[CONF_ADDR_MAX + 1], err[8];
		int seat, fd = -1, behind = -1;
		struct env *e = &w.env;
		uint64_t began;
		struct toy_call a;

		begin();
		snprintf(name, sizeof(name), "@%s", cli.peer.address);
		seat = e->sock->listen(e, name, err, sizeof(err));
		CHECK(seat >= 0);
		CHECK_EQ(net_listen_local(&srv.net, cli.peer.address), -EADDRINUSE);
		began = time_now();
		toy_call_start(&a, &cli.peer, OP_PING, false);
		while (!a.over) {
			if (fd < 0 && (fd = e->sock->accept(e, seat)) >= 0) {
				if (how == HANGS_UP)
					CHECK_EQ(shutdown(fd, SHUT_RDWR), 0);
				if (how == TALKS)
					CHECK(write(fd, rubbish, sizeof(rubbish)) > 0);
				if (how == PASSES_ON)
					behind = e->sock->connect(e, cli.peer.address);
			}
			if (behind >= 0) {
				pass_on(e, fd, behind);
				pass_on(e, behind, fd);
			}
			net_world_turn(&w);
		}
		CHECK_EQ(a.error, 0);
		CHECK(fd >= 0);
		CHECK_STR(peer_medium(&cli.peer), "tcp");
		CHECK(cli.peer.routes.row[0].error);
		/* the timeout of a handshake is 5 s */
		CHECK(time_now() - began < 4 * NSEC_PER_SEC);
		e->sock->close(e, fd);
		e->sock->close(e, behind);
		e->sock->close(e, seat);
		end();
	}
}

/* A link stays on its route. The Unix socket, which was missing at first, is used by the first dial
 * after its retry time. */
static void a_better_route_is_used_again_after_its_retry_time(void)
{
	struct route *better = &cli.peer.routes.row[0];

	begin();
	ping();
	CHECK_EQ(better->error, -ECONNREFUSED);
	CHECK(better->retry_at > w.loop.now);
	listen_local(cli.peer.address);
	link_close(cli.peer.link, -ECONNRESET);
	ping(); /* by TCP: the retry time has not come */
	CHECK_EQ(better->error, -ECONNREFUSED);
	better->retry_at = w.loop.now;
	local = true;
	link_close(cli.peer.link, -ECONNRESET);
	ping();
	CHECK_EQ(better->error, 0);
	local = false;
	end();
}

/* Reports another user at the two ends of a socket, as if the dialling process were not the one
 * that the server sees. */
static uint32_t other_user(struct env *e, int fd)
{
	(void)e;
	return fd < 0 ? 1000 : 1001;
}

static void a_relay_that_runs_as_another_user_is_detected(void)
{
	struct sock_ops ops;
	struct toy_call a;

	local = true;
	begin();
	ops = *w.env.sock;
	ops.user = other_user;
	w.env.sock = &ops;
	toy_call_start(&a, &cli.peer, OP_PING, false);
	net_world_until(&w, &a.over);
	CHECK_EQ(a.error, 0);
	CHECK_STR(peer_medium(&cli.peer), "tcp");
	CHECK_EQ(cli.net.bad_links, 1); /* the proof was not valid */
	local = false;
	end();
}

TEST_MAIN(TEST(a_call_goes_over_the_wire), TEST(a_message_costs_no_further_wakeup),
	  TEST(a_new_message_follows_no_data), TEST(two_replies_behind_the_same_data_are_freed),
	  TEST(both_ends_count_the_messages_of_their_links), TEST(links_of_a_server_take_turns),
	  TEST(scattered_memory_of_many_shapes_arrives_in_its_place),
	  TEST(what_is_got_goes_to_the_better_place_while_it_may),
	  TEST(a_file_goes_out_as_memory_does),
	  TEST(what_a_file_does_not_hold_any_more_arrives_as_zeros),
	  TEST(many_transfers_share_a_link), TEST(small_messages_overtake_bulk),
	  TEST(memory_is_not_touched_after_it_was_retracted_from_a_read),
	  TEST(memory_is_not_read_after_it_was_retracted_from_a_write),
	  TEST(a_link_that_breaks_ends_its_transfers),
	  TEST(a_transfer_starts_over_when_its_link_broke),
	  TEST(a_peer_that_stalls_is_closed_after_the_timeout),
	  TEST(an_idle_link_is_not_a_stalled_one),
	  TEST(a_peer_that_does_not_read_is_closed_before_it_fills_the_memory),
	  TEST(garbage_closes_only_its_own_link),
	  TEST(a_dial_to_the_wildcard_address_comes_from_loopback),
	  TEST(all_that_works_by_tcp_works_by_the_shorter_way),
	  TEST(a_peer_that_reads_in_drops_is_closed),
	  TEST(a_relay_that_runs_as_another_user_is_detected),
	  TEST(a_better_route_is_used_again_after_its_retry_time),
	  TEST(the_shorter_way_begins_at_the_address_it_leads_to),
	  TEST(a_stranger_on_the_unix_socket_does_not_block_clients))
