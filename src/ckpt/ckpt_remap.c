/* Restores global arrays that were divided among the processes in another way: each process finds
 * out which bytes of which images are its parts, and reads those as lists.
 *
 * The checksums are of the images as they were written, so all images are first read once by all
 * processes together and compared with them.
 *
 * Threads: that of the call. Errors: -EINVAL: a byte of an array is in no image; -EUCLEAN. */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/uio.h>

#include "ckpt/ckpt_impl.h"

/* Bytes of a global array that an image has. */
struct source {
	uint64_t global, len, stream;
	uint32_t rank;
};
/* Bytes that move: from the stream of process `rank` of then into ours. */
struct move {
	uint64_t from, to, len;
	uint32_t rank;
};
struct ckpt_remap {
	struct move *v;
	size_t n, cap;
};
struct sources {
	struct source *v;
	size_t n, cap;
	uint32_t rank;
};
struct finding {
	const struct sources *s;
	struct ckpt_remap *p;
	const char *name;
};

static void *grown(void *v, size_t n, size_t *cap, size_t each)
{
	if (n < *cap)
		return v;
	*cap = *cap ? 2 * *cap : 64;
	return realloc(v, *cap * each);
}

static int add_source(void *arg, uint64_t global, uint64_t stream, uint64_t len)
{
	struct sources *s = arg;
	struct source *v = grown(s->v, s->n, &s->cap, sizeof(*v));

	if (!v)
		return -ENOMEM;
	s->v = v;
	s->v[s->n++] = (struct source){ global, len, stream, s->rank };
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct source *x = a, *y = b;

	if (x->global != y->global)
		return x->global < y->global ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Each byte from one image: cuts what others have, too. */
static void sort_sources(struct sources *s)
{
	uint64_t end = 0;
	size_t n = 0;

	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), by_place);
	for (size_t i = 0; i < s->n; i++) {
		struct source v = s->v[i];
		uint64_t cut = v.global < end ? end - v.global : 0;

		if (cut >= v.len)
			continue;
		v.global += cut;
		v.stream += cut;
		v.len -= cut;
		end = v.global + v.len;
		s->v[n++] = v;
	}
	s->n = n;
}

static int add_move(struct ckpt_remap *p, uint32_t rank, uint64_t from, uint64_t to, uint64_t len)
{
	struct move *v = grown(p->v, p->n, &p->cap, sizeof(*v));

	if (!v)
		return ckpt_fail(-ENOMEM, "out of memory");
	p->v = v;
	p->v[p->n++] = (struct move){ from, to, len, rank };
	return 0;
}

/* The source that has this byte of the array; s->n if there is none. */
static size_t source_at(const struct sources *s, uint64_t global)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (s->v[mid].global + s->v[mid].len <= global)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->n && s->v[low].global <= global ? low : s->n;
}

static int find_run(void *arg, uint64_t global, uint64_t stream, uint64_t len)
{
	struct finding *f = arg;
	int r = 0;

	for (uint64_t done = 0; !r && done < len;) {
		size_t i = source_at(f->s, global + done);
		const struct source *v = &f->s->v[i];
		uint64_t in, part;

		if (i == f->s->n)
			return ckpt_fail(-EINVAL,
					 "piece '%s': byte %" PRIu64
					 " of the global array is in no "
					 "image of the checkpoint",
					 f->name, global + done);
		in = global + done - v->global;
		part = MIN(v->len - in, len - done);
		r = add_move(f->p, v->rank, v->stream + in, stream + done, part);
		done += part;
	}
	return r;
}

static const struct ckpt_piece *same_name(const struct ckpt_table *t, const char *name)
{
	for (size_t i = 0; i < t->pieces.n; i++)
		if (strcmp(t->pieces.v[i].name, name) == 0)
			return &t->pieces.v[i];
	return NULL;
}

/* Where a global piece comes from. */
static int plan_global(const struct ckpt_piece *mine, const struct ckpt_table *tables, uint32_t n,
		       struct ckpt_remap *p)
{
	struct sources s = { .n = 0 };
	struct finding f = { .s = &s, .p = p, .name = mine->name };
	int r = 0;

	for (uint32_t i = 0; !r && i < n; i++) {
		const struct ckpt_piece *old = same_name(&tables[i], mine->name);

		s.rank = i;
		if (old && old->global == mine->global)
			r = ckpt_piece_runs(old, add_source, &s);
	}
	if (r)
		ckpt_fail(r, "out of memory");
	sort_sources(&s);
	if (!r)
		r = ckpt_piece_runs(mine, find_run, &f);
	free(s.v);
	return r;
}

static int by_source(const void *a, const void *b)
{
	const struct move *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->from < y->from ? -1 : x->from > y->from;
}

static int plan_all(struct sheaf_ckpt *c, const struct ckpt_table *tables, uint32_t n,
		    struct ckpt_remap *p)
{
	uint32_t rank = (uint32_t)c->x.comm.rank;
	int r = 0;

	for (size_t i = 0; !r && i < c->pieces.n; i++) {
		const struct ckpt_piece *mine = &c->pieces.v[i];

		if (mine->global)
			r = plan_global(mine, tables, n, p);
		else if (mine->bytes)
			r = add_move(p, rank, same_name(&tables[rank], mine->name)->start,
				     mine->start, mine->bytes);
	}
	if (p->n)
		qsort(p->v, p->n, sizeof(*p->v), by_source);
	return r;
}

