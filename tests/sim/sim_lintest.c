/* Checks of the judges, with histories that have an explanation and histories that have none,
 * and of the disk below LMDB. */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim_env.h"
#include "sim_lin.h"
#include "sim_priv.h"

#define D0 10
#define D1 11
#define CHECK(cond) check(!!(cond), #cond, __LINE__)

static void check(int ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "sim_lintest.c:%d: not true: %s\n", line, what);
	exit(1);
}

static enum lin_verdict judge(const struct lin_op *ops, uint32_t n)
{
	uint32_t bad;

	return lin_check(ops, n, D0, D1, false, &bad);
}

#define MADE(number) .created = true, .got = { .ino = number, .type = LIN_FILE, .nlink = 1 }
#define SEEN(number) .got = { .ino = number, .type = LIN_FILE, .nlink = 1 }

static void a_look_sees_what_was_answered_before(void)
{
	struct lin_op ops[] = {
		{ LIN_CREATE, .dir = D0, .began = 2, .ended = 3, MADE(20) },
		{ LIN_LOOKUP, .dir = D0, .began = 4, .ended = 5, SEEN(20) },
		{ LIN_READDIR, .dir = D0, .began = 6, .ended = 7, .n_list = 1,
		  .list = { { 0, 20 } } },
	};

	CHECK(judge(ops, 3) == LIN_OK);
	ops[1].result = -ENOENT;
	CHECK(judge(ops, 3) == LIN_WRONG);
	ops[1].began = 1; /* overlaps the first */
	CHECK(judge(ops, 3) == LIN_OK);
	ops[2].n_list = 0;
	CHECK(judge(ops, 3) == LIN_WRONG);
}

static void a_name_is_made_once(void)
{
	struct lin_op ops[] = {
		{ LIN_CREATE, .dir = D0, .flags = O_EXCL, .began = 1, .ended = 4, MADE(20) },
		{ LIN_CREATE, .dir = D0, .flags = O_EXCL, .began = 2, .ended = 3, MADE(21) },
	};

	CHECK(judge(ops, 2) == LIN_WRONG);
	ops[1] = (struct lin_op){ LIN_CREATE, .dir = D0,  .flags = O_EXCL,
				  .began = 2, .ended = 3, .result = -EEXIST };
	CHECK(judge(ops, 2) == LIN_OK);
	ops[1] = (struct lin_op){ LIN_CREATE, .dir = D1, .began = 2, .ended = 3, MADE(20) };
	CHECK(judge(ops, 2) == LIN_WRONG); /* one number for two files */
}

static void what_was_not_answered_may_happen_later_or_never(void)
{
	struct lin_op ops[] = {
		{ LIN_CREATE, .dir = D0, .began = 1, .ended = 2, MADE(20) },
		{ LIN_UNLINK, .dir = D0, .began = 3 },
		{ LIN_LOOKUP, .dir = D0, .began = 4, .ended = 5, SEEN(20) },
		{ LIN_LOOKUP, .dir = D0, .began = 6, .ended = 7, .result = -ENOENT },
		{ LIN_CREATE, .dir = D1, .began = 8 },
		{ LIN_LOOKUP, .dir = D1, .began = 9, .ended = 10, SEEN(33) },
	};

	CHECK(judge(ops, 6) == LIN_OK);
	ops[5].got.ino = 20; /* which another operation made */
	CHECK(judge(ops, 6) == LIN_WRONG);
	ops[5].got.ino = 33;
	ops[2].began = 11; /* the name does not come back */
	ops[2].ended = 12;
	CHECK(judge(ops, 6) == LIN_WRONG);
}

static void a_rename_is_whole(void)
{
	struct lin_op ops[] = {
		{ LIN_CREATE, .dir = D0, .began = 1, .ended = 2, MADE(20) },
		{ LIN_RENAME, .dir = D0, .dir2 = D1, .name2 = 1, .began = 3, .ended = 8 },
		{ LIN_LOOKUP, .dir = D0, .began = 4, .ended = 5, .result = -ENOENT },
		{ LIN_LOOKUP, .dir = D1, .name = 1, .began = 6, .ended = 7, SEEN(20) },
	};

	CHECK(judge(ops, 4) == LIN_OK);
	ops[3].result = -ENOENT;
	CHECK(judge(ops, 4) == LIN_WRONG);
	ops[2].result = 0;
	ops[2].got = (struct lin_attr){ .ino = 20, .type = LIN_FILE, .nlink = 1 };
	CHECK(judge(ops, 4) == LIN_OK); /* both take effect before it */
}

