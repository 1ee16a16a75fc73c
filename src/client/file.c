/* Open files: open, close, fsync, flush, and the state between them: the capability, how far the
 * file was written, and which servers have data that no fsync covered. */
#include <fcntl.h>
#include <stdlib.h>

#include "client/banked.h"
#include "client/names_impl.h"

struct sheaf_handle cfile_handle(const struct cfile *f)
{
	return (struct sheaf_handle){ f->h.ino, f->h.gen };
}

uint64_t cfile_id(const struct cfile *f)
{
	return f->id;
}

void file_free(struct cfile *f)
{
	list_del(&f->link);
	if (f->imported)
		htab_remove(&f->c->imported, &f->by_id);
	file_locks_free(f);
	direct_file_free(f->direct);
	free(f->bank_ahead);
	free(f->targets);
	free(f->unsynced);
	free(f->writes);
	free(f->objects);
	free(f);
}

/* A newer epoch accounts for earlier writes: its fence cut them, or the objects were asked. */
static void new_epoch(struct cfile *f, uint64_t epoch)
{
	f->wrote = (struct wire_wrote){ .epoch = epoch, .doubt = f->wrote.doubt };
	for (uint32_t i = 0; i < f->layout.width; i++)
		f->objects[i].wrote = false;
}

void file_wrote(struct cfile *f, uint32_t index, uint64_t epoch, uint64_t end,
		const struct wire_write_res *r)
{
	struct file_object *o = &f->objects[index];

	f->seen_mtime = MAX(f->seen_mtime, r->mtime);
	if (epoch < f->wrote.epoch)
		return;
	if (epoch > f->wrote.epoch)
		new_epoch(f, epoch);
	f->n_wrote++;
	f->wrote.end = MAX(f->wrote.end, end);
	f->wrote.mtime = r->mtime;
	o->end = o->wrote ? MAX(o->end, r->end) : r->end;
	o->blocks = o->wrote ? MAX(o->blocks, r->blocks) : r->blocks;
	o->wrote = true;
}

void file_recorded(struct cfile *f, uint64_t epoch, const struct wire_layout_rec *l)
{
	if (l->n_ends != f->layout.width || epoch < f->cap.epoch)
		return;
	for (uint32_t i = 0; i < l->n_ends; i++)
		f->objects[i].recorded =
			epoch > f->cap.epoch ? l->ends[i] : MAX(f->objects[i].recorded, l->ends[i]);
}

struct wire_access file_access(const struct cfile *f, uint32_t index)
{
	return (struct wire_access){ f->cap, index, f->objects[index].recorded };
}

struct wire_wrote file_report(const struct cfile *f, struct arena *a)
{
	struct wire_wrote w = f->wrote;
	uint32_t width = f->layout.width;

	w.objects = arena_alloc(a, MAX(width, 1u) * sizeof(*w.objects));
	w.doubt |= f->punched || f->is_shared || !w.objects;
	for (uint32_t i = 0; w.objects && i < width; i++) {
		const struct file_object *o = &f->objects[i];

		if (o->wrote)
			w.objects[w.n_objects++] =
				(struct wire_object_note){ i, o->end, o->blocks, f->unsynced[i] };
		else if (f->unsynced[i]) /* written before a fence */
			w.objects[w.n_objects++] =
				(struct wire_object_note){ .index = i, .unsynced = f->unsynced[i] };
	}
	return w;
}

/* The metadata server has the report that was made when n_wrote was `upto`. */
static void file_reported(struct cfile *f, const struct wire_wrote *w, uint64_t epoch,
			  uint64_t upto)
{
	if (w->epoch < epoch || w->epoch != f->wrote.epoch)
		return;
	for (uint32_t i = 0; i < w->n_objects; i++) {
		struct file_object *o = &f->objects[w->objects[i].index];

		o->recorded = MAX(o->recorded, w->objects[i].end);
		o->wrote &= f->n_wrote != upto;
	}
	if (f->n_wrote == upto)
		f->wrote.end = 0;
	if (f->n_wrote == upto)
		f->wrote.mtime = 0;
}

