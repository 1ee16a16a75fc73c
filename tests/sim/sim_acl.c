/* Permissions that change, and calls that try what they grant.
 *
 * Each client has a directory and a file in the root. Only this client changes their owner, mode
 * and lists, one change at a time, as root or as another user. All clients try calls on all of them
 * as several users. The states that a subject may have had during a call are known, so the model
 * (sim_aclmodel.c) must explain each answer by one of them. A change that ended in doubt leaves two
 * states for the rest of the run.
 *
 * Choices come from a separate generator (acl_pick), so seeds without ACLs are not affected. */
#include <fcntl.h>
#include <stdio.h>

#include "sim_acl.h"
#include "sim_priv.h"
#include "sim_scenario.h"

#define PERCENT_OF_CHANGES 30
#define XATTR_TEXT "v"

static const char access_name[] = "system.posix_acl_access";
static const char default_name[] = "system.posix_acl_default";
static const char user_name[] = "user.t";

const char *const acl_names[] = {
	"chmod",     "chown",	    "set list", "drop list",   "set default", "drop default",
	"set wrong", "see mode",    "see list", "see default", "setxattr",    "getxattr",
	"open",	     "truncate",    "search",	"readdir",     "make",	      "see mode",
	"see list",  "see default", "open",	"unlink",      "rename",      "close",
};

const char *const acl_count_names[] = {
	[ACL_CHANGED] = "changes of owners, modes and ACLs",
	[ACL_CHANGE_REFUSED] = "... that were refused to their callers",
	[ACL_GRANTED] = "calls that permissions granted",
	[ACL_DENIED] = "... and refused",
	[ACL_BY_USER] = "... of both: decided by the entry of a named user",
	[ACL_BY_NAMED_GROUP] = "... of both: decided by that of a named group",
	[ACL_BY_MASK] = "... refused by the mask alone",
	[ACL_STICKY] = "... refused by a sticky directory",
	[ACL_READ_BACK] = "modes and ACLs that were read back",
	[ACL_IN_DOUBT] = "... and calls beside a change in doubt",
	[ACL_MADE] = "names made in directories whose ACLs change",
	[ACL_INHERITED] = "... that inherited an ACL",
	[ACL_BY_OTHER_CLIENT] = "... as another client saw",
	[ACL_ELSEWHERE] = "... on another metadata server",
};

/* ---- choices ---- */

uint32_t acl_pick(struct world *w, uint32_t n)
{
	w->acl->rng = hash_u64(w->acl->rng + UINT64_C(0x9e3779b97f4a7c15));
	return (uint32_t)(w->acl->rng >> 32) % n;
}

bool acl_chance(struct world *w, uint32_t percent)
{
	return acl_pick(w, 100) < percent;
}

static uint8_t pick_perm(struct world *w)
{
	return acl_chance(w, 40) ? 7 : (uint8_t)acl_pick(w, 8);
}

struct macl_list acl_pick_list(struct world *w)
{
	struct macl_list l = { .owner = pick_perm(w), .has_mask = acl_chance(w, 20) };

	l.group = pick_perm(w);
	l.mask = pick_perm(w);
	l.other = (uint8_t)acl_pick(w, 8);
	for (int i = 0; i < MACL_NAMED; i++) {
		l.users[i] = acl_chance(w, 50) ? pick_perm(w) : MACL_ABSENT;
		l.groups[i] = acl_chance(w, 50) ? pick_perm(w) : MACL_ABSENT;
		l.has_mask |= l.users[i] != MACL_ABSENT || l.groups[i] != MACL_ABSENT;
	}
	return l;
}

/* ---- judgement ---- */

const struct subject *acl_dir(const struct world *w, uint32_t client)
{
	return &w->acl->subjects[client][0];
}

uint32_t acl_possible(const struct subject *s, const struct period *call)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < s->n; i++)
		if (period_allows(&s->steps[i].when, i + 1 < s->n ? &s->steps[i + 1].when : NULL,
				  call))
			bits |= 1u << i;
	return bits;
}

