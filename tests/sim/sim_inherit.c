/* Files, directories and pipes that are made in directories whose permissions and default ACLs
 * change (sim_acl.c).
 *
 * A thing inherited from one of the states that its directory may have had while it was made.
 * Any client takes a thing that is not in use, reads its mode and its lists, opens, renames or
 * removes it as any user, and puts it back. One of these states must explain each answer, and
 * each read excludes states. If a call ends in doubt, its thing is not used again; the end of
 * the run removes it. */
#include <fcntl.h>
#include <stdio.h>

#include "sim_acl.h"
#include "sim_scenario.h"

static bool is_dir(const struct thing *t)
{
	return t->type == S_IFDIR;
}

/* The permissions of a thing that was made in this step of its directory. */
static struct macl inherited(const struct world *w, const struct thing *t, uint32_t step)
{
	return macl_inherit(&acl_dir(w, t->made_in)->steps[step].m, &macl_creds[t->user], t->mode,
			    is_dir(t));
}

/* ---- what was inherited ---- */

static bool fits(const struct acl_lane *l, const struct macl *m, int64_t result)
{
	if (l->kind == ACL_THING_MODE)
		return !result && l->mode == macl_mode(m) && l->uid == m->uid && l->gid == m->gid;
	if (l->kind == ACL_THING_LIST)
		return acl_sees_list(l, m->access.has_mask, &m->access, result);
	return acl_sees_list(l, m->has_def, &m->def, result);
}

static void count_inherited(const struct acl_lane *l)
{
	struct world *w = l->a->w;
	const struct thing *t = l->t;
	const struct client *c = l->a->client;
	uint64_t *count = w->count->acl;

	count[ACL_READ_BACK]++;
	if (l->kind == ACL_THING_MODE || !l->n_bytes)
		return;
	count[ACL_INHERITED]++;
	count[ACL_BY_OTHER_CLIENT] += l->a->id != t->maker;
	count[ACL_ELSEWHERE] += client_meta_of(c, t->h.ino) !=
				client_meta_of(c, acl_dir(w, t->made_in)->h.ino);
}

/* Keeps only the steps that explain what was read. Returns false if none does. */
static bool saw_inherited(struct acl_lane *l, int64_t result)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < ACL_STEPS; i++) {
		struct macl m;

		if (!(l->t->from & 1u << i))
			continue;
		m = inherited(l->a->w, l->t, i);
		if (fits(l, &m, result))
			bits |= 1u << i;
	}
	if (!bits)
		return false;
	l->t->from = bits;
	count_inherited(l);
	return true;
}

/* May the call return this result to its caller? */
static bool thing_answers(const struct acl_lane *l, uint32_t want, int64_t result)
{
	for (uint32_t i = 0; i < ACL_STEPS; i++) {
		struct macl m;

		if (!(l->t->from & 1u << i))
			continue;
		m = inherited(l->a->w, l->t, i);
		if (acl_answer(l->a->w, &m, l->user, want, false) == result) {
			acl_answer(l->a->w, &m, l->user, want, true);
			return true;
		}
	}
	return false;
}

/* ---- names ---- */

/* Does the sticky bit keep the caller from removing this name? Only owners may. */
static bool is_kept(const struct macl *dir, const struct acl_lane *l)
{
	const struct sheaf_cred *c = &macl_creds[l->user];

	return (dir->special & S_ISVTX) && !macl_owns(dir, c) &&
	       c->uid != macl_creds[l->t->user].uid;
}

/* Does one state of the directory explain the result of a call that makes, opens or unlinks a
 * name in it? */
static bool dir_explains(const struct acl_lane *l, const struct macl *dir, int64_t result)
{
	struct world *w = l->a->w;
	uint32_t want = l->kind == ACL_THING_OPEN ? MACL_X : MACL_W | MACL_X;
	int e = acl_answer(w, dir, l->user, want, false);

	if (e && result != e)
		return false;
	if (!e && l->kind == ACL_THING_OPEN)
		return thing_answers(l, l->want, result);
	if (!e && l->kind == ACL_UNLINK && is_kept(dir, l)) {
		w->count->acl[ACL_STICKY] += result == -EPERM;
		return result == -EPERM;
	}
	if (result != e)
		return false;
	acl_answer(w, dir, l->user, want, true);
	return true;
}

