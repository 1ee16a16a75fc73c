/* Shares the loop between a server's links: each moves one chunk per turn of the loop, in each
 * direction.
 *
 * A small request waits for a chunk of each link that moves bulk, so chunks are short while such
 * requests come. With many links moving bulk they are shorter, too, since a client with one request
 * at a time waits for a turn of all links at each of its steps. A link may save some unused turns
 * and use them later, except while chunks are short, so that such a client does not fall far behind
 * those with many requests. Dialled links have no bound: the client has no others to share with.
 *
 * Threads: the loop's. */
#include "net/backend.h"

#define SHORT_CHUNK (64 * KIB) /* while another link without bulk has had work within LATELY */
#define CROWD_CHUNK (128 * KIB) /* while more than CROWD links move bulk */
#define CROWD 3
#define LATELY (10 * NSEC_PER_MSEC)
#define KEPT (4 * CHUNK_MAX) /* most bytes of saved turns */
#define MUCH (16 * KIB) /* bytes in one call that count as bulk */

static bool lately(const struct net *n, uint64_t when)
{
	return when && n->loop->now < when + LATELY;
}

void pace_heard(const struct link *l, const struct pace *p, bool bulk)
{
	struct net *n = l->net;

	if (bulk || lately(n, p->bulk_at))
		return;
	n->asker = l;
	n->asked_at = n->loop->now;
}

uint64_t pace_chunk(const struct link *l)
{
	bool brief = !l->dialled && l->net->asker != l && lately(l->net, l->net->asked_at);

	if (brief)
		return SHORT_CHUNK;
	return !l->dialled && l->net->movers_before > CROWD ? CROWD_CHUNK : CHUNK_MAX;
}

bool pace_over(const struct link *l, struct allowance *a)
{
	uint64_t turn = l->net->loop->turns, passed = MIN(turn - a->turn, KEPT / SHORT_CHUNK);
	uint64_t chunk = pace_chunk(l), most = chunk == SHORT_CHUNK ? chunk : KEPT;

	if (l->dialled)
		return false;
	if (passed)
		a->left = MIN(a->left + passed * chunk, most);
	a->turn = turn;
	return !a->left;
}

void pace_use(const struct link *l, struct pace *p, struct allowance *a, size_t bytes)
{
	struct net *n = l->net;
	uint64_t turn = n->loop->turns;

	a->left -= MIN(a->left, bytes);
	if (l->dialled || bytes < MUCH || p->moved == turn)
		return;
	p->moved = turn;
	if (n->mover_turn != turn) {
		n->movers_before = n->mover_turn + 1 == turn ? n->movers : 0;
		n->mover_turn = turn;
		n->movers = 0;
	}
	n->movers++;
}
