/* The public interface: which mover transfers use, what it costs and what was moved.
 *
 * Threads: any. Buffers: none. Errors: -errno. */
#include "client/api_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "sheaf_admin.h"

static_assert((int)SHEAF_MOVER_AUTO == METHOD_AUTO && (int)SHEAF_MOVER_INLINE == METHOD_INLINE &&
		      (int)SHEAF_MOVER_PACK == METHOD_PACK &&
		      (int)SHEAF_MOVER_GATHER == METHOD_GATHER &&
		      (int)SHEAF_MOVER_DRIVEN == METHOD_DRIVEN && SHEAF_ALL_MOVERS == N_METHODS,
	      "a mover is a mover");

int movers_init(struct client *c)
{
	const char *wish = getenv("SHEAF_MOVER"), *net;

	pieces_guard();
	net_costs_measure(c->net->costs);
	net = getenv("SHEAF_NET");
	c->net->rdma.caches = true;
	c->net->rdma.is_off |= net && strcmp(net, "tcp") == 0;
	c->net->rdma.is_required = net && strcmp(net, "rdma") == 0;
	if (!wish || !net_method_parse(wish, &c->mover))
		return 0;
	why_set("$SHEAF_MOVER is '%s', but must be auto, inline, pack, gather or driven; unset it, "
		"or take one of them",
		wish);
	return -EINVAL;
}

const char *sheaf_mover_name(enum sheaf_mover how)
{
	return (unsigned)how < N_METHODS ? net_method_name((enum net_method)how) : NULL;
}

int sheaf_set_mover(struct sheaf *fs, enum sheaf_mover how)
{
	if ((unsigned)how >= N_METHODS)
		return -EINVAL;
	pthread_mutex_lock(&fs->d->lock);
	client_set_mover(fs->b.client, (enum net_method)how);
	pthread_mutex_unlock(&fs->d->lock);
	return 0;
}

static double cost_on(const struct net_costs *c, enum sheaf_mover how, int write, uint64_t segments,
		      uint64_t bytes)
{
	if (how == SHEAF_MOVER_AUTO)
		how = (enum sheaf_mover)net_choose(c, write, segments, bytes, INLINE_MAX);
	return net_cost(c, (enum net_method)how, write, segments, bytes);
}

double sheaf_mover_cost(struct sheaf *fs, enum sheaf_mover how, int write, uint64_t segments,
			uint64_t bytes)
{
	return cost_on(&fs->b.client->net->costs[MEDIUM_TCP], how, write, segments, bytes);
}

/* -EINVAL: there is no server i. */
static int costs_of_link(struct sheaf *fs, int i, struct net_costs *costs, const char **route)
{
	int r = -EINVAL;

	pthread_mutex_lock(&fs->d->lock);
	if (i >= 0 && i < (int)fs->b.client->n_peers) {
		*costs = peer_costs(&fs->b.client->peers[i]);
		*route = peer_medium(&fs->b.client->peers[i]);
		r = 0;
	}
	pthread_mutex_unlock(&fs->d->lock);
	return r;
}

double sheaf_mover_cost_at(struct sheaf *fs, int i, enum sheaf_mover how, int write,
			   uint64_t segments, uint64_t bytes)
{
	struct net_costs c;
	const char *route;

	return costs_of_link(fs, i, &c, &route) ? 0 : cost_on(&c, how, write, segments, bytes);
}

int sheaf_link_costs(struct sheaf *fs, int i, struct sheaf_link_costs *out)
{
	struct sheaf_link_costs l = { .size = out->size };
	struct net_costs c;
	int r = costs_of_link(fs, i, &c, &l.route);

	if (r)
		return r;
	l.call = c.call;
	l.byte = c.byte;
	l.copy = c.copy;
	l.gather = c.gather;
	l.scatter = c.scatter;
	l.pack = c.pack;
	l.unpack = c.unpack;
	l.far = c.far;
	l.work_request = c.work_request;
	l.registration = c.registration;
	l.page = c.page;
	memcpy(out, &l, MIN(out->size, sizeof(l)));
	return 0;
}

int sheaf_account(struct sheaf *fs, int i, struct sheaf_account *out)
{
	const struct peer *p;
	int r = -EINVAL;

	pthread_mutex_lock(&fs->d->lock);
	if (i >= 0 && i < (int)fs->b.client->n_peers) {
		p = &fs->b.client->peers[i];
		*out = (struct sheaf_account){ .requests = p->n_sent,
					       .frames = p->account.frames,
					       .sent = p->account.sent,
					       .calls = p->account.calls,
					       .copied = p->account.copied,
					       .round_ns = p->round,
					       .busy_ns = p->account.busy,
					       .medium = peer_medium(p) };
		memcpy(out->bytes, p->account.bytes, sizeof(out->bytes));
		out->bytes[SHEAF_MOVER_GATHER] += p->account.bytes[METHOD_DRIVEN];
		r = 0;
	}
	pthread_mutex_unlock(&fs->d->lock);
	return r;
}
