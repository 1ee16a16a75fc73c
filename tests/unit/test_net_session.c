/* The server's side of sessions: slots, leases, and changing links. */
#include "toy_client.h"

static struct net_world w;
static struct net net;
static struct sessions table;
static unsigned n_expired;

struct quiet {
	struct link l;
	bool closed;
};

static void quiet_send(struct link *l, struct msg *m)
{
	(void)l;
	msg_free(m);
}

static void quiet_shut(struct link *l, int error, bool now)
{
	(void)error;
	(void)now;
	container_of(l, struct quiet, l)->closed = true;
	link_shut(l);
}

static void quiet_destroy(struct link *l)
{
	free(container_of(l, struct quiet, l));
}

static const struct net_ops quiet_ops = {
	.name = "quiet", .send = quiet_send, .shut = quiet_shut, .destroy = quiet_destroy
};

static void leave(struct session *s, uint32_t slot)
{
	session_answered(s, slot);
	session_leave(s);
}

static void link_is_down(void *owner, struct link *l)
{
	struct session *s = list_first(&l->sessions, struct session, in_link);

	(void)owner;
	if (s)
		session_detach(s);
}

static const struct net_server_ops down_only = { .down = link_is_down };

static struct quiet *quiet_new(void)
{
	struct quiet *q = calloc(1, sizeof(*q));

	CHECK(q);
	link_init(&q->l, &net, &quiet_ops, NULL, 0);
	timer_del(&w.loop, &q->l.timeout);
	q->l.state = LINK_UP;
	net.n_unproven--;
	link_ref(&q->l);
	return q;
}

static void quiet_free(struct quiet *q)
{
	link_close(&q->l, -ESHUTDOWN);
	link_unref(&q->l);
}

static void expired(void *owner, struct session *s)
{
	(void)owner;
	n_expired++;
	session_free(s);
}

static struct session *begin(void)
{
	static const uint8_t secret[16] = { 1 };
	struct net_identity id = net_id(1, 2);
	struct session *s;

	net_world_start(&w, false);
	net_init(&net, &w.loop, &id);
	net.server = &down_only;
	n_expired = 0;
	w.loop.now = w.now;
	CHECK_EQ(sessions_init(&table, &w.loop, 30 * NSEC_PER_SEC), 0);
	table.expired = expired;
	CHECK_EQ(session_new(&table, 77, secret, "client", &s), 0);
	CHECK(session_find(&table, 77) == s);
	CHECK(!session_find(&table, 78));
	return s;
}

static void end(void)
{
	sessions_fini(&table);
	net_fini(&net);
	net_world_end(&w);
}

static void a_slot_serves_one_request_at_a_time(void)
{
	struct session *s = begin();

	CHECK_EQ(session_enter(s, 3, 1, 20, s), 0);
	CHECK_EQ(s->in_service, 1);
	CHECK_EQ(session_enter(s, 3, 1, 20, s), -EBADMSG);
	CHECK_EQ(session_enter(s, 3, 2, 20, s), -EBADMSG);
	CHECK_EQ(session_enter(s, 4, 1, 20, s), 0);
	leave(s, 3);
	leave(s, 4);
	CHECK_EQ(s->in_service, 0);
	end();
}

static void a_slot_takes_repetitions_and_what_is_newer_but_nothing_older(void)
{
	struct session *s = begin();

	CHECK_EQ(session_enter(s, 0, 5, 20, s), 0);
	leave(s, 0);
	CHECK_EQ(session_enter(s, 0, 5, 20, s), 0);
	leave(s, 0);
	CHECK_EQ(session_enter(s, 0, 4, 20, s), -EBADMSG);
	CHECK_EQ(session_enter(s, 0, 6, 20, s), 0);
	leave(s, 0);
	/* sequence numbers wrap */
	s->slots[0].sequence = UINT32_MAX;
	CHECK_EQ(session_enter(s, 0, 0, 20, s), 0);
	leave(s, 0);
	CHECK_EQ(session_enter(s, 0, UINT32_MAX, 20, s), -EBADMSG);
	end();
}

static void a_slot_that_does_not_exist_is_a_lie(void)
{
	struct session *s = begin();

	CHECK_EQ(session_enter(s, SESSION_SLOTS, 1, 20, s), -EBADMSG);
	CHECK_EQ(session_enter(s, UINT32_MAX, 1, 20, s), -EBADMSG);
	CHECK_EQ(s->in_service, 0);
	end();
}

static void a_lease_ends_after_its_time_and_closes_the_link(void)
{
	struct session *s = begin();
	struct quiet *q = quiet_new();

	session_attach(s, &q->l, 0);
	net_world_pass(&w, 29 * NSEC_PER_SEC);
	CHECK_EQ(n_expired, 0);
	net_world_pass(&w, 2 * NSEC_PER_SEC);
	CHECK_EQ(n_expired, 1);
	CHECK(q->closed);
	CHECK_EQ(table.count, 0);
	quiet_free(q);
	end();
}

