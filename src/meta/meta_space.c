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

#define SPACE_MIN (4 * MIB) /* enough for two transactions; MAPPED_CHANGES bounds them */
#define STEP (8 * MIB)
#define STEP_MOST (64 * MIB)
#define STEP_LEAST (64 * KIB)
#define RESERVE MIB
#define RETRY_NS NSEC_PER_SEC
#define DATE_NS \
	NSEC_PER_SEC /* between mtime updates; exact after a clean stop, else up to this old */

uint64_t space_used(const struct meta *m)
{
	MDB_envinfo info;

	return mdb_env_info(m->db.env, &info) ? m->space.bytes :
						(info.me_last_pgno + 1) * m->space.page;
}

/* Allocates the whole range, or fails. Without a map the file keeps the size that LMDB gave it. */
static int allocate(struct meta *m, uint64_t from, uint64_t to)
{
	int fd, r;

	if (mdb_env_get_fd(m->db.env, &fd))
		return -EIO;
	do {
		r = fallocate(fd, m->space.mapped ? 0 : FALLOC_FL_KEEP_SIZE, (off_t)from,
			      (off_t)(to - from));
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

/* Bytes to grow by; when the disk is nearly full, most of what is free. */
static uint64_t next_step(const struct meta *m)
{
	uint64_t step = MIN(MAX(STEP, m->space.bytes / 4), STEP_MOST), free;
	struct statvfs s;
	int fd;

	step = MIN(step, m->space.limit - m->space.bytes);
	if (mdb_env_get_fd(m->db.env, &fd) || fstatvfs(fd, &s))
		return step;
	free = (uint64_t)s.f_bavail * s.f_frsize;
	return MIN(step, free - free / 8) / STEP_LEAST * STEP_LEAST;
}

static int grow_by(struct meta *m, uint64_t step)
{
	uint64_t bytes = m->space.bytes + step;
	int rc = step ? allocate(m, m->space.bytes, bytes) : -ENOSPC;

	if (rc)
		return rc;
	if (m->space.mapped && mdb_env_set_mapsize(m->db.env, bytes)) { /* LMDB lost its map */
		log_error("meta", "the database cannot be mapped with %llu MiB: no addresses left",
			  (unsigned long long)(bytes / MIB));
		abort();
	}
	m->space.bytes = bytes;
	return 0;
}

int space_grow(struct meta *m)
{
	struct env *e = m->loop->env;
	uint64_t step = next_step(m);
	int rc = grow_by(m, step);

	m->space.retry_at = rc || step < STEP ? e->clock->now(e) + RETRY_NS : 0;
	if (rc && rc != -EOPNOTSUPP && !m->space.growth_failed)
		log_warn("meta", "no room for more metadata: %s", error_text(rc));
	m->space.growth_failed = rc;
	return rc;
}

uint64_t space_initial_bytes(const char *dir, uint64_t limit)
{
	char path[CONF_PATH_MAX + 16];
	struct stat st;

	snprintf(path, sizeof(path), "%s/data.mdb", dir);
	return MIN(stat(path, &st) ? STEP : MAX((uint64_t)st.st_size, STEP), limit);
}

int space_open(struct meta *m, uint64_t limit, bool mapped)
{
	MDB_envinfo info;
	MDB_stat st;
	int rc = mdb_env_info(m->db.env, &info);

	if (!rc)
		rc = mdb_env_stat(m->db.env, &st);
	if (rc)
		return db_error(rc);
	m->space = (struct db_space){ .limit = limit, .page = st.ms_psize, .mapped = mapped };
	m->space.bytes = mapped ? info.me_mapsize : MIN(space_used(m), limit);
	rc = mapped ? allocate(m, 0, m->space.bytes) : 0;
	if (rc)
		return rc;
	if (space_should_grow(m))
		rc = space_grow(m);
	if (rc == -EOPNOTSUPP) /* ENOSPC is then reported by writes */
		m->space.bytes = 0;
	return mapped && m->space.bytes == space_used(m) ? rc : 0;
}

bool space_is_tight(const struct meta *m)
{
	return m->space.bytes && m->space.bytes < space_used(m) + SPACE_MIN;
}

bool space_should_grow(const struct meta *m)
{
	struct env *e = m->loop->env;

	return space_is_tight(m) && m->space.bytes < m->space.limit &&
	       e->clock->now(e) >= m->space.retry_at;
}

/* A restore compares the mtime with the backup's time to see whether changes came after it
 * (server/restore.c). */
void space_set_mtime(struct meta *m)
{
	uint64_t at = m->space.changed;
	struct timespec times[2] = { { 0, UTIME_OMIT },
				     { (time_t)(at / NSEC_PER_SEC), (long)(at % NSEC_PER_SEC) } };
	struct env *e = m->loop->env;
	int fd;

	if (!at || mdb_env_get_fd(m->db.env, &fd) || futimens(fd, times))
		return;
	m->space.changed = 0;
	m->space.mtime_set_at = e->clock->now(e);
}

void space_note_change(struct meta *m)
{
	struct env *e = m->loop->env;

	if (!m->space.mapped)
		return;
	m->space.changed = e->clock->wall(e);
	if (m->copies || m->loop->now >= m->space.mtime_set_at + DATE_NS)
		space_set_mtime(m);
}

/* LMDB does not tell how many pages inside the file are free, only whether it had to take new
 * ones. */
static bool in_reserve(const struct meta *m)
{
	return m->space.bytes && m->space.bytes < space_used(m) + MIN(RESERVE, m->space.limit / 16);
}

bool space_is_left(const struct meta *m)
{
	return !m->space.at_reserve || !in_reserve(m);
}

void space_note_use(struct meta *m, uint64_t before, bool took, bool freed)
{
	if (freed)
		m->space.at_reserve = false;
	else if (took && space_used(m) > before)
		m->space.at_reserve = in_reserve(m);
}
