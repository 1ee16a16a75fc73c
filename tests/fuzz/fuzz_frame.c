/* The frame parser with a stream that is cut anywhere.
 *
 * The input begins with a mode and the sizes of the cuts. In the first mode the rest is the stream
 * itself: the parser may refuse it, but it writes only to the memory it was given and always makes
 * progress. In the second mode the rest describes frames; a valid stream is built from them and
 * must come out unchanged. */
#include <assert.h>
#include <stdlib.h>

#include "net/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_PIECES 64
#define MAX_FRAMES 64
#define MAX_STREAM (512 * KIB)
#define CUTS 8

struct sink_state {
	struct frame_in *in;
	bool strict; /* valid stream: compare the output */
	bool bulk, drop;
	size_t piece; /* bytes per piece of a body */
	uint8_t *pieces[MAX_PIECES]; /* each allocated with exactly its size */
	size_t n_pieces;
	uint64_t length; /* length of the body in the pieces */
	struct wire_frame_head want[MAX_FRAMES];
	const uint8_t *body[MAX_FRAMES]; /* position in the stream */
	int32_t status[MAX_FRAMES];
	size_t n_want, heads, ends;
};

static void free_pieces(struct sink_state *s)
{
	while (s->n_pieces)
		free(s->pieces[--s->n_pieces]);
}

static size_t piece_len(const struct sink_state *s, size_t i)
{
	return (size_t)MIN((uint64_t)s->piece, s->length - i * s->piece);
}

static void make_pieces(struct sink_state *s, uint32_t length)
{
	free_pieces(s);
	s->length = length;
	s->piece = MAX(s->piece, length / MAX_PIECES + 1);
	for (; s->n_pieces * s->piece < length; s->n_pieces++) {
		s->pieces[s->n_pieces] = malloc(piece_len(s, s->n_pieces));
		assert(s->pieces[s->n_pieces]);
	}
}

static int on_head(void *arg, const struct wire_frame_head *h)
{
	struct sink_state *s = arg;
	uint32_t max = h->kind == FRAME_DATA	? CHUNK_MAX :
		       h->kind >= FRAME_PULL	? 0 :
		       h->kind >= FRAME_REQUEST ? MSG_MAX :
						  HELLO_MAX;

	if (!h->kind || h->kind > FRAME_CANCEL || h->length > max) {
		assert(!s->strict);
		return -EPROTO;
	}
	if (s->strict) {
		assert(s->heads < s->n_want);
		assert(memcmp(h, &s->want[s->heads], sizeof(*h)) == 0);
	}
	s->heads++;
	if (h->kind == FRAME_DATA)
		make_pieces(s, h->length);
	return 0;
}

static size_t on_place(void *arg, uint64_t at, uint64_t len, struct iovec *out, size_t max,
		       uint64_t *got)
{
	struct sink_state *s = arg;
	size_t n = 0;

	assert(len && at <= s->length && len <= s->length - at && max);
	*got = 0;
	if (s->drop)
		return 0;
	while (len && n < max) {
		size_t i = (size_t)(at / s->piece), o = (size_t)(at % s->piece);
		size_t k = (size_t)MIN((uint64_t)(piece_len(s, i) - o), len);

		out[n++] = (struct iovec){ s->pieces[i] + o, k };
		at += k;
		len -= k;
		*got += k;
	}
	return n;
}

static bool on_came(void *arg, uint64_t at, uint64_t n, int error)
{
	struct sink_state *s = arg;

	assert(n && !error && at <= s->length && n <= s->length - at);
	return true;
}

static int on_data_end(void *arg, int32_t status)
{
	struct sink_state *s = arg;

	if (s->strict) {
		assert(status == s->status[s->ends]);
		for (size_t i = 0; i < s->n_pieces && !s->drop; i++)
			assert(memcmp(s->pieces[i], s->body[s->ends] + i * s->piece,
				      piece_len(s, i)) == 0);
	}
	s->ends++;
	assert(s->ends == s->heads);
	return 0;
}

