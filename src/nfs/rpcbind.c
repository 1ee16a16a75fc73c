/* The portmapper in versions 3 and 4, rpcbind, which clients of IPv6 ask: it answers with
 * addresses. The gateway is at any of its host's, and a client sends the one that it reached. */
#include <ctype.h>
#include <stdio.h>

#include "nfs/nfs_priv.h"

static const struct transport {
	const char *netid;
	uint32_t protocol;
	bool is_ipv6;
} transports[] = { { "tcp", IPPROTO_TCP, false },
		   { "udp", IPPROTO_UDP, false },
		   { "tcp6", IPPROTO_TCP, true },
		   { "udp6", IPPROTO_UDP, true } };

static bool is_served(const struct gateway *g, const struct rpc_program *p,
		      const struct transport *t)
{
	return (t->is_ipv6 ? g->has_ipv6 : g->has_ipv4) && program_is_served(p, t->protocol);
}

/* How many bytes of an address with a port are the host's; 0: it has none of this family. */
static uint32_t host_length(const struct wire_bytes *a, bool is_ipv6)
{
	uint32_t n = a->len;
	bool has_colon = false;

	for (int dots = 0; n && dots < 2; dots += a->p[n] == '.')
		n--;
	for (uint32_t i = 0; i < n; i++) {
		if (!isalnum(a->p[i]) && !strchr(":.%", a->p[i]))
			return 0;
		has_colon |= a->p[i] == ':';
	}
	return has_colon == is_ipv6 ? n : 0;
}

/* The gateway's address for a client that has reached it at `asked`, or at an unknown address. */
static void put_address(const struct gateway *g, const struct transport *t,
			const struct wire_bytes *asked, char out[RPCBIND_TEXT_MAX])
{
	uint32_t n = asked ? host_length(asked, t->is_ipv6) : 0;
	int k = n && n < RPCBIND_TEXT_MAX - 16 ?
			snprintf(out, RPCBIND_TEXT_MAX, "%.*s", (int)n, (const char *)asked->p) :
			snprintf(out, RPCBIND_TEXT_MAX, "%s", t->is_ipv6 ? "::" : "0.0.0.0");

	snprintf(out + k, RPCBIND_TEXT_MAX - (size_t)k, ".%u.%u", g->port >> 8, g->port & 0xff);
}

static void rpcbind_getaddr(struct nfs_call *c)
{
	const struct wire_rpcbind_entry *a = c->args;
	struct wire_rpcbind_address *r = c->res;
	char *text = call_alloc(c, RPCBIND_TEXT_MAX);
	const struct transport *t = NULL;

	for (size_t k = 0; k < ARRAY_LEN(transports); k++)
		if (a->netid.len == strlen(transports[k].netid) &&
		    memcmp(a->netid.p, transports[k].netid, a->netid.len) == 0)
			t = &transports[k];
	for (size_t i = 0; t && text && rpc_programs[i]; i++)
		if (rpc_programs[i]->number == a->program &&
		    rpc_programs[i]->version == a->version && is_served(c->g, rpc_programs[i], t)) {
			put_address(c->g, t, &a->address, text);
			r->address = wire_text(text);
		}
}

static void add_entry(struct nfs_call *c, const struct rpc_program *p, const struct transport *t)
{
	struct wire_rpcbind_list *r = c->res;
	char *text = call_alloc(c, RPCBIND_TEXT_MAX);

	if (!text || !is_served(c->g, p, t))
		return;
	put_address(c->g, t, NULL, text);
	r->entries[r->n_entries++] =
		(struct wire_rpcbind_entry){ p->number, p->version, wire_text(t->netid),
					     wire_text(text), wire_text("sheaf") };
}

static void rpcbind_dump(struct nfs_call *c)
{
	struct wire_rpcbind_list *r = c->res;

	r->entries = call_alloc(c, ARRAY_LEN(transports) * PROGRAMS_MAX * sizeof(*r->entries));
	for (size_t i = 0; r->entries && rpc_programs[i]; i++)
		for (size_t k = 0; k < ARRAY_LEN(transports); k++)
			add_entry(c, rpc_programs[i], &transports[k]);
}

static const struct rpc_proc procs[] = {
	[RPCBIND_NULL] = { .name = "null" },
	[RPCBIND_GETADDR] =
		RPC_PROC("getaddr", rpcbind_entry, rpcbind_address, rpcbind_getaddr, false),
	[RPCBIND_DUMP] = { .name = "dump",
			   .res = XDR_ANY(xdr_wire_rpcbind_list),
			   .res_size = sizeof(struct wire_rpcbind_list),
			   .run = rpcbind_dump },
};

const struct rpc_program rpcbind3_program = { "rpcbind3", PORTMAP_PROGRAM,  RPCBIND_VERSION3,
					      procs,	  ARRAY_LEN(procs), false };
const struct rpc_program rpcbind4_program = { "rpcbind4", PORTMAP_PROGRAM,  RPCBIND_VERSION4,
					      procs,	  ARRAY_LEN(procs), false };

/* ---- registration at the portmapper of the host ---- */

static int ask(struct gateway *g, uint32_t procedure, const struct rpc_program *p,
	       const char *netid, const char *address)
{
	struct wire_rpcbind_entry e = { p->number, p->version, wire_text(netid), wire_text(address),
					wire_text("sheaf") };

	return portmap_ask(g, RPCBIND_VERSION4, procedure, XDR_ANY(xdr_wire_rpcbind_entry), &e);
}

void rpcbind_unset(struct gateway *g, const struct rpc_program *p)
{
	ask(g, RPCBIND_UNSET, p, "", "");
}

void rpcbind_set(struct gateway *g, const struct rpc_program *p)
{
	char address[RPCBIND_TEXT_MAX];
	int r;

	for (size_t k = 0; k < ARRAY_LEN(transports); k++) {
		const struct transport *t = &transports[k];

		if (!t->is_ipv6 || !is_served(g, p, t))
			continue;
		put_address(g, t, NULL, address);
		r = ask(g, RPCBIND_SET, p, t->netid, address);
		if (r)
			log_info("nfs", "%s is not registered for %s: %s", p->name, t->netid,
				 error_text(r));
	}
}
