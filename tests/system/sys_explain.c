/* Plans and traces, which `sheaf explain` uses. An access does what its plan says; a trace records
 * what happened, from any number of threads and processes; the command reads an access back from
 * its trace unchanged. */
#include <pthread.h>

#include "cluster.h"
#include "sheaf_admin.h"

#define SERVERS 3
#define UNIT 16384
#define MIB (1024 * 1024)

static struct cluster cluster;
static struct sheaf *fs;
static struct sheaf_file *file;
static struct sheaf_stripes where;
static char trace[CLUSTER_PATH + 16];
static uint8_t heap[8 * MIB];

/* path NULL: no trace */
static void begin(const char *path)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };

	if (path)
		setenv("SHEAF_TRACE", path, 1);
	else
		unsetenv("SHEAF_TRACE");
	fs = client_connect(cluster.conf);
	file = open_file(fs, "/explained", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_get_layout(fs, "/explained", &l), 0);
	where = (struct sheaf_stripes){ .unit = l.stripe_unit, .n_targets = l.width };
	memcpy(where.targets, l.servers, sizeof(l.servers));
}

static void end(void)
{
	CHECK_EQ(sheaf_close(file), 0);
	sheaf_disconnect(fs);
	unsetenv("SHEAF_TRACE");
}

/* ---- plans ---- */

static ssize_t go(const struct sheaf_access *a)
{
	if (a->file_type && a->write)
		return sheaf_write_typed(file, a->base, a->mem_type, a->mem_count, a->file_off,
					 a->file_type);
	if (a->file_type)
		return sheaf_read_typed(file, a->base, a->mem_type, a->mem_count, a->file_off,
					a->file_type);
	return a->write ? sheaf_write_list(file, a->mem, a->n_mem, a->ext, a->n_ext) :
			  sheaf_read_list(file, a->mem, a->n_mem, a->ext, a->n_ext);
}

struct touches {
	uint64_t bytes[SERVERS], extents[SERVERS];
};

static void touch(void *arg, uint32_t object, const struct sheaf_extent *ext, size_t n)
{
	struct touches *t = arg;

	CHECK(object < SERVERS);
	for (size_t i = 0; i < n; i++)
		t->bytes[object] += ext[i].length;
	t->extents[object] += n;
}

/* Plans an access, executes it, and compares requests, bytes and mover at each server. */
static void check_plan(const struct sheaf_access *a, enum sheaf_mover how, struct sheaf_plan *p)
{
	struct sheaf_account before[SERVERS], after;
	struct touches t = { 0 };

	CHECK_EQ(sheaf_plan(fs, &where, how, a, touch, &t, p), 0);
	CHECK_EQ(sheaf_set_mover(fs, how), 0);
	for (int i = 0; i < SERVERS; i++)
		CHECK_EQ(sheaf_account(fs, (int)where.targets[i], &before[i]), 0);
	CHECK_EQ(go(a), p->bytes);
	for (int i = 0; i < SERVERS; i++) {
		const struct sheaf_share *s = &p->shares[i];

		CHECK_EQ(sheaf_account(fs, (int)where.targets[i], &after), 0);
		CHECK_EQ(after.requests - before[i].requests, s->requests);
		if (how != SHEAF_MOVER_AUTO) /* AUTO chooses for each part */
			CHECK_EQ(after.bytes[s->mover] - before[i].bytes[s->mover], s->bytes);
		CHECK_EQ(t.bytes[i], s->bytes);
		CHECK(t.extents[i] >= s->extents && (s->extents || !s->bytes));
		if (how == SHEAF_MOVER_GATHER)
			CHECK_EQ(after.copied, before[i].copied);
		if (s->requests)
			CHECK(after.busy_ns > before[i].busy_ns);
	}
}

#define PIECES 5000
static struct iovec mem[PIECES];
static struct sheaf_extent ext[PIECES];

static void make_list(bool regular)
{
	for (size_t i = 0; i < PIECES; i++) {
		mem[i] = (struct iovec){ heap + i * 256, 64 };
		ext[i] = (struct sheaf_extent){ i * 200 + (regular ? 0 : i % 7), 64 };
	}
}

