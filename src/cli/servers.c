/* Asks the servers of the file system for their status.
 *
 * Threads: one for each server, at most BATCH at a time, so that several dead servers cost one
 * timeout in total. */
#include "cli/cli.h"

#define BATCH 32

struct question {
	struct sheaf *fs;
	int i;
	struct sheaf_server *s;
	pthread_t thread;
	bool threaded;
};

static void *ask(void *arg)
{
	struct question *q = arg;

	if (sheaf_server_status(q->fs, q->i, CLI_STATUS_MS, q->s))
		q->s->up = 0;
	return NULL;
}

void cli_servers_ask(struct sheaf *fs, struct sheaf_server *s, int n)
{
	struct question q[BATCH];

	for (int at = 0; at < n; at += BATCH) {
		int m = MIN(n - at, BATCH);

		for (int i = 0; i < m; i++) {
			q[i] = (struct question){ .fs = fs, .i = at + i, .s = &s[at + i] };
			q[i].threaded = pthread_create(&q[i].thread, NULL, ask, &q[i]) == 0;
			if (!q[i].threaded)
				ask(&q[i]);
		}
		for (int i = 0; i < m; i++)
			if (q[i].threaded)
				pthread_join(q[i].thread, NULL);
	}
}
