/* sheaf start: starts the servers of this host that do not run, all at once, and waits until each has
 * said that it is ready or why not. */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/commands.h"

#define START_NS (15 * NSEC_PER_SEC)

/* Takes what a starting server said; done when its line is complete or it is gone. */
static void listen_to(struct cli_daemon *d)
{
	ssize_t n = read(d->notify, d->said + d->n_said, sizeof(d->said) - 1 - d->n_said);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n > 0)
		d->n_said += (size_t)n;
	d->said[d->n_said] = 0;
	if (n > 0 && !strchr(d->said, '\n') && d->n_said < sizeof(d->said) - 1)
		return;
	d->said[strcspn(d->said, "\n")] = 0;
	d->done = true;
	d->ok = strcmp(d->said, "ready") == 0;
}

/* Until all are done or the time is over. */
static void wait_for_all(struct cli_daemon *d, size_t n)
{
	struct pollfd p[CONF_MAX_TARGETS];
	struct cli_daemon *who[CONF_MAX_TARGETS];
	uint64_t end = cli_now() + START_NS, now;

	while ((now = cli_now()) < end && !cli_signal) {
		nfds_t m = 0;

		for (size_t i = 0; i < n; i++) {
			if (d[i].done)
				continue;
			who[m] = &d[i];
			p[m++] = (struct pollfd){ d[i].notify, POLLIN, 0 };
		}
		if (!m)
			return;
		if (poll(p, m, (int)((end - now) / NSEC_PER_MSEC) + 1) <= 0)
			continue;
		for (nfds_t i = 0; i < m; i++)
			if (p[i].revents)
				listen_to(who[i]);
	}
}

static int report(struct cli *c, const struct cli_daemon *d)
{
	const char *name = d->target->name;
	char log[CLI_PATH_MAX];

	cli_log_path(log, d->target);
	if (d->ok) {
		printf("%s (%s) is up, pid %d\n", name, d->target->address, d->pid);
		return CLI_OK;
	}
	if (!d->done)
		return cli_error(c, "%s: not ready after %u s (pid %d); see %s", name,
				 (unsigned)(START_NS / NSEC_PER_SEC), d->pid, log);
	if (strncmp(d->said, "error: ", 7) == 0)
		return cli_error(c, "%s: %s", name, d->said + 7);
	return cli_error(c, "%s: it ended before it was ready; see %s", name, log);
}

/* Those that ran before must answer, too; asks over the network, as a client would. */
static int check_running(struct cli *c, struct cli_daemon *d, size_t n)
{
	int status = cli_connect(c);

	for (size_t i = 0; i < n && c->fs; i++) {
		struct sheaf_server s = { 0 };

		if (d[i].pidfd < 0)
			continue;
		if (sheaf_server_status(c->fs, (int)i, 5 * CLI_STATUS_MS, &s) == 0 && s.up)
			printf("%s (%s) is already running, pid %d\n", d[i].target->name,
			       d[i].target->address, d[i].pid);
		else
			status = cli_error(
				c,
				"%s: pid %d runs but does not answer on %s; 'sheaf stop' and "
				"'sheaf start' begin anew",
				d[i].target->name, d[i].pid, d[i].target->address);
	}
	return status;
}

static int run_start(struct cli *c)
{
	size_t n_here = 0, n_running = 0;
	struct cli_daemon *d;
	struct conf *conf;
	int status = cli_load_conf(c, &conf);

	if (status)
		return status;
	d = cli_daemons_find(conf);
	for (uint32_t i = 0; d && i < conf->n_targets; i++) {
		n_here += d[i].here;
		n_running += d[i].pid != 0;
		d[i].done = !d[i].here || d[i].pid || cli_daemon_spawn(&d[i], conf);
	}
	if (!d)
		status = cli_error(c, "out of memory");
	else if (!n_here)
		status = cli_error(c, "no server of %s has an address of this host", conf->path);
	else
		wait_for_all(d, conf->n_targets);
	for (uint32_t i = 0; d && i < conf->n_targets; i++)
		if (d[i].here && d[i].pidfd < 0)
			status |= report(c, &d[i]);
	if (n_running)
		status |= check_running(c, d, conf->n_targets);
	cli_daemons_free(d, conf->n_targets);
	conf_free(conf);
	return status;
}

const struct cli_command cmd_start = {
	.name = "start",
	.usage = "",
	.summary = "start the servers of this host that do not run yet",
	.run = run_start,
	.more = "Waits until all answer. Each server logs to sheafd.log in its storage directory.\n",
};
