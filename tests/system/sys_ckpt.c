/* Checkpoints of jobs with one and several processes: what was taken comes back, also in another
 * number of processes; damaged ones are skipped; every mistake of a program has a clear message. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt_ranks.h"
#include "base/base.h"
#include "cluster.h"

#define CELLS 60000 /* doubles of the global array */
#define LOCAL 5000

static struct cluster c;

static void begin(void)
{
	const struct cluster_opts o = { .servers = 2, .timeout = 10, .lease = 3 };

	cluster_create(&c, &o);
	cluster_start(&c);
}

static void end(void)
{
	cluster_stop(&c);
}

/* ---- a program with a step counter, a part of a global array, and memory with gaps ---- */

struct program {
	uint64_t step; /* the same in all processes */
	double *part; /* of the global array: rows that take turns */
	uint64_t n_part;
	struct {
		uint32_t value, other;
	} gaps[LOCAL];
	struct sheaf_type *gap, *all, *where;
	struct sheaf *fs;
	struct sheaf_ckpt *ckpt;
	int rank, n;
	bool no_gaps;
};

static void types_of(struct program *p)
{
	struct sheaf_type *cell, *one;
	uint64_t cells = CELLS / (unsigned)p->n;

	CHECK_EQ(sheaf_type_bytes(sizeof(double), &cell), 0);
	CHECK_EQ(sheaf_type_bytes(4, &one), 0);
	CHECK_EQ(sheaf_type_resized(one, 0, 8, &p->gap), 0);
	CHECK_EQ(sheaf_type_bytes(sizeof(p->step), &p->all), 0);
	/* every n-th cell, as a part of the whole */
	CHECK_EQ(sheaf_type_vector(cells, 1, p->n * (int64_t)sizeof(double), cell, &p->where), 0);
	sheaf_type_free(cell);
	CHECK_EQ(sheaf_type_struct(1, (uint64_t[]){ 1 },
				   (int64_t[]){ p->rank * (int64_t)sizeof(double) },
				   (const struct sheaf_type *const[]){ p->where }, &cell),
		 0);
	sheaf_type_free(p->where);
	CHECK_EQ(sheaf_type_resized(cell, 0, CELLS * sizeof(double), &p->where), 0);
	sheaf_type_free(cell);
	sheaf_type_free(one);
	p->n_part = cells;
}

static double value_of(uint64_t step, uint64_t cell)
{
	return (double)(step * 1000000 + cell);
}

static void compute(struct program *p)
{
	p->step++;
	for (uint64_t i = 0; i < p->n_part; i++)
		p->part[i] = value_of(p->step, i * (unsigned)p->n + (unsigned)p->rank);
	for (uint32_t i = 0; i < LOCAL; i++)
		p->gaps[i].value = (uint32_t)p->step * 7 + i + (uint32_t)p->rank;
}

static void check_state(const struct program *p, uint64_t step)
{
	CHECK_EQ(p->step, step);
	for (uint64_t i = 0; i < p->n_part; i++)
		CHECK(p->part[i] == value_of(step, i * (unsigned)p->n + (unsigned)p->rank));
	for (uint32_t i = 0; i < LOCAL && !p->no_gaps; i++) {
		CHECK_EQ(p->gaps[i].value, (uint32_t)step * 7 + i + (uint32_t)p->rank);
		CHECK_EQ(p->gaps[i].other, 0);
	}
}

static void program_begin(struct program *p, const struct sheaf_ckpt_comm *comm, const char *job,
			  const struct sheaf_ckpt_options *o, bool no_gaps)
{
	memset(p, 0, sizeof(*p));
	p->rank = comm ? comm->rank : 0;
	p->n = comm ? comm->n : 1;
	p->no_gaps = no_gaps;
	types_of(p);
	p->part = calloc(p->n_part, sizeof(double));
	p->fs = client_connect(c.conf);
	CHECK_EQ(sheaf_ckpt_open(p->fs, job, comm, o, &p->ckpt), 0);
	CHECK_EQ(sheaf_ckpt_add_global(p->ckpt, "step", &p->step, NULL, 8, p->all), 0);
	CHECK_EQ(sheaf_ckpt_add_global(p->ckpt, "field", p->part, NULL, p->n_part * 8, p->where),
		 0);
	if (!no_gaps)
		CHECK_EQ(sheaf_ckpt_add(p->ckpt, "gaps", p->gaps, p->gap, LOCAL), 0);
}

