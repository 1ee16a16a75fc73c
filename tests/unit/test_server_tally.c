/* Counts of a server by client, user and job: who is counted, hostile names, more jobs than the
 * table has rows, and what remains when sessions end. */
#include <stdio.h>
#include <stdlib.h>

#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;

static void begin(void)
{
	log_set_level(LOG_ERROR);
	world_start(&w);
	p = pipe_new(&w, LINK_CLIENT);
}

static void end(void)
{
	pipe_free(p);
	world_end(&w);
}

/* Makes a session on the link, which replaces the one before. Returns the status. */
static int session(const char *client, const char *job)
{
	struct wire_session_args a = { .client = wire_text(client), .job = wire_text(job) };
	struct wire_session_res r;

	return pipe_do(&w, p, OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
		       XDR_ANY(xdr_wire_session_res), &r, NULL);
}

static int ask(uint32_t op, const char *path)
{
	struct wire_lookup_args a = { .where = pipe_place(path) };
	struct wire_lookup_res r;
	struct wire_void_args none = { 0 };
	struct wire_void_res nothing;

	if (op == OP_PING)
		return pipe_do(&w, p, op, XDR_ANY(xdr_wire_void_args), &none,
			       XDR_ANY(xdr_wire_void_res), &nothing, NULL);
	return pipe_do(&w, p, op, XDR_ANY(xdr_wire_lookup_args), &a, XDR_ANY(xdr_wire_lookup_res),
		       &r, NULL);
}

static void look_up(int times)
{
	while (times--)
		CHECK_EQ(ask(OP_LOOKUP, "nothing"), -ENOENT);
}

/* The row of a name as TALLY answers; name "": none. */
static struct answer {
	char name[TALLY_NAME];
	uint32_t sessions;
	uint64_t requests;
} row(uint32_t kind, const char *name)
{
	struct wire_tally_args a = { .kind = kind };
	struct answer out = { .name = "" };
	struct wire_tally_res r;

	CHECK_EQ(pipe_do(&w, p, OP_TALLY, XDR_ANY(xdr_wire_tally_args), &a,
			 XDR_ANY(xdr_wire_tally_res), &r, NULL),
		 0);
	CHECK(r.n_rows && r.n_rows <= TALLY_ROWS + 1 && r.boot == w.srv->boot);
	for (uint32_t i = 0; i < r.n_rows; i++)
		if (r.rows[i].name.len == strlen(name) &&
		    memcmp(r.rows[i].name.p, name, strlen(name)) == 0) {
			snprintf(out.name, sizeof(out.name), "%s", name);
			out.sessions = r.rows[i].sessions;
			out.requests = r.rows[i].requests;
		}
	return out;
}

static void requests_are_counted_by_client_user_and_job(void)
{
	begin();
	p->uid = 7;
	CHECK_EQ(session("node1:5", "wave"), 0);
	look_up(3);
	p->uid = 8;
	look_up(2);
	CHECK_EQ(ask(OP_PING, ""), 0);
	CHECK_EQ(row(TALLY_CLIENTS, "node1:5").requests, 5);
	CHECK_EQ(row(TALLY_JOBS, "wave").requests, 5);
	CHECK_EQ(row(TALLY_USERS, "7").requests, 3);
	CHECK_EQ(row(TALLY_USERS, "8").requests, 2);
	CHECK_EQ(row(TALLY_JOBS, "(none)").requests, 0);
	end();
}

static void counts_remain_when_a_session_ends(void)
{
	begin();
	CHECK_EQ(session("a", "wave"), 0);
	look_up(4);
	CHECK_EQ(row(TALLY_JOBS, "wave").sessions, 1);
	CHECK_EQ(session("b", ""), 0); /* ends the one before */
	world_settle(&w);
	CHECK_EQ(row(TALLY_JOBS, "wave").sessions, 0);
	CHECK_EQ(row(TALLY_JOBS, "wave").requests, 4);
	CHECK_EQ(row(TALLY_JOBS, "(none)").sessions, 1);
	CHECK_EQ(session("c", "wave"), 0); /* the same row again */
	look_up(1);
	CHECK_EQ(row(TALLY_JOBS, "wave").requests, 5);
	end();
}

