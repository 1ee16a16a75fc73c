/* The MPI library's own functions, behind those that this library overrides.
 *
 * Threads: any. Errors: a program without an MPI library cannot get here. */
#include <dlfcn.h>
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

void *mpi_next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f) {
		fprintf(stderr, "libsheaf-mpiio: the MPI library has no %s\n", name);
		abort();
	}
	return f;
}
