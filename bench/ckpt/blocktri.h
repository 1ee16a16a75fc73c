/* A solver of block-tridiagonal systems that takes checkpoints: the program of `sheaf bench
 * checkpoint`. Shared by its files.
 *
 * Processes: one, or the ranks of an MPI program (BLOCKTRI_MPI), each with some planes of the grid.
 * Errors: a message, and the end of all processes. */
#ifndef SHEAF_BLOCKTRI_H
#define SHEAF_BLOCKTRI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sheaf_ckpt.h"

#define UNKNOWNS 5 /* at each point of the grid */
#define MAX_TIMES 64

/* ---------------------------------------------------------- blocktri.c */

struct options { /* numbers; blocktri.c explains them */
	double grid, steps, every, active, compare, die, remove;
	double async, incremental, rate, chain, timeout;
	const char *job;
	/* "none", "sheaf", a directory, or "nfs:ADDRESS:PORT:MOUNT-PORT/PATH" */
	const char *to;
};

/* ---------------------------------------------------------- blocktri_ranks.c */

extern int rank, ranks;
void ranks_begin(int *argc, char ***argv);
void ranks_end(void);
void ranks_wait(void); /* for all */
double ranks_most(double mine);
uint64_t ranks_sum(uint64_t mine);
/* Sends a plane to each neighbour, and receives theirs. Outside of the grid nothing changes. */
void ranks_exchange(const double *first, const double *last, double *below, double *above,
		    size_t n);
int ranks_open(struct sheaf *fs, const char *job, const struct sheaf_ckpt_options *o,
	       struct sheaf_ckpt **c);
void fail(const char *what, const char *why) __attribute__((noreturn));
/* For a result of 0 or a count, or -errno. */
void must(const char *what, long r);
double seconds(void);

/* ---------------------------------------------------------- blocktri_grid.c */

#define ARRAYS 4
struct grid { /* n^3 points; this process has `planes` planes from `first` on */
	int n, first, planes;
	double *array[ARRAYS]; /* the state: now, the step before, sum, sum of squares */
	double *change, *line; /* scratch */
	double *below, *above; /* a plane of each neighbour */
	size_t bytes; /* of one array */
	uint64_t step;
};
extern const char *const array_names[ARRAYS];

void grid_make(struct grid *g, int n);
void grid_begin(struct grid *g); /* sets the state before the first step */
void grid_free(struct grid *g);
/* One step, in the rows from y0 to y1 of each plane. */
void grid_advance(struct grid *g, int y0, int y1);
uint64_t grid_hash(const struct grid *g); /* of the state of all processes */

/* ---------------------------------------------------------- blocktri_images.c */

struct times {
	double v[MAX_TIMES];
	int n;
};
struct images {
	struct grid *g;
	const struct options *o;
	const struct way *way;
	/* seconds of the slowest process; bytes of all */
	struct times take, bytes, raw_write, restore, raw_read;
	uint64_t restored; /* number of the checkpoint; 0: none */
	int depend; /* checkpoints that need an older one */
	bool overlapped; /* a checkpoint was complete later than the call that began it */
	int taken;
};

/* A way of keeping images. Each call is of all processes; raw_write, raw_read and restore may be
 * NULL. */
struct way {
	void (*open)(struct images *m);
	void (*take)(struct images *m, double *bytes); /* bytes of this process */
	void (*finish)(struct images *m); /* waits until the image is complete; or NULL */
	void (*raw_write)(struct images *m); /* the same bytes into a new file, which is synced */
	void (*raw_drop)(struct images *m); /* removes it */
	void (*raw_read)(struct images *m);
	void (*restore)(struct images *m);
	void (*close)(struct images *m);
};

/* The way that o->to names; reads the newest checkpoint if there is one. */
void images_open(struct images *m, struct grid *g, const struct options *o);
/* Writes an image. Returns the time that the slowest process was blocked. */
double images_take(struct images *m);
void images_finish(struct images *m); /* waits until the last image is complete */
void images_compare(struct images *m); /* images, files of plain calls, and back; in turn */
void images_close(struct images *m);

/* ---------------------------------------------------------- the ways */

extern const struct way way_sheaf; /* blocktri_sheaf.c: libsheaf-ckpt */
extern const struct way way_dir; /* blocktri_plain.c: files in a directory */
extern const struct way way_nfs; /* blocktri_nfs.c: files at an NFS server */

#endif
