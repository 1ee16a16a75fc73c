/* READ and WRITE of lists, compared with a model of the object: each readable byte arrives exactly
 * once and in its place, nothing behind the end is touched, and later extents win where they
 * overlap. */
#include "pipe_link.h"

#define MODEL (3 * MIB)
#define MAX_EXTENTS LIST_MAX

static struct world w;
static struct pipe_link *p;
static struct wire_open_res file;
static struct arena arena;
static uint8_t *model, *mem, *moved;
static uint64_t model_end;
static uint64_t rng = 1;

static uint64_t below(uint64_t n)
{
	return test_random(&rng) % n;
}

static void begin(void)
{
	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&arena, 0);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	CHECK_EQ(pipe_open(&w, p, "file", 1, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &file, &arena),
		 0);
	model = calloc(1, MODEL);
	mem = malloc(MODEL * 2);
	moved = malloc(MODEL * 2);
	CHECK(model && mem && moved);
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
	free(moved);
}

/* A random list of at most `max` bytes. Extents may overlap, be empty, or reach behind the end. */
static uint32_t random_list(struct wire_extent *list, uint64_t max, uint64_t *total)
{
	uint32_t n = 0, want = (uint32_t)below(below(4) ? 12 : 600) + 1;
	uint64_t size = below(3) ? below(2000) + 1 : below(500000) + 1;
	uint64_t near = below(2) ? MODEL : 1 + below(400000), from = below(MODEL - near + 1);

	if (near < MODEL) /* many extents close together */
		size = 1 + below(near / want + 1);
	*total = 0;
	while (n < want) {
		uint64_t len = below(10) ? below(size) : 0, off = from + below(near - size + 1);

		if (*total + len > max)
			break;
		list[n++] = (struct wire_extent){ off, len };
		*total += len;
	}
	return n;
}

static int by_offset(const void *a, const void *b)
{
	const struct wire_extent *x = a, *y = b;

	return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Sorts the list and cuts each piece off where the next one begins: such lists may be sieved. */
static void in_order(struct wire_extent *list, uint32_t n, uint64_t *total)
{
	qsort(list, n, sizeof(*list), by_offset);
	*total = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (i + 1 < n)
			list[i].length = MIN(list[i].length, list[i + 1].offset - list[i].offset);
		*total += list[i].length;
	}
}

static void put_into_model(const struct wire_extent *list, uint32_t n, const uint8_t *from)
{
	for (uint32_t i = 0; i < n; from += list[i++].length) {
		memcpy(model + list[i].offset, from, list[i].length);
		if (list[i].length)
			model_end = MAX(model_end, list[i].offset + list[i].length);
	}
}

/* Removes overlaps, so that the result does not depend on the order of windows. */
static uint32_t apart(struct wire_extent *list, uint32_t n, uint64_t *total)
{
	static uint8_t taken[MODEL];
	uint32_t k = 0;

	memset(taken, 0, sizeof(taken));
	*total = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t len = list[i].length;

		for (uint64_t b = 0; b < len; b++)
			if (taken[list[i].offset + b])
				len = b;
		memset(taken + list[i].offset, 1, len);
		list[k] = (struct wire_extent){ list[i].offset, len };
		*total += list[k++].length;
	}
	return k;
}

static void random_write(bool small, bool sorted)
{
	static struct wire_extent list[MAX_EXTENTS];
	uint64_t total;
	uint32_t n = random_list(list, small ? INLINE_MAX : 2 * MIB, &total);
	struct wire_write_args a = { .at.cap = file.cap, .list = list };
	struct wire_write_res r;

	a.n_list = apart(list, n, &total);
	if (sorted)
		in_order(list, n, &total);
	for (uint64_t i = 0; i < total; i++)
		mem[i] = (uint8_t)test_random(&rng);
	memset(moved, 0, total);
	p->mem = mem;
	p->moved = moved;
	a.mem = (struct wire_mem_desc){ .tag = !small, .length = small ? 0 : total };
	if (small)
		a.data = (struct wire_bytes){ (uint32_t)total, mem };
	CHECK_EQ(pipe_do(&w, p, OP_WRITE, XDR_ANY(xdr_wire_write_args), &a,
			 XDR_ANY(xdr_wire_write_res), &r, NULL),
		 0);
	put_into_model(list, a.n_list, mem);
	CHECK_EQ(r.end, model_end);
	for (uint64_t i = 0; i < total && !small; i++)
		CHECK_EQ(moved[i], 1);
}

