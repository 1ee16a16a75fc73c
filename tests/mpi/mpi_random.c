/* Random programs of MPI-IO operations, each done on our file and on a reference file by the MPI
 * library's own MPI-IO. A model predicts every result: data, counts, positions, sizes.
 *
 *     mpiexec -n N mpi_random OUR_NAME [REFERENCE_NAME] [--programs N] [--seed S] [--trace]
 *
 * A program has phases. In a private phase the views of the processes do not share a byte, and
 * each process does what it likes, with many requests under way. In a common phase all processes
 * have the same view, and one operation follows the other: the shared file pointer is tested
 * there. Between the phases the models of the processes are merged and both files are compared
 * with the result. */
#include "lib_access.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 65536 /* bytes of a file */
#define PENDING 8

struct view {
	MPI_Datatype etype, element; /* element: what memory consists of */
	int esize; /* bytes of data of an etype */
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
	char bytes[LIMIT], settled[LIMIT]; /* the file, with own writes; at the last settle() */
	int64_t size, own, shared; /* own, shared: positions of the pointers, in bytes of data */
	bool size_is_known, position_is_known; /* the second: by the MPI library too */
	struct access *pending[PENDING], *split;
	int n_pending;
	enum kind last;
	int64_t last_first;
	bool is_lost[SIDES]; /* its bytes are not the model's, by a fault of the MPI library */
	bool collective_under_way; /* a nonblocking collective may be pending on some process */
};

/* Faults of the MPI libraries' own MPI-IO. They are counted on the reference, and are failures
 * on ours. */
enum fault { COUNT_AT_END, POSITION, MEMORY_AT_END, OTHER, FAULTS };
static const char *fault_text[FAULTS] = {
	[COUNT_AT_END] = "a read across the end of the file counts bytes behind it",
	[OTHER] =
		"another difference from what the standard says; the rest of the program is not compared",
	[POSITION] = "the position is wrong",
	[MEMORY_AT_END] =
		"a read across the end of the file changes memory that it has no bytes for",
};
static long fault_count[FAULTS];

static const char *name[SIDES], *side_name[SIDES] = { "our file", "the reference" };
static int sides = SIDES; /* 1: without a reference */
static bool trace;
static const char *whence_name[] = { "SET", "CUR", "END" };
static long accesses;

static void say(struct program *p, const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	printf("seed %llu, %d processes, process %d: %s\n", (unsigned long long)p->seed, p->ranks,
	       p->rank, text);
	fflush(stdout);
}

#define note(p, ...) \
	do { \
		if (trace) \
			say(p, __VA_ARGS__); \
	} while (0)

/* Is it our file? The MPI library's own MPI-IO has faults that it may have. */
static bool is_strict(int side)
{
	return !strncmp(name[side], "sheaf:", 6);
}

/* A result of one side is not the model's: a failure of ours. The MPI library's own is not
 * looked at any more until the end of the program. */
