/* What the files of the simulation proper share: a cluster of targets and clients on simulated nodes,
 * a model of what they must do, and the operations that are tried.
 *
 * One thread, one seed at a time. Nothing here is ordered by addresses or by real time. */
#ifndef SHEAF_SIM_WORLD_H
#define SHEAF_SIM_WORLD_H

#include "client/client.h"
#include "server/server.h"
#include "sim_env.h"
#include "sim_lin.h"

#define FIRST_TARGETS 4 /* that a run may begin with */
#define MAX_TARGETS (FIRST_TARGETS + 1) /* and one that joins */
#define MAX_CLIENTS 4
#define N_LANES 3 /* operations of one client at a time */
#define N_NAMES 4 /* of files in a directory */
#define NAME_DATA N_NAMES /* in the shared directory: the file of all */
#define NAME_LINK (N_NAMES + 1) /* in every directory: a symbolic link */
#define LINK_TEXT 49 /* a path and the slash before it */
#define N_DIRS 4 /* of a client: its own, two below, and the shared one */
#define DIR_SHARED 3
#define N_HANDLES 6
#define SHARED_HANDLE (N_HANDLES - 1)
#define MAX_EXT 12
#define MAX_IOV 24
#define MODEL_PAGE 4096
#define BYTE_VALUES 7
#define RACE_LANES 2 /* of a client, for contended names */
#define DUEL_WRITES 250 /* a value each */
#define DUEL_BYTES 4096
#define DUEL_LANES 3 /* through one open file */
#define APPEND_WORDS 400 /* at most, of one append */
#define WAY_STEPS 40 /* changes of a directory that paths lead through */

struct world;
struct actor;
struct op;

/* ---- sim_model.c: what a file may hold ---- */

/* Values that a byte may have now are v[0 .. n_now); those it may have after a power loss v[0 .. n), a superset.
 * n 0: zero and nothing else. */
struct mbyte {
	uint8_t n, n_now;
	uint8_t any : 1; /* more than fit: unchecked until something is certain */
	uint8_t owed : 1; /* `last` was acknowledged: a sync that succeeds vouches for it */
	uint8_t last;
	uint8_t v[BYTE_VALUES];
	uint32_t seq; /* of the last change */
};

struct mpage {
	struct hnode node;
	uint64_t index;
	bool dirty; /* a byte may change, or is owed */
	struct mbyte b[MODEL_PAGE];
};

struct mfile {
	struct list all;
	uint32_t id;
	bool wild; /* an operation with lasting consequences ended in doubt: content is not checked */
	bool known; /* handle and layout */
	bool damaged; /* a power loss may have taken recorded data: to read or hide them is an error, until it is empty */
	uint32_t n_busy; /* operations on its content */
	uint32_t n_writing, n_cutting; /* of those: writes, truncates */
	uint32_t n_looking; /* operations that look at its size */
	uint32_t cut; /* w->seq when it was last truncated */
	uint64_t beside; /* how far writes went that ended while a truncate was under way */
	uint64_t cut_to; /* what writes under way may have been cut to */
	uint32_t changed; /* w->seq when its content last changed */
	struct sheaf_handle h;
	struct layout layout;
	uint32_t targets[MAX_TARGETS];
	uint32_t mode;
	bool mode_sure;
	uint32_t xattr; /* 0: none, else what its value is made of */
	bool xattr_unsure;
	uint64_t size_lo, size_hi; /* what it may be now */
	uint64_t size_safe; /* what a power loss leaves at least */
	uint64_t owed_end[MAX_CLIENTS + 1];
	uint64_t wrote_end[MAX_CLIENTS +
			   1]; /* what a sync or close records, whatever became of the data */
	struct htab pages;
	uint64_t block; /* of a shared file: block k belongs to client k mod n_owners */
	uint32_t n_owners;
};

struct mfile *model_file(struct world *w);
void model_free(struct world *w);
uint8_t model_value(uint32_t op, uint64_t off);
bool model_zeroes(uint32_t op); /* it writes zeros */
void model_write_begin(struct op *op);
void model_write_end(struct op *op, bool acknowledged);
void model_copy_begin(struct op *op);
void model_copy_end(struct op *op, bool acknowledged, uint64_t count);
void model_read_end(struct op *op, uint64_t count);
/* The first byte from lo to hi that is certainly not zero, or UINT64_MAX. */
uint64_t model_data(struct mfile *f, uint64_t lo, uint64_t hi);
uint32_t model_target(const struct mfile *f, uint64_t page); /* that has it */
void model_synced(struct op *op);
void model_forgiven(struct mfile *f,
		    const struct actor *a); /* an error was said: nothing is owed */