/* If there are several reasons for a refusal, any of them is right: with several servers it
 * depends on which is asked first. */
static bool rename_explained(const struct acl_lane *l, const struct macl *from,
			     const struct macl *to, int64_t result)
{
	struct world *w = l->a->w;
	const uint32_t want = MACL_W | MACL_X;
	bool open = !acl_answer(w, from, l->user, want, false) &&
		    !acl_answer(w, to, l->user, want, false);
	bool moves = is_dir(l->t) && l->of != l->to; /* the entry ".." changes */

	if (result == -EPERM && is_kept(from, l)) {
		w->count->acl[ACL_STICKY]++;
		return true;
	}
	if (result == -EACCES)
		return !open || (moves && thing_answers(l, MACL_W, -EACCES));
	return !result && open && !is_kept(from, l) && (!moves || thing_answers(l, MACL_W, 0));
}

/* Tries all states that the directories may have had. */
static bool names_explained(const struct acl_lane *l, int64_t result)
{
	const struct subject *from = acl_dir(l->a->w, l->of), *to = acl_dir(l->a->w, l->to);
	uint32_t a = acl_possible(from, &l->when), b = acl_possible(to, &l->when);

	for (uint32_t i = 0; i < from->n; i++) {
		if (!(a & 1u << i))
			continue;
		if (l->kind != ACL_RENAME && dir_explains(l, &from->steps[i].m, result))
			return true;
		for (uint32_t k = 0; l->kind == ACL_RENAME && k < to->n; k++)
			if ((b & 1u << k) && (from != to || i == k) &&
			    rename_explained(l, &from->steps[i].m, &to->steps[k].m, result))
				return true;
	}
	return false;
}

static bool is_explained(struct acl_lane *l, int64_t result)
{
	switch (l->kind) {
	case ACL_THING_MODE:
	case ACL_THING_LIST:
	case ACL_THING_DEFAULT:
		return saw_inherited(l, result);
	case ACL_THING_OPEN:
		return l->by_path ? names_explained(l, result) : thing_answers(l, l->want, result);
	default:
		return names_explained(l, result);
	}
}

/* ---- the end of a call ---- */

static void made(struct acl_lane *l, const struct cop *c)
{
	struct thing *t = l->t;

	t->h = t->type == S_IFREG ? cfile_handle(c->file) :
				    (struct sheaf_handle){ c->res.made.at.ino, c->res.made.at.gen };
	t->from = acl_possible(acl_dir(l->a->w, l->of), &l->when);
	l->a->w->count->acl[ACL_MADE]++;
}

void thing_lost(struct acl_lane *l)
{
	l->t->state = THING_NONE;
}

void thing_done(struct acl_lane *l, const struct cop *c, int64_t result)
{
	struct world *w = l->a->w;
	struct thing *t = l->t;
	bool stays = l->kind == ACL_MAKE ? !result : l->kind != ACL_UNLINK || result;

	if (!is_explained(l, result)) {
		thing_lost(l);
		if (!fault_explains(l->a, l->started, result))
			world_fail(w, NO_FILE,
				   "c%u as user %u: %s %o of %s %s= %lld (mode %o, %u:%u), as in "
				   "no state (made by user %u with %o in acl%u, steps %x)",
				   l->a->id, macl_creds[l->user].uid, acl_names[l->kind], l->want,
				   l->path, l->path2, (long long)result, l->mode, l->uid, l->gid,
				   macl_creds[t->user].uid, t->mode, t->made_in, t->from);
		return;
	}
	if (l->kind == ACL_MAKE && !result)
		made(l, c);
	if (l->kind == ACL_RENAME && !result) {
		t->in = l->to;
		t->number = l->number;
	}
	t->state = stays ? THING_RESTS : THING_NONE;
}

