/* How each server would access the pieces of an access in its object: separately, or through ranges
 * that cover many of them. The plan is made as the server makes it (src/sieve), window by window,
 * with the costs that the server tells; once for cached data, once for data on the disk.
 *
 * Threads: one. Buffers: one window. Errors: a server that does not tell its costs has no plan. */
#include <json-c/json.h>
#include <stdlib.h>

#include "explain/explain_impl.h"

#define SHOWN 3 /* parts of each server in the text */

struct explain_window {
	uint32_t object, n;
	uint64_t len, lo, hi;
	bool is_sorted;
	struct extent pieces[SIEVE_PIECES];
	struct sieve_part parts[SIEVE_PIECES];
};

/* ---- planning ---- */

static void take_costs(const struct sheaf_costs *in, struct sieve_costs *out)
{
	memcpy(out->read.ns, in->read, sizeof(out->read.ns));
	memcpy(out->write.ns, in->write, sizeof(out->write.ns));
	memcpy(out->cold.ns, in->cold, sizeof(out->cold.ns));
	out->parallel = in->parallel;
	out->copy = in->copy;
	out->piece = in->piece;
}

int sieve_begin(struct explain *e)
{
	struct sheaf_costs c;

	e->window = malloc(sizeof(*e->window));
	if (!e->window)
		return -ENOMEM;
	e->window->n = 0;
	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		struct explain_sieve *s = &e->sieve[i];

		s->known = sheaf_server_costs(e->c->fs, (int)e->where.targets[i], CLI_STATUS_MS,
					      &c) == 0;
		if (s->known)
			take_costs(&c, &s->costs);
	}
	return 0;
}

static struct sieve_want want_of(const struct explain *e, const struct explain_window *w,
				 bool cached)
{
	uint64_t most = e->x.a.write ? SIEVE_WRITE_MOST : SIEVE_READ_MOST;

	return (struct sieve_want){ .costs = &e->sieve[w->object].costs,
				    .write = e->x.a.write,
				    .cached = cached,
				    .most = most,
				    .room = most - MIN(most, w->len) };
}

/* The same pieces the other way; 0: that cannot be. */
static double otherwise(const struct sieve_want *want, const struct explain_window *w,
			const struct sieve_part *p)
{
	struct sieve_part other = *p;

	other.covers = !p->covers;
	if (other.covers && (p->n < 2 || p->hi - p->lo > want->most))
		return 0;
	for (uint32_t i = p->first; other.covers && want->write && i + 1 < p->first + p->n; i++)
		if (sieve_skips_page(w->pieces[i].offset + w->pieces[i].length,
				     w->pieces[i + 1].offset))
			return 0;
	return sieve_part_time(want, w->pieces, &other);
}

static void add_part(struct explain_plan *t, const struct sieve_want *want,
		     const struct explain_window *w, const struct sieve_part *p)
{
	struct explain_part x = { .lo = p->lo, .hi = p->hi, .pieces = p->n, .covers = p->covers };

	for (uint32_t i = p->first; i < p->first + p->n; i++)
		x.bytes += w->pieces[i].length;
	x.ns = sieve_part_time(want, w->pieces, p);
	x.otherwise_ns = otherwise(want, w, p);
	t->ns += x.ns;
	t->separate_ns += p->covers ? x.otherwise_ns : x.ns;
	t->accesses += !p->covers ? p->n : want->write ? 2u : 1u;
	t->ranges += p->covers;
	t->covered += p->covers ? p->hi - p->lo : 0;
	t->useful += p->covers ? x.bytes : 0;
	if (t->n_parts < EXPLAIN_PARTS)
		t->parts[t->n_parts] = x;
	t->n_parts++;
}

static void plan_window(struct explain *e, struct explain_plan *t, bool cached)
{
	struct explain_window *w = e->window;
	struct sieve_want want = want_of(e, w, cached);
	uint32_t n = 1;
	double ns;

	w->parts[0] = (struct sieve_part){ .n = w->n, .lo = w->lo, .hi = w->hi };
	if (w->n > 1 && w->is_sorted)
		n = sieve_plan(&want, w->pieces, w->n, w->parts, &ns);
	for (uint32_t i = 0; i < n; i++)
		add_part(t, &want, w, &w->parts[i]);
}

