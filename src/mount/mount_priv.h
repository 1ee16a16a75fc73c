/* What the files of the mount share. Private to src/mount. */
#ifndef SHEAF_MOUNT_PRIV_H
#define SHEAF_MOUNT_PRIV_H

#define FUSE_USE_VERSION 314

#include <fuse3/fuse_lowlevel.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "sheaf_handle.h"

#define REQUEST_MAX MIB /* bytes that one read or write of the kernel moves */
#define REQUEST_HEAD 4096 /* more than a request has that brings no data */
#define WORKER_MEMORY (2 * MIB) /* one huge page */
_Static_assert(REQUEST_HEAD + REQUEST_MAX <= WORKER_MEMORY, "either way");
#define INIT_MAX 512 /* bytes of the kernel's first request */
#define READ_AHEAD MIB

/* ---- what the user chose ---- */
struct mount_opts {
	char conf[PATH_MAX]; /* as sheaf_connect() takes it */
	char dir[PATH_MAX]; /* absolute */
	char fuse[1024]; /* options for the kernel and libfuse, as text */
	char log[PATH_MAX]; /* "": nowhere, once in the background */
	bool foreground, takeover, remount;
	bool read_only; /* when the daemon began */
	unsigned long flags_on, flags_off; /* MS_RDONLY and its like, for a remount */
	char fixed[64]; /* the last option that no remount can change, or "" */
	bool writeback; /* the kernel may keep dirty pages */
	bool far; /* servers of this host are asked for what could be read past them */
	enum { ATIME_NEVER, ATIME_RELATIVE, ATIME_ALWAYS } atime;
	bool no_dir_atime; /* never that of a directory */
	double entry_s,
		attr_s; /* how long the kernel believes names of directories, and attributes */
	uint64_t memory; /* for buffers of requests under way */
};

/* ---- workers.c, reactor.c: requests of the kernel, and who works on them ---- */

/* What works on a request: a fiber of the reactor, or a thread once it asked for one. All answers go through its lock: a
 * request whose process was killed is answered before its work has ended, and whatever that work gives is dropped. */
struct worker {
	struct mount *m;
	struct fuse_buf in; /* in memory of its own (memory.c), or NULL */
	pthread_mutex_t lock;
	fuse_req_t req; /* NULL: answered */
	uint64_t serial; /* of the request */
	struct fuse_ctx ctx; /* who asked */
	bool hears; /* of signals for who asked: once it waits, or on a thread */
	atomic_bool looks; /* it is a lookup or a getattr: nobody sees a difference */
	struct fiber fiber;
	bool ended; /* the fiber, for now */
	bool moves; /* and it goes on on a thread */
	bool threaded;
	/* under the crew's lock */
	struct list link; /* idle, ready, paused or queued; none while it runs */
	bool kept; /* idle, and has its stack */
	bool interrupted; /* a signal came for who asked */
	bool aside; /* does not count: it waits, or its request was answered before its time */
	bool waiting; /* for a lock of `owner`; it has no buffers */
	uint64_t owner;
	bool abandoned; /* its request was answered before its time */
	uint64_t modifies; /* the inode that its request changes, or 0 */
};

#define WORKERS_MAX 64
#define WAITING_MAX 1024 /* requests that wait for locks */
struct crew {
	pthread_mutex_t lock;
	pthread_cond_t changed, interrupt, queued;
	struct worker workers[WORKERS_MAX + WAITING_MAX];
	struct list idle, ready, queue; /* the last: for threads */
	unsigned n, n_waiting, n_aside,
		max; /* requests under way; the rest of it says which do not count */
	unsigned n_abandoned; /* that change something */
	unsigned n_interrupted;
	unsigned n_kept, n_queued, n_free; /* n_free: threads without work */
	char *memory; /* WORKER_MEMORY for each of `max` */
	uint64_t spare; /* which of these are */
	bool full; /* requests wait for one to end */
	bool short_of_threads; /* none could be made, and that was said */
	atomic_bool stop; /* at the next boundary between requests */
	bool ended; /* the kernel has nothing more for us */
	bool reacting; /* there is a reactor */
	/* of the reactor */
	pthread_t reactor;
	struct fiber main; /* its own stack */
	struct list paused; /* fibers that wait for something other than servers */
	atomic_uint n_paused;
};

/* ---- remount.c ---- */
int mount_again(const struct mount_opts *o); /* exit status; it has said why */

