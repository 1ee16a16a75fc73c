/* The storages of `sheaf bench checkpoint`, and the runs of its program, bench/ckpt, on them.
 *
 * Processes: mpiexec with its ranks, one run at a time; further temporary servers, a mount, an NFS
 * server, and a proxy that limits the rate to the servers. bench_ckpt_end() ends all of them, also
 * after a failure or a signal. Errors: a message quotes the last line of programs.log. */
#include <arpa/inet.h>
#include <unistd.h>

#include "bench/bench_checkpoint.h"
#include "bench/bench_nfs.h"

#define PROGRAM "blocktri"

const char *const bench_ckpt_names[BENCH_CKPT_STORAGES] = {
	[BENCH_CKPT_NONE] = "none",	  [BENCH_CKPT_SHEAF] = "sheaf",
	[BENCH_CKPT_SHEAF1] = "1 server", [BENCH_CKPT_SHEAF2] = "2 servers",
	[BENCH_CKPT_SLOW] = "slow sheaf", [BENCH_CKPT_MOUNT] = "mount",
	[BENCH_CKPT_LOCAL] = "local",	  [BENCH_CKPT_NFS] = "nfs",
	[BENCH_CKPT_GANESHA] = "ganesha",
};

static struct storage {
	bool is_there;
	char conf[CLI_PATH_MAX]; /* cluster file, or "" */
	char to[CLI_PATH_MAX]; /* as the program takes it */
} storages[BENCH_CKPT_STORAGES];
static struct bench_place others[2]; /* with one and two servers */
static const char *mpi; /* NULL: one process without it */
static char program[CLI_PATH_MAX];
static unsigned jobs; /* each has a name of its own */

bool bench_ckpt_there(enum bench_ckpt_storage s)
{
	return storages[s].is_there;
}

int bench_ckpt_most(void)
{
	return mpi ? BENCH_MAX_CLIENTS : 1;
}

/* ---- what is installed ---- */

const char *bench_ckpt_missing(struct bench *b)
{
	if (!b->dir)
		return "it needs --dir, for servers of its own";
	mpi = bench_mpi_with(b, PROGRAM, program);
	if (mpi)
		return NULL;
	if (b->mpi)
		return "mpiexec or bench/ckpt of the MPI that --mpi names is not there";
	cli_find_program("../bench/" PROGRAM, program);
	return access(program, X_OK) == 0 ?
		       NULL :
		       "its program, bench/ckpt, is not there: it comes with a build from source";
}

/* ---- storages ---- */

static void left_out(enum bench_ckpt_storage s, const char *why)
{
	fprintf(stderr, "sheaf bench: checkpoint: no rows of '%s': %s\n", bench_ckpt_names[s], why);
}

static void add(enum bench_ckpt_storage s, const char *conf, const char *to)
{
	struct storage *k = &storages[s];

	k->is_there = true;
	snprintf(k->conf, sizeof(k->conf), "%s", conf);
	snprintf(k->to, sizeof(k->to), "%s", to);
}

/* The clients of the benchmark do without the proxy. */
static int open_slow(struct bench *b)
{
	int r;

	if (b->hosts.n) {
		left_out(BENCH_CKPT_SLOW, "hosts have no limit beside that of --rate");
		return 0;
	}
	r = bench_proxy_open(b);
	if (!r)
		add(BENCH_CKPT_SLOW, b->place.client_conf, "sheaf");
	memcpy(b->place.client_conf, b->place.conf_path, sizeof(b->place.client_conf));
	return r;
}

int bench_ckpt_choose(struct bench *b)
{
	int r;

	memset(storages, 0, sizeof(storages));
	r = bench_nfs_choose(b);
	return r ? r : open_slow(b);
}

static int open_others(struct bench *b)
{
	static const enum bench_ckpt_storage kinds[] = { BENCH_CKPT_SHEAF1, BENCH_CKPT_SHEAF2 };
	int r = 0;

	for (int i = 0; !r && i < 2; i++) {
		if (b->hosts.n) {
			left_out(kinds[i], "with --hosts there are those of --servers only");
			continue;
		}
		if (b->servers <= i + 1)
			continue;
		r = bench_place_add(b, &others[i], (uint32_t)i + 1);
		if (!r)
			add(kinds[i], others[i].conf_path, "sheaf");
	}
	return r;
}

static void add_nfs(enum bench_ckpt_storage storage, int side)
{
	const struct bench_nfs_side *s = &bench_nfs_sides[side];
	char to[CLI_PATH_MAX], host[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &s->nfs.sin_addr, host, sizeof(host));
	snprintf(to, sizeof(to), "nfs:%s:%u:%u%s", host, ntohs(s->nfs.sin_port),
		 ntohs(s->mount.sin_port), s->path);
	if (s->is_there)
		add(storage, "", to);
}

