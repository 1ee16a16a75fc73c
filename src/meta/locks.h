/* Advisory locks and the waits for them: a structure without I/O, time or threads of its own.
 * For src/server. */
#ifndef SHEAF_LOCKS_H
#define SHEAF_LOCKS_H

#include "core/core.h"

struct inode;
struct sreq;

/* a set of locks that can conflict: the ranges of a file, or its whole-file locks */
struct lock_space {
	struct list held; /* struct range */
	struct list line; /* struct lock_wait, in order of arrival */
};
struct lock_table { /* all waits of a server */
	struct htab by_owner;
	struct list all; /* oldest first */
	uint64_t last_number;
	struct list todo; /* of a search: waits that were seen but not yet examined */
	uint64_t round; /* number of the current search */
	uint32_t steps; /* that the searches may still take */
	uint64_t turn; /* loop time at which the searches began */
};
struct lock_wait {
	struct hnode node;
	struct list link, all;
	struct lock_space *space;
	struct range want;
	bool whole;
	uint64_t ticket; /* the client's id of the wait */
	uint64_t number; /* grows with each arrival */
	/* used by searches */
	struct list todo;
	uint64_t seen;
	/* used by op_lock.c */
	struct server *srv;
	struct inode *inode;
	struct session *session;
	struct sreq *asking; /* the parked request of the wait, or NULL */
	struct list parked; /* in session->parked, while a request is parked */
	struct timer timer; /* answers the request, or gives up the place in the line */
	uint64_t since;
	uint32_t uid;
};
int lock_table_init(struct lock_table *t);
void lock_space_init(struct lock_space *sp);
int lock_wait_add(struct lock_table *t, struct lock_space *sp,
		  struct lock_wait *w); /* at the end of the line */
void lock_wait_del(struct lock_table *t, struct lock_wait *w);
struct lock_wait *lock_wait_find(const struct lock_space *sp, uint64_t session, uint64_t ticket);
/* Gives lock_grantable() and lock_deadlock() a new budget of search steps. Call it once per
 * request. */
void lock_searches_begin(struct lock_table *t, uint64_t now);
/* May the wait, which is in the line, be granted now? */
bool lock_grantable(struct lock_table *t, struct lock_wait *w);
/* Would the wait depend on its own owner? */
bool lock_deadlock(struct lock_table *t, struct lock_wait *w);

#endif
