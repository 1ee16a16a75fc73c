/* What the links to the servers cost: their routes, round trips, and the costs that decide between
 * the movers. Threads: one. Errors: a server without a link has no route. */
#include <json-c/json.h>
#include <stddef.h>

#include "explain/explain_impl.h"

static const struct {
	const char *key;
	size_t at;
} values[] = {
	{ "call_ns", offsetof(struct sheaf_link_costs, call) },
	{ "byte_ns", offsetof(struct sheaf_link_costs, byte) },
	{ "copied_byte_ns", offsetof(struct sheaf_link_costs, copy) },
	{ "gathered_segment_ns", offsetof(struct sheaf_link_costs, gather) },
	{ "scattered_segment_ns", offsetof(struct sheaf_link_costs, scatter) },
	{ "packed_segment_ns", offsetof(struct sheaf_link_costs, pack) },
	{ "unpacked_segment_ns", offsetof(struct sheaf_link_costs, unpack) },
	{ "work_request_ns", offsetof(struct sheaf_link_costs, work_request) },
	{ "registration_ns", offsetof(struct sheaf_link_costs, registration) },
	{ "registered_page_ns", offsetof(struct sheaf_link_costs, page) },
};

static double value(const struct sheaf_link_costs *l, size_t i)
{
	return *(const double *)((const char *)l + values[i].at);
}

static struct sheaf_link_costs link_of(const struct explain *e, uint32_t i, uint64_t *round_ns)
{
	struct sheaf_link_costs l = { .size = sizeof(l) };
	struct sheaf_account a = { 0 };

	sheaf_link_costs(e->c->fs, (int)e->where.targets[i], &l);
	sheaf_account(e->c->fs, (int)e->where.targets[i], &a);
	*round_ns = a.round_ns;
	return l;
}

/* The first question also connects. */
static int64_t ask_bank(const struct explain *e)
{
	int64_t ns = sheaf_bank_ask(e->c->fs, e->x.bytes);

	return ns < 0 ? ns : sheaf_bank_ask(e->c->fs, e->x.bytes);
}

void bank_print(const struct explain *e)
{
	int64_t ns = ask_bank(e);
	char text[32];

	if (ns == -ENOENT)
		return;
	cli_time(text, sizeof(text), (double)ns);
	if (ns < 0)
		printf("\nCache bank: not asked: %s\n", sheaf_why());
	else if (e->x.bytes > SHEAF_BANK_READ_MAX)
		printf("\nCache bank: not asked: a read of more than 1 MiB.\n");
	else
		printf("\nCache bank: a question about as many bytes takes %s. Reads ask where that is "
		       "less than a third of the time without it.\n",
		       text);
}

struct json_object *bank_json(const struct explain *e)
{
	int64_t ns = ask_bank(e);
	struct json_object *o = ns < 0 ? NULL : json_object_new_object();

	if (o)
		json_object_object_add(o, "ask_ns", json_object_new_int64(ns));
	return o;
}

int links_print(const struct explain *e, const char *const *names)
{
	static const char *const heads[] = { "SERVER",	  "ROUTE",	">ROUND TRIP",
					     ">CALL",	  ">SENT KIB",	">COPIED KIB",
					     ">GATHERED", ">SCATTERED", ">PACKED" };
	struct cli_table t;

	puts("\nLinks and their costs in ns: a system call, a sent KiB, a copied KiB, a piece of memory:");
	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		uint64_t round_ns;
		struct sheaf_link_costs l = link_of(e, i, &round_ns);
		double ns[] = { (double)round_ns, l.call,    l.byte * 1024, l.copy * 1024,
				l.gather,	  l.scatter, l.pack };

		cli_table_add(&t, "%s", names[i]);
		cli_table_add(&t, "%s", l.route ? l.route : "-");
		for (size_t k = 0; k < ARRAY_LEN(ns); k++)
			cli_table_add(&t, "%.0f", ns[k]);
	}
	return cli_table_print(&t, stdout);
}

struct json_object *links_json(const struct explain *e, const char *const *names)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		struct json_object *o = json_object_new_object();
		uint64_t round_ns;
		struct sheaf_link_costs l = link_of(e, i, &round_ns);

		cli_json_text(o, "server", names[i]);
		json_object_object_add(o, "route",
				       l.route ? json_object_new_string(l.route) : NULL);
		json_object_object_add(o, "round_ns", json_object_new_uint64(round_ns));
		for (size_t k = 0; k < ARRAY_LEN(values); k++)
			cli_json_double(o, values[k].key, value(&l, k));
		json_object_array_add(list, o);
	}
	return list;
}