/* ---- files.c ---- */

/* An open file of the kernel's. Freed (and closed) with the last reference: an abandoned request may
 * still use one that was released. */
struct mfile {
	struct hnode node;
	uint64_t fh;
	struct sheaf_file *f;
	struct sheaf_file
		*_Atomic plain; /* when O_APPEND was taken off one opened with it; or NULL */
	uint64_t ino;
	int flags;
	unsigned refs;
	atomic_bool touch; /* its next read sets the access time */
	_Atomic uint64_t fails_until; /* reads do: a server did not answer the last one in time */
};

/* An open directory: some entries, read ahead. */
#define DIR_FIRST 32 /* entries of the first page, and of later ones: many directories are small */
#define DIR_PAGE 512
struct mdir {
	struct hnode node;
	uint64_t fh;
	unsigned refs;
	struct stat self; /* when it was opened */
	pthread_mutex_t lock; /* of what follows */
	bool touch; /* reading it sets the access time */
	struct sheaf_handle h;
	uint64_t start, next; /* cookies that the page and the entry at `at` follow */
	int n, at;
	bool plus;
	struct sheaf_dirent *page;
	struct stat *st;
};

/* Who holds byte-range locks: closing any descriptor of the file lets go of them. */
struct holder {
	struct hnode node;
	uint64_t ino, owner;
};

/* What the kernel was told, by inode; a place is shared by many, so it is a hint, kept on the safe side. */
#define HINTS 4096
#define HINT_XATTRS 3
struct hint {
	uint64_t ino;
	uint64_t pages; /* `change` under which the kernel's pages of it are right; 0: not known */
	uint64_t listed; /* when attributes were last given with a listing */
	unsigned reading; /* requests under way, of all that share the place */
	uint64_t moved; /* when the last of them began or ended */
	uint64_t lacks[HINT_XATTRS]; /* until when it has no such attribute */
	struct stat dir; /* of a directory, after our last change of a name in it */
	uint64_t dir_change; /* its number */
	uint64_t dir_asked; /* when that began; 0: nothing is known */
	uint64_t dir_moved; /* mount.moved then */
	unsigned changing; /* changes under way, of all that share the place */
	uint64_t unknown; /* how often something happened that we do not know the outcome of, likewise */
	uint64_t changed; /* when the last change ended, likewise */
	pid_t told; /* the thread that asked last for attributes of a directory, likewise */
	uint64_t told_at, told_other; /* when, and when another one did */
	uint64_t noticed; /* when the kernel was last told of a change of this directory */
};

/* What a lookup has just found, for the getattr that the same system call asks for next. */
#define GLANCES 64
struct glance {
	pid_t pid; /* the thread; 0: none */
	uint64_t acts, at; /* the mount's count before it, and when */
	bool taken; /* by a getattr */
	struct stat st;
};

struct mount {
	struct mount_opts o;
	struct sheaf *fs;
	struct fuse_session *se;
	int fd; /* of /dev/fuse */
	char dev[MOUNT_DEV]; /* of the mount, as the kernel lists it */
	atomic_bool read_only; /* now: reading sets no times */
	bool can_resend; /* the kernel has Linux 6.9's ability */
	int watch; /* its other end is the watcher's; -1: none */
	uint8_t init[INIT_MAX];
	size_t init_len;
	struct crew crew;
	int wake; /* eventfd: the crew has ended */
	int signals; /* signalfd, once there is a mount to take away */
	pthread_mutex_t lock; /* of what follows */
	struct htab files, dirs, holders;
	struct list closing;
	pthread_cond_t closed;
	uint64_t next_fh;
	struct hint hints[HINTS];
	unsigned moving; /* requests under way that may remove or move a directory */
	uint64_t moved; /* those that have ended */
	struct glance glances[GLANCES];
	_Atomic uint64_t acts; /* answers that were more than a look */
	_Atomic uint64_t sets; /* extended attributes that were set */
};

extern const struct fuse_lowlevel_ops mount_ops;

/* ---- reactor.c ---- */
/* Requests that were not answered come again (Linux 6.9); without the ability nothing happens. */
void crew_resend(struct mount *m);
int crew_init(struct mount *m);
int crew_start(struct mount *m);
bool crew_ended(struct mount *m); /* the mount is gone */
/* No new request is taken; returns when those under way have ended: 0, or -ETIMEDOUT and the crew goes on. */
int crew_stop(struct mount *m, unsigned seconds);

