/* The state machine: one encoded record in, one encoded answer out, inside a write transaction.
 *
 *	decode -> slot: answered before? -> kind: validate, put -> encode -> slot: store the answer
 *
 * Threads: the writer (and the caller of meta_apply_bytes). Buffers: the decoded record and the
 * answer's arrays are in the scratch arena, encoded answers in the batch's. Errors: a refused
 * record is an answer with a status; a negative return means that the database failed and the
 * transaction must be aborted. */
#include "meta/meta_state.h"

#define ANSWER_MAX 4096 /* the widest layout and two directories take about 3,500 bytes */

int apply_get_contents(struct apply *ap, const struct wire_handle *h, struct node *n)
{
	int rc;

	if (INO_PARTITION(h->ino) != ap->m->partition)
		return EXDEV;
	rc = node_get(&ap->m->db, ap->txn, h->ino, n);
	if (rc == -ENOENT) {
		struct key k = key_u64(h->ino);

		rc = apply_locked(ap, &k); /* a change may be creating it */
		return rc ? rc : ESTALE;
	}
	return !rc && n->i.gen != h->gen ? ESTALE : rc;
}

int apply_get(struct apply *ap, const struct wire_handle *h, struct node *n)
{
	struct key k = key_u64(h->ino);
	int rc = apply_get_contents(ap, h, n);

	return rc ? rc : apply_locked(ap, &k);
}

static int get_file(struct apply *ap, struct node *n)
{
	int rc = apply_get_contents(ap, &ap->rec->h, n);

	if (rc || S_ISREG(n->i.mode))
		return rc;
	return S_ISDIR(n->i.mode) ? EISDIR : EINVAL;
}

int apply_put(struct apply *ap, const struct node *n)
{
	int rc = node_put(&ap->m->db, ap->txn, ap->rec->h.ino, n);

	return rc ? rc : apply_answer(ap, ap->rec->h.ino, n);
}

int row_forget(struct apply *ap, enum table t, const struct key *k)
{
	int rc = row_del(&ap->m->db, ap->txn, t, k);

	return rc == -ENOENT ? 0 : rc;
}

static int forget_one(void *arg, MDB_cursor *cur, const MDB_val *k, const MDB_val *v)
{
	(void)arg, (void)k, (void)v;
	return db_error(mdb_cursor_del(cur, 0));
}

int rows_forget(struct apply *ap, enum table t, uint64_t id)
{
	return rows_each(&ap->m->db, ap->txn, t, id, forget_one, NULL);
}

int apply_forget(struct apply *ap, uint64_t ino)
{
	struct key k = key_u64(ino);
	int rc = row_forget(ap, T_UNSETTLED, &k);

	db_touch(&ap->m->db, ino, UINT64_MAX);

	if (!rc)
		rc = row_forget(ap, T_INTENT, &k);
	if (!rc)
		rc = row_forget(ap, T_SYMLINK, &k);
	if (!rc)
		rc = rows_forget(ap, T_XATTR, ino);
	return rc ? rc : row_del(&ap->m->db, ap->txn, T_INODE, &k);
}

int apply_answer(struct apply *ap, uint64_t ino, const struct node *n)
{
	struct key k = key_u64(ino);
	MDB_val v;
	int rc = row_get(&ap->m->db, ap->txn, T_UNSETTLED, &k, &v);

	if (rc && rc != -ENOENT)
		return rc;
	node_attr(n, ino, rc == 0, &ap->res->at);
	ap->res->epoch = n->i.epoch;
	return node_layout(n, &ap->res->layout, ap->arena);
}

/* ---- size ---- */

int apply_unsettle(struct apply *ap, uint64_t ino, const struct node *n)
{
	db_touch(&ap->m->db, ino, n->i.change + 1); /* it grows as soon as the file does */
	return unsettled_put(&ap->m->db, ap->txn, ino, n);
}

/* A change of a file's data removes the privileges that running the file would grant, unless root
 * makes it. */
static int drop_privileges(struct apply *ap, struct node *n)
{
	if (ap->cred.uid == 0)
		return 0;
	n->i.mode = mode_drop_ids(n->i.mode, n->i.gid, &ap->cred);
	return marked_drop(ap, n, HAS_CAPABILITY);
}

