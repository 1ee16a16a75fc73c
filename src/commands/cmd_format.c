/* sheaf format: makes the storage directories of the servers of this host that have none.
 *
 * For a cluster file that was copied to several hosts: each makes the storage of its own servers,
 * so no storage directory has to be copied. Storage that exists is never touched, and a server that
 * was in service gets no new one: its disk may just not be mounted. */
#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/on_hosts.h"

enum { OPT_JSON, OPT_ALL_HOSTS, OPT_SSH, OPT_FORCE };

/* The servers as the metadata servers know them. */
struct known {
	bool is_asked;
	int n; /* 0: no metadata server answers */
	struct sheaf_server *s;
};

static int ask(struct cli *c, struct known *k)
{
	int n;

	if (k->is_asked)
		return CLI_OK;
	k->s = calloc(SHEAF_MAX_SERVERS, sizeof(*k->s));
	if (!k->s)
		return cli_error(c, "out of memory");
	k->is_asked = true;
	if (sheaf_connect(c->conf, &c->fs)) {
		c->fs = NULL;
		return CLI_OK;
	}
	c->n_conf = sheaf_server_count(c->fs);
	n = sheaf_map(c->fs, CLI_STATUS_MS, k->s, SHEAF_MAX_SERVERS);
	k->n = MAX(n, 0);
	return CLI_OK;
}

/* A server of this host whose storage has been in service, or NULL. */
static const struct conf_target *find_used(const struct conf *conf)
{
	char path[CLI_PATH_MAX];

	for (uint32_t i = 0; i < conf->n_targets; i++) {
		const struct conf_target *t = &conf->targets[i];

		/* sheafd writes this file when it starts */
		if (cli_address_is_local(t->address) && !cli_join(path, t->storage, "lives") &&
		    access(path, F_OK) == 0)
			return t;
	}
	return NULL;
}

static const char *remedy_of(const struct conf_target *t)
{
	return t->roles & ROLE_META ? "restore FILE --server" : "add-server --emptied";
}

/* How the metadata servers know this server, or NULL. */
static const struct sheaf_server *find_known(const struct known *k, const char *name)
{
	for (int i = 0; i < k->n; i++)
		if (strcmp(k->s[i].name, name) == 0)
			return &k->s[i];
	return NULL;
}

/* May this server, which has no storage, get one? Not if it was in service. The map has its
 * incarnation once a metadata server has had a link to it; no file is on a server that the map
 * lacks. */
static int check_new(struct cli *c, const struct conf *conf, const struct conf_target *t,
		     struct known *k)
{
	const struct sheaf_server *known;
	const struct conf_target *used;
	int status = ask(c, k);

	if (status)
		return status;
	known = find_known(k, t->name);
	if (known && known->incarnation)
		return cli_error(
			c,
			"%s was in service, but its storage %s is gone or empty: is a disk "
			"not mounted? If its data are lost, 'sheaf %s %s'",
			t->name, t->storage, remedy_of(t), t->name);
	if (k->n && !known)
		return CLI_OK;
	if (c->opt[OPT_FORCE] || (!k->n && !(t->roles & ROLE_META)))
		return CLI_OK;
	used = find_used(conf);
	if (!used)
		return CLI_OK;
	return cli_error(c,
			 "%s has no storage in %s, and %s of this host was in service: is a disk "
			 "not mounted? If its data are lost, 'sheaf %s %s'; if it never ran, "
			 "'sheaf format %s --force'",
			 t->name, t->storage, used->name, remedy_of(t), t->name, t->name);
}

/* 1: made. 0: it is there already. Negative: failed, after a message. */
static int format_one(struct cli *c, const struct conf *conf, const struct conf_target *t,
		      struct known *k)
{
	char id[CLI_PATH_MAX];

	if (!cli_join(id, t->storage, "sheaf.id") && access(id, F_OK) == 0)
		return 0;
	if (check_new(c, conf, t, k))
		return -1;
	if (cli_make_parents(t->storage)) {
		cli_fail_host(c, t->storage, -errno);
		return -1;
	}
	if (sheaf_server_format(conf->path, (int)t->id)) {
		cli_error(c, "%s: %s", t->name, sheaf_why());
		return -1;
	}
	return 1;
}

