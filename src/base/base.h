/* base: used by every other folder: lists, hash tables, arenas, bytes, log, conf, metrics.
 *
 * Nothing here does I/O except log, conf and mounts. Nothing here is thread-safe unless stated. */
#ifndef SHEAF_BASE_H
#define SHEAF_BASE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <ucontext.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define KIB ((size_t)1024)
#define MIB (KIB * KIB)
#define LEAST_PAGE 4096 /* the smallest page size; others are multiples of it */
#define GIB (UINT64_C(1) << 30)
#define NSEC_PER_SEC UINT64_C(1000000000)
#define NSEC_PER_MSEC UINT64_C(1000000)

/* A range of a file or of an object. */
struct extent {
	uint64_t offset, length;
};

/* ---- intrusive doubly linked list; a struct list is a head or a member ---- */
struct list {
	struct list *prev, *next;
};

/* clang-format off */
#define LIST_INIT(name) { &(name), &(name) }
/* clang-format on */

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_before(struct list *at, struct list *item)
{
	item->prev = at->prev;
	item->next = at;
	at->prev->next = item;
	at->prev = item;
}

static inline void list_push(struct list *head, struct list *item) /* at the tail */
{
	list_insert_before(head, item);
}

static inline void list_push_front(struct list *head, struct list *item)
{
	list_insert_before(head->next, item);
}

/* Leaves the item as an empty list, so deleting it twice is safe. */
static inline void list_del(struct list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	list_init(item);
}

static inline struct list *list_pop(struct list *head) /* from the front, or NULL */
{
	struct list *l = head->next;

	if (l == head)
		return NULL;
	list_del(l);
	return l;
}

/* Moves all items of `from` to the tail of `to`. */
static inline void list_splice(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first(head, type, member) \
	(list_empty(head) ? NULL : container_of((head)->next, type, member))
#define list_for_each(it, head, member) \
	for (it = container_of((head)->next, __typeof__(*it), member); &it->member != (head); \
	     it = container_of(it->member.next, __typeof__(*it), member))
/* `tmp` is a second iterator; the current item may be deleted or freed */
#define list_for_each_safe(it, tmp, head, member) \
	for (it = container_of((head)->next, __typeof__(*it), member), \
	    tmp = container_of(it->member.next, __typeof__(*it), member); \
	     &it->member != (head); \
	     it = tmp, tmp = container_of(it->member.next, __typeof__(*it), member))

/* ---- hash table of intrusive nodes, by a 64-bit hash; the caller compares the keys ----
 * Grows by doubling. Iteration order depends on keys and history only, never on addresses. */
struct hnode {
	struct hnode *next;
	uint64_t hash;
};

struct htab {
	struct hnode **slots;
	size_t n_slots, count;
};

int htab_init(struct htab *t); /* 0 or -ENOMEM */
void htab_destroy(struct htab *t); /* the nodes belong to the caller */
/* 0 or -ENOMEM (table unchanged) */
int htab_insert(struct htab *t, struct hnode *n, uint64_t hash);
void htab_remove(struct htab *t, struct hnode *n);
/* First node with this hash, and the next one after `n` with the same hash; or NULL. */
struct hnode *htab_first(const struct htab *t, uint64_t hash);
struct hnode *htab_next(const struct hnode *n);
/* Walks in any order; `fn` may remove and free the node it is given, no other. */
void htab_walk(struct htab *t, void (*fn)(struct hnode *n, void *arg), void *arg);

uint64_t hash_u64(uint64_t x); /* a good mixer */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);

/* Shows that the parts of a storage directory belong together (disk/storage_id.c): all have the
 * same incarnation, and a count of starts equal to that of sheaf.id or one higher. */
struct stamp {
	uint64_t incarnation, count;
};
/* `what` names the part in `err`. 0 or -EUCLEAN. */
int stamp_check(const struct stamp *id, const struct stamp *part, const char *what, char *err,
		size_t n);

/* An object: holds the stripes of one file on one target. */
struct object_id {
	uint64_t ino;
	uint32_t gen, index; /* object generation; index in the layout */
};

