/* Lists of many small pieces on storage that is not in memory, where the server sieves: contents,
 * holes and the end of the object against a model, many requests at a time with the smallest pool,
 * and an object that another process cuts. */
#include <fcntl.h>
#include <sys/stat.h>

#include "pipe_link.h"

#define MODEL (4 * MIB)
#define WRITERS 24
#define READERS 8

static struct world w;
static struct pipe_link *p;
static struct wire_open_res file;
static struct arena arena;
static const struct file_ops *real_files;
static struct file_ops disk_files;
static uint8_t *model, *mem;
static bool touched[MODEL / LEAST_PAGE]; /* pages of the host that a piece has touched */
static uint64_t model_end, rng = 1;

static uint64_t below(uint64_t n)
{
	return test_random(&rng) % n;
}

/* ---- the world ---- */

/* As on a disk: half of the queries find what is there cached. */
static bool half_cached(struct env *e, struct loop *l, int fd, uint64_t off, uint64_t len)
{
	return below(2) && real_files->cached && real_files->cached(e, l, fd, off, len);
}

/* The same storage, but the server regards it as a disk. */
static void as_on_disk(void)
{
	real_files = w.env.file;
	disk_files = *real_files;
	disk_files.cached = half_cached;
	w.env.file = &disk_files;
	w.loop.on_tmpfs = false;
}

/* A server with a pool of this size. */
static void begin(size_t pool_bytes)
{
	log_set_level(LOG_ERROR);
	world_start(&w);
	CHECK_EQ(server_stop(w.srv), 0);
	w.conf->pool_bytes = pool_bytes;
	world_start_server(&w);
	world_settle(&w);
	arena_init(&arena, 0);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	CHECK_EQ(pipe_open(&w, p, "file", 1, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &file, &arena),
		 0);
	model = calloc(1, MODEL);
	mem = calloc(1, MODEL);
	CHECK(model && mem);
	p->mem = mem;
	memset(touched, 0, sizeof(touched));
	model_end = 0;
}

static void end(void)
{
	CHECK_EQ(w.srv->pool.n_free, w.srv->pool.n_units);
	pipe_free(p);
	arena_destroy(&arena);
	world_end(&w);
	free(model);
	free(mem);
}

/* Sets the time of each access, and of each of its bytes. */
static void set_costs(double call, double byte)
{
	struct sieve_costs *c = disk_costs(w.srv->disk);

	for (int i = 0; i < SIEVE_SIZES; i++)
		c->read.ns[i] = c->write.ns[i] = c->cold.ns[i] = call + byte * sieve_sizes[i];
}

/* ---- lists ---- */

/* At least 400 pieces in ascending order: clusters of small pieces with small gaps, and between
 * them sparse pieces, most of which skip pages. */
static uint32_t clustered_list(struct wire_extent *list, uint64_t *total)
{
	uint32_t n = 0, want = 400 + (uint32_t)below(LIST_MAX - 400), left = 0;
	uint64_t at = below(50000);
	bool dense = true;

	*total = 0;
	while (n < want) {
		uint64_t len = 1 + below(dense || below(4) ? 200 : 4096);

		if (!left--) {
			dense = !dense;
			left = 1 + (uint32_t)below(dense ? 60 : 4);
		}
		at += below(dense ? 100 : 15000);
		if (at + len > MODEL)
			break;
		list[n++] = (struct wire_extent){ at, len };
		at += len;
		*total += len;
	}
	CHECK(n >= 100);
	return n;
}

static void note_written(const struct wire_extent *list, uint32_t n, const uint8_t *from)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	for (uint32_t i = 0; i < n; from += list[i++].length) {
		uint64_t hi = list[i].offset + list[i].length;

		memcpy(model + list[i].offset, from, list[i].length);
		model_end = MAX(model_end, hi);
		for (uint64_t k = list[i].offset / page; k <= (hi - 1) / page; k++)
			touched[k] = true;
	}
}

static int write_list(struct wire_extent *list, uint32_t n, uint64_t total)
{
	struct wire_write_args a = {
		.at.cap = file.cap, .list = list, .n_list = n, .mem = { .tag = 1, .length = total }
	};
	struct wire_write_res r;
	int error;

	for (uint64_t i = 0; i < total; i++)
		mem[i] = (uint8_t)test_random(&rng);
	error = pipe_do(&w, p, OP_WRITE, XDR_ANY(xdr_wire_write_args), &a,
			XDR_ANY(xdr_wire_write_res), &r, NULL);
	if (!error) {
		note_written(list, n, mem);
		CHECK_EQ(r.end, model_end);
	}
	return error;
}

static int read_list(struct wire_extent *list, uint32_t n, uint64_t total)
{
	struct wire_read_args a = {
		.at.cap = file.cap, .list = list, .n_list = n, .mem = { .tag = 1, .length = total }
	};
	struct wire_read_res r;

	memset(mem, 0xcc, total);
	return pipe_do(&w, p, OP_READ, XDR_ANY(xdr_wire_read_args), &a, XDR_ANY(xdr_wire_read_res),
		       &r, NULL);
}

