/* Directed scenarios: the gateway's RPC layer. Records of NFS clients go through the simulated
 * network to gateways, which run as they are (src/nfs) over simulated servers.
 *
 * Clients send calls twice, over two connections, late and again after a broken connection, to
 * whichever gateway has the address. Each call that changes names succeeds, since it is executed
 * once: a name that is made did not exist, one that is removed or renamed did. What is made has the
 * attributes of its call. Data that a COMMIT with the verifier of their WRITEs has covered are
 * there; else the client writes them again. */
#include <stdio.h>
#include <stdlib.h>

#include "nfs/nfs_priv.h"
#include "sim_priv.h"
#include "sim_scenario.h"

#define GATEWAYS 2
#define CARETAKER GATEWAYS /* a client of Sheaf, which makes the directories */
#define CALLERS 3 /* NFS clients */
#define LANES 2 /* calls that one client has in progress at most */
#define CONNS 2 /* connections of a client */
#define FILES 2 /* names of files of a lane */
#define DIRECTORY FILES /* one more name */
#define NAMES (FILES + 1)
#define PHASES 5 /* each has a fault */
#define CALLS 30 /* of each lane in a phase */
#define BLOCK 700
#define BLOCKS 40 /* of a file */
#define RECORD 4096
#define PATIENCE_NS (3 * NSEC_PER_SEC) /* then a client sends its call again */

struct scene;

/* A gateway's process. */
struct front {
	struct scene *s;
	uint32_t id;
	bool is_alive;
	struct gateway g;
	struct loop loop;
	struct nfs_source listeners[CALLERS];
};

struct conn {
	struct caller *k;
	struct source on;
	bool is_open;
	bool is_deaf; /* it reads nothing */
	struct wire_bytes unsent; /* of out */
	uint8_t out[8 * RECORD], in[RECORD];
	size_t n_in;
};

struct file {
	bool there;
	struct nfs_handle3 {
		uint32_t len;
		uint8_t bytes[NFS3_HANDLE_MAX];
	} h;
	uint32_t tag, mode;
	uint32_t n, synced; /* blocks written, and covered by a COMMIT */
	uint8_t verifier[8]; /* of those in between */
};

enum kind { MOUNT, MAKE, EXCLUDE, REMOVE, MOVE, CHMOD, LOOK, WRITE, COMMIT, READ };

/* A call, and the names that only this lane uses. */
struct lane {
	struct caller *k;
	uint32_t id, left, xid, tries;
	bool is_busy;
	const enum kind *script; /* its next calls, of its first file; NULL: it chooses */
	enum kind kind;
	uint32_t from, to, mode, block;
	bool may_fail; /* with EIO */
	uint32_t status; /* of the last answer */
	uint64_t sent_at;
	uint8_t record[RECORD];
	size_t len;
	struct file files[NAMES];
};

struct caller {
	struct scene *s;
	uint32_t id;
	struct nfs_handle3 dir;
	struct conn conns[CONNS];
	struct lane lanes[LANES];
};

struct scene {
	struct world *w;
	struct sim_node *node; /* of all NFS clients */
	struct loop loop;
	struct front *fronts[GATEWAYS];
	uint32_t gateway; /* which one has the address */
	uint32_t xid;
	uint64_t until; /* of pass() */
	struct caller callers[CALLERS];
	uint64_t n_again, n_replayed, n_rewritten;
};

/* ---- gateways ---- */

static void listener_ready(struct nfs_source *on, unsigned events)
{
	struct front *f = container_of(on->g, struct front, g);
	struct origin from = { .addr = { [10] = 0xff, 0xff, 10, 0, 0, 1 } }, to = from;
	struct env *e = f->loop.env;
	int fd;

	(void)events;
	to.addr[15] = 100; /* the address that gateways pass on */
	from.addr[15] = (uint8_t)(1 + (on - f->listeners));
	while ((fd = e->sock->accept(e, on->fd)) >= 0)
		stream_start(&f->g, fd, &from, &to, 700);
}

static void listen_all(struct front *f)
{
	char address[CONF_ADDR_MAX], err[256];
	struct env *e = f->loop.env;

	for (int i = 0; i < CALLERS; i++) {
		int fd;

		snprintf(address, sizeof(address), "c%u:%d", f->id, 2049 + i);
		fd = e->sock->listen(e, address, err, sizeof(err));
		if (fd < 0 || source_add(&f->g, &f->listeners[i], fd, EV_IN, listener_ready))
			abort();
	}
}

static void no_teardown(void *owner)
{
	(void)owner;
}

static struct conf *exports(void)
{
	struct conf *c = calloc(1, sizeof(*c));

	c->n_exports = 1;
	c->exports = calloc(1, sizeof(*c->exports));
	snprintf(c->exports->name, sizeof(c->exports->name), "all");
	snprintf(c->exports->path, sizeof(c->exports->path), "/");
	c->exports->squash = SQUASH_NONE;
	return c;
}

