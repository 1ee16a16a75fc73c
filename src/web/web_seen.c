/* Clients and requests that the samples of the last hour have shown. All tables have a fixed size:
 * the slowest requests push out faster ones, a new client the one that was not seen for longest. */
#include <stdlib.h>

#include "web/web_impl.h"

static bool is_lock(const struct sheaf_request *q)
{
	return strcmp(q->op, "lock") == 0;
}

static bool is_over(uint64_t seen, uint64_t now)
{
	return seen && now - seen > WEB_HOUR_NS;
}

void web_seen_begin(struct web_seen *s, uint64_t now)
{
	s->n_now = s->in_service = s->waiting = 0;
	for (int i = 0; i < WEB_SHOWN; i++)
		if (is_over(s->slowest[i].seen, now))
			s->slowest[i].seen = 0;
	for (int i = 0; i < WEB_CLIENTS; i++) {
		s->clients[i].in_service = 0;
		if (is_over(s->clients[i].seen, now))
			s->clients[i].seen = 0;
	}
}

static struct web_row row_of(const char *server, const struct sheaf_request *q, uint64_t now)
{
	struct web_row r = { .q = *q, .seen = now };

	snprintf(r.server, sizeof(r.server), "%s", server);
	return r;
}

/* Keeps the oldest ones, sorted. */
static void add_now(struct web_seen *s, const struct web_row *r)
{
	uint32_t at = s->n_now;

	while (at > 0 && s->now[at - 1].q.age_ns < r->q.age_ns)
		at--;
	if (at == WEB_SHOWN)
		return;
	s->n_now = MIN(s->n_now + 1, WEB_SHOWN);
	memmove(&s->now[at + 1], &s->now[at], (s->n_now - at - 1) * sizeof(*r));
	s->now[at] = *r;
}

/* The same request in an earlier sample, or the row to be replaced; NULL: all are slower. */
static struct web_row *slow_row(struct web_seen *s, const struct web_row *r)
{
	struct web_row *least = NULL;

	for (int i = 0; i < WEB_SHOWN; i++) {
		struct web_row *x = &s->slowest[i];

		if (x->seen && x->q.trace == r->q.trace && x->q.session == r->q.session &&
		    strcmp(x->server, r->server) == 0 && strcmp(x->q.op, r->q.op) == 0)
			return x;
		if (!least || (least->seen && (!x->seen || x->q.age_ns < least->q.age_ns)))
			least = x;
	}
	return !least->seen || least->q.age_ns < r->q.age_ns ? least : NULL;
}

static struct web_client *client_row(struct web_seen *s, const char *name)
{
	struct web_client *least = &s->clients[0];

	for (int i = 0; i < WEB_CLIENTS; i++) {
		struct web_client *x = &s->clients[i];

		if (x->seen && strcmp(x->name, name) == 0)
			return x;
		if (x->seen < least->seen)
			least = x;
	}
	*least = (struct web_client){ 0 };
	snprintf(least->name, sizeof(least->name), "%s", name);
	return least;
}

void web_seen_add(struct web_seen *s, const char *server, const struct sheaf_request *q,
		  uint64_t now)
{
	struct web_row r = row_of(server, q, now), *slow = NULL;
	struct web_client *c;

	if (strcmp(q->op, "window") == 0)
		return; /* a part of a request that has a row of its own */
	s->in_service++;
	s->waiting += is_lock(q);
	add_now(s, &r);
	if (!is_lock(q))
		slow = slow_row(s, &r);
	if (slow)
		*slow = r;
	if (!q->client[0])
		return; /* the server's own work */
	c = client_row(s, q->client);
	c->samples += c->seen != now;
	c->seen = now;
	c->in_service++;
	if (!is_lock(q))
		c->slowest_ns = MAX(c->slowest_ns, q->age_ns);
}

/* ---- JSON ---- */

static void add_age(struct json_object *o, uint64_t seen, uint64_t now)
{
	uint64_t ms = now > seen ? (now - seen) / NSEC_PER_MSEC : 0;

	json_object_object_add(o, "seen_s_ago", json_object_new_double((double)ms / 1e3));
}

static struct json_object *row_json(const struct web_row *r, uint64_t now)
{
	struct json_object *o = json_object_new_object();
	char trace[24];

	snprintf(trace, sizeof(trace), "%llx", (unsigned long long)r->q.trace);
	json_object_object_add(o, "server", cli_json_name(r->server));
	json_object_object_add(o, "op", cli_json_name(r->q.op));
	json_object_object_add(o, "state", cli_json_name(r->q.state));
	json_object_object_add(o, "client", cli_json_name(r->q.client));
	cli_json_uint(o, "age_ns", r->q.age_ns);
	cli_json_uint(o, "state_ns", r->q.state_ns);
	cli_json_uint(o, "ino", r->q.ino);
	cli_json_int(o, "uid", r->q.uid);
	cli_json_text(o, "trace", trace);
	add_age(o, r->seen, now);
	return o;
}

static struct json_object *client_json(const struct web_client *c, uint64_t now)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "name", cli_json_name(c->name));
	cli_json_uint(o, "in_service", c->in_service);
	cli_json_uint(o, "samples", c->samples);
	cli_json_uint(o, "slowest_ns", c->slowest_ns);
	add_age(o, c->seen, now);
	return o;
}

static int by_age(const void *a, const void *b)
{
	const struct web_row *const *x = a, *const *y = b;

	return ((*x)->q.age_ns < (*y)->q.age_ns) - ((*x)->q.age_ns > (*y)->q.age_ns);
}

static struct json_object *slowest_json(const struct web_seen *s, uint64_t now)
{
	struct json_object *list = json_object_new_array();
	const struct web_row *rows[WEB_SHOWN];
	size_t n = 0;

	for (int i = 0; i < WEB_SHOWN; i++)
		if (s->slowest[i].seen)
			rows[n++] = &s->slowest[i];
	qsort(rows, n, sizeof(rows[0]), by_age);
	for (size_t i = 0; i < n; i++)
		json_object_array_add(list, row_json(rows[i], now));
	return list;
}

void web_seen_json(const struct web_seen *s, uint64_t now, struct json_object *to)
{
	struct json_object *requests = json_object_new_array(), *clients = json_object_new_array();

	for (uint32_t i = 0; i < s->n_now; i++)
		json_object_array_add(requests, row_json(&s->now[i], now));
	for (int i = 0; i < WEB_CLIENTS; i++)
		if (s->clients[i].seen)
			json_object_array_add(clients, client_json(&s->clients[i], now));
	cli_json_uint(to, "in_service", s->in_service);
	cli_json_uint(to, "waiting_for_locks", s->waiting);
	json_object_object_add(to, "requests", requests);
	json_object_object_add(to, "slowest", slowest_json(s, now));
	json_object_object_add(to, "clients", clients);
}
