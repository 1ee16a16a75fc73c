/* Directed scenarios: clients read through a bank that forgets, lies and fails, while a writer
 * opens the file, overwrites blocks and closes it, and servers restart; and ask for attributes.
 *
 * Each byte holds the version of its block. A reader that has opened the file sees, in every byte,
 * a version at least as new as that of the last close before its open began, and before any open
 * of the same client began that had ended before the read. */
#include <fcntl.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "client/client_impl.h"
#include "sim_priv.h"
#include "sim_scenario.h"

#define CLIENTS 3 /* that read; client 0 writes */
#define READERS 6 /* two for each client, with opens of their own */
#define BLOCK 512
#define BLOCKS 12
#define BYTES (BLOCKS * BLOCK - 77)
#define ROUNDS 40 /* of the writer: versions */
#define READS 6 /* of an open */

/* ---- the bank ---- */

#define ENTRIES 2048
static struct {
	struct sim *sim;
	struct stored {
		uint8_t value[SEAL_BYTES + sizeof(struct bank_attr) + sizeof(struct bank_whole)];
		size_t length;
		uint64_t until;
	} entries[ENTRIES];
	char keys[ENTRIES][BANK_KEY]; /* of the entries; apart, to be searched */
	size_t n;
	bool lies;
	struct world *unsealed; /* values can be compared: a name has one value; or NULL */
} bank;

static int bank_open(struct env *e, const struct bank_setup *s, void **handle, char *why,
		     size_t why_len)
{
	(void)e, (void)s, (void)why, (void)why_len;
	*handle = &bank;
	return 0;
}

static void bank_close(void *handle)
{
	(void)handle;
}

static struct stored *find(const char *key)
{
	for (size_t i = 0; i < bank.n; i++)
		if (!memcmp(bank.keys[i], key, BANK_KEY))
			return &bank.entries[i];
	return NULL;
}

static bool chance(uint64_t of)
{
	return sim_below(bank.sim, of) == 0;
}

static int bank_get(void *handle, struct bank_entry *e, size_t n)
{
	(void)handle;
	if (chance(20)) { /* a daemon that does not answer */
		for (size_t i = 0; i < n; i++)
			e[i].length = 0;
		return 1;
	}
	for (size_t i = 0; i < n; i++) {
		const struct stored *s = find(e[i].key);

		if (s && bank.lies && chance(10)) /* the value of another key */
			s = &bank.entries[sim_below(bank.sim, bank.n)];
		if (!s || s->length > e[i].length || chance(10)) {
			e[i].length = 0;
			continue;
		}
		memcpy(e[i].value, s->value, s->length);
		e[i].length = s->length;
		if (bank.lies && s->length && chance(10))
			((uint8_t *)e[i].value)[sim_below(bank.sim, s->length)] ^= 1;
	}
	return 0;
}

static int put(const struct bank_entry *e, bool replaces, uint32_t seconds)
{
	struct stored *s = find(e->key);

	if (chance(20))
		return -EIO;
	if (s && !replaces && (!s->until || bank.sim->now < s->until))
		return -EEXIST;
	if (s && bank.unsealed && !seconds && s->length > SEAL_BYTES) /* a block */
		scene_check(bank.unsealed,
			    s->length == e->length &&
				    !memcmp(s->value + SEAL_BYTES,
					    (const uint8_t *)e->value + SEAL_BYTES,
					    e->length - SEAL_BYTES),
			    "a name of the bank gets another value");
	if (!s)
		s = &bank.entries[bank.n < ENTRIES ? bank.n++ : sim_below(bank.sim, ENTRIES)];
	memcpy(bank.keys[s - bank.entries], e->key, BANK_KEY);
	memcpy(s->value, e->value, e->length);
	s->length = e->length;
	s->until = seconds ? bank.sim->now + seconds * NSEC_PER_SEC : 0;
	return 0;
}

static int bank_set(void *handle, const struct bank_entry *e, uint32_t seconds)
{
	(void)handle;
	return put(e, true, seconds);
}

static int bank_add(void *handle, const struct bank_entry *e, uint32_t seconds)
{
	(void)handle;
	return put(e, false, seconds);
}

static int bank_remove(void *handle, const struct bank_entry *e)
{
	(void)handle, (void)e;
	return 0;
}

