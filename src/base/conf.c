/* The cluster file: an INI file, read by inih and checked here.
 *
 * inih calls back for keys only and has no line numbers, so the reader callback counts lines and
 * handles section headings. The first error ends parsing; its message names file and line, the
 * fault and a correct value. */
#include "base/base.h"

#include <ctype.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_SECONDS 86400

enum { SECTION_NONE, SECTION_CLUSTER, SECTION_RDMA, SECTION_SERVER, SECTION_KEY };

/* A target while its section is parsed. */
struct conf_row {
	struct conf_target t;
	unsigned line; /* of its section */
	unsigned seen; /* bit set of its keys */
};

struct conf_parser {
	const char *file; /* as shown in messages */
	const char *p, *end;
	unsigned line;
	int section;
	unsigned cluster_line; /* 0: not seen yet */
	unsigned seen; /* bit set of keys of [cluster] */
	unsigned rdma_line, rdma_seen; /* the same of [rdma] */
	struct conf *c;
	char folder[CONF_PATH_MAX]; /* base of relative paths, without a final slash */
	struct conf_row *rows;
	size_t n_rows;
	unsigned key_line, key_seen; /* of the current [key.NAME] */
	int error;
	char *err;
	size_t err_len;
};

/* Keeps the first message. */
__attribute__((format(printf, 3, 4))) static int conf_fail(struct conf_parser *p, unsigned line,
							   const char *fmt, ...)
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

/* ---- values: each function parses the value of key k to `out` ---- */

struct conf_key {
	const char *name;
	int (*set)(struct conf_parser *p, const struct conf_key *k, const char *v, void *out);
	size_t offset; /* of `out` in the struct of its section */
	const char *example; /* of a required key */
	uint32_t min, max; /* of a number */
};

static int value_number(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(v, &end, 10);
	if (!isdigit((unsigned char)v[0]) || *end || errno || n < k->min || n > k->max)
		return conf_fail(p, p->line, "%s = %s is not a number from %u to %u", k->name, v,
				 k->min, k->max);
	*(uint32_t *)out = (uint32_t)n;
	return 0;
}

static int value_stripe_unit(struct conf_parser *p, const struct conf_key *k, const char *v,
			     void *out)
{
	uint64_t n;

	if (parse_size(v, &n) < 0 || n < 4 * KIB || n > 1024 * MIB || n % (4 * KIB))
		return conf_fail(p, p->line,
				 "%s = %s is not a multiple of 4K from 4K to 1G; for "
				 "example: stripe_unit = 256K",
				 k->name, v);
	*(uint32_t *)out = (uint32_t)n;
	return 0;
}

static int value_pool(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	uint64_t n;

	if (parse_size(v, &n) < 0 || n < MIB || n > MIB * MIB)
		return conf_fail(p, p->line,
				 "%s = %s is not a size from 1M to 1T; for example: pool = 64M",
				 k->name, v);
	*(uint64_t *)out = n;
	return 0;
}

/* Makes a path relative to the file's folder absolute. */
static int value_path(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	char *path = out;
	int n;

	if (!v[0])
		return conf_fail(p, p->line, "%s is empty; give a path", k->name);
	if (v[0] == '/')
		n = snprintf(path, CONF_PATH_MAX, "%s", v);
	else
		n = snprintf(path, CONF_PATH_MAX, "%s/%s", p->folder, v);
	if (n >= CONF_PATH_MAX)
		return conf_fail(p, p->line,
				 "%s is longer than %d characters; move it to a shorter path",
				 k->name, CONF_PATH_MAX - 1);
	while (n > 1 && path[n - 1] == '/')
		path[--n] = 0;
	return 0;
}

/* HOST:PORT, [IPV6]:PORT */
static int value_address(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	const char *colon = strrchr(v, ':'), *at;
	bool bracketed = v[0] == '[' && colon && colon > v + 2 && colon[-1] == ']';
	unsigned long port = 0;
	char *end = NULL;

	if (colon && isdigit((unsigned char)colon[1]))
		port = strtoul(colon + 1, &end, 10);
	if (!end || *end || port < 1 || port > 65535 || colon == v || *v == '@' ||
	    (!bracketed && memchr(v, ':', (size_t)(colon - v))))
		return conf_fail(p, p->line,
				 "%s = %s is not HOST:PORT; for example: %s = 127.0.0.1:7430",
				 k->name, v, k->name);
	for (at = v; *at; at++)
		if (!isgraph((unsigned char)*at) || *at == '/')
			return conf_fail(p, p->line,
					 "%s = %s holds a character that no HOST:PORT has", k->name,
					 v);
	if (strlen(v) >= CONF_ADDR_MAX)
		return conf_fail(p, p->line, "the address is longer than %d characters",
				 CONF_ADDR_MAX - 1);
	strcpy(out, v);
	return 0;
}