void model_opened(struct op *op);
void model_closed(struct op *op);
void model_truncated(struct op *op, uint64_t size);
uint64_t model_end(const struct mfile *f); /* behind all that was ever written */
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
	DO_LINK, /* dir, name: the new one; f: the file */
	DO_SYMLINK, /* dir: where; dir2, name2: what it points to */
	DO_READLINK,
	DO_SETXATTR,
	DO_GETXATTR,
	DO_REMOVEXATTR,
	DO_COPY, /* of `from`, at `at`, to the first extent */
	DO_ALLOCATE, /* mode: as client_allocate() takes it */
	DO_SEEK, /* from `at` on; flags: for a hole */
	DO_BYE,
	DO_KINDS
};
extern const char *const do_names[];

struct handle {
	struct cfile *cf; /* NULL: free */
	struct mfile *f;
	bool busy;
	int flags;
	uint32_t unclean; /* w->n_unclean when it was opened */
	uint32_t exiles; /* likewise */
};

struct op {
	struct actor *a;
	bool busy;
	bool resolving; /* its outcome is in doubt: looking */
	uint64_t resolve_at; /* when its outcome is looked at next */
	enum do_kind kind;
	uint32_t number;
	int expect; /* of operations on names: 0 or -errno */
	int dir, name; /* name -1: the directory itself */
	int dir2, name2;
	int via; /* 1 + the directory whose symbolic link leads to dir, name; 0: none */
	struct mfile *f;
	struct handle *h;
	struct handle *from; /* of a copy: the file that it reads, */
	struct mfile *source; /* its model, */
	uint64_t source_lo; /* and what its size was at least since the copy began */
	uint64_t at;
	int flags;
	uint32_t mode;
	uint64_t size, cookie;
	int64_t mtime;
	uint32_t seen; /* readdir: own names, as bits */
	bool sure; /* nothing unclean had happened when it began: times are checked */
	char path[48], path2[LINK_TEXT];
	char value[48]; /* of an extended attribute */
	struct sheaf_layout layout;
	struct extent ext[MAX_EXT];
	struct iovec iov[MAX_IOV];
	size_t n_ext, n_iov;
	uint64_t total;
	uint8_t *mem; /* what iov points into, with guards between */
	size_t mem_len;
	struct typed typed; /* the same as patterns, of these */
	struct type *types[2];
	uint64_t began, ended; /* the latter: when its outcome became doubtful */
	uint32_t seq;
	uint32_t losses[MAX_TARGETS]; /* of each target when it began */
	uint64_t size_lo;
	int64_t result;
};

struct mdir {
	bool there;
	struct mfile *files[N_NAMES + 1];
	int link; /* its symbolic link: 1 + N_NAMES * directory + name of what it points to; 0: none */
};

/* ---- sim_locks.c: in and out of one lock ---- */

struct locker {
	struct actor *a;
	int step;
	bool busy, resting;
	bool gave_up; /* its wait */
	bool shared; /* the lock that it asks for: then it only reads */
	bool reads; /* it holds a shared one, as far as anybody knows */
	uint32_t left; /* rounds */
	uint32_t stay; /* writes before it goes out again */
	struct cfile *f;
	struct iovec mem;
	uint64_t value, back; /* written, and read again */
	uint64_t began; /* the step */
	uint64_t ousted; /* when another got the lock that it holds, or 0 */
	uint32_t exiles, unclean; /* when it was opened */
	uint32_t losses; /* of all targets, when it wrote */
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
	bool recorded; /* it is in the history, as `number` */
	uint32_t number;
	uint64_t began;
	uint32_t starts; /* of targets when it began */
	char text[12]; /* of a symbolic link */
	struct lin_op op;
};

/* An operation on contended bytes. */
enum duel_kind { DUEL_OPEN, DUEL_READ, DUEL_WRITE, DUEL_CUT, DUEL_SYNC, DUEL_CLOSE };
struct duel_lane {
	struct duelist *d;
	bool busy;
	bool healed; /* when it began: nothing was half written */
	enum duel_kind kind;
	uint8_t value; /* which write or truncate */
	uint32_t unclean, exiles; /* when it began; when its file was opened */
	uint64_t began, started; /* w->seq; time */
	struct iovec iov;
	uint8_t mem[DUEL_BYTES];
};
struct duelist {
	struct actor *a;
	struct cfile *file; /* of all its lanes */
	uint32_t left, exiles;
	struct duel_lane lanes[DUEL_LANES];
};

