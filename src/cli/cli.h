/* cli: the `sheaf` command: one file per subcommand, the table of subcommands, and shared code.
 *
 * "Inside" is a path in the Sheaf file system, "host" a path of this machine. A subcommand is a row
 * (struct cli_command) with its options and a run function; parsing, help and the wording of usage
 * errors come from the row. Single-threaded unless a file says otherwise. Every run function
 * returns an exit status and has printed the reason on stderr when the status is not 0. */
#ifndef SHEAF_CLI_H
#define SHEAF_CLI_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/base.h"
#include "sheaf_admin.h"

#define CLI_VERSION "0.1.0"
#define CLI_MAX_OPTIONS 16
#define CLI_MAX_MANY 16
#define CLI_MAX_COLUMNS 16
#define CLI_PATH_MAX 4096
#define CLI_BLOCK (4 * MIB)
#define CLI_STATUS_MS 1000 /* timeout of a status request to one server */
#define CLI_SILENCE_NS NSEC_PER_SEC /* a command that waits longer says for which server */

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* ---------------------------------------------------------------- args.c: arguments */

struct cli_option {
	char letter; /* 0: no short form */
	const char *name; /* NULL together with letter 0 ends a table */
	/* Name of the argument. NULL: a flag; "[=X]": optional; "X...": may be repeated. */
	const char *value;
	const char *help;
};

struct cli_parsed {
	const char *conf; /* --conf, accepted by every subcommand */
	bool help, version; /* -h (unless it means another), -V: accepted by every subcommand */
	/* by index in the option table; NULL: not given, "": no value */
	const char *opt[CLI_MAX_OPTIONS];
	const char *many[CLI_MAX_MANY]; /* values of the option that may be repeated */
	int n_many;
	char **args; /* the remaining arguments */
	int n_args;
};

/* Options and arguments may be mixed, unless first_arg_ends. Values in `out` are kept, so options
 * before and after the subcommand are combined. -EINVAL: `err` has the message. */
int cli_parse(const struct cli_option *options, bool first_arg_ends, int argc, char **argv,
	      struct cli_parsed *out, char *err, size_t err_len);
/* Parses a whole decimal number in [min, max] without trailing characters; -EINVAL otherwise. */
int cli_number(const char *s, uint64_t min, uint64_t max, uint64_t *out);
/* Default number of metadata servers among the servers of this host. */
uint32_t cli_metas(uint32_t servers);
/* The path in the file system that `arg` ("sheaf:/a", "/a", "a") names: absolute, without empty,
 * "." and ".." components. -ENAMETOOLONG. */
int cli_inside_path(const char *arg, char out[CLI_PATH_MAX]);
/* Appends a component to a path; -ENAMETOOLONG: it is unchanged. Recursive functions share one such
 * buffer and cut it back: one in each of 2,000 frames would overflow the stack. */
int cli_path_add(char path[CLI_PATH_MAX], const char *name);
/* dir/name; -ENAMETOOLONG. `out` must not be one of the inputs. */
int cli_join(char out[CLI_PATH_MAX], const char *dir, const char *name);
/* The last component ("" for "/"); points into `path`, which has no trailing slash. */
const char *cli_basename(const char *path);
/* True when `path` is `dir` or lies beneath it; both in the form of cli_inside_path(). */
bool cli_beneath(const char *dir, const char *path);

/* ---------------------------------------------------------------- modes.c */

/* The mode that a chmod argument ("644", "u+x,g-w", "a=rX") makes of `old`; X depends on the file
 * type in `old`. `mask` is the umask, used where a clause names no class. -EINVAL. */
int cli_mode_parse(const char *text, mode_t old, mode_t mask, mode_t *out);

/* ---------------------------------------------------------------- format.c: text for people */

