/* Two-phase collective accesses: some processes, the aggregators, access a contiguous part of the
 * file each, and all processes exchange data with them.
 *
 * Each round handles one window of every aggregator: the processes send the list of their pieces
 * there, and the data with it (a write) or back (a read). An aggregator accesses the pieces of all
 * in one list.
 *
 * Threads: the caller's. Buffers: data of one round: at most a window for each aggregator, and a
 * window for each process at an aggregator. Errors: the first one of any process, in all. */
#include <limits.h>
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

#define AGGREGATORS 8
#define ALIGN (64 * KIB)
#define SPARSE 64 /* bytes of the range for each byte of data */

/* What one process and one aggregator exchange in a round. */
struct part {
	uint64_t n, bytes;
};

struct two {
	struct maccess *a;
	MPI_Comm comm;
	int n_ranks, rank, n_agg;
	uint64_t lo, hi, domain, window;
	uint64_t n_rounds;
	struct mwalk *walks; /* one for each aggregator */
	struct part *mine, *theirs; /* with each aggregator; as an aggregator, with each process */
	/* this process's pieces of the round, by aggregator */
	struct sheaf_extent *ext;
	struct iovec *mem;
	size_t n_ext, room;
	char *data; /* packed */
	size_t data_room;
	/* as an aggregator: all pieces and data of the round */
	struct sheaf_extent *all_ext;
	char *all_data;
	size_t all_ext_room, all_data_room;
	int *counts; /* 4 arrays of n_ranks */
	uint64_t eof; /* lowest offset that a read did not reach */
	int error;
};

static int grow(void *p, size_t *room, size_t need, size_t size)
{
	void **at = p, *more;

	if (need <= *room)
		return 0;
	more = realloc(*at, MAX(need, 2 * *room) * size);
	if (!more)
		return -ENOMEM;
	*at = more;
	*room = MAX(need, 2 * *room);
	return 0;
}

/* ---- the plan ---- */

static int find_range(struct two *t)
{
	const struct maccess *a = t->a;
	struct sheaf_extent first, last;
	int64_t mine[2] = { INT64_MAX, 0 },
		least[2]; /* lo, -hi; MPI_MAX of unsigned is signed in MPICH */

	if (a->bytes && sheaf_type_pieces(a->file->t, a->disp, a->skip, 1, &first, 1) == 1 &&
	    sheaf_type_pieces(a->file->t, a->disp, a->skip + a->bytes - 1, 1, &last, 1) == 1) {
		mine[0] = (int64_t)first.offset;
		mine[1] = -(int64_t)(last.offset + 1);
	}
	if (PMPI_Allreduce(mine, least, 2, MPI_INT64_T, MPI_MIN, t->comm))
		return -EIO;
	t->lo = (uint64_t)least[0];
	t->hi = (uint64_t)-least[1];
	return 0;
}

static void make_domains(struct two *t)
{
	const struct mhints *h = &t->a->f->hints;

	t->n_agg = h->cb_nodes ? h->cb_nodes : MIN(t->n_ranks, AGGREGATORS);
	t->window = MIN(h->cb_buffer_size,
			INT_MAX / (uint64_t)t->n_ranks / 2 / sizeof(struct sheaf_extent));
	t->domain = (t->hi - t->lo + (uint64_t)t->n_agg - 1) / (uint64_t)t->n_agg;
	t->domain = (t->domain + ALIGN - 1) / ALIGN * ALIGN;
	t->n_rounds = (t->domain + t->window - 1) / t->window;
}

/* Most of the range has no data of this access: rounds would find nothing to exchange. */
static bool is_sparse(struct two *t)
{
	int64_t mine = (int64_t)t->a->bytes, all = 0;

	if (PMPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, t->comm))
		return true;
	return t->n_rounds > 4 && (t->hi - t->lo) / SPARSE > (uint64_t)all;
}

/* Each walk begins at the first byte of the access in the aggregator's domain. */
static int begin_walks(struct two *t)
{
	const struct maccess *a = t->a;
	int r = 0;

	t->walks = calloc((size_t)t->n_agg, sizeof(*t->walks));
	if (!t->walks)
		return -ENOMEM;
	for (int k = 0; !r && a->bytes && k < t->n_agg; k++) {
		uint64_t from = t->lo + (uint64_t)k * t->domain;
		int64_t before = sheaf_type_before(a->file->t, a->disp, from);

		if (before < 0)
			r = (int)before;
		else
			mwalk_begin(&t->walks[k], a);
		if (!r && (uint64_t)before > a->skip)
			mwalk_seek(&t->walks[k], MIN((uint64_t)before - a->skip, a->bytes));
	}
	return r;
}