static void requests_and_moving_bytes_renew_a_lease(void)
{
	struct session *s = begin();
	struct quiet *q = quiet_new();

	session_attach(s, &q->l, 0);
	net_world_pass(&w, 20 * NSEC_PER_SEC);
	CHECK_EQ(session_enter(s, 0, 1, 20, s), 0);
	net_world_pass(&w, 20 * NSEC_PER_SEC);
	q->l.progress = w.loop.now;
	net_world_pass(&w, 20 * NSEC_PER_SEC);
	CHECK_EQ(n_expired, 0);
	leave(s, 0);
	net_world_pass(&w, 20 * NSEC_PER_SEC);
	CHECK_EQ(n_expired, 1);
	quiet_free(q);
	end();
}

static void a_session_outlives_its_link_until_the_lease_ends(void)
{
	struct session *s = begin();
	struct quiet *q = quiet_new();

	session_attach(s, &q->l, 0);
	quiet_free(q);
	CHECK(!s->link);
	CHECK(session_find(&table, 77) == s);
	net_world_pass(&w, 31 * NSEC_PER_SEC);
	CHECK_EQ(n_expired, 1);
	end();
}

/* A link that makes a second session must not stay attached to the first one. */
static void a_link_has_one_session(void)
{
	static const uint8_t secret[16] = { 2 };
	struct session *s = begin(), *t;
	struct quiet *q = quiet_new();

	CHECK_EQ(session_new(&table, 88, secret, "client", &t), 0);
	session_attach(s, &q->l, 0);
	session_attach(t, &q->l, 0);
	CHECK(!s->link && t->link == &q->l && session_on(&q->l, 0) == t);
	session_attach(t, &q->l, 0);
	CHECK(t->link == &q->l && session_on(&q->l, 0) == t);
	quiet_free(q);
	CHECK(!s->link && !t->link);
	end();
}

struct waiter {
	struct req q;
	struct session_wait wait;
	bool over;
};

static bool wait_step(struct req *q)
{
	container_of(q, struct waiter, q)->over = true;
	req_fini(q);
	return false;
}

static const char *const names[] = { "wait" };
static const struct req_ops wait_ops = REQ_OPS("wait", wait_step, 0, names);

static void resuming_waits_for_the_requests_of_the_old_link(void)
{
	struct session *s = begin();
	struct waiter v = { .over = false };

	req_init(&v.q, &w.loop, &wait_ops, 0);
	session_quiesce(s, &v.wait, &v.q); /* no request in service: completes at once */
	CHECK_EQ(v.q.pending, 0);
	CHECK_EQ(session_enter(s, 0, 1, 20, s), 0);
	CHECK_EQ(session_enter(s, 1, 1, 20, s), 0);
	session_quiesce(s, &v.wait, &v.q);
	CHECK_EQ(v.q.pending, 1);
	leave(s, 0);
	net_world_turn(&w);
	CHECK(!v.over);
	leave(s, 1);
	net_world_turn(&w);
	CHECK(v.over);
	end();
}

/* Its second link waits for a request of the first one, and breaks before that request ends. */
static void a_client_that_waited_to_resume_has_a_new_lease(void)
{
	struct session *s = begin();
	struct waiter v = { .over = false };

	CHECK_EQ(session_enter(s, 0, 1, 20, s), 0);
	req_init(&v.q, &w.loop, &wait_ops, 0);
	session_quiesce(s, &v.wait, &v.q);
	net_world_pass(&w, 100 * NSEC_PER_SEC);
	CHECK_EQ(n_expired, 0);
	leave(s, 0);
	net_world_pass(&w, 29 * NSEC_PER_SEC);
	CHECK_EQ(n_expired, 0);
	net_world_pass(&w, 2 * NSEC_PER_SEC);
	CHECK_EQ(n_expired, 1);
	end();
}

TEST_MAIN(TEST(a_slot_serves_one_request_at_a_time),
	  TEST(a_slot_takes_repetitions_and_what_is_newer_but_nothing_older),
	  TEST(a_slot_that_does_not_exist_is_a_lie),
	  TEST(a_lease_ends_after_its_time_and_closes_the_link),
	  TEST(requests_and_moving_bytes_renew_a_lease),
	  TEST(a_session_outlives_its_link_until_the_lease_ends), TEST(a_link_has_one_session),
	  TEST(resuming_waits_for_the_requests_of_the_old_link),
	  TEST(a_client_that_waited_to_resume_has_a_new_lease))
