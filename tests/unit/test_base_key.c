/* Key files. */
#include "base/base.h"

#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char err[512];

static void put(const char *path, const char *text, mode_t mode)
{
	FILE *f = fopen(path, "w");

	CHECK(f);
	fputs(text, f);
	fclose(f);
	CHECK_EQ(chmod(path, mode), 0);
}

static void a_new_key_is_random_private_and_loads(void)
{
	uint8_t a[KEY_BYTES], b[KEY_BYTES];
	struct stat st;

	CHECK_EQ(key_create("a", err, sizeof(err)), 0);
	CHECK_EQ(key_create("b", err, sizeof(err)), 0);
	CHECK_EQ(stat("a", &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0600);
	CHECK_EQ(st.st_size, 65);
	CHECK_EQ(key_load("a", a, err, sizeof(err)), 0);
	CHECK_EQ(key_load("b", b, err, sizeof(err)), 0);
	CHECK(memcmp(a, b, sizeof(a)) != 0);
}

static void an_existing_key_is_not_overwritten(void)
{
	put("c", "precious", 0600);
	CHECK_EQ(key_create("c", err, sizeof(err)), -EEXIST);
	CHECK(strstr(err, "c: ") == err);
}

static void check_refused(const char *path, int rc, const char *why)
{
	uint8_t key[KEY_BYTES];

	CHECK_EQ(key_load(path, key, err, sizeof(err)), rc);
	if (!strstr(err, why) || strncmp(err, path, strlen(path)) != 0) {
		fprintf(stderr, "unexpected message: %s\n", err);
		exit(1);
	}
}

static void bad_keys_are_refused_with_the_cure(void)
{
	char text[70];

	memset(text, 'a', 64);
	strcpy(text + 64, "\n");
	check_refused("nothere", -ENOENT, "sheaf init");
	put("open", text, 0640);
	check_refused("open", -EACCES, "chmod 600 open");
	put("open2", text, 0604);
	check_refused("open2", -EACCES, "mode 604");
	put("empty", "", 0600);
	check_refused("empty", -EINVAL, "exactly 64 hexadecimal digits");
	put("long", "a", 0600);
	check_refused("long", -EINVAL, "exactly 64 hexadecimal digits");
	strcpy(text + 64, "a\n");
	put("toolong", text, 0600);
	check_refused("toolong", -EINVAL, "exactly 64 hexadecimal digits");
	strcpy(text + 64, "\n\n");
	put("twolines", text, 0600);
	check_refused("twolines", -EINVAL, "exactly 64 hexadecimal digits");
	text[10] = 'x';
	strcpy(text + 64, "\n");
	put("nothex", text, 0600);
	check_refused("nothex", -EINVAL, "exactly 64 hexadecimal digits");
	check_refused(".", -EINVAL, "regular file");
}

static void a_key_without_a_newline_loads(void)
{
	uint8_t key[KEY_BYTES];
	char text[65];

	memset(text, 'b', 64);
	text[64] = 0;
	put("bare", text, 0400);
	CHECK_EQ(key_load("bare", key, err, sizeof(err)), 0);
	CHECK_EQ(key[31], 0xbb);
}

static bool allowed(const struct key_role *r, uint32_t uid, uint32_t gid, uint32_t *left)
{
	uint32_t gids[] = { 0, 100, 1000, 27 }, n = ARRAY_LEN(gids);
	bool yes = key_allows(r, uid, gid, gids, &n);

	*left = n;
	for (uint32_t i = 0; yes && !r->any && i < n; i++)
		CHECK(gids[i] == 100 || gids[i] == 1000);
	return yes;
}

static void a_key_speaks_for_its_user_and_groups_only(void)
{
	struct key_role any = { .any = true };
	struct key_role one = { .uid = 1000, .n_gids = 2, .gids = { 1000, 100 } }, none = { 0 };
	uint32_t left;

	CHECK(allowed(&any, 0, 0, &left));
	CHECK_EQ(left, 4);
	CHECK(allowed(&one, 1000, 1000, &left));
	CHECK_EQ(left, 2);
	CHECK(allowed(&one, 1000, 100, &left));
	CHECK(!allowed(&one, 0, 0, &left));
	CHECK(!allowed(&one, 1000, 0, &left));
	CHECK(!allowed(&one, 1001, 1000, &left));
	CHECK(!allowed(&one, NOBODY, 1000, &left));
	CHECK(allowed(&one, NOBODY, NOBODY, &left)); /* any key may act as nobody */
	CHECK_EQ(left, 0);
	CHECK(!allowed(&none, 0, 0, &left)); /* the key of an unauthenticated link */
}

/* A cluster file with a default key and two named keys. Some of the key files may be missing. */
static struct conf keys_conf(void)
{
	static struct client_key k[2] = { { .name = "one", .file = "one.key" },
					  { .name = "two", .file = "two.key" } };
	struct conf c = { .path = "sheaf.conf", .key_file = "default.key", .n_keys = 2, .keys = k };

	k[0].loaded = k[1].loaded = false;
	return c;
}

static void a_client_takes_the_key_it_is_told_or_can_read(void)
{
	struct conf c = keys_conf();
	uint8_t key[KEY_BYTES], two[KEY_BYTES];
	char name[CONF_NAME_MAX];

	unsetenv("SHEAF_KEY");
	CHECK_EQ(key_choose(&c, name, key, err, sizeof(err)), -ENOENT);
	CHECK(strstr(err, "default.key: cannot open"));
	CHECK_EQ(key_create("two.key", err, sizeof(err)), 0);
	CHECK_EQ(key_load("two.key", two, err, sizeof(err)), 0);
	CHECK_EQ(key_choose(&c, name, key, err, sizeof(err)), 0);
	CHECK_STR(name, "two");
	CHECK_EQ(memcmp(key, two, sizeof(key)), 0);
	CHECK_EQ(key_create("default.key", err, sizeof(err)), 0);
	CHECK_EQ(key_choose(&c, name, key, err, sizeof(err)), 0);
	CHECK_STR(name, "");
	setenv("SHEAF_KEY", "two", 1);
	CHECK_EQ(key_choose(&c, name, key, err, sizeof(err)), 0);
	CHECK_STR(name, "two");
	CHECK_EQ(chmod("two.key", 0644), 0);
	CHECK_EQ(key_choose(&c, name, key, err, sizeof(err)), -EACCES);
	CHECK(strstr(err, "chmod 600 two.key"));
	setenv("SHEAF_KEY", "three", 1);
	CHECK_EQ(key_choose(&c, name, key, err, sizeof(err)), -ENOENT);
	CHECK(strstr(err, "has no [key.three]"));
	unsetenv("SHEAF_KEY");
}

static void a_server_needs_every_key_and_says_which_is_wrong(void)
{
	struct conf c = keys_conf();

	CHECK_EQ(keys_load(&c, err, sizeof(err)), -ENOENT);
	CHECK(strstr(err, "one.key: "));
	CHECK_EQ(key_create("one.key", err, sizeof(err)), 0);
	CHECK_EQ(keys_load(&c, err, sizeof(err)), -EACCES); /* two.key is readable by other users */
	CHECK(strstr(err, "chmod 600 two.key"));
	CHECK(c.keys[0].loaded && !c.keys[1].loaded);
	CHECK_EQ(chmod("two.key", 0600), 0);
	CHECK_EQ(keys_load(&c, err, sizeof(err)), 0);
	CHECK(c.keys[0].loaded && c.keys[1].loaded);
	CHECK(memcmp(c.keys[0].secret, c.keys[1].secret, KEY_BYTES) != 0);
}

TEST_MAIN(TEST(a_new_key_is_random_private_and_loads), TEST(an_existing_key_is_not_overwritten),
	  TEST(bad_keys_are_refused_with_the_cure), TEST(a_key_without_a_newline_loads),
	  TEST(a_key_speaks_for_its_user_and_groups_only),
	  TEST(a_client_takes_the_key_it_is_told_or_can_read),
	  TEST(a_server_needs_every_key_and_says_which_is_wrong))
