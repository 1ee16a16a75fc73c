/* The storage directory: formatting, every reason to refuse a directory, and the verifier. */
#include "disk/disk_impl.h"

#include "disk_fixture.h"

static void in_dir(char *out, size_t n, const char *name)
{
	snprintf(out, n, "%s/%s", disk_path, name);
}

static void refused(const struct uuid *fs, uint32_t target, int error, const char *text)
{
	disk = NULL;
	CHECK_EQ(disk_fixture_open(fs, target), error);
	CHECK(strstr(disk_err, disk_path));
	if (!strstr(disk_err, text))
		fprintf(stderr, "%s\n", disk_err);
	CHECK(strstr(disk_err, text));
	CHECK(!strchr(disk_err, '\n'));
	CHECK(!disk);
}

static void begin_closed(void)
{
	disk_fixture_start("/dev/shm");
	CHECK_EQ(disk_close(disk, true), 0);
	disk = NULL;
}

static void a_missing_directory_is_refused(void)
{
	begin_closed();
	scratch_dir_remove(disk_path);
	refused(&test_fs, 3, -ENOENT, "does not exist");
	disk_fixture_end();
}

static void a_directory_without_id_is_refused(void)
{
	char file[600];

	begin_closed();
	in_dir(file, sizeof(file), "sheaf.id");
	CHECK_EQ(unlink(file), 0);
	refused(&test_fs, 3, -ENOENT,
		"is not a Sheaf storage directory: is a disk not mounted? If the data are lost, "
		"run `sheaf add-server NAME --emptied`; for a new server, `sheaf format");
	disk_fixture_end();
}

static void a_file_instead_of_a_directory_is_refused(void)
{
	begin_closed();
	scratch_dir_remove(disk_path);
	close(open(disk_path, O_CREAT | O_WRONLY, 0600));
	refused(&test_fs, 3, -ENOTDIR, "cannot be opened");
	disk_fixture_end();
}

/* Changes one byte of sheaf.id; with `seal`, corrects the crc. */
static void edit_id(size_t at, uint8_t value, bool seal)
{
	char file[600];
	struct disk_id id;
	int fd;

	in_dir(file, sizeof(file), "sheaf.id");
	fd = open(file, O_RDWR);
	CHECK_EQ(pread(fd, &id, sizeof(id), 0), sizeof(id));
	((uint8_t *)&id)[at] = value;
	if (seal)
		id.crc = crc32c(0, &id, offsetof(struct disk_id, crc));
	CHECK_EQ(pwrite(fd, &id, sizeof(id), 0), sizeof(id));
	close(fd);
}

static void a_damaged_id_is_refused(void)
{
	char file[600];

	begin_closed();
	edit_id(20, 0x55, false);
	refused(&test_fs, 3, -EUCLEAN, "damaged");
	in_dir(file, sizeof(file), "sheaf.id");
	CHECK_EQ(truncate(file, 10), 0);
	refused(&test_fs, 3, -EUCLEAN, "damaged");
	disk_fixture_end();
}

static void another_file_system_or_server_is_refused(void)
{
	struct uuid other = { .b = { 9 } };

	begin_closed();
	refused(&other, 3, -EPERM, "belongs to file system 01020300-");
	refused(&test_fs, 4, -EPERM, "belongs to server 3, not to server 4");
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	disk_fixture_end();
}

static void a_newer_format_is_refused(void)
{
	begin_closed();
	edit_id(offsetof(struct disk_id, version), DISK_VERSION + 1, true);
	refused(&test_fs, 3, -EPROTONOSUPPORT, "install a newer Sheaf");
	disk_fixture_end();
}

static void a_directory_in_use_is_refused(void)
{
	struct disk *first;

	disk_fixture_start("/dev/shm");
	first = disk;
	refused(&test_fs, 3, -EBUSY, "in use by another process");
	disk = first;
	disk_fixture_end();
}

static void missing_parts_are_refused(void)
{
	char file[600];

	begin_closed();
	in_dir(file, sizeof(file), "fences");
	CHECK_EQ(unlink(file), 0);
	refused(&test_fs, 3, -EUCLEAN, "fences is missing");
	in_dir(file, sizeof(file), "objects/stamp");
	CHECK_EQ(unlink(file), 0);
	refused(&test_fs, 3, -EUCLEAN, "objects has lost its contents");
	in_dir(file, sizeof(file), "objects");
	CHECK_EQ(rmdir(file), 0);
	refused(&test_fs, 3, -EUCLEAN, "objects is missing");
	disk_fixture_end();
}

static int format_lost(const struct uuid *fs)
{
	return disk_format_lost(loop.env, disk_path, fs, 3, disk_err, sizeof(disk_err));
}

static void lost_objects_are_made_anew_and_nothing_else(void)
{
	struct uuid other = { { 9 } };
	char file[600];

	begin_closed();
	CHECK_EQ(format_lost(&test_fs), 0); /* the parts are there */
	in_dir(file, sizeof(file), "objects/stamp");
	CHECK_EQ(unlink(file), 0);
	in_dir(file, sizeof(file), "objects");
	CHECK_EQ(rmdir(file), 0);
	CHECK_EQ(format_lost(&other), -EPERM); /* belongs to another file system */
	refused(&test_fs, 3, -EUCLEAN, "objects has lost its contents");
	CHECK_EQ(format_lost(&test_fs), 1);
	CHECK_EQ(format_lost(&test_fs), 0);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	in_dir(file, sizeof(file), "sheaf.id");
	CHECK_EQ(unlink(file), 0);
	CHECK_EQ(format_lost(&test_fs), -ENOENT);
	disk_fixture_end();
}

