/* The cluster file: an INI file, read by inih and checked here.
 *
 * inih calls back for keys only and has no line numbers, so the reader callback counts lines and
 * handles section headings. The first error ends parsing; its message names file and line, the
 * fault and a correct value. */
#include "base/conf_impl.h"

#include <ctype.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int conf_fail(struct conf_parser *p, unsigned line, const char *fmt, ...)
{
	int n;
	va_list ap;

	if (p->error)
		return p->error;
	p->error = -EINVAL;
	n = line ? snprintf(p->err, p->err_len, "%s:%u: ", p->file, line) :
		   snprintf(p->err, p->err_len, "%s: ", p->file);
	if (n < 0 || (size_t)n >= p->err_len)
		return p->error;
	va_start(ap, fmt);
	vsnprintf(p->err + n, p->err_len - (size_t)n, fmt, ap);
	va_end(ap);
	return p->error;
}

static int conf_no_memory(struct conf_parser *p)
{
	conf_fail(p, 0, "out of memory");
	return p->error = -ENOMEM;
}

/* ---- keys ---- */

static struct client_key *this_key(struct conf_parser *p)
{
	return &p->c->keys[p->c->n_keys - 1];
}

/* Lists the known keys for a message. */
static void key_list(const struct conf_table *t, char *out, size_t out_len)
{
	size_t at = 0;

	for (size_t i = 0; i < t->n && at < out_len; i++)
		at += (size_t)snprintf(out + at, out_len - at, "%s%s", i ? " " : "",
				       t->keys[i].name);
}

/* inih's callback for one key. Returns 0 only if p->error is set. */
static int conf_handler(void *arg, const char *section, const char *name, const char *value)
{
	struct conf_parser *p = arg;
	struct conf_row *row = p->n_rows ? &p->rows[p->n_rows - 1] : NULL;
	const struct {
		const char *name;
		const struct conf_table *table;
		unsigned *seen;
		void *into;
	} sections[] = {
		[SECTION_CLUSTER] = { "cluster", &conf_cluster_keys, &p->seen, p->c },
		[SECTION_RDMA] = { "rdma", &conf_rdma_keys, &p->rdma_seen, &p->c->rdma },
		[SECTION_SERVER] = { "server.N", &conf_server_keys, row ? &row->seen : NULL,
				     row ? &row->t : NULL },
		[SECTION_KEY] = { "key.NAME", &conf_key_keys, &p->key_seen,
				  p->c->n_keys ? this_key(p) : NULL },
		[SECTION_BANK] = { "bank", &conf_bank_keys, &p->bank_seen, &p->c->bank },
		[SECTION_NFS] = { "nfs", &conf_nfs_keys, &p->nfs_seen, &p->c->nfs },
		[SECTION_EXPORT] = { "export.NAME", &conf_export_keys, &p->export_seen,
				     p->c->n_exports ? conf_this_export(p) : NULL },
	};
	const struct conf_table *t = sections[p->section].table;
	size_t i;
	unsigned *seen = sections[p->section].seen;
	char known[160];

	(void)section; /* truncated to 49 characters; p->section is not */
	if (p->error)
		return 0;
	if (p->section == SECTION_NONE) {
		conf_fail(p, p->line, "'%s' stands before any section; begin with [cluster]", name);
		return 0;
	}
	for (i = 0; i < t->n && strcmp(t->keys[i].name, name) != 0;)
		i++;
	if (i == t->n) {
		key_list(t, known, sizeof(known));
		conf_fail(p, p->line, "unknown key '%s'; known in [%s]: %s", name,
			  sections[p->section].name, known);
	} else if (*seen & 1u << i) {
		conf_fail(p, p->line, "'%s' is given twice; remove one", name);
	} else {
		*seen |= 1u << i;
		t->keys[i].set(p, &t->keys[i], value,
			       (char *)sections[p->section].into + t->keys[i].offset);
	}
	return !p->error;
}

/* ---- sections and lines ---- */

/* Reports the first required key that is missing. */
static void check_keys(struct conf_parser *p, const char *section, unsigned line, unsigned seen,
		       const struct conf_table *t)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->keys[i].example && !(seen & 1u << i))
			conf_fail(p, line, "[%s] has no %s; add for example: %s = %s", section,
				  t->keys[i].name, t->keys[i].name, t->keys[i].example);
}

