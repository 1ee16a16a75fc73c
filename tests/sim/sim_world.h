/* Shared by the files of the simulation proper: a cluster of targets and clients on simulated
 * nodes, a model of what they must do, and the operations that the clients try.
 *
 * One thread, one seed at a time. Nothing here is ordered by addresses or by real time. */
#ifndef SHEAF_SIM_WORLD_H
#define SHEAF_SIM_WORLD_H

#include "client/client.h"
#include "server/server.h"
#include "sim_env.h"
#include "sim_lin.h"

#define FIRST_TARGETS 4 /* the most targets that a run starts with */
#define MAX_TARGETS (FIRST_TARGETS + 1) /* one more may join */
#define MAX_CLIENTS 8 /* in a scenario */
#define SEED_CLIENTS 4 /* the most clients of a seed */
#define N_LANES 3 /* operations that one client has under way at most */
#define N_NAMES 4 /* file names in a directory */
#define NAME_DATA N_NAMES /* in the shared directory: the file that all clients use */
#define NAME_LINK (N_NAMES + 1) /* in every directory: a symbolic link */
#define LINK_TEXT 49 /* size of a path and the slash before it */
#define N_DIRS 4 /* directories of a client: its own, two below that, and the shared one */
#define DIR_SHARED 3
#define N_HANDLES 6
#define SHARED_HANDLE (N_HANDLES - 1)
#define MAX_EXT 12
#define MAX_IOV 24
#define MODEL_PAGE 4096
#define BYTE_VALUES 7
#define RACE_LANES 2 /* operations on contended names that a client has under way at most */
#define DUEL_WRITES 250 /* each write has its own value */
#define DUEL_BYTES 4096
#define DUEL_LANES 3 /* operations that one client has under way through one open file */
#define APPEND_WORDS 400 /* longest append */
#define PATH_STEPS 40 /* changes of a directory that paths lead through */

struct world;
struct actor;
struct op;

/* ---- sim_model.c: the possible contents of a file ---- */

/* The values that a byte may have now are v[0 .. n_now). The values that it may have after a
 * power loss are v[0 .. n), a superset. If n is 0, the byte is zero. */
struct mbyte {
	uint8_t n, n_now;
	uint8_t any : 1; /* more values than fit: not checked until one value is certain */
	uint8_t owed : 1; /* `last` was acknowledged: a successful sync guarantees it */
	uint8_t last;
	uint8_t v[BYTE_VALUES];
	uint32_t seq; /* w->seq of the last change */
};

struct mpage {
	struct hnode node;
	uint64_t index;
	bool dirty; /* a byte of this page is not certain, or is owed */
	struct mbyte b[MODEL_PAGE];
};

struct mfile {
	struct list all;
	uint32_t id;
	/* an operation with lasting effects ended in doubt: contents are not checked */
	bool unchecked;
	bool known; /* h and layout are valid */
	bool damaged; /* a power loss may have taken data: EIO is allowed until it is emptied */
	uint32_t n_busy; /* operations under way on its contents */
	uint32_t n_writing, n_cutting; /* the writes and the truncates among them */
	uint32_t n_looking; /* operations under way that read its size */
	uint32_t cut; /* w->seq of the last truncate */
	uint64_t cut_race_end; /* highest end of the writes that ended during a truncate */
	uint64_t cut_to; /* size that a truncate may have cut the writes under way to */
	uint32_t changed; /* w->seq of the last change of its contents */
	struct sheaf_handle h;
	struct layout layout;
	uint32_t targets[MAX_TARGETS];
	uint32_t mode;
	bool mode_sure;
	uint32_t xattr; /* 0: none; else the number that its value is made from */
	bool xattr_unsure;
	uint64_t size_lo, size_hi; /* bounds of its size now */
	uint64_t size_safe; /* lower bound of its size after a power loss */
	uint64_t owed_end[MAX_CLIENTS + 1];
	uint64_t wrote_end[MAX_CLIENTS +
			   1]; /* end that a sync or close records, even if the data were lost */
	struct htab pages;
	uint64_t block; /* shared file: block k belongs to client k mod n_owners */
	uint32_t n_owners;
};

