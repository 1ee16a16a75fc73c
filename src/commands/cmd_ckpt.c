/* sheaf ckpt: the checkpoints of jobs: list, show, verify, keep, remove, and request one. */
#include <json-c/json.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands/ckpt_run.h"
#include "commands/commands.h"
#include "sheaf_ckpt.h"

#define MOST 4096 /* checkpoints of a job, and pieces of a process, that are shown */
#define WAIT_MS 100
#define RUN 6 /* of the list in run_ckpt() */

enum { OPT_DIR, OPT_PROCESS, OPT_WAIT, OPT_JOB, OPT_INTERVAL, OPT_KEEP, OPT_RESTART, OPT_JSON };

struct target {
	const char *dir; /* NULL: the default */
	const char *job;
	uint64_t number;
};

static int failed(struct cli *c, int err)
{
	const char *why = sheaf_ckpt_why();

	c->lost = cli_no_answer(err);
	return cli_error(c, "%s", *why ? why : sheaf_strerror(err));
}

/* ---- list ---- */

static struct json_object *info_json(const struct sheaf_ckpt_info *v)
{
	struct json_object *o = json_object_new_object();

	cli_json_uint(o, "number", v->number);
	cli_json_bool(o, "complete", v->complete);
	if (!v->complete)
		return o;
	cli_json_uint(o, "since", v->since);
	cli_json_uint(o, "processes", v->processes);
	cli_json_uint(o, "bytes", v->bytes);
	cli_json_int(o, "taken", v->taken);
	cli_json_double(o, "seconds", v->seconds);
	cli_json_bool(o, "one_file", v->one_file);
	return o;
}

static void info_row(struct cli_table *t, const char *job, const struct sheaf_ckpt_info *v)
{
	const struct timespec taken = { .tv_sec = v->taken };
	char size[32], date[64], what[64] = "full";

	if (!v->complete) {
		cli_table_add(t, "%s\t%llu\tincomplete\t-\t-\t-\t-", job,
			      (unsigned long long)v->number);
		return;
	}
	if (v->since)
		snprintf(what, sizeof(what), "changes since %llu", (unsigned long long)v->since);
	format_size(size, sizeof(size), v->bytes);
	cli_date(date, sizeof(date), &taken, time(NULL));
	cli_table_add(t, "%s\t%llu\t%s\t%u\t%s\t%.2f s\t%s", job, (unsigned long long)v->number,
		      what, v->processes, size, v->seconds, date);
}

static int list_job(struct cli *c, const struct target *t, struct cli_table *rows,
		    struct json_object *jobs)
{
	struct sheaf_ckpt_info *v = calloc(MOST, sizeof(*v));
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	int n = v ? sheaf_ckpt_list(c->fs, t->dir, t->job, v, MOST) : -ENOMEM;

	json_object_object_add(o, "job", cli_json_name(t->job));
	json_object_object_add(o, "checkpoints", list);
	for (int i = 0; i < n && i < MOST; i++) {
		json_object_array_add(list, info_json(&v[i]));
		info_row(rows, t->job, &v[i]);
	}
	json_object_array_add(jobs, o);
	free(v);
	return n < 0 ? failed(c, n) : CLI_OK;
}

static int list_all(struct cli *c, const struct target *t, struct cli_table *rows,
		    struct json_object *jobs)
{
	struct cli_names names = { .n = 0 };
	const char *dir = t->dir ? t->dir : "/ckpt";
	int r = cli_names_inside(c, dir, false, &names), status = CLI_OK;

	if (r && !(r == -ENOENT && !t->dir))
		status = cli_fail(c, dir, r);
	for (size_t i = 0; !r && i < names.n && !c->lost; i++) {
		const struct target one = { .dir = t->dir, .job = names.v[i].name };

		if (S_ISDIR(names.v[i].type) && names.v[i].name[0] != '.')
			status |= list_job(c, &one, rows, jobs);
	}
	cli_names_free(&names);
	return status;
}

