/* What the files of `sheaf bench` share: cases, rows, bars, plots, the crew of processes, the place.
 *
 * A benchmark (struct bench_kind) adds cases. Every round runs all cases once, in order; each gives its
 * row one value. Afterwards the benchmark derives further rows (ratios within a round) and bars from
 * rows. Nothing is judged that is not in a row.
 *
 * Processes: the command itself only conducts. Clients and the two ends of the raw baselines are
 * processes forked while nothing is connected. A job is sent to a client as it is, function pointers
 * too: both are the same program image. */
#ifndef SHEAF_BENCH_H
#define SHEAF_BENCH_H

#include <json-c/json.h>
#include <sys/uio.h>

#include "cli/cli.h"
#include "sheaf_admin.h"

#define BENCH_MAX_ROUNDS 99
#define BENCH_MAX_CLIENTS 64
#define BENCH_MAX_LIST 8 /* numbers of clients that one run compares */
#define BENCH_PAIRS 4 /* raw ping-pong pairs at once */
#define BENCH_BLOCK (4 * MIB)
#define BENCH_UNIT (256 * KIB) /* stripe unit of the files that are measured */
#define BENCH_PING 64 /* bytes each way of a raw ping-pong */
#define BENCH_MORE 4 /* further figures of a job */
#define BENCH_MAX_FILES 5000 /* that one client makes in one measurement */

struct bench;
struct bench_job;

/* ---------------------------------------------------------------- bench_crew.c: client processes */

struct bench_worker { /* seen from inside its process */
	int index, control;
	int raw; /* to its end of the raw baselines, or -1 */
	const char *conf;
	char scratch[64]; /* directory inside that belongs to this run */
	struct sheaf *fs;
	struct sheaf_file *f;
	char *buf; /* room bytes, BENCH_BLOCK at least */
	size_t room;
	struct iovec *mem; /* of lists */
	struct sheaf_extent *ext;
	size_t n_ext;
	struct sheaf_file **open; /* of meta: made and not closed yet */
	uint64_t made, n_open;
	int fd; /* of the appender */
	struct hist times; /* of the job, when its tail is asked for */
	double more[BENCH_MORE];
	char why[96];
};

struct bench_job {
	/* Each returns 0 or -errno, with w->why telling what failed. Only once() is timed. */
	int (*prepare)(struct bench_worker *w, const struct bench_job *j);
	int (*once)(struct bench_worker *w, const struct bench_job *j, uint64_t i);
	int (*finish)(struct bench_worker *w, const struct bench_job *j);
	uint64_t ns; /* again and again for so long; 0: max_ops times */
	uint64_t max_ops; /* 0: no limit */
	bool all_made; /* max_ops is what this client has made */
	bool tail; /* the 99th percentile of client 0's times is asked for */
	bool typical; /* as if all had taken as long as the median one: short measurements */
	bool out; /* writes, not reads */
	uint64_t size, stride;
	uint32_t count, width, server;
	enum sheaf_mover mover;
	char path[CLI_PATH_MAX / 4];
};

struct bench_result {
	int error; /* 0 or -errno */
	uint64_t ops, ns;
	uint64_t calls; /* of the system, by its connection */
	uint64_t p99_ns; /* when asked for */
	double more[BENCH_MORE]; /* what the last once() left there */
	char why[96];
};

/* Forks n clients and the other ends of the raw baselines. CLI_OK or CLI_FAILED, said. */
int bench_crew_start(struct bench *b, int n);
/* Ends all of them; safe at any time. */
void bench_crew_stop(struct bench *b);
/* The first n clients do it at the same time. 0; or -errno, said (-EINTR after a signal: not said). */
int bench_crew_run(struct bench *b, const struct bench_job *j, int n, struct bench_result *out);
/* Until it has ended by itself; kills it then. *pid is 0 afterwards, and may be before. */
void bench_end_process(pid_t *pid, uint64_t end);
/* Prints nothing; remembers what failed. Returns err. */
int bench_why(struct bench_worker *w, const char *what, int err);

/* Jobs of every benchmark: connect; make and fill a file of `size` bytes over `width` servers; remove
 * it; read or write `size` bytes of it, `stride` further each time (size and stride divide BENCH_FILE so
 * that no access crosses its end). */
int bench_do_connect(struct bench_worker *w, const struct bench_job *j, uint64_t i);
int bench_do_make(struct bench_worker *w, const struct bench_job *j, uint64_t i);
int bench_do_drop(struct bench_worker *w, const struct bench_job *j, uint64_t i);
int bench_do_transfer(struct bench_worker *w, const struct bench_job *j, uint64_t i);
#define BENCH_FILE (64 * MIB)
/* Makes sure that a client has so many bytes of memory. */
int bench_do_room(struct bench_worker *w, const struct bench_job *j, uint64_t i);
/* Lists: `count` pieces of `size` bytes, apart from each other in memory, `stride` bytes from one to the next in the
 * file (as one extent where nothing is between them); laid out beforehand, then one call for all or one for each. */
