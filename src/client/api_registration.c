/* The public interface: registration of memory with an io_uring, for benchmarks.
 *
 * Threads: any, except open and close. Buffers: pinned while registered. Errors: -errno. */
#include <errno.h>
#include <stdlib.h>

#include "client/api_impl.h"
#include "reg/reg.h"
#include "sheaf_admin.h"

#define SLOTS 16384

struct sheaf_registration {
	struct reg_iouring *device;
	struct reg *reg;
};

struct sheaf_registered {
	struct reg_use use;
};

int sheaf_registration_open(int cached, struct sheaf_registration **out)
{
	struct sheaf_registration *r = calloc(1, sizeof(*r));
	int e = r ? reg_iouring_open(&r->device, SLOTS) : -ENOMEM;

	if (!e)
		e = reg_open(&r->reg, &reg_iouring_ops, r->device, 0, cached ? 0 : REG_NO_CACHE);
	if (e) {
		sheaf_registration_close(r);
		return e;
	}
	*out = r;
	return 0;
}

void sheaf_registration_close(struct sheaf_registration *r)
{
	if (!r)
		return;
	reg_close(r->reg);
	reg_iouring_close(r->device);
	free(r);
}

int sheaf_registration_acquire(struct sheaf_registration *r, const struct iovec *pieces, size_t n,
			       struct sheaf_registered **out)
{
	struct sheaf_registered *u = calloc(1, sizeof(*u));
	int e = u ? reg_acquire(r->reg, pieces, n, true, &u->use) : -ENOBUFS;

	if (e)
		free(u);
	else
		*out = u;
	return e;
}

void sheaf_registration_release(struct sheaf_registration *r, struct sheaf_registered *u)
{
	if (!u)
		return;
	reg_release(r->reg, &u->use);
	free(u);
}

void sheaf_registration_counts(struct sheaf_registration *r, struct sheaf_registration_counts *out)
{
	struct reg_counts c;

	reg_get_counts(r->reg, &c);
	*out = (struct sheaf_registration_counts){ .registrations = c.registrations,
						   .failed = c.failed,
						   .deregistrations = c.deregistrations,
						   .hits = c.hits,
						   .invalidations = c.invalidations,
						   .pinned_bytes = c.pinned_bytes,
						   .limit_bytes = c.limit_bytes,
						   .page_ns = c.page_ns,
						   .call_ns = c.call_ns,
						   .why_not = c.why_not };
}
