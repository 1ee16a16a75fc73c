/* Takeover: a connection passes from process to process with its open files, its locks and its
 * unreported losses, whatever the servers do meanwhile. A client whose successor fails resumes.
 * Also sheaf_flush(). */
#include <sys/mman.h>

#include "lock_wait.h"

static struct cluster c;
static struct sheaf *fs;

#define OWNER 77
#define LEASE 6
#define ROUNDS 4

/* ---- from one connection to the next ---- */

/* Exports the connection into a memfd, at offset 0. */
static int exported(struct sheaf *mine)
{
	int fd = memfd_create("export", MFD_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_EQ(sheaf_export(mine, fd), 0);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static struct sheaf *imported(int fd)
{
	struct sheaf *mine = NULL;
	int r = sheaf_import(c.conf, fd, &mine);

	if (r)
		fprintf(stderr, "import: %s: %s\n", sheaf_strerror(r), sheaf_why());
	CHECK_EQ(r, 0);
	close(fd);
	return mine;
}

static struct sheaf_file *imported_file(struct sheaf *mine, uint64_t id)
{
	struct sheaf_file *f = NULL;

	CHECK_EQ(sheaf_import_file(mine, id, &f), 0);
	CHECK_EQ(sheaf_file_id(f), id);
	return f;
}

/* Replaces a connection by its successor, which gets its file. */
static void pass_on(struct sheaf **mine, struct sheaf_file **f)
{
	uint64_t id = sheaf_file_id(*f);
	int fd = exported(*mine);

	sheaf_abandon(*mine);
	*mine = imported(fd);
	*f = imported_file(*mine, id);
}

static void restart_all(void)
{
	for (int i = 0; i < c.n; i++)
		server_kill(&c, i);
	cluster_start(&c);
}

static int get(struct sheaf_file *f, off_t off)
{
	uint8_t b;

	return sheaf_pread(f, &b, 1, off) == 1 ? b : -1;
}

static void put(struct sheaf_file *f, off_t off, char b)
{
	CHECK_EQ(sheaf_pwrite(f, &b, 1, off), 1);
}

/* ---- processes ---- */

/* One of a chain of processes; arg: conf, the file with the export, the round, and four ids. */
static int successor(char **arg)
{
	const char *const *ids = (const char *const *)arg + 3;
	int fd = open(arg[1], O_RDWR | O_CLOEXEC), round = atoi(arg[2]);
	struct sheaf_file *data, *log, *gone, *dir;
	static uint8_t b[300000];
	char line[16];
	struct sheaf *mine;

	CHECK(fd >= 0);
	CHECK_EQ(sheaf_import(arg[0], fd, &mine), 0);
	data = imported_file(mine, strtoull(ids[0], NULL, 10));
	log = imported_file(mine, strtoull(ids[1], NULL, 10));
	gone = imported_file(mine, strtoull(ids[2], NULL, 10));
	dir = imported_file(mine, strtoull(ids[3], NULL, 10));
	CHECK_EQ(sheaf_import_file(mine, strtoull(ids[0], NULL, 10), &dir), -ENOENT);
	CHECK_EQ(sheaf_pread(data, b, sizeof(b), 0), (ssize_t)sizeof(b));
	CHECK(is_pattern(b + ROUNDS, sizeof(b) - ROUNDS, 1, ROUNDS));
	CHECK_EQ(round ? b[round - 1] : 0, round ? 'a' + round - 1 : 0);
	put(data, round, (char)('a' + round));
	snprintf(line, sizeof(line), "line %d\n", round);
	CHECK_EQ(sheaf_pwrite(log, line, strlen(line), 0), (ssize_t)strlen(line));
	CHECK_EQ(get(gone, 70000), 'g');
	put(gone, 70000, 'g');
	/* the lock is held by this owner only */
	CHECK_EQ(range_lock(data, OWNER, F_WRLCK, 0, 0, 0), 0);
	CHECK_EQ(range_lock(data, OWNER + 1, F_RDLCK, 0, 0, 0), -EAGAIN);
	CHECK_EQ(ftruncate(fd, 0), 0);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	CHECK_EQ(sheaf_export(mine, fd), 0);
	sheaf_abandon(mine);
	return 0;
}

static int child(const char *name, char **arg)
{
	CHECK_STR(name, "successor");
	return successor(arg);
}

static void open_files_and_locks_go_from_process_to_process(void)
{
	const char *d = fresh_dir(fs), *p = path_in(d, "data");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f[4], *seen;
	char state[CLUSTER_PATH + 16], ids[4][24], round[8], text[128] = "";
	static uint8_t b[300000];
	int fd;

	make_file(mine, p, sizeof(b), 1);
	f[0] = open_file(mine, p, O_RDWR);
	f[1] = open_file(mine, path_in(d, "log"), O_CREAT | O_WRONLY | O_APPEND);
	f[2] = open_file(mine, path_in(d, "gone"), O_CREAT | O_RDWR);
	f[3] = open_file(mine, d, O_RDONLY | O_DIRECTORY);
	put(f[2], 70000, 'g');
	CHECK_EQ(sheaf_unlink(mine, path_in(d, "gone")), 0);
	CHECK_EQ(range_lock(f[0], OWNER, F_WRLCK, 0, 0, 0), 0);
	for (int i = 0; i < 4; i++)
		snprintf(ids[i], sizeof(ids[i]), "%llu", (unsigned long long)sheaf_file_id(f[i]));
	snprintf(state, sizeof(state), "%s/state", c.dir);
	fd = open(state, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(sheaf_export(mine, fd), 0);
	sheaf_abandon(mine);
	seen = open_file(fs, p, O_RDWR);
	for (int i = 0; i < ROUNDS; i++) {
		snprintf(round, sizeof(round), "%d", i);
		CHECK_EQ(process_wait(child_start("successor", c.conf, state, round, ids[0], ids[1],
						  ids[2], ids[3], NULL)),
			 0);
		CHECK_EQ(conflicting_lock(seen, F_WRLCK), F_WRLCK);
	}
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	mine = imported(fd);
	for (int i = 0; i < 4; i++) {
		f[i] = imported_file(mine, strtoull(ids[i], NULL, 10));
		CHECK_EQ(i < 3 ? sheaf_fsync(f[i]) : 0, 0);
	}
	CHECK_EQ(get(f[2], 70000), 'g');
	for (int i = 0; i < 4; i++)
		CHECK_EQ(sheaf_close(f[i]), 0);
	CHECK_EQ(conflicting_lock(seen, F_WRLCK), F_UNLCK);
	for (int i = 0; i < ROUNDS; i++)
		CHECK_EQ(get(seen, i), 'a' + i);
	CHECK_EQ(sheaf_close(seen), 0);
	seen = open_file(fs, path_in(d, "log"), O_RDONLY);
	CHECK_EQ(sheaf_pread(seen, text, sizeof(text) - 1, 0), 7 * ROUNDS);
	CHECK_STR(text, "line 0\nline 1\nline 2\nline 3\n");
	CHECK_EQ(sheaf_close(seen), 0);
	sheaf_disconnect(mine);
	unlink(state);
}

static void a_thousand_open_files_are_taken_over(void)
{
	enum { N = 1000 };
	static struct sheaf_file *f[N];
	static uint64_t ids[N];
	const char *d = fresh_dir(fs);
	struct sheaf *mine = client_connect(c.conf);
	double t0, t1, t2;
	char name[16];
	int fd;

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		f[i] = open_file(mine, path_in(d, name), O_CREAT | O_RDWR);
		put(f[i], i, (char)i);
		ids[i] = sheaf_file_id(f[i]);
	}
	t0 = now_s();
	fd = exported(mine);
	t1 = now_s();
	sheaf_abandon(mine);
	mine = imported(fd);
	for (int i = N; i--;)
		f[i] = imported_file(mine, ids[i]);
	t2 = now_s();
	for (int i = 0; i < N; i++)
		CHECK_EQ(get(f[i], i), i & 0xff);
	for (int i = 0; i < N; i++)
		CHECK_EQ(sheaf_close(f[i]), 0);
	sheaf_disconnect(mine);
	printf("%d files: exported in %.1f ms, imported in %.1f ms\n", N, (t1 - t0) * 1e3,
	       (t2 - t1) * 1e3);
}

/* ---- locks ---- */

struct poacher {
	pthread_t thread;
	struct sheaf_file *f;
	bool stop;
	int tries, got;
};

/* Tries to get the lock in a loop. */
static void *poach(void *arg)
{
	struct poacher *p = arg;

	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
		int r = range_lock(p->f, OWNER, F_WRLCK, 0, 0, 0);

		CHECK(r == 0 || r == -EAGAIN);
		p->got += r == 0;
		p->tries++;
	}
	return NULL;
}

static void a_lock_is_never_free_in_between(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf *mine = client_connect(c.conf), *third = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	struct sheaf_file *theirs = open_file(fs, p, O_RDWR);
	struct poacher poacher = { .f = open_file(third, p, O_RDWR) };
	struct waiter w;

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 0), 0);
	waiter_start(&w, theirs, OWNER, F_WRLCK, 0, 0);
	CHECK_EQ(pthread_create(&poacher.thread, NULL, poach, &poacher), 0);
	for (int i = 0; i < 10; i++) {
		pass_on(&mine, &f);
		pause_ms(20);
		put(f, 0, 'x');
		CHECK(!waiter_is_done(&w));
	}
	__atomic_store_n(&poacher.stop, true, __ATOMIC_RELEASE);
	pthread_join(poacher.thread, NULL);
	CHECK(poacher.tries > 10);
	CHECK_EQ(poacher.got, 0);
	CHECK(!waiter_is_done(&w));
	CHECK_EQ(range_lock(f, OWNER, F_UNLCK, 0, 0, 0), 0);
	CHECK_EQ(waiter_join(&w), 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_close(theirs), 0);
	CHECK_EQ(sheaf_close(poacher.f), 0);
	sheaf_disconnect(mine);
	sheaf_disconnect(third);
}

