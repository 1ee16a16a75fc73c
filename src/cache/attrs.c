/* Attributes in the bank, and notices of their changes.
 *
 * Unlike blocks, attributes are found by names that do not determine them. They are true only for
 * a while: an entry has the wall clock of the client that asked the server, and its reader decides
 * how old it may be. The daemons drop it a second later. A metadata server sets notices: an inode
 * has this `change` now. An entry with an older one is not used, so it does not matter whether it
 * was stored before or after the notice.
 *
 * Threads: functions of jobs belong to workers. Buffers: an entry is copied. Errors: what goes
 * wrong is counted, and nothing is found. */
#include "cache/bank_impl.h"

#define HEAD offsetof(struct bank_attr, data)
#define PLAIN_MAX (sizeof(struct bank_attr) + sizeof(struct bank_state) + BANK_WHOLE_MAX)
#define VALUE_MAX (SEAL_BYTES + PLAIN_MAX)
#define NOTICE_SECONDS 3 /* longer than any entry that was stored before it is used */
#define NOTICES 256 /* that wait while others are being set */

uint32_t bank_attr_seconds(const struct bank *b)
{
	return b->conf.attributes;
}

struct bank_call *bank_look_new(struct bank *b)
{
	struct bank_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->bank = b;
	c->look = calloc(1, sizeof(*c->look));
	if (!c->look) {
		free(c);
		return NULL;
	}
	return c;
}

static void name_notice(const struct bank *b, uint64_t incarnation, uint64_t ino,
			char out[BANK_KEY])
{
	const uint64_t of[] = { incarnation, ino };

	seal_name_of(b->seal, BANK_NOTICE, of, sizeof(of), NULL, 0, out);
}

static void name_handle(const struct bank *b, uint64_t incarnation, uint64_t ino, uint32_t gen,
			char out[BANK_KEY])
{
	const uint64_t of[] = { incarnation, ino, gen };

	seal_name_of(b->seal, BANK_HANDLE, of, sizeof(of), NULL, 0, out);
}

void bank_look_handle(struct bank_call *c, uint64_t incarnation, uint64_t ino, uint32_t gen)
{
	name_handle(c->bank, incarnation, ino, gen, c->look->by_handle);
	name_notice(c->bank, incarnation, ino, c->look->notice);
	c->look->has_handle = true;
}

void bank_look_question(struct bank_call *c, const void *a, size_t n_a, const void *b, size_t n_b)
{
	seal_name_of(c->bank->seal, BANK_QUESTION, a, n_a, b, n_b, c->look->by_question);
	c->look->has_question = true;
}

/* ---- workers ---- */

static struct bank_worker *worker_of(const struct bank_call *c)
{
	return &c->bank->workers[c->worker];
}

static size_t get(struct bank_call *c, struct bank_entry *e, size_t n)
{
	return (size_t)c->bank->loop->env->bank->get(worker_of(c)->handle, e, n);
}

/* The whole that follows the attributes of a handle; n: bytes of both. */
static bool take_whole(struct bank_whole *w, const uint8_t *p, size_t n)
{
	w->length = 0;
	if (n == 0)
		return true;
	if (n < sizeof(w->state) || n - sizeof(w->state) > BANK_WHOLE_MAX)
		return false;
	memcpy(&w->state, p, sizeof(w->state));
	memcpy(w->data, p + sizeof(w->state), n - sizeof(w->state));
	w->length = (uint32_t)(n - sizeof(w->state));
	return true;
}

/* Opens an entry with attributes. False: it is not there, or is none. */
static bool open_attr(struct bank_call *c, const struct bank_entry *e, struct bank_attr *a)
{
	uint8_t plain[PLAIN_MAX];
	size_t n = e->length;

	if (!n)
		return false;
	c->bad++;
	if (n < SEAL_BYTES + HEAD || seal_open(worker_of(c)->x, e->key, e->value, n, plain))
		return false;
	n -= SEAL_BYTES;
	memcpy(a, plain, HEAD);
	if (a->length > BANK_ATTR_MAX || a->length > n - HEAD)
		return false;
	memcpy(a->data, plain + HEAD, a->length);
	if (!take_whole(&c->look->whole, plain + HEAD + a->length, n - HEAD - a->length))
		return false;
	c->bad--;
	return true;
}

/* Does a notice tell of a later change? */
static bool is_outdated(struct bank_call *c, const struct bank_entry *e)
{
	uint64_t change;

	if (!e->length)
		return false;
	if (e->length == SEAL_BYTES + sizeof(change) &&
	    !seal_open(worker_of(c)->x, e->key, e->value, e->length, &change))
		return change > c->look->attr.change;
	c->bad++;
	return true;
}

/* The whole of the file whose attributes a question has found, if it is in the entry of its handle
 * and in the same state. */
static void find_whole(struct bank_call *c, const struct bank_entry *e)
{
	struct bank_look *k = c->look;
	struct bank_attr a;

	if (!open_attr(c, e, &a) || a.change != k->attr.change || a.ino != k->attr.ino ||
	    a.incarnation != k->attr.incarnation)
		k->whole.length = 0;
}

/* The entry of a handle and its notice are asked for together; the notice for the answer to a
 * question is known only when that is found, and so is the entry of its handle. */
