#include "block_model.h"

#define DATA_MAGIC UINT32_C(0x5eaf0b1c)

const char *const data_verbs[] = { "create", "join",  "open",	  "write",  "read",
				   "fsync",  "close", "truncate", "unlink", "rename" };

/* Arguments of an operation: the file, then by verb. A write is `count` runs of `length` blocks,
 * with `gap` blocks between runs. */
enum { DATA_FILE, DATA_VALUE, DATA_START, DATA_LENGTH, DATA_GAP, DATA_COUNT };

static_assert(DATA_LANES * DATA_LANE_BLOCKS >= DATA_BLOCKS, "any file fits, and a block more");

/* ---- blocks ---- */

struct data_head {
	uint32_t magic, crc, worker, file, block, version;
};

static void data_fill(uint8_t *b, const struct data *m, uint32_t file, uint32_t block,
		      uint32_t version)
{
	struct data_head h = { DATA_MAGIC, 0, m->worker, file, block, version };
	uint64_t rnd = (uint64_t)version << 32 | (file * 1000 + block), x;

	memcpy(b, &h, sizeof(h));
	for (size_t i = sizeof(h); i < DATA_BLOCK; i += sizeof(x)) {
		x = test_random(&rnd);
		memcpy(b + i, &x, sizeof(x));
	}
	h.crc = crc32c(0, b, DATA_BLOCK);
	memcpy(b, &h, sizeof(h));
}
static_assert((DATA_BLOCK - sizeof(struct data_head)) % sizeof(uint64_t) == 0, "filled to the end");

/* Describes a block for an error message. */
static void data_describe(char *out, size_t n, const uint8_t *b)
{
	uint8_t copy[DATA_BLOCK];
	struct data_head h, zero = { 0 };
	uint32_t crc;

	memcpy(copy, b, DATA_BLOCK);
	memcpy(&h, copy, sizeof(h));
	crc = h.crc;
	if (h.magic != DATA_MAGIC) {
		bool hole = memcmp(&h, &zero, sizeof(h)) == 0 &&
			    memcmp(copy, copy + 1, DATA_BLOCK - 1) == 0;

		snprintf(out, n, "%s", hole ? "zeros" : "bytes that nobody wrote");
		return;
	}
	h.crc = 0;
	memcpy(copy, &h, sizeof(h));
	snprintf(out, n, "worker %u, file %u, block %u, version %u.%u, checksum %s", h.worker,
		 h.file, h.block, h.version >> 16, h.version & 0xffff,
		 crc32c(0, copy, DATA_BLOCK) == crc ? "right" : "WRONG");
}

uint32_t data_place(const struct data *m, uint32_t file, uint32_t k)
{
	return file == DATA_SHARED ? k * DATA_LANES + m->lane : k;
}

static uint32_t data_shared_id(uint32_t era)
{
	return UINT32_C(0x10000) + era;
}

bool data_joined(const struct data *m)
{
	return m->file[DATA_SHARED].id == data_shared_id(m->era);
}

/* ---- the model ---- */

static void data_synced(struct data_file *f, bool vouched)
{
	for (uint32_t i = 0; i < DATA_BLOCKS; i++) {
		struct data_block *b = &f->block[i];

		if (b->fresh && vouched)
			b->synced = b->answered;
		b->fresh = false;
	}
}

uint32_t data_most(const struct data_file *f)
{
	uint32_t n = DATA_BLOCKS;

	while (n > f->size && f->block[n - 1].begun == f->block[n - 1].answered)
		n--;
	return n;
}

struct data_block *data_block(struct data_file *f, const struct logged_op *d, uint32_t i)
{
	uint32_t length = d->arg[DATA_LENGTH];

	return &f->block[d->arg[DATA_START] + i / length * (length + d->arg[DATA_GAP]) + i % length];
}

void data_begin(void *arg, const struct logged_op *d)
{
	struct data *m = arg;

	if (d->verb != DATA_WRITE)
		return;
	m->n_writes++;
	for (uint32_t i = 0; i < d->arg[DATA_LENGTH] * d->arg[DATA_COUNT]; i++)
		data_block(&m->file[d->arg[DATA_FILE]], d, i)->begun = d->arg[DATA_VALUE];
}