static void flush(struct explain *e)
{
	struct explain_window *w = e->window;
	struct explain_sieve *s = &e->sieve[w->object];

	if (w->n && s->known) {
		s->windows++;
		s->pieces += w->n;
		plan_window(e, &s->cached, true);
		plan_window(e, &s->cold, false);
	}
	w->n = 0;
}

/* Does the server end the window before this piece, because a longer one could not be sieved? */
static bool ends(const struct explain *e, const struct explain_window *w, uint64_t off, uint64_t n)
{
	struct sieve_want want = want_of(e, w, true);

	return w->n > 2 && w->is_sorted && e->sieve[w->object].known &&
	       MAX(w->hi, off + n) - MIN(w->lo, off) + w->len + n > want.most &&
	       sieve_gain(&want, w->n, w->len, w->hi - w->lo) > SIEVE_WINDOW_NS;
}

static void add_piece(struct explain *e, uint32_t object, uint64_t off, uint64_t n)
{
	struct explain_window *w = e->window;

	if (w->n && (w->object != object || w->n == SIEVE_PIECES || w->len >= SIEVE_WINDOW_BYTES ||
		     ends(e, w, off, n)))
		flush(e);
	if (!w->n) {
		w->object = object;
		w->len = w->hi = 0;
		w->lo = UINT64_MAX;
		w->is_sorted = true;
	}
	w->is_sorted &= off >= w->hi;
	w->lo = MIN(w->lo, off);
	w->hi = MAX(w->hi, off + n);
	w->len += n;
	w->pieces[w->n++] = (struct extent){ off, n };
}

void sieve_touch(struct explain *e, uint32_t object, const struct sheaf_extent *ext, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t off = ext[i].offset, left = ext[i].length, part;

		for (; left; off += part, left -= part) {
			uint64_t len = e->window->n && e->window->object == object ?
					       e->window->len % SIEVE_WINDOW_BYTES :
					       0;

			part = MIN(left, SIEVE_WINDOW_BYTES - len);
			add_piece(e, object, off, part);
		}
	}
}

void sieve_end(struct explain *e)
{
	if (e->window)
		flush(e);
	free(e->window);
	e->window = NULL;
}

/* ---- output ---- */

static void reason(const struct explain *e, const struct explain_part *p, char *out, size_t n)
{
	const char *op = e->x.a.write ? "write" : "read";
	char ns[32], other[32];
	int len;

	cli_time(ns, sizeof(ns), p->ns);
	cli_time(other, sizeof(other), p->otherwise_ns);
	len = snprintf(out, n,
		       p->covers ? "covering %s of %llu piece%s: %s" :
				   "separate %ss of %llu piece%s: %s",
		       op, (unsigned long long)p->pieces, p->pieces == 1 ? "" : "s", ns);
	if (p->otherwise_ns > 0)
		snprintf(out + len, n - (size_t)len, " instead of %s %s", other,
			 p->covers ? "separately" : "in one range");
}

static double fraction(uint64_t a, uint64_t b)
{
	return b ? (double)a / (double)b : 1;
}

/* Are the data of a read in the reply, so that the server has no window to plan? */
static bool is_inline(const struct explain *e, uint32_t i)
{
	return !e->x.a.write && e->way[SHEAF_MOVER_AUTO].plan.shares[i].mover == SHEAF_MOVER_INLINE;
}

static bool is_shown(const struct explain *e, uint32_t i)
{
	return e->sieve[i].known && e->sieve[i].pieces && !is_inline(e, i);
}

static void add_row(struct cli_table *t, const char *name, const char *data,
		    const struct explain_sieve *s, const struct explain_plan *p, double measured)
{
	char covered[32], ns[32], separate[32], took[32];

	format_size(covered, sizeof(covered), p->covered);
	cli_time(ns, sizeof(ns), p->ns);
	cli_time(separate, sizeof(separate), p->separate_ns);
	cli_time(took, sizeof(took), measured);
	cli_table_add(t, "%s\t%s\t%llu\t%llu\t%llu\t%s", name, data, (unsigned long long)s->pieces,
		      (unsigned long long)p->accesses, (unsigned long long)p->ranges, covered);
	if (p->covered)
		cli_table_add(t, "%.3f", fraction(p->useful, p->covered));
	else
		cli_table_add(t, "-");
	cli_table_add(t, "%s\t%s\t%s", ns, separate, measured > 0 ? took : "-");
}

