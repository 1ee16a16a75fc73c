/* Layouts, accesses and views: known examples, then random ones, compared with a model that works
 * byte by byte. */
#include "layout/layout.h"

#include "test.h"

#define CASES 120000
#define MAX_LISTS 10
#define MAX_TOTAL 240
#define ARENA 512
#define OFFSET_MAX ((uint64_t)INT64_MAX)

static uint64_t rng = 20240607;

static uint64_t below(uint64_t n)
{
	return n ? test_random(&rng) % n : 0;
}

/* ---------------------------------------------------------------- known examples */

static void stripes_go_round_from_the_start_index(void)
{
	struct layout l = { 4096, 3, 1 };
	uint32_t index;
	uint64_t off;

	layout_locate(&l, 0, &index, &off);
	CHECK_EQ(index, 1);
	CHECK_EQ(off, 0);
	layout_locate(&l, 4096 * 2 + 5, &index, &off);
	CHECK_EQ(index, 0);
	CHECK_EQ(off, 5);
	layout_locate(&l, 4096 * 3 + 7, &index, &off);
	CHECK_EQ(index, 1);
	CHECK_EQ(off, 4096 + 7);
	CHECK_EQ(layout_file_offset(&l, 1, 4096 + 7), 4096 * 3 + 7);
	CHECK_EQ(layout_object_size(&l, 1, 4096 * 3 + 7), 4096 + 7);
	CHECK_EQ(layout_object_size(&l, 2, 4096 * 3 + 7), 4096);
	CHECK_EQ(layout_object_size(&l, 2, 4096), 0);
	CHECK_EQ(layout_file_end(&l, 2, 0), 0);
	CHECK_EQ(layout_file_end(&l, 2, 1), 4096 + 1);
	CHECK_EQ(layout_file_end(&l, 1, 4096), 4096);
}

static void offsets_up_to_the_largest_do_not_overflow(void)
{
	static const struct layout ls[] = { { 1, 1, 0 },	{ 1, 256, 17 },
					    { 65536, 4, 3 },	{ UINT32_MAX, 256, 255 },
					    { 4096, 255, 100 }, { 12288, 7, 6 } };

	for (size_t i = 0; i < ARRAY_LEN(ls); i++) {
		uint64_t off = OFFSET_MAX - 1, obj;
		uint32_t index;

		layout_locate(&ls[i], off, &index, &obj);
		CHECK(layout_file_offset(&ls[i], index, obj) == off);
		CHECK(layout_file_end(&ls[i], index, obj + 1) == OFFSET_MAX);
		CHECK(layout_object_size(&ls[i], index, OFFSET_MAX) == obj + 1);
	}
	CHECK(layout_file_offset(&ls[3], 0, UINT64_MAX) == UINT64_MAX);
	CHECK(layout_file_end(&ls[3], 0, UINT64_MAX) == UINT64_MAX);
}

static void accesses_with_wrong_totals_are_refused(void)
{
	char b[8];
	struct iovec m[2] = { { b, 4 }, { b, 4 } };
	struct extent f[2] = { { 0, 5 }, { OFFSET_MAX - 3, 3 } };
	struct access a;

	CHECK_EQ(access_init(&a, m, 2, f, 2), 0);
	CHECK_EQ(a.total, 8);
	CHECK_EQ(access_init(&a, m, 1, f, 2), -EINVAL);
	CHECK_EQ(access_init(&a, m, 2, f, 1), -EINVAL);
	CHECK_EQ(access_init(&a, m, 0, f, 0), 0);
	f[1].offset++;
	CHECK_EQ(access_init(&a, m, 2, f, 2), -EFBIG);
	f[1] = (struct extent){ UINT64_MAX, 3 };
	CHECK_EQ(access_init(&a, m, 2, f, 2), -EFBIG);
	f[1] = (struct extent){ 2, UINT64_MAX };
	CHECK_EQ(access_init(&a, m, 2, f, 2), -EFBIG);
	m[0].iov_len = m[1].iov_len = OFFSET_MAX;
	f[0] = f[1] = (struct extent){ 0, OFFSET_MAX };
	CHECK_EQ(access_init(&a, m, 2, f, 2), -EINVAL);
	CHECK_EQ(access_init(&a, m, 1, f, 1), 0);
}

