/* The procedures of the lock manager, and the status monitor's notice that a client has restarted.
 * An owner is (host, its name for the owner, process): the same at every gateway. */
#include <fcntl.h>
#include <stdlib.h>

#include "nfs/nlm.h"

static uint64_t hash_name(const struct wire_bytes *name)
{
	return hash_bytes(name->p, name->len, 0x6e6c6d);
}

/* Anybody may claim a name: a host is one of the caller's address. */
static uint64_t host_of(const struct nfs_call *c, const struct wire_bytes *name)
{
	return hash_bytes(c->from.addr, 16, hash_name(name));
}

static uint64_t owner_of(const struct wire_nlm4_lock *l)
{
	return hash_bytes(l->owner.p, l->owner.len, hash_name(&l->caller) ^ (uint32_t)l->svid);
}

static struct sheaf_lock lock_of(const struct wire_nlm4_lock *l, bool exclusive)
{
	/* a length that reaches the end of all files is the same as none */
	bool to_end = l->length > OFFSET_MAX || l->offset + l->length > OFFSET_MAX;

	return (struct sheaf_lock){ .size = sizeof(struct sheaf_lock),
				    .type = exclusive ? F_WRLCK : F_RDLCK,
				    .start = l->offset,
				    .length = to_end ? 0 : l->length,
				    .owner = owner_of(l),
				    .pid = (uint32_t)l->svid };
}

static uint32_t status_of(int r)
{
	switch (-r) {
	case 0:
		return NLM_OK;
	case EAGAIN:
	case EACCES:
	case EINTR:
		return NLM_DENIED;
	case EDEADLK:
		return NLM_DEADLOCK;
	case ENOLCK:
	case ENOMEM:
		return NLM_DENIED_NO_LOCKS;
	case EROFS:
		return NLM_ROFS;
	case ESTALE:
	case ENOENT:
		return NLM_STALE;
	case EOVERFLOW:
	case EINVAL:
		return NLM_FBIG;
	default:
		return NLM_FAILED;
	}
}

/* The file of a call; an nlm4_status. */
static uint32_t enter(struct nfs_call *c, const struct wire_nlm4_lock *l, struct sheaf_handle *h)
{
	switch (handle_enter(c, &l->file, h)) {
	case NFS3_OK:
		return l->offset > OFFSET_MAX ? NLM_FBIG : NLM_OK;
	case NFS3_EACCES:
	case NFS3_EPERM:
		return NLM_DENIED;
	default:
		return NLM_STALE;
	}
}

static void nlm_test(struct nfs_call *c)
{
	const struct wire_nlm4_test_args *a = c->args;
	struct wire_nlm4_test_res *r = c->res;
	struct sheaf_lock l = lock_of(&a->lock, a->exclusive);
	struct nlm_file *f;
	struct sheaf_handle h;
	int e;

	r->cookie = a->cookie;
	r->test.status = enter(c, &a->lock, &h);
	if (r->test.status != NLM_OK)
		return;
	e = nlm_file_get(c, &h, false, &f);
	if (!e) {
		e = sheaf_lock_test(f->pin[0]->f, &l);
		nlm_file_put(f);
	}
	r->test.status = status_of(e);
	if (e || l.type == F_UNLCK)
		return;
	r->test.status = NLM_DENIED;
	r->test.holder = (struct wire_nlm4_holder){ .exclusive = l.type == F_WRLCK,
						    .svid = (int32_t)l.pid,
						    .offset = l.start,
						    .length = l.length };
}

static void nlm_lock_call(struct nfs_call *c)
{
	const struct wire_nlm4_lock_args *a = c->args;
	struct wire_nlm4_res *r = c->res;
	struct sheaf_lock l = lock_of(&a->lock, a->exclusive);
	uint64_t host = host_of(c, &a->lock.caller);
	struct nlm_file *f;
	struct sheaf_handle h;
	int e;

	r->cookie = a->cookie;
	r->status = enter(c, &a->lock, &h);
	if (r->status != NLM_OK)
		return;
	if (a->block && nlm_wait_find(c, &h, host, &l, false)) {
		r->status = NLM_BLOCKED; /* a retransmission */
		return;
	}
	holders_add(c->session);
	e = nlm_file_get(c, &h, a->exclusive, &f);
	if (!e) {
		e = nlm_lock(f, host, &l, false);
		if (e == -EAGAIN && a->block)
			e = nlm_wait_start(c, f, a, host, &l) ? -ENOLCK : -EINPROGRESS;
		nlm_file_put(f);
	}
	r->status = e == -EINPROGRESS ? NLM_BLOCKED : status_of(e);
}

