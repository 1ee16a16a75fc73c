/* Simulated sockets and readiness.
 *
 * A connection has two directions. The bytes of one writev() become a piece, which arrives after a
 * random time behind all earlier pieces. The bytes in flight and those that arrived are bounded
 * together, so writers see EAGAIN. A piece may carry the end of the stream or a break of the
 * connection: a cut at any byte. After a cut the bytes in flight are lost, those that arrived can
 * still be read, and each end notices at its own time. In a partition no pieces arrive; after
 * stall_ns the connection is cut. Only nodes of the same host find a Unix socket ("@NODE:PORT"),
 * which may belong to another server. Its connections work like all others: a partition stands for
 * a stopped process.
 *
 * One thread. A connection is freed when no end and no event refers to it. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim_priv.h"

#define BACKLOG 128

enum sock_state { SOCK_LISTENING, SOCK_CONNECTING, SOCK_UP, SOCK_FAILED, SOCK_DEAD };
enum piece_end { PIECE_GOES_ON, PIECE_FIN, PIECE_RESET, PIECE_CUT };

struct sim_piece {
	struct list link;
	enum piece_end end; /* what follows its bytes */
	size_t len;
	uint8_t data[];
};

struct sim_way { /* one direction; way[i] leads from end i to the other end */
	struct list pieces;
	size_t flying;
	uint8_t *rx; /* ring of conn->cap bytes */
	size_t rx_at, rx_len;
	uint64_t last; /* no piece arrives before this time */
	bool fin; /* the end of the stream has arrived */
	uint64_t stalled; /* time since when nothing passes, or 0 */
};

struct sim_conn {
	struct list link;
	struct sim *sim;
	unsigned refs;
	struct sim_node *node[2];
	struct sim_sock *end[2]; /* end 0 dialled; NULL: closed */
	struct sim_way way[2];
	size_t cap;
	bool cut;
	char address[CONF_ADDR_MAX];
};

struct sim_sock {
	struct sim_node *node;
	int fd;
	enum sock_state state;
	int error; /* SOCK_FAILED: error of the connect; SOCK_UP: see broken */
	bool broken; /* noticed that the connection is gone: `error`, or 0 for end of file */
	struct sim_conn *conn;
	int side;
	struct list queued; /* in the listener's backlog */
	struct list backlog;
	size_t n_backlog;
	char address[CONF_ADDR_MAX]; /* SOCK_LISTENING */
	struct sim_watch *watch;
};

/* ---------------------------------------------------------------- descriptors */

static int fd_take(struct sim_node *n, struct sim_sock *k)
{
	size_t i = 0;

	while (i < n->n_socks && n->socks[i])
		i++;
	if (i == n->n_socks) {
		n->n_socks = n->n_socks ? 2 * n->n_socks : 16;
		n->socks = realloc(n->socks, n->n_socks * sizeof(struct sim_sock *));
		if (!n->socks)
			abort();
		memset(n->socks + i, 0, (n->n_socks - i) * sizeof(struct sim_sock *));
	}
	n->socks[i] = k;
	k->fd = (int)i;
	return k->fd;
}

static struct sim_sock *sock_new(struct sim_node *n, enum sock_state state)
{
	struct sim_sock *k = sim_alloc(sizeof(*k));

	k->node = n;
	k->fd = -1;
	k->state = state;
	list_init(&k->queued);
	list_init(&k->backlog);
	return k;
}

static struct sim_sock *sock_get(struct sim_node *n, int fd)
{
	return fd >= 0 && (size_t)fd < n->n_socks ? n->socks[fd] : NULL;
}

/* ---------------------------------------------------------------- connections */

static void conn_unref(struct sim_conn *c)
{
	if (--c->refs)
		return;
	for (int i = 0; i < 2; i++) {
		struct list *it;

		while ((it = list_pop(&c->way[i].pieces)))
			free(list_entry(it, struct sim_piece, link));
		free(c->way[i].rx);
	}
	list_del(&c->link);
	free(c);
}

