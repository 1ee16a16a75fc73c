/* Makes findings and adds repairs to them. See check_impl.h. */
#include "check/check_impl.h"

const char *finding_text(struct check *k, const char *fmt, ...)
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

struct finding *finding_add(struct check *k, struct suspect *s, const char *kind, const char *what,
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

static void fix_add_at(struct check *k, struct finding *f, int server, struct sheaf_repair r)
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

void fix_add(struct check *k, struct finding *f, struct sheaf_repair r)
{
	fix_add_at(k, f, -1, r);
}

void fix_row(struct check *k, struct finding *f, int server, enum sheaf_scan_kind kind,
	     const uint8_t *key, uint32_t key_len)
{
	fix_add_at(k, f, server,
		   (struct sheaf_repair){ .kind = SHEAF_REPAIR_ROW_DROP,
					  .h = { f ? f->ino : 0, 0 },
					  .value = kind,
					  .key = key,
					  .key_len = key_len });
}

struct note *note_keep(struct check *k, const struct note *n)
{
	struct note *c = keep_copy(k, n, sizeof(*n));

	if (c)
		c->name = keep_copy(k, n->name, n->name_len);
	return c;
}

const struct note *note_find(const struct note *list, enum sheaf_scan_kind kind)
{
	while (list && list->kind != kind)
		list = list->next;
	return list;
}

void finding_set_entry(struct check *k, struct finding *f, const struct note *entry)
{
	if (f)
		f->at = note_keep(k, entry);
}

struct sheaf_handle check_dir_handle(const struct check *k, uint64_t ino)
{
	const struct suspect *s = check_suspect_find(k, ino);
	const struct check_node *n = check_node(k, ino);

	return (struct sheaf_handle){ ino, s && s->there ? s->row.h.gen : n ? n->gen : 1 };
}

void fix_inode(struct check *k, struct finding *f, const struct suspect *s,
	       enum sheaf_repair_kind kind, uint64_t value)
{
	fix_add(k, f,
		(struct sheaf_repair){
			.kind = kind, .h = s->row.h, .change = s->row.change, .value = value });
}

void fix_entry(struct check *k, struct finding *f, const struct suspect *s,
	       enum sheaf_repair_kind kind, const struct note *at)
{
	struct sheaf_repair r = { .kind = kind,
				  .h = at->to,
				  .dir = check_dir_handle(k, at->h.ino),
				  .name = at->name,
				  .name_len = at->name_len,
				  .mode = s->row.mode & S_IFMT,
				  .change = s->row.change };

	if (kind == SHEAF_REPAIR_ENTRY_SET)
		r.h = s->row.h;
	fix_add(k, f, r);
}

void finding_add_stale(struct check *k, struct suspect *s, const struct note *n, const char *why)
{
	static const char *const of[] = {
		[SHEAF_SCAN_INODE] = "inode",	     [SHEAF_SCAN_ENTRY] = "entry",
		[SHEAF_SCAN_INDEX] = "index",	     [SHEAF_SCAN_UNSETTLED] = "unsettled",
		[SHEAF_SCAN_REMOVE] = "remove-list", [SHEAF_SCAN_TRUNCATE] = "truncate",
		[SHEAF_SCAN_SYMLINK] = "link text",  [SHEAF_SCAN_XATTR] = "extended attribute",
	};
	struct finding *f = finding_add(k, s, "stale-row",
					finding_text(k, "it has a row (%s) %s", of[n->kind], why),
					NOTHING_LOST, "--repair removes that row");

	fix_row(k, f, n->server, n->kind, n->key, n->key_len);
}
