/* The directory of a job: DIR/JOB/NUMBER/ has the images and the manifest of a checkpoint. Without
 * a manifest it is not complete.
 *
 * Threads: any. Errors: those of libsheaf, explained; -EUCLEAN: damaged. */
#include <fcntl.h>
#include <inttypes.h>

#include "ckpt/ckpt_impl.h"

#define MANIFEST "manifest"
#define MANIFEST_MOST (512 * MIB)
#define TRIES 3
#define KEEP "user.sheaf.ckpt.keep"
#define NEXT "user.sheaf.ckpt.next"

int ckpt_store_init(struct ckpt_store *s, struct sheaf *fs, const char *dir, const char *job)
{
	dir = dir ? dir : CKPT_DIR;
	s->fs = fs;
	if (!job || !*job || *job == '.' || strchr(job, '/') || strlen(job) >= CKPT_JOB_MAX)
		return ckpt_fail(-EINVAL,
				 "'%s' is no name of a job: 1 to %d characters without '/', the "
				 "first one not '.'",
				 job ? job : "", CKPT_JOB_MAX - 1);
	if (*dir != '/' || strlen(dir) + CKPT_JOB_MAX + 2 > sizeof(s->path))
		return ckpt_fail(-EINVAL, "'%s' is no absolute path", dir);
	snprintf(s->job, sizeof(s->job), "%s", job);
	snprintf(s->path, sizeof(s->path), "%s/%s", dir, job);
	return 0;
}

void ckpt_store_path(const struct ckpt_store *s, uint64_t number, const char *name,
		     char out[CKPT_PATH])
{
	snprintf(out, CKPT_PATH, "%s/%010" PRIu64 "%s%s", s->path, number, *name ? "/" : "", name);
}

void ckpt_image_path(const struct ckpt_store *s, uint64_t number, bool one_file, uint32_t rank,
		     char out[CKPT_PATH])
{
	char name[32] = "image";

	if (!one_file)
		snprintf(name, sizeof(name), "image.%u", rank);
	ckpt_store_path(s, number, name, out);
}

static int descending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? 1 : -(x > y);
}

uint64_t ckpt_number_of(const char *name)
{
	uint64_t number = strtoull(name, NULL, 10);
	char text[32];

	snprintf(text, sizeof(text), "%010" PRIu64, number);
	return strcmp(name, text) == 0 ? number : 0;
}

int ckpt_store_numbers(const struct ckpt_store *s, uint64_t **out)
{
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	size_t n = 0, cap = 0;
	int r = sheaf_opendir(s->fs, s->path, &d);

	*out = NULL;
	if (r)
		return r == -ENOENT ?
			       ckpt_fail(r, "there is no job '%s' in %.*s", s->job,
					 (int)(strlen(s->path) - strlen(s->job) - 1), s->path) :
			       ckpt_fail(r, "%s: %s", s->path, sheaf_strerror(r));
	while ((r = sheaf_readdir(d, &e)) > 0) {
		uint64_t number = ckpt_number_of(e.name), *v;

		if (!number)
			continue;
		if (n == cap) {
			cap = cap ? 2 * cap : 16;
			v = realloc(*out, cap * sizeof(*v));
			if (!v) {
				r = -ENOMEM;
				break;
			}
			*out = v;
		}
		(*out)[n++] = number;
	}
	sheaf_closedir(d);
	if (r < 0) {
		free(*out);
		*out = NULL;
		return ckpt_fail(r, "%s: %s", s->path, sheaf_strerror(r));
	}
	if (n)
		qsort(*out, n, sizeof(**out), descending);
	return (int)n;
}

/* ---- small files ---- */

static int read_all(struct sheaf_file *f, const char *path, size_t most, char **text, size_t *len)
{
	struct stat st;
	ssize_t got;
	int r = sheaf_fstat(f, &st);

	if (!r && st.st_size > (off_t)most)
		r = -EUCLEAN;
	if (r)
		return ckpt_fail(r, "%s: %s", path,
				 r == -EUCLEAN ? "too large" : sheaf_strerror(r));
	*text = malloc((size_t)st.st_size + 1);
	if (!*text)
		return ckpt_fail(-ENOMEM, "out of memory");
	got = sheaf_pread(f, *text, (size_t)st.st_size, 0);
	if (got < 0) {
		free(*text);
		return ckpt_fail((int)got, "%s: %s", path, sheaf_strerror((int)got));
	}
	(*text)[got] = '\0';
	*len = (size_t)got;
	return 0;
}