static struct sim_conn *conn_new(struct sim_sock *dialler, const char *address)
{
	struct sim *s = dialler->node->sim;
	struct sim_conn *c = sim_alloc(sizeof(*c));

	c->sim = s;
	c->refs = 1;
	c->node[0] = dialler->node;
	c->end[0] = dialler;
	c->cap = sim_between(s, s->faults.buffer_min, s->faults.buffer_max);
	for (int i = 0; i < 2; i++) {
		list_init(&c->way[i].pieces);
		c->way[i].rx = sim_alloc(c->cap);
	}
	snprintf(c->address, sizeof(c->address), "%s", address);
	list_push(&s->conns, &c->link);
	dialler->conn = c;
	dialler->side = 0;
	return c;
}

static void conn_schedule(struct sim_conn *c, enum sim_kind kind, struct sim_node *n,
			  uint64_t delay, void (*fire)(struct sim *s, struct sim_event *e),
			  uint64_t arg)
{
	struct sim_event *e = sim_schedule(c->sim, kind, n, delay, fire, c);

	e->n = arg;
	c->refs++;
}

static uint64_t flight(struct sim *s)
{
	return sim_delay(s, s->faults.net_min, s->faults.net_max);
}

/* One end notices the break. e->n: its side and, in the upper bits, the error or 0. */
static void fire_break(struct sim *s, struct sim_event *e)
{
	struct sim_conn *c = e->arg;
	struct sim_sock *k = c->end[e->n & 1];

	(void)s;
	if (k && !k->broken) {
		k->broken = true;
		k->error = -(int)(e->n >> 1);
		if (k->state == SOCK_CONNECTING)
			k->state = SOCK_FAILED;
	}
	conn_unref(c);
}

static void conn_break(struct sim_conn *c, int side, int err, uint64_t delay)
{
	if (c->end[side])
		conn_schedule(c, SIM_BREAK, c->node[side], delay, fire_break,
			      (uint64_t)err << 1 | (uint64_t)side);
}

static void conn_cut(struct sim_conn *c)
{
	struct sim *s = c->sim;

	if (c->cut)
		return;
	c->cut = true;
	for (int i = 0; i < 2; i++) {
		struct list *it;
		int err = sim_below(s, 2) ? ECONNRESET : 0;
		uint64_t delay = flight(s);

		if (sim_below(s, 8) == 0) /* gets no message and notices by itself */
			delay += sim_below(s, s->faults.stall_ns);
		while ((it = list_pop(&c->way[i].pieces)))
			free(list_entry(it, struct sim_piece, link));
		conn_break(c, i, err, delay);
	}
}

static bool conn_held(const struct sim_conn *c, int way)
{
	const struct sim *s = c->sim;
	uint32_t from = c->node[way]->id, to = c->node[1 - way]->id;

	return s->apart[from][to] || (way == 0 && s->calls_held[from][to]);
}

/* If nothing passes in this direction, tries again later or gives up, and returns true. */
static bool conn_stalls(struct sim_conn *c, struct sim_event *e, int way)
{
	struct sim *s = c->sim;
	struct sim_way *w = &c->way[way];

	if (!c->node[1] || !conn_held(c, way)) {
		w->stalled = 0;
		return false;
	}
	s->injected[SIM_HELD_BACK] += !w->stalled;
	if (!w->stalled)
		w->stalled = s->now;
	if (s->now - w->stalled <= s->faults.stall_ns)
		conn_schedule(c, e->kind, e->node, sim_between(s, 1000000, 20000000), e->fire,
			      e->n);
	else if (c->end[0] && c->end[0]->state == SOCK_CONNECTING)
		conn_break(c, 0, ETIMEDOUT, 1);
	else
		conn_cut(c);
	return true;
}

static void ring_put(struct sim_way *w, size_t cap, const uint8_t *p, size_t n)
{
	size_t at = (w->rx_at + w->rx_len) % cap;
	size_t first = MIN(n, cap - at);

	assert(w->rx_len + n <= cap);
	memcpy(w->rx + at, p, first);
	memcpy(w->rx, p + first, n - first);
	w->rx_len += n;
}

