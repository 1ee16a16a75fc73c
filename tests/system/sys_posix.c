/* Permissions, modes, owners and times: random operations of three users and root, with a local
 * file system as the oracle; once more with access control lists and umasks. Also, names are plain
 * bytes, and the limits of names and paths. */
#include <dirent.h>
#include <grp.h>
#include <sys/time.h>
#include <sys/xattr.h>

#include "acl_list.h"
#include "base/base.h"
#include "cluster.h"

static struct cluster c;
static struct sheaf *fs;
static char oracle[64];
static uint64_t seed = 5;

static const struct user {
	uint32_t uid, gid, group;
} users[] = { { 0, 0, 0 }, { 1001, 1001, 2000 }, { 1002, 1002, 2000 }, { 1003, 1003, 1003 } };
static const mode_t modes[] = { 0777, 01777, 0755, 02775, 0700, 0644,
				0600, 04755, 0,	   06711, 0070, 0007 };
static const char *const pool[] = { "a", "b", "c" };
static const char *top = "o"; /* directory of all random operations */
static bool lists; /* use access control lists and umasks, too */
static mode_t mask; /* umask of this step */

static uint32_t rnd(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 11) % n);
}

/* With lists, no mode gives the group less than others: if the group bits of a file with a list are
 * empty, Linux ignores the list and treats the users that it names as others, unlike acl(5). */
static mode_t some_mode(void)
{
	return modes[rnd(lists ? 11 : 12)];
}

static void some_path(char out[64])
{
	int depth = 1 + (int)rnd(3), n = snprintf(out, 64, "%s", top);

	while (depth--)
		n += snprintf(out + n, 64 - (size_t)n, "/%s", pool[rnd(3)]);
}

/* Makes the kernel act as this user, until back(). */
static void become(const struct user *u)
{
	gid_t groups[] = { u->gid, u->group };

	CHECK_EQ(setgroups(2, groups), 0);
	CHECK_EQ(setegid(u->gid), 0);
	CHECK_EQ(seteuid(u->uid), 0);
	umask(mask);
}

static int back(int r)
{
	int e = r < 0 ? -errno : 0;

	umask(0);
	CHECK_EQ(seteuid(0), 0);
	CHECK_EQ(setegid(0), 0);
	CHECK_EQ(setgroups(0, NULL), 0);
	return e;
}

struct both {
	int here, there;
};

static int find(const struct sheaf_cred *cred, const char *path, struct sheaf_handle *h)
{
	return sheaf_h_lookup(fs, cred, sheaf_root(fs), path, h, NULL);
}

static struct both on_open(const struct user *u, const struct sheaf_cred *cred, const char *a,
			   int flags, mode_t mode)
{
	/* the kernel clears set-id bits at a write, sheaf at an open for writing: write to agree */
	bool write = (flags & (O_WRONLY | O_RDWR)) && access(a, F_OK) == 0;
	struct both b;
	struct sheaf_file *f;
	int fd;

	b.here = sheaf_h_open(fs, cred, sheaf_root(fs), a, flags, mode, NULL, &f);
	if (!b.here && write)
		CHECK_EQ(sheaf_pwrite(f, "x", 1, 0), 1);
	if (!b.here)
		CHECK_EQ(sheaf_close(f), 0);
	become(u);
	fd = open(a, flags, mode);
	if (fd >= 0 && write)
		CHECK_EQ(pwrite(fd, "x", 1, 0), 1);
	b.there = back(fd);
	if (fd >= 0)
		close(fd);
	return b;
}

static struct both on_attr(const struct user *u, const struct sheaf_cred *cred, const char *a,
			   int what)
{
	mode_t mode = some_mode();
	const struct user *to = &users[rnd(4)];
	uint32_t gid = rnd(2) ? to->gid : to->group;
	struct stat st = { .st_mode = mode, .st_uid = to->uid, .st_gid = gid };
	struct timespec ts[2] = { { 1000, 5 }, { 2000, 7 } };
	struct sheaf_handle h;
	struct both b;
	int r;

	st.st_atim = ts[0];
	st.st_mtim = ts[1];
	b.here = find(cred, a, &h);
	if (!b.here && what == 0)
		b.here = sheaf_h_setattr(fs, cred, h, SHEAF_SET_MODE, &st, NULL);
	else if (!b.here && what == 1)
		b.here = sheaf_h_setattr(fs, cred, h, SHEAF_SET_UID | SHEAF_SET_GID, &st, NULL);
	else if (!b.here && what == 2)
		b.here = sheaf_h_setattr(fs, cred, h, SHEAF_SET_GID, &st, NULL);
	else if (!b.here && what == 3)
		b.here = sheaf_h_setattr(fs, cred, h, SHEAF_SET_ATIME | SHEAF_SET_MTIME, &st, NULL);
	else if (!b.here)
		b.here = sheaf_h_setattr(fs, cred, h, SHEAF_SET_ATIME_NOW | SHEAF_SET_MTIME_NOW,
					 &st, NULL);
	become(u);
	if (what == 0)
		r = chmod(a, mode);
	else if (what == 1)
		r = lchown(a, to->uid, gid);
	else if (what == 2)
		r = lchown(a, (uid_t)-1, gid);
	else
		r = utimensat(AT_FDCWD, a, what == 3 ? ts : NULL, 0);
	b.there = back(r);
	return b;
}

