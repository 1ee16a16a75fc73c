/* One target from start to stop: storage, metadata, map, links, recovery. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/cache.h"
#include "net/http.h"
#include "server/inode.h"
#include "server/pair.h"
#include "server/task.h"
#include "server/window.h"

#define STOP_PATIENCE_NS (10 * NSEC_PER_SEC)

int server_format(struct env *e, const struct conf *c, uint32_t target, char *err, size_t err_len)
{
	return disk_format(e, c->targets[target].storage, &c->fs_id, target, err, err_len);
}

int server_format_again(struct env *e, const struct conf *c, uint32_t target, char *err,
			size_t err_len)
{
	const char *path = c->targets[target].storage;
	struct stamp stamp;
	int r = server_format(e, c, target, err, err_len);

	if (r != -EEXIST)
		return r;
	r = disk_hold(e, path, &c->fs_id, target, &stamp, err, err_len);
	if (r < 0)
		return r == -EBUSY ? 0 : r; /* a running server uses it */
	e->file->close(e, r);
	return 0;
}

int server_format_lost(struct env *e, const struct conf *c, uint32_t target, char *err,
		       size_t err_len)
{
	int r = disk_format_lost(e, c->targets[target].storage, &c->fs_id, target, err, err_len);

	if (r == -ENOENT) {
		r = server_format(e, c, target, err, err_len);
		return r ? r : 1;
	}
	return r == -EBUSY ? 0 : r; /* a running server uses it */
}

/* ---- start ---- */

uint16_t partition_of(const struct conf *c, uint32_t target)
{
	uint16_t p = 0;

	for (uint32_t i = 0; i < target; i++)
		if (c->targets[i].roles & ROLE_META)
			p++;
	return p;
}

static int open_meta(struct server *s, const struct server_opts *o, char *err, size_t err_len)
{
	char dir[CONF_PATH_MAX + 8];
	struct meta_opts m = { .fs = s->conf->fs_id,
			       .target = s->target,
			       .partition = partition_of(s->conf, s->target),
			       .nosync = s->conf->nosync,
			       .map_bytes = o->meta_map_bytes };

	if (!(s->self->roles & ROLE_META))
		return 0;
	snprintf(dir, sizeof(dir), "%s/meta", s->self->storage);
	m.dir = o->meta_dir ? o->meta_dir : dir;
	m.root = m.partition == 0;
	m.stamp = disk_stamp(s->disk);
	m.expected = disk_has_meta(s->disk);
	return meta_open(s->loop, &m, &s->meta, err, err_len);
}

static void take_time(struct server *s)
{
	s->loop->now = s->loop->env->clock->now(s->loop->env);
}

static void known_session(void *arg, const struct meta_session *ms)
{
	struct server *s = arg;
	struct key_account *k = account_get(&s->net.limits, "", KEY_UNKNOWN);
	struct session *ss;

	if (!k || session_new(&s->sessions, ms->id, ms->secret, ms->client, &ss)) {
		log_error("server", "out of memory: session of %s is lost", ms->client);
		account_put(k);
		return;
	}
	usage_move(&ss->held, k);
	usage_add(&ss->held, LIMIT_SESSIONS, 1);
}

static void session_expired(void *owner, struct session *ss)
{
	log_info("server", "the session of %s ended with its lease", ss->client);
	srv_session_down(ss);
	task_end_session(owner, ss);
}

static const struct net_server_ops link_ops = { srv_request, srv_cancel, srv_link_down };

static void open_net(struct server *s, const struct server_opts *o)
{
	struct net_identity id = { .fs = s->conf->fs_id,
				   .target = s->target,
				   .verifier = disk_verifier(s->disk),
				   .incarnation = disk_stamp(s->disk).incarnation,
				   .lease_ms = s->conf->lease_s * 1000,
				   .timeout_ms = s->conf->timeout_s * 1000,
				   .map_version = s->map.version,
				   .has_server_key = true,
				   .named_keys = s->auth_conf };

	memcpy(id.client_key, o->client_key, KEY_BYTES);
	memcpy(id.server_key, o->server_key, KEY_BYTES);
	snprintf(id.host, sizeof(id.host), "%s", s->self->name);
	net_init(&s->net, s->loop, &id);
	net_set_rdma(&s->net, &s->conf->rdma);
	s->net.rdma.bulk = (struct iovec){ s->pool.base, s->pool.n_units * BUF_UNIT };
	s->net.limits.most[LIMIT_LINKS] = MIN(s->net.limits.most[LIMIT_LINKS], file_limit() / 2);
	if (o->measure) {
		pieces_guard();
		net_costs_measure(s->net.costs);
		disk_find_costs(s->disk);
	}
	disk_costs(s->disk)->copy = s->net.costs[MEDIUM_LOCAL].copy;
	disk_costs(s->disk)->piece = s->net.costs[MEDIUM_LOCAL].pack;
	if (o->costs)
		*disk_costs(s->disk) = *o->costs;
	s->net.hub = o->hub;
	s->net.server = &link_ops;
	s->net.owner = s;
}