/* An open for writing: the privileges are removed before the client gets its capability. */
int apply_open_writer(struct apply *ap, uint64_t ino, struct node *n)
{
	uint32_t mode = n->i.mode, has = n->i.has;
	int rc = drop_privileges(ap, n);

	if (rc || (mode == n->i.mode && has == n->i.has))
		return rc;
	return node_put(&ap->m->db, ap->txn, ino, n);
}

static int apply_unsettle_rec(struct apply *ap)
{
	struct node n;
	int rc = get_file(ap, &n);

	if (!rc)
		rc = apply_open_writer(ap, ap->rec->h.ino, &n);
	if (!rc) /* last: its notice for the cache bank is the one that counts */
		rc = apply_unsettle(ap, ap->rec->h.ino, &n);
	return rc ? rc : apply_answer(ap, ap->rec->h.ino, &n);
}

/* If the object has a mark under another verifier, the first verifier stays and stands for the data
 * of both: the server run of the first ended before that of the other began, so data written until
 * `left` count as kept only if nothing was lost since the first. */
static void mark_unsynced(struct disk_note *o, uint64_t verifier, int64_t written)
{
	if (!verifier || verifier == MARK_LOST || o->unsynced == MARK_LOST)
		return;
	o->last_write = o->unsynced ? MAX(o->last_write, written) : written;
	if (!o->unsynced)
		o->unsynced = verifier;
}

/* Adds a report about one object to what is recorded. Unsynced data stay marked until a sync of all
 * objects is recorded (apply_synced): the sync of one writer does not cover what another has
 * written since. */
static bool object_grow(struct disk_note *o, const struct wire_object_note *t,
			const struct wire_record *r)
{
	struct disk_note old = *o;

	o->end = MAX(o->end, t->end);
	/* punched holes are counted when the file is settled */
	o->blocks = MAX(o->blocks, t->blocks);
	mark_unsynced(o, t->unsynced, r->mtime ? r->mtime : r->time);
	return memcmp(&old, o, sizeof(old)) != 0;
}

static bool objects_grow(const struct wire_record *r, struct node *n)
{
	bool changed = false;

	for (uint32_t i = 0; i < r->n_objects; i++)
		if (r->objects[i].index < n->l.n_targets)
			changed |= object_grow(&n->objects[r->objects[i].index], &r->objects[i], r);
	return changed;
}

/* Of a report from before a fence only the marks of unsynced data count. */
static bool marks_grow(const struct wire_record *r, struct node *n)
{
	bool changed = false;

	for (uint32_t i = 0; i < r->n_objects; i++) {
		const struct wire_object_note *t = &r->objects[i];

		if (t->index >= n->l.n_targets || !t->unsynced)
			continue;
		mark_unsynced(&n->objects[t->index], t->unsynced, r->mtime ? r->mtime : r->time);
		changed = true;
	}
	return changed;
}

/* The file was written: its times become those of the write, even if they go back. While the
 * file grew, clients showed a `change` one above the recorded one (sizing.c), so `change` grows
 * by two. */
static int note_write(struct apply *ap, struct node *n, int64_t mtime)
{
	int rc = drop_privileges(ap, n);

	if (rc)
		return rc;
	if (mtime) {
		n->i.mtime = mtime;
		n->i.written = MAX(n->i.written, mtime);
	}
	node_touch(n, mtime ? mtime : ap->rec->time);
	n->i.change++;
	return 0;
}

/* Does a report tell of writes? Notes without an end only repeat that data are unsynced. */
static bool tells_of_writes(const struct wire_record *r)
{
	for (uint32_t i = 0; i < r->n_objects; i++)
		if (r->objects[i].end)
			return true;
	return false;
}

/* Applies a writer's report: the size grows, mtime becomes the time of its latest write, unless
 * another time was set meanwhile; `change` grows in any case. */
static int grow(struct apply *ap, struct node *n)
{
	const struct wire_record *r = ap->rec;
	bool wrote = r->size > n->i.size || r->mtime, untimed = !wrote && tells_of_writes(r);
	bool changed = objects_grow(r, n) || wrote || untimed;
	int rc;

	if (!changed)
		return 0;
	n->i.size = MAX(n->i.size, r->size);
	n->i.change += untimed ? 2 : 0; /* as in note_write() */
	rc = wrote ? note_write(ap, n, r->mtime) : 0;
	return rc ? rc : node_put(&ap->m->db, ap->txn, r->h.ino, n);
}