static void nlm_cancel(struct nfs_call *c)
{
	const struct wire_nlm4_cancel_args *a = c->args;
	struct wire_nlm4_res *r = c->res;
	struct sheaf_lock l = lock_of(&a->lock, a->exclusive);
	struct sheaf_handle h;

	r->cookie = a->cookie;
	r->status = enter(c, &a->lock, &h);
	if (r->status == NLM_OK && !nlm_wait_find(c, &h, host_of(c, &a->lock.caller), &l, true))
		r->status = NLM_DENIED;
}

static void nlm_unlock_call(struct nfs_call *c)
{
	const struct wire_nlm4_unlock_args *a = c->args;
	struct wire_nlm4_res *r = c->res;
	struct sheaf_lock l = lock_of(&a->lock, false);
	struct nlm_file *f = NULL;
	struct sheaf_handle h;

	r->cookie = a->cookie;
	r->status = enter(c, &a->lock, &h);
	if (r->status != NLM_OK)
		return;
	f = nlm_file_find(c, &h);
	/* the lock may have been taken through a gateway that died */
	if (!f && sheaf_inherited(c->fs, SHEAF_INHERITED_KNOWN) && nlm_file_get(c, &h, false, &f) &&
	    nlm_file_get(c, &h, true, &f))
		r->status = NLM_FAILED;
	if (!f)
		return;
	r->status = status_of(nlm_unlock(f, host_of(c, &a->lock.caller), &l));
	nlm_file_put(f);
}

/* The client has restarted. Locks that its session got from a gateway that died are not known here:
 * the servers end them. Such a call names no file, so no export has checked it yet. */
static void free_host(struct nfs_call *c, const struct wire_bytes *name)
{
	struct nfs_session *s;

	if (!exports_trust(c->conf->conf, &c->from, c->port))
		return;
	log_info("nfs", "%.*s has restarted: its locks are released", (int)MIN(name->len, 64),
		 (const char *)name->p);
	nlm_free_host(c->g, host_of(c, name));
	/* a session that does not exist yet may have locks: holders_resume() is about to make it */
	if (!nfs_session_exists(c->g, &c->from, &c->to) && !holders_know(c->g, &c->from, &c->to))
		return;
	s = nfs_session_get(c->g, &c->from, &c->to);
	sheaf_inherited(s->fs, SHEAF_INHERITED_DROP);
	nfs_session_put(s);
}

static void nlm_free_all(struct nfs_call *c)
{
	const struct wire_nlm4_free_args *a = c->args;

	free_host(c, &a->host);
}

static const struct rpc_proc procs[] = {
	[NLM_NULL] = { .name = "null" },
	[NLM_TEST] = RPC_PROC("test", nlm4_test_args, nlm4_test_res, nlm_test, false),
	[NLM_LOCK] = RPC_PROC("lock", nlm4_lock_args, nlm4_res, nlm_lock_call, false),
	[NLM_CANCEL] = RPC_PROC("cancel", nlm4_cancel_args, nlm4_res, nlm_cancel, true),
	[NLM_UNLOCK] = RPC_PROC("unlock", nlm4_unlock_args, nlm4_res, nlm_unlock_call, true),
	[NLM_FREE_ALL] = { .name = "free-all",
			   .args = XDR_ANY(xdr_wire_nlm4_free_args),
			   .args_size = sizeof(struct wire_nlm4_free_args),
			   .run = nlm_free_all },
};

const struct rpc_program nlm4_program = { "nlm", NLM_PROGRAM,	   NLM_VERSION,
					  procs, ARRAY_LEN(procs), true };

/* ---- the status monitor ---- */

static void nsm_notify(struct nfs_call *c)
{
	const struct wire_nsm_notify_args *a = c->args;

	free_host(c, &a->host);
}

static const struct rpc_proc nsm_procs[] = {
	[NSM_NULL] = { .name = "null" },
	[NSM_NOTIFY] = { .name = "notify",
			 .args = XDR_ANY(xdr_wire_nsm_notify_args),
			 .args_size = sizeof(struct wire_nsm_notify_args),
			 .run = nsm_notify },
};

const struct rpc_program nsm_program = { "nsm",	    NSM_PROGRAM,	  NSM_VERSION,
					 nsm_procs, ARRAY_LEN(nsm_procs), true };