static void check_read(const struct wire_extent *list, uint32_t n, const uint8_t *got, bool bulk)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		for (uint64_t b = 0; b < list[i].length; b++, at++) {
			uint64_t off = list[i].offset + b;

			if (bulk)
				CHECK_EQ(moved[at], off < model_end);
			if (off < model_end)
				CHECK_EQ(got[at], model[off]);
			else if (bulk)
				CHECK_EQ(got[at], 0xcc); /* not touched */
		}
	}
}

static void random_read(bool small, bool sorted)
{
	static struct wire_extent list[MAX_EXTENTS];
	uint64_t total;
	struct wire_read_args a = { .at.cap = file.cap, .list = list };
	struct wire_read_res r;

	a.n_list = random_list(list, small ? INLINE_MAX : 2 * MIB, &total);
	if (sorted)
		in_order(list, a.n_list, &total);
	memset(moved, 0, total);
	memset(mem, 0xcc, total);
	p->mem = mem;
	p->moved = moved;
	a.mem = (struct wire_mem_desc){ .tag = !small, .length = small ? 0 : total };
	CHECK_EQ(pipe_do(&w, p, OP_READ, XDR_ANY(xdr_wire_read_args), &a,
			 XDR_ANY(xdr_wire_read_res), &r, NULL),
		 0);
	CHECK_EQ(r.end, model_end);
	if (small)
		CHECK_EQ(r.data.len, model_end ? total : 0);
	if (!small || r.data.len)
		check_read(list, a.n_list, small ? r.data.p : mem, !small);
}

/* Windows that the server has counted, of all strategies of `op`. */
static uint64_t windows_of(const char *op)
{
	uint64_t sum = 0;

	for (int i = 0; i < N_STRATEGIES; i++)
		sum += strcmp(strategies[i].op, op) == 0 ? w.srv->window_counts[i] : 0;
	return sum;
}

/* Sets the time of each access, and of each of its bytes. */
static void set_costs(double call, double byte)
{
	struct sieve_costs *c = disk_costs(w.srv->disk);

	for (int i = 0; i < SIEVE_SIZES; i++)
		c->read.ns[i] = c->write.ns[i] = c->cold.ns[i] = call + byte * sieve_sizes[i];
}

static void random_lists(const struct net_ops *ops)
{
	begin();
	p->l.ops = ops;
	random_read(false, false); /* there is no object yet */
	random_read(true, true);
	for (int i = 0; i < 60; i++) {
		/* sieve wherever possible, nowhere, or by the default rule */
		if (i % 4 == 0)
			set_costs(1e9, 0);
		else if (i % 4 == 1)
			set_costs(0, 1);
		else if (i % 4 == 2)
			*disk_costs(w.srv->disk) = sieve_defaults;
		random_write(i % 3 == 0, below(2));
		random_read(i % 2, below(2));
		random_read(false, below(2));
	}
	CHECK(windows_of("read") > 0 && windows_of("write") > 0);
	CHECK_EQ(windows_of("copy"), 0);
	end();
}

static void random_lists_read_what_random_lists_wrote(void)
{
	random_lists(&pipe_ops);
}

static void large_pieces_may_leave_straight_from_the_file(void)
{
	random_lists(&pipe_ops_file);
}

