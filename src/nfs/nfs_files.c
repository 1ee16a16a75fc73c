/* Open files. NFS has no opens, libsheaf needs them: a file that a client reads or writes is opened
 * for its caller, and closed when it was not used for IDLE_NS. The server checks the access at the
 * open. NFS also lets the owner of a file access it whatever its mode says, since a client checks
 * that at its own open; such files are opened as root. */
#include <fcntl.h>
#include <stdlib.h>

#include "nfs/nfs_priv.h"

#define IDLE_NS (3 * NSEC_PER_SEC)
#define IDLE_MAX 1024 /* open files that nobody uses */
#define REWRITE_NS (30 * NSEC_PER_SEC) /* that clients have to write lost data again */

const struct sheaf_cred cred_gateway = { 0 };

int nfs_files_init(struct gateway *g)
{
	list_init(&g->idle_files);
	return htab_init(&g->files);
}

static bool is_callers(const struct nfs_file *f, const struct nfs_call *c)
{
	return f->uid == c->uid && f->gid == c->gid && f->n_gids == c->n_gids &&
	       memcmp(f->gids, c->gids, c->n_gids * sizeof(c->gids[0])) == 0;
}

static struct nfs_file *find(struct nfs_call *c, const struct sheaf_handle *h, bool writes)
{
	struct hnode *n = htab_first(&c->g->files, hash_u64(h->ino));

	for (; n; n = htab_next(n)) {
		struct nfs_file *f = container_of(n, struct nfs_file, node);

		if (f->h.ino == h->ino && f->h.gen == h->gen && f->writes == writes &&
		    f->session == c->session && is_callers(f, c))
			return f;
	}
	return NULL;
}

static int open_for(struct nfs_call *c, const struct sheaf_handle *h, bool writes,
		    struct sheaf_file **out)
{
	int flags = writes ? O_WRONLY : O_RDONLY;
	int r = sheaf_h_open(c->fs, &c->cred, *h, NULL, flags, 0, NULL, out);

	/* a program that may be executed may be read: pages of it are */
	if (r == -EACCES && (caller_owns(c, h) || (!writes && caller_executes(c, h))))
		r = sheaf_h_open(c->fs, &cred_gateway, *h, NULL, flags, 0, NULL, out);
	return r;
}

static void use(struct nfs_file *f)
{
	f->refs++;
	list_del(&f->link);
	f->used = gateway_now(f->session->g);
}

/* What was written is synced first: data that are lost after the close would be missing for good,
 * and a WRITE behind them refused, before the client has learned from a verifier to repeat them. */
static void destroy(struct nfs_file *f)
{
	int r = f->unsynced ? sheaf_fsync(f->f) : 0, e;

	e = f->writes ? sheaf_close(f->f) : sheaf_close_later(f->f);
	r = r ? r : e;
	if (r)
		log_warn("nfs", "inode %llu: closing it failed: %s", (unsigned long long)f->h.ino,
			 error_text(r));
	nfs_session_put(f->session);
	free(f);
}

int nfs_file_get(struct nfs_call *c, const struct sheaf_handle *h, bool writes,
		 struct nfs_file **out)
{
	struct nfs_file *f = find(c, h, writes), *other;
	struct sheaf_file *sf;
	int r;

	if (!f) {
		r = open_for(c, h, writes, &sf);
		if (r)
			return r;
		f = calloc(1, sizeof(*f));
		if (!f) {
			sheaf_close(sf);
			return -ENOMEM;
		}
		c->session->refs++;
		*f = (struct nfs_file){ .h = *h,
					.session = c->session,
					.writes = writes,
					.uid = c->uid,
					.gid = c->gid,
					.n_gids = c->n_gids,
					.f = sf };
		memcpy(f->gids, c->gids, sizeof(f->gids));
		list_init(&f->link);
		other = find(c, h, writes); /* opened by another call meanwhile */
		if (other)
			use(other); /* destroy() waits for servers: the sweep may not close it */
		if (other || htab_insert(&c->g->files, &f->node, hash_u64(h->ino))) {
			destroy(f);
			*out = other;
			return other ? 0 : -ENOMEM;
		}
	}
	use(f);
	*out = f;
	return 0;
}

void nfs_file_put(struct gateway *g, struct nfs_file *f)
{
	if (--f->refs)
		return;
	if (f->dropped)
		destroy(f);
	else
		list_push(&g->idle_files, &f->link);
}

void nfs_file_drop(struct gateway *g, struct nfs_file *f)
{
	if (!f->dropped)
		htab_remove(&g->files, &f->node);
	f->dropped = true;
}

/* On a task: closing asks a server, and reports what was written. */
static void close_one(void *arg)
{
	destroy(arg);
}

/* False: there is no task for it now. */
static bool close_oldest(struct gateway *g)
{
	struct nfs_file *f = list_first(&g->idle_files, struct nfs_file, link);

	if (!nfs_task_is_free(g))
		return false;
	list_del(&f->link);
	nfs_file_drop(g, f);
	if (nfs_task_start(g, close_one, f))
		close_one(f);
	return true;
}

void nfs_files_sweep(struct gateway *g, uint64_t now)
{
	struct nfs_file *f;

	while ((f = list_first(&g->idle_files, struct nfs_file, link)))
		if ((now - f->used < IDLE_NS && g->files.count <= IDLE_MAX) || !close_oldest(g))
			return;
}

