/* layout: pure functions between file offsets and object offsets, seekable views of a list access,
 * and types: scattered accesses as nested patterns. No I/O, and no state but the structs that the
 * caller owns; only constructors of types allocate. */
#ifndef SHEAF_LAYOUT_H
#define SHEAF_LAYOUT_H

#include <sys/uio.h>

#include "base/base.h"

/* Dense striping: stripe s (`unit` bytes) of the file is stripe s / width of object (s + start) %
 * width. */
struct layout {
	uint32_t unit, width, start;
};

void layout_locate(const struct layout *l, uint64_t off, uint32_t *index, uint64_t *obj_off);
uint64_t layout_file_offset(const struct layout *l, uint32_t index, uint64_t obj_off);
/* Size of object `index` of a file of `size` bytes without holes. */
uint64_t layout_object_size(const struct layout *l, uint32_t index, uint64_t size);
/* Smallest file size in which object `index` can end at obj_end (0 for 0). */
uint64_t layout_file_end(const struct layout *l, uint32_t index, uint64_t obj_end);

/* A copy of `length` bytes between two files, in terms of their objects. */
struct copy {
	struct layout in, out;
	uint64_t from, to, length; /* offsets in the files */
};
struct copy_piece {
	uint64_t from, to, length; /* offsets in the objects */
};
/* A position in a copy, within the bytes of one object of `out`; zero is the beginning. */
struct copy_cursor {
	uint32_t round; /* objects of `in` that are done */
	uint64_t pos; /* in the copy */
	uint32_t source; /* object of `in` that the last pieces were taken from */
};
/* Plans the next request for object `index` of `out`: pieces that all come from one object of `in`,
 * adjacent ones fused, at most max pieces and max_bytes. Moves c behind them. Returns their number;
 * 0: nothing of this object is left. */
size_t copy_plan(const struct copy *k, uint32_t index, struct copy_cursor *c,
		 struct copy_piece *out, size_t max, uint64_t max_bytes);
/* The targets of a new file: `width` of the n data targets, round robin from one that the inode
 * number selects. */
void layout_targets(uint64_t ino, const uint32_t *data, uint32_t n, uint32_t *out, uint32_t width);

struct pattern;

/* An access: the bytes of `mem`, in order, are the bytes of `file`, in order. Zero lengths are
 * skipped. Patterns, whose memory offsets are addresses, may replace the lists. Every view and
 * cursor of the access borrows it. */
struct access {
	const struct iovec *mem;
	size_t n_mem;
	const struct extent *file;
	size_t n_file;
	uint64_t total;
	bool even; /* the file extents have equal lengths and are `stride` apart */
	int64_t stride;
	const struct pattern *mem_pattern, *file_pattern; /* both or none */
	uint64_t skip; /* bytes of file_pattern before the access */
};

/* Checks the totals (equal, at most 2^63 - 1, no extent beyond that offset): 0 or
 * -EINVAL/-EFBIG. */
int access_init(struct access *a, const struct iovec *mem, size_t n_mem, const struct extent *file,
		size_t n_file);
/* The access begins `skip` bytes behind the beginning of the file pattern. */
int access_typed(struct access *a, const struct pattern *mem, const struct pattern *file,
		 uint64_t skip);
/* Bytes in list order before the first byte at or behind file offset `size`. */
uint64_t access_before(const struct access *a, uint64_t size);

/* A position in an access; plain data. Zero is the beginning. */
struct cursor {
	uint64_t pos; /* bytes of the list before the cursor */
	size_t i_mem, i_file;
	uint64_t o_mem, o_file; /* offsets within those entries */
};

/* The part of an access that belongs to one object, from `begin` on, `length` bytes long: the
 * stream of one request. `cur` is where the last call ended and `last` where it began. Moving
 * forward costs what is passed, also after a call of which less was transferred than it returned;
 * moving back before `last` starts again at `begin`. */
struct view {
	const struct access *access;
	struct layout layout;
	uint32_t index;
	struct cursor begin;
	uint64_t length;
	struct cursor cur, last;
	uint64_t at, last_at; /* stream positions of cur and last */
	struct pattern_view
		*pattern_view; /* owned by the caller; replaces the cursors for patterns */
};

/* Plans the next request for object `index` from *from on: its object extents (adjacent ones
 * fused), at most max extents and max_bytes, and the view of the memory for them. Moves *from
 * behind it. Returns the number of extents; 0: nothing of this object is left. An access with
 * patterns needs v->pattern_view, and 0 may mean that the search was cut short: it is complete when
 * from->pos is the access's total. */
