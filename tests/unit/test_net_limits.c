/* Limits: how much a link or session, a key, all keys of one user, and a server may hold. */
#include "net/limits.h"
#include "test.h"

static struct limits l;

static void begin(void)
{
	limits_init(&l);
	l.most[LIMIT_OPENS] = 64; /* 8 per key, 48 for all keys of one user */
	l.most_session[LIMIT_OPENS] = 6;
}

static struct usage usage(const char *key, enum key_kind kind)
{
	struct usage u = { 0 };
	struct key_account *k = account_get(&l, key, kind);

	CHECK(k);
	usage_move(&u, k);
	return u;
}

static enum limit_scope take(struct usage *u, uint64_t n)
{
	return usage_take(u, LIMIT_OPENS, n);
}

static void a_session_has_its_own_bound(void)
{
	struct usage u;

	begin();
	u = usage("any", KEY_ANY_USER);
	CHECK_EQ(take(&u, 7), LIMIT_OF_SESSION);
	CHECK_EQ(take(&u, 6), LIMIT_NONE);
	CHECK_EQ(take(&u, 1), LIMIT_OF_SESSION);
	CHECK_EQ(l.used[LIMIT_OPENS], 6); /* a refused request takes nothing */
	usage_give(&u, LIMIT_OPENS, 1);
	CHECK_EQ(take(&u, 1), LIMIT_NONE);
	usage_fini(&u);
	CHECK_EQ(l.used[LIMIT_OPENS], 0);
	CHECK_EQ(l.keys.count, 0);
	limits_fini(&l);
}

static void sessions_of_a_key_of_one_user_share_an_eighth(void)
{
	struct usage a, b, other, any;

	begin();
	a = usage("alice", KEY_ONE_USER);
	b = usage("alice", KEY_ONE_USER);
	other = usage("bob", KEY_ONE_USER);
	/* the same key name in another role is another account */
	any = usage("alice", KEY_ANY_USER);
	CHECK(a.key == b.key && a.key != any.key);
	CHECK_EQ(take(&a, 6), LIMIT_NONE);
	CHECK_EQ(take(&b, 3), LIMIT_OF_KEY);
	CHECK_EQ(take(&b, 2), LIMIT_NONE);
	CHECK_EQ(take(&b, 1), LIMIT_OF_KEY);
	CHECK_EQ(take(&other, 6), LIMIT_NONE);
	CHECK_EQ(take(&any, 6), LIMIT_NONE);
	usage_fini(&a); /* released with its session */
	CHECK_EQ(take(&b, 4), LIMIT_NONE);
	CHECK_EQ(l.used_by_users[LIMIT_OPENS], 12);
	usage_fini(&b);
	usage_fini(&other);
	usage_fini(&any);
	CHECK_EQ(l.used[LIMIT_OPENS] + l.used_by_users[LIMIT_OPENS] + l.keys.count, 0);
	limits_fini(&l);
}

static void keys_of_one_user_leave_a_quarter_to_the_others(void)
{
	struct usage u[20], any[3], server;
	char name[8];

	begin();
	l.most_session[LIMIT_OPENS] = 0;
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "u%d", i);
		u[i] = usage(name, KEY_ONE_USER);
		CHECK_EQ(take(&u[i], 8), i < 6 ? LIMIT_NONE : LIMIT_OF_USERS);
	}
	any[0] = usage("", KEY_ANY_USER);
	CHECK_EQ(take(&any[0], 16), LIMIT_NONE);
	CHECK_EQ(take(&any[0], 1), LIMIT_OF_SERVER);
	server = usage("", KEY_OF_SERVERS); /* never refused, but counted */
	CHECK_EQ(take(&server, 100), LIMIT_NONE);
	CHECK_EQ(l.used[LIMIT_OPENS], 164);
	usage_fini(&server);
	usage_fini(&any[0]);
	for (int i = 0; i < 20; i++)
		usage_fini(&u[i]);
	CHECK_EQ(l.used[LIMIT_OPENS], 0);
	limits_fini(&l);
}