int bench_lay_out(struct bench_worker *w, const struct bench_job *j);
int bench_do_list(struct bench_worker *w, const struct bench_job *j, uint64_t i);
int bench_do_singles(struct bench_worker *w, const struct bench_job *j, uint64_t i);

/* ---------------------------------------------------------------- bench_raw.c: baselines */

/* A process that answers one TCP connection of this host; *port is where. Its pid, or -errno. */
pid_t bench_raw_peer(int *port, void (*in_child)(void *arg), void *arg);
int bench_raw_connect(int port); /* descriptor or -errno */
int bench_do_ping(struct bench_worker *w, const struct bench_job *j, uint64_t i);

/* ---------------------------------------------------------------- bench.c: cases, rows, bars */

enum bench_figure { BENCH_RATE, BENCH_BANDWIDTH, BENCH_LATENCY, BENCH_P99 };

struct bench_row {
	const char *bench, *unit;
	char what[64];
	uint32_t clients, pieces; /* 0: does not apply, as with bytes */
	uint64_t bytes;
	bool derived; /* from the rows below, round by round */
	char of[96], to[96];
	int runs;
	double values[BENCH_MAX_ROUNDS];
	double median, min, max; /* once all rounds are over */
	uint64_t ops, client_calls, server_calls; /* of all rounds: system calls */
};

struct bench_case {
	struct bench_row *row;
	struct bench_job job;
	int workers;
	enum bench_figure figure;
	uint64_t ns; /* how long it is measured, and once to warm up; 0: as long as most */
	bool settle; /* first wait until the servers have ended what they do in the background */
	/* instead of all this; 0 or -errno, said */
	int (*custom)(struct bench *b, struct bench_case *c, double *value);
};

enum bench_sense { BENCH_AT_LEAST, BENCH_AT_MOST, BENCH_EXACTLY };

struct bench_bar {
	const char *name;
	const struct bench_row *row;
	enum bench_sense sense;
	double need;
};

#define BENCH_PLOT_MAX 8
struct bench_plot {
	const char *bench, *name, *title;
	bool line; /* a line per series, else groups of bars */
	bool log; /* the values' axis in powers of ten */
	int n_groups, n_series;
	char groups[BENCH_PLOT_MAX][32], series[BENCH_PLOT_MAX][32];
	const struct bench_row *cell[BENCH_PLOT_MAX][BENCH_PLOT_MAX]; /* [group][series] */
	const struct bench_row *ref; /* drawn as a line across, or NULL */
	const char *x_label;
};

/* Adds a case with its row. `row` says bench-independent parameters; NULL: out of memory. */
struct bench_row *bench_case_add(struct bench *b, const struct bench_case *c,
				 const struct bench_row *row);
const struct bench_row *bench_find(struct bench *b, const char *what, uint32_t clients,
				   uint64_t bytes, uint32_t pieces);
/* a / c, round by round; NULL when one is NULL. */
const struct bench_row *bench_ratio(struct bench *b, const char *name, const struct bench_row *a,
				    const struct bench_row *c);
/* a times n, in every round. */
const struct bench_row *bench_scaled(struct bench *b, const char *name, const struct bench_row *a,
				     double n, const char *unit);
/* In every round the worst of several rows. */
const struct bench_row *bench_worst(struct bench *b, const char *name,
				    const struct bench_row *const *rows, int n, bool highest);
/* The row whose median is the worst, under another name. */
const struct bench_row *bench_worst_point(struct bench *b, const char *name,
					  const struct bench_row *const *rows, int n, bool highest);
void bench_bar(struct bench *b, const char *name, const struct bench_row *row,
	       enum bench_sense sense, double need); /* nothing when row is NULL */
bool bench_bar_ok(const struct bench_bar *bar);
struct bench_plot *bench_plot_add(struct bench *b, const char *name, const char *title);
/* Has one client do it, and counts the requests of the server that got most of them, and of all. */
int bench_count_requests(struct bench *b, const struct bench_job *j, double *most, double *all);
/* One job by n clients outside of all cases. 0 or -errno, said. */
int bench_once(struct bench *b, int n,
	       int (*once)(struct bench_worker *w, const struct bench_job *j, uint64_t i),
	       uint64_t size, uint32_t width);
void bench_size_text(char *out, size_t n, uint64_t bytes); /* "4 MiB", "1 B" */
void bench_number_text(char *out, size_t n, double v); /* four digits, no exponent */
void bench_row_text(char *out, size_t n, const struct bench_row *r); /* "read, 4 KiB, 4 clients" */
/* The raw baselines as cases. */
void bench_add_stream(struct bench *b);
void bench_add_ping(struct bench *b, int pairs);
void bench_add_appender(struct bench *b);
#define BENCH_STREAM "raw stream"
#define BENCH_PINGPONG "raw ping-pong"
#define BENCH_APPENDER "append 4 KiB + fdatasync"

