/* A client of the NFS gateway for tests: one connection, one call at a time. It also sends records
 * as a test wants them. Errors: every error that the test did not ask for is a failed check. */
#ifndef SHEAF_TEST_NFS_CLIENT_H
#define SHEAF_TEST_NFS_CLIENT_H

#include "cluster.h"
#include "xdr/sunrpc.h"

#define NFS_MESSAGE_MAX (NFS3_DATA_MAX + 64 * KIB)

struct nfs_client {
	int fd;
	uint32_t xid; /* of the last call */
	uint32_t uid, gid, n_gids, gids[16];
	uint32_t stamp; /* of the credential: any number */
	uint8_t *out, *in; /* the last message and the last reply */
	size_t out_len, in_len;
	struct arena arena; /* of the last reply */
	uint8_t root_bytes[NFS3_HANDLE_MAX];
	struct wire_bytes root; /* after nfs_mount() */
};

/* Adds sections to the cluster file. */
void nfs_exports(const struct cluster *c, const char *text);
/* Starts a gateway at 127.0.0.1:port and waits until it serves. */
pid_t nfs_gateway_start(const struct cluster *c, uint32_t port);

void nfs_dial(struct nfs_client *c, uint32_t port, uint32_t uid);
void nfs_dial_from(struct nfs_client *c, uint32_t port, uint32_t uid, const char *address);
/* own_port 0: any */
void nfs_dial_at(struct nfs_client *c, uint32_t port, uint32_t uid, const char *address,
		 uint16_t own_port);
void nfs_hang_up(struct nfs_client *c);

/* Encodes a call into c->out, behind 4 bytes for the record mark. */
void nfs_encode(struct nfs_client *c, uint32_t program, uint32_t version, uint32_t procedure,
		xdr_any args, void *a);
/* Sends c->out as one record. */
void nfs_send(struct nfs_client *c);
/* Receives a reply into c->in. False: the gateway has closed the connection. */
bool nfs_receive(struct nfs_client *c);
/* Decodes c->in: an rpc_result_code, or -1 if the call was denied. *data: behind the result. */
int nfs_decode(struct nfs_client *c, xdr_any res, void *r, const uint8_t **data);
/* The three of them, for a call that is executed; returns what follows the result (READ). */
const uint8_t *nfs_call(struct nfs_client *c, uint32_t program, uint32_t version,
			uint32_t procedure, xdr_any args, void *a, xdr_any res, void *r);
#define NFS3(c, procedure, args, a, res, r) \
	nfs_call(c, NFS3_PROGRAM, NFS3_VERSION, procedure, XDR_ANY(xdr_wire_##args), a, \
		 XDR_ANY(xdr_wire_##res), r)

/* ---- common calls; they return an nfs3_status, handles are copied to h ---- */

struct nfs_handle {
	uint32_t len;
	uint8_t bytes[NFS3_HANDLE_MAX];
};
static inline struct wire_bytes nfs_bytes(const struct nfs_handle *h)
{
	return (struct wire_bytes){ h->len, h->bytes };
}
uint32_t nfs_mount(struct nfs_client *c, const char *path, struct nfs_handle *h);
uint32_t nfs_lookup(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    struct nfs_handle *h);
uint32_t nfs_getattr(struct nfs_client *c, const struct nfs_handle *h, struct wire_attr3 *a);
/* mode of CREATE: CREATE3_... ; h may be NULL */
uint32_t nfs_create(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    uint32_t how, uint32_t mode, struct nfs_handle *h);
uint32_t nfs_mkdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		   struct nfs_handle *h);
uint32_t nfs_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *name);
uint32_t nfs_rmdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name);
uint32_t nfs_write(struct nfs_client *c, const struct nfs_handle *h, uint64_t at, const void *p,
		   uint32_t n, uint32_t stable, uint8_t verifier[8]);
/* *n: in: bytes wanted, out: bytes read */
uint32_t nfs_read(struct nfs_client *c, const struct nfs_handle *h, uint64_t at, void *p,
		  uint32_t *n, bool *eof);
uint32_t nfs_commit(struct nfs_client *c, const struct nfs_handle *h, uint8_t verifier[8]);

#endif
