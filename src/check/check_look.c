/* Looks of `sheaf check`: read everything about the suspects again, with their inodes before and
 * after. What a second look after a pause finds again is wrong. See check_impl.h. */
#include <poll.h>

#include "check/check_impl.h"

#define TRIES 3 /* attempts to read a directory without a change in between */
#define BUCKETS 65536 /* hash buckets of cookies */

/* ---- rows into notes ---- */

/* Adds a note of the row to the list `arg`. */
static int add_note(struct check *k, const struct sheaf_row *r, void *arg)
{
	struct note *n = arena_alloc(&k->arena, sizeof(*n)), **list = arg;
	uint8_t *key = arena_alloc(&k->arena, r->key_len + 1);

	if (!n || !key)
		return -ENOMEM;
	*n = (struct note){ .next = *list,
			    .kind = k->kind,
			    .server = k->server,
			    .h = r->h,
			    .to = r->to,
			    .second = r->second,
			    .size = r->size,
			    .epoch = r->epoch,
			    .mode = r->mode,
			    .has = r->has,
			    .name_len = r->name_len,
			    .key_len = r->key_len,
			    .index = r->index,
			    .bad = r->bad };
	memcpy(key, r->key, r->key_len);
	n->key = key;
	n->name = arena_strndup(&k->arena, r->name, r->name_len);
	if (!n->name)
		return -ENOMEM;
	*list = n;
	return 0;
}

/* Reads all rows of a kind that concern one inode. */
static int rows_of(struct check *k, int server, uint64_t ino, enum sheaf_scan_kind kind,
		   struct note **list)
{
	struct sheaf_scan scan = { .only = ino }; /* 0: all inodes */

	return check_rows(k, server, kind, &scan, add_note, list);
}

static int take_inode(struct check *k, const struct sheaf_row *r, void *arg)
{
	struct check_inode *out = arg;
	uint64_t *ends = arena_alloc(&k->arena, (r->stripes.n_targets + 1) * sizeof(*ends));

	if (!ends)
		return -ENOMEM;
	memcpy(ends, r->ends, r->stripes.n_targets * sizeof(*ends));
	*out = (struct check_inode){ .h = r->h,
				     .parent = r->to,
				     .cookie = r->second,
				     .size = r->size,
				     .epoch = r->epoch,
				     .change = r->change,
				     .mode = r->mode,
				     .nlink = r->nlink,
				     .has = r->has,
				     .ends = ends,
				     .bad = r->bad };
	out->stripes = check_layout(k, &r->stripes);
	return out->stripes ? 0 : -ENOMEM;
}

int check_read_inode(struct check *k, uint64_t ino, struct check_inode *out)
{
	struct sheaf_scan scan = { .only = ino };
	int r;

	*out = (struct check_inode){ 0 };
	r = check_rows(k, sheaf_server_of(k->fs, ino), SHEAF_SCAN_INODE, &scan, take_inode, out);
	return r ? r : out->h.ino == ino;
}

/* ---- one look ---- */

/* A directory may be larger than memory, so its rows are read twice: first into one sum of hashes
 * per bucket of cookies, entries minus index rows; then rows are kept where the sum is not 0. */
struct bucket {
	uint64_t diff;
	uint32_t rows;
	bool keep;
};
struct digest {
	struct contents *dir;
	struct bucket buckets[BUCKETS];
};

static struct bucket *bucket_of(struct digest *d, const struct sheaf_row *r)
{
	return &d->buckets[hash_u64(r->second) % BUCKETS];
}

static int sum_row(struct check *k, const struct sheaf_row *r, void *arg)
{
	struct digest *d = arg;
	struct bucket *b = bucket_of(d, r);

	b->rows++;
	if (k->kind == SHEAF_SCAN_INDEX) {
		b->diff -= check_entry_hash(r);
		d->dir->n_index++;
		return 0;
	}
	b->diff += check_entry_hash(r);
	d->dir->n_entries++;
	d->dir->subdirs += r->mode == S_IFDIR;
	d->dir->last_cookie = MAX(d->dir->last_cookie, r->second);
	return r->bad || check_name_is_odd(r->name, r->name_len) ? add_note(k, r, &d->dir->odd) : 0;
}

/* Chooses whole buckets to compare row by row, so that every row has its counterpart. */
static bool choose(struct digest *d)
{
	uint64_t rows = 0;
	bool any = false;

	for (size_t i = 0; i < BUCKETS; i++) {
		struct bucket *b = &d->buckets[i];

		if (!b->diff)
			continue;
		b->keep = !any || rows + b->rows <= CHECK_ROWS;
		rows += b->keep ? b->rows : 0;
		d->dir->more |= !b->keep;
		any = true;
	}
	return any;
}