static void warm_up(void)
{
	memset(heap, 'x', sizeof(heap));
	CHECK_EQ(sheaf_pwrite(file, heap, 4 * MIB, 0), 4 * MIB);
	/* from here on the client knows how much a message may carry */
	for (int i = 0; i < SERVERS; i++)
		CHECK_EQ(sheaf_ping(fs, i), 0);
}

static void a_plan_of_a_list_is_what_happens(void)
{
	struct sheaf_plan p;

	begin(NULL);
	warm_up();
	for (int k = 0; k < 4 * SHEAF_MOVERS; k++) {
		struct sheaf_access a = {
			.write = k & 1, .mem = mem, .n_mem = PIECES, .ext = ext, .n_ext = PIECES
		};
		enum sheaf_mover how = (enum sheaf_mover)(k / 4);
		uint64_t segments = 0;

		make_list(k & 2);
		check_plan(&a, how, &p);
		CHECK_EQ(p.bytes, PIECES * 64);
		CHECK_EQ(p.begin, 0);
		CHECK_EQ(p.end, ext[PIECES - 1].offset + 64);
		for (int i = 0; i < SERVERS; i++)
			segments += p.shares[i].segments;
		CHECK(segments >= PIECES && segments <= PIECES + 100); /* stripes split some */
		if (how >= SHEAF_MOVER_PACK && (k & 2)) /* for any number of segments */
			CHECK_EQ(p.shares[0].requests, 1);
	}
	end();
}

static void a_plan_of_types_is_what_happens(void)
{
	struct sheaf_type *piece, *tile, *flat;
	struct sheaf_plan p;
	int64_t lower, upper;

	begin(NULL);
	warm_up();
	CHECK_EQ(sheaf_type_bytes(32, &piece), 0);
	CHECK_EQ(sheaf_type_subarray(2, (uint64_t[]){ 512, 256 }, (uint64_t[]){ 300, 50 },
				     (uint64_t[]){ 10, 20 }, piece, &tile),
		 0);
	CHECK_EQ(sheaf_type_vector(300 * 50, 1, 96, piece, &flat), 0);
	CHECK_EQ(sheaf_type_size(tile), 300 * 50 * 32);
	sheaf_type_bounds(tile, &lower, &upper);
	CHECK_EQ(lower, 0);
	CHECK_EQ(upper, 512 * 256 * 32);
	for (int k = 0; k < 2 * SHEAF_MOVERS; k++) {
		struct sheaf_access a = { .write = k & 1,
					  .base = heap,
					  .mem_type = flat,
					  .mem_count = 1,
					  .file_off = 100,
					  .file_type = tile };

		check_plan(&a, (enum sheaf_mover)(k / 2), &p);
		CHECK_EQ(p.bytes, 300 * 50 * 32);
		CHECK_EQ(p.begin, 100 + (10 * 256 + 20) * 32);
	}
	sheaf_type_free(piece);
	sheaf_type_free(tile);
	sheaf_type_free(flat);
	end();
}

static void plans_that_make_no_sense_are_refused(void)
{
	struct sheaf_access a = { .mem = mem, .n_mem = 2, .ext = ext, .n_ext = 1 };
	struct sheaf_type *byte, *many;
	struct sheaf_plan p;

	begin(NULL);
	make_list(true);
	CHECK_EQ(sheaf_plan(fs, &where, SHEAF_MOVER_AUTO, &a, NULL, NULL, &p), -EINVAL);
	a.n_mem = 1;
	CHECK_EQ(sheaf_plan(fs, &where, SHEAF_ALL_MOVERS, &a, NULL, NULL, &p), -EINVAL);
	CHECK_EQ(sheaf_plan(fs, &(struct sheaf_stripes){ .n_targets = 1 }, 0, &a, NULL, NULL, &p),
		 -EINVAL);
	CHECK_EQ(sheaf_plan(fs, &(struct sheaf_stripes){ .unit = 4096 }, 0, &a, NULL, NULL, &p),
		 -EINVAL);
	CHECK(sheaf_plan(fs,
			 &(struct sheaf_stripes){
				 .unit = 4096, .n_targets = 1, .targets = { SERVERS } },
			 0, &a, NULL, NULL, &p) < 0);
	CHECK_EQ(sheaf_type_bytes(1, &byte), 0);
	CHECK_EQ(sheaf_type_vector((uint64_t)1 << 40, 1, 2, byte, &many), 0);
	a = (struct sheaf_access){
		.base = heap, .mem_type = byte, .mem_count = (uint64_t)1 << 40, .file_type = many
	};
	CHECK_EQ(sheaf_plan(fs, &where, SHEAF_MOVER_AUTO, &a, NULL, NULL, &p), -E2BIG);
	sheaf_type_free(byte);
	sheaf_type_free(many);
	end();
}

