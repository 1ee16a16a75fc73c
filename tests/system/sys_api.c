/* Names, attributes, open modes, errors and layouts through the public interface, with servers and
 * embedded. */
#include <pthread.h>

#include "cluster.h"

static struct sheaf *fs;

static bool embedded;

static off_t size_of(const char *path)
{
	struct stat st;

	CHECK_EQ(sheaf_stat(fs, path, &st), 0);
	return st.st_size;
}

static void exclusive_create_happens_once(void)
{
	const char *d = fresh_dir(fs);

	CHECK_EQ(open_error(fs, path_in(d, "x"), O_CREAT | O_EXCL | O_RDWR), 0);
	CHECK_EQ(open_error(fs, path_in(d, "x"), O_CREAT | O_EXCL | O_RDWR), -EEXIST);
	CHECK_EQ(open_error(fs, path_in(d, "x"), O_CREAT | O_RDWR), 0);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "x"), 0755), -EEXIST);
	CHECK_EQ(open_error(fs, path_in(d, "x"), O_RDONLY | O_DIRECTORY), -ENOTDIR);
	CHECK_EQ(open_error(fs, d, O_RDONLY | O_DIRECTORY), 0);
}

static void truncating_open_empties_the_file(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f;

	make_file(fs, p, 300000, 1);
	CHECK_EQ(size_of(p), 300000);
	f = open_file(fs, p, O_RDWR | O_TRUNC);
	CHECK_EQ(size_of(p), 0);
	CHECK_EQ(sheaf_pwrite(f, "abc", 3, 200000), 3);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(size_of(p), 200003);
	f = open_file(fs, p, O_RDONLY);
	for (int i = 0; i < 200000; i += 40000) {
		char b[1000], zero[1000] = { 0 };

		CHECK_EQ(sheaf_pread(f, b, sizeof(b), i), (ssize_t)sizeof(b));
		CHECK(memcmp(b, zero, sizeof(b)) == 0);
	}
	CHECK_EQ(sheaf_close(f), 0);
}

static void truncate_cuts_and_extends(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	static uint8_t b[400000];
	struct sheaf_file *f;

	make_file(fs, p, 400000, 2);
	CHECK_EQ(sheaf_truncate(fs, p, 100001), 0);
	CHECK_EQ(size_of(p), 100001);
	CHECK_EQ(sheaf_truncate(fs, p, 390000), 0);
	CHECK_EQ(size_of(p), 390000);
	f = open_file(fs, p, O_RDWR);
	CHECK_EQ(sheaf_pread(f, b, sizeof(b), 0), 390000);
	CHECK(is_pattern(b, 100001, 2, 0));
	for (int i = 100001; i < 390000; i++)
		CHECK_EQ(b[i], 0);
	CHECK_EQ(sheaf_ftruncate(f, 10), 0);
	CHECK_EQ(sheaf_pwrite(f, "x", 1, 20), 1); /* the truncate fenced the old capability */
	CHECK_EQ(sheaf_pread(f, b, 100, 0), 21);
	CHECK(is_pattern(b, 10, 2, 0));
	CHECK(b[10] == 0 && b[19] == 0 && b[20] == 'x');
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_truncate(fs, p, -1), -EINVAL);
	CHECK_EQ(sheaf_truncate(fs, p, (off_t)1 << 40), 0);
	CHECK_EQ(size_of(p), (off_t)1 << 40);
	CHECK_EQ(sheaf_truncate(fs, p, 0), 0);
	CHECK_EQ(size_of(p), 0);
}

static void an_unlinked_open_file_stays_readable(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	static uint8_t b[200000];
	struct sheaf_file *f;

	make_file(fs, p, sizeof(b), 5);
	f = open_file(fs, p, O_RDWR);
	CHECK_EQ(sheaf_unlink(fs, p), 0);
	CHECK_EQ(sheaf_stat(fs, p, &(struct stat){ 0 }), -ENOENT);
	CHECK_EQ(open_error(fs, p, O_RDONLY), -ENOENT);
	pause_ms(100); /* time for a removal that must not happen */
	CHECK_EQ(sheaf_pread(f, b, sizeof(b), 0), (ssize_t)sizeof(b));
	CHECK(is_pattern(b, sizeof(b), 5, 0));
	CHECK_EQ(sheaf_pwrite(f, "more", 4, 500000), 4);
	CHECK_EQ(sheaf_pread(f, b, 4, 500000), 4);
	CHECK(memcmp(b, "more", 4) == 0);
	make_file(fs, p, 10, 6); /* the name can be used again */
	CHECK_EQ(sheaf_pread(f, b, 10, 0), 10);
	CHECK(is_pattern(b, 10, 5, 0));
	CHECK_EQ(sheaf_close(f), 0);
	check_file(fs, p, 10, 6);
}

