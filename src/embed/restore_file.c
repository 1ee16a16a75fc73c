/* sheaf_backup_check() and sheaf_restore(): a backup is read, verified, and restored server by
 * server.
 *
 * Threads: the caller's; blocks. Errors: -errno; sheaf_why() names the fault and the remedy. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/client.h"
#include "embed/backup_file.h"
#include "embed/embed.h"
#include "server/server.h"

static int bad(const char *file, const char *what)
{
	return why_fail(-EBADMSG, "%s: %s", file, what);
}

static int check_rows(const char *file, const struct backup *b, uint64_t size)
{
	if (b->head.crc != backup_crc(b))
		return bad(file, "the backup is damaged (checksum of its head); use another one");
	for (uint32_t i = 0; i < b->head.n_parts; i++) {
		const struct backup_part *p = &b->parts[i];

		if (p->offset > size || p->size > size - p->offset)
			return bad(file, "the backup was cut off; use another one");
	}
	return 0;
}

/* Opens a backup and reads its head. The descriptor, or -errno. */
static int open_backup(const char *file, struct backup *b, uint64_t *size)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC), r;
	struct backup_head *h = &b->head;
	struct stat st;
	size_t rows;

	if (fd < 0 || fstat(fd, &st) < 0) {
		r = why_fail(-errno, "%s cannot be read: %s", file, strerror(errno));
		if (fd >= 0)
			close(fd);
		return r;
	}
	*size = (uint64_t)st.st_size;
	if (pread(fd, h, sizeof(*h), 0) != (ssize_t)sizeof(*h) ||
	    memcmp(h->magic, BACKUP_MAGIC, sizeof(h->magic)) != 0) {
		r = bad(file, "this is no backup of Sheaf");
	} else if (h->version > BACKUP_VERSION) {
		r = bad(file, "made by a newer Sheaf; install that version");
	} else {
		rows = MIN(h->n_parts, (uint32_t)CONF_MAX_TARGETS) * sizeof(b->parts[0]);
		if (h->n_parts > CONF_MAX_TARGETS ||
		    pread(fd, b->parts, rows, sizeof(*h)) != (ssize_t)rows)
			r = bad(file, "the backup is damaged; use another one");
		else
			r = check_rows(file, b, *size);
	}
	if (r)
		close(fd);
	return r ? r : fd;
}

static int check_part(const char *file, int fd, const struct backup_part *p)
{
	uint8_t *buf = malloc(MIB);
	uint64_t at = 0;
	uint32_t crc = 0;

	if (!buf)
		return -ENOMEM;
	while (at < p->size) {
		ssize_t n = pread(fd, buf, MIN(p->size - at, MIB), (off_t)(p->offset + at));

		if (n <= 0)
			break;
		crc = crc32c(crc, buf, (size_t)n);
		at += (uint64_t)n;
	}
	free(buf);
	return at == p->size && crc == p->crc ?
		       0 :
		       bad(file, "the backup is damaged (checksum); use another one");
}

int sheaf_backup_check(const char *file, struct sheaf_backup *out)
{
	struct backup *b;
	int fd, r = 0;

	if (out->size < sizeof(*out))
		return -EINVAL;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	fd = open_backup(file, b, &out->bytes);
	if (fd >= 0) {
		out->servers = b->head.n_parts;
		out->time = b->head.time;
		for (uint32_t i = 0; !r && i < b->head.n_parts; i++) {
			out->ids[i] = b->parts[i].target;
			r = check_part(file, fd, &b->parts[i]);
		}
		close(fd);
	}
	free(b);
	return fd < 0 ? fd : r;
}

static int restore_part(const struct conf *c, const char *file, int fd, const struct backup *b,
			uint32_t target, bool force)
{
	char err[CONF_PATH_MAX + 512] = "", theirs[UUID_TEXT], ours[UUID_TEXT];
	struct uuid fs;
	int r;

	memcpy(fs.b, b->head.fs, sizeof(fs.b));
	if (memcmp(fs.b, c->fs_id.b, sizeof(fs.b)) != 0) {
		uuid_format(theirs, &fs);
		uuid_format(ours, &c->fs_id);
		return why_fail(-EXDEV, "%s is of file system %s, not of %s", file, theirs, ours);
	}
	for (uint32_t i = 0; i < b->head.n_parts; i++) {
		const struct backup_part *p = &b->parts[i];
		const struct server_part part = { fd, p->offset, p->size, p->crc, b->head.time };

		if (p->target != target)
			continue;
		r = server_restore(env_real(), c, target, &part, force, err, sizeof(err));
		return r ? why_fail(r, "%s", err) : 0;
	}
	return why_fail(-ENOENT, "%s has no metadata of %s", file, c->targets[target].name);
}

/* Loads the cluster file of --conf, or that of local:DIR, which must have server `id`. */
static int load_conf(const char *conf, int id, struct conf **out)
{
	char found[CONF_PATH_MAX], path[CONF_PATH_MAX + 16], err[CONF_PATH_MAX + 512] = "";
	int r = conf_find(conf, found, sizeof(found), err, sizeof(err));

	if (!r) {
		if (strncmp(found, "local:", 6) == 0)
			snprintf(path, sizeof(path), "%s/sheaf.conf", found + 6);
		else
			snprintf(path, sizeof(path), "%s", found);
		r = conf_load(path, out, err, sizeof(err));
	}
	if (r)
		return why_fail(r, "%s", err);
	if (id < 0 || (uint32_t)id >= (*out)->n_targets)
		return why_fail(-EINVAL, "%s has no server %d", (*out)->path, id);
	return 0;
}

int sheaf_restore(const char *conf, const char *file, int id, int force)
{
	struct backup *b = calloc(1, sizeof(*b));
	struct conf *c = NULL;
	uint64_t size;
	int fd = -1, r = b ? load_conf(conf, id, &c) : -ENOMEM;

	if (!r) {
		fd = open_backup(file, b, &size);
		r = fd < 0 ? fd : restore_part(c, file, fd, b, (uint32_t)id, force);
	}
	if (fd >= 0)
		close(fd);
	conf_free(c);
	free(b);
	return r;
}

typedef int format_fn(struct env *e, const struct conf *c, uint32_t target, char *err, size_t n);

static int format_with(const char *conf, int id, format_fn *fn)
{
	char err[CONF_PATH_MAX + 512] = "";
	struct conf *c = NULL;
	int r = load_conf(conf, id, &c);

	if (!r) {
		r = fn(env_real(), c, (uint32_t)id, err, sizeof(err));
		if (r < 0)
			why_set("%s", err);
	}
	conf_free(c);
	return r;
}

int sheaf_server_format(const char *conf, int id)
{
	return format_with(conf, id, server_format_again);
}

int sheaf_server_format_lost(const char *conf, int id)
{
	return format_with(conf, id, server_format_lost);
}
