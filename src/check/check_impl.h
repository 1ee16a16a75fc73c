/* Shared by the files of `sheaf check`.
 *
 * 	pass	reads all rows and objects once and notes suspicious inodes (check_pass.c)
 * 	look	reads everything about the suspects again, and whether they changed (check_look.c)
 * 	judge	decides what is wrong with one suspect and how to repair it (check_judge*.c)
 *
 * Damage is lost data: an object that is missing, or that ends before the end that its file's inode
 * has recorded. Objects without a file, or on servers that the file's layout does not name, are
 * leftovers: no data are lost.
 *
 * The servers keep running, so a pass sees an entry at one time and its inode at another. A look is
 * sound: an inode whose `change` is the same before and after the look kept its names throughout,
 * unless a change over two servers involves the inode; then the look sees the prepared part before
 * or after it reads the entries. A suspect is wrong when two consecutive looks find the same, clean
 * when a look finds nothing, and skipped when it never stops changing.
 *
 * Threads: one. Buffers: rows of a look are in `arena` until the next look, findings in `keep`
 * until the next round. Of a directory's entries and index rows only those that may differ are
 * kept, at most CHECK_ROWS. */
#ifndef SHEAF_CHECK_IMPL_H
#define SHEAF_CHECK_IMPL_H

#include "cli/cli.h"
#include "sheaf_admin.h"

#define CHECK_ROOT 1 /* inode of the root directory */
#define CHECK_SUSPECTS 50000 /* maximum of one round, which bounds what is read again */
#define CHECK_ROWS 100000 /* rows of one directory that are compared one by one */
#define CHECK_LOOKS 5
#define CHECK_PAUSE_MS 300 /* a signal ends it early; check_rows() looks for signals */
#define COUNTER_JUMP (UINT64_C(1) << 32) /* exceeds the inode numbers allocated between two looks */

/* An inode as the pass saw it, with totals of the rows and objects that belong to it. */
struct check_node {
	uint64_t ino, size;
	uint64_t second; /* directory: the next cookie; file: the epoch */
	uint64_t parent;
	uint64_t seen; /* directory: entries; file: the size that its objects reach */
	uint64_t diff; /* directory: entry hashes minus index row hashes; 0 when they agree */
	const struct sheaf_stripes *stripes;
	/* file: recorded ends of the objects that the pass has not seen yet, in the order of
	 * stripes->targets; NULL: none recorded */
	uint64_t *ends;
	uint32_t gen, mode, nlink, links, subdirs, flags;
	uint32_t has; /* attributes that the inode records minus those seen; 0 when they agree */
};
enum { /* flags of a check_node */
       NODE_RISEN = 1, /* all its ancestors are checked */
       NODE_ON_WAY = 2,
       /* it has a row of this kind */
       NODE_UNSETTLED = 1 << SHEAF_SCAN_UNSETTLED,
       NODE_REMOVE = 1 << SHEAF_SCAN_REMOVE,
       NODE_TRUNCATE = 1 << SHEAF_SCAN_TRUNCATE,
       NODE_TEXT = 1 << SHEAF_SCAN_SYMLINK,
};

/* A row about a suspect. */
struct note {
	struct note *next;
	enum sheaf_scan_kind kind;
	int server;
	struct sheaf_handle h, to;
	uint64_t second, size, epoch;
	uint32_t mode, has, name_len, key_len;
	uint32_t index; /* object: its index in the file, or SHEAF_OBJECT_OLD */
	const char *name;
	const uint8_t *key;
	bool bad;
};

struct fix {
	struct fix *next;
	int server; /* server that has the row; -1: the server of the inode under repair */
	struct sheaf_repair r; /* dir.ino 0: /lost+found; name NULL: "#INO" */
};

struct finding {
	struct finding *next;
	const char *kind; /* one word, for scripts */
	uint64_t ino;
	const char *what, *lost, *cure; /* cure: what --repair will do, or NULL */
	const char *advice; /* what an administrator can do where --repair cannot; or NULL */
	struct fix *fixes;
	const struct note *at; /* the directory entry concerned, or NULL */
	const struct note *names; /* damage: all names of the file */
	const char *path;
	/* damage: which object lost how many bytes */
	int server;
	uint32_t index;
	uint64_t bytes; /* 0: no data are lost */
	bool absent; /* the inode does not exist */
	bool repaired;
};

