/* Lost data are errors, never zeros. Object files of a stopped server are deleted or truncated, one
 * by one and by the directory. Reads of recorded data give EIO, unwritten holes stay zeros, and the
 * rest of each file can be read; `sheaf check` and `sheaf find --damaged` name the files, metrics
 * count them, the log reports them. Also, --repair never reuses the inode number of an object
 * without a file. */
#include "cluster.h"
#include "meta/meta_schema.h"

#define UNIT 65536
#define BYTES (6 * UNIT) /* two stripe units in each of three objects */
#define VICTIM 1 /* the server that loses objects */

static struct cluster c;
static struct sheaf *fs;
static char out[1 << 18]; /* output of the last command */

static int run(const char *args)
{
	char cmd[2 * CLUSTER_PATH];
	size_t n;
	FILE *p;
	int st;

	snprintf(cmd, sizeof(cmd), "%s/bin/sheaf --conf %s %s 2>&1", getenv("SHEAF_BUILD"), c.conf,
		 args);
	p = popen(cmd, "re");
	CHECK(p);
	n = fread(out, 1, sizeof(out) - 1, p);
	out[n] = 0;
	st = pclose(p);
	CHECK(WIFEXITED(st));
	return WEXITSTATUS(st);
}

static bool said(const char *what)
{
	if (strstr(out, what))
		return true;
	fprintf(stderr, "not said: %s, but:\n%s", what, out);
	return false;
}

/* ---- objects of a file ---- */

static struct object_id object_of(const char *path, uint32_t server)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };
	struct object_id id = { .gen = 1 };
	struct stat st;

	CHECK_EQ(sheaf_stat(fs, path, &st), 0);
	CHECK_EQ(sheaf_get_layout(fs, path, &l), 0);
	id.ino = st.st_ino;
	while (id.index < l.width && l.servers[id.index] != server)
		id.index++;
	CHECK(id.index < l.width);
	return id;
}

static void object_file(char out_path[CLUSTER_PATH], const struct object_id *id)
{
	char name[OBJECT_PATH];

	object_path(name, id);
	snprintf(out_path, CLUSTER_PATH, "%s/server%d/objects/%s", c.dir, VICTIM, name);
}

/* The offset in the file of the first unit of this object. */
static off_t unit_of(const char *path, const struct object_id *id)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };

	CHECK_EQ(sheaf_get_layout(fs, path, &l), 0);
	return (off_t)((id->index + l.width - l.start) % l.width) * UNIT;
}