/* Applies what the objects report when no writer is left to report. Their times count if they are
 * later than `written`. `change` grows in any case: whether anything was written is unknown. */
static int settle(struct apply *ap, struct node *n)
{
	const struct wire_record *r = ap->rec;
	bool news = r->mtime > n->i.written || r->size > n->i.size;
	int rc = news ? note_write(ap, n, r->mtime) : 0;

	if (rc)
		return rc;
	if (!news)
		n->i.change += 2;
	n->i.size = MAX(n->i.size, r->size);
	objects_grow(r, n);
	for (uint32_t i = 0; i < r->n_objects; i++)
		if (r->objects[i].index < n->l.n_targets)
			n->objects[r->objects[i].index].blocks = r->objects[i].blocks;
	return node_put(&ap->m->db, ap->txn, r->h.ino, n);
}

static int apply_record(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct key k = key_u64(r->h.ino);
	struct node n;
	int rc = get_file(ap, &n);

	if (rc)
		return rc;
	if ((r->flags & REC_BEYOND) && n.i.objects_within_size) {
		n.i.objects_within_size = 0;
		rc = node_put(&ap->m->db, ap->txn, r->h.ino, &n);
	}
	if (!rc && r->epoch >= n.i.epoch)
		rc = grow(ap, &n);
	else if (!rc && marks_grow(r, &n))
		rc = node_put(&ap->m->db, ap->txn, r->h.ino, &n);
	/* a report from before a fence does not tell the objects' ends: the row stays until they
	 * were asked */
	if (!rc && (r->flags & REC_LAST_WRITER) && (r->epoch >= n.i.epoch || !r->mtime)) {
		db_touch_settled(&ap->m->db, &n); /* maybe nothing was written */
		rc = row_forget(ap, T_UNSETTLED, &k);
	}
	return rc ? rc : apply_answer(ap, r->h.ino, &n);
}

/* Objects were synced: data left unsynced under these verifiers are on disk or lost. If some are
 * lost, the file has changed. */
static int apply_synced(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	bool lost = false;
	struct node n;
	int rc = get_file(ap, &n);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < r->n_objects; i++) {
		const struct wire_object_note *t = &r->objects[i];
		struct disk_note *o = t->index < n.l.n_targets ? &n.objects[t->index] : NULL;

		if (!o || o->unsynced != t->unsynced)
			continue;
		if (t->end == MARK_LOST)
			o->unsynced = MARK_LOST;
		else if (o->last_write <= (int64_t)t->blocks) /* else it was written since */
			o->unsynced = 0;
		lost |= t->end == MARK_LOST;
	}
	if (lost)
		n.i.change += 2; /* as in note_write() */
	return apply_put(ap, &n);
}

static int apply_settle_begin(struct apply *ap)
{
	struct node n;
	int rc = get_file(ap, &n);

	if (rc)
		return rc;
	n.i.epoch++;
	return apply_put(ap, &n);
}

/* Counts only if neither a newer epoch nor a writer came since the fence; such a writer's unsettled
 * row has the fence's epoch or a newer one, and must stay. */
static int apply_settle_end(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct key k = key_u64(r->h.ino);
	struct disk_unsettled row;
	struct node n;
	int rc = get_file(ap, &n);

	if (rc)
		return rc;
	if (r->epoch != n.i.epoch)
		return EAGAIN;
	rc = row_read(&ap->m->db, ap->txn, T_UNSETTLED, &k, &row, sizeof(row));
	if (rc && rc != -ENOENT)
		return rc;
	if (!rc && row.epoch >= r->epoch)
		return EAGAIN;
	rc = settle(ap, &n);
	if (!rc)
		rc = row_forget(ap, T_UNSETTLED, &k);
	if (!rc)
		db_touch_settled(&ap->m->db, &n);
	return rc ? rc : apply_answer(ap, r->h.ino, &n);
}

/* ---- truncate ---- */

