/* Shared by the files of the mount. Private to src/mount. */
#ifndef SHEAF_MOUNT_PRIV_H
#define SHEAF_MOUNT_PRIV_H

#define FUSE_USE_VERSION 314

#include <fuse3/fuse_lowlevel.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "sheaf_admin.h"
#include "sheaf_handle.h"

#define REQUEST_MAX MIB /* bytes of one read or write of the kernel, at most */
#define REQUEST_HEAD 4096 /* more than a request without data has */
#define WORKER_MEMORY (2 * MIB) /* one huge page */
_Static_assert(REQUEST_HEAD + REQUEST_MAX <= WORKER_MEMORY, "either way");
#define INIT_MAX 512 /* bytes of the kernel's first request, at most */
#define READ_AHEAD MIB

/* ---- options ---- */
struct mount_opts {
	char conf[PATH_MAX]; /* as sheaf_connect() takes it */
	char dir[PATH_MAX]; /* absolute */
	char fuse[1024]; /* options for the kernel and libfuse, as text */
	char log[PATH_MAX]; /* "": no log, once in the background */
	bool foreground, takeover, remount;
	bool read_only; /* when the daemon started */
	unsigned long flags_on, flags_off; /* MS_RDONLY etc., for a remount */
	char fixed[64]; /* the last option that a remount cannot change, or "" */
	bool writeback; /* the kernel may keep dirty pages */
	bool no_direct; /* no direct reads */
	enum { ATIME_NEVER, ATIME_RELATIVE, ATIME_ALWAYS } atime;
	bool no_dir_atime; /* never set the access time of directories */
	/* how long the kernel caches names of directories, and attributes */
	double entry_s, attr_s;
	uint64_t memory; /* for buffers of requests in progress */
};

/* ---- workers.c, reactor.c: requests of the kernel, and their workers ---- */

/* What executes a request: a fiber of the reactor, or a thread once it asked for one. All answers
 * are given under its lock: the request of a killed process is answered before its work has ended,
 * and the result of that work is dropped. */
struct worker {
	struct mount *m;
	struct fuse_buf in; /* a buffer of its own (memory.c), or NULL */
	pthread_mutex_t lock;
	fuse_req_t req; /* NULL: answered */
	uint64_t serial; /* number of the request */
	struct fuse_ctx ctx; /* the calling process */
	bool interruptible; /* gets interrupts of its request: once it waits, or on a thread */
	atomic_bool is_lookup; /* a lookup or a getattr: not counted in mount.n_answered */
	struct fiber fiber;
	bool ended; /* the fiber has finished this request */
	bool wants_thread; /* the request restarts on a thread */
	bool threaded;
	/* under the crew's lock */
	struct list link; /* in idle, ready, paused or queue; in none while it runs */
	bool has_stack; /* idle, and has a stack */
	bool interrupted; /* a signal came for the caller */
	bool uncounted; /* not counted against crew.max: waits for a lock, or abandoned */
	bool waiting; /* for a lock of `owner`, without a buffer */
	uint64_t owner;
	bool abandoned; /* its request was answered by the reaper */
	uint64_t modifies; /* inode that its request changes, or 0 */
};

#define WORKERS_MAX 64
#define WAITING_MAX 1024 /* requests that wait for locks, at most */
struct crew {
	pthread_mutex_t lock;
	pthread_cond_t changed, interrupt, queued;
	struct worker workers[WORKERS_MAX + WAITING_MAX];
	struct list idle, ready, queue; /* queue: for threads */
	/* n: requests in progress; n_waiting: for locks; n_uncounted: not counted against max */
	unsigned n, n_waiting, n_uncounted, max;
	unsigned n_abandoned; /* those that change an inode */
	unsigned n_interrupted;
	unsigned n_with_stack, n_queued, n_free; /* n_free: idle threads */
	char *memory; /* WORKER_MEMORY for each of `max` */
	uint64_t free_buffers; /* bitmap of the free ones */
	bool full; /* no room: the kernel's requests wait for one to end */
	bool thread_failed; /* creating a thread failed, and that was logged */
	atomic_bool stop; /* take no further request */
	bool ended; /* the kernel has ended the session */
	bool reactor_runs; /* the reactor runs */
	/* of the reactor */
	pthread_t reactor;
	struct fiber main; /* its own stack */
	struct list paused; /* fibers that wait for something other than servers */
	atomic_uint n_paused;
};

