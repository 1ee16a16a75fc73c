/* Copies of the database while it is in use, and restarts from such a copy. */
#include <fcntl.h>

#include "acl_list.h"
#include "meta/meta_schema.h"
#include "metadb.h"

static struct metadb f;
static char saved[80]; /* path of the copy's bytes, outside of the database's directory */

static void record(struct wire_handle h, uint64_t epoch, uint64_t size, uint32_t flags)
{
	struct wire_record r = rec_on(&f, REC_RECORD, h);

	r.epoch = epoch;
	r.size = size;
	r.flags = flags;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
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
	metadb_pump(&f);
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
	CHECK_EQ(metadb_open(&f), 0);
	close(p->fd);
}

static void a_copy_is_a_snapshot_and_blocks_no_change(void)
{
	struct wire_handle h;
	struct meta_part p;

	metadb_start(&f);
	metadb_make(&f, REC_CREATE, metadb_root, "before");
	p = copy();
	metadb_make(&f, REC_CREATE, metadb_root, "after");
	CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, "before").status, 0);
	restore(&p);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "before", &h), 0);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "after", &h), -ENOENT);
	metadb_end(&f);
}

static void lists_come_back(void)
{
	struct acl_bytes list = acl_sample();
	struct wire_handle file, dir;
	struct wire_record r;
	struct meta_part p;

	metadb_start(&f);
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	r = rec_on(&f, REC_SETXATTR, dir);
	r.name = wire_text(DEFAULT_ACL);
	r.data = (struct wire_bytes){ list.len, list.b };
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	file = metadb_make(&f, REC_CREATE, dir, "file");
	p = copy();
	r.data.len = 0;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	restore(&p);
	CHECK_EQ(metadb_node(&f, dir).default_acl.len, list.len);
	CHECK_EQ(metadb_node(&f, file).acl.len, list.len);
	CHECK_EQ(metadb_node(&f, file).attr.mode & 0777, 0751);
	metadb_end(&f);
}

static void a_copy_that_is_cancelled_says_so(void)
{
	struct meta_copy *c;
	uint64_t size;

	metadb_start(&f);
	CHECK_EQ(meta_copy_start(f.m, &c), 0);
	meta_copy_cancel(c);
	metadb_pump(&f);
	CHECK_EQ(meta_copy_file(c, &size), -ECANCELED);
	meta_copy_end(c);
	CHECK_EQ(meta_copy_start(f.m, &c), 0); /* the copy is not even started */
	meta_copy_end(c);
	metadb_end(&f);
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

	metadb_start(&f);
	old = metadb_make(&f, REC_CREATE, metadb_root, "old");
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	p = copy();
	for (int i = 0; i < 20; i++) {
		settle = rec_on(&f, REC_SETTLE_BEGIN, old);
		epoch = metadb_apply(&f, &settle).epoch;
	}
	since = metadb_make(&f, REC_CREATE, metadb_root, "since");
	r.epoch = 8;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	restore(&p);
	made = metadb_make(&f, REC_CREATE, metadb_root, "made");
	CHECK(made.ino > since.ino + 1000000);
	CHECK_EQ(INO_PARTITION(made.ino), 0);
	CHECK(metadb_node(&f, old).epoch > epoch + 1000000);
	CHECK_EQ(meta_map(f.m, &version, &blob, &f.arena), 0);
	CHECK(version > 8);
	CHECK_EQ(blob.len, 5);
	CHECK_EQ(memcmp(blob.p, "a map", 5), 0);
	metadb_end(&f);
}

static void every_file_is_unsettled_afterwards(void)
{
	struct wire_record_res res;
	struct wire_handle a, b;
	struct wire_record r;
	struct meta_part p;

	metadb_start(&f);
	a = metadb_make(&f, REC_CREATE, metadb_root, "a");
	b = metadb_make(&f, REC_CREATE, metadb_make(&f, REC_MKDIR, metadb_root, "d"), "b");
	record(a, 1, 1000, REC_LAST_WRITER);
	CHECK_EQ(metadb_rows(&f, ROWS_UNSETTLED), 0);
	p = copy();
	restore(&p);
	CHECK_EQ(metadb_rows(&f, ROWS_UNSETTLED), 2); /* the directory is not unsettled */
	CHECK(metadb_node(&f, a).attr.unsettled && metadb_node(&f, b).attr.unsettled);
	CHECK(!metadb_node(&f, a).objects_within_size && !metadb_node(&f, b).objects_within_size);
	CHECK_EQ(metadb_node(&f, a).attr.size, 1000);
	r = rec_on(&f, REC_SETTLE_BEGIN, a); /* the file can be settled */
	res = metadb_apply(&f, &r);
	r = rec_on(&f, REC_SETTLE_END, a);
	r.epoch = res.epoch;
	r.size = 5000;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_node(&f, a).attr.size, 5000);
	CHECK_EQ(metadb_rows(&f, ROWS_UNSETTLED), 1);
	metadb_end(&f);
}

static void a_truncate_that_was_under_way_counts_as_done(void)
{
	struct wire_record begin;
	struct wire_handle h;
	struct meta_part p;

	metadb_start(&f);
	h = metadb_make(&f, REC_CREATE, metadb_root, "file");
	record(h, 1, 1000, REC_LAST_WRITER);
	begin = rec_on(&f, REC_TRUNC_BEGIN, h);
	begin.size = 10;
	CHECK_EQ(metadb_apply(&f, &begin).status, 0);
	p = copy();
	restore(&p);
	CHECK_EQ(metadb_rows(&f, ROWS_TRUNCATE), 0);
	CHECK_EQ(metadb_node(&f, h).attr.size, 10);
	CHECK(metadb_node(&f, h).attr.unsettled); /* the objects decide its size */
	metadb_end(&f);
}

static void removals_go_on(void)
{
	struct meta_part p;

	metadb_start(&f);
	metadb_make(&f, REC_CREATE, metadb_root, "file");
	CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, "file").status, 0);
	p = copy();
	restore(&p);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 1);
	metadb_end(&f);
}

static void many_files_take_several_transactions(void)
{
	enum { N = 5000 };
	struct meta_part p;
	char name[16];

	metadb_start(&f);
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%d", i);
		metadb_make(&f, REC_CREATE, metadb_root, name);
		metadb_reset(&f);
	}
	p = copy();
	restore(&p);
	CHECK_EQ(metadb_rows(&f, ROWS_UNSETTLED), N);
	metadb_end(&f);
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
	CHECK_EQ(metadb_open(&f), 0);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "since", &h), 0);
}

static void wrong_copies_are_refused(void)
{
	struct meta_opts o;
	struct meta_part p, bad;

	metadb_start(&f);
	p = copy();
	metadb_make(&f, REC_CREATE, metadb_root, "since");
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
	metadb_end(&f);
	close(p.fd);
}

TEST_MAIN(TEST(a_copy_is_a_snapshot_and_blocks_no_change), TEST(lists_come_back),
	  TEST(a_copy_that_is_cancelled_says_so), TEST(nothing_that_was_given_since_is_given_again),
	  TEST(every_file_is_unsettled_afterwards),
	  TEST(a_truncate_that_was_under_way_counts_as_done), TEST(removals_go_on),
	  TEST(many_files_take_several_transactions), TEST(wrong_copies_are_refused))