/* Without any call, the connection resumes its sessions and renews its leases. */
static void an_idle_successor_keeps_its_locks(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	struct sheaf_file *theirs = open_file(fs, p, O_RDWR);
	double end;

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 0), 0);
	pass_on(&mine, &f);
	for (end = now_s() + 2 * LEASE; now_s() < end; pause_ms(100))
		CHECK_EQ(conflicting_lock(theirs, F_WRLCK), F_WRLCK);
	put(f, 0, 'x');
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_close(theirs), 0);
	sheaf_disconnect(mine);
}

/* During the import, servers are down for longer than an internal call of the connection waits. */
static void an_idle_successor_finds_servers_that_come_later(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	struct sheaf_file *theirs = open_file(fs, p, O_RDWR);
	uint64_t id = sheaf_file_id(f);
	double end;
	int fd;

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 0), 0);
	fd = exported(mine);
	sheaf_abandon(mine);
	cluster_stop(&c);
	mine = imported(fd);
	f = imported_file(mine, id);
	pause_ms(1000 * LEASE * 2 / 3);
	cluster_start(&c);
	for (end = now_s() + 2 * LEASE; now_s() < end; pause_ms(100))
		CHECK_EQ(range_lock(theirs, OWNER, F_WRLCK, 0, 0, 0), -EAGAIN);
	put(f, 0, 'x');
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_close(theirs), 0);
	sheaf_disconnect(mine);
}

