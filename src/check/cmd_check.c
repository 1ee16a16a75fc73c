/* sheaf check: verifies what the running servers have stored; --repair corrects it.
 *
 * A round is a pass over everything, then looks at the suspects (check_impl.h). With --repair the
 * rounds continue until nothing is wrong or nothing more can be repaired: one repair may reveal the
 * next (a recreated file has no name yet). Each repair is a transaction that checks again first. */
#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

#include "check/check.h"
#include "check/check_impl.h"

#define ROUNDS 8
#define LOST_FOUND "lost+found"

enum { OPT_REPAIR, OPT_JSON };

/* ---- repair ---- */

static int lost_and_found(struct check *k, struct sheaf_handle *h)
{
	struct sheaf_handle root = sheaf_root(k->fs);
	struct stat st;
	int r = sheaf_h_lookup(k->fs, NULL, root, LOST_FOUND, h, &st);

	if (r == -ENOENT)
		return sheaf_h_mkdir(k->fs, NULL, root, LOST_FOUND, 0700, h, NULL);
	return r || S_ISDIR(st.st_mode) ? r : -ENOTDIR;
}

static int send(struct check *k, int server, const struct sheaf_repair *r)
{
	bool in_dir = r->kind == SHEAF_REPAIR_ENTRY_SET || r->kind == SHEAF_REPAIR_ENTRY_DROP;

	if (server < 0)
		server = sheaf_server_of(k->fs, in_dir ? r->dir.ino : r->h.ino);
	return sheaf_repair(k->fs, server, r);
}

/* 0 or -errno; -EAGAIN: the state has changed, the next round looks again. */
static int apply(struct check *k, const struct fix *x)
{
	struct sheaf_repair r = x->r;
	bool to_lost = r.kind == SHEAF_REPAIR_ENTRY_SET && !r.name;
	char name[64];
	int e = -EEXIST;

	if (to_lost || (r.kind == SHEAF_REPAIR_MAKE && !r.dir.ino)) {
		int l = lost_and_found(k, &r.dir);

		if (l)
			return l;
	}
	if (!to_lost)
		return send(k, x->server, &r);
	for (int i = 0; i < 10 && e == -EEXIST; i++) {
		snprintf(name, sizeof(name), i ? "#%llu.%d" : "#%llu", (unsigned long long)r.h.ino,
			 i);
		r.name = name;
		r.name_len = (uint32_t)strlen(name);
		e = send(k, -1, &r);
	}
	return e;
}

/* An inode number that an object or a row still uses must not be given to a new file, which would
 * get those data, nor to /lost+found. So all counters are advanced before any inode is made. */
static int advance(struct check *k, const struct finding *f)
{
	bool makes = f->absent;
	int r = 0;

	for (const struct fix *x = f->fixes; x; x = x->next)
		makes |= x->r.kind == SHEAF_REPAIR_MAKE ||
			 (x->r.kind == SHEAF_REPAIR_ENTRY_SET && !x->r.name);
	if (!makes || k->advanced)
		return 0;
	for (int i = 0; i < k->n_servers && !r; i++) {
		struct sheaf_repair next = { .kind = SHEAF_REPAIR_NEXT,
					     .h = { check_numbers_taken(k, i), 0 } };

		if (check_has_role(k, i, ROLE_META))
			r = sheaf_repair(k->fs, i, &next);
		if (r)
			cli_fail(k->c, k->servers[i].name, r);
	}
	k->advanced = !r;
	return r;
}

/* Returns whether anything was changed. */
static bool repair(struct check *k, struct finding *f)
{
	bool changed = false;
	int r = 0;

	for (const struct fix *x = f->fixes; x && !r; x = x->next) {
		r = apply(k, x);
		changed |= r == 0;
	}
	f->repaired = f->fixes && !r;
	if (r && r != -EAGAIN && r != -ESTALE && r != -ENOENT)
		cli_error(k->c, "%s: %s: not repaired: %s", f->path ? f->path : "a file", f->what,
			  sheaf_strerror(r));
	return changed;
}

