/* Files with locks of NFS clients. A lock belongs to the open that it was taken through, so that
 * open stays while locks are held on the file. The locks are remembered here, by host and owner. */
#include <fcntl.h>
#include <stdlib.h>

#include "nfs/nlm.h"

static struct nlm_file *find(struct nfs_call *c, const struct sheaf_handle *h)
{
	struct hnode *n = htab_first(&c->g->locked_files, hash_u64(h->ino));

	for (; n; n = htab_next(n)) {
		struct nlm_file *f = container_of(n, struct nlm_file, node);

		if (f->h.ino == h->ino && f->session == c->session)
			return f;
	}
	return NULL;
}

struct nlm_file *nlm_file_find(struct nfs_call *c, const struct sheaf_handle *h)
{
	struct nlm_file *f = find(c, h);

	if (f)
		f->refs++;
	return f;
}

int nlm_file_get(struct nfs_call *c, const struct sheaf_handle *h, bool exclusive,
		 struct nlm_file **out)
{
	struct nfs_file *open;
	struct nlm_file *f;
	int r = nfs_file_get(c, h, exclusive, &open); /* may the caller open it so? */

	if (r)
		return r;
	f = find(c, h);
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f || htab_insert(&c->g->locked_files, &f->node, hash_u64(h->ino))) {
			free(f);
			nfs_file_put(c->g, open);
			return -ENOMEM;
		}
		f->g = c->g;
		f->h = *h;
		f->session = c->session; /* its opens keep it */
		c->session->locked_files++;
		list_init(&f->held);
	}
	f->refs++;
	if (f->pin[exclusive])
		nfs_file_put(c->g, open);
	else
		f->pin[exclusive] = open;
	*out = f;
	return 0;
}

void nlm_file_put(struct nlm_file *f)
{
	if (--f->refs || !list_empty(&f->held))
		return;
	htab_remove(&f->g->locked_files, &f->node);
	f->session->locked_files--;
	for (int i = 0; i < 2; i++)
		if (f->pin[i])
			nfs_file_put(f->g, f->pin[i]);
	free(f);
}

static struct range range_of(const struct sheaf_lock *l, uint64_t host)
{
	return (struct range){ .start = l->start,
			       .last = l->length ? l->start + (l->length - 1) : UINT64_MAX,
			       .session = host,
			       .owner = l->owner,
			       .exclusive = l->type == F_WRLCK };
}

int nlm_lock(struct nlm_file *f, uint64_t host, const struct sheaf_lock *l, bool wait)
{
	bool exclusive = l->type == F_WRLCK;
	struct range want = range_of(l, host);
	int r = sheaf_lock(f->pin[exclusive]->f, l, wait), grown;

	if (r)
		return r;
	r = ranges_hold(&f->held, &want, &grown);
	if (r) {
		nlm_unlock(f, host, l);
		return r;
	}
	return 0;
}

int nlm_unlock(struct nlm_file *f, uint64_t host, const struct sheaf_lock *l)
{
	struct sheaf_lock none = *l;
	struct range want = range_of(l, host);
	struct nfs_file *open = f->pin[1] ? f->pin[1] : f->pin[0];
	int r, grown;

	none.type = F_UNLCK;
	r = open ? sheaf_lock(open->f, &none, 0) : 0;
	return r ? r : ranges_release(&f->held, &want, &grown);
}

/* ---- the locks of a host ---- */

struct host_walk {
	uint64_t host;
	const struct nfs_session *session;
	struct nlm_file *found;
};

static void look(struct hnode *n, void *arg)
{
	struct nlm_file *f = container_of(n, struct nlm_file, node);
	struct host_walk *w = arg;
	struct range *r;

	list_for_each(r, &f->held, link)
		if (r->session == w->host)
			w->found = f;
}

static void free_one(struct nlm_file *f, uint64_t host)
{
	struct range *r;

	list_for_each(r, &f->held, link) {
		struct sheaf_lock l = {
			.size = sizeof(l), .type = F_UNLCK, .start = r->start, .owner = r->owner
		};

		if (r->session != host)
			continue;
		l.length = r->last == UINT64_MAX ? 0 : r->last - r->start + 1;
		if (nlm_unlock(f, host, &l) == 0)
			return;
		/* the servers do not answer: their lease will release it */
		ranges_drop(&f->held, host, 0);
		return;
	}
}

void nlm_free_host(struct gateway *g, uint64_t host)
{
	struct host_walk w = { .host = host };

	do {
		w.found = NULL;
		htab_walk(&g->locked_files, look, &w);
		if (w.found) {
			w.found->refs++;
			free_one(w.found, host);
			nlm_file_put(w.found);
		}
	} while (w.found);
}

/* ---- the locks of a session that is lost ---- */

static void find_of_session(struct hnode *n, void *arg)
{
	struct nlm_file *f = container_of(n, struct nlm_file, node);
	struct host_walk *w = arg;

	if (f->session == w->session && !list_empty(&f->held))
		w->found = f;
}

void nlm_forget_session(struct nfs_session *s)
{
	struct host_walk w = { .session = s };

	do {
		w.found = NULL;
		htab_walk(&s->g->locked_files, find_of_session, &w);
		if (w.found) {
			w.found->refs++;
			ranges_free(&w.found->held);
			nlm_file_put(w.found);
		}
	} while (w.found);
}
