/* The table of RDMA of a build without the headers of rdma-core: there is no device.
 *
 * Threads: any. Buffers: none. Errors: open says how to build with RDMA; nothing else can be called
 * without an open device. */
#include <stdio.h>

#include "core/env_real.h"
#include "core/fabric.h"

static int none_open(struct env *e, struct loop *l, const struct fabric_want *want,
		     void (*ready)(void *arg), void *arg, struct fabric **out, char *why,
		     size_t why_len)
{
	(void)e, (void)l, (void)want, (void)ready, (void)arg;
	*out = NULL;
	snprintf(why, why_len,
		 "built without rdma-core: install libibverbs-dev and build again to use RDMA");
	return -ENODEV;
}

const struct fabric_ops fabric_verbs_ops = { .open = none_open };
