/* The public interface: listings of directories, by handle and by path.
 *
 * Threads: any; a struct sheaf_dir belongs to one thread at a time. Buffers: a listing by path has
 * a page of entries. Errors: -errno. */
#include <stdlib.h>

#include "client/api_impl.h"

#define DIR_PAGE 512

struct sheaf_dir {
	struct sheaf *fs;
	struct sheaf_handle h;
	uint64_t cookie;
	int n, at;
	bool end;
	struct sheaf_dirent page[DIR_PAGE];
	struct stat *st; /* attributes of the page, or NULL */
};

/* ---- by handle ---- */

/* Reads one page; st NULL: names only. st_nlink 0 marks an inode of another server, or one that is
 * being written. *bare: the caller may not see attributes, only types. */
static int read_page(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		     uint64_t cookie, struct sheaf_dirent *out, struct stat *st, int max,
		     bool *bare)
{
	const struct wire_readdir_res *res;
	struct cop *op;
	int r;

	if (max < 1)
		return -EINVAL;
	op = api_begin(fs, c);
	client_readdir(op, dir, cookie, (uint32_t)max, st != NULL);
	r = (int)api_wait(fs, op);
	res = &op->res.readdir;
	*bare = st && !res->n_attrs;
	if (!r && st && !*bare && res->n_attrs != res->n_entries)
		r = -EBADMSG;
	for (uint32_t i = 0; !r && i < res->n_entries && i < (uint32_t)max; i++) {
		const struct wire_dir_entry *e = &res->entries[i];

		out[i] = (struct sheaf_dirent){
			.ino = e->h.ino, .gen = e->h.gen, .cookie = e->cookie, .type = e->type
		};
		memcpy(out[i].name, e->name.p, e->name.len);
		if (*bare)
			st[i] = (struct stat){ .st_ino = e->h.ino, .st_mode = e->type };
		else if (st)
			attr_to_stat(&res->attrs[i], &st[i]);
		if (st && !*bare && (!res->attrs[i].ino || res->attrs[i].unsettled))
			st[i].st_nlink = 0;
	}
	if (!r)
		r = (int)MIN(res->n_entries, (uint32_t)max);
	api_release(fs, op);
	return r;
}

int sheaf_h_readdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		    uint64_t cookie, struct sheaf_dirent *out, int max)
{
	bool bare;

	return read_page(fs, c, dir, cookie, out, NULL, max, &bare);
}

int sheaf_h_readdir_stat(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			 uint64_t cookie, struct sheaf_dirent *out, struct stat *st, int max)
{
	bool bare;
	int n = read_page(fs, c, dir, cookie, out, st, max, &bare);

	for (int i = 0; i < n && !bare; i++) {
		struct sheaf_handle h = { out[i].ino, out[i].gen };
		int r = st[i].st_nlink ? 0 : sheaf_h_getattr(fs, c, h, &st[i]);

		if (r == -ESTALE || r == -ENOENT) /* removed meanwhile */
			st[i] = (struct stat){ .st_ino = out[i].ino };
		else if (r)
			return r;
	}
	return n;
}

/* ---- by path ---- */

int sheaf_opendir(struct sheaf *fs, const char *path, struct sheaf_dir **out)
{
	struct sheaf_dir *d = calloc(1, sizeof(*d));
	struct stat st;
	int r = d ? api_stat(fs, path, &d->h, &st) : -ENOMEM;

	if (!r && !S_ISDIR(st.st_mode))
		r = -ENOTDIR;
	if (r) {
		free(d);
		return r;
	}
	d->fs = fs;
	*out = d;
	return 0;
}

/* Reads the next page: the number of entries, 0 at the end, or -errno. */
static int turn_page(struct sheaf_dir *d)
{
	int n = 0;

	if (!d->end && d->st)
		n = sheaf_h_readdir_stat(d->fs, NULL, d->h, d->cookie, d->page, d->st, DIR_PAGE);
	else if (!d->end)
		n = sheaf_h_readdir(d->fs, NULL, d->h, d->cookie, d->page, DIR_PAGE);
	d->end |= n == 0;
	d->n = MAX(n, 0);
	d->at = 0;
	return n;
}

int sheaf_readdir(struct sheaf_dir *d, struct sheaf_dirent *e)
{
	int n = d->at == d->n ? turn_page(d) : 1;

	if (n <= 0)
		return n;
	*e = d->page[d->at++];
	d->cookie = e->cookie;
	return 1;
}

int sheaf_readdir_stat(struct sheaf_dir *d, struct sheaf_dirent *e, struct stat *st)
{
	int r;

	if (!d->st) { /* the current page has none: read its rest again */
		d->st = calloc(DIR_PAGE, sizeof(*d->st));
		if (!d->st)
			return -ENOMEM;
		d->at = d->n = 0;
	}
	r = sheaf_readdir(d, e);
	if (r > 0)
		*st = d->st[d->at - 1];
	return r;
}

void sheaf_seekdir(struct sheaf_dir *d, uint64_t cookie)
{
	d->cookie = cookie;
	d->at = d->n = 0;
	d->end = false;
}

void sheaf_closedir(struct sheaf_dir *d)
{
	free(d->st);
	free(d);
}
