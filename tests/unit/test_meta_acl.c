/* Access control lists: which lists are valid, what they grant, how they change with the mode and
 * are inherited, compared with a small model of acl(5); security attributes, and when capabilities
 * are dropped. */
#include <regex.h>

#include "acl_list.h"
#include "meta/meta_state.h"
#include "metadb.h"

static struct metadb f;
static uint64_t seed = 11;
static const struct cred root = { 0, 0, 0, NULL };

static uint32_t rnd(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 11) % n);
}

static uint32_t someone(uint32_t i)
{
	return 101 + i % 8;
}

static struct wire_record as(const struct cred *c, struct wire_record r)
{
	r.uid = c->uid;
	r.gid = c->gid;
	r.n_gids = c->n_gids;
	r.gids = (uint32_t *)(uintptr_t)c->gids;
	return r;
}

static int set_bytes(const struct cred *c, struct wire_handle h, const char *name, const void *p,
		     size_t len)
{
	struct wire_record r = as(c, rec_on(&f, REC_SETXATTR, h));

	r.name = wire_text(name);
	r.data = (struct wire_bytes){ (uint32_t)len, p };
	return metadb_apply(&f, &r).status;
}

static int set(const struct cred *c, struct wire_handle h, const char *name, struct list_acl *a)
{
	struct acl_bytes b = acl_bytes(a);

	return set_bytes(c, h, name, b.b, b.len);
}

static int drop(const struct cred *c, struct wire_handle h, const char *name)
{
	struct wire_record r = as(c, rec_on(&f, REC_REMOVEXATTR, h));

	r.name = wire_text(name);
	return metadb_apply(&f, &r).status;
}

static int get(const struct cred *c, struct wire_handle h, const char *name,
	       struct wire_xattr_res *res)
{
	struct wire_bytes n = wire_text(name);

	return meta_getxattr(f.m, c, &h, &n, XATTR_VALUE_LEN, res, &f.arena);
}

/* Compares the stored list with *a; NULL means that there is none. */
static bool has(struct wire_handle h, const char *name, struct list_acl *want)
{
	struct acl_bytes b;
	struct wire_xattr_res res;
	int e = get(&root, h, name, &res);

	if (!want)
		return e == -ENODATA;
	b = acl_bytes(want);
	return e == 0 && res.size == b.len && !memcmp(res.data.p, b.b, b.len);
}

static int change(const struct cred *c, struct wire_handle h, uint32_t which, uint32_t mode,
		  uint32_t uid, uint32_t gid)
{
	struct wire_record r = as(c, rec_on(&f, REC_SETATTR, h));

	r.which = which;
	r.mode = mode;
	r.owner = uid;
	r.group = gid;
	return metadb_apply(&f, &r).status;
}

static struct wire_handle make(const struct cred *c, uint32_t kind, struct wire_handle dir,
			       const char *name, uint32_t mode, uint32_t mask)
{
	struct wire_record r = as(c, rec_name(&f, kind, dir, name));
	struct wire_record_res res;

	r.mode = mode;
	r.owner = mask;
	r.new_ino = meta_new_ino(f.m);
	r.data = kind == REC_SYMLINK ? wire_text("x") : r.data;
	res = metadb_apply(&f, &r);
	CHECK_EQ(res.status, 0);
	return attr_handle(&res.at);
}

static unsigned mode_of(struct wire_handle h)
{
	return metadb_node(&f, h).attr.mode & 07777;
}

/* ---- the model: the steps that acl(5) has under "access check algorithm" ---- */

static bool in(const struct cred *c, uint32_t gid)
{
	bool is = c->gid == gid;

	for (uint32_t i = 0; i < c->n_gids; i++)
		is |= c->gids[i] == gid;
	return is;
}