/* ---- servers that stop, crash or lose state meanwhile ---- */

static void restart_between(bool crash)
{
	const char *d = fresh_dir(fs), *p = path_in(d, "f");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	struct sheaf_file *gone = open_file(mine, path_in(d, "gone"), O_CREAT | O_RDWR);
	struct sheaf_file *log = open_file(mine, path_in(d, "log"), O_CREAT | O_RDWR | O_APPEND);
	struct sheaf_file *theirs = open_file(fs, p, O_RDWR);
	uint64_t id = sheaf_file_id(f), gone_id = sheaf_file_id(gone), log_id = sheaf_file_id(log);
	int fd;

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 10, 0), 0);
	CHECK_EQ(sheaf_unlink(mine, path_in(d, "gone")), 0);
	put(f, 0, 'a');
	put(gone, 0, 'b');
	CHECK_EQ(sheaf_pwrite(log, "one\n", 4, 0), 4);
	fd = exported(mine);
	sheaf_abandon(mine);
	if (crash)
		restart_all();
	else
		cluster_stop(&c);
	cluster_start(&c);
	mine = imported(fd);
	f = imported_file(mine, id);
	gone = imported_file(mine, gone_id);
	log = imported_file(mine, log_id);
	CHECK_EQ(get(f, 0), 'a');
	CHECK_EQ(get(gone, 0), 'b');
	CHECK_EQ(conflicting_lock(theirs, F_WRLCK), F_WRLCK);
	CHECK_EQ(range_lock(theirs, OWNER, F_WRLCK, 5, 1, 0), -EAGAIN);
	CHECK_EQ(sheaf_pwrite(log, "two\n", 4, 0), 4);
	CHECK_EQ(get(log, 4), 't');
	CHECK_EQ(sheaf_fsync(f), crash ? -EIO : 0);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(gone), crash ? -EIO : 0);
	CHECK_EQ(sheaf_close(log), crash ? -EIO : 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(range_lock(theirs, OWNER, F_WRLCK, 5, 1, 0), 0);
	CHECK_EQ(sheaf_close(theirs), 0);
	sheaf_disconnect(mine);
}

