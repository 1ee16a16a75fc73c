/* The storage directory: formatting, opening with all checks, and closing.
 *
 * Threads: the loop's; everything here blocks, as start and stop may. Errors: -errno, and one line
 * that names the directory and the remedy. The boot verifier survives only a stop that synced
 * everything: the file `clean` says so, and is renamed away, durably, before anything is served. */
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "disk/disk_impl.h"

#define CLEAN_NAME "clean"
#define DRAIN_NS (10 * NSEC_PER_SEC)

static const uint8_t clean_magic[8] = { 'S', 'H', 'F', 'C', 'L', 'E', 'A', 'N' };

/* ---------------------------------------------------------------- small files */

int disk_write_all(struct env *e, int fd, const void *p, size_t n, uint64_t off)
{
	const char *b = p;

	while (n) {
		struct iovec iov = { (void *)b, n };
		ssize_t r = e->file->pwritev(e, fd, &iov, 1, (off_t)off);

		if (r <= 0)
			return r ? (int)r : -ENOSPC;
		b += r;
		off += (uint64_t)r;
		n -= (size_t)r;
	}
	return 0;
}

ssize_t disk_read_at(struct env *e, int fd, void *p, size_t n, uint64_t off)
{
	size_t have = 0;

	while (have < n) {
		struct iovec iov = { (char *)p + have, n - have };
		ssize_t r = e->file->preadv(e, fd, &iov, 1, (off_t)(off + have));

		if (r < 0)
			return r;
		if (r == 0)
			break;
		have += (size_t)r;
	}
	return (ssize_t)have;
}

/* Writes a temporary file and renames it: a crash leaves the old file, the new file or none, never
 * a partial one. Each name has a fixed size, so a leftover temporary file is overwritten and keeps
 * its space (reserve_clean). */
int disk_write_file(struct env *e, int dir, const char *name, const void *p, size_t n, bool sync)
{
	char tmp[64];
	int fd, r;

	snprintf(tmp, sizeof(tmp), "%s.new", name);
	fd = e->file->openat(e, dir, tmp, O_WRONLY | O_CREAT, 0600);
	if (fd < 0)
		return fd;
	r = disk_write_all(e, fd, p, n, 0);
	if (r == 0 && sync)
		r = e->file->fsync(e, fd);
	e->file->close(e, fd);
	if (r == 0)
		r = e->file->renameat(e, dir, tmp, name);
	if (r == 0 && sync)
		r = e->file->fsync(e, dir);
	return r;
}

void disk_fd_close(struct env *e, int fd)
{
	if (fd >= 0)
		e->file->close(e, fd);
}

int disk_dir_open(struct env *e, int objects, unsigned index)
{
	char name[8];

	snprintf(name, sizeof(name), "%02x", index & 0xff);
	return e->file->openat(e, objects, name, O_RDONLY | O_DIRECTORY, 0);
}

static uint32_t crc_of(const void *p, size_t n)
{
	return htole32(crc32c(0, p, n - sizeof(uint32_t)));
}

void disk_seal(void *p, size_t n, const uint8_t magic[8])
{
	uint32_t crc;

	memcpy(p, magic, 8);
	crc = crc_of(p, n);
	memcpy((uint8_t *)p + n - sizeof(crc), &crc, sizeof(crc));
}

bool disk_is_sealed(const void *p, size_t n, const uint8_t magic[8])
{
	uint32_t crc = crc_of(p, n);

	return memcmp(p, magic, 8) == 0 &&
	       memcmp((const uint8_t *)p + n - sizeof(crc), &crc, sizeof(crc)) == 0;
}

int disk_read_file(struct env *e, int dir, const char *name, void *p, size_t n,
		   const uint8_t magic[8])
{
	int fd = e->file->openat(e, dir, name, O_RDONLY, 0);
	ssize_t got = fd < 0 ? fd : disk_read_at(e, fd, p, n, 0);

	disk_fd_close(e, fd);
	if (got < 0)
		return (int)got;
	return (size_t)got == n && disk_is_sealed(p, n, magic) ? 0 : -ENOENT;
}

