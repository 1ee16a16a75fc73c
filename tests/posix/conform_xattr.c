/* Extended attributes: user.* on all file types, flags, lengths, lists, names; trusted.* for root
 * only. */
#include <limits.h>
#include <sys/xattr.h>

#include "conform.h"

static bool value_is(const char *path, const char *name, const char *want, size_t len)
{
	char b[2048];
	ssize_t n = lgetxattr(path, name, b, sizeof(b));

	return n == (ssize_t)len && memcmp(b, want, len) == 0;
}

static void xattr_values(void)
{
	static char large[1001];
	int fd;

	put("f", "x");
	OK(setxattr("f", "user.a", "one", 3, 0));
	TRUE(value_is("f", "user.a", "one", 3));
	OK(setxattr("f", "user.a", "longer than before", 18, 0));
	TRUE(value_is("f", "user.a", "longer than before", 18));
	OK(setxattr("f", "user.a", "s", 1, 0));
	TRUE(value_is("f", "user.a", "s", 1));
	OK(setxattr("f", "user.empty", "", 0, 0));
	EQ(getxattr("f", "user.empty", NULL, 0), 0);
	OK(setxattr("f", "user.binary", "a\0b\xff", 4, 0));
	TRUE(value_is("f", "user.binary", "a\0b\xff", 4));
	memset(large, 'L', 1000);
	OK(setxattr("f", "user.large", large, 1000, 0));
	TRUE(value_is("f", "user.large", large, 1000));
	OK(mkdir("d", 0755));
	OK(setxattr("d", "user.dir", "yes", 3, 0));
	TRUE(value_is("d", "user.dir", "yes", 3));
	OK(symlink("f", "l"));
	OK(setxattr("l", "user.through", "1", 1, 0)); /* follows the link */
	TRUE(value_is("f", "user.through", "1", 1));
	fd = (int)OK(open("f", O_RDONLY));
	OK(fsetxattr(fd, "user.fd", "2", 1, 0));
	EQ(fgetxattr(fd, "user.fd", large, 10), 1);
	OK(fremovexattr(fd, "user.fd"));
	FAILS(ENODATA, fgetxattr(fd, "user.fd", large, 10));
}

static void xattr_errors(void)
{
	static char long_name[300] = "user.";
	static char huge[XATTR_SIZE_MAX + 1];
	char b[16];

	put("f", "x");
	OK(setxattr("f", "user.a", "12345", 5, XATTR_CREATE));
	FAILS(EEXIST, setxattr("f", "user.a", "x", 1, XATTR_CREATE));
	OK(setxattr("f", "user.a", "54321", 5, XATTR_REPLACE));
	FAILS(ENODATA, setxattr("f", "user.none", "x", 1, XATTR_REPLACE));
	FAILS(EINVAL, setxattr("f", "user.a", "x", 1, 0x80));
	FAILS(ERANGE, getxattr("f", "user.a", b, 4));
	EQ(getxattr("f", "user.a", NULL, 0), 5);
	EQ(getxattr("f", "user.a", b, 5), 5);
	FAILS(ENODATA, getxattr("f", "user.none", b, sizeof(b)));
	FAILS(ENODATA, removexattr("f", "user.none"));
	FAILS(ENOENT, getxattr("none", "user.a", b, sizeof(b)));
	FAILS(ENOENT, setxattr("none", "user.a", "x", 1, 0));
	FAILS(ENOTDIR, listxattr("f/x", b, sizeof(b)));
	FAILS(EOPNOTSUPP, setxattr("f", "nonsense.a", "x", 1, 0));
	FAILS(EOPNOTSUPP, setxattr("f", "plain", "x", 1, 0));
	FAILS(ERANGE, setxattr("f", "", "x", 1, 0));
	FAILS(E2BIG, setxattr("f", "user.huge", huge, sizeof(huge), 0));
	memset(long_name + 5, 'n', 250);
	OK(setxattr("f", long_name, "x", 1, 0));
	TRUE(value_is("f", long_name, "x", 1));
	long_name[255] = 'n';
	FAILS(ERANGE, setxattr("f", long_name, "x", 1, 0));
	FAILS(EFAULT, syscall(SYS_setxattr, "f", "user.b", no_memory, 5, 0));
	TRUE(value_is("f", "user.a", "54321", 5));
}

/* Counts the names in a list and checks that each is expected. */
static int names_in(const char *list, ssize_t len)
{
	int n = 0;

	for (const char *p = list; p < list + len; p += strlen(p) + 1)
		n += strncmp(p, "user.n", 6) == 0;
	return n;
}

static void xattr_lists(void)
{
	char name[32], b[4096];
	ssize_t n;

	put("f", "x");
	EQ(listxattr("f", b, sizeof(b)), 0);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "user.n%d", i);
		OK(setxattr("f", name, name, strlen(name), 0));
	}
	n = OK(listxattr("f", b, sizeof(b)));
	EQ(names_in(b, n), 40);
	EQ(listxattr("f", NULL, 0), n);
	FAILS(ERANGE, listxattr("f", b, (size_t)n - 1));
	for (int i = 0; i < 40; i += 2) {
		snprintf(name, sizeof(name), "user.n%d", i);
		OK(removexattr("f", name));
	}
	n = OK(listxattr("f", b, sizeof(b)));
	EQ(names_in(b, n), 20);
	TRUE(value_is("f", "user.n7", "user.n7", 7));
}

