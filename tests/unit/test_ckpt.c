/* The formats of checkpoints: what is damaged is refused and never read beyond its bounds. */
#include <sys/mman.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"
#include "test.h"

static void four_sums_are_those_of_the_blocks(void)
{
	char *p = malloc(4 * CKPT_BLOCK);
	uint64_t seed = 3;
	uint32_t sums[4];

	for (size_t i = 0; i < 4 * CKPT_BLOCK; i++)
		p[i] = (char)test_random(&seed);
	ckpt_sum_four(sums, p);
	for (size_t i = 0; i < 4; i++)
		CHECK_EQ(sums[i], crc32c(0, p + i * CKPT_BLOCK, CKPT_BLOCK));
	free(p);
}

/* ---- tables ---- */

static char local[1000], part[4096];

static struct ckpt_pieces pieces_of(void)
{
	struct sheaf_type *byte, *where;
	struct ckpt_pieces p = { .n = 0 };

	CHECK_EQ(sheaf_type_bytes(16, &byte), 0);
	CHECK_EQ(sheaf_type_vector(256, 1, 64, byte, &where), 0);
	CHECK_EQ(ckpt_pieces_add(&p, "local", local, NULL, sizeof(local), NULL), 0);
	CHECK_EQ(ckpt_pieces_add(&p, "part", part, NULL, sizeof(part), where), 0);
	CHECK_EQ(ckpt_pieces_add(&p, "short", part, NULL, 100, where), -EINVAL);
	sheaf_type_free(byte);
	sheaf_type_free(where);
	return p;
}

static void *table_of(const struct ckpt_pieces *p, size_t *len)
{
	struct ckpt_run runs[] = { { 0, 500 }, { 700, 3000 } };
	uint32_t sums[1] = { 77 };
	struct ckpt_table t = { .rank = 1,
				.n = 3,
				.number = 9,
				.stream = p->bytes,
				.data = 3500,
				.pieces = *p,
				.runs = runs,
				.n_runs = 2,
				.sums = sums,
				.n_sums = 1 };
	void *buf;

	CHECK_EQ(ckpt_table_encode(&t, &buf, len), 0);
	CHECK_EQ(ckpt_table_room(p, 2, 3500), *len);
	return buf;
}

static void a_table_comes_back(void)
{
	struct ckpt_pieces p = pieces_of();
	struct ckpt_table t;
	size_t len;
	void *buf = table_of(&p, &len);

	CHECK_EQ(ckpt_table_decode(buf, len, &t), 0);
	CHECK_EQ(t.rank, 1);
	CHECK_EQ(t.pieces.n, 2);
	CHECK_STR(t.pieces.v[1].name, "part");
	CHECK_EQ(t.pieces.v[1].n_groups, 1);
	CHECK_EQ(t.pieces.v[1].groups[0].count, 256);
	CHECK_EQ(t.runs[1].len, 3000);
	CHECK_EQ(ckpt_match(&p, &t, true), 0);
	CHECK_EQ(ckpt_match(&p, &t, false), -EINVAL);
	ckpt_table_free(&t);
	ckpt_pieces_free(&p);
	free(buf);
}

static void a_damaged_table_is_refused_or_bounded(void)
{
	struct ckpt_pieces p = pieces_of();
	uint64_t seed = 5;
	size_t len;
	char *good = table_of(&p, &len);

	for (int i = 0; i < 20000; i++) {
		size_t cut = i % 3 ? len : test_random(&seed) % len;
		char *bad = malloc(cut + 1);
		struct ckpt_table t;

		memcpy(bad, good, cut);
		for (int k = 0; cut && k < 1 + i % 4; k++)
			bad[test_random(&seed) % cut] =
				(char)(i % 2 ? test_random(&seed) : test_random(&seed) % 2 * 255);
		if (ckpt_table_decode(bad, cut, &t) == 0) {
			CHECK(t.data <= t.stream);
			CHECK(ckpt_match(&p, &t, true) <= 1);
			ckpt_table_free(&t);
		}
		free(bad);
	}
	ckpt_pieces_free(&p);
	free(good);
}

