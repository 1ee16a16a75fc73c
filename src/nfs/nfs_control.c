/* What `sheaf nfs` asks of a running gateway of this host: a Unix socket in the abstract namespace,
 * whose name has the address that the gateway serves. Who connects gets the status as JSON; the pid
 * of the gateway is that of the socket. */
#include <json-c/json.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "nfs/nfs_priv.h"

#define CLIENTS_SHOWN 256 /* those that called last */
#define STATUS_ROOM MIB /* of the socket */

static void counts_json(struct json_object *o, const struct nfs_counts *n)
{
	json_object_object_add(o, "calls", json_object_new_uint64(n->calls));
	json_object_object_add(o, "errors", json_object_new_uint64(n->errors));
	json_object_object_add(o, "mean_ns",
			       json_object_new_uint64(n->calls ? n->ns / n->calls : 0));
}

static struct json_object *procedure_json(const struct rpc_program *program,
					  const struct rpc_proc *p, const struct nfs_counts *n)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "program", json_object_new_string(program->name));
	json_object_object_add(o, "name", json_object_new_string(p->name));
	counts_json(o, n);
	return o;
}

static struct json_object *procedures_json(const struct gateway *g)
{
	struct json_object *all = json_object_new_array();

	for (size_t i = 0; rpc_programs[i]; i++)
		for (uint32_t k = 0; k < rpc_programs[i]->n_procs; k++)
			if (g->counts[i][k].calls)
				json_object_array_add(all,
						      procedure_json(rpc_programs[i],
								     &rpc_programs[i]->procs[k],
								     &g->counts[i][k]));
	return all;
}

static void client_json(struct json_object *o, const struct origin *from)
{
	char text[ORIGIN_TEXT];

	origin_format(text, from);
	json_object_object_add(o, "client", json_object_new_string(text));
}

static struct json_object *clients_json(const struct gateway *g)
{
	struct json_object *all = json_object_new_array(), *o;
	size_t skip = g->clients.count > CLIENTS_SHOWN ? g->clients.count - CLIENTS_SHOWN : 0;
	const struct nfs_client *k;

	list_for_each(k, &g->clients_by_use, link) {
		if (skip) {
			skip--;
			continue;
		}
		o = json_object_new_object();
		client_json(o, &k->from);
		counts_json(o, &k->counts);
		json_object_object_add(o, "received", json_object_new_uint64(k->received));
		json_object_object_add(o, "sent", json_object_new_uint64(k->sent));
		json_object_array_add(all, o);
	}
	return all;
}

/* In the form of `sheaf requests --json`. */
static struct json_object *requests_json(const struct gateway *g)
{
	struct json_object *all = json_object_new_array(), *o;
	uint64_t now = gateway_now(g);
	const struct nfs_call *c;
	char xid[16];

	list_for_each(c, &g->executing, executing) {
		o = json_object_new_object();
		snprintf(xid, sizeof(xid), "%x", c->head.xid);
		json_object_object_add(o, "op", json_object_new_string(c->proc->name));
		json_object_object_add(o, "state",
				       json_object_new_string(c->out_len ? "reply" : "execute"));
		client_json(o, &c->from);
		json_object_object_add(o, "age_ns", json_object_new_uint64(now - c->began));
		json_object_object_add(o, "ino", json_object_new_uint64(c->ino));
		json_object_object_add(o, "uid", json_object_new_int64(c->uid));
		json_object_object_add(o, "xid", json_object_new_string(xid));
		json_object_array_add(all, o);
	}
	return all;
}

static struct json_object *exports_json(const struct conf *c)
{
	struct json_object *all = json_object_new_array(), *o;

	for (uint32_t i = 0; i < c->n_exports; i++) {
		o = json_object_new_object();
		json_object_object_add(o, "name", json_object_new_string(c->exports[i].name));
		json_object_object_add(o, "path", json_object_new_string(c->exports[i].path));
		json_object_array_add(all, o);
	}
	return all;
}

/* How this gateway uses the cache bank; NULL: it does not. */
static struct json_object *bank_json(const struct gateway *g)
{
	char text[1024];
	ssize_t n = sheaf_h_getxattr(g->fs, NULL, sheaf_root(g->fs), "sheaf.bank", text,
				     sizeof(text) - 1);

	if (n < 0)
		return NULL;
	text[n] = 0;
	return json_tokener_parse(text);
}

static void answer(struct gateway *g, int fd)
{
	struct json_object *o = json_object_new_object();
	const char *text;
	char id[UUID_TEXT];
	int room = STATUS_ROOM;

	uuid_format(id, &g->conf->fs_id);
	json_object_object_add(o, "pid", json_object_new_int(getpid()));
	json_object_object_add(o, "file_system", json_object_new_string(id));
	json_object_object_add(o, "address", json_object_new_string(g->conf->nfs.address));
	json_object_object_add(o, "connections", json_object_new_int((int)g->n_conns));
	json_object_object_add(o, "calls_in_progress", json_object_new_int((int)g->n_calls));
	json_object_object_add(o, "sessions", json_object_new_uint64(g->sessions.count));
	json_object_object_add(o, "open_files", json_object_new_uint64(g->files.count));
	json_object_object_add(o, "memory", json_object_new_uint64(g->memory_used + g->data_used));
	json_object_object_add(o, "replayed", json_object_new_uint64(g->n_replayed));
	json_object_object_add(o, "bank", bank_json(g));
	json_object_object_add(o, "exports", exports_json(g->conf));
	json_object_object_add(o, "procedures", procedures_json(g));
	json_object_object_add(o, "clients", clients_json(g));
	json_object_object_add(o, "requests", requests_json(g));
	text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < (ssize_t)strlen(text))
		log_debug("nfs", "the status was not sent: %s", error_text(errno));
	json_object_put(o);
}

static void control_ready(struct nfs_source *s, unsigned events)
{
	int fd;

	(void)events;
	while ((fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		answer(s->g, fd);
		close(fd);
	}
}

int control_listen(struct gateway *g)
{
	struct sockaddr_un a;
	unsigned len = nfs_control_address(g->conf->nfs.address, &a);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd < 0)
		return -errno;
	r = bind(fd, (struct sockaddr *)&a, len) || listen(fd, 16) ? -errno : 0;
	if (!r)
		r = source_add(g, &g->control, fd, EV_IN, control_ready);
	if (r)
		close(fd);
	return r;
}