static bool model_grants(struct list_acl *a, uint32_t uid, uint32_t gid, const struct cred *c,
			 unsigned want)
{
	unsigned mask = acl_perm(a, A_MASK, 7);
	bool matched = false;

	if (c->uid == 0)
		return true;
	if (c->uid == uid)
		return (acl_perm(a, A_OWNER, 0) & want) == want;
	for (unsigned i = 0; i < a->n; i++)
		if (a->e[i].tag == A_USER && a->e[i].id == c->uid)
			return (a->e[i].perm & mask & want) == want;
	for (unsigned i = 0; i < a->n; i++) {
		const struct ace *e = &a->e[i];

		if (!(e->tag == A_GROUP && in(c, e->id)) && !(e->tag == A_GROUP_OBJ && in(c, gid)))
			continue;
		matched = true;
		if ((e->perm & mask & want) == want)
			return true;
	}
	return !matched && (acl_perm(a, A_OTHER, 0) & want) == want;
}

static struct cred some_cred(uint32_t gids[3])
{
	struct cred c = { rnd(12) ? someone(rnd(8)) : 0, someone(rnd(8)), rnd(4), gids };

	for (int i = 0; i < 3; i++)
		gids[i] = someone(rnd(8));
	return c;
}

/* Checks permissions on the loop, in a walk, and in a record. */
static void who_may(struct list_acl *a, struct wire_handle dir, struct wire_handle file)
{
	struct meta_node n = metadb_node(&f, dir);
	uint32_t gids[3], uid = n.attr.uid, gid = n.attr.gid;
	struct cred c = some_cred(gids);
	struct wire_place p = { metadb_root, wire_text("dir/none"), false };
	struct wire_record r = as(&c, rec_name(&f, REC_CREATE, dir, "new"));
	struct wire_referral at;
	unsigned want = 1 + rnd(7);
	int status;

	CHECK_EQ(meta_may(&n, &c, (int)want), model_grants(a, uid, gid, &c, want) ? 0 : -EACCES);
	CHECK_EQ(meta_walk(f.m, &c, &p, NULL, &at, &f.arena),
		 model_grants(a, uid, gid, &c, MAY_EXEC) ? -ENOENT : -EACCES);
	status = metadb_apply(&f, &r).status;
	CHECK_EQ(status, model_grants(a, uid, gid, &c, MAY_EXEC | MAY_WRITE) ? 0 : EACCES);
	if (!status)
		CHECK_EQ(metadb_name(&f, REC_UNLINK, dir, "new").status, 0);
	CHECK_EQ(set_bytes(&c, file, "user.x", "x", 1),
		 model_grants(a, uid, gid, &c, MAY_WRITE) ? 0 : EACCES);
}

static void a_list_grants_what_acl_5_says(void)
{
	struct wire_handle dir, file;
	struct list_acl a;

	metadb_start(&f);
	dir = make(&root, REC_MKDIR, metadb_root, "dir", 0755, 0);
	file = make(&root, REC_CREATE, metadb_root, "file", 0644, 0);
	for (int i = 0; i < 3000; i++) {
		uint32_t uid = someone(rnd(8)), gid = someone(rnd(8));

		acl_random(&a, rnd, someone);
		CHECK_EQ(change(&root, dir, SET_UID | SET_GID, 0, uid, gid), 0);
		CHECK_EQ(change(&root, file, SET_UID | SET_GID, 0, uid, gid), 0);
		CHECK_EQ(set(&root, dir, ACCESS_ACL, &a), 0);
		CHECK_EQ(set(&root, file, ACCESS_ACL, &a), 0);
		CHECK_EQ(mode_of(dir), acl_shows(&a));
		CHECK(has(file, ACCESS_ACL, a.n == 3 ? NULL : &a));
		if (rnd(4) == 0)
			metadb_reset(&f);
		for (int k = 0; k < 4; k++)
			who_may(&a, dir, file);
		metadb_reset(&f);
	}
	metadb_end(&f);
}

/* ---- validity ---- */

/* The order of entries as a regular expression over one letter per entry. */
static bool model_valid(const struct list_acl *a)
{
	char tags[sizeof(a->e) / sizeof(a->e[0]) + 1];
	regex_t re;
	bool ok;

	for (unsigned i = 0; i < a->n; i++) {
		const struct ace *e = &a->e[i];

		tags[i] = e->tag == A_OWNER	? 'U' :
			  e->tag == A_USER	? 'u' :
			  e->tag == A_GROUP_OBJ ? 'G' :
			  e->tag == A_GROUP	? 'g' :
			  e->tag == A_MASK	? 'M' :
			  e->tag == A_OTHER	? 'O' :
						  '?';
		if (e->perm > 7 || ((tags[i] == 'u' || tags[i] == 'g') && e->id == UINT32_MAX))
			return false;
	}
	tags[a->n] = 0;
	CHECK_EQ(regcomp(&re, "^U(u*Gg*MO|GO)$", REG_EXTENDED), 0);
	ok = regexec(&re, tags, 0, NULL, 0) == 0;
	regfree(&re);
	return ok;
}