/* ---------------------------------------------------------------- bench_place.c: where it runs */

struct bench_place {
	bool own; /* temporary servers */
	char dir[CLI_PATH_MAX / 4]; /* of them */
	char storage[CLI_PATH_MAX / 4]; /* a directory of this host beside the storage, or "" */
	char fs_type[32]; /* of it */
	bool in_memory, on_disk; /* neither: not known */
	char conf_path[CLI_PATH_MAX];
	struct conf *conf;
	struct cli_daemon *daemons;
	char scratch[64];
	const char *medium; /* between clients and servers */
};

/* Starts servers of its own in dir, or finds those of the cluster file. CLI_OK, or an exit status, said. */
int bench_place_open(struct bench *b, const char *dir, uint32_t servers);
int bench_place_connect(struct bench *b); /* and makes the scratch directory; when all is forked */
void bench_place_close(struct bench *b); /* removes all of it; safe at any time */
/* Waits until the servers have nothing to do, for 20 seconds at most. */
void bench_settle(struct bench *b);

/* ---------------------------------------------------------------- bench_fuse.c: mounts */

/* Of the last one only large reads are measured. */
enum { BENCH_SHEAF, BENCH_PASSTHROUGH, BENCH_SPLICED, BENCH_SIDES };
#define BENCH_WHOLE_SIDES BENCH_SPLICED

struct bench_side {
	const char *name; /* "mount", "passthrough", "spliced" */
	char point[CLI_PATH_MAX / 4]; /* "" before it was tried */
	char dir[CLI_PATH_MAX / 4]; /* to work in */
	dev_t below;
	pid_t pid;
};

const char *bench_fuse_missing(struct bench *b); /* why this machine cannot, or NULL */
/* Mounts Sheaf and the passthrough, twice, in the place of temporary servers. 0 or -errno, said. */
int bench_fuse_open(struct bench *b);
void bench_fuse_close(struct bench *b); /* safe at any time */
double bench_fuse_memory(const struct bench_side *s); /* anonymous, MiB; 0: it is not known */
/* Has a shell run it, with $1 and $2. 0; -EIO: it failed, said unless `what` is NULL; -EINTR after a signal. */
int bench_shell(struct bench *b, const char *what, const char *script, const char *a1,
		const char *a2);

/* ---------------------------------------------------------------- bench_typed.c: a part of transfer */

#define BENCH_TYPED_PIECES 10000000
#define BENCH_TYPED_PIECE 8 /* bytes, of every 16 */
void bench_typed_add(struct bench *b);
void bench_typed_judge(struct bench *b);

/* ---------------------------------------------------------------- bench_report.c */

/* Writes index.html, one SVG a plot, and bench.json. 0 or -errno. */
int bench_report(struct bench *b, const char *dir, struct json_object *json);
struct json_object *bench_conditions(struct bench *b);

/* ---------------------------------------------------------------- the benchmarks */

struct bench_kind {
	const char *name, *summary;
	int clients[BENCH_MAX_LIST]; /* compared unless --clients says otherwise; 0 ends */
	/* Why it cannot run here, or NULL; may be missing, as the last two may */
	const char *(*missing)(struct bench *b);
	int (*setup)(struct bench *b); /* prepares and adds cases; 0 or -errno, said */
	void (*judge)(struct bench *b); /* derives rows, bars and plots */
	int (*cleanup)(struct bench *b);
	void (*end)(struct bench *b); /* after a failure or a signal too */
};
extern const struct bench_kind bench_net, bench_contig, bench_latency, bench_meta, bench_lists,
	bench_transfer, bench_mount;

struct bench {
	struct cli *c;
	const struct bench_kind *kind; /* the one that runs */
	const char *name; /* as asked for, "all" too */
	const char *dir; /* --dir, or NULL */
	bool long_form; /* --long */
	int rounds, servers;
	int metas; /* --meta: of our own servers, those that keep names */
	int clients[BENCH_MAX_LIST], n_clients; /* of the kind that runs */
	int given[BENCH_MAX_LIST], n_given; /* --clients */
	int most_clients;
	uint64_t slice_ns; /* how long one measurement takes */
	struct bench_place place;
	struct bench_side sides[BENCH_SIDES];

	int n_crew, controls[BENCH_MAX_CLIENTS];
	pid_t crew[BENCH_MAX_CLIENTS], peers[BENCH_PAIRS];

	struct bench_case *cases;
	size_t n_cases;
	struct bench_row **rows;
	size_t n_rows;
	struct bench_bar *bars;
	size_t n_bars;
	struct bench_plot **plots;
	size_t n_plots;
	bool no_memory;
};

#endif
