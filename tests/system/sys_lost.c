/* Objects that are missing, or shorter than recorded: every access to lost data fails with EIO, the
 * rest of the file is unchanged, and zeros come only from holes that were never written. */
#include "cluster.h"

#include "disk/disk.h"

#define UNIT 65536
#define LENGTH (4 * UNIT) /* units 0 and 2 in object 0, the others in object 1 */
#define SHORT 1000 /* length of a truncated object */

enum how { MISSING, CUT, HOWS };

static struct cluster c;
static struct sheaf *fs;
static struct sheaf *direct_fs; /* uses direct reads */
static uint8_t buf[LENGTH + 1];

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .servers = 2, .stripe_unit = UNIT });
	cluster_start(&c);
	fs = client_connect(c.conf);
	direct_fs = direct_client(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	sheaf_disconnect(direct_fs);
	cluster_stop(&c);
}

static void find_object(char path[CLUSTER_PATH + 64], const char *name, uint32_t index)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };
	char object[OBJECT_PATH];

	CHECK_EQ(sheaf_get_layout(fs, name, &l), 0);
	CHECK_EQ(l.width, 2);
	object_path(object, &(struct object_id){ stat_of(fs, name).st_ino, 1, index });
	for (int i = 0; i < c.n; i++) {
		snprintf(path, CLUSTER_PATH + 64, "%s/server%d/objects/%s", c.dir, i, object);
		if (access(path, F_OK) == 0)
			return;
	}
	CHECK(!"no such object");
}

/* Damages an object while no server runs. */
static void damage(const char *name, uint32_t index, enum how how)
{
	char path[CLUSTER_PATH + 64];

	find_object(path, name, index);
	cluster_stop(&c);
	if (how == MISSING)
		CHECK_EQ(unlink(path), 0);
	else
		CHECK_EQ(truncate(path, SHORT), 0);
	cluster_start(&c);
}

/* Creates a file and damages its object 1. */
static const char *damaged_file(enum how how)
{
	const char *path = path_in(fresh_dir(fs), "f");

	make_file(fs, path, LENGTH, 1);
	damage(path, 1, how);
	CHECK_EQ(stat_of(fs, path).st_size, LENGTH);
	return path;
}

static bool reads(struct sheaf_file *f, off_t off, size_t n, uint64_t seed)
{
	ssize_t r = sheaf_pread(f, buf, n, off);

	return r == (ssize_t)n && is_pattern(buf, n, seed, (uint64_t)off);
}

/* ---- reads ---- */

static void check_reads(struct sheaf *by, const char *path, enum how how)
{
	off_t lost = UNIT + (how == CUT ? SHORT : 0);
	struct sheaf_file *f = open_file(by, path, O_RDONLY);

	CHECK(reads(f, 0, UNIT, 1));
	CHECK(reads(f, 2 * UNIT, UNIT, 1));
	CHECK(how != CUT || reads(f, UNIT, SHORT, 1));
	CHECK_EQ(sheaf_pread(f, buf, 1, lost), -EIO);
	CHECK_EQ(sheaf_pread(f, buf, UNIT, UNIT), -EIO);
	CHECK_EQ(sheaf_pread(f, buf, 10, 3 * UNIT + 5), -EIO);
	CHECK_EQ(sheaf_pread(f, buf, LENGTH + 1, 0), -EIO);
	CHECK_EQ(sheaf_pread(f, buf, 10, LENGTH), 0); /* the file's size is unchanged */
	CHECK_EQ(sheaf_close(f), 0);
}

static void reads_of_lost_data_fail(void)
{
	for (int how = 0; how < HOWS; how++) {
		const char *path = damaged_file(how);

		check_reads(fs, path, how);
		check_reads(direct_fs, path, how);
	}
}