/* Adds, removes, moves or changes one entry. */
static void spoil(struct list_acl *a)
{
	static const uint16_t tags[] = { 1, 2, 4, 8, 16, 32, 64, 0, 3 };
	unsigned i = rnd(a->n), k = rnd(a->n);
	struct ace e = a->e[i];

	switch (rnd(5)) {
	case 0:
		a->e[i].tag = tags[rnd(9)];
		break;
	case 1:
		a->e[i].perm = (uint16_t)rnd(16);
		break;
	case 2:
		a->e[i].id = rnd(2) ? UINT32_MAX : 7;
		break;
	case 3:
		a->e[i] = a->e[k];
		a->e[k] = e;
		break;
	default:
		memmove(&a->e[i], &a->e[i + 1], (a->n - i) * sizeof(e));
		a->n--;
		if (rnd(2))
			acl_add(a, e.tag, e.perm, e.id);
	}
}

static void what_is_no_list_is_refused(void)
{
	struct wire_handle file;
	struct list_acl a;
	struct acl_bytes b;
	unsigned good = 0;

	metadb_start(&f);
	file = make(&root, REC_CREATE, metadb_root, "file", 0644, 0);
	for (int i = 0; i < 4000; i++) {
		acl_random(&a, rnd, someone);
		for (uint32_t k = rnd(3); k && a.n; k--)
			spoil(&a);
		if (!a.n)
			continue;
		good += model_valid(&a);
		CHECK_EQ(set(&root, file, ACCESS_ACL, &a), model_valid(&a) ? 0 : EINVAL);
		metadb_reset(&f);
	}
	CHECK(good > 500 && good < 3500);
	acl_random(&a, rnd, someone);
	b = acl_bytes(&a);
	for (uint32_t len = 1; len < b.len; len++)
		if (len != 4) /* a head alone is an empty list */
			CHECK_EQ(set_bytes(&root, file, ACCESS_ACL, b.b, len), EINVAL);
	b.b[0] = 1;
	CHECK_EQ(set_bytes(&root, file, ACCESS_ACL, b.b, b.len), EOPNOTSUPP);
	metadb_end(&f);
}

static void a_list_has_at_most_512_entries(void)
{
	struct wire_handle dir, sub;
	struct list_acl a = { 0 };

	metadb_start(&f);
	dir = make(&root, REC_MKDIR, metadb_root, "dir", 0755, 0);
	acl_add(&a, A_OWNER, 7, UINT32_MAX);
	for (uint32_t i = 0; i < 508; i++)
		acl_add(&a, A_USER, 5, 1000 + i);
	acl_add(&a, A_GROUP_OBJ, 5, UINT32_MAX);
	acl_add(&a, A_MASK, 7, UINT32_MAX);
	acl_add(&a, A_OTHER, 0, UINT32_MAX);
	CHECK_EQ(set(&root, dir, DEFAULT_ACL, &a), 0);
	sub = make(&root, REC_MKDIR, dir, "sub", 0777, 022);
	CHECK(has(sub, DEFAULT_ACL, &a));
	CHECK(has(sub, ACCESS_ACL, &a));
	memmove(&a.e[2], &a.e[1], (a.n - 1) * sizeof(a.e[0]));
	a.n++;
	CHECK_EQ(set(&root, dir, DEFAULT_ACL, &a), ENOSPC);
	metadb_end(&f);
}

/* ---- who may set them, and on which files ---- */

