/* sheaf add-server: adds a data server to a running file system, or returns one to service empty
 * that lost its storage.
 *
 *   cluster file -> storage -> start -> the metadata servers
 *
 * Each step checks whether it was done before, so an interrupted command can be run again and
 * continues. The server becomes known only after it answers: the last step lets files use it.
 *
 * A server that is in the map, and whose storage is missing or another one, is refused: its data
 * are lost, and an administrator must confirm that (--emptied). */
#include <json-c/json.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "commands/commands.h"

#define STOP_MS 20000
#define METRICS_OFFSET 1000 /* metrics port minus server port, as 'sheaf init' sets it */

enum { OPT_ADDRESS, OPT_STORAGE, OPT_NO_START, OPT_EMPTIED, OPT_JSON };

struct adding {
	struct cli *c;
	const char *name;
	struct conf *conf;
	struct sheaf_server *known; /* servers in the cluster map */
	int n_known;
	uint32_t id;
	bool made; /* lost storage, or lost objects in it, was recreated */
	off_t conf_size; /* of the cluster file before its section was written; -1: it was not */
	bool formatted; /* this run has made its storage */
	bool started; /* this run has started it */
	bool refused; /* by the metadata servers; it is not in the map */
	bool had_folder, was_vacant; /* its directory was there before; it was missing or empty */
	char address[CONF_ADDR_MAX], storage[CONF_PATH_MAX];
};

/* ---- defaults ---- */

static unsigned long port_of(const char *address)
{
	return strtoul(strrchr(address, ':') + 1, NULL, 10);
}

/* The host of the last server, and the port after the highest there. */
static int default_address(struct adding *a)
{
	const struct conf *conf = a->conf;
	const char *last = conf->targets[conf->n_targets - 1].address;
	size_t host = (size_t)(strrchr(last, ':') - last);
	unsigned long port = 0;

	for (uint32_t i = 0; i < conf->n_targets; i++) {
		const char *at = conf->targets[i].address;

		if (strncmp(at, last, host + 1) == 0)
			port = MAX(port, port_of(at));
	}
	if (port >= 65535)
		return cli_usage(a->c, "there is no next port; give --address HOST:PORT");
	snprintf(a->address, sizeof(a->address), "%.*s:%lu", (int)MIN(host, CONF_ADDR_MAX - 8),
		 last, port + 1);
	return CLI_OK;
}

/* Beside the storage of the last server. */
static int default_storage(struct adding *a)
{
	char last[CONF_PATH_MAX];
	int n;

	snprintf(last, sizeof(last), "%s", a->conf->targets[a->conf->n_targets - 1].storage);
	n = snprintf(a->storage, sizeof(a->storage), "%s/%s", dirname(last), a->name);
	return n < (int)sizeof(a->storage) ? CLI_OK : cli_usage(a->c, "give --storage DIR");
}

static int given_storage(struct adding *a, const char *dir)
{
	char cwd[CONF_PATH_MAX];
	int n;

	if (dir[0] == '/')
		n = snprintf(a->storage, sizeof(a->storage), "%s", dir);
	else if (getcwd(cwd, sizeof(cwd)))
		n = snprintf(a->storage, sizeof(a->storage), "%s/%s", cwd, dir);
	else
		return cli_fail_host(a->c, "the current directory", -errno);
	return n < (int)sizeof(a->storage) ? CLI_OK : cli_usage(a->c, "%s is too long", dir);
}

/* ---- the cluster file ---- */

static int append(struct adding *a, const char *text)
{
	char err[CONF_PATH_MAX + 512];

	if (conf_append(&a->conf, text, err, sizeof(err)))
		return cli_error(a->c, "%s", err);
	return CLI_OK;
}

/* The section exists: does it agree with the options? */
static int check_section(struct adding *a)
{
	const struct conf_target *t = &a->conf->targets[a->id];

	if ((a->c->opt[OPT_ADDRESS] && strcmp(a->address, t->address) != 0) ||
	    (a->c->opt[OPT_STORAGE] && strcmp(a->storage, t->storage) != 0))
		return cli_error(a->c, "%s is in %s already, with address %s and storage %s",
				 t->name, a->conf->path, t->address, t->storage);
	if (t->roles != ROLE_DATA && !a->c->opt[OPT_EMPTIED])
		return cli_error(a->c, "%s is a metadata server of this file system already",
				 t->name);
	return CLI_OK;
}

static bool storage_is_gone(const struct conf_target *t)
{
	char id[CONF_PATH_MAX + 16];

	snprintf(id, sizeof(id), "%s/sheaf.id", t->storage);
	return access(id, F_OK) < 0 && errno == ENOENT;
}