/* A section that is there once; *first is its line. */
static int open_single(struct conf_parser *p, const char *name, int section, unsigned *first)
{
	if (*first)
		return conf_fail(p, p->line, "a second [%s]; the first is on line %u: merge them",
				 name, *first);
	*first = p->line;
	p->section = section;
	return 0;
}

static int open_server(struct conf_parser *p, const char *digits)
{
	struct conf_row *rows, *r;
	char *end;
	unsigned long id = strtoul(digits, &end, 10);

	if (!isdigit((unsigned char)digits[0]) || *end || id >= CONF_MAX_TARGETS ||
	    (digits[0] == '0' && digits[1]))
		return conf_fail(p, p->line,
				 "[server.%s]: servers are numbered 0 to %d: [server.0]", digits,
				 CONF_MAX_TARGETS - 1);
	for (size_t i = 0; i < p->n_rows; i++)
		if (p->rows[i].t.id == id)
			return conf_fail(
				p, p->line,
				"[server.%lu] is on line %u already; give this one the next "
				"free number",
				id, p->rows[i].line);
	rows = realloc(p->rows, (p->n_rows + 1) * sizeof(*rows));
	if (!rows)
		return conf_no_memory(p);
	p->rows = rows;
	r = &rows[p->n_rows++];
	*r = (struct conf_row){ .line = p->line, .t.id = (uint32_t)id };
	snprintf(r->t.name, sizeof(r->t.name), "server%lu", id);
	p->section = SECTION_SERVER;
	return 0;
}

/* Checks the section that ends here. */
static void close_key(struct conf_parser *p)
{
	char section[CONF_NAME_MAX + 8];

	if (p->section != SECTION_KEY)
		return;
	snprintf(section, sizeof(section), "key.%s", this_key(p)->name);
	check_keys(p, section, p->key_line, p->key_seen, &conf_key_keys);
}

static int open_key(struct conf_parser *p, const char *name)
{
	struct client_key *keys, *k;
	char file[CONF_NAME_MAX + 8];

	if (conf_key_find(p->c, name))
		return conf_fail(p, p->line, "a second [key.%s]; give this one another name", name);
	if (p->c->n_keys == CONF_MAX_KEYS)
		return conf_fail(p, p->line, "more than %d keys", CONF_MAX_KEYS);
	keys = realloc(p->c->keys, (p->c->n_keys + 1) * sizeof(*keys));
	if (!keys)
		return conf_no_memory(p);
	p->c->keys = keys;
	k = &keys[p->c->n_keys];
	*k = (struct client_key){ 0 };
	if (conf_take_name(p, NULL, name, k->name))
		return p->error;
	p->c->n_keys++;
	p->key_line = p->line;
	p->key_seen = 0;
	p->section = SECTION_KEY;
	snprintf(file, sizeof(file), "%s.key", k->name);
	return conf_take_path(p, &(struct conf_key){ .name = "file" }, file, k->file);
}

static void close_export(struct conf_parser *p)
{
	char section[CONF_NAME_MAX + 8];

	if (p->section != SECTION_EXPORT)
		return;
	snprintf(section, sizeof(section), "export.%s", conf_this_export(p)->name);
	check_keys(p, section, p->export_line, p->export_seen, &conf_export_keys);
}

static int open_export(struct conf_parser *p, const char *name)
{
	struct conf_export *e, *all;

	for (uint32_t i = 0; i < p->c->n_exports; i++)
		if (strcmp(p->c->exports[i].name, name) == 0)
			return conf_fail(p, p->line,
					 "a second [export.%s]; give this one another name", name);
	if (p->c->n_exports == CONF_MAX_EXPORTS)
		return conf_fail(p, p->line, "more than %d exports", CONF_MAX_EXPORTS);
	all = realloc(p->c->exports, (p->c->n_exports + 1) * sizeof(*all));
	if (!all)
		return conf_no_memory(p);
	p->c->exports = all;
	e = &all[p->c->n_exports];
	*e = (struct conf_export){ .anon_uid = NOBODY, .anon_gid = NOBODY };
	if (conf_take_name(p, NULL, name, e->name))
		return p->error;
	p->c->n_exports++;
	p->export_line = p->line;
	p->export_seen = 0;
	p->section = SECTION_EXPORT;
	return 0;
}

