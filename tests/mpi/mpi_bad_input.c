/* Bad input: the error class that the standard names, at the handler of the file, and never a
 * crash.
 *
 * *     mpiexec -n N mpi_bad_input [--open] NAME */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, checks, failures;
static const char *name;
static char buffer[64];

static const char *text_of(int class)
{
	static char text[2][MPI_MAX_ERROR_STRING];
	static int next;
	int length;

	next = !next;
	MPI_Error_string(class, text[next], &length);
	return text[next];
}

static void expect(const char *what, int result, int expected)
{
	int class;

	checks++;
	MPI_Error_class(result, &class);
	if (class == expected)
		return;
	failures++;
	printf("process %d: %s: %d (%s), expected %d (%s)\n", rank, what, class, text_of(class),
	       expected, text_of(expected));
}

static int open_as(int amode, MPI_File *f)
{
	return MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, f);
}

static int set_view(MPI_File f, MPI_Offset at, MPI_Datatype etype, MPI_Datatype tile,
		    const char *rep)
{
	return MPI_File_set_view(f, at, etype, tile, rep, MPI_INFO_NULL);
}

/* ---- opening ---- */

static void opens(void)
{
	MPI_File f;
	char path[200];

	expect("no such file", open_as(MPI_MODE_RDONLY, &f), MPI_ERR_NO_SUCH_FILE);
	expect("no communicator",
	       MPI_File_open(MPI_COMM_NULL, name, MPI_MODE_RDWR, MPI_INFO_NULL, &f), MPI_ERR_COMM);
	expect("no access mode", open_as(MPI_MODE_CREATE, &f), MPI_ERR_AMODE);
	expect("two access modes", open_as(MPI_MODE_RDONLY | MPI_MODE_RDWR, &f), MPI_ERR_AMODE);
	expect("create for reading", open_as(MPI_MODE_RDONLY | MPI_MODE_CREATE, &f), MPI_ERR_AMODE);
	expect("exclusive for reading", open_as(MPI_MODE_RDONLY | MPI_MODE_EXCL, &f),
	       MPI_ERR_AMODE);
	expect("sequential for both", open_as(MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL, &f),
	       MPI_ERR_AMODE);
	if (ranks > 1)
		expect("different modes",
		       open_as(MPI_MODE_CREATE | (rank ? MPI_MODE_WRONLY : MPI_MODE_RDWR), &f),
		       MPI_ERR_NOT_SAME);
	snprintf(path, sizeof(path), "%s%d", name, rank);
	if (ranks > 1)
		expect("different names",
		       MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR,
				     MPI_INFO_NULL, &f),
		       MPI_ERR_NOT_SAME);
	expect("create", open_as(MPI_MODE_CREATE | MPI_MODE_RDWR, &f), MPI_SUCCESS);
	expect("close", MPI_File_close(&f), MPI_SUCCESS);
	expect("create again", open_as(MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, &f),
	       MPI_ERR_FILE_EXISTS);
	snprintf(path, sizeof(path), "%s/below", name);
	expect("a file as a directory",
	       MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &f),
	       MPI_ERR_BAD_FILE);
	if (rank == 0)
		expect("delete", MPI_File_delete(name, MPI_INFO_NULL), MPI_SUCCESS);
	if (rank == 0)
		expect("delete again", MPI_File_delete(name, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- arguments of a file that is open ---- */

static void views(MPI_File f)
{
	MPI_Datatype backwards, holes, unready;

	MPI_Type_vector(2, 1, -2, MPI_INT, &backwards);
	MPI_Type_commit(&backwards);
	MPI_Type_vector(2, 1, 2, MPI_SHORT, &holes);
	MPI_Type_commit(&holes);
	MPI_Type_contiguous(2, MPI_INT, &unready);
	expect("the current displacement of what is no sequence",
	       set_view(f, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native"), MPI_ERR_ARG);
	expect("an etype that is not committed", set_view(f, 0, unready, unready, "native"),
	       MPI_ERR_TYPE);
	if (ranks > 1)
		expect("different etypes",
		       set_view(f, 0, rank ? MPI_SHORT : MPI_DOUBLE, MPI_DOUBLE, "native"),
		       MPI_ERR_NOT_SAME);
	expect("a negative displacement", set_view(f, -2, MPI_INT, MPI_INT, "native"), MPI_ERR_ARG);
	expect("no etype", set_view(f, 0, MPI_DATATYPE_NULL, MPI_INT, "native"), MPI_ERR_TYPE);
	expect("no filetype", set_view(f, 0, MPI_INT, MPI_DATATYPE_NULL, "native"), MPI_ERR_TYPE);
	expect("an unknown representation", set_view(f, 0, MPI_INT, MPI_INT, "unheard-of"),
	       MPI_ERR_UNSUPPORTED_DATAREP);
	expect("a filetype that descends", set_view(f, 0, MPI_INT, backwards, "native"),
	       MPI_ERR_ARG);
	expect("a filetype of half an etype", set_view(f, 0, MPI_DOUBLE, holes, "native"),
	       MPI_ERR_ARG);
	expect("a valid view", set_view(f, 0, MPI_INT, MPI_INT, "native"), MPI_SUCCESS);
	expect("half an etype", MPI_File_write_at(f, 0, buffer, 3, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_IO);
	expect("a view at the largest offset",
	       set_view(f, INT64_MAX - 1, MPI_BYTE, MPI_BYTE, "native"), MPI_SUCCESS);
	expect("a write beyond it", MPI_File_write(f, buffer, 9, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_ARG);
	expect("bytes", set_view(f, 0, MPI_BYTE, MPI_BYTE, "native"), MPI_SUCCESS);
	MPI_Type_free(&unready);
	MPI_Type_free(&backwards);
	MPI_Type_free(&holes);
}

static void arguments(MPI_File f)
{
	MPI_Offset at;
	MPI_Request request;
	MPI_Datatype unready;

	MPI_Type_contiguous(2, MPI_INT, &unready);
	expect("a negative offset", MPI_File_read_at(f, -1, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_ARG);
	expect("a negative offset, all",
	       MPI_File_write_at_all(f, -1, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_ARG);
	expect("a negative offset, nonblocking",
	       MPI_File_iread_at(f, -1, buffer, 1, MPI_BYTE, &request), MPI_ERR_ARG);
	expect("a negative count", MPI_File_read(f, buffer, -1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_COUNT);
	expect("no datatype", MPI_File_read(f, buffer, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE),
	       MPI_ERR_TYPE);
	expect("a datatype that is not committed",
	       MPI_File_write(f, buffer, 1, unready, MPI_STATUS_IGNORE), MPI_ERR_TYPE);
	expect("the same in order",
	       MPI_File_write_ordered(f, buffer, 1, unready, MPI_STATUS_IGNORE), MPI_ERR_TYPE);
	MPI_Type_free(&unready);
	expect("no buffer", MPI_File_write(f, NULL, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_BUFFER);
	expect("an offset that is too large",
	       MPI_File_write_at(f, INT64_MAX, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_ARG);
	expect("a seek to the largest offset", MPI_File_seek(f, INT64_MAX, MPI_SEEK_SET),
	       MPI_SUCCESS);
	expect("a seek beyond it", MPI_File_seek(f, 1, MPI_SEEK_CUR), MPI_ERR_ARG);
	expect("a seek to 0", MPI_File_seek(f, 0, MPI_SEEK_SET), MPI_SUCCESS);
	expect("a seek before the beginning", MPI_File_seek(f, -1, MPI_SEEK_SET), MPI_ERR_ARG);
	expect("an unknown seek", MPI_File_seek(f, 0, 12345), MPI_ERR_ARG);
	expect("a shared seek before the beginning", MPI_File_seek_shared(f, -1, MPI_SEEK_SET),
	       MPI_ERR_ARG);
	expect("the place of a negative offset", MPI_File_get_byte_offset(f, -1, &at), MPI_ERR_ARG);
	expect("a negative size", MPI_File_set_size(f, -1), MPI_ERR_ARG);
	expect("a negative allocation", MPI_File_preallocate(f, -1), MPI_ERR_ARG);
	if (ranks > 1)
		expect("different sizes", MPI_File_set_size(f, rank), MPI_ERR_NOT_SAME);
	if (ranks > 1)
		expect("different shared seeks", MPI_File_seek_shared(f, rank, MPI_SEEK_SET),
		       MPI_ERR_NOT_SAME);
	if (ranks > 1)
		expect("different atomicity", MPI_File_set_atomicity(f, rank), MPI_ERR_NOT_SAME);
	expect("the size after all", MPI_File_get_size(f, &at), MPI_SUCCESS);
	expect("is zero", at == 0 ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* An error of one process is an error of all. */
static void collectives(MPI_File f)
{
	static const char *const methods[] = { "auto", "twophase" };
	MPI_Info info;
	char what[100];

	MPI_Info_create(&info);
	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
		MPI_Info_set(info, "sheaf_method", methods[i]);
		expect("a method", MPI_File_set_info(f, info), MPI_SUCCESS);
		snprintf(what, sizeof(what), "a negative offset in one process, %s", methods[i]);
		expect(what,
		       MPI_File_write_at_all(f, rank - (ranks - 1), buffer, 1, MPI_BYTE,
					     MPI_STATUS_IGNORE),
		       ranks > 1 ? MPI_ERR_ARG : MPI_SUCCESS);
	}
	expect("a negative count in one process",
	       MPI_File_write_ordered(f, buffer, rank - (ranks - 1), MPI_BYTE, MPI_STATUS_IGNORE),
	       ranks > 1 ? MPI_ERR_COUNT : MPI_SUCCESS);
	MPI_Info_set(info, "sheaf_method", "auto");
	expect("a method", MPI_File_set_info(f, info), MPI_SUCCESS);
	MPI_Info_free(&info);
}

/* One of the collective calls of a file that is open; it stays open if the call fails. */
enum call {
	CLOSE,
	SET_SIZE,
	PREALLOCATE,
	SYNC,
	SET_ATOMICITY,
	SET_INFO,
	SET_VIEW,
	SEEK_SHARED,
	READ_ORDERED,
	WRITE_ORDERED,
	WRITE_ORDERED_BEGIN,
	READ_AT_ALL,
	READ_ALL,
	WRITE_AT_ALL,
	WRITE_ALL,
	CALLS
};

static int make_call(MPI_File f, enum call call)
{
	switch (call) {
	case CLOSE:
		return MPI_File_close(&f);
	case SET_SIZE:
		return MPI_File_set_size(f, 10);
	case PREALLOCATE:
		return MPI_File_preallocate(f, 10);
	case SYNC:
		return MPI_File_sync(f);
	case SET_ATOMICITY:
		return MPI_File_set_atomicity(f, 0);
	case SET_INFO:
		return MPI_File_set_info(f, MPI_INFO_NULL);
	case SET_VIEW:
		return set_view(f, 0, MPI_BYTE, MPI_BYTE, "native");
	case SEEK_SHARED:
		return MPI_File_seek_shared(f, 0, MPI_SEEK_SET);
	case READ_ORDERED:
		return MPI_File_read_ordered(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE);
	case WRITE_ORDERED:
		return MPI_File_write_ordered(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE);
	case WRITE_ORDERED_BEGIN:
		return MPI_File_write_ordered_begin(f, buffer, 1, MPI_BYTE);
	case READ_AT_ALL:
		return MPI_File_read_at_all(f, 0, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE);
	case READ_ALL:
		return MPI_File_read_all(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE);
	case WRITE_AT_ALL:
		return MPI_File_write_at_all(f, rank, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE);
	default:
		return MPI_File_write_all(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE);
	}
}

/* Process 0 makes another call than the rest. */
static void different_calls(MPI_File f, const char *method, int atomic)
{
	MPI_Info info;
	char what[100];

	MPI_Info_create(&info);
	MPI_Info_set(info, "sheaf_method", method);
	expect("a method", MPI_File_set_info(f, info), MPI_SUCCESS);
	expect("atomicity", MPI_File_set_atomicity(f, atomic), MPI_SUCCESS);
	for (int i = 0; i < 4; i++) /* with auto, the next one begins with an exchange */
		expect("all write", make_call(f, WRITE_AT_ALL), MPI_SUCCESS);
	for (enum call i = 0; i < CALLS; i++)
		for (enum call k = 0; k < i; k++) {
			snprintf(what, sizeof(what), "calls %d and %d, %s", i, k, method);
			expect(what, make_call(f, rank ? k : i), MPI_ERR_NOT_SAME);
		}
	for (enum call i = SET_SIZE; i < CALLS; i++)
		if (i != WRITE_ORDERED_BEGIN)
			expect("the same call", make_call(f, i), MPI_SUCCESS);
	MPI_Info_set(info, "sheaf_method", "auto");
	expect("a method", MPI_File_set_info(f, info), MPI_SUCCESS);
	expect("no atomicity", MPI_File_set_atomicity(f, 0), MPI_SUCCESS);
	MPI_Info_free(&info);
}

static void splits(MPI_File f)
{
	char other[1];

	expect("an end without begin", MPI_File_read_all_end(f, buffer, MPI_STATUS_IGNORE),
	       MPI_ERR_OTHER);
	expect("begin", MPI_File_write_all_begin(f, buffer, 1, MPI_BYTE), MPI_SUCCESS);
	expect("begin twice", MPI_File_read_all_begin(f, other, 1, MPI_BYTE), MPI_ERR_OTHER);
	expect("the end of another call", MPI_File_read_all_end(f, buffer, MPI_STATUS_IGNORE),
	       MPI_ERR_OTHER);
	expect("close meanwhile", MPI_File_close(&f), MPI_ERR_OTHER);
	expect("end", MPI_File_write_all_end(f, buffer, MPI_STATUS_IGNORE), MPI_SUCCESS);
}

static void open_files(void)
{
	MPI_File f, copy;
	MPI_Offset size;

	expect("open", open_as(MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, &f),
	       MPI_SUCCESS);
	views(f);
	arguments(f);
	collectives(f);
	if (ranks > 1) {
		different_calls(f, "auto", 0);
		different_calls(f, "auto", 1);
		different_calls(f, "twophase", 0);
	}
	splits(f);
	copy = f;
	expect("close", MPI_File_close(&f), MPI_SUCCESS);
	expect("the handle is gone", f == MPI_FILE_NULL ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS);
	expect("a file that is closed", MPI_File_get_size(copy, &size), MPI_ERR_FILE);
	expect("closed again", MPI_File_close(&copy), MPI_ERR_FILE);
	expect("no file", MPI_File_get_size(MPI_FILE_NULL, &size), MPI_ERR_FILE);
	expect("no file to read", MPI_File_read(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_FILE);
}

/* ---- access modes ---- */

static void read_only(void)
{
	MPI_File f;
	MPI_Request request;

	expect("make", open_as(MPI_MODE_CREATE | MPI_MODE_WRONLY, &f), MPI_SUCCESS);
	expect("read what is for writing", MPI_File_read(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_ACCESS);
	expect("all read it", MPI_File_read_all(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_ACCESS);
	expect("close", MPI_File_close(&f), MPI_SUCCESS);
	expect("open for reading", open_as(MPI_MODE_RDONLY, &f), MPI_SUCCESS);
	expect("write what is for reading",
	       MPI_File_write(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
	expect("all write it", MPI_File_write_all(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_READ_ONLY);
	expect("nonblocking", MPI_File_iwrite(f, buffer, 1, MPI_BYTE, &request), MPI_ERR_READ_ONLY);
	expect("by the shared pointer",
	       MPI_File_write_shared(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
	expect("in order", MPI_File_write_ordered(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_READ_ONLY);
	expect("in parts", MPI_File_write_all_begin(f, buffer, 1, MPI_BYTE), MPI_ERR_READ_ONLY);
	expect("set its size", MPI_File_set_size(f, 10), MPI_ERR_READ_ONLY);
	expect("preallocate it", MPI_File_preallocate(f, 10), MPI_ERR_READ_ONLY);
	expect("close", MPI_File_close(&f), MPI_SUCCESS);
}

static void sequence_calls(MPI_File f)
{
	MPI_Offset at;

	expect("seek in a sequence", MPI_File_seek(f, 0, MPI_SEEK_SET),
	       MPI_ERR_UNSUPPORTED_OPERATION);
	expect("seek it for all", MPI_File_seek_shared(f, 0, MPI_SEEK_SET),
	       MPI_ERR_UNSUPPORTED_OPERATION);
	expect("the position in a sequence", MPI_File_get_position(f, &at),
	       MPI_ERR_UNSUPPORTED_OPERATION);
	expect("a place in a sequence", MPI_File_get_byte_offset(f, 0, &at),
	       MPI_ERR_UNSUPPORTED_OPERATION);
	expect("the size of a sequence", MPI_File_set_size(f, 10), MPI_ERR_UNSUPPORTED_OPERATION);
	expect("allocate it", MPI_File_preallocate(f, 10), MPI_ERR_UNSUPPORTED_OPERATION);
	expect("write at a place of it",
	       MPI_File_write_at(f, 0, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_UNSUPPORTED_OPERATION);
	expect("write at its own pointer",
	       MPI_File_write(f, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_UNSUPPORTED_OPERATION);
	expect("all write at a place of it",
	       MPI_File_write_at_all(f, 0, buffer, 1, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_ERR_UNSUPPORTED_OPERATION);
	expect("a view that is elsewhere", set_view(f, 0, MPI_BYTE, MPI_BYTE, "native"),
	       MPI_ERR_ARG);
}

/* Each view of a sequence begins where the data before it end. */
static void sequences(void)
{
	char out[2] = { 'a', 'b' }, in[64] = { 0 };
	MPI_Datatype every_other;
	MPI_File f;

	expect("open as a sequence",
	       open_as(MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, &f), MPI_SUCCESS);
	sequence_calls(f);
	expect("append to it", MPI_File_write_ordered(f, out, 2, MPI_BYTE, MPI_STATUS_IGNORE),
	       MPI_SUCCESS);
	MPI_Type_create_resized(MPI_CHAR, 0, 2, &every_other);
	MPI_Type_commit(&every_other);
	expect("the current displacement",
	       set_view(f, MPI_DISPLACEMENT_CURRENT, MPI_CHAR, every_other, "native"), MPI_SUCCESS);
	MPI_Type_free(&every_other);
	expect("append by it", MPI_File_write_ordered(f, out, 2, MPI_CHAR, MPI_STATUS_IGNORE),
	       MPI_SUCCESS);
	expect("close", MPI_File_close(&f), MPI_SUCCESS);

	expect("open for reading",
	       open_as(MPI_MODE_RDONLY | MPI_MODE_SEQUENTIAL | MPI_MODE_DELETE_ON_CLOSE, &f),
	       MPI_SUCCESS);
	if (rank == 0)
		expect("read it",
		       MPI_File_read_shared(f, in, 6 * ranks, MPI_CHAR, MPI_STATUS_IGNORE),
		       MPI_SUCCESS);
	for (int i = 0; i < 2 * ranks && rank == 0; i++) {
		expect("the data", in[i] == out[i % 2] ? 0 : MPI_ERR_OTHER, 0);
		expect("the data with gaps",
		       in[2 * ranks + 2 * i] == out[i % 2] ? 0 : MPI_ERR_OTHER, 0);
	}
	expect("close", MPI_File_close(&f), MPI_SUCCESS);
}

/* ---- error handlers ---- */

static MPI_File raised_on;
static int raised, raised_class;

static void handler(MPI_File *f, int *error, ...)
{
	raised++;
	raised_on = *f;
	MPI_Error_class(*error, &raised_class);
}

static void handlers(void)
{
	MPI_Errhandler own, got;
	MPI_File f;

	expect("open", open_as(MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, &f),
	       MPI_SUCCESS);
	MPI_File_get_errhandler(f, &got);
	expect("errors return", got == MPI_ERRORS_RETURN ? MPI_SUCCESS : MPI_ERR_OTHER,
	       MPI_SUCCESS);
	MPI_File_create_errhandler(handler, &own);
	expect("set it", MPI_File_set_errhandler(f, own), MPI_SUCCESS);
	expect("an error", MPI_File_seek(f, -1, MPI_SEEK_SET), MPI_ERR_ARG);
	expect("raised once", raised == 1 ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS);
	expect("for this file", raised_on == f ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS);
	expect("with its class", raised_class, MPI_ERR_ARG);
	expect("call it", MPI_File_call_errhandler(f, MPI_ERR_QUOTA), MPI_SUCCESS);
	expect("with the class of the call", raised_class, MPI_ERR_QUOTA);
	MPI_File_get_errhandler(f, &got);
	expect("the one that was set", got == own ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS);
	expect("close", MPI_File_close(&f), MPI_SUCCESS);

	raised = 0;
	MPI_File_set_errhandler(MPI_FILE_NULL, own);
	expect("an error of an open", open_as(MPI_MODE_RDONLY, &f), MPI_ERR_NO_SUCH_FILE);
	expect("raised once at the default", raised == 1 ? MPI_SUCCESS : MPI_ERR_OTHER,
	       MPI_SUCCESS);
	expect("with the class", raised_class, MPI_ERR_NO_SUCH_FILE);
	MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
	MPI_Errhandler_free(&own);
}

/* --open: exit status 3 if all processes are told that it cannot be opened */
static int only_open(void)
{
	MPI_File f;
	int result = open_as(MPI_MODE_CREATE | MPI_MODE_RDWR, &f), class, most;

	MPI_Error_class(result, &class);
	class = class == MPI_ERR_IO ? 3 : 1;
	MPI_Allreduce(&class, &most, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	MPI_Finalize();
	return most;
}

int main(int argc, char **argv)
{
	int all[2], mine[2];

	MPI_Init(&argc, &argv);
	if (argc == 3 && !strcmp(argv[1], "--open")) {
		name = argv[2];
		return only_open();
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	name = argc > 1 ? argv[1] : "sheaf:/errors";
	opens();
	open_files();
	read_only();
	sequences();
	handlers();
	mine[0] = checks;
	mine[1] = failures;
	MPI_Allreduce(mine, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d checks, %d failed\n", all[0], all[1]);
	MPI_Finalize();
	return all[1] != 0;
}
