/* Framing, independent of sockets: parses a byte stream into messages and bulk. Private to net. */
#ifndef SHEAF_FRAME_H
#define SHEAF_FRAME_H

#include "net/msg.h"
#include "net/net.h"

#define FRAME_TAIL 4 /* status after the body of a DATA frame */

/* Callbacks of the parser. A non-zero error return ends parsing with that error. */
struct frame_sink {
	int (*head)(void *arg, const struct wire_frame_head *h); /* is this frame allowed now? */
	/* Memory for bytes [at, at + len) of the DATA body; none: they are dropped. */
	size_t (*place)(void *arg, uint64_t at, uint64_t len, struct iovec *out, size_t max,
			uint64_t *got);
	/* n bytes were stored where place() said for `at`, or were dropped, or could not be stored
	 * (error). False: call place() again. */
	bool (*stored)(void *arg, uint64_t at, uint64_t n, int error);
	int (*data_end)(void *arg, int32_t status);
	int (*message)(void *arg, const struct wire_frame_head *h, struct msg *m); /* takes m */
	bool (*bulk)(void *arg); /* bulk data may be next: do not read ahead into `small` */
};

enum frame_state { IN_HEAD, IN_MESSAGE, IN_DATA, IN_STATUS };

struct frame_in {
	const struct frame_sink *sink;
	void *arg;
	struct net *net;
	enum frame_state state;
	struct wire_frame_head h;
	struct msg *m;
	uint64_t done; /* bytes of the body */
	uint64_t wanted; /* body bytes offered by the last frame_want() */
	uint32_t have, used; /* bytes of small filled and consumed */
	uint8_t small[8 * KIB]; /* holds a page of data and its headers: one read call */
};

void frame_init(struct frame_in *f, struct net *n, const struct frame_sink *sink, void *arg);
void frame_fini(struct frame_in *f);
/* Where to store the next bytes: read into these, then call frame_got(). 0: out of memory. */
size_t frame_want(struct frame_in *f, struct iovec *iov, size_t max);
int frame_got(struct frame_in *f, size_t n);
bool frame_partial(const struct frame_in *f); /* in the middle of a frame */
/* Sets what a message over RDMA tells beside its body, in an encoded head. */
void frame_head_tell(uint8_t head[FRAME_HEAD], uint32_t may_send, uint32_t load);
void frame_head_encode(uint8_t out[FRAME_HEAD], struct wire_frame_head *h);

#endif