static int value_roles(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	static const struct {
		const char *name;
		unsigned role;
	} known[] = { { "meta", ROLE_META }, { "data", ROLE_DATA } };
	unsigned *roles = out;
	size_t n, i;

	*roles = 0;
	for (v += strspn(v, " \t,"); *v; v += n, v += strspn(v, " \t,")) {
		n = strcspn(v, " \t,");
		for (i = 0; i < ARRAY_LEN(known); i++)
			if (strlen(known[i].name) == n && memcmp(known[i].name, v, n) == 0)
				break;
		if (i == ARRAY_LEN(known))
			return conf_fail(p, p->line, "'%.*s' is not a role; roles are: meta data",
					 (int)n, v);
		*roles |= known[i].role;
	}
	if (!*roles)
		return conf_fail(p, p->line, "%s is empty; give: roles = meta data", k->name);
	return 0;
}

static int value_name(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	const char *at;

	(void)k;
	for (at = v; isalnum((unsigned char)*at) || (at > v && strchr("._-", *at) && *at);)
		at++;
	if (!v[0] || *at || strlen(v) >= CONF_NAME_MAX)
		return conf_fail(p, p->line,
				 "name = %s is not 1 to 31 letters, digits, '.', '_' or '-', "
				 "starting with a letter or digit",
				 v);
	strcpy(out, v);
	return 0;
}

static int value_networks(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	struct ip_net *nets = out;
	uint32_t *n = nets == p->c->trust ? &p->c->n_trust : &p->c->n_squash;
	char word[64];
	size_t len;

	for (v += strspn(v, " \t,"); *v; v += len, v += strspn(v, " \t,")) {
		len = strcspn(v, " \t,");
		if (*n == CONF_MAX_NETS)
			return conf_fail(p, p->line, "%s names more than %d networks", k->name,
					 CONF_MAX_NETS);
		snprintf(word, sizeof(word), "%.*s", (int)len, v);
		if (len >= sizeof(word) || ip_net_parse(&nets[*n], word) < 0)
			return conf_fail(
				p, p->line,
				"%s: '%.*s' is not a network; for example: %s = "
				"192.0.2.0/24 2001:db8::/32 (all bits behind the slash's are 0)",
				k->name, (int)len, v, k->name);
		(*n)++;
	}
	return *n ? 0 :
		    conf_fail(p, p->line, "%s is empty; give a network or leave it out", k->name);
}

/* "any", or "uid N gid M ..." */
static int value_role(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	struct key_role *r = out;
	unsigned long long n[CONF_KEY_GIDS + 2] = { 0 };
	size_t i = 0;
	char *end;

	(void)k;
	r->any = strcmp(v, "any") == 0;
	if (r->any)
		return 0;
	if (strncmp(v, "uid ", 4) != 0)
		goto wrong;
	for (v += 4; *v && i < ARRAY_LEN(n); i++) {
		if (i == 1) {
			if (strncmp(v, "gid ", 4) != 0)
				goto wrong;
			v += 4;
		}
		v += strspn(v, " \t");
		errno = 0;
		n[i] = strtoull(v, &end, 10);
		if (!isdigit((unsigned char)*v) || errno || n[i] >= UINT32_MAX ||
		    (*end && !strchr(" \t", *end)))
			goto wrong;
		v = end + strspn(end, " \t");
	}
	if (*v || i < 2 || i == ARRAY_LEN(n))
		goto wrong;
	r->uid = (uint32_t)n[0];
	for (r->n_gids = 0; r->n_gids + 1 < i; r->n_gids++)
		r->gids[r->n_gids] = (uint32_t)n[r->n_gids + 1];
	return 0;
wrong:
	return conf_fail(p, p->line,
			 "a role is 'any', or a uid and 1 to %d gids: role = uid 1000 gid 1000 100",
			 CONF_KEY_GIDS);
}

static int value_uuid(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	if (uuid_parse(out, v) < 0)
		return conf_fail(p, p->line,
				 "%s = %s is not a UUID like 01234567-89ab-cdef-0123-456789abcdef",
				 k->name, v);
	return 0;
}

static int value_mode(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	bool *nosync = out;

	*nosync = strcmp(v, "nosync") == 0;
	if (!*nosync && strcmp(v, "sync") != 0)
		return conf_fail(p, p->line, "%s = %s is not a mode; give: sync or nosync", k->name,
				 v);
	return 0;
}