struct mfile *model_file(struct world *w);
void model_free(struct world *w);
uint8_t model_value(uint32_t op, uint64_t off);
bool model_zeroes(uint32_t op); /* does this operation write zeros? */
void model_write_begin(struct op *op);
void model_write_end(struct op *op, bool acknowledged);
void model_copy_begin(struct op *op);
void model_copy_end(struct op *op, bool acknowledged, uint64_t count);
void model_read_end(struct op *op, uint64_t count);
/* Returns the first byte in lo .. hi that is certainly not zero, or UINT64_MAX. */
uint64_t model_data(struct mfile *f, uint64_t lo, uint64_t hi);
uint32_t model_target(const struct mfile *f, uint64_t page); /* the target of a page */
void model_synced(struct op *op);
/* an error was reported: no data are owed to this client any more */
void model_forgiven(struct mfile *f, const struct actor *a);
void model_opened(struct op *op);
void model_closed(struct op *op);
void model_truncated(struct op *op, uint64_t size);
uint64_t model_end(const struct mfile *f); /* end of everything ever written */
void model_power_loss(struct world *w, uint32_t target);
void model_size_seen(struct op *op, uint64_t size);

/* ---- sim_ops.c, sim_judge.c: one operation ---- */

enum do_kind {
	DO_OPEN,
	DO_CLOSE,
	DO_READ,
	DO_WRITE,
	DO_FSYNC,
	DO_TRUNCATE,
	DO_STAT,
	DO_FSTAT,
	DO_UNLINK,
	DO_RENAME,
	DO_MKDIR,
	DO_RMDIR,
	DO_READDIR,
	DO_CHMOD,
	DO_UTIMENS,
	DO_LINK, /* dir, name: the new name; f: the file */
	DO_SYMLINK, /* dir: its directory; dir2, name2: the name that it points to */
	DO_READLINK,
	DO_SETXATTR,
	DO_GETXATTR,
	DO_REMOVEXATTR,
	DO_COPY, /* from `from` at offset `at` to the first extent */
	DO_ALLOCATE, /* mode: as in client_allocate() */
	DO_SEEK, /* starts at `at`; flags: look for a hole */
	DO_BYE,
	DO_KINDS
};
extern const char *const do_names[];

struct handle {
	struct cfile *cf; /* NULL: this handle is free */
	struct mfile *f;
	bool busy;
	int flags;
	uint32_t unclean; /* w->n_unclean at the open */
	uint32_t isolations; /* isolations of the client at the open */
};

struct op {
	struct actor *a;
	bool busy;
	bool resolving; /* the outcome is in doubt and is being looked up */
	uint64_t resolve_at; /* when its outcome is looked at next */
	enum do_kind kind;
	uint32_t number;
	int expect; /* result of an operation on names: 0 or -errno */
	int dir, name; /* name -1: the directory itself */
	int dir2, name2;
	int via; /* 1 + the directory whose symbolic link leads to dir, name; 0: no link */
	struct mfile *f;
	struct handle *h;
	struct handle *from; /* copy: the file that it reads */
	struct mfile *source; /* copy: the model of that file */
	uint64_t source_lo; /* copy: lower bound of the source's size since the start */
	uint64_t at;
	int flags;
	uint32_t mode;
	uint64_t size, cookie;
	int64_t mtime;
	uint32_t seen; /* readdir: bit mask of the client's own names */
	bool sure; /* nothing unclean had happened at the start: times are checked */
	char path[48], path2[LINK_TEXT];
	char value[48]; /* value of an extended attribute */
	struct sheaf_layout layout;
	struct extent ext[MAX_EXT];
	struct iovec iov[MAX_IOV];
	size_t n_ext, n_iov;
	uint64_t total;
	uint8_t *mem; /* memory that iov points into, with guards between the pieces */
	size_t mem_len;
	struct typed typed; /* the same access as patterns, which use `types` */
	struct type *types[2];
	uint64_t began, ended; /* start time; time when the outcome became doubtful */
	uint32_t seq;
	uint32_t losses[MAX_TARGETS]; /* power losses of each target at the start */
	uint64_t size_lo;
	int64_t result;
};

struct mdir {
	bool there;
	struct mfile *files[N_NAMES + 1];
	/* 1 + N_NAMES * directory + name of the symbolic link's destination; 0: no link */
	int link;
};

/* ---- sim_locks.c: taking and releasing one lock ---- */