static void xattr_kinds(void)
{
	OK(symlink("nowhere", "l"));
	OK(mkfifo("fifo", 0644));
	FAILS(EPERM, lsetxattr("l", "user.a", "x", 1, 0));
	FAILS(EPERM, setxattr("fifo", "user.a", "x", 1, 0));
	FAILS(ENOENT, setxattr("l", "user.a", "x", 1, 0));
	EQ(llistxattr("l", NULL, 0), 0);
}

static void xattr_follow_the_inode(void)
{
	int fd;

	put("f", "x");
	OK(setxattr("f", "user.a", "1", 1, 0));
	OK(rename("f", "g"));
	TRUE(value_is("g", "user.a", "1", 1));
	OK(link("g", "h"));
	OK(setxattr("h", "user.a", "2", 1, 0));
	TRUE(value_is("g", "user.a", "2", 1));
	put("f", "new");
	EQ(listxattr("f", NULL, 0), 0); /* a new file has none */
	fd = (int)OK(open("g", O_RDWR));
	OK(unlink("g"));
	OK(unlink("h"));
	EQ(fgetxattr(fd, "user.a", (char[4]){ 0 }, 4), 1);
	OK(fsetxattr(fd, "user.late", "x", 1, 0));
	OK(close(fd));
	put("o", "over");
	OK(setxattr("o", "user.o", "1", 1, 0));
	OK(rename("f", "o"));
	EQ(listxattr("o", NULL, 0), 0);
}

static void xattr_rights(void)
{
	put("f", "x");
	OK(chown("f", uid_of(USER), gid_of(USER)));
	OK(chmod("f", 0644));
	OK(setxattr("f", "user.a", "1", 1, 0));
	put("secret", "x");
	OK(chmod("secret", 0600));
	OK(setxattr("secret", "user.a", "1", 1, 0));
	AS(STRANGER)
	{
		EQ(getxattr("f", "user.a", (char[4]){ 0 }, 4), 1);
		FAILS(EACCES, setxattr("f", "user.a", "2", 1, 0));
		FAILS(EACCES, removexattr("f", "user.a"));
		FAILS(EACCES, getxattr("secret", "user.a", (char[4]){ 0 }, 4));
		OK(listxattr("secret", NULL, 0)); /* names are not protected */
	}
	AS(USER)
	{
		OK(setxattr("f", "user.a", "3", 1, 0));
		OK(removexattr("f", "user.a"));
	}
	OK(mkdir("t", 0755));
	OK(chmod("t", 01777));
	AS(USER)
	FAILS(EPERM, setxattr("t", "user.a", "x", 1, 0)); /* sticky: only the owner may */
}

static void xattr_trusted(void)
{
	char b[64];
	ssize_t n;

	put("f", "x");
	OK(chmod("f", 0666));
	OK(symlink("f", "l"));
	OK(setxattr("f", "trusted.t", "root", 4, 0));
	TRUE(value_is("f", "trusted.t", "root", 4));
	OK(lsetxattr("l", "trusted.t", "link", 4, 0)); /* on the link itself */
	TRUE(value_is("l", "trusted.t", "link", 4));
	TRUE(value_is("f", "trusted.t", "root", 4));
	AS(USER)
	{
		FAILS(ENODATA, getxattr("f", "trusted.t", b, sizeof(b)));
		FAILS(EPERM, setxattr("f", "trusted.t", "x", 1, 0));
		FAILS(EPERM, removexattr("f", "trusted.t"));
		n = OK(listxattr("f", b, sizeof(b)));
		TRUE(n >= 0 && !memmem(b, (size_t)n, "trusted.t", 9));
	}
	OK(removexattr("f", "trusted.t"));
}

static void xattr_security(void)
{
	put("f", "x");
	OK(chmod("f", 0666));
	OK(setxattr("f", "security.test", "s", 1, 0));
	TRUE(value_is("f", "security.test", "s", 1));
	AS(USER)
	{
		TRUE(value_is("f", "security.test", "s", 1));
		FAILS(EPERM, setxattr("f", "security.test", "x", 1, 0));
	}
	OK(removexattr("f", "security.test"));
}

const struct test_group xattr_groups[] = {
	{ .name = "xattr_values", .run = xattr_values, .feature = "xattr" },
	{ .name = "xattr_errors", .run = xattr_errors, .feature = "xattr" },
	{ .name = "xattr_lists", .run = xattr_lists, .feature = "xattr" },
	{ .name = "xattr_kinds", .run = xattr_kinds, .feature = "xattr" },
	{ .name = "xattr_follow_the_inode", .run = xattr_follow_the_inode, .feature = "xattr" },
	{ .name = "xattr_rights", .run = xattr_rights, .needs = NEEDS_ROOT, .feature = "xattr" },
	{ .name = "xattr_trusted", .run = xattr_trusted, .needs = NEEDS_ROOT, .feature = "trusted" },
	{ .name = "xattr_security",
	  .run = xattr_security,
	  .needs = NEEDS_ROOT,
	  .feature = "security" },
	{ 0 },
};
