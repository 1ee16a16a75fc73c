/* Removal does not ask for objects that cannot exist, so a small file is removed while servers that
 * have no part of it are down. Whatever was done to a file, none of its objects remains after its
 * last name and its last open are gone. A client that reports false writes leaves its own object,
 * and `sheaf check --repair` finds it. */
#include <lmdb.h>

#include "raw_link.h"

#define UNIT 65536
#define SERVERS 4
#define FAR (2 * UNIT + 100) /* an offset in the third stripe */

static struct cluster c;
static struct sheaf *fs;

static uint64_t ino_of(const char *path)
{
	return stat_of(fs, path).st_ino;
}

static bool has_object(int server, uint64_t ino)
{
	char path[CLUSTER_PATH + 64], name[OBJECT_PATH];

	for (uint32_t i = 0; i < 16; i++) {
		object_path(name, &(struct object_id){ ino, 1, i });
		snprintf(path, sizeof(path), "%s/server%d/objects/%s", c.dir, server, name);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static int objects(uint64_t ino)
{
	int n = 0;

	for (int i = 0; i < SERVERS; i++)
		n += has_object(i, ino);
	return n;
}

/* Counts the files that a server has still to remove: rows of its database, which the server keeps
 * using. */
static size_t to_remove(int server)
{
	char path[CLUSTER_PATH];
	MDB_env *env;
	MDB_txn *txn;
	MDB_stat st;
	MDB_dbi t;

	snprintf(path, sizeof(path), "%s/server%d/meta", c.dir, server);
	CHECK_EQ(mdb_env_create(&env), 0);
	CHECK_EQ(mdb_env_set_maxdbs(env, 16), 0);
	CHECK_EQ(mdb_env_open(env, path, MDB_RDONLY, 0600), 0);
	CHECK_EQ(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
	CHECK_EQ(mdb_dbi_open(txn, "remove", 0, &t), 0);
	CHECK_EQ(mdb_stat(txn, t, &st), 0);
	mdb_txn_abort(txn);
	mdb_env_close(env);
	return st.ms_entries;
}

/* Removes the last name and checks that all objects are removed. */
static void removed(const char *path)
{
	uint64_t ino = ino_of(path);

	CHECK_EQ(sheaf_unlink(fs, path), 0);
	CHECK(WITHIN(PATIENCE_S, objects(ino) == 0 && to_remove(0) == 0));
}

static struct sheaf_file *create(const char *path)
{
	return open_file(fs, path, O_CREAT | O_EXCL | O_RDWR);
}

static void write_at(struct sheaf_file *f, off_t off)
{
	CHECK_EQ(sheaf_pwrite(f, "some bytes", 10, off), 10);
}

/* Closes the file; -EIO if a killed server had unsynced data of it. */
static void closed(struct sheaf_file *f)
{
	int r = sheaf_close(f);

	CHECK(r == 0 || r == -EIO);
}

/* The server that has the stripe. Files are in the root directory, which server 0 has. */
static int server_of(const char *path, unsigned stripe)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };

	CHECK_EQ(sheaf_get_layout(fs, path, &l), 0);
	CHECK_EQ(l.width, SERVERS);
	return (int)l.servers[(l.start + stripe) % l.width];
}

/* ---- objects that cannot exist ---- */

/* A file of this size is removed while the server of another stripe is down. */
static void goes_without(off_t bytes, unsigned stripe)
{
	struct sheaf_file *f = NULL;
	int away = 0;
	uint64_t ino;

	while (!away) { /* until that server is not the root's */
		f = create("/file");
		away = server_of("/file", stripe);
		if (!away) {
			CHECK_EQ(sheaf_close(f), 0);
			removed("/file");
		}
	}
	if (bytes)
		CHECK_EQ(sheaf_pwrite(f, "x", 1, bytes - 1), 1);
	CHECK_EQ(sheaf_close(f), 0);
	ino = ino_of("/file");
	CHECK_EQ(objects(ino), bytes ? 1 : 0);
	server_kill(&c, away);
	CHECK_EQ(sheaf_unlink(fs, "/file"), 0);
	CHECK(WITHIN(PATIENCE_S, objects(ino) == 0 && to_remove(0) == 0));
	CHECK_EQ(server_up(&c, away), 0);
}

static void an_empty_file_goes_without_its_data_servers(void)
{
	goes_without(0, 0);
}

static void a_file_of_one_stripe_goes_without_the_servers_of_others(void)
{
	goes_without(1000, 1);
	goes_without(UNIT, 1);
	goes_without(UNIT, 3);
}

/* Holes are treated as if they had objects. */
static void a_file_of_three_stripes_waits_for_their_servers(void)
{
	struct sheaf_file *f = create("/file");
	uint64_t ino = ino_of("/file");
	int away;

	write_at(f, FAR);
	CHECK_EQ(sheaf_close(f), 0);
	away = server_of("/file", 2) ? server_of("/file", 2) : server_of("/file", 1);
	server_kill(&c, away);
	CHECK_EQ(sheaf_unlink(fs, "/file"), 0);
	CHECK(!WITHIN(0.3, to_remove(0) == 0));
	CHECK_EQ(server_up(&c, away), 0);
	CHECK(WITHIN(PATIENCE_S, objects(ino) == 0 && to_remove(0) == 0));
}

/* ---- no objects remain ---- */

static void room(int mode)
{
	struct sheaf_file *f = create("/file");

	write_at(f, 0);
	CHECK_EQ(sheaf_fallocate(f, mode, UNIT, 2 * UNIT), 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(stat_of(fs, "/file").st_size, mode & FALLOC_FL_KEEP_SIZE ? 10 : 3 * UNIT);
	CHECK_EQ(objects(ino_of("/file")), mode & FALLOC_FL_PUNCH_HOLE ? 1 : 3);
	removed("/file");
}

static void room_beyond_the_size_goes(void)
{
	room(FALLOC_FL_KEEP_SIZE);
	room(FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE);
	room(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE);
	room(FALLOC_FL_ZERO_RANGE);
	room(0);
}

/* The writer that allocated is not the last to close, and the server has lost all reports that were
 * not on disk. */
static void room_of_one_of_two_writers_goes(void)
{
	struct sheaf_file *f = create("/file"), *g = open_file(fs, "/file", O_RDWR);

	CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_KEEP_SIZE, FAR, 100), 0);
	closed(f);
	server_kill(&c, 0);
	CHECK_EQ(server_up(&c, 0), 0);
	write_at(g, 0);
	closed(g);
	CHECK_EQ(objects(ino_of("/file")), 2);
	removed("/file");
}

