/* A client: its peers, the memory of its operations, and which server owns an inode. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/banked.h"

static void default_name(char out[LINK_HOST_MAX])
{
	char host[48] = "client";

	gethostname(host, sizeof(host) - 1);
	snprintf(out, LINK_HOST_MAX, "%s:%d", host, (int)getpid());
}

/* A client of a gateway is a job of its own. */
static void name_client(struct client *c, const struct client_opts *o)
{
	if (!o->name) {
		default_name(c->host);
		job_of_process(c->job);
		return;
	}
	snprintf(c->host, sizeof(c->host), "%s", o->name);
	if (o->of)
		snprintf(c->job, sizeof(c->job), "%.*s", (int)sizeof(c->job) - 1, o->name);
}

static struct net *net_new(const struct client_opts *o, const char *host)
{
	const struct conf *conf = o->conf;
	struct net_identity id = { .fs = conf->fs_id, .timeout_ms = conf->timeout_s * 1000 };
	struct net *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	memcpy(id.client_key, o->key, KEY_BYTES);
	memcpy(id.key_name, o->key_name, sizeof(id.key_name));
	snprintf(id.host, sizeof(id.host), "%s", host);
	net_init(n, o->loop, &id);
	net_set_rdma(n, &conf->rdma);
	n->hub = o->hub;
	return n;
}

int client_new(const struct client_opts *o, struct client **out)
{
	const struct conf *conf = o->conf;
	struct client *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->loop = o->loop;
	c->conf = conf;
	c->of = o->of;
	c->timeout_ns = conf->timeout_s * NSEC_PER_SEC;
	list_init(&c->files);
	list_init(&c->spare_ops);
	list_init(&c->spare_lanes);
	list_init(&c->lockings);
	name_client(c, o);
	c->has_name = o->session_name;
	if (o->session_name)
		memcpy(c->name, o->session_name, sizeof(c->name));
	c->loop->now = c->loop->env->clock->now(c->loop->env);
	c->net = o->of ? o->of->net : net_new(o, c->host);
	c->wall_started = c->loop->env->clock->wall(c->loop->env);
	c->trace_base = env_random_u64(o->loop->env);
	c->max_list_extents = LIST_USUAL;
	c->peers = calloc(CONF_MAX_TARGETS, sizeof(*c->peers)); /* untouched pages cost no memory */
	c->targets = calloc(CONF_MAX_TARGETS, sizeof(*c->targets));
	if (!c->net || !c->peers || !c->targets ||
	    direct_init(&c->direct, c->loop->env, c->peers) || htab_init(&c->imported)) {
		client_free(c);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < conf->n_targets; i++) {
		client_add(c, &conf->targets[i],
			   o->addresses ? o->addresses[i] : conf->targets[i].address);
		if (conf->targets[i].roles & ROLE_META)
			c->meta[c->n_meta++] = i;
	}
	*out = c;
	return 0;
}

int client_fork(struct client *of, const uint8_t name[SESSION_NAME], const char *host,
		struct client **out)
{
	const char *addresses[CONF_MAX_TARGETS];
	struct client_opts o = { .loop = of->loop,
				 .conf = of->conf,
				 .addresses = addresses,
				 .name = host,
				 .of = of,
				 .session_name = name };
	int r;

	for (uint32_t i = 0; i < of->conf->n_targets; i++)
		addresses[i] = of->peers[i].address;
	r = client_new(&o, out);
	if (r)
		return r;
	(*out)->timeout_ns = of->timeout_ns;
	(*out)->is_front = of->is_front;
	(*out)->mover = of->mover;
	(*out)->self = of->self;
	(*out)->has_self = of->has_self;
	(*out)->direct.on = of->direct.on;
	for (uint32_t i = 0; i < (*out)->n_meta; i++) { /* locks wait there, for the lease */
		struct peer *p = &(*out)->peers[(*out)->meta[i]];

		p->inherits_until = of->loop->now + p->lease_ms * NSEC_PER_MSEC;
		peer_connect(p);
	}
	return 0;
}

void client_set_mover(struct client *c, enum net_method how)
{
	c->mover = how;
}

void client_set_max_list_extents(struct client *c, size_t n)
{
	c->max_list_extents = n;
}

static void session_up(struct peer *p, const struct wire_session_res *r)
{
	struct client *c = p->owner;

	direct_session_up(&c->direct, p, r);
	attrs_session(p, r);
}

static void link_down(struct peer *p)
{
	struct client *c = p->owner;

	direct_link_down(&c->direct, p);
}

void client_add(struct client *c, const struct conf_target *t, const char *address)
{
	struct peer *p = &c->peers[c->n_peers];

	c->targets[c->n_peers] = *t;
	peer_init(p, c->net, LINK_CLIENT, c->n_peers, address);
	if (c->of && c->n_peers < c->of->n_peers &&
	    strcmp(c->of->peers[c->n_peers].address, p->address) == 0)
		(void)peer_use_link(p, &c->of->peers[c->n_peers]); /* else it has its own */
	p->owner = c;
	p->host = c->host;
	p->job = c->job;
	p->name = c->has_name ? c->name : NULL;
	p->on_restart = file_reclaim;
	p->on_map_change = map_changed;
	p->on_session_up = session_up;
	p->on_link_down = link_down;
	c->n_peers++;
}