static int value_device(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	if (!v[0] || strlen(v) >= CONF_NAME_MAX || strpbrk(v, " \t/"))
		return conf_fail(
			p, p->line,
			"%s = %s is not the name of a device as ibv_devices prints it, nor "
			"none; for example: device = mlx5_0",
			k->name, v);
	strcpy(out, v);
	return 0;
}

static int value_pkey(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	char *end;
	unsigned long n = strtoul(v, &end, 0);

	if (!isdigit((unsigned char)v[0]) || *end || n == 0 || n > UINT16_MAX)
		return conf_fail(p, p->line,
				 "%s = %s is not a partition key; for example: pkey = 0x8001",
				 k->name, v);
	*(uint32_t *)out = (uint32_t)n;
	return 0;
}

/* auto, or never */
static int value_never(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	bool *never = out;

	*never = strcmp(v, "never") == 0;
	if (!*never && strcmp(v, "auto") != 0)
		return conf_fail(p, p->line, "%s = %s is not known; give: auto or never", k->name,
				 v);
	return 0;
}

/* ---- keys ---- */

static struct client_key *this_key(struct conf_parser *p)
{
	return &p->c->keys[p->c->n_keys - 1];
}

static const struct conf_key cluster_keys[] = {
	{ "id", value_uuid, .offset = offsetof(struct conf, fs_id),
	  .example = "01234567-89ab-cdef-0123-456789abcdef" },
	{ "key", value_path, .offset = offsetof(struct conf, key_file) },
	{ "server_key", value_path, .offset = offsetof(struct conf, server_key_file) },
	{ "stripe_unit", value_stripe_unit, .offset = offsetof(struct conf, stripe_unit) },
	{ "width", value_number, .offset = offsetof(struct conf, width), .min = 0,
	  .max = CONF_MAX_TARGETS },
	{ "timeout", value_number, .offset = offsetof(struct conf, timeout_s), .min = 1,
	  .max = MAX_SECONDS },
	{ "lease", value_number, .offset = offsetof(struct conf, lease_s), .min = 1,
	  .max = MAX_SECONDS },
	{ "pool", value_pool, .offset = offsetof(struct conf, pool_bytes) },
	{ "mode", value_mode, .offset = offsetof(struct conf, nosync) },
	{ "sieve", value_never, .offset = offsetof(struct conf, never_sieve) },
	{ "trust", value_networks, .offset = offsetof(struct conf, trust) },
	{ "squash", value_networks, .offset = offsetof(struct conf, squash) },
};

static const struct conf_key rdma_keys[] = {
	{ "device", value_device, .offset = offsetof(struct conf_rdma, device) },
	{ "port", value_number, .offset = offsetof(struct conf_rdma, port), .min = 1, .max = 255 },
	{ "gid_index", value_number, .offset = offsetof(struct conf_rdma, gid_index), .max = 255 },
	{ "traffic_class", value_number, .offset = offsetof(struct conf_rdma, traffic_class),
	  .max = 255 },
	{ "service_level", value_number, .offset = offsetof(struct conf_rdma, service_level),
	  .max = 15 },
	{ "pkey", value_pkey, .offset = offsetof(struct conf_rdma, pkey) },
	{ "client_driven", value_never, .offset = offsetof(struct conf_rdma, never_driven) },
};

static const struct conf_key key_keys[] = {
	{ "file", value_path, .offset = offsetof(struct client_key, file) },
	{ "role", value_role, .offset = offsetof(struct client_key, role), .example = "any" },
};

static const struct conf_key server_keys[] = {
	{ "name", value_name, .offset = offsetof(struct conf_target, name) },
	{ "address", value_address, .offset = offsetof(struct conf_target, address),
	  .example = "127.0.0.1:7430" },
	{ "metrics", value_address, .offset = offsetof(struct conf_target, metrics) },
	{ "roles", value_roles, .offset = offsetof(struct conf_target, roles),
	  .example = "meta data" },
	{ "storage", value_path, .offset = offsetof(struct conf_target, storage),
	  .example = "server0" },
};

/* Lists the known keys for a message. */
static void key_list(const struct conf_key *keys, size_t n, char *out, size_t out_len)
{
	size_t at = 0;

	for (size_t i = 0; i < n && at < out_len; i++)
		at += (size_t)snprintf(out + at, out_len - at, "%s%s", i ? " " : "", keys[i].name);
}

