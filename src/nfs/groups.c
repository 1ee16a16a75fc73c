/* manage_gids: AUTH_SYS carries 16 groups, so the gateway asks its own host for the groups of a
 * user. The question may take long (LDAP), so a thread asks it, and the task is parked. */
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>

#include "nfs/nfs_priv.h"

#define KNOWN 1024 /* users that are remembered */
#define KNOWN_NS (300 * NSEC_PER_SEC)

struct user {
	uint64_t until;
	uint32_t uid, n_gids, gids[GIDS_MAX];
	bool known; /* false: the host does not know the user */
};

static struct user users[KNOWN];

struct question {
	struct user u;
	void *task;
};

static void *ask(void *arg)
{
	struct question *q = arg;
	struct passwd pw, *found = NULL;
	char text[4096];
	gid_t gids[GIDS_MAX];
	int n = GIDS_MAX;

	if (getpwuid_r(q->u.uid, &pw, text, sizeof(text), &found) == 0 && found) {
		if (getgrouplist(pw.pw_name, pw.pw_gid, gids, &n) < 0)
			n = GIDS_MAX; /* the first ones */
		q->u.known = true;
		q->u.n_gids = (uint32_t)n;
		for (int i = 0; i < n; i++)
			q->u.gids[i] = gids[i];
	}
	nfs_task_wake(q->task);
	return NULL;
}

void groups_look_up(struct nfs_call *c)
{
	struct user *u = &users[hash_u64(c->uid) % KNOWN];
	struct question q = { .u.uid = c->uid };
	pthread_t t;

	if (u->uid != c->uid || time_now() > u->until) {
		q.task = nfs_task_self();
		if (pthread_create(&t, NULL, ask, &q))
			return;
		nfs_task_sleep();
		pthread_join(t, NULL);
		q.u.until = time_now() + KNOWN_NS;
		*u = q.u;
	} else {
		q.u = *u;
	}
	if (!q.u.known)
		return;
	c->n_gids = q.u.n_gids;
	memcpy(c->gids, q.u.gids, sizeof(c->gids));
}
