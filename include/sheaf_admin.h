/* libsheaf for administrators: what the servers have stored, row by row, and repairs of it (what `sheaf check`
 * stands on); and how data travel (what `sheaf explain` stands on), which is anybody's to see.
 * Scans and repairs need uid 0 (-EPERM). They may be used while everything runs: a page of rows is one consistent
 * look at one server, two pages are two looks. */
#ifndef SHEAF_ADMIN_H
#define SHEAF_ADMIN_H

#include "sheaf_handle.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHEAF_SCAN_MAX 512 /* rows of a page */
#define SHEAF_SCAN_KEY 264
#define SHEAF_MAX_TARGETS 256

enum sheaf_scan_kind {
	SHEAF_SCAN_INODE = 1,
	SHEAF_SCAN_ENTRY = 2, /* of directories, by name */
	SHEAF_SCAN_INDEX = 3, /* the same by cookie */
	SHEAF_SCAN_UNSETTLED = 4, /* files whose size the objects know better */
	SHEAF_SCAN_REMOVE = 5, /* files without a name whose objects are to go */
	SHEAF_SCAN_TRUNCATE = 6, /* truncates under way */
	SHEAF_SCAN_SYMLINK = 7,
	SHEAF_SCAN_XATTR = 8,
	SHEAF_SCAN_NEXT = 9, /* one row: ino is the next number to be given */
	SHEAF_SCAN_OBJECT = 10, /* from data servers; all others are from metadata servers */
	SHEAF_SCAN_PREPARED = 11, /* parts of changes over two servers */
	SHEAF_SCAN_LOCK = 12, /* inodes and entries that these hold */
};

/* Extended attributes that an inode's own row knows of. */
#define SHEAF_HAS_ACL 1
#define SHEAF_HAS_DEFAULT_ACL 2
#define SHEAF_HAS_CAPABILITY 4

#define SHEAF_OBJECT_OLD UINT32_MAX /* an object file of storage format 1 */

/* How a file is spread over servers. */
struct sheaf_stripes {
	uint32_t version, type, unit, start, obj_gen, redundancy;
	uint32_t n_targets, targets[SHEAF_MAX_TARGETS];
};

struct sheaf_row {
	struct sheaf_handle h; /* the inode or directory it is about; generation as the row has it */
	/* entry, index: what it names. Directory: its parent. Prepared: the directory */
	struct sheaf_handle to;
	/* entry, index: cookie. Directory: the next. Remove, object: generation. Prepared, lock: which change */
	uint64_t second;
	/* directory: entries. Symlink, xattr: bytes. Object: its end. Prepared: the inode it replaces */
	uint64_t size;
	uint64_t epoch; /* object: the fence, below which nobody may touch it */
	uint64_t change; /* of an inode: moves with every change of it */
	/* entry, index: the type. Xattr: permissions that an access ACL stands for */
	uint32_t mode, nlink;
	uint32_t has; /* inode: SHEAF_HAS_ bits. Xattr: the one that it is, or 0 */
	int bad; /* it cannot be read: only the key and perhaps h.ino are set */
	uint32_t name_len, key_len;
	char name[256]; /* entry, index, xattr, prepared, lock; with a NUL behind it */
	uint8_t key[SHEAF_SCAN_KEY]; /* where it is stored */
	struct sheaf_stripes stripes; /* files */
	uint32_t index; /* object: which of its file's; SHEAF_OBJECT_OLD: its name does not say */
	/* files: recorded end of each object, in the order of stripes.targets. An object that
	 * ends before it has lost data; 0: nothing is recorded */
	uint64_t ends[SHEAF_MAX_TARGETS];
};

/* Where a scan is: all zero is the beginning. */
struct sheaf_scan {
	uint64_t only; /* rows of this inode or directory; 0: all */
	int end; /* there are no more */
	uint64_t total; /* rows of this kind there, about; 0: not known */
	uint32_t key_len;
	uint8_t key[SHEAF_SCAN_KEY];
};
/* The next rows of a kind at server i: how many (at most max), 0 at the end, or -errno. */
SHEAF_API int sheaf_scan(struct sheaf *fs, int i, enum sheaf_scan_kind kind, struct sheaf_scan *s,
			 struct sheaf_row *rows, int max);
/* The metadata server that has this inode. */
SHEAF_API int sheaf_server_of(struct sheaf *fs, uint64_t ino);

/* How a file of this inode would be spread over servers by default; unit and width 0: the default. */
SHEAF_API void sheaf_default_stripes(struct sheaf *fs, uint64_t ino, uint32_t unit, uint32_t width,
				     struct sheaf_stripes *out);
/* The smallest size of a file whose object on this server ends there; UINT64_MAX: it has none there. */
SHEAF_API uint64_t sheaf_stripes_end(const struct sheaf_stripes *s, uint32_t server, uint64_t end);