/* ---- remount.c ---- */
int remount_run(const struct mount_opts *o); /* exit status, after a message */

/* ---- files.c ---- */

/* A file that the kernel has open. Closed and freed with the last reference: an abandoned request
 * may still use a file that was released. */
struct mfile {
	struct hnode node;
	uint64_t fh;
	struct sheaf_file *f;
	/* open without O_APPEND, if that was cleared after an open with it; or NULL */
	struct sheaf_file *_Atomic plain;
	uint64_t ino;
	int flags;
	unsigned refs;
	atomic_bool sets_atime; /* the next read sets the access time */
	_Atomic uint64_t fails_until; /* reads fail at once until then: a server timed out */
};

/* An open directory, with a page of entries read ahead. */
#define DIR_FIRST 32 /* entries of the first page, DIR_PAGE of others: many directories are small */
#define DIR_PAGE 512
struct mdir {
	struct hnode node;
	uint64_t fh;
	unsigned refs;
	struct stat self; /* attributes when it was opened */
	pthread_mutex_t lock; /* guards what follows */
	bool sets_atime; /* reading sets the access time */
	struct sheaf_handle h;
	uint64_t start, next; /* cookies before the page and before the entry at `at` */
	int n, at;
	bool plus;
	struct sheaf_dirent *page;
	struct stat *st;
};

/* A holder of byte-range locks: closing any of its descriptors of the file releases them. */
struct holder {
	struct hnode node;
	uint64_t ino, owner;
};

/* What the kernel was told, by inode. Many inodes share an entry, so it is only a hint and errs on
 * the safe side. "shared" below: for all inodes of the entry. */
#define HINTS 4096
#define HINT_XATTRS 3
struct hint {
	uint64_t ino;
	uint64_t pages; /* `change` for which the kernel's pages are valid; 0: unknown */
	uint64_t listed; /* when attributes were last returned in a listing; shared */
	unsigned reading; /* reads in progress; shared */
	uint64_t progress_at; /* when one of them ended, or the first began; shared */
	uint64_t lacks_until[HINT_XATTRS]; /* known to be missing until then */
	struct stat dir; /* of a directory, after this mount's last change of a name in it */
	uint64_t dir_change; /* its `change` */
	uint64_t dir_asked; /* when that change began; 0: nothing is known */
	uint64_t dir_moved; /* value of mount.moved then */
	unsigned changing; /* changes in progress; shared */
	uint64_t unknown; /* count of events with an unknown outcome; shared */
	uint64_t changed; /* when the last change ended; shared */
	pid_t asked_by; /* thread that last asked for attributes of a directory; shared */
	uint64_t asked_at, other_asked_at; /* when it did, and when another thread last did */
	uint64_t notified_at; /* when the kernel was last notified of a change of this directory */
};

/* The result of a lookup, for the getattr that the same system call sends next. */
#define LOOKUP_MEMOS 64
struct lookup_memo {
	pid_t pid; /* the thread; 0: none */
	uint64_t n_answered, at; /* mount.n_answered before the lookup; time of the lookup */
	bool taken; /* used by a getattr */
	struct stat st;
};

#define WAITS_MAX 16