/* ---- traces ---- */

/* Counts the lines of the trace; each must be complete. */
static size_t lines(void)
{
	FILE *f = fopen(trace, "re");
	char *line = NULL;
	size_t cap = 0, n = 0;
	ssize_t len;

	CHECK(f);
	while ((len = getline(&line, &cap, f)) > 0) {
		CHECK(strncmp(line, "{\"op\":\"", 7) == 0);
		CHECK(len > 2 && strcmp(line + len - 2, "}\n") == 0);
		n++;
	}
	free(line);
	fclose(f);
	return n;
}

/* Returns the last line; the caller frees it. */
static char *last_line(void)
{
	FILE *f = fopen(trace, "re");
	char *line = NULL;
	size_t cap = 0;

	CHECK(f);
	while (getline(&line, &cap, f) > 0)
		;
	fclose(f);
	return line;
}

static void last_says(const char *what)
{
	char *line = last_line();

	if (!strstr(line, what))
		fprintf(stderr, "'%s' is not in %.400s\n", what, line);
	CHECK(strstr(line, what));
	free(line);
}

static void each_transfer_is_a_line(void)
{
	struct sheaf_type *piece, *vector;
	struct sheaf_file *log;
	struct sheaf_op *op;

	unlink(trace);
	begin(trace);
	CHECK_EQ(sheaf_pwrite(file, heap, 4096, 8192), 4096);
	last_says("{\"op\":\"write\",\"bytes\":4096,\"unit\":16384,\"width\":3,\"start\":0,"
		  "\"file\":[[8192,4096]],\"result\":4096,\"ns\":");
	CHECK_EQ(sheaf_pread(file, heap, 4096, 0), 4096);
	last_says("{\"op\":\"read\"");
	make_list(true);
	CHECK_EQ(sheaf_write_list(file, mem, PIECES, ext, PIECES), PIECES * 64);
	last_says("\"file\":[[0,64,5000,200]],\"mem\":[[0,64,5000,256]],\"result\":320000,");
	CHECK_EQ(sheaf_read_list(file, mem, 3, ext, 3), 192);
	last_says("\"file\":[[0,64,3,200]],\"mem\":[[0,64,3,256]]");
	CHECK_EQ(sheaf_type_bytes(8, &piece), 0);
	CHECK_EQ(sheaf_type_vector(100, 1, 32, piece, &vector), 0);
	CHECK_EQ(sheaf_write_typed(file, heap, piece, 100, 40, vector), 800);
	last_says(
		"\"file\":{\"offset\":40,\"type\":{\"vector\":{\"count\":100,\"stride\":32,\"of\":"
		"{\"bytes\":8}}}},\"mem\":{\"offset\":0,\"type\":{\"bytes\":800}},");
	CHECK_EQ(sheaf_pread_start(file, heap, 100, 5, &op), 0);
	last_says("\"file\":[[5,100]],\"inode\":"); /* the duration is not known yet */
	CHECK_EQ(sheaf_wait(op), 100);
	CHECK_EQ(sheaf_read_list_start(file, mem, 2, ext, 2, &op), 0);
	CHECK_EQ(sheaf_wait(op), 128);
	CHECK_EQ(sheaf_read_typed_start(file, heap, piece, 2, 0, vector, &op), 0);
	CHECK_EQ(sheaf_wait(op), 16);
	log = open_file(fs, "/log", O_CREAT | O_WRONLY);
	CHECK_EQ(sheaf_append(log, "hello", 5), 5);
	last_says("\"append\":true");
	CHECK_EQ(sheaf_close(log), 0);
	CHECK_EQ(sheaf_pread(file, heap, 0, 0), 0); /* an empty access is not traced */
	CHECK_EQ(lines(), 9);
	end();
	begin(NULL);
	CHECK_EQ(sheaf_pread(file, heap, 100, 0), 100);
	CHECK_EQ(lines(), 9);
	end();
	sheaf_type_free(piece);
	sheaf_type_free(vector);
}

