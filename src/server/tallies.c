/* Counts requests and bytes by client, user and job, answers TALLY, and prints the counts as
 * metrics.
 *
 * Clients have no metrics: there may be too many of them for a time series each. PING is not
 * counted: idle clients send it to keep their lease.
 * Threads: the loop's. Buffers: none. Errors: an unknown kind is -EINVAL. */
#include <stdio.h>
#include <stdlib.h>

#include "server/sreq.h"

int tallies_init(struct server *srv)
{
	srv->tallies = calloc(TALLY_KINDS, sizeof(*srv->tallies));
	if (!srv->tallies)
		return -ENOMEM;
	for (int i = 0; i < TALLY_KINDS; i++)
		tally_init(&srv->tallies[i]);
	return 0;
}

void tallies_free(struct server *srv)
{
	free(srv->tallies);
	srv->tallies = NULL;
}

void tallies_join(struct server *srv, struct session *ss, const struct wire_bytes *job)
{
	char text[JOB_MAX];

	snprintf(text, sizeof(text), "%.*s", (int)job->len, job->len ? (const char *)job->p : "");
	ss->as_client =
		tally_join(&srv->tallies[TALLY_CLIENTS], ss->as_client, ss->client, srv->loop->now);
	ss->job = tally_join(&srv->tallies[TALLY_JOBS], ss->job, text, srv->loop->now);
}

/* Adds counts to the rows of the request's session and user. A user that the key of the link does
 * not allow is not counted: it is not the user who asked. */
static void add(const struct sreq *s, uint64_t requests, uint64_t read, uint64_t written)
{
	struct session *ss = s->session;
	struct server *srv = s->srv;
	struct tally_row *rows[TALLY_KINDS];

	if (!ss || !ss->job || !s->has_cred)
		return;
	rows[TALLY_CLIENTS] = ss->as_client;
	rows[TALLY_USERS] = tally_user(&srv->tallies[TALLY_USERS], s->head.uid, srv->loop->now);
	rows[TALLY_JOBS] = ss->job;
	for (int i = 0; i < TALLY_KINDS; i++) {
		rows[i]->requests += requests;
		rows[i]->bytes_read += read;
		rows[i]->bytes_written += written;
	}
}

void sreq_count(const struct sreq *s)
{
	if (s->head.op != OP_PING)
		add(s, 1, 0, 0);
}

void sreq_count_read(const struct sreq *s, uint64_t bytes)
{
	s->srv->bytes_read += bytes;
	add(s, 0, bytes, 0);
}

void sreq_count_written(const struct sreq *s, uint64_t bytes)
{
	s->srv->bytes_written += bytes;
	add(s, 0, 0, bytes);
}

int do_tally(struct sreq *s)
{
	const struct wire_tally_args *a = s->args;
	struct wire_tally_res *r = s->res;
	struct server *srv = s->srv;
	const struct tally_row *row;

	if (a->kind >= TALLY_KINDS)
		return -EINVAL;
	r->boot = srv->boot;
	r->uptime_ns = srv->loop->now - srv->started;
	r->rows = arena_alloc(&s->arena, (TALLY_ROWS + 1) * sizeof(*r->rows));
	if (!r->rows)
		return -ENOMEM;
	while ((row = tally_row_at(&srv->tallies[a->kind], r->n_rows)))
		r->rows[r->n_rows++] =
			(struct wire_tally_row){ .name = wire_text(row->name),
						 .sessions = row->sessions,
						 .requests = row->requests,
						 .bytes_read = row->bytes_read,
						 .bytes_written = row->bytes_written };
	return 0;
}

/* ---- metrics ---- */

/* Prints a name between quotation marks. */
static void put_label(FILE *f, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', f);
		fputc(*text, f);
	}
}

/* Prints one metric of all rows of a table. `field`: the offset of the counter in a row. */
static void write_rows(FILE *f, const struct tally *t, const char *metric, const char *label,
		       const char *help, size_t field)
{
	const struct tally_row *r;

	fprintf(f, "# HELP sheaf_%s %s\n# TYPE sheaf_%s counter\n", metric, help, metric);
	for (uint32_t i = 0; (r = tally_row_at(t, i)); i++) {
		uint64_t value = *(const uint64_t *)((const char *)r + field);

		fprintf(f, "sheaf_%s{%s=\"", metric, label);
		put_label(f, r->name);
		fprintf(f, "\"} %llu\n", (unsigned long long)value);
	}
}

void tallies_write(FILE *f, const struct server *srv)
{
	const struct tally *jobs = &srv->tallies[TALLY_JOBS], *users = &srv->tallies[TALLY_USERS];

	write_rows(f, jobs, "job_requests_total", "name", "Requests of a batch job.",
		   offsetof(struct tally_row, requests));
	write_rows(f, jobs, "job_read_bytes_total", "name", "Data that a batch job has read.",
		   offsetof(struct tally_row, bytes_read));
	write_rows(f, jobs, "job_written_bytes_total", "name", "Data that a batch job has written.",
		   offsetof(struct tally_row, bytes_written));
	write_rows(f, users, "user_requests_total", "uid", "Requests of a user.",
		   offsetof(struct tally_row, requests));
	write_rows(f, users, "user_read_bytes_total", "uid", "Data that a user has read.",
		   offsetof(struct tally_row, bytes_read));
	write_rows(f, users, "user_written_bytes_total", "uid", "Data that a user has written.",
		   offsetof(struct tally_row, bytes_written));
}