static void program_end(struct program *p)
{
	CHECK_EQ(sheaf_ckpt_close(p->ckpt), 0);
	sheaf_disconnect(p->fs);
	sheaf_type_free(p->gap);
	sheaf_type_free(p->all);
	sheaf_type_free(p->where);
	free(p->part);
}

struct run {
	const char *job;
	uint32_t flags;
	uint64_t from, steps; /* restores this step; takes so many more */
	bool no_gaps;
	int error; /* of the restore, if it gets no step; 0: -ENOENT */
};

static int job(const struct sheaf_ckpt_comm *comm, void *arg)
{
	const struct run *r = arg;
	const struct sheaf_ckpt_options o = { .size = sizeof(o), .flags = r->flags, .keep = 3 };
	static struct program p;
	uint64_t number = 0;

	program_begin(&p, comm, r->job, &o, r->no_gaps);
	if (r->from) {
		CHECK_EQ(sheaf_ckpt_restore(p.ckpt, &number), 0);
		check_state(&p, r->from);
	} else {
		CHECK_EQ(sheaf_ckpt_restore(p.ckpt, NULL), r->error ? r->error : -ENOENT);
	}
	for (uint64_t i = 0; i < r->steps; i++) {
		compute(&p);
		CHECK_EQ(sheaf_ckpt_take(p.ckpt), 0);
	}
	program_end(&p);
	return 0;
}

static void what_was_taken_comes_back(void)
{
	struct run first = { .job = "one", .steps = 4 }, second = { .job = "one", .from = 4 };

	CHECK_EQ(ckpt_ranks_run(1, job, &first), 0);
	CHECK_EQ(ckpt_ranks_run(1, job, &second), 0);
}

static void several_processes_have_one_checkpoint(void)
{
	static const uint32_t forms[] = { 0, SHEAF_CKPT_ONE_FILE, SHEAF_CKPT_FILE_EACH };
	static const char *const names[] = { "auto", "onefile", "each" };

	for (int i = 0; i < 3; i++) {
		struct run first = { .job = names[i], .flags = forms[i], .steps = 4 };
		struct run second = { .job = names[i], .flags = forms[i], .from = 4, .steps = 1 };

		CHECK_EQ(ckpt_ranks_run(4, job, &first), 0);
		CHECK_EQ(ckpt_ranks_run(4, job, &second), 0);
	}
}

static void another_number_of_processes_restores_global_arrays(void)
{
	static const int counts[] = { 4, 3, 1, 2, 6 };
	struct run r = { .job = "resized", .steps = 1, .no_gaps = true };

	for (int i = 0; i < 5; i++) {
		CHECK_EQ(ckpt_ranks_run(counts[i], job, &r), 0);
		r.from++;
		r.flags = i % 2 ? SHEAF_CKPT_ONE_FILE : SHEAF_CKPT_FILE_EACH;
	}
}

/* ---- damage ---- */

static void damage(const char *path, off_t at)
{
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_file *f;
	char byte;

	CHECK_EQ(sheaf_open(fs, path, O_RDWR, 0, NULL, &f), 0);
	CHECK_EQ(sheaf_pread(f, &byte, 1, at), 1);
	byte ^= 1;
	CHECK_EQ(sheaf_pwrite(f, &byte, 1, at), 1);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
}