static void bytes_behind_the_stream_have_no_memory(void)
{
	struct ckpt_pieces p = pieces_of();
	struct iovec iov[4];
	size_t n = 0;

	CHECK_EQ(ckpt_stream_memory(&p, 1000, 4096, iov, 4, &n), 4096);
	n = 0;
	CHECK_EQ(ckpt_stream_memory(&p, 1000, 4097, iov, 4, &n), -EINVAL);
	CHECK_EQ(ckpt_stream_memory(&p, 6000, 1, iov, 4, &n), -EINVAL);
	CHECK_EQ(ckpt_stream_memory(&p, 1, UINT64_MAX, iov, 4, &n), -EINVAL);
	ckpt_pieces_free(&p);
}

static void two_pieces_of_one_name_do_not_match(void)
{
	struct ckpt_pieces p = pieces_of(), two = pieces_of(), one = { .v = p.v, .n = 1 };
	struct ckpt_table t = { .pieces = two, .stream = two.bytes }, same = t;

	one.bytes = p.v[0].bytes;
	same.pieces.v = p.v;
	CHECK_EQ(ckpt_match(&p, &t, true), 0);
	CHECK(ckpt_same_pieces(&same, &t));
	snprintf(two.v[1].name, sizeof(two.v[1].name), "local");
	CHECK_EQ(ckpt_match(&one, &t, true), -EUCLEAN);
	CHECK(!ckpt_same_pieces(&same, &t));
	ckpt_pieces_free(&p);
	ckpt_pieces_free(&two);
}

/* ---- manifests ---- */

static void every_changed_byte_of_a_manifest_is_noticed(void)
{
	struct ckpt_image images[2] = { { 0, 10, 20, 30 }, { 65536, 11, 21, 31 } };
	struct ckpt_manifest m = { .number = 7,
				   .since = 6,
				   .n = 2,
				   .one_file = true,
				   .taken = 1000,
				   .seconds = 1.5,
				   .images = images },
			     out;
	size_t len;
	char *text;

	CHECK_EQ(ckpt_manifest_text(&m, &text, &len), 0);
	CHECK_EQ(ckpt_manifest_parse(text, len, &out), 0);
	CHECK_EQ(out.images[1].base, 65536);
	CHECK_EQ(out.since, 6);
	ckpt_manifest_free(&out);
	for (size_t i = 0; i < len; i++) {
		CHECK_EQ(ckpt_manifest_parse(text, i, &out), -EUCLEAN);
		text[i] ^= 1;
		CHECK_EQ(ckpt_manifest_parse(text, len, &out), -EUCLEAN);
		text[i] ^= 1;
	}
	free(text);
}

/* ---- pruning ---- */

static void a_broken_chain_does_not_count_as_complete(void)
{
	/* the manifest of 7 is gone */
	struct ckpt_known v[] = { { 9, 8, true, false },  { 8, 7, true, false },
				  { 7, 6, false, false }, { 6, 5, true, false },
				  { 5, 0, true, false },  { 4, 0, true, false },
				  { 3, 0, false, false } };

	ckpt_known_choose(v, 7, 1);
	CHECK(!v[0].is_complete && !v[1].is_complete && !v[2].is_complete);
	CHECK(v[3].is_complete && v[3].stays);
	CHECK(v[4].is_complete && v[4].stays); /* 6 depends on it */
	CHECK(v[5].is_complete && !v[5].stays);
	CHECK(!v[6].stays);
}

