/* Bulk transfers of the server: windows, their strategies, and the state of the data operations.
 * Private to src/server. */
#ifndef SHEAF_WINDOW_H
#define SHEAF_WINDOW_H

#include "server/sreq.h"
#include "sieve/sieve.h"

#define WINDOW_BYTES (256 * KIB) /* of one window */
#define WINDOW_PIECES 2048 /* pieces in one window */
#define WINDOW_IOS 128 /* file accesses that a window submits at a time */
#define WINDOWS 2 /* of one request at a time: network and disk overlap */
#define COPY_BYTES (8 * MIB) /* the pool for copies; a session's share fits the windows of two */

/* ---- windows.c: the windows of a request ---- */
/* The pattern of a request, expanded into a few extents at a time. */
#define PATTERN_BATCH 256
struct pattern_list {
	struct type *type;
	struct pattern tiled;
	struct extent_iter iter;
	struct extent batch[PATTERN_BATCH];
};

/* A transfer between an object and a client, or another object (COPY). */
struct bulk {
	struct sreq *s;
	struct object *object;
	const struct wire_mem_desc *mem;
	const uint8_t *data; /* used instead of mem: data in the message, or NULL */
	const struct wire_extent *list;
	uint32_t n_list;
	struct pattern_list *pattern; /* the source of further extents of list, or NULL */
	uint64_t epoch, end; /* reads are clipped at end */
	bool clipped; /* a read was clipped */
	bool write;
	const struct wire_extent *from; /* COPY: the source of `list`, instead of mem */
	struct fetch *fetches; /* one per window */
	/* where the next window begins */
	uint32_t i;
	uint64_t o, at; /* within extent i; in the stream */
	uint64_t moved;
	uint32_t n_windows;
	uint32_t n_posted; /* windows whose last data are on their way: the reply follows them */
	bool awaits_sent; /* the request is held until they have left */
};

/* How a window moves its bytes between the file and the network: a row of `strategies`. */
enum strategy {
	READ_DISK,
	READ_SIEVE,
	READ_MAPPED_COPY,
	READ_FILE,
	READ_MAPPED_FILE,
	WRITE_DISK,
	WRITE_SIEVE,
	WRITE_MAPPED_STORE,
	WRITE_DIRECT,
	COPY_FETCH,
	N_STRATEGIES
};

static_assert(WINDOW_PIECES <= SIEVE_PIECES, "a window can be planned");

struct window {
	struct req q;
	struct list spare;
	struct bulk *bulk;
	enum strategy strategy;
	struct buf buf;
	struct turn turn;
	struct fetch *fetch; /* source of a copy, or NULL */
	uint64_t at, len; /* range in the stream */
	uint64_t lo, hi; /* range in the object */
	bool is_sorted; /* the pieces are in ascending order, without overlaps */
	bool skips_pages; /* a write: a covering range of all pieces would fill holes */
	uint64_t hull; /* bytes of covering ranges, before the data in buf; 0: not sieved */
	bool is_merged; /* sieved: the covering ranges were read, and have the pieces */
	struct sieve_at {
		uint32_t part, piece;
		uint64_t hull, data;
	} sieve; /* the next access of the pass: its part and piece, and their places in buf */
	uint32_t n_parts;
	bool is_mapped; /* holds a mapping of the object; iov had the pieces in it */
	bool is_posted; /* its last data are on their way */
	struct net_direct direct;
	struct iovec data[BUF_MAX_UNITS + 1]; /* the data, in buf or in the message */
	size_t n_data;
	uint32_t n;
	uint32_t asked; /* pieces handed to the disk so far ... */
	uint64_t asked_len; /* ... and their bytes */
	uint32_t n_ios; /* sieved: submitted last */
	struct io ios[WINDOW_IOS];
	/* slices of the data, or of a mapping, piece by piece */
	struct iovec iov[WINDOW_PIECES + BUF_MAX_UNITS];
	struct extent pieces[WINDOW_PIECES];
	struct sieve_part parts[WINDOW_PIECES];
};

/* ---- strategy.c: how windows move their bytes ---- */
/* The stages of a window, in order; a stage that a strategy does not need is NULL. Operations that
 * a stage starts hold w->q. A stage may fall back: it changes w->strategy and continues there. */
struct strategy_row {
	const char *op, *name; /* "read", "sieve" */
	void (*get_buffer)(struct window *w);
	void (*receive)(struct window *w); /* gets the data of a write */
	bool (*is_wanted)(struct window *w); /* before the turn; false: end without access */
	/* Starts the next accesses to the file, within the turn; false: there are no more. */
	bool (*access)(struct window *w);
	void (*send)(struct window *w); /* without a turn */
};
extern const struct strategy_row strategies[N_STRATEGIES];
/* The only place that decides: chooses the strategy of a window that has its pieces. */
void strategy_choose(struct window *w);
/* The limit for covering ranges plus data of a sieved window. */
uint64_t sieve_most(const struct window *w);
/* Would this piece prevent sieving of a window that is sieved without it, so that it pays to end
 * the window here? */
bool sieve_ends(const struct window *w, uint64_t off, uint64_t n);

/* ---- windows.c: the windows of a request ---- */
extern const struct req_ops window_ops;
/* Holds b->s->q until everything has moved or one window has failed. */
void bulk_start(struct bulk *b);
/* Holds the request until the data that were posted have left. */
void bulk_hold_until_sent(struct bulk *b);
/* True after an error, after a cancel, or when the deadline passed before any byte moved. */
bool window_stops(const struct window *w);
void spare_windows_free(struct server *srv);
bool is_window(const struct server *srv, const struct req *q);
void window_abandon(struct req *q);

/* ---- fetch.c: reads for a COPY, here or from another target ---- */
struct fetch {
	struct req q;
	struct req *parent;
	struct server *srv;
	struct sreq *s; /* the COPY */
	const struct wire_access *at;
	uint32_t source; /* target of the source object */
	struct extent ext[WINDOW_IOS]; /* the source extents, in the order of the buffer */
	struct extent list[WINDOW_IOS]; /* the same with neighbours joined */
	uint32_t n_list;
	struct access access; /* the buffer and its source extents */
	struct view view;
	struct call call; /* when the source is on another target */
	struct wire_read_args args;
	struct wire_read_res res;
	struct object *object; /* when the source is here */
	struct turn turn;
	struct io ios[WINDOW_IOS];
	struct iovec iov[WINDOW_IOS + BUF_MAX_UNITS];
	bool busy;
};
void fetch_init(struct fetch *f, struct sreq *s, const struct wire_access *at, uint32_t source);
/* Holds q until f->ext[0 .. n) are in buf, zeros where the object has none. Borrows all of it until
 * then. */
void fetch_start(struct fetch *f, uint32_t n, const struct buf *buf, struct req *q);
void fetch_cancel(struct fetch *f); /* ends a fetch from another target with -ECANCELED */
struct fetch *fetch_of(const struct server *srv, struct req *q); /* NULL: q is not a fetch */
void fetch_abandon(struct fetch *f);

/* ---- op_data.c: READ, WRITE, ALLOCATE, COPY ---- */
/* The state that they keep between steps. */
struct data_state {
	struct bulk bulk;
	struct pattern_list *pattern; /* or NULL */
	struct object *object;
	struct buf buf; /* of inline data */
	struct turn turn;
	struct io ios[12]; /* with more, the state would not fit into the arena's first block */
	uint32_t tries; /* retries of a read that was clipped at an end that moved meanwhile */
};

#endif
