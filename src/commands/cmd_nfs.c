/* sheaf nfs: starts, stops and asks the NFS gateway of this host. The gateway answers on a Unix
 * socket whose name has the address it serves; the kernel says which process that is. */
#include <fcntl.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "commands/commands.h"

#define STOP_NS (20 * NSEC_PER_SEC)
#define READY_MS 15000
#define STATUS_MAX MIB

enum { OPT_JSON };

/* A connection to the running gateway, and its pid; -ECONNREFUSED: none runs. */
static int reach(const struct conf *conf, pid_t *pid)
{
	struct sockaddr_un a;
	unsigned len = nfs_control_address(conf->nfs.address, &a);
	struct timeval limit = { .tv_sec = 5 };
	struct ucred who;
	socklen_t n = sizeof(who);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r = 0;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&a, len) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n))
		r = -errno;
	else if (who.uid != 0 && who.uid != geteuid())
		r = -EPERM; /* any user may have taken the name */
	if (r) {
		close(fd);
		return r;
	}
	*pid = who.pid;
	return fd;
}

static int find(struct cli *c, const struct conf *conf, pid_t *pid)
{
	int fd = reach(conf, pid);

	if (fd == -ECONNREFUSED || fd == -ENOENT)
		cli_error(c, "no gateway runs on this host for %s", conf->nfs.address);
	else if (fd < 0)
		cli_fail_host(c, conf->nfs.address, fd);
	return fd;
}

/* ---- start ---- */

/* Waits for the message of the started gateway. */
static int await_ready(struct cli *c, int fd, const char *log)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char text[CLI_PATH_MAX + 512] = "";
	ssize_t n = poll(&p, 1, READY_MS) == 1 ? read(fd, text, sizeof(text) - 1) : -1;

	text[strcspn(text, "\n")] = 0;
	if (n > 0 && strcmp(text, "ready") == 0)
		return CLI_OK;
	if (n > 0 && strncmp(text, "error: ", 7) == 0)
		return cli_error(c, "%s", text + 7);
	return cli_error(c, "the gateway is not ready; see %s", log);
}

static int start(struct cli *c, const struct conf *conf)
{
	char program[CLI_PATH_MAX], log[CLI_PATH_MAX], fd_text[8];
	char *argv[] = { "sheaf-nfsd", "--conf", (char *)(uintptr_t)conf->path,
			 "--log",      log,	 "--notify-fd",
			 fd_text,      NULL };
	int ends[2], r, status;
	pid_t pid;

	r = reach(conf, &pid);
	if (r >= 0) {
		close(r);
		printf("the gateway (%s) is already running, pid %d\n", conf->nfs.address, pid);
		return CLI_OK;
	}
	cli_find_program("sheaf-nfsd", program);
	snprintf(log, sizeof(log), "%s", conf->path);
	snprintf(strrchr(log, '/') + 1, 32, "sheaf-nfsd.log");
	snprintf(fd_text, sizeof(fd_text), "%d", CLI_NOTIFY_FD);
	if (pipe2(ends, O_CLOEXEC))
		return cli_fail_host(c, program, -errno);
	r = cli_spawn(program, argv, log, ends[1], &pid);
	close(ends[1]);
	status = r ? cli_fail_host(c, program, -r) : await_ready(c, ends[0], log);
	close(ends[0]);
	if (!status)
		printf("the gateway (%s) is up, pid %d\n", conf->nfs.address, pid);
	return status;
}

/* ---- stop, reload ---- */

static int stop(struct cli *c, const struct conf *conf)
{
	struct pollfd p = { .events = POLLIN };
	pid_t pid;
	int fd = reach(conf, &pid), status = CLI_OK;

	if (fd < 0) {
		printf("the gateway (%s) is not running\n", conf->nfs.address);
		return CLI_OK;
	}
	p.fd = pidfd_open(pid, 0);
	if (p.fd < 0 || pidfd_send_signal(p.fd, SIGTERM, NULL, 0))
		status = cli_fail_host(c, "the gateway", -errno);
	else if (poll(&p, 1, STOP_NS / NSEC_PER_MSEC) != 1)
		status = cli_error(c, "pid %d is still stopping", pid);
	else
		printf("the gateway (%s) has stopped\n", conf->nfs.address);
	if (p.fd >= 0)
		close(p.fd);
	close(fd);
	return status;
}

static int reload(struct cli *c, const struct conf *conf)
{
	pid_t pid;
	int fd = find(c, conf, &pid);

	if (fd < 0)
		return CLI_FAILED;
	close(fd);
	if (kill(pid, SIGHUP))
		return cli_fail_host(c, "the gateway", -errno);
	printf("the gateway (%s) reads its exports again\n", conf->nfs.address);
	return CLI_OK;
}

/* ---- status, exports ---- */

static const char *text_of(struct json_object *o, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : "?";
}

static int print_procedures(struct cli *c, struct json_object *status)
{
	static const char *const heads[] = { "PROCEDURE", ">CALLS", ">ERRORS", ">MEAN" };
	struct json_object *all, *p, *ns;
	struct cli_table t;
	char mean[32];

	if (!json_object_object_get_ex(status, "procedures", &all))
		return CLI_OK;
	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (size_t i = 0; i < json_object_array_length(all); i++) {
		p = json_object_array_get_idx(all, i);
		json_object_object_get_ex(p, "mean_ns", &ns);
		cli_time(mean, sizeof(mean), (double)json_object_get_int64(ns));
		cli_table_add(&t, "%s\t%s\t%s\t%s", text_of(p, "name"), text_of(p, "calls"),
			      text_of(p, "errors"), mean);
	}
	return cli_table_print(&t, stdout) ? cli_error(c, "out of memory") : CLI_OK;
}