/* An inode as a look saw it. */
struct check_inode {
	struct sheaf_handle h, parent;
	uint64_t cookie; /* directory: the next cookie */
	uint64_t size, epoch, change;
	uint32_t mode, nlink, has;
	const struct sheaf_stripes *stripes;
	const uint64_t *ends; /* recorded end of each object */
	bool bad;
};

/* The contents of a directory: counters, and the rows where entries and index disagree. */
struct contents {
	uint64_t n_entries, n_index, subdirs;
	uint64_t last_cookie; /* highest cookie of an entry */
	struct note *entries, *index; /* rows whose cookie falls into a bucket that differs */
	struct note *odd; /* entries that are unreadable or have an invalid name */
	bool more; /* further rows differ, which are not kept */
};

struct suspect {
	struct hnode node;
	struct list link;
	uint64_t ino;
	bool loop; /* the pass found it in a loop of parent directories */
	/* results of the latest look */
	bool there, moved;
	bool torn; /* the directory changed while its contents were read */
	bool covered; /* a change over two servers involves it */
	struct check_inode row;
	struct note *names; /* entries that refer to it */
	struct note *rows; /* unfinished work, symlink text, xattrs and objects */
	struct contents dir; /* for a directory */
	struct finding *findings;
	uint64_t signature; /* hash of the findings; 0: none */
	/* result of all looks */
	bool wrong;
};

struct check {
	struct cli *c;
	struct sheaf *fs;
	struct sheaf_server *servers;
	int n_servers;
	struct sheaf_row *page; /* SHEAF_SCAN_MAX rows, of this kind, from this server: */
	enum sheaf_scan_kind kind;
	int server;
	struct cli_progress progress;
	bool only_damage; /* look for lost data only */
	bool down[SHEAF_MAX_TARGETS]; /* data server i is down: its objects are not judged */
	bool advanced; /* the inode counters are past every inode number in use */
	/* the pass */
	struct check_node *nodes; /* sorted by inode number */
	size_t n_nodes, cap_nodes;
	uint64_t next[SHEAF_MAX_TARGETS]; /* by server: the next inode number to allocate */
	/* by server: highest inode number in any row or object */
	uint64_t highest[SHEAF_MAX_TARGETS];
	struct arena layouts; /* layouts and recorded ends */
	struct htab by_layout;
	/* suspects and findings */
	struct htab suspects;
	struct list undecided;
	size_t n_suspects;
	struct arena arena, keep;
	struct finding *findings; /* confirmed findings */
	struct finding **findings_end;
	/* counters for the summary */
	uint64_t rows[SHEAF_SCAN_LOCK + 1]; /* that the pass has read, by kind */
	uint64_t busy, leftover;
	uint64_t skipped; /* suspects beyond CHECK_SUSPECTS */
};

/* ---- check_setup.c ---- */
/* Connects and asks the servers: all must be up, or, with only_damage, all metadata servers.
 * CLI_OK, or CLI_FAILED after a message; check_close() is needed in both cases. */
int check_open(struct check *k, struct cli *c);
void check_close(struct check *k);
/* A round: a pass, then looks; fills k->findings. check_pass_free() is needed in all cases. */
int check_round(struct check *k);
int check_path_of(struct check *k, const struct note *at, char out[CLI_PATH_MAX]);

/* ---- check_pass.c ---- */
/* Calls fn for each row of a kind at a server (scan->only: rows of one inode), or at all servers
 * that have such rows, until fn returns a value other than 0: positive ends the scan, negative is
 * an error. 0, -EINTR, or -errno after a message. */
typedef int check_row_fn(struct check *k, const struct sheaf_row *r, void *arg);
int check_rows(struct check *k, int server, enum sheaf_scan_kind kind, struct sheaf_scan *scan,
	       check_row_fn *fn, void *arg);
