/* Shared by the files of src/web.
 *
 * The sampler's thread asks the servers and, with the lock held, puts the answers into the state;
 * the main thread serves HTTP and, with the lock held, turns the state into JSON. */
#ifndef SHEAF_WEB_IMPL_H
#define SHEAF_WEB_IMPL_H

#include <json-c/json.h>
#include <netinet/in.h>
#include <pthread.h>

#include "web/web.h"

#define WEB_POINTS 720 /* of the history */
#define WEB_HOUR_NS (3600 * NSEC_PER_SEC)
#define WEB_POINT_NS (WEB_HOUR_NS / WEB_POINTS)
#define WEB_MINUTES 60
#define WEB_REQUESTS_MAX 256 /* rows of one server */
#define WEB_SHOWN 25 /* of the oldest requests in service, and of the slowest ones */
#define WEB_CLIENTS 256
#define WEB_TOKEN_MIN 16
#define WEB_TOKEN_MAX 128

/* ---------------------------------------------------------------- web_history.c: the last hour */

struct web_rates { /* per second */
	double requests, read, written;
};

/* Sums over the samples of one point. */
struct web_point {
	double seconds; /* covered by samples; 0: none */
	double requests, read, written;
	uint32_t octaves[SHEAF_TIMES][SHEAF_TIME_OCTAVES];
};

struct web_minute { /* of one server */
	float bytes; /* read and written */
	uint16_t seen, up; /* samples; those that found it up */
};

struct web_history {
	uint64_t point, minute; /* numbers of the newest ones, since the clock's zero */
	struct web_point points[WEB_POINTS]; /* number n is at n % WEB_POINTS */
	struct web_minute (*minutes)[WEB_MINUTES]; /* of each server */
};

int web_history_init(struct web_history *h);
void web_history_free(struct web_history *h);
/* Begins the points up to `now` (monotonic); what follows is added to the newest. */
void web_history_advance(struct web_history *h, uint64_t now);
/* The time that p requests of 1 (0.5, 0.99) did not exceed, in ns; 0: there were none. */
double web_quantile(const uint64_t octaves[SHEAF_TIME_OCTAVES], double p);
struct json_object *web_history_json(const struct web_history *h, int n_servers);
/* The last minute: count, mean, p50_ns, p99_ns of each kind. */
struct json_object *web_latency_json(const struct web_history *h);
extern const char *const web_kinds[SHEAF_TIMES];

/* ---------------------------------------- web_seen.c: clients and requests of the last hour */

struct web_row { /* a request that a server works on, or did */
	char server[32];
	struct sheaf_request q;
	uint64_t seen; /* monotonic; 0: the row is free */
};

struct web_client {
	char name[65];
	uint64_t seen; /* when it last had a request; 0: the row is free */
	uint64_t samples; /* how many of them showed a request of it */
	uint64_t slowest_ns;
	uint32_t in_service; /* in the last sample */
};

struct web_seen {
	struct web_row now[WEB_SHOWN]; /* of the last sample, the oldest first */
	uint32_t n_now, in_service, waiting; /* all requests; those that wait for locks */
	struct web_row slowest[WEB_SHOWN]; /* of the hour, without waits for locks */
	struct web_client clients[WEB_CLIENTS];
};

void web_seen_begin(struct web_seen *s, uint64_t now); /* of a sample */
void web_seen_add(struct web_seen *s, const char *server, const struct sheaf_request *q,
		  uint64_t now);
void web_seen_json(const struct web_seen *s, uint64_t now, struct json_object *to);

/* ---------------------------------------------------------------- web_sample.c: the sampler */

struct web_server {
	struct sheaf_server s;
	struct sheaf_server_times times;
	bool asked; /* `s` is an answer, or says why there is none */
	bool has_rates;
	struct web_rates rates;
};

struct web_state {
	struct cli *cli;
	uint64_t interval_ns;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t stop_changed;
	bool stop;
	uint64_t samples, sampled; /* number; time of the last one, monotonic */
	uint64_t took_ns; /* to ask all servers, the last time */
	int n;
	struct web_server *servers; /* SHEAF_MAX_SERVERS */
	struct web_history history;
	struct web_seen seen;
};

/* Starts the thread; w->cli is connected. 0 or -errno. */
int web_sampler_start(struct web_state *w);
/* False: the thread is still busy, and its memory must stay. */
bool web_sampler_stop(struct web_state *w);

/* ---------------------------------------------------------------- web_json.c */

/* The JSON of /api/status and /api/history as text, to be freed; NULL: out of memory. */
char *web_status_text(struct web_state *w);
char *web_history_text(struct web_state *w);

/* ---------------------------------------------------------------- web_guard.c: who may ask */

struct web_guard {
	char token[WEB_TOKEN_MAX + 1]; /* "": none is needed */
	bool is_loopback; /* the page's address; Host must name this host then */
};

/* Reads the token from a file that only its owner can read. 0, or -errno with a message in err. */
int web_token_read(const char *path, char token[WEB_TOKEN_MAX + 1], char *err, size_t err_len);
/* Is it the token? Takes as long whatever the answer; `given` may be NULL. */
bool web_token_is(const struct web_guard *g, const char *given);
/* Does a Host header name this host? Without that, a page of another site whose name resolves to
 * 127.0.0.1 could read this one. `host` may be NULL. */
bool web_host_is_local(const char *host);

/* ---------------------------------------------------------------- web_http.c */

struct web_http;
/* Serves on a socket that listens; takes it. */
int web_http_open(int fd, const struct web_guard *g, struct web_state *w, struct web_http **out);
int web_http_fd(const struct web_http *h);
/* To be called when the descriptor is readable, and after as many ms as the last call returned. */
int web_http_run(struct web_http *h);
void web_http_close(struct web_http *h); /* or NULL */

/* ---------------------------------------------------------------- generated: page.* */

struct web_file {
	const char *path, *type;
	const unsigned char *data;
	size_t len;
};
extern const struct web_file web_files[]; /* a NULL path ends it */

#endif
