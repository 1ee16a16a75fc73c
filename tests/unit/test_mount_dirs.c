/* What the mount remembers of directories after its own changes, and when it asks the server
 * instead. The test takes the place of the library. */
#include "mount/mount_priv.h"

#include "test.h"

#define D 5
#define E 6

static struct mount m;
static struct sheaf_dir_after told[2]; /* results of the last change */
static int n_told;

int sheaf_h_dir_after(struct sheaf_dir_after out[2])
{
	memcpy(out, told, (size_t)n_told * sizeof(*out));
	return n_told;
}

static struct worker self;
__thread struct worker *worker_self;
static uint64_t notified; /* the last directory that the kernel was notified of */

int fuse_lowlevel_notify_inval_inode(struct fuse_session *se, fuse_ino_t ino, off_t off, off_t len)
{
	(void)se;
	CHECK_EQ(off, -1);
	CHECK_EQ(len, 0);
	notified = ino;
	return 0;
}

static void begin(void)
{
	worker_self = &self;
	notified = 0;
	m = (struct mount){ .o.attr_s = 3600 };
	pthread_mutex_init(&m.lock, NULL);
}

/* Sets the result of a change: `change` is also stored as the size. */
static void tell(int i, uint64_t dir, uint64_t change)
{
	n_told = i + 1;
	told[i] = (struct sheaf_dir_after){ .dir = { dir, SHEAF_GEN },
					    .change = change,
					    .st = { .st_ino = dir, .st_size = (off_t)change } };
}

static struct dir_change starts(uint64_t dir)
{
	return dirs_begin(&m, dir, 0, false);
}

static void ends(const struct dir_change *d, uint64_t change)
{
	tell(0, d->dirs[0], change);
	dirs_end(&m, d, true);
}

static void change_at(uint64_t dir, uint64_t change)
{
	struct dir_change d = starts(dir);

	ends(&d, change);
}

/* The `change` of the remembered attributes, or 0. */
static uint64_t known(uint64_t dir)
{
	struct stat st;
	double left;

	return dir_known(&m, dir, &st, &left) ? (uint64_t)st.st_size : 0;
}

static void attributes_in_the_answer_to_a_change_are_remembered(void)
{
	begin();
	CHECK_EQ(known(D), 0);
	change_at(D, 10);
	CHECK_EQ(known(D), 10);
	CHECK_EQ(known(E), 0);
	change_at(D, 11);
	change_at(E, 20);
	CHECK_EQ(known(D), 11);
	CHECK_EQ(known(E), 20);
}

static void attributes_of_another_directory_are_ignored(void)
{
	struct dir_change d;

	begin();
	change_at(D, 10);
	d = starts(D);
	tell(0, E, 11);
	dirs_end(&m, &d, true);
	CHECK_EQ(known(D), 0);
	CHECK_EQ(known(E), 0);
	d = starts(D);
	tell(0, D, 12);
	told[0].dir.gen++;
	dirs_end(&m, &d, true);
	CHECK_EQ(known(D), 0);
}

static void while_one_is_under_way_the_server_is_asked(void)
{
	struct dir_change a, b;

	begin();
	change_at(D, 10);
	a = starts(D);
	b = starts(D);
	CHECK_EQ(known(D), 0);
	ends(&b, 12);
	CHECK_EQ(known(D), 0);
	ends(&a, 11); /* older than the remembered attributes */
	CHECK_EQ(known(D), 12);
}

static void an_end_without_an_answer_forgets(void)
{
	struct dir_change a, b, u;

	begin();
	a = starts(D);
	change_at(D, 12);
	u = starts(D);
	dirs_end(&m, &u, false);
	CHECK_EQ(known(D), 0);
	b = starts(D);
	ends(&a, 11); /* it began before the unknown change and may not contain it */
	ends(&b, 14);
	CHECK_EQ(known(D), 0); /* b is not known to be newer than a */
	change_at(D, 15);
	CHECK_EQ(known(D), 15);
}

/* A change that began early and happened late: the remembered attributes must not hide it. */
static void a_newer_one_that_cannot_be_kept_forgets_the_older(void)
{
	struct dir_change a, u;

	begin();
	a = starts(D);
	u = starts(D);
	dirs_end(&m, &u, false);
	change_at(D, 12);
	ends(&a, 13);
	CHECK_EQ(known(D), 0);
}

static void what_the_kernel_saw_is_not_followed_by_older(void)
{
	struct dir_change a;

	begin();
	change_at(D, 10);
	a = starts(D);
	dir_forget(&m, D); /* the kernel may have seen 12 */
	ends(&a, 11);
	CHECK_EQ(known(D), 0);
	change_at(D, 13);
	CHECK_EQ(known(D), 13);
	dir_forget(&m, D);
	CHECK_EQ(known(D), 0);
}

/* The mount does not know which directory is replaced or moved: it forgets all directories except
 * the two of the rename itself. */
