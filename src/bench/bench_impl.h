/* Shared by the files of `sheaf bench`: cases, rows, bars, plots, the client processes, the
 * place (the servers under test).
 *
 * A benchmark (struct bench_kind) adds cases. Every round runs all cases once, in order; each case
 * adds one value to its row. Afterwards the benchmark derives further rows (ratios within a round)
 * and bars (pass/fail criteria). A bar always judges a row.
 *
 * Processes: the command itself only coordinates. Clients and both ends of the raw baselines are
 * processes that are forked before anything is connected. A job is sent to a client as raw bytes
 * with its function pointers: both processes run the same program image. */
#ifndef SHEAF_BENCH_IMPL_H
#define SHEAF_BENCH_IMPL_H

#include <json-c/json.h>
#include <netinet/in.h>
#include <sys/uio.h>

#include "cli/cli.h"
#include "sheaf_admin.h"

#define BENCH_MAX_ROUNDS 99
#define BENCH_MAX_CLIENTS 64
#define BENCH_MAX_LIST 8 /* client counts that one run compares */
#define BENCH_PAIRS 4 /* concurrent raw ping-pong pairs */
#define BENCH_BLOCK (4 * MIB)
#define BENCH_UNIT (256 * KIB) /* stripe unit of the measured files */
#define BENCH_PING 64 /* bytes each way of a raw ping-pong */
#define BENCH_MORE 5 /* additional results of a job */
#define BENCH_MAX_FILES 5000 /* files that one client creates in one measurement */
/* Of all benchmarks together, with the longest list of client counts; cases: of one benchmark. */
#define BENCH_MAX_ROWS 4096
#define BENCH_MAX_CASES 2048
#define BENCH_MAX_BARS 256
#define BENCH_MAX_PLOTS 64

struct bench;
struct bench_job;

/* ---------------------------------------------------------- bench.c */

/* The state of server i. -errno, printed: it does not answer. */
int bench_server_status(struct bench *b, int i, struct sheaf_server *s);

/* ---------------------------------------------------------- bench_clients.c: client processes */

struct bench_worker { /* state of a client, used in its own process only */
	int index, control;
	int raw; /* socket to the far end of the raw baselines, or -1 */
	const char *conf;
	const struct bench_job *job; /* the current job ... */
	uint64_t i; /* ... and the number of its current operation */
	char path[CLI_PATH_MAX]; /* of the last bench_path() */
	struct sheaf *fs;
	struct sheaf_file *f;
	char *buf; /* `room` bytes, at least BENCH_BLOCK */
	size_t room;
	struct iovec *mem; /* memory segments of the list benchmarks */
	struct sheaf_extent *ext;
	size_t n_ext;
	struct sheaf_file **open; /* meta benchmark: files created and not closed yet */
	uint64_t made, n_open;
	int fd; /* file of the appender */
	struct hist times; /* latencies of the job, filled if job.tail */
	double more[BENCH_MORE];
	char why[96];
};

/* A part of a job: 0 or -errno, with the reason in w->why. */
typedef int bench_fn(struct bench_worker *w);

struct bench_job {
	bench_fn *prepare, *once, *finish; /* only once() is timed */
	uint64_t ns; /* once() is repeated for this time; 0: max_ops times */
	uint64_t max_ops; /* 0: no limit */
	bool all_made; /* once() removes a file: max_ops is the number that this client created */
	bool tail; /* report the 99th percentile of the latencies of client 0 */
	bool typical; /* count each operation with the median latency: for short measurements */
	bool out; /* write instead of read */
	uint64_t size, stride;
	uint64_t apart; /* client i accesses the file i times this many bytes further */
	uint32_t count, width, server;
	uint32_t ahead; /* raw stream: blocks requested before one is read */
	enum sheaf_mover mover;
	/* bench_strided.c: client i begins at i % columns * step[0] + i / columns * step[1] */
	uint32_t columns, way, seed; /* seed: version of the file's contents */
	uint64_t step[2], bytes; /* bytes: of the file */
	bool cold;
	char path[CLI_PATH_MAX / 4]; /* directory; "" in a case: that of this run */
};

