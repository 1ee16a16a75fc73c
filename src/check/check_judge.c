/* Decides what is wrong with one suspect, as text and as repairs. Uses only what the look
 * collected. See check_impl.h.
 *
 * Each finding says what is wrong, what is lost, and what --repair will do. Unfinished work is not
 * reported: rows of open files, removals and truncates that agree with their inode are correct. */
#include <stdlib.h>

#include "check/check_impl.h"

#define LAYOUT_UNIT 4096 /* stripe units are multiples of it */

static const char nothing[] = "nothing is lost";

/* ---- findings ---- */

static const char *text(struct check *k, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static const char *text(struct check *k, const char *fmt, ...)
{
	char buf[512];
	va_list ap;
	char *s;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	s = arena_strndup(&k->keep, buf, strlen(buf));
	return s ? s : "out of memory";
}

static struct finding *add(struct check *k, struct suspect *s, const char *kind, const char *what,
			   const char *lost, const char *cure)
{
	struct finding *f = arena_alloc(&k->keep, sizeof(*f));

	if (!f)
		return NULL;
	*f = (struct finding){ .kind = kind,
			       .ino = s->ino,
			       .what = what,
			       .lost = lost,
			       .cure = cure,
			       .absent = !s->there };
	f->next = s->findings;
	s->findings = f;
	return f;
}

static void *keep_copy(struct check *k, const void *p, size_t n)
{
	void *c = arena_alloc(&k->keep, n + 1);

	return c && n ? memcpy(c, p, n) : c;
}

static void fix_at(struct check *k, struct finding *f, int server, struct sheaf_repair r)
{
	struct fix *x = f ? arena_alloc(&k->keep, sizeof(*x)) : NULL, **at;

	if (!x)
		return;
	if (r.name)
		r.name = keep_copy(k, r.name, r.name_len);
	if (r.key)
		r.key = keep_copy(k, r.key, r.key_len);
	if (r.stripes)
		r.stripes = keep_copy(k, r.stripes, sizeof(*r.stripes));
	x->r = r;
	x->server = server;
	for (at = &f->fixes; *at; at = &(*at)->next)
		;
	*at = x;
}

static void fix(struct check *k, struct finding *f, struct sheaf_repair r)
{
	fix_at(k, f, -1, r);
}

/* Adds a repair that removes a row. */
static void fix_row(struct check *k, struct finding *f, int server, enum sheaf_scan_kind kind,
		    const uint8_t *key, uint32_t key_len)
{
	fix_at(k, f, server,
	       (struct sheaf_repair){ .kind = SHEAF_REPAIR_ROW_DROP,
				      .h = { f ? f->ino : 0, 0 },
				      .value = kind,
				      .key = key,
				      .key_len = key_len });
}

static struct note *keep_note(struct check *k, const struct note *n)
{
	struct note *c = keep_copy(k, n, sizeof(*n));

	if (c)
		c->name = keep_copy(k, n->name, n->name_len);
	return c;
}

static struct sheaf_handle dir_handle(const struct check *k, uint64_t ino)
{
	const struct suspect *s = check_suspect_find(k, ino);
	const struct check_node *n = check_node(k, ino);

	return (struct sheaf_handle){ ino, s && s->there ? s->row.h.gen : n ? n->gen : 1 };
}

static void fix_field(struct check *k, struct finding *f, const struct suspect *s,
		      enum sheaf_repair_kind kind, uint64_t value, struct sheaf_handle dir,
		      const struct sheaf_stripes *stripes)
{
	fix(k, f,
	    (struct sheaf_repair){ .kind = kind,
				   .h = s->row.h,
				   .dir = dir,
				   .change = s->row.change,
				   .value = value,
				   .stripes = stripes });
}

static void fix_entry(struct check *k, struct finding *f, const struct suspect *s,
		      enum sheaf_repair_kind kind, const struct note *at)
{
	struct sheaf_repair r = { .kind = kind,
				  .h = at->to,
				  .dir = dir_handle(k, at->h.ino),
				  .name = at->name,
				  .name_len = at->name_len,
				  .mode = s->row.mode & S_IFMT,
				  .change = s->row.change };

	if (kind == SHEAF_REPAIR_ENTRY_SET)
		r.h = s->row.h;
	fix(k, f, r);
}

/* Reports a row that refers to nothing valid. */
static void stale(struct check *k, struct suspect *s, const struct note *n, const char *why)
{
	static const char *const of[] = {
		[SHEAF_SCAN_INODE] = "inode",	     [SHEAF_SCAN_ENTRY] = "entry",
		[SHEAF_SCAN_INDEX] = "index",	     [SHEAF_SCAN_UNSETTLED] = "unsettled",
		[SHEAF_SCAN_REMOVE] = "remove-list", [SHEAF_SCAN_TRUNCATE] = "truncate",
		[SHEAF_SCAN_SYMLINK] = "link text",  [SHEAF_SCAN_XATTR] = "extended attribute",
	};
	struct finding *f = add(k, s, "stale-row",
				text(k, "it has a row (%s) %s", of[n->kind], why), nothing,
				"--repair removes that row");

	fix_row(k, f, n->server, n->kind, n->key, n->key_len);
}

/* ---- layouts ---- */

bool check_layout_sane(const struct check *k, const struct sheaf_stripes *s)
{
	if (!s->unit || s->unit % LAYOUT_UNIT || !s->n_targets || s->start >= s->n_targets ||
	    s->type || s->redundancy)
		return false;
	for (uint32_t i = 0; i < s->n_targets; i++) {
		if (s->targets[i] >= (uint32_t)k->n_servers ||
		    !check_has_role(k, (int)s->targets[i], ROLE_DATA))
			return false;
		for (uint32_t j = 0; j < i; j++)
			if (s->targets[j] == s->targets[i])
				return false;
	}
	return true;
}

int check_object_of(const struct sheaf_stripes *s, int server, uint32_t index)
{
	if (index != SHEAF_OBJECT_OLD)
		return index < s->n_targets && s->targets[index] == (uint32_t)server ? (int)index :
										       -1;
	for (uint32_t i = 0; i < s->n_targets; i++)
		if (s->targets[i] == (uint32_t)server)
			return (int)i;
	return -1;
}

/* Is every non-empty object where the layout expects it? */
static bool covers_objects(const struct sheaf_stripes *l, const struct suspect *s)
{
	for (const struct note *n = s->rows; n; n = n->next)
		if (n->kind == SHEAF_SCAN_OBJECT && n->size &&
		    check_object_of(l, n->server, n->index) < 0)
			return false;
	return true;
}

/* Object i of this layout; NULL: missing. */
static const struct note *object_at(const struct suspect *s, const struct sheaf_stripes *l,
				    uint32_t i)
{
	const struct note *n = s->rows;

	while (n && (n->kind != SHEAF_SCAN_OBJECT || n->second != s->row.stripes->obj_gen ||
		     check_object_of(l, n->server, n->index) != (int)i))
		n = n->next;
	return n;
}

/* Does each object end where it would in a file of this size without a hole at the end of an
 * object? Then the layout is the file's, whatever other objects exist. */
static bool fits(const struct sheaf_stripes *l, const struct suspect *s)
{
	for (uint32_t i = 0; i < l->n_targets; i++) {
		const struct note *o = object_at(s, l, i);
		uint64_t end = o ? o->size : 0;

		if (sheaf_stripes_end(l, l->targets[i], end) > s->row.size ||
		    sheaf_stripes_end(l, l->targets[i], end + 1) <= s->row.size)
			return false;
	}
	return true;
}

/* Moves the server of each object to the object's index in the layout. */
static void arrange(struct sheaf_stripes *l, const struct suspect *s)
{
	for (const struct note *n = s->rows; n; n = n->next) {
		uint32_t was = 0;

		if (n->kind != SHEAF_SCAN_OBJECT || !n->size || n->index >= l->n_targets)
			continue;
		while (was < l->n_targets && l->targets[was] != (uint32_t)n->server)
			was++;
		if (was < l->n_targets)
			l->targets[was] = l->targets[n->index];
		l->targets[n->index] = (uint32_t)n->server;
	}
}

/* Guesses the layout that the file was created with: one that fits or, unless must_fit, the
 * narrowest that covers its objects. */
static bool guess_layout(struct check *k, const struct suspect *s, uint32_t unit, uint32_t width,
			 bool must_fit, struct sheaf_stripes *out)
{
	for (int sure = s->there; sure >= must_fit; sure--)
		for (uint32_t w = MAX(width, 1u); w <= (uint32_t)k->n_servers; w++) {
			sheaf_default_stripes(k->fs, s->ino, unit, w, out);
			arrange(out, s);
			if (out->n_targets && (sure ? fits(out, s) : covers_objects(out, s)))
				return true;
		}
	return false;
}

/* ---- a missing inode ---- */

static void rest_of_file(struct check *k, struct suspect *s, uint64_t bytes)
{
	struct sheaf_repair make = { .kind = SHEAF_REPAIR_MAKE,
				     .h = { s->ino, s->names ? s->names->to.gen : 1 },
				     .mode = S_IFREG,
				     .value = 1 };
	struct sheaf_stripes l;
	struct finding *f;

	if (!guess_layout(k, s, 0, 0, false, &l)) {
		add(k, s, "lost-inode",
		    text(k, "%llu bytes of data belong to it, but it is not there",
			 (unsigned long long)bytes),
		    "the file is lost", NULL);
		return;
	}
	for (const struct note *n = s->rows; n; n = n->next) {
		if (n->kind != SHEAF_SCAN_OBJECT)
			continue;
		make.value = MAX(make.value, n->epoch);
		l.obj_gen = (uint32_t)n->second;
	}
	make.stripes = &l;
	f = add(k, s, "lost-inode",
		text(k, "%llu bytes of data belong to it, but it is not there",
		     (unsigned long long)bytes),
		"its name, owner, mode and times are lost, and its stripes if they were not of the usual kind",
		text(k, "--repair makes it anew as /lost+found/#%llu with the data",
		     (unsigned long long)s->ino));
	for (const struct note *n = s->names; n; n = n->next)
		fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_DROP, n);
	fix(k, f, make);
}

