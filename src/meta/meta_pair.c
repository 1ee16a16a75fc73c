/* Changes over several servers, as each of them sees it: parts that are prepared, then applied or
 * dropped, and the decision of the coordinator.
 *
 *	prepare: check the part, store it, lock what it touches	decide: check, apply own parts
 *	finish: apply or drop stored parts; unlock		told: all finished: drop decision
 *
 * The entry or inode that a prepared part will touch has a row in T_LOCK: other records and walks
 * that need it get EINPROGRESS and wait, so no request sees half of a change. A part that passed
 * its check cannot be refused any more. The coordinator's own parts need no lock: they are checked
 * and applied in the transaction that decides. Each call may be repeated. Threads: the writer; the
 * functions at the end run on the loop. Errors: as in meta_state.h. */
#include "meta/meta_state.h"

#define CLIMB_MOST 1024 /* directories per call: other requests wait meanwhile */

/* ---- locks ---- */

static int locked_by_other(void *arg, MDB_cursor *cur, const MDB_val *k, const MDB_val *v)
{
	const struct apply *ap = arg;
	uint64_t id;

	(void)cur, (void)k;
	if (v->mv_size != sizeof(id))
		return -EIO;
	memcpy(&id, v->mv_data, sizeof(id));
	return id == ap->pair ? 0 : EINPROGRESS;
}

int apply_locked(struct apply *ap, const struct key *k)
{
	MDB_val v;
	int rc;

	if (!ap->n_locks)
		return 0;
	rc = row_get(&ap->m->db, ap->txn, T_LOCK, k, &v);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	return locked_by_other(ap, NULL, NULL, &v);
}

int apply_locked_within(struct apply *ap, uint64_t dir)
{
	return ap->n_locks ? rows_each(&ap->m->db, ap->txn, T_LOCK, dir, locked_by_other, ap) : 0;
}

/* ---- parts ---- */

static int add_check(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct disk_entry e = { 0 };
	struct node dir;
	int rc = name_check(&r->name);

	if (!rc)
		rc = get_dir(ap, &r->dir, MAY_EXEC | MAY_WRITE, &dir);
	if (rc)
		return rc;
	rc = get_entry(ap, r->dir.ino, &r->name, &e);
	if (rc && rc != ENOENT)
		return rc;
	if ((r->flags & PART_EXPECT) && (e.ino != r->dir2.ino || e.gen != r->dir2.gen))
		return EAGAIN;
	if (!rc && (r->flags & REC_NOREPLACE))
		return EEXIST;
	if (!rc && e.ino != r->h.ino && (e.type == S_IFDIR) != (r->mode == S_IFDIR))
		return e.type == S_IFDIR ? EISDIR : ENOTDIR;
	if (rc && r->mode == S_IFDIR && dir.i.nlink == UINT32_MAX)
		return EMLINK;
	node_attr(&dir, r->dir.ino, false, &ap->res->at);
	ap->res->removed = (struct wire_handle){ e.ino, e.gen };
	return 0;
}

static int add_put(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	const struct db *d = &ap->m->db;
	struct disk_entry e, old;
	struct node dir;
	int rc = node_get(d, ap->txn, r->dir.ino, &dir);

	if (rc)
		return rc;
	rc = entry_get(d, ap->txn, r->dir.ino, &r->name, &old);
	if (rc && rc != -ENOENT)
		return rc;
	e = (struct disk_entry){ .ino = r->h.ino, .gen = r->h.gen, .type = r->mode };
	if (rc) {
		e.cookie = dir.i.next_cookie++;
		dir.i.entries++;
	} else {
		e.cookie = old.cookie;
		dir.i.nlink -= old.type == S_IFDIR;
	}
	dir.i.nlink += e.type == S_IFDIR;
	dir_touch(&dir, r->time);
	rc = entry_put(d, ap->txn, r->dir.ino, &r->name, &e);
	return rc ? rc : node_put(d, ap->txn, r->dir.ino, &dir);
}

static int del_check(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct disk_entry e;
	struct node dir;
	int rc = get_dir(ap, &r->dir, MAY_EXEC | MAY_WRITE, &dir);

	if (!rc)
		rc = get_entry(ap, r->dir.ino, &r->name, &e);
	if (rc)
		return rc;
	return e.ino == r->h.ino && e.gen == r->h.gen ? 0 : EAGAIN;
}

