/* Reads through the cache bank (cache/cache.h): of files that had no writer when they were opened.
 *
 *   FIND -> FOUND				all was found
 *   FIND -> FOUND -> FETCHED -> CHECKED	the ticket: fetches what is missing, and stores it
 *   FIND -> FOUND -> (pause) -> FIND		another client fills
 *   FIND -> FOUND -> PLAIN			the servers are asked as if there were no bank
 *
 * Blocks are named by the state that the file had at its open. What was fetched is stored under
 * that name only if the metadata server says afterwards that the file is still in that state: then
 * no writer was there meanwhile. If it is not, this open uses the bank no more; nor does it after a
 * write or truncation through this client, or a lock: then what the servers have is wanted.
 *
 * Threads: the loop's. Buffers: blocks are in one piece of memory of the access, and copied to the
 * caller. Errors: those of the servers; none of the bank. */
#include <stdlib.h>

#include "client/banked.h"

#define BYTES_MAX MIB /* of an access */
#define WASTE_MAX 8 /* times the bytes of the access may be fetched */
#define AHEAD 7 /* further blocks that are filled where a file is read in order */
#define PAUSE_NS NSEC_PER_MSEC /* twice as long each time */

enum { FIND, FOUND, FETCHED, CHECKED, PLAIN };
static const char *const names[] = {
	[FIND] = "wait",    [FOUND] = "bank",  [FETCHED] = "objects",
	[CHECKED] = "attr", [PLAIN] = "plain",
};

struct banked {
	const struct iovec *mem;
	const struct extent *ext;
	size_t n_mem, n_ext;
	struct bank_call call;
	uint8_t *data; /* of all blocks */
	uint64_t epoch; /* of the capability before the fetch */
	struct cop *read; /* from the servers, or NULL */
	struct iovec *mem_missing;
	struct extent *ext_missing;
	size_t n_missing, n_ahead; /* n_ahead: room for blocks behind those of the access */
	unsigned pauses;
	uint64_t patience; /* how long it waits for another client's fill, in ns */
	struct timer pause;
	uint64_t began;
	int64_t result;
};

int client_bank_open(struct client *c)
{
	char *why = c->bank_why;
	size_t why_len = sizeof(c->bank_why);
	const struct conf *conf = c->conf;
	const char *wish = getenv("SHEAF_BANK");
	uint8_t key[KEY_BYTES];
	int r;

	if (!conf->bank.n_servers || (wish && strcmp(wish, "off") == 0))
		return error_explain(why, why_len, -ENOENT, "%s",
				     conf->bank.n_servers ? "$SHEAF_BANK is off" :
							    "the cluster file has no [bank]");
	r = key_load(conf->bank.key_file, key, why, why_len);
	if (!r)
		r = bank_new(c->loop, &conf->bank, key, &conf->fs_id, &c->bank, why, why_len);
	explicit_bzero(key, sizeof(key));
	if (!r && wish && strcmp(wish, "always") == 0)
		bank_ask_always(c->bank);
	return r;
}

void file_leave_bank(struct client *c, uint64_t ino)
{
	struct cfile *f;

	if (!c->bank)
		return;
	list_for_each(f, &c->files, link)
		if (f->h.ino == ino)
			f->uses_bank = false;
}

void file_use_bank(struct cfile *f, const struct wire_open_res *r)
{
	f->opened_size = r->at.size;
	f->uses_bank = f->c->bank && f->flags == OPEN_READ && f->unsynced && !r->at.unsettled;
	if (f->flags & OPEN_WRITE)
		file_leave_bank(f->c, f->h.ino);
}

/* The state that names the blocks. False: it is not known. */
static bool state_of(const struct cfile *f, struct bank_state *s)
{
	*s = (struct bank_state){ .incarnation = meta_peer(f->c, f->h.ino)->incarnation,
				  .ino = f->h.ino,
				  .change = f->opened_change,
				  .size = f->opened_size,
				  .gen = f->h.gen,
				  .obj_gen = f->cap.obj_gen };
	return s->incarnation && (!f->has_unsynced_before || cfile_verifier(f, &s->verifier));
}

