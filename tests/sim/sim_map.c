/* Mappings and holes of simulated files, and accesses to files of other processes on the host.
 *
 * The pages of a mapped file are in the memory of its mapping; page.own has their contents at
 * the last look. So stores are noticed before anything depends on them. The memory behind the
 * end of the file exists nevertheless: only sockets check that it is not used. The memory of a
 * process that is gone stays until its code is destroyed. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim_fs.h"

void sim_page_settle(const struct inode *i, struct page *p)
{
	bool in_map = i->map && (p->no + 1) * PAGE <= i->map->len;
	uint8_t *to = in_map ? i->map->base + p->no * PAGE : p->own;

	if (p->cur && p->cur != to)
		memcpy(to, p->cur, PAGE);
	p->cur = to;
}

void sim_page_look(struct sim_fs *fs, struct page *p)
{
	bool touched = p->touched;

	p->touched = false;
	if (p->cur == p->own || !memcmp(p->cur, p->own, PAGE))
		return;
	fs->node->sim->injected[SIM_MAPPED_STORE] += !touched;
	sim_page_dirty(fs, p);
	memcpy(p->own, p->cur, PAGE);
}

void sim_inode_look(struct sim_fs *fs, struct inode *i)
{
	for (size_t k = 0; i->map && k < i->n_pages; k++)
		sim_page_look(fs, i->pages[k]);
}

/* ---------------------------------------------------------------- mappings */

const char *sim_map(struct env *e, int fd, uint64_t len, bool writable)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;
	struct map *m;
	void *base;

	(void)writable;
	if (!f || f->inode->fs != fs || f->inode->map || !S_ISREG(f->inode->mode))
		return NULL;
	base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
	if (base == MAP_FAILED)
		abort();
	m = sim_alloc(sizeof(*m));
	*m = (struct map){ .inode = f->inode, .base = base, .len = len };
	list_push(&fs->maps, &m->link);
	f->inode->map = m;
	for (size_t k = 0; k < f->inode->n_pages; k++)
		sim_page_settle(f->inode, f->inode->pages[k]);
	return base;
}

/* Detaches the mapping from its file; the memory stays. */
static void map_leave(struct sim_fs *fs, struct map *m)
{
	struct inode *i = m->inode;

	if (!i)
		return;
	sim_inode_look(fs, i);
	i->map = NULL;
	m->inode = NULL;
	for (size_t k = 0; k < i->n_pages; k++)
		sim_page_settle(i, i->pages[k]);
}

static void map_free(struct sim_fs *fs, struct map *m)
{
	map_leave(fs, m);
	munmap(m->base, m->len);
	list_del(&m->link);
	free(m);
}

void sim_maps_leave(struct sim_fs *fs)
{
	struct map *m;

	list_for_each(m, &fs->maps, link)
		map_leave(fs, m);
}

void sim_maps_free(struct sim_fs *fs)
{
	struct map *m;

	while ((m = list_first(&fs->maps, struct map, link)))
		map_free(fs, m);
}

static struct map *map_find(const struct sim_fs *fs, const void *p)
{
	uintptr_t at = (uintptr_t)p;
	struct map *m;

	list_for_each(m, &fs->maps, link)
		if (at >= (uintptr_t)m->base && at - (uintptr_t)m->base < m->len)
			return m;
	return NULL;
}

/* Also called by the code of a node that is down. */
void sim_unmap(struct env *e, const char *base, uint64_t len)
{
	struct sim_fs *fs = sim_node_of(e)->fs;
	struct map *m = map_find(fs, base);

	assert(m && (const char *)m->base == base && m->len == len);
	map_free(fs, m);
}

bool sim_fs_is_map(struct sim_node *n, const void *p)
{
	return map_find(n->fs, p);
}

size_t sim_fs_usable(struct sim_node *n, const void *p, size_t len)
{
	const struct map *m = map_find(n->fs, p);
	uint64_t off = m ? (uint64_t)((const uint8_t *)p - m->base) : 0;
	uint64_t end = m && m->inode ? (m->inode->size + PAGE - 1) / PAGE * PAGE : 0;

	if (!m)
		return len;
	n->sim->injected[SIM_MAPPED_SEND]++;
	return off < end ? (size_t)MIN((uint64_t)len, end - off) : 0;
}