static void rest_of_dir(struct check *k, struct suspect *s)
{
	struct sheaf_repair make = { .kind = SHEAF_REPAIR_MAKE,
				     .h = { s->ino, s->names ? s->names->to.gen : 1 },
				     .mode = S_IFDIR,
				     .value = 1 };
	struct finding *f = add(k, s, "lost-directory",
				"entries are in this directory, but its inode is not there",
				"its owner, mode and times are lost",
				"--repair makes it anew, owned by root, with mode 0700");

	if (s->names)
		make.dir = dir_handle(k, s->names->h.ino);
	if (s->ino == CHECK_ROOT)
		make.dir = make.h;
	fix(k, f, make);
}

static void judge_absent(struct check *k, struct suspect *s)
{
	bool link_text = false, objects = false;
	struct finding *f;
	uint64_t bytes = 0;

	for (const struct note *n = s->rows; n; n = n->next) {
		link_text |= n->kind == SHEAF_SCAN_SYMLINK;
		objects |= n->kind == SHEAF_SCAN_OBJECT;
		if (n->kind == SHEAF_SCAN_OBJECT)
			bytes += n->size;
	}
	if (s->dir.n_entries || s->dir.n_index) {
		rest_of_dir(k, s);
	} else if (bytes) {
		rest_of_file(k, s, bytes);
	} else if (link_text) {
		f = add(k, s, "lost-link",
			"the text of this symbolic link is there, but its inode is not",
			"its owner and times are lost", "--repair makes it anew, owned by root");
		fix(k, f,
		    (struct sheaf_repair){ .kind = SHEAF_REPAIR_MAKE,
					   .h = { s->ino, s->names ? s->names->to.gen : 1 },
					   .mode = S_IFLNK,
					   .value = 1 });
	} else {
		for (const struct note *n = s->names; n; n = n->next) {
			f = add(k, s, "dangling-entry",
				"this name names an inode that is not there",
				"the file is lost, unless it was empty",
				"--repair removes the name");
			if (f)
				f->at = keep_note(k, n);
			fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_DROP, n);
		}
		for (const struct note *n = s->rows; n; n = n->next)
			if (n->kind != SHEAF_SCAN_OBJECT)
				stale(k, s, n, "but is not there itself");
		k->leftover += objects && !s->findings;
	}
}