/* ---- the blocks of an access ---- */

/* Calls `visit` for each piece of an extent that lies in one block and before the file's end. */
static void each_piece(const struct extent *ext, size_t n_ext, uint64_t size, uint32_t block,
		       void (*visit)(void *arg, uint64_t off, uint64_t at, uint64_t n), void *arg)
{
	uint64_t at = 0; /* in the memory of the access */

	for (size_t i = 0; i < n_ext; at += ext[i++].length) {
		uint64_t off = ext[i].offset, end = MIN(off + ext[i].length, size), n;

		for (; off < end; off += n) {
			n = MIN(block - off % block, end - off);
			visit(arg, off, at + off - ext[i].offset, n);
		}
	}
}

struct counting {
	uint64_t n, last;
	uint32_t block;
};

static void count_block(void *arg, uint64_t off, uint64_t at, uint64_t n)
{
	struct counting *k = arg;

	(void)at, (void)n;
	k->n += !k->n || off / k->block != k->last;
	k->last = off / k->block;
}

/* How many blocks the access touches; 0: too many, or the bank is not for it. */
static size_t blocks_of(const struct cfile *f, const struct extent *ext, size_t n_ext,
			uint64_t total)
{
	uint32_t block = bank_block_bytes(f->c->bank);
	struct counting k = { .block = block };

	if (!total || total > BYTES_MAX)
		return 0;
	each_piece(ext, n_ext, f->opened_size, block, count_block, &k);
	if (k.n > BANK_BATCH ||
	    (k.n > 2 && (k.n > MIB / block || k.n * block > WASTE_MAX * total + block)))
		return 0;
	return (size_t)k.n;
}

static void add_block(void *arg, uint64_t off, uint64_t at, uint64_t n)
{
	struct banked *b = arg;
	struct bank_call *c = &b->call;
	uint32_t block = bank_block_bytes(c->bank);

	(void)at, (void)n;
	if (c->n && c->blocks[c->n - 1].index == off / block)
		return;
	c->blocks[c->n] =
		(struct bank_block){ .index = off / block, .data = b->data + c->n * block };
	c->n++;
}

struct copying {
	const struct banked *b;
	size_t k; /* block */
	size_t i; /* of the memory */
	uint64_t before; /* bytes of the memory before number i */
	int error;
};

/* Copies a piece of a block to the caller's memory. */
static void copy_piece(void *arg, uint64_t off, uint64_t at, uint64_t n)
{
	struct copying *c = arg;
	const struct bank_call *call = &c->b->call;
	uint32_t block = bank_block_bytes(call->bank);
	const uint8_t *from;

	while (call->blocks[c->k].index != off / block)
		c->k++;
	from = call->blocks[c->k].data + off % block;
	while (n) {
		const struct iovec *v = &c->b->mem[c->i];
		uint64_t skip = at - c->before, part = MIN(n, v->iov_len - MIN(skip, v->iov_len));

		if (!part) {
			c->before += v->iov_len;
			c->i++;
			continue;
		}
		if (pieces_unpack(&(struct iovec){ (char *)v->iov_base + skip, part }, 1, from))
			c->error = -EFAULT;
		from += part;
		at += part;
		n -= part;
	}
}

static int64_t copy_out(struct cop *op)
{
	struct banked *b = op->state;
	struct copying c = { .b = b };

	each_piece(b->ext, b->n_ext, b->call.state.size, bank_block_bytes(op->c->bank), copy_piece,
		   &c);
	return c.error ? c.error : (int64_t)access_before(&op->access, b->call.state.size);
}

/* ---- asking the servers ---- */

static void read_done(struct cop *read)
{
	req_done(read->user, 0, 0);
}

static void read_start(struct cop *op, const struct iovec *mem, size_t n_mem,
		       const struct extent *ext, size_t n_ext)
{
	struct banked *b = op->state;

	b->read = cop_new(op->c, &(struct sheaf_cred){ .uid = op->cred.uid, .gid = op->cred.gid });
	if (!b->read) {
		op->q.error = -ENOMEM;
		return;
	}
	b->read->user = &op->q;
	b->read->done = read_done;
	req_hold(&op->q);
	read_plain(b->read, op->file, mem, n_mem, ext, n_ext);
}