static void owners_set_acls_and_all_users_read_them(void)
{
	const struct cred user = { 101, 101, 0, NULL }, other = { 102, 102, 0, NULL };
	struct wire_handle file, dir, link, pipe_;
	struct wire_xattr_res res;
	struct list_acl a = { 0 };

	metadb_start(&f);
	file = make(&user, REC_CREATE, metadb_root, "file", 0600, 0);
	dir = make(&user, REC_MKDIR, metadb_root, "dir", 0700, 0);
	link = make(&user, REC_SYMLINK, metadb_root, "link", 0, 0);
	pipe_ = make(&user, REC_MKNOD, metadb_root, "pipe", S_IFIFO | 0600, 0);
	acl_add(&a, A_OWNER, 6, UINT32_MAX);
	acl_add(&a, A_USER, 4, 103);
	acl_add(&a, A_GROUP_OBJ, 0, UINT32_MAX);
	acl_add(&a, A_MASK, 4, UINT32_MAX);
	acl_add(&a, A_OTHER, 0, UINT32_MAX);
	CHECK_EQ(set(&other, file, ACCESS_ACL, &a), EPERM);
	CHECK_EQ(drop(&other, file, ACCESS_ACL), EPERM);
	CHECK_EQ(set(&user, file, ACCESS_ACL, &a), 0);
	CHECK_EQ(set(&user, pipe_, ACCESS_ACL, &a), 0);
	CHECK_EQ(mode_of(file), 0640);
	CHECK_EQ(get(&other, file, ACCESS_ACL, &res), 0);
	CHECK_EQ(meta_listxattr(f.m, &other, &file, 100, &res, &f.arena), 0);
	CHECK(res.size == sizeof(ACCESS_ACL) && !memcmp(res.data.p, ACCESS_ACL, res.size));
	/* only directories have default lists */
	CHECK_EQ(set(&user, file, DEFAULT_ACL, &a), EACCES);
	CHECK_EQ(set(&other, file, DEFAULT_ACL, &a), EACCES);
	CHECK_EQ(drop(&user, file, DEFAULT_ACL), 0);
	CHECK_EQ(set(&other, dir, DEFAULT_ACL, &a), EPERM);
	CHECK_EQ(set(&user, dir, DEFAULT_ACL, &a), 0);
	CHECK_EQ(mode_of(dir), 0700);
	CHECK(has(dir, ACCESS_ACL, NULL) && has(dir, DEFAULT_ACL, &a));
	CHECK_EQ(set(&root, link, ACCESS_ACL, &a), EOPNOTSUPP);
	CHECK_EQ(drop(&root, link, ACCESS_ACL), EOPNOTSUPP);
	CHECK_EQ(get(&root, link, ACCESS_ACL, &res), -EOPNOTSUPP);
	CHECK_EQ(set(&root, file, "system.posix_acl_x", &a), EOPNOTSUPP);
	/* removing the list keeps the mode */
	CHECK_EQ(drop(&user, file, ACCESS_ACL), 0);
	CHECK_EQ(drop(&user, file, ACCESS_ACL), 0);
	CHECK_EQ(mode_of(file), 0640);
	CHECK(has(file, ACCESS_ACL, NULL));
	CHECK_EQ(set_bytes(&user, dir, DEFAULT_ACL, "\2\0\0\0", 4), 0);
	CHECK(has(dir, DEFAULT_ACL, NULL));
	CHECK_EQ(set(&user, dir, DEFAULT_ACL, &a), 0);
	CHECK_EQ(set_bytes(&user, dir, DEFAULT_ACL, NULL, 0), 0);
	CHECK(has(dir, DEFAULT_ACL, NULL));
	metadb_reopen(&f);
	CHECK(has(pipe_, ACCESS_ACL, &a));
	metadb_end(&f);
}

static void set_gid_is_cleared_outside_the_group(void)
{
	const struct cred user = { 101, 101, 0, NULL };
	struct wire_handle file;
	struct list_acl a;

	metadb_start(&f);
	acl_random(&a, rnd, someone);
	file = make(&user, REC_CREATE, metadb_root, "file", 02755, 0);
	CHECK_EQ(set(&user, file, ACCESS_ACL, &a), 0);
	CHECK_EQ(mode_of(file), 02000 | acl_shows(&a));
	CHECK_EQ(change(&root, file, SET_GID, 0, 0, 55), 0);
	CHECK_EQ(change(&root, file, SET_MODE, 02755, 0, 0), 0);
	CHECK_EQ(set(&root, file, ACCESS_ACL, &a), 0);
	CHECK_EQ(mode_of(file), 02000 | acl_shows(&a));
	CHECK_EQ(set(&user, file, ACCESS_ACL, &a), 0);
	CHECK_EQ(mode_of(file), acl_shows(&a));
	metadb_end(&f);
}

