/* libsheaf for administrators: creating a file system, its servers and their state, backup and
 * restore, the rows that servers have stored and repairs of them, and how data travel. The sheaf
 * command is built on this header; programs that only use files do not need it. */
#ifndef SHEAF_ADMIN_H
#define SHEAF_ADMIN_H

#include "sheaf_handle.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- creating a file system ---- */

struct sheaf_init {
	uint32_t size; /* sizeof(struct sheaf_init) */
	uint32_t servers; /* 0: 4 */
	uint32_t port; /* of the first server, consecutive for the others; 0: 7430 */
	uint32_t stripe_unit; /* 0: 256 KiB */
	const char *listen; /* address without port; NULL: 127.0.0.1 */
	uint32_t metas; /* number of metadata servers, the first ones; 0: all */
};
/* Writes DIR/sheaf.conf, DIR/key, DIR/server.key and formats DIR/server0, ... DIR must not exist,
 * or be empty. sheaf_why() explains a failure. */
SHEAF_API int sheaf_init(const char *dir, const struct sheaf_init *o);

/* ---- the cache bank of this connection ---- */

/* Since the connection was made. */
struct sheaf_bank {
	uint32_t size; /* in: sizeof(struct sheaf_bank) */
	uint32_t block; /* bytes of a file in one entry */
	uint64_t asked, hits; /* reads that asked the bank; those that found all they wanted */
	uint64_t skipped; /* reads that did not ask, since that would not have paid */
	uint64_t hit_bytes;
	uint64_t waits; /* for another client that was filling */
	uint64_t filled, dropped; /* blocks stored; not stored, since too many were waiting */
	uint64_t failures; /* of daemons; each is skipped for a while then */
	uint64_t bad; /* values that were no entries of this file system */
	uint64_t ask_ns; /* time of the reads that asked */
	uint64_t attr_asked, attr_hits, attr_skipped; /* attributes, as asked, hits and skipped */
	uint64_t probes; /* measurements of the bank, for which nothing waited */
	uint64_t wholes; /* of the hits: of small files, whose bytes came with their attributes */
};
/* -ENOENT: reads do not use a bank; sheaf_why() says why. */
SHEAF_API int sheaf_bank(struct sheaf *fs, struct sheaf_bank *out);
#define SHEAF_BANK_READ_MAX 1048576 /* bytes: longer reads do not ask */
/* Asks the bank for as many bytes of a file that does not exist: how long that takes, in ns. */
SHEAF_API int64_t sheaf_bank_ask(struct sheaf *fs, uint64_t bytes);

/* ---- servers: `sheaf status` and `sheaf requests` ---- */

struct sheaf_server {
	uint32_t id, roles; /* 1 meta, 2 data */
	char name[32], address[128];
	int up; /* 1: the server answered; 0: only the fields above are set */
	uint32_t pid, links, sessions, in_service;
	uint64_t uptime_ns, rss_bytes, anon_bytes, requests;
	uint64_t space_total, space_avail, pool_bytes, pool_free, pool_waits;
	uint64_t bad_links, slow_inline, disk_inline, disk_handed;
	uint64_t calls; /* system calls of its loop */
	uint64_t refused; /* requests and links refused, for any reason */
	uint64_t bytes_read, bytes_written; /* of data, since the server started */
	uint64_t storage; /* servers with the same number share their space; 0: not known */
	uint32_t load; /* clients whose bulk it moves; pool_bytes - pool_free are in transit */
	uint64_t incarnation; /* of its storage: new at each format; sheaf_map(): the map's, or 0 */
	/* pieces of objects that requests asked for; accesses performed for them; accesses that
	 * were joined with others; bytes read between the pieces; read-modify-writes */
	uint64_t accesses_requested, accesses_performed, accesses_merged;
	uint64_t vain_bytes, read_modify_writes;
	int down; /* enum sheaf_down: why it is not up */
	char why[256]; /* the same for people, with the remedy; "": it is up */
};
enum sheaf_down {
	SHEAF_DOWN_NOT, /* it is up, or was not asked */
	SHEAF_DOWN_REFUSED, /* no process listens at its address */
	SHEAF_DOWN_SILENT, /* its process takes connections and does not answer */
	SHEAF_DOWN_UNREACHABLE, /* its host does not answer */
	SHEAF_DOWN_KEY, /* this client has another key */
	SHEAF_DOWN_OTHER, /* another server, or one of another file system, has its address */
	SHEAF_DOWN_NAME, /* the name of its host cannot be resolved */
	SHEAF_DOWN_VERSION, /* it has no version of the protocol in common with this client */
	SHEAF_DOWN_STRANGER, /* what answers is no Sheaf server */
	SHEAF_DOWN_FULL, /* it has reached its limit of clients */
	SHEAF_DOWN_ERROR, /* any other error */
};
/* "refused", "no answer", "unreachable", "wrong key", ... */
SHEAF_API const char *sheaf_down_name(int down);
SHEAF_API int sheaf_server_count(struct sheaf *fs);
/* Asks one server, for at most timeout_ms. Returns 0 also if it is down (see up). */
SHEAF_API int sheaf_server_status(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s);

