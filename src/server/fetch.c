/* Reads bytes of one object for a COPY to another: from the disk when the object is here, else by a
 * READ to the target that has it.
 *
 * The COPY has checked the capability against its client's key. This target signs it anew for the
 * other.
 *
 *   here:       BEGIN -> OPEN -> TURN -> DATA
 *   elsewhere:  BEGIN -> DATA
 *
 * Threads: the loop's. Buffers: the window's, from a pool that only copies use: a READ never waits
 * for a copy, so two targets that copy from each other make progress however full they are. Errors:
 * those of the other target are passed on; a fenced capability gives -ESTALE or -EKEYEXPIRED. */
#include "server/cap.h"
#include "server/window.h"

enum { BEGIN, OPEN, TURN, DATA };
static const char *const names[] = {
	[BEGIN] = "begin", [OPEN] = "open", [TURN] = "turn", [DATA] = "data"
};

static const struct layout flat = { 4096, 1, 0 }; /* an object is a file on one target */

static void ask(struct fetch *f)
{
	static const struct cred_wire root = { 0 };
	struct server *srv = f->srv;

	f->args = (struct wire_read_args){ .at = *f->at,
					   .n_list = f->n_list,
					   .list = (struct wire_extent *)f->list };
	/* it was signed for the client's key; sign it for servers */
	cap_sign(srv, "", &f->args.at.cap);
	f->call = (struct call){ .op = OP_READ,
				 .args = &f->args,
				 .res = &f->res,
				 .cred = &root,
				 .trace = f->q.trace,
				 .deadline = srv->loop->now + srv->conf->timeout_s * NSEC_PER_SEC,
				 .mem = &f->view,
				 .mem_access = CAP_WRITE,
				 .mem_wire = &f->args.mem };
	peer_call(&srv->peers[f->source], &f->call, &f->q);
}

static void read_here(struct fetch *f)
{
	uint64_t at = 0, got;
	size_t used = 0;

	for (uint32_t i = 0; i < f->n_list; at += f->list[i++].length) {
		struct iovec *iov = f->iov + used;
		size_t n = view_iov(&f->view, at, f->list[i].length, iov, ARRAY_LEN(f->iov) - used,
				    &got);

		f->ios[i] = (struct io){ .off = f->list[i].offset, .iov = iov, .n = (int)n };
		used += n;
	}
	object_count(f->object, f->n_list, 0);
	object_read(f->object, f->ios, f->n_list, &f->q);
}

static void take_turn(struct fetch *f)
{
	uint64_t lo = UINT64_MAX, hi = 0;

	for (uint32_t i = 0; i < f->n_list; i++) {
		lo = MIN(lo, f->list[i].offset);
		hi = MAX(hi, f->list[i].offset + f->list[i].length);
	}
	turn_begin(f->object, &f->turn, f->at->cap.epoch, lo, hi, false, &f->q);
}

/* Zeros the part of the buffer beyond the object's end, of which nothing was sent. */
static void zero_behind(struct fetch *f, uint64_t end)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < f->n_list; at += f->list[i++].length) {
		const struct extent *e = &f->list[i];
		uint64_t there = e->offset < end ? MIN(e->length, end - e->offset) : 0;

		view_zero(&f->view, at + there, e->length - there);
	}
}

/* Does the fetch reach into lost data of an object of this server? 0 or -errno. */
static int lost_here(struct fetch *f, uint64_t end)
{
	return read_damaged(f->s, f->at, (const struct wire_extent *)f->list, f->n_list, end);
}

static bool finish(struct fetch *f)
{
	struct req *parent = f->parent;
	int error = f->q.error;

	if (f->source != f->srv->target) {
		if (!error)
			zero_behind(f, f->res.end);
		call_fini(&f->call);
	} else if (error == -ENOENT && !f->object) {
		error = lost_here(f, 0);
		zero_behind(f, 0);
	} else if (!error) {
		error = lost_here(f, object_end(f->object));
		sreq_count_read(f->s, f->view.length);
	}
	turn_end(&f->turn);
	object_put(f->object);
	f->object = NULL;
	f->busy = false;
	req_fini(&f->q);
	req_done(parent, error, 0);
	return false;
}

static bool step(struct req *q)
{
	struct fetch *f = container_of(q, struct fetch, q);

	switch (q->state) {
	case BEGIN:
		if (f->source != f->srv->target) {
			req_goto(q, DATA);
			if (f->srv->stopping)
				req_fail(q, -ESHUTDOWN);
			else
				ask(f);
			break;
		}
		req_goto(q, OPEN);
		object_get(f->srv->disk, object_of(f->at), f->at->cap.epoch, false, &f->object, q);
		break;
	case OPEN:
		req_goto(q, TURN);
		take_turn(f);
		break;
	case TURN:
		req_goto(q, DATA);
		read_here(f);
		break;
	case DATA:
		return finish(f);
	}
	return true;
}

static const struct req_ops fetch_ops = REQ_OPS("fetch", step, DATA, names);

void fetch_init(struct fetch *f, struct sreq *s, const struct wire_access *at, uint32_t source)
{
	f->s = s;
	f->srv = s->srv;
	f->at = at;
	f->source = source;
	f->q.trace = s->q.trace;
}

void fetch_start(struct fetch *f, uint32_t n, const struct buf *buf, struct req *q)
{
	struct cursor from = { 0 };
	uint64_t trace = f->q.trace;
	int r = access_init(&f->access, buf->iov, buf->n, f->ext, n);

	f->parent = q;
	f->turn = (struct turn){ 0 };
	if (!r)
		f->n_list = (uint32_t)view_plan(&f->view, &f->access, &flat, 0, &from, f->list,
						WINDOW_IOS, WINDOW_BYTES);
	f->busy = true;
	req_hold(q);
	req_init(&f->q, f->srv->loop, &fetch_ops, BEGIN);
	f->q.trace = trace;
	f->q.error = r;
	req_run(&f->q);
}

void fetch_cancel(struct fetch *f)
{
	if (f->busy && f->source != f->srv->target)
		peer_cancel(&f->call, -ECANCELED);
}

struct fetch *fetch_of(const struct server *srv, struct req *q)
{
	struct fetch *f = container_of(q, struct fetch, q);

	return q->ops == &fetch_ops && f->srv == srv ? f : NULL;
}

void fetch_abandon(struct fetch *f)
{
	req_abandon(&f->q);
	call_fini(&f->call);
}
