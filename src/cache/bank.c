/* The bank of a client: workers that speak with the daemons.
 *
 * A worker has its own connections. It starts when all others are busy. A conversation is lent to
 * its worker until done() runs on the loop.
 *
 * Threads: the loop's, but for what is marked as the worker's. Buffers: borrowed; those of stores
 * are the bank's. Errors: none of an access; what goes wrong is counted, and nothing is found. */
#include <stdlib.h>

#include "cache/bank_impl.h"

#define STORE_BYTES_MAX (16 * MIB) /* under way */
#define LIMIT 4 /* times the timeout of a daemon: how long a conversation may take */
#define TICKET_SECONDS 1 /* how long a client may take to fill */

static int worker_begin(struct bank *b, struct bank_worker *w, char *why, size_t why_len)
{
	const struct bank_setup setup = { b->conf.servers, b->conf.n_servers, b->conf.timeout_ms,
					  b->conf.modulo };
	struct env *e = b->loop->env;
	size_t room = b->conf.block + SEAL_BYTES;
	int r = e->bank->open(e, &setup, &w->handle, why, why_len);

	if (r)
		return r;
	w->b = b;
	w->x = seal_context(b->seal);
	w->value = malloc(room);
	w->found = malloc(room * MIN((size_t)BANK_BATCH, MIB / b->conf.block + 1));
	if (!w->x || !w->value || !w->found)
		r = -ENOMEM;
	else
		r = e->exec->worker_start(e, b->loop, "sheaf-bank", &w->w);
	if (r)
		return error_explain(why, why_len, r, "cannot start a worker of the cache bank: %s",
				     error_text(r));
	b->n_workers++;
	return 0;
}

static void worker_free(struct bank_worker *w)
{
	if (w->handle)
		w->b->loop->env->bank->close(w->handle);
	seal_context_free(w->x);
	free(w->value);
	free(w->found);
}

int bank_new(struct loop *l, const struct conf_bank *conf, const uint8_t key[KEY_BYTES],
	     const struct uuid *fs, struct bank **out, char *why, size_t why_len)
{
	struct bank *b = calloc(1, sizeof(*b));
	int r = -ENOMEM;

	*out = NULL;
	if (!l->env->bank) {
		free(b);
		return error_explain(why, why_len, -EOPNOTSUPP, "there is no cache bank here");
	}
	if (b) {
		b->loop = l;
		b->conf = *conf;
		b->seal = seal_new(key, fs, conf->unsealed);
		b->workers[0].b = b;
		r = b->seal ? worker_begin(b, &b->workers[0], why, why_len) : -ENOMEM;
	}
	if (r == -ENOMEM)
		error_explain(why, why_len, r, "no memory for the cache bank");
	if (r) {
		bank_stop(b);
		bank_free(b);
	} else {
		*out = b;
	}
	return r;
}

void bank_stop(struct bank *b)
{
	if (!b || b->is_stopped)
		return;
	b->is_stopped = true;
	for (unsigned i = 0; i < b->n_workers; i++)
		b->loop->env->exec->worker_stop(b->workers[i].w);
}

void bank_free(struct bank *b)
{
	if (!b)
		return;
	for (unsigned i = 0; i < WORKERS; i++)
		if (b->workers[i].b)
			worker_free(&b->workers[i]);
	free(b->notices);
	seal_free(b->seal);
	free(b);
}

struct bank_counts *bank_counts(struct bank *b)
{
	return &b->counts;
}

struct bank_choice *bank_choice(struct bank *b)
{
	return &b->choice;
}

uint32_t bank_block_bytes(const struct bank *b)
{
	return b->conf.block;
}

bool bank_has_data(const struct bank *b)
{
	return b->conf.data;
}

/* The worker with the least to do; another one is started if all have some. */
static unsigned choose_worker(struct bank *b)
{
	unsigned best = 0;
	char why[160];

	for (unsigned i = 1; i < b->n_workers; i++)
		if (b->workers[i].busy < b->workers[best].busy)
			best = i;
	if (!b->workers[best].busy || b->n_workers == WORKERS || b->is_broken)
		return best;
	if (worker_begin(b, &b->workers[b->n_workers], why, sizeof(why))) {
		b->is_broken = true;
		return best;
	}
	return b->n_workers - 1;
}

