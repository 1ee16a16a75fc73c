/* sheaf restore: replaces the metadata of stopped servers of this host by those of a backup. */
#include <json-c/json.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "commands/commands.h"

enum { OPT_SERVER, OPT_FORCE, OPT_JSON };

static bool holds(const struct sheaf_backup *b, uint32_t id)
{
	for (uint32_t i = 0; i < b->servers; i++)
		if (b->ids[i] == id)
			return true;
	return false;
}

/* Selects the servers that are in the backup, on this host, and asked for; none may be running. */
static int choose(struct cli *c, const struct cli_daemon *d, uint32_t n,
		  const struct sheaf_backup *b, bool *chosen)
{
	const char *name = c->opt[OPT_SERVER];
	unsigned found = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct conf_target *t = d[i].target;

		chosen[i] = holds(b, i) && d[i].here && (!name || strcmp(name, t->name) == 0);
		if (!chosen[i])
			continue;
		found++;
		if (d[i].pid)
			return cli_error(c, "%s runs (pid %d); stop it first: sheaf stop", t->name,
					 d[i].pid);
	}
	if (!found && name)
		return cli_error(c, "%s is no server of this host with metadata in %s", name,
				 c->args[0]);
	if (!found)
		return cli_error(c, "%s has no metadata of servers of this host", c->args[0]);
	return CLI_OK;
}

static void tell_json(const struct sheaf_backup *b, const struct conf *conf, const bool *done)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (uint32_t i = 0; i < conf->n_targets; i++)
		if (done[i])
			json_object_array_add(list, json_object_new_string(conf->targets[i].name));
	cli_json_int(o, "time_ns", b->time);
	json_object_object_add(o, "restored", list);
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
}

static void tell(const struct sheaf_backup *b, const struct cli_daemon *d, const struct conf *conf,
		 const bool *done)
{
	time_t t = (time_t)(b->time / (int64_t)NSEC_PER_SEC);
	char when[32];
	struct tm tm;

	localtime_r(&t, &tm);
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	for (uint32_t i = 0; i < conf->n_targets; i++) {
		if (done[i])
			printf("%s has the metadata of %s; the old ones are in %s/meta/data.mdb.replaced\n",
			       conf->targets[i].name, when, conf->targets[i].storage);
		else if (holds(b, i) && !d[i].here)
			printf("%s is on another host; restore it there\n", conf->targets[i].name);
	}
	puts("start the servers; they ask the data servers for the size of every file, in the background");
}

static int restore_chosen(struct cli *c, const struct conf *conf, struct cli_daemon *d,
			  const struct sheaf_backup *b)
{
	bool chosen[CONF_MAX_TARGETS] = { 0 };
	int status = choose(c, d, conf->n_targets, b, chosen);

	for (uint32_t i = 0; i < conf->n_targets; i++) {
		int r;

		if (status || !chosen[i])
			continue;
		r = sheaf_restore(c->conf, c->args[0], (int)i, c->opt[OPT_FORCE] != NULL);
		if (r)
			status = cli_fail_why(c, conf->targets[i].name, r);
	}
	if (status)
		return status;
	if (c->opt[OPT_JSON])
		tell_json(b, conf, chosen);
	else
		tell(b, d, conf, chosen);
	return CLI_OK;
}

static int run_restore(struct cli *c)
{
	struct sheaf_backup b = { .size = sizeof(b) };
	struct cli_daemon *d = NULL;
	struct conf *conf;
	int status = cli_load_conf(c, &conf), lock, r;

	if (status)
		return status;
	lock = cli_lock_servers(conf);
	r = sheaf_backup_check(c->args[0], &b);
	if (r)
		status = cli_fail_why(c, NULL, r);
	else if (!(d = cli_daemons_find(conf)))
		status = cli_error(c, "out of memory");
	else
		status = restore_chosen(c, conf, d, &b);
	cli_daemons_free(d, conf->n_targets);
	conf_free(conf);
	if (lock >= 0)
		close(lock);
	return status;
}

const struct cli_command cmd_restore = {
	.name = "restore",
	.usage = "FILE [--server NAME] [--force] [--json]",
	.summary = "put the metadata of a backup back, while the servers of this host are stopped",
	.run = run_restore,
	.min_args = 1,
	.max_args = 1,
	.options = { { 0, "server", "NAME", "only this server: the others kept theirs" },
		     { 0, "force", NULL, "replace metadata that changed after the backup" },
		     { 0, "json", NULL, "for programs: {\"restored\": [NAME, ...], ...}" } },
	.more = "Files made since the backup are gone (their data stay until they are removed as orphans); files removed\n"
		"since are back without their data; files written since have the data of today.\n",
	.examples =
		"  sheaf stop; sheaf restore /var/backups/sheaf-2026-06-01 --force; sheaf start\n"
		"  sheaf restore /var/backups/sheaf-2026-06-01 --server server2\n",
};