#define SHEAF_MAX_ROUTES 8
/* A way to a server: "unix" (a socket of this host), "rdma" (if one end has a network card for it),
 * "tcp", "loop" (in this process). */
struct sheaf_route {
	char name[16];
	int used; /* 1: the link goes over it */
	int error; /* why it is not used: -errno; 0: it is used, or a better one is */
	char reason[160]; /* the same for people; "": error is 0 */
};
struct sheaf_route_links {
	char name[16];
	uint32_t links;
};
/* Counters of links, since the connection was made, or since the start of the server. */
struct sheaf_net_counts {
	uint64_t messages_sent, messages_received;
	uint64_t frames; /* messages and pieces of bulk data, in both directions */
	uint64_t calls; /* system calls on sockets */
	uint64_t copied; /* bytes of data copied in user space */
	uint64_t work_requests, registrations; /* of network cards; 0 over other media */
	uint64_t doorbells; /* chains of work requests */
	uint64_t reserved[8]; /* 0; for later counters: the size of this struct stays */
};
/* The network between this connection and one server; may grow. */
struct sheaf_server_net {
	uint32_t size; /* in: sizeof(struct sheaf_server_net) */
	uint32_t n_routes, n_links; /* rows below */
	struct sheaf_route routes[SHEAF_MAX_ROUTES]; /* of this connection, the best first */
	struct sheaf_route_links links[SHEAF_MAX_ROUTES]; /* of the server; none if it is down */
	struct sheaf_net_counts own; /* of this connection, over all its links to the server */
	struct sheaf_net_counts server; /* of all links that the server has accepted; 0: down */
};
/* As sheaf_server_status(), and fills `net`, which may be NULL. -EINVAL: its size is too small. */
SHEAF_API int sheaf_server_net(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s,
			       struct sheaf_server_net *net);
#define SHEAF_TIME_OCTAVES 24
/* Requests of one kind since the server started, by the time from the message to the reply. */
struct sheaf_times {
	uint64_t count, sum_ns;
	/* how many took less than 4 us, less than 8 us (and not less than 4), ...; the last row has
	 * all that took longer */
	uint64_t octaves[SHEAF_TIME_OCTAVES];
};
enum { SHEAF_TIMES_READ, SHEAF_TIMES_WRITE, SHEAF_TIMES_SYNC, SHEAF_TIMES_NAMES, SHEAF_TIMES };
struct sheaf_server_times {
	uint32_t size; /* in: sizeof(struct sheaf_server_times) */
	struct sheaf_times of[SHEAF_TIMES]; /* without waits for locks; 0: the server is down */
};
/* As sheaf_server_status(), and fills `times`. -EINVAL: its size is too small. */
SHEAF_API int sheaf_server_times(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s,
				 struct sheaf_server_times *times);
/* A server's part in the cache bank, since it started. */
struct sheaf_server_bank {
	uint32_t size; /* in: sizeof(struct sheaf_server_bank) */
	uint32_t tells; /* 1: it sets notices of changes */
	uint64_t notices, lost; /* set; not set, since too many waited */
	uint64_t failures; /* of daemons; each is skipped for a while then */
	uint64_t ask_ns; /* how long its worker waited for them */
	uint64_t filled, unfilled; /* files read into the bank; not, since too many waited */
};
/* 0 or -errno, as -ETIMEDOUT. */
SHEAF_API int sheaf_server_bank(struct sheaf *fs, int i, int timeout_ms,
				struct sheaf_server_bank *out);
/* The counters `own` alone; asks nothing. */
SHEAF_API int sheaf_net_counts(struct sheaf *fs, int i, struct sheaf_net_counts *out);