static void rename_replaces_what_was_there(void)
{
	const char *d = fresh_dir(fs);
	const char *a = path_in(d, "a"), *b = path_in(d, "b");
	struct sheaf_file *f;
	char c[10];

	make_file(fs, a, 1000, 1);
	make_file(fs, b, 2000, 2);
	f = open_file(fs, b, O_RDONLY);
	CHECK_EQ(sheaf_rename(fs, a, b), 0);
	check_file(fs, b, 1000, 1);
	CHECK_EQ(sheaf_stat(fs, a, &(struct stat){ 0 }), -ENOENT);
	CHECK_EQ(sheaf_pread(f, c, 10, 1990), 10); /* the replaced file is still open */
	CHECK(is_pattern(c, 10, 2, 1990));
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_rename(fs, b, b), 0);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "none"), b), -ENOENT);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "sub"), 0755), 0);
	CHECK_EQ(sheaf_rename(fs, b, path_in(d, "sub")), -EISDIR);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "sub"), b), -ENOTDIR);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "sub"), path_in(d, "sub/below")), -EINVAL);
	CHECK_EQ(sheaf_rename(fs, b, path_in(d, "sub/b")), 0);
	check_file(fs, path_in(d, "sub/b"), 1000, 1);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "other"), 0755), 0);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "other"), path_in(d, "sub")), -ENOTEMPTY);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "sub"), path_in(d, "other")), 0);
	check_file(fs, path_in(d, "other/b"), 1000, 1);
}

static void names_that_do_not_fit_are_refused(void)
{
	const char *d = fresh_dir(fs);
	char name[300], deep[5000];
	struct stat st;

	memset(name, 'n', sizeof(name));
	name[255] = 0;
	CHECK_EQ(open_error(fs, path_in(d, name), O_CREAT | O_RDWR), 0);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, name)), 0);
	name[255] = 'n';
	name[256] = 0;
	CHECK_EQ(open_error(fs, path_in(d, name), O_CREAT | O_RDWR), -ENAMETOOLONG);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, name), 0755), -ENAMETOOLONG);
	CHECK_EQ(sheaf_stat(fs, path_in(d, name), &st), -ENAMETOOLONG);
	CHECK_EQ(sheaf_rename(fs, d, path_in(d, name)), -ENAMETOOLONG);
	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = i % 2 ? 'a' : '/';
	deep[sizeof(deep) - 1] = 0;
	CHECK_EQ(sheaf_stat(fs, deep, &st), -ENAMETOOLONG);
	CHECK_EQ(open_error(fs, deep, O_CREAT | O_RDWR), -ENAMETOOLONG);
	CHECK_EQ(sheaf_unlink(fs, deep), -ENAMETOOLONG);
	CHECK(sheaf_mkdir(fs, path_in(d, "."), 0755) < 0);
	CHECK_EQ(sheaf_stat(fs, "//", &st), 0);
	CHECK(S_ISDIR(st.st_mode));
}

