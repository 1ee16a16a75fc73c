/* Crash rounds: real servers and real clients, killed with SIGKILL at random moments.
 *
 * In a round, four writers (block_model.h) and two workers on names (names_model.h) run, each a
 * process of its own with a log of its own (op_log.h). Servers are killed and started again, some
 * of them a second time while they recover; workers are killed. When all servers are ready again,
 * the surviving workers stop between two operations. Then a fresh client compares everything with
 * the models that the logs were replayed into. Survivors continue in the next round with the files
 * they have open; new workers replace the dead ones. An era is some rounds. At its end the files of
 * dead workers are compared once more, since servers have ended their sessions meanwhile, and
 * removed.
 *
 * The seed chooses which processes are killed when, and which operations workers attempt; the exact
 * moments depend on the machine. A failure prints what was expected and found, and keeps the
 * servers' directories and all logs.
 *
 * Threads: the main thread, and those of the library while it compares. */
#include <sys/socket.h>

#include "block_model.h"
#include "names_model.h"

#define SERVERS 4
#define WRITERS 4
#define WORKERS (WRITERS + 2)
#define MAX_KILLS 3 /* of workers, in a round */
#define ERA 8 /* rounds */
#define EVENTS 32
#define PATIENCE patient(60) /* seconds for a worker to complete its operation */
#define LEASE patient(4)

static_assert(WORKERS + ERA * MAX_KILLS <= DATA_LANES, "a lane for everybody");

struct order {
	enum { GO, STOP, LEAVE } what;
	uint32_t round, era, lane;
};

/* ---- the two kinds of workers ---- */

struct trade {
	const char *name;
	const char *const *verbs;
	uint32_t n_verbs;
	void *(*make)(const char *dir, uint32_t worker, uint64_t seed); /* the caller frees it */
	void (*use)(void *m, struct sheaf *fs);
	void (*round)(void *m, const struct order *o); /* a round begins */
	void (*pick)(void *m, struct logged_op *d);
	int (*act)(void *m, const struct logged_op *d);
	bool (*right)(void *m, const struct logged_op *d, int result);
	void (*begin)(void *m, const struct logged_op *d);
	void (*end)(void *m, const struct logged_op *d, int result);
	bool (*same)(void *m, char *why, size_t n); /* does the file system match the model? */
	int (*leave)(void *m); /* closes everything */
};

static void writer_use(void *arg, struct sheaf *fs)
{
	((struct data *)arg)->fs = fs;
}

static void writer_round(void *arg, const struct order *o)
{
	struct data *m = arg;

	m->round = o->round;
	m->era = o->era;
	m->lane = o->lane;
}

static int writer_leave(void *arg)
{
	int r = 0;

	for (uint32_t i = 0; i <= DATA_SHARED && !r; i++)
		r = data_let_go(arg, i);
	return r;
}

static void *namer_make(const char *dir, uint32_t worker, uint64_t seed)
{
	struct names *m = calloc(1, sizeof(*m));

	(void)worker;
	CHECK(m);
	m->rnd = seed;
	snprintf(m->dir, sizeof(m->dir), "%s", dir);
	return m;
}

static void namer_use(void *m, struct sheaf *fs)
{
	((struct names *)m)->fs = fs;
}

static void namer_round(void *m, const struct order *o)
{
	(void)m, (void)o;
}

static void namer_pick(void *m, struct logged_op *d)
{
	names_pick(m, d);
}

static int namer_act(void *m, const struct logged_op *d)
{
	return names_do(m, d);
}

static bool namer_right(void *m, const struct logged_op *d, int result)
{
	return result == names_foretell(m, d);
}

static void namer_begin(void *m, const struct logged_op *d)
{
	(void)m, (void)d;
}

static void namer_end(void *m, const struct logged_op *d, int result)
{
	if (!result)
		names_apply(m, d);
}