static int write_list(struct wire_extent *list, uint32_t n, uint64_t mem_length, uint32_t data_len)
{
	static const uint8_t bytes[INLINE_MAX];
	struct wire_write_args a = { .at.cap = file.cap,
				     .list = list,
				     .n_list = n,
				     .mem = { .tag = mem_length != 0, .length = mem_length },
				     .data = { data_len, bytes } };
	struct wire_write_res r;

	return pipe_do(&w, p, OP_WRITE, XDR_ANY(xdr_wire_write_args), &a,
		       XDR_ANY(xdr_wire_write_res), &r, NULL);
}

static int read_list(struct wire_extent *list, uint32_t n, uint64_t mem_length)
{
	struct wire_read_args a = { .at.cap = file.cap,
				    .list = list,
				    .n_list = n,
				    .mem = { .tag = mem_length != 0, .length = mem_length } };
	struct wire_read_res r;

	return pipe_do(&w, p, OP_READ, XDR_ANY(xdr_wire_read_args), &a, XDR_ANY(xdr_wire_read_res),
		       &r, NULL);
}

/* The accesses since *before. */
static struct disk_counters counted(const struct disk_counters *before)
{
	struct disk_counters c;

	disk_counters(w.srv->disk, &c);
	return (struct disk_counters){ .requested = c.requested - before->requested,
				       .performed = c.performed - before->performed,
				       .vain_bytes = c.vain_bytes - before->vain_bytes,
				       .read_modify_writes =
					       c.read_modify_writes - before->read_modify_writes };
}

static struct disk_counters count_list(bool write, uint32_t n)
{
	static struct wire_extent list[1000];
	struct disk_counters before;

	for (uint32_t i = 0; i < n; i++)
		list[i] = (struct wire_extent){ i * UINT64_C(100), 30 };
	disk_counters(w.srv->disk, &before);
	p->mem = mem;
	p->moved = moved;
	CHECK_EQ(write ? write_list(list, n, 30 * n, 0) : read_list(list, n, 30 * n), 0);
	return counted(&before);
}

/* The metrics have a line with this counter. */
static void check_metric(const char *name, uint64_t value)
{
	char line[128], *text;
	size_t len;

	snprintf(line, sizeof(line), "\nsheaf_%s_total %llu\n", name, (unsigned long long)value);
	CHECK_EQ(server_metrics(w.srv, &text, &len), 0);
	CHECK(strstr(text, line));
	free(text);
}

static void accesses_are_counted(void)
{
	struct file_ops plain = *env_real()->file;
	struct disk_counters c;

	begin();
	plain.cached = NULL; /* every piece is read and written */
	w.env.file = &plain;
	set_costs(0, 1); /* separately */
	for (int write = 1; write >= 0; write--) {
		c = count_list(write, 1000);
		CHECK_EQ(c.requested, 1000);
		CHECK_EQ(c.performed, 1000);
		CHECK_EQ(c.vain_bytes + c.read_modify_writes, 0);
	}
	set_costs(1e9, 0); /* in one range that covers them */
	c = count_list(false, 1000);
	CHECK_EQ(c.requested, 1000);
	CHECK_EQ(c.performed, 1);
	CHECK_EQ(c.vain_bytes, 999 * 70);
	CHECK_EQ(c.read_modify_writes, 0);
	c = count_list(true, 1000);
	CHECK_EQ(c.requested, 1000);
	CHECK_EQ(c.performed, 2);
	CHECK_EQ(c.vain_bytes, 999 * 70);
	CHECK_EQ(c.read_modify_writes, 1);
	w.env.file = env_real()->file;
	c = count_list(false, 1000); /* copied from the mapping, or sent from it */
	CHECK_EQ(c.requested, 1000);
	CHECK_EQ(c.performed, 1000);
	disk_counters(w.srv->disk, &c);
	check_metric("accesses_requested", c.requested);
	check_metric("accesses_performed", c.performed);
	check_metric("accesses_merged", 0);
	check_metric("vain_bytes", 2 * 999 * 70);
	check_metric("read_modify_writes", 1);
	end();
}