int acl_answer(struct world *w, const struct macl *m, uint32_t user, uint32_t want, bool counts)
{
	uint64_t *count = w->count->acl;
	enum macl_class by;
	bool masked, granted = macl_grants(m, &macl_creds[user], want, &by, &masked);

	if (counts) {
		count[granted ? ACL_GRANTED : ACL_DENIED]++;
		count[ACL_BY_USER] += by == MACL_USER;
		count[ACL_BY_NAMED_GROUP] += by == MACL_NAMED_GROUP;
		count[ACL_BY_MASK] += masked;
	}
	return granted ? 0 : -EACCES;
}

bool acl_sees_list(const struct acl_lane *l, bool there, const struct macl_list *list,
		   int64_t result)
{
	uint8_t bytes[MACL_BYTES];
	size_t n;

	if (!there || result)
		return !there && result == -ENODATA;
	n = macl_encode(list, bytes);
	return l->n_bytes == n && !memcmp(l->bytes, bytes, n);
}

/* The permissions that a call on a subject needs. */
static uint32_t wanted(const struct acl_lane *l)
{
	switch (l->kind) {
	case ACL_OPEN:
		return l->want;
	case ACL_SETXATTR:
	case ACL_TRUNCATE:
		return MACL_W;
	case ACL_SEARCH:
		return MACL_X;
	default:
		return MACL_R;
	}
}

static bool explains(const struct acl_lane *l, const struct macl *m, int64_t result, bool counts)
{
	struct world *w = l->a->w;
	bool sticky = m->special & S_ISVTX;

	if (l->kind == ACL_SEE_MODE)
		return !result && l->mode == macl_mode(m) && l->uid == m->uid && l->gid == m->gid;
	if (l->kind == ACL_SEE_LIST)
		return acl_sees_list(l, m->access.has_mask, &m->access, result);
	if (l->kind == ACL_SEE_DEFAULT)
		return acl_sees_list(l, m->has_def, &m->def, result);
	if (l->kind == ACL_SETXATTR && sticky && !macl_owns(m, &macl_creds[l->user])) {
		w->count->acl[ACL_STICKY] += counts;
		return result == -EPERM;
	}
	return result == acl_answer(w, m, l->user, wanted(l), counts);
}

static bool is_explained(const struct acl_lane *l, int64_t result)
{
	uint32_t bits = acl_possible(l->s, &l->when);
	struct world *w = l->a->w;

	for (uint32_t i = 0; i < l->s->n; i++)
		if ((bits & 1u << i) && explains(l, &l->s->steps[i].m, result, false)) {
			explains(l, &l->s->steps[i].m, result, true);
			w->count->acl[ACL_IN_DOUBT] += l->s->in_doubt;
			w->count->acl[ACL_READ_BACK] += l->kind <= ACL_SEE_DEFAULT;
			return true;
		}
	return false;
}

/* Only this client changes the subject, so the answer is known. */
static void judge_change(struct acl_lane *l, int64_t result)
{
	struct world *w = l->a->w;

	if (result != l->expect && !fault_explains(l->a, l->started, result)) {
		world_fail(w, NO_FILE, "c%u as user %u: %s of %s = %lld, not %d", l->a->id,
			   macl_creds[l->user].uid, acl_names[l->kind], l->path, (long long)result,
			   l->expect);
	} else if (result == l->expect && !result) {
		l->s->steps[l->s->n - 1].when.ended = l->when.ended;
		w->count->acl[ACL_CHANGED]++;
	} else if (result == l->expect) {
		w->count->acl[ACL_CHANGE_REFUSED]++;
	} else if (!l->expect) {
		l->s->in_doubt = true;
	}
}

static bool disk_explains(const struct acl_lane *l, int64_t e)
{
	const struct world *w = l->a->w;

	return l->kind == ACL_TRUNCATE &&
	       ((e == -EIO && w->enabled[FAULT_DISK]) || (e == -ENOSPC && w->enabled[FAULT_FULL]));
}

static void judge(struct acl_lane *l, int64_t result)
{
	if (is_explained(l, result) || fault_explains(l->a, l->started, result) ||
	    disk_explains(l, result))
		return;
	world_fail(l->a->w, NO_FILE,
		   "c%u as user %u: %s %u of %s = %lld (mode %o, %u:%u), as in no state", l->a->id,
		   macl_creds[l->user].uid, acl_names[l->kind], l->want, l->path, (long long)result,
		   l->mode, l->uid, l->gid);
}

/* ---- calls ---- */

