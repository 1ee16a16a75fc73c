/* The public interface: the state of the servers, their requests, and the space that they have.
 *
 * Threads: any; see api.c. Buffers: results are copied out before the operation is freed.
 * Errors: -errno. */
#include <assert.h>

#include "client/api_impl.h"
#include "net/link.h"
#include "sheaf_admin.h"

uint64_t sheaf_calls(struct sheaf *fs)
{
	uint64_t n;

	pthread_mutex_lock(&fs->d->lock);
	n = fs->b.loop->calls;
	pthread_mutex_unlock(&fs->d->lock);
	return n;
}

int sheaf_server_count(struct sheaf *fs)
{
	int n;

	pthread_mutex_lock(&fs->d->lock);
	n = (int)fs->b.client->n_peers;
	pthread_mutex_unlock(&fs->d->lock);
	return n;
}

static void take_status(struct sheaf_server *s, const struct wire_status_res *r)
{
	s->up = 1;
	s->pid = r->pid;
	s->links = r->links;
	s->sessions = r->sessions;
	s->load = r->load;
	s->in_service = r->in_service;
	s->uptime_ns = r->uptime_ns;
	s->rss_bytes = r->rss_bytes;
	s->anon_bytes = r->anon_bytes;
	s->requests = r->requests;
	s->calls = r->calls;
	s->space_total = r->space_total;
	s->space_avail = r->space_avail;
	s->pool_bytes = r->pool_bytes;
	s->pool_free = r->pool_free;
	s->pool_waits = r->pool_waits;
	s->bad_links = r->bad_links;
	s->refused = r->refused;
	s->slow_inline = r->slow_inline;
	s->disk_inline = r->disk_inline;
	s->disk_handed = r->disk_handed;
	s->bytes_read = r->bytes_read;
	s->bytes_written = r->bytes_written;
	s->storage = r->storage;
	s->incarnation = r->incarnation;
	s->accesses_requested = r->accesses.requested;
	s->accesses_performed = r->accesses.performed;
	s->accesses_merged = r->accesses.merged;
	s->vain_bytes = r->accesses.vain_bytes;
	s->read_modify_writes = r->accesses.read_modify_writes;
}

/* ---- the network between this connection and a server ---- */

static_assert(ROUTES_MAX + 1 <= SHEAF_MAX_ROUTES, "the rows of a peer fit");

/* RDMA is attached to a link over TCP. There is a row for it if the server has a card. */
static bool take_rdma(struct sheaf_server_net *net, const struct peer *p)
{
	bool used = p->link && link_has_rdma(p->link);
	struct sheaf_route *to = &net->routes[net->n_routes];

	if (!used && !p->rdma_why[0])
		return false;
	net->n_routes++;
	*to = (struct sheaf_route){ .name = "rdma", .used = used };
	if (used)
		return true;
	to->error = -EOPNOTSUPP;
	snprintf(to->reason, sizeof(to->reason), "%.*s", (int)sizeof(to->reason) - 1, p->rdma_why);
	return false;
}

static void take_routes(struct sheaf_server_net *net, const struct peer *p)
{
	const struct routes *from = &p->routes;

	for (uint32_t i = 0; i < from->n; i++) {
		const struct route *r = &from->row[i];
		bool by_rdma = strcmp(r->kind->name, "tcp") == 0 && take_rdma(net, p);
		struct sheaf_route *to = &net->routes[net->n_routes++];

		snprintf(to->name, sizeof(to->name), "%s", r->kind->name);
		to->used = p->link && i == from->at && !by_rdma;
		to->error = r->error;
		snprintf(to->reason, sizeof(to->reason), "%s", route_reason(r->error));
	}
}

static void take_links(struct sheaf_server_net *net, const struct wire_status_res *r)
{
	for (uint32_t i = 0; i < r->n_routes && i < SHEAF_MAX_ROUTES; i++) {
		struct sheaf_route_links *to = &net->links[net->n_links++];

		text_copy(to->name, sizeof(to->name), r->routes[i].route);
		to->links = r->routes[i].links;
	}
}

