/* A checkpoint whose pieces are the files of a local directory, as those of CRIU: each file is a
 * piece of its name. So one manifest makes all of them complete, and each byte has a checksum.
 *
 * Threads: that of the call. Buffers: the files are mapped. Errors: of this host or of libsheaf,
 * explained. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"

static int failed_here(const char *dir, const char *name)
{
	int r = -errno;

	return ckpt_fail(r, "%s/%s: %s", dir, name, strerror(-r));
}

static void unmap(struct ckpt_pieces *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].bytes)
			munmap(p->v[i].mem, p->v[i].bytes);
	ckpt_pieces_free(p);
}

/* Maps a file and adds it; bytes: its new length, or UINT64_MAX: as it is. */
static int add_file(struct ckpt_pieces *p, const char *dir, const char *name, uint64_t bytes)
{
	bool makes = bytes != UINT64_MAX;
	int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	int fd = openat(d, name, (makes ? O_RDWR | O_CREAT | O_EXCL : O_RDONLY) | O_CLOEXEC, 0600);
	struct stat st = { .st_size = 0 };
	void *mem = NULL;

	if (fd < 0 || (makes && ftruncate(fd, (off_t)bytes)) || fstat(fd, &st))
		r = failed_here(dir, name);
	if (!r && st.st_size) {
		mem = mmap(NULL, (size_t)st.st_size, makes ? PROT_READ | PROT_WRITE : PROT_READ,
			   MAP_SHARED, fd, 0);
		r = mem == MAP_FAILED ? failed_here(dir, name) : 0;
	}
	if (!r) {
		r = ckpt_pieces_add(p, name, mem, NULL, (uint64_t)st.st_size, NULL);
		if (r && mem)
			munmap(mem, (size_t)st.st_size);
	}
	if (fd >= 0)
		close(fd);
	if (d >= 0)
		close(d);
	return r;
}

static int is_file(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static int add_all(struct ckpt_pieces *p, const char *dir)
{
	struct dirent **names;
	int n = scandir(dir, &names, is_file, alphasort), r = 0;

	if (n < 0)
		return failed_here(dir, "");
	for (int i = 0; i < n; i++) {
		if (!r)
			r = add_file(p, dir, names[i]->d_name, UINT64_MAX);
		free(names[i]);
	}
	free(names);
	return r;
}

static int check_job(const struct sheaf_ckpt *c)
{
	if (c->x.comm.n == 1 && !c->pieces.n &&
	    !(c->o.flags & (SHEAF_CKPT_ASYNC | SHEAF_CKPT_INCREMENTAL)))
		return 0;
	return ckpt_fail(-EINVAL,
			 "files are checkpoints of a job of one process that has no other "
			 "pieces, and neither SHEAF_CKPT_ASYNC nor SHEAF_CKPT_INCREMENTAL");
}

int sheaf_ckpt_save_dir(struct sheaf_ckpt *c, const char *dir)
{
	int r = check_job(c);

	if (r)
		return r;
	r = add_all(&c->pieces, dir);
	if (!r)
		r = sheaf_ckpt_take(c);
	unmap(&c->pieces);
	c->is_fixed = false;
	return r;
}

/* ---- back ---- */

static void remove_files(const struct ckpt_pieces *p, const char *dir)
{
	int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; d >= 0 && i < p->n; i++)
		unlinkat(d, p->v[i].name, 0);
	if (d >= 0)
		close(d);
}

/* Files of the lengths of these pieces. */
static int make_files(const struct ckpt_pieces *from, const char *dir, struct ckpt_pieces *to)
{
	int r = 0;

	for (size_t i = 0; !r && i < from->n; i++) {
		const char *name = from->v[i].name;

		if (*name == '.' || strchr(name, '/'))
			r = ckpt_fail(-EUCLEAN, "'%s' is no name of a file", name);
		else
			r = add_file(to, dir, name, from->v[i].bytes);
	}
	return r;
}

static int load_one(struct sheaf_ckpt *c, const struct ckpt_manifest *m, const char *dir)
{
	struct ckpt_pieces files = { .n = 0 };
	struct ckpt_table t;
	struct sheaf_file *f;
	char path[CKPT_PATH];
	int r;

	if (m->n != 1 || m->since)
		return ckpt_fail(-EINVAL, "checkpoint %" PRIu64 " is none of files", m->number);
	r = ckpt_store_table(&c->store, m, 0, &t);
	if (r)
		return r;
	r = make_files(&t.pieces, dir, &files);
	ckpt_image_path(&c->store, m->number, m->one_file, 0, path);
	if (!r) {
		r = sheaf_open(c->fs, path, O_RDONLY, 0, NULL, &f);
		if (r)
			ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	}
	if (!r) {
		r = ckpt_image_read(f, m->images[0].base, &t, &files);
		sheaf_close(f);
	}
	if (r)
		remove_files(&files, dir);
	unmap(&files);
	ckpt_table_free(&t);
	return r;
}

int sheaf_ckpt_load_dir(struct sheaf_ckpt *c, const char *dir, uint64_t *number)
{
	uint64_t *numbers;
	int n = ckpt_store_numbers(&c->store, &numbers), r = -ENOENT;

	if (n < 0)
		return n;
	for (int i = 0; i < n && (r == -ENOENT || r == -EUCLEAN); i++) {
		struct ckpt_manifest m;

		r = ckpt_store_manifest(&c->store, numbers[i], &m);
		if (!r)
			r = load_one(c, &m, dir);
		ckpt_manifest_free(&m);
		if (!r && number)
			*number = numbers[i];
		else if (r == -EUCLEAN)
			ckpt_say(c, "checkpoint %" PRIu64 " is damaged and is skipped: %s",
				 numbers[i], sheaf_ckpt_why());
	}
	free(numbers);
	return r == -ENOENT || r == -EUCLEAN ?
		       ckpt_fail(-ENOENT, "job '%s' has no complete checkpoint", c->store.job) :
		       r;
}