int64_t file_mtime_begin(struct client *c, uint64_t ino, uint32_t uid)
{
	int64_t upto = 0;
	struct cfile *f;

	list_for_each(f, &c->files, link) {
		if (f->h.ino != ino)
			continue;
		upto = MAX(upto, f->seen_mtime);
		if (uid && uid != f->cred.uid) /* another user's SETATTR may be refused */
			continue;
		f->held_mtime = MAX(f->held_mtime, f->wrote.mtime);
		f->wrote.mtime = 0;
	}
	return upto;
}

void file_mtime_end(struct client *c, uint64_t ino, int64_t upto, bool set)
{
	struct cfile *f;

	list_for_each(f, &c->files, link) {
		if (f->h.ino != ino)
			continue;
		if (!set) {
			f->wrote.mtime = MAX(f->wrote.mtime, f->held_mtime);
		} else if (f->wrote.mtime <= upto) {
			f->wrote.mtime = 0;
		}
		f->held_mtime = 0;
	}
}

/* Acknowledged writes were lost: only the objects know how far the file reaches; what the client
 * has written does not tell. */
static void lose_writes(struct cfile *f)
{
	f->lost = true;
	f->wrote.end = 0;
	f->wrote.doubt = true;
	for (uint32_t i = 0; i < f->layout.width; i++)
		f->objects[i].wrote = false;
}

void file_unsynced(struct cfile *f, uint32_t index, uint64_t verifier)
{
	f->writes[index]++;
	if (f->unsynced[index] && f->unsynced[index] != verifier)
		peer_note_failure(&f->c->peers[f->targets[index]], -EIO);
	if (!f->unsynced[index])
		f->unsynced[index] = verifier;
	else if (f->unsynced[index] != verifier)
		lose_writes(f);
}

/* ---- open ---- */

int file_new(struct client *c, const struct wire_handle *h, uint64_t id,
	     const struct wire_layout_rec *l, struct cfile **out)
{
	struct cfile *f = calloc(1, sizeof(*f));
	uint32_t width = l->n_targets;
	int e = -EIO;

	if (!f)
		return -ENOMEM;
	list_init(&f->link);
	list_init(&f->appends);
	f->c = c;
	f->h = *h;
	f->id = id;
	f->layout = (struct layout){ l->unit, width, l->start };
	if (file_locks_init(f)) {
		e = -ENOMEM;
		goto fail;
	}
	if (!width)
		goto listed;
	f->targets = calloc(width, sizeof(*f->targets));
	f->unsynced = calloc(width, sizeof(*f->unsynced));
	f->writes = calloc(width, sizeof(*f->writes));
	f->objects = calloc(width, sizeof(*f->objects));
	if (!f->targets || !f->unsynced || !f->writes || !f->objects) {
		e = -ENOMEM;
		goto fail;
	}
	if (!l->unit || l->start >= width)
		goto fail;
	for (uint32_t i = 0; i < width; i++) {
		f->targets[i] = l->targets[i];
		if (f->targets[i] >= c->n_peers)
			goto fail;
	}
	file_recorded(f, 0, l);
listed:
	list_push(&c->files, &f->link);
	*out = f;
	return 0;
fail:
	file_free(f);
	return e;
}

int file_make(struct cop *op)
{
	const struct wire_open_res *r = &op->res.open;
	bool directory = (r->at.mode & S_IFMT) == S_IFDIR;
	const struct wire_handle h = { r->at.ino, r->at.gen };
	struct cfile *f;
	int e = directory == !r->layout.n_targets ?
			file_new(op->c, &h, op->args.OPEN.id, &r->layout, &f) :
			-EIO;

	if (e)
		return e;
	f->flags = op->args.OPEN.flags & (OPEN_READ | OPEN_WRITE | OPEN_APPEND);
	f->cap = r->cap;
	f->opened_change = r->at.change;
	f->has_unsynced_before = r->unsynced;
	f->cred = op->cred;
	file_use_bank(f, r);
	op->file = f;
	return 0;
}

static int open_flags(int flags, uint32_t *out)
{
	static const uint32_t mode[] = {
		[O_RDONLY] = OPEN_READ, [O_WRONLY] = OPEN_WRITE, [O_RDWR] = OPEN_READ | OPEN_WRITE
	};

	if ((flags & O_ACCMODE) == O_ACCMODE)
		return -EINVAL;
	*out = mode[flags & O_ACCMODE];
	if ((flags & O_APPEND) && (*out & OPEN_WRITE))
		*out |= OPEN_APPEND;
	if (flags & O_CREAT)
		*out |= OPEN_CREATE;
	if (flags & O_EXCL)
		*out |= OPEN_EXCL;
	if (flags & O_TRUNC)
		*out |= OPEN_TRUNC;
	if (flags & O_DIRECTORY)
		*out |= OPEN_DIRECTORY;
	if (flags & SHEAF_O_NAMELESS)
		*out |= OPEN_NAMELESS;
	return 0;
}

