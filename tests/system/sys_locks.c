/* Advisory locks between real processes: no two owners hold conflicting locks, whichever process
 * dies. Waits are fair, can be cancelled and do not block other calls. A client whose session is
 * lost always learns that its locks are lost. */
#include <sys/file.h>

#include "lock_wait.h"

static struct cluster c;
static struct sheaf *fs;

#define OWNER 77
#define LEASE 10

/* ---- children ---- */

/* Adds 1 to the number in the file under the lock, arg[2] times. */
static int count_up(struct sheaf *mine, char **arg)
{
	struct sheaf_file *f = open_file(mine, arg[1], O_RDWR);
	bool whole = strcmp(arg[3], "flock") == 0;
	uint64_t n;
	int r;

	for (int i = atoi(arg[2]); i; i--) {
		CHECK_EQ(whole ? sheaf_flock(f, LOCK_EX, OWNER) :
				 range_lock(f, OWNER, F_WRLCK, 0, 8, 1),
			 0);
		CHECK_EQ(sheaf_pread(f, &n, sizeof(n), 0), (ssize_t)sizeof(n));
		n++;
		CHECK_EQ(sheaf_pwrite(f, &n, sizeof(n), 0), (ssize_t)sizeof(n));
		CHECK_EQ(whole ? sheaf_flock(f, LOCK_UN, OWNER) :
				 range_lock(f, OWNER, F_UNLCK, 0, 8, 1),
			 0);
	}
	r = sheaf_close(f);
	/* -EIO: a killed server may have lost data that were not synced */
	CHECK(r == 0 || r == -EIO);
	sheaf_disconnect(mine);
	return 0;
}

/* Takes the lock, notes it in the file, and holds the lock until killed or until the file tells it
 * to end. */
static int keep(struct sheaf *mine, char **arg)
{
	struct sheaf_file *f = open_file(mine, arg[1], O_RDWR);
	char b = 'h';

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 1), 0);
	CHECK_EQ(sheaf_pwrite(f, &b, 1, 0), 1);
	while (b == 'h') {
		pause_ms(20);
		CHECK_EQ(sheaf_pread(f, &b, 1, 0), 1);
	}
	CHECK_EQ(range_lock(f, OWNER, F_UNLCK, 0, 0, 0), 0);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(mine);
	return 0;
}

/* Writes under the lock in a loop; after a stop for longer than its lease it must get an error. */
static int scribble(struct sheaf *mine, char **arg)
{
	struct sheaf_file *f = open_file(mine, arg[1], O_RDWR);
	struct sheaf_file *g = open_file(mine, arg[1], O_RDWR);
	ssize_t r = 1;

	CHECK_EQ(range_lock(f, OWNER, F_WRLCK, 0, 0, 1), 0);
	while (r == 1)
		r = sheaf_pwrite(f, "s", 1, 0);
	CHECK_EQ(r, -EIO);
	CHECK_EQ(sheaf_pread(f, &(char){ 0 }, 1, 0), -EIO);
	CHECK_EQ(sheaf_ftruncate(f, 0), -EIO);
	CHECK_EQ(sheaf_pwrite(g, "s", 1, 0), -EIO); /* through any open of the owner */
	CHECK_EQ(sheaf_ftruncate(g, 0), -EIO);
	CHECK_EQ(range_lock(f, OWNER + 1, F_RDLCK, 5, 1, 0), -EAGAIN); /* held by another client */
	/* the owner has not acknowledged the loss yet */
	CHECK_EQ(sheaf_pwrite(f, "s", 1, 0), -EIO);
	CHECK_EQ(range_lock(g, OWNER, F_UNLCK, 0, 0, 0), -EIO);
	CHECK_EQ(range_lock(f, OWNER, F_UNLCK, 0, 0, 0), 0);
	CHECK_EQ(sheaf_pread(f, &(char){ 0 }, 1, 0), 1);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_close(g), 0);
	sheaf_disconnect(mine);
	return 0;
}

static int child(const char *name, char **arg)
{
	struct sheaf *mine = client_connect(arg[0]);

	if (strcmp(name, "count") == 0)
		return count_up(mine, arg);
	return strcmp(name, "keep") == 0 ? keep(mine, arg) : scribble(mine, arg);
}