static void a_contiguous_access_is_one_extent_per_target(void)
{
	static char b;
	struct layout l = { 65536, 4, 2 };
	struct iovec m = { &b, 4 * MIB };
	struct extent f = { 12345, 4 * MIB }, out[4];
	struct access a;
	uint64_t sum = 0;

	CHECK_EQ(access_init(&a, &m, 1, &f, 1), 0);
	for (uint32_t t = 0; t < 4; t++) {
		struct cursor c = { 0 };
		struct view v;

		CHECK_EQ(view_plan(&v, &a, &l, t, &c, out, 4, UINT64_MAX), 1);
		CHECK_EQ(out[0].offset, layout_object_size(&l, t, 12345));
		CHECK_EQ(out[0].length, v.length);
		CHECK_EQ(c.pos, a.total);
		sum += v.length;
		CHECK_EQ(view_plan(&v, &a, &l, t, &c, out, 4, UINT64_MAX), 0);
	}
	CHECK_EQ(sum, 4 * MIB);
}

/* 2^62 bytes in one access: the cost must not depend on the number of stripes. */
static void huge_accesses_cost_nothing_and_are_exact(void)
{
	struct layout l = { 4096, 3, 1 };
	uint64_t half = UINT64_C(1) << 62, got, sum = 0;
	struct iovec m[2] = { { (void *)64, half }, { (void *)64, half - 1 } }, iov[4];
	struct extent f[2] = { { 0, half }, { half, half - 1 } }, out[4];
	struct access a;

	CHECK_EQ(access_init(&a, m, 2, f, 2), 0);
	for (uint32_t t = 0; t < 3; t++) {
		struct cursor c = { 0 };
		struct view v;

		CHECK_EQ(view_plan(&v, &a, &l, t, &c, out, 4, UINT64_MAX), 1);
		CHECK_EQ(out[0].offset, 0);
		CHECK(out[0].length == layout_object_size(&l, t, OFFSET_MAX));
		sum += out[0].length;
		CHECK_EQ(view_iov(&v, v.length - 1, 1, iov, 4, &got), 1);
		CHECK_EQ(got, 1);
		CHECK((uintptr_t)iov[0].iov_base ==
		      64 + layout_file_offset(&l, t, v.length - 1) - half);
	}
	CHECK(sum == OFFSET_MAX);
}

/* ---------------------------------------------------------------- the model */

struct model {
	char arena[ARENA];
	struct layout l;
	struct iovec mem[MAX_LISTS + 1];
	struct extent file[MAX_LISTS + 1];
	size_t n_mem, n_file, total;
	char *addr[MAX_TOTAL]; /* by list position */
	uint64_t off[MAX_TOTAL];
	unsigned covered[MAX_TOTAL];
	struct access a;
	/* the stream of the current view */
	size_t stream[MAX_TOTAL], n_stream;
};

static uint64_t random_offset(const struct model *m, uint64_t len)
{
	switch (below(8)) {
	case 0:
		return below(OFFSET_MAX - len + 1);
	case 1:
		return (UINT64_C(1) << 32) - below(64);
	case 2:
		return OFFSET_MAX - len - below(100);
	default:
		return below(8 * (uint64_t)m->l.unit * m->l.width);
	}
}

static void make_layout(struct layout *l)
{
	l->unit = below(8) ? 1 + (uint32_t)below(24) :
		  below(2) ? 4096 * (1 + (uint32_t)below(64)) :
			     UINT32_MAX - (uint32_t)below(3);
	l->width = 1 + (uint32_t)below(below(8) ? 6 : 256);
	l->start = (uint32_t)below(l->width);
}

/* Cuts the total into random lengths, some of them 0. */
static size_t cut(size_t total, uint64_t *len)
{
	size_t n = 0;

	while (total && n < MAX_LISTS - 1) {
		size_t most = below(2) ? 40 : MAX_TOTAL;

		len[n] = below(5) ? 1 + below(MIN(total, most)) : 0;
		total -= len[n++];
	}
	len[n++] = total;
	return n;
}

/* Uses one block repeatedly, with increasing or decreasing offsets. */
static void make_even(struct model *m, uint64_t block)
{
	uint64_t stride = below(2) ? below(60) : below(3 * (uint64_t)m->l.unit * m->l.width);
	uint64_t base = random_offset(m, block) / 4;
	bool down = below(4) == 0;
	size_t pos = 0;

	for (size_t i = 0; i < m->n_file; i++) {
		uint64_t off = base + (down ? m->n_file - 1 - i : i) * stride;

		m->file[i] = (struct extent){ off, block };
		for (uint64_t k = 0; k < block; k++)
			m->off[pos++] = off + k;
	}
}

