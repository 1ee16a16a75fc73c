/* Collective create and resize in sheaf bench meta (after table 3 of the Quadrics paper,
 * see docs/performance.md): 1 to 6 clients want the same file to be created, or to be resized.
 *
 * "one asks": the first client asks the servers and tells the others the result, as MPI-IO does;
 * after a create the others open the file, since every client needs a capability of its own.
 * "each asks": all clients ask at the same time. The clients tell each other through Unix sockets
 * and meet before each operation, which is not measured. The figure is the mean time of the
 * clients, from the meeting until the client has the file open or knows that it has its new size.
 *
 * Errors: a client that hears nothing from the others for WAIT_S fails. */
#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define OPS 21 /* of one measurement; the first is not counted */
#define MOST 6 /* clients */
#define COUNTED 4 /* repetitions of a request count; the minimum is used */
#define WAIT_S 10

/* ---- messages among the clients; job.count is the number of clients ---- */

static int mailbox = -1; /* of this client */

/* The name begins with a 0 byte: it vanishes with the socket. */
static socklen_t address_of(const struct bench_worker *w, int index, struct sockaddr_un *a)
{
	int n;

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "%.80s/%d", w->job->path, index);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int open_mailbox(struct bench_worker *w)
{
	const struct timeval limit = { .tv_sec = WAIT_S };
	struct sockaddr_un a;
	socklen_t len = address_of(w, w->index, &a);

	mailbox = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (mailbox < 0 || setsockopt(mailbox, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) ||
	    bind(mailbox, (struct sockaddr *)&a, len))
		return bench_why(w, "socket", -errno);
	return 0;
}

static int tell(struct bench_worker *w, int index, int result)
{
	struct sockaddr_un a;
	socklen_t len = address_of(w, index, &a);
	ssize_t n = sendto(mailbox, &result, sizeof(result), 0, (struct sockaddr *)&a, len);

	return bench_why(w, "tell another client", n < 0 ? -errno : 0);
}

static int tell_all(struct bench_worker *w, int result)
{
	int r = 0;

	for (int i = 1; !r && i < (int)w->job->count; i++)
		r = tell(w, i, result);
	return r;
}

/* The result that another client told, or why there is none. */
static int hear(struct bench_worker *w)
{
	int result;

	if (recv(mailbox, &result, sizeof(result), 0) != sizeof(result))
		result = -ETIMEDOUT;
	return bench_why(w, "wait for another client", result);
}

static int meet(struct bench_worker *w)
{
	int r = 0;

	if (w->index) {
		r = tell(w, 0, 0);
		return r ? r : hear(w);
	}
	for (uint32_t i = 1; !r && i < w->job->count; i++)
		r = hear(w);
	return r ? r : tell_all(w, 0);
}

/* ---- the operations; the sum of their times is in more[0] ---- */

static int open_made(struct bench_worker *w, int flags)
{
	int r = sheaf_open(w->fs, bench_path(w, "together-%llu", (unsigned long long)w->i),
			   O_RDWR | flags, 0600, NULL, &w->open[w->n_open]);

	w->n_open += !r;
	return bench_why(w, "create together", r);
}

static int create(struct bench_worker *w)
{
	return open_made(w, O_CREAT);
}

static int open_too(struct bench_worker *w)
{
	return open_made(w, 0);
}

static int resize(struct bench_worker *w)
{
	return bench_why(w, "resize together",
			 sheaf_ftruncate(w->f, (off_t)(w->i % 2 ? MIB : 2 * MIB)));
}

static void add_time(struct bench_worker *w, uint64_t start)
{
	if (w->i)
		w->more[0] += (double)(time_now() - start);
}

static int each_asks(struct bench_worker *w, bench_fn *ask)
{
	int r = meet(w);
	uint64_t start = time_now();

	if (!r)
		r = ask(w);
	add_time(w, start);
	return r;
}

/* `learn`: what the others do when they know that the first has succeeded; may be NULL. */
static int one_asks(struct bench_worker *w, bench_fn *ask, bench_fn *learn)
{
	int r = meet(w), told;
	uint64_t start = time_now();

	if (!r && w->index) {
		r = hear(w);
		if (!r && learn)
			r = learn(w);
	} else if (!r) {
		r = ask(w);
		told = tell_all(w, r);
		r = r ? r : told;
	}
	add_time(w, start);
	return r;
}

static int create_by_one(struct bench_worker *w)
{
	return one_asks(w, create, open_too);
}

static int create_by_each(struct bench_worker *w)
{
	return each_asks(w, create);
}

static int resize_by_one(struct bench_worker *w)
{
	return one_asks(w, resize, NULL);
}

static int resize_by_each(struct bench_worker *w)
{
	return each_asks(w, resize);
}

/* ---- before and after a measurement ---- */

static int begin(struct bench_worker *w)
{
	int r = sheaf_open(w->fs, bench_path(w, "together"), O_RDWR | O_CREAT, 0600, NULL, &w->f);

	w->more[0] = 0;
	return r ? bench_why(w, "create", r) : open_mailbox(w);
}