/* ---- conversations ---- */

static uint64_t clock_of(const struct bank *b)
{
	return b->loop->env->clock->now(b->loop->env);
}

struct bank_call *bank_call_new(struct bank *b, const struct bank_state *s, size_t n)
{
	struct bank_call *c = calloc(1, sizeof(*c) + n * sizeof(c->blocks[0]));

	if (!c)
		return NULL;
	c->data = malloc(n * b->conf.block);
	if (!c->data) {
		free(c);
		return NULL;
	}
	c->bank = b;
	c->state = *s;
	c->blocks = (struct bank_block *)(c + 1);
	return c;
}

void bank_call_free(struct bank_call *c)
{
	if (!c)
		return;
	free(c->look);
	free(c->data);
	free(c);
}

void bank_add_block(struct bank_call *c, uint64_t index)
{
	uint64_t block = c->bank->conf.block, start = index * block, size = c->state.size;

	c->blocks[c->n] = (struct bank_block){
		.index = index,
		.data = c->data + c->n * block,
		.length = start < size ? (uint32_t)MIN(block, size - start) : 0,
	};
	c->n++;
}

void bank_submit(struct bank_call *c, void (*run)(struct job *j), void (*done)(struct job *j))
{
	struct bank *b = c->bank;

	c->job.run = run;
	c->job.done = done;
	c->worker = choose_worker(b);
	c->failures = c->bad = 0;
	c->began = clock_of(b);
	b->workers[c->worker].busy++;
	b->loop->env->exec->worker_submit(b->workers[c->worker].w, &c->job);
}

void bank_count(struct bank_call *c)
{
	c->bank->workers[c->worker].busy--;
	c->bank->counts.failures += c->failures;
	c->bank->counts.bad += c->bad;
	c->bank->counts.filled += c->filled;
}

/* The worker's. */
static void name_of(const struct bank_call *c, enum bank_kind kind, size_t i, char out[BANK_KEY])
{
	seal_name(c->bank->seal, kind, &c->state, c->bank->conf.block, c->blocks[i].index, out);
}

/* The worker's: which of the missing blocks stands for all of them. */
static size_t first_missing(const struct bank_call *c)
{
	size_t i = 0;

	while (i < c->n && c->blocks[i].is_found)
		i++;
	return i;
}

/* The worker's. */
static void take_ticket(struct bank_worker *w, struct bank_call *c)
{
	struct bank_entry e = { .value = (uint8_t[]){ 1 }, .length = 1 };
	size_t i = first_missing(c);
	int r;

	if (i == c->n)
		return;
	name_of(c, BANK_TICKET, i, e.key);
	r = c->bank->loop->env->bank->add(w->handle, &e, TICKET_SECONDS);
	c->has_ticket = r == 0;
	c->is_taken = r == -EEXIST;
	c->failures += r && r != -EEXIST;
}

/* The worker's. */
static void drop_ticket(struct job *j)
{
	struct bank_call *c = container_of(j, struct bank_call, job);
	struct bank_entry e = { .length = 0 };
	size_t i = first_missing(c);

	if (i == c->n)
		return;
	name_of(c, BANK_TICKET, i, e.key);
	c->bank->loop->env->bank->remove(c->bank->workers[c->worker].handle, &e);
}

/* The worker's. */
static void find(struct job *j)
{
	struct bank_call *c = container_of(j, struct bank_call, job);
	struct bank_worker *w = &c->bank->workers[c->worker];
	size_t room = c->bank->conf.block + SEAL_BYTES;
	struct bank_entry e[BANK_BATCH];

	for (size_t i = 0; i < c->n; i++) {
		e[i].value = w->found + i * room;
		e[i].length = room;
		name_of(c, BANK_BLOCK, i, e[i].key);
	}
	c->failures += (uint32_t)c->bank->loop->env->bank->get(w->handle, e, c->n);
	for (size_t i = 0; i < c->n; i++) {
		struct bank_block *k = &c->blocks[i];

		if (!e[i].length)
			continue;
		k->is_found = e[i].length == k->length + SEAL_BYTES &&
			      seal_open(w->x, e[i].key, e[i].value, e[i].length, k->data) == 0;
		c->bad += !k->is_found;
	}
	if (!c->failures && !c->is_probe)
		take_ticket(w, c);
	c->ended = clock_of(c->bank);
}

