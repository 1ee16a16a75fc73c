/* The public interface for event loops: a descriptor that is readable while started operations have
 * ended, and their list.
 *
 * Threads: any; see api.c. While no thread of the application waits, the helper thread drives the
 * links and completes operations. Errors: -errno. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/api_impl.h"

void api_note_done(struct sheaf_op *o)
{
	struct sheaf *fs = o->fs;

	if (fs->done_fd < 0)
		return;
	if (list_empty(&fs->done))
		eventfd_write(fs->done_fd, 1);
	list_push(&fs->done, &o->link);
}

/* The list has become empty: the descriptor is not readable any more. */
static void clear(struct sheaf *fs)
{
	eventfd_t n;

	eventfd_read(fs->done_fd, &n);
}

void api_unlist(struct sheaf_op *o)
{
	struct sheaf *fs = o->fs;
	bool was_listed = !list_empty(&o->link);

	o->op->handle = NULL;
	list_del(&o->link);
	if (was_listed && list_empty(&fs->done))
		clear(fs);
}

int sheaf_fd(struct sheaf *fs)
{
	int fd;

	pthread_mutex_lock(&fs->d->lock);
	if (fs->done_fd < 0)
		fs->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fd = fs->done_fd < 0 ? -errno : fs->done_fd;
	pthread_mutex_unlock(&fs->d->lock);
	return fd;
}

int sheaf_completed(struct sheaf *fs, struct sheaf_op **ops, int max)
{
	struct sheaf_op *o;
	int n = 0;

	pthread_mutex_lock(&fs->d->lock);
	if (list_empty(&fs->done))
		api_poll_links(fs);
	for (; n < max && (o = list_first(&fs->done, struct sheaf_op, link)); n++) {
		list_del(&o->link);
		ops[n] = o;
	}
	if (n && list_empty(&fs->done))
		clear(fs);
	api_unlock(fs);
	return n;
}