static int del_put(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	const struct db *d = &ap->m->db;
	struct disk_entry e;
	struct node dir;
	int rc = node_get(d, ap->txn, r->dir.ino, &dir);

	if (!rc)
		rc = entry_get(d, ap->txn, r->dir.ino, &r->name, &e);
	if (!rc)
		rc = entry_del(d, ap->txn, r->dir.ino, &r->name, e.cookie);
	if (rc)
		return rc;
	dir.i.entries--;
	dir.i.nlink -= e.type == S_IFDIR;
	dir_touch(&dir, r->time);
	return node_put(d, ap->txn, r->dir.ino, &dir);
}

/* A new directory whose parent is on another server: the record has what it inherits. */
static int new_dir(struct apply *ap, struct node *n)
{
	const struct wire_record *r = ap->rec;
	struct node parent = { .i = { .mode = r->which,
				      .gid = r->group,
				      .has = r->obj_gen << HAS_CACHE_SHIFT & HAS_CACHE } };
	int rc = node_new(ap, &parent, S_IFDIR, n);

	if (rc)
		return rc;
	n->i.parent_ino = r->dir.ino;
	n->i.parent_gen = r->dir.gen;
	return 0;
}

static int new_check(struct apply *ap)
{
	struct node n;
	int rc = new_ino_check(ap, ap->rec->new_ino);

	if (!rc)
		rc = new_dir(ap, &n);
	if (rc)
		return rc;
	node_attr(&n, ap->rec->new_ino, false, &ap->res->at);
	/* reserved from now on: not given again after a restart, while the part is prepared */
	ap->next_ino = MAX(ap->next_ino, INO_COUNTER(ap->rec->new_ino) + 1);
	return 0;
}

static int new_put(struct apply *ap)
{
	struct node n;
	int rc = new_dir(ap, &n);

	if (!rc)
		rc = inherit_put(ap, NULL, &n);
	return rc ? rc : node_put(&ap->m->db, ap->txn, ap->rec->new_ino, &n);
}

static int part_put(struct apply *ap, struct node *n)
{
	node_touch(n, ap->rec->time);
	return node_put(&ap->m->db, ap->txn, ap->rec->h.ino, n);
}

static int link_part_check(struct apply *ap)
{
	struct node n;
	int rc = apply_get(ap, &ap->rec->h, &n);

	if (!rc)
		rc = link_check(&n);
	if (rc)
		return rc;
	n.i.nlink++;
	node_touch(&n, ap->rec->time);
	return apply_answer(ap, ap->rec->h.ino, &n);
}

static int link_part_put(struct apply *ap)
{
	struct node n;
	int rc = node_get(&ap->m->db, ap->txn, ap->rec->h.ino, &n);

	if (rc)
		return rc;
	n.i.nlink++;
	return part_put(ap, &n);
}

/* The name of this inode is in a directory of another server, which may be sticky. */
static int sticky_part_check(const struct apply *ap, const struct node *n)
{
	const struct wire_record *r = ap->rec;
	uint32_t uid = ap->cred.uid;

	if (!(r->flags & PART_STICKY) || uid == 0 || uid == r->owner || uid == n->i.uid)
		return 0;
	return EPERM;
}

static int drop_check(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node n;
	int rc = apply_get(ap, &ap->rec->h, &n);

	if (!rc)
		rc = sticky_part_check(ap, &n);
	if (rc)
		return rc;
	node_attr(&n, r->h.ino, false, &ap->res->at);
	if (!S_ISDIR(n.i.mode))
		return r->mode == S_IFDIR ? ENOTDIR : 0;
	if (r->mode != S_IFDIR)
		return EISDIR;
	return n.i.entries ? ENOTEMPTY : apply_locked_within(ap, r->h.ino);
}

static int drop_put(struct apply *ap)
{
	struct node n;
	int rc = node_get(&ap->m->db, ap->txn, ap->rec->h.ino, &n);

	return rc ? rc : drop_name(ap, ap->rec->h.ino, &n);
}

