/* The server side of sessions: which clients have one, over which link, which slots are in service,
 * and when a lease ends. Owned by the loop. Opens and locks on a session belong to the server. */
#include <stdlib.h>

#include "net/link.h"
#include "net/session.h"

int sessions_init(struct sessions *t, struct loop *l, uint64_t lease_ns)
{
	memset(t, 0, sizeof(*t));
	list_init(&t->all);
	t->loop = l;
	t->lease_ns = lease_ns;
	return htab_init(&t->by_id) ? -ENOMEM : htab_init(&t->by_name);
}

void sessions_fini(struct sessions *t)
{
	struct session *s, *tmp;

	list_for_each_safe(s, tmp, &t->all, all)
		session_free(s);
	htab_destroy(&t->by_id);
	htab_destroy(&t->by_name);
}

/* The timer is moved only when it fires, not with every request. */
static void lease_timer(struct timer *tm)
{
	struct session *s = container_of(tm, struct session, lease);
	struct sessions *t = s->table;
	/* bulk renews the lease, too, but not that of other sessions */
	uint64_t moved = s->link && !s->channel ? s->link->progress : 0;
	uint64_t end = MAX(s->renewed, moved) + t->lease_ns;

	/* the client is back: its new link waits for requests of the old one */
	if (!list_empty(&s->ending))
		end = t->loop->now + t->lease_ns;
	if (t->loop->now < end) {
		timer_set(t->loop, tm, end);
		return;
	}
	if (s->link && !s->channel)
		link_close(s->link, -ETIMEDOUT);
	t->expired(t->owner, s);
}

int session_new(struct sessions *t, uint64_t id, const uint8_t secret[16], const char *client,
		struct session **out)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s || htab_insert(&t->by_id, &s->node, hash_u64(id))) {
		free(s);
		return -ENOMEM;
	}
	s->table = t;
	s->id = id;
	memcpy(s->secret, secret, sizeof(s->secret));
	strncpy(s->client, client, sizeof(s->client) - 1);
	list_push(&t->all, &s->all);
	list_init(&s->in_link);
	list_init(&s->ending);
	list_init(&s->opens);
	list_init(&s->kept);
	list_init(&s->parked);
	pool_share_init(&s->share);
	pool_share_init(&s->copy_share);
	t->count++;
	s->renewed = t->loop->now;
	s->lease.fire = lease_timer;
	timer_set(t->loop, &s->lease, s->renewed + t->lease_ns);
	*out = s;
	return 0;
}

struct session *session_find(struct sessions *t, uint64_t id)
{
	for (struct hnode *n = htab_first(&t->by_id, hash_u64(id)); n; n = htab_next(n)) {
		struct session *s = container_of(n, struct session, node);

		if (s->id == id)
			return s;
	}
	return NULL;
}

static uint64_t name_hash(const uint8_t name[SESSION_NAME])
{
	return hash_bytes(name, SESSION_NAME, 1);
}

struct session *session_named(struct sessions *t, const uint8_t name[SESSION_NAME])
{
	for (struct hnode *n = htab_first(&t->by_name, name_hash(name)); n; n = htab_next(n)) {
		struct session *s = container_of(n, struct session, by_name);

		if (!s->doomed && memcmp(s->name, name, SESSION_NAME) == 0)
			return s;
	}
	return NULL;
}

void session_set_name(struct session *s, const uint8_t name[SESSION_NAME])
{
	if (s->is_named || session_named(s->table, name))
		return;
	memcpy(s->name, name, SESSION_NAME);
	s->is_named = htab_insert(&s->table->by_name, &s->by_name, name_hash(name)) == 0;
}

struct session *session_on(const struct link *l, uint32_t channel)
{
	struct hnode *n = l->by_channel.count ? htab_first(&l->by_channel, channel) : NULL;

	return n ? container_of(n, struct session, on_channel) : NULL;
}

int session_attach(struct session *s, struct link *l, uint32_t channel)
{
	struct session *before = session_on(l, channel);

	s->renewed = s->table->loop->now;
	if (before == s)
		return 0;
	if (before) /* it keeps its lease, and may be resumed on another channel */
		session_detach(before);
	session_detach(s);
	if ((!l->by_channel.n_slots && htab_init(&l->by_channel)) ||
	    htab_insert(&l->by_channel, &s->on_channel, channel))
		return -ENOMEM;
	list_push(&l->sessions, &s->in_link);
	s->link = l;
	s->channel = channel;
	return 0;
}

void session_detach(struct session *s)
{
	struct link *l = s->link;

	if (!l)
		return;
	htab_remove(&l->by_channel, &s->on_channel);
	list_del(&s->in_link);
	s->link = NULL;
	if (l->by_channel.count)
		return;
	htab_destroy(&l->by_channel);
	l->by_channel = (struct htab){ 0 };
}

struct pool_share *session_share(struct session *s, bool copies)
{
	struct key_account *k = s->held.key;

	if (k && k->kind == KEY_ONE_USER)
		return copies ? &k->copy_share : &k->share;
	return copies ? &s->copy_share : &s->share;
}

void session_free(struct session *s)
{
	session_detach(s);
	timer_del(s->table->loop, &s->lease);
	htab_remove(&s->table->by_id, &s->node);
	if (s->is_named)
		htab_remove(&s->table->by_name, &s->by_name);
	list_del(&s->all);
	s->table->count--;
	usage_fini(&s->held);
	tally_leave(s->as_client, s->table->loop->now);
	tally_leave(s->job, s->table->loop->now);
	free(s);
}

int session_enter(struct session *s, uint32_t slot, uint32_t sequence, uint32_t op, void *request)
{
	struct slot *sl;

	if (slot >= SESSION_SLOTS)
		return -EBADMSG;
	sl = &s->slots[slot];
	if (sl->request || (int32_t)(sequence - sl->sequence) < 0)
		return -EBADMSG;
	if (sl->op && sequence == sl->sequence && op != sl->op)
		return -EKEYREJECTED;
	s->renewed = s->table->loop->now;
	sl->sequence = sequence;
	sl->op = op;
	sl->request = request;
	s->in_service++;
	return 0;
}

void session_answered(struct session *s, uint32_t slot)
{
	s->slots[slot].request = NULL;
}

void session_leave(struct session *s)
{
	struct list *it;

	if (--s->in_service)
		return;
	/* the client was there until now: if its link broke meanwhile, it has a lease to return */
	if (!list_empty(&s->ending))
		s->renewed = s->table->loop->now;
	while ((it = list_pop(&s->ending)))
		req_done(list_entry(it, struct session_wait, link)->q, 0, 0);
}

void session_quiesce(struct session *s, struct session_wait *w, struct req *q)
{
	list_init(&w->link);
	if (!s->in_service)
		return;
	w->q = q;
	req_hold(q);
	list_push(&s->ending, &w->link);
}
