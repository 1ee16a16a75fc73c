/* A metadata database in a temporary directory under a fake environment: the clock advances with
 * every call, and the jobs of the worker wait in a list until the test runs them. So the test
 * decides which records form one transaction and where a crash happens. */
#ifndef SHEAF_TEST_METADB_H
#define SHEAF_TEST_METADB_H

#include <unistd.h>

#include "meta/meta.h"
#include "test.h"

struct worker {
	struct list jobs;
};

struct metadb {
	struct env env;
	struct loop loop;
	struct meta *m;
	struct meta_opts o;
	char dir[64];
	char err[512];
	struct arena arena; /* memory of results; reset by metadb_reset */
	struct worker worker;
	uint64_t clock;
	unsigned n_jobs; /* jobs run so far, one transaction each */
};

struct call {
	struct req q;
	struct change c;
	struct metadb *f;
	bool done;
	int error;
};

/* Opens the database. Returns 0 or -errno; f->err says why. */
int metadb_open(struct metadb *f);

void metadb_sweep(void);

/* Do the tests run on a database that is written through its mapping? */
bool metadb_mapped(void);

/* Makes a new directory without opening a database in it. */
void metadb_prepare(struct metadb *f);

/* Makes a directory and opens a new database in it. */
void metadb_start(struct metadb *f);

/* Closes and opens the database. */
void metadb_reopen(struct metadb *f);

/* Closes the database and removes its directory. */
void metadb_end(struct metadb *f);

/* Releases the memory of results. */
void metadb_reset(struct metadb *f);

/* Runs one job on the fake worker. The caller calls its done(). */
struct job *metadb_run_one(struct metadb *f);

/* Runs all jobs and all that follows from them. */
void metadb_pump(struct metadb *f);

extern const struct req_ops call_ops;

/* Submits a record without running the worker. */
void call_submit(struct metadb *f, struct call *c, const struct wire_record *rec);

/* Submits the record, runs the worker and returns the result. */
struct wire_record_res metadb_apply(struct metadb *f, const struct wire_record *rec);

extern const struct wire_handle metadb_root;

/* The handle of the inode with these attributes. */
struct wire_handle attr_handle(const struct wire_attr *a);

/* A record of one directory entry, by root. */
struct wire_record rec_name(struct metadb *f, uint32_t kind, struct wire_handle dir,
			    const char *name);

/* A record of one inode, by root. */
struct wire_record rec_on(struct metadb *f, uint32_t kind, struct wire_handle h);

/* rec_name() and metadb_apply(). */
struct wire_record_res metadb_name(struct metadb *f, uint32_t kind, struct wire_handle dir,
				   const char *name);

/* Makes a file or a directory and returns its handle. */
struct wire_handle metadb_make(struct metadb *f, uint32_t kind, struct wire_handle dir,
			       const char *name);

/* Renames an entry. Returns the status: 0 or an errno. */
int metadb_rename(struct metadb *f, struct wire_handle d1, const char *n1, struct wire_handle d2,
		  const char *n2, uint32_t flags);

/* Prepares one part of a change over two servers; the rows it touches are held. Returns the number
 * that a new inode would get. */
uint64_t metadb_hold(struct metadb *f, uint64_t pair, struct wire_record *part);

/* Finishes a change over two servers; the flags say how. */
void metadb_finish(struct metadb *f, uint64_t pair, uint32_t flags);

/* The inode of a handle. */
struct meta_node metadb_node(struct metadb *f, struct wire_handle h);

/* Looks a name up. Returns 0 or -errno. */
int metadb_lookup(struct metadb *f, struct wire_handle dir, const char *name,
		  struct wire_handle *out);

/* The number of rows of a table. */
unsigned metadb_rows(struct metadb *f, enum meta_rows which);

/* Lists a directory from a cookie on. */
int metadb_readdir(struct metadb *f, struct wire_handle dir, uint64_t cookie, uint32_t max,
		   size_t max_bytes, struct wire_readdir_res *res);

#endif
