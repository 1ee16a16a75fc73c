/* The table of the cache bank of a build without the headers of libmemcached: there is none.
 *
 * Threads: any. Buffers: none. Errors: open says how to build with it; nothing else can be called
 * without a handle. */
#include <stdio.h>

#include "core/bank.h"
#include "core/env_real.h"

static int none_open(struct env *e, const struct bank_setup *s, void **handle, char *why,
		     size_t why_len)
{
	(void)e, (void)s;
	*handle = NULL;
	return error_explain(why, why_len, -EOPNOTSUPP,
			     "built without libmemcached: install libmemcached-dev and build again "
			     "to use the cache bank");
}

const struct bank_ops bank_memcached_ops = { .open = none_open };
