/* The manifest: the small file whose rename makes a checkpoint complete. Lines of text; the last
 * one is the checksum of all before it.
 *
 *     sheaf-checkpoint 1
 *     number 12
 *     since 11                      0: full
 *     processes 2
 *     form each                     or: one
 *     taken 1763571000
 *     seconds 1.250000
 *     rates 1300000000 900000000    bytes per second measured with a file each, with one file
 *     image BASE DATA TABLE SUM     one of each process, in order
 *     sum 1a2b3c4d
 *
 * Threads: any. Errors: -EUCLEAN. */
#include <inttypes.h>

#include "ckpt/ckpt_impl.h"

#define PROCESSES_MAX (1U << 24)

static void put_lines(FILE *f, const struct ckpt_manifest *m)
{
	fprintf(f, "sheaf-checkpoint 1\nnumber %" PRIu64 "\nsince %" PRIu64 "\nprocesses %u\n",
		m->number, m->since, m->n);
	fprintf(f, "form %s\ntaken %" PRId64 "\nseconds %.6f\nrates %.0f %.0f\n",
		m->one_file ? "one" : "each", m->taken, m->seconds, m->rate[0], m->rate[1]);
	for (uint32_t i = 0; i < m->n; i++)
		fprintf(f, "image %" PRIu64 " %" PRIu64 " %" PRIu64 " %08x\n", m->images[i].base,
			m->images[i].data, m->images[i].table, m->images[i].table_sum);
}

int ckpt_manifest_text(const struct ckpt_manifest *m, char **text, size_t *len)
{
	FILE *f = open_memstream(text, len);

	if (!f)
		return ckpt_fail(-ENOMEM, "out of memory");
	put_lines(f, m);
	if (fflush(f) == 0)
		fprintf(f, "sum %08x\n", crc32c(0, *text, *len));
	if (fclose(f) == 0)
		return 0;
	free(*text);
	return ckpt_fail(-ENOMEM, "out of memory");
}

/* The next line, without its end, or NULL. */
static char *line_of(char **at)
{
	char *line = *at, *end = strchr(line, '\n');

	if (!end)
		return NULL;
	*end = '\0';
	*at = end + 1;
	return line;
}

static bool parse_head(char **at, struct ckpt_manifest *m)
{
	char form[8] = "";
	char *l[8];

	for (int i = 0; i < 8; i++) {
		l[i] = line_of(at);
		if (!l[i])
			return false;
	}
	if (strcmp(l[0], "sheaf-checkpoint 1") != 0 ||
	    sscanf(l[1], "number %" SCNu64, &m->number) != 1 ||
	    sscanf(l[2], "since %" SCNu64, &m->since) != 1 ||
	    sscanf(l[3], "processes %" SCNu32, &m->n) != 1 || sscanf(l[4], "form %7s", form) != 1 ||
	    sscanf(l[5], "taken %" SCNd64, &m->taken) != 1 ||
	    sscanf(l[6], "seconds %lf", &m->seconds) != 1 ||
	    sscanf(l[7], "rates %lf %lf", &m->rate[0], &m->rate[1]) != 2)
		return false;
	m->one_file = strcmp(form, "one") == 0;
	return (m->one_file || strcmp(form, "each") == 0) && m->n && m->n <= PROCESSES_MAX &&
	       m->number && m->since < m->number;
}

static bool parse_images(char **at, struct ckpt_manifest *m)
{
	m->images = calloc(m->n, sizeof(*m->images));
	for (uint32_t i = 0; m->images && i < m->n; i++) {
		struct ckpt_image *v = &m->images[i];
		char *l = line_of(at);

		if (!l ||
		    sscanf(l, "image %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNx32, &v->base,
			   &v->data, &v->table, &v->table_sum) != 4 ||
		    v->base > INT64_MAX / 4 || v->data > INT64_MAX / 4 || v->table > INT64_MAX / 4)
			return false;
	}
	return m->images;
}

int ckpt_manifest_parse(const char *text, size_t len, struct ckpt_manifest *m)
{
	static const size_t tail = sizeof("sum 12345678\n") - 1;
	char *copy = strndup(text, len), *at = copy, *end;
	bool good = false, has_head = false;
	char sum[16];

	memset(m, 0, sizeof(*m));
	if (!copy)
		return ckpt_fail(-ENOMEM, "out of memory");
	if (len > tail)
		snprintf(sum, sizeof(sum), "sum %08x\n", crc32c(0, copy, len - tail));
	if (strlen(copy) == len && len > tail && strcmp(copy + len - tail, sum) == 0) {
		end = copy + len - tail;
		has_head = parse_head(&at, m);
		good = has_head && parse_images(&at, m) && at == end;
	}
	free(copy);
	if (good)
		return 0;
	if (has_head && !m->images)
		return ckpt_fail(-ENOMEM, "out of memory");
	ckpt_manifest_free(m);
	return ckpt_fail(-EUCLEAN, "its manifest is damaged");
}

void ckpt_manifest_free(struct ckpt_manifest *m)
{
	free(m->images);
	m->images = NULL;
}
