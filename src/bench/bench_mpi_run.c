/* Runs the programs of bench/mpi with mpiexec, on Sheaf, on its mount, or on a directory beside the
 * storage, and reads the JSON that they print.
 *
 * Processes: mpiexec in a session of its own; it ends its ranks when it is told to end. Ranks yield
 * while they wait: Open MPI's by its setting, MPICH's by bench/mpi/preload.
 * Errors: a message quotes the last line of programs.log, where the ranks' stderr goes. */
#include <stdlib.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define MAX_ARGS 48
#define TEXT (CLI_PATH_MAX + 256)

struct words { /* a command line under construction */
	const char *argv[MAX_ARGS];
	char text[16][TEXT];
	int n, n_text;
};

/* ---- what is installed ---- */

static bool in_path(const char *program)
{
	const char *path = getenv("PATH");
	char all[8192], file[CLI_PATH_MAX], *save, *dir;

	snprintf(all, sizeof(all), "%s", path ? path : "");
	for (dir = strtok_r(all, ":", &save); dir; dir = strtok_r(NULL, ":", &save))
		if (cli_join(file, dir, program) == 0 && access(file, X_OK) == 0)
			return true;
	return false;
}

static void find_built(const struct bench *b, const char *name, char out[CLI_PATH_MAX])
{
	char relative[128];

	snprintf(relative, sizeof(relative), "../bench/mpi/%.16s/%.64s", b->mpi, name);
	cli_find_program(relative, out);
}

static void find_library(const struct bench *b, char out[CLI_PATH_MAX])
{
	char relative[64];

	snprintf(relative, sizeof(relative), "../lib/libsheaf-mpiio-%.16s.so", b->mpi);
	cli_find_program(relative, out);
}

static bool is_complete(struct bench *b)
{
	char launcher[32], path[CLI_PATH_MAX];

	snprintf(launcher, sizeof(launcher), "mpiexec.%.16s", b->mpi);
	find_built(b, "bt", path);
	if (!in_path(launcher) || access(path, X_OK) < 0)
		return false;
	find_library(b, path);
	return access(path, R_OK) == 0;
}

const char *bench_mpi_missing(struct bench *b)
{
	static const char *const known[] = { "mpich", "openmpi" };
	const char *why = bench_mount_missing(b);

	if (why || (b->mpi && is_complete(b)))
		return why;
	for (size_t i = 0; !b->mpi && i < ARRAY_LEN(known); i++) {
		b->mpi = known[i];
		if (is_complete(b))
			return NULL;
		b->mpi = NULL;
	}
	return "mpiexec.mpich or mpiexec.openmpi, bench/mpi or the MPI-IO library is not there: "
	       "install the MPI with its headers, and build from source";
}

/* ---- the command line ---- */

static void add(struct words *w, const char *word)
{
	if (w->n < MAX_ARGS - 1)
		w->argv[w->n++] = word;
}

static void add_text(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_text(struct words *w, const char *fmt, ...)
{
	char *out = w->text[w->n_text++];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out, TEXT, fmt, ap);
	va_end(ap);
	add(w, out);
}

static void add_launcher(struct bench *b, struct words *w)
{
	static const char *const openmpi[] = { "--oversubscribe", "--mca", "mpi_yield_when_idle",
					       "1" };

	add_text(w, "mpiexec.%s", b->mpi);
	if (strcmp(b->mpi, "openmpi") == 0) {
		for (size_t i = 0; i < ARRAY_LEN(openmpi); i++)
			add(w, openmpi[i]);
		if (geteuid() == 0)
			add(w, "--allow-run-as-root");
	}
	add(w, "-n");
	add_text(w, "%d", BENCH_RANKS);
}

/* The environment of the ranks, by env(1). */
static void add_environment(struct bench *b, struct words *w, const struct bench_mpi_run *run)
{
	char yield[CLI_PATH_MAX] = "", library[CLI_PATH_MAX] = "";

	if (strcmp(b->mpi, "mpich") == 0)
		find_built(b, "libmpi-idle-yield.so", yield);
	if (run->side == BENCH_MPI_SHEAF)
		find_library(b, library);
	add(w, "env");
	snprintf(w->text[w->n_text], TEXT, "LD_PRELOAD=%.2000s %.2000s", library, yield);
	add(w, w->text[w->n_text++]);
	add_text(w, "SHEAF_CONF=%s", b->place.client_conf);
	add(w, "SHEAF_MPIIO_STATS=1");
	if (run->tcp)
		add(w, "SHEAF_NET=tcp");
}