static void keep_answer(struct acl_lane *l, const struct cop *c)
{
	const struct wire_attr *at = &c->res.getattr.at;
	const struct wire_bytes *b = &c->res.xattr.data;

	if (l->kind == ACL_SEE_MODE || l->kind == ACL_THING_MODE) {
		l->mode = at->mode & 07777;
		l->uid = at->uid;
		l->gid = at->gid;
	} else if (l->kind == ACL_SEE_LIST || l->kind == ACL_SEE_DEFAULT ||
		   l->kind == ACL_THING_LIST || l->kind == ACL_THING_DEFAULT) {
		l->n_bytes = MIN(b->len, (uint32_t)MACL_BYTES);
		if (l->n_bytes)
			memcpy(l->bytes, b->p, l->n_bytes);
	}
}

static bool is_open(const struct acl_lane *l, const struct cop *c)
{
	return !c->result && (l->kind == ACL_OPEN || l->kind == ACL_THING_OPEN ||
			      (l->kind == ACL_MAKE && l->t->type == S_IFREG));
}

static void done(struct cop *c)
{
	struct acl_lane *l = c->user;
	struct world *w = l->a->w;
	struct cfile *f = is_open(l, c) ? c->file : NULL;
	int64_t r = c->result;

	sim_trace(&w->sim, SIM_TEST + 8 * DO_KINDS + l->kind, l->a->node->id, (uint64_t)r);
	l->when.ended = ++w->seq;
	l->busy = false;
	world_note(w, NO_FILE, "c%u as user %u: %s %o of %s %s= %lld (from %llu to %llu)", l->a->id,
		   macl_creds[l->user].uid, acl_names[l->kind], l->want, l->path, l->path2,
		   (long long)r, (unsigned long long)l->when.began,
		   (unsigned long long)l->when.ended);
	if (!r)
		keep_answer(l, c);
	if (l->kind < ACL_CHANGES)
		judge_change(l, r);
	else if (l->t)
		thing_done(l, c, r);
	else if (l->kind != ACL_CLOSE)
		judge(l, r);
	if (f) /* at once, so that the client is not replaced while the file is open */
		client_close(acl_begin(l, ACL_CLOSE, l->user), f);
	cop_free(c);
}

struct cop *acl_begin(struct acl_lane *l, enum acl_kind kind, uint32_t user)
{
	struct cop *c = cop_new(l->a->client, &macl_creds[user]);

	c->done = done;
	c->user = l;
	*l = (struct acl_lane){ .a = l->a, .busy = true, .kind = kind, .user = user };
	l->when.began = ++l->a->w->seq;
	l->started = l->a->w->sim.now;
	return c;
}

static void subject_path(char out[48], uint32_t client, bool is_dir, const char *below)
{
	if (is_dir)
		snprintf(out, 48, ACL_DIR "%s", client, below);
	else
		snprintf(out, 48, ACL_FILE, client);
}

static void set_subject(struct acl_lane *l, uint32_t client, bool is_dir)
{
	l->of = client;
	l->s = &l->a->w->acl->subjects[client][!is_dir];
	subject_path(l->path, client, is_dir, l->kind == ACL_SEARCH ? "/s/x" : "");
}

/* ---- changes ---- */

/* Each of these returns the expected result and, when the change is allowed, applies it to the
 * model. */

static int plan_chmod(struct acl_lane *l, struct macl *m)
{
	struct world *w = l->a->w;

	l->mode = acl_pick(w, 01000) | (acl_chance(w, 50) ? 0770 : 0);
	if (l->s->is_dir)
		l->mode |= (acl_chance(w, 30) ? S_ISVTX : 0) | (acl_chance(w, 40) ? S_ISGID : 0);
	if (!macl_owns(m, &macl_creds[l->user]))
		return -EPERM;
	macl_chmod(m, &macl_creds[l->user], l->mode);
	return 0;
}

