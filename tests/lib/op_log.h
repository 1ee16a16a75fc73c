/* An operation log: each operation of a client is written as a verb and some numbers. The client
 * logs a line before each operation and a line with its result after it:
 *
 *   > 17 rename 0 4 2 1
 *   < 17 0
 *
 * Each line is one write(2): a client that is killed loses no line that it had written. The test
 * replays the log into a model. An operation whose first line is truncated had not begun. */
#ifndef SHEAF_TEST_OP_LOG_H
#define SHEAF_TEST_OP_LOG_H

#include "cluster.h"

#define OP_ARGS 6

struct logged_op {
	uint32_t verb;
	uint32_t arg[OP_ARGS];
};

/* ---- writing ---- */

struct op_log {
	int fd;
	unsigned seq;
	const char *const *verbs;
};

/* Writes the operation as text; returns its length. */
int op_text(char *out, size_t n, const char *const *verbs, const struct logged_op *d);

/* Logs an operation before it is executed. */
void op_log_begin(struct op_log *l, const struct logged_op *d);

/* Logs the result of the operation that began last. */
void op_log_end(struct op_log *l, int result);

/* ---- reading ---- */

struct op_reader {
	char path[CLUSTER_PATH + 32];
	off_t at; /* offset in the log of the next line to read */
	unsigned seq;
	bool pending; /* `last` has begun and has no result yet */
	struct logged_op last;
	const char *const *verbs;
	uint32_t n_verbs;
};

/* Reads the lines added since the last call: calls begin for each operation, and end for each
 * result. */
void op_log_replay(struct op_reader *r, void *arg,
		   void (*begin)(void *arg, const struct logged_op *d),
		   void (*end)(void *arg, const struct logged_op *d, int result));

#endif
