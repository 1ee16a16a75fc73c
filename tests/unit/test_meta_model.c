/* 20,000 seeded operations on a small tree and on a model in memory: status, attributes and
 * contents must agree throughout and across reopens, and every counter must match at the end. */
#include "metadb.h"

#define OPS 20000
#define NODES 400 /* most nodes at one time */
#define N_NAMES 12

/* An inode of the model; number 0 is the root. A node has at most one name: the model has no hard
 * links. */
struct mnode {
	bool used, dir;
	int parent;
	char name[4];
	struct wire_handle h;
	uint64_t size, epoch;
	uint32_t mode;
};

static struct metadb f;
static struct mnode nodes[NODES];
static uint64_t seed;

static unsigned pick(unsigned n)
{
	return (unsigned)(test_random(&seed) % n);
}

static int find(int dir, const char *name)
{
	for (int i = 1; i < NODES; i++)
		if (nodes[i].used && nodes[i].parent == dir && !strcmp(nodes[i].name, name))
			return i;
	return -1;
}

static unsigned n_children(int dir)
{
	unsigned n = 0;

	for (int i = 1; i < NODES; i++)
		n += nodes[i].used && nodes[i].parent == dir;
	return n;
}

static bool is_below(int node, int top)
{
	for (; node != 0; node = nodes[node].parent)
		if (node == top)
			return true;
	return top == 0;
}

static int random_node(bool dir)
{
	for (;;) {
		int i = (int)pick(NODES);

		if (nodes[i].used && (nodes[i].dir || !dir))
			return i;
		if (pick(8) == 0)
			return 0;
	}
}

static void random_name(char name[4])
{
	snprintf(name, 4, "n%c", (char)('a' + pick(N_NAMES)));
}

static int free_node(void)
{
	for (int i = 1; i < NODES; i++)
		if (!nodes[i].used)
			return i;
	return -1;
}

static void try_make(bool dir)
{
	int at = random_node(true), slot = free_node(), there;
	struct wire_record_res res;
	struct wire_record r;
	char name[4];

	random_name(name);
	there = find(at, name);
	if (slot < 0 && there < 0)
		return;
	r = rec_name(&f, dir ? REC_MKDIR : REC_CREATE, nodes[at].h, name);
	r.mode = pick(01000);
	r.flags = !dir && pick(2) ? REC_EXCL : 0;
	res = metadb_apply(&f, &r);
	if (there >= 0) {
		int expect = dir || (r.flags & REC_EXCL) ? EEXIST : nodes[there].dir ? EISDIR : 0;

		CHECK_EQ(res.status, expect);
		if (!expect)
			CHECK_EQ(res.at.ino, nodes[there].h.ino);
		return;
	}
	CHECK_EQ(res.status, 0);
	nodes[slot] = (struct mnode){ .used = true,
				      .dir = dir,
				      .parent = at,
				      .epoch = 1,
				      .h = attr_handle(&res.at),
				      .mode = r.mode };
	strcpy(nodes[slot].name, name);
}

static void removed(struct wire_handle h)
{
	struct wire_record r = rec_on(&f, REC_REMOVED, h);

	r.obj_gen = 1;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
}

static void try_drop(bool rmdir)
{
	int at = random_node(true), there, expect = 0;
	struct wire_record_res res;
	char name[4];

	random_name(name);
	there = find(at, name);
	if (there < 0)
		expect = ENOENT;
	else if (rmdir)
		expect = !nodes[there].dir ? ENOTDIR : n_children(there) ? ENOTEMPTY : 0;
	else
		expect = nodes[there].dir ? EISDIR : 0;
	res = metadb_name(&f, rmdir ? REC_RMDIR : REC_UNLINK, nodes[at].h, name);
	CHECK_EQ(res.status, expect);
	if (expect)
		return;
	if (!rmdir)
		removed(res.removed);
	nodes[there].used = false;
}

static int rename_expects(int moved, int to, int there, uint32_t flags)
{
	if (moved < 0)
		return ENOENT;
	if (there >= 0 && (flags & REC_NOREPLACE))
		return EEXIST;
	if (nodes[moved].dir && nodes[moved].parent != to && is_below(to, moved))
		return EINVAL;
	if (there < 0 || there == moved)
		return 0;
	if (nodes[moved].dir != nodes[there].dir)
		return nodes[there].dir ? EISDIR : ENOTDIR;
	return nodes[there].dir && n_children(there) ? ENOTEMPTY : 0;
}

