/* Open files: capability, layout, what was written and not reported or synced yet, and the locks
 * that this client has. Private to src/client. */
#ifndef SHEAF_FILE_IMPL_H
#define SHEAF_FILE_IMPL_H

#include "client/client_impl.h"

#define LOCK_SETS 2 /* byte ranges, and the whole file */

/* The locks that this client has on a file, through any of its opens (range.open): an owner has its
 * locks on the file, not on one open. Lives as long as one of the opens. */
struct holding {
	struct hnode node;
	uint64_t ino;
	uint32_t opens;
	uint64_t change; /* at the first open */
	bool leaves_bank; /* no open of the file uses the cache bank any more */
	struct list locks[LOCK_SETS], lost[LOCK_SETS]; /* struct range */
};

/* An open file. */
struct cfile {
	struct list link;
	struct client *c;
	void *user; /* struct sheaf_file of the blocking interface */
	struct hnode by_id; /* in c->imported */
	bool imported; /* by_id is in c->imported */
	bool is_shared; /* guests may write through this open (share.c) */
	bool is_guest; /* uses the open of another process */
	bool may_be_open; /* a guest has asked for an open of its own, under `id` */
	struct wire_handle h;
	uint64_t id; /* of the open */
	uint32_t flags; /* OPEN_READ, OPEN_WRITE, OPEN_APPEND */
	struct list appends; /* struct append under way */
	struct layout layout;
	uint32_t *targets; /* layout.width target ids */
	struct wire_capability cap;
	uint64_t opened_change; /* `change` at the open */
	uint64_t opened_size; /* and the size, exact if the file had no writer */
	uint64_t opened_at; /* incarnation of the metadata server's storage */
	bool uses_bank; /* reads may use the cache bank */
	uint64_t bank_next; /* where the last read through it ended */
	struct bank_ahead *bank_ahead; /* what was filled lately (banked.c), or NULL */
	struct wire_wrote wrote;
	uint64_t n_wrote; /* writes answered so far */
	bool punched; /* holes were punched: only the objects know their blocks */
	int64_t seen_mtime; /* latest of all its writes */
	int64_t held_mtime; /* not reported while a SETATTR of mtime is under way */
	uint64_t *unsynced; /* per object: verifier of the oldest write without an fsync, or 0 */
	uint64_t *writes; /* per object: writes answered so far */
	struct file_object {
		uint64_t recorded; /* recorded end: an object that ends before it has lost data */
		uint64_t end, blocks; /* as of our latest write */
		bool wrote; /* since the last report */
	} * objects; /* per object */
	bool lost; /* a server lost unsynced data */
	bool has_unsynced_before; /* earlier writers left data that may be unsynced */
	bool beyond_recorded; /* the metadata server knows that objects may reach beyond the size */
	struct cred_wire cred;
	struct holding *holding;
	struct direct_file *direct; /* NULL: no direct read yet */
};

/* ---- file.c ---- */
int file_make(struct cop *op); /* makes op->file from the answer to an open */
/* A file with this layout and nothing else set; no targets: a directory. -EIO: invalid layout. */
int file_new(struct client *c, const struct wire_handle *h, uint64_t id,
	     const struct wire_layout_rec *l, struct cfile **out);
/* A write to object `index` was answered: the file is at least `end` bytes long. */
void file_wrote(struct cfile *f, uint32_t index, uint64_t epoch, uint64_t end,
		const struct wire_write_res *r);
/* Takes the recorded ends of the objects, as the metadata server has them under this epoch. */
void file_recorded(struct cfile *f, uint64_t epoch, const struct wire_layout_rec *l);
/* One object of the file, as requests name it. */
struct wire_access file_access(const struct cfile *f, uint32_t index);
/* What was written since the last report, with the notes in the arena. doubt is also set after
 * holes were punched, and without memory for the notes. */
struct wire_wrote file_report(const struct cfile *f, struct arena *a);
/* A server with this verifier answered a write to object `index`. */
void file_unsynced(struct cfile *f, uint32_t index, uint64_t verifier);
/* A SETATTR of mtime begins: the new time outlives our earlier writes. Returns the latest mtime of
 * these; writes up to it are not reported from now on, or again if the SETATTR fails. */
int64_t file_mtime_begin(struct client *c, uint64_t ino, uint32_t uid);
void file_mtime_end(struct client *c, uint64_t ino, int64_t upto, bool set);
void file_reclaim(struct peer *p, bool session_lost);
void file_free(struct cfile *f);

/* ---- locking.c ---- */
struct holding *holding_find(const struct client *c, uint64_t ino); /* NULL: it is not open */
int file_locks_init(struct cfile *f); /* 0 or -ENOMEM */
void file_locks_free(struct cfile *f); /* drops the locks taken through f */
void file_lose_locks(struct cfile *f); /* moves the locks taken through f to `lost` */
/* Locks taken through f were lost, and their owners do not know it yet. */
bool file_lost_own_locks(const struct cfile *f);
/* Lists the locks of `sets` (holding->locks or ->lost) that were taken through this open: from
 * number `skip` on, at most max, to out (or NULL). Returns how many there are in all. */
size_t locks_list(const struct list sets[LOCK_SETS], uint64_t open, struct wire_lock *out,
		  size_t skip, size_t max);

/* ---- refresh.c: fresh capabilities. A guest opens the file for itself. ---- */
void cap_ask(struct cop *op, struct cfile *f, struct call *c, struct req *q); /* holds q */
void cap_take(struct cfile *f, struct call *c); /* the answer, when q goes on */

/* ---- append.c ---- */
uint32_t append_claims(const struct cfile *f, struct wire_append_claim *out); /* out: APPENDS_MAX */

#endif
