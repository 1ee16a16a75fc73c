/* direct: direct reads. A client on the host of a server reads the file of an object itself,
 * without a message to the server.
 *
 * Over a Unix socket, the reply to OP_SESSION names the server's object directory (path, device and
 * inode). The client opens the files of the objects that it reads and copies what is in the page
 * cache. For everything else it asks the server. A direct read has three steps:
 *
 *   direct_read_begin()  the range of the file as pieces of open object files
 *   direct_read()        copies them; the only step without the connection's lock
 *   direct_read_end()    closes what was closed meanwhile, and tells whether the data are valid
 *
 * If a step fails, the caller discards the data and asks the servers. So a direct read has no error
 * of its own, and its result is the one that the servers would have given:
 *
 * - May this client read the data? The file is open for reading (the client checks it). Beyond that
 *   the permissions of the host decide: a process that may open the object file needs no server to
 *   read it.
 * - Is this the object? The directory has the device and the inode that the server named, and the
 *   name of an object is never reused. The file is truncated, never replaced, while it is open: a
 *   server removes an object only after the last close. A client whose open has ended with its
 *   session is stopped by the next two rules.
 * - Is the server there? Direct reads begin only while the session with the object's server is up.
 *   The end of its link, or of the link to the file's metadata server, closes the descriptors: no
 *   client keeps the server's disk busy after the server has ended.
 * - Are the locks held? A client that was stopped for longer than its lease may have lost its
 *   locks, and would see what their next owner writes. So the data are valid only if, after they
 *   were copied, less than half of the lease at the file's metadata server has passed, and no lock
 *   is known to be lost (the client checks that).
 * - Are the data current? A write is answered when its data are in the page cache of the object
 *   file, so every later direct read sees them. Truncates, holes and zeroed ranges change the same
 *   file. A direct read takes no turn: beside a write that is not answered yet it may see a part.
 * - Are they complete? Only the servers know where the file ends and which data are lost: a piece
 *   that reaches behind the end of its object is not read here.
 * - No step waits for a disk: names and data that are not cached are asked of the server (-EAGAIN).
 *
 * The switch is direct.on. Connections get it from the environment variable SHEAF_DIRECT,
 * which a mount sets by its option nodirect. Off by default.
 *
 * Threads: those of the client, under the connection's lock; direct_read() and the switch need
 * no lock. Buffers: the caller's. Errors: see above. */
#ifndef SHEAF_DIRECT_H
#define SHEAF_DIRECT_H

#include "layout/layout.h"
#include "net/net.h"

#define DIRECT_PIECES 64 /* most of one direct read */

/* The direct reads of one client. */
struct direct {
	struct env *env;
	const struct peer *peers; /* the client's, by target id */
	struct object_dir *dirs; /* by target id */
	struct list files; /* struct direct_file */
	struct list lru; /* open object files, least recently used first */
	uint32_t n_open;
	_Atomic bool on; /* the switch: direct reads are made */
};

/* A range of an object file. */
struct direct_piece {
	int fd;
	uint32_t index; /* of the object */
	uint64_t offset, length;
	bool in_memory; /* the file system is in memory: no read of it waits for a disk */
};

/* Where the objects of an open file are. layout, targets: borrowed until direct_file_free(). */
struct direct_where {
	const struct layout *layout;
	const uint32_t *targets; /* layout->width target ids */
	uint64_t ino;
	uint32_t obj_gen;
	uint32_t keeper; /* target id of the file's metadata server */
};

int direct_init(struct direct *d, struct env *e, const struct peer *peers); /* 0 or -ENOMEM */
void direct_fini(struct direct *d); /* after a failed direct_init(), too; all files are freed */

/* A session with this answer is up over a new link of p; the link is gone. */
void direct_session_up(struct direct *d, struct peer *p, const struct wire_session_res *r);
void direct_link_down(struct direct *d, const struct peer *p);

struct direct_file *direct_file_new(struct direct *d, const struct direct_where *w); /* or NULL */
void direct_file_free(struct direct_file *f); /* f may be NULL; no direct read is in progress */

/* Returns the number of pieces, in the order of the file; they stay open until direct_read_end().
 * 0: ask the servers. */
int direct_read_begin(struct direct_file *f, uint64_t off, uint64_t len,
		      struct direct_piece out[DIRECT_PIECES]);
/* Copies the n pieces to buf: 0, or why they were not copied completely. */
int direct_read(struct env *e, const struct direct_piece *p, int n, void *buf);
/* error: the result of direct_read(). True: the data are valid. */
bool direct_read_end(struct direct_file *f, const struct direct_piece *p, int n, int error);

#endif
