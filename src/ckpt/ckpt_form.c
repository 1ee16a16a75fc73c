/* Whether all processes write one file or each its own, by what was measured: each form is tried
 * once, then the faster one is used, and the other one is measured again now and then. */
#include "ckpt/ckpt_impl.h"

#define AGAIN 20 /* full checkpoints between two measurements of the slower form */
#define LEAST MIB /* less says nothing about a form */

bool ckpt_form_choose(struct sheaf_ckpt *c)
{
	bool one;

	if (c->o.flags & SHEAF_CKPT_ONE_FILE)
		return true;
	if (c->o.flags & SHEAF_CKPT_FILE_EACH || c->x.comm.n == 1 || !(c->rate[0] > 0))
		return false;
	if (!(c->rate[1] > 0))
		return true;
	one = c->rate[1] > c->rate[0];
	return c->fulls % AGAIN == AGAIN - 1 ? !one : one;
}

void ckpt_form_measured(struct sheaf_ckpt *c, bool one_file, uint64_t bytes, double seconds)
{
	double *rate = &c->rate[one_file];

	if (bytes < LEAST || !(seconds > 0))
		return;
	*rate = *rate > 0 ? (*rate + (double)bytes / seconds) / 2 : (double)bytes / seconds;
}
