/* The public interface: the map, adding a server, costs of accesses, copies of the metadata.
 *
 * Threads: any; each call takes the connection's lock through api_begin() (api.c). Buffers: results
 * are copied out before the operation is freed. Errors: -errno, and sheaf_why() names the
 * server. */
#include <assert.h>
#include <inttypes.h>

#include "cache/cache.h"
#include "client/api_impl.h"
#include "sheaf_admin.h"
#include "sieve/sieve.h"

/* A client whose key may speak for all users is the administrator: its calls are made as root. */
static const struct sheaf_cred root = { 0 };

#define ASK_MS 2000 /* for the status of an added or emptied server */
#define CALIBRATE_NS (120 * NSEC_PER_SEC) /* a slow disk, with other work to do */

static int server_failed(struct sheaf *fs, uint32_t target, const char *what, int r)
{
	const struct conf_target *t = &fs->b.client->targets[target];

	why_set("%s (%s) %s: %s", t->name, t->address, what, error_text(r));
	return r;
}

int sheaf_bank(struct sheaf *fs, struct sheaf_bank *out)
{
	struct client *c = fs->b.client;
	int r;

	if (out->size < sizeof(*out))
		return -EINVAL;
	pthread_mutex_lock(&fs->d->lock);
	r = client_bank_open(c);
	if (!r) {
		const struct bank_counts *k = bank_counts(c->bank);

		*out = (struct sheaf_bank){ .size = sizeof(*out),
					    .block = bank_block_bytes(c->bank),
					    .asked = k->asked,
					    .hits = k->hits,
					    .skipped = k->skipped,
					    .hit_bytes = k->hit_bytes,
					    .waits = k->waits,
					    .filled = k->filled,
					    .dropped = k->dropped,
					    .failures = k->failures,
					    .bad = k->bad,
					    .ask_ns = k->ask_ns,
					    .attr_asked = k->attr_asked,
					    .attr_hits = k->attr_hits,
					    .attr_skipped = k->attr_skipped,
					    .probes = k->probes,
					    .wholes = k->wholes };
	} else {
		why_set("%s", c->bank_why);
		r = -ENOENT;
	}
	pthread_mutex_unlock(&fs->d->lock);
	return r;
}

int64_t sheaf_bank_ask(struct sheaf *fs, uint64_t bytes)
{
	struct sheaf_bank k = { .size = sizeof(k) };
	int r = sheaf_bank(fs, &k);
	struct cop *op;
	int64_t ns;

	if (r)
		return r;
	op = api_begin(fs, &root);
	client_bank_ask(op, bytes);
	ns = api_finish(fs, op);
	if (ns < 0)
		why_set("the daemons of the cache bank do not answer: 'sheaf bank status'");
	return ns;
}

ssize_t api_bank_text(struct sheaf *fs, char *out, size_t size)
{
	struct sheaf_bank k = { .size = sizeof(k) };
	char text[512];
	int n, r = sheaf_bank(fs, &k);

	if (r)
		return -ENODATA;
	n = snprintf(text, sizeof(text),
		     "{\"asked\":%" PRIu64 ",\"hits\":%" PRIu64 ",\"skipped\":%" PRIu64
		     ",\"hit_bytes\":%" PRIu64 ",\"waits\":%" PRIu64 ",\"filled\":%" PRIu64
		     ",\"failures\":%" PRIu64 ",\"bad\":%" PRIu64 ",\"ask_ns\":%" PRIu64
		     ",\"attr_asked\":%" PRIu64 ",\"attr_hits\":%" PRIu64
		     ",\"attr_skipped\":%" PRIu64 ",\"wholes\":%" PRIu64 "}",
		     k.asked, k.hits, k.skipped, k.hit_bytes, k.waits, k.filled, k.failures, k.bad,
		     k.ask_ns, k.attr_asked, k.attr_hits, k.attr_skipped, k.wholes);
	if (size && size < (size_t)n)
		return -ERANGE;
	if (size)
		memcpy(out, text, (size_t)n);
	return n;
}

bool api_is_meta(struct sheaf *fs, uint32_t target)
{
	const struct client *c = fs->b.client;
	bool is;

	pthread_mutex_lock(&fs->d->lock);
	is = target < c->n_peers && (c->targets[target].roles & ROLE_META);
	pthread_mutex_unlock(&fs->d->lock);
	return is;
}

/* ---- the map ---- */

static void server_of(const struct wire_map_target *t, struct sheaf_server *s)
{
	*s = (struct sheaf_server){ .id = t->id, .roles = t->roles, .incarnation = t->incarnation };
	text_copy(s->name, sizeof(s->name), t->name);
	text_copy(s->address, sizeof(s->address), t->address);
}

/* Adds the targets that this server knows. -EBADMSG: earlier servers know other ones. */
static int merge(struct sheaf *fs, uint32_t target, const struct wire_map_res *m,
		 struct sheaf_server *s, int max, int *n)
{
	struct sheaf_server one;

	for (uint32_t i = 0; i < m->n_targets && (int)i < max; i++) {
		server_of(&m->targets[i], &one);
		if ((int)i == *n) {
			s[(*n)++] = one;
		} else if (strcmp(s[i].name, one.name) || one.id != i) {
			server_failed(fs, target, "knows other servers than the first one",
				      -EBADMSG);
			return -EBADMSG;
		} else if (!s[i].incarnation) {
			s[i].incarnation = one.incarnation;
		}
	}
	return 0;
}