static void a_damaged_checkpoint_is_skipped(void)
{
	static const struct {
		const char *file;
		off_t at;
	} kinds[] = { { "image.0", 100 }, /* data of a process */
		      { "image.1", 400000 },
		      { "manifest", 30 },
		      { "image.1", -10 } /* its table */ };
	char name[32], path[128];

	for (int i = 0; i < 4; i++) {
		struct run first = { .job = name, .flags = SHEAF_CKPT_FILE_EACH, .steps = 3 };
		struct run second = { .job = name, .from = 2 };
		struct sheaf *fs;
		struct stat st;
		off_t at = kinds[i].at;

		snprintf(name, sizeof(name), "damaged%d", i);
		CHECK_EQ(ckpt_ranks_run(2, job, &first), 0);
		snprintf(path, sizeof(path), "/ckpt/%s/0000000003/%s", name, kinds[i].file);
		fs = client_connect(c.conf);
		CHECK_EQ(sheaf_stat(fs, path, &st), 0);
		CHECK_EQ(sheaf_ckpt_verify(fs, NULL, name, 3), 0);
		damage(path, at < 0 ? st.st_size + at : MIN(at, st.st_size / 2));
		CHECK_EQ(sheaf_ckpt_verify(fs, NULL, name, 3), -EUCLEAN);
		sheaf_disconnect(fs);
		CHECK_EQ(ckpt_ranks_run(2, job, &second), 0);
	}
}

static void another_number_of_processes_finds_damage_too(void)
{
	struct run first = {
		.job = "damaged", .flags = SHEAF_CKPT_ONE_FILE, .steps = 3, .no_gaps = true
	};
	struct run second = { .job = "damaged", .from = 2, .no_gaps = true };

	CHECK_EQ(ckpt_ranks_run(3, job, &first), 0);
	damage("/ckpt/damaged/0000000003/image", 300000);
	CHECK_EQ(ckpt_ranks_run(2, job, &second), 0);
}

/* Damage that was found after it had been read into memory is not "no checkpoint". */
static void all_damaged_is_an_error(void)
{
	struct run first = { .job = "lost", .flags = SHEAF_CKPT_FILE_EACH, .steps = 2 };
	struct run second = { .job = "lost", .error = -EUCLEAN };

	CHECK_EQ(ckpt_ranks_run(2, job, &first), 0);
	damage("/ckpt/lost/0000000001/image.0", 5);
	damage("/ckpt/lost/0000000002/image.1", 5);
	CHECK_EQ(ckpt_ranks_run(2, job, &second), 0);
}

static void the_only_one_damaged_is_an_error(void)
{
	struct run first = { .job = "single", .flags = SHEAF_CKPT_FILE_EACH, .steps = 1 };
	struct run second = { .job = "single", .error = -EUCLEAN };

	CHECK_EQ(ckpt_ranks_run(1, job, &first), 0);
	damage("/ckpt/single/0000000001/image.0", 5);
	CHECK_EQ(ckpt_ranks_run(1, job, &second), 0);
}

static void a_damaged_manifest_leaves_the_memory(void)
{
	struct run first = { .job = "text", .flags = SHEAF_CKPT_FILE_EACH, .steps = 1 };
	struct run second = { .job = "text" };

	CHECK_EQ(ckpt_ranks_run(1, job, &first), 0);
	damage("/ckpt/text/0000000001/manifest", 30);
	CHECK_EQ(ckpt_ranks_run(1, job, &second), 0);
}

/* ---- mistakes of programs ---- */

static char one[1000], two[1000];

static int restore_with(struct sheaf *fs, const char *job_name, int which)
{
	struct sheaf_type *byte, *spaced;
	struct sheaf_ckpt *k;
	int r;

	CHECK_EQ(sheaf_type_bytes(1, &byte), 0);
	CHECK_EQ(sheaf_type_resized(byte, 0, 2, &spaced), 0);
	CHECK_EQ(sheaf_ckpt_open(fs, job_name, NULL, NULL, &k), 0);
	memset(one, 'x', sizeof(one));
	if (which == 0)
		CHECK_EQ(sheaf_ckpt_add(k, "one", one, NULL, 400), 0);
	else if (which == 1)
		CHECK_EQ(sheaf_ckpt_add(k, "one", one, NULL, 500), 0);
	else if (which == 2)
		CHECK_EQ(sheaf_ckpt_add(k, "one", one, spaced, 400), 0);
	if (which != 3 && which != 4)
		CHECK_EQ(sheaf_ckpt_add(k, "two", two, NULL, 400), 0);
	if (which == 4) {
		CHECK_EQ(sheaf_ckpt_add(k, "one", one, NULL, 400), 0);
		CHECK_EQ(sheaf_ckpt_add(k, "two", two, NULL, 400), 0);
		CHECK_EQ(sheaf_ckpt_add(k, "three", two, NULL, 400), 0);
	}
	r = sheaf_ckpt_restore(k, NULL);
	if (r == -EINVAL)
		CHECK_EQ(one[0], 'x');
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_type_free(byte);
	sheaf_type_free(spaced);
	return r;
}