size_t view_plan(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
		 struct cursor *from, struct extent *out, size_t max, uint64_t max_bytes);
/* The same without extents, for all bytes of the object up to a list position; the length may be
 * 0. */
void view_span(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
	       struct cursor *from, uint64_t upto);
/* The memory of stream bytes [at, at + len): at most max pieces, adjacent ones fused; *got is the
 * number of their bytes. Returns the number of pieces. at + len must not exceed v->length. */
size_t view_iov(struct view *v, uint64_t at, uint64_t len, struct iovec *out, size_t max,
		uint64_t *got);
/* 0, or -EFAULT: some of that memory is not mapped (pieces_guard). */
int view_copy_out(struct view *v, uint64_t at, void *dst, uint64_t len); /* memory -> dst */
int view_copy_in(struct view *v, uint64_t at, const void *src, uint64_t len); /* src -> memory */
int view_zero(struct view *v, uint64_t at, uint64_t len);

/* ---- types: scattered data, as a nested pattern ----
 *
 * Counts, blocks, sizes, subsizes and starts count elements of `of`; strides and displacements are
 * bytes. The elements of a block are one extent apart. A type's bounds are the least lower and the
 * greatest upper bound of its elements (0 and 0 if it has none); those of a subarray are the
 * array's: from 0 to its end. A type is immutable, so any number of threads may use it, and in a
 * normal form (type.h). `of` may be freed at once.
 * Errors: -EINVAL (an absolute value above 2^63 - 1, a subarray outside of its array, nd < 1),
 * -E2BIG (nested deeper than TYPE_DEPTH_MAX, or longer than TYPE_WIRE_MAX when encoded), -ENOMEM;
 * *t is then untouched. */
#define TYPE_DEPTH_MAX 32
#define TYPE_WIRE_MAX MIB
struct type;
int type_bytes(uint64_t n, struct type **t);
int type_vector(uint64_t count, uint64_t block, int64_t stride, const struct type *of,
		struct type **t);
int type_indexed(size_t n, const uint64_t *blocks, const int64_t *displ, const struct type *of,
		 struct type **t);
int type_struct(size_t n, const uint64_t *blocks, const int64_t *displ,
		const struct type *const *of, struct type **t);
int type_resized(const struct type *of, int64_t lower, int64_t upper, struct type **t);
/* In C order: the last dimension is dense. */
int type_subarray(int nd, const uint64_t *sizes, const uint64_t *subsizes, const uint64_t *starts,
		  const struct type *of, struct type **t);
void type_free(struct type *t); /* accepts NULL */

uint64_t type_size(const struct type *t); /* bytes of data */
int64_t type_lower(const struct type *t);
int64_t type_upper(const struct type *t);
uint64_t type_extent(const struct type *t); /* upper - lower bound */
unsigned type_depth(const struct type *t); /* of the normal form; 0: contiguous */

/* The wire form: big-endian, no padding. type_decode() of what type_encode() wrote gives an equal
 * type, and encoding what was decoded gives the same bytes. type_decode() accepts exactly `len`
 * untrusted bytes: 0, -EBADMSG or -ENOMEM. */
size_t type_wire_size(const struct type *t);
void type_encode(const struct type *t, void *buf);
int type_decode(const void *buf, size_t len, struct type **t);

/* Bounds of the data of a node, whose first byte is at 0. */
struct type_bounds {
	int64_t lo, hi; /* lowest offset, highest + 1 */
	int64_t last; /* end of the last run in stream order */
	uint64_t segs; /* runs, adjacent ones fused; saturates */
	bool ascends; /* every run begins at or behind the end of the previous one */
};

/* One level of a type. A use of a node has a number n, whose meaning depends on the node:
 *   leaf (depth 0)          n bytes
 *   vector (no entries)     n elements, `stride` apart
 *   list                    its entries; n is 1 */
struct type_node {
	uint32_t depth;
	uint32_t n_entries, first; /* list: its range of the type's entries */
	uint32_t child; /* vector: node of an element ... */
	uint64_t n; /* ... and its n */
	int64_t stride;
	uint64_t unit; /* bytes of an element, or of the list */
	struct type_bounds el; /* of an element, or of the list */
};

/* Copies of a type, one extent after another, from a base on; borrows the type. */
struct pattern {
	const struct type *type;
	struct type_node top; /* node of all copies ... */
	uint64_t n; /* ... and its n */
	uint64_t first; /* offset of the stream's first byte */
	uint64_t total; /* bytes; the last copy may be incomplete */
	uint64_t begin, end; /* lowest offset, highest + 1 */
	uint64_t segs; /* upper bound of the number of runs; saturates */
	bool ascends;
};

