/* MPI-IO on Sheaf: what the files of this folder share.
 *
 * The library overrides MPI_File_* (mpi_calls*.c). A file of Sheaf has a handle of the MPI library
 * itself, an open of /dev/null that carries its error handler and its Fortran index; `struct mfile`
 * is found by that handle. A handle without one belongs to the MPI library, and the call goes on to
 * it.
 *
 * Threads: as many as the program has; the table of files has a lock, a file itself is used as MPI
 * allows. Errors: functions here return an MPI error class, 0 (MPI_SUCCESS) if all is well; the
 * calls raise it at the file's error handler. */
#ifndef SHEAF_MPI_IMPL_H
#define SHEAF_MPI_IMPL_H

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/base.h"
#include "sheaf.h"
#include "sheaf_admin.h"
#include "sheaf_handle.h"

/* ---- mpi_next.c: the MPI library's own calls ---- */

/* Calls the function that this library overrides: NEXT(File_close)(&fh). */
void *mpi_next(const char *name); /* e.g. "PMPI_File_close"; ends the process if there is none */
#define NEXT_(call) \
	({ \
		static __typeof__(&PMPI_##call) next_; \
		if (!next_) \
			next_ = (__typeof__(&PMPI_##call))mpi_next("PMPI_" #call); \
		next_; \
	})
#define NEXT(call) NEXT_(call) /* expands its argument first */

/* ---- mpi_names.c: which names are Sheaf's ---- */

struct mname {
	char conf[PATH_MAX]; /* "": the default search */
	char path[PATH_MAX]; /* in the file system */
};
/* Is this name one of Sheaf: "sheaf:/path", or a path on a Sheaf mount? */
bool mname_parse(const char *name, struct mname *out);

/* ---- mpi_connect.c: the connection of this process ---- */

/* One for each cluster file, until MPI_Finalize. why: text for people after an error. */
int mconnect(const char *conf, struct sheaf **fs, const char **why);
uint64_t mconnect_requests(struct sheaf *fs); /* requests sent so far, to all servers */

/* ---- mpi_types.c: MPI datatypes as Sheaf types ---- */

enum mrep { REP_NATIVE, REP_EXTERNAL32, N_REPS };

/* A datatype, decoded once and kept as an attribute of it. */
struct mtype {
	struct sheaf_type *t;
	int64_t lower, extent; /* in bytes */
	uint64_t size; /* bytes of data */
	bool is_dense; /* the data of any number of copies are one range, from `lower` on */
	bool is_file_type; /* no negative offsets, ascending */
	uint64_t piece_bytes; /* mean length of its first pieces */
	unsigned unit; /* external32: what is reversed; 0: MPI converts (mpi_external.c) */
	atomic_int refs;
};
/* The caller gives it back with mtype_put(). MPI_ERR_TYPE, MPI_ERR_NO_MEM,
 * MPI_ERR_UNSUPPORTED_DATAREP */
int mtype_get(MPI_Datatype type, enum mrep rep, struct mtype **out);
void mtype_put(struct mtype *t);
struct mtype *mtype_keep(struct mtype *t); /* one more to give back */
/* MPI_ERR_TYPE if this is no datatype, or one that is not committed; comm returns errors */
int mtype_check(MPI_Datatype type, MPI_Comm comm);

/* ---- mpi_contents.c: what a datatype was made of ---- */
struct mcontents {
	int combiner;
	int64_t *ints, *aints; /* numbers of elements, bytes */
	MPI_Datatype *types;
	size_t n_types;
};
int mcontents_get(MPI_Datatype type, struct mcontents *c); /* MPI_ERR_TYPE, MPI_ERR_NO_MEM */
void mcontents_free(struct mcontents *c);
bool mcontents_is_derived(MPI_Datatype t); /* else it is a named one */

/* ---- mpi_view.c: views and positions ---- */

struct mview {
	MPI_Offset disp;
	MPI_Datatype etype, filetype; /* copies of the caller's, or named types */
	enum mrep rep;
	struct mtype *file; /* the decoded filetype */
	uint64_t etype_bytes;
};

enum mmethod { M_AUTO, M_MULTIPLE, M_SIEVE, M_LIST, M_TYPED, M_TWO_PHASE, N_METHODS_OF_MPIIO };
extern const char *const mmethod_names[N_METHODS_OF_MPIIO];

struct mhints {
	enum mmethod method;
	int cb_nodes; /* 0: automatic */
	uint64_t cb_buffer_size;
	uint32_t striping_unit, striping_factor; /* of a new file; 0: the default */
};

/* What a process did through a file, by method; for SHEAF_MPIIO_STATS=1. */
struct mstats {
	struct {
		atomic_ullong calls, accesses, bytes; /* accesses: calls of libsheaf */
	} by[2][N_METHODS_OF_MPIIO]; /* reads, writes */
	uint64_t exchanged; /* bytes sent to other processes in two-phase accesses */
	uint64_t requests_before; /* of the connection at the open */
};

/* What collective accesses of one size and piece took (mpi_choice.c). */
#define MTRIALS 64
#define MTRIAL_TIMES 3
struct mtrial {
	uint64_t us_per_mib[2][MTRIAL_TIMES]; /* the last times: typed, two-phase */
	uint32_t n[2]; /* accesses so far */
	uint32_t in_turn; /* accesses that went the same way as the last one, and that one */
	bool way; /* of the last one */
};

struct mfile {
	struct hnode node; /* in the table, by handle */
	MPI_File handle; /* the stand-in */
	MPI_Comm comm; /* a copy of the caller's */
	MPI_Info info; /* hints in use */
	int rank, n_ranks, amode;
	struct mname name;
	struct sheaf *fs;
	struct sheaf_file *f;
	bool is_owner; /* the metadata server knows its open */
	bool is_closed; /* the handle is all that is left */
	struct sheaf_file *guest; /* the former open of a process that has become an owner */
	bool is_atomic;
	struct mview view;
	MPI_Offset pos; /* the individual pointer, in etypes */
	struct mhints hints;
	bool has_layout; /* the striping hints are those of the file */
	struct mstats stats;
	struct mtrial trials[2][MTRIALS]; /* of collective reads and writes, by size and piece */
	struct mtrial *last[2]; /* those of the last read and write, or NULL */
	/* the shared pointer: a hidden file that the first use creates */
	char pointer_path[PATH_MAX];
	struct sheaf_file *pointer;
	bool pointer_used; /* by this process */
	MPI_Offset pointer_start; /* its value before the first use */
	/* a split collective access under way */
	struct mrequest *split;
	const void *split_buf;
	int split_call; /* enum msplit, 0: none */
};

/* ---- mpi_file.c: the table; open, close, sizes ---- */
/* NULL: not Sheaf's. A handle that was closed becomes MPI_FILE_NULL. */
struct mfile *mfile_find(MPI_File *handle);
void mfile_is_foreign(MPI_File handle); /* the MPI library has opened it */
int mfile_open(MPI_Comm comm, const struct mname *name, int amode, MPI_Info info, MPI_File *out);
/* f->is_closed: the handle stays until mfile_free(); else the file stays open. */
int mfile_close(struct mfile *f);
void mfile_free(struct mfile *f);
int mfile_delete(const struct mname *name);
int mfile_set_size(struct mfile *f, MPI_Offset size);
int mfile_preallocate(struct mfile *f, MPI_Offset size);
int mfile_get_size(struct mfile *f, MPI_Offset *size);
int mfile_sync(struct mfile *f);
int mfile_set_atomicity(struct mfile *f, int flag);
int mfile_open_own(struct mfile *f); /* so that it may take locks; 0 or -errno */

/* ---- mpi_view.c ---- */
int mtype_copy(MPI_Datatype t, MPI_Datatype *out); /* a duplicate, or the named type itself */
int mview_default(struct mview *v);
void mview_free(struct mview *v);
int mview_set(struct mfile *f, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
	      const char *datarep, MPI_Info info);
/* Bytes of data in the view before the end of the file; or -errno. */
int mview_end(struct mfile *f, uint64_t *bytes);
int mview_seek(struct mfile *f, MPI_Offset offset, int whence, MPI_Offset pos, MPI_Offset *out);
int mview_byte_offset(struct mfile *f, MPI_Offset offset, MPI_Offset *out);

/* ---- mpi_hints.c ---- */
int mhints_take(struct mfile *f, MPI_Info info); /* sets hints and f->info; collective */
int mhints_set(struct mfile *f, MPI_Info info); /* the same as a call of its own */
int mhints_get(struct mfile *f, MPI_Info *out);

/* ---- mpi_access.c: data ---- */

enum mwhere { AT_OFFSET, AT_POINTER, AT_SHARED };

/* One access of a process. */
struct maccess {
	struct mfile *f;
	bool write;
	void *buf;
	MPI_Count count;
	MPI_Datatype type;
	struct mtype *mem;
	struct mtype *file; /* the filetype and the displacement of the view */
	uint64_t disp;
	uint64_t skip; /* byte of the view's data where it begins */
	uint64_t bytes;
	char *packed; /* external32: the converted data */
	struct sheaf_type *packed_type;
	enum mmethod method;
};
/* Prepares an access at `offset` etypes of the view: checks, decodes the type. */
int maccess_begin(struct maccess *a, struct mfile *f, bool write, MPI_Offset offset, void *buf,
		  MPI_Count count, MPI_Datatype type);
void maccess_end(struct maccess *a);
/* Transfers; returns the number of bytes or -errno. */
ssize_t maccess_move(struct maccess *a);
int maccess_start(struct maccess *a, struct sheaf_op **op); /* -errno */
/* The data of an access have arrived: converts them, if that is needed; a class. */
int maccess_finish(struct maccess *a, ssize_t moved);
void mstatus_set(MPI_Status *st, const struct maccess *a, ssize_t bytes);

/* A whole blocking call: data(f, ...) for each of the MPI calls. */
struct mcall {
	bool write, collective;
	bool is_ordered; /* the offset is that of the shared pointer */
	enum mwhere where;
	MPI_Offset offset; /* AT_OFFSET */
	void *buf;
	MPI_Count count;
	MPI_Datatype type;
};
int mcall_run(struct mfile *f, const struct mcall *c, MPI_Status *st);
int mcall_start(struct mfile *f, const struct mcall *c, MPI_Request *req); /* nonblocking */
int mcall_begin(struct mfile *f, const struct mcall *c, int which); /* split */
int mcall_end(struct mfile *f, const void *buf, int which, MPI_Status *st);
int mcall_ordered(struct mfile *f, const struct mcall *c, MPI_Status *st);
int mcall_ordered_begin(struct mfile *f, const struct mcall *c, int which);

/* ---- mpi_external.c: the buffer with the data of an external32 view ---- */
unsigned mexternal_unit(MPI_Datatype type);
int mexternal_begin(struct maccess *a); /* a class */
int mexternal_finish(struct maccess *a, uint64_t moved); /* a class */

/* ---- mpi_pieces.c: both sides of an access piece by piece ---- */

#define MPIECES 256
struct mside {
	const struct sheaf_type *t;
	uint64_t base;
	struct sheaf_extent e[MPIECES];
	size_t n, i;
	uint64_t listed; /* bytes of data up to the end of e[] */
};
struct mwalk {
	uint64_t pos, bytes; /* within the access */
	uint64_t skip; /* of the file side */
	uint64_t limit; /* file offset at which pieces are cut */
	int error; /* -errno: it ended too early */
	struct mside mem, file;
};
struct mpiece {
	char *mem;
	uint64_t offset, length;
};
void mwalk_begin(struct mwalk *w, const struct maccess *a);
void mwalk_seek(struct mwalk *w, uint64_t pos); /* right after mwalk_begin() */
/* The next bytes that are contiguous on both sides; false: none are left below the limit. */
bool mwalk_next(struct mwalk *w, uint64_t most, struct mpiece *out);
/* Where the memory of an access is: its type, its first copy, how many. */
const struct sheaf_type *maccess_memory(const struct maccess *a, void **base, uint64_t *count);

/* ---- mpi_methods.c: the ways that the hint sheaf_method compares ---- */
ssize_t mmethod_multiple(struct maccess *a);
ssize_t mmethod_sieve(struct maccess *a);
ssize_t mmethod_list(struct maccess *a);

/* ---- mpi_twophase.c ---- */
ssize_t mtwophase(struct maccess *a); /* collective */

/* ---- mpi_choice.c: typed requests or two-phase, by what was measured ---- */
struct mchoice {
	int kind;
	bool two_phase; /* the same in every process */
	bool is_agreed; /* the class that mchoice_begin() returned is that of all processes */
	uint64_t begin;
};
/* Collective. They take the class of this process's error, and return the highest class of all;
 * mchoice_begin() only if that was exchanged. */
int mchoice_begin(struct maccess *a, struct mchoice *c, int kind, int class);
int mchoice_end(struct maccess *a, const struct mchoice *c, int class);
/* The times of files that were closed: for a new one; those of this file, when it is closed. */
void mchoice_recall(const struct mfile *f, struct mtrial trials[2][MTRIALS]);
void mchoice_keep(const struct mfile *f);

/* ---- mpi_shared.c: the shared pointer ---- */
int mshared_add(struct mfile *f, MPI_Offset etypes, MPI_Offset *before); /* a class */
int mshared_set(struct mfile *f, MPI_Offset value);
int mshared_get(struct mfile *f, MPI_Offset *value);
int mshared_seek(struct mfile *f, MPI_Offset offset, int whence); /* collective */
void mshared_close(struct mfile *f, bool any_used);

/* ---- mpi_requests.c: nonblocking accesses ---- */
struct mrequest;
int mrequest_start(struct maccess *a, MPI_Request *req); /* takes a */
int mrequest_wait(struct mrequest *r, MPI_Status *st); /* of a split access; frees it */
struct mrequest *mrequest_split(struct maccess *a, int *error);

/* ---- mpi_errors.c ---- */
int merror_class(int err); /* of a negative errno */
/* Raises an error at the file's handler (handle MPI_FILE_NULL: the default one); returns it. */
int merror_raise(MPI_File handle, int class);
/* Collective: the highest class of all processes. */
int merror_all(MPI_Comm comm, int class);

/* Which collective call of a file this is. */
enum mkind {
	MKIND_CLOSE = 1,
	MKIND_SET_SIZE,
	MKIND_PREALLOCATE,
	MKIND_SYNC,
	MKIND_SET_ATOMICITY,
	MKIND_SET_INFO,
	MKIND_SET_VIEW,
	MKIND_SEEK_SHARED,
	MKIND_DATA /* and more: mpi_access.c */
};
#define MSAME_VALUES 4
/* The first exchange of every collective call of an open file: the highest class of all processes,
 * MPI_ERR_NOT_SAME if they are in different calls, MPI_ERR_INTERN if the exchange failed. `most`
 * becomes the highest values of all; NULL: there are none. */
int msame(const struct mfile *f, int kind, int class, int64_t most[MSAME_VALUES]);

/* ---- mpi_stats.c ---- */
void mstats_count(struct maccess *a, enum mmethod how, uint64_t accesses, uint64_t bytes);
void mstats_print(struct mfile *f); /* collective */

#endif