static void a_clean_restart_in_between_is_not_noticed(void)
{
	restart_between(false);
}

static void after_a_crash_in_between_files_are_claimed_and_fsync_tells(void)
{
	restart_between(true);
}

/* The loss was known before the export, but not yet reported to the program. */
static void a_loss_before_the_export_is_reported_after_it(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);

	put(f, 0, 'a');
	restart_all();
	put(f, 0, 'b');
	pass_on(&mine, &f);
	CHECK_EQ(sheaf_fsync(f), -EIO);
	CHECK_EQ(sheaf_fsync(f), 0);
	put(f, 0, 'c');
	pass_on(&mine, &f);
	restart_all();
	CHECK_EQ(sheaf_close(f), -EIO);
	sheaf_disconnect(mine);
}

static void what_the_lease_took_is_claimed_or_lost_with_an_error(void)
{
	const char *d = fresh_dir(fs), *p = path_in(d, "f");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	struct sheaf_file *free = open_file(mine, path_in(d, "free"), O_CREAT | O_RDWR);
	struct sheaf_file *gone = open_file(mine, path_in(d, "gone"), O_CREAT | O_RDWR);
	struct sheaf_file *theirs = open_file(fs, p, O_RDWR);
	uint64_t id = sheaf_file_id(f), free_id = sheaf_file_id(free),
		 gone_id = sheaf_file_id(gone);
	char b;
	int fd;

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 0), 0);
	CHECK_EQ(sheaf_unlink(mine, path_in(d, "gone")), 0);
	put(f, 0, 'a');
	put(free, 0, 'b');
	put(gone, 0, 'c');
	fd = exported(mine);
	sheaf_abandon(mine);
	CHECK(WITHIN(PATIENCE_S, range_lock(theirs, OWNER, F_WRLCK, 0, 0, 0) == 0));
	mine = imported(fd);
	f = imported_file(mine, id);
	free = imported_file(mine, free_id);
	gone = imported_file(mine, gone_id);
	CHECK_EQ(get(free, 0), 'b');
	put(free, 0, 'd');
	CHECK_EQ(sheaf_fsync(free), 0);
	CHECK_EQ(sheaf_pread(gone, &b, 1, 0), -ESTALE);
	CHECK_EQ(sheaf_pwrite(f, "x", 1, 0), -EIO); /* another client has the lock */
	CHECK_EQ(range_lock(f, OWNER, F_UNLCK, 0, 0, 0), -EIO);
	CHECK_EQ(get(f, 0), 'a');
	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 0), -EAGAIN);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_close(free), 0);
	CHECK(sheaf_close(gone) <= 0);
	CHECK_EQ(sheaf_close(theirs), 0);
	sheaf_disconnect(mine);
}

/* ---- exports without a successor ---- */

static void an_operation_under_way_is_busy(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	struct sheaf_op *op;
	struct waiter w;
	char b;
	int fd;

	put(f, 0, 'x');
	CHECK_EQ(sheaf_pread_start(f, &b, 1, 0, &op), 0);
	CHECK_EQ(sheaf_export(mine, -1), -EBUSY);
	CHECK_EQ(sheaf_wait(op), 1);
	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 0, 0), 0);
	waiter_start(&w, f, 2, F_WRLCK, 0, 0);
	CHECK(WITHIN(PATIENCE_S, sheaf_export(mine, -1) == -EBUSY));
	sheaf_lock_cancel(mine, 2);
	CHECK_EQ(waiter_join(&w), -EINTR);
	fd = exported(mine);
	sheaf_abandon(mine);
	mine = imported(fd);
	sheaf_disconnect(mine);
}

