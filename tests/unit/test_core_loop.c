/* The loop: timers, the step machine, the line of the pool, sources, wake-ups and sockets. */
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "test_req.h"

static struct loop loop;

static void begin(void)
{
	CHECK_EQ(loop_init(&loop, env_real()), 0);
}

/* ---- timers and deferred callbacks ---- */

static char fired[64];
struct letter {
	struct timer timer;
	struct deferred deferred;
	char c;
	struct letter *defers;
};

static void write_down(char c)
{
	size_t n = strlen(fired);

	fired[n] = c;
	fired[n + 1] = 0;
}

static void fire(struct timer *t)
{
	write_down(container_of(t, struct letter, timer)->c);
}

static void run_deferred(struct deferred *deferred)
{
	struct letter *l = container_of(deferred, struct letter, deferred);

	write_down(l->c);
	if (l->defers)
		loop_defer(&loop, &l->defers->deferred);
}

static void the_last_callback_runs_after_all_deferred_ones(void)
{
	struct letter l[5];

	begin();
	fired[0] = 0;
	for (int i = 0; i < 5; i++) {
		l[i] = (struct letter){ .deferred.run = run_deferred, .c = (char)('a' + i) };
		list_init(&l[i].deferred.link);
	}
	l[1].defers = &l[4];
	loop_defer(&loop, &l[0].deferred);
	loop_defer_last(&loop, &l[1].deferred);
	loop_defer_last(&loop, &l[2].deferred);
	loop_defer(&loop, &l[3].deferred);
	loop_defer_last(&loop, &l[0].deferred); /* moved */
	loop_defer(&loop, &l[2].deferred); /* stays last */
	CHECK_EQ(loop_wait_ns(&loop), 0);
	loop_turn(&loop, NSEC_PER_SEC);
	CHECK_STR(fired, "dbeca");
	CHECK_EQ(loop_wait_ns(&loop), UINT64_MAX);
	loop_fini(&loop);
}

static void turn_until(size_t n)
{
	while (strlen(fired) < n)
		loop_turn(&loop, NSEC_PER_SEC);
}

static void timers_fire_in_order_of_time_then_of_setting(void)
{
	struct letter t[5];
	uint64_t now;

	begin();
	fired[0] = 0;
	now = loop.env->clock->now(loop.env);
	for (int i = 0; i < 5; i++)
		t[i] = (struct letter){ .timer.fire = fire, .c = (char)('a' + i) };
	timer_set(&loop, &t[0].timer, now + 3 * NSEC_PER_MSEC);
	timer_set(&loop, &t[1].timer, now + 1 * NSEC_PER_MSEC);
	timer_set(&loop, &t[2].timer, now + 2 * NSEC_PER_MSEC);
	timer_set(&loop, &t[3].timer, now + 2 * NSEC_PER_MSEC);
	timer_set(&loop, &t[4].timer, now + 1 * NSEC_PER_MSEC);
	timer_set(&loop, &t[1].timer, now + 4 * NSEC_PER_MSEC); /* moved */
	timer_del(&loop, &t[4].timer);
	timer_del(&loop, &t[4].timer);
	turn_until(4);
	CHECK_STR(fired, "cdab");
	CHECK(loop.env->clock->now(loop.env) >= now + 4 * NSEC_PER_MSEC);
	CHECK_EQ(loop_wait_ns(&loop), UINT64_MAX);
	loop_fini(&loop);
}

static void many_timers_stay_sorted(void)
{
	static struct letter t[500];
	uint64_t seed = 7, last = 0;

	begin();
	for (int i = 0; i < 500; i++) {
		t[i] = (struct letter){ .timer.fire = fire };
		timer_set(&loop, &t[i].timer, 1 + test_random(&seed) % 1000);
	}
	for (int i = 0; i < 500; i += 3)
		timer_del(&loop, &t[i].timer);
	while (loop.n_heap) {
		struct timer *first = loop.heap[0];

		CHECK(first->when >= last);
		last = first->when;
		timer_del(&loop, first);
	}
	loop_fini(&loop);
}