/* Reserves space for the file `clean`, so that a clean stop is possible on a full disk. */
static int reserve_clean(struct env *e, int dir)
{
	struct disk_clean zero = { 0 };
	int fd = e->file->openat(e, dir, CLEAN_NAME ".new", O_WRONLY | O_CREAT, 0600);
	int r = fd < 0 ? fd : disk_write_all(e, fd, &zero, sizeof(zero), 0);

	disk_fd_close(e, fd);
	return r;
}

/* ---------------------------------------------------------------- format */

/* Ignores a parent that cannot be opened, and one that does not support fsync. */
static int sync_parent(struct env *e, const char *path)
{
	char parent[CONF_PATH_MAX];
	size_t n = strlen(path);
	int fd, r;

	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n > 0 && path[n - 1] != '/')
		n--;
	if (n >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(parent, path, n);
	parent[n] = 0;
	fd = e->file->openat(e, AT_FDCWD, n ? parent : ".", O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return 0;
	r = e->file->fsync(e, fd);
	e->file->close(e, fd);
	return r == -EINVAL ? 0 : r;
}

/* Syncs the entries of a storage directory, and its own entry. This includes entries of an earlier
 * format that failed or was killed before its syncs: nothing else would sync those. */
static int sync_names(struct env *e, int dir, const char *path)
{
	int fd = e->file->openat(e, dir, "objects", O_RDONLY | O_DIRECTORY, 0), r = 0;

	if (fd >= 0) {
		r = e->file->fsync(e, fd);
		e->file->close(e, fd);
	}
	if (!r)
		r = e->file->fsync(e, dir);
	return r ? r : sync_parent(e, path);
}

static int format_in(struct env *e, int dir, const struct uuid *fs, uint32_t target)
{
	int r = e->file->mkdirat(e, dir, "objects", 0700), fd;

	if (r < 0 && r != -EEXIST)
		return r;
	fd = e->file->openat(e, dir, "fences", O_WRONLY | O_CREAT, 0600);
	r = fd < 0 ? fd : e->file->fsync(e, fd);
	disk_fd_close(e, fd);
	if (r == 0)
		r = reserve_clean(e, dir);
	if (r < 0)
		return r;
	fd = e->file->openat(e, dir, "objects", O_RDONLY | O_DIRECTORY, 0);
	r = fd < 0 ? fd : disk_id_format(e, dir, fd, fs, target);
	disk_fd_close(e, fd);
	return r;
}

int disk_format(struct env *e, const char *path, const struct uuid *fs, uint32_t target, char *err,
		size_t err_len)
{
	int r = e->file->mkdirat(e, AT_FDCWD, path, 0700);
	int dir, fd;

	if (r < 0 && r != -EEXIST)
		return error_explain(
			err, err_len, r,
			"storage directory %s cannot be made: %s: check the path and its "
			"permissions",
			path, strerror(-r));
	dir = e->file->openat(e, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0)
		return error_explain(err, err_len, dir, "storage directory %s cannot be opened: %s",
				     path, strerror(-dir));
	fd = e->file->openat(e, dir, ID_NAME, O_RDONLY, 0);
	if (fd == -ENOENT) {
		r = format_in(e, dir, fs, target);
		if (!r)
			r = sync_names(e, dir, path);
	} else {
		disk_fd_close(e, fd);
		r = sync_names(e, dir, path);
		if (!r)
			r = error_explain(
				err, err_len, -EEXIST,
				"%s already is a Sheaf storage directory: choose another one, or "
				"remove it if its data are not needed",
				path);
	}
	if (r < 0 && r != -EEXIST)
		error_explain(err, err_len, r, "storage directory %s cannot be written: %s", path,
			      strerror(-r));
	e->file->close(e, dir);
	return r;
}

/* ---------------------------------------------------------------- open */

static int open_dirs(struct disk *d, char *err, size_t n)
{
	struct env *e = d->env;

	d->dir = e->file->openat(e, AT_FDCWD, d->path, O_RDONLY | O_DIRECTORY, 0);
	if (d->dir == -ENOENT)
		return error_explain(
			err, n, -ENOENT,
			"storage directory %s does not exist: is a disk not mounted? If the "
			"data are lost, run `sheaf add-server NAME --emptied`; for a new server, "
			"`sheaf format NAME`",
			d->path);
	if (d->dir < 0)
		return error_explain(
			err, n, d->dir,
			"storage directory %s cannot be opened: %s: check its type and "
			"permissions",
			d->path, strerror(-d->dir));
	d->id_fd = e->file->openat(e, d->dir, ID_NAME, O_RDWR, 0);
	if (d->id_fd == -ENOENT)
		return error_explain(
			err, n, -ENOENT,
			"%s is not a Sheaf storage directory: is a disk not mounted? If the "
			"data are lost, run `sheaf add-server NAME --emptied`; for a new server, "
			"`sheaf format NAME`",
			d->path);
	if (d->id_fd < 0)
		return error_explain(err, n, d->id_fd,
				     "%s/%s cannot be opened: %s: check its owner and permissions",
				     d->path, ID_NAME, strerror(-d->id_fd));
	d->objects.fd = d->objects.gs.fd =
		e->file->openat(e, d->dir, "objects", O_RDONLY | O_DIRECTORY, 0);
	if (d->objects.fd == -ENOENT)
		return error_explain(
			err, n, -EUCLEAN,
			"%s/objects is missing: is a disk not mounted? If the data are "
			"lost, run `sheaf add-server NAME --emptied` for this server",
			d->path);
	if (d->objects.fd < 0)
		return error_explain(
			err, n, d->objects.fd,
			"%s/objects cannot be opened: %s: check its type and permissions", d->path,
			strerror(-d->objects.fd));
	return 0;
}

int disk_hold(struct env *e, const char *path, const struct uuid *fs, uint32_t target,
	      struct stamp *stamp, char *err, size_t n)
{
	struct disk *d = calloc(1, sizeof(*d));
	int r, fd;

	if (!d)
		return error_explain(err, n, -ENOMEM, "out of memory");
	d->env = e;
	snprintf(d->path, sizeof(d->path), "%s", path);
	d->dir = d->id_fd = d->objects.fd = -1;
	r = open_dirs(d, err, n);
	if (!r)
		r = disk_id_check(d, fs, target, err, n);
	*stamp = d->stamp;
	fd = d->id_fd;
	disk_fd_close(e, d->dir);
	disk_fd_close(e, d->objects.fd);
	if (r && fd >= 0)
		e->file->close(e, fd);
	free(d);
	return r ? r : fd;
}

int disk_format_lost(struct env *e, const char *path, const struct uuid *fs, uint32_t target,
		     char *err, size_t n)
{
	int dir = e->file->openat(e, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
	int id = dir < 0 ? dir : e->file->openat(e, dir, ID_NAME, O_RDONLY, 0);
	int r = id < 0 ? id : e->file->mkdirat(e, dir, "objects", 0700), objects, held, synced;
	struct stamp stamp;

	disk_fd_close(e, id);
	if (r == -EEXIST)
		r = 0;
	if (r)
		error_explain(err, n, r, "%s/objects cannot be made: %s", path, strerror(-r));
	held = r ? r : disk_hold(e, path, fs, target, &stamp, err, n);
	if (held >= 0) {
		objects = e->file->openat(e, dir, "objects", O_RDONLY | O_DIRECTORY, 0);
		r = objects < 0 ? objects : disk_stamp_lost(e, objects, &stamp);
		disk_fd_close(e, objects);
		synced = e->file->fsync(e, dir);
		r = r >= 0 && synced < 0 ? synced : r;
		if (r < 0)
			error_explain(err, n, r, "%s/objects cannot be written: %s", path,
				      strerror(-r));
		e->file->close(e, held);
	}
	disk_fd_close(e, dir);
	return held < 0 ? held : r;
}

/* True: the last stop was clean; sets d->verifier. A damaged file counts as an unclean stop. */
static bool read_clean(struct disk *d, bool *synced)
{
	struct disk_clean c;

	if (disk_read_file(d->env, d->dir, CLEAN_NAME, &c, sizeof(c), clean_magic))
		return false;
	d->verifier = le64toh(c.verifier);
	*synced = le32toh(c.synced) != 0;
	return true;
}

static int consume_clean(struct disk *d, char *err, size_t n)
{
	struct env *e = d->env;
	bool synced = false;
	int r;

	d->boot = env_random_u64(e);
	if (!read_clean(d, &synced))
		d->verifier = env_random_u64(e);
	for (unsigned i = 0; i < OBJECT_DIRS; i++)
		disk_dir_init(d, &d->dirs[i], synced);
	d->objects.gs.synced = synced ? 1 : 0;
	history_begin(d);
	r = e->file->renameat(e, d->dir, CLEAN_NAME, CLEAN_NAME ".new");
	if (r == -ENOENT)
		r = 0;
	if (r == 0 && !d->nosync)
		r = e->file->fsync(e, d->dir); /* also covers the rename of a rewritten fence log */
	if (r < 0)
		return error_explain(err, n, r, "%s cannot be written: %s: check the disk", d->path,
				     strerror(-r));
	return 0;
}

void disk_set_limits(struct disk *d, size_t open, uint64_t slack)
{
	d->max_open = open ? open : DISK_MAX_OPEN;
	d->log_slack = slack ? slack : LOG_SLACK;
}

static struct disk *disk_new(struct loop *l, const char *path, bool nosync, uint32_t max_floors)
{
	struct disk *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->loop = l;
	d->env = l->env;
	d->nosync = nosync;
	d->max_floors = max_floors ? max_floors : DISK_MAX_FLOORS;
	d->dir = d->id_fd = d->log.fd = -1;
	disk_set_limits(d, 0, 0);
	snprintf(d->path, sizeof(d->path), "%s", path);
	list_init(&d->lru);
	list_init(&d->expiring);
	list_init(&d->log.waiting);
	list_init(&d->log.running);
	list_init(&d->merge.waiting);
	list_init(&d->measure.waiting);
	disk_dir_init(d, &d->objects, false);
	for (unsigned i = 0; i < OBJECT_DIRS; i++)
		disk_dir_init(d, &d->dirs[i], false);
	return d;
}

static void free_floor(struct hnode *n, void *arg)
{
	floor_free(arg, container_of(n, struct floor, node));
}

/* Accepts a half-built disk. */
static void disk_destroy(struct disk *d)
{
	struct env *e = d->env;

	history_end(d);
	e->exec->worker_stop(d->measure.worker);
	object_free_all(d);
	htab_destroy(&d->table);
	if (d->floors.slots)
		htab_walk(&d->floors, free_floor, d);
	htab_destroy(&d->floors);
	for (unsigned i = 0; i < OBJECT_DIRS; i++)
		disk_fd_close(e, d->dirs[i].fd);
	disk_fd_close(e, d->objects.fd);
	disk_fd_close(e, d->log.fd);
	free(d->log.rewrite.recs);
	base_put(d, d->base);
	disk_fd_close(e, d->id_fd);
	disk_fd_close(e, d->dir);
	free(d);
}

int disk_open(struct loop *l, const char *path, const struct uuid *fs, uint32_t target, bool nosync,
	      uint32_t max_floors, struct disk **out, char *err, size_t err_len)
{
	struct disk *d = disk_new(l, path, nosync, max_floors);
	char text[128] = "";
	int r = -ENOMEM;

	if (!d || htab_init(&d->table) < 0 || htab_init(&d->floors) < 0) {
		error_explain(err, err_len, r, "%s: out of memory", path);
		goto fail;
	}
	r = open_dirs(d, err, err_len);
	if (r == 0)
		r = disk_id_check(d, fs, target, err, err_len);
	if (r == 0)
		r = disk_stamp_begin(d, err, err_len);
	if (r == 0)
		r = base_open(d, err, err_len);
	if (r == 0)
		r = fence_log_load(d, err, err_len);
	if (r == 0)
		r = consume_clean(d, err, err_len);
	if (r < 0)
		goto fail;
	r = l->env->file->probe(l->env, l, d->dir, text, sizeof(text));
	if (r < 0)
		log_warn("disk", "%s: probing failed (%s): workers do every access", path,
			 strerror(-r));
	else
		log_info("disk", "%s: %s%s", path, text, nosync ? ", never synced" : "");
	d->costs_known = disk_load_costs(l->env, d->dir, &d->costs) == 0;
	*out = d;
	return 0;
fail:
	if (d)
		disk_destroy(d);
	return r;
}

/* ---------------------------------------------------------------- close */

struct sync_all {
	struct disk *disk;
	int error;
};

static void note(struct sync_all *s, int error)
{
	if (error && !s->error)
		s->error = error;
}

static void sync_object(struct hnode *n, void *arg)
{
	struct object *o = container_of(n, struct object, node);
	struct sync_all *s = arg;
	struct env *e = s->disk->env;

	if (o->latched)
		note(s, -EIO); /* not reported yet: the new verifier will report it */
	if (o->fd >= 0 && object_dirty(o))
		note(s, e->file->fsync(e, o->fd));
}

/* Includes directories not opened since an unclean start: the next start trusts them all. */
static int sync_dir(struct disk *d, unsigned i)
{
	struct disk_dir *dir = &d->dirs[i];
	struct env *e = d->env;

	if (dir->gs.synced == dir->gs.changed)
		return 0;
	if (dir->fd < 0)
		dir->fd = disk_dir_open(e, d->objects.fd, i);
	if (dir->fd == -ENOENT)
		return 0;
	return dir->fd < 0 ? dir->fd : e->file->fsync(e, dir->fd);
}

static int sync_everything(struct disk *d)
{
	struct sync_all s = { .disk = d };
	struct env *e = d->env;

	htab_walk(&d->table, sync_object, &s);
	if (d->nosync)
		return s.error;
	for (unsigned i = 0; i < OBJECT_DIRS; i++)
		note(&s, sync_dir(d, i));
	if (d->objects.gs.synced != d->objects.gs.changed)
		note(&s, e->file->fsync(e, d->objects.fd));
	note(&s, e->file->fsync(e, d->log.fd));
	return s.error;
}

static int write_clean(struct disk *d)
{
	struct disk_clean c = { .verifier = htole64(d->verifier), .synced = htole32(!d->nosync) };

	disk_seal(&c, sizeof(c), clean_magic);
	return disk_write_file(d->env, d->dir, CLEAN_NAME, &c, sizeof(c), !d->nosync);
}

/* Waits for internal operations, which still point into the disk. */
static bool drain(struct disk *d)
{
	struct env *e = d->env;
	uint64_t until = e->clock->now(e) + DRAIN_NS;

	atomic_store(&d->merge.stop, true);
	while (d->busy && e->clock->now(e) < until)
		loop_turn(d->loop, 10 * NSEC_PER_MSEC);
	return !d->busy;
}

int disk_close(struct disk *d, bool clean)
{
	int r = 0;

	if (!d)
		return 0;
	/* As after a crash: the memory of accesses that never end is not freed. */
	if (!clean && d->busy)
		return -EBUSY;
	if (!drain(d)) { /* the kernel may still write to this memory: do not free it */
		log_error("disk", "%s: %u accesses have not ended: closing without them", d->path,
			  d->busy);
		return -EBUSY;
	}
	if (clean)
		r = sync_everything(d);
	if (clean && r == 0)
		r = write_clean(d);
	if (r < 0)
		log_error("disk",
			  "%s: closing failed: %s; unsynced writes will be reported as lost",
			  d->path, strerror(-r));
	disk_destroy(d);
	return r;
}

/* ---------------------------------------------------------------- queries */

bool disk_idle(const struct disk *d)
{
	return !d->busy;
}

uint64_t disk_verifier(const struct disk *d)
{
	return d->verifier;
}

uint64_t disk_boot(const struct disk *d)
{
	return d->boot;
}

ssize_t disk_objects_dir(struct disk *d, char *path, size_t n, uint64_t *dev, uint64_t *ino)
{
	const struct file_ops *f = d->env->file;
	struct stat st;
	int r = f->dir_path ? f->fstat(d->env, d->objects.fd, &st) : -EOPNOTSUPP;

	if (r)
		return r;
	*dev = st.st_dev;
	*ino = st.st_ino;
	return f->dir_path(d->env, d->objects.fd, path, n);
}

int disk_space(struct disk *d, uint64_t *total, uint64_t *avail, uint64_t *id)
{
	return d->env->file->statfs(d->env, d->dir, total, avail, id);
}

void disk_counters(const struct disk *d, struct disk_counters *c)
{
	*c = d->counters;
	c->performed -= c->merged;
}