/* Of a net_account or its form in messages. */
#define COUNTS_OF(a) \
	((struct sheaf_net_counts){ .messages_sent = (a)->messages_sent, \
				    .messages_received = (a)->messages_received, \
				    .frames = (a)->frames, \
				    .calls = (a)->calls, \
				    .copied = (a)->copied, \
				    .work_requests = (a)->work_requests, \
				    .registrations = (a)->registrations, \
				    .doorbells = (a)->doorbells })

int sheaf_net_counts(struct sheaf *fs, int i, struct sheaf_net_counts *out)
{
	int r = -EINVAL;

	pthread_mutex_lock(&fs->d->lock);
	if (i >= 0 && i < (int)fs->b.client->n_peers) {
		*out = COUNTS_OF(&fs->b.client->peers[i].account);
		r = 0;
	}
	pthread_mutex_unlock(&fs->d->lock);
	return r;
}

/* Fills the fields that the caller knows. The connection is locked; r is NULL if it has no
 * answer. */
static void give_net(struct sheaf *fs, int i, const struct wire_status_res *r,
		     struct sheaf_server_net *out)
{
	struct sheaf_server_net net = { .size = out->size };

	take_routes(&net, &fs->b.client->peers[i]);
	net.own = COUNTS_OF(&fs->b.client->peers[i].account);
	if (r) {
		take_links(&net, r);
		net.server = COUNTS_OF(&r->net);
	}
	memcpy(out, &net, MIN(out->size, sizeof(net)));
}

/* Asks server i, which exists. The answer is in op->res if s->up; to be released. */
static struct cop *ask_status(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s)
{
	struct cop *op = api_begin(fs, NULL);
	const struct conf_target *t;
	int r;

	t = &fs->b.client->targets[i];
	*s = (struct sheaf_server){ .id = t->id, .roles = t->roles };
	snprintf(s->name, sizeof(s->name), "%s", t->name);
	snprintf(s->address, sizeof(s->address), "%s", t->address);
	client_ask(op, OP_STATUS, (uint32_t)i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
	r = (int)api_wait(fs, op);
	if (r == 0)
		take_status(s, &op->res.status);
	else
		s->down = api_explain_down(fs, i, r, s->why, sizeof(s->why));
	return op;
}

int sheaf_server_net(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s,
		     struct sheaf_server_net *net)
{
	struct cop *op;

	if (i < 0 || i >= sheaf_server_count(fs) || (net && net->size < sizeof(*net)))
		return -EINVAL;
	op = ask_status(fs, i, timeout_ms, s);
	if (net)
		give_net(fs, i, s->up ? &op->res.status : NULL, net);
	api_release(fs, op);
	return 0;
}

/* ---- how long requests took ---- */

static_assert(SHEAF_TIME_OCTAVES == TIME_OCTAVES, "the octaves of a message fit");

static struct sheaf_times times_of(const struct wire_time_counts *t)
{
	struct sheaf_times out = { .count = t->count, .sum_ns = t->sum_ns };

	memcpy(out.octaves, t->octaves, sizeof(out.octaves));
	return out;
}

int sheaf_server_times(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s,
		       struct sheaf_server_times *times)
{
	const struct wire_status_res *r;
	uint32_t size = times->size;
	struct cop *op;