static void lists_and_types_that_meet_lost_data_fail(void)
{
	static const struct sheaf_extent good[] = { { 5, 10 }, { 2 * UNIT + 5, 10 } };
	static const struct sheaf_extent bad[] = { { 5, 10 }, { 3 * UNIT + 5, 10 } };
	struct iovec mem = { buf, 20 };
	struct sheaf_type *bytes, *columns;

	CHECK_EQ(sheaf_type_bytes(16, &bytes), 0);
	CHECK_EQ(sheaf_type_vector(LENGTH / 64, 1, 64, bytes, &columns), 0);
	for (int how = 0; how < HOWS; how++) {
		struct sheaf_file *f = open_file(fs, damaged_file(how), O_RDONLY);

		CHECK_EQ(sheaf_read_list(f, &mem, 1, good, 2), 20);
		CHECK(is_pattern(buf, 10, 1, 5) && is_pattern(buf + 10, 10, 1, 2 * UNIT + 5));
		CHECK_EQ(sheaf_read_list(f, &mem, 1, bad, 2), -EIO);
		CHECK_EQ(sheaf_read_typed(f, buf, bytes, LENGTH / 64, 0, columns), -EIO);
		CHECK_EQ(sheaf_read_typed(f, buf, bytes, UNIT / 64, 0, columns), UNIT / 4);
		CHECK(is_pattern(buf + 16, 16, 1, 64));
		CHECK_EQ(sheaf_close(f), 0);
	}
	sheaf_type_free(bytes);
	sheaf_type_free(columns);
}

static void lost_data_are_no_hole(void)
{
	for (int how = 0; how < HOWS; how++) {
		struct sheaf_file *f = open_file(fs, damaged_file(how), O_RDONLY);

		off_t data = sheaf_seek(f, 0, SEEK_DATA); /* all servers are asked in parallel */

		CHECK(data == 0 || data == -EIO);
		CHECK_EQ(sheaf_seek(f, 0, SEEK_HOLE), -EIO);
		CHECK_EQ(sheaf_seek(f, UNIT + SHORT, SEEK_DATA), -EIO);
		CHECK_EQ(sheaf_seek(f, 3 * UNIT, SEEK_DATA), -EIO);
		CHECK_EQ(sheaf_seek(f, 3 * UNIT, SEEK_HOLE), -EIO);
		CHECK_EQ(sheaf_close(f), 0);
	}
}

/* ---- holes ---- */

static bool is_zero(struct sheaf_file *f, off_t off, size_t n)
{
	static const uint8_t none[LENGTH + 1];

	memset(buf, 1, n);
	return sheaf_pread(f, buf, n, off) == (ssize_t)n && !memcmp(buf, none, n);
}

static void holes_that_were_never_written_are_zeros(void)
{
	const char *dir = fresh_dir(fs), *sparse = path_in(dir, "sparse"),
		   *cut = path_in(dir, "cut");
	struct sheaf_file *f = open_file(fs, sparse, O_CREAT | O_RDWR);

	CHECK_EQ(sheaf_pwrite(f, "begin", 5, 0), 5);
	CHECK_EQ(sheaf_pwrite(f, "end", 3, 2 * UNIT + 100), 3); /* object 1 stays empty */
	CHECK_EQ(sheaf_ftruncate(f, LENGTH), 0);
	CHECK_EQ(sheaf_close(f), 0);
	make_file(fs, cut, LENGTH, 1);
	damage(cut, 1, MISSING);
	damage(sparse, 0, MISSING);
	f = open_file(fs, sparse, O_RDWR);
	CHECK(is_zero(f, UNIT, UNIT));
	CHECK(is_zero(f, 3 * UNIT, UNIT));
	CHECK_EQ(sheaf_pread(f, buf, 5, 0), -EIO);
	/* a hole before lost data may have been data */
	CHECK_EQ(sheaf_pread(f, buf, 5, 100), -EIO);
	CHECK(is_zero(f, 2 * UNIT + 103, UNIT - 103)); /* after the written bytes */
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_truncate(fs, cut, UNIT), 0); /* truncates the lost range */
	CHECK_EQ(sheaf_truncate(fs, cut, LENGTH), 0);
	f = open_file(fs, cut, O_RDONLY);
	CHECK(reads(f, 0, UNIT, 1));
	CHECK(is_zero(f, UNIT, 3 * UNIT));
	CHECK_EQ(sheaf_close(f), 0);
}

/* ---- writes ---- */

static void write_pattern(struct sheaf_file *f, off_t off, size_t n, uint64_t seed)
{
	fill_pattern(buf, n, seed, (uint64_t)off);
	CHECK_EQ(sheaf_pwrite(f, buf, n, off), (ssize_t)n);
}