/* Listens on the Unix socket before TCP: a client that tries both finds it, or no server at all. */
static int listen_all(struct server *s, const char *address, char *err, size_t err_len)
{
	int local, r;

	if (!s->net.hub)
		net_open_card(&s->net);
	local = net_listen_local(&s->net, s->self->address);
	r = net_listen(&s->net, address, err, err_len);

	if (!r && local == -EADDRINUSE) /* the previous owner has exited since */
		local = net_listen_local(&s->net, s->self->address);
	if (!r && local == -EOPNOTSUPP)
		log_info("server", "clients of this host have to use TCP: in a user namespace "
				   "the Unix socket does not show their users");
	else if (!r && local)
		log_warn("server",
			 "clients of this host have to use TCP: no Unix socket @sheaf@%s: %s",
			 s->self->address, error_text(local));
	return r;
}

static int open_all(struct server *s, const struct server_opts *o, char *err, size_t err_len)
{
	int r;

	s->signer = mac_key(o->server_key);
	if (!s->signer)
		return -ENOMEM;
	r = disk_open(s->loop, s->self->storage, &s->conf->fs_id, s->target, s->conf->nosync,
		      o->max_floors, &s->disk, err, err_len);

	if (!r)
		disk_set_limits(s->disk, o->limits.open_objects, o->limits.fence_slack);
	if (!r)
		r = open_meta(s, o, err, err_len);
	if (!r && (!s->meta || meta_stamped(s->meta)))
		r = disk_stamp_end(s->disk, s->meta != NULL);
	if (!r)
		r = map_open(s);
	if (!r)
		r = pool_init(&s->pool, s->loop, s->conf->pool_bytes);
	if (!r)
		r = pool_init(&s->copies, s->loop, COPY_BYTES);
	if (!r)
		r = sessions_init(&s->sessions, s->loop, s->conf->lease_s * NSEC_PER_SEC);
	if (!r)
		r = htab_init(&s->inodes);
	if (!r)
		r = htab_init(&s->opens);
	if (!r)
		r = lock_table_init(&s->locks);
	if (!r)
		r = times_init(s);
	if (!r)
		r = tallies_init(s);
	if (r)
		return r;
	s->boot = disk_boot(s->disk);
	s->sessions.owner = s;
	s->sessions.expired = session_expired;
	open_net(s, o);
	r = map_peers(s);
	if (!r)
		r = listen_all(s, o->listen ? o->listen : s->self->address, err, err_len);
	take_time(s); /* leases begin now: clients could not renew them during the start */
	if (!r && s->meta)
		r = meta_each_session(s->meta, known_session, s);
	return r;
}

int server_start(const struct server_opts *o, struct server **out, char *err, size_t err_len)
{
	struct server *s = calloc(1, sizeof(*s));
	int r;

	snprintf(err, err_len, "out of memory");
	if (!s)
		return -ENOMEM;
	err[0] = 0;
	s->loop = o->loop;
	s->conf = s->auth_conf = o->conf;
	s->was_unclean = o->was_unclean;
	s->target = o->target;
	s->max_removing = o->limits.removing ? o->limits.removing : MAX_REMOVING;
	s->self = &o->conf->targets[o->target];
	take_time(s);
	s->started = s->loop->now;
	list_init(&s->spare_reqs);
	list_init(&s->spare_windows);
	list_init(&s->tasks);
	list_init(&s->delayed);
	list_init(&s->pairs);
	list_init(&s->pair_tasks);
	list_init(&s->parked);
	r = open_all(s, o, err, err_len);
	if (r) {
		if (!err[0])
			snprintf(err, err_len, "%s cannot start: %s", s->self->name, error_text(r));
		server_abandon(s);
		return r;
	}
	if (s->meta) {
		s->notices.filler = o->filler;
		notices_open(s);
		grace_start(s);
		tasks_recover(s);
		pairs_recover(s);
	}
	*out = s;
	return 0;
}

