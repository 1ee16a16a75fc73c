/* Changing the cluster file: text is appended, and one rename replaces the file once the whole
 * parses.
 *
 * Existing text is kept, with its comments. Blocking I/O, for commands. Errors: -errno and one
 * line; the file is unchanged then. */
#include "base/base.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define EDIT_MAX (1 * MIB)

/* The file's text followed by `more`; the caller frees it. */
static int edit_text(const char *path, const char *more, char **out, struct stat *st)
{
	char *text = malloc(EDIT_MAX + strlen(more) + 2);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 || fstat(fd, st) < 0 ? -errno : text ? 0 : -ENOMEM;

	if (!n)
		n = read_to_end(fd, text, EDIT_MAX);
	if (fd >= 0)
		close(fd);
	if (n < 0) {
		free(text);
		return (int)n;
	}
	if (n && text[n - 1] != '\n')
		text[n++] = '\n';
	strcpy(text + n, more);
	*out = text;
	return 0;
}

/* Opens and locks the new file, for one command at a time; overwrites what a killed command left.
 * The descriptor, or -EBUSY. */
static int edit_open(const char *tmp)
{
	int fd = open(tmp, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), rc = 0;
	struct stat ours, there;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
	else if (fstat(fd, &ours) < 0)
		rc = -errno;
	else if (stat(tmp, &there) < 0 || there.st_ino != ours.st_ino)
		rc = -EBUSY; /* already renamed to the cluster file by another command */
	else if (ftruncate(fd, 0) < 0)
		rc = -errno;
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

/* With the owner and mode of the old file. */
static int edit_write(int fd, const char *text, const struct stat *st)
{
	size_t n = strlen(text);

	errno = 0;
	if (write(fd, text, n) != (ssize_t)n)
		return errno ? -errno : -ENOSPC;
	if ((fchown(fd, st->st_uid, st->st_gid) < 0 && geteuid() == 0) ||
	    fchmod(fd, st->st_mode & 07777) < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

/* Without this sync a power failure may bring the old file back; no other harm. */
static void edit_sync_folder(const char *path)
{
	char folder[PATH_MAX];
	int fd;

	snprintf(folder, sizeof(folder), "%s", path);
	*(strrchr(folder, '/') + 1) = 0;
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	fsync(fd);
	close(fd);
}

/* Under the lock of fd, the new file: appends to the current text and replaces the file. */
static int edit(int fd, const char *path, const char *tmp, const char *more, const char *as,
		struct conf **new, char *err, size_t err_len)
{
	struct stat st;
	char *text = NULL;
	int rc = edit_text(path, more, &text, &st);

	if (rc)
		return error_explain(err, err_len, rc, "%s cannot be read: %s", path,
				     error_text(rc));
	rc = conf_parse(text, strlen(text), as, new, err, err_len);
	if (!rc) {
		rc = edit_write(fd, text, &st);
		if (!rc && rename(tmp, path) < 0)
			rc = -errno;
		if (!rc)
			edit_sync_folder(path);
		if (rc)
			error_explain(err, err_len, rc, "%s cannot be written: %s", path,
				      error_text(rc));
	}
	free(text);
	return rc;
}

int conf_append(struct conf **c, const char *more, char *err, size_t err_len)
{
	char path[PATH_MAX], tmp[PATH_MAX + 8];
	struct conf *new = NULL;
	int fd, rc;

	if (!realpath((*c)->path, path))
		return error_explain(err, err_len, -errno, "%s: %s", (*c)->path, error_text(errno));
	snprintf(tmp, sizeof(tmp), "%s.new", path);
	fd = edit_open(tmp);
	if (fd < 0)
		return error_explain(err, err_len, fd, "%s: %s", tmp,
				     fd == -EBUSY ? "another command changes the cluster file" :
						    error_text(fd));
	rc = edit(fd, path, tmp, more, (*c)->path, &new, err, err_len);
	if (rc)
		unlink(tmp); /* safe under its lock */
	close(fd);
	if (rc) {
		conf_free(new);
		return rc;
	}
	conf_free(*c);
	*c = new;
	return 0;
}
