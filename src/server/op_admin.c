/* PING, STATUS, REQUESTS and CALIBRATE: is the server alive, its state and counters, its requests
 * in service, the costs of accesses measured anew. */
#include <stdio.h>
#include <unistd.h>

#include "cache/cache.h"
#include "server/inode.h"

int do_ping(struct sreq *s)
{
	(void)s;
	return 0;
}

static void memory_of_process(struct wire_status_res *r)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned long long kb;

	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "VmRSS: %llu", &kb) == 1)
			r->rss_bytes = kb * KIB;
		else if (sscanf(line, "RssAnon: %llu", &kb) == 1)
			r->anon_bytes = kb * KIB;
	}
	fclose(f);
}

static int count_links(struct sreq *s, struct wire_status_res *r)
{
	struct route_count c[ROUTES_MAX];
	size_t n = routes_count(&s->srv->net, c);

	r->routes = arena_alloc(&s->arena, n * sizeof(*r->routes));
	for (size_t i = 0; r->routes && i < n; i++)
		r->routes[r->n_routes++] =
			(struct wire_route_links){ wire_text(c[i].name), c[i].links };
	return r->routes ? 0 : -ENOMEM;
}

static struct wire_bank_part bank_part(const struct server *srv)
{
	const struct bank_counts *k = srv->notices.bank ? bank_counts(srv->notices.bank) : NULL;
	const struct server_filler *f = srv->notices.filler;
	struct wire_bank_part b = { 0 };

	if (k)
		b = (struct wire_bank_part){ .tells = true,
					     .notices = k->notices,
					     .lost = k->notices_lost,
					     .failures = k->failures,
					     .ask_ns = k->ask_ns };
	if (f) {
		b.filled = atomic_load(&f->filled);
		b.unfilled = atomic_load(&f->unfilled);
	}
	return b;
}

/* The kind of an operation in the times of the status; NULL: none of them, as a wait for a lock. */
static struct wire_time_counts *times_of(struct wire_status_res *r, unsigned op)
{
	switch (op) {
	case OP_READ:
		return &r->reads;
	case OP_WRITE:
		return &r->writes;
	case OP_SYNC:
	case OP_FSYNC:
		return &r->syncs;
	case OP_LOOKUP:
	case OP_GETATTR:
	case OP_SETATTR:
	case OP_OPEN:
	case OP_CLOSE:
	case OP_MKDIR:
	case OP_UNLINK:
	case OP_RMDIR:
	case OP_READDIR:
	case OP_RENAME:
	case OP_LINK:
	case OP_SYMLINK:
	case OP_READLINK:
	case OP_GETXATTR:
	case OP_SETXATTR:
	case OP_LISTXATTR:
	case OP_REMOVEXATTR:
	case OP_MKNOD:
		return &r->names;
	default:
		return NULL;
	}
}

#define OCTAVE 16 /* buckets of a histogram */
#define BELOW_4_US 9 /* their octaves below 4096 ns */

static void add_octaves(const struct hist *h, uint64_t out[TIME_OCTAVES])
{
	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		unsigned k = i / OCTAVE;

		out[k < BELOW_4_US ? 0 : MIN(k - BELOW_4_US + 1, TIME_OCTAVES - 1u)] +=
			h->buckets[i];
	}
}

static void sum_times(const struct server *srv, struct wire_status_res *r)
{
	for (unsigned op = 0; op < N_OPS; op++) {
		const struct hist *h = &srv->op_times[op];
		struct wire_time_counts *t = h->count ? times_of(r, op) : NULL;

		if (!t)
			continue;
		t->count += h->count;
		t->sum_ns += h->sum;
		add_octaves(h, t->octaves);
	}
}