static void lies_about_lengths_are_refused(void)
{
	struct wire_extent e[2] = { { 0, 100 }, { 1000, 50 } };
	struct wire_extent far = { INT64_MAX, 1 }, wrap = { 8, UINT64_MAX };
	struct wire_extent huge[2] = { { 0, INT64_MAX }, { 0, INT64_MAX } };

	begin();
	CHECK_EQ(write_list(e, 2, 0, 150), 0);
	CHECK_EQ(write_list(e, 2, 0, 149), -EINVAL);
	CHECK_EQ(write_list(e, 2, 151, 0), -EINVAL);
	CHECK_EQ(read_list(e, 2, 149), -EINVAL);
	CHECK_EQ(write_list(&far, 1, 1, 0), -EFBIG);
	CHECK_EQ(read_list(&far, 1, 1), -EFBIG);
	CHECK_EQ(read_list(&wrap, 1, 8), -EFBIG);
	CHECK_EQ(read_list(huge, 2, 5), -EINVAL);
	e[0].length = INLINE_MAX;
	CHECK_EQ(read_list(e, 2, 0), -EINVAL); /* too large for inline data */
	e[0].length = INLINE_MAX - 50;
	CHECK_EQ(read_list(e, 2, 0), 0);
	CHECK_EQ(read_list(e, 0, 0), 0);
	CHECK_EQ(write_list(e, 0, 0, 0), 0);
	end();
}

/* Empty extents over existing data, where a direct store is possible, and behind the end. */
static void empty_pieces_are_nothing(void)
{
	struct wire_extent whole = { 0, 8192 }, e[6] = { { 0, 0 },    { 100, 10 }, { 4096, 0 },
							 { 300, 20 }, { 8192, 0 }, { 50, 0 } };
	struct wire_extent none[4] = { { 0, 0 }, { 5, 0 }, { 8192, 0 }, { 1, 0 } };

	begin();
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(write_list(e, 6, 0, 30), 0);
		CHECK_EQ(write_list(none, 4, 0, 0), 0);
		CHECK_EQ(read_list(e, 6, 0), 0);
		CHECK_EQ(write_list(&whole, 1, 0, 8192), 0);
	}
	CHECK(w.srv->loop->on_tmpfs || strcmp(world_parent(), "/dev/shm") != 0);
	end();
}

static void a_client_that_refuses_its_memory_gets_an_error(void)
{
	struct wire_extent e = { 0, MIB };

	begin();
	CHECK_EQ(write_list(&e, 1, MIB, 0), 0);
	p->mode = PIPE_REFUSE;
	CHECK_EQ(write_list(&e, 1, MIB, 0), -ECANCELED);
	CHECK_EQ(read_list(&e, 1, MIB), -ECANCELED);
	p->mode = PIPE_ANSWER;
	CHECK_EQ(read_list(&e, 1, MIB), 0);
	end();
}

/* More requests than the pool has memory for: they take turns, and a broken link releases all
 * buffers. */
static void the_pool_is_shared_and_comes_back(void)
{
	struct wire_extent e = { 0, MIB };
	struct wire_write_args a = { .list = &e, .n_list = 1, .mem = { .tag = 1, .length = MIB } };

	begin();
	a.at.cap = file.cap;
	p->mode = PIPE_DEFER;
	for (uint32_t i = 0; i < 20; i++)
		pipe_call(&w, p, OP_WRITE, i, 1, XDR_ANY(xdr_wire_write_args), &a);
	world_settle(&w);
	CHECK_EQ(session_on(&p->l, 0)->share.held,
		 WINDOW_BYTES / BUF_UNIT); /* an eighth of 2 MiB */
	CHECK(list_empty(&w.srv->pool.waiting)); /* no other request waits */
	CHECK_EQ(w.srv->in_service, 20);
	p->mode = PIPE_ANSWER;
	pipe_release(p, 0);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->replies, p->sent);
	p->mode = PIPE_DEFER;
	for (uint32_t i = 0; i < 20; i++)
		pipe_call(&w, p, OP_WRITE, i, 2, XDR_ANY(xdr_wire_write_args), &a);
	world_settle(&w);
	link_close(&p->l, -ECONNRESET);
	CHECK(world_quiet(&w));
	end();
}