/* An operation on the file that all append to. */
enum append_kind { APPEND_OPEN, APPEND_WRITE, APPEND_SYNC, APPEND_CLOSE };
struct append_lane {
	struct appender *p;
	bool busy;
	enum append_kind kind;
	uint32_t rec; /* in the log of the world */
	uint64_t began, started; /* w->seq; time */
	struct iovec iov;
	struct extent ext;
	uint64_t mem[APPEND_WORDS];
};
struct appender {
	struct actor *a;
	struct cfile *file;
	bool reopen; /* an operation through it has failed */
	uint32_t left, exiles;
	struct append_lane lanes[2];
};

/* A look through directories that change, or a change of the client's own. */
enum way_kind { WAY_LOOK, WAY_CHANGE, WAY_OTHER };
struct walker {
	struct actor *a;
	bool busy;
	enum way_kind kind;
	uint32_t user; /* 0: root */
	uint32_t of, name; /* whose directory, and which of its names */
	uint32_t left;
	int64_t result;
	uint64_t began, started; /* w->seq; time */
	char path[48], path2[48];
};

struct seen {
	uint64_t ino;
	bool is_dir;
};

/* One process has ended, the next one has not begun. */
struct takeover {
	bool between;
	struct client *old; /* goes on itself; NULL: another one does, with state */
	struct wire_bytes state;
	uint64_t ids[N_HANDLES + 3]; /* of its open files, 0: none */
	uint32_t tries;
};

/* A client. */
struct actor {
	struct world *w;
	uint32_t id;
	struct sim_node *node;
	struct loop loop;
	struct client *client; /* NULL: dead, or between two processes */
	bool dead;
	struct takeover takeover;
	struct mdir dirs[N_DIRS];
	struct handle handles[N_HANDLES];
	struct op lanes[N_LANES];
	struct locker locker;
	bool name_busy; /* operations on names are one at a time */
	struct mfile
		*follow; /* what it will do with this file next, from the table in sim_ops.c on */
	uint32_t follow_at;
	struct mfile *beside; /* about to be truncated while it is written */
	uint32_t ops_left;
	uint64_t rest_until;
	uint32_t exiles; /* times that it was cut off for longer than a lease */
	struct race_lane race_lanes[RACE_LANES];
	uint32_t race_left;
	struct duelist duelist;
	struct appender appender;
	struct walker walker;
	uint32_t copies_left;
	struct changed {
		struct handle *h; /* or NULL */
		uint64_t at, len;
	} changed; /* by the last copy or fallocate of sim_copies.c */
	struct seen race_seen[8]; /* inodes that it has met, the latest ones */
	uint32_t n_race_seen;
};

void actor_connect(struct actor *a); /* a new client on its loop */
void op_free(struct op *op);
void op_path(char out[48], const struct actor *a, int dir, int name);
void op_begin(struct op *op); /* the rest is filled in; computes what to expect, and starts it */
bool op_run(struct op *op); /* begins it and steps the world until it has ended */
void op_judge(struct op *op, struct cop *cop); /* it has ended */
void op_abandon(struct op *op); /* its client died */
void op_resolve(struct op *op); /* by its successor: did it happen? */
void op_extents_whole(struct op *op, uint64_t off, uint64_t len, bool write);
void actor_start(struct actor *a); /* begins its script */
void actor_follow(struct op *op); /* it has succeeded: perhaps others follow on the same file */
bool actor_idle(const struct actor *a);
struct op *actor_lane(struct actor *a); /* a free one, cleared; or NULL */
void op_move(struct op *op, struct cop *c); /* sim_typed.c: reads or writes as lists or types */
/* sim_near.c: reads past the servers, and asks them if that fails. False: it cannot be tried. */
bool near_begin(struct op *op, struct cop *c);

int op_expect(const struct op *op); /* sim_expect.c: 0 or -errno */
bool op_expected(const struct op *op, int64_t result);
bool op_soft(int64_t e); /* an error of the network */
bool op_excused(const struct op *op, int64_t e); /* one that faults explain */
/* The same for calls that move no data and whose client began them at this time. */
bool fault_explains(const struct actor *a, uint64_t started, int64_t e);

