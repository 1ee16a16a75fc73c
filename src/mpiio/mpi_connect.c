/* Connections: one for each cluster file that this process uses. They end with MPI, by an attribute
 * of MPI_COMM_SELF, which MPI_Finalize() deletes first.
 *
 * Threads: any. Errors: -errno, with a text for people. */
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

struct connection {
	struct connection *next;
	struct sheaf *fs;
	char conf[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct connection *connections;
static int key = MPI_KEYVAL_INVALID;

static int finalize(MPI_Comm comm, int k, void *value, void *extra)
{
	struct connection *c;

	(void)comm;
	(void)k;
	(void)value;
	(void)extra;
	pthread_mutex_lock(&lock);
	while ((c = connections)) {
		connections = c->next;
		sheaf_disconnect(c->fs);
		free(c);
	}
	pthread_mutex_unlock(&lock);
	return MPI_SUCCESS;
}

static int connect_new(const char *conf, struct sheaf **fs, const char **why)
{
	struct connection *c = calloc(1, sizeof(*c) + strlen(conf) + 1);
	int r;

	if (!c)
		return -ENOMEM;
	strcpy(c->conf, conf);
	r = sheaf_connect(*conf ? conf : NULL, &c->fs);
	if (r) {
		*why = sheaf_why();
		free(c);
		return r;
	}
	if (key == MPI_KEYVAL_INVALID &&
	    !PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalize, &key, NULL))
		PMPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
	c->next = connections;
	connections = c;
	*fs = c->fs;
	return 0;
}

int mconnect(const char *conf, struct sheaf **fs, const char **why)
{
	struct connection *c;
	int r = 0;

	*why = "";
	pthread_mutex_lock(&lock);
	for (c = connections; c && strcmp(c->conf, conf) != 0; c = c->next)
		;
	if (c)
		*fs = c->fs;
	else
		r = connect_new(conf, fs, why);
	pthread_mutex_unlock(&lock);
	return r;
}

uint64_t mconnect_requests(struct sheaf *fs)
{
	uint64_t n = 0;

	for (int i = 0; i < SHEAF_MAX_SERVERS; i++) {
		struct sheaf_account a = { 0 };

		if (sheaf_account(fs, i, &a))
			break;
		n += a.requests;
	}
	return n;
}