static int on_message(void *arg, const struct wire_frame_head *h, struct msg *m)
{
	struct sink_state *s = arg;

	assert(m->len == h->length && h->kind != FRAME_DATA);
	if (s->strict)
		assert(memcmp(m->body, s->body[s->ends], m->len) == 0);
	s->ends++;
	assert(s->ends == s->heads);
	msg_free(m);
	return 0;
}

static bool on_bulk(void *arg)
{
	return ((struct sink_state *)arg)->bulk;
}

static const struct frame_sink sink = {
	on_head, on_place, on_came, on_data_end, on_message, on_bulk
};

/* Copies the next bytes of the stream to where the parser wants them. Returns how many. */
static size_t pour(const struct iovec *iov, size_t n, const uint8_t *p, size_t len)
{
	size_t done = 0;

	for (size_t i = 0; i < n && done < len; i++) {
		size_t k = MIN(iov[i].iov_len, len - done);

		memcpy(iov[i].iov_base, p + done, k);
		done += k;
	}
	return done;
}

static int feed(struct sink_state *s, struct frame_in *f, const uint8_t *cuts, const uint8_t *p,
		size_t len)
{
	int r = 0;

	for (unsigned turn = 0; len && !r; turn++) {
		struct iovec iov[16];
		size_t n = frame_want(f, iov, ARRAY_LEN(iov));
		size_t cut = (size_t)cuts[turn % CUTS] * cuts[turn % CUTS] + 1, got;

		assert(n && n <= ARRAY_LEN(iov) && iov_total(iov, n));
		got = pour(iov, n, p, MIN(cut, len));
		assert(got);
		r = frame_got(f, got);
		p += got;
		len -= got;
		s->bulk ^= cuts[turn % CUTS] & 1;
	}
	return r;
}

/* Every three input bytes describe a frame: its kind and length. The body is derived from them. */
static size_t make_stream(struct sink_state *s, uint8_t *out, const uint8_t *data, size_t size)
{
	size_t n = 0;

	for (; size >= 3 && s->n_want < MAX_FRAMES; data += 3, size -= 3) {
		struct wire_frame_head h = { .kind = data[0] % FRAME_CANCEL + 1 };
		struct xdr x;

		h.length = (uint32_t)data[1] * data[2];
		if (h.kind < FRAME_REQUEST)
			h.length %= HELLO_MAX + 1;
		else if (h.kind >= FRAME_PULL)
			h.length = 0;
		h.tag = data[1];
		h.at = (uint64_t)data[2] << 40;
		h.id = size;
		if (n + FRAME_HEAD + h.length + FRAME_TAIL > MAX_STREAM)
			break;
		frame_head_encode(out + n, &h);
		s->want[s->n_want] = h;
		s->body[s->n_want] = out + n + FRAME_HEAD;
		n += FRAME_HEAD;
		for (uint32_t i = 0; i < h.length; i++)
			out[n + i] = (uint8_t)(i * 7 + data[0] + data[1]);
		n += h.length;
		s->status[s->n_want] = (int32_t)(data[0] * 1000003u);
		if (h.kind == FRAME_DATA) {
			xdr_encoder(&x, out + n, FRAME_TAIL);
			xdr_i32(&x, &s->status[s->n_want]);
			n += FRAME_TAIL;
		}
		s->n_want++;
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct net net;
	static struct frame_in f;
	static uint8_t stream[MAX_STREAM];
	struct net_identity id = { .target = 0 };
	struct sink_state s = { .in = &f };
	const uint8_t *cuts = data + 2;
	int r;

	if (size < 2 + CUTS)
		return 0;
	if (!net.spare_msgs.next)
		net_init(&net, NULL, &id);
	s.strict = data[0] & 1;
	s.bulk = data[0] & 2;
	s.drop = data[0] & 4;
	s.piece = data[1] + 1u;
	data += 2 + CUTS;
	size -= 2 + CUTS;
	frame_init(&f, &net, &sink, &s);
	if (s.strict) {
		size = make_stream(&s, stream, data, size);
		r = feed(&s, &f, cuts, stream, size);
		assert(r == 0 && s.ends == s.n_want && !frame_partial(&f));
	} else {
		r = feed(&s, &f, cuts, data, size);
		assert(r == 0 || r == -EPROTO);
	}
	frame_fini(&f);
	free_pieces(&s);
	return 0;
}