static const struct bank_ops ops = { bank_open, bank_close, bank_get,
				     bank_set,	bank_add,   bank_remove };

/* ---- readers and the writer ---- */

struct party {
	uint32_t client;
	enum { IDLE, LOOKING, OPENING, WORKING, SYNCING, CLOSING } state;
	struct cop *c;
	struct cfile *f;
	uint32_t done; /* reads or writes of this open */
	bool has_writer; /* of a reader: the file had a writer during all of its open */
	uint8_t least[BLOCKS]; /* of a reader: what its open must see; then, what its read must */
	uint8_t data[BYTES];
	struct iovec mem;
	struct extent ext;
};

struct scene {
	struct world *w;
	struct party writer, readers[READERS];
	uint8_t closed[BLOCKS], begun[BLOCKS]; /* versions: at the last close; of the last write */
	uint8_t written[BLOCKS]; /* by the current open */
	uint8_t acked[BLOCKS]; /* the last write of each block that was answered */
	uint32_t n_opens; /* of the writer */
	uint8_t least[CLIENTS][BLOCKS]; /* what all reads of a client must see */
	uint32_t n_versions;
	uint32_t writer_at[READERS]; /* n_opens when a reader's open began; 0: no writer */
	bool restarts; /* of servers: then each open is synced */
};

static void start_open(struct scene *s, struct party *a, int flags)
{
	a->c = scene_call(s->w, a->client);
	a->state = OPENING;
	a->done = 0;
	client_open(a->c, scene_root, "f", flags, 0644, NULL);
}

static void start_close(struct scene *s, struct party *a)
{
	a->c = scene_call(s->w, a->client);
	a->state = CLOSING;
	client_close(a->c, a->f);
}

/* The number of the writer's open that can write now, or 0. */
static uint32_t writer_now(const struct scene *s)
{
	return s->writer.state == WORKING && s->writer.done ? s->n_opens : 0;
}

static void opened(struct scene *s, struct party *a)
{
	scene_check(s->w, a->c->result == 0, "an open fails: %d", (int)a->c->result);
	a->f = a->c->file;
	a->state = WORKING;
}

/* What this open must see, all reads of its client must see from now on, and the other way. */
static void share_least(struct scene *s, struct party *a)
{
	uint8_t *all = s->least[a->client - 1];

	for (size_t i = 0; i < BLOCKS; i++)
		all[i] = a->least[i] = MAX(a->least[i], all[i]);
}

static void start_read(struct scene *s, struct party *a)
{
	uint64_t off = sim_below(&s->w->sim, BYTES), n = 1 + sim_below(&s->w->sim, 3 * BLOCK);

	if (chance(3)) { /* then it is stored as a whole, too */
		off = 0;
		n = BYTES;
	}
	a->mem = (struct iovec){ a->data, MIN(n, BYTES - off) };
	a->ext = (struct extent){ off, a->mem.iov_len };
	share_least(s, a);
	for (size_t i = 0; a->has_writer && i < BLOCKS; i++) /* not from the bank */
		a->least[i] = MAX(a->least[i], s->acked[i]);
	a->c = scene_call(s->w, a->client);
	client_read(a->c, a->f, &a->mem, 1, &a->ext, 1);
}

static void check_read(struct scene *s, const struct party *a)
{
	scene_check(s->w, a->c->result == (int64_t)a->ext.length, "a read fails: %d",
		    (int)a->c->result);
	for (uint64_t i = 0; i < a->ext.length && !s->w->failed; i++) {
		uint64_t block = (a->ext.offset + i) / BLOCK;

		scene_check(s->w, a->data[i] >= a->least[block] && a->data[i] <= s->begun[block],
			    "client %u reads version %u of block %llu, not %u to %u", a->client,
			    a->data[i], (unsigned long long)block, a->least[block],
			    s->begun[block]);
	}
}

static void begin_open(struct scene *s, struct party *a)
{
	memcpy(a->least, s->closed, sizeof(a->least));
	s->writer_at[a - s->readers] = writer_now(s);
	start_open(s, a, O_RDONLY);
}

