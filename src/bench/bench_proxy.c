/* A TCP proxy between the clients and the temporary servers that delays what passes, or
 * limits its rate. It stands in for a long link where the kernel has no netem, or for slow disks.
 *
 * A flow is one direction of a connection. Its bytes are spliced into a pipe as soon as they come,
 * with the time at which they are due, and out of it when they are due. So the delay does not limit
 * the rate, and no byte is copied. The pipe bounds the memory of a flow; a full one stops the
 * sender, as TCP's window does.
 *
 * Process: one, single-threaded, forked before the clients; it ends with the command.
 * Edge-triggered epoll with a timeout in ns. A failed connection is closed at both ends. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_impl.h"

/* A pipe holds references to buffers of sockets, up to 32 KiB for each page of its own size: the
 * largest 128 MiB, or 5 ms of 25 GB/s; without privileges 8 MiB. */
#define PIPE_MOST (16 * MIB)
#define PIPE_LEAST MIB
#define CHUNK MIB
#define MARKS 8192
#define MAX_PAIRS 1024
#define MAX_ROUTES (CONF_MAX_TARGETS + 1)
#define LISTENER (UINT64_C(1) << 32) /* in the data of an epoll event */

struct proxy_settings { /* shared with the proxy */
	_Atomic uint64_t delay_ns; /* of one direction */
	_Atomic uint64_t rate; /* bytes per second to all servers together; 0: no limit */
	struct sockaddr_in raw; /* far end of the raw connection; set before it is made */
	struct sockaddr_in raw_at; /* its address at the proxy */
};

struct mark {
	uint64_t due, end; /* bytes before position `end` of the flow are due at that time */
};

struct flow {
	int from, to, pipe[2];
	uint64_t out, due, in; /* positions: sent; may be sent; received. The rest is in the pipe */
	struct mark *marks; /* a ring: those of the bytes from `due` to `in` */
	uint64_t first, last;
	bool readable, writable; /* since the last EAGAIN */
	bool ended; /* the sender has closed its end */
	bool broken; /* the receiver has closed its end */
	bool done; /* nothing is left to do */
};

struct pair {
	bool used;
	struct flow flow[2];
};

struct proxy {
	struct proxy_settings *s;
	int epoll, n_routes;
	int listener[MAX_ROUTES];
	struct sockaddr_in to[MAX_ROUTES]; /* the last route is that of the raw connection */
	struct pair pairs[MAX_PAIRS];
	int n_pairs; /* used ones are before this index */
	uint64_t busy; /* with a rate: when all bytes to the servers will have passed */
};

/* ---- flows ---- */

/* When `n` bytes that have come are due. */
static uint64_t due_at(struct proxy *x, bool to_server, uint64_t n)
{
	uint64_t rate = to_server ? atomic_load(&x->s->rate) : 0, at = time_now();

	if (rate)
		at = x->busy = MAX(x->busy, at) + n * NSEC_PER_SEC / rate;
	return at + atomic_load(&x->s->delay_ns);
}

/* Receives what has come. True: there may be more. */
static bool receive(struct proxy *x, struct flow *f, bool to_server)
{
	ssize_t n;

	if (!f->readable || f->ended || f->last - f->first == MARKS)
		return false;
	n = splice(f->from, NULL, f->pipe[1], NULL, CHUNK, SPLICE_F_NONBLOCK);
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN) { /* or the pipe is full */
		f->readable = f->in != f->out;
		return false;
	}
	if (n <= 0) {
		f->ended = true;
		return false;
	}
	f->in += (uint64_t)n;
	f->marks[f->last++ % MARKS] = (struct mark){ due_at(x, to_server, (uint64_t)n), f->in };
	return true;
}

/* Sends what is due. True: there may be more. */
static bool transmit(struct flow *f)
{
	uint64_t now = f->first == f->last ? 0 : time_now();
	ssize_t n;

	while (f->first < f->last && f->marks[f->first % MARKS].due <= now)
		f->due = f->marks[f->first++ % MARKS].end;
	if (f->due == f->out || !f->writable)
		return false;
	n = splice(f->pipe[0], NULL, f->to, NULL, f->due - f->out, SPLICE_F_NONBLOCK);
	if (n >= 0)
		f->out += (uint64_t)n;
	else if (errno == EAGAIN)
		f->writable = false;
	else if (errno != EINTR)
		f->ended = f->broken = true;
	return f->writable && !f->broken;
}