static uint64_t damaged_accesses(void)
{
	static const char ask[] = "GET /metrics HTTP/1.0\r\n\r\n",
			  name[] = "\nsheaf_damaged_accesses_total";
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)(c.port + METRICS_OFFSET + VICTIM)) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char text[1 << 18];
	size_t n = 0;
	ssize_t got;
	char *at;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(write(fd, ask, strlen(ask)), (ssize_t)strlen(ask));
	while (n < sizeof(text) - 1 && (got = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = 0;
	close(fd);
	at = strstr(text, name);
	CHECK(at);
	at = strpbrk(at + strlen(name), " ");
	CHECK(at);
	return strtoull(at, NULL, 10);
}

static bool log_says(const char *what)
{
	char path[CLUSTER_PATH];
	bool found;
	char *text;

	snprintf(path, sizeof(path), "%s/server%d.log", c.dir, VICTIM);
	text = read_text(path);
	found = strstr(text, what);
	free(text);
	return found;
}

/* Reads one unit and checks its pattern; returns its length or an error. */
static ssize_t read_unit(const char *path, off_t at)
{
	struct sheaf_file *f = open_file(fs, path, O_RDONLY);
	static uint8_t b[UNIT];
	ssize_t n = sheaf_pread(f, b, UNIT, at);

	CHECK_EQ(sheaf_close(f), 0);
	if (n > 0)
		CHECK(is_pattern(b, (size_t)n, 3, (uint64_t)at));
	return n;
}

/* ---- tests ---- */

static void sound_files_are_not_damaged(void)
{
	struct sheaf_file *f;

	make_file(fs, "/missing", BYTES, 3);
	make_file(fs, "/short", BYTES, 3);
	make_file(fs, "/gone", BYTES, 3);
	make_file(fs, "/sound", BYTES, 3);
	CHECK_EQ(sheaf_mkdir(fs, "/dir", 0755), 0);
	make_file(fs, "/dir/one", BYTES, 3);
	CHECK_EQ(sheaf_link(fs, "/dir/one", "/two"), 0);
	make_file(fs, "/sparse", 10, 3);
	CHECK_EQ(sheaf_truncate(fs, "/sparse", BYTES), 0);
	make_file(fs, "/cut", BYTES, 3);
	CHECK_EQ(sheaf_truncate(fs, "/cut", UNIT / 2), 0);
	f = open_file(fs, "/cut", O_RDWR);
	CHECK_EQ(sheaf_ftruncate(f, BYTES), 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK(WITHIN(PATIENCE_S, run("check") == 0 && !strstr(out, "pending")));
	CHECK_EQ(run("find --damaged"), 0);
	CHECK(!out[0]);
	CHECK_EQ(damaged_accesses(), 0);
}

static void lose_objects(void)
{
	static const char *const whole[] = { "/missing", "/dir/one" };
	struct object_id id;
	char path[CLUSTER_PATH];

	server_down(&c, VICTIM);
	for (size_t i = 0; i < 2; i++) {
		id = object_of(whole[i], VICTIM);
		object_file(path, &id);
		CHECK_EQ(unlink(path), 0);
	}
	id = object_of("/short", VICTIM);
	object_file(path, &id);
	CHECK_EQ(truncate(path, UNIT + 100), 0);
	id = object_of("/gone", VICTIM);
	object_file(path, &id);
	*strrchr(path, '/') = 0; /* the whole directory objects/XX */
	trash_remove(path);
	CHECK(access(path, F_OK) < 0);
	CHECK_EQ(server_up(&c, VICTIM), 0);
}

static void lost_data_are_errors_and_never_zeros(void)
{
	static const char *const whole[] = { "/missing", "/gone", "/dir/one" };
	struct object_id id;
	char text[64];
	off_t at;

	lose_objects();
	for (size_t i = 0; i < 3; i++) {
		id = object_of(whole[i], VICTIM);
		at = unit_of(whole[i], &id);
		CHECK_EQ(read_unit(whole[i], at), -EIO);
		CHECK_EQ(read_unit(whole[i], at + 3 * UNIT), -EIO);
		CHECK_EQ(read_unit(whole[i], (at + UNIT) % (3 * UNIT)), UNIT);
		snprintf(text, sizeof(text), "data of inode %llx are lost",
			 (unsigned long long)id.ino);
		CHECK(log_says(text));
	}
	id = object_of("/short", VICTIM);
	at = unit_of("/short", &id);
	CHECK_EQ(read_unit("/short", at), UNIT); /* before the truncated end */
	CHECK_EQ(read_unit("/short", at + 3 * UNIT), -EIO);
	CHECK(damaged_accesses() >= 7);
	check_file(fs, "/sound", BYTES, 3);
}

static void unwritten_holes_are_zeros(void)
{
	static const char *const names[] = { "/sparse", "/cut" };
	static const size_t written[] = { 10, UNIT / 2 };
	static uint8_t b[BYTES];

	for (int i = 0; i < 2; i++) {
		struct sheaf_file *f = open_file(fs, names[i], O_RDONLY);

		CHECK_EQ(sheaf_pread(f, b, BYTES, 0), BYTES);
		CHECK_EQ(sheaf_close(f), 0);
		CHECK(is_pattern(b, written[i], 3, 0));
		for (size_t k = written[i]; k < BYTES; k++)
			CHECK_EQ(b[k], 0);
	}
}

static void check_and_find_name_the_files(void)
{
	CHECK_EQ(run("check"), 1);
	CHECK(said("damaged: /missing (inode "));
	CHECK(said("on server1 is missing, but 131072 bytes were recorded"));
	CHECK(said("damaged: /short (inode "));
	CHECK(said("ends at byte 65636, but 131072 were recorded; 65436 bytes of data are lost"));
	CHECK(said("damaged: /gone "));
	CHECK(said("4 wrong, 4 of them damage"));
	CHECK_EQ(run("check --json"), 1);
	CHECK(said("\"kind\":\"lost-data\"") && said("\"bytes\":65436") && said("\"damaged\":4"));
	CHECK_EQ(run("check --repair"), 1);
	CHECK(said("--repair leaves it alone") && said("4 wrong") && !strstr(out, "repaired, "));
	CHECK_EQ(run("find --damaged"), 0);
	CHECK(said("/missing  server1  131072 bytes lost\n") && said("/gone  server1") &&
	      said("/short  server1  65436 bytes lost\n") && said("/dir/one  server1") &&
	      said("/two  server1") && !strstr(out, "sound") && !strstr(out, "sparse"));
	CHECK_EQ(run("find --damaged /dir"), 0);
	CHECK(said("/dir/one") && !strstr(out, "/missing") && !strstr(out, "/two"));
	CHECK_EQ(run("find --damaged --json /short"), 0);
	CHECK(said("\"path\":\"/short\"") && said("\"server\":\"server1\"") &&
	      said("\"bytes\":65436") && !strstr(out, "missing"));
	CHECK_EQ(run("find --damaged --on server1"), 2);
}

static void what_is_rewritten_or_removed_is_whole(void)
{
	make_file(fs, "/missing", BYTES, 3); /* truncates the file first */
	check_file(fs, "/missing", BYTES, 3);
	CHECK_EQ(sheaf_truncate(fs, "/short", 0), 0);
	CHECK_EQ(sheaf_unlink(fs, "/gone"), 0);
	CHECK_EQ(sheaf_unlink(fs, "/dir/one"), 0);
	CHECK_EQ(sheaf_unlink(fs, "/two"), 0);
	CHECK(WITHIN(PATIENCE_S, run("check") == 0 && !strstr(out, "pending")));
	CHECK_EQ(run("find --damaged"), 0);
	CHECK(!out[0]);
}

/* An object has the inode number that would be assigned next: /lost+found and new files must
 * neither get its data nor hide them. */
static void the_number_of_an_orphan_is_not_given_again(void)
{
	static const char text[] = "data without a file";
	char path[CLUSTER_PATH], name[64], got[sizeof(text)];
	struct object_id id = { .gen = 1 };
	struct sheaf_file *f;
	struct stat st;

	make_file(fs, "/last", 1, 3);
	CHECK_EQ(sheaf_stat(fs, "/last", &st), 0);
	id.ino = st.st_ino + 1;
	CHECK(WITHIN(PATIENCE_S, run("check") == 0 && !strstr(out, "pending")));
	server_down(&c, VICTIM);
	object_file(path, &id);
	*strrchr(path, '/') = 0;
	mkdir(path, 0700);
	object_file(path, &id);
	write_text(path, text);
	CHECK_EQ(server_up(&c, VICTIM), 0);
	CHECK_EQ(run("check --repair"), 0);
	snprintf(name, sizeof(name), "/lost+found/#%llu", (unsigned long long)id.ino);
	f = open_file(fs, name, O_RDONLY);
	CHECK_EQ(sheaf_pread(f, got, sizeof(got), 0), (ssize_t)strlen(text));
	CHECK(memcmp(got, text, strlen(text)) == 0);
	CHECK_EQ(sheaf_close(f), 0);
	make_file(fs, "/later", 1, 3);
	CHECK_EQ(sheaf_stat(fs, "/later", &st), 0);
	CHECK(INO_COUNTER(st.st_ino) > INO_COUNTER(id.ino) + (UINT64_C(1) << 32));
	CHECK_EQ(sheaf_stat(fs, "/lost+found", &st), 0);
	CHECK(INO_COUNTER(st.st_ino) > (UINT64_C(1) << 32));
	CHECK_EQ(run("check"), 0);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){
				   .servers = 3, .timeout = 20, .lease = 2, .stripe_unit = UNIT });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(NULL, begin, end, TEST(sound_files_are_not_damaged),
	 TEST(lost_data_are_errors_and_never_zeros), TEST(unwritten_holes_are_zeros),
	 TEST(check_and_find_name_the_files), TEST(what_is_rewritten_or_removed_is_whole),
	 TEST(the_number_of_an_orphan_is_not_given_again))