static int run_list(struct cli *c, const struct target *t)
{
	static const char *const heads[] = { "JOB",   ">NUMBER", "CONTENTS", ">PROCESSES",
					     ">DATA", ">TOOK",	 "TAKEN" };
	struct json_object *o = json_object_new_object(), *jobs = json_object_new_array();
	struct cli_table rows;
	int status;

	cli_table_init(&rows, heads, ARRAY_LEN(heads));
	status = t->job ? list_job(c, t, &rows, jobs) : list_all(c, t, &rows, jobs);
	json_object_object_add(o, "jobs", jobs);
	if (c->opt[OPT_JSON]) {
		free(rows.text);
		cli_json_print(o, JSON_C_TO_STRING_PRETTY);
	} else {
		json_object_put(o);
		if (cli_table_print(&rows, stdout))
			status = cli_error(c, "out of memory");
	}
	return status;
}

/* ---- show ---- */

/* The newest complete one if no number is given. */
static int newest(struct cli *c, struct target *t)
{
	struct sheaf_ckpt_info *v;
	int n;

	if (t->number)
		return CLI_OK;
	v = calloc(MOST, sizeof(*v));
	n = v ? sheaf_ckpt_list(c->fs, t->dir, t->job, v, MOST) : -ENOMEM;
	for (int i = 0; i < n && i < MOST && !t->number; i++)
		t->number = v[i].complete ? v[i].number : 0;
	free(v);
	if (n < 0)
		return failed(c, n);
	return t->number ? CLI_OK : cli_error(c, "job '%s' has no complete checkpoint", t->job);
}

static int run_show(struct cli *c, struct target *t)
{
	static const char *const heads[] = { "PIECE", ">BYTES", ">GLOBAL" };
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct sheaf_ckpt_piece *v = calloc(MOST, sizeof(*v));
	uint64_t process = 0;
	struct cli_table rows;
	int n, status = newest(c, t);

	cli_table_init(&rows, heads, ARRAY_LEN(heads));
	if (!status && c->opt[OPT_PROCESS] &&
	    cli_number(c->opt[OPT_PROCESS], 0, UINT32_MAX, &process))
		status = cli_usage(c, "'%s' is no number of a process", c->opt[OPT_PROCESS]);
	n = status || !v ?
		    0 :
		    sheaf_ckpt_pieces(c->fs, t->dir, t->job, t->number, (uint32_t)process, v, MOST);
	if (n < 0)
		status = failed(c, n);
	for (int i = 0; i < n && i < MOST; i++) {
		struct json_object *row = json_object_new_object();

		json_object_object_add(row, "name", cli_json_name(v[i].name));
		cli_json_uint(row, "bytes", v[i].bytes);
		cli_json_uint(row, "global_bytes", v[i].global);
		json_object_array_add(list, row);
		cli_table_add(&rows, "%s\t%llu\t%llu", v[i].name, (unsigned long long)v[i].bytes,
			      (unsigned long long)v[i].global);
	}
	free(v);
	cli_json_uint(o, "number", t->number);
	cli_json_uint(o, "process", process);
	json_object_object_add(o, "pieces", list);
	if (!status && c->opt[OPT_JSON])
		cli_json_print(json_object_get(o), JSON_C_TO_STRING_PRETTY);
	json_object_put(o);
	if (status || c->opt[OPT_JSON])
		free(rows.text);
	else if (cli_table_print(&rows, stdout))
		status = cli_error(c, "out of memory");
	return status;
}

/* ---- verify, keep, rm, now ---- */

static void print_json(struct cli *c, const char *key, uint64_t value)
{
	struct json_object *o = json_object_new_object();

	(void)c;
	cli_json_uint(o, key, value);
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
}

