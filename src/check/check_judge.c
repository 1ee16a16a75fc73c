/* Decides what is wrong with one suspect, as text and as repairs. Uses only what the look
 * collected. See check_impl.h.
 *
 * Each finding says what is wrong, what is lost, and what --repair will do. Unfinished work is not
 * reported: rows of open files, removals and truncates that agree with their inode are correct. */
#include <endian.h>

#include "check/check_impl.h"

/* ---- a missing inode ---- */

static struct sheaf_repair make_inode(const struct suspect *s, uint32_t type)
{
	return (struct sheaf_repair){ .kind = SHEAF_REPAIR_MAKE,
				      .h = { s->ino, s->names ? s->names->to.gen : 1 },
				      .mode = type,
				      .value = 1 };
}

static void rest_of_file(struct check *k, struct suspect *s, uint64_t bytes)
{
	struct sheaf_repair make = make_inode(s, S_IFREG);
	const char *what = finding_text(k,
					"%llu bytes of data belong to it, but its inode is missing",
					(unsigned long long)bytes);
	struct sheaf_stripes l;
	struct finding *f;

	if (!check_layout_guess(k, s, 0, 0, false, &l)) {
		finding_add(k, s, "lost-inode", what, "the file is lost", NULL);
		return;
	}
	for (const struct note *n = s->rows; n; n = n->next) {
		if (n->kind != SHEAF_SCAN_OBJECT)
			continue;
		make.value = MAX(make.value, n->epoch);
		l.obj_gen = (uint32_t)n->second;
	}
	make.stripes = &l;
	f = finding_add(
		k, s, "lost-inode", what,
		"its name, owner, mode and times are lost, and its stripes if they were not of the usual kind",
		finding_text(k, "--repair creates it again as /lost+found/#%llu with the data",
			     (unsigned long long)s->ino));
	for (const struct note *n = s->names; n; n = n->next)
		fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_DROP, n);
	fix_add(k, f, make);
}

static void rest_of_dir(struct check *k, struct suspect *s)
{
	struct sheaf_repair make = make_inode(s, S_IFDIR);
	struct finding *f = finding_add(k, s, "lost-directory",
					"this directory has entries, but its inode is missing",
					"its owner, mode and times are lost",
					"--repair makes it anew, owned by root, with mode 0700");

	if (s->names)
		make.dir = check_dir_handle(k, s->names->h.ino);
	if (s->ino == CHECK_ROOT)
		make.dir = make.h;
	fix_add(k, f, make);
}