static void try_rename(void)
{
	int from = random_node(true), to = pick(3) ? random_node(true) : from, moved, there, expect;
	char a[4], b[4];
	uint32_t flags = pick(4) ? 0 : REC_NOREPLACE;

	random_name(a);
	random_name(b);
	moved = find(from, a);
	there = find(to, b);
	expect = rename_expects(moved, to, there, flags);
	CHECK_EQ(metadb_rename(&f, nodes[from].h, a, nodes[to].h, b, flags), expect);
	if (expect || moved == there)
		return;
	if (there >= 0) {
		if (!nodes[there].dir)
			removed(nodes[there].h);
		nodes[there].used = false;
	}
	nodes[moved].parent = to;
	strcpy(nodes[moved].name, b);
}

static void try_size(void)
{
	int at = random_node(false);
	struct mnode *n = &nodes[at];
	uint64_t epoch = n->epoch - (n->epoch > 1 && pick(3) == 0), size = pick(100000);
	struct wire_record r = rec_on(&f, REC_RECORD, n->h);

	if (n->dir)
		return;
	if (pick(4)) {
		r.epoch = epoch;
		r.size = size;
		if (epoch == n->epoch)
			n->size = MAX(n->size, size);
		CHECK_EQ(metadb_apply(&f, &r).at.size, n->size);
		return;
	}
	r.kind = REC_TRUNC_BEGIN;
	r.size = size;
	CHECK_EQ(metadb_apply(&f, &r).epoch, ++n->epoch);
	r.kind = REC_TRUNC_END;
	r.epoch = n->epoch;
	n->size = size;
	CHECK_EQ(metadb_apply(&f, &r).at.size, size);
}

static void try_chmod(void)
{
	int at = random_node(false);
	struct wire_record r = rec_on(&f, REC_SETATTR, nodes[at].h);

	if (at == 0)
		return;
	r.which = SET_MODE;
	r.mode = nodes[at].mode = pick(01000);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
}

/* ---- comparing ---- */

static void compare_dir(int d)
{
	struct wire_readdir_res res;
	unsigned subdirs = 0;
	struct meta_node n = metadb_node(&f, nodes[d].h);

	CHECK_EQ(metadb_readdir(&f, nodes[d].h, 0, 1000, 1 << 20, &res), 0);
	CHECK(res.end);
	CHECK_EQ(res.n_entries, n_children(d));
	CHECK_EQ(n.attr.size, n_children(d));
	for (uint32_t i = 0; i < res.n_entries; i++) {
		struct wire_dir_entry *e = &res.entries[i];
		char name[4] = { 0 };
		int child;

		CHECK_EQ(e->name.len, 2);
		memcpy(name, e->name.p, 2);
		child = find(d, name);
		CHECK(child > 0);
		CHECK_EQ(e->h.ino, nodes[child].h.ino);
		CHECK_EQ(e->type, nodes[child].dir ? S_IFDIR : S_IFREG);
		subdirs += nodes[child].dir;
	}
	CHECK_EQ(n.attr.nlink, 2 + subdirs);
	CHECK_EQ(n.parent.ino, nodes[nodes[d].parent].h.ino);
}

static void compare_all(void)
{
	for (int i = 0; i < NODES; i++) {
		struct meta_node n;
		struct wire_handle at;

		if (!nodes[i].used)
			continue;
		n = metadb_node(&f, nodes[i].h);
		CHECK_EQ(n.attr.mode, nodes[i].mode | (nodes[i].dir ? S_IFDIR : S_IFREG));
		if (i) {
			CHECK_EQ(metadb_lookup(&f, nodes[nodes[i].parent].h, nodes[i].name, &at),
				 0);
			CHECK_EQ(at.ino, nodes[i].h.ino);
		}
		if (nodes[i].dir) {
			compare_dir(i);
			continue;
		}
		CHECK_EQ(n.attr.size, nodes[i].size);
		CHECK_EQ(n.attr.nlink, 1);
		CHECK_EQ(n.epoch, nodes[i].epoch);
	}
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 0);
	CHECK_EQ(metadb_rows(&f, ROWS_TRUNCATE), 0);
	metadb_reset(&f);
}

static void random_operations_agree_with_a_model(void)
{
	const char *given = getenv("SEED");

	seed = given ? strtoull(given, NULL, 0) : 20240601;
	memset(nodes, 0, sizeof(nodes));
	metadb_start(&f);
	nodes[0] = (struct mnode){ .used = true, .dir = true, .h = metadb_root, .mode = 01777 };
	for (int i = 0; i < OPS; i++) {
		unsigned what = pick(100);

		if (what < 30)
			try_make(false);
		else if (what < 45)
			try_make(true);
		else if (what < 60)
			try_drop(pick(3) == 0);
		else if (what < 80)
			try_rename();
		else if (what < 93)
			try_size();
		else
			try_chmod();
		metadb_reset(&f);
		if (i % 1000 == 999)
			compare_all();
		if (i % 5000 == 4999)
			metadb_reopen(&f);
	}
	compare_all();
	metadb_end(&f);
}

TEST_MAIN(TEST(random_operations_agree_with_a_model))
