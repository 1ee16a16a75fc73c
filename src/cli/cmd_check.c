/* sheaf check: is what the servers have stored as it should be, while they run? And with --repair: make it so.
 *
 * A round is a pass over everything and looks at what seemed wrong (check.h). With --repair the rounds go on until
 * nothing is wrong or nothing more can be done: one repair may show what the next has to do (a file that was made
 * anew has no name yet). Each repair is a transaction that looks again before it does anything. */
#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/check.h"
#include "cli/commands.h"

#define ROUNDS 8
#define LOST_FOUND "lost+found"

enum { OPT_REPAIR, OPT_JSON };

/* ---- paths ---- */

struct wanted {
	uint64_t ino;
	char name[256];
};

static int match_name(struct check *k, int server, const struct sheaf_row *r, void *arg)
{
	struct wanted *w = arg;

	(void)k, (void)server;
	if (r->to.ino != w->ino)
		return 0;
	memcpy(w->name, r->name, sizeof(w->name));
	return 1;
}

/* The path of a directory, as far as there is one. */
static int dir_path(struct check *k, uint64_t ino, char out[CLI_PATH_MAX])
{
	const struct check_node *n;
	uint64_t first = ino;
	char rest[CLI_PATH_MAX];
	int r = 0;

	out[0] = 0;
	for (bool loop = false; ino != CHECK_ROOT && !r; loop = ino == first) {
		struct wanted w = { .ino = ino };
		struct sheaf_scan scan = { 0 };

		n = check_node(k, ino);
		memcpy(rest, out, sizeof(rest));
		if (n && !loop) {
			scan.only = n->parent;
			r = check_rows(k, sheaf_server_of(k->fs, n->parent), SHEAF_SCAN_ENTRY,
				       &scan, match_name, &w);
		}
		if (!w.name[0] ||
		    snprintf(out, CLI_PATH_MAX, "/%s%s", w.name, rest) >= CLI_PATH_MAX) {
			snprintf(out, CLI_PATH_MAX, "(inode %llu)%.4000s", (unsigned long long)ino,
				 rest);
			break;
		}
		ino = n->parent;
	}
	return r;
}

static int find_path(struct check *k, struct finding *f)
{
	char dir[CLI_PATH_MAX] = "", path[CLI_PATH_MAX] = "";
	int r = 0;

	if (f->at) {
		r = dir_path(k, f->at->h.ino, dir);
		snprintf(path, sizeof(path), "%.3800s/%.256s", dir, f->at->name);
	} else if (f->ino == CHECK_ROOT) {
		strcpy(path, "/");
	}
	f->path = path[0] ? arena_strndup(&k->keep, path, strlen(path)) : NULL;
	return r;
}

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

/* 0, or -errno; -EAGAIN: it has changed, the next round sees. */
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

/* Whether anything was changed. */
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

/* ---- for people and programs ---- */

static void print_finding(const struct finding *f)
{
	char line[CLI_PATH_MAX + 1024];

	snprintf(line, sizeof(line), "%s: %s%s(inode %llu): %s; %s; %s",
		 f->repaired ? "repaired" : "wrong", f->path ? f->path : "", f->path ? " " : "",
		 (unsigned long long)f->ino, f->what, f->lost,
		 f->cure ? f->cure : "--repair can do nothing about it");
	cli_put_name(stdout, line);
	putchar('\n');
}

static struct json_object *finding_json(const struct finding *f)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "kind", json_object_new_string(f->kind));
	json_object_object_add(o, "inode", json_object_new_uint64(f->ino));
	json_object_object_add(o, "path", f->path ? cli_json_name(f->path) : NULL);
	json_object_object_add(o, "what", cli_json_name(f->what));
	json_object_object_add(o, "lost", json_object_new_string(f->lost));
	json_object_object_add(o, "repair", f->cure ? cli_json_name(f->cure) : NULL);
	json_object_object_add(o, "repaired", json_object_new_boolean(f->repaired));
	return o;
}

struct pending {
	const char *key, *text;
	uint64_t n;
};

static void print_pending(const struct check *k, struct json_object *json)
{
	const struct pending p[] = {
		{ "unsettled", "open for writing, or not settled yet", k->unsettled },
		{ "removing", "being removed", k->removing },
		{ "truncating", "being truncated", k->truncates },
		{ "changes", "parts of changes over two servers", k->pairs },
		{ "changing", "changing all the time, so not judged", k->busy },
		{ "skipped", "not looked at, there were too many: check again", k->skipped },
		{ "leftover", "gone but for an empty object", k->leftover },
	};
	const char *between = "pending (not wrong): ";
	bool any = false;

	for (size_t i = 0; i < ARRAY_LEN(p); i++) {
		if (json)
			json_object_object_add(json, p[i].key, json_object_new_uint64(p[i].n));
		else if (p[i].n)
			printf("%s%llu %s", any ? ", " : between, (unsigned long long)p[i].n,
			       p[i].text);
		any |= p[i].n > 0;
	}
	if (any && !json)
		putchar('\n');
}

static void print_end(const struct check *k, size_t wrong, size_t repaired,
		      struct json_object *list)
{
	struct json_object *o, *pending;

