/* Which unsynced data still exist, on disk or in the page cache, after an unclean stop.
 *
 * A killed server leaves what it wrote in the page cache of its host; only a restart of the host
 * loses that. Older data are on disk: while there are writes, the whole file system is synced every
 * FLUSH_NS. So the file `lives` has, for each life of the server (the time under one verifier), the
 * verifier, the boot of the host in which it ran, and the time up to which all that it wrote is on
 * disk. A sync covers all lives whose data were in the page cache then, and no others: what a
 * restart of the host has lost stays lost. Of lives that were dropped from the table, only the time
 * range is known in which their writes may have been lost.
 *
 * The file is written before each such sync, which makes it durable, and so it describes the sync
 * before. After a failed sync the page cache does not count any more. Threads: the loop's; the
 * flush is one call on a worker. Errors: without the file no earlier life counts. */
#include <endian.h>
#include <fcntl.h>

#include "disk/disk_impl.h"

#define HISTORY_NAME "lives"
#define FLUSH_NS (30 * NSEC_PER_SEC)

static const uint8_t history_magic[8] = { 'S', 'H', 'F', 'L', 'I', 'V', 'E', '2' };

static uint64_t host_start(struct env *e)
{
	return e->clock->host_start ? e->clock->host_start(e) : 0;
}

static void history_read(struct disk *d)
{
	struct disk_history *l = &d->history;

	if (disk_read_file(d->env, d->dir, HISTORY_NAME, l, sizeof(*l), history_magic))
		*l = (struct disk_history){ 0 };
}

static int history_write(struct env *e, int dir, const struct disk_history *history)
{
	struct disk_history l = *history;
	int fd = e->file->openat(e, dir, HISTORY_NAME, O_WRONLY | O_CREAT, 0600), r;

	disk_seal(&l, sizeof(l), history_magic);
	r = fd < 0 ? fd : disk_write_all(e, fd, &l, sizeof(l), 0);
	disk_fd_close(e, fd);
	return r;
}

/* True if the table is full and `written` is before its oldest life began. */
static bool is_older(const struct disk *d, int64_t written)
{
	const struct history_entry *oldest = &d->history.entries[HISTORY_ENTRIES - 1];

	return oldest->verifier && written < (int64_t)le64toh(oldest->began);
}

/* Drops the oldest life from the table: its data that were not on disk when the next life began may
 * be lost, now or later. */
static void history_drop_oldest(struct disk_history *l)
{
	const struct history_entry *old = &l->entries[HISTORY_ENTRIES - 1], *next = old - 1;
	uint64_t from = le64toh(old->durable), to = le64toh(next->began);

	if (!old->verifier || from >= to)
		return;
	if (!l->lost_to || from < le64toh(l->lost_from))
		l->lost_from = htole64(from);
	l->lost_to = htole64(MAX(le64toh(l->lost_to), to));
}

bool disk_data_survived(const struct disk *d, uint64_t verifier, int64_t written)
{
	uint64_t host = host_start(d->env);

	if (verifier == d->verifier)
		return true;
	for (int i = 0; i < HISTORY_ENTRIES; i++) {
		const struct history_entry *l = &d->history.entries[i];

		if (le64toh(l->verifier) == verifier)
			return (host && le64toh(l->host) == host) ||
			       written <= (int64_t)le64toh(l->durable);
	}
	return is_older(d, written) && (written <= (int64_t)le64toh(d->history.lost_from) ||
					written > (int64_t)le64toh(d->history.lost_to));
}

/* A sync that began at `began` has succeeded. */
static void history_note_sync(struct disk *d, uint64_t began)
{
	uint64_t host = d->history.entries[0].host;

	d->history.entries[0].durable = htole64(began);
	for (int i = 1; host && i < HISTORY_ENTRIES; i++)
		if (d->history.entries[i].host == host)
			d->history.entries[i].durable = htole64(began);
}

/* Begins a life for d->verifier, or continues the latest one if it has that verifier. */
static void history_push(struct disk *d)
{
	struct history_entry *l = d->history.entries;
	uint64_t now = htole64(d->env->clock->wall(d->env));

	if (le64toh(l->verifier) == d->verifier) { /* clean stop: all data are on disk */
		history_note_sync(d, le64toh(now));
	} else {
		history_drop_oldest(&d->history);
		memmove(l + 1, l, sizeof(d->history.entries) - sizeof(*l));
		*l = (struct history_entry){ .verifier = htole64(d->verifier),
					     .durable = now,
					     .began = now };
	}
	l->host = htole64(host_start(d->env));
}

/* ---------------------------------------------------------------- the flush */

/* Runs on a worker. */
static int flush_call(struct env *e, struct io *io)
{
	struct disk_flush *f = io->arg;

	f->recorded = history_write(e, io->fd, &f->history) == 0;
	return e->file->syncfs(e, io->fd);
}

/* The kernel has marked the pages clean, and which pages they were is unknown, as after a failed
 * fsync. No later flush proves that data are on disk. */
static void flush_failed(struct disk *d, int error)
{
	log_error("disk", "%s: writing back failed: %s", d->path, strerror(-error));
	d->flush.failed = true;
	d->verifier = env_random_u64(d->env);
	d->counters.latched++;
	history_note_loss(d);
}

static void flush_done(struct io *io)
{
	struct disk_flush *f = io->arg;
	struct disk *d = container_of(f, struct disk, flush);

	d->busy--;
	f->busy = false;
	if (f->outdated) /* the file that it wrote claims too much */
		history_write(d->env, d->dir, &d->history);
	else if (io->error)
		flush_failed(d, io->error);
	else if (!f->failed && f->recorded)
		history_note_sync(d, f->began);
	f->outdated = false;
}

static void flush_timer(struct timer *t)
{
	struct disk_flush *f = container_of(t, struct disk_flush, timer);
	struct disk *d = container_of(f, struct disk, flush);

	timer_set(d->loop, &f->timer, d->loop->now + FLUSH_NS);
	if (f->busy || f->writes == d->counters.writes)
		return;
	f->writes = d->counters.writes;
	f->began = d->env->clock->wall(d->env);
	f->history = d->history;
	f->busy = true;
	f->io = (struct io){
		.kind = IO_CALL, .call = flush_call, .fd = d->dir, .arg = f, .done = flush_done
	};
	d->busy++;
	io_submit(d->loop, &f->io);
}

void history_begin(struct disk *d)
{
	history_read(d);
	history_push(d);
	history_write(d->env, d->dir, &d->history);
	d->flush.timer.fire = flush_timer;
	if (!d->nosync && d->env->file->syncfs)
		timer_set(d->loop, &d->flush.timer, d->loop->now + FLUSH_NS);
}

void history_note_loss(struct disk *d)
{
	for (int i = 0; i < HISTORY_ENTRIES; i++)
		d->history.entries[i].host = 0;
	history_push(d);
	d->flush.outdated = d->flush.busy;
	history_write(d->env, d->dir, &d->history);
}

void history_end(struct disk *d)
{
	timer_del(d->loop, &d->flush.timer);
}
