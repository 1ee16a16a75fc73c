#include "toy_client.h"

/* ---- the client ---- */

static unsigned toy_calls_ended;

static bool toy_call_step(struct req *q)
{
	struct toy_call *a = container_of(q, struct toy_call, q);

	CHECK(!a->over);
	a->over = true;
	a->error = q->error;
	a->order = ++toy_calls_ended;
	call_fini(&a->call);
	req_fini(q);
	return false;
}

uint64_t toy_call_ns = 10 * NSEC_PER_SEC;

static const char *const toy_call_names[] = { "wait" };
static const struct req_ops toy_call_ops = REQ_OPS("call", toy_call_step, 0, toy_call_names);

void toy_call_init(struct toy_call *a, struct peer *p, uint32_t op, uint64_t timeout_ns)
{
	struct loop *l = p->net->loop;

	CHECK(wire_op_rows[op].args_size <= sizeof(a->args));
	CHECK(wire_op_rows[op].res_size <= sizeof(a->res));
	memset(a, 0, sizeof(*a));
	l->now = l->env->clock->now(l->env);
	a->call = (struct call){
		.op = op, .args = a->args, .res = a->res, .deadline = l->now + timeout_ns
	};
	req_init(&a->q, l, &toy_call_ops, 0);
}

void toy_call_start(struct toy_call *a, struct peer *p, uint32_t op, bool change)
{
	toy_call_init(a, p, op, toy_call_ns);
	a->call.once = change;
	peer_call(p, &a->call, &a->q);
}

void toy_call_move(struct toy_call *a, struct peer *p, const struct iovec *mem, size_t n,
		   bool write)
{
	static const struct layout one = { 1u << 30, 1, 0 };
	struct cursor from = { 0 };

	toy_call_init(a, p, write ? OP_WRITE : OP_READ, 2 * toy_call_ns);
	a->file.length = iov_total(mem, n);
	CHECK_EQ(access_init(&a->access, mem, n, &a->file, 1), 0);
	CHECK_EQ(view_plan(&a->view, &a->access, &one, 0, &from, a->plan, 4, UINT64_MAX), 1);
	CHECK_EQ(a->view.length, a->file.length);
	a->call.mem = &a->view;
	a->call.mem_access = write ? CAP_READ : CAP_WRITE;
	a->call.mem_wire = write ? &a->write.mem : &a->read.mem;
	a->call.args = write ? (void *)&a->write : &a->read;
	a->call.res = write ? (void *)&a->write_res : &a->read_res;
	peer_call(p, &a->call, &a->q);
}

void toy_client_start(struct toy_client *c, struct net_world *w, const char *address,
		      struct net_identity id, uint32_t role)
{
	memset(c, 0, sizeof(*c));
	c->w = w;
	net_init(&c->net, &w->loop, &id);
	c->net.hub = &w->hub;
	peer_init(&c->peer, &c->net, role, 0, address);
}

void toy_client_stop(struct toy_client *c)
{
	peer_fini(&c->peer);
	while (!list_empty(&c->w->loop.runnable))
		loop_run_ready(&c->w->loop);
	net_fini(&c->net);
}

void scatter_make(struct scatter *s, size_t n, const size_t *sizes, size_t n_sizes)
{
	size_t at = 0;

	s->n = n;
	s->total = 0;
	s->iov = calloc(n, sizeof(*s->iov));
	for (size_t i = 0; i < n; i++)
		s->total += sizes[i % n_sizes];
	s->bytes = s->total + n;
	s->base = malloc(s->bytes);
	CHECK(s->iov && s->base);
	memset(s->base, SCATTER_GUARD, s->bytes);
	for (size_t i = 0; i < n; i++) {
		s->iov[i] = (struct iovec){ s->base + at, sizes[i % n_sizes] };
		at += sizes[i % n_sizes] + 1;
	}
}

void scatter_fill(struct scatter *s)
{
	uint64_t at = 0;

	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 0; k < s->iov[i].iov_len; k++)
			((uint8_t *)s->iov[i].iov_base)[k] = pattern_byte(at++);
}

void scatter_check(const struct scatter *s)
{
	uint64_t at = 0, wrong = 0;

	for (size_t i = 0; i < s->n; i++) {
		const uint8_t *p = s->iov[i].iov_base;

		for (size_t k = 0; k < s->iov[i].iov_len; k++)
			wrong += p[k] != pattern_byte(at++);
		wrong += p[s->iov[i].iov_len] != SCATTER_GUARD;
	}
	CHECK_EQ(wrong, 0);
}

void scatter_free(struct scatter *s)
{
	free(s->base);
	free(s->iov);
}
