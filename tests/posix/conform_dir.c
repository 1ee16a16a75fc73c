/* Reading directories: all entries once, types and inode numbers, positions, and concurrent
 * changes. */
#include <dirent.h>
#include <limits.h>

#include "conform.h"

#define MANY 1500

static void make_many(int n)
{
	char path[32];
	int made = 0;

	for (int i = 0; i < n; i++) {
		int fd;

		snprintf(path, sizeof(path), "f%d", i);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
		made += fd >= 0;
		close(fd);
	}
	EQ(made, n);
}

/* The i of an entry named f<i>, or -1. */
static int number_of(const char *name)
{
	return name[0] == 'f' ? atoi(name + 1) : -1;
}

/* Reads up to `max` entries from the position of d and counts each f<i>. Returns the number of
 * entries. */
static int read_some(DIR *d, int *seen_of, int max)
{
	struct dirent *e;
	int n = 0;

	errno = 0;
	for (; n < max && (e = readdir(d)); n++)
		if (number_of(e->d_name) >= 0)
			seen_of[number_of(e->d_name)]++;
	EQ(errno, 0);
	return n;
}

static int read_on(DIR *d, int *seen_of)
{
	return read_some(d, seen_of, INT_MAX);
}

/* The number of f<from>, f<from + step>, ... that were not seen exactly `times` times. */
static int wrong(const int *seen_of, int from, int step, int times)
{
	int n = 0;

	for (int i = from; i < MANY; i += step)
		n += seen_of[i] != times;
	return n;
}

static void dir_all_once(void)
{
	static int count[MANY];
	DIR *d;

	OK(mkdir("d", 0755));
	OK(chdir("d"));
	make_many(MANY);
	d = opendir(".");
	EQ(read_on(d, count), MANY + 2);
	EQ(wrong(count, 0, 1, 1), 0);
	EQ(read_on(d, count), 0); /* stays at the end */
	rewinddir(d);
	EQ(read_on(d, count), MANY + 2);
	EQ(wrong(count, 0, 1, 2), 0);
	closedir(d);
}

static void dir_kinds(void)
{
	static const struct {
		const char *name;
		unsigned char type;
	} want[] = { { ".", DT_DIR },	 { "..", DT_DIR },    { "file", DT_REG }, { "dir", DT_DIR },
		     { "link", DT_LNK }, { "fifo", DT_FIFO }, { "sock", DT_SOCK } };
	int found[N_OF(want)] = { 0 };
	struct dirent *e;
	DIR *d;

	OK(mkdir("d", 0755));
	OK(chdir("d"));
	put("file", "x");
	OK(mkdir("dir", 0755));
	OK(symlink("x", "link"));
	OK(mkfifo("fifo", 0600));
	OK(mknod("sock", S_IFSOCK | 0600, 0));
	d = opendir(".");
	while ((e = readdir(d)))
		for (size_t i = 0; i < N_OF(want); i++)
			if (!strcmp(e->d_name, want[i].name)) {
				found[i]++;
				if (e->d_type != DT_UNKNOWN)
					EQ(e->d_type, want[i].type);
				EQ(e->d_ino, stat_of(e->d_name).st_ino);
			}
	for (size_t i = 0; i < N_OF(want); i++)
		EQ(found[i], 1);
	closedir(d);
}

static void dir_names(void)
{
	static char longest[NAME_MAX + 1];
	static const char *names[] = {
		" ",	    "-rf",     "a\nb",	"\xff\xfe", "\xc3\xa4\xe2\x82\xac",
		"...",	    ".hidden", "a b c", "*?[",	    "'\"\\",
		"\x01\x7f", "tab\t",   "A",	"a",	    longest
	};
	struct dirent *e;
	size_t n = 0;
	DIR *d;

	memset(longest, 'n', NAME_MAX);
	OK(mkdir("d", 0755));
	OK(chdir("d"));
	for (size_t i = 0; i < N_OF(names); i++)
		put(names[i], names[i]);
	d = opendir(".");
	while ((e = readdir(d)))
		for (size_t i = 0; i < N_OF(names); i++)
			if (!strcmp(e->d_name, names[i])) {
				n++;
				TRUE(has(e->d_name, names[i]));
			}
	EQ(n, N_OF(names));
	for (size_t i = 0; i < N_OF(names); i++)
		OK(unlink(names[i]));
	closedir(d);
}