struct locker {
	struct actor *a;
	int step;
	bool busy, resting;
	bool gave_up; /* it cancelled its wait for the lock */
	bool shared; /* it asks for a shared lock: then it only reads */
	bool reads; /* it holds a shared lock, as far as the model knows */
	uint32_t left; /* rounds left */
	uint32_t writes_left; /* writes before it releases the lock */
	struct cfile *f;
	struct iovec mem;
	uint64_t value, read_back; /* value written, value read back */
	uint64_t began; /* start time of the step */
	uint64_t lock_lost; /* time when another client got the lock that this one holds, or 0 */
	uint32_t isolations, unclean; /* counters at the open */
	uint32_t losses; /* power losses of all targets at its write */
};
bool locks_setup(struct world *w);
bool locks_cleanup(struct world *w);
void locker_start(struct actor *a, uint32_t rounds);
bool locker_idle(const struct actor *a);
void locker_died(struct actor *a);
void locker_revived(struct actor *a);

/* An operation on contended names. */
struct race_lane {
	struct actor *a;
	bool busy;
	bool recorded; /* the operation is in the history, as `number` */
	uint32_t number;
	uint64_t began;
	uint32_t starts; /* starts of targets, counted when the operation began */
	char text[12]; /* text of a symbolic link */
	struct lin_op op;
};

/* An operation on contended bytes. */
enum duel_kind { DUEL_OPEN, DUEL_READ, DUEL_WRITE, DUEL_CUT, DUEL_SYNC, DUEL_CLOSE };
struct duel_lane {
	struct duelist *d;
	bool busy;
	bool healed; /* nothing was half written when the operation began */
	enum duel_kind kind;
	uint8_t value; /* number of the write or truncate */
	uint32_t unclean, isolations; /* count when the operation began; count at the open */
	uint64_t began, started; /* w->seq; start time */
	struct iovec iov;
	uint8_t mem[DUEL_BYTES];
};
struct duelist {
	struct actor *a;
	struct cfile *file; /* shared by all its lanes */
	uint32_t left, isolations;
	struct duel_lane lanes[DUEL_LANES];
};

/* An operation on the file that all clients append to. */
enum append_kind { APPEND_OPEN, APPEND_WRITE, APPEND_SYNC, APPEND_CLOSE };
struct append_lane {
	struct appender *p;
	bool busy;
	enum append_kind kind;
	uint32_t rec; /* index in the log of appends */
	uint64_t began, started; /* w->seq; start time */
	struct iovec iov;
	struct extent ext;
	uint64_t mem[APPEND_WORDS];
};
struct appender {
	struct actor *a;
	struct cfile *file;
	bool reopen; /* an operation through this file has failed */
	uint32_t left, isolations;
	struct append_lane lanes[2];
};

/* A lookup through directories that change, or a change of the client's own directory. */
enum path_kind { PATH_LOOK, PATH_CHANGE, PATH_OTHER };
struct walker {
	struct actor *a;
	bool busy;
	enum path_kind kind;
	uint32_t user; /* 0: root */
	uint32_t of, name; /* the client that owns the directory; which of its names */
	uint32_t left;
	int64_t result;
	uint64_t began, started; /* w->seq; start time */
	char path[48], path2[48];
};

struct seen {
	uint64_t ino;
	bool is_dir;
};

/* The client's process has ended and its successor has not started. */
struct takeover {
	bool between;
	struct client *old; /* this client resumes; NULL: another process imports `state` */
	struct wire_bytes state;
	uint64_t ids[N_HANDLES + 3]; /* ids of its open files; 0: none */
	uint32_t tries;
};

/* A client. */
struct actor {
	struct world *w;
	uint32_t id;
	struct sim_node *node;
	struct loop loop;
	struct client *client; /* NULL: dead, or during a takeover */
	bool dead;
	struct takeover takeover;
	struct mdir dirs[N_DIRS];
	struct handle handles[N_HANDLES];
	struct op lanes[N_LANES];
	struct locker locker;
	bool name_busy; /* one operation on names is under way, the most allowed */
	struct mfile *follow; /* the file that the next operations of the table in sim_ops.c use */
	uint32_t follow_at;
	struct mfile *to_truncate; /* the file that is to be truncated during a write */
	uint32_t ops_left;
	uint64_t rest_until;
	uint32_t isolations; /* how often it was cut off for longer than a lease */
	struct race_lane race_lanes[RACE_LANES];
	uint32_t race_left;
	struct duelist duelist;
	struct appender appender;
	struct walker walker;
	uint32_t copies_left;
	struct changed {
		struct handle *h; /* or NULL */
		uint64_t at, len;
	} changed; /* range changed by the last copy or fallocate of sim_copies.c */
	struct seen race_seen[8]; /* the inodes that it met last */
	uint32_t n_race_seen;
};

