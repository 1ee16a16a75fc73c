/* Names on several metadata servers: random changes with a local file system as the oracle,
 * concurrent moves of directories, and kill -9 during them; access control lists that change after
 * others have passed them. */
#include <dirent.h>
#include <ftw.h>
#include <pthread.h>

#include "acl_list.h"
#include "cluster.h"

static struct cluster c;
static struct sheaf *fs;
static char oracle[64];
static uint64_t seed = 20261115;

static uint32_t rnd(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 11) % n);
}

/* ---- random changes ---- */

static const char *const pool[] = { "a", "b", "c", "d" };

/* A random path below /o, one to three names deep, sometimes with a '/' at the end. */
static void some_path(char out[64])
{
	int depth = 1 + (int)rnd(3), n = snprintf(out, 64, "/o");

	while (depth--)
		n += snprintf(out + n, 64 - (size_t)n, "/%s", pool[rnd(4)]);
	if (rnd(6) == 0)
		snprintf(out + n, 64 - (size_t)n, "/");
}

static int local(int r)
{
	return r < 0 ? -errno : 0;
}

static const char *at_home(const char *path)
{
	return path_in(oracle, path + 1);
}

static int local_create(const char *path, int flags)
{
	int fd = open(path, O_CREAT | O_WRONLY | flags, 0644);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* Makes one change in both file systems; the results must agree. */
static void change(int i)
{
	char a[64], b[64];
	const char *la, *lb;
	int what = (int)rnd(12), here, there;

	some_path(a);
	some_path(b);
	la = at_home(a);
	lb = at_home(b);
	switch (what) {
	case 0:
	case 1:
	case 2:
		here = sheaf_mkdir(fs, a, 0755);
		there = local(mkdir(la, 0755));
		break;
	case 3:
		here = sheaf_rmdir(fs, a);
		there = local(rmdir(la));
		break;
	case 4:
	case 5:
		here = open_error(fs, a, O_CREAT | O_WRONLY | (i % 2 ? O_EXCL : 0));
		there = local_create(la, i % 2 ? O_EXCL : 0);
		break;
	case 6:
		here = sheaf_unlink(fs, a);
		there = local(unlink(la));
		break;
	case 7:
		here = sheaf_link(fs, a, b);
		there = local(link(la, lb));
		break;
	default:
		here = sheaf_rename(fs, a, b);
		there = local(rename(la, lb));
		break;
	}
	if (here && there && (!strncmp(a, b, strlen(b)) || !strncmp(a, b, strlen(a))))
		here = there; /* nested paths: either of two errors may come first */
	if (here != there)
		fprintf(stderr, "change %d, kind %d, %s %s: %s, expected %s\n", i, what, a, b,
			strerror(-here), strerror(-there));
	CHECK_EQ(here, there);
}

static int compare_one(const char *path, const struct stat *st, int type, struct FTW *w)
{
	struct stat ours;

	(void)type;
	(void)w;
	if (sheaf_lstat(fs, path + strlen(oracle), &ours)) {
		fprintf(stderr, "%s is missing\n", path + strlen(oracle));
		return 1;
	}
	CHECK_EQ(ours.st_mode & S_IFMT, st->st_mode & S_IFMT);
	CHECK_EQ(ours.st_nlink, st->st_nlink);
	return 0;
}

/* Compares the entries of a directory with the oracle's, recursively. */
static void compare_listing(const char *path)
{
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	struct stat st;
	DIR *home = opendir(at_home(path));
	int n = 0;

	CHECK(home != NULL);
	while (readdir(home))
		n++;
	closedir(home);
	CHECK_EQ(sheaf_opendir(fs, path, &d), 0);
	while (sheaf_readdir(d, &e) == 1) {
		char child[320];

		n--;
		snprintf(child, sizeof(child), "%s/%s", path, e.name);
		CHECK_EQ(lstat(at_home(child), &st), 0);
		CHECK_EQ(st.st_mode & S_IFMT, e.type);
		if (e.type == S_IFDIR)
			compare_listing(child);
	}
	sheaf_closedir(d);
	CHECK_EQ(n, 2); /* only "." and ".." are left */
}

static void random_changes_agree_with_a_local_file_system(void)
{
	temp_dir(oracle, sizeof(oracle));
	CHECK_EQ(sheaf_mkdir(fs, "/o", 0755), 0);
	CHECK_EQ(mkdir(at_home("/o"), 0755), 0);
	for (int i = 0; i < 3000; i++)
		change(i);
	CHECK_EQ(nftw(at_home("/o"), compare_one, 16, FTW_PHYS), 0);
	compare_listing("/o");
}

/* ---- concurrent moves of directories ---- */

struct mover {
	pthread_t thread;
	struct sheaf *fs;
	int number, rounds;
	uint64_t done;
};

static bool legal(int r)
{
	return !r || r == -ENOENT || r == -EINVAL || r == -ENOTEMPTY || r == -EEXIST;
}

static void *move(void *arg)
{
	struct mover *m = arg;
	unsigned s = 77u + (unsigned)m->number;
	char a[64], b[64];

	for (int i = 0; i < m->rounds; i++) {
		static const char *const top[] = { "t0", "t1", "t2", "t3" };
		int r;

		snprintf(a, sizeof(a), "/m/%s/%s", top[rand_r(&s) % 4], top[rand_r(&s) % 4]);
		snprintf(b, sizeof(b), "/m/%s/%s/%s", top[rand_r(&s) % 4], top[rand_r(&s) % 4],
			 top[rand_r(&s) % 4]);
		if (rand_r(&s) % 2)
			r = sheaf_rename(m->fs, a, b);
		else if (rand_r(&s) % 2)
			r = sheaf_rename(m->fs, b, a);
		else
			r = sheaf_mkdir(m->fs, a, 0755);
		if (!legal(r))
			fprintf(stderr, "%s %s: %s\n", a, b, strerror(-r));
		CHECK(legal(r));
		m->done += r == 0;
	}
	return NULL;
}

/* Counts the directories reachable from `path` and checks the link count of each. */
static unsigned count_tree(const char *path)
{
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	struct stat st;
	unsigned n = 1, dirs = 2;

	CHECK(strlen(path) < 250);
	CHECK_EQ(sheaf_stat(fs, path, &st), 0);
	CHECK_EQ(sheaf_opendir(fs, path, &d), 0);
	while (sheaf_readdir(d, &e) == 1) {
		char child[320];

		dirs++;
		snprintf(child, sizeof(child), "%s/%s", path, e.name);
		n += count_tree(child);
	}
	sheaf_closedir(d);
	CHECK_EQ(st.st_nlink, dirs);
	return n;
}

static void run_movers(struct mover *m, int n, int rounds)
{
	for (int i = 0; i < n; i++) {
		m[i] = (struct mover){ .fs = client_connect(c.conf),
				       .number = i,
				       .rounds = rounds };
		CHECK_EQ(pthread_create(&m[i].thread, NULL, move, &m[i]), 0);
	}
}

static uint64_t join_movers(struct mover *m, int n)
{
	uint64_t done = 0;

	for (int i = 0; i < n; i++) {
		pthread_join(m[i].thread, NULL);
		sheaf_disconnect(m[i].fs);
		done += m[i].done;
	}
	return done;
}

static void remove_tree(const char *path)
{
	struct sheaf_dirent e;
	struct sheaf_dir *d;

	CHECK_EQ(sheaf_opendir(fs, path, &d), 0);
	while (sheaf_readdir(d, &e) == 1) {
		char child[320];

		snprintf(child, sizeof(child), "%s/%s", path, e.name);
		remove_tree(child);
	}
	sheaf_closedir(d);
	CHECK_EQ(sheaf_rmdir(fs, path), 0);
}

static void make_tops(void)
{
	CHECK_EQ(sheaf_mkdir(fs, "/m", 0755), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(sheaf_mkdir(fs,
				     path_in("/m", (const char *[]){ "t0", "t1", "t2", "t3" }[i]),
				     0755),
			 0);
}

static void moving_directories_side_by_side_make_no_circle(void)
{
	struct mover m[4];

	make_tops();
	run_movers(m, 4, 300);
	CHECK(join_movers(m, 4) > 50);
	CHECK(count_tree("/m") >= 1);
	remove_tree("/m");
}

static void a_kill_in_the_middle_leaves_old_or_new(void)
{
	struct mover m[3];

	make_tops();
	run_movers(m, 3, 150);
	for (int i = 0; i < 4; i++) {
		pause_ms(150);
		server_kill(&c, i);
		pause_ms(50);
		CHECK_EQ(server_up(&c, i), 0);
	}
	join_movers(m, 3);
	CHECK(count_tree("/m") >= 1);
	remove_tree("/m");
}

/* ---- access control lists ---- */

/* A client may use a referral again while its promise lasts. A setxattr that shuts a user out
 * returns after that. */
static void a_user_without_search_permission_passes_no_cached_path(void)
{
	struct sheaf_cred user = { .uid = 1001, .gid = 1001 };
	struct acl_bytes list = acl_sample(), shut = list;
	struct sheaf *other = client_connect(c.conf);
	struct sheaf_handle h;
	char path[64], top[64];
	bool spread = false;

	shut.b[4 + 8 + 2] = 0; /* permissions of user 1001 */
	for (int i = 0; i < 6; i++) {
		snprintf(top, sizeof(top), "/lists%d", i);
		snprintf(path, sizeof(path), "/lists%d/sub/file", i);
		CHECK_EQ(sheaf_mkdir(fs, top, 0755), 0);
		CHECK_EQ(sheaf_setxattr(fs, top, DEFAULT_ACL, list.b, list.len, 0), 0);
		CHECK_EQ(sheaf_mkdir(fs, path_in(top, "sub"), 0777), 0);
		CHECK_EQ(sheaf_getxattr(fs, path_in(top, "sub"), DEFAULT_ACL, NULL, 0), list.len);
		CHECK_EQ(stat_of(fs, path_in(top, "sub")).st_mode, S_IFDIR | 0771);
		spread |= stat_of(fs, top).st_ino >> 48 !=
			  stat_of(fs, path_in(top, "sub")).st_ino >> 48;
		make_file(fs, path, 10, 1);
		for (int k = 0; k < 3; k++) {
			CHECK_EQ(sheaf_setxattr(fs, top, ACCESS_ACL, list.b, list.len, 0), 0);
			CHECK_EQ(sheaf_h_lookup(other, &user, sheaf_root(other), path + 1, &h,
						NULL),
				 0);
			CHECK_EQ(sheaf_setxattr(fs, top, ACCESS_ACL, shut.b, shut.len, 0), 0);
			CHECK_EQ(sheaf_h_lookup(other, &user, sheaf_root(other), path + 1, &h,
						NULL),
				 -EACCES);
		}
	}
	CHECK(spread);
	sheaf_disconnect(other);
}

/* ---- listings ---- */

enum { RENAME, MOVE, CREATE };

static void act_on(const char *dir, const char *name, int what, int n)
{
	char from[96], to[96];

	snprintf(from, sizeof(from), "%s/%.40s", dir, name);
	snprintf(to, sizeof(to), "%s/%c%d", what == MOVE ? "/aside" : dir, "rmc"[what], n);
	if (what == CREATE)
		CHECK_EQ(sheaf_mkdir(fs, to, 0755), 0);
	else
		CHECK_EQ(sheaf_rename(fs, from, to), 0);
	if (what == MOVE) { /* to another server and back */
		snprintf(from, sizeof(from), "%s/m%d", dir, n);
		CHECK_EQ(sheaf_rename(fs, to, from), 0);
	}
}

/* Counts the entries of one scan that does `what` with each entry, through sheaf_readdir or by
 * handle; stops after `most`. */
static int scan(const char *dir, int what, bool by_handle, int most)
{
	struct sheaf_dirent e = { 0 };
	struct sheaf_handle h;
	struct sheaf_dir *d;
	int n = 0, r = 1;

	CHECK_EQ(sheaf_opendir(fs, dir, &d), 0);
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), dir + 1, &h, NULL), 0);
	while (r > 0 && n <= most) {
		r = by_handle ? sheaf_h_readdir(fs, NULL, h, e.cookie, &e, 1) :
				sheaf_readdir(d, &e);
		if (r > 0)
			act_on(dir, e.name, what, n++);
	}
	CHECK(r >= 0);
	sheaf_closedir(d);
	return n;
}

