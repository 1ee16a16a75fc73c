/* layout: pure functions between file offsets and object offsets, seekable views of a list access, and
 * types: scattered accesses as nested patterns. No I/O, no state beyond the structs the caller owns; only
 * making a type allocates. */
#ifndef SHEAF_LAYOUT_H
#define SHEAF_LAYOUT_H

#include <sys/uio.h>

#include "base/base.h"

struct extent {
	uint64_t offset, length;
};

/* Dense striping: stripe s (unit bytes) of the file is stripe s / width of object (s + start) % width. */
struct layout {
	uint32_t unit, width, start;
};

void layout_locate(const struct layout *l, uint64_t off, uint32_t *index, uint64_t *obj_off);
uint64_t layout_file_offset(const struct layout *l, uint32_t index, uint64_t obj_off);
/* Size that object `index` has when the file is `size` bytes and has no holes. */
uint64_t layout_object_size(const struct layout *l, uint32_t index, uint64_t size);
/* Smallest file size in which object `index` can end at obj_end (0 for 0). */
uint64_t layout_file_end(const struct layout *l, uint32_t index, uint64_t obj_end);

/* A copy of `length` bytes between two files, as the objects see it. */
struct copy {
	struct layout in, out;
	uint64_t from, to, length; /* offsets in the files */
};
struct copy_piece {
	uint64_t from, to, length; /* offsets in the objects */
};
/* A place in a copy, among what belongs to one object of `out`; zero is the beginning. */
struct copy_cursor {
	uint32_t round; /* objects of `in` that it is through with */
	uint64_t pos; /* in the copy */
	uint32_t source; /* object of `in` that the last pieces come from */
};
/* The next request for object `index` of `out`: pieces that all come from one object, adjacent ones fused; moves
 * c behind them. At most max pieces and max_bytes. Their number; 0: nothing of this object is left. */
size_t copy_plan(const struct copy *k, uint32_t index, struct copy_cursor *c,
		 struct copy_piece *out, size_t max, uint64_t max_bytes);
/* Where a new file lives: `width` of the n data targets, in turn, beginning where its inode number says. */
void layout_targets(uint64_t ino, const uint32_t *data, uint32_t n, uint32_t *out, uint32_t width);

struct pattern;

/* An access: the bytes of `mem`, in order, are the bytes of `file`, in order. Zero lengths are skipped. Instead of
 * the lists there may be patterns, whose memory offsets are addresses. Borrowed by every view and cursor on it. */
struct access {
	const struct iovec *mem;
	size_t n_mem;
	const struct extent *file;
	size_t n_file;
	uint64_t total;
	bool even; /* the file's extents are one block again and again, `stride` apart */
	int64_t stride;
	const struct pattern *mem_pattern, *file_pattern; /* both or none */
};

/* Checks the totals (equal, no overflow of 2^63 - 1, no extent reaching beyond it): 0 or -EINVAL/-EFBIG. */
int access_init(struct access *a, const struct iovec *mem, size_t n_mem, const struct extent *file,
		size_t n_file);
int access_typed(struct access *a, const struct pattern *mem, const struct pattern *file);
/* Bytes in list order before the first one at or behind file offset `size`. */
uint64_t access_before(const struct access *a, uint64_t size);

/* A place in an access; plain data. Zero is the beginning. */
struct cursor {
	uint64_t pos; /* bytes of the list before it */
	size_t i_mem, i_file;
	uint64_t o_mem, o_file; /* offsets within those entries */
};

/* The part of an access that belongs to one object, from `begin` on for `length` bytes of its own:
 * the stream of one request. `cur` remembers where the last call ended and `last` where it began, so walking
 * forward costs what it passes, also from where less was moved than was asked for; only going further back starts again
 * at `begin`. */
struct view {
	const struct access *access;
	struct layout layout;
	uint32_t index;
	struct cursor begin;
	uint64_t length;
	struct cursor cur, last;
	uint64_t at, last_at; /* their stream positions */
	struct trail *trail; /* the caller's; instead of the cursors, where the access has patterns */
};

