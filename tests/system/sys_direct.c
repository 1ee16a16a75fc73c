/* Direct reads: a client on the servers' host reads what is in the page cache without a
 * message. A client that was stopped reads nothing from a file whose lock it has lost. */
#include <dirent.h>

#include "cluster.h"
#include "sheaf_admin.h"

static struct cluster c;
static struct sheaf *fs, *direct;

/* Bytes exchanged between this client and all servers. */
static uint64_t asked(struct sheaf *who)
{
	struct sheaf_account a;
	uint64_t sum = 0;

	for (int i = 0; i < c.n; i++) {
		CHECK_EQ(sheaf_account(who, i, &a), 0);
		for (int m = 0; m < SHEAF_MOVERS; m++)
			sum += a.bytes[m];
	}
	return sum;
}

#define BYTES (3 * 1024 * 1024 + 777)

static void what_is_in_memory_is_read_directly(void)
{
	struct sheaf_file *f;
	uint8_t *b = malloc(BYTES);
	uint64_t seed = 7, before;

	CHECK(b);
	make_file(fs, "/there", BYTES, 1);
	f = open_file(direct, "/there", O_RDONLY);
	/* from here on the names are in the dentry cache */
	CHECK_EQ(sheaf_pread(f, b, BYTES, 0), BYTES);
	before = asked(direct);
	for (int i = 0; i < 1000; i++) {
		size_t off = test_random(&seed) % BYTES,
		       n = test_random(&seed) % (i % 2 ? 5000 : BYTES);

		n = n < BYTES - off ? n + 1 : BYTES - off;
		CHECK_EQ(sheaf_pread(f, b, n, (off_t)off), (ssize_t)n);
		CHECK(is_pattern(b, n, 1, off));
	}
	CHECK_EQ(asked(direct), before);
	/* only the servers know where the file ends */
	CHECK_EQ(sheaf_pread(f, b, 1000, BYTES - 10), 10);
	CHECK(asked(direct) > before);
	CHECK_EQ(sheaf_close(f), 0);
	f = open_file(direct, "/there", O_WRONLY);
	CHECK_EQ(sheaf_pread(f, b, 1000, 0), -EBADF);
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

#define MODEL (600 * 1024)

/* Another client changes the file in every way; the next read sees each change. */
static void each_change_is_seen_by_the_next_read(void)
{
	struct sheaf_file *w = open_file(fs, "/changes", O_CREAT | O_RDWR), *r;
	uint8_t *model = calloc(1, 2 * MODEL), *b = malloc(2 * MODEL);
	size_t size = 0;
	uint64_t seed = 11;

	CHECK(model && b);
	r = open_file(direct, "/changes", O_RDONLY);
	for (int i = 0; i < (SANITIZED ? 300 : 3000); i++) {
		size_t off = test_random(&seed) % MODEL, n = 1 + test_random(&seed) % (MODEL / 4),
		       at, m;

		switch (test_random(&seed) % 8) {
		case 0:
			CHECK_EQ(sheaf_ftruncate(w, (off_t)off), 0);
			memset(model + off, 0, 2 * MODEL - off);
			size = off;
			break;
		case 1:
			n = off < size ? (n < size - off ? n : size - off) : 0;
			if (n)
				CHECK_EQ(sheaf_fallocate(w,
							 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
							 (off_t)off, (off_t)n),
					 0);
			memset(model + off, 0, n);
			break;
		default:
			fill_pattern(model + off, n, (uint64_t)i, off);
			CHECK_EQ(sheaf_pwrite(w, model + off, n, (off_t)off), (ssize_t)n);
			size = off + n > size ? off + n : size;
		}
		at = test_random(&seed) % MODEL;
		m = test_random(&seed) % MODEL;
		n = at < size ? (m < size - at ? m : size - at) : 0;
		CHECK_EQ(sheaf_pread(r, b, m, (off_t)at), (ssize_t)n);
		CHECK(memcmp(b, model + at, n) == 0);
	}
	CHECK_EQ(sheaf_close(r), 0);
	CHECK_EQ(sheaf_close(w), 0);
	free(model);
	free(b);
}

/* Counts the descriptors of object files that this process has open. */
static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	char link[300], to[600];
	int n = 0;

	CHECK(d);
	while ((e = readdir(d))) {
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/self/fd/%s", e->d_name);
		len = readlink(link, to, sizeof(to) - 1);
		to[len > 0 ? len : 0] = 0;
		n += strstr(to, "/objects/") != NULL;
	}
	closedir(d);
	return n;
}

#define FILES 400

