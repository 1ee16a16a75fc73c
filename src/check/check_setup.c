/* Setup and cleanup of `sheaf check` and `sheaf find --damaged`: servers, memory, paths.
 * Threads: one. See check_impl.h. */
#include <stdlib.h>
#include <unistd.h>

#include "check/check_impl.h"

/* ---- paths ---- */

struct wanted {
	uint64_t ino;
	char name[256];
};

static int match_name(struct check *k, const struct sheaf_row *r, void *arg)
{
	struct wanted *w = arg;

	(void)k;
	if (r->to.ino != w->ino)
		return 0;
	memcpy(w->name, r->name, sizeof(w->name));
	return 1;
}

/* The path of a directory, as far as it is known. */
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

int check_path_of(struct check *k, const struct note *at, char out[CLI_PATH_MAX])
{
	char dir[CLI_PATH_MAX];
	int r = dir_path(k, at->h.ino, dir);

	snprintf(out, CLI_PATH_MAX, "%.3800s/%.256s", dir, at->name);
	return r;
}

/* ---- servers and rounds ---- */

int check_round(struct check *k)
{
	int r;

	k->busy = k->leftover = k->skipped = 0;
	memset(k->rows, 0, sizeof(k->rows));
	memset(k->highest, 0, sizeof(k->highest));
	list_init(&k->undecided);
	k->findings = NULL;
	k->findings_end = &k->findings;
	arena_reset(&k->keep);
	arena_reset(&k->layouts);
	if (htab_init(&k->suspects) || htab_init(&k->by_layout))
		return cli_error(k->c, "out of memory");
	r = check_pass(k);
	return r ? r : check_confirm(k);
}

/* Includes servers that were added after this cluster file was written: a reference to an unknown
 * server would look wrong. Objects of a server that is down would look lost, so a check needs all
 * servers; a search for damage can skip data servers that are down. */
static int find_servers(struct check *k)
{
	int n;

	k->servers = calloc(SHEAF_MAX_SERVERS, sizeof(*k->servers));
	if (!k->servers)
		return cli_error(k->c, "out of memory");
	n = sheaf_map(k->fs, CLI_STATUS_MS, k->servers, SHEAF_MAX_SERVERS);
	k->n_servers = sheaf_server_count(k->fs);
	if (n < 0 || n > k->n_servers)
		return cli_fail(k->c, "the servers' map", n < 0 ? n : -EBADMSG);
	cli_servers_ask(k->fs, k->servers, NULL, k->n_servers);
	for (int i = 0; i < k->n_servers; i++) {
		k->down[i] = !k->servers[i].up;
		if (k->down[i] && !(k->only_damage && k->servers[i].roles == ROLE_DATA))
			return cli_error(k->c,
					 "%s (%s) does not answer; %s, 'sheaf start' "
					 "starts those of this host",
					 k->servers[i].name, k->servers[i].address,
					 k->only_damage ? "this search needs all metadata servers" :
							  "a check needs all servers");
	}
	return CLI_OK;
}

int check_open(struct check *k, struct cli *c)
{
	int status = cli_connect(c);

	k->c = c;
	arena_init(&k->arena, 0);
	arena_init(&k->keep, 0);
	arena_init(&k->layouts, 0);
	if (status)
		return status;
	cli_catch_signals();
	k->fs = c->fs;
	k->page = calloc(SHEAF_SCAN_MAX, sizeof(*k->page));
	k->progress.started = time_now();
	return k->page ? find_servers(k) : cli_error(c, "out of memory");
}

void check_close(struct check *k)
{
	arena_destroy(&k->arena);
	arena_destroy(&k->keep);
	arena_destroy(&k->layouts);
	free(k->page);
	free(k->servers);
}
