/* A job begins and ends; pieces are registered. Threads: that of the call. */
#include "ckpt/ckpt_impl.h"

static void set_options(struct sheaf_ckpt *c, const struct sheaf_ckpt_options *given)
{
	if (given)
		memcpy(&c->o, given, MIN(given->size, sizeof(c->o)));
	c->o.size = sizeof(c->o);
	if (c->o.flags & SHEAF_CKPT_FORK)
		c->o.flags |= SHEAF_CKPT_ASYNC;
	c->o.keep = c->o.keep ? c->o.keep : 2;
	c->o.chain = c->o.chain ? MIN(c->o.chain, CKPT_CHAIN_MAX) : 8;
	c->o.timeout_ms = c->o.timeout_ms ? MIN(c->o.timeout_ms, 86400000U) : 60000;
	c->o.copy_bytes = c->o.copy_bytes ? c->o.copy_bytes : 64 * MIB;
}

static int check_comm(const struct sheaf_ckpt_comm *comm)
{
	if (!comm || (comm->size == sizeof(*comm) && comm->n >= 1 && comm->rank >= 0 &&
		      comm->rank < comm->n && (comm->n == 1 || (comm->send && comm->recv))))
		return 0;
	return ckpt_fail(-EINVAL, "struct sheaf_ckpt_comm is not filled in");
}

/* Process 0, which holds the lock: removes what killed runs left, and chooses the next number. */
static int find_next(struct sheaf_ckpt *c)
{
	uint64_t *numbers;
	int n = ckpt_store_numbers(&c->store, &numbers);
	bool found = false;

	if (n < 0)
		return n;
	c->next = ckpt_store_next(&c->store, numbers, n);
	if (ckpt_store_sweep(&c->store, numbers, n))
		ckpt_say(c, "an incomplete checkpoint could not be removed: %s", sheaf_ckpt_why());
	for (int i = 0; i < n && !found; i++) {
		struct ckpt_manifest m;

		found = !ckpt_store_manifest(&c->store, numbers[i], &m);
		if (found)
			memcpy(c->rate, m.rate, sizeof(c->rate));
		ckpt_manifest_free(&m);
	}
	free(numbers);
	return 0;
}

/* All processes learn whether process 0 got the name. */
static int begin(struct sheaf_ckpt *c)
{
	struct ckpt_done d = { .status = 0 };
	/* the lock of a former run may stay for the lease of the servers */
	int ms = (int)(2 * c->o.timeout_ms), r;

	ckpt_exchange_call(&c->x);
	if (!c->x.comm.rank) {
		d.status = ckpt_lock(c);
		if (!d.status)
			d.status = find_next(c);
		snprintf(d.why, sizeof(d.why), "%s", sheaf_ckpt_why());
	}
	r = ckpt_down(&c->x, &d, sizeof(d), false, ms);
	return !r && d.status ? ckpt_fail(d.status, "%s", d.why) : r;
}

static void job_free(struct sheaf_ckpt *c)
{
	ckpt_track_free(c->track);
	ckpt_unlock(c);
	ckpt_exchange_free(&c->x);
	ckpt_pieces_free(&c->pieces);
	free(c);
}

int sheaf_ckpt_open(struct sheaf *fs, const char *job, const struct sheaf_ckpt_comm *comm,
		    const struct sheaf_ckpt_options *options, struct sheaf_ckpt **out)
{
	struct sheaf_ckpt *c = calloc(1, sizeof(*c));
	int r = check_comm(comm);

	*out = NULL;
	if (!c)
		return ckpt_fail(-ENOMEM, "out of memory");
	if (r) {
		free(c);
		return r;
	}
	c->fs = fs;
	set_options(c, options);
	r = ckpt_exchange_init(&c->x, comm);
	if (!r)
		r = ckpt_store_init(&c->store, fs, c->o.dir, job);
	c->o.dir = NULL; /* the caller's */
	if (!r)
		r = ckpt_trigger_init(c);
	if (!r)
		r = begin(c);
	if (r)
		job_free(c);
	else
		*out = c;
	return r;
}

int sheaf_ckpt_close(struct sheaf_ckpt *c)
{
	int r = 0;

	if (!c)
		return 0;
	if (c->is_pending) /* otherwise the other processes do not wait here either */
		r = sheaf_ckpt_wait(c);
	job_free(c);
	return r;
}

static int add(struct sheaf_ckpt *c, const char *name, void *mem, const struct sheaf_type *type,
	       uint64_t count, const struct sheaf_type *where)
{
	if (c->is_fixed)
		return ckpt_fail(-EINVAL, "piece '%s' comes after the first checkpoint or restore",
				 name);
	return ckpt_pieces_add(&c->pieces, name, mem, type, count, where);
}

int sheaf_ckpt_add(struct sheaf_ckpt *c, const char *name, void *mem, const struct sheaf_type *type,
		   uint64_t count)
{
	return add(c, name, mem, type, count, NULL);
}

int sheaf_ckpt_add_global(struct sheaf_ckpt *c, const char *name, void *mem,
			  const struct sheaf_type *type, uint64_t count,
			  const struct sheaf_type *where)
{
	if (!where)
		return ckpt_fail(-EINVAL, "piece '%s' has no place in a global array", name);
	return add(c, name, mem, type, count, where);
}

int sheaf_ckpt_cost(struct sheaf_ckpt *c, struct sheaf_ckpt_cost *cost)
{
	uint32_t size = cost->size;

	memcpy(cost, &c->cost, MIN(size, sizeof(c->cost)));
	cost->size = size;
	return 0;
}
