/* Exports of connections: an import restores the exported state, and malformed bytes are
 * refused. */
#include <sys/mman.h>
#include <unistd.h>

#include "toy_client.h"
#include "client_fixture.h"

static struct client_fixture t;

static struct wire_bytes export_of(struct client *c)
{
	struct wire_bytes b;

	CHECK_EQ(client_export(c, &b), 0);
	client_free(c);
	return b;
}

static void drop(struct wire_bytes b)
{
	free((void *)(uintptr_t)b.p);
}

static struct wire_bytes furnished_export(void)
{
	client_fixture_start(&t);
	return export_of(client_fixture_with_state(&t));
}

/* Imports these bytes into a new client. Returns the result of client_import(). */
static int try_import(const void *p, size_t n)
{
	struct client *c = client_fixture_new(&t);
	uint8_t *exact = malloc(n ? n : 1); /* exact size: sanitizers detect a read beyond it */
	struct wire_bytes in = { (uint32_t)n, exact };
	int r;

	CHECK(exact);
	memcpy(exact, p, n);
	r = client_import(c, &in);
	free(exact);
	client_free(c);
	return r;
}

static bool same_range(const struct cfile *f, const struct list *set, uint64_t owner,
		       uint64_t start, uint64_t last, bool exclusive)
{
	const struct range *r;

	list_for_each(r, set, link)
		if (r->owner == owner)
			return r->start == start && r->last == last && r->pid == 42 &&
			       r->exclusive == exclusive && r->session == 0 && r->open == f->id;
	return false;
}

static void an_import_is_what_was_exported(void)
{
	struct wire_bytes b = furnished_export();
	struct client *c = client_fixture_new(&t);
	struct cfile *f;

	CHECK_EQ(client_import(c, &b), 0);
	drop(b);
	CHECK_EQ(c->n_peers, 3);
	CHECK_STR(c->targets[2].name, "late");
	CHECK_STR(c->peers[2].address, "127.0.0.1:7439");
	CHECK_EQ(c->peers[2].session, 0);
	CHECK_EQ(c->peers[1].session, 1001);
	CHECK_EQ(c->peers[1].boot, 2001);
	CHECK_EQ(c->peers[1].map_version, 3);
	CHECK_EQ(c->peers[1].secret[15], 0x41);
	CHECK_EQ(c->peers[1].slots[63].sequence, 631);
	CHECK(c->peers[1].unclaimed && !c->peers[0].unclaimed);
	CHECK_EQ(c->next_open, 17);
	CHECK_EQ(c->n_tickets, 5);
	f = client_imported(c, 3);
	CHECK(f && f->h.ino == 103 && f->flags == (OPEN_READ | OPEN_WRITE));
	CHECK(f->layout.unit == 65536 && f->layout.width == 3 && f->targets[2] == 2);
	CHECK(f->unsynced[0] == 11 && f->unsynced[1] == 0 && f->unsynced[2] == 12);
	CHECK(f->wrote.epoch == 5 && f->wrote.end == 1 << 20 && f->wrote.mtime == -1);
	CHECK(f->wrote.doubt && !f->lost && f->cap.epoch == 5 && f->cap.mac[31] == 3);
	CHECK(f->cred.uid == 7 && f->cred.n_gids == 2 && f->cred.gids[1] == 10);
	CHECK(same_range(f, &f->holding->locks[0], 1, 0, 9, true));
	CHECK(same_range(f, &f->holding->locks[0], 2, 10, UINT64_MAX, false));
	CHECK(same_range(f, &f->holding->locks[1], 3, 0, UINT64_MAX, true));
	CHECK(!file_locks_lost(f));
	f = client_imported(c, 4);
	CHECK(f && (f->flags & OPEN_APPEND) && f->lost && file_locks_lost(f));
	CHECK(same_range(f, &f->holding->lost[0], 1, 5, 5, false));
	CHECK(!client_imported(c, 4)); /* each file can be taken once */
	CHECK(!client_imported(c, 5));
	f = client_imported(c, 9);
	CHECK(f && !f->unsynced); /* a directory */
	client_free(c);
	client_fixture_end(&t);
}