/* Returns when the flow has to run again: 0 at once, UINT64_MAX after an event. */
static uint64_t run_flow(struct proxy *x, struct flow *f, bool to_server)
{
	bool more = receive(x, f, to_server);

	more |= transmit(f);
	if (f->ended && (f->out == f->in || f->broken) && !f->done) {
		shutdown(f->to, SHUT_WR);
		f->done = true;
	}
	if (f->done)
		return UINT64_MAX;
	if (more)
		return 0;
	return f->first < f->last ? f->marks[f->first % MARKS].due : UINT64_MAX;
}

/* ---- connections ---- */

static void close_pair(struct pair *p)
{
	for (int k = 0; k < 2; k++) {
		struct flow *f = &p->flow[k];

		for (int i = 0; i < 2; i++)
			if (f->pipe[i] > 0)
				close(f->pipe[i]);
		free(f->marks);
		close(f->from);
	}
	*p = (struct pair){ 0 };
}

static int dial(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool open_pipe(int ends[2])
{
	int size = PIPE_MOST;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return false;
	while (fcntl(ends[0], F_SETPIPE_SZ, size) < 0 && size > (int)PIPE_LEAST)
		size /= 4;
	return true;
}

static bool open_flow(struct proxy *x, struct flow *f, int from, int to, uint64_t id)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				 .data.u64 = id };
	int one = 1;

	*f = (struct flow){ .from = from, .to = to, .readable = true, .writable = true };
	f->marks = calloc(MARKS, sizeof(*f->marks));
	setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return f->marks && open_pipe(f->pipe) && fcntl(from, F_SETFL, O_NONBLOCK) == 0 &&
	       epoll_ctl(x->epoll, EPOLL_CTL_ADD, from, &e) == 0;
}

static void open_pair(struct proxy *x, int route)
{
	const struct sockaddr_in *to = route == x->n_routes - 1 ? &x->s->raw : &x->to[route];
	int near = accept4(x->listener[route], NULL, NULL, SOCK_CLOEXEC), far, i = 0;
	struct pair *p;
	bool ok;

	while (i < MAX_PAIRS && x->pairs[i].used)
		i++;
	far = near >= 0 && i < MAX_PAIRS ? dial(to) : -1;
	if (far < 0) {
		if (near >= 0)
			close(near);
		return;
	}
	p = &x->pairs[i];
	p->used = true;
	x->n_pairs = MAX(x->n_pairs, i + 1);
	ok = open_flow(x, &p->flow[0], near, far, 2 * (uint64_t)i);
	ok &= open_flow(x, &p->flow[1], far, near, 2 * (uint64_t)i + 1);
	if (!ok)
		close_pair(p);
}

/* An event of the socket that flow k of a pair receives from, and the other one sends to. */
static void note_event(struct proxy *x, const struct epoll_event *e)
{
	struct pair *p = &x->pairs[e->data.u64 / 2];
	int k = (int)(e->data.u64 % 2);

	if (e->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		p->flow[k].readable = true;
	if (e->events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		p->flow[!k].writable = true;
}

/* ---- the process ---- */

/* Runs all flows once; returns when the next one has to run. */
static uint64_t run_flows(struct proxy *x)
{
	uint64_t next = UINT64_MAX;

	for (int i = 0; i < x->n_pairs; i++) {
		struct pair *p = &x->pairs[i];

		if (!p->used)
			continue;
		for (int k = 0; k < 2; k++) {
			uint64_t at = run_flow(x, &p->flow[k], k == 0);

			next = MIN(next, at);
		}
		if (p->flow[0].done && p->flow[1].done)
			close_pair(p);
	}
	return next;
}

static void run_proxy(struct proxy *x)
{
	struct epoll_event e[64];

	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_TIMERSLACK, 1); /* the default is 50 us */
	for (;;) {
		uint64_t next = run_flows(x), now = time_now();
		uint64_t ns = next > now ? next - now : 0;
		const struct timespec t = { (time_t)(ns / NSEC_PER_SEC),
					    (long)(ns % NSEC_PER_SEC) };
		int n = epoll_pwait2(x->epoll, e, ARRAY_LEN(e), next == UINT64_MAX ? NULL : &t,
				     NULL);

		for (int i = 0; i < n; i++)
			if (e[i].data.u64 & LISTENER)
				open_pair(x, (int)(e[i].data.u64 ^ LISTENER));
			else
				note_event(x, &e[i]);
	}
}

/* ---- starting ---- */

/* Listens on a free port of the loopback; a descriptor, or -errno. */
static int listen_any(struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	*at = (struct sockaddr_in){ .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)at, len) || listen(fd, 128) ||
	    getsockname(fd, (struct sockaddr *)at, &len)) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

