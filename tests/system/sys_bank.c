/* The cache bank with real memcached daemons: what is found there is what the servers have,
 * whatever happens to the daemons and to what they keep. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "cluster.h"

#define DAEMONS 2
#define BLOCK 8192
#define BYTES (20 * BLOCK + 777)

static struct cluster c;
static struct sheaf *writer; /* does not use the bank */
static uint32_t port;
static pid_t daemons[DAEMONS];

/* ---- daemons ---- */

static int daemon_connect(int i)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)(port + (uint32_t)i)) };
	struct timeval limit = { .tv_sec = PATIENCE_S };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	close(fd);
	return -1;
}

static bool daemon_answers(int i)
{
	int fd = daemon_connect(i);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void daemon_start(int i)
{
	char number[12];
	const char *argv[] = { "/usr/bin/env", "memcached", "-u", "root", "-l", "127.0.0.1", "-p",
			       number,	       "-U",	    "0",  "-m",	  "64", NULL };

	snprintf(number, sizeof(number), "%u", port + (uint32_t)i);
	daemons[i] = process_start(argv, -1);
	CHECK(WITHIN(PATIENCE_S, daemon_answers(i)));
}

static void daemon_kill(int i)
{
	kill(daemons[i], SIGKILL);
	process_wait(daemons[i]);
}

/* Sends a command and reads up to the end mark. The caller frees the answer. */
static char *daemon_ask(int i, const void *command, size_t len, const char *mark, size_t *n)
{
	size_t room = 8 << 20;
	char *answer = malloc(room);
	int fd = daemon_connect(i);
	ssize_t r;

	CHECK(answer && fd >= 0);
	CHECK_EQ(send(fd, command, len, 0), (ssize_t)len);
	*n = 0;
	while (*n < strlen(mark) || memcmp(answer + *n - strlen(mark), mark, strlen(mark))) {
		r = recv(fd, answer + *n, room - *n, 0);
		CHECK(r > 0);
		*n += (size_t)r;
	}
	close(fd);
	return answer;
}

struct entry {
	int daemon;
	char key[64];
	char *value;
	size_t n;
};

/* All entries of all daemons. */
static size_t entries(struct entry *out, size_t max)
{
	size_t count = 0, n;

	for (int i = 0; i < DAEMONS; i++) {
		char *list = daemon_ask(i, "lru_crawler metadump all\r\n", 26, "END\r\n", &n), *at;

		list[n - 1] = 0;
		for (at = list; (at = strstr(at, "key=")) && count < max; at++) {
			struct entry *e = &out[count++];
			char command[80], *text;
			size_t len;

			e->daemon = i;
			sscanf(at, "key=%63s", e->key);
			snprintf(command, sizeof(command), "get %s\r\n", e->key);
			text = daemon_ask(i, command, strlen(command), "END\r\n", &len);
			if (sscanf(text, "VALUE %*s %*u %zu", &e->n) != 1) {
				count--; /* it has expired */
				free(text);
				continue;
			}
			e->value = malloc(e->n + 1);
			memcpy(e->value, strchr(text, '\n') + 1, e->n);
			free(text);
		}
		free(list);
	}
	return count;
}

static void entry_set(const struct entry *e, const void *value, size_t n)
{
	char *command = malloc(n + 128);
	size_t len = (size_t)sprintf(command, "set %s 0 0 %zu\r\n", e->key, n);

	memcpy(command + len, value, n);
	memcpy(command + len + n, "\r\n", 2);
	free(daemon_ask(e->daemon, command, len + n + 2, "\r\n", &(size_t){ 0 }));
	free(command);
}

/* ---- clients ---- */

static struct sheaf *banked_client_of(const char *conf, const char *how)
{
	struct sheaf_bank b = { .size = sizeof(b) };
	struct sheaf *fs;

	setenv("SHEAF_BANK", how, 1);
	fs = client_connect(conf);
	sheaf_bank(fs, &b); /* else the bank is opened later, with the first file */
	setenv("SHEAF_BANK", "off", 1);
	return fs;
}

static struct sheaf *banked_client(const char *how)
{
	return banked_client_of(c.conf, how);
}

/* A client whose cluster file has `to` in place of `from`. */
static struct sheaf *client_with(const char *from, const char *to)
{
	char *text = read_text(c.conf), *whole = malloc(strlen(text) + strlen(to) + 1), *at;
	struct sheaf *fs;

	at = strstr(text, from);
	CHECK(at);
	sprintf(whole, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	write_text(c.conf, whole);
	fs = banked_client("always");
	write_text(c.conf, text);
	free(text);
	free(whole);
	return fs;
}

static struct sheaf_bank counts_of(struct sheaf *fs)
{
	struct sheaf_bank b = { .size = sizeof(b) };

	CHECK_EQ(sheaf_bank(fs, &b), 0);
	return b;
}

static void check_reads(struct sheaf *fs, const char *path, size_t size, uint64_t seed, int n)
{
	struct sheaf_file *f = open_file(fs, path, O_RDONLY);
	uint8_t *b = malloc(size + 10);
	uint64_t random = seed;

	CHECK(b);
	for (int i = 0; i < n; i++) {
		size_t off = test_random(&random) % size, len = 1 + test_random(&random) % 20000;
		size_t want = len < size - off ? len : size - off;

		CHECK_EQ(sheaf_pread(f, b, len, (off_t)off), (ssize_t)want);
		CHECK(is_pattern(b, want, seed, off));
	}
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

static void make_synced(const char *path, size_t n, uint64_t seed)
{
	struct sheaf_file *f;

	make_file(writer, path, n, seed);
	f = open_file(writer, path, O_RDWR);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

/* Every block of the file is in the bank. */
static void fill(struct sheaf *fs, const char *path, size_t size, uint64_t seed)
{
	CHECK(WITHIN(PATIENCE_S, ({
			     struct sheaf_bank before = counts_of(fs), after;
			     struct sheaf_file *f = open_file(fs, path, O_RDONLY);
			     uint8_t *b = malloc(size);

			     for (size_t at = 0; at < size; at += 4 * BLOCK) {
				     size_t n = size - at < 4 * BLOCK ? size - at : 4 * BLOCK;

				     CHECK_EQ(sheaf_pread(f, b, n, (off_t)at), (ssize_t)n);
				     CHECK(is_pattern(b, n, seed, at));
			     }
			     CHECK_EQ(sheaf_close(f), 0);
			     free(b);
			     after = counts_of(fs);
			     after.hits - before.hits == after.asked - before.asked;
		     })));
}

/* ---- tests ---- */

static void what_one_client_read_others_find(void)
{
	struct sheaf *a = banked_client("always"), *b = banked_client("always");
	struct sheaf_bank k;

	make_synced("/shared", BYTES, 1);
	fill(a, "/shared", BYTES, 1);
	check_reads(b, "/shared", BYTES, 1, 300);
	k = counts_of(b);
	CHECK(k.asked >= 300);
	CHECK_EQ(k.hits, k.asked);
	CHECK_EQ(k.bad, 0);
	sheaf_disconnect(a);
	sheaf_disconnect(b);
}

static void lists_and_ends_of_files_are_read(void)
{
	struct sheaf *a = banked_client("always");
	uint8_t mem[3][3000];
	struct iovec iov[] = { { mem[0], 3000 }, { mem[1], 1000 }, { mem[2], 3000 } };
	struct sheaf_extent ext[] = { { BLOCK - 1000, 2500 },
				      { 5 * BLOCK, 1500 },
				      { BYTES - 500, 3000 } };
	struct sheaf_file *f;

	make_synced("/lists", BYTES, 2);
	fill(a, "/lists", BYTES, 2);
	f = open_file(a, "/lists", O_RDONLY);
	CHECK_EQ(sheaf_read_list(f, iov, 3, ext, 3), 4500);
	CHECK(is_pattern(mem[0], 2500, 2, BLOCK - 1000));
	CHECK(is_pattern(mem[0] + 2500, 500, 2, 5 * BLOCK));
	CHECK(is_pattern(mem[1], 1000, 2, 5 * BLOCK + 500));
	CHECK(is_pattern(mem[2], 500, 2, BYTES - 500));
	CHECK_EQ(sheaf_pread(f, mem, 100, BYTES), 0);
	CHECK_EQ(sheaf_pread(f, (void *)8, 100, 0), -EFAULT);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK(counts_of(a).hits > 0);
	sheaf_disconnect(a);
}

/* close-to-open: an open sees what was there when the last writer had closed. */
static void no_open_sees_an_older_state(void)
{
	struct sheaf *a = banked_client("always");

	for (uint64_t i = 0; i < 30; i++) {
		size_t size = BYTES - (i % 3) * 5000;
		struct sheaf_file *f = open_file(writer, "/changes", O_CREAT | O_RDWR);
		uint8_t *b = malloc(size);

		fill_pattern(b, size, 100 + i, 0);
		if (i % 3)
			CHECK_EQ(sheaf_ftruncate(f, (off_t)size), 0);
		CHECK_EQ(sheaf_pwrite(f, b, size, 0), (ssize_t)size);
		if (i % 2)
			CHECK_EQ(sheaf_fsync(f), 0);
		CHECK_EQ(sheaf_ftruncate(f, (off_t)size), 0);
		CHECK_EQ(sheaf_close(f), 0);
		for (int k = 0; k < 3; k++)
			check_reads(a, "/changes", size, 100 + i, 10);
		free(b);
	}
	CHECK(counts_of(a).hits > 0);
	sheaf_disconnect(a);
}

static void a_client_sees_its_own_writes_and_those_of_lock_holders(void)
{
	struct sheaf *a = banked_client("always");
	struct sheaf_lock l = { .size = sizeof(l), .type = F_RDLCK, .owner = 1 };
	struct sheaf_file *r, *w;
	char byte;

	make_synced("/own", BYTES, 4);
	fill(a, "/own", BYTES, 4);
	r = open_file(a, "/own", O_RDONLY);
	w = open_file(a, "/own", O_WRONLY);
	CHECK_EQ(sheaf_pwrite(w, "!", 1, 10), 1);
	CHECK_EQ(sheaf_pread(r, &byte, 1, 10), 1);
	CHECK_EQ(byte, '!');
	CHECK_EQ(sheaf_close(w), 0);
	CHECK_EQ(sheaf_close(r), 0);

	make_synced("/locked", BYTES, 5);
	fill(a, "/locked", BYTES, 5);
	r = open_file(a, "/locked", O_RDONLY);
	w = open_file(writer, "/locked", O_WRONLY);
	CHECK_EQ(sheaf_pwrite(w, "?", 1, 10), 1);
	CHECK_EQ(sheaf_lock(r, &l, 1), 0);
	CHECK_EQ(sheaf_pread(r, &byte, 1, 10), 1);
	CHECK_EQ(byte, '?');
	CHECK_EQ(sheaf_close(w), 0);
	CHECK_EQ(sheaf_close(r), 0);
	sheaf_disconnect(a);
}

/* Old opens of a file see no older bytes than new ones do: a mount keeps pages for all of them. */
static void opens_of_a_file_leave_the_bank_together(void)
{
	struct sheaf *a = banked_client("always");
	struct sheaf_file *old, *w, *new;
	struct stat st;
	char byte;

	for (int way = 0; way < 2; way++) {
		make_synced("/together", BYTES, 11);
		fill(a, "/together", BYTES, 11);
		old = open_file(a, "/together", O_RDONLY);
		w = open_file(writer, "/together", O_WRONLY);
		CHECK_EQ(sheaf_pwrite(w, "!", 1, 10), 1);
		CHECK_EQ(sheaf_close(w), 0);
		new = way ? open_file(a, "/together", O_RDONLY) : NULL;
		if (!way)
			CHECK_EQ(sheaf_stat(a, "/together", &st), 0);
		CHECK_EQ(sheaf_pread(old, &byte, 1, 10), 1);
		CHECK_EQ(byte, '!');
		CHECK_EQ(sheaf_close(old), 0);
		if (new)
			CHECK_EQ(sheaf_close(new), 0);
	}
	sheaf_disconnect(a);
}

static void a_daemon_that_is_not_there_makes_no_read_wait(void)
{
	struct sheaf *a = banked_client("always");

	make_synced("/half", BYTES, 12);
	fill(a, "/half", BYTES, 12);
	daemon_kill(0);
	check_reads(a, "/half", BYTES, 12, 200);
	CHECK_EQ(counts_of(a).waits, 0);
	daemon_start(0);
	sheaf_disconnect(a);
}

static void a_file_with_a_writer_is_not_asked_for(void)
{
	struct sheaf *a = banked_client("always");
	struct sheaf_file *w;
	char b[100];

	make_synced("/written", BYTES, 6);
	w = open_file(writer, "/written", O_WRONLY);
	for (int i = 0; i < 20; i++) {
		struct sheaf_file *r = open_file(a, "/written", O_RDONLY);

		CHECK_EQ(sheaf_pwrite(w, &(char){ (char)i }, 1, 50), 1);
		CHECK_EQ(sheaf_pread(r, b, 100, 0), 100);
		CHECK_EQ(b[50], i);
		CHECK_EQ(sheaf_close(r), 0);
	}
	CHECK_EQ(counts_of(a).asked, 0);
	CHECK_EQ(sheaf_close(w), 0);
	sheaf_disconnect(a);
}

/* Values of other keys, cut, longer, with a flipped bit, of nothing. */
static void bad_values_are_misses(void)
{
	struct sheaf *a = banked_client("always");
	struct entry *e = calloc(4096, sizeof(*e));
	struct sheaf_bank k;
	size_t n;

	make_synced("/forged", BYTES, 7);
	fill(a, "/forged", BYTES, 7);
	n = entries(e, 4096);
	CHECK(n > 20);
	for (size_t i = 0; i < n; i++) {
		const struct entry *other = &e[(i + 1) % n];
		char *longer = calloc(1, e[i].n + 1);

		memcpy(longer, e[i].value, e[i].n);
		switch (i % 5) {
		case 0:
			entry_set(&e[i], other->value, other->n);
			break;
		case 1:
			entry_set(&e[i], e[i].value, e[i].n / 2);
			break;
		case 2:
			entry_set(&e[i], longer, e[i].n + 1);
			break;
		case 3:
			longer[e[i].n / 2] ^= 1;
			entry_set(&e[i], longer, e[i].n);
			break;
		case 4:
			entry_set(&e[i], "", 0);
			break;
		}
		free(longer);
	}
	for (int round = 0; round < 3; round++)
		check_reads(a, "/forged", BYTES, 7, 100);
	k = counts_of(a);
	CHECK(k.bad > 0);
	for (size_t i = 0; i < n; i++)
		free(e[i].value);
	free(e);
	sheaf_disconnect(a);
}

struct load {
	struct sheaf *fs;
	atomic_bool stop;
	uint64_t reads;
};

static void *read_on(void *arg)
{
	struct load *l = arg;

	while (!l->stop) {
		check_reads(l->fs, "/loaded", BYTES, 8, 20);
		l->reads += 20;
	}
	return NULL;
}

static void daemons_that_die_or_stop_change_no_result(void)
{
	struct load l = { .fs = banked_client("always") };
	pthread_t t;

	make_synced("/loaded", BYTES, 8);
	fill(l.fs, "/loaded", BYTES, 8);
	CHECK_EQ(pthread_create(&t, NULL, read_on, &l), 0);
	for (int i = 0; i < 3; i++) {
		daemon_kill(0);
		pause_ms(100);
		CHECK_EQ(kill(daemons[1], SIGSTOP), 0);
		pause_ms(200);
		daemon_start(0);
		CHECK_EQ(kill(daemons[1], SIGCONT), 0);
		pause_ms(200);
	}
	l.stop = true;
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK(l.reads > 0);
	CHECK(counts_of(l.fs).failures > 0);
	sheaf_disconnect(l.fs);
}

static void clients_without_the_key_do_without_the_bank(void)
{
	char key[CLUSTER_PATH + 16];
	struct sheaf_bank b = { .size = sizeof(b) };
	struct sheaf *a;

	snprintf(key, sizeof(key), "%s/bank.key", c.dir);
	CHECK_EQ(rename(key, path_in(c.dir, "elsewhere")), 0);
	a = banked_client("always");
	CHECK_EQ(sheaf_bank(a, &b), -ENOENT);
	CHECK(strstr(sheaf_why(), "bank.key"));
	make_synced("/keyless", BYTES, 9);
	check_reads(a, "/keyless", BYTES, 9, 10);
	sheaf_disconnect(a);
	CHECK_EQ(rename(path_in(c.dir, "elsewhere"), key), 0);
}

/* Whether asking pays is measured, and no read asks before that is known. */
static void without_a_wish_the_client_measures(void)
{
	struct sheaf *a = banked_client("on");
	struct sheaf_bank k;

	make_synced("/measured", BYTES, 10);
	CHECK(WITHIN(PATIENCE_S, ({
			     check_reads(a, "/measured", BYTES, 10, 500);
			     counts_of(a).probes > 0;
		     })));
	k = counts_of(a);
	CHECK(k.skipped > 0);
	sheaf_disconnect(a);
}

static void counters_and_times_can_be_read(void)
{
	struct sheaf *a = banked_client("always");
	struct sheaf *none = client_connect(c.conf); /* SHEAF_BANK is off here */
	char text[600];
	ssize_t n;

	make_synced("/counted", BYTES, 13);
	fill(a, "/counted", BYTES, 13);
	n = sheaf_getxattr(a, "/", "sheaf.bank", text, sizeof(text) - 1);
	CHECK(n > 0);
	text[n] = 0;
	CHECK(strstr(text, "\"hits\":") && strstr(text, "\"bad\":0"));
	CHECK_EQ(sheaf_getxattr(a, "/", "sheaf.bank", NULL, 0), n);
	CHECK_EQ(sheaf_getxattr(a, "/", "sheaf.bank", text, 3), -ERANGE);
	CHECK(sheaf_bank_ask(a, 100) > 0);
	CHECK(sheaf_bank_ask(a, 1 << 30) > 0);
	CHECK_EQ(sheaf_getxattr(none, "/", "sheaf.bank", text, sizeof(text)), -ENODATA);
	CHECK_EQ(sheaf_bank_ask(none, 100), -ENOENT);
	sheaf_disconnect(a);
	sheaf_disconnect(none);
}

static void directories_choose_what_is_cached(void)
{
	struct sheaf *a = banked_client("always"), *b = banked_client("always");
	uint64_t asked;

	CHECK_EQ(sheaf_mkdir(writer, "/chosen", 0755), 0);
	CHECK_EQ(sheaf_setxattr(writer, "/chosen", "sheaf.cache", "none", 4, 0), 0);
	CHECK_EQ(sheaf_mkdir(writer, "/chosen/below", 0755), 0);
	make_synced("/chosen/below/f", BYTES, 3);
	asked = counts_of(a).asked;
	fill(a, "/chosen/below/f", BYTES, 3);
	CHECK_EQ(counts_of(a).asked, asked);
	CHECK_EQ(sheaf_setxattr(writer, "/chosen/below/f", "sheaf.cache", "blocks", 6, 0), 0);
	fill(a, "/chosen/below/f", BYTES, 3);
	CHECK(counts_of(a).asked > asked);
	fill(b, "/chosen/below/f", BYTES, 3);
	CHECK(counts_of(b).hits > 0);
	sheaf_disconnect(a);
	sheaf_disconnect(b);
}

/* ---- attributes ---- */

/* Until the bank has answered a stat of each of the clients. */
static void stat_until_found(struct sheaf *fs, const char *path, struct stat *st)
{
	uint64_t before = counts_of(fs).attr_hits;

	CHECK(WITHIN(PATIENCE_S, ({
			     CHECK_EQ(sheaf_stat(fs, path, st), 0);
			     counts_of(fs).attr_hits > before;
		     })));
}

static void stats_are_found_in_the_bank(void)
{
	struct sheaf *a = banked_client("always"), *b = banked_client("always");
	struct stat want, st;

	make_synced("/known", 1000, 20);
	CHECK_EQ(sheaf_stat(writer, "/known", &want), 0);
	stat_until_found(a, "/known", &st);
	CHECK_EQ(st.st_size, 1000);
	CHECK_EQ(st.st_ino, want.st_ino);
	CHECK_EQ(st.st_mode, want.st_mode);
	CHECK_EQ(st.st_mtim.tv_nsec, want.st_mtim.tv_nsec);
	stat_until_found(b, "/known", &st);
	CHECK_EQ(st.st_ino, want.st_ino);
	CHECK_EQ(sheaf_stat(a, "/unknown", &st), -ENOENT);
	CHECK_EQ(counts_of(a).bad, 0);
	sheaf_disconnect(a);
	sheaf_disconnect(b);
}

/* Even without the server's notices, as entries end. */
static void small_files_come_with_their_attributes(void)
{
	struct sheaf *a = banked_client("always"), *b = banked_client("always");
	struct stat st;
	uint64_t wholes;

	make_synced("/small", 3000, 50);
	fill(a, "/small", 3000, 50);
	stat_until_found(b, "/small", &st);
	CHECK(WITHIN(PATIENCE_S, ({
			     wholes = counts_of(b).wholes;
			     stat_until_found(b, "/small", &st);
			     check_reads(b, "/small", 3000, 50, 1);
			     counts_of(b).wholes > wholes;
		     })));
	make_synced("/small", 3000, 51); /* b keeps the bytes of before */
	check_reads(b, "/small", 3000, 51, 5);
	sheaf_disconnect(a);
	sheaf_disconnect(b);
}

static void changes_of_others_are_seen_within_two_seconds(void)
{
	struct sheaf *a = client_with("attributes = 60", "attributes = 1");
	struct stat st;

	make_synced("/changed", 1000, 21);
	for (mode_t mode = 0600; mode < 0604; mode++) {
		uint64_t at, began;

		stat_until_found(a, "/changed", &st);
		CHECK_EQ(sheaf_chmod(writer, "/changed", mode), 0);
		at = time_now();
		do { /* old attributes in an answer to a question of later than that are wrong */
			began = time_now();
			CHECK_EQ(sheaf_stat(a, "/changed", &st), 0);
		} while ((st.st_mode & 07777) != mode && began < at + 2 * NSEC_PER_SEC);
		CHECK_EQ(st.st_mode & 07777, mode);
	}
	sheaf_disconnect(a);
}

/* Long before entries end. */
static void the_metadata_server_tells_of_changes(void)
{
	struct sheaf *a = banked_client("always");
	struct stat st;

	make_synced("/told", 1000, 25);
	stat_until_found(a, "/told", &st);
	CHECK_EQ(sheaf_chmod(writer, "/told", 0611), 0);
	CHECK(WITHIN(PATIENCE_S / 2,
		     sheaf_stat(a, "/told", &st) == 0 && (st.st_mode & 07777) == 0611));
	stat_until_found(a, "/told", &st);
	make_synced("/told", 2000, 26);
	CHECK(WITHIN(PATIENCE_S / 2, sheaf_stat(a, "/told", &st) == 0 && st.st_size == 2000));
	stat_until_found(a, "/told", &st);
	CHECK_EQ(sheaf_rename(writer, "/told", "/moved"), 0);
	CHECK(WITHIN(PATIENCE_S / 2, sheaf_stat(a, "/told", &st) == -ENOENT));
	stat_until_found(a, "/moved", &st);
	CHECK_EQ(sheaf_unlink(writer, "/moved"), 0);
	CHECK(WITHIN(PATIENCE_S / 2, sheaf_stat(a, "/moved", &st) == -ENOENT));
	sheaf_disconnect(a);
}

static void own_changes_are_seen_at_once(void)
{
	struct sheaf *a = banked_client("always"), *b = banked_client("always");
	struct sheaf_file *f;
	struct stat st;

	make_synced("/mine", 1000, 22);
	for (mode_t mode = 0600; mode < 0604; mode++) {
		stat_until_found(a, "/mine", &st);
		CHECK_EQ(sheaf_stat(b, "/mine", &st), 0);
		CHECK_EQ(sheaf_chmod(a, "/mine", mode), 0);
		CHECK_EQ(sheaf_stat(a, "/mine", &st), 0);
		CHECK_EQ(st.st_mode & 07777, mode);
	}
	stat_until_found(a, "/mine", &st);
	f = open_file(a, "/mine", O_WRONLY);
	CHECK_EQ(sheaf_pwrite(f, "!", 1, 5000), 1);
	CHECK_EQ(sheaf_stat(a, "/mine", &st), 0);
	CHECK_EQ(st.st_size, 5001);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_stat(a, "/mine", &st), 0);
	CHECK_EQ(st.st_size, 5001);
	CHECK_EQ(sheaf_rename(a, "/mine", "/yours"), 0);
	CHECK_EQ(sheaf_stat(a, "/mine", &st), -ENOENT);
	CHECK_EQ(sheaf_unlink(a, "/yours"), 0);
	CHECK_EQ(sheaf_stat(a, "/yours", &st), -ENOENT);
	sheaf_disconnect(a);
	sheaf_disconnect(b);
}

/* What one user found is not an answer for another one. */
static void no_user_sees_what_the_server_refuses(void)
{
	struct sheaf *a = banked_client("always");
	const struct sheaf_cred user = { .uid = 1000, .gid = 1000 };
	struct sheaf_handle h;
	struct stat st;

	CHECK_EQ(sheaf_mkdir(writer, "/private", 0700), 0);
	make_synced("/private/file", 1000, 23);
	stat_until_found(a, "/private/file", &st);
	for (int i = 0; i < 50; i++) {
		CHECK_EQ(sheaf_h_lookup(a, NULL, sheaf_root(a), "private/file", &h, &st), 0);
		CHECK_EQ(sheaf_h_lookup(a, &user, sheaf_root(a), "private/file", &h, &st), -EACCES);
	}
	sheaf_disconnect(a);
}

static void attributes_can_be_left_out(void)
{
	struct sheaf *a = client_with("attributes = 60", "attributes = 0");
	struct stat st;

	make_synced("/plain", 1000, 24);
	for (int i = 0; i < 20; i++)
		CHECK_EQ(sheaf_stat(a, "/plain", &st), 0);
	CHECK_EQ(counts_of(a).attr_asked, 0);
	sheaf_disconnect(a);
}

/* ---- faults ---- */

static void clients_that_name_different_daemons_read_right(void)
{
	char both[64], one[64], turned[64];
	struct sheaf *fs[3];

	snprintf(both, sizeof(both), "127.0.0.1:%u 127.0.0.1:%u", port, port + 1);
	snprintf(turned, sizeof(turned), "127.0.0.1:%u 127.0.0.1:%u", port + 1, port);
	snprintf(one, sizeof(one), "127.0.0.1:%u", port + 1);
	fs[0] = banked_client("always");
	fs[1] = client_with(both, one);
	fs[2] = client_with(both, turned);
	for (uint64_t round = 0; round < 3; round++) {
		make_synced("/lists", BYTES, 30 + round);
		for (int i = 0; i < 3; i++)
			check_reads(fs[i], "/lists", BYTES, 30 + round, 50);
	}
	for (int i = 0; i < 3; i++) {
		CHECK(counts_of(fs[i]).asked > 0);
		CHECK_EQ(counts_of(fs[i]).bad, 0);
		sheaf_disconnect(fs[i]);
	}
}

static void values_above_the_limit_of_a_daemon_are_left_out(void)
{
	struct sheaf *a = client_with("timeout_ms", "block = 1M\ntimeout_ms");
	struct sheaf_file *f;
	uint8_t *b = malloc(3 << 20);

	make_synced("/huge", 3 << 20, 33);
	f = open_file(a, "/huge", O_RDONLY);
	for (int round = 0; round < 3; round++) /* the daemons take values up to 1 MiB with all */
		for (size_t at = 0; at < 3 << 20; at += 100000) {
			CHECK(sheaf_pread(f, b, 1000, (off_t)at) > 0);
			CHECK(is_pattern(b, 1000, 33, at));
		}
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(counts_of(a).hits, 0);
	CHECK_EQ(counts_of(a).filled, 0);
	free(b);
	sheaf_disconnect(a);
}

/* The same inodes, the same states, the same key and daemons. */
static void another_file_system_finds_nothing(void)
{
	struct cluster other;
	struct sheaf *a = banked_client("always"), *b, *w;
	char *text = read_text(c.conf), more[CLUSTER_PATH + 256], *whole, *bank_text;
	struct sheaf_file *f;

	bank_text = strstr(text, "\n[bank]");
	CHECK(bank_text);
	make_synced("/same", BYTES, 34);
	fill(a, "/same", BYTES, 34);
	cluster_create(&other, &(struct cluster_opts){ .servers = 3, .timeout = 20 });
	snprintf(more, sizeof(more), "%s\nkey = %s/bank.key\n", bank_text, c.dir);
	free(text);
	text = read_text(other.conf);
	whole = malloc(strlen(text) + sizeof(more));
	sprintf(whole, "%s%s", text, more);
	write_text(other.conf, whole);
	cluster_start(&other);
	w = client_connect(other.conf);
	make_file(w, "/same", BYTES, 35);
	f = open_file(w, "/same", O_RDWR);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	b = banked_client_of(other.conf, "always");
	for (int i = 0; i < 3; i++) {
		check_reads(b, "/same", BYTES, 35, 30);
		check_reads(a, "/same", BYTES, 34, 30);
	}
	CHECK(counts_of(b).asked > 0);
	CHECK_EQ(counts_of(b).bad, 0);
	sheaf_disconnect(a);
	sheaf_disconnect(b);
	sheaf_disconnect(w);
	cluster_stop(&other);
	free(text);
	free(whole);
}

/* All values of before a change come back, the notice of an earlier change among them: attributes
 * from before the last second are refused all the same. */
static void old_attributes_are_refused(void)
{
	struct sheaf *a = client_with("attributes = 60", "attributes = 1");
	struct entry *e = calloc(4096, sizeof(*e));
	struct stat st;
	size_t n;

	make_synced("/old", 1000, 36);
	stat_until_found(a, "/old", &st);
	n = entries(e, 4096);
	CHECK(n > 0);
	CHECK_EQ(sheaf_chmod(writer, "/old", 0611), 0);
	pause_ms(2000);
	for (size_t i = 0; i < n; i++) {
		entry_set(&e[i], e[i].value, e[i].n);
		CHECK_EQ(sheaf_stat(a, "/old", &st), 0);
		CHECK_EQ(st.st_mode & 07777, 0611);
		free(e[i].value);
	}
	free(e);
	sheaf_disconnect(a);
}

static int run_sheaf(const char *a, const char *b, const char *d)
{
	char exe[CLUSTER_PATH];
	const char *argv[] = { exe, "--conf", c.conf, a, b, d, NULL };

	snprintf(exe, sizeof(exe), "%s/bin/sheaf", getenv("SHEAF_BUILD"));
	return process_wait(process_start(argv, -1));
}

/* The restored server counts on from an older state, which another state had before. */
/* Files that the servers have read into the bank. */
static uint64_t filled_by_servers(void)
{
	uint64_t n = 0;

	for (int i = 0; i < sheaf_server_count(writer); i++) {
		struct sheaf_server_bank k = { .size = sizeof(k) };

		if (sheaf_server_bank(writer, i, 5000, &k) == 0)
			n += k.filled;
	}
	return n;
}

/* Synced, and closed once: so it is filled once. */
static void make_in_one_open(const char *path, size_t n, uint64_t seed)
{
	struct sheaf_file *f = open_file(writer, path, O_CREAT | O_RDWR);
	uint8_t *b = malloc(n);

	CHECK(b);
	fill_pattern(b, n, seed, 0);
	CHECK_EQ(sheaf_pwrite(f, b, n, 0), (ssize_t)n);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

static void restart_with(const char *conf)
{
	sheaf_disconnect(writer);
	cluster_stop(&c);
	write_text(c.conf, conf);
	cluster_start(&c);
	writer = client_connect(c.conf);
}

static void servers_fill_what_was_written(void)
{
	char *text = read_text(c.conf), *whole = malloc(strlen(text) + 32);
	struct sheaf *b;

	CHECK(whole);
	sprintf(whole, "%sfill = servers\n", text); /* [bank] is the last section */
	restart_with(whole);
	make_in_one_open("/by_server", BYTES, 8);
	CHECK(WITHIN(PATIENCE_S, filled_by_servers() > 0));
	b = banked_client("always");
	CHECK(WITHIN(PATIENCE_S, ({
			     uint64_t before = counts_of(b).hits;

			     check_reads(b, "/by_server", BYTES, 8, 1);
			     counts_of(b).hits > before;
		     })));
	/* on a busy host a daemon may be too slow for some blocks, but not for all */
	CHECK(counts_of(b).filled <= BYTES / BLOCK);
	sheaf_disconnect(b);
	restart_with(text);
	free(text);
	free(whole);
}

static void a_restored_metadata_server_finds_no_older_entries(void)
{
	char backup[CLUSTER_PATH + 16];
	struct sheaf *a = banked_client("always");
	struct stat st;

	snprintf(backup, sizeof(backup), "%s/backup", c.dir);
	make_synced("/kept", BYTES, 37);
	CHECK_EQ(run_sheaf("backup", backup, NULL), 0);
	make_synced("/kept", BYTES, 38);
	fill(a, "/kept", BYTES, 38);
	stat_until_found(a, "/kept", &st);
	CHECK_EQ(sheaf_chmod(writer, "/kept", 0600), 0);
	sheaf_disconnect(a);
	sheaf_disconnect(writer);
	cluster_stop(&c);
	CHECK_EQ(run_sheaf("restore", backup, "--force"), 0);
	cluster_start(&c);
	writer = client_connect(c.conf);
	a = banked_client("always");
	for (uint64_t i = 0; i < 3; i++) {
		make_synced("/kept", BYTES, 39 + i);
		check_reads(a, "/kept", BYTES, 39 + i, 30);
		CHECK_EQ(sheaf_chmod(writer, "/kept", (mode_t)(0640 + i)), 0);
		CHECK(WITHIN(PATIENCE_S,
			     sheaf_stat(a, "/kept", &st) == 0 && (st.st_mode & 07777) == 0640 + i));
	}
	sheaf_disconnect(a);
}

/* ---- the fixture ---- */

static bool is_installed(void)
{
	return system("command -v memcached >/dev/null 2>&1") == 0;
}

static void begin(void)
{
	char more[256], key[CLUSTER_PATH + 16], err[512], *text, *whole;

	cluster_create(&c, &(struct cluster_opts){ .servers = 3, .timeout = 20 });
	port = free_ports(DAEMONS);
	snprintf(
		more, sizeof(more),
		"\n[bank]\ntimeout_ms = 100\nattributes = 60\nservers = 127.0.0.1:%u 127.0.0.1:%u\n",
		port, port + 1); /* 100 ms: other processes may have the processors for some ms */
	text = read_text(c.conf);
	whole = malloc(strlen(text) + sizeof(more));
	sprintf(whole, "%s%s", text, more);
	write_text(c.conf, whole);
	free(text);
	free(whole);
	snprintf(key, sizeof(key), "%s/bank.key", c.dir);
	CHECK_EQ(key_create(key, err, sizeof(err)), 0);
	for (int i = 0; i < DAEMONS; i++)
		daemon_start(i);
	cluster_start(&c);
	setenv("SHEAF_BANK", "off", 1);
	writer = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(writer);
	cluster_stop(&c);
	for (int i = 0; i < DAEMONS; i++)
		daemon_kill(i);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(what_one_client_read_others_find),
		TEST(lists_and_ends_of_files_are_read),
		TEST(no_open_sees_an_older_state),
		TEST(a_client_sees_its_own_writes_and_those_of_lock_holders),
		TEST(opens_of_a_file_leave_the_bank_together),
		TEST(a_daemon_that_is_not_there_makes_no_read_wait),
		TEST(a_file_with_a_writer_is_not_asked_for),
		TEST(bad_values_are_misses),
		TEST(daemons_that_die_or_stop_change_no_result),
		TEST(clients_without_the_key_do_without_the_bank),
		TEST(without_a_wish_the_client_measures),
		TEST(counters_and_times_can_be_read),
		TEST(directories_choose_what_is_cached),
		TEST(stats_are_found_in_the_bank),
		TEST(small_files_come_with_their_attributes),
		TEST(changes_of_others_are_seen_within_two_seconds),
		TEST(the_metadata_server_tells_of_changes),
		TEST(own_changes_are_seen_at_once),
		TEST(no_user_sees_what_the_server_refuses),
		TEST(attributes_can_be_left_out),
		TEST(clients_that_name_different_daemons_read_right),
		TEST(values_above_the_limit_of_a_daemon_are_left_out),
		TEST(another_file_system_finds_nothing),
		TEST(old_attributes_are_refused),
		TEST(servers_fill_what_was_written),
		TEST(a_restored_metadata_server_finds_no_older_entries),
	};

	if (!is_installed())
		SKIP_ALL("memcached is not installed");
	return sys_run(NULL, begin, end, tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