static void more_jobs_than_rows_lose_no_request(void)
{
	char job[32];

	begin();
	for (int i = 0; i < TALLY_ROWS + 50; i++) {
		snprintf(job, sizeof(job), "job %d", i);
		CHECK_EQ(session("client", job), 0);
		look_up(2);
	}
	CHECK_EQ(w.srv->tallies[TALLY_JOBS].n, TALLY_ROWS);
	CHECK_STR(row(TALLY_JOBS, "job 0").name, "");
	CHECK_EQ(row(TALLY_JOBS, "job 305").requests, 2);
	CHECK_EQ(row(TALLY_JOBS, "(other)").requests, 2 * 50);
	CHECK_EQ(row(TALLY_CLIENTS, "client").requests, 2 * (TALLY_ROWS + 50));
	end();
}

/* A value in the metrics, or -1. */
static long long metric(const char *series)
{
	char *text, *at;
	long long v = -1;
	size_t len;

	CHECK_EQ(server_metrics(w.srv, &text, &len), 0);
	at = strstr(text, series);
	if (at)
		v = atoll(at + strlen(series));
	free(text);
	return v;
}

static void hostile_names_are_made_harmless(void)
{
	begin();
	CHECK_EQ(session("\033[2J\tnode", "x\"} 9\nsheaf_job_requests_total{name=\"y"), 0);
	look_up(1);
	CHECK_EQ(row(TALLY_CLIENTS, "_[2J_node").requests, 1);
	CHECK_EQ(metric("\nsheaf_job_requests_total{name=\"x\\\"} 9_sheaf_job_requests_total{"
			"name=\\\"y\"} "),
		 1);
	CHECK_EQ(metric("\nsheaf_job_requests_total{name=\"y\"} "), -1);
	CHECK_EQ(session("n", "(other)"), 0);
	look_up(1);
	CHECK_EQ(row(TALLY_JOBS, "_other)").requests, 1);
	CHECK_EQ(row(TALLY_JOBS, "(other)").requests, 0);
	CHECK_EQ(session("n", "back\\slash"), 0);
	CHECK_EQ(metric("\nsheaf_job_requests_total{name=\"back\\\\slash\"} "), 0);
	CHECK_EQ(metric("\nsheaf_user_requests_total{uid=\"0\"} "), 2);
	end();
}

static void a_name_beyond_its_bound_closes_the_link(void)
{
	struct wire_session_args a = { .client = wire_text("n") };
	uint8_t body[512];
	struct xdr x;
	struct wire_req_head h = { .op = OP_SESSION, .slot = NO_SLOT, .sequence = 1 };
	char job[JOB_TEXT + 1];

	begin();
	memset(job, 'j', sizeof(job));
	a.job = (struct wire_bytes){ JOB_TEXT, (const uint8_t *)job };
	xdr_encoder(&x, body, sizeof(body));
	CHECK(xdr_wire_req_head(&x, &h) && xdr_wire_session_args(&x, &a));
	a.job.len++;
	xdr_encoder(&x, body, sizeof(body));
	CHECK(xdr_wire_req_head(&x, &h) && !xdr_wire_session_args(&x, &a));
	end();
}

/* A client whose key is for another user does not appear as the user that it claims to be. */
static void a_user_that_is_refused_is_not_counted(void)
{
	begin();
	CHECK_EQ(session("n", ""), 0);
	p->l.acts_for = (struct key_role){ .uid = 7 };
	p->uid = 9;
	CHECK_EQ(ask(OP_LOOKUP, "nothing"), -EPERM);
	p->l.acts_for = (struct key_role){ .any = true };
	CHECK_STR(row(TALLY_USERS, "9").name, "");
	CHECK_EQ(row(TALLY_CLIENTS, "n").requests, 0);
	end();
}

static void an_unknown_kind_is_refused(void)
{
	struct wire_tally_args a = { .kind = TALLY_KINDS };
	struct wire_tally_res r;

	begin();
	CHECK_EQ(pipe_do(&w, p, OP_TALLY, XDR_ANY(xdr_wire_tally_args), &a,
			 XDR_ANY(xdr_wire_tally_res), &r, NULL),
		 -EINVAL);
	end();
}

TEST_MAIN(TEST(requests_are_counted_by_client_user_and_job),
	  TEST(counts_remain_when_a_session_ends), TEST(more_jobs_than_rows_lose_no_request),
	  TEST(hostile_names_are_made_harmless), TEST(a_name_beyond_its_bound_closes_the_link),
	  TEST(a_user_that_is_refused_is_not_counted), TEST(an_unknown_kind_is_refused))
