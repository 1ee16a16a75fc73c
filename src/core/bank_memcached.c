/* The cache bank over libmemcached, which is loaded at run time.
 *
 * One set of daemons of the library (`map`) decides which daemon has a key; each daemon has a
 * connection of its own, so that one that is slow or gone costs the others nothing.
 *
 * Threads: one per handle. Buffers: values are copied into the caller's. Errors: a daemon that did
 * not answer in time is skipped for 2 ms, then twice as long after each further failure, up to
 * half a minute. It gets twice the time then, up to TIMEOUT_MAX_MS, and less again when it has
 * answered: on a host with too much to do everything takes long. */
#include <dlfcn.h>
#include <libmemcached/memcached.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/bank.h"
#include "core/env_real.h"

#define LIBRARY "libmemcached.so.11"
#define SKIP_MIN (2 * NSEC_PER_MSEC) /* short: a busy host answers late, too */
#define SKIP_MAX (30 * NSEC_PER_SEC)
#define TIMEOUT_MAX_MS 80
#define TIMEOUT_CALM 256 /* answers after which a daemon gets less time again */

/* ---- the library ---- */

static struct {
	__typeof__(&memcached_create) create;
	__typeof__(&memcached_free) free;
	__typeof__(&memcached_server_add) server_add;
	__typeof__(&memcached_behavior_set) behavior_set;
	__typeof__(&memcached_generate_hash) generate_hash;
	__typeof__(&memcached_mget) mget;
	__typeof__(&memcached_fetch) fetch;
	__typeof__(&memcached_set) set;
	__typeof__(&memcached_add) add;
	__typeof__(&memcached_delete) remove;
	__typeof__(&memcached_quit) quit;
} api;
static char load_error[256]; /* "": loaded */

#define SYMBOL(field, name) \
	{ \
		name, (char *)&api.field \
	}

/* The library stays loaded. */
static void load(void)
{
	const struct {
		const char *name;
		char *at;
	} symbols[] = {
		SYMBOL(create, "memcached_create"),
		SYMBOL(free, "memcached_free"),
		SYMBOL(server_add, "memcached_server_add"),
		SYMBOL(behavior_set, "memcached_behavior_set"),
		SYMBOL(generate_hash, "memcached_generate_hash"),
		SYMBOL(mget, "memcached_mget"),
		SYMBOL(fetch, "memcached_fetch"),
		SYMBOL(set, "memcached_set"),
		SYMBOL(add, "memcached_add"),
		SYMBOL(remove, "memcached_delete"),
		SYMBOL(quit, "memcached_quit"),
	};
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(load_error, sizeof(load_error),
			 "%s is not installed: install it (Debian: libmemcached11)", LIBRARY);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
		void *symbol = dlsym(library, symbols[i].name);

		if (!symbol) {
			snprintf(load_error, sizeof(load_error),
				 "%s has no %s: install version 1.1", LIBRARY, symbols[i].name);
			return;
		}
		memcpy(symbols[i].at, &symbol, sizeof(symbol));
	}
}

/* ---- handles ---- */

struct daemon {
	memcached_st *m;
	uint64_t skip_until, skip; /* it failed: not asked until then; how long the last time */
	uint32_t patience; /* times the timeout: how long it is waited for */
	uint32_t n_answers; /* since that changed */
	size_t asked; /* keys of the get under way */
};

struct handle {
	struct env *env;
	memcached_st *map;
	uint32_t timeout_ms;
	uint32_t n;
	struct daemon daemons[];
};