static struct both on_names(const struct user *u, const struct sheaf_cred *cred, const char *a,
			    const char *bb, int what)
{
	struct sheaf_handle root = sheaf_root(fs);
	mode_t mode = some_mode();
	struct both b;
	int r;

	if (what == 0)
		b.here = sheaf_h_mkdir(fs, cred, root, a, mode, NULL, NULL);
	else if (what == 1)
		b.here = sheaf_h_rmdir(fs, cred, root, a);
	else if (what == 2)
		b.here = sheaf_h_unlink(fs, cred, root, a);
	else
		b.here = sheaf_h_rename(fs, cred, root, a, root, bb, 0);
	become(u);
	if (what == 0)
		r = mkdir(a, mode);
	else if (what == 1)
		r = rmdir(a);
	else if (what == 2)
		r = unlink(a);
	else
		r = rename(a, bb);
	b.there = back(r);
	return b;
}

static struct both on_truncate(const struct user *u, const struct sheaf_cred *cred, const char *a)
{
	off_t size = rnd(5000);
	struct sheaf_handle h;
	struct both b;

	b.here = find(cred, a, &h);
	if (!b.here)
		b.here = sheaf_h_truncate(fs, cred, h, size);
	become(u);
	b.there = back(truncate(a, size));
	return b;
}

static uint32_t somebody(uint32_t i)
{
	return i % 2 ? users[i % 4].uid : users[i % 4].group;
}

/* When a list is removed by a user outside of the group, tmpfs clears set-gid; ext4 and sheaf do
 * not. */
static void agree_on_setgid(const char *path)
{
	struct stat ours, theirs;

	if (sheaf_lstat(fs, path, &ours) == 0 && lstat(path, &theirs) == 0 &&
	    (ours.st_mode ^ theirs.st_mode) == S_ISGID)
		CHECK_EQ(chmod(path, ours.st_mode & 07777), 0);
}

/* Sets a random list, or removes one. */
static struct both on_list(const struct user *u, const struct sheaf_cred *cred, const char *a)
{
	const char *name = rnd(2) ? ACCESS_ACL : DEFAULT_ACL;
	bool drop = rnd(4) == 0;
	struct list_acl list;
	struct acl_bytes v;
	struct sheaf_handle h;
	struct both b;

	acl_random(&list, rnd, somebody);
	acl_entry(&list, acl_entry(&list, A_MASK) ? A_MASK : A_GROUP_OBJ)->perm |=
		acl_entry(&list, A_OTHER)->perm;
	v = acl_bytes(&list);
	b.here = find(cred, a, &h);
	if (!b.here)
		b.here = drop ? sheaf_h_removexattr(fs, cred, h, name) :
				sheaf_h_setxattr(fs, cred, h, name, v.b, v.len, 0);
	become(u);
	b.there = back(drop ? removexattr(a, name) : setxattr(a, name, v.b, v.len, 0));
	if (drop && !b.here && !b.there)
		agree_on_setgid(a);
	return b;
}

/* Both failed, with different errors for an operation that is wrong in two ways. */
static bool either(const struct both *b, const char *x, const char *y)
{
	static const int same[][2] = { { EACCES, EPERM },    { EACCES, ENOTEMPTY },
				       { EACCES, EISDIR },   { EACCES, ENOTDIR },
				       { EPERM, ENOTEMPTY }, { EPERM, EISDIR },
				       { EPERM, ENOTDIR },   { EACCES, EEXIST },
				       { EACCES, ENOENT },   { ENOENT, ENOTDIR } };

	if (!b->here || !b->there)
		return false;
	if (!strncmp(x, y, strlen(y)) || !strncmp(x, y, strlen(x)))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(same); i++)
		if ((-b->here == same[i][0] && -b->there == same[i][1]) ||
		    (-b->here == same[i][1] && -b->there == same[i][0]))
			return true;
	return false;
}

static void compare_list(const char *path, const char *name)
{
	struct acl_bytes ours, theirs;
	ssize_t here = sheaf_getxattr(fs, path, name, ours.b, sizeof(ours.b));
	ssize_t there = getxattr(path, name, theirs.b, sizeof(theirs.b));

	CHECK_EQ(here, there < 0 ? -errno : there);
	if (here > 0 && memcmp(ours.b, theirs.b, (size_t)here) != 0)
		fprintf(stderr, "%s: its %s is another one\n", path, name);
	CHECK(here < 0 || !memcmp(ours.b, theirs.b, (size_t)here));
}