static void wrong_uses_get_the_errors_of_posix(void)
{
	const char *d = fresh_dir(fs);
	const char *file = path_in(d, "file");
	struct sheaf_dir *dd;
	struct sheaf_file *f;
	struct stat st;
	char b[10] = "";

	make_file(fs, file, 10, 1);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "none"), &st), -ENOENT);
	CHECK_EQ(sheaf_stat(fs, path_in(file, "below"), &st), -ENOTDIR);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "none/x"), 0755), -ENOENT);
	CHECK_EQ(sheaf_mkdir(fs, d, 0755), -EEXIST);
	CHECK_EQ(sheaf_rmdir(fs, d), -ENOTEMPTY);
	CHECK_EQ(sheaf_rmdir(fs, file), -ENOTDIR);
	CHECK_EQ(sheaf_unlink(fs, d), -EISDIR);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "none")), -ENOENT);
	CHECK_EQ(sheaf_opendir(fs, file, &dd), -ENOTDIR);
	CHECK_EQ(sheaf_opendir(fs, path_in(d, "none"), &dd), -ENOENT);
	CHECK_EQ(sheaf_truncate(fs, d, 0), -EISDIR);
	CHECK_EQ(open_error(fs, d, O_RDWR), -EISDIR);
	CHECK_EQ(open_error(fs, path_in(d, "none"), O_RDONLY), -ENOENT);
	CHECK_EQ(open_error(fs, file, O_RDWR | O_APPEND), 0);
	f = open_file(fs, file, O_RDONLY);
	CHECK_EQ(sheaf_pwrite(f, b, 1, 0), -EBADF);
	CHECK_EQ(sheaf_pread(f, b, 10, 0), 10);
	CHECK_EQ(sheaf_close(f), 0);
	f = open_file(fs, file, O_WRONLY);
	CHECK_EQ(sheaf_pread(f, b, 1, 0), -EBADF);
	CHECK_EQ(sheaf_pwrite(f, b, 1, 0), 1);
	CHECK_EQ(sheaf_close(f), 0);
	f = open_file(fs, d, O_RDONLY);
	CHECK_EQ(sheaf_pread(f, b, 1, 0), -EISDIR);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK(sheaf_rmdir(fs, "/") < 0);
}

static void attributes_keep_what_was_set(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct timespec ts[2] = { { 1000, 5 }, { 2000, 999999999 } };
	struct stat st, later;

	make_file(fs, p, 10, 1);
	CHECK_EQ(sheaf_chmod(fs, p, 0640), 0);
	CHECK_EQ(sheaf_chown(fs, p, 12, 34), 0);
	CHECK_EQ(sheaf_utimens(fs, p, ts), 0);
	CHECK_EQ(sheaf_stat(fs, p, &st), 0);
	CHECK_EQ(st.st_mode, S_IFREG | 0640);
	CHECK_EQ(st.st_uid, 12);
	CHECK_EQ(st.st_gid, 34);
	CHECK_EQ(st.st_nlink, 1);
	CHECK_EQ(st.st_atim.tv_sec, 1000);
	CHECK_EQ(st.st_mtim.tv_nsec, 999999999);
	ts[0].tv_nsec = UTIME_OMIT;
	ts[1].tv_nsec = UTIME_NOW;
	CHECK_EQ(sheaf_utimens(fs, p, ts), 0);
	CHECK_EQ(sheaf_stat(fs, p, &later), 0);
	CHECK_EQ(later.st_atim.tv_sec, 1000);
	CHECK(later.st_mtim.tv_sec > 1600000000);
	CHECK_EQ(sheaf_chown(fs, p, (uid_t)-1, 56), 0);
	CHECK_EQ(sheaf_stat(fs, p, &later), 0);
	CHECK_EQ(later.st_uid, 12);
	CHECK_EQ(later.st_gid, 56);
	CHECK_EQ(later.st_ino, st.st_ino);
}

