/* Full disks, on small tmpfs mounts in a private mount namespace: the error is -ENOSPC, no server
 * crashes, no acknowledged write is lost, and everything works again when there is room. */
#include <sched.h>
#include <sys/mount.h>

#include "small_disk.h"

#define CHUNK (256 << 10)

/* Writes pattern bytes until the disk is full; returns how many were acknowledged. */
static uint64_t fill(struct sheaf_file *f)
{
	static uint8_t b[CHUNK];
	uint64_t at = 0;

	for (size_t n = CHUNK; n >= 4096;) { /* smaller writes fill the rest */
		ssize_t r;

		fill_pattern(b, n, 2, at);
		r = sheaf_pwrite(f, b, n, (off_t)at);
		if (r == (ssize_t)n) {
			at += n;
			CHECK(at < 64 << 20);
			continue;
		}
		CHECK_EQ(r, -ENOSPC);
		n /= 2;
	}
	return at;
}

static void check_pattern(struct sheaf_file *f, uint64_t bytes, uint64_t seed)
{
	static uint8_t b[CHUNK];

	for (uint64_t at = 0; at < bytes; at += CHUNK) {
		size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;

		CHECK_EQ(sheaf_pread(f, b, n, (off_t)at), (ssize_t)n);
		CHECK(is_pattern(b, n, seed, at));
	}
}

static bool fits(struct sheaf *fs, const char *path)
{
	static uint8_t b[2 << 20];
	struct sheaf_file *f = open_file(fs, path, O_CREAT | O_RDWR | O_TRUNC);
	ssize_t r;

	fill_pattern(b, sizeof(b), 3, 0);
	r = sheaf_pwrite(f, b, sizeof(b), 0);
	CHECK(r == (ssize_t)sizeof(b) || r == -ENOSPC);
	if (r > 0)
		check_pattern(f, sizeof(b), 3);
	CHECK_EQ(sheaf_close(f), 0);
	return r > 0;
}

static void a_full_data_disk_refuses_and_recovers(void)
{
	struct cluster c;
	struct sheaf *fs;
	struct sheaf_file *a, *b;
	uint64_t acked;
	uint32_t pid;

	small_disk_start(&c, 1, "8m");
	fs = client_connect(c.conf);
	make_file(fs, "/early", 1 << 20, 1);
	a = open_file(fs, "/early", O_RDWR);
	CHECK_EQ(sheaf_fsync(a), 0);
	pid = server_status(fs, 1).pid;
	b = open_file(fs, "/big", O_CREAT | O_RDWR);
	acked = fill(b);
	CHECK(acked > 3 << 20);
	CHECK_EQ(server_status(fs, 1).pid, pid);
	check_pattern(b, acked, 2); /* all acknowledged data */
	check_file(fs, "/early", 1 << 20, 1);
	CHECK_EQ(sheaf_fsync(b), 0);
	CHECK_EQ(sheaf_close(b), 0);
	CHECK_EQ(sheaf_unlink(fs, "/big"), 0);
	CHECK(WITHIN(PATIENCE_S, fits(fs, "/later"))); /* objects are removed in the background */
	CHECK_EQ(server_status(fs, 1).pid, pid);
	check_pattern(a, 1 << 20, 1);
	CHECK_EQ(sheaf_close(a), 0);
	sheaf_disconnect(fs);
	small_disk_stop(&c);
}

/* -ENOSPC would be wrong while the room of removed files is not free yet: no write after an unlink
 * may get it. */
static void removed_files_give_their_room_to_the_next_write(void)
{
	struct cluster c;
	struct sheaf_file *f;
	struct sheaf *fs;
	struct stat st;

	small_disk_start(&c, 1, "8m");
	fs = client_connect(c.conf);
	for (int i = 0; i < 10; i++) {
		f = open_file(fs, "/big", O_CREAT | O_RDWR);
		CHECK(fill(f) > 3 << 20);
		CHECK_EQ(sheaf_close(f), 0);
		CHECK_EQ(sheaf_unlink(fs, "/big"), 0);
		if (i % 2) {
			CHECK(fits(fs, "/later"));
		} else {
			f = open_file(fs, "/later", O_CREAT | O_RDWR | O_APPEND);
			CHECK_EQ(sheaf_fallocate(f, 0, 0, 2 << 20), 0);
			CHECK_EQ(sheaf_close(f), 0);
		}
		CHECK_EQ(sheaf_stat(fs, "/later", &st), 0);
		CHECK_EQ(st.st_size, 2 << 20);
		CHECK_EQ(sheaf_unlink(fs, "/later"), 0);
	}
	sheaf_disconnect(fs);
	small_disk_stop(&c);
}

