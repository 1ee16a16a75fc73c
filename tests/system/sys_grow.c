/* A file system gets one more server while clients use it, loses one, and gets its metadata
 * restored. */
#include <json-c/json.h>

#include "cluster.h"

static struct cluster c;

/* Runs the sheaf command with this cluster; returns its exit status, and its output in `out`. */
static char out[65536];

static int sheaf(const char *a, const char *b, const char *d, const char *e)
{
	char exe[CLUSTER_PATH];
	const char *argv[] = { exe, "--conf", c.conf, a, b, d, e, NULL };
	char path[CLUSTER_PATH + 16];
	int keep, fd, r;
	ssize_t n;

	snprintf(exe, sizeof(exe), "%s/bin/sheaf", getenv("SHEAF_BUILD"));
	snprintf(path, sizeof(path), "%s/out", c.dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	fflush(stdout);
	keep = dup(STDOUT_FILENO);
	dup2(fd, STDOUT_FILENO);
	r = process_wait(process_start(argv, -1));
	dup2(keep, STDOUT_FILENO);
	close(keep);
	n = pread(fd, out, sizeof(out) - 1, 0);
	CHECK(n >= 0);
	out[n] = 0;
	close(fd);
	return r;
}

static void begin(uint32_t servers)
{
	const struct cluster_opts o = { .servers = servers, .timeout = 5 };

	cluster_create(&c, &o);
	cluster_start(&c);
}

static void end(void)
{
	cluster_stop(&c);
}

/* Adds server n: the command writes the cluster file and the storage, the test starts the server,
 * the command completes. */
static void grow(void)
{
	char name[16];

	snprintf(name, sizeof(name), "server%d", c.n);
	CHECK_EQ(sheaf("add-server", name, "--no-start", NULL), 1); /* it does not run yet */
	CHECK_EQ(server_up(&c, c.n++), 0);
	CHECK_EQ(sheaf("add-server", name, "--no-start", NULL), 0);
}

static bool is_on(struct sheaf *fs, const char *path, uint32_t id)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };

	CHECK_EQ(sheaf_get_layout(fs, path, &l), 0);
	for (uint32_t i = 0; i < l.width; i++)
		if (l.servers[i] == id)
			return true;
	return false;
}

static void running_clients_use_a_new_server(void)
{
	struct sheaf *old, *new;
	struct sheaf_file *f;
	uint8_t buf[300000];

	begin(2);
	old = client_connect(c.conf);
	make_file(old, "/before", sizeof(buf), 1);
	f = open_file(old, "/open", O_CREAT | O_RDWR);
	grow();
	CHECK_EQ(sheaf_server_count(old), 2);
	/* the client learns of the new server with its next request */
	make_file(old, "/after", sizeof(buf), 2);
	CHECK_EQ(sheaf_server_count(old), 3);
	CHECK(is_on(old, "/after", 2));
	CHECK(!is_on(old, "/before", 2) && !is_on(old, "/open", 2));
	fill_pattern(buf, sizeof(buf), 3, 0);
	CHECK_EQ(sheaf_pwrite(f, buf, sizeof(buf), 0), (ssize_t)sizeof(buf));
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	new = client_connect(c.conf);
	CHECK_EQ(sheaf_server_count(new), 3);
	check_file(new, "/before", sizeof(buf), 1);
	check_file(new, "/after", sizeof(buf), 2);
	check_file(old, "/open", sizeof(buf), 3);
	sheaf_disconnect(old);
	sheaf_disconnect(new);
	end();
}

/* A client that was idle meanwhile finds the new server in the layout of another client's file. */
static void an_idle_client_learns_from_a_file(void)
{
	struct sheaf *idle, *busy;
	struct stat st;
	struct sheaf_file *f;

	begin(2);
	idle = client_connect(c.conf);
	CHECK_EQ(sheaf_stat(idle, "/", &st), 0);
	grow();
	busy = client_connect(c.conf);
	make_file(busy, "/new", 300000, 4);
	/* unsettled: a stat asks all its objects for the size */
	f = open_file(busy, "/growing", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_pwrite(f, "x", 1, 200000), 1);
	CHECK_EQ(sheaf_stat(idle, "/growing", &st), 0);
	CHECK_EQ(st.st_size, 200001);
	check_file(idle, "/new", 300000, 4);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(idle);
	sheaf_disconnect(busy);
	end();
}

