/* The table of RDMA (core/fabric.h) on a real device: work requests, failures, and what is dropped.
 *
 * Needs a device with RDMA; Soft-RoCE does. SHEAF_TEST_RDMA names it, or two that reach each other:
 * "rxe0 rxe1". Both ends are in this process and have a loop in common. SHEAF_TEST_RDMA_LINK names
 * the network interface of the first device: it is then taken down and up. */
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/core.h"
#include "core/fabric.h"
#include "test.h"
#include "test_process.h"

#define BYTES (4 * MIB) /* registered memory of an end */
#define RECEIVES 64
#define RECEIVE_BYTES 1024
#define INBOX (BYTES - RECEIVES * RECEIVE_BYTES) /* where receives arrive */
#define SENDS 1024
#define QPS 5 /* most of an end */

struct end {
	struct fabric *f;
	struct fabric_qp *q[QPS];
	struct fabric_addr addr[QPS];
	uint8_t *bytes;
	struct fabric_mem mem;
	bool is_ready;
};

static const struct fabric_ops *fabric;
static struct env *env;
static struct loop loop;
static struct end near, far;
static int owners[2 * QPS]; /* only their addresses matter */

/* ---- two ends that are connected ---- */

static void ready(void *arg)
{
	struct end *e = arg;

	e->is_ready = true;
}

static int try_open(const char *device, struct end *e, char *why, size_t n)
{
	struct fabric_want want = { .gid_index = -1 };

	snprintf(want.device, sizeof(want.device), "%s", device);
	return fabric->open(env, &loop, &want, ready, e, &e->f, why, n);
}

/* Its own pages: one end's registration does not count the other's. */
static void end_open(struct end *e, const char *device, unsigned rights)
{
	char why[256] = "";

	*e = (struct end){ 0 };
	if (try_open(device, e, why, sizeof(why)) < 0) {
		fprintf(stderr, "%s\n", why);
		CHECK(false);
	}
	e->bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(e->bytes != MAP_FAILED);
	CHECK_EQ(fabric->mem_make(e->f, e->bytes, BYTES, rights, &e->mem), 0);
	CHECK(!fabric->trouble(e->f));
}

/* The QP number i of each end, connected to each other. */
static void connect_ends(int i, uint32_t sends)
{
	CHECK_EQ(fabric->qp_make(near.f, sends, &owners[i], &near.q[i], &near.addr[i]), 0);
	CHECK_EQ(fabric->qp_make(far.f, sends, &owners[QPS + i], &far.q[i], &far.addr[i]), 0);
	CHECK_EQ(fabric->qp_connect(near.q[i], &far.addr[i]), 0);
	CHECK_EQ(fabric->qp_connect(far.q[i], &near.addr[i]), 0);
}

static void post_receives(struct end *e, uint32_t first, uint32_t n)
{
	struct fabric_receive r[RECEIVES];

	for (uint32_t i = 0; i < n; i++)
		r[i] = (struct fabric_receive){
			.id = first + i,
			.addr = e->bytes + INBOX + (first + i) % RECEIVES * RECEIVE_BYTES,
			.len = RECEIVE_BYTES,
			.lkey = e->mem.lkey,
		};
	CHECK_EQ(fabric->receive(e->f, r, n), 0);
}