/* Permissions are those of the call's credential, not of the process. */
static void another_credential_is_held_to_the_permissions(void)
{
	struct sheaf_cred other = { .uid = 1000, .gid = 1000 };
	const uint32_t groups[] = { 5, 77 };
	struct sheaf_cred member = { .uid = 1001, .gid = 1001, .n_gids = 2, .gids = groups };
	const char *d = fresh_dir(fs);
	struct sheaf_handle dir, h, made;
	struct sheaf_file *f;
	struct stat st;

	make_file(fs, path_in(d, "secret"), 10, 1);
	CHECK_EQ(sheaf_chmod(fs, path_in(d, "secret"), 0600), 0);
	CHECK_EQ(sheaf_h_lookup(fs, &other, sheaf_root(fs), d + 1, &dir, &st), 0);
	CHECK_EQ(sheaf_h_lookup(fs, &other, dir, "secret", &h, &st), 0);
	CHECK_EQ(sheaf_h_open(fs, &other, h, NULL, O_RDONLY, 0, NULL, &f), -EACCES);
	CHECK_EQ(sheaf_h_open(fs, &other, dir, "secret", O_WRONLY, 0, NULL, &f), -EACCES);
	CHECK_EQ(sheaf_h_open(fs, &other, dir, "new", O_CREAT | O_WRONLY, 0644, NULL, &f), -EACCES);
	CHECK_EQ(sheaf_h_mkdir(fs, &other, dir, "new", 0755, &made, NULL), -EACCES);
	CHECK_EQ(sheaf_h_unlink(fs, &other, dir, "secret"), -EACCES);
	CHECK_EQ(sheaf_h_rename(fs, &other, dir, "secret", dir, "mine", 0), -EACCES);
	CHECK_EQ(sheaf_h_truncate(fs, &other, h, 0), -EACCES);
	CHECK_EQ(sheaf_h_setattr(fs, &other, h, SHEAF_SET_MODE, &(struct stat){ .st_mode = 0777 },
				 NULL),
		 -EPERM);
	CHECK_EQ(sheaf_chown(fs, path_in(d, "secret"), 0, 77), 0);
	CHECK_EQ(sheaf_chmod(fs, path_in(d, "secret"), 0640), 0);
	CHECK_EQ(sheaf_h_open(fs, &member, dir, "secret", O_RDWR, 0, NULL, &f), -EACCES);
	CHECK_EQ(sheaf_h_open(fs, &member, dir, "secret", O_RDONLY, 0, NULL, &f), 0);
	CHECK_EQ(sheaf_chmod(fs, path_in(d, "secret"), 0), 0); /* does not revoke the open */
	CHECK_EQ(sheaf_pread(f, (char[10]){ 0 }, 10, 0), 10);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_chmod(fs, d, 0700), 0);
	CHECK_EQ(sheaf_h_lookup(fs, &other, dir, "secret", &h, &st), -EACCES);
}

static void handles_reach_what_names_reach(void)
{
	const char *d = fresh_dir(fs);
	struct sheaf_handle root = sheaf_root(fs), dir, sub, h;
	struct sheaf_dirent e[4];
	struct sheaf_file *f;
	struct stat st;

	CHECK_EQ(sheaf_h_lookup(fs, NULL, root, d + 1, &dir, &st), 0);
	CHECK_EQ(sheaf_h_mkdir(fs, NULL, dir, "sub", 0700, &sub, NULL), 0);
	CHECK_EQ(sheaf_h_open(fs, NULL, sub, "f", O_CREAT | O_EXCL | O_RDWR, 0600, NULL, &f), 0);
	h = sheaf_file_handle(f);
	CHECK_EQ(sheaf_pwrite(f, "hello", 5, 0), 5);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_fstat(f, &st), 0);
	CHECK_EQ(st.st_size, 5);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_h_getattr(fs, NULL, h, &st), 0);
	CHECK_EQ(st.st_size, 5);
	CHECK_EQ(st.st_ino, h.ino);
	CHECK_EQ(sheaf_h_truncate(fs, NULL, h, 3), 0);
	CHECK_EQ(sheaf_h_rename(fs, NULL, sub, "f", dir, "g", 0), 0);
	CHECK_EQ(sheaf_h_readdir(fs, NULL, dir, 0, e, 4), 2);
	CHECK_EQ(sheaf_h_readdir(fs, NULL, sub, 0, e, 4), 0);
	CHECK_EQ(sheaf_h_rmdir(fs, NULL, dir, "sub"), 0);
	CHECK_EQ(sheaf_h_getattr(fs, NULL, sub, &st), -ESTALE);
	CHECK_EQ(sheaf_h_open(fs, NULL, h, NULL, O_RDONLY, 0, NULL, &f), 0);
	CHECK_EQ(sheaf_h_unlink(fs, NULL, dir, "g"), 0);
	CHECK_EQ(sheaf_pread(f, (char[9]){ 0 }, 9, 0), 3);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK(WITHIN(PATIENCE_S,
		     sheaf_h_getattr(fs, NULL, h, &st) == -ESTALE)); /* removed in the background */
}

struct maker {
	pthread_t thread;
	const char *dir;
	int from, n;
};

static void *make_entries(void *arg)
{
	struct maker *m = arg;

	for (int i = m->from; i < m->from + m->n; i++) {
		struct sheaf_file *f;
		char path[400];

		snprintf(path, sizeof(path), "%s/entry-%d", m->dir, i);
		CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_EXCL | O_RDONLY, 0644, NULL, &f), 0);
		CHECK_EQ(sheaf_close(f), 0);
	}
	return NULL;
}

