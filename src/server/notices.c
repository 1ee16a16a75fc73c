/* Notices for the cache bank: a client must not use attributes in the bank that this server has
 * changed since. Only inodes whose attributes were asked for lately can be there.
 *
 * Threads: the loop's; the bank's worker sets the notices, and no change waits for it. Buffers: the
 * bank's. Errors: without notices clients see changes of others when entries end (docs/bank.md). */
#include "cache/cache.h"
#include "server/inode.h"

static bool was_asked(const struct server *s, uint64_t ino)
{
	uint64_t at = s->notices.asked[hash_u64(ino) % ARRAY_LEN(s->notices.asked)];

	return MAX(at, s->started) + s->notices.life >= s->loop->now;
}

static void changed(void *arg, const struct meta_touched *t, size_t n)
{
	struct server *s = arg;
	uint64_t incarnation = disk_stamp(s->disk).incarnation;

	for (size_t i = 0; i < n; i++)
		if (was_asked(s, t[i].ino))
			bank_notify(s->notices.bank, incarnation,
				    &(struct bank_notice){ t[i].ino, t[i].change }, 1);
}

void notices_asked(struct server *s, uint64_t ino)
{
	if (s->notices.bank)
		s->notices.asked[hash_u64(ino) % ARRAY_LEN(s->notices.asked)] = s->loop->now;
}

void notices_open(struct server *s)
{
	const struct conf_bank *conf = &s->conf->bank;
	uint8_t key[KEY_BYTES];
	char why[256];
	int r;

	if (!s->meta || !conf->n_servers || !conf->attributes || s->conf->nosync)
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
	s->notices.life = (conf->attributes + 1) * NSEC_PER_SEC;
	meta_watch(s->meta, changed, s);
}