static void a_change_reports_its_directories(void)
{
	struct lin_op ops[] = {
		{ LIN_CREATE, .dir = D0, .began = 1, .ended = 4, MADE(20), .n_after = 1,
		  .after = { { .ino = D0, .type = LIN_DIR, .mode = 0755, .nlink = 2, .size = 2 } } },
		{ LIN_CREATE, .dir = D0, .name = 1, .began = 2, .ended = 3, MADE(21) },
	};

	CHECK(judge(ops, 2) == LIN_OK);
	ops[0].after[0].size = 1; /* it took effect first */
	CHECK(judge(ops, 2) == LIN_OK);
	ops[0].began = 5;
	ops[0].ended = 6;
	CHECK(judge(ops, 2) == LIN_WRONG);
	ops[0].after[0].size = 2;
	CHECK(judge(ops, 2) == LIN_OK);
	ops[0].after[0].ino = D1;
	CHECK(judge(ops, 2) == LIN_WRONG);
}

/* A rename that changes nothing now may change something later: the search must not decide early
 * when it takes effect. */
static void two_names_of_one_file(void)
{
	struct lin_op ops[] = {
		{ LIN_CREATE, .dir = D0, .began = 1, .ended = 2, MADE(20) },
		{ LIN_LINK, .dir = D1, .ino = 20, .began = 3, .ended = 4,
		  .got = { .ino = 20, .nlink = 2 } },
		{ LIN_RENAME, .dir = D0, .dir2 = D1, .began = 5, .ended = 8 },
		{ LIN_RENAME, .dir = D1, .dir2 = D1, .name2 = 1, .began = 6, .ended = 7 },
		{ LIN_LOOKUP, .dir = D0, .began = 9, .ended = 10, .result = -ENOENT },
	};

	CHECK(judge(ops, 5) == LIN_OK);
	ops[2].began = 5;
	ops[2].ended = 6;
	ops[3].began = 7;
	ops[3].ended = 8;
	CHECK(judge(ops, 5) == LIN_WRONG);
}

static void directories_do_not_land_in_each_other(void)
{
	struct lin_op ops[] = {
		{ LIN_MKDIR, .dir = D0, .began = 1, .ended = 2, .created = true,
		  .got = { .ino = 20 } },
		{ LIN_MKDIR, .dir = D1, .began = 3, .ended = 4, .created = true,
		  .got = { .ino = 21 } },
		{ LIN_RENAME, .dir = D0, .dir2 = 21, .began = 5, .ended = 8 },
		{ LIN_RENAME, .dir = D1, .dir2 = 20, .began = 6, .ended = 7 },
	};

	CHECK(judge(ops, 4) == LIN_WRONG);
	ops[3].result = -EINVAL;
	CHECK(judge(ops, 4) == LIN_OK);
	ops[3].flags = RENAME_EXCHANGE;
	ops[3].result = -ENOENT;
	/* before the other operation; after it the result would be EINVAL */
	CHECK(judge(ops, 4) == LIN_OK);
}

/* ---- the disk below LMDB ---- */

static uint8_t byte_of(int fd)
{
	uint8_t b = 0;

	CHECK(pread(fd, &b, 1, 0) == 1);
	return b;
}

static void torn(void *arg)
{
	*(bool *)arg = true;
}

static void an_unsynced_page_of_the_database_may_be_lost(void)
{
	char file[] = "/tmp/sheaf-lintest-XXXXXX";
	int fd = mkstemp(file), lost = 0;
	bool power = false;

	CHECK(fd >= 0 && close(fd) == 0);
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct sim sim;
		struct sim_node *n;

		sim_init(&sim, seed);
		n = sim_node_add(&sim, "n");
		n->torn = torn;
		n->torn_arg = &power;
		sim_db_add(n, file);
		fd = open(file, O_RDWR);
		CHECK(pwrite(fd, "a", 1, 0) == 1 && fdatasync(fd) == 0);
		CHECK(pwrite(fd, "b", 1, 0) == 1 && pwrite(fd, "c", 1, 0) == 1);
		sim_db_crash(n, false);
		CHECK(byte_of(fd) == 'c'); /* a kill loses nothing */
		sim_db_crash(n, true);
		CHECK(byte_of(fd) == 'a' || byte_of(fd) == 'b' || byte_of(fd) == 'c');
		lost += byte_of(fd) != 'c';
		close(fd);
		fd = open(file, O_RDWR);
		sim.faults.meta_torn = 1000000;
		CHECK(pwrite(fd, "d", 1, 0) == -1 && errno == EIO && power);
		sim.faults.meta_torn = 0;
		/* fail until the restart */
		CHECK(fdatasync(fd) == -1 && pwrite(fd, "d", 1, 0) == -1);
		sim_db_crash(n, true);
		close(fd);
		sim_fini(&sim);
	}
	CHECK(lost > 5 && lost < 40);
	unlink(file);
}

void sim_lintest(void)
{
	a_look_sees_what_was_answered_before();
	a_name_is_made_once();
	what_was_not_answered_may_happen_later_or_never();
	a_rename_is_whole();
	a_change_reports_its_directories();
	two_names_of_one_file();
	directories_do_not_land_in_each_other();
	an_unsynced_page_of_the_database_may_be_lost();
}