static int run_verify(struct cli *c, struct target *t)
{
	int status = newest(c, t), r = 0;

	if (!status)
		r = sheaf_ckpt_verify(c->fs, t->dir, t->job, t->number);
	if (status || r)
		return r ? failed(c, r) : status;
	if (c->opt[OPT_JSON])
		print_json(c, "verified", t->number);
	else
		printf("checkpoint %llu of %s: all checksums are right\n",
		       (unsigned long long)t->number, t->job);
	return CLI_OK;
}

static int run_keep(struct cli *c, const struct target *t)
{
	int r;

	if (c->n_args < 3 || t->number > UINT32_MAX)
		return cli_usage(c, "keep needs a job and how many checkpoints stay");
	r = sheaf_ckpt_keep(c->fs, t->dir, t->job, (uint32_t)t->number);
	if (r < 0)
		return failed(c, r);
	if (c->opt[OPT_JSON])
		print_json(c, "removed", (uint64_t)r);
	else
		printf("%d removed\n", r);
	return CLI_OK;
}

static int run_rm(struct cli *c, const struct target *t)
{
	int r;

	if (c->n_args < 3)
		return cli_usage(
			c, "rm needs a job and the number of a checkpoint; 'sheaf rm -r' removes "
			   "all of a job that does not run");
	r = sheaf_ckpt_remove(c->fs, t->dir, t->job, t->number);
	if (r)
		return failed(c, r);
	if (c->opt[OPT_JSON])
		print_json(c, "removed", 1);
	return CLI_OK;
}

/* The number of the newest one, or of the newest complete one. 0, or -errno; -ENOENT: there is no
 * such job yet. */
static int newest_number(struct cli *c, const struct target *t, bool complete, uint64_t *number)
{
	struct sheaf_ckpt_info v[64];
	int n = sheaf_ckpt_list(c->fs, t->dir, t->job, v, 64);

	*number = 0;
	for (int i = 0; i < n && i < 64 && !*number; i++)
		if (v[i].complete || !complete)
			*number = v[i].number;
	return MIN(n, 0);
}

static int run_now(struct cli *c, const struct target *t)
{
	uint64_t before, now, seconds = 0, end;
	int r = newest_number(c, t, false, &before); /* one under way began before the request */

	if (r && r != -ENOENT)
		return failed(c, r);
	if (c->opt[OPT_WAIT] && cli_number(c->opt[OPT_WAIT], 1, 86400, &seconds))
		return cli_usage(c, "'%s' is no number of seconds", c->opt[OPT_WAIT]);
	end = time_now() + seconds * NSEC_PER_SEC;
	/* a job that was just started has not opened its checkpoints yet */
	while ((r = sheaf_ckpt_now(c->fs, t->dir, t->job)) == -ENOENT && time_now() < end &&
	       !cli_signal)
		usleep(WAIT_MS * 1000);
	if (r)
		return failed(c, r);
	while ((newest_number(c, t, true, &now), now <= before) && time_now() < end && !cli_signal)
		usleep(WAIT_MS * 1000);
	if (seconds && now <= before)
		return cli_error(
			c,
			"job '%s' has taken no checkpoint within %llu s: it takes one in its next "
			"sheaf_ckpt_poll()",
			t->job, (unsigned long long)seconds);
	if (c->opt[OPT_JSON])
		print_json(c, "newest", now);
	else if (seconds)
		printf("checkpoint %llu\n", (unsigned long long)now);
	else
		printf("requested: %s takes a checkpoint in its next sheaf_ckpt_poll()\n", t->job);
	return CLI_OK;
}

/* ---- run ---- */

static int run_run(struct cli *c, const char *dir)
{
	struct ckpt_run_options o = { .job = c->opt[OPT_JOB],
				      .dir = dir,
				      .restart = c->opt[OPT_RESTART],
				      .argv = c->n_args > 1 ? c->args + 1 : NULL };
	uint64_t keep = 0;

	if (!o.argv && !(o.restart && o.job))
		return cli_usage(c, "run needs a command, or --restart and --job");
	if (c->opt[OPT_INTERVAL] && cli_number(c->opt[OPT_INTERVAL], 1, 86400 * 365, &o.interval_s))
		return cli_usage(c, "'%s' is no number of seconds", c->opt[OPT_INTERVAL]);
	if (c->opt[OPT_KEEP] && cli_number(c->opt[OPT_KEEP], 1, UINT32_MAX, &keep))
		return cli_usage(c, "'%s' is no number of checkpoints", c->opt[OPT_KEEP]);
	o.keep = (uint32_t)keep;
	return ckpt_run(c, &o);
}