#define SHEAF_COST_SIZES 7
/* What accesses to the files of a server cost; times in ns. */
struct sheaf_costs {
	uint32_t sizes[SHEAF_COST_SIZES]; /* of accesses, ascending; the times belong to them */
	double read[SHEAF_COST_SIZES], write[SHEAF_COST_SIZES]; /* of cached data */
	double cold[SHEAF_COST_SIZES]; /* reads from the disk */
	double parallel; /* cold reads that take as long as one, at the same time */
	double copy, piece; /* copies in memory: of a byte, and of a piece beside its bytes */
};
/* The costs by which server i chooses its accesses: 0 or -errno. */
SHEAF_API int sheaf_server_costs(struct sheaf *fs, int i, int timeout_ms, struct sheaf_costs *out);
/* Makes data server i measure them again, while it works, and store them; takes a second or more on
 * a slow disk. Needs uid 0 (-EPERM) and 256 MiB of free space (-ENOSPC). 1: the server uses them,
 * but cannot store them. sheaf_why() explains failures. */
SHEAF_API int sheaf_calibrate(struct sheaf *fs, int i);

/* Makes a round trip to server i; waits as long as any operation does. */
SHEAF_API int sheaf_ping(struct sheaf *fs, int i);

struct sheaf_request {
	char op[33], state[33], client[65];
	uint64_t age_ns, state_ns, trace, session, ino;
	uint32_t uid;
};
/* What server i works on, oldest first: fills at most max rows, returns their number. */
SHEAF_API int sheaf_server_requests(struct sheaf *fs, int i, int timeout_ms,
				    struct sheaf_request *rows, int max);

/* What sessions have asked of a server since it started, added up. */
enum sheaf_tally_kind {
	SHEAF_TALLY_CLIENTS,
	SHEAF_TALLY_USERS, /* names are decimal uids */
	SHEAF_TALLY_JOBS, /* SHEAF_JOB of clients, or what the batch system calls their job */
};
#define SHEAF_TALLY_ROWS 257
struct sheaf_tally_row {
	/* printable ASCII. "(none)": sessions without a name; "(other)", the last row: what had no
	 * row, and rows that were given up for newer names, with all that they had counted */
	char name[65];
	uint32_t sessions; /* that exist now; 0 for users */
	uint64_t requests; /* answered, without those that keep a lease */
	uint64_t bytes_read, bytes_written;
};
struct sheaf_tally {
	uint32_t size; /* in: sizeof(struct sheaf_tally) */
	uint32_t n; /* rows */
	uint64_t boot; /* changes with every start of the server, which begins with 0 again */
	uint64_t uptime_ns; /* of the server, when it answered */
	struct sheaf_tally_row rows[SHEAF_TALLY_ROWS];
};
/* 0 or -errno, as -ETIMEDOUT. */
SHEAF_API int sheaf_server_tally(struct sheaf *fs, int i, int timeout_ms,
				 enum sheaf_tally_kind kind, struct sheaf_tally *out);

/* The server that last caused this error (EIO, ENOSPC, EDQUOT, EROFS; negative) in a call of this
 * connection: fills id, roles, name and address. -ENOENT: none did. */
SHEAF_API int sheaf_failed_server(struct sheaf *fs, int err, struct sheaf_server *s);

/* A server for which calls of this connection wait. */
struct sheaf_wait {
	char name[32], address[128];
	uint64_t waited_ns; /* the oldest call, so far */
	uint64_t left_ns; /* until it ends with an error */
	int down; /* enum sheaf_down, as far as is known now */
	char why[256];
};
/* Lists the servers for which a call has waited for at least min_ns while nothing came from the
 * server. Sends nothing. Returns the number of rows, at most max. */
SHEAF_API int sheaf_waiting(struct sheaf *fs, uint64_t min_ns, struct sheaf_wait *rows, int max);

/* System calls that this connection has made so far. */
SHEAF_API uint64_t sheaf_calls(struct sheaf *fs);

/* ---- the cluster map, and adding a server; sheaf_why() explains failures ---- */

/* Lists the servers that the metadata servers know, which may be more than the cluster file has:
 * fills id, roles, name, address and incarnation of at most max, and `up` of the metadata servers
 * that answered within timeout_ms. Returns the number of servers, or -errno if none answered. */
SHEAF_API int sheaf_map(struct sheaf *fs, int timeout_ms, struct sheaf_server *s, int max);
/* The metadata server that owns an inode. */
SHEAF_API int sheaf_keeper(struct sheaf *fs, uint64_t ino);
/* Creates the storage directory of server `id` of a cluster file, unless that was done before. */
SHEAF_API int sheaf_server_format(const char *conf, int id);
/* For a server that lost its storage directory, or all objects in it: creates what is missing,
 * empty. 1: that was needed; 0: it was not, or the server runs. */