void actor_connect(struct actor *a); /* makes a new client on the actor's loop */
void op_free(struct op *op);
void op_path(char out[48], const struct actor *a, int dir, int name);
/* The caller has filled in the operation: computes the expected result and starts it. */
void op_begin(struct op *op);
bool op_run(struct op *op); /* starts it and steps the world until it has ended */
void op_judge(struct op *op, struct cop *cop); /* called when it has ended */
void op_abandon(struct op *op); /* its client died */
void op_resolve(struct op *op); /* the next client looks whether it took effect */
void op_extents_whole(struct op *op, uint64_t off, uint64_t len, bool write);
void actor_start(struct actor *a); /* starts its script */
void actor_follow(struct op *op); /* it succeeded: may start further operations on the file */
bool actor_idle(const struct actor *a);
struct op *actor_lane(struct actor *a); /* a free lane, cleared; or NULL */
void op_move(struct op *op, struct cop *c); /* sim_typed.c: reads or writes by lists or types */
/* sim_direct.c: a direct read, and a read through the servers if that fails. False: no direct read
 * is possible. */
bool direct_begin(struct op *op, struct cop *c);

int op_expect(const struct op *op); /* sim_expect.c: 0 or -errno */
bool op_expected(const struct op *op, int64_t result);
bool is_network_error(int64_t e); /* is it a network error? */
bool op_excused(const struct op *op, int64_t e); /* do faults explain this error? */
/* The same for a call without data that its client started at the time `started`. */
bool fault_explains(const struct actor *a, uint64_t started, int64_t e);

/* The time of a call or a change, in w->seq. ended 0: under way, or its outcome is in doubt. */
struct period {
	uint64_t began, ended;
};
/* May the state after `step` have been current during the call? next: the following step, or
 * NULL. */
bool period_allows(const struct period *step, const struct period *next, const struct period *call);

/* ---- sim_race.c: several clients contend for the same names ---- */

struct race {
	uint64_t dirs[2]; /* inodes of the two directories; 0: this run has none */
	struct lin_op *ops; /* the history */
	uint32_t n, cap;
	uint32_t n_doubt; /* operations whose outcome is unknown */
};
void race_setup(struct world *w);
void race_start(struct actor *a);
bool race_idle(const struct actor *a);
void race_abandon(struct actor *a); /* its client died */
void race_judge(struct world *w); /* after all operations have ended */
void race_cleanup(struct world *w);

/* ---- sim_duel.c: several clients contend for the same bytes ---- */

struct duel {
	struct extent ext[MAX_EXT]; /* the pieces that all clients access */
	size_t n_ext, total; /* n_ext 0: this run has no duel */
	struct duel_change {
		uint64_t began, ended; /* ended 0: under way, or never acknowledged */
		uint64_t keep; /* bytes that a truncate leaves, or that a write covers */
	} writes[DUEL_WRITES + 1], cuts[DUEL_WRITES + 1];
	uint32_t n, n_cuts;
	uint32_t healed; /* w->n_unclean at the last complete write */
};
void duel_init(struct actor *a);
void duel_setup(struct world *w);
void duel_start(struct actor *a);
bool duel_idle(const struct actor *a);
void duel_abandon(struct actor *a);
void duel_cleanup(struct world *w);

/* ---- sim_append.c: several clients append to one file ---- */

struct append_log {
	bool on; /* this run has appends */
	struct append_rec {
		uint32_t client, words, n_seen;
		uint32_t losses; /* power losses when it began */
		bool safe; /* covered by an fsync */
		uint64_t began, ended; /* ended 0: not acknowledged */
		uint64_t base; /* offset where it was found */
	} * v;
	uint32_t n, cap;
};
void appends_init(struct actor *a);
void appends_setup(struct world *w);
void appends_start(struct actor *a);
bool appends_idle(const struct actor *a);
void appends_abandon(struct actor *a);
void appends_cleanup(struct world *w); /* judges the file, too */

/* ---- sim_paths.c: paths through directories that change ---- */