static void a_rename_forgets_all_others(void)
{
	struct dir_change r, a;

	begin();
	change_at(D, 10);
	change_at(E, 20);
	change_at(7, 30);
	a = starts(8);
	r = dirs_begin(&m, D, E, true);
	CHECK_EQ(known(7), 0);
	tell(0, D, 11);
	tell(1, E, 21);
	dirs_end(&m, &r, true);
	CHECK_EQ(known(D), 11);
	CHECK_EQ(known(E), 21);
	CHECK_EQ(known(7), 0);
	ends(&a, 40); /* was in flight during the rename */
	CHECK_EQ(known(8), 0);
	r = dirs_begin(&m, D, D, true); /* both names are in one directory */
	tell(0, D, 12);
	dirs_end(&m, &r, true);
	CHECK_EQ(known(D), 12);
	CHECK_EQ(known(E), 0);
	CHECK_EQ(m.hints[hash_u64(D) % HINTS].changing, 0);
}

static uint64_t neighbour_of(uint64_t ino)
{
	uint64_t n = ino + 1;

	while (hash_u64(n) % HINTS != hash_u64(ino) % HINTS)
		n++;
	return n;
}

static void a_slot_of_another_inode_is_a_miss(void)
{
	uint64_t n = neighbour_of(D);
	struct dir_change a, b;

	begin();
	change_at(D, 10);
	hint_set_lacks(&m, n, "security.capability", m.n_xattr_sets);
	CHECK_EQ(known(D), 0);
	CHECK_EQ(known(n), 0);
	a = starts(D);
	change_at(D, 12);
	hint_set_lacks(&m, n, "security.capability", m.n_xattr_sets);
	b = starts(D);
	ends(&a, 11); /* change 12 was forgotten */
	ends(&b, 13);
	CHECK_EQ(known(D), 0);
	change_at(D, 14);
	CHECK_EQ(known(D), 14);
	b = dirs_begin(&m, D, n, true); /* two directories share one hint */
	tell(0, D, 15);
	tell(1, n, 50);
	dirs_end(&m, &b, true);
	CHECK_EQ(known(D), 0);
	CHECK_EQ(m.hints[hash_u64(D) % HINTS].changing, 0);
	change_at(n, 51);
	CHECK_EQ(known(n), 51);
}

static void it_counts_from_the_question_and_not_for_longer_than_attr(void)
{
	struct dir_change d;
	struct stat st;
	double left;

	begin();
	d = starts(D);
	d.asked -= 1000 * NSEC_PER_SEC; /* the change took 1000 s */
	ends(&d, 10);
	CHECK(dir_known(&m, D, &st, &left));
	CHECK(left <= 2600 && left > 2500);
	m.o.attr_s = 999;
	CHECK(!dir_known(&m, D, &st, &left));
	m.o.attr_s = 0;
	change_at(D, 11);
	CHECK_EQ(known(D), 0);
}

/* The answers to other processes may still be on their way into the kernel. */
static void the_kernel_is_notified_if_other_threads_asked(void)
{
	begin();
	self.ctx.pid = 1;
	CHECK(!dir_is_changing(&m, D));
	dir_note_asked(&m, D);
	change_at(D, 1);
	CHECK_EQ(notified, 0); /* no other process has asked */
	CHECK(dir_is_changing(&m, D));
	self.ctx.pid = 2;
	dir_note_asked(&m, E);
	change_at(E, 2);
	CHECK_EQ(notified, 0);
	dir_note_asked(&m, D);
	change_at(D, 3); /* the own request of process 2 does not replace that of process 1 */
	CHECK_EQ(notified, D);
	notified = 0;
	change_at(D, 4);
	CHECK_EQ(notified, 0); /* the kernel has dropped its cached attributes */
	self.ctx.pid = 1;
	dir_note_asked(&m, D);
	self.ctx.pid = 2;
	change_at(D, 5);
	CHECK_EQ(notified, D); /* another process asked again */
	notified = 0;
	m.hints[hash_u64(D) % HINTS].notified_at = 0;
	m.hints[hash_u64(D) % HINTS].asked_at -= 2 * NSEC_PER_SEC;
	change_at(D, 6);
	CHECK_EQ(notified, 0); /* the other request was too long ago */
	m.hints[hash_u64(D) % HINTS].changed -= 2 * NSEC_PER_SEC;
	CHECK(!dir_is_changing(&m, D));
}

TEST_MAIN(TEST(the_kernel_is_notified_if_other_threads_asked),
	  TEST(attributes_in_the_answer_to_a_change_are_remembered),
	  TEST(attributes_of_another_directory_are_ignored),
	  TEST(while_one_is_under_way_the_server_is_asked), TEST(an_end_without_an_answer_forgets),
	  TEST(a_newer_one_that_cannot_be_kept_forgets_the_older),
	  TEST(what_the_kernel_saw_is_not_followed_by_older), TEST(a_rename_forgets_all_others),
	  TEST(a_slot_of_another_inode_is_a_miss),
	  TEST(it_counts_from_the_question_and_not_for_longer_than_attr))
