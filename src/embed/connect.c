/* sheaf_connect(): over the network by a cluster file, or to targets inside this process
 * (local:DIR). sheaf_import(): the same, with the state that another process exported.
 *
 * Embedded targets run on the client's loop and are reached over net_loopback: the thread that
 * drives the client drives them. A lock on each storage directory keeps other processes out. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/client.h"
#include "embed/embed.h"
#include "server/server.h"

#define EMBEDDED_TARGETS 2

struct backing {
	struct loop loop;
	struct conf *conf;
	struct loopback_hub hub;
	struct server **servers; /* embedded targets */
	char path[CONF_PATH_MAX]; /* of the cluster file, absolute */
};

int why_fail(int r, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	why_set("%s", text);
	return r;
}

static void teardown(void *owner)
{
	struct backing *b = owner;

	for (uint32_t i = 0; b->servers && i < b->conf->n_targets; i++)
		if (b->servers[i] && server_stop(b->servers[i]))
			log_error("embed", "%s did not stop cleanly", b->conf->targets[i].name);
	loop_fini(&b->loop);
	conf_free(b->conf);
	free(b->servers);
	free(b);
}

/* Loads the client's key. Embedded mode has no network to guard, but loads both keys of the cluster
 * so that capabilities stay valid. */
static int load_keys(struct backing *b, bool server, struct client_opts *o,
		     uint8_t server_key[KEY_BYTES])
{
	char err[CONF_PATH_MAX + 256];
	int r;

	if (!server) {
		r = key_choose(b->conf, o->key_name, o->key, err, sizeof(err));
	} else {
		r = key_load(b->conf->key_file, o->key, err, sizeof(err));
		if (!r)
			r = key_load(b->conf->server_key_file, server_key, err, sizeof(err));
	}
	return r ? why_fail(r, "%s", err) : 0;
}

static int start_targets(struct backing *b, const uint8_t key[KEY_BYTES],
			 const uint8_t server_key[KEY_BYTES])
{
	uint32_t n = b->conf->n_targets;
	char err[512];
	int r = 0;

	b->servers = calloc(n, sizeof(*b->servers));
	if (!b->servers)
		return -ENOMEM;
	list_init(&b->hub.acceptors);
	for (uint32_t i = 0; i < n; i++) /* in-process addresses replace those of the file */
		snprintf(b->conf->targets[i].address, CONF_ADDR_MAX, "loop:%u", i);
	for (uint32_t i = 0; !r && i < n; i++) {
		struct server_opts o = { .loop = &b->loop,
					 .conf = b->conf,
					 .target = i,
					 .hub = &b->hub,
					 .measure = true };

		memcpy(o.client_key, key, KEY_BYTES);
		memcpy(o.server_key, server_key, KEY_BYTES);
		r = server_start(&o, &b->servers[i], err, sizeof(err));
		if (r)
			why_set("%s", err);
	}
	return r;
}

/* state: exported by another process, or NULL. */
static int open_backing(struct backing *b, const char *conf_path, bool embedded,
			const struct wire_bytes *state, struct client **client)
{
	struct client_opts o = { .loop = &b->loop };
	uint8_t server_key[KEY_BYTES] = { 0 };
	char err[512] = "";
	int r = conf_load(conf_path, &b->conf, err, sizeof(err));

	if (r)
		return why_fail(r, "%s", err);
	r = load_keys(b, embedded, &o, server_key);
	if (!r && embedded)
		r = start_targets(b, o.key, server_key);
	if (r)
		return r;
	o.conf = b->conf;
	o.hub = embedded ? &b->hub : NULL;
	r = client_new(&o, client);
	if (r)
		return r;
	r = movers_init(*client);
	r = r ? r : direct_switch(*client);
	if (!r && !state)
		return 0;
	r = r ? r : client_import(*client, state);
	if (r)
		client_free(*client);
	else
		client_resume(*client);
	return r;
}

/* local:DIR is created on first use. */
static int local_conf(const char *dir, char *path, size_t n)
{
	struct sheaf_init o = { .size = sizeof(o), .servers = EMBEDDED_TARGETS };
	int r;

	snprintf(path, n, "%s/sheaf.conf", dir);
	if (access(path, F_OK) == 0)
		return 0;
	r = sheaf_init(dir, &o);
	if (r == -EEXIST)
		why_set("%s is neither empty nor a Sheaf directory: local: wants one of its own",
			dir);
	return r;
}

static int connect_path(const char *path, bool embedded, const struct wire_bytes *state,
			struct sheaf **fs);

static int again(const void *owner, struct sheaf **fs)
{
	const struct backing *b = owner;

	why_set("%s", "");
	return connect_path(b->path, false, NULL, fs);
}

static int connect_path(const char *path, bool embedded, const struct wire_bytes *state,
			struct sheaf **fs)
{
	struct backing *b = calloc(1, sizeof(*b));
	struct sheaf_backing sb = { .owner = b,
				    .teardown = teardown,
				    .again = embedded ? NULL : again };
	char *full = realpath(path, NULL);
	int r;

	if (b)
		snprintf(b->path, sizeof(b->path), "%s", full ? full : path);
	free(full);
	if (!b)
		return -ENOMEM;
	r = loop_init(&b->loop, env_real());
	if (r) {
		free(b);
		return r;
	}
	sb.loop = &b->loop;
	r = open_backing(b, path, embedded, state, &sb.client);
	if (!r) {
		r = sheaf_wrap(&sb, fs);
		if (r)
			client_free(sb.client);
	}
	if (r)
		teardown(b);
	return r;
}

static int connect_with(const char *conf, const struct wire_bytes *state, struct sheaf **fs)
{
	char found[CONF_PATH_MAX], path[CONF_PATH_MAX + 16], err[512] = "";
	bool embedded;
	int r;

	why_set("%s", "");
	r = conf_find(conf, found, sizeof(found), err, sizeof(err));
	if (r)
		return why_fail(r, "%s", err);
	embedded = strncmp(found, "local:", 6) == 0;
	if (embedded && state)
		r = -EOPNOTSUPP;
	else if (embedded)
		r = local_conf(found + 6, path, sizeof(path));
	else
		snprintf(path, sizeof(path), "%s", found);
	return r ? r : connect_path(path, embedded, state, fs);
}

int sheaf_connect(const char *conf, struct sheaf **fs)
{
	return connect_with(conf, NULL, fs);
}

int sheaf_import(const char *conf, int fd, struct sheaf **fs)
{
	struct wire_bytes state;
	int r;

	why_set("%s", "");
	r = export_read(fd, &state);
	if (r)
		return r;
	r = connect_with(conf, &state, fs);
	free((void *)(uintptr_t)state.p);
	return r;
}
