/* A TCP proxy between clients and servers that cuts connections after a number of bytes.
 *
 * Threads: one of its own; its settings are atomic. Each new connection uses up one of `cuts` while
 * that is not 0: the proxy cuts the connection after `least` + random % `spread` bytes, both
 * directions together. */
#ifndef SHEAF_TEST_PROXY_H
#define SHEAF_TEST_PROXY_H

#include <pthread.h>

#include "cluster.h"

#define PROXY_PAIRS 64

struct proxy_pair {
	int fd[2]; /* client, server; -1: free */
	uint64_t left; /* bytes until the cut */
};

struct proxy {
	pthread_t thread;
	uint32_t port; /* the proxy's port for server 0 */
	uint32_t server_port;
	int n, listener[CLUSTER_MAX];
	struct proxy_pair pair[PROXY_PAIRS];
	bool stop;
	int cuts; /* connections still to cut; negative: all of them */
	uint64_t least, spread, rnd;
	int made; /* connections cut so far */
	uint64_t bytes; /* forwarded since the last proxy_plan() */
	char conf[CLUSTER_PATH];
};

/* Listens in front of the cluster and writes a cluster file whose servers are the proxy's ports. */
void proxy_start(struct proxy *x, const struct cluster *c);

/* Cuts each of the next `cuts` connections after least + random % spread bytes. */
void proxy_plan(struct proxy *x, int cuts, uint64_t least, uint64_t spread);

/* Closes all connections and ends the thread. */
void proxy_stop(struct proxy *x);

#endif
