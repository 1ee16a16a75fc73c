/* A disk to test: a scratch directory, an environment that injects faults, and blocking forms of
 * the calls of disk.h. */
#ifndef SHEAF_TEST_DISK_FIXTURE_H
#define SHEAF_TEST_DISK_FIXTURE_H

#include <stdatomic.h>

#include "disk/disk.h"
#include "test_req.h"

/* The real environment with injected faults and counters. */
struct faulty {
	struct env env;
	struct file_ops file;
	struct clock_ops clock;
	int fail_sync, fail_write; /* -errno for every such access while not 0 */
	int fail_fsync; /* the same for the blocking call */
	bool half_write; /* a failing write stores half of its data */
	atomic_int
		steps; /* if `mortal`: this many changes succeed, later ones fail as after a kill */
	bool mortal;
	uint64_t skew; /* added to the wall clock */
	unsigned n_sync, n_open;
	ino_t watched; /* n_watched counts successful blocking syncs of this file */
	unsigned n_watched;
};

extern struct faulty faulty;

extern struct loop loop;
extern struct disk *disk;
extern char disk_path[512];
extern uint32_t disk_max_floors; /* for disk_fixture_open(); 0 means the default */
extern const struct uuid test_fs;
extern char disk_err[512];

/* Opens the disk as a target of a file system. Returns 0 or -errno; disk_err says why. */
int disk_fixture_open(const struct uuid *fs, uint32_t target);

/* Opens a newly formatted disk under `parent`. */
void disk_fixture_start(const char *parent);

/* Closes and opens the disk. */
void disk_fixture_reopen(bool clean);

/* Closes the disk and removes its directory. */
void disk_fixture_end(void);

/* ---- blocking forms ---- */

struct disk_args {
	uint64_t ino, epoch, off;
	struct object_stat st;
	uint32_t gen;
	bool create;
	int error;
	int64_t mtime;
	struct object *object;
	struct io io;
	struct iovec iov;
};

void start_get(struct test_req *t, struct req *q);

/* Gets an object, and creates it if told so. The caller puts it. */
int get_object(uint64_t ino, uint32_t gen, bool create, struct object **out);

/* Gets the object with a capability of this epoch. */
int get_object_with(uint64_t ino, uint64_t epoch, bool create);

/* Gets an object, creates it if needed. */
struct object *get_object_ok(uint64_t ino, uint32_t gen);

/* Writes to the object. Returns 0 or -errno. */
int write_bytes(struct object *o, uint64_t off, const void *p, size_t n);

/* Reads from the object, zeros past its end. Returns 0 or -errno. */
int read_bytes(struct object *o, uint64_t off, void *p, size_t n);

void start_sync(struct test_req *t, struct req *q);

/* Syncs the object. Returns 0 or -errno. */
int sync_object(struct object *o);

void start_fence(struct test_req *t, struct req *q);

/* Fences the object; *end, if not NULL, is its end then. */
int fence_object(uint64_t ino, uint64_t epoch, uint64_t cut, uint64_t *end);

void start_remove(struct test_req *t, struct req *q);

/* Removes the object. Returns 0 or -errno. */
int remove_object(uint64_t ino, uint64_t epoch);

/* ---- turns ---- */

struct turn_req {
	struct test_req req;
	struct turn turn;
	struct object *object;
	uint64_t epoch, lo, hi;
	bool write;
};

/* Starts a request that waits for a turn on this range. */
void turn_ask(struct turn_req *x, struct object *o, uint64_t epoch, uint64_t lo, uint64_t hi,
	      bool write);

/* Runs everything that can complete without a long wait. */
void disk_fixture_settle(void);

#endif
