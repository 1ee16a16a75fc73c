/* sieve: how many small pieces of a file are accessed. Pieces that lie close together cost less in
 * one access to the range that covers them, although that moves bytes in vain; a sparse piece costs
 * less alone. The plan decides piece by piece, by a model of the costs (paper names in brackets):
 *
 *   separate read     N (O_r + O_seek) + sum S_i / B_r(S_i)                       [T_read]
 *   separate write    N (O_w + O_seek) + sum S_i / B_w(S_i)                       [T_write]
 *   covering read     O_r + O_seek + S_ds / B_r(S_ds), and the copy of the pieces [T_dsr]
 *   covering write    a covering read, and O_w + S_ds / B_w(S_ds)                 [T_dsw]
 *
 * An overhead and a bandwidth by size are one table here: the time of an access by its size. Locks
 * cost nothing: the server has the turn at the range anyway.
 *
 * Pure functions. Memory: the caller's. Times in ns. */
#ifndef SHEAF_SIEVE_H
#define SHEAF_SIEVE_H

#include "base/base.h"

#define SIEVE_SIZES 7
extern const uint32_t sieve_sizes[SIEVE_SIZES]; /* for which times are measured, ascending */

/* Times of accesses of these sizes. */
struct sieve_times {
	double ns[SIEVE_SIZES];
};

/* What accesses cost in one storage directory. */
struct sieve_costs {
	struct sieve_times read, write; /* of cached data */
	struct sieve_times cold; /* reads from the disk, each with its seek */
	double parallel; /* the number of cold reads that take as long as one, at the same time */
	double copy, piece; /* copying in memory: each byte, and each piece beside its bytes */
};

extern const struct sieve_costs sieve_defaults; /* until they are measured */

/* The costs as whole numbers, for files and messages: the times of reads, writes and cold reads by
 * size in ps, 1000 * parallel, and in ps the copy of 1 KiB and the work for one piece. */
#define SIEVE_VALUES (3 * SIEVE_SIZES + 3)
void sieve_costs_pack(const struct sieve_costs *c, uint64_t out[SIEVE_VALUES]);
/* False: such costs cannot have been measured. Times are above 0 and grow with the size. */
bool sieve_costs_unpack(const uint64_t in[SIEVE_VALUES], struct sieve_costs *out);
#define SIEVE_PARALLEL_MAX 32.0

/* The time of one access. Linear between the sizes of the table, and beyond them. */
double sieve_time(const struct sieve_times *t, uint64_t size);

/* How a server cuts what it is asked for into windows, each of which it plans for itself. */
#define SIEVE_WINDOW_BYTES (256 * KIB) /* of data */
#define SIEVE_READ_MOST (1 * MIB) /* covering ranges of a window, with its data */
#define SIEVE_WRITE_MOST (384 * KIB) /* so that they stay in the processor's cache */
#define SIEVE_WINDOW_NS 30000 /* cost of one more window, including its messages */

/* How pieces are to be accessed. */
struct sieve_want {
	const struct sieve_costs *costs;
	bool write;
	bool cached; /* the data are in memory */
	uint64_t most; /* a covering range is at most this long */
	uint64_t room; /* and all of them together */
};

/* Pieces [first, first + n): one covering access to [lo, hi), or an access to each. */
struct sieve_part {
	uint32_t first, n;
	uint64_t lo, hi;
	bool covers;
};

/* Would a covering write of two neighbours write a page that neither of them touches? It must not:
 * that would fill holes. */
bool sieve_skips_page(uint64_t end, uint64_t next);

/* The predicted time of a part: T_read, T_write, T_dsr or T_dsw. */
double sieve_part_time(const struct sieve_want *w, const struct extent *pieces,
		       const struct sieve_part *p);

/* What one covering access of `size` bytes saves for n equal pieces of `len` bytes together. */
double sieve_gain(const struct sieve_want *w, uint32_t n, uint64_t len, uint64_t size);

/* Plans n > 0 pieces in ascending order, without overlaps. Returns the number of parts, which
 * `parts` has room for: n, at most SIEVE_PIECES. *ns: the predicted time of all. */
#define SIEVE_PIECES 2048
uint32_t sieve_plan(const struct sieve_want *w, const struct extent *pieces, uint32_t n,
		    struct sieve_part *parts, double *ns);

#endif
