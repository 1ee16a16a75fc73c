/* Opens that several processes use: a ticket has all that another process needs to read and write a
 * file without a request to a metadata server.
 *
 * The metadata server knows the open of the process that made the ticket, its owner. An open made
 * from a ticket is a guest of it: its capability is the owner's, its close and fsync ask only data
 * servers, and the owner's close lets the metadata server ask the objects how far the guests wrote.
 * A guest whose capability is refused opens the file itself, and is no guest any more.
 *
 * Threads: the loop's. Buffers: the caller's. Errors: -EBADMSG: no ticket, or a damaged one. */
#include "client/file_impl.h"

enum { ASK, ASKED };
static const char *const names[] = { [ASK] = "ask", [ASKED] = "end" };

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	int64_t r;

	switch (q->state) {
	case ASK:
		req_goto(q, ASKED);
		cap_ask(op, op->file, &op->call, q);
		break;
	case ASKED:
		cap_take(op->file, &op->call);
		r = q->error;
		return cop_end(op, r == -EBADF ? -EIO : r);
	}
	return true;
}

static const struct req_ops renew_ops = REQ_OPS("renew", step, ASKED, names);

void client_renew(struct cop *op, struct cfile *f)
{
	op->file = f;
	f->holding->leaves_bank = true;
	cop_start(op, &renew_ops, 0);
}

ssize_t client_ticket(struct cfile *f, uint8_t *out, size_t size)
{
	uint64_t ends[TARGETS_MAX];
	struct wire_ticket t = { .magic = TICKET_MAGIC,
				 .version = TICKET_VERSION,
				 .h = f->h,
				 .flags = f->flags,
				 .change = f->opened_change,
				 .layout = { .version = 1,
					     .unit = f->layout.unit,
					     .start = f->layout.start,
					     .n_targets = f->layout.width,
					     .targets = f->targets,
					     .n_ends = f->layout.width,
					     .ends = ends },
				 .cap = f->cap };
	struct xdr x;

	if (!f->layout.width || (f->flags & OPEN_APPEND) || f->is_guest)
		return -EINVAL;
	memcpy(t.fs_id, f->c->net->id.fs.b, sizeof(t.fs_id));
	for (uint32_t i = 0; i < f->layout.width; i++)
		ends[i] = f->objects[i].recorded;
	xdr_encoder(&x, out, size);
	if (!xdr_wire_ticket(&x, &t))
		return -ERANGE;
	f->is_shared = f->flags & OPEN_WRITE;
	return (ssize_t)xdr_used(&x);
}

static int decode(const struct client *c, const void *p, size_t len, struct arena *a,
		  struct wire_ticket *t)
{
	struct xdr x;

	xdr_decoder(&x, p, len, a);
	if (!xdr_wire_ticket(&x, t) || xdr_left(&x) || t->magic != TICKET_MAGIC ||
	    t->layout.n_ends != t->layout.n_targets || !t->layout.n_targets)
		return -EBADMSG;
	if (t->version != TICKET_VERSION)
		return -EPROTONOSUPPORT;
	return memcmp(t->fs_id, c->net->id.fs.b, sizeof(t->fs_id)) ? -EXDEV : 0;
}

int client_open_ticket(struct client *c, const struct cred_wire *cred, const void *p, size_t len,
		       struct cfile **out)
{
	struct wire_ticket t;
	struct arena a;
	int r;

	arena_init(&a, MIB);
	r = decode(c, p, len, &a, &t);
	if (!r)
		r = file_new(c, &t.h, ++c->next_open, &t.layout, out);
	if (r == -EIO) /* a server that this client does not know yet, or nonsense */
		r = -ESTALE;
	if (!r) {
		(*out)->flags = t.flags & (OPEN_READ | OPEN_WRITE);
		(*out)->cap = t.cap;
		(*out)->opened_change = t.change;
		(*out)->cred = *cred;
		(*out)->is_guest = true;
		(*out)->holding->leaves_bank = true;
	}
	arena_destroy(&a);
	return r;
}

int client_take_ticket(struct cfile *f, const void *p, size_t len)
{
	struct wire_ticket t;
	struct arena a;
	int r;

	arena_init(&a, MIB);
	r = decode(f->c, p, len, &a, &t);
	if (!r && (t.h.ino != f->h.ino || t.h.gen != f->h.gen))
		r = -ESTALE;
	if (!r && f->is_guest && t.cap.epoch >= f->cap.epoch) {
		file_recorded(f, t.cap.epoch, &t.layout);
		f->cap = t.cap;
	}
	arena_destroy(&a);
	return r;
}
