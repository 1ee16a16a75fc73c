/* The lock table, compared with a model that works byte by byte: held ranges, conflicts, grant
 * order, and deadlocks. At least one owner can always proceed. */
#include "meta/locks.h"

#include "test.h"

enum { FILES = 3, OWNERS = 5, BYTES = 12, ROUNDS = 60000 };
enum { FREE, SHARED, EXCLUSIVE };

static struct lock_table table;
static struct lock_space files[FILES];
static struct lock_wait waits[OWNERS]; /* at most one per owner */
static bool waiting[OWNERS];
static uint8_t model[FILES][OWNERS][BYTES];
static uint64_t rnd;

static uint64_t below(uint64_t n)
{
	return test_random(&rnd) % n;
}

/* Two owners have the same number in different sessions. */
static struct range wish(uint64_t owner)
{
	uint64_t a = below(BYTES), b = below(BYTES);

	return (struct range){ .start = MIN(a, b),
			       .last = MAX(a, b) == BYTES - 1 ? UINT64_MAX : MAX(a, b),
			       .session = owner / 2,
			       .owner = owner % 2,
			       .exclusive = below(2) };
}

static bool covers(const struct range *r, uint64_t byte)
{
	return r->start <= byte && byte <= r->last;
}

static bool of(const struct range *r, uint64_t owner)
{
	return r->session == owner / 2 && r->owner == owner % 2;
}

/* ---- the model ---- */

static bool holder_blocks(int f, int holder, int owner, const struct range *want)
{
	for (uint64_t b = 0; holder != owner && b < BYTES; b++)
		if (covers(want, b) && (want->exclusive ? model[f][holder][b] != FREE :
							  model[f][holder][b] == EXCLUSIVE))
			return true;
	return false;
}

static int file_of(const struct lock_wait *w)
{
	return (int)(w->space - files);
}

static bool wish_blocks(int first, int owner)
{
	const struct range *a = &waits[first].want, *b = &waits[owner].want;

	if (!waiting[first] || waits[first].space != waits[owner].space ||
	    waits[first].number >= waits[owner].number)
		return false;
	for (uint64_t k = 0; k < BYTES; k++)
		if (covers(a, k) && covers(b, k) && (a->exclusive || b->exclusive))
			return true;
	return false;
}

/* reach[a][b]: a waits for b, directly or through other owners. */
static void closure(bool reach[OWNERS][OWNERS], bool by_line)
{
	for (int a = 0; a < OWNERS; a++)
		for (int b = 0; b < OWNERS; b++)
			reach[a][b] = waiting[a] &&
				      (holder_blocks(file_of(&waits[a]), b, a, &waits[a].want) ||
				       (by_line && wish_blocks(b, a)));
	for (int k = 0; k < OWNERS; k++)
		for (int a = 0; a < OWNERS; a++)
			for (int b = 0; b < OWNERS; b++)
				reach[a][b] |= reach[a][k] && reach[k][b];
}

static bool model_conflict(int f, int owner, const struct range *want)
{
	for (int o = 0; o < OWNERS; o++)
		if (holder_blocks(f, o, owner, want))
			return true;
	return false;
}

static bool model_turn(int owner)
{
	bool reach[OWNERS][OWNERS];

	if (model_conflict(file_of(&waits[owner]), owner, &waits[owner].want))
		return false;
	closure(reach, true);
	for (int o = 0; o < OWNERS; o++)
		if (wish_blocks(o, owner) && !reach[o][owner])
			return false;
	return true;
}

static void model_set(int f, int owner, const struct range *r, uint8_t kind)
{
	for (uint64_t b = 0; b < BYTES; b++)
		if (covers(r, b))
			model[f][owner][b] = kind;
}

/* ---- checks ---- */

