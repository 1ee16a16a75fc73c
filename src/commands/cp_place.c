/* The places of sheaf cp: the same few calls for files inside, files of this host, and the standard
 * streams.
 *
 * Threads: any. Errors: -errno. */
#include <fcntl.h>
#include <unistd.h>

#include "commands/cp_place.h"

bool place_is_inside(const char *arg)
{
	return strncmp(arg, "sheaf:", 6) == 0;
}

static void place_name(struct place *p)
{
	if (p->standard)
		strcpy(p->shown, p->fd ? "standard output" : "standard input");
	else
		snprintf(p->shown, sizeof(p->shown), "%s%s", p->inside ? "sheaf:" : "", p->path);
}

/* fd: what "-" means. */
int place_parse(struct place *p, const char *arg, int fd)
{
	size_t n = strlen(arg);
	int r = 0;

	p->standard = strcmp(arg, "-") == 0;
	p->fd = fd;
	p->inside = place_is_inside(arg);
	if (p->inside) {
		r = cli_inside_path(arg, p->path);
	} else {
		while (n > 1 && arg[n - 1] == '/')
			n--;
		if (n >= CLI_PATH_MAX)
			return -ENAMETOOLONG;
		memcpy(p->path, arg, n);
		p->path[n] = 0;
	}
	place_name(p);
	return r;
}

int place_child(struct place *out, const struct place *dir, const char *name)
{
	int r = cli_join(out->path, dir->path, name);

	out->inside = dir->inside;
	out->standard = false;
	if (!r)
		place_name(out);
	return r;
}

static mode_t mask; /* of this process, which only umask(2) tells, by changing it */

void place_init(void)
{
	mask = umask(0);
	umask(mask);
}

/* A pipe's own mode is not that of a file: what it carries becomes a file as open(2) makes one. */
static int stat_standard(const struct place *p, struct stat *st)
{
	if (fstat(p->fd, st) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode)) {
		st->st_mode = (st->st_mode & S_IFMT) | (0666 & ~mask);
		st->st_size = 0;
	}
	return 0;
}

int place_stat(struct cli *c, const struct place *p, bool follow, struct stat *st)
{
	struct sheaf *fs = c->fs;

	if (p->standard)
		return stat_standard(p, st);
	if (p->inside)
		return follow ? sheaf_stat(fs, p->path, st) : sheaf_lstat(fs, p->path, st);
	return (follow ? stat(p->path, st) : lstat(p->path, st)) < 0 ? -errno : 0;
}

int place_readlink(struct cli *c, const struct place *p, char out[CLI_PATH_MAX])
{
	ssize_t n;

	if (p->inside)
		return cli_read_link(c, p->path, out);
	n = readlink(p->path, out, CLI_PATH_MAX - 1);
	if (n < 0)
		return -errno;
	out[n] = 0;
	return 0;
}

int place_symlink(struct cli *c, const char *target, const struct place *p)
{
	if (p->inside)
		return sheaf_symlink(c->fs, target, p->path);
	return symlink(target, p->path) < 0 ? -errno : 0;
}

/* Maps a host chmod result: file systems without modes (vfat, cifs) are no failure. */
int place_host_chmod(int r)
{
	return r == 0 || errno == EPERM || errno == ENOTSUP ? 0 : -errno;
}

int place_chmod(struct cli *c, const struct place *p, mode_t mode)
{
	if (p->inside)
		return sheaf_chmod(c->fs, p->path, mode);
	return place_host_chmod(chmod(p->path, mode));
}

int place_set_times(struct cli *c, const struct place *p, const struct stat *st)
{
	const struct timespec t[2] = { st->st_atim, st->st_mtim };

	if (p->inside)
		return sheaf_utimens(c->fs, p->path, t);
	return utimensat(AT_FDCWD, p->path, t, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* Creates the directory with exactly this mode, regardless of the umask. */
int place_mkdir(struct cli *c, const struct place *p, mode_t mode)
{
	int r;

	if (p->inside)
		return sheaf_mkdir(c->fs, p->path, mode);
	if (mkdir(p->path, mode) < 0)
		return -errno;
	r = place_chmod(c, p, mode);
	if (r)
		rmdir(p->path);
	return r;
}

int place_rename(struct cli *c, const struct place *from, const struct place *to)
{
	if (to->inside)
		return sheaf_rename(c->fs, from->path, to->path);
	return rename(from->path, to->path) < 0 ? -errno : 0;
}