static int make_plan(struct two *t)
{
	size_t n = (size_t)t->n_ranks;

	t->mine = calloc(n, sizeof(*t->mine));
	t->theirs = calloc(n, sizeof(*t->theirs));
	t->counts = calloc(4 * n, sizeof(*t->counts));
	if (!t->mine || !t->theirs || !t->counts)
		return -ENOMEM;
	return begin_walks(t);
}

/* ---- a round: what this process has for each aggregator ---- */

static int list_pieces(struct two *t, uint64_t round, size_t *bytes)
{
	int r = 0;

	t->n_ext = 0;
	*bytes = 0;
	for (int k = 0; !r && k < t->n_agg; k++) {
		uint64_t from = t->lo + (uint64_t)k * t->domain + round * t->window;
		uint64_t end = t->lo + (uint64_t)(k + 1) * t->domain;
		struct mpiece p;

		t->mine[k] = (struct part){ 0 };
		if (!t->a->bytes)
			continue;
		t->walks[k].limit = MIN(from + t->window, end);
		while (!r && mwalk_next(&t->walks[k], UINT64_MAX, &p)) {
			size_t room = t->room;

			r = grow(&t->ext, &room, t->n_ext + 1, sizeof(*t->ext));
			if (!r)
				r = grow(&t->mem, &t->room, t->n_ext + 1, sizeof(*t->mem));
			if (r)
				break;
			t->ext[t->n_ext] = (struct sheaf_extent){ p.offset, p.length };
			t->mem[t->n_ext++] = (struct iovec){ p.mem, p.length };
			t->mine[k].n++;
			t->mine[k].bytes += p.length;
			*bytes += p.length;
		}
		r = r ? r : t->walks[k].error;
	}
	return r ? r : grow(&t->data, &t->data_room, *bytes, 1);
}

static void pack(struct two *t)
{
	char *at = t->data;

	for (size_t i = 0; i < t->n_ext; at += t->mem[i++].iov_len)
		memcpy(at, t->mem[i].iov_base, t->mem[i].iov_len);
}

static void unpack(struct two *t)
{
	const char *at = t->data;

	for (size_t i = 0; i < t->n_ext; at += t->mem[i++].iov_len)
		memcpy(t->mem[i].iov_base, at, t->mem[i].iov_len);
}

/* Exchanges `size` bytes for each unit of n (pieces) or of bytes (data). to_agg: towards the
 * aggregators. */
static int exchange(struct two *t, bool pieces, bool to_agg, void *mine, void *all)
{
	int *sc = t->counts, *sd = sc + t->n_ranks, *rc = sd + t->n_ranks, *rd = rc + t->n_ranks;
	size_t unit = pieces ? sizeof(struct sheaf_extent) : 1;
	int s = 0, r = 0;

	for (int i = 0; i < t->n_ranks; i++) {
		sc[i] = (int)((pieces ? t->mine[i].n : t->mine[i].bytes) * unit);
		rc[i] = (int)((pieces ? t->theirs[i].n : t->theirs[i].bytes) * unit);
		sd[i] = s;
		rd[i] = r;
		s += sc[i];
		r += rc[i];
	}
	if (to_agg)
		t->a->f->stats.exchanged += (uint64_t)(s - sc[t->rank]);
	else
		t->a->f->stats.exchanged += (uint64_t)(r - rc[t->rank]);
	if (to_agg)
		return PMPI_Alltoallv(mine, sc, sd, MPI_BYTE, all, rc, rd, MPI_BYTE, t->comm) ?
			       -EIO :
			       0;
	return PMPI_Alltoallv(all, rc, rd, MPI_BYTE, mine, sc, sd, MPI_BYTE, t->comm) ? -EIO : 0;
}

/* ---- a round: the aggregator ---- */

struct entry {
	struct sheaf_extent e;
	char *mem;
};

static int by_offset(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->e.offset < y->e.offset ? -1 : x->e.offset > y->e.offset;
}

/* The pieces of all processes in the order of the file; each has its place in all_data. */
static struct entry *sorted(struct two *t, size_t n)
{
	struct entry *out = calloc(n, sizeof(*out));
	char *at = t->all_data;

	for (size_t i = 0; out && i < n; at += t->all_ext[i++].length)
		out[i] = (struct entry){ t->all_ext[i], at };
	if (out)
		qsort(out, n, sizeof(*out), by_offset);
	return out;
}

/* A read stopped after `got` bytes of the sorted list: there is the end of the file. Later pieces
 * may begin before it, where processes read the same bytes. */