static int plan_chown(struct acl_lane *l, struct macl *m)
{
	static const uint32_t gids[] = { 0, 1000, 1001, 2000 };
	struct world *w = l->a->w;
	const struct sheaf_cred *c = &macl_creds[l->user];

	l->uid = macl_creds[acl_pick(w, ACL_USERS)].uid;
	l->gid = gids[acl_pick(w, ARRAY_LEN(gids))];
	l->want = 1 + acl_pick(w, 3);
	l->want = (l->want & 1 ? SHEAF_SET_UID : 0) | (l->want & 2 ? SHEAF_SET_GID : 0);
	if (!macl_owns(m, c))
		return -EPERM;
	if (c->uid && (l->want & SHEAF_SET_UID) && l->uid != m->uid)
		return -EPERM;
	if (c->uid && (l->want & SHEAF_SET_GID) && l->gid != m->gid && !macl_in_group(c, l->gid))
		return -EPERM;
	if (l->want & SHEAF_SET_UID)
		m->uid = l->uid;
	if (l->want & SHEAF_SET_GID)
		m->gid = l->gid;
	return 0;
}

static int plan_list(struct acl_lane *l, struct macl *m)
{
	struct macl_list list = acl_pick_list(l->a->w);
	bool def = l->kind == ACL_SET_DEFAULT;

	if (l->kind == ACL_SET_INVALID) {
		list.users[0] = 7;
		list.has_mask = false;
	}
	l->n_bytes = macl_encode(&list, l->bytes);
	if (def && !l->s->is_dir)
		return -EACCES;
	if (!macl_owns(m, &macl_creds[l->user]))
		return -EPERM;
	if (l->kind == ACL_SET_INVALID)
		return -EINVAL;
	if (!def) {
		macl_set(m, &macl_creds[l->user], &list);
		return 0;
	}
	m->def = list;
	m->has_def = true;
	return 0;
}

static int plan_drop(struct acl_lane *l, struct macl *m)
{
	bool def = l->kind == ACL_DROP_DEFAULT;

	if (def && !l->s->is_dir)
		return 0; /* files have no default ACL */
	if (!macl_owns(m, &macl_creds[l->user]))
		return -EPERM;
	if (def)
		m->has_def = false;
	else
		macl_drop(m);
	return 0;
}

static void send_change(struct acl_lane *l, struct cop *c)
{
	struct stat st = { .st_mode = l->mode, .st_uid = l->uid, .st_gid = l->gid };
	bool def = l->kind == ACL_SET_DEFAULT || l->kind == ACL_DROP_DEFAULT;
	const char *name = def ? default_name : access_name;

	if (l->kind == ACL_CHMOD)
		client_setattr(c, l->s->h, SHEAF_SET_MODE, &st);
	else if (l->kind == ACL_CHOWN)
		client_setattr(c, l->s->h, l->want, &st);
	else if (l->n_bytes || acl_chance(l->a->w, 30)) /* an empty list removes the ACL */
		client_setxattr(c, l->s->h, name, l->bytes, l->n_bytes, 0);
	else
		client_removexattr(c, l->s->h, name);
}

static void note_state(struct acl_lane *l, const struct macl *m)
{
	const struct macl_list *a = &m->access, *d = &m->def;

	world_note(
		l->a->w, NO_FILE,
		"c%u as user %u begins at %llu: %s of %s: %o %u:%u, group %o mask %o users %o %o "
		"groups %o %o; default %d: %o%o%o mask %o users %o %o groups %o %o",
		l->a->id, macl_creds[l->user].uid, (unsigned long long)l->when.began,
		acl_names[l->kind], l->path, macl_mode(m), m->uid, m->gid, a->group,
		a->has_mask ? a->mask : 8, a->users[0], a->users[1], a->groups[0], a->groups[1],
		m->has_def, d->owner, d->group, d->other, d->has_mask ? d->mask : 8, d->users[0],
		d->users[1], d->groups[0], d->groups[1]);
}

static void start_change(struct acl_lane *l)
{
	static int (*const plans[])(struct acl_lane *, struct macl *) = {
		[ACL_CHMOD] = plan_chmod,      [ACL_CHOWN] = plan_chown,
		[ACL_SET] = plan_list,	       [ACL_DROP] = plan_drop,
		[ACL_SET_DEFAULT] = plan_list, [ACL_DROP_DEFAULT] = plan_drop,
		[ACL_SET_INVALID] = plan_list,
	};
	struct world *w = l->a->w;
	enum acl_kind kind = (enum acl_kind)acl_pick(w, ACL_CHANGES);
	uint32_t user = acl_chance(w, 60) ? 0 : acl_pick(w, ACL_USERS);
	bool is_dir = acl_chance(w, 60);
	struct cop *c;
	struct macl m;

	if (acl_chance(w, 25)) /* most changes are of lists */
		kind = is_dir && acl_chance(w, 50) ? ACL_SET_DEFAULT : ACL_SET;
	c = acl_begin(l, kind, user);
	set_subject(l, l->a->id, is_dir);
	m = l->s->steps[l->s->n - 1].m;
	l->expect = plans[kind](l, &m);
	if (!l->expect)
		l->s->steps[l->s->n++] = (struct acl_step){ { l->when.began, 0 }, m };
	note_state(l, &m);
	send_change(l, c);
}

