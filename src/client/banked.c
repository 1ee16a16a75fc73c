/* Reads through the cache bank (cache/cache.h): of files that had no writer when they were opened.
 *
 *   FIND -> FOUND				all was found
 *   FIND -> FOUND -> FETCHED -> CHECKED	with the ticket: fetches and stores the rest
 *   FIND -> FOUND -> (pause) -> FIND		another client fills
 *   FIND -> FOUND -> PLAIN			the servers are asked as if there were no bank
 *
 * Blocks are named by the state that the file had at its open. What was fetched is stored under
 * that name only if the metadata server says afterwards that the file is still in that state: then
 * no writer was there meanwhile.
 *
 * All opens of a file leave the bank together (holding->leaves_bank), and for good, as soon as this
 * client knows of another state or a writer, writes or truncates the file itself, takes a lock or
 * syncs: then what the servers have is wanted, and programs that share this client, as those of a
 * mount do, see no older bytes through one open than through another.
 *
 * Threads: the loop's. Buffers: blocks are in one piece of memory of the access, and copied to the
 * caller. Errors: those of the servers; none of the bank. */
#include <stdlib.h>

#include "client/banked.h"

#define BYTES_MAX MIB /* of an access: SHEAF_BANK_READ_MAX */
#define WASTE_MAX 8 /* times the bytes of the access may be fetched */
#define AHEAD_BYTES (64 * KIB) /* are filled at once where a file is read in order */
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
	struct bank_call *call; /* NULL: it took too long, or its blocks are stored */
	uint64_t epoch; /* of the capability before the fetch */
	struct cop *read; /* from the servers, or NULL */
	struct iovec *mem_missing;
	struct extent *ext_missing;
	size_t n_missing, n_ahead; /* n_ahead: room for blocks behind those of the access */
	uint64_t patience; /* how long it waits for another client's fill, in ns */
	uint64_t pause_ns; /* the next pause */
	bool has_waited;
	struct timer pause;
	uint64_t began, find_began, talk_ns; /* talk_ns: of all conversations */
	unsigned class;
	int64_t result;
};

/* ---- which files use the bank ---- */

int client_bank_open(struct client *c)
{
	const struct conf *conf = c->conf;
	const char *wish = getenv("SHEAF_BANK");
	char *why = c->bank_why;
	size_t why_len = sizeof(c->bank_why);
	uint8_t key[KEY_BYTES];
	int r;

	if (c->bank || c->bank_tried)
		return c->bank ? 0 : -ENOENT;
	c->bank_tried = true;
	if (c->of) {
		r = client_bank_open(c->of);
		c->bank = c->of->bank;
		snprintf(why, why_len, "%s", c->of->bank_why);
		return r;
	}
	if (!conf->bank.n_servers)
		return error_explain(why, why_len, -ENOENT, "the cluster file has no [bank]");
	if (wish && strcmp(wish, "off") == 0)
		return error_explain(why, why_len, -ENOENT, "$SHEAF_BANK is off");
	if (conf->nosync) /* after a power loss, numbers of states come again */
		return error_explain(why, why_len, -ENOENT,
				     "servers with mode = nosync have no bank");
	r = key_load(conf->bank.key_file, key, why, why_len);
	if (!r)
		r = bank_new(c->loop, &conf->bank, key, &conf->fs_id, &c->bank, why, why_len);
	explicit_bzero(key, sizeof(key));
	if (!r && wish && strcmp(wish, "always") == 0)
		bank_choice(c->bank)->asks_always = true;
	return r;
}

void file_leave_bank(struct client *c, uint64_t ino)
{
	struct holding *h = holding_find(c, ino);

	if (h)
		h->leaves_bank = true;
}

void file_learn(struct client *c, const struct wire_attr *at)
{
	struct holding *h = holding_find(c, at->ino);

	if (h && (at->change != h->change || at->unsettled))
		h->leaves_bank = true;
}

