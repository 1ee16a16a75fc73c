/* List I/O against a model in memory, with servers and embedded: random lists write and read the
 * same bytes in the file system and in an array. A failure prints the seed of its round. */
#include "cluster.h"
#include "sheaf_admin.h"

#define SPAN (1 << 20) /* bytes of the file that the model covers */
#define GUARD 64

struct model {
	uint8_t *bytes;
	uint64_t base; /* their offset in the file */
	uint64_t size; /* of the file, relative to base; 0 also if it ends before base */
};

struct list_io {
	struct sheaf_extent *ext;
	size_t n_ext;
	struct iovec *mem;
	size_t n_mem;
	uint64_t total;
	uint8_t *heap; /* the pieces of mem, with guards between them */
	size_t heap_len;
};

static uint64_t below(uint64_t *rnd, uint64_t n)
{
	return n ? test_random(rnd) % n : 0;
}

/* A random length: small, medium or large, sometimes zero. */
static uint64_t some_length(uint64_t *rnd, uint64_t max)
{
	static const uint32_t limit[] = { 2, 16, 600, 5000, 70000, 300000 };

	return below(rnd,
		     1 + (limit[below(rnd, 6)] < max ? limit[below(rnd, 6)] % (max + 1) : max));
}

static size_t some_count(uint64_t *rnd)
{
	static const uint32_t limit[] = { 1, 4, 40, 300, 2500 };

	return 1 + below(rnd, limit[below(rnd, 5)]);
}

/* Makes disjoint extents in ascending order: overlapping extents of a write have no defined
 * result. */
static void disjoint(struct list_io *l, uint64_t *rnd, size_t n)
{
	uint64_t at = below(rnd, SPAN / 2);

	l->ext = calloc(n, sizeof(*l->ext));
	CHECK(l->ext);
	for (size_t i = 0; i < n && at < SPAN; i++) {
		uint64_t room = (SPAN - at) / (n - i),
			 gap = below(rnd, 4) ? below(rnd, room / 2 + 1) : 0;
		uint64_t len = some_length(rnd, room - gap);

		l->ext[l->n_ext++] = (struct sheaf_extent){ at + gap, len };
		at += gap + len;
	}
}

static void shuffle(struct list_io *l, uint64_t *rnd)
{
	for (size_t i = l->n_ext; i > 1; i--) {
		size_t k = below(rnd, i);
		struct sheaf_extent t = l->ext[i - 1];

		l->ext[i - 1] = l->ext[k];
		l->ext[k] = t;
	}
}

static void anywhere(struct list_io *l, uint64_t *rnd, size_t n)
{
	l->ext = calloc(n, sizeof(*l->ext));
	CHECK(l->ext);
	for (size_t i = 0; i < n; i++) {
		uint64_t off = below(rnd, SPAN),
			 len = some_length(rnd, (SPAN - off) / (1 + n / 16));

		l->ext[l->n_ext++] = (struct sheaf_extent){ off, len };
	}
}

/* Splits the total into pieces of memory with guards between them, independently of the extents. */
static void cut_memory(struct list_io *l, uint64_t *rnd, size_t n)
{
	uint64_t left;
	size_t at = GUARD;

	l->total = 0;
	for (size_t i = 0; i < l->n_ext; i++)
		l->total += l->ext[i].length;
	left = l->total;
	l->mem = calloc(n + 1, sizeof(*l->mem));
	l->heap_len = l->total + (n + 2) * GUARD;
	l->heap = malloc(l->heap_len);
	CHECK(l->mem && l->heap);
	memset(l->heap, 0xa5, l->heap_len);
	for (size_t i = 0; i <= n; i++) {
		uint64_t len = i == n ? left : below(rnd, left / (n - i) * 2 + 2);

		len = len < left ? len : left;
		l->mem[l->n_mem++] = (struct iovec){ l->heap + at, len };
		at += len + (below(rnd, 3) ? below(rnd, GUARD) : 0);
		left -= len;
	}
}