/* ---- workers.c ---- */
extern __thread struct worker *worker_self; /* what this thread works on */
int reaper_start(struct mount *m);
/* Under the crew's lock: there may be room for another request. */
void crew_made_room(struct mount *m);
/* Under the lock: until something is said, or for so long. */
void crew_nap(struct crew *c, pthread_cond_t *cond, long ms);
/* At a stop, waits for locks are given up last: only when nothing else is under way will they surely be asked for again. */
bool crew_stops_waits(const struct crew *c);
/* Under the lock, given up meanwhile: a wait that has not begun yet is not ended, so this is said again until it is. */
void worker_cancel_wait(struct worker *w);
/* A request begins. From here on it belongs to the worker: it may be answered, and gone, at any time; whoever wants to
 * answer takes it back with req_take(). */
struct worker *req_begin(fuse_req_t req);
void worker_hears(struct worker *w); /* from now on: it may take a while */
/* The request, to be answered now, or NULL: it was abandoned, and undoes what it did. */
fuse_req_t req_take(struct worker *w);
bool answer(struct worker *w, int r); /* 0 or -errno; false: it was abandoned */
/* With so many bytes of buf; with their number; or with an error: -errno. */
void answer_bytes(struct worker *w, ssize_t n, const char *buf);
void answer_written(struct worker *w, ssize_t n);
bool is_lost(int r); /* no answer came from a server */
/* Does it have a thread, and may block? If not, it returns at once, having done nothing, and begins anew on one. */
bool on_thread(struct worker *w);
/* As pthread_cond_wait(), and who changes what it waits for says so; without blocking the reactor. */
void worker_await(struct worker *w, pthread_cond_t *cond, pthread_mutex_t *lock);
void worker_changed(struct mount *m, pthread_cond_t *cond);
/* It is about a lock of this owner and may wait, for it or for pages to be written: -ENOLCK, too many do. Then ask whether
 * a -EINTR was meant for it. */
int worker_waits(struct worker *w, uint64_t owner);
bool worker_gives_up(struct worker *w);
/* Its request changes this inode: comes after abandoned ones that do, so that no old change lands on a newer one. Also for
 * opens, with `changes` false: they see what came of it. False: it was abandoned itself while it waited, and does nothing. */
bool worker_modifies(struct worker *w, uint64_t ino, bool changes);
bool worker_interrupted(struct worker *w);
/* The kernel is to send it again, to whoever serves it then; or an answer where the kernel cannot. */
void req_again(struct worker *w);

/* ---- memory.c: of requests; the last two under the crew's lock ---- */
int memory_init(struct crew *c);
void memory_take(struct worker *w); /* w->in.mem; NULL: there is none */
void memory_give(struct worker *w);
static inline char *worker_out(struct worker *w) /* REQUEST_MAX bytes, behind the request */
{
	return (char *)w->in.mem + REQUEST_HEAD;
}

/* ---- caller.c: for whom ---- */
struct caller {
	struct sheaf_cred cred;
	uint32_t gids[32];
	pid_t pid;
	bool full; /* supplementary groups are there */
};
void caller_init(struct caller *c, const struct worker *w);
/* After r: was it refused for want of groups that were not looked up yet? Then it is worth another try. */
bool caller_again(struct caller *c, int r);
void caller_groups(struct caller *c);
/* What /proc says of a thread, as text. */
int proc_status(pid_t pid, char *text, size_t size);
extern const struct sheaf_cred cred_root;

/* ---- hints.c ---- */
/* May the kernel keep the pages it has of this file? */
bool hint_opened(struct mount *m, uint64_t ino, uint64_t change, bool growing);
void hint_listed(struct mount *m, uint64_t ino);
bool hint_was_listed(struct mount *m, uint64_t ino);
/* A read begins or ends; and do some get no answer for a while? */
void hint_reading(struct mount *m, uint64_t ino, int begins);
bool hint_stuck(struct mount *m, uint64_t ino);
/* Extended attributes that the kernel asks for all the time: is it known that there is none? If the servers said so to a
 * question that began at `sets`, it is; and one was set. */
