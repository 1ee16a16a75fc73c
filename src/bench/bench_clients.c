/* The processes of `sheaf bench`: waiting clients, and the far ends of the raw baselines.
 *
 * One job: the command sends it to n clients; each prepares and reports that it is ready. When
 * all are ready, the command tells them to start; they run once() for the given time or count,
 * and send their results. So all n run at the same time, and preparation is not measured.
 *
 * Processes: forked before anything is connected (libsheaf has threads). They ignore the terminal's
 * signals, exit when the command closes its end of their socket, and are killed when it dies.
 * Errors: a client sends what failed; a client that died is an error as well. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define END_NS (5 * NSEC_PER_SEC) /* clients that still run after this time are killed */
#define MAX_PIECES 1024
#define MAX_TIMES 1024 /* latencies kept, of the last operations */

int bench_why(struct bench_worker *w, const char *what, ssize_t r)
{
	if (r >= 0)
		return 0;
	snprintf(w->why, sizeof(w->why), "%s", what);
	return (int)r;
}

int bench_moved(struct bench_worker *w, const char *what, ssize_t r, uint64_t want)
{
	return bench_why(w, what, r >= 0 && (uint64_t)r != want ? -EIO : r);
}

const char *bench_path(struct bench_worker *w, const char *fmt, ...)
{
	int n = snprintf(w->path, sizeof(w->path), "%s/", w->job->path);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->path + n, sizeof(w->path) - (size_t)n, fmt, ap);
	va_end(ap);
	return w->path;
}

const char *bench_made_path(struct bench_worker *w, uint64_t i)
{
	return bench_path(w, w->job->count ? "all/c%d-%llu" : "c%d/f%llu", w->index,
			  (unsigned long long)i);
}

/* ---- inside a client ---- */

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint64_t bench_median(uint64_t *times, size_t n)
{
	qsort(times, n, sizeof(*times), by_time);
	return (times[(n - 1) / 2] + times[n / 2]) / 2;
}

static int run_timed(struct bench_worker *w, struct bench_result *r)
{
	const struct bench_job *j = w->job;
	uint64_t most = j->all_made ? w->made : j->max_ops, start = time_now(), now = start;
	uint64_t calls = w->fs ? sheaf_calls(w->fs) : 0;
	static uint64_t took[MAX_TIMES];

	if (!j->ns && !most)
		return 0;
	memset(&w->times, 0, sizeof(w->times));
	do {
		uint64_t before = now;

		w->i = r->ops;
		r->error = j->once(w);
		if (r->error)
			return r->error;
		now = time_now();
		if (j->tail)
			hist_add(&w->times, now - before);
		took[r->ops % MAX_TIMES] = now - before;
		r->ops++;
	} while ((!j->ns || now - start < j->ns) && (!most || r->ops < most));
	r->ns = now - start;
	if (j->typical)
		r->ns = r->ops * bench_median(took, MIN(r->ops, MAX_TIMES));
	r->ns = MAX(r->ns, 1);
	r->calls = w->fs ? sheaf_calls(w->fs) - calls : 0;
	r->p99_ns = j->tail ? hist_quantile(&w->times, 0.99) : 0;
	memcpy(r->more, w->more, sizeof(r->more));
	return 0;
}

static bool do_job(struct bench_worker *w, const struct bench_job *j)
{
	struct bench_result r = { 0 };
	char go = 0;
	int e;

	w->job = j;
	w->why[0] = 0;
	if (j->prepare)
		r.error = j->prepare(w);
	memcpy(r.why, w->why, sizeof(r.why));
	if (send(w->control, &r, sizeof(r), 0) < 0 || recv(w->control, &go, 1, 0) != 1)
		return false;
	if (!r.error && go)
		run_timed(w, &r);
	if (j->finish && (e = j->finish(w)) && !r.error)
		r.error = e;
	if (j->all_made)
		w->made = 0;
	memcpy(r.why, w->why, sizeof(r.why));
	return send(w->control, &r, sizeof(r), 0) >= 0;
}

static int room(struct bench_worker *w, size_t n)
{
	if (n <= w->room)
		return 0;
	free(w->buf);
	w->buf = malloc(n);
	w->room = w->buf ? n : 0;
	if (!w->buf)
		return -ENOMEM;
	memset(w->buf, 'a' + w->index % 26, n);
	return 0;
}

