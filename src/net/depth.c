/* How many windows of a request a link needs in flight to stay full.
 *
 * The time from a PULL to the first byte of its answer is a round trip if the link has nothing else
 * to move, and longer if the answer waits behind others. So while it is close to the round trip,
 * each answer raises the depth by one window, which doubles it in a round trip; when it is several
 * times as long, the depth falls again. Near links and Unix sockets keep the usual depth: there the
 * processors are the limit. The round trip is the shortest of the last one to two periods, of PULLs
 * that were alone: otherwise the server's own queue would count as distance.
 *
 * Threads: the loop's. */
#include "net/backend.h"

#define PERIOD_NS (NSEC_PER_SEC / 2)
#define DEPTH_MAX 64

static void note_round_trip(struct link_depth *d, uint64_t ns, uint64_t now)
{
	if (now >= d->period_end) {
		d->before = now < d->period_end + PERIOD_NS ? d->shortest : 0;
		d->shortest = 0;
		d->period_end = now + PERIOD_NS;
	}
	d->shortest = d->shortest ? MIN(d->shortest, ns) : ns;
}

void link_note_delay(struct link *l, const struct xfer *x)
{
	struct link_depth *d = &l->depth;
	uint64_t now = l->net->loop->now, ns = MAX(now - x->asked, (uint64_t)1);

	if (!x->asked || l->local_label[0])
		return;
	if (x->is_alone)
		note_round_trip(d, ns, now);
	if (!link_is_far(l))
		d->windows = 0;
	else if (ns < 2 * link_round_trip(l))
		d->windows = MIN(d->windows + 1, (uint32_t)DEPTH_MAX);
	else if (ns > 4 * link_round_trip(l) && d->windows)
		d->windows--;
}

uint64_t link_round_trip(const struct link *l)
{
	const struct link_depth *d = &l->depth;

	return d->before && d->shortest ? MIN(d->before, d->shortest) : MAX(d->before, d->shortest);
}

bool link_is_far(const struct link *l)
{
	return link_round_trip(l) >= NET_FAR_NS;
}
