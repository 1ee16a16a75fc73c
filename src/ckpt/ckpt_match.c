/* Are the registered pieces those of a checkpoint? Says which piece is not, and how it differs. */
#include "ckpt/ckpt_impl.h"

static const struct ckpt_piece *find(const struct ckpt_pieces *p, const char *name)
{
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->v[i].name, name) == 0)
			return &p->v[i];
	return NULL;
}

static bool same_groups(const struct ckpt_piece *a, const struct ckpt_piece *b)
{
	return a->n_groups == b->n_groups &&
	       (!a->n_groups ||
		memcmp(a->groups, b->groups, a->n_groups * sizeof(*a->groups)) == 0);
}

static int match_piece(const struct ckpt_piece *mine, const struct ckpt_piece *old, bool same_n)
{
	const char *name = mine->name;

	if (!mine->global != !old->global)
		return ckpt_fail(-EINVAL,
				 "piece '%s' is %spart of a global array, that of the "
				 "checkpoint is %s",
				 name, mine->global ? "" : "not ", old->global ? "one" : "not");
	if (mine->global != old->global)
		return ckpt_fail(-EINVAL,
				 "piece '%s' is of a global array of %llu bytes, that of the "
				 "checkpoint has %llu",
				 name, (unsigned long long)mine->global,
				 (unsigned long long)old->global);
	if (mine->global)
		return !same_n || mine->bytes != old->bytes || !same_groups(mine, old);
	if (!same_n)
		return ckpt_fail(-EINVAL,
				 "piece '%s' is no part of a global array, so it can only be "
				 "restored by as many processes as the checkpoint has",
				 name);
	if (mine->bytes != old->bytes)
		return ckpt_fail(-EINVAL, "piece '%s' has %llu bytes, in the checkpoint %llu", name,
				 (unsigned long long)mine->bytes, (unsigned long long)old->bytes);
	if (mine->shape != old->shape)
		return ckpt_fail(-EINVAL,
				 "piece '%s' has another type than in the checkpoint: the "
				 "same number of bytes in other places",
				 name);
	return 0;
}

int ckpt_match(const struct ckpt_pieces *p, const struct ckpt_table *t, bool same_n)
{
	int result = 0;

	for (size_t i = 0; i < t->pieces.n; i++)
		if (!find(p, t->pieces.v[i].name))
			return ckpt_fail(
				-EINVAL,
				"the checkpoint has a piece '%s', which this program has not "
				"registered",
				t->pieces.v[i].name);
	for (size_t i = 0; i < p->n; i++) {
		const struct ckpt_piece *old = find(&t->pieces, p->v[i].name);
		int r;

		if (!old)
			return ckpt_fail(-EINVAL, "piece '%s' is not in the checkpoint",
					 p->v[i].name);
		r = match_piece(&p->v[i], old, same_n);
		if (r < 0)
			return r;
		/* in another order of the stream, too */
		result |= r || p->v[i].start != old->start;
	}
	/* each registered one was found, so that more are two of one name */
	if (t->pieces.n != p->n)
		return ckpt_fail(-EUCLEAN, "the checkpoint has two pieces of one name");
	return result;
}

bool ckpt_same_pieces(const struct ckpt_table *a, const struct ckpt_table *b)
{
	if (a->stream != b->stream || a->pieces.n != b->pieces.n)
		return false;
	for (size_t i = 0; i < a->pieces.n; i++) {
		const struct ckpt_piece *x = &a->pieces.v[i], *y = &b->pieces.v[i];

		if (strcmp(x->name, y->name) != 0 || x->start != y->start || x->bytes != y->bytes ||
		    x->shape != y->shape || x->global != y->global || !same_groups(x, y))
			return false;
	}
	return true;
}