/* An unlinked file that is open frees no room: the error comes without waiting for that. */
static void a_full_disk_without_removals_refuses_at_once(void)
{
	static uint8_t b[CHUNK];
	struct cluster c;
	struct sheaf_file *f;
	struct sheaf *fs;
	double began;

	small_disk_start(&c, 1, "8m");
	fs = client_connect(c.conf);
	f = open_file(fs, "/big", O_CREAT | O_RDWR);
	fill(f);
	CHECK_EQ(sheaf_unlink(fs, "/big"), 0);
	pause_ms(200); /* time for the removal to find the file open */
	began = now_s();
	for (int i = 0; i < 10; i++)
		CHECK_EQ(sheaf_pwrite(f, b, sizeof(b), 32 << 20), -ENOSPC);
	CHECK(now_s() - began < 25); /* ten waits for removals would take 50 s */
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
	small_disk_stop(&c);
}

static void truncate_frees_a_full_disk(void)
{
	struct cluster c;
	struct sheaf *fs;
	struct sheaf_file *f;
	uint64_t acked;

	small_disk_start(&c, 1, "8m");
	fs = client_connect(c.conf);
	f = open_file(fs, "/big", O_CREAT | O_RDWR);
	acked = fill(f);
	CHECK_EQ(sheaf_ftruncate(f, 100000), 0);
	CHECK(fits(fs, "/other"));
	check_pattern(f, 100000, 2);
	CHECK(acked > 100000);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
	small_disk_stop(&c);
}

/* Allocated room can be written when the disk is full; allocating more than there is fails. */
static void allocated_room_stays_on_a_full_disk(void)
{
	static uint8_t b[2 << 20];
	struct cluster c;
	struct sheaf *fs;
	struct sheaf_file *f, *g;
	struct stat st;

	small_disk_start(&c, 1, "8m");
	fs = client_connect(c.conf);
	f = open_file(fs, "/kept", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_KEEP_SIZE, 0, sizeof(b)), 0);
	CHECK_EQ(sheaf_fstat(f, &st), 0);
	CHECK_EQ(st.st_size, 0);
	g = open_file(fs, "/big", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_fallocate(g, 0, 0, 100 << 20), -ENOSPC);
	CHECK_EQ(sheaf_ftruncate(g, 0), 0);
	CHECK(fill(g) > 0);
	fill_pattern(b, sizeof(b), 4, 0);
	CHECK_EQ(sheaf_pwrite(f, b, sizeof(b), 0), sizeof(b));
	check_pattern(f, sizeof(b), 4);
	CHECK_EQ(sheaf_copy_range(f, 0, g, 64 << 20, sizeof(b)), -ENOSPC);
	CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(b)), 0);
	CHECK_EQ(sheaf_fallocate(g, 0, 64 << 20, sizeof(b) / 2), 0); /* the punched room is free */
	CHECK_EQ(sheaf_close(f) | sheaf_close(g), 0);
	sheaf_disconnect(fs);
	small_disk_stop(&c);
}

/* A server whose disk is full can be stopped, killed and started like any other. */
static void a_server_with_a_full_disk_restarts(void)
{
	struct cluster c;
	struct sheaf *fs;
	struct sheaf_file *f;
	uint64_t acked;

	small_disk_start(&c, 1, "8m");
	fs = client_connect(c.conf);
	f = open_file(fs, "/big", O_CREAT | O_RDWR);
	acked = fill(f);
	CHECK_EQ(sheaf_fsync(f), 0);
	server_down(&c, 1);
	CHECK_EQ(server_up(&c, 1), 0);
	check_pattern(f, acked, 2);
	server_kill(&c, 1);
	CHECK_EQ(server_up(&c, 1), 0);
	check_pattern(f, acked, 2);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_unlink(fs, "/big"), 0);
	CHECK(WITHIN(PATIENCE_S, fits(fs, "/later")));
	sheaf_disconnect(fs);
	small_disk_stop(&c);
}

static void fill_with_names(const char *size)
{
	struct cluster c;
	struct sheaf *fs;
	struct stat st;
	char path[300];
	uint32_t pid;
	int n = 0, r = 0;

	small_disk_start(&c, 0, size);
	fs = client_connect(c.conf);
	make_file(fs, "/early", 1 << 20, 1);
	pid = server_status(fs, 0).pid;
	for (; n < 100000 && r == 0; n++) {
		snprintf(path, sizeof(path), "/%0200d", n);
		r = sheaf_mkdir(fs, path, 0755);
	}
	CHECK_EQ(r, -ENOSPC);
	n--;
	printf("  %d directories\n", n);
	CHECK_EQ(server_status(fs, 0).pid, pid);
	/* every acknowledged directory exists */
	for (int i = 0; i < n; i += 1 + n / 50) {
		snprintf(path, sizeof(path), "/%0200d", i);
		CHECK_EQ(sheaf_stat(fs, path, &st), 0);
	}
	CHECK_EQ(sheaf_stat(fs, "/early", &st), 0);
	CHECK_EQ(st.st_size, 1 << 20);
	server_kill(&c, 0);
	CHECK_EQ(server_up(&c, 0), 0);
	snprintf(path, sizeof(path), "/%0200d", n - 1);
	CHECK_EQ(sheaf_stat(fs, path, &st), 0);
	/* names can be removed from a full disk, and new names use their room */
	for (int i = 0; i < n / 2; i++) {
		snprintf(path, sizeof(path), "/%0200d", i);
		CHECK_EQ(sheaf_rmdir(fs, path), 0);
	}
	for (int i = 0; i < n / 4; i++) {
		snprintf(path, sizeof(path), "/%0200d", i);
		CHECK_EQ(sheaf_mkdir(fs, path, 0755), 0);
	}
	sheaf_disconnect(fs);
	small_disk_stop(&c);
}