static void make_lists(struct model *m)
{
	uint64_t len[MAX_LISTS], block = below(3) ? 0 : 1 + below(20);
	size_t pos = 0;

	m->total = below(10) ? 1 + below(MAX_TOTAL) : 0;
	if (block) {
		m->n_file = 1 + below(MIN(MAX_LISTS, MAX_TOTAL / block));
		m->total = m->n_file * block;
	}
	m->n_mem = cut(m->total, len);
	for (size_t i = 0; i < m->n_mem; i++) {
		char *p = m->arena + below(ARENA - len[i] + 1);

		if (i && below(3) == 0) { /* adjacent to the previous piece */
			char *end = (char *)m->mem[i - 1].iov_base + m->mem[i - 1].iov_len;

			if (end + len[i] <= m->arena + ARENA)
				p = end;
		}
		m->mem[i] = (struct iovec){ p, len[i] };
		for (uint64_t k = 0; k < len[i]; k++)
			m->addr[pos++] = p + k;
	}
	if (block) {
		make_even(m, block);
		return;
	}
	pos = 0;
	m->n_file = cut(m->total, len);
	for (size_t i = 0; i < m->n_file; i++) {
		uint64_t off = random_offset(m, len[i]);

		if (i && below(3) == 0 && m->file[i - 1].offset < OFFSET_MAX / 2)
			off = m->file[i - 1].offset + m->file[i - 1].length;
		m->file[i] = (struct extent){ off, len[i] };
		for (uint64_t k = 0; k < len[i]; k++)
			m->off[pos++] = off + k;
	}
}

static uint32_t model_locate(const struct layout *l, uint64_t off, uint64_t *obj)
{
	uint64_t stripe = off / l->unit;

	*obj = stripe / l->width * l->unit + off % l->unit;
	return (uint32_t)((stripe + l->start) % l->width);
}

/* ---------------------------------------------------------------- comparing */

static void check_extents(struct model *m, uint32_t t, const struct view *v,
			  const struct extent *out, size_t n, size_t *next)
{
	m->n_stream = 0;
	for (size_t i = 0; i < n; i++) {
		CHECK(out[i].length > 0);
		if (i) /* extents are maximal */
			CHECK(out[i - 1].offset + out[i - 1].length != out[i].offset);
		for (uint64_t k = 0; k < out[i].length; k++) {
			uint64_t obj = 0;

			while (*next < m->total && model_locate(&m->l, m->off[*next], &obj) != t)
				++*next;
			CHECK(*next < m->total);
			CHECK(obj == out[i].offset + k);
			m->covered[*next]++;
			m->stream[m->n_stream++] = (*next)++;
		}
	}
	CHECK_EQ(v->length, m->n_stream);
}

static void check_iov(struct model *m, struct view *v, uint64_t at, uint64_t len, size_t max)
{
	struct iovec iov[MAX_TOTAL];
	uint64_t got, done = 0;
	size_t n = view_iov(v, at, len, iov, max, &got);

	CHECK(n <= max && got <= len && (got == len || n == max) && (!len || n));
	for (size_t i = 0; i < n; i++) {
		CHECK(iov[i].iov_len > 0);
		if (i)
			CHECK((char *)iov[i - 1].iov_base + iov[i - 1].iov_len != iov[i].iov_base);
		for (size_t k = 0; k < iov[i].iov_len; k++)
			CHECK(m->addr[m->stream[at + done++]] == (char *)iov[i].iov_base + k);
	}
	CHECK_EQ(done, got);
	if (got < len) /* the next piece is not adjacent */
		CHECK(m->addr[m->stream[at + got]] !=
		      (char *)iov[n - 1].iov_base + iov[n - 1].iov_len);
}

static void check_copies(struct model *m, struct view *v, uint64_t at, uint64_t len)
{
	char buf[MAX_TOTAL], before[ARENA];

	for (size_t i = 0; i < ARENA; i++)
		m->arena[i] = (char)test_random(&rng);
	view_copy_out(v, at, buf, len);
	for (uint64_t k = 0; k < len; k++)
		CHECK(buf[k] == *m->addr[m->stream[at + k]]);
	for (uint64_t k = 0; k < len; k++)
		buf[k] = (char)test_random(&rng);
	memcpy(before, m->arena, ARENA);
	for (uint64_t k = 0; k < len; k++)
		before[m->addr[m->stream[at + k]] - m->arena] = buf[k];
	view_copy_in(v, at, buf, len);
	CHECK(!memcmp(before, m->arena, ARENA));
	for (uint64_t k = 0; k < len; k++)
		before[m->addr[m->stream[at + k]] - m->arena] = 0;
	view_zero(v, at, len);
	CHECK(!memcmp(before, m->arena, ARENA));
}

