/* The public interface: locks. See api.c for threads. */
#include <fcntl.h>
#include <sys/file.h>

#include "client/api_impl.h"

/* Converts a lock from the terms of fcntl() to those of the wire. */
static int lock_of(const struct sheaf_lock *l, struct wire_lock *out)
{
	*out = (struct wire_lock){ .owner = l->owner,
				   .start = l->start,
				   .last = l->length ? l->start + (l->length - 1) : UINT64_MAX,
				   .pid = l->pid,
				   .kind = l->type == F_RDLCK ? LOCK_SHARED :
					   l->type == F_WRLCK ? LOCK_EXCLUSIVE :
								LOCK_NOTHING };
	if ((out->kind == LOCK_NOTHING && l->type != F_UNLCK) || l->size < sizeof(*l))
		return -EINVAL;
	return out->last < l->start ? -EOVERFLOW : 0;
}

static int lock(struct sheaf_file *f, const struct wire_lock *want, bool wait)
{
	struct cop *op = api_begin(f->fs, &api_no_cred);

	client_lock(op, f->f, want, wait);
	return (int)api_finish(f->fs, op);
}

int sheaf_lock(struct sheaf_file *f, const struct sheaf_lock *l, int wait)
{
	struct wire_lock want;
	int r = lock_of(l, &want);

	return r ? r : lock(f, &want, wait);
}

int sheaf_lock_test(struct sheaf_file *f, struct sheaf_lock *l)
{
	const struct wire_lock *found;
	struct wire_lock want;
	struct cop *op;
	int r = lock_of(l, &want);

	if (r || l->type == F_UNLCK)
		return r ? r : -EINVAL;
	op = api_begin(f->fs, &api_no_cred);
	client_lock_test(op, f->f, &want);
	r = (int)api_wait(f->fs, op);
	found = &op->res.lock.found;
	if (!r && found->kind == LOCK_NOTHING)
		l->type = F_UNLCK;
	else if (!r)
		*l = (struct sheaf_lock){ .size = l->size,
					  .type = found->kind == LOCK_EXCLUSIVE ? F_WRLCK : F_RDLCK,
					  .start = found->start,
					  .length = found->last == UINT64_MAX ?
							    0 :
							    found->last - found->start + 1,
					  .owner = found->owner,
					  .pid = found->pid };
	api_release(f->fs, op);
	return r;
}

int sheaf_flock(struct sheaf_file *f, int op, uint64_t owner)
{
	int how = op & ~LOCK_NB;
	struct wire_lock want = { .owner = owner, .last = UINT64_MAX, .whole = true };

	if (how != LOCK_SH && how != LOCK_EX && how != LOCK_UN)
		return -EINVAL;
	want.kind = how == LOCK_SH ? LOCK_SHARED : how == LOCK_EX ? LOCK_EXCLUSIVE : LOCK_NOTHING;
	return lock(f, &want, !(op & LOCK_NB));
}

void sheaf_lock_cancel(struct sheaf *fs, uint64_t owner)
{
	pthread_mutex_lock(&fs->d->lock);
	client_lock_cancel(fs->b.client, owner);
	api_unlock(fs);
}
