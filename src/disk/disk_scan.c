/* Lists the object files, page by page, ordered by directory, inode and generation.
 *
 * A page reads whole directories (each with 1/256 of all objects) and takes the objects after the
 * end of the previous page. Objects that are made or removed meanwhile may or may not be listed.
 * Files that are not objects are skipped.
 *
 * Threads: the listing is one call on a worker, which sees only struct disk_scan. The worker looks
 * up floors in the base, the loop adds those in memory. If the base was replaced meanwhile, the
 * lookup is repeated, because floors may have moved from memory into it. Buffers: rows are borrowed
 * from the caller until its request continues. Errors: errors of directories are passed on; a file
 * that disappears meanwhile is skipped. */
#include <fcntl.h>
#include <stdlib.h>

#include "disk/disk_impl.h"

struct listing {
	const struct disk_scan *s;
	unsigned dir;
	struct object_id *v;
	size_t n, cap;
	int error;
};

static int compare(const void *a, const void *b)
{
	const struct object_id *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->gen != y->gen)
		return x->gen < y->gen ? -1 : 1;
	return (x->index > y->index) - (x->index < y->index);
}

static bool is_behind(const struct disk_scan *s, unsigned dir, const struct object_id *id)
{
	return !s->begun || dir > s->dir || compare(id, &s->last) > 0;
}

static void name_of(char out[OBJECT_NAME], const struct object_id *id)
{
	if (id->index == OBJECT_NO_INDEX)
		object_old_name(out, id);
	else
		object_name(out, id);
}

/* Accepts only names of this format and of storage format 1. */
static bool name_parse(const char *name, struct object_id *f)
{
	char again[OBJECT_NAME];
	char *end;

	f->ino = strtoull(name, &end, 16);
	if (*end != '.')
		return false;
	f->gen = (uint32_t)strtoul(end + 1, &end, 16);
	f->index = *end == '.' ? (uint32_t)strtoul(end + 1, NULL, 16) : OBJECT_NO_INDEX;
	name_of(again, f);
	return strcmp(name, again) == 0;
}

static void note_name(void *arg, const char *name)
{
	struct listing *l = arg;
	struct object_id f;

	if (l->error || !name_parse(name, &f) || object_dir_index(f.ino) != l->dir ||
	    (l->s->only && f.ino != l->s->only) || !is_behind(l->s, l->dir, &f))
		return;
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 256;
		struct object_id *v = realloc(l->v, cap * sizeof(*v));

		if (!v) {
			l->error = -ENOMEM;
			return;
		}
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = f;
}

/* -ENOENT: the object was removed meanwhile. */
static int object_row(struct env *e, int fd, unsigned dir, const struct object_id *f,
		      struct disk_object *o)
{
	struct stat st;
	char name[OBJECT_NAME];
	int file, r;

	name_of(name, f);
	file = e->file->openat(e, fd, name, O_RDONLY | O_NOFOLLOW, 0);
	if (file < 0)
		return file;
	r = e->file->fstat(e, file, &st);
	e->file->close(e, file);
	*o = (struct disk_object){ .dir = dir, .id = *f };
	o->end = (uint64_t)st.st_size;
	return r;
}

static int scan_dir(struct env *e, struct disk_scan *s, unsigned dir)
{
	struct listing l = { .s = s, .dir = dir };
	int fd = disk_dir_open(e, s->io.fd, dir), r;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = e->file->list(e, fd, note_name, &l);
	r = r < 0 ? r : l.error;
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), compare);
	for (size_t i = 0; i < l.n && r == 0; i++) {
		if (s->n == s->max) {
			r = 1;
			break;
		}
		r = object_row(e, fd, dir, &l.v[i], &s->rows[s->n]);
		s->n += r == 0;
		if (r == -ENOENT)
			r = 0;
	}
	free(l.v);
	e->file->close(e, fd);
	return r;
}

/* Runs on a worker. */
static int floors_call(struct env *e, struct io *io)
{
	struct disk_scan *s = io->arg;
	int r = 0;

	for (uint32_t i = 0; i < s->n && r == 0; i++)
		r = base_find(e, s->base, s->rows[i].id.ino, &s->rows[i].floor);
	return r;
}

/* Runs on a worker. */
static int scan_call(struct env *e, struct io *io)
{
	struct disk_scan *s = io->arg;
	int r = 0;

	if (s->only) /* all objects of an inode are in one directory */
		r = scan_dir(e, s, object_dir_index(s->only));
	for (unsigned dir = s->begun ? s->dir : 0; !s->only && dir < OBJECT_DIRS && r == 0; dir++)
		r = scan_dir(e, s, dir);
	s->end = r == 0;
	return r < 0 ? r : floors_call(e, io);
}

static void scan_submit(struct disk_scan *s, int (*call)(struct env *e, struct io *io));

static void scan_done(struct io *io)
{
	struct disk_scan *s = io->arg;
	struct disk *d = s->disk;
	bool is_new = s->base != d->base;

	d->busy--;
	base_put(d, s->base);
	if (is_new && !io->error) {
		scan_submit(s, floors_call);
		return;
	}
	for (uint32_t i = 0; i < s->n; i++)
		s->rows[i].floor = MAX(s->rows[i].floor, disk_floor(d, s->rows[i].id.ino));
	req_done(s->q, io->error, 0);
}

static void scan_submit(struct disk_scan *s, int (*call)(struct env *e, struct io *io))
{
	struct disk *d = s->disk;

	s->base = base_hold(d);
	s->io = (struct io){
		.kind = IO_CALL, .call = call, .fd = d->objects.fd, .arg = s, .done = scan_done
	};
	d->busy++;
	io_submit(d->loop, &s->io);
}

void disk_scan(struct disk *d, struct disk_scan *s, struct req *q)
{
	s->disk = d;
	s->q = q;
	s->n = 0;
	req_hold(q);
	scan_submit(s, scan_call);
}
