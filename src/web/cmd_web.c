/* sheaf web: a page that shows the state of the servers, over HTTP, for looking only.
 *
 * Threads: this one serves HTTP; the sampler's asks the servers. Errors: servers that do not answer
 * are part of the page. */
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "web/web_impl.h"

#define LISTEN_DEFAULT "127.0.0.1:7480"
#define INTERVAL_MIN_S 0.2
#define INTERVAL_MAX_S 60.0
#define BACKLOG 64

enum { OPT_LISTEN, OPT_TOKEN_FILE, OPT_INTERVAL };

/* ---- the address ---- */

static bool is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
	return a->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* Divides "HOST:PORT" or "[HOST]:PORT"; -EINVAL. */
static int divide(const char *text, char host[256], char port[8])
{
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	bool in_brackets = n > 2 && text[0] == '[' && colon[-1] == ']';
	uint64_t number;

	if (n == 0 || n > 255 || cli_number(colon + 1, 0, 65535, &number))
		return -EINVAL;
	if (!in_brackets && memchr(text, ':', n))
		return -EINVAL; /* IPv6 without brackets */
	snprintf(host, 256, "%.*s", (int)(in_brackets ? n - 2 : n), text + in_brackets);
	snprintf(port, 8, "%u", (unsigned)number);
	return 0;
}

static int resolve(struct cli *c, const char *text, struct addrinfo **out)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	char host[256], port[8];
	int r;

	if (divide(text, host, port))
		return cli_usage(c, "--listen %s: not an address like %s or [::1]:7480", text,
				 LISTEN_DEFAULT);
	r = getaddrinfo(host, port, &hints, out);
	if (r)
		return cli_error(c, "--listen %s: %s", text, gai_strerror(r));
	return CLI_OK;
}

static int listen_on(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, r;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

/* Prints where the page is: the port is known only now if 0 was asked for. */
static void print_address(int fd, bool needs_token)
{
	struct sockaddr_storage a = { 0 };
	char host[INET6_ADDRSTRLEN + 2] = "", port[8] = "";
	socklen_t len = sizeof(a);
	bool is_six;

	if (getsockname(fd, (struct sockaddr *)&a, &len) == 0)
		getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
			    NI_NUMERICHOST | NI_NUMERICSERV);
	is_six = a.ss_family == AF_INET6;
	printf("http://%s%s%s:%s/%s\n", is_six ? "[" : "", host, is_six ? "]" : "", port,
	       needs_token ? "?token=TOKEN (from the token file, once)" : "");
	fflush(stdout);
}

/* The socket, and whether the address is this host's alone. CLI_OK, or a status after a message. */
static int open_socket(struct cli *c, struct web_guard *g, int *fd)
{
	const char *text = c->opt[OPT_LISTEN] ? c->opt[OPT_LISTEN] : LISTEN_DEFAULT;
	struct addrinfo *a = NULL;
	int status = resolve(c, text, &a);

	if (status)
		return status;
	g->is_loopback = is_loopback(a->ai_addr);
	if (!g->is_loopback && !g->token[0]) {
		status = cli_usage(c,
				   "--listen %s: other hosts could read the page; give a "
				   "--token-file, or listen on 127.0.0.1",
				   text);
	} else {
		*fd = listen_on(a);
		if (*fd == -EADDRINUSE)
			status = cli_error(c,
					   "--listen %s: the port is in use; give another one, "
					   "or 0 for any free port",
					   text);
		else if (*fd < 0)
			status = cli_fail_host(c, text, *fd);
	}
	freeaddrinfo(a);
	return status;
}

/* ---- the command ---- */

static int take_options(struct cli *c, struct web_guard *g, uint64_t *interval)
{
	const char *text = c->opt[OPT_INTERVAL];
	char err[CLI_PATH_MAX * 2 + 256], *end;
	double s = 1;

	if (text) {
		s = strtod(text, &end);
		if (*end || !(s >= INTERVAL_MIN_S && s <= INTERVAL_MAX_S))
			return cli_usage(c, "--interval %s: not a number of seconds from %g to %g",
					 text, INTERVAL_MIN_S, INTERVAL_MAX_S);
	}
	*interval = (uint64_t)(s * (double)NSEC_PER_SEC);
	if (c->opt[OPT_TOKEN_FILE] &&
	    web_token_read(c->opt[OPT_TOKEN_FILE], g->token, err, sizeof(err)))
		return cli_error(c, "%s", err);
	return CLI_OK;
}

/* Serves until a signal. SIGINT and SIGTERM are how it is meant to end. */
static int serve(struct web_http *h)
{
	struct pollfd p = { .fd = web_http_fd(h), .events = POLLIN };
	int ms = 0;

	while (!cli_signal) {
		poll(&p, 1, ms);
		ms = web_http_run(h);
	}
	if (cli_signal != SIGINT && cli_signal != SIGTERM)
		return CLI_FAILED;
	cli_signal = 0;
	return CLI_OK;
}

static int run_web(struct cli *c)
{
	struct web_state *w = calloc(1, sizeof(*w)); /* the sampler may outlive this call */
	struct web_guard g = { 0 };
	struct web_http *h = NULL;
	int fd = -1, r, status;

	if (!w)
		return cli_error(c, "out of memory");
	status = take_options(c, &g, &w->interval_ns);
	status = status ? status : open_socket(c, &g, &fd);
	status = status ? status : cli_connect(c);
	if (status)
		goto fail;
	signal(SIGPIPE, SIG_IGN);
	cli_catch_signals();
	cli_waits_end(c->waits); /* the page itself shows which server does not answer */
	c->waits = NULL;
	json_c_set_serialization_double_format("%.12g", JSON_C_OPTION_GLOBAL);
	w->cli = c;
	r = web_http_open(fd, &g, w, &h);
	r = r ? r : web_sampler_start(w);
	if (r) {
		status = cli_fail_host(c, "cannot serve", r);
		goto fail;
	}
	print_address(fd, g.token[0]);
	status = serve(h);
	web_http_close(h);
	if (!web_sampler_stop(w))
		_exit(status); /* its thread waits for a server, and uses the connection */
	free(w);
	return status;
fail:
	web_http_close(h);
	free(w);
	return status;
}

const struct cli_command cmd_web = {
	.name = "web",
	.usage = "[--listen ADDRESS] [--token-file FILE] [--interval SECONDS]",
	.summary = "serve a page with the state of the servers",
	.run = run_web,
	.options = { { 0, "listen", "ADDRESS", "HOST:PORT; by default " LISTEN_DEFAULT },
		     { 0, "token-file", "FILE",
		       "whoever asks must know the token in it; needed beyond this host" },
		     { 0, "interval", "SECONDS",
		       "between two looks at the servers: 0.2 to 60, by default 1" } },
	.more = "Prints the address of the page, and serves it until Ctrl-C. The page changes nothing.\n"
		"/api/status and /api/history have its numbers as JSON.\n",
	.examples = "  sheaf web\n"
		    "  (umask 077; openssl rand -hex 16 >token)\n"
		    "  sheaf web --listen 0.0.0.0:7480 --token-file token\n",
};
