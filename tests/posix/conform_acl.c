/* POSIX access control lists, as the extended attributes that setfacl sets: their format, what they
 * permit, how they relate to the mode, and how directories pass them on. Needs root, to act as
 * other users. */
#include <sys/xattr.h>

#include "conform.h"

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

enum { OWNER = 0x01, ANY_USER = 0x02, GROUP = 0x04, ANY_GROUP = 0x08, MASK = 0x10, OTHERS = 0x20 };

/* The kernel's format: a version, then entries; all little-endian. */
struct entry {
	uint16_t tag, perm;
	uint32_t id;
};

struct acl {
	uint32_t version;
	struct entry e[8];
};

#define NOBODY UINT32_MAX

static int set(const char *path, const char *which, const struct acl *a, size_t n)
{
	return setxattr(path, which, a, 4 + n * sizeof(struct entry), 0);
}

static struct acl get(const char *path, const char *which, size_t *n)
{
	struct acl a = { 0 };
	ssize_t got = getxattr(path, which, &a, sizeof(a));

	*n = got < 4 ? 0 : (size_t)(got - 4) / sizeof(struct entry);
	return a;
}

/* user::o, user:STRANGER:u, group::g, mask::m, other::r */
static struct acl named_user(int o, int u, int g, int m, int r)
{
	return (struct acl){ 2,
			     { { OWNER, (uint16_t)o, NOBODY },
			       { ANY_USER, (uint16_t)u, uid_of(STRANGER) },
			       { GROUP, (uint16_t)g, NOBODY },
			       { MASK, (uint16_t)m, NOBODY },
			       { OTHERS, (uint16_t)r, NOBODY } } };
}

static struct acl named_group(int o, int g, int named, int m, int r)
{
	return (struct acl){ 2,
			     { { OWNER, (uint16_t)o, NOBODY },
			       { GROUP, (uint16_t)g, NOBODY },
			       { ANY_GROUP, (uint16_t)named, gid_of(STRANGER) },
			       { MASK, (uint16_t)m, NOBODY },
			       { OTHERS, (uint16_t)r, NOBODY } } };
}

static void make(const char *path)
{
	put(path, "content");
	OK(chown(path, uid_of(USER), gid_of(USER)));
}

static void may(enum who who, const char *path, int bits, const char *name)
{
	AS(who)
	{
		expect(bits & 4 ? 0 : EACCES, access(path, R_OK), "%s reads %s", name, path);
		expect(bits & 2 ? 0 : EACCES, access(path, W_OK), "%s writes %s", name, path);
		expect(bits & 1 ? 0 : EACCES, access(path, X_OK), "%s executes %s", name, path);
		expect(bits & 4 ? 0 : EACCES, open(path, O_RDONLY), "%s opens %s", name, path);
	}
}

static void acl_users(void)
{
	static const struct {
		int o, u, g, m, r;
	} rows[] = {
		{ 6, 4, 0, 7, 0 }, { 6, 6, 4, 4, 4 }, { 7, 6, 0, 1, 7 }, { 0, 0, 7, 7, 7 },
		{ 4, 1, 2, 3, 4 }, { 6, 7, 5, 5, 1 }, { 5, 2, 6, 6, 0 },
	};

	make("f");
	for (size_t i = 0; i < N_OF(rows); i++) {
		struct acl a = named_user(rows[i].o, rows[i].u, rows[i].g, rows[i].m, rows[i].r), b;
		size_t n;

		OK(set("f", ACCESS, &a, 5));
		b = get("f", ACCESS, &n);
		EQ(n, 5);
		EQ(memcmp(&a, &b, 4 + 5 * sizeof(struct entry)), 0);
		/* the mode shows the mask */
		EQ(mode_of("f"), rows[i].o << 6 | rows[i].m << 3 | rows[i].r);
		may(USER, "f", rows[i].o, "owner");
		may(STRANGER, "f", rows[i].u & rows[i].m, "named user");
		may(MEMBER, "f", rows[i].g & rows[i].m, "group");
	}
}