int check_all_rows(struct check *k, enum sheaf_scan_kind kind, check_row_fn *fn, void *arg);
int check_pass(struct check *k);
void check_pass_free(struct check *k);
struct check_node *check_node(const struct check *k, uint64_t ino);
uint64_t check_entry_hash(const struct sheaf_row *r); /* equal for an entry and its index row */
bool check_name_is_odd(const char *name, uint32_t len);
struct suspect *check_suspect_find(const struct check *k, uint64_t ino);
bool check_has_role(const struct check *k, int server, unsigned role);
/* A shared copy of the layout; NULL: out of memory. */
const struct sheaf_stripes *check_layout(struct check *k, const struct sheaf_stripes *s);

/* ---- check_look.c ---- */
int check_confirm(struct check *k); /* decides all suspects; fills k->findings */
/* Reads the current inode: 1, 0 (no such inode), or -errno. */
int check_read_inode(struct check *k, uint64_t ino, struct check_inode *out);

/* ---- check_findings.c: all memory is in k->keep ---- */
#define NOTHING_LOST "nothing is lost"
const char *finding_text(struct check *k, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Adds a finding about s; NULL: out of memory. The functions below ignore a finding that is NULL,
 * and drop a repair that they have no memory for. */
struct finding *finding_add(struct check *k, struct suspect *s, const char *kind, const char *what,
			    const char *lost, const char *cure);
/* A row that refers to nothing valid; --repair removes it. */
void finding_add_stale(struct check *k, struct suspect *s, const struct note *n, const char *why);
void finding_set_entry(struct check *k, struct finding *f, const struct note *entry);
/* Repairs are applied in this order, at the server of their inode. */
void fix_add(struct check *k, struct finding *f, struct sheaf_repair r);
/* A repair that removes a row at a server (-1: that of the inode); that sets a field of the inode;
 * that sets or removes an entry. */
void fix_row(struct check *k, struct finding *f, int server, enum sheaf_scan_kind kind,
	     const uint8_t *key, uint32_t key_len);
void fix_inode(struct check *k, struct finding *f, const struct suspect *s,
	       enum sheaf_repair_kind kind, uint64_t value);
void fix_entry(struct check *k, struct finding *f, const struct suspect *s,
	       enum sheaf_repair_kind kind, const struct note *at);
struct note *note_keep(struct check *k, const struct note *n); /* a copy until the next round */
/* The first note of this kind in a list, or NULL. */
const struct note *note_find(const struct note *list, enum sheaf_scan_kind kind);
/* The handle of a directory as far as it is known. */
struct sheaf_handle check_dir_handle(const struct check *k, uint64_t ino);

/* ---- check_judge.c ---- */
/* Sets s->findings: 0 or -errno. */
int check_judge(struct check *k, struct suspect *s);
int check_judge_counter(struct check *k, int server, uint64_t next); /* the counter is too low */
int check_judge_lock(struct check *k, const struct note *n); /* the lock belongs to no change */
/* The value that a server's inode counter is set to: COUNTER_JUMP above all numbers in use. */
uint64_t check_numbers_taken(const struct check *k, int server);

/* ---- check_judge_dir.c: names, and contents of directories ---- */
void check_judge_entries(struct check *k, struct suspect *s); /* the entries that name s */
int check_judge_dir_names(struct check *k, struct suspect *s); /* 0 or -errno */
void check_judge_file_names(struct check *k, struct suspect *s);
int check_judge_contents(struct check *k, struct suspect *s); /* 0 or -ENOMEM */

/* ---- check_judge_file.c: layouts, objects and sizes ---- */
void check_judge_file(struct check *k, struct suspect *s);
void check_judge_damage(struct check *k, struct suspect *s);
/* The index of this object in the layout, or -1. */
int check_object_of(const struct sheaf_stripes *s, int server, uint32_t index);
/* Is this a layout that a file of this cluster can have? */
bool check_layout_sane(const struct check *k, const struct sheaf_stripes *s);
/* Guesses the layout that the file was created with: one that fits or, unless must_fit, the
 * narrowest that covers its objects. */
bool check_layout_guess(struct check *k, const struct suspect *s, uint32_t unit, uint32_t width,
			bool must_fit, struct sheaf_stripes *out);

#endif
