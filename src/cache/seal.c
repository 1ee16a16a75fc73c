/* Names and values of the bank's entries: HMAC-SHA-256 and AES-256-GCM under keys that are derived
 * from the bank's key.
 *
 * A value: version, 3 bytes of zeros, 12 of nonce, 16 of the tag, then the data. The tag covers the
 * name, too, so a value of another name does not open. Without encryption the tag is a checksum.
 *
 * OpenSSL frees its own state in an exit handler, while our threads still run: the cipher comes
 * from a library context of ours.
 * Threads: names from any; a context belongs to one. Errors: -EBADMSG, -ENOMEM. */
#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "cache/cache.h"

#define VERSION 1
#define NONCE 12
#define TAG 16
static_assert(SEAL_BYTES == 4 + NONCE + TAG, "the head of a value");

struct seal {
	struct mac_key *names;
	uint8_t value_key[KEY_BYTES];
	OSSL_LIB_CTX *library;
	EVP_CIPHER *cipher; /* NULL: values are not encrypted */
};

struct seal_context {
	const struct seal *s;
	EVP_CIPHER_CTX *ctx;
};

/* A key for one purpose, of one file system. */
static void derive(const uint8_t key[KEY_BYTES], const struct uuid *fs, const char *what,
		   uint8_t out[KEY_BYTES])
{
	static_assert(KEY_BYTES == MAC_BYTES, "an HMAC is a key");
	mac_make(out, key,
		 (struct mac_part[]){ { what, strlen(what) }, { fs, sizeof(*fs) }, { NULL, 0 } });
}

struct seal *seal_new(const uint8_t key[KEY_BYTES], const struct uuid *fs, bool unsealed)
{
	struct seal *s = calloc(1, sizeof(*s));
	uint8_t names[KEY_BYTES];

	if (!s)
		return NULL;
	derive(key, fs, "names", names);
	derive(key, fs, "values", s->value_key);
	s->names = mac_key(names);
	OPENSSL_cleanse(names, sizeof(names));
	if (!unsealed) {
		s->library = OSSL_LIB_CTX_new();
		s->cipher = s->library ? EVP_CIPHER_fetch(s->library, "AES-256-GCM", NULL) : NULL;
	}
	if (!s->names || (!unsealed && !s->cipher)) {
		seal_free(s);
		return NULL;
	}
	return s;
}

void seal_free(struct seal *s)
{
	if (!s)
		return;
	mac_key_free(s->names);
	EVP_CIPHER_free(s->cipher);
	OSSL_LIB_CTX_free(s->library);
	OPENSSL_cleanse(s->value_key, sizeof(s->value_key));
	free(s);
}

static void name_from(const uint8_t mac[MAC_BYTES + 1], char out[BANK_KEY])
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

	for (size_t i = 0; i < BANK_KEY; i++) {
		size_t bit = 6 * i;
		unsigned two = (unsigned)mac[bit / 8] << 8 | mac[bit / 8 + 1];

		out[i] = digits[two >> (10 - bit % 8) & 63];
	}
}

void seal_name(const struct seal *s, enum bank_kind kind, const struct bank_state *of,
	       uint32_t block_bytes, uint64_t index, char out[BANK_KEY])
{
	const uint64_t all[] = { kind,	   of->incarnation, of->ino,	 of->change,  of->verifier,
				 of->size, of->gen,	    of->obj_gen, block_bytes, index };
	uint8_t mac[MAC_BYTES + 1] = { 0 };

	mac_make_with(mac, s->names, (struct mac_part[]){ { all, sizeof(all) }, { NULL, 0 } });
	name_from(mac, out);
}

void seal_name_of(const struct seal *s, enum bank_kind kind, const void *a, size_t n_a,
		  const void *b, size_t n_b, char out[BANK_KEY])
{
	const uint64_t head[] = { kind, n_a, n_b };
	uint8_t mac[MAC_BYTES + 1] = { 0 };

	mac_make_with(
		mac, s->names,
		(struct mac_part[]){ { head, sizeof(head) }, { a, n_a }, { b, n_b }, { NULL, 0 } });
	name_from(mac, out);
}

/* ---- values ---- */

struct seal_context *seal_context(struct seal *s)
{
	struct seal_context *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->s = s;
	x->ctx = s->cipher ? EVP_CIPHER_CTX_new() : NULL;
	if (s->cipher &&
	    (!x->ctx || EVP_CipherInit_ex2(x->ctx, s->cipher, s->value_key, NULL, 1, NULL) != 1)) {
		seal_context_free(x);
		return NULL;
	}
	return x;
}

void seal_context_free(struct seal_context *x)
{
	if (!x)
		return;
	EVP_CIPHER_CTX_free(x->ctx);
	free(x);
}

static uint32_t checksum(const char name[BANK_KEY], const void *data, size_t n)
{
	return crc32c(crc32c(0, name, BANK_KEY), data, n);
}

int seal_close(struct seal_context *x, const char name[BANK_KEY], const uint8_t nonce[NONCE],
	       const void *data, size_t n, uint8_t *out)
{
	uint8_t *iv = out + 4, *tag = iv + NONCE, *text = out + SEAL_BYTES;
	int k;

	memset(out, 0, SEAL_BYTES);
	out[0] = VERSION;
	if (!x->ctx) {
		uint32_t sum = checksum(name, data, n);

		memcpy(tag, &sum, sizeof(sum));
		memcpy(text, data, n);
		return 0;
	}
	memcpy(iv, nonce, NONCE);
	if (EVP_EncryptInit_ex2(x->ctx, NULL, NULL, iv, NULL) != 1 ||
	    EVP_EncryptUpdate(x->ctx, NULL, &k, (const uint8_t *)name, BANK_KEY) != 1 ||
	    EVP_EncryptUpdate(x->ctx, text, &k, data, (int)n) != 1 ||
	    EVP_EncryptFinal_ex(x->ctx, text + k, &k) != 1 ||
	    EVP_CIPHER_CTX_ctrl(x->ctx, EVP_CTRL_AEAD_GET_TAG, TAG, tag) != 1)
		return -ENOMEM;
	return 0;
}

int seal_open(struct seal_context *x, const char name[BANK_KEY], const uint8_t *value, size_t n,
	      void *out)
{
	const uint8_t *iv = value + 4, *text = value + SEAL_BYTES;
	uint8_t tag[TAG];
	int k;

	if (n < SEAL_BYTES || value[0] != VERSION)
		return -EBADMSG;
	n -= SEAL_BYTES;
	memcpy(tag, iv + NONCE, TAG);
	if (!x->ctx) {
		uint32_t sum = checksum(name, text, n);

		if (memcmp(tag, &sum, sizeof(sum)))
			return -EBADMSG;
		memcpy(out, text, n);
		return 0;
	}
	if (EVP_DecryptInit_ex2(x->ctx, NULL, NULL, iv, NULL) != 1 ||
	    EVP_CIPHER_CTX_ctrl(x->ctx, EVP_CTRL_AEAD_SET_TAG, TAG, tag) != 1 ||
	    EVP_DecryptUpdate(x->ctx, NULL, &k, (const uint8_t *)name, BANK_KEY) != 1 ||
	    EVP_DecryptUpdate(x->ctx, out, &k, text, (int)n) != 1 ||
	    EVP_DecryptFinal_ex(x->ctx, (uint8_t *)out + k, &k) != 1)
		return -EBADMSG;
	return 0;
}