/* The client's cluster file does not have the new server. */
static void a_client_with_the_older_file_learns_at_once(void)
{
	char older[CLUSTER_PATH], newer[CLUSTER_PATH];
	char *text;
	struct sheaf *fs;

	begin(2);
	text = read_text(c.conf);
	snprintf(older, sizeof(older), "%s/older.conf", c.dir);
	write_text(older, text);
	free(text);
	grow();
	fs = client_connect(older);
	make_file(fs, "/f", 300000, 5);
	check_file(fs, "/f", 300000, 5);
	CHECK(is_on(fs, "/f", 2));
	memcpy(newer, c.conf, sizeof(newer));
	memcpy(c.conf, older, sizeof(older));
	/* check knows the new server from the map: no layout names an unknown server */
	CHECK_EQ(sheaf("check", "--repair", NULL, NULL), 0);
	memcpy(c.conf, newer, sizeof(newer));
	CHECK(strstr(out, "on 3 servers: nothing is wrong"));
	check_file(fs, "/f", 300000, 5);
	sheaf_disconnect(fs);
	end();
}

/* A metadata server that restarts with the older cluster file has the new server from its stored
 * map. */
static void a_restart_with_the_older_file_forgets_nothing(void)
{
	char *text;
	struct sheaf *fs;

	begin(2);
	text = read_text(c.conf);
	grow();
	fs = client_connect(c.conf);
	make_file(fs, "/f", 300000, 6);
	server_kill(&c, 0);
	write_text(c.conf, text);
	CHECK_EQ(server_up(&c, 0), 0);
	make_file(fs, "/g", 300000, 7);
	CHECK(is_on(fs, "/g", 2));
	check_file(fs, "/f", 300000, 6);
	CHECK_EQ(sheaf_unlink(fs, "/f"), 0); /* fences and removals reach the new server */
	sheaf_disconnect(fs);
	fs = client_connect(c.conf); /* older cluster file, newer map */
	check_file(fs, "/g", 300000, 7);
	sheaf_disconnect(fs);
	/* the command adds the missing server to the file */
	CHECK_EQ(sheaf("add-server", "server3", "--no-start", NULL), 1);
	CHECK_EQ(server_up(&c, c.n++), 0);
	CHECK_EQ(sheaf("add-server", "server3", NULL, NULL), 0);
	free(text);
	text = read_text(c.conf);
	CHECK(strstr(text, "[server.2]") && strstr(text, "[server.3]"));
	free(text);
	end();
}

/* Creates a file of one stripe on this server. */
static struct sheaf_file *file_on(struct sheaf *fs, uint32_t id)
{
	struct sheaf_layout one = { sizeof(one), 65536, 1 };
	struct sheaf_file *f;
	char path[32];

	for (int i = 0; i < 200; i++) {
		snprintf(path, sizeof(path), "/on%u-%d", id, i);
		CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_RDWR, 0644, &one, &f), 0);
		if (is_on(fs, path, id))
			return f;
		CHECK_EQ(sheaf_close(f), 0);
	}
	CHECK(!"none on it");
	return NULL;
}

/* Data servers keep no map: one that must fetch from a server added later asks for the map. */
static void data_servers_learn_of_each_other(void)
{
	struct sheaf_file *from, *to;
	struct sheaf *fs;
	uint8_t buf[50000];

	begin(2);
	grow();
	grow();
	fs = client_connect(c.conf);
	from = file_on(fs, 3);
	to = file_on(fs, 2);
	fill_pattern(buf, sizeof(buf), 9, 0);
	CHECK_EQ(sheaf_pwrite(from, buf, sizeof(buf), 0), (ssize_t)sizeof(buf));
	CHECK_EQ(sheaf_copy_range(from, 0, to, 0, sizeof(buf)), (ssize_t)sizeof(buf));
	memset(buf, 0, sizeof(buf));
	CHECK_EQ(sheaf_pread(to, buf, sizeof(buf), 0), (ssize_t)sizeof(buf));
	CHECK(is_pattern(buf, sizeof(buf), 9, 0));
	CHECK_EQ(sheaf_close(from), 0);
	CHECK_EQ(sheaf_close(to), 0);
	sheaf_disconnect(fs);
	end();
}

