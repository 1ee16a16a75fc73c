/* HMAC-SHA-256: proofs of a handshake, capabilities, digests of requests. */
#ifndef SHEAF_MAC_H
#define SHEAF_MAC_H

#include "base/base.h"

#define MAC_BYTES 32

/* HMAC-SHA-256 over the parts; a part with p == NULL ends the list. */
struct mac_part {
	const void *p;
	size_t n;
};
void mac_make(uint8_t out[MAC_BYTES], const uint8_t key[KEY_BYTES], const struct mac_part *parts);
/* Prepares a key that is used often: its HMACs take two thirds of the time. NULL: out of memory. */
struct mac_key *mac_key(const uint8_t key[KEY_BYTES]);
void mac_key_free(struct mac_key *k);
void mac_make_with(uint8_t out[MAC_BYTES], const struct mac_key *k, const struct mac_part *parts);
bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES]); /* in constant time */

#endif
