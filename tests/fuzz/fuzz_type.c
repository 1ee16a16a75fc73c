/* Any bytes as a type: refused, or decoded to a type that encodes to the same bytes, can be used to
 * construct other types, and has a pattern that can be walked: seeking agrees with walking, and the
 * parts in the objects of a file add up to the whole pattern. With SHEAF_WRITE_CORPUS=DIR it writes
 * its seeds there. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WALK 200 /* most runs to check */

static struct type *made(int error, struct type *t)
{
	assert(!error);
	return t;
}

static void write_seed(const char *to, const char *name, struct type *t)
{
	uint8_t *buf = malloc(type_wire_size(t));
	char path[512];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", to, name);
	out = fopen(path, "w");
	assert(buf && out);
	type_encode(t, buf);
	if (fwrite(buf, 1, type_wire_size(t), out) != type_wire_size(t) || fclose(out))
		abort();
	free(buf);
	type_free(t);
}

static void write_corpus(const char *to)
{
	static const uint64_t blocks[4] = { 1, 3, 2, 1 }, sizes[3] = { 4, 6, 8 };
	static const uint64_t sub[3] = { 2, 3, 4 }, starts[3] = { 1, 2, 3 };
	static const int64_t displ[4] = { -8, 40, 7, 1000 };
	struct type *b = NULL, *v = NULL, *t = NULL;
	const struct type *of[4];
	int r;

	assert(!type_bytes(8, &b) && !type_vector(1000, 1, 64, b, &v));
	of[0] = of[2] = v;
	of[1] = of[3] = b;
	r = type_bytes(0, &t);
	write_seed(to, "empty", made(r, t));
	r = type_bytes(4096, &t);
	write_seed(to, "bytes", made(r, t));
	r = type_vector(10000, 1, 1 << 20, v, &t);
	write_seed(to, "vectors", made(r, t));
	r = type_vector(7, 2, -100, b, &t);
	write_seed(to, "backwards", made(r, t));
	r = type_indexed(4, blocks, displ, b, &t);
	write_seed(to, "indexed", made(r, t));
	r = type_indexed(4, blocks, displ, v, &t);
	write_seed(to, "indexed_vectors", made(r, t));
	r = type_struct(4, blocks, displ, of, &t);
	write_seed(to, "struct", made(r, t));
	r = type_subarray(3, sizes, sub, starts, b, &t);
	write_seed(to, "subarray", made(r, t));
	type_free(b);
	type_free(v);
}

static struct type *again(const struct type *t, const uint8_t *want)
{
	size_t len = type_wire_size(t);
	uint8_t *buf = malloc(len);
	struct type *u = NULL;

	assert(buf && len <= TYPE_WIRE_MAX);
	type_encode(t, buf);
	assert(!want || !memcmp(buf, want, len));
	if (type_decode(buf, len, &u))
		abort();
	free(buf);
	return u;
}

/* Types constructed from this type must be encoded and decoded correctly, too. */
static void build(const struct type *t, const uint8_t *data, size_t size)
{
	uint64_t blocks[3] = { 1, data[size - 1] % 4, 2 };
	int64_t displ[3] = { 0, data[size - 9] * 16 - 99, (int64_t)type_extent(t) };
	struct type *vector = NULL, *list = NULL;

	if (!type_vector(3, blocks[1], displ[1], t, &vector)) {
		assert(type_size(vector) == type_size(t) * 3 * blocks[1]);
		type_free(again(vector, NULL));
	}
	if (!type_indexed(3, blocks, displ, t, &list)) {
		assert(type_size(list) == type_size(t) * (3 + blocks[1]));
		type_free(again(list, NULL));
	}
	type_free(vector);
	type_free(list);
}

/* Walks the runs from `at` on and checks that a cursor can seek to each of them. */
static uint64_t walk(const struct pattern *p, uint64_t at)
{
	struct extent out[WALK];
	struct pattern_cursor c, d;
	uint64_t end = at;
	size_t n;

	pattern_seek(&c, p, at);
	n = pattern_runs(&c, out, WALK, UINT64_MAX);
	assert(n || at == p->total);
	for (size_t i = 0; i < n; i++) {
		assert(out[i].length && out[i].offset >= p->begin);
		assert(out[i].offset + out[i].length <= p->end);
		pattern_seek(&d, p, end);
		assert(d.off == out[i].offset);
		if (p->ascends) {
			assert(pattern_position(p, out[i].offset) == end);
			pattern_seek_offset(&d, p, out[i].offset + 1);
			assert(d.pos == end + 1);
		}
		end += out[i].length;
	}
	assert(end == c.pos);
	return end;
}

/* Checks that stream bytes from `at` to `end` are exactly those of all objects together. */
static void divide(const struct pattern *p, uint64_t at, uint64_t end)
{
	static const struct layout l = { 40, 3, 2 };
	uint64_t sum = 0, pos[WALK];
	struct extent out[WALK];

	end = MIN(end, at + 4096);
	for (uint32_t i = 0; i < l.width; i++) {
		struct extent_iter s;

		extent_iter_init(&s, p, &l, i, at);
		while (s.c.pos < end) {
			size_t n = extent_iter_next(&s, out, pos, WALK, 1000);

			for (size_t k = 0; k < n; k++) {
				uint64_t behind = MIN(pos[k] + out[k].length, end);

				sum += behind > pos[k] ? behind - pos[k] : 0;
			}
		}
	}
	assert(sum == end - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool started;
	struct type *t = NULL, *u;
	struct pattern p;
	int64_t base = 0;
	uint64_t at, end;
	int r;

	if (!started && getenv("SHEAF_WRITE_CORPUS"))
		write_corpus(getenv("SHEAF_WRITE_CORPUS"));
	started = true;
	r = type_decode(data, size, &t);
	if (r) {
		assert(r == -EBADMSG);
		return 0;
	}
	assert(type_wire_size(t) == size);
	u = again(t, data);
	build(t, data, size);
	if (type_lower(t) < 0)
		base = -type_lower(t);
	r = pattern_init(&p, u, base, 1 + data[size - 1] % 3);
	if (r)
		r = pattern_tile(&p, u, INT64_C(1) << 62, MIN(type_size(u), 5000));
	if (!r && p.total) {
		at = data[size - 1] % 2 ? 0 : hash_bytes(data, size, 0) % p.total;
		end = walk(&p, at);
		divide(&p, at, end);
	}
	type_free(t);
	type_free(u);
	return 0;
}