static void ends_open(void)
{
	const char *wish = getenv("SHEAF_TEST_RDMA");
	char first[64] = "", second[64] = "";

	if (wish && sscanf(wish, "%63s %63s", first, second) < 2)
		strcpy(second, first);
	loop_init(&loop, env);
	end_open(&near, first, FABRIC_LOCAL_WRITE | FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	end_open(&far, second, FABRIC_LOCAL_WRITE | FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE);
	connect_ends(0, SENDS);
	post_receives(&far, 0, RECEIVES);
	post_receives(&near, 0, RECEIVES);
}

static void qp_drop(struct end *e, int i)
{
	if (e->q[i])
		fabric->qp_drop(e->q[i]);
	e->q[i] = NULL;
}

static void end_close(struct end *e)
{
	for (int i = 0; i < QPS; i++)
		qp_drop(e, i);
	fabric->mem_drop(e->f, &e->mem);
	fabric->close(e->f);
	munmap(e->bytes, BYTES);
}

static void ends_close(void)
{
	end_close(&near);
	end_close(&far);
	loop_fini(&loop);
}

/* ---- completions ---- */

/* Waits without polling all the time: arms, then turns the loop until ready() was called. */
static size_t take(struct end *e, struct fabric_completion *out, size_t max)
{
	uint64_t end = env->clock->now(env) + PATIENCE_S * NSEC_PER_SEC;
	size_t n;

	while (!(n = fabric->poll(e->f, out, max))) {
		e->is_ready = false;
		if (fabric->arm(e->f))
			continue;
		while (!e->is_ready) {
			loop_turn(&loop, PATIENCE_S * NSEC_PER_SEC);
			CHECK(env->clock->now(env) < end);
		}
	}
	return n;
}

static struct fabric_completion take_one(struct end *e)
{
	struct fabric_completion c;

	CHECK_EQ(take(e, &c, 1), 1);
	return c;
}

static void expect_none(struct end *e)
{
	struct fabric_completion c;

	CHECK_EQ(fabric->poll(e->f, &c, 1), 0);
}

static void expect_sent(struct end *e, uint64_t id, int error)
{
	struct fabric_completion c = take_one(e);

	CHECK_EQ(c.event, FABRIC_SENT);
	CHECK_EQ(c.error, error);
	CHECK_EQ(c.id, id);
}

/* ---- work requests ---- */

static struct fabric_sge piece(const struct end *e, size_t at, size_t len)
{
	return (struct fabric_sge){ e->bytes + at, (uint32_t)len, e->mem.lkey };
}

/* To or from the same place of the other end's memory plus `to`. */
static struct fabric_wr rdma(enum fabric_op op, const struct fabric_sge *s, uint32_t n, size_t to,
			     uint64_t id)
{
	return (struct fabric_wr){ .op = op,
				   .is_signalled = true,
				   .id = id,
				   .sge = s,
				   .n_sge = n,
				   .remote = (uintptr_t)far.bytes + to,
				   .rkey = far.mem.rkey };
}

static struct fabric_wr send_of(const struct fabric_sge *s, uint64_t id)
{
	return (struct fabric_wr){
		.op = FABRIC_SEND, .is_signalled = true, .id = id, .sge = s, .n_sge = 1
	};
}

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)test_random(&seed);
}

static void post(struct end *e, const struct fabric_wr *wr, size_t n)
{
	CHECK_EQ(fabric->post(e->q[0], wr, n), 0);
}

/* Sends one message each way. */
static void expect_alive(int i)
{
	struct fabric_sge s = piece(&near, 100, 50), t = piece(&far, 100, 50);
	struct fabric_wr a = send_of(&s, 1), b = send_of(&t, 2);

	CHECK_EQ(fabric->post(near.q[i], &a, 1), 0);
	CHECK_EQ(take_one(&far).owner == &owners[QPS + i], true);
	expect_sent(&near, 1, 0);
	CHECK_EQ(fabric->post(far.q[i], &b, 1), 0);
	CHECK_EQ(take_one(&near).owner == &owners[i], true);
	expect_sent(&far, 2, 0);
}

/* ---- data ---- */

static void a_send_arrives_in_a_receive(void)
{
	struct fabric_completion c;
	struct fabric_sge s;
	struct fabric_wr wr;

	ends_open();
	s = piece(&near, 0, 1000);
	wr = send_of(&s, 77);
	fill(near.bytes, 1000, 1);
	post(&near, &wr, 1);
	c = take_one(&far);
	CHECK_EQ(c.event, FABRIC_RECEIVED);
	CHECK_EQ(c.error, 0);
	CHECK_EQ(c.len, 1000);
	CHECK(c.owner == &owners[QPS] && c.id < RECEIVES);
	CHECK_EQ(memcmp(far.bytes + INBOX + c.id * RECEIVE_BYTES, near.bytes, 1000), 0);
	c = take_one(&near);
	CHECK(c.owner == &owners[0] && c.event == FABRIC_SENT && c.id == 77 && !c.error);
	ends_close();
}