/* Threads create the entries, so that commits are shared. */
static void make_directory(const char *dir, int n)
{
	struct maker m[20];

	for (int i = 0; i < 20; i++) {
		m[i] = (struct maker){ .dir = dir, .from = n / 20 * i, .n = n / 20 };
		CHECK_EQ(pthread_create(&m[i].thread, NULL, make_entries, &m[i]), 0);
	}
	for (int i = 0; i < 20; i++)
		pthread_join(m[i].thread, NULL);
}

static void a_large_directory_is_read_in_pages(void)
{
	const int n = SANITIZED || embedded ? 600 : 5000;
	const char *d = fresh_dir(fs);
	uint8_t *seen = calloc(1, (size_t)n);
	struct sheaf_dirent e;
	struct sheaf_dir *dd;
	uint64_t middle = 0;
	int k = 0, r;

	CHECK(seen);
	make_directory(d, n);
	CHECK_EQ(sheaf_opendir(fs, d, &dd), 0);
	while ((r = sheaf_readdir(dd, &e)) == 1) {
		int i = -1;

		CHECK_EQ(sscanf(e.name, "entry-%d", &i), 1);
		CHECK(i >= 0 && i < n && !seen[i]);
		CHECK_EQ(e.type, S_IFREG);
		seen[i] = 1;
		if (++k == n / 2)
			middle = e.cookie;
		/* removals during a listing do not disturb the other entries */
		if (k % 10 == 0)
			CHECK_EQ(sheaf_unlink(fs, path_in(d, e.name)), 0);
	}
	CHECK_EQ(r, 0);
	CHECK_EQ(k, n);
	sheaf_seekdir(dd, middle);
	for (k = 0; (r = sheaf_readdir(dd, &e)) == 1; k++)
		;
	CHECK_EQ(k, (n - n / 2) * 9 / 10);
	sheaf_closedir(dd);
	free(seen);
}

static void layouts_are_what_was_asked_for(void)
{
	struct sheaf_layout l = { .size = sizeof(l), .stripe_unit = 4096, .width = 1 };
	const char *d = fresh_dir(fs);
	static uint8_t b[100000];
	struct sheaf_file *f;

	CHECK_EQ(sheaf_open(fs, path_in(d, "one"), O_CREAT | O_RDWR, 0600, &l, &f), 0);
	fill_pattern(b, sizeof(b), 4, 0);
	CHECK_EQ(sheaf_pwrite(f, b, sizeof(b), 777), (ssize_t)sizeof(b));
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(size_of(path_in(d, "one")), 777 + (off_t)sizeof(b));
	f = open_file(fs, path_in(d, "one"), O_RDONLY);
	memset(b, 0, sizeof(b));
	CHECK_EQ(sheaf_pread(f, b, sizeof(b), 777), (ssize_t)sizeof(b));
	CHECK(is_pattern(b, sizeof(b), 4, 0));
	CHECK_EQ(sheaf_close(f), 0);
	l.stripe_unit = 4097;
	CHECK_EQ(sheaf_open(fs, path_in(d, "odd"), O_CREAT | O_RDWR, 0600, &l, &f), -EINVAL);
	l.stripe_unit = 1 << 20;
	l.width = 1000; /* more than there are targets: means all */
	CHECK_EQ(sheaf_open(fs, path_in(d, "wide"), O_CREAT | O_RDWR, 0600, &l, &f), 0);
	CHECK_EQ(sheaf_pwrite(f, b, sizeof(b), (1 << 20) - 50), (ssize_t)sizeof(b));
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(size_of(path_in(d, "wide")), (1 << 20) - 50 + (off_t)sizeof(b));
}

/* Requests of a kind that all servers have counted. */
static uint64_t timed(int kind)
{
	uint64_t sum = 0;

	for (int i = 0; i < sheaf_server_count(fs); i++) {
		struct sheaf_server_times t = { .size = sizeof(t) };
		uint64_t octaves = 0;
		struct sheaf_server s;

		CHECK_EQ(sheaf_server_times(fs, i, PATIENCE_S * 1000, &s, &t), 0);
		CHECK_EQ(s.up, 1);
		for (int k = 0; k < SHEAF_TIME_OCTAVES; k++)
			octaves += t.of[kind].octaves[k];
		CHECK_EQ(octaves, t.of[kind].count);
		sum += octaves;
	}
	return sum;
}