static int move_check(struct apply *ap)
{
	struct node n;
	int rc = apply_get(ap, &ap->rec->h, &n);

	if (!rc)
		rc = sticky_part_check(ap, &n);
	if (!rc && S_ISDIR(n.i.mode) && (ap->rec->flags & PART_PARENT))
		rc = apply_may(ap, &n, MAY_WRITE); /* because its ".." changes */
	return rc ? rc : apply_answer(ap, ap->rec->h.ino, &n);
}

static int move_put(struct apply *ap)
{
	struct node n;
	int rc = node_get(&ap->m->db, ap->txn, ap->rec->h.ino, &n);

	if (!rc && S_ISDIR(n.i.mode)) {
		n.i.parent_ino = ap->rec->dir.ino;
		n.i.parent_gen = ap->rec->dir.gen;
	}
	return rc ? rc : part_put(ap, &n);
}

static int alone(struct apply *ap)
{
	(void)ap;
	return 0;
}

/* The key of what a part touches. */
static struct key part_key(const struct wire_record *r)
{
	switch (r->kind) {
	case PART_ADD:
	case PART_DEL:
		return key_entry(r->dir.ino, &r->name);
	case PART_NEW:
		return key_u64(r->new_ino);
	case PART_ALONE:
		return key_u64(UINT64_MAX); /* no inode has this number */
	default:
		return key_u64(r->h.ino);
	}
}

static const struct part {
	apply_fn *check, *put; /* put cannot be refused after a successful check */
} parts[] = {
	[PART_ADD] = { add_check, add_put },	[PART_DEL] = { del_check, del_put },
	[PART_NEW] = { new_check, new_put },	[PART_LINK] = { link_part_check, link_part_put },
	[PART_DROP] = { drop_check, drop_put }, [PART_MOVE] = { move_check, move_put },
	[PART_ALONE] = { alone, alone },
};

static const struct part *part_of(uint32_t kind)
{
	return kind < ARRAY_LEN(parts) && parts[kind].check ? &parts[kind] : NULL;
}

/* Decodes a part into a record and a context to apply it in, which shares the answer of `ap`. */
static int part_decode(const struct apply *ap, const void *p, size_t len, struct apply *sub,
		       struct wire_record *rec)
{
	struct xdr x;

	*sub = *ap;
	memset(rec, 0, sizeof(*rec));
	xdr_decoder(&x, p, len, ap->arena);
	if (!xdr_wire_record(&x, rec) || xdr_left(&x) || rec->name.len > NAME_MAX_LEN)
		return EINVAL;
	sub->rec = rec;
	sub->cred = (struct cred){ rec->uid, rec->gid, rec->n_gids, rec->gids };
	return 0;
}

/* Takes over what a part changed in the state of the transaction. */
static int part_done(struct apply *ap, const struct apply *sub, int rc)
{
	ap->next_ino = sub->next_ino;
	ap->n_locks = sub->n_locks;
	return rc;
}

/* ---- prepare ---- */

static int keep_part(struct apply *ap, const struct wire_record *part)
{
	const struct wire_record *r = ap->rec;
	struct disk_prepared row = { .coordinator = r->owner };
	struct key k = key_pair32(r->pair, r->which);
	uint8_t buf[PART_MAX];
	struct xdr x;

	xdr_encoder(&x, buf, sizeof(buf));
	if (!xdr_wire_record(&x, (struct wire_record *)part))
		return EINVAL;
	return row_put2(&ap->m->db, ap->txn, T_PREPARED, &k, &row, sizeof(row), buf, xdr_used(&x));
}

static int lock_part(struct apply *ap, const struct key *k)
{
	MDB_stat st;
	int rc = row_put(&ap->m->db, ap->txn, T_LOCK, k, &ap->rec->pair, sizeof(ap->rec->pair));

	if (rc)
		return rc;
	rc = mdb_stat(ap->txn, ap->m->db.t[T_LOCK], &st);
	ap->n_locks = st.ms_entries;
	return db_error(rc);
}

