/* HMAC-SHA-256 against the vectors of RFC 4231. Its keys are shorter than KEY_BYTES: zeros behind a
 * key do not change the mac. */
#include "base/mac.h"
#include "test.h"

static void check(const char *key, size_t key_len, const char *data, const char *expected)
{
	uint8_t k[KEY_BYTES] = { 0 }, mac[MAC_BYTES], prepared[MAC_BYTES];
	size_t n = strlen(data);
	struct mac_part whole[] = { { data, n }, { NULL, 0 } };
	struct mac_part parts[] = {
		{ data, n / 3 }, { "", 0 }, { data + n / 3, n - n / 3 }, { NULL, 0 }
	};
	char text[2 * MAC_BYTES + 1];
	struct mac_key *p;

	memcpy(k, key, key_len);
	mac_make(mac, k, whole);
	for (size_t i = 0; i < MAC_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", mac[i]);
	CHECK_STR(text, expected);
	p = mac_key(k);
	CHECK(p);
	for (int i = 0; i < 3; i++) { /* a prepared key can be used again */
		mac_make_with(prepared, p, i % 2 ? whole : parts);
		CHECK(mac_equal(mac, prepared));
	}
	mac_key_free(p);
	prepared[MAC_BYTES - 1] ^= 1;
	CHECK(!mac_equal(mac, prepared));
}

static void vectors_of_the_rfc(void)
{
	char key[20], data[51] = { 0 };

	memset(key, 0x0b, sizeof(key));
	check(key, sizeof(key), "Hi There",
	      "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	check("Jefe", 4, "what do ya want for nothing?",
	      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	memset(key, 0xaa, sizeof(key));
	memset(data, 0xdd, 50);
	check(key, sizeof(key), data,
	      "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
}

static void no_parts_are_the_empty_message(void)
{
	check("", 0, "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST_MAIN(TEST(vectors_of_the_rfc), TEST(no_parts_are_the_empty_message))