static int worker_init(struct bench_worker *w, const struct sockaddr_in *far)
{
	w->fd = w->raw = -1;
	w->mem = calloc(MAX_PIECES, sizeof(*w->mem));
	w->ext = calloc(MAX_PIECES, sizeof(*w->ext));
	w->open = calloc(BENCH_MAX_FILES, sizeof(struct sheaf_file *));
	if (!w->mem || !w->ext || !w->open || room(w, BENCH_BLOCK))
		return -ENOMEM;
	if (far->sin_port)
		w->raw = bench_raw_connect(far);
	return far->sin_port && w->raw < 0 ? w->raw : 0;
}

static void worker_main(struct bench_worker *w, const struct sockaddr_in *far)
{
	struct bench_job j;

	if (worker_init(w, far))
		_exit(1);
	while (recv(w->control, &j, sizeof(j), 0) == sizeof(j))
		if (!do_job(w, &j))
			break;
	if (w->fs)
		sheaf_disconnect(w->fs);
	_exit(0);
}

/* ---- jobs of every benchmark ---- */

int bench_do_connect(struct bench_worker *w)
{
	int r = sheaf_connect(w->conf, &w->fs);

	if (r)
		w->fs = NULL;
	return bench_why(w, "connect", r);
}

int bench_do_make(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	struct sheaf_layout l = { .size = sizeof(l), .stripe_unit = BENCH_UNIT, .width = j->width };
	ssize_t r = sheaf_open(w->fs, bench_path(w, "file.%d", w->index),
			       O_RDWR | O_CREAT | O_TRUNC, 0600, &l, &w->f);

	if (r)
		return bench_why(w, "make a file", r);
	for (uint64_t at = 0; at < j->size && r >= 0; at += BENCH_BLOCK)
		r = sheaf_pwrite(w->f, w->buf, MIN(j->size - at, BENCH_BLOCK), (off_t)at);
	return bench_why(w, "fill a file", r);
}

int bench_do_drop(struct bench_worker *w)
{
	int r = w->f ? sheaf_close(w->f) : 0;

	w->f = NULL;
	if (!r)
		r = sheaf_unlink(w->fs, bench_path(w, "file.%d", w->index));
	return bench_why(w, "remove a file", r == -ENOENT ? 0 : r);
}

int bench_do_transfer(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	off_t at = (off_t)((uint64_t)w->index * j->apart + w->i * j->stride % BENCH_FILE);
	ssize_t r = j->out ? sheaf_pwrite(w->f, w->buf, j->size, at) :
			     sheaf_pread(w->f, w->buf, j->size, at);

	return bench_moved(w, j->out ? "write" : "read", r, j->size);
}

int bench_do_room(struct bench_worker *w)
{
	return bench_why(w, "memory", room(w, w->job->size));
}

int bench_lay_out(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	uint64_t first = (uint64_t)w->index * j->apart;
	bool apart = j->stride != j->size;

	if (j->count > MAX_PIECES || 2 * j->count * j->size > w->room)
		return bench_why(w, "memory", -ENOMEM);
	for (uint32_t i = 0; i < j->count; i++) {
		w->mem[i] = (struct iovec){ w->buf + i * 2 * j->size, j->size };
		w->ext[i] = (struct sheaf_extent){ first + i * j->stride, j->size };
	}
	w->n_ext = apart ? j->count : 1;
	if (!apart)
		w->ext[0].length = j->count * j->size;
	return 0;
}

int bench_do_list(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	ssize_t r = j->out ? sheaf_write_list(w->f, w->mem, j->count, w->ext, w->n_ext) :
			     sheaf_read_list(w->f, w->mem, j->count, w->ext, w->n_ext);

	return bench_moved(w, "list", r, j->count * j->size);
}

int bench_do_singles(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	int e = 0;

	for (uint32_t k = 0; !e && k < j->count; k++) {
		off_t at = (off_t)w->ext[0].offset + (off_t)(k * j->stride);
		ssize_t r = j->out ? sheaf_pwrite(w->f, w->mem[k].iov_base, j->size, at) :
				     sheaf_pread(w->f, w->mem[k].iov_base, j->size, at);

		e = bench_moved(w, "single calls", r, j->size);
	}
	return e;
}

/* ---- the command ---- */

void bench_clients_forked(struct bench *b)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	for (int i = 0; i < b->n_processes; i++)
		close(b->controls[i]);
}