/* ---- calls on any client's subjects ---- */

static void start_open(struct acl_lane *l, struct cop *c)
{
	static const int flags[] = {
		[MACL_R] = O_RDONLY, [MACL_W] = O_WRONLY, [MACL_R | MACL_W] = O_RDWR
	};

	l->want = MACL_W * (1 + acl_pick(l->a->w, 3));
	if (acl_chance(l->a->w, 50))
		client_open(c, scene_root, l->path, flags[l->want], 0, NULL);
	else
		client_open(c, l->s->h, "", flags[l->want], 0, NULL);
}

static void send_call(struct acl_lane *l, struct cop *c)
{
	struct sheaf_handle h = l->s->h;

	switch (l->kind) {
	case ACL_SEE_MODE:
		client_layout(c, h);
		break;
	case ACL_SEE_LIST:
		client_getxattr(c, h, access_name, MACL_BYTES);
		break;
	case ACL_SEE_DEFAULT:
		client_getxattr(c, h, default_name, MACL_BYTES);
		break;
	case ACL_SETXATTR:
		client_setxattr(c, h, user_name, XATTR_TEXT, strlen(XATTR_TEXT), 0);
		break;
	case ACL_GETXATTR:
		client_getxattr(c, h, user_name, strlen(XATTR_TEXT));
		break;
	case ACL_OPEN:
		start_open(l, c);
		break;
	case ACL_TRUNCATE:
		client_truncate(c, h, 0);
		break;
	case ACL_SEARCH:
		client_stat(c, scene_root, l->path);
		break;
	default:
		client_readdir(c, h, 0, 1, acl_chance(l->a->w, 50));
		break;
	}
}

/* Often repeats the last search: a cached referral must not outlive a change. */
static void start_search(struct acl_lane *l)
{
	struct world *w = l->a->w;
	uint32_t *of = &w->acl->searched[l->a->id].of, *user = &w->acl->searched[l->a->id].user;
	struct cop *c;

	if (acl_chance(w, 30)) {
		*of = acl_pick(w, w->n_actors);
		*user = acl_pick(w, ACL_USERS);
	}
	c = acl_begin(l, ACL_SEARCH, *user);
	set_subject(l, *of, true);
	send_call(l, c);
}

static void start_call(struct acl_lane *l)
{
	struct world *w = l->a->w;
	bool is_dir = acl_chance(w, 50);
	uint32_t n = is_dir ? 2 : ACL_ONLY_DIRS - ACL_ONLY_FILES;
	uint32_t k = acl_pick(w, ACL_ONLY_FILES - ACL_CHANGES + 2 * n);
	enum acl_kind kind = (enum acl_kind)(ACL_CHANGES + k);
	struct cop *c;

	if (kind >= ACL_ONLY_FILES)
		kind = (is_dir ? ACL_ONLY_DIRS : ACL_ONLY_FILES) + k % n;
	c = acl_begin(l, kind, acl_pick(w, ACL_USERS));
	set_subject(l, acl_pick(w, w->n_actors), is_dir);
	send_call(l, c);
}

/* ---- the script ---- */

static bool may_change(const struct actor *a)
{
	const struct subject *s = a->w->acl->subjects[a->id];

	return !s[0].in_doubt && !s[1].in_doubt && s[0].n < ACL_STEPS && s[1].n < ACL_STEPS;
}