void cli_mode_string(char out[11], mode_t mode); /* "drwxr-xr-x" */
const char *cli_type_name(mode_t mode); /* "directory" */
void cli_duration(char *out, size_t n, uint64_t ns); /* "3d 4h", "12 s", "250 us" */
void cli_time(char *out, size_t n, double ns); /* "0.41 us", "250 us", "1.25 ms" */
void cli_date(char *out, size_t n, const struct timespec *t, time_t now); /* in the form of ls -l */
void cli_speed(char *out, size_t n, uint64_t bytes, uint64_t ns); /* "1.2 GiB/s" */
struct json_object;
/* A name as a JSON string: bytes that are not UTF-8 become U+FFFD. Shorter than CLI_PATH_MAX. */
struct json_object *cli_json_name(const char *name);
/* Add a member to an object. A text must be UTF-8. */
void cli_json_text(struct json_object *o, const char *key, const char *text);
void cli_json_int(struct json_object *o, const char *key, int64_t v);
void cli_json_uint(struct json_object *o, const char *key, uint64_t v);
void cli_json_known(struct json_object *o, const char *key, bool known, uint64_t v); /* or null */
void cli_json_double(struct json_object *o, const char *key, double v);
void cli_json_bool(struct json_object *o, const char *key, bool v);
void cli_json_print(struct json_object *o, int form); /* prints a line or more, and frees o */
/* A file as JSON: path, type, mode, owner, size, times; target: of a symbolic link, or "". */
struct json_object *cli_stat_json(const char *path, const struct stat *st, const char *target);
/* Prints a name; control characters become '?' if f is a terminal. */
void cli_put_name(FILE *f, const char *name);
/* Redraws the terminal from the top: clears the rest of each line, and cuts lines at the edge. */
void cli_paint(const char *text);
/* Print text with the special characters of HTML and SVG escaped; as an SVG element at x, y. */
void cli_put_xml(FILE *f, const char *text);
void cli_put_svg(FILE *f, double x, double y, const char *attributes, const char *text);