static void front_start(struct scene *s, uint32_t i)
{
	static const uint8_t key[MAC_BYTES] = { 7 };
	struct actor *a = &s->w->actors[i];
	struct front *f = calloc(1, sizeof(*f));
	struct sheaf_backing b = { .loop = &a->loop, .teardown = no_teardown, .is_turned = true };

	free(s->fronts[i]); /* a dead one */
	s->fronts[i] = f;
	scene_revive(s->w, i);
	b.client = a->client;
	*f = (struct front){ .s = s, .id = i, .is_alive = true };
	f->g.loop = &f->loop;
	f->g.port = 2049;
	f->g.fsid = 5;
	f->g.handle_key = mac_key(key);
	f->g.memory_max = 8 * RECORD_MAX;
	if (loop_init(&f->loop, &a->node->env) || sheaf_wrap(&b, &f->g.fs) ||
	    gateway_use(&f->g, exports()) || gateway_init(&f->g, -1))
		abort();
	listen_all(f);
}

static void front_turn(struct front *f)
{
	struct gateway *g = &f->g;

	if (f->is_alive &&
	    (nfs_tasks_are_ready(g) || !list_empty(&g->unsent) || !list_empty(&g->paused) ||
	     !list_empty(&g->dead_conns) || gateway_now(g) - g->swept > NSEC_PER_SEC))
		gateway_turn(g);
}

/* As in a crash, most of its memory is not freed. */
static void front_die(struct scene *s, uint32_t i)
{
	struct front *f = s->fronts[i];

	if (!f->is_alive)
		return;
	f->is_alive = false;
	s->n_replayed += f->g.n_replayed;
	scene_die(s->w, i);
	loop_fini(&f->loop);
	nfs_tasks_free(&f->g);
}

static void end_sessions(void *arg)
{
	nfs_sessions_end(arg);
}

static bool front_is_idle(void *arg)
{
	struct front *f = arg;

	front_turn(f);
	return f->g.n_tasks == f->g.n_idle || f->s->w->failed;
}

static void front_end(struct front *f)
{
	struct world *w = f->s->w;

	if (!f->is_alive)
		return;
	if (w->failed) {
		loop_fini(&f->loop);
		return;
	}
	f->s->n_replayed += f->g.n_replayed;
	scene_until(w, front_is_idle, f, "calls of a gateway do not end");
	nfs_files_close(&f->g);
	scene_until(w, front_is_idle, f, "files of a gateway are not closed");
	nfs_task_start(&f->g, end_sessions, &f->g);
	scene_until(w, front_is_idle, f, "sessions of a gateway do not end");
	streams_end(&f->g);
	for (int i = 0; i < CALLERS; i++)
		source_close(&f->listeners[i]);
	nfs_files_end(&f->g);
	replay_end(&f->g);
	clients_end(&f->g);
	nfs_tasks_free(&f->g);
	memory_end(&f->g);
	conf_give(f->g.conf_now);
	mac_key_free(f->g.handle_key);
	loop_fini(&f->loop);
	f->is_alive = false;
}

/* ---- connections of clients ---- */

static void lane_answered(struct caller *k, const uint8_t *p, size_t n);

static struct env *env_of(const struct conn *c)
{
	return &c->k->s->node->env;
}

static void conn_close(struct conn *c)
{
	struct env *e = env_of(c);

	if (!c->is_open)
		return;
	c->is_open = false;
	e->sock->watch(e, &c->k->s->loop, &c->on, 0);
	e->sock->close(e, c->on.fd);
}

static void conn_want(struct conn *c)
{
	struct env *e = env_of(c);

	if (c->is_open)
		e->sock->watch(e, &c->k->s->loop, &c->on,
			       (c->is_deaf ? 0 : EV_IN) | (c->unsent.len ? EV_OUT : 0));
}

static void conn_flush(struct conn *c)
{
	struct env *e = env_of(c);

	while (c->is_open && c->unsent.len) {
		struct iovec iov = { (void *)(uintptr_t)c->unsent.p, c->unsent.len };
		ssize_t n = e->sock->writev(e, c->on.fd, &iov, 1);

		if (n == -EAGAIN)
			break;
		if (n < 0) {
			conn_close(c);
			return;
		}
		c->unsent.p += n;
		c->unsent.len -= (uint32_t)n;
	}
	conn_want(c);
}

/* Whole records; replies of the gateway have one fragment. */
static void conn_parse(struct conn *c)
{
	uint32_t mark;

	while (c->n_in >= sizeof(mark)) {
		size_t len;

		memcpy(&mark, c->in, sizeof(mark));
		len = ntohl(mark) & ~(uint32_t)RPC_FRAGMENT_LAST;
		if (len > sizeof(c->in) - sizeof(mark)) {
			world_fail(c->k->s->w, 0, "a reply of %zu bytes", len);
			conn_close(c);
			return;
		}
		if (c->n_in < sizeof(mark) + len)
			return;
		lane_answered(c->k, c->in + sizeof(mark), len);
		c->n_in -= sizeof(mark) + len;
		memmove(c->in, c->in + sizeof(mark) + len, c->n_in);
	}
}