/* After a restart a session has no key until it is resumed; the role of a key may have changed. */
static void what_a_session_holds_moves_with_it(void)
{
	struct usage u;

	begin();
	u = usage("", KEY_UNKNOWN);
	usage_add(&u, LIMIT_OPENS, 10); /* more than its limit */
	CHECK_EQ(l.used_by_users[LIMIT_OPENS], 0);
	usage_move(&u, account_get(&l, "alice", KEY_ONE_USER));
	CHECK_EQ(u.key->used[LIMIT_OPENS], 10);
	CHECK_EQ(l.used_by_users[LIMIT_OPENS], 10);
	CHECK_EQ(l.used[LIMIT_OPENS], 10);
	CHECK_EQ(l.keys.count, 1);
	CHECK_EQ(usage_over(&u, LIMIT_OPENS, 0, 1), LIMIT_OF_SESSION);
	CHECK_EQ(take(&u, 1), LIMIT_OF_SESSION);
	usage_move(&u, account_get(&l, "alice", KEY_ONE_USER)); /* moves to the same account */
	CHECK_EQ(u.key->used[LIMIT_OPENS], 10);
	CHECK_EQ(u.key->refs, 1);
	usage_give(&u, LIMIT_OPENS, 10);
	CHECK_EQ(usage_over(&u, LIMIT_OPENS, 0, 1), LIMIT_NONE);
	usage_fini(&u);
	limits_fini(&l);
}

static void a_part_of_a_bound_is_crowded_before_it_is_full(void)
{
	struct usage a, b;

	begin();
	a = usage("alice", KEY_ONE_USER);
	b = usage("alice", KEY_ONE_USER);
	CHECK_EQ(take(&a, 3), LIMIT_NONE);
	CHECK(!usage_over(&a, LIMIT_OPENS, 0, 2));
	CHECK(usage_over(&a, LIMIT_OPENS, 1, 2)); /* the limit of the session */
	CHECK(!usage_over(&b, LIMIT_OPENS, 1, 2));
	CHECK(usage_over(&b, LIMIT_OPENS, 2, 2)); /* the limit of the key */
	CHECK(usage_over(&b, LIMIT_OPENS, 0, 4));
	usage_fini(&a);
	usage_fini(&b);
	limits_fini(&l);
}

static void an_account_outlives_its_limits(void)
{
	struct usage u, none = { 0 };

	begin();
	u = usage("alice", KEY_ONE_USER);
	CHECK_EQ(take(&u, 5), LIMIT_NONE);
	limits_fini(&l);
	CHECK_EQ(take(&u, 500), LIMIT_NONE);
	usage_give(&u, LIMIT_OPENS, 505);
	usage_fini(&u);
	CHECK_EQ(take(&none, 1000), LIMIT_NONE); /* without a key there is no limit */
	usage_fini(&none);
}

/* Checks the values that docs/security.md documents. */
static void every_limit_has_a_name_and_bounds(void)
{
	limits_init(&l);
	for (int i = 0; i < N_LIMITS; i++) {
		CHECK(limit_name(i) && l.most[i]);
		CHECK(limit_value(&l, i, LIMIT_OF_KEY) * 8 <= l.most[i]);
		CHECK(limit_value(&l, i, LIMIT_OF_USERS) < l.most[i]);
	}
	CHECK_EQ(limit_value(&l, LIMIT_OPENS, LIMIT_OF_KEY), 131072);
	CHECK_EQ(limit_value(&l, LIMIT_SESSIONS, LIMIT_OF_KEY), 2048);
	CHECK_EQ(limit_value(&l, LIMIT_REQUEST_BYTES, LIMIT_OF_KEY), 32 * MIB);
	limits_fini(&l);
}

TEST_MAIN(TEST(a_session_has_its_own_bound), TEST(sessions_of_a_key_of_one_user_share_an_eighth),
	  TEST(keys_of_one_user_leave_a_quarter_to_the_others),
	  TEST(what_a_session_holds_moves_with_it),
	  TEST(a_part_of_a_bound_is_crowded_before_it_is_full),
	  TEST(an_account_outlives_its_limits), TEST(every_limit_has_a_name_and_bounds))