/* ---- chmod, and new files ---- */

static void chmod_changes_the_mask(void)
{
	struct wire_handle file;
	struct list_acl a;

	metadb_start(&f);
	file = make(&root, REC_CREATE, metadb_root, "file", 0644, 0);
	for (int i = 0; i < 1000; i++) {
		unsigned mode = rnd(01000);
		bool more;

		acl_random(&a, rnd, someone);
		more = a.n > 3;
		CHECK_EQ(set(&root, file, ACCESS_ACL, &a), 0);
		CHECK_EQ(change(&root, file, SET_MODE, mode, 0, 0), 0);
		CHECK_EQ(mode_of(file), mode);
		acl_entry(&a, A_OWNER)->perm = (uint16_t)(mode >> 6);
		acl_entry(&a, A_OTHER)->perm = (uint16_t)(mode & 7);
		if (more)
			acl_entry(&a, A_MASK)->perm = (uint16_t)(mode >> 3 & 7);
		CHECK(has(file, ACCESS_ACL, more ? &a : NULL));
		metadb_reset(&f);
	}
	metadb_end(&f);
}

/* The rules of acl(5), "object creation and default ACLs": the permissions of both are
 * intersected. */
static void model_inherit(struct list_acl *a, unsigned mode)
{
	struct ace *class = acl_entry(a, A_MASK) ? acl_entry(a, A_MASK) : acl_entry(a, A_GROUP_OBJ);

	acl_entry(a, A_OWNER)->perm &= mode >> 6;
	class->perm &= mode >> 3 & 7;
	acl_entry(a, A_OTHER)->perm &= mode & 7;
}

static void new_inodes_inherit(void)
{
	static const uint32_t kinds[] = { REC_CREATE, REC_MKDIR, REC_MKNOD };
	struct wire_handle dir, h;
	struct list_acl a, b;

	metadb_start(&f);
	dir = make(&root, REC_MKDIR, metadb_root, "dir", 0755, 0);
	for (int i = 0; i < 1500; i++) {
		uint32_t kind = kinds[rnd(3)];
		unsigned mode = rnd(01000), mask = rnd(01000);
		bool none = rnd(4) == 0;

		acl_random(&a, rnd, someone);
		CHECK_EQ(none ? drop(&root, dir, DEFAULT_ACL) : set(&root, dir, DEFAULT_ACL, &a),
			 0);
		h = make(&root, kind, dir, "new", (kind == REC_MKNOD ? S_IFIFO : 0) | mode, mask);
		b = a;
		model_inherit(&b, mode);
		CHECK_EQ(mode_of(h), none ? mode & ~mask : acl_shows(&b));
		CHECK(has(h, ACCESS_ACL, none || a.n == 3 ? NULL : &b));
		CHECK(has(h, DEFAULT_ACL, none || kind != REC_MKDIR ? NULL : &a));
		CHECK_EQ(metadb_name(&f, kind == REC_MKDIR ? REC_RMDIR : REC_UNLINK, dir, "new")
				 .status,
			 0);
		h = make(&root, REC_SYMLINK, dir, "link", 0, mask);
		CHECK_EQ(mode_of(h), 0777);
		CHECK_EQ(metadb_name(&f, REC_UNLINK, dir, "link").status, 0);
		metadb_reset(&f);
	}
	metadb_end(&f);
}

