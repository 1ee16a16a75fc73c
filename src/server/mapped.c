/* Pieces of a file whose pages are in memory are copied out of its mapping: no system call for each of them.
 *
 * Threads: the loop's. Buffers: the caller's. Errors: none; what cannot be copied is to be read. A file that is cut under the
 * copy is such a case (pieces_guard). */
#include "server/srv.h"

#define SLICE 256 /* pieces copied at once */

static bool copy_out(const struct iovec *src, size_t n, const struct iovec *dst, size_t n_dst)
{
	struct iovec part[SLICE];
	size_t i = 0, o = 0; /* the place in src */

	for (size_t k = 0; k < n_dst; k++) {
		size_t done = 0;

		while (done < dst[k].iov_len && i < n) {
			size_t got, m = iov_slice(src + i, n - i, o, dst[k].iov_len - done, part,
						  SLICE, &got);

			if (pieces_pack((char *)dst[k].iov_base + done, part, m))
				return false;
			done += got;
			for (got += o; i < n && got >= src[i].iov_len; i++)
				got -= src[i].iov_len;
			o = got;
		}
	}
	return true;
}

bool map_pieces(struct object *o, const struct extent *pieces, size_t n, uint64_t lo, uint64_t hi,
		struct iovec *out)
{
	const char *p = object_map(o, lo, hi - lo);

	for (size_t i = 0; p && i < n; i++)
		out[i] = (struct iovec){ (void *)(uintptr_t)(p + (pieces[i].offset - lo)),
					 pieces[i].length };
	return p;
}

bool mapped_read(struct object *o, const struct extent *pieces, size_t n, uint64_t lo, uint64_t hi,
		 struct iovec *src, const struct iovec *dst, size_t n_dst)
{
	bool ok;

	if (hi - lo > HULL_MAX || !object_cached(o, lo, hi - lo) ||
	    !map_pieces(o, pieces, n, lo, hi, src))
		return false;
	ok = copy_out(src, n, dst, n_dst);
	object_unmap(o);
	return ok;
}
