/* The NFS gateway as its clients see it: mounting, all procedures of NFSv3, exports, and calls that
 * no kernel sends. */
#include "acl_list.h"
#include "nfs_client.h"

static struct cluster c;
static struct sheaf *fs;
static pid_t gateway;
static uint32_t port;
static struct nfs_client root, user; /* uids 0 and 1000 */
static struct nfs_handle top; /* of the export "all", which squashes nobody */

static const char exports[] =
	"[export.all]\npath = /\nsquash = none\ninsecure = yes\n"
	"[export.home]\npath = /home\ninsecure = yes\n"
	"[export.ro]\npath = /home\nro = yes\nsquash = all\nanon_uid = 1000\n"
	"anon_gid = 1000\ninsecure = yes\n"
	"[export.ports]\npath = /home\n"
	"[export.far]\npath = /home\nnetworks = 192.0.2.0/24\ninsecure = yes\n";

static void gateway_start(void)
{
	gateway = nfs_gateway_start(&c, port);
}

static void gateway_kill(void)
{
	kill(gateway, SIGKILL);
	process_wait(gateway);
}

static void connect_all(void)
{
	nfs_dial(&root, port, 0);
	nfs_dial(&user, port, 1000);
	CHECK_EQ(nfs_mount(&root, "/all", &top), MOUNT_OK);
}

static void hang_up_all(void)
{
	nfs_hang_up(&root);
	nfs_hang_up(&user);
}

/* ---- mounting ---- */

static void paths_of_exports_are_mounted(void)
{
	struct nfs_handle h, again;
	struct wire_attr3 a;

	CHECK_EQ(nfs_mount(&root, "/home", &h), MOUNT_OK);
	CHECK_EQ(nfs_getattr(&root, &h, &a), NFS3_OK);
	CHECK_EQ(a.type, NFS3_DIR);
	CHECK_EQ(nfs_mount(&root, "/all/home", &h), MOUNT_OK);
	CHECK_EQ(nfs_lookup(&root, &top, "home", &again), NFS3_OK);
	CHECK(h.len == again.len && memcmp(h.bytes, again.bytes, h.len) == 0);
	CHECK_EQ(nfs_mount(&root, "/nothing", &h), MOUNT_ENOENT);
	CHECK_EQ(nfs_mount(&root, "/all/nothing", &h), MOUNT_ENOENT);
	CHECK_EQ(nfs_mount(&root, "/home/..", &h), MOUNT_EACCES);
	CHECK_EQ(nfs_mount(&root, "/far", &h), MOUNT_EACCES);
	CHECK_EQ(nfs_mount(&root, "/ports", &h), MOUNT_EACCES); /* the port is above 1023 */
	CHECK_EQ(nfs_mount(&root, "", &h), MOUNT_ENOENT);
}

static void exports_are_listed(void)
{
	struct wire_mount_exports e;

	nfs_call(&root, MOUNT_PROGRAM, MOUNT_VERSION, MOUNT_EXPORT, NULL, NULL,
		 XDR_ANY(xdr_wire_mount_exports), &e);
	CHECK_EQ(e.n_entries, 5);
	CHECK_EQ(e.entries[4].n_groups, 1);
	CHECK(memcmp(e.entries[4].groups[0].name.p, "192.0.2.0/24", 12) == 0);
}

/* ---- data ---- */

static uint8_t data[NFS3_DATA_MAX], back[NFS3_DATA_MAX];

static void fill(uint64_t seed)
{
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)test_random(&seed);
}

static void what_is_written_is_read(void)
{
	static const uint32_t sizes[] = { 1, 3, 4, 4095, 65536, 131073, NFS3_DATA_MAX };
	uint8_t verifier[8], committed[8];
	struct nfs_handle h;
	struct wire_attr3 a;
	struct sheaf_file *f;
	uint32_t n;
	bool eof;

	fill(1);
	CHECK_EQ(nfs_create(&root, &top, "data", CREATE3_GUARDED, 0644, &h), NFS3_OK);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		CHECK_EQ(nfs_write(&root, &h, i * 3000000 + 7, data, sizes[i], STABLE3_NOT,
				   verifier),
			 NFS3_OK);
		n = sizes[i];
		CHECK_EQ(nfs_read(&root, &h, i * 3000000 + 7, back, &n, NULL), NFS3_OK);
		CHECK_EQ(n, sizes[i]);
		CHECK(memcmp(back, data, n) == 0);
	}
	CHECK_EQ(nfs_commit(&root, &h, committed), NFS3_OK);
	CHECK(memcmp(verifier, committed, 8) == 0);
	CHECK_EQ(nfs_getattr(&root, &h, &a), NFS3_OK);
	CHECK_EQ(a.size, 18000007 + NFS3_DATA_MAX);
	n = 100;
	CHECK_EQ(nfs_read(&root, &h, a.size - 10, back, &n, &eof), NFS3_OK);
	CHECK_EQ(n, 10);
	CHECK(eof);
	n = 100;
	CHECK_EQ(nfs_read(&root, &h, a.size + 10, back, &n, &eof), NFS3_OK);
	CHECK(n == 0 && eof);
	n = 100;
	CHECK_EQ(nfs_read(&root, &h, 1000, back, &n, NULL), NFS3_OK); /* a hole */
	CHECK(n == 100 && !back[0] && !back[99]);
	CHECK_EQ(sheaf_open(fs, "/data", O_RDONLY, 0, NULL, &f), 0);
	CHECK_EQ(sheaf_pread(f, back, 131073, 15000007), 131073);
	CHECK(memcmp(back, data, 131073) == 0);
	sheaf_close(f);
}

/* A server is killed between WRITE and COMMIT: the client learns it from the verifier, and writes
 * again without an error. A restart of the gateway alone changes nothing. */