/* ---- output ---- */

struct tally {
	struct json_object *list; /* NULL: text output */
	size_t wrong, repaired;
	size_t damaged; /* objects that lost data, among the findings */
	bool changed;
};

static void print_finding(const struct finding *f)
{
	char line[CLI_PATH_MAX + 1024];

	snprintf(line, sizeof(line), "%s: %s%s(inode %llu): %s; %s; %s",
		 f->repaired ? "repaired" :
		 f->bytes    ? "damaged" :
			       "wrong",
		 f->path ? f->path : "", f->path ? " " : "", (unsigned long long)f->ino, f->what,
		 f->lost,
		 f->cure   ? f->cure :
		 f->advice ? f->advice :
			     "--repair can do nothing about it");
	cli_put_name(stdout, line);
	putchar('\n');
}

static struct json_object *finding_json(const struct check *k, const struct finding *f)
{
	struct json_object *o = json_object_new_object();

	cli_json_text(o, "kind", f->kind);
	cli_json_uint(o, "inode", f->ino);
	json_object_object_add(o, "path", f->path ? cli_json_name(f->path) : NULL);
	json_object_object_add(o, "what", cli_json_name(f->what));
	cli_json_text(o, "lost", f->lost);
	json_object_object_add(o, "repair", f->cure ? cli_json_name(f->cure) : NULL);
	cli_json_bool(o, "repaired", f->repaired);
	if (f->advice)
		cli_json_text(o, "advice", f->advice);
	if (f->bytes) {
		cli_json_text(o, "server", k->servers[f->server].name);
		cli_json_int(o, "object", f->index);
		cli_json_uint(o, "bytes", f->bytes);
	}
	return o;
}

static void print_pending(const struct check *k, struct json_object *json)
{
	const struct {
		const char *key, *text;
		uint64_t n;
	} p[] = {
		{ "unsettled", "open for writing, or not settled yet",
		  k->rows[SHEAF_SCAN_UNSETTLED] },
		{ "removing", "being removed", k->rows[SHEAF_SCAN_REMOVE] },
		{ "truncating", "being truncated", k->rows[SHEAF_SCAN_TRUNCATE] },
		{ "changes", "parts of changes over two servers", k->rows[SHEAF_SCAN_PREPARED] },
		{ "changing", "skipped, since they kept changing", k->busy },
		{ "skipped", "not checked, there were too many: check again", k->skipped },
		{ "leftover", "removed except for an empty object", k->leftover },
	};
	const char *between = "pending (not wrong): ";
	bool any = false;

	for (size_t i = 0; i < ARRAY_LEN(p); i++) {
		if (json)
			cli_json_uint(json, p[i].key, p[i].n);
		else if (p[i].n)
			printf("%s%llu %s", any ? ", " : between, (unsigned long long)p[i].n,
			       p[i].text);
		any |= p[i].n > 0;
	}
	if (any && !json)
		putchar('\n');
}

static void print_end(const struct check *k, const struct tally *t)
{
	struct json_object *o, *pending;

	if (t->list) {
		o = json_object_new_object();
		pending = json_object_new_object();
		cli_json_bool(o, "clean", t->wrong == 0);
		cli_json_uint(o, "damaged", t->damaged);
		json_object_object_add(o, "findings", t->list);
		print_pending(k, pending);
		json_object_object_add(o, "pending", pending);
		cli_json_uint(o, "inodes", k->rows[SHEAF_SCAN_INODE]);
		cli_json_uint(o, "entries", k->rows[SHEAF_SCAN_ENTRY]);
		cli_json_uint(o, "objects", k->rows[SHEAF_SCAN_OBJECT]);
		cli_json_print(o, JSON_C_TO_STRING_PRETTY);
		return;
	}
	print_pending(k, NULL);
	printf("%llu inodes, %llu entries, %llu objects on %d servers: ",
	       (unsigned long long)k->rows[SHEAF_SCAN_INODE],
	       (unsigned long long)k->rows[SHEAF_SCAN_ENTRY],
	       (unsigned long long)k->rows[SHEAF_SCAN_OBJECT], k->n_servers);
	if (t->repaired)
		printf("%zu repaired, ", t->repaired);
	if (t->damaged)
		printf("%zu wrong, %zu of them damage: data are lost\n", t->wrong, t->damaged);
	else if (t->wrong)
		printf("%zu wrong\n", t->wrong);
	else
		puts("nothing is wrong");
}

