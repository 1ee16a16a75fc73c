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

#define SHORT_CHUNK (64 * KIB) /* while another link without bulk has had work within RECENT_NS */
#define MANY_LINKS_CHUNK (128 * KIB) /* while more than MANY_LINKS links move bulk */
#define MANY_LINKS 3
#define RECENT_NS (10 * NSEC_PER_MSEC)
#define SAVED_MAX (4 * CHUNK_MAX) /* most bytes of saved turns */
#define BULK_MIN (16 * KIB) /* bytes in one call that count as bulk */

static bool is_recent(const struct net *n, uint64_t when)
{
	return when && n->loop->now < when + RECENT_NS;
}

void pace_note_work(const struct link *l, const struct pace *p, bool bulk)
{
	struct net *n = l->net;

	if (bulk || is_recent(n, p->bulk_at))
		return;
	n->last_small_link = l;
	n->small_work_at = n->loop->now;
}

uint64_t pace_chunk(const struct link *l)
{
	bool brief = !l->dialled && l->net->last_small_link != l &&
		     is_recent(l->net, l->net->small_work_at);

	if (brief)
		return SHORT_CHUNK;
	return !l->dialled && l->net->n_bulk_links_before > MANY_LINKS ? MANY_LINKS_CHUNK :
									 CHUNK_MAX;
}

bool pace_over(const struct link *l, struct allowance *a)
{
	uint64_t turn = l->net->loop->turns, passed = MIN(turn - a->turn, SAVED_MAX / SHORT_CHUNK);
	uint64_t chunk = pace_chunk(l), most = chunk == SHORT_CHUNK ? chunk : SAVED_MAX;

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
	if (l->dialled || bytes < BULK_MIN || p->moved == turn)
		return;
	p->moved = turn;
	if (n->bulk_turn != turn) {
		n->n_bulk_links_before = n->bulk_turn + 1 == turn ? n->n_bulk_links : 0;
		n->bulk_turn = turn;
		n->n_bulk_links = 0;
	}
	n->n_bulk_links++;
}
