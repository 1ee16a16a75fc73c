/* A name and its attributes out of the database's file, for others of the host: see meta_peek().
 *
 * Who looks here is no reader that LMDB knows of. One that was stopped in the middle of a look would keep every page that is
 * given up from then on, and the file would grow until nobody could change anything. Instead we rely on how LMDB writes: each
 * transaction leaves the two states before it alone, as pages are concerned, and puts its head in the place of the older
 * one, in memory word by word. So what was read of a state is whole if at most one transaction has ended since; pages that are
 * read in vain may hold anything, and nothing in them is believed before it was measured. Which transaction was the last to end
 * the lock file says, to us as to the server: a head is in its place before that, by as long as a disk takes to flush.
 *
 * LMDB's file: pages, the first two of them heads. A page begins with its number, kind and how many 16-bit offsets of nodes
 * follow; nodes are sorted by key. Those of branches tell the page where their keys begin (the first key counts as
 * lower than all), those of leaves have the value behind the key. Tables are values of the main tree.
 *
 * Threads: none. Buffers: one page on the stack. Errors: -EAGAIN for all that the server must be asked for. */
#include "meta/meta_state.h"

#define PAGE 4096 /* of another system's size: -EAGAIN */
#define DEPTH_MOST 32
#define BEGIN_TRIES 4 /* while transactions end */
#define HEAD_MAGIC 0xBEEFC0DEu
#define HEAD_VERSION 1
#define LOCK_FORMAT 0x10001
#define IS_BRANCH 0x01
#define IS_LEAF 0x02
#define ELSEWHERE 0x01 /* a value on pages of its own */
#define NO_PAGE UINT64_MAX /* also the root of an empty tree */

struct tree {
	uint32_t page_bytes; /* of the tree of free pages; else 0 */
	uint16_t flags, depth;
	uint64_t n_branches, n_leaves, n_other, n_rows, root;
};
_Static_assert(sizeof(struct tree) == 48, "lmdb");

struct page_head {
	uint64_t number;
	uint16_t zero, kind, lower, upper; /* lower: behind the offsets */
};
_Static_assert(sizeof(struct page_head) == 16, "lmdb");

struct head {
	struct page_head page;
	uint32_t magic, version;
	uint64_t address, map_bytes;
	struct tree free, main;
	uint64_t last, transaction;
};
_Static_assert(sizeof(struct head) == 152, "lmdb");

struct lock_head {
	uint32_t magic, format;
	pthread_mutex_t readers;
	uint64_t transaction; /* the last that has ended */
};

struct page_node {
	uint16_t low, high, flags, key_bytes; /* then the key, and the value of a leaf */
};
_Static_assert(sizeof(struct page_node) == 8, "lmdb");

/* One look. */
struct look {
	const struct meta_file *file;
	struct head head; /* of the state that is read */
	uint64_t number; /* of the page that is here */
	uint8_t page[PAGE];
};

/* The last transaction that has ended. */
static int lock_read(const struct look *l, uint64_t *transaction)
{
	struct lock_head lock;

	if (l->file->read(l->file, META_LOCK, &lock, sizeof(lock), 0) || lock.magic != HEAD_MAGIC ||
	    lock.format != LOCK_FORMAT)
		return -EAGAIN;
	*transaction = lock.transaction;
	return 0;
}

static bool head_good(const struct head *h)
{
	return h->magic == HEAD_MAGIC && h->version == HEAD_VERSION && h->free.page_bytes == PAGE;
}

/* A head is whole while its transaction is the last one: only the next but one stores into it. */
static int look_begin(struct look *l, const struct meta_file *f)
{
	uint64_t before, now;

	l->file = f;
	l->number = NO_PAGE;
	if (lock_read(l, &now))
		return -EAGAIN;
	for (int i = 0; i < BEGIN_TRIES; i++) {
		before = now;
		atomic_thread_fence(memory_order_acquire);
		if (f->read(f, META_DATA, &l->head, sizeof(l->head), (before & 1) * PAGE) ||
		    !head_good(&l->head))
			return -EAGAIN;
		atomic_thread_fence(memory_order_acquire);
		if (lock_read(l, &now))
			return -EAGAIN;
		if (now == before)
			return l->head.transaction == now ? 0 : -EAGAIN;
	}
	return -EAGAIN;
}

