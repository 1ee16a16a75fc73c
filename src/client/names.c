/* Operations on names and attributes: one call to the server that owns the place.
 * Referrals are followed.
 *
 *   CALL -> CHECK (-> CALL) -> SIZE -> SIZED (-> CALL) -> END
 *            CHECK -> WAIT_SPACE -> CALL			the server is full: wait for space
 *   CALL -> BANKED (-> CALL) -> END			a stat asks the cache bank first
 *            CHECK -> PARENT <-> PARENT_CHECK -> CALL	a rename: look up its new directory first */
#include <stdlib.h>

#include "client/banked.h"
#include "client/names_impl.h"

#define MAX_HOPS 64
#define MAX_TRIES 4
#define ROOT_INO UINT64_C(1)

enum { CALL, BANKED, CHECK, PARENT, PARENT_CHECK, WAIT_SPACE, SIZE, SIZED, END };
static const char *const names[] = { [CALL] = "call",
				     [BANKED] = "bank",
				     [CHECK] = "check",
				     [PARENT] = "parent",
				     [PARENT_CHECK] = "parent-check",
				     [WAIT_SPACE] = "wait-space",
				     [SIZE] = "size",
				     [SIZED] = "sized",
				     [END] = "end" };

/* Follows a referral: the server owned only the beginning of the path. After a symbolic link,
 * r->rest replaces what is left of the path. */
static int follow_referral(struct cop *op, struct wire_place *p, const struct wire_referral *r)
{
	uint8_t *rest;

	if (++op->hops > MAX_HOPS)
		return -ELOOP;
	if (!p || r->consumed > p->path.len)
		return -EBADMSG;
	referral_add(op, p, r, op->sent_at);
	p->dir = r->at;
	p->path.p += r->consumed;
	p->path.len -= r->consumed;
	if (r->linked) { /* copied, since the reply is freed */
		rest = arena_alloc(&op->arena, MAX(r->rest.len, 1u));
		if (!rest)
			return -ENOMEM;
		memcpy(rest, r->rest.p, r->rest.len);
		p->path = (struct wire_bytes){ r->rest.len, rest };
	}
	while (p->path.len && *p->path.p == '/') {
		p->path.p++;
		p->path.len--;
	}
	return 0;
}

/* The lookup of the directory of a rename's new name. */
struct parent {
	struct call call;
	struct wire_lookup_args args;
	struct wire_lookup_res res;
	struct wire_bytes leaf;
};

static int parent_begin(struct cop *op)
{
	struct wire_bytes path = op->place2->path;
	struct parent *p = arena_alloc(&op->arena, sizeof(*p));
	uint32_t cut = path.len;

	op->state = p;
	if (!p)
		return -ENOMEM;
	while (cut && path.p[cut - 1] == '/') /* trailing slashes stay with the name */
		cut--;
	while (cut && path.p[cut - 1] != '/')
		cut--;
	p->leaf = (struct wire_bytes){ path.len - cut, path.p + cut };
	p->args.where = (struct wire_place){ op->place2->dir, { cut, path.p }, true };
	return p->leaf.len ? 0 : -EBADMSG;
}

static void parent_ask(struct cop *op)
{
	struct parent *p = op->state;

	p->call = call_make(op, OP_LOOKUP, &p->args, &p->res);
	op->sent_at = op->q.loop->now;
	peer_call(meta_peer(op->c, p->args.where.dir.ino), &p->call, &op->q);
}

/* Follows a referral, or returns to the rename with the directory. */
static int parent_answer(struct cop *op, int error)
{
	struct parent *p = op->state;

	if (error == -EREMOTE) {
		error = follow_referral(op, &p->args.where, &p->call.referral);
		req_goto(&op->q, PARENT);
	} else if (!error) {
		*op->place2 =
			(struct wire_place){ { p->res.at.ino, p->res.at.gen }, p->leaf, false };
		req_goto(&op->q, CALL);
	}
	call_fini(&p->call);
	return error;
}

/* A directory of the path, or what the name named, vanished between two requests: starts again, and
 * after MAX_TRIES reports that it does not exist. */
static int restart(struct cop *op)
{
	call_fini(&op->call);
	if (++op->tries >= MAX_TRIES)
		return op->start.dir.ino == ROOT_INO ? -ENOENT : -ESTALE;
	referrals_forget(op->c);
	*op->place = op->start;
	if (op->place2)
		*op->place2 = op->start2;
	op->hops = 0;
	req_goto(&op->q, CALL);
	return 0;
}

/* A path is longer than a message can carry. */
static bool path_too_long(const struct cop *op)
{
	return (op->place && op->place->path.len > PATH_MAX_LEN) ||
	       (op->place2 && op->place2->path.len > PATH_MAX_LEN);
}