static void an_export_of_an_import_is_the_same(void)
{
	struct wire_bytes b = furnished_export(), again;
	struct client *c = client_fixture_new(&t);

	CHECK_EQ(client_import(c, &b), 0);
	c->halted = false; /* like client_resume(), but without links */
	again = export_of(c);
	CHECK(again.len == b.len && memcmp(again.p, b.p, b.len) == 0);
	drop(b);
	drop(again);
	client_fixture_end(&t);
}

/* The importing process may have used some of the next numbers before it died. */
static void a_client_that_continues_after_an_export_uses_new_numbers(void)
{
	struct client *c;
	struct wire_bytes b;

	client_fixture_start(&t);
	c = client_fixture_with_state(&t);
	CHECK_EQ(client_export(c, &b), 0);
	drop(b);
	CHECK(c->peers[0].slots[1].sequence > 10 + 10000);
	CHECK(c->next_open > 17 + 10000 && c->n_tickets > 5 + 10000);
	client_free(c);
	client_fixture_end(&t);
}

static void an_operation_under_way_is_in_the_way(void)
{
	struct client *c;
	struct wire_bytes b;
	struct cop *op;

	client_fixture_start(&t);
	c = client_fixture_with_state(&t);
	op = cop_new(c, NULL);
	CHECK_EQ(client_export(c, &b), -EBUSY);
	cop_free(op);
	CHECK_EQ(client_export(c, &b), 0);
	drop(b);
	CHECK_EQ(client_export(c, &b), -ESHUTDOWN);
	client_free(c);
	client_fixture_end(&t);
}

static void every_prefix_is_refused(void)
{
	struct wire_bytes b = furnished_export();

	for (uint32_t n = 0; n < b.len; n++)
		CHECK_EQ(try_import(b.p, n), -EBADMSG);
	CHECK_EQ(try_import(b.p, b.len), 0);
	drop(b);
	client_fixture_end(&t);
}

static void more_behind_it_is_refused(void)
{
	struct wire_bytes b = furnished_export();
	uint8_t *longer = calloc(1, b.len + 4);

	CHECK(longer);
	memcpy(longer, b.p, b.len);
	CHECK_EQ(try_import(longer, b.len + 4), -EBADMSG);
	free(longer);
	drop(b);
	client_fixture_end(&t);
}

/* Every byte is changed in turn: the import refuses the bytes or accepts other values, and never
 * crashes. */
static void changed_bytes_do_no_harm(void)
{
	struct wire_bytes b = furnished_export();
	uint8_t *other = malloc(b.len);

	CHECK(other);
	for (uint32_t i = 0; i < b.len; i++)
		for (int k = 0; k < 2; k++) {
			int r;

			memcpy(other, b.p, b.len);
			other[i] ^= k ? 0xff : 1;
			r = try_import(other, b.len);
			CHECK(r == 0 || r == -EBADMSG || r == -EXDEV || r == -EKEYREJECTED);
		}
	free(other);
	drop(b);
	client_fixture_end(&t);
}

static void an_import_for_another_file_system_or_key_is_refused(void)
{
	struct wire_bytes b = furnished_export();
	struct client *c;

	t.conf->fs_id.b[3] ^= 1;
	CHECK_EQ(try_import(b.p, b.len), -EXDEV);
	CHECK(strstr(sheaf_why(), "another file system"));
	t.conf->fs_id.b[3] ^= 1;
	c = client_fixture_new(&t);
	strcpy(c->net->id.key_name, "mine");
	CHECK_EQ(client_import(c, &b), -EKEYREJECTED);
	CHECK(strstr(sheaf_why(), "mine"));
	client_free(c);
	drop(b);
	client_fixture_end(&t);
}

/* ---- the head ---- */

static int read_bytes(const void *p, size_t n)
{
	int fd = memfd_create("export", MFD_CLOEXEC), r;
	struct wire_bytes out;

	CHECK(fd >= 0);
	CHECK_EQ(write(fd, p, n), (ssize_t)n);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	r = export_read(fd, &out);
	close(fd);
	if (!r)
		drop(out);
	return r;
}

static int read_head(struct wire_export_head h)
{
	uint8_t buf[EXPORT_HEAD + 8] = { 0 };
	struct xdr x;

	xdr_encoder(&x, buf, sizeof(buf));
	CHECK(xdr_wire_export_head(&x, &h));
	CHECK_EQ(xdr_used(&x), EXPORT_HEAD);
	return read_bytes(buf, sizeof(buf));
}