static int apply_trunc_begin(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct key k = key_u64(r->h.ino);
	struct disk_intent row = { .size = r->size };
	struct node n;
	int rc = get_file(ap, &n);

	if (!rc)
		rc = drop_privileges(ap, &n);
	if (rc)
		return rc;
	row.epoch = ++n.i.epoch;
	row.gen = n.i.gen;
	rc = row_put(&ap->m->db, ap->txn, T_INTENT, &k, &row, sizeof(row));
	return rc ? rc : apply_put(ap, &n);
}

/* The end of a truncate older than the latest one changes nothing. */
static int apply_trunc_end(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct key k = key_u64(r->h.ino);
	struct disk_intent row;
	struct node n;
	int rc = get_file(ap, &n);

	if (rc)
		return rc;
	rc = row_read(&ap->m->db, ap->txn, T_INTENT, &k, &row, sizeof(row));
	if (rc && rc != -ENOENT)
		return rc;
	if (rc == -ENOENT || r->epoch < row.epoch)
		return apply_answer(ap, r->h.ino, &n);
	if (r->epoch > row.epoch)
		return EINVAL;
	rc = row_del(&ap->m->db, ap->txn, T_INTENT, &k);
	if (rc)
		return rc;
	n.i.size = r->size;
	n.i.mtime = r->time;
	n.i.written = MAX(n.i.written, r->mtime);
	node_touch(&n, r->time);
	n.i.change++; /* as in note_write() */
	for (uint32_t i = 0; i < r->n_objects; i++)
		if (r->objects[i].index < n.l.n_targets) {
			n.objects[r->objects[i].index].end = r->objects[i].end;
			n.objects[r->objects[i].index].blocks = r->objects[i].blocks;
			if (!r->objects[i].end) /* an empty object has no data to lose */
				n.objects[r->objects[i].index].unsynced = 0;
		}
	return apply_put(ap, &n);
}

/* ---- removal ---- */

/* The objects of one generation are removed. With the current generation the inode and its rows are
 * removed, too. */
static int apply_removed(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct key row = key_pair32(r->h.ino, r->obj_gen);
	struct node n;
	int rc = get_file(ap, &n);

	if (!rc && r->obj_gen == n.l.obj_gen && n.i.nlink)
		rc = EBUSY;
	if (!rc)
		rc = row_forget(ap, T_REMOVE, &row);
	if (!rc && r->obj_gen == n.l.obj_gen)
		rc = apply_forget(ap, r->h.ino);
	return rc ? rc : apply_answer(ap, r->h.ino, &n);
}

/* ---- sessions and the map ---- */

static int apply_session_new(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct key k = key_u64(r->session);
	struct disk_session s;
	int rc;

	if (r->session == 0)
		return EINVAL;
	rc = row_read(&ap->m->db, ap->txn, T_SESSION, &k, &s, sizeof(s));
	if (rc == 0)
		return memcmp(s.secret, r->token, sizeof(s.secret)) ? EEXIST : 0;
	if (rc != -ENOENT)
		return rc;
	memset(&s, 0, sizeof(s));
	memcpy(s.secret, r->token, sizeof(s.secret));
	if (r->client.len)
		memcpy(s.client, r->client.p, MIN(r->client.len, sizeof(s.client) - 1));
	ap->res->created = true;
	return row_put(&ap->m->db, ap->txn, T_SESSION, &k, &s, sizeof(s));
}

static int apply_session_end(struct apply *ap)
{
	struct key k = key_u64(ap->rec->session);
	int rc = rows_forget(ap, T_SLOT, ap->rec->session);

	return rc ? rc : row_forget(ap, T_SESSION, &k);
}

/* The version is the record's epoch, or the stored one plus one if that is 0. */
static int apply_map(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct key k = key_text("map");
	struct disk_map map = { .version = 0 };
	int rc = row_read(&ap->m->db, ap->txn, T_SYS, &k, &map, sizeof(map));

	if (rc && rc != -ENOENT)
		return rc;
	if (r->epoch > UINT32_MAX || (r->epoch && r->epoch <= map.version &&
				      !(r->flags & REC_REPLACE && r->epoch == map.version)))
		return EINVAL;
	map.version = r->epoch ? (uint32_t)r->epoch : map.version + 1;
	ap->res->epoch = map.version;
	return row_put2(&ap->m->db, ap->txn, T_SYS, &k, &map, sizeof(map), r->data.p, r->data.len);
}