static void ring_get(struct sim_way *w, size_t cap, uint8_t *p, size_t n)
{
	size_t first = MIN(n, cap - w->rx_at);

	memcpy(p, w->rx + w->rx_at, first);
	memcpy(p + first, w->rx, n - first);
	w->rx_at = (w->rx_at + n) % cap;
	w->rx_len -= n;
}

/* e->n is the direction; each event delivers the oldest piece. */
static void fire_arrive(struct sim *s, struct sim_event *e)
{
	struct sim_conn *c = e->arg;
	int way = (int)e->n, to = 1 - way;
	struct sim_way *w = &c->way[way];
	struct sim_piece *p;

	(void)s;
	if (c->cut || conn_stalls(c, e, way)) {
		conn_unref(c);
		return;
	}
	p = list_entry(list_pop(&w->pieces), struct sim_piece, link);
	sim_trace(c->sim, SIM_ARRIVE, c->node[to]->id, p->len);
	w->flying -= p->len;
	if (c->end[to])
		ring_put(w, c->cap, p->data, p->len);
	else if (p->len) /* the other end is closed */
		conn_break(c, way, ECONNRESET, flight(s));
	if (p->end == PIECE_FIN)
		w->fin = true;
	else if (p->end == PIECE_RESET)
		conn_break(c, to, ECONNRESET, 1);
	else if (p->end == PIECE_CUT)
		conn_cut(c);
	free(p);
	conn_unref(c);
}

static struct sim_piece *piece_new(size_t len, enum piece_end end)
{
	struct sim_piece *p = sim_alloc(sizeof(*p) + len);

	p->len = len;
	p->end = end;
	return p;
}

static void conn_send(struct sim_conn *c, int side, struct sim_piece *p)
{
	struct sim_way *w = &c->way[side];
	uint64_t when = MAX(c->sim->now + flight(c->sim), w->last);

	w->last = when;
	w->flying += p->len;
	list_push(&w->pieces, &p->link);
	conn_schedule(c, SIM_ARRIVE, c->node[1 - side], when - c->sim->now, fire_arrive,
		      (uint64_t)side);
}

/* ---------------------------------------------------------------- connect, listen, accept */

static struct sim_sock *find_listener(struct sim *s, const char *address)
{
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		struct sim_node *n = s->nodes[i];

		for (size_t fd = 0; n->up && fd < n->n_socks; fd++)
			if (n->socks[fd] && n->socks[fd]->state == SOCK_LISTENING &&
			    !strcmp(n->socks[fd]->address, address))
				return n->socks[fd];
	}
	return NULL;
}

/* Returns the node of an address NODE:PORT or @NODE:PORT. */
static struct sim_node *find_host(struct sim *s, const char *address)
{
	const char *colon = strrchr(address, ':');
	size_t len;

	address += sock_is_local(address);
	len = colon ? (size_t)(colon - address) : strlen(address);
	for (uint32_t i = 0; i < s->n_nodes; i++)
		if (strlen(s->nodes[i]->name) == len && !memcmp(s->nodes[i]->name, address, len))
			return s->nodes[i];
	return NULL;
}

static void fire_connected(struct sim *s, struct sim_event *e)
{
	struct sim_conn *c = e->arg;

	(void)s;
	if (!c->cut && !conn_stalls(c, e, 1) && c->end[0] && c->end[0]->state == SOCK_CONNECTING)
		c->end[0]->state = SOCK_UP;
	conn_unref(c);
}

