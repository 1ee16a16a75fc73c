/* One open for many processes: guests read and write with the owner's ticket, and ask no metadata
 * server until something is wrong. */
#include "cluster.h"

static struct cluster c;
static struct sheaf *owner_fs, *guest_fs;
static struct sheaf_file *owner, *guest;
static uint8_t ticket[SHEAF_TICKET_MAX];
static ssize_t ticket_bytes;

static void begin(void)
{
	const struct cluster_opts o = { .servers = 3, .timeout = 10, .lease = 2 };

	cluster_create(&c, &o);
	cluster_start(&c);
	owner_fs = client_connect(c.conf);
	guest_fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(guest_fs);
	if (owner_fs)
		sheaf_disconnect(owner_fs);
	cluster_stop(&c);
}

static void share(int flags)
{
	CHECK_EQ(sheaf_open(owner_fs, "/f", flags | O_CREAT | O_TRUNC, 0600, NULL, &owner), 0);
	ticket_bytes = sheaf_share(owner, 0, ticket, sizeof(ticket));
	CHECK(ticket_bytes > 0);
	CHECK_EQ(sheaf_open_shared(guest_fs, ticket, (size_t)ticket_bytes, &guest), 0);
}

static uint64_t requests_of_guest(void)
{
	uint64_t all = 0;

	for (int i = 0; i < c.n; i++) {
		struct sheaf_account a = { 0 };

		sheaf_account(guest_fs, i, &a);
		all += a.requests;
	}
	return all;
}

static off_t size_of(const char *path)
{
	struct stat st;

	CHECK_EQ(sheaf_stat(owner_fs, path, &st), 0);
	return st.st_size;
}

static void a_guest_opens_and_closes_without_a_message(void)
{
	uint64_t before;

	share(O_RDWR);
	sheaf_close(guest);
	before = requests_of_guest();
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(sheaf_open_shared(guest_fs, ticket, (size_t)ticket_bytes, &guest), 0);
		CHECK_EQ(sheaf_close(guest), 0);
	}
	CHECK(requests_of_guest() - before < 10); /* leases are renewed */
	CHECK_EQ(sheaf_close(owner), 0);
}

static void what_guests_write_is_in_the_file(void)
{
	char buf[100000];

	share(O_RDWR);
	CHECK_EQ(sheaf_pwrite(owner, "begin", 5, 0), 5);
	CHECK_EQ(sheaf_pwrite(guest, "end", 3, 1000000), 3);
	CHECK_EQ(size_of("/f"), 1000003);
	memset(buf, 7, sizeof(buf));
	CHECK_EQ(sheaf_pwrite(guest, buf, sizeof(buf), 200000), sizeof(buf));
	CHECK_EQ(sheaf_pread(owner, buf, 3, 1000000), 3);
	CHECK(memcmp(buf, "end", 3) == 0);
	CHECK_EQ(sheaf_pread(guest, buf, 10, 0), 10);
	CHECK(memcmp(buf, "begin", 6) == 0);
	CHECK_EQ(sheaf_fsync(guest), 0);
	CHECK_EQ(sheaf_close(guest), 0);
	CHECK_EQ(sheaf_close(owner), 0);
	CHECK_EQ(size_of("/f"), 1000003);
	CHECK_EQ(sheaf_open(guest_fs, "/f", O_RDONLY, 0, NULL, &guest), 0);
	CHECK_EQ(sheaf_pread(guest, buf, sizeof(buf), 200000), sizeof(buf));
	CHECK_EQ(buf[0], 7);
	CHECK_EQ(buf[sizeof(buf) - 1], 7);
	CHECK_EQ(sheaf_close(guest), 0);
}