static void a_full_metadata_disk_refuses_creates(void)
{
	fill_with_names("2m");
}

/* Large enough that LMDB writes through its mapping, which grows until the tmpfs is full: no
 * SIGBUS. */
static void a_full_metadata_memory_refuses_creates(void)
{
	fill_with_names("20m");
}

/* Inodes, too, are removed in the background. */
static void removed_files_give_their_room_to_new_names(void)
{
	struct cluster c;
	struct sheaf *fs;
	char path[300];
	int n = 0, r = 0;

	small_disk_start(&c, 0, "2m");
	fs = client_connect(c.conf);
	for (; n < 100000 && r == 0; n++) {
		struct sheaf_file *f;

		snprintf(path, sizeof(path), "/%0200d", n);
		r = sheaf_open(fs, path, O_CREAT | O_WRONLY, 0644, NULL, &f);
		if (!r)
			CHECK_EQ(sheaf_close(f), 0);
	}
	CHECK_EQ(r, -ENOSPC);
	n--;
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/%0200d", i);
		CHECK_EQ(sheaf_unlink(fs, path), 0);
	}
	for (int i = 0; i < n * 9 / 10; i++) {
		snprintf(path, sizeof(path), "/%0200d", i);
		CHECK_EQ(sheaf_mkdir(fs, path, 0755), 0);
	}
	sheaf_disconnect(fs);
	small_disk_stop(&c);
}

static void begin(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		SKIP_ALL("mounting a small tmpfs is not permitted here");
}

/* Small pieces over data and over holes: the first need no room and succeed, the second fail with
 * -ENOSPC, and the server survives. */
static void a_list_over_holes_of_a_full_disk_is_refused(void)
{
	static uint8_t b[64 * 4096];
	struct cluster c;
	struct sheaf_file *f, *filler;
	struct sheaf_extent there[32], holes[32];
	struct iovec mem[32];
	struct sheaf *fs;

	small_disk_start(&c, 1, "12m");
	fs = client_connect(c.conf);
	f = open_file(fs, "/strided", O_RDWR | O_CREAT);
	fill_pattern(b, sizeof(b), 1, 0);
	CHECK_EQ(sheaf_pwrite(f, b, sizeof(b), 0), (ssize_t)sizeof(b));
	CHECK_EQ(sheaf_ftruncate(f, 4 << 20), 0); /* holes after the data */
	filler = open_file(fs, "/filler", O_RDWR | O_CREAT);
	fill(filler);
	for (int i = 0; i < 32; i++) {
		mem[i] = (struct iovec){ b + i * 100, 100 };
		there[i] = (struct sheaf_extent){ (uint64_t)i * 8192 + 50, 100 };
		holes[i] = (struct sheaf_extent){ (1 << 20) + (uint64_t)i * 8192, 100 };
	}
	CHECK_EQ(sheaf_write_list(f, mem, 32, there, 32), 3200);
	CHECK_EQ(sheaf_write_list(f, mem, 32, holes, 32), -ENOSPC);
	for (int i = 0; i < 32; i++) {
		uint8_t out[100];

		CHECK_EQ(sheaf_pread(f, out, 100, (off_t)there[i].offset), 100);
		CHECK(memcmp(out, b + i * 100, 100) == 0);
	}
	CHECK_EQ(sheaf_close(filler), 0);
	CHECK_EQ(sheaf_unlink(fs, "/filler"), 0);
	for (int tries = 0; sheaf_write_list(f, mem, 32, holes, 32) != 3200; tries++) {
		CHECK(tries < PATIENCE_S * 20);
		pause_ms(50); /* the room is free soon */
	}
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
	small_disk_stop(&c);
}

SYS_MAIN(NULL, begin, NULL, TEST(a_full_data_disk_refuses_and_recovers),
	 TEST(removed_files_give_their_room_to_the_next_write),
	 TEST(a_full_disk_without_removals_refuses_at_once),
	 TEST(removed_files_give_their_room_to_new_names), TEST(truncate_frees_a_full_disk),
	 TEST(allocated_room_stays_on_a_full_disk), TEST(a_server_with_a_full_disk_restarts),
	 TEST(a_full_metadata_disk_refuses_creates), TEST(a_full_metadata_memory_refuses_creates),
	 TEST(a_list_over_holes_of_a_full_disk_is_refused))
