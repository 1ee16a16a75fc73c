/* Real files: thin wrappers of system calls that return -errno and repeat after EINTR.
 *
 * Threads: any; these may block, so they are for start, stop and workers. Buffers: the caller's.
 * Errors: -errno of the kernel. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/env_real.h"

static int file_openat(struct env *e, int dir, const char *path, int flags, mode_t mode)
{
	int fd = TEMP_FAILURE_RETRY(openat(dir, path, flags | O_CLOEXEC, mode));

	(void)e;
	return fd < 0 ? -errno : fd;
}

static void file_close(struct env *e, int fd)
{
	(void)e;
	if (fd >= 0)
		close(fd);
}

static ssize_t file_preadv(struct env *e, int fd, const struct iovec *iov, int n, off_t off)
{
	ssize_t r = TEMP_FAILURE_RETRY(preadv(fd, iov, n, off));

	(void)e;
	return r < 0 ? -errno : r;
}

static ssize_t file_pwritev(struct env *e, int fd, const struct iovec *iov, int n, off_t off)
{
	int r = TEMP_FAILURE_RETRY(pwritev(fd, iov, n, off));

	(void)e;
	return r < 0 ? -errno : r;
}

static int file_syncfs(struct env *e, int fd)
{
	(void)e;
	return syncfs(fd) ? -errno : 0;
}

static int file_fsync(struct env *e, int fd)
{
	int r = TEMP_FAILURE_RETRY(fsync(fd));

	(void)e;
	return r < 0 ? -errno : 0;
}

static int file_ftruncate(struct env *e, int fd, off_t size)
{
	int r = TEMP_FAILURE_RETRY(ftruncate(fd, size));

	(void)e;
	return r < 0 ? -errno : 0;
}

static int file_fstat(struct env *e, int fd, struct stat *st)
{
	(void)e;
	return fstat(fd, st) < 0 ? -errno : 0;
}

static int file_fallocate(struct env *e, int fd, int mode, off_t off, off_t len)
{
	int r = TEMP_FAILURE_RETRY(fallocate(fd, mode, off, len));

	(void)e;
	return r < 0 ? -errno : 0;
}

static void file_advise(struct env *e, int fd, uint64_t off, uint64_t len, int advice)
{
	(void)e;
	posix_fadvise(fd, (off_t)off, (off_t)len, advice);
}

static off_t file_seek(struct env *e, int fd, off_t off, int whence)
{
	off_t r = lseek(fd, off, whence);

	(void)e;
	return r < 0 ? -errno : r;
}

static int file_unlinkat(struct env *e, int dir, const char *path, int flags)
{
	(void)e;
	return unlinkat(dir, path, flags) < 0 ? -errno : 0;
}

static int file_mkdirat(struct env *e, int dir, const char *path, mode_t mode)
{
	(void)e;
	return mkdirat(dir, path, mode) < 0 ? -errno : 0;
}

static int file_renameat(struct env *e, int dir, const char *from, const char *to)
{
	(void)e;
	return renameat(dir, from, dir, to) < 0 ? -errno : 0;
}

static int is_no_dots(const struct dirent *d)
{
	return strcmp(d->d_name, ".") && strcmp(d->d_name, "..");
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Sorted, so that the order does not depend on the file system. */
static int file_list(struct env *e, int dir, void (*fn)(void *arg, const char *name), void *arg)
{
	struct dirent **all;
	int n = scandirat(dir, ".", &all, is_no_dots, compare_names);

	(void)e;
	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		fn(arg, all[i]->d_name);
		free(all[i]);
	}
	free(all);
	return 0;
}

/* Identifies the running kernel and the file system. */
static uint64_t storage_id(int fd, const struct statvfs *s)
{
	int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t n = boot >= 0 ? read(boot, text, sizeof(text)) : -1;
	struct stat st;
	uint64_t id = s->f_fsid;

	if (boot >= 0)
		close(boot);
	if (n <= 0 || (!id && fstat(fd, &st) < 0))
		return 0;
	return hash_bytes(text, (size_t)n, hash_u64(id ? id : st.st_dev)) | 1;
}