static void formatting_twice_is_refused(void)
{
	begin_closed();
	CHECK_EQ(disk_format(loop.env, disk_path, &test_fs, 3, disk_err, sizeof(disk_err)),
		 -EEXIST);
	CHECK(strstr(disk_err, "already is a Sheaf storage directory"));
	disk_fixture_end();
}

/* The stamp of an earlier, killed format has a name that was never synced. It is synced before
 * sheaf.id gets a name, and once more at the end. */
static void the_names_of_a_broken_format_are_synced(void)
{
	char file[600];
	struct stat st;
	int fd;

	begin_closed();
	in_dir(file, sizeof(file), "sheaf.id");
	CHECK_EQ(unlink(file), 0);
	in_dir(file, sizeof(file), "objects");
	fd = open(file, O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	close(fd);
	faulty.watched = st.st_ino;
	CHECK_EQ(disk_format(loop.env, disk_path, &test_fs, 3, disk_err, sizeof(disk_err)), 0);
	CHECK_EQ(faulty.n_watched, 2);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	disk_fixture_end();
}

static void formatting_where_no_parent_is_says_so(void)
{
	CHECK_EQ(disk_format(env_real(), "/nowhere/at/all", &test_fs, 3, disk_err,
			     sizeof(disk_err)),
		 -ENOENT);
	CHECK(strstr(disk_err, "/nowhere/at/all cannot be made"));
}

static void a_clean_stop_keeps_the_verifier_and_anything_else_does_not(void)
{
	uint64_t verifier, boot;

	disk_fixture_start(".");
	verifier = disk_verifier(disk);
	boot = disk_boot(disk);
	disk_fixture_reopen(true);
	CHECK_EQ(disk_verifier(disk), verifier);
	CHECK(disk_boot(disk) != boot);
	disk_fixture_reopen(false); /* the first start removed `clean` */
	CHECK(disk_verifier(disk) != verifier);
	disk_fixture_end();
}

static void a_damaged_clean_file_counts_as_none(void)
{
	uint64_t verifier;
	char file[600];
	uint8_t b;
	int fd;

	disk_fixture_start("/dev/shm");
	verifier = disk_verifier(disk);
	CHECK_EQ(disk_close(disk, true), 0);
	in_dir(file, sizeof(file), "clean");
	fd = open(file, O_RDWR);
	CHECK_EQ(pread(fd, &b, 1, 10), 1);
	b ^= 1;
	CHECK_EQ(pwrite(fd, &b, 1, 10), 1);
	close(fd);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	CHECK(disk_verifier(disk) != verifier);
	disk_fixture_end();
}

static void a_stop_that_cannot_sync_changes_the_verifier(void)
{
	uint64_t verifier;
	struct object *o;

	disk_fixture_start("/dev/shm");
	verifier = disk_verifier(disk);
	o = get_object_ok(5, 1);
	CHECK_EQ(write_bytes(o, 0, "data", 4), 0);
	object_put(o);
	faulty.fail_fsync = -EIO;
	CHECK_EQ(disk_close(disk, true), -EIO);
	faulty.fail_fsync = 0;
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	CHECK(disk_verifier(disk) != verifier);
	disk_fixture_end();
}

/* The count is only in the page cache. If the next start did not write it again, a power loss would
 * leave sheaf.id behind its parts, like a restored copy. */
static void a_count_that_was_not_synced_is_written_again(void)
{
	char file[600];
	struct stat st;

	disk_fixture_start("/dev/shm");
	in_dir(file, sizeof(file), "sheaf.id");
	CHECK_EQ(stat(file, &st), 0);
	faulty.watched = st.st_ino;
	faulty.fail_fsync = -EIO;
	CHECK_EQ(disk_stamp_end(disk, false), -EIO);
	faulty.fail_fsync = 0;
	CHECK_EQ(disk_close(disk, false), 0);
	CHECK_EQ(faulty.n_watched, 0);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	CHECK_EQ(faulty.n_watched, 1);
	disk_fixture_end();
}

static void free_space_is_reported(void)
{
	uint64_t total, avail, id[3];

	for (int i = 0; i < 3; i++) { /* the same file system twice, then another one */
		disk_fixture_start(i < 2 ? "/dev/shm" : ".");
		CHECK_EQ(disk_space(disk, &total, &avail, &id[i]), 0);
		CHECK(total > 0 && avail <= total);
		disk_fixture_end();
	}
	CHECK_EQ(id[0], id[1]);
	CHECK(id[0] != id[2] || !id[0]);
}

TEST_MAIN(TEST(a_missing_directory_is_refused), TEST(a_directory_without_id_is_refused),
	  TEST(a_file_instead_of_a_directory_is_refused), TEST(a_damaged_id_is_refused),
	  TEST(another_file_system_or_server_is_refused), TEST(a_newer_format_is_refused),
	  TEST(a_directory_in_use_is_refused), TEST(missing_parts_are_refused),
	  TEST(lost_objects_are_made_anew_and_nothing_else), TEST(formatting_twice_is_refused),
	  TEST(the_names_of_a_broken_format_are_synced),
	  TEST(formatting_where_no_parent_is_says_so),
	  TEST(a_clean_stop_keeps_the_verifier_and_anything_else_does_not),
	  TEST(a_damaged_clean_file_counts_as_none),
	  TEST(a_stop_that_cannot_sync_changes_the_verifier),
	  TEST(a_count_that_was_not_synced_is_written_again), TEST(free_space_is_reported))