/* n WRITEs of 1000 bytes without completions, then a SEND. */
static void check_chain(size_t n)
{
	struct fabric_wr *wr = calloc(n + 1, sizeof(*wr));
	struct fabric_sge *s = calloc(n + 1, sizeof(*s));

	fill(near.bytes, n * 1000, n);
	for (size_t i = 0; i < n; i++) {
		s[i] = piece(&near, i * 1000, 1000);
		wr[i] = rdma(FABRIC_WRITE, &s[i], 1, (n - 1 - i) * 1000, i);
		wr[i].is_signalled = false;
	}
	s[n] = piece(&near, 0, 8);
	wr[n] = send_of(&s[n], 9999);
	post(&near, wr, n + 1);
	CHECK_EQ(take_one(&far).event, FABRIC_RECEIVED);
	for (size_t i = 0; i < n; i++)
		CHECK_EQ(memcmp(far.bytes + (n - 1 - i) * 1000, near.bytes + i * 1000, 1000), 0);
	expect_sent(&near, 9999, 0);
	expect_none(&near);
	expect_none(&far);
	free(wr);
	free(s);
}

static void a_chain_of_writes_arrives_before_the_send_with_one_completion(void)
{
	ends_open();
	for (int i = 0; i < 10; i++)
		check_chain(128);
	ends_close();
}

static void a_chain_longer_than_a_doorbell_arrives(void)
{
	ends_open();
	check_chain(600);
	check_chain(SENDS - 1);
	check_chain(SENDS - 1); /* the queue is empty again */
	ends_close();
}

static void a_write_with_immediate_takes_a_receive(void)
{
	struct fabric_sge s;
	struct fabric_wr wr[2];
	struct fabric_completion c;

	ends_open();
	s = piece(&near, 0, 50000);
	fill(near.bytes, 50000, 3);
	wr[0] = rdma(FABRIC_WRITE_IMM, &s, 1, 100000, 1);
	wr[0].imm = 0x12345678;
	wr[1] = rdma(FABRIC_WRITE_IMM, NULL, 0, 0, 2);
	wr[1].imm = 0x9abcdef0;
	post(&near, wr, 2);
	c = take_one(&far);
	CHECK(c.event == FABRIC_RECEIVED_IMM && c.imm == 0x12345678 && c.len == 50000);
	CHECK_EQ(memcmp(far.bytes + 100000, near.bytes, 50000), 0);
	c = take_one(&far);
	CHECK(c.event == FABRIC_RECEIVED_IMM && c.imm == 0x9abcdef0 && !c.error);
	expect_sent(&near, 1, 0);
	expect_sent(&near, 2, 0);
	ends_close();
}

static void gathers_and_scatters_of_the_most_pieces(void)
{
	struct fabric_sge s[FABRIC_SGES];
	struct fabric_wr wr;
	uint32_t n;

	ends_open();
	n = fabric->caps(near.f)->sge_max;
	CHECK(n > 0 && n <= FABRIC_SGES);
	fill(near.bytes, 300000, 4);
	for (uint32_t i = 0; i < n; i++)
		s[i] = piece(&near, 9000 * i, 100 + 7 * i);
	wr = rdma(FABRIC_WRITE, s, n, 5, 1);
	post(&near, &wr, 1);
	expect_sent(&near, 1, 0);
	for (uint32_t i = 0, at = 5; i < n; at += s[i++].len)
		CHECK_EQ(memcmp(far.bytes + at, near.bytes + 9000 * i, s[i].len), 0);
	fill(far.bytes, 300000, 5);
	wr = rdma(FABRIC_READ, s, n, 11, 2);
	post(&near, &wr, 1);
	expect_sent(&near, 2, 0);
	for (uint32_t i = 0, at = 11; i < n; at += s[i++].len)
		CHECK_EQ(memcmp(far.bytes + at, near.bytes + 9000 * i, s[i].len), 0);
	ends_close();
}

