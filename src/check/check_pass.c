/* The pass of `sheaf check`: reads every row of every server once, keeps some 80 bytes per inode,
 * and decides which inodes look suspicious. Since the data change meanwhile it may suspect too
 * many, but it misses nothing that stays wrong. See check_impl.h.
 *
 * Entries and index rows of a directory are not kept: the sums of their hashes must be equal. */
#include <endian.h>
#include <stdlib.h>

#include "check/check_impl.h"

bool check_has_role(const struct check *k, int server, unsigned role)
{
	return server >= 0 && server < k->n_servers && (k->servers[server].roles & role);
}

/* ---- reading rows ---- */

static void draw(struct check *k, const char *kind, int server, uint64_t done, uint64_t total)
{
	static const char bar[] = "####################";
	struct cli_progress *p = &k->progress;
	uint64_t now = time_now();
	int part = total ? (int)MIN(20, done * 20 / total) : 0;

	if (!p->draw || now - MAX(p->drawn, p->started) < 200 * NSEC_PER_MSEC)
		return;
	p->drawn = now;
	fprintf(stderr, "\r%s: %s  %llu", k->servers[server].name, kind, (unsigned long long)done);
	if (total)
		fprintf(stderr, " of %llu  [%-20.*s]", (unsigned long long)total, part, bar);
	fputs("\033[K", stderr);
	fflush(stderr);
}

int check_rows(struct check *k, int server, enum sheaf_scan_kind kind, struct sheaf_scan *scan,
	       check_row_fn *fn, void *arg)
{
	static const char *const kinds[] = {
		[SHEAF_SCAN_INODE] = "inodes",	     [SHEAF_SCAN_ENTRY] = "entries",
		[SHEAF_SCAN_INDEX] = "index",	     [SHEAF_SCAN_UNSETTLED] = "open files",
		[SHEAF_SCAN_REMOVE] = "removals",    [SHEAF_SCAN_TRUNCATE] = "truncates",
		[SHEAF_SCAN_SYMLINK] = "links",	     [SHEAF_SCAN_XATTR] = "attributes",
		[SHEAF_SCAN_NEXT] = "inode numbers", [SHEAF_SCAN_PREPARED] = "changes",
		[SHEAF_SCAN_LOCK] = "locks",	     [SHEAF_SCAN_OBJECT] = "objects",
	};
	uint64_t done = 0;
	int n, r;

	k->kind = kind;
	k->server = server;
	for (;;) {
		if (cli_signal)
			return -EINTR;
		n = sheaf_scan(k->fs, server, kind, scan, k->page, SHEAF_SCAN_MAX);
		if (n < 0) {
			cli_progress_clear(&k->progress);
			cli_fail(k->c, k->servers[server].name, n);
		}
		if (n <= 0)
			return n;
		for (int i = 0; i < n; i++) {
			r = fn(k, &k->page[i], arg);
			if (r < 0)
				cli_fail(k->c, kinds[kind], r);
			if (r)
				return MIN(r, 0);
		}
		done += (uint64_t)n;
		if (!scan->only)
			draw(k, kinds[kind], server, done, scan->total);
	}
}

int check_all_rows(struct check *k, enum sheaf_scan_kind kind, check_row_fn *fn, void *arg)
{
	unsigned role = kind == SHEAF_SCAN_OBJECT ? ROLE_DATA : ROLE_META;
	int r = 0;

	for (int i = 0; i < k->n_servers && !r; i++) {
		struct sheaf_scan scan = { 0 };

		if (check_has_role(k, i, role) && !k->down[i])
			r = check_rows(k, i, kind, &scan, fn, arg);
	}
	return r;
}

/* ---- nodes, layouts, suspects ---- */

static int by_ino(const void *a, const void *b)
{
	const struct check_node *x = a, *y = b;

	return (x->ino > y->ino) - (x->ino < y->ino);
}

struct check_node *check_node(const struct check *k, uint64_t ino)
{
	struct check_node key = { .ino = ino };

	return k->n_nodes ? bsearch(&key, k->nodes, k->n_nodes, sizeof(key), by_ino) : NULL;
}

struct layout_copy {
	struct hnode node;
	struct sheaf_stripes s; /* allocated only up to its last target */
};

const struct sheaf_stripes *check_layout(struct check *k, const struct sheaf_stripes *s)
{
	size_t n = offsetof(struct sheaf_stripes, targets) + s->n_targets * sizeof(uint32_t);
	uint64_t hash = hash_bytes(s, n, 1);
	struct layout_copy *c;

	for (struct hnode *h = htab_first(&k->by_layout, hash); h; h = htab_next(h)) {
		c = container_of(h, struct layout_copy, node);
		if (c->s.n_targets == s->n_targets && memcmp(&c->s, s, n) == 0)
			return &c->s;
	}
	c = arena_alloc(&k->layouts, offsetof(struct layout_copy, s) + n);
	if (!c || htab_insert(&k->by_layout, &c->node, hash))
		return NULL;
	memcpy(&c->s, s, n);
	return &c->s;
}

