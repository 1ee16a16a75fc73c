/* The frame parser. It copies bulk data only if it had to read them ahead: while bulk may arrive,
 * it reads exactly one head at a time, together with the end of the body before it. */
#include "net/backend.h"
#include "net/frame.h"

void frame_init(struct frame_in *f, struct net *n, const struct frame_sink *sink, void *arg)
{
	f->sink = sink;
	f->arg = arg;
	f->net = n;
	f->state = IN_HEAD;
	f->m = NULL;
	f->have = f->used = 0;
	f->done = f->wanted = 0;
}

void frame_fini(struct frame_in *f)
{
	msg_free(f->m);
	f->m = NULL;
}

bool frame_partial(const struct frame_in *f)
{
	return f->state != IN_HEAD || f->have != f->used;
}

void frame_head_encode(uint8_t out[FRAME_HEAD], struct wire_frame_head *h)
{
	struct xdr x;

	h->magic = SHEAF_MAGIC;
	xdr_encoder(&x, out, FRAME_HEAD);
	xdr_wire_frame_head(&x, h);
}

void frame_head_tell(uint8_t head[FRAME_HEAD], uint32_t may_send, uint32_t load)
{
	struct wire_frame_head h;
	struct xdr x;

	xdr_decoder(&x, head, FRAME_HEAD, NULL);
	xdr_wire_frame_head(&x, &h);
	h.want = may_send;
	if (h.kind != FRAME_INVITE)
		h.id = load;
	frame_head_encode(head, &h);
}

/* Free space in `small` for `least` bytes, and for more if only messages can arrive. */
static struct iovec small_room(struct frame_in *f, uint32_t least)
{
	uint32_t room = f->sink->bulk(f->arg) ? least : (uint32_t)sizeof(f->small);

	memmove(f->small, f->small + f->used, f->have - f->used);
	f->have -= f->used;
	f->used = 0;
	room = MAX(room, f->have + 1);
	return (struct iovec){ f->small + f->have, room - f->have };
}

static size_t want_data(struct frame_in *f, struct iovec *iov, size_t max)
{
	uint64_t left = f->h.length - f->done;
	size_t n = f->sink->place(f->arg, f->done, left, iov, max - 1, &f->wanted);

	if (n == 0) {
		if (!net_scratch(f->net))
			return 0;
		f->wanted = MIN(left, NET_SCRATCH);
		iov[0] = (struct iovec){ f->net->scratch, f->wanted };
		n = 1;
	}
	if (f->wanted == left)
		iov[n++] = small_room(f, FRAME_TAIL + FRAME_HEAD);
	return n;
}

size_t frame_want(struct frame_in *f, struct iovec *iov, size_t max)
{
	f->wanted = 0;
	switch (f->state) {
	case IN_HEAD:
		iov[0] = small_room(f, FRAME_HEAD);
		return 1;
	case IN_STATUS:
		iov[0] = small_room(f, FRAME_TAIL + FRAME_HEAD);
		return 1;
	case IN_MESSAGE:
		f->wanted = f->h.length - f->done;
		iov[0] = (struct iovec){ f->m->body + f->done, f->wanted };
		iov[1] = small_room(f, FRAME_HEAD);
		return 2;
	case IN_DATA:
		return want_data(f, iov, max);
	}
	return 0;
}

static int begin(struct frame_in *f)
{
	struct xdr x;
	int r;

	xdr_decoder(&x, f->small + f->used, FRAME_HEAD, NULL);
	if (!xdr_wire_frame_head(&x, &f->h) || f->h.magic != SHEAF_MAGIC)
		return -EPROTO;
	f->used += FRAME_HEAD;
	f->done = 0;
	r = f->sink->head(f->arg, &f->h);
	if (r)
		return r;
	if (f->h.kind == FRAME_DATA) {
		f->state = IN_DATA;
		return 0;
	}
	/* long messages of the slab are registered, and a server may read them */
	f->m = f->h.length > MSG_SHORT ? msg_own(f->net, f->h.length) :
					 msg_new(f->net, f->h.length);
	if (!f->m)
		return -ENOMEM;
	f->m->len = f->h.length;
	f->state = IN_MESSAGE;
	return 0;
}

/* Copies bulk that was read ahead into `small` to its destination. */
static void take_data(struct frame_in *f, uint32_t avail)
{
	while (avail && f->done < f->h.length) {
		struct iovec iov[16];
		uint64_t got = 0, left = MIN((uint64_t)avail, f->h.length - f->done);
		size_t n = f->sink->place(f->arg, f->done, left, iov, ARRAY_LEN(iov), &got);

		if (n == 0)
			got = left;
		else if (!f->sink->stored(f->arg, f->done, got,
					  pieces_unpack(iov, n, f->small + f->used)))
			continue;
		f->used += (uint32_t)got;
		f->done += got;
		avail -= (uint32_t)got;
	}
}

/* One step of parsing the bytes in `small`. 1: more bytes are needed. */
static int advance(struct frame_in *f)
{
	uint32_t avail = f->have - f->used;
	struct msg *m = f->m;

	switch (f->state) {
	case IN_HEAD:
		return avail < FRAME_HEAD ? 1 : begin(f);
	case IN_MESSAGE:
		avail = (uint32_t)MIN((uint64_t)avail, f->h.length - f->done);
		memcpy(m->body + f->done, f->small + f->used, avail);
		f->used += avail;
		f->done += avail;
		if (f->done < f->h.length)
			return 1;
		f->m = NULL;
		f->state = IN_HEAD;
		return f->sink->message(f->arg, &f->h, m);
	case IN_DATA:
		take_data(f, avail);
		if (f->done < f->h.length)
			return 1;
		f->state = IN_STATUS;
		return 0;
	case IN_STATUS: {
		struct xdr x;
		int32_t status;

		if (avail < FRAME_TAIL)
			return 1;
		xdr_decoder(&x, f->small + f->used, FRAME_TAIL, NULL);
		xdr_i32(&x, &status);
		f->used += FRAME_TAIL;
		f->state = IN_HEAD;
		return f->sink->data_end(f->arg, status);
	}
	}
	return -EPROTO;
}

int frame_got(struct frame_in *f, size_t n)
{
	uint64_t body = MIN((uint64_t)n, f->wanted);
	int r;

	if (body && f->state == IN_DATA)
		f->sink->stored(f->arg, f->done, body, 0);
	f->done += body;
	f->wanted = 0;
	f->have += (uint32_t)(n - body);
	do
		r = advance(f);
	while (r == 0);
	return r == 1 ? 0 : r;
}