static void step_reader(struct scene *s, struct party *a)
{
	if (a->state != IDLE && !a->c->finished)
		return;
	switch (a->state) {
	case OPENING:
		opened(s, a);
		cop_free(a->c);
		a->has_writer = !s->restarts && s->writer_at[a - s->readers] &&
				s->writer_at[a - s->readers] == writer_now(s);
		start_read(s, a);
		break;
	case WORKING:
		check_read(s, a);
		cop_free(a->c);
		if (++a->done < READS)
			start_read(s, a);
		else
			start_close(s, a);
		break;
	case CLOSING:
		cop_free(a->c);
		a->state = IDLE;
		break;
	case LOOKING: /* the bytes may have come with the attributes */
		scene_check(s->w, a->c->result == 0, "a stat fails: %d", (int)a->c->result);
		cop_free(a->c);
		begin_open(s, a);
		break;
	default:
		if (chance(2)) {
			a->c = scene_call(s->w, a->client);
			a->state = LOOKING;
			client_stat(a->c, scene_root, "f");
		} else {
			begin_open(s, a);
		}
		break;
	}
}

static void start_write(struct scene *s, struct party *a)
{
	uint64_t block = sim_below(&s->w->sim, BLOCKS), off = block * BLOCK;

	s->begun[block] = s->written[block] = (uint8_t)s->n_versions;
	a->mem = (struct iovec){ a->data, MIN(BLOCK, BYTES - off) };
	a->ext = (struct extent){ off, a->mem.iov_len };
	memset(a->data, (int)s->n_versions, BLOCK);
	a->c = scene_call(s->w, a->client);
	client_write(a->c, a->f, &a->mem, 1, &a->ext, 1);
}

static void written(struct scene *s, struct party *a)
{
	scene_check(s->w, a->c->result == (int64_t)a->ext.length, "a write fails: %d",
		    (int)a->c->result);
	s->acked[a->ext.offset / BLOCK] = s->begun[a->ext.offset / BLOCK];
	cop_free(a->c);
	if (++a->done < 4) {
		start_write(s, a);
	} else if (s->restarts || chance(2)) {
		a->c = scene_call(s->w, a->client);
		a->state = SYNCING;
		client_fsync(a->c, a->f);
	} else {
		start_close(s, a);
	}
}

/* A server that lost its power may have lost what this open has written. */
static void note_loss(struct scene *s, int64_t result)
{
	if (result == -EIO && s->restarts)
		memcpy(s->written, s->closed, sizeof(s->written));
	else
		scene_check(s->w, result == 0, "a sync or close fails: %d", (int)result);
}

static void step_writer(struct scene *s, struct party *a)
{
	if (a->state != IDLE && !a->c->finished)
		return;
	switch (a->state) {
	case OPENING:
		opened(s, a);
		cop_free(a->c);
		s->n_opens++;
		s->n_versions++;
		start_write(s, a);
		break;
	case WORKING:
		written(s, a);
		break;
	case SYNCING:
		note_loss(s, a->c->result);
		cop_free(a->c);
		start_close(s, a);
		break;
	case CLOSING:
		note_loss(s, a->c->result);
		cop_free(a->c);
		memcpy(s->closed, s->written, sizeof(s->closed));
		a->state = IDLE;
		break;
	default:
		if (s->n_versions < ROUNDS && chance(400))
			start_open(s, a, O_WRONLY);
		break;
	}
}

static bool go_on(void *arg)
{
	struct scene *s = arg;
	bool idle = s->writer.state == IDLE && s->n_versions >= ROUNDS;

	step_writer(s, &s->writer);
	for (uint32_t i = 0; i < READERS; i++)
		if (!idle || s->readers[i].state != IDLE)
			step_reader(s, &s->readers[i]);
	for (uint32_t i = 0; i < READERS; i++)
		idle &= s->readers[i].state == IDLE;
	return idle || s->w->failed;
}

/* ---- scenarios ---- */

static void give_bank(struct world *w, uint32_t client)
{
	const struct conf_bank conf = { .n_servers = 1,
					.block = BLOCK,
					.timeout_ms = 5,
					.data = true,
					.attributes = 1,
					.unsealed = bank.unsealed };
	const uint8_t key[KEY_BYTES] = { 1 };
	struct client *c = w->actors[client].client;
	char why[256];
	int r;

	w->actors[client].node->env.bank = &ops;
	r = bank_new(c->loop, &conf, key, &w->conf.fs_id, &c->bank, why, sizeof(why));
	scene_check(w, r == 0, "no bank: %s", why);
	if (!r)
		bank_choice(c->bank)->asks_always = true;
}