static void acl_groups_of(void)
{
	struct acl a;

	make("f");
	OK(chmod("f", 0600));
	a = named_group(6, 0, 4, 6, 0);
	OK(set("f", ACCESS, &a, 5));
	may(STRANGER, "f", 4, "named group");
	may(MEMBER, "f", 0, "group");
	/* a group matches: the permissions of others do not apply */
	a = named_group(6, 4, 6, 4, 7);
	OK(set("f", ACCESS, &a, 5));
	may(STRANGER, "f", 4, "named group under a mask");
	may(MEMBER, "f", 4, "group under a mask");
	a = named_group(0, 7, 7, 7, 7);
	OK(set("f", ACCESS, &a, 5));
	may(USER, "f", 0, "owner");
}

static void acl_and_chmod(void)
{
	struct acl a = named_user(6, 6, 4, 6, 0);
	size_t n;

	make("f");
	OK(set("f", ACCESS, &a, 5));
	OK(chmod("f", 0640)); /* the group bits of the mode are the mask */
	a = get("f", ACCESS, &n);
	EQ(n, 5);
	EQ(a.e[1].perm, 6);
	EQ(a.e[2].perm, 4);
	EQ(a.e[3].perm, 4);
	may(STRANGER, "f", 4, "named user");
	OK(chmod("f", 0717)); /* not 0707: without group bits Linux skips the list */
	a = get("f", ACCESS, &n);
	EQ(a.e[0].perm, 7);
	EQ(a.e[3].perm, 1);
	EQ(a.e[4].perm, 7);
	may(STRANGER, "f", 0, "named user");
	OK(removexattr("f", ACCESS));
	EQ(mode_of("f"), 0717);
	FAILS(ENODATA, getxattr("f", ACCESS, NULL, 0));
	may(STRANGER, "f", 7, "others");
}

/* A list of three entries is equivalent to a mode and is stored as one. */
static void acl_minimal(void)
{
	struct acl a = { 2, { { OWNER, 7, NOBODY }, { GROUP, 5, NOBODY }, { OTHERS, 1, NOBODY } } };

	make("f");
	OK(set("f", ACCESS, &a, 3));
	EQ(mode_of("f"), 0751);
	FAILS(ENODATA, getxattr("f", ACCESS, NULL, 0));
	a = named_user(7, 7, 7, 7, 7);
	OK(set("f", ACCESS, &a, 5));
	OK(setxattr("f", ACCESS, NULL, 0, 0)); /* an empty value removes the list */
	FAILS(ENODATA, getxattr("f", ACCESS, NULL, 0));
}

static void acl_inherited(void)
{
	struct acl a = named_user(7, 6, 5, 7, 0), b;
	size_t n;

	umask(077); /* has no effect where a default list exists */
	OK(mkdir("d", 0777));
	OK(chmod("d", 0777));
	OK(set("d", DEFAULT, &a, 5));
	EQ(mode_of("d"), 0777);
	put("d/f", "x"); /* mode 0644 */
	b = get("d/f", ACCESS, &n);
	EQ(n, 5);
	EQ(b.e[0].perm, 6);
	EQ(b.e[1].perm, 6);
	EQ(b.e[2].perm, 5);
	EQ(b.e[3].perm, 4);
	EQ(b.e[4].perm, 0);
	EQ(mode_of("d/f"), 0640);
	FAILS(ENODATA, getxattr("d/f", DEFAULT, NULL, 0));
	OK(mkdir("d/s", 0777));
	b = get("d/s", DEFAULT, &n);
	EQ(n, 5);
	EQ(memcmp(&a, &b, 4 + 5 * sizeof(struct entry)), 0);
	b = get("d/s", ACCESS, &n);
	EQ(n, 5);
	EQ(b.e[3].perm, 7);
	EQ(mode_of("d/s"), 0770);
	OK(mkfifo("d/fifo", 0666));
	EQ(mode_of("d/fifo"), 0660);
	OK(symlink("x", "d/l"));
	FAILS(EOPNOTSUPP, lgetxattr("d/l", ACCESS, NULL, 0));
	put("outside", "x");
	OK(rename("outside", "d/outside")); /* a moved file keeps its own list */
	FAILS(ENODATA, getxattr("d/outside", ACCESS, NULL, 0));
	OK(removexattr("d", DEFAULT));
	put("d/g", "x");
	EQ(mode_of("d/g"), 0600);
	FAILS(ENODATA, getxattr("d/g", ACCESS, NULL, 0));
}

