/* Shared by the files of `sheaf explain`: an access, its cost, a picture. */
#ifndef SHEAF_EXPLAIN_IMPL_H
#define SHEAF_EXPLAIN_IMPL_H

#include "cli/cli.h"
#include "sheaf_admin.h"

/* ---------------------------------------------------------------- explain_access.c */

/* One side of an access: a list of extents, or repetitions of a type. */
struct explain_side {
	struct sheaf_extent *list;
	size_t n;
	struct sheaf_type *type; /* NULL: the list is used */
	uint64_t offset, count; /* start and number of repetitions of the type */
};

struct explain_access {
	struct sheaf_access a; /* its memory starts at address MEMORY until explain_place() */
	struct explain_side file, mem;
	struct iovec *iov;
	uintptr_t placed; /* address of the lowest byte of the memory */
	/* bytes of data; from the lowest to the end of the highest byte in memory */
	uint64_t bytes, span;
	uint32_t unit, width; /* 0: the default */
	uint64_t cut; /* pieces in the program's list if not all were recorded, else 0 */
	uint64_t took_ns; /* duration in the program; 0: not recorded */
	size_t nth, of; /* which of how many transfers in the file */
	char err[256];
};

/* Parses COUNT,BLOCK,STRIDE; mem_stride 0: contiguous memory. Both: 0, or -errno and x->err. */
int explain_vector(struct explain_access *x, const char *text, uint64_t offset,
		   uint64_t mem_stride);
/* Reads the nth (0: the last) access of a JSON file: one object, or one object per line. */
int explain_read(struct explain_access *x, const char *path, uint64_t nth);
/* Moves the memory of the access to `mem`, which has `span` bytes; nothing else changes. */
void explain_place(struct explain_access *x, void *mem);
void explain_free(struct explain_access *x);

/* ---------------------------------------------------------------- explain_measure.c */

#define EXPLAIN_NAME 32 /* bytes of the name of a strategy */

/* The cost of a mover at one server, or at all servers. */
struct explain_cost {
	double predicted_ns;
	char strategy[EXPLAIN_NAME]; /* of most windows at the server; "": not known */
	struct sheaf_account did; /* counters of the measurement; busy_ns is its duration */
};

struct explain_way {
	struct sheaf_plan plan;
	struct explain_cost all, at[SHEAF_MAX_TARGETS];
};

struct explain {
	struct cli *c;
	struct explain_access x;
	struct sheaf_stripes where;
	struct sheaf_file *f; /* the file to measure in; NULL: plan only */
	unsigned rounds; /* number of rounds measured */
	struct explain_way way[SHEAF_MOVERS];
};

/* Creates an unlinked file to measure in, and its stripes; CLI_OK, or a status after a message. */
int explain_scratch(struct explain *e);
/* Fills in predicted_ns from the plan of each mover. */
void explain_predict(struct explain *e);
int explain_measure(struct explain *e);
int explain_transfer(struct explain *e, bool write); /* executes the access: 0 or -errno */

/* ---------------------------------------------------------------- explain_strategy.c */

/* Executes the access once with each mover and fills in the strategies that the servers count:
 * 0, or -errno of the access. */
int explain_strategies(struct explain *e);

/* ---------------------------------------------------------------- explain_picture.c */

/* A grid with one row per object; each cell has the touched part of its bytes, from 0 to 1. */
struct explain_picture {
	uint32_t rows, cols, unit;
	uint64_t from, cell; /* offset of the first cell in the objects; bytes per cell */
	uint32_t per_stripe; /* cells per stripe; 0: a cell covers several stripes */
	double *touched; /* touched bytes per cell */
};

/* For file offsets [begin, end), in at most `cols` columns with separators; 0 or -ENOMEM. */
int picture_init(struct explain_picture *p, const struct sheaf_stripes *where, uint64_t begin,
		 uint64_t end, uint32_t cols);
void picture_free(struct explain_picture *p);
void picture_touch(struct explain_picture *p, uint32_t row, uint64_t offset, uint64_t length);
double picture_cell(const struct explain_picture *p, uint32_t row, uint32_t col);
uint32_t picture_columns(void); /* columns that fit the terminal */
void picture_print(const struct explain_picture *p, const char *const *names);
int picture_svg(const struct explain_picture *p, const char *const *names, const char *title,
		const char *path); /* 0 or -errno */

#endif
