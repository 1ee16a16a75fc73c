/* An endpoint for GET /metrics by libmicrohttpd. The loop drives it (its epoll descriptor is one
 * more source), or the thread that has opened it; so it needs no thread and no lock. The simulation
 * has none. */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/core.h"
#include "net/http.h"

#define MAX_WAIT_MS 60000

struct http {
	struct loop *loop; /* or NULL */
	http_text *text;
	void *arg;
	struct MHD_Daemon *daemon;
	struct source source;
	struct timer timer; /* for connections that time out */
};

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_size, void **state)
{
	struct http *h = arg;
	struct MHD_Response *r;
	char *text = NULL;
	size_t len = 0;
	enum MHD_Result done;
	bool known = strcmp(url, "/metrics") == 0;

	(void)version, (void)upload, (void)upload_size, (void)state;
	if (strcmp(method, "GET") != 0)
		return MHD_NO;
	if (known && h->text(h->arg, &text, &len))
		return MHD_NO;
	if (known)
		r = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
	else
		r = MHD_create_response_from_buffer(22, (void *)"try GET /metrics here\n",
						    MHD_RESPMEM_PERSISTENT);
	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
	done = MHD_queue_response(c, known ? MHD_HTTP_OK : MHD_HTTP_NOT_FOUND, r);
	MHD_destroy_response(r);
	return done;
}

int http_run(struct http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;

	MHD_run(h->daemon);
	return MHD_get_timeout(h->daemon, &ms) == MHD_YES ? (int)MIN(ms, MAX_WAIT_MS) : -1;
}

static void run(struct http *h)
{
	struct loop *l = h->loop;
	int ms = http_run(h);

	if (ms >= 0)
		timer_set(l, &h->timer, l->now + ((uint64_t)ms + 1) * NSEC_PER_MSEC);
	else
		timer_del(l, &h->timer);
}

static void ready(struct source *s, unsigned events)
{
	(void)events;
	run(container_of(s, struct http, source));
}

static void late(struct timer *t)
{
	run(container_of(t, struct http, timer));
}

static struct MHD_Daemon *listen_on(struct http *h, const char *address)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	char host[CONF_ADDR_MAX];
	const char *colon = strrchr(address, ':');

	snprintf(host, sizeof(host), "%.*s", colon ? (int)(colon - address) : 0, address);
	if (!colon || inet_pton(AF_INET, host, &a.sin_addr) != 1)
		return NULL;
	a.sin_port = htons((uint16_t)atoi(colon + 1));
	return MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, h, MHD_OPTION_SOCK_ADDR, &a,
				MHD_OPTION_CONNECTION_LIMIT, 16u, MHD_OPTION_CONNECTION_TIMEOUT,
				10u, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16 * KIB,
				MHD_OPTION_END);
}

int http_open(const char *address, http_text *text, void *arg, struct http **out)
{
	struct http *h = calloc(1, sizeof(*h));
	const union MHD_DaemonInfo *i;

	if (!h)
		return -ENOMEM;
	*h = (struct http){ .text = text, .arg = arg };
	h->daemon = listen_on(h, address);
	i = h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!i) {
		if (h->daemon)
			MHD_stop_daemon(h->daemon);
		free(h);
		return -EADDRINUSE;
	}
	h->source = (struct source){ .fd = i->epoll_fd, .ready = ready };
	h->timer.fire = late;
	*out = h;
	return 0;
}

int http_fd(const struct http *h)
{
	return h->source.fd;
}

int http_start(struct loop *l, const char *address, http_text *text, void *arg, struct http **out)
{
	struct http *h;
	int r = http_open(address, text, arg, &h);

	if (r)
		return r;
	h->loop = l;
	*out = h;
	return l->env->sock->watch(l->env, l, &h->source, EV_IN);
}

void http_stop(struct http *h)
{
	struct env *e = h && h->loop ? h->loop->env : NULL;

	if (!h)
		return;
	if (e) {
		e->sock->watch(e, h->loop, &h->source, 0);
		timer_del(h->loop, &h->timer);
	}
	MHD_stop_daemon(h->daemon);
	free(h);
}
