/* Credits of one link: counting only. Threads: the loop's. */
#include "net/credit.h"

#define PERIOD 64 /* messages after which unused buffers are given up */

void credits_init(struct credits *c)
{
	*c = (struct credits){ .depth = CREDIT_FIRST,
			       .depth_max = CREDIT_MAX,
			       .granted = CREDIT_FIRST,
			       .spare_least = CREDIT_FIRST };
}

bool credits_may_send(const struct credits *c, bool is_credit)
{
	return (int32_t)(c->may_send - c->sent) > (is_credit ? 0 : 1);
}

uint32_t credits_left(const struct credits *c)
{
	int32_t left = (int32_t)(c->may_send - c->sent) - 1;

	return left > 0 ? (uint32_t)left : 0;
}

uint32_t credits_send(struct credits *c)
{
	c->sent++;
	c->granted = c->received + c->depth;
	return c->granted;
}

void credits_use(struct credits *c)
{
	c->sent++;
}

int credits_receive(struct credits *c)
{
	uint32_t spare = c->granted - c->received;

	if ((int32_t)spare <= 0)
		return -EPROTO;
	spare--;
	c->received++;
	c->spare_least = MIN(c->spare_least, spare);
	if (spare <= 1 && c->depth < c->depth_max) {
		c->depth = MIN(2 * c->depth, c->depth_max);
	} else if (++c->n_seen == PERIOD) {
		c->depth -= c->spare_least > c->depth / 2 && c->depth > CREDIT_FIRST;
		c->n_seen = 0;
		c->spare_least = c->depth;
	}
	return 0;
}

void credits_told(struct credits *c, uint32_t may_send)
{
	if ((int32_t)(may_send - c->may_send) > 0)
		c->may_send = may_send;
}

bool credits_are_due(const struct credits *c)
{
	uint32_t due = c->received + c->depth - c->granted;

	return (int32_t)due > 0 && due >= c->depth / 2;
}