int ckpt_read_file(struct sheaf *fs, const char *path, size_t most, char **text, size_t *len)
{
	struct sheaf_file *f;
	int r = sheaf_open(fs, path, O_RDONLY, 0, NULL, &f);

	if (r)
		return ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	r = read_all(f, path, most, text, len);
	sheaf_close(f);
	return r;
}

/* Data first, then one rename: a reader finds the old file or the new one. */
int ckpt_write_file(struct sheaf *fs, const char *path, const void *text, size_t len)
{
	char tmp[CKPT_PATH + 8];
	struct sheaf_file *f;
	ssize_t put;
	int r, closed;

	snprintf(tmp, sizeof(tmp), "%s.new", path);
	r = sheaf_open(fs, tmp, O_WRONLY | O_CREAT | O_TRUNC, 0600, NULL, &f);
	if (r)
		return ckpt_fail(r, "%s: %s", tmp, sheaf_strerror(r));
	put = sheaf_pwrite(f, text, len, 0);
	r = put < 0 ? (int)put : (size_t)put < len ? -ENOSPC : sheaf_fsync(f);
	closed = sheaf_close(f);
	r = r ? r : closed;
	if (!r)
		r = sheaf_rename(fs, tmp, path);
	if (!r)
		return 0;
	sheaf_unlink(fs, tmp);
	return ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
}

/* ---- checkpoints ---- */

int ckpt_store_manifest(const struct ckpt_store *s, uint64_t number, struct ckpt_manifest *m)
{
	char path[CKPT_PATH], *text;
	size_t len;
	int r;

	memset(m, 0, sizeof(*m));
	ckpt_store_path(s, number, MANIFEST, path);
	r = ckpt_read_file(s->fs, path, MANIFEST_MOST, &text, &len);
	if (r) /* a foreign file is no checkpoint */
		return r == -ENOTDIR ? -ENOENT : r;
	r = ckpt_manifest_parse(text, len, m);
	free(text);
	if (!r && m->number != number) {
		ckpt_manifest_free(m);
		r = ckpt_fail(-EUCLEAN, "its manifest is that of another checkpoint");
	}
	return r;
}

int ckpt_store_commit(const struct ckpt_store *s, const struct ckpt_manifest *m)
{
	char path[CKPT_PATH], *text;
	size_t len;
	int r = ckpt_manifest_text(m, &text, &len);

	if (r)
		return r;
	ckpt_store_path(s, m->number, MANIFEST, path);
	r = -EIO;
	for (int i = 0; i < TRIES && r == -EIO; i++) /* a server that restarted may have lost it */
		r = ckpt_write_file(s->fs, path, text, len);
	free(text);
	return r;
}

/* The manifest goes first: from then on it is not complete. */
int ckpt_store_drop(const struct ckpt_store *s, uint64_t number)
{
	char path[CKPT_PATH], dir[CKPT_PATH];
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	int r;

	ckpt_store_path(s, number, MANIFEST, path);
	r = sheaf_unlink(s->fs, path);
	if (r == -ENOTDIR) /* a foreign file */
		return 0;
	if (r && r != -ENOENT)
		return ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	ckpt_store_path(s, number, "", dir);
	r = sheaf_opendir(s->fs, dir, &d);
	if (r)
		return r == -ENOENT ? 0 : ckpt_fail(r, "%s: %s", dir, sheaf_strerror(r));
	while (sheaf_readdir(d, &e) > 0) {
		if (strcmp(e.name, ".") == 0 || strcmp(e.name, "..") == 0)
			continue;
		ckpt_store_path(s, number, e.name, path);
		sheaf_unlink(s->fs, path);
	}
	sheaf_closedir(d);
	r = sheaf_rmdir(s->fs, dir);
	return r && r != -ENOENT ? ckpt_fail(r, "%s: %s", dir, sheaf_strerror(r)) : 0;
}

/* A number that is kept with the job; 0: not set, or not readable now. */
static uint64_t kept_number(const struct ckpt_store *s, const char *name)
{
	char text[24] = "";
	ssize_t n = sheaf_getxattr(s->fs, s->path, name, text, sizeof(text) - 1);

	return n > 0 ? strtoull(text, NULL, 10) : 0;
}

