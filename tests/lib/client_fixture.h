/* For tests of exports: clients of a cluster without running servers, and one client that holds an
 * example of every kind of state. */
#ifndef SHEAF_TEST_CLIENT_FIXTURE_H
#define SHEAF_TEST_CLIENT_FIXTURE_H

#include "client/file_impl.h"
#include "test.h"

struct client_fixture {
	struct loop loop;
	struct conf *conf;
};

/* Starts a loop and reads a cluster file with two servers, which do not run. */
void client_fixture_start(struct client_fixture *t);

/* Frees the loop and the cluster file; the clients have been freed. */
void client_fixture_end(struct client_fixture *t);

/* A new client; the caller frees it. */
struct client *client_fixture_new(struct client_fixture *t);

/* Adds a lock to a set of the file, as if it had been granted. */
void client_fixture_lock(const struct cfile *f, struct list *set, uint64_t owner, uint64_t start,
			 uint64_t last, bool exclusive);

/* An open file with `width` targets; it belongs to the client. */
struct cfile *client_fixture_file(struct client *c, uint64_t id, uint32_t width);

/* A client with sessions, a target that is not in the cluster file, files of all kinds, and locks
 * held and lost. */
struct client *client_fixture_with_state(struct client_fixture *t);

#endif
