/* The state of the cache bank, for `sheaf bank status` and `sheaf status`: its daemons, what the
 * metadata servers tell of it, and what the NFS gateway of this host found in it.
 *
 * Threads: one. Buffers: answers of daemons are bounded. Errors: a daemon or server that does not
 * answer is marked; the rest is shown. */
#include <json-c/json.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "commands/bank_status.h"

#define ASK_MS 1000
#define ASK_AGAIN_MS 200 /* after a daemon that did not answer */

/* ---- talking to a daemon ---- */

void bank_daemon_split(struct bank_daemon *d)
{
	const char *colon = strrchr(d->address, ':');
	int n = (int)(colon - d->address);

	snprintf(d->port, sizeof(d->port), "%s", colon + 1);
	if (*d->address == '[')
		snprintf(d->host, sizeof(d->host), "%.*s", n - 2, d->address + 1);
	else
		snprintf(d->host, sizeof(d->host), "%.*s", n, d->address);
}

struct addrinfo *bank_daemon_resolve(const struct bank_daemon *d)
{
	const struct addrinfo hint = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *a = NULL;

	return getaddrinfo(d->host, d->port, &hint, &a) ? NULL : a;
}

static int reach(const struct bank_daemon *d, int limit_ms)
{
	struct addrinfo *a = bank_daemon_resolve(d);
	const struct timeval limit = { .tv_sec = limit_ms / 1000,
				       .tv_usec = limit_ms % 1000 * 1000 };
	int fd = a ? socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1, r = -EHOSTUNREACH;

	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
		r = connect(fd, a->ai_addr, a->ai_addrlen) ? -errno : fd;
		if (r < 0)
			close(fd);
	}
	if (a)
		freeaddrinfo(a);
	return r == -EINPROGRESS ? -ETIMEDOUT : r;
}

static int ask(const struct bank_daemon *d, int limit_ms, char out[BANK_ANSWER_MAX])
{
	int fd = reach(d, limit_ms);
	size_t n = 0;
	ssize_t r = 1;

	*out = 0;
	if (fd < 0)
		return fd;
	if (send(fd, "stats\r\n", 7, MSG_NOSIGNAL) != 7)
		r = -1;
	while (r > 0 && n < BANK_ANSWER_MAX - 1 && !strstr(out, "END\r\n")) {
		r = recv(fd, out + n, BANK_ANSWER_MAX - 1 - n, 0);
		n += (size_t)MAX(r, 0);
		out[n] = 0;
	}
	close(fd);
	if (strstr(out, "END\r\n"))
		return 0;
	return r < 0 ? -ETIMEDOUT : -EPROTO;
}

int bank_daemon_ask(const struct bank_daemon *d, char out[BANK_ANSWER_MAX])
{
	return ask(d, ASK_MS, out);
}