enum sheaf_repair_kind {
	SHEAF_REPAIR_ENTRY_SET =
		1, /* dir, name: names h as type mode; new, or of the same inode before */
	SHEAF_REPAIR_ENTRY_DROP = 2, /* dir, name, h; whatever it names stays */
	SHEAF_REPAIR_DIRECTORY = 3, /* h: index, counts and cookies anew from the entries */
	SHEAF_REPAIR_NLINK =
		4, /* h, value; this, the next four, ACL: only while `change` is the given one */
	SHEAF_REPAIR_PARENT = 5, /* h, dir */
	SHEAF_REPAIR_EPOCH = 6, /* h, value */
	SHEAF_REPAIR_LAYOUT = 7, /* h, stripes */
	SHEAF_REPAIR_TEXT = 8, /* h: a symbolic link has a text, and its length is its size */
	SHEAF_REPAIR_MAKE =
		9, /* h, type mode, dir: parent, stripes, value: epoch; an inode for what is left */
	SHEAF_REPAIR_ROW_DROP = 10, /* value: kind of row; key: a row that is about nothing */
	SHEAF_REPAIR_UNSETTLE = 11, /* h: its size is found out from its objects */
	SHEAF_REPAIR_NEXT = 12, /* h.ino: numbers up to it are taken */
	SHEAF_REPAIR_ACL =
		13, /* h: its permissions are those of its ACL; one that cannot be read goes */
};
struct sheaf_repair {
	enum sheaf_repair_kind kind;
	struct sheaf_handle h, dir;
	const char *name;
	uint32_t name_len, key_len, mode;
	uint64_t change, value;
	const uint8_t *key;
	const struct sheaf_stripes *stripes; /* or NULL */
};
/* One transaction at server i. -EAGAIN: what it was decided on has changed, nothing was done. */
SHEAF_API int sheaf_repair(struct sheaf *fs, int i, const struct sheaf_repair *r);

/* How the bytes of transfers travel: inside the message, packed into one buffer, or from and into the caller's pieces
 * themselves. Which one is the cheapest is decided for each transfer by what it costs on this machine, unless one is forced
 * here, for all transfers that begin from now on, or by $SHEAF_MOVER. */
enum sheaf_mover {
	SHEAF_MOVER_AUTO = 0,
	SHEAF_MOVER_INLINE = 1, /* as many requests as it takes */
	SHEAF_MOVER_PACK = 2,
	SHEAF_MOVER_GATHER = 3,
};
#define SHEAF_MOVERS 4
SHEAF_API int sheaf_set_mover(struct sheaf *fs, enum sheaf_mover how);
SHEAF_API const char *sheaf_mover_name(enum sheaf_mover how); /* "pack"; NULL: there is no such */
/* Nanoseconds that it takes a client to move so many segments of so many bytes together, besides a round trip: what the
 * decision goes by. Auto: those of the cheapest. */
SHEAF_API double sheaf_mover_cost(struct sheaf *fs, enum sheaf_mover how, int write,
				  uint64_t segments, uint64_t bytes);
/* What this connection has done at server i so far. */
struct sheaf_account {
	uint64_t requests;
	uint64_t frames; /* messages and pieces of bulk data, both ways */
	uint64_t sent; /* bytes of messages to it: requests with what they carry inline, no bulk data */
	uint64_t calls; /* of the system, on the connection's socket */
	uint64_t bytes[SHEAF_MOVERS]; /* of data, by mover */
	uint64_t copied; /* bytes of data, in user space; what is copied twice counts twice */
	uint64_t round_ns; /* the quickest round trip; 0: none yet */
	uint64_t busy_ns; /* with requests under way there */
	/* "unix" (on one host), "tcp", "loop" (in this process); NULL: neither connected nor about to be */
	const char *medium;
};
SHEAF_API int sheaf_account(struct sheaf *fs, int i, struct sheaf_account *out);

/* An access as sheaf_read_list() takes it or, where there is a file_type, as sheaf_read_typed() does. */
struct sheaf_access {
	int write;
	const struct iovec *mem;
	size_t n_mem;
	const struct sheaf_extent *ext;
	size_t n_ext;
	void *base;
	const struct sheaf_type *mem_type, *file_type;
	uint64_t mem_count, file_off;
};
/* What one object has of it. */
struct sheaf_share {
	uint64_t bytes;
	uint64_t extents; /* of the object, those that touch counted as one */
	uint64_t segments; /* of the memory, likewise */
	uint64_t requests;
	enum sheaf_mover mover; /* of its bytes */
};
struct sheaf_plan {
	uint64_t bytes, begin, end; /* how many, and where in the file */
	struct sheaf_share shares[SHEAF_MAX_TARGETS]; /* in the order of the stripes' targets */
};
/* How this access to a file with these stripes would be cut, with this mover, by the very code that does it; nothing is sent
 * and no memory is touched, so the memory need not be there. Calls touch, unless that is NULL, for all extents of each
 * object. -E2BIG: too many pieces to look at each. */
typedef void (*sheaf_touch)(void *arg, uint32_t object, const struct sheaf_extent *ext, size_t n);
SHEAF_API int sheaf_plan(struct sheaf *fs, const struct sheaf_stripes *where, enum sheaf_mover how,
			 const struct sheaf_access *a, sheaf_touch touch, void *arg,
			 struct sheaf_plan *out);

#ifdef __cplusplus
}
#endif
#endif
