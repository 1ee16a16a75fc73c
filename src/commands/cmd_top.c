/* sheaf top: who uses the servers now: a live table of clients, users or jobs, by requests and
 * bytes per second.
 *
 * The servers add up what each client, user and job has asked for; two samples of these sums make
 * rates. A server that dies is shown as down and asked again with the next sample.
 *
 * Threads: one for each server, at most BATCH at a time, and only while they are asked.
 * Errors: a server that does not answer, or that restarted, has no rates in this sample. */
#include <json-c/json.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/top_rates.h"

#define BATCH 32
#define INTERVAL_S 1.0
#define INTERVAL_MIN_S 0.1
#define INTERVAL_MAX_S 3600.0
#define COLUMNS 80 /* where the output is no terminal */
#define NAME_MIN 16 /* columns of a name, at least */
#define REST_COLUMNS 57 /* of the others, with the spaces between them */

enum { OPT_BY, OPT_SORT, OPT_ONCE, OPT_JSON, OPT_ROWS, OPT_INTERVAL };

/* One server. */
struct source {
	struct top *top;
	int i;
	struct sheaf_server now;
	struct top_sample sample;
	pthread_t thread;
	bool is_threaded;
};

struct top {
	struct cli *c;
	enum sheaf_tally_kind kind;
	const char *by; /* the name of the kind */
	int sort; /* index in sorts */
	bool json, once;
	uint64_t limit; /* rows to show; 0: as many as fit, or all */
	uint64_t interval;
	int timeout_ms;
	int n;
	struct source *sources[SHEAF_MAX_SERVERS];
	struct top_row *rows; /* of all servers together */
	size_t n_rows, room;
};

static const char *const kinds[] = {
	[SHEAF_TALLY_CLIENTS] = "client", [SHEAF_TALLY_USERS] = "user", [SHEAF_TALLY_JOBS] = "job"
};
static const char *const sorts[] = { "ops", "read", "write" };
enum { SORT_OPS, SORT_READ, SORT_WRITE };

/* ---- for sheaf status ---- */

static bool is_empty(const struct sheaf_tally_row *r)
{
	return !r->sessions && !r->requests && !r->bytes_read && !r->bytes_written;
}

static struct json_object *tally_json(struct sheaf *fs, int i, enum sheaf_tally_kind kind)
{
	struct json_object *list = json_object_new_array();
	struct sheaf_tally *t = malloc(sizeof(*t));

	if (t)
		t->size = sizeof(*t);
	if (!t || sheaf_server_tally(fs, i, CLI_STATUS_MS, kind, t)) {
		json_object_put(list);
		free(t);
		return NULL;
	}
	for (uint32_t k = 0; k < t->n; k++) {
		struct json_object *o;

		if (is_empty(&t->rows[k]))
			continue;
		o = json_object_new_object();
		json_object_object_add(o, "name", cli_json_name(t->rows[k].name));
		cli_json_uint(o, "sessions", t->rows[k].sessions);
		cli_json_uint(o, "requests", t->rows[k].requests);
		cli_json_uint(o, "bytes_read", t->rows[k].bytes_read);
		cli_json_uint(o, "bytes_written", t->rows[k].bytes_written);
		json_object_array_add(list, o);
	}
	free(t);
	return list;
}

void tallies_json(struct sheaf *fs, int i, struct json_object *o)
{
	json_object_object_add(o, "users", tally_json(fs, i, SHEAF_TALLY_USERS));
	json_object_object_add(o, "jobs", tally_json(fs, i, SHEAF_TALLY_JOBS));
}

/* ---- asking the servers ---- */

static void *ask(void *arg)
{
	struct source *s = arg;
	struct top *t = s->top;
	int r;

	s->sample.has_rates = false;
	if (sheaf_server_status(t->c->fs, s->i, t->timeout_ms, &s->now) || !s->now.up)
		return NULL;
	r = sheaf_server_tally(t->c->fs, s->i, t->timeout_ms, t->kind, top_next(&s->sample));
	if (!r) {
		top_take(&s->sample);
		return NULL;
	}
	s->now.up = 0;
	snprintf(s->now.why, sizeof(s->now.why), "%s",
		 cli_no_answer(r) ? "it gave no answer" : sheaf_strerror(r));
	return NULL;
}

