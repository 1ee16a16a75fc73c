/* HTTP by libmicrohttpd: GET and HEAD of a few paths.
 *
 * Threads: the main thread alone; libmicrohttpd has none of its own. Every connection carries one
 * request and lives for CONNECTION_NS at most, so a slow sender or reader holds one of CONNECTIONS
 * places for that long. Buffers: a connection's lines and headers fit into CONNECTION_BYTES, or are
 * refused. Errors: a request that cannot be answered gets its HTTP status, or loses its
 * connection. */
#include <microhttpd.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>

#include "web/web_impl.h"

#define CONNECTIONS 64
#define CONNECTIONS_ONE_ADDRESS 32
#define CONNECTION_BYTES 16384
#define HEADERS_NS (5 * NSEC_PER_SEC) /* until the headers have come */
#define CONNECTION_NS (60 * NSEC_PER_SEC)
#define SWEEP_MS 1000
#define COOKIE "sheaf_web"
#define BEARER "Bearer "

struct connection {
	struct list node;
	int fd;
	uint64_t end; /* when it is closed */
};

struct web_http {
	const struct web_guard *guard;
	struct web_state *state;
	struct MHD_Daemon *daemon;
	int fd;
	struct list connections;
};

/* ---- answers ---- */

static const char *const headers[][2] = {
	{ "Content-Security-Policy",
	  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
	  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" },
	{ "X-Content-Type-Options", "nosniff" },
	{ "X-Frame-Options", "DENY" },
	{ "Referrer-Policy", "no-referrer" }, /* the first address has the token */
	{ "Cross-Origin-Resource-Policy", "same-origin" },
	{ "Cache-Control", "no-store" },
	{ "Connection", "close" },
};

/* Queues r, which may be NULL, and lets go of it. */
static enum MHD_Result send_response(struct MHD_Connection *c, unsigned status, const char *type,
				     struct MHD_Response *r)
{
	enum MHD_Result ok = r ? MHD_add_response_header(r, "Content-Type", type) : MHD_NO;

	for (size_t i = 0; ok == MHD_YES && i < ARRAY_LEN(headers); i++)
		ok = MHD_add_response_header(r, headers[i][0], headers[i][1]);
	if (ok == MHD_YES)
		ok = MHD_queue_response(c, status, r);
	if (r)
		MHD_destroy_response(r);
	return ok;
}

static struct MHD_Response *fixed_text(const void *text, size_t len)
{
	return MHD_create_response_from_buffer(len, (void *)(uintptr_t)text,
					       MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *why)
{
	struct MHD_Response *r = fixed_text(why, strlen(why));

	if (r && status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, "Allow", "GET, HEAD");
	if (r && status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(r, "WWW-Authenticate", "Bearer realm=\"sheaf\"");
	return send_response(c, status, "text/plain; charset=utf-8", r);
}

/* text: to be freed, or NULL. */
static enum MHD_Result send_json(struct MHD_Connection *c, char *text)
{
	if (!text)
		return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
	return send_response(c, MHD_HTTP_OK, "application/json",
			     MHD_create_response_from_buffer(strlen(text), text,
							     MHD_RESPMEM_MUST_FREE));
}

/* The address had the token: from now on a cookie has it. */
static enum MHD_Result send_cookie(struct MHD_Connection *c, const struct web_guard *g)
{
	struct MHD_Response *r = fixed_text("", 0);
	char cookie[WEB_TOKEN_MAX + 96];

	snprintf(cookie, sizeof(cookie), COOKIE "=%s; Path=/; HttpOnly; SameSite=Lax", g->token);
	if (r && (MHD_add_response_header(r, "Set-Cookie", cookie) != MHD_YES ||
		  MHD_add_response_header(r, "Location", "/") != MHD_YES)) {
		MHD_destroy_response(r);
		r = NULL;
	}
	return send_response(c, MHD_HTTP_SEE_OTHER, "text/plain; charset=utf-8", r);
}

static enum MHD_Result send_path(struct web_http *h, struct MHD_Connection *c, const char *path)
{
	if (strcmp(path, "/api/status") == 0)
		return send_json(c, web_status_text(h->state));
	if (strcmp(path, "/api/history") == 0)
		return send_json(c, web_history_text(h->state));
	for (const struct web_file *f = web_files; f->path; f++)
		if (strcmp(path, f->path) == 0)
			return send_response(c, MHD_HTTP_OK, f->type, fixed_text(f->data, f->len));
	return refuse(c, MHD_HTTP_NOT_FOUND,
		      "there is only /, /api/status and /api/history here\n");
}

/* ---- requests ---- */

static const char *value_of(struct MHD_Connection *c, enum MHD_ValueKind kind, const char *name)
{
	return MHD_lookup_connection_value(c, kind, name);
}

static bool has_token(const struct web_guard *g, struct MHD_Connection *c)
{
	const char *given = value_of(c, MHD_HEADER_KIND, "Authorization");
	bool is_bearer = given && strncasecmp(given, BEARER, strlen(BEARER)) == 0;

	return (is_bearer && web_token_is(g, given + strlen(BEARER))) ||
	       web_token_is(g, value_of(c, MHD_COOKIE_KIND, COOKIE));
}

static void headers_came(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct connection *k = i ? i->socket_context : NULL;

	if (k)
		k->end += CONNECTION_NS - HEADERS_NS;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *path,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_size, void **state)
{
	struct web_http *h = arg;
	const struct web_guard *g = h->guard;

	(void)version, (void)upload, (void)upload_size, (void)state;
	headers_came(c);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "this page can only be read\n");
	if (g->is_loopback && !web_host_is_local(value_of(c, MHD_HEADER_KIND, "Host")))
		return refuse(c, MHD_HTTP_FORBIDDEN,
			      "this page is served to its own host; ask for it as localhost\n");
	if (g->token[0] && web_token_is(g, value_of(c, MHD_GET_ARGUMENT_KIND, "token")))
		return send_cookie(c, g);
	if (g->token[0] && !has_token(g, c))
		return refuse(c, MHD_HTTP_UNAUTHORIZED,
			      "this page needs its token: open /?token=TOKEN once, or send "
			      "'Authorization: Bearer TOKEN'\n");
	return send_path(h, c, path);
}

/* ---- connections ---- */

static void began_or_ended(void *arg, struct MHD_Connection *c, void **context,
			   enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct web_http *h = arg;
	struct connection *k = *context;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (k)
			list_del(&k->node);
		free(k);
		*context = NULL;
		return;
	}
	k = i ? calloc(1, sizeof(*k)) : NULL;
	*context = k;
	if (k) {
		*k = (struct connection){ .fd = i->connect_fd, .end = time_now() + HEADERS_NS };
		list_push(&h->connections, &k->node);
	} else if (i) {
		shutdown(i->connect_fd, SHUT_RDWR);
	}
}

static void close_late(struct web_http *h)
{
	uint64_t now = time_now();
	struct connection *k;

	list_for_each(k, &h->connections, node)
		if (now > k->end)
			shutdown(k->fd, SHUT_RDWR); /* libmicrohttpd closes it */
}

int web_http_run(struct web_http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;

	close_late(h);
	MHD_run(h->daemon);
	if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
		return (int)MIN(ms, SWEEP_MS);
	return SWEEP_MS;
}

int web_http_fd(const struct web_http *h)
{
	return h->fd;
}

int web_http_open(int fd, const struct web_guard *g, struct web_state *w, struct web_http **out)
{
	struct web_http *h = calloc(1, sizeof(*h));
	const union MHD_DaemonInfo *i;

	if (!h)
		return -ENOMEM;
	*h = (struct web_http){ .guard = g, .state = w };
	list_init(&h->connections);
	h->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, h,
				     MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
				     (unsigned)CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
				     (unsigned)CONNECTIONS_ONE_ADDRESS,
				     MHD_OPTION_CONNECTION_TIMEOUT,
				     (unsigned)(HEADERS_NS / NSEC_PER_SEC),
				     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
				     MHD_OPTION_NOTIFY_CONNECTION, began_or_ended, h,
				     MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
	i = h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!i) {
		web_http_close(h);
		return -EIO;
	}
	h->fd = i->epoll_fd;
	*out = h;
	return 0;
}

void web_http_close(struct web_http *h)
{
	if (!h)
		return;
	if (h->daemon)
		MHD_stop_daemon(h->daemon);
	free(h);
}
