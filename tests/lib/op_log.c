#include "op_log.h"

/* ---- writing ---- */

static void op_log_line(struct op_log *l, const char *line, int n)
{
	CHECK_EQ(write(l->fd, line, (size_t)n), n);
}

int op_text(char *out, size_t n, const char *const *verbs, const struct logged_op *d)
{
	int at = snprintf(out, n, "%s", verbs[d->verb]);

	for (int i = 0; i < OP_ARGS; i++)
		at += snprintf(out + at, n - (size_t)at, " %" PRIu32, d->arg[i]);
	return at;
}

void op_log_begin(struct op_log *l, const struct logged_op *d)
{
	char line[160];
	int n = snprintf(line, sizeof(line), "> %u ", ++l->seq);

	n += op_text(line + n, sizeof(line) - (size_t)n - 1, l->verbs, d);
	line[n++] = '\n';
	op_log_line(l, line, n);
}

void op_log_end(struct op_log *l, int result)
{
	char line[64];

	op_log_line(l, line, snprintf(line, sizeof(line), "< %u %d\n", l->seq, result));
}

/* ---- reading ---- */

static struct logged_op op_parse(const struct op_reader *r, const char *line)
{
	struct logged_op d = { 0 };
	char verb[32];
	uint32_t *a = d.arg;

	CHECK_EQ(sscanf(line,
			"> %*u %31s %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32
			" %" SCNu32,
			verb, &a[0], &a[1], &a[2], &a[3], &a[4], &a[5]),
		 1 + OP_ARGS);
	while (d.verb < r->n_verbs && strcmp(verb, r->verbs[d.verb]) != 0)
		d.verb++;
	CHECK(d.verb < r->n_verbs);
	return d;
}

void op_log_replay(struct op_reader *r, void *arg,
		   void (*begin)(void *arg, const struct logged_op *d),
		   void (*end)(void *arg, const struct logged_op *d, int result))
{
	FILE *f = fopen(r->path, "re");
	char line[256];
	unsigned seq;
	int result;

	if (!f) /* no operation has begun yet */
		return;
	CHECK_EQ(fseeko(f, r->at, SEEK_SET), 0);
	while (fgets(line, sizeof(line), f) && strchr(line, '\n')) {
		r->at += (off_t)strlen(line);
		if (line[0] == '>') {
			CHECK(!r->pending);
			r->last = op_parse(r, line);
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