static void a_lost_write_changes_the_verifier(void)
{
	uint8_t written[8], committed[8];
	struct nfs_handle h;
	uint32_t n = 300000;

	fill(3);
	CHECK_EQ(nfs_create(&root, &top, "lost", CREATE3_GUARDED, 0644, &h), NFS3_OK);
	CHECK_EQ(nfs_write(&root, &h, 0, data, n, STABLE3_NOT, written), NFS3_OK);
	gateway_kill();
	gateway_start();
	hang_up_all();
	connect_all();
	CHECK_EQ(nfs_commit(&root, &h, committed), NFS3_OK);
	CHECK(memcmp(written, committed, 8) == 0);
	CHECK_EQ(nfs_write(&root, &h, 0, data, n, STABLE3_NOT, written), NFS3_OK);
	CHECK(memcmp(written, committed, 8) == 0);
	server_kill(&c, 1);
	CHECK_EQ(server_up(&c, 1), 0);
	CHECK_EQ(nfs_commit(&root, &h, committed), NFS3_OK);
	CHECK(memcmp(written, committed, 8) != 0);
	CHECK_EQ(nfs_write(&root, &h, 0, data, n, STABLE3_NOT, written), NFS3_OK);
	CHECK_EQ(nfs_commit(&root, &h, committed), NFS3_OK);
	CHECK(memcmp(written, committed, 8) == 0);
	CHECK_EQ(nfs_read(&root, &h, 0, back, &n, NULL), NFS3_OK);
	CHECK(n == 300000 && memcmp(back, data, n) == 0);
	/* the same with two gateway lives around the loss */
	CHECK_EQ(nfs_write(&root, &h, 0, data, n, STABLE3_NOT, written), NFS3_OK);
	gateway_kill();
	server_kill(&c, 0);
	CHECK_EQ(server_up(&c, 0), 0);
	gateway_start();
	hang_up_all();
	connect_all();
	CHECK_EQ(nfs_commit(&root, &h, committed), NFS3_OK);
	CHECK(memcmp(written, committed, 8) != 0);
}

static void offsets_beyond_the_largest_file_are_refused(void)
{
	struct nfs_handle h;
	uint32_t n = 10;
	bool eof;

	CHECK_EQ(nfs_create(&root, &top, "large", CREATE3_GUARDED, 0644, &h), NFS3_OK);
	CHECK_EQ(nfs_write(&root, &h, UINT64_MAX - 5, data, 10, STABLE3_NOT, NULL), NFS3_EFBIG);
	CHECK_EQ(nfs_write(&root, &h, INT64_MAX, data, 10, STABLE3_NOT, NULL), NFS3_EFBIG);
	CHECK_EQ(nfs_read(&root, &h, UINT64_MAX, back, &n, &eof), NFS3_OK);
	CHECK(n == 0 && eof);
}

static void an_owner_writes_what_its_mode_forbids(void)
{
	struct nfs_handle h, home;
	uint32_t n = 4;

	CHECK_EQ(nfs_lookup(&root, &top, "home", &home), NFS3_OK);
	CHECK_EQ(nfs_create(&user, &home, "mine", CREATE3_GUARDED, 0444, &h), NFS3_OK);
	CHECK_EQ(nfs_write(&user, &h, 0, "data", 4, STABLE3_FILE, NULL), NFS3_OK);
	gateway_kill();
	gateway_start();
	hang_up_all();
	connect_all();
	CHECK_EQ(nfs_write(&user, &h, 4, "more", 4, STABLE3_FILE, NULL), NFS3_OK);
	user.uid = user.gid = 1001;
	CHECK_EQ(nfs_write(&user, &h, 0, "evil", 4, STABLE3_FILE, NULL), NFS3_EACCES);
	CHECK_EQ(nfs_read(&user, &h, 4, back, &n, NULL), NFS3_OK);
	CHECK(n == 4 && memcmp(back, "more", 4) == 0);
	user.uid = user.gid = 1000;
}

/* ---- names ---- */

static void names_are_made_and_removed(void)
{
	struct nfs_handle d, f, l, x;
	struct wire_attr3 a;

	CHECK_EQ(nfs_mkdir(&root, &top, "names", &d), NFS3_OK);
	CHECK_EQ(nfs_mkdir(&root, &top, "names", &x), NFS3_EEXIST);
	CHECK_EQ(nfs_create(&root, &d, "f", CREATE3_GUARDED, 0640, &f), NFS3_OK);
	CHECK_EQ(nfs_create(&root, &d, "f", CREATE3_GUARDED, 0640, &x), NFS3_EEXIST);
	CHECK_EQ(nfs_create(&root, &d, "f", CREATE3_UNCHECKED, 0600, &x), NFS3_OK);
	CHECK(memcmp(x.bytes, f.bytes, f.len) == 0);
	CHECK_EQ(nfs_getattr(&root, &f, &a), NFS3_OK);
	CHECK(a.type == NFS3_REG && a.mode == 0640 && a.nlink == 1);

	struct wire_symlink3_args s = { .where = { nfs_bytes(&d), wire_text("l") },
					.target = wire_text("../some/where") };
	struct wire_create3_res sr;
	NFS3(&root, NFS3_SYMLINK, symlink3_args, &s, create3_res, &sr);
	CHECK_EQ(sr.status, NFS3_OK);
	CHECK_EQ(nfs_lookup(&root, &d, "l", &l), NFS3_OK);
	struct wire_handle3_args ra = { nfs_bytes(&l) };
	struct wire_readlink3_res rr;
	NFS3(&root, NFS3_READLINK, handle3_args, &ra, readlink3_res, &rr);
	CHECK_EQ(rr.status, NFS3_OK);
	CHECK(rr.link.target.len == 13 && memcmp(rr.link.target.p, "../some/where", 13) == 0);

	struct wire_link3_args la = { nfs_bytes(&f), { nfs_bytes(&top), wire_text("hard") } };
	struct wire_link3_res lr;
	NFS3(&root, NFS3_LINK, link3_args, &la, link3_res, &lr);
	CHECK(lr.status == NFS3_OK && lr.attributes && lr.attributes->nlink == 2);

	struct wire_rename3_args na = { { nfs_bytes(&top), wire_text("hard") },
					{ nfs_bytes(&d), wire_text("l") } };
	struct wire_rename3_res nr;
	NFS3(&root, NFS3_RENAME, rename3_args, &na, rename3_res, &nr);
	CHECK_EQ(nr.status, NFS3_OK);
	CHECK(nr.from.after && nr.to.after);
	CHECK_EQ(nfs_lookup(&root, &d, "l", &x), NFS3_OK);
	CHECK(memcmp(x.bytes, f.bytes, f.len) == 0);

	CHECK_EQ(nfs_rmdir(&root, &top, "names"), NFS3_ENOTEMPTY);
	CHECK_EQ(nfs_remove(&root, &d, "l"), NFS3_OK);
	CHECK_EQ(nfs_remove(&root, &d, "f"), NFS3_OK);
	CHECK_EQ(nfs_remove(&root, &d, "f"), NFS3_ENOENT);
	CHECK_EQ(nfs_rmdir(&root, &top, "names"), NFS3_OK);
	CHECK_EQ(nfs_getattr(&root, &d, &a), NFS3_ESTALE);
	CHECK(WITHIN(PATIENCE_S, nfs_getattr(&root, &f, &a) == NFS3_ESTALE));
}