/* ---- names ---- */

/* Finds an index row of any directory that still has the name of an inode without entries. */
static const struct note *name_in_index(const struct check *k, const struct suspect *s)
{
	struct suspect *d;

	list_for_each(d, &k->undecided, link) {
		for (const struct note *n = d->dir.index; n; n = n->next) {
			const struct note *e = d->dir.entries;

			if (n->to.ino != s->ino || n->bad || !d->there || d->torn)
				continue;
			while (e && (e->name_len != n->name_len ||
				     memcmp(e->name, n->name, n->name_len) != 0))
				e = e->next;
			if (!e)
				return n;
		}
	}
	return NULL;
}

static void judge_orphan(struct check *k, struct suspect *s)
{
	const struct note *at = name_in_index(k, s);
	struct finding *f;

	if (at) {
		f = add(k, s, "lost-entry",
			"its name is gone, but the index of the directory still has it", nothing,
			text(k, "--repair gives it back its name, %s", at->name));
		if (f)
			f->at = keep_note(k, at);
		fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_SET, at);
		return;
	}
	f = add(k, s, "orphan", text(k, "this %s has no name", cli_type_name(s->row.mode)),
		"its name is lost",
		text(k, "--repair puts it into /lost+found as #%llu", (unsigned long long)s->ino));
	fix(k, f,
	    (struct sheaf_repair){ .kind = SHEAF_REPAIR_ENTRY_SET,
				   .h = s->row.h,
				   .mode = s->row.mode & S_IFMT,
				   .change = s->row.change });
}

