/* Limits of the server resources that clients hold, see limits.h. */
#include "net/limits.h"

#include <stdlib.h>

/* most: of all clients; most_session: of one link or session */
static const struct {
	const char *name;
	uint64_t most, most_session;
} rows[N_LIMITS] = {
	[LIMIT_LINKS] = { "connections", 16384, 0 },
	[LIMIT_SESSIONS] = { "sessions", 16384, 0 },
	[LIMIT_OPENS] = { "open files", 1 << 20, 1 << 16 },
	[LIMIT_LOCKS] = { "locks", 1 << 20, 8192 },
	[LIMIT_LOCK_WAITS] = { "waits for locks", 1 << 16, 1024 },
	[LIMIT_APPENDS] = { "appends in progress", 1 << 20, 1 << 16 },
	[LIMIT_REQUEST_BYTES] = { "bytes of requests in service", 256 * MIB, 32 * MIB },
	[LIMIT_REPLY_BYTES] = { "bytes of unread replies", 256 * MIB, 0 },
};

const char *limit_name(enum limit what)
{
	return rows[what].name;
}

const char *limit_scope_name(enum limit_scope scope)
{
	static const char *const names[] = { "", "of one session", "of a key of one user",
					     "of all keys of one user", "of this server" };

	return names[scope];
}

void limits_init(struct limits *l)
{
	memset(l, 0, sizeof(*l));
	for (int i = 0; i < N_LIMITS; i++) {
		l->most[i] = rows[i].most;
		l->most_session[i] = rows[i].most_session;
	}
}

static void orphan(struct hnode *n, void *arg)
{
	(void)arg;
	container_of(n, struct key_account, node)->limits = NULL;
}

void limits_fini(struct limits *l)
{
	htab_walk(&l->keys, orphan, NULL);
	htab_destroy(&l->keys);
}

uint64_t limit_value(const struct limits *l, enum limit what, enum limit_scope scope)
{
	switch (scope) {
	case LIMIT_OF_SESSION:
		return l->most_session[what] ? l->most_session[what] : UINT64_MAX;
	case LIMIT_OF_KEY:
		return l->most[what] / KEY_PART;
	case LIMIT_OF_USERS:
		return l->most[what] / USERS_DEN * USERS_NUM;
	default:
		return l->most[what];
	}
}

/* ---- accounts ---- */

static uint64_t hash_of(const char *name, enum key_kind kind)
{
	return hash_bytes(name, strlen(name), kind);
}

struct key_account *account_get(struct limits *l, const char *name, enum key_kind kind)
{
	uint64_t hash = hash_of(name, kind);
	struct key_account *k;

	for (struct hnode *n = htab_first(&l->keys, hash); n; n = htab_next(n)) {
		k = container_of(n, struct key_account, node);
		if (k->kind == kind && strcmp(k->name, name) == 0) {
			k->refs++;
			return k;
		}
	}
	k = calloc(1, sizeof(*k));
	if (!k || htab_insert(&l->keys, &k->node, hash)) {
		free(k);
		return NULL;
	}
	k->limits = l;
	k->kind = kind;
	k->refs = 1;
	strncpy(k->name, name, sizeof(k->name) - 1);
	pool_share_init(&k->share);
	pool_share_init(&k->copy_share);
	return k;
}

void account_put(struct key_account *k)
{
	if (!k || --k->refs)
		return;
	if (k->limits)
		htab_remove(&k->limits->keys, &k->node);
	free(k);
}

/* Adds n units to a key; n may be negative, modulo 2^64. */
static void account_count(struct key_account *k, enum limit what, uint64_t n)
{
	if (!k)
		return;
	k->used[what] += n;
	if (!k->limits)
		return;
	k->limits->used[what] += n;
	if (k->kind == KEY_ONE_USER)
		k->limits->used_by_users[what] += n;
}

/* ---- links and sessions ---- */

void usage_move(struct usage *h, struct key_account *k)
{
	struct key_account *old = h->key;

	for (int i = 0; i < N_LIMITS; i++) {
		account_count(old, i, -h->used[i]);
		account_count(k, i, h->used[i]);
	}
	h->key = k;
	account_put(old);
}

void usage_fini(struct usage *h)
{
	usage_move(h, NULL);
	memset(h, 0, sizeof(*h));
}

static uint64_t used_of(const struct usage *h, enum limit what, enum limit_scope scope)
{
	const struct key_account *k = h->key;

	switch (scope) {
	case LIMIT_OF_SESSION:
		return h->used[what];
	case LIMIT_OF_KEY:
		return k->used[what];
	case LIMIT_OF_USERS:
		return k->limits->used_by_users[what];
	default:
		return k->limits->used[what];
	}
}

static bool applies(const struct usage *h, enum limit_scope scope)
{
	return h->key->kind == KEY_ONE_USER || scope == LIMIT_OF_SESSION ||
	       scope == LIMIT_OF_SERVER;
}

enum limit_scope usage_over(const struct usage *h, enum limit what, uint64_t n, unsigned part)
{
	const struct key_account *k = h->key;

	if (!k || !k->limits || k->kind == KEY_OF_SERVERS)
		return LIMIT_NONE;
	for (enum limit_scope s = LIMIT_OF_SESSION; s <= LIMIT_OF_SERVER; s++) {
		uint64_t most = limit_value(k->limits, what, s) / part, used = used_of(h, what, s);

		if (applies(h, s) && (used > most || n > most - used))
			return s;
	}
	return LIMIT_NONE;
}

enum limit_scope usage_take(struct usage *h, enum limit what, uint64_t n)
{
	enum limit_scope s = usage_over(h, what, n, 1);

	if (s == LIMIT_NONE)
		usage_add(h, what, n);
	return s;
}

void usage_add(struct usage *h, enum limit what, uint64_t n)
{
	h->used[what] += n;
	account_count(h->key, what, n);
}

void usage_give(struct usage *h, enum limit what, uint64_t n)
{
	h->used[what] -= n;
	account_count(h->key, what, -n);
}
