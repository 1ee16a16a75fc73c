/* Typed I/O against a model in memory, with servers and embedded: random nested types for file
 * and memory with random movers, and an access of ten million pieces. SEED=n repeats one random
 * case. */
#include <sys/resource.h>

#include "cluster.h"
#include "sheaf_admin.h"

#include "type_model.h"

#define SPAN (1 << 21) /* bytes of the file that the model covers */
#define HEAP (1 << 20)
#define BASE 4096 /* no random type reaches below 0 from here */

static struct sheaf *fs;
static struct sheaf_file *file;
static uint8_t bytes[SPAN], heap[HEAP]; /* contents of the file, and memory */
static uint64_t size; /* of the file, in bytes */

static const struct sheaf_type *outer(const struct side *s)
{
	return (const struct sheaf_type *)s->type;
}

struct access_case {
	struct side mem, file;
	uint64_t count, total, base;
	uint64_t skip; /* bytes of the file side before the access */
};

/* Makes a random access inside of heap and file; false if this one is not. */
static bool some_access(struct access_case *a)
{
	uint64_t last = 0;

	a->mem = random_side();
	a->file = random_side();
	a->count =
		1 + random_below(1 + random_below(random_below(4) ? 20 : 60000 / a->mem.model.n));
	a->total = a->count * a->mem.model.n;
	a->base = BASE + random_below(random_below(2) ? 10 : SPAN / 2);
	a->skip = random_below(2) ? 0 : random_below(3 * a->file.model.n);
	for (uint64_t i = 0; i < a->total; i++) {
		if (side_offset(&a->mem, BASE, i) >= HEAP)
			return false;
		last = MAX(last, side_offset(&a->file, a->base, a->skip + i));
	}
	return last < SPAN;
}

static void access_free(struct access_case *a)
{
	type_free(a->mem.type);
	type_free(a->file.type);
}

/* Did one of the pieces that share this byte of the file write the value? */
static bool written_by_one(const struct access_case *a, uint64_t off, uint8_t value)
{
	for (uint64_t i = 0; i < a->total; i++)
		if (side_offset(&a->file, a->base, a->skip + i) == off &&
		    heap[side_offset(&a->mem, BASE, i)] == value)
			return true;
	return false;
}

static ssize_t write_started(const struct access_case *a)
{
	struct sheaf_op *op;
	int r = sheaf_write_view_start(file, heap + BASE, outer(&a->mem), a->count, a->base,
				       outer(&a->file), a->skip, &op);

	return r ? r : sheaf_wait(op);
}

static void write_some(const struct access_case *a)
{
	static uint8_t now[SPAN];
	ssize_t r;

	for (size_t i = 0; i < HEAP; i++)
		heap[i] = (uint8_t)test_random(&type_rng);
	r = random_below(2) ? sheaf_write_view(file, heap + BASE, outer(&a->mem), a->count, a->base,
					       outer(&a->file), a->skip) :
			      write_started(a);
	CHECK_EQ(r, a->total);
	for (uint64_t i = 0; i < a->total; i++) {
		uint64_t off = side_offset(&a->file, a->base, a->skip + i);

		bytes[off] = heap[side_offset(&a->mem, BASE, i)];
		size = MAX(size, off + 1);
	}
	CHECK_EQ(sheaf_pread(file, now, SPAN, 0), size);
	for (uint64_t i = 0; i < size; i++) {
		CHECK(now[i] == bytes[i] || written_by_one(a, i, now[i]));
		bytes[i] = now[i];
	}
}

static void read_some(const struct access_case *a)
{
	static uint8_t want[HEAP];
	uint64_t n = 0;

	memset(heap, 0xa5, HEAP);
	memset(want, 0xa5, HEAP);
	while (n < a->total && side_offset(&a->file, a->base, a->skip + n) < size) {
		want[side_offset(&a->mem, BASE, n)] =
			bytes[side_offset(&a->file, a->base, a->skip + n)];
		n++;
	}
	CHECK_EQ(sheaf_read_view(file, heap + BASE, outer(&a->mem), a->count, a->base,
				 outer(&a->file), a->skip),
		 n);
	if (n == a->total)
		CHECK(memcmp(heap, want, HEAP) == 0);
	else
		for (uint64_t i = 0; i < n; i++)
			CHECK_EQ(heap[side_offset(&a->mem, BASE, i)],
				 want[side_offset(&a->mem, BASE, i)]);
}

