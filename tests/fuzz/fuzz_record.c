/* Any bytes as an operation record on a small database: never a crash, never a lasting change. One
 * environment stays open for all inputs; the transaction of each record is aborted. With
 * SHEAF_WRITE_CORPUS=DIR it writes its seeds there. */
#include "acl_list.h"
#include "metadb.h"
#include "meta/meta_schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct metadb f;
static struct wire_handle dir, file;

static void clean_up(void)
{
	metadb_end(&f);
}

static void write_seed(const char *to, const char *name, struct wire_record *r)
{
	uint8_t buf[4096];
	char path[512];
	struct xdr x;
	FILE *out;

	xdr_encoder(&x, buf, sizeof(buf));
	CHECK(xdr_wire_record(&x, r));
	snprintf(path, sizeof(path), "%s/%s", to, name);
	out = fopen(path, "w");
	CHECK(out);
	CHECK_EQ(fwrite(buf, 1, xdr_used(&x), out), xdr_used(&x));
	fclose(out);
}

/* One repair of each kind. */
static void write_repairs(const char *to)
{
	struct key k = key_u64(file.ino);

	for (uint32_t kind = REPAIR_ENTRY_SET; kind <= REPAIR_ACL; kind++) {
		bool of_dir = kind == REPAIR_DIRECTORY || kind == REPAIR_PARENT;
		struct wire_record r = rec_name(&f, REC_CREATE, dir, "file");
		char name[32];

		r.kind = REC_REPAIR;
		r.which = kind;
		r.h = of_dir ? dir : file;
		r.h.ino += kind == REPAIR_MAKE ? 100 : 0;
		r.mode = S_IFREG;
		r.size = metadb_node(&f, of_dir ? dir : file).attr.change;
		r.epoch = kind == REPAIR_ROW_DROP ? SCAN_TRUNCATE : 3;
		r.data = (struct wire_bytes){ (uint32_t)k.n, k.b };
		snprintf(name, sizeof(name), "repair_%s", wire_repair_kind_name(kind));
		write_seed(to, name, &r);
	}
}

static struct wire_record rec_acl(const char *name, struct wire_handle h,
				  const struct acl_bytes *list)
{
	struct wire_record r = rec_on(&f, REC_SETXATTR, h);

	r.name = wire_text(name);
	r.data = (struct wire_bytes){ list->len, list->b };
	return r;
}

/* Access control lists that are set, changed and inherited, by users other than root, so that they
 * are checked. */
static void write_acls(const char *to)
{
	struct acl_bytes list = acl_sample();
	struct wire_record r = rec_acl(ACCESS_ACL, dir, &list), part;
	uint8_t text[PART_MAX];
	struct xdr x;

	write_seed(to, "acl_access", &r);
	r = rec_acl(DEFAULT_ACL, dir, &list);
	write_seed(to, "acl_default", &r);
	r.kind = REC_REMOVEXATTR;
	write_seed(to, "acl_drop", &r);
	r = rec_name(&f, REC_MKDIR, dir, "new");
	r.uid = r.gid = 1001;
	r.owner = 022;
	write_seed(to, "acl_mkdir", &r);
	part = rec_on(&f, PART_NEW, (struct wire_handle){ 0 });
	part.dir = dir;
	part.mode = 0777;
	part.which = S_IFDIR | 0755;
	part.data = (struct wire_bytes){ list.len, list.b };
	xdr_encoder(&x, text, sizeof(text));
	CHECK(xdr_wire_record(&x, &part));
	r = rec_on(&f, REC_PREPARE, (struct wire_handle){ 0 });
	r.pair = 9;
	r.new_ino = meta_new_ino(f.m);
	r.data = (struct wire_bytes){ (uint32_t)xdr_used(&x), text };
	write_seed(to, "acl_part", &r);
}

/* One valid record of each kind, and some records with a slot. */
static void write_corpus(const char *to)
{
	for (uint32_t kind = REC_CREATE; kind <= REC_REMOVEXATTR; kind++) {
		struct wire_record r = rec_name(&f, kind, dir, kind == REC_RMDIR ? "sub" : "file");
		char name[32];

		r.h = file;
		r.dir2 = metadb_root;
		r.name2 = wire_text("other");
		r.epoch = 2;
		r.obj_gen = 1;
		r.which = SET_MODE | SET_MTIME;
		r.data = wire_text("blob");
		if (kind == REC_CREATE || kind == REC_MKDIR || kind == REC_LINK ||
		    kind == REC_SYMLINK)
			r.name = wire_text("new");
		if (kind == REC_SYMLINK)
			r.new_ino = meta_new_ino(f.m);
		if (kind == REC_SETXATTR || kind == REC_REMOVEXATTR)
			r.name = wire_text("user.a");
		snprintf(name, sizeof(name), "%s", wire_rec_kind_name(kind));
		write_seed(to, name, &r);
		r.session = 7;
		r.slot = 1;
		r.sequence = 2;
		snprintf(name, sizeof(name), "%s_slot", wire_rec_kind_name(kind));
		write_seed(to, name, &r);
	}
}

static void start(void)
{
	struct acl_bytes list = acl_sample();
	struct wire_record r;

	metadb_start(&f);
	atexit(clean_up);
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	metadb_make(&f, REC_MKDIR, dir, "sub");
	metadb_make(&f, REC_CREATE, metadb_root, "other");
	file = metadb_make(&f, REC_CREATE, dir, "file");
	r = rec_on(&f, REC_SESSION_NEW, metadb_root);
	r.session = 7;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r = rec_on(&f, REC_TRUNC_BEGIN, file);
	r.session = 7;
	r.slot = 1;
	r.sequence = 1;
	CHECK_EQ(metadb_apply(&f, &r).epoch, 2);
	r = rec_on(&f, REC_SETXATTR, file);
	r.name = wire_text("user.a");
	r.data = wire_text("value");
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r = rec_acl(ACCESS_ACL, file, &list);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r = rec_acl(ACCESS_ACL, dir, &list);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r = rec_acl(DEFAULT_ACL, dir, &list);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	if (getenv("SHEAF_WRITE_CORPUS")) {
		write_corpus(getenv("SHEAF_WRITE_CORPUS"));
		write_repairs(getenv("SHEAF_WRITE_CORPUS"));
		write_acls(getenv("SHEAF_WRITE_CORPUS"));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool started;
	struct wire_handle at;
	int rc;

	if (!started)
		start();
	started = true;
	rc = meta_apply_bytes(f.m, data, size);
	CHECK(rc == 0 || rc == -EBADMSG);
	CHECK_EQ(metadb_lookup(&f, dir, "file", &at), 0);
	CHECK_EQ(at.ino, file.ino);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.size, 2);
	metadb_reset(&f);
	return 0;
}