static void data_written(struct data_file *f, const struct logged_op *d)
{
	for (uint32_t i = 0; i < d->arg[DATA_LENGTH] * d->arg[DATA_COUNT]; i++) {
		struct data_block *b = data_block(f, d, i);

		b->answered = b->begun;
		b->fresh = true;
		f->size = MAX(f->size, (uint32_t)(b - f->block) + 1);
	}
}

void data_end(void *arg, const struct logged_op *d, int result)
{
	struct data *m = arg;
	struct data_file *f = &m->file[d->arg[DATA_FILE]];
	uint32_t value = d->arg[DATA_VALUE];

	m->eio += result == -EIO;
	if (d->verb == DATA_FSYNC || d->verb == DATA_CLOSE)
		data_synced(f, result == 0);
	if (result)
		return;
	switch (d->verb) {
	case DATA_CREATE:
		*f = (struct data_file){ .id = ++m->next_id };
		break;
	case DATA_JOIN:
		*f = (struct data_file){ .id = data_shared_id(value) };
		break;
	case DATA_WRITE:
		data_written(f, d);
		break;
	case DATA_TRUNCATE:
		memset(&f->block[value], 0, (DATA_BLOCKS - value) * sizeof(f->block[0]));
		f->size = value;
		break;
	case DATA_UNLINK:
		f->id = 0;
		break;
	case DATA_RENAME:
		m->file[value] = *f;
		f->id = 0;
		break;
	}
}

void *data_make(const char *dir, uint32_t worker, uint64_t seed)
{
	struct data *m = calloc(1, sizeof(*m));

	CHECK(m);
	m->worker = worker;
	m->rnd = seed;
	snprintf(m->dir, sizeof(m->dir), "%s", dir);
	return m;
}

/* ---- choosing an operation ---- */

static uint32_t data_random(struct data *m, uint32_t n)
{
	return (uint32_t)(test_random(&m->rnd) % n);
}

static void data_pick_write(struct data *m, struct logged_op *d)
{
	uint32_t *a = d->arg, blocks = a[DATA_FILE] == DATA_SHARED ? DATA_LANE_BLOCKS : DATA_BLOCKS;

	d->verb = DATA_WRITE;
	a[DATA_VALUE] = m->round << 16 | (m->n_writes & 0xffff);
	a[DATA_LENGTH] = 1 + data_random(m, data_random(m, 8) ? 12 : blocks / 2);
	a[DATA_GAP] = data_random(m, 5);
	a[DATA_COUNT] = data_random(m, 2) ? 1 : 1 + data_random(m, 6);
	while (a[DATA_COUNT] > 1 && a[DATA_COUNT] * (a[DATA_LENGTH] + a[DATA_GAP]) > blocks)
		a[DATA_COUNT]--;
	a[DATA_GAP] = a[DATA_COUNT] > 1 ? a[DATA_GAP] : 0;
	a[DATA_START] = data_random(m, blocks + 1 - a[DATA_COUNT] * (a[DATA_LENGTH] + a[DATA_GAP]));
	if (data_random(m, 3)) /* two of three writes begin near the start */
		a[DATA_START] %= 32;
}

void data_pick(void *arg, struct logged_op *d)
{
	static const uint8_t verbs[] = { DATA_READ,	DATA_READ,   DATA_FSYNC, DATA_FSYNC,
					 DATA_FSYNC,	DATA_CLOSE,  DATA_CLOSE, DATA_TRUNCATE,
					 DATA_TRUNCATE, DATA_UNLINK, DATA_RENAME };
	struct data *m = arg;
	uint32_t file = data_random(m, DATA_FILES + 1), *a = d->arg;

	*d = (struct logged_op){ .arg = { file } };
	if (!data_joined(m)) {
		a[DATA_FILE] = DATA_SHARED;
		a[DATA_VALUE] = m->era;
		d->verb = DATA_JOIN;
	} else if (!m->file[file].id) {
		d->verb = DATA_CREATE;
		a[DATA_VALUE] = data_random(m, 4); /* selects the layout */
	} else if (!m->open[file]) {
		d->verb = DATA_OPEN;
	} else if (data_random(m, 2)) {
		data_pick_write(m, d);
	} else {
		d->verb = verbs[data_random(m, sizeof(verbs))];
		if (file == DATA_SHARED && d->verb > DATA_CLOSE)
			d->verb = DATA_FSYNC;
		if (d->verb == DATA_TRUNCATE)
			a[DATA_VALUE] = data_random(m, data_random(m, 2) ? 32 : DATA_BLOCKS);
		if (d->verb == DATA_RENAME)
			a[DATA_VALUE] = (file + 1 + data_random(m, DATA_FILES - 1)) % DATA_FILES;
	}
}