static int file_statfs(struct env *e, int fd, uint64_t *total, uint64_t *avail, uint64_t *id)
{
	struct statvfs s;

	(void)e;
	if (fstatvfs(fd, &s) < 0)
		return -errno;
	*id = storage_id(fd, &s);
	/* without what is reserved for root, so that used + available = total, as df(1) counts */
	*total = (uint64_t)(s.f_blocks - (s.f_bfree - MIN(s.f_bavail, s.f_bfree))) * s.f_frsize;
	*avail = (uint64_t)s.f_bavail * s.f_frsize;
	return 0;
}

static int file_lock(struct env *e, int fd)
{
	int r = TEMP_FAILURE_RETRY(flock(fd, LOCK_EX | LOCK_NB));

	(void)e;
	return r < 0 ? -errno : 0;
}

void file_counters(struct loop *l, uint64_t *inlined, uint64_t *handed)
{
	*inlined = l->io_inlined;
	*handed = l->io_handed;
}

static const char *file_map(struct env *e, int fd, uint64_t len, bool writable)
{
	void *p = mmap(NULL, len, PROT_READ | (writable ? PROT_WRITE : 0),
		       MAP_SHARED | MAP_NORESERVE, fd, 0);

	(void)e;
	return p == MAP_FAILED ? NULL : p;
}

static void file_unmap(struct env *e, const char *map, uint64_t len)
{
	(void)e;
	munmap((void *)(uintptr_t)map, len);
}

/* ---- direct reads: by other processes of the host ---- */

static ssize_t file_dir_path(struct env *e, int dir, char *path, size_t n)
{
	char link[32];
	ssize_t r;

	(void)e;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
	r = readlink(link, path, n);
	return r < 0 ? -errno : (size_t)r == n ? -ENAMETOOLONG : r;
}

/* -EAGAIN: a part of the path is not cached. */
static int openat_cached(int dir, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC),
				.resolve = RESOLVE_CACHED | RESOLVE_NO_MAGICLINKS | resolve };
	long fd = TEMP_FAILURE_RETRY(syscall(SYS_openat2, dir, path, &how, sizeof(how)));

	return fd < 0 ? -errno : (int)fd;
}

static int file_open_dir_cached(struct env *e, const char *path, uint64_t dev, uint64_t ino,
				bool *on_tmpfs)
{
	int fd = openat_cached(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0);
	struct stat st;
	int r = fd < 0 ? fd : file_fstat(e, fd, &st);

	if (!r && (st.st_dev != dev || st.st_ino != ino))
		r = -ENOENT;
	if (r) {
		file_close(e, fd);
		return r;
	}
	*on_tmpfs = is_on_tmpfs(fd, NULL);
	return fd;
}

static int file_open_cached(struct env *e, int dir, const char *path)
{
	int fd = openat_cached(dir, path, O_RDONLY | O_NOFOLLOW | O_NOATIME | O_NONBLOCK,
			       RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
	struct stat st;

	if (fd >= 0 && (file_fstat(e, fd, &st) || !S_ISREG(st.st_mode))) {
		file_close(e, fd);
		fd = -EPERM;
	}
	return fd;
}

static ssize_t file_read_cached(struct env *e, int fd, const struct iovec *iov, int n, off_t off,
				bool on_tmpfs)
{
	ssize_t r = TEMP_FAILURE_RETRY(preadv2(fd, iov, n, off, on_tmpfs ? 0 : RWF_NOWAIT));

	(void)e;
	return r < 0 ? -errno : r;
}

const struct file_ops file_real_ops = {
	.openat = file_openat,
	.close = file_close,
	.preadv = file_preadv,
	.pwritev = file_pwritev,
	.fsync = file_fsync,
	.syncfs = file_syncfs,
	.ftruncate = file_ftruncate,
	.fstat = file_fstat,
	.fallocate = file_fallocate,
	.seek = file_seek,
	.unlinkat = file_unlinkat,
	.mkdirat = file_mkdirat,
	.renameat = file_renameat,
	.list = file_list,
	.statfs = file_statfs,
	.lock = file_lock,
	.perform_now = engine_perform_now,
	.submit = engine_submit,
	.cached = engine_cached,
	.advise = file_advise,
	.map = file_map,
	.unmap = file_unmap,
	.dir_path = file_dir_path,
	.open_dir_cached = file_open_dir_cached,
	.open_cached = file_open_cached,
	.read_cached = file_read_cached,
	.probe = engine_probe,
};
