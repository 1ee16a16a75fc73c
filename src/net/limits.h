/* How much of a server's resources its clients hold and may hold: an account for each key, a usage
 * for each link and session. Every bounded table of a server takes its units here, so that every
 * bound applies to the session, to the key and to the server.
 *
 *   a session or link       at most limits.most_session
 *   a key of one user       at most 1/KEY_PART of limits.most, over all its sessions and links
 *   all keys of one user    at most USERS_NUM/USERS_DEN of limits.most together
 *   all clients             at most limits.most
 *   servers                 are counted, never refused: local requests may wait for theirs
 *
 * All calls take constant time. Threads: the loop's. Errors: only account_get() can fail. */
#ifndef SHEAF_LIMITS_H
#define SHEAF_LIMITS_H

#include "core/core.h"

enum limit {
	LIMIT_LINKS,
	LIMIT_SESSIONS,
	LIMIT_OPENS,
	LIMIT_LOCKS,
	LIMIT_LOCK_WAITS,
	LIMIT_APPENDS, /* ranges assigned and not yet reported */
	LIMIT_REQUEST_BYTES, /* memory of requests in service */
	LIMIT_REPLY_BYTES, /* memory of messages that wait to be sent */
	N_LIMITS
};
#define KEY_PART 8
#define USERS_NUM 3
#define USERS_DEN 4

/* Which bound is exhausted. */
enum limit_scope { LIMIT_NONE, LIMIT_OF_SESSION, LIMIT_OF_KEY, LIMIT_OF_USERS, LIMIT_OF_SERVER };

enum key_kind {
	KEY_UNKNOWN, /* of a session that was not resumed since the server started */
	KEY_ONE_USER,
	KEY_ANY_USER,
	KEY_OF_SERVERS,
};

struct limits {
	struct htab keys; /* struct key_account */
	uint64_t most[N_LIMITS], most_session[N_LIMITS]; /* most_session 0: no bound per session */
	uint64_t used[N_LIMITS], used_by_users[N_LIMITS]; /* used_by_users: with keys of one user */
};

/* What all links and sessions of one key hold. Lives as long as the last of them, even after its
 * struct limits is gone. */
struct key_account {
	struct hnode node;
	struct limits *limits; /* NULL: gone */
	char name[CONF_NAME_MAX];
	enum key_kind kind;
	uint32_t refs;
	uint64_t used[N_LIMITS];
	struct pool_share share, copy_share; /* key of one user: shared by all its sessions */
};

/* What one link or session holds. While zeroed, no limit applies. */
struct usage {
	struct key_account *key; /* or NULL */
	uint64_t used[N_LIMITS];
};

const char *limit_name(enum limit what); /* "open files" */
const char *limit_scope_name(enum limit_scope scope); /* "of this key" */
void limits_init(struct limits *l); /* with a server's default bounds */
void limits_fini(struct limits *l); /* accounts may outlive it */
/* The value of a bound. */
uint64_t limit_value(const struct limits *l, enum limit what, enum limit_scope scope);

/* The account of a key, with a reference; NULL: out of memory. */
struct key_account *account_get(struct limits *l, const char *name, enum key_kind kind);
void account_put(struct key_account *k); /* accepts NULL */

/* Charges all that h holds to key k, even beyond the key's bounds. Takes the reference. */
void usage_move(struct usage *h, struct key_account *k);
void usage_fini(struct usage *h); /* returns everything */
/* Takes n more units. LIMIT_NONE, or the exhausted bound; then nothing was taken. */
enum limit_scope usage_take(struct usage *h, enum limit what, uint64_t n);
/* Takes n units without a check, for what exists already; usage_over() checks. */
void usage_add(struct usage *h, enum limit what, uint64_t n);
void usage_give(struct usage *h, enum limit what, uint64_t n);
/* The first bound of which more than 1/part is in use with n more units; LIMIT_NONE: none. */
enum limit_scope usage_over(const struct usage *h, enum limit what, uint64_t n, unsigned part);

#endif