static void a_new_server_that_is_not_there_is_not_published(void)
{
	struct sheaf *fs;

	begin(2);
	CHECK_EQ(sheaf("add-server", "server2", "--no-start", NULL), 1);
	fs = client_connect(c.conf);
	make_file(fs, "/f", 300000, 8);
	CHECK(!is_on(fs, "/f", 2));
	sheaf_disconnect(fs);
	server_kill(&c, 1); /* a metadata server that is down and cannot be told */
	CHECK_EQ(sheaf("add-server", "server2", "--no-start", NULL), 1);
	CHECK_EQ(server_up(&c, 1), 0);
	CHECK_EQ(server_up(&c, c.n++), 0);
	CHECK_EQ(sheaf("add-server", "server2", NULL, NULL), 0);
	end();
}

static int count_found(const char *key)
{
	struct json_object *o = json_tokener_parse(out), *files;
	int n = -1;

	if (o && json_object_object_get_ex(o, key, &files))
		n = (int)json_object_array_length(files);
	json_object_put(o);
	return n;
}

static void files_on_a_dead_server_are_found(void)
{
	struct sheaf_layout one = { sizeof(one), 65536, 1 };
	struct sheaf_file *f;
	struct sheaf *fs;
	int here = 0;

	begin(2);
	grow();
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_mkdir(fs, "/d", 0755), 0);
	for (int i = 0; i < 30; i++) {
		char path[32];

		snprintf(path, sizeof(path), i % 2 ? "/d/f%d" : "/f%d", i);
		CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_RDWR, 0644, &one, &f), 0);
		CHECK_EQ(sheaf_pwrite(f, "x", 1, 0), 1);
		CHECK_EQ(sheaf_close(f), 0);
		here += is_on(fs, path, 2);
	}
	CHECK(here > 0 && here < 30);
	CHECK_EQ(sheaf_open(fs, "/empty", O_CREAT | O_RDWR, 0644, NULL, &f), 0);
	CHECK_EQ(sheaf_close(f), 0); /* no data on any server */
	f = open_file(fs, "/growing", O_CREAT | O_RDWR); /* may have data */
	server_kill(&c, 2);
	CHECK_EQ(sheaf("find", "--on", "server2", "--json"), 0);
	CHECK_EQ(count_found("files"), here + 1);
	CHECK_EQ(sheaf("find", "--on", "nobody", "--json"), 1);
	CHECK_EQ(server_up(&c, 2), 0);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
	end();
}

/* A server that keeps metadata and data: the command counts what it hides, finds the rest, and does
 * not wait long. */
static void a_dead_metadata_server_hides_only_what_it_keeps(void)
{
	struct sheaf *fs;
	double began;
	int hidden = 0;

	begin(2);
	fs = client_connect(c.conf);
	for (int i = 0; i < 12; i++) {
		char path[32];
		struct stat st;

		snprintf(path, sizeof(path), "/d%d", i);
		CHECK_EQ(sheaf_mkdir(fs, path, 0755), 0);
		CHECK_EQ(sheaf_stat(fs, path, &st), 0);
		hidden += sheaf_keeper(fs, st.st_ino) == 1;
		snprintf(path, sizeof(path), "/d%d/f", i);
		make_file(fs, path, 300000, 1);
	}
	sheaf_disconnect(fs);
	server_kill(&c, 1);
	began = now_s();
	CHECK_EQ(sheaf("find", "--on", "server1", "--json"), hidden ? 1 : 0);
	CHECK_EQ(count_found("files"), 12 - hidden);
	CHECK(now_s() - began < PATIENCE_S); /* not one timeout for each file */
	CHECK_EQ(server_up(&c, 1), 0);
	end();
}

/* ---- backup and restore ---- */

static char backup[CLUSTER_PATH];

