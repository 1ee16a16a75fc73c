/* sheaf stop: asks the servers of this host to stop and waits until they have exited. */
#include <poll.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/on_hosts.h"

enum { OPT_ALL_HOSTS, OPT_SSH };

#define STOP_NS (20 * NSEC_PER_SEC)

static int send_term(struct cli *c, struct cli_daemon *d)
{
	if (pidfd_send_signal(d->pidfd, SIGTERM, NULL, 0) == 0 || errno == ESRCH)
		return CLI_OK;
	d->done = true;
	return cli_error(c, "%s: cannot stop pid %d: %s", d->target->name, d->pid,
			 error_text(errno));
}

static bool has_ended(struct cli_daemon *d, uint64_t end)
{
	struct pollfd p = { d->pidfd, POLLIN, 0 };
	uint64_t now = time_now();
	int r;

	do
		r = poll(&p, 1, now < end ? (int)((end - now) / NSEC_PER_MSEC) + 1 : 0);
	while (r < 0 && errno == EINTR);
	return r > 0;
}

/* A clean stop removes the pid file. */
static int report(struct cli *c, struct cli_daemon *d, uint64_t end)
{
	const struct conf_target *t = d->target;
	char pid_path[CLI_PATH_MAX], log[CLI_PATH_MAX];

	cli_pid_path(pid_path, t);
	cli_log_path(log, t);
	if (!d->pid && d->asked_pid)
		return cli_error(c,
				 "%s (%s) runs as pid %d, which is no sheafd of this host: stop it "
				 "in its container",
				 t->name, t->address, d->asked_pid);
	if (!d->pid && d->down && d->down != SHEAF_DOWN_OTHER && d->down != SHEAF_DOWN_STRANGER)
		return cli_error(c, "not stopped: %s", d->message);
	if (!d->pid) {
		printf("%s (%s) is not running%s\n", t->name, t->address,
		       d->down ? "; another program has its address" : "");
		return CLI_OK;
	}
	if (!has_ended(d, end))
		return cli_error(c, "%s: pid %d is still stopping after %u s; see %s", t->name,
				 d->pid, (unsigned)(STOP_NS / NSEC_PER_SEC), log);
	if (access(pid_path, F_OK) == 0) /* it stays: the next start reports it in the log */
		return cli_error(c, "%s: pid %d ended without a clean stop; see %s", t->name,
				 d->pid, log);
	printf("%s (%s) has stopped\n", t->name, t->address);
	return CLI_OK;
}

/* Servers whose pid file is unreadable are neither stopped nor "not running"; one message. */
static int skip_hidden(struct cli *c, struct cli_daemon *d, size_t n)
{
	char path[CLI_PATH_MAX], others[32] = "";
	struct cli_daemon *first = NULL;
	int more = -1;

	for (size_t i = 0; i < n; i++) {
		cli_pid_path(path, d[i].target);
		if (!d[i].here || access(path, R_OK) == 0 || errno != EACCES)
			continue;
		d[i].done = true;
		first = first ? first : &d[i];
		more++;
	}
	if (!first)
		return CLI_OK;
	if (more)
		snprintf(others, sizeof(others), " and %d more", more);
	return cli_error(c, "%s%s: this user may not read %s; stop as the user that started it",
			 first->target->name, others, first->target->storage);
}

static int run_stop(struct cli *c)
{
	uint64_t end = time_now() + STOP_NS;
	struct on_hosts *others = NULL;
	struct cli_daemon *d;
	struct conf *conf;
	int status = cli_load_conf(c, &conf);

	if (status)
		return status;
	if (c->opt[OPT_ALL_HOSTS])
		others = on_hosts_begin(c, conf, c->opt[OPT_SSH], "stop");
	d = cli_daemons_find(conf);
	if (!d)
		status = cli_error(c, "out of memory");
	else
		status = skip_hidden(c, d, conf->n_targets);
	if (d)
		status |= cli_daemons_ask(c, d, conf);
	for (uint32_t i = 0; d && i < conf->n_targets; i++)
		if (d[i].pid)
			status |= send_term(c, &d[i]);
	for (uint32_t i = 0; d && i < conf->n_targets; i++) {
		if (!d[i].here && c->opt[OPT_ALL_HOSTS])
			continue;
		if (!d[i].here)
			printf("%s (%s) is on another host; stop it there\n", d[i].target->name,
			       d[i].target->address);
		else if (!d[i].done)
			status |= report(c, &d[i], end);
	}
	cli_daemons_free(d, conf->n_targets);
	if (c->opt[OPT_ALL_HOSTS])
		status |= on_hosts_end(c, others);
	conf_free(conf);
	return status;
}

const struct cli_command cmd_stop = {
	.name = "stop",
	.usage = "[--all-hosts [--ssh COMMAND]]",
	.summary = "stop the servers of this host",
	.run = run_stop,
	.options = { ON_HOSTS_ALL, ON_HOSTS_SSH },
	.more = "A clean stop: everything acknowledged is on disk, and clients go on after a start.\n",
	.examples = "  sheaf --conf /srv/fs/sheaf.conf stop\n",
};
