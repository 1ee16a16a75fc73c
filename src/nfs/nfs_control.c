/* What `sheaf nfs` asks of a running gateway of this host: a Unix socket in the abstract namespace,
 * whose name has the address that the gateway serves. Who connects gets the status as JSON; the pid
 * of the gateway is that of the socket. */
#include <json-c/json.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include "nfs/nfs_priv.h"

static struct json_object *procedure_json(const struct rpc_proc *p, const struct nfs_counts *n)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "name", json_object_new_string(p->name));
	json_object_object_add(o, "calls", json_object_new_uint64(n->calls));
	json_object_object_add(o, "errors", json_object_new_uint64(n->errors));
	json_object_object_add(o, "mean_ns",
			       json_object_new_uint64(n->calls ? n->ns / n->calls : 0));
	return o;
}

static struct json_object *procedures_json(const struct gateway *g)
{
	struct json_object *all = json_object_new_array();

	for (size_t i = 0; rpc_programs[i]; i++)
		for (uint32_t k = 0; k < rpc_programs[i]->n_procs; k++)
			if (g->counts[i][k].calls)
				json_object_array_add(all,
						      procedure_json(&rpc_programs[i]->procs[k],
								     &g->counts[i][k]));
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

static void answer(struct gateway *g, int fd)
{
	struct json_object *o = json_object_new_object();
	const char *text;

	json_object_object_add(o, "pid", json_object_new_int(getpid()));
	json_object_object_add(o, "address", json_object_new_string(g->conf->nfs.address));
	json_object_object_add(o, "connections", json_object_new_int((int)g->n_conns));
	json_object_object_add(o, "calls_in_progress", json_object_new_int((int)g->n_calls));
	json_object_object_add(o, "open_files", json_object_new_uint64(g->files.count));
	json_object_object_add(o, "memory", json_object_new_uint64(g->memory_used));
	json_object_object_add(o, "exports", exports_json(g->conf));
	json_object_object_add(o, "procedures", procedures_json(g));
	text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
	if (send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("nfs", "the status was not sent: %s", error_text(errno));
	json_object_put(o);
}

static void control_ready(struct source *s, uint32_t events)
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
		r = source_add(g, &g->control, fd, EPOLLIN, control_ready);
	if (r)
		close(fd);
	return r;
}