/* A text table with fitted columns. A heading that begins with '>' right-aligns its column. */
struct cli_table {
	const char *const *heads;
	size_t n_cols;
	FILE *f; /* writes `text`; NULL: no cell yet */
	char *text; /* the cells, row by row; a tab ends each */
	size_t len;
	bool failed; /* out of memory */
};
void cli_table_init(struct cli_table *t, const char *const *heads, size_t n_cols);
/* Adds a cell, or several that tabs separate. */
void cli_table_add(struct cli_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints and frees the table; -ENOMEM when there was no memory for a cell. */
int cli_table_print(struct cli_table *t, FILE *f);

/* ---------------------------------------------------------------- cli.c: a running subcommand */

struct cli;

struct cli_command {
	const char *name;
	const char *usage; /* the text after "sheaf NAME" */
	const char *summary; /* one line of help */
	int (*run)(struct cli *c);
	int min_args, max_args; /* max_args -1: no limit */
	bool ends_at_argument; /* options behind the first argument are arguments */
	bool single_dash; /* one dash is enough before a long option, as for find(1) */
	struct cli_option options[CLI_MAX_OPTIONS];
	const char *more; /* additional help text, or NULL */
	const char *examples; /* lines of help, or NULL */
};

struct cli {
	const struct cli_command *cmd; /* NULL: the command line names none */
	const char *conf; /* --conf as given, or NULL */
	const char *const *opt;
	const char *const *many; /* values of the option that may be repeated */
	int n_many;
	char **args;
	int n_args;
	struct sheaf *fs; /* set by cli_connect(); the caller of run() disconnects */
	int n_conf; /* servers that fs knew when it was made: those of the cluster file */
	struct cli_waits *waits; /* of fs */
	bool lost; /* a server did not answer: stop, since further calls would time out as well */
};

/* Runs the subcommand that argv names; returns the exit status. NULL ends `commands`. */
int cli_main(const struct cli_command *const *commands, int argc, char **argv);

int cli_connect(struct cli *c); /* CLI_OK, or CLI_FAILED after a message */
void cli_disconnect(struct cli *c); /* fs may be NULL */
/* Print "sheaf ls: ..." on stderr; return CLI_FAILED or, with a hint at --help, CLI_USAGE. */
int cli_error(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints "sheaf ls: WHAT: why" for a libsheaf error, with advice where there is any. */
int cli_fail(struct cli *c, const char *what, int err);
/* The text of a libsheaf error; of errors of disks and space it names the server and the remedy. */
#define CLI_WHY_MAX 512
void cli_error_text(struct cli *c, int err, char out[CLI_WHY_MAX]);
/* The same as sheaf_why() explains it; `what` may be NULL. */
int cli_fail_why(struct cli *c, const char *what, int err);
/* The same for an error of a system call on this host. */
int cli_fail_host(struct cli *c, const char *what, int err);
/* True for errors that mean "no answer": the call may or may not have been executed, or that no
 * server can be reached at all (wrong key, wrong server, unknown host). */
bool cli_no_answer(int err);

/* The cluster file that servers of this host are started from; refuses local:DIR with advice. */
int cli_load_conf(struct cli *c, struct conf **out);
/* Loads the cluster file if one is configured. 0, or -errno with a one-line message in `err`. */
int cli_find_conf(struct cli *c, struct conf **out, char *err, size_t err_len);

/* The first SIGINT, SIGTERM or SIGHUP after cli_catch_signals() only sets this. */
extern atomic_int cli_signal;
void cli_catch_signals(void);

/* waits.c: tells on stderr for which servers calls of fs wait longer than CLI_SILENCE_NS, until
 * cli_waits_end() (NULL: does nothing). `command` is kept. NULL: no thread could be started. */
struct cli_waits *cli_waits_start(struct sheaf *fs, const char *command);
void cli_waits_end(struct cli_waits *w);

/* servers.c: "server1 (10.0.0.5:7430) does not answer: why, and the remedy", of one that is
 * down. */
void cli_server_why(const struct sheaf_server *s, char out[CLI_WHY_MAX]);
/* Asks all servers in parallel; servers that do not answer are marked down. net:
 * may be NULL. */
void cli_servers_ask(struct sheaf *fs, struct sheaf_server *s, struct sheaf_server_net *net, int n);
/* A server's answer; fields that are unknown because it is down are null (server_json.c). */
struct json_object *cli_server_json(const struct sheaf_server *s);
/* The answers of all n servers, also of those that only the map has; to be freed. NULL after a
 * message. */
struct sheaf_server *cli_servers_get(struct cli *c, int *n);
/* Appends the servers of the map that the cluster file has not, and loads it again. CLI_OK, or
 * CLI_FAILED after a message. */
int cli_conf_update(struct cli *c, struct conf **conf, const struct sheaf_server *known, int n);
/* CLI_OK, or CLI_FAILED after one line about the servers that are down and have one of these roles
 * (0: all servers). `effect` follows "does not answer". */
int cli_servers_check(struct cli *c, const struct sheaf_server *s, int n, unsigned roles,
		      const char *effect);

/* ---------------------------------------------------------- listing.c: names in a directory */

struct cli_name {
	char *name;
	uint32_t type; /* S_IF... */
	uint32_t gen; /* inside: generation; ino and gen are the handle */
	uint64_t ino;
	struct stat *st; /* NULL: not requested */
	bool acl; /* has an access control list; set only by listings that show it */
};
struct cli_names {
	struct cli_name *v;
	size_t n, cap;
};
/* The sorted names of a directory. 0 or -errno; cli_names_free() is needed in both cases. */
int cli_names_inside(struct cli *c, const char *path, bool with_stat, struct cli_names *out);
int cli_names_of(struct cli *c, struct sheaf_handle dir, bool with_stat, struct cli_names *out);
int cli_names_host(const char *path, struct cli_names *out);
int cli_names_add(struct cli_names *l, const char *name, uint32_t type); /* 0 or -ENOMEM */
void cli_names_sort(struct cli_names *l);
/* Sorts the names; returns one that is there twice, or NULL. */
const char *cli_names_twice(struct cli_names *l);
void cli_names_free(struct cli_names *l);
/* 1: a directory; 0: another file type, or no such file; or -errno */
int cli_is_dir(struct cli *c, const char *path);
/* Connects, and calls fn for each argument from `first` on, with its path inside. Stops when a
 * server does not answer. Returns the exit status. */
int cli_each_arg(struct cli *c, int first,
		 int (*fn)(struct cli *c, const char *arg, char *path, void *data), void *data);
/* The same for the file that each argument names and, if recursive, for everything beneath it, each
 * directory before its contents. Symbolic links are followed only in arguments, and only without
 * recursion. The walk goes by handle, and fn must use the handle: others may replace a directory
 * by a link meanwhile, and a path would lead out of the tree. A signal ends it. */
typedef int cli_file_fn(struct cli *c, const char *path, struct sheaf_handle h,
			const struct stat *st, void *data);
int cli_each_file(struct cli *c, int first, bool recursive, cli_file_fn *fn, void *data);
/* The text of a symbolic link inside; 0 or -errno. */
int cli_read_link(struct cli *c, const char *path, char out[CLI_PATH_MAX]);

/* ---------------------------------------------------------------- stream.c: moving bytes */

/* One end of a copy: an open Sheaf file, or a host descriptor that is used sequentially. */
struct cli_stream {
	struct sheaf_file *f; /* NULL: fd is used */
	int fd;
};

/* Progress and stop flag, shared by all concurrent copies of one command. */
struct cli_progress {
	atomic_bool stop; /* running copies end soon, with -EINTR */
	atomic_ullong done; /* bytes copied */
	atomic_uint files; /* files completed */
	atomic_ullong total; /* bytes to copy; 0: not known yet */
	bool draw; /* draw on stderr; this and the next fields belong to one thread at a time */
	uint64_t started, drawn;
};
/* Redraw the progress line, at a limited rate; erase it. */
void cli_progress_draw(struct cli_progress *p);
void cli_progress_clear(struct cli_progress *p);

#define CLI_INTERRUPT_SIGNAL SIGUSR1 /* interrupts a blocking system call, once p->stop is set */

struct cli_copier; /* buffers that are reused from file to file; one copier per thread */

struct cli_copier *cli_copier_new(void);
void cli_copier_free(struct cli_copier *k);
/* Copies `from` (at most `size` bytes when it is inside) to `to`, from offset 0, several blocks at
 * a time, until a short block. A `size` above 4 MiB, as stat gave it, starts a second thread. 0; or
 * -errno with *source telling which end failed; -EINTR after p->stop. */
int cli_copier_run(struct cli_copier *k, struct cli_stream *from, struct cli_stream *to,
		   uint64_t size, struct cli_progress *p, bool *source);

/* ------------------------------------------------ tree_walk.c: several files at a time */

#define TREE_JOBS 16
#define TREE_JOBS_MAX 64 /* the number of slots of a session */
#define TREE_SHOWN (CLI_PATH_MAX + 8)

/* A directory whose names are being processed; the root holds the arguments of the command. May be
 * the first member of a larger struct; tree_walk.c frees it. */
struct cli_dir {
	struct cli_dir *parent, *below;
	struct cli_names names;
	size_t next; /* index of the next name */
	unsigned holds;
	bool failed; /* processing something in it failed; may be read in leave() */
	bool skip; /* do not process the remaining names */
	/* set by tree_enter_inside() */
	struct sheaf_handle handle;
	char path[CLI_PATH_MAX];
};

struct tree_walk {
	struct cli *c;
	struct cli_progress *progress;
	unsigned jobs; /* maximum number of threads */
	/* child() processes one name of d on thread `worker` (0 to jobs - 1), returns an exit
	 * status, and passes directories to tree_enter(). leave(), unless NULL, finishes d when all
	 * in it is done. */
	int (*child)(struct tree_walk *w, unsigned worker, struct cli_dir *d,
		     const struct cli_name *n);
	int (*leave)(struct tree_walk *w, struct cli_dir *d);

	/* private to tree_walk.c */
	pthread_mutex_t lock, tell; /* tell guards stderr, lost and n_left */
	pthread_cond_t more;
	struct cli_dir *top;
	struct tree_worker *workers;
	unsigned n_workers;
	bool done;
	bool interrupted; /* stopped by a signal, before any other reason to stop */
	int status;
	int lost; /* the first error that meant a server did not answer, or 0 */
	char lost_at[TREE_SHOWN];
	unsigned n_left; /* temporary files that could not be removed */
	bool unsure; /* for some of them a server did not answer: they may be gone */
};

/* Sets w->jobs from the value of --jobs, which may be NULL. CLI_OK, or CLI_USAGE after a
 * message. */
int tree_set_jobs(struct tree_walk *w, const char *value);
/* A root of `size` bytes (cleared), whose names are the arguments; NULL after a message. */
struct cli_dir *tree_root(struct cli *c, size_t size, char **args, int n);
/* Processes everything beneath `root`, then leaves it; returns the exit status. */
int tree_run(struct tree_walk *w, struct cli_dir *root);
/* Queues directory d, found in `parent`; d->names must be set. */
void tree_enter(struct tree_walk *w, struct cli_dir *parent, struct cli_dir *d);
/* Reads and queues a directory inside, which may have been removed meanwhile; an exit status. The
 * path is for messages. */
int tree_enter_inside(struct tree_walk *w, struct cli_dir *parent, const char *path,
		      struct sheaf_handle dir);
/* The same for the directory of this name in `parent`, by handle: if it was replaced by a symbolic
 * link since it was listed, it is not entered, since the link may lead out of the tree. */
int tree_enter_name(struct tree_walk *w, struct cli_dir *parent, const char *path,
		    const char *name);

/* Print an error, unless the walk is stopping; return CLI_FAILED. host: a file of this host failed.
 * tree_fail_dir() also skips the remaining names of d, which would fail alike. */
int tree_fail(struct tree_walk *w, const char *shown, bool host, int err);
int tree_fail_dir(struct tree_walk *w, struct cli_dir *d, const char *shown, bool host, int err);
int tree_error(struct tree_walk *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Checks a libsheaf error: a server that does not answer stops the whole walk. */
void tree_check(struct tree_walk *w, const char *shown, int err);
/* True once a server did not answer; calls then time out after CLI_STATUS_MS, to end quickly. */
bool tree_server_lost(struct tree_walk *w);
/* Counts a temporary file that could not be removed because of err. */
void tree_count_left(struct tree_walk *w, int err);

/* ---------------------------------------------------------------- local.c: servers of this host */

struct cli_daemon {
	const struct conf_target *target;
	bool here; /* the address belongs to this host */
	pid_t pid; /* 0: not running */
	int pidfd; /* pidfd of the process, or -1 */
	int notify; /* pipe from which the messages of the starting server are read, or -1 */
	char message[512];
	size_t message_len;
	bool done, ok;
	/* of cli_daemons_ask(): why the server at its address cannot be used (enum sheaf_down), and
	 * the pid that it has told, which may be one of another container */
	int down;
	pid_t asked_pid;
};

#define CLI_START_NS (15 * NSEC_PER_SEC) /* time limit for a started server to be ready */

bool cli_address_is_local(const char *address);
/* Locks the set of servers until close(): no other command starts or adds servers. -1: the key file
 * cannot be read; sheafd reports why. */
int cli_lock_servers(const struct conf *conf);
/* One per target, in the order of the cluster file; finds running ones. NULL: out of memory. */
struct cli_daemon *cli_daemons_find(const struct conf *conf);
/* Asks the servers of this host that are not done and have no pid for it, where anything listens at
 * their addresses. Connects for that and disconnects. An exit status. */
int cli_daemons_ask(struct cli *c, struct cli_daemon *d, const struct conf *conf);
void cli_daemons_free(struct cli_daemon *d, size_t n);
/* Makes the missing parents of a path, with mode 755: 0 or -errno, also in errno. */
int cli_make_parents(const char *path);
/* Removes what is in a directory of this host, and the directory too if `itself`. */
void cli_remove_tree(const char *dir, bool itself);
/* Finds a Sheaf program: in the directory of this program, in ../sbin, or by PATH. */
void cli_find_program(const char *name, char out[CLI_PATH_MAX]);
/* Starts a daemon detached, with its output in `log` and `notify` as descriptor CLI_NOTIFY_FD. 0 or
 * an errno. */
#define CLI_NOTIFY_FD 3
int cli_spawn(const char *program, char **argv, const char *log, int notify, pid_t *pid);
/* Starts the server detached; 0, or -errno with the reason in d->message. */
int cli_daemon_spawn(struct cli_daemon *d, const struct conf *conf);
/* Waits until all servers that are not done are ready or failed, until a signal, or for ns. */
void cli_daemons_wait(struct cli_daemon *d, size_t n, uint64_t ns);
void cli_pid_path(char out[CLI_PATH_MAX], const struct conf_target *t);
pid_t cli_pid_read(const struct conf_target *t); /* the pid in the pid file, or 0 */
void cli_log_path(char out[CLI_PATH_MAX], const struct conf_target *t);

#endif