/* Does the server's storage agree with the map? */
static int check_storage(struct adding *a)
{
	const struct conf_target *t = &a->conf->targets[a->id];

	if ((int)a->id >= a->n_known || a->c->opt[OPT_EMPTIED] || !storage_is_gone(t))
		return CLI_OK;
	return cli_error(
		a->c,
		"%s is in the map, but its storage %s is gone or empty: is a disk not mounted? "
		"If its data are lost, 'sheaf find --on %s' lists the files that had any there, "
		"and 'sheaf add-server %s --emptied' returns it to service empty",
		t->name, t->storage, t->name, t->name);
}

static int write_section(struct adding *a)
{
	char text[CONF_PATH_MAX + 512], metrics[CONF_ADDR_MAX + 32] = "";
	unsigned long port = port_of(a->address) + METRICS_OFFSET;
	size_t folder = (size_t)(strrchr(a->conf->path, '/') + 1 - a->conf->path);
	const char *storage = a->storage;
	struct cli_names names = { 0 };
	struct stat st;

	if (strncmp(storage, a->conf->path, folder) == 0 && storage[folder])
		storage += folder; /* relative, so that the folder can be moved */

	if (a->conf->targets[0].metrics[0] && port <= 65535)
		snprintf(metrics, sizeof(metrics), "metrics = %.*s:%lu\n",
			 (int)(strrchr(a->address, ':') - a->address), a->address, port);
	snprintf(text, sizeof(text),
		 "\n[server.%u]\nname = %s\naddress = %s\nroles = data\nstorage = %s\n%s",
		 a->conf->n_targets, a->name, a->address, storage, metrics);
	a->conf_size = stat(a->conf->path, &st) ? -1 : st.st_size;
	a->had_folder = access(a->storage, F_OK) == 0;
	a->was_vacant = cli_names_host(a->storage, &names) == 0 ? !names.n : !a->had_folder;
	cli_names_free(&names);
	return append(a, text);
}

/* After a refusal: takes back the section and the storage that this run has made. The server is not
 * in the map, and does not run. */
static void undo(struct adding *a)
{
	const struct conf_target *t = &a->conf->targets[a->id];

	if (a->conf_size < 0)
		return;
	if (a->formatted && a->was_vacant)
		cli_remove_tree(t->storage, !a->had_folder);
	if (truncate(a->conf->path, a->conf_size))
		cli_error(a->c, "%s keeps a section for %s, which was not added: remove it",
			  a->conf->path, t->name);
}

static int edit(struct adding *a)
{
	int status = cli_conf_update(a->c, &a->conf, a->known, a->n_known);

	if (status)
		return status;
	for (a->id = 0; a->id < a->conf->n_targets; a->id++)
		if (strcmp(a->conf->targets[a->id].name, a->name) == 0)
			return check_section(a);
	if (a->id == CONF_MAX_TARGETS)
		return cli_error(a->c, "a file system has at most %d servers", CONF_MAX_TARGETS);
	if (!a->c->opt[OPT_ADDRESS])
		status = default_address(a);
	if (!status && !a->c->opt[OPT_STORAGE])
		status = default_storage(a);
	if (status)
		return status;
	if (!strrchr(a->address, ':'))
		return cli_usage(a->c, "--address %s is not HOST:PORT", a->address);
	if (!cli_address_is_local(a->address))
		return cli_error(
			a->c,
			"%s is no address of this host; run this on that host, with a copy "
			"of %s and the keys it names",
			a->address, a->conf->path);
	return write_section(a);
}

/* ---- the server ---- */

static int start(struct adding *a)
{
	struct cli_daemon *all = cli_daemons_find(a->conf), *d = all ? &all[a->id] : NULL;
	char log[CLI_PATH_MAX];
	int status = CLI_OK;

	if (!d)
		return cli_error(a->c, "out of memory");
	cli_log_path(log, d->target);
	if (!d->pid && a->c->opt[OPT_NO_START])
		status = cli_error(a->c, "%s does not run yet; start it and run this again",
				   a->name);
	else if (!d->pid && !cli_daemon_spawn(d, a->conf))
		cli_daemons_wait(d, 1, CLI_START_NS);
	if (!status && d->pidfd < 0 && !d->ok)
		status = cli_error(a->c, "%s: %s; see %s", a->name,
				   strncmp(d->message, "error: ", 7) == 0 ? d->message + 7 :
									    "it did not start",
				   log);
	a->started = !status && d->ok;
	cli_daemons_free(all, a->conf->n_targets);
	return status;
}