struct mount {
	struct mount_opts o;
	struct sheaf *fs;
	struct fuse_session *se;
	int fd; /* of /dev/fuse */
	char dev[MOUNT_DEV]; /* device of the mount, as the kernel lists it */
	atomic_bool read_only; /* now: reading sets no access times */
	bool can_resend; /* the kernel can resend requests (Linux 6.9) */
	int watch; /* pipe to the watcher; -1: none */
	uint8_t init[INIT_MAX];
	size_t init_len;
	struct crew crew;
	int wake; /* eventfd: the crew has ended */
	int signals; /* signalfd, once there is a mount to remove */
	pthread_mutex_t lock; /* guards what follows */
	struct htab files, dirs, holders;
	struct list closing;
	pthread_cond_t closed;
	uint64_t next_fh;
	struct hint hints[HINTS];
	unsigned moving; /* requests in progress that may remove or move a directory */
	uint64_t moved; /* number of such requests that have ended */
	struct lookup_memo lookup_memos[LOOKUP_MEMOS];
	_Atomic uint64_t n_answered; /* answers to requests other than lookup and getattr */
	_Atomic uint64_t n_xattr_sets; /* extended attributes set */
	struct sheaf_wait waits[WAITS_MAX]; /* servers that requests waited for at the last look */
	int n_waits;
};

/* The requests of the kernel that are served, each by a function op_NAME. */
/* clang-format off */
#define MOUNT_OPS(OP) \
	OP(init) OP(forget) OP(forget_multi) \
	OP(lookup) OP(getattr) OP(setattr) OP(readlink) OP(mknod) OP(mkdir) OP(symlink) OP(link) \
	OP(unlink) OP(rmdir) OP(rename) OP(statfs) \
	OP(setxattr) OP(getxattr) OP(listxattr) OP(removexattr) \
	OP(opendir) OP(readdir) OP(readdirplus) OP(releasedir) OP(fsyncdir) \
	OP(create) OP(open) OP(read) OP(write) OP(flush) OP(release) OP(fsync) \
	OP(fallocate) OP(lseek) OP(copy_file_range) \
	OP(getlk) OP(setlk) OP(flock)
/* clang-format on */
#define DECLARE_OP(name) __typeof__(*((struct fuse_lowlevel_ops *)0)->name) op_##name;
MOUNT_OPS(DECLARE_OP)
extern const struct fuse_lowlevel_ops mount_ops;

/* ---- reactor.c ---- */
/* Makes the kernel send unanswered requests again; no effect before Linux 6.9. */
void crew_resend(struct mount *m);
int crew_init(struct mount *m);
int crew_start(struct mount *m);
bool crew_ended(struct mount *m); /* the mount is gone */
/* Takes no new request and waits for those in progress: 0, or -ETIMEDOUT and the crew continues. */
int crew_stop(struct mount *m, unsigned seconds);

/* ---- workers.c ---- */
extern __thread struct worker *worker_self; /* the worker that runs on this thread */
int reaper_start(struct mount *m);
/* Under the crew's lock: wakes the reactor if it waits for room for a request. */
void crew_made_room(struct mount *m);
/* Under the crew's lock: waits for cond, or for ms at most. */
void crew_timedwait(struct crew *c, pthread_cond_t *cond, long ms);
/* True if a stop must end waits for locks. They end last: only when nothing else is in progress is
 * it certain that they are requested again. */
bool crew_must_end_waits(const struct crew *c);
/* Under the crew's lock, released meanwhile. Does not end a wait that has not begun yet, so it is
 * repeated until the wait has ended. */
void worker_cancel_wait(struct worker *w);
/* A request begins. From here on it belongs to the worker, and the reaper may answer and free it at
 * any time: req_take() takes it back for an answer. */
struct worker *req_begin(fuse_req_t req);
void worker_enable_interrupts(
	struct worker *w); /* from now on it gets interrupts: it may take a while */
/* The request, to be answered now; NULL: it was abandoned, and the caller undoes what it did. */
fuse_req_t req_take(struct worker *w);
bool req_answer(struct worker *w, int r); /* 0 or -errno; false: the request was abandoned */
fuse_req_t req_take_result(struct worker *w, ssize_t r); /* r < 0: answers so; NULL */
/* Answer with n bytes of buf; with n as a count; or with an error: -errno. */
void req_answer_bytes(struct worker *w, ssize_t n, const char *buf);
void req_answer_written(struct worker *w, ssize_t n);
bool is_network_error(int r); /* the error means that no server answered */
/* True if the request runs on a thread and may block. If false, the caller returns at once, having
 * done nothing, and the request restarts on a thread. */