static void tell(struct cli *c, const struct conf_target *t, bool made, struct json_object *list)
{
	struct json_object *o;

	if (!c->opt[OPT_JSON]) {
		printf("%s: %s %s\n", t->name,
		       made ? "made the storage" : "has its storage already,", t->storage);
		return;
	}
	o = json_object_new_object();
	cli_json_text(o, "name", t->name);
	json_object_object_add(o, "storage", cli_json_name(t->storage));
	cli_json_bool(o, "made", made);
	json_object_array_add(list, o);
}

static bool is_wanted(struct cli *c, const struct conf_target *t)
{
	return c->n_args ? strcmp(c->args[0], t->name) == 0 : cli_address_is_local(t->address);
}

/* The servers that are to be formatted here, or NAME. The lock keeps another format or start of
 * this host out, which might take half-made storage for complete. *n: how many there are. */
static int format_all(struct cli *c, const struct conf *conf, struct json_object *list, int *n)
{
	struct known known = { 0 };
	int status = CLI_OK, r, lock = cli_lock_servers(conf);

	for (uint32_t i = 0; !status && i < conf->n_targets; i++) {
		const struct conf_target *t = &conf->targets[i];

		if (!is_wanted(c, t))
			continue;
		++*n;
		if (c->n_args && !cli_address_is_local(t->address))
			status = cli_error(c,
					   "%s (%s) is a server of another host: format it there",
					   t->name, t->address);
		r = status ? -1 : format_one(c, conf, t, &known);
		if (r < 0)
			status = CLI_FAILED;
		else
			tell(c, t, r, list);
	}
	if (lock >= 0)
		close(lock);
	free(known.s);
	return status;
}

static int run_format(struct cli *c)
{
	struct json_object *list = json_object_new_array();
	struct on_hosts *others = NULL;
	struct conf *conf = NULL;
	int status = CLI_OK, n = 0;

	if (c->opt[OPT_ALL_HOSTS] && (c->n_args || c->opt[OPT_JSON] || c->opt[OPT_FORCE]))
		status = cli_usage(c, "--all-hosts takes no NAME, --json or --force: use these on "
				      "the host of the server");
	if (!status)
		status = cli_load_conf(c, &conf);
	if (!status && c->opt[OPT_ALL_HOSTS])
		others = on_hosts_begin(c, conf, c->opt[OPT_SSH], "format");
	if (!status)
		status = format_all(c, conf, list, &n);
	if (!status && !n && c->n_args)
		status = cli_error(c, "%s has no server '%s'", conf->path, c->args[0]);
	else if (!status && !n && !c->opt[OPT_ALL_HOSTS])
		status = cli_error(c, "no server of %s has an address of this host", conf->path);
	if (c->opt[OPT_JSON] && !status)
		cli_json_print(list, JSON_C_TO_STRING_PRETTY);
	else
		json_object_put(list);
	if (conf && c->opt[OPT_ALL_HOSTS])
		status |= on_hosts_end(c, others);
	conf_free(conf);
	return status;
}

const struct cli_command cmd_format = {
	.name = "format",
	.usage = "[NAME] [--json] [--force] | --all-hosts [--ssh COMMAND]",
	.summary = "make the storage of the servers of this host that have none",
	.run = run_format,
	.max_args = 1,
	.options = { { 0, "json", NULL,
		       "for programs: [{\"name\": ..., \"storage\": ..., \"made\": ...}]" },
		     ON_HOSTS_ALL,
		     ON_HOSTS_SSH,
		     { 0, "force", NULL, "for a server that never ran, beside servers that did" } },
	.more = "For servers on several hosts: copy the cluster file and its keys to each host, then run this there,\n"
		"or with --all-hosts on one of them.\n"
		"Storage that exists is left as it is. A server that was in service gets no new storage, if a metadata server\n"
		"answers: its disk may not be mounted.\n",
	.examples = "  sheaf --conf /etc/sheaf/sheaf.conf format\n",
};