struct paths {
	struct sheaf_handle h;
	struct route_step {
		struct period when; /* the time of the change to this state */
		uint32_t name; /* name of the directory in this state */
		bool open; /* users other than root may search it */
	} steps[PATH_STEPS];
	uint32_t n; /* 0: this run has none */
	bool in_doubt; /* the last step may not have happened; no step follows */
};
void paths_setup(struct world *w);
void paths_start(struct actor *a);
bool paths_idle(const struct actor *a);
void paths_abandon(struct actor *a);
void paths_cleanup(struct world *w);

/* ---- sim_copies.c: copies, allocation, holes and seeks ---- */

bool copies_kind(enum do_kind k); /* is it an operation of sim_copies.c? */
void copies_start(struct actor *a);
bool copies_idle(const struct actor *a);
void copies_launch(struct op *op, struct cop *c);
int copies_expect(const struct op *op);
bool copies_excused(const struct op *op); /* is EIO allowed? */
void copies_judge(struct op *op, int64_t result); /* it succeeded, or returned -ENXIO */
/* The operation failed or its client died. Returns true if a server may still be executing it. */
bool copies_failed(struct op *op);

/* ---- sim_acl.c, sim_inherit.c: permissions and access control lists ---- */

enum acl_count {
	ACL_CHANGED,
	ACL_CHANGE_REFUSED,
	ACL_GRANTED,
	ACL_DENIED,
	ACL_BY_USER,
	ACL_BY_NAMED_GROUP,
	ACL_BY_MASK,
	ACL_STICKY,
	ACL_READ_BACK,
	ACL_IN_DOUBT,
	ACL_MADE,
	ACL_INHERITED,
	ACL_BY_OTHER_CLIENT,
	ACL_ELSEWHERE,
	ACL_COUNTS
};
extern const char *const acl_count_names[];
struct acl_play;
void acls_setup(struct world *w);
void acls_start(struct actor *a);
bool acls_idle(const struct actor *a);
void acls_abandon(struct actor *a);
void acls_cleanup(struct world *w);

/* ---- sim_verify.c ---- */
void world_setup(struct world *w);
void world_verify(struct world *w);
void world_cleanup(struct world *w);

/* ---- sim_world.c ---- */

enum fault {
	FAULT_CUT,
	FAULT_PARTITION,
	FAULT_ONE_WAY,
	FAULT_KILL,
	FAULT_POWER,
	FAULT_RECOVERY, /* down again during its recovery */
	FAULT_TORN, /* power loss within a database commit */
	FAULT_SYNCED, /* power loss right after a sync of an object */
	FAULT_STOP,
	FAULT_DISK,
	FAULT_FULL,
	FAULT_META, /* the disk of a database fails or is full */
	FAULT_DEATH,
	FAULT_ISOLATED,
	FAULT_JUMP, /* a wall clock jumps */
	FAULT_DRIFT, /* clocks run at different rates */
	/* A client is replaced by another process. Enabled independently of the other kinds. */
	FAULT_REPLACED,
	/* Kill or power loss between two file operations of a job. Enabled independently, too. */
	FAULT_JOB,
	FAULT_START, /* the same within a start */
	FAULT_HALT, /* the same within a clean stop */
	FAULT_KINDS
};

struct target {
	struct world *w;
	uint32_t id;
	struct sim_node *node;
	struct loop loop;
	struct server *server; /* NULL: down */
	bool stopping;
	enum fault crash_kind; /* FAULT_JOB; or the start or stop under way */
	bool lost_power; /* the last fault within a job, commit, start or stop was a power loss */
	uint32_t losses; /* power losses */
	uint64_t last_loss;
	char meta_dir[128];
};

extern const char *const fault_names[];

struct counters { /* only sums: the counters of runs are added */
	uint64_t ops, events, network_errors, unchecked, locks, lock_lost, faults[FAULT_KINDS];
	uint64_t race_ops, races, race_unchecked, duels, resent;
	uint64_t duel_overlaps, duel_cut_reads, refused, appends, append_files;
	uint64_t evicted, compacted, reclaim_cuts, pair_cuts, shared_locks, punched, paths,
		paths_moved;
	uint64_t copies, copies_far, copies_within, copies_refused, copies_short, copies_crash;
	uint64_t rooms, rooms_longer, rooms_kept, holes, holes_behind, zeros, zeros_longer;
	uint64_t seeks_data, seeks_hole, seeks_end, seeks_none, copies_failed;
	uint64_t acl[ACL_COUNTS];
	uint64_t joins, joins_again, joins_partial, join_admins, join_formats, join_downs,
		join_publishers, join_commits, join_files, join_learned;
	uint64_t injected[SIM_INJECTED];
};