static void restore(void)
{
	cluster_stop(&c);
	CHECK_EQ(sheaf("restore", backup, NULL, NULL), 1); /* refused: the metadata are newer */
	CHECK_EQ(sheaf("restore", backup, "--force", NULL), 0);
	CHECK_EQ(sheaf("restore", backup, NULL, NULL), 0); /* not newer any more */
	cluster_start(&c);
}

static bool is_settled(struct sheaf *fs, const char *path)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };

	CHECK_EQ(sheaf_get_layout(fs, path, &l), 0);
	return !l.growing;
}

static void a_backup_of_servers_at_work_comes_back(void)
{
	struct sheaf *fs;
	struct stat st;
	struct sheaf_file *f;
	char buf[16];
	ino_t last;

	begin(2);
	snprintf(backup, sizeof(backup), "%s/backup", c.dir);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_mkdir(fs, "/d", 0755), 0);
	make_file(fs, "/d/same", 300000, 1);
	make_file(fs, "/longer", 100000, 2);
	make_file(fs, "/shorter", 300000, 3);
	make_file(fs, "/removed", 300000, 4);
	f = open_file(fs, "/written", O_CREAT | O_RDWR); /* open for writing during the backup */
	CHECK_EQ(sheaf_pwrite(f, "begin", 5, 0), 5);
	CHECK_EQ(sheaf("backup", backup, "--json", NULL), 0);
	CHECK_EQ(sheaf("backup", backup, NULL, NULL), 1); /* a backup is never overwritten */
	CHECK_EQ(sheaf_pwrite(f, "more", 4, 5), 4);
	CHECK_EQ(sheaf_close(f), 0);
	make_file(fs, "/longer", 300000, 2);
	CHECK_EQ(sheaf_truncate(fs, "/shorter", 1000), 0);
	CHECK_EQ(sheaf_truncate(fs, "/shorter", 900), 0);
	CHECK_EQ(sheaf_unlink(fs, "/removed"), 0);
	make_file(fs, "/since", 300000, 5);
	CHECK_EQ(sheaf_stat(fs, "/since", &st), 0);
	last = st.st_ino;
	sheaf_disconnect(fs);
	CHECK_EQ(sheaf("restore", backup, "--force", NULL), 1); /* refused: the servers run */
	restore();
	fs = client_connect(c.conf);
	check_file(fs, "/d/same", 300000, 1);
	check_file(fs, "/longer", 300000, 2); /* the size comes from the objects */
	CHECK_EQ(sheaf_stat(fs, "/since", &st), -ENOENT);
	CHECK_EQ(sheaf_stat(fs, "/shorter", &st), 0);
	CHECK_EQ(st.st_size, 300000); /* data truncated since read as zeros */
	CHECK_EQ(sheaf_stat(fs, "/removed", &st), 0);
	CHECK_EQ(st.st_size, 300000);
	f = open_file(fs, "/written", O_RDONLY);
	CHECK_EQ(sheaf_pread(f, buf, sizeof(buf), 0), 9);
	CHECK_EQ(memcmp(buf, "beginmore", 9), 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK(WITHIN(PATIENCE_S, is_settled(fs, "/longer") && is_settled(fs, "/removed")));
	/* files can be written, truncated, removed and created */
	make_file(fs, "/removed", 200000, 6);
	check_file(fs, "/removed", 200000, 6);
	make_file(fs, "/shorter", 400000, 7);
	check_file(fs, "/shorter", 400000, 7);
	CHECK_EQ(sheaf_unlink(fs, "/longer"), 0);
	make_file(fs, "/since", 100, 8);
	CHECK_EQ(sheaf_stat(fs, "/since", &st), 0);
	CHECK(st.st_ino > last);
	check_file(fs, "/since", 100, 8);
	sheaf_disconnect(fs);
	end();
}

