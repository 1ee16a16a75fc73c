/* appenders DIR [DIR2]: eight processes append records of random length to one file with O_APPEND,
 * four of them through each directory. Afterwards every record must be there once, whole, and in
 * the order of its writer.
 *
 *     appenders DIR [DIR2] [--records N] [--seed S]
 *
 * DIR2 is DIR through another mount, or missing. Threads: none. Errors: one line; exit status 1, 2
 * for wrong usage. The file is kept if a check fails. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define WRITERS 8
#define LENGTH_MAX 20000
#define MAGIC UINT32_C(0x52454301)

struct record {
	uint32_t magic, writer, number, length; /* length includes this head */
};

static unsigned long seed = 1, records = 300;
static char path[2][PATH_MAX];

static uint32_t length_of(uint32_t writer, uint32_t number)
{
	uint64_t s = seed ^ ((uint64_t)writer << 32 | number);
	uint64_t r = test_random(&s);

	return (uint32_t)(sizeof(struct record) + r % (r >> 63 ? 300 : LENGTH_MAX));
}

static void make(uint8_t *to, uint32_t writer, uint32_t number)
{
	struct record r = { MAGIC, writer, number, length_of(writer, number) };

	memcpy(to, &r, sizeof(r));
	for (uint32_t i = sizeof(r); i < r.length; i++)
		to[i] = (uint8_t)(writer * 31 + number * 7 + i * 13 + (i >> 8));
}

static int append_all(uint32_t writer)
{
	static uint8_t b[sizeof(struct record) + LENGTH_MAX];
	int fd = open(path[writer % 2], O_WRONLY | O_APPEND);

	for (uint32_t i = 0; fd >= 0 && i < records; i++) {
		uint32_t len = length_of(writer, i);

		make(b, writer, i);
		if (write(fd, b, len) != (ssize_t)len) {
			printf("appenders: writer %u, record %u: %s\n", writer, i, strerror(errno));
			return 1;
		}
	}
	if (fd < 0 || close(fd)) {
		printf("appenders: writer %u: %s: %s\n", writer, path[writer % 2], strerror(errno));
		return 1;
	}
	return 0;
}

/* Reads the whole file and checks it record by record. */
static int check(const char *name)
{
	static uint8_t want[sizeof(struct record) + LENGTH_MAX];
	uint32_t next[WRITERS] = { 0 };
	struct stat st;
	int fd = open(name, O_RDONLY);
	uint8_t *b;
	size_t at = 0, got = 0;

	if (fd < 0 || fstat(fd, &st)) {
		printf("appenders: %s: %s\n", name, strerror(errno));
		return 1;
	}
	b = malloc((size_t)st.st_size + 1);
	for (ssize_t n; (n = read(fd, b + got, (size_t)st.st_size + 1 - got)) > 0;)
		got += (size_t)n;
	close(fd);
	while (at + sizeof(struct record) <= got) {
		struct record r;

		memcpy(&r, b + at, sizeof(r));
		if (r.magic != MAGIC || r.writer >= WRITERS || r.number != next[r.writer] ||
		    r.length != length_of(r.writer, r.number) || r.length > got - at)
			break;
		make(want, r.writer, r.number);
		if (memcmp(b + at, want, r.length))
			break;
		next[r.writer]++;
		at += r.length;
	}
	free(b);
	for (uint32_t i = 0; i < WRITERS; i++)
		if (at != got || next[i] != records) {
			printf("appenders: %s: of %zu bytes %zu are whole records in order; writer %u has "
			       "%u of %lu\n",
			       name, got, at, i, next[i], records);
			return 1;
		}
	printf("appenders: %zu bytes, %lu records of %d writers, each once and whole\n", got,
	       records * WRITERS, WRITERS);
	return 0;
}

static int run(void)
{
	pid_t p[WRITERS];
	int status, failed = 0, fd = open(path[0], O_RDWR | O_CREAT | O_EXCL, 0644);

	if (fd < 0 || close(fd)) {
		printf("appenders: %s: %s\n", path[0], strerror(errno));
		return 1;
	}
	fflush(stdout);
	for (uint32_t i = 0; i < WRITERS; i++) {
		p[i] = fork();
		if (p[i] == 0) {
			status = append_all(i);
			fflush(stdout);
			_exit(status);
		}
	}
	for (int i = 0; i < WRITERS; i++)
		failed |= p[i] < 0 || waitpid(p[i], &status, 0) != p[i] || status;
	failed |= check(path[0]);
	if (strcmp(path[0], path[1]))
		failed |= check(path[1]);
	return failed ? 1 : unlink(path[0]) != 0;
}

int main(int argc, char **argv)
{
	const char *dir[2] = { NULL, NULL };

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--records") && argv[i + 1])
			records = strtoul(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--seed") && argv[i + 1])
			seed = strtoul(argv[++i], NULL, 0);
		else if (argv[i][0] != '-' && !dir[1])
			dir[dir[0] != NULL] = argv[i];
		else
			dir[0] = NULL, i = argc;
	}
	if (!dir[0]) {
		fputs("usage: appenders DIR [DIR2] [--records N] [--seed S]\n", stderr);
		return 2;
	}
	for (int i = 0; i < 2; i++)
		snprintf(path[i], PATH_MAX, "%s/appenders.%d", dir[i] ? dir[i] : dir[0],
			 (int)getpid());
	return run();
}
