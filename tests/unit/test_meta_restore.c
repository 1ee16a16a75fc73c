/* Copies of the database while it is in use, and restarts from such a copy. */
#include <fcntl.h>

#include "acl_text.h"
#include "meta/meta_schema.h"
#include "meta_fake.h"

static struct fake f;
static char saved[80]; /* path of the copy's bytes, outside of the database's directory */

static void record(struct wire_handle h, uint64_t epoch, uint64_t size, uint32_t flags)
{
	struct wire_record r = rec_on(&f, REC_RECORD, h);

	r.epoch = epoch;
	r.size = size;
	r.flags = flags;
	CHECK_EQ(fake_apply(&f, &r).status, 0);
}

/* Makes a copy and keeps its bytes. Returns the part that describes them. */
static struct meta_part copy(void)
{
	static uint8_t bytes[8 << 20];
	struct meta_part p = { .time = 1000 };
	struct meta_copy *c;
	int fd;

	CHECK_EQ(meta_copy_start(f.m, &c), 0);
	CHECK_EQ(meta_copy_file(c, &p.size), -EAGAIN);
	fake_pump(&f);
	fd = meta_copy_file(c, &p.size);
	CHECK(fd >= 0);
	CHECK(p.size > 0 && p.size < sizeof(bytes));
	CHECK_EQ(pread(fd, bytes, p.size, 0), (ssize_t)p.size);
	meta_copy_end(c);
	snprintf(saved, sizeof(saved), "%s.copy", f.dir);
	p.fd = open(saved, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(p.fd >= 0);
	p.off = 100; /* as if the copy were inside a larger file */
	CHECK_EQ(pwrite(p.fd, bytes, p.size, 100), (ssize_t)p.size);
	p.crc = crc32c(0, bytes, p.size);
	unlink(saved);
	return p;
}

/* Replaces the closed database with the copy and opens it again. */
static void restore(const struct meta_part *p)
{
	meta_close(f.m);
	f.m = NULL;
	if (meta_restore(&f.o, p, f.err, sizeof(f.err))) {
		fprintf(stderr, "%s\n", f.err);
		CHECK(!"meta_restore");
	}
	CHECK_EQ(fake_open(&f), 0);
	close(p->fd);
}

static void a_copy_is_a_snapshot_and_blocks_no_change(void)
{
	struct wire_handle h;
	struct meta_part p;

	fake_start(&f);
	fake_make(&f, REC_CREATE, fake_root, "before");
	p = copy();
	fake_make(&f, REC_CREATE, fake_root, "after");
	CHECK_EQ(fake_name(&f, REC_UNLINK, fake_root, "before").status, 0);
	restore(&p);
	CHECK_EQ(fake_lookup(&f, fake_root, "before", &h), 0);
	CHECK_EQ(fake_lookup(&f, fake_root, "after", &h), -ENOENT);
	fake_end(&f);
}

static void lists_come_back(void)
{
	struct acl_bytes list = acl_sample();
	struct wire_handle file, dir;
	struct wire_record r;
	struct meta_part p;

	fake_start(&f);
	dir = fake_make(&f, REC_MKDIR, fake_root, "dir");
	r = rec_on(&f, REC_SETXATTR, dir);
	r.name = wire_text(DEFAULT_ACL);
	r.data = (struct wire_bytes){ list.len, list.b };
	CHECK_EQ(fake_apply(&f, &r).status, 0);
	file = fake_make(&f, REC_CREATE, dir, "file");
	p = copy();
	r.data.len = 0;
	CHECK_EQ(fake_apply(&f, &r).status, 0);
	restore(&p);
	CHECK_EQ(fake_node(&f, dir).default_acl.len, list.len);
	CHECK_EQ(fake_node(&f, file).acl.len, list.len);
	CHECK_EQ(fake_node(&f, file).attr.mode & 0777, 0751);
	fake_end(&f);
}

static void a_copy_that_is_cancelled_says_so(void)
{
	struct meta_copy *c;
	uint64_t size;

	fake_start(&f);
	CHECK_EQ(meta_copy_start(f.m, &c), 0);
	meta_copy_cancel(c);
	fake_pump(&f);
	CHECK_EQ(meta_copy_file(c, &size), -ECANCELED);
	meta_copy_end(c);
	CHECK_EQ(meta_copy_start(f.m, &c), 0); /* the copy is not even started */
	meta_copy_end(c);
	fake_end(&f);
}

static void nothing_that_was_given_since_is_given_again(void)
{
	struct wire_handle old, since, made;
	struct wire_record r = { .kind = REC_MAP, .data = wire_text("a map"), .epoch = 7 };
	struct wire_record settle;
	struct wire_bytes blob;
	struct meta_part p;
	uint32_t version;
	uint64_t epoch;

	fake_start(&f);
	old = fake_make(&f, REC_CREATE, fake_root, "old");
	CHECK_EQ(fake_apply(&f, &r).status, 0);
	p = copy();
	for (int i = 0; i < 20; i++) {
		settle = rec_on(&f, REC_SETTLE_BEGIN, old);
		epoch = fake_apply(&f, &settle).epoch;
	}
	since = fake_make(&f, REC_CREATE, fake_root, "since");
	r.epoch = 8;
	CHECK_EQ(fake_apply(&f, &r).status, 0);
	restore(&p);
	made = fake_make(&f, REC_CREATE, fake_root, "made");
	CHECK(made.ino > since.ino + 1000000);
	CHECK_EQ(INO_PARTITION(made.ino), 0);
	CHECK(fake_node(&f, old).epoch > epoch + 1000000);
	CHECK_EQ(meta_map(f.m, &version, &blob, &f.arena), 0);
	CHECK(version > 8);
	CHECK_EQ(blob.len, 5);
	CHECK_EQ(memcmp(blob.p, "a map", 5), 0);
	fake_end(&f);
}

static void every_file_is_unsettled_afterwards(void)
{
	struct wire_record_res res;
	struct wire_handle a, b;
	struct wire_record r;
	struct meta_part p;

	fake_start(&f);
	a = fake_make(&f, REC_CREATE, fake_root, "a");
	b = fake_make(&f, REC_CREATE, fake_make(&f, REC_MKDIR, fake_root, "d"), "b");
	record(a, 1, 1000, REC_LAST_WRITER);
	CHECK_EQ(fake_rows(&f, ROWS_UNSETTLED), 0);
	p = copy();
	restore(&p);
	CHECK_EQ(fake_rows(&f, ROWS_UNSETTLED), 2); /* the directory is not unsettled */
	CHECK(fake_node(&f, a).attr.unsettled && fake_node(&f, b).attr.unsettled);
	CHECK(!fake_node(&f, a).objects_within_size && !fake_node(&f, b).objects_within_size);
	CHECK_EQ(fake_node(&f, a).attr.size, 1000);
	r = rec_on(&f, REC_SETTLE_BEGIN, a); /* the file can be settled */
	res = fake_apply(&f, &r);
	r = rec_on(&f, REC_SETTLE_END, a);
	r.epoch = res.epoch;
	r.size = 5000;
	CHECK_EQ(fake_apply(&f, &r).status, 0);
	CHECK_EQ(fake_node(&f, a).attr.size, 5000);
	CHECK_EQ(fake_rows(&f, ROWS_UNSETTLED), 1);
	fake_end(&f);
}

static void a_truncate_that_was_under_way_counts_as_done(void)
{
	struct wire_record begin;
	struct wire_handle h;
	struct meta_part p;

	fake_start(&f);
	h = fake_make(&f, REC_CREATE, fake_root, "file");
	record(h, 1, 1000, REC_LAST_WRITER);
	begin = rec_on(&f, REC_TRUNC_BEGIN, h);
	begin.size = 10;
	CHECK_EQ(fake_apply(&f, &begin).status, 0);
	p = copy();
	restore(&p);
	CHECK_EQ(fake_rows(&f, ROWS_TRUNCATE), 0);
	CHECK_EQ(fake_node(&f, h).attr.size, 10);
	CHECK(fake_node(&f, h).attr.unsettled); /* the objects decide its size */
	fake_end(&f);
}

static void removals_go_on(void)
{
	struct meta_part p;

	fake_start(&f);
	fake_make(&f, REC_CREATE, fake_root, "file");
	CHECK_EQ(fake_name(&f, REC_UNLINK, fake_root, "file").status, 0);
	p = copy();
	restore(&p);
	CHECK_EQ(fake_rows(&f, ROWS_REMOVE), 1);
	fake_end(&f);
}

static void many_files_take_several_transactions(void)
{
	enum { N = 5000 };
	struct meta_part p;
	char name[16];

	fake_start(&f);
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%d", i);
		fake_make(&f, REC_CREATE, fake_root, name);
		fake_reset(&f);
	}
	p = copy();
	restore(&p);
	CHECK_EQ(fake_rows(&f, ROWS_UNSETTLED), N);
	fake_end(&f);
}

