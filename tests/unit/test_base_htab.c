/* Hash table and hash functions. */
#include "base/base.h"

#include "test.h"

struct item {
	struct hnode node;
	uint64_t key;
};

static struct item *find(const struct htab *t, uint64_t hash, uint64_t key)
{
	for (struct hnode *n = htab_first(t, hash); n; n = htab_next(n))
		if (container_of(n, struct item, node)->key == key)
			return container_of(n, struct item, node);
	return NULL;
}

static void what_was_inserted_is_found_until_removed(void)
{
	enum { N = 10000 };
	struct item *items = calloc(N, sizeof(*items));
	struct htab t;

	CHECK(items);
	CHECK_EQ(htab_init(&t), 0);
	CHECK(!htab_first(&t, 0));
	for (uint64_t i = 0; i < N; i++) {
		items[i].key = i;
		CHECK_EQ(htab_insert(&t, &items[i].node, i), 0); /* consecutive numbers as hashes */
	}
	CHECK_EQ(t.count, N);
	CHECK(t.n_slots >= N);
	for (uint64_t i = 0; i < N; i += 2)
		htab_remove(&t, &items[i].node);
	for (uint64_t i = 0; i < N; i++)
		CHECK(find(&t, i, i) == (i % 2 ? &items[i] : NULL));
	CHECK_EQ(t.count, N / 2);
	htab_destroy(&t);
	htab_destroy(&t);
	free(items);
}

static void equal_hashes_are_told_apart(void)
{
	struct item items[100];
	struct htab t;

	CHECK_EQ(htab_init(&t), 0);
	for (uint64_t i = 0; i < 100; i++) {
		items[i].key = i;
		CHECK_EQ(htab_insert(&t, &items[i].node, i % 3), 0);
	}
	for (uint64_t i = 0; i < 100; i++) {
		CHECK(find(&t, i % 3, i) == &items[i]);
		CHECK(!find(&t, (i + 1) % 3, i));
	}
	htab_destroy(&t);
}

/* Hashes that differ only in high or only in low bits must not form one long chain. */
static void poor_hashes_are_spread(void)
{
	enum { N = 4096 };
	struct item *items = calloc(N, sizeof(*items));
	struct htab t;

	CHECK(items);
	for (unsigned shift = 0; shift <= 48; shift += 12) {
		size_t longest = 0;

		CHECK_EQ(htab_init(&t), 0);
		for (uint64_t i = 0; i < N; i++)
			CHECK_EQ(htab_insert(&t, &items[i].node, i << shift), 0);
		for (size_t i = 0; i < t.n_slots; i++) {
			size_t len = 0;

			for (struct hnode *n = t.slots[i]; n; n = n->next)
				len++;
			longest = MAX(longest, len);
		}
		CHECK(longest <= 16);
		htab_destroy(&t);
	}
	free(items);
}

struct trail {
	struct htab *t;
	uint64_t keys[1000];
	size_t n;
};

static void note_and_free(struct hnode *n, void *arg)
{
	struct trail *tr = arg;

	tr->keys[tr->n++] = container_of(n, struct item, node)->key;
	htab_remove(tr->t, n);
	free(container_of(n, struct item, node));
}

static void fill_and_walk(struct trail *tr)
{
	struct htab t;

	tr->n = 0;
	tr->t = &t;
	CHECK_EQ(htab_init(&t), 0);
	for (uint64_t i = 0; i < 1000; i++) {
		struct item *it = malloc(sizeof(*it) + i % 7); /* addresses differ in every round */

		CHECK(it);
		it->key = i;
		CHECK_EQ(htab_insert(&t, &it->node, hash_u64(i)), 0);
	}
	htab_walk(&t, note_and_free, tr);
	CHECK_EQ(t.count, 0);
	CHECK_EQ(tr->n, 1000);
	htab_destroy(&t);
}

static void a_walk_may_free_and_its_order_is_the_same_every_time(void)
{
	static struct trail a, b;

	fill_and_walk(&a);
	fill_and_walk(&b);
	CHECK(memcmp(a.keys, b.keys, sizeof(a.keys)) == 0);
}

static void hashes_depend_on_every_byte_length_and_seed(void)
{
	uint8_t buf[40] = { 0 };
	uint64_t h = hash_bytes(buf, sizeof(buf), 1);

	CHECK(hash_bytes(buf, sizeof(buf), 1) == h);
	CHECK(hash_bytes(buf, sizeof(buf), 2) != h);
	for (size_t n = 0; n < sizeof(buf); n++) {
		CHECK(hash_bytes(buf, n, 1) != h);
		buf[n] = 1;
		CHECK(hash_bytes(buf, sizeof(buf), 1) != h);
		buf[n] = 0;
	}
	CHECK(hash_u64(1) != hash_u64(2));
}

TEST_MAIN(TEST(what_was_inserted_is_found_until_removed), TEST(equal_hashes_are_told_apart),
	  TEST(poor_hashes_are_spread), TEST(a_walk_may_free_and_its_order_is_the_same_every_time),
	  TEST(hashes_depend_on_every_byte_length_and_seed))
