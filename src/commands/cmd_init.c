/* sheaf init: creates a file system in a directory of this host; undone on failure. */
#include <netdb.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "commands/commands.h"

enum {
	OPT_SERVERS,
	OPT_META,
	OPT_PORT,
	OPT_STRIPE_UNIT,
	OPT_LISTEN,
	OPT_HOSTS,
	OPT_STORAGE,
	OPT_TRUST
};

#define DEFAULT_SERVERS 4
#define DEFAULT_PORT 7430

/* Sets *out from an option, if given; `note` follows the message about a wrong value. */
static int take_number(struct cli *c, int opt, uint32_t max, const char *note, uint32_t *out)
{
	uint64_t v = *out;

	if (c->opt[opt] && cli_number(c->opt[opt], 1, max, &v))
		return cli_usage(c, "--%s %s: not a number from 1 to %u%s",
				 c->cmd->options[opt].name, c->opt[opt], max, note);
	*out = (uint32_t)v;
	return CLI_OK;
}

static int take_options(struct cli *c, struct sheaf_init *o)
{
	char note[64];
	uint64_t v;

	o->servers = DEFAULT_SERVERS;
	o->port = DEFAULT_PORT;
	if (take_number(c, OPT_SERVERS, CONF_MAX_TARGETS, "", &o->servers))
		return CLI_USAGE;
	o->metas = cli_metas(o->servers);
	snprintf(note, sizeof(note), " (%u servers need as many ports)", o->servers);
	if (take_number(c, OPT_META, o->servers, " (servers)", &o->metas) ||
	    take_number(c, OPT_PORT, 65536 - o->servers, note, &o->port))
		return CLI_USAGE;
	if (c->opt[OPT_STRIPE_UNIT]) {
		if (parse_size(c->opt[OPT_STRIPE_UNIT], &v) || v == 0 || v > UINT32_MAX ||
		    v % (4 * KIB))
			return cli_usage(c, "--stripe-unit %s: not a multiple of 4K below 4G",
					 c->opt[OPT_STRIPE_UNIT]);
		o->stripe_unit = (uint32_t)v;
	}
	o->listen = c->opt[OPT_LISTEN];
	return CLI_OK;
}

/* -ENOENT: missing; 0: empty; another error: it must not be used. */
static int look_at(const char *dir)
{
	struct cli_names names;
	int r = cli_names_host(dir, &names);

	if (!r && names.n)
		r = -ENOTEMPTY;
	cli_names_free(&names);
	return r;
}

/* ---- a cluster file for several hosts ---- */

#define STORAGE "/srv/sheaf" /* on each host */
#define METRICS_OFFSET 1000 /* from a server's port to its metrics port */

static int check_host(struct cli *c, const char *host)
{
	const struct addrinfo want = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	int r = getaddrinfo(host, NULL, &want, &found);

	if (r)
		return cli_error(c, "the name of host %s cannot be resolved: %s", host,
				 gai_strerror(r));
	freeaddrinfo(found);
	return CLI_OK;
}

/* One server on each host, in the order of the list; all keep metadata unless --meta says fewer. */
static int put_servers(struct cli *c, const struct sheaf_init *o, FILE *f, uint32_t *n)
{
	const char *storage = c->opt[OPT_STORAGE] ? c->opt[OPT_STORAGE] : STORAGE;
	char *list = strdup(c->opt[OPT_HOSTS]), *rest;
	int status = list ? CLI_OK : cli_error(c, "out of memory");

	for (char *host = list ? strtok_r(list, ",", &rest) : NULL; host && !status;
	     host = strtok_r(NULL, ",", &rest)) {
		const char *open = strchr(host, ':') ? "[" : "", *shut = open[0] ? "]" : "";
		bool is_meta = !c->opt[OPT_META] || *n < o->metas;

		status = check_host(c, host);
		fprintf(f,
			"\n[server.%u]\nname = server%u\naddress = %s%s%s:%u\nroles = %s\n"
			"storage = %s/server%u\nmetrics = %s%s%s:%u\n",
			*n, *n, open, host, shut, o->port, is_meta ? "meta data" : "data", storage,
			*n, open, host, shut, o->port + METRICS_OFFSET);
		++*n;
	}
	free(list);
	if (!status && *n > CONF_MAX_TARGETS)
		status = cli_usage(c, "--hosts: more than %d", CONF_MAX_TARGETS);
	return status;
}

static int put_cluster(struct cli *c, const struct sheaf_init *o, FILE *f, uint32_t *n)
{
	struct uuid id;
	char text[UUID_TEXT];

	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return cli_error(c, "the kernel gave no random bytes");
	uuid_format(text, &id);
	fprintf(f,
		"; A Sheaf file system. See sheaf.conf(5).\n[cluster]\nid = %s\nkey = key\n"
		"server_key = server.key\nstripe_unit = %u\ntimeout = 30\nlease = 30\n",
		text, o->stripe_unit ? o->stripe_unit : (uint32_t)(256 * KIB));
	if (c->opt[OPT_TRUST])
		fprintf(f, "trust = %s\n", c->opt[OPT_TRUST]);
	return put_servers(c, o, f, n);
}

static const char *const key_files[] = { "key", "server.key" };

static void remove_in(const char *dir, const char *name)
{
	char path[CLI_PATH_MAX];

	if (!cli_join(path, dir, name))
		unlink(path);
}

