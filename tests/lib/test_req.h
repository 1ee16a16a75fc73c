/* For the tests of core and disk: a request that starts one operation and stores its result, a loop
 * to run it on, and scratch directories. */
#ifndef SHEAF_TEST_TEST_REQ_H
#define SHEAF_TEST_TEST_REQ_H

#include <fcntl.h>
#include <unistd.h>

#include "core/core.h"
#include "test.h"

struct test_req {
	struct req req;
	void (*start)(struct test_req *t, struct req *q);
	void *arg;
	bool over;
	int error;
	uint64_t bytes;
};

/* Starts a request on the loop that calls start(), which passes it to an operation. */
void test_req_start(struct test_req *t, struct loop *l,
		    void (*start)(struct test_req *t, struct req *q), void *arg);

/* Turns the loop until the request is over. */
void test_req_wait(struct test_req *t);

/* Starts a request and waits for it. Returns its error: 0 or -errno. */
int test_req_run(struct loop *l, void (*start)(struct test_req *t, struct req *q), void *arg);

/* Makes a new directory under `parent`. The returned name is in a static buffer. */
const char *scratch_dir_make(const char *parent);

/* Removes the directory and what is below it. */
void scratch_dir_remove(const char *path);

#endif
