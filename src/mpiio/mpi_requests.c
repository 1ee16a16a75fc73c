/* Nonblocking accesses: generalized requests of MPI, whose transfers libsheaf moves on.
 *
 * libsheaf's helper thread drives a started transfer while the program computes. MPICH asks for its
 * state from MPI_Test() and MPI_Wait() (MPIX_Grequest_start). Other MPI libraries cannot ask, so a
 * thread of this library waits for transfers and completes their requests; MPI is then initialized
 * with MPI_THREAD_MULTIPLE, whatever the program asked for.
 *
 * Threads: those of the program, and that one. Buffers: the program's, until the request ends.
 * Errors: in the status of the request, and returned by MPI_Wait() and its kind. */
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

struct mrequest {
	struct maccess *a;
	struct sheaf_op *op; /* NULL: has ended */
	ssize_t moved;
	int class; /* the result, when op is NULL */
	MPI_Request req;
	bool is_complete; /* MPI was told */
	struct mrequest *next; /* in the queue of the thread */
};

static void finish(struct mrequest *r, ssize_t moved)
{
	r->op = NULL;
	r->moved = moved;
	r->class = maccess_finish(r->a, moved);
}

static void start(struct mrequest *r)
{
	bool alone;
	int e;

	if (!r->a->bytes) {
		finish(r, 0);
		return;
	}
	/* unless it is locked out, sieving of another process may write old bytes back */
	alone = r->a->f->is_atomic || (r->a->write && r->a->method == M_SIEVE);
	e = alone ? -EAGAIN : maccess_start(r->a, &r->op);
	if (e == -EAGAIN) /* it has to end within the call */
		finish(r, maccess_move(r->a));
	else if (e)
		finish(r, e);
}

static void destroy(struct mrequest *r)
{
	maccess_end(r->a);
	free(r->a);
	free(r);
}

/* ---- what MPI calls ---- */

static int query(void *state, MPI_Status *st)
{
	struct mrequest *r = state;

	mstatus_set(st, r->a, r->moved);
	st->MPI_SOURCE = MPI_UNDEFINED;
	st->MPI_TAG = MPI_UNDEFINED;
	st->MPI_ERROR = r->class;
	return r->class;
}

static int release(void *state)
{
	destroy(state);
	return MPI_SUCCESS;
}

static int cancel(void *state, int complete)
{
	(void)state;
	(void)complete;
	return MPI_SUCCESS; /* an access cannot be cancelled */
}

#ifdef MPICH_VERSION

/* MPICH polls requests that are complete, too. */
static int complete(struct mrequest *r)
{
	if (r->is_complete)
		return MPI_SUCCESS;
	r->is_complete = true;
	return PMPI_Grequest_complete(r->req);
}

static int poll_one(void *state, MPI_Status *st)
{
	struct mrequest *r = state;
	ssize_t moved;

	(void)st;
	if (r->op && !sheaf_test(r->op, &moved))
		return MPI_SUCCESS;
	if (r->op)
		finish(r, moved);
	return complete(r);
}

static int wait_all(int n, void **states, double timeout, MPI_Status *st)
{
	(void)timeout;
	for (int i = 0; i < n; i++) {
		struct mrequest *r = states[i];

		if (r->op)
			finish(r, sheaf_wait(r->op));
		poll_one(r, st);
	}
	return MPI_SUCCESS;
}

static int begin_request(struct mrequest *r)
{
	return PMPIX_Grequest_start(query, release, cancel, poll_one, wait_all, r, &r->req);
}

static void ready(struct mrequest *r)
{
	if (!r->op)
		complete(r);
}

#else

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct mrequest *first, **last = &first;
static bool has_thread;

static void *wait_for_transfers(void *unused)
{
	struct mrequest *r;

	(void)unused;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!first)
			pthread_cond_wait(&more, &lock);
		r = first;
		first = r->next;
		if (!first)
			last = &first;
		pthread_mutex_unlock(&lock);
		if (r->op)
			finish(r, sheaf_wait(r->op));
		PMPI_Grequest_complete(r->req);
	}
	return NULL;
}

static int start_thread(void)
{
	pthread_t t;
	int e = 0;

	pthread_mutex_lock(&lock);
	if (!has_thread) {
		e = pthread_create(&t, NULL, wait_for_transfers, NULL);
		if (!e)
			pthread_detach(t);
		has_thread = !e;
	}
	pthread_mutex_unlock(&lock);
	return e;
}

static int begin_request(struct mrequest *r)
{
	if (start_thread())
		return MPI_ERR_NO_MEM;
	return PMPI_Grequest_start(query, release, cancel, r, &r->req);
}

static void ready(struct mrequest *r)
{
	pthread_mutex_lock(&lock);
	r->next = NULL;
	*last = r;
	last = &r->next;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&lock);
}

#endif

/* ---- requests ---- */

static struct mrequest *new_request(struct maccess *a)
{
	struct mrequest *r = calloc(1, sizeof(*r));

	if (r) {
		r->a = a;
		return r;
	}
	maccess_end(a);
	free(a);
	return NULL;
}

int mrequest_start(struct maccess *a, MPI_Request *req)
{
	struct mrequest *r = new_request(a);
	int e;

	if (!r)
		return MPI_ERR_NO_MEM;
	e = begin_request(r);
	if (e) {
		destroy(r);
		return e;
	}
	start(r);
	*req = r->req;
	ready(r);
	return MPI_SUCCESS;
}

struct mrequest *mrequest_split(struct maccess *a, int *error)
{
	struct mrequest *r = new_request(a);

	*error = r ? MPI_SUCCESS : MPI_ERR_NO_MEM;
	if (r)
		start(r);
	return r;
}

int mrequest_wait(struct mrequest *r, MPI_Status *st)
{
	int class;

	if (r->op)
		finish(r, sheaf_wait(r->op));
	class = r->class;
	if (!class)
		mstatus_set(st, r->a, r->moved);
	destroy(r);
	return class;
}