/* Leaves no key that it made after a failure. */
static int write_keys(struct cli *c, const char *dir)
{
	char path[CLI_PATH_MAX], err[512] = "the path is too long";

	for (size_t i = 0; i < ARRAY_LEN(key_files); i++)
		if (cli_join(path, dir, key_files[i]) || key_create(path, err, sizeof(err))) {
			while (i > 0)
				remove_in(dir, key_files[--i]);
			return cli_error(c, "%s", err);
		}
	return CLI_OK;
}

/* Writes the cluster file and loads it again, which checks it. */
static int write_cluster(struct cli *c, const struct sheaf_init *o, const char *path, FILE *f,
			 uint32_t *n)
{
	struct conf *conf = NULL;
	char err[512];
	int status = put_cluster(c, o, f, n);

	if (fclose(f) && !status)
		status = cli_fail_host(c, path, -errno);
	if (!status && conf_load(path, &conf, err, sizeof(err)))
		status = cli_error(c, "%s", err);
	conf_free(conf);
	return status;
}

/* Writes the cluster file and its keys into DIR; each host formats its own storage. Of two that run
 * at once, the one that creates the cluster file goes on. After a failure it removes what it made
 * itself, and nothing of the other. */
static int init_hosts(struct cli *c, const struct sheaf_init *o, const char *dir)
{
	bool made = mkdir(dir, 0755) == 0;
	char path[CLI_PATH_MAX];
	uint32_t n = 0;
	FILE *f = NULL;
	int status;

	if (!made && errno != EEXIST)
		return cli_fail_host(c, dir, -errno);
	if (cli_join(path, dir, "sheaf.conf"))
		return cli_fail_host(c, dir, -ENAMETOOLONG);
	f = fopen(path, "wxe");
	if (f) {
		status = write_cluster(c, o, path, f, &n);
		if (!status)
			status = write_keys(c, dir);
		if (status)
			unlink(path);
	} else {
		status = cli_fail_host(c, path, -errno);
	}
	if (status && made)
		rmdir(dir); /* fails if another has put something into it */
	if (status)
		return status;
	printf("wrote %s for %u servers, and the keys beside it\nnext: copy %s to the other hosts, "
	       "then: sheaf --conf %s format --all-hosts\n",
	       path, n, dir, path);
	return CLI_OK;
}

static int run_init(struct cli *c)
{
	struct sheaf_init o = { .size = sizeof(o) };
	const char *dir = c->args[0];
	int r = take_options(c, &o), before;

	if (r)
		return r;
	before = look_at(dir);
	if (before == -ENOENT && cli_make_parents(dir))
		return cli_fail_host(c, dir, -errno);
	if (before == -ENOTEMPTY)
		return cli_error(
			c, "%s is not empty: choose a new directory, or start what is in it", dir);
	if (c->opt[OPT_HOSTS])
		return init_hosts(c, &o, dir);
	r = sheaf_init(dir, &o);
	if (r && r != -EEXIST && (before == 0 || before == -ENOENT))
		cli_remove_tree(dir, before == -ENOENT); /* DIR itself only if it was made here */
	if (r)
		return cli_fail_why(c, NULL, r);
	printf("made a file system of %u server%s in %s, %s port%s %u", o.servers,
	       o.servers == 1 ? "" : "s", dir, o.listen ? o.listen : "127.0.0.1",
	       o.servers == 1 ? "" : "s", o.port);
	if (o.servers > 1)
		printf(" to %u", o.port + o.servers - 1);
	printf("\nstart it: sheaf --conf %s/sheaf.conf start\n", dir);
	return CLI_OK;
}

const struct cli_command cmd_init = {
	.name = "init",
	.usage = "DIR [--servers N] [--meta N] [--port P] [--stripe-unit SIZE] [--listen ADDR] | "
		 "DIR --hosts LIST [--storage DIR] [--trust NETS]",
	.summary = "make a file system in DIR, which must be missing or empty",
	.run = run_init,
	.min_args = 1,
	.max_args = 1,
	.options = { { 0, "servers", "N", "how many servers (4)" },
		     { 0, "meta", "N",
		       "how many of them also keep metadata (one for two processors)" },
		     { 0, "port", "P", "port of the first server, the others follow (7430)" },
		     { 0, "stripe-unit", "SIZE",
		       "bytes in a row on one server, for example 1M (256K)" },
		     { 0, "listen", "ADDR", "address the servers listen on (127.0.0.1)" },
		     { 0, "hosts", "LIST",
		       "one server on each of these hosts, separated by commas" },
		     { 0, "storage", "DIR",
		       "with --hosts: where each has its storage (/srv/sheaf)" },
		     { 0, "trust", "NETS", "with --hosts: networks whose root is root here" } },
	.more = "Writes DIR/sheaf.conf (the cluster file), DIR/key, DIR/server.key and DIR/server0, ...\n"
		"With --hosts, 'sheaf format' on each host makes the storage.\n",
	.examples = "  sheaf init /srv/fs --servers 8\n"
		    "  sheaf init /srv/fs --listen 10.0.0.5 --stripe-unit 1M\n"
		    "  sheaf init /etc/sheaf --hosts node1,node2,node3 --trust 10.9.0.0/24\n",
};
