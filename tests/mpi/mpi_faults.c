/* Collective accesses while mpi_faults.sh kills processes and servers and fills disks.
 *
 *     mpiexec -n N mpi_faults [OPTION...] NAME
 *         --method M          the hint sheaf_method
 *         --log FILE          a line for each round; the file FILE.stop ends them
 *         --rounds N          at most N
 *         --die before|in     process 1 kills itself in the third round: before, or in a collective
 *         --fill              writes until there is no space, instead of rounds
 *         --stop PID          stops this server while nonblocking accesses begin
 *
 * In a round all processes write pieces that alternate, and read those of another process back.
 * Data that do not arrive, and calls that fail, end the program. */
#include <getopt.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIECE 700
#define PIECES 256
#define BYTES (PIECE * PIECES) /* of a process in a round */
#define REGIONS 3 /* rounds until the same place is written again */
#define DIE_IN 2

static const char *name, *method = "auto", *log_name, *die;
static int rank, ranks, rounds = 1000000;
static char data[BYTES], back[BYTES];

static void must(const char *what, int result, int expected)
{
	char text[MPI_MAX_ERROR_STRING];
	int class, length;

	MPI_Error_class(result, &class);
	if (class == expected)
		return;
	MPI_Error_string(result, text, &length);
	fprintf(stderr, "process %d: %s: %s\n", rank, what, text);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* fsync and close say once that a server which was killed may have lost data. */
static void must_but_io(const char *what, int result)
{
	int class;

	MPI_Error_class(result, &class);
	if (class != MPI_ERR_IO)
		must(what, result, MPI_SUCCESS);
}

static MPI_File open_file(int amode)
{
	MPI_Info info;
	MPI_File f;

	MPI_Info_create(&info);
	MPI_Info_set(info, "sheaf_method", method);
	MPI_Info_set(info, "striping_unit", "16384");
	must("open", MPI_File_open(MPI_COMM_WORLD, name, amode, info, &f), MPI_SUCCESS);
	MPI_Info_free(&info);
	return f;
}

/* ---- rounds ---- */

static void make_data(char *out, int of, int round)
{
	for (int i = 0; i < BYTES; i++)
		out[i] = (char)(of * 31 + round * 7 + i / PIECE * 3 + i);
}

/* The pieces of one process in the region of a round. */
static void view(MPI_File f, int of, int round)
{
	MPI_Offset region = (MPI_Offset)ranks * BYTES;
	MPI_Datatype piece, tile;

	MPI_Type_contiguous(PIECE, MPI_BYTE, &piece);
	MPI_Type_create_resized(piece, 0, (MPI_Aint)ranks * PIECE, &tile);
	MPI_Type_commit(&tile);
	must("set_view",
	     MPI_File_set_view(f, round % REGIONS * region + of * PIECE, MPI_BYTE, tile, "native",
			       MPI_INFO_NULL),
	     MPI_SUCCESS);
	MPI_Type_free(&tile);
	MPI_Type_free(&piece);
}

static void read_back(MPI_File f, int of, int round)
{
	MPI_Status status;
	int count;

	view(f, of, round);
	memset(back, 0, BYTES);
	must("read_at_all", MPI_File_read_at_all(f, 0, back, BYTES, MPI_BYTE, &status),
	     MPI_SUCCESS);
	MPI_Get_count(&status, MPI_BYTE, &count);
	make_data(data, of, round);
	for (int i = 0; i < BYTES; i++)
		if (count != BYTES || back[i] != data[i]) {
			fprintf(stderr, "process %d, round %d: %d bytes read, byte %d is wrong\n",
				rank, round, count, i);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

static void *kill_process(void *delay_ns)
{
	struct timespec delay = { .tv_nsec = (long)delay_ns };

	nanosleep(&delay, NULL);
	kill(getpid(), SIGKILL);
	return NULL;
}

static void die_if_due(int round)
{
	pthread_t thread;

	if (!die || rank != 1 || round != DIE_IN)
		return;
	if (strcmp(die, "in") != 0)
		kill(getpid(), SIGKILL);
	pthread_create(&thread, NULL, kill_process, (void *)(getpid() * 7919L % 5000000));
}

static void one_round(MPI_File f, int round)
{
	view(f, rank, round);
	make_data(data, rank, round);
	die_if_due(round);
	must("write_at_all", MPI_File_write_at_all(f, 0, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE),
	     MPI_SUCCESS);
	must_but_io("sync", MPI_File_sync(f));
	MPI_Barrier(MPI_COMM_WORLD);
	must_but_io("sync", MPI_File_sync(f));
	read_back(f, (rank + 1) % ranks, round);
}

/* Process 0 decides for all. */
static int is_ended(int round)
{
	char stop[1000];
	int ended = round == rounds;
	FILE *log;

	if (rank == 0 && log_name) {
		log = fopen(log_name, "a");
		fprintf(log, "%d\n", round);
		fclose(log);
		snprintf(stop, sizeof(stop), "%s.stop", log_name);
		ended |= !access(stop, F_OK);
	}
	MPI_Bcast(&ended, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return ended && round >= REGIONS;
}

static void many_rounds(void)
{
	MPI_File f = open_file(MPI_MODE_CREATE | MPI_MODE_RDWR);
	int n;

	for (n = 0; !is_ended(n) || (die && n <= DIE_IN); n++)
		one_round(f, n);
	while (die) /* the signal is under way */
		one_round(f, n);
	must_but_io("close", MPI_File_close(&f));
	f = open_file(MPI_MODE_RDONLY);
	for (int i = n - REGIONS; i < n; i++)
		read_back(f, rank, i);
	must("close", MPI_File_close(&f), MPI_SUCCESS);
	if (rank == 0)
		printf("%d rounds\n", n);
}

/* ---- a full disk ---- */

enum way { ALL, EMPTY_ALL, ORDERED, INDEPENDENT, NONBLOCKING, SPLIT, WAYS };
static const char *const way_name[WAYS] = { "write_at_all",  "write_at_all, of one process only",
					    "write_ordered", "write_at",
					    "iwrite_at",     "write_at_all_begin" };

#define CHUNK (1 << 20)

static int write_chunk(MPI_File f, enum way way, MPI_Offset at, const char *chunk)
{
	MPI_Status status;
	MPI_Request request;
	int r;

	switch (way) {
	case ALL:
		return MPI_File_write_at_all(f, at, chunk, CHUNK, MPI_BYTE, &status);
	case EMPTY_ALL: /* the others have nothing to write */
		return MPI_File_write_at_all(f, at, chunk, rank ? 0 : CHUNK, MPI_BYTE, &status);
	case ORDERED:
		return MPI_File_write_ordered(f, chunk, CHUNK, MPI_BYTE, &status);
	case INDEPENDENT:
		return MPI_File_write_at(f, at, chunk, CHUNK, MPI_BYTE, &status);
	case NONBLOCKING:
		r = MPI_File_iwrite_at(f, at, chunk, CHUNK, MPI_BYTE, &request);
		return r ? r : MPI_Wait(&request, &status);
	default:
		r = MPI_File_write_at_all_begin(f, at, chunk, CHUNK, MPI_BYTE);
		return r ? r : MPI_File_write_at_all_end(f, chunk, &status);
	}
}

/* Writes until a call fails; collective calls fail in all processes at a time. */
static void fill_disk(MPI_File f, enum way way, const char *chunk)
{
	bool is_collective = way == ALL || way == EMPTY_ALL || way == ORDERED;
	int r = MPI_SUCCESS, class = MPI_SUCCESS, others = MPI_SUCCESS;
	MPI_Offset step = 0;

	while (others == MPI_SUCCESS) {
		MPI_Offset at = (step++ * ranks + rank) * (MPI_Offset)CHUNK;

		r = r ? r : write_chunk(f, way, at, chunk);
		MPI_Error_class(r, &class);
		MPI_Allreduce(&class, &others, 1, MPI_INT, is_collective ? MPI_MAX : MPI_MIN,
			      MPI_COMM_WORLD);
		if (step > 1000)
			must("the disk is never full", MPI_ERR_OTHER, MPI_SUCCESS);
	}
	must(way_name[way], r, MPI_ERR_NO_SPACE);
}

static void fill(void)
{
	char *chunk = malloc(CHUNK);

	memset(chunk, 7, CHUNK);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* of MPI_Wait */
	for (enum way way = 0; way < WAYS; way++) {
		MPI_File f = open_file(MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);

		fill_disk(f, way, chunk);
		must("set_size", MPI_File_set_size(f, 0), MPI_SUCCESS);
		for (int n = 0; n < REGIONS; n++) /* there is space again */
			one_round(f, n);
		must("close", MPI_File_close(&f), MPI_SUCCESS);
	}
	free(chunk);
	if (rank == 0)
		printf("%d ways\n", WAYS);
}

/* ---- overlap ---- */

/* The server does not answer between the begin and the first test of an access: only one that goes
 * on after the call gets there. */
static void begin_while_stopped(MPI_File f, pid_t server, bool write)
{
	MPI_Request request;
	MPI_Status status;
	int is_done;

	kill(server, SIGSTOP);
	if (write)
		must("iwrite_at", MPI_File_iwrite_at(f, 0, data, BYTES / 4, MPI_INT, &request),
		     MPI_SUCCESS);
	else
		must("iread_at", MPI_File_iread_at(f, 0, back, BYTES / 4, MPI_INT, &request),
		     MPI_SUCCESS);
	must("test", MPI_Test(&request, &is_done, &status), MPI_SUCCESS);
	must("it has not ended", is_done ? MPI_ERR_OTHER : MPI_SUCCESS, MPI_SUCCESS);
	kill(server, SIGCONT);
	must("wait", MPI_Wait(&request, &status), MPI_SUCCESS);
}

static void split_while_stopped(MPI_File f, pid_t server)
{
	kill(server, SIGSTOP);
	must("begin", MPI_File_write_at_all_begin(f, 0, data, BYTES / 4, MPI_INT), MPI_SUCCESS);
	kill(server, SIGCONT);
	must("end", MPI_File_write_at_all_end(f, data, MPI_STATUS_IGNORE), MPI_SUCCESS);
}

static void overlap_as(const char *how, const char *rep, bool is_atomic, pid_t server)
{
	MPI_Datatype tile;
	MPI_File f;

	method = how;
	f = open_file(MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
	MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &tile);
	MPI_Type_commit(&tile);
	must("set_view", MPI_File_set_view(f, 0, MPI_INT, tile, rep, MPI_INFO_NULL), MPI_SUCCESS);
	MPI_Type_free(&tile);
	must("set_atomicity", MPI_File_set_atomicity(f, is_atomic), MPI_SUCCESS);
	make_data(data, rank, 0);
	must("write_at", MPI_File_write_at(f, 0, data, BYTES / 4, MPI_INT, MPI_STATUS_IGNORE),
	     MPI_SUCCESS); /* connects to all servers */
	make_data(data, rank, 1);
	begin_while_stopped(f, server, true);
	begin_while_stopped(f, server, false);
	must("the data", memcmp(data, back, BYTES) ? MPI_ERR_OTHER : MPI_SUCCESS, MPI_SUCCESS);
	split_while_stopped(f, server);
	must("close", MPI_File_close(&f), MPI_SUCCESS);
}

static void overlap(pid_t server)
{
	overlap_as("typed", "native", false, server);
	overlap_as("typed", "external32", false, server);
	overlap_as("typed", "native", true, server);
	overlap_as("sieve", "native", false, server);
	printf("4 kinds\n");
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "method", 1, NULL, 'm' },
						 { "log", 1, NULL, 'l' },
						 { "rounds", 1, NULL, 'r' },
						 { "die", 1, NULL, 'd' },
						 { "fill", 0, NULL, 'f' },
						 { "stop", 1, NULL, 's' },
						 { 0 } };
	bool fills = false;
	pid_t server = 0;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'm')
			method = optarg;
		else if (option == 'l')
			log_name = optarg;
		else if (option == 'r')
			rounds = atoi(optarg);
		else if (option == 'd')
			die = optarg;
		else if (option == 'f')
			fills = true;
		else if (option == 's')
			server = atoi(optarg);
		else
			return 2;
	}
	name = argv[optind];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (server)
		overlap(server);
	else if (fills)
		fill();
	else
		many_rounds();
	MPI_Finalize();
	return 0;
}