/* A new directory whose entry is on another server. */
static void a_part_of_a_change_inherits_too(void)
{
	struct wire_record part, r;
	struct wire_handle made;
	struct list_acl a, b;
	struct acl_bytes bytes;
	uint8_t text[PART_MAX];
	struct xdr x;

	metadb_start(&f);
	for (uint64_t i = 1; i <= 20; i++) {
		acl_random(&a, rnd, someone);
		b = a;
		model_inherit(&b, 0751);
		bytes = acl_bytes(&a);
		part = rec_on(&f, PART_NEW, (struct wire_handle){ 0 });
		part.mode = 0751;
		part.owner = 027;
		part.dir = metadb_root;
		part.which = S_IFDIR | 0755;
		if (i % 2)
			part.data = (struct wire_bytes){ bytes.len, bytes.b };
		xdr_encoder(&x, text, sizeof(text));
		CHECK(xdr_wire_record(&x, &part));
		r = rec_on(&f, REC_PREPARE, (struct wire_handle){ 0 });
		r.pair = i;
		r.new_ino = meta_new_ino(f.m);
		r.data = (struct wire_bytes){ (uint32_t)xdr_used(&x), text };
		made = (struct wire_handle){ r.new_ino, 1 };
		CHECK_EQ(metadb_apply(&f, &r).at.mode & 0777, i % 2 ? acl_shows(&b) : 0750);
		metadb_reopen(&f);
		r = rec_on(&f, REC_FINISH, (struct wire_handle){ 0 });
		r.pair = i;
		r.flags = REC_COMMIT;
		CHECK_EQ(metadb_apply(&f, &r).status, 0);
		CHECK_EQ(mode_of(made), i % 2 ? acl_shows(&b) : 0750);
		CHECK(has(made, DEFAULT_ACL, i % 2 ? &a : NULL));
		CHECK(has(made, ACCESS_ACL, i % 2 && a.n > 3 ? &b : NULL));
	}
	/* an invalid list is refused when the part is prepared */
	part.data = wire_text("no list");
	xdr_encoder(&x, text, sizeof(text));
	CHECK(xdr_wire_record(&x, &part));
	r = rec_on(&f, REC_PREPARE, (struct wire_handle){ 0 });
	r.pair = 77;
	r.new_ino = meta_new_ino(f.m);
	r.data = (struct wire_bytes){ (uint32_t)xdr_used(&x), text };
	CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	metadb_end(&f);
}

/* ---- security ---- */

static void capabilities_go_as_set_id_bits_do(void)
{
	const struct cred user = { 101, 101, 0, NULL };
	struct wire_handle file;
	struct wire_xattr_res res;
	struct wire_record r;

	metadb_start(&f);
	file = make(&user, REC_CREATE, metadb_root, "file", 0755, 0);
	CHECK_EQ(set_bytes(&user, file, "security.capability", "c", 1), EPERM);
	CHECK_EQ(set_bytes(&root, file, "security.selinux", "s", 1), 0);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(set_bytes(&root, file, "security.capability", "c", 1), 0);
		CHECK(metadb_node(&f, file).privileged);
		CHECK_EQ(get(&user, file, "security.capability", &res), 0);
		r = as(i == 0 ? &root : &user, rec_on(&f, REC_UNSETTLE, file));
		if (i == 2)
			r = as(&user, rec_on(&f, REC_TRUNC_BEGIN, file));
		if (i == 3) {
			r = as(&user, rec_on(&f, REC_RECORD, file));
			r.epoch = 99;
			r.size = 1000;
			r.mtime = r.time;
		}
		if (i == 4) { /* a change by root, too */
			r = rec_on(&f, REC_SETATTR, file);
			r.which = SET_UID;
			r.owner = 101;
		}
		CHECK_EQ(metadb_apply(&f, &r).status, 0);
		CHECK_EQ(get(&user, file, "security.capability", &res), i ? -ENODATA : 0);
		CHECK_EQ(metadb_node(&f, file).privileged, i == 0);
	}
	CHECK_EQ(set_bytes(&root, file, "security.capability", "c", 1), 0);
	CHECK_EQ(drop(&user, file, "security.capability"), EPERM);
	CHECK_EQ(drop(&root, file, "security.capability"), 0);
	CHECK(!metadb_node(&f, file).privileged);
	CHECK_EQ(get(&user, file, "security.selinux", &res), 0);
	metadb_end(&f);
}

/* ---- damage ---- */