int sim_fs_store(struct sim_node *n, const void *p, size_t len)
{
	const struct map *m = map_find(n->fs, p);
	uint64_t off = m ? (uint64_t)((const uint8_t *)p - m->base) : 0;

	if (!m || !len)
		return 0;
	if (sim_inject(n->sim, SIM_STORE_FAULT, n->sim->faults.store_fault))
		return -EFAULT;
	for (uint64_t no = off / PAGE; no * PAGE < off + len; no++)
		if (!m->inode || no * PAGE >= m->inode->size ||
		    !sim_page_for_write(n->fs, m->inode, no))
			return -EFAULT;
	n->sim->injected[SIM_DIRECT_STORE]++;
	return 0;
}

/* ---------------------------------------------------------------- holes */

/* Room that was never written is a hole on real disks, too. */
static bool is_hole(const struct page *p)
{
	for (size_t k = 0; p && k < PAGE; k++)
		if (p->cur[k])
			return false;
	return true;
}

static uint64_t next_hole(const struct inode *i, uint64_t at)
{
	while (at < i->size && !is_hole(sim_page_find(i, at / PAGE)))
		at = (at / PAGE + 1) * PAGE;
	return MIN(at, i->size);
}

static uint64_t next_data(const struct inode *i, uint64_t at)
{
	for (size_t k = 0; k < i->n_pages; k++)
		if (i->pages[k]->no >= at / PAGE && !is_hole(i->pages[k]))
			return MAX(at, i->pages[k]->no * PAGE);
	return UINT64_MAX;
}

/* As lseek(2). One disk in four does not support holes. */
off_t sim_seek(struct env *e, int fd, off_t off, int whence)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;
	uint64_t at = (uint64_t)off;

	if (!f)
		return fs ? -EBADF : -EIO;
	if (hash_u64(fs->node->sim->seed + 20 + fs->node->id) % 4 == 0)
		return -EINVAL;
	sim_trace(fs->node->sim, SIM_FILE, fs->node->id, at);
	if (off < 0 || at >= f->inode->size)
		return -ENXIO;
	at = whence == SEEK_HOLE ? next_hole(f->inode, at) : next_data(f->inode, at);
	return at == UINT64_MAX || (whence == SEEK_DATA && at >= f->inode->size) ? -ENXIO :
										   (off_t)at;
}

/* ---------------------------------------------------------------- files of other nodes on the
 * host */

/* Writes NODE:INODE. */
ssize_t sim_dir_path(struct env *e, int dir, char *path, size_t n)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, dir) : NULL;
	int r = f ? snprintf(path, n, "%s:%llu", fs->node->name,
			     (unsigned long long)f->inode->ino) :
		    -EBADF;

	return r >= 0 && (size_t)r >= n ? -ENAMETOOLONG : r;
}

/* Sometimes a name is not in the cache. */
static bool name_is_out(const struct sim_fs *fs)
{
	return sim_chance(fs->node->sim, 100000);
}

int sim_open_dir_cached(struct env *e, const char *path, uint64_t dev, uint64_t ino, bool *on_tmpfs)
{
	struct sim_fs *fs = sim_fs_of(e);
	const struct sim_node *to = NULL;
	struct inode *i;

	if (!fs)
		return -EIO;
	for (uint32_t k = 0; k < fs->node->sim->n_nodes; k++)
		if (fs->node->sim->nodes[k]->id + 1 == dev)
			to = fs->node->sim->nodes[k];
	if (!to || to->host != fs->node->host || strncmp(path, to->name, strlen(to->name)) != 0)
		return -ENOENT;
	if (!to->on_tmpfs && name_is_out(fs))
		return -EAGAIN;
	*on_tmpfs = to->on_tmpfs;
	list_for_each(i, &to->fs->inodes, all)
		if (i->ino == ino)
			return sim_fd_new(fs, i, O_RDONLY);
	return -ENOENT;
}

int sim_open_cached(struct env *e, int dir, const char *path)
{
	struct sim_fs *fs = sim_fs_of(e);

	if (fs && name_is_out(fs))
		return -EAGAIN;
	return sim_openat(e, dir, path, O_RDONLY, 0);
}

ssize_t sim_read_cached(struct env *e, int fd, const struct iovec *iov, int n, off_t off,
			bool on_tmpfs)
{
	struct sim_fs *fs = sim_fs_of(e);

	if (fs && !on_tmpfs && sim_chance(fs->node->sim, 300000))
		return -EAGAIN;
	return sim_preadv(e, fd, iov, n, off);
}