void file_use_bank(struct cfile *f, const struct wire_open_res *r)
{
	struct holding *h = f->holding;

	f->opened_size = r->at.size;
	f->opened_at = meta_peer(f->c, f->h.ino)->incarnation;
	if (h->opens == 1) {
		h->change = r->at.change;
		h->leaves_bank = false;
	}
	if (f->flags != OPEN_READ || r->at.unsettled || r->at.change != h->change)
		h->leaves_bank = true;
	f->uses_bank = !h->leaves_bank && f->unsynced && client_bank_open(f->c) == 0 &&
		       (r->cache ? (r->cache & CACHE_BLOCKS) != 0 : bank_has_data(f->c->bank));
}

/* The state that names the blocks. False: it is not known. */
static bool state_of(const struct cfile *f, struct bank_state *s)
{
	*s = (struct bank_state){ .incarnation = f->opened_at,
				  .ino = f->h.ino,
				  .change = f->opened_change,
				  .size = f->opened_size,
				  .gen = f->h.gen,
				  .obj_gen = f->cap.obj_gen };
	return f->opened_at && f->opened_at == meta_peer(f->c, f->h.ino)->incarnation &&
	       (!f->has_unsynced_before || cfile_verifier(f, &s->verifier));
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
	struct bank_call *c = arg;
	uint64_t index = off / bank_block_bytes(c->bank);

	(void)at, (void)n;
	if (!c->n || c->blocks[c->n - 1].index != index)
		bank_add_block(c, index);
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
	const struct bank_call *call = c->b->call;
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

	each_piece(b->ext, b->n_ext, b->call->state.size, bank_block_bytes(op->c->bank), copy_piece,
		   &c);
	return c.error ? c.error : (int64_t)access_before(&op->access, b->call->state.size);
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

/* Adds blocks that are likely to be wanted next, of the same server. They are fetched whether the
 * bank has them or not. */
static void look_ahead(const struct cfile *f, struct banked *b)
{
	struct bank_call *c = b->call;
	uint32_t block = bank_block_bytes(c->bank);

	for (size_t i = 0; i < b->n_ahead; i++) {
		uint64_t start = (c->blocks[c->n - 1].index + 1) * block;

		if (start >= c->state.size || start % f->layout.unit == 0)
			return;
		bank_add_block(c, start / block);
	}
}

/* Fetches the missing blocks as wholes. */
static void fetch(struct cop *op)
{
	struct banked *b = op->state;

	look_ahead(op->file, b);
	b->epoch = op->file->cap.epoch;
	b->n_missing = 0;
	for (size_t i = 0; i < b->call->n; i++) {
		const struct bank_block *k = &b->call->blocks[i];

		if (k->is_found)
			continue;
		b->mem_missing[b->n_missing] = (struct iovec){ k->data, k->length };
		b->ext_missing[b->n_missing++] =
			(struct extent){ k->index * bank_block_bytes(op->c->bank), k->length };
	}
	read_start(op, b->mem_missing, b->n_missing, b->ext_missing, b->n_missing);
}

/* The bytes that were to be fetched. */
static int64_t missing_bytes(const struct banked *b)
{
	int64_t n = 0;

	for (size_t i = 0; i < b->n_missing; i++)
		n += (int64_t)b->mem_missing[i].iov_len;
	return n;
}

static void ask_state(struct cop *op)
{
	op->look_stamp = op->c->loop->env->clock->wall(op->c->loop->env);
	op->args.GETATTR = (struct wire_getattr_args){ op->file->h, true };
	op->call = call_make(op, OP_GETATTR, &op->args, &op->res);
	peer_call(meta_peer(op->c, op->file->h.ino), &op->call, &op->q);
}

/* Is the file still in the state that names what was fetched? */
static bool is_same_state(struct cop *op)
{
	struct banked *b = op->state;
	const struct wire_getattr_res *r = &op->res.getattr;
	const struct cfile *f = op->file;
	struct bank_state now;

	return state_of(f, &now) && !memcmp(&now, &b->call->state, sizeof(now)) &&
	       r->at.change == f->opened_change && !r->at.unsettled &&
	       r->at.size == f->opened_size && r->cap.epoch == b->epoch && f->cap.epoch == b->epoch;
}

static uint64_t clock_of(const struct cop *op)
{
	return op->c->loop->env->clock->now(op->c->loop->env);
}

/* ---- what this open has filled lately ---- */

/* Its own next reads find that here: the store takes a while. */
struct bank_ahead {
	struct bank_state state;
	uint64_t first; /* block */
	size_t n;
	uint8_t data[];
};

static void keep_ahead(struct cfile *f, const struct bank_call *c)
{
	size_t bytes = c->n * bank_block_bytes(c->bank);
	struct bank_ahead *a;

	for (size_t i = 0; i < c->n; i++) /* a list may have them in any order */
		if (c->blocks[i].index != c->blocks[0].index + i)
			return;
	if (c->n < 2)
		return;
	a = realloc(f->bank_ahead, sizeof(*a) + bytes);
	if (!a)
		return;
	f->bank_ahead = a;
	a->state = c->state;
	a->first = c->blocks[0].index;
	a->n = c->n;
	memcpy(a->data, c->data, bytes);
}

/* Takes all blocks of the call from there. False: it does not have all of them. */
static bool take_ahead(const struct cfile *f, struct bank_call *c)
{
	const struct bank_ahead *a = f->bank_ahead;
	uint32_t block = bank_block_bytes(c->bank);

	if (!a || memcmp(&a->state, &c->state, sizeof(a->state)))
		return false;
	for (size_t i = 0; i < c->n; i++)
		if (c->blocks[i].index - a->first >= a->n)
			return false;
	for (size_t i = 0; i < c->n; i++) {
		memcpy(c->blocks[i].data, a->data + (c->blocks[i].index - a->first) * block, block);
		c->blocks[i].is_found = true;
	}
	return true;
}

/* The same from what came with the file's attributes. */
static bool take_whole(const struct cop *op, struct bank_call *c)
{
	const struct bank_whole *w = whole_find(op->c, &c->state);

	if (w)
		whole_take(op->c, w, c);
	return w != NULL;
}

/* Stores what was fetched, or gives the ticket to others. */
static void end_fill(struct cop *op, bool is_valid)
{
	struct banked *b = op->state;

	if (is_valid) {
		choice_note_fill(bank_choice(op->c->bank), clock_of(op) - b->find_began);
		keep_ahead(op->file, b->call);
		whole_store(op, b->call);
		bank_store(b->call);
	} else {
		op->file->holding->leaves_bank = true;
		bank_give_up(b->call);
	}
	b->call = NULL;
}

static void pause_over(struct timer *t)
{
	struct banked *b = container_of(t, struct banked, pause);

	req_done(b->call->q, 0, 0);
}

/* Another client has the ticket. False: it takes too long. */
static bool pause_start(struct cop *op)
{
	struct banked *b = op->state;
	struct loop *l = op->c->loop;
	uint64_t now = clock_of(op), until = b->began + b->patience;

	if (now >= until)
		return false;
	bank_counts(op->c->bank)->waits++;
	b->has_waited = true;
	req_hold(&op->q);
	b->pause.fire = pause_over;
	if (timer_set(l, &b->pause, MIN(now + b->pause_ns, until)))
		req_done(&op->q, 0, 0);
	b->pause_ns *= 2;
	return true;
}

static bool is_all_found(const struct bank_call *c)
{
	for (size_t i = 0; i < c->n; i++)
		if (!c->blocks[i].is_found)
			return false;
	return true;
}

static bool end(struct cop *op)
{
	struct banked *b = op->state;

	call_fini(&op->call);
	choice_note_asked(bank_choice(op->c->bank), b->class, clock_of(op) - b->began, b->talk_ns);
	bank_counts(op->c->bank)->ask_ns += clock_of(op) - b->began;
	bank_call_free(b->call);
	return cop_end(op, b->result);
}

static void ask_servers(struct cop *op)
{
	struct banked *b = op->state;

	req_goto(&op->q, PLAIN);
	read_start(op, b->mem, b->n_mem, b->ext, b->n_ext);
}

/* What the bank had. */
static bool end_hit(struct cop *op)
{
	struct banked *b = op->state;
	struct bank_counts *n = bank_counts(op->c->bank);

	b->result = copy_out(op);
	n->hits++;
	n->hit_bytes += (uint64_t)MAX(b->result, 0);
	return end(op);
}

/* Notes how long the conversation took. */
static void note_find(struct cop *op)
{
	struct banked *b = op->state;
	uint64_t ns = clock_of(op) - b->find_began;

	b->talk_ns += ns;
	choice_note_ask(bank_choice(op->c->bank), b->class, ns, !b->call || b->call->failures);
}

/* Another client had the ticket, and has filled. */
static void note_wait(struct cop *op)
{
	struct banked *b = op->state;

	if (b->has_waited)
		choice_note_fill(bank_choice(op->c->bank), clock_of(op) - b->began);
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct banked *b = op->state;
	int64_t r;

	switch (q->state) {
	case FIND:
		req_goto(q, FOUND);
		if (take_ahead(op->file, b->call) || take_whole(op, b->call))
			return end_hit(op);
		b->find_began = clock_of(op);
		bank_find(&b->call, q);
		break;
	case FOUND:
		note_find(op);
		if (b->call && is_all_found(b->call)) {
			note_wait(op);
			return end_hit(op);
		}
		if (b->call && b->call->has_ticket) {
			req_goto(q, FETCHED);
			fetch(op);
		} else if (b->call && b->call->is_taken && pause_start(op)) {
			req_goto(q, FIND);
		} else {
			ask_servers(op);
		}
		break;
	case FETCHED:
		r = read_end(b);
		if (r == missing_bytes(b)) {
			req_goto(q, CHECKED);
			b->result = copy_out(op);
			ask_state(op);
			break;
		}
		end_fill(op, false);
		if (r < 0) {
			b->result = r;
			return end(op);
		}
		ask_servers(op); /* the file was cut */
		break;
	case CHECKED: /* also after an error: then nothing is stored */
		if (b->call)
			end_fill(op, !q->error && is_same_state(op));
		return end(op);
	case PLAIN:
		b->result = read_end(b);
		return end(op);
	}
	return true;
}

static const struct req_ops banked_ops = REQ_OPS("banked read", step, CHECKED, names);

/* n: blocks of the access. */
static struct banked *banked_new(struct cop *op, const struct bank_state *s, size_t n, size_t ahead)
{
	struct banked *b = arena_alloc(&op->arena, sizeof(*b));

	if (!b)
		return NULL;
	*b = (struct banked){ .n_ahead = ahead, .pause_ns = PAUSE_NS, .result = -ENOMEM };
	n += ahead;
	b->mem_missing = arena_alloc(&op->arena, n * sizeof(*b->mem_missing));
	b->ext_missing = arena_alloc(&op->arena, n * sizeof(*b->ext_missing));
	if (b->mem_missing && b->ext_missing)
		b->call = bank_call_new(op->c->bank, s, n);
	return b->call ? b : NULL;
}

/* How many blocks to fill behind the n of this access: some, if the file is read in order. */
static size_t blocks_ahead(const struct cfile *f, const struct extent *first, size_t n)
{
	size_t most = AHEAD_BYTES / bank_block_bytes(f->c->bank);

	return first->offset && first->offset == f->bank_next && n < most ? most - n : 0;
}

static struct bank_choice *choice_of(const struct cop *op)
{
	return bank_choice(op->c->bank);
}

/* An access that does not ask: it measures the servers, and if it is time to, a probe with the
 * same blocks follows it. */
static void read_measured(struct cop *op, const struct bank_state *s, const struct extent *ext,
			  size_t n_ext, size_t n)
{
	op->plain_began = clock_of(op);
	op->plain_class = choice_class(op->access.total);
	bank_counts(op->c->bank)->skipped++;
	if (!choice_probes(choice_of(op), op->plain_class))
		return;
	op->probe = bank_call_new(op->c->bank, s, n);
	if (op->probe)
		each_piece(ext, n_ext, s->size, bank_block_bytes(op->c->bank), add_block,
			   op->probe);
}

bool banked_read(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		 const struct extent *ext, size_t n_ext)
{
	struct bank_state state;
	struct banked *b;
	size_t n;

	if (!f->uses_bank || f->holding->leaves_bank || op->refused || file_locks_lost(f) ||
	    access_init(&op->access, mem, n_mem, ext, n_ext))
		return false;
	n = blocks_of(f, ext, n_ext, op->access.total);
	if (!n || !state_of(f, &state))
		return false;
	if (!whole_find(op->c, &state) &&
	    !choice_asks(choice_of(op), choice_class(op->access.total))) {
		read_measured(op, &state, ext, n_ext, n);
		return false;
	}
	b = banked_new(op, &state, n, blocks_ahead(f, &ext[0], n));
	if (!b)
		return false;
	f->bank_next = ext[n_ext - 1].offset + ext[n_ext - 1].length;
	b->mem = mem;
	b->ext = ext;
	b->n_mem = n_mem;
	b->n_ext = n_ext;
	b->class = choice_class(op->access.total);
	b->patience = choice_patience(choice_of(op), b->class);
	b->began = clock_of(op);
	each_piece(ext, n_ext, state.size, bank_block_bytes(op->c->bank), add_block, b->call);
	bank_counts(op->c->bank)->asked++;
	op->file = f;
	op->state = b;
	cop_start(op, &banked_ops, 0);
	return true;
}

void banked_note_plain(struct cop *op)
{
	if (op->result >= 0)
		choice_note_plain(choice_of(op), op->plain_class, clock_of(op) - op->plain_began);
	if (op->probe)
		bank_probe(op->probe, op->plain_class);
	op->probe = NULL;
}

/* ---- a question about nothing ---- */

enum { ASK, ASKED };
static const char *const ask_names[] = { [ASK] = "ask", [ASKED] = "asked" };

static bool ask_step(struct req *q)
{
	struct cop *op = cop_of(q);
	bool is_answered;

	if (q->state == ASK) {
		req_goto(q, ASKED);
		bank_find(&op->probe, q);
		return true;
	}
	is_answered = op->probe && !op->probe->failures;
	bank_call_free(op->probe);
	op->probe = NULL;
	return cop_end(op, is_answered ? (int64_t)(clock_of(op) - op->look_began) : -EIO);
}

static const struct req_ops ask_ops = REQ_OPS("bank question", ask_step, ASKED, ask_names);

void client_bank_ask(struct cop *op, uint64_t bytes)
{
	uint32_t block = bank_block_bytes(op->c->bank);
	uint64_t all = MIN(bytes, BYTES_MAX); /* what the worker has room for */
	uint64_t n = MIN(MAX((all + block - 1) / block, 1u), (uint64_t)BANK_BATCH);
	const struct bank_state none = { .change = clock_of(op) };

	op->look_began = clock_of(op);
	op->probe = op->refused ? NULL : bank_call_new(op->c->bank, &none, n);
	for (uint64_t i = 0; op->probe && i < n; i++)
		bank_add_block(op->probe, i);
	if (op->probe)
		op->probe->is_probe = true;
	cop_start(op, &ask_ops, op->probe ? 0 : -ENOMEM);
}
