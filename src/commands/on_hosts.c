/* Runs a command on the other hosts of the cluster file, over ssh or another command.
 *
 *   SSH... HOST sheaf --conf FILE VERB
 *
 * One process for each host, all at the same time; their output goes to memory and is printed when
 * they have ended. Single-threaded. Errors: a host that cannot be reached is named; the others are
 * not affected. */
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/on_hosts.h"

#define WORDS_MAX 32 /* of --ssh and the command */
#define SSH_DEFAULT \
	"ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o " \
	"ServerAliveCountMax=3"
#define EXIT_SSH 255 /* ssh itself failed */

extern char **environ;

struct one_host {
	char name[CONF_ADDR_MAX];
	pid_t pid;
	int out, err; /* memory files */
	int error; /* it could not be started: an errno */
};

struct on_hosts {
	char *words; /* of the ssh command */
	char *argv[WORDS_MAX];
	int at; /* the place of the host in argv */
	size_t n;
	struct one_host host[];
};

/* The host of HOST:PORT or [HOST]:PORT. */
static void host_of(const char *address, char out[CONF_ADDR_MAX])
{
	const char *end = strrchr(address, ':');

	if (address[0] == '[') {
		address++;
		end = strchr(address, ']');
	}
	snprintf(out, CONF_ADDR_MAX, "%.*s", end ? (int)(end - address) : 0, address);
}

/* False: the name would be an option of ssh. */
static bool add_host(struct on_hosts *h, const char *address)
{
	struct one_host *o = &h->host[h->n];

	host_of(address, o->name);
	for (size_t i = 0; i < h->n; i++)
		if (strcmp(h->host[i].name, o->name) == 0)
			return true;
	if (o->name[0] == '-')
		return false;
	o->out = memfd_create("sheaf-out", MFD_CLOEXEC);
	o->err = memfd_create("sheaf-err", MFD_CLOEXEC);
	h->n++;
	return true;
}

/* ssh passes the command to a shell: the path must not mean anything to it. */
static bool is_plain(const char *path)
{
	return path[strspn(path, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				 "0123456789/._-+@:,")] == 0;
}

static int split(struct on_hosts *h, const char *ssh, const struct conf *conf, const char *verb)
{
	int n = 0;
	char *rest;

	h->words = strdup(ssh);
	if (!h->words)
		return -ENOMEM;
	for (char *w = strtok_r(h->words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
		if (n + 6 > WORDS_MAX)
			return -E2BIG;
		h->argv[n++] = w;
	}
	h->at = n++;
	h->argv[n++] = "sheaf";
	h->argv[n++] = "--conf";
	h->argv[n++] = (char *)(uintptr_t)conf->path;
	h->argv[n] = (char *)(uintptr_t)verb;
	return h->at ? 0 : -EINVAL;
}

static void run(struct on_hosts *h, struct one_host *o)
{
	posix_spawn_file_actions_t fa;

	h->argv[h->at] = o->name;
	posix_spawn_file_actions_init(&fa);
	o->error = posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (!o->error)
		o->error = posix_spawn_file_actions_adddup2(&fa, o->out, STDOUT_FILENO);
	if (!o->error)
		o->error = posix_spawn_file_actions_adddup2(&fa, o->err, STDERR_FILENO);
	if (!o->error)
		o->error = posix_spawnp(&o->pid, h->argv[0], &fa, NULL, h->argv, environ);
	posix_spawn_file_actions_destroy(&fa);
}

static void on_hosts_free(struct on_hosts *h)
{
	for (size_t i = 0; i < h->n; i++) {
		close(h->host[i].out);
		close(h->host[i].err);
	}
	free(h->words);
	free(h);
}

struct on_hosts *on_hosts_begin(struct cli *c, const struct conf *conf, const char *ssh,
				const char *verb)
{
	struct on_hosts *h = calloc(1, sizeof(*h) + conf->n_targets * sizeof(h->host[0]));

	if (!h || split(h, ssh ? ssh : SSH_DEFAULT, conf, verb)) {
		cli_error(c, "--ssh %s is no command", ssh ? ssh : SSH_DEFAULT);
		if (h)
			on_hosts_free(h);
		return NULL;
	}
	if (!is_plain(conf->path)) {
		cli_error(c, "%s: the path has characters that a shell changes; move the file",
			  conf->path);
		on_hosts_free(h);
		return NULL;
	}
	for (uint32_t i = 0; i < conf->n_targets; i++)
		if (!cli_address_is_local(conf->targets[i].address) &&
		    !add_host(h, conf->targets[i].address)) {
			cli_error(c, "%s is no address of a host", conf->targets[i].address);
			on_hosts_free(h);
			return NULL;
		}
	fflush(stdout);
	for (size_t i = 0; i < h->n; i++)
		run(h, &h->host[i]);
	return h;
}

/* Copies the lines of a memory file, each behind the host. */
static void print(const char *host, int fd, FILE *to)
{
	FILE *f = lseek(fd, 0, SEEK_SET) < 0 ? NULL : fdopen(dup(fd), "r");
	char *line = NULL;
	size_t room = 0;

	while (f && getline(&line, &room, f) > 0)
		fprintf(to, "%s: %s%s", host, line, strchr(line, '\n') ? "" : "\n");
	free(line);
	if (f)
		fclose(f);
}

static int end_one(struct cli *c, struct one_host *o)
{
	int status = 0;

	if (o->error)
		return cli_error(c, "%s: the command cannot be run: %s", o->name,
				 strerror(o->error));
	while (waitpid(o->pid, &status, 0) < 0 && errno == EINTR)
		;
	print(o->name, o->out, stdout);
	fflush(stdout);
	print(o->name, o->err, stderr);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return CLI_OK;
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SSH)
		return cli_error(c,
				 "%s cannot be reached, or the connection was lost: what was done "
				 "there is not known; run 'sheaf %s' there, or this again, when "
				 "it is back",
				 o->name, c->cmd->name);
	return cli_error(c, "%s: 'sheaf %s' failed there", o->name, c->cmd->name);
}

int on_hosts_end(struct cli *c, struct on_hosts *h)
{
	int status = CLI_OK;

	if (!h)
		return CLI_FAILED;
	for (size_t i = 0; i < h->n; i++)
		status |= end_one(c, &h->host[i]);
	on_hosts_free(h);
	return status;
}