/* ---- the beginning ---- */

static void name_of(char out[48], uint32_t client, uint32_t number)
{
	snprintf(out, 48, ACL_DIR "/i%u", client, number);
}

static void make(struct acl_lane *l, struct thing *t)
{
	static const uint32_t modes[] = { 0777, 0777, 0666, 0644, 0750, 0604, 0070, 0 };
	static const mode_t types[] = { S_IFREG, S_IFDIR, S_IFDIR, S_IFIFO };
	struct world *w = l->a->w;
	struct cop *c = acl_begin(l, ACL_MAKE, acl_pick(w, ACL_USERS));

	*t = (struct thing){ .state = THING_BUSY, .number = w->acl->n_things++ };
	t->in = t->made_in = l->of = l->to = acl_pick(w, w->n_actors);
	t->type = types[acl_pick(w, ARRAY_LEN(types))];
	t->maker = l->a->id;
	t->user = l->user;
	t->mode = modes[acl_pick(w, ARRAY_LEN(modes))];
	l->t = t;
	l->want = t->mode;
	name_of(l->path, t->in, t->number);
	if (t->type == S_IFREG)
		client_open(c, scene_root, l->path, O_CREAT | O_EXCL | O_RDWR, t->mode, NULL);
	else if (t->type == S_IFDIR)
		client_mkdir(c, scene_root, l->path, t->mode);
	else
		client_mknod(c, scene_root, l->path, t->type | t->mode, 0);
}

static void start_open(struct acl_lane *l, struct cop *c)
{
	l->want = acl_chance(l->a->w, 50) ? MACL_R : MACL_R | MACL_W;
	l->by_path = acl_chance(l->a->w, 50);
	if (l->by_path)
		client_open(c, scene_root, l->path, l->want & MACL_W ? O_RDWR : O_RDONLY, 0, NULL);
	else
		client_open(c, l->t->h, "", l->want & MACL_W ? O_RDWR : O_RDONLY, 0, NULL);
}

static void start_rename(struct acl_lane *l, struct cop *c)
{
	struct world *w = l->a->w;

	if (acl_chance(w, 60))
		l->to = acl_pick(w, w->n_actors);
	l->number = w->acl->n_things++;
	name_of(l->path2, l->to, l->number);
	client_rename(c, scene_root, l->path, scene_root, l->path2, 0);
}

static void use(struct acl_lane *l, struct thing *t)
{
	struct world *w = l->a->w;
	uint32_t k = acl_pick(w, ACL_CLOSE - ACL_THING_MODE);
	enum acl_kind kind = (enum acl_kind)(ACL_THING_MODE + k);
	struct cop *c;

	if (kind == ACL_THING_OPEN && t->type != S_IFREG)
		kind = ACL_THING_LIST;
	c = acl_begin(l, kind, acl_pick(w, ACL_USERS));
	l->t = t;
	l->of = l->to = t->in;
	t->state = THING_BUSY;
	name_of(l->path, t->in, t->number);
	if (kind == ACL_THING_MODE)
		client_layout(c, t->h);
	else if (kind == ACL_THING_LIST)
		client_getxattr(c, t->h, "system.posix_acl_access", MACL_BYTES);
	else if (kind == ACL_THING_DEFAULT)
		client_getxattr(c, t->h, "system.posix_acl_default", MACL_BYTES);
	else if (kind == ACL_THING_OPEN)
		start_open(l, c);
	else if (kind == ACL_RENAME)
		start_rename(l, c);
	else if (is_dir(t))
		client_rmdir(c, scene_root, l->path);
	else
		client_unlink(c, scene_root, l->path);
}

bool thing_start(struct acl_lane *l)
{
	struct world *w = l->a->w;
	struct thing *t = &w->acl->things[acl_pick(w, ACL_THINGS)];

	if (t->state == THING_RESTS)
		use(l, t);
	else if (t->state == THING_NONE)
		make(l, t);
	else
		return false;
	return true;
}