static int keep_number(const struct ckpt_store *s, const char *name, uint64_t number)
{
	char text[24];
	int r;

	snprintf(text, sizeof(text), "%" PRIu64, number);
	r = sheaf_setxattr(s->fs, s->path, name, text, strlen(text), 0);
	return r ? ckpt_fail(r, "%s: %s", s->path, sheaf_strerror(r)) : 0;
}

uint32_t ckpt_store_kept(const struct ckpt_store *s)
{
	return (uint32_t)kept_number(s, KEEP);
}

uint64_t ckpt_store_next(const struct ckpt_store *s, const uint64_t *numbers, int n)
{
	uint64_t next = kept_number(s, NEXT);

	return MAX(next, n ? numbers[0] + 1 : 1);
}

int ckpt_store_reserve(const struct ckpt_store *s, uint64_t number)
{
	return keep_number(s, NEXT, number + 1);
}

int ckpt_store_sweep(const struct ckpt_store *s, const uint64_t *numbers, int n)
{
	int r = -ENOENT;

	for (int i = 0; i < n && (r == -ENOENT || r == -EUCLEAN); i++) {
		struct ckpt_manifest m;

		r = ckpt_store_manifest(s, numbers[i], &m);
		ckpt_manifest_free(&m);
		if (r == -ENOENT && ckpt_store_drop(s, numbers[i]))
			return -EIO;
	}
	return 0;
}

int ckpt_store_chain(const struct ckpt_store *s, uint64_t number)
{
	int r = 0;

	for (int depth = 0; !r && number; depth++) {
		struct ckpt_manifest m;

		if (depth > CKPT_CHAIN_MAX)
			return ckpt_fail(-EUCLEAN, "it depends on more than %d others",
					 CKPT_CHAIN_MAX);
		r = ckpt_store_manifest(s, number, &m);
		number = m.since;
		ckpt_manifest_free(&m);
	}
	return r;
}

/* Does one that stays depend on v[i], which is older? */
static bool is_needed(const struct ckpt_known *v, int i)
{
	for (int k = 0; k < i; k++)
		if (v[k].stays && v[k].since == v[i].number)
			return true;
	return false;
}

static bool has_base(const struct ckpt_known *v, int n, int i)
{
	for (int k = i + 1; k < n; k++)
		if (v[k].number == v[i].since)
			return v[k].is_complete;
	return !v[i].since;
}

void ckpt_known_choose(struct ckpt_known *v, int n, uint32_t keep)
{
	uint32_t complete = 0;

	for (int i = n - 1; i >= 0; i--)
		v[i].is_complete = v[i].is_complete && has_base(v, n, i);
	for (int i = 0; i < n; i++)
		v[i].stays = v[i].is_complete ? complete++ < keep || is_needed(v, i) : !complete;
}

/* Of all checkpoints, or an error: nothing is known of one that cannot be read now. */
static int know(const struct ckpt_store *s, const uint64_t *numbers, int n, struct ckpt_known *v)
{
	for (int i = 0; i < n; i++) {
		struct ckpt_manifest m;
		int r = ckpt_store_manifest(s, numbers[i], &m);

		v[i] = (struct ckpt_known){ .number = numbers[i],
					    .since = m.since,
					    .is_complete = !r };
		ckpt_manifest_free(&m);
		if (r && !ckpt_is_damage(r))
			return r;
	}
	return 0;
}

int ckpt_store_prune(const struct ckpt_store *s, uint32_t keep)
{
	uint64_t *numbers;
	struct ckpt_known *v;
	int n = ckpt_store_numbers(s, &numbers), r, removed = 0;

	if (n <= 0)
		return n;
	v = calloc((size_t)n, sizeof(*v));
	r = v ? know(s, numbers, n, v) : ckpt_fail(-ENOMEM, "out of memory");
	if (!r)
		ckpt_known_choose(v, n, keep);
	for (int i = 0; !r && i < n; i++)
		if (!v[i].stays) {
			r = ckpt_store_drop(s, v[i].number);
			removed += !r && v[i].is_complete;
		}
	free(numbers);
	free(v);
	return r ? r : removed;
}