static void appends_and_copies_go(void)
{
	struct sheaf_file *f = open_file(fs, "/from", O_CREAT | O_RDWR | O_APPEND), *g;
	char bytes[FAR] = "appended";

	CHECK_EQ(sheaf_pwrite(f, bytes, sizeof(bytes), 0), (ssize_t)sizeof(bytes));
	g = create("/file");
	CHECK_EQ(sheaf_copy_range(f, 0, g, 100, sizeof(bytes)), (ssize_t)sizeof(bytes));
	CHECK_EQ(sheaf_close(f) | sheaf_close(g), 0);
	CHECK_EQ(objects(ino_of("/from")), 3);
	CHECK_EQ(objects(ino_of("/file")), 3);
	removed("/from");
	removed("/file");
}

/* A truncate leaves empty objects. */
static void what_was_truncated_goes(void)
{
	static const off_t sizes[] = { 0, 10, 5 * UNIT };
	struct sheaf_file *f;

	for (int i = 0; i < 3; i++) {
		f = create("/file");
		write_at(f, FAR);
		CHECK_EQ(sheaf_ftruncate(f, sizes[i]), 0);
		write_at(f, 0);
		CHECK_EQ(sheaf_close(f), 0);
		CHECK_EQ(objects(ino_of("/file")), 2);
		removed("/file");
	}
	f = create("/file");
	write_at(f, FAR);
	CHECK_EQ(sheaf_close(f), 0);
	f = open_file(fs, "/file", O_RDWR | O_TRUNC);
	write_at(f, 0);
	CHECK_EQ(sheaf_close(f), 0);
	removed("/file");
}

static void what_was_written_without_a_name_goes(void)
{
	struct sheaf_file *f = create("/file"), *g = open_file(fs, "/file", O_RDWR);
	uint64_t ino = ino_of("/file");

	CHECK_EQ(sheaf_unlink(fs, "/file"), 0);
	write_at(f, FAR);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(objects(ino), 1);
	write_at(g, 0);
	CHECK_EQ(sheaf_close(g), 0);
	CHECK(WITHIN(PATIENCE_S, objects(ino) == 0 && to_remove(0) == 0));
}

