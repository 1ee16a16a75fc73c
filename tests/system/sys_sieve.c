/* Many small pieces of files on real servers: interleaved writes of eight processes, a thousand
 * clients whose streams stall, and objects that another process cuts while servers have them
 * open. */
#include <sys/resource.h>

#include "cluster.h"

#include "disk/disk.h"

#define PROCESSES 8
#define CLIENTS (SANITIZED ? 80 : 1000)
#define EACH ((CLIENTS + PROCESSES - 1) / PROCESSES) /* clients of a process */
#define PIECES 3200 /* of the interleaved file */
#define ROUNDS (SANITIZED ? 2 : 20)
#define STREAM (1 << 20) /* bytes that a reading client reads */
#define POOL "4M"

static struct cluster c;
static struct sheaf *fs;

static void begin(void)
{
	struct rlimit files;

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	cluster_create(&c, &(struct cluster_opts){ .servers = 2,
						   .lease = 60,
						   .timeout = 60,
						   .more = "pool = " POOL "\n" });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

/* ---- interleaved pieces ---- */

/* The pieces of one process, in ascending order, or of all (owner PROCESSES). */
struct pieces {
	struct sheaf_extent ext[PIECES];
	size_t n;
	uint64_t total;
	uint8_t *mem;
};

/* Pieces of 1 to 4,096 bytes, one after the other; each process computes the same ones. */
static void deal(struct pieces *p, uint32_t owner)
{
	uint64_t rnd = 23, at = 0;

	*p = (struct pieces){ 0 };
	for (uint32_t i = 0; i < PIECES; i++) {
		uint64_t most = test_random(&rnd) % 8 ? 200 : 4096;
		uint64_t len = 1 + test_random(&rnd) % most;
		uint32_t of = (uint32_t)(test_random(&rnd) % PROCESSES);

		if (of == owner || owner == PROCESSES) {
			p->ext[p->n++] = (struct sheaf_extent){ at, len };
			p->total += len;
		}
		at += len;
	}
	p->mem = malloc(p->total);
	CHECK(p->mem);
}

static void fill(struct pieces *p, uint64_t round)
{
	uint8_t *to = p->mem;

	for (size_t i = 0; i < p->n; to += p->ext[i++].length)
		fill_pattern(to, p->ext[i].length, round, p->ext[i].offset);
}

static bool is_filled(const struct pieces *p, uint64_t round)
{
	const uint8_t *is = p->mem;

	for (size_t i = 0; i < p->n; is += p->ext[i++].length)
		if (!is_pattern(is, p->ext[i].length, round, p->ext[i].offset))
			return false;
	return true;
}

/* Writes the pieces in several lists: pieces [k, k + 100), then the next hundred ... */
static void write_pieces(struct sheaf_file *f, const struct pieces *p)
{
	uint8_t *from = p->mem;

	for (size_t k = 0; k < p->n; k += 100) {
		size_t n = p->n - k < 100 ? p->n - k : 100;
		struct iovec mem = { from, 0 };

		for (size_t i = k; i < k + n; i++)
			mem.iov_len += p->ext[i].length;
		CHECK_EQ(sheaf_write_list(f, &mem, 1, p->ext + k, n), (ssize_t)mem.iov_len);
		from += mem.iov_len;
	}
}

static void read_pieces(struct sheaf_file *f, const struct pieces *p)
{
	struct iovec mem = { p->mem, p->total };

	memset(p->mem, 0, p->total);
	CHECK_EQ(sheaf_read_list(f, &mem, 1, p->ext, p->n), (ssize_t)p->total);
}

/* ARG: cluster file, path, number of the process. */
static int interleaved_child(char **arg)
{
	struct sheaf *own = client_connect(arg[0]);
	struct sheaf_file *f = open_file(own, arg[1], O_RDWR);
	struct pieces p;

	deal(&p, (uint32_t)atoi(arg[2]));
	raise(SIGSTOP); /* until all processes have come so far */
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		fill(&p, round);
		write_pieces(f, &p);
		read_pieces(f, &p);
		CHECK(is_filled(&p, round));
	}
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(own);
	free(p.mem);
	return 0;
}

static void resume_all(const pid_t *pid)
{
	for (int i = 0; i < PROCESSES; i++)
		CHECK_EQ(kill(pid[i], SIGCONT), 0);
}

static void start_children(pid_t *pid, const char *name, const char *path)
{
	char number[PROCESSES][16];

	for (int i = 0; i < PROCESSES; i++) {
		snprintf(number[i], sizeof(number[i]), "%d", i);
		pid[i] = child_start(name, c.conf, path, number[i], NULL);
	}
	for (int i = 0; i < PROCESSES; i++)
		process_await_stop(pid[i]);
}