static void conn_ready(struct source *on, unsigned events)
{
	struct conn *c = container_of(on, struct conn, on);
	struct iovec iov = { c->in + c->n_in, sizeof(c->in) - c->n_in };
	struct env *e = env_of(c);
	ssize_t n;

	conn_flush(c);
	if (!c->is_open || c->is_deaf || !(events & (EV_IN | EV_ERR)))
		return;
	n = e->sock->readv(e, c->on.fd, &iov, 1);
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		conn_close(c);
		return;
	}
	c->n_in += (size_t)n;
	conn_parse(c);
}

static void conn_dial(struct conn *c)
{
	struct scene *s = c->k->s;
	struct env *e = env_of(c);
	char address[CONF_ADDR_MAX];
	int fd;

	snprintf(address, sizeof(address), "c%u:%u", s->gateway, 2049 + c->k->id);
	fd = e->sock->connect(e, address);
	if (fd < 0)
		return;
	c->on = (struct source){ .fd = fd, .ready = conn_ready };
	c->is_open = true;
	c->n_in = 0;
	c->unsent = (struct wire_bytes){ 0, c->out };
	e->sock->watch(e, &s->loop, &c->on, EV_IN | EV_OUT);
}

/* In one to three fragments. */
static void conn_send(struct conn *c, const uint8_t *p, size_t n)
{
	struct sim *sim = &c->k->s->w->sim;
	size_t room = sizeof(c->out);

	if (!c->is_open)
		conn_dial(c);
	if (!c->is_open)
		return;
	memmove(c->out, c->unsent.p, c->unsent.len);
	c->unsent.p = c->out;
	room -= c->unsent.len;
	if (room < n + 16)
		return; /* it is lost, and sent again */
	while (n > 0) {
		size_t part = sim_below(sim, 4) ? n : 1 + sim_below(sim, n);
		uint32_t mark = htonl((uint32_t)part | (part == n ? RPC_FRAGMENT_LAST : 0));

		memcpy(c->out + c->unsent.len, &mark, sizeof(mark));
		memcpy(c->out + c->unsent.len + sizeof(mark), p, part);
		c->unsent.len += (uint32_t)(sizeof(mark) + part);
		p += part;
		n -= part;
		if (sizeof(c->out) - c->unsent.len < n + sizeof(mark)) {
			conn_close(c); /* in the middle of a record */
			return;
		}
	}
	conn_flush(c);
}

/* ---- calls ---- */

static struct wire_bytes bytes_of(const struct nfs_handle3 *h)
{
	return (struct wire_bytes){ h->len, h->bytes };
}

static void handle_keep(struct nfs_handle3 *h, const struct wire_bytes *b)
{
	h->len = MIN(b->len, (uint32_t)NFS3_HANDLE_MAX);
	memcpy(h->bytes, b->p, h->len);
}