/* What lies before `cut` is as in the model, the rest up to the end of the object has zeros. */
static void check_read(const struct wire_extent *list, uint32_t n, uint64_t cut)
{
	const uint8_t *got = mem;

	for (uint32_t i = 0; i < n; i++)
		for (uint64_t b = 0; b < list[i].length; b++) {
			uint64_t off = list[i].offset + b;
			uint8_t is = *got++;

			CHECK_EQ(is, off >= model_end ? 0xcc : off < cut ? model[off] : 0);
		}
}

/* ---- the object file ---- */

static int open_object(int flags)
{
	struct wire_access at = { .cap = file.cap };
	struct object_id id = object_of(&at);
	char name[OBJECT_PATH], path[256];
	int fd;

	object_path(name, &id);
	snprintf(path, sizeof(path), "%s/s0/objects/%s", w.dir, name);
	fd = open(path, flags | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

/* Calls fn for each page that has data. Returns false if the file system does not tell holes. */
static bool each_data_page(int fd, void (*fn)(uint64_t page))
{
	off_t page = sysconf(_SC_PAGESIZE), at = 0, hole;

	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		hole = lseek(fd, at, SEEK_HOLE);
		if (hole <= at)
			return false;
		for (off_t k = at / page; k * page < hole; k++)
			fn((uint64_t)k);
		at = hole;
	}
	return errno == ENXIO;
}

static uint64_t n_pages;

static void count_page(uint64_t page)
{
	(void)page;
	n_pages++;
}

/* Does the storage keep holes of one page and tell them? */
static bool tells_holes(void)
{
	char path[128];
	bool tells;
	int fd;

	snprintf(path, sizeof(path), "%s/holes", w.dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && pwrite(fd, "a", 1, 0) == 1 && pwrite(fd, "b", 1, MIB) == 1);
	n_pages = 0;
	tells = each_data_page(fd, count_page) && n_pages == 2;
	close(fd);
	CHECK_EQ(unlink(path), 0);
	return tells;
}

static void is_touched(uint64_t page)
{
	CHECK(page < ARRAY_LEN(touched) && touched[page]);
}

/* The whole object file: its end, its bytes, and its holes. */
static void check_object(void)
{
	int fd = open_object(O_RDONLY);
	struct stat st;

	CHECK_EQ(fstat(fd, &st), 0);
	CHECK_EQ(st.st_size, model_end);
	CHECK_EQ(pread(fd, mem, MODEL, 0), model_end);
	CHECK_EQ(memcmp(mem, model, model_end), 0);
	if (tells_holes())
		each_data_page(fd, is_touched);
	close(fd);
}

/* ---- tests ---- */

static void sieved_lists_change_their_pieces_only(void)
{
	static struct wire_extent list[LIST_MAX];
	const uint64_t *count;
	uint64_t total;
	uint32_t n;

	begin(2 * MIB);
	as_on_disk();
	count = w.srv->window_counts;
	for (int i = 0; i < 24; i++) {
		uint64_t writes = count[WRITE_SIEVE], reads = count[READ_SIEVE];

		/* by the default costs, wherever possible, and where a call is dear */
		*disk_costs(w.srv->disk) = sieve_defaults;
		if (i % 3)
			set_costs(i % 3 == 1 ? 1e9 : 5000, 1);
		n = clustered_list(list, &total);
		CHECK_EQ(write_list(list, n, total), 0);
		CHECK(count[WRITE_SIEVE] > writes);
		check_object();
		for (int k = 0; k < 6; k++) {
			n = clustered_list(list, &total);
			CHECK_EQ(read_list(list, n, total), 0);
			check_read(list, n, MODEL);
		}
		CHECK(i < 3 || count[READ_SIEVE] > reads); /* at first most lies beyond the end */
	}
	end();
}

/* Pieces of 1 to 4,096 bytes, one after the other, dealt to the writers. */
static uint32_t deal(struct wire_extent lists[WRITERS][LIST_MAX], uint32_t each)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < each; i++)
		for (uint32_t k = 0; k < WRITERS; k++) {
			uint64_t len = 1 + below(below(8) ? 100 : 4096);

			CHECK(at + len <= MODEL);
			lists[(k + i) % WRITERS][i] = (struct wire_extent){ at, len };
			at += len;
		}
	return each;
}

static struct pipe_link *another(struct wire_open_res *opened)
{
	struct pipe_link *l = pipe_new(&w, LINK_CLIENT);

	pipe_session(&w, l);
	CHECK_EQ(pipe_open(&w, l, "file", 1, OPEN_READ | OPEN_WRITE, opened, &arena), 0);
	l->mode = PIPE_DEFER;
	return l;
}

static uint64_t total_of(const struct wire_extent *list, uint32_t n)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < n; i++)
		total += list[i].length;
	return total;
}