static int keep_row(struct check *k, const struct sheaf_row *r, void *arg)
{
	struct digest *d = arg;

	if (!bucket_of(d, r)->keep)
		return 0;
	return add_note(k, r, k->kind == SHEAF_SCAN_INDEX ? &d->dir->index : &d->dir->entries);
}

static int scan_contents(struct check *k, uint64_t ino, check_row_fn *fn, struct digest *d)
{
	struct sheaf_scan entries = { .only = ino }, index = entries;
	int server = sheaf_server_of(k->fs, ino);
	int r = check_rows(k, server, SHEAF_SCAN_ENTRY, &entries, fn, d);

	return r ? r : check_rows(k, server, SHEAF_SCAN_INDEX, &index, fn, d);
}

static int read_contents(struct check *k, uint64_t ino, struct contents *out)
{
	static struct digest d; /* static: there is one thread */
	int r;

	*out = (struct contents){ 0 };
	memset(&d, 0, sizeof(d));
	d.dir = out;
	r = scan_contents(k, ino, sum_row, &d);
	return r || !choose(&d) ? r : scan_contents(k, ino, keep_row, &d);
}

/* Reads the entries and the index of an inode that is, or was, a directory. */
static int look_inside(struct check *k, struct suspect *s)
{
	struct check_inode after;
	int r = 0;

	s->torn = true;
	for (int i = 0; i < TRIES && s->torn && !r; i++) {
		r = read_contents(k, s->ino, &s->dir);
		if (!r)
			r = check_read_inode(k, s->ino, &after);
		if (r < 0)
			return r;
		s->torn = (r > 0) != s->there || (s->there && after.change != s->row.change);
		if (s->torn && r > 0) { /* judge the inode that the next attempt reads */
			s->row = after;
			s->there = true;
		}
		r = 0;
	}
	return r;
}

static int look_before(struct check *k, struct suspect *s)
{
	static const enum sheaf_scan_kind kinds[] = { SHEAF_SCAN_UNSETTLED, SHEAF_SCAN_REMOVE,
						      SHEAF_SCAN_TRUNCATE, SHEAF_SCAN_SYMLINK,
						      SHEAF_SCAN_XATTR };
	int server = sheaf_server_of(k->fs, s->ino), r;

	s->names = s->rows = NULL;
	s->dir = (struct contents){ 0 };
	r = check_read_inode(k, s->ino, &s->row);
	if (r < 0)
		return r;
	s->there = r > 0;
	s->torn = s->moved = s->covered = false;
	r = 0;
	for (size_t i = 0; i < ARRAY_LEN(kinds) && !r; i++)
		r = rows_of(k, server, s->ino, kinds[i], &s->rows);
	if (!r && (!s->there || S_ISDIR(s->row.mode)))
		r = look_inside(k, s);
	return r;
}

static int see_name(struct check *k, const struct sheaf_row *r, void *arg)
{
	struct suspect *s = check_suspect_find(k, r->to.ino);

	(void)arg;
	return s && !r->bad ? add_note(k, r, &s->names) : 0;
}

/* Reads all entries of all directories: nothing else has the names of an inode. */
static int look_for_names(struct check *k)
{
	int r = check_all_rows(k, SHEAF_SCAN_ENTRY, see_name, NULL);

	cli_progress_clear(&k->progress);
	return r;
}

static int see_part(struct check *k, const struct sheaf_row *r, void *arg)
{
	const uint64_t at[] = { r->h.ino, r->to.ino, r->size };

	(void)arg;
	for (size_t i = 0; i < ARRAY_LEN(at); i++) {
		struct suspect *s = check_suspect_find(k, at[i]);

		if (s)
			s->covered = true;
	}
	return 0;
}

/* Finds unfinished changes over two servers by their prepared parts. If a change was decided before
 * the inodes were read, its other part is seen here or was applied before the entries are read; if
 * later, it is seen after the entries or was applied before the inodes are read again. */
static int look_for_pairs(struct check *k)
{
	return check_all_rows(k, SHEAF_SCAN_PREPARED, see_part, NULL);
}

static int look_after(struct check *k, struct suspect *s)
{
	struct note *unsettled = NULL;
	struct check_inode now;
	int r = 0;

	for (int i = 0; i < k->n_servers && !r; i++)
		if (check_has_role(k, i, ROLE_DATA) && !k->down[i] &&
		    (!s->there || s->row.bad || S_ISREG(s->row.mode)))
			r = rows_of(k, i, s->ino, SHEAF_SCAN_OBJECT, &s->rows);
	if (!r)
		r = rows_of(k, sheaf_server_of(k->fs, s->ino), s->ino, SHEAF_SCAN_UNSETTLED,
			    &unsettled);
	if (!r)
		r = check_read_inode(k, s->ino, &now);
	if (r < 0)
		return r;
	s->moved = (r > 0) != s->there || now.change != s->row.change ||
		   now.epoch != s->row.epoch ||
		   (unsettled && !note_find(s->rows, SHEAF_SCAN_UNSETTLED));
	return 0;
}