struct suspect *check_suspect_find(const struct check *k, uint64_t ino)
{
	for (struct hnode *h = htab_first(&k->suspects, hash_u64(ino)); h; h = htab_next(h)) {
		struct suspect *s = container_of(h, struct suspect, node);

		if (s->ino == ino)
			return s;
	}
	return NULL;
}

/* 0 or -ENOMEM */
static int check_suspect(struct check *k, uint64_t ino)
{
	struct suspect *s;

	if (check_suspect_find(k, ino))
		return 0;
	if (k->n_suspects == CHECK_SUSPECTS) {
		k->skipped++;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s || htab_insert(&k->suspects, &s->node, hash_u64(ino))) {
		free(s);
		return -ENOMEM;
	}
	s->ino = ino;
	list_push(&k->undecided, &s->link);
	k->n_suspects++;
	return 0;
}

/* ---- one function per kind of row ---- */

static int see_next(struct check *k, const struct sheaf_row *r, void *arg)
{
	(void)arg;
	k->next[k->server] = r->h.ino;
	return 0;
}

/* Ignores numbers in the upper half, which no counter reaches: those are damaged. */
static void mention(struct check *k, uint64_t ino)
{
	int server = sheaf_server_of(k->fs, ino);
	bool is_ours = k->next[server] >> 48 == ino >> 48;

	if (is_ours && !(ino & UINT64_C(1) << 47))
		k->highest[server] = MAX(k->highest[server], ino);
}

/* Copies the recorded ends; none if all are 0. */
static int take_ends(struct check *k, const struct sheaf_row *r, uint64_t **out)
{
	uint32_t n = r->stripes.n_targets;

	while (n && !r->ends[n - 1])
		n--;
	if (!n)
		return 0;
	*out = arena_alloc(&k->layouts, r->stripes.n_targets * sizeof(uint64_t));
	if (!*out)
		return -ENOMEM;
	memcpy(*out, r->ends, r->stripes.n_targets * sizeof(uint64_t));
	return 0;
}

static int see_inode(struct check *k, const struct sheaf_row *r, void *arg)
{
	struct check_node *n;

	(void)arg;
	mention(k, r->h.ino);
	if (k->n_nodes == k->cap_nodes) {
		size_t cap = k->cap_nodes ? 2 * k->cap_nodes : 4096;

		n = realloc(k->nodes, cap * sizeof(*n));
		if (!n)
			return -ENOMEM;
		k->nodes = n;
		k->cap_nodes = cap;
	}
	k->rows[SHEAF_SCAN_INODE]++;
	n = &k->nodes[k->n_nodes++];
	*n = (struct check_node){ .ino = r->h.ino,
				  .gen = r->h.gen,
				  .mode = r->mode,
				  .nlink = r->nlink,
				  .has = r->has,
				  .size = r->size,
				  .parent = r->to.ino,
				  .second = S_ISDIR(r->mode) ? r->second : r->epoch };
	if (S_ISREG(r->mode)) {
		n->stripes = check_layout(k, &r->stripes);
		if (!n->stripes || take_ends(k, r, &n->ends))
			return -ENOMEM;
	}
	return r->bad ? check_suspect(k, r->h.ino) : 0;
}

uint64_t check_entry_hash(const struct sheaf_row *r)
{
	const uint64_t id[4] = { r->to.ino, r->to.gen, r->mode, r->second };

	return hash_bytes(r->name, r->name_len, hash_bytes(id, sizeof(id), 1));
}

bool check_name_is_odd(const char *name, uint32_t len)
{
	return len == 0 || strlen(name) != len || strchr(name, '/') || strcmp(name, ".") == 0 ||
	       strcmp(name, "..") == 0;
}

/* The functions below take the node of the row's inode, or NULL. They return 1 if that inode is
 * suspect, 0, or -ENOMEM. */
struct pass_scan {
	enum sheaf_scan_kind kind;
	int (*see)(struct check *k, const struct sheaf_row *r, struct check_node *n);
};

static int see_row(struct check *k, const struct sheaf_row *r, void *arg)
{
	const struct pass_scan *scan = arg;
	int odd;

	k->rows[k->kind]++;
	if (!scan->see)
		return 0;
	mention(k, r->h.ino);
	odd = scan->see(k, r, check_node(k, r->h.ino));
	return odd > 0 ? check_suspect(k, r->h.ino) : odd;
}

