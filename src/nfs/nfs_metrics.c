/* The counters in Prometheus's text format, at the address `metrics` of [nfs]. The thread of the
 * gateway drives the endpoint, as one more source. */
#include <stdio.h>

#include "net/http.h"
#include "sheaf_admin.h"
#include "nfs/nfs_priv.h"

static void value(FILE *f, const char *name, const char *type, const char *help, uint64_t v)
{
	fprintf(f, "# HELP sheaf_nfs_%s %s\n# TYPE sheaf_nfs_%s %s\nsheaf_nfs_%s %llu\n", name,
		help, name, type, name, (unsigned long long)v);
}

static void head(FILE *f, const char *name, const char *help)
{
	fprintf(f, "# HELP sheaf_nfs_%s %s\n# TYPE sheaf_nfs_%s counter\n", name, help, name);
}

/* One figure of all procedures that were called. */
static void by_procedure(FILE *f, const struct gateway *g, const char *name, const char *help,
			 double (*figure)(const struct nfs_counts *n))
{
	head(f, name, help);
	for (size_t i = 0; rpc_programs[i]; i++)
		for (uint32_t k = 0; k < rpc_programs[i]->n_procs; k++)
			if (g->counts[i][k].calls)
				fprintf(f, "sheaf_nfs_%s{program=\"%s\",procedure=\"%s\"} %.17g\n",
					name, rpc_programs[i]->name, rpc_programs[i]->procs[k].name,
					figure(&g->counts[i][k]));
}

static void by_client(FILE *f, const struct gateway *g, const char *name, const char *help,
		      double (*figure)(const struct nfs_client *k))
{
	const struct nfs_client *k;
	char text[ORIGIN_TEXT];

	head(f, name, help);
	list_for_each(k, &g->clients_by_use, link) {
		origin_format(text, &k->from);
		fprintf(f, "sheaf_nfs_%s{client=\"%s\"} %.17g\n", name, text, figure(k));
	}
}

static double calls(const struct nfs_counts *n)
{
	return (double)n->calls;
}

static double errors(const struct nfs_counts *n)
{
	return (double)n->errors;
}

static double seconds(const struct nfs_counts *n)
{
	return (double)n->ns * 1e-9;
}

static double client_calls(const struct nfs_client *k)
{
	return calls(&k->counts);
}

static double client_errors(const struct nfs_client *k)
{
	return errors(&k->counts);
}

static double client_received(const struct nfs_client *k)
{
	return (double)k->received;
}

static double client_sent(const struct nfs_client *k)
{
	return (double)k->sent;
}

static void write_bank(FILE *f, struct sheaf *fs)
{
	struct sheaf_bank k = { .size = sizeof(k) };

	if (sheaf_bank(fs, &k))
		return;
	value(f, "bank_reads_asked_total", "counter", "Reads that asked the cache bank.", k.asked);
	value(f, "bank_reads_found_total", "counter", "Those that found all.", k.hits);
	value(f, "bank_reads_skipped_total", "counter", "Reads for which asking would not pay.",
	      k.skipped);
	value(f, "bank_bytes_total", "counter", "Bytes found.", k.hit_bytes);
	value(f, "bank_attributes_asked_total", "counter", "Attributes asked for.", k.attr_asked);
	value(f, "bank_attributes_found_total", "counter", "Those that were found.", k.attr_hits);
	value(f, "bank_failures_total", "counter", "Daemons that did not answer.", k.failures);
	value(f, "bank_bad_total", "counter", "Values that were no entries.", k.bad);
	value(f, "bank_ask_nanoseconds_total", "counter", "Time of the reads that asked.",
	      k.ask_ns);
}

static int make_page(void *arg, char **text, size_t *len)
{
	const struct gateway *g = arg;
	FILE *f = open_memstream(text, len);

	if (!f)
		return -ENOMEM;
	value(f, "connections", "gauge", "Connections of clients.", g->n_conns);
	value(f, "calls_in_progress", "gauge", "Calls without a complete reply.", g->n_calls);
	value(f, "open_files", "gauge", "Files that are open for clients.", g->files.count);
	value(f, "memory_bytes", "gauge", "Buffers of calls and replies.",
	      g->memory_used + g->data_used);
	value(f, "replayed_total", "counter", "Retransmissions that got the first reply.",
	      g->n_replayed);
	by_procedure(f, g, "calls_total", "Calls that were executed.", calls);
	by_procedure(f, g, "errors_total", "Those that failed.", errors);
	by_procedure(f, g, "seconds_total", "From their receipt to their reply.", seconds);
	by_client(f, g, "client_calls_total", "Calls of a client.", client_calls);
	by_client(f, g, "client_errors_total", "Those that failed.", client_errors);
	by_client(f, g, "client_received_bytes_total", "Bytes of its calls.", client_received);
	by_client(f, g, "client_sent_bytes_total", "Bytes of the replies.", client_sent);
	write_bank(f, g->fs);
	return fclose(f) ? -ENOMEM : 0;
}

void nfs_metrics_run(struct gateway *g)
{
	if (g->http)
		g->http_waits = http_run(g->http) >= 0;
}

static void metrics_ready(struct nfs_source *s, unsigned events)
{
	(void)events;
	nfs_metrics_run(s->g);
}

int nfs_metrics_start(struct gateway *g)
{
	int r = http_open(g->conf->nfs.metrics, make_page, g, &g->http);

	return r ? r : source_add(g, &g->metrics, http_fd(g->http), EV_IN, metrics_ready);
}