/* Creates a file that begins with these bytes. */
static struct sheaf_file *new_file(const char *path, const void *p, size_t n)
{
	struct sheaf_file *f = open_file(fs, path, O_CREAT | O_RDWR | O_TRUNC);

	CHECK_EQ(sheaf_pwrite(f, p, n, 0), (ssize_t)n);
	return f;
}

static char first_byte(struct sheaf_file *f)
{
	char b = 0;

	CHECK_EQ(sheaf_pread(f, &b, 1, 0), 1);
	return b;
}

/* Counts the waits for locks at all servers; with `who`, only those of clients whose name contains
 * it. */
static int waits_shown(const char *who)
{
	static struct sheaf_request rows[512];
	int n = 0;

	for (int i = 0; i < c.n; i++) {
		int k = sheaf_server_requests(fs, i, 5000, rows, 512);

		CHECK(k >= 0);
		while (k--)
			n += strcmp(rows[k].op, "lock") == 0 &&
			     strcmp(rows[k].state, "wait") == 0 &&
			     (!who || strstr(rows[k].client, who));
	}
	return n;
}

/* The server that keeps the file's locks. */
static int home_of(struct sheaf_file *f)
{
	return (int)((sheaf_file_handle(f).ino >> 48) % (uint64_t)c.n);
}

static void restart_home(struct sheaf_file *f)
{
	int i = home_of(f);

	server_kill(&c, i);
	CHECK_EQ(server_up(&c, i), 0);
}

/* ---- tests ---- */

static uint64_t counted(struct sheaf_file *f)
{
	uint64_t n;

	CHECK_EQ(sheaf_pread(f, &n, sizeof(n), 0), (ssize_t)sizeof(n));
	return n;
}

static void count_with(const char *how, int kills)
{
	const char *p = path_in(fresh_dir(fs), "counter");
	uint64_t n = 0;
	struct sheaf_file *f = new_file(p, &n, sizeof(n));
	pid_t pid[4];

	CHECK_EQ(sheaf_fsync(f), 0);
	for (int i = 0; i < 4; i++)
		pid[i] = child_start("count", c.conf, p, kills ? "400" : "150", how, NULL);
	for (int i = 0; i < kills; i++) {
		CHECK(WITHIN(PATIENCE_S, counted(f) >= 100 + 400 * (uint64_t)i));
		restart_home(f);
	}
	for (int i = 0; i < 4; i++)
		CHECK_EQ(process_wait(pid[i]), 0);
	CHECK_EQ(counted(f), kills ? 1600 : 600);
	CHECK_EQ(conflicting_lock(f, F_WRLCK), F_UNLCK);
	sheaf_close(f);
}

static void four_processes_count_exactly_under_a_range_lock(void)
{
	count_with("range", 0);
}

static void four_processes_count_exactly_under_a_flock(void)
{
	count_with("flock", 0);
}

/* kill -9 loses no acknowledged write, since the page cache survives: the counter stays exact,
 * although restarted servers have forgotten all locks. */
static void counting_goes_on_over_kills_of_the_server(void)
{
	count_with("range", 3);
}

static void ranges_split_merge_and_exclude(void)
{
	struct sheaf_file *f = new_file(path_in(fresh_dir(fs), "f"), "x", 1);
	struct sheaf_lock l = {
		.size = sizeof(l), .type = F_WRLCK, .start = 50, .length = 10, .owner = 2
	};

	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 100, 0), 0);
	CHECK_EQ(range_lock(f, 2, F_RDLCK, 99, 1, 0), -EAGAIN);
	CHECK_EQ(range_lock(f, 2, F_WRLCK, 100, 0, 0), 0); /* to the end of the file */
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 40, 20, 0), 0);
	CHECK_EQ(range_lock(f, 3, F_WRLCK, 39, 22, 0), -EAGAIN);
	CHECK_EQ(range_lock(f, 3, F_RDLCK, 40, 20, 0), 0);
	CHECK_EQ(sheaf_lock_test(f, &l), 0);
	CHECK(l.type == F_RDLCK && l.start == 40 && l.length == 20 && l.owner == 3);
	CHECK_EQ(l.pid, getpid());
	CHECK_EQ(range_lock(f, 1, F_RDLCK, 0, 100, 0), 0); /* a downgrade, also over the gap */
	CHECK_EQ(range_lock(f, 2, F_RDLCK, 0, 100, 0), 0);
	CHECK_EQ(range_lock(f, 2, F_WRLCK, 0, 100, 0), -EAGAIN); /* the owner keeps its lock */
	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 1, 0), -EAGAIN);
	CHECK_EQ(range_lock(f, 1, 99, 0, 1, 0), -EINVAL);
	CHECK_EQ(range_lock(f, 1, F_RDLCK, 5, UINT64_MAX, 0), -EOVERFLOW);
	CHECK_EQ(sheaf_close(f), 0);
}