/* ---- step machine ---- */

struct walk {
	struct req req;
	char path[32];
	int fail_at;
	struct req *held;
};

static bool walk_step(struct req *q)
{
	struct walk *w = container_of(q, struct walk, req);
	size_t n = strlen(w->path);

	w->path[n] = (char)('0' + q->state);
	w->path[n + 1] = 0;
	if (q->state == 4) {
		req_fini(q);
		return false;
	}
	req_goto(q, (uint16_t)(q->state + 1));
	req_hold(q);
	req_hold(q);
	req_done(q, w->fail_at == q->state - 1 ? -EIO : 0, 5); /* completes inline */
	if (q->state == 2)
		w->held = q; /* completes later */
	else
		req_done(q, w->fail_at == q->state - 1 ? -ENOSPC : 0, 1);
	return true;
}

static const struct req_ops walk_ops = {
	.name = "walk", .step = walk_step, .on_error = 3, .n_states = 5
};

static void a_request_walks_its_states_and_waits_for_what_it_started(void)
{
	struct walk w = { .fail_at = -1 };

	begin();
	req_init(&w.req, &loop, &walk_ops, 0);
	CHECK_EQ(loop.n_reqs, 1);
	req_run(&w.req);
	CHECK_STR(w.path, "01");
	loop_turn(&loop, 0);
	CHECK_STR(w.path, "01");
	req_done(w.held, 0, 1);
	loop_turn(&loop, 0);
	CHECK_STR(w.path, "01234");
	CHECK_EQ(w.req.bytes, 4 * 6);
	CHECK_EQ(loop.n_reqs, 0);
	loop_fini(&loop);
}

static void the_first_error_wins_and_jumps_to_the_answer(void)
{
	struct walk w = { .fail_at = 0 };

	begin();
	req_init(&w.req, &loop, &walk_ops, 0);
	req_run(&w.req);
	CHECK_STR(w.path, "034");
	CHECK_EQ(w.req.error, -EIO);
	loop_fini(&loop);
}

static void an_error_after_the_answer_state_does_not_go_back(void)
{
	struct walk w = { .fail_at = 3 };

	begin();
	req_init(&w.req, &loop, &walk_ops, 2);
	req_run(&w.req);
	CHECK_STR(w.path, "234");
	loop_fini(&loop);
}

/* ---- pool ---- */

struct taker {
	struct test_req req;
	struct buf buf;
	struct pool_share *share;
	size_t len;
};

static struct pool pool;

static void take(struct test_req *t, struct req *q)
{
	struct taker *k = container_of(t, struct taker, req);

	buf_get(&pool, k->share, &k->buf, k->len, q);
}

static void taker_start_in(struct taker *k, struct pool_share *s, size_t units)
{
	k->len = units * BUF_UNIT;
	k->share = s;
	test_req_start(&k->req, &loop, take, NULL);
	loop_turn(&loop, 0);
}

static void taker_start(struct taker *k, size_t units)
{
	taker_start_in(k, NULL, units);
}

static void the_pool_grants_all_or_nothing_first_come_first_served(void)
{
	struct taker a, b, c;

	begin();
	CHECK_EQ(pool_init(&pool, &loop, BUF_MAX_UNITS * BUF_UNIT), 0);
	taker_start(&a, 10);
	CHECK(a.req.over);
	CHECK_EQ(iov_total(a.buf.iov, a.buf.n), 10 * BUF_UNIT);
	taker_start(&b, 8);
	taker_start(&c, 1); /* enough memory is free, but b waits before it */
	CHECK(!b.req.over && !c.req.over);
	CHECK_EQ(pool.n_waits, 2);
	buf_put(&a.buf);
	loop_turn(&loop, 0);
	CHECK(b.req.over && c.req.over);
	buf_put(&b.buf);
	buf_put(&b.buf);
	buf_put(&c.buf);
	CHECK_EQ(pool.n_free, pool.n_units);
	pool_fini(&pool);
	loop_fini(&loop);
}

/* 64 units: a share that holds memory may have eight, and the last sixteen are reserved for shares
 * that hold nothing. */
