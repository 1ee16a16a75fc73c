/* Bounds the bytes that all servers together have on their way to this process over TCP.
 *
 * When many servers answer at once over a link that is slower than theirs together, the queue in
 * front of it overflows, and a connection that loses the end of an answer waits for TCP's timeout
 * (incast). The servers do not know of each other, but the receiver sees segments out of order.
 * Then it divides a budget among the links that receive bulk, as the receive windows of TCP. Each
 * loss shrinks the budget, at the least to twice the bandwidth-delay product; without losses it
 * grows slowly, and ends when it no longer limits anything.
 *
 * Threads: the loop's. Errors: none; without the values of TCP there is no budget. */
#include "net/net_tcp.h"

#define PERIOD_NS (5 * NSEC_PER_MSEC) /* each link is looked at once in that time */
#define SHRINK_NS (20 * NSEC_PER_MSEC) /* the losses of this time are one event */
#define GROW_NS (250 * NSEC_PER_MSEC)
#define SEGMENTS_MIN 4 /* of a window: with fewer, acknowledgements are delayed */
#define WINDOW_FIRST (16 * KIB)
#define WINDOW_FREE (512 * KIB) /* a window of this size limits nothing */

/* The links that received in the last period, or receive in this one. */
static uint32_t links_of(const struct inflow *f)
{
	return MAX(f->n_links, f->n_links_before);
}

void inflow_turn(struct inflow *f, uint64_t now)
{
	uint64_t period = now / PERIOD_NS;
	bool is_next = f->period + 1 == period;

	if (f->period == period)
		return;
	f->n_links_before = is_next ? f->n_links : 0;
	f->bytes_before = is_next ? f->bytes : 0;
	f->period = period;
	f->n_links = 0;
	f->bytes = 0;
}

static void shrink(struct inflow *f, const struct sock_inflow *seen, uint64_t now)
{
	uint32_t n = links_of(f);
	uint64_t least = MAX(2 * f->bytes_before * seen->round_ns / PERIOD_NS,
			     (uint64_t)n * SEGMENTS_MIN * seen->segment);

	if (n < 2 || (f->budget && now < f->shrunk_at + SHRINK_NS))
		return;
	f->budget = MAX(f->budget ? f->budget / 4 * 3 : n * WINDOW_FIRST, least);
	f->shrunk_at = f->grown_at = now;
}

uint32_t inflow_window(struct inflow *f, const struct sock_inflow *seen, bool is_lossy,
		       uint64_t now)
{
	uint32_t n;

	if (is_lossy)
		shrink(f, seen, now);
	n = MAX(links_of(f), 1u);
	if (f->budget && now >= f->grown_at + GROW_NS) {
		f->budget += f->budget / 8;
		f->grown_at = now;
	}
	if (f->budget / n >= WINDOW_FREE)
		f->budget = 0;
	if (!f->budget)
		return 0;
	return (uint32_t)MAX(f->budget / n, (uint64_t)SEGMENTS_MIN * seen->segment);
}

/* Is another window worth a system call? */
static bool differs(uint32_t a, uint32_t b)
{
	return a && b ? a > b + b / 8 || b > a + a / 8 : a != b;
}

void tcp_note_inflow(struct tcp_link *t, size_t bytes)
{
	struct env *e = env_of(t);
	struct inflow *f = &t->l.net->inflow;
	uint64_t now = t->l.net->loop->now;
	struct sock_inflow seen;
	uint32_t window;
	bool is_lossy;

	if (!t->l.dialled || t->l.local_label[0] || !e->sock->inflow)
		return;
	inflow_turn(f, now);
	f->bytes += bytes;
	if (t->inflow_period == f->period)
		return;
	t->inflow_period = f->period;
	f->n_links++;
	e->sock->inflow(e, t->src.fd, &seen);
	count_calls(t, 1);
	is_lossy = seen.out_of_order != t->out_of_order;
	t->out_of_order = seen.out_of_order;
	window = inflow_window(f, &seen, is_lossy, now);
	if (!differs(window, t->window))
		return;
	e->sock->limit_window(e, t->src.fd, window);
	count_calls(t, 1);
	t->window = window;
}
