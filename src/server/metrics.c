/* Times and counters in Prometheus's text format. req_goto() and sreq_reply() fill the histograms;
 * this file only prints them. */
#include <stdio.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "net/http.h"
#include "server/window.h"

int times_init(struct server *srv)
{
	srv->op_times = calloc(N_OPS, sizeof(*srv->op_times));
	srv->state_times = calloc(N_OPS, sizeof(*srv->state_times));
	srv->window_times = calloc(window_ops.n_states, sizeof(*srv->window_times));
	srv->window_counts = calloc(N_STRATEGIES, sizeof(*srv->window_counts));
	if (!srv->op_times || !srv->state_times || !srv->window_times || !srv->window_counts)
		return -ENOMEM;
	for (unsigned i = 0; i < N_OPS; i++) {
		if (!op_row(i))
			continue;
		srv->state_times[i] = calloc(op_row(i)->ops->n_states, sizeof(struct hist));
		if (!srv->state_times[i])
			return -ENOMEM;
	}
	return 0;
}

void times_free(struct server *srv)
{
	for (unsigned i = 0; srv->state_times && i < N_OPS; i++)
		free(srv->state_times[i]);
	free(srv->state_times);
	free(srv->op_times);
	free(srv->window_times);
	free(srv->window_counts);
}

static void value(FILE *f, const char *name, const char *type, const char *help, uint64_t v)
{
	fprintf(f, "# HELP sheaf_%s %s\n# TYPE sheaf_%s %s\nsheaf_%s %llu\n", name, help, name,
		type, name, (unsigned long long)v);
}

static void times_of(FILE *f, const char *name, const char *labels, const struct hist *h)
{
	static const double edges[] = { 10e-6, 30e-6,  100e-6, 300e-6, 1e-3, 3e-3, 10e-3,
					30e-3, 100e-3, 300e-3, 1,      3,    10 };

	if (!h->count)
		return;
	for (size_t i = 0; i < ARRAY_LEN(edges); i++)
		fprintf(f, "sheaf_%s_bucket{%s,le=\"%g\"} %llu\n", name, labels, edges[i],
			(unsigned long long)hist_below(h, (uint64_t)(edges[i] * 1e9)));
	fprintf(f, "sheaf_%s_bucket{%s,le=\"+Inf\"} %llu\n", name, labels,
		(unsigned long long)h->count);
	fprintf(f, "sheaf_%s_sum{%s} %.9f\n", name, labels, (double)h->sum * 1e-9);
	fprintf(f, "sheaf_%s_count{%s} %llu\n", name, labels, (unsigned long long)h->count);
}

static void write_notices(FILE *f, const struct server *s)
{
	const struct bank_counts *k = s->notices.bank ? bank_counts(s->notices.bank) : NULL;

	if (!k)
		return;
	value(f, "bank_notices_total", "counter", "Changes told to the cache bank.", k->notices);
	value(f, "bank_notices_lost_total", "counter", "Not told, since too many waited.",
	      k->notices_lost);
	value(f, "bank_failures_total", "counter", "Daemons that did not answer.", k->failures);
}

static void write_times(FILE *f, const struct server *s)
{
	char labels[128];

	fprintf(f, "# HELP sheaf_request_seconds From the message to the reply.\n"
		   "# TYPE sheaf_request_seconds histogram\n");
	for (unsigned i = 0; i < N_OPS; i++) {
		if (!op_row(i))
			continue;
		snprintf(labels, sizeof(labels), "op=\"%s\"", wire_op_rows[i].name);
		times_of(f, "request_seconds", labels, &s->op_times[i]);
	}
	fprintf(f, "# HELP sheaf_state_seconds Time that requests spend in each state.\n"
		   "# TYPE sheaf_state_seconds histogram\n");
	for (unsigned i = 0; i < N_OPS; i++) {
		for (unsigned k = 0; op_row(i) && k < op_row(i)->ops->n_states; k++) {
			snprintf(labels, sizeof(labels), "op=\"%s\",state=\"%s\"",
				 wire_op_rows[i].name, op_row(i)->ops->state_names[k]);
			times_of(f, "state_seconds", labels, &s->state_times[i][k]);
		}
	}
	for (unsigned k = 0; k < window_ops.n_states; k++) {
		snprintf(labels, sizeof(labels), "op=\"window\",state=\"%s\"",
			 window_ops.state_names[k]);
		times_of(f, "state_seconds", labels, &s->window_times[k]);
	}
}

static void write_refusals(FILE *f, const struct server *s)
{
	fprintf(f, "# HELP sheaf_refused_total Requests and links that were refused.\n"
		   "# TYPE sheaf_refused_total counter\n");
	for (int i = 0; i < N_REFUSALS; i++)
		fprintf(f, "sheaf_refused_total{reason=\"%s\"} %llu\n", refusal_name(i),
			(unsigned long long)s->net.refused[i]);
}

static void write_net(FILE *f, const struct net_account *a)
{
	fprintf(f, "# HELP sheaf_net_messages_total Messages of accepted links.\n"
		   "# TYPE sheaf_net_messages_total counter\n");
	fprintf(f, "sheaf_net_messages_total{direction=\"sent\"} %llu\n",
		(unsigned long long)a->messages_sent);
	fprintf(f, "sheaf_net_messages_total{direction=\"received\"} %llu\n",
		(unsigned long long)a->messages_received);
	value(f, "net_frames_total", "counter", "Messages and frames of bulk.", a->frames);
	value(f, "net_calls_total", "counter", "System calls on their sockets.", a->calls);
	value(f, "net_copied_bytes_total", "counter", "Bulk copied in user space.", a->copied);
	value(f, "net_work_requests_total", "counter", "Work requests.", a->work_requests);
	value(f, "net_doorbells_total", "counter", "Chains of work requests.", a->doorbells);
	value(f, "net_registrations_total", "counter", "Memory registered.", a->registrations);
}

