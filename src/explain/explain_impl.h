/* Shared by the files of `sheaf explain`: an access, its cost, a picture. */
#ifndef SHEAF_EXPLAIN_IMPL_H
#define SHEAF_EXPLAIN_IMPL_H

#include "cli/cli.h"
#include "sheaf_admin.h"
#include "sieve/sieve.h"

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
	struct sheaf_net_counts net; /* likewise */
};

struct explain_way {
	struct sheaf_plan plan;
	struct explain_cost all, at[SHEAF_MAX_TARGETS];
};

/* ---------------------------------------------------------------- explain_sieve.c */

#define EXPLAIN_PARTS 8 /* parts of a plan that are kept to be shown */

/* A covering range, or pieces that are accessed separately. */
struct explain_part {
	uint64_t lo, hi, pieces, bytes;
	bool covers;
	double ns; /* predicted */
	double otherwise_ns; /* if it were the other way; 0: it cannot be */
};

/* How a server accesses its pieces while the data are cached, or while they are on the disk. */
struct explain_plan {
	uint64_t accesses, ranges; /* accesses in total; covering ranges */
	uint64_t covered, useful; /* bytes of these ranges, and of the pieces in them */
	double ns, separate_ns; /* predicted; and with an access to each piece */
	uint64_t n_parts; /* the first EXPLAIN_PARTS of them are in parts */
	struct explain_part parts[EXPLAIN_PARTS];
};

struct explain_sieve {
	bool known; /* the server has told its costs */
	struct sieve_costs costs;
	uint64_t windows, pieces;
	struct explain_plan cached, cold;
	double measured_ns; /* in the state `disk` of windows, with the mover auto; 0: not known */
};

struct explain_window; /* the window that is being filled */

struct explain {
	struct cli *c;
	struct explain_access x;
	struct sheaf_stripes where;
	struct sheaf_file *f; /* the file to measure in; NULL: plan only */
	unsigned rounds; /* number of rounds measured */
	int n_ways; /* without the mover driven, unless it would make a difference */
	struct explain_way way[SHEAF_ALL_MOVERS];
	struct explain_sieve sieve[SHEAF_MAX_TARGETS];
	struct explain_window *window;
};

/* ---- explain_links.c: the routes to the servers and what they cost ---- */

int links_print(const struct explain *e, const char *const *names); /* -1: out of memory */
struct json_object *links_json(const struct explain *e, const char *const *names);
void bank_print(const struct explain *e); /* nothing where there is no bank */
struct json_object *bank_json(const struct explain *e); /* NULL: not asked */

/* ---- explain_sieve.c ---- */

/* Asks the servers for their costs: 0 or -ENOMEM. A server that does not tell them is unknown. */
int sieve_begin(struct explain *e);
/* Adds pieces of an object, in the order of the access; all of one object before the next. */
void sieve_touch(struct explain *e, uint32_t object, const struct sheaf_extent *ext, size_t n);
void sieve_end(struct explain *e); /* plans the last window, and frees it */
int sieve_print(const struct explain *e, const char *const *names); /* 0 or -ENOMEM */
struct json_object *sieve_json(const struct explain *e, const char *const *names);

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
