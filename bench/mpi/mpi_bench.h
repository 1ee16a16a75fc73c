/* Shared by the MPI benchmarks: arguments, hints, times, known data, and results as JSON.
 *
 * A program is run by mpiexec. Every rank times its own calls between barriers; a time is that of
 * the slowest rank. Rank 0 prints one line of JSON. An MPI error ends all ranks with a message. */
#ifndef SHEAF_MPI_BENCH_H
#define SHEAF_MPI_BENCH_H

#include <fcntl.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MPI_BENCH_MAX 64 /* rounds; hints; parameters; times */

struct mpi_param { /* an option of a program: --NAME NUMBER */
	const char *name;
	double *value;
};

struct mpi_times {
	const char *name;
	double s[MPI_BENCH_MAX];
	int n;
};

struct mpi_bench {
	const char *program, *file;
	struct mpi_param *params;
	int rank, ranks, n_hints, n_times;
	char hints[MPI_BENCH_MAX][128]; /* "key=value" */
	MPI_Info info;
	double rounds, collective, drop, keep; /* common parameters; the last three: 0 or 1 */
	uint64_t bytes; /* of all ranks, in one direction, each round */
	uint64_t wrong; /* bytes that were not read as written, of all ranks */
	struct mpi_times times[MPI_BENCH_MAX];
};

static inline void mpi_fail(struct mpi_bench *b, const char *what, const char *why)
{
	fprintf(stderr, "%s: rank %d: %s: %s\n", b->program, b->rank, what, why);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static inline void mpi_must(struct mpi_bench *b, const char *what, int r)
{
	char why[MPI_MAX_ERROR_STRING] = "";
	int n;

	if (r == MPI_SUCCESS)
		return;
	MPI_Error_string(r, why, &n);
	mpi_fail(b, what, why);
}

/* ---- arguments ---- */

/* Option `i`: those of the program, then those of every program; NULL behind the last one. */
static inline const struct mpi_param *mpi_option(struct mpi_bench *b, int i)
{
	static struct mpi_param common[5];
	int own = 0;

	common[0] = (struct mpi_param){ "rounds", &b->rounds };
	common[1] = (struct mpi_param){ "collective", &b->collective };
	common[2] = (struct mpi_param){ "drop", &b->drop };
	common[3] = (struct mpi_param){ "keep", &b->keep };
	while (b->params[own].name)
		own++;
	if (i < own)
		return &b->params[i];
	return common[i - own].name ? &common[i - own] : NULL;
}

static inline void mpi_usage(struct mpi_bench *b)
{
	const struct mpi_param *p;

	if (b->rank == 0) {
		fprintf(stderr,
			"usage: mpiexec -n N %s [--OPTION NUMBER]... [--hint KEY=VALUE]... FILE\n",
			b->program);
		for (int i = 0; (p = mpi_option(b, i)); i++)
			fprintf(stderr, "  --%s %g\n", p->name, *p->value);
	}
	MPI_Finalize();
	exit(2);
}

static inline void mpi_take(struct mpi_bench *b, const char *name, const char *value)
{
	const struct mpi_param *p;
	char *end;
	int i = 0;

	if (strcmp(name, "hint") == 0 && strchr(value, '=') && b->n_hints < MPI_BENCH_MAX &&
	    strlen(value) < sizeof(b->hints[0])) {
		strcpy(b->hints[b->n_hints++], value);
		return;
	}
	while ((p = mpi_option(b, i)) && strcmp(p->name, name) != 0)
		i++;
	if (!p)
		mpi_usage(b);
	*p->value = strtod(value, &end);
	if (end == value || *end || *p->value < 0)
		mpi_usage(b);
}

static inline void mpi_set_hints(struct mpi_bench *b)
{
	MPI_Info_create(&b->info);
	for (int i = 0; i < b->n_hints; i++) {
		char key[sizeof(b->hints[0])];

		strcpy(key, b->hints[i]);
		*strchr(key, '=') = 0;
		MPI_Info_set(b->info, key, strchr(b->hints[i], '=') + 1);
	}
}

/* `params` ends with a row without a name. */
static inline void mpi_begin(struct mpi_bench *b, struct mpi_param *params, int argc, char **argv)
{
	int i = 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &b->ranks);
	b->params = params;
	for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2)
		mpi_take(b, argv[i] + 2, argv[i + 1]);
	if (i != argc - 1 || b->rounds < 1 || b->rounds > MPI_BENCH_MAX)
		mpi_usage(b);
	b->file = argv[i];
	mpi_set_hints(b);
}

/* ---- times ---- */

static inline double mpi_start(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	return MPI_Wtime();
}

/* The time since `start` of the slowest rank. */
static inline double mpi_slowest(double start)
{
	double mine = MPI_Wtime() - start, all;

	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all;
}