static void think(void *arg)
{
	struct actor *a = arg;
	struct world *w = a->w;
	struct acl_lane *lanes = w->acl->lanes[a->id], *l;

	if (w->failed || !w->acl->left[a->id])
		return;
	sim_after(&w->sim, 1 + acl_pick(w, 30 * NSEC_PER_MSEC), think, a);
	l = !lanes[0].busy ? &lanes[0] : &lanes[1];
	if (l->busy || !a->client || a->rest_until > w->sim.now)
		return;
	w->acl->left[a->id]--;
	if (l == lanes && may_change(a) && acl_chance(w, PERCENT_OF_CHANGES))
		start_change(l);
	else if (acl_chance(w, 25))
		start_search(l);
	else if (!acl_chance(w, 60) || !thing_start(l))
		start_call(l);
}

void acls_start(struct actor *a)
{
	if (!a->w->acl)
		return;
	a->w->acl->left[a->id] = 40 + acl_pick(a->w, 120);
	think(a);
}

bool acls_idle(const struct actor *a)
{
	const struct acl_play *p = a->w->acl;

	return !p || (!p->left[a->id] && !p->lanes[a->id][0].busy && !p->lanes[a->id][1].busy);
}

void acls_abandon(struct actor *a)
{
	if (!a->w->acl || a->id >= a->w->n_actors)
		return;
	for (int i = 0; i < ACL_LANES; i++) {
		struct acl_lane *l = &a->w->acl->lanes[a->id][i];

		if (l->busy && l->kind < ACL_CHANGES && !l->expect)
			l->s->in_doubt = true;
		if (l->busy && l->t)
			thing_lost(l);
		l->busy = false;
	}
}

/* ---- before and after ---- */

static void make_subject(struct world *w, uint32_t client, bool is_dir)
{
	static const struct macl_list none = { .users = { MACL_ABSENT, MACL_ABSENT },
					       .groups = { MACL_ABSENT, MACL_ABSENT } };
	struct subject *s = &w->acl->subjects[client][!is_dir];
	struct macl m = { .access = none };
	struct cop *c;
	char path[48];

	subject_path(path, client, is_dir, "");
	if (is_dir)
		scene_mkdir(w, w->n_actors, path);
	else
		scene_close(w, w->n_actors, scene_open(w, w->n_actors, path, O_CREAT | O_RDONLY));
	if (w->failed || scene_lookup(w, w->n_actors, path, &s->h))
		return;
	c = scene_call(w, w->n_actors);
	client_setxattr(c, s->h, user_name, XATTR_TEXT, strlen(XATTR_TEXT), 0);
	scene_check(w, !scene_end(w, c), "%s gets no attribute", path);
	macl_chmod(&m, &macl_creds[0], is_dir ? 0755 : 0644);
	s->is_dir = is_dir;
	s->steps[s->n++] = (struct acl_step){ { 0, 1 }, m };
}

/* Makes what a search leads to, through a directory that may be on another server. */
static void make_way(struct world *w, uint32_t client)
{
	struct cop *c;
	char path[48];

	subject_path(path, client, true, "/s");
	scene_mkdir(w, w->n_actors, path);
	subject_path(path, client, true, "/s/x");
	c = scene_call(w, w->n_actors);
	client_mknod(c, scene_root, path, S_IFIFO | 0600, 0);
	scene_check(w, !scene_end(w, c), "mknod %s", path);
}

void acls_setup(struct world *w)
{
	w->acl = sim_alloc(sizeof(*w->acl));
	w->acl->rng = hash_u64(w->sim.seed + 12);
	for (uint32_t i = 0; i < w->n_actors && !w->failed; i++) {
		for (int k = 0; k < ACL_LANES; k++)
			w->acl->lanes[i][k].a = &w->actors[i];
		make_subject(w, i, true);
		make_subject(w, i, false);
		make_way(w, i);
	}
}

static void remove_subject(struct world *w, uint32_t client, bool is_dir)
{
	struct cop *c;
	char path[48];

	if (is_dir)
		scene_sweep(w, w->acl->subjects[client][0].h);
	if (w->failed)
		return;
	subject_path(path, client, is_dir, "");
	c = scene_call(w, w->n_actors);
	if (is_dir)
		client_rmdir(c, scene_root, path);
	else
		client_unlink(c, scene_root, path);
	scene_check(w, !scene_end(w, c), "%s cannot be removed", path);
}

void acls_cleanup(struct world *w)
{
	for (uint32_t i = 0; w->acl && i < w->n_actors && !w->failed; i++) {
		remove_subject(w, i, true);
		remove_subject(w, i, false);
	}
}
