/* Checkpoints of MPI programs: the messages of src/ckpt over a communicator of its own, and what
 * the Fortran module calls. Built once for each MPI.
 *
 * A process waits by asking for messages again and again, with pauses that grow to 200 us: unlike a
 * collective call of MPI, this can end after a time limit and name who did not come.
 *
 * Threads: that of the collective call. Buffers: a sent message is copied, until MPI has sent it.
 * Errors: -EIO for an error of MPI. */
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "sheaf_ckpt.h"

#define TAG 1
#define SPINS 200 /* questions without a pause */
#define PAUSE_MAX_NS 200000

struct sent {
	struct sent *next;
	MPI_Request request;
	char data[];
};

struct over_mpi {
	MPI_Comm comm;
	struct sent *sent; /* not known to have left */
};

/* Frees what has left. */
static void reap(struct over_mpi *m)
{
	struct sent **at = &m->sent;

	while (*at) {
		struct sent *s = *at;
		int left = 0;

		if (MPI_Test(&s->request, &left, MPI_STATUS_IGNORE) != MPI_SUCCESS || !left) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		free(s);
	}
}

static int mpi_send(void *arg, int to, const void *buf, size_t len)
{
	struct over_mpi *m = arg;
	struct sent *s = len <= INT32_MAX ? malloc(sizeof(*s) + len) : NULL;

	reap(m);
	if (!s)
		return -ENOMEM;
	memcpy(s->data, buf, len);
	if (MPI_Isend(s->data, (int)len, MPI_BYTE, to, TAG, m->comm, &s->request) != MPI_SUCCESS) {
		free(s);
		return -EIO;
	}
	s->next = m->sent;
	m->sent = s;
	return 0;
}

static ssize_t take(MPI_Message *message, MPI_Status *status, void **buf)
{
	int len = 0;

	if (MPI_Get_count(status, MPI_BYTE, &len) != MPI_SUCCESS || len < 0)
		return -EIO;
	*buf = malloc((size_t)len + 1);
	if (!*buf)
		return -ENOMEM;
	if (MPI_Mrecv(*buf, len, MPI_BYTE, message, MPI_STATUS_IGNORE) == MPI_SUCCESS)
		return len;
	free(*buf);
	return -EIO;
}

static void pause_for(unsigned asked)
{
	unsigned doubled = asked > SPINS ? MIN((asked - SPINS) / 16, 7U) : 0;
	const struct timespec t = { .tv_nsec = MIN(2000L << doubled, PAUSE_MAX_NS) };

	if (asked > SPINS)
		nanosleep(&t, NULL);
}

static ssize_t mpi_recv(void *arg, int from, void **buf, int timeout_ms)
{
	struct over_mpi *m = arg;
	uint64_t end = time_now() + (uint64_t)timeout_ms * NSEC_PER_MSEC;

	*buf = NULL;
	for (unsigned asked = 0;; asked++) {
		MPI_Message message;
		MPI_Status status;
		int there = 0;

		if (MPI_Improbe(from, TAG, m->comm, &there, &message, &status) != MPI_SUCCESS)
			return -EIO;
		if (there)
			return take(&message, &status, buf);
		if (time_now() >= end)
			return -ETIMEDOUT;
		pause_for(asked);
	}
}

/* What has not left by now is for a process that does not come: it is left to MPI_Finalize. */
static void mpi_free(void *arg)
{
	struct over_mpi *m = arg;

	reap(m);
	if (!m->sent) {
		MPI_Comm_free(&m->comm);
		free(m);
	}
}

int sheaf_ckpt_open_mpi(struct sheaf *fs, const char *job, MPI_Comm comm,
			const struct sheaf_ckpt_options *options, struct sheaf_ckpt **c)
{
	struct over_mpi *m = calloc(1, sizeof(*m));
	struct sheaf_ckpt_comm x = {
		.size = sizeof(x), .arg = m, .send = mpi_send, .recv = mpi_recv, .free = mpi_free
	};

	*c = NULL;
	if (!m)
		return -ENOMEM;
	if (MPI_Comm_dup(comm, &m->comm) != MPI_SUCCESS) {
		free(m);
		return -EIO;
	}
	MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
	MPI_Comm_rank(m->comm, &x.rank);
	MPI_Comm_size(m->comm, &x.n);
	return sheaf_ckpt_open(fs, job, &x, options, c);
}

/* For the Fortran module, include/sheaf_ckpt.f90, whose communicators are integers. */
SHEAF_API int sheaf_ckpt_open_fortran(struct sheaf *fs, const char *job, int comm,
				      const struct sheaf_ckpt_options *options,
				      struct sheaf_ckpt **c);

int sheaf_ckpt_open_fortran(struct sheaf *fs, const char *job, int comm,
			    const struct sheaf_ckpt_options *options, struct sheaf_ckpt **c)
{
	return sheaf_ckpt_open_mpi(fs, job, MPI_Comm_f2c((MPI_Fint)comm), options, c);
}