static void note_end(struct two *t, const struct entry *list, size_t n, uint64_t got)
{
	size_t i = 0;
	uint64_t end;

	while (i < n && got >= list[i].e.length)
		got -= list[i++].e.length;
	if (i == n)
		return;
	end = list[i].e.offset + got;
	t->eof = MIN(t->eof, end);
	for (; i < n; i++) {
		const struct sheaf_extent *e = &list[i].e;
		uint64_t before = end > e->offset ? MIN(end - e->offset, e->length) : 0;

		memset(list[i].mem + before, 0, e->length - before);
	}
}

static int access_list(struct two *t, size_t n, uint64_t bytes)
{
	struct entry *list = sorted(t, n);
	struct iovec *mem = calloc(n, sizeof(*mem));
	struct sheaf_extent *ext = calloc(n, sizeof(*ext));
	struct sheaf_file *f = t->a->f->f;
	ssize_t r = list && mem && ext ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < n; i++) {
		mem[i] = (struct iovec){ list[i].mem, list[i].e.length };
		ext[i] = list[i].e;
	}
	if (!r)
		r = t->a->write ? sheaf_write_list(f, mem, n, ext, n) :
				  sheaf_read_list(f, mem, n, ext, n);
	if (r >= 0 && !t->a->write && (uint64_t)r < bytes)
		note_end(t, list, n, (uint64_t)r);
	if (r >= 0)
		mstats_count(t->a, M_TWO_PHASE, 1, (uint64_t)r);
	free(list);
	free(mem);
	free(ext);
	return (int)MIN(r, 0);
}

/* ---- a round ---- */

static int round_of(struct two *t, uint64_t round)
{
	size_t mine, n = 0, bytes = 0;
	int r = t->error ? t->error : list_pieces(t, round, &mine);

	if (r) { /* takes part without data */
		memset(t->mine, 0, (size_t)t->n_ranks * sizeof(*t->mine));
		t->n_ext = 0;
	}
	if (PMPI_Alltoall(t->mine, sizeof(struct part), MPI_BYTE, t->theirs, sizeof(struct part),
			  MPI_BYTE, t->comm))
		return -EIO;
	for (int i = 0; i < t->n_ranks; i++) {
		n += t->theirs[i].n;
		bytes += t->theirs[i].bytes;
	}
	if (grow(&t->all_ext, &t->all_ext_room, n, sizeof(*t->all_ext)) ||
	    grow(&t->all_data, &t->all_data_room, bytes, 1))
		r = r ? r : -ENOMEM;
	r = -merror_all(t->comm, -r);
	if (r)
		return r;
	if (t->a->write)
		pack(t);
	r = exchange(t, true, true, t->ext, t->all_ext);
	if (!r && t->a->write)
		r = exchange(t, false, true, t->data, t->all_data);
	if (!r && n)
		t->error = access_list(t, n, bytes);
	if (!r && !t->a->write) {
		r = exchange(t, false, false, t->data, t->all_data);
		unpack(t);
	}
	return r;
}

static void destroy(struct two *t)
{
	free(t->walks);
	free(t->mine);
	free(t->theirs);
	free(t->counts);
	free(t->ext);
	free(t->mem);
	free(t->data);
	free(t->all_ext);
	free(t->all_data);
}

/* The error of any process, and how far reads came. */
static ssize_t result(struct two *t, int r)
{
	const struct maccess *a = t->a;
	int64_t mine[2] = { t->error ? t->error : r, (int64_t)t->eof }, least[2], before;

	if (PMPI_Allreduce(mine, least, 2, MPI_INT64_T, MPI_MIN, t->comm))
		return -EIO;
	if (least[0])
		return (ssize_t)least[0];
	if (!a->bytes || least[1] == INT64_MAX || a->write) /* no read came to the end */
		return (ssize_t)a->bytes;
	before = sheaf_type_before(a->file->t, a->disp, (uint64_t)least[1]);
	before = before > (int64_t)a->skip ? before - (int64_t)a->skip : 0;
	return MIN(before, (int64_t)a->bytes);
}

ssize_t mtwophase(struct maccess *a)
{
	struct two t = { .a = a,
			 .comm = a->f->comm,
			 .n_ranks = a->f->n_ranks,
			 .rank = a->f->rank,
			 .eof = INT64_MAX };
	int r = find_range(&t);
	ssize_t moved;

	if (r || t.lo >= t.hi)
		return r;
	make_domains(&t);
	if (is_sparse(&t)) {
		a->method = M_TYPED;
		moved = maccess_move(a);
		r = -merror_all(t.comm, -(int)MIN(moved, 0));
		return r ? r : moved;
	}
	t.error = make_plan(&t);
	r = -merror_all(t.comm, -t.error);
	for (uint64_t i = 0; !r && i < t.n_rounds; i++)
		r = round_of(&t, i);
	moved = result(&t, r);
	destroy(&t);
	return moved;
}