static void put_row(enum table t, struct key k, const void *p, size_t n)
{
	MDB_txn *txn;

	reader_reset(f.m);
	CHECK_EQ(mdb_txn_begin(f.m->db.env, NULL, 0, &txn), 0);
	if (p)
		CHECK_EQ(row_put(&f.m->db, txn, t, &k, p, n), 0);
	else
		CHECK_EQ(row_del(&f.m->db, txn, t, &k), 0);
	CHECK_EQ(mdb_txn_commit(txn), 0);
}

static struct wire_scan_row row_of(uint32_t kind, uint64_t ino)
{
	struct wire_scan_args q = { .kind = kind, .only = ino, .max = 10 };
	struct wire_scan_res res;

	CHECK_EQ(meta_scan(f.m, &q, 64 * KIB, &res, &f.arena), 0);
	CHECK_EQ(res.n_rows, 1);
	return res.rows[0];
}

static int repair(struct wire_handle h)
{
	struct wire_record r = rec_on(&f, REC_REPAIR, h);

	r.which = REPAIR_ACL;
	r.size = row_of(SCAN_INODE, h.ino).change;
	return metadb_apply(&f, &r).status;
}

/* A damaged list must not admit a user whom the original list might have refused. */
static void a_lost_list_is_seen_and_repaired(void)
{
	const struct cred other = { 109, 200, 0, NULL };
	struct wire_bytes name = wire_text(ACCESS_ACL);
	struct wire_handle file;
	struct list_acl a = { 0 };
	struct acl_bytes b;
	struct meta_node n;
	struct key k;

	metadb_start(&f);
	file = make(&root, REC_CREATE, metadb_root, "file", 0644, 0);
	acl_add(&a, A_OWNER, 6, UINT32_MAX);
	acl_add(&a, A_USER, 0, 109);
	acl_add(&a, A_GROUP_OBJ, 4, UINT32_MAX);
	acl_add(&a, A_MASK, 6, UINT32_MAX);
	acl_add(&a, A_OTHER, 4, UINT32_MAX);
	CHECK_EQ(set(&root, file, ACCESS_ACL, &a), 0);
	CHECK_EQ(row_of(SCAN_INODE, file.ino).has, HAS_ACL);
	CHECK_EQ(row_of(SCAN_XATTR, file.ino).has, HAS_ACL);
	CHECK_EQ(row_of(SCAN_XATTR, file.ino).mode, 0664);
	CHECK(!row_of(SCAN_XATTR, file.ino).bad);
	k = key_entry(file.ino, &name);
	put_row(T_XATTR, k, "rubbish", 7);
	CHECK(row_of(SCAN_XATTR, file.ino).bad);
	n = metadb_node(&f, file);
	CHECK_EQ(meta_may(&n, &other, MAY_READ), -EIO);
	CHECK_EQ(repair(file), 0);
	CHECK_EQ(mode_of(file), 0604);
	CHECK_EQ(row_of(SCAN_INODE, file.ino).has, 0);
	CHECK(has(file, ACCESS_ACL, NULL));
	/* a row that is not noted in the inode */
	b = acl_bytes(&a);
	put_row(T_XATTR, k, b.b, b.len);
	n = metadb_node(&f, file);
	CHECK_EQ(meta_may(&n, &other, MAY_READ), 0);
	CHECK_EQ(repair(file), 0);
	CHECK_EQ(mode_of(file), 0664);
	n = metadb_node(&f, file);
	CHECK_EQ(meta_may(&n, &other, MAY_READ), -EACCES);
	put_row(T_XATTR, k, NULL, 0);
	CHECK_EQ(repair(file), 0);
	CHECK_EQ(mode_of(file), 0604);
	metadb_end(&f);
}

TEST_MAIN(TEST(a_list_grants_what_acl_5_says), TEST(what_is_no_list_is_refused),
	  TEST(a_list_has_at_most_512_entries), TEST(owners_set_acls_and_all_users_read_them),
	  TEST(set_gid_is_cleared_outside_the_group), TEST(chmod_changes_the_mask),
	  TEST(new_inodes_inherit), TEST(a_part_of_a_change_inherits_too),
	  TEST(capabilities_go_as_set_id_bits_do), TEST(a_lost_list_is_seen_and_repaired))
