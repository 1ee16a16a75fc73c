/* Key files: 32 random bytes as 64 hexadecimal digits and a newline, readable by the owner only;
 * and the users a key may act for. Blocking I/O, for start-up. Buffers that held a key are
 * wiped. */
#include "base/base.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_TEXT (2 * KEY_BYTES)

static int key_check_mode(const char *path, int fd, char *err, size_t err_len)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_explain(err, err_len, -errno, "%s: cannot examine the key file: %s",
				     path, error_text(errno));
	if (!S_ISREG(st.st_mode))
		return error_explain(err, err_len, -EINVAL, "%s: the key must be a regular file",
				     path);
	if (st.st_mode & 077)
		return error_explain(err, err_len, -EACCES,
				     "%s: the key is open to others (mode %03o); run: chmod 600 %s",
				     path, (unsigned)st.st_mode & 0777, path);
	return 0;
}

int key_load(const char *path, uint8_t key[KEY_BYTES], char *err, size_t err_len)
{
	char text[KEY_TEXT + 3]; /* space for a newline and one excess byte */
	ssize_t n;
	int fd, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return error_explain(
			err, err_len, -errno, "%s: cannot open the key file: %s%s", path,
			error_text(errno),
			errno == ENOENT ? "; copy it from the cluster's folder, or make a "
					  "new cluster with 'sheaf init'" :
			errno == EACCES ? "; only its owner may read it: run this as that user, or "
					  "use a key of your own ('sheaf key NAME')" :
					  "");
	rc = key_check_mode(path, fd, err, err_len);
	n = rc < 0 ? 0 : read_to_end(fd, text, sizeof(text) - 1);
	close(fd);
	if (rc < 0)
		return rc;
	if (n < 0)
		return error_explain(err, err_len, (int)n, "%s: cannot read the key: %s", path,
				     error_text((int)n));
	if (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = 0;
	if (n != KEY_TEXT || hex_decode(key, KEY_BYTES, text) < 0)
		rc = error_explain(
			err, err_len, -EINVAL,
			"%s: not a key: it must hold exactly %d hexadecimal digits; copy it "
			"again from the cluster's folder",
			path, KEY_TEXT);
	explicit_bzero(text, sizeof(text));
	return rc;
}

/* On an error, no half-written key remains. */
int key_create(const char *path, char *err, size_t err_len)
{
	uint8_t key[KEY_BYTES];
	char text[KEY_TEXT + 1];
	int fd, rc = 0;

	if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
		return error_explain(err, err_len, -EIO, "the kernel gave no random bytes for %s",
				     path);
	hex_encode(text, key, sizeof(key));
	text[KEY_TEXT] = '\n';
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		rc = error_explain(err, err_len, -errno, "%s: cannot create the key file: %s", path,
				   error_text(errno));
	} else {
		if (write(fd, text, sizeof(text)) != (ssize_t)sizeof(text) || fsync(fd) < 0) {
			rc = error_explain(err, err_len, errno ? -errno : -EIO,
					   "%s: cannot write the key: %s", path, error_text(errno));
			unlink(path);
		}
		close(fd);
	}
	explicit_bzero(key, sizeof(key));
	explicit_bzero(text, sizeof(text));
	return rc;
}

int keys_load(struct conf *c, char *err, size_t err_len)
{
	for (uint32_t i = 0; i < c->n_keys; i++) {
		int r = key_load(c->keys[i].file, c->keys[i].secret, err, err_len);

		if (r)
			return r;
		c->keys[i].loaded = true;
	}
	return 0;
}

int key_choose(const struct conf *c, char name[CONF_NAME_MAX], uint8_t key[KEY_BYTES], char *err,
	       size_t err_len)
{
	const char *wish = getenv("SHEAF_KEY");
	const struct client_key *k = NULL;

	if (wish && wish[0]) {
		k = conf_key_find(c, wish);
		if (!k)
			return error_explain(
				err, err_len, -ENOENT,
				"$SHEAF_KEY is '%s', but %s has no [key.%s]; unset it, or "
				"make that key with 'sheaf key'",
				wish, c->path, wish);
	} else if (access(c->key_file, R_OK) < 0) {
		for (uint32_t i = 0; !k && i < c->n_keys; i++)
			if (access(c->keys[i].file, R_OK) == 0)
				k = &c->keys[i];
	}
	strcpy(name, k ? k->name : "");
	return key_load(k ? k->file : c->key_file, key, err, err_len);
}

static bool has_gid(const struct key_role *r, uint32_t gid)
{
	for (uint32_t i = 0; i < r->n_gids; i++)
		if (r->gids[i] == gid)
			return true;
	return false;
}

bool key_allows(const struct key_role *r, uint32_t uid, uint32_t gid, uint32_t *gids,
		uint32_t *n_gids)
{
	uint32_t n = 0;

	if (r->any)
		return true;
	if (uid == NOBODY && gid == NOBODY) {
		*n_gids = 0;
		return true;
	}
	if (uid != r->uid || !has_gid(r, gid))
		return false;
	for (uint32_t i = 0; i < *n_gids; i++)
		if (has_gid(r, gids[i]))
			gids[n++] = gids[i];
	*n_gids = n;
	return true;
}
