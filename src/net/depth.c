/* How many windows of a request a link needs in flight to stay full.
 *
 * The time from a PULL to the first byte of its answer is a round trip while the link has room, and
 * longer when the answer waits behind others. So while it is close to the shortest such time, each
 * answer raises the depth by one window, which doubles it in a round trip; when it is several times
 * as long, the depth falls again. Near links keep the usual depth: there the processors are the
 * limit. The shortest time is that of the last one to two periods, since routes change.
 *
 * Threads: the loop's. */
#include "net/backend.h"

#define PERIOD_NS (10 * NSEC_PER_SEC)
#define DEPTH_MAX 64

void link_note_delay(struct link *l, uint64_t ns)
{
	struct link_depth *d = &l->depth;
	uint64_t now = l->net->loop->now;

	ns = MAX(ns, (uint64_t)1);
	if (now >= d->period_end) {
		d->before = d->shortest;
		d->shortest = 0;
		d->period_end = now + PERIOD_NS;
	}
	d->shortest = d->shortest ? MIN(d->shortest, ns) : ns;
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

	return d->before ? MIN(d->before, d->shortest) : d->shortest;
}

bool link_is_far(const struct link *l)
{
	return link_round_trip(l) >= NET_FAR_NS;
}