/* inih's callback for one key. Returns 0 only if p->error is set. */
static int conf_handler(void *arg, const char *section, const char *name, const char *value)
{
	struct conf_parser *p = arg;
	struct conf_row *row = p->n_rows ? &p->rows[p->n_rows - 1] : NULL;
	const struct {
		const char *name;
		const struct conf_key *keys;
		size_t n;
		unsigned *seen;
		void *into;
	} sections[] = {
		[SECTION_CLUSTER] = { "cluster", cluster_keys, ARRAY_LEN(cluster_keys), &p->seen,
				      p->c },
		[SECTION_RDMA] = { "rdma", rdma_keys, ARRAY_LEN(rdma_keys), &p->rdma_seen,
				   &p->c->rdma },
		[SECTION_SERVER] = { "server.N", server_keys, ARRAY_LEN(server_keys),
				     row ? &row->seen : NULL, row ? &row->t : NULL },
		[SECTION_KEY] = { "key.NAME", key_keys, ARRAY_LEN(key_keys), &p->key_seen,
				  p->c->n_keys ? this_key(p) : NULL },
	};
	const struct conf_key *keys = sections[p->section].keys;
	size_t i, n = sections[p->section].n;
	unsigned *seen = sections[p->section].seen;
	char known[160];

	(void)section; /* truncated to 49 characters; p->section is not */
	if (p->error)
		return 0;
	if (p->section == SECTION_NONE) {
		conf_fail(p, p->line, "'%s' stands before any section; begin with [cluster]", name);
		return 0;
	}
	for (i = 0; i < n && strcmp(keys[i].name, name) != 0;)
		i++;
	if (i == n) {
		key_list(keys, n, known, sizeof(known));
		conf_fail(p, p->line, "unknown key '%s'; known in [%s]: %s", name,
			  sections[p->section].name, known);
	} else if (*seen & 1u << i) {
		conf_fail(p, p->line, "'%s' is given twice; remove one", name);
	} else {
		*seen |= 1u << i;
		keys[i].set(p, &keys[i], value, (char *)sections[p->section].into + keys[i].offset);
	}
	return !p->error;
}

/* ---- sections and lines ---- */

/* Reports the first required key that is missing. */
static void check_keys(struct conf_parser *p, const char *section, unsigned line, unsigned seen,
		       const struct conf_key *keys, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (keys[i].example && !(seen & 1u << i))
			conf_fail(p, line, "[%s] has no %s; add for example: %s = %s", section,
				  keys[i].name, keys[i].name, keys[i].example);
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
	check_keys(p, section, p->key_line, p->key_seen, key_keys, ARRAY_LEN(key_keys));
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
	if (value_name(p, NULL, name, k->name))
		return p->error;
	p->c->n_keys++;
	p->key_line = p->line;
	p->key_seen = 0;
	p->section = SECTION_KEY;
	snprintf(file, sizeof(file), "%s.key", k->name);
	return value_path(p, &(struct conf_key){ .name = "file" }, file, k->file);
}

static int open_section(struct conf_parser *p, const char *line, size_t n)
{
	const char *close = memchr(line, ']', n);
	char name[64];

	if (!close || (size_t)(close - line) > sizeof(name))
		return conf_fail(p, p->line, "a section looks like [cluster] or [server.0]");
	close_key(p);
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
	return conf_fail(p, p->line,
			 "unknown section [%s]; there are [cluster], [rdma], [server.N] and "
			 "[key.NAME]",
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
		check_keys(p, section, r->line, r->seen, server_keys, ARRAY_LEN(server_keys));
		for (size_t j = 0; j < i && !p->error; j++)
			check_pair(p, &p->rows[j], r);
	}
}

static void check_all(struct conf_parser *p)
{
	uint32_t n_meta = 0, n_data = 0;

	close_key(p);
	if (!p->cluster_line)
		conf_fail(p, 0, "no [cluster] section; 'sheaf init DIR' writes a whole file");
	check_keys(p, "cluster", p->cluster_line, p->seen, cluster_keys, ARRAY_LEN(cluster_keys));
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
	const struct conf_key key = { .name = "key" }, server_key = { .name = "server_key" };
	struct conf *c = p->c;

	c->stripe_unit = 256 * KIB;
	c->timeout_s = 30;
	c->lease_s = 30;
	c->pool_bytes = 64 * MIB;
	c->rdma.gid_index = CONF_AUTO;
	if (value_path(p, &key, "key", c->key_file) < 0)
		return p->error;
	return value_path(p, &server_key, "server.key", c->server_key_file);
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