/* The part that is stored under this id already, or the one in the record. */
static int prepare_find(struct apply *ap, struct apply *sub, struct wire_record *part, bool *kept)
{
	const struct wire_record *r = ap->rec;
	struct key k = key_pair32(r->pair, r->which);
	size_t head = sizeof(struct disk_prepared);
	MDB_val v;
	int rc = row_get(&ap->m->db, ap->txn, T_PREPARED, &k, &v);

	if (rc && rc != -ENOENT)
		return rc;
	*kept = rc == 0;
	if (*kept)
		return v.mv_size < head ? -EIO :
					  part_decode(ap, (uint8_t *)v.mv_data + head,
						      v.mv_size - head, sub, part);
	rc = part_decode(ap, r->data.p, r->data.len, sub, part);
	if (part->kind == PART_NEW)
		part->new_ino = r->new_ino;
	return rc;
}

int apply_prepare(struct apply *ap)
{
	struct wire_record rec;
	struct apply sub;
	const struct part *p;
	struct key lock;
	bool kept;
	int rc = ap->rec->pair ? prepare_find(ap, &sub, &rec, &kept) : EINVAL;

	if (rc)
		return rc;
	p = part_of(rec.kind);
	if (!p || ((rec.kind == PART_ADD || rec.kind == PART_DEL) && name_check(&rec.name)))
		return EINVAL;
	lock = part_key(&rec);
	rc = apply_locked(ap, &lock);
	if (!rc)
		rc = part_done(ap, &sub, p->check(&sub));
	if (rc || kept)
		return rc;
	if (rec.kind == PART_NEW || rec.kind == PART_ADD || rec.kind == PART_LINK) {
		if (!ap->may_take_space)
			return ENOSPC;
		ap->took_space = true;
	}
	rc = keep_part(ap, &rec);
	return rc ? rc : lock_part(ap, &lock);
}

/* ---- finish ---- */

/* Applies or drops one part and removes its lock. */
static int finish_part(struct apply *ap, const MDB_val *v)
{
	size_t head = sizeof(struct disk_prepared);
	struct wire_bytes copy; /* writes would move the row */
	struct wire_record rec;
	struct apply sub;
	const struct part *p;
	struct key lock;
	int rc = bytes_copy(&copy, v->mv_data, v->mv_size, ap->arena);

	if (rc)
		return rc;
	rc = copy.len < head ? EINVAL : part_decode(ap, copy.p + head, copy.len - head, &sub, &rec);
	p = rc ? NULL : part_of(rec.kind);
	if (!p)
		return -EIO;
	lock = part_key(&rec);
	if (ap->rec->flags & REC_COMMIT)
		rc = part_done(ap, &sub, p->put(&sub));
	if (!rc)
		rc = row_del(&ap->m->db, ap->txn, T_LOCK, &lock);
	if (!rc)
		ap->n_locks--;
	return rc == -ENOENT ? -EIO : rc;
}

int apply_finish(struct apply *ap)
{
	uint64_t id = ap->rec->pair;
	const struct db *d = &ap->m->db;

	for (uint32_t i = 0; i < PARTS_MAX; i++) { /* all parts of this change */
		struct key k = key_pair32(id, i);
		MDB_val v;
		int rc = row_get(d, ap->txn, T_PREPARED, &k, &v);

		if (rc == -ENOENT)
			continue;
		if (!rc)
			rc = finish_part(ap, &v);
		if (!rc)
			rc = row_del(d, ap->txn, T_PREPARED, &k);
		if (rc)
			return rc > 0 ? -EIO : rc;
	}
	return 0;
}

/* ---- decide ---- */

/* Runs check or put of all own parts of the coordinator. */
static int own_parts(struct apply *ap, const struct wire_decision *dec, bool put)
{
	for (uint32_t i = 0; i < dec->n_parts; i++) {
		const struct wire_bytes *b = &dec->parts[i].rec;
		struct wire_record rec;
		struct apply sub;
		const struct part *p;
		int rc = part_decode(ap, b->p, b->len, &sub, &rec);

		p = rc ? NULL : part_of(rec.kind);
		if (p)
			rc = put ? p->put(&sub) : p->check(&sub);
		else if (rec.kind == REC_RENAME && dec->n_parts == 1) /* an exchange */
			rc = put ? 0 : apply_rename(&sub);
		else
			rc = EINVAL;
		part_done(ap, &sub, 0);
		if (rc)
			return put && rc > 0 ? -EIO : rc;
	}
	return 0;
}

