/* The fixture of system tests: a cluster of real sheafd processes, with its own temporary directory
 * and free ports. A test kills and starts its servers at will.
 *
 *     static struct cluster c;
 *     static void begin(void) { cluster_create(&c, NULL); cluster_start(&c); }
 *     static void end(void) { cluster_stop(&c); }
 *     SYS_MAIN(NULL, begin, end, TEST(...))
 *
 * SHEAF_TEST_LISTEN: the servers' address instead of 127.0.0.1. SHEAF_TEST_RDMA: the RDMA devices
 * of the servers and of the clients, "rxe0 rxe1".
 *
 * Threads: the main thread only. Errors: every error is a failed check. */
#ifndef SHEAF_TEST_CLUSTER_H
#define SHEAF_TEST_CLUSTER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "sheaf.h"
#include "test_files.h"
#include "test_process.h"
#include "sheaf_admin.h"
#include "sheaf_handle.h"

#define CLUSTER_MAX 8
#define CLUSTER_PATH 512
#define METRICS_OFFSET 1000 /* added to a server's port, as 'sheaf init' does */
struct cluster {
	char dir[CLUSTER_PATH - 64]; /* holds the cluster file, the storage and the logs */
	char conf[CLUSTER_PATH];
	int n;
	uint32_t port; /* port of server 0 */
	pid_t pid[CLUSTER_MAX]; /* 0: not running */
};

struct cluster_opts {
	uint32_t servers; /* 0 means 2 */
	uint32_t stripe_unit; /* bytes; 0 means 64 KiB */
	uint32_t timeout, lease; /* seconds; 0 means 30 and 3 */
	const char *more; /* more lines for the section [cluster], or NULL */
};

/* ---- a cluster ---- */

/* Finds n consecutive ports that are free together with their metrics ports; returns the first. */
uint32_t free_ports(int n);

/* Makes a directory with a cluster file and formatted storage; starts nothing. */
void cluster_create(struct cluster *c, const struct cluster_opts *given);

/* Starts server i. Returns the descriptor on which it reports that it is ready. */
int server_spawn(struct cluster *c, int i);

/* Waits until server i is ready and closes fd. Returns 0, or its exit status. */
int server_ready(struct cluster *c, int i, int fd);

/* Starts server i and waits until it is ready. Returns 0, or its exit status. */
int server_up(struct cluster *c, int i);

/* Starts all servers that do not run, and waits until they are ready. */
void cluster_start(struct cluster *c);

/* Kills server i with SIGKILL; the process is reaped when this returns. */
void server_kill(struct cluster *c, int i);

/* Stops server i with SIGTERM; it must exit with status 0. */
void server_down(struct cluster *c, int i);

/* Has server i written this text to its log? */
bool server_logged(const struct cluster *c, int i, const char *text);

/* Stops all servers that run; each must exit with status 0. */
void cluster_stop(struct cluster *c);

/* Connects to the servers of a cluster file. */
struct sheaf *client_connect(const char *conf);

/* A client with direct reads. */
struct sheaf *direct_client(const char *conf);

/* The status of a server that is up. */
struct sheaf_server server_status(struct sheaf *fs, int i);

/* Runs the tests between begin and end, or one child of a test. child, begin and end may be
 * NULL. */
int sys_run(int (*child)(const char *name, char **arg), void (*begin)(void), void (*end)(void),
	    const struct test *tests, size_t n, int argc, char **argv);
#define SYS_MAIN(child, begin, end, ...) \
	int main(int argc, char **argv) \
	{ \
		static const struct test tests[] = { __VA_ARGS__ }; \
		return sys_run(child, begin, end, tests, sizeof(tests) / sizeof(tests[0]), argc, \
			       argv); \
	}

#endif