void server_reread(struct server *s, const struct conf *c, const uint8_t client_key[KEY_BYTES])
{
	s->auth_conf = s->net.id.named_keys = c;
	memcpy(s->net.id.client_key, client_key, KEY_BYTES);
	net_recheck_keys(&s->net);
	notices_set(s, &c->bank);
}

/* ---- the end ---- */

static void free_rest(struct server *s)
{
	if (s->sessions.loop) {
		locks_kept_free(s);
		sessions_fini(&s->sessions);
	}
	if (s->opens.slots)
		opens_abandon(s);
	tasks_abandon(s);
	removals_abandon(s);
	pairs_abandon(s);
	timer_del(s->loop, &s->grace);
	timer_del(s->loop, &s->removing.refill);
	timer_del(s->loop, &s->settling.refill);
	htab_destroy(&s->inodes);
	htab_destroy(&s->opens);
	htab_destroy(&s->locks.by_owner);
	spare_requests_free(s);
	spare_windows_free(s);
	if (s->pool.base)
		pool_fini(&s->pool);
	if (s->copies.base)
		pool_fini(&s->copies);
	arena_destroy(&s->map_arena);
	arena_destroy(&s->store_arena);
	times_free(s);
	tallies_free(s);
	bank_free(s->notices.bank);
	mac_key_free(s->signer);
	free(s->peers);
	free(s);
}

static void close_net(struct server *s)
{
	http_stop(s->http);
	s->http = NULL;
	for (uint32_t i = 0; i < s->n_peers; i++)
		peer_fini(&s->peers[i]);
	if (s->net.loop)
		net_fini(&s->net);
}

static void turn_until_idle(struct server *s, uint64_t patience)
{
	uint64_t end = s->loop->now + patience;

	while (s->in_service && s->loop->now < end)
		loop_turn(s->loop, NSEC_PER_SEC / 10);
}

void server_drain(struct server *s)
{
	struct fetch *f;
	struct req *q;

	s->stopping = true;
	requests_unpark(s);
	lock_waits_answer(s, NULL);
	backup_cancel(s);
	net_stop_listening(&s->net);
	list_for_each(q, &s->loop->all, all) /* the other target may be stopping, too */
		if ((f = fetch_of(s, q)))
			fetch_cancel(f);
}

bool server_was_unclean(const struct server *s)
{
	return s->was_unclean;
}

bool server_idle(const struct server *s)
{
	return !s->in_service && disk_idle(s->disk);
}

int server_stop(struct server *s)
{
	int r;

	server_drain(s);
	turn_until_idle(s, STOP_PATIENCE_NS);
	close_net(s);
	turn_until_idle(s, STOP_PATIENCE_NS);
	while (!list_empty(&s->loop->runnable)) /* tasks that were told to stop */
		loop_run_ready(s->loop);
	backup_end(s);
	if (s->meta)
		meta_close(s->meta);
	bank_stop(s->notices.bank);
	while (!list_empty(&s->loop->runnable))
		loop_run_ready(s->loop);
	r = disk_close(s->disk, true);
	free_rest(s);
	return r;
}

void server_abandon(struct server *s)
{
	struct req *q, *tmp;
	struct fetch *f;

	s->stopping = true;
	close_net(s);
	/* innermost first: they refer to outer ones */
	list_for_each_safe(q, tmp, &s->loop->all, all)
		if ((f = fetch_of(s, q)))
			fetch_abandon(f);
	list_for_each_safe(q, tmp, &s->loop->all, all)
		if (is_window(s, q))
			window_abandon(q);
	list_for_each_safe(q, tmp, &s->loop->all, all)
		if (is_sreq(q) && sreq_of(q)->srv == s)
			sreq_abandon(sreq_of(q));
	map_abandon(s);
	backup_end(s);
	if (s->meta)
		meta_abandon(s->meta);
	bank_stop(s->notices.bank);
	if (s->disk)
		disk_close(s->disk, false);
	free_rest(s);
}
