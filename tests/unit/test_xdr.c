/* The XDR cursor and every generated filter. Messages are copied to memory of exactly their size,
 * so that AddressSanitizer detects a read beyond the end. */
#include "xdr/sunrpc.h"

#include "xdr_fill.h"

#include "xdr/gen/sheaf_test.h"

#include "xdr/gen/record_test.h"

#include "xdr/gen/export_test.h"

#include "xdr/gen/rpc_test.h"

#include "xdr/gen/mount3_test.h"

#include "xdr/gen/nfs3_test.h"

#include "xdr/gen/nlm4_test.h"

#define WIRE_MAX (16 * MIB)

/* clang-format off */
#define TABLES(T) T(sheaf) T(record) T(export) T(rpc) T(mount3) T(nfs3) T(nlm4)
/* clang-format on */
#define TABLE(name) \
	{ cases_##name, bounds_##name, ARRAY_LEN(cases_##name), ARRAY_LEN(bounds_##name) },
static const struct {
	const struct wire_case *cases;
	const struct wire_bound *bounds;
	size_t n_cases, n_bounds;
} tables[] = { TABLES(TABLE) };

static uint8_t *wire; /* WIRE_MAX bytes to encode into */

static void *exact_copy(const void *p, size_t n)
{
	void *copy = malloc(n ? n : 1);

	CHECK(copy);
	return n ? memcpy(copy, p, n) : copy;
}

/* ---- every struct ---- */

static size_t encode(const struct wire_case *c, void *v)
{
	struct xdr x;

	xdr_encoder(&x, wire, WIRE_MAX);
	CHECK(c->xdr(&x, v));
	CHECK(xdr_used(&x) % 4 == 0);
	CHECK(xdr_used(&x) >= c->min_wire);
	return xdr_used(&x);
}

static void round_trip(const struct wire_case *c, struct fill *f)
{
	void *v = calloc(1, c->size), *back = calloc(1, c->size), *msg;
	struct arena a;
	struct xdr x;
	size_t len;

	CHECK(v && back);
	c->fill(f, v);
	len = encode(c, v);
	msg = exact_copy(wire, len);
	arena_init(&a, 0);
	xdr_decoder(&x, msg, len, &a);
	CHECK(c->xdr(&x, back));
	CHECK_EQ(xdr_left(&x), 0);
	CHECK(c->same(v, back));
	/* the exact buffer size suffices, and one byte less does not */
	xdr_encoder(&x, wire, len);
	CHECK(c->xdr(&x, back));
	CHECK(memcmp(wire, msg, len) == 0);
	xdr_encoder(&x, wire, len - 1);
	CHECK(!c->xdr(&x, back));
	arena_destroy(&a);
	arena_reset(&f->arena);
	free(msg);
	free(back);
	free(v);
}

static void each_case(void (*fn)(const struct wire_case *c, struct fill *f), bool large, int rounds)
{
	struct fill f = { .state = 1, .large = large };

	wire = malloc(WIRE_MAX);
	CHECK(wire);
	arena_init(&f.arena, 0);
	for (int i = 0; i < rounds; i++)
		for (size_t t = 0; t < ARRAY_LEN(tables); t++)
			for (size_t k = 0; k < tables[t].n_cases; k++)
				fn(&tables[t].cases[k], &f);
	arena_destroy(&f.arena);
	free(wire);
}

static void every_struct_survives_a_round_trip(void)
{
	each_case(round_trip, false, 100);
}

static void every_struct_survives_a_round_trip_at_its_bounds(void)
{
	each_case(round_trip, true, 4);
}

/* Every proper prefix of a message is refused, without a read beyond it. */
static void truncate_everywhere(const struct wire_case *c, struct fill *f)
{
	void *v = calloc(1, c->size), *msg;
	struct arena a;
	struct xdr x;
	size_t len;

	CHECK(v);
	c->fill(f, v);
	len = encode(c, v);
	arena_init(&a, 0);
	for (size_t n = 0; n < len; n++) {
		msg = exact_copy(wire, n);
		xdr_decoder(&x, msg, n, &a);
		CHECK(!c->xdr(&x, v));
		arena_reset(&a);
		free(msg);
	}
	arena_destroy(&a);
	arena_reset(&f->arena);
	free(v);
}

static void every_truncated_message_is_refused(void)
{
	each_case(truncate_everywhere, false, 5);
}

/* Random bytes are decoded or refused; a decoded message encodes to the same bytes. */
static void decode_noise(const struct wire_case *c, struct fill *f)
{
	void *v = calloc(1, c->size), *msg;
	size_t len = c->min_wire + fill_u64(f) % 64;
	struct arena a;
	struct xdr x;

	CHECK(v);
	memset(wire, 0, len);
	for (size_t i = 0; i < len / 16; i++)
		wire[fill_u64(f) % len] = (uint8_t)(fill_u64(f) % 8);
	msg = exact_copy(wire, len);
	arena_init(&a, MIB);
	xdr_decoder(&x, msg, len, &a);
	if (c->xdr(&x, v)) {
		size_t used = xdr_used(&x);

		CHECK_EQ(encode(c, v), used);
		CHECK(memcmp(wire, msg, used) == 0);
	}
	arena_destroy(&a);
	free(msg);
	free(v);
}

static void noise_is_decoded_or_refused(void)
{
	each_case(decode_noise, false, 300);
}

/* ---- every bound ---- */

/* An otherwise empty message in which one count is `n`, with memory for that many elements. */
static bool decode_count(const struct wire_bound *b, size_t n)
{
	size_t payload = n * b->elem_wire, len = b->min_wire + ((payload + 3) & ~(size_t)3);
	uint8_t *msg = calloc(1, len);
	void *v = calloc(1, b->size);
	struct arena a;
	struct xdr x;
	uint32_t count = (uint32_t)n;
	bool ok;

	CHECK(msg && v);
	xdr_encoder(&x, msg + b->at, 4);
	CHECK(xdr_u32(&x, &count));
	if (b->text)
		memset(msg + b->at + 4, 'a', payload);
	arena_init(&a, 0);
	xdr_decoder(&x, msg, len, &a);
	ok = b->xdr(&x, v) && xdr_left(&x) == 0;
	if (ok) { /* a decoded value can be encoded */
		uint8_t *again = malloc(len);

		xdr_encoder(&x, again, len);
		CHECK(b->xdr(&x, v));
		CHECK(memcmp(again, msg, len) == 0);
		free(again);
	}
	arena_destroy(&a);
	free(v);
	free(msg);
	return ok;
}

static void check_bounds(const struct wire_bound *b, size_t n)
{
	for (; n > 0; n--, b++) {
		if (!decode_count(b, b->bound) || decode_count(b, b->bound + 1)) {
			fprintf(stderr, "%s<%zu> is not bounded as it should be\n", b->name,
				b->bound);
			exit(1);
		}
		CHECK(!decode_count(b, b->bound + 4096 / b->elem_wire));
	}
}

static void every_bound_is_enforced_on_decoding(void)
{
	for (size_t t = 0; t < ARRAY_LEN(tables); t++)
		check_bounds(tables[t].bounds, tables[t].n_bounds);
}

static void bounds_are_enforced_on_encoding(void)
{
	static uint8_t buf[MSG_MAX], data[INLINE_MAX + 1];
	struct wire_read_res r = { .data = { INLINE_MAX + 1, data } };
	static uint32_t gids[33];
	struct wire_req_head h = { .n_gids = 33, .gids = gids };
	struct xdr x;

	xdr_encoder(&x, buf, sizeof(buf));
	CHECK(!xdr_wire_read_res(&x, &r));
	r.data.len--;
	xdr_encoder(&x, buf, sizeof(buf));
	CHECK(xdr_wire_read_res(&x, &r));
	xdr_encoder(&x, buf, sizeof(buf));
	CHECK(!xdr_wire_req_head(&x, &h));
	h.n_gids--;
	xdr_encoder(&x, buf, sizeof(buf));
	CHECK(xdr_wire_req_head(&x, &h));
}

/* ---- the cursor ---- */

static void numbers_are_big_endian(void)
{
	static const uint8_t want[] = { 0x01, 0x02, 0x03, 0x04, 0xff, 0xff, 0xff, 0xfe, 0x01, 0x02,
					0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0xff, 0xff, 0xff, 0xff,
					0xff, 0xff, 0xff, 0xfd, 0x00, 0x00, 0x00, 0x01 };
	uint32_t a = 0x01020304;
	int32_t b = -2;
	uint64_t c = UINT64_C(0x0102030405060708);
	int64_t d = -3;
	bool e = true;
	uint8_t buf[sizeof(want)];
	struct xdr x;

	xdr_encoder(&x, buf, sizeof(buf));
	CHECK(xdr_u32(&x, &a) && xdr_i32(&x, &b) && xdr_u64(&x, &c) && xdr_i64(&x, &d) &&
	      xdr_bool(&x, &e));
	CHECK(memcmp(buf, want, sizeof(want)) == 0);
	CHECK(!xdr_u32(&x, &a));
	xdr_decoder(&x, buf, sizeof(buf), NULL);
	a = 0, b = 0, c = 0, d = 0, e = false;
	CHECK(xdr_u32(&x, &a) && xdr_i32(&x, &b) && xdr_u64(&x, &c) && xdr_i64(&x, &d) &&
	      xdr_bool(&x, &e));
	CHECK(a == 0x01020304 && b == -2 && c == UINT64_C(0x0102030405060708) && d == -3 && e);
}

static void a_bool_is_zero_or_one(void)
{
	static const uint8_t two[4] = { 0, 0, 0, 2 };
	struct xdr x;
	bool v;

	xdr_decoder(&x, two, sizeof(two), NULL);
	CHECK(!xdr_bool(&x, &v));
}

static void padding_is_zero(void)
{
	uint8_t msg[8] = { 0, 0, 0, 1, 'x', 0, 0, 0 }, out[4];
	struct wire_bytes b;
	struct xdr x;

	xdr_decoder(&x, msg, sizeof(msg), NULL);
	CHECK(xdr_bytes(&x, &b, 8) && b.len == 1 && b.p == msg + 4 && xdr_left(&x) == 0);
	msg[7] = 1;
	xdr_decoder(&x, msg, sizeof(msg), NULL);
	CHECK(!xdr_bytes(&x, &b, 8));
	xdr_decoder(&x, msg + 4, 4, NULL);
	CHECK(!xdr_fixed(&x, out, 3));
	xdr_decoder(&x, msg, 7, NULL); /* the padding is missing */
	CHECK(!xdr_bytes(&x, &b, 8));
}

static void text_holds_no_nul(void)
{
	static const uint8_t msg[8] = { 0, 0, 0, 3, 'a', 0, 'b', 0 };
	struct wire_bytes b = { 3, msg + 4 };
	uint8_t buf[8];
	struct xdr x;

	xdr_encoder(&x, buf, sizeof(buf));
	CHECK(!xdr_text(&x, &b, 8));
	xdr_decoder(&x, msg, sizeof(msg), NULL);
	CHECK(!xdr_text(&x, &b, 8));
	xdr_decoder(&x, msg, sizeof(msg), NULL);
	CHECK(xdr_bytes(&x, &b, 8));
}

static void an_array_that_cannot_be_there_takes_no_memory(void)
{
	static const uint8_t msg[8] = { 0, 0, 0x10, 0 };
	struct arena a;
	struct xdr x;
	uint32_t n;
	void *items;

	arena_init(&a, 0);
	xdr_decoder(&x, msg, sizeof(msg), &a);
	CHECK(!xdr_array(&x, &n, &items, 1 << 20, 4, 1024));
	CHECK_EQ(a.held, 0);
	arena_destroy(&a);
}

static void a_full_arena_refuses_an_array(void)
{
	uint8_t msg[4 + 64] = { 0, 0, 0, 16 };
	struct arena a;
	struct xdr x;
	uint32_t n;
	void *items;

	arena_init(&a, 100);
	xdr_decoder(&x, msg, sizeof(msg), &a);
	CHECK(!xdr_array(&x, &n, &items, 16, 4, 8));
	xdr_decoder(&x, msg, sizeof(msg), &a);
	CHECK(xdr_array(&x, &n, &items, 16, 4, 4));
	xdr_decoder(&x, msg, sizeof(msg), NULL);
	CHECK(!xdr_array(&x, &n, &items, 16, 4, 4));
	arena_destroy(&a);
}

static void an_empty_message_without_memory_is_refused(void)
{
	struct wire_handle h;
	struct xdr x;

	xdr_decoder(&x, NULL, 0, NULL);
	CHECK(!xdr_wire_handle(&x, &h));
}

static void enums_know_their_names(void)
{
	CHECK_STR(wire_op_row(OP_READ)->name, "read");
	CHECK_STR(wire_op_row(OP_OBJSTAT)->name, "objstat");
	CHECK_STR(wire_rec_kind_name(REC_TRUNC_BEGIN), "trunc_begin");
	CHECK_STR(wire_frame_kind_name(FRAME_HELLO), "hello");
	CHECK_STR(wire_link_role_name(LINK_SERVER), "server");
	CHECK(!wire_op_row(0));
	CHECK(!wire_op_row(UINT32_MAX));
	CHECK_STR(wire_frame_kind_name(UINT32_MAX), "?");
}

static void a_frame_head_has_its_stated_size(void)
{
	struct wire_frame_head h = { .magic = SHEAF_MAGIC };
	uint8_t buf[FRAME_HEAD];
	struct xdr x;

	xdr_encoder(&x, buf, sizeof(buf));
	CHECK(xdr_wire_frame_head(&x, &h));
	CHECK_EQ(xdr_left(&x), 0);
	CHECK(memcmp(buf, "SHF1", 4) == 0);
	CHECK(FENCE_KEEP == UINT64_MAX);
}

/* A list of n entries, in memory of exactly its size. */
static bool decode_list(uint32_t n, struct wire_mount_dump *out, struct arena *a)
{
	size_t len = (size_t)n * 12 + 4;
	uint8_t *msg = malloc(len);
	uint32_t one = 1, zero = 0;
	struct xdr x;
	bool ok;

	CHECK(msg);
	xdr_encoder(&x, msg, len);
	for (uint32_t i = 0; i < n; i++)
		CHECK(xdr_u32(&x, &one) && xdr_u32(&x, &zero) && xdr_u32(&x, &zero));
	CHECK(xdr_u32(&x, &zero));
	xdr_decoder(&x, msg, len, a);
	ok = xdr_wire_mount_dump(&x, out) && xdr_left(&x) == 0;
	free(msg);
	return ok;
}

static void lists_end_at_their_bound(void)
{
	static const uint32_t sizes[] = { 0, 1, 4, 5, 8, 9, 1023, MOUNT_LIST_MAX };
	struct wire_mount_dump d;
	struct arena a;

	arena_init(&a, MIB);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		CHECK(decode_list(sizes[i], &d, &a));
		CHECK_EQ(d.n_entries, sizes[i]);
	}
	CHECK(!decode_list(MOUNT_LIST_MAX + 1, &d, &a));
	arena_destroy(&a);
	arena_init(&a, 4096); /* a full arena refuses */
	CHECK(!decode_list(1000, &d, &a));
	arena_destroy(&a);
}

