/* Attributes through the cache bank (cache/cache.h): of what has no writer, by handle, and by a
 * path as a user asked for it. An entry by path holds what the server answered to this user (same
 * ids, same groups), so none shows what the server would have refused.
 *
 * An entry is used for as long as the cluster file says, by the clocks of both clients, and not if
 * this client itself may have changed since then what the entry shows: it remembers when it last
 * changed any name, and which inodes it changed (a hash of them: others may be asked for in vain).
 * Nor is it used if a metadata server has changed anything between it and the start of this
 * client: so a program sees what those before it have done. That needs clocks of hosts that agree
 * to OWN_NS.
 *
 * A mount and a gateway use no entries: what they are asked for a name or a handle may be the look
 * before an open, which has to see the last state that was closed.
 *
 * Threads: the loop's. Buffers: the entry is copied. Errors: none of the bank. */
#include "client/banked.h"
#include "client/names_impl.h"

#define SKEW_NS (NSEC_PER_SEC / 4) /* entries that are newer than now by more are not used */
#define OWN_NS NSEC_PER_SEC /* by which clocks of two hosts may differ */

/* All that the answer to a question about a path depends on, beside the path. */
struct question {
	uint64_t incarnation, ino;
	uint32_t gen, follows, uid, gid, n_gids;
	uint32_t gids[ARRAY_LEN(((struct cred_wire *)0)->gids)];
};

static uint64_t wall_of(const struct client *c)
{
	return c->loop->env->clock->wall(c->loop->env);
}

static bool is_by_path(const struct cop *op)
{
	return op->call.op == OP_LOOKUP;
}

/* ---- what this client has changed, and others before it ---- */

static uint64_t *slot_of(struct client *c, uint64_t ino)
{
	return &c->changed.inodes[hash_u64(ino) % ARRAY_LEN(c->changed.inodes)];
}

void attrs_changed(struct client *c, uint64_t ino)
{
	*slot_of(c, ino) = wall_of(c);
}

void attrs_changed_names(struct client *c)
{
	c->changed.names = wall_of(c);
}

void attrs_session(struct peer *p, const struct wire_session_res *r)
{
	struct client *c = p->owner;
	uint64_t now = wall_of(c), *before = &c->changed_before[p - c->peers];

	if (!*before)
		*before = now - MIN(r->unchanged_ns, now - 1);
}

/* The last change before this client began that an answer to the operation can depend on. A path
 * may lead over any server. */
static uint64_t changed_before(const struct cop *op, uint64_t ino)
{
	const struct client *c = op->c;
	uint64_t last = 0;

	for (uint32_t i = 0; i < c->n_meta; i++) {
		uint64_t t = c->changed_before[c->meta[i]];

		if (is_by_path(op) || c->meta[i] == client_meta_of(c, ino))
			last = MAX(last, t ? t : c->wall_started);
	}
	return last;
}

/* May an entry with this stamp be used? */
static bool is_recent(const struct cop *op, uint64_t ino, uint64_t stamp)
{
	struct client *c = op->c;
	uint64_t own = MAX(c->changed.names, *slot_of(c, ino)), now = wall_of(c);
	uint64_t since = MAX(own, changed_before(op, ino));
	uint64_t life = bank_attr_seconds(c->bank) * NSEC_PER_SEC;

	return stamp > since + OWN_NS && stamp <= now + SKEW_NS && stamp + life >= now;
}

/* ---- looking and storing ---- */

static void name_question(const struct cop *op, struct bank_call *look)
{
	const struct wire_place *p = &op->start;
	struct question q;

	memset(&q, 0, sizeof(q));
	q.incarnation = meta_peer(op->c, p->dir.ino)->incarnation;
	q.ino = p->dir.ino;
	q.gen = p->dir.gen;
	q.follows = p->follow;
	q.uid = op->cred.uid;
	q.gid = op->cred.gid;
	q.n_gids = op->cred.n_gids;
	memcpy(q.gids, op->cred.gids, op->cred.n_gids * sizeof(q.gids[0]));
	bank_look_question(look, &q, sizeof(q), p->path.p, p->path.len);
}

/* Could an entry be used now? */
static bool may_look(struct cop *op)
{
	struct client *c = op->c;
	uint64_t ino = is_by_path(op) ? op->start.dir.ino : op->ino;

	if (c->is_front)
		return false;
	if (client_bank_open(c) || !bank_attr_seconds(c->bank) || !meta_peer(c, ino)->incarnation)
		return false;
	/* of a file that is open here, the server tells whether its blocks in the bank are old */
	return is_recent(op, ino, wall_of(c)) && (is_by_path(op) || !holding_find(c, ino));
}

static struct bank_choice *choice_of(const struct cop *op)
{
	return bank_choice(op->c->bank);
}

/* The servers are asked, and measured; at times, so is the bank, by a question about nothing. */
static void ask_servers(struct cop *op)
{
	const struct bank_state none = { .ino = op->ino };

	op->plain_began = op->c->loop->env->clock->now(op->c->loop->env);
	op->plain_class = BANK_ATTR;
	bank_counts(op->c->bank)->attr_skipped++;
	if (!choice_probes(choice_of(op), BANK_ATTR))
		return;
	op->probe = bank_call_new(op->c->bank, &none, 1);
	if (op->probe)
		bank_add_block(op->probe, 0);
}