static void check_view(struct model *m, struct view *v)
{
	struct view copy = *v;
	uint64_t got = 0;

	for (int i = 0; i < 6; i++) {
		uint64_t at = below(v->length + 1);

		check_iov(m, v, at, below(v->length - at + 1), below(2) ? 1 + below(3) : MAX_TOTAL);
	}
	for (uint64_t at = 0; at < v->length; at += got) { /* forward in small steps */
		struct iovec iov[2];
		uint64_t step = 1 + below(9);

		CHECK(view_iov(&copy, at, MIN(v->length - at, step), iov, 2, &got) > 0);
		CHECK(iov[0].iov_base == m->addr[m->stream[at]]);
	}
	if (below(4) == 0) {
		uint64_t at = below(v->length + 1);

		check_copies(m, v, at, below(v->length - at + 1));
	}
}

static void check_target(struct model *m, uint32_t t)
{
	struct cursor c = { 0 };
	size_t next = 0, n;
	struct extent out[MAX_LISTS];
	struct view v, span;

	for (;;) {
		size_t max = 1 + below(below(2) ? 3 : MAX_LISTS);
		uint64_t max_bytes = below(2) ? UINT64_MAX : 1 + below(64);
		struct cursor from = c;

		n = view_plan(&v, &m->a, &m->l, t, &c, out, max, max_bytes);
		if (!n)
			break;
		CHECK(n <= max && v.length <= max_bytes);
		check_extents(m, t, &v, out, n, &next);
		check_view(m, &v);
		view_span(&span, &m->a, &m->l, t, &from, c.pos); /* the same without extents */
		CHECK_EQ(span.length, v.length);
		CHECK_EQ(from.pos, c.pos);
		check_view(m, &span);
		if (v.length < max_bytes && n < max)
			/* the plan ends early only when a limit is reached */
			CHECK_EQ(c.pos, m->total);
	}
	CHECK_EQ(v.length, 0);
	CHECK_EQ(c.pos, m->total);
}

static void check_before(struct model *m)
{
	uint64_t size = m->total && below(4) ? m->off[below(m->total)] + below(3) :
					       random_offset(m, 0);
	size_t n = 0;

	while (n < m->total && m->off[n] < size)
		n++;
	CHECK_EQ(access_before(&m->a, size), n);
}

static void check_sizes(const struct model *m)
{
	uint64_t size = random_offset(m, 0), obj, largest = 0;
	uint32_t t = (uint32_t)below(m->l.width), index;
	uint64_t end = layout_object_size(&m->l, t, size);
	uint64_t file_end = layout_file_end(&m->l, t, end);

	CHECK(file_end <= size); /* the smallest size with this object size */
	CHECK(layout_object_size(&m->l, t, file_end) == end);
	if (end)
		CHECK(layout_object_size(&m->l, t, file_end - 1) == end - 1);
	for (uint32_t i = 0; i < m->l.width; i++)
		largest =
			MAX(largest, layout_file_end(&m->l, i, layout_object_size(&m->l, i, size)));
	CHECK(largest == size);
	layout_locate(&m->l, size, &index, &obj);
	CHECK_EQ(index, model_locate(&m->l, size, &end));
	CHECK(obj == end);
	CHECK(layout_file_offset(&m->l, index, obj) == size);
	CHECK(layout_object_size(&m->l, index, size) == obj);
}

static void random_accesses_agree_with_the_model(void)
{
	static struct model m;

	for (int i = 0; i < CASES; i++) {
		uint32_t width;

		make_layout(&m.l);
		make_lists(&m);
		CHECK_EQ(access_init(&m.a, m.mem, m.n_mem, m.file, m.n_file), 0);
		CHECK_EQ(m.a.total, m.total);
		memset(m.covered, 0, sizeof(m.covered));
		width = m.l.width;
		for (uint32_t t = 0; t < width; t++)
			check_target(&m, t);
		for (size_t k = 0; k < m.total; k++)
			CHECK_EQ(m.covered[k], 1);
		check_before(&m);
		check_sizes(&m);
	}
}

TEST_MAIN(TEST(stripes_go_round_from_the_start_index),
	  TEST(offsets_up_to_the_largest_do_not_overflow),
	  TEST(accesses_with_wrong_totals_are_refused),
	  TEST(a_contiguous_access_is_one_extent_per_target),
	  TEST(huge_accesses_cost_nothing_and_are_exact),
	  TEST(random_accesses_agree_with_the_model))