static void compare(const char *path)
{
	struct stat ours, theirs;
	int here = sheaf_lstat(fs, path, &ours), there = lstat(path, &theirs) ? -errno : 0;

	CHECK_EQ(here, there);
	if (here)
		return;
	if (ours.st_mode != theirs.st_mode || ours.st_uid != theirs.st_uid ||
	    ours.st_gid != theirs.st_gid || ours.st_nlink != theirs.st_nlink)
		fprintf(stderr, "%s: %o %u:%u, expected %o %u:%u\n", path, ours.st_mode,
			ours.st_uid, ours.st_gid, theirs.st_mode, theirs.st_uid, theirs.st_gid);
	CHECK_EQ(ours.st_mode, theirs.st_mode);
	CHECK_EQ(ours.st_uid, theirs.st_uid);
	CHECK_EQ(ours.st_gid, theirs.st_gid);
	CHECK_EQ(ours.st_nlink, theirs.st_nlink);
	if (S_ISREG(ours.st_mode))
		CHECK_EQ(ours.st_size, theirs.st_size);
	if (lists) {
		compare_list(path, ACCESS_ACL);
		compare_list(path, DEFAULT_ACL);
	}
}

static void one_step(int i)
{
	const struct user *u = &users[rnd(4)];
	uint32_t gids[] = { u->gid, u->group };
	struct sheaf_cred cred = {
		.uid = u->uid, .gid = u->gid, .n_gids = 2, .gids = gids, .umask = mask
	};
	static const int flags[] = {
		O_RDONLY,	   O_WRONLY, O_RDWR, O_WRONLY | O_CREAT, O_RDWR | O_CREAT | O_EXCL,
		O_WRONLY | O_TRUNC
	};
	int what = (int)rnd(lists ? 18 : 14), flag = flags[rnd(6)];
	mode_t mode = some_mode();
	struct both r;
	char a[64], b[64];

	some_path(a);
	some_path(b);
	if (what < 5)
		r = on_attr(u, &cred, a, what);
	else if (what < 10)
		r = on_names(u, &cred, a, b, what == 9 ? 0 : what - 5);
	else if (what == 10)
		r = on_truncate(u, &cred, a);
	else if (what > 13)
		r = on_list(u, &cred, a);
	else
		r = on_open(u, &cred, a, flag, mode);
	if (r.here != r.there && !either(&r, a, what == 8 ? b : a + 63)) {
		fprintf(stderr, "step %d, kind %d, user %u, %s %s (flags %x): %s, expected %s\n", i,
			what, u->uid, a, b, flag, strerror(-r.here), strerror(-r.there));
		CHECK_EQ(r.here, r.there);
	}
	compare(a);
	compare(b);
}

static void users_may_what_they_may_elsewhere(void)
{
	if (geteuid() != 0)
		return;
	temp_dir(oracle, sizeof(oracle));
	CHECK_EQ(chmod(oracle, 0755), 0);
	/* so that users need no permission for the directories above */
	CHECK_EQ(chdir(oracle), 0);
	umask(0);
	CHECK_EQ(sheaf_mkdir(fs, "/o", 0777), 0);
	CHECK_EQ(mkdir("o", 0777), 0);
	for (int i = 0; i < 3000; i++)
		one_step(i);
}

static void acls_grant_what_they_grant_elsewhere(void)
{
	static const mode_t masks[] = { 0, 022, 027, 077 };
	struct list_acl a = { 0 };
	struct acl_bytes v;

	if (geteuid() != 0)
		return;
	top = "lists";
	CHECK_EQ(sheaf_mkdir(fs, "/lists", 0777), 0);
	CHECK_EQ(mkdir(top, 0777), 0);
	acl_random(&a, rnd, somebody);
	v = acl_bytes(&a);
	if (setxattr(top, DEFAULT_ACL, v.b, v.len, 0) < 0) {
		printf("  the local file system has no lists: %s\n", strerror(errno));
		return;
	}
	CHECK_EQ(removexattr(top, DEFAULT_ACL), 0);
	lists = true;
	for (int i = 0; i < 5000; i++) {
		mask = masks[rnd(4)];
		one_step(i);
	}
	lists = false;
	mask = 0;
}

/* ---- times ---- */

