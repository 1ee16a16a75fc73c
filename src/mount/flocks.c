/* Locks, which the metadata servers hold across all mounts.
 *
 * Taking a lock drops the kernel's pages of the file, so that what the previous holder wrote is
 * read. Releasing a lock first writes back what was written through a mapping. Byte-range locks
 * belong to a process: closing any of its descriptors of the file releases them, so holders are
 * recorded. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

#include "mount/mount_priv.h"

static uint64_t holder_hash(uint64_t ino, uint64_t owner)
{
	return hash_u64(ino) ^ hash_u64(owner + 1);
}

/* Under mount.lock. */
static struct holder *holder_find(struct mount *m, uint64_t ino, uint64_t owner)
{
	struct hnode *n = htab_first(&m->holders, holder_hash(ino, owner));

	for (; n; n = htab_next(n)) {
		struct holder *h = container_of(n, struct holder, node);

		if (h->ino == ino && h->owner == owner)
			return h;
	}
	return NULL;
}

/* Called before a lock is requested. */
int holder_add(struct mount *m, uint64_t ino, uint64_t owner)
{
	struct holder *h;
	int r = 0;

	pthread_mutex_lock(&m->lock);
	if (!holder_find(m, ino, owner)) {
		h = calloc(1, sizeof(*h));
		if (h) {
			h->ino = ino;
			h->owner = owner;
		}
		if (!h || htab_insert(&m->holders, &h->node, holder_hash(ino, owner))) {
			free(h);
			r = -ENOMEM;
		}
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

static bool is_holder(struct mount *m, uint64_t ino, uint64_t owner)
{
	bool yes;

	pthread_mutex_lock(&m->lock);
	yes = holder_find(m, ino, owner);
	pthread_mutex_unlock(&m->lock);
	return yes;
}

static bool holder_remove(struct mount *m, uint64_t ino, uint64_t owner)
{
	struct holder *h;

	pthread_mutex_lock(&m->lock);
	h = holder_find(m, ino, owner);
	if (h)
		htab_remove(&m->holders, &h->node);
	pthread_mutex_unlock(&m->lock);
	free(h);
	return h;
}

bool locks_close(struct worker *w, struct mfile *f, uint64_t owner)
{
	struct mount *m = w->m;
	struct sheaf_lock all = { .size = sizeof(all), .type = F_UNLCK, .owner = owner };
	int r;

	if (!is_holder(m, f->ino, owner))
		return true;
	if (!runs_on_thread(w))
		return false;
	if (!holder_remove(m, f->ino, owner))
		return true;
	worker_begin_wait(w, owner); /* another thread may have to write pages first */
	fuse_lowlevel_notify_inval_inode(m->se, f->ino, 0, 0);
	r = sheaf_lock(f->f, &all, 0);
	if (!r)
		return true;
	holder_add(m, f->ino, owner); /* the next close tries again */
	log_warn("mount", "inode %llx: releasing its locks failed: %s", (unsigned long long)f->ino,
		 error_text(r));
	return true;
}

static struct sheaf_lock lock_of(const struct flock *l, const struct fuse_file_info *fi)
{
	return (struct sheaf_lock){ .size = sizeof(struct sheaf_lock),
				    .type = (uint32_t)l->l_type,
				    .start = (uint64_t)l->l_start,
				    .length = (uint64_t)l->l_len,
				    .owner = fi->lock_owner,
				    .pid = (uint32_t)l->l_pid };
}

void op_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l)
{
	struct worker *w = req_begin(req);
	struct mfile *f = file_get(w->m, fi->fh);
	struct sheaf_lock k = lock_of(l, fi);
	int r = f ? sheaf_lock_test(f->f, &k) : -EBADF;

	(void)ino;
	if (f)
		file_put(w->m, f);
	*l = (struct flock){ .l_type = (short)k.type, .l_whence = SEEK_SET };
	if (k.type != F_UNLCK) {
		l->l_start = (off_t)k.start;
		l->l_len = (off_t)k.length;
		l->l_pid = (pid_t)k.pid;
	}
	req = req_take_result(w, r);
	if (req)
		fuse_reply_lock(req, l);
}

/* Requests a lock, and again if a cancel was meant for another wait of the same owner. */
static int ask(struct worker *w, struct mfile *f, const struct sheaf_lock *k, int flock_op,
	       bool wait)
{
	int r;

	do
		r = flock_op ? sheaf_flock(f->f, flock_op, k->owner) : sheaf_lock(f->f, k, wait);
	while (r == -EINTR && !worker_was_cancelled(w));
	return r;
}

/* Releases a lock that was granted to an abandoned request. */
static void undo(struct mfile *f, struct sheaf_lock k, int flock_op)
{
	k.type = F_UNLCK;
	if (flock_op)
		sheaf_flock(f->f, LOCK_UN, k.owner);
	else
		sheaf_lock(f->f, &k, 0);
}

/* flock_op 0: a byte-range lock. */
static void lock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct sheaf_lock k,
		 int flock_op, bool wait)
{
	struct worker *w = req_begin(req);
	struct mount *m = w->m;
	bool here = runs_on_thread(w);
	struct mfile *f = here ? file_get(m, fi->fh) : NULL;
	bool letting_go = flock_op ? (flock_op & ~LOCK_NB) == LOCK_UN : k.type == F_UNLCK;
	bool weaker = letting_go || (flock_op ? (flock_op & LOCK_SH) : k.type == F_RDLCK);
	int r = f ? worker_begin_wait(w, k.owner) : -EBADF;

	if (!here)
		return;
	/* Write back what was written under the stronger lock, for the next holder. */
	if (!r && weaker)
		fuse_lowlevel_notify_inval_inode(m->se, ino, 0, 0);
	if (!r && !letting_go && !flock_op)
		r = holder_add(m, f->ino, k.owner);
	if (!r)
		r = ask(w, f, &k, flock_op, wait);
	if (!r && !letting_go)
		fuse_lowlevel_notify_inval_inode(m->se, ino, 0, 0);
	if (r == -EINTR && !worker_interrupted(w)) { /* a stop: the successor asks again */
		req_resend(w);
	} else if (!req_answer(w, r) && !r && !letting_go) {
		undo(f, k, flock_op);
	}
	if (f)
		file_put(m, f);
}

void op_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l, int wait)
{
	lock(req, ino, fi, lock_of(l, fi), 0, wait);
}

void op_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	struct sheaf_lock k = { .size = sizeof(k), .owner = fi->lock_owner };

	lock(req, ino, fi, k, op, !(op & (LOCK_NB | LOCK_UN)));
}