/* With NFS-Ganesha this mounts Sheaf, too. */
static int open_nfs(struct bench *b)
{
	const char *why = bench_nfs_other_missing(b);
	int r = bench_nfs_start(b);

	if (r)
		return r;
	if (why)
		left_out(BENCH_CKPT_GANESHA, why);
	add_nfs(BENCH_CKPT_NFS, BENCH_NFS_GATEWAY);
	add_nfs(BENCH_CKPT_GANESHA, BENCH_NFS_LOCAL);
	return 0;
}

static int open_mount(struct bench *b)
{
	const char *why = bench_mount_missing(b);
	int r;

	if (why) {
		left_out(BENCH_CKPT_MOUNT, why);
		return 0;
	}
	r = b->sides[BENCH_SHEAF].pid > 0 ? 0 : bench_mount_open(b);
	if (!r)
		add(BENCH_CKPT_MOUNT, "", b->sides[BENCH_SHEAF].dir);
	return r;
}

int bench_ckpt_open(struct bench *b)
{
	char local[CLI_PATH_MAX];
	int r;

	if (mpi)
		b->mpi = mpi;
	add(BENCH_CKPT_NONE, "", "none");
	add(BENCH_CKPT_SHEAF, b->place.conf_path, "sheaf");
	snprintf(local, sizeof(local), "%.1000s/local-checkpoints", b->place.dir);
	add(BENCH_CKPT_LOCAL, "", local);
	r = bench_make_dir(b, local);
	if (!r)
		r = open_others(b);
	if (!r)
		r = open_nfs(b);
	return r ? r : open_mount(b);
}

void bench_ckpt_end(struct bench *b)
{
	bench_nfs_end(b); /* and the mount */
	for (int i = 0; i < 2; i++)
		bench_place_remove(b, &others[i]);
}

/* ---- a run ---- */

static void add_number(struct bench_words *w, const char *option, int value)
{
	bench_words_add(w, option);
	bench_words_text(w, "%d", value);
}

static void put_words(struct bench *b, const struct bench_ckpt_run *run, struct bench_words *w)
{
	const struct storage *s = &storages[run->storage];

	if (mpi)
		bench_mpi_launch(b, w, run->processes, "");
	else
		bench_words_add(w, "env");
	if (s->conf[0])
		bench_words_text(w, "SHEAF_CONF=%s", s->conf);
	bench_words_add(w, program);
	add_number(w, "--grid", run->grid);
	add_number(w, "--steps", run->steps);
	add_number(w, "--every", run->every);
	add_number(w, "--compare", run->compare);
	add_number(w, "--active", run->active ? run->active : 100);
	add_number(w, "--async", run->async);
	add_number(w, "--incremental", run->incremental);
	bench_words_add(w, "--remove");
	bench_words_add(w, "1");
	bench_words_text(w, "bench%u", ++jobs);
	bench_words_add(w, s->to);
}

static double number_of(struct json_object *o, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_double(v) : 0;
}

static int take_result(struct bench *b, struct bench_ckpt_result *out)
{
	char path[CLI_PATH_MAX];
	struct json_object *o;

	snprintf(path, sizeof(path), "%s/checkpoint.json", b->place.dir);
	o = json_object_from_file(path);
	if (!o || number_of(o, "bytes") <= 0) {
		json_object_put(o);
		return bench_program_fail(b, "the program printed no result", -EIO);
	}
	*out = (struct bench_ckpt_result){
		.image = number_of(o, "bytes"),
		.total_s = number_of(o, "total_s"),
		.blocked_s = number_of(o, "blocked_s"),
		.checkpoints = number_of(o, "checkpoints"),
		.take_s = bench_json_median(o, "take_s", 0),
		.take_bytes = bench_json_median(o, "take_bytes", 0),
		.later_s = bench_json_median(o, "take_s", 1),
		.later_bytes = bench_json_median(o, "take_bytes", 1),
		.raw_write_s = bench_json_median(o, "raw_write_s", 0),
		.restore_s = bench_json_median(o, "restore_s", 0),
		.raw_read_s = bench_json_median(o, "raw_read_s", 0),
		.overlapped = number_of(o, "overlapped") > 0,
		.depend = (int)number_of(o, "depend"),
	};
	json_object_put(o);
	return 0;
}

int bench_ckpt_run(struct bench *b, const struct bench_ckpt_run *run, struct bench_ckpt_result *out)
{
	struct bench_words *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return cli_error(b->c, "out of memory"), -ENOMEM;
	put_words(b, run, w);
	r = bench_words_run(b, w, "checkpoint", PROGRAM);
	if (!r)
		r = take_result(b, out);
	free(w);
	return r;
}