/* Takes the next request for object `index` from *from: its object extents (adjacent ones fused) and
 * the view of the memory behind them; moves *from behind it. At most max extents and max_bytes.
 * Returns the number of extents; 0: nothing of this object is left. An access with patterns needs v->trail, and
 * 0 may mean that nothing was found yet: everything was looked at when from->pos is the access's total. */
size_t view_plan(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
		 struct cursor *from, struct extent *out, size_t max, uint64_t max_bytes);
/* The same without its extents, for all that the object has up to a position of the lists; the length may be 0. */
void view_span(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
	       struct cursor *from, uint64_t upto);
/* The memory of stream bytes [at, at + len): at most max pieces, adjacent ones fused; *got says how many
 * bytes they hold. Returns the number of pieces. at + len must not exceed v->length. */
size_t view_iov(struct view *v, uint64_t at, uint64_t len, struct iovec *out, size_t max,
		uint64_t *got);
/* 0, or -EFAULT: some of that memory is not there (pieces_guard). */
int view_copy_out(struct view *v, uint64_t at, void *dst, uint64_t len); /* memory -> dst */
int view_copy_in(struct view *v, uint64_t at, const void *src, uint64_t len); /* src -> memory */
int view_zero(struct view *v, uint64_t at, uint64_t len);

/* ---- types: what lies where, as a nested pattern ----
 *
 * Counts, blocks, sizes, subsizes and starts count elements of `of`; strides and displacements are bytes. A block
 * is elements one extent apart. A type's bounds are the least lower and the greatest upper bound of the elements it places
 * (0 and 0 when it places none), those of a subarray are the array's: from 0 to its end. Immutable, so any number of
 * threads may use one; it is in a normal form (type.h). `of` may be freed at once.
 * Errors: -EINVAL (anything beyond 2^63 - 1 in amount, a subarray out of its array, nd < 1), -E2BIG (nested
 * deeper than TYPE_DEPTH_MAX, or longer than TYPE_WIRE_MAX when encoded), -ENOMEM; *t is then untouched. */
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
/* In C order: the last dimension is dense. */
int type_subarray(int nd, const uint64_t *sizes, const uint64_t *subsizes, const uint64_t *starts,
		  const struct type *of, struct type **t);
void type_free(struct type *t); /* or NULL */

uint64_t type_size(const struct type *t); /* bytes of data */
int64_t type_lower(const struct type *t);
int64_t type_upper(const struct type *t);
uint64_t type_extent(const struct type *t); /* upper - lower bound */
unsigned type_depth(const struct type *t); /* of the normal form; 0: contiguous */

/* The wire form: big-endian, no padding. What type_encode() wrote decodes to an equal type, and whatever decodes
 * encodes to the same bytes. type_decode() takes exactly `len` bytes from anybody: -EBADMSG or -ENOMEM. */
size_t type_wire_size(const struct type *t);
void type_encode(const struct type *t, void *buf);
int type_decode(const void *buf, size_t len, struct type **t);

/* Of the data of a node; its first byte is at 0. */
struct type_bounds {
	int64_t lo, hi; /* lowest offset, highest + 1 */
	int64_t last; /* end of the run that comes last */
	uint64_t segs; /* runs, adjacent ones fused; saturates */
	bool ascends; /* every run begins at or behind the end of the one before */
};

/* One level of a type. A place in a type is a node and a number n, whose meaning is the node's:
 *   leaf (depth 0)          n bytes
 *   vector (no entries)     n elements, `stride` apart
 *   list                    its entries; n is 1 */
struct type_node {
	uint32_t depth;
	uint32_t n_entries, first; /* list: its part of the type's entries */
	uint32_t child; /* vector: what an element is ... */
	uint64_t n; /* ... and how much of it */
	int64_t stride;
	uint64_t unit; /* bytes of an element, or of the list */
	struct type_bounds el; /* of an element, or of the list */
};

/* Copies of a type, one extent after another, from a base on; it borrows the type. */
struct pattern {
	const struct type *type;
	struct type_node top; /* over all copies */
	uint64_t n; /* of top */
	uint64_t first; /* offset of the first byte of the stream */
	uint64_t total; /* bytes; the last copy may be cut */
	uint64_t begin, end; /* lowest offset, highest + 1 */
	uint64_t segs; /* at most so many runs; saturates */
	bool ascends;
};