static void a_restart_with_other_pieces_is_told_which(void)
{
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;

	CHECK_EQ(sheaf_ckpt_open(fs, "pieces", NULL, NULL, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "one", one, NULL, 400), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "two", two, NULL, 400), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "two", two, NULL, 400), -EEXIST);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	CHECK_EQ(restore_with(fs, "pieces", 1), -EINVAL);
	CHECK(strstr(sheaf_ckpt_why(), "piece 'one' has 500 bytes, in the checkpoint 400"));
	CHECK_EQ(restore_with(fs, "pieces", 2), -EINVAL);
	CHECK(strstr(sheaf_ckpt_why(), "piece 'one' has another type"));
	CHECK_EQ(restore_with(fs, "pieces", 3), -EINVAL);
	CHECK(strstr(sheaf_ckpt_why(), "the checkpoint has a piece 'one'"));
	CHECK_EQ(restore_with(fs, "pieces", 4), -EINVAL);
	CHECK(strstr(sheaf_ckpt_why(), "piece 'three' is not in the checkpoint"));
	CHECK_EQ(restore_with(fs, "pieces", 0), 0);
	sheaf_disconnect(fs);
}

static int with_gaps(const struct sheaf_ckpt_comm *comm, void *arg)
{
	static struct program p;
	const char *text = arg;

	program_begin(&p, comm, "fixed", NULL, false);
	CHECK_EQ(sheaf_ckpt_restore(p.ckpt, NULL), -EINVAL);
	CHECK(strstr(sheaf_ckpt_why(), text));
	program_end(&p);
	return 0;
}

static void another_number_of_processes_needs_global_pieces(void)
{
	struct run first = { .job = "fixed", .steps = 1 };

	CHECK_EQ(ckpt_ranks_run(2, job, &first), 0);
	CHECK_EQ(ckpt_ranks_run(3, with_gaps,
				(void *)(uintptr_t) "piece 'gaps' is no part of a global"),
		 0);
}

static int other_names(const struct sheaf_ckpt_comm *comm, void *arg)
{
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;

	(void)arg;
	CHECK_EQ(sheaf_ckpt_open(fs, "names", comm, NULL, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, comm->rank == 1 ? "b" : "a", one, NULL, 10), 0);
	CHECK_EQ(sheaf_ckpt_take(k), -EINVAL);
	CHECK(strstr(sheaf_ckpt_why(), "process 1 registered other pieces"));
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
	return 0;
}

static void processes_with_different_pieces_are_told(void)
{
	CHECK_EQ(ckpt_ranks_run(3, other_names, NULL), 0);
}