/* Stops the server that this run has started. False: it still runs. */
static bool stop(struct adding *a)
{
	struct cli_daemon *all = cli_daemons_find(a->conf), *d = all ? &all[a->id] : NULL;
	struct pollfd p = { d ? d->pidfd : -1, POLLIN, 0 };
	bool has_ended = d && (p.fd < 0 || (pidfd_send_signal(p.fd, SIGTERM, NULL, 0) == 0 &&
					    poll(&p, 1, STOP_MS) == 1));

	cli_daemons_free(all, all ? a->conf->n_targets : 0);
	return has_ended;
}

/* Recreates lost storage, empty. */
static int make_lost(struct adding *a)
{
	int r = sheaf_server_format_lost(a->c->conf, (int)a->id);

	if (r < 0)
		return cli_error(a->c, "%s", sheaf_why());
	a->made |= r > 0;
	return CLI_OK;
}

/* A metadata server that lost only its objects must run before the map can be read. */
static int revive_meta(struct adding *a)
{
	const struct conf_target *t;
	int status;

	for (a->id = 0; a->id < a->conf->n_targets; a->id++)
		if (strcmp(a->conf->targets[a->id].name, a->name) == 0)
			break;
	t = &a->conf->targets[a->id];
	if (a->id == a->conf->n_targets || !(t->roles & ROLE_META))
		return CLI_OK;
	if (storage_is_gone(t))
		return cli_error(a->c,
				 "%s keeps metadata: bring them back first, 'sheaf restore FILE "
				 "--server %s'",
				 t->name, t->name);
	status = make_lost(a);
	return status ? status : start(a);
}

/* Replaces the lost storage in the map by the new one. */
static int publish_emptied(struct adding *a, const struct sheaf_server *s)
{
	if (s->incarnation == a->known[a->id].incarnation && a->made)
		return CLI_OK; /* only objects were lost; the map is correct */
	if (s->incarnation == a->known[a->id].incarnation)
		return cli_error(
			a->c,
			"%s has the storage that the map knows, nothing is lost; to empty it, "
			"stop it and move %s away first",
			s->name, a->conf->targets[a->id].storage);
	if (sheaf_server_emptied(a->c->fs, (int)a->id))
		return cli_error(a->c, "%s; run this again", sheaf_why());
	return CLI_OK;
}

/* An answer, not silence, and no metadata server has taken it: it stays unknown. */
static bool is_unknown(struct adding *a, int error)
{
	struct sheaf_server *now = calloc(SHEAF_MAX_SERVERS, sizeof(*now));
	int n = !now || cli_no_answer(error) ?
			-1 :
			sheaf_map(a->c->fs, 5 * CLI_STATUS_MS, now, SHEAF_MAX_SERVERS);
	bool is = n > 0;

	for (int i = 0; i < n; i++)
		if (strcmp(now[i].name, a->name) == 0 || ((now[i].roles & ROLE_META) && !now[i].up))
			is = false;
	free(now);
	return is;
}

static int fail_publish(struct adding *a, int error)
{
	int status = cli_error(a->c, "%s; run this again", sheaf_why());

	a->refused = is_unknown(a, error);
	return status;
}

/* Adds the server to the map once it answers over the network: now files may use it. */
static int publish(struct adding *a)
{
	const struct conf_target *t = &a->conf->targets[a->id];
	struct sheaf_server s = { 0 };
	int r;

	cli_disconnect(a->c); /* this connection does not know the new server */
	if (cli_connect(a->c))
		return CLI_FAILED;
	r = sheaf_server_status(a->c->fs, (int)a->id, 5 * CLI_STATUS_MS, &s);
	if (r || !s.up)
		return cli_error(a->c, "%s does not answer on %s; run this again when it does",
				 t->name, t->address);
	if (a->c->opt[OPT_EMPTIED])
		return publish_emptied(a, &s);
	r = sheaf_server_add(a->c->fs, (int)a->id, t->name, t->address);
	if (r == -ESTALE)
		return cli_error(a->c,
				 "%s has other storage than the map knows: what files had there is "
				 "lost; put its storage back, or 'sheaf add-server %s --emptied'",
				 t->name, t->name);
	if (r)
		return fail_publish(a, r);
	return CLI_OK;
}