int apply_decide(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct wire_decision dec = { 0 };
	struct wire_handle removed;
	struct key k = key_u64(r->pair);
	struct xdr x;
	int rc;

	xdr_decoder(&x, r->data.p, r->data.len, ap->arena);
	if (!r->pair || !xdr_wire_decision(&x, &dec))
		return EINVAL;
	rc = own_parts(ap, &dec, false);
	if (rc)
		return rc;
	ap->res->removed = (struct wire_handle){ 0 }; /* was set by a check */
	rc = own_parts(ap, &dec, true);
	removed = ap->res->removed;
	*ap->res = (struct wire_record_res){ .at = dec.at, .removed = removed };
	if (rc || !dec.n_targets)
		return rc;
	return row_put(&ap->m->db, ap->txn, T_DECIDED, &k, dec.targets,
		       dec.n_targets * sizeof(*dec.targets));
}

int apply_told(struct apply *ap)
{
	struct key k = key_u64(ap->rec->pair);

	return row_forget(ap, T_DECIDED, &k);
}

/* ---- reads, on the loop ---- */

int meta_decided(struct meta *m, uint64_t id)
{
	struct key k = key_u64(id);
	MDB_val v;
	int rc = read_begin(m);

	return rc ? rc : read_end(m, row_get(&m->db, m->reader, T_DECIDED, &k, &v));
}

static int each_pair(struct meta *m, enum table t, void (*fn)(void *arg, const struct meta_pair *p),
		     void *arg)
{
	MDB_cursor *cur;
	MDB_val k, v;
	int rc = mdb_cursor_open(m->reader, m->db.t[t], &cur);

	if (rc)
		return db_error(rc);
	while (!(rc = mdb_cursor_get(cur, &k, &v, MDB_NEXT))) {
		struct meta_pair p = { .id = be64_load(k.mv_data) };
		struct disk_prepared row;

		if (t == T_PREPARED && v.mv_size >= sizeof(row)) {
			memcpy(&row, v.mv_data, sizeof(row));
			p.n = 1;
			p.targets[0] = row.coordinator;
		} else if (t == T_DECIDED) {
			p.n = (uint32_t)MIN(v.mv_size / sizeof(*p.targets), (size_t)PARTS_MAX);
			memcpy(p.targets, v.mv_data, p.n * sizeof(*p.targets));
		}
		fn(arg, &p);
	}
	mdb_cursor_close(cur);
	return rc == MDB_NOTFOUND ? 0 : db_error(rc);
}

int meta_each_prepared(struct meta *m, void (*fn)(void *arg, const struct meta_pair *p), void *arg)
{
	int rc = m->n_locks ? read_begin(m) : -ENOENT;

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	return read_end(m, each_pair(m, T_PREPARED, fn, arg));
}

int meta_each_decided(struct meta *m, void (*fn)(void *arg, const struct meta_pair *p), void *arg)
{
	int rc = read_begin(m);

	return rc ? rc : read_end(m, each_pair(m, T_DECIDED, fn, arg));
}

int meta_climb(struct meta *m, uint64_t ino, struct wire_handle *at)
{
	struct node n;
	int rc = read_begin(m), end = CLIMB_ON;

	if (rc)
		return rc;
	for (int i = 0; i < CLIMB_MOST && end == CLIMB_ON && !rc && meta_owns(m, at->ino); i++) {
		end = at->ino == ino ? CLIMB_MET : at->ino == META_ROOT_INO ? CLIMB_ROOT : end;
		if (end == CLIMB_ON)
			rc = read_handle(m, at, &n);
		if (end == CLIMB_ON && !rc && !S_ISDIR(n.i.mode))
			rc = -ENOTDIR;
		if (end == CLIMB_ON && !rc) {
			struct key k = key_u64(at->ino);

			rc = read_locked(m, &k); /* `at` may be about to move */
		}
		if (end == CLIMB_ON && !rc)
			*at = (struct wire_handle){ n.i.parent_ino, n.i.parent_gen };
	}
	return read_end(m, rc ? rc : end);
}
