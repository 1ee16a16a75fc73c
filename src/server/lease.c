/* Leases on names of directories that live elsewhere: a client that was referred to one may take the same way
 * again for a moment without asking. Whoever takes such a name away, or changes who may pass, waits until the
 * leases of others have run out; no new ones are given meanwhile.
 *
 * Kept in buckets, by a hash of the name and by one of the directory it is in: two that share a bucket wait for
 * each other, no more. A lease is a promise of this server's life only, so for as long after its start everything
 * counts as leased. */
#include "server/srv.h"

#define CHANGE_NS (2 * NSEC_PER_SEC) /* longer than a change takes but on a disk in trouble */

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

	if (now < l->closed || now < d->closed)
		return 0;
	hold(l, session, now);
	hold(d, session, now);
	return LEASE_NS / NSEC_PER_MSEC;
}

int lease_over(struct server *srv, uint64_t session, uint64_t dir, const struct wire_bytes *name)
{
	struct lease *l = bucket(srv, dir, name ? name : &any_name);
	uint64_t end = MAX(srv->started + LEASE_NS, l->others);

	if (l->session != session)
		end = MAX(end, l->until);
	if (srv->map.n_meta < 2)
		return 0;
	l->closed =
		MAX(end, srv->loop->now) + CHANGE_NS; /* until the change that comes now is done */
	return srv->loop->now >= end ? 0 : -EINPROGRESS;
}