/* `count` copies, or as many as `bytes` of data need. -EINVAL: an offset of these bytes is below 0
 * or beyond 2^63 - 1, there are too many bytes, or the type is empty and `bytes` is not 0. */
int pattern_init(struct pattern *p, const struct type *t, int64_t base, uint64_t count);
int pattern_tile(struct pattern *p, const struct type *t, int64_t base, uint64_t bytes);
/* The first stream position whose offset is at or behind off, or the total; only if p ascends. */
uint64_t pattern_position(const struct pattern *p, uint64_t off);

/* A node of a type at a position in the stream. */
struct pattern_spot {
	const struct type_node *node;
	uint64_t n, base;
};

/* A position in the stream of a pattern; plain data that borrows the pattern. Fields that change
 * together are not adjacent: compilers would load two at once, and that load waits for both
 * stores. */
struct pattern_cursor {
	uint64_t pos; /* bytes of the stream before the cursor */
	const struct pattern *p;
	uint64_t off; /* offset of the next byte */
	uint32_t depth;
	uint64_t left; /* bytes left of the leaf that has the next byte */
	struct {
		struct pattern_spot spot;
		uint64_t i; /* index of the current child */
	} frame[TYPE_DEPTH_MAX + 1];
};

void pattern_seek(struct pattern_cursor *c, const struct pattern *p, uint64_t pos); /* <= total */
/* Moves to pattern_position(p, off). */
void pattern_seek_offset(struct pattern_cursor *c, const struct pattern *p, uint64_t off);
/* The next runs in stream order, adjacent ones fused: at most max runs and max_bytes. Returns their
 * number; 0: at the end. */
size_t pattern_runs(struct pattern_cursor *c, struct extent *out, size_t max, uint64_t max_bytes);

/* The type of all copies as JSON: {"vector":{"count":3,"stride":16,"of":{"bytes":8}}};
 * {"struct":[[displacement,type],...]}. The first byte of the stream is at 0. Returns the number of
 * bytes written to buf, without a NUL, or -E2BIG: more than n. */
int pattern_text(const struct pattern *p, char *buf, size_t n);

/* The part of a pattern that belongs to one object of a file. Its stream is the object's bytes in
 * the order of the pattern, as in a view. */
struct extent_iter {
	struct pattern_cursor c; /* c.pos: position in the pattern's whole stream */
	struct layout layout;
	uint32_t index;
	bool by_stripe, skips_gaps; /* how it advances, see extent_iter.c */
	int steps; /* leaves and stripes that the last call examined */
};

void extent_iter_init(struct extent_iter *s, const struct pattern *p, const struct layout *l,
		      uint32_t index, uint64_t pos);
/* The next extents of the object, adjacent ones fused: at most max extents and max_bytes. Returns
 * their number. A call examines at most EXTENT_ITER_STEPS leaves and stripes, so that a pattern
 * with little of this object costs bounded time; there may then be fewer extents, or none. Nothing
 * of this object is left when c.pos is the pattern's total. If `pos` is not NULL, it gets the
 * position of each extent in the whole stream, and extents that are not contiguous there are not
 * fused; the bytes and their order are the same. */
#define EXTENT_ITER_STEPS 16384
size_t extent_iter_next(struct extent_iter *s, struct extent *out, uint64_t *pos, size_t max,
			uint64_t max_bytes);

/* ---- views of an access with patterns ---- */

struct pattern_view_pos {
	struct extent_iter file;
	struct pattern_cursor mem; /* at any position: moved when it is needed */
	uint64_t at; /* position in the view's stream */
};

/* State of a view of patterns: the current place, the place where the last call began (a caller
 * that transferred less returns there), and places that jumps ahead have left, for windows that are
 * transferred out of order. */
#define PATTERN_VIEW_SAVED 2
struct pattern_view {
	uint64_t begin, upto; /* positions in the file pattern */
	struct pattern_view_pos here, last, saved[PATTERN_VIEW_SAVED];
	unsigned n_saved;
	size_t ahead; /* extents to look up at once */
};

/* The view of all bytes of object `index` between two positions of the access; its length is an
 * upper bound. */
void view_init_pattern(struct view *v, const struct access *a, const struct layout *l,
		       uint32_t index, uint64_t begin, uint64_t upto);

#endif
