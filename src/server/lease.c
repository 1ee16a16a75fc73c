/* Leases on names of directories that are on other servers: a client that was referred to such a
 * directory may reuse the referral for a moment. A request that removes the name, or changes the
 * permissions on the way, waits until the leases of other sessions have expired. No new ones are
 * granted until the change is done. (A part that another server coordinates outlives its request;
 * then the name is locked.)
 *
 * Leases are kept in buckets, by a hash of the name and by one of its directory. Names that share a
 * bucket delay each other, no more. Leases are lost with a restart, so for LEASE_NS after its start
 * the server regards every name as leased. */
#include "server/pair.h"

#define AGAIN_NS \
	(2 * NSEC_PER_SEC) /* a change that has to wait retries within this time, or is overtaken */

static const struct wire_bytes any_name = { 0, (uint8_t *)"" };

static struct lease *bucket(struct server *srv, uint64_t dir, const struct wire_bytes *name)
{
	return &srv->leases[hash_u64(dir ^ crc32c(0, name->p, name->len)) % LEASES];
}

static void hold(struct lease *l, uint64_t session, uint64_t now)
{
	if (l->session != session && now < l->until)
		l->others = MAX(l->others, l->until);
	l->session = session;
	l->until = now + LEASE_NS;
}

uint32_t lease_grant(struct server *srv, uint64_t session, uint64_t dir,
		     const struct wire_bytes *name)
{
	struct lease *l = bucket(srv, dir, name), *d = bucket(srv, dir, &any_name);
	uint64_t now = srv->loop->now;

	if (l->changes || d->changes || now < l->closed || now < d->closed)
		return 0;
	hold(l, session, now);
	hold(d, session, now);
	return LEASE_NS / NSEC_PER_MSEC;
}

int lease_block(struct sreq *s, uint64_t session, uint64_t dir, const struct wire_bytes *name)
{
	struct server *srv = s->srv;
	struct lease *l = bucket(srv, dir, name ? name : &any_name);
	uint64_t end = MAX(srv->started + LEASE_NS, l->others);

	if (l->session != session)
		end = MAX(end, l->until);
	if (srv->map.n_meta < 2)
		return 0;
	if (srv->loop->now < end) {
		l->closed = end + AGAIN_NS;
		return -EINPROGRESS;
	}
	l->changes++;
	assert(!s->leases[1]);
	s->leases[s->leases[0] != NULL] = l;
	return 0;
}

void lease_unblock(struct sreq *s)
{
	for (size_t i = 0; i < ARRAY_LEN(s->leases); i++) {
		if (s->leases[i])
			s->leases[i]->changes--;
		s->leases[i] = NULL;
	}
}
