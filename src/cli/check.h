/* What the files of `sheaf check` share.
 *
 * 	pass	reads all rows and objects once and notes which inodes look suspicious (check_pass.c)
 * 	look	reads all that has to do with the suspects again, and whether they changed meanwhile (check_look.c)
 * 	judge	says what is wrong with one suspect, and how it is repaired (check_judge.c)
 *
 * Damage is what is lost: an object that is missing, or ends before the end that its file's
 * inode has recorded. Objects without a file, or on servers that the file's layout does not
 * name, are leftovers: those lost no data.
 *
 * The servers run meanwhile, so a pass sees an entry at one time and its inode at another. A
 * look is sound: an inode whose `change` is the same before and after it had the same names all
 * the time, unless a change over two servers is at it, whose prepared part is then seen before
 * or behind the entries. A suspect is wrong when two looks one after another found the same,
 * clean when a look finds nothing, and left alone when it never stops changing.
 *
 * Threads: one. Buffers: rows of a look are in `arena` until the next one, findings in `keep`
 * until the next round. Of a directory's entries and index only those are kept that may differ,
 * CHECK_ROWS at most. */
#ifndef SHEAF_CLI_CHECK_H
#define SHEAF_CLI_CHECK_H

#include "cli/cli.h"
#include "sheaf_admin.h"

#define CHECK_ROOT 1 /* inode of the root directory */
#define CHECK_SUSPECTS 50000 /* of one round; there is only so much to read again */
#define CHECK_ROWS 100000 /* of one directory that are compared one by one */
#define CHECK_LOOKS 5
#define CHECK_PAUSE_MS 300
#define COUNTER_JUMP (UINT64_C(1) << 32) /* more inode numbers than are given between two looks */

/* An inode as the pass saw it, and what it saw that belongs to it. */
struct check_node {
	uint64_t ino, size;
	uint64_t second; /* directory: the next cookie; file: its epoch */
	uint64_t parent;
	uint64_t seen; /* directory: entries; file: how far its objects reach */
	uint64_t diff; /* directory: entries less index rows, as hashes: 0 when they agree */
	const struct sheaf_stripes *stripes;
	/* file: recorded ends of objects that were not seen so far, in the order of
	 * stripes->targets; NULL: none recorded */
	uint64_t *ends;
	uint32_t gen, mode, nlink, links, subdirs, flags;
	uint32_t has; /* attributes that the inode knows of less those that were seen: 0 when they agree */
};
enum { /* flags of a node */
       NODE_UNSETTLED = 1,
       NODE_REMOVE = 2,
       NODE_TRUNCATE = 4,
       NODE_TEXT = 8,
       NODE_RISEN = 16, /* the way up from it is known */
       NODE_ON_WAY = 32,
};

/* A row that has to do with a suspect. */
struct note {
	struct note *next;
	enum sheaf_scan_kind kind;
	int server;
	struct sheaf_handle h, to;
	uint64_t second, size, epoch;
	uint32_t mode, has, name_len, key_len;
	uint32_t index; /* object: which of its file's, or SHEAF_OBJECT_OLD */
	const char *name;
	const uint8_t *key;
	bool bad;
};

struct fix {
	struct fix *next;
	int server; /* of a row; -1: the one that the repair is about */
	struct sheaf_repair r; /* dir.ino 0: /lost+found; its name NULL: #INO */
};

struct finding {
	struct finding *next;
	const char *kind; /* one word, for programs */
	uint64_t ino;
	const char *what, *lost, *cure; /* cure: what --repair will do; NULL: nothing */
	const char *advice; /* what people can do where --repair can do nothing; or NULL */
	struct fix *fixes;
	const struct note *at; /* the entry it is about, or NULL */
	const struct note *names; /* damage: all names of the file */
	const char *path;
	/* damage: which object lost how much */
	int server;
	uint32_t index;
	uint64_t bytes; /* 0: it is not about lost data */
	bool absent; /* its inode is not there */
	bool repaired;
};

/* An inode as a look saw it. */
struct check_inode {
	struct sheaf_handle h, parent;
	uint64_t cookie; /* directory: the next */
	uint64_t size, epoch, change;
	uint32_t mode, nlink, has;
	const struct sheaf_stripes *stripes;
	const uint64_t *ends; /* recorded, of each object */
	bool bad;
};

/* What is in a directory: counted, and kept where entries and index do not agree. */
struct contents {
	uint64_t n_entries, n_index, subdirs;
	uint64_t last_cookie; /* the highest that an entry has */
	struct note *entries, *index; /* with cookies whose rows differ somewhere */
	struct note *odd; /* entries that cannot be read, or with names that none can have */
	bool more; /* others differ, too */
};