static void judge_entries_to(struct check *k, struct suspect *s)
{
	for (const struct note *n = s->names; n; n = n->next) {
		struct finding *f;

		if (n->to.gen == s->row.h.gen && n->mode == (s->row.mode & S_IFMT))
			continue;
		f = add(k, s, "entry-type",
			n->mode != (s->row.mode & S_IFMT) ?
				text(k, "the entry says that it is a %s, but it is a %s",
				     cli_type_name(n->mode), cli_type_name(s->row.mode)) :
				"the entry names another generation of it",
			nothing, "--repair corrects the entry");
		if (f)
			f->at = keep_note(k, n);
		fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_SET, n);
	}
}

static void judge_second_names(struct check *k, struct suspect *s, const struct note *keep)
{
	for (const struct note *n = s->names; n; n = n->next) {
		struct finding *f;

		if (n == keep)
			continue;
		f = add(k, s, "second-entry",
			keep ? "this directory has more than one name" :
			       "this name leads to the root directory",
			nothing, "--repair removes this name");
		if (f)
			f->at = keep_note(k, n);
		fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_DROP, n);
	}
}

/* Is the directory its own ancestor? */
static int in_loop(struct check *k, const struct suspect *s)
{
	uint64_t at = s->row.parent.ino;
	struct check_inode row;
	int r = 1;

	for (int i = 0; i < 4096 && r > 0 && at != CHECK_ROOT; i++) {
		if (at == s->ino)
			return 1;
		r = check_read_inode(k, at, &row);
		at = row.parent.ino;
	}
	return r < 0 ? r : 0;
}

static int judge_dir_names(struct check *k, struct suspect *s)
{
	const struct note *keep = s->names;
	struct finding *f;
	int loop;

	if (s->ino == CHECK_ROOT) {
		judge_second_names(k, s, NULL);
		return 0;
	}
	for (const struct note *n = s->names; n; n = n->next) /* of several take the oldest */
		if (n->h.ino == s->row.parent.ino &&
		    (keep->h.ino != n->h.ino || n->second < keep->second))
			keep = n;
	if (!keep) {
		judge_orphan(k, s);
		return 0;
	}
	judge_second_names(k, s, keep);
	if (keep->h.ino != s->row.parent.ino) {
		f = add(k, s, "parent", "its '..' is not the directory that it is in", nothing,
			"--repair corrects its '..'");
		fix_field(k, f, s, SHEAF_REPAIR_PARENT, 0, dir_handle(k, keep->h.ino), NULL);
		return 0;
	}
	loop = s->loop ? in_loop(k, s) : 0;
	if (loop > 0) {
		f = add(k, s, "loop", "this directory is inside itself, and nobody can reach it",
			"where it was is lost",
			text(k, "--repair moves it to /lost+found/#%llu",
			     (unsigned long long)s->ino));
		fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_DROP, keep);
	}
	return MIN(loop, 0);
}

static void judge_file_names(struct check *k, struct suspect *s)
{
	const struct note *doomed = NULL;
	uint32_t n = 0;
	struct finding *f;

	for (const struct note *e = s->names; e; e = e->next)
		n++;
	for (const struct note *e = s->rows; e; e = e->next)
		if (e->kind == SHEAF_SCAN_REMOVE && e->second == s->row.stripes->obj_gen)
			doomed = e;
	if (n == 0 && (s->row.nlink || !doomed))
		judge_orphan(k, s);
	if (n && s->row.nlink != n) {
		f = add(k, s, "link-count",
			text(k, "its link count is %u, but it has %u name%s", s->row.nlink, n,
			     n == 1 ? "" : "s"),
			nothing, text(k, "--repair sets it to %u", n));
		fix_field(k, f, s, SHEAF_REPAIR_NLINK, n, (struct sheaf_handle){ 0 }, NULL);
	}
	if (n && s->row.nlink && doomed && S_ISREG(s->row.mode))
		stale(k, s, doomed, "to be removed, but has a name");
}

/* ---- contents of a directory ---- */