/* Adds a route, and sets its address at the proxy. 0 or -errno. */
static int add_route(struct proxy *x, struct sockaddr_in *at)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = LISTENER | (uint64_t)x->n_routes };
	int fd = listen_any(at);

	if (fd < 0)
		return fd;
	x->listener[x->n_routes++] = fd;
	return epoll_ctl(x->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

/* Replaces the next server's address by that of the proxy; `arg`: the next address. */
static void put_line(FILE *out, const char *line, void *arg)
{
	struct sockaddr_in **at = arg;

	if (strncmp(line, "address = ", 10) == 0)
		fprintf(out, "address = 127.0.0.1:%d\n", ntohs((*at)++->sin_port));
	else
		fputs(line, out);
}

/* Adds a route to each server, which all have ports of the loopback, and the raw one. */
static int add_routes(struct bench *b, struct proxy *x)
{
	struct bench_place *p = &b->place;
	struct sockaddr_in at[MAX_ROUTES], *next = at;
	char path[CLI_PATH_MAX];
	int r = 0;

	for (int i = 0; !r && i < b->servers; i++) {
		const char *port = strrchr(p->conf->targets[i].address, ':');

		r = add_route(x, &at[i]);
		x->to[i] = at[i];
		x->to[i].sin_port = htons((uint16_t)atoi(port ? port + 1 : ""));
	}
	if (!r)
		r = add_route(x, &x->s->raw_at);
	snprintf(path, sizeof(path), "%s/proxy.conf", p->dir);
	if (!r)
		r = bench_conf_edit(p->conf_path, path, put_line, &next);
	if (!r)
		memcpy(p->client_conf, path, sizeof(path));
	return r;
}

/* Closes what only the forked process needs. */
static void close_routes(struct proxy *x)
{
	for (int i = 0; i < x->n_routes; i++)
		close(x->listener[i]);
	if (x->epoll >= 0)
		close(x->epoll);
	free(x);
}

int bench_proxy_open(struct bench *b)
{
	struct proxy *x = calloc(1, sizeof(*x));
	void *shared = mmap(NULL, sizeof(*x->s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			    -1, 0);
	int r = x && shared != MAP_FAILED ? 0 : -ENOMEM;

	if (!r) {
		b->proxy.settings = x->s = shared;
		x->epoll = epoll_create1(EPOLL_CLOEXEC);
		r = x->epoll < 0 ? -errno : add_routes(b, x);
	}
	if (!r) {
		b->proxy.pid = fork();
		r = b->proxy.pid < 0 ? -errno : 0;
	}
	if (!r && b->proxy.pid == 0) {
		bench_clients_forked(b);
		run_proxy(x);
	}
	if (x)
		close_routes(x);
	return r ? cli_fail_host(b->c, "cannot start a proxy", r), r : 0;
}

void bench_proxy_close(struct bench *b)
{
	if (b->proxy.pid > 0) {
		kill(b->proxy.pid, SIGKILL);
		waitpid(b->proxy.pid, NULL, 0);
	}
	if (b->proxy.settings)
		munmap(b->proxy.settings, sizeof(*b->proxy.settings));
	b->proxy = (struct bench_proxy){ 0 };
}

void bench_proxy_delay(struct bench *b, uint64_t ns)
{
	if (b->proxy.settings)
		atomic_store(&b->proxy.settings->delay_ns, ns / 2);
}

void bench_proxy_rate(struct bench *b, uint64_t bytes)
{
	if (b->proxy.settings)
		atomic_store(&b->proxy.settings->rate, bytes);
}

void bench_proxy_raw(struct bench *b, struct sockaddr_in *far)
{
	if (!b->proxy.settings)
		return;
	b->proxy.settings->raw = *far;
	*far = b->proxy.settings->raw_at;
}