/* A connect reaches the node of its address. */
static void fire_syn(struct sim *s, struct sim_event *e)
{
	struct sim_conn *c = e->arg;
	struct sim_sock *to, *k;

	if (!c->end[0] || c->cut || conn_stalls(c, e, 0))
		goto out;
	to = find_listener(s, c->address);
	if (!to || to->n_backlog >= BACKLOG || sim_inject(s, SIM_REFUSED, s->faults.refuse)) {
		conn_break(c, 0, ECONNREFUSED, flight(s));
		goto out;
	}
	k = sock_new(to->node, SOCK_UP);
	k->conn = c;
	k->side = 1;
	c->end[1] = k;
	c->refs++;
	s->injected[SIM_LOCAL_LINK] += sock_is_local(c->address);
	list_push(&to->backlog, &k->queued);
	to->n_backlog++;
	c->way[1].last = s->now + flight(s);
	conn_schedule(c, SIM_CONNECTED, c->node[0], c->way[1].last - s->now, fire_connected, 0);
out:
	conn_unref(c);
}

/* Returns another server of this host that listens on a Unix socket, or NULL. */
static struct sim_sock *find_impostor(struct sim_node *n, const struct sim_sock * not )
{
	struct sim *s = n->sim;

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		struct sim_node *m = s->nodes[i];

		for (size_t fd = 0; m->up && m->host == n->host && fd < m->n_socks; fd++) {
			struct sim_sock *k = m->socks[fd];

			if (k && k != not &&k->state == SOCK_LISTENING && sock_is_local(k->address))
				return k;
		}
	}
	return NULL;
}

/* Returns the listener at a Unix socket's address, or NULL; rarely that of a wrong server. */
static struct sim_sock *find_local(struct sim_node *n, const char *address)
{
	struct sim_sock *k = find_listener(n->sim, address), *other;

	if (!k || k->node->host != n->host)
		return NULL;
	other = find_impostor(n, k);
	return other && sim_inject(n->sim, SIM_WRONG_SERVER, n->sim->faults.wrong_server) ? other :
											    k;
}

static int sim_connect(struct env *e, const char *address)
{
	struct sim_node *n = sim_node_of(e);
	struct sim_sock *k, *local;
	struct sim_conn *c;

	if (!n->up)
		return -ENETDOWN;
	if (strlen(address) >= CONF_ADDR_MAX)
		return -EINVAL;
	if (sock_is_local(address)) {
		local = find_local(n, address);
		if (!local)
			return -ECONNREFUSED;
		address = local->address;
	}
	if (!find_host(n->sim, address))
		return -EINVAL;
	k = sock_new(n, SOCK_CONNECTING);
	c = conn_new(k, address);
	c->node[1] = find_host(n->sim, address);
	conn_schedule(c, SIM_SYN, c->node[1], flight(n->sim), fire_syn, 0);
	return fd_take(n, k);
}

static int sim_connect_result(struct env *e, int fd)
{
	struct sim_node *n = sim_node_of(e);
	struct sim_sock *k = sock_get(n, fd);

	if (!n->up || !k)
		return -EBADF;
	return k->state == SOCK_FAILED ? (k->error ? k->error : -ECONNRESET) : 0;
}

static int sim_listen(struct env *e, const char *address, char *err, size_t err_len)
{
	struct sim_node *n = sim_node_of(e);
	struct sim_sock *k;
	int r = 0;

	if (!n->up)
		r = -ENETDOWN;
	else if (strlen(address) >= CONF_ADDR_MAX || find_host(n->sim, address) != n)
		r = -EADDRNOTAVAIL;
	else if (find_listener(n->sim, address))
		r = -EADDRINUSE;
	if (r) {
		snprintf(err, err_len, "cannot listen on %s: %s", address, strerror(-r));
		return r;
	}
	k = sock_new(n, SOCK_LISTENING);
	snprintf(k->address, sizeof(k->address), "%s", address);
	return fd_take(n, k);
}

static int sim_accept(struct env *e, int fd)
{
	struct sim_node *n = sim_node_of(e);
	struct sim_sock *k = sock_get(n, fd);
	struct list *it;

	if (!n->up || !k || k->state != SOCK_LISTENING)
		return -EBADF;
	it = list_pop(&k->backlog);
	if (!it)
		return -EAGAIN;
	k->n_backlog--;
	return fd_take(n, list_entry(it, struct sim_sock, queued));
}