/* Servers that were added meanwhile. CLI_OK, or CLI_FAILED after a message. */
static int find_servers(struct top *t)
{
	int n = MIN(sheaf_server_count(t->c->fs), SHEAF_MAX_SERVERS);

	for (; t->n < n; t->n++) {
		struct source *s = calloc(1, sizeof(*s));

		if (!s)
			return cli_error(t->c, "out of memory");
		s->top = t;
		s->i = t->n;
		t->sources[t->n] = s;
	}
	return CLI_OK;
}

static int ask_all(struct top *t)
{
	int status = find_servers(t);

	for (int at = 0; at < t->n; at += BATCH) {
		int end = MIN(at + BATCH, t->n);

		for (int i = at; i < end; i++) {
			struct source *s = t->sources[i];

			s->is_threaded = pthread_create(&s->thread, NULL, ask, s) == 0;
			if (!s->is_threaded)
				ask(s);
		}
		for (int i = at; i < end; i++)
			if (t->sources[i]->is_threaded)
				pthread_join(t->sources[i]->thread, NULL);
	}
	return status;
}

/* ---- rows ---- */

static double key_of(const struct top_row *r, int sort)
{
	return sort == SORT_READ  ? r->read_per_s :
	       sort == SORT_WRITE ? r->written_per_s :
				    r->requests_per_s;
}

static uint64_t sum_of(const struct top_row *r, int sort)
{
	return sort == SORT_READ  ? r->bytes_read :
	       sort == SORT_WRITE ? r->bytes_written :
				    r->requests;
}

/* The busiest first; of idle ones the one that was busiest so far. */
static int rows_by_rate(const void *a, const void *b, void *top)
{
	int sort = ((const struct top *)top)->sort;
	double ka = key_of(a, sort), kb = key_of(b, sort);
	uint64_t sa = sum_of(a, sort), sb = sum_of(b, sort);

	if (ka != kb)
		return ka < kb ? 1 : -1;
	if (sa != sb)
		return sa < sb ? 1 : -1;
	return strcmp(((const struct top_row *)a)->name, ((const struct top_row *)b)->name);
}

/* Makes the rows of all servers that are up. CLI_OK, or CLI_FAILED after a message. */
static int make_rows(struct top *t)
{
	size_t need = (size_t)t->n * SHEAF_TALLY_ROWS;

	if (need > t->room) {
		struct top_row *rows = reallocarray(t->rows, need, sizeof(*rows));

		if (!rows)
			return cli_error(t->c, "out of memory");
		t->rows = rows;
		t->room = need;
	}
	t->n_rows = 0;
	for (int i = 0; i < t->n; i++) {
		const struct source *s = t->sources[i];

		if (s->now.up)
			t->n_rows += top_rows(&s->sample, t->rows + t->n_rows);
	}
	t->n_rows = top_join(t->rows, t->n_rows);
	qsort_r(t->rows, t->n_rows, sizeof(t->rows[0]), rows_by_rate, t);
	return CLI_OK;
}

/* ---- output ---- */

static int count_up(const struct top *t)
{
	int up = 0;

	for (int i = 0; i < t->n; i++)
		up += t->sources[i]->now.up;
	return up;
}

static struct json_object *row_json(const struct top_row *r)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "name", cli_json_name(r->name));
	cli_json_uint(o, "sessions", r->sessions);
	cli_json_uint(o, "requests", r->requests);
	cli_json_uint(o, "bytes_read", r->bytes_read);
	cli_json_uint(o, "bytes_written", r->bytes_written);
	cli_json_double(o, "requests_per_s", r->requests_per_s);
	cli_json_double(o, "bytes_read_per_s", r->read_per_s);
	cli_json_double(o, "bytes_written_per_s", r->written_per_s);
	return o;
}