static void descriptors_are_few_and_go_with_the_file_or_the_server(void)
{
	struct sheaf_file *f[FILES];
	char path[32], b[100];

	CHECK_EQ(descriptors(), 0);
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "/few%d", i);
		make_file(fs, path, 100, (uint64_t)i);
		f[i] = open_file(direct, path, O_RDONLY);
	}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < FILES; i++) {
			CHECK_EQ(sheaf_pread(f[i], b, 100, 0), 100);
			CHECK(is_pattern(b, 100, (uint64_t)i, 0));
		}
	CHECK(descriptors() > 100 && descriptors() <= 256);
	for (int i = 0; i < FILES / 2; i++)
		CHECK_EQ(sheaf_close(f[i]), 0);
	CHECK(descriptors() <= FILES / 2);
	for (int i = 0; i < c.n; i++)
		server_kill(&c, i);
	CHECK(WITHIN(PATIENCE_S, (sheaf_ping(direct, 0), descriptors() == 0)));
	cluster_start(&c);
	for (int i = FILES / 2; i < FILES; i++) {
		for (int k = 0; k < 2; k++)
			CHECK_EQ(sheaf_pread(f[i], b, 100, 0), 100);
		CHECK(is_pattern(b, 100, (uint64_t)i, 0));
	}
	CHECK(descriptors() > 100);
	for (int i = FILES / 2; i < FILES; i++)
		CHECK_EQ(sheaf_close(f[i]), 0);
	CHECK_EQ(descriptors(), 0);
}

static void the_environment_switches_direct_reads(void)
{
	struct sheaf *other = NULL;
	struct sheaf_file *f;
	char b[100];

	make_file(fs, "/switch", 100, 1);
	setenv("SHEAF_DIRECT", "maybe", 1);
	CHECK_EQ(sheaf_connect(c.conf, &other), -EINVAL);
	CHECK(strstr(sheaf_why(), "$SHEAF_DIRECT is 'maybe'"));
	for (int on = 0; on < 2; on++) {
		setenv("SHEAF_DIRECT", on ? "on" : "off", 1);
		other = client_connect(c.conf);
		f = open_file(other, "/switch", O_RDONLY);
		for (int i = 0; i < 2; i++)
			CHECK_EQ(sheaf_pread(f, b, 100, 0), 100);
		CHECK_EQ(descriptors(), on);
		CHECK_EQ(sheaf_close(f), 0);
		sheaf_disconnect(other);
	}
	unsetenv("SHEAF_DIRECT");
}

#define LOCKED (256 * 1024)

static struct sheaf_lock whole(unsigned type)
{
	return (struct sheaf_lock){ .size = sizeof(struct sheaf_lock), .type = type, .owner = 1 };
}

/* CONF: takes the lock, is stopped, and then reads the file. */
static int stopped_owner(const char *conf)
{
	struct sheaf *mine = direct_client(conf);
	struct sheaf_file *f = open_file(mine, "/locked", O_RDWR);
	struct sheaf_lock l = whole(F_WRLCK);
	char *b = malloc(LOCKED);

	CHECK(b);
	CHECK_EQ(sheaf_lock(f, &l, 1), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(sheaf_pread(f, b, LOCKED, 0), LOCKED);
	CHECK_EQ(b[0], 'A');
	raise(SIGSTOP);
	CHECK_EQ(sheaf_pread(f, b, LOCKED, 0), -EIO);
	sheaf_close(f);
	sheaf_disconnect(mine);
	free(b);
	return 0;
}

static void a_stopped_client_that_lost_its_lock_sees_no_write_of_the_next_owner(void)
{
	struct sheaf_file *f = open_file(fs, "/locked", O_CREAT | O_RDWR);
	struct sheaf_lock l = whole(F_WRLCK);
	char *b = malloc(LOCKED);
	pid_t pid;

	CHECK(b);
	memset(b, 'A', LOCKED);
	CHECK_EQ(sheaf_pwrite(f, b, LOCKED, 0), LOCKED);
	pid = child_start("stopped", c.conf, NULL);
	process_await_stop(pid);
	CHECK_EQ(sheaf_lock(f, &l, 1), 0); /* when the child's lease has ended */
	memset(b, 'B', LOCKED);
	CHECK_EQ(sheaf_pwrite(f, b, LOCKED, 0), LOCKED);
	CHECK_EQ(kill(pid, SIGCONT), 0);
	CHECK_EQ(process_wait(pid), 0);
	free(b);
	CHECK_EQ(sheaf_close(f), 0);
}

static int child(const char *name, char **arg)
{
	(void)name;
	return stopped_owner(arg[0]);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .servers = 3, .timeout = 10 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	direct = direct_client(c.conf);
}

static void end(void)
{
	sheaf_disconnect(direct);
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(child, begin, end, TEST(what_is_in_memory_is_read_directly),
	 TEST(each_change_is_seen_by_the_next_read),
	 TEST(descriptors_are_few_and_go_with_the_file_or_the_server),
	 TEST(the_environment_switches_direct_reads),
	 TEST(a_stopped_client_that_lost_its_lock_sees_no_write_of_the_next_owner))