static void flocks_and_ranges_do_not_meet(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f = new_file(p, "x", 1), *g = open_file(fs, p, O_RDONLY);

	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 0, 0), 0);
	CHECK_EQ(sheaf_flock(f, LOCK_EX | LOCK_NB, 1), 0);
	CHECK_EQ(sheaf_flock(g, LOCK_SH | LOCK_NB, 2), -EAGAIN);
	CHECK_EQ(range_lock(g, 2, F_WRLCK, 0, 0, 0), -EBADF); /* not open for writing */
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 0, 0, 0), 0);
	CHECK_EQ(sheaf_flock(g, LOCK_SH | LOCK_NB, 2), -EAGAIN);
	CHECK_EQ(sheaf_flock(f, LOCK_SH, 1), 0); /* converts the lock */
	CHECK_EQ(sheaf_flock(g, LOCK_SH | LOCK_NB, 2), 0);
	CHECK_EQ(sheaf_flock(g, LOCK_EX | LOCK_NB, 2), -EAGAIN);
	CHECK_EQ(sheaf_flock(f, LOCK_EX | LOCK_NB, 1), -EAGAIN); /* both owners keep their locks */
	CHECK_EQ(sheaf_flock(f, LOCK_UN, 1), 0);
	CHECK_EQ(sheaf_flock(g, LOCK_EX, 2), 0); /* flock needs no write access */
	CHECK_EQ(sheaf_flock(g, 99, 2), -EINVAL);
	CHECK_EQ(sheaf_close(g), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void a_close_lets_go_of_its_own_locks_only(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f = new_file(p, "x", 1), *g = open_file(fs, p, O_RDWR);
	struct sheaf_file *watch = open_file(fs, p, O_RDONLY);

	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 10, 0), 0);
	CHECK_EQ(sheaf_flock(f, LOCK_EX, 1), 0);
	CHECK_EQ(range_lock(g, 2, F_RDLCK, 20, 10, 0), 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(conflicting_lock(watch, F_RDLCK), F_UNLCK);
	CHECK_EQ(conflicting_lock(watch, F_WRLCK), F_RDLCK);
	CHECK_EQ(sheaf_flock(watch, LOCK_EX | LOCK_NB, 9), 0);
	CHECK_EQ(sheaf_close(g), 0);
	CHECK_EQ(conflicting_lock(watch, F_WRLCK), F_UNLCK);
	CHECK_EQ(sheaf_close(watch), 0);
}