static int by_cookie(const void *a, const void *b)
{
	const struct note *x = *(const struct note *const *)a, *y = *(const struct note *const *)b;

	if (x->second != y->second)
		return x->second < y->second ? -1 : 1;
	return strcmp(x->name, y->name);
}

static struct note **sorted(struct check *k, struct note *list, size_t *n)
{
	struct note **v;

	*n = 0;
	for (struct note *e = list; e; e = e->next)
		++*n;
	v = arena_alloc(&k->arena, (*n + 1) * sizeof(struct note *));
	for (size_t i = 0; v && list; list = list->next)
		v[i++] = list;
	if (v && *n)
		qsort(v, *n, sizeof(struct note *), by_cookie);
	return v;
}

struct differences {
	size_t missing, extra, same_cookie;
	const char *example; /* one of the names */
};

static bool same_entry(const struct note *a, const struct note *b)
{
	return a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0 &&
	       a->to.ino == b->to.ino && a->to.gen == b->to.gen && a->mode == b->mode;
}

static void compare(struct note **e, size_t ne, struct note **x, size_t nx, struct differences *d)
{
	size_t i = 0, j = 0;

	while (i < ne || j < nx) {
		if (i < ne && i && e[i]->second == e[i - 1]->second) {
			d->same_cookie++;
			d->example = e[i++]->name;
		} else if (j == nx || (i < ne && e[i]->second < x[j]->second)) {
			d->missing++;
			d->example = e[i++]->name;
		} else if (i == ne || x[j]->second < e[i]->second) {
			d->extra++;
			d->example = d->example ? d->example : x[j]->name;
			j++;
		} else {
			if (!same_entry(e[i], x[j])) {
				d->missing++;
				d->example = e[i]->name;
			}
			i++;
			j++;
		}
	}
}

static void fix_dir(struct check *k, struct suspect *s, const char *kind, const char *what,
		    const char *cure)
{
	struct finding *f = add(k, s, kind, what, nothing, cure);

	fix(k, f, (struct sheaf_repair){ .kind = SHEAF_REPAIR_DIRECTORY, .h = s->row.h });
}

static void judge_index(struct check *k, struct suspect *s, const struct differences *d)
{
	const char *least = s->dir.more ? "at least " : "";

	if (d->missing)
		fix_dir(k, s, "index",
			text(k,
			     "%s%zu of its entries are missing in its index, or differ there (%.64s)",
			     least, d->missing, d->example),
			"--repair makes the index anew");
	if (d->extra)
		fix_dir(k, s, "index",
			text(k, "%s%zu rows of its index have no entry (%.64s)", least, d->extra,
			     d->example),
			"--repair makes the index anew");
	if (d->same_cookie)
		fix_dir(k, s, "cookie",
			text(k, "%s%zu of its entries have the cookie of another one (%.64s)",
			     least, d->same_cookie, d->example),
			"--repair gives them new ones");
	if (s->dir.n_entries && s->dir.last_cookie >= s->row.cookie)
		fix_dir(k, s, "cookie", "it has given cookies that are still to come",
			"--repair corrects its next cookie");
}

static void judge_odd_name(struct check *k, struct suspect *s, const struct note *n)
{
	struct finding *f = add(
		k, s, "bad-name",
		text(k, "an entry of it has a name that none can have; it names inode %llu",
		     (unsigned long long)n->to.ino),
		"the name is lost", "--repair removes the name; what it named goes to /lost+found");

	fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_DROP, n);
}

static int judge_contents(struct check *k, struct suspect *s)
{
	struct differences d = { 0 };
	size_t ne, nx;
	struct note **e = sorted(k, s->dir.entries, &ne), **x = sorted(k, s->dir.index, &nx);

	if (!e || !x)
		return -ENOMEM;
	for (const struct note *n = s->dir.odd; n; n = n->next) {
		if (n->bad)
			stale(k, s, n, "that cannot be read");
		else
			judge_odd_name(k, s, n);
	}
	compare(e, ne, x, nx, &d);
	judge_index(k, s, &d);
	if (s->row.size != s->dir.n_entries)
		fix_dir(k, s, "entry-count",
			text(k, "it says that it has %llu entries, but it has %llu",
			     (unsigned long long)s->row.size, (unsigned long long)s->dir.n_entries),
			"--repair corrects the number");
	if (s->row.nlink != 2 + s->dir.subdirs)
		fix_dir(k, s, "link-count",
			text(k, "its link count is %u, but it has %llu directories", s->row.nlink,
			     (unsigned long long)s->dir.subdirs),
			"--repair corrects the count");
	return 0;
}