static void an_exporter_without_an_importer_continues(void)
{
	const char *d = fresh_dir(fs), *p = path_in(d, "f");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	struct sheaf_file *theirs = open_file(fs, p, O_RDWR);
	struct stat st;
	char b = 'x';

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 0), 0);
	CHECK_EQ(sheaf_resume(mine), 0); /* no effect without an export */
	for (int i = 0; i < 5; i++) {
		put(f, i, 'a');
		close(exported(mine));
		CHECK_EQ(sheaf_pwrite(f, &b, 1, 0), -ESHUTDOWN);
		CHECK_EQ(sheaf_stat(mine, p, &st), -ESHUTDOWN);
		CHECK_EQ(sheaf_export(mine, -1), -ESHUTDOWN);
		CHECK_EQ(conflicting_lock(theirs, F_WRLCK), F_WRLCK);
		CHECK_EQ(sheaf_resume(mine), 0);
		CHECK_EQ(get(f, i), 'a');
		CHECK_EQ(sheaf_mkdir(mine, path_in(d, (char[]){ (char)('0' + i), 0 }), 0755), 0);
		CHECK_EQ(conflicting_lock(theirs, F_WRLCK), F_WRLCK);
	}
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_close(theirs), 0);
	sheaf_disconnect(mine);
}

static void a_place_that_cannot_be_written_changes_nothing(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	CHECK(full >= 0);
	CHECK_EQ(sheaf_export(mine, full), -ENOSPC);
	put(f, 0, 'a');
	CHECK_EQ(sheaf_export(mine, -1), -EBADF);
	CHECK_EQ(get(f, 0), 'a');
	CHECK_EQ(sheaf_close(f), 0);
	close(full);
	sheaf_disconnect(mine);
}

/* The successor worked for a while and was then killed. */
static void an_exporter_continues_after_its_successor_died(void)
{
	const char *d = fresh_dir(fs), *p = path_in(d, "f");
	struct sheaf *mine = client_connect(c.conf), *other;
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	struct sheaf_file *theirs = open_file(fs, p, O_RDWR), *more;
	char name[16];

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 0), 0);
	other = imported(exported(mine));
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		open_file(other, path_in(d, name), O_CREAT | O_RDWR);
	}
	sheaf_abandon(other);
	CHECK_EQ(sheaf_resume(mine), 0);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "m%d", i);
		more = open_file(mine, path_in(d, name), O_CREAT | O_EXCL | O_RDWR);
		put(more, 0, 'm');
		CHECK_EQ(sheaf_close(more), 0);
		snprintf(name, sizeof(name), "d%d", i);
		CHECK_EQ(sheaf_mkdir(mine, path_in(d, name), 0755), 0);
	}
	put(f, 0, 'a');
	CHECK_EQ(conflicting_lock(theirs, F_WRLCK), F_WRLCK);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_close(theirs), 0);
	sheaf_disconnect(mine);
}

static void what_is_no_export_is_refused_with_a_reason(void)
{
	struct sheaf *mine = client_connect(c.conf), *none;
	char conf[CLUSTER_PATH + 32], dir[CLUSTER_PATH];
	struct sheaf_init o = { .size = sizeof(o), .servers = 1 };
	int fd = exported(mine), null = open("/dev/null", O_RDWR | O_CLOEXEC);

	sheaf_abandon(mine);
	CHECK_EQ(sheaf_import(c.conf, null, &none), -EBADMSG);
	CHECK(strstr(sheaf_why(), "ends too early"));
	CHECK_EQ(sheaf_import(c.conf, -1, &none), -EBADF);
	close(null);
	temp_dir(dir, sizeof(dir));
	snprintf(conf, sizeof(conf), "%s/other", dir);
	CHECK_EQ(sheaf_init(conf, &o), 0);
	snprintf(conf, sizeof(conf), "%s/other/sheaf.conf", dir);
	CHECK_EQ(sheaf_import(conf, fd, &none), -EXDEV);
	CHECK(strstr(sheaf_why(), "another file system"));
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	snprintf(conf, sizeof(conf), "local:%s/fs", dir);
	CHECK_EQ(sheaf_import(conf, fd, &none), -EOPNOTSUPP);
	mine = client_connect(conf);
	CHECK_EQ(sheaf_export(mine, fd), -EOPNOTSUPP);
	sheaf_disconnect(mine);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	mine = imported(fd); /* the refused imports have not spoiled the export */
	CHECK_EQ(sheaf_ping(mine, 0), 0);
	sheaf_disconnect(mine);
}