static void two_that_wait_for_each_other_hear_edeadlk(void)
{
	const char *dir = fresh_dir(fs); /* both files are on one server, which detects the cycle */
	struct sheaf_file *f = new_file(path_in(dir, "f"), "x", 1),
			  *g = new_file(path_in(dir, "g"), "x", 1);
	struct waiter w;

	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 1, 0), 0);
	CHECK_EQ(range_lock(g, 2, F_WRLCK, 0, 1, 0), 0);
	waiter_start(&w, g, 1, F_WRLCK, 0, 1);
	CHECK(WITHIN(PATIENCE_S, waits_shown(NULL) == 1));
	CHECK_EQ(range_lock(f, 2, F_RDLCK, 0, 1, 1), -EDEADLK);
	CHECK(!waiter_is_done(&w));
	CHECK_EQ(range_lock(g, 2, F_UNLCK, 0, 1, 0), 0);
	CHECK_EQ(waiter_join(&w), 0);
	CHECK_EQ(sheaf_close(g), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void the_line_is_first_come_first_served(void)
{
	struct sheaf_file *f = new_file(path_in(fresh_dir(fs), "f"), "x", 1);
	struct waiter writer, reader;

	CHECK_EQ(range_lock(f, 1, F_RDLCK, 0, 10, 0), 0);
	waiter_start(&writer, f, 2, F_WRLCK, 0, 10);
	CHECK(WITHIN(PATIENCE_S, waits_shown(NULL) == 1));
	waiter_start(&reader, f, 3, F_RDLCK, 5, 1); /* compatible, but behind the writer */
	CHECK(WITHIN(PATIENCE_S, waits_shown(NULL) == 2));
	CHECK_EQ(range_lock(f, 1, F_RDLCK, 10, 5, 1), 0); /* no other wait for this range */
	CHECK(!waiter_is_done(&reader) && !waiter_is_done(&writer));
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 0, 10, 0), 0);
	CHECK_EQ(waiter_join(&writer), 0);
	CHECK(!waiter_is_done(&reader));
	CHECK_EQ(range_lock(f, 2, F_UNLCK, 0, 10, 0), 0);
	CHECK_EQ(waiter_join(&reader), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void a_wait_can_be_given_up(void)
{
	struct sheaf_file *f = new_file(path_in(fresh_dir(fs), "f"), "x", 1);
	struct waiter w;
	double t;

	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 1, 0), 0);
	waiter_start(&w, f, 2, F_WRLCK, 0, 1);
	CHECK(WITHIN(PATIENCE_S, waits_shown(NULL) == 1));
	sheaf_lock_cancel(fs, 3); /* another owner */
	pause_ms(50);
	CHECK(!waiter_is_done(&w));
	t = now_s();
	sheaf_lock_cancel(fs, 2);
	CHECK_EQ(waiter_join(&w), -EINTR);
	CHECK(now_s() - t < 20);
	CHECK_EQ(waits_shown(NULL), 0);
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 0, 1, 0), 0);
	CHECK_EQ(conflicting_lock(f, F_WRLCK),
		 F_UNLCK); /* the cancelled wait did not get the lock */
	CHECK_EQ(sheaf_close(f), 0);
}

/* More waits than a session has slots: other calls still succeed, and each wait ends with the
 * lock. */
static void many_waits_leave_room_for_everything_else(void)
{
	enum { N = 100 };
	const char *dir = fresh_dir(fs);
	struct sheaf_file *f = new_file(path_in(dir, "f"), "x", 1);
	struct waiter *w = calloc(N, sizeof(*w));
	struct stat st;
	double t;

	CHECK(w);
	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 0, 0), 0);
	for (int i = 0; i < N; i++)
		waiter_start(&w[i], f, 100 + (uint64_t)i, F_WRLCK, (uint64_t)i, 1);
	CHECK(WITHIN(PATIENCE_S, waits_shown(NULL) == N));
	t = now_s();
	for (int i = 0; i < 50; i++) {
		CHECK_EQ(sheaf_stat(fs, path_in(dir, "f"), &st), 0);
		CHECK_EQ(first_byte(f), 'x');
	}
	CHECK(now_s() - t < 20);
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 0, 0, 0), 0);
	for (int i = 0; i < N; i++)
		CHECK_EQ(waiter_join(&w[i]), 0);
	CHECK_EQ(waits_shown(NULL), 0);
	CHECK_EQ(sheaf_close(f), 0);
	free(w);
}

