/* A pattern as text for people and programs: the nodes of its type, from the outermost on, as
 * nested JSON.
 *
 * A node that is used several times is stored once in a type, but written each time in its text.
 * The text may thus be too long for a short type; writing stops as soon as it is. Recursion is as
 * deep as the type is nested. Threads: any. */
#include <limits.h>
#include <stdio.h>

#include "layout/type.h"

struct text {
	char *buf;
	size_t n, len; /* len == n: the text did not fit */
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vsnprintf(t->buf + t->len, t->n - t->len, fmt, ap);
	va_end(ap);
	t->len = r < 0 || (size_t)r >= t->n - t->len ? t->n : t->len + (size_t)r;
}

static void add_node(struct text *out, const struct type *t, const struct type_node *nd, uint64_t n)
{
	const struct type_entry *e = t->entries + nd->first;

	if (node_is_leaf(nd)) {
		add(out, "{\"bytes\":%llu}", (unsigned long long)n);
	} else if (node_is_list(nd)) {
		for (uint32_t i = 0; i < nd->n_entries && out->len < out->n; i++, e++) {
			add(out, "%s[%lld,", i ? "," : "{\"struct\":[", (long long)e->displ);
			add_node(out, t, &t->nodes[e->child], e->n);
			add(out, "]");
		}
		add(out, "]}");
	} else {
		add(out,
		    "{\"vector\":{\"count\":%llu,\"stride\":%lld,\"of\":", (unsigned long long)n,
		    (long long)nd->stride);
		if (out->len < out->n)
			add_node(out, t, &t->nodes[nd->child], nd->n);
		add(out, "}}");
	}
}

int pattern_text(const struct pattern *p, char *buf, size_t n)
{
	struct text t = { .buf = buf, .n = MIN(n, (size_t)INT_MAX) };

	add_node(&t, p->type, &p->top, p->n);
	return t.len < t.n ? (int)t.len : -E2BIG;
}