int ckpt_store_table(const struct ckpt_store *s, const struct ckpt_manifest *m, uint32_t rank,
		     struct ckpt_table *t)
{
	const struct ckpt_image *v = &m->images[rank];
	char path[CKPT_PATH];
	struct sheaf_file *f;
	struct stat st;
	ssize_t got = 0;
	void *buf = NULL;
	int r;

	memset(t, 0, sizeof(*t));
	ckpt_image_path(s, m->number, m->one_file, rank, path);
	r = sheaf_open(s->fs, path, O_RDONLY, 0, NULL, &f);
	if (r)
		return ckpt_fail(r == -ENOENT ? -EUCLEAN : r, "%s: %s", path, sheaf_strerror(r));
	r = sheaf_fstat(f, &st);
	if (!r && (uint64_t)st.st_size < v->base + v->data + v->table) {
		sheaf_close(f);
		return ckpt_fail(-EUCLEAN, "%s: the image is cut off", path);
	}
	if (!r)
		buf = malloc(v->table);
	if (buf)
		got = sheaf_pread(f, buf, v->table, (off_t)(v->base + v->data));
	sheaf_close(f);
	if (!buf || got < 0) {
		r = r ? r : buf ? (int)got : -ENOMEM;
		r = ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	} else if ((uint64_t)got < v->table || crc32c(0, buf, v->table) != v->table_sum) {
		r = ckpt_fail(-EUCLEAN, "%s: the table is damaged", path);
	} else {
		r = ckpt_table_decode(buf, v->table, t);
		if (!r && (t->rank != rank || t->n != m->n || t->number != m->number ||
			   t->data != v->data)) {
			ckpt_table_free(t);
			r = ckpt_fail(-EUCLEAN, "%s: the table is of another checkpoint", path);
		}
	}
	free(buf);
	return r;
}

/* ---- for any program ---- */

int sheaf_ckpt_list(struct sheaf *fs, const char *dir, const char *job, struct sheaf_ckpt_info *out,
		    int max)
{
	struct ckpt_store s;
	uint64_t *numbers;
	int n = ckpt_store_init(&s, fs, dir, job);

	if (!n)
		n = ckpt_store_numbers(&s, &numbers);
	if (n < 0)
		return n;
	for (int i = 0; i < n && i < max; i++) {
		struct sheaf_ckpt_info *v = &out[i];
		struct ckpt_manifest m;
		int r = ckpt_store_manifest(&s, numbers[i], &m);

		*v = (struct sheaf_ckpt_info){ .size = sizeof(*v), .number = numbers[i] };
		if (!r)
			r = ckpt_store_chain(&s, m.since);
		if (r) {
			ckpt_manifest_free(&m);
			continue;
		}
		v->complete = 1;
		v->processes = m.n;
		v->since = m.since;
		v->taken = m.taken;
		v->seconds = m.seconds;
		v->one_file = m.one_file;
		for (uint32_t k = 0; k < m.n; k++)
			v->bytes += m.images[k].data;
		ckpt_manifest_free(&m);
	}
	free(numbers);
	return n;
}

int sheaf_ckpt_pieces(struct sheaf *fs, const char *dir, const char *job, uint64_t number,
		      uint32_t process, struct sheaf_ckpt_piece *out, int max)
{
	struct ckpt_manifest m;
	struct ckpt_store s;
	struct ckpt_table t;
	int r = ckpt_store_init(&s, fs, dir, job), n;

	if (!r)
		r = ckpt_store_manifest(&s, number, &m);
	if (r)
		return r;
	if (process >= m.n)
		r = ckpt_fail(-EINVAL, "the checkpoint has %u processes", m.n);
	else
		r = ckpt_store_table(&s, &m, process, &t);
	ckpt_manifest_free(&m);
	if (r)
		return r;
	n = (int)t.pieces.n;
	for (int i = 0; i < n && i < max; i++) {
		snprintf(out[i].name, sizeof(out[i].name), "%s", t.pieces.v[i].name);
		out[i].bytes = t.pieces.v[i].bytes;
		out[i].global = t.pieces.v[i].global;
	}
	ckpt_table_free(&t);
	return n;
}

