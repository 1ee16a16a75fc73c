/* What a random program says: failures of our file, and faults of the MPI library's own. */
#include "lib_program.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const fault_text[FAULTS] = {
	[COUNT_AT_END] = "a read across the end of the file counts bytes behind it",
	[OTHER] =
		"another difference from what the standard says; the rest of the program is not compared",
	[POSITION] = "the position is wrong",
	[MEMORY_AT_END] =
		"a read across the end of the file changes memory that it has no bytes for",
};
long fault_count[FAULTS];

const char *side_file[SIDES];
const char *const side_name[SIDES] = { "our file", "the reference" };
int n_sides = SIDES;
bool is_traced;

void program_say(struct program *p, const char *format, ...)
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

bool side_is_strict(int side)
{
	return !strncmp(side_file[side], "sheaf:", 6);
}

/* A result of one side is not the model's: a failure of ours. The MPI library's own is not
 * looked at any more until the end of the program. */
void report_wrong(struct program *p, int side, const char *format, ...)
{
	char text[300];
	va_list args;

	if (p->is_lost[side])
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (side_is_strict(side)) {
		program_say(p, "%s: %s; last access: %s at byte %lld of the data", side_name[side],
			    text, kind_info[p->last].name, (long long)p->last_first);
		program_say(
			p,
			"repeat it with: mpiexec -n %d mpi_random ... --seed %llu --programs 1 --trace",
			p->ranks, (unsigned long long)p->seed);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	note(p, "the MPI library's own file: %s", text);
	p->is_lost[side] = true;
	fault_count[OTHER]++;
}

void must_succeed(struct program *p, int side, const char *call, int result)
{
	char text[MPI_MAX_ERROR_STRING];
	int length;

	if (result == MPI_SUCCESS)
		return;
	MPI_Error_string(result, text, &length);
	report_wrong(p, side, "%s: %s", call, text);
}

void must_equal(struct program *p, int side, const char *what, int64_t got, int64_t expected)
{
	if (got != expected)
		report_wrong(p, side, "%s is %lld, expected %lld", what, (long long)got,
			     (long long)expected);
}

/* Is it a known fault of the MPI library, and not of our file? */
bool is_known_fault(struct program *p, int side, enum fault fault)
{
	if (side_is_strict(side))
		return false;
	note(p, "fault of %s: %s", side_name[side], fault_text[fault]);
	fault_count[fault]++;
	return true;
}