static void sim_origin_local(struct env *e, const char *address, struct origin *out)
{
	(void)e, (void)address;
	*out = (struct origin){ .local = true };
}

/* All processes have the same user. */
static uint32_t sim_user(struct env *e, int fd)
{
	(void)e, (void)fd;
	return 0;
}

/* ---------------------------------------------------------------- bytes */

/* Returns how much of `n` bytes moves this time. */
static size_t some(struct sim *s, size_t n)
{
	if (n > 1 && sim_inject(s, SIM_PARTIAL, s->faults.one_byte))
		return 1;
	if (n > 1 && sim_inject(s, SIM_PARTIAL, s->faults.partial))
		return (size_t)sim_between(s, 1, n);
	return n;
}

static size_t room(const struct sim_sock *k)
{
	const struct sim_way *w = &k->conn->way[k->side];

	return k->conn->cap - w->flying - w->rx_len;
}

/* Returns -EFAULT if some of these bytes go to a mapping that has no room for them, else 0. */
static int may_store(struct sim_node *n, const struct iovec *iov, size_t len)
{
	int r = 0;

	for (int i = 0; len && !r; i++) {
		size_t part = MIN(len, iov[i].iov_len);

		r = sim_fs_store(n, iov[i].iov_base, part);
		len -= part;
	}
	return r;
}

/* Returns how many of these bytes can be read: those in a mapping may be behind the end. */
static size_t usable(struct sim_node *n, const struct iovec *iov, size_t len)
{
	size_t sum = 0;

	for (int i = 0; sum < len; i++) {
		size_t part = MIN(len - sum, iov[i].iov_len);
		size_t good = sim_fs_usable(n, iov[i].iov_base, part);

		sum += good;
		if (good < part)
			break;
	}
	return sum;
}

static ssize_t sim_readv(struct env *e, int fd, const struct iovec *iov, int n_iov)
{
	struct sim_node *n = sim_node_of(e);
	struct sim_sock *k = sock_get(n, fd);
	struct sim_way *w;
	size_t want, left;

	if (!n->up || !k || k->state == SOCK_LISTENING)
		return n->up ? -EBADF : -EIO;
	if (k->state == SOCK_CONNECTING)
		return -EAGAIN;
	w = &k->conn->way[1 - k->side];
	if (!w->rx_len) {
		if (w->fin)
			return 0;
		return k->broken ? k->error : -EAGAIN;
	}
	want = MIN(iov_total(iov, (size_t)n_iov), w->rx_len);
	want = left = some(n->sim, want);
	if (may_store(n, iov, want))
		return -EFAULT;
	for (int i = 0; left; i++) {
		size_t part = MIN(left, iov[i].iov_len);

		if (part)
			ring_get(w, k->conn->cap, iov[i].iov_base, part);
		left -= part;
	}
	sim_trace(n->sim, SIM_READ, n->id, want);
	return (ssize_t)want;
}

/* Sends the bytes of a piece: all of them, or those before the place where the connection
 * breaks. */
static void send_bytes(struct sim_sock *k, const struct iovec *iov, size_t len)
{
	struct sim *s = k->node->sim;
	bool cut = sim_inject(s, SIM_CUT_WITHIN, s->faults.cut);
	size_t keep = cut ? (size_t)sim_between(s, 0, len) : len, at = 0;
	struct sim_piece *p = piece_new(keep, cut ? PIECE_CUT : PIECE_GOES_ON);

	for (int i = 0; at < keep; i++) {
		size_t part = MIN(keep - at, iov[i].iov_len);

		if (part)
			memcpy(p->data + at, iov[i].iov_base, part);
		at += part;
	}
	conn_send(k->conn, k->side, p);
}

