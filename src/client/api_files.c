/* The public interface: open files, except for reads and writes (api_io.c).
 *
 * Threads: any; see api.c. Errors: -errno. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/api_impl.h"

struct sheaf_handle sheaf_root(struct sheaf *fs)
{
	(void)fs;
	return (struct sheaf_handle){ 1, 1 };
}

struct open_how {
	const char *name;
	int flags;
	mode_t mode;
	const struct sheaf_layout *layout;
};

static int open_stat(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		     const struct open_how *h, struct sheaf_file **out, struct stat *st,
		     unsigned *what)
{
	struct sheaf_file *f = calloc(1, sizeof(*f));
	struct cop *op;
	int r;

	api_set_dirs_after(NULL);
	if (!f)
		return -ENOMEM;
	op = api_begin(fs, c);
	client_open(op, dir, h->name ? h->name : "", h->flags, h->mode, h->layout);
	r = (int)api_wait(fs, op);
	f->fs = fs;
	f->f = op->file;
	if (!r) {
		f->f->user = f;
		attr_to_stat(&op->res.open.at, st);
		api_set_dirs_after(&op->res.open.after);
		*what = op->res.open.created	  ? SHEAF_OPEN_CREATED :
			op->res.open.at.unsettled ? SHEAF_OPEN_GROWING :
						    0;
	}
	api_release(fs, op);
	if (r)
		free(f);
	else
		*out = f;
	return r;
}

int sheaf_h_open_stat(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		      const char *name, int flags, mode_t mode, const struct sheaf_layout *layout,
		      struct sheaf_file **out, struct stat *st, unsigned *what)
{
	return open_stat(
		fs, c, dir,
		&(struct open_how){ .name = name, .flags = flags, .mode = mode, .layout = layout },
		out, st, what);
}

int sheaf_h_open(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		 const char *name, int flags, mode_t mode, const struct sheaf_layout *layout,
		 struct sheaf_file **f)
{
	struct stat st;
	unsigned what;

	return sheaf_h_open_stat(fs, c, dir, name, flags, mode, layout, f, &st, &what);
}

int sheaf_open(struct sheaf *fs, const char *path, int flags, mode_t mode,
	       const struct sheaf_layout *layout, struct sheaf_file **f)
{
	return sheaf_h_open(fs, NULL, sheaf_root(fs), path, flags, mode, layout, f);
}

static int close_file(struct sheaf_file *f, bool may_defer)
{
	struct sheaf *fs = f->fs;
	struct cop *op;
	int r;

	pthread_mutex_lock(&fs->d->lock);
	api_poll_links(fs);
	pthread_mutex_unlock(&fs->d->lock);
	op = api_begin(fs, NULL);
	op->may_defer = may_defer;
	client_close(op, f->f);
	r = (int)api_finish(fs, op);
	free(f);
	return r;
}

int sheaf_close(struct sheaf_file *f)
{
	return close_file(f, false);
}

int sheaf_close_later(struct sheaf_file *f)
{
	return close_file(f, true);
}

int sheaf_flush(struct sheaf_file *f)
{
	struct sheaf *fs = f->fs;
	struct cop *op;
	bool clean;

	pthread_mutex_lock(&fs->d->lock);
	api_poll_links(fs);
	clean = cfile_clean(f->f);
	api_unlock(fs);
	if (clean)
		return 0;
	op = api_begin(fs, NULL);
	client_flush(op, f->f);
	return (int)api_finish(fs, op);
}

int sheaf_file_verifier(struct sheaf_file *f, uint64_t *verifier)
{
	struct sheaf *fs = f->fs;
	struct cop *op;
	int64_t r;
	bool known;

	pthread_mutex_lock(&fs->d->lock);
	known = cfile_verifier(f->f, verifier);
	api_unlock(fs);
	if (known)
		return 0;
	op = api_begin(fs, NULL);
	client_verifier(op, f->f);
	r = api_finish(fs, op);
	if (r < 0)
		return (int)r;
	*verifier = (uint64_t)r;
	return 0;
}

struct sheaf_handle sheaf_file_handle(struct sheaf_file *f)
{
	return cfile_handle(f->f);
}

uint64_t sheaf_file_change(struct sheaf_file *f)
{
	return f->f->opened_change;
}

int sheaf_fsync(struct sheaf_file *f)
{
	struct cop *op = api_begin(f->fs, NULL);

	client_fsync(op, f->f);
	return (int)api_finish(f->fs, op);
}

int sheaf_fstat(struct sheaf_file *f, struct stat *st)
{
	return sheaf_h_getattr(f->fs, NULL, cfile_handle(f->f), st);
}

int sheaf_ftruncate(struct sheaf_file *f, off_t size)
{
	struct cop *op;

	if (size < 0 || !(f->f->flags & OPEN_WRITE))
		return -EINVAL;
	op = api_begin(f->fs, NULL);
	client_ftruncate(op, f->f, (uint64_t)size);
	return (int)api_finish(f->fs, op);
}

static int allocate_mode(int mode, uint32_t *out)
{
	switch (mode) {
	case 0:
	case FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
		*out = (uint32_t)mode; /* the wire uses the same values */
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

int sheaf_fallocate(struct sheaf_file *f, int mode, off_t off, off_t len)
{
	uint32_t how;
	int64_t r = off < 0 || len <= 0 ? -EINVAL : allocate_mode(mode, &how);
	struct cop *op;

	if (r)
		return (int)r;
	op = api_begin(f->fs, &api_no_cred);
	client_allocate(op, f->f, how, (uint64_t)off, (uint64_t)len);
	r = api_finish(f->fs, op);
	return r < 0 ? (int)r : 0;
}

off_t sheaf_seek(struct sheaf_file *f, off_t off, int whence)
{
	struct cop *op;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	if (off < 0)
		return -ENXIO;
	op = api_begin(f->fs, &api_no_cred);
	client_seek(op, f->f, (uint64_t)off, whence == SEEK_HOLE);
	return api_finish(f->fs, op);
}

ssize_t sheaf_copy_range(struct sheaf_file *in, off_t off_in, struct sheaf_file *out, off_t off_out,
			 size_t len)
{
	struct cop *op;

	if (in->fs != out->fs)
		return -EXDEV;
	if (off_in < 0 || off_out < 0)
		return -EINVAL;
	op = api_begin(out->fs, &api_no_cred);
	client_copy(op, in->f, (uint64_t)off_in, out->f, (uint64_t)off_out, len);
	return api_finish(out->fs, op);
}
