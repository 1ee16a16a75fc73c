/* State that no interface shows but the simulation needs: whether a server is idle, what is left
 * in it, where the bytes of an open file are, and how a client dies. */
#include <stdio.h>
#include <stdlib.h>

#include "client/file_impl.h"
#include "server/inode.h"
#include "server/window.h"
#include "sim_priv.h"
#include "sim_world.h"

bool peek_idle(const struct server *s)
{
	return server_idle(s) && list_empty(&s->tasks) && list_empty(&s->delayed) &&
	       !s->loop->n_reqs;
}

bool peek_serves(const struct server *s, uint64_t age)
{
	struct env *e = s->loop->env;
	uint64_t now = e->clock->now(e); /* loop->now is as old as the loop's last turn */
	const struct req *q;

	list_for_each(q, &s->loop->all, all)
		if (is_sreq(q) && q->born + age < now)
			return true;
	return false;
}

bool peek_state(const struct server *s, const char *name, const char *state)
{
	struct req *q;

	list_for_each(q, &s->loop->all, all) {
		const char *is = is_sreq(q) ? sreq_of(q)->row->wire->name : q->ops->name;

		if (!strcmp(is, name) && !strcmp(q->ops->state_names[q->state], state))
			return true;
	}
	return false;
}

struct disk *peek_disk(const struct server *s)
{
	return s->disk;
}

struct net *peek_net(struct server *s)
{
	return &s->net;
}

uint64_t peek_sieved(const struct server *s, bool write)
{
	return s->window_counts[write ? WRITE_SIEVE : READ_SIEVE];
}

uint64_t peek_stale(const struct server *s)
{
	return s->net.refused[REFUSED_STALE];
}

uint64_t peek_name(const struct server *s, uint64_t dir, const char *name)
{
	struct wire_handle d = { dir, 1 }, h = { 0 };
	struct wire_bytes n = { (uint32_t)strlen(name), (const uint8_t *)name };
	uint32_t type;

	return s && s->meta && !meta_lookup(s->meta, &d, &n, &h, &type) ? h.ino : 0;
}

struct peek_change {
	struct req q;
	struct change change;
	struct arena arena;
};

static bool peek_changed(struct req *q)
{
	struct peek_change *p = container_of(q, struct peek_change, q);

	req_fini(q);
	arena_destroy(&p->arena);
	free(p);
	return false;
}

static const char *const peek_states[] = { "commit" };
static const struct req_ops peek_ops = REQ_OPS("peek", peek_changed, 0, peek_states);

static struct wire_bytes text_of(const char *s)
{
	return (struct wire_bytes){ (uint32_t)strlen(s), (const uint8_t *)s };
}

void peek_move(struct server *s, struct sheaf_handle dir, const char *name,
	       struct sheaf_handle dir2, const char *name2)
{
	struct peek_change *p = sim_alloc(sizeof(*p));

	arena_init(&p->arena, 0);
	p->change = (struct change){ .arena = &p->arena,
				     .rec = { .kind = REC_RENAME,
					      .flags = REC_CLIMBED,
					      .h = { peek_name(s, dir.ino, name), 1 },
					      .dir = { dir.ino, dir.gen },
					      .name = text_of(name),
					      .dir2 = { dir2.ino, dir2.gen },
					      .name2 = text_of(name2) } };
	req_init(&p->q, s->loop, &peek_ops, 0);
	meta_submit(s->meta, &p->change, &p->q);
}

struct neglected {
	struct server *s;
	uint64_t ino;
};

static bool look_unsettled(void *arg, const struct meta_row *row)
{
	struct neglected *n = arg;
	const struct inode *i = inode_find(n->s, row->h.ino);

	if (!i || !i->writers)
		n->ino = row->h.ino;
	return !n->ino;
}

uint64_t peek_neglected(struct server *s)
{
	struct neglected n = { .s = s };

	if (s->meta)
		meta_each_row(s->meta, ROWS_UNSETTLED, look_unsettled, &n);
	return n.ino;
}

int peek_check(const struct server *s, uint32_t max_sessions, char *why, size_t n)
{
	const struct session *ss;

	if (s->pool.n_free != s->pool.n_units || !list_empty(&s->pool.waiting)) {
		snprintf(why, n, "%zu of %zu buffers are free", s->pool.n_free, s->pool.n_units);
		return 1;
	}
	if (s->sessions.count > max_sessions) {
		snprintf(why, n, "%u sessions are left, at most %u have an owner",
			 s->sessions.count, max_sessions);
		return 1;
	}
	list_for_each(ss, &s->sessions.all, all)
		if (ss->in_service || ss->doomed) {
			snprintf(why, n, "the session of %s is stuck", ss->client);
			return 1;
		}
	if (s->opens.count || s->inodes.count) {
		snprintf(why, n, "%zu opens and %zu inodes are left", s->opens.count,
			 s->inodes.count);
		return 1;
	}
	return s->meta ? sim_tables_check(s->meta, why, n) : 0;
}

void peek_file(const struct cfile *cf, struct mfile *f)
{
	f->known = true;
	f->h = cfile_handle(cf);
	f->layout = cf->layout;
	if (cf->layout.width > MAX_TARGETS || cf->layout.unit % MODEL_PAGE)
		abort();
	memcpy(f->targets, cf->targets, cf->layout.width * sizeof(f->targets[0]));
}

uint64_t peek_resent(const struct client *c)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < c->n_peers; i++)
		n += c->peers[i].n_resent;
	return n;
}

uint64_t peek_bad_links(const struct client *c)
{
	return c->net->bad_links;
}

void peek_counters(const struct server *s, struct counters *c)
{
	struct disk_counters d;

	disk_counters(s->disk, &d);
	c->refused += d.refused;
	c->evicted += d.evicted;
	c->compacted += d.compacted;
}

const struct wire_map_res *peek_map(const struct server *s)
{
	return s->meta ? &s->map : NULL;
}

uint64_t peek_incarnation(const struct server *s)
{
	return disk_stamp(s->disk).incarnation;
}

uint32_t peek_peers(const struct client *c)
{
	return c->n_peers;
}

void peek_cut(struct client *c)
{
	struct link *l;

	while ((l = list_first(&c->net->links, struct link, in_net)))
		link_close(l, -ESHUTDOWN);
}