/* A write past the lost range would turn it into a hole of zeros. */
static void writes_behind_lost_data_fail(void)
{
	for (int how = 0; how < HOWS; how++) {
		const char *path = damaged_file(how);
		struct sheaf_file *f = open_file(fs, path, O_RDWR);

		CHECK_EQ(sheaf_pwrite(f, "x", 1, 3 * UNIT + 10), -EIO);
		CHECK_EQ(sheaf_pread(f, buf, 10, 3 * UNIT), -EIO);
		CHECK_EQ(sheaf_pread(f, buf, 10, UNIT + SHORT), -EIO);
		write_pattern(f, 0, 100, 1); /* the other object is intact */
		CHECK(reads(f, 0, UNIT, 1));
		CHECK_EQ(sheaf_close(f), 0);
		check_reads(direct_fs, path, how);
	}
}

/* A file is restored by copying onto it from the beginning. */
static void a_rewrite_from_the_beginning_heals(void)
{
	for (int how = 0; how < HOWS; how++) {
		struct sheaf_file *f = open_file(fs, damaged_file(how), O_RDWR);

		for (size_t at = 0; at < LENGTH; at += 10000)
			write_pattern(f, (off_t)at, LENGTH - at < 10000 ? LENGTH - at : 10000, 2);
		CHECK_EQ(sheaf_fsync(f), 0);
		CHECK(reads(f, 0, LENGTH, 2));
		CHECK_EQ(sheaf_seek(f, 0, SEEK_HOLE), LENGTH);
		CHECK_EQ(sheaf_close(f), 0);
	}
}

/* The error reaches programs that write to a file without reading it. */
static void an_fsync_of_lost_data_fails(void)
{
	for (int how = 0; how < HOWS; how++) {
		const char *path = damaged_file(how);
		struct sheaf_file *f = open_file(fs, path, O_RDWR);

		write_pattern(f, UNIT, 100, 1); /* another range of this object is lost */
		CHECK_EQ(sheaf_fsync(f), -EIO);
		sheaf_close(f);
	}
}

/* ---- copies ---- */

static void copies_of_lost_data_fail(void)
{
	for (int how = 0; how < HOWS; how++) {
		const char *path = damaged_file(how), *to = path_in(fresh_dir(fs), "to");
		struct sheaf_file *bad, *good;

		make_file(fs, to, LENGTH, 3);
		bad = open_file(fs, path, O_RDWR);
		good = open_file(fs, to, O_RDWR);
		CHECK_EQ(sheaf_copy_range(bad, 3 * UNIT, good, 3 * UNIT, 100), -EIO);
		/* copies from one server to another */
		CHECK_EQ(sheaf_copy_range(bad, 3 * UNIT, good, 100, 100), -EIO);
		CHECK(reads(good, 0, LENGTH, 3)); /* unchanged: no zeros were copied */
		CHECK_EQ(sheaf_copy_range(good, 0, bad, 3 * UNIT + 10, 100), -EIO);
		CHECK_EQ(sheaf_pread(bad, buf, 10, 3 * UNIT), -EIO);
		CHECK_EQ(sheaf_copy_range(bad, 0, good, 0, 1000), 1000);
		CHECK(reads(good, 0, 1000, 1));
		/* rewrites the damaged object from its beginning */
		CHECK_EQ(sheaf_copy_range(good, UNIT, bad, UNIT, UNIT), UNIT);
		CHECK_EQ(sheaf_copy_range(good, 3 * UNIT, bad, 3 * UNIT, UNIT), UNIT);
		CHECK(reads(bad, 3 * UNIT, UNIT, 3));
		CHECK_EQ(sheaf_close(good), 0);
		CHECK_EQ(sheaf_close(bad), 0);
	}
}

SYS_MAIN(NULL, begin, end, TEST(reads_of_lost_data_fail),
	 TEST(lists_and_types_that_meet_lost_data_fail), TEST(lost_data_are_no_hole),
	 TEST(holes_that_were_never_written_are_zeros), TEST(writes_behind_lost_data_fail),
	 TEST(a_rewrite_from_the_beginning_heals), TEST(an_fsync_of_lost_data_fails),
	 TEST(copies_of_lost_data_fail))