/* Does memory have a byte twice? Then a read may store either value. */
static bool shares_memory(const struct access_case *a)
{
	static uint8_t seen[HEAP];
	bool twice = false;

	memset(seen, 0, HEAP);
	for (uint64_t i = 0; i < a->total; i++)
		twice = seen[side_offset(&a->mem, BASE, i)]++ || twice;
	return twice;
}

static void one_case(void)
{
	struct access_case a;

	if (some_access(&a)) {
		CHECK_EQ(sheaf_set_mover(fs, (enum sheaf_mover)random_below(SHEAF_MOVERS)), 0);
		write_some(&a);
		if (!shares_memory(&a))
			read_some(&a);
	}
	access_free(&a);
	if (random_below(16) == 0) {
		uint64_t cut = random_below(size + 5000);

		CHECK_EQ(sheaf_ftruncate(file, (off_t)cut), 0);
		if (cut < size)
			memset(bytes + cut, 0, SPAN - cut);
		size = cut;
	}
}

static void cases_on(int n)
{
	struct sheaf_layout lay = { .size = sizeof(lay), .stripe_unit = 4096 };

	memset(bytes, 0, SPAN);
	size = 0;
	CHECK_EQ(sheaf_open(fs, "/typed", O_CREAT | O_RDWR, 0600, &lay, &file), 0);
	random_cases(one_case, (uint64_t)n);
	CHECK_EQ(sheaf_close(file), 0);
}