static void judge_absent(struct check *k, struct suspect *s)
{
	struct finding *f;
	uint64_t bytes = 0;

	for (const struct note *n = s->rows; n; n = n->next)
		if (n->kind == SHEAF_SCAN_OBJECT)
			bytes += n->size;
	if (s->dir.n_entries || s->dir.n_index) {
		rest_of_dir(k, s);
	} else if (bytes) {
		rest_of_file(k, s, bytes);
	} else if (note_find(s->rows, SHEAF_SCAN_SYMLINK)) {
		f = finding_add(k, s, "lost-link",
				"this symbolic link has a text, but its inode is missing",
				"its owner and times are lost",
				"--repair creates it again, owned by root");
		fix_add(k, f, make_inode(s, S_IFLNK));
	} else {
		for (const struct note *n = s->names; n; n = n->next) {
			f = finding_add(k, s, "dangling-entry",
					"this name refers to an inode that does not exist",
					"the file is lost, unless it was empty",
					"--repair removes the name");
			finding_set_entry(k, f, n);
			fix_entry(k, f, s, SHEAF_REPAIR_ENTRY_DROP, n);
		}
		for (const struct note *n = s->rows; n; n = n->next)
			if (n->kind != SHEAF_SCAN_OBJECT)
				finding_add_stale(k, s, n, "but no inode");
		k->leftover += note_find(s->rows, SHEAF_SCAN_OBJECT) && !s->findings;
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
		f = finding_add(
			k, s, "acl", "its access control list is gone or cannot be read",
			"the permissions that it granted are lost",
			"--repair removes it and, for an access list, the permissions of the group");
	else if (has != s->row.has)
		f = finding_add(k, s, "acl", "its inode is wrong about which attributes it has",
				NOTHING_LOST, cure);
	else if (differ)
		f = finding_add(k, s, "acl",
				"its permissions are not those of its access control list",
				NOTHING_LOST, cure);
	if (f)
		fix_inode(k, f, s, SHEAF_REPAIR_ACL, 0);
}

static void judge_rest(struct check *k, struct suspect *s)
{
	const struct note *link_text = note_find(s->rows, SHEAF_SCAN_SYMLINK);
	struct finding *f;

	for (const struct note *n = s->rows; n; n = n->next) {
		bool work = n->kind == SHEAF_SCAN_UNSETTLED || n->kind == SHEAF_SCAN_REMOVE ||
			    n->kind == SHEAF_SCAN_TRUNCATE;

		if (n->bad && !n->has) /* otherwise it is an access control list */
			finding_add_stale(k, s, n, "that cannot be read");
		else if ((work && !S_ISREG(s->row.mode)) ||
			 (n->kind == SHEAF_SCAN_SYMLINK && !S_ISLNK(s->row.mode)))
			finding_add_stale(k, s, n,
					  finding_text(k, "that a %s cannot have",
						       cli_type_name(s->row.mode)));
	}
	if (!S_ISLNK(s->row.mode) || (link_text && link_text->size == s->row.size))
		return;
	if (link_text && link_text->size)
		f = finding_add(k, s, "link-size", "its size is not the length of its text",
				NOTHING_LOST, "--repair corrects the size");
	else
		f = finding_add(k, s, "link-text", "this symbolic link has no text",
				"where it pointed is lost", "--repair gives it the text '?'");
	fix_inode(k, f, s, SHEAF_REPAIR_TEXT, 0);
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
	struct finding *f = finding_add(
		k, &none, "stale-lock",
		"it is locked by a change over two servers that does not exist",
		"nothing is lost, but requests for it wait", "--repair removes the lock");

	if (n->name_len)
		finding_set_entry(k, f, n);
	fix_row(k, f, n->server, n->kind, n->key, n->key_len);
	return add_alone(k, f);
}

int check_judge_counter(struct check *k, int server, uint64_t next)
{
	struct suspect none = { .ino = k->highest[server], .there = true };
	struct finding *f =
		finding_add(k, &none, "counter",
			    finding_text(k, "the next inode number of %s is %llu, which is taken",
					 k->servers[server].name, (unsigned long long)next),
			    "nothing is lost, but files cannot be made",
			    "--repair sets it above all that are taken");

	fix_add(k, f,
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
	uint64_t key = htobe64(s->ino); /* as in the server's key */
	int r = 0;

	if (s->row.bad) {
		f = finding_add(k, s, "bad-inode", "its inode cannot be read",
				"its owner, mode and times are lost",
				"--repair removes the inode and keeps what is left of the file");
		fix_row(k, f, -1, SHEAF_SCAN_INODE, (const uint8_t *)&key, sizeof(key));
		return 0;
	}
	check_judge_entries(k, s);
	judge_rest(k, s);
	judge_acl(k, s);
	if (S_ISDIR(s->row.mode))
		r = check_judge_dir_names(k, s);
	else
		check_judge_file_names(k, s);
	if (!r && S_ISDIR(s->row.mode) && !s->torn)
		r = check_judge_contents(k, s);
	if (S_ISREG(s->row.mode))
		check_judge_file(k, s);
	return r;
}

int check_judge(struct check *k, struct suspect *s)
{
	int r = 0;

	s->findings = NULL;
	if (s->covered)
		return 0;
	if (k->only_damage && s->there && !s->row.bad && S_ISREG(s->row.mode))
		check_judge_damage(k, s);
	else if (k->only_damage)
		return 0;
	else if (s->there)
		r = judge_present(k, s);
	else
		judge_absent(k, s);
	for (struct finding *f = s->findings; f && s->names; f = f->next)
		if (!f->at)
			f->at = note_keep(k, s->names);
	return r;
}
