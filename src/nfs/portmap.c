/* The portmapper, version 2: clients ask it for the port of a program. The gateway answers itself
 * at port 111, for its own programs, unless a portmapper of the host does; then it registers there.
 * For IPv6 there are later versions: rpcbind.c. */
#include <stdlib.h>
#include <unistd.h>

#include "nfs/nfs_priv.h"

static const uint32_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP };

/* NFS itself is served over TCP only: its replies do not fit into datagrams. */
bool program_is_served(const struct rpc_program *p, uint32_t protocol)
{
	return protocol == IPPROTO_TCP || (protocol == IPPROTO_UDP && p->number != NFS3_PROGRAM);
}

static struct wire_portmap_entry entry_of(const struct gateway *g, const struct rpc_program *p,
					  uint32_t protocol)
{
	return (struct wire_portmap_entry){ p->number, p->version, protocol, g->port };
}

static void portmap_getport(struct nfs_call *c)
{
	const struct wire_portmap_entry *a = c->args;
	struct wire_portmap_port *r = c->res;

	r->port = 0;
	for (size_t i = 0; rpc_programs[i]; i++)
		if (rpc_programs[i]->number == a->program &&
		    rpc_programs[i]->version == a->version &&
		    program_is_served(rpc_programs[i], a->protocol))
			r->port = c->g->port;
}

static void portmap_dump(struct nfs_call *c)
{
	struct wire_portmap_list *r = c->res;

	r->entries = call_alloc(c, 2 * PROGRAMS_MAX * sizeof(*r->entries));
	for (size_t i = 0; r->entries && rpc_programs[i]; i++)
		for (size_t k = 0; k < ARRAY_LEN(protocols); k++)
			if (program_is_served(rpc_programs[i], protocols[k]))
				r->entries[r->n_entries++] =
					entry_of(c->g, rpc_programs[i], protocols[k]);
}

static const struct rpc_proc procs[] = {
	[PORTMAP_NULL] = { .name = "null" },
	[PORTMAP_GETPORT] =
		RPC_PROC("getport", portmap_entry, portmap_port, portmap_getport, false),
	[PORTMAP_DUMP] = { .name = "dump",
			   .res = XDR_ANY(xdr_wire_portmap_list),
			   .res_size = sizeof(struct wire_portmap_list),
			   .run = portmap_dump },
};

const struct rpc_program portmap_program = { "portmap", PORTMAP_PROGRAM,  PORTMAP_VERSION,
					     procs,	ARRAY_LEN(procs), false };

/* ---- registration ---- */

int portmap_ask(struct gateway *g, uint32_t version, uint32_t procedure, xdr_any args, void *a)
{
	static const struct origin here = {
		.addr = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 }
	};
	struct wire_portmap_done r = { false };
	struct rpc_question q = { .program = PORTMAP_PROGRAM,
				  .version = version,
				  .procedure = procedure,
				  .args = args,
				  .a = a,
				  .res = XDR_ANY(xdr_wire_portmap_done),
				  .r = &r };
	int e = rpc_ask(g, &here, PORTMAP_PORT, &q);

	return e ? e : r.done ? 0 : -EPERM;
}

static int set_one(struct gateway *g, uint32_t procedure, struct wire_portmap_entry *e)
{
	return portmap_ask(g, PORTMAP_VERSION, procedure, XDR_ANY(xdr_wire_portmap_entry), e);
}

/* Removes what an earlier gateway has registered, which PORTMAP_UNSET does for all protocols at
 * once, and registers the program. */
static int register_one(struct gateway *g, const struct rpc_program *p)
{
	struct wire_portmap_entry e = entry_of(g, p, IPPROTO_TCP);
	int r = 0;

	rpcbind_unset(g, p);
	set_one(g, PORTMAP_UNSET, &e);
	for (size_t k = 0; g->has_ipv4 && k < ARRAY_LEN(protocols) && !r; k++) {
		e = entry_of(g, p, protocols[k]);
		if (program_is_served(p, protocols[k]))
			r = set_one(g, PORTMAP_SET, &e);
	}
	if (g->has_ipv6 && !r)
		rpcbind_set(g, p);
	return r;
}

/* On a task. */
static void register_all(void *arg)
{
	struct gateway *g = arg;
	int r = 0;

	for (size_t i = 0; rpc_programs[i] && !r; i++)
		if (rpc_programs[i]->number != PORTMAP_PROGRAM)
			r = register_one(g, rpc_programs[i]);
	if (r)
		log_info("nfs", "no portmapper has this gateway (%s): clients give the ports",
			 error_text(r));
}

void portmap_start(struct gateway *g, const struct sockaddr *a, socklen_t len)
{
	struct sockaddr_storage at = { 0 };

	memcpy(&at, a, len);
	if (a->sa_family == AF_INET6)
		((struct sockaddr_in6 *)&at)->sin6_port = htons(PORTMAP_PORT);
	else
		((struct sockaddr_in *)&at)->sin_port = htons(PORTMAP_PORT);
	if (rpc_udp_listen(g, (struct sockaddr *)&at, len) == 0 &&
	    rpc_tcp_listen(g, (struct sockaddr *)&at, len) == 0)
		return;
	if (nfs_task_start(g, register_all, g))
		log_warn("nfs", "no task to register at the portmapper");
}

uint16_t portmap_port_of(struct gateway *g, const struct origin *host, uint32_t program,
			 uint32_t version)
{
	struct wire_portmap_entry a = { program, version, IPPROTO_UDP, 0 };
	struct wire_portmap_port r = { 0 };
	struct rpc_question q = { .program = PORTMAP_PROGRAM,
				  .version = PORTMAP_VERSION,
				  .procedure = PORTMAP_GETPORT,
				  .args = XDR_ANY(xdr_wire_portmap_entry),
				  .a = &a,
				  .res = XDR_ANY(xdr_wire_portmap_port),
				  .r = &r };

	return rpc_ask(g, host, PORTMAP_PORT, &q) ? 0 : (uint16_t)r.port;
}
