/* The data of one process in its file: written from the memory of the stream and read into it,
 * without a copy, several transfers at a time.
 *
 * Threads: the one that calls. Buffers: the program's own memory. Errors: those of libsheaf,
 * explained; -EUCLEAN: a checksum is wrong, or the file is too short. */
#include <sys/uio.h>
#include <time.h>

#include "ckpt/ckpt_impl.h"

#define AHEAD 4 /* transfers under way */
#define KEPT_CHUNK MIB /* of data that are copied first */

/* Goes through the runs of a stream in order. */
struct cursor {
	const struct ckpt_pieces *p;
	const struct ckpt_run *runs;
	size_t n_runs, run;
	uint64_t in_run;
};

/* Checksums of data that pass in order. */
struct summer {
	uint32_t *sums;
	size_t block;
	uint64_t fill;
	uint32_t sum;
};

struct transfer {
	struct sheaf_op *op;
	struct iovec iov[CKPT_IOV];
	struct sheaf_extent ext;
	size_t n;
};

static void sum_bytes(struct summer *s, const char *p, uint64_t n)
{
	while (!s->fill && n >= 4 * CKPT_BLOCK) {
		ckpt_sum_four(s->sums + s->block, p);
		s->block += 4;
		p += 4 * CKPT_BLOCK;
		n -= 4 * CKPT_BLOCK;
	}
	while (n) {
		uint64_t part = MIN(n, CKPT_BLOCK - s->fill);

		s->sum = crc32c(s->sum, p, part);
		s->fill += part;
		p += part;
		n -= part;
		if (s->fill == CKPT_BLOCK) {
			s->sums[s->block++] = s->sum;
			s->fill = 0;
			s->sum = 0;
		}
	}
}

static void sum_end(struct summer *s)
{
	if (s->fill)
		s->sums[s->block++] = s->sum;
}

static void sum_transfer(struct summer *s, const struct transfer *t)
{
	for (size_t i = 0; i < t->n; i++)
		sum_bytes(s, t->iov[i].iov_base, t->iov[i].iov_len);
}

/* The memory of the next transfer; its length, 0 at the end, or -errno. */
static ssize_t next_memory(struct cursor *k, struct transfer *t)
{
	uint64_t len = 0;

	t->n = 0;
	while (k->run < k->n_runs && len < CKPT_CHUNK && t->n < CKPT_IOV) {
		const struct ckpt_run *v = &k->runs[k->run];
		uint64_t want = MIN(v->len - k->in_run, CKPT_CHUNK - len);
		ssize_t got = want ? ckpt_stream_memory(k->p, v->at + k->in_run, want, t->iov,
							CKPT_IOV, &t->n) :
				     0;

		if (got < 0)
			return got;
		len += (uint64_t)got;
		k->in_run += (uint64_t)got;
		if (k->in_run == v->len) {
			k->run++;
			k->in_run = 0;
		} else if ((uint64_t)got < want) {
			break;
		}
	}
	return (ssize_t)len;
}

static int failed(const char *what, ssize_t r)
{
	return ckpt_fail((int)r, "%s: %s", what, sheaf_strerror((int)r));
}

static int write_end(struct transfer *t)
{
	ssize_t r = sheaf_wait(t->op);

	t->op = NULL;
	if (r >= 0 && (uint64_t)r < t->ext.length)
		r = -EIO;
	return r < 0 ? failed("writing the image", r) : 0;
}

/* Waits until `done` bytes since `begun` are no faster than `rate`. */
static void pause_until(uint64_t begun, uint64_t rate, uint64_t done)
{
	uint64_t now = time_now() - begun,
		 ns = rate ? (uint64_t)((double)done / (double)rate * 1e9) : 0;
	struct timespec t;

	if (now >= ns)
		return;
	t.tv_sec = (time_t)((ns - now) / NSEC_PER_SEC);
	t.tv_nsec = (long)((ns - now) % NSEC_PER_SEC);
	nanosleep(&t, NULL);
}

int ckpt_image_write(struct sheaf_file *f, uint64_t base, const struct ckpt_pieces *p,
		     const struct ckpt_run *runs, size_t n_runs, uint64_t rate, uint32_t *sums)
{
	uint64_t begun = time_now(), done = 0;
	struct transfer *t = calloc(AHEAD, sizeof(*t));
	struct cursor k = { .p = p, .runs = runs, .n_runs = n_runs };
	struct summer s = { .sums = sums };
	int r = t ? 0 : ckpt_fail(-ENOMEM, "out of memory");

	for (unsigned i = 0; !r; i++) {
		struct transfer *v = &t[i % AHEAD];
		ssize_t len;

		if (v->op)
			r = write_end(v);
		len = r ? 0 : next_memory(&k, v);
		if (len <= 0) {
			r = len ? failed("registered memory", len) : r;
			break;
		}
		v->ext = (struct sheaf_extent){ base, (uint64_t)len };
		r = sheaf_write_list_start(f, v->iov, v->n, &v->ext, 1, &v->op);
		if (r) {
			v->op = NULL;
			failed("writing the image", r);
			break;
		}
		sum_transfer(&s, v); /* while it is on its way */
		base += (uint64_t)len;
		done += (uint64_t)len;
		pause_until(begun, rate, done);
	}
	for (unsigned i = 0; t && i < AHEAD; i++)
		if (t[i].op) {
			int end = write_end(&t[i]);

			r = r ? r : end;
		}
	sum_end(&s);
	free(t);
	return r;
}