/* ---- executing an operation ---- */

static void data_path(char *out, size_t n, const struct data *m, uint32_t file)
{
	if (file == DATA_SHARED)
		snprintf(out, n, "/shared/e%u", m->era);
	else
		snprintf(out, n, "%s/f%u", m->dir, file);
}

int data_let_go(struct data *m, uint32_t file)
{
	struct sheaf_file *f = m->open[file];
	int r;

	m->open[file] = NULL;
	r = f ? sheaf_close(f) : 0;
	return r == -EIO ? 0 : r; /* the lost data are not needed any more */
}

static int data_do_open(struct data *m, const struct logged_op *d, const char *path)
{
	static const struct sheaf_layout layouts[] = { { sizeof(struct sheaf_layout), 0, 0 },
						       { sizeof(struct sheaf_layout), 4096, 4 },
						       { sizeof(struct sheaf_layout), 4096, 1 },
						       { sizeof(struct sheaf_layout), 8192, 3 } };
	bool create = d->verb == DATA_CREATE;
	uint32_t file = d->arg[DATA_FILE];
	int r = data_let_go(m, file);

	if (r)
		return r;
	return sheaf_open(m->fs, path, O_RDWR | (create ? O_CREAT | O_EXCL : 0), 0644,
			  create ? &layouts[d->arg[DATA_VALUE]] : NULL, &m->open[file]);
}

static int data_do_write(struct data *m, const struct logged_op *d)
{
	const uint32_t *a = d->arg;
	struct data_file *f = &m->file[a[DATA_FILE]];
	uint32_t n = 0;
	struct sheaf_extent ext[DATA_BLOCKS];
	struct iovec mem = { .iov_base = m->buf };
	ssize_t r;

	for (uint32_t i = 0; i < a[DATA_LENGTH] * a[DATA_COUNT]; i++) {
		uint32_t k = (uint32_t)(data_block(f, d, i) - f->block);
		uint64_t off = (uint64_t)data_place(m, a[DATA_FILE], k) * DATA_BLOCK;

		data_fill(m->buf + mem.iov_len, m, f->id, k, a[DATA_VALUE]);
		mem.iov_len += DATA_BLOCK;
		if (n && ext[n - 1].offset + ext[n - 1].length == off)
			ext[n - 1].length += DATA_BLOCK;
		else
			ext[n++] = (struct sheaf_extent){ off, DATA_BLOCK };
	}
	r = sheaf_write_list(m->open[a[DATA_FILE]], &mem, 1, ext, n);
	return r < 0 ? (int)r : r == (ssize_t)mem.iov_len ? 0 : -ENODATA;
}

static bool data_same_blocks(struct data *m, uint32_t file, size_t got, char *why, size_t n);

static int data_do_read(struct data *m, uint32_t file)
{
	ssize_t r = sheaf_pread(m->open[file], m->buf, sizeof(m->buf), 0);
	char why[512];

	if (r < 0 || data_same_blocks(m, file, (size_t)r, why, sizeof(why)))
		return r < 0 ? (int)r : 0;
	fprintf(stderr, "a read by the writer itself: %s\n", why);
	return -EBADMSG;
}

static int data_do_rename(struct data *m, uint32_t from, uint32_t to, const char *path)
{
	char target[64];
	int r;

	data_path(target, sizeof(target), m, to);
	r = sheaf_rename(m->fs, path, target);
	if (!r)
		r = data_let_go(m, to);
	m->open[to] = m->open[from];
	m->open[from] = NULL;
	return r;
}