/* ---- files ---- */

/* must_fit: the current layout may be right. */
static void judge_layout(struct check *k, struct suspect *s, const char *what, bool must_fit)
{
	const struct sheaf_stripes *old = s->row.stripes;
	bool unit_sane = old->unit && old->unit % LAYOUT_UNIT == 0;
	uint32_t width = MIN(old->n_targets, (uint32_t)k->n_servers);
	struct sheaf_stripes l;
	struct finding *f;

	if (!guess_layout(k, s, unit_sane ? old->unit : 0, width, must_fit, &l)) {
		add(k, s, "layout", what, "what its other stripes hold cannot be read", NULL);
		return;
	}
	l.obj_gen = old->obj_gen ? old->obj_gen : 1;
	f = add(k, s, "layout", what,
		"nothing is lost if it was made with the usual stripes; look at its data",
		"--repair gives it the layout that it had when it was made");
	fix_field(k, f, s, SHEAF_REPAIR_LAYOUT, (uint64_t)k->n_servers, (struct sheaf_handle){ 0 },
		  &l);
}

/* Reports objects on servers that the layout does not name. Any client that may write the file can
 * create them, so they say nothing about the layout of a file that is complete without them. */
static void judge_strays(struct check *k, struct suspect *s)
{
	for (const struct note *n = s->rows; n; n = n->next)
		if (n->kind == SHEAF_SCAN_OBJECT && n->size &&
		    check_object_of(s->row.stripes, n->server, n->index) < 0)
			add(k, s, "stray-object",
			    text(k,
				 "%s has %llu bytes of it, but the file is complete without that server",
				 k->servers[n->server].name, (unsigned long long)n->size),
			    "nothing of the file is lost", NULL);
}

/* The file size that the objects reach; reports objects that contradict the inode. */
static uint64_t judge_objects(struct check *k, struct suspect *s, uint64_t *fence)
{
	uint64_t end = 0, e;

	for (const struct note *n = s->rows; n; n = n->next) {
		if (n->kind != SHEAF_SCAN_OBJECT)
			continue;
		if (n->second != s->row.stripes->obj_gen) {
			bool doomed = false;

			for (const struct note *r = s->rows; r; r = r->next)
				doomed |= r->kind == SHEAF_SCAN_REMOVE && r->second == n->second;
			if (!doomed && n->size)
				add(k, s, "generation",
				    text(k, "%s has %llu bytes of another generation (%llu) of it",
					 k->servers[n->server].name, (unsigned long long)n->size,
					 (unsigned long long)n->second),
				    "those bytes cannot be read", NULL);
			continue;
		}
		*fence = MAX(*fence, n->epoch);
		if (check_object_of(s->row.stripes, n->server, n->index) < 0)
			continue;
		e = sheaf_stripes_end(s->row.stripes, (uint32_t)n->server, n->size);
		end = MAX(end, e);
	}
	return end;
}

static bool has_work(const struct suspect *s, enum sheaf_scan_kind kind)
{
	const struct note *n = s->rows;

	while (n && n->kind != kind)
		n = n->next;
	return n;
}

static void add_damage(struct check *k, struct suspect *s, uint32_t i, const struct note *object)
{
	const char *server = k->servers[s->row.stripes->targets[i]].name;
	uint64_t end = object ? object->size : 0, recorded = s->row.ends[i];
	struct note *names = NULL, *copy;
	struct finding *f;

	f = add(k, s, "lost-data",
		object ? text(k, "object %u of it on %s ends at byte %llu, but %llu were recorded",
			      i, server, (unsigned long long)end, (unsigned long long)recorded) :
			 text(k, "object %u of it on %s is missing, but %llu bytes were recorded",
			      i, server, (unsigned long long)recorded),
		text(k, "%llu bytes of data are lost", (unsigned long long)(recorded - end)), NULL);
	if (!f)
		return;
	f->advice = "--repair leaves it alone: copy the file back from elsewhere, remove it "
		    "('sheaf rm'), or accept the loss (the rest can be read, the lost part is EIO)";
	f->server = (int)s->row.stripes->targets[i];
	f->index = i;
	f->bytes = recorded - end;
	for (const struct note *n = s->names; n; n = n->next) {
		copy = keep_note(k, n);
		if (!copy)
			return;
		copy->next = names;
		f->names = names = copy;
	}
}