static void servers_count_their_requests_by_kind_and_time(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_server_times t = { .size = sizeof(t) - 1 };
	uint64_t before[SHEAF_TIMES];
	struct sheaf_file *f;
	struct sheaf_server s;
	char b[8];

	for (int k = 0; k < SHEAF_TIMES; k++)
		before[k] = timed(k);
	f = open_file(fs, p, O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_pwrite(f, "1234567", 8, 0), 8);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_pread(f, b, sizeof(b), 0), 8);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK(timed(SHEAF_TIMES_WRITE) > before[SHEAF_TIMES_WRITE]);
	CHECK(timed(SHEAF_TIMES_SYNC) > before[SHEAF_TIMES_SYNC]);
	CHECK(timed(SHEAF_TIMES_NAMES) > before[SHEAF_TIMES_NAMES]);
	CHECK_EQ(sheaf_server_times(fs, 0, PATIENCE_S * 1000, &s, &t), -EINVAL);
	CHECK_EQ(sheaf_server_times(fs, -1, PATIENCE_S * 1000, &s, &t), -EINVAL);
}

static void many_operations_are_in_flight_at_once(void)
{
	enum { N = 300, PIECE = 9000 };
	static uint8_t b[N][PIECE];
	struct sheaf_op *op[N];
	struct sheaf_file *f = open_file(fs, path_in(fresh_dir(fs), "f"), O_CREAT | O_RDWR);
	int left = N;

	for (int i = 0; i < N; i++) {
		fill_pattern(b[i], PIECE, 8, (uint64_t)i * PIECE);
		CHECK_EQ(sheaf_pwrite_start(f, b[i], PIECE, (off_t)i * PIECE, &op[i]), 0);
	}
	/* the caller may wait in any order: here backwards */
	for (int i = 0; i < N; i++)
		CHECK_EQ(sheaf_wait(op[N - 1 - i]), PIECE);
	memset(b, 0, sizeof(b));
	for (int i = 0; i < N; i++)
		CHECK_EQ(sheaf_pread_start(f, b[i], PIECE, (off_t)i * PIECE, &op[i]), 0);
	while (left) {
		for (int i = 0; i < N; i++) {
			ssize_t r = 0;

			if (!op[i] || !sheaf_test(op[i], &r))
				continue;
			CHECK_EQ(r, PIECE);
			op[i] = NULL;
			left--;
		}
		pause_ms(1); /* the helper thread drives the connection */
	}
	CHECK(is_pattern(b, sizeof(b), 8, 0));
	CHECK_EQ(sheaf_close(f), 0);
}

static const struct test both[] = {
	TEST(exclusive_create_happens_once),
	TEST(truncating_open_empties_the_file),
	TEST(truncate_cuts_and_extends),
	TEST(an_unlinked_open_file_stays_readable),
	TEST(rename_replaces_what_was_there),
	TEST(names_that_do_not_fit_are_refused),
	TEST(wrong_uses_get_the_errors_of_posix),
	TEST(attributes_keep_what_was_set),
	TEST(another_credential_is_held_to_the_permissions),
	TEST(handles_reach_what_names_reach),
	TEST(a_large_directory_is_read_in_pages),
	TEST(layouts_are_what_was_asked_for),
	TEST(servers_count_their_requests_by_kind_and_time),
	TEST(many_operations_are_in_flight_at_once),
};

int main(int argc, char **argv)
{
	size_t n = sizeof(both) / sizeof(both[0]);
	char dir[CLUSTER_PATH - 16], conf[CLUSTER_PATH];
	struct cluster c;
	struct sheaf *second;

	puts("servers:");
	cluster_create(&c, &(struct cluster_opts){ .servers = 3 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	test_run(both, n, argc, argv);
	sheaf_disconnect(fs);
	cluster_stop(&c);

	puts("embedded:");
	embedded = true;
	temp_dir(dir, sizeof(dir));
	snprintf(conf, sizeof(conf), "local:%s", dir);
	fs = client_connect(conf);
	/* embedded, a process has one connection at a time */
	CHECK(sheaf_connect(conf, &second) < 0);
	CHECK(sheaf_why()[0]);
	test_run(both, n, argc, argv);
	make_file(fs, "/kept", 100000, 9);
	sheaf_disconnect(fs);
	fs = client_connect(conf);
	check_file(fs, "/kept", 100000, 9);
	sheaf_disconnect(fs);
	return 0;
}