static void many_reads_are_in_progress_at_once(void)
{
	struct fabric_sge s[200];
	struct fabric_wr wr[200];

	ends_open();
	fill(far.bytes, MIB, 6);
	for (size_t i = 0; i < ARRAY_LEN(wr); i++) {
		s[i] = piece(&near, 5000 * i, 5000);
		wr[i] = rdma(FABRIC_READ, &s[i], 1, 5000 * i, i);
	}
	post(&near, wr, ARRAY_LEN(wr));
	for (size_t i = 0; i < ARRAY_LEN(wr); i++)
		expect_sent(&near, i, 0);
	CHECK_EQ(memcmp(near.bytes, far.bytes, 5000 * ARRAY_LEN(wr)), 0);
	ends_close();
}

/* Five QPs, whose sends do not fit into one CQ, with chains of random lengths: each signalled work
 * request has one completion, in order. */
static void no_completion_of_ten_thousand_is_lost(void)
{
	uint64_t posted[QPS] = { 0 }, seen[QPS] = { 0 }, seed = 7, n_seen = 0, n_posted = 0;
	struct fabric_completion c[100];
	struct fabric_wr wr[32];
	struct fabric_sge s;

	ends_open();
	s = piece(&near, 0, 64);
	for (int i = 1; i < QPS; i++)
		connect_ends(i, SENDS);
	while (n_posted < 10000 || n_seen < n_posted) {
		size_t n = 1 + test_random(&seed) % ARRAY_LEN(wr), q = test_random(&seed) % QPS;

		if (posted[q] - seen[q] + n <= SENDS / ARRAY_LEN(wr) && n_posted < 10000) {
			for (size_t i = 0; i < n; i++) {
				wr[i] = rdma(FABRIC_WRITE, &s, 1, 64 * q, posted[q]);
				wr[i].is_signalled = i + 1 == n || test_random(&seed) % 2;
				posted[q] += wr[i].is_signalled;
				n_posted += wr[i].is_signalled;
			}
			CHECK_EQ(fabric->post(near.q[q], wr, n), 0);
			continue;
		}
		n = take(&near, c, 1 + test_random(&seed) % ARRAY_LEN(c));
		for (size_t i = 0; i < n; i++) {
			q = (size_t)((int *)c[i].owner - owners);
			CHECK(q < QPS && c[i].event == FABRIC_SENT && !c[i].error);
			CHECK_EQ(c[i].id, seen[q]++);
		}
		n_seen += n;
	}
	expect_none(&near);
	ends_close();
}

static void no_receive_of_two_thousand_is_lost(void)
{
	struct fabric_sge s;
	struct fabric_wr wr;
	uint32_t sent = 0, got = 0, acked = 0;
	struct fabric_completion c;

	ends_open();
	s = piece(&near, 0, 4);
	while (got < 2000) {
		for (; sent < 2000 && sent - got < RECEIVES && sent - acked < RECEIVES; sent++) {
			memcpy(near.bytes + 4 * (sent % RECEIVES), &sent, 4);
			s.addr = near.bytes + 4 * (sent % RECEIVES);
			wr = send_of(&s, sent);
			post(&near, &wr, 1);
		}
		c = take_one(&far);
		CHECK(!c.error && c.len == 4);
		CHECK_EQ(memcmp(far.bytes + INBOX + c.id * RECEIVE_BYTES, &got, 4), 0);
		post_receives(&far, (uint32_t)c.id, 1);
		got++;
		expect_sent(&near, acked++, 0);
	}
	ends_close();
}

