/* For tests of exports: clients of a cluster without running servers, and one client that holds an
 * example of every kind of state. */
#ifndef SHEAF_TAKEOVER_TRIAL_H
#define SHEAF_TAKEOVER_TRIAL_H

#include "client/file_impl.h"

#include "test.h"

#define TRIAL_SERVER(n) \
	"[server." n "]\naddress = 127.0.0.1:743" n "\nroles = meta data\nstorage = server" n "\n"
#define TRIAL_CONF \
	"[cluster]\nid = 01234567-89ab-cdef-0123-456789abcdef\n" TRIAL_SERVER("0") TRIAL_SERVER("1")

struct takeover_trial {
	struct loop loop;
	struct conf *conf;
};

static inline void trial_start(struct takeover_trial *t)
{
	char err[512] = "";

	log_set_level(LOG_ERROR);
	CHECK_EQ(loop_init(&t->loop, env_real()), 0);
	CHECK_EQ(conf_parse(TRIAL_CONF, strlen(TRIAL_CONF), "/c/sheaf.conf", &t->conf, err,
			    sizeof(err)),
		 0);
}

static inline void trial_end(struct takeover_trial *t)
{
	loop_fini(&t->loop);
	conf_free(t->conf);
}

static inline struct client *trial_client(struct takeover_trial *t)
{
	struct client_opts o = { .loop = &t->loop, .conf = t->conf, .name = "trial" };
	struct client *c;

	CHECK_EQ(client_new(&o, &c), 0);
	return c;
}

static inline void trial_lock(const struct cfile *f, struct list *set, uint64_t owner,
			      uint64_t start, uint64_t last, bool exclusive)
{
	struct range want = { .owner = owner,
			      .open = f->id,
			      .start = start,
			      .last = last,
			      .exclusive = exclusive,
			      .pid = 42 };
	int grown;

	CHECK_EQ(ranges_hold(set, &want, &grown), 0);
}

static inline struct cfile *trial_file(struct client *c, uint64_t id, uint32_t width)
{
	static uint32_t targets[TARGETS_MAX];
	struct wire_layout_rec l = { .unit = 65536, .n_targets = width, .targets = targets };
	struct cfile *f;

	for (uint32_t i = 0; i < width; i++)
		targets[i] = i % c->n_peers;
	CHECK_EQ(file_new(c, &(struct wire_handle){ 100 + id, 1 }, id, &l, &f), 0);
	f->flags = OPEN_READ | OPEN_WRITE;
	f->cred = (struct cred_wire){ 7, 8, 2, { 9, 10 } };
	f->cap = (struct wire_capability){ .ino = 100 + id, .rights = 3, .epoch = 5, .expires = 6 };
	memset(f->cap.mac, (int)id, sizeof(f->cap.mac));
	return f;
}

/* A client with sessions, a target that is not in the cluster file, files of all kinds, and locks
 * held and lost. */
static inline struct client *trial_furnished(struct takeover_trial *t)
{
	struct wire_map_target more = { .id = 2,
					.roles = ROLE_DATA,
					.name = wire_text("late"),
					.address = wire_text("127.0.0.1:7439") };
	struct client *c = trial_client(t);
	struct cfile *f;

	target_learn(c, &more);
	CHECK_EQ(c->n_peers, 3);
	for (uint32_t i = 0; i < 2; i++) { /* there is no session with the third target */
		struct peer *p = &c->peers[i];

		p->session = 1000 + i;
		p->boot = 2000 + i;
		p->map_version = 3;
		memset(p->secret, 0x40 + (int)i, sizeof(p->secret));
		for (uint32_t k = 0; k < SESSION_SLOTS; k++)
			p->slots[k].sequence = i + 10 * k;
	}
	c->peers[1].unclaimed = true;
	c->next_open = 17;
	c->n_tickets = 5;
	f = trial_file(c, 3, 3);
	f->unsynced[0] = 11;
	f->unsynced[2] = 12;
	f->wrote = (struct wire_wrote){ .epoch = 5, .end = 1 << 20, .mtime = -1, .doubt = true };
	trial_lock(f, f->holding->locks, 1, 0, 9, true);
	trial_lock(f, f->holding->locks, 2, 10, UINT64_MAX, false);
	trial_lock(f, f->holding->locks + 1, 3, 0, UINT64_MAX, true);
	f = trial_file(c, 4, 1);
	f->flags |= OPEN_APPEND;
	f->lost = true;
	trial_lock(f, f->holding->lost, 1, 5, 5, false);
	trial_file(c, 9, 0); /* a directory */
	return c;
}

#endif