/* The metadata server was killed and has no report of the writes; the writer claims its file and
 * closes it. */
static void what_was_written_beside_a_restart_goes(void)
{
	struct sheaf_file *f = create("/file");

	write_at(f, FAR);
	server_kill(&c, 0);
	CHECK_EQ(server_up(&c, 0), 0);
	write_at(f, 0);
	closed(f);
	removed("/file");
}

static int child(const char *name, char **arg)
{
	struct sheaf *mine = client_connect(arg[0]);

	write_at(open_file(mine, name, O_CREAT | O_RDWR), FAR);
	kill(getpid(), SIGKILL);
	return 1;
}

static void what_a_dead_writer_wrote_goes(void)
{
	CHECK_EQ(process_wait(child_start("/file", c.conf, NULL)), 256 + SIGKILL);
	CHECK_EQ(objects(ino_of("/file")), 1);
	removed("/file"); /* when the writer's lease has ended */
}

/* ---- a false report ---- */

static int check(const char *options)
{
	char cmd[2 * CLUSTER_PATH];

	snprintf(cmd, sizeof(cmd), "%s/bin/sheaf --conf %s check %s >/dev/null 2>&1",
		 getenv("SHEAF_BUILD"), c.conf, options);
	return system(cmd);
}

/* Writes, closes, and reports that nothing was written. */
static uint64_t lie(void)
{
	struct sheaf_handle root = sheaf_root(fs);
	struct wire_open_args a = { .where = { { root.ino, root.gen }, wire_text("lie"), false },
				    .id = 1,
				    .flags = OPEN_WRITE | OPEN_CREATE,
				    .mode = 0600 };
	struct wire_open_res res = { 0 };
	struct wire_extent e = { 0, 4 };
	struct wire_write_args w = { .n_list = 1, .list = &e, .data = wire_text("four") };
	struct wire_close_args done = { .id = 1 };
	static struct raw meta, data;
	uint32_t target;

	raw_up_session(&meta, &c, 0);
	CHECK_EQ(raw_call(&meta, OP_OPEN, 0, 1, XDR_ANY(xdr_wire_open_args), &a,
			  XDR_ANY(xdr_wire_open_res), &res),
		 0);
	target = res.layout.targets[res.layout.start];
	w.at.cap = res.cap;
	raw_up_session(&data, &c, (int)target);
	CHECK_EQ(raw_call(&data, OP_WRITE, 0, 1, XDR_ANY(xdr_wire_write_args), &w, NULL, NULL), 0);
	done.h = (struct wire_handle){ res.at.ino, res.at.gen };
	CHECK_EQ(raw_call(&meta, OP_CLOSE, 0, 2, XDR_ANY(xdr_wire_close_args), &done, NULL, NULL),
		 0);
	raw_close(&data);
	raw_close(&meta);
	return res.at.ino;
}

static void the_object_of_a_liar_is_found(void)
{
	uint64_t ino = lie();
	char path[64];

	CHECK_EQ(objects(ino), 1);
	CHECK_EQ(sheaf_unlink(fs, "/lie"), 0);
	CHECK(WITHIN(PATIENCE_S, to_remove(0) == 0));
	CHECK_EQ(objects(ino), 1);
	CHECK(check("") != 0);
	check("--repair");
	CHECK(WITHIN(PATIENCE_S, check("") == 0));
	snprintf(path, sizeof(path), "/lost+found/#%ju", (uintmax_t)ino);
	CHECK_EQ(stat_of(fs, path).st_size, 4);
	removed(path);
}

static void begin(void)
{
	cluster_create(
		&c, &(struct cluster_opts){
			    .servers = SERVERS, .stripe_unit = UNIT, .timeout = 20, .lease = 2 });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	CHECK(WITHIN(PATIENCE_S, check("") == 0));
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(child, begin, end, TEST(an_empty_file_goes_without_its_data_servers),
	 TEST(a_file_of_one_stripe_goes_without_the_servers_of_others),
	 TEST(a_file_of_three_stripes_waits_for_their_servers), TEST(room_beyond_the_size_goes),
	 TEST(room_of_one_of_two_writers_goes), TEST(appends_and_copies_go),
	 TEST(what_was_truncated_goes), TEST(what_was_written_without_a_name_goes),
	 TEST(what_was_written_beside_a_restart_goes), TEST(what_a_dead_writer_wrote_goes),
	 TEST(the_object_of_a_liar_is_found))
