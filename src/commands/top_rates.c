/* Rates of `sheaf top`: what each client, user or job has asked of a server between two answers.
 *
 * A server gives up rows for newer names and adds their counts to "(other)". That is no traffic, so
 * it makes no rate.
 * Threads: one for each sample. Buffers: the caller's. Errors: none. */
#include <stdio.h>
#include <stdlib.h>

#include "commands/top_rates.h"

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct sheaf_tally_row *)a)->name,
		      ((const struct sheaf_tally_row *)b)->name);
}

struct sheaf_tally *top_next(struct top_sample *s)
{
	s->next.size = sizeof(s->next);
	return &s->next;
}

void top_take(struct top_sample *s)
{
	s->before = s->now;
	s->now = s->next;
	qsort(s->now.rows, s->now.n, sizeof(s->now.rows[0]), by_name);
	s->has_rates = s->before.n && s->before.boot == s->now.boot &&
		       s->now.uptime_ns > s->before.uptime_ns;
}

/* The row of this name, or NULL. */
static const struct sheaf_tally_row *find(const struct sheaf_tally *t, const char *name)
{
	struct sheaf_tally_row key;

	snprintf(key.name, sizeof(key.name), "%s", name);
	return bsearch(&key, t->rows, t->n, sizeof(t->rows[0]), by_name);
}

/* Did the server give up this row since, or give it up and take it anew? */
static bool was_given_up(const struct sheaf_tally_row *old, const struct sheaf_tally *now)
{
	const struct sheaf_tally_row *r = find(now, old->name);

	return !r || r->requests < old->requests || r->bytes_read < old->bytes_read ||
	       r->bytes_written < old->bytes_written;
}

/* What the row had before; of "(other)" also what rows had that were added to it since. */
static struct sheaf_tally_row before(const struct top_sample *s, const struct sheaf_tally_row *r)
{
	const struct sheaf_tally_row *old = find(&s->before, r->name);
	struct sheaf_tally_row sum = { .name = "" };

	if (old && !was_given_up(old, &s->now))
		sum = *old;
	for (uint32_t i = 0; strcmp(r->name, "(other)") == 0 && i < s->before.n; i++) {
		old = &s->before.rows[i];
		if (!was_given_up(old, &s->now))
			continue;
		sum.requests += old->requests;
		sum.bytes_read += old->bytes_read;
		sum.bytes_written += old->bytes_written;
	}
	return sum;
}

static double rate(uint64_t now, uint64_t old, double seconds)
{
	return now > old ? (double)(now - old) / seconds : 0;
}

size_t top_rows(const struct top_sample *s, struct top_row *rows)
{
	double seconds = (double)(s->now.uptime_ns - s->before.uptime_ns) / 1e9;

	for (uint32_t i = 0; i < s->now.n; i++) {
		const struct sheaf_tally_row *r = &s->now.rows[i];
		struct sheaf_tally_row old;

		rows[i] = (struct top_row){ .sessions = r->sessions,
					    .requests = r->requests,
					    .bytes_read = r->bytes_read,
					    .bytes_written = r->bytes_written };
		snprintf(rows[i].name, sizeof(rows[i].name), "%s", r->name);
		if (!s->has_rates)
			continue;
		old = before(s, r);
		rows[i].requests_per_s = rate(r->requests, old.requests, seconds);
		rows[i].read_per_s = rate(r->bytes_read, old.bytes_read, seconds);
		rows[i].written_per_s = rate(r->bytes_written, old.bytes_written, seconds);
	}
	return s->now.n;
}

static int rows_by_name(const void *a, const void *b)
{
	return strcmp(((const struct top_row *)a)->name, ((const struct top_row *)b)->name);
}

size_t top_join(struct top_row *rows, size_t n)
{
	size_t left = 0;

	qsort(rows, n, sizeof(*rows), rows_by_name);
	for (size_t i = 0; i < n; i++) {
		const struct top_row *r = &rows[i];
		struct top_row *to = left ? &rows[left - 1] : NULL;

		if (!to || strcmp(to->name, r->name) != 0) {
			rows[left++] = *r;
			continue;
		}
		to->sessions += r->sessions;
		to->requests += r->requests;
		to->bytes_read += r->bytes_read;
		to->bytes_written += r->bytes_written;
		to->requests_per_s += r->requests_per_s;
		to->read_per_s += r->read_per_s;
		to->written_per_s += r->written_per_s;
	}
	return left;
}
