/* The owner of a storage directory, and the check that all its parts belong together.
 *
 * `sheaf.id` names the file system, the server, and the incarnation of the storage: a random number
 * chosen when it is formatted. Every start is counted: the new count is written to each part first
 * (objects/stamp here, a row of the metadata elsewhere), then to sheaf.id. So the parts have the
 * count of sheaf.id, or one more after a crash in between. A part without a stamp is missing (a
 * lost directory, a disk that is not mounted), a part with a lower count is older than the rest (a
 * restored copy), a part with another incarnation is foreign. The server refuses all three.
 *
 * Threads: the loop's; blocks, at start. Errors: -errno, and one line with the part and the
 * remedy. */
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>

#include "disk/disk_impl.h"

#define STAMP_NAME "stamp"

static const uint8_t id_magic[8] = { 'S', 'H', 'E', 'A', 'F', 'I', 'D', 0 };
static const uint8_t stamp_magic[8] = { 'S', 'H', 'F', 'S', 'T', 'A', 'M', 'P' };

static void id_encode(struct disk_id *id, const struct uuid *fs, uint32_t target)
{
	id->version = htole32(DISK_VERSION);
	id->target = htole32(target);
	memcpy(id->fs, fs->b, sizeof(id->fs));
	disk_seal(id, sizeof(*id), id_magic);
}

/* ---------------------------------------------------------------- stamps of parts */

/* Overwrites in place: a server must start on a full disk, too. 32 bytes are written atomically. */
static int stamp_write(struct env *e, int dir, const struct stamp *s)
{
	struct disk_stamp_file f = { .incarnation = htole64(s->incarnation),
				     .count = htole64(s->count) };
	int fd = e->file->openat(e, dir, STAMP_NAME, O_WRONLY, 0), r;

	disk_seal(&f, sizeof(f), stamp_magic);
	if (fd == -ENOENT)
		return disk_write_file(e, dir, STAMP_NAME, &f, sizeof(f), true);
	if (fd < 0)
		return fd;
	r = disk_write_all(e, fd, &f, sizeof(f), 0);
	if (!r)
		r = e->file->fsync(e, fd);
	e->file->close(e, fd);
	return r;
}

/* -ENOENT: there is no stamp, or no valid one. */
static int stamp_read(struct env *e, int dir, struct stamp *s)
{
	struct disk_stamp_file f;
	int r = disk_read_file(e, dir, STAMP_NAME, &f, sizeof(f), stamp_magic);

	if (!r)
		*s = (struct stamp){ le64toh(f.incarnation), le64toh(f.count) };
	return r;
}

static int objects_check(struct disk *d, char *err, size_t n)
{
	char what[CONF_PATH_MAX + 16];
	struct stamp part;
	int r = stamp_read(d->env, d->objects.fd, &part);

	snprintf(what, sizeof(what), "%s/objects", d->path);
	if (r == -ENOENT)
		return error_explain(
			err, n, -EUCLEAN,
			"%s has lost its contents (no stamp): is a disk not mounted? If the data "
			"are lost, run `sheaf add-server NAME --emptied` for this server",
			what);
	if (r < 0)
		return error_explain(err, n, r,
				     "%s/" STAMP_NAME " cannot be read: %s: check the disk", what,
				     strerror(-r));
	return stamp_check(&d->stamp, &part, what, err, n);
}

int disk_stamp_lost(struct env *e, int objects, const struct stamp *s)
{
	struct stamp old;
	int r = stamp_read(e, objects, &old);

	if (r != -ENOENT)
		return r;
	r = stamp_write(e, objects, s);
	return r ? r : 1;
}

/* ---------------------------------------------------------------- sheaf.id */

int disk_id_format(struct env *e, int dir, int objects, const struct uuid *fs, uint32_t target)
{
	struct stamp first = { .incarnation = env_random_u64(e) | 1, .count = 1 };
	struct disk_id id = { .created = htole64(e->clock->wall(e)),
			      .incarnation = htole64(first.incarnation),
			      .count = htole64(first.count),
			      .flags = htole32(ID_STAMPED) };
	int r = stamp_write(e, objects, &first);

	id_encode(&id, fs, target);
	if (!r) /* a power loss must not leave a sheaf.id without the other parts */
		r = e->file->fsync(e, objects);
	if (!r)
		r = e->file->fsync(e, dir);
	return r ? r : disk_write_file(e, dir, ID_NAME, &id, sizeof(id), true);
}

