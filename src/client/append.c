/* Appends: the metadata server gives each one its place, then its data are written like others,
 * then it is reported. Allocation through a file opened with O_APPEND that may make the file longer
 * works the same way.
 *
 *   ASK -> WRITE -> REPORT (-> ASK) -> JUDGE
 *
 * An append under way is in f->appends, so that it can be claimed after a restart of the metadata
 * server. When the file was fenced meanwhile, the place may be gone: the append asks again, and
 * gets the same place unless the file was truncated. Buffers: the write is an operation of its own
 * that borrows the caller's memory. Errors: those of the write. A lost report only delays what
 * others see: until the file is closed, their size ends before this append. */
#include "client/append.h"

#define MAX_PLACES 100

enum { ASK, WRITE, REPORT, JUDGE };
static const char *const names[] = {
	[ASK] = "place", [WRITE] = "write", [REPORT] = "report", [JUDGE] = "end"
};

static void written(struct cop *write)
{
	req_done(write->user, 0, 0);
}

/* Where the range to be allocated ends. */
static uint64_t upto(const struct append *a)
{
	return a->ext.offset + a->ext.length;
}

static void write_there(struct cop *op, struct append *a)
{
	struct sheaf_cred cred = { .uid = op->cred.uid, .gid = op->cred.gid };

	a->offset = a->res.offset;
	a->epoch = a->res.epoch;
	a->placed = true;
	if (a->allocates)
		a->length = upto(a) - MIN(upto(a), a->offset);
	else
		a->ext = (struct extent){ a->offset, a->length };
	a->write = cop_new(op->c, &cred);
	if (!a->write) {
		op->q.error = -ENOMEM;
		return;
	}
	a->write->user = &op->q;
	a->write->done = written;
	req_hold(&op->q);
	append_there(a->write, op->file, a);
}

static void tell(struct cop *op, struct append *a)
{
	a->done_args = (struct wire_appended_args){ op->file->h, op->file->id, a->id };
	op->call = call_make(op, OP_APPENDED, &a->done_args, &op->res);
	peer_call(meta_peer(op->c, op->file->h.ino), &op->call, &op->q);
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct append *a = op->state;

	switch (q->state) {
	case ASK:
		req_goto(q, WRITE);
		a->args = (struct wire_append_args){ .h = op->file->h,
						     .open = op->file->id,
						     .id = a->id,
						     .length = a->allocates ? 0 : a->length,
						     .upto = a->allocates ? upto(a) : 0 };
		op->call = call_make(op, OP_APPEND, &a->args, &a->res);
		peer_call(meta_peer(op->c, op->file->h.ino), &op->call, q);
		break;
	case WRITE:
		req_goto(q, REPORT);
		call_fini(&op->call);
		write_there(op, a);
		break;
	case REPORT: /* also after an error before it */
		req_goto(q, JUDGE);
		call_fini(&op->call);
		a->result = a->write ? a->write->result : q->error;
		q->error = 0;
		if (a->write)
			cop_free(a->write);
		a->write = NULL;
		if (a->result == -EAGAIN && ++a->places < MAX_PLACES)
			req_goto(q, ASK);
		else if (a->placed)
			tell(op, a);
		break;
	case JUDGE:
		call_fini(&op->call);
		list_del(&a->link);
		/* the session was lost, with the open; or the file was truncated again and again */
		if (a->result == -EBADF || a->result == -EAGAIN)
			a->result = -EIO;
		return cop_end(op, a->result);
	}
	return true;
}

static const struct req_ops append_ops = REQ_OPS("append", step, REPORT, names);

void append_start(struct cop *op, struct append *a, struct cfile *f)
{
	op->file = f;
	op->state = a;
	a->id = ++op->c->next_open; /* unique in all our sessions */
	list_push(&f->appends, &a->link);
	cop_start(op, &append_ops, 0);
}

uint32_t append_claims(const struct cfile *f, struct wire_append_claim *out)
{
	const struct append *a;
	uint32_t n = 0;

	list_for_each(a, &f->appends, link)
		if (a->placed && n < APPENDS_MAX)
			out[n++] =
				(struct wire_append_claim){ a->id, a->offset, a->length, a->epoch };
	return n;
}