/* `count` copies, or as many as `bytes` of data need. -EINVAL: an offset below 0 or an end beyond 2^63 - 1 among
 * the bytes it has, too many bytes, or no room for them in an empty type. */
int pattern_init(struct pattern *p, const struct type *t, int64_t base, uint64_t count);
int pattern_tile(struct pattern *p, const struct type *t, int64_t base, uint64_t bytes);
/* The first stream position whose offset is at or behind off, or the total; only where p ascends. */
uint64_t pattern_position(const struct pattern *p, uint64_t off);

/* A node of a type at its place in the stream. */
struct pattern_spot {
	const struct type_node *node;
	uint64_t n, base;
};

/* A place in the stream of a pattern; plain data that borrows the pattern. What moves together stands apart: compilers
 * would move two at once, and a load of both waits for the stores of each. */
struct pattern_cursor {
	uint64_t pos; /* bytes of the stream before it */
	const struct pattern *p;
	uint64_t off; /* of the next byte */
	uint32_t depth;
	uint64_t left; /* of the leaf of that byte */
	struct {
		struct pattern_spot spot;
		uint64_t i; /* the child it is in */
	} frame[TYPE_DEPTH_MAX + 1];
};

void pattern_seek(struct pattern_cursor *c, const struct pattern *p, uint64_t pos); /* <= total */
/* To pattern_position(p, off). */
void pattern_seek_offset(struct pattern_cursor *c, const struct pattern *p, uint64_t off);
/* The next runs in stream order, adjacent ones fused: at most max runs and max_bytes. Their number; 0: at the
 * end. */
size_t pattern_runs(struct pattern_cursor *c, struct extent *out, size_t max, uint64_t max_bytes);

/* Its type, all copies, as JSON: {"vector":{"count":3,"stride":16,"of":{"bytes":8}}}; {"struct":[[displacement,type],...]}.
 * The first byte of the stream is at 0. How many bytes were written to buf, without a NUL, or -E2BIG: more than n. */
int pattern_text(const struct pattern *p, char *buf, size_t n);

/* The part of a pattern that belongs to one object of a file. Its stream is the object's bytes in the order of the
 * pattern, as with a view. */
struct portion {
	struct pattern_cursor c; /* c.pos: how far it is in the whole stream */
	struct layout layout;
	uint32_t index;
	bool burst, jump; /* how it gets on, see portion.c */
	int steps; /* leaves and stripes that the last call looked at */
};

void portion_init(struct portion *s, const struct pattern *p, const struct layout *l,
		  uint32_t index, uint64_t pos);
/* The next extents of the object, adjacent ones fused: at most max extents and max_bytes; their number. It looks at
 * no more than PORTION_STEPS leaves and stripes, so that a pattern which lies with others costs bounded time: then
 * there may be fewer extents, or none. Nothing of this object is left when c.pos is the pattern's total. Where `pos` is
 * not NULL it gets the position of each extent in the whole stream, and what is not contiguous there is not
 * fused. Both ways give the same bytes in the same order. */
#define PORTION_STEPS 16384
size_t portion_next(struct portion *s, struct extent *out, uint64_t *pos, size_t max,
		    uint64_t max_bytes);

/* ---- views of an access with patterns ---- */

struct trail_place {
	struct portion file;
	struct pattern_cursor mem; /* anywhere: it is brought along */
	uint64_t at; /* in the view's stream */
};

/* What a view needs to walk patterns: where it is, where the last call began (who moved less comes back there), and
 * places that were left behind by jumps ahead, for windows that come out of order. */
#define TRAIL_LEFT 2
struct trail {
	uint64_t begin, upto; /* the part of the access */
	struct trail_place here, last, left[TRAIL_LEFT];
	unsigned n_left;
	size_t ahead; /* extents that are worth looking up at once */
};

/* The view of all that object `index` has between two positions of the access; its length is a bound. */
void view_trail(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
		uint64_t begin, uint64_t upto);

#endif