bool nfs_files_is_written(struct gateway *g, const struct sheaf_handle *h)
{
	struct hnode *n = htab_first(&g->files, hash_u64(h->ino));

	for (; n; n = htab_next(n))
		if (container_of(n, struct nfs_file, node)->writes &&
		    container_of(n, struct nfs_file, node)->h.ino == h->ino)
			return true;
	return false;
}

/* An open of this file for writing, of any caller, with data to sync and without this mark. */
static struct nfs_file *find_written(struct gateway *g, const struct sheaf_handle *h, uint64_t mark)
{
	struct hnode *n = htab_first(&g->files, hash_u64(h->ino));

	for (; n; n = htab_next(n)) {
		struct nfs_file *f = container_of(n, struct nfs_file, node);

		if (f->h.ino == h->ino && f->h.gen == h->gen && f->writes && f->unsynced &&
		    f->mark != mark)
			return f;
	}
	return NULL;
}

/* ---- lost data ---- */

static struct nfs_loss *loss_find(struct gateway *g, const struct sheaf_handle *h)
{
	for (unsigned i = 0; i < g->n_losses; i++)
		if (g->losses[i].ino == h->ino && g->losses[i].gen == h->gen)
			return &g->losses[i];
	return NULL;
}

static void loss_end(struct gateway *g, struct nfs_loss *l)
{
	*l = g->losses[--g->n_losses];
}

/* In a full table it takes the place of the oldest. */
static struct nfs_loss *loss_add(struct gateway *g, const struct sheaf_handle *h)
{
	struct nfs_loss *l = g->losses;

	if (g->n_losses < LOSSES_MAX)
		l = &g->losses[g->n_losses++];
	else
		for (unsigned i = 1; i < LOSSES_MAX; i++)
			if (g->losses[i].since < l->since)
				l = &g->losses[i];
	*l = (struct nfs_loss){
		.ino = h->ino, .gen = h->gen, .since = gateway_now(g), .at = UINT64_MAX
	};
	return l;
}

static bool may_end(struct gateway *g, const struct nfs_loss *l)
{
	return gateway_now(g) - l->since < REWRITE_NS;
}

bool nfs_file_has_lost(struct nfs_file *f, uint64_t before, uint64_t verifier, uint64_t at)
{
	struct gateway *g = f->session->g;
	struct nfs_loss *l = loss_find(g, &f->h);

	if (!l && before == verifier)
		return false;
	if (!l)
		l = loss_add(g, &f->h);
	if (at < l->at) {
		l->at = at;
		l->reached = 0;
	}
	l->refused |= at != UINT64_MAX;
	return may_end(g, l);
}

/* The loss has ended when what was refused is written. Writes elsewhere do not show that: they may
 * go to other servers. Writing the same again and again is no progress. */
void nfs_file_wrote(struct nfs_file *f, uint64_t at, uint64_t len)
{
	struct gateway *g = f->session->g;
	struct nfs_loss *l = g->n_losses ? loss_find(g, &f->h) : NULL;

	if (!l)
		return;
	if (at <= l->at && l->at - at < len) {
		loss_end(g, l);
	} else if (at < l->at && at + len > l->reached && may_end(g, l)) {
		l->reached = at + len;
		l->since = gateway_now(g);
	}
}

/* All data of a file were synced, and there were some. That ends a loss, unless some of them were
 * refused and so not among these. */
static void losses_synced(struct gateway *g, const struct sheaf_handle *h)
{
	struct nfs_loss *l = loss_find(g, h);

	if (l && !l->refused)
		loss_end(g, l);
	else if (l)
		l->refused = false;
}

/* ---- syncing ---- */

/* Syncs one open. A server that lost data makes the first sync fail, and its verifier change: then
 * the client writes again, and what is there now must be synced. That fails, too, while the file
 * lacks data that the metadata server knows of: then *lost is set, and clients write again. */
static int sync_one(struct nfs_file *f, uint64_t *verifier, bool *lost, bool *had_data)
{
	uint64_t before = f->verifier;
	int r, v;

	f->unsynced = false; /* a write from now on sets it again */
	r = sheaf_fsync(f->f);
	v = sheaf_file_verifier(f->f, verifier);
	if (r == -EIO && !v && before && before != *verifier)
		r = sheaf_fsync(f->f);
	if (r == -EIO && !v && nfs_file_has_lost(f, before, *verifier, UINT64_MAX)) {
		*lost = true;
		r = 0;
	}
	r = r ? r : v;
	*had_data |= before != 0;
	if (r)
		f->unsynced = true;
	else if (!f->unsynced)
		f->verifier = 0;
	return r;
}

int nfs_files_sync(struct nfs_call *c, const struct sheaf_handle *h, uint64_t *verifier)
{
	uint64_t mark = ++c->g->next_mark; /* no open is synced twice, however many writes come */
	struct nfs_file *f = find_written(c->g, h, mark);
	bool lost = false, had_data = false;
	int r = 0;

	if (f)
		use(f);
	else
		r = nfs_file_get(c, h, true, &f);
	while (!r && f) {
		f->mark = mark;
		r = sync_one(f, verifier, &lost, &had_data);
		nfs_file_put(c->g, f);
		f = r ? NULL : find_written(c->g, h, mark);
		if (f)
			use(f);
	}
	if (!r && had_data && !lost)
		losses_synced(c->g, h);
	if (lost)
		*verifier |= NO_VERIFIER;
	return r;
}

void nfs_files_close(struct gateway *g)
{
	while (!list_empty(&g->idle_files) && close_oldest(g))
		;
}

void nfs_files_end(struct gateway *g)
{
	htab_destroy(&g->files);
}
