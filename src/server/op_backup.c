/* OP_BACKUP: a copy of this server's metadata for an administrator, in parts.
 *
 *   BEGIN -> REPLY (id 0, or not complete yet)     BEGIN -> READ -> REPLY
 *
 * A thread makes the copy (meta_copy.c). The client that began it asks for its parts, and repeats
 * that until the copy is complete. There is one copy at a time. It ends with its session, so a
 * client that dies leaves nothing behind. Buffers: a part is in the arena of its request. Errors:
 * -EBUSY while another copy is being made or read. */
#include "server/op_state.h"

enum { BEGIN, REPLY };
static const char *const names[] = { [BEGIN] = "begin", [REPLY] = "reply" };

void backup_cancel(struct server *s)
{
	if (s->backup.copy)
		meta_copy_cancel(s->backup.copy);
}

void backup_end(struct server *s)
{
	meta_copy_end(s->backup.copy);
	s->backup.copy = NULL;
}

/* No request of the session is in service any more. */
void backup_session_ended(struct server *s, uint64_t session)
{
	if (s->backup.copy && s->backup.session == session)
		backup_end(s);
}

static int begin(struct sreq *s)
{
	struct server *srv = s->srv;
	struct env *e = srv->loop->env;
	uint64_t size;
	int r;

	if (srv->backup.readers || (srv->backup.copy && srv->backup.session != s->head.session &&
				    meta_copy_file(srv->backup.copy, &size) == -EAGAIN))
		return -EBUSY;
	backup_end(srv);
	r = meta_copy_start(srv->meta, &srv->backup.copy);
	if (r)
		return r;
	srv->backup.id = env_random_u64(e) | 1;
	srv->backup.session = s->head.session;
	srv->backup.time = (int64_t)e->clock->wall(e);
	log_info("server", "a backup for %s begins", s->link->host);
	return 0;
}

static int read_part(struct sreq *s)
{
	const struct wire_backup_args *a = s->args;
	struct wire_backup_res *r = s->res;
	struct backup_state *st = s->op;
	int fd = meta_copy_file(s->srv->backup.copy, &r->size);

	if (fd < 0)
		return fd;
	if (a->offset > r->size)
		return -EINVAL;
	st->iov.iov_len = MIN(r->size - a->offset, (uint64_t)BACKUP_CHUNK);
	st->iov.iov_base = arena_alloc(&s->arena, MAX(st->iov.iov_len, (size_t)1));
	if (!st->iov.iov_base)
		return -ENOMEM;
	st->io = (struct io){
		.kind = IO_READ, .fd = fd, .iov = &st->iov, .n = 1, .off = a->offset, .q = &s->q
	};
	s->srv->backup.readers++;
	if (st->iov.iov_len)
		io_submit(s->srv->loop, &st->io);
	return 0;
}

static int take(struct sreq *s)
{
	const struct wire_backup_args *a = s->args;
	const struct server *srv = s->srv;

	if (!a->id)
		return begin(s);
	if (!srv->backup.copy || srv->backup.id != a->id)
		return -ESTALE;
	return read_part(s);
}

static void answer(struct sreq *s)
{
	struct server *srv = s->srv;
	struct backup_state *st = s->op;
	struct wire_backup_res *r = s->res;

	if (st->iov.iov_base) {
		srv->backup.readers--;
		if (!s->q.error && st->iov.iov_len && st->io.bytes != st->iov.iov_len)
			s->q.error = -EIO;
		r->data = (struct wire_bytes){ (uint32_t)st->iov.iov_len, st->iov.iov_base };
	}
	r->id = srv->backup.id;
	r->time = srv->backup.time;
	r->target = srv->target;
	r->partition = meta_partition(srv->meta);
	r->schema = meta_schema();
	memcpy(r->fs_id, srv->conf->fs_id.b, sizeof(r->fs_id));
}

static bool step(struct req *q)
{
	struct sreq *s = sreq_of(q);

	if (q->state == BEGIN) {
		req_goto(q, REPLY);
		req_fail(q, take(s));
		return true;
	}
	answer(s);
	return sreq_reply(s);
}

const struct req_ops backup_ops = REQ_OPS("backup", step, REPLY, names);