static int finish(struct bench_worker *w)
{
	int r = sheaf_close(w->f), e;

	w->f = NULL;
	while (w->n_open) {
		e = sheaf_close(w->open[--w->n_open]);
		r = r ? r : e;
	}
	close(mailbox);
	mailbox = -1;
	return bench_why(w, "close", r);
}

static int drop(struct bench_worker *w)
{
	int r = sheaf_unlink(w->fs, bench_path(w, "together"));

	for (int i = 0; !r && i < OPS; i++) {
		r = sheaf_unlink(w->fs, bench_path(w, "together-%d", i));
		r = r == -ENOENT ? 0 : r;
	}
	return bench_why(w, "unlink", r);
}

/* ---- the command ---- */

/* Counts the requests of one operation, or measures many. */
static int run_once(struct bench *b, struct bench_case *c, double *value)
{
	struct bench_result r[BENCH_MAX_CLIENTS];
	double most;
	int e = bench_once(b, c->workers, begin, 0, 0);

	if (!e && c->job.max_ops == 1)
		e = bench_count_requests(b, &c->job, c->workers, &most, value);
	else if (!e)
		e = bench_clients_run(b, &c->job, c->workers, r);
	if (!e)
		e = bench_once(b, c->workers, finish, 0, 0);
	if (!e)
		e = bench_once(b, 1, drop, 0, 0);
	if (e || c->job.max_ops == 1)
		return e;
	*value = 0;
	for (int i = 0; i < c->workers; i++)
		*value += r[i].more[0] / (OPS - 1) / 1e3 / c->workers;
	return 0;
}

static int count(struct bench *b, struct bench_case *c, double *value)
{
	double n;
	int r = 0;

	*value = 0;
	for (int i = 0; !r && i < COUNTED; i++) {
		r = run_once(b, c, &n);
		*value = i && *value < n ? *value : n;
	}
	return r;
}

static const struct {
	const char *what, *counted;
	bench_fn *once;
	const char *name, *paper; /* growth from 1 to 6 clients, and what the paper has */
	const char *ping_name, *ping_paper; /* ping-pongs of a single client */
} ways[] = {
	{ "create together, one asks", "requests of create together, one asks", create_by_one,
	  "together_create", "1.05", "together_create_ping", "588" },
	{ "create together, each asks", "requests of create together, each asks", create_by_each,
	  "together_create_each", NULL, NULL, NULL },
	{ "resize together, one asks", "requests of resize together, one asks", resize_by_one,
	  "together_resize", "1.76", "together_resize_ping", "4.0" },
	{ "resize together, each asks", "requests of resize together, each asks", resize_by_each,
	  "together_resize_each", NULL, NULL, NULL },
};

static int most_of(const struct bench *b)
{
	return MIN(b->most_clients, MOST);
}

void bench_collective_add(struct bench *b)
{
	bench_add_ping(b, 1);
	for (int n = 1; n <= most_of(b); n++)
		for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
			struct bench_case c = { .job = { .once = ways[i].once,
							 .max_ops = OPS,
							 .count = (uint32_t)n },
						.workers = n,
						.figure = BENCH_LATENCY,
						.custom = run_once,
						.wait_idle = true };

			bench_case_add(b, c, "%s", ways[i].what);
			if (n < most_of(b))
				continue;
			c.job.max_ops = 1;
			c.custom = count;
			c.unit = "requests";
			bench_case_add(b, c, "%s", ways[i].counted);
		}
}

static void plot(struct bench *b)
{
	struct bench_plot *p =
		bench_plot_add(b, "meta-together", "One file created or resized by all clients");

	p->line = true;
	p->x_label = "clients";
	for (size_t s = 0; s < ARRAY_LEN(ways); s++)
		bench_plot_series(p, "%s", ways[s].what);
	for (int n = 1; n <= most_of(b); n++) {
		int g = bench_plot_group(p, "%d", n);

		for (size_t s = 0; s < ARRAY_LEN(ways); s++)
			p->cell[g][s] = bench_find(b, ways[s].what, (uint32_t)n, 0, 0);
	}
}

/* The paper's figures: PVFS2 over TCP; a ping-pong there takes 2 x 23.92 us (table 2). */
void bench_collective_judge(struct bench *b)
{
	const struct bench_row *ping = bench_find(b, BENCH_PINGPONG, 1, BENCH_PING, 0), *r;
	uint32_t most = (uint32_t)most_of(b);

	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		const struct bench_row *one = bench_find(b, ways[i].what, 1, 0, 0);

		if (most > 1) {
			r = bench_ratio(b, ways[i].name, bench_find(b, ways[i].what, most, 0, 0),
					one);
			bench_paper(b, r, most == MOST ? ways[i].paper : NULL);
		}
		if (ways[i].ping_name)
			bench_paper(b, bench_ratio(b, ways[i].ping_name, one, ping),
				    ways[i].ping_paper);
	}
	plot(b);
}
