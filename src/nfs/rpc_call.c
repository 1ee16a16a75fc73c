/* One call: decode -> find the procedure -> authenticate -> decode the arguments -> execute ->
 * encode the reply -> send. Runs on a task. Decoded byte strings refer to the message (c->in),
 * everything else is in the call's arena. */
#include <stdlib.h>

#include "nfs/nfs_priv.h"

#define ARENA_MAX (4 * MIB)

const struct rpc_program *const rpc_programs[] = { &nfs3_program,     &mount3_program,
						   &nlm4_program,     &nsm_program,
						   &portmap_program,  &rpcbind3_program,
						   &rpcbind4_program, NULL };
_Static_assert(ARRAY_LEN(rpc_programs) - 1 <= PROGRAMS_MAX, "counters");

struct nfs_call *call_new(struct gateway *g, const struct rpc_transport *t, void *conn)
{
	struct nfs_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->g = g;
	c->fs = g->fs;
	c->transport = t;
	c->conn = conn;
	c->began = gateway_now(g);
	c->reply_room = REPLY_SMALL - RECORD_MARK;
	list_init(&c->link);
	list_init(&c->executing);
	arena_init(&c->arena, ARENA_MAX);
	g->n_calls++;
	return c;
}

void call_free(struct nfs_call *c)
{
	c->transport->forget(c);
	list_del(&c->link);
	list_del(&c->executing);
	buf_give(c->g, c->in);
	buf_give(c->g, c->out);
	data_give(c->g, c->data);
	data_release(c->g, c->data_room);
	conf_give(c->conf);
	if (c->session)
		nfs_session_put(c->session);
	arena_destroy(&c->arena);
	c->g->n_calls--;
	free(c);
}

void *call_alloc(struct nfs_call *c, size_t n)
{
	return arena_alloc(&c->arena, n);
}

/* ---- replies ---- */

static bool encode(struct nfs_call *c, struct wire_rpc_reply *r, bool has_result)
{
	struct xdr x;

	if (!c->out)
		c->out = buf_take(c->g, RECORD_MARK + c->reply_room);
	if (!c->out)
		return false;
	xdr_encoder(&x, c->out->p + RECORD_MARK, c->out->size - RECORD_MARK);
	if (!xdr_wire_rpc_reply(&x, r) || (has_result && !c->proc->res(&x, c->res)))
		return false;
	c->out_len = RECORD_MARK + xdr_used(&x);
	return true;
}

static void send_reply(struct nfs_call *c, struct wire_rpc_reply *r)
{
	r->xid = c->head.xid;
	r->kind = RPC_REPLY;
	if (!encode(c, r, false))
		c->transport->drop(c);
	else
		c->transport->send(c);
}

/* The versions that are served of the call's program. */
static struct wire_rpc_versions versions_of(const struct nfs_call *c)
{
	struct wire_rpc_versions v = { c->program->version, c->program->version };

	for (size_t i = 0; rpc_programs[i]; i++)
		if (rpc_programs[i]->number == c->program->number) {
			v.low = MIN(v.low, rpc_programs[i]->version);
			v.high = MAX(v.high, rpc_programs[i]->version);
		}
	return v;
}

static void refuse(struct nfs_call *c, uint32_t code)
{
	struct wire_rpc_reply r = { .answer.code = RPC_ACCEPTED };

	c->failed = true;
	r.answer.accepted.result.code = code;
	if (code == RPC_NO_VERSION)
		r.answer.accepted.result.served = versions_of(c);
	send_reply(c, &r);
}

static void deny(struct nfs_call *c, uint32_t code, uint32_t why)
{
	struct wire_rpc_reply r = { .answer.code = RPC_DENIED, .answer.denied.code = code };

	c->failed = true;
	if (code == RPC_MISMATCH)
		r.answer.denied.versions = (struct wire_rpc_versions){ RPC_VERSION, RPC_VERSION };
	else
		r.answer.denied.why = why;
	send_reply(c, &r);
}

/* ---- the caller ---- */

