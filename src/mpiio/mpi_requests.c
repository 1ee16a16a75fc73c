/* Nonblocking accesses: generalized requests of MPI, whose transfers libsheaf moves on.
 *
 * libsheaf's helper thread drives a started transfer while the program computes. MPICH asks for its
 * state from MPI_Test() and MPI_Wait() (MPIX_Grequest_start). Other MPI libraries cannot ask, so a
 * thread of this library waits for transfers and completes their requests; MPI is then initialized
 * with MPI_THREAD_MULTIPLE, whatever the program asked for. With each MPI that thread also does
 * those accesses that take locks, from the first to the last step.
 *
 * Threads: those of the program, and that one. Buffers: the program's, until the request ends.
 * Errors: in the status of the request, and returned by MPI_Wait() and its kind. */
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

struct mrequest {
	struct maccess *a;
	enum { TRANSFER, BY_THREAD, ENDED } state; /* libsheaf's or the thread's, until it ends */
	struct sheaf_op *op; /* TRANSFER */
	bool has_moved; /* BY_THREAD: done; guarded by the lock */
	ssize_t moved;
	int class; /* ENDED: the result */
	MPI_Request req; /* MPI_REQUEST_NULL: a split access */
	bool is_complete; /* MPI was told */
	struct mrequest *next; /* in the queue of the thread */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the queue and has_moved */
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, moved_one = PTHREAD_COND_INITIALIZER;
static struct mrequest *first, **last = &first;
static bool has_thread;

/* ---- the access ---- */

static void finish(struct mrequest *r, ssize_t moved)
{
	r->state = ENDED;
	r->moved = moved;
	r->class = maccess_finish(r->a, moved);
}

/* Ends it if it is done; may_wait: when it is done. */
static void settle(struct mrequest *r, bool may_wait)
{
	ssize_t moved;
	bool has_moved;

	if (r->state == TRANSFER && may_wait) {
		finish(r, sheaf_wait(r->op));
	} else if (r->state == TRANSFER) {
		if (sheaf_test(r->op, &moved))
			finish(r, moved);
	} else if (r->state == BY_THREAD) {
		pthread_mutex_lock(&lock);
		while (may_wait && !r->has_moved)
			pthread_cond_wait(&moved_one, &lock);
		has_moved = r->has_moved;
		pthread_mutex_unlock(&lock);
		if (has_moved)
			finish(r, r->moved);
	}
}

/* Is it of many steps? Atomic accesses lock; sieving of another process may write old bytes back
 * unless it is locked out. */
static bool needs_thread(const struct maccess *a)
{
	return a->f->is_atomic || (a->write && a->method == M_SIEVE);
}

static void start(struct mrequest *r)
{
	struct maccess *a = r->a;
	int e;

	if (!a->bytes) {
		finish(r, 0);
		return;
	}
	r->state = needs_thread(a) ? BY_THREAD : TRANSFER;
	e = r->state == BY_THREAD ? mfile_open_own(a->f) : maccess_start(a, &r->op);
	if (e)
		finish(r, e);
}

static void destroy(struct mrequest *r)
{
	maccess_end(r->a);
	free(r->a);
	free(r);
}

/* ---- the thread ---- */

static void do_request(struct mrequest *r);

static void *do_requests(void *unused)
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
		do_request(r);
	}
	return NULL;
}

/* By the thread. r of a split access may be gone when this returns; with MPICH, any. */
static void move_by_thread(struct mrequest *r)
{
	ssize_t moved = maccess_move(r->a);

	pthread_mutex_lock(&lock);
	r->moved = moved;
	r->has_moved = true;
	pthread_cond_broadcast(&moved_one);
	pthread_mutex_unlock(&lock);
}

/* Without the thread, the caller does what it would. */
static void give_to_thread(struct mrequest *r)
{
	pthread_t t;

	pthread_mutex_lock(&lock);
	if (!has_thread && !pthread_create(&t, NULL, do_requests, NULL)) {
		pthread_detach(t);
		has_thread = true;
	}
	if (has_thread) {
		r->next = NULL;
		*last = r;
		last = &r->next;
		pthread_cond_signal(&more);
	}
	pthread_mutex_unlock(&lock);
	if (!has_thread)
		do_request(r);
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

	(void)st;
	settle(r, false);
	return r->state == ENDED ? complete(r) : MPI_SUCCESS;
}

static int wait_all(int n, void **states, double timeout, MPI_Status *st)
{
	(void)timeout;
	(void)st;
	for (int i = 0; i < n; i++) {
		settle(states[i], true);
		complete(states[i]);
	}
	return MPI_SUCCESS;
}

static int begin_request(struct mrequest *r)
{
	return PMPIX_Grequest_start(query, release, cancel, poll_one, wait_all, r, &r->req);
}

static void do_request(struct mrequest *r)
{
	move_by_thread(r);
}

static void ready(struct mrequest *r)
{
	if (r->state == ENDED)
		complete(r);
	else if (r->state == BY_THREAD)
		give_to_thread(r);
}

#else

static int begin_request(struct mrequest *r)
{
	return PMPI_Grequest_start(query, release, cancel, r, &r->req);
}

static void do_request(struct mrequest *r)
{
	bool is_split = r->req == MPI_REQUEST_NULL;

	if (r->state == BY_THREAD)
		move_by_thread(r);
	if (is_split)
		return;
	settle(r, true);
	PMPI_Grequest_complete(r->req);
}

static void ready(struct mrequest *r)
{
	give_to_thread(r);
}

#endif

/* ---- requests ---- */

static struct mrequest *new_request(struct maccess *a)
{
	struct mrequest *r = calloc(1, sizeof(*r));

	if (r) {
		r->a = a;
		r->req = MPI_REQUEST_NULL;
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
	if (!r)
		return NULL;
	start(r);
	if (r->state == BY_THREAD)
		give_to_thread(r);
	return r;
}

int mrequest_wait(struct mrequest *r, MPI_Status *st)
{
	int class;

	settle(r, true);
	class = r->class;
	if (!class)
		mstatus_set(st, r->a, r->moved);
	destroy(r);
	return class;
}