uint64_t bank_daemon_number(const char *stats, const char *name)
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "STAT %s ", name);
	at = strstr(stats, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* ---- daemons ---- */

static void add(uint64_t *sum, struct json_object *o, const char *key, uint64_t v)
{
	cli_json_uint(o, key, v);
	*sum += v;
}

static void take_daemon(struct bank_state_now *s, struct bank_daemon_now *d, int limit_ms)
{
	struct json_object *o = json_object_new_object();
	char *stats = malloc(BANK_ANSWER_MAX);
	uint64_t began = time_now(), none = 0;
	int r = stats ? ask(&d->at, limit_ms, stats) : -ENOMEM;

	d->error = r;
	d->answer_ns = time_now() - began;
	cli_json_text(o, "address", d->at.address);
	cli_json_bool(o, "up", r == 0);
	if (r) {
		cli_json_text(o, "why", error_text(r));
	} else {
		s->n_up++;
		s->answer_ns = MAX(s->answer_ns, d->answer_ns);
		d->entries = bank_daemon_number(stats, "curr_items");
		d->bytes = bank_daemon_number(stats, "bytes");
		d->limit = bank_daemon_number(stats, "limit_maxbytes");
		d->hits = bank_daemon_number(stats, "get_hits");
		d->misses = bank_daemon_number(stats, "get_misses");
		d->evictions = bank_daemon_number(stats, "evictions");
		cli_json_uint(o, "answer_ns", d->answer_ns);
		cli_json_uint(o, "pid", bank_daemon_number(stats, "pid"));
		add(&none, o, "curr_items", d->entries);
		add(&s->bytes, o, "bytes", d->bytes);
		add(&none, o, "limit_maxbytes", d->limit);
		add(&s->hits, o, "get_hits", d->hits);
		add(&s->misses, o, "get_misses", d->misses);
		add(&none, o, "cmd_set", bank_daemon_number(stats, "cmd_set"));
		add(&none, o, "evictions", d->evictions);
	}
	free(stats);
	json_object_array_add(s->daemons, o);
}

/* ---- servers and the gateway ---- */

static void take_server(struct bank_state_now *s, struct sheaf *fs, int i, const char *name)
{
	struct sheaf_server_bank b = { .size = sizeof(b) };
	struct json_object *o = json_object_new_object();
	int r = sheaf_server_bank(fs, i, ASK_MS, &b);

	s->n_meta++;
	cli_json_text(o, "name", name);
	cli_json_bool(o, "up", r == 0);
	if (!r) {
		s->n_tell += b.tells;
		s->errors += b.failures;
		if (!b.tells)
			snprintf(s->silent, sizeof(s->silent), "%s", name);
		cli_json_bool(o, "sets_notices", b.tells);
		cli_json_uint(o, "notices", b.notices);
		cli_json_uint(o, "notices_lost", b.lost);
		cli_json_uint(o, "failures", b.failures);
		cli_json_uint(o, "ask_ns", b.ask_ns);
		cli_json_uint(o, "files_filled", b.filled);
		cli_json_uint(o, "files_not_filled", b.unfilled);
	}
	json_object_array_add(s->servers, o);
}

/* Of the NFS gateway of this host; NULL: there is none, or it does not use the bank. */
static struct json_object *take_gateway(struct bank_state_now *s, const struct conf *conf)
{
	struct json_object *all = nfs_gateway_status(conf), *bank = NULL, *n;

	if (!all)
		return NULL;
	if (json_object_object_get_ex(all, "bank", &bank) && bank) {
		json_object_get(bank);
		if (json_object_object_get_ex(bank, "failures", &n))
			s->errors += json_object_get_uint64(n);
	} else {
		bank = NULL;
	}
	json_object_put(all);
	return bank;
}

struct json_object *bank_state_take(struct bank_state_now *s, const struct conf *conf,
				    struct sheaf *fs)
{
	struct json_object *o = json_object_new_object();
	int limit_ms = ASK_MS;

	memset(s, 0, sizeof(*s));
	s->n = conf->bank.n_servers;
	s->rows = calloc(s->n + 1, sizeof(*s->rows));
	s->daemons = json_object_new_array();
	s->servers = json_object_new_array();
	for (uint32_t i = 0; s->rows && i < s->n; i++) {
		s->rows[i].at.address = conf->bank.servers[i];
		bank_daemon_split(&s->rows[i].at);
		take_daemon(s, &s->rows[i], limit_ms);
		if (s->rows[i].error)
			limit_ms = ASK_AGAIN_MS;
	}
	for (uint32_t i = 0; fs && i < conf->n_targets; i++)
		if (conf->targets[i].roles & ROLE_META)
			take_server(s, fs, (int)i, conf->targets[i].name);
	json_object_object_add(o, "daemons", s->daemons);
	json_object_object_add(o, "servers", s->servers);
	json_object_object_add(o, "gateway", take_gateway(s, conf));
	cli_json_uint(o, "hits", s->hits);
	cli_json_uint(o, "misses", s->misses);
	cli_json_uint(o, "bytes", s->bytes);
	cli_json_uint(o, "errors", s->errors);
	cli_json_uint(o, "answer_ns", s->answer_ns);
	return o;
}

void bank_state_line(const struct bank_state_now *s, FILE *f)
{
	char bytes[32];

	format_size(bytes, sizeof(bytes), s->bytes);
	fprintf(f, "cache bank: %u of %u daemons are up, %s, %llu hits, %llu misses, %llu errors",
		s->n_up, s->n, bytes, (unsigned long long)s->hits, (unsigned long long)s->misses,
		(unsigned long long)s->errors);
	if (s->n_up)
		fprintf(f, ", answers in %.1f ms", (double)s->answer_ns / 1e6);
	fputc('\n', f);
	if (s->silent[0])
		fprintf(f,
			"cache bank: %s sets no notices of changes, so stats may be as old as [bank] "
			"permits; 'sheaf bank start' makes the servers of its host read [bank] again, and its log says why not\n",
			s->silent);
}