/* Recorded ends are lower bounds: an object may be longer, but shorter only during a truncate. */
static void judge_damage(struct check *k, struct suspect *s)
{
	const struct sheaf_stripes *l = s->row.stripes;

	if (!s->row.nlink || has_work(s, SHEAF_SCAN_TRUNCATE) || !check_layout_sane(k, l))
		return;
	for (uint32_t i = 0; i < l->n_targets; i++) {
		const struct note *o = object_at(s, l, i);

		if (!k->down[l->targets[i]] && (o ? o->size : 0) < s->row.ends[i])
			add_damage(k, s, i, o);
	}
}

static void judge_file_work(struct check *k, struct suspect *s, bool *unsettled, bool *truncate)
{
	struct finding *f;

	for (const struct note *n = s->rows; n; n = n->next) {
		bool wrong = n->h.gen != s->row.h.gen || n->epoch > s->row.epoch;

		*unsettled |= n->kind == SHEAF_SCAN_UNSETTLED;
		*truncate |= n->kind == SHEAF_SCAN_TRUNCATE;
		if (n->kind == SHEAF_SCAN_TRUNCATE && wrong)
			stale(k, s, n, "that is not about this file any more");
		if (n->kind == SHEAF_SCAN_REMOVE && n->h.gen != s->row.h.gen)
			stale(k, s, n, "that is not about this file any more");
		if (n->kind != SHEAF_SCAN_UNSETTLED || !wrong)
			continue;
		f = add(k, s, "unsettled",
			"its writers came at a time that is still to come, so its size is never settled",
			nothing, "--repair settles it");
		fix_field(k, f, s, SHEAF_REPAIR_UNSETTLE, 0, (struct sheaf_handle){ 0 }, NULL);
	}
}

static void judge_file(struct check *k, struct suspect *s)
{
	bool unsettled = false, truncate = false;
	uint64_t fence = 0, end;
	struct finding *f;

	judge_file_work(k, s, &unsettled, &truncate);
	if (!check_layout_sane(k, s->row.stripes)) {
		judge_layout(k, s, "its layout is broken or names a server that is none", false);
		return;
	}
	if (fits(s->row.stripes, s)) {
		judge_strays(k, s);
	} else if (!covers_objects(s->row.stripes, s)) {
		judge_layout(k, s, "it has data on a server that its layout does not name", true);
		return;
	}
	judge_damage(k, s);
	end = judge_objects(k, s, &fence);
	if (s->row.nlink == 0)
		return;
	if (!unsettled && !truncate && end > s->row.size) {
		f = add(k, s, "size",
			text(k, "its size is %llu, but its objects reach to %llu",
			     (unsigned long long)s->row.size, (unsigned long long)end),
			"what is behind the size cannot be read",
			"--repair sets the size to what the objects have");
		fix_field(k, f, s, SHEAF_REPAIR_UNSETTLE, 0, (struct sheaf_handle){ 0 }, NULL);
	}
	if (fence > s->row.epoch) {
		f = add(k, s, "epoch",
			text(k, "its servers refuse epochs below %llu, and it has %llu",
			     (unsigned long long)fence, (unsigned long long)s->row.epoch),
			"nothing is lost, but nobody can read or write it",
			"--repair raises its epoch");
		fix_field(k, f, s, SHEAF_REPAIR_EPOCH, fence, (struct sheaf_handle){ 0 }, NULL);
	}
}

/* ---- symbolic links, access control lists, and rows without an inode ---- */

/* The inode records which lists it has, and its mode must match its access control list. */
static void judge_acl(struct check *k, struct suspect *s)
{
	static const char cure[] = "--repair sets its permissions to those of its list";
	uint32_t has = 0, bad = 0;
	struct finding *f = NULL;
	bool differ = false;

	for (const struct note *n = s->rows; n; n = n->next) {
		if (n->kind != SHEAF_SCAN_XATTR)
			continue;
		*(n->bad ? &bad : &has) |= n->has;
		differ |= !n->bad && n->has == SHEAF_HAS_ACL && n->mode != (s->row.mode & 0777);
	}
	if (bad || (s->row.has & ~has & ~(uint32_t)SHEAF_HAS_CAPABILITY))
		f = add(k, s, "acl", "its access control list is gone or cannot be read",
			"whom it let in is lost",
			"--repair forgets it, and of an access list the permissions of the group");
	else if (has != s->row.has)
		f = add(k, s, "acl", "its inode is wrong about which attributes it has", nothing,
			cure);
	else if (differ)
		f = add(k, s, "acl", "its permissions are not those of its access control list",
			nothing, cure);
	if (f)
		fix_field(k, f, s, SHEAF_REPAIR_ACL, 0, (struct sheaf_handle){ 0 }, NULL);
}