bool runs_on_thread(struct worker *w);
/* As pthread_cond_wait(), without blocking the reactor; worker_changed() wakes it. */
void worker_await(struct worker *w, pthread_cond_t *cond, pthread_mutex_t *lock);
void worker_changed(struct mount *m, pthread_cond_t *cond);
/* The request concerns a lock of this owner, and may wait for it or for pages to be written: gives
 * its buffer back. -ENOLCK: too many requests wait. After -EINTR, worker_was_cancelled() tells
 * whether the cancel was meant for this request. */
int worker_begin_wait(struct worker *w, uint64_t owner);
bool worker_was_cancelled(struct worker *w);
/* The request changes this inode: waits for abandoned requests that do, so that no old change
 * overwrites a newer one. Opens pass `changes` false, to see the result of those. False: the
 * request was abandoned itself while it waited, and must do nothing. */
bool worker_begin_change(struct worker *w, uint64_t ino, bool changes);
bool worker_interrupted(struct worker *w);
/* Makes the kernel send the request again, to this daemon or its successor; EINTR if it cannot. */
void req_resend(struct worker *w);

/* ---- memory.c: buffers of requests; the last two under the crew's lock ---- */
int memory_init(struct crew *c);
void memory_take(struct worker *w); /* sets w->in.mem; NULL: there is none */
void memory_give(struct worker *w);
static inline char *worker_out(struct worker *w) /* REQUEST_MAX bytes, after the request */
{
	return (char *)w->in.mem + REQUEST_HEAD;
}

/* ---- caller.c: identity of the calling process ---- */
struct caller {
	struct sheaf_cred cred;
	uint32_t gids[32];
	pid_t pid;
	bool full; /* supplementary groups were looked up */
};
void caller_init(struct caller *c, const struct worker *w);
/* True if r is a refusal and supplementary groups were missing: now they are there, try again. */
bool caller_should_retry(struct caller *c, int r);
void caller_groups(struct caller *c);
/* Reads /proc/PID/status of a thread. */
int proc_status(pid_t pid, char *text, size_t size);
extern const struct sheaf_cred cred_root;

/* ---- hints.c ---- */
/* True if the kernel may keep its pages of this file. */
bool hint_opened(struct mount *m, uint64_t ino, uint64_t change, bool growing);
void hint_listed(struct mount *m, uint64_t ino);
bool hint_was_listed(struct mount *m, uint64_t ino);
/* hint_reading: a read begins or ends. hint_stuck: reads have had no answer for a while. */
void hint_reading(struct mount *m, uint64_t ino, int begins);
bool hint_stuck(struct mount *m, uint64_t ino);
/* Extended attributes that the kernel asks for often. hint_lacks: the attribute is known to be
 * missing. hint_set_lacks: the servers said so to a request that began when mount.n_xattr_sets was
 * `sets`. hint_has: the attribute was set. */
bool hint_lacks(struct mount *m, uint64_t ino, const char *name);
void hint_set_lacks(struct mount *m, uint64_t ino, const char *name, uint64_t sets);
void hint_has(struct mount *m, uint64_t ino, const char *name);
/* These enclose a request that changes one directory or two (dir2, or 0). moves: it may also remove
 * or move a directory. has_result: this thread has changed a name, and sheaf_h_dir_after() has its
 * result. */
struct dir_change {
	uint64_t dirs[2], unknown[2];
	uint64_t asked, moved;
	bool moves;
};
struct dir_change dirs_begin(struct mount *m, uint64_t dir, uint64_t dir2, bool moves);
void dirs_end(struct mount *m, const struct dir_change *d, bool has_result);
/* The kernel was or will be told what may be newer than the remembered attributes: forgets them. */
void dir_forget(struct mount *m, uint64_t ino);
/* dir_note_asked: this thread asked for its attributes. dir_is_changing: it is being changed, or
 * was lately. */
