/* Bump allocation from a chain of blocks; the newest block is first and serves allocations. */
#include "base/base.h"

#include <stdalign.h>
#include <stdlib.h>

#define ARENA_ALIGN 16
#define ARENA_SMALL (4 * KIB) /* the first block, which a reset keeps */
#define ARENA_LARGE (64 * KIB) /* blocks double up to this */

struct arena_block {
	struct arena_block *next;
	size_t size, used;
	alignas(ARENA_ALIGN) uint8_t data[];
};

void arena_init(struct arena *a, size_t limit)
{
	*a = (struct arena){ .limit = limit };
}

/* Adds a block for at least n bytes; a larger one if the limit permits. */
static bool arena_grow(struct arena *a, size_t n)
{
	size_t room = a->limit ? a->limit - a->held : SIZE_MAX / 2;
	size_t size = a->blocks ? MIN(a->blocks->size * 2, ARENA_LARGE) : ARENA_SMALL;
	struct arena_block *b;

	if (n > room)
		return false;
	size = MAX(n, MIN(size, room));
	if (a->may_grow && !a->may_grow(a, size))
		return false;
	b = malloc(sizeof(*b) + size);
	if (!b)
		return false;
	b->size = size;
	b->used = 0;
	b->next = a->blocks;
	a->blocks = b;
	a->held += size;
	return true;
}

void *arena_alloc(struct arena *a, size_t n)
{
	struct arena_block *b = a->blocks;
	void *p;

	if (n > SIZE_MAX / 2 - ARENA_ALIGN)
		return NULL;
	if (!b || b->size - b->used < n) {
		if (!arena_grow(a, n))
			return NULL;
		b = a->blocks;
	}
	p = b->data + b->used;
	b->used = MIN(b->size, b->used + ((n + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1)));
	return memset(p, 0, n);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *p = arena_alloc(a, len + 1);

	return p ? memcpy(p, s, len) : NULL; /* zeroed memory: terminated already */
}

static void arena_free(struct arena *a, const struct arena_block *keep)
{
	struct arena_block *b, *next;

	for (b = a->blocks; b; b = next) {
		next = b->next;
		if (b != keep)
			free(b);
	}
}

void arena_reset(struct arena *a)
{
	struct arena_block *keep = a->blocks;

	while (keep && keep->size > ARENA_SMALL)
		keep = keep->next;
	arena_free(a, keep);
	a->blocks = keep;
	a->held = 0;
	if (keep) {
		keep->next = NULL;
		keep->used = 0;
		a->held = keep->size;
	}
}

void arena_destroy(struct arena *a)
{
	arena_free(a, NULL);
	*a = (struct arena){ .limit = a->limit, .may_grow = a->may_grow };
}