static void encode(struct lane *l, uint32_t program, uint32_t version, uint32_t procedure,
		   xdr_any args, void *a)
{
	uint8_t body[64];
	struct wire_auth_sys sys = { .machine = wire_text("sim") };
	struct wire_rpc_call call = { .xid = l->xid,
				      .kind = RPC_CALL,
				      .rpc_version = RPC_VERSION,
				      .program = program,
				      .version = version,
				      .procedure = procedure };
	struct xdr x;

	xdr_encoder(&x, body, sizeof(body));
	if (!xdr_wire_auth_sys(&x, &sys))
		abort();
	call.credential.flavor = AUTH_SYS;
	call.credential.body = (struct wire_bytes){ (uint32_t)xdr_used(&x), body };
	xdr_encoder(&x, l->record, sizeof(l->record));
	if (!xdr_wire_rpc_call(&x, &call) || !args(&x, a))
		abort();
	l->len = xdr_used(&x);
}
#define ENCODE3(l, procedure, args, a) \
	encode(l, NFS3_PROGRAM, NFS3_VERSION, procedure, XDR_ANY(xdr_wire_##args), a)

static void name_of(const struct lane *l, uint32_t i, char out[8])
{
	snprintf(out, 8, "%u-%u", l->id, i);
}

static struct wire_place3 place_of(const struct lane *l, char name[8])
{
	return (struct wire_place3){ bytes_of(&l->k->dir), wire_text(name) };
}

static void fill(uint8_t *p, uint32_t tag, uint32_t block)
{
	for (uint32_t i = 0; i < BLOCK; i++)
		p[i] = (uint8_t)(1 + (tag * 31 + block * 7 + i) % 251);
}

static void encode_make(struct lane *l, const struct wire_place3 *at)
{
	uint32_t uid = l->xid;
	struct wire_create3_args a = { .where = *at };
	struct wire_mkdir3_args d = { .where = *at };

	a.how.mode = l->kind == EXCLUDE ? CREATE3_EXCLUSIVE : CREATE3_GUARDED;
	if (l->kind == EXCLUDE) {
		memcpy(a.how.verifier, &l->xid, sizeof(l->xid));
	} else {
		a.how.guarded.mode = d.attributes.mode = &l->mode;
		a.how.guarded.uid = d.attributes.uid = &uid;
	}
	if (l->from == DIRECTORY)
		ENCODE3(l, NFS3_MKDIR, mkdir3_args, &d);
	else
		ENCODE3(l, NFS3_CREATE, create3_args, &a);
}

static void encode_data(struct lane *l, const struct file *f)
{
	uint8_t block[BLOCK];
	struct wire_write3_args w = { .file = bytes_of(&f->h),
				      .offset = (uint64_t)l->block * BLOCK,
				      .count = BLOCK,
				      .data = { BLOCK, block } };
	struct wire_commit3_args c = { .file = bytes_of(&f->h) };
	struct wire_read3_args r = { bytes_of(&f->h), (uint64_t)l->block * BLOCK, BLOCK };

	fill(block, f->tag, l->block);
	if (l->kind == WRITE)
		ENCODE3(l, NFS3_WRITE, write3_args, &w);
	else if (l->kind == COMMIT)
		ENCODE3(l, NFS3_COMMIT, commit3_args, &c);
	else
		ENCODE3(l, NFS3_READ, read3_args, &r);
}

static void encode_call(struct lane *l)
{
	char from[8], to[8], path[32];
	struct file *f = &l->files[l->from];
	struct wire_place3 at;
	struct wire_rename3_args move;
	struct wire_remove3_args remove;
	struct wire_lookup3_args look;
	struct wire_setattr3_args set = { .object = bytes_of(&f->h), .attributes.mode = &l->mode };
	struct wire_mount_path mount;

	name_of(l, l->from, from);
	name_of(l, l->to, to);
	at = place_of(l, from);
	move = (struct wire_rename3_args){ at, place_of(l, to) };
	remove.what = at;
	look.what = at;
	snprintf(path, sizeof(path), "/all/n%u", l->k->id);
	mount.path = wire_text(path);
	switch (l->kind) {
	case MOUNT:
		encode(l, MOUNT_PROGRAM, MOUNT_VERSION, MOUNT_MNT, XDR_ANY(xdr_wire_mount_path),
		       &mount);
		break;
	case MAKE:
	case EXCLUDE:
		encode_make(l, &at);
		break;
	case REMOVE:
		ENCODE3(l, l->from == DIRECTORY ? NFS3_RMDIR : NFS3_REMOVE, remove3_args, &remove);
		break;
	case MOVE:
		ENCODE3(l, NFS3_RENAME, rename3_args, &move);
		break;
	case CHMOD:
		ENCODE3(l, NFS3_SETATTR, setattr3_args, &set);
		break;
	case LOOK:
		ENCODE3(l, NFS3_LOOKUP, lookup3_args, &look);
		break;
	default:
		encode_data(l, f);
	}
}

static enum kind choose_for_file(struct lane *l, const struct file *f)
{
	switch (sim_below(&l->k->s->w->sim, 12)) {
	case 0:
		return REMOVE;
	case 1:
		return l->files[l->to].there ? LOOK : MOVE;
	case 2:
		return CHMOD;
	case 3:
		return LOOK;
	case 4:
	case 5:
		return f->synced < f->n ? COMMIT : LOOK;
	case 6:
	case 7:
		return f->synced ? READ : LOOK;
	default:
		return f->n < BLOCKS ? WRITE : COMMIT;
	}
}

static void choose(struct lane *l)
{
	struct sim *sim = &l->k->s->w->sim;
	struct file *f;

	l->xid = ++l->k->s->xid;
	l->tries = 0;
	l->from = (uint32_t)sim_below(sim, NAMES);
	l->to = 1 - l->from % FILES;
	l->mode = 0600 + (uint32_t)sim_below(sim, 64);
	f = &l->files[l->from];
	if (l->script) {
		l->from = 0;
		f = &l->files[0];
		l->kind = *l->script++;
	} else if (!l->k->dir.len)
		l->kind = MOUNT;
	else if (!f->there)
		l->kind = l->from != DIRECTORY && sim_below(sim, 3) == 0 ? EXCLUDE : MAKE;
	else if (l->from == DIRECTORY)
		l->kind = sim_below(sim, 2) ? REMOVE : LOOK;
	else
		l->kind = choose_for_file(l, f);
	l->block = l->kind == READ ? (uint32_t)sim_below(sim, f->synced) : f->n;
	l->is_busy = true;
	encode_call(l);
}

/* Sends the call, now and then twice: over both connections, or over one. */
static void transmit(struct lane *l)
{
	struct sim *sim = &l->k->s->w->sim;
	uint32_t i = (uint32_t)sim_below(sim, CONNS);

	l->sent_at = sim->now;
	conn_send(&l->k->conns[i], l->record, l->len);
	if (sim_below(sim, 4) == 0)
		conn_send(&l->k->conns[sim_below(sim, CONNS)], l->record, l->len);
}

/* ---- answers ---- */

static void check_made(struct lane *l, const struct wire_create3_res *r)
{
	struct world *w = l->k->s->w;
	struct file *f = &l->files[l->from];
	const struct wire_attr3 *a = r->created.attributes;

	scene_check(w, a && r->created.object, "a CREATE without handle or attributes");
	if (w->failed)
		return;
	*f = (struct file){ .there = true, .tag = l->xid };
	handle_keep(&f->h, &r->created.object->object);
	f->mode = a->mode;
	scene_check(w, l->kind == EXCLUDE || (a->uid == l->xid && a->mode == l->mode),
		    "call %u made uid %u, mode %o", l->xid, a->uid, a->mode);
}

static void check_look(struct lane *l, const struct wire_lookup3_res *r)
{
	struct world *w = l->k->s->w;
	struct file *f = &l->files[l->from];
	const struct wire_attr3 *a = r->found.attributes;

	scene_check(w,
		    r->found.object.len == f->h.len &&
			    memcmp(r->found.object.p, f->h.bytes, f->h.len) == 0,
		    "call %u finds another file", l->xid);
	scene_check(w, a && a->mode == f->mode, "call %u finds mode %o instead of %o", l->xid,
		    a ? a->mode : 0, f->mode);
	scene_check(w, !a || l->from == DIRECTORY || a->size >= (uint64_t)f->synced * BLOCK,
		    "call %u finds a file of %llu bytes", l->xid,
		    (unsigned long long)(a ? a->size : 0));
}

static void written(struct lane *l, const uint8_t verifier[8])
{
	struct file *f = &l->files[l->from];

	if (f->n == f->synced)
		memcpy(f->verifier, verifier, 8);
	if (memcmp(f->verifier, verifier, 8) == 0) {
		f->n++;
		return;
	}
	l->k->s->n_rewritten++;
	f->n = f->synced; /* earlier ones may be lost */
}

static void committed(struct lane *l, const uint8_t verifier[8])
{
	struct file *f = &l->files[l->from];

	if (memcmp(f->verifier, verifier, 8) == 0) {
		f->synced = f->n;
		return;
	}
	l->k->s->n_rewritten += f->n > f->synced;
	f->n = f->synced;
}

static void check_read(struct lane *l, const struct xdr *x, const struct wire_read3_res *r)
{
	uint8_t want[BLOCK];

	fill(want, l->files[l->from].tag, l->block);
	scene_check(l->k->s->w,
		    r->read.count == BLOCK && x->p + BLOCK <= x->end &&
			    memcmp(x->p, want, BLOCK) == 0,
		    "call %u reads other data than were committed: block %u", l->xid, l->block);
}

/* Decodes a result that succeeded, and changes the model. */
static bool apply(struct lane *l, struct xdr *x)
{
	struct file *f = &l->files[l->from];
	union {
		struct wire_mount_result mount;
		struct wire_create3_res made;
		struct wire_lookup3_res found;
		struct wire_write3_res written;
		struct wire_commit3_res committed;
		struct wire_read3_res read;
	} r;

	memset(&r, 0, sizeof(r));
	switch (l->kind) {
	case MOUNT:
		if (!xdr_wire_mount_result(x, &r.mount))
			return false;
		handle_keep(&l->k->dir, &r.mount.root.handle);
		return true;
	case MAKE:
	case EXCLUDE:
		if (!xdr_wire_create3_res(x, &r.made))
			return false;
		check_made(l, &r.made);
		return true;
	case LOOK:
		if (!xdr_wire_lookup3_res(x, &r.found))
			return false;
		check_look(l, &r.found);
		return true;
	case WRITE:
		if (!xdr_wire_write3_res(x, &r.written))
			return false;
		written(l, r.written.written.verifier);
		return true;
	case COMMIT:
		if (!xdr_wire_commit3_res(x, &r.committed))
			return false;
		committed(l, r.committed.committed.verifier);
		return true;
	case READ:
		if (!xdr_wire_read3_res(x, &r.read))
			return false;
		check_read(l, x, &r.read);
		return true;
	case MOVE:
		l->files[l->to] = *f;
		f->there = false;
		return true;
	case REMOVE:
		f->there = false;
		return true;
	case CHMOD:
		f->mode = l->mode;
		return true;
	}
	return false;
}

static struct lane *lane_of(struct caller *k, uint32_t xid)
{
	for (int i = 0; i < LANES; i++)
		if (k->lanes[i].is_busy && k->lanes[i].xid == xid)
			return &k->lanes[i];
	return NULL;
}

/* JUKEBOX of a call that changes no name: it is made again, as another one. */
static bool may_try_again(const struct lane *l)
{
	return l->kind == MOUNT || l->kind >= LOOK;
}

static void lane_answered(struct caller *k, const uint8_t *p, size_t n)
{
	struct world *w = k->s->w;
	struct wire_rpc_reply reply;
	struct arena arena;
	struct lane *l;
	uint32_t status;
	struct xdr x;

	arena_init(&arena, 0);
	xdr_decoder(&x, p, n, &arena);
	if (!xdr_wire_rpc_reply(&x, &reply) || reply.answer.code != RPC_ACCEPTED ||
	    reply.answer.accepted.result.code != RPC_SUCCESS || x.end - x.p < 4) {
		world_fail(w, 0, "a call is refused");
		arena_destroy(&arena);
		return;
	}
	l = lane_of(k, reply.xid);
	memcpy(&status, x.p, sizeof(status));
	status = ntohl(status);
	if (l) { /* else it was answered before */
		l->is_busy = false;
		l->status = status;
		if (l->may_fail && status == NFS3_EIO)
			;
		else if (status == NFS3_EJUKEBOX && may_try_again(l))
			l->left++;
		else if (status)
			world_fail(w, 0, "call %u (kind %d of %u-%u): status %u", l->xid, l->kind,
				   l->id, l->from, status);
		else
			scene_check(w, apply(l, &x), "call %u has no result", l->xid);
	}
	arena_destroy(&arena);
}

/* ---- running ---- */

static void lane_step(struct lane *l)
{
	struct scene *s = l->k->s;

	if (!l->is_busy && !l->left)
		return;
	if (!l->is_busy) {
		l->left--;
		choose(l);
		transmit(l);
	} else if (s->w->sim.now - l->sent_at > PATIENCE_NS) {
		s->n_again++;
		if (++l->tries % 2 == 0)
			for (int i = 0; i < CONNS; i++)
				conn_close(&l->k->conns[i]);
		transmit(l);
	}
}

/* One step of all; true: the calls of this phase are done. */
static bool go_on(void *arg)
{
	struct scene *s = arg;
	bool done = true;

	for (uint32_t i = 0; i < GATEWAYS; i++)
		front_turn(s->fronts[i]);
	for (uint32_t i = 0; i < CALLERS && !s->w->failed; i++)
		for (uint32_t n = 0; n < LANES; n++) {
			lane_step(&s->callers[i].lanes[n]);
			done &= !s->callers[i].lanes[n].is_busy && !s->callers[i].lanes[n].left;
		}
	return done || s->w->failed;
}

static bool has_passed(void *arg)
{
	struct scene *s = arg;

	go_on(s);
	return s->w->sim.now >= s->until || s->w->failed;
}

/* A timer, so that the clock does not stop or jump. */
static void nothing(void *arg)
{
	(void)arg;
}

static void pass(struct scene *s, uint64_t ns)
{
	s->until = s->w->sim.now + ns;
	sim_after(&s->w->sim, ns, nothing, NULL);
	scene_until(s->w, has_passed, s, "time does not pass");
}

/* ---- faults ---- */

/* The address moves: connections to the old gateway break. */
static void move_address(struct scene *s, uint32_t to)
{
	struct world *w = s->w;

	for (uint32_t i = 0; i < GATEWAYS; i++)
		sim_cut(&w->sim, s->node, w->actors[i].node);
	s->gateway = to;
}

static void gateway_dies(struct scene *s)
{
	uint32_t old = s->gateway, next = sim_below(&s->w->sim, 2) ? old : 1 - old;

	front_die(s, old);
	pass(s, sim_below(&s->w->sim, NSEC_PER_SEC));
	if (!s->fronts[next]->is_alive)
		front_start(s, next);
	move_address(s, next);
	if (!s->fronts[old]->is_alive)
		front_start(s, old);
}

/* Everything that clients sent is late, and they have sent it again meanwhile. */
static void clients_are_held(struct scene *s)
{
	struct sim_node *gateway = s->w->actors[s->gateway].node;

	scene_hold(s->w, s->node, gateway, true);
	pass(s, sim_below(&s->w->sim, 4 * NSEC_PER_SEC));
	scene_hold(s->w, s->node, gateway, false);
}

static void connections_break(struct scene *s)
{
	for (int i = 0; i < 8; i++) {
		sim_cut(&s->w->sim, s->node, s->w->actors[s->gateway].node);
		pass(s, sim_below(&s->w->sim, 4 * NSEC_PER_MSEC));
	}
}

static void server_dies(struct scene *s)
{
	for (int i = 0; i < 3; i++) {
		uint32_t target = (uint32_t)sim_below(&s->w->sim, 2);

		scene_down(s->w, target, sim_below(&s->w->sim, 4));
		pass(s, sim_below(&s->w->sim, NSEC_PER_SEC));
		scene_up(s->w, target);
		pass(s, sim_below(&s->w->sim, 100 * NSEC_PER_MSEC));
	}
}

/* The gateway goes on when another one has its address: what it still sends does no harm. */
static void gateway_is_cut_off(struct scene *s)
{
	uint32_t old = s->gateway;

	for (uint32_t t = 0; t < 2; t++)
		scene_apart(s->w, s->w->actors[old].node, s->w->targets[t].node, true);
	pass(s, sim_below(&s->w->sim, NSEC_PER_SEC));
	move_address(s, 1 - old);
	pass(s, NSEC_PER_SEC);
	for (uint32_t t = 0; t < 2; t++)
		scene_apart(s->w, s->w->actors[old].node, s->w->targets[t].node, false);
}

/* ---- scenarios ---- */

static struct scene *scene_new(struct world *w)
{
	struct scene *s = calloc(1, sizeof(*s));
	char dir[8];

	s->w = w;
	s->node = sim_node_add(&w->sim, "nfs");
	if (loop_init(&s->loop, &s->node->env))
		abort();
	for (uint32_t i = 0; i < CALLERS; i++) {
		struct caller *k = &s->callers[i];

		*k = (struct caller){ .s = s, .id = i };
		for (uint32_t n = 0; n < LANES; n++)
			k->lanes[n].k = k, k->lanes[n].id = n;
		for (int n = 0; n < CONNS; n++)
			k->conns[n].k = k;
		snprintf(dir, sizeof(dir), "n%u", i);
		scene_mkdir(w, CARETAKER, dir);
	}
	for (uint32_t i = 0; i < GATEWAYS; i++)
		front_start(s, i);
	return s;
}

static void scene_free(struct scene *s)
{
	for (uint32_t i = 0; i < CALLERS; i++)
		for (int n = 0; n < CONNS; n++)
			conn_close(&s->callers[i].conns[n]);
	for (uint32_t i = 0; i < GATEWAYS; i++)
		front_end(s->fronts[i]);
	loop_fini(&s->loop);
	for (uint32_t i = 0; i < GATEWAYS; i++)
		free(s->fronts[i]);
}

static void run(struct world *w, void (*const faults[])(struct scene *s), size_t n_faults)
{
	struct scene *s = scene_new(w);

	for (uint32_t p = 0; p < PHASES && !w->failed; p++) {
		for (uint32_t i = 0; i < CALLERS; i++)
			for (uint32_t n = 0; n < LANES; n++)
				s->callers[i].lanes[n].left = CALLS;
		pass(s, sim_below(&w->sim, 40 * NSEC_PER_MSEC));
		if (!w->failed)
			faults[sim_below(&w->sim, n_faults)](s);
		scene_until(w, go_on, s, "the calls do not end");
	}
	scene_free(s);
	if (!w->failed && s->n_again + s->n_replayed > PHASES)
		scene_met(w);
	free(s);
}

static void calls_come_twice(struct world *w)
{
	static void (*const faults[])(struct scene * s) = { clients_are_held, connections_break };

	run(w, faults, ARRAY_LEN(faults));
}

static void gateways_die(struct world *w)
{
	static void (*const faults[])(struct scene * s) = { gateway_dies, gateway_is_cut_off,
							    connections_break };

	run(w, faults, ARRAY_LEN(faults));
}

static void servers_die(struct world *w)
{
	static void (*const faults[])(struct scene * s) = { server_dies, clients_are_held };

	run(w, faults, ARRAY_LEN(faults));
}

static void servers_and_gateways_die(struct world *w)
{
	static void (*const faults[])(struct scene * s) = { server_dies, gateway_dies };

	run(w, faults, ARRAY_LEN(faults));
}

static void perform(struct scene *s, uint32_t lane, const enum kind *script, uint32_t n)
{
	s->callers[0].lanes[lane].script = script;
	s->callers[0].lanes[lane].left = n;
}

/* A COMMIT and a WRITE at once: the servers know how far the file reaches, and lose what the COMMIT
 * has not covered. The client learns it from a COMMIT, or from a WRITE behind the loss, and writes
 * again. */
static void writes_are_lost(struct world *w)
{
	static const enum kind begin[] = { MOUNT, MAKE }, write[] = { WRITE };
	static const enum kind after[2][6] = { { COMMIT, WRITE, WRITE, WRITE, COMMIT, READ },
					       { WRITE, WRITE, COMMIT, WRITE, COMMIT, READ } };
	struct scene *s = scene_new(w);
	struct file *f = &s->callers[0].lanes[0].files[0], *g = &s->callers[0].lanes[1].files[0];

	perform(s, 0, begin, ARRAY_LEN(begin));
	scene_until(w, go_on, s, "no file is made");
	for (int round = 0; round < 8 && !w->failed; round++) {
		perform(s, 0, write, 1);
		scene_until(w, go_on, s, "a WRITE does not end");
		*g = *f;
		g->synced = g->n;
		perform(s, 0, after[0], 1);
		perform(s, 1, write, 1);
		scene_until(w, go_on, s, "a COMMIT does not end");
		f->n = g->n;
		memcpy(f->verifier, g->verifier, sizeof(f->verifier));
		for (uint32_t t = 0; t < 2 && !w->failed; t++) {
			scene_down(w, t, true);
			scene_up(w, t);
		}
		perform(s, 0, after[round % 2], ARRAY_LEN(after[0]));
		scene_until(w, go_on, s, "the calls after the loss do not end");
		scene_check(w, f->synced == f->n && f->n > (uint32_t)round,
			    "%u of %u blocks are committed", f->synced, f->n);
	}
	if (!w->failed && s->n_rewritten)
		scene_met(w);
	scene_free(s);
	free(s);
}

/* WRITEs of two lanes, and a COMMIT of the first: the servers know how far the file reaches, and
 * lose what the COMMIT has not covered. */
static void lose(struct scene *s)
{
	static const enum kind write[] = { WRITE }, commit[] = { COMMIT };
	struct file *f = &s->callers[0].lanes[0].files[0], *g = &s->callers[0].lanes[1].files[0];

	perform(s, 0, write, 1);
	scene_until(s->w, go_on, s, "a WRITE does not end");
	*g = *f;
	g->synced = g->n;
	perform(s, 0, commit, 1);
	perform(s, 1, write, 1);
	scene_until(s->w, go_on, s, "a COMMIT does not end");
	f->n = f->synced = g->n;
	for (uint32_t t = 0; t < 2 && !s->w->failed; t++) {
		scene_down(s->w, t, true);
		scene_up(s->w, t);
	}
}

/* A client that does not write the lost data again appends now and then, longer apart than its file
 * is kept open. Such a WRITE may have a verifier that no COMMIT has for a while, then it fails. */
static void lost_for_good_is_an_error(struct world *w)
{
	static const enum kind begin[] = { MOUNT, MAKE }, append[] = { WRITE, COMMIT };
	struct scene *s = scene_new(w);
	struct lane *l = &s->callers[0].lanes[0];
	struct file *f = &l->files[0];
	uint32_t n = 0;

	perform(s, 0, begin, ARRAY_LEN(begin));
	scene_until(w, go_on, s, "no file is made");
	for (int i = 0; i < 8 && !w->failed; i++)
		lose(s);
	l->may_fail = true;
	for (n = 0; n < 12 && !w->failed; n++) {
		f->synced = f->n = BLOCKS; /* the same append, once more */
		perform(s, 0, append, 1);
		scene_until(w, go_on, s, "a WRITE does not end");
		if (l->status == NFS3_EIO || f->verifier[7] < 0x80)
			break;
		perform(s, 0, append + 1, 1);
		scene_until(w, go_on, s, "a COMMIT does not end");
		pass(s, 5 * NSEC_PER_SEC);
	}
	scene_check(w, n < 12, "a WRITE behind data that are lost for good never fails");
	if (!w->failed && n && l->status == NFS3_EIO)
		scene_met(w);
	scene_free(s);
	free(s);
}

static bool is_full(void *arg)
{
	struct scene *s = arg;

	go_on(s);
	return !memory_has_room(&s->fronts[s->gateway]->g);
}

/* A client sends READs and reads no reply: the replies fill the memory of the gateway, which ends
 * the connection after a minute. Then the calls of other clients go on. */
static void a_client_reads_nothing(struct world *w)
{
	static const enum kind begin[] = { MOUNT, MAKE, WRITE, COMMIT };
	static const enum kind after[] = { READ, WRITE, COMMIT, READ };
	struct scene *s = scene_new(w);
	struct lane *l = &s->callers[1].lanes[0];
	struct conn *deaf = &s->callers[1].conns[0];
	size_t buffer_min = w->sim.faults.buffer_min, buffer_max = w->sim.faults.buffer_max;

	s->fronts[s->gateway]->g.memory_max = 2 * (RECORD_MAX + 16 * REPLY_SMALL);
	perform(s, 0, begin, ARRAY_LEN(begin));
	scene_until(w, go_on, s, "no file is made");
	l->files[0] = s->callers[0].lanes[0].files[0];
	l->kind = READ;
	deaf->is_deaf = true;
	w->sim.faults.buffer_min = w->sim.faults.buffer_max = 2048;
	for (int i = 0; i < 40 && !w->failed; i++) {
		l->xid = ++s->xid;
		encode_data(l, &l->files[0]);
		conn_send(deaf, l->record, l->len);
		pass(s, 2 * NSEC_PER_MSEC);
		if (i == 0) {
			w->sim.faults.buffer_min = buffer_min;
			w->sim.faults.buffer_max = buffer_max;
		}
	}
	scene_until(w, is_full, s, "the replies do not fill the memory");
	perform(s, 0, after, ARRAY_LEN(after));
	scene_until(w, go_on, s, "a client that reads nothing holds up the others");
	if (!w->failed)
		scene_met(w);
	scene_free(s);
	free(s);
}

const struct scenario scenes_nfs[] = {
	{ "nfs-client-reads-nothing", a_client_reads_nothing, 2, 2, GATEWAYS + 1, false },
	{ "nfs-lost-for-good", lost_for_good_is_an_error, 2, 2, GATEWAYS + 1, false },
	{ "nfs-writes-are-lost", writes_are_lost, 2, 2, GATEWAYS + 1, false },
	{ "nfs-calls-come-twice", calls_come_twice, 2, 2, GATEWAYS + 1, false },
	{ "nfs-gateways-die", gateways_die, 2, 2, GATEWAYS + 1, false },
	{ "nfs-over-loopback", gateways_die, 2, 2, GATEWAYS + 1, true },
	{ "nfs-servers-die", servers_die, 2, 2, GATEWAYS + 1, false },
	{ "nfs-servers-and-gateways-die", servers_and_gateways_die, 2, 2, GATEWAYS + 1, false },
	{ 0 },
};
