/* Scenarios for access control lists. */
#include <stdio.h>

#include "sim_acl.h"
#include "sim_scenario.h"

static void ended(struct cop *c)
{
	(void)c; /* the caller polls c->finished */
}

static int64_t look_as_user(struct world *w, uint32_t client, const char *path)
{
	struct cop *c = cop_new(w->actors[client].client, &macl_creds[1]);

	c->done = ended;
	client_stat(c, scene_root, path);
	return scene_end(w, c);
}

/* Makes a directory below `parent` on the other server, and a path through it. */
static bool make_way(struct world *w, const char *parent, char path[48])
{
	for (int i = 0; i < 100 && !w->failed; i++) {
		struct sheaf_handle h;

		snprintf(path, 48, "%.15s/s%d", parent, i);
		h = scene_mkdir(w, 0, path);
		if (w->failed || client_meta_of(w->actors[0].client, h.ino) != 1)
			continue;
		snprintf(path, 48, "%.15s/s%d/x", parent, i);
		scene_mkdir(w, 0, path);
		return !w->failed;
	}
	world_fail(w, 0, "no directory of target 1 below %s", parent);
	return false;
}

/* A client caches a referral through a directory as one user. Another client sets an ACL that
 * refuses this user: once that call is answered, the first client must not use the referral. */
static void acl_closes_way(struct world *w)
{
	static const struct macl_list list = { .owner = 7,
					       .group = 7,
					       .mask = 7,
					       .other = 7,
					       .has_mask = true,
					       .users = { 0, MACL_ABSENT },
					       .groups = { MACL_ABSENT, MACL_ABSENT } };
	uint8_t bytes[MACL_BYTES];
	size_t n = macl_encode(&list, bytes);
	char dir[16], path[48];
	struct sheaf_handle d = scene_dir_at(w, 0, 0, dir);
	struct cop *c;
	int64_t r;

	if (w->failed || !make_way(w, dir, path))
		return;
	scene_pass(w, NSEC_PER_SEC); /* promises that a server gave before its start have run out */
	r = look_as_user(w, 0, path);
	scene_check(w, !r, "stat %s: %d", path, (int)r);
	c = scene_call(w, 1);
	client_setxattr(c, d, "system.posix_acl_access", bytes, n, 0);
	r = scene_end(w, c);
	scene_check(w, !r, "no ACL: %d", (int)r);
	scene_met(w);
	r = look_as_user(w, 0, path);
	scene_check(w, r == -EACCES, "a way that an ACL has closed is taken: %d", (int)r);
}

const struct scenario scenes_acl[] = {
	{ "acl-closes-way", acl_closes_way, 2, 2, 2, false },
	{ 0 },
};
