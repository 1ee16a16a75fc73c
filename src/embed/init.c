/* sheaf_init(): writes a cluster file and its keys, and formats the storage of its servers. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/client.h"
#include "embed/embed.h"
#include "server/server.h"

#define DEFAULT_SERVERS 4
#define DEFAULT_PORT 7430
#define DEFAULT_UNIT (256 * KIB)
#define METRICS_OFFSET 1000 /* from a server's port to its metrics port */

/* 0: created, or empty; -EEXIST; or why it cannot be used. */
static int usable(const char *dir)
{
	DIR *d;
	struct dirent *e;
	int n = 0;

	if (mkdir(dir, 0755) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	d = opendir(dir);
	if (!d)
		return -errno;
	while ((e = readdir(d)))
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n ? -EEXIST : 0;
}

static int write_conf(const char *path, const struct sheaf_init *o)
{
	struct env *e = env_real();
	struct uuid id;
	char text[UUID_TEXT];
	FILE *f = fopen(path, "wxe");
	int r;

	if (!f)
		return -errno;
	e->clock->random(e, &id, sizeof(id));
	uuid_format(text, &id);
	fprintf(f,
		"; A Sheaf file system. See sheaf.conf(5).\n[cluster]\nid = %s\nkey = key\n"
		"server_key = server.key\nstripe_unit = %u\ntimeout = 30\nlease = 30\n",
		text, o->stripe_unit);
	for (uint32_t i = 0; i < o->servers; i++)
		fprintf(f,
			"\n[server.%u]\nname = server%u\naddress = %s:%u\nroles = %s\n"
			"storage = server%u\nmetrics = %s:%u\n",
			i, i, o->listen, o->port + i, i < o->metas ? "meta data" : "data", i,
			o->listen, o->port + i + METRICS_OFFSET);
	r = fflush(f) || fsync(fileno(f)) ? -errno : 0;
	fclose(f);
	return r;
}

static int format_all(const char *conf_path)
{
	char err[512] = "";
	struct conf *c = NULL;
	int r = conf_load(conf_path, &c, err, sizeof(err));

	for (uint32_t i = 0; !r && i < c->n_targets; i++)
		r = server_format(env_real(), c, i, err, sizeof(err));
	if (r) {
		why_set("%s", err);
		unlink(conf_path); /* a cluster file must not exist without its storage */
	}
	conf_free(c);
	return r;
}

int sheaf_init(const char *dir, const struct sheaf_init *given)
{
	struct sheaf_init o = given ? *given : (struct sheaf_init){ .size = sizeof(o) };
	char path[CONF_PATH_MAX + 16], err[512];
	static const char *const keys[] = { "key", "server.key" };
	int r;

	o.servers = o.servers ? o.servers : DEFAULT_SERVERS;
	o.metas = o.metas ? o.metas : o.servers;
	o.port = o.port ? o.port : DEFAULT_PORT;
	o.stripe_unit = o.stripe_unit ? o.stripe_unit : (uint32_t)DEFAULT_UNIT;
	o.listen = o.listen ? o.listen : "127.0.0.1";
	if (o.servers > CONF_MAX_TARGETS || o.port + o.servers + METRICS_OFFSET > 65536 ||
	    strlen(dir) >= CONF_PATH_MAX)
		return why_fail(-EINVAL, "cannot make %u servers from port %u on", o.servers,
				o.port);
	if (o.stripe_unit % 4096)
		return why_fail(-EINVAL, "stripe unit %u is not a multiple of 4096", o.stripe_unit);
	r = usable(dir);
	if (r == -EEXIST)
		return why_fail(
			r, "%s is not empty: choose a new directory, or start what is in it", dir);
	if (r)
		return why_fail(r, "cannot make directory %s: %s", dir, error_text(r));
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, keys[i]);
		r = key_create(path, err, sizeof(err));
		if (r)
			return why_fail(r, "%s", err);
	}
	snprintf(path, sizeof(path), "%s/sheaf.conf", dir);
	r = write_conf(path, &o);
	return r ? why_fail(r, "cannot write %s: %s", path, error_text(r)) : format_all(path);
}