static void requests_shows_waiting_owners(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f = new_file(p, "x", 1);
	char who[32];
	pid_t pid;

	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 1, 0), 0);
	pid = child_start("keep", c.conf, p, NULL);
	snprintf(who, sizeof(who), ":%d", (int)pid);
	CHECK(WITHIN(PATIENCE_S, waits_shown(who) == 1));
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 0, 1, 0), 0);
	CHECK(WITHIN(PATIENCE_S, first_byte(f) == 'h'));
	CHECK_EQ(sheaf_pwrite(f, "e", 1, 0), 1);
	CHECK_EQ(process_wait(pid), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void a_killed_holder_is_followed_by_the_next(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f = new_file(p, "x", 1);
	pid_t a, b;
	double t;

	a = child_start("keep", c.conf, p, NULL);
	CHECK(WITHIN(PATIENCE_S, first_byte(f) == 'h'));
	b = child_start("keep", c.conf, p, NULL);
	CHECK(WITHIN(PATIENCE_S, waits_shown(NULL) == 1));
	CHECK_EQ(kill(a, SIGKILL), 0);
	process_wait(a);
	CHECK_EQ(sheaf_pwrite(f, "o", 1, 0), 1);
	t = now_s();
	CHECK(WITHIN(PATIENCE_S, first_byte(f) == 'h')); /* the second process has the lock */
	CHECK(now_s() - t > LEASE / 3); /* it renewed its lease some time before it died */
	CHECK_EQ(sheaf_pwrite(f, "e", 1, 0), 1);
	CHECK_EQ(process_wait(b), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

/* A holder that was stopped for longer than its lease continues in the middle of its writes: none
 * of them changes the file. */
static void a_holder_that_lost_its_lease_cannot_write_any_more(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f = new_file(p, "x", 1);
	pid_t pid = child_start("scribble", c.conf, p, NULL);

	CHECK(WITHIN(PATIENCE_S, first_byte(f) == 's'));
	CHECK_EQ(kill(pid, SIGSTOP), 0);
	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 0, 1), 0); /* after its lease and a fence */
	CHECK_EQ(sheaf_pwrite(f, "mine", 4, 0), 4);
	CHECK_EQ(kill(pid, SIGCONT), 0);
	CHECK_EQ(process_wait(pid), 0); /* it got the error */
	CHECK_EQ(first_byte(f), 'm');
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 0, 0, 0), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void locks_survive_a_restart_of_the_server(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f = new_file(p, "x", 1), *g;
	struct sheaf *other = client_connect(c.conf);
	struct waiter w;

	g = open_file(other, p, O_RDWR);
	CHECK_EQ(sheaf_fsync(f), 0);
	for (uint64_t i = 0; i < 1500; i++) /* claims for more than one message */
		CHECK_EQ(range_lock(f, 1, i % 2 ? F_WRLCK : F_RDLCK, i, 1, 0), 0);
	CHECK_EQ(sheaf_flock(g, LOCK_SH, 5), 0);
	waiter_start(&w, g, 2, F_WRLCK, 10, 1);
	CHECK(WITHIN(PATIENCE_S, waits_shown(NULL) == 1));
	restart_home(f);
	CHECK_EQ(range_lock(g, 2, F_RDLCK, 1499, 1, 0), -EAGAIN);
	CHECK_EQ(range_lock(g, 2, F_RDLCK, 1498, 1, 0), 0);
	CHECK_EQ(sheaf_flock(f, LOCK_EX | LOCK_NB, 6), -EAGAIN);
	CHECK(!waiter_is_done(&w));
	server_down(&c, home_of(f)); /* a clean restart during a wait */
	CHECK_EQ(server_up(&c, home_of(f)), 0);
	CHECK_EQ(sheaf_pwrite(f, "y", 1, 0), 1); /* the locks are not lost */
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 0, 0, 0), 0);
	CHECK_EQ(waiter_join(&w), 0);
	CHECK_EQ(sheaf_close(g), 0);
	sheaf_disconnect(other);
	CHECK_EQ(sheaf_close(f), 0);
}

/* Two opens of a file with one lock owner: both see and change the owner's locks, before and after
 * a restart. */
static void two_opens_share_the_locks_of_their_owner(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f = new_file(p, "x", 1), *g = open_file(fs, p, O_RDWR), *watch;
	struct sheaf *other = client_connect(c.conf);

	watch = open_file(other, p, O_RDWR);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 100, 0), 0);
	CHECK_EQ(sheaf_flock(f, LOCK_EX, 1), 0);
	CHECK_EQ(range_lock(g, 1, F_UNLCK, 0, 0, 0), 0); /* releases a lock taken through f */
	CHECK_EQ(sheaf_flock(g, LOCK_UN, 1), 0);
	restart_home(f);
	CHECK_EQ(conflicting_lock(watch, F_WRLCK),
		 F_UNLCK); /* no open claims it after the restart */
	CHECK_EQ(sheaf_flock(watch, LOCK_EX | LOCK_NB, 9), 0);

	CHECK_EQ(range_lock(g, 1, F_WRLCK, 0, 100, 0), 0);
	/* another type in the middle of the range */
	CHECK_EQ(range_lock(f, 1, F_RDLCK, 40, 20, 0), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(range_lock(watch, 2, F_RDLCK, 39, 1, 0), -EAGAIN);
		CHECK_EQ(range_lock(watch, 2, F_RDLCK, 40, 20, 0), 0);
		CHECK_EQ(range_lock(watch, 2, F_RDLCK, 60, 1, 0), -EAGAIN);
		CHECK_EQ(range_lock(watch, 2, F_UNLCK, 0, 0, 0), 0);
		if (!i)
			restart_home(f);
	}
	/* releases the locks that were last taken through g */
	CHECK_EQ(sheaf_close(g), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(range_lock(watch, 2, F_WRLCK, 0, 40, 0), 0);
		CHECK_EQ(range_lock(watch, 2, F_WRLCK, 59, 1, 0), -EAGAIN);
		CHECK_EQ(range_lock(watch, 2, F_UNLCK, 0, 0, 0), 0);
		if (!i)
			restart_home(f);
	}
	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 0, 0), 0);
	CHECK_EQ(sheaf_pwrite(f, "y", 1, 0), 1); /* no lock was lost */
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(conflicting_lock(watch, F_WRLCK), F_UNLCK);
	CHECK_EQ(sheaf_close(watch), 0);
	sheaf_disconnect(other);
}