static uint64_t signature(const struct suspect *s)
{
	uint64_t h = s->findings ? 1 + s->row.change : 0;

	for (const struct finding *f = s->findings; f; f = f->next)
		h = hash_bytes(f->what, strlen(f->what), h);
	return h;
}

/* Decides the suspect if this look allows it; otherwise it stays on k->undecided. */
static void decide(struct check *k, struct suspect *s)
{
	uint64_t before = s->signature;
	struct finding *last;

	s->signature = signature(s);
	if (s->covered)
		return; /* undecided while a change is unfinished */
	if (!s->findings && !s->torn) {
		list_del(&s->link);
	} else if (s->findings && !s->moved && s->signature == before) {
		list_del(&s->link);
		s->wrong = true;
		for (last = s->findings; last->next; last = last->next)
			;
		*k->findings_end = s->findings;
		k->findings_end = &last->next;
	}
}

static int look(struct check *k)
{
	struct suspect *s, *tmp;
	int r = 0;

	arena_reset(&k->arena);
	list_for_each(s, &k->undecided, link) {
		r = r ? r : look_before(k, s);
	}
	if (!r)
		r = look_for_pairs(k);
	if (!r)
		r = look_for_names(k);
	if (!r)
		r = look_for_pairs(k);
	list_for_each(s, &k->undecided, link) {
		r = r ? r : look_after(k, s);
	}
	list_for_each(s, &k->undecided, link) { /* judge all first: one may explain another */
		r = r ? r : check_judge(k, s);
	}
	list_for_each_safe(s, tmp, &k->undecided, link) {
		if (!r)
			decide(k, s);
	}
	return r;
}

/* Allocated inode numbers are below the counter; neither ever decreases. */
static int judge_counters(struct check *k)
{
	int r = 0;

	for (int i = 0; i < k->n_servers && !r; i++) {
		struct note *next = NULL;

		if (!check_has_role(k, i, ROLE_META))
			continue;
		r = rows_of(k, i, 0, SHEAF_SCAN_NEXT, &next);
		if (!r && (!next || k->highest[i] >= next->h.ino))
			r = check_judge_counter(k, i, next ? next->h.ino : 0);
	}
	return r;
}

/* Collects locks of unknown changes. A change's parts and locks are added and removed at once. */
static int stale_locks(struct check *k, int server, struct note **stale)
{
	struct note *parts = NULL, *locks = NULL, *next;
	int r = rows_of(k, server, 0, SHEAF_SCAN_PREPARED, &parts);

	if (!r)
		r = rows_of(k, server, 0, SHEAF_SCAN_LOCK, &locks);
	if (!r)
		r = rows_of(k, server, 0, SHEAF_SCAN_PREPARED, &parts);
	for (; locks && !r; locks = next) {
		const struct note *p = parts;

		next = locks->next;
		while (p && p->second != locks->second)
			p = p->next;
		if (p)
			continue;
		locks->next = *stale;
		*stale = locks;
	}
	return r;
}

static int judge_locks(struct check *k, int server)
{
	struct note *first = NULL, *again = NULL;
	int r = stale_locks(k, server, &first);

	if (r || !first)
		return r;
	poll(NULL, 0, CHECK_PAUSE_MS);
	r = stale_locks(k, server, &again);
	for (; again && !r; again = again->next)
		for (const struct note *f = first; f && !r; f = f->next)
			if (f->second == again->second && f->key_len == again->key_len &&
			    memcmp(f->key, again->key, f->key_len) == 0)
				r = check_judge_lock(k, again);
	return r;
}

int check_confirm(struct check *k)
{
	int r = k->only_damage ? 0 : judge_counters(k);

	arena_reset(&k->arena);
	for (int i = 0; i < k->n_servers && !r && !k->only_damage; i++)
		if (check_has_role(k, i, ROLE_META))
			r = judge_locks(k, i);
	for (int i = 0; i < CHECK_LOOKS && !r && !list_empty(&k->undecided); i++) {
		poll(NULL, 0, CHECK_PAUSE_MS);
		r = look(k);
	}
	for (struct list *l = k->undecided.next; l != &k->undecided; l = l->next)
		k->busy++;
	return r;
}
