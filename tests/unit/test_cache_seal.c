/* Names and values of the cache bank. */
#include "cache/cache.h"
#include "test.h"

static const struct uuid fs = { { 1, 2, 3 } };
static const uint8_t key[KEY_BYTES] = { 7, 8, 9 };

static void names_depend_on_everything(void)
{
	const struct bank_state base = { 1, 2, 3, 4, 5, 6, 7 };
	struct bank_state states[8];
	struct seal *s = seal_new(key, &fs, false);
	char names[12][BANK_KEY];
	int n = 0;

	for (size_t i = 0; i < 8; i++)
		states[i] = base;
	states[1].incarnation++;
	states[2].ino++;
	states[3].change++;
	states[4].verifier++;
	states[5].size++;
	states[6].gen++;
	states[7].obj_gen++;
	for (size_t i = 0; i < 8; i++)
		seal_name(s, BANK_BLOCK, &states[i], 8192, 1, names[n++]);
	seal_name(s, BANK_TICKET, &base, 8192, 1, names[n++]);
	seal_name(s, BANK_BLOCK, &base, 4096, 1, names[n++]);
	seal_name(s, BANK_BLOCK, &base, 8192, 2, names[n++]);
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < i; k++)
			CHECK(memcmp(names[i], names[k], BANK_KEY) != 0);
		for (int k = 0; k < BANK_KEY; k++)
			CHECK(strchr(
				"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
				names[i][k]));
	}
	seal_name(s, BANK_BLOCK, &base, 8192, 1, names[1]);
	CHECK(memcmp(names[0], names[1], BANK_KEY) == 0);
	seal_free(s);
}

static void names_depend_on_the_key_and_the_file_system(void)
{
	const uint8_t other_key[KEY_BYTES] = { 7, 8, 10 };
	const struct uuid other_fs = { { 1, 2, 4 } };
	struct seal *s[] = { seal_new(key, &fs, false), seal_new(other_key, &fs, false),
			     seal_new(key, &other_fs, false) };
	const struct bank_state base = { 1, 2, 3, 4, 5, 6, 7 };
	char names[3][BANK_KEY];

	for (int i = 0; i < 3; i++) {
		seal_name(s[i], BANK_BLOCK, &base, 8192, 1, names[i]);
		for (int k = 0; k < i; k++)
			CHECK(memcmp(names[i], names[k], BANK_KEY) != 0);
	}
	for (int i = 0; i < 3; i++)
		seal_free(s[i]);
}

static void check_values(bool unsealed)
{
	struct seal *s = seal_new(key, &fs, unsealed);
	struct seal_context *x = seal_context(s), *y = seal_context(s);
	char name[BANK_KEY], other[BANK_KEY];
	uint8_t data[300], value[300 + SEAL_BYTES], out[300];
	const uint8_t nonce[12] = { 5 };
	size_t n = sizeof(value);

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	memset(name, 'a', sizeof(name));
	memset(other, 'b', sizeof(other));
	for (int i = 0; i < 3; i++) { /* a context can be used again, in both directions */
		CHECK_EQ(seal_close(x, name, nonce, data, sizeof(data), value), 0);
		memset(out, 0, sizeof(out));
		CHECK_EQ(seal_open(i % 2 ? x : y, name, value, n, out), 0);
		CHECK(memcmp(out, data, sizeof(data)) == 0);
	}
	CHECK_EQ(memcmp(value + SEAL_BYTES, data, sizeof(data)) == 0, unsealed);
	CHECK_EQ(seal_open(x, other, value, n, out), -EBADMSG);
	for (size_t i = 0; i < n; i++) {
		bool is_unused = unsealed ? i > 0 && (i < 16 || (i >= 20 && i < SEAL_BYTES)) :
					    i > 0 && i < 4;

		value[i] ^= 1;
		CHECK_EQ(seal_open(x, name, value, n, out), is_unused ? 0 : -EBADMSG);
		value[i] ^= 1;
	}
	for (size_t i = 0; i < n; i += 13)
		CHECK_EQ(seal_open(x, name, value, i, out), -EBADMSG);
	seal_context_free(x);
	seal_context_free(y);
	seal_free(s);
}

static void values_open_only_as_they_were_closed(void)
{
	check_values(false);
}

static void without_encryption_there_is_a_checksum(void)
{
	check_values(true);
}

TEST_MAIN(TEST(names_depend_on_everything), TEST(names_depend_on_the_key_and_the_file_system),
	  TEST(values_open_only_as_they_were_closed), TEST(without_encryption_there_is_a_checksum))