int ckpt_verify_image(const struct ckpt_store *s, const struct ckpt_manifest *m, uint32_t rank)
{
	char path[CKPT_PATH];
	struct sheaf_file *f;
	struct ckpt_table t;
	int r = ckpt_store_table(s, m, rank, &t);

	if (r)
		return r;
	ckpt_image_path(s, m->number, m->one_file, rank, path);
	r = sheaf_open(s->fs, path, O_RDONLY, 0, NULL, &f);
	if (r) {
		ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	} else {
		r = ckpt_image_check(f, m->images[rank].base, &t);
		if (r)
			ckpt_fail(r, "%s: %s", path, sheaf_ckpt_why());
		sheaf_close(f);
	}
	ckpt_table_free(&t);
	return r;
}

int sheaf_ckpt_verify(struct sheaf *fs, const char *dir, const char *job, uint64_t number)
{
	struct ckpt_store s;
	int r = ckpt_store_init(&s, fs, dir, job);

	for (uint64_t next = number; !r && next;) {
		struct ckpt_manifest m;

		r = ckpt_store_manifest(&s, next, &m);
		if (r == -ENOENT && next != number)
			r = ckpt_fail(-EUCLEAN, "it depends on %" PRIu64 ", which is not there",
				      next);
		for (uint32_t i = 0; !r && i < m.n; i++)
			r = ckpt_verify_image(&s, &m, i);
		next = m.since;
		ckpt_manifest_free(&m);
	}
	return r;
}

/* Is a job of this name running? An incomplete checkpoint is then one that it writes. */
static int check_idle(const struct ckpt_store *s, uint64_t number)
{
	struct sheaf_lock l = { .size = sizeof(l), .type = F_RDLCK };
	char path[CKPT_PATH];
	struct sheaf_file *f;
	int r;

	snprintf(path, sizeof(path), "%s/lock", s->path);
	r = sheaf_open(s->fs, path, O_RDONLY, 0, NULL, &f);
	if (r)
		return r == -ENOENT ? 0 : ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	r = sheaf_lock_test(f, &l);
	sheaf_close(f);
	if (r)
		return ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	return l.type == F_UNLCK ? 0 :
				   ckpt_fail(-EBUSY,
					     "checkpoint %" PRIu64
					     " is incomplete and job '%s' runs: it may be "
					     "writing it",
					     number, s->job);
}

int sheaf_ckpt_remove(struct sheaf *fs, const char *dir, const char *job, uint64_t number)
{
	bool found = false, needed = false;
	struct ckpt_store s;
	uint64_t *numbers;
	int n = ckpt_store_init(&s, fs, dir, job), r = 0;

	if (!n)
		n = ckpt_store_numbers(&s, &numbers);
	if (n < 0)
		return n;
	for (int i = 0; !r && i < n; i++) {
		struct ckpt_manifest m;

		if (numbers[i] < number)
			continue;
		r = ckpt_store_manifest(&s, numbers[i], &m);
		if (numbers[i] > number)
			needed = needed || (!r && m.since == number);
		else
			found = true;
		ckpt_manifest_free(&m);
		if (r == -ENOENT && numbers[i] == number)
			r = check_idle(&s, number);
		r = ckpt_is_damage(r) ? 0 : r;
	}
	free(numbers);
	if (r)
		return r;
	if (!found)
		return ckpt_fail(-ENOENT, "job '%s' has no checkpoint %" PRIu64, job, number);
	if (needed)
		return ckpt_fail(-EBUSY,
				 "later checkpoints have only what changed since %" PRIu64
				 ": remove those first",
				 number);
	return ckpt_store_drop(&s, number);
}

int sheaf_ckpt_keep(struct sheaf *fs, const char *dir, const char *job, uint32_t keep)
{
	struct ckpt_store s;
	int r = ckpt_store_init(&s, fs, dir, job);

	if (r)
		return r;
	if (!keep) {
		r = sheaf_removexattr(fs, s.path, KEEP);
		return r && r != -ENODATA ? ckpt_fail(r, "%s: %s", s.path, sheaf_strerror(r)) : 0;
	}
	r = keep_number(&s, KEEP, keep);
	return r ? r : ckpt_store_prune(&s, keep);
}

int sheaf_ckpt_now(struct sheaf *fs, const char *dir, const char *job)
{
	char path[CKPT_PATH];
	struct ckpt_store s;
	int r = ckpt_store_init(&s, fs, dir, job);

	if (r)
		return r;
	snprintf(path, sizeof(path), "%s/request", s.path);
	return ckpt_write_file(fs, path, "now\n", 4);
}