static void dir_positions(void)
{
	static long at[MANY + 2];
	static char name[MANY + 2][16];
	struct dirent *e;
	int n = 0, bad = 0;
	DIR *d;

	OK(mkdir("d", 0755));
	OK(chdir("d"));
	make_many(300);
	d = opendir(".");
	for (;;) {
		at[n] = telldir(d);
		e = readdir(d);
		if (!e || n == MANY)
			break;
		snprintf(name[n++], sizeof(name[0]), "%.15s", e->d_name);
	}
	EQ(n, 302);
	for (int i = n - 1; i >= 0; i -= 7) { /* backwards */
		seekdir(d, at[i]);
		e = readdir(d);
		bad += !e || strcmp(e->d_name, name[i]);
		e = readdir(d);
		bad += i + 1 < n ? !e || strcmp(e->d_name, name[i + 1]) : e != NULL;
	}
	EQ(bad, 0);
	seekdir(d, at[n]);
	TRUE(readdir(d) == NULL);
	closedir(d);
	d = opendir("."); /* a position belongs to the directory, not to one open of it */
	seekdir(d, at[150]);
	e = readdir(d);
	TRUE(e && !strcmp(e->d_name, name[150]));
	closedir(d);
}

/* Names are removed and created between two reads: each name that stays is seen once. */
static void dir_changes_meanwhile(void)
{
	static int count[MANY], later[MANY + 1];
	char path[32];
	DIR *d;

	OK(mkdir("d", 0755));
	OK(chdir("d"));
	make_many(MANY);
	d = opendir(".");
	read_some(d, count, 100);
	for (int i = 1; i < MANY; i += 2) {
		snprintf(path, sizeof(path), "f%d", i);
		OK(unlink(path));
		snprintf(path, sizeof(path), "new%d", i);
		put(path, "");
	}
	read_on(d, count);
	EQ(wrong(count, 0, 2, 1), 0);
	closedir(d);
	d = opendir(".");
	EQ(read_on(d, later), MANY + 2);
	EQ(wrong(later, 0, 2, 1), 0);
	EQ(wrong(later, 1, 2, 0), 0);
	closedir(d);
}

/* rm -r: removes entries while it reads them. */
static void dir_emptied_while_read(void)
{
	struct dirent *e;
	int removed = 0;
	DIR *d;

	OK(mkdir("d", 0755));
	OK(chdir("d"));
	make_many(MANY);
	d = opendir(".");
	while ((e = readdir(d)))
		if (number_of(e->d_name) >= 0)
			removed += unlink(e->d_name) == 0;
	EQ(removed, MANY);
	closedir(d);
	OK(chdir(".."));
	OK(rmdir("d"));
}

static void dir_rewind_sees_new(void)
{
	static int count[MANY];
	DIR *d, *second;

	OK(mkdir("d", 0755));
	OK(chdir("d"));
	d = opendir(".");
	EQ(read_on(d, count), 2);
	make_many(20);
	rewinddir(d);
	EQ(read_on(d, count), 22);
	OK(unlink("f3"));
	rewinddir(d);
	second = opendir("."); /* each open has its own position */
	TRUE(readdir(d) != NULL);
	EQ(read_on(second, count), 21);
	EQ(read_on(d, count), 20);
	closedir(d);
	closedir(second);
}

static void dir_renames_meanwhile(void)
{
	static int count[MANY];
	char from[32], to[32];
	DIR *d;

	OK(mkdir("d", 0755));
	OK(mkdir("out", 0755));
	OK(chdir("d"));
	make_many(200);
	d = opendir(".");
	EQ(read_some(d, count, 1), 1);
	for (int i = 0; i < 200; i += 2) { /* odd entries stay unchanged */
		snprintf(from, sizeof(from), "f%d", i);
		snprintf(to, sizeof(to), i % 4 ? "moved%d" : "../out/f%d", i);
		OK(rename(from, to));
	}
	read_on(d, count);
	for (int i = 1; i < 200; i += 2)
		if (count[i] != 1)
			EQ(count[i], 1);
	closedir(d);
}