/* Clients keep their caches of a directory if they know the state before a change. */
static void changes_tell_the_state_before(void)
{
	struct wire_create3_args a = { 0 };
	struct wire_create3_res r;
	struct wire_attr3 at;
	struct nfs_handle d;
	uint32_t mode = 0600;

	CHECK_EQ(nfs_mkdir(&root, &top, "wcc", &d), NFS3_OK);
	CHECK_EQ(nfs_getattr(&root, &d, &at), NFS3_OK);
	a.how.unchecked.mode = &mode;
	for (int i = 0; i < 3; i++) {
		a.where = (struct wire_place3){ nfs_bytes(&d),
						wire_text(i ? i > 1 ? "c" : "b" : "a") };
		NFS3(&root, NFS3_CREATE, create3_args, &a, create3_res, &r);
		CHECK_EQ(r.status, NFS3_OK);
		CHECK(r.created.dir.before && r.created.dir.after);
		CHECK_EQ(r.created.dir.before->size, at.size);
		CHECK_EQ(r.created.dir.before->mtime.seconds, at.mtime.seconds);
		CHECK_EQ(r.created.dir.before->ctime.nanoseconds, at.ctime.nanoseconds);
		at = *r.created.dir.after;
	}
	CHECK_EQ(sheaf_unlink(fs, "/wcc/a"), 0); /* another client's change is not this call's */
	a.where.name = wire_text("d");
	NFS3(&root, NFS3_CREATE, create3_args, &a, create3_res, &r);
	CHECK(r.status == NFS3_OK && !r.created.dir.before && r.created.dir.after);
}