static void make_whole(struct scene *s)
{
	struct cfile *f = scene_open(s->w, 0, "f", O_CREAT | O_RDWR);
	struct cop *c = scene_call(s->w, 0);

	memset(s->writer.data, 0, BYTES);
	client_write(c, f, &(struct iovec){ s->writer.data, BYTES }, 1,
		     &(struct extent){ 0, BYTES }, 1);
	scene_check(s->w, scene_end(s->w, c) == BYTES, "a write fails");
	c = scene_call(s->w, 0);
	client_fsync(c, f);
	scene_check(s->w, scene_end(s->w, c) == 0, "a sync fails");
	scene_close(s->w, 0, f);
}

static void connect_reader(struct world *w, uint32_t client)
{
	struct sheaf_handle h;

	scene_check(w, scene_lookup(w, client, "f", &h) == 0, "a lookup fails");
	give_bank(w, client);
}

static uint64_t hits(struct world *w)
{
	uint64_t n = 0;

	for (uint32_t i = 1; i <= CLIENTS; i++)
		n += bank_counts(w->actors[i].client->bank)->hits;
	return n;
}

static void run(struct world *w, bool lies, bool restarts)
{
	struct scene *s = calloc(1, sizeof(*s));
	uint64_t wholes = 0;

	memset(&bank, 0, sizeof(bank));
	bank.sim = &w->sim;
	bank.lies = lies;
	bank.unsealed = lies ? NULL : w;
	s->w = w;
	s->restarts = restarts;
	make_whole(s);
	for (uint32_t i = 0; i < READERS; i++)
		s->readers[i].client = 1 + i % CLIENTS;
	for (uint32_t i = 1; i <= CLIENTS && !w->failed; i++)
		connect_reader(w, i);
	scene_pass(w, 2 * NSEC_PER_SEC); /* stats ask the bank from then on */
	for (uint32_t t = 0; restarts && t < 4 && !w->failed; t++) {
		uint32_t until = s->n_versions + ROUNDS / 5;

		while (s->n_versions < until && !w->failed && !go_on(s))
			scene_pass(w, 100000);
		scene_down(w, t % 2, true);
		scene_pass(w, NSEC_PER_SEC);
		scene_up(w, t % 2);
	}
	scene_until(w, go_on, s, "the clients do not end");
	for (uint32_t i = 1; i <= CLIENTS && !w->failed; i++)
		wholes += bank_counts(w->actors[i].client->bank)->wholes;
	if (!w->failed && hits(w) > CLIENTS * READS && (wholes || restarts))
		scene_met(w);
	free(s);
}

static void readers_see_what_was_closed(struct world *w)
{
	run(w, false, false);
}

static void the_bank_lies(struct world *w)
{
	run(w, true, false);
}

static void servers_restart(struct world *w)
{
	run(w, false, true);
}

/* ---- attributes ---- */

#define STATERS 3
#define MODES 60
#define BOUND_NS (2 * NSEC_PER_SEC)

/* A client that asks for attributes again and again, by path or by handle, as root or as a user
 * whom the path is closed to; at times it changes the mode, which is a version. */
struct stater {
	uint32_t client;
	struct cop *c;
	enum { RESTS, STATS, IS_REFUSED, CHANGES } does;
	uint32_t least; /* what a stat must see */
	uint64_t rests_until;
};

struct stat_scene {
	struct world *w;
	struct stater staters[STATERS];
	struct sheaf_handle file;
	uint32_t version; /* the last change that has begun */
	bool is_changing;
	uint64_t ended[MODES + 1]; /* when each change ended; 0: not yet */
	uint32_t by[MODES + 1]; /* which client made it */
};

static const struct sheaf_cred other_user = { .uid = 1000, .gid = 1000 };

/* The newest version that a stat of this client that begins now must see. */
static uint32_t must_see(const struct stat_scene *s, uint32_t client)
{
	uint32_t least = 0;

	for (uint32_t v = 1; v <= s->version; v++)
		if (s->ended[v] && (s->by[v] == client || s->ended[v] + BOUND_NS < s->w->sim.now))
			least = v;
	return least;
}