static void a_name_is_for_one_job_at_a_time(void)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o), .timeout_ms = 20000 };
	struct sheaf *fs = client_connect(c.conf), *other = client_connect(c.conf);
	struct sheaf_ckpt *k, *l;

	CHECK_EQ(sheaf_ckpt_open(fs, "twice", NULL, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_open(other, "twice", NULL, &o, &l), -EBUSY);
	CHECK(strstr(sheaf_ckpt_why(), "a job 'twice' is running: process"));
	CHECK_EQ(sheaf_ckpt_open(fs, "twice", NULL, &o, &l), -EBUSY); /* one connection */
	CHECK_EQ(sheaf_ckpt_open(other, "thrice", NULL, &o, &l), 0);
	CHECK_EQ(sheaf_ckpt_close(l), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	CHECK_EQ(sheaf_ckpt_open(other, "twice", NULL, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	CHECK_EQ(sheaf_ckpt_open(other, "a/b", NULL, &o, &k), -EINVAL);
	CHECK_EQ(sheaf_ckpt_open(other, "..", NULL, &o, &k), -EINVAL);
	sheaf_disconnect(other);
	sheaf_disconnect(fs);
}

/* What a process that has died left in the lock file of "reused": this process has its number. */
static struct sheaf_file *hold_lock(struct sheaf *fs)
{
	const struct sheaf_lock l = { .size = sizeof(l), .type = F_WRLCK, .owner = 1 };
	char host[256] = "", text[320];
	struct sheaf_file *f;
	int n;

	gethostname(host, sizeof(host) - 1);
	n = snprintf(text, sizeof(text), "%s %d 1\n", host, (int)getpid());
	CHECK_EQ(sheaf_open(fs, "/ckpt/reused/lock", O_RDWR, 0, NULL, &f), 0);
	CHECK_EQ(sheaf_ftruncate(f, 0), 0);
	CHECK_EQ(sheaf_pwrite(f, text, (size_t)n, 0), n);
	CHECK_EQ(sheaf_lock(f, &l, 0), 0);
	return f;
}

static void *let_go(void *f)
{
	pause_ms(500);
	CHECK_EQ(sheaf_close(f), 0);
	return NULL;
}

static void a_lock_of_a_former_process_of_this_number_is_waited_for(void)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o), .timeout_ms = 20000 };
	struct sheaf *fs = client_connect(c.conf), *other = client_connect(c.conf);
	struct sheaf_ckpt *k;
	pthread_t thread;

	CHECK_EQ(sheaf_ckpt_open(fs, "reused", NULL, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	CHECK_EQ(pthread_create(&thread, NULL, let_go, hold_lock(other)), 0);
	CHECK_EQ(sheaf_ckpt_open(fs, "reused", NULL, &o, &k), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(other);
	sheaf_disconnect(fs);
}

/* ---- processes that do not come ---- */

static int comes_late(const struct sheaf_ckpt_comm *comm, void *arg)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o), .timeout_ms = 1000 };
	int late = *(const int *)arg;
	char text[64];
	static struct program p;

	program_begin(&p, comm, "late", &o, false);
	compute(&p);
	CHECK_EQ(sheaf_ckpt_take(p.ckpt), 0);
	compute(&p);
	if (comm->rank == late)
		pause_ms(patient(6000));
	CHECK_EQ(sheaf_ckpt_take(p.ckpt), -ETIMEDOUT);
	snprintf(text, sizeof(text), late ? "process %d did not come" : "did not come", late);
	CHECK(strstr(sheaf_ckpt_why(), text));
	if (comm->rank != late)
		pause_ms(patient(6000)); /* wait for it in another way */
	CHECK_EQ(sheaf_ckpt_take(p.ckpt), 0);
	program_end(&p);
	return 0;
}

static void a_process_that_does_not_come_is_named(void)
{
	for (int late = 0; late < 3; late += 2) {
		struct run again = { .job = "late", .from = 2 };

		CHECK_EQ(ckpt_ranks_run(3, comes_late, &late), 0);
		CHECK_EQ(ckpt_ranks_run(3, job, &again), 0);
	}
}

/* ---- directories of other users ---- */