static int wait_for(struct sheaf_op **op, uint64_t len)
{
	ssize_t r = *op ? sheaf_wait(*op) : (ssize_t)len;

	*op = NULL;
	if (r >= 0 && (uint64_t)r < len)
		r = -EIO;
	return r < 0 ? failed("writing the image", r) : 0;
}

int ckpt_image_write_kept(struct sheaf_file *f, uint64_t base, struct ckpt_track *track,
			  const struct ckpt_run *runs, size_t n_runs, bool keeps, uint64_t rate,
			  uint32_t *sums)
{
	struct summer s = { .sums = sums };
	uint64_t begun = time_now(), done = 0;
	struct sheaf_op *op[2] = { NULL, NULL };
	uint64_t under_way[2] = { 0, 0 };
	char *buf = malloc(2 * KEPT_CHUNK);
	int r = buf ? 0 : ckpt_fail(-ENOMEM, "out of memory");
	size_t run = 0, i = 0;
	uint64_t in_run = 0;

	while (!r && run < n_runs) {
		char *to = buf + i * KEPT_CHUNK;
		uint64_t len = 0;

		r = wait_for(&op[i], under_way[i]);
		while (!r && run < n_runs && len < KEPT_CHUNK) {
			uint64_t part = MIN(runs[run].len - in_run, KEPT_CHUNK - len);

			r = ckpt_track_copy(track, runs[run].at + in_run, part, to + len, keeps);
			len += part;
			in_run += part;
			if (in_run == runs[run].len) {
				run++;
				in_run = 0;
			}
		}
		if (r)
			break;
		sum_bytes(&s, to, len);
		r = sheaf_pwrite_start(f, to, len, (off_t)(base + done), &op[i]);
		if (r) {
			op[i] = NULL;
			failed("writing the image", r);
		}
		under_way[i] = len;
		i = !i;
		done += len;
		pause_until(begun, rate, done);
	}
	for (i = 0; i < 2; i++) {
		int end = wait_for(&op[i], under_way[i]);

		r = r ? r : end;
	}
	sum_end(&s);
	free(buf);
	return r;
}

static int read_end(struct transfer *t, struct summer *s)
{
	ssize_t r = sheaf_wait(t->op);

	t->op = NULL;
	if (r < 0)
		return failed("reading the image", r);
	if ((uint64_t)r < t->ext.length)
		return ckpt_fail(-EUCLEAN, "the image is cut off");
	sum_transfer(s, t);
	return 0;
}

static int compare_sums(const struct ckpt_table *t, const uint32_t *sums)
{
	for (size_t i = 0; i < t->n_sums; i++)
		if (t->sums[i] != sums[i])
			return ckpt_fail(-EUCLEAN,
					 "the checksum of block %zu (%zu KiB each) is wrong", i,
					 CKPT_BLOCK / KIB);
	return 0;
}

static int read_runs(struct sheaf_file *f, uint64_t base, struct cursor *k, struct transfer *t,
		     struct summer *s)
{
	unsigned first = 0, end = 0;
	int r = 0;

	while (!r) {
		struct transfer *v = &t[end % AHEAD];
		ssize_t len;

		if (end - first == AHEAD)
			r = read_end(&t[first++ % AHEAD], s);
		len = r ? 0 : next_memory(k, v);
		if (len <= 0) {
			r = len ? failed("registered memory", len) : r;
			break;
		}
		v->ext = (struct sheaf_extent){ base, (uint64_t)len };
		r = sheaf_read_list_start(f, v->iov, v->n, &v->ext, 1, &v->op);
		if (r) {
			v->op = NULL;
			return failed("reading the image", r);
		}
		end++;
		base += (uint64_t)len;
	}
	while (first < end) {
		int one = read_end(&t[first++ % AHEAD], s);

		r = r ? r : one;
	}
	return r;
}

int ckpt_image_read(struct sheaf_file *f, uint64_t base, const struct ckpt_table *t,
		    const struct ckpt_pieces *p)
{
	struct transfer *v = calloc(AHEAD, sizeof(*v));
	struct summer s = { .sums = calloc(t->n_sums + 1, sizeof(*s.sums)) };
	struct cursor k = { .p = p, .runs = t->runs, .n_runs = t->n_runs };
	int r = v && s.sums ? 0 : ckpt_fail(-ENOMEM, "out of memory");

	if (!r)
		r = read_runs(f, base, &k, v, &s);
	if (!r) {
		sum_end(&s);
		r = compare_sums(t, s.sums);
	}
	for (unsigned i = 0; v && i < AHEAD; i++)
		if (v[i].op)
			sheaf_wait(v[i].op);
	free(v);
	free(s.sums);
	return r;
}

int ckpt_image_check(struct sheaf_file *f, uint64_t base, const struct ckpt_table *t)
{
	struct summer s = { .sums = calloc(t->n_sums + 1, sizeof(*s.sums)) };
	char *buf = malloc(CKPT_CHUNK);
	int r = buf && s.sums ? 0 : ckpt_fail(-ENOMEM, "out of memory");

	for (uint64_t at = 0; !r && at < t->data;) {
		uint64_t len = MIN(t->data - at, CKPT_CHUNK);
		ssize_t got = sheaf_pread(f, buf, len, (off_t)(base + at));

		if (got < 0)
			r = failed("reading the image", got);
		else if ((uint64_t)got < len)
			r = ckpt_fail(-EUCLEAN, "the image is cut off");
		else
			sum_bytes(&s, buf, len);
		at += len;
	}
	if (!r) {
		sum_end(&s);
		r = compare_sums(t, s.sums);
	}
	free(buf);
	free(s.sums);
	return r;
}