static void start_change(struct stat_scene *s, struct stater *a)
{
	struct stat st = { .st_mode = ++s->version };

	a->does = CHANGES;
	s->is_changing = true;
	s->by[s->version] = a->client;
	client_setattr(a->c, s->file, SHEAF_SET_MODE, &st);
}

static void start_one(struct stat_scene *s, struct stater *a)
{
	struct sim *sim = &s->w->sim;

	a->least = must_see(s, a->client);
	a->c = scene_call(s->w, a->client);
	if (!s->is_changing && s->version < MODES && sim_below(sim, 40) == 0) {
		start_change(s, a);
	} else if (sim_below(sim, 4) == 0) {
		a->does = IS_REFUSED;
		a->c->cred.uid = other_user.uid;
		a->c->cred.gid = other_user.gid;
		client_stat(a->c, scene_root, "closed/f");
	} else {
		a->does = STATS;
		if (sim_below(sim, 2))
			client_stat(a->c, scene_root, "closed/f");
		else
			client_getattr(a->c, s->file);
	}
}

static void end_one(struct stat_scene *s, struct stater *a)
{
	uint32_t seen = a->c->attr.mode & 07777;

	switch (a->does) {
	case STATS:
		scene_check(s->w, a->c->result == 0, "a stat fails: %d", (int)a->c->result);
		scene_check(s->w, seen >= a->least && seen <= s->version,
			    "client %u sees version %u, not %u to %u", a->client, seen, a->least,
			    s->version);
		break;
	case IS_REFUSED:
		scene_check(s->w, a->c->result == -EACCES, "a stat is not refused: %d",
			    (int)a->c->result);
		break;
	case CHANGES:
		scene_check(s->w, a->c->result == 0, "a change fails: %d", (int)a->c->result);
		s->ended[s->version] = s->w->sim.now;
		s->is_changing = false;
		break;
	case RESTS:
		break;
	}
	cop_free(a->c);
	a->c = NULL;
	a->does = RESTS;
	a->rests_until = s->w->sim.now + sim_below(&s->w->sim, 200) * NSEC_PER_MSEC;
}

static bool go_on_stats(void *arg)
{
	struct stat_scene *s = arg;
	bool idle = s->version == MODES;

	for (uint32_t i = 0; i < STATERS; i++) {
		struct stater *a = &s->staters[i];

		if (a->c && a->c->finished)
			end_one(s, a);
		if (!a->c && !idle && s->w->sim.now >= a->rests_until)
			start_one(s, a);
		idle &= !a->c;
	}
	return idle || s->w->failed;
}

/* The directory gets mode 0700, and the file version 0. */
static void start_closing(struct world *w)
{
	struct stat st = { .st_mode = 0700 };
	struct sheaf_handle dir, file;
	struct cop *c = scene_call(w, 0);

	scene_check(w, scene_lookup(w, 0, "closed", &dir) == 0, "a lookup fails");
	scene_check(w, scene_lookup(w, 0, "closed/f", &file) == 0, "a lookup fails");
	client_setattr(c, dir, SHEAF_SET_MODE, &st);
	scene_check(w, scene_end(w, c) == 0, "a chmod fails");
	st.st_mode = 0;
	c = scene_call(w, 0);
	client_setattr(c, file, SHEAF_SET_MODE, &st);
	scene_check(w, scene_end(w, c) == 0, "a chmod fails");
}

static void attributes_are_seen(struct world *w)
{
	struct stat_scene *s = calloc(1, sizeof(*s));
	uint64_t found = 0;

	memset(&bank, 0, sizeof(bank));
	bank.sim = &w->sim;
	s->w = w;
	scene_mkdir(w, 0, "closed");
	scene_close(w, 0, scene_open(w, 0, "closed/f", O_CREAT | O_RDWR));
	scene_check(w, scene_lookup(w, 0, "closed/f", &s->file) == 0, "a lookup fails");
	for (uint32_t i = 0; i < STATERS && !w->failed; i++) {
		s->staters[i].client = 1 + i % 2; /* two of them share a client */
		if (i < 2)
			give_bank(w, 1 + i);
	}
	start_closing(w);
	while (!go_on_stats(s))
		scene_pass(w, NSEC_PER_MSEC);
	for (uint32_t i = 1; i <= 2; i++)
		found += bank_counts(w->actors[i].client->bank)->attr_hits;
	if (!w->failed && found > MODES)
		scene_met(w);
	free(s);
}