/* The time of partitions between two nodes that overlap or directly follow each other. */
struct outage {
	uint64_t began, end;
};

/* ---- sim_join.c: a further target joins, as with `sheaf add-server` ---- */

struct join {
	bool on; /* this run has a join */
	/* the target and the metadata servers it is published to go down at every step */
	bool crashes;
	bool started, over;
	uint32_t id; /* id of the joining target */
	int step;
	uint32_t meta; /* the metadata server that is being asked or told */
	uint32_t tries;
	uint64_t incarnation; /* as the target last reported it; 0: no answer yet */
	struct conf older; /* the cluster file without the joining target */
	bool newer[MAX_TARGETS]; /* this target uses the newer cluster file from now on */
	struct sim_node *node; /* node of the command */
	struct loop loop;
	struct client *client; /* NULL: the command is not running */
	bool acked[MAX_TARGETS]; /* this metadata server has the target in its map */
	uint64_t published[MAX_TARGETS]; /* the incarnation in that map; 0: none */
	uint32_t version[MAX_TARGETS]; /* highest map version seen of each server */
	uint32_t n_known[MAX_TARGETS]; /* targets in each server's map at the last look */
};
void join_choose(struct world *w);
void join_start(struct world *w);
bool join_idle(const struct world *w); /* the join is over, or this run has none */
/* Returns the cluster file that a target starts with now (MAX_TARGETS or more: a client). */
const struct conf *join_file(struct world *w, uint32_t target);
/* Checks the map of a running target: before it goes down and after it has started. */
void join_look(const struct target *t);
void join_check(struct world *w); /* at the end of the run */
/* counts files that use the joined target */
void join_opened(struct world *w, const struct mfile *f);
void join_fini(struct world *w);

struct world {
	struct sim sim;
	const char *dir; /* directory of the databases */
	struct loopback_hub hub;
	bool on_hub;
	uint32_t n_hosts; /* hosts that the nodes share; 0: a host for each node */
	bool has_cards; /* nodes have network cards with RDMA, unless a fault takes them away */
	struct conf conf;
	struct conf_target conf_targets[MAX_TARGETS];
	uint8_t key[KEY_BYTES], server_key[KEY_BYTES];
	struct target targets[MAX_TARGETS];
	struct actor actors[MAX_CLIENTS + 1]; /* the last one in use is the caretaker */
	uint32_t n_actors; /* not counting the caretaker */
	uint64_t heal_at[SIM_MAX_NODES][SIM_MAX_NODES];
	struct outage outages[SIM_MAX_NODES][SIM_MAX_NODES]; /* [smaller id][larger id] */
	bool enabled[FAULT_KINDS];
	uint32_t faults_left, replacements_left, n_unclean, n_starts;
	bool armed, healing;
	bool long_outages; /* some outages outlast the timeout of a call */
	bool small; /* servers have small limits: rare situations become common */
	uint32_t seq, n_ops, n_files;
	uint64_t span; /* most files are smaller than this */
	bool sieves; /* all servers that start sieve wherever they may, not only odd ones */
	bool bulk; /* many accesses cover nearly all of `span` */
	uint32_t max_floors; /* floors of fences in a target's memory; 0: the default */
	struct list files;
	struct mfile *shared;
	struct locker *lock_holder; /* holder of the lock, as far as the model knows */
	struct race race;
	struct duel duel;
	struct append_log appends;
	struct paths routes[MAX_CLIENTS];
	struct acl_play *acl; /* NULL: this run has none */
	struct join join;
	uint32_t jobs_left; /* faults left within jobs, starts and stops */
	bool failed, verbose;
	const char *scenario; /* NULL: this run is a seed */
	bool met; /* the scenario's situation has occurred */
	struct counters *count;
	/* the history */
	struct note *notes;
	size_t n_notes, cap_notes;
};

struct world_opts {
	const char *dir; /* directory of the databases */
	bool verbose;
	uint32_t scale; /* operations of a client, in percent */
	bool hash; /* of a scenario: prints the trace hash of each seed */
};
/* Runs one seed. Returns 0, or 1 after printing what is wrong. */
int world_run(uint64_t seed, const struct world_opts *o, struct counters *count, uint64_t *hash);

