/* Images as programs without a library keep them in a directory: each process writes and syncs a
 * new file, and when all have done so a rename makes it the newest. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "blocktri.h"

static const char *path_of(const struct images *m, const char *what, char path[4096])
{
	snprintf(path, 4096, "%.3500s/%.128s.%s.%d", m->o->to, m->o->job, what, rank);
	return path;
}

static void sys_must(const char *what, long r)
{
	must(what, r < 0 ? -errno : 0);
}

static void open_dir(struct images *m)
{
	sys_must(m->o->to, access(m->o->to, W_OK));
	grid_begin(m->g);
}

static void put(int fd, const char *from, size_t n)
{
	while (n) {
		ssize_t k = write(fd, from, n);

		sys_must("write", k);
		from += k;
		n -= (size_t)k;
	}
}

static void write_new(struct images *m, const char *what)
{
	struct grid *g = m->g;
	char path[4096];
	int fd = open(path_of(m, what, path), O_WRONLY | O_CREAT | O_EXCL, 0600);

	sys_must(path, fd);
	put(fd, (const char *)&g->step, sizeof(g->step));
	for (int i = 0; i < ARRAYS; i++)
		put(fd, (const char *)g->array[i], g->bytes);
	sys_must("fsync", fsync(fd));
	sys_must("close", close(fd));
}

static void take(struct images *m, double *bytes)
{
	char from[4096], to[4096];

	write_new(m, "new");
	ranks_wait();
	sys_must("rename", rename(path_of(m, "new", from), path_of(m, "image", to)));
	*bytes = (double)(m->g->bytes * ARRAYS);
}

static void raw_write(struct images *m)
{
	write_new(m, "raw");
}

static void raw_drop(struct images *m)
{
	char path[4096];

	sys_must("remove", unlink(path_of(m, "raw", path)));
}

static void close_dir(struct images *m)
{
	char path[4096];

	if (m->taken)
		sys_must("remove", unlink(path_of(m, "image", path)));
}

const struct way way_dir = { .open = open_dir,
			     .take = take,
			     .raw_write = raw_write,
			     .raw_drop = raw_drop,
			     .close = close_dir };
