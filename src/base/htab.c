/* Hash table of intrusive nodes: chains in a power-of-two number of slots, at most one node per
 * slot on average. */
#include "base/base.h"

#include <endian.h>
#include <stdlib.h>

#define HTAB_MIN 16

/* Callers may pass plain counters as hashes: mixing spreads them. */
static size_t htab_slot(size_t n_slots, uint64_t hash)
{
	return (size_t)hash_u64(hash) & (n_slots - 1);
}

int htab_init(struct htab *t)
{
	*t = (struct htab){ .slots = calloc(HTAB_MIN, sizeof(*t->slots)), .n_slots = HTAB_MIN };
	if (!t->slots) {
		t->n_slots = 0;
		return -ENOMEM;
	}
	return 0;
}

void htab_destroy(struct htab *t)
{
	free(t->slots);
	*t = (struct htab){ 0 };
}

static void htab_link(struct hnode **slots, size_t n_slots, struct hnode *n)
{
	struct hnode **slot = &slots[htab_slot(n_slots, n->hash)];

	n->next = *slot;
	*slot = n;
}

static int htab_grow(struct htab *t)
{
	size_t n_slots = t->n_slots ? t->n_slots * 2 : HTAB_MIN;
	struct hnode **slots = calloc(n_slots, sizeof(*slots)), *n, *next;

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < t->n_slots; i++) {
		for (n = t->slots[i]; n; n = next) {
			next = n->next;
			htab_link(slots, n_slots, n);
		}
	}
	free(t->slots);
	t->slots = slots;
	t->n_slots = n_slots;
	return 0;
}

int htab_insert(struct htab *t, struct hnode *n, uint64_t hash)
{
	if (t->count >= t->n_slots && htab_grow(t) < 0)
		return -ENOMEM;
	n->hash = hash;
	htab_link(t->slots, t->n_slots, n);
	t->count++;
	return 0;
}

void htab_remove(struct htab *t, struct hnode *n)
{
	struct hnode **at = &t->slots[htab_slot(t->n_slots, n->hash)];

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	n->next = NULL;
	t->count--;
}

static struct hnode *htab_seek(struct hnode *n, uint64_t hash)
{
	while (n && n->hash != hash)
		n = n->next;
	return n;
}

struct hnode *htab_first(const struct htab *t, uint64_t hash)
{
	if (t->count == 0)
		return NULL;
	return htab_seek(t->slots[htab_slot(t->n_slots, hash)], hash);
}

struct hnode *htab_next(const struct hnode *n)
{
	return htab_seek(n->next, n->hash);
}

void htab_walk(struct htab *t, void (*fn)(struct hnode *n, void *arg), void *arg)
{
	struct hnode *n, *next;

	for (size_t i = 0; i < t->n_slots; i++) {
		for (n = t->slots[i]; n; n = next) {
			next = n->next;
			fn(n, arg);
		}
	}
}

/* The finalizer of splitmix64: a bijection in which every input bit affects every output bit. */
uint64_t hash_u64(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The same on every machine: words are read as little-endian. */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
	const uint8_t *b = p;
	uint64_t h = hash_u64(seed + UINT64_C(0x9e3779b97f4a7c15) + n), word;

	for (; n >= 8; n -= 8, b += 8) {
		memcpy(&word, b, 8);
		h = hash_u64(h ^ le64toh(word)) + UINT64_C(0x9e3779b97f4a7c15);
	}
	word = 0;
	for (size_t i = 0; i < n; i++)
		word |= (uint64_t)b[i] << (8 * i);
	return hash_u64(h ^ word);
}