static void wrong(struct program *p, int side, const char *format, ...)
{
	char text[300];
	va_list args;

	if (p->is_lost[side])
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (is_strict(side)) {
		say(p, "%s: %s; last access: %s at byte %lld of the data", side_name[side], text,
		    kind_info[p->last].name, (long long)p->last_first);
		say(p,
		    "repeat it with: mpiexec -n %d mpi_random ... --seed %llu --programs 1 --trace",
		    p->ranks, (unsigned long long)p->seed);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	note(p, "the MPI library's own file: %s", text);
	p->is_lost[side] = true;
	fault_count[OTHER]++;
}

static void succeeds(struct program *p, int side, const char *call, int result)
{
	char text[MPI_MAX_ERROR_STRING];
	int length;

	if (result == MPI_SUCCESS)
		return;
	MPI_Error_string(result, text, &length);
	wrong(p, side, "%s: %s", call, text);
}

/* Calls it for both files. Collective calls (numbers of p->common) have one order on all
 * processes. */
#define BOTH(p, numbers, call, expression) \
	for (int s_ = rng_below(&(p)->numbers, 2), once_ = 0; once_ < sides; once_++) { \
		int s = (s_ + once_) % sides; \
		MPI_File f = (p)->file[s]; \
		succeeds(p, s, call, expression); \
	}

static void equal(struct program *p, int side, const char *what, int64_t got, int64_t expected)
{
	if (got != expected)
		wrong(p, side, "%s is %lld, expected %lld", what, (long long)got,
		      (long long)expected);
}

/* Is it a known fault of the MPI library, and not of our file? */
static bool is_known_fault(struct program *p, int side, enum fault fault)
{
	if (is_strict(side))
		return false;
	note(p, "fault of %s: %s", side_name[side], fault_text[fault]);
	fault_count[fault]++;
	return true;
}

/* ---- the model ---- */

/* The place in the file of byte i of the view's data. */
static int64_t place(struct program *p, int64_t i)
{
	return p->view.displacement + map_at(&p->view.tile, i);
}

/* How many of the `length` bytes of data from `first` on are before the end of the file? */
static int64_t bytes_before_end(struct program *p, int64_t first, int64_t length)
{
	int64_t low = 0, high = length;

	while (low < high) {
		int64_t middle = (low + high) / 2;

		if (place(p, first + middle) < p->size)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void model_write(struct program *p, struct access *a)
{
	for (int64_t i = 0; i < a->length; i++) {
		int64_t at = place(p, a->first + i);

		p->bytes[at] = *access_byte(a, i);
		p->size = at + 1 > p->size ? at + 1 : p->size;
	}
	a->got = a->length;
}

static void model_read(struct program *p, struct access *a)
{
	a->got = bytes_before_end(p, a->first, a->length);
	for (int64_t i = 0; i < a->got; i++)
		*access_byte(a, i) = p->bytes[place(p, a->first + i)];
}

/* Merges what the processes wrote. All processes call it when nothing is under way. */
static void settle(struct program *p)
{
	char change[LIMIT], all[LIMIT];

	if (p->may_write) {
		BOTH(p, common, "sync", MPI_File_sync(f));
		MPI_Barrier(p->comm);
		BOTH(p, common, "sync", MPI_File_sync(f));
	}
	for (int i = 0; i < LIMIT; i++)
		change[i] = p->bytes[i] ^ p->settled[i];
	MPI_Allreduce(change, all, LIMIT, MPI_BYTE, MPI_BXOR, p->comm);
	for (int i = 0; i < LIMIT; i++)
		p->bytes[i] = p->settled[i] ^= all[i];
	MPI_Allreduce(MPI_IN_PLACE, &p->size, 1, MPI_INT64_T, MPI_MAX, p->comm);
}

static void check_sizes(struct program *p)
{
	MPI_Offset size[SIDES];

	BOTH(p, mine, "get_size", MPI_File_get_size(f, &size[s]));
	for (int s = 0; s < sides; s++)
		equal(p, s, "the size", size[s], p->size);
}

/* cut: where the pointer may be too, because a read ended at the end of the file. MPI says that it
 * moves by what was asked for; MPICH moves it by what a blocking read got. */
static void check_positions(struct program *p, MPI_Offset cut)
{
	MPI_Offset expected = p->own / p->view.esize, at[SIDES], byte[SIDES];

	BOTH(p, mine, "get_position", MPI_File_get_position(f, &at[s]));
	BOTH(p, mine, "get_byte_offset", MPI_File_get_byte_offset(f, expected, &byte[s]));
	p->position_is_known = true;
	for (int s = 0; s < sides; s++) {
		if (at[s] != expected && at[s] == cut) {
			MPI_File_seek(p->file[s], expected, MPI_SEEK_SET);
			continue;
		}
		if (at[s] != expected && is_known_fault(p, s, POSITION)) {
			p->position_is_known = false;
			MPI_File_seek(p->file[s], expected, MPI_SEEK_SET);
			continue;
		}
		equal(p, s, "the position", at[s], expected);
		equal(p, s, "the byte offset", byte[s], place(p, p->own));
	}
}

static void check_shared_position(struct program *p)
{
	MPI_Offset at[SIDES];

	BOTH(p, mine, "get_position_shared", MPI_File_get_position_shared(f, &at[s]));
	for (int s = 0; s < sides; s++)
		equal(p, s, "the shared position", at[s], p->shared / p->view.esize);
	MPI_Barrier(p->comm); /* before it moves again */
}

/* ---- judging an access ---- */

static void check_counts(struct program *p, struct access *a, int side)
{
	struct side *s = &a->side[side];
	int count, elements, unit, size;

	MPI_Type_size(p->view.element, &unit);
	MPI_Type_size(s->type, &size);
	MPI_Get_count(&s->status, s->type, &count);
	/* of the type itself, MPICH counts wrong for some types, and aborts for parts of others */
	MPI_Get_elements(&s->status, p->view.element, &elements);
	if (a->got < a->length && elements != a->got / unit &&
	    is_known_fault(p, side, COUNT_AT_END))
		return;
	equal(p, side, "Get_count", count, a->got % size ? MPI_UNDEFINED : a->got / size);
	if (a->got % unit == 0)
		equal(p, side, "Get_elements", elements, a->got / unit);
}

/* Does memory have the bytes of the file that the access transferred? */
static bool has_data(struct access *a, int side)
{
	for (int64_t i = 0; i < a->got; i++) {
		char *byte = access_byte(a, i);

		if (a->side[side].memory[byte - a->image] != *byte)
			return false;
	}
	return true;
}

static void check_memory(struct program *p, struct access *a, int side)
{
	char *memory = a->side[side].memory;

	if (!memcmp(memory, a->image, a->span))
		return;
	if (a->got < a->length && has_data(a, side) &&
	    (kind_info[a->kind].all || is_known_fault(p, side, MEMORY_AT_END)))
		return; /* a collective read may bring zeros from behind the end */
	for (int64_t i = 0; i < a->got; i++)
		if (memory[access_byte(a, i) - a->image] != *access_byte(a, i))
			wrong(p, side, "byte %lld of %lld (place %lld) is %d instead of %d",
			      (long long)i, (long long)a->got, (long long)place(p, a->first + i),
			      memory[access_byte(a, i) - a->image], *access_byte(a, i));
	for (int64_t i = 0; i < a->span; i++)
		if (memory[i] != a->image[i])
			wrong(p, side, "memory has %d instead of %d at displacement %lld",
			      memory[i], a->image[i], (long long)(i - a->origin));
}

static void judge(struct program *p, struct access *a)
{
	note(p, "judging %s of bytes %lld+%lld", kind_info[a->kind].name, (long long)a->first,
	     (long long)a->length);
	for (int s = 0; s < sides; s++) {
		if (p->is_lost[s])
			continue;
		succeeds(p, s, kind_info[a->kind].name, a->side[s].result);
		check_counts(p, a, s);
		access_unpack(a, s);
		check_memory(p, a, s);
	}
	access_free(a);
}

/* ---- requests under way ---- */

struct batch {
	MPI_Request request[PENDING + 2];
	MPI_Status status[PENDING + 2];
	MPI_Status *to[PENDING + 2]; /* where the status belongs, or NULL */
	int n;
};

static void batch_add(struct batch *b, struct rng *r, MPI_Request request, MPI_Status *to)
{
	int at = rng_below(r, b->n + 1);

	b->request[b->n] = b->request[at];
	b->to[b->n] = b->to[at];
	b->n++;
	b->request[at] = request;
	b->to[at] = to;
}

/* Ends the requests one after the other or in the order in which they are done. */
static void batch_one_by_one(struct program *p, struct batch *b)
{
	uint32_t how = rng_below(&p->mine, 4);

	for (int left = b->n, i = b->n - 1; left;) {
		MPI_Status status;
		int done = 1;

		if (how == 0)
			MPI_Wait(&b->request[i], &status);
		else if (how == 1)
			MPI_Test(&b->request[i], &done, &status);
		else if (how == 2)
			MPI_Waitany(b->n, b->request, &i, &status);
		else
			MPI_Testany(b->n, b->request, &i, &done, &status);
		if (!done)
			continue;
		b->status[i] = status;
		left--;
		i--;
	}
}

static void batch_some(struct batch *b)
{
	MPI_Status status[PENDING + 2];
	int which[PENDING + 2], n;

	for (int left = b->n; left; left -= n) {
		MPI_Waitsome(b->n, b->request, &n, which, status);
		for (int i = 0; i < n; i++)
			b->status[which[i]] = status[i];
	}
}

static void batch_all(struct program *p, struct batch *b)
{
	int done = 0;

	if (rng_one_in(&p->mine, 2))
		MPI_Waitall(b->n, b->request, b->status);
	else
		while (!done)
			MPI_Testall(b->n, b->request, &done, b->status);
}

/* MPICH 4.0 completes its own nonblocking collectives twice in MPI_Test and its kind. */
static void wait_for_reference(struct program *p)
{
	MPI_Request request[PENDING];
	MPI_Status status[PENDING];

	for (int i = 0; i < p->n_pending && sides > 1; i++)
		request[i] = p->pending[i]->side[REFERENCE].request;
	if (sides > 1)
		MPI_Waitall(p->n_pending, request, status);
	for (int i = 0; i < p->n_pending && sides > 1; i++)
		p->pending[i]->side[REFERENCE].status = status[i];
}

/* Ends what is under way, together with a message. */
static void wait_for_pending(struct program *p)
{
	struct batch b = { .n = 0 };
	bool collective = false;
	int sent = 1, received = 0;
	MPI_Request message[2];

	if (!p->n_pending)
		return;
	MPI_Irecv(&received, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &message[0]);
	MPI_Isend(&sent, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &message[1]);
	for (int i = 0; i < 2; i++)
		batch_add(&b, &p->mine, message[i], NULL);
	for (int i = 0; i < p->n_pending; i++) {
		struct access *a = p->pending[i];

		collective |= kind_info[a->kind].all;
		batch_add(&b, &p->mine, a->side[OURS].request, &a->side[OURS].status);
	}
	wait_for_reference(p);
	/* the MPI library may need all its collective requests in one call to progress */
	if (collective || rng_one_in(&p->mine, 3))
		batch_all(p, &b);
	else if (rng_one_in(&p->mine, 2))
		batch_some(&b);
	else
		batch_one_by_one(p, &b);
	for (int i = 0; i < b.n; i++)
		if (b.to[i])
			*b.to[i] = b.status[i];
	for (int i = 0; i < p->n_pending; i++)
		judge(p, p->pending[i]);
	p->n_pending = 0;
}

static void end_split(struct program *p)
{
	struct access *a = p->split;

	if (!a)
		return;
	p->split = NULL;
	note(p, "end of %s", kind_info[a->kind].name);
	for (int s = 0; s < sides; s++)
		access_end(a, p->file[s], s);
	judge(p, a);
}

static bool overlap(struct program *p, struct access *a, struct access *b)
{
	bool a_writes = kind_info[a->kind].is_write, b_writes = kind_info[b->kind].is_write;

	if (!a->length || !b->length || (!a_writes && !b_writes))
		return false;
	if (a->first < b->first + b->length && b->first < a->first + a->length)
		return true;
	/* a write may move the end of the file that cuts off a read */
	return (!a_writes && bytes_before_end(p, a->first, a->length) < a->length) ||
	       (!b_writes && bytes_before_end(p, b->first, b->length) < b->length);
}

static bool conflicts_with_pending(struct program *p, struct access *a)
{
	for (int i = 0; i < p->n_pending; i++)
		if (overlap(p, a, p->pending[i]))
			return true;
	return false;
}

/* ---- accesses ---- */

static int greatest_divisor(int a, int b)
{
	return b ? greatest_divisor(b, a % b) : a;
}

/* A random amount of random memory for at most `room` bytes. */
static struct access *make_access(struct program *p, enum kind kind, int64_t room)
{
	struct access *a = calloc(1, sizeof(*a));
	bool is_write = kind_info[kind].is_write;
	int unit, most;

	a->kind = kind;
	a->large = rng_one_in(&p->mine, 4);
	map_random_memory(&p->mine, p->view.element, is_write, &a->map);
	unit = p->view.esize / greatest_divisor(p->view.esize, a->map.size);
	if (rng_one_in(&p->mine, 2))
		room = room < 400 ? room : 400;
	most = room / ((int64_t)unit * a->map.size);
	a->count = unit * (int)rng_below(&p->mine, most + 1);
	if (!is_write && !map_is_injective(&a->map, a->count))
		a->count = map_is_injective(&a->map, unit) && most ? unit : 0;
	a->length = (int64_t)a->count * a->map.size;
	access_memory(a, &p->mine);
	return a;
}

static void make_empty(struct access *a)
{
	a->count = 0;
	a->length = 0;
	for (int s = 0; s < sides; s++)
		a->side[s].count = 0;
}

/* The MPI libraries' own MPI-IO misreads, and dies or hangs with, many datatypes. It gets
 * contiguous memory and filetypes of blocks instead of all but the simplest. */
static void avoid_faults(struct program *p, struct access *a)
{
	for (int s = 0; s < sides; s++) {
		if (is_strict(s))
			continue;
		if (a->map.is_difficult)
			access_pack(a, s, p->view.element);
	}
}

/* The access is complete but for being done: a->first is set. Takes it over. */
static void do_access(struct program *p, struct access *a)
{
	const struct kind_info *k = &kind_info[a->kind];
	int first = rng_below(k->all ? &p->common : &p->mine, 2);

	a->offset = a->first / p->view.esize;
	note(p, "%s%s: %d of a type of %d bytes (extent %ld) at byte %lld of the data, place %lld",
	     k->name, a->large ? "_c" : "", a->count, a->map.size, (long)a->map.extent,
	     (long long)a->first, (long long)place(p, a->first));
	note(p, "memory from displacement %d to %d, in order %d", a->map.at[0],
	     a->map.at[a->map.size - 1], map_tiles(&a->map));
	if (k->is_write)
		model_write(p, a);
	else
		model_read(p, a);
	avoid_faults(p, a);
	if (k->where == OWN)
		p->own += a->length;
	for (int i = 0; i < sides; i++)
		access_start(a, p->file[(first + i) % sides], (first + i) % sides);
	p->last = a->kind;
	p->last_first = a->first;
	accesses++;
	if (k->when == LATER)
		p->pending[p->n_pending++] = a;
	else if (k->when == IN_SPLIT)
		p->split = a;
	else
		judge(p, a);
}

static void access_and_check(struct program *p, struct access *a)
{
	const struct kind_info *k = &kind_info[a->kind];
	MPI_Offset cut = (a->first + bytes_before_end(p, a->first, a->length)) / p->view.esize;

	do_access(p, a);
	if (k->where == OWN)
		check_positions(p, k->is_write ? -1 : cut);
}

/* Moves the process's pointer to byte `to` of the data. */
static void seek_own(struct program *p, int64_t to)
{
	int64_t end = bytes_before_end(p, 0, LIMIT), unit = p->view.esize;
	bool has_end = p->size_is_known && end % unit == 0 && !p->n_pending && !p->split;
	uint32_t how = rng_below(&p->mine, has_end ? 3 : p->position_is_known ? 2 : 1);
	int whence = how == 0 ? MPI_SEEK_SET : how == 1 ? MPI_SEEK_CUR : MPI_SEEK_END;
	int64_t from = how == 0 ? 0 : how == 1 ? p->own : end;

	note(p, "seek to byte %lld of the data, %s", (long long)to, whence_name[how]);
	BOTH(p, mine, "seek", MPI_File_seek(f, (to - from) / unit, whence));
	p->own = to;
	check_positions(p, -1);
}

static int64_t random_place(struct rng *r, struct program *p, int64_t length)
{
	return (int64_t)rng_below(r, (p->view.end - length) / p->view.esize + 1) * p->view.esize;
}

static enum kind random_kind(struct rng *r, bool all, bool with_shared, bool may_read,
			     bool may_write)
{
	for (;;) {
		enum kind kind = rng_below(r, KINDS);
		const struct kind_info *k = &kind_info[kind];

		if (k->all == all && (with_shared || k->where != SHARED) &&
		    (k->is_write ? may_write : may_read))
			return kind;
	}
}

static void private_access(struct program *p, enum kind kind)
{
	const struct kind_info *k = &kind_info[kind];
	struct access *a = make_access(p, kind, p->view.end);

	a->first = k->where == AT ? random_place(&p->mine, p, a->length) : p->own;
	if (k->where == OWN && a->first + a->length > p->view.end) {
		seek_own(p, random_place(&p->mine, p, a->length));
		a->first = p->own;
	}
	if (p->split && overlap(p, a, p->split))
		make_empty(a);
	if (p->n_pending == PENDING || conflicts_with_pending(p, a))
		wait_for_pending(p);
	access_and_check(p, a);
}

/* ---- phases ---- */

/* Collective: ends everything that is under way on all processes. */
static void wait_for_all(struct program *p)
{
	end_split(p);
	wait_for_pending(p);
	p->collective_under_way = false;
}

static void collective_access(struct program *p, enum kind kind)
{
	end_split(p);
	/* nonblocking and blocking collectives at a time block MPICH and Open MPI */
	if (kind_info[kind].when != LATER && p->collective_under_way)
		wait_for_all(p);
	p->collective_under_way |= kind_info[kind].when == LATER;
	private_access(p, kind);
}

static void independent_steps(struct program *p, bool may_read, bool may_write)
{
	for (int n = rng_below(&p->mine, 4); n; n--) {
		if (rng_one_in(&p->mine, 6))
			wait_for_pending(p);
		else if (rng_one_in(&p->mine, 6))
			seek_own(p, random_place(&p->mine, p, 0));
		else
			private_access(p, random_kind(&p->mine, false, false, may_read, may_write));
	}
}

static void private_steps(struct program *p, bool may_read, bool may_write)
{
	for (int n = 2 + rng_below(&p->common, 8); n; n--) {
		if (rng_one_in(&p->common, 2))
			collective_access(p, random_kind(&p->common, true, false, may_read,
							 may_write));
		else if (rng_one_in(&p->common, 6))
			wait_for_all(p);
		else
			independent_steps(p, may_read, may_write);
	}
	wait_for_all(p);
}

static void set_view(struct program *p)
{
	struct view *v = &p->view;
	MPI_Datatype plain = map_plain_tile(&v->tile), tile[SIDES];

	MPI_Type_size(v->etype, &v->esize);
	for (int s = 0; s < sides; s++)
		tile[s] = v->tile.is_difficult && !is_strict(s) ? plain : v->tile.type;
	BOTH(p, common, "set_view",
	     MPI_File_set_view(f, v->displacement, v->etype, tile[s], "native", MPI_INFO_NULL));
	MPI_Type_free(&plain);
	p->own = p->shared = 0;
	p->position_is_known = true;
}

static void view_free(struct program *p)
{
	if (p->view.etype != p->view.element)
		MPI_Type_free(&p->view.etype);
	map_free(&p->view.tile);
}

static void random_etype(struct program *p)
{
	static const MPI_Datatype element[] = { MPI_BYTE, MPI_INT, MPI_DOUBLE, MPI_SHORT };
	struct view *v = &p->view;
	MPI_Datatype t = v->element = element[rng_below(&p->common, 4)];
	uint32_t which = rng_below(&p->common, 6);

	if (which == 0)
		MPI_Type_contiguous(3, v->element, &t);
	else if (which == 1)
		MPI_Type_vector(2, 1, 2, v->element, &t);
	if (t != v->element)
		MPI_Type_commit(&t);
	v->etype = t;
}

/* The tile with another extent. */
static void resize_tile(struct map *tile, MPI_Aint extent)
{
	MPI_Datatype old = tile->type;

	MPI_Type_create_resized(old, 0, extent, &tile->type);
	MPI_Type_commit(&tile->type);
	MPI_Type_free(&old);
	tile->extent = extent;
}

/* Bytes of data of the view whose places are below `limit`, in whole tiles. */
static int64_t view_end(struct view *v, int64_t limit)
{
	int64_t last = v->tile.at[v->tile.size - 1] + 1;

	if (v->displacement + last > limit)
		return 0;
	return ((limit - v->displacement - last) / v->tile.extent + 1) * v->tile.size;
}

/* Views that share no byte: tiles that alternate, or regions of the file. */
static void private_view(struct program *p)
{
	struct view *v = &p->view;
	MPI_Aint lb, unit, step;
	int64_t limit = LIMIT;

	random_etype(p);
	map_random_tile(&p->mine, v->etype, &v->tile);
	MPI_Type_get_extent(v->etype, &lb, &unit);
	step = v->tile.at[v->tile.size - 1] + 1;
	step = (step > v->tile.extent ? step : v->tile.extent) + unit - 1;
	step -= step % unit;
	MPI_Allreduce(MPI_IN_PLACE, &step, 1, MPI_AINT, MPI_MAX, p->comm);
	v->displacement = rng_below(&p->common, 3000);
	if (p->ranks > 1 && rng_one_in(&p->common, 2)) {
		v->displacement += p->rank * step;
		resize_tile(&v->tile, step * p->ranks);
	} else if (p->ranks > 1) {
		limit = (int64_t)LIMIT / p->ranks * (p->rank + 1);
		v->displacement += LIMIT / p->ranks * p->rank;
	}
	set_view(p);
	v->end = view_end(v, limit);
	note(p, "view: displacement %lld, tile of %d bytes, extent %ld, end %lld",
	     (long long)v->displacement, v->tile.size, (long)v->tile.extent, (long long)v->end);
}

/* Collective, when nothing is under way: the file as it is after set_size or preallocate. */
static void new_size(struct program *p, int64_t size)
{
	if (size < LIMIT) {
		memset(p->bytes + size, 0, LIMIT - size);
		memset(p->settled + size, 0, LIMIT - size);
	}
	p->size = size;
	settle(p);
	check_sizes(p);
}

static void set_size(struct program *p, int64_t size)
{
	note(p, "set_size %lld", (long long)size);
	BOTH(p, common, "set_size", MPI_File_set_size(f, size));
	new_size(p, size);
}

static void preallocate(struct program *p, int64_t size)
{
	note(p, "preallocate %lld", (long long)size);
	BOTH(p, common, "preallocate", MPI_File_preallocate(f, size));
	new_size(p, size > p->size ? size : p->size);
}

/* While several processes write, the end of the file is known to none of them. So either nobody
 * reads, or the file is large enough for all that may be read. */
static void private_phase(struct program *p)
{
	uint32_t which = rng_below(&p->common, 3);
	bool may_read = p->may_read && (which != 0 || !p->may_write);
	bool may_write = p->may_write && (which != 1 || !p->may_read);

	note(p, "private phase%s%s", may_read ? ", reads" : "", may_write ? ", writes" : "");
	if (p->ranks > 1 && may_read && may_write)
		set_size(p, LIMIT);
	p->size_is_known = p->ranks == 1 || !may_write || may_read;
	private_view(p);
	private_steps(p, may_read, may_write);
	settle(p);
	p->size_is_known = true;
	check_sizes(p);
}

/* One view for all processes. */
static void common_view(struct program *p)
{
	struct view *v = &p->view;

	random_etype(p);
	map_random_tile(&p->common, v->etype, &v->tile);
	v->displacement = rng_below(&p->common, 3000);
	set_view(p);
	v->end = view_end(v, LIMIT);
	note(p, "view: displacement %lld, tile of %d bytes, extent %ld, end %lld",
	     (long long)v->displacement, v->tile.size, (long)v->tile.extent, (long long)v->end);
}

static void seek_shared(struct program *p, int64_t to)
{
	int64_t end = bytes_before_end(p, 0, LIMIT), unit = p->view.esize;
	uint32_t how = rng_below(&p->common, end % unit == 0 ? 3 : 2);
	int whence = how == 0 ? MPI_SEEK_SET : how == 1 ? MPI_SEEK_CUR : MPI_SEEK_END;
	int64_t from = how == 0 ? 0 : how == 1 ? p->shared : end;

	note(p, "seek_shared to byte %lld of the data, %s", (long long)to, whence_name[how]);
	BOTH(p, common, "seek_shared", MPI_File_seek_shared(f, (to - from) / unit, whence));
	p->shared = to;
	check_shared_position(p);
}

/* The processes whose accesses are collective take places one after the other, in order of rank.
 * Returns what comes before this process. */
static int64_t before_mine(struct program *p, int64_t length, int64_t *all)
{
	int64_t lengths[64], before = 0;

	MPI_Allgather(&length, 1, MPI_INT64_T, lengths, 1, MPI_INT64_T, p->comm);
	*all = 0;
	for (int i = 0; i < p->ranks; i++) {
		before += i < p->rank ? lengths[i] : 0;
		*all += lengths[i];
	}
	return before;
}

/* An access by one process or by all, and everything has ended when this returns. */
static void common_access(struct program *p, enum kind kind)
{
	const struct kind_info *k = &kind_info[kind];
	bool active = (int)rng_below(&p->common, p->ranks) == p->rank || k->all;
	struct access *a = make_access(p, kind, active ? p->view.end / p->ranks : 0);
	int64_t all, before = before_mine(p, a->length, &all);

	if (k->where == SHARED && p->shared + all > p->view.end)
		seek_shared(p, random_place(&p->common, p, all));
	a->first = (k->where == SHARED ? p->shared : random_place(&p->common, p, all)) + before;
	if (k->where == OWN && active && p->own != a->first)
		seek_own(p, a->first);
	MPI_Barrier(p->comm); /* a seek from the end comes before another process writes */
	p->shared += k->where == SHARED ? all : 0;
	if (active)
		access_and_check(p, a);
	else
		access_free(a);
	wait_for_all(p);
	settle(p);
	check_shared_position(p);
}

static void common_phase(struct program *p)
{
	note(p, "common phase");
	common_view(p);
	for (int n = 2 + rng_below(&p->common, 8); n; n--) {
		if (rng_one_in(&p->common, 8))
			seek_shared(p, random_place(&p->common, p, 0));
		else
			common_access(p, random_kind(&p->common, rng_one_in(&p->common, 2), true,
						     p->may_read, p->may_write));
	}
	check_sizes(p);
}

/* ---- programs ---- */

static void plain_tile(struct view *v)
{
	MPI_Datatype t;

	MPI_Type_dup(MPI_BYTE, &t);
	map_of(t, &v->tile);
}

/* Each process reads a part of the whole file through a view of bytes. */
static void check_contents(struct program *p)
{
	int64_t from = rng_below(&p->mine, p->size + 1);
	int length = (int)rng_below(&p->mine, p->size - from + 1), count;

	if (p->rank == 0) {
		from = 0;
		length = (int)p->size;
	}
	p->view = (struct view){ .etype = MPI_BYTE, .element = MPI_BYTE };
	plain_tile(&p->view);
	set_view(p);
	view_free(p);
	for (int s = 0; s < sides; s++) {
		char bytes[LIMIT];
		MPI_Status status;

		succeeds(p, s, "read_at_all",
			 MPI_File_read_at_all(p->file[s], from, bytes, length, MPI_BYTE, &status));
		MPI_Get_count(&status, MPI_BYTE, &count);
		equal(p, s, "the count", count, length);
		for (int i = 0; i < length; i++)
			if (bytes[i] != p->bytes[from + i])
				wrong(p, s, "byte %lld is %d instead of %d", (long long)from + i,
				      bytes[i], p->bytes[from + i]);
	}
}

static void one_phase(struct program *p)
{
	uint32_t which = rng_below(&p->common, 10);

	if (which == 0 && p->may_write) {
		set_size(p, rng_below(&p->common, LIMIT + 1));
	} else if (which == 1 && p->may_write) {
		preallocate(p, rng_below(&p->common, LIMIT + 1));
	} else if (which == 2) {
		int atomic = rng_one_in(&p->common, 2), is = -1;

		BOTH(p, common, "set_atomicity", MPI_File_set_atomicity(f, atomic));
		BOTH(p, mine, "get_atomicity", MPI_File_get_atomicity(f, &is));
		equal(p, OURS, "the atomicity", is, atomic);
	} else {
		if (which < 7)
			private_phase(p);
		else
			common_phase(p);
		view_free(p);
		if (p->may_read)
			check_contents(p);
	}
}

/* Makes the files: rank 0 writes random bytes, or there is none. */
static void make_files(struct program *p)
{
	bool exists = rng_one_in(&p->common, 2);
	int size = (int)rng_below(&p->common, LIMIT + 1);
	MPI_File f;

	for (int i = 0; i < size && exists; i++)
		p->bytes[i] = p->settled[i] = (char)rng_below(&p->common, 256);
	p->size = exists ? size : 0;
	for (int s = 0; s < sides && p->rank == 0; s++) {
		MPI_File_delete(name[s], MPI_INFO_NULL);
		if (!exists)
			continue;
		succeeds(p, s, "open",
			 MPI_File_open(MPI_COMM_SELF, name[s], MPI_MODE_CREATE | MPI_MODE_WRONLY,
				       MPI_INFO_NULL, &f));
		succeeds(p, s, "write",
			 MPI_File_write(f, p->bytes, size, MPI_BYTE, MPI_STATUS_IGNORE));
		succeeds(p, s, "close", MPI_File_close(&f));
	}
	MPI_Barrier(p->comm);
	p->amode = exists ? 0 : MPI_MODE_CREATE | (rng_one_in(&p->common, 2) ? MPI_MODE_EXCL : 0);
}

static void random_amode(struct program *p)
{
	uint32_t which = rng_below(&p->common, 6);

	p->may_read = which != 0;
	p->may_write = which != 1 || p->amode;
	p->amode |= !p->may_read ? MPI_MODE_WRONLY : p->may_write ? MPI_MODE_RDWR : MPI_MODE_RDONLY;
	if (rng_one_in(&p->common, 4))
		p->amode |= MPI_MODE_APPEND;
	if (rng_one_in(&p->common, 4))
		p->amode |= MPI_MODE_DELETE_ON_CLOSE;
	if (rng_one_in(&p->common, 4))
		p->amode |= MPI_MODE_UNIQUE_OPEN;
}

/* Hints are for our file: they choose how it moves data, never what. */
static MPI_Info random_hints(struct program *p)
{
	static const char *method[] = { "multiple", "sieve", "list", "typed", "twophase" };
	static const char *size[] = { "1000", "4096", "16384", "1048576" };
	static const char *one[] = { "1", "2", "3", "4" };
	MPI_Info info;

	MPI_Info_create(&info);
	if (rng_one_in(&p->common, 2))
		MPI_Info_set(info, "sheaf_method", method[rng_below(&p->common, 5)]);
	if (rng_one_in(&p->common, 2))
		MPI_Info_set(info, "cb_buffer_size", size[rng_below(&p->common, 4)]);
	if (rng_one_in(&p->common, 2))
		MPI_Info_set(info, "cb_nodes", one[rng_below(&p->common, 4)]);
	if (rng_one_in(&p->common, 2))
		MPI_Info_set(info, "striping_unit", rng_one_in(&p->common, 2) ? "4096" : "16384");
	if (rng_one_in(&p->common, 2))
		MPI_Info_set(info, "striping_factor", one[rng_below(&p->common, 4)]);
	return info;
}

/* ROMIO writes what its buffer happens to have into holes behind the end of the file, where it
 * reads, changes and writes back. */
static MPI_Info reference_hints(void)
{
	MPI_Info info;

	MPI_Info_create(&info);
	MPI_Info_set(info, "romio_ds_write", "disable");
	MPI_Info_set(info, "romio_cb_write", "disable");
	return info;
}

static void open_files(struct program *p)
{
	MPI_Info info[SIDES];

	note(p, "open with amode %d%s%s, %lld bytes", p->amode, p->may_read ? ", reads" : "",
	     p->may_write ? ", writes" : "", (long long)p->size);
	info[OURS] = is_strict(OURS) ? random_hints(p) : reference_hints();
	info[REFERENCE] = reference_hints();
	for (int s = 0; s < sides; s++) {
		int amode = -1;

		succeeds(p, s, "open",
			 MPI_File_open(p->comm, name[s], p->amode, info[s], &p->file[s]));
		MPI_Info_free(&info[s]);
		succeeds(p, s, "get_amode", MPI_File_get_amode(p->file[s], &amode));
		equal(p, s, "the amode", amode, p->amode);
	}
	p->view = (struct view){ .etype = MPI_BYTE, .element = MPI_BYTE, .esize = 1 };
	p->own = p->shared = p->amode & MPI_MODE_APPEND ? p->size : 0;
}

/* After the close: the files have what the model has, or are gone. */
static void check_closed(struct program *p)
{
	bool is_gone = p->amode & MPI_MODE_DELETE_ON_CLOSE;

	for (int s = 0; s < sides; s++) {
		int result = MPI_File_open(MPI_COMM_SELF, name[s], MPI_MODE_RDONLY, MPI_INFO_NULL,
					   &p->file[s]),
		    class;

		MPI_Error_class(result, &class);
		equal(p, s, "open after close", class,
		      is_gone ? MPI_ERR_NO_SUCH_FILE : MPI_SUCCESS);
	}
	if (is_gone)
		return;
	check_sizes(p);
	check_contents(p);
	for (int s = 0; s < sides; s++) {
		succeeds(p, s, "close", MPI_File_close(&p->file[s]));
		succeeds(p, s, "delete", MPI_File_delete(name[s], MPI_INFO_NULL));
	}
}

static void run_program(uint64_t seed)
{
	struct program *p = calloc(1, sizeof(*p));
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	p->seed = p->common.state = seed;
	MPI_Comm_split(MPI_COMM_WORLD, 0, rng_one_in(&p->common, 2) ? rank : -rank, &p->comm);
	MPI_Comm_rank(p->comm, &p->rank);
	MPI_Comm_size(p->comm, &p->ranks);
	p->mine.state = (seed << 8) + p->rank + 1;
	p->size_is_known = true;
	make_files(p);
	random_amode(p);
	open_files(p);
	for (int n = 1 + rng_below(&p->common, 6); n; n--)
		one_phase(p);
	for (int s = 0; s < sides; s++)
		succeeds(p, s, "close", MPI_File_close(&p->file[s]));
	MPI_Barrier(p->comm);
	if (p->rank == 0)
		check_closed(p);
	MPI_Barrier(p->comm);
	MPI_Comm_free(&p->comm);
	free(p);
}

static void usage(void)
{
	fprintf(stderr,
		"usage: mpi_random OUR_NAME [REFERENCE_NAME] [--programs N] [--seed S] [--trace]\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "programs", 1, NULL, 'p' },
						 { "seed", 1, NULL, 's' },
						 { "trace", 0, NULL, 't' },
						 { 0 } };
	uint64_t seed = 1;
	int programs = 50, option, rank;
	long all;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'p')
			programs = atoi(optarg);
		else if (option == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (option == 't')
			trace = true;
		else
			usage();
	}
	sides = argc - optind;
	if (sides < 1 || sides > SIDES)
		usage();
	for (int s = 0; s < sides; s++)
		name[s] = argv[optind + s];
	MPI_Init(&argc, &argv);
	for (int i = 0; i < programs; i++)
		run_program(seed + i);
	MPI_Allreduce(&accesses, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(MPI_IN_PLACE, fault_count, FAULTS, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < FAULTS && rank == 0; i++)
		if (fault_count[i])
			printf("fault of the MPI library, %ld times: %s\n", fault_count[i],
			       fault_text[i]);
	if (rank == 0)
		printf("%d programs, %ld accesses of each file: equal\n", programs, all);
	MPI_Finalize();
}
