/* sheaf_backup(): copies the metadata of all metadata servers into one file, while they run.
 *
 * All servers begin their copies at the same moment; then each copy is fetched in chunks. The head
 * is written after all the rest is synced, so an interrupted backup has no valid head and is
 * refused. Threads: the caller's; blocks. Buffers: one chunk. Errors: -errno and a text in
 * sheaf_why(); then there is no file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"
#include "embed/backup_file.h"
#include "embed/embed.h"

#define NAP_MS 20 /* between polls of an incomplete copy */

struct saving {
	struct sheaf *fs;
	struct backup b;
	uint64_t ids[CONF_MAX_TARGETS]; /* of the servers' copies, by part */
	uint64_t end; /* current length of the file */
	int fd;
	uint8_t data[BACKUP_CHUNK];
};

uint32_t backup_crc(const struct backup *b)
{
	uint32_t crc = crc32c(0, &b->head, offsetof(struct backup_head, crc));

	return crc32c(crc, b->parts, b->head.n_parts * sizeof(b->parts[0]));
}

static int begin_all(struct saving *s)
{
	struct backup_head *h = &s->b.head;
	int n = sheaf_server_count(s->fs), r = 0;

	for (uint32_t i = 0; !r && (int)i < n; i++) {
		struct wire_backup_res res = { 0 };

		if (!api_is_meta(s->fs, i))
			continue;
		r = api_backup(s->fs, i, 0, 0, &res, s->data);
		if (r)
			break;
		if (!h->n_parts) {
			h->time = res.time;
			memcpy(h->fs, res.fs_id, sizeof(h->fs));
		}
		h->time = MIN(h->time, res.time);
		s->ids[h->n_parts] = res.id;
		s->b.parts[h->n_parts++] = (struct backup_part){ .target = i,
								 .partition = res.partition,
								 .schema = res.schema };
	}
	s->end = sizeof(*h) + h->n_parts * sizeof(s->b.parts[0]);
	return r;
}

static int put(struct saving *s, const void *p, size_t n, uint64_t at)
{
	while (n) {
		ssize_t w = pwrite(s->fd, p, n, (off_t)at);

		if (w <= 0)
			return why_fail(w ? -errno : -ENOSPC, "cannot write the backup: %s",
					error_text(w ? errno : ENOSPC));
		p = (const uint8_t *)p + w;
		at += (uint64_t)w;
		n -= (size_t)w;
	}
	return 0;
}

static void nap(void)
{
	struct timespec t = { 0, NAP_MS * 1000000 };

	nanosleep(&t, NULL);
}

static int fetch(struct saving *s, uint32_t i)
{
	struct backup_part *p = &s->b.parts[i];
	struct wire_backup_res res;
	uint64_t at = 0;
	int r;

	p->offset = s->end;
	do {
		r = api_backup(s->fs, p->target, s->ids[i], at, &res, s->data);
		if (r == -EAGAIN) {
			nap();
			continue;
		}
		if (!r && !res.data.len && at < res.size)
			r = -EBADMSG;
		if (!r)
			r = put(s, s->data, res.data.len, s->end);
		if (r)
			return r;
		p->crc = crc32c(p->crc, s->data, res.data.len);
		p->size = res.size;
		at += res.data.len;
		s->end += res.data.len;
	} while (r == -EAGAIN || at < p->size);
	return 0;
}

static int sync_backup(struct saving *s)
{
	if (fsync(s->fd) == 0)
		return 0;
	return why_fail(-errno, "cannot sync the backup: %s", error_text(errno));
}

static int save(struct saving *s)
{
	struct backup_head *h = &s->b.head;
	int r = begin_all(s);

	for (uint32_t i = 0; !r && i < h->n_parts; i++)
		r = fetch(s, i);
	if (r)
		return r;
	memcpy(h->magic, BACKUP_MAGIC, sizeof(h->magic));
	h->version = BACKUP_VERSION;
	h->crc = backup_crc(&s->b);
	r = put(s, s->b.parts, h->n_parts * sizeof(s->b.parts[0]), sizeof(*h));
	if (!r)
		r = sync_backup(s);
	if (!r)
		r = put(s, h, sizeof(*h), 0);
	return r ? r : sync_backup(s);
}

int sheaf_backup(struct sheaf *fs, const char *file, struct sheaf_backup *out)
{
	struct saving *s;
	int r;

	if (out->size < sizeof(*out))
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->fs = fs;
	s->fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (s->fd < 0) {
		r = -errno;
		why_set("%s: %s", file,
			r == -EEXIST ? "there is such a file; choose another name" : strerror(-r));
	} else {
		r = save(s);
		close(s->fd);
		if (r)
			unlink(file);
	}
	out->servers = s->b.head.n_parts;
	out->bytes = s->end;
	out->time = s->b.head.time;
	for (uint32_t i = 0; i < out->servers; i++)
		out->ids[i] = s->b.parts[i].target;
	free(s);
	return r;
}