static int see_entry(struct check *k, const struct sheaf_row *r, struct check_node *dir)
{
	struct check_node *n = check_node(k, r->to.ino);
	int e = 0;

	mention(k, r->to.ino);
	if (dir) {
		dir->seen++;
		dir->diff += check_entry_hash(r);
		dir->subdirs += r->mode == S_IFDIR;
	}
	if (!dir || !S_ISDIR(dir->mode) || r->bad || r->second >= dir->second ||
	    check_name_is_odd(r->name, r->name_len))
		e = check_suspect(k, r->h.ino);
	if (n)
		n->links++;
	if (!e && (!n || n->gen != r->to.gen || (n->mode & S_IFMT) != r->mode ||
		   (S_ISDIR(n->mode) && n->parent != r->h.ino)))
		e = check_suspect(k, r->to.ino);
	return e;
}

static int see_index(struct check *k, const struct sheaf_row *r, struct check_node *dir)
{
	mention(k, r->to.ino);
	if (dir)
		dir->diff -= check_entry_hash(r);
	return !dir || !S_ISDIR(dir->mode) || r->bad;
}

/* Unfinished work. A removal may concern an earlier generation of the file's objects. */
static int see_work(struct check *k, const struct sheaf_row *r, struct check_node *n)
{
	if (n && (k->kind != SHEAF_SCAN_REMOVE || (n->stripes && r->second == n->stripes->obj_gen)))
		n->flags |= 1u << k->kind;
	return !n || r->bad || n->gen != r->h.gen || !S_ISREG(n->mode) || r->epoch > n->second;
}

static int see_symlink(struct check *k, const struct sheaf_row *r, struct check_node *n)
{
	(void)k;
	if (!n || r->bad || !S_ISLNK(n->mode) || r->size != n->size)
		return 1;
	n->flags |= NODE_TEXT;
	return 0;
}

static int see_xattr(struct check *k, const struct sheaf_row *r, struct check_node *n)
{
	(void)k;
	if (n)
		n->has ^= r->has;
	return !n || r->bad || (r->has == SHEAF_HAS_ACL && r->mode != (n->mode & 0777));
}

static int see_object(struct check *k, const struct sheaf_row *r, struct check_node *n)
{
	uint64_t end;
	int i;

	if (!n || !n->stripes || r->second != n->stripes->obj_gen ||
	    !check_layout_sane(k, n->stripes))
		return 1;
	i = check_object_of(n->stripes, k->server, r->index);
	if ((i < 0 && r->size) || r->epoch > n->second)
		return 1;
	if (i < 0)
		return 0;
	end = sheaf_stripes_end(n->stripes, (uint32_t)k->server, r->size);
	n->seen = MAX(n->seen, end);
	if (n->ends && r->size >= n->ends[i])
		n->ends[i] = 0;
	return 0;
}

/* Objects, in a search for lost data only. */
static int see_end(struct check *k, const struct sheaf_row *r, struct check_node *n)
{
	int i = -1;

	if (n && n->ends && r->second == n->stripes->obj_gen)
		i = check_object_of(n->stripes, k->server, r->index);
	if (i >= 0 && r->size >= n->ends[i])
		n->ends[i] = 0;
	return 0;
}

/* ---- conclusions ---- */

/* True if an object with a recorded end was not seen to reach it. */
static bool file_is_damaged(const struct check *k, const struct check_node *n)
{
	for (uint32_t i = 0; n->ends && n->nlink && i < n->stripes->n_targets; i++)
		if (n->ends[i] && check_has_role(k, (int)n->stripes->targets[i], ROLE_DATA) &&
		    !k->down[n->stripes->targets[i]])
			return true;
	return false;
}

static bool file_is_odd(const struct check *k, const struct check_node *n)
{
	bool work = n->flags & (NODE_UNSETTLED | NODE_TRUNCATE);

	if (n->nlink == 0)
		return n->links || !(n->flags & NODE_REMOVE);
	return file_is_damaged(k, n) || n->links != n->nlink || (n->flags & NODE_REMOVE) ||
	       (!work && n->seen > n->size) || !check_layout_sane(k, n->stripes);
}

static bool dir_is_odd(const struct check_node *n)
{
	return n->links != (n->ino != CHECK_ROOT) || n->seen != n->size || n->diff ||
	       n->nlink != 2 + n->subdirs;
}

static bool node_is_odd(const struct check *k, const struct check_node *n)
{
	if (n->has)
		return true;
	if (S_ISREG(n->mode))
		return file_is_odd(k, n);
	if (S_ISDIR(n->mode))
		return dir_is_odd(n);
	return n->links != n->nlink || !n->nlink || (S_ISLNK(n->mode) && !(n->flags & NODE_TEXT));
}