/* ---- rounds ---- */

static int find_path(struct check *k, struct finding *f)
{
	char path[CLI_PATH_MAX] = "";
	int r = 0;

	if (f->at)
		r = check_path_of(k, f->at, path);
	else if (f->ino == CHECK_ROOT)
		strcpy(path, "/");
	f->path = path[0] ? arena_strndup(&k->keep, path, strlen(path)) : NULL;
	return r;
}

static void report(const struct check *k, const struct finding *f, struct tally *t)
{
	if (t->list)
		json_object_array_add(t->list, finding_json(k, f));
	else
		print_finding(f);
}

/* Repairs what can be repaired, and reports it. */
static int repair_all(struct check *k, struct tally *t)
{
	int r = 0;

	for (struct finding *f = k->findings; f && !r; f = f->next) {
		r = advance(k, f);
		if (r)
			return r;
		t->changed |= repair(k, f);
		t->repaired += f->repaired;
		if (f->repaired)
			report(k, f, t);
	}
	return r;
}

/* Another round follows a repair that changed anything; the last reports what remains. */
static int one_round(struct check *k, bool do_repair, struct tally *t)
{
	int r = check_round(k);

	t->wrong = t->damaged = 0;
	t->changed = false;
	for (struct finding *f = k->findings; f && !r; f = f->next)
		r = find_path(k, f);
	if (!r && do_repair)
		r = repair_all(k, t);
	for (struct finding *f = k->findings; f && !r; f = f->next) {
		t->wrong += !f->repaired;
		t->damaged += f->bytes != 0;
		if (!f->repaired && !t->changed)
			report(k, f, t);
	}
	check_pass_free(k);
	return r;
}

static int rounds(struct check *k, bool do_repair, struct tally *t)
{
	int r = 0;

	for (int i = 0; i < ROUNDS && !r; i++) {
		/* the last round does not repair, so that it reports the final state */
		r = one_round(k, do_repair && i + 1 < ROUNDS, t);
		if (!do_repair || !t->changed)
			break;
	}
	return r;
}

static int run_check(struct cli *c)
{
	struct check k = { .progress.draw = !c->opt[OPT_JSON] && isatty(STDERR_FILENO) };
	struct tally t = { .list = c->opt[OPT_JSON] ? json_object_new_array() : NULL };
	int status = check_open(&k, c), r;

	if (!status) {
		r = rounds(&k, c->opt[OPT_REPAIR], &t);
		status = r || t.wrong ? CLI_FAILED : CLI_OK;
		if (!r) {
			print_end(&k, &t);
			t.list = NULL;
		}
	}
	json_object_put(t.list);
	check_close(&k);
	return status;
}

const struct cli_command cmd_check = {
	.name = "check",
	.usage = "[--repair] [--json]",
	.summary = "check names, inodes and objects of all servers while they run",
	.run = run_check,
	.options = { { 0, "repair", NULL, "repair what is wrong, and report what was done" },
		     { 0, "json", NULL,
		       "for programs: {\"clean\": ..., \"findings\": [...], ...}" } },
	.more = "Each line says what is wrong with a file, what is lost and what --repair does. Unfinished changes\n"
		"are pending, not wrong. Nothing that has data is deleted: a file that has lost its name\n"
		"is put into /lost+found as #INODE. A line that begins with 'damaged' is about data that are gone:\n"
		"--repair leaves such a file alone. Only root may check.\n",
	.examples = "  sheaf check\n"
		    "  sheaf check --repair\n"
		    "  sheaf check --json | jq -r '.findings[].path'\n",
};