/* Waits for space after -ENOSPC. From SETXATTR it means too many attributes: no removal helps. */
static bool waits_for_space(struct cop *op)
{
	return op->q.error == -ENOSPC && op->call.op != OP_SETXATTR &&
	       space_wait_begin(op->c, &op->space_wait, &op->q);
}

/* What the answer says about files that are open here. */
static void learn(struct cop *op)
{
	const struct wire_readdir_res *r = &op->res.readdir;

	switch (op->call.op) {
	case OP_LOOKUP:
	case OP_GETATTR:
		file_learn(op->c, &op->attr);
		break;
	case OP_SETATTR:
	case OP_TRUNCATE:
		file_learn(op->c, &op->res.attr.at);
		break;
	case OP_READDIR:
		for (uint32_t i = 0; i < r->n_attrs; i++)
			file_learn(op->c, &r->attrs[i]);
		break;
	}
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	bool stat_like = op->call.op == OP_LOOKUP || op->call.op == OP_GETATTR;

	switch (q->state) {
	case CALL:
		if (attrs_find(op)) {
			req_goto(q, BANKED);
			break;
		}
		req_goto(q, CHECK);
		if (path_too_long(op)) {
			q->error = -ENAMETOOLONG;
			break;
		}
		if (op->place)
			referral_walk(op, op->place);
		if (op->place2)
			referral_walk(op, op->place2);
		op->sent_at = q->loop->now;
		op->call.deadline = q->loop->now + op->c->timeout_ns;
		op->call.trace = q->trace;
		peer_call(meta_peer(op->c, op->place ? op->place->dir.ino : op->ino), &op->call, q);
		break;
	case BANKED:
		req_goto(q, attrs_found(op) ? END : CALL);
		break;
	case CHECK:
		if (waits_for_space(op)) {
			req_goto(q, WAIT_SPACE);
			call_fini(&op->call);
			q->error = 0;
			break;
		}
		req_goto(q, END);
		if (op->moves)
			referrals_forget(op->c);
		if (op->call.op == OP_SETATTR && (op->args.SETATTR.which & SET_MTIME))
			file_mtime_end(op->c, op->args.SETATTR.h.ino, op->upto, !q->error);
		if (q->error == -EREMOTE) {
			bool second = op->call.referral.second && op->place2;

			q->error = second ? parent_begin(op) :
					    follow_referral(op, op->place, &op->call.referral);
			call_fini(&op->call);
			if (!q->error)
				req_goto(q, second ? PARENT : CALL);
			break;
		}
		if (q->error == -ESTALE && op->place) {
			q->error = restart(op);
			break;
		}
		if (!q->error && op->call.op == OP_OPEN &&
		    layout_learn(op, &op->res.open.layout, op->res.open.at.ino, q)) {
			req_goto(q, CHECK);
			break;
		}
		if (!q->error && op->call.op == OP_OPEN)
			q->error = file_make(op);
		if (q->error || !stat_like)
			break;
		op->attr = op->call.op == OP_LOOKUP ? op->res.lookup.at : op->res.getattr.at;
		req_goto(q, SIZE);
		break;
	case PARENT:
		req_goto(q, PARENT_CHECK);
		parent_ask(op);
		break;
	case PARENT_CHECK:
		req_goto(q, END);
		q->error = parent_answer(op, q->error);
		if (q->error == -ESTALE)
			q->error = restart(op);
		break;
	case WAIT_SPACE:
		space_wait_end(&op->space_wait);
		req_goto(q, CALL);
		break;
	case SIZE:
		req_goto(q, SIZED);
		if (op->attr.unsettled && !op->recorded_only)
			sizing_start(op, &(struct wire_handle){ op->attr.ino, op->attr.gen });
		break;
	case SIZED:
		req_goto(q, END);
		if (q->error == -ESTALE && op->place) /* its last name was removed meanwhile */
			q->error = restart(op);
		break;
	case END:
		attrs_end(op, q->error);
		if (!q->error)
			learn(op);
		return cop_end(op, q->error);
	}
	return true;
}

/* Errors lead to CHECK and PARENT_CHECK, where a referral is no error. */
static const struct req_ops name_ops = REQ_OPS("name", step, CHECK, names);

struct wire_place name_place(struct sheaf_handle dir, const char *path, bool follow_last)
{
	while (*path == '/')
		path++;
	return (struct wire_place){ { dir.ino, dir.gen }, wire_text(path), follow_last };
}

static void start(struct cop *op, uint32_t number, int error)
{
	op->call = call_make(op, number, &op->args, &op->res);
	op->call.once &= !op->repeatable;
	op->moves |= wire_op_rows[number].flags & OPF_MOVES;
	cop_start(op, &name_ops, error);
}

void name_start(struct cop *op, uint32_t number, struct wire_place *p, int error)
{
	op->place = p;
	op->start = *p;
	if (op->place2)
		op->start2 = *op->place2;
	start(op, number, error);
}

