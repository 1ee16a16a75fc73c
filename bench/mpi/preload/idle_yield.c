/* For LD_PRELOAD: ranks of MPICH that have nothing to do leave the processor to others.
 *
 * MPICH polls without pause while it waits, and has no setting against that (Debian's 4.0 calls no
 * sched_yield; MPIR_CVAR_POLLS_BEFORE_YIELD changes nothing). With more ranks and servers than
 * processors, a polling rank takes the time of the one that it waits for. Each poll goes through
 * this function of UCX, which says how much happened: after some polls without an event it sleeps
 * for the shortest time that the kernel offers. Open MPI has --mca mpi_yield_when_idle 1. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#define IDLE_POLLS 64 /* before it sleeps */

__attribute__((visibility("default"))) unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker)
{
	static unsigned (*progress)(void *worker);
	static __thread unsigned idle;
	const struct timespec shortest = { 0, 1 };
	unsigned events;

	if (!progress)
		*(void **)&progress = dlsym(RTLD_NEXT, "ucp_worker_progress");
	if (!progress)
		abort();
	events = progress(worker);
	idle = events ? 0 : idle + 1;
	if (idle >= IDLE_POLLS)
		nanosleep(&shortest, NULL);
	return events;
}
