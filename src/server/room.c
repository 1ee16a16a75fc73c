/* What a request takes of the limited tables of its server (net/limits.h). Every refusal has one
 * line in the log, which names the limit, and one error for the client. */
#include "server/sreq.h"

/* Optional memory is refused above 1/SPARE_PART of a bound, before replies grant fewer slots. */
#define SPARE_PART 4

/* own: the bound of this session or key was hit; all: one of several keys, or of the server. */
static const struct {
	int own, all;
} errors[N_LIMITS] = {
	[LIMIT_LINKS] = { -EUSERS, -EUSERS },	    [LIMIT_SESSIONS] = { -EUSERS, -EUSERS },
	[LIMIT_OPENS] = { -EMFILE, -ENFILE },	    [LIMIT_LOCKS] = { -ENOLCK, -ENOLCK },
	[LIMIT_LOCK_WAITS] = { -ENOLCK, -ENOLCK },  [LIMIT_APPENDS] = { -ENOBUFS, -ENOBUFS },
	[LIMIT_REQUEST_BYTES] = { -EBUSY, -EBUSY }, [LIMIT_REPLY_BYTES] = { -ENOBUFS, -ENOBUFS },
};

int sreq_take(struct sreq *s, struct usage *h, enum limit what, uint64_t n)
{
	enum limit_scope full = usage_take(h, what, n);

	if (!full)
		return 0;
	link_refused(s->link, REFUSED_LIMIT, "%s: %llu is the limit %s", limit_name(what),
		     (unsigned long long)limit_value(h->key->limits, what, full),
		     limit_scope_name(full));
	return full <= LIMIT_OF_KEY ? errors[what].own : errors[what].all;
}

int sreq_reserve(struct sreq *s, struct usage *h, enum limit what)
{
	int e = s->reserved_by ? 0 : sreq_take(s, h, what, 1);

	if (e || s->reserved_by)
		return e;
	s->reserved_by = h;
	s->reserved = what;
	return 0;
}

void sreq_unreserve(struct sreq *s)
{
	if (s->reserved_by)
		usage_give(s->reserved_by, s->reserved, 1);
	s->reserved_by = NULL;
}

int sreq_use(struct sreq *s, struct usage *h, enum limit what)
{
	bool reserved = s->reserved_by && s->reserved == what;

	if (!reserved)
		return sreq_take(s, h, what, 1);
	sreq_unreserve(s);
	usage_add(h, what, 1);
	return 0;
}

struct usage *sreq_payer(const struct sreq *s)
{
	return s->session ? &s->session->held : &s->link->held;
}

bool sreq_charge(struct sreq *s, uint64_t bytes)
{
	if (sreq_take(s, sreq_payer(s), LIMIT_REQUEST_BYTES, bytes)) {
		s->no_room = true;
		return false;
	}
	s->charged += bytes;
	return true;
}

bool sreq_charge_spare(struct sreq *s, uint64_t bytes)
{
	return !usage_over(sreq_payer(s), LIMIT_REQUEST_BYTES, bytes, SPARE_PART) &&
	       sreq_charge(s, bytes);
}

bool sreq_may_grow(struct arena *a, size_t bytes)
{
	struct sreq *s = container_of(a, struct sreq, arena);
	size_t need = a->held + bytes;

	if (need > s->arena_bytes) {
		if (!sreq_charge(s, need - s->arena_bytes))
			return false;
		s->arena_bytes = need;
	}
	return true;
}

void sreq_release(struct sreq *s)
{
	sreq_unreserve(s);
	usage_give(sreq_payer(s), LIMIT_REQUEST_BYTES, s->charged);
	s->charged = 0;
}
