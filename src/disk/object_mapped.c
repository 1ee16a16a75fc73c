/* Copies pieces of a file between its mapping and buffers, without a system call per piece: out of
 * the mapping when the pages are in memory, and into it where all files are in memory.
 *
 * Threads: the loop's. Buffers: the caller's. Errors: none; where a copy fails, the caller reads or
 * writes the file. Copies fail when the file is cut meanwhile, or without space for a page that was
 * punched out meanwhile (pieces_guard). */
#include "disk/disk.h"

#define SLICE 256 /* pieces per call */

/* Copies between pieces of a mapping and flat memory. */
static bool copy(const struct iovec *map, size_t n, const struct iovec *flat, size_t n_flat,
		 bool store)
{
	struct iovec part[SLICE];
	size_t i = 0, o = 0; /* the position in map */

	for (size_t k = 0; k < n_flat; k++) {
		size_t done = 0;

		while (done < flat[k].iov_len && i < n) {
			char *p = (char *)flat[k].iov_base + done;
			size_t got, m = iov_slice(map + i, n - i, o, flat[k].iov_len - done, part,
						  SLICE, &got);

			if (store ? pieces_unpack(part, m, p) : pieces_pack(p, part, m))
				return false;
			done += got;
			for (got += o; i < n && got >= map[i].iov_len; i++)
				got -= map[i].iov_len;
			o = got;
		}
	}
	return true;
}

bool object_map_pieces(struct object *o, const struct extent *pieces, size_t n, uint64_t lo,
		       uint64_t hi, struct iovec *out)
{
	const char *p = object_map(o, lo, hi - lo);

	for (size_t i = 0; p && i < n; i++)
		out[i] = (struct iovec){ (void *)(uintptr_t)(p + (pieces[i].offset - lo)),
					 pieces[i].length };
	return p;
}

bool object_mapped_read(struct object *o, const struct extent *pieces, size_t n, uint64_t lo,
			uint64_t hi, struct iovec *src, const struct iovec *dst, size_t n_dst)
{
	bool ok;

	if (hi - lo > HULL_MAX || !object_cached(o, lo, hi - lo) ||
	    !object_map_pieces(o, pieces, n, lo, hi, src))
		return false;
	ok = copy(src, n, dst, n_dst, false);
	object_unmap(o);
	object_count(o, 0, ok ? n : 0);
	return ok;
}

bool object_mapped_can_write(const struct loop *l, struct object *o, uint64_t lo, uint64_t hi)
{
	return l->on_tmpfs && hi - lo <= HULL_MAX && hi <= object_end(o) &&
	       object_cached(o, lo, hi - lo);
}

bool object_mapped_write(struct object *o, const struct extent *pieces, size_t n, uint64_t lo,
			 uint64_t hi, struct iovec *dst, const struct iovec *src, size_t n_src)
{
	bool ok;

	if (!object_cached(o, lo, hi - lo) || !object_map_pieces(o, pieces, n, lo, hi, dst))
		return false;
	ok = copy(dst, n, src, n_src, true);
	object_unmap(o);
	object_count(o, 0, ok ? n - 1 : 0); /* the last one is written as well */
	return ok;
}
