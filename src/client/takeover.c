/* Hands a connection from one process to another: its sessions, open files and locks become one
 * piece of memory (proto/export.x), and a new client is made from it.
 *
 *   export: peers halt -> encode
 *   import: decode -> client_resume(): peers resume their sessions
 *
 * Servers are not told: a session belongs to the process that knows its secret, and requests of the
 * old link have ended before a new link gets the session. What the export lacks is asked for again:
 * credits and verifiers (with the link), capabilities (when they are refused), referrals. Claims
 * that were under way are made by the successor (peer.unclaimed).
 *
 * Threads: the loop's. Buffers: the bytes are the caller's; decoding keeps no reference to them.
 * Errors: -EBADMSG for bytes that are no export, -EXDEV and -EKEYREJECTED for one of another file
 * system or key; sheaf_why() explains. */
#include <assert.h>
#include <stdlib.h>

#include "client/file_impl.h"

#define ITEM_MAX (16 * KIB) /* more than any one item takes */
/* Skipped after an export, for client_resume(): an importer may have used such numbers, and
 * died. */
#define JUMP_SEQUENCES (1u << 24)
#define JUMP_IDS (UINT64_C(1) << 40)

static_assert((int)EXPORT_SLOTS == SESSION_SLOTS, "all slots are exported");

/* ---- export ---- */

struct sink {
	uint8_t *p;
	size_t len, room;
};

static int put(struct sink *s, xdr_any filter, void *v)
{
	struct xdr x;

	if (s->room - s->len < ITEM_MAX) {
		size_t room = s->room ? 2 * s->room : 4 * ITEM_MAX;
		uint8_t *p = room <= 2 * (size_t)EXPORT_MAX ? realloc(s->p, room) : NULL;

		if (!p)
			return -ENOMEM;
		s->p = p;
		s->room = room;
	}
	xdr_encoder(&x, s->p + s->len, s->room - s->len);
	if (!filter(&x, v))
		return -EMSGSIZE;
	s->len += xdr_used(&x);
	return s->len <= EXPORT_MAX ? 0 : -EMSGSIZE;
}

static int put_client(struct sink *s, struct client *c)
{
	struct wire_export_client e = { .key = wire_text(c->net->id.key_name),
					.next_open = c->next_open,
					.tickets = c->n_tickets,
					.n_targets = c->n_peers };
	struct cfile *f;

	memcpy(e.fs_id, c->net->id.fs.b, sizeof(e.fs_id));
	list_for_each(f, &c->files, link)
		e.n_files++;
	return put(s, XDR_ANY(xdr_wire_export_client), &e);
}

static int put_target(struct sink *s, struct client *c, uint32_t i)
{
	const struct peer *p = &c->peers[i];
	uint32_t sequences[SESSION_SLOTS];
	struct wire_export_target t = { .known = { .id = i,
						   .roles = c->targets[i].roles,
						   .name = wire_text(c->targets[i].name),
						   .address = wire_text(p->address) },
					.session = p->session,
					.boot = p->boot,
					.unclaimed = p->unclaimed,
					.map_version = p->map_version,
					.n_sequences = SESSION_SLOTS,
					.sequences = sequences };

	memcpy(t.secret, p->secret, sizeof(t.secret));
	for (uint32_t k = 0; k < SESSION_SLOTS; k++)
		sequences[k] = p->slots[k].sequence;
	return put(s, XDR_ANY(xdr_wire_export_target), &t);
}

static int put_locks(struct sink *s, const struct list sets[LOCK_SETS], uint64_t open, size_t n)
{
	struct wire_lock *l = calloc(n ? n : 1, sizeof(*l));
	int r = l ? 0 : -ENOMEM;

	if (l)
		locks_list(sets, open, l, 0, n);
	for (size_t i = 0; i < n && !r; i++)
		r = put(s, XDR_ANY(xdr_wire_lock), &l[i]);
	free(l);
	return r;
}

/* Its objects, for the successor: the recorded ends, and what was written but not reported. */
static void file_notes(const struct cfile *f, uint64_t *ends, struct wire_object_note *notes,
		       uint32_t *n)
{
	*n = 0;
	for (uint32_t i = 0; i < f->layout.width; i++) {
		ends[i] = f->objects[i].recorded;
		if (f->objects[i].wrote)
			notes[(*n)++] = (struct wire_object_note){ i, f->objects[i].end,
								   f->objects[i].blocks, 0 };
	}
}

