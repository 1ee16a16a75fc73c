/* The referral cache: an entry leads from a directory, by one or more names, to a directory on
 * another server. The server that gave the referral promises that it stays valid for a while
 * (referral.lease_ms), so a path is walked there without asking.
 *
 * The permission to pass was checked for one caller, so an entry is only for callers with the same
 * credential. When this client itself moves, removes or forbids something, it forgets all entries.
 * The table is direct-mapped: an entry that replaces another costs one more request. */
#include <stdlib.h>

#include "client/names_impl.h"

static uint64_t cred_hash(const struct cred_wire *c)
{
	return hash_u64((uint64_t)c->uid << 32 | c->gid) ^
	       crc32c(0, c->gids, c->n_gids * sizeof(*c->gids));
}

static struct cached_referral *slot(struct client *c, const struct wire_handle *dir,
				    const struct wire_bytes *name, uint64_t cred)
{
	return &c->referrals[hash_u64(dir->ino ^ cred ^ crc32c(0, name->p, name->len)) %
			     REFERRALS_MAX];
}

void referral_add(struct cop *op, const struct wire_place *p, const struct wire_referral *r,
		  uint64_t sent_at)
{
	struct wire_bytes names = { r->consumed, p->path.p };
	uint64_t cred = cred_hash(&op->cred);
	struct cached_referral *e = slot(op->c, &p->dir, &names, cred);

	if (!r->lease_ms || r->linked || !names.len || names.len > sizeof(e->names))
		return;
	*e = (struct cached_referral){
		.dir = p->dir,
		.to = r->at,
		.cred_hash = cred,
		.len = (uint8_t)names.len,
		/* from the time of the request, and a little less than promised */
		.until = sent_at + r->lease_ms * NSEC_PER_MSEC / 5 * 4
	};
	memcpy(e->names, names.p, names.len);
}

static bool is_valid(const struct cached_referral *e, const struct client *c,
		     const struct wire_place *p, const struct wire_bytes *names, uint64_t cred)
{
	return e->until > c->loop->now && e->cred_hash == cred && e->len == names->len &&
	       e->dir.ino == p->dir.ino && e->dir.gen == p->dir.gen &&
	       !memcmp(e->names, names->p, names->len);
}

static bool only_slashes(const uint8_t *p, uint32_t n)
{
	while (n && *p == '/') {
		p++;
		n--;
	}
	return !n;
}

/* Follows one entry, with as few names as possible. The last name of a path is always asked for. */
static bool walk_one(struct cop *op, struct wire_place *p, uint64_t cred)
{
	uint32_t most = MIN(p->path.len, (uint32_t)sizeof(op->c->referrals[0].names) + 1);

	for (uint32_t n = 1; n < most; n++) {
		struct wire_bytes names = { n, p->path.p };
		const struct cached_referral *e;

		if (p->path.p[n] != '/')
			continue;
		if (only_slashes(p->path.p + n, p->path.len - n)) /* this is the last name */
			return false;
		e = slot(op->c, &p->dir, &names, cred);
		if (!is_valid(e, op->c, p, &names, cred))
			continue;
		p->dir = e->to;
		while (n < p->path.len && p->path.p[n] == '/')
			n++;
		p->path.p += n;
		p->path.len -= n;
		return true;
	}
	return false;
}

void referral_walk(struct cop *op, struct wire_place *p)
{
	uint64_t cred = cred_hash(&op->cred);

	while (walk_one(op, p, cred))
		;
}

void referrals_forget(struct client *c)
{
	memset(c->referrals, 0, sizeof(c->referrals));
}