static void a_union_without_the_arm_is_refused(void)
{
	struct wire_rpc_denial d = { .code = 2 };
	struct wire_new_time3 t;
	uint32_t how = 3;
	uint8_t msg[16];
	struct xdr x;

	xdr_encoder(&x, msg, sizeof(msg));
	CHECK(!xdr_wire_rpc_denial(&x, &d));
	xdr_encoder(&x, msg, sizeof(msg));
	CHECK(xdr_u32(&x, &how));
	xdr_decoder(&x, msg, 4, NULL);
	CHECK(!xdr_wire_new_time3(&x, &t));
}

TEST_MAIN(TEST(numbers_are_big_endian), TEST(a_bool_is_zero_or_one), TEST(padding_is_zero),
	  TEST(text_holds_no_nul), TEST(an_array_that_cannot_be_there_takes_no_memory),
	  TEST(a_full_arena_refuses_an_array), TEST(an_empty_message_without_memory_is_refused),
	  TEST(enums_know_their_names), TEST(a_frame_head_has_its_stated_size),
	  TEST(every_struct_survives_a_round_trip),
	  TEST(every_struct_survives_a_round_trip_at_its_bounds),
	  TEST(every_truncated_message_is_refused), TEST(noise_is_decoded_or_refused),
	  TEST(every_bound_is_enforced_on_decoding), TEST(bounds_are_enforced_on_encoding),
	  TEST(lists_end_at_their_bound), TEST(a_union_without_the_arm_is_refused))