/* Reads sent directly from the file are bounded like others, and count as load for other
 * clients. */
static void reads_from_the_file_have_their_share_too(void)
{
	struct wire_extent e = { 0, MIB };
	struct wire_read_args a = { .list = &e, .n_list = 1, .mem = { .tag = 1, .length = MIB } };
	struct wire_void_args none = { 0 };
	struct pipe_link *other;

	begin();
	other = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, other);
	p->l.ops = &pipe_ops_file;
	p->mem = mem;
	p->moved = moved;
	CHECK_EQ(write_list(&e, 1, MIB, 0), 0);
	CHECK_EQ(p->head.load, 0);
	a.at.cap = file.cap;
	p->mode = PIPE_DEFER;
	for (uint32_t i = 1; i < 20; i++)
		pipe_call(&w, p, OP_READ, i, 1, XDR_ANY(xdr_wire_read_args), &a);
	world_settle(&w);
	CHECK_EQ(session_on(&p->l, 0)->share.held, WINDOW_BYTES / BUF_UNIT);
	pipe_call(&w, other, OP_PING, 0, 1, XDR_ANY(xdr_wire_void_args), &none);
	world_settle(&w);
	CHECK_EQ(other->replies, 2);
	CHECK_EQ(other->head.load, 1);
	p->mode = PIPE_ANSWER;
	pipe_release(p, 0);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->replies, p->sent);
	pipe_free(other);
	end();
}

static void a_cancelled_request_stops_and_is_answered(void)
{
	struct wire_extent e = { 0, MIB };
	struct wire_read_args a = { .list = &e, .n_list = 1, .mem = { .tag = 1, .length = MIB } };

	begin();
	CHECK_EQ(write_list(&e, 1, MIB, 0), 0);
	a.at.cap = file.cap;
	p->mode = PIPE_DEFER;
	pipe_call(&w, p, OP_READ, 0, 1, XDR_ANY(xdr_wire_read_args), &a);
	world_settle(&w);
	srv_cancel(w.srv, &p->l, 1);
	p->mode = PIPE_ANSWER;
	pipe_release(p, 0);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, ECANCELED);
	end();
}

/* ---- patterns ---- */

/* `count` pieces of 8 bytes, every 32 bytes. */
static struct wire_bytes every_fourth(uint64_t count)
{
	static uint8_t text[256];
	struct type *cell, *t;
	struct wire_bytes b = { 0, text };

	CHECK_EQ(type_bytes(8, &cell), 0);
	CHECK_EQ(type_vector(count, 1, 32, cell, &t), 0);
	b.len = (uint32_t)type_wire_size(t);
	CHECK(b.len <= sizeof(text));
	type_encode(t, text);
	type_free(cell);
	type_free(t);
	return b;
}

static int read_pattern(struct wire_pattern part, struct wire_mem_desc desc, uint32_t n_list,
			bool *beyond)
{
	struct wire_extent e = { 0, 8 };
	struct wire_read_args a = { .at.cap = file.cap,
				    .n_list = n_list,
				    .list = &e,
				    .n_part = 1,
				    .part = &part,
				    .mem = desc };
	struct wire_read_res r = { 0 };
	int status;

	p->mem = mem;
	p->moved = moved;
	status = pipe_do(&w, p, OP_READ, XDR_ANY(xdr_wire_read_args), &a,
			 XDR_ANY(xdr_wire_read_res), &r, NULL);
	if (beyond)
		*beyond = r.beyond;
	return status;
}

