/* sheaf start: starts the servers of this host that are not running, in parallel, and waits until
 * each has reported that it is ready or why it failed. Concurrent commands are serialized (by a
 * lock on the servers' key file), so the second finds the servers that the first has started. */
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/on_hosts.h"

enum { OPT_ALL_HOSTS, OPT_SSH };

/* True if this user may not write the storage: report that without starting a server. */
static bool is_foreign(struct cli_daemon *d)
{
	struct passwd *pw;
	struct stat st;

	if (access(d->target->storage, W_OK | X_OK) == 0 || errno != EACCES ||
	    stat(d->target->storage, &st) < 0)
		return false;
	pw = getpwuid(st.st_uid);
	snprintf(
		d->message, sizeof(d->message),
		"error: this user may not write the storage directory; start as its owner (%.100s)",
		pw ? pw->pw_name : "a user without a name on this host");
	return true;
}

/* Counts later servers that failed for the same reason; -1: an earlier one was reported. */
static int count_alike(const struct cli_daemon *d, size_t n, size_t i)
{
	int same = 0;

	for (size_t k = 0; k < n; k++) {
		if (k == i || !d[k].here || !d[k].done || d[k].ok ||
		    strcmp(d[k].message, d[i].message) != 0)
			continue;
		if (k < i)
			return -1;
		same++;
	}
	return same;
}

static int report(struct cli *c, const struct cli_daemon *all, size_t n, size_t i)
{
	const struct cli_daemon *d = &all[i];
	const char *name = d->target->name;
	char log[CLI_PATH_MAX], others[32] = "";
	int same;

	cli_log_path(log, d->target);
	if (d->asked_pid) {
		printf("%s (%s) is already running, pid %d of another container\n", name,
		       d->target->address, d->asked_pid);
		return CLI_OK;
	}
	if (d->ok) {
		printf("%s (%s) is up, pid %d\n", name, d->target->address, d->pid);
		return CLI_OK;
	}
	if (!d->done)
		return cli_error(c, "%s: not ready after %u s (pid %d); see %s", name,
				 (unsigned)(CLI_START_NS / NSEC_PER_SEC), d->pid, log);
	if (strncmp(d->message, "error: ", 7) != 0)
		return cli_error(c, "%s: it ended before it was ready; see %s", name, log);
	same = count_alike(all, n, i);
	if (same > 0)
		snprintf(others, sizeof(others), " and %d more", same);
	if (same >= 0)
		cli_error(c, "%s%s: %s", name, others, d->message + 7);
	return CLI_FAILED;
}

/* True: the process has ended meanwhile, for example after a kill just before this command. */
static bool has_ended(const struct cli_daemon *d)
{
	struct pollfd p = { .fd = d->pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Asks a server that was running before over the network, as a client does. */
static bool answers(struct cli *c, const struct cli_daemon *d, size_t i)
{
	struct sheaf_server s = { 0 };

	for (int tries = 0; tries < 10 && !has_ended(&d[i]); tries++)
		if (sheaf_server_status(c->fs, (int)i, CLI_STATUS_MS / 2, &s) == 0 && s.up)
			return true;
	return false;
}

static void spawn(struct cli_daemon *d, const struct conf *conf)
{
	d->done = !d->here || d->pid || d->asked_pid || is_foreign(d) || cli_daemon_spawn(d, conf);
}

/* Servers that were running before must answer; one that has ended is started. */
static int check_running(struct cli *c, struct cli_daemon *d, const struct conf *conf)
{
	int status = cli_connect(c);

	for (uint32_t i = 0; i < conf->n_targets && c->fs; i++) {
		if (d[i].pidfd < 0)
			continue;
		if (answers(c, d, i)) {
			printf("%s (%s) is already running, pid %d\n", d[i].target->name,
			       d[i].target->address, d[i].pid);
		} else if (has_ended(&d[i])) {
			close(d[i].pidfd);
			d[i].pidfd = -1;
			d[i].pid = 0;
			spawn(&d[i], conf);
		} else {
			status = cli_error(
				c,
				"%s: pid %d runs but does not answer on %s; 'sheaf stop' and "
				"'sheaf start' begin anew",
				d[i].target->name, d[i].pid, d[i].target->address);
		}
	}
	return status;
}

static int start_all(struct cli *c, struct cli_daemon *d, const struct conf *conf)
{
	size_t n_here = 0, n_running = 0;
	int status;

	for (uint32_t i = 0; i < conf->n_targets; i++)
		d[i].done = d[i].here && !d[i].pid && is_foreign(&d[i]);
	status = cli_daemons_ask(c, d, conf);

	for (uint32_t i = 0; i < conf->n_targets; i++) {
		n_here += d[i].here;
		n_running += d[i].pid != 0;
		spawn(&d[i], conf);
	}
	if (!n_here && c->opt[OPT_ALL_HOSTS])
		return CLI_OK;
	if (!n_here)
		return cli_error(c, "no server of %s has an address of this host", conf->path);
	if (n_running)
		status |= check_running(c, d, conf);
	cli_daemons_wait(d, conf->n_targets, CLI_START_NS);
	for (uint32_t i = 0; i < conf->n_targets; i++)
		if (d[i].here && d[i].pidfd < 0)
			status |= report(c, d, conf->n_targets, i);
	return status;
}

static int run_start(struct cli *c)
{
	struct on_hosts *others = NULL;
	struct cli_daemon *d;
	struct conf *conf;
	int status = cli_load_conf(c, &conf), lock;

	if (status)
		return status;
	if (c->opt[OPT_ALL_HOSTS])
		others = on_hosts_begin(c, conf, c->opt[OPT_SSH], "start");
	lock = cli_lock_servers(conf);
	d = cli_daemons_find(conf);
	status = d ? start_all(c, d, conf) : cli_error(c, "out of memory");
	cli_daemons_free(d, conf->n_targets);
	if (lock >= 0)
		close(lock);
	if (c->opt[OPT_ALL_HOSTS])
		status |= on_hosts_end(c, others);
	conf_free(conf);
	return status;
}

const struct cli_command cmd_start = {
	.name = "start",
	.usage = "[--all-hosts [--ssh COMMAND]]",
	.summary = "start the servers of this host that do not run yet",
	.run = run_start,
	.options = { ON_HOSTS_ALL, ON_HOSTS_SSH },
	.more = "With --all-hosts also on the other hosts, which need this cluster file under the same path. Waits until all answer. Each server logs to sheafd.log in its storage directory.\n",
	.examples = "  sheaf --conf /srv/fs/sheaf.conf start\n",
};