int data_do(void *arg, const struct logged_op *d)
{
	struct data *m = arg;
	uint32_t file = d->arg[DATA_FILE], value = d->arg[DATA_VALUE];
	char path[64];
	int r;

	data_path(path, sizeof(path), m, file);
	switch (d->verb) {
	case DATA_CREATE:
	case DATA_JOIN:
	case DATA_OPEN:
		return data_do_open(m, d, path);
	case DATA_WRITE:
		return data_do_write(m, d);
	case DATA_READ:
		return data_do_read(m, file);
	case DATA_FSYNC:
		return sheaf_fsync(m->open[file]);
	case DATA_CLOSE:
		r = sheaf_close(m->open[file]);
		m->open[file] = NULL;
		return r;
	case DATA_TRUNCATE:
		return sheaf_ftruncate(m->open[file], (off_t)value * DATA_BLOCK);
	case DATA_UNLINK:
		r = sheaf_unlink(m->fs, path);
		return r ? r : data_let_go(m, file);
	default:
		return data_do_rename(m, file, value, path);
	}
}

bool data_right(void *arg, const struct logged_op *d, int result)
{
	(void)arg;
	return result == 0 || (result == -EIO && (d->verb == DATA_FSYNC || d->verb == DATA_CLOSE));
}

/* ---- comparing ---- */

static bool data_is(const struct data *m, uint32_t file, uint32_t k, uint32_t version,
		    const uint8_t *have)
{
	uint8_t want[DATA_BLOCK] = { 0 };

	if (version)
		data_fill(want, m, m->file[file].id, k, version);
	return memcmp(want, have, DATA_BLOCK) == 0;
}

/* Do the first `got` bytes of a file, in m->buf, match the model as far as they are in this
 * worker's part? */
static bool data_same_blocks(struct data *m, uint32_t file, size_t got, char *why, size_t n)
{
	struct data_file *f = &m->file[file];
	uint32_t blocks = (uint32_t)(got / DATA_BLOCK);
	char path[64], have[160];

	data_path(path, sizeof(path), m, file);
	memset(m->buf + got, 0, sizeof(m->buf) - got);
	if (got % DATA_BLOCK || (f->size && blocks <= data_place(m, file, f->size - 1)) ||
	    (file != DATA_SHARED && blocks > data_most(f))) {
		snprintf(why, n, "%s: %zu bytes, expected %u to %u blocks of %d", path, got,
			 f->size, data_most(f), DATA_BLOCK);
		return false;
	}
	for (uint32_t k = 0; k < (file == DATA_SHARED ? DATA_LANE_BLOCKS : DATA_BLOCKS); k++) {
		const struct data_block *b = &f->block[k];
		const uint8_t *at = m->buf + (size_t)data_place(m, file, k) * DATA_BLOCK;

		if (data_is(m, file, k, b->answered, at) || data_is(m, file, k, b->begun, at))
			continue;
		data_describe(have, sizeof(have), at);
		snprintf(why, n,
			 "%s (worker %u, file %u) block %u at %zu of %zu bytes: expected version "
			 "%u.%u (begun %u.%u, synced %u.%u), found %s",
			 path, m->worker, f->id, k, (size_t)(at - m->buf), got, b->answered >> 16,
			 b->answered & 0xffff, b->begun >> 16, b->begun & 0xffff, b->synced >> 16,
			 b->synced & 0xffff, have);
		return false;
	}
	return true;
}

static bool data_same_file(struct data *m, uint32_t file, char *why, size_t n)
{
	struct sheaf_file *f;
	struct stat st = { 0 };
	char path[64];
	ssize_t r;
	int e;

	data_path(path, sizeof(path), m, file);
	r = sheaf_open(m->fs, path, O_RDONLY, 0, NULL, &f);
	if (!m->file[file].id && r == -ENOENT)
		return true;
	if (r || !m->file[file].id) {
		if (!r)
			sheaf_close(f);
		snprintf(why, n, "%s: %s", path,
			 r ? sheaf_strerror((int)r) : "is there, and should not be");
		return false;
	}
	r = sheaf_pread(f, m->buf, sizeof(m->buf), 0);
	e = sheaf_fstat(f, &st);
	if (!e)
		e = sheaf_close(f);
	if (r < 0 || e || st.st_size != r) {
		snprintf(why, n, "%s: read gave %zd, the size is %jd (%s)", path, r,
			 (intmax_t)st.st_size, sheaf_strerror(e));
		return false;
	}
	return data_same_blocks(m, file, (size_t)r, why, n);
}

bool data_same(void *arg, char *why, size_t n)
{
	struct data *m = arg;

	for (uint32_t i = 0; i < DATA_FILES; i++)
		if (!data_same_file(m, i, why, n))
			return false;
	return !data_joined(m) || data_same_file(m, DATA_SHARED, why, n);
}