/* A call or a change, from w->seq to w->seq. ended 0: not yet, or in doubt. */
struct period {
	uint64_t began, ended;
};
/* May something have been in the state after `step` while a call was under way? next: the following step, or NULL. */
bool period_allows(const struct period *step, const struct period *next, const struct period *call);

/* ---- sim_race.c: several clients, the same names ---- */

struct race {
	uint64_t dirs[2]; /* their inodes; 0: there is none in this run */
	struct lin_op *ops; /* the history */
	uint32_t n, cap;
	uint32_t n_doubt; /* operations whose outcome is unknown */
};
void race_setup(struct world *w);
void race_start(struct actor *a);
bool race_idle(const struct actor *a);
void race_abandon(struct actor *a); /* it died */
void race_judge(struct world *w); /* after everything has ended */
void race_cleanup(struct world *w);

/* ---- sim_duel.c: several clients, the same bytes ---- */

struct duel {
	struct extent ext[MAX_EXT]; /* the pieces */
	size_t n_ext, total; /* n_ext 0: there is none in this run */
	struct duel_change {
		uint64_t began, ended; /* ended 0: not yet, or never */
		uint64_t keep; /* how many bytes it leaves, or makes */
	} writes[DUEL_WRITES + 1], cuts[DUEL_WRITES + 1];
	uint32_t n, n_cuts;
	uint32_t healed; /* w->n_unclean during the last write that was whole */
};
void duel_init(struct actor *a);
void duel_setup(struct world *w);
void duel_start(struct actor *a);
bool duel_idle(const struct actor *a);
void duel_abandon(struct actor *a);
void duel_cleanup(struct world *w);

/* ---- sim_append.c: several clients append to one file ---- */

struct append_log {
	bool on; /* there are some in this run */
	struct append_rec {
		uint32_t client, words, n_seen;
		uint32_t losses; /* of power, when it began */
		bool safe; /* an fsync has covered it */
		uint64_t began, ended; /* ended 0: not acknowledged */
		uint64_t base; /* where it was found */
	} * v;
	uint32_t n, cap;
};
void appends_init(struct actor *a);
void appends_setup(struct world *w);
void appends_start(struct actor *a);
bool appends_idle(const struct actor *a);
void appends_abandon(struct actor *a);
void appends_cleanup(struct world *w); /* judges it */

/* ---- sim_ways.c: paths through directories that change ---- */

struct route {
	struct sheaf_handle h;
	struct route_step {
		struct period when; /* the change to this state */
		uint32_t name; /* from then on */
		bool open; /* to others than root */
	} steps[WAY_STEPS];
	uint32_t n; /* 0: there are none in this run */
	bool in_doubt; /* the last one; there are no more */
};
void ways_setup(struct world *w);
void ways_start(struct actor *a);
bool ways_idle(const struct actor *a);
void ways_abandon(struct actor *a);
void ways_cleanup(struct world *w);

/* ---- sim_copies.c: copies, room, holes and seeks ---- */

bool copies_kind(enum do_kind k); /* is it one of them? */
void copies_start(struct actor *a);
bool copies_idle(const struct actor *a);
void copies_launch(struct op *op, struct cop *c);
int copies_expect(const struct op *op);
bool copies_excused(const struct op *op); /* EIO */
void copies_judge(struct op *op, int64_t result); /* it has succeeded, or -ENXIO */
/* It has failed, or its client has died. True: a server may still be at it. */
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
	FAULT_RELAPSE, /* down again while it recovers */
	FAULT_TORN, /* the power goes within a commit */
	FAULT_SYNCED, /* the power goes right after a sync of an object */
	FAULT_STOP,
	FAULT_DISK,
	FAULT_FULL,
	FAULT_META, /* the disk of a database fails, or is full */
	FAULT_DEATH,
	FAULT_EXILE,
	FAULT_JUMP, /* of a wall clock */
	FAULT_DRIFT, /* clocks go at different rates */
	FAULT_REPLACED, /* another process goes on as a client; not by the same lot as the others */
	FAULT_JOB, /* a kill or a power loss between two file operations of a job; likewise */
	FAULT_START, /* ... of a start */
	FAULT_HALT, /* ... of a clean stop */
	FAULT_KINDS
};

