/* Both sides of an access piece by piece, for the methods that know no types.
 *
 * Threads: the caller's. Buffers: a batch of pieces of either side. Errors: -errno. */
#include "mpiio/mpi_impl.h"

void mwalk_begin(struct mwalk *w, const struct maccess *a)
{
	uint64_t count;
	void *base;

	memset(w, 0, sizeof(*w));
	w->bytes = a->bytes;
	w->skip = a->skip;
	w->limit = UINT64_MAX;
	w->mem.t = maccess_memory(a, &base, &count);
	w->mem.base = (uint64_t)(uintptr_t)base;
	w->file.t = a->file->t;
	w->file.base = a->disp;
}

void mwalk_seek(struct mwalk *w, uint64_t pos)
{
	w->pos = w->mem.listed = w->file.listed = pos;
}

/* Lists the next pieces of a side, whose data begin `skip` bytes into its type. */
static bool list_more(struct mside *s, uint64_t skip, uint64_t bytes)
{
	ssize_t n = sheaf_type_pieces(s->t, s->base, skip + s->listed, bytes - s->listed, s->e,
				      MPIECES);

	if (n <= 0)
		return false;
	s->n = (size_t)n;
	s->i = 0;
	for (size_t i = 0; i < s->n; i++)
		s->listed += s->e[i].length;
	return true;
}

static void take(struct mside *s, uint64_t n)
{
	s->e[s->i].offset += n;
	s->e[s->i].length -= n;
	s->i += !s->e[s->i].length;
}

bool mwalk_next(struct mwalk *w, uint64_t most, struct mpiece *out)
{
	struct mside *m = &w->mem, *f = &w->file;
	uint64_t n;

	if (w->pos == w->bytes)
		return false;
	if ((m->i == m->n && !list_more(m, 0, w->bytes)) ||
	    (f->i == f->n && !list_more(f, w->skip, w->bytes))) {
		w->error = -EINVAL;
		return false;
	}
	if (f->e[f->i].offset >= w->limit)
		return false;
	n = MIN(MIN(m->e[m->i].length, f->e[f->i].length), w->limit - f->e[f->i].offset);
	n = MIN(n, most);
	*out = (struct mpiece){ (char *)(uintptr_t)m->e[m->i].offset, f->e[f->i].offset, n };
	take(m, n);
	take(f, n);
	w->pos += n;
	return true;
}
