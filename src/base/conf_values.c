/* The keys of a cluster file and their values.
 *
 * Each function parses the value of key k to `out`. Threads: any. Errors: the parser keeps the
 * first message. */
#include "base/conf_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_SECONDS 86400

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

static int value_size(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	uint64_t n;

	if (parse_size(v, &n) < 0 || n < MIB || n > MIB * MIB)
		return conf_fail(p, p->line,
				 "%s = %s is not a size from 1M to 1T; for example: %s = 64M",
				 k->name, v, k->name);
	*(uint64_t *)out = n;
	return 0;
}

int conf_take_path(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
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
	    v[bracketed ? 1 : 0] == '-' || /* ssh would take it for an option */
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

int conf_take_name(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
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
	uint32_t *n = nets == p->c->trust  ? &p->c->n_trust :
		      nets == p->c->squash ? &p->c->n_squash :
					     &conf_this_export(p)->n_nets;
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

static int value_yes(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	bool *yes = out;

	*yes = strcmp(v, "yes") == 0;
	if (!*yes && strcmp(v, "no") != 0)
		return conf_fail(p, p->line, "%s = %s is neither yes nor no", k->name, v);
	return 0;
}

/* Addresses of daemons, in any number of words. */
static int value_daemons(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	struct conf_bank *b = &p->c->bank;
	char word[CONF_ADDR_MAX + 1];
	size_t len;

	(void)out;
	for (v += strspn(v, " \t,"); *v; v += len, v += strspn(v, " \t,")) {
		len = strcspn(v, " \t,");
		if (b->n_servers == CONF_MAX_BANK)
			return conf_fail(p, p->line, "%s names more than %d daemons", k->name,
					 CONF_MAX_BANK);
		snprintf(word, sizeof(word), "%.*s", (int)len, v);
		if (value_address(p, k, word, b->servers[b->n_servers]))
			return p->error;
		b->n_servers++;
	}
	return b->n_servers ? 0 :
			      conf_fail(p, p->line,
					"%s is empty; give for example: servers = 127.0.0.1:11211",
					k->name);
}

static int value_block(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	uint64_t n;

	if (parse_size(v, &n) < 0 || n < 256 || n > MIB || n & (n - 1))
		return conf_fail(p, p->line,
				 "%s = %s is not a power of two from 256 to 1M; for example: "
				 "block = 8K",
				 k->name, v);
	*(uint32_t *)out = (uint32_t)n;
	return 0;
}

static int value_hash(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	bool *modulo = out;

	*modulo = strcmp(v, "modulo") == 0;
	if (!*modulo && strcmp(v, "consistent") != 0)
		return conf_fail(p, p->line, "%s = %s is not known; give: consistent or modulo",
				 k->name, v);
	return 0;
}

/* on, or off */
static int value_seal(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	bool *unsealed = out;

	*unsealed = strcmp(v, "off") == 0;
	if (!*unsealed && strcmp(v, "on") != 0)
		return conf_fail(p, p->line, "%s = %s is neither on nor off", k->name, v);
	return 0;
}

/* readers, or servers */
static int value_fill(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	bool *by_servers = out;

	*by_servers = strcmp(v, "servers") == 0;
	if (!*by_servers && strcmp(v, "readers") != 0)
		return conf_fail(p, p->line, "%s = %s is neither readers nor servers", k->name, v);
	return 0;
}

static int value_squash(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	static const char *const names[] = { "root", "all", "none" };
	enum conf_squash *squash = out;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(v, names[i]) == 0) {
			*squash = (enum conf_squash)i;
			return 0;
		}
	return conf_fail(p, p->line, "%s = %s is not known; give: root, all or none", k->name, v);
}

/* A path inside the file system. */
static int value_inside(struct conf_parser *p, const struct conf_key *k, const char *v, void *out)
{
	size_t n = strlen(v);

	if (v[0] != '/' || n >= CONF_PATH_MAX || strstr(v, "/../") ||
	    (n >= 3 && strcmp(v + n - 3, "/..") == 0))
		return conf_fail(p, p->line,
				 "%s = %s is not an absolute path of the file system without '..'; "
				 "for example: path = /home",
				 k->name, v);
	strcpy(out, v);
	return 0;
}

/* ---- keys ---- */

static const struct conf_key cluster_keys[] = {
	{ "id", value_uuid, .offset = offsetof(struct conf, fs_id),
	  .example = "01234567-89ab-cdef-0123-456789abcdef" },
	{ "key", conf_take_path, .offset = offsetof(struct conf, key_file) },
	{ "server_key", conf_take_path, .offset = offsetof(struct conf, server_key_file) },
	{ "stripe_unit", value_stripe_unit, .offset = offsetof(struct conf, stripe_unit) },
	{ "width", value_number, .offset = offsetof(struct conf, width), .min = 0,
	  .max = CONF_MAX_TARGETS },
	{ "timeout", value_number, .offset = offsetof(struct conf, timeout_s), .min = 1,
	  .max = MAX_SECONDS },
	{ "lease", value_number, .offset = offsetof(struct conf, lease_s), .min = 1,
	  .max = MAX_SECONDS },
	{ "pool", value_size, .offset = offsetof(struct conf, pool_bytes) },
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
	{ "pinned_max", value_size, .offset = offsetof(struct conf_rdma, pinned_max) },
};

static const struct conf_key key_keys[] = {
	{ "file", conf_take_path, .offset = offsetof(struct client_key, file) },
	{ "role", value_role, .offset = offsetof(struct client_key, role), .example = "any" },
};

static const struct conf_key server_keys[] = {
	{ "name", conf_take_name, .offset = offsetof(struct conf_target, name) },
	{ "address", value_address, .offset = offsetof(struct conf_target, address),
	  .example = "127.0.0.1:7430" },
	{ "metrics", value_address, .offset = offsetof(struct conf_target, metrics) },
	{ "roles", value_roles, .offset = offsetof(struct conf_target, roles),
	  .example = "meta data" },
	{ "storage", conf_take_path, .offset = offsetof(struct conf_target, storage),
	  .example = "server0" },
};

static const struct conf_key bank_keys[] = {
	{ "servers", value_daemons, .example = "127.0.0.1:11211" },
	{ "key", conf_take_path, .offset = offsetof(struct conf_bank, key_file) },
	{ "block", value_block, .offset = offsetof(struct conf_bank, block) },
	{ "timeout_ms", value_number, .offset = offsetof(struct conf_bank, timeout_ms), .min = 1,
	  .max = 1000 },
	{ "hash", value_hash, .offset = offsetof(struct conf_bank, modulo) },
	{ "seal", value_seal, .offset = offsetof(struct conf_bank, unsealed) },
	{ "data", value_yes, .offset = offsetof(struct conf_bank, data) },
	{ "fill", value_fill, .offset = offsetof(struct conf_bank, server_fills) },
	{ "attributes", value_number, .offset = offsetof(struct conf_bank, attributes), .max = 60 },
};

static const struct conf_key nfs_keys[] = {
	{ "address", value_address, .offset = offsetof(struct conf_nfs, address) },
	{ "metrics", value_address, .offset = offsetof(struct conf_nfs, metrics) },
	{ "memory", value_size, .offset = offsetof(struct conf_nfs, memory) },
};

static const struct conf_key export_keys[] = {
	{ "path", value_inside, .offset = offsetof(struct conf_export, path), .example = "/" },
	{ "networks", value_networks, .offset = offsetof(struct conf_export, nets) },
	{ "ro", value_yes, .offset = offsetof(struct conf_export, ro) },
	{ "squash", value_squash, .offset = offsetof(struct conf_export, squash) },
	{ "anon_uid", value_number, .offset = offsetof(struct conf_export, anon_uid),
	  .max = UINT32_MAX - 1 },
	{ "anon_gid", value_number, .offset = offsetof(struct conf_export, anon_gid),
	  .max = UINT32_MAX - 1 },
	{ "insecure", value_yes, .offset = offsetof(struct conf_export, insecure) },
	{ "manage_gids", value_yes, .offset = offsetof(struct conf_export, manage_gids) },
};

const struct conf_table conf_cluster_keys = { cluster_keys, ARRAY_LEN(cluster_keys) };
const struct conf_table conf_rdma_keys = { rdma_keys, ARRAY_LEN(rdma_keys) };
const struct conf_table conf_server_keys = { server_keys, ARRAY_LEN(server_keys) };
const struct conf_table conf_key_keys = { key_keys, ARRAY_LEN(key_keys) };
const struct conf_table conf_bank_keys = { bank_keys, ARRAY_LEN(bank_keys) };
const struct conf_table conf_nfs_keys = { nfs_keys, ARRAY_LEN(nfs_keys) };
const struct conf_table conf_export_keys = { export_keys, ARRAY_LEN(export_keys) };
