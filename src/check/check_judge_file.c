/* What is wrong with a regular file: its layout, its objects, its size. See check_impl.h. */
#include "check/check_impl.h"

#define LAYOUT_UNIT 4096 /* stripe units are multiples of it */

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

bool check_layout_guess(struct check *k, const struct suspect *s, uint32_t unit, uint32_t width,
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

/* ---- files ---- */

/* must_fit: the current layout may be right. */
static void judge_layout(struct check *k, struct suspect *s, const char *what, bool must_fit)
{
	const struct sheaf_stripes *old = s->row.stripes;
	bool unit_sane = old->unit && old->unit % LAYOUT_UNIT == 0;
	uint32_t width = MIN(old->n_targets, (uint32_t)k->n_servers);
	struct sheaf_stripes l;
	struct finding *f;

	if (!check_layout_guess(k, s, unit_sane ? old->unit : 0, width, must_fit, &l)) {
		finding_add(k, s, "layout", what, "what its other stripes hold cannot be read",
			    NULL);
		return;
	}
	l.obj_gen = old->obj_gen ? old->obj_gen : 1;
	f = finding_add(k, s, "layout", what,
			"nothing is lost if it was made with the usual stripes; look at its data",
			"--repair gives it the layout that it had when it was made");
	fix_add(k, f,
		(struct sheaf_repair){ .kind = SHEAF_REPAIR_LAYOUT,
				       .h = s->row.h,
				       .change = s->row.change,
				       .value = (uint64_t)k->n_servers,
				       .stripes = &l });
}

/* Reports objects on servers that the layout does not name. Any client that may write the file can
 * create them, so they say nothing about the layout of a file that is complete without them. */
static void judge_strays(struct check *k, struct suspect *s)
{
	for (const struct note *n = s->rows; n; n = n->next)
		if (n->kind == SHEAF_SCAN_OBJECT && n->size &&
		    check_object_of(s->row.stripes, n->server, n->index) < 0)
			finding_add(
				k, s, "stray-object",
				finding_text(
					k,
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
				finding_add(
					k, s, "generation",
					finding_text(
						k,
						"%s has %llu bytes of another generation (%llu) of it",
						k->servers[n->server].name,
						(unsigned long long)n->size,
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

static void report_lost_data(struct check *k, struct suspect *s, uint32_t i,
			     const struct note *object)
{
	const char *server = k->servers[s->row.stripes->targets[i]].name;
	uint64_t end = object ? object->size : 0, recorded = s->row.ends[i];
	struct note *names = NULL, *copy;
	struct finding *f;

	f = finding_add(
		k, s, "lost-data",
		object ?
			finding_text(
				k,
				"object %u of it on %s ends at byte %llu, but %llu were recorded",
				i, server, (unsigned long long)end, (unsigned long long)recorded) :
			finding_text(
				k, "object %u of it on %s is missing, but %llu bytes were recorded",
				i, server, (unsigned long long)recorded),
		finding_text(k, "%llu bytes of data are lost",
			     (unsigned long long)(recorded - end)),
		NULL);
	if (!f)
		return;
	f->advice = "--repair leaves it alone: copy the file back from elsewhere, remove it "
		    "('sheaf rm'), or accept the loss (the rest can be read, the lost part is EIO)";
	f->server = (int)s->row.stripes->targets[i];
	f->index = i;
	f->bytes = recorded - end;
	for (const struct note *n = s->names; n; n = n->next) {
		copy = note_keep(k, n);
		if (!copy)
			return;
		copy->next = names;
		f->names = names = copy;
	}
}

/* Recorded ends are lower bounds: an object may be longer, but shorter only during a truncate. */
void check_judge_damage(struct check *k, struct suspect *s)
{
	const struct sheaf_stripes *l = s->row.stripes;

	if (!s->row.nlink || note_find(s->rows, SHEAF_SCAN_TRUNCATE) || !check_layout_sane(k, l))
		return;
	for (uint32_t i = 0; i < l->n_targets; i++) {
		const struct note *o = object_at(s, l, i);

		if (!k->down[l->targets[i]] && (o ? o->size : 0) < s->row.ends[i])
			report_lost_data(k, s, i, o);
	}
}

static void judge_file_work(struct check *k, struct suspect *s)
{
	struct finding *f;

	for (const struct note *n = s->rows; n; n = n->next) {
		bool wrong = n->h.gen != s->row.h.gen || n->epoch > s->row.epoch;

		if ((n->kind == SHEAF_SCAN_TRUNCATE && wrong) ||
		    (n->kind == SHEAF_SCAN_REMOVE && n->h.gen != s->row.h.gen))
			finding_add_stale(k, s, n, "that does not match its inode");
		if (n->kind != SHEAF_SCAN_UNSETTLED || !wrong)
			continue;
		f = finding_add(
			k, s, "unsettled",
			"its unsettled row has another generation or a later epoch, so its size is never settled",
			NOTHING_LOST, "--repair settles it");
		fix_inode(k, f, s, SHEAF_REPAIR_UNSETTLE, 0);
	}
}

void check_judge_file(struct check *k, struct suspect *s)
{
	uint64_t fence = 0, end;
	struct finding *f;

	judge_file_work(k, s);
	if (!check_layout_sane(k, s->row.stripes)) {
		judge_layout(k, s, "its layout is invalid or names an unknown server", false);
		return;
	}
	if (fits(s->row.stripes, s)) {
		judge_strays(k, s);
	} else if (!covers_objects(s->row.stripes, s)) {
		judge_layout(k, s, "it has data on a server that its layout does not name", true);
		return;
	}
	check_judge_damage(k, s);
	end = judge_objects(k, s, &fence);
	if (s->row.nlink == 0)
		return;
	if (end > s->row.size && !note_find(s->rows, SHEAF_SCAN_UNSETTLED) &&
	    !note_find(s->rows, SHEAF_SCAN_TRUNCATE)) {
		f = finding_add(k, s, "size",
				finding_text(k, "its size is %llu, but its objects reach to %llu",
					     (unsigned long long)s->row.size,
					     (unsigned long long)end),
				"data beyond the size cannot be read",
				"--repair sets the size to what the objects have");
		fix_inode(k, f, s, SHEAF_REPAIR_UNSETTLE, 0);
	}
	if (fence > s->row.epoch) {
		f = finding_add(
			k, s, "epoch",
			finding_text(k, "its servers refuse epochs below %llu, and it has %llu",
				     (unsigned long long)fence, (unsigned long long)s->row.epoch),
			"nothing is lost, but it cannot be read or written",
			"--repair raises its epoch");
		fix_inode(k, f, s, SHEAF_REPAIR_EPOCH, fence);
	}
}
