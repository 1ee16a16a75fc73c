/* The public interface: opens that several processes use (share.c).
 *
 * Threads: any; see api.c. Buffers: the caller's. Errors: -errno. */
#include <assert.h>
#include <stdlib.h>

#include "client/api_impl.h"

static_assert(SHEAF_TICKET_MAX == TICKET_BYTES_MAX, "the header has the same size");

static int renew(struct sheaf_file *f)
{
	struct cop *op = api_begin(f->fs, &api_no_cred);

	client_renew(op, f->f);
	return (int)api_finish(f->fs, op);
}

ssize_t sheaf_share(struct sheaf_file *f, int fresh, void *ticket, size_t size)
{
	ssize_t r = fresh ? renew(f) : 0;

	if (r < 0)
		return r;
	pthread_mutex_lock(&f->fs->d->lock);
	r = client_ticket(f->f, ticket, size);
	api_unlock(f->fs);
	return r;
}

int sheaf_open_shared(struct sheaf *fs, const void *ticket, size_t len, struct sheaf_file **out)
{
	struct sheaf_file *f = calloc(1, sizeof(*f));
	struct cop *op;
	int r;

	if (!f)
		return -ENOMEM;
	op = api_begin(fs, NULL); /* for the credential of the process */
	r = client_open_ticket(fs->b.client, &op->cred, ticket, len, &f->f);
	if (!r) {
		f->fs = fs;
		f->f->user = f;
	}
	api_release(fs, op);
	if (r)
		free(f);
	else
		*out = f;
	return r;
}

int sheaf_share_renew(struct sheaf_file *f, const void *ticket, size_t len)
{
	int r;

	pthread_mutex_lock(&f->fs->d->lock);
	r = client_take_ticket(f->f, ticket, len);
	api_unlock(f->fs);
	return r;
}