/* Suspects one directory of the loop that contains n: the one with the lowest number. */
static int suspect_loop(struct check *k, struct check_node *n)
{
	struct check_node *at = n, *low = n;
	int r;

	do {
		at = check_node(k, at->parent);
		if (at->ino < low->ino)
			low = at;
	} while (at != n);
	r = check_suspect(k, low->ino);
	if (!r && check_suspect_find(k, low->ino))
		check_suspect_find(k, low->ino)->loop = true;
	return r;
}

/* The ancestors of a directory end at the root, or at a missing inode, which is found elsewhere. */
static int climb(struct check *k, struct check_node *from)
{
	struct check_node *n = from;
	int r = 0;

	while (n && n->ino != CHECK_ROOT && !(n->flags & (NODE_RISEN | NODE_ON_WAY))) {
		n->flags |= NODE_ON_WAY;
		n = check_node(k, n->parent);
	}
	if (n && n->ino != CHECK_ROOT && !(n->flags & NODE_RISEN))
		r = suspect_loop(k, n);
	for (n = from; n && (n->flags & NODE_ON_WAY); n = check_node(k, n->parent)) {
		n->flags &= ~(uint32_t)NODE_ON_WAY;
		n->flags |= NODE_RISEN;
	}
	return r;
}

static int suspect_nodes(struct check *k)
{
	int r = 0;

	for (size_t i = 0; i < k->n_nodes && !r; i++) {
		struct check_node *n = &k->nodes[i];

		if (k->only_damage ? file_is_damaged(k, n) : node_is_odd(k, n))
			r = check_suspect(k, n->ino);
		if (!r && S_ISDIR(n->mode) && !k->only_damage)
			r = climb(k, n);
	}
	return r;
}

/* Files created during the pass are not in the table: an inode that exists now is not suspect. */
static int see_new(struct check *k, const struct sheaf_row *r, void *arg)
{
	struct suspect *s = check_suspect_find(k, r->h.ino);

	(void)arg;
	if (!s || r->bad || check_node(k, r->h.ino))
		return 0;
	htab_remove(&k->suspects, &s->node);
	list_del(&s->link);
	free(s);
	k->n_suspects--;
	return 0;
}

static int forgive_new(struct check *k)
{
	int r = 0;

	for (int i = 0; i < k->n_servers && !r; i++) {
		uint64_t from = htobe64(k->next[i] - 1); /* as in the server's key */
		struct sheaf_scan scan = { .key_len = sizeof(from) };

		if (!check_has_role(k, i, ROLE_META))
			continue;
		memcpy(scan.key, &from, sizeof(from));
		r = check_rows(k, i, SHEAF_SCAN_INODE, &scan, see_new, NULL);
	}
	return r;
}

int check_pass(struct check *k)
{
	static const struct pass_scan scans[] = {
		{ SHEAF_SCAN_ENTRY, see_entry },    { SHEAF_SCAN_INDEX, see_index },
		{ SHEAF_SCAN_UNSETTLED, see_work }, { SHEAF_SCAN_REMOVE, see_work },
		{ SHEAF_SCAN_TRUNCATE, see_work },  { SHEAF_SCAN_SYMLINK, see_symlink },
		{ SHEAF_SCAN_XATTR, see_xattr },    { SHEAF_SCAN_PREPARED, NULL },
		{ SHEAF_SCAN_OBJECT, see_object },
	};
	/* lost data show in inodes and objects alone */
	static const struct pass_scan damage = { SHEAF_SCAN_OBJECT, see_end };
	const struct pass_scan *scan = k->only_damage ? &damage : scans;
	size_t n = k->only_damage ? 1 : ARRAY_LEN(scans);
	int r = check_all_rows(k, SHEAF_SCAN_NEXT, see_next, NULL);

	if (!r)
		r = check_all_rows(k, SHEAF_SCAN_INODE, see_inode, NULL);
	if (k->n_nodes)
		qsort(k->nodes, k->n_nodes, sizeof(*k->nodes), by_ino);
	for (; n && !r; n--, scan++)
		r = check_all_rows(k, scan->kind, see_row, (void *)(uintptr_t)scan);
	if (!r)
		r = suspect_nodes(k);
	if (!r && !k->only_damage)
		r = forgive_new(k);
	cli_progress_clear(&k->progress);
	return r;
}

static void suspect_free(struct hnode *h, void *arg)
{
	struct check *k = arg;

	htab_remove(&k->suspects, h);
	free(container_of(h, struct suspect, node));
}

void check_pass_free(struct check *k)
{
	if (k->suspects.slots)
		htab_walk(&k->suspects, suspect_free, k);
	htab_destroy(&k->suspects);
	htab_destroy(&k->by_layout);
	free(k->nodes);
	k->nodes = NULL;
	k->n_nodes = k->cap_nodes = k->n_suspects = 0;
}
