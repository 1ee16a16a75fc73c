/* Locks that clients wait for. Each waits on a task of its own; when it is granted, the client is
 * called (NLM_GRANTED, over UDP). A client that does not confirm does not get the lock. */
#include <stdlib.h>

#include "nfs/nlm.h"

#define WAITS_MAX 128 /* each has a task */
#define ARENA_MAX (16 * KIB)

struct wait {
	struct list link; /* in g->lock_waits */
	struct gateway *g;
	struct nlm_file *file;
	struct sheaf_lock lock;
	uint64_t host;
	struct origin from;
	struct arena arena; /* what `granted` refers to */
	struct wire_nlm4_test_args granted;
	bool cancelled;
};

static bool copy(struct wait *w, struct wire_bytes *out, const struct wire_bytes *in)
{
	uint8_t *p = arena_alloc(&w->arena, MAX(in->len, 1));

	if (p && in->len)
		memcpy(p, in->p, in->len);
	*out = (struct wire_bytes){ in->len, p };
	return p;
}

/* Does the client take the lock? */
static bool tell(struct wait *w)
{
	struct wire_nlm4_res r = { .status = NLM_FAILED };
	struct rpc_question q = { .program = NLM_PROGRAM,
				  .version = NLM_VERSION,
				  .procedure = NLM_GRANTED,
				  .args = XDR_ANY(xdr_wire_nlm4_test_args),
				  .a = &w->granted,
				  .res = XDR_ANY(xdr_wire_nlm4_res),
				  .r = &r };
	uint16_t port = portmap_port_of(w->g, &w->from, NLM_PROGRAM, NLM_VERSION);
	char from[ORIGIN_TEXT];

	if (port && rpc_ask(w->g, &w->from, port, &q) == 0)
		return r.status == NLM_OK;
	origin_format(from, &w->from);
	log_warn("nfs", "the lock manager of %s does not answer: it does not get its lock", from);
	return false;
}

/* Waits until it has the lock, or is cancelled. A cancel ends all waits of the owner in libsheaf:
 * those for other files begin again. */
static int await(struct wait *w)
{
	int r = -EINTR;

	while (r == -EINTR && !w->cancelled)
		r = nlm_lock(w->file, w->host, &w->lock, true);
	return r;
}

static void run(void *arg)
{
	struct wait *w = arg;
	int r = await(w);

	if (!r && (w->cancelled || !tell(w)))
		nlm_unlock(w->file, w->host, &w->lock);
	list_del(&w->link);
	w->g->n_lock_waits--;
	nlm_file_put(w->file);
	arena_destroy(&w->arena);
	free(w);
}

int nlm_wait_start(struct nfs_call *c, struct nlm_file *f, const struct wire_nlm4_lock_args *a,
		   uint64_t host, const struct sheaf_lock *l)
{
	struct wait *w;

	if (c->g->n_lock_waits == WAITS_MAX || c->g->stopping)
		return -ENOLCK;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	arena_init(&w->arena, ARENA_MAX);
	*w = (struct wait){
		.g = c->g, .file = f, .lock = *l, .host = host, .from = c->from, .arena = w->arena
	};
	w->granted = (struct wire_nlm4_test_args){ .exclusive = a->exclusive, .lock = a->lock };
	if (!copy(w, &w->granted.cookie, &a->cookie) ||
	    !copy(w, &w->granted.lock.caller, &a->lock.caller) ||
	    !copy(w, &w->granted.lock.file, &a->lock.file) ||
	    !copy(w, &w->granted.lock.owner, &a->lock.owner) || !nfs_task_is_free(c->g)) {
		arena_destroy(&w->arena);
		free(w);
		return -ENOLCK;
	}
	f->refs++;
	list_push(&c->g->lock_waits, &w->link);
	c->g->n_lock_waits++;
	if (nfs_task_later(c->g, run, w)) {
		list_del(&w->link);
		c->g->n_lock_waits--;
		f->refs--;
		arena_destroy(&w->arena);
		free(w);
		return -ENOLCK;
	}
	return 0;
}

static bool is_same(const struct wait *w, uint64_t host, const struct sheaf_lock *l)
{
	return w->host == host && w->lock.owner == l->owner && w->lock.start == l->start &&
	       w->lock.length == l->length;
}

bool nlm_wait_find(struct nfs_call *c, const struct sheaf_handle *h, uint64_t host,
		   const struct sheaf_lock *l, bool cancel)
{
	struct wait *w;

	list_for_each(w, &c->g->lock_waits, link) {
		if (w->file->session != c->session || w->file->h.ino != h->ino ||
		    !is_same(w, host, l) || w->cancelled)
			continue;
		w->cancelled = cancel;
		if (cancel)
			sheaf_lock_cancel(w->file->session->fs, l->owner);
		return true;
	}
	return false;
}

void nlm_cancel_all(struct gateway *g)
{
	struct wait *w;

	list_for_each(w, &g->lock_waits, link) {
		w->cancelled = true;
		sheaf_lock_cancel(w->file->session->fs, w->lock.owner);
	}
}
