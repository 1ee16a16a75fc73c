/* Advisory locks and who waits for them: a structure without I/O, time or threads of its own. Private to src/server. */
#ifndef SHEAF_LOCKS_H
#define SHEAF_LOCKS_H

#include "core/core.h"

struct server;
struct session;
struct inode;
struct sreq;

struct lock_space { /* what can conflict: the ranges of a file, or its whole-file locks */
	struct list held; /* struct range */
	struct list line; /* struct lock_wait, in order of arrival */
};
struct lock_table { /* all waits of a server */
	struct htab by_owner;
	struct list all; /* oldest first */
	uint64_t last_number;
	struct list todo; /* of a search: waits seen and not yet looked at */
	uint64_t round; /* of searches */
	uint32_t steps; /* that searches may still take */
	uint64_t turn; /* the loop's, in which they began */
};
struct lock_wait {
	struct hnode node;
	struct list link, all;
	struct lock_space *space;
	struct range want;
	bool whole;
	uint64_t ticket; /* the client's name for it */
	uint64_t number; /* grows with arrival */
	/* of a search */
	struct list todo;
	uint64_t seen;
	/* of op_lock.c */
	struct server *srv;
	struct inode *inode;
	struct session *session;
	struct sreq *asking; /* the request that waits for the outcome, or NULL */
	struct list parked; /* in the session, while there is one */
	struct timer timer; /* ends the request, or the place in the line */
	uint64_t since;
	uint32_t uid;
};
int lock_table_init(struct lock_table *t);
void lock_space_init(struct lock_space *sp);
int lock_wait_add(struct lock_table *t, struct lock_space *sp,
		  struct lock_wait *w); /* at the end */
void lock_wait_del(struct lock_table *t, struct lock_wait *w);
struct lock_wait *lock_wait_find(const struct lock_space *sp, uint64_t session, uint64_t ticket);
/* The searches of the next two get new steps: once for each request, however many it takes. */
void lock_searches_begin(struct lock_table *t, uint64_t now);
/* Is it its turn? It is in the line. */
bool lock_grantable(struct lock_table *t, struct lock_wait *w);
/* Would it wait for its own owner? */
bool lock_deadlock(struct lock_table *t, struct lock_wait *w);

#endif