SHEAF_API int sheaf_server_format_lost(const char *conf, int id);
/* Announces a data server, which must have the next id, to all metadata servers; may be repeated.
 * -ESTALE: the server is known with other storage. */
SHEAF_API int sheaf_server_add(struct sheaf *fs, int id, const char *name, const char *address);
/* Tells all metadata servers to accept this server's current storage: what files had on its earlier
 * storage is lost. The server must be up. */
SHEAF_API int sheaf_server_emptied(struct sheaf *fs, int id);

/* ---- backup and restore of the metadata; sheaf_why() explains failures ---- */

struct sheaf_backup {
	uint32_t size; /* in: sizeof(struct sheaf_backup) */
	uint32_t servers; /* metadata servers in the backup */
	uint64_t bytes; /* size of the file */
	int64_t time; /* ns since 1970: when the backup began */
	uint32_t ids[SHEAF_MAX_SERVERS]; /* of these servers */
};
/* Copies the metadata of all metadata servers into a new file, while they work. */
SHEAF_API int sheaf_backup(struct sheaf *fs, const char *file, struct sheaf_backup *b);
/* Reads a whole backup and verifies it. */
SHEAF_API int sheaf_backup_check(const char *file, struct sheaf_backup *b);
/* Restores the metadata of one server, which must not run. -EEXIST: the metadata changed after the
 * backup; `force` replaces them. */
SHEAF_API int sheaf_restore(const char *conf, const char *file, int id, int force);

/* ---- stored rows and repairs: `sheaf check` ----
 *
 * Scans and repairs need uid 0 (-EPERM). They may run while the file system is in use: a page of
 * rows is one consistent view of one server, two pages are two views. */

#define SHEAF_SCAN_MAX 512 /* rows per page */
#define SHEAF_SCAN_KEY 264
#define SHEAF_MAX_TARGETS 256

enum sheaf_scan_kind {
	SHEAF_SCAN_INODE = 1,
	SHEAF_SCAN_ENTRY = 2, /* of directories, by name */
	SHEAF_SCAN_INDEX = 3, /* of directories, by cookie */
	SHEAF_SCAN_UNSETTLED = 4, /* files whose objects must be asked for the size */
	SHEAF_SCAN_REMOVE = 5, /* files without a name whose objects are to be removed */
	SHEAF_SCAN_TRUNCATE = 6, /* truncates under way */
	SHEAF_SCAN_SYMLINK = 7,
	SHEAF_SCAN_XATTR = 8,
	SHEAF_SCAN_NEXT = 9, /* one row: ino is the next number to be assigned */
	SHEAF_SCAN_OBJECT = 10, /* from data servers; all others are from metadata servers */
	SHEAF_SCAN_PREPARED = 11, /* parts of changes over several servers */
	SHEAF_SCAN_LOCK = 12, /* inodes and entries locked by such parts */
};

/* Extended attributes that the inode's own row records. */
#define SHEAF_HAS_ACL 1
#define SHEAF_HAS_DEFAULT_ACL 2
#define SHEAF_HAS_CAPABILITY 4

#define SHEAF_OBJECT_OLD UINT32_MAX /* an object file of storage format 1 */

/* How a file is striped over servers. */
struct sheaf_stripes {
	uint32_t version, type, unit, start, obj_gen, redundancy;
	uint32_t n_targets, targets[SHEAF_MAX_TARGETS];
};

struct sheaf_row {
	struct sheaf_handle h; /* the inode or directory of the row; generation as stored in it */
	/* entry, index: the inode that it names. directory: its parent. prepared: the directory */
	struct sheaf_handle to;
	/* entry, index: cookie. directory: next cookie. remove, object: generation. prepared, lock:
	 * which change */
	uint64_t second;
	/* directory: entries. symlink, xattr: bytes. object: its end. prepared: inode replaced */
	uint64_t size;
	uint64_t epoch; /* object: the floor; accesses with lower epochs are refused */
	uint64_t change; /* inode: grows with every change of it */
	/* entry, index: the type. xattr: the permissions that an access ACL implies */
	uint32_t mode, nlink;
	uint32_t has; /* inode: SHEAF_HAS_ bits. xattr: its own bit, or 0 */
	int bad; /* the row is unreadable: only the key and perhaps h.ino are set */
	uint32_t name_len, key_len;
	char name[256]; /* of entry, index, xattr, prepared, lock; NUL-terminated */
	uint8_t key[SHEAF_SCAN_KEY]; /* where the row is stored */
	struct sheaf_stripes stripes; /* of files */
	uint32_t index; /* object: its index in the file; SHEAF_OBJECT_OLD: its name has none */
	/* files: recorded end of each object, in the order of stripes.targets; 0: not recorded. An
	 * object that ends before it has lost data */
	uint64_t ends[SHEAF_MAX_TARGETS];
};