/* The file of an object, relative to objects/ of its target: "XX/INO.GEN.INDEX". */
#define OBJECT_DIRS 256
#define OBJECT_NAME 32
#define OBJECT_PATH (OBJECT_NAME + 3)
unsigned object_dir_index(uint64_t ino); /* XX */
void object_name(char out[OBJECT_NAME], const struct object_id *id);
void object_old_name(char out[OBJECT_NAME],
		     const struct object_id *id); /* INO.GEN: storage format 1 */
void object_path(char out[OBJECT_PATH], const struct object_id *id);

/* ---- byte ranges held by owners (locks): a list by start, without overlaps of one owner ---- */
struct range {
	struct list link;
	uint64_t start, last; /* both included */
	uint64_t session, owner; /* together: the owner */
	uint64_t open; /* the open file it was taken through */
	bool exclusive;
	uint32_t pid;
};
bool range_same_owner(const struct range *a, const struct range *b);
bool range_overlaps(const struct range *a, const struct range *b);
bool range_conflicts(const struct range *a, const struct range *b); /* of different owners */
/* The owner holds `want` in place of what it held there; release: holds nothing there. 0, or
 * -ENOMEM with nothing changed. *grown: by how many ranges the set grew. */
int ranges_hold(struct list *set, const struct range *want, int *grown);
int ranges_release(struct list *set, const struct range *want, int *grown);
/* The first range there of this owner, or that conflicts with it; or NULL. */
const struct range *ranges_own(const struct list *set, const struct range *want);
const struct range *ranges_conflict(const struct list *set, const struct range *want);
size_t ranges_drop(struct list *set, uint64_t session, uint64_t open); /* number dropped */
void ranges_free(struct list *set);

/* ---- arena: bump allocation, freed at once; keeps its first block when reset ---- */
struct arena_block;
struct arena {
	struct arena_block *blocks;
	size_t limit; /* most bytes it may hold; 0: no limit */
	size_t held;
	bool (*may_grow)(struct arena *a, size_t bytes); /* called before each new block, or NULL */
};

void arena_init(struct arena *a, size_t limit);
void *arena_alloc(struct arena *a, size_t n); /* zeroed, 16-aligned; NULL: limit or out of memory */
char *arena_strndup(struct arena *a, const char *s, size_t n);
void arena_reset(struct arena *a); /* frees all but one small block */
void arena_destroy(struct arena *a);

/* ---- bytes ---- */
/* Start with 0; uses the CPU's instruction if it has one. */
uint32_t crc32c(uint32_t crc, const void *p, size_t n);
void hex_encode(char *out /* 2n+1 */, const void *p, size_t n);
int hex_decode(void *out, size_t n, const char *hex); /* exactly 2n digits, or -EINVAL */
int parse_size(const char *s, uint64_t *out); /* "64K", "1MiB", "4096"; -EINVAL, -ERANGE */
void format_size(char *out, size_t n, uint64_t bytes); /* "1.5 GiB" */

/* Copies between flat memory and a caller's pieces, in order. After pieces_guard(): 0, or -EFAULT
 * if a piece is not mapped (others may have been copied). */
struct iovec;
void pieces_guard(void); /* once per process; may be called again */
int pieces_pack(void *flat, const struct iovec *iov, size_t n);
int pieces_unpack(const struct iovec *iov, size_t n, const void *flat);
int pieces_zero(const struct iovec *iov, size_t n);
int pieces_touch(const struct iovec *iov, size_t n); /* are all readable? */

struct uuid {
	uint8_t b[16];
};
#define UUID_TEXT 37
void uuid_format(char out[UUID_TEXT], const struct uuid *u);
int uuid_parse(struct uuid *u, const char *s);

/* ---- labels: names that clients choose, in tables and metrics ---- */
/* Makes it printable ASCII; a '(' at the beginning, as names of the server's own have, and all
 * other characters become '_'. */