static void heads_are_checked(void)
{
	static const uint8_t zeros[8];
	struct wire_export_head good = { .magic = EXPORT_MAGIC,
					 .version = EXPORT_VERSION,
					 .length = 8,
					 .crc = crc32c(0, zeros, 8) },
				h = good;

	CHECK_EQ(read_head(good), 0);
	CHECK_EQ(read_bytes(NULL, 0), -EBADMSG);
	CHECK_EQ(read_bytes(zeros, 8), -EBADMSG);
	h.magic++;
	CHECK_EQ(read_head(h), -EBADMSG);
	CHECK(strstr(sheaf_why(), "no exported connection"));
	h = good;
	h.version = EXPORT_VERSION + 1;
	CHECK_EQ(read_head(h), -EPROTONOSUPPORT);
	CHECK(strstr(sheaf_why(), "version 2"));
	h = good;
	h.crc++;
	CHECK_EQ(read_head(h), -EBADMSG);
	CHECK(strstr(sheaf_why(), "damaged"));
	h = good;
	h.length = 9; /* one more than there are bytes */
	CHECK_EQ(read_head(h), -EBADMSG);
	h.length = UINT64_MAX;
	CHECK_EQ(read_head(h), -EBADMSG);
}

/* ---- claims ---- */

static struct net_world world;
static struct toy_server srv;

static struct client *world_client(void)
{
	static const char *const addresses[] = { "loop:s" };
	struct client_opts o = { .loop = &world.loop,
				 .conf = t.conf,
				 .hub = &world.hub,
				 .addresses = addresses,
				 .name = "test" };
	struct client *c;

	memset(o.key, 1, sizeof(o.key));
	CHECK_EQ(client_new(&o, &c), 0);
	return c;
}

static void settle(void)
{
	net_world_pass(&world, NSEC_PER_SEC);
}

/* The claims were sent and the answer has not come yet: the importing client sends them again. */
static void claims_under_way_are_made_by_the_importing_client(void)
{
	struct wire_bytes b;
	struct client *c;
	struct cfile *f;

	client_fixture_start(&t);
	t.conf->n_targets = 1;
	net_world_start(&world, false);
	toy_server_start(&srv, &world, "loop:s", net_id(1, 2));
	srv.net.id.fs = t.conf->fs_id;
	c = world_client();
	f = client_fixture_file(c, 5, 1);
	client_fixture_lock(f, f->holding->locks, 1, 0, 9, true);
	c->peers[0].session = srv.session = 7;
	c->peers[0].boot = 99; /* boot number before the server's restart */
	srv.hold = true;
	client_resume(c);
	settle();
	CHECK_EQ(srv.n_seen, 1);
	CHECK_EQ(srv.seen[0].head.op, OP_RECLAIM);
	CHECK_EQ(client_export(c, &b), 0);
	CHECK(!file_locks_lost(f));
	client_free(c);
	toy_server_drop(&srv);
	c = world_client();
	CHECK_EQ(client_import(c, &b), 0);
	CHECK(c->peers[0].unclaimed);
	drop(b);
	srv.hold = false;
	client_resume(c);
	settle();
	CHECK_EQ(srv.n_seen, 1);
	CHECK_EQ(srv.seen[0].head.op, OP_RECLAIM);
	CHECK_EQ(srv.n_sessions, 2);
	CHECK_EQ(srv.session, 7);
	CHECK_EQ(locks_list(client_imported(c, 5)->holding->locks, 5, NULL, 0, 0), 1);
	CHECK_EQ(client_export(c, &b), 0); /* answered claims are not sent again */
	drop(b);
	client_resume(c);
	settle();
	CHECK_EQ(srv.n_seen, 1);
	client_free(c);
	toy_server_stop(&srv);
	net_world_end(&world);
	t.conf->n_targets = 2;
	client_fixture_end(&t);
}

TEST_MAIN(TEST(an_import_is_what_was_exported), TEST(an_export_of_an_import_is_the_same),
	  TEST(a_client_that_continues_after_an_export_uses_new_numbers),
	  TEST(an_operation_under_way_is_in_the_way), TEST(every_prefix_is_refused),
	  TEST(more_behind_it_is_refused), TEST(changed_bytes_do_no_harm),
	  TEST(an_import_for_another_file_system_or_key_is_refused), TEST(heads_are_checked),
	  TEST(claims_under_way_are_made_by_the_importing_client))