void inode_start(struct cop *op, uint32_t number, const struct wire_handle *h, int error)
{
	op->ino = h->ino;
	start(op, number, error);
}

static void start_lookup(struct cop *op, struct sheaf_handle dir, const char *path,
			 bool follow_last)
{
	op->args.LOOKUP.where = name_place(dir, path, follow_last);
	name_start(op, OP_LOOKUP, &op->args.LOOKUP.where, 0);
}

void client_stat(struct cop *op, struct sheaf_handle dir, const char *path)
{
	start_lookup(op, dir, path, true);
}

void client_lookup(struct cop *op, struct sheaf_handle dir, const char *path)
{
	start_lookup(op, dir, path, false);
}

void client_getattr(struct cop *op, struct sheaf_handle h)
{
	op->args.GETATTR = (struct wire_getattr_args){ { h.ino, h.gen }, false };
	inode_start(op, OP_GETATTR, &op->args.GETATTR.h, 0);
}

void client_layout(struct cop *op, struct sheaf_handle h)
{
	op->recorded_only = true;
	op->args.GETATTR = (struct wire_getattr_args){ { h.ino, h.gen }, true };
	inode_start(op, OP_GETATTR, &op->args.GETATTR.h, 0);
}

void client_setattr(struct cop *op, struct sheaf_handle h, unsigned which, const struct stat *st)
{
	op->args.SETATTR = (struct wire_setattr_args){ .h = { h.ino, h.gen },
						       .which = which,
						       .mode = st->st_mode & 07777,
						       .uid = st->st_uid,
						       .gid = st->st_gid,
						       .atime = ns_of(st->st_atim),
						       .mtime = ns_of(st->st_mtim) };
	op->moves = which & (SHEAF_SET_MODE | SHEAF_SET_UID | SHEAF_SET_GID);
	if (which & SHEAF_SET_MTIME)
		op->args.SETATTR.written = op->upto = file_mtime_begin(op->c, h.ino, op->cred.uid);
	inode_start(op, OP_SETATTR, &op->args.SETATTR.h, 0);
}

/* How many attributes a new inode gets: as an array for the wire. */
static uint32_t n_set(const struct cop *op)
{
	return op->set.which ? 1 : 0;
}

void client_mkdir(struct cop *op, struct sheaf_handle dir, const char *path, mode_t mode)
{
	op->args.MKDIR = (struct wire_mkdir_args){ name_place(dir, path, false), mode & 07777,
						   op->umask, n_set(op), &op->set };
	name_start(op, OP_MKDIR, &op->args.MKDIR.where, 0);
}

void client_mknod(struct cop *op, struct sheaf_handle dir, const char *path, mode_t mode, dev_t dev)
{
	op->args.MKNOD = (struct wire_mknod_args){
		name_place(dir, path, false), mode, (uint32_t)dev, op->umask, n_set(op), &op->set
	};
	name_start(op, OP_MKNOD, &op->args.MKNOD.where, dev > UINT32_MAX ? -EINVAL : 0);
}

void client_unlink(struct cop *op, struct sheaf_handle dir, const char *path)
{
	op->args.UNLINK.where = name_place(dir, path, false);
	name_start(op, OP_UNLINK, &op->args.UNLINK.where, 0);
}

void client_rmdir(struct cop *op, struct sheaf_handle dir, const char *path)
{
	op->args.UNLINK.where = name_place(dir, path, false);
	name_start(op, OP_RMDIR, &op->args.UNLINK.where, 0);
}

void client_rename(struct cop *op, struct sheaf_handle dir, const char *from,
		   struct sheaf_handle dir2, const char *to, unsigned flags)
{
	op->args.RENAME = (struct wire_rename_args){ name_place(dir, from, false),
						     name_place(dir2, to, false), flags };
	op->place2 = &op->args.RENAME.to;
	name_start(op, OP_RENAME, &op->args.RENAME.from, 0);
}

void client_link(struct cop *op, struct sheaf_handle h, struct sheaf_handle dir, const char *path)
{
	op->args.LINK = (struct wire_link_args){ { h.ino, h.gen }, name_place(dir, path, false) };
	name_start(op, OP_LINK, &op->args.LINK.where, 0);
}

void client_symlink(struct cop *op, const char *target, struct sheaf_handle dir, const char *path)
{
	op->args.SYMLINK = (struct wire_symlink_args){ name_place(dir, path, false),
						       wire_text(target), n_set(op), &op->set };
	name_start(op, OP_SYMLINK, &op->args.SYMLINK.where,
		   op->args.SYMLINK.target.len > LINK_MAX_LEN ? -ENAMETOOLONG : 0);
}