static void special_files_are_made(void)
{
	struct wire_mknod3_args m = { .where = { nfs_bytes(&top), wire_text("fifo") } };
	struct wire_create3_res r;
	struct nfs_handle h;
	struct wire_attr3 a;

	m.what.type = NFS3_FIFO;
	NFS3(&root, NFS3_MKNOD, mknod3_args, &m, create3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	m.where.name = wire_text("device");
	m.what.type = NFS3_BLK;
	memset(&m.what.device.attributes, 0, sizeof(m.what.device.attributes));
	m.what.device.device = (struct wire_device3){ 7, 300 };
	NFS3(&root, NFS3_MKNOD, mknod3_args, &m, create3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK_EQ(nfs_lookup(&root, &top, "device", &h), NFS3_OK);
	CHECK_EQ(nfs_getattr(&root, &h, &a), NFS3_OK);
	CHECK(a.type == NFS3_BLK && a.device.major == 7 && a.device.minor == 300);
	m.where.name = wire_text("regular");
	m.what.type = NFS3_REG;
	NFS3(&root, NFS3_MKNOD, mknod3_args, &m, create3_res, &r);
	CHECK_EQ(r.status, NFS3_EBADTYPE);
}

/* Owner, group, size and times are there from the beginning. */
static void new_files_get_their_attributes_at_once(void)
{
	uint32_t mode = 04750, uid = 1000, gid = 77;
	uint64_t size = 12345;
	struct wire_new_attr3 set = { .mode = &mode,
				      .uid = &uid,
				      .gid = &gid,
				      .size = &size,
				      .atime = { .how = TIME3_CLIENT, .time = { 1000, 5 } },
				      .mtime = { .how = TIME3_CLIENT, .time = { 2000, 6 } } };
	struct wire_create3_args a = { .where = { nfs_bytes(&top), wire_text("whole") } };
	struct wire_mkdir3_args d = { { nfs_bytes(&top), wire_text("whole_dir") }, set };
	struct wire_symlink3_args l = { { nfs_bytes(&top), wire_text("whole_link") },
					set,
					wire_text("whole") };
	struct wire_create3_res r;
	struct nfs_handle h;
	struct wire_attr3 at;
	uint32_t n = 100;
	bool eof;

	a.how.mode = CREATE3_GUARDED;
	a.how.guarded = set;
	NFS3(&root, NFS3_CREATE, create3_args, &a, create3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK(r.created.attributes && r.created.attributes->size == size);
	CHECK_EQ(nfs_lookup(&root, &top, "whole", &h), NFS3_OK);
	CHECK_EQ(nfs_getattr(&root, &h, &at), NFS3_OK);
	CHECK(at.mode == 04750 && at.uid == 1000 && at.gid == 77 && at.size == size);
	CHECK(at.atime.seconds == 1000 && at.mtime.seconds == 2000 && at.mtime.nanoseconds == 6);
	CHECK_EQ(nfs_read(&root, &h, size - 10, back, &n, &eof), NFS3_OK);
	CHECK(n == 10 && eof && !back[0] && !back[9]);
	NFS3(&root, NFS3_MKDIR, mkdir3_args, &d, create3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK(r.created.attributes && r.created.attributes->uid == 1000 &&
	      r.created.attributes->mtime.seconds == 2000);
	NFS3(&root, NFS3_SYMLINK, symlink3_args, &l, create3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK(r.created.attributes && r.created.attributes->gid == 77 &&
	      r.created.attributes->atime.seconds == 1000);
}

static uint32_t lookup_bytes(const char *name, uint32_t len)
{
	struct wire_lookup3_args a = { { nfs_bytes(&top), { len, (const uint8_t *)name } } };
	struct wire_lookup3_res r;

	NFS3(&root, NFS3_LOOKUP, lookup3_args, &a, lookup3_res, &r);
	return r.status;
}

static void bad_names_are_refused(void)
{
	char longest[NFS3_NAME_MAX + 2];
	struct nfs_handle h, up;

	memset(longest, 'n', sizeof(longest));
	CHECK_EQ(lookup_bytes("", 0), NFS3_EACCES);
	CHECK_EQ(lookup_bytes("a/b", 3), NFS3_EACCES);
	CHECK_EQ(lookup_bytes("a\0b", 3), NFS3_EACCES);
	CHECK_EQ(lookup_bytes(longest, 256), NFS3_ENAMETOOLONG);
	CHECK_EQ(lookup_bytes(longest, 255), NFS3_ENOENT);
	longest[255] = 0;
	CHECK_EQ(nfs_create(&root, &top, longest, CREATE3_GUARDED, 0600, &h), NFS3_OK);
	CHECK_EQ(nfs_remove(&root, &top, longest), NFS3_OK);
	CHECK_EQ(nfs_create(&root, &top, ".", CREATE3_GUARDED, 0600, &h), NFS3_EEXIST);
	CHECK_EQ(nfs_mkdir(&root, &top, "..", &h), NFS3_EEXIST);
	CHECK_EQ(nfs_remove(&root, &top, ".."), NFS3_EEXIST);
	CHECK_EQ(nfs_lookup(&root, &top, ".", &h), NFS3_OK);
	CHECK(memcmp(h.bytes, top.bytes, h.len) == 0);
	CHECK_EQ(nfs_mount(&user, "/home", &h), MOUNT_OK); /* no way out of an export */
	CHECK_EQ(nfs_lookup(&user, &h, "..", &up), NFS3_OK);
	CHECK(memcmp(h.bytes, up.bytes, h.len) == 0);
}

static void an_exclusive_create_can_be_repeated(void)
{
	struct nfs_handle h, again;

	CHECK_EQ(nfs_create(&root, &top, "excl", CREATE3_EXCLUSIVE, 0x41, &h), NFS3_OK);
	gateway_kill();
	gateway_start();
	hang_up_all();
	connect_all();
	CHECK_EQ(nfs_create(&root, &top, "excl", CREATE3_EXCLUSIVE, 0x41, &again), NFS3_OK);
	CHECK(memcmp(h.bytes, again.bytes, h.len) == 0);
	CHECK_EQ(nfs_create(&root, &top, "excl", CREATE3_EXCLUSIVE, 0x42, &h), NFS3_EEXIST);
}

static void a_guard_protects_attributes(void)
{
	struct wire_setattr3_args a = { 0 };
	struct wire_change3_res r;
	struct nfs_handle h;
	struct wire_attr3 at;
	struct wire_time3 guard;
	uint64_t size = 12;
	uint32_t mode = 0600;

	CHECK_EQ(nfs_create(&root, &top, "guarded", CREATE3_GUARDED, 0644, &h), NFS3_OK);
	CHECK_EQ(nfs_getattr(&root, &h, &at), NFS3_OK);
	a.object = nfs_bytes(&h);
	a.attributes.size = &size;
	a.attributes.mode = &mode;
	a.attributes.mtime.how = TIME3_CLIENT;
	a.attributes.mtime.time = (struct wire_time3){ 1234567890, 7 };
	guard = (struct wire_time3){ at.ctime.seconds, at.ctime.nanoseconds ^ 1 };
	a.guard = &guard;
	NFS3(&root, NFS3_SETATTR, setattr3_args, &a, change3_res, &r);
	CHECK_EQ(r.status, NFS3_ENOTSYNC);
	guard = at.ctime;
	NFS3(&root, NFS3_SETATTR, setattr3_args, &a, change3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK(r.change.after && r.change.after->size == 12 && r.change.after->mode == 0600);
	CHECK_EQ(r.change.after->mtime.seconds, 1234567890);
}

/* As the kernel's client does for ftruncate(2). */
static void who_may_write_may_truncate(void)
{
	struct wire_setattr3_args a = { 0 };
	struct wire_change3_res r;
	struct nfs_handle h;
	uint64_t size = 3;

	CHECK_EQ(nfs_create(&root, &top, "cut", CREATE3_GUARDED, 0666, &h), NFS3_OK);
	CHECK_EQ(nfs_write(&root, &h, 0, "Content", 7, STABLE3_FILE, NULL), NFS3_OK);
	a.object = nfs_bytes(&h);
	a.attributes.size = &size;
	a.attributes.mtime.how = TIME3_SERVER;
	NFS3(&user, NFS3_SETATTR, setattr3_args, &a, change3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK(r.change.after && r.change.after->size == 3);
	a.attributes.size = NULL;
	NFS3(&user, NFS3_SETATTR, setattr3_args, &a, change3_res, &r);
	CHECK_EQ(r.status, NFS3_EPERM);
}

/* ---- listings ---- */

#define NAMES 700

static void count_names(const struct wire_bytes *name, int *dots, bool seen[NAMES])
{
	char text[NFS3_NAME_MAX + 1];
	int i;

	snprintf(text, sizeof(text), "%.*s", (int)name->len, (const char *)name->p);
	if (text[0] == '.') {
		(*dots)++;
		return;
	}
	CHECK_EQ(sscanf(text, "name%d", &i), 1);
	CHECK(i >= 0 && i < NAMES && !seen[i]);
	seen[i] = true;
}

static void listings_are_complete(void)
{
	struct nfs_handle d, f;
	bool seen[NAMES] = { 0 }, seen_plus[NAMES] = { 0 };
	int dots = 0, dots_plus = 0;
	char name[32];

	CHECK_EQ(nfs_mkdir(&root, &top, "many", &d), NFS3_OK);
	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "name%d", i);
		CHECK_EQ(nfs_create(&root, &d, name, CREATE3_GUARDED, 0600, &f), NFS3_OK);
	}
	struct wire_readdir3_args a = { .dir = nfs_bytes(&d), .count = 1000 };
	struct wire_readdir3_res r;
	do {
		NFS3(&root, NFS3_READDIR, readdir3_args, &a, readdir3_res, &r);
		CHECK_EQ(r.status, NFS3_OK);
		CHECK(root.in_len <= 1000 + 24);
		for (uint32_t i = 0; i < r.listing.n_entries; i++) {
			count_names(&r.listing.entries[i].name, &dots, seen);
			a.cookie = r.listing.entries[i].cookie;
		}
	} while (!r.listing.eof);
	struct wire_readdirplus3_args p = { .dir = nfs_bytes(&d),
					    .name_bytes = 4096,
					    .max_bytes = 16384 };
	struct wire_readdirplus3_res q;
	do {
		NFS3(&root, NFS3_READDIRPLUS, readdirplus3_args, &p, readdirplus3_res, &q);
		CHECK_EQ(q.status, NFS3_OK);
		CHECK(root.in_len <= 16384 + 24);
		for (uint32_t i = 0; i < q.listing.n_entries; i++) {
			const struct wire_entryplus3 *e = &q.listing.entries[i];

			count_names(&e->name, &dots_plus, seen_plus);
			CHECK(e->object && e->attributes && e->attributes->fileid == e->fileid);
			p.cookie = e->cookie;
		}
	} while (!q.listing.eof);
	CHECK(dots == 2 && dots_plus == 2);
	for (int i = 0; i < NAMES; i++)
		CHECK(seen[i] && seen_plus[i]);
	p.max_bytes = 60;
	p.cookie = 0;
	NFS3(&root, NFS3_READDIRPLUS, readdirplus3_args, &p, readdirplus3_res, &q);
	CHECK_EQ(q.status, NFS3_ETOOSMALL);
}

/* ---- exports ---- */

static void users_are_squashed(void)
{
	struct nfs_handle home, ro, h;
	struct wire_attr3 a;
	uint32_t n = 4;

	CHECK_EQ(nfs_mount(&root, "/home", &home), MOUNT_OK);
	CHECK_EQ(nfs_create(&root, &home, "of_root", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	CHECK_EQ(nfs_getattr(&root, &h, &a), NFS3_OK);
	CHECK(a.uid == 65534 && a.gid == 65534);
	CHECK_EQ(nfs_create(&user, &home, "of_user", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	CHECK_EQ(nfs_getattr(&user, &h, &a), NFS3_OK);
	CHECK_EQ(a.uid, 1000);
	CHECK_EQ(nfs_write(&user, &h, 0, "data", 4, STABLE3_FILE, NULL), NFS3_OK);
	CHECK_EQ(nfs_read(&root, &h, 0, back, &n, NULL), NFS3_EACCES);
	CHECK_EQ(nfs_mount(&root, "/ro", &ro), MOUNT_OK);
	CHECK_EQ(nfs_lookup(&root, &ro, "of_user", &h), NFS3_OK);
	CHECK_EQ(nfs_read(&root, &h, 0, back, &n, NULL), NFS3_OK); /* all are user 1000 */
	CHECK_EQ(nfs_write(&root, &h, 0, "evil", 4, STABLE3_FILE, NULL), NFS3_EROFS);
	CHECK_EQ(nfs_create(&root, &ro, "new", CREATE3_GUARDED, 0600, &h), NFS3_EROFS);
	CHECK_EQ(nfs_remove(&root, &ro, "of_user"), NFS3_EROFS);
}

/* Those that the caller may not choose are ignored. */
static void owners_of_new_files_are_squashed(void)
{
	uint32_t mode = 0600, uid = 0, gid = 0;
	const struct wire_new_attr3 set = { .mode = &mode, .uid = &uid, .gid = &gid };
	struct nfs_handle home;
	struct wire_create3_args a = { .where.name = wire_text("chosen") };
	struct wire_mkdir3_args d = { { .name = wire_text("chosen_dir") }, set };
	struct wire_create3_res r;

	CHECK_EQ(nfs_mount(&root, "/home", &home), MOUNT_OK);
	a.how.mode = CREATE3_GUARDED;
	a.how.guarded = set;
	a.where.dir = d.where.dir = nfs_bytes(&home);
	NFS3(&root, NFS3_CREATE, create3_args, &a, create3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK(r.created.attributes && r.created.attributes->uid == 65534 &&
	      r.created.attributes->gid == 65534);
	NFS3(&root, NFS3_MKDIR, mkdir3_args, &d, create3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK(r.created.attributes && r.created.attributes->uid == 65534 &&
	      r.created.attributes->gid == 65534);
	a.where.name = wire_text("users");
	uid = 1001;
	NFS3(&user, NFS3_CREATE, create3_args, &a, create3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK(r.created.attributes && r.created.attributes->uid == 1000 &&
	      r.created.attributes->gid == user.gid);
}

static void access_is_told(void)
{
	struct wire_access3_args a = { .rights = 63 };
	struct wire_access3_res r;
	struct nfs_handle h;

	CHECK_EQ(nfs_create(&root, &top, "told", CREATE3_GUARDED, 0754, &h), NFS3_OK);
	a.object = nfs_bytes(&h);
	NFS3(&user, NFS3_ACCESS, access3_args, &a, access3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK_EQ(r.allowed.rights, ACCESS3_READ);
	NFS3(&root, NFS3_ACCESS, access3_args, &a, access3_res, &r);
	CHECK_EQ(r.allowed.rights,
		 ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_EXECUTE);
}

static uint32_t rights_of(struct nfs_client *n, const struct nfs_handle *h)
{
	struct wire_access3_args a = { nfs_bytes(h), 63 };
	struct wire_access3_res r;

	NFS3(n, NFS3_ACCESS, access3_args, &a, access3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	return r.allowed.rights;
}

static void access_control_lists_are_honoured(void)
{
	const uint32_t writes = ACCESS3_MODIFY | ACCESS3_EXTEND;
	struct nfs_client member;
	struct list_acl list = { 0 };
	struct acl_bytes acl;
	struct nfs_handle h;
	uint32_t n = 4;

	CHECK_EQ(nfs_create(&root, &top, "acl", CREATE3_GUARDED, 0604, &h), NFS3_OK);
	CHECK_EQ(nfs_write(&root, &h, 0, "data", 4, STABLE3_FILE, NULL), NFS3_OK);
	acl_add(&list, A_OWNER, 6, 0);
	acl_add(&list, A_USER, 7, 1000);
	acl_add(&list, A_GROUP_OBJ, 0, 0);
	acl_add(&list, A_GROUP, 2, 77);
	acl_add(&list, A_GROUP, 4, 78);
	acl_add(&list, A_MASK, 6, 0);
	acl_add(&list, A_OTHER, 0, 0);
	acl = acl_bytes(&list);
	CHECK_EQ(sheaf_setxattr(fs, "/acl", ACCESS_ACL, acl.b, acl.len, 0), 0);
	CHECK_EQ(rights_of(&user, &h), ACCESS3_READ | writes); /* the mask takes x away */
	CHECK_EQ(nfs_write(&user, &h, 0, "DATA", 4, STABLE3_FILE, NULL), NFS3_OK);
	nfs_dial(&member, port, 2000);
	CHECK_EQ(rights_of(&member, &h), 0);
	CHECK_EQ(nfs_read(&member, &h, 0, back, &n, NULL), NFS3_EACCES);
	member.n_gids = 1;
	member.gids[0] = 77;
	CHECK_EQ(rights_of(&member, &h), writes);
	CHECK_EQ(nfs_read(&member, &h, 0, back, &n, NULL), NFS3_EACCES);
	member.n_gids = 2;
	member.gids[1] = 78;
	CHECK_EQ(rights_of(&member, &h), ACCESS3_READ | writes);
	CHECK_EQ(nfs_read(&member, &h, 0, back, &n, NULL), NFS3_OK);
	nfs_hang_up(&member);
}

static void the_file_system_describes_itself(void)
{
	struct wire_handle3_args a = { nfs_bytes(&top) };
	struct wire_fsinfo3_res i;
	struct wire_fsstat3_res s;
	struct wire_pathconf3_res p;

	NFS3(&root, NFS3_FSINFO, handle3_args, &a, fsinfo3_res, &i);
	CHECK(i.status == NFS3_OK && i.info.read_max == NFS3_DATA_MAX);
	NFS3(&root, NFS3_FSSTAT, handle3_args, &a, fsstat3_res, &s);
	CHECK(s.status == NFS3_OK && s.space.total_bytes >= s.space.free_bytes);
	NFS3(&root, NFS3_PATHCONF, handle3_args, &a, pathconf3_res, &p);
	CHECK(p.status == NFS3_OK && p.limits.name_max == 255);
}

static void a_removed_export_makes_handles_stale(void)
{
	struct nfs_handle h, x;
	struct wire_attr3 a;
	struct stat before;

	CHECK_EQ(stat(c.conf, &before), 0);
	nfs_exports(&c, "[export.short]\npath = /home\ninsecure = yes\n");
	kill(gateway, SIGHUP);
	CHECK(WITHIN(PATIENCE_S, nfs_mount(&root, "/short", &h) == MOUNT_OK));
	CHECK_EQ(nfs_getattr(&root, &h, &a), NFS3_OK);
	CHECK_EQ(truncate(c.conf, before.st_size), 0);
	kill(gateway, SIGHUP);
	CHECK(WITHIN(PATIENCE_S, nfs_getattr(&root, &h, &a) == NFS3_ESTALE));
	CHECK_EQ(nfs_mount(&root, "/short", &x), MOUNT_ENOENT);
	CHECK_EQ(nfs_getattr(&root, &top, &a), NFS3_OK);
}

/* ---- calls that no kernel sends ---- */

static void forged_handles_are_refused(void)
{
	struct nfs_handle h = top;
	struct wire_attr3 a;

	for (uint32_t i = 0; i < top.len; i++)
		for (int bit = 0; bit < 8; bit++) {
			h = top;
			h.bytes[i] ^= (uint8_t)(1 << bit);
			CHECK_EQ(nfs_getattr(&root, &h, &a), NFS3_EBADHANDLE);
		}
	h = top;
	h.len--;
	CHECK_EQ(nfs_getattr(&root, &h, &a), NFS3_EBADHANDLE);
	h.len = 0;
	CHECK_EQ(nfs_getattr(&root, &h, &a), NFS3_EBADHANDLE);
	h.len = 64;
	CHECK_EQ(nfs_getattr(&root, &h, &a), NFS3_EBADHANDLE);
}

static int result_of(uint32_t program, uint32_t version, uint32_t procedure)
{
	nfs_encode(&root, program, version, procedure, NULL, NULL);
	nfs_send(&root);
	CHECK(nfs_receive(&root));
	return nfs_decode(&root, NULL, NULL, NULL);
}

static void unknown_calls_are_answered(void)
{
	CHECK_EQ(result_of(NFS3_PROGRAM, 3, NFS3_NULL), RPC_SUCCESS);
	CHECK_EQ(result_of(MOUNT_PROGRAM, 3, MOUNT_NULL), RPC_SUCCESS);
	CHECK_EQ(result_of(NFS3_PROGRAM, 4, NFS3_NULL), RPC_NO_VERSION);
	CHECK_EQ(result_of(NFS3_PROGRAM, 3, 22), RPC_NO_PROCEDURE);
	CHECK_EQ(result_of(300000, 1, 0), RPC_NO_PROGRAM);
	CHECK_EQ(result_of(NFS3_PROGRAM, 3, NFS3_GETATTR), RPC_BAD_ARGUMENTS);
	nfs_encode(&root, NFS3_PROGRAM, 3, NFS3_NULL, NULL, NULL);
	root.out[4 + 11] = 3; /* the version of RPC */
	nfs_send(&root);
	CHECK(nfs_receive(&root));
	CHECK_EQ(nfs_decode(&root, NULL, NULL, NULL), -1);
	nfs_encode(&root, NFS3_PROGRAM, 3, NFS3_GETATTR, NULL, NULL);
	root.out[4 + 27] = 6; /* the flavor of the credential */
	nfs_send(&root);
	CHECK(nfs_receive(&root));
	CHECK_EQ(nfs_decode(&root, NULL, NULL, NULL), -1);
}

static void send_bytes(const void *p, size_t n)
{
	CHECK_EQ(send(root.fd, p, n, MSG_NOSIGNAL), n);
}

/* The message in fragments of this size. */
static void send_fragments(size_t size)
{
	for (size_t at = 4; at < root.out_len; at += size) {
		size_t n = MIN(size, root.out_len - at);
		uint32_t mark =
			htonl((uint32_t)n | (at + n == root.out_len ? RPC_FRAGMENT_LAST : 0));

		send_bytes(&mark, 4);
		send_bytes(root.out + at, n);
	}
}

static void records_come_in_any_pieces(void)
{
	struct wire_handle3_args a = { nfs_bytes(&top) };
	struct wire_getattr3_res r;

	for (size_t size = 1; size < 160; size += 13) {
		nfs_encode(&root, NFS3_PROGRAM, 3, NFS3_GETATTR, XDR_ANY(xdr_wire_handle3_args),
			   &a);
		send_fragments(size);
		CHECK(nfs_receive(&root));
		CHECK_EQ(nfs_decode(&root, XDR_ANY(xdr_wire_getattr3_res), &r, NULL), RPC_SUCCESS);
		CHECK_EQ(r.status, NFS3_OK);
	}
	nfs_encode(&root, NFS3_PROGRAM, 3, NFS3_GETATTR, XDR_ANY(xdr_wire_handle3_args), &a);
	uint32_t mark = htonl((uint32_t)(root.out_len - 4) | RPC_FRAGMENT_LAST);
	memcpy(root.out, &mark, 4);
	for (size_t i = 0; i < root.out_len; i++) {
		send_bytes(root.out + i, 1);
		if (i % 8 == 0)
			pause_ms(1);
	}
	CHECK(nfs_receive(&root));
	CHECK_EQ(nfs_decode(&root, XDR_ANY(xdr_wire_getattr3_res), &r, NULL), RPC_SUCCESS);
}

/* The gateway closes the connection, and serves others. */
static void is_hung_up(void)
{
	struct wire_attr3 a;

	CHECK(!nfs_receive(&root));
	CHECK_EQ(nfs_getattr(&user, &top, &a), NFS3_OK);
	nfs_hang_up(&root);
	nfs_dial(&root, port, 0);
}

static void what_is_no_call_ends_the_connection(void)
{
	static const uint8_t too_long[4] = { 0xff, 0xff, 0xff, 0xff };
	static const uint8_t empty[4] = { 0, 0, 0, 0 };
	static const uint8_t part[4 + 64 * KIB] = { 0, 1, 0, 0 };
	static const uint8_t short_call[8] = { 0x80, 0, 0, 4, 1, 2, 3, 4 };

	send_bytes(too_long, 4);
	is_hung_up();
	send_bytes(short_call, 8);
	is_hung_up();
	send_bytes("GET / HTTP/1.0\r\n\r\n", 18);
	is_hung_up();
	for (int i = 0; i < 2000; i++) /* an endless record of empty fragments */
		if (send(root.fd, empty, 4, MSG_NOSIGNAL) < 0)
			break;
	is_hung_up();
	for (int i = 0; i < 100; i++) /* and of large ones */
		if (send(root.fd, part, sizeof(part), MSG_NOSIGNAL) < 0)
			break;
	is_hung_up();
}

static void retransmissions_get_the_first_reply(void)
{
	struct wire_remove3_args a = { { nfs_bytes(&top), wire_text("twice") } };
	struct wire_change3_res r;
	struct nfs_handle h;
	struct nfs_client other;

	CHECK_EQ(nfs_create(&root, &top, "twice", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	NFS3(&root, NFS3_REMOVE, remove3_args, &a, change3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	nfs_dial(&other, port, 0); /* the same call over another connection */
	other.xid = root.xid - 1;
	NFS3(&other, NFS3_REMOVE, remove3_args, &a, change3_res, &r);
	CHECK_EQ(r.status, NFS3_OK);
	NFS3(&other, NFS3_REMOVE, remove3_args, &a, change3_res, &r); /* a new one */
	CHECK_EQ(r.status, NFS3_ENOENT);
	nfs_hang_up(&other);
}

static void many_calls_may_be_sent_at_once(void)
{
	enum { CALLS = 1000 };
	struct wire_handle3_args a = { nfs_bytes(&top) };
	struct wire_getattr3_res r;
	static bool seen[CALLS];
	static uint8_t all[CALLS * 256];
	size_t n = 0;
	uint32_t first = root.xid + 1, mark;

	for (int i = 0; i < CALLS; i++) {
		nfs_encode(&root, NFS3_PROGRAM, 3, NFS3_GETATTR, XDR_ANY(xdr_wire_handle3_args),
			   &a);
		mark = htonl((uint32_t)(root.out_len - 4) | RPC_FRAGMENT_LAST);
		memcpy(root.out, &mark, 4);
		CHECK(n + root.out_len <= sizeof(all));
		memcpy(all + n, root.out, root.out_len);
		n += root.out_len;
	}
	send_bytes(all, n);
	for (int i = 0; i < CALLS; i++) {
		CHECK(nfs_receive(&root));
		memcpy(&mark, root.in, 4);
		root.xid = ntohl(mark);
		CHECK(root.xid - first < CALLS && !seen[root.xid - first]);
		seen[root.xid - first] = true;
		CHECK_EQ(nfs_decode(&root, XDR_ANY(xdr_wire_getattr3_res), &r, NULL), RPC_SUCCESS);
		CHECK_EQ(r.status, NFS3_OK);
	}
	root.xid = first + CALLS;
}

static void a_slow_reader_holds_up_nobody(void)
{
	struct wire_read3_args a = { .count = NFS3_DATA_MAX };
	struct wire_read3_res r;
	struct wire_attr3 at;
	struct nfs_handle h;
	struct nfs_client slow;
	enum { CALLS = 40 };

	fill(2);
	CHECK_EQ(nfs_create(&root, &top, "slow", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	CHECK_EQ(nfs_write(&root, &h, 0, data, NFS3_DATA_MAX, STABLE3_FILE, NULL), NFS3_OK);
	nfs_dial(&slow, port, 0);
	a.file = nfs_bytes(&h);
	for (int i = 0; i < CALLS; i++) {
		nfs_encode(&slow, NFS3_PROGRAM, 3, NFS3_READ, XDR_ANY(xdr_wire_read3_args), &a);
		nfs_send(&slow);
	}
	for (int i = 0; i < 100; i++)
		CHECK_EQ(nfs_getattr(&user, &top, &at), NFS3_OK);
	slow.xid -= CALLS;
	for (int i = 0; i < CALLS; i++) { /* replies come in any order: look at the data */
		const uint8_t *p;

		CHECK(nfs_receive(&slow));
		memcpy(&slow.xid, slow.in, 4);
		slow.xid = ntohl(slow.xid);
		CHECK_EQ(nfs_decode(&slow, XDR_ANY(xdr_wire_read3_res), &r, &p), RPC_SUCCESS);
		CHECK(r.status == NFS3_OK && r.read.count == NFS3_DATA_MAX);
		CHECK(memcmp(p, data, NFS3_DATA_MAX) == 0);
	}
	nfs_hang_up(&slow);
}

static void a_thousand_connections_are_served(void)
{
	static int fds[1000];
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct wire_attr3 at;

	raise_file_limit();
	if (file_limit() < 1100)
		return;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK(fds[i] >= 0);
		CHECK_EQ(connect(fds[i], (struct sockaddr *)&a, sizeof(a)), 0);
		CHECK_EQ(send(fds[i], "\x80\0\1\0half", 8, MSG_NOSIGNAL), 8);
	}
	CHECK_EQ(nfs_getattr(&user, &top, &at), NFS3_OK);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	CHECK_EQ(nfs_getattr(&user, &top, &at), NFS3_OK);
}

/* Each has a session, and the gateway one link to each server. */
static void many_clients_share_the_links_of_the_gateway(void)
{
	static struct nfs_client n[32];
	struct sheaf_server before = server_status(fs, 0), now;
	struct wire_attr3 at;
	char address[32];

	for (size_t i = 0; i < ARRAY_LEN(n); i++) {
		snprintf(address, sizeof(address), "127.0.3.%zu", i + 1);
		nfs_dial_from(&n[i], port, 1000, address);
		CHECK_EQ(nfs_getattr(&n[i], &top, &at), NFS3_OK);
	}
	now = server_status(fs, 0);
	CHECK_EQ(now.links, before.links);
	CHECK(now.sessions >= before.sessions + ARRAY_LEN(n));
	for (size_t i = 0; i < ARRAY_LEN(n); i++)
		nfs_hang_up(&n[i]);
}

static void it_stops_and_uses_no_processor_when_idle(void)
{
	char path[64], text[512];
	unsigned long before, after;
	int fd;

	pause_ms(5000); /* files that were used are closed after 3 s */
	for (int round = 0; round < 2; round++) {
		const char *at;
		unsigned long user_ticks, system_ticks;

		snprintf(path, sizeof(path), "/proc/%d/stat", gateway);
		fd = open(path, O_RDONLY);
		CHECK(fd >= 0);
		memset(text, 0, sizeof(text));
		CHECK(read(fd, text, sizeof(text) - 1) > 0);
		close(fd);
		at = strrchr(text, ')');
		CHECK_EQ(sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
				&user_ticks, &system_ticks),
			 2);
		*(round ? &after : &before) = user_ticks + system_ticks;
		if (!round)
			pause_ms(2000);
	}
	CHECK(after - before <= 1);
	kill(gateway, SIGTERM);
	CHECK_EQ(process_wait(gateway), 0);
	gateway_start();
	hang_up_all();
	connect_all();
}

static void begin(void)
{
	cluster_create(&c, NULL);
	nfs_exports(&c, exports);
	cluster_start(&c);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_mkdir(fs, "/home", 0777), 0);
	CHECK_EQ(sheaf_chmod(fs, "/home", 0777), 0);
	port = free_ports(1);
	gateway_start();
	connect_all();
}

static void end(void)
{
	hang_up_all();
	kill(gateway, SIGTERM);
	CHECK_EQ(process_wait(gateway), 0);
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(NULL, begin, end, TEST(paths_of_exports_are_mounted), TEST(exports_are_listed),
	 TEST(what_is_written_is_read), TEST(a_lost_write_changes_the_verifier),
	 TEST(offsets_beyond_the_largest_file_are_refused),
	 TEST(an_owner_writes_what_its_mode_forbids), TEST(names_are_made_and_removed),
	 TEST(changes_tell_the_state_before), TEST(special_files_are_made),
	 TEST(new_files_get_their_attributes_at_once), TEST(bad_names_are_refused),
	 TEST(an_exclusive_create_can_be_repeated), TEST(a_guard_protects_attributes),
	 TEST(who_may_write_may_truncate), TEST(listings_are_complete), TEST(users_are_squashed),
	 TEST(owners_of_new_files_are_squashed), TEST(access_is_told),
	 TEST(access_control_lists_are_honoured), TEST(the_file_system_describes_itself),
	 TEST(a_removed_export_makes_handles_stale), TEST(forged_handles_are_refused),
	 TEST(unknown_calls_are_answered), TEST(records_come_in_any_pieces),
	 TEST(what_is_no_call_ends_the_connection), TEST(retransmissions_get_the_first_reply),
	 TEST(many_calls_may_be_sent_at_once), TEST(a_slow_reader_holds_up_nobody),
	 TEST(a_thousand_connections_are_served), TEST(many_clients_share_the_links_of_the_gateway),
	 TEST(it_stops_and_uses_no_processor_when_idle))