static ssize_t sim_writev(struct env *e, int fd, const struct iovec *iov, int n_iov)
{
	struct sim_node *n = sim_node_of(e);
	struct sim_sock *k = sock_get(n, fd);
	size_t len;

	if (!n->up || !k || k->state == SOCK_LISTENING)
		return n->up ? -EBADF : -EIO;
	if (k->state == SOCK_CONNECTING)
		return -EAGAIN;
	if (k->broken)
		return k->error ? k->error : -EPIPE;
	len = MIN(iov_total(iov, (size_t)n_iov), room(k));
	if (!len)
		return iov_total(iov, (size_t)n_iov) ? -EAGAIN : 0;
	len = usable(n, iov, some(n->sim, len));
	if (!len)
		return -EFAULT;
	sim_trace(n->sim, SIM_WRITE, n->id, len);
	if (k->conn->cut)
		k->conn->way[k->side].flying += len; /* the bytes are lost */
	else
		send_bytes(k, iov, len);
	return (ssize_t)len;
}

/* Sends the file's bytes like others: only some of them, cut anywhere. */
static ssize_t sim_send_file(struct env *e, int fd, const struct iovec *head, int n_head, int file,
			     uint64_t off, size_t len)
{
	uint8_t bytes[8192];
	struct iovec iov[80] = { 0 }, part = { bytes, MIN(len, sizeof(bytes)) };
	ssize_t r = e->file->preadv(e, file, &part, 1, (off_t)off);
	int n = 0;

	for (; n < n_head; n++)
		iov[n] = head[n];
	if (r > 0)
		iov[n++] = (struct iovec){ bytes, (size_t)r };
	return n ? sim_writev(e, fd, iov, n) : r;
}

/* Detaches a socket from its connection; the other end notices, unless `silent`. */
static void sock_detach(struct sim_sock *k, bool silent)
{
	struct sim_conn *c = k->conn;

	if (!c)
		return;
	c->end[k->side] = NULL;
	k->conn = NULL;
	if (!silent && !c->cut && c->end[1 - k->side]) {
		bool unread = c->way[1 - k->side].rx_len > 0;

		conn_send(c, k->side, piece_new(0, unread ? PIECE_RESET : PIECE_FIN));
	}
	conn_unref(c);
}

/* Does not touch the source, which may have been freed before its loop. */
static void watch_drop(struct sim_watch *w)
{
	list_del(&w->link);
	list_del(&w->todo);
	w->sock->watch = NULL;
	free(w);
}

static void watch_free(struct sim_watch *w)
{
	w->source->events = 0;
	w->source->impl = NULL;
	watch_drop(w);
}

static void sock_free(struct sim_sock *k, bool silent)
{
	struct list *it;

	if (k->watch)
		watch_free(k->watch);
	while ((it = list_pop(&k->backlog)))
		sock_free(list_entry(it, struct sim_sock, queued), silent);
	sock_detach(k, silent);
	list_del(&k->queued);
	if (k->fd >= 0)
		k->node->socks[k->fd] = NULL;
	free(k);
}

static void sim_close(struct env *e, int fd)
{
	struct sim_node *n = sim_node_of(e);
	struct sim_sock *k = sock_get(n, fd);

	if (!k)
		return;
	if (n->up)
		sim_trace(n->sim, SIM_CLOSE, n->id, (uint64_t)fd);
	sock_free(k, !n->up);
}

/* ---------------------------------------------------------------- loops and readiness */

static unsigned sock_ready(const struct sim_sock *k)
{
	const struct sim_way *in;
	unsigned ev = 0;

	switch (k->state) {
	case SOCK_LISTENING:
		return list_empty(&k->backlog) ? 0 : EV_IN;
	case SOCK_FAILED:
		return EV_IN | EV_OUT | EV_ERR;
	case SOCK_UP:
		break;
	default:
		return 0;
	}
	in = &k->conn->way[1 - k->side];
	if (in->rx_len || in->fin || k->broken)
		ev |= EV_IN;
	if (k->broken || room(k))
		ev |= EV_OUT;
	if (k->broken && k->error)
		ev |= EV_ERR;
	return ev;
}