/* ---- all kinds ---- */

enum { NO_ROOM, TAKES_ROOM, GIVES_ROOM }; /* NO_ROOM: only changes rows, or needs one temporarily */

static const struct kind {
	apply_fn *apply;
	bool no_slot; /* its session field is an argument, not the sender */
	int room;
} kinds[] = {
	[REC_CREATE] = { apply_create, false, TAKES_ROOM },
	[REC_MKDIR] = { apply_mkdir, false, TAKES_ROOM },
	[REC_UNLINK] = { apply_remove, false, GIVES_ROOM },
	[REC_RMDIR] = { apply_remove, false, GIVES_ROOM },
	[REC_RENAME] = { apply_rename, false, NO_ROOM },
	[REC_SETATTR] = { apply_setattr, false, NO_ROOM },
	[REC_UNSETTLE] = { apply_unsettle_rec, false, NO_ROOM },
	[REC_RECORD] = { apply_record, false, NO_ROOM },
	[REC_TRUNC_BEGIN] = { apply_trunc_begin, false, NO_ROOM },
	[REC_TRUNC_END] = { apply_trunc_end, false, NO_ROOM },
	[REC_SETTLE_BEGIN] = { apply_settle_begin, false, NO_ROOM },
	[REC_SETTLE_END] = { apply_settle_end, false, NO_ROOM },
	[REC_REMOVED] = { apply_removed, false, GIVES_ROOM },
	[REC_SESSION_NEW] = { apply_session_new, true, NO_ROOM },
	[REC_SESSION_END] = { apply_session_end, true, NO_ROOM },
	[REC_MAP] = { apply_map, false, NO_ROOM },
	[REC_LINK] = { apply_link, false, TAKES_ROOM },
	[REC_SYMLINK] = { apply_symlink, false, TAKES_ROOM },
	[REC_SETXATTR] = { apply_setxattr, false, TAKES_ROOM },
	[REC_REMOVEXATTR] = { apply_removexattr, false, GIVES_ROOM },
	[REC_MKNOD] = { apply_mknod, false, TAKES_ROOM },
	[REC_SYNCED] = { apply_synced, false, NO_ROOM },
	[REC_PREPARE] = { apply_prepare, true, NO_ROOM },
	[REC_FINISH] = { apply_finish, true, NO_ROOM },
	[REC_DECIDE] = { apply_decide, false, NO_ROOM },
	[REC_TOLD] = { apply_told, true, NO_ROOM },
	[REC_REPAIR] = { apply_repair, false, NO_ROOM },
};

static const struct kind *kind_of(uint32_t kind)
{
	return kind < ARRAY_LEN(kinds) && kinds[kind].apply ? &kinds[kind] : NULL;
}

static bool has_slot(const struct wire_record *r)
{
	const struct kind *k = kind_of(r->kind);

	return r->session != 0 && !(k && k->no_slot);
}

/* The id of a gateway's call, or NULL. */
static const uint8_t *call_of(const struct wire_record *r)
{
	static const uint8_t none[CALL_ID_BYTES];

	return has_slot(r) && memcmp(r->token, none, sizeof(none)) ? r->token : NULL;
}

/* Detects retransmissions. 0: the request is new; EEXIST: *v is the stored answer; ESTALE: no such
 * session; EBADMSG: the slot has a later sequence; EKEYREJECTED: the stored answer belongs to
 * another request; or negative. */
static int slot_check(struct apply *ap, MDB_val *v)
{
	const struct wire_record *r = ap->rec;
	/* a decision belongs to its own change, not to another execution of the call */
	struct slot_key of = { r->session,
			       r->slot,
			       r->sequence,
			       r->digest,
			       r->kind == REC_DECIDE ? NULL : call_of(r),
			       r->time };
	struct key session = key_u64(r->session);
	int rc = row_get(&ap->m->db, ap->txn, T_SESSION, &session, v);

	if (rc)
		return rc == -ENOENT ? ESTALE : rc;
	rc = slot_find(&ap->m->db, ap->txn, &of, v);
	if (rc == -ENOENT)
		return 0;
	if (rc == -EBADMSG || rc == -EKEYREJECTED)
		return -rc;
	return rc ? rc : EEXIST;
}