int do_status(struct sreq *s)
{
	struct server *srv = s->srv;
	const struct net_account *n = &srv->net.account;
	struct wire_status_res *r = s->res;
	struct disk_counters c;

	*r = (struct wire_status_res){
		.target = srv->target,
		.roles = srv->self->roles,
		.pid = (uint32_t)getpid(),
		.uptime_ns = srv->loop->now - srv->started,
		.requests = srv->requests,
		.bytes_read = srv->bytes_read,
		.bytes_written = srv->bytes_written,
		.calls = srv->loop->calls,
		.in_service = srv->in_service,
		.links = srv->net.n_links,
		.sessions = srv->sessions.count,
		.load = srv->pool.n_holders,
		.pool_bytes = srv->pool.n_units * BUF_UNIT,
		.pool_free = srv->pool.n_free * BUF_UNIT,
		.pool_waits = srv->pool.n_waits,
		.verifier = srv->net.id.verifier,
		.incarnation = srv->net.id.incarnation,
		.bad_links = srv->net.bad_links,
		.slow_inline = srv->meta ? meta_slow_reads(srv->meta) : 0,
		.removals = srv->removing.n + srv->removing.left,
		.bank = bank_part(srv),
		.net = { n->messages_sent, n->messages_received, n->frames, n->calls, n->copied,
			 n->work_requests, n->registrations, n->doorbells },
	};
	for (int i = 0; i < N_REFUSALS; i++)
		r->refused += srv->net.refused[i];
	memory_of_process(r);
	sum_times(srv, r);
	file_counters(srv->loop, &r->disk_inline, &r->disk_handed);
	if (srv->disk) {
		disk_space(srv->disk, &r->space_total, &r->space_avail, &r->storage);
		sieve_costs_pack(disk_costs(srv->disk), r->costs.values);
		disk_counters(srv->disk, &c);
		r->accesses = (struct wire_access_counts){ c.requested, c.performed, c.merged,
							   c.vain_bytes, c.read_modify_writes };
	}
	return count_links(s, r);
}

static_assert(COST_VALUES == SIEVE_VALUES, "costs fit their message");
enum { MEASURE, REPLY };
static const char *const calibrate_names[] = { [MEASURE] = "measure", [REPLY] = "reply" };

static bool calibrate_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct disk_calibration *c = s->op;
	struct wire_calibrate_res *r = s->res;

	if (q->state == MEASURE) {
		req_goto(q, REPLY);
		disk_calibrate(s->srv->disk, c, q);
		return true;
	}
	r->stored = c->is_stored;
	return sreq_reply(s);
}

const struct req_ops calibrate_ops = REQ_OPS("calibrate", calibrate_step, REPLY, calibrate_names);

#define REQUEST_ROWS 256

/* Lists waits for locks, which outlive the requests that ask about them. */
static void waiting_locks(struct server *srv, struct wire_requests_res *r)
{
	uint64_t now = srv->loop->now;
	struct lock_wait *w;

	list_for_each(w, &srv->locks.all, all) {
		r->total++;
		if (r->n_rows == REQUEST_ROWS)
			continue;
		r->rows[r->n_rows++] =
			(struct wire_request_info){ .op = wire_text("lock"),
						    .state = wire_text("wait"),
						    .age_ns = now - w->since,
						    .state_ns = now - w->since,
						    .trace = w->asking ? w->asking->q.trace : 0,
						    .session = w->session->id,
						    .uid = w->uid,
						    .ino = w->inode->h.ino,
						    .client = wire_text(w->session->client) };
	}
}

int do_requests(struct sreq *s)
{
	struct server *srv = s->srv;
	struct wire_requests_res *r = s->res;
	uint64_t now = srv->loop->now;
	struct req *q;

	r->rows = arena_alloc(&s->arena, REQUEST_ROWS * sizeof(*r->rows));
	if (!r->rows)
		return -ENOMEM;
	waiting_locks(srv, r);
	list_for_each(q, &srv->loop->all, all) {
		struct wire_request_info *i = &r->rows[r->n_rows];
		struct sreq *o = sreq_of(q);

		if (q == &s->q || (is_sreq(q) && lock_parked(o)))
			continue;
		r->total++;
		if (r->n_rows == REQUEST_ROWS)
			continue;
		*i = (struct wire_request_info){ .op = wire_text(q->ops->name),
						 .state = wire_text(q->ops->state_names[q->state]),
						 .age_ns = now - q->born,
						 .state_ns = now - q->since,
						 .trace = q->trace };
		if (is_sreq(q)) {
			i->op = wire_text(o->row->wire->name);
			i->session = o->head.session;
			i->uid = o->head.uid;
			i->ino = o->ino;
			i->client = wire_text(o->link->host);
		}
		r->n_rows++;
	}
	return 0;
}
