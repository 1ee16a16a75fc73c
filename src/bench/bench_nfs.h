/* Shared by the files of `sheaf bench nfs`: the servers that it compares. */
#ifndef SHEAF_BENCH_NFS_H
#define SHEAF_BENCH_NFS_H

#include "bench/bench_impl.h"
#include "nfsc/nfsc.h"

/* ---------------------------------------------------------- bench_nfs_servers.c: the servers */

enum { BENCH_NFS_GATEWAY, BENCH_NFS_ON_MOUNT, BENCH_NFS_LOCAL, BENCH_NFS_SIDES };

struct bench_nfs_side {
	const char *name;
	struct sockaddr_in nfs, mount; /* where it serves both protocols */
	char path[CLI_PATH_MAX / 4]; /* exported; for the work of the clients */
	bool is_there;
};
extern struct bench_nfs_side bench_nfs_sides[BENCH_NFS_SIDES];

/* Why the other server cannot run here, with what to do about it; or NULL. */
const char *bench_nfs_other_missing(struct bench *b);
/* Chooses addresses, before clients are forked. 0, or -errno after a message. */
int bench_nfs_choose(struct bench *b);
/* Starts the servers on the host of server 0, and makes the directories. 0, or -errno after a
 * message. */
int bench_nfs_start(struct bench *b);
void bench_nfs_end(struct bench *b); /* may be called at any time */
double bench_nfs_memory(void); /* anonymous memory of the gateway in MiB; 0: not known */

#endif
