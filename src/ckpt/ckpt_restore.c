/* Restores the newest complete checkpoint whose checksums are right. In rounds, one for each
 * checkpoint: process 0 offers it, with those it depends on; all compare their pieces with it; only
 * when all agree they read. A damaged one is skipped, with a message.
 *
 * Threads: that of the call. Errors: the same in all processes. */
#include <fcntl.h>
#include <inttypes.h>

#include "ckpt/ckpt_impl.h"

struct answer {
	int32_t status; /* 1: matches, but is divided in another way */
	char why[CKPT_WHY];
};

static void chain_free(struct ckpt_chain *chain)
{
	for (size_t i = 0; i < chain->n; i++) {
		ckpt_manifest_free(&chain->m[i]);
		ckpt_table_free(&chain->t[i]);
	}
	free(chain->m);
	free(chain->t);
	memset(chain, 0, sizeof(*chain));
}

/* ---- process 0: what is offered ---- */

/* Puts the manifests of a checkpoint and of those it depends on into one text, the full one
 * last. */
static int collect(const struct ckpt_store *s, uint64_t number, char **text, size_t *len)
{
	FILE *f = open_memstream(text, len);
	int r = f ? 0 : -ENOMEM;

	for (int depth = 0; !r && number; depth++) {
		struct ckpt_manifest m;
		size_t n;
		char *one;

		r = ckpt_store_manifest(s, number, &m);
		if (depth && (r == -ENOENT || depth > CKPT_CHAIN_MAX))
			r = ckpt_fail(-EUCLEAN, "it depends on %" PRIu64 ", which is not there",
				      number);
		if (!r)
			r = ckpt_manifest_text(&m, &one, &n);
		if (!r) {
			fwrite(one, 1, n, f);
			free(one);
		}
		number = m.since;
		ckpt_manifest_free(&m);
	}
	if (f && fclose(f))
		r = -ENOMEM;
	if (r && f)
		free(*text);
	return r;
}

/* The text of the next checkpoint to try; -ENOENT: there is none. n below 0: nothing is known. */
static int offer(struct sheaf_ckpt *c, const uint64_t *numbers, int n, int *at, char **text,
		 size_t *len)
{
	if (n < 0 && n != -ENOENT)
		return n;
	for (; *at < n; (*at)++) {
		int r = collect(&c->store, numbers[*at], text, len);

		if (!r)
			return 0;
		if (r == -EUCLEAN)
			ckpt_say(c, "checkpoint %" PRIu64 " is damaged and is skipped: %s",
				 numbers[*at], sheaf_ckpt_why());
		else if (r != -ENOENT) /* without a manifest it never was complete */
			return r;
	}
	return ckpt_fail(-ENOENT, "job '%s' has no complete checkpoint", c->store.job);
}

/* ---- all processes ---- */

/* Splits the text: the full one becomes the first. */
static int parse_chain(const char *text, size_t len, struct ckpt_chain *chain)
{
	static const char first[] = "sheaf-checkpoint 1\n";
	size_t n = 0;
	int r = 0;

	for (const char *s = text; (s = memmem(s, len - (size_t)(s - text), first, strlen(first)));
	     s++)
		n++;
	chain->m = calloc(n + 1, sizeof(*chain->m));
	chain->t = calloc(n + 1, sizeof(*chain->t));
	if (!chain->m || !chain->t)
		return ckpt_fail(-ENOMEM, "out of memory");
	chain->n = n;
	for (const char *s = text; !r && n; n--) {
		const char *end = memmem(s + 1, len - (size_t)(s + 1 - text), first, strlen(first));

		end = end ? end : text + len;
		r = ckpt_manifest_parse(s, (size_t)(end - s), &chain->m[n - 1]);
		s = end;
	}
	return r;
}

/* What all processes do next: the worst answer of all. */
static int agree(struct sheaf_ckpt *c, int status, bool read)
{
	int ms = read ? ckpt_long_ms(c) : (int)c->o.timeout_ms, r;
	struct answer mine = { .status = status }, all = { .status = 0 }, *a = NULL;

	snprintf(mine.why, sizeof(mine.why), "%s", status < 0 ? sheaf_ckpt_why() : "");
	if (!c->x.comm.rank) {
		a = calloc((size_t)c->x.comm.n, sizeof(*a));
		if (!a)
			return ckpt_fail(-ENOMEM, "out of memory");
	}
	r = ckpt_up(&c->x, &mine, sizeof(mine), a, ms);
	for (int i = 0; a && !r && i < c->x.comm.n; i++) {
		/* what ends the restore outweighs what skips a checkpoint */
		bool worse = a[i].status < 0 && (all.status >= 0 || (ckpt_is_damage(all.status) &&
								     !ckpt_is_damage(a[i].status)));

		if (worse)
			snprintf(all.why, sizeof(all.why), "process %d: %s", i, a[i].why);
		if (worse || (all.status >= 0 && a[i].status > 0))
			all.status = a[i].status;
	}
	free(a);
	if (!r)
		r = ckpt_down(&c->x, &all, sizeof(all), false, ms);
	if (r)
		return r;
	return all.status < 0 ? ckpt_fail(all.status, "%s", all.why) : all.status;
}

