/* The public interface: handing a connection to another process. See api.c for threads, takeover.c
 * for what is handed over.
 *
 * Buffers: the whole export is in memory for a moment. Errors: a descriptor that cannot be read or
 * written; imported bytes are checked before anything connects. */
#include <stdlib.h>
#include <unistd.h>

#include "client/api_impl.h"

static int write_all(int fd, const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w ? -errno : -ENOSPC;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

static int read_all(int fd, uint8_t *p, size_t n)
{
	while (n) {
		ssize_t r = read(fd, p, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			why_set("an exported connection cannot be read: %s",
				r ? error_text(errno) : "it ends too early");
			return r ? -errno : -EBADMSG;
		}
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

static int write_export(int fd, const struct wire_bytes *b)
{
	struct wire_export_head h = { .magic = EXPORT_MAGIC,
				      .version = EXPORT_VERSION,
				      .length = b->len,
				      .crc = crc32c(0, b->p, b->len) };
	uint8_t head[EXPORT_HEAD];
	struct xdr x;
	int r;

	xdr_encoder(&x, head, sizeof(head));
	if (!xdr_wire_export_head(&x, &h))
		return -EMSGSIZE;
	r = write_all(fd, head, sizeof(head));
	return r ? r : write_all(fd, b->p, b->len);
}

static int read_head(int fd, struct wire_export_head *h)
{
	uint8_t head[EXPORT_HEAD];
	struct xdr x;
	int r = read_all(fd, head, sizeof(head));

	if (r)
		return r;
	xdr_decoder(&x, head, sizeof(head), NULL);
	if (!xdr_wire_export_head(&x, h) || h->magic != EXPORT_MAGIC) {
		why_set("this is no exported connection");
		return -EBADMSG;
	}
	if (h->version != EXPORT_VERSION) {
		why_set("the connection was exported as version %u, and this program reads version "
			"%u: import it with a program that is as new as the one it comes from",
			h->version, EXPORT_VERSION);
		return -EPROTONOSUPPORT;
	}
	if (h->length > EXPORT_MAX) {
		why_set("an exported connection is damaged");
		return -EBADMSG;
	}
	return 0;
}

int export_read(int fd, struct wire_bytes *out)
{
	struct wire_export_head h;
	uint8_t *p;
	int r = read_head(fd, &h);

	if (r)
		return r;
	p = malloc(h.length ? h.length : 1);
	if (!p)
		return -ENOMEM;
	r = read_all(fd, p, h.length);
	if (!r && crc32c(0, p, h.length) != h.crc) {
		why_set("an exported connection is damaged");
		r = -EBADMSG;
	}
	if (r) {
		free(p);
		return r;
	}
	*out = (struct wire_bytes){ (uint32_t)h.length, p };
	return 0;
}

int sheaf_export(struct sheaf *fs, int fd)
{
	struct client *c = fs->b.client;
	struct wire_bytes b;
	int r;

	if (c->net->hub) /* its servers run in this process */
		return -EOPNOTSUPP;
	pthread_mutex_lock(&fs->d->lock);
	r = client_export(c, &b);
	if (!r) {
		r = write_export(fd, &b);
		if (r)
			client_resume(c);
		free((void *)(uintptr_t)b.p);
	}
	api_unlock(fs);
	return r;
}

int sheaf_resume(struct sheaf *fs)
{
	pthread_mutex_lock(&fs->d->lock);
	if (fs->b.client->halted)
		client_resume(fs->b.client);
	api_unlock(fs);
	return 0;
}

void sheaf_abandon(struct sheaf *fs)
{
	struct cfile *f;

	if (!fs)
		return;
	list_for_each(f, &fs->b.client->files, link)
		free(f->user);
	api_free(fs);
}

int sheaf_import_file(struct sheaf *fs, uint64_t id, struct sheaf_file **out)
{
	struct sheaf_file *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	pthread_mutex_lock(&fs->d->lock);
	*f = (struct sheaf_file){ fs, client_imported(fs->b.client, id) };
	if (f->f)
		f->f->user = f;
	pthread_mutex_unlock(&fs->d->lock);
	if (!f->f) {
		free(f);
		return -ENOENT;
	}
	*out = f;
	return 0;
}

uint64_t sheaf_file_id(struct sheaf_file *f)
{
	return cfile_id(f->f);
}
