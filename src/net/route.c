/* The table of routes, and which of them a peer dials next.
 *
 * To add a route, add a row to `kinds` at its rank. Threads: the loop's. Errors: kept in the route,
 * for people. */
#include <assert.h>

#include "net/backend.h"
#include "net/route.h"

static const struct route_kind kinds[] = {
	{ "unix", link_dial_local },
	{ "tcp", tcp_dial },
};
static const struct route_kind loop_kind = { "loop", loopback_dial };

static const char *const counted[] = { "unix", "rdma", "tcp", "loop" }; /* as link_route() */

static_assert(ARRAY_LEN(counted) <= ROUTES_MAX, "routes_count() has a row for each");

void routes_init(struct routes *r, const char *address)
{
	*r = (struct routes){ 0 };
	if (net_is_loopback(address)) {
		r->row[r->n++].kind = &loop_kind;
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		r->row[r->n++].kind = &kinds[i];
}

static void select_from(struct routes *r, uint32_t i, uint64_t now)
{
	while (i + 1 < r->n && now < r->row[i].retry_at)
		i++;
	r->at = i;
}

void routes_begin(struct routes *r, uint64_t now)
{
	select_from(r, 0, now);
}

bool routes_failed(struct routes *r, int error, uint64_t now)
{
	struct route *f = &r->row[r->at];

	f->error = error;
	if (routes_has_next(r)) {
		f->pause_ns = MIN(MAX(2 * f->pause_ns, ROUTE_PAUSE_NS), ROUTE_PAUSE_MAX_NS);
		f->retry_at = now + f->pause_ns;
		select_from(r, r->at + 1, now);
		return true;
	}
	for (uint32_t i = 0; i < r->n; i++)
		r->row[i].retry_at = r->row[i].pause_ns = 0;
	return false;
}

void routes_succeeded(struct routes *r)
{
	for (uint32_t i = r->at; i < r->n; i++)
		r->row[i] = (struct route){ .kind = r->row[i].kind };
}

const char *route_reason(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{ 0, "" },
		{ -ECONNREFUSED, "connection refused" },
		{ -EOPNOTSUPP, "switched off" },
		{ -EREMCHG, "another server answers there" },
		{ -EKEYREJECTED, "the proof of the key was wrong" },
		{ -EPROTO, "no answer of a Sheaf server" },
		{ -ETIMEDOUT, "the handshake timed out" },
		{ -ECONNRESET, "closed during the handshake" },
		{ -ENAMETOOLONG, "the address is too long" },
		{ -EAGAIN, "the server accepts no connection now" },
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return error_text(error);
}

static void count(const struct list *links, struct route_count *out, size_t n)
{
	const struct link *l;

	list_for_each(l, links, in_net)
		for (size_t i = 0; i < n; i++)
			out[i].links += strcmp(link_route(l), out[i].name) == 0;
}

size_t routes_count(const struct net *n, struct route_count out[ROUTES_MAX])
{
	size_t rows = 0;

	for (; rows < ARRAY_LEN(counted); rows++)
		out[rows] = (struct route_count){ counted[rows], 0 };
	count(&n->links, out, rows);
	count(&n->unproven_links, out, rows);
	return rows;
}