static void lists_without_an_order_are_cut(void)
{
	static struct sheaf_extent many[20000];
	struct iovec one = { heap, sizeof(many) / sizeof(many[0]) * 16 };
	uint64_t at = 0;

	unlink(trace);
	begin(trace);
	for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
		many[i] = (struct sheaf_extent){ at, 12 + i % 2 * 8 };
		at += 20 + i * i % 31;
	}
	CHECK_EQ(sheaf_write_list(file, &one, 1, many, sizeof(many) / sizeof(many[0])),
		 one.iov_len);
	last_says("],\"cut\":20000,");
	CHECK_EQ(lines(), 1);
	end();
}

/* ---- concurrent traces ---- */

#define THREADS 4
#define EACH 200

static void *one_thread(void *arg)
{
	uint8_t *own = arg;

	for (int i = 0; i < EACH; i++)
		CHECK_EQ(sheaf_pwrite(file, own, 64, i * 64), 64);
	return NULL;
}

static int child(const char *name, char **arg)
{
	static uint8_t own[THREADS][64];
	pthread_t t[THREADS];

	(void)name;
	snprintf(cluster.conf, sizeof(cluster.conf), "%s", arg[0]);
	begin(arg[1]);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, one_thread, own[i]), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	end();
	return 0;
}

static void threads_and_processes_write_whole_lines(void)
{
	pid_t p[3];

	unlink(trace);
	for (int i = 0; i < 3; i++)
		p[i] = child_start("writer", cluster.conf, trace, NULL);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(process_wait(p[i]), 0);
	CHECK_EQ(lines(), 3 * THREADS * EACH);
}

static void a_trace_ends_at_64_mib(void)
{
	struct stat st;

	unlink(trace);
	begin(trace);
	CHECK_EQ(sheaf_pwrite(file, heap, 64, 0), 64);
	CHECK_EQ(truncate(trace, 64 * MIB - 100), 0);
	CHECK_EQ(sheaf_pwrite(file, heap, 64, 0), 64); /* succeeds, but is not traced */
	CHECK_EQ(sheaf_pwrite(file, heap, 64, 0), 64);
	CHECK_EQ(stat(trace, &st), 0);
	CHECK_EQ(st.st_size, 64 * MIB - 100);
	end();
	unlink(trace);
}

static void a_trace_that_cannot_be_written_is_an_error_at_once(void)
{
	static const char *const bad[] = { "/nowhere/at/all", "/dev/null", "/" };
	struct sheaf *none;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("SHEAF_TRACE", bad[i], 1);
		CHECK(sheaf_connect(cluster.conf, &none) < 0);
		CHECK(strstr(sheaf_why(), "$SHEAF_TRACE") && strstr(sheaf_why(), bad[i]));
	}
	setenv("SHEAF_TRACE", "", 1); /* the same as unset */
	none = client_connect(cluster.conf);
	sheaf_disconnect(none);
	unsetenv("SHEAF_TRACE");
}

/* ---- traces read back ---- */

/* Returns the command's JSON about the last line; the caller frees it. */
static char *explained(void)
{
	char command[3 * CLUSTER_PATH], *out = calloc(1, MIB);
	FILE *f;

	snprintf(command, sizeof(command), "%s/bin/sheaf --conf %s explain %s --plan --json",
		 getenv("SHEAF_BUILD"), cluster.conf, trace);
	f = popen(command, "re");
	CHECK(f && out);
	CHECK(fread(out, 1, MIB - 1, f) > 0);
	CHECK_EQ(pclose(f), 0);
	return out;
}