static bool namer_same(void *m, char *why, size_t n)
{
	return names_same(m, why, n);
}

static int namer_leave(void *m)
{
	(void)m;
	return 0;
}

static const struct trade trades[] = {
	{ "writer", data_verbs, DATA_VERBS, data_make, writer_use, writer_round, data_pick, data_do,
	  data_right, data_begin, data_end, data_same, writer_leave },
	{ "namer", names_verbs, NAMES_VERBS, namer_make, namer_use, namer_round, namer_pick,
	  namer_act, namer_right, namer_begin, namer_end, namer_same, namer_leave },
};

/* ---- inside a worker process ---- */

struct hand { /* state of a worker, in its own process */
	const struct trade *trade;
	void *model;
	struct op_log log;
	uint32_t worker;
};

static void one_deed(struct hand *h)
{
	struct logged_op d;
	char text[160];
	int r;

	h->trade->pick(h->model, &d);
	op_log_begin(&h->log, &d);
	h->trade->begin(h->model, &d);
	r = h->trade->act(h->model, &d);
	op_log_end(&h->log, r);
	if (!h->trade->right(h->model, &d, r)) {
		op_text(text, sizeof(text), h->trade->verbs, &d);
		fprintf(stderr, "worker %u: operation %u, '%s', was answered with %d (%s)\n",
			h->worker, h->log.seq, text, r, sheaf_strerror(r));
		exit(1);
	}
	h->trade->end(h->model, &d, r);
}

/* Executes operations until told to stop, reports that, and waits for the next round. */
static void serve_orders(struct hand *h, int fd)
{
	struct order o = { .what = STOP };

	while (o.what != LEAVE) {
		ssize_t n = recv(fd, &o, sizeof(o), o.what == GO ? MSG_DONTWAIT : 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			one_deed(h);
			continue;
		}
		CHECK_EQ(n, (ssize_t)sizeof(o));
		if (o.what == GO)
			h->trade->round(h->model, &o);
		else if (o.what == STOP)
			CHECK_EQ(send(fd, &o, sizeof(o), 0), (ssize_t)sizeof(o));
	}
}

/* Arguments: TRADE CONF DIRECTORY LOG WORKER SEED DESCRIPTOR */
static int worker_main(char **arg)
{
	struct hand h = { .trade = trades, .worker = (uint32_t)atoi(arg[4]) };
	struct sheaf *fs = client_connect(arg[1]);

	while (strcmp(h.trade->name, arg[0]) != 0)
		h.trade++;
	h.log.verbs = h.trade->verbs;
	h.log.fd = open(arg[3], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	CHECK(h.log.fd >= 0);
	h.model = h.trade->make(arg[2], h.worker, strtoull(arg[5], NULL, 10));
	h.trade->use(h.model, fs);
	serve_orders(&h, atoi(arg[6]));
	CHECK_EQ(h.trade->leave(h.model), 0);
	free(h.model);
	sheaf_disconnect(fs);
	close(h.log.fd);
	return 0;
}

/* ---- the run ---- */

struct worker {
	pid_t pid; /* 0: killed, or not yet started */
	int fd;
	uint32_t number; /* unique in this run */
	uint32_t lane;
	char dir[32];
	const struct trade *trade;
	void *model;
	struct op_reader log;
};

static struct {
	struct cluster c;
	int notify[SERVERS]; /* where a starting server reports that it is ready; -1: none */
	struct worker worker[WORKERS], dead[ERA * MAX_KILLS];
	uint32_t n_dead;
	uint64_t seed, rnd;
	uint32_t rounds, round, era;
	uint32_t numbers, lanes; /* assigned to workers so far */
	uint64_t killed_servers, killed_workers, ops, eio;
} run;

static uint32_t chance(uint32_t n)
{
	return (uint32_t)(test_random(&run.rnd) % n);
}

__attribute__((format(printf, 1, 2), noreturn)) static void wrong(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "\nround %u of %u, seed %" PRIu64 ": ", run.round, run.rounds, run.seed);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr,
		"\nlogs of servers and workers: %s/*.log; again: make crash SEED=%" PRIu64
		" ROUNDS=%u\n",
		run.c.dir, run.seed, run.rounds);
	exit(1);
}