static int put_file(struct sink *s, struct cfile *f)
{
	uint32_t width = f->layout.width;
	uint64_t ends[TARGETS_MAX];
	struct wire_object_note notes[TARGETS_MAX];
	size_t held = locks_list(f->holding->locks, f->id, NULL, 0, 0);
	size_t lost = locks_list(f->holding->lost, f->id, NULL, 0, 0);
	struct wire_export_file w = { .h = f->h,
				      .id = f->id,
				      .flags = f->flags,
				      .layout = { .version = 1,
						  .unit = f->layout.unit,
						  .start = f->layout.start,
						  .n_targets = width,
						  .targets = f->targets,
						  .n_ends = width,
						  .ends = ends },
				      .cap = f->cap,
				      .w = f->wrote,
				      .n_unsynced = width,
				      .unsynced = f->unsynced,
				      .seen_mtime = f->seen_mtime,
				      .lost = f->lost,
				      .uid = f->cred.uid,
				      .gid = f->cred.gid,
				      .n_gids = f->cred.n_gids,
				      .gids = f->cred.gids,
				      .n_locks = (uint32_t)held,
				      .n_lost_locks = (uint32_t)lost };
	int r;

	w.w.objects = notes;
	file_notes(f, ends, notes, &w.w.n_objects);
	w.w.doubt |= f->punched;
	r = put(s, XDR_ANY(xdr_wire_export_file), &w);
	if (!r)
		r = put_locks(s, f->holding->locks, f->id, held);
	return r ? r : put_locks(s, f->holding->lost, f->id, lost);
}

static void halt(struct client *c)
{
	for (uint32_t i = 0; i < c->n_peers; i++)
		peer_halt(&c->peers[i]);
	while (!list_empty(&c->loop->runnable)) /* ends what was under way */
		loop_run_ready(c->loop);
	c->halted = true;
}

/* Keeps what is held, and skips the numbers that a successor may have used. */
static void skip_numbers(struct client *c)
{
	for (uint32_t i = 0; i < c->n_peers; i++)
		for (uint32_t k = 0; k < SESSION_SLOTS; k++)
			c->peers[i].slots[k].sequence += JUMP_SEQUENCES;
	c->next_open += JUMP_IDS;
	c->n_tickets += JUMP_IDS;
}

int client_export(struct client *c, struct wire_bytes *out)
{
	struct sink s = { 0 };
	struct cfile *f;
	int r;

	if (c->halted)
		return -ESHUTDOWN;
	list_for_each(f, &c->files, link)
		if (f->is_guest || f->is_shared)
			return -EBUSY;
	if (c->n_ops)
		return -EBUSY;
	halt(c);
	r = put_client(&s, c);
	for (uint32_t i = 0; i < c->n_peers && !r; i++)
		r = put_target(&s, c, i);
	list_for_each(f, &c->files, link)
		r = r ? r : put_file(&s, f);
	if (r) {
		free(s.p);
		client_resume(c);
		return r;
	}
	skip_numbers(c);
	*out = (struct wire_bytes){ (uint32_t)s.len, s.p };
	return 0;
}

void client_resume(struct client *c)
{
	c->halted = false;
	c->loop->now = c->loop->env->clock->now(c->loop->env);
	for (uint32_t i = 0; i < c->n_peers; i++)
		peer_resume(&c->peers[i]);
}

/* ---- import ---- */

static int check_client(const struct client *c, const struct wire_export_client *e)
{
	const char *key = c->net->id.key_name;

	if (memcmp(e->fs_id, c->net->id.fs.b, sizeof(e->fs_id)) != 0) {
		why_set("the connection is to another file system: import it with the cluster "
			"file that it was made with");
		return -EXDEV;
	}
	if (e->key.len != strlen(key) || memcmp(e->key.p, key, e->key.len) != 0) {
		why_set("the connection was made with the key '%.*s', not with '%s': set SHEAF_KEY "
			"as it was then",
			(int)e->key.len, (const char *)e->key.p, key);
		return -EKEYREJECTED;
	}
	return 0;
}