static int check_owner(struct disk *d, const struct disk_id *id, const struct uuid *fs,
		       uint32_t target, char *err, size_t n)
{
	char has[UUID_TEXT], want[UUID_TEXT];
	struct uuid found;

	memcpy(found.b, id->fs, sizeof(found.b));
	if (memcmp(found.b, fs->b, sizeof(found.b))) {
		uuid_format(has, &found);
		uuid_format(want, fs);
		return error_explain(
			err, n, -EPERM,
			"%s belongs to file system %s, not to %s: correct `storage` in the "
			"cluster file, or is the wrong disk mounted?",
			d->path, has, want);
	}
	if (le32toh(id->target) != target)
		return error_explain(
			err, n, -EPERM,
			"%s belongs to server %u, not to server %u: correct `storage` in "
			"the cluster file, or are two disks swapped?",
			d->path, le32toh(id->target), target);
	return 0;
}

/* Storage format 1 has no incarnation and no stamps: this start adds them. The incarnation is a
 * hash, so that a repeated start chooses the same one. */
static void id_take(struct disk *d, const struct disk_id *id)
{
	bool old = le32toh(id->version) < DISK_VERSION;
	uint64_t incarnation = old ? hash_bytes(id, sizeof(*id), 1) | 1 : le64toh(id->incarnation);

	d->id = *id;
	d->stamp = (struct stamp){ incarnation, old ? 0 : le64toh(id->count) };
	d->id_flags = old ? ID_OLD_NAMES : le32toh(id->flags);
}

int disk_id_check(struct disk *d, const struct uuid *fs, uint32_t target, char *err, size_t n)
{
	struct disk_id id;
	struct env *e = d->env;
	ssize_t got;
	int r = e->file->lock(e, d->id_fd);

	if (r == -EWOULDBLOCK)
		return error_explain(
			err, n, -EBUSY,
			"%s is in use by another process: stop the other sheafd, or the "
			"program that has it open as local:",
			d->path);
	if (r < 0)
		return error_explain(err, n, r, "%s/%s cannot be locked: %s", d->path, ID_NAME,
				     strerror(-r));
	got = disk_read_at(e, d->id_fd, &id, sizeof(id), 0);
	if (got < 0)
		return error_explain(err, n, (int)got, "%s/%s cannot be read: %s: check the disk",
				     d->path, ID_NAME, strerror((int)-got));
	if ((size_t)got < sizeof(id) || !disk_is_sealed(&id, sizeof(id), id_magic))
		return error_explain(
			err, n, -EUCLEAN,
			"%s/%s is damaged: check the disk and restore that file from a "
			"backup",
			d->path, ID_NAME);
	if (le32toh(id.version) > DISK_VERSION)
		return error_explain(
			err, n, -EPROTONOSUPPORT,
			"%s has format version %u and this sheafd knows up to %u: install "
			"a newer Sheaf",
			d->path, le32toh(id.version), DISK_VERSION);
	id_take(d, &id);
	return check_owner(d, &id, fs, target, err, n);
}

/* Overwrites in place: the lock is on this file. 64 bytes are written atomically. */
static int id_write(struct disk *d, const struct disk_id *id)
{
	int r = disk_write_all(d->env, d->id_fd, id, sizeof(*id), 0);

	return r ? r : d->env->file->fsync(d->env, d->id_fd);
}

/* Rewrites the count that was read: it may be in the page cache only, if an earlier start failed to
 * sync it, and a power loss would leave sheaf.id two counts behind its parts. */
int disk_stamp_begin(struct disk *d, char *err, size_t n)
{
	struct stamp next = { d->stamp.incarnation, d->stamp.count + 1 };
	int r = d->id_flags & ID_STAMPED ? objects_check(d, err, n) : 0;

	if (r)
		return r;
	r = id_write(d, &d->id);
	if (r)
		return error_explain(err, n, r,
				     "%s/" ID_NAME " cannot be written: %s: check the disk",
				     d->path, strerror(-r));
	r = stamp_write(d->env, d->objects.fd, &next);
	return r ? error_explain(err, n, r, "%s/objects cannot be written: %s: check the disk",
				 d->path, strerror(-r)) :
		   0;
}

int disk_stamp_end(struct disk *d, bool with_meta)
{
	struct disk_id id = d->id;
	struct uuid fs;

	d->stamp.count++;
	d->id_flags |= ID_STAMPED | (with_meta ? ID_HAS_META : 0);
	id.incarnation = htole64(d->stamp.incarnation);
	id.count = htole64(d->stamp.count);
	id.flags = htole32(d->id_flags);
	memcpy(fs.b, id.fs, sizeof(fs.b));
	id_encode(&id, &fs, le32toh(id.target));
	return id_write(d, &id);
}

struct stamp disk_stamp(const struct disk *d)
{
	return d->stamp;
}

bool disk_has_meta(const struct disk *d)
{
	return d->id_flags & ID_HAS_META;
}