static void directories_of_other_users_are_refused(void)
{
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;

	CHECK_EQ(sheaf_ckpt_open(fs, "owned", NULL, NULL, &k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	CHECK_EQ(sheaf_chmod(fs, "/ckpt/owned", 0707), 0);
	CHECK_EQ(sheaf_ckpt_open(fs, "owned", NULL, NULL, &k), -EPERM);
	CHECK(strstr(sheaf_ckpt_why(), "sheaf chmod o-w /ckpt/owned"));
	CHECK_EQ(sheaf_chmod(fs, "/ckpt/owned", 0770), 0);
	CHECK_EQ(sheaf_ckpt_open(fs, "owned", NULL, NULL, &k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	if (geteuid() || sheaf_chown(fs, "/ckpt/owned", 4711, 4711)) {
		puts("    left out: this user cannot give directories away");
	} else {
		CHECK_EQ(sheaf_ckpt_open(fs, "owned", NULL, NULL, &k), -EPERM);
		CHECK(strstr(sheaf_ckpt_why(), "belongs to user 4711"));
	}
	sheaf_disconnect(fs);
}

/* ---- files of a directory ---- */

static void put_file(const char *dir, const char *name, char fill, size_t n)
{
	char path[CLUSTER_PATH + 16];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	CHECK(f);
	for (size_t i = 0; i < n; i++)
		putc((char)(fill + (char)(i % 7)), f);
	CHECK_EQ(fclose(f), 0);
}

static void compare_file(const char *dir, const char *name, char fill, size_t n)
{
	char path[CLUSTER_PATH + 16];
	size_t i = 0;
	FILE *f;
	int ch;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	CHECK(f);
	while ((ch = getc(f)) != EOF) {
		CHECK_EQ((char)ch, (char)(fill + (char)(i % 7)));
		i++;
	}
	CHECK_EQ(i, n);
	fclose(f);
	unlink(path);
}

static void files_come_back_and_damaged_ones_are_skipped(void)
{
	char from[CLUSTER_PATH], to[CLUSTER_PATH], path[CLUSTER_PATH + 16];
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k;
	struct sheaf_file *f;
	uint64_t number;

	snprintf(from, sizeof(from), "%s/files-XXXXXX", c.dir);
	snprintf(to, sizeof(to), "%s/back-XXXXXX", c.dir);
	CHECK(mkdtemp(from) && mkdtemp(to));
	CHECK_EQ(sheaf_ckpt_open(fs, "files", NULL, NULL, &k), 0);
	CHECK_EQ(sheaf_ckpt_load_dir(k, to, &number), -ENOENT);
	put_file(from, "small", 'a', 10);
	put_file(from, "empty", 'a', 0);
	put_file(from, "large", 'c', 700000);
	CHECK_EQ(sheaf_ckpt_save_dir(k, from), 0);
	put_file(from, "small", 'd', 5000);
	CHECK_EQ(sheaf_ckpt_save_dir(k, from), 0);
	CHECK_EQ(sheaf_ckpt_load_dir(k, to, &number), 0);
	CHECK_EQ(number, 2);
	compare_file(to, "small", 'd', 5000);
	compare_file(to, "empty", 'a', 0);
	compare_file(to, "large", 'c', 700000);
	CHECK_EQ(sheaf_open(fs, "/ckpt/files/0000000002/image", O_WRONLY, 0, NULL, &f) &&
			 sheaf_open(fs, "/ckpt/files/0000000002/image.0", O_WRONLY, 0, NULL, &f),
		 0);
	CHECK_EQ(sheaf_pwrite(f, "!", 1, 3000), 1);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_ckpt_load_dir(k, to, &number), 0);
	CHECK_EQ(number, 1);
	compare_file(to, "small", 'a', 10);
	compare_file(to, "empty", 'a', 0);
	compare_file(to, "large", 'c', 700000);
	CHECK_EQ(rmdir(to), 0); /* nothing else is there */
	CHECK_EQ(sheaf_ckpt_add(k, "piece", path, NULL, 1), 0);
	CHECK_EQ(sheaf_ckpt_save_dir(k, from), -EINVAL);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", from,
			 (const char *const[]){ "small", "empty", "large" }[i]);
		unlink(path);
	}
	CHECK_EQ(rmdir(from), 0);
	sheaf_disconnect(fs);
}

/* ---- keeping and removing ---- */

static void the_last_ones_are_kept(void)
{
	struct run first = { .job = "kept", .steps = 6 }; /* keeps 3 */
	struct sheaf_ckpt_info info[8];
	struct sheaf_ckpt_piece piece[8];
	struct sheaf *fs;

	CHECK_EQ(ckpt_ranks_run(2, job, &first), 0);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_ckpt_list(fs, NULL, "kept", info, 8), 3);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(info[i].number, 6 - (unsigned)i);
		CHECK_EQ(info[i].complete, 1);
		CHECK_EQ(info[i].processes, 2);
		CHECK_EQ(info[i].bytes, 2 * (8 + LOCAL * 4) + CELLS * 8);
	}
	CHECK_EQ(sheaf_ckpt_pieces(fs, NULL, "kept", 6, 1, piece, 8), 3);
	CHECK_STR(piece[1].name, "field");
	CHECK_EQ(piece[1].global, CELLS * 8);
	CHECK_EQ(sheaf_ckpt_keep(fs, NULL, "kept", 1), 2);
	CHECK_EQ(sheaf_ckpt_list(fs, NULL, "kept", info, 8), 1);
	sheaf_disconnect(fs);
	first.from = 6;
	CHECK_EQ(ckpt_ranks_run(2, job, &first), 0);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_ckpt_list(fs, NULL, "kept", info, 8), 1);
	CHECK_EQ(sheaf_ckpt_remove(fs, NULL, "kept", 11), -ENOENT);
	CHECK_EQ(sheaf_ckpt_remove(fs, NULL, "kept", info[0].number), 0);
	CHECK_EQ(sheaf_ckpt_list(fs, NULL, "kept", info, 8), 0);
	CHECK_EQ(sheaf_ckpt_list(fs, NULL, "nothing", info, 8), -ENOENT);
	sheaf_disconnect(fs);
}

