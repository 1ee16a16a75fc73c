/* A random program of MPI-IO operations, its model of the file, and its steps. See mpi_random.c. */
#ifndef SHEAF_LIB_PROGRAM_H
#define SHEAF_LIB_PROGRAM_H

#include "lib_access.h"

#define LIMIT 65536 /* bytes of a file */
#define PENDING 8

struct view {
	MPI_Datatype etype, element; /* element: what memory consists of */
	int esize; /* bytes of data of an etype */
	bool is_external; /* external32: each element is big-endian in the file */
	MPI_Offset displacement;
	struct map tile;
	int64_t end; /* bytes of data that may be accessed */
};

struct program {
	uint64_t seed;
	struct rng common, mine; /* the same numbers on all processes; its own on each */
	MPI_Comm comm;
	int rank, ranks;
	int amode;
	bool may_read, may_write;
	MPI_File file[SIDES];
	struct view view;
	char bytes[LIMIT],
		settled[LIMIT]; /* the file, with own writes; at the last model_settle() */
	int64_t size, own, shared; /* own, shared: positions of the pointers, in bytes of data */
	bool size_is_known, position_is_known; /* the second: by the MPI library too */
	struct access *pending[PENDING], *split;
	int n_pending;
	enum kind last;
	int64_t last_first;
	bool is_lost[SIDES]; /* its bytes are not the model's, by a fault of the MPI library */
	bool collective_under_way; /* a nonblocking collective may be pending on some process */
};

/* ---- lib_report.c: what is said of differences ---- */

/* Faults of the MPI libraries' own MPI-IO. They are counted on the reference, and are failures
 * on ours. */
enum fault { COUNT_AT_END, POSITION, MEMORY_AT_END, OTHER, FAULTS };
extern const char *const fault_text[FAULTS];
extern long fault_count[FAULTS];

extern const char *side_file[SIDES]; /* names of the files */
extern const char *const side_name[SIDES];
extern int n_sides; /* 1: without a reference */
extern bool is_traced;

void program_say(struct program *p, const char *format, ...);
#define note(p, ...) \
	do { \
		if (is_traced) \
			program_say(p, __VA_ARGS__); \
	} while (0)

/* Is it our file? The MPI library's own MPI-IO has faults that it may have. */
bool side_is_strict(int side);
/* A result of one side is not the model's: a failure of ours. The MPI library's own is not
 * looked at any more until the end of the program. */
void report_wrong(struct program *p, int side, const char *format, ...);
void must_succeed(struct program *p, int side, const char *call, int result);
void must_equal(struct program *p, int side, const char *what, int64_t got, int64_t expected);
/* Is it a known fault of the MPI library, and not of our file? */
bool is_known_fault(struct program *p, int side, enum fault fault);

/* Calls it for both files. Collective calls (numbers of p->common) have one order on all
 * processes. */
#define BOTH(p, numbers, call, expression) \
	for (int s_ = rng_below(&(p)->numbers, 2), once_ = 0; once_ < n_sides; once_++) { \
		int s = (s_ + once_) % n_sides; \
		MPI_File f = (p)->file[s]; \
		must_succeed(p, s, call, expression); \
	}

/* ---- lib_model.c: what the file has ---- */

/* The place in the file of byte i of the view's data. */
int64_t view_place(struct program *p, int64_t i);
/* How many of the `length` bytes of data from `first` on are before the end of the file? */
int64_t bytes_before_end(struct program *p, int64_t first, int64_t length);
void model_write(struct program *p, struct access *a);
void model_read(struct program *p, struct access *a);
/* Merges what the processes wrote. All processes call it when nothing is under way. */
void model_settle(struct program *p);

/* ---- lib_judge.c: results against the model ---- */

void check_sizes(struct program *p);
/* cut: where the pointer may be too, because a read ended at the end of the file. MPI says that it
 * moves by what was asked for; MPICH moves it by what a blocking read got. */
void check_positions(struct program *p, MPI_Offset cut);
void check_shared_position(struct program *p);
void access_judge(struct program *p, struct access *a);

/* ---- lib_pending.c: accesses under way ---- */

/* Ends what is under way, together with a message. */
void wait_for_pending(struct program *p);
void end_split(struct program *p);
bool accesses_overlap(struct program *p, struct access *a, struct access *b);
bool conflicts_with_pending(struct program *p, struct access *a);

/* ---- lib_steps.c: one access ---- */

/* A random amount of random memory for at most `room` bytes. */
struct access *make_access(struct program *p, enum kind kind, int64_t room);
void access_and_check(struct program *p, struct access *a);
/* Moves the process's pointer to byte `to` of the data. */
void seek_own(struct program *p, int64_t to);
int64_t random_place(struct rng *r, struct program *p, int64_t length);
enum kind random_kind(struct rng *r, bool all, bool with_shared, bool may_read, bool may_write);
void private_access(struct program *p, enum kind kind);
extern const char *const whence_name[];
extern long accesses;

/* ---- lib_view.c: views and sizes ---- */

void program_set_view(struct program *p);
void program_free_view(struct program *p);
/* Views that share no byte: tiles that alternate, or regions of the file. */
void private_view(struct program *p);
/* One view for all processes. */
void common_view(struct program *p);
/* Collective, when nothing is under way. */
void program_set_size(struct program *p, int64_t size);
void program_preallocate(struct program *p, int64_t size);

/* ---- lib_phases.c: many accesses ---- */

void private_phase(struct program *p);
void common_phase(struct program *p);

#endif
