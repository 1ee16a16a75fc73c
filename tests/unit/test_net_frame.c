/* The frame parser: messages and bulk come out unchanged, however the stream is cut. */
#include "net/frame.h"

#include "test.h"

struct out {
	struct frame_in in;
	bool bulk, refuse;
	uint8_t data[300000];
	uint64_t placed; /* bytes for which place() returned memory */
	uint64_t came; /* bytes of this frame so far */
	unsigned n_messages, n_data;
	uint32_t kinds[16], lengths[16];
	uint8_t last[256];
	int32_t status;
};

static struct net net;
static struct out o;

static int on_head(void *arg, const struct wire_frame_head *h)
{
	(void)arg;
	(void)h;
	return o.refuse ? -EPROTO : 0;
}

static size_t on_place(void *arg, uint64_t at, uint64_t len, struct iovec *iov, size_t max,
		       uint64_t *got)
{
	(void)arg;
	CHECK(max > 0 && at + len <= sizeof(o.data));
	*got = MIN(len, 1000); /* forces several pieces */
	iov[0] = (struct iovec){ o.data + at, *got };
	o.placed += *got;
	return 1;
}

static bool on_came(void *arg, uint64_t at, uint64_t n, int error)
{
	(void)arg;
	CHECK_EQ(at, o.came); /* in order, each byte once */
	CHECK_EQ(error, 0);
	o.came += n;
	return true;
}

static int on_data_end(void *arg, int32_t status)
{
	(void)arg;
	o.came = 0;
	o.n_data++;
	o.status = status;
	return 0;
}

static int on_message(void *arg, const struct wire_frame_head *h, struct msg *m)
{
	(void)arg;
	CHECK_EQ(m->len, h->length);
	o.kinds[o.n_messages % 16] = h->kind;
	o.lengths[o.n_messages++ % 16] = h->length;
	memcpy(o.last, m->body, MIN(m->len, sizeof(o.last)));
	msg_free(m);
	return 0;
}

static bool on_bulk(void *arg)
{
	(void)arg;
	return o.bulk;
}

static const struct frame_sink sink = {
	on_head, on_place, on_came, on_data_end, on_message, on_bulk
};

static uint8_t stream[1 << 20];
static size_t n_stream;

static void add(uint32_t kind, uint32_t length, int32_t status)
{
	struct wire_frame_head h = { .kind = kind, .length = length, .tag = 5 };
	struct xdr x;

	frame_head_encode(stream + n_stream, &h);
	n_stream += FRAME_HEAD;
	for (uint32_t i = 0; i < length; i++)
		stream[n_stream++] = (uint8_t)(i * 3 + kind);
	if (kind != FRAME_DATA)
		return;
	xdr_encoder(&x, stream + n_stream, FRAME_TAIL);
	xdr_i32(&x, &status);
	n_stream += FRAME_TAIL;
}

/* Feeds the stream, at most `cut` bytes at a time. Returns the parser's last result. */
static int feed(size_t cut)
{
	size_t at = 0;
	int r = 0;

	while (at < n_stream && !r) {
		struct iovec iov[8];
		size_t n = frame_want(&o.in, iov, 8), done = 0, most = MIN(cut, n_stream - at);

		CHECK(n > 0 && iov_total(iov, n) > 0);
		for (size_t i = 0; i < n && done < most; i++) {
			size_t k = MIN(iov[i].iov_len, most - done);

			memcpy(iov[i].iov_base, stream + at + done, k);
			done += k;
		}
		r = frame_got(&o.in, done);
		at += done;
	}
	return r;
}

static void begin(bool bulk)
{
	struct net_identity id = { .target = 0 };

	memset(&o, 0, sizeof(o));
	o.bulk = bulk;
	n_stream = 0;
	net_init(&net, NULL, &id);
	frame_init(&o.in, &net, &sink, NULL);
}

static void end(void)
{
	frame_fini(&o.in);
	net_fini(&net);
}

static void frames_come_out_whole_however_they_are_cut(void)
{
	static const size_t cuts[] = { 1, 2, 39, 40, 41, 44, 100, 4095, 4096, 4097, 1 << 20 };

	for (size_t i = 0; i < 2 * ARRAY_LEN(cuts); i++) {
		begin(i % 2);
		add(FRAME_REQUEST, 200, 0);
		add(FRAME_DATA, 262144, 0);
		add(FRAME_CANCEL, 0, 0);
		add(FRAME_DATA, 0, 125);
		add(FRAME_REPLY, 100000, 0);
		add(FRAME_DATA, 5000, -7);
		add(FRAME_PULL, 0, 0);
		CHECK_EQ(feed(cuts[i / 2]), 0);
		CHECK(!frame_partial(&o.in));
		CHECK_EQ(o.n_messages, 4);
		CHECK_EQ(o.kinds[1], FRAME_CANCEL);
		CHECK_EQ(o.lengths[2], 100000);
		CHECK_EQ(o.n_data, 3);
		CHECK_EQ(o.status, -7);
		for (size_t k = 0; k < 5000; k++)
			CHECK_EQ(o.data[k], (uint8_t)(k * 3 + FRAME_DATA));
		end();
	}
}

static void a_wrong_magic_ends_it(void)
{
	begin(false);
	add(FRAME_REQUEST, 10, 0);
	add(FRAME_REQUEST, 10, 0);
	stream[FRAME_HEAD + 10] ^= 1;
	CHECK_EQ(feed(7), -EPROTO);
	CHECK_EQ(o.n_messages, 1);
	end();
}

static void a_head_that_is_refused_ends_it_before_any_memory_is_taken(void)
{
	begin(false);
	o.refuse = true;
	add(FRAME_REPLY, 100000, 0);
	CHECK_EQ(feed(1), -EPROTO);
	CHECK(!o.in.m);
	CHECK_EQ(o.n_messages, 0);
	end();
}

static void while_bulk_may_come_it_is_not_read_ahead(void)
{
	struct iovec iov[8];

	begin(true);
	CHECK_EQ(frame_want(&o.in, iov, 8), 1);
	CHECK_EQ(iov[0].iov_len, FRAME_HEAD); /* no byte of the body after it */
	end();
	begin(false);
	CHECK_EQ(frame_want(&o.in, iov, 8), 1);
	CHECK(iov[0].iov_len > FRAME_HEAD);
	end();
}

static void a_partial_frame_is_known_as_one(void)
{
	begin(false);
	CHECK(!frame_partial(&o.in));
	add(FRAME_REQUEST, 10, 0);
	n_stream -= 5;
	CHECK_EQ(feed(1000), 0);
	CHECK(frame_partial(&o.in));
	n_stream = 10;
	end();
	begin(false);
	add(FRAME_REQUEST, 10, 0);
	n_stream = 20; /* half a frame head */
	CHECK_EQ(feed(1000), 0);
	CHECK(frame_partial(&o.in));
	end();
}

TEST_MAIN(TEST(frames_come_out_whole_however_they_are_cut), TEST(a_wrong_magic_ends_it),
	  TEST(a_head_that_is_refused_ends_it_before_any_memory_is_taken),
	  TEST(while_bulk_may_come_it_is_not_read_ahead), TEST(a_partial_frame_is_known_as_one))
