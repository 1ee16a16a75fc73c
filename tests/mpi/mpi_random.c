/* Random programs of MPI-IO operations, each done on our file and on a reference file by the MPI
 * library's own MPI-IO. A model predicts every result: data, counts, positions, sizes.
 *
 *     mpiexec -n N mpi_random OUR_NAME [REFERENCE_NAME] [--programs N] [--seed S] [--method M]
 *                             [--trace]
 *
 * A program has phases. In a private phase the views of the processes do not share a byte, and
 * each process does what it likes, with many requests under way. In a common phase all processes
 * have the same view, and one operation follows the other: the shared file pointer is tested
 * there. Between the phases the models of the processes are merged and both files are compared
 * with the result. */
#include "lib_program.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static const char *only_method; /* NULL: random ones */

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
	program_set_view(p);
	program_free_view(p);
	for (int s = 0; s < n_sides; s++) {
		char bytes[LIMIT];
		MPI_Status status;

		must_succeed(p, s, "read_at_all",
			     MPI_File_read_at_all(p->file[s], from, bytes, length, MPI_BYTE,
						  &status));
		MPI_Get_count(&status, MPI_BYTE, &count);
		must_equal(p, s, "the count", count, length);
		for (int i = 0; i < length; i++)
			if (bytes[i] != p->bytes[from + i])
				report_wrong(p, s, "byte %lld is %d instead of %d",
					     (long long)from + i, bytes[i], p->bytes[from + i]);
	}
}

static void one_phase(struct program *p)
{
	uint32_t which = rng_below(&p->common, 10);

	if (which == 0 && p->may_write) {
		program_set_size(p, rng_below(&p->common, LIMIT + 1));
	} else if (which == 1 && p->may_write) {
		program_preallocate(p, rng_below(&p->common, LIMIT + 1));
	} else if (which == 2) {
		int atomic = rng_one_in(&p->common, 2), is = -1;

		BOTH(p, common, "set_atomicity", MPI_File_set_atomicity(f, atomic));
		BOTH(p, mine, "get_atomicity", MPI_File_get_atomicity(f, &is));
		must_equal(p, OURS, "the atomicity", is, atomic);
	} else {
		if (which < 7)
			private_phase(p);
		else
			common_phase(p);
		program_free_view(p);
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
	for (int s = 0; s < n_sides && p->rank == 0; s++) {
		MPI_File_delete(side_file[s], MPI_INFO_NULL);
		if (!exists)
			continue;
		must_succeed(p, s, "open",
			     MPI_File_open(MPI_COMM_SELF, side_file[s],
					   MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &f));
		must_succeed(p, s, "write",
			     MPI_File_write(f, p->bytes, size, MPI_BYTE, MPI_STATUS_IGNORE));
		must_succeed(p, s, "close", MPI_File_close(&f));
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
	if (only_method)
		MPI_Info_set(info, "sheaf_method", only_method);
	else if (rng_one_in(&p->common, 2))
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

static long hint_of(MPI_Info info, const char *key)
{
	char value[MPI_MAX_INFO_VAL + 1];
	int is_set;

	MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &is_set);
	return is_set ? atol(value) : 0;
}

/* A new file is striped as the hints say; any file tells how it is striped. */
static void check_hints(struct program *p, MPI_Info given)
{
	static const char *const keys[] = { "striping_unit", "striping_factor" };
	MPI_Info used;

	must_succeed(p, OURS, "get_info", MPI_File_get_info(p->file[OURS], &used));
	for (int i = 0; i < 2; i++) {
		long is = hint_of(used, keys[i]), hint = hint_of(given, keys[i]);

		must_equal(p, OURS, "there is a hint", is > 0, true);
		if (hint && (p->amode & MPI_MODE_CREATE))
			must_equal(p, OURS, keys[i], is, hint);
	}
	MPI_Info_free(&used);
}

static void open_files(struct program *p)
{
	MPI_Info info[SIDES];

	note(p, "open with amode %d%s%s, %lld bytes", p->amode, p->may_read ? ", reads" : "",
	     p->may_write ? ", writes" : "", (long long)p->size);
	info[OURS] = side_is_strict(OURS) ? random_hints(p) : reference_hints();
	info[REFERENCE] = reference_hints();
	for (int s = 0; s < n_sides; s++) {
		int amode = -1;

		must_succeed(p, s, "open",
			     MPI_File_open(p->comm, side_file[s], p->amode, info[s], &p->file[s]));
		if (s == OURS && side_is_strict(s))
			check_hints(p, info[s]);
		MPI_Info_free(&info[s]);
		must_succeed(p, s, "get_amode", MPI_File_get_amode(p->file[s], &amode));
		must_equal(p, s, "the amode", amode, p->amode);
	}
	p->view = (struct view){ .etype = MPI_BYTE, .element = MPI_BYTE, .esize = 1 };
	p->own = p->shared = p->amode & MPI_MODE_APPEND ? p->size : 0;
}

/* After the close: the files have what the model has, or are gone. */
static void check_closed(struct program *p)
{
	bool is_gone = p->amode & MPI_MODE_DELETE_ON_CLOSE;

	for (int s = 0; s < n_sides; s++) {
		int result = MPI_File_open(MPI_COMM_SELF, side_file[s], MPI_MODE_RDONLY,
					   MPI_INFO_NULL, &p->file[s]),
		    class;

		MPI_Error_class(result, &class);
		must_equal(p, s, "open after close", class,
			   is_gone ? MPI_ERR_NO_SUCH_FILE : MPI_SUCCESS);
	}
	if (is_gone)
		return;
	check_sizes(p);
	check_contents(p);
	for (int s = 0; s < n_sides; s++) {
		must_succeed(p, s, "close", MPI_File_close(&p->file[s]));
		must_succeed(p, s, "delete", MPI_File_delete(side_file[s], MPI_INFO_NULL));
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
	for (int s = 0; s < n_sides; s++)
		must_succeed(p, s, "close", MPI_File_close(&p->file[s]));
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
		"usage: mpi_random OUR_NAME [REFERENCE_NAME] [--programs N] [--seed S] [--method M] [--trace]\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "programs", 1, NULL, 'p' },
						 { "seed", 1, NULL, 's' },
						 { "method", 1, NULL, 'm' },
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
		else if (option == 'm')
			only_method = optarg;
		else if (option == 't')
			is_traced = true;
		else
			usage();
	}
	n_sides = argc - optind;
	if (n_sides < 1 || n_sides > SIDES)
		usage();
	for (int s = 0; s < n_sides; s++)
		side_file[s] = argv[optind + s];
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