static void interleaved_pieces_of_eight_processes_are_all_there(void)
{
	const char *path = path_in(fresh_dir(fs), "f");
	struct sheaf_layout lay = { .size = sizeof(lay), .stripe_unit = 16384 };
	struct sheaf_file *f;
	pid_t pid[PROCESSES];
	struct pieces all;
	struct stat st;

	CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_RDWR, 0600, &lay, &f), 0);
	start_children(pid, "interleaved", path);
	resume_all(pid);
	for (int i = 0; i < PROCESSES; i++)
		CHECK_EQ(process_wait(pid[i]), 0);
	deal(&all, PROCESSES);
	CHECK_EQ(sheaf_fstat(f, &st), 0);
	CHECK_EQ(st.st_size, all.total);
	CHECK_EQ(sheaf_pread(f, all.mem, all.total, 0), (ssize_t)all.total);
	CHECK(is_filled(&all, ROUNDS));
	CHECK_EQ(sheaf_close(f), 0);
	free(all.mem);
}

/* ---- a thousand slow streams ---- */

#define CELLS 40 /* pieces that a writing client writes, each of CELL bytes */
#define CELL 50

/* One client: even ones read a large range, odd ones write small pieces between those of others. */
struct stream {
	struct sheaf *fs;
	struct sheaf_file *f;
	struct sheaf_op *op;
	struct iovec mem;
	struct sheaf_extent ext[CELLS];
	uint8_t cells[CELLS * CELL];
};

static void stream_open(struct stream *s, char **arg, int number)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", arg[1], number % 2 ? "cells" : "large");
	s->fs = client_connect(arg[0]);
	s->f = open_file(s->fs, path, O_RDWR);
}

static void stream_start(struct stream *s, int number, uint8_t *large)
{
	if (number % 2 == 0) {
		s->mem = (struct iovec){ large, STREAM };
		s->ext[0] = (struct sheaf_extent){ 0, STREAM };
		CHECK_EQ(sheaf_read_list_start(s->f, &s->mem, 1, s->ext, 1, &s->op), 0);
		return;
	}
	s->mem = (struct iovec){ s->cells, sizeof(s->cells) };
	for (uint32_t i = 0; i < CELLS; i++) {
		uint64_t at = ((uint64_t)i * CLIENTS + (uint64_t)number) * CELL;

		s->ext[i] = (struct sheaf_extent){ at, CELL };
		fill_pattern(s->cells + (size_t)i * CELL, CELL, (uint64_t)number, at);
	}
	CHECK_EQ(sheaf_write_list_start(s->f, &s->mem, 1, s->ext, CELLS, &s->op), 0);
}

/* ARG: cluster file, directory, number of the process. The process stops after it has connected,
 * and again while its transfers are under way. */
static int streams_child(char **arg)
{
	static struct stream s[1 + CLIENTS / PROCESSES];
	int first = atoi(arg[2]) * EACH;
	uint8_t *large = malloc(STREAM); /* all clients read the same bytes into it */

	CHECK(large);
	for (int i = 0; i < EACH; i++)
		stream_open(&s[i], arg, first + i);
	raise(SIGSTOP);
	for (int i = 0; i < EACH; i++)
		stream_start(&s[i], first + i, large);
	pause_ms(100); /* most requests are sent by now, the others later */
	raise(SIGSTOP);
	for (int i = 0; i < EACH; i++) {
		CHECK_EQ(sheaf_wait(s[i].op), (ssize_t)s[i].mem.iov_len);
		CHECK_EQ(sheaf_close(s[i].f), 0);
		sheaf_disconnect(s[i].fs);
	}
	CHECK(is_pattern(large, STREAM, 7, 0));
	free(large);
	return 0;
}