struct target {
	struct world *w;
	uint32_t id;
	struct sim_node *node;
	struct loop loop;
	struct server *server; /* NULL: down */
	bool stopping;
	enum fault within; /* FAULT_JOB, or the start or stop that it is in */
	bool power_went; /* the fault within its last job, commit, start or stop was a power loss */
	uint32_t losses; /* of power */
	uint64_t last_loss;
	char meta_dir[128];
};

extern const char *const fault_names[];

struct counters { /* nothing but numbers that add up */
	uint64_t ops, events, soft, wild, locks, ousted, faults[FAULT_KINDS];
	uint64_t race_ops, races, race_unchecked, duels, resent;
	uint64_t duel_beside, duel_cut_reads, refused, appends, append_files;
	uint64_t evicted, compacted, reclaim_cuts, pair_cuts, shared_locks, punched, ways,
		ways_moved;
	uint64_t copies, copies_far, copies_within, copies_refused, copies_short, copies_crash;
	uint64_t rooms, rooms_longer, rooms_kept, holes, holes_behind, zeros, zeros_longer;
	uint64_t seeks_data, seeks_hole, seeks_end, seeks_none, copies_failed;
	uint64_t acl[ACL_COUNTS];
	uint64_t joins, joins_again, joins_partial, join_admins, join_formats, join_downs,
		join_publishers, join_commits, join_files, join_learned;
	uint64_t injected[SIM_INJECTED];
};

/* Partitions of two nodes that overlap or follow each other at once. */
struct outage {
	uint64_t began, end;
};

/* ---- sim_join.c: a further target joins, as `sheaf add-server` lets it ---- */

struct join {
	bool on; /* in this run */
	bool strikes; /* the target and those that publish it go down at every step */
	bool started, over;
	uint32_t id; /* of the target */
	int step;
	uint32_t meta; /* asked, or told, now */
	uint32_t tries;
	uint64_t incarnation; /* as the target told it last; 0: it did not answer */
	struct conf older; /* the cluster file without the target */
	bool newer[MAX_TARGETS]; /* this target has the newer file from now on */
	struct sim_node *node; /* of the command */
	struct loop loop;
	struct client *client; /* NULL: the command does not run */
	bool acked[MAX_TARGETS]; /* this metadata server has the target in its map */
	uint64_t told[MAX_TARGETS]; /* ... with this incarnation; 0: with none */
	uint32_t version[MAX_TARGETS]; /* of the map of each, the highest seen */
	uint32_t n_known[MAX_TARGETS]; /* targets of the map of each, when it was last looked at */
};
void join_choose(struct world *w);
void join_start(struct world *w);
bool join_idle(const struct world *w); /* over, or there is none */
/* The cluster file with which a target (n_actors and more: a client) starts now. */
const struct conf *join_file(struct world *w, uint32_t target);
/* The map of a target that runs is what it must be; before it ends, and after it has started. */
void join_look(const struct target *t);
void join_check(struct world *w); /* at the end */
void join_opened(struct world *w, const struct mfile *f); /* does the file use the target? */
void join_fini(struct world *w);

struct world {
	struct sim sim;
	const char *dir; /* for metadata */
	struct loop_hub hub;
	bool on_hub;
	uint32_t n_hosts; /* that the nodes share; 0: each has its own */
	struct conf conf;
	struct conf_target conf_targets[MAX_TARGETS];
	uint8_t key[KEY_BYTES], server_key[KEY_BYTES];
	struct target targets[MAX_TARGETS];
	struct actor actors[MAX_CLIENTS + 1]; /* the last one in use is the caretaker */
	uint32_t n_actors; /* without the caretaker */
	uint64_t heal_at[SIM_MAX_NODES][SIM_MAX_NODES];
	struct outage outages[SIM_MAX_NODES][SIM_MAX_NODES]; /* smaller id first */
	bool enabled[FAULT_KINDS];
	uint32_t faults_left, replacements_left, n_unclean, n_starts;
	bool armed, healing;
	bool long_outages; /* some outlast the timeout of a call */
	bool small; /* the limits of servers: what is rare in the real world is common */
	uint32_t seq, n_ops, n_files;
	uint64_t span; /* most files stay below */
	bool bulk; /* many accesses are to nearly all of that */
	uint32_t max_floors; /* of fences in a target's memory; 0: as in the real world */
	struct list files;
	struct mfile *shared;
	struct locker *inside; /* holds the lock, as far as anybody knows */
	struct race race;
	struct duel duel;
	struct append_log appends;
	struct route ways[MAX_CLIENTS];
	struct acl_play *acl; /* NULL: there is none in this run */
	struct join join;
	uint32_t jobs_left; /* faults within jobs, starts and stops */
	bool failed, verbose;
	const char *scenario; /* or NULL: a seed */
	bool met; /* what it is about came about */
	struct counters *count;
	/* history */
	struct note *notes;
	size_t n_notes, cap_notes;
};