/* One sample is one line. */
static void print_json(const struct top *t)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	cli_json_int(o, "time", time(NULL));
	cli_json_text(o, "by", t->by);
	for (int i = 0; i < t->n; i++) {
		const struct source *s = t->sources[i];
		struct json_object *server = json_object_new_object();

		cli_json_text(server, "name", s->now.name);
		cli_json_bool(server, "up", s->now.up);
		json_object_object_add(server, "why",
				       s->now.up ? NULL : json_object_new_string(s->now.why));
		cli_json_bool(server, "has_rates", s->sample.has_rates);
		json_object_array_add(list, server);
	}
	json_object_object_add(o, "servers", list);
	list = json_object_new_array();
	for (size_t i = 0; i < t->n_rows && (!t->limit || i < t->limit); i++)
		json_object_array_add(list, row_json(&t->rows[i]));
	json_object_object_add(o, "rows", list);
	cli_json_print(o, JSON_C_TO_STRING_PLAIN);
}

/* A line on the servers that are down: the first one, its reason, and how many others. */
static void put_down(const struct top *t, FILE *f, int columns)
{
	char line[512] = "";
	int down = t->n - count_up(t);

	for (int i = 0; i < t->n && !line[0]; i++) {
		const struct sheaf_server *s = &t->sources[i]->now;

		if (!s->up && down > 1)
			snprintf(line, sizeof(line), "%s and %d more are down: %s", s->name,
				 down - 1, s->why);
		else if (!s->up)
			snprintf(line, sizeof(line), "%s is down: %s", s->name, s->why);
	}
	if (line[0])
		fprintf(f, "%.*s\n", columns, line);
}

static void name_text(const struct top *t, const struct top_row *r, char *out, size_t n)
{
	char *end;
	unsigned long uid = strtoul(r->name, &end, 10);
	const struct passwd *p = t->kind == SHEAF_TALLY_USERS && !*end ? getpwuid((uid_t)uid) :
									 NULL;

	snprintf(out, n, "%s", p ? p->pw_name : r->name);
	label_clean(out + (*out == '(')); /* passwd may have anything */
}

/* A name is shortened where the table would not fit. */
static void put_row(const struct top *t, struct cli_table *table, const struct top_row *r,
		    int columns)
{
	char name[65], read[32], written[32], all_read[32], all_written[32];

	name_text(t, r, name, sizeof(name));
	format_size(read, sizeof(read), (uint64_t)r->read_per_s);
	format_size(written, sizeof(written), (uint64_t)r->written_per_s);
	format_size(all_read, sizeof(all_read), r->bytes_read);
	format_size(all_written, sizeof(all_written), r->bytes_written);
	cli_table_add(table, "%.*s\t%.*f\t%s\t%s\t%s\t%s", MAX(columns - REST_COLUMNS, NAME_MIN),
		      name, r->requests_per_s < 10 ? 1 : 0, r->requests_per_s, read, written,
		      all_read, all_written);
}

/* Is anything to be seen in this row? */
static bool is_used(const struct top_row *r)
{
	return r->sessions || r->requests || r->bytes_read || r->bytes_written;
}

static int put_table(const struct top *t, FILE *f, int columns, uint64_t limit)
{
	const char *const heads[] = { t->kind == SHEAF_TALLY_USERS ? "USER" :
				      t->kind == SHEAF_TALLY_JOBS  ? "JOB" :
								     "CLIENT",
				      ">OPS/S",
				      ">READ/S",
				      ">WRITE/S",
				      ">READ",
				      ">WRITTEN" };
	struct cli_table table;
	uint64_t shown = 0;

	cli_table_init(&table, heads, ARRAY_LEN(heads));
	for (size_t i = 0; i < t->n_rows && (!limit || shown < limit); i++)
		if (is_used(&t->rows[i])) {
			put_row(t, &table, &t->rows[i], columns);
			shown++;
		}
	return cli_table_print(&table, f);
}

/* The size of the terminal, or what stands for it. */
static struct winsize size_of_output(bool terminal)
{
	struct winsize w = { .ws_row = 24, .ws_col = COLUMNS };

	if (terminal && (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_row < 6 || w.ws_col < 20))
		w = (struct winsize){ .ws_row = 24, .ws_col = COLUMNS };
	return w;
}

