/* Locks of NFS clients. Private to src/nfs. */
#ifndef SHEAF_NLM_H
#define SHEAF_NLM_H

#include "nfs/nfs_priv.h"

/* ---- nlm_files.c ---- */

struct nlm_file {
	struct hnode node; /* in g->locked_files */
	struct gateway *g;
	struct sheaf_handle h;
	struct nfs_session *session;
	struct nfs_file *pin[2]; /* shared and exclusive locks are taken through these; or NULL */
	struct list held; /* struct range: `session` is the host */
	unsigned refs;
};
/* Opens the file for the caller; nlm_file_put() after use. It stays while locks are held. */
int nlm_file_get(struct nfs_call *c, const struct sheaf_handle *h, bool exclusive,
		 struct nlm_file **out);
struct nlm_file *nlm_file_find(struct nfs_call *c, const struct sheaf_handle *h); /* or NULL */
void nlm_file_put(struct nlm_file *f);
/* 0 or -errno, as sheaf_lock(). host: a hash of its name and address. */
int nlm_lock(struct nlm_file *f, uint64_t host, const struct sheaf_lock *l, bool wait);
int nlm_unlock(struct nlm_file *f, uint64_t host, const struct sheaf_lock *l);
void nlm_free_host(struct gateway *g, uint64_t host); /* releases all its locks */

/* ---- nlm_wait.c ---- */

/* Waits for the lock on a task of its own, and tells the client. -ENOLCK: too many wait. */
int nlm_wait_start(struct nfs_call *c, struct nlm_file *f, const struct wire_nlm4_lock_args *a,
		   uint64_t host, const struct sheaf_lock *l);
/* Does this lock of the caller's session wait already? Cancel: it shall not wait any more. */
bool nlm_wait_find(struct nfs_call *c, const struct sheaf_handle *h, uint64_t host,
		   const struct sheaf_lock *l, bool cancel);

#endif