static uint64_t first_number(const char *json, const char *key)
{
	char want[64];
	const char *at;

	snprintf(want, sizeof(want), "\"%s\":", key);
	at = strstr(json, want);
	CHECK(at);
	return strtoull(at + strlen(want), NULL, 10);
}

/* The command explains the access that was recorded, for any base address of the memory. */
static void check_back(const struct sheaf_access *a)
{
	uint64_t segments = 0, extents = 0;
	struct sheaf_plan p;
	char *json;

	CHECK_EQ(sheaf_plan(fs, &where, SHEAF_MOVER_AUTO, a, NULL, NULL, &p), 0);
	CHECK_EQ(go(a), p.bytes);
	for (int i = 0; i < SERVERS; i++) {
		segments += p.shares[i].segments;
		extents += p.shares[i].extents;
	}
	json = explained();
	CHECK_EQ(first_number(json, "bytes"), p.bytes);
	CHECK_EQ(first_number(json, "begin"), p.begin);
	CHECK_EQ(first_number(json, "end"), p.end);
	CHECK_EQ(first_number(json, "segments"), segments);
	CHECK_EQ(first_number(json, "extents"), extents);
	CHECK_EQ(first_number(json, "unit"), UNIT);
	CHECK_EQ(first_number(json, "width"), SERVERS);
	free(json);
}

static void a_trace_read_back_is_the_access(void)
{
	struct sheaf_type *piece, *tile, *odd, *back;
	struct sheaf_access a = {
		.write = 1, .mem = mem, .n_mem = PIECES, .ext = ext, .n_ext = PIECES
	};

	unlink(trace);
	begin(trace);
	for (int regular = 0; regular < 2; regular++) {
		make_list(regular);
		a.n_mem = a.n_ext = 3000;
		check_back(&a);
	}
	CHECK_EQ(sheaf_type_bytes(24, &piece), 0);
	CHECK_EQ(sheaf_type_subarray(2, (uint64_t[]){ 64, 128 }, (uint64_t[]){ 20, 30 },
				     (uint64_t[]){ 3, 7 }, piece, &tile),
		 0);
	CHECK_EQ(sheaf_type_indexed(3, (uint64_t[]){ 1, 2, 1 }, (int64_t[]){ 1000, 0, -96 }, piece,
				    &odd),
		 0);
	CHECK_EQ(sheaf_type_vector(100, 1, -48, piece, &back), 0);
	a = (struct sheaf_access){ .write = 1,
				   .base = heap + MIB,
				   .mem_type = odd,
				   .mem_count = 200, /* 800 pieces: one tile and a third */
				   .file_off = 12345,
				   .file_type = tile };
	check_back(&a);
	a.mem_type = back;
	a.mem_count = 7;
	a.file_type = odd;
	check_back(&a);
	sheaf_type_free(piece);
	sheaf_type_free(tile);
	sheaf_type_free(odd);
	sheaf_type_free(back);
	end();
}

static void set_up(void)
{
	cluster_create(&cluster, &(struct cluster_opts){ .servers = SERVERS, .stripe_unit = UNIT });
	cluster_start(&cluster);
	snprintf(trace, sizeof(trace), "%s/trace", cluster.dir);
}

static void tear_down(void)
{
	cluster_stop(&cluster);
}

SYS_MAIN(child, set_up, tear_down, TEST(a_plan_of_a_list_is_what_happens),
	 TEST(a_plan_of_types_is_what_happens), TEST(plans_that_make_no_sense_are_refused),
	 TEST(each_transfer_is_a_line), TEST(lists_without_an_order_are_cut),
	 TEST(threads_and_processes_write_whole_lines), TEST(a_trace_ends_at_64_mib),
	 TEST(a_trace_that_cannot_be_written_is_an_error_at_once),
	 TEST(a_trace_read_back_is_the_access))
