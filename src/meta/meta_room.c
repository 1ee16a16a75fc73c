/* Space for the database: allocated ahead of its use, so that a transaction has space whatever
 * other programs write meanwhile.
 *
 * If the file system gives no more space, the rest is reserved for changes that free space: a full
 * disk can be cleaned up.
 *
 * A database in memory (tmpfs) is written through its map: no system call in a transaction, a third
 * of its time. A store to a page that the file system cannot allocate would raise SIGBUS, so LMDB's
 * map is then exactly as large as the allocated space, and grows with it. Growing moves the map: no
 * transaction may be open.
 *
 * Threads: the loop's for a mapped database, else the writer's. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "meta/meta_state.h"

#define ROOM_MIN (4 * MIB) /* enough for two transactions; ROOM_CHANGES bounds them */
#define STEP (8 * MIB)
#define STEP_MOST (64 * MIB)
#define STEP_LEAST (64 * KIB)
#define RESERVE MIB
#define RETRY_NS NSEC_PER_SEC
#define DATE_NS \
	NSEC_PER_SEC /* between mtime updates; exact after a clean stop, else up to this old */

uint64_t room_used(const struct meta *m)
{
	MDB_envinfo info;

	return mdb_env_info(m->db.env, &info) ? m->room.bytes :
						(info.me_last_pgno + 1) * m->room.page;
}

/* Allocates the whole range, or fails. Without a map the file keeps the size that LMDB gave it. */
static int allocate(struct meta *m, uint64_t from, uint64_t to)
{
	int fd, r;

	if (mdb_env_get_fd(m->db.env, &fd))
		return -EIO;
	do {
		r = fallocate(fd, m->room.mapped ? 0 : FALLOC_FL_KEEP_SIZE, (off_t)from,
			      (off_t)(to - from));
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

/* Bytes to grow by; when the disk is nearly full, most of what is free. */
static uint64_t next_step(const struct meta *m)
{
	uint64_t step = MIN(MAX(STEP, m->room.bytes / 4), STEP_MOST), free;
	struct statvfs s;
	int fd;

	step = MIN(step, m->room.limit - m->room.bytes);
	if (mdb_env_get_fd(m->db.env, &fd) || fstatvfs(fd, &s))
		return step;
	free = (uint64_t)s.f_bavail * s.f_frsize;
	return MIN(step, free - free / 8) / STEP_LEAST * STEP_LEAST;
}

static int grow_by(struct meta *m, uint64_t step)
{
	uint64_t bytes = m->room.bytes + step;
	int rc = step ? allocate(m, m->room.bytes, bytes) : -ENOSPC;

	if (rc)
		return rc;
	if (m->room.mapped && mdb_env_set_mapsize(m->db.env, bytes)) { /* LMDB lost its map */
		log_error("meta", "the database cannot be mapped with %llu MiB: no addresses left",
			  (unsigned long long)(bytes / MIB));
		abort();
	}
	m->room.bytes = bytes;
	return 0;
}

int room_grow(struct meta *m)
{
	struct env *e = m->loop->env;
	uint64_t step = next_step(m);
	int rc = grow_by(m, step);

	m->room.again = rc || step < STEP ? e->clock->now(e) + RETRY_NS : 0;
	if (rc && rc != -EOPNOTSUPP && !m->room.refused)
		log_warn("meta", "no room for more metadata: %s", error_text(rc));
	m->room.refused = rc;
	return rc;
}

uint64_t room_first(const char *dir, uint64_t limit)
{
	char path[CONF_PATH_MAX + 16];
	struct stat st;

	snprintf(path, sizeof(path), "%s/data.mdb", dir);
	return MIN(stat(path, &st) ? STEP : MAX((uint64_t)st.st_size, STEP), limit);
}

int room_open(struct meta *m, uint64_t limit, bool mapped)
{
	MDB_envinfo info;
	MDB_stat st;
	int rc = mdb_env_info(m->db.env, &info);

	if (!rc)
		rc = mdb_env_stat(m->db.env, &st);
	if (rc)
		return db_error(rc);
	m->room = (struct room){ .limit = limit, .page = st.ms_psize, .mapped = mapped };
	m->room.bytes = mapped ? info.me_mapsize : MIN(room_used(m), limit);
	rc = mapped ? allocate(m, 0, m->room.bytes) : 0;
	if (rc)
		return rc;
	if (room_short(m))
		rc = room_grow(m);
	if (rc == -EOPNOTSUPP) /* ENOSPC is then reported by writes */
		m->room.bytes = 0;
	return mapped && m->room.bytes == room_used(m) ? rc : 0;
}

bool room_tight(const struct meta *m)
{
	return m->room.bytes && m->room.bytes < room_used(m) + ROOM_MIN;
}

bool room_short(const struct meta *m)
{
	struct env *e = m->loop->env;

	return room_tight(m) && m->room.bytes < m->room.limit && e->clock->now(e) >= m->room.again;
}

/* A restore compares the mtime with the backup's time to see whether changes came after it
 * (server/restore.c). */
void room_date(struct meta *m)
{
	uint64_t at = m->room.changed;
	struct timespec times[2] = { { 0, UTIME_OMIT },
				     { (time_t)(at / NSEC_PER_SEC), (long)(at % NSEC_PER_SEC) } };
	struct env *e = m->loop->env;
	int fd;

	if (!at || mdb_env_get_fd(m->db.env, &fd) || futimens(fd, times))
		return;
	m->room.changed = 0;
	m->room.dated = e->clock->now(e);
}

void room_changed(struct meta *m)
{
	struct env *e = m->loop->env;

	if (!m->room.mapped)
		return;
	m->room.changed = e->clock->wall(e);
	if (m->copies || m->loop->now >= m->room.dated + DATE_NS)
		room_date(m);
}

/* LMDB does not tell how many pages inside the file are free, only whether it had to take new
 * ones. */
static bool in_reserve(const struct meta *m)
{
	return m->room.bytes && m->room.bytes < room_used(m) + MIN(RESERVE, m->room.limit / 16);
}

bool room_left(const struct meta *m)
{
	return !m->room.starved || !in_reserve(m);
}

void room_was_used(struct meta *m, uint64_t before, bool taken, bool given)
{
	if (given)
		m->room.starved = false;
	else if (taken && room_used(m) > before)
		m->room.starved = in_reserve(m);
}
