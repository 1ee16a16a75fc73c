/* The strategies that the servers chose for an access: each server counts its windows by strategy
 * in its metrics (sheaf_windows_total). The access is executed once more with each mover; what the
 * counters grew by meanwhile is the answer, with the windows of other clients at that time.
 *
 * Threads: one. Errors: none; the strategies of a server without reachable metrics are unknown. */
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "explain/explain_impl.h"

#define ROWS 16 /* strategies of reads, or of writes */
#define TIMEOUT_S 2 /* for one answer */
#define METRIC "sheaf_windows_total"
#define DISK_TIME "sheaf_state_seconds_sum{op=\"window\",state=\"disk\"}"

/* Windows that a server has moved so far, by strategy. */
struct tally {
	bool known;
	double disk_s; /* seconds of windows in the state `disk` */
	unsigned n;
	struct {
		char name[EXPLAIN_NAME];
		uint64_t windows;
	} row[ROWS];
};

/* Connects to the metrics of a server. Returns a socket, or -1. */
static int dial(const struct conf_target *t)
{
	const struct addrinfo want = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	const struct timeval timeout = { .tv_sec = TIMEOUT_S };
	const char *colon = strrchr(t->metrics, ':');
	/* metrics at all addresses of a host are also at the address for clients */
	const char *from = strncmp(t->metrics, "0.0.0.0:", 8) ? t->metrics : t->address;
	struct addrinfo *a = NULL;
	char host[CONF_ADDR_MAX];
	int fd;

	if (!colon)
		return -1;
	snprintf(host, sizeof(host), "%.*s", (int)(strrchr(from, ':') - from), from);
	if (getaddrinfo(host, colon + 1, &want, &a))
		return -1;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) ||
			setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) ||
			connect(fd, a->ai_addr, a->ai_addrlen))) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(a);
	return fd;
}

static void read_line(struct tally *t, const char *line, const char *op)
{
	char is[EXPLAIN_NAME] = "", name[EXPLAIN_NAME] = "";
	unsigned long long n;
	double s;

	if (sscanf(line, DISK_TIME " %lf", &s) == 1)
		t->disk_s = s;
	if (t->n == ROWS ||
	    sscanf(line, METRIC "{op=\"%31[^\"]\",strategy=\"%31[^\"]\"} %llu", is, name, &n) != 3)
		return;
	t->known = true;
	if (strcmp(is, op) != 0)
		return;
	memcpy(t->row[t->n].name, name, sizeof(name));
	t->row[t->n++].windows = n;
}

static void read_tally(struct tally *t, const struct conf_target *of, const char *op)
{
	static const char ask[] = "GET /metrics HTTP/1.0\r\n\r\n";
	int fd = dial(of);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char line[512];

	*t = (struct tally){ 0 };
	if (f && send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(ask) - 1)
		while (fgets(line, sizeof(line), f))
			read_line(t, line, op);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
}

/* Reads the counters of all servers. A server that does not answer is not asked again. */
static void read_all(const struct explain *e, const struct conf *conf, struct tally *t)
{
	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		uint32_t id = e->where.targets[i];

		if (t[i].known && id < conf->n_targets)
			read_tally(&t[i], &conf->targets[id], e->x.a.write ? "write" : "read");
		else
			t[i].known = false;
	}
}

/* Leaves in `now` what has been added since `before`, and adds that to `sum`. */
static void grew(struct tally *now, const struct tally *before, struct tally *sum)
{
	now->known = now->known && before->known && now->n == before->n;
	sum->known = sum->known && now->known;
	sum->n = now->n;
	for (unsigned i = 0; now->known && i < now->n; i++) {
		now->row[i].windows -= before->row[i].windows;
		memcpy(sum->row[i].name, now->row[i].name, sizeof(sum->row[i].name));
		sum->row[i].windows += now->row[i].windows;
	}
}

/* The strategy of most windows. */
static void put_strategy(char out[EXPLAIN_NAME], const struct tally *t)
{
	unsigned most = 0;

	for (unsigned i = 1; i < t->n; i++)
		if (t->row[i].windows > t->row[most].windows)
			most = i;
	if (!t->known || !t->n)
		out[0] = 0;
	else if (!t->row[most].windows)
		snprintf(out, EXPLAIN_NAME, "message"); /* the data were in messages */
	else
		memcpy(out, t->row[most].name, EXPLAIN_NAME);
}

static int run_way(struct explain *e, const struct conf *conf, struct explain_way *w,
		   struct tally *before, struct tally *after)
{
	struct tally sum = { .known = true };
	int r;

	read_all(e, conf, before);
	memcpy(after, before, e->where.n_targets * sizeof(*after));
	r = explain_transfer(e, e->x.a.write);
	read_all(e, conf, after);
	for (uint32_t i = 0; !r && i < e->where.n_targets; i++) {
		if (!w->plan.shares[i].bytes)
			continue;
		grew(&after[i], &before[i], &sum);
		put_strategy(w->at[i].strategy, &after[i]);
		if (after[i].known && w == &e->way[SHEAF_MOVER_AUTO])
			e->sieve[i].measured_ns = 1e9 * (after[i].disk_s - before[i].disk_s);
	}
	put_strategy(w->all.strategy, &sum);
	return r;
}

int explain_strategies(struct explain *e)
{
	struct tally *t = calloc(2 * (size_t)e->where.n_targets, sizeof(*t));
	struct conf *conf = NULL;
	char err[256];
	int r = 0;

	for (uint32_t i = 0; t && i < e->where.n_targets; i++)
		t[i].known = true;
	/* a file system inside this command has no metrics */
	if (t && cli_find_conf(e->c, &conf, err, sizeof(err)) == 0) {
		for (int m = 0; !r && m < e->n_ways; m++) {
			sheaf_set_mover(e->c->fs, (enum sheaf_mover)m);
			r = run_way(e, conf, &e->way[m], t, t + e->where.n_targets);
		}
		sheaf_set_mover(e->c->fs, SHEAF_MOVER_AUTO);
		conf_free(conf);
	}
	free(t);
	return r;
}
