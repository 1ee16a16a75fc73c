/* Copies pieces of a file between its mapping and buffers, without a system call per piece: out of
 * the mapping when the pages are in memory, and into it where all files are in memory.
 *
 * Threads: the loop's. Buffers: the caller's. Errors: none; where a copy fails, the caller reads or
 * writes the file. Copies fail when the file is cut meanwhile, or without space for a page that was
 * punched out meanwhile (pieces_guard). */
#include "disk/disk.h"

/* Copies n pieces of a mapping from or to flat memory. */
static bool copy_run(const struct iovec *map, size_t n, char *flat, bool store)
{
	return (store ? pieces_unpack(map, n, flat) : pieces_pack(flat, map, n)) == 0;
}

/* Copies between pieces of a mapping and flat memory: runs of whole pieces, and the parts of a
 * piece that lies in two ranges of flat memory. */
static bool copy(const struct iovec *map, size_t n, const struct iovec *flat, size_t n_flat,
		 bool store)
{
	size_t i = 0, o = 0; /* the position in map */
	bool ok = true;

	for (size_t k = 0; k < n_flat && ok; k++) {
		char *p = flat[k].iov_base;
		size_t left = flat[k].iov_len, len;

		for (; left && i < n && ok; p += len, left -= len) {
			size_t whole = 0;

			for (len = 0; !o && i + whole < n && map[i + whole].iov_len <= left - len;)
				len += map[i + whole++].iov_len;
			if (whole) {
				ok = copy_run(map + i, whole, p, store);
				i += whole;
			} else {
				struct iovec part = { (char *)map[i].iov_base + o,
						      map[i].iov_len - o };

				len = part.iov_len = MIN(part.iov_len, left);
				ok = copy_run(&part, 1, p, store);
				o += len;
				if (o == map[i].iov_len) {
					i++;
					o = 0;
				}
			}
		}
	}
	return ok;
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