static int open_section(struct conf_parser *p, const char *line, size_t n)
{
	const char *close = memchr(line, ']', n);
	char name[64];

	if (!close || (size_t)(close - line) > sizeof(name))
		return conf_fail(p, p->line, "a section looks like [cluster] or [server.0]");
	close_key(p);
	close_export(p);
	memcpy(name, line + 1, (size_t)(close - line - 1));
	name[close - line - 1] = 0;
	if (strcmp(name, "cluster") == 0)
		return open_single(p, name, SECTION_CLUSTER, &p->cluster_line);
	if (strcmp(name, "rdma") == 0)
		return open_single(p, name, SECTION_RDMA, &p->rdma_line);
	if (strncmp(name, "server.", 7) == 0)
		return open_server(p, name + 7);
	if (strncmp(name, "key.", 4) == 0)
		return open_key(p, name + 4);
	if (strcmp(name, "bank") == 0)
		return open_single(p, name, SECTION_BANK, &p->bank_line);
	if (strcmp(name, "nfs") == 0)
		return open_single(p, name, SECTION_NFS, &p->nfs_line);
	if (strncmp(name, "export.", 7) == 0)
		return open_export(p, name + 7);
	return conf_fail(p, p->line,
			 "unknown section [%s]; there are [cluster], [rdma], [server.N], "
			 "[key.NAME], [bank], [nfs] and [export.NAME]",
			 name);
}