/* Their completions come from a CQ that did not exist when the device was armed. */
static void queue_pairs_made_after_arming_wake_the_loop(void)
{
	uint64_t end = env->clock->now(env) + PATIENCE_S * NSEC_PER_SEC;
	struct fabric_sge s;
	struct fabric_wr wr;

	ends_open();
	s = piece(&near, 0, 64);
	wr = rdma(FABRIC_WRITE, &s, 1, 0, 5);
	CHECK(!fabric->arm(near.f));
	for (int i = 1; i < QPS; i++)
		connect_ends(i, SENDS);
	near.is_ready = false;
	CHECK_EQ(fabric->post(near.q[QPS - 1], &wr, 1), 0);
	while (!near.is_ready) {
		loop_turn(&loop, PATIENCE_S * NSEC_PER_SEC);
		CHECK(env->clock->now(env) < end);
	}
	expect_sent(&near, 5, 0);
	ends_close();
}

/* ---- failures ---- */

static void a_wrong_key_stops_the_queue_pair(void)
{
	struct fabric_sge s;
	struct fabric_wr wr[10];
	struct fabric_completion c;

	ends_open();
	s = piece(&near, 0, 64);
	for (size_t i = 0; i < ARRAY_LEN(wr); i++) {
		wr[i] = rdma(FABRIC_WRITE, &s, 1, 1000 * i, i);
		wr[i].is_signalled = false;
	}
	wr[3].rkey ^= 0x5500;
	fill(near.bytes, 64, 8);
	post(&near, wr, ARRAY_LEN(wr));
	expect_sent(&near, 3, -EACCES);
	for (size_t i = 4; i < ARRAY_LEN(wr); i++)
		expect_sent(&near, i, -ECANCELED);
	expect_none(&near);
	for (size_t i = 0; i < ARRAY_LEN(wr); i++)
		CHECK_EQ(memcmp(far.bytes + 1000 * i, near.bytes, 64) == 0, i < 3);
	CHECK_EQ(fabric->post(near.q[0], wr, 1), -EIO);
	CHECK_EQ(fabric->poll(near.f, &c, 1), 0);
	connect_ends(1, SENDS); /* the receives are still posted */
	expect_alive(1);
	ends_close();
}

static void a_wrong_local_key_is_refused(void)
{
	struct fabric_sge s;
	struct fabric_wr wr;

	ends_open();
	s = piece(&near, 0, 64);
	s.lkey ^= 0x5500;
	wr = rdma(FABRIC_WRITE, &s, 1, 0, 1);
	if (fabric->post(near.q[0], &wr, 1) == 0)
		expect_sent(&near, 1, -EACCES);
	CHECK_EQ(fabric->post(near.q[0], &wr, 1), -EIO);
	ends_close();
}

static void memory_that_was_dropped_is_out_of_reach(void)
{
	struct fabric_mem other;
	struct fabric_sge s;
	struct fabric_wr wr;

	ends_open();
	s = piece(&near, 0, 64);
	CHECK_EQ(fabric->mem_make(far.f, far.bytes, 65536, FABRIC_REMOTE_WRITE, &other), 0);
	wr = rdma(FABRIC_WRITE, &s, 1, 0, 1);
	wr.rkey = other.rkey;
	post(&near, &wr, 1);
	expect_sent(&near, 1, 0);
	fabric->mem_drop(far.f, &other);
	fill(near.bytes, 64, 9);
	post(&near, &wr, 1);
	expect_sent(&near, 1, -EACCES);
	CHECK(memcmp(far.bytes, near.bytes, 64) != 0);
	ends_close();
}

static void rights_of_memory_are_enforced(void)
{
	struct fabric_mem other;
	struct fabric_sge s;
	struct fabric_wr wr;

	ends_open();
	s = piece(&near, 0, 64);
	CHECK_EQ(fabric->mem_make(far.f, far.bytes, 65536, FABRIC_REMOTE_READ, &other), 0);
	wr = rdma(FABRIC_READ, &s, 1, 0, 1);
	wr.rkey = other.rkey;
	post(&near, &wr, 1);
	expect_sent(&near, 1, 0);
	wr.op = FABRIC_WRITE;
	post(&near, &wr, 1);
	expect_sent(&near, 1, -EACCES);
	fabric->mem_drop(far.f, &other);
	ends_close();
}