bool hint_lacks(struct mount *m, uint64_t ino, const char *name);
void hint_set_lacks(struct mount *m, uint64_t ino, const char *name, uint64_t sets);
void hint_has(struct mount *m, uint64_t ino, const char *name);
/* A request that changes a directory, or two (dir2, or 0), is between these; moves: it may also remove or move one. told: it
 * was a change of names, by this thread, and succeeded, so that sheaf_h_dir_after() tells what came of it. */
struct dir_change {
	uint64_t dirs[2], unknown[2];
	uint64_t asked, moved;
	bool moves;
};
struct dir_change dirs_begin(struct mount *m, uint64_t dir, uint64_t dir2, bool moves);
void dirs_end(struct mount *m, const struct dir_change *d, bool told);
/* The kernel was told, or will be, what may be newer than what is remembered. */
void dir_shown(struct mount *m, uint64_t ino);
/* This thread has asked for its attributes; and is it changed now, or was it lately? */
void dir_told(struct mount *m, uint64_t ino);
bool dir_busy(struct mount *m, uint64_t ino);
/* Is it remembered what this directory has? And for how many seconds that may be believed. */
bool dir_known(struct mount *m, uint64_t ino, struct stat *st, double *left);

/* The attributes that a lookup of this thread found, when it began at `acts`; and whether they are still what a getattr of
 * it would find: nothing else was answered since, and no time has passed. */
void glance_keep(struct worker *w, uint64_t acts, const struct stat *st);
bool glance_take(struct worker *w, uint64_t ino, struct stat *st);
/* This thread's last lookup found it, just now, and no listing has shown it since. */
bool glance_saw(struct worker *w, uint64_t ino);

/* ---- entries.c ---- */
static inline struct sheaf_handle handle_of(fuse_ino_t ino)
{
	return (struct sheaf_handle){ ino, SHEAF_GEN };
}
void entry_of(struct mount *m, const struct stat *st, struct fuse_entry_param *e);
void op_lookup(fuse_req_t req, fuse_ino_t dir, const char *name);
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
		struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_mknod(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t dir, const char *name);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t dir, const char *name);
void op_unlink(fuse_req_t req, fuse_ino_t dir, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t dir, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t dir, const char *name, fuse_ino_t dir2, const char *name2,
	       unsigned flags);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* ---- dirs.c ---- */
/* A directory that was removed while it is open here: as it was, without a name. */
bool dir_last_known(struct mount *m, uint64_t ino, struct stat *st);
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* ---- files.c ---- */
int files_init(struct mount *m);
struct mfile *file_get(struct mount *m, uint64_t fh); /* or NULL */
void file_put(struct mount *m, struct mfile *f);
void files_await_close(struct worker *w, uint64_t ino); /* of those whose last user is done */
/* Takes sf; under this number (0: the next one). */
int file_add(struct mount *m, struct sheaf_file *sf, int flags, uint64_t fh, struct mfile **out);
/* Does reading it set its access time, as mount(8) explains relatime? Then say so; if it cannot be done, well. */
bool is_strict(const struct mount *m);
bool wants_atime(const struct mount *m, const struct stat *st, int flags);
void was_read(struct mount *m, fuse_ino_t ino);
void op_create(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t off_in, struct fuse_file_info *fi_in,
			fuse_ino_t out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
			int flags);

/* ---- flocks.c: locks ---- */
void op_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l);
void op_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l, int wait);
void op_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op);
int holder_add(struct mount *m, uint64_t ino, uint64_t owner);
/* A descriptor of the owner was closed. */
bool locks_close(struct worker *w, struct mfile *f, uint64_t owner);

/* ---- mount_opts.c ---- */
/* 0; or an exit status, said; -1: --help was asked for. */
int mount_opts_parse(int argc, char **argv, struct mount_opts *o);

/* ---- mount_main.c ---- */
struct fuse_session *mount_session(struct mount *m); /* or NULL, said by libfuse */

/* ---- mount_point.c ---- */
int watcher_start(const char *dir); /* a descriptor, or -errno */
void watcher_tell(int fd, const char *what);

/* ---- successor.c ---- */
/* The new daemon: gets the mount and all that goes with it. */
int takeover(struct mount *m, int (*failed)(const char *fmt, ...));
bool takeover_done(void); /* ready to serve: does the old one go? */
/* The socket by which others reach the daemon of a mounted directory; the descriptor or -errno. */
int control_listen(const char *dir);
/* Somebody connected. True: a new daemon has taken over, this one must end without a word. */
bool control_serve(struct mount *m, int listener);

#endif
