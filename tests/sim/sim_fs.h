/* Shared by the files of the simulated disk: sim_fs.c has the files and the effects of a power
 * loss, sim_map.c has mappings and accesses to files of other processes on the host. */
#ifndef SHEAF_SIM_FS_H
#define SHEAF_SIM_FS_H

#include "sim_priv.h"

#define PAGE 4096
#define FIRST_FD 1000 /* above all descriptors of sockets, which are invalid here */
#define TOTAL_SPACE (UINT64_C(1) << 40)

struct page {
	uint64_t no;
	uint64_t seq; /* fs->seq of the last change */
	uint64_t old_seq; /* fs->seq of the sync that wrote `old` */
	uint8_t *old; /* durable content while dirty or lost; NULL: zeros */
	bool dirty; /* differs from the disk; the next sync writes it */
	bool lost; /* differs from the disk; no sync will write it */
	bool touched; /* changed other than through a mapping since the last look */
	uint8_t *cur; /* points to `own`, or into the mapping of the file */
	uint8_t own[PAGE]; /* while the file is mapped: the contents at the last look */
};

struct inode;

struct name {
	char *text;
	struct inode *inode;
};

struct names { /* sorted */
	struct name *v;
	size_t n;
};

enum change_kind { CHANGE_SET, CHANGE_DEL, CHANGE_RENAME };

struct change {
	struct list link;
	uint64_t seq;
	enum change_kind kind;
	char *a, *b;
	struct inode *inode;
};

struct inode {
	struct list all;
	struct sim_fs *fs;
	struct map *map; /* or NULL */
	uint64_t ino;
	mode_t mode;
	bool marked;
	int lock; /* descriptor that holds the lock, or -1 */
	uint64_t mtime;
	struct page **pages; /* sorted by number */
	size_t n_pages, cap_pages;
	uint64_t size, durable_size;
	uint64_t synced; /* fs->seq of the sync that wrote the durable contents */
	uint32_t n_syncs; /* syncs under way */
	struct names cur, durable; /* for directories */
	struct list changes;
};

/* A sync under way. It writes the contents from the time when it began. */
struct sync {
	struct list link;
	struct inode *inode;
	struct io *io;
	uint64_t seq, size;
	struct page *pages; /* copies; only `no`, `seq` and `own` are used */
	size_t n_pages;
	struct names names;
};

struct file {
	struct inode *inode; /* may belong to another node of this host */
	int flags;
};

struct map {
	struct list link;
	struct inode *inode; /* NULL: its process is gone; the memory stays until sim_unmap() */
	uint8_t *base;
	uint64_t len;
};

struct sim_fs {
	struct sim_node *node;
	struct list inodes;
	size_t n_inodes, sweep_at;
	uint64_t next_ino;
	struct inode *root;
	struct inode *nothing; /* the inode of descriptors whose files are gone */
	struct list maps;
	uint64_t used; /* pages in use */
	uint64_t seq; /* number of the last change */
	struct list syncs;
	struct file *files;
	size_t n_files;
};

/* sim_fs.c */
struct page *sim_page_find(const struct inode *i, uint64_t no);
/* Returns the page, which it adds if it is missing; NULL if the disk is full. */
struct page *sim_page_for_write(struct sim_fs *fs, struct inode *i, uint64_t no);
void sim_page_dirty(struct sim_fs *fs, struct page *p);
int sim_fd_new(struct sim_fs *fs, struct inode *i, int flags);
struct file *sim_fd_get(struct sim_fs *fs, int fd);
struct sim_fs *sim_fs_of(struct env *e); /* of a node that is up, else NULL */
int sim_openat(struct env *e, int dfd, const char *path, int flags, mode_t mode);
ssize_t sim_preadv(struct env *e, int fd, const struct iovec *iov, int n, off_t off);

/* sim_map.c */
/* sets p->cur: own memory or the mapping */
void sim_page_settle(const struct inode *i, struct page *p);
/* Marks the page dirty if something was stored through a mapping since the last look. */
void sim_page_look(struct sim_fs *fs, struct page *p);
void sim_inode_look(struct sim_fs *fs, struct inode *i);
void sim_maps_leave(struct sim_fs *fs); /* the process is gone: its files are not mapped any more */
void sim_maps_free(struct sim_fs *fs);
const char *sim_map(struct env *e, int fd, uint64_t len, bool writable);
void sim_unmap(struct env *e, const char *base, uint64_t len);
ssize_t sim_dir_path(struct env *e, int dir, char *path, size_t n);
int sim_open_dir_cached(struct env *e, const char *path, uint64_t dev, uint64_t ino,
			bool *on_tmpfs);
off_t sim_seek(struct env *e, int fd, off_t off, int whence);
int sim_open_cached(struct env *e, int dir, const char *path);
ssize_t sim_read_cached(struct env *e, int fd, const struct iovec *iov, int n, off_t off,
			bool on_tmpfs);

#endif