int ckpt_remap_plan(struct sheaf_ckpt *c, const struct ckpt_chain *chain, struct ckpt_remap **out)
{
	const struct ckpt_manifest *m = &chain->m[chain->n - 1];
	struct ckpt_table *tables = calloc(m->n, sizeof(*tables));
	int r = 0;

	*out = calloc(1, sizeof(**out));
	if (!*out || !tables)
		r = ckpt_fail(-ENOMEM, "out of memory");
	for (uint32_t i = 0; !r && i < m->n; i++) {
		r = ckpt_store_table(&c->store, m, i, &tables[i]);
		if (!r)
			r = ckpt_match(&c->pieces, &tables[i], m->n == (uint32_t)c->x.comm.n);
		r = r < 0 ? r : 0;
	}
	if (!r)
		r = plan_all(c, tables, m->n, *out);
	for (uint32_t i = 0; tables && i < m->n; i++)
		ckpt_table_free(&tables[i]);
	free(tables);
	return r;
}

void ckpt_remap_free(struct ckpt_remap *p)
{
	if (p)
		free(p->v);
	free(p);
}

/* ---- reading ---- */

struct batch {
	struct sheaf_file *f;
	struct iovec iov[CKPT_IOV];
	struct sheaf_extent ext[CKPT_IOV];
	size_t n_iov, n_ext;
	uint64_t bytes;
};

static int flush(struct batch *b)
{
	ssize_t got = b->n_ext ? sheaf_read_list(b->f, b->iov, b->n_iov, b->ext, b->n_ext) : 0;
	uint64_t want = b->bytes;

	b->n_iov = b->n_ext = 0;
	b->bytes = 0;
	if (got < 0)
		return ckpt_fail((int)got, "reading an image: %s", sheaf_strerror((int)got));
	return (uint64_t)got < want ? ckpt_fail(-EUCLEAN, "an image is cut off") : 0;
}

/* Reads `len` bytes at `off` of the file into our stream at `to`. */
static int add_read(struct sheaf_ckpt *c, struct batch *b, uint64_t off, uint64_t to, uint64_t len)
{
	int r = 0;

	while (!r && len) {
		ssize_t got = 0;

		if (b->n_ext < CKPT_IOV && b->bytes < CKPT_CHUNK)
			got = ckpt_stream_memory(&c->pieces, to, MIN(len, CKPT_CHUNK), b->iov,
						 CKPT_IOV, &b->n_iov);
		if (got < 0)
			return ckpt_fail((int)got, "registered memory: %s",
					 sheaf_strerror((int)got));
		if (got) {
			b->ext[b->n_ext++] = (struct sheaf_extent){ off, (uint64_t)got };
			b->bytes += (uint64_t)got;
			off += (uint64_t)got;
			to += (uint64_t)got;
			len -= (uint64_t)got;
		}
		if (len)
			r = flush(b);
	}
	return r;
}

/* The parts of these moves that are in one image; both are in the order of the stream. */
static int read_image(struct sheaf_ckpt *c, const struct ckpt_table *t, uint64_t base,
		      const struct move *v, size_t n, struct batch *b)
{
	int r = 0;

	for (size_t i = 0, k = 0; !r && i < n && k < t->n_runs;) {
		uint64_t begin = MAX(v[i].from, t->runs[k].at);
		uint64_t run_end = t->runs[k].at + t->runs[k].len, end = v[i].from + v[i].len;

		if (begin < MIN(run_end, end))
			r = add_read(c, b, base + begin - t->runs[k].at,
				     v[i].to + begin - v[i].from, MIN(run_end, end) - begin);
		if (end <= run_end) {
			i++;
		} else {
			base += t->runs[k].len;
			k++;
		}
	}
	return r ? r : flush(b);
}

static int read_from(struct sheaf_ckpt *c, const struct ckpt_manifest *m, uint32_t rank,
		     const struct move *v, size_t n, struct batch *b)
{
	char path[CKPT_PATH];
	struct ckpt_table t;
	int r = ckpt_store_table(&c->store, m, rank, &t);

	if (r)
		return r;
	ckpt_image_path(&c->store, m->number, m->one_file, rank, path);
	r = sheaf_open(c->fs, path, O_RDONLY, 0, NULL, &b->f);
	if (r) {
		ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	} else {
		r = read_image(c, &t, m->images[rank].base, v, n, b);
		sheaf_close(b->f);
	}
	ckpt_table_free(&t);
	return r;
}

/* This process's share of all images. */
static int verify_share(struct sheaf_ckpt *c, const struct ckpt_chain *chain)
{
	int r = 0;

	for (size_t k = 0; !r && k < chain->n; k++)
		for (uint32_t i = (uint32_t)c->x.comm.rank; !r && i < chain->m[k].n;
		     i += (uint32_t)c->x.comm.n)
			r = ckpt_verify_image(&c->store, &chain->m[k], i);
	return r;
}

int ckpt_remap_read(struct sheaf_ckpt *c, const struct ckpt_chain *chain, struct ckpt_remap *p)
{
	struct batch *b = calloc(1, sizeof(*b));
	int r = b ? verify_share(c, chain) : ckpt_fail(-ENOMEM, "out of memory");

	for (size_t i = 0; !r && i < p->n;) {
		size_t end = i;

		while (end < p->n && p->v[end].rank == p->v[i].rank)
			end++;
		for (size_t k = 0; !r && k < chain->n; k++)
			r = read_from(c, &chain->m[k], p->v[i].rank, p->v + i, end - i, b);
		i = end;
	}
	free(b);
	return r;
}
