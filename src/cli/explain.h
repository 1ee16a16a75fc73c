/* What the files of `sheaf explain` share: an access, what it costs, a picture of it. Private to src/cli. */
#ifndef SHEAF_EXPLAIN_H
#define SHEAF_EXPLAIN_H

#include "cli/cli.h"
#include "sheaf_admin.h"

/* ---------------------------------------------------------------- explain_access.c */

/* One side of an access: a list, or copies of a type. */
struct explain_side {
	struct sheaf_extent *list;
	size_t n;
	struct sheaf_type *type; /* or NULL: the list */
	uint64_t offset, count; /* of the type */
};

struct explain_access {
	struct sheaf_access a; /* its memory begins at MEMORY until explain_place() */
	struct explain_side file, mem;
	struct iovec *iov;
	uintptr_t placed; /* where the lowest byte of the memory is */
	uint64_t bytes, span; /* of data; from the lowest to behind the highest byte of memory */
	uint32_t unit, width; /* 0: the default */
	uint64_t cut; /* pieces that the program's list had, where not all were recorded */
	uint64_t took_ns; /* in the program; 0: not recorded */
	size_t nth, of; /* which of the transfers in the file */
	char err[256];
};

/* COUNT,BLOCK,STRIDE; mem_stride 0: the memory is one piece. These two: 0, or -errno and x->err says it all. */
int explain_vector(struct explain_access *x, const char *text, uint64_t offset,
		   uint64_t mem_stride);
/* The access in a file of JSON: one object, or one a line, of which the nth (0: the last) is meant. */
int explain_read(struct explain_access *x, const char *path, uint64_t nth);
/* Its memory is where `mem` is, span bytes; and nothing else of it moves. */
void explain_place(struct explain_access *x, void *mem);
void explain_free(struct explain_access *x);

/* ---------------------------------------------------------------- explain_measure.c */

/* What a mover does at one server, or at all of them. */
struct explain_cost {
	double predicted_ns;
	struct sheaf_account did; /* while it was measured; busy_ns is how long it took */
};

struct explain_way {
	struct sheaf_plan plan;
	struct explain_cost all, at[SHEAF_MAX_TARGETS];
};

struct explain {
	struct cli *c;
	struct explain_access x;
	struct sheaf_stripes where;
	struct sheaf_file *f; /* where it is measured, or NULL: it is only planned */
	unsigned rounds; /* that were measured */
	struct explain_way way[SHEAF_MOVERS];
};

/* A file of its own that has no name any more, and its stripes; CLI_OK or said. */
int explain_scratch(struct explain *e);
/* What is expected: ways with their plans become predictions. */
void explain_predict(struct explain *e);
int explain_measure(struct explain *e);

/* ---------------------------------------------------------------- explain_picture.c */

/* Rows of cells, a row for each object; what is touched of each cell, from 0 to 1. */
struct explain_picture {
	uint32_t rows, cols, unit;
	uint64_t from, cell; /* offset of the first cell in the objects; bytes of a cell */
	uint32_t per_stripe; /* cells of a stripe; 0: a cell is more than one */
	double *touched; /* bytes */
};

/* For offsets [begin, end) of a file, with at most so many columns and lines between them; 0 or -ENOMEM. */
int picture_init(struct explain_picture *p, const struct sheaf_stripes *where, uint64_t begin,
		 uint64_t end, uint32_t cols);
void picture_free(struct explain_picture *p);
void picture_touch(struct explain_picture *p, uint32_t row, uint64_t offset, uint64_t length);
double picture_cell(const struct explain_picture *p, uint32_t row, uint32_t col);
uint32_t picture_columns(void); /* that a terminal has for it */
void picture_print(const struct explain_picture *p, const char *const *names);
int picture_svg(const struct explain_picture *p, const char *const *names, const char *title,
		const char *path); /* -errno */

#endif