static unsigned watch_ready(const struct sim_watch *w)
{
	return sock_ready(w->sock) & (w->events | EV_ERR);
}

static int sim_watch(struct env *e, struct loop *l, struct source *src, unsigned events)
{
	struct sim_node *n = sim_node_of(e);
	struct sim_watch *w = src->impl;

	if (!events) {
		if (w)
			watch_free(w);
		src->events = 0;
		return 0;
	}
	if (!n->up || !sock_get(n, src->fd))
		return -EBADF;
	if (!w) {
		w = sim_alloc(sizeof(*w));
		w->loop = l->impl;
		w->source = src;
		w->sock = sock_get(n, src->fd);
		assert(!w->sock->watch);
		w->sock->watch = w;
		list_init(&w->todo);
		list_push(&w->loop->watches, &w->link);
		src->impl = w;
	}
	w->events = src->events = events;
	return 0;
}

bool sim_loop_poll(struct sim_loop *l)
{
	struct sim_watch *w;

	if (l->woken || !list_empty(&l->finished))
		return true;
	list_for_each(w, &l->watches, link)
		if (watch_ready(w))
			return true;
	return false;
}

void sim_loop_finished(struct sim_loop *l, void (*fn)(void *arg), void *arg)
{
	struct sim_done *d = sim_alloc(sizeof(*d));

	d->fn = fn;
	d->arg = arg;
	list_push(&l->finished, &d->link);
}

static int sim_poll(struct env *e, struct loop *l, uint64_t ns)
{
	(void)e;
	(void)ns;
	return sim_loop_poll(l->impl);
}

static void drop_done(struct list *dones, const void *arg)
{
	struct sim_done *d, *next;

	list_for_each_safe(d, next, dones, link) {
		if (d->arg != arg)
			continue;
		list_del(&d->link);
		free(d);
	}
}

void sim_loop_forget(struct sim_node *n, const struct sim_loop *l, const void *arg)
{
	struct sim_loop *it;

	list_for_each(it, &n->loops, link) {
		if (it != l)
			continue;
		drop_done(&it->finished, arg);
		drop_done(&it->calling, arg);
	}
}

/* Calls back for all work that had finished when the turn began. */
static void dispatch_finished(struct sim_loop *l)
{
	struct list *it;

	list_splice(&l->calling, &l->finished);
	while ((it = list_pop(&l->calling))) {
		struct sim_done *d = list_entry(it, struct sim_done, link);
		void (*fn)(void *arg) = d->fn;
		void *arg = d->arg;

		free(d);
		fn(arg);
	}
}

/* Calls the ready sources in a random order. A source that an earlier callback removed is no
 * longer on the list. */
static void dispatch_sources(struct sim_loop *l)
{
	struct sim *s = l->node->sim;
	struct sim_watch *w;
	struct list *it;

	list_for_each(w, &l->watches, link) {
		if (!watch_ready(w))
			continue;
		if (sim_below(s, 2))
			list_push(&l->todo, &w->todo);
		else
			list_push_front(&l->todo, &w->todo);
	}
	while ((it = list_pop(&l->todo))) {
		unsigned ev;

		w = list_entry(it, struct sim_watch, todo);
		ev = watch_ready(w);
		if (ev)
			w->source->ready(w->source, ev);
	}
}

static void sim_dispatch(struct env *e, struct loop *loop)
{
	struct sim_loop *l = loop->impl;

	l->woken = false;
	if (sim_below(sim_node_of(e)->sim, 2)) {
		dispatch_finished(l);
		dispatch_sources(l);
	} else {
		dispatch_sources(l);
		dispatch_finished(l);
	}
}

static void sim_wake(struct env *e, struct loop *loop)
{
	struct sim_loop *l = loop->impl;

	(void)e;
	l->woken = true;
}