static void list_free(struct list_io *l)
{
	free(l->ext);
	free(l->mem);
	free(l->heap);
}

/* Makes equal blocks at equal distances, which travel as a vector. */
static void regular(struct list_io *l, uint64_t *rnd, size_t n)
{
	uint64_t len = 1 + below(rnd, SPAN / n / 2);
	uint64_t stride = len + below(rnd, (SPAN - len) / n - len + 1);
	bool down = below(rnd, 4) == 0;

	l->ext = calloc(n, sizeof(*l->ext));
	CHECK(l->ext);
	l->n_ext = n;
	for (size_t i = 0; i < n; i++)
		l->ext[i] = (struct sheaf_extent){ (down ? n - 1 - i : i) * stride, len };
}

static void random_write(struct sheaf_file *f, struct model *m, uint64_t *rnd, size_t n)
{
	struct list_io l = { 0 };
	size_t i_mem = 0, o_mem = 0;

	if (below(rnd, 3) == 0)
		regular(&l, rnd, n);
	else
		disjoint(&l, rnd, n);
	if (below(rnd, 2))
		shuffle(&l, rnd);
	cut_memory(&l, rnd, some_count(rnd));
	for (size_t i = 0; i < l.heap_len; i++)
		l.heap[i] = (uint8_t)test_random(rnd);
	for (size_t i = 0; i < l.n_ext; i++) {
		for (uint64_t o = 0; o < l.ext[i].length; o++) {
			while (o_mem == l.mem[i_mem].iov_len) {
				i_mem++;
				o_mem = 0;
			}
			m->bytes[l.ext[i].offset + o] = ((uint8_t *)l.mem[i_mem].iov_base)[o_mem++];
		}
		if (l.ext[i].length && m->size < l.ext[i].offset + l.ext[i].length)
			m->size = l.ext[i].offset + l.ext[i].length;
	}
	for (size_t i = 0; i < l.n_ext; i++)
		l.ext[i].offset += m->base;
	CHECK_EQ(sheaf_write_list(f, l.mem, l.n_mem, l.ext, l.n_ext), (ssize_t)l.total);
	list_free(&l);
}

/* Computes the memory after the read, including guards; returns the expected count. */
static uint64_t expect(const struct list_io *l, const struct model *m, uint8_t *heap)
{
	size_t i_mem = 0, o_mem = 0;
	uint64_t count = 0;
	bool over = false;

	memset(heap, 0xa5, l->heap_len);
	for (size_t i = 0; i < l->n_ext; i++) {
		for (uint64_t o = 0; o < l->ext[i].length; o++) {
			uint64_t at = l->ext[i].offset + o;

			while (o_mem == l->mem[i_mem].iov_len) {
				i_mem++;
				o_mem = 0;
			}
			over |= at >= m->size;
			if (!over)
				count++;
			if (at < m->size)
				heap[(uint8_t *)l->mem[i_mem].iov_base - l->heap + o_mem] =
					m->bytes[at];
			o_mem++;
		}
	}
	return count;
}

static void random_read(struct sheaf_file *f, const struct model *m, uint64_t *rnd, size_t n)
{
	struct list_io l = { 0 };
	uint8_t *heap;
	uint64_t count;

	if (below(rnd, 3) == 0)
		regular(&l, rnd, n);
	else if (below(rnd, 2))
		disjoint(&l, rnd, n);
	else
		anywhere(&l, rnd, n);
	cut_memory(&l, rnd, some_count(rnd));
	heap = malloc(l.heap_len);
	CHECK(heap);
	count = expect(&l, m, heap);
	for (size_t i = 0; i < l.n_ext; i++)
		l.ext[i].offset += m->base;
	CHECK_EQ(sheaf_read_list(f, l.mem, l.n_mem, l.ext, l.n_ext), (ssize_t)count);
	CHECK(memcmp(heap, l.heap, l.heap_len) == 0);
	free(heap);
	list_free(&l);
}