void client_open(struct cop *op, struct sheaf_handle dir, const char *path, int flags, mode_t mode,
		 const struct sheaf_layout *layout)
{
	struct wire_open_args *a = &op->args.OPEN;
	int e;

	*a = (struct wire_open_args){ .id = ++op->c->next_open,
				      .mode = mode & 07777,
				      .umask = op->umask };
	a->where = name_place(dir, path,
			      !(flags & O_NOFOLLOW) &&
				      (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL));
	e = open_flags(flags, &a->flags);
	if (layout && layout->size >= sizeof(*layout)) {
		a->unit = layout->stripe_unit;
		a->width = layout->width;
	}
	op->repeatable = !(a->flags & (OPEN_CREATE | OPEN_TRUNC));
	name_start(op, OP_OPEN, &a->where, e);
}

/* ---- fsync, flush and close ---- */

enum { ASK, CHECK, REPORT, FINISH, END };
static const char *const sync_names[] = {
	[ASK] = "objects", [CHECK] = "check", [REPORT] = "report", [FINISH] = "finish", [END] = "end"
};

struct syncing {
	struct object_sync {
		struct call call;
		struct wire_sync_args args;
		struct wire_object_res res;
		uint64_t seen; /* writes answered before it was asked */
	} * objects;
	uint32_t n;
	uint32_t tries;
	uint64_t n_wrote; /* f->n_wrote at the report */
	enum { SYNC, FLUSH, CLOSE } how;
	bool renewing; /* a fresh capability was asked for */
	int result;
};

/* Must a flush or close ask this object's server? Not if its link has been up since the write. An
 * fsync always asks: it covers the data of all writers of the file. */
static bool must_ask(const struct cfile *f, uint32_t i)
{
	const struct peer *p = &f->c->peers[f->targets[i]];

	return f->unsynced[i] && (p->state != PEER_UP || p->verifier != f->unsynced[i]);
}

bool cfile_clean(const struct cfile *f)
{
	for (uint32_t i = 0; f->unsynced && i < f->layout.width; i++)
		if (must_ask(f, i))
			return false;
	return !f->lost && !file_lost_own_locks(f);
}

static int ask_targets(struct cop *op, struct syncing *s)
{
	struct cfile *f = op->file;
	uint32_t n = f->layout.width;

	s->objects = arena_alloc(&op->arena, MAX(n, 1u) * sizeof(*s->objects));
	if (!s->objects)
		return -ENOMEM;
	s->n = f->unsynced ? n : 0;
	for (uint32_t i = 0; i < s->n; i++) {
		struct object_sync *o = &s->objects[i];

		if (s->how != SYNC && !must_ask(f, i))
			continue;
		o->args.at = file_access(f, i);
		o->seen = f->writes[i];
		o->call = s->how == SYNC ? call_make(op, OP_SYNC, &o->args, &o->res) :
					   call_make(op, OP_OBJSTAT, &o->args.at, &o->res);
		peer_call(&f->c->peers[f->targets[i]], &o->call, &op->q);
	}
	return 0;
}

/* Did every server keep what it had acknowledged? Fenced capabilities do not matter here. */
static int check_verifiers(struct cop *op, struct syncing *s)
{
	struct cfile *f = op->file;
	int result = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		struct call *c = &s->objects[i].call;

		if (!c->op)
			continue;
		if (c->status && !result)
			result = c->status;
		/* every reply, even an error, has the server's current verifier */
		if (c->verifier && f->unsynced[i] && c->verifier != f->unsynced[i]) {
			lose_writes(f);
			peer_note_failure(c->peer, -EIO);
			if (s->how == FLUSH) /* data written since are still there */
				f->unsynced[i] = c->verifier;
		}
		if ((!c->status || c->status == -EIO) && s->how == SYNC &&
		    s->objects[i].seen == f->writes[i])
			f->unsynced[i] = 0; /* also after an error, which is reported once */
		call_fini(c);
	}
	if (f->lost && (result != -EKEYEXPIRED || s->how != SYNC)) { /* else it repeats */
		result = -EIO;
		if (s->how != FLUSH) /* any close(2) flushes; a later fsync must fail, too */
			f->lost = false; /* reported once, as by a local file system */
		for (uint32_t i = 0; i < s->n && s->how == SYNC; i++)
			if (s->objects[i].seen == f->writes[i])
				f->unsynced[i] = 0;
	}
	return result;
}