struct bench_result {
	int error; /* 0 or -errno */
	uint64_t ops, ns;
	uint64_t calls; /* system calls made by the client's connection */
	uint64_t p99_ns; /* set if job.tail */
	double more[BENCH_MORE]; /* values that the last once() stored */
	char why[96];
};

/* Forks n clients and the far ends of the raw baselines. CLI_OK, or CLI_FAILED after a message. */
int bench_clients_start(struct bench *b, int n);
/* Drops what a forked process must not share with the command; runs in that process. */
void bench_clients_forked(struct bench *b);
/* Ends all these processes; may be called at any time. */
void bench_clients_stop(struct bench *b);
/* Runs j on the first n clients at once. 0; or -errno after a message (-EINTR: without one). */
int bench_clients_run(struct bench *b, const struct bench_job *j, int n, struct bench_result *out);
/* Waits for the process and kills it at time `end`. Sets *pid to 0; it may be 0 before. */
void bench_end_process(pid_t *pid, uint64_t end);
/* Stores in w->why what failed, without printing, if r is below 0. Returns r, or 0 for a count. */
int bench_why(struct bench_worker *w, const char *what, ssize_t r);
/* The same for a transfer of `want` bytes: less is -EIO. */
int bench_moved(struct bench_worker *w, const char *what, ssize_t r, uint64_t want);
uint64_t bench_median(uint64_t *times, size_t n); /* sorts them */
/* A path below the directory of the job, valid until the next call. */
const char *bench_path(struct bench_worker *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Path of file i that this client creates: in its own directory, or in the shared one if
 * job.count. */
const char *bench_made_path(struct bench_worker *w, uint64_t i);

/* Jobs for all benchmarks: connect; create and fill a file of `size` bytes over `width` servers;
 * remove the file; read or write `size` bytes, each time `stride` bytes further. Size and stride
 * divide BENCH_FILE so that no access crosses the end of the file. */
bench_fn bench_do_connect, bench_do_make, bench_do_drop, bench_do_transfer;
int bench_drop_files(struct bench *b); /* runs bench_do_drop() on all clients */
#define BENCH_FILE (64 * MIB)
bench_fn bench_do_room; /* makes the client's buffer at least `size` bytes */
/* Lists: `count` pieces of `size` bytes, apart in memory, `stride` bytes apart in the file
 * (adjacent pieces are one extent). The lists are laid out first; then one call for all, or one
 * each. */
bench_fn bench_lay_out, bench_do_list, bench_do_singles;

/* ---------------------------------------------------------------- bench_raw.c: baselines */

/* Forks a process that serves one TCP connection at an address of this host, and sets its port. Its
 * pid, or -errno. */
pid_t bench_raw_peer(struct bench *b, struct sockaddr_in *at);
int bench_raw_connect(const struct sockaddr_in *at); /* descriptor or -errno */
/* Add the raw baselines as cases. */
void bench_add_stream(struct bench *b);
void bench_add_ping(struct bench *b, int pairs); /* the latency of one pair, the rate of several */
void bench_add_appender(struct bench *b);
#define BENCH_STREAM "raw stream"
#define BENCH_PINGPONG "raw ping-pong"
#define BENCH_APPENDER "append 4 KiB + fdatasync"
bench_fn bench_do_ping;

/* ---------------------------------------------------------- bench_rows.c: cases, rows, bars */

enum bench_figure { BENCH_RATE, BENCH_BANDWIDTH, BENCH_LATENCY, BENCH_P99 };

struct bench_row {
	const char *bench, *unit;
	char what[64];
	uint32_t clients, pieces; /* 0: does not apply; the same for bytes */
	uint64_t bytes;
	bool derived; /* computed per round from the rows named in `of` and `to` */
	char of[96], to[96];
	const char *paper; /* the same figure in a paper, or NULL */
	int runs;
	double values[BENCH_MAX_ROUNDS];
	double median, min, max; /* set after the last round */
	uint64_t ops, client_calls, server_calls; /* of the first round; calls: system calls */
};

struct bench_case {
	struct bench_row *row; /* set by bench_case_add() */
	struct bench_job job;
	int workers; /* 0: one */
	enum bench_figure figure;
	uint64_t bytes; /* of the row; the same for pieces */
	uint32_t pieces;
	const char *unit; /* NULL: that of the figure */
	uint64_t ns; /* duration of the measurement, and of one warm-up; 0: the default */
	bool wait_idle; /* first wait until the servers have finished their background work */
	bool never_sieve; /* the servers access every piece separately; for temporary servers */
	const uint64_t *delay; /* ns added to round trips; NULL: that of the case before */
	/* Runs before each measurement, if set; the warm-up round leaves such cases out. 0, or
	 * -errno after a message */
	int (*before)(struct bench *b, struct bench_case *c);
	/* replaces the job, if set; 0, or -errno after a message */
	int (*custom)(struct bench *b, struct bench_case *c, double *value);
};

enum bench_sense { BENCH_AT_LEAST, BENCH_AT_MOST, BENCH_EXACTLY };

struct bench_bar {
	const struct bench_row *row; /* the bar has its name */
	enum bench_sense sense;
	double need;
};

#define BENCH_PLOT_MAX 8
struct bench_plot {
	const char *bench, *name, *title;
	bool line; /* one line per series; otherwise groups of bars */
	bool log; /* logarithmic value axis */
	int n_groups, n_series;
	char groups[BENCH_PLOT_MAX][32], series[BENCH_PLOT_MAX][32];
	const struct bench_row *cell[BENCH_PLOT_MAX][BENCH_PLOT_MAX]; /* [group][series] */
	const struct bench_row *ref; /* drawn as a horizontal line, or NULL */
	const char *x_label;
};

/* A raw stream over links with this delay; raw ping-pongs. */
struct bench_case bench_stream_case(uint64_t delay_ns);
struct bench_case bench_ping_case(int pairs);
/* Adds a case with its row; `what` and its arguments name the row. */
void bench_case_add(struct bench *b, struct bench_case c, const char *what, ...)
	__attribute__((format(printf, 3, 4)));
const struct bench_row *bench_find(struct bench *b, const char *what, uint32_t clients,
				   uint64_t bytes, uint32_t pieces);
/* a / c per round; NULL if either is NULL. */
const struct bench_row *bench_ratio(struct bench *b, const char *name, const struct bench_row *a,
				    const struct bench_row *c);
/* (a - c) / by per round; NULL if either row is NULL. */
const struct bench_row *bench_growth(struct bench *b, const char *name, const struct bench_row *a,
				     const struct bench_row *c, double by);
/* a * n per round. */
const struct bench_row *bench_scaled(struct bench *b, const char *name, const struct bench_row *a,
				     double n, const char *unit);
/* The worst of the rows per round. */
const struct bench_row *bench_worst(struct bench *b, const char *name,
				    const struct bench_row *const *rows, int n, bool highest);
/* A copy of the row with the worst median, under another name. */
const struct bench_row *bench_worst_point(struct bench *b, const char *name,
					  const struct bench_row *const *rows, int n, bool highest);
/* Sets what a paper has for a derived row; does nothing if row is NULL. */
void bench_paper(struct bench *b, const struct bench_row *row, const char *paper);
/* Does nothing if row is NULL. */
void bench_bar(struct bench *b, const struct bench_row *row, enum bench_sense sense, double need);
/* A ratio and its bar. */
void bench_bar_ratio(struct bench *b, const char *name, const struct bench_row *a,
		     const struct bench_row *c, enum bench_sense sense, double need);
bool bench_bar_ok(const struct bench_bar *bar);
extern const char *const bench_senses[]; /* "at least", ... */
struct bench_plot *bench_plot_add(struct bench *b, const char *name, const char *title);
/* Add a group or a series to a plot that has room for it; its index. */
int bench_plot_group(struct bench_plot *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int bench_plot_series(struct bench_plot *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void bench_row_sum_up(struct bench_row *r); /* sets median, min and max */
void bench_size_text(char *out, size_t n, uint64_t bytes); /* "4 MiB", "1 B" */
void bench_number_text(char *out, size_t n, double v); /* four digits, no exponent */
void bench_row_text(char *out, size_t n, const struct bench_row *r); /* "read, 4 KiB, 4 clients" */
#define BENCH_CLIENTS(n) (n), (n) == 1 ? "" : "s" /* arguments of "%d client%s" */

/* ---------------------------------------------------------------- bench.c: rounds */

/* Runs j on n clients; counts the requests of the busiest server, and of all servers. */
int bench_count_requests(struct bench *b, const struct bench_job *j, int n, double *most,
			 double *all);
/* Runs one job on n clients, outside of all cases, in the directory of this run or in `dir`. 0, or
 * -errno after a message. */
int bench_once(struct bench *b, int n, bench_fn *once, uint64_t size, uint32_t width);
int bench_once_in(struct bench *b, const char *dir, int n, bench_fn *once, uint64_t size,
		  uint32_t width);

/* ---------------------------------------------------------- bench_output.c: JSON and tables */

struct json_object *bench_json(struct bench *b);
int bench_print(struct bench *b); /* the exit status */

/* ---------------------------------------------------------------- bench_place.c: where it runs */

struct bench_place {
	bool own; /* the servers are temporary ones, started by this run */
	char dir[CLI_PATH_MAX / 4]; /* directory of the temporary servers */
	char storage[CLI_PATH_MAX / 4]; /* host directory beside the storage, or "" */
	char fs_type[32]; /* file system type of `storage` */
	bool in_memory, on_disk; /* both false: not known */
	char conf_path[CLI_PATH_MAX];
	char client_conf[CLI_PATH_MAX]; /* the clients' cluster file: the same, or of a proxy */
	struct conf *conf;
	struct cli_daemon *daemons;
	char scratch[64];
	const char *medium; /* transport between clients and servers */
	bool never_sieve; /* current setting of the temporary servers */
};

/* Starts temporary servers in dir, or uses the cluster file's. CLI_OK, or status and message. */
int bench_place_open(struct bench *b, const char *dir, uint32_t servers);
/* Starts further temporary servers beside those of the benchmark, without hosts. 0, or -errno after
 * a message. The other call may be made at any time. */
int bench_place_add(struct bench *b, struct bench_place *other, uint32_t servers);
void bench_place_remove(struct bench *b, struct bench_place *other);
/* The first of n consecutive TCP ports that are free in this network namespace, or 0. */
uint32_t bench_find_ports(uint32_t n);
int bench_place_connect(struct bench *b); /* makes the scratch directory; call after all forks */
void bench_place_close(struct bench *b); /* removes everything; may be called at any time */
/* Switches sieving by temporary servers on or off. 0, or -errno after a message. */
int bench_place_sieve(struct bench *b, bool sieve);
int bench_make_dir(struct bench *b, const char *path); /* 0, or -errno after a message */
/* Waits until the servers are idle, for 20 seconds at most. */
void bench_wait_idle(struct bench *b);
/* Copies a cluster file; put() writes each line to the copy, which may replace the file. */
int bench_conf_edit(const char *from, const char *to,
		    void (*put)(FILE *out, const char *line, void *arg), void *arg);

/* ---------------------------------------------------------- bench_hosts.c: network namespaces */

struct bench_hosts { /* all 0: clients and servers are on this host */
	int home, bridge; /* descriptors of namespaces: where the command was, of the bridge */
	int host[1 + CONF_MAX_TARGETS]; /* of the clients, of each server */
	int n; /* how many of these there are */
	bool delays; /* links can delay packets */
};

/* Takes the options; CLI_OK, or CLI_USAGE after a message. */
int bench_hosts_take(struct bench *b, const char *rate, const char *delay);
/* Why there can be no hosts here, or none whose links delay packets; or NULL. */
const char *bench_hosts_missing(struct bench *b, bool netem);
/* Makes the hosts, enters that of the clients, and sets the servers' addresses in the cluster file.
 * 0 or -errno, with the reason in `why`. */
int bench_hosts_open(struct bench *b, int servers, char *why, size_t n);
void bench_hosts_close(struct bench *b); /* may be called at any time */
/* Enters the namespace of a server, or of the clients (-1). 0 or -errno. */
int bench_hosts_enter(struct bench *b, int server);
struct in_addr bench_hosts_address(struct bench *b, int server);
/* Sets the time that is added to each round trip. 0, or -errno after a message. */
int bench_hosts_delay(struct bench *b, uint64_t ns);
void bench_hosts_text(struct bench *b, char *out, size_t n); /* " between 5 hosts", or "" */
/* The rate of the links, or of the slow one: as a text or NULL; in bits/s or 0. */
const char *bench_hosts_rate(struct bench *b);
double bench_hosts_bits(struct bench *b);

/* ---------------------------------------------------------- bench_proxy.c: delays by a process */

struct bench_proxy {
	pid_t pid; /* 0: none */
	struct proxy_settings *settings; /* shared with that process */
};

/* Starts the proxy and makes the cluster file with its addresses. 0, or -errno after a message. */
int bench_proxy_open(struct bench *b);
void bench_proxy_close(struct bench *b); /* may be called at any time */
void bench_proxy_delay(struct bench *b, uint64_t ns); /* sets what is added to a round trip */
/* Limits the rate to all servers together, in bytes per second; 0: no limit. */
void bench_proxy_rate(struct bench *b, uint64_t bytes);
/* Replaces the far end of a raw connection by an address of the proxy, if there is one. */
void bench_proxy_raw(struct bench *b, struct sockaddr_in *far);

/* ---------------------------------------------------------- bench_programs.c: other programs */

/* Starts a program in its own session, with its output in the log. Pid, or -errno. */
pid_t bench_program_start(struct bench *b, const char *program, const char *const *argv);
/* The last line of the log, or else the text of err. */
void bench_program_why(struct bench *b, int err, char *out, size_t n);
/* Prints an error with that line; returns err. */
int bench_program_fail(struct bench *b, const char *what, int err);
/* Runs a program to its end. 0; -EIO, with a message unless `what` is NULL; -EINTR: a signal. */
int bench_program_run(struct bench *b, const char *what, const char *const *argv);
/* Runs a script with $1, $2. 0; -EIO, with a message unless `what` is NULL; -EINTR: a signal. */
int bench_shell(struct bench *b, const char *what, const char *script, const char *a1,
		const char *a2);

/* ---------------------------------------------------------------- bench_fuse.c: mounts */

/* With BENCH_SPLICED only large reads are measured. */
enum { BENCH_SHEAF, BENCH_PASSTHROUGH, BENCH_SPLICED, BENCH_SIDES };
#define BENCH_WHOLE_SIDES BENCH_SPLICED

struct bench_side {
	const char *name; /* "mount", "passthrough", "spliced" */
	char point[CLI_PATH_MAX / 4]; /* mount point; "" before the first attempt to mount */
	char dir[CLI_PATH_MAX / 4]; /* working directory of the jobs */
	dev_t below;
	pid_t pid;
};

const char *bench_fuse_missing(struct bench *b); /* why this machine cannot mount, or NULL */
/* Mounts Sheaf and both passthroughs beside temporary servers. 0, or -errno after a message. */
int bench_fuse_open(struct bench *b);
void bench_fuse_close(struct bench *b); /* may be called at any time */
const char *bench_mount_missing(struct bench *b); /* the same for Sheaf alone */
int bench_mount_open(struct bench *b); /* mounts Sheaf alone; bench_fuse_close() unmounts it */
double bench_fuse_memory(const struct bench_side *s); /* anonymous memory in MiB; 0: not known */

/* ---------------------------------------------------------- bench_mpi_run.c: MPI programs */

#define BENCH_RANKS 4
#define BENCH_MPI_ARGS 6
/* Sheaf by its MPI-IO library; its mount, and a directory beside the storage, by the MPI's own. */
enum bench_mpi_side { BENCH_MPI_SHEAF, BENCH_MPI_MOUNT, BENCH_MPI_LOCAL };

struct bench_mpi_run {
	const char *program;
	enum bench_mpi_side side;
	const char *method; /* hint for Sheaf */
	bool collective, tcp; /* tcp: no Unix sockets */
	const char *args[BENCH_MPI_ARGS]; /* NULL ends them */
};

struct bench_mpi_result {
	double bytes, write_s, read_s, total_s; /* medians of the program's rounds; 0: none */
	double requests, accesses, moved; /* of all servers; moved: bytes read and written */
	double exchanged; /* bytes between ranks */
};

/* A command line under construction. */
#define BENCH_MAX_WORDS 64
struct bench_words {
	const char *argv[BENCH_MAX_WORDS]; /* NULL ends it */
	char text[32][CLI_PATH_MAX + 256];
	int n, n_text;
};
void bench_words_add(struct bench_words *w, const char *word); /* which stays where it is */
void bench_words_text(struct bench_words *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Adds mpiexec with n ranks, and env(1) with what ranks need to yield; and a library to preload, or
 * "". Variables and the program follow. */
void bench_mpi_launch(struct bench *b, struct bench_words *w, int n, const char *library);
/* The first MPI, or that of --mpi, whose launcher and whose program of bench/mpi are there; or
 * NULL. */
const char *bench_mpi_with(struct bench *b, const char *program, char path[CLI_PATH_MAX]);
/* Runs a command line; its stdout is in place.dir/NAME.json, stderr in NAME.log. 0 or -errno. */
int bench_words_run(struct bench *b, const struct bench_words *w, const char *name,
		    const char *what);
/* The median of an array of numbers from element `skip` on; 0: it is not there. */
double bench_json_median(struct json_object *o, const char *key, size_t skip);

const char *bench_mpi_missing(struct bench *b); /* sets b->mpi unless --mpi did */
/* 0, or -errno after a message (-EINTR: without one). */
int bench_mpi_run(struct bench *b, const struct bench_mpi_run *run, struct bench_mpi_result *out);

/* ---------------------------------------------------------- bench_typed.c: a part of transfer */

#define BENCH_TYPED_PIECES 10000000
#define BENCH_TYPED_PIECE 8 /* bytes out of every 16 */
void bench_typed_add(struct bench *b);
void bench_typed_judge(struct bench *b);

/* ---------------------------------------------------------- bench_strided.c: blockcolumn, tile */

#define BENCH_SHARERS 4 /* clients that share the file */
enum {
	BENCH_MULTIPLE,
	BENCH_CLIENT_SIEVE,
	BENCH_LIST, /* without sieving by the servers; temporary servers only */
	BENCH_LIST_SIEVE,
	BENCH_TYPED_SIEVE,
	BENCH_WAYS,
	BENCH_LISTS = BENCH_WAYS, /* many lists of 64 rows */
};
struct bench_way {
	const char *name, *id;
	bench_fn *once;
};
extern const struct bench_way bench_ways[];
/* for bench_kind.about */
#define BENCH_WAYS_ABOUT \
	"  multiple calls       one call for each piece\n" \
	"  client-side sieving  as in ROMIO: the client reads blocks of 4 MiB that cover many\n" \
	"                       pieces and copies the pieces out; to write pieces, it locks,\n" \
	"                       reads, modifies and writes back blocks of 512 KiB\n" \
	"  list                 one call with a list of all pieces; the servers access each\n" \
	"                       piece separately\n" \
	"  list + sieving       the same call; the servers access ranges that cover many pieces\n" \
	"                       where they expect that to take less time\n" \
	"  typed + sieving      one call that describes all pieces by a data type, with sieving\n" \
	"                       by the servers\n" \
	"The file is cached by the servers, except in cases that are called cold. GB/s are of all\n" \
	"clients together, and count only the bytes of the pieces.\n"

/* What each client accesses: rows of `size` bytes, `stride` bytes apart. */
struct bench_strided {
	const char *name; /* in the names of its rows; may be "" */
	uint64_t size, stride, step[2]; /* columns, step: as in a job */
	uint32_t rows, columns;
	int clients;
	enum sheaf_mover mover; /* auto: that of --mover */
	uint64_t ns; /* duration of one measurement */
	bool cold;
};

/* Makes the shared file and gives each client this much memory. 0, or -errno after a message. */
int bench_strided_setup(struct bench *b, uint64_t file, uint64_t memory);
/* Reads and writes known data in every way: all rows, or the first few MiB. */
int bench_strided_verify(struct bench *b, const struct bench_strided *s, bool whole);
/* Adds a case, unless this way needs temporary servers. */
void bench_strided_case(struct bench *b, const struct bench_strided *s, int way, int out);
/* Adds a case that counts the servers' accesses per piece of a cold list. */
void bench_strided_count(struct bench *b, const struct bench_strided *s, int out);
void bench_strided_name(char *out, size_t n, const struct bench_strided *s, int way, int write);
const struct bench_row *bench_strided_find(struct bench *b, const struct bench_strided *s, int way,
					   int out);
int bench_strided_cleanup(struct bench *b);
/* Drops the cached pages of a file's objects at all servers. 0, or -errno after a message. */
int bench_drop_cached(struct bench *b, const char *file);

/* ---------------------------------------------------------- bench_collective.c: a part of meta */

void bench_collective_add(struct bench *b);
void bench_collective_judge(struct bench *b);

/* ---------------------------------------------------------------- bench_report.c */

/* Writes index.html, one SVG per plot, and bench.json. 0 or -errno. */
int bench_report(struct bench *b, const char *dir, struct json_object *json);
struct json_object *bench_conditions(struct bench *b);

/* ---------------------------------------------------------------- the benchmarks */

struct bench_kind {
	const char *name, *summary;
	const char *about; /* paragraphs of several lines that explain rows and ratios, or NULL */
	int clients[BENCH_MAX_LIST]; /* client counts without --clients; 0 ends the list */
	int clients_long; /* one more with --long, or 0 */
	/* Why it cannot run here, or NULL. `missing`, `open`, `cleanup`, `end` may be NULL. */
	const char *(*missing)(struct bench *b);
	int (*open)(struct bench *b); /* when the servers run; 0, or -errno after a message */
	int (*setup)(struct bench *b); /* prepares and adds cases; 0, or -errno after a message */
	void (*judge)(struct bench *b); /* derives rows, bars and plots */
	int (*cleanup)(struct bench *b);
	void (*end)(struct bench *b); /* runs after a failure or a signal as well */
	int servers; /* number of temporary servers without --servers; 0: as the others */
	int rounds; /* without --rounds; 0: as the others */
	bool delays; /* it sets the delay of each case */
	bool slow_client; /* always on hosts; only the clients' link has a rate */
};
extern const struct bench_kind bench_net, bench_contig, bench_latency, bench_meta, bench_lists,
	bench_transfer, bench_blockcolumn, bench_tile, bench_wan, bench_incast, bench_bank,
	bench_common, bench_registration, bench_mount, bench_mpi, bench_nfs, bench_checkpoint;
extern const struct bench_kind *const bench_kinds[]; /* NULL ends it */

struct bench {
	struct cli *c;
	const struct bench_kind *kind; /* the running benchmark */
	const char *name; /* the name on the command line, or "all" */
	const char *dir; /* --dir, or NULL */
	const char *rate, *delay; /* --rate, --delay, or NULL */
	const char *mpi; /* "mpich" or "openmpi"; NULL before bench_mpi_missing() */
	double rate_bits; /* a second */
	uint64_t delay_ns; /* added to a round trip */
	bool on_hosts; /* --hosts */
	bool long_form; /* --long */
	bool blocks; /* --blocks */
	int rounds, given_rounds; /* --rounds; 0: not given */
	int servers;
	int metas; /* --meta: number of metadata servers among the temporary servers */
	int clients[BENCH_MAX_LIST], n_clients; /* of the running benchmark */
	int given[BENCH_MAX_LIST], n_given; /* --clients */
	int sizes[BENCH_MAX_LIST], n_sizes; /* --sizes; 0: not given */
	int counts[BENCH_MAX_LIST], n_counts; /* --pieces; 0: not given */
	enum sheaf_mover mover; /* --mover */
	int most_clients;
	uint64_t slice_ns; /* duration of one measurement */
	struct bench_place place;
	struct bench_hosts hosts;
	struct bench_proxy proxy;
	struct bench_shown { /* of the first benchmark; one with servers of its own may follow */
		int servers, metas, hosts, rounds;
		const char *medium, *rate;
	} shown;
	struct bench_side sides[BENCH_SIDES];

	int n_processes, controls[BENCH_MAX_CLIENTS];
	pid_t pids[BENCH_MAX_CLIENTS], peers[BENCH_PAIRS];

	size_t n_cases, n_rows, n_bars, n_plots;
	struct bench_case cases[BENCH_MAX_CASES];
	struct bench_row rows[BENCH_MAX_ROWS];
	struct bench_bar bars[BENCH_MAX_BARS];
	struct bench_plot plots[BENCH_MAX_PLOTS];
};

#endif