int sheaf_map(struct sheaf *fs, int timeout_ms, struct sheaf_server *s, int max)
{
	int servers = sheaf_server_count(fs), n = 0, r = 0, last = 0;
	bool up[CONF_MAX_TARGETS] = { false };

	for (uint32_t i = 0; !r && (int)i < servers; i++) {
		struct cop *op;

		if (!api_is_meta(fs, i))
			continue;
		op = api_begin(fs, &root);
		client_ask(op, OP_MAP, i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
		last = (int)api_wait(fs, op);
		up[i] = last == 0;
		if (last)
			server_failed(fs, i, "does not tell the map", last);
		else
			r = merge(fs, i, &op->res.map, s, max, &n);
		api_release(fs, op);
	}
	for (int i = 0; i < n; i++)
		s[i].up = up[i];
	return r ? r : n ? n : last;
}

int sheaf_keeper(struct sheaf *fs, uint64_t ino)
{
	return (int)client_meta_of(fs->b.client, ino);
}

/* Sends the target to all metadata servers. */
static int add_target(struct sheaf *fs, const struct wire_map_target *t, bool emptied)
{
	int servers = sheaf_server_count(fs), r = 0;

	for (uint32_t i = 0; !r && (int)i < servers; i++) {
		struct cop *op;

		if (!api_is_meta(fs, i))
			continue;
		op = api_begin(fs, &root);
		op->args.ADD_TARGET = (struct wire_add_target_args){ *t, emptied };
		client_ask(op, OP_ADD_TARGET, i, op->c->timeout_ns);
		r = (int)api_finish(fs, op);
		if (r)
			server_failed(fs, i, "does not take the new server", r);
	}
	return r;
}

int sheaf_server_add(struct sheaf *fs, int id, const char *name, const char *address)
{
	struct wire_map_target t = { .id = (uint32_t)id,
				     .roles = ROLE_DATA,
				     .name = wire_text(name),
				     .address = wire_text(address) };
	struct sheaf_server s = { 0 };

	if (strlen(name) >= sizeof(((struct conf_target *)0)->name) ||
	    strlen(address) >= CONF_ADDR_MAX)
		return -ENAMETOOLONG;
	if (id < sheaf_server_count(fs) && sheaf_server_status(fs, id, ASK_MS, &s) == 0)
		t.incarnation = s.incarnation; /* else the metadata servers learn it later */
	return add_target(fs, &t, false);
}

int sheaf_server_emptied(struct sheaf *fs, int id)
{
	struct wire_map_target t = { .id = (uint32_t)id };
	struct sheaf_server s = { 0 };
	int r = sheaf_server_status(fs, id, ASK_MS, &s);

	if (r)
		return r;
	if (!s.up || !s.incarnation) {
		why_set("%s (%s) does not answer", s.name, s.address);
		return -ETIMEDOUT;
	}
	t.roles = s.roles;
	t.name = wire_text(s.name);
	t.address = wire_text(s.address);
	t.incarnation = s.incarnation;
	return add_target(fs, &t, true);
}

/* ---- costs of accesses ---- */

static_assert(SHEAF_COST_SIZES == SIEVE_SIZES && COST_VALUES == SIEVE_VALUES, "the same costs");

static int costs_take(const struct wire_access_costs *in, struct sheaf_costs *out)
{
	struct sieve_costs c;

	if (!sieve_costs_unpack(in->values, &c))
		return -EBADMSG;
	memcpy(out->sizes, sieve_sizes, sizeof(out->sizes));
	memcpy(out->read, c.read.ns, sizeof(out->read));
	memcpy(out->write, c.write.ns, sizeof(out->write));
	memcpy(out->cold, c.cold.ns, sizeof(out->cold));
	out->parallel = c.parallel;
	out->copy = c.copy;
	out->piece = c.piece;
	return 0;
}

int sheaf_server_costs(struct sheaf *fs, int i, int timeout_ms, struct sheaf_costs *out)
{
	struct cop *op;
	int r;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = api_begin(fs, NULL);
	client_ask(op, OP_STATUS, (uint32_t)i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
	r = (int)api_wait(fs, op);
	if (!r)
		r = costs_take(&op->res.status.costs, out);
	if (r)
		server_failed(fs, (uint32_t)i, "does not tell the costs of accesses", r);
	api_release(fs, op);
	return r;
}

int sheaf_calibrate(struct sheaf *fs, int i)
{
	struct cop *op;
	int r;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = api_begin(fs, &root);
	client_ask(op, OP_CALIBRATE, (uint32_t)i, CALIBRATE_NS);
	r = (int)api_wait(fs, op);
	if (r)
		server_failed(fs, (uint32_t)i, "has not measured the costs of accesses", r);
	else
		r = op->res.calibrate.stored ? 0 : 1;
	api_release(fs, op);
	return r;
}

/* ---- backup ---- */

int api_backup(struct sheaf *fs, uint32_t target, uint64_t id, uint64_t offset,
	       struct wire_backup_res *res, uint8_t *data)
{
	struct cop *op = api_begin(fs, &root);
	int r;

	op->args.BACKUP = (struct wire_backup_args){ id, offset };
	client_ask(op, OP_BACKUP, target, op->c->timeout_ns);
	r = (int)api_wait(fs, op);
	if (!r) {
		*res = op->res.backup;
		memcpy(data, res->data.p, res->data.len);
		res->data.p = data;
	} else if (r != -EAGAIN) {
		server_failed(fs, target, "gives no copy of its metadata", r);
	}
	api_release(fs, op);
	return r;
}
