/* Random derived datatypes, and where their bytes are. */
#ifndef SHEAF_LIB_TYPES_H
#define SHEAF_LIB_TYPES_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

/* A number below n; 0 if n is 0. */
uint32_t rng_below(struct rng *r, uint64_t n);
bool rng_one_in(struct rng *r, uint32_t n);

/* A datatype and its type map: byte i of its packed form is at displacement at[i]. */
struct map {
	MPI_Datatype type;
	MPI_Aint extent;
	int size; /* bytes of data */
	int *at;
	bool is_difficult; /* more than one constructor, out of order, or with empty parts */
};

#define MAP_SIZE 3000 /* limits of random types, in bytes */
#define MAP_EXTENT 12000 /* from the first to the last byte */

/* Takes over the committed type. False if the type is empty or beyond the limits; then it is
 * freed. */
bool map_of(MPI_Datatype type, struct map *m);
void map_free(struct map *m);
/* The displacement of byte i of a sequence of copies of the type. */
int64_t map_at(const struct map *m, int64_t i);
/* The first and the last displacement of `copies` copies, or 0. */
void map_span(const struct map *m, int copies, int64_t *first, int64_t *last);
/* A tile of a file view: nonnegative, in order, copies do not overlap. */
bool map_tiles(const struct map *m);
/* Do all bytes of `copies` copies have places of their own? */
bool map_is_injective(const struct map *m, int copies);

/* A type with the same map, from blocks of bytes. */
MPI_Datatype map_plain_tile(const struct map *m);

/* A random filetype of etypes that tiles a file. */
void map_random_tile(struct rng *r, MPI_Datatype etype, struct map *m);
/* A random datatype of memory: any order, negative displacements; overlaps only if
 * `may_overlap`. */
void map_random_memory(struct rng *r, MPI_Datatype of, bool may_overlap, struct map *m);

#endif