static void check_cells(const char *path)
{
	struct sheaf_file *f = open_file(fs, path, O_RDONLY);
	size_t n = (size_t)CELLS * CLIENTS * CELL;
	uint8_t *b = calloc(1, n);

	CHECK(b);
	CHECK(sheaf_pread(f, b, n, 0) > 0);
	for (uint64_t i = 0; i < (uint64_t)CELLS * CLIENTS; i++) {
		uint64_t number = i % CLIENTS;

		if (number % 2 && number < (uint64_t)EACH * PROCESSES)
			CHECK(is_pattern(b + i * CELL, CELL, number, i * CELL));
	}
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

static void stop_servers(bool stop)
{
	for (int i = 0; i < c.n; i++)
		CHECK_EQ(kill(c.pid[i], stop ? SIGSTOP : SIGCONT), 0);
}

/* The processes are stopped. The servers answer, and have the memory of their pool and a bounded
 * amount for each client. */
static void check_servers(const uint64_t *before)
{
	fresh_dir(fs);
	for (int i = 0; i < c.n; i++) {
		struct sheaf_server s = server_status(fs, i);
		uint64_t more =
			s.anon_bytes - (before[i] < s.anon_bytes ? before[i] : s.anon_bytes);

		printf("  server %d: %u links, %u requests, %llu KiB more, pool %llu of %llu KiB\n",
		       i, s.links, s.in_service, (unsigned long long)more / 1024,
		       (unsigned long long)(s.pool_bytes - s.pool_free) / 1024,
		       (unsigned long long)s.pool_bytes / 1024);
		CHECK(SANITIZED || more <= s.pool_bytes + (uint64_t)CLIENTS * (256 << 10));
	}
}

static void a_thousand_slow_streams_end(void)
{
	char dir[128];
	uint64_t before[CLUSTER_MAX];
	struct rlimit files;
	pid_t pid[PROCESSES];

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
	if (files.rlim_max < 4 * (rlim_t)CLIENTS) {
		printf("  skipped: a process may have %llu files\n",
		       (unsigned long long)files.rlim_max);
		return;
	}
	snprintf(dir, sizeof(dir), "%s", fresh_dir(fs));
	make_file(fs, path_in(dir, "large"), STREAM, 7);
	make_file(fs, path_in(dir, "cells"), 1, 0);
	for (int i = 0; i < c.n; i++)
		before[i] = server_status(fs, i).anon_bytes;
	start_children(pid, "streams", dir);
	stop_servers(true); /* so that no transfer ends before its client stops */
	resume_all(pid);
	for (int i = 0; i < PROCESSES; i++)
		process_await_stop(pid[i]);
	stop_servers(false);
	check_servers(before);
	for (int i = 0; i < PROCESSES; i++) { /* one process after the other */
		CHECK_EQ(kill(pid[i], SIGCONT), 0);
		CHECK_EQ(process_wait(pid[i]), 0);
	}
	check_cells(path_in(dir, "cells"));
	for (int i = 0; i < c.n; i++) {
		CHECK(WITHIN(PATIENCE_S, server_status(fs, i).in_service <= 1));
		CHECK_EQ(server_status(fs, i).pool_free, server_status(fs, i).pool_bytes);
	}
}

/* ---- objects that are cut ---- */

/* Cuts the objects of a file to this length. */
static void cut_objects(const char *name, off_t length)
{
	char object[OBJECT_PATH], path[CLUSTER_PATH + 64];
	int n = 0;

	for (uint32_t index = 0; index < 2; index++) {
		object_path(object, &(struct object_id){ stat_of(fs, name).st_ino, 1, index });
		for (int i = 0; i < c.n; i++) {
			snprintf(path, sizeof(path), "%s/server%d/objects/%s", c.dir, i, object);
			n += truncate(path, length) == 0;
		}
	}
	CHECK_EQ(n, 2);
}

/* What is left has its bytes. The rest has zeros, or reading it fails. */
static void check_cut(struct sheaf_file *f, const struct pieces *p, uint64_t unit, uint64_t left)
{
	struct iovec mem = { p->mem, p->total };
	ssize_t r = sheaf_read_list(f, &mem, 1, p->ext, p->n);
	const uint8_t *is = p->mem;

	CHECK(r == (ssize_t)p->total || r == -EIO);
	for (size_t i = 0; r > 0 && i < p->n; i++)
		for (uint64_t b = p->ext[i].offset; b < p->ext[i].offset + p->ext[i].length; b++) {
			uint64_t at = b / (2 * unit) * unit + b % unit; /* in its object */
			uint8_t was;

			fill_pattern(&was, 1, 1, b);
			CHECK_EQ(*is++, at < left ? was : 0);
		}
}

static void an_object_that_is_cut_while_open_ends_no_server(void)
{
	const uint64_t unit = 16384, left = 40000;
	struct sheaf_layout lay = { .size = sizeof(lay), .stripe_unit = (uint32_t)unit };
	const char *path = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f;
	struct pieces all, own;

	deal(&all, PROCESSES);
	deal(&own, 3);
	CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_RDWR, 0600, &lay, &f), 0);
	fill_pattern(all.mem, all.total, 1, 0);
	CHECK_EQ(sheaf_pwrite(f, all.mem, all.total, 0), (ssize_t)all.total);
	for (int i = 0; i < 3; i++) /* the servers map the objects */
		read_pieces(f, &own);
	cut_objects(path, (off_t)left);
	check_cut(f, &own, unit, left);
	check_cut(f, &all, unit, left);
	fill(&own, 2);
	write_pieces(f, &own);
	read_pieces(f, &own);
	CHECK(is_filled(&own, 2));
	for (int i = 0; i < c.n; i++)
		CHECK_EQ(server_status(fs, i).pid, c.pid[i]);
	sheaf_close(f);
	free(all.mem);
	free(own.mem);
}

static int child(const char *name, char **arg)
{
	return strcmp(name, "streams") == 0 ? streams_child(arg) : interleaved_child(arg);
}

SYS_MAIN(child, begin, end, TEST(interleaved_pieces_of_eight_processes_are_all_there),
	 TEST(a_thousand_slow_streams_end), TEST(an_object_that_is_cut_while_open_ends_no_server))