static void write_links(FILE *f, const struct server *s)
{
	struct route_count c[ROUTES_MAX];
	size_t n = routes_count(&s->net, c);

	fprintf(f, "# HELP sheaf_links Connections, by route.\n# TYPE sheaf_links gauge\n");
	for (size_t i = 0; i < n; i++)
		fprintf(f, "sheaf_links{route=\"%s\"} %u\n", c[i].name, c[i].links);
}

static void write_windows(FILE *f, const struct server *s)
{
	fprintf(f, "# HELP sheaf_windows_total Windows of bulk transfers, by strategy.\n"
		   "# TYPE sheaf_windows_total counter\n");
	for (int i = 0; i < N_STRATEGIES; i++)
		fprintf(f, "sheaf_windows_total{op=\"%s\",strategy=\"%s\"} %llu\n",
			strategies[i].op, strategies[i].name,
			(unsigned long long)s->window_counts[i]);
}

static void write_disk(FILE *f, struct server *s)
{
	uint64_t total = 0, avail = 0, id;
	struct disk_counters c;

	disk_counters(s->disk, &c);
	disk_space(s->disk, &total, &avail, &id);
	value(f, "space_bytes", "gauge", "Size of the storage.", total);
	value(f, "space_avail_bytes", "gauge", "Space left in the storage.", avail);
	value(f, "disk_reads_total", "counter", "Object reads.", c.reads);
	value(f, "disk_writes_total", "counter", "Object writes.", c.writes);
	value(f, "disk_syncs_total", "counter", "Object syncs.", c.syncs);
	value(f, "accesses_requested_total", "counter", "Pieces of objects asked for.",
	      c.requested);
	value(f, "accesses_performed_total", "counter", "Accesses for them.", c.performed);
	value(f, "accesses_merged_total", "counter", "Accesses joined with others.", c.merged);
	value(f, "vain_bytes_total", "counter", "Read between the pieces asked for.", c.vain_bytes);
	value(f, "read_modify_writes_total", "counter", "Covering ranges read and written back.",
	      c.read_modify_writes);
	value(f, "damaged_accesses_total", "counter",
	      "Accesses that met recorded data which are lost.", s->damage.accesses);
	value(f, "disk_latched_total", "counter", "Writeback errors.", c.latched);
	value(f, "disk_inline_total", "counter", "Accesses that the loop did itself.",
	      s->loop->io_inlined);
	value(f, "disk_handed_total", "counter", "Accesses handed over because they might block.",
	      s->loop->io_handed);
	value(f, "disk_stalls_total", "counter", "Writes for which the loop waited 10 ms or more.",
	      s->loop->io_stalls);
	value(f, "disk_longest_stall_nanoseconds", "gauge", "The longest of them.",
	      s->loop->io_longest_stall);
}

static void write_counts(FILE *f, struct server *s)
{
	value(f, "uptime_seconds", "gauge", "Since the server started.",
	      (s->loop->now - s->started) / NSEC_PER_SEC);
	value(f, "requests_total", "counter", "Requests that came in.", s->requests);
	value(f, "bytes_read_total", "counter", "Data read by clients and by servers that copy.",
	      s->bytes_read);
	value(f, "bytes_written_total", "counter", "Data written.", s->bytes_written);
	value(f, "requests_in_service", "gauge", "Requests being worked on.", s->in_service);
	value(f, "system_calls_total", "counter", "System calls made by the loop.", s->loop->calls);
	value(f, "sessions", "gauge", "Clients with a standing here.", s->sessions.count);
	value(f, "bad_links_total", "counter", "Links refused or closed for what they sent.",
	      s->net.bad_links);
	value(f, "load", "gauge", "Clients whose bulk is being moved.", s->pool.n_holders);
	value(f, "outstanding_bytes", "gauge", "Bulk on its way, of all clients.",
	      (s->pool.n_units - s->pool.n_free) * BUF_UNIT);
	value(f, "pool_bytes", "gauge", "Buffer memory.", s->pool.n_units * BUF_UNIT);
	value(f, "pool_free_bytes", "gauge", "Buffer memory not in use.",
	      s->pool.n_free * BUF_UNIT);
	value(f, "pool_waits_total", "counter",
	      "Windows that waited for buffers with room in their client's share.",
	      s->pool.n_waits);
	value(f, "no_space_total", "counter", "Requests that failed for lack of space.",
	      s->no_space);
	value(f, "unclean_start", "gauge",
	      "1: the last stop was a crash, so data that no fsync covered may be lost.",
	      s->was_unclean);
	write_disk(f, s);
	if (s->meta)
		value(f, "meta_slow_reads_total", "counter", "Metadata reads that took over 1 ms.",
		      meta_slow_reads(s->meta));
}

int server_metrics(struct server *s, char **text, size_t *len)
{
	FILE *f = open_memstream(text, len);

	if (!f)
		return -ENOMEM;
	write_counts(f, s);
	write_net(f, &s->net.account);
	write_links(f, s);
	write_refusals(f, s);
	write_windows(f, s);
	tallies_write(f, s);
	write_notices(f, s);
	write_times(f, s);
	return fclose(f) ? -ENOMEM : 0;
}

static int make_page(void *server, char **text, size_t *len)
{
	return server_metrics(server, text, len);
}

int metrics_start(struct server *s, const char *address)
{
	return http_start(s->loop, address, make_page, s, &s->http);
}
