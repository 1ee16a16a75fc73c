/* nfsc: a client of NFSv3 over TCP, for measurements: it is the same for all servers, and spends
 * little beside its system calls. */
#ifndef SHEAF_NFSC_H
#define SHEAF_NFSC_H

#include <netinet/in.h>

#include "base/base.h"
#include "xdr/sunrpc.h"

/* A connection to a server. All calls block; they return 0 or -errno, where a status of NFS or RPC
 * that is no errno is -EPROTO. A connection is of no use after an error. */
struct nfsc_conn {
	int fd;
	uint32_t xid; /* of the last call */
	uint8_t *out, *in; /* the last call, the last reply */
	size_t in_len;
	struct arena arena; /* of the last reply */
};

struct nfsc_handle {
	uint32_t len;
	uint8_t bytes[NFS3_HANDLE_MAX];
};

int nfsc_dial(struct nfsc_conn *c, const struct sockaddr_in *at);
void nfsc_hang_up(struct nfsc_conn *c); /* c may be all 0 */
int nfsc_null(struct nfsc_conn *c);
/* The handle of an exported path; on a connection to the server of the MOUNT protocol. */
int nfsc_mnt(struct nfsc_conn *c, const char *path, struct nfsc_handle *h);
int nfsc_getattr(struct nfsc_conn *c, const struct nfsc_handle *h);
int nfsc_lookup(struct nfsc_conn *c, const struct nfsc_handle *dir, const char *name);
int nfsc_mkdir(struct nfsc_conn *c, const struct nfsc_handle *dir, const char *name,
	       struct nfsc_handle *h);
/* Fails if the name is there. */
int nfsc_create(struct nfsc_conn *c, const struct nfsc_handle *dir, const char *name,
		struct nfsc_handle *h);
int nfsc_remove(struct nfsc_conn *c, const struct nfsc_handle *dir, const char *name);

/* Reads, or writes `data` unstably, `n` times `size` bytes one behind the other, with at most
 * `ahead` calls in progress. Data that were read are dropped. */
struct nfsc_bulk {
	const struct nfsc_handle *file;
	const void *data; /* NULL: read */
	uint64_t apart; /* bytes from the data of one call to those of the next; 0: the same */
	uint64_t at;
	uint32_t size, n, ahead;
};
int nfsc_bulk(struct nfsc_conn *c, const struct nfsc_bulk *k);
int nfsc_commit(struct nfsc_conn *c, const struct nfsc_handle *h);

#endif