static inline void mpi_note(struct mpi_bench *b, const char *name, double s)
{
	int i = 0;

	while (i < b->n_times && strcmp(b->times[i].name, name) != 0)
		i++;
	if (i == b->n_times)
		b->times[b->n_times++].name = name;
	b->times[i].s[b->times[i].n++] = s;
}

/* ---- known data ---- */

/* The 8 bytes at `offset`, a multiple of 8; `seed` differs from round to round. */
static inline uint64_t mpi_word(uint64_t offset, unsigned seed)
{
	uint64_t h = (offset / 8 + 1) * 0x9e3779b97f4a7c15u + seed * 0x632be59bd9b4e019u;

	return h ^ h >> 29;
}

/* The same as a stream of bytes from any offset: copies up to 8 of them to `out`. */
static inline uint64_t mpi_piece(unsigned char *out, uint64_t n, uint64_t offset, unsigned seed)
{
	uint64_t word = mpi_word(offset & ~7ull, seed), skip = offset % 8;

	n = n < 8 - skip ? n : 8 - skip;
	memcpy(out, (unsigned char *)&word + skip, n);
	return n;
}

static inline void mpi_fill(void *mem, uint64_t n, uint64_t offset, unsigned seed)
{
	for (uint64_t i = 0; i < n;)
		i += mpi_piece((unsigned char *)mem + i, n - i, offset + i, seed);
}

/* How many of the bytes differ. */
static inline uint64_t mpi_compare(const void *mem, uint64_t n, uint64_t offset, unsigned seed)
{
	unsigned char want[8];
	uint64_t wrong = 0, step;

	for (uint64_t i = 0; i < n; i += step) {
		const unsigned char *have = (const unsigned char *)mem + i;

		step = mpi_piece(want, n - i, offset + i, seed);
		if (memcmp(have, want, step) != 0)
			for (uint64_t k = 0; k < step; k++)
				wrong += have[k] != want[k];
	}
	return wrong;
}

/* Adds up what the ranks found wrong. */
static inline void mpi_check(struct mpi_bench *b, uint64_t mine)
{
	uint64_t all;

	MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	b->wrong += all;
}

/* ---- the file ---- */

static inline MPI_File mpi_open(struct mpi_bench *b, int mode)
{
	MPI_File f;

	mpi_must(b, "open", MPI_File_open(MPI_COMM_WORLD, b->file, mode, b->info, &f));
	return f;
}

/* Drops the pages of the file from the cache of this host: of a mount, for example. A name like
 * sheaf:/path has none. Collective. */
static inline void mpi_drop_cache(struct mpi_bench *b)
{
	int fd = b->drop > 0 && b->rank == 0 ? open(b->file, O_RDONLY) : -1;

	if (fd >= 0) {
		fdatasync(fd);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		close(fd);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- the result ---- */

static inline void mpi_print_text(const char *key, const char *text)
{
	printf("\"%s\": \"", key);
	for (; *text && *text != '\n'; text++)
		if ((unsigned char)*text >= ' ' && *text != '"' && *text != '\\')
			putchar(*text);
	printf("\"");
}

static inline void mpi_print(struct mpi_bench *b)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING] = "", *at;
	const struct mpi_param *p;
	int n;

	MPI_Get_library_version(version, &n);
	version[strcspn(version, "\n")] = 0;
	for (at = version; *at; at++)
		*at = *at == '\t' ? ' ' : *at;
	printf("{");
	mpi_print_text("program", b->program);
	printf(", ");
	mpi_print_text("mpi", version);
	printf(", ");
	mpi_print_text("file", b->file);
	printf(", \"processes\": %d, \"bytes\": %llu, \"wrong\": %llu, \"hints\": {", b->ranks,
	       (unsigned long long)b->bytes, (unsigned long long)b->wrong);
	for (int i = 0; i < b->n_hints; i++) {
		at = strchr(b->hints[i], '=');
		*at = 0;
		printf("%s", i ? ", " : "");
		mpi_print_text(b->hints[i], at + 1);
	}
	printf("}");
	for (int i = 0; (p = mpi_option(b, i)); i++)
		printf(", \"%s\": %g", p->name, *p->value);
	for (int i = 0; i < b->n_times; i++) {
		printf(", \"%s_s\": [", b->times[i].name);
		for (int k = 0; k < b->times[i].n; k++)
			printf("%s%.6f", k ? ", " : "", b->times[i].s[k]);
		printf("]");
	}
	printf("}\n");
}

/* Removes the file, prints the result and ends the program: 1 if data were wrong. */
static inline int mpi_end(struct mpi_bench *b)
{
	if (b->rank == 0) {
		if (!b->keep)
			MPI_File_delete(b->file, MPI_INFO_NULL);
		mpi_print(b);
	}
	MPI_Info_free(&b->info);
	MPI_Finalize();
	return b->wrong ? 1 : 0;
}

#endif