static int start_one(struct bench *b, int i, const struct sockaddr_in *far)
{
	struct bench_worker w = { .index = i, .conf = b->place.client_conf };
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		close(ends[0]);
		close(ends[1]);
		return -errno;
	}
	if (pid == 0) {
		bench_clients_forked(b);
		close(ends[0]);
		w.control = ends[1];
		worker_main(&w, far);
	}
	close(ends[1]);
	b->controls[b->n_processes] = ends[0];
	b->pids[b->n_processes++] = pid;
	return 0;
}

/* Starts the far end of client i's raw connection, on the host of a server; sets its address. */
static int start_peer(struct bench *b, int i, struct sockaddr_in *far)
{
	int server = i % MAX(b->servers, 1), r = bench_hosts_enter(b, server);

	far->sin_addr = bench_hosts_address(b, server);
	if (!r)
		b->peers[i] = bench_raw_peer(b, far);
	if (!r && b->peers[i] < 0)
		r = (int)b->peers[i];
	if (!r && i == 0)
		bench_proxy_raw(b, far);
	return bench_hosts_enter(b, -1) < 0 ? -EPERM : r;
}

int bench_clients_start(struct bench *b, int n)
{
	int r = 0;

	fflush(NULL);
	for (int i = 0; !r && i < n; i++) {
		struct sockaddr_in far = { .sin_family = AF_INET };

		if (i < BENCH_PAIRS)
			r = start_peer(b, i, &far);
		if (!r)
			r = start_one(b, i, &far);
	}
	return r ? cli_fail_host(b->c, "cannot start client processes", r) : CLI_OK;
}

void bench_end_process(pid_t *pid, uint64_t end)
{
	const struct timespec pause = { 0, 2000000 };

	if (*pid <= 0)
		return;
	while (waitpid(*pid, NULL, WNOHANG) == 0) {
		if (time_now() < end) {
			nanosleep(&pause, NULL);
			continue;
		}
		kill(*pid, SIGKILL);
		waitpid(*pid, NULL, 0);
		break;
	}
	*pid = 0;
}

void bench_clients_stop(struct bench *b)
{
	uint64_t end = time_now() + END_NS;

	for (int i = 0; i < b->n_processes; i++)
		close(b->controls[i]);
	for (int i = 0; i < b->n_processes; i++)
		bench_end_process(&b->pids[i], end);
	for (int i = 0; i < BENCH_PAIRS; i++)
		bench_end_process(&b->peers[i], end);
	b->n_processes = 0;
}

static int complain(struct bench *b, int i, const struct bench_result *r)
{
	if (r->error != -EINTR || !cli_signal)
		cli_error(b->c, "%s: client %d: %s: %s", b->kind->name, i, r->why,
			  sheaf_strerror(r->error));
	return r->error;
}

/* Receives the next message of client i. */
static int receive_result(struct bench *b, int i, struct bench_result *r)
{
	ssize_t n;

	do
		n = recv(b->controls[i], r, sizeof(*r), 0);
	while (n < 0 && errno == EINTR && !cli_signal);
	if (cli_signal)
		return -EINTR;
	if (n != sizeof(*r)) {
		cli_error(b->c, "a client process ended unexpectedly");
		return -EPIPE;
	}
	return r->error;
}

/* Receives from all n clients, even after errors, so that nothing is left for the next job. */
static int receive_results(struct bench *b, int n, struct bench_result *out, bool said)
{
	int first = 0, r;

	for (int i = 0; i < n; i++) {
		r = receive_result(b, i, &out[i]);
		if (r == -EINTR && cli_signal)
			return r;
		if (r && !first) {
			first = r;
			if (!said && r != -EPIPE)
				complain(b, i, &out[i]);
		}
	}
	return first;
}

int bench_clients_run(struct bench *b, const struct bench_job *j, int n, struct bench_result *out)
{
	int r = 0, ready;
	char go;

	for (int i = 0; i < n; i++)
		if (send(b->controls[i], j, sizeof(*j), 0) < 0)
			r = cli_error(b->c, "a client process ended unexpectedly");
	if (r)
		return -EPIPE;
	ready = receive_results(b, n, out, false);
	if (ready == -EINTR || ready == -EPIPE)
		return ready;
	go = !ready;
	for (int i = 0; i < n; i++)
		send(b->controls[i], &go, 1, 0);
	r = receive_results(b, n, out, ready != 0);
	return ready ? ready : r;
}
