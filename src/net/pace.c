/* The links of a server take turns, a chunk each in a turn of the loop, either way.
 *
 * Who asks for little waits for a chunk of each of those who move bulk: so chunks are short while there is one. Turns that a
 * link did not use it may use later, some of them: who has one request at a time is not behind those who have many. What
 * we dialled has no bound: it is ours alone.
 *
 * Threads: the loop's. */
#include "net/backend.h"

#define SHORT_CHUNK (64 * KIB) /* while somebody else asks for little */
#define LATELY (10 * NSEC_PER_MSEC)
#define TURNS_KEPT 4

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

	return brief ? SHORT_CHUNK : CHUNK_MAX;
}

bool pace_over(const struct link *l, struct allowance *a)
{
	uint64_t turn = l->net->loop->turns, passed = MIN(turn - a->turn, TURNS_KEPT);
	uint64_t chunk = pace_chunk(l);

	if (l->dialled)
		return false;
	if (passed)
		a->left = MIN(a->left + passed * chunk, TURNS_KEPT * chunk);
	a->turn = turn;
	return !a->left;
}

void pace_use(struct allowance *a, size_t bytes)
{
	a->left -= MIN(a->left, bytes);
}
