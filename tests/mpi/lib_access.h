/* One access to an MPI file, done with the same arguments on two files: ours and the reference. */
#ifndef SHEAF_LIB_ACCESS_H
#define SHEAF_LIB_ACCESS_H

#include "lib_types.h"

/* clang-format off */
enum kind {
	READ_AT, IREAD_AT, READ_AT_ALL, IREAD_AT_ALL, READ_AT_ALL_SPLIT,
	READ, IREAD, READ_ALL, IREAD_ALL, READ_ALL_SPLIT,
	READ_SHARED, IREAD_SHARED, READ_ORDERED, READ_ORDERED_SPLIT,
	WRITE_AT, IWRITE_AT, WRITE_AT_ALL, IWRITE_AT_ALL, WRITE_AT_ALL_SPLIT,
	WRITE, IWRITE, WRITE_ALL, IWRITE_ALL, WRITE_ALL_SPLIT,
	WRITE_SHARED, IWRITE_SHARED, WRITE_ORDERED, WRITE_ORDERED_SPLIT,
	KINDS
};
/* clang-format on */

enum where { AT, OWN, SHARED }; /* explicit offset, the process's file pointer, the shared one */
enum when { NOW, LATER, IN_SPLIT }; /* blocking, nonblocking, begin and end */

struct kind_info {
	const char *name;
	enum where where;
	bool all; /* collective */
	enum when when;
	bool is_write;
};
extern const struct kind_info kind_info[KINDS];

enum { OURS, REFERENCE, SIDES };

/* Memory of an access on one side, and what the calls returned. The calls get `count` copies of
 * `type` at `start`: the memory, or with `is_packed` a contiguous copy of its data. */
struct side {
	char *memory;
	void *start;
	MPI_Datatype type;
	int count;
	bool is_packed;
	MPI_Request request;
	MPI_Status status;
	int result;
};

struct access {
	enum kind kind;
	bool large; /* by the call with large counts, if the MPI has it */
	MPI_Offset offset; /* AT: in etypes */
	int64_t first, length; /* bytes of the view's data */
	int count; /* copies of `map` in memory */
	struct map map;
	int64_t span, origin; /* bytes of memory, and where displacement 0 is in it */
	char *image; /* what memory has after the access */
	int swap; /* bytes of an element that is reversed in the file, or 1 */
	int64_t got; /* bytes it transfers: fewer than `length` at the end of file */
	struct side side[SIDES];
};

/* Allocates memory for a->count copies of a->map and fills it with random bytes. */
void access_memory(struct access *a, struct rng *r);
/* This side accesses contiguous memory of `element`s instead. access_unpack() moves what it has
 * read. */
void access_pack(struct access *a, int side, MPI_Datatype element);
void access_unpack(struct access *a, int side);
void access_free(struct access *a);
/* The byte of the image that has byte i of the access, as it is in the file. */
char *access_byte(struct access *a, int64_t i);
/* Starts the access; a blocking one is done then. */
void access_start(struct access *a, MPI_File f, int side);
/* Ends a split collective. */
void access_end(struct access *a, MPI_File f, int side);

#endif
