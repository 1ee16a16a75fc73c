/* sheaf du: the space that directories use, with all that is beneath; a file with several names
 * counts once.
 *
 * Single-threaded. Errors: what cannot be read is reported, and the rest is counted. */
#include <json-c/json.h>
#include <stdlib.h>

#include "commands/commands.h"

enum { OPT_SUMMARY, OPT_HUMAN, OPT_ALL, OPT_JSON };

struct linked { /* a file with several names, once counted */
	struct hnode node;
	uint64_t ino;
};

struct counting {
	struct htab linked;
};

static void put_size(struct cli *c, const char *path, uint64_t bytes)
{
	struct json_object *o;
	char size[32];

	if (c->opt[OPT_JSON]) {
		o = json_object_new_object();
		json_object_object_add(o, "path", cli_json_name(path));
		cli_json_uint(o, "bytes", bytes);
		cli_json_print(o, JSON_C_TO_STRING_PLAIN);
		return;
	}
	if (c->opt[OPT_HUMAN])
		format_size(size, sizeof(size), bytes);
	else
		snprintf(size, sizeof(size), "%llu", (unsigned long long)((bytes + KIB - 1) / KIB));
	printf("%s\t", size);
	cli_put_name(stdout, path);
	putchar('\n');
}

/* True: another name of the file was counted. */
static bool is_counted(struct counting *k, const struct stat *st)
{
	struct linked *l;

	if (S_ISDIR(st->st_mode) || st->st_nlink < 2)
		return false;
	for (struct hnode *n = htab_first(&k->linked, hash_u64(st->st_ino)); n; n = htab_next(n))
		if (container_of(n, struct linked, node)->ino == st->st_ino)
			return true;
	l = calloc(1, sizeof(*l));
	if (l)
		l->ino = st->st_ino;
	if (l && htab_insert(&k->linked, &l->node, hash_u64(l->ino)))
		free(l);
	return false;
}

static uint64_t size_of(struct counting *k, const struct stat *st)
{
	return is_counted(k, st) ? 0 : (uint64_t)st->st_blocks * 512;
}

/* Adds what the directory and all beneath it use. `path` is extended meanwhile. */
static int count_dir(struct cli *c, struct counting *k, char path[CLI_PATH_MAX], bool top,
		     uint64_t *sum)
{
	size_t len = strlen(path);
	struct cli_names names;
	int status = CLI_OK, r = cli_names_inside(c, path, true, &names);

	if (r)
		status = cli_fail(c, path, r);
	for (size_t i = 0; i < names.n && !c->lost; i++) {
		const struct stat *st = names.v[i].st;
		uint64_t one = size_of(k, st);

		if (cli_path_add(path, names.v[i].name))
			status |= cli_fail(c, path, -ENAMETOOLONG);
		else if (S_ISDIR(names.v[i].type))
			status |= count_dir(c, k, path, false, &one);
		else if (c->opt[OPT_ALL] && !c->opt[OPT_SUMMARY])
			put_size(c, path, one);
		path[len] = 0;
		*sum += one;
	}
	cli_names_free(&names);
	if (top || !c->opt[OPT_SUMMARY])
		put_size(c, path, *sum);
	return status;
}

static int count_one(struct cli *c, const char *arg, char *path, void *data)
{
	struct stat st;
	uint64_t sum;
	int r = sheaf_lstat(c->fs, path, &st);

	(void)arg;
	if (r)
		return cli_fail(c, path, r);
	sum = size_of(data, &st);
	if (S_ISDIR(st.st_mode))
		return count_dir(c, data, path, true, &sum);
	put_size(c, path, sum);
	return CLI_OK;
}

static void free_linked(struct hnode *n, void *arg)
{
	(void)arg;
	free(container_of(n, struct linked, node));
}

static int run_du(struct cli *c)
{
	static char root[] = "/", *whole[] = { root };
	struct counting k = { 0 };
	int status;

	if (htab_init(&k.linked))
		return cli_error(c, "out of memory");
	if (!c->n_args) {
		c->args = whole;
		c->n_args = 1;
	}
	status = cli_each_arg(c, 0, count_one, &k);
	htab_walk(&k.linked, free_linked, NULL);
	htab_destroy(&k.linked);
	return status;
}

const struct cli_command cmd_du = {
	.name = "du",
	.usage = "[-ahs] [--json] [PATH...]",
	.summary = "show the space that directories use",
	.run = run_du,
	.max_args = -1,
	.options = { { 's', "summarize", NULL, "one line for each PATH" },
		     { 'h', "human", NULL, "sizes like 1.5 GiB instead of KiB" },
		     { 'a', "all", NULL, "lines for files, too" },
		     { 0, "json", NULL, "for programs: {\"path\": ..., \"bytes\": ...} a line" } },
	.more = "Counts what the servers have allocated, as du(1) does: holes are not counted.\n",
	.examples = "  sheaf du -sh /results\n",
};
