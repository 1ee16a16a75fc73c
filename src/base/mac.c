/* HMAC-SHA-256 (RFC 2104) with the SHA-256 of OpenSSL. Threads: any.
 *
 * OpenSSL frees the state behind EVP_*() in an exit handler, while threads of this library still
 * connect; an application that uses OpenSSL itself may have registered that handler before. So only
 * SHA256_*() are used, which have no state of the process. */
#define OPENSSL_SUPPRESS_DEPRECATED /* OpenSSL 3 recommends EVP_*() */
#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "base/mac.h"

static_assert(MAC_BYTES == SHA256_DIGEST_LENGTH, "digest");
static_assert(KEY_BYTES <= SHA256_CBLOCK, "a key is padded, not hashed");

/* Hashes that have taken the padded key. */
struct mac_key {
	SHA256_CTX inner, outer;
};

static void hash_begin(SHA256_CTX *h, const uint8_t key[KEY_BYTES], uint8_t pad)
{
	uint8_t block[SHA256_CBLOCK];

	memset(block, pad, sizeof(block));
	for (size_t i = 0; i < KEY_BYTES; i++)
		block[i] ^= key[i];
	SHA256_Init(h);
	SHA256_Update(h, block, sizeof(block));
	OPENSSL_cleanse(block, sizeof(block));
}

static void prepare(struct mac_key *k, const uint8_t key[KEY_BYTES])
{
	hash_begin(&k->inner, key, 0x36);
	hash_begin(&k->outer, key, 0x5c);
}

struct mac_key *mac_key(const uint8_t key[KEY_BYTES])
{
	struct mac_key *k = malloc(sizeof(*k));

	if (k)
		prepare(k, key);
	return k;
}

void mac_key_free(struct mac_key *k)
{
	if (k)
		OPENSSL_cleanse(k, sizeof(*k));
	free(k);
}

void mac_make_with(uint8_t out[MAC_BYTES], const struct mac_key *k, const struct mac_part *parts)
{
	SHA256_CTX h = k->inner;

	for (; parts->p; parts++)
		SHA256_Update(&h, parts->p, parts->n);
	SHA256_Final(out, &h);
	h = k->outer;
	SHA256_Update(&h, out, MAC_BYTES);
	SHA256_Final(out, &h);
}

void mac_make(uint8_t out[MAC_BYTES], const uint8_t key[KEY_BYTES], const struct mac_part *parts)
{
	struct mac_key k;

	prepare(&k, key);
	mac_make_with(out, &k, parts);
	OPENSSL_cleanse(&k, sizeof(k));
}

bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES])
{
	return CRYPTO_memcmp(a, b, MAC_BYTES) == 0;
}
