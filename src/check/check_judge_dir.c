/* What is wrong with the names of an inode, and with the contents of a directory. See
 * check_impl.h. */
#include <stdlib.h>

#include "check/check_impl.h"

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
		f = finding_add(k, s, "lost-entry",
				"its name is gone, but the index of the directory still has it",
				NOTHING_LOST,
				finding_text(k, "--repair gives it back its name, %s", at->name));
		finding_set_entry(k, f, at);
		fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_SET, at);
		return;
	}
	f = finding_add(k, s, "orphan",
			finding_text(k, "this %s has no name", cli_type_name(s->row.mode)),
			"its name is lost",
			finding_text(k, "--repair puts it into /lost+found as #%llu",
				     (unsigned long long)s->ino));
	fix_add(k, f,
		(struct sheaf_repair){ .kind = SHEAF_REPAIR_ENTRY_SET,
				       .h = s->row.h,
				       .mode = s->row.mode & S_IFMT,
				       .change = s->row.change });
}

void check_judge_entries(struct check *k, struct suspect *s)
{
	for (const struct note *n = s->names; n; n = n->next) {
		struct finding *f;

		if (n->to.gen == s->row.h.gen && n->mode == (s->row.mode & S_IFMT))
			continue;
		f = finding_add(
			k, s, "entry-type",
			n->mode != (s->row.mode & S_IFMT) ?
				finding_text(k, "the entry says that it is a %s, but it is a %s",
					     cli_type_name(n->mode), cli_type_name(s->row.mode)) :
				"the entry names another generation of it",
			NOTHING_LOST, "--repair corrects the entry");
		finding_set_entry(k, f, n);
		fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_SET, n);
	}
}

static void judge_second_names(struct check *k, struct suspect *s, const struct note *keep)
{
	for (const struct note *n = s->names; n; n = n->next) {
		struct finding *f;

		if (n == keep)
			continue;
		f = finding_add(k, s, "second-entry",
				keep ? "this directory has more than one name" :
				       "this name leads to the root directory",
				NOTHING_LOST, "--repair removes this name");
		finding_set_entry(k, f, n);
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

int check_judge_dir_names(struct check *k, struct suspect *s)
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
		f = finding_add(k, s, "parent", "its '..' is not the directory that it is in",
				NOTHING_LOST, "--repair corrects its '..'");
		fix_add(k, f,
			(struct sheaf_repair){ .kind = SHEAF_REPAIR_PARENT,
					       .h = s->row.h,
					       .dir = check_dir_handle(k, keep->h.ino),
					       .change = s->row.change });
		return 0;
	}
	loop = s->loop ? in_loop(k, s) : 0;
	if (loop > 0) {
		f = finding_add(k, s, "loop",
				"this directory is inside itself and cannot be reached",
				"where it was is lost",
				finding_text(k, "--repair moves it to /lost+found/#%llu",
					     (unsigned long long)s->ino));
		fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_DROP, keep);
	}
	return MIN(loop, 0);
}

void check_judge_file_names(struct check *k, struct suspect *s)
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
		f = finding_add(k, s, "link-count",
				finding_text(k, "its link count is %u, but it has %u name%s",
					     s->row.nlink, n, n == 1 ? "" : "s"),
				NOTHING_LOST, finding_text(k, "--repair sets it to %u", n));
		fix_inode(k, f, s, SHEAF_REPAIR_NLINK, n);
	}
	if (n && s->row.nlink && doomed && S_ISREG(s->row.mode))
		finding_add_stale(k, s, doomed, "to be removed, but has a name");
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
	struct finding *f = finding_add(k, s, kind, what, NOTHING_LOST, cure);

	fix_add(k, f, (struct sheaf_repair){ .kind = SHEAF_REPAIR_DIRECTORY, .h = s->row.h });
}

static void judge_index(struct check *k, struct suspect *s, const struct differences *d)
{
	const char *least = s->dir.more ? "at least " : "";

	if (d->missing)
		fix_dir(k, s, "index",
			finding_text(
				k,
				"%s%zu of its entries are missing in its index, or differ there (%.64s)",
				least, d->missing, d->example),
			"--repair rebuilds the index");
	if (d->extra)
		fix_dir(k, s, "index",
			finding_text(k, "%s%zu rows of its index have no entry (%.64s)", least,
				     d->extra, d->example),
			"--repair rebuilds the index");
	if (d->same_cookie)
		fix_dir(k, s, "cookie",
			finding_text(k,
				     "%s%zu of its entries have the cookie of another one (%.64s)",
				     least, d->same_cookie, d->example),
			"--repair gives them new ones");
	if (s->dir.n_entries && s->dir.last_cookie >= s->row.cookie)
		fix_dir(k, s, "cookie", "its next cookie is not above those of its entries",
			"--repair corrects its next cookie");
}

static void judge_odd_name(struct check *k, struct suspect *s, const struct note *n)
{
	struct finding *f = finding_add(
		k, s, "bad-name",
		finding_text(
			k, "one of its entries has an invalid name; the entry refers to inode %llu",
			(unsigned long long)n->to.ino),
		"the name is lost",
		"--repair removes the name and puts the inode into /lost+found");

	fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_DROP, n);
}

int check_judge_contents(struct check *k, struct suspect *s)
{
	struct differences d = { 0 };
	size_t ne, nx;
	struct note **e = sorted(k, s->dir.entries, &ne), **x = sorted(k, s->dir.index, &nx);

	if (!e || !x)
		return -ENOMEM;
	for (const struct note *n = s->dir.odd; n; n = n->next) {
		if (n->bad)
			finding_add_stale(k, s, n, "that cannot be read");
		else
			judge_odd_name(k, s, n);
	}
	compare(e, ne, x, nx, &d);
	judge_index(k, s, &d);
	if (s->row.size != s->dir.n_entries)
		fix_dir(k, s, "entry-count",
			finding_text(k, "it says that it has %llu entries, but it has %llu",
				     (unsigned long long)s->row.size,
				     (unsigned long long)s->dir.n_entries),
			"--repair corrects the number");
	if (s->row.nlink != 2 + s->dir.subdirs)
		fix_dir(k, s, "link-count",
			finding_text(k, "its link count is %u, but it has %llu directories",
				     s->row.nlink, (unsigned long long)s->dir.subdirs),
			"--repair corrects the count");
	return 0;
}