void label_clean(char *text);
#define JOB_MAX 64
/* A label of the batch job that this process belongs to: SHEAF_JOB, also if it is empty, else the
 * variables of Slurm, PBS, LSF or Grid Engine; "": none. */
void job_of_process(char out[JOB_MAX]);

/* ---- log: one line each, "time level component [trace] text", to stderr or a file ----
 * Thread-safe. `trace` 0: not printed. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_open(const char *path /* NULL: stderr */, enum log_level max);
void log_reopen(void);
void log_set_level(enum log_level max);
void log_at(enum log_level lv, const char *component, uint64_t trace, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
#define log_error(c, ...) log_at(LOG_ERROR, c, 0, __VA_ARGS__)
#define log_warn(c, ...) log_at(LOG_WARN, c, 0, __VA_ARGS__)
#define log_info(c, ...) log_at(LOG_INFO, c, 0, __VA_ARGS__)
#define log_debug(c, ...) log_at(LOG_DEBUG, c, 0, __VA_ARGS__)

/* What an errno means in this file system, for messages ("no space left on a storage server"). */
const char *error_text(int err /* positive or negative errno */);
/* Writes an explanation to err and returns rc. */
int error_explain(char *err, size_t err_len, int rc, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* ---- log-linear histogram of nanoseconds: 16 sub-buckets per octave, about 6 % wide ---- */
#define HIST_BUCKETS 704
struct hist {
	uint64_t count, sum, max;
	uint32_t buckets[HIST_BUCKETS];
};
void hist_add(struct hist *h, uint64_t ns);
uint64_t hist_below(const struct hist *h,
		    uint64_t ns); /* values in buckets that end at or before ns */
uint64_t hist_quantile(const struct hist *h, double q); /* upper edge of the bucket */

/* ---- origins of connections ---- */
/* An IPv6 address; IPv4 is mapped (::ffff:a.b.c.d). */
struct origin {
	uint8_t addr[16];
	bool local; /* from this host, or within the process */
};
#define ORIGIN_TEXT 48
void origin_format(char out[ORIGIN_TEXT], const struct origin *o); /* "192.0.2.7", "this host" */

struct ip_net {
	uint8_t addr[16];
	uint8_t bits; /* significant bits of addr */
};
/* "192.0.2.0/24", "2001:db8::/32", or one address. -EINVAL, also if an insignificant bit is set. */
int ip_net_parse(struct ip_net *n, const char *text);
bool ip_net_holds(const struct ip_net *n, const struct origin *o);

/* ---- the cluster file ---- */
#define CONF_MAX_TARGETS 256
#define CONF_MAX_KEYS 1024
#define CONF_MAX_NETS 16
#define CONF_NAME_MAX 32
#define CONF_KEY_GIDS 15 /* as many as fit into a line of the file */
#define KEY_BYTES 32
#define NOBODY 65534 /* uid and gid of squashed and unnamed users */
#define CONF_ADDR_MAX 128
#define CONF_PATH_MAX 1024
enum { ROLE_META = 1, ROLE_DATA = 2 };
#define CONF_MAX_BANK 64 /* daemons */

struct conf_target {
	uint32_t id; /* its index in the file: [server.ID] */
	unsigned roles;
	char name[CONF_NAME_MAX]; /* "server0" */
	char address[CONF_ADDR_MAX]; /* HOST:PORT */
	char metrics[CONF_ADDR_MAX]; /* HOST:PORT of its metrics, or "" */
	char storage[CONF_PATH_MAX]; /* absolute */
};

/* The users that a client key may act for. */
struct key_role {
	bool any; /* all users; else: */
	uint32_t uid, n_gids;
	uint32_t gids[CONF_KEY_GIDS];
};

/* [key.NAME]: a client key. That of [cluster] has no name and may act for all users. */
struct client_key {
	char name[CONF_NAME_MAX];
	char file[CONF_PATH_MAX];
	struct key_role role;
	bool loaded; /* the secret is loaded */
	uint8_t secret[KEY_BYTES];
};

/* [rdma]: how servers and clients use network cards with RDMA. */
struct conf_rdma {
	char device[CONF_NAME_MAX]; /* "": the first one with an active port; "none" */
	uint32_t port; /* 0: the first active one */
	uint32_t gid_index; /* CONF_AUTO: RoCE v2 with an IPv4 address, then IPv6 */
	uint32_t traffic_class, service_level;
	uint32_t pkey; /* 0: the default key of the port */
	bool never_driven; /* clients do not write into memory of servers */
	uint64_t pinned_max; /* bytes that a client registers of its user; 0: as the host permits */
};
#define CONF_AUTO UINT32_MAX

/* [bank]: memcached daemons between clients and servers. */
struct conf_bank {
	uint32_t n_servers; /* 0: there is no bank */
	char servers[CONF_MAX_BANK][CONF_ADDR_MAX]; /* HOST:PORT */
	char key_file[CONF_PATH_MAX];
	uint32_t block; /* bytes of a file in one entry, a power of two */
	uint32_t timeout_ms; /* for one conversation with a daemon */
	bool modulo; /* of the hash decides which daemon has an entry; else consistent hashing */
	bool unsealed; /* values are not encrypted */
	bool data; /* blocks of files are in it */
	bool server_fills; /* metadata servers read files into it that were written */
	uint32_t attributes; /* seconds for which attributes are used; 0: they are not in it */
};

/* [nfs]: the NFS gateways. */
struct conf_nfs {
	char address[CONF_ADDR_MAX]; /* HOST:PORT */
	char metrics[CONF_ADDR_MAX]; /* HOST:PORT of its metrics, or "" */
	uint64_t memory; /* for buffers of calls, default 64 MiB */
};

/* [export.NAME]: what NFS clients may mount. */
enum conf_squash { SQUASH_ROOT, SQUASH_ALL, SQUASH_NONE };
struct conf_export {
	char name[CONF_NAME_MAX];
	char path[CONF_PATH_MAX]; /* in the file system */
	uint32_t n_nets; /* 0: every client */
	struct ip_net nets[CONF_MAX_NETS];
	bool ro;
	enum conf_squash squash;
	uint32_t anon_uid, anon_gid; /* of squashed users */
	bool insecure; /* clients may use ports from 1024 on */
	bool manage_gids; /* groups are looked up on the gateway's host */
};
#define CONF_MAX_EXPORTS 256

struct conf {
	char path[CONF_PATH_MAX]; /* of the file itself, absolute */
	struct uuid fs_id;
	char key_file[CONF_PATH_MAX], server_key_file[CONF_PATH_MAX];
	uint32_t stripe_unit, width; /* width 0: all data targets */
	uint32_t timeout_s, lease_s; /* defaults 30 */
	uint64_t pool_bytes; /* per server, default 64 MiB */
	bool nosync; /* storage mode: fsync does not reach the disk */
	bool never_sieve; /* servers access every piece of a request separately */
	struct conf_rdma rdma;
	uint32_t n_targets;
	struct conf_target *targets; /* sorted by id, ids dense from 0 */
	uint32_t n_keys;
	struct client_key *keys;
	struct conf_bank bank;
	struct conf_nfs nfs;
	uint32_t n_exports;
	struct conf_export *exports;
	/* networks whose root is trusted, and networks whose root is always squashed */
	uint32_t n_trust, n_squash;
	struct ip_net trust[CONF_MAX_NETS], squash[CONF_MAX_NETS];
};

/* On failure `err` names the file, the line, the fault and a correct value. */
int conf_load(const char *path, struct conf **out, char *err, size_t err_len);
/* Parses text as if it were the file `path` (which need not exist); used by fuzzing. */
int conf_parse(const char *text, size_t len, const char *path, struct conf **out, char *err,
	       size_t err_len);
void conf_free(struct conf *c);
/* Appends text to the file that *c was loaded from, atomically for readers, and loads it again. On
 * -errno *c and the file are unchanged (also if the result would not parse). */
int conf_append(struct conf **c, const char *more, char *err, size_t err_len);
/* The first that exists of --conf, $SHEAF_CONF, ./sheaf.conf, /etc/sheaf/sheaf.conf, in `out`.
 * "local:DIR" is returned unchanged. -ENOENT with an explanation in `err`. */
int conf_find(const char *given, char *out, size_t n, char *err, size_t err_len);
/* True: root from there is mapped to NOBODY. `squash` decides first, then `trust`; else it is,
 * unless it comes from this host. */
bool conf_squashes(const struct conf *c, const struct origin *from);
const struct client_key *conf_key_find(const struct conf *c, const char *name); /* or NULL */

/* ---- keys: 32 random bytes as hex in a 0600 file; `err` names the file and the remedy ---- */
int key_load(const char *path, uint8_t key[KEY_BYTES], char *err, size_t err_len);
int key_create(const char *path, char *err, size_t err_len);
/* For servers: loads the secrets of all named keys into c->keys. */
int keys_load(struct conf *c, char *err, size_t err_len);
/* For clients, chooses the key: $SHEAF_KEY, else the default key, else the first named key that is
 * readable. `name` is "" for the default key. */
int key_choose(const struct conf *c, char name[CONF_NAME_MAX], uint8_t key[KEY_BYTES], char *err,
	       size_t err_len);
/* May the key act for this user? Removes gids that the key lacks. NOBODY is always allowed. */
bool key_allows(const struct key_role *r, uint32_t uid, uint32_t gid, uint32_t *gids,
		uint32_t *n_gids);

/* ---- this process ---- */
uint64_t time_now(void); /* monotonic ns */
void raise_file_limit(void); /* of descriptors, to the hard limit */
uint64_t file_limit(void); /* current limit of descriptors */
/* Reads n bytes, or less at the end of the file: their number or -errno. */
ssize_t read_to_end(int fd, void *buf, size_t n);
bool is_on_tmpfs(int fd, const char *path); /* tmpfs or ramfs; path NULL: the open file fd */

/* ---- Sheaf mounts of this host ---- */
#define MOUNT_DEV 32
/* The device of the Sheaf file system mounted at dir, as the kernel writes it ("0:52"); -ENOENT.
 * dir is absolute and without symbolic links. */
int mount_find(const char *dir, char dev[MOUNT_DEV]);
/* Is this path, absolute and without symbolic links, on a Sheaf mount? Then the directory of the
 * mount, and its cluster file. Both have PATH_MAX bytes. */
bool mount_of_path(const char *path, char *dir, char *source);
/* The abstract address of the mount's daemon, and a new socket for it; or -errno. */
struct sockaddr_un;
int mount_control(const char *dir, struct sockaddr_un *a, unsigned *len);
/* The abstract address of the NFS gateway that serves `address`: its length. */
unsigned nfs_control_address(const char *address, struct sockaddr_un *a);
/* A connection to the mount's daemon, with a receive timeout, and its uid; or -errno. */
int mount_reach(const char *dir, unsigned seconds, uid_t *who);
/* Unmounts dir, if `lazy` also while it is in use. Runs fusermount3 (which prints errors unless
 * `quiet`) if this process lacks the privilege. */
int mount_remove(const char *dir, bool lazy, bool quiet);

/* ---- fibers: stacks that one thread switches between; code on a fiber may pause in the middle of
 * a call ---- */
struct fiber {
	ucontext_t context; /* where it starts */
	sigjmp_buf here; /* where it continues */
	bool begun;
	void *stack; /* NULL: the thread's own */
	size_t size;
	void (*run)(void *arg);
	void *arg;
	void *sanitizer; /* state for the sanitizers */
};

/* The running thread as a fiber, with the thread's own stack. */
void fiber_of_thread(struct fiber *f);
/* A fiber that calls run(arg) when it is first switched to; run must not return. 0, or -ENOMEM. */
int fiber_init(struct fiber *f, size_t stack, void (*run)(void *arg), void *arg);
void fiber_fini(struct fiber *f); /* not the running one; also after fiber_init() failed */
/* Returns when another fiber switches to `from`. One thread at a time may use a group of fibers. */
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
