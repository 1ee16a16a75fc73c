/* sheaf init: creates a file system in a directory of this host; undone on failure. */
#include <ftw.h>
#include <unistd.h>

#include "commands/commands.h"

enum { OPT_SERVERS, OPT_META, OPT_PORT, OPT_STRIPE_UNIT, OPT_LISTEN };

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

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	if (at->level > 0) /* DIR itself is removed only if it was created here */
		remove(path);
	return 0;
}

static int run_init(struct cli *c)
{
	struct sheaf_init o = { .size = sizeof(o) };
	const char *dir = c->args[0];
	int r = take_options(c, &o), before;

	if (r)
		return r;
	before = look_at(dir);
	r = sheaf_init(dir, &o);
	if (r && r != -EEXIST && (before == 0 || before == -ENOENT)) {
		nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
		if (before == -ENOENT)
			rmdir(dir);
	}
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
	.usage = "DIR [--servers N] [--meta N] [--port P] [--stripe-unit SIZE] [--listen ADDR]",
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
		     { 0, "listen", "ADDR", "address the servers listen on (127.0.0.1)" } },
	.more = "Writes DIR/sheaf.conf (the cluster file), DIR/key, DIR/server.key and DIR/server0, ...\n",
	.examples = "  sheaf init /srv/fs --servers 8\n"
		    "  sheaf init /srv/fs --listen 10.0.0.5 --stripe-unit 1M\n",
};