/* Prints one sample in one piece; on a terminal over the one before. 0 or -ENOMEM. */
static int print_block(const struct top *t, bool terminal)
{
	struct winsize w = size_of_output(terminal);
	uint64_t limit = t->limit;
	char date[32] = "", *text = NULL;
	time_t now = time(NULL);
	struct tm tm;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	int r;

	if (!f)
		return -ENOMEM;
	if (terminal) /* beside two or three lines above it, and the cursor's */
		limit = MIN(limit ? limit : w.ws_row, (uint64_t)w.ws_row - 4);
	if (localtime_r(&now, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
	fprintf(f, "%s  %d of %d servers are up%s\n", date, count_up(t), t->n,
		terminal ? "  (q: quit)" : "");
	put_down(t, f, w.ws_col - 1);
	r = put_table(t, f, w.ws_col - 1, limit);
	if (fclose(f))
		r = -ENOMEM;
	if (!r && terminal)
		cli_paint(text);
	else if (!r)
		printf("%s%s", text, t->once ? "" : "\n");
	free(text);
	return r;
}

/* ---- the terminal ---- */

static struct termios saved, raw;
static bool is_raw;

static bool is_in_foreground(void)
{
	return tcgetpgrp(STDIN_FILENO) == getpgrp(); /* others stop when they change a terminal */
}

/* Keys arrive at once and are not shown; Ctrl-C stays a signal. Ctrl-\ would end the command
 * without restoring the terminal. */
static void keys_on(void)
{
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !is_in_foreground() ||
	    tcgetattr(STDIN_FILENO, &saved))
		return;
	raw = saved;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VQUIT] = _POSIX_VDISABLE;
	is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

/* After Ctrl-Z and fg the shell has left the terminal in another mode. */
static void keys_again(void)
{
	if (is_raw && is_in_foreground())
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

static void keys_off(void)
{
	if (is_raw && is_in_foreground())
		tcsetattr(STDIN_FILENO, TCSANOW, &saved);
	is_raw = false;
}

/* Reads one key. False: the input has ended, or the key ends the command. */
static bool take_key(void)
{
	char key;

	return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != 'Q';
}

/* Waits until `end`. False: a signal or a key ends the command, or the reader of stdout is gone. */
static bool wait_until(uint64_t end)
{
	struct pollfd p[2] = { { .fd = STDOUT_FILENO },
			       { .fd = is_raw ? STDIN_FILENO : -1, .events = POLLIN } };
	sigset_t all, old;
	bool goes_on = true;

	sigfillset(&all); /* a signal is delivered before cli_signal is checked, or in ppoll() */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	do { /* also when the answers took longer than the interval: keys count then, too */
		uint64_t now = time_now(), left = now < end ? end - now : 0;
		struct timespec t = { (time_t)(left / NSEC_PER_SEC), (long)(left % NSEC_PER_SEC) };

		if (!cli_signal && ppoll(p, 2, &t, &old) > 0)
			goes_on = !p[0].revents && take_key();
	} while (goes_on && !cli_signal && time_now() < end);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return goes_on && !cli_signal;
}

/* ---- the command ---- */

static int print_sample(struct top *t, bool terminal)
{
	int status = make_rows(t);

	if (status)
		return status;
	if (t->json)
		print_json(t);
	else if (print_block(t, terminal))
		return cli_error(t->c, "out of memory");
	return CLI_OK;
}

/* The first sample has no rates and is not shown. Ends with a key, a signal, or when the reader of
 * stdout is gone. */
static int watch(struct top *t)
{
	static char buffer[64 * KIB]; /* each sample is written in one piece */
	bool terminal = isatty(STDOUT_FILENO) && !t->once && !t->json, goes_on = true;
	uint64_t start = time_now();
	int status = ask_all(t);

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	while (!status && goes_on && wait_until(start + t->interval)) {
		start = time_now();
		keys_again();
		status = ask_all(t);
		status = status ? status : print_sample(t, terminal);
		goes_on = fflush(stdout) == 0 && !t->once;
	}
	if (terminal && !ferror(stdout))
		putchar('\n'); /* the shell prompt goes below */
	return status;
}

static int take_word(struct cli *c, int option, const char *const *words, size_t n, int *out)
{
	const char *text = c->opt[option];

	for (size_t i = 0; text && i < n; i++)
		if (strcmp(text, words[i]) == 0) {
			*out = (int)i;
			return CLI_OK;
		}
	return text ? cli_usage(c, "--%s %s: not one of %s, %s, %s", c->cmd->options[option].name,
				text, words[0], words[1], words[2]) :
		      CLI_OK;
}

static int take_options(struct top *t)
{
	struct cli *c = t->c;
	const char *rows = c->opt[OPT_ROWS], *interval = c->opt[OPT_INTERVAL];
	double seconds = INTERVAL_S;
	int kind = SHEAF_TALLY_CLIENTS;
	char *end;

	if (take_word(c, OPT_BY, kinds, ARRAY_LEN(kinds), &kind) ||
	    take_word(c, OPT_SORT, sorts, ARRAY_LEN(sorts), &t->sort))
		return CLI_USAGE;
	t->kind = (enum sheaf_tally_kind)kind;
	t->by = kinds[kind];
	t->json = c->opt[OPT_JSON];
	t->once = c->opt[OPT_ONCE];
	if (rows && cli_number(rows, 1, 100000, &t->limit))
		return cli_usage(c, "-n %s: not a number from 1 to 100000", rows);
	if (interval) {
		seconds = strtod(interval, &end);
		if (end == interval || *end ||
		    !(seconds >= INTERVAL_MIN_S && seconds <= INTERVAL_MAX_S))
			return cli_usage(c, "--interval %s: not a number of seconds from %g to %g",
					 interval, INTERVAL_MIN_S, INTERVAL_MAX_S);
	}
	t->interval = (uint64_t)(seconds * 1e9);
	return CLI_OK;
}

/* The exit status of a command that was ended, and of --once without all servers. */
static int end_status(struct top *t)
{
	int status = CLI_OK;

	for (int i = 0; i < t->n && t->once; i++) {
		const struct sheaf_server *s = &t->sources[i]->now;

		if (!s->up)
			status =
				cli_error(t->c, "%s (%s) is down: %s", s->name, s->address, s->why);
	}
	if (cli_signal == SIGINT)
		cli_signal = 0;
	else if (cli_signal)
		status = CLI_FAILED;
	return status;
}

static int run_top(struct cli *c)
{
	struct top t = { .c = c, .timeout_ms = CLI_STATUS_MS };
	int status = take_options(&t);

	status = status ? status : cli_connect(c);
	if (status)
		return status;
	cli_catch_signals();
	keys_on();
	status = watch(&t);
	keys_off();
	status = status ? status : end_status(&t);
	for (int i = 0; i < t.n; i++)
		free(t.sources[i]);
	free(t.rows);
	return status;
}

const struct cli_command cmd_top = {
	.name = "top",
	.usage =
		"[--by client|user|job] [--sort ops|read|write] [--once] [--json] [-n N] [--interval SECONDS]",
	.summary = "show which clients, users or jobs use the servers now",
	.run = run_top,
	.options = { { 0, "by", "WHAT", "client (the default), user or job" },
		     { 0, "sort", "COLUMN", "ops (the default), read or write: per second" },
		     { 0, "once", NULL, "show one table and end" },
		     { 0, "json", NULL, "for programs: one object a line for each sample" },
		     { 'n', "rows", "N", "show the first N rows; default: as many as fit" },
		     { 0, "interval", "SECONDS", "ask the servers so often; default: 1" } },
	.more = "The table has requests and bytes per second, and bytes since the servers started. q or Ctrl-C ends it.\n"
		"A program belongs to the job that SHEAF_JOB names, else to that of Slurm, PBS, LSF or Grid Engine.\n"
		"With --once, exit status 1 also means that not all servers are up.\n",
	.examples = "  sheaf top --by job --sort write\n"
		    "  sheaf top --by user --once --json | jq -r '.rows[0].name'\n",
};