static void acl_malformed(void)
{
	struct acl good = named_user(6, 4, 4, 4, 4), a;

	make("f");
	OK(symlink("f", "l"));
	a = good, a.version = 1;
	FAILS(EOPNOTSUPP, set("f", ACCESS, &a, 5));
	FAILS(EINVAL, set("f", ACCESS, &good, 4)); /* no entry for others */
	a = good, a.e[3] = (struct entry){ OTHERS, 4, NOBODY };
	FAILS(EINVAL, set("f", ACCESS, &a, 4)); /* a named entry without a mask */
	a = good, a.e[0].tag = 0x40;
	FAILS(EINVAL, set("f", ACCESS, &a, 5));
	a = good, a.e[0].perm = 8;
	FAILS(EINVAL, set("f", ACCESS, &a, 5));
	a = good, a.e[0] = good.e[1], a.e[1] = good.e[0];
	FAILS(EINVAL, set("f", ACCESS, &a, 5)); /* entries out of order */
	FAILS(EINVAL, setxattr("f", ACCESS, &good, 7, 0));
	FAILS(EINVAL, setxattr("f", ACCESS, &good, 3, 0));
	FAILS(EACCES, set("f", DEFAULT, &good, 5)); /* only directories have a default list */
	FAILS(EOPNOTSUPP, lsetxattr("l", ACCESS, &good, 4 + 5 * sizeof(struct entry), 0));
	EQ(mode_of("f"), 0644);
	FAILS(ENODATA, getxattr("f", ACCESS, NULL, 0));
	AS(STRANGER)
	{
		FAILS(EPERM, set("f", ACCESS, &good, 5));
		FAILS(EPERM, removexattr("f", ACCESS));
	}
	AS(USER)
	OK(set("f", ACCESS, &good, 5));
}

static void acl_listed(void)
{
	struct acl a = named_user(7, 7, 7, 7, 7);
	char b[256];
	ssize_t n;

	OK(mkdir("d", 0755));
	EQ(listxattr("d", b, sizeof(b)), 0);
	OK(set("d", ACCESS, &a, 5));
	OK(set("d", DEFAULT, &a, 5));
	n = OK(listxattr("d", b, sizeof(b)));
	TRUE(n > 0 && memmem(b, (size_t)n, ACCESS, sizeof(ACCESS)));
	TRUE(n > 0 && memmem(b, (size_t)n, DEFAULT, sizeof(DEFAULT)));
	FAILS(ERANGE, getxattr("d", ACCESS, b, 10));
	EQ(getxattr("d", ACCESS, NULL, 0), 44);
}

const struct test_group acl_groups[] = {
	{ .name = "acl_users", .run = acl_users, .needs = NEEDS_ROOT, .feature = "acl" },
	{ .name = "acl_groups_of", .run = acl_groups_of, .needs = NEEDS_ROOT, .feature = "acl" },
	{ .name = "acl_and_chmod", .run = acl_and_chmod, .needs = NEEDS_ROOT, .feature = "acl" },
	{ .name = "acl_minimal", .run = acl_minimal, .needs = NEEDS_ROOT, .feature = "acl" },
	{ .name = "acl_inherited", .run = acl_inherited, .needs = NEEDS_ROOT, .feature = "acl" },
	{ .name = "acl_malformed", .run = acl_malformed, .needs = NEEDS_ROOT, .feature = "acl" },
	{ .name = "acl_listed", .run = acl_listed, .needs = NEEDS_ROOT, .feature = "acl" },
	{ 0 },
};