static void start_write(struct pipe_link *l, const struct wire_open_res *opened,
			struct wire_extent *list, uint32_t n)
{
	struct wire_write_args a = { .at.cap = opened->cap,
				     .list = list,
				     .n_list = n,
				     .mem = { .tag = 1, .length = total_of(list, n) } };

	l->mem = malloc(a.mem.length);
	CHECK(l->mem);
	for (uint64_t i = 0; i < a.mem.length; i++)
		l->mem[i] = (uint8_t)test_random(&rng);
	note_written(list, n, l->mem);
	pipe_call(&w, l, OP_WRITE, 0, 1, XDR_ANY(xdr_wire_write_args), &a);
}

static void start_read(struct pipe_link *l, const struct wire_open_res *opened,
		       struct wire_extent *list, uint32_t n)
{
	struct wire_read_args a = { .at.cap = opened->cap,
				    .list = list,
				    .n_list = n,
				    .mem = { .tag = 1, .length = total_of(list, n) } };

	pipe_call(&w, l, OP_READ, 0, 1, XDR_ANY(xdr_wire_read_args), &a);
}

/* Interleaved writes and reads of many clients, all at the same time. The pool has room for a few
 * of them: the others wait, all end, and no byte is lost. */
static void many_sieved_requests_share_the_smallest_pool(void)
{
	static struct wire_extent lists[WRITERS][LIST_MAX];
	struct pipe_link *l[WRITERS + READERS];
	struct wire_open_res opened[WRITERS + READERS];
	uint64_t sieved[2];
	uint32_t n;

	begin(MIB);
	as_on_disk();
	set_costs(1e9, 0);
	n = deal(lists, 120);
	CHECK_EQ(write_list(lists[WRITERS - 1], n, total_of(lists[WRITERS - 1], n)), 0);
	for (uint32_t i = 0; i < WRITERS + READERS; i++)
		l[i] = another(&opened[i]);
	sieved[0] = w.srv->window_counts[WRITE_SIEVE];
	sieved[1] = w.srv->window_counts[READ_SIEVE];
	for (uint32_t i = 0; i < WRITERS; i++)
		start_write(l[i], &opened[i], lists[i], n);
	for (uint32_t i = WRITERS; i < WRITERS + READERS; i++)
		start_read(l[i], &opened[i], lists[WRITERS - 1], n);
	world_settle(&w);
	CHECK_EQ(w.srv->in_service, WRITERS + READERS);
	CHECK(!list_empty(&w.srv->pool.waiting));
	for (uint32_t i = 0; i < WRITERS + READERS; i++)
		l[i]->mode = PIPE_ANSWER;
	for (uint32_t i = 0; i < WRITERS + READERS; i++)
		pipe_release(l[i], 0);
	CHECK(world_quiet(&w));
	for (uint32_t i = 0; i < WRITERS + READERS; i++) {
		CHECK_EQ(l[i]->replies, l[i]->sent);
		CHECK_EQ(l[i]->head.status, 0);
		free(l[i]->mem);
		pipe_free(l[i]);
	}
	CHECK(w.srv->window_counts[WRITE_SIEVE] > sieved[0]);
	CHECK(w.srv->window_counts[READ_SIEVE] > sieved[1]);
	check_object();
	end();
}

static uint64_t cut_object(void)
{
	uint64_t cut = below(model_end);
	int fd = open_object(O_RDWR);

	CHECK_EQ(ftruncate(fd, (off_t)cut), 0);
	close(fd);
	return cut;
}

/* Another process cuts the object file while the server has it open: what was cut off reads as
 * zeros, what is written afterwards is there, and no access to a mapping ends the server. */
static void cut_behind_the_server(bool in_memory)
{
	static struct wire_extent list[LIST_MAX];
	uint64_t total, cut;
	uint32_t n;

	begin(2 * MIB);
	if (!in_memory)
		as_on_disk();
	pieces_guard();
	for (int i = 0; i < 12; i++) {
		set_costs(i % 2 ? 1e9 : 0, i % 2 ? 0 : 1);
		n = clustered_list(list, &total);
		CHECK_EQ(write_list(list, n, total), 0);
		CHECK_EQ(read_list(list, n, total), 0); /* maps the object */
		cut = cut_object();
		n = clustered_list(list, &total);
		CHECK_EQ(read_list(list, n, total), 0);
		check_read(list, n, cut);
		memset(model + cut, 0, MODEL - cut);
		n = clustered_list(list, &total);
		CHECK_EQ(write_list(list, n, total), 0);
		CHECK_EQ(read_list(list, n, total), 0);
		check_read(list, n, MODEL);
	}
	end();
}

static void an_object_that_is_cut_behind_the_server_has_zeros_there(void)
{
	cut_behind_the_server(true);
	cut_behind_the_server(false);
}

TEST_MAIN(TEST(sieved_lists_change_their_pieces_only),
	  TEST(many_sieved_requests_share_the_smallest_pool),
	  TEST(an_object_that_is_cut_behind_the_server_has_zeros_there))