/* As for all daemons, where it matters. */
static void behave(memcached_st *m, const struct bank_setup *s)
{
	api.behavior_set(m, MEMCACHED_BEHAVIOR_HASH, MEMCACHED_HASH_CRC);
	api.behavior_set(m, MEMCACHED_BEHAVIOR_DISTRIBUTION,
			 s->modulo ? MEMCACHED_DISTRIBUTION_MODULA :
				     MEMCACHED_DISTRIBUTION_CONSISTENT);
	api.behavior_set(m, MEMCACHED_BEHAVIOR_NO_BLOCK, 1);
	api.behavior_set(m, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
	api.behavior_set(m, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, s->timeout_ms);
	api.behavior_set(m, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, s->timeout_ms);
	api.behavior_set(m, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 0); /* skip_until decides */
}

static int add_server(memcached_st *m, const char *address)
{
	const char *colon = strrchr(address, ':');
	char host[CONF_ADDR_MAX];
	int n = (int)(colon - address);

	if (*address == '[')
		snprintf(host, sizeof(host), "%.*s", n - 2, address + 1);
	else
		snprintf(host, sizeof(host), "%.*s", n, address);
	return api.server_add(m, host, (in_port_t)atoi(colon + 1)) == MEMCACHED_SUCCESS ? 0 :
											  -ENOMEM;
}

static void bank_close(void *handle)
{
	struct handle *h = handle;

	for (uint32_t i = 0; i < h->n; i++)
		if (h->daemons[i].m)
			api.free(h->daemons[i].m);
	if (h->map)
		api.free(h->map);
	free(h);
}

static int bank_open(struct env *e, const struct bank_setup *s, void **out, char *why,
		     size_t why_len)
{
	static pthread_once_t loaded = PTHREAD_ONCE_INIT;
	struct handle *h;
	int r = 0;

	pthread_once(&loaded, load);
	if (*load_error)
		return error_explain(why, why_len, -EOPNOTSUPP, "%s", load_error);
	h = calloc(1, sizeof(*h) + s->n_servers * sizeof(h->daemons[0]));
	if (!h)
		return error_explain(why, why_len, -ENOMEM, "no memory for the cache bank");
	h->env = e;
	h->timeout_ms = s->timeout_ms;
	h->n = s->n_servers;
	h->map = api.create(NULL);
	if (!h->map)
		r = -ENOMEM;
	for (uint32_t i = 0; !r && i < h->n; i++) {
		h->daemons[i].patience = 1;
		h->daemons[i].m = api.create(NULL);
		r = h->daemons[i].m ? add_server(h->daemons[i].m, s->servers[i]) : -ENOMEM;
		if (!r)
			r = add_server(h->map, s->servers[i]);
		if (!r)
			behave(h->daemons[i].m, s);
	}
	if (r) {
		bank_close(h);
		return error_explain(why, why_len, r, "no memory for the cache bank");
	}
	behave(h->map, s);
	*out = h;
	return 0;
}

/* ---- calls ---- */

static struct daemon *daemon_of(struct handle *h, const struct bank_entry *e)
{
	uint32_t i = h->n == 1 ? 0 : api.generate_hash(h->map, e->key, sizeof(e->key));

	return &h->daemons[i < h->n ? i : 0];
}

static bool is_skipped(struct handle *h, const struct daemon *d)
{
	return d->skip_until && h->env->clock->now(h->env) < d->skip_until;
}

static uint64_t timeout_of(const struct handle *h, const struct daemon *d)
{
	return d->patience * h->timeout_ms * NSEC_PER_MSEC;
}

static void set_patience(struct handle *h, struct daemon *d, uint32_t patience)
{
	d->patience = patience;
	d->n_answers = 0;
	api.behavior_set(d->m, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, patience * h->timeout_ms);
}

static void failed(struct handle *h, struct daemon *d)
{
	api.quit(d->m); /* what still arrives belongs to no later call */
	if (2 * d->patience * h->timeout_ms <= TIMEOUT_MAX_MS)
		set_patience(h, d, 2 * d->patience);
	d->skip = MIN(MAX(2 * d->skip, SKIP_MIN), SKIP_MAX);
	d->skip_until = h->env->clock->now(h->env) + d->skip;
}

static void worked(struct handle *h, struct daemon *d)
{
	d->skip = d->skip_until = 0;
	if (++d->n_answers >= TIMEOUT_CALM && d->patience > 1)
		set_patience(h, d, d->patience / 2);
}

/* Asks a daemon for those of the entries that it has, before `end`. Returns 1 if it failed or is
 * not asked. */
static int ask(struct handle *h, struct daemon *d, uint64_t end, const struct bank_entry *entries,
	       size_t n)
{
	const char *keys[BANK_BATCH];
	size_t lengths[BANK_BATCH];

	d->asked = 0;
	for (size_t i = 0; i < n; i++) {
		if (daemon_of(h, &entries[i]) != d)
			continue;
		keys[d->asked] = entries[i].key;
		lengths[d->asked++] = sizeof(entries[i].key);
	}
	if (!d->asked)
		return 0;
	if (is_skipped(h, d) || h->env->clock->now(h->env) > end) {
		d->asked = 0;
		return 1;
	}
	if (api.mget(d->m, keys, lengths, d->asked) == MEMCACHED_SUCCESS)
		return 0;
	d->asked = 0;
	failed(h, d);
	return 1;
}

static void take(struct bank_entry *entries, size_t n, const char *key, size_t key_len,
		 const char *value, size_t length, const size_t *room)
{
	for (size_t i = 0; key_len == BANK_KEY && i < n; i++) {
		if (memcmp(entries[i].key, key, BANK_KEY) || length > room[i])
			continue;
		memcpy(entries[i].value, value, length);
		entries[i].length = length;
	}
}

/* Takes a daemon's answers. Returns 1 if it failed. */
static int answers(struct handle *h, struct daemon *d, struct bank_entry *entries, size_t n,
		   const size_t *room)
{
	uint64_t end = h->env->clock->now(h->env) + timeout_of(h, d);
	memcached_return_t r = MEMCACHED_SUCCESS;
	char key[MEMCACHED_MAX_KEY];

	do {
		size_t key_len, length;
		uint32_t flags;
		char *value = api.fetch(d->m, key, &key_len, &length, &flags, &r);

		if (value && r == MEMCACHED_SUCCESS)
			take(entries, n, key, key_len, value, length, room);
		free(value);
	} while (r == MEMCACHED_SUCCESS && h->env->clock->now(h->env) < end);
	if (r == MEMCACHED_END || r == MEMCACHED_NOTFOUND) {
		worked(h, d);
		return 0;
	}
	failed(h, d);
	return 1;
}

static int bank_get(void *handle, struct bank_entry *entries, size_t n)
{
	struct handle *h = handle;
	uint64_t end = h->env->clock->now(h->env) + h->timeout_ms * NSEC_PER_MSEC;
	size_t room[BANK_BATCH];
	int n_failed = 0;

	for (size_t i = 0; i < n; i++)
		room[i] = entries[i].length;
	for (size_t i = 0; i < n; i++)
		entries[i].length = 0;
	for (uint32_t i = 0; i < h->n; i++)
		n_failed += ask(h, &h->daemons[i], end, entries, n);
	for (uint32_t i = 0; i < h->n; i++)
		if (h->daemons[i].asked)
			n_failed += answers(h, &h->daemons[i], entries, n, room);
	return n_failed;
}

/* What a daemon answered to a change, as 0 or -errno. */
static int changed(struct handle *h, struct daemon *d, memcached_return_t r)
{
	switch (r) {
	case MEMCACHED_SUCCESS:
	case MEMCACHED_STORED:
	case MEMCACHED_BUFFERED:
	case MEMCACHED_DELETED:
	case MEMCACHED_NOTFOUND: /* of a removal */
		worked(h, d);
		return 0;
	case MEMCACHED_NOTSTORED:
	case MEMCACHED_DATA_EXISTS:
		worked(h, d);
		return -EEXIST;
	case MEMCACHED_E2BIG: /* the daemon's limit is lower */
	case MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE:
		return -EFBIG;
	default:
		failed(h, d);
		return -EIO;
	}
}

static int bank_set(void *handle, const struct bank_entry *e, uint32_t seconds)
{
	struct handle *h = handle;
	struct daemon *d = daemon_of(h, e);

	if (is_skipped(h, d))
		return -EIO;
	return changed(h, d,
		       api.set(d->m, e->key, sizeof(e->key), e->value, e->length, seconds, 0));
}

static int bank_add(void *handle, const struct bank_entry *e, uint32_t seconds)
{
	struct handle *h = handle;
	struct daemon *d = daemon_of(h, e);

	if (is_skipped(h, d))
		return -EIO;
	return changed(h, d,
		       api.add(d->m, e->key, sizeof(e->key), e->value, e->length, seconds, 0));
}

static int bank_remove(void *handle, const struct bank_entry *e)
{
	struct handle *h = handle;
	struct daemon *d = daemon_of(h, e);

	if (is_skipped(h, d))
		return -EIO;
	return changed(h, d, api.remove(d->m, e->key, sizeof(e->key), 0));
}

const struct bank_ops bank_memcached_ops = {
	.open = bank_open,
	.close = bank_close,
	.get = bank_get,
	.set = bank_set,
	.add = bank_add,
	.remove = bank_remove,
};
