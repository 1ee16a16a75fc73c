/* layout: pure functions between file offsets and object offsets, and seekable views of a list
 * access. No I/O, no allocation, no state beyond the structs the caller owns. */
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

/* A list access: the bytes of `mem`, in order, are the bytes of `file`, in order. Zero lengths are
 * skipped. Borrowed by every view and cursor on it. */
struct access {
	const struct iovec *mem;
	size_t n_mem;
	const struct extent *file;
	size_t n_file;
	uint64_t total;
};

/* Checks the totals (equal, no overflow of 2^63 - 1, no extent reaching beyond it): 0 or -EINVAL/-EFBIG. */
int access_init(struct access *a, const struct iovec *mem, size_t n_mem, const struct extent *file,
		size_t n_file);
/* Bytes in list order before the first one at or behind file offset `size`. */
uint64_t access_before(const struct access *a, uint64_t size);

/* A place in an access; plain data. Zero is the beginning. */
struct cursor {
	uint64_t pos; /* bytes of the list before it */
	size_t i_mem, i_file;
	uint64_t o_mem, o_file; /* offsets within those entries */
};

/* The part of an access that belongs to one object, from `begin` on for `length` bytes of its own:
 * the stream of one request. `cur` remembers where the last call ended, so walking forward costs
 * what it passes and only going back starts again at `begin`. */
struct view {
	const struct access *access;
	struct layout layout;
	uint32_t index;
	struct cursor begin;
	uint64_t length;
	struct cursor cur;
	uint64_t at; /* stream position of cur */
};

/* Takes the next request for object `index` from *from: its object extents (adjacent ones fused) and
 * the view of the memory behind them; moves *from behind it. At most max extents and max_bytes.
 * Returns the number of extents; 0: nothing of this object is left. */
size_t view_plan(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
		 struct cursor *from, struct extent *out, size_t max, uint64_t max_bytes);
/* The memory of stream bytes [at, at + len): at most max pieces, adjacent ones fused; *got says how many
 * bytes they hold. Returns the number of pieces. at + len must not exceed v->length. */
size_t view_iov(struct view *v, uint64_t at, uint64_t len, struct iovec *out, size_t max,
		uint64_t *got);
void view_copy_out(struct view *v, uint64_t at, void *dst, uint64_t len); /* memory -> dst */
void view_copy_in(struct view *v, uint64_t at, const void *src, uint64_t len); /* src -> memory */
void view_zero(struct view *v, uint64_t at, uint64_t len);

#endif