static int64_t read_end(struct banked *b)
{
	int64_t r = b->read ? b->read->result : -ENOMEM;

	if (b->read)
		cop_free(b->read);
	b->read = NULL;
	return r;
}

/* Adds blocks that are likely to be wanted next. They are fetched whether the bank has them or
 * not. */
static void look_ahead(struct banked *b)
{
	struct bank_call *c = &b->call;
	uint32_t block = bank_block_bytes(c->bank);

	for (size_t i = 0; i < b->n_ahead; i++) {
		uint64_t index = c->blocks[c->n - 1].index + 1, start = index * block;

		if (start >= c->state.size)
			return;
		c->blocks[c->n] = (struct bank_block){
			.index = index,
			.data = b->data + c->n * block,
			.length = (uint32_t)MIN(block, c->state.size - start),
		};
		c->n++;
	}
}

/* Fetches the missing blocks as wholes. */
static void fetch(struct cop *op)
{
	struct banked *b = op->state;

	look_ahead(b);
	b->epoch = op->file->cap.epoch;
	b->n_missing = 0;
	for (size_t i = 0; i < b->call.n; i++) {
		const struct bank_block *k = &b->call.blocks[i];

		if (k->is_found)
			continue;
		b->mem_missing[b->n_missing] = (struct iovec){ k->data, k->length };
		b->ext_missing[b->n_missing++] =
			(struct extent){ k->index * bank_block_bytes(op->c->bank), k->length };
	}
	read_start(op, b->mem_missing, b->n_missing, b->ext_missing, b->n_missing);
}

static bool is_fetched(struct banked *b)
{
	int64_t want = 0;

	for (size_t i = 0; i < b->n_missing; i++)
		want += (int64_t)b->mem_missing[i].iov_len;
	return read_end(b) == want;
}

static void ask_state(struct cop *op)
{
	op->args.GETATTR = (struct wire_getattr_args){ op->file->h, true };
	op->call = call_make(op, OP_GETATTR, &op->args, &op->res);
	peer_call(meta_peer(op->c, op->file->h.ino), &op->call, &op->q);
}

/* Stores what was fetched, if the file is still in the state that names it. */
static void store(struct cop *op)
{
	struct banked *b = op->state;
	const struct wire_getattr_res *r = &op->res.getattr;
	const struct cfile *f = op->file;
	struct bank_state now;

	if (!state_of(f, &now) || memcmp(&now, &b->call.state, sizeof(now)) ||
	    r->at.change != f->opened_change || r->at.unsettled || r->at.size != f->opened_size ||
	    r->cap.epoch != b->epoch || f->cap.epoch != b->epoch) {
		op->file->uses_bank = false;
		return;
	}
	bank_store(op->c->bank, &b->call.state, b->call.blocks, b->call.n, b->data);
	b->call.blocks = NULL;
	b->data = NULL;
}

static void pause_over(struct timer *t)
{
	struct banked *b = container_of(t, struct banked, pause);

	req_done(b->call.q, 0, 0);
}

/* Another client has the ticket. */
static void pause_start(struct cop *op)
{
	struct banked *b = op->state;
	struct loop *l = op->c->loop;

	bank_counters(op->c->bank)->waits++;
	req_hold(&op->q);
	b->pause.fire = pause_over;
	if (timer_set(l, &b->pause, l->now + (PAUSE_NS << b->pauses++)))
		req_done(&op->q, 0, 0);
}

static bool is_all_found(const struct bank_call *c)
{
	for (size_t i = 0; i < c->n; i++)
		if (!c->blocks[i].is_found)
			return false;
	return true;
}

static uint64_t clock_of(const struct cop *op)
{
	return op->c->loop->env->clock->now(op->c->loop->env);
}