static void an_aborted_queue_pair_flushes_what_is_outstanding(void)
{
	struct fabric_wr wr[100];
	struct fabric_sge s;
	struct fabric_completion c;
	uint64_t next = 0;

	ends_open();
	s = piece(&near, 0, MIB);
	for (size_t i = 0; i < ARRAY_LEN(wr); i++)
		wr[i] = rdma(FABRIC_WRITE, &s, 1, 0, i);
	post(&near, wr, ARRAY_LEN(wr));
	fabric->qp_abort(near.q[0]);
	do {
		c = take_one(&near);
		CHECK_EQ(c.id, next++);
		CHECK(!c.error || c.error == -ECANCELED);
	} while (next < ARRAY_LEN(wr));
	CHECK_EQ(c.error, -ECANCELED);
	expect_none(&near);
	ends_close();
}

/* The new QP has the number of the old one on some devices. */
static void a_dropped_queue_pair_has_no_completions(void)
{
	struct fabric_wr wr[64];
	struct fabric_sge s;

	ends_open();
	s = piece(&near, 0, 100000);
	for (size_t i = 0; i < ARRAY_LEN(wr); i++)
		wr[i] = rdma(FABRIC_WRITE, &s, 1, 0, 1000 + i);
	for (int round = 0; round < 5; round++) {
		post(&near, wr, ARRAY_LEN(wr));
		if (round % 2)
			CHECK_EQ(take_one(&near).id, 1000);
		qp_drop(&near, 0);
		memset(far.bytes, round, 100000);
		expect_none(&near);
		for (size_t i = 0; i < 100000; i++)
			CHECK_EQ(far.bytes[i], round);
		qp_drop(&far, 0);
		connect_ends(0, SENDS);
		expect_alive(0);
	}
	ends_close();
}

static void receives_of_a_dropped_queue_pair_have_no_owner(void)
{
	struct fabric_wr wr[10];
	struct fabric_sge s;

	ends_open();
	s = piece(&near, 0, 500);
	for (size_t i = 0; i < ARRAY_LEN(wr); i++)
		wr[i] = send_of(&s, i);
	post(&near, wr, ARRAY_LEN(wr));
	for (size_t i = 0; i < ARRAY_LEN(wr); i++)
		expect_sent(&near, i, 0);
	qp_drop(&far, 0);
	for (size_t i = 0; i < ARRAY_LEN(wr); i++) {
		struct fabric_completion c = take_one(&far);

		CHECK(c.event == FABRIC_RECEIVED && !c.owner);
		CHECK_EQ(c.id, i);
	}
	expect_none(&far);
	ends_close();
}

static void a_silent_peer_is_noticed(void)
{
	struct fabric_sge s;
	struct fabric_wr wr[2];

	ends_open();
	s = piece(&near, 0, 64);
	wr[0] = rdma(FABRIC_WRITE, &s, 1, 0, 1);
	wr[1] = rdma(FABRIC_WRITE, &s, 1, 0, 2);
	qp_drop(&far, 0);
	post(&near, wr, 2);
	expect_sent(&near, 1, -ETIMEDOUT);
	expect_sent(&near, 2, -ECANCELED);
	ends_close();
}

static void a_chain_that_does_not_fit_is_not_posted(void)
{
	struct fabric_wr *wr = calloc(SENDS, sizeof(*wr));
	struct fabric_sge s;

	ends_open();
	s = piece(&near, 0, 64);
	for (size_t i = 0; i < SENDS; i++) {
		wr[i] = rdma(FABRIC_WRITE, &s, 1, 0, i);
		wr[i].is_signalled = false;
	}
	post(&near, wr, SENDS - 10);
	CHECK_EQ(fabric->post(near.q[0], wr, 11), -EIO);
	CHECK_EQ(fabric->post(near.q[0], wr, 1), -EIO);
	for (struct fabric_completion c; fabric->poll(near.f, &c, 1);)
		CHECK(c.error == -ECANCELED && c.id < SENDS - 10);
	ends_close();
	free(wr);
}