/* Calls without AUTH_SYS come from nobody. An rpc_auth_code. */
static uint32_t authenticate(struct nfs_call *c)
{
	const struct wire_rpc_auth *a = &c->head.credential;
	struct wire_auth_sys sys;
	struct xdr x;

	c->uid = c->gid = NOBODY;
	if (a->flavor == AUTH_NONE)
		return RPC_AUTH_OK;
	if (a->flavor != AUTH_SYS)
		return RPC_AUTH_TOO_WEAK;
	xdr_decoder(&x, a->body.p, a->body.len, &c->arena);
	if (!xdr_wire_auth_sys(&x, &sys) || xdr_left(&x))
		return RPC_AUTH_BAD_CREDENTIAL;
	c->uid = sys.uid;
	c->gid = sys.gid;
	c->n_gids = sys.n_gids;
	for (uint32_t i = 0; i < sys.n_gids; i++)
		c->gids[i] = sys.gids[i];
	return RPC_AUTH_OK;
}

/* ---- execution ---- */

void counts_add(struct nfs_counts *n, const struct nfs_call *c, uint64_t ns)
{
	n->calls++;
	n->errors += c->failed;
	n->ns += ns;
}

/* Adds the call to the counters of its procedure and of its client. */
static void count(struct nfs_call *c)
{
	uint64_t ns = gateway_now(c->g) - c->began;

	for (size_t i = 0; rpc_programs[i]; i++)
		if (rpc_programs[i] == c->program && c->head.procedure < PROCEDURES_MAX)
			counts_add(&c->g->counts[i][c->head.procedure], c, ns);
	clients_count(c, ns);
}

static void execute(struct nfs_call *c)
{
	struct wire_rpc_reply r = { .xid = c->head.xid, .kind = RPC_REPLY };
	bool ok;

	list_push(&c->g->executing, &c->executing);
	if (c->proc->once)
		replay_name(c);
	if (c->proc->once && replay_find(c))
		return;
	if (c->proc->run)
		c->proc->run(c);
	ok = encode(c, &r, c->proc->res != NULL);
	c->failed |= !ok;
	count(c);
	if (!ok) {
		if (c->proc->once)
			replay_fail(c);
		refuse(c, RPC_SYSTEM_ERROR);
		return;
	}
	if (c->proc->once)
		replay_store(c);
	c->transport->send(c);
}

/* The program in this version, else in another one, else NULL. */
static const struct rpc_program *find_program(uint32_t number, uint32_t version)
{
	const struct rpc_program *found = NULL;

	for (size_t i = 0; rpc_programs[i]; i++)
		if (rpc_programs[i]->number == number &&
		    (!found || rpc_programs[i]->version == version))
			found = rpc_programs[i];
	return found;
}

/* Finds the procedure; true: the call is to be executed. */
static bool dispatch(struct nfs_call *c)
{
	uint32_t why;

	if (c->head.rpc_version != RPC_VERSION) {
		deny(c, RPC_MISMATCH, 0);
		return false;
	}
	c->program = find_program(c->head.program, c->head.version);
	if (!c->program || c->head.version != c->program->version) {
		refuse(c, c->program ? RPC_NO_VERSION : RPC_NO_PROGRAM);
		return false;
	}
	if (c->head.procedure >= c->program->n_procs ||
	    !c->program->procs[c->head.procedure].name) {
		refuse(c, RPC_NO_PROCEDURE);
		return false;
	}
	c->proc = &c->program->procs[c->head.procedure];
	why = authenticate(c);
	if (why != RPC_AUTH_OK) {
		deny(c, RPC_AUTH_ERROR, why);
		return false;
	}
	return true;
}

void call_execute(struct nfs_call *c)
{
	struct xdr x;

	xdr_decoder(&x, c->in->p, c->in_len, &c->arena);
	if (!xdr_wire_rpc_call(&x, &c->head) || c->head.kind != RPC_CALL) {
		c->transport->drop(c);
		return;
	}
	c->args_at = xdr_used(&x);
	if (!dispatch(c))
		return;
	c->conf = conf_take(c->g);
	c->args = call_alloc(c, MAX(c->proc->args_size, 1));
	c->res = call_alloc(c, MAX(c->proc->res_size, 1));
	if (!c->args || !c->res)
		refuse(c, RPC_SYSTEM_ERROR);
	else if (c->proc->args && !c->proc->args(&x, c->args))
		refuse(c, RPC_BAD_ARGUMENTS);
	else
		execute(c);
}
