/* Key files: 32 random bytes as 64 hexadecimal digits and a newline, readable by the owner only.
 * Blocking I/O, for start-up. Buffers that held a key are wiped. */
#include "base/base.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_TEXT (2 * KEY_BYTES)

__attribute__((format(printf, 4, 5))) static int key_fail(char *err, size_t n, int rc,
							  const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, n, fmt, ap);
	va_end(ap);
	return rc;
}

static ssize_t key_read(int fd, char *text, size_t n)
{
	size_t got = 0;
	ssize_t rc;

	while (got < n) {
		rc = read(fd, text + got, n - got);
		if (rc < 0 && errno == EINTR)
			continue;
		if (rc < 0)
			return -errno;
		if (rc == 0)
			break;
		got += (size_t)rc;
	}
	return (ssize_t)got;
}

static int key_check_mode(const char *path, int fd, char *err, size_t err_len)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return key_fail(err, err_len, -errno, "%s: cannot look at the key file: %s", path,
				error_text(errno));
	if (!S_ISREG(st.st_mode))
		return key_fail(err, err_len, -EINVAL, "%s: the key must be a regular file", path);
	if (st.st_mode & 077)
		return key_fail(err, err_len, -EACCES,
				"%s: the key is open to others (mode %03o); run: chmod 600 %s",
				path, (unsigned)st.st_mode & 0777, path);
	return 0;
}

int key_load(const char *path, uint8_t key[KEY_BYTES], char *err, size_t err_len)
{
	char text[KEY_TEXT + 3]; /* room for a newline, and for one byte too many */
	ssize_t n;
	int fd, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return key_fail(err, err_len, -errno, "%s: cannot open the key file: %s%s", path,
				error_text(errno),
				errno == ENOENT ? "; copy it from the cluster's folder, or make a "
						  "new cluster with 'sheaf init'" :
						  "");
	rc = key_check_mode(path, fd, err, err_len);
	n = rc < 0 ? 0 : key_read(fd, text, sizeof(text) - 1);
	close(fd);
	if (rc < 0)
		return rc;
	if (n < 0)
		return key_fail(err, err_len, (int)n, "%s: cannot read the key: %s", path,
				error_text((int)n));
	if (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = 0;
	if (n != KEY_TEXT || hex_decode(key, KEY_BYTES, text) < 0)
		rc = key_fail(err, err_len, -EINVAL,
			      "%s: not a key: it must hold exactly %d hexadecimal digits; copy it "
			      "again from the cluster's folder",
			      path, KEY_TEXT);
	explicit_bzero(text, sizeof(text));
	return rc;
}

/* Errors leave no half-written key behind. */
int key_create(const char *path, char *err, size_t err_len)
{
	uint8_t key[KEY_BYTES];
	char text[KEY_TEXT + 1];
	int fd, rc = 0;

	if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
		return key_fail(err, err_len, -EIO, "the kernel gave no random bytes for %s", path);
	hex_encode(text, key, sizeof(key));
	text[KEY_TEXT] = '\n';
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		rc = key_fail(err, err_len, -errno, "%s: cannot create the key file: %s", path,
			      error_text(errno));
	} else {
		if (write(fd, text, sizeof(text)) != (ssize_t)sizeof(text) || fsync(fd) < 0) {
			rc = key_fail(err, err_len, errno ? -errno : -EIO,
				      "%s: cannot write the key: %s", path, error_text(errno));
			unlink(path);
		}
		close(fd);
	}
	explicit_bzero(key, sizeof(key));
	explicit_bzero(text, sizeof(text));
	return rc;
}