static void check_held(int f)
{
	uint8_t seen[OWNERS][BYTES] = { 0 };
	const struct range *r, *s;
	uint64_t last = 0;

	list_for_each(r, &files[f].held, link) {
		CHECK(r->start <= r->last && r->start >= last);
		last = r->start;
		for (int o = 0; o < OWNERS; o++)
			for (uint64_t b = 0; of(r, (uint64_t)o) && b < BYTES; b++)
				if (covers(r, b)) {
					CHECK_EQ(seen[o][b], FREE);
					seen[o][b] = r->exclusive ? EXCLUSIVE : SHARED;
				}
		list_for_each(s, &files[f].held, link) /* equal neighbours are merged */
			CHECK(s == r || s->start == 0 || r->last != s->start - 1 ||
			      !range_same_owner(r, s) || r->exclusive != s->exclusive);
	}
	CHECK_EQ(memcmp(seen, model[f], sizeof(seen)), 0);
}

static void check_all(void)
{
	bool reach[OWNERS][OWNERS];
	int n = 0;

	for (int f = 0; f < FILES; f++)
		check_held(f);
	closure(reach, false);
	for (int o = 0; o < OWNERS; o++) {
		n += waiting[o];
		if (!waiting[o])
			continue;
		CHECK_EQ(lock_grantable(&table, &waits[o]), model_turn(o));
		CHECK_EQ(lock_deadlock(&table, &waits[o]), reach[o][o]);
		CHECK(!reach[o][o]);
	}
	CHECK(n < OWNERS); /* at least one owner can proceed */
}

/* ---- operations ---- */

static void hold(int f, int owner, const struct range *want)
{
	int grown, before = 0, after = 0;
	struct range *r;

	list_for_each(r, &files[f].held, link)
		before++;
	CHECK_EQ(ranges_hold(&files[f].held, want, &grown), 0);
	list_for_each(r, &files[f].held, link)
		after++;
	CHECK_EQ(after - before, grown);
	model_set(f, owner, want, want->exclusive ? EXCLUSIVE : SHARED);
}

static void stop_waiting(int owner)
{
	lock_wait_del(&table, &waits[owner]);
	waiting[owner] = false;
}

static void serve(void)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (int o = 0; o < OWNERS; o++)
			if (waiting[o] && lock_grantable(&table, &waits[o])) {
				CHECK(model_turn(o));
				stop_waiting(o);
				hold(file_of(&waits[o]), o, &waits[o].want);
				changed = true;
			}
	}
}

static void try_lock(int f, int owner)
{
	struct range want = wish((uint64_t)owner);
	const struct range *r = ranges_conflict(&files[f].held, &want);

	CHECK_EQ(r != NULL, model_conflict(f, owner, &want));
	if (r)
		CHECK(range_overlaps(r, &want) && !of(r, (uint64_t)owner));
	else
		hold(f, owner, &want);
}

static unsigned deadlocks, overtaken;

static void wait_lock(int f, int owner)
{
	struct lock_wait *w = &waits[owner], *first;
	bool reach[OWNERS][OWNERS];

	*w = (struct lock_wait){ .want = wish((uint64_t)owner), .ticket = (uint64_t)owner };
	CHECK_EQ(lock_wait_add(&table, &files[f], w), 0);
	waiting[owner] = true;
	CHECK(lock_wait_find(&files[f], w->want.session, w->ticket) == w);
	closure(reach, false);
	CHECK_EQ(lock_deadlock(&table, w), reach[owner][owner]);
	if (reach[owner][owner]) {
		deadlocks++;
		stop_waiting(owner);
		return;
	}
	list_for_each(first, &files[f].line, link)
		if (first != w && range_conflicts(&first->want, &w->want) &&
		    lock_grantable(&table, w))
			overtaken++;
	serve();
}

static void unlock(int f, int owner)
{
	struct range want = wish((uint64_t)owner);
	int grown;

	if (below(2))
		want = (struct range){ .last = UINT64_MAX,
				       .session = want.session,
				       .owner = want.owner };
	CHECK_EQ(ranges_release(&files[f].held, &want, &grown), 0);
	model_set(f, owner, &want, FREE);
	CHECK(!ranges_own(&files[f].held, &want));
	serve();
}