/* The device takes the part before the one with too many pieces. */
static void a_chain_that_the_device_refuses_has_no_completions(void)
{
	struct fabric_sge many[FABRIC_SGES + 1], s;
	struct fabric_wr wr[20];
	uint64_t next = 100;

	ends_open();
	s = piece(&near, 0, 100000);
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		many[i] = piece(&near, i, 1);
	for (size_t i = 0; i < ARRAY_LEN(wr); i++)
		wr[i] = rdma(FABRIC_WRITE, &s, 1, 0, 100 + i);
	post(&near, wr, ARRAY_LEN(wr));
	for (size_t i = 0; i < ARRAY_LEN(wr); i++)
		wr[i].id += 100;
	wr[10].sge = many;
	wr[10].n_sge = fabric->caps(near.f)->sge_max + 1;
	CHECK_EQ(fabric->post(near.q[0], wr, ARRAY_LEN(wr)), -EIO);
	while (next < 120) {
		struct fabric_completion c = take_one(&near);

		CHECK_EQ(c.id, next++);
		CHECK(!c.error || c.error == -ECANCELED);
	}
	qp_drop(&near, 0);
	expect_none(&near);
	ends_close();
}

static void receives_are_bounded(void)
{
	struct fabric_receive r = { .len = 64 };
	uint32_t n;

	ends_open();
	r.addr = near.bytes;
	r.lkey = near.mem.lkey;
	n = fabric->caps(near.f)->receive_depth;
	for (uint32_t i = RECEIVES; i < n; i++)
		CHECK_EQ(fabric->receive(near.f, &r, 1), 0);
	CHECK_EQ(fabric->receive(near.f, &r, 1), -ENOBUFS);
	CHECK(!fabric->trouble(near.f));
	expect_alive(0);
	CHECK_EQ(fabric->receive(near.f, &r, 1), 0);
	ends_close();
}

static void memory_that_cannot_be_registered(void)
{
	struct rlimit old, low;
	struct fabric_mem m;

	ends_open();
	munmap(near.bytes + 65536, 4096);
	CHECK_EQ(fabric->mem_make(near.f, near.bytes, MIB, FABRIC_LOCAL_WRITE, &m), -EFAULT);
	mprotect(near.bytes, 65536, PROT_READ);
	CHECK_EQ(fabric->mem_make(near.f, near.bytes, 65536, FABRIC_LOCAL_WRITE, &m), -EFAULT);
	CHECK_EQ(fabric->mem_make(near.f, near.bytes, 65536, 0, &m), 0);
	fabric->mem_drop(near.f, &m);
	CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &old), 0);
	low = old;
	low.rlim_cur = 65536;
	if (geteuid() == 0 && setrlimit(RLIMIT_MEMLOCK, &low) == 0) {
		CHECK_EQ(seteuid(65534), 0); /* root has no limit */
		CHECK_EQ(fabric->mem_make(far.f, far.bytes, MIB, 0, &m), -ENOMEM);
		CHECK_EQ(seteuid(0), 0);
		setrlimit(RLIMIT_MEMLOCK, &old);
	}
	ends_close();
}