static void a_listing_ends_whatever_its_reader_does_in_the_directory(void)
{
	uint64_t homes = 0;
	char path[32];

	CHECK_EQ(sheaf_mkdir(fs, "/aside", 0755), 0);
	for (int k = 0; k < 4; k++) {
		char dir[16];
		int n = 40;

		snprintf(dir, sizeof(dir), "/scan%d", k);
		CHECK_EQ(sheaf_mkdir(fs, dir, 0755), 0);
		homes |= UINT64_C(1) << (stat_of(fs, dir).st_ino >> 48);
		for (int i = 0; i < n; i++) {
			snprintf(path, sizeof(path), "%s/f%d", dir, i);
			CHECK_EQ(sheaf_mkdir(fs, path, 0755), 0);
		}
		for (int by_handle = 0; by_handle < 2; by_handle++) {
			CHECK_EQ(scan(dir, RENAME, by_handle, 200), n);
			CHECK_EQ(scan(dir, MOVE, by_handle, 200), n);
		}
		CHECK_EQ(scan(dir, CREATE, true, 200), n);
	}
	CHECK(homes & (homes - 1)); /* at least two servers */
}

static void a_listing_of_several_pages_ends_too(void)
{
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	uint64_t third = 0;
	char path[32];

	CHECK_EQ(sheaf_mkdir(fs, "/long", 0755), 0);
	for (int i = 0; i < 1100; i++) {
		snprintf(path, sizeof(path), "/long/f%d", i);
		make_file(fs, path, 0, 1);
	}
	CHECK_EQ(sheaf_opendir(fs, "/long", &d), 0);
	for (int i = 0; i < 1100; i++) {
		CHECK_EQ(sheaf_readdir(d, &e), 1);
		third = i == 2 ? e.cookie : third;
		snprintf(path, sizeof(path), "/long/new%d", i);
		make_file(fs, path, 0, 1);
	}
	CHECK_EQ(sheaf_readdir(d, &e), 0);
	sheaf_seekdir(d, third);
	for (int i = 3; i < 1100; i++)
		CHECK_EQ(sheaf_readdir(d, &e), 1);
	CHECK_EQ(sheaf_readdir(d, &e), 0);
	sheaf_seekdir(d, 0); /* a new scan sees the new entries */
	for (int i = 0; i < 2200; i++)
		CHECK_EQ(sheaf_readdir(d, &e), 1);
	CHECK_EQ(sheaf_readdir(d, &e), 0);
	sheaf_closedir(d);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .servers = 4, .timeout = 20 });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(NULL, begin, end, TEST(random_changes_agree_with_a_local_file_system),
	 TEST(moving_directories_side_by_side_make_no_circle),
	 TEST(a_kill_in_the_middle_leaves_old_or_new),
	 TEST(a_user_without_search_permission_passes_no_cached_path),
	 TEST(a_listing_ends_whatever_its_reader_does_in_the_directory),
	 TEST(a_listing_of_several_pages_ends_too))