static int print_clients(struct cli *c, struct json_object *status)
{
	static const char *const heads[] = { "CLIENT", ">CALLS",    ">ERRORS",
					     ">MEAN",  ">RECEIVED", ">SENT" };
	struct json_object *all, *k, *ns;
	struct cli_table t;
	char mean[32];

	if (!json_object_object_get_ex(status, "clients", &all) || !json_object_array_length(all))
		return CLI_OK;
	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (size_t i = 0; i < json_object_array_length(all); i++) {
		k = json_object_array_get_idx(all, i);
		json_object_object_get_ex(k, "mean_ns", &ns);
		cli_time(mean, sizeof(mean), (double)json_object_get_int64(ns));
		cli_table_add(&t, "%s\t%s\t%s\t%s\t%s\t%s", text_of(k, "client"),
			      text_of(k, "calls"), text_of(k, "errors"), mean,
			      text_of(k, "received"), text_of(k, "sent"));
	}
	putchar('\n');
	return cli_table_print(&t, stdout) ? cli_error(c, "out of memory") : CLI_OK;
}

/* Reads the status from a connection, and closes it. */
static struct json_object *read_status(int fd)
{
	char *text = calloc(1, STATUS_MAX);
	struct json_object *o = NULL;
	size_t n = 0;
	ssize_t r = 1;

	while (text && r > 0 && n < STATUS_MAX - 1) {
		r = recv(fd, text + n, STATUS_MAX - 1 - n, 0);
		n += (size_t)MAX(r, 0);
	}
	close(fd);
	if (n)
		o = json_tokener_parse(text);
	free(text);
	return o;
}

struct json_object *nfs_gateway_status(const struct conf *conf)
{
	pid_t pid;
	int fd = reach(conf, &pid);

	return fd < 0 ? NULL : read_status(fd);
}

static int status_of(struct cli *c, const struct conf *conf)
{
	struct json_object *o = NULL;
	pid_t pid;
	int fd = find(c, conf, &pid), status = CLI_FAILED;

	if (fd >= 0)
		o = read_status(fd);
	if (o && c->opt[OPT_JSON]) {
		cli_json_print(o, JSON_C_TO_STRING_PRETTY);
		o = NULL;
		status = CLI_OK;
	} else if (o) {
		printf("pid %s, %s: %s connections, %s calls in progress, %s open files\n",
		       text_of(o, "pid"), text_of(o, "address"), text_of(o, "connections"),
		       text_of(o, "calls_in_progress"), text_of(o, "open_files"));
		status = print_procedures(c, o) | print_clients(c, o);
	} else if (fd >= 0) {
		status = cli_error(c, "the gateway does not answer");
	}
	json_object_put(o);
	return status;
}

static int exports(struct cli *c, const struct conf *conf)
{
	static const char *const heads[] = { "EXPORT", "PATH", "CLIENTS", "OPTIONS" };
	static const char *const squash[] = { "squash=root", "squash=all", "squash=none" };
	struct cli_table t;
	char nets[32];

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (uint32_t i = 0; i < conf->n_exports; i++) {
		const struct conf_export *e = &conf->exports[i];

		snprintf(nets, sizeof(nets), e->n_nets ? "%u networks" : "all", e->n_nets);
		cli_table_add(&t, "/%s\t%s\t%s\t%s,%s%s%s", e->name, e->path, nets,
			      e->ro ? "ro" : "rw", squash[e->squash],
			      e->insecure ? ",insecure" : "", e->manage_gids ? ",manage_gids" : "");
	}
	return cli_table_print(&t, stdout) ? cli_error(c, "out of memory") : CLI_OK;
}

static int run_nfs(struct cli *c)
{
	static const struct {
		const char *name;
		int (*run)(struct cli *c, const struct conf *conf);
	} actions[] = { { "start", start },
			{ "stop", stop },
			{ "reload", reload },
			{ "status", status_of },
			{ "exports", exports } };
	struct conf *conf;
	size_t i = 0;
	int status;

	while (i < ARRAY_LEN(actions) && strcmp(c->args[0], actions[i].name) != 0)
		i++;
	if (i == ARRAY_LEN(actions))
		return cli_usage(c, "'%s' is none of start, stop, reload, status, exports",
				 c->args[0]);
	status = cli_load_conf(c, &conf);
	if (status)
		return status;
	status = actions[i].run(c, conf);
	conf_free(conf);
	return status;
}

const struct cli_command cmd_nfs = {
	.name = "nfs",
	.usage = "start|stop|reload|status|exports [--json]",
	.summary = "the NFS gateway of this host",
	.run = run_nfs,
	.min_args = 1,
	.max_args = 1,
	.options = { [OPT_JSON] = { 0, "json", NULL, "status as JSON" } },
	.more = "Serves the sections [export.NAME] of the cluster file to NFSv3 clients, which mount them as\n"
		"HOST:/NAME. reload makes the gateway read these sections again. docs/nfs.md says more.\n",
	.examples = "  sheaf nfs start\n"
		    "  mount -t nfs -o vers=3,nolock,port=2049,mountport=2049 HOST:/NAME /mnt\n",
};