static void tell(const struct adding *a)
{
	const struct conf_target *t = &a->conf->targets[a->id];
	struct json_object *o;

	if (!a->c->opt[OPT_JSON]) {
		printf("%s (%s) is server %u, with storage in %s; new files use it\n", t->name,
		       t->address, t->id, t->storage);
		if (a->c->opt[OPT_EMPTIED])
			puts("what files had there is lost; 'sheaf find --damaged' lists them");
		return;
	}
	o = json_object_new_object();
	cli_json_int(o, "id", t->id);
	cli_json_text(o, "name", t->name);
	cli_json_text(o, "address", t->address);
	json_object_object_add(o, "storage", cli_json_name(t->storage));
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
}

/* Only a server in the map can have lost data. */
static int check_known(struct adding *a)
{
	for (int i = 0; i < a->n_known; i++)
		if (strcmp(a->known[i].name, a->name) == 0)
			return CLI_OK;
	return cli_error(
		a->c, "%s is not in the map yet, so it has lost nothing: add it without --emptied",
		a->name);
}

static int add(struct adding *a)
{
	int status = a->c->opt[OPT_EMPTIED] ? revive_meta(a) : CLI_OK;

	if (!status)
		status = cli_connect(a->c);
	if (status)
		return status;
	a->known = calloc(SHEAF_MAX_SERVERS, sizeof(*a->known));
	if (!a->known)
		return cli_error(a->c, "out of memory");
	a->n_known = sheaf_map(a->c->fs, 5 * CLI_STATUS_MS, a->known, SHEAF_MAX_SERVERS);
	if (a->n_known < 0)
		return cli_error(a->c, "%s; all metadata servers must be up", sheaf_why());
	for (int i = 0; i < a->n_known; i++)
		if ((a->known[i].roles & ROLE_META) && !a->known[i].up)
			return cli_error(a->c,
					 "%s (%s) does not answer; all metadata servers must be up",
					 a->known[i].name, a->known[i].address);
	if (a->c->opt[OPT_EMPTIED])
		status = check_known(a);
	if (!status)
		status = edit(a);
	if (!status)
		status = check_storage(a);
	if (status)
		return status;
	if (a->c->opt[OPT_EMPTIED])
		status = make_lost(a);
	else if (sheaf_server_format(a->c->conf, (int)a->id))
		status = cli_error(a->c, "%s", sheaf_why());
	else
		a->formatted = true;
	if (!status)
		status = start(a);
	if (!status)
		status = publish(a);
	else if (!a->c->opt[OPT_NO_START]) /* else it is to be started before the next run */
		undo(a);
	if (a->refused && a->conf_size >= 0 && a->started && stop(a))
		undo(a);
	if (!status)
		tell(a);
	return status;
}

static int run_add_server(struct cli *c)
{
	struct adding a = { .c = c, .name = c->args[0], .conf_size = -1 };
	int status = cli_load_conf(c, &a.conf), lock;

	if (status)
		return status;
	lock = cli_lock_servers(a.conf);
	conf_free(a.conf); /* the file may have changed while waiting for the lock */
	status = cli_load_conf(c, &a.conf);
	if (!status && c->opt[OPT_ADDRESS])
		snprintf(a.address, sizeof(a.address), "%s", c->opt[OPT_ADDRESS]);
	if (!status && c->opt[OPT_STORAGE])
		status = given_storage(&a, c->opt[OPT_STORAGE]);
	if (!status)
		status = add(&a);
	free(a.known);
	conf_free(a.conf);
	if (lock >= 0)
		close(lock);
	return status;
}

const struct cli_command cmd_add_server = {
	.name = "add-server",
	.usage = "NAME [--address HOST:PORT] [--storage DIR] [--no-start] [--emptied] [--json]",
	.summary = "add a data server on this host to the running file system",
	.run = run_add_server,
	.min_args = 1,
	.max_args = 1,
	.options = { { 0, "address", "ADDRESS",
		       "where it listens (the host of the last server, the next port)" },
		     { 0, "storage", "DIR",
		       "its storage directory (beside that of the last server)" },
		     { 0, "no-start", NULL, "do not start it; systemd does, for example" },
		     { 0, "emptied", NULL,
		       "NAME is known, and its storage is lost: it comes back empty" },
		     { 0, "json", NULL, "for programs: {\"id\": ..., \"name\": ...}" } },
	.more = "Writes the cluster file, makes the storage, starts the server and tells the metadata servers. New files\n"
		"use it at once, old ones stay where they are. If it is broken off, run it again. For another host, run it\n"
		"there with a copy of the cluster file and the keys. A server whose storage is lost is refused unless\n"
		"--emptied says so: then it gets new storage, and what files had on it is EIO from then on.\n",
	.examples = "  sheaf add-server server4\n"
		    "  sheaf add-server disk7 --address 10.0.0.6:7430 --storage /mnt/disk7/sheaf\n",
};