static int read_own(struct sheaf_ckpt *c, const struct ckpt_chain *chain)
{
	uint32_t rank = (uint32_t)c->x.comm.rank;
	char path[CKPT_PATH];
	int r = 0;

	for (size_t i = 0; !r && i < chain->n; i++) {
		const struct ckpt_manifest *m = &chain->m[i];
		struct sheaf_file *f;

		ckpt_image_path(&c->store, m->number, m->one_file, rank, path);
		r = sheaf_open(c->fs, path, O_RDONLY, 0, NULL, &f);
		if (r)
			return ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
		r = ckpt_image_read(f, m->images[rank].base, &chain->t[i], &c->pieces);
		sheaf_close(f);
	}
	return r;
}

/* Loads the tables of this process; 1: the arrays are divided in another way. */
static int compare(struct sheaf_ckpt *c, struct ckpt_chain *chain)
{
	const struct ckpt_manifest *m = &chain->m[chain->n - 1];
	bool same_n = m->n == (uint32_t)c->x.comm.n;
	uint32_t rank = same_n ? (uint32_t)c->x.comm.rank : 0;
	int r = 0;

	for (size_t i = 0; !r && i < chain->n; i++)
		r = chain->m[i].n == m->n ?
			    ckpt_store_table(&c->store, &chain->m[i], rank, &chain->t[i]) :
			    ckpt_fail(-EUCLEAN, "it depends on one of other processes");
	if (!r)
		r = ckpt_match(&c->pieces, &chain->t[chain->n - 1], same_n);
	for (size_t i = 0; r >= 0 && i + 1 < chain->n; i++)
		if (!ckpt_same_pieces(&chain->t[i], &chain->t[chain->n - 1]))
			r = ckpt_fail(-EUCLEAN, "it depends on one of other pieces");
	return r || same_n ? r : 1;
}

/* One checkpoint that all processes know. *touched: the memory may have changed. */
static int restore_one(struct sheaf_ckpt *c, struct ckpt_chain *chain, int parsed, bool *touched)
{
	struct ckpt_remap *plan = NULL;
	int r = agree(c, parsed ? parsed : compare(c, chain), false);

	if (r > 0) {
		r = agree(c, ckpt_remap_plan(c, chain, &plan), true);
		if (!r) {
			*touched = true;
			r = agree(c, ckpt_remap_read(c, chain, plan), true);
		}
		ckpt_remap_free(plan);
	} else if (!r) {
		*touched = true;
		r = agree(c, read_own(c, chain), true);
	}
	return r;
}

/* -ENOENT and -EINVAL promise that the memory is as it was. */
static int after_reading(int r)
{
	char why[CKPT_WHY];

	if (r != -ENOENT && r != -EINVAL)
		return r;
	snprintf(why, sizeof(why), "%s", sheaf_ckpt_why());
	return ckpt_fail(-EUCLEAN,
			 "a damaged checkpoint has been read into the memory, and then: %s", why);
}

/* One round; 1: damaged, the next one. */
static int round_of(struct sheaf_ckpt *c, const uint64_t *numbers, int n, int *at, uint64_t *number,
		    bool *touched)
{
	struct answer a = { .status = 0 };
	struct ckpt_chain chain = { .n = 0 };
	char *text = NULL;
	size_t len = 0;
	int r = 0;

	if (!c->x.comm.rank) {
		a.status = offer(c, numbers, n, at, &text, &len);
		snprintf(a.why, sizeof(a.why), "%s", a.status ? sheaf_ckpt_why() : "");
	}
	/* process 0 may first have to wait for the images of the last checkpoint */
	r = ckpt_down(&c->x, &a, sizeof(a), false,
		      c->o.flags & SHEAF_CKPT_ASYNC ? ckpt_long_ms(c) : (int)c->o.timeout_ms);
	if (!r && a.status)
		r = ckpt_fail(a.status, "%s", a.why);
	if (!r)
		r = ckpt_down_any(&c->x, (void **)&text, &len, (int)c->o.timeout_ms);
	if (r) {
		if (!c->x.comm.rank && !a.status)
			free(text);
		return r;
	}
	r = parse_chain(text, len, &chain);
	free(text);
	if (!r)
		*number = chain.m[chain.n - 1].number;
	r = restore_one(c, &chain, r, touched);
	chain_free(&chain);
	if (!ckpt_is_damage(r))
		return r;
	if (!c->x.comm.rank)
		ckpt_say(c, "checkpoint %" PRIu64 " is damaged and is skipped: %s", numbers[*at],
			 sheaf_ckpt_why());
	(*at)++;
	return 1;
}

int sheaf_ckpt_restore(struct sheaf_ckpt *c, uint64_t *number)
{
	uint64_t *numbers = NULL, which = 0;
	int n = 0, at = 0, r;
	bool touched = false;

	ckpt_background_join(c); /* complete or not, the newest complete one is read */
	c->is_pending = false;
	c->is_fixed = true;
	ckpt_track_free(c->track); /* the kernel writes into this memory */
	c->track = NULL;
	c->baseline = 0;
	ckpt_exchange_call(&c->x);
	if (!c->x.comm.rank)
		n = ckpt_store_numbers(&c->store, &numbers);
	do
		r = round_of(c, numbers, n, &at, &which, &touched);
	while (r == 1);
	free(numbers);
	if (touched)
		r = after_reading(r);
	if (!r && number)
		*number = which;
	return r;
}