/* inih's reader: the next line, without indentation (else a continuation). NULL ends parsing. */
static char *conf_reader(char *out, int size, void *arg)
{
	struct conf_parser *p = arg;
	const char *line, *end;
	size_t n;

	if (p->error || p->p == p->end || size < 2)
		return NULL;
	p->line++;
	line = p->p;
	end = memchr(line, '\n', (size_t)(p->end - line));
	end = end ? end : p->end;
	p->p = end < p->end ? end + 1 : end;
	if (p->line == 1 && end - line >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
		line += 3; /* byte order mark */
	while (line < end && isspace((unsigned char)*line))
		line++;
	n = (size_t)(end - line);
	if (n > 0 && memchr(line, 0, n))
		conf_fail(p, p->line, "a NUL byte; this is not a text file");
	else if (n > 0 && strchr(";#", line[0]))
		n = 0;
	else if (n > (size_t)size - 2)
		conf_fail(p, p->line,
			  "the line is longer than %d characters; use paths relative to "
			  "the folder of this file",
			  size - 2);
	else if (n > 0 && line[0] == '[')
		open_section(p, line, n);
	if (p->error)
		return NULL;
	memcpy(out, line, n);
	out[n] = '\n';
	out[n + 1] = 0;
	return out;
}

/* ---- the whole file ---- */

static int row_cmp(const void *a, const void *b)
{
	const struct conf_row *x = a, *y = b;

	return (x->t.id > y->t.id) - (x->t.id < y->t.id);
}

/* Two servers must not share a name, address or storage. The message names the later section. */
static void check_pair(struct conf_parser *p, const struct conf_row *a, const struct conf_row *b)
{
	const struct conf_row *late = a->line > b->line ? a : b, *early = late == a ? b : a;
	const char *what = NULL;

	if (strcmp(a->t.name, b->t.name) == 0)
		what = "name";
	else if (strcmp(a->t.address, b->t.address) == 0)
		what = "address";
	else if (strcmp(a->t.storage, b->t.storage) == 0)
		what = "storage";
	if (what)
		conf_fail(p, late->line, "[server.%u] has the %s of [server.%u]; give it its own",
			  late->t.id, what, early->t.id);
}

static void check_servers(struct conf_parser *p)
{
	char section[32];

	qsort(p->rows, p->n_rows, sizeof(*p->rows), row_cmp);
	for (size_t i = 0; i < p->n_rows && !p->error; i++) {
		const struct conf_row *r = &p->rows[i];

		if (r->t.id != i)
			conf_fail(p, r->line,
				  "[server.%u] without a [server.%zu]; number the "
				  "servers from 0 without gaps",
				  r->t.id, i);
		snprintf(section, sizeof(section), "server.%u", r->t.id);
		check_keys(p, section, r->line, r->seen, &conf_server_keys);
		for (size_t j = 0; j < i && !p->error; j++)
			check_pair(p, &p->rows[j], r);
	}
}

static void check_all(struct conf_parser *p)
{
	uint32_t n_meta = 0, n_data = 0;

	close_key(p);
	close_export(p);
	if (!p->cluster_line)
		conf_fail(p, 0, "no [cluster] section; 'sheaf init DIR' writes a whole file");
	check_keys(p, "cluster", p->cluster_line, p->seen, &conf_cluster_keys);
	if (p->bank_line)
		check_keys(p, "bank", p->bank_line, p->bank_seen, &conf_bank_keys);
	if (p->n_rows == 0)
		conf_fail(p, 0, "no server; add a section [server.0]");
	if (p->error)
		return;
	check_servers(p);
	for (size_t i = 0; i < p->n_rows; i++) {
		n_meta += (p->rows[i].t.roles & ROLE_META) != 0;
		n_data += (p->rows[i].t.roles & ROLE_DATA) != 0;
	}
	if (!n_meta)
		conf_fail(p, 0,
			  "no server has the role meta; give at least one: roles = meta data");
	if (!n_data)
		conf_fail(p, 0,
			  "no server has the role data; give at least one: roles = meta data");
	if (p->c->width > n_data)
		conf_fail(p, p->cluster_line,
			  "width = %u is more than the %u servers with the role data; give at most "
			  "that, or 0 for all",
			  p->c->width, n_data);
}

static int take_targets(struct conf_parser *p)
{
	struct conf *c = p->c;

	c->targets = calloc(p->n_rows, sizeof(*c->targets));
	if (!c->targets)
		return conf_no_memory(p);
	for (size_t i = 0; i < p->n_rows; i++)
		c->targets[i] = p->rows[i].t;
	c->n_targets = (uint32_t)p->n_rows;
	return 0;
}

/* The absolute path of the file and its folder, without resolving symbolic links. */
static int conf_place(struct conf_parser *p, const char *path)
{
	struct conf *c = p->c;
	char cwd[CONF_PATH_MAX];
	int n;

	while (path[0] == '.' && path[1] == '/')
		path += 2;
	if (path[0] == '/') {
		n = snprintf(c->path, sizeof(c->path), "%s", path);
	} else {
		if (!getcwd(cwd, sizeof(cwd)))
			return conf_fail(p, 0, "cannot determine the current directory: %s",
					 error_text(errno));
		n = snprintf(c->path, sizeof(c->path), "%s/%s", strcmp(cwd, "/") ? cwd : "", path);
	}
	if (n >= (int)sizeof(c->path))
		return conf_fail(p, 0, "the path is longer than %d characters", CONF_PATH_MAX - 1);
	memcpy(p->folder, c->path, sizeof(c->path));
	*strrchr(p->folder, '/') = 0;
	return 0;
}

static int conf_defaults(struct conf_parser *p)
{
	const struct conf_key key = { .name = "key" }, server_key = { .name = "server_key" },
			      bank_key = { .name = "key" };
	struct conf *c = p->c;

	c->stripe_unit = 256 * KIB;
	c->timeout_s = 30;
	c->lease_s = 30;
	c->pool_bytes = 64 * MIB;
	c->rdma.gid_index = CONF_AUTO;
	c->bank.block = 8 * KIB;
	c->bank.timeout_ms = 5;
	c->bank.data = true;
	c->bank.attributes = 1;
	c->nfs.memory = 64 * MIB;
	strcpy(c->nfs.address, "[::]:2049");
	if (conf_take_path(p, &key, "key", c->key_file) < 0 ||
	    conf_take_path(p, &bank_key, "bank.key", c->bank.key_file) < 0)
		return p->error;
	return conf_take_path(p, &server_key, "server.key", c->server_key_file);
}

int conf_parse(const char *text, size_t len, const char *path, struct conf **out, char *err,
	       size_t err_len)
{
	struct conf_parser p = {
		.file = path, .p = text, .end = text + len, .err = err, .err_len = err_len
	};
	int rc;

	p.c = calloc(1, sizeof(*p.c));
	if (!p.c)
		return conf_no_memory(&p);
	if (conf_place(&p, path) == 0 && conf_defaults(&p) == 0) {
		rc = ini_parse_stream(conf_reader, &p, conf_handler, &p);
		if (rc != 0)
			conf_fail(&p, rc > 0 ? (unsigned)rc : 0,
				  "neither a [section] nor key = value nor a comment");
	}
	if (!p.error)
		check_all(&p);
	if (!p.error)
		take_targets(&p);
	free(p.rows);
	if (p.error) {
		conf_free(p.c);
		return p.error;
	}
	*out = p.c;
	return 0;
}
