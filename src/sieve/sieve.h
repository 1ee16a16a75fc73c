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

#define SIEVE_SIZES 6
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

/* The time of one access. Linear between the sizes of the table, and beyond them. */
double sieve_time(const struct sieve_times *t, uint64_t size);

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

/* Plans n > 0 pieces in ascending order, without overlaps. Returns the number of parts, which
 * `parts` has room for: n, at most SIEVE_PIECES. *ns: the predicted time of all. */
#define SIEVE_PIECES 2048
uint32_t sieve_plan(const struct sieve_want *w, const struct extent *pieces, uint32_t n,
		    struct sieve_part *parts, double *ns);

#endif