static int sim_loop_init(struct env *e, struct loop *loop)
{
	struct sim_node *n = sim_node_of(e);
	struct sim_loop *l;

	if (!n->up)
		return -EIO;
	l = sim_alloc(sizeof(*l));
	l->loop = loop;
	l->node = n;
	list_init(&l->watches);
	list_init(&l->todo);
	list_init(&l->finished);
	list_init(&l->calling);
	list_push(&n->loops, &l->link);
	loop->impl = l;
	return 0;
}

static void sim_loop_fini(struct env *e, struct loop *loop)
{
	struct sim *s = sim_node_of(e)->sim;
	struct sim_loop *l = loop->impl;
	struct sim_watch *w, *next;
	struct list *it;

	if (!l)
		return;
	for (size_t i = 0; i < s->n_heap; i++)
		if (s->heap[i]->loop == loop)
			s->heap[i]->fire = NULL;
	list_for_each_safe(w, next, &l->watches, link)
		watch_drop(w);
	list_splice(&l->finished, &l->calling);
	while ((it = list_pop(&l->finished)))
		free(list_entry(it, struct sim_done, link));
	list_del(&l->link);
	free(l);
	loop->impl = NULL;
}

const struct sock_ops sim_sock_ops = {
	.listen = sim_listen,
	.accept = sim_accept,
	.origin_local = sim_origin_local,
	.user = sim_user,
	.connect = sim_connect,
	.connect_result = sim_connect_result,
	.readv = sim_readv,
	.writev = sim_writev,
	.send_file = sim_send_file,
	.close = sim_close,
	.loop_init = sim_loop_init,
	.loop_fini = sim_loop_fini,
	.watch = sim_watch,
	.poll = sim_poll,
	.dispatch = sim_dispatch,
	.wake = sim_wake,
};

/* ---------------------------------------------------------------- crashes and cleanup */

void sim_net_crash(struct sim_node *n)
{
	for (size_t fd = 0; fd < n->n_socks; fd++) {
		struct sim_sock *k = n->socks[fd];
		struct list *it;

		if (!k)
			continue;
		while ((it = list_pop(&k->backlog))) {
			struct sim_sock *b = list_entry(it, struct sim_sock, queued);

			conn_cut(b->conn);
			sock_free(b, true);
		}
		if (k->conn)
			conn_cut(k->conn);
		sock_detach(k, true);
		k->state = SOCK_DEAD;
	}
}

void sim_net_restart(struct sim_node *n)
{
	for (size_t fd = 0; fd < n->n_socks; fd++)
		if (n->socks[fd])
			sock_free(n->socks[fd], true);
	free(n->socks);
	n->socks = NULL;
	n->n_socks = 0;
}

/* The remaining connections belong to events that will not fire any more. */
void sim_net_fini(struct sim *s)
{
	struct sim_conn *c, *next;

	list_for_each_safe(c, next, &s->conns, link) {
		c->refs = 1;
		conn_unref(c);
	}
}

void sim_one_way(struct sim *s, struct sim_node *from, struct sim_node *to, bool on)
{
	sim_trace(s, SIM_PARTITION, from->id, (uint64_t)to->id << 1 | on);
	s->apart[from->id][to->id] = on;
}

void sim_hold_calls(struct sim *s, struct sim_node *from, struct sim_node *to, bool on)
{
	sim_trace(s, SIM_PARTITION, from->id, (uint64_t)to->id << 1 | on);
	s->calls_held[from->id][to->id] = on;
}

void sim_partition(struct sim *s, struct sim_node *a, struct sim_node *b, bool on)
{
	sim_one_way(s, a, b, on);
	sim_one_way(s, b, a, on);
}

void sim_cut(struct sim *s, struct sim_node *a, struct sim_node *b)
{
	struct sim_conn *c;

	sim_trace(s, SIM_CUT, a->id, b ? b->id : UINT32_MAX);
	list_for_each(c, &s->conns, link) {
		bool with_a = c->node[0] == a || c->node[1] == a;
		bool with_b = !b || c->node[0] == b || c->node[1] == b;

		if (with_a && with_b && !c->cut && (c->end[0] || c->end[1]))
			conn_cut(c);
	}
}