static void report(struct cop *op, struct syncing *s)
{
	struct cfile *f = op->file;
	struct wire_wrote w = file_report(f, &op->arena);
	bool has_news = w.mtime || w.end || w.n_objects;

	s->n_wrote = f->n_wrote;
	if (f->is_guest && (s->how != CLOSE || !f->may_be_open))
		return;
	if (s->how == CLOSE) {
		op->args.CLOSE = (struct wire_close_args){ f->h, f->id, w };
		op->call = call_make(op, OP_CLOSE, &op->args, &op->res);
	} else if (s->how == SYNC && has_news) {
		w.doubt = f->wrote.doubt; /* in a RECORD it has another meaning */
		op->args.RECORD = (struct wire_record_args){ f->h, w };
		op->call = call_make(op, OP_RECORD, &op->args, &op->res);
	} else {
		return;
	}
	/* never defer a close that has news or holds locks: other clients may wait for it */
	op->call.is_deferred = op->may_defer && !has_news && !w.doubt &&
			       !locks_list(f->holding->locks, f->id, NULL, 0, 0);
	peer_call(meta_peer(op->c, f->h.ino), &op->call, &op->q);
}

/* The result of the operation, after the metadata server has answered. */
static int result_of(struct cop *op, const struct syncing *s)
{
	struct cfile *f = op->file;
	int e = s->result, error = op->q.error;

	if (!error && op->call.op == OP_RECORD) {
		f->has_unsynced_before = op->res.recorded.unsynced;
		file_reported(f, &op->args.RECORD.w, op->res.recorded.epoch, s->n_wrote);
	}
	if (!e || (e == -EKEYEXPIRED && s->how != SYNC))
		e = error;
	if (s->how != SYNC && !e && file_lost_own_locks(f)) /* the owners were not told */
		e = -EIO;
	return e == -ESTALE || e == -EBADF ? -EIO : e;
}

/* The data of earlier writers are on disk, too. The metadata server, which may have marked them as
 * unsynced, verifies that and removes the marks. It may find that some were lost before: no error
 * of this fsync, or every later fsync of the file would fail. */
static void report_synced(struct cop *op)
{
	struct cfile *f = op->file;

	call_fini(&op->call);
	op->args.DURABLE = (struct wire_durable_args){ f->h, false };
	op->call = call_make(op, OP_FSYNC, &op->args, &op->res);
	peer_call(meta_peer(op->c, f->h.ino), &op->call, &op->q);
}

static bool sync_step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct syncing *s = op->state;
	struct cfile *f = op->file;

	switch (q->state) {
	case ASK:
		req_goto(q, CHECK);
		cap_take(f, &op->call); /* if one was asked for */
		s->renewing = false;
		req_fail(q, ask_targets(op, s));
		break;
	case CHECK:
		if (!s)
			return cop_end(op, q->error);
		req_goto(q, REPORT);
		if (s->renewing) /* refused: the file is not ours any more */
			s->result = q->error == -EBADF ? -EIO : q->error;
		else
			s->result = s->objects ? check_verifiers(op, s) : q->error;
		q->error = 0;
		if (s->result == -EKEYEXPIRED && s->how == SYNC && ++s->tries < 100) {
			req_goto(q, ASK);
			s->renewing = true;
			cap_ask(op, f, &op->call, q);
		}
		break;
	case REPORT:
		req_goto(q, FINISH);
		call_fini(&op->call);
		report(op, s);
		break;
	case FINISH:
		req_goto(q, END);
		s->result = result_of(op, s);
		q->error = 0;
		if (s->how == SYNC && !s->result && f->unsynced && !f->is_guest &&
		    (f->has_unsynced_before || op->call.op != OP_RECORD))
			report_synced(op);
		break;
	case END:
		if (op->call.op == OP_FSYNC && (!q->error || q->error == -EIO))
			f->has_unsynced_before = false;
		if (s->how == CLOSE) /* also after an error: a lost session has closed the file */
			file_free(f);
		return cop_end(op, s->result);
	}
	return true;
}