/* Were its pages left alone? */
static bool look_end(const struct look *l)
{
	uint64_t now;

	atomic_thread_fence(memory_order_acquire);
	return !lock_read(l, &now) && now - l->head.transaction <= 1;
}

/* A page of nodes is in l->page: how many of them? */
static int page_read(struct look *l, uint64_t number, struct page_head *h)
{
	int n;

	if (number != l->number) {
		l->number = NO_PAGE;
		if (number > l->head.last ||
		    l->file->read(l->file, META_DATA, l->page, PAGE, number * PAGE))
			return -EAGAIN;
		l->number = number;
	}
	memcpy(h, l->page, sizeof(*h));
	n = ((int)h->lower - (int)sizeof(*h)) / 2;
	h->kind &= IS_BRANCH | IS_LEAF;
	return h->number == number && h->lower <= PAGE && n > 0 ? n : -EAGAIN;
}

/* Node i: its key compared with k as LMDB does it, and where its value begins; -EAGAIN: there is no such node. */
static int node_compare(const struct look *l, int i, const struct key *k, struct page_node *n,
			const uint8_t **value, int *order)
{
	uint16_t at;
	size_t both;

	memcpy(&at, l->page + sizeof(struct page_head) + 2 * (size_t)i, sizeof(at));
	if (at > PAGE - sizeof(*n))
		return -EAGAIN;
	memcpy(n, l->page + at, sizeof(*n));
	*value = l->page + at + sizeof(*n) + n->key_bytes;
	if (*value > l->page + PAGE)
		return -EAGAIN;
	both = MIN(k->n, (size_t)n->key_bytes);
	*order = memcmp(k->b, *value - n->key_bytes, both);
	if (!*order)
		*order = (k->n > both) - (n->key_bytes > both);
	return 0;
}

/* The last of n nodes, from `low` on, whose key is not above k, or low - 1. */
static int page_search(const struct look *l, int low, int n, const struct key *k, bool *same)
{
	struct page_node node;
	const uint8_t *value;
	int high = n, order, mid;

	*same = false;
	while (low < high) {
		mid = low + (high - low) / 2;
		if (node_compare(l, mid, k, &node, &value, &order))
			return -EAGAIN;
		if (order < 0) {
			high = mid;
		} else {
			*same = order == 0;
			if (*same)
				return mid;
			low = mid + 1;
		}
	}
	return low - 1;
}

static int branch_next(struct look *l, int n, const struct key *k, uint64_t *next)
{
	struct page_node node;
	const uint8_t *value;
	bool same;
	int order, i = page_search(l, 1, n, k, &same);

	if (i < 0 || node_compare(l, i, k, &node, &value, &order))
		return -EAGAIN;
	*next = (uint64_t)node.flags << 32 | (uint64_t)node.high << 16 | node.low;
	return 0;
}

static int leaf_value(struct look *l, int n, const struct key *k, void *out, size_t bytes)
{
	struct page_node node;
	const uint8_t *value;
	size_t len;
	bool same;
	int order, i = page_search(l, 0, n, k, &same);

	if (!same)
		return i == -EAGAIN ? i : -ENOENT;
	if (node_compare(l, i, k, &node, &value, &order) || (node.flags & ELSEWHERE))
		return -EAGAIN;
	len = (size_t)node.high << 16 | node.low;
	if (len < bytes || len > (size_t)(l->page + PAGE - value))
		return -EAGAIN;
	memcpy(out, value, bytes);
	return 0;
}

