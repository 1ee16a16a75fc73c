/* The links of a server take turns, a chunk each in a turn of the loop, either way.
 *
 * Who asks for little waits for a chunk of each of those who move bulk: so chunks are short while there is one. They are
 * shorter than else while many take their turns: who has one request at a time waits for a turn of all of them at each of
 * its steps. What a link did not use in its turns it may use later, some of it, unless chunks are short: so that one is
 * not far behind those who have many requests. What we dialled has no bound: it is ours alone.
 *
 * Threads: the loop's. */
#include "net/backend.h"

#define SHORT_CHUNK (64 * KIB) /* while somebody else asks for little */
#define CROWD_CHUNK (128 * KIB) /* while others than we and two more move bulk */
#define CROWD 3
#define LATELY (10 * NSEC_PER_MSEC)
#define KEPT (4 * CHUNK_MAX) /* of unused turns */
#define MUCH (16 * KIB) /* in one call: bulk */

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
