/* Copies the whole database while it is in use.
 *
 * LMDB walks the tree of one read transaction and writes its pages compactly. The writer continues
 * meanwhile and takes new pages, so the database grows by what changes until the copy is complete.
 *
 * Threads: a worker of its own runs the copy; everything else runs on the loop, which done() tells
 * of the end. Buffers: LMDB's. Errors: kept for meta_copy_file(). The file has no name, so a crash
 * leaves nothing behind. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "meta/meta_state.h"

struct meta_copy {
	struct job job;
	struct meta *m;
	bool reads; /* counted in m->copies: the map must not move */
	struct worker *worker;
	int fd;
	int rc; /* owned by the worker until done */
	int error; /* -EAGAIN until done */
	uint64_t size;
};

static void copy_run(struct job *j)
{
	struct meta_copy *c = container_of(j, struct meta_copy, job);

	c->rc = db_error(mdb_env_copyfd2(c->m->db.env, c->fd, MDB_CP_COMPACT));
}

/* The copy no longer reads: changes that waited for space continue. */
static void read_over(struct meta_copy *c)
{
	if (!c->reads)
		return;
	c->reads = false;
	c->m->copies--;
	c->m->space.mtime_set_at =
		0; /* so that the next change updates the mtime, as one after the copy */
	writer_try_start(c->m);
}

static void copy_done(struct job *j)
{
	struct meta_copy *c = container_of(j, struct meta_copy, job);
	struct stat st;

	read_over(c);
	if (c->error != -EAGAIN) /* cancelled */
		return;
	c->error = c->rc;
	if (!c->error && fstat(c->fd, &st) < 0)
		c->error = -errno;
	if (!c->error)
		c->size = (uint64_t)st.st_size;
}

/* Creates a file in the database's directory and unlinks it at once. */
static int open_unnamed(MDB_env *env)
{
	char path[CONF_PATH_MAX + 32];
	const char *dir;
	int fd, rc = db_error(mdb_env_get_path(env, &dir));

	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/copy.tmp", dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	unlink(path);
	return fd;
}

int meta_copy_start(struct meta *m, struct meta_copy **out)
{
	struct meta_copy *c = calloc(1, sizeof(*c));
	struct env *e = m->loop->env;
	int rc;

	if (!c)
		return -ENOMEM;
	c->m = m;
	c->job = (struct job){ .run = copy_run, .done = copy_done };
	list_init(&c->job.link);
	c->error = -EAGAIN;
	rc = c->fd = open_unnamed(m->db.env);
	if (rc >= 0)
		rc = e->exec->worker_start(e, m->loop, "backup", &c->worker);
	if (rc < 0) {
		meta_copy_end(c);
		return rc;
	}
	writer_try_start(
		m); /* grows the map now if space is short: it cannot grow during the copy */
	c->reads = true;
	m->copies++;
	e->exec->worker_submit(c->worker, &c->job);
	*out = c;
	return 0;
}

int meta_copy_file(const struct meta_copy *c, uint64_t *size)
{
	*size = c->size;
	return c->error ? c->error : c->fd;
}

/* LMDB has no call to stop a copy, so its next write is made to fail. */
void meta_copy_cancel(struct meta_copy *c)
{
	int full = open("/dev/full", O_RDWR | O_CLOEXEC);

	if (c->error == -EAGAIN && full >= 0)
		dup3(full, c->fd, O_CLOEXEC);
	c->error = -ECANCELED;
	if (full >= 0)
		close(full);
}

void meta_copy_end(struct meta_copy *c)
{
	if (!c)
		return;
	if (c->error == -EAGAIN && c->worker)
		meta_copy_cancel(c);
	if (c->worker)
		c->m->loop->env->exec->worker_stop(c->worker);
	read_over(c);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

uint32_t meta_schema(void)
{
	return SCHEMA_VERSION;
}

uint16_t meta_partition(const struct meta *m)
{
	return m->partition;
}
