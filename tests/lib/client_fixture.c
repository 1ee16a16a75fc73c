#include "client_fixture.h"

#define FIXTURE_SERVER(n) \
	"[server." n "]\naddress = 127.0.0.1:743" n "\nroles = meta data\nstorage = server" n "\n"
#define FIXTURE_CONF \
	"[cluster]\nid = 01234567-89ab-cdef-0123-456789abcdef\n" FIXTURE_SERVER("0") \
		FIXTURE_SERVER("1")

void client_fixture_start(struct client_fixture *t)
{
	char err[512] = "";

	log_set_level(LOG_ERROR);
	CHECK_EQ(loop_init(&t->loop, env_real()), 0);
	CHECK_EQ(conf_parse(FIXTURE_CONF, strlen(FIXTURE_CONF), "/c/sheaf.conf", &t->conf, err,
			    sizeof(err)),
		 0);
}

void client_fixture_end(struct client_fixture *t)
{
	loop_fini(&t->loop);
	conf_free(t->conf);
}

struct client *client_fixture_new(struct client_fixture *t)
{
	struct client_opts o = { .loop = &t->loop, .conf = t->conf, .name = "test" };
	struct client *c;

	CHECK_EQ(client_new(&o, &c), 0);
	return c;
}

void client_fixture_lock(const struct cfile *f, struct list *set, uint64_t owner, uint64_t start,
			 uint64_t last, bool exclusive)
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

struct cfile *client_fixture_file(struct client *c, uint64_t id, uint32_t width)
{
	static uint32_t targets[TARGETS_MAX];
	struct wire_layout_rec l = { .unit = 65536, .n_targets = width, .targets = targets };
	struct cfile *f;

	for (uint32_t i = 0; i < width; i++)
		targets[i] = i % c->n_peers;
	CHECK_EQ(file_new(c, &(struct wire_handle){ 100 + id, 1 }, id, &l, &f), 0);
	f->flags = OPEN_READ | OPEN_WRITE;
	f->cred = (struct cred_wire){ .uid = 7, .gid = 8, .n_gids = 2, .gids = { 9, 10 } };
	f->cap = (struct wire_capability){ .ino = 100 + id, .rights = 3, .epoch = 5, .expires = 6 };
	memset(f->cap.mac, (int)id, sizeof(f->cap.mac));
	return f;
}

struct client *client_fixture_with_state(struct client_fixture *t)
{
	struct wire_map_target more = { .id = 2,
					.roles = ROLE_DATA,
					.name = wire_text("late"),
					.address = wire_text("127.0.0.1:7439") };
	struct client *c = client_fixture_new(t);
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
	f = client_fixture_file(c, 3, 3);
	f->unsynced[0] = 11;
	f->unsynced[2] = 12;
	f->wrote = (struct wire_wrote){ .epoch = 5, .end = 1 << 20, .mtime = -1, .doubt = true };
	client_fixture_lock(f, f->holding->locks, 1, 0, 9, true);
	client_fixture_lock(f, f->holding->locks, 2, 10, UINT64_MAX, false);
	client_fixture_lock(f, f->holding->locks + 1, 3, 0, UINT64_MAX, true);
	f = client_fixture_file(c, 4, 1);
	f->flags |= OPEN_APPEND;
	f->lost = true;
	client_fixture_lock(f, f->holding->lost, 1, 5, 5, false);
	client_fixture_file(c, 9, 0); /* a directory */
	return c;
}