static void only_canonical_names_are_checkpoints(void)
{
	CHECK_EQ(ckpt_number_of("0000000012"), 12);
	CHECK_EQ(ckpt_number_of("12345678901"), UINT64_C(12345678901));
	CHECK_EQ(ckpt_number_of("18446744073709551615"), UINT64_MAX);
	CHECK_EQ(ckpt_number_of("012345678901"), 0);
	CHECK_EQ(ckpt_number_of("12"), 0);
	CHECK_EQ(ckpt_number_of("0000000000"), 0);
	CHECK_EQ(ckpt_number_of("99999999999999999999999"), 0);
	CHECK_EQ(ckpt_number_of("-000000001"), 0);
	CHECK_EQ(ckpt_number_of("0000000012.old"), 0);
}

/* ---- changes of memory ---- */

static void memory_has_one_tracker_by_mprotect(void)
{
	char *mem = aligned_alloc(65536, 8 * 65536);
	struct ckpt_pieces p = { .n = 0 };
	struct ckpt_track *t, *other;
	struct ckpt_run *runs;
	uint64_t bytes;
	size_t n;

	CHECK_EQ(ckpt_pieces_add(&p, "mem", mem, NULL, 8 * 65536, NULL), 0);
	CHECK_EQ(ckpt_track_new(&p, MIB, true, true, &t), 0);
	CHECK_EQ(ckpt_track_begin(t, true, false), 0);
	CHECK_EQ(ckpt_track_new(&p, MIB, true, true, &other), -EADDRINUSE);
	/* and nothing became unprotected */
	mem[3 * 65536] = 1;
	CHECK_EQ(ckpt_track_runs(t, false, &runs, &n, &bytes), 0);
	CHECK_EQ(n, 1);
	CHECK_EQ(runs[0].at, 3 * 65536);
	free(runs);
	ckpt_track_free(t);
	CHECK_EQ(ckpt_track_new(&p, MIB, true, true, &other), 0);
	ckpt_track_free(other);
	ckpt_pieces_free(&p);
	free(mem);
}

static char initialised[65536] __attribute__((aligned(65536))) = { 1 };

/* One job has it by userfaultfd, where that is permitted, and has other memory by mprotect. */
static void a_tracker_takes_no_faults_of_another(void)
{
	char *mem = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ckpt_pieces p = { .n = 0 }, q = { .n = 0 };
	struct ckpt_track *t, *other;
	struct ckpt_run *runs;
	uint64_t bytes;
	size_t n;

	memset(mem, 1, MIB);
	CHECK_EQ(ckpt_pieces_add(&p, "mem", mem, NULL, MIB, NULL), 0);
	CHECK_EQ(ckpt_pieces_add(&p, "initialised", initialised, NULL, sizeof(initialised), NULL),
		 0);
	CHECK_EQ(ckpt_pieces_add(&q, "mem", mem, NULL, MIB, NULL), 0);
	CHECK_EQ(ckpt_track_new(&p, MIB, true, false, &t), 0);
	if (!ckpt_track_new(&q, MIB, true, false, &other)) {
		CHECK_EQ(ckpt_track_begin(t, true, false), 0);
		CHECK_EQ(ckpt_track_begin(other, true, false), 0);
		mem[5000] = 7;
		CHECK_EQ(ckpt_track_runs(t, false, &runs, &n, &bytes), 0);
		CHECK(bytes > 0);
		free(runs);
		CHECK_EQ(ckpt_track_runs(other, false, &runs, &n, &bytes), 0);
		CHECK(bytes > 0);
		free(runs);
		ckpt_track_free(other);
	}
	ckpt_track_free(t);
	ckpt_pieces_free(&p);
	ckpt_pieces_free(&q);
	munmap(mem, MIB);
}

