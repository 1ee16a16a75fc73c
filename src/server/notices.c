/* Notices for the cache bank: a client must not use attributes in the bank that this server has
 * changed since. Only inodes whose attributes were asked for lately can be there. And a client that
 * begins gets to know when anything was changed last. A filler gets to know what has settled.
 *
 * Threads: the loop's; the bank's worker sets the notices, and no change waits for it. Buffers: the
 * bank's. Errors: without notices clients see changes of others when entries end (docs/bank.md). */
#include "cache/cache.h"
#include "server/inode.h"

static bool was_asked(const struct server *s, uint64_t ino)
{
	uint64_t at = s->notices.asked[hash_u64(ino) % ARRAY_LEN(s->notices.asked)];

	return MAX(at, s->notices.opened) + s->notices.life >= s->loop->now;
}

static void changed(void *arg, const struct meta_touched *t, size_t n, size_t n_more)
{
	struct server *s = arg;
	uint64_t incarnation;

	s->notices.changed = s->loop->now;
	for (size_t i = 0; s->notices.filler && i < n; i++)
		if (t[i].is_settled)
			s->notices.filler->settled(s->notices.filler, t[i].ino, t[i].gen);
	if (!s->notices.bank)
		return;
	bank_counts(s->notices.bank)->notices_lost += n_more;
	incarnation = disk_stamp(s->disk).incarnation;
	for (size_t i = 0; i < n; i++)
		if (was_asked(s, t[i].ino))
			bank_notify(s->notices.bank, incarnation,
				    &(struct bank_notice){ t[i].ino, t[i].change }, 1);
}

uint64_t notices_unchanged(const struct server *s)
{
	return s->notices.changed ? s->loop->now - s->notices.changed : 0;
}

void notices_asked(struct server *s, uint64_t ino)
{
	if (s->notices.bank)
		s->notices.asked[hash_u64(ino) % ARRAY_LEN(s->notices.asked)] = s->loop->now;
}

void notices_open(struct server *s)
{
	if (!s->meta)
		return;
	s->notices.changed = s->loop->now; /* by the server before this one */
	meta_watch(s->meta, changed, s);
	notices_set(s, &s->conf->bank);
}

void notices_set(struct server *s, const struct conf_bank *conf)
{
	uint8_t key[KEY_BYTES];
	char why[256];
	int r;

	if (s->notices.bank && memcmp(conf, &s->notices.conf, sizeof(*conf)) != 0)
		log_warn("server", "[bank] has changed: restart this server to use it");
	if (!s->meta || s->notices.bank || !conf->n_servers || !conf->attributes || s->conf->nosync)
		return;
	r = key_load(conf->key_file, key, why, sizeof(why));
	if (!r)
		r = bank_new(s->loop, conf, key, &s->conf->fs_id, &s->notices.bank, why,
			     sizeof(why));
	explicit_bzero(key, sizeof(key));
	if (r) {
		log_warn("server",
			 "no notices for the cache bank: %s; clients may see attributes "
			 "that are up to %u s old",
			 why, conf->attributes + 1);
		return;
	}
	memcpy(&s->notices.conf, conf, sizeof(*conf));
	s->notices.opened = s->loop->now; /* before, what was asked for was not noted */
	s->notices.life = (conf->attributes + 1) * NSEC_PER_SEC;
}