bool attrs_find(struct cop *op)
{
	bool is_stat = is_by_path(op) ||
		       (op->call.op == OP_GETATTR && !op->args.GETATTR.with_layout);

	if (!is_stat || op->has_looked || op->refused)
		return false;
	op->has_looked = true;
	if (!may_look(op))
		return false;
	if (!choice_asks(choice_of(op), BANK_ATTR)) {
		ask_servers(op);
		return false;
	}
	op->look = bank_look_new(op->c->bank);
	if (!op->look)
		return false;
	op->look_began = op->c->loop->env->clock->now(op->c->loop->env);
	op->look_stamp = wall_of(op->c);
	if (is_by_path(op))
		name_question(op, op->look);
	else
		bank_look_handle(op->look, meta_peer(op->c, op->ino)->incarnation, op->ino,
				 op->args.GETATTR.h.gen);
	op->look->look->wants_whole = whole_wanted(op->c);
	bank_counts(op->c->bank)->attr_asked++;
	bank_find(&op->look, &op->q);
	return true;
}

static bool take(struct cop *op, const struct bank_attr *a)
{
	struct client *c = op->c;
	struct wire_attr at;
	struct xdr x;

	xdr_decoder(&x, a->data, a->length, &op->arena);
	if (!xdr_wire_attr(&x, &at) || at.ino != a->ino || at.change != a->change || at.unsettled ||
	    a->incarnation != meta_peer(c, a->ino)->incarnation ||
	    !is_recent(op, a->ino, a->stamp) || holding_find(c, a->ino))
		return false;
	op->attr = at;
	return true;
}

/* The bytes that came with the attributes. */
static void take_whole(struct cop *op, const struct bank_look *k)
{
	const struct bank_state *s = &k->whole.state;

	if (k->whole.length && s->ino == k->attr.ino && s->change == k->attr.change &&
	    s->incarnation == k->attr.incarnation && s->size == op->attr.size)
		whole_keep(op->c, &k->whole);
}

static uint64_t time_of(const struct cop *op)
{
	return op->c->loop->env->clock->now(op->c->loop->env) - op->look_began;
}

bool attrs_found(struct cop *op)
{
	struct bank_call *look = op->look;
	bool is_found;

	op->look_talk_ns = time_of(op);
	choice_note_ask(choice_of(op), BANK_ATTR, op->look_talk_ns, !look || look->failures);
	is_found = look && look->look->is_found && take(op, &look->look->attr);
	if (is_found)
		take_whole(op, look->look);
	bank_counts(op->c->bank)->attr_hits += is_found;
	op->is_found = is_found;
	return is_found;
}

/* Not of files with writers: their sizes change without a notice. */
static bool may_store(const struct cop *op)
{
	bool by_path = is_by_path(op);
	uint32_t cache = by_path ? op->res.lookup.cache : op->res.getattr.cache;

	if (by_path ? op->res.lookup.at.unsettled : op->res.getattr.at.unsettled)
		return false;
	return !cache || (cache & CACHE_ATTRIBUTES);
}

bool attrs_fill(struct bank_call *look, const struct wire_attr *at, uint64_t incarnation,
		uint64_t stamp)
{
	struct bank_attr *a = &look->look->attr;
	struct wire_attr copy = *at;
	struct xdr x;

	*a = (struct bank_attr){ .stamp = stamp,
				 .incarnation = incarnation,
				 .ino = at->ino,
				 .gen = at->gen,
				 .change = at->change };
	if ((at->mode & S_IFMT) == S_IFREG && at->size <= BANK_WHOLE_MAX)
		a->file_bytes = (uint32_t)at->size;
	xdr_encoder(&x, a->data, sizeof(a->data));
	if (!incarnation || !xdr_wire_attr(&x, &copy))
		return false;
	a->length = (uint32_t)xdr_used(&x);
	bank_look_handle(look, incarnation, at->ino, at->gen);
	return true;
}

/* Stores what the server answered. */
static void store(struct cop *op)
{
	const struct wire_attr *at = &op->attr;
	uint64_t incarnation = meta_peer(op->c, at->ino)->incarnation;
	const struct bank_whole *w;

	if (!may_store(op) || !attrs_fill(op->look, at, incarnation, op->look_stamp))
		return;
	w = whole_of(op->c, incarnation, at->ino, at->change);
	if (w)
		op->look->look->whole = *w;
	else
		op->look->look->whole.length = 0;
	bank_store(op->look);
	op->look = NULL;
}

/* Does the operation change names, or permissions of what may be a directory? */
static bool may_move(const struct cop *op)
{
	return op->place || op->moves || op->call.op == OP_SETXATTR ||
	       op->call.op == OP_REMOVEXATTR;
}

void attrs_end(struct cop *op, int error)
{
	if (op->look_began) {
		choice_note_asked(choice_of(op), BANK_ATTR, time_of(op), op->look_talk_ns);
		if (!error && !op->is_found && op->look)
			store(op);
	}
	if (error == -ESTALE || (op->call.once && may_move(op)))
		attrs_changed_names(op->c);
	else if (op->call.once)
		attrs_changed(op->c, op->ino);
}