/* A type may reach over memory that is not the program's, or not there. */
static void memory_between_runs_stays_as_it_is(void)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), far = 40 * page;
	char *mem =
		mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ckpt_pieces p = { .n = 0 };
	struct sheaf_type *block, *two;
	struct ckpt_span *v;
	struct ckpt_track *t;
	struct ckpt_run *runs;
	uint64_t bytes;
	size_t n;

	munmap(mem + 20 * page, 10 * page);
	CHECK_EQ(sheaf_type_bytes(8 * page, &block), 0);
	CHECK_EQ(sheaf_type_struct(2, (uint64_t[]){ 1, 1 }, (int64_t[]){ (int64_t)far, 5 },
				   (const struct sheaf_type *const[]){ block, block }, &two),
		 0);
	CHECK_EQ(ckpt_pieces_add(&p, "two", mem, two, 1, NULL), 0);
	CHECK_EQ(ckpt_areas(&p, page, 16, &v, &n), 0);
	CHECK_EQ(n, 2);
	CHECK_EQ(v[0].begin, (uintptr_t)(mem + page));
	CHECK_EQ(v[0].end, (uintptr_t)(mem + 8 * page));
	CHECK_EQ(v[1].begin, (uintptr_t)(mem + far));
	CHECK_EQ(v[1].end, (uintptr_t)(mem + far + 8 * page));
	free(v);
	CHECK_EQ(ckpt_areas(&p, page, 1, &v, &n), 0);
	CHECK_EQ(n, 1);
	CHECK_EQ(v[0].begin, (uintptr_t)(mem + far)); /* the longer one */
	free(v);
	for (int by_mprotect = 0; by_mprotect < 2; by_mprotect++) {
		CHECK_EQ(ckpt_track_new(&p, MIB, true, by_mprotect, &t), 0);
		CHECK_EQ(ckpt_track_begin(t, true, false), 0);
		mem[15 * page] = 1; /* in none */
		mem[far + 3 * page] = 1;
		CHECK_EQ(ckpt_track_runs(t, false, &runs, &n, &bytes), 0);
		CHECK_EQ(runs[0].at, 3 * page);
		CHECK_EQ(runs[0].len, page);
		CHECK_EQ(bytes, 2 * page); /* and both ends of the other run */
		free(runs);
		ckpt_track_free(t);
	}
	ckpt_pieces_free(&p);
	sheaf_type_free(two);
	sheaf_type_free(block);
	munmap(mem, 64 * page);
}

/* Pages with registered bytes in every one of them are one area, in whatever order they come. */
static void runs_within_a_page_are_one_area(void)
{
	const uint64_t page = 4096;
	char *mem = malloc(300 * 1000 + page);
	struct ckpt_pieces p = { .n = 0 };
	struct sheaf_type *block, *down;
	struct ckpt_span *v;
	size_t n;

	CHECK_EQ(sheaf_type_bytes(700, &block), 0);
	CHECK_EQ(sheaf_type_vector(300, 1, -1000, block, &down), 0);
	CHECK_EQ(ckpt_pieces_add(&p, "down", mem + 299 * 1000, down, 1, NULL), 0);
	CHECK_EQ(ckpt_areas(&p, page, 16, &v, &n), 0);
	CHECK_EQ(n, 1);
	CHECK(v[0].begin >= (uintptr_t)mem && v[0].begin < (uintptr_t)mem + page);
	CHECK(v[0].end <= (uintptr_t)mem + 300 * 1000 &&
	      v[0].end + page > (uintptr_t)mem + 299 * 1000);
	free(v);
	ckpt_pieces_free(&p);
	sheaf_type_free(down);
	sheaf_type_free(block);
	free(mem);
}

TEST_MAIN(TEST(four_sums_are_those_of_the_blocks), TEST(a_table_comes_back),
	  TEST(a_damaged_table_is_refused_or_bounded), TEST(bytes_behind_the_stream_have_no_memory),
	  TEST(two_pieces_of_one_name_do_not_match),
	  TEST(every_changed_byte_of_a_manifest_is_noticed),
	  TEST(only_canonical_names_are_checkpoints), TEST(memory_has_one_tracker_by_mprotect),
	  TEST(a_tracker_takes_no_faults_of_another), TEST(memory_between_runs_stays_as_it_is),
	  TEST(runs_within_a_page_are_one_area), TEST(a_broken_chain_does_not_count_as_complete))
