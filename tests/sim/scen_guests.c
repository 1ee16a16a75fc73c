/* Directed scenarios: one open that several clients use (src/client/share.c), while servers
 * restart, the file is truncated and the owner of the open dies. */
#include <fcntl.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_scenario.h"

#define GUESTS 3
#define CELLS 240 /* cell i belongs to client i % (GUESTS + 1); client 0 is the owner */
#define CELL 700 /* bytes */
#define STEPS 60
#define LEASES (90 * NSEC_PER_SEC) /* longer than any lease */

struct shared {
	struct world *w;
	struct cfile *f[GUESTS + 1]; /* NULL: closed */
	uint8_t ticket[TICKET_BYTES_MAX];
	ssize_t ticket_bytes;
	uint8_t least[CELLS]; /* the value of the last acknowledged write; 0: none */
	uint8_t last[CELLS]; /* of the last attempt */
	bool unknown[CELLS]; /* a later write has failed */
	bool owner_died;
	bool truncates, restarts,
		dies; /* what happens; without any, only the writes make the size */
};

static void make_ticket(struct shared *s, bool fresh)
{
	struct cop *c;
	int64_t r = 0;

	if (fresh) {
		c = scene_call(s->w, 0);
		client_renew(c, s->f[0]);
		r = scene_end(s->w, c);
	}
	if (!r)
		s->ticket_bytes = client_ticket(s->f[0], s->ticket, sizeof(s->ticket));
	scene_check(s->w, !r && s->ticket_bytes > 0, "no ticket: %d, %d", (int)r,
		    (int)s->ticket_bytes);
}

static void open_all(struct shared *s)
{
	s->f[0] = scene_open(s->w, 0, "f", O_CREAT | O_RDWR);
	if (!s->f[0])
		return;
	make_ticket(s, false);
	for (uint32_t i = 1; i <= GUESTS && !s->w->failed; i++) {
		struct cop *c = scene_call(s->w, i);
		int r = client_open_ticket(c->c, &c->cred, s->ticket, (size_t)s->ticket_bytes,
					   &s->f[i]);

		scene_check(s->w, !r, "a guest cannot open: %d", r);
		cop_free(c);
	}
}

static void write_cell(struct shared *s, uint32_t client)
{
	uint32_t k = (uint32_t)sim_between(&s->w->sim, 0, CELLS / (GUESTS + 1) - 1);
	uint32_t cell = k * (GUESTS + 1) + client;
	uint8_t bytes[CELL], value = (uint8_t)(s->last[cell] % 250 + 1);
	struct iovec mem = { bytes, CELL };
	struct extent at = { (uint64_t)cell * CELL, CELL };
	struct cop *c = scene_call(s->w, client);
	int64_t r;

	memset(bytes, value, CELL);
	s->last[cell] = value;
	client_write(c, s->f[client], &mem, 1, &at, 1);
	r = scene_end(s->w, c);
	s->unknown[cell] = r != CELL;
	if (r == CELL)
		s->least[cell] = value;
	scene_check(s->w, r == CELL, "client %u: a write is answered with %lld", client,
		    (long long)r);
}

/* -EIO after a restart: unsynced data may have been lost. They were not, without a power loss. */
static void sync_file(struct shared *s, uint32_t client)
{
	struct cop *c = scene_call(s->w, client);
	int64_t r;

	client_fsync(c, s->f[client]);
	r = scene_end(s->w, c);
	scene_check(s->w, r == 0 || r == -EIO, "client %u: a sync is answered with %lld", client,
		    (long long)r);
}

static void close_file(struct shared *s, uint32_t client)
{
	int64_t r = scene_close(s->w, client, s->f[client]);

	s->f[client] = NULL;
	scene_check(s->w, r == 0 || r == -EIO, "client %u: a close is answered with %lld", client,
		    (long long)r);
}

/* A truncation that cuts nothing refuses all older capabilities. Half of the times the guests get a
 * new ticket. */