static int slot_store(struct apply *ap, const uint8_t *answer, uint32_t n)
{
	struct disk_slot s = { .sequence = ap->rec->sequence };
	struct key k = key_pair32(ap->rec->session, ap->rec->slot);

	memcpy(s.digest, ap->rec->digest, sizeof(s.digest));
	return row_put2(&ap->m->db, ap->txn, T_SLOT, &k, &s, sizeof(s), answer, n);
}

static int answer_copy(const void *p, size_t len, struct arena *a, uint8_t **answer, uint32_t *n)
{
	*answer = arena_alloc(a, len);
	if (!*answer)
		return -ENOMEM;
	memcpy(*answer, p, len);
	*n = (uint32_t)len;
	return 0;
}

/* *stored: how many bytes of the answer the slot keeps. */
static int answer_encode(struct apply *ap, struct arena *a, uint8_t **answer, uint32_t *n,
			 uint32_t *stored)
{
	struct wire_dirs_after after = { ap->n_dirs, ap->dirs };
	uint8_t buf[ANSWER_MAX];
	struct xdr x;

	xdr_encoder(&x, buf, sizeof(buf));
	if (!xdr_wire_record_res(&x, ap->res))
		return -EIO;
	*stored = (uint32_t)xdr_used(&x);
	if (!xdr_wire_dirs_after(&x, &after))
		return -EIO;
	return answer_copy(buf, xdr_used(&x), a, answer, n);
}

/* Applies the record by its kind; a refused record's answer has nothing but the status. */
static int apply_kind(struct apply *ap)
{
	const struct kind *k = kind_of(ap->rec->kind);
	bool full = k && k->room == TAKES_ROOM && !ap->may_take_space;
	int rc = !k ? EINVAL : full ? ENOSPC : k->apply(ap);

	if (rc < 0)
		return rc;
	if (!rc && k->room == TAKES_ROOM)
		ap->took_space = true;
	if (!rc && k->room == GIVES_ROOM)
		ap->freed_space = true;
	if (rc > 0) {
		*ap->res = (struct wire_record_res){ .status = rc };
		ap->n_dirs = 0;
	}
	return 0;
}

/* Is this the final answer of its request? Not final: another change must end first (EINPROGRESS);
 * the change takes several servers (EXDEV), or they refused it (REC_DECIDE); a create that found an
 * existing file, because the rest of its open needs the slot. */
static bool is_final(const struct wire_record *r, const struct wire_record_res *res)
{
	if (res->status == EINPROGRESS || res->status == EXDEV ||
	    (res->status && r->kind == REC_DECIDE))
		return false;
	return r->kind != REC_CREATE || res->status || res->created;
}

int apply_bytes(struct apply *ap, const void *bytes, size_t len, struct arena *answers,
		uint8_t **answer, uint32_t *n_answer)
{
	struct wire_record rec = { 0 };
	struct wire_record_res res = { 0 };
	struct xdr x;
	MDB_val stored;
	uint32_t n_stored;
	int rc = 0;

	xdr_decoder(&x, bytes, len, ap->arena);
	if (!xdr_wire_record(&x, &rec) || xdr_left(&x))
		return -EBADMSG;
	ap->rec = &rec;
	ap->res = &res;
	ap->pair = rec.pair;
	ap->n_dirs = 0;
	ap->cred = (struct cred){ rec.uid, rec.gid, rec.n_gids, rec.gids };
	if (has_slot(&rec))
		rc = slot_check(ap, &stored);
	if (rc < 0)
		return rc;
	if (rc == EEXIST)
		return answer_copy(stored.mv_data, stored.mv_size, answers, answer, n_answer);
	if (rc) {
		res.status = rc;
		return answer_encode(ap, answers, answer, n_answer, &n_stored);
	}
	rc = apply_kind(ap);
	if (!rc)
		rc = answer_encode(ap, answers, answer, n_answer, &n_stored);
	if (!rc && has_slot(&rec) && is_final(&rec, &res))
		rc = slot_store(ap, *answer, n_stored);
	/* refusals changed nothing and are not kept: the gateway may ask again */
	if (!rc && call_of(&rec) && is_final(&rec, &res) && !res.status && ap->may_take_space)
		rc = answer_put(&ap->m->db, ap->txn, &rec, *answer, n_stored);
	return rc;
}