static void guests_have_the_rights_of_the_open_and_no_locks(void)
{
	struct sheaf_lock l = { .size = sizeof(l), .type = F_WRLCK, .length = 1 };
	struct sheaf_file *f;

	CHECK_EQ(sheaf_open(owner_fs, "/f", O_CREAT | O_WRONLY, 0600, NULL, &f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	share(O_RDONLY);
	CHECK_EQ(sheaf_pwrite(guest, "x", 1, 0), -EBADF);
	CHECK_EQ(sheaf_lock(guest, &l, 0), -EBADF);
	CHECK_EQ(sheaf_append(guest, "x", 1), -EBADF);
	CHECK_EQ(sheaf_share(guest, 0, ticket, sizeof(ticket)), -EINVAL);
	CHECK_EQ(sheaf_close(guest), 0);
	CHECK_EQ(sheaf_share(owner, 0, ticket, 10), -ERANGE);
	CHECK_EQ(sheaf_close(owner), 0);
}

/* A truncation refuses all older capabilities. */
static void a_guest_goes_on_after_a_truncation(void)
{
	char buf[10];

	share(O_RDWR);
	CHECK_EQ(sheaf_pwrite(guest, "0123456789", 10, 0), 10);
	CHECK_EQ(sheaf_ftruncate(owner, 4), 0);
	ticket_bytes = sheaf_share(owner, 1, ticket, sizeof(ticket));
	CHECK(ticket_bytes > 0);
	CHECK_EQ(sheaf_share_renew(guest, ticket, (size_t)ticket_bytes), 0);
	CHECK_EQ(sheaf_pread(guest, buf, 10, 0), 4);
	CHECK_EQ(sheaf_ftruncate(owner, 2), 0); /* and without a new ticket */
	CHECK_EQ(sheaf_pwrite(guest, "x", 1, 2), 1);
	CHECK_EQ(sheaf_pread(guest, buf, 10, 0), 3);
	CHECK(memcmp(buf, "01x", 3) == 0);
	CHECK_EQ(sheaf_close(owner), 0);
	CHECK_EQ(sheaf_pwrite(guest, "y", 1, 3), 1); /* it has an open of its own now */
	CHECK_EQ(sheaf_close(guest), 0);
	CHECK_EQ(size_of("/f"), 4);
}

static void a_guest_outlives_its_owner(void)
{
	share(O_RDWR);
	CHECK_EQ(sheaf_pwrite(guest, "one", 3, 0), 3);
	sheaf_abandon(owner_fs);
	owner_fs = NULL;
	sleep(4); /* the lease of the owner ends, and the server fences the file */
	CHECK_EQ(sheaf_pwrite(guest, "two", 3, 100000), 3);
	CHECK_EQ(sheaf_fsync(guest), 0);
	CHECK_EQ(sheaf_close(guest), 0);
	owner_fs = client_connect(c.conf);
	CHECK_EQ(size_of("/f"), 100003);
}

static void a_guest_learns_that_its_data_may_be_lost(void)
{
	share(O_RDWR);
	CHECK_EQ(sheaf_pwrite(guest, "data", 4, 0), 4);
	for (int i = 0; i < c.n; i++) {
		server_kill(&c, i);
		CHECK_EQ(server_up(&c, i), 0);
	}
	CHECK_EQ(sheaf_fsync(guest), -EIO);
	CHECK_EQ(sheaf_pwrite(guest, "data", 4, 0), 4);
	CHECK_EQ(sheaf_fsync(guest), 0);
	CHECK_EQ(sheaf_close(guest), 0);
	CHECK_EQ(sheaf_close(owner), 0);
	CHECK_EQ(size_of("/f"), 4);
}

static void damaged_tickets_give_no_access(void)
{
	char buf[10];

	share(O_RDWR);
	CHECK_EQ(sheaf_pwrite(owner, "secret", 6, 0), 6);
	CHECK_EQ(sheaf_close(guest), 0);
	for (ssize_t i = 0; i < ticket_bytes; i++) {
		CHECK(sheaf_open_shared(guest_fs, ticket, (size_t)i, &guest) < 0);
		ticket[i] ^= 1;
		if (sheaf_open_shared(guest_fs, ticket, (size_t)ticket_bytes, &guest) == 0) {
			memset(buf, 0, sizeof(buf));
			(void)sheaf_pread(guest, buf, sizeof(buf), 0);
			(void)sheaf_close(guest);
		}
		ticket[i] ^= 1;
	}
	CHECK_EQ(sheaf_open_shared(guest_fs, ticket, (size_t)ticket_bytes, &guest), 0);
	CHECK_EQ(sheaf_pread(guest, buf, sizeof(buf), 0), 6);
	CHECK_EQ(sheaf_close(guest), 0);
	CHECK_EQ(sheaf_close(owner), 0);
}

SYS_MAIN(NULL, begin, end, TEST(a_guest_opens_and_closes_without_a_message),
	 TEST(what_guests_write_is_in_the_file),
	 TEST(guests_have_the_rights_of_the_open_and_no_locks),
	 TEST(a_guest_goes_on_after_a_truncation), TEST(a_guest_outlives_its_owner),
	 TEST(a_guest_learns_that_its_data_may_be_lost), TEST(damaged_tickets_give_no_access))