static void one_share_cannot_take_the_whole_pool(void)
{
	static struct pool_share slow[8], honest[2];
	static struct taker hog[8][4], a, b, c, d;
	int got = 0;

	begin();
	CHECK_EQ(pool_init(&pool, &loop, 64 * BUF_UNIT), 0);
	for (int i = 0; i < 8; i++) {
		pool_share_init(&slow[i]);
		for (int k = 0; k < 4; k++) { /* these shares never release memory */
			taker_start_in(&hog[i][k], &slow[i], 4);
			got += hog[i][k].req.over;
		}
		CHECK(slow[i].held <= 8);
	}
	/* six shares hold their limit; two hold one buffer each, from the reserve */
	CHECK_EQ(got, 14);
	CHECK_EQ(pool.n_free, 8);
	CHECK_EQ(pool.n_holders, 8);
	CHECK_EQ(pool.n_waits, 6); /* a share at its limit waits for its own buffers */
	CHECK(!list_empty(&pool.waiting));
	pool_share_init(&honest[0]);
	pool_share_init(&honest[1]);
	/* holds nothing yet: passes the shares that hold memory */
	taker_start_in(&a, &honest[0], 4);
	CHECK(a.req.over);
	taker_start_in(&b, &honest[0], 1); /* the share holds memory now */
	CHECK(!b.req.over);
	taker_start_in(&c, &honest[1], 4);
	CHECK(c.req.over);
	CHECK_EQ(pool.n_free, 0);
	taker_start(&d, 1); /* the common share waits only for free memory */
	CHECK(!d.req.over);
	buf_put(&a.buf);
	loop_turn(&loop, 0);
	CHECK(b.req.over && d.req.over);
	buf_put(&b.buf);
	buf_put(&c.buf);
	buf_put(&d.buf);
	for (int i = 0; i < 8; i++) { /* the slow shares release memory: their waits are granted */
		for (int k = 0; k < 4; k++) {
			loop_turn(&loop, 0);
			CHECK(hog[i][k].req.over);
			buf_put(&hog[i][k].buf);
		}
		CHECK_EQ(slow[i].held, 0);
		CHECK_EQ(pool.n_holders, 7 - i);
	}
	CHECK_EQ(pool.n_free, pool.n_units);
	CHECK(list_empty(&pool.waiting));
	pool_fini(&pool);
	loop_fini(&loop);
}

/* ---- sources ---- */

static struct source pipes[2];
static int n_ready;

static void forget_the_other(struct source *s, unsigned events)
{
	struct source *other = s == &pipes[0] ? &pipes[1] : &pipes[0];

	CHECK(events & EV_IN);
	n_ready++;
	loop.env->sock->watch(loop.env, &loop, other, 0);
	memset(other, 0xff, sizeof(*other)); /* as if freed */
}

static void a_source_forgotten_in_the_same_batch_is_not_called(void)
{
	int p[2][2];

	begin();
	n_ready = 0;
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pipe(p[i]), 0);
		pipes[i] = (struct source){ .fd = p[i][0], .ready = forget_the_other };
		CHECK_EQ(loop.env->sock->watch(loop.env, &loop, &pipes[i], EV_IN), 0);
		CHECK_EQ(write(p[i][1], "x", 1), 1);
	}
	CHECK_EQ(loop.env->sock->poll(loop.env, &loop, 0), 2);
	loop.env->sock->dispatch(loop.env, &loop);
	CHECK_EQ(n_ready, 1);
	for (int i = 0; i < 2; i++) {
		close(p[i][0]);
		close(p[i][1]);
	}
	loop_fini(&loop);
}

static void *wake_soon(void *arg)
{
	loop_wake(arg);
	loop_wake(arg);
	return NULL;
}

static void a_wake_from_another_thread_ends_the_wait_once(void)
{
	pthread_t thread;

	begin();
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(pthread_create(&thread, NULL, wake_soon, &loop), 0);
		loop_turn(&loop, UINT64_MAX);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		loop_turn(&loop, 0);
	}
	CHECK_EQ(loop.env->sock->poll(loop.env, &loop, 0), 0);
	loop_fini(&loop);
	/* waking a loop that has ended is harmless */
	loop_wake(&(struct loop){ .env = env_real() });
}