/* The first bytes of a row's value: 0, -ENOENT or -EAGAIN. */
static int tree_get(struct look *l, uint64_t root, const struct key *k, void *out, size_t bytes)
{
	struct page_head h;
	uint64_t at = root;

	for (int depth = 0; at != NO_PAGE && depth < DEPTH_MOST; depth++) {
		int n = page_read(l, at, &h);

		if (n < 0)
			return n;
		if (h.kind == IS_LEAF)
			return leaf_value(l, n, k, out, bytes);
		if (h.kind != IS_BRANCH || branch_next(l, n, k, &at))
			return -EAGAIN;
	}
	return at == NO_PAGE && root == NO_PAGE ? -ENOENT : -EAGAIN;
}

static int tables_get(struct look *l, struct tree tables[N_TABLES])
{
	static const enum table wanted[] = { T_INODE, T_DIRENT, T_UNSETTLED, T_LOCK };

	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		struct key k = key_text(table_names[wanted[i]]);

		if (tree_get(l, l->head.main.root, &k, &tables[wanted[i]], sizeof(*tables)) ||
		    tables[wanted[i]].flags)
			return -EAGAIN;
	}
	return tables[T_LOCK].n_rows ? -EAGAIN : 0; /* a change over two servers is under way */
}

static int inode_get(struct look *l, const struct tree *t, const struct wire_handle *h,
		     struct node *n)
{
	struct key k = key_u64(h->ino);

	n->ino = h->ino;
	return tree_get(l, t[T_INODE].root, &k, &n->i, sizeof(n->i)) || n->i.gen != h->gen ?
		       -EAGAIN :
		       0;
}

/* The inode that a name in dir has, if the caller may know it. */
static int entry_look(struct look *l, const struct tree *t, const struct cred *c,
		      const struct wire_handle *dir, const struct wire_bytes *name,
		      struct wire_handle *out)
{
	struct meta_node who = { 0 };
	struct disk_entry e = { 0 };
	struct node n;
	struct key k;
	int rc = inode_get(l, t, dir, &n);

	if (rc || !S_ISDIR(n.i.mode) || (n.i.has & HAS_ACL))
		return -EAGAIN;
	node_attr(&n, n.ino, false, &who.attr);
	if (meta_may(&who, c, MAY_EXEC))
		return -EAGAIN;
	k = key_entry(dir->ino, name);
	rc = tree_get(l, t[T_DIRENT].root, &k, &e, sizeof(e));
	if (!rc && INO_PARTITION(e.ino) != INO_PARTITION(dir->ino))
		rc = -EAGAIN;
	*out = (struct wire_handle){ e.ino, e.gen };
	return rc;
}

static int attr_look(struct look *l, const struct tree *t, const struct wire_handle *h, bool follow,
		     struct wire_attr *out)
{
	struct disk_unsettled row;
	struct key k = key_u64(h->ino);
	struct node n;
	int rc = inode_get(l, t, h, &n), seen;

	if (rc || (follow && S_ISLNK(n.i.mode)))
		return -EAGAIN;
	seen = tree_get(l, t[T_UNSETTLED].root, &k, &row, sizeof(row));
	if (seen && seen != -ENOENT)
		return seen;
	node_attr(&n, h->ino, seen == 0, out);
	return 0;
}

int meta_peek(const struct meta_file *f, const struct cred *c, const struct wire_place *p,
	      struct wire_attr *out)
{
	struct tree tables[N_TABLES];
	struct wire_handle h = p->dir;
	struct look l;
	int rc;

	if (p->path.len && (p->path.len > NAME_MAX_LEN || name_is_dots(&p->path) ||
			    memchr(p->path.p, '/', p->path.len)))
		return -EAGAIN;
	rc = look_begin(&l, f);
	if (!rc)
		rc = tables_get(&l, tables);
	if (!rc && p->path.len)
		rc = entry_look(&l, tables, c, &p->dir, &p->path, &h);
	if (!rc)
		rc = attr_look(&l, tables, &h, p->follow, out);
	return (!rc || rc == -ENOENT) && look_end(&l) ? rc : -EAGAIN;
}