/* A world of this shape without random faults. run() must leave nothing behind. */
struct world_plain {
	const char *name;
	uint32_t targets, metas, clients;
	bool hub;
	void (*run)(struct world *w, const void *arg);
	const void *arg;
};
int world_run_plain(uint64_t seed, const struct world_opts *o, const struct world_plain *p,
		    bool *met);

#define NO_FILE UINT32_MAX
struct actor *caretaker(struct world *w);
bool world_spread(const struct world *w); /* several servers keep names */
/* file 0: concerns all files; NO_FILE: no file in particular. */
void world_note(struct world *w, uint32_t file, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Prints what is wrong, with the history of a file (0: of all); only the first failure counts. */
void world_fail(struct world *w, uint32_t file, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void world_requests(struct world *w); /* prints the requests that are under way on every loop */

/* ---- sim_faults.c ---- */
void faults_choose(struct world *w);
void faults_start(struct world *w);
void faults_heal(struct world *w);
/* Cuts a client off for longer than its lease, from one target or (NULL) from several. Its
 * sessions end and its files are settled without it. */
void faults_isolate(struct actor *a, const struct target *from);
/* Nothing that a sends reaches b for d, or for less: sessions survive all such outages of a pair
 * together. */
void faults_partition(struct world *w, struct sim_node *a, struct sim_node *b, uint64_t d);
void actor_die(struct actor *a); /* when healing: until actor_revive() */
void actor_revive(void *arg);
/* A call that promises durability has succeeded: sometimes cuts the power at this moment. */
void faults_after_sync(struct world *w, enum do_kind kind);
/* Sometimes breaks the client's links before it gets the answer to the call that it just
 * started. */
void faults_lose_answer(struct actor *a);
/* Sometimes breaks the links between two servers during a change over both. */
void faults_part_servers(struct world *w);
uint64_t hub_delay(struct loopback_hub *h, struct net *from, struct net *to, size_t bytes);
uint64_t hub_lingers(struct loopback_hub *h, struct net *n);
int target_start(struct target *t);
void target_make(struct world *w, uint32_t i); /* adds its node; does not format it */
void target_crashed(void *arg, bool power);
bool target_may_crash(void *arg);
void target_restart(void *arg); /* the target is down */
void target_torn(void *arg);
void target_synced(void *arg);
void target_down(struct target *t, bool power); /* when healing: until target_restart() */

/* ---- sim_peek.c: state that no interface shows ---- */
bool peek_serves(const struct server *s, uint64_t age); /* has a request that is older than `age` */
bool peek_idle(const struct server *s); /* neither requests nor tasks */
/* Is a request of this operation, or a task of this name, in this state? */
bool peek_state(const struct server *s, const char *name, const char *state);
uint64_t peek_name(const struct server *s, uint64_t dir, const char *name); /* inode, or 0 */
/* Renames within a server's own database, even if a directory becomes its own descendant. */
void peek_move(struct server *s, struct sheaf_handle dir, const char *name,
	       struct sheaf_handle dir2, const char *name2);
/* Returns a file that is not settled though it has no writer, or 0. */
uint64_t peek_neglected(struct server *s);
/* Checks the invariants of an idle target. Returns 0, or 1 with a line in why. */
int peek_check(const struct server *s, uint32_t max_sessions, char *why, size_t n);
void peek_file(const struct cfile *cf, struct mfile *f);
uint64_t peek_resent(const struct client *c); /* retransmitted requests */
/* Adds a target's counters before the target is destroyed. */
void peek_counters(const struct server *s, struct counters *c);
/* A server's map as it answers MAP, and the incarnation of its storage. */
const struct wire_map_res *peek_map(const struct server *s);
uint64_t peek_incarnation(const struct server *s);
uint32_t peek_peers(const struct client *c); /* number of targets that it knows */
/* Links that the client closed because the peer broke the protocol or was another server. */
uint64_t peek_bad_links(const struct client *c);
void peek_cut(struct client *c); /* closes every link, as the death of its process would */
struct disk *peek_disk(const struct server *s);
struct net *peek_net(struct server *s);
uint64_t peek_sieved(const struct server *s, bool write); /* sieved windows since the start */
uint64_t
peek_stale(const struct server *s); /* old or fenced capabilities refused since the start */

/* ---- sim_peek_disk.c ---- */
/* Returns the floor of an inode's objects, from memory or a file. *n_loaded: number of floors
 * in memory. */
uint64_t peek_floor(const struct disk *d, uint64_t ino, size_t *n_loaded);

#endif
