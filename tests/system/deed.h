/* A deed is an operation of a client, written as a verb and some numbers. The client logs a line
 * before each deed and a line with its result after it:
 *
 *   > 17 rename 0 4 2 1
 *   < 17 0
 *
 * Each line is one write(2): a client that is killed loses no line that it had written. The test
 * replays the log into a model. A deed whose first line is truncated had not begun. */
#ifndef SHEAF_SYS_DEED_H
#define SHEAF_SYS_DEED_H

#include "cluster.h"

#define DEED_ARGS 6

struct deed {
	uint32_t verb;
	uint32_t arg[DEED_ARGS];
};

/* ---- writing ---- */

struct deed_log {
	int fd;
	unsigned seq;
	const char *const *verbs;
};

static inline void deed_line(struct deed_log *l, const char *line, int n)
{
	CHECK_EQ(write(l->fd, line, (size_t)n), n);
}

static inline int deed_text(char *out, size_t n, const char *const *verbs, const struct deed *d)
{
	int at = snprintf(out, n, "%s", verbs[d->verb]);

	for (int i = 0; i < DEED_ARGS; i++)
		at += snprintf(out + at, n - (size_t)at, " %" PRIu32, d->arg[i]);
	return at;
}

static inline void deed_begin(struct deed_log *l, const struct deed *d)
{
	char line[160];
	int n = snprintf(line, sizeof(line), "> %u ", ++l->seq);

	n += deed_text(line + n, sizeof(line) - (size_t)n - 1, l->verbs, d);
	line[n++] = '\n';
	deed_line(l, line, n);
}

static inline void deed_end(struct deed_log *l, int result)
{
	char line[64];

	deed_line(l, line, snprintf(line, sizeof(line), "< %u %d\n", l->seq, result));
}

/* ---- reading ---- */

struct deed_reader {
	char path[CLUSTER_PATH + 32];
	off_t at; /* offset in the log of the next line to read */
	unsigned seq;
	bool pending; /* `last` has begun and has no result yet */
	struct deed last;
	const char *const *verbs;
	uint32_t n_verbs;
};

static inline struct deed deed_parse(const struct deed_reader *r, const char *line)
{
	struct deed d = { 0 };
	char verb[32];
	uint32_t *a = d.arg;

	CHECK_EQ(sscanf(line,
			"> %*u %31s %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32
			" %" SCNu32,
			verb, &a[0], &a[1], &a[2], &a[3], &a[4], &a[5]),
		 1 + DEED_ARGS);
	while (d.verb < r->n_verbs && strcmp(verb, r->verbs[d.verb]) != 0)
		d.verb++;
	CHECK(d.verb < r->n_verbs);
	return d;
}

/* Reads the lines added since the last call: calls begin for each deed, and end for each result. */
static inline void deed_replay(struct deed_reader *r, void *arg,
			       void (*begin)(void *arg, const struct deed *d),
			       void (*end)(void *arg, const struct deed *d, int result))
{
	FILE *f = fopen(r->path, "re");
	char line[256];
	unsigned seq;
	int result;

	if (!f) /* no deed has begun yet */
		return;
	CHECK_EQ(fseeko(f, r->at, SEEK_SET), 0);
	while (fgets(line, sizeof(line), f) && strchr(line, '\n')) {
		r->at += (off_t)strlen(line);
		if (line[0] == '>') {
			CHECK(!r->pending);
			r->last = deed_parse(r, line);
			r->pending = true;
			r->seq++;
			begin(arg, &r->last);
			continue;
		}
		CHECK_EQ(sscanf(line, "< %u %d", &seq, &result), 2);
		CHECK(r->pending && seq == r->seq);
		r->pending = false;
		end(arg, &r->last, result);
	}
	fclose(f);
}

#endif
