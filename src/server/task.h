/* Background work, and the grace period after a start. Private to src/server. */
#ifndef SHEAF_SERVER_TASK_H
#define SHEAF_SERVER_TASK_H

#include "server/srv.h"

/* ---- tasks.c: background work ---- */
enum task_kind { TASK_SETTLE, TASK_REMOVE, TASK_TRUNCATE, TASK_END_SESSION };
int task_start(struct server *srv, enum task_kind kind, const struct wire_handle *h, uint64_t size,
	       uint64_t epoch);
void task_end_session(struct server *srv, struct session *ss);
void tasks_recover(struct server *srv); /* at start: resumes all unfinished work */
void tasks_abandon(struct server *srv);
void grace_start(struct server *srv);
void grace_check(struct server *srv); /* ends the grace period when every session has claimed */

#endif
