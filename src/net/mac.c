/* HMAC-SHA-256 with OpenSSL. Threads: any, one at a time per prepared key. */
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "net/mac.h"

struct evp_mac_ctx_st *mac_key(const uint8_t key[KEY_BYTES])
{
	OSSL_PARAM how[] = { OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, "SHA256", 0),
			     OSSL_PARAM_construct_end() };
	EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	EVP_MAC_CTX *k = hmac ? EVP_MAC_CTX_new(hmac) : NULL;

	EVP_MAC_free(hmac); /* k holds a reference */
	if (k && EVP_MAC_init(k, key, KEY_BYTES, how))
		return k;
	EVP_MAC_CTX_free(k);
	return NULL;
}

void mac_key_free(struct evp_mac_ctx_st *k)
{
	EVP_MAC_CTX_free(k);
}

void mac_make_with(uint8_t out[MAC_BYTES], struct evp_mac_ctx_st *k, const struct mac_part *parts)
{
	size_t n;
	int ok = EVP_MAC_init(k, NULL, 0, NULL);

	for (; parts->p; parts++)
		ok = ok && EVP_MAC_update(k, parts->p, parts->n);
	if (!ok || !EVP_MAC_final(k, out, &n, MAC_BYTES))
		abort();
}

void mac_make(uint8_t out[MAC_BYTES], const uint8_t key[KEY_BYTES], const struct mac_part *parts)
{
	struct evp_mac_ctx_st *k = mac_key(key);

	if (!k)
		abort();
	mac_make_with(out, k, parts);
	mac_key_free(k);
}

bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES])
{
	return CRYPTO_memcmp(a, b, MAC_BYTES) == 0;
}
