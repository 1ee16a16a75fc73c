/* Runs the programs of bench/mpi with mpiexec, on Sheaf, on its mount, or on a directory beside the
 * storage, and reads the JSON that they print.
 *
 * Processes: mpiexec in a session of its own; it ends its ranks when it is told to end. Ranks yield
 * while they wait: Open MPI's by its setting, MPICH's by bench/mpi/preload.
 * Errors: a message quotes the last line of programs.log, where the ranks' stderr goes. */
#include <stdlib.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define TEXT (CLI_PATH_MAX + 256)

static const char *const known[] = { "mpich", "openmpi" };

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

static bool has_program(struct bench *b, const char *program, char path[CLI_PATH_MAX])
{
	char launcher[32];

	snprintf(launcher, sizeof(launcher), "mpiexec.%.16s", b->mpi);
	find_built(b, program, path);
	return in_path(launcher) && access(path, X_OK) == 0;
}

const char *bench_mpi_with(struct bench *b, const char *program, char path[CLI_PATH_MAX])
{
	const char *given = b->mpi, *found = NULL;

	for (size_t i = 0; !found && i < ARRAY_LEN(known); i++) {
		if (given && strcmp(given, known[i]) != 0)
			continue;
		b->mpi = known[i];
		found = has_program(b, program, path) ? known[i] : NULL;
	}
	b->mpi = given;
	return found;
}

static bool is_complete(struct bench *b)
{
	char path[CLI_PATH_MAX];

	if (!has_program(b, "bt", path))
		return false;
	find_library(b, path);
	return access(path, R_OK) == 0;
}

const char *bench_mpi_missing(struct bench *b)
{
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

void bench_words_add(struct bench_words *w, const char *word)
{
	if (w->n < BENCH_MAX_WORDS - 1)
		w->argv[w->n++] = word;
}

void bench_words_text(struct bench_words *w, const char *fmt, ...)
{
	char *out = w->text[w->n_text++];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out, TEXT, fmt, ap);
	va_end(ap);
	bench_words_add(w, out);
}

static void add_launcher(struct bench *b, struct bench_words *w, int n)
{
	static const char *const openmpi[] = { "--oversubscribe", "--mca", "mpi_yield_when_idle",
					       "1" };

	bench_words_text(w, "mpiexec.%s", b->mpi);
	if (strcmp(b->mpi, "openmpi") == 0) {
		for (size_t i = 0; i < ARRAY_LEN(openmpi); i++)
			bench_words_add(w, openmpi[i]);
		if (geteuid() == 0)
			bench_words_add(w, "--allow-run-as-root");
	}
	bench_words_add(w, "-n");
	bench_words_text(w, "%d", n);
}

void bench_mpi_launch(struct bench *b, struct bench_words *w, int n, const char *library)
{
	char yield[CLI_PATH_MAX] = "";

	add_launcher(b, w, n);
	if (strcmp(b->mpi, "mpich") == 0)
		find_built(b, "libmpi-idle-yield.so", yield);
	bench_words_add(w, "env");
	bench_words_text(w, "LD_PRELOAD=%.2000s %.2000s", library, yield);
}

/* The environment of the ranks, by env(1). */
static void add_environment(struct bench *b, struct bench_words *w, const struct bench_mpi_run *run)
{
	bench_words_text(w, "SHEAF_CONF=%s", b->place.client_conf);
	bench_words_add(w, "SHEAF_MPIIO_STATS=1");
	if (run->tcp)
		bench_words_add(w, "SHEAF_NET=tcp");
}

static void add_program(struct bench *b, struct bench_words *w, const struct bench_mpi_run *run)
{
	char path[CLI_PATH_MAX];

	find_built(b, run->program, path);
	bench_words_text(w, "%s", path);
	bench_words_add(w, "--collective");
	bench_words_add(w, run->collective ? "1" : "0");
	bench_words_add(w, "--drop");
	bench_words_add(w, run->side == BENCH_MPI_MOUNT ? "1" : "0");
	for (int i = 0; i < BENCH_MPI_ARGS && run->args[i]; i++)
		bench_words_add(w, run->args[i]);
	if (run->side == BENCH_MPI_SHEAF) {
		bench_words_add(w, "--hint");
		bench_words_text(w, "sheaf_method=%s", run->method);
		bench_words_text(w, "sheaf:%s/%s", b->place.scratch, run->program);
	} else if (run->side == BENCH_MPI_MOUNT) {
		bench_words_text(w, "%s/%s", b->sides[BENCH_SHEAF].dir, run->program);
	} else {
		bench_words_text(w, "%s/local-%s", b->place.dir, run->program);
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

double bench_json_median(struct json_object *o, const char *key, size_t skip)
{
	struct json_object *list;
	uint64_t v[64]; /* billionths */
	size_t n = 0;

	if (!json_object_object_get_ex(o, key, &list) ||
	    !json_object_is_type(list, json_type_array))
		return 0;
	for (size_t i = skip; i < json_object_array_length(list) && n < ARRAY_LEN(v); i++)
		v[n++] = (uint64_t)(json_object_get_double(json_object_array_get_idx(list, i)) *
				    1e9);
	return n ? (double)bench_median(v, n) / 1e9 : 0;
}

static int take_result(struct bench *b, const char *file, struct bench_mpi_result *out)
{
	struct json_object *o = json_object_from_file(file), *v;

	if (!o || !json_object_object_get_ex(o, "bytes", &v)) {
		json_object_put(o);
		return bench_program_fail(b, "the program printed no result", -EIO);
	}
	out->bytes = json_object_get_double(v);
	out->write_s = bench_json_median(o, "write_s", 0);
	out->read_s = bench_json_median(o, "read_s", 0);
	out->total_s = bench_json_median(o, "total_s", 0);
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

int bench_words_run(struct bench *b, const struct bench_words *w, const char *name,
		    const char *what)
{
	static const char script[] = "out=$1 err=$2; shift 2; \"$@\" >\"$out\" 2>\"$err\"; r=$?; "
				     "cat \"$err\" >&2; exit $r";
	char result[CLI_PATH_MAX], errors[CLI_PATH_MAX];
	const char *argv[BENCH_MAX_WORDS + 8] = { "sh", "-c", script, "sh", result, errors };

	snprintf(result, sizeof(result), "%s/%s.json", b->place.dir, name);
	snprintf(errors, sizeof(errors), "%s/%s.log", b->place.dir, name);
	memcpy(argv + 6, w->argv, sizeof(w->argv));
	return bench_program_run(b, what, argv);
}

int bench_mpi_run(struct bench *b, const struct bench_mpi_run *run, struct bench_mpi_result *out)
{
	char path[CLI_PATH_MAX], library[CLI_PATH_MAX] = "";
	struct bench_mpi_result before;
	struct bench_words *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return cli_error(b->c, "out of memory"), -ENOMEM;
	if (run->side == BENCH_MPI_SHEAF)
		find_library(b, library);
	bench_mpi_launch(b, w, BENCH_RANKS, library);
	add_environment(b, w, run);
	add_program(b, w, run);
	memset(out, 0, sizeof(*out));
	r = count(b, &before);
	if (!r)
		r = bench_words_run(b, w, "mpi", run->program);
	if (!r)
		r = count(b, out);
	if (!r) {
		subtract(b, out, &before);
		snprintf(path, sizeof(path), "%s/mpi.log", b->place.dir);
		out->exchanged = exchanged(path);
		snprintf(path, sizeof(path), "%s/mpi.json", b->place.dir);
		r = take_result(b, path, out);
	}
	free(w);
	return r;
}