/* ---- workers, in the test process ---- */

static void worker_begin(struct worker *w, const struct trade *trade, struct sheaf *fs)
{
	char log[sizeof(w->log.path)], number[16], seed[24], fd[16];
	const char *argv[] = { "/proc/self/exe", "--child", trade->name, run.c.conf, w->dir, log,
			       number,		 seed,	    fd,		 NULL };
	struct timeval patience = { .tv_sec = PATIENCE };
	int pair[2];

	*w = (struct worker){ .trade = trade, .number = ++run.numbers, .lane = run.lanes++ };
	snprintf(w->dir, sizeof(w->dir), "/w%u", w->number);
	CHECK_EQ(sheaf_mkdir(fs, w->dir, 0755), 0);
	w->model = trade->make(w->dir, w->number, 0);
	w->log = (struct op_reader){ .verbs = trade->verbs, .n_verbs = trade->n_verbs };
	snprintf(log, sizeof(log), "%s/worker%u.log", run.c.dir, w->number);
	memcpy(w->log.path, log, sizeof(log));
	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	snprintf(number, sizeof(number), "%u", w->number);
	snprintf(seed, sizeof(seed), "%" PRIu64, run.seed * 1000003 + w->number);
	snprintf(fd, sizeof(fd), "%d", pair[1]);
	w->pid = process_start(argv, pair[1]);
	close(pair[1]);
	w->fd = pair[0];
	setsockopt(w->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

static void worker_order(struct worker *w, int what)
{
	struct order o = { what, run.round, run.era, w->lane };

	if (what == GO)
		w->trade->round(w->model, &o);
	/* if the worker has exited, worker_stopped() notices */
	send(w->fd, &o, sizeof(o), MSG_NOSIGNAL);
}

static void worker_kill(struct worker *w)
{
	int status;

	if (!w->pid)
		return;
	kill(w->pid, SIGKILL);
	status = process_wait(w->pid);
	if (status != 256 + SIGKILL)
		wrong("%s, worker %u, ended with %d before it was killed", w->trade->name,
		      w->number, status);
	w->pid = 0;
	run.killed_workers++;
}

/* Waits until the worker has completed its last operation. */
static void worker_stopped(struct worker *w)
{
	struct order o;
	ssize_t n = recv(w->fd, &o, sizeof(o), 0);

	if (n == (ssize_t)sizeof(o))
		return;
	if (n < 0)
		wrong("%s, worker %u, is still at its operation after %d s", w->trade->name,
		      w->number, PATIENCE);
	n = process_wait(w->pid);
	w->pid = 0;
	wrong("%s, worker %u, ended by itself with %zd", w->trade->name, w->number, n);
}

/* ---- kills ---- */

struct event {
	uint32_t at; /* ms after the start of the round */
	enum { KILL_SERVER, START_SERVER, KILL_WORKER } what;
	int who;
};

struct plan {
	struct event e[EVENTS];
	size_t n;
	uint32_t end;
};

static void plan_add(struct plan *p, uint32_t at, int what, int who)
{
	CHECK(p->n < EVENTS);
	p->e[p->n++] = (struct event){ at, what, who };
	p->end = MAX(p->end, at);
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* Usually kills one server, seldom all; one of three dies again while it starts or recovers. */
static void plan_make(struct plan *p)
{
	static const uint8_t servers[] = { 1, 1, 1, 1, 2, 2, 3, SERVERS };
	uint32_t n = servers[chance(sizeof(servers))], first = chance(SERVERS),
		 workers = chance(MAX_KILLS + 1);

	for (uint32_t i = 0; i < n; i++) {
		int who = (int)((first + i) % SERVERS);
		uint32_t at = 30 + chance(250);

		plan_add(p, at, KILL_SERVER, who);
		plan_add(p, at += 1 + chance(120), START_SERVER, who);
		if (chance(3))
			continue;
		plan_add(p, at += 1 + chance(100), KILL_SERVER, who);
		plan_add(p, at += 1 + chance(60), START_SERVER, who);
	}
	for (uint32_t i = 0; i < workers; i++)
		plan_add(p, 20 + chance(400), KILL_WORKER, (int)chance(WORKERS));
	qsort(p->e, p->n, sizeof(p->e[0]), by_time);
}

static void event_happens(const struct event *e)
{
	switch (e->what) {
	case KILL_SERVER:
		server_kill(&run.c, e->who);
		run.killed_servers++;
		if (run.notify[e->who] >= 0)
			close(run.notify[e->who]);
		run.notify[e->who] = -1;
		break;
	case START_SERVER:
		run.notify[e->who] = server_spawn(&run.c, e->who);
		break;
	case KILL_WORKER:
		worker_kill(&run.worker[e->who]);
		break;
	}
}

static void plan_run(const struct plan *p)
{
	double begin = now_s();

	for (size_t i = 0; i < p->n; i++) {
		double early = begin + p->e[i].at * 1e-3 - now_s();

		if (early > 0)
			pause_ms((int)(early * 1000) + 1);
		event_happens(&p->e[i]);
	}
	for (int i = 0; i < SERVERS; i++) {
		if (run.notify[i] >= 0 && server_ready(&run.c, i, run.notify[i]))
			wrong("server %d does not start again", i);
		run.notify[i] = -1;
	}
	pause_ms(50 + (int)chance(150)); /* survivors continue with the restarted servers */
}

/* ---- comparing ---- */

/* The operation that a killed worker had begun has happened completely or not at all; a truncate
 * that was begun still completes. */
static void worker_compare(struct worker *w, struct sheaf *fs)
{
	char why[512] = "", then[512] = "", op[160] = "";

	op_log_replay(&w->log, w->model, w->trade->begin, w->trade->end);
	w->trade->use(w->model, fs);
	if (w->pid && w->log.pending)
		wrong("worker %u lives and its last operation has no answer", w->number);
	if (w->trade->same(w->model, why, sizeof(why)))
		return;
	if (!w->log.pending)
		wrong("%s, worker %u: %s", w->trade->name, w->number, why);
	w->trade->end(w->model, &w->log.last, 0);
	w->log.pending = false;
	if (WITHIN(PATIENCE_S, w->trade->same(w->model, then, sizeof(then))))
		return;
	op_text(op, sizeof(op), w->trade->verbs, &w->log.last);
	wrong("%s, worker %u, was killed during '%s'\n  without it: %s\n  with it: %s",
	      w->trade->name, w->number, op, why, then);
}

static void tree_remove(struct sheaf *fs, const char *path)
{
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	char name[CLUSTER_PATH + 300];
	int r = sheaf_opendir(fs, path, &d);

	while (!r && sheaf_readdir(d, &e) == 1) {
		snprintf(name, sizeof(name), "%s/%s", path, e.name);
		if (S_ISDIR(e.type))
			tree_remove(fs, name);
		else
			r = sheaf_unlink(fs, name);
	}
	if (!r) {
		sheaf_closedir(d);
		r = sheaf_rmdir(fs, path);
	}
	if (r)
		wrong("%s cannot be removed: %s", path, sheaf_strerror(r));
}

static void worker_forget(struct worker *w, struct sheaf *fs)
{
	if (w->trade == trades)
		run.eio += ((struct data *)w->model)->eio;
	run.ops += w->log.seq;
	tree_remove(fs, w->dir);
	free(w->model);
	w->model = NULL;
	close(w->fd);
	unlink(w->log.path);
}

static void shared_path(char *out, size_t n)
{
	snprintf(out, n, "/shared/e%u", run.era);
}

/* The largest possible size of the shared file, in blocks. */
static uint32_t shared_most(const struct worker *w, uint32_t n_workers)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < n_workers; i++) {
		struct data *m = w[i].model;
		uint32_t n = m && w[i].trade == trades && data_joined(m) ?
				     data_most(&m->file[DATA_SHARED]) :
				     0;

		if (n)
			most = MAX(most, data_place(m, DATA_SHARED, n - 1) + 1);
	}
	return most;
}

/* Compares and removes the files of dead workers and the shared file, which survivors still have
 * open. */
static void era_end(struct sheaf *fs)
{
	uint32_t most = MAX(shared_most(run.worker, WORKERS), shared_most(run.dead, run.n_dead));
	char path[64];
	struct stat st;

	for (uint32_t i = 0; i < run.n_dead; i++)
		worker_compare(&run.dead[i], fs);
	shared_path(path, sizeof(path));
	CHECK_EQ(sheaf_stat(fs, path, &st), 0);
	if (st.st_size > (off_t)most * DATA_BLOCK)
		wrong("%s: %jd bytes, expected at most %u blocks of %d", path, (intmax_t)st.st_size,
		      most, DATA_BLOCK);
	CHECK_EQ(sheaf_unlink(fs, path), 0);
	for (uint32_t i = 0; i < run.n_dead; i++)
		worker_forget(&run.dead[i], fs);
	run.n_dead = 0;
}

/* Is this status request the only one in service? */
static bool quiet(struct sheaf *fs)
{
	for (int i = 0; i < SERVERS; i++) {
		struct sheaf_server s = server_status(fs, i);

		if (s.in_service > 1 || s.pool_free != s.pool_bytes)
			return false;
	}
	return true;
}

static int check_command(void)
{
	char line[4 * CLUSTER_PATH];

	snprintf(line, sizeof(line), "'%s/bin/sheaf' --conf '%s' check > '%s/check.log' 2>&1",
		 getenv("SHEAF_BUILD"), run.c.conf, run.c.dir);
	return system(line);
}

static void round_compare(void)
{
	struct sheaf *fs = client_connect(run.c.conf);

	for (int i = 0; i < WORKERS; i++) {
		struct worker *w = &run.worker[i];

		worker_compare(w, fs);
		if (w->pid)
			continue;
		run.dead[run.n_dead++] = *w;
		w->model = NULL;
	}
	if (run.round % ERA == 0 || run.round == run.rounds)
		era_end(fs);
	if (!WITHIN(PATIENCE_S, quiet(fs)))
		wrong("requests or buffers are still in use after 10 s without work");
	sheaf_disconnect(fs);
	if (check_command())
		wrong("'sheaf check' finds something: %s/check.log", run.c.dir);
}

/* ---- rounds ---- */

static void era_begin(struct sheaf *fs)
{
	struct sheaf_layout striped = { sizeof(striped), 4096, SERVERS };
	struct sheaf_file *f;
	char path[64];

	run.era++;
	run.lanes = 0;
	for (int i = 0; i < WORKERS; i++)
		if (run.worker[i].pid)
			run.worker[i].lane = run.lanes++;
	shared_path(path, sizeof(path));
	CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_EXCL | O_RDWR, 0644, &striped, &f), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void round_begin(void)
{
	struct sheaf *fs = client_connect(run.c.conf);

	if (run.round % ERA == 1)
		era_begin(fs);
	for (int i = 0; i < WORKERS; i++)
		if (!run.worker[i].pid)
			worker_begin(&run.worker[i], &trades[i >= WRITERS], fs);
	sheaf_disconnect(fs);
}

static void all_order(int what)
{
	for (int i = 0; i < WORKERS; i++)
		if (run.worker[i].pid)
			worker_order(&run.worker[i], what);
}

static void one_round(void)
{
	struct plan p = { .n = 0 };

	run.rnd = run.seed * 1000003 + run.round;
	round_begin();
	plan_make(&p);
	all_order(GO);
	plan_run(&p);
	all_order(STOP);
	for (int i = 0; i < WORKERS; i++)
		if (run.worker[i].pid)
			worker_stopped(&run.worker[i]);
	round_compare();
}

static uint32_t objects_left;

static int count_object(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	objects_left += type == FTW_F && st->st_size > 0 && !strstr(path, "/objects/stamp");
	return 0;
}

static bool no_object_left(void)
{
	char path[CLUSTER_PATH];

	objects_left = 0;
	for (int i = 0; i < SERVERS; i++) {
		snprintf(path, sizeof(path), "%s/server%d/objects", run.c.dir, i);
		nftw(path, count_object, 16, FTW_PHYS);
	}
	return objects_left == 0;
}

/* After all workers have left and everything is removed, no data are left on any server. */
static void last_round(void)
{
	struct sheaf *fs;

	all_order(LEAVE);
	for (int i = 0; i < WORKERS; i++) {
		struct worker *w = &run.worker[i];

		if (w->pid && process_wait(w->pid))
			wrong("worker %u cannot close what it has open", w->number);
		w->pid = 0;
	}
	fs = client_connect(run.c.conf);
	for (int i = 0; i < WORKERS; i++)
		if (run.worker[i].model)
			worker_forget(&run.worker[i], fs);
	sheaf_disconnect(fs);
	if (!WITHIN(PATIENCE_S, no_object_left()))
		wrong("%u objects with data are left although every file was removed",
		      objects_left);
	cluster_stop(&run.c);
}

static void progress(const char *end)
{
	printf("%u of %u rounds, seed %" PRIu64 ": %" PRIu64 " servers and %" PRIu64
	       " clients killed%s",
	       run.round, run.rounds, run.seed, run.killed_servers, run.killed_workers, end);
	fflush(stdout);
}

static void crash_rounds(void)
{
	double begin = now_s();
	struct sheaf *fs;

	keep_failed_dirs();
	printf("%u rounds, seed %" PRIu64 "\n", run.rounds, run.seed);
	fflush(stdout);
	cluster_create(&run.c, &(struct cluster_opts){ .servers = SERVERS,
						       .stripe_unit = 16384,
						       .timeout = (uint32_t)patient(30),
						       .lease = (uint32_t)LEASE });
	memset(run.notify, -1, sizeof(run.notify));
	cluster_start(&run.c);
	fs = client_connect(run.c.conf);
	CHECK_EQ(sheaf_mkdir(fs, "/shared", 0777), 0);
	sheaf_disconnect(fs);
	while (run.round < run.rounds) {
		run.round++;
		one_round();
		if (isatty(STDOUT_FILENO))
			progress(" \r");
	}
	last_round();
	progress("\n");
	printf("%.0f s: %" PRIu64 " operations, all as it must be; %" PRIu64
	       " syncs said that data may be lost\n",
	       now_s() - begin, run.ops, run.eio);
}

int main(int argc, char **argv)
{
	if (argc == 9 && strcmp(argv[1], "--child") == 0)
		return worker_main(argv + 2);
	run.rounds = getenv("SHEAF_TEST_LONG") ? 300 : 24;
	CHECK_EQ(getrandom(&run.seed, sizeof(run.seed), 0), (ssize_t)sizeof(run.seed));
	run.seed %= 1000000;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--rounds") == 0)
			run.rounds = (uint32_t)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--seed") == 0)
			run.seed = strtoull(argv[i + 1], NULL, 10);
		else
			argc = 0;
	}
	if (argc % 2 == 0) {
		fprintf(stderr, "usage: sys_crash [--rounds N] [--seed N]\n");
		return 2;
	}
	crash_rounds();
	return 0;
}