static void devices_that_do_not_exist_are_named(void)
{
	struct fabric_want want = { .device = "nosuch0", .gid_index = -1 };
	struct fabric *f;
	char why[256];

	loop_init(&loop, env);
	CHECK_EQ(fabric->open(env, &loop, &want, ready, NULL, &f, why, sizeof(why)), -ENODEV);
	CHECK(!f && strstr(why, "no RDMA device nosuch0 on this host"));
	want = (struct fabric_want){ .port = 77, .gid_index = -1 };
	CHECK_EQ(fabric->open(env, &loop, &want, ready, NULL, &f, why, sizeof(why)), -ENODEV);
	CHECK(strstr(why, "has no port 77"));
	want = (struct fabric_want){ .gid_index = 250 };
	CHECK_EQ(fabric->open(env, &loop, &want, ready, NULL, &f, why, sizeof(why)),
		 -EADDRNOTAVAIL);
	CHECK(strstr(why, "has no GID with index 250"));
	want = (struct fabric_want){ .gid_index = -1, .pkey = 0x123 };
	CHECK_EQ(fabric->open(env, &loop, &want, ready, NULL, &f, why, sizeof(why)), -ENOENT);
	CHECK(strstr(why, "partition 0x123"));
	loop_fini(&loop);
}

static void expect_trouble(bool is_there)
{
	uint64_t end = env->clock->now(env) + PATIENCE_S * NSEC_PER_SEC;

	while (!fabric->trouble(near.f) == is_there) {
		loop_turn(&loop, PATIENCE_S * NSEC_PER_SEC);
		CHECK(env->clock->now(env) < end);
	}
}

static void a_port_that_goes_down_is_in_trouble_until_it_is_up(void)
{
	const char *link = getenv("SHEAF_TEST_RDMA_LINK");
	char down[128], up[128];

	if (!link)
		return;
	snprintf(down, sizeof(down), "ip link set %s down", link);
	snprintf(up, sizeof(up), "ip link set %s up", link);
	ends_open();
	CHECK_EQ(system(down), 0);
	expect_trouble(true);
	printf("%s\n", fabric->trouble(near.f));
	CHECK_EQ(system(up), 0);
	expect_trouble(false);
	ends_close();
}

/* ---- the program ---- */

static void require_device(void)
{
	struct end e = { 0 };
	char why[256] = "";
	const struct fabric_caps *c;

	env = env_real();
	fabric = env->fabric;
	loop_init(&loop, env);
	if (try_open("", &e, why, sizeof(why)) < 0)
		SKIP_ALL(why);
	c = fabric->caps(e.f);
	printf("%s: %u pieces, %u sends, %u receives, %u READs, messages of %" PRIu64 " bytes\n",
	       c->name, c->sge_max, c->send_depth, c->receive_depth, c->read_depth, c->message_max);
	CHECK(c->is_ordered);
	fabric->close(e.f);
	loop_fini(&loop);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(a_send_arrives_in_a_receive),
		TEST(a_chain_of_writes_arrives_before_the_send_with_one_completion),
		TEST(a_chain_longer_than_a_doorbell_arrives),
		TEST(a_write_with_immediate_takes_a_receive),
		TEST(gathers_and_scatters_of_the_most_pieces),
		TEST(many_reads_are_in_progress_at_once),
		TEST(no_completion_of_ten_thousand_is_lost),
		TEST(no_receive_of_two_thousand_is_lost),
		TEST(queue_pairs_made_after_arming_wake_the_loop),
		TEST(a_wrong_key_stops_the_queue_pair),
		TEST(a_wrong_local_key_is_refused),
		TEST(memory_that_was_dropped_is_out_of_reach),
		TEST(rights_of_memory_are_enforced),
		TEST(an_aborted_queue_pair_flushes_what_is_outstanding),
		TEST(a_dropped_queue_pair_has_no_completions),
		TEST(receives_of_a_dropped_queue_pair_have_no_owner),
		TEST(a_silent_peer_is_noticed),
		TEST(a_chain_that_does_not_fit_is_not_posted),
		TEST(a_chain_that_the_device_refuses_has_no_completions),
		TEST(receives_are_bounded),
		TEST(memory_that_cannot_be_registered),
		TEST(devices_that_do_not_exist_are_named),
		TEST(a_port_that_goes_down_is_in_trouble_until_it_is_up),
	};

	require_device();
	return test_run(tests, ARRAY_LEN(tests), argc, argv);
}