static void locks_agree_with_a_model_of_bytes(void)
{
	CHECK_EQ(lock_table_init(&table), 0);
	for (int f = 0; f < FILES; f++)
		lock_space_init(&files[f]);
	for (int i = 0; i < ROUNDS; i++) {
		int o = (int)below(OWNERS), f = (int)below(FILES);

		lock_searches_begin(&table, 0);
		if (waiting[o]) {
			if (below(20) == 0) { /* cancels its wait */
				stop_waiting(o);
				serve();
			}
		} else if (below(3) == 0) {
			unlock(f, o);
		} else if (below(3) == 0) {
			try_lock(f, o);
			serve();
		} else {
			wait_lock(f, o);
		}
		check_all();
	}
	CHECK(deadlocks > 100 && overtaken > 100);
	for (int o = 0; o < OWNERS; o++)
		if (waiting[o])
			stop_waiting(o);
	CHECK(list_empty(&table.all));
	for (int f = 0; f < FILES; f++)
		ranges_free(&files[f].held);
	htab_destroy(&table.by_owner);
}

/* Locks taken through an open are released with that open only. */
static void ranges_go_with_their_open(void)
{
	struct list set = LIST_INIT(set);
	struct range r = { .start = 0, .last = 9, .session = 1, .owner = 1, .open = 1 };
	int grown;

	CHECK_EQ(ranges_hold(&set, &r, &grown), 0);
	r = (struct range){ .start = 5, .last = 14, .session = 1, .owner = 1, .open = 2 };
	CHECK_EQ(ranges_hold(&set, &r, &grown), 0);
	CHECK_EQ(grown, 1); /* adjacent, but not equal */
	r = (struct range){ .start = 5, .last = 14, .session = 2, .owner = 1, .open = 1 };
	CHECK_EQ(ranges_hold(&set, &r, &grown), 0);
	CHECK_EQ(ranges_drop(&set, 1, 1), 1);
	CHECK_EQ(ranges_drop(&set, 1, 1), 0);
	CHECK_EQ(list_first(&set, struct range, link)->start, 5);
	CHECK_EQ(ranges_drop(&set, 1, 2), 1);
	CHECK_EQ(ranges_drop(&set, 2, 1), 1);
	CHECK(list_empty(&set));
}

/* A thousand waits for thousands of locks: without a shared bound, one request would cause as many
 * searches of thousands of steps. */
static void searches_of_one_request_share_their_steps(void)
{
	enum { HELD = 4000, WAITS = 1000 };
	static struct lock_wait line[WAITS + 1];
	struct lock_wait *last = &line[WAITS];
	struct lock_space sp;
	struct range r;
	uint32_t all;
	int grown;

	CHECK_EQ(lock_table_init(&table), 0);
	lock_space_init(&sp);
	for (uint64_t i = 0; i <= HELD; i++) { /* the requesting owner has the highest lock */
		r = (struct range){ .start = i,
				    .last = i,
				    .session = 1,
				    .owner = i < HELD ? 7000 + i % 2 : 1,
				    .exclusive = true };
		CHECK_EQ(ranges_hold(&sp.held, &r, &grown), 0);
	}
	for (uint64_t i = 0; i < WAITS; i++) { /* all wait for that owner, behind all held locks */
		line[i].want = (struct range){
			.last = UINT64_MAX, .session = 2, .owner = i, .exclusive = true
		};
		CHECK_EQ(lock_wait_add(&table, &sp, &line[i]), 0);
	}
	last->want = (struct range){
		.start = HELD + 1, .last = HELD + 1, .session = 1, .owner = 1, .exclusive = true
	};
	CHECK_EQ(lock_wait_add(&table, &sp, last), 0);
	lock_searches_begin(&table, 0);
	all = table.steps;
	CHECK(all < HELD * WAITS / 10);
	CHECK(lock_grantable(&table, last)); /* passes the waits, with or without a search */
	CHECK_EQ(table.steps, 0);
	CHECK(lock_grantable(&table, last));
	CHECK(!lock_deadlock(&table, &line[0]));
	lock_searches_begin(&table, 0);
	CHECK(!lock_grantable(&table, &line[1])); /* held locks always count */
	CHECK_EQ(table.steps, all);
	while (!list_empty(&table.all))
		lock_wait_del(&table, list_first(&table.all, struct lock_wait, all));
	ranges_free(&sp.held);
	htab_destroy(&table.by_owner);
}

TEST_MAIN(TEST(locks_agree_with_a_model_of_bytes), TEST(ranges_go_with_their_open),
	  TEST(searches_of_one_request_share_their_steps))