/* CHECK combines the errors of the single calls. */
static const struct req_ops sync_ops = REQ_OPS("sync", sync_step, CHECK, sync_names);

static void sync_start(struct cop *op, struct cfile *f, int how)
{
	struct syncing *s = arena_alloc(&op->arena, sizeof(*s));

	op->file = f;
	op->state = s;
	op->cred = f->cred; /* reports have the credential of the open, not of the close */
	if (s)
		s->how = how;
	else if (how == CLOSE)
		file_free(f);
	cop_start(op, &sync_ops, s ? 0 : -ENOMEM);
}

void client_fsync(struct cop *op, struct cfile *f)
{
	f->holding->leaves_bank = true; /* what others have synced is wanted */
	sync_start(op, f, SYNC);
}

void client_flush(struct cop *op, struct cfile *f)
{
	sync_start(op, f, FLUSH);
}

void client_close(struct cop *op, struct cfile *f)
{
	sync_start(op, f, CLOSE);
}

/* ---- after a server's restart ---- */

enum { CLAIM, CLAIMED };
static const char *const claim_names[] = { [CLAIM] = "claim", [CLAIMED] = "end" };

struct claim {
	struct req q;
	struct client *c;
	struct call call;
	struct wire_reclaim_args args;
	struct wire_append_claim appends[APPENDS_MAX];
	struct wire_void_res res;
	struct cred_wire cred;
	struct wire_lock locks[];
};

static bool claim_step(struct req *q)
{
	struct claim *c = container_of(q, struct claim, q);
	struct cfile *f;

	if (q->error == -ESHUTDOWN) { /* the client halts: its successor claims */
		c->call.peer->unclaimed = true;
	} else if (q->error) {
		log_warn("client", "inode %llx could not be claimed again: %s",
			 (unsigned long long)c->args.h.ino, error_text(q->error));
		list_for_each(f, &c->c->files, link) /* it may have been closed */
			if (c->args.n_locks && f->id == c->args.id)
				file_lose_locks(f);
	}
	call_fini(&c->call);
	req_fini(q);
	free(c);
	return false;
}

static const struct req_ops claim_ops = REQ_OPS("reclaim", claim_step, CLAIM, claim_names);

/* Claims the file, with its locks from number `skip` on; returns how many of them. */
static size_t claim_file(struct peer *p, struct cfile *f, size_t skip)
{
	struct client *c = p->owner;
	size_t left = locks_list(f->holding->locks, f->id, NULL, 0, 0) - skip,
	       n = MIN(left, (size_t)CLAIM_LOCKS);
	struct claim *cl = calloc(1, sizeof(*cl) + n * sizeof(cl->locks[0]));

	if (!cl) {
		file_lose_locks(f);
		return 0;
	}
	locks_list(f->holding->locks, f->id, cl->locks, skip, n);
	cl->c = c;
	cl->cred = f->cred;
	cl->args = (struct wire_reclaim_args){ .h = f->h,
					       .id = f->id,
					       .flags = f->flags,
					       .n_appends = append_claims(f, cl->appends),
					       .appends = cl->appends,
					       .n_locks = (uint32_t)n,
					       .locks = cl->locks };
	cl->call = (struct call){ .op = OP_RECLAIM,
				  .args = &cl->args,
				  .res = &cl->res,
				  .cred = &cl->cred,
				  .deadline = c->loop->now + c->timeout_ns };
	req_init(&cl->q, c->loop, &claim_ops, CLAIM);
	cl->call.front = true;
	peer_call(p, &cl->call, &cl->q);
	return n;
}

void file_reclaim(struct peer *p, bool session_lost)
{
	struct client *c = p->owner;
	struct cfile *f;

	list_for_each(f, &c->files, link) {
		size_t done = 0;

		if (!f->unsynced || f->is_guest || meta_peer(c, f->h.ino) != p)
			continue;
		if (session_lost) /* the server decides what else can be claimed */
			file_lose_locks(f);
		do
			done += claim_file(p, f, done);
		while (done < locks_list(f->holding->locks, f->id, NULL, 0, 0));
	}
}