void client_free(struct client *c)
{
	struct list *it;

	for (uint32_t i = 0; c->peers && i < c->n_peers; i++)
		peer_fini(&c->peers[i]);
	if (!c->of)
		bank_stop(c->bank);
	while (!list_empty(&c->loop->runnable)) /* ends claims under way */
		loop_run_ready(c->loop);
	if (!c->of && c->net) {
		net_fini(c->net);
		free(c->net);
	}
	if (!c->of)
		bank_free(c->bank);
	while ((it = list_pop(&c->files)))
		file_free(list_entry(it, struct cfile, link));
	htab_destroy(&c->holdings);
	while ((it = list_pop(&c->spare_ops))) {
		struct cop *op = list_entry(it, struct cop, spare);

		arena_destroy(&op->arena);
		free(op);
	}
	lanes_free(c);
	htab_destroy(&c->imported);
	free(c->peers);
	free(c->targets);
	direct_fini(&c->direct);
	free(c->wholes);
	free(c);
}

uint32_t client_meta_of(const struct client *c, uint64_t ino)
{
	return c->meta[(ino >> 48) % c->n_meta];
}

struct peer *meta_peer(struct client *c, uint64_t ino)
{
	return &c->peers[client_meta_of(c, ino)];
}

/* ---- operations ---- */

/* Our own credential; the protocol carries the first 32 groups. */
static void own_cred(struct cred_wire *w)
{
	int n = getgroups(ARRAY_LEN(w->gids), w->gids);
	gid_t *all = NULL;

	w->uid = geteuid();
	w->gid = getegid();
	if (n < 0) { /* we have more groups */
		n = getgroups(0, NULL);
		all = n > 0 ? calloc((size_t)n, sizeof(*all)) : NULL;
		n = all ? getgroups(n, all) : 0;
	}
	w->n_gids = n > 0 ? MIN((uint32_t)n, (uint32_t)ARRAY_LEN(w->gids)) : 0;
	if (all)
		memcpy(w->gids, all, w->n_gids * sizeof(*all));
	free(all);
}

void client_cache_cred(struct client *c, bool on)
{
	if (on)
		own_cred(&c->self);
	c->has_self = on;
}

struct cop *cop_new(struct client *c, const struct sheaf_cred *cred)
{
	struct list *it = list_pop(&c->spare_ops);
	struct cop *op;
	struct arena keep;

	if (it) {
		op = list_entry(it, struct cop, spare);
	} else {
		op = calloc(1, sizeof(*op));
		if (!op)
			return NULL;
		arena_init(&op->arena, 0);
	}
	keep = op->arena;
	memset(op, 0, sizeof(*op));
	op->arena = keep;
	list_init(&op->spare);
	op->c = c;
	c->n_ops++;
	if (!cred) {
		if (c->has_self)
			op->cred = c->self;
		else
			own_cred(&op->cred);
		return op;
	}
	op->cred.uid = cred->uid;
	op->cred.gid = cred->gid;
	op->umask = cred->umask & 0777;
	op->cred.n_gids = MIN(cred->n_gids, (uint32_t)ARRAY_LEN(op->cred.gids));
	op->cred.has_call_id = cred->call_id != NULL;
	if (cred->call_id)
		memcpy(op->cred.call_id, cred->call_id, CALL_ID_BYTES);
	if (op->cred.n_gids)
		memcpy(op->cred.gids, cred->gids, op->cred.n_gids * sizeof(uint32_t));
	return op;
}

void cop_refuse(struct cop *op, struct client *c)
{
	*op = (struct cop){ .c = c, .refused = true };
	list_init(&op->spare);
	arena_init(&op->arena, 1); /* has no room for the state of an operation */
	c->n_ops++;
}

void cop_free(struct cop *op)
{
	call_fini(&op->call);
	bank_call_free(op->look);
	arena_reset(&op->arena);
	op->c->n_ops--;
	if (!op->refused)
		list_push_front(&op->c->spare_ops, &op->spare);
}

struct call call_make(struct cop *op, uint32_t number, void *args, void *res)
{
	return (struct call){ .op = number,
			      .once = wire_op_rows[number].flags & OPF_ONCE,
			      .args = args,
			      .res = res,
			      .cred = &op->cred,
			      .arena = &op->arena,
			      .trace = op->q.trace,
			      .deadline = op->c->loop->now + op->c->timeout_ns };
}

/* Unique enough to follow a request through the logs of all servers. */
uint64_t trace_new(struct client *c)
{
	return c->trace_base + ++c->n_traces;
}

void cop_start(struct cop *op, const struct req_ops *ops, int error)
{
	op->c->loop->now = op->c->loop->env->clock->now(op->c->loop->env);
	req_init(&op->q, op->c->loop, ops, 0);
	op->q.trace = trace_new(op->c);
	op->q.error = op->refused ? -ENOMEM : error;
	req_run(&op->q);
}

bool cop_end(struct cop *op, int64_t result)
{
	op->result = result;
	if (op->plain_began)
		banked_note_plain(op);
	req_fini(&op->q);
	op->finished = true;
	op->done(op);
	return false;
}