static void print_parts(const struct explain *e, uint32_t i, const char *name)
{
	const struct explain_plan *p = &e->sieve[i].cached;
	char text[160], lo[32], hi[32];

	for (uint64_t k = 0; k < MIN(p->n_parts, (uint64_t)SHOWN); k++) {
		const struct explain_part *x = &p->parts[k];

		format_size(lo, sizeof(lo), x->lo);
		format_size(hi, sizeof(hi), x->hi);
		reason(e, x, text, sizeof(text));
		printf("%s, %s to %s: %s\n", name, lo, hi, text);
	}
	if (p->n_parts > SHOWN)
		printf("%s, and %llu more\n", name, (unsigned long long)(p->n_parts - SHOWN));
}

int sieve_print(const struct explain *e, const char *const *names)
{
	static const char *const heads[] = { "SERVER",	  "DATA",     ">PIECES", ">ACCESSES",
					     ">RANGES",	  ">COVERED", ">USEFUL", ">PREDICTED",
					     ">SEPARATE", ">MEASURED" };
	uint32_t shown = 0;
	struct cli_table t;
	int r;

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		const struct explain_sieve *s = &e->sieve[i];

		if (!is_shown(e, i))
			continue;
		shown++;
		add_row(&t, names[i], "cached", s, &s->cached, s->measured_ns);
		add_row(&t, "", "on disk", s, &s->cold, 0);
	}
	if (!shown)
		return 0;
	puts("\nAccesses of the servers to their files, by their costs (sheaf calibrate):");
	r = cli_table_print(&t, stdout);
	putchar('\n');
	for (uint32_t i = 0; i < e->where.n_targets; i++)
		if (is_shown(e, i))
			print_parts(e, i, names[i]);
	puts("A server that copies cached pieces out of a mapping does not follow its plan: STRATEGY "
	     "tells.");
	return r;
}

static struct json_object *plan_json(const struct explain *e, const struct explain_plan *p)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	char text[160];

	cli_json_uint(o, "accesses", p->accesses);
	cli_json_uint(o, "ranges", p->ranges);
	cli_json_uint(o, "covered_bytes", p->covered);
	cli_json_double(o, "useful", fraction(p->useful, p->covered));
	cli_json_uint(o, "predicted_ns", (uint64_t)p->ns);
	cli_json_uint(o, "separate_ns", (uint64_t)p->separate_ns);
	cli_json_uint(o, "n_parts", p->n_parts);
	for (uint64_t k = 0; k < MIN(p->n_parts, (uint64_t)EXPLAIN_PARTS); k++) {
		const struct explain_part *x = &p->parts[k];
		struct json_object *part = json_object_new_object();

		reason(e, x, text, sizeof(text));
		cli_json_uint(part, "begin", x->lo);
		cli_json_uint(part, "end", x->hi);
		cli_json_uint(part, "pieces", x->pieces);
		cli_json_bool(part, "covering", x->covers);
		cli_json_double(part, "useful", fraction(x->bytes, x->hi - x->lo));
		cli_json_uint(part, "predicted_ns", (uint64_t)x->ns);
		cli_json_text(part, "reason", text);
		json_object_array_add(list, part);
	}
	json_object_object_add(o, "parts", list);
	return o;
}

struct json_object *sieve_json(const struct explain *e, const char *const *names)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		const struct explain_sieve *s = &e->sieve[i];
		struct json_object *o = json_object_new_object();

		if (!is_shown(e, i)) {
			json_object_put(o);
			continue;
		}
		cli_json_text(o, "server", names[i]);
		cli_json_uint(o, "pieces", s->pieces);
		cli_json_uint(o, "windows", s->windows);
		json_object_object_add(o, "cached", plan_json(e, &s->cached));
		json_object_object_add(o, "cold", plan_json(e, &s->cold));
		json_object_object_add(o, "measured_ns",
				       s->measured_ns > 0 ?
					       json_object_new_uint64((uint64_t)s->measured_ns) :
					       NULL);
		json_object_array_add(list, o);
	}
	return list;
}