static void judge_rest(struct check *k, struct suspect *s)
{
	const struct note *link_text = NULL;
	struct finding *f;

	for (const struct note *n = s->rows; n; n = n->next) {
		bool work = n->kind == SHEAF_SCAN_UNSETTLED || n->kind == SHEAF_SCAN_REMOVE ||
			    n->kind == SHEAF_SCAN_TRUNCATE;

		if (n->kind == SHEAF_SCAN_SYMLINK)
			link_text = n;
		if (n->bad && !n->has) /* otherwise it is an access control list */
			stale(k, s, n, "that cannot be read");
		else if ((work && !S_ISREG(s->row.mode)) ||
			 (n->kind == SHEAF_SCAN_SYMLINK && !S_ISLNK(s->row.mode)))
			stale(k, s, n,
			      text(k, "that a %s cannot have", cli_type_name(s->row.mode)));
	}
	if (!S_ISLNK(s->row.mode) || (link_text && link_text->size == s->row.size))
		return;
	if (link_text && link_text->size)
		f = add(k, s, "link-size", "its size is not the length of its text", nothing,
			"--repair corrects the size");
	else
		f = add(k, s, "link-text", "this symbolic link has no text",
			"where it pointed is lost", "--repair gives it the text '?'");
	fix_field(k, f, s, SHEAF_REPAIR_TEXT, 0, (struct sheaf_handle){ 0 }, NULL);
}

/* Adds a finding that belongs to no suspect. */
static int add_alone(struct check *k, struct finding *f)
{
	if (!f)
		return -ENOMEM;
	*k->findings_end = f;
	k->findings_end = &f->next;
	return 0;
}

int check_judge_lock(struct check *k, const struct note *n)
{
	struct suspect none = { .ino = n->h.ino, .there = true };
	struct finding *f = add(k, &none, "stale-lock",
				"it is locked by a change over two servers that does not exist",
				"nothing is lost, but whoever comes to it waits",
				"--repair removes the lock");

	if (f && n->name_len)
		f->at = keep_note(k, n);
	fix_row(k, f, n->server, n->kind, n->key, n->key_len);
	return add_alone(k, f);
}

int check_judge_counter(struct check *k, int server, uint64_t next)
{
	struct suspect none = { .ino = k->highest[server], .there = true };
	struct finding *f = add(k, &none, "counter",
				text(k, "the next inode number of %s is %llu, which is taken",
				     k->servers[server].name, (unsigned long long)next),
				"nothing is lost, but files cannot be made",
				"--repair sets it above all that are taken");

	fix(k, f,
	    (struct sheaf_repair){ .kind = SHEAF_REPAIR_NEXT,
				   .h = { check_numbers_taken(k, server), 0 } });
	return add_alone(k, f);
}

uint64_t check_numbers_taken(const struct check *k, int server)
{
	return MAX(k->next[server], k->highest[server]) + COUNTER_JUMP;
}

static int judge_present(struct check *k, struct suspect *s)
{
	struct finding *f;
	uint8_t key[8]; /* in the server's key format */
	int r = 0;

	if (s->row.bad) {
		for (int i = 0; i < 8; i++)
			key[i] = (uint8_t)(s->ino >> (56 - 8 * i));
		f = add(k, s, "bad-inode", "its inode cannot be read",
			"its owner, mode and times are lost",
			"--repair removes the inode and keeps what is left of the file");
		fix_row(k, f, -1, SHEAF_SCAN_INODE, key, sizeof(key));
		return 0;
	}
	judge_entries_to(k, s);
	judge_rest(k, s);
	judge_acl(k, s);
	if (S_ISDIR(s->row.mode))
		r = judge_dir_names(k, s);
	else
		judge_file_names(k, s);
	if (!r && S_ISDIR(s->row.mode) && !s->torn)
		r = judge_contents(k, s);
	if (S_ISREG(s->row.mode))
		judge_file(k, s);
	return r;
}

int check_judge(struct check *k, struct suspect *s)
{
	int r = 0;

	s->findings = NULL;
	if (s->covered)
		return 0;
	if (k->only_damage && s->there && !s->row.bad && S_ISREG(s->row.mode))
		judge_damage(k, s);
	else if (k->only_damage)
		return 0;
	else if (s->there)
		r = judge_present(k, s);
	else
		judge_absent(k, s);
	for (struct finding *f = s->findings; f && s->names; f = f->next)
		if (!f->at)
			f->at = keep_note(k, s->names);
	return r;
}
