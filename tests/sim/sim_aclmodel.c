/* A model of POSIX permissions and access control lists after acl(5), chmod(2) and chown(2);
 * pure functions. It shares no code with src/meta, which it judges. */
#include <endian.h>

#include "sim_acl.h"

static const uint32_t groups_1000[] = { 2000 }, groups_1001[] = { 2000, 2001 };

const struct sheaf_cred macl_creds[ACL_USERS] = {
	{ .umask = 022 },
	{ .uid = 1000, .gid = 1000, .n_gids = 1, .gids = groups_1000, .umask = 027 },
	{ .uid = 1001, .gid = 1001, .n_gids = 2, .gids = groups_1001, .umask = 002 },
	{ .uid = 1002, .gid = 1002 },
};
const uint32_t macl_uids[MACL_NAMED] = { 1000, 1001 };
const uint32_t macl_gids[MACL_NAMED] = { 1001, 2000 };

bool macl_in_group(const struct sheaf_cred *c, uint32_t gid)
{
	for (uint32_t i = 0; i < c->n_gids; i++)
		if (c->gids[i] == gid)
			return true;
	return c->gid == gid;
}

bool macl_owns(const struct macl *m, const struct sheaf_cred *c)
{
	return c->uid == 0 || c->uid == m->uid;
}

static uint32_t list_mode(const struct macl_list *l)
{
	uint32_t class = l->has_mask ? l->mask : l->group;

	return (uint32_t)l->owner << 6 | class << 3 | l->other;
}

uint32_t macl_mode(const struct macl *m)
{
	return m->special | list_mode(&m->access);
}

/* ---- access ---- */

static bool covers(uint32_t perm, uint32_t want)
{
	return (perm & want) == want;
}

/* Returns the permissions of the entry that decides. For groups: of an entry that grants
 * everything wanted, else none. */
static uint32_t entry_of(const struct macl *m, const struct sheaf_cred *c, uint32_t want,
			 enum macl_class *by)
{
	const struct macl_list *l = &m->access;
	uint32_t mask = l->has_mask ? l->mask : 7;
	bool member = macl_in_group(c, m->gid);

	*by = MACL_OWNER;
	if (c->uid == m->uid)
		return l->owner;
	*by = MACL_USER;
	for (int i = 0; i < MACL_NAMED; i++)
		if (l->users[i] != MACL_ABSENT && macl_uids[i] == c->uid)
			return l->users[i] & mask;
	*by = MACL_GROUP;
	if (member && covers(l->group & mask, want))
		return 7;
	for (int i = 0; i < MACL_NAMED; i++) {
		if (l->groups[i] == MACL_ABSENT || !macl_in_group(c, macl_gids[i]))
			continue;
		member = true;
		*by = MACL_NAMED_GROUP;
		if (covers(l->groups[i] & mask, want))
			return 7;
	}
	if (member)
		return 0;
	*by = MACL_OTHER;
	return l->other;
}

bool macl_grants(const struct macl *m, const struct sheaf_cred *c, uint32_t want,
		 enum macl_class *by, bool *masked)
{
	struct macl bare = *m;
	enum macl_class class = MACL_ROOT;
	bool granted = c->uid == 0 || covers(entry_of(m, c, want, &class), want);

	if (by)
		*by = class;
	bare.access.has_mask = false;
	if (masked)
		*masked = !granted && covers(entry_of(&bare, c, want, &class), want);
	return granted;
}

/* ---- changes ---- */

static void set_mode(struct macl_list *l, uint32_t mode)
{
	l->owner = mode >> 6 & 7;
	l->other = mode & 7;
	if (l->has_mask)
		l->mask = mode >> 3 & 7;
	else
		l->group = mode >> 3 & 7;
}

/* A caller outside of the group can neither keep nor set the setgid bit. */
static void check_setgid(struct macl *m, const struct sheaf_cred *c)
{
	if (c->uid != 0 && !macl_in_group(c, m->gid))
		m->special &= ~(uint32_t)S_ISGID;
}

void macl_chmod(struct macl *m, const struct sheaf_cred *c, uint32_t mode)
{
	m->special = mode & (S_ISGID | S_ISVTX);
	set_mode(&m->access, mode);
	check_setgid(m, c);
}

void macl_set(struct macl *m, const struct sheaf_cred *c, const struct macl_list *l)
{
	m->access = *l;
	check_setgid(m, c);
}

static void clear_names(struct macl_list *l)
{
	for (int i = 0; i < MACL_NAMED; i++)
		l->users[i] = l->groups[i] = MACL_ABSENT;
	l->has_mask = false;
}

/* The mode stays: its group bits, which were the mask, become those of the group. */
void macl_drop(struct macl *m)
{
	uint32_t mode = list_mode(&m->access);

	clear_names(&m->access);
	set_mode(&m->access, mode);
}

struct macl macl_inherit(const struct macl *dir, const struct sheaf_cred *c, uint32_t mode,
			 bool is_dir)
{
	bool passed_on = dir->special & S_ISGID;
	struct macl m = { .uid = c->uid, .gid = passed_on ? dir->gid : c->gid };

	if (is_dir && passed_on)
		m.special = S_ISGID;
	clear_names(&m.access);
	if (!dir->has_def) {
		set_mode(&m.access, mode & ~(uint32_t)c->umask);
		return m;
	}
	m.access = dir->def;
	set_mode(&m.access, list_mode(&dir->def) & mode);
	m.has_def = is_dir;
	m.def = dir->def;
	return m;
}

/* ---- encoding ---- */

static uint8_t *put_entry(uint8_t *p, uint16_t tag, uint16_t perm, uint32_t id)
{
	uint16_t head[2] = { htole16(tag), htole16(perm) };

	id = htole32(id);
	memcpy(p, head, sizeof(head));
	memcpy(p + sizeof(head), &id, sizeof(id));
	return p + sizeof(head) + sizeof(id);
}

size_t macl_encode(const struct macl_list *l, uint8_t out[MACL_BYTES])
{
	uint32_t version = htole32(2);
	uint8_t *p = out + sizeof(version);

	memcpy(out, &version, sizeof(version));
	p = put_entry(p, 1, l->owner, UINT32_MAX);
	for (int i = 0; i < MACL_NAMED; i++)
		if (l->users[i] != MACL_ABSENT)
			p = put_entry(p, 2, l->users[i], macl_uids[i]);
	p = put_entry(p, 4, l->group, UINT32_MAX);
	for (int i = 0; i < MACL_NAMED; i++)
		if (l->groups[i] != MACL_ABSENT)
			p = put_entry(p, 8, l->groups[i], macl_gids[i]);
	if (l->has_mask)
		p = put_entry(p, 16, l->mask, UINT32_MAX);
	return (size_t)(put_entry(p, 32, l->other, UINT32_MAX) - out);
}