/* A refused copy leaves the database unchanged. */
static void refused(const struct meta_opts *o, const struct meta_part *p, int error,
		    const char *says)
{
	struct wire_handle h;

	meta_close(f.m);
	f.m = NULL;
	CHECK_EQ(meta_restore(o, p, f.err, sizeof(f.err)), error);
	CHECK(strstr(f.err, says));
	CHECK_EQ(fake_open(&f), 0);
	CHECK_EQ(fake_lookup(&f, fake_root, "since", &h), 0);
}

static void wrong_copies_are_refused(void)
{
	struct meta_opts o;
	struct meta_part p, bad;

	fake_start(&f);
	p = copy();
	fake_make(&f, REC_CREATE, fake_root, "since");
	bad = p;
	bad.crc++;
	refused(&f.o, &bad, -EBADMSG, "damaged");
	bad = p;
	bad.size *= 2;
	refused(&f.o, &bad, -EIO, "cannot write the copy");
	o = f.o;
	o.fs.b[3]++;
	refused(&o, &p, -EINVAL, "belongs to file system");
	o = f.o;
	o.target = 5;
	refused(&o, &p, -EINVAL, "belongs to server 0, not 5");
	o = f.o;
	o.partition = 2;
	refused(&o, &p, -EINVAL, "holds partition 0, not 2");
	bad = p;
	bad.off = 0;
	bad.size = 100; /* a range of zeros */
	bad.crc = crc32c(0, (uint8_t[100]){ 0 }, 100);
	refused(&f.o, &bad, -EIO, "damaged");
	fake_end(&f);
	close(p.fd);
}

TEST_MAIN(TEST(a_copy_is_a_snapshot_and_blocks_no_change), TEST(lists_come_back),
	  TEST(a_copy_that_is_cancelled_says_so), TEST(nothing_that_was_given_since_is_given_again),
	  TEST(every_file_is_unsettled_afterwards),
	  TEST(a_truncate_that_was_under_way_counts_as_done), TEST(removals_go_on),
	  TEST(many_files_take_several_transactions), TEST(wrong_copies_are_refused))