/* ---- programs that begin ---- */

#define PROGRAMS 40

/* An event, so that the clock does not jump further to the next one. */
static void tick(void *arg)
{
	(void)arg;
}

static void noted(struct cop *c)
{
	(void)c;
}

/* A stat by a client that no actor has: as root. */
static uint32_t stat_of(struct world *w, struct client *c, bool by_path, struct sheaf_handle file)
{
	struct cop *op = cop_new(c, &(struct sheaf_cred){ 0 });
	uint32_t mode;

	op->done = noted;
	if (by_path)
		client_stat(op, scene_root, "d/f");
	else
		client_getattr(op, file);
	scene_check(w, scene_wait(w, op) == 0, "a stat fails: %d", (int)op->result);
	mode = op->attr.mode & 07777;
	cop_free(op);
	return mode;
}

/* A program begins after a change has ended, and asks three times: it must see the change. The
 * first time it knows no server, so that asks none of the bank. */
static void run_program(struct world *w, uint32_t version, struct sheaf_handle file)
{
	struct client *of = w->actors[1].client, *c;
	struct cop *bye;

	if (client_fork(of, NULL, "program", &c)) {
		world_fail(w, 0, "no memory");
		return;
	}
	for (uint32_t i = 0; i < 3 && !w->failed; i++) {
		uint32_t seen = stat_of(w, c, sim_below(&w->sim, 2), file);

		scene_check(w, seen == version, "a new program sees version %u, not %u", seen,
			    version);
	}
	if (w->failed)
		return;
	bye = cop_new(c, &(struct sheaf_cred){ 0 });
	bye->done = noted;
	client_bye(bye);
	scene_end(w, bye);
	client_free(c);
}

/* Client 0 changes a file, client 2 keeps its attributes in the bank, and programs begin. No server
 * sets notices here. */
static void new_programs_see_all(struct world *w)
{
	struct sheaf_handle file = { 0 };
	struct stat st = { 0 };
	uint64_t found;

	memset(&bank, 0, sizeof(bank));
	bank.sim = &w->sim;
	scene_mkdir(w, 0, "d");
	scene_close(w, 0, scene_open(w, 0, "d/f", O_CREAT | O_RDWR));
	scene_check(w, scene_lookup(w, 0, "d/f", &file) == 0, "a lookup fails");
	for (uint32_t i = 1; i <= 2 && !w->failed; i++)
		give_bank(w, i);
	for (uint32_t i = 0; i < PROGRAMS && !w->failed; i++) {
		uint64_t until;
		struct cop *c = scene_call(w, 0);

		st.st_mode = i;
		client_setattr(c, file, SHEAF_SET_MODE, &st);
		scene_check(w, scene_end(w, c) == 0, "a chmod fails");
		until = w->sim.now + sim_below(&w->sim, 4000) * NSEC_PER_MSEC;
		while (w->sim.now < until && !w->failed) {
			stat_of(w, w->actors[2].client, sim_below(&w->sim, 2), file);
			sim_after(&w->sim, 100 * NSEC_PER_MSEC, tick, NULL);
			scene_pass(w, 99 * NSEC_PER_MSEC);
		}
		if (!w->failed)
			run_program(w, i, file);
	}
	found = w->failed ? 0 : bank_counts(w->actors[1].client->bank)->attr_hits;
	if (found > PROGRAMS / 4)
		scene_met(w);
}

const struct scenario scenes_bank[] = {
	{ "bank", readers_see_what_was_closed, 2, 1, CLIENTS + 1, false },
	{ "bank-that-lies", the_bank_lies, 2, 1, CLIENTS + 1, false },
	{ "bank-and-restarts", servers_restart, 2, 1, CLIENTS + 1, false },
	{ "bank-attributes", attributes_are_seen, 2, 1, CLIENTS + 1, false },
	{ "bank-programs", new_programs_see_all, 2, 1, CLIENTS, false },
	{ 0 },
};