static void truncate_beyond(struct shared *s)
{
	struct cop *c = scene_call(s->w, 0);
	int64_t r;

	client_ftruncate(c, s->f[0], (uint64_t)CELLS * CELL);
	r = scene_end(s->w, c);
	scene_check(s->w, !r, "a truncation is answered with %lld", (long long)r);
	if (r || sim_chance(&s->w->sim, 500000))
		return;
	make_ticket(s, true);
	for (uint32_t i = 1; i <= GUESTS; i++)
		if (s->f[i])
			(void)client_take_ticket(s->f[i], s->ticket, (size_t)s->ticket_bytes);
}

static void restart_one(struct shared *s)
{
	uint32_t t = (uint32_t)sim_between(&s->w->sim, 0, s->w->conf.n_targets - 1);

	scene_down(s->w, t, false);
	scene_up(s->w, t);
}

static void lose_owner(struct shared *s)
{
	scene_die(s->w, 0);
	s->f[0] = NULL;
	s->owner_died = true;
	if (sim_chance(&s->w->sim, 500000)) /* else the guests go on within its lease */
		scene_pass(s->w, LEASES);
}

static void one_step(struct shared *s)
{
	struct sim *sim = &s->w->sim;
	uint32_t client = (uint32_t)sim_between(sim, s->f[0] ? 0 : 1, GUESTS);
	uint64_t what = sim_between(sim, 0, 99);

	if (what < 70)
		write_cell(s, client);
	else if (what < 85)
		sync_file(s, client);
	else if (what < 93 && s->restarts)
		restart_one(s);
	else if (what < 97 && s->f[0] && s->truncates)
		truncate_beyond(s);
	else if (what >= 97 && s->f[0] && s->dies)
		lose_owner(s);
}

/* Another client finds what was acknowledged. */
static void check_content(struct shared *s)
{
	size_t size = (size_t)CELLS * CELL;
	uint8_t *bytes = calloc(1, size);
	struct iovec mem = { bytes, size };
	struct extent all = { 0, size };
	struct cfile *f = scene_open(s->w, GUESTS + 1, "f", O_RDONLY);
	struct cop *c;
	int64_t r;

	if (!f || !bytes) {
		free(bytes);
		return;
	}
	c = scene_call(s->w, GUESTS + 1);
	client_read(c, f, &mem, 1, &all, 1);
	r = scene_end(s->w, c);
	for (uint32_t i = 0; i < CELLS && r >= 0; i++) {
		const uint8_t *at = bytes + (size_t)i * CELL;
		bool there = (int64_t)(i + 1) * CELL <= r;

		if (!s->least[i] || s->unknown[i])
			continue;
		scene_check(s->w, there && at[0] == s->least[i] && at[CELL - 1] == s->least[i],
			    "cell %u of client %u is lost: the file has %lld bytes, there is %u "
			    "instead of %u",
			    i, i % (GUESTS + 1), (long long)r, at[0], s->least[i]);
	}
	scene_check(s->w, r >= 0, "the file cannot be read: %lld", (long long)r);
	scene_close(s->w, GUESTS + 1, f);
	free(bytes);
}

static void shared_open(struct world *w)
{
	struct shared *s = calloc(1, sizeof(*s));

	if (!s)
		return;
	s->w = w;
	s->truncates = sim_chance(&w->sim, 500000);
	s->restarts = sim_chance(&w->sim, 500000);
	s->dies = sim_chance(&w->sim, 500000);
	open_all(s);
	for (int i = 0; i < STEPS && !w->failed; i++)
		one_step(s);
	for (uint32_t i = GUESTS + 1; i-- && !w->failed;) /* the owner closes last */
		if (s->f[i])
			close_file(s, i);
	if (s->owner_died)
		scene_pass(w, LEASES);
	if (!w->failed)
		check_content(s);
	if (!w->failed)
		scene_met(w);
	free(s);
}

const struct scenario scenes_guests[] = {
	{ "shared-open", shared_open, 3, 2, GUESTS + 2, false },
	{ 0 },
};
