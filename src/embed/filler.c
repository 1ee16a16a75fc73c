/* The filler of a metadata server: a client that reads files into the cache bank when their last
 * writer has closed them ([bank] fill = servers).
 *
 * It is one more reader: what it reads is stored as any client stores it, with the same ticket and
 * the same check that the file has not changed meanwhile. Small files only; the queue is bounded,
 * and what it has no room for is left to readers.
 *
 * Threads: one of its own, with low priority; settled() is called by the server's loop and waits
 * for a short lock at most. Buffers: one of READ_BYTES. Errors: a file that cannot be read is
 * counted, and left to readers. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/base.h"
#include "embed/embed.h"
#include "server/server.h"
#include "sheaf_admin.h"
#include "sheaf_handle.h"

#define QUEUE 1024 /* files */
#define FILE_MAX MIB
#define READ_BYTES (64 * KIB)
#define READ_BLOCKS 64 /* what a read fills at most */
#define RETRY_NS (5 * NSEC_PER_SEC) /* after a connection that failed */

struct filler {
	struct server_filler of; /* what the server sees; first */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct sheaf_handle queue[QUEUE];
	size_t first, n;
	atomic_bool stops, has_ended;
	struct sheaf *fs;
	uint64_t retry_at;
	uint8_t buf[READ_BYTES];
	char conf[CONF_PATH_MAX];
};

static void settled(struct server_filler *of, uint64_t ino, uint32_t gen)
{
	struct filler *f = (struct filler *)of;
	struct sheaf_handle h = { .ino = ino, .gen = gen };
	bool is_there = false;

	pthread_mutex_lock(&f->lock);
	if (f->n) { /* closed again and again */
		const struct sheaf_handle *last = &f->queue[(f->first + f->n - 1) % QUEUE];

		is_there = last->ino == ino && last->gen == gen;
	}
	if (!is_there && f->n < QUEUE)
		f->queue[(f->first + f->n++) % QUEUE] = h;
	else if (!is_there)
		atomic_fetch_add(&f->of.unfilled, 1);
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
}

/* False: it is to end. */
static bool take(struct filler *f, struct sheaf_handle *h)
{
	bool is_taken;

	pthread_mutex_lock(&f->lock);
	while (!f->n && !atomic_load(&f->stops))
		pthread_cond_wait(&f->more, &f->lock);
	is_taken = f->n && !atomic_load(&f->stops);
	if (is_taken) {
		*h = f->queue[f->first];
		f->first = (f->first + 1) % QUEUE;
		f->n--;
	}
	pthread_mutex_unlock(&f->lock);
	return is_taken;
}

static int connect_soon(struct filler *f)
{
	int r;

	if (f->fs)
		return 0;
	if (time_now() < f->retry_at)
		return -EAGAIN;
	r = sheaf_connect(f->conf, &f->fs);
	if (r) {
		log_warn("filler", "cannot fill the cache bank: %s", sheaf_why());
		f->fs = NULL;
		f->retry_at = time_now() + RETRY_NS;
	}
	return r;
}

/* 1: the file does not use the bank. */
static int read_all(struct filler *f, struct sheaf_file *file, uint64_t size)
{
	struct sheaf_bank before = { .size = sizeof(before) }, now = before;
	ssize_t n = 1;

	if (sheaf_bank(f->fs, &before))
		return 1;
	for (uint64_t at = 0; at < size && n > 0 && !atomic_load(&f->stops); at += (uint64_t)n) {
		n = sheaf_pread(file, f->buf, MIN(READ_BYTES, READ_BLOCKS * (size_t)before.block),
				(off_t)at);
		if (at == 0 && n > 0 && sheaf_bank(f->fs, &now) == 0 && now.asked == before.asked)
			return 1;
	}
	return n < 0 ? (int)n : 0;
}

/* 1: it is not for the bank. */
static int fill(struct filler *f, struct sheaf_handle h)
{
	const struct sheaf_cred root = { 0 };
	struct sheaf_file *file;
	struct stat st;
	unsigned what;
	int r = connect_soon(f);

	if (!r)
		r = sheaf_h_open_stat(f->fs, &root, h, NULL, O_RDONLY, 0, NULL, &file, &st, &what);
	if (r)
		return r == -ESTALE || r == -ENOENT ? 1 : r;
	if (st.st_size == 0 || st.st_size > (off_t)FILE_MAX || (what & SHEAF_OPEN_GROWING))
		r = 1;
	else
		r = read_all(f, file, (uint64_t)st.st_size);
	sheaf_close(file);
	return r;
}

static void *run(void *arg)
{
	struct filler *f = arg;
	struct sheaf_handle h;

	setpriority(PRIO_PROCESS, 0, 10); /* of this thread */
	while (take(f, &h)) {
		int r = fill(f, h);

		if (r <= 0)
			atomic_fetch_add(r ? &f->of.unfilled : &f->of.filled, 1);
	}
	if (f->fs)
		sheaf_disconnect(f->fs);
	atomic_store(&f->has_ended, true);
	return NULL;
}

int filler_start(const char *conf, struct server_filler **out)
{
	struct filler *f = calloc(1, sizeof(*f));
	int r;

	*out = NULL;
	if (!f)
		return -ENOMEM;
	snprintf(f->conf, sizeof(f->conf), "%s", conf);
	f->of.settled = settled;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->more, NULL);
	setenv("SHEAF_BANK", "always", 1); /* its own connection is the only one here */
	r = -pthread_create(&f->thread, NULL, run, f);
	if (r) {
		free(f);
		return r;
	}
	*out = &f->of;
	return 0;
}

bool filler_stop(struct server_filler *of)
{
	struct filler *f = (struct filler *)of;

	if (!of)
		return true;
	pthread_mutex_lock(&f->lock);
	atomic_store(&f->stops, true);
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
	return atomic_load(&f->has_ended);
}

void filler_free(struct server_filler *of)
{
	struct filler *f = (struct filler *)of;

	if (!of)
		return;
	pthread_join(f->thread, NULL);
	pthread_cond_destroy(&f->more);
	pthread_mutex_destroy(&f->lock);
	free(f);
}
