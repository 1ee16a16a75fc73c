/* The states of directories that were seen last, for weak cache consistency: after a change of
 * names a client wants to know the state right before it. Each state has a number, `change`,
 * and the state after a change has the next number: so the state seen last is the one right
 * before, if its number is one less. Nothing is asked for this. */
#include "nfs/nfs_priv.h"

static struct dir_state *state_of(struct gateway *g, uint64_t ino)
{
	return &g->dirs[hash_u64(ino) % ARRAY_LEN(g->dirs)];
}

void dir3_seen(struct gateway *g, uint64_t ino, uint64_t change, const struct stat *st)
{
	struct dir_state *d = state_of(g, ino);
	struct wire_attr3 a;

	if (d->ino == ino && d->change >= change)
		return;
	attr3_of(g, st, &a);
	*d = (struct dir_state){ ino, change, { a.size, a.mtime, a.ctime } };
}

/* The state right before the one with this number, or NULL. */
static struct wire_before3 *before(struct nfs_call *c, uint64_t ino, uint64_t change)
{
	const struct dir_state *d = state_of(c->g, ino);
	struct wire_before3 *b;

	if (d->ino != ino || d->change + 1 != change)
		return NULL;
	b = call_alloc(c, sizeof(*b));
	if (b)
		*b = d->state;
	return b;
}

void dir3_changed(struct nfs_call *c, const struct sheaf_handle *dir, struct wire_change3 *out)
{
	struct sheaf_dir_after after[2];
	int n = sheaf_h_dir_after(after);

	for (int i = 0; i < n; i++) {
		if (after[i].dir.ino != dir->ino)
			continue;
		out->before = before(c, dir->ino, after[i].change);
		out->after = attr3_copy(c, &after[i].st);
		dir3_seen(c->g, dir->ino, after[i].change, &after[i].st);
		return;
	}
	out->after = attr3_get(c, dir);
}