static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static int n_driven; /* protected by the driver's lock */

static void drain_one(struct source *s, unsigned events)
{
	char c;

	(void)events;
	CHECK_EQ(read(s->fd, &c, 1), 1);
	n_driven++;
}

static void *drive(void *arg)
{
	struct loop *l = arg;
	bool more = true;

	while (more) {
		l->env->sock->poll(l->env, l, NSEC_PER_SEC);
		pthread_mutex_lock(&driver);
		l->env->sock->dispatch(l->env, l);
		more = n_driven < 1000;
		pthread_mutex_unlock(&driver);
	}
	return NULL;
}

/* As in the client: one thread waits without the lock while another adds and removes sources under
 * it. */
static void sources_come_and_go_while_another_thread_waits(void)
{
	pthread_t thread;
	int p[2], old = 0;

	begin();
	n_driven = 0;
	CHECK_EQ(pipe(p), 0);
	CHECK_EQ(pthread_create(&thread, NULL, drive, &loop), 0);
	while (old < 1000) {
		struct source *s = malloc(sizeof(*s));

		CHECK(s);
		*s = (struct source){ .fd = p[0], .ready = drain_one };
		pthread_mutex_lock(&driver);
		CHECK_EQ(loop.env->sock->watch(loop.env, &loop, s, EV_IN), 0);
		CHECK_EQ(write(p[1], "x", 1), 1);
		pthread_mutex_unlock(&driver);
		sched_yield();
		pthread_mutex_lock(&driver);
		loop.env->sock->watch(loop.env, &loop, s, 0);
		old = n_driven;
		pthread_mutex_unlock(&driver);
		free(s);
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	close(p[0]);
	close(p[1]);
	loop_fini(&loop);
}

static void a_wait_lasts_as_long_as_asked_even_below_a_millisecond(void)
{
	uint64_t t0, took;

	begin();
	t0 = loop.env->clock->now(loop.env);
	CHECK_EQ(loop.env->sock->poll(loop.env, &loop, 200000), 0);
	took = loop.env->clock->now(loop.env) - t0;
	CHECK(took >= 200000);
	loop_fini(&loop);
}

/* ---- sockets ---- */

static unsigned seen;

static void note(struct source *s, unsigned events)
{
	(void)s;
	seen |= events;
}

static void wait_for(int fd, unsigned events)
{
	struct source s = { .fd = fd, .ready = note };

	seen = 0;
	CHECK_EQ(loop.env->sock->watch(loop.env, &loop, &s, events), 0);
	while (!seen)
		loop_turn(&loop, NSEC_PER_SEC);
	loop.env->sock->watch(loop.env, &loop, &s, 0);
}

/* Finds a port without a listener: the kernel chooses it for a socket that is closed again. */
static int listen_somewhere(const char *host, char *address, size_t n)
{
	char err[256] = "";
	uint64_t r;

	for (int i = 0; i < 50; i++) {
		int fd;

		r = env_random_u64(env_real());
		snprintf(address, n, "%s:%u", host, (unsigned)(20000 + r % 10000));
		fd = loop.env->sock->listen(loop.env, address, err, sizeof(err));
		if (fd != -EADDRINUSE)
			return fd;
	}
	return -EADDRINUSE;
}

static void talk_over(const char *host)
{
	const struct sock_ops *s = env_real()->sock;
	char address[64], err[256], got[6] = "";
	struct iovec out[2] = { { "hel", 3 }, { "lo", 2 } }, in = { got, 5 };
	int l, c, a;

	begin();
	l = listen_somewhere(host, address, sizeof(address));
	if (l == -EADDRNOTAVAIL || l == -EAFNOSUPPORT) { /* IPv6 is not available */
		loop_fini(&loop);
		return;
	}
	CHECK(l >= 0);
	CHECK_EQ(s->accept(loop.env, l), -EAGAIN);
	CHECK_EQ(s->listen(loop.env, address, err, sizeof(err)), -EADDRINUSE);
	CHECK(strstr(err, address) && strstr(err, "already in use"));
	c = s->connect(loop.env, address);
	CHECK(c >= 0);
	wait_for(c, EV_OUT);
	CHECK_EQ(s->connect_result(loop.env, c), 0);
	wait_for(l, EV_IN);
	a = s->accept(loop.env, l);
	CHECK(a >= 0);
	CHECK_EQ(s->readv(loop.env, a, &in, 1), -EAGAIN);
	CHECK_EQ(s->writev(loop.env, c, out, 2), 5);
	wait_for(a, EV_IN);
	CHECK_EQ(s->readv(loop.env, a, &in, 1), 5);
	CHECK_STR(got, "hello");
	s->close(loop.env, c);
	wait_for(a, EV_IN);
	CHECK_EQ(s->readv(loop.env, a, &in, 1), 0);
	s->writev(loop.env, a, out, 2); /* the second write would raise SIGPIPE */
	do {
		wait_for(a, EV_OUT);
	} while (!(seen & EV_ERR));
	CHECK(s->writev(loop.env, a, out, 2) < 0);
	s->close(loop.env, a);
	s->close(loop.env, l);
	c = s->connect(loop.env, address);
	if (c >= 0) {
		wait_for(c, EV_OUT);
		CHECK_EQ(s->connect_result(loop.env, c), -ECONNREFUSED);
		s->close(loop.env, c);
	}
	loop_fini(&loop);
}

static void sockets_talk_over_ipv4_and_ipv6(void)
{
	talk_over("127.0.0.1");
	talk_over("[::1]");
	talk_over("localhost");
}

/* The kernel may choose the destination port as the source port of a connection. */
static void tcp_self_connects_are_refused(void)
{
	const struct sock_ops *s = env_real()->sock;
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int c = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	begin();
	CHECK_EQ(bind(c, (struct sockaddr *)&a, len), 0);
	CHECK_EQ(getsockname(c, (struct sockaddr *)&a, &len), 0);
	CHECK_EQ(connect(c, (struct sockaddr *)&a, len), 0);
	CHECK_EQ(s->connect_result(loop.env, c), -ECONNREFUSED);
	s->close(loop.env, c);
	loop_fini(&loop);
}

static void addresses_that_make_no_sense_are_refused_in_words(void)
{
	const struct sock_ops *s = env_real()->sock;
	char err[256];

	CHECK_EQ(s->listen(env_real(), "nonsense", err, sizeof(err)), -EINVAL);
	CHECK(strstr(err, "HOST:PORT"));
	CHECK_EQ(s->listen(env_real(), "192.0.2.1:7430", err, sizeof(err)), -EADDRNOTAVAIL);
	CHECK(strstr(err, "not an address of this host"));
	CHECK(s->connect(env_real(), "[::1:5") < 0);
	CHECK(s->connect(env_real(), "127.0.0.1:") < 0);
}

TEST_MAIN(TEST(the_last_callback_runs_after_all_deferred_ones),
	  TEST(timers_fire_in_order_of_time_then_of_setting), TEST(many_timers_stay_sorted),
	  TEST(a_request_walks_its_states_and_waits_for_what_it_started),
	  TEST(the_first_error_wins_and_jumps_to_the_answer),
	  TEST(an_error_after_the_answer_state_does_not_go_back),
	  TEST(the_pool_grants_all_or_nothing_first_come_first_served),
	  TEST(one_share_cannot_take_the_whole_pool),
	  TEST(a_source_forgotten_in_the_same_batch_is_not_called),
	  TEST(a_wake_from_another_thread_ends_the_wait_once),
	  TEST(sources_come_and_go_while_another_thread_waits),
	  TEST(a_wait_lasts_as_long_as_asked_even_below_a_millisecond),
	  TEST(sockets_talk_over_ipv4_and_ipv6), TEST(tcp_self_connects_are_refused),
	  TEST(addresses_that_make_no_sense_are_refused_in_words))
