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

TEST_MAIN(TEST(a_new_key_is_random_private_and_loads), TEST(an_existing_key_is_not_overwritten),
	  TEST(bad_keys_are_refused_with_the_cure), TEST(a_key_without_a_newline_loads))
