/* Ways that this client was shown: from a directory, by a name, to a directory on another server. The server
 * that showed one promises that it stays for a while (referral.lease_ms); so a path walks there without asking.
 *
 * Who may pass was checked for one caller, so a way is for callers with the same credential only. What this
 * client itself moves, removes or forbids makes it forget all ways. A direct-mapped table: a way that
 * takes the place of another costs one more question. */
#include <stdlib.h>

#include "client/cli_priv.h"

static uint64_t cred_hash(const struct cred_wire *c)
{
	return hash_u64((uint64_t)c->uid << 32 | c->gid) ^
	       crc32c(0, c->gids, c->n_gids * sizeof(*c->gids));
}

static struct way *slot(struct client *c, const struct wire_handle *dir,
			const struct wire_bytes *name, uint64_t who)
{
	return &c->ways[hash_u64(dir->ino ^ who ^ crc32c(0, name->p, name->len)) % WAYS];
}

static struct wire_bytes first_name(const struct wire_bytes *path)
{
	const uint8_t *end = path->len ? memchr(path->p, '/', path->len) : NULL;

	return (struct wire_bytes){ end ? (uint32_t)(end - path->p) : path->len, path->p };
}

void way_learn(struct cop *op, const struct wire_place *p, const struct wire_referral *r,
	       uint64_t asked)
{
	struct wire_bytes name = first_name(&p->path);
	uint64_t who = cred_hash(&op->cred);
	struct way *w = slot(op->c, &p->dir, &name, who);

	if (!r->lease_ms || r->linked || name.len != r->consumed || name.len > sizeof(w->name))
		return;
	*w = (struct way){ .dir = p->dir,
			   .to = r->at,
			   .who = who,
			   .len = (uint8_t)name.len,
			   /* counted from the question, and a little less than promised */
			   .until = asked + r->lease_ms * NSEC_PER_MSEC / 5 * 4 };
	memcpy(w->name, name.p, name.len);
}

void way_walk(struct cop *op, struct wire_place *p)
{
	uint64_t who = cred_hash(&op->cred);

	for (;;) {
		struct wire_bytes name = first_name(&p->path);
		const struct way *w;

		if (!name.len || name.len == p->path.len) /* the last name is always asked for */
			return;
		w = slot(op->c, &p->dir, &name, who);
		if (w->until <= op->c->loop->now || w->who != who || w->len != name.len ||
		    w->dir.ino != p->dir.ino || w->dir.gen != p->dir.gen ||
		    memcmp(w->name, name.p, name.len))
			return;
		p->dir = w->to;
		p->path.p += name.len;
		p->path.len -= name.len;
		while (p->path.len && *p->path.p == '/') {
			p->path.p++;
			p->path.len--;
		}
	}
}

void ways_forget(struct client *c)
{
	memset(c->ways, 0, sizeof(c->ways));
}