static void add_program(struct bench *b, struct words *w, const struct bench_mpi_run *run)
{
	char path[CLI_PATH_MAX];

	find_built(b, run->program, path);
	add_text(w, "%s", path);
	add(w, "--collective");
	add(w, run->collective ? "1" : "0");
	add(w, "--drop");
	add(w, run->side == BENCH_MPI_MOUNT ? "1" : "0");
	for (int i = 0; i < BENCH_MPI_ARGS && run->args[i]; i++)
		add(w, run->args[i]);
	if (run->side == BENCH_MPI_SHEAF) {
		add(w, "--hint");
		add_text(w, "sheaf_method=%s", run->method);
		add_text(w, "sheaf:%s/%s", b->place.scratch, run->program);
	} else if (run->side == BENCH_MPI_MOUNT) {
		add_text(w, "%s/%s", b->sides[BENCH_SHEAF].dir, run->program);
	} else {
		add_text(w, "%s/local-%s", b->place.dir, run->program);
	}
}

/* ---- what the servers did ---- */

static int count(struct bench *b, struct bench_mpi_result *out)
{
	struct sheaf_server s;
	int r;

	out->requests = out->accesses = out->moved = 0;
	for (int i = 0; i < b->servers; i++) {
		r = bench_server_status(b, i, &s);
		if (r)
			return r;
		out->requests += (double)s.requests;
		out->accesses += (double)s.accesses_performed;
		out->moved += (double)(s.bytes_read + s.bytes_written);
	}
	return 0;
}

/* Leaves the differences in `out`; a question for the status is a request, too. */
static void subtract(const struct bench *b, struct bench_mpi_result *out,
		     const struct bench_mpi_result *before)
{
	out->requests -= before->requests + b->servers;
	out->accesses -= before->accesses;
	out->moved -= before->moved;
}

/* ---- the run ---- */

/* The median of an array of seconds, 0 if it is not there. */
static double median_of(struct json_object *o, const char *key)
{
	struct json_object *list;
	uint64_t ns[64];
	size_t n = 0;

	if (!json_object_object_get_ex(o, key, &list) ||
	    !json_object_is_type(list, json_type_array))
		return 0;
	for (; n < json_object_array_length(list) && n < ARRAY_LEN(ns); n++)
		ns[n] = (uint64_t)(json_object_get_double(json_object_array_get_idx(list, n)) *
				   1e9);
	return n ? (double)bench_median(ns, n) / 1e9 : 0;
}

static int take_result(struct bench *b, const char *file, struct bench_mpi_result *out)
{
	struct json_object *o = json_object_from_file(file), *v;

	if (!o || !json_object_object_get_ex(o, "bytes", &v)) {
		json_object_put(o);
		return bench_program_fail(b, "the program printed no result", -EIO);
	}
	out->bytes = json_object_get_double(v);
	out->write_s = median_of(o, "write_s");
	out->read_s = median_of(o, "read_s");
	out->total_s = median_of(o, "total_s");
	json_object_put(o);
	return 0;
}

/* Adds up the bytes that the ranks exchanged, from the library's statistics. */
static double exchanged(const char *file)
{
	char line[1024];
	const char *at;
	double sum = 0;
	FILE *f = fopen(file, "re");

	while (f && fgets(line, sizeof(line), f)) {
		at = strstr(line, " requests to servers, ");
		sum += at ? strtod(at + strlen(" requests to servers, "), NULL) : 0;
	}
	if (f)
		fclose(f);
	return sum;
}

int bench_mpi_run(struct bench *b, const struct bench_mpi_run *run, struct bench_mpi_result *out)
{
	static const char script[] = "out=$1 err=$2; shift 2; \"$@\" >\"$out\" 2>\"$err\"; r=$?; "
				     "cat \"$err\" >&2; exit $r";
	char result[CLI_PATH_MAX], errors[CLI_PATH_MAX];
	struct bench_mpi_result before;
	struct words *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return cli_error(b->c, "out of memory"), -ENOMEM;
	snprintf(result, sizeof(result), "%s/mpi.json", b->place.dir);
	snprintf(errors, sizeof(errors), "%s/mpi.log", b->place.dir);
	add(w, "sh");
	add(w, "-c");
	add(w, script);
	add(w, "sh");
	add(w, result);
	add(w, errors);
	add_launcher(b, w);
	add_environment(b, w, run);
	add_program(b, w, run);
	memset(out, 0, sizeof(*out));
	r = count(b, &before);
	if (!r)
		r = bench_program_run(b, run->program, w->argv);
	if (!r)
		r = count(b, out);
	if (!r) {
		subtract(b, out, &before);
		out->exchanged = exchanged(errors);
		r = take_result(b, result, out);
	}
	free(w);
	return r;
}
