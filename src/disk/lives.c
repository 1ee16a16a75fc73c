/* Which data that no sync covers are still there, although this server was not stopped well.
 *
 * A server that is killed leaves what it wrote in the page cache of its host; only a host that restarts loses it. The
 * file `lives` has the verifiers of all starts since the host was started. It is read with care: with another host
 * start, and after a sync that failed, none of them counts. So it need not be synced itself: it matters only while
 * the page cache is the one that it was written into.
 *
 * Threads: the loop's; blocks at a start. Errors: none; without the file no earlier life counts. */
#include <endian.h>
#include <fcntl.h>

#include "disk/disk_impl.h"

#define LIVES_NAME "lives"

static const uint8_t lives_magic[8] = { 'S', 'H', 'F', 'L', 'I', 'V', 'E', 'S' };

static uint32_t lives_crc(const struct disk_lives *l)
{
	return crc32c(0, l, offsetof(struct disk_lives, crc));
}

static void lives_read(struct disk *d, uint64_t host)
{
	struct env *e = d->env;
	struct disk_lives *l = &d->lives;
	int fd = e->file->openat(e, d->dir, LIVES_NAME, O_RDONLY, 0);
	ssize_t got = fd < 0 ? fd : disk_read_fd(e, fd, l, sizeof(*l));

	if (fd >= 0)
		e->file->close(e, fd);
	if (got != (ssize_t)sizeof(*l) || memcmp(l->magic, lives_magic, sizeof(l->magic)) ||
	    le32toh(l->crc) != lives_crc(l) || le64toh(l->host) != host || !host)
		*l = (struct disk_lives){ 0 };
}

bool disk_kept(const struct disk *d, uint64_t verifier)
{
	bool kept = verifier == d->verifier;

	for (int i = 0; i < DISK_LIVES && !kept; i++)
		kept = d->lives.verifiers[i] == htole64(verifier);
	return kept;
}

void lives_begin(struct disk *d)
{
	struct env *e = d->env;
	uint64_t host = e->clock->host_start ? e->clock->host_start(e) : 0;
	struct disk_lives *l = &d->lives;
	int fd;

	lives_read(d, host);
	if (l->verifiers[0] != htole64(d->verifier)) {
		memmove(l->verifiers + 1, l->verifiers,
			sizeof(l->verifiers) - sizeof(*l->verifiers));
		l->verifiers[0] = htole64(d->verifier);
	}
	memcpy(l->magic, lives_magic, sizeof(l->magic));
	l->host = htole64(host);
	l->crc = htole32(lives_crc(l));
	fd = e->file->openat(e, d->dir, LIVES_NAME, O_WRONLY | O_CREAT, 0600);
	if (fd < 0)
		return;
	if (disk_write_all(e, fd, l, sizeof(*l), 0) < 0)
		e->file->unlinkat(e, d->dir, LIVES_NAME, 0);
	e->file->close(e, fd);
}

void lives_end(struct disk *d)
{
	d->lives = (struct disk_lives){ 0 };
	d->env->file->unlinkat(d->env, d->dir, LIVES_NAME, 0);
}