static int get_target(struct client *c, struct xdr *x, uint32_t i)
{
	struct wire_export_target t;
	struct peer *p;

	if (!xdr_wire_export_target(x, &t) || t.known.id != i || i >= CONF_MAX_TARGETS)
		return -EBADMSG;
	target_learn(c, &t.known);
	p = &c->peers[i];
	p->session = t.session;
	p->boot = t.boot;
	p->unclaimed = t.unclaimed;
	p->map_version = t.map_version;
	memcpy(p->secret, t.secret, sizeof(p->secret));
	for (uint32_t k = 0; k < t.n_sequences; k++)
		p->slots[k].sequence = t.sequences[k];
	return 0;
}

static int get_locks(struct xdr *x, struct list sets[LOCK_SETS], uint64_t open, uint32_t n)
{
	struct wire_lock l;
	struct range r;
	int grown, e = 0;

	while (n-- && !e) {
		if (!xdr_wire_lock(x, &l) || l.start > l.last ||
		    (l.kind != LOCK_SHARED && l.kind != LOCK_EXCLUSIVE))
			return -EBADMSG;
		r = (struct range){ .start = l.start,
				    .last = l.last,
				    .owner = l.owner,
				    .open = open,
				    .exclusive = l.kind == LOCK_EXCLUSIVE,
				    .pid = l.pid };
		e = ranges_hold(&sets[l.whole], &r, &grown);
	}
	return e;
}

static int get_file(struct client *c, struct xdr *x)
{
	struct wire_export_file w;
	struct cfile *f;
	int r;

	if (!xdr_wire_export_file(x, &w) || w.n_unsynced != w.layout.n_targets)
		return -EBADMSG;
	r = file_new(c, &w.h, w.id, &w.layout, &f);
	if (r)
		return r == -EIO ? -EBADMSG : r;
	f->flags = w.flags;
	f->holding->leaves_bank = true;
	f->cap = w.cap;
	f->wrote = w.w;
	f->wrote.n_objects = 0;
	f->wrote.objects = NULL;
	for (uint32_t i = 0; i < w.w.n_objects; i++) {
		const struct wire_object_note *n = &w.w.objects[i];

		if (n->index >= w.layout.n_targets)
			return -EBADMSG;
		f->objects[n->index].end = n->end;
		f->objects[n->index].blocks = n->blocks;
		f->objects[n->index].wrote = true;
	}
	f->lost = w.lost;
	f->seen_mtime = w.seen_mtime;
	f->cred = (struct cred_wire){ .uid = w.uid, .gid = w.gid, .n_gids = w.n_gids };
	if (w.n_gids)
		memcpy(f->cred.gids, w.gids, w.n_gids * sizeof(*w.gids));
	if (w.n_unsynced)
		memcpy(f->unsynced, w.unsynced, w.n_unsynced * sizeof(*w.unsynced));
	r = htab_insert(&c->imported, &f->by_id, hash_u64(f->id));
	if (r)
		return r;
	f->imported = true;
	r = get_locks(x, f->holding->locks, f->id, w.n_locks);
	return r ? r : get_locks(x, f->holding->lost, f->id, w.n_lost_locks);
}

int client_import(struct client *c, const struct wire_bytes *in)
{
	struct wire_export_client e;
	struct arena a;
	struct xdr x;
	int r = -EBADMSG;

	arena_init(&a, MIB); /* for one item at a time */
	xdr_decoder(&x, in->p, in->len, &a);
	halt(c);
	if (xdr_wire_export_client(&x, &e))
		r = check_client(c, &e);
	for (uint32_t i = 0; !r && i < e.n_targets; i++, arena_reset(&a))
		r = get_target(c, &x, i);
	for (uint32_t i = 0; !r && i < e.n_files; i++, arena_reset(&a))
		r = get_file(c, &x);
	if (!r && xdr_left(&x))
		r = -EBADMSG;
	if (r == -EBADMSG)
		why_set("what should be a connection is none: its bytes make no sense");
	arena_destroy(&a);
	if (r)
		return r;
	c->next_open = e.next_open;
	c->n_tickets = e.tickets;
	return 0;
}

struct cfile *client_imported(struct client *c, uint64_t id)
{
	for (struct hnode *n = htab_first(&c->imported, hash_u64(id)); n; n = htab_next(n)) {
		struct cfile *f = container_of(n, struct cfile, by_id);

		if (f->id != id)
			continue;
		htab_remove(&c->imported, n);
		f->imported = false;
		return f;
	}
	return NULL;
}
