/* Does asking the bank pay? For each class of accesses this compares what the servers take with
 * what a conversation with the bank takes, and adds up what asking has saved and cost.
 *
 * Accesses that do not ask measure the servers; probes, which no access waits for, measure the
 * bank. They take a hundredth of the time that accesses take. While the bank is not clearly faster
 * no access asks, so nothing is filled either. Where it is faster, the sum decides: it is negative
 * where too little is found. Then no access asks, and each adds a part of its time.
 *
 * A conversation counts TALK_COST times: it takes as much more processor time than a small read by
 * a server, and where all processors are busy, that is what other clients wait for. Counted once,
 * clients of a busy host would ask until all accesses take as long as conversations.
 *
 * Threads: the loop's. Buffers: none. Errors: none. */
#include "cache/cache.h"

#define WEIGHT 16 /* of a mean: samples */
#define SAMPLES_MIN 8 /* before a mean counts */
#define PROBE_SHARE 100 /* times the duration of a probe: accesses between two of them */
#define PLAIN_SHARE 32 /* the same of accesses that do not ask, where asking pays */
#define PLAIN_EVERY 64 /* least number of accesses between two of those */
#define LOSS_SHARE 12 /* the part of its time that an access adds to a negative sum */
#define TALK_COST 2
#define SUM_MAX ((int64_t)(20 * NSEC_PER_MSEC))
#define PATIENCE_MIN (8 * NSEC_PER_MSEC)
#define PATIENCE_MAX (500 * NSEC_PER_MSEC)
#define PATIENCE 4 /* times the duration of a fill */

/* Attributes and blocks are found independently of each other. */
static int64_t *sum_of(struct bank_choice *k, unsigned class)
{
	return &k->saved[class == BANK_ATTR];
}

unsigned choice_class(uint64_t bytes)
{
	unsigned i = 0;

	while (bytes > 1 && i < BANK_SIZES - 1) {
		bytes >>= 1;
		i++;
	}
	return i;
}

/* The mean of the first samples; later ones count as 1/WEIGHT. */
static void note(uint64_t *mean, uint32_t *n, uint64_t ns)
{
	*n = MIN(*n + 1, WEIGHT);
	*mean = *mean - *mean / *n + MAX(ns, 1u) / *n;
}

static bool is_far_below(const struct bank_class *c)
{
	return c->ask_ns * TALK_COST < c->plain_ns;
}

static void compare(struct bank_class *c)
{
	if (c->n_plain >= SAMPLES_MIN && c->n_ask >= SAMPLES_MIN)
		c->is_faster = is_far_below(c);
}

bool choice_asks(struct bank_choice *k, unsigned class)
{
	struct bank_class *c = &k->classes[class];

	if (k->asks_always)
		return true;
	if (!c->is_faster || *sum_of(k, class) < 0)
		return false;
	if (c->n_asked >= PLAIN_EVERY && c->unplain / PLAIN_SHARE >= c->plain_ns)
		return false;
	c->n_asked++;
	return true;
}

bool choice_probes(const struct bank_choice *k, unsigned class)
{
	const struct bank_class *c = &k->classes[class];

	if (k->asks_always || c->n_plain < SAMPLES_MIN)
		return false;
	if (c->n_ask < SAMPLES_MIN && is_far_below(c)) /* likely to pay: be sure soon */
		return true;
	return c->unprobed / PROBE_SHARE >= c->ask_ns;
}

void choice_note_plain(struct bank_choice *k, unsigned class, uint64_t ns)
{
	struct bank_class *c = &k->classes[class];

	note(&c->plain_ns, &c->n_plain, ns);
	c->unprobed += ns;
	c->unplain = 0;
	c->n_asked = 0;
	if (*sum_of(k, class) < 0)
		*sum_of(k, class) += (int64_t)(ns / LOSS_SHARE);
	compare(c);
}

void choice_note_ask(struct bank_choice *k, unsigned class, uint64_t ns, bool has_failed)
{
	struct bank_class *c = &k->classes[class];

	c->unprobed = 0;
	if (has_failed && ns < c->ask_ns) /* daemons that are skipped answer quickly */
		return;
	note(&c->ask_ns, &c->n_ask, ns);
	compare(c);
}

void choice_note_asked(struct bank_choice *k, unsigned class, uint64_t ns, uint64_t talk_ns)
{
	struct bank_class *c = &k->classes[class];
	uint64_t cost = ns + (TALK_COST - 1) * talk_ns;
	int64_t sum = *sum_of(k, class) + (int64_t)c->plain_ns - (int64_t)cost;

	c->unplain += ns;
	*sum_of(k, class) = MAX(MIN(sum, SUM_MAX), -SUM_MAX);
}

uint64_t choice_patience(const struct bank_choice *k, unsigned class)
{
	uint64_t fill = MAX(k->fill_ns, k->classes[class].plain_ns);

	return MAX(PATIENCE_MIN, MIN(PATIENCE * fill, PATIENCE_MAX));
}

void choice_note_fill(struct bank_choice *k, uint64_t ns)
{
	k->fill_ns = k->fill_ns ? k->fill_ns - k->fill_ns / 8 + ns / 8 : ns;
}