/* The position of a scan; all zero is the beginning. */
struct sheaf_scan {
	uint64_t only; /* only rows of this inode or directory; 0: all */
	int end; /* no rows are left */
	uint64_t total; /* approximate number of rows of this kind; 0: not known */
	uint32_t key_len;
	uint8_t key[SHEAF_SCAN_KEY];
};
/* The next rows of a kind at server i: returns how many (at most max), 0 at the end, or -errno. */
SHEAF_API int sheaf_scan(struct sheaf *fs, int i, enum sheaf_scan_kind kind, struct sheaf_scan *s,
			 struct sheaf_row *rows, int max);
/* The metadata server that owns an inode. */
SHEAF_API int sheaf_server_of(struct sheaf *fs, uint64_t ino);

/* The default striping of a file with this inode; unit and width 0: the default. */
SHEAF_API void sheaf_default_stripes(struct sheaf *fs, uint64_t ino, uint32_t unit, uint32_t width,
				     struct sheaf_stripes *out);
/* The least size of a file whose object on this server ends at `end`; UINT64_MAX: no object. */
SHEAF_API uint64_t sheaf_stripes_end(const struct sheaf_stripes *s, uint32_t server, uint64_t end);

enum sheaf_repair_kind {
	SHEAF_REPAIR_ENTRY_SET = 1, /* dir, name: names h, of type mode; new, or of h before */
	SHEAF_REPAIR_ENTRY_DROP = 2, /* dir, name, h; the inode stays */
	SHEAF_REPAIR_DIRECTORY = 3, /* h: rebuilds index, counts and cookies from the entries */
	SHEAF_REPAIR_NLINK = 4, /* h, value; NLINK to TEXT, and ACL: only if `change` matches */
	SHEAF_REPAIR_PARENT = 5, /* h, dir */
	SHEAF_REPAIR_EPOCH = 6, /* h, value */
	SHEAF_REPAIR_LAYOUT = 7, /* h, stripes */
	SHEAF_REPAIR_TEXT = 8, /* h: a symbolic link gets a text; its size is the text's length */
	SHEAF_REPAIR_MAKE = 9, /* h, mode, dir: parent, stripes, value: epoch; a new inode */
	SHEAF_REPAIR_ROW_DROP = 10, /* value: kind of row; key: a row that refers to nothing */
	SHEAF_REPAIR_UNSETTLE = 11, /* h: its size is determined from its objects */
	SHEAF_REPAIR_NEXT = 12, /* h.ino: numbers up to it are in use */
	SHEAF_REPAIR_ACL = 13, /* h: permissions from its ACL; an unreadable one is removed */
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
/* One transaction at server i. -EAGAIN: what it is based on has changed; nothing was done. */
SHEAF_API int sheaf_repair(struct sheaf *fs, int i, const struct sheaf_repair *r);

/* ---- how data travel: `sheaf explain`; any user may see it ---- */

/* How data travel: inside the message, packed into one buffer, or directly from and into the
 * caller's pieces. The cheapest on this machine is chosen for each transfer, unless one is forced
 * for all later transfers, here or by $SHEAF_MOVER. */
enum sheaf_mover {
	SHEAF_MOVER_AUTO = 0,
	SHEAF_MOVER_INLINE = 1, /* in as many requests as needed */
	SHEAF_MOVER_PACK = 2,
	SHEAF_MOVER_GATHER = 3,
	/* A server with RDMA invites the client to write what it sends into the server's buffers;
	 * all else is as with gather. Without being forced, servers decide this. */
	SHEAF_MOVER_DRIVEN = 4,
};
#define SHEAF_MOVERS 4 /* that sheaf_account counts */
#define SHEAF_ALL_MOVERS 5
SHEAF_API int sheaf_set_mover(struct sheaf *fs, enum sheaf_mover how);
SHEAF_API const char *sheaf_mover_name(enum sheaf_mover how); /* e.g. "pack"; NULL: unknown */
/* Estimated nanoseconds that a client takes to move `bytes` in `segments` pieces, without the round
 * trip; the choice is based on this. Auto: those of the cheapest. */
SHEAF_API double sheaf_mover_cost(struct sheaf *fs, enum sheaf_mover how, int write,
				  uint64_t segments, uint64_t bytes);
/* The same for the link to server i. */
SHEAF_API double sheaf_mover_cost_at(struct sheaf *fs, int i, enum sheaf_mover how, int write,
				     uint64_t segments, uint64_t bytes);
/* What the movers cost on the link to server i, in ns: of a system call, a byte through the link, a
 * copied byte, a segment, the round trip if it is a distant server (else 0); of network cards, 0
 * over other media: of a work request, a registration of memory, and each page of it. */
struct sheaf_link_costs {
	size_t size; /* of this struct; set by the caller */
	const char *route; /* as sheaf_account.medium */
	double call, byte, copy, gather, scatter, pack, unpack, far;
	double work_request, registration, page;
};
SHEAF_API int sheaf_link_costs(struct sheaf *fs, int i, struct sheaf_link_costs *out);
/* What this connection has done at server i so far. */
struct sheaf_account {
	uint64_t requests;
	uint64_t frames; /* messages and pieces of bulk data, in both directions */
	uint64_t sent; /* bytes of messages: requests with inline data, without bulk data */
	uint64_t calls; /* system calls on the connection's socket */
	uint64_t bytes[SHEAF_MOVERS]; /* of data, by mover; driven by the client counts as gather */
	uint64_t copied; /* bytes copied in user space; a byte copied twice counts twice */
	uint64_t round_ns; /* the shortest round trip; 0: none yet */
	uint64_t busy_ns; /* time with requests under way there */
	/* "unix" (same host), "tcp", "loop" (same process); NULL: no link, and none begun */
	const char *medium;
};
SHEAF_API int sheaf_account(struct sheaf *fs, int i, struct sheaf_account *out);

/* An access as of sheaf_read_list() or, if file_type is set, of sheaf_read_typed(). */
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
/* The share of one object in an access. */
struct sheaf_share {
	uint64_t bytes;
	uint64_t extents; /* of the object; adjacent ones count as one */
	uint64_t segments; /* of memory; likewise */
	uint64_t requests;
	enum sheaf_mover mover; /* of its bytes */
};
struct sheaf_plan {
	uint64_t bytes, begin, end; /* number of bytes, and their range in the file */
	struct sheaf_share shares[SHEAF_MAX_TARGETS]; /* in the order of the stripes' targets */
};
/* How an access to a file with these stripes would be cut with this mover, computed by the code
 * that does it. Nothing is sent and no memory is touched, so the memory need not exist. touch,
 * unless NULL, is called for all extents of each object. -E2BIG: too many pieces to visit. */
typedef void (*sheaf_touch)(void *arg, uint32_t object, const struct sheaf_extent *ext, size_t n);
SHEAF_API int sheaf_plan(struct sheaf *fs, const struct sheaf_stripes *where, enum sheaf_mover how,
			 const struct sheaf_access *a, sheaf_touch touch, void *arg,
			 struct sheaf_plan *out);

/* ---- registration of memory, as network cards need it: for benchmarks ---- */

struct sheaf_registration;
struct sheaf_registered;
struct sheaf_registration_counts {
	uint64_t registrations, failed, deregistrations;
	uint64_t hits; /* pieces that were registered before */
	uint64_t invalidations; /* regions that were dropped because their memory changed */
	uint64_t pinned_bytes, limit_bytes;
	double page_ns, call_ns; /* measured: of a page, and of a call beside its pages */
	const char *why_not; /* why nothing is cached; NULL: it is */
};
/* Registers memory as fixed buffers of an io_uring, which pins it as a network card does. cached:
 * regions stay registered for later calls. -ENOSYS, -EPERM: there is no io_uring. */
SHEAF_API int sheaf_registration_open(int cached, struct sheaf_registration **out);
SHEAF_API void sheaf_registration_close(struct sheaf_registration *r);
/* Pieces that are close together are registered as one region. -EFAULT: a piece is not mapped or
 * not writable; -ENOBUFS: the limit of locked memory. */
SHEAF_API int sheaf_registration_acquire(struct sheaf_registration *r, const struct iovec *pieces,
					 size_t n, struct sheaf_registered **out);
SHEAF_API void sheaf_registration_release(struct sheaf_registration *r, struct sheaf_registered *u);
SHEAF_API void sheaf_registration_counts(struct sheaf_registration *r,
					 struct sheaf_registration_counts *out);

#ifdef __cplusplus
}
#endif
#endif
