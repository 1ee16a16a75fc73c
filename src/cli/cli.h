/* cli: the sheaf command: one file per subcommand, a table of them, and what they share.
 *
 * A subcommand is a row (struct cli_command) that says what it takes and a function that does it;
 * parsing, help and the wording of errors come from the row. Single-threaded unless a file says so.
 * Every run function returns an exit status and has told the reason on stderr when it is not 0. */
#ifndef SHEAF_CLI_H
#define SHEAF_CLI_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/base.h"
#include "sheaf.h"

#define CLI_VERSION "0.1.0"
#define CLI_MAX_OPTIONS 12
#define CLI_MAX_MANY 16
#define CLI_PATH_MAX 4096
#define CLI_BLOCK (4 * MIB)
#define CLI_STATUS_MS 1000 /* how long a server may take to answer a question about itself */

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* ---------------------------------------------------------------- args.c: arguments */

struct cli_option {
	char letter; /* 0: none */
	const char *name; /* NULL and letter 0 end a table */
	const char *
		value; /* what its argument is called; NULL: a flag; "[=X]": may be missing; "X...": may be
			    * given several times */
	const char *help;
};

struct cli_parsed {
	const char *conf; /* --conf, taken everywhere */
	bool help, version; /* --help, --version, likewise */
	const char *
		opt[CLI_MAX_OPTIONS]; /* by index in the table: NULL not given, "" without a value */
	const char *many[CLI_MAX_MANY]; /* values of the option that may be given several times */
	int n_many;
	char **args; /* what is left */
	int n_args;
};

/* Options and arguments may be mixed, unless first_arg_ends. Keeps what `out` holds already, so the
 * options before a subcommand and those behind it add up. -EINVAL: `err` says what is wrong. */
int cli_parse(const struct cli_option *options, bool first_arg_ends, int argc, char **argv,
	      struct cli_parsed *out, char *err, size_t err_len);
/* A whole number within the limits, nothing behind it; or -EINVAL. */
int cli_number(const char *s, uint64_t min, uint64_t max, uint64_t *out);
/* How many of the servers of this host keep names, when nobody says. */
uint32_t cli_metas(uint32_t servers);
/* The path inside the file system that `arg` means ("sheaf:/a", "/a", "a"): absolute, without
 * empty, "." and ".." parts. -ENAMETOOLONG. */
int cli_inside_path(const char *arg, char out[CLI_PATH_MAX]);
/* dir/name; -ENAMETOOLONG. Neither may be `out`. */
int cli_join(char out[CLI_PATH_MAX], const char *dir, const char *name);
/* The last component ("" of "/"); points into `path`, which has no slash at its end. */
const char *cli_basename(const char *path);
/* `path` is `dir` or lies beneath it; both as cli_inside_path() makes them. */
bool cli_beneath(const char *dir, const char *path);

/* ---------------------------------------------------------------- modes.c */

/* What a mode of chmod ("644", "u+x,g-w", "a=rX") makes of `old`, whose type matters for X. Where it does not say
 * for whom, `mask` is the umask. -EINVAL. */
int cli_mode_parse(const char *text, mode_t old, mode_t mask, mode_t *out);

/* ---------------------------------------------------------------- format.c: text for people */

void cli_mode_string(char out[11], mode_t mode); /* "drwxr-xr-x" */
const char *cli_type_name(mode_t mode); /* "directory" */
void cli_duration(char *out, size_t n, uint64_t ns); /* "3d 4h", "12 s", "250 us" */
void cli_date(char *out, size_t n, const struct timespec *t, time_t now); /* as ls -l does */
void cli_speed(char *out, size_t n, uint64_t bytes, uint64_t ns); /* "1.2 GiB/s" */
struct json_object;
/* A name in JSON, which is UTF-8: bytes that are none become U+FFFD. Shorter than CLI_PATH_MAX. */
struct json_object *cli_json_name(const char *name);
/* A name for the terminal: control characters become '?'; for anything else as it is. */
void cli_put_name(FILE *f, const char *name);