struct suspect {
	struct hnode node;
	struct list link;
	uint64_t ino;
	bool loop; /* the pass came back to it on the way up */
	/* of the latest look */
	bool there, moved;
	bool torn; /* the directory changed while it was read */
	bool covered; /* a change over two servers is at it */
	struct check_inode row;
	struct note *names; /* entries that name it */
	struct note *rows; /* of unfinished work, symlink, xattr; objects */
	struct contents dir; /* of a directory */
	struct finding *findings;
	uint64_t signature; /* of them; 0: none */
	/* of all looks */
	bool wrong;
};

struct check {
	struct cli *c;
	struct sheaf *fs;
	struct sheaf_server *servers;
	int n_servers;
	struct sheaf_row *page; /* SHEAF_SCAN_MAX rows */
	struct cli_progress progress;
	bool quiet; /* no progress */
	bool only_damage; /* look for lost data and for nothing else */
	bool down[SHEAF_MAX_TARGETS]; /* by data server: it does not answer, so its objects are not judged */
	bool advanced; /* inode numbers that anything mentions are out of the counters' way */
	/* the pass */
	struct check_node *nodes; /* by inode */
	size_t n_nodes, cap_nodes;
	uint64_t next[SHEAF_MAX_TARGETS]; /* by server: the first inode number not given yet */
	uint64_t highest
		[SHEAF_MAX_TARGETS]; /* by server: inode number that any row or object mentions */
	struct arena layouts; /* and recorded ends */
	struct htab by_layout;
	/* suspects and findings */
	struct htab suspects;
	struct list undecided;
	size_t n_suspects;
	struct arena arena, keep;
	struct finding *findings; /* confirmed ones */
	struct finding **findings_end;
	/* for people */
	uint64_t inodes, entries, objects;
	uint64_t unsettled, removing, truncates, pairs, busy, leftover;
	uint64_t skipped; /* suspects above CHECK_SUSPECTS */
};

/* ---- check_setup.c ---- */
/* Connects and finds the servers: all must be up, or, for only_damage, all metadata servers.
 * CLI_OK or CLI_FAILED, said; check_close() in either case. */
int check_open(struct check *k, struct cli *c);
void check_close(struct check *k);
int check_round_begin(struct check *k);
int check_path_of(struct check *k, const struct note *at, char out[CLI_PATH_MAX]);

/* ---- check_pass.c ---- */
/* Calls fn for each row of a kind at a server (only: of one inode) until it returns not 0: more is the end, less an
 * error. 0, -EINTR, or -errno, said. */
typedef int check_row_fn(struct check *k, int server, const struct sheaf_row *r, void *arg);
int check_rows(struct check *k, int server, enum sheaf_scan_kind kind, struct sheaf_scan *scan,
	       check_row_fn *fn, void *arg);
int check_pass(struct check *k);
void check_pass_free(struct check *k);
struct check_node *check_node(const struct check *k, uint64_t ino);
uint64_t check_entry_hash(const struct sheaf_row *r); /* the same for an entry and its index row */
bool check_name_is_odd(const char *name, uint32_t len);
int check_suspect(struct check *k, uint64_t ino); /* 0 or -ENOMEM */
struct suspect *check_suspect_find(const struct check *k, uint64_t ino);
bool check_has_role(const struct check *k, int server, unsigned role);
/* One copy of each layout; NULL: out of memory. */
const struct sheaf_stripes *check_layout(struct check *k, const struct sheaf_stripes *s);

/* ---- check_look.c ---- */
int check_confirm(struct check *k); /* decides all suspects; findings are in k->findings */
/* The inode as it is now: 1, 0 (not there), or -errno. */
int check_read_inode(struct check *k, uint64_t ino, struct check_inode *out);

/* ---- check_judge.c ---- */
/* Sets s->findings: 0 or -errno. */
int check_judge(struct check *k, struct suspect *s);
int check_judge_counter(struct check *k, int server, uint64_t next); /* it is too low */
int check_judge_lock(struct check *k, const struct note *n); /* it is nobody's */
/* The number up to which a server's inode numbers count as taken: COUNTER_JUMP above all that is
 * mentioned. */
uint64_t check_numbers_taken(const struct check *k, int server);
/* Which object of the layout this one is: its index, or -1: none. */
int check_object_of(const struct sheaf_stripes *s, int server, uint32_t index);
/* Is the layout one that a file can have here? */
bool check_layout_sane(const struct check *k, const struct sheaf_stripes *s);

#endif