/* A job that was killed while it wrote this checkpoint. */
static void leave_incomplete(struct sheaf *fs, const char *dir)
{
	struct sheaf_file *f;
	char path[128];

	CHECK_EQ(sheaf_mkdir(fs, dir, 0700), 0);
	snprintf(path, sizeof(path), "%s/image.0", dir);
	CHECK_EQ(sheaf_open(fs, path, O_WRONLY | O_CREAT, 0600, NULL, &f), 0);
	CHECK_EQ(sheaf_pwrite(f, "x", 1, 0), 1);
	CHECK_EQ(sheaf_close(f), 0);
}

static void what_a_killed_job_left_is_removed_and_its_number_is_not_used(void)
{
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt_info info[8];
	struct sheaf_ckpt *k;
	uint64_t step = 7;
	struct stat st;

	CHECK_EQ(sheaf_ckpt_open(fs, "left", NULL, NULL, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "step", &step, NULL, sizeof(step)), 0);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	leave_incomplete(fs, "/ckpt/left/0000000002");
	CHECK_EQ(sheaf_ckpt_remove(fs, NULL, "left", 2), -EBUSY);
	CHECK(strstr(sheaf_ckpt_why(), "it may be writing it"));
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	CHECK_EQ(sheaf_ckpt_open(fs, "left", NULL, NULL, &k), 0);
	CHECK_EQ(sheaf_stat(fs, "/ckpt/left/0000000002", &st), -ENOENT);
	CHECK_EQ(sheaf_ckpt_add(k, "step", &step, NULL, sizeof(step)), 0);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	CHECK_EQ(sheaf_ckpt_list(fs, NULL, "left", info, 8), 2);
	CHECK_EQ(info[0].number, 3);
	CHECK_EQ(sheaf_ckpt_remove(fs, NULL, "left", 3), 0);
	CHECK_EQ(sheaf_ckpt_open(fs, "left", NULL, NULL, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "step", &step, NULL, sizeof(step)), 0);
	CHECK_EQ(sheaf_ckpt_take(k), 0);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	CHECK_EQ(sheaf_ckpt_list(fs, NULL, "left", info, 8), 2);
	CHECK_EQ(info[0].number, 4);
	sheaf_disconnect(fs);
}

SYS_MAIN(NULL, begin, end, TEST(what_was_taken_comes_back),
	 TEST(several_processes_have_one_checkpoint),
	 TEST(another_number_of_processes_restores_global_arrays),
	 TEST(a_damaged_checkpoint_is_skipped), TEST(another_number_of_processes_finds_damage_too),
	 TEST(all_damaged_is_an_error), TEST(the_only_one_damaged_is_an_error),
	 TEST(a_damaged_manifest_leaves_the_memory),
	 TEST(a_restart_with_other_pieces_is_told_which),
	 TEST(another_number_of_processes_needs_global_pieces),
	 TEST(processes_with_different_pieces_are_told), TEST(a_name_is_for_one_job_at_a_time),
	 TEST(a_lock_of_a_former_process_of_this_number_is_waited_for),
	 TEST(what_a_killed_job_left_is_removed_and_its_number_is_not_used),
	 TEST(directories_of_other_users_are_refused), TEST(a_process_that_does_not_come_is_named),
	 TEST(files_come_back_and_damaged_ones_are_skipped), TEST(the_last_ones_are_kept))