static void found(struct job *j)
{
	struct bank_call *c = container_of(j, struct bank_call, job);

	bank_count(c);
	timer_del(c->bank->loop, &c->limit);
	if (c->owner)
		req_done(c->q, 0, 0);
	else if (c->has_ticket) /* the read that asked has gone to the servers */
		bank_give_up(c);
	else
		bank_call_free(c);
}

/* A daemon sends byte by byte, or a name is resolved for long. */
static void limit_over(struct timer *t)
{
	struct bank_call *c = container_of(t, struct bank_call, limit);

	*c->owner = NULL;
	c->owner = NULL;
	c->bank->counts.failures++;
	req_done(c->q, 0, 0);
}

void bank_find(struct bank_call **owner, struct req *q)
{
	struct bank_call *c = *owner;
	struct bank *b = c->bank;

	c->owner = owner;
	c->q = q;
	c->has_ticket = c->is_taken = false;
	for (size_t i = 0; i < c->n; i++)
		c->blocks[i].is_found = false;
	if (b->is_stopped)
		return;
	req_hold(q);
	c->limit.fire = limit_over;
	/* without memory for a timer it may take longer */
	timer_set(b->loop, &c->limit, b->loop->now + LIMIT * b->conf.timeout_ms * NSEC_PER_MSEC);
	bank_submit(c, c->look ? look_find : find, found);
}

static void probed(struct job *j)
{
	struct bank_call *c = container_of(j, struct bank_call, job);

	bank_count(c);
	c->bank->is_probing = false;
	c->bank->counts.probes++;
	choice_note_ask(&c->bank->choice, c->class, c->ended - c->began, c->failures);
	bank_call_free(c);
}

void bank_probe(struct bank_call *c, unsigned class)
{
	struct bank *b = c->bank;

	if (b->is_stopped || b->is_probing) {
		bank_call_free(c);
		return;
	}
	b->is_probing = true;
	c->is_probe = true;
	c->class = class;
	bank_submit(c, find, probed);
}

/* The worker's. The first block is stored last: other clients that wait for it then find all. */
static void store(struct job *j)
{
	struct bank_call *c = container_of(j, struct bank_call, job);
	struct bank_worker *w = &c->bank->workers[c->worker];
	struct env *env = c->bank->loop->env;
	struct bank_entry e = { .value = w->value };
	bool is_whole = true;
	uint64_t nonce[2];

	env->clock->random(env, nonce, sizeof(nonce));
	for (size_t i = c->n; i-- > 0;) {
		const struct bank_block *k = &c->blocks[i];
		int r;

		if (k->is_found || !k->length)
			continue;
		name_of(c, BANK_BLOCK, i, e.key);
		nonce[0]++;
		e.length = k->length + SEAL_BYTES;
		if (seal_close(w->x, e.key, (const uint8_t *)nonce, k->data, k->length, w->value))
			continue;
		r = env->bank->set(w->handle, &e, 0);
		c->filled += r == 0;
		c->failures += r == -EIO;
		is_whole &= r == 0;
	}
	if (!is_whole) /* others may fill what is missing */
		drop_ticket(j);
}

static uint64_t size_of(const struct bank_call *c)
{
	return c->look ? sizeof(*c->look) : c->n * c->bank->conf.block;
}

static void stored(struct job *j)
{
	struct bank_call *c = container_of(j, struct bank_call, job);

	bank_count(c);
	c->bank->n_storing -= size_of(c);
	bank_call_free(c);
}

static void submit_store(struct bank_call *c, void (*run)(struct job *j))
{
	struct bank *b = c->bank;

	c->owner = NULL;
	if (b->is_stopped || b->n_storing >= STORE_BYTES_MAX) {
		b->counts.dropped += MAX(c->n, (size_t)1);
		bank_call_free(c);
		return;
	}
	b->n_storing += size_of(c);
	bank_submit(c, run, stored);
}

void bank_store(struct bank_call *c)
{
	submit_store(c, c->look ? look_store : store);
}

void bank_give_up(struct bank_call *c)
{
	submit_store(c, drop_ticket);
}