	if (list) {
		o = json_object_new_object();
		pending = json_object_new_object();
		json_object_object_add(o, "clean", json_object_new_boolean(wrong == 0));
		json_object_object_add(o, "findings", list);
		print_pending(k, pending);
		json_object_object_add(o, "pending", pending);
		json_object_object_add(o, "inodes", json_object_new_uint64(k->inodes));
		json_object_object_add(o, "entries", json_object_new_uint64(k->entries));
		json_object_object_add(o, "objects", json_object_new_uint64(k->objects));
		puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
							       JSON_C_TO_STRING_NOSLASHESCAPE));
		json_object_put(o);
		return;
	}
	print_pending(k, NULL);
	printf("%llu inodes, %llu entries, %llu objects on %d servers: ",
	       (unsigned long long)k->inodes, (unsigned long long)k->entries,
	       (unsigned long long)k->objects, k->n_servers);
	if (repaired)
		printf("%zu repaired, ", repaired);
	if (wrong)
		printf("%zu wrong\n", wrong);
	else
		puts("nothing is wrong");
}

/* ---- rounds ---- */

static int round_begin(struct check *k)
{
	k->inodes = k->entries = k->objects = k->unsettled = k->removing = 0;
	k->truncates = k->pairs = k->busy = k->leftover = k->skipped = 0;
	memset(k->highest, 0, sizeof(k->highest));
	list_init(&k->undecided);
	k->findings = NULL;
	k->findings_end = &k->findings;
	arena_reset(&k->keep);
	arena_reset(&k->layouts);
	if (htab_init(&k->suspects) || htab_init(&k->by_layout))
		return cli_error(k->c, "out of memory");
	return 0;
}

struct tally {
	struct json_object *list; /* or NULL: text */
	size_t wrong, repaired;
	bool changed;
};

static int tell(struct check *k, struct finding *f, bool do_repair, struct tally *t)
{
	int r = find_path(k, f);

	if (r)
		return r;
	if (do_repair)
		t->changed |= repair(k, f);
	if (t->list && (f->repaired || !do_repair || !f->fixes))
		json_object_array_add(t->list, finding_json(f));
	else if (!t->list && (f->repaired || !do_repair || !f->fixes))
		print_finding(f);
	t->repaired += f->repaired;
	t->wrong += !f->repaired;
	return 0;
}

static int one_round(struct check *k, bool do_repair, struct tally *t)
{
	int r = round_begin(k);

	t->wrong = 0;
	t->changed = false;
	if (!r)
		r = check_pass(k);
	if (!r)
		r = check_confirm(k);
	for (struct finding *f = k->findings; f && !r; f = f->next)
		r = tell(k, f, do_repair, t);
	check_pass_free(k);
	return r;
}

static int rounds(struct check *k, bool do_repair, struct tally *t)
{
	int r = 0;

	for (int i = 0; i < ROUNDS && !r; i++) {
		/* the last one only looks, so that it says how it is */
		r = one_round(k, do_repair && i + 1 < ROUNDS, t);
		if (!do_repair || !t->changed)
			break;
	}
	return r;
}

/* All servers must be there, also those that were added since our cluster file was written: what one does not tell looks
 * lost, and what names one that we do not know looks wrong. */
static int all_up(struct check *k)
{
	int n;

	k->servers = calloc(SHEAF_MAX_SERVERS, sizeof(*k->servers));
	if (!k->servers)
		return cli_error(k->c, "out of memory");
	n = sheaf_map(k->fs, CLI_STATUS_MS, k->servers, SHEAF_MAX_SERVERS);
	k->n_servers = sheaf_server_count(k->fs);
	if (n < 0 || n > k->n_servers)
		return cli_fail(k->c, "the servers' map", n < 0 ? n : -EBADMSG);
	cli_servers_ask(k->fs, k->servers, k->n_servers);
	for (int i = 0; i < k->n_servers; i++)
		if (!k->servers[i].up)
			return cli_error(
				k->c,
				"%s (%s) does not answer; a check needs all servers, 'sheaf start' "
				"starts those of this host",
				k->servers[i].name, k->servers[i].address);
	return CLI_OK;
}

static int run_check(struct cli *c)
{
	struct check k = { .c = c };
	struct tally t = { .list = c->opt[OPT_JSON] ? json_object_new_array() : NULL };
	int status = cli_connect(c), r;

	if (status)
		return status;
	cli_catch_signals();
	k.fs = c->fs;
	k.page = calloc(SHEAF_SCAN_MAX, sizeof(*k.page));
	k.quiet = c->opt[OPT_JSON] || !isatty(STDERR_FILENO);
	k.progress.started = time_now();
	arena_init(&k.arena, 0);
	arena_init(&k.keep, 0);
	arena_init(&k.layouts, 0);
	status = k.page ? all_up(&k) : cli_error(c, "out of memory");
	if (!status) {
		r = rounds(&k, c->opt[OPT_REPAIR], &t);
		status = r || t.wrong ? CLI_FAILED : CLI_OK;
		if (!r) {
			print_end(&k, t.wrong, t.repaired, t.list);
			t.list = NULL;
		}
	}
	json_object_put(t.list);
	arena_destroy(&k.arena);
	arena_destroy(&k.keep);
	arena_destroy(&k.layouts);
	free(k.page);
	free(k.servers);
	return status;
}

const struct cli_command cmd_check = {
	.name = "check",
	.usage = "[--repair] [--json]",
	.summary = "check names, inodes and objects of all servers while they run",
	.run = run_check,
	.options = { { 0, "repair", NULL, "set right what is wrong, and say what was done" },
		     { 0, "json", NULL,
		       "for programs: {\"clean\": ..., \"findings\": [...], ...}" } },
	.more = "Each line says what is wrong with which file, what is lost by it and what --repair does. What is\n"
		"merely under way is pending, not wrong. Nothing that holds data is deleted: what has lost its name\n"
		"is put into /lost+found as #INODE. Only root may check.\n",
};