/* ---- the command ---- */

static int run_ckpt(struct cli *c)
{
	const char *what = c->args[0];
	struct target t = { .job = c->n_args > 1 ? c->args[1] : NULL };
	static const char *const all[] = { "list", "show", "rm", "verify", "keep", "now", "run" };
	char dir[CLI_PATH_MAX];
	size_t which = 0;
	int status;

	while (which < ARRAY_LEN(all) && strcmp(what, all[which]) != 0)
		which++;
	if (which == ARRAY_LEN(all))
		return cli_usage(c, "'%s' is none of list, show, rm, verify, keep, now, run", what);
	if (strcmp(what, "run") != 0 && c->n_args > 3)
		return cli_usage(c, "%s takes a job and a number", what);
	if (which && which != RUN && !t.job)
		return cli_usage(c, "%s needs the name of a job", what);
	if (which != RUN && c->n_args > 2 && cli_number(c->args[2], 0, UINT64_MAX, &t.number))
		return cli_usage(c, "'%s' is no number", c->args[2]);
	if (c->opt[OPT_DIR]) {
		if (cli_inside_path(c->opt[OPT_DIR], dir))
			return cli_usage(c, "the path of --dir is too long");
		t.dir = dir;
	}
	if (which == RUN)
		return run_run(c, t.dir);
	status = cli_connect(c);
	if (status)
		return status;
	switch (which) {
	case 0:
		return run_list(c, &t);
	case 1:
		return run_show(c, &t);
	case 2:
		return run_rm(c, &t);
	case 3:
		return run_verify(c, &t);
	case 4:
		return run_keep(c, &t);
	}
	return run_now(c, &t);
}

const struct cli_command cmd_ckpt = {
	.name = "ckpt",
	.usage =
		"list|show|rm|verify|keep|now|run [JOB [NUMBER] | -- COMMAND...] [--dir PATH] [--json]",
	.summary = "the checkpoints of long computations",
	.run = run_ckpt,
	.min_args = 1,
	.max_args = -1,
	.options = { [OPT_DIR] = { 0, "dir", "PATH", "the directory of the jobs (/ckpt)" },
		     [OPT_PROCESS] = { 0, "process", "N", "show: of this process (0)" },
		     [OPT_WAIT] = { 0, "wait", "SECONDS", "now: until it is complete" },
		     [OPT_JOB] = { 0, "job", "JOB", "run: its name (the command's)" },
		     [OPT_INTERVAL] = { 0, "interval", "SECONDS", "run: a checkpoint that often" },
		     [OPT_KEEP] = { 0, "keep", "N", "run: complete checkpoints that are kept (2)" },
		     [OPT_RESTART] = { 0, "restart", NULL, "run: from the newest complete one" },
		     [OPT_JSON] = { 0, "json", NULL, "for programs" } },
	.more = "list: of one job or all; show: the pieces of a checkpoint; rm: removes one; verify: reads all of\n"
		"it and compares the checksums (the newest complete one, or NUMBER); keep: the newest NUMBER stay,\n"
		"now and from now on (0: as the program says); now: requests one of a running job; run: runs a program\n"
		"that has no calls for checkpoints, which CRIU makes of it and all processes below it.\n",
	.examples = "  sheaf ckpt list\n"
		    "  sheaf ckpt now wave --wait 60\n"
		    "  sheaf ckpt verify wave && sheaf ckpt keep wave 3\n"
		    "  sheaf ckpt run --restart --interval 600 -- ./app input\n",
};