/* A client that stayed connected with a file open. */
static void clients_go_on_after_a_restore(void)
{
	struct sheaf_file *f, *g;
	struct sheaf *fs;
	char buf[16];

	begin(2);
	snprintf(backup, sizeof(backup), "%s/backup", c.dir);
	fs = client_connect(c.conf);
	f = open_file(fs, "/f", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_pwrite(f, "one", 3, 0), 3);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf("backup", backup, NULL, NULL), 0);
	g = open_file(fs, "/g", O_CREAT | O_RDWR); /* created after the backup */
	CHECK_EQ(sheaf_ftruncate(f, 1), 0);
	CHECK_EQ(sheaf_ftruncate(f, 2), 0);
	restore();
	/* the server refuses the old capability; the client gets a new one */
	CHECK_EQ(sheaf_pwrite(f, "two", 3, 0), 3);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	f = open_file(fs, "/f", O_RDONLY);
	CHECK_EQ(sheaf_pread(f, buf, sizeof(buf), 0), 3);
	CHECK_EQ(memcmp(buf, "two", 3), 0);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_close(g); /* any result: its file is gone */
	sheaf_disconnect(fs);
	end();
}

static void a_lost_disk_gets_its_metadata_back(void)
{
	char dir[CLUSTER_PATH + 16];
	struct sheaf_layout_info l = { .size = sizeof(l) };
	struct sheaf *fs;

	begin(3);
	snprintf(backup, sizeof(backup), "%s/backup", c.dir);
	fs = client_connect(c.conf);
	make_file(fs, "/f", 300000, 9);
	CHECK_EQ(sheaf("backup", backup, NULL, NULL), 0);
	sheaf_disconnect(fs);
	server_kill(&c, 0);
	snprintf(dir, sizeof(dir), "%s/server0", c.dir);
	trash_remove(dir);
	CHECK(server_up(&c, 0) != 0);
	CHECK_EQ(sheaf("restore", backup, "--server", "server0"), 0);
	CHECK_EQ(server_up(&c, 0), 0);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_get_layout(fs, "/f", &l), 0);
	CHECK_EQ(l.bytes, 300000);
	sheaf_disconnect(fs);
	end();
}

static void wrong_backups_are_refused(void)
{
	static const struct {
		off_t at;
		uint8_t flip;
	} damage[] = { { 0, 1 }, { 20, 1 }, { 60, 1 }, { 5000, 1 }, { 9000, 0x80 } };
	struct cluster first;
	char path[CLUSTER_PATH];

	begin(2);
	snprintf(backup, sizeof(backup), "%s/backup", c.dir);
	CHECK_EQ(sheaf("backup", backup, NULL, NULL), 0);
	cluster_stop(&c);
	for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
		uint8_t b;
		int fd = open(backup, O_RDWR | O_CLOEXEC);

		CHECK(fd >= 0);
		for (int back = 0; back < 2; back++) {
			CHECK_EQ(pread(fd, &b, 1, damage[i].at), 1);
			b ^= damage[i].flip;
			CHECK_EQ(pwrite(fd, &b, 1, damage[i].at), 1);
			if (!back)
				CHECK_EQ(sheaf("restore", backup, "--force", NULL), 1);
		}
		close(fd);
	}
	CHECK_EQ(sheaf("restore", backup, "--force", NULL), 0);
	CHECK_EQ(truncate(backup, 9000), 0);
	CHECK_EQ(sheaf("restore", backup, "--force", NULL), 1);
	snprintf(path, sizeof(path), "%s/backup2", c.dir);
	cluster_start(&c);
	CHECK_EQ(sheaf("backup", path, NULL, NULL), 0);
	cluster_stop(&c);
	first = c;
	begin(2); /* another file system */
	cluster_stop(&c);
	CHECK_EQ(sheaf("restore", path, "--force", NULL), 1);
	c = first;
}

SYS_MAIN(NULL, NULL, NULL, TEST(running_clients_use_a_new_server),
	 TEST(an_idle_client_learns_from_a_file), TEST(a_client_with_the_older_file_learns_at_once),
	 TEST(a_restart_with_the_older_file_forgets_nothing),
	 TEST(data_servers_learn_of_each_other),
	 TEST(a_new_server_that_is_not_there_is_not_published),
	 TEST(files_on_a_dead_server_are_found),
	 TEST(a_dead_metadata_server_hides_only_what_it_keeps),
	 TEST(a_backup_of_servers_at_work_comes_back), TEST(clients_go_on_after_a_restore),
	 TEST(a_lost_disk_gets_its_metadata_back), TEST(wrong_backups_are_refused))