static void random_types_match_a_model_over_tcp(void)
{
	struct cluster c;

	cluster_create(&c, &(struct cluster_opts){ .servers = 3 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	cases_on(SANITIZED ? 100 : scaled(600));
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

static void random_types_match_a_model_embedded(void)
{
	char dir[CLUSTER_PATH], conf[CLUSTER_PATH + 16];

	temp_dir(dir, sizeof(dir) - 16);
	snprintf(conf, sizeof(conf), "local:%s", dir);
	fs = client_connect(conf);
	cases_on(SANITIZED ? 50 : scaled(300));
	sheaf_disconnect(fs);
}

static uint64_t requests_of(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < sheaf_server_count(fs); i++)
		sum += server_status(fs, i).requests;
	return sum;
}

static long peak_kib(void)
{
	struct rusage u;

	CHECK_EQ(getrusage(RUSAGE_SELF, &u), 0);
	return u.ru_maxrss;
}

static uint64_t server_memory(void)
{
	uint64_t most = 0;

	for (int i = 0; i < sheaf_server_count(fs); i++)
		most = MAX(most, server_status(fs, i).anon_bytes);
	return most;
}

/* Every other 8 bytes of a file, ten million times: one request to each server, and no additional
 * memory. */
static void ten_million_pieces_are_one_request_a_server(void)
{
	const uint64_t n = SANITIZED ? 1000000 : (uint64_t)scaled(10000000);
	uint64_t *mem = malloc(n * 8), before, idle, memory;
	struct sheaf_type *cell, *every, *flat;
	struct cluster c;
	long peak;

	cluster_create(&c, &(struct cluster_opts){ .servers = 4, .lease = 30 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_type_bytes(8, &cell), 0);
	CHECK_EQ(sheaf_type_vector(n, 1, 16, cell, &every), 0);
	CHECK_EQ(sheaf_type_bytes(n * 8, &flat), 0);
	for (uint64_t i = 0; i < n; i++)
		mem[i] = i;
	file = open_file(fs, "/many", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_pwrite(file, mem, n * 8, 0), n * 8); /* connects to all servers */
	before = requests_of();
	idle = requests_of() - before;
	memory = server_memory();
	peak = peak_kib();
	before = requests_of();
	CHECK_EQ(sheaf_write_typed(file, mem, flat, 1, 0, every), n * 8);
	CHECK_EQ(requests_of() - before, 4 + idle);
	memset(mem, 0, n * 8);
	before = requests_of();
	CHECK_EQ(sheaf_read_typed(file, mem, flat, 1, 0, every), n * 8);
	CHECK_EQ(requests_of() - before, 4 + idle);
	for (uint64_t i = 0; i < n; i++)
		CHECK_EQ(mem[i], i);
	printf("  memory of a server %llu -> %llu KiB, peak of the client %ld -> %ld KiB\n",
	       (unsigned long long)memory / 1024, (unsigned long long)server_memory() / 1024, peak,
	       peak_kib());
	if (!SANITIZED) {
		CHECK(server_memory() < memory + 8 * 1024 * 1024);
		CHECK(peak_kib() < peak + 4096);
	}
	sheaf_type_free(cell);
	sheaf_type_free(every);
	sheaf_type_free(flat);
	CHECK_EQ(sheaf_close(file), 0);
	sheaf_disconnect(fs);
	cluster_stop(&c);
	free(mem);
}

static void what_cannot_be_meant_is_refused(void)
{
	struct sheaf_type *cell, *down;
	char dir[CLUSTER_PATH], conf[CLUSTER_PATH + 16], b[64] = "";

	temp_dir(dir, sizeof(dir) - 16);
	snprintf(conf, sizeof(conf), "local:%s", dir);
	fs = client_connect(conf);
	file = open_file(fs, "/f", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_type_bytes(8, &cell), 0);
	CHECK_EQ(sheaf_type_vector(4, 1, -16, cell, &down), 0);
	CHECK_EQ(sheaf_write_typed(file, b, cell, 4, 40, down), -EINVAL); /* below offset 0 */
	CHECK_EQ(sheaf_write_typed(file, b, cell, 4, 48, down), 32);
	CHECK_EQ(sheaf_write_typed(file, b, cell, 1, UINT64_MAX, cell), -EINVAL);
	CHECK_EQ(sheaf_write_typed(file, b, cell, 0, 0, down), 0);
	CHECK_EQ(sheaf_close(file), 0);
	file = open_file(fs, "/f", O_WRONLY | O_APPEND);
	CHECK_EQ(sheaf_write_typed(file, b, cell, 1, 0, cell), -EINVAL);
	CHECK_EQ(sheaf_read_typed(file, b, cell, 1, 0, cell), -EBADF);
	CHECK_EQ(sheaf_close(file), 0);
	sheaf_type_free(cell);
	sheaf_type_free(down);
	sheaf_disconnect(fs);
}

/* The NULL of a failed constructor makes the next calls fail, so checking the last result is
 * enough. */
static void a_type_of_nothing_is_refused(void)
{
	uint64_t sizes[] = { 4, 4 }, subsizes[] = { 2, 3 }, starts[] = { 0, 2 }, one[] = { 1, 1 };
	struct sheaf_type *cell, *t, *part = (struct sheaf_type *)1;
	int64_t displ[] = { 0, 8 };
	const struct sheaf_type *of[2];
	char dir[CLUSTER_PATH], conf[CLUSTER_PATH + 16], b[64] = "";

	temp_dir(dir, sizeof(dir) - 16);
	snprintf(conf, sizeof(conf), "local:%s", dir);
	fs = client_connect(conf);
	file = open_file(fs, "/f", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_type_bytes(8, &cell), 0);
	CHECK_EQ(sheaf_type_subarray(2, sizes, subsizes, starts, cell, &part), -EINVAL);
	CHECK(!part);
	CHECK_EQ(sheaf_type_vector(1, 1, 0, part, &t), -EINVAL);
	CHECK_EQ(sheaf_type_indexed(2, one, displ, part, &t), -EINVAL);
	of[0] = cell;
	of[1] = part;
	CHECK_EQ(sheaf_type_struct(2, one, displ, of, &t), -EINVAL);
	CHECK_EQ(sheaf_type_subarray(2, sizes, subsizes, starts, part, &t), -EINVAL);
	CHECK(!t);
	CHECK_EQ(sheaf_write_typed(file, b, cell, 1, 0, t), -EINVAL);
	CHECK_EQ(sheaf_read_typed(file, b, t, 1, 0, cell), -EINVAL);
	sheaf_type_free(t);
	sheaf_type_free(cell);
	CHECK_EQ(sheaf_close(file), 0);
	sheaf_disconnect(fs);
}

TEST_MAIN(TEST(random_types_match_a_model_over_tcp), TEST(random_types_match_a_model_embedded),
	  TEST(ten_million_pieces_are_one_request_a_server), TEST(what_cannot_be_meant_is_refused),
	  TEST(a_type_of_nothing_is_refused))
