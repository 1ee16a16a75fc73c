/* Asks the servers of the file system for their status.
 *
 * Threads: one for each server, at most BATCH at a time, so that several dead servers cost one
 * timeout in total. */
#include <stdlib.h>

#include "cli/cli.h"

#define BATCH 32

struct question {
	struct sheaf *fs;
	int i;
	struct sheaf_server *s;
	struct sheaf_server_net *net;
	pthread_t thread;
	bool threaded;
};

static void *ask(void *arg)
{
	struct question *q = arg;

	if (sheaf_server_net(q->fs, q->i, CLI_STATUS_MS, q->s, q->net))
		q->s->up = 0;
	return NULL;
}

void cli_servers_ask(struct sheaf *fs, struct sheaf_server *s, struct sheaf_server_net *net, int n)
{
	struct question q[BATCH];

	for (int at = 0; at < n; at += BATCH) {
		int m = MIN(n - at, BATCH);

		for (int i = 0; i < m; i++) {
			q[i] = (struct question){ .fs = fs, .i = at + i, .s = &s[at + i] };
			if (net) {
				q[i].net = &net[at + i];
				q[i].net->size = sizeof(*net);
			}
			q[i].threaded = pthread_create(&q[i].thread, NULL, ask, &q[i]) == 0;
			if (!q[i].threaded)
				ask(&q[i]);
		}
		for (int i = 0; i < m; i++)
			if (q[i].threaded)
				pthread_join(q[i].thread, NULL);
	}
}

struct sheaf_server *cli_servers_get(struct cli *c, int *n)
{
	struct sheaf_server *s = calloc(SHEAF_MAX_SERVERS, sizeof(*s));
	int before;

	if (!s) {
		cli_error(c, "out of memory");
		return NULL;
	}
	*n = sheaf_server_count(c->fs);
	do { /* their answers may tell of servers that the cluster file has not */
		before = *n;
		cli_servers_ask(c->fs, s, NULL, before);
		*n = MIN(sheaf_server_count(c->fs), SHEAF_MAX_SERVERS);
	} while (*n > before);
	return s;
}

int cli_conf_update(struct cli *c, struct conf **conf, const struct sheaf_server *known, int n)
{
	char text[CONF_PATH_MAX], err[CONF_PATH_MAX + 512];

	for (int i = 0; i < n && i < (int)(*conf)->n_targets; i++)
		if (strcmp(known[i].name, (*conf)->targets[i].name) != 0)
			return cli_error(
				c,
				"%s calls server %d %s, the metadata servers know it as %s (%s); correct the file",
				(*conf)->path, i, (*conf)->targets[i].name, known[i].name,
				known[i].address);
	for (int i = (int)(*conf)->n_targets; i < n; i++) {
		snprintf(text, sizeof(text),
			 "\n; added elsewhere; its storage is known there\n[server.%d]\nname = %s\n"
			 "address = %s\nroles = data\nstorage = %s\n",
			 i, known[i].name, known[i].address, known[i].name);
		if (conf_append(conf, text, err, sizeof(err)))
			return cli_error(c, "%s", err);
	}
	return CLI_OK;
}

void cli_server_why(const struct sheaf_server *s, char out[CLI_WHY_MAX])
{
	static const char *const what[] = { "does not answer", "cannot be used" };
	bool is_silent = s->down == SHEAF_DOWN_REFUSED || s->down == SHEAF_DOWN_SILENT ||
			 s->down == SHEAF_DOWN_UNREACHABLE;

	snprintf(out, CLI_WHY_MAX, "%s (%s) %s: %s", s->name, s->address, what[!is_silent], s->why);
}

int cli_servers_check(struct cli *c, const struct sheaf_server *s, int n, unsigned roles,
		      const char *effect)
{
	const struct sheaf_server *first = NULL;
	int down = 0;

	for (int i = n - 1; i >= 0; i--)
		if (!s[i].up && (!roles || (s[i].roles & roles))) {
			first = &s[i];
			down++;
		}
	if (!first)
		return CLI_OK;
	return cli_error(c, "%s (%s) does not answer%s; %d of %d are down: %s", first->name,
			 first->address, effect, down, n, first->why);
}