/* A disconnect releases locks at once, without waiting for the lease. */
static void a_disconnect_lets_go_at_once(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f = new_file(p, "x", 1), *g;
	struct sheaf *other = client_connect(c.conf);
	struct waiter w;
	double t;

	g = open_file(other, p, O_RDONLY);
	CHECK_EQ(range_lock(g, 1, F_RDLCK, 0, 1, 0), 0);
	waiter_start(&w, f, 2, F_WRLCK, 0, 1);
	CHECK(WITHIN(PATIENCE_S, waits_shown(NULL) == 1));
	t = now_s();
	sheaf_disconnect(other); /* without closing g */
	CHECK_EQ(waiter_join(&w), 0);
	free(g); /* disconnected: sheaf_close() will not free it */
	CHECK(now_s() - t < LEASE - 2);
	CHECK_EQ(sheaf_close(f), 0);
}

static void too_many_are_enolck(void)
{
	struct sheaf_file *f = new_file(path_in(fresh_dir(fs), "f"), "x", 1);
	uint64_t i = 0;
	int r = 0;

	while (!r && i < 20000) {
		r = range_lock(f, 1, F_RDLCK, 2 * i, 1, 0);
		i++;
	}
	CHECK_EQ(r, -ENOLCK);
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 0, 0, 0), 0);
	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 0, 0), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void locks_work_inside_one_process(void)
{
	char dir[CLUSTER_PATH], conf[CLUSTER_PATH + 16];
	struct sheaf_file *f;
	struct waiter w;
	struct sheaf *mine;

	temp_dir(dir, sizeof(dir));
	snprintf(conf, sizeof(conf), "local:%s/fs", dir);
	mine = client_connect(conf);
	f = open_file(mine, "/f", O_CREAT | O_RDWR);
	CHECK_EQ(range_lock(f, 1, F_WRLCK, 0, 0, 0), 0);
	waiter_start(&w, f, 2, F_RDLCK, 0, 1);
	pause_ms(100);
	CHECK(!waiter_is_done(&w));
	CHECK_EQ(range_lock(f, 1, F_UNLCK, 0, 0, 0), 0);
	CHECK_EQ(waiter_join(&w), 0);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(mine);
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

SYS_MAIN(child, begin, end, TEST(four_processes_count_exactly_under_a_range_lock),
	 TEST(four_processes_count_exactly_under_a_flock), TEST(ranges_split_merge_and_exclude),
	 TEST(flocks_and_ranges_do_not_meet), TEST(a_close_lets_go_of_its_own_locks_only),
	 TEST(two_that_wait_for_each_other_hear_edeadlk), TEST(the_line_is_first_come_first_served),
	 TEST(a_wait_can_be_given_up), TEST(many_waits_leave_room_for_everything_else),
	 TEST(requests_shows_waiting_owners), TEST(a_killed_holder_is_followed_by_the_next),
	 TEST(a_holder_that_lost_its_lease_cannot_write_any_more),
	 TEST(locks_survive_a_restart_of_the_server),
	 TEST(two_opens_share_the_locks_of_their_owner),
	 TEST(counting_goes_on_over_kills_of_the_server), TEST(a_disconnect_lets_go_at_once),
	 TEST(too_many_are_enolck), TEST(locks_work_inside_one_process))
