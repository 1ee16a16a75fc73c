/* How this library defines calls of MPI: PMPI_x, because wrappers for Fortran and tools call that
 * directly, and MPI_x as another name of it. Private to src/mpiio. */
#ifndef SHEAF_MPI_CALLS_H
#define SHEAF_MPI_CALLS_H

#include "mpiio/mpi_impl.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS_(name, of) \
	extern __typeof__(of) name __attribute__((alias(#of), visibility("default")))
#define ALIAS(name, of) ALIAS_(name, of) /* expands its arguments first */

#endif
