/* A checkpoint of a tensor of three dimensions in one file: 4 processes, a rank each, write what
 * they have of it, and 6 processes that divide it in another way read it back.
 *
 *     checkpoint [CLUSTER-FILE | local:DIR] */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sheaf.h>

static const uint64_t tensor[3] = { 48, 64, 96 };
static const uint64_t writers[3] = { 2, 2, 1 }, readers[3] = { 1, 2, 3 };
static const char *conf;

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

/* What a rank has: so many elements from there on, dense in its memory. */
struct shard {
	uint64_t subsizes[3], starts[3], n;
	double *values; /* n of them */
	struct sheaf_type *cell, *there; /* an element, and where in the file they are */
};

/* The ranks are a grid of so many in each dimension, counted as the elements are. */
static struct shard shard_of(unsigned rank, const uint64_t ranks[3])
{
	struct shard s = { .n = 1 };

	for (int d = 2; d >= 0; d--) {
		s.subsizes[d] = tensor[d] / ranks[d];
		s.starts[d] = rank % ranks[d] * s.subsizes[d];
		rank /= ranks[d];
		s.n *= s.subsizes[d];
	}
	must("type", sheaf_type_bytes(sizeof(double), &s.cell));
	must("type", sheaf_type_subarray(3, tensor, s.subsizes, s.starts, s.cell, &s.there));
	s.values = calloc(s.n, sizeof(double));
	must("memory", s.values ? 0 : -ENOMEM);
	return s;
}

static void shard_free(struct shard *s)
{
	free(s->values);
	sheaf_type_free(s->there);
	sheaf_type_free(s->cell);
}

/* What the n-th element of a shard is: the number of its place in the tensor. */
static double element(const struct shard *s, uint64_t n)
{
	uint64_t k = s->starts[2] + n % s->subsizes[2];
	uint64_t j = s->starts[1] + n / s->subsizes[2] % s->subsizes[1];
	uint64_t i = s->starts[0] + n / s->subsizes[2] / s->subsizes[1];

	return (double)((i * tensor[1] + j) * tensor[2] + k);
}

/* A rank's own connection and its own open file; processes share neither. */
static struct sheaf_file *open_it(int flags, struct sheaf **fs)
{
	struct sheaf_file *f;

	if (sheaf_connect(conf, fs) < 0) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		exit(1);
	}
	must("open", sheaf_open(*fs, "/checkpoint", flags, 0644, NULL, &f));
	return f;
}

static void close_it(struct sheaf_file *f, struct sheaf *fs)
{
	must("close", sheaf_close(f));
	sheaf_disconnect(fs);
}

/* One of them makes the file empty, before anybody writes. */
static int make(unsigned rank)
{
	struct sheaf *fs;
	struct sheaf_file *f = open_it(O_WRONLY | O_CREAT | O_TRUNC, &fs);

	(void)rank;
	close_it(f, fs);
	return 0;
}

static int save(unsigned rank)
{
	struct shard s = shard_of(rank, writers);
	struct sheaf *fs;
	struct sheaf_file *f = open_it(O_WRONLY, &fs);

	for (uint64_t n = 0; n < s.n; n++)
		s.values[n] = element(&s, n);
	must("write", sheaf_write_typed(f, s.values, s.cell, s.n, 0, s.there));
	must("sync", sheaf_fsync(f)); /* a checkpoint is one when it is on disk */
	close_it(f, fs);
	shard_free(&s);
	return 0;
}

static int load(unsigned rank)
{
	struct shard s = shard_of(rank, readers);
	struct sheaf *fs;
	struct sheaf_file *f = open_it(O_RDONLY, &fs);
	int bad = 0;

	must("read", sheaf_read_typed(f, s.values, s.cell, s.n, 0, s.there));
	close_it(f, fs);
	for (uint64_t n = 0; n < s.n; n++)
		bad |= s.values[n] != element(&s, n);
	if (bad)
		fprintf(stderr, "reader %u: some elements are wrong\n", rank);
	shard_free(&s);
	return bad;
}

/* Runs n ranks as processes and waits for all. A file system in the process (local:) is for one at
 * a time. */
static void run(unsigned n, int (*rank)(unsigned))
{
	int in_turn = conf && strncmp(conf, "local:", 6) == 0, status, failed = 0;

	for (unsigned i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid == 0)
			exit(rank(i));
		failed += pid < 0;
		if (in_turn)
			failed += wait(&status) < 0 || status;
	}
	while (wait(&status) > 0)
		failed += status != 0;
	if (failed)
		exit(1);
}

int main(int argc, char **argv)
{
	conf = argc > 1 ? argv[1] : getenv("SHEAF_CONF");
	run(1, make);
	run(4, save);
	run(6, load);
	printf("a tensor of 48 x 64 x 96: written by 2 x 2 x 1 ranks, read by 1 x 2 x 3, as it was\n");
	return 0;
}