/* Columns as wide as they need to be. A column whose heading begins with '>' is set to the right. */
struct cli_table {
	const char *const *heads;
	size_t n_cols, n_cells, cap;
	char **cells;
	bool failed; /* out of memory */
};
void cli_table_init(struct cli_table *t, const char *const *heads, size_t n_cols);
void cli_table_add(struct cli_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints and frees it; -ENOMEM when cells are missing. */
int cli_table_print(struct cli_table *t, FILE *f);

/* ---------------------------------------------------------------- cli.c: a running subcommand */

struct cli;

struct cli_command {
	const char *name;
	const char *usage; /* what follows "sheaf NAME" */
	const char *summary; /* one line */
	int (*run)(struct cli *c);
	int min_args, max_args; /* max -1: any number */
	struct cli_option options[CLI_MAX_OPTIONS];
	const char *more; /* further help, or NULL */
};

struct cli {
	const struct cli_command *cmd;
	const char *conf; /* as given, or NULL */
	const char *const *opt;
	const char *const *many; /* of the option that may be given several times */
	int n_many;
	char **args;
	int n_args;
	struct sheaf *fs; /* set by cli_connect(), closed by the caller of run() */
	bool lost; /* a server did not answer: the rest would only wait as long again */
};

/* All of the sheaf command; returns its exit status. */
int cli_main(int argc, char **argv);

int cli_connect(struct cli *c); /* CLI_OK or CLI_FAILED, said */
/* "sheaf ls: ..." on stderr; returns CLI_FAILED, and the second CLI_USAGE with a hint at --help. */
int cli_error(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "sheaf ls: WHAT: why" for an error of the library, with the cure where there is one. */
int cli_fail(struct cli *c, const char *what, int err);
/* The same for an error of this host's own files. */
int cli_fail_host(struct cli *c, const char *what, int err);
/* An error of the library that means: a server did not answer, a call may or may not have been done. */
bool cli_no_answer(int err);

/* The cluster file that servers on this host are started from; refuses local:DIR with the cure. */
int cli_load_conf(struct cli *c, struct conf **out);
/* Loads the cluster file if there is one to load. 0, or -errno with one line in err. */
int cli_find_conf(struct cli *c, struct conf **out, char *err, size_t err_len);

/* After cli_catch_signals() the first SIGINT, SIGTERM or SIGHUP only sets this. */
extern atomic_int cli_signal;
void cli_catch_signals(void);

/* Asks all servers at once (cmd_status.c); those that do not answer are not up. */
void cli_servers_ask(struct sheaf *fs, struct sheaf_server *s, int n);

/* ---------------------------------------------------------------- listing.c: names in a directory */

struct cli_name {
	char *name;
	uint32_t type; /* S_IF... */
	uint32_t gen; /* with ino its handle, inside */
	uint64_t ino;
	struct stat *st; /* or NULL: not asked for */
	bool acl; /* of a listing that shows it */
};
struct cli_names {
	struct cli_name *v;
	size_t n, cap;
};
/* The names in a directory, sorted. 0 or -errno; free them in either case. */
int cli_names_inside(struct cli *c, const char *path, bool with_stat, struct cli_names *out);
int cli_names_host(const char *path, struct cli_names *out);
void cli_names_free(struct cli_names *n);
/* 1 a directory, 0 not or not there, -errno */
int cli_is_dir(struct cli *c, const char *path);
/* Calls fn for what `arg` means (a symbolic link is followed, without recursion) and, with recursion, for all
 * beneath it, directories before what they hold; links are not followed there. Returns the exit status. */
int cli_each(struct cli *c, const char *arg, bool recursive,
	     int (*fn)(struct cli *c, const char *path, const struct stat *st, void *arg),
	     void *fn_arg);
/* Where a symbolic link inside points, as text; -errno. */
int cli_read_link(struct cli *c, const char *path, char out[CLI_PATH_MAX]);

/* ---------------------------------------------------------------- stream.c: moving bytes */

/* One end of a copy: an open file inside, or a descriptor of this host read and written in order. */
struct cli_stream {
	struct sheaf_file *f; /* or NULL: */
	int fd;
};

/* Shared by all copies of a command that run at a time. */
struct cli_progress {
	atomic_bool stop; /* copies end soon, with -EINTR */
	atomic_ullong done; /* bytes */
	atomic_uint files; /* complete */
	atomic_ullong total; /* bytes; 0: not known yet */
	bool draw; /* on stderr; this and what follows is for one thread at a time */
	uint64_t started, drawn;
};
/* The progress line, now and then; and its end. */
void cli_progress_draw(struct cli_progress *p);
void cli_progress_clear(struct cli_progress *p);

#define CLI_POKE SIGUSR1 /* ends a system call that blocks, once p->stop is set */

struct cli_copier; /* buffers, kept from file to file; one for each thread */

struct cli_copier *cli_copier_new(void);
void cli_copier_free(struct cli_copier *k);
/* Copies all of `from` (at most `size` bytes when it is inside) to `to`, from offset 0, several blocks
 * at once; the first short block is the end. `size` is what `from` was seen to have: above 4 MiB there is a second
 * thread. 0; or -errno with *source telling which end failed; -EINTR after p->stop. */
int cli_copier_run(struct cli_copier *k, struct cli_stream *from, struct cli_stream *to,
		   uint64_t size, struct cli_progress *p, bool *source);

/* ---------------------------------------------------------------- crew.c: several files at a time */

#define CREW_JOBS 16
#define CREW_JOBS_MAX 64 /* as many as a session has slots */
#define CREW_SHOWN (CLI_PATH_MAX + 8)

/* A directory whose names are being handled; or the arguments of the command. */
struct cli_dir {
	struct cli_dir *parent, *below;
	struct cli_names names;
	size_t next; /* of the names */
	unsigned holds;
	bool failed; /* something in it did; read it in leave() */
	bool skip; /* the rest of its names */
};

struct crew {
	struct cli *c;
	struct cli_progress *progress;
	unsigned jobs; /* threads at most */
	/* Handles one name in d on thread `worker` (0 to jobs - 1), returns an exit status. A directory is
	 * handled by crew_enter(). leave(): all in d is done; finishes and frees it. */
	int (*child)(struct crew *w, unsigned worker, struct cli_dir *d, const struct cli_name *n);
	int (*leave)(struct crew *w, struct cli_dir *d);

	/* the crew's own */
	pthread_mutex_t lock, tell; /* tell: stderr, lost, n_left */
	pthread_cond_t more;
	struct cli_dir *top;
	struct crew_worker *workers;
	unsigned n_workers;
	bool done;
	bool interrupted; /* by a signal, before anything else ended it */
	int status;
	int lost; /* the error that said so */
	char lost_at[CREW_SHOWN];
	unsigned n_left; /* temporary files that could not be removed */
	bool unsure; /* of some of them nobody said so */
};

/* The arguments as the names in `root`; 0 or -ENOMEM. */
int crew_args(struct cli_dir *root, char **args, int n);
/* Handles everything beneath `root`, which is left like any other; returns the exit status. */
int crew_run(struct crew *w, struct cli_dir *root);
/* Hands over d, whose names are set, found in `parent`. */
void crew_enter(struct crew *w, struct cli_dir *parent, struct cli_dir *d);

/* These tell an error and return CLI_FAILED; nothing is said any more once everything ends. host: it is one
 * of this host's files. crew_fail_dir(): all the rest of d would fail alike, it is told once and skipped. */
int crew_fail(struct crew *w, const char *shown, bool host, int err);
int crew_fail_dir(struct crew *w, struct cli_dir *d, const char *shown, bool host, int err);
int crew_error(struct crew *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Looks at an error of the library: a server that does not answer ends everything. */
void crew_check(struct crew *w, const char *shown, int err);
/* A server did not answer. Calls wait CLI_STATUS_MS at most from then on, so that the end does not take as long again. */
bool crew_lost(struct crew *w);
/* A temporary file could not be removed, for this reason. */
void crew_left(struct crew *w, int err);

/* ---------------------------------------------------------------- local.c: servers of this host */

struct cli_daemon {
	const struct conf_target *target;
	bool here; /* its address belongs to this host */
	pid_t pid; /* 0: not running */
	int pidfd; /* of that process, or -1 */
	int notify; /* what it says while it starts, or -1 */
	char said[512];
	size_t n_said;
	bool done, ok;
};

#define CLI_START_NS (15 * NSEC_PER_SEC) /* until a server that was started is ready */

bool cli_address_is_local(const char *address);
/* Until close(): nobody else starts these servers, or changes which they are. -1 where the key cannot be read; sheafd
 * says why. */
int cli_take_turn(const struct conf *conf);
/* One per target, in the order of the file; finds those that run. NULL: out of memory. */
struct cli_daemon *cli_daemons_find(const struct conf *conf);
void cli_daemons_free(struct cli_daemon *d, size_t n);
/* A program of ours: beside this one, in ../sbin, or by PATH. */
void cli_find_program(const char *name, char out[CLI_PATH_MAX]);
/* Starts it detached; 0, or -errno with the reason in d->said. */
int cli_daemon_spawn(struct cli_daemon *d, const struct conf *conf);
/* Until all that are not done have said that they are ready or why not, a signal, or the time is over. */
void cli_daemons_wait(struct cli_daemon *d, size_t n, uint64_t ns);
void cli_pid_path(char out[CLI_PATH_MAX], const struct conf_target *t);
pid_t cli_pid_read(const struct conf_target *t); /* what the pid file says, or 0 */
void cli_log_path(char out[CLI_PATH_MAX], const struct conf_target *t);

#endif