static void random_truncate(struct sheaf_file *f, struct model *m, uint64_t *rnd)
{
	uint64_t size = below(rnd, SPAN);

	CHECK_EQ(sheaf_ftruncate(f, (off_t)(m->base + size)), 0);
	if (size < m->size)
		memset(m->bytes + size, 0, SPAN - size);
	m->size = size;
}

static void one_file(struct sheaf *fs, uint64_t seed, uint64_t base, int rounds)
{
	static const uint32_t units[] = { 4096, 8192, 65536, 0 };
	struct model m = { .bytes = calloc(1, SPAN), .base = base };
	struct sheaf_layout lay = { .size = sizeof(lay) };
	uint64_t rnd = seed;
	struct sheaf_file *f;
	struct stat st;
	char path[64];

	CHECK(m.bytes);
	lay.stripe_unit = units[below(&rnd, 4)];
	lay.width = (uint32_t)below(&rnd, 4);
	snprintf(path, sizeof(path), "/list-%llu", (unsigned long long)seed);
	printf("  seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_RDWR, 0600, &lay, &f), 0);
	for (int i = 0; i < rounds; i++) {
		CHECK_EQ(sheaf_set_mover(fs, (enum sheaf_mover)below(&rnd, SHEAF_MOVERS)), 0);
		random_write(f, &m, &rnd, some_count(&rnd));
		random_read(f, &m, &rnd, some_count(&rnd));
		if (below(&rnd, 4) == 0)
			random_truncate(f, &m, &rnd);
		CHECK_EQ(sheaf_fstat(f, &st), 0);
		CHECK_EQ(st.st_size, m.size ? (off_t)(m.base + m.size) : st.st_size);
	}
	CHECK_EQ(sheaf_set_mover(fs, SHEAF_MOVER_AUTO), 0);
	random_write(f, &m, &rnd, 10000); /* several requests to each server */
	random_read(f, &m, &rnd, 10000);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_unlink(fs, path), 0);
	free(m.bytes);
}

static void lists_on(struct sheaf *fs)
{
	int rounds = SANITIZED ? 4 : scaled(12);

	for (uint64_t seed = 1; seed <= 6; seed++)
		one_file(fs, seed, seed % 3 ? 0 : (UINT64_C(5) << 30) + 4099 * seed, rounds);
}