/* Changes the directory after each entry it reads. Returns how many f<i> were seen; reads at most
 * `most` entries of any name. */
static int read_and_change(bool renames, int most)
{
	static int count[MANY];
	DIR *d = opendir(".");
	struct dirent *e;
	int n = 0, all = 0, twice = 0;
	char to[300];

	memset(count, 0, sizeof(count));
	while (all++ < most && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		if (number_of(e->d_name) >= 0)
			twice += count[number_of(e->d_name)]++;
		n += number_of(e->d_name) >= 0;
		snprintf(to, sizeof(to), "%s%d", renames ? "renamed" : "new", all);
		if (renames)
			OK(rename(e->d_name, to));
		else
			put(to, "");
	}
	TRUE(all < most); /* the listing ended by itself */
	EQ(twice, 0);
	closedir(d);
	return n;
}

/* A reader that creates an entry for each entry it sees reaches the end of the directory
 * nevertheless. */
static void dir_filled_while_read(void)
{
	OK(mkdir("d", 0755));
	OK(chdir("d"));
	make_many(MANY);
	EQ(read_and_change(false, 5 * MANY), MANY);
}

static void dir_renamed_while_read(void)
{
	OK(mkdir("d", 0755));
	OK(chdir("d"));
	make_many(MANY);
	EQ(read_and_change(true, 5 * MANY), MANY);
}

static void dir_errors(void)
{
	char b[4096], tiny[8];
	int fd;

	put("f", "x");
	OK(mkdir("d", 0755));
	FAILS(ENOTDIR, opendir("f") ? 0 : -1);
	FAILS(ENOENT, opendir("none") ? 0 : -1);
	FAILS(ENOENT, opendir("") ? 0 : -1);
	fd = (int)OK(open("f", O_RDONLY));
	FAILS(ENOTDIR, fdopendir(fd) ? 0 : -1);
	FAILS(ENOTDIR, syscall(SYS_getdents64, fd, b, sizeof(b)));
	FAILS(ENOTDIR, fchdir(fd));
	fd = (int)OK(open("d", O_RDONLY));
	FAILS(EINVAL, syscall(SYS_getdents64, fd, tiny, sizeof(tiny)));
	FAILS(EBADF, syscall(SYS_getdents64, -1, b, sizeof(b)));
	TRUE(syscall(SYS_getdents64, fd, b, sizeof(b)) > 0);
	EQ(syscall(SYS_getdents64, fd, b, sizeof(b)), 0);
	EQ(lseek(fd, 0, SEEK_SET), 0);
	TRUE(syscall(SYS_getdents64, fd, b, sizeof(b)) > 0);
	FAILS(ENOTDIR, chdir("f"));
	FAILS(ENOENT, chdir("none"));
	FAILS(ENOENT, chdir(""));
	FAILS(ERANGE, getcwd(b, 2) ? 0 : -1);
	OK(fchdir(fd));
	OK(getcwd(b, sizeof(b)) ? 0 : -1);
	EQ(strcmp(b + strlen(b) - 2, "/d"), 0);
}

const struct test_group dir_groups[] = {
	{ .name = "dir_all_once", .run = dir_all_once },
	{ .name = "dir_kinds", .run = dir_kinds },
	{ .name = "dir_names", .run = dir_names },
	{ .name = "dir_positions", .run = dir_positions },
	{ .name = "dir_changes_meanwhile", .run = dir_changes_meanwhile },
	{ .name = "dir_emptied_while_read", .run = dir_emptied_while_read },
	{ .name = "dir_rewind_sees_new", .run = dir_rewind_sees_new },
	{ .name = "dir_renames_meanwhile", .run = dir_renames_meanwhile },
	{ .name = "dir_filled_while_read", .run = dir_filled_while_read },
	{ .name = "dir_renamed_while_read", .run = dir_renamed_while_read },
	{ .name = "dir_errors", .run = dir_errors },
	{ 0 },
};