void dir_note_asked(struct mount *m, uint64_t ino);
bool dir_is_changing(struct mount *m, uint64_t ino);
/* True if the attributes of this directory are remembered; *left: seconds that they are valid. */
bool dir_known(struct mount *m, uint64_t ino, struct stat *st, double *left);

/* lookup_memo_put: remembers the attributes that a lookup of this thread found; n_answered:
 * mount.n_answered when it began. lookup_memo_take: returns them if a getattr would still find
 * them: nothing but lookups and getattrs was answered since, and within a millisecond. */
void lookup_memo_put(struct worker *w, uint64_t n_answered, const struct stat *st);
bool lookup_memo_take(struct worker *w, uint64_t ino, struct stat *st);
/* True if this thread's last lookup found the inode just now, and no listing has shown it since. */
bool lookup_memo_is_recent(struct worker *w, uint64_t ino);

/* ---- entries.c ---- */
static inline struct sheaf_handle handle_of(fuse_ino_t ino)
{
	return (struct sheaf_handle){ ino, SHEAF_GEN };
}
void entry_of(struct mount *m, const struct stat *st, struct fuse_entry_param *e);

/* ---- dirs.c ---- */
/* Attributes, with link count 0, of a directory that was removed while it is open here. */
bool dir_last_known(struct mount *m, uint64_t ino, struct stat *st);

/* ---- files.c ---- */
int files_init(struct mount *m);
struct mfile *file_get(struct mount *m, uint64_t fh); /* or NULL */
void file_put(struct mount *m, struct mfile *f);
void files_await_close(struct worker *w, uint64_t ino); /* waits for closes in progress */
/* Takes over sf; fh: its number, 0: the next one. */
int file_add(struct mount *m, struct sheaf_file *sf, int flags, uint64_t fh, struct mfile **out);
/* wants_atime: reading must set the access time, as mount(8) explains for relatime. inode_set_atime
 * sets it; errors are ignored. */
bool sets_atime_always(const struct mount *m);
bool wants_atime(const struct mount *m, const struct stat *st, int flags);
void inode_set_atime(struct mount *m, fuse_ino_t ino);

/* ---- flocks.c: locks ---- */
int holder_add(struct mount *m, uint64_t ino, uint64_t owner);
/* A descriptor of the owner was closed: releases its byte-range locks. False: see
 * runs_on_thread(). */
bool locks_close(struct worker *w, struct mfile *f, uint64_t owner);

/* ---- mount_opts.c ---- */
/* 0; an exit status, after a message; -1: --help was given. */
int mount_opts_parse(int argc, char **argv, struct mount_opts *o);
/* Sets $SHEAF_DIRECT for the connection that is made next; before there are threads. Without the
 * option nodirect a value of the user stays. */
void mount_switch_direct(const struct mount_opts *o);

/* ---- mount_main.c ---- */
struct fuse_session *mount_session(struct mount *m); /* or NULL, after a message of libfuse */

/* ---- mount_point.c ---- */
int watcher_start(const char *dir); /* a descriptor, or -errno */
void watcher_tell(int fd, const char *what);

/* ---- successor.c ---- */
/* In the new daemon: gets the mount, its files and its locks from the old one. */
int takeover_receive(struct mount *m, int (*failed)(const char *fmt, ...));
bool takeover_commit(void); /* ready to serve; true: the old daemon ends */
/* Makes the control socket of the daemon of a mounted directory; the descriptor or -errno. waits:
 * for the old daemon to exit, which has the name until then. */
int control_listen(const char *dir, bool waits);
/* Serves one connection. True: a new daemon has taken over; this one must send nothing more. */
bool control_serve(struct mount *m, int listener);

/* ---- mount_waits.c; in the main thread ---- */

/* Logs the servers that requests have begun to wait for, and those that they wait for no more. */
void waits_look(struct mount *m);
/* Sends a line for each server that is waited for: name, address, seconds waited and left, why. */
void waits_tell(struct mount *m, int to);

#endif