static void random_lists_match_a_model_over_tcp(void)
{
	struct cluster c;
	struct sheaf *fs;

	cluster_create(&c, &(struct cluster_opts){ .servers = 3 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	lists_on(fs);
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

static void local_client(struct sheaf **fs)
{
	char dir[CLUSTER_PATH], conf[CLUSTER_PATH + 16];

	temp_dir(dir, sizeof(dir) - 16);
	snprintf(conf, sizeof(conf), "local:%s", dir);
	*fs = client_connect(conf);
}

static void random_lists_match_a_model_embedded(void)
{
	struct sheaf *fs;

	local_client(&fs);
	lists_on(fs);
	sheaf_disconnect(fs);
}

static uint64_t requests_of(struct sheaf *fs)
{
	uint64_t sum = 0;

	for (int i = 0; i < sheaf_server_count(fs); i++)
		sum += server_status(fs, i).requests;
	return sum;
}

/* The client refuses a list with wrong totals before it sends anything. */
static void lists_whose_totals_differ_send_nothing(void)
{
	struct sheaf_extent e[2] = { { 0, 100 }, { 5000, 100 } };
	uint64_t before, idle;
	struct cluster c;
	struct sheaf *fs;
	struct sheaf_file *f;
	char b[300];
	struct iovec v[2] = { { b, 100 }, { b + 100, 101 } };
	struct sheaf_op *op;

	cluster_create(&c, &(struct cluster_opts){ .lease = 30 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	memset(b, 7, sizeof(b));
	f = open_file(fs, "/f", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_pwrite(f, b, 1, 0), 1);
	before = requests_of(fs);
	idle = requests_of(fs) - before;
	before = requests_of(fs);
	CHECK_EQ(sheaf_write_list(f, v, 2, e, 2), -EINVAL);
	CHECK_EQ(sheaf_read_list(f, v, 2, e, 2), -EINVAL);
	CHECK_EQ(sheaf_read_list(f, v, 1, e, 2), -EINVAL);
	CHECK_EQ(sheaf_write_list(f, v, 0, e, 1), -EINVAL);
	CHECK_EQ(sheaf_write_list(f, v, 1, e, 0), -EINVAL);
	e[1] = (struct sheaf_extent){ UINT64_MAX - 10, 101 };
	CHECK_EQ(sheaf_write_list(f, v, 2, e, 2), -EFBIG);
	CHECK_EQ(sheaf_pread(f, b, 10, -1), -EINVAL);
	CHECK_EQ(sheaf_write_list_start(f, v, 2, e, 1, &op), 0);
	CHECK_EQ(sheaf_wait(op), -EINVAL);
	CHECK_EQ(sheaf_write_list(f, NULL, 0, NULL, 0), 0);
	CHECK_EQ(sheaf_pwrite(f, b, 0, 99), 0);
	CHECK_EQ(requests_of(fs) - before, idle);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

/* 2,048 pieces without a pattern, on one server: one request and its reply. */
static void a_list_of_2048_pieces_is_one_request(void)
{
	enum { N = 2048 };
	static const struct sheaf_layout one = { .size = sizeof(one), .width = 1 };
	static struct sheaf_extent e[N];
	static struct iovec v[N];
	static uint8_t b[N * 200];
	uint64_t before, idle, rnd = 7, at = 0;
	struct cluster c;
	struct sheaf *fs;
	struct sheaf_file *f;
	ssize_t total = 0;

	for (int i = 0; i < N; i++) {
		uint64_t len = 1 + below(&rnd, 100);

		v[i] = (struct iovec){ b + i * 200, len };
		at += below(&rnd, 300);
		e[i] = (struct sheaf_extent){ at, len };
		at += len;
		total += (ssize_t)len;
	}
	cluster_create(&c, &(struct cluster_opts){ .lease = 30 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_open(fs, "/f", O_CREAT | O_RDWR, 0600, &one, &f), 0);
	CHECK_EQ(sheaf_pwrite(f, b, 1, (off_t)at), 1);
	before = requests_of(fs);
	idle = requests_of(fs) - before;
	for (int write = 0; write < 2; write++) {
		before = requests_of(fs);
		CHECK_EQ(write ? sheaf_write_list(f, v, N, e, N) : sheaf_read_list(f, v, N, e, N),
			 total);
		CHECK_EQ(requests_of(fs) - before, idle + 1);
	}
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

/* Bytes of the caller's memory past the returned count are unchanged. */
static void memory_past_a_short_count_is_untouched(void)
{
	struct cluster c;
	struct sheaf *fs;
	struct sheaf_file *f;
	static uint8_t b[400000];

	cluster_create(&c, NULL);
	cluster_start(&c);
	fs = client_connect(c.conf);
	make_file(fs, "/f", 150001, 3);
	f = open_file(fs, "/f", O_RDONLY);
	for (int i = 0; i < 40; i++) {
		uint64_t off = (uint64_t)i * 4999, want = off < 150001 ? 150001 - off : 0;
		uint64_t len = 3000 + (uint64_t)i * 9000;

		want = want < len ? want : len;
		memset(b, 0x77, sizeof(b));
		CHECK_EQ(sheaf_pread(f, b, len, (off_t)off), (ssize_t)want);
		CHECK(is_pattern(b, want, 3, off));
		for (size_t k = want; k < sizeof(b); k++)
			CHECK_EQ(b[k], 0x77);
	}
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(NULL, NULL, NULL, TEST(random_lists_match_a_model_over_tcp),
	 TEST(random_lists_match_a_model_embedded), TEST(lists_whose_totals_differ_send_nothing),
	 TEST(a_list_of_2048_pieces_is_one_request), TEST(memory_past_a_short_count_is_untouched))