static bool end(struct cop *op)
{
	struct banked *b = op->state;

	call_fini(&op->call);
	bank_note_asked(op->c->bank, op->access.total, clock_of(op) - b->began);
	free(b->call.blocks);
	free(b->data);
	return cop_end(op, b->result);
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct banked *b = op->state;

	switch (q->state) {
	case FIND:
		req_goto(q, FOUND);
		bank_find(op->c->bank, &b->call, q);
		break;
	case FOUND:
		if (is_all_found(&b->call)) {
			bank_counters(op->c->bank)->hits++;
			b->result = copy_out(op);
			bank_counters(op->c->bank)->hit_bytes += (uint64_t)MAX(b->result, 0);
			return end(op);
		}
		if (b->call.has_ticket) {
			req_goto(q, FETCHED);
			fetch(op);
		} else if (!b->call.failures && clock_of(op) - b->began < b->patience) {
			req_goto(q, FIND);
			pause_start(op);
		} else {
			req_goto(q, PLAIN);
			read_start(op, b->mem, b->n_mem, b->ext, b->n_ext);
		}
		break;
	case FETCHED:
		if (is_fetched(b)) {
			req_goto(q, CHECKED);
			b->result = copy_out(op);
			ask_state(op);
		} else { /* the file was cut meanwhile, or an error: as without the bank */
			q->error = 0;
			req_goto(q, PLAIN);
			op->file->uses_bank = false;
			read_start(op, b->mem, b->n_mem, b->ext, b->n_ext);
		}
		break;
	case CHECKED: /* also after an error: then nothing is stored */
		if (!q->error)
			store(op);
		return end(op);
	case PLAIN:
		b->result = read_end(b);
		return end(op);
	}
	return true;
}

static const struct req_ops banked_ops = REQ_OPS("banked read", step, CHECKED, names);

static struct banked *banked_new(struct cop *op, size_t n, size_t ahead)
{
	struct banked *b = arena_alloc(&op->arena, sizeof(*b));
	size_t block = bank_block_bytes(op->c->bank);

	if (!b)
		return NULL;
	*b = (struct banked){
		.call.bank = op->c->bank, .call.q = &op->q, .n_ahead = ahead, .result = -ENOMEM
	};
	n += ahead;
	b->mem_missing = arena_alloc(&op->arena, n * sizeof(*b->mem_missing));
	b->ext_missing = arena_alloc(&op->arena, n * sizeof(*b->ext_missing));
	b->call.blocks = malloc(n * sizeof(*b->call.blocks));
	b->data = malloc(n * block);
	if (b->mem_missing && b->ext_missing && b->call.blocks && b->data)
		return b;
	free(b->call.blocks);
	free(b->data);
	return NULL;
}

bool banked_read(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		 const struct extent *ext, size_t n_ext)
{
	struct bank_state state;
	struct banked *b;
	size_t n;

	if (!f->uses_bank || op->refused || file_locks_lost(f) ||
	    access_init(&op->access, mem, n_mem, ext, n_ext))
		return false;
	n = blocks_of(f, ext, n_ext, op->access.total);
	if (!n || !state_of(f, &state))
		return false;
	op->plain_began = clock_of(op);
	if (!bank_is_worth(op->c->bank, op->access.total))
		return false;
	b = banked_new(op, n,
		       ext[0].offset && ext[0].offset == f->bank_next ? MIN(AHEAD, BANK_BATCH - n) :
									0);
	f->bank_next = ext[n_ext - 1].offset + ext[n_ext - 1].length;
	if (!b)
		return false;
	b->patience = bank_patience(op->c->bank, op->access.total);
	b->mem = mem;
	b->ext = ext;
	b->n_mem = n_mem;
	b->n_ext = n_ext;
	b->call.state = state;
	b->began = op->plain_began;
	op->plain_began = 0;
	each_piece(ext, n_ext, state.size, bank_block_bytes(op->c->bank), add_block, b);
	bank_counters(op->c->bank)->asked++;
	op->file = f;
	op->state = b;
	cop_start(op, &banked_ops, 0);
	return true;
}

void banked_note_plain(struct cop *op)
{
	if (op->result > 0)
		bank_note_plain(op->c->bank, op->access.total, clock_of(op) - op->plain_began);
}