static void what_is_abandoned_stays_for_its_lease(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, p, O_CREAT | O_RDWR);
	struct sheaf_file *theirs = open_file(fs, p, O_RDWR);

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 0), 0);
	put(f, 0, 'a');
	sheaf_abandon(mine);
	CHECK_EQ(range_lock(theirs, OWNER, F_WRLCK, 0, 0, 0), -EAGAIN);
	CHECK(WITHIN(PATIENCE_S, range_lock(theirs, OWNER, F_WRLCK, 0, 0, 0) == 0));
	CHECK_EQ(get(theirs, 0), 'a');
	CHECK_EQ(sheaf_close(theirs), 0);
}

/* ---- flush ---- */

static uint64_t requests(void)
{
	uint64_t n = 0;

	for (int i = 0; i < c.n; i++)
		n += server_status(fs, i).requests;
	return n;
}

static void a_flush_without_changes_sends_no_request(void)
{
	struct sheaf_file *f = open_file(fs, path_in(fresh_dir(fs), "f"), O_CREAT | O_RDWR);
	uint64_t before;

	put(f, 0, 'a');
	put(f, 1000000, 'b');
	before = requests();
	for (int i = 0; i < 200; i++)
		CHECK_EQ(sheaf_flush(f), 0);
	CHECK(requests() - before < 50); /* some status requests and renewals */
	CHECK_EQ(sheaf_close(f), 0);
}

static void a_flush_tells_of_a_loss_until_an_fsync_does(void)
{
	struct sheaf_file *f = open_file(fs, path_in(fresh_dir(fs), "f"), O_CREAT | O_RDWR);

	put(f, 0, 'a');
	put(f, 70000, 'a'); /* on the other server */
	restart_all();
	CHECK_EQ(sheaf_flush(f), -EIO);
	/* the error stays: a close in a child must not hide it from the writer */
	CHECK_EQ(sheaf_flush(f), -EIO);
	CHECK_EQ(sheaf_fsync(f), -EIO);
	CHECK_EQ(sheaf_flush(f), 0);
	put(f, 0, 'b');
	restart_all();
	put(f, 1, 'b'); /* this write detects the loss */
	CHECK_EQ(sheaf_flush(f), -EIO);
	restart_all();
	/* covers the loss of the second write, too */
	CHECK_EQ(sheaf_fsync(f), -EIO);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void a_flush_leaves_the_rest_to_fsync(void)
{
	struct sheaf_file *f = open_file(fs, path_in(fresh_dir(fs), "f"), O_CREAT | O_RDWR);

	put(f, 0, 'a');
	put(f, 70000, 'a');
	server_kill(&c, 0);
	CHECK_EQ(server_up(&c, 0), 0);
	CHECK_EQ(sheaf_flush(f), -EIO); /* server 0 lost data */
	server_kill(&c, 1);
	CHECK_EQ(server_up(&c, 1), 0);
	CHECK_EQ(sheaf_fsync(f), -EIO); /* server 1 lost data */
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .lease = LEASE });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(child, begin, end, TEST(open_files_and_locks_go_from_process_to_process),
	 TEST(a_thousand_open_files_are_taken_over), TEST(a_lock_is_never_free_in_between),
	 TEST(an_idle_successor_keeps_its_locks),
	 TEST(an_idle_successor_finds_servers_that_come_later),
	 TEST(a_clean_restart_in_between_is_not_noticed),
	 TEST(after_a_crash_in_between_files_are_claimed_and_fsync_tells),
	 TEST(a_loss_before_the_export_is_reported_after_it),
	 TEST(what_the_lease_took_is_claimed_or_lost_with_an_error),
	 TEST(an_operation_under_way_is_busy), TEST(an_exporter_without_an_importer_continues),
	 TEST(a_place_that_cannot_be_written_changes_nothing),
	 TEST(an_exporter_continues_after_its_successor_died),
	 TEST(what_is_no_export_is_refused_with_a_reason),
	 TEST(what_is_abandoned_stays_for_its_lease),
	 TEST(a_flush_without_changes_sends_no_request),
	 TEST(a_flush_tells_of_a_loss_until_an_fsync_does), TEST(a_flush_leaves_the_rest_to_fsync))