void client_readlink(struct cop *op, struct sheaf_handle dir, const char *path)
{
	op->args.READLINK.where = name_place(dir, path, false);
	name_start(op, OP_READLINK, &op->args.READLINK.where, 0);
}

void client_truncate(struct cop *op, struct sheaf_handle h, uint64_t size)
{
	op->args.TRUNCATE = (struct wire_truncate_args){ { h.ino, h.gen }, size, 0 };
	file_leave_bank(op->c, h.ino);
	inode_start(op, OP_TRUNCATE, &op->args.TRUNCATE.h, 0);
}

void client_ftruncate(struct cop *op, struct cfile *f, uint64_t size)
{
	op->args.TRUNCATE = (struct wire_truncate_args){ f->h, size, f->id };
	file_leave_bank(op->c, f->h.ino);
	inode_start(op, OP_TRUNCATE, &op->args.TRUNCATE.h, file_locks_lost(f) ? -EIO : 0);
}

void client_readdir(struct cop *op, struct sheaf_handle dir, uint64_t cookie, uint32_t max,
		    bool attrs)
{
	op->args.READDIR = (struct wire_readdir_args){ { dir.ino, dir.gen }, cookie, max, attrs };
	inode_start(op, OP_READDIR, &op->args.READDIR.dir, 0);
}

/* ---- servers ---- */

enum { ASK, ANSWER };
static const char *const ask_names[] = { [ASK] = "ask", [ANSWER] = "answer" };

static bool ask_step(struct req *q)
{
	struct cop *op = cop_of(q);

	if (q->state == ANSWER)
		return cop_end(op, q->error);
	req_goto(q, ANSWER);
	peer_call(&op->c->peers[op->hops], &op->call, q);
	return true;
}

static const struct req_ops ask_ops = REQ_OPS("ask", ask_step, ANSWER, ask_names);

void client_ask(struct cop *op, uint32_t number, uint32_t target, uint64_t timeout_ns)
{
	op->hops = target;
	op->call = call_make(op, number, &op->args, &op->res);
	op->call.deadline = op->c->loop->env->clock->now(op->c->loop->env) + timeout_ns;
	cop_start(op, &ask_ops, 0);
}

#define SILENT_BYE_NS \
	(NSEC_PER_SEC / 100) /* short, for a server that did not answer an earlier call */
enum { BYE, BYE_END };
static const char *const bye_names[] = { [BYE] = "bye", [BYE_END] = "end" };

struct goodbyes {
	uint32_t n;
	struct call calls[];
};

/* Ends the session at every server that has a link. A BYE that is lost does no harm. */
static bool bye_step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct client *c = op->c;
	struct goodbyes *g = op->state;

	if (q->state == BYE_END) {
		for (uint32_t i = 0; g && i < g->n; i++)
			call_fini(&g->calls[i]);
		return cop_end(op, g ? 0 : q->error);
	}
	req_goto(q, BYE_END);
	g->n = c->n_peers;
	for (uint32_t i = 0; i < g->n; i++) {
		struct call *call = &g->calls[i];

		if (c->peers[i].state != PEER_UP)
			continue;
		*call = call_make(op, OP_BYE, &op->args, &op->res);
		call->deadline =
			q->loop->now +
			(peer_awaits_cancelled(&c->peers[i]) ? SILENT_BYE_NS : NSEC_PER_SEC);
		peer_call(&c->peers[i], call, q);
	}
	return true;
}

static const struct req_ops bye_ops = REQ_OPS("bye", bye_step, BYE_END, bye_names);

void client_bye(struct cop *op)
{
	op->state = arena_alloc(&op->arena,
				sizeof(struct goodbyes) + op->c->n_peers * sizeof(struct call));
	cop_start(op, &bye_ops, op->state ? 0 : -ENOMEM);
}

void attr_to_stat(const struct wire_attr *a, struct stat *st)
{
	const int64_t t[3] = { a->atime, a->mtime, a->ctime };
	struct timespec *out[3] = { &st->st_atim, &st->st_mtim, &st->st_ctim };

	memset(st, 0, sizeof(*st));
	st->st_ino = a->ino;
	st->st_mode = a->mode;
	st->st_nlink = a->nlink;
	st->st_uid = a->uid;
	st->st_gid = a->gid;
	st->st_rdev = a->rdev;
	st->st_size = (off_t)a->size;
	st->st_blksize = 256 * 1024;
	st->st_blocks = (blkcnt_t)a->blocks;
	for (int i = 0; i < 3; i++) {
		out[i]->tv_sec = (time_t)(t[i] / (int64_t)NSEC_PER_SEC);
		out[i]->tv_nsec = (long)(t[i] % (int64_t)NSEC_PER_SEC);
		if (out[i]->tv_nsec < 0) {
			out[i]->tv_nsec += (long)NSEC_PER_SEC;
			out[i]->tv_sec--;
		}
	}
}
