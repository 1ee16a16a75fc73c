/* Finding, loading and querying a cluster file. Blocking I/O, for start-up. */
#include "base/base.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONF_FILE_MAX (1 * MIB)

int conf_load(const char *path, struct conf **out, char *err, size_t err_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = fd < 0 ? -errno : 0;
	char *text = malloc(CONF_FILE_MAX + 1);
	ssize_t n = rc ? rc : text ? read_to_end(fd, text, CONF_FILE_MAX + 1) : -ENOMEM;

	if (n > (ssize_t)CONF_FILE_MAX)
		n = -EFBIG;
	if (n < 0)
		rc = error_explain(err, err_len, (int)n, "%s: cannot %s the cluster file: %s", path,
				   fd < 0 ? "open" : "read", error_text((int)n));
	else
		rc = conf_parse(text, (size_t)n, path, out, err, err_len);
	if (fd >= 0)
		close(fd);
	free(text);
	return rc;
}

void conf_free(struct conf *c)
{
	if (!c)
		return;
	if (c->keys)
		explicit_bzero(c->keys, c->n_keys * sizeof(*c->keys));
	free(c->keys);
	free(c->exports);
	free(c->targets);
	free(c);
}

const struct client_key *conf_key_find(const struct conf *c, const char *name)
{
	for (uint32_t i = 0; i < c->n_keys; i++)
		if (strcmp(c->keys[i].name, name) == 0)
			return &c->keys[i];
	return NULL;
}

bool conf_squashes(const struct conf *c, const struct origin *from)
{
	for (uint32_t i = 0; i < c->n_squash; i++)
		if (ip_net_holds(&c->squash[i], from))
			return true;
	for (uint32_t i = 0; i < c->n_trust; i++)
		if (ip_net_holds(&c->trust[i], from))
			return false;
	return !from->local;
}

/* A path that was given explicitly must exist; `origin` says where it was given. */
static int conf_named(const char *name, const char *origin, char *out, size_t n, char *err,
		      size_t err_len)
{
	if (strlen(name) >= n)
		return error_explain(err, err_len, -ENAMETOOLONG,
				     "%s names a path that is too long", origin);
	if (strncmp(name, "local:", 6) != 0 && access(name, F_OK) < 0)
		return error_explain(
			err, err_len, -ENOENT,
			"%s: no such cluster file (named by %s); 'sheaf init DIR' makes a cluster",
			name, origin);
	strcpy(out, name);
	return 0;
}

int conf_find(const char *given, char *out, size_t n, char *err, size_t err_len)
{
	static const char *const places[] = { "./sheaf.conf", "/etc/sheaf/sheaf.conf" };
	const char *env = getenv("SHEAF_CONF");

	if (given)
		return conf_named(given, "--conf", out, n, err, err_len);
	if (env && env[0])
		return conf_named(env, "$SHEAF_CONF", out, n, err, err_len);
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (access(places[i], F_OK) == 0 && strlen(places[i]) < n)
			return conf_named(places[i], "the search", out, n, err, err_len);
	return error_explain(
		err, err_len, -ENOENT,
		"no cluster file: neither %s nor %s is there; name one with --conf FILE or "
		"$SHEAF_CONF, or make a cluster with 'sheaf init DIR'",
		places[0], places[1]);
}