struct world_opts {
	const char *dir; /* for metadata */
	bool verbose;
	uint32_t scale; /* operations of a client, in percent */
};
/* One seed: 0, or 1 after saying what is wrong. */
int world_run(uint64_t seed, const struct world_opts *o, struct counters *count, uint64_t *hash);

/* A world of this shape without random faults; what run() leaves must be nothing. */
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
bool world_spread(const struct world *w); /* names are on several servers */
/* file 0: of interest to all, NO_FILE: to none in particular. */
void world_note(struct world *w, uint32_t file, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Says what is wrong, with the history of a file (0: of everything); only the first one counts. */
void world_fail(struct world *w, uint32_t file, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void world_requests(struct world *w); /* what hangs, on every loop */

/* ---- sim_faults.c ---- */
void faults_choose(struct world *w);
void faults_start(struct world *w);
void faults_heal(struct world *w);
/* A client is cut off for longer than its lease, from one target or (NULL) from several: its sessions end, its files
 * are settled without it. */
void faults_exile(struct actor *a, const struct target *from);
/* What a says does not reach b for d, or for less: sessions live through all such outages of a pair together. */
void faults_partition(struct world *w, struct sim_node *a, struct sim_node *b, uint64_t d);
void actor_die(struct actor *a); /* while healing: until actor_revive() */
void actor_revive(void *arg);
/* Something that promises durability has succeeded: sometimes the power goes right then. */
void faults_ambush(struct world *w, enum do_kind kind);
/* Perhaps the client loses its links before it has heard what became of what it has just begun. */
void faults_lose_answer(struct actor *a);
/* Perhaps two servers lose their links while a change of both is under way. */
void faults_part_servers(struct world *w);
uint64_t hub_delay(struct loop_hub *h, struct net *from, struct net *to, size_t bytes);
int target_start(struct target *t);
void target_make(struct world *w, uint32_t i); /* its node; it is not formatted */
void target_struck(void *arg, bool power);
bool target_may_be_struck(void *arg);
void target_restart(void *arg); /* a target that is down */
void target_torn(void *arg);
void target_synced(void *arg);
void target_down(struct target *t, bool power); /* while healing: until target_restart() */

/* ---- sim_peek.c: what no interface shows ---- */
bool peek_serves(const struct server *s, uint64_t age); /* a request for longer than that */
bool peek_idle(const struct server *s); /* no request, no task */
/* A request of this operation, or a task of this name, is in this state. */
bool peek_state(const struct server *s, const char *name, const char *state);
uint64_t peek_name(const struct server *s, uint64_t dir, const char *name); /* inode, or 0 */
/* Renames within a server's own database, whether or not a directory lands in itself. */
void peek_move(struct server *s, struct sheaf_handle dir, const char *name,
	       struct sheaf_handle dir2, const char *name2);
/* A file that is not settled though nobody writes to it, or 0. */
uint64_t peek_neglected(struct server *s);
/* What must hold of a target without work; 0, or 1 with a line in why. */
int peek_check(const struct server *s, uint32_t max_sessions, char *why, size_t n);
void peek_file(const struct cfile *cf, struct mfile *f);
uint64_t peek_resent(const struct client *c); /* requests that it sent again */
/* Adds what a target counted, before it is gone. */
void peek_counters(const struct server *s, struct counters *c);
/* The map of a server as it tells it, and the incarnation of its storage. */
const struct wire_map_res *peek_map(const struct server *s);
uint64_t peek_incarnation(const struct server *s);
uint32_t peek_peers(const struct client *c); /* targets that it knows */
void peek_cut(struct client *c); /* closes every link, as the death of its process */
struct disk *peek_disk(const struct server *s);
uint64_t peek_stale(
	const struct server *s); /* capabilities that it refused since its start: old or fenced */

/* ---- sim_peek_disk.c ---- */
/* The floor of the epochs of an inode's objects, in memory or in a file; *in_memory: how many floors are there. */
uint64_t peek_floor(const struct disk *d, uint64_t ino, size_t *in_memory);

#endif