void look_find(struct job *j)
{
	struct bank_call *c = container_of(j, struct bank_call, job);
	struct bank_look *k = c->look;
	uint8_t value[VALUE_MAX], notice[SEAL_BYTES + sizeof(uint64_t)];
	struct bank_entry e[] = { { .value = value, .length = sizeof(value) },
				  { .value = notice, .length = sizeof(notice) } };
	bool wants_whole;

	k->whole.length = 0;
	memcpy(e[0].key, k->has_question ? k->by_question : k->by_handle, BANK_KEY);
	memcpy(e[1].key, k->notice, BANK_KEY);
	c->failures += (uint32_t)get(c, e, k->has_question ? 1 : 2);
	k->is_found = open_attr(c, &e[0], &k->attr);
	if (k->is_found && k->has_question) {
		wants_whole = k->wants_whole && k->attr.file_bytes;
		name_handle(c->bank, k->attr.incarnation, k->attr.ino, k->attr.gen, e[0].key);
		name_notice(c->bank, k->attr.incarnation, k->attr.ino, e[1].key);
		e[0].length = sizeof(value);
		c->failures += (uint32_t)get(c, wants_whole ? e : e + 1, wants_whole ? 2 : 1);
		if (wants_whole)
			find_whole(c, &e[0]);
	}
	k->is_found = k->is_found && !c->failures && !is_outdated(c, &e[1]);
	c->ended = c->bank->loop->env->clock->now(c->bank->loop->env);
}

/* replaces false: an entry of this name stays. */
static void put(struct bank_call *c, const char name[BANK_KEY], const void *data, size_t n,
		uint32_t seconds, bool replaces)
{
	struct env *env = c->bank->loop->env;
	uint8_t value[VALUE_MAX], nonce[12];
	struct bank_entry e = { .value = value, .length = SEAL_BYTES + n };
	int r;

	env->clock->random(env, nonce, sizeof(nonce));
	memcpy(e.key, name, BANK_KEY);
	if (seal_close(worker_of(c)->x, name, nonce, data, n, value))
		return;
	if (replaces)
		r = env->bank->set(worker_of(c)->handle, &e, seconds);
	else
		r = env->bank->add(worker_of(c)->handle, &e, seconds);
	c->filled += r == 0;
	c->failures += r == -EIO;
}

void look_store(struct job *j)
{
	struct bank_call *c = container_of(j, struct bank_call, job);
	const struct bank_look *k = c->look;
	uint32_t seconds = c->bank->conf.attributes + 1; /* the daemons count whole ones */

	size_t n = HEAD + k->attr.length, more = sizeof(k->whole.state);
	uint8_t plain[PLAIN_MAX];

	if (k->has_question)
		put(c, k->by_question, &k->attr, n, seconds, true);
	if (!k->has_handle)
		return;
	memcpy(plain, &k->attr, n);
	if (k->whole.length) {
		memcpy(plain + n, &k->whole.state, more);
		memcpy(plain + n + more, k->whole.data, k->whole.length);
		n += more + k->whole.length;
	}
	/* one that a question brings does not replace a whole of another client */
	put(c, k->by_handle, plain, n, seconds, k->whole.length || !k->has_question);
}

/* ---- notices ---- */

struct bank_notices {
	struct bank_call call;
	struct bank_notice waiting[NOTICES], under_way[NOTICES];
	size_t n_waiting, n_under_way; /* n_under_way: 0 while the worker has none */
	uint64_t incarnation;
};

static void notify(struct job *j)
{
	struct bank_notices *k = container_of(j, struct bank_notices, call.job);
	struct bank_call *c = &k->call;
	char name[BANK_KEY];

	for (size_t i = 0; i < k->n_under_way; i++) {
		name_notice(c->bank, k->incarnation, k->under_way[i].ino, name);
		put(c, name, &k->under_way[i].change, sizeof(uint64_t),
		    c->bank->conf.attributes + NOTICE_SECONDS, true);
	}
}

static void notices_start(struct bank_notices *k);

static void notified(struct job *j)
{
	struct bank_notices *k = container_of(j, struct bank_notices, call.job);
	struct bank *b = k->call.bank;

	b->counts.notices += k->call.filled;
	b->counts.ask_ns += b->loop->env->clock->now(b->loop->env) - k->call.began;
	bank_count(&k->call);
	k->n_under_way = 0;
	notices_start(k);
}

static void notices_start(struct bank_notices *k)
{
	if (k->n_under_way || !k->n_waiting || k->call.bank->is_stopped)
		return;
	memcpy(k->under_way, k->waiting, k->n_waiting * sizeof(k->waiting[0]));
	k->n_under_way = k->n_waiting;
	k->n_waiting = 0;
	k->call.filled = 0;
	bank_submit(&k->call, notify, notified);
}

static void add_notice(struct bank_notices *k, const struct bank_notice *n)
{
	for (size_t i = 0; i < k->n_waiting; i++)
		if (k->waiting[i].ino == n->ino) {
			k->waiting[i].change = n->change;
			return;
		}
	if (k->n_waiting == NOTICES)
		k->call.bank->counts.notices_lost++;
	else
		k->waiting[k->n_waiting++] = *n;
}

void bank_notify(struct bank *b, uint64_t incarnation, const struct bank_notice *n, size_t count)
{
	struct bank_notices *k = b->notices;

	if (!k)
		k = b->notices = calloc(1, sizeof(*k));
	if (!k || b->is_stopped) {
		b->counts.notices_lost += count;
		return;
	}
	k->call.bank = b;
	k->incarnation = incarnation;
	for (size_t i = 0; i < count; i++)
		add_notice(k, &n[i]);
	notices_start(k);
}