	if (i < 0 || i >= sheaf_server_count(fs) || size < sizeof(*times))
		return -EINVAL;
	*times = (struct sheaf_server_times){ .size = size };
	op = ask_status(fs, i, timeout_ms, s);
	r = &op->res.status;
	if (s->up) {
		times->of[SHEAF_TIMES_READ] = times_of(&r->reads);
		times->of[SHEAF_TIMES_WRITE] = times_of(&r->writes);
		times->of[SHEAF_TIMES_SYNC] = times_of(&r->syncs);
		times->of[SHEAF_TIMES_NAMES] = times_of(&r->names);
	}
	api_release(fs, op);
	return 0;
}

int sheaf_server_bank(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server_bank *out)
{
	const struct wire_bank_part *b;
	uint32_t size = out->size;
	struct cop *op;
	int r;

	if (i < 0 || i >= sheaf_server_count(fs) || size < sizeof(*out))
		return -EINVAL;
	op = api_begin(fs, NULL);
	client_ask(op, OP_STATUS, (uint32_t)i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
	r = (int)api_wait(fs, op);
	b = &op->res.status.bank;
	if (!r)
		*out = (struct sheaf_server_bank){ size,	b->tells,  b->notices, b->lost,
						   b->failures, b->ask_ns, b->filled,  b->unfilled };
	api_release(fs, op);
	return r;
}

int sheaf_server_status(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s)
{
	return sheaf_server_net(fs, i, timeout_ms, s, NULL);
}

int sheaf_statfs(struct sheaf *fs, struct statvfs *st)
{
	struct cop *op = api_begin(fs, NULL);
	int r;

	client_statfs(op);
	r = (int)api_wait(fs, op);
	*st = (struct statvfs){ .f_bsize = 256 * KIB, .f_frsize = 4096, .f_namemax = 255 };
	st->f_blocks = op->space_total / st->f_frsize;
	st->f_bfree = st->f_bavail = op->space_avail / st->f_frsize;
	api_release(fs, op);
	return r;
}

int sheaf_ping(struct sheaf *fs, int i)
{
	struct cop *op;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = api_begin(fs, NULL);
	client_ask(op, OP_PING, (uint32_t)i, op->c->timeout_ns);
	return (int)api_finish(fs, op);
}

int sheaf_server_requests(struct sheaf *fs, int i, int timeout_ms, struct sheaf_request *rows,
			  int max)
{
	const struct wire_requests_res *r;
	struct cop *op;
	int n = 0;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = api_begin(fs, NULL);
	client_ask(op, OP_REQUESTS, (uint32_t)i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
	n = (int)api_wait(fs, op);
	r = &op->res.requests;
	for (; n >= 0 && n < max && n < (int)r->n_rows; n++) {
		const struct wire_request_info *q = &r->rows[n];

		rows[n] = (struct sheaf_request){ .age_ns = q->age_ns,
						  .state_ns = q->state_ns,
						  .trace = q->trace,
						  .session = q->session,
						  .ino = q->ino,
						  .uid = q->uid };
		text_copy(rows[n].op, sizeof(rows[n].op), q->op);
		text_copy(rows[n].state, sizeof(rows[n].state), q->state);
		text_copy(rows[n].client, sizeof(rows[n].client), q->client);
	}
	api_release(fs, op);
	return n;
}

static_assert((int)TALLY_CLIENTS == (int)SHEAF_TALLY_CLIENTS &&
		      (int)TALLY_USERS == (int)SHEAF_TALLY_USERS &&
		      (int)TALLY_JOBS == (int)SHEAF_TALLY_JOBS,
	      "the kinds are those of messages");

int sheaf_server_tally(struct sheaf *fs, int i, int timeout_ms, enum sheaf_tally_kind kind,
		       struct sheaf_tally *out)
{
	const struct wire_tally_res *r;
	struct cop *op;
	int error;

	if (i < 0 || i >= sheaf_server_count(fs) || out->size < sizeof(*out))
		return -EINVAL;
	op = api_begin(fs, NULL);
	op->args.TALLY.kind = kind;
	client_ask(op, OP_TALLY, (uint32_t)i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
	error = (int)api_wait(fs, op);
	r = &op->res.tally;
	if (!error) {
		out->boot = r->boot;
		out->uptime_ns = r->uptime_ns;
		out->n = MIN(r->n_rows, (uint32_t)SHEAF_TALLY_ROWS);
	}
	for (uint32_t k = 0; !error && k < out->n; k++) {
		const struct wire_tally_row *from = &r->rows[k];
		struct sheaf_tally_row *to = &out->rows[k];

		*to = (struct sheaf_tally_row){ .sessions = from->sessions,
						.requests = from->requests,
						.bytes_read = from->bytes_read,
						.bytes_written = from->bytes_written };
		text_copy(to->name, sizeof(to->name), from->name);
	}
	api_release(fs, op);
	return error;
}