static void a_pattern_is_read_up_to_the_end(void)
{
	struct wire_pattern part = {
		.type = every_fourth(64), .base = 8, .unit = 4096, .width = 2, .upto = 512
	};
	struct wire_mem_desc desc = { .tag = 1, .length = 512 };
	bool beyond;

	begin();
	CHECK_EQ(read_pattern(part, desc, 0, &beyond), 0);
	CHECK(beyond); /* there is no object */
	for (int i = 0; i < 10; i++)
		random_write(true, false);
	memset(moved, 0, 512);
	memset(mem, 0xcc, 512);
	CHECK_EQ(read_pattern(part, desc, 0, &beyond), 0);
	CHECK_EQ(beyond, model_end < 8 + 63 * 32 + 8);
	for (uint64_t i = 0; i < 512; i++) {
		uint64_t off = 8 + i / 8 * 32 + i % 8;

		CHECK_EQ(moved[i], off < model_end);
		if (off < model_end)
			CHECK_EQ(mem[i], model[off]);
	}
	end();
}

/* Ten million pieces behind the end, or in other objects: the loop stays responsive, and the
 * request ends. */
static void patterns_without_a_find_end(void)
{
	struct wire_pattern part = { .type = every_fourth(10000000),
				     .base = 1 << 30,
				     .unit = 4096,
				     .width = 2,
				     .upto = 80000000 };
	struct wire_mem_desc desc = { .tag = 1, .length = 80000000 };
	uint64_t looks; /* TAKE steps of windows so far */
	bool beyond;

	begin();
	random_write(true, false);
	looks = w.srv->window_times[0].count;
	CHECK_EQ(read_pattern(part, desc, 0, &beyond), 0);
	CHECK(beyond);
	CHECK(w.srv->window_times[0].count - looks > 100);
	part.unit = 32; /* all pieces are in object 0 */
	part.width = 1;
	part.base = 0;
	looks = w.srv->window_times[0].count;
	CHECK_EQ(read_pattern(part, desc, 0, &beyond), 0);
	CHECK(beyond);
	CHECK(w.srv->window_times[0].count - looks > 100);
	end();
}

static void patterns_that_lie_are_refused(void)
{
	const struct wire_pattern good = {
		.type = every_fourth(64), .base = 8, .unit = 4096, .width = 2, .upto = 512
	};
	const struct wire_mem_desc desc = { .tag = 1, .length = 512 };
	struct wire_pattern bad[] = { good, good, good, good, good, good, good, good, good };
	int status[] = { -EINVAL, -EINVAL, -EINVAL,  -EINVAL, -EINVAL,
			 -EINVAL, -EINVAL, -EBADMSG, -EBADMSG };
	uint8_t garbage[40] = { 0xff, 1, 2 };

	bad[0].unit = 0;
	bad[1].width = 0;
	bad[2].start = 2;
	bad[3].index = 2;
	bad[4].begin = 513;
	bad[5].base = -100;
	bad[6].width = bad[6].unit = UINT32_MAX;
	bad[7].type = (struct wire_bytes){ sizeof(garbage), garbage };
	bad[8].type.len--;
	begin();
	random_write(false, false);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_EQ(read_pattern(bad[i], desc, 0, NULL), status[i]);
	CHECK_EQ(read_pattern(good, desc, 1, NULL), -EINVAL); /* a pattern together with a list */
	CHECK_EQ(read_pattern(good, (struct wire_mem_desc){ 0 }, 0, NULL), -EINVAL);
	CHECK_EQ(read_pattern(good, (struct wire_mem_desc){ .tag = 1, .length = 511 }, 0, NULL),
		 -EINVAL);
	CHECK_EQ(read_pattern(good, desc, 0, NULL), 0);
	end();
}

TEST_MAIN(TEST(random_lists_read_what_random_lists_wrote),
	  TEST(large_pieces_may_leave_straight_from_the_file), TEST(accesses_are_counted),
	  TEST(lies_about_lengths_are_refused), TEST(empty_pieces_are_nothing),
	  TEST(a_client_that_refuses_its_memory_gets_an_error),
	  TEST(the_pool_is_shared_and_comes_back), TEST(reads_from_the_file_have_their_share_too),
	  TEST(a_cancelled_request_stops_and_is_answered), TEST(a_pattern_is_read_up_to_the_end),
	  TEST(patterns_without_a_find_end), TEST(patterns_that_lie_are_refused))