static bool later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static void times_move_when_they_must(void)
{
	const char *d = fresh_dir(fs);
	struct sheaf_file *f = open_file(fs, path_in(d, "f"), O_CREAT | O_RDWR);
	struct stat a, b, dir, dir2;

	CHECK_EQ(sheaf_stat(fs, path_in(d, "f"), &a), 0);
	CHECK_EQ(sheaf_stat(fs, d, &dir), 0);
	pause_ms(5);
	CHECK_EQ(sheaf_pwrite(f, "x", 1, 0), 1);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "f"), &b), 0);
	CHECK(later(b.st_mtim, a.st_mtim) && later(b.st_ctim, a.st_ctim));
	CHECK_EQ(sheaf_stat(fs, d, &dir2), 0);
	CHECK(!later(dir2.st_mtim, dir.st_mtim));
	pause_ms(5);
	CHECK_EQ(sheaf_chmod(fs, path_in(d, "f"), 0600), 0);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "f"), &a), 0);
	CHECK(later(a.st_ctim, b.st_ctim) && !later(a.st_mtim, b.st_mtim));
	pause_ms(5);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "f"), path_in(d, "g")), 0);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "g"), &b), 0);
	CHECK_EQ(sheaf_stat(fs, d, &dir), 0);
	CHECK(later(b.st_ctim, a.st_ctim) && later(dir.st_mtim, dir2.st_mtim));
	CHECK_EQ(sheaf_utimens(fs, path_in(d, "g"),
			       (struct timespec[2]){ { -5, 999999999 }, { 7, 1 } }),
		 0);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "g"), &a), 0);
	CHECK(a.st_atim.tv_sec == -5 && a.st_atim.tv_nsec == 999999999 && a.st_mtim.tv_nsec == 1);
}

/* ---- names ---- */

static void names_are_bytes(void)
{
	const char *d = fresh_dir(fs);
	static const char *const odd[] = { "\xff\xfe", "a\nb", " ", "...", "-rf", "\x01", "*?[" };
	char name[300], deep[4200];
	struct sheaf_handle h, dir;
	struct stat st;
	size_t n;

	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), d + 1, &dir, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		CHECK_EQ(sheaf_h_mknod(fs, NULL, dir, odd[i], 0644, 0, &h, NULL), 0);
		CHECK_EQ(sheaf_h_lookup(fs, NULL, dir, odd[i], &h, &st), 0);
		CHECK_EQ(sheaf_h_unlink(fs, NULL, dir, odd[i]), 0);
	}
	memset(name, 'n', sizeof(name));
	name[255] = 0;
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, name), 0755), 0);
	name[255] = 'n';
	name[256] = 0;
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, name), 0755), -ENAMETOOLONG);
	CHECK_EQ(sheaf_stat(fs, path_in(d, name), &st), -ENAMETOOLONG);
	CHECK_EQ(sheaf_h_mkdir(fs, NULL, dir, ".", 0755, NULL, NULL), -EEXIST);
	CHECK_EQ(sheaf_h_mkdir(fs, NULL, dir, "..", 0755, NULL, NULL), -EEXIST);
	CHECK_EQ(sheaf_h_rmdir(fs, NULL, dir, "."), -EINVAL);
	CHECK_EQ(sheaf_h_unlink(fs, NULL, dir, ".."), -EISDIR);
	CHECK_EQ(sheaf_h_rename(fs, NULL, dir, ".", dir, "x", 0), -EBUSY);
	CHECK_EQ(sheaf_mkdir(fs, "/", 0755), -EEXIST);
	CHECK_EQ(open_error(fs, "/.", O_CREAT | O_RDWR), -EISDIR);
	n = (size_t)snprintf(deep, sizeof(deep), "%s", d);
	while (n < 3900) { /* 1,950 levels */
		n += (size_t)snprintf(deep + n, sizeof(deep) - n, "/x");
		CHECK_EQ(sheaf_mkdir(fs, deep, 0755), 0);
	}
	CHECK_EQ(sheaf_stat(fs, deep, &st), 0);
	while (n > strlen(d)) {
		CHECK_EQ(sheaf_rmdir(fs, deep), 0);
		deep[n -= 2] = 0;
	}
}

static void links_have_a_limit(void)
{
	const char *d = fresh_dir(fs);
	struct sheaf_handle dir, h;
	char name[16];
	int r = 0, n = 1;

	if (!getenv("SHEAF_TEST_LONG"))
		return;
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), d + 1, &dir, NULL), 0);
	CHECK_EQ(sheaf_h_mknod(fs, NULL, dir, "f", 0644, 0, &h, NULL), 0);
	for (; !r && n < 70000; n++) {
		snprintf(name, sizeof(name), "%d", n);
		r = sheaf_h_link(fs, NULL, h, dir, name, NULL);
	}
	CHECK_EQ(r, -EMLINK);
	CHECK_EQ(n, 65001);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .servers = 3, .timeout = 20 });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(NULL, begin, end, TEST(users_may_what_they_may_elsewhere),
	 TEST(acls_grant_what_they_grant_elsewhere), TEST(times_move_when_they_must),
	 TEST(names_are_bytes), TEST(links_have_a_limit))
