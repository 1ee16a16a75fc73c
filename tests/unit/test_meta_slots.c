/* Exactly-once execution, group commit, crashes, full databases, and what meta_open refuses. */
#include <fcntl.h>

#include "meta/meta_state.h"
#include "sheaf_handle.h"
#include "metadb.h"

static struct metadb f;

static void new_session(uint64_t id)
{
	struct wire_record r = rec_on(&f, REC_SESSION_NEW, metadb_root);

	r.session = id;
	memset(r.token, 's', sizeof(r.token));
	r.client = wire_text("host:1");
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
}

static struct wire_record on_slot(struct wire_record r, uint64_t session, uint32_t slot,
				  uint32_t seq)
{
	r.session = session;
	r.slot = slot;
	r.sequence = seq;
	return r;
}

static int replay(uint64_t session, uint32_t slot, uint32_t seq, struct wire_record_res *res)
{
	static const uint8_t digest[DIGEST_BYTES];

	return meta_replay(f.m, &(struct slot_key){ session, slot, seq, digest, NULL, 0 }, res,
			   &f.arena);
}

static void keep_session(void *arg, const struct meta_session *s)
{
	*(struct meta_session *)arg = *s;
}

static void sessions_are_durable(void)
{
	struct meta_session s = { .id = 0 };
	struct wire_record r;

	metadb_start(&f);
	new_session(77);
	new_session(77); /* the same session again */
	r = rec_on(&f, REC_SESSION_NEW, metadb_root);
	r.session = 77; /* with another secret */
	CHECK_EQ(metadb_apply(&f, &r).status, EEXIST);
	r.session = 0;
	CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	metadb_reopen(&f);
	CHECK_EQ(meta_each_session(f.m, keep_session, &s), 0);
	CHECK_EQ(s.id, 77);
	CHECK_EQ(s.secret[15], 's');
	CHECK_STR(s.client, "host:1");
	metadb_end(&f);
}

static void a_retry_gets_the_same_answer_and_has_no_second_effect(void)
{
	struct wire_record r, other;
	struct wire_record_res first, again;
	struct wire_handle at;

	metadb_start(&f);
	new_session(77);
	r = on_slot(rec_name(&f, REC_CREATE, metadb_root, "file"), 77, 3, 1);
	r.flags = REC_EXCL;
	first = metadb_apply(&f, &r);
	CHECK_EQ(first.status, 0);
	for (int i = 0; i < 2; i++) { /* before and after a restart */
		r.new_ino = meta_new_ino(f.m);
		again = metadb_apply(&f, &r);
		CHECK_EQ(again.status, 0);
		CHECK(again.created);
		CHECK_EQ(again.at.ino, first.at.ino);
		CHECK_EQ(again.layout.n_targets, 3);
		CHECK_EQ(again.layout.targets[2], 2);
		CHECK_EQ(metadb_node(&f, metadb_root).attr.size, 1);
		CHECK_EQ(replay(77, 3, 1, &again), 0);
		CHECK_EQ(again.at.ino, first.at.ino);
		CHECK_EQ(replay(77, 3, 2, &again), -ENOENT);
		CHECK_EQ(replay(77, 3, 0, &again), -EBADMSG);
		CHECK_EQ(replay(77, 4, 1, &again), -ENOENT);
		metadb_reopen(&f);
	}
	/* An unlink is retransmitted after the name was created again. */
	other = on_slot(rec_name(&f, REC_UNLINK, metadb_root, "file"), 77, 3, 2);
	CHECK_EQ(metadb_apply(&f, &other).status, 0);
	metadb_make(&f, REC_CREATE, metadb_root, "file");
	CHECK_EQ(metadb_apply(&f, &other).removed.ino, first.at.ino);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "file", &at), 0);
	/* The old sequence is not accepted any more. */
	CHECK_EQ(metadb_apply(&f, &r).status, EBADMSG);
	metadb_end(&f);
}

static void failures_are_stored_too(void)
{
	struct wire_record r;

	metadb_start(&f);
	new_session(1);
	r = on_slot(rec_name(&f, REC_UNLINK, metadb_root, "file"), 1, 0, 9);
	CHECK_EQ(metadb_apply(&f, &r).status, ENOENT);
	metadb_make(&f, REC_CREATE, metadb_root, "file");
	CHECK_EQ(metadb_apply(&f, &r).status, ENOENT);
	r.sequence++;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r = on_slot(rec_on(&f, 4711, metadb_root), 1, 0, 11);
	CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	metadb_end(&f);
}

/* ---- calls of gateways ---- */

static struct wire_record of_call(struct wire_record r, uint64_t number, uint32_t seq)
{
	r = on_slot(r, 1, 0, seq);
	memset(r.token, 'c', sizeof(r.token));
	memcpy(r.token, &number, sizeof(number));
	return r;
}

static int64_t f_now; /* of replay_call() */

static int replay_call(uint64_t number, struct wire_record_res *res)
{
	static const uint8_t digest[DIGEST_BYTES];
	uint8_t id[CALL_ID_BYTES];

	memset(id, 'c', sizeof(id));
	memcpy(id, &number, sizeof(number));
	return meta_replay(f.m, &(struct slot_key){ 9, 0, 1, digest, id, f_now }, res, &f.arena);
}

static void a_call_is_executed_once_whichever_session_repeats_it(void)
{
	struct wire_record_res first, again;
	struct wire_record r;

	metadb_start(&f);
	new_session(1);
	new_session(2);
	r = of_call(rec_name(&f, REC_CREATE, metadb_root, "file"), 1, 1);
	r.flags = REC_EXCL;
	first = metadb_apply(&f, &r);
	CHECK_EQ(first.status, 0);
	for (int i = 0; i < 2; i++) { /* before and after a restart */
		r.session = 2;
		r.sequence++;
		r.new_ino = meta_new_ino(f.m);
		again = metadb_apply(&f, &r);
		CHECK_EQ(again.status, 0);
		CHECK_EQ(again.at.ino, first.at.ino);
		CHECK_EQ(replay_call(1, &again), 0);
		CHECK_EQ(again.at.ino, first.at.ino);
		CHECK_EQ(replay_call(2, &again), -ENOENT);
		metadb_reopen(&f);
	}
	r = of_call(r, 2, 100); /* another call */
	r.session = 2;
	CHECK_EQ(metadb_apply(&f, &r).status, EEXIST);
	CHECK_EQ(replay_call(2, &again), -ENOENT); /* a refusal changed nothing, and is not kept */
	metadb_end(&f);
}

static void an_answer_to_a_call_ages(void)
{
	struct wire_record_res res;
	struct wire_record r;

	metadb_start(&f);
	new_session(1);
	r = of_call(rec_name(&f, REC_CREATE, metadb_root, "file"), 1, 1);
	r.flags = REC_EXCL;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	f_now = r.time + ANSWER_AGE;
	CHECK_EQ(replay_call(1, &res), 0);
	f_now++;
	CHECK_EQ(replay_call(1, &res), -ENOENT);
	f_now = 0;
	r.sequence++;
	r.time += ANSWER_AGE + 1; /* its client has restarted, and numbers its calls as before */
	CHECK_EQ(metadb_apply(&f, &r).status, EEXIST);
	r = of_call(rec_name(&f, REC_UNLINK, metadb_root, "file"), 1, 3);
	r.time += 2 * ANSWER_AGE;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	f_now = r.time + 1;
	CHECK_EQ(replay_call(1, &res), 0); /* the new answer replaces the old one */
	CHECK_EQ(res.created, 0);
	f_now = 0;
	metadb_end(&f);
}

static void the_oldest_answers_to_calls_go(void)
{
	struct wire_record_res res;
	struct wire_record r;

	metadb_start(&f);
	new_session(1);
	metadb_make(&f, REC_CREATE, metadb_root, "file");
	for (uint32_t i = 1; i <= ANSWERS_MAX + 10; i++) {
		r = rec_on(&f, REC_SETATTR, metadb_root);
		r.which = SHEAF_SET_ATIME;
		r = of_call(r, i, i);
		CHECK_EQ(metadb_apply(&f, &r).status, 0);
	}
	for (uint64_t i = 1; i <= 11; i++)
		CHECK_EQ(replay_call(i, &res), i <= 10 ? -ENOENT : 0);
	CHECK_EQ(replay_call(ANSWERS_MAX + 10, &res), 0);
	metadb_end(&f);
}

static void sequences_wrap_around(void)
{
	struct wire_record r;

	metadb_start(&f);
	new_session(1);
	r = on_slot(rec_name(&f, REC_UNLINK, metadb_root, "file"), 1, 0, UINT32_MAX);
	CHECK_EQ(metadb_apply(&f, &r).status, ENOENT);
	r.sequence = 0;
	CHECK_EQ(metadb_apply(&f, &r).status, ENOENT);
	r.sequence = UINT32_MAX;
	CHECK_EQ(metadb_apply(&f, &r).status, EBADMSG);
	metadb_end(&f);
}

static void the_end_of_a_session_takes_its_slots_and_no_others(void)
{
	struct wire_record r, end;

	metadb_start(&f);
	r = on_slot(rec_name(&f, REC_UNLINK, metadb_root, "x"), 2, 0, 1);
	CHECK_EQ(metadb_apply(&f, &r).status, ESTALE); /* no such session */
	for (uint64_t s = 1; s <= 3; s++)
		new_session(s);
	for (uint64_t s = 1; s <= 3; s++)
		for (uint32_t slot = 0; slot < 200; slot++) {
			r = on_slot(rec_name(&f, REC_UNLINK, metadb_root, "x"), s, slot, 1);
			CHECK_EQ(metadb_apply(&f, &r).status, ENOENT);
		}
	end = rec_on(&f, REC_SESSION_END, metadb_root);
	end.session = 2;
	CHECK_EQ(metadb_apply(&f, &end).status, 0);
	CHECK_EQ(metadb_apply(&f, &end).status, 0);
	for (uint32_t slot = 0; slot < 200; slot++) {
		struct wire_record_res res;

		CHECK_EQ(replay(1, slot, 1, &res), 0);
		CHECK_EQ(replay(2, slot, 1, &res), -ENOENT);
		CHECK_EQ(replay(3, slot, 1, &res), 0);
	}
	r = on_slot(rec_name(&f, REC_UNLINK, metadb_root, "x"), 2, 0, 2);
	CHECK_EQ(metadb_apply(&f, &r).status, ESTALE);
	metadb_end(&f);
}

#define MANY (metadb_mapped() ? MAPPED_CHANGES : 1000)
static struct call calls[1000];
static char names[1000][16];

static void submit_many(void)
{
	for (int i = 0; i < MANY; i++) {
		struct wire_record r;

		/* each name is used twice */
		snprintf(names[i], sizeof(names[i]), "f%d", i % (MANY / 2));
		r = rec_name(&f, REC_CREATE, metadb_root, names[i]);
		r.flags = REC_EXCL;
		call_submit(&f, &calls[i], &r);
		CHECK(!calls[i].done);
	}
}

static void many_records_are_one_transaction(void)
{
	struct wire_handle at;

	metadb_start(&f);
	submit_many();
	CHECK_EQ(metadb_lookup(&f, metadb_root, "f0", &at), -ENOENT);
	metadb_pump(&f);
	CHECK_EQ(f.n_jobs, 1);
	for (int i = 0; i < MANY; i++) {
		CHECK(calls[i].done);
		CHECK_EQ(calls[i].error, 0);
		CHECK_EQ(calls[i].c.res.status, i < MANY / 2 ? 0 : EEXIST);
	}
	CHECK_EQ(metadb_node(&f, metadb_root).attr.size, MANY / 2);
	metadb_end(&f);
}

static void retries_within_one_transaction_execute_once(void)
{
	struct wire_record r;

	metadb_start(&f);
	new_session(5);
	r = on_slot(rec_name(&f, REC_CREATE, metadb_root, "x"), 5, 0, 1);
	r.flags = REC_EXCL;
	for (int i = 0; i < 5; i++)
		call_submit(&f, &calls[i], &r);
	metadb_pump(&f);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(calls[i].c.res.status, 0);
		CHECK(calls[i].c.res.created);
	}
	CHECK_EQ(f.n_jobs, 2); /* one transaction for the session, one for all five */
	metadb_end(&f);
}

static void submitting_while_both_batches_are_out(void)
{
	struct job *first, *second;
	struct wire_record r;

	metadb_start(&f);
	for (int i = 0; i < 3; i++) {
		r = rec_name(&f, REC_CREATE, metadb_root, i == 0 ? "a" : i == 1 ? "b" : "c");
		call_submit(&f, &calls[i], &r);
		if (i == 0)
			first = metadb_run_one(&f);
		if (i == 1)
			second = metadb_run_one(&f);
	}
	CHECK(first && second && first != second);
	CHECK(list_empty(&f.worker.jobs)); /* c waits for the next batch */
	first->done(first);
	CHECK(!list_empty(&f.worker.jobs));
	second->done(second);
	metadb_pump(&f);
	for (int i = 0; i < 3; i++)
		CHECK(calls[i].done && calls[i].c.res.created);
	metadb_end(&f);
}

static void closing_finishes_what_is_queued(void)
{
	struct wire_handle at;

	metadb_start(&f);
	submit_many();
	meta_close(f.m);
	f.m = NULL;
	loop_run_ready(&f.loop);
	for (int i = 0; i < MANY; i++)
		CHECK(calls[i].done);
	CHECK_EQ(metadb_open(&f), 0);
	CHECK_EQ(metadb_lookup(&f, metadb_root, names[MANY / 2 - 1], &at), 0);
	metadb_end(&f);
}

/* Ends requests that were never answered. */
static void forget_calls(int n)
{
	for (int i = 0; i < n; i++) {
		calls[i].q.pending = 0;
		req_fini(&calls[i].q);
	}
}

static void a_crash_before_the_commit_leaves_nothing(void)
{
	struct wire_handle at;

	metadb_start(&f);
	submit_many();
	meta_abandon(f.m);
	CHECK(list_empty(&f.loop.runnable));
	forget_calls(MANY);
	CHECK_EQ(metadb_open(&f), 0);
	for (int i = 0; i < MANY / 2; i++)
		CHECK_EQ(metadb_lookup(&f, metadb_root, names[i], &at), -ENOENT);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.size, 0);
	metadb_end(&f);
}

static void a_crash_after_the_commit_leaves_all(void)
{
	struct wire_handle at;
	uint64_t highest;

	metadb_start(&f);
	submit_many();
	CHECK(metadb_run_one(&f)); /* committed, but not answered */
	highest = calls[MANY / 2 - 1].c.rec.new_ino;
	meta_abandon(f.m);
	CHECK(list_empty(&f.loop.runnable));
	forget_calls(MANY);
	CHECK_EQ(metadb_open(&f), 0);
	for (int i = 0; i < MANY / 2; i++)
		CHECK_EQ(metadb_lookup(&f, metadb_root, names[i], &at), 0);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.size, MANY / 2);
	CHECK(meta_new_ino(f.m) > highest); /* a number is never reused */
	metadb_end(&f);
}

static void a_full_database_refuses_changes_and_recovers(void)
{
	int made = 0, refused = 0;
	struct wire_handle at;

	metadb_prepare(&f);
	f.o.map_bytes = 512 * KIB;
	CHECK_EQ(metadb_open(&f), 0);
	for (int round = 0; !refused; round++) {
		CHECK(round < 100);
		for (int i = 0; i < 100; i++) {
			struct wire_record r;

			snprintf(names[i], sizeof(names[i]), "%d-%d", round, i);
			r = rec_name(&f, REC_CREATE, metadb_root, names[i]);
			call_submit(&f, &calls[i], &r);
		}
		metadb_pump(&f);
		for (int i = 0; i < 100; i++) {
			bool full = calls[i].error || calls[i].c.res.status;

			CHECK(calls[i].done);
			CHECK(calls[i].error == 0 || calls[i].error == -ENOSPC);
			CHECK(calls[i].error || !full || calls[i].c.res.status == ENOSPC);
			refused += full;
			made += !full;
			CHECK_EQ(metadb_lookup(&f, metadb_root, names[i], &at), full ? -ENOENT : 0);
		}
	}
	CHECK(made > 100);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.size, made);
	f.o.map_bytes = 4 * MIB;
	metadb_reopen(&f);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.size, made);
	metadb_make(&f, REC_CREATE, metadb_root, "one more");
	metadb_end(&f);
}

/* The memory map of the database moves when it grows, so changes wait while a copy reads it. */
static void nothing_moves_under_a_copy(void)
{
	uint64_t bytes;
	int made = 0;

	metadb_start(&f);
	if (!f.m->space.mapped) {
		metadb_end(&f);
		return;
	}
	bytes = f.m->space.bytes;
	f.m->copies = 1;
	do {
		struct wire_record r;

		CHECK(made < 100000);
		snprintf(names[0], sizeof(names[0]), "%d", made);
		r = rec_name(&f, REC_CREATE, metadb_root, names[0]);
		call_submit(&f, &calls[0], &r);
		metadb_pump(&f);
		made += calls[0].done;
		if (calls[0].done)
			CHECK_EQ(calls[0].error, 0);
	} while (calls[0].done);
	CHECK(made > 1000);
	CHECK_EQ(f.m->space.bytes, bytes);
	f.m->copies = 0;
	writer_try_start(f.m);
	metadb_pump(&f);
	CHECK(calls[0].done);
	CHECK_EQ(calls[0].error, 0);
	CHECK(f.m->space.bytes > bytes);
	metadb_end(&f);
}

/* ---- what meta_open refuses ---- */

static void refused(int error, const char *says)
{
	f.m = NULL;
	CHECK_EQ(metadb_open(&f), error);
	CHECK(strstr(f.err, f.dir));
	CHECK(strstr(f.err, says));
}

static void strangers_are_refused(void)
{
	metadb_start(&f);
	meta_close(f.m);
	f.o.fs.b[0] ^= 1;
	refused(-EINVAL, "belongs to file system f5f5f5f5");
	f.o.fs.b[0] ^= 1;
	f.o.target = 4;
	refused(-EINVAL, "belongs to server 0, not 4");
	f.o.target = 0;
	f.o.root = false;
	f.o.partition = 2;
	refused(-EINVAL, "holds partition 0, not 2");
	f.o.root = true;
	refused(-EINVAL, "partition");
	f.o.partition = 0;
	CHECK_EQ(metadb_open(&f), 0);
	metadb_end(&f);
}

static void damage(off_t at, const char *with, size_t n)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/data.mdb", f.dir);
	fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	CHECK_EQ(pwrite(fd, with, n, at), (ssize_t)n);
	close(fd);
}

static void damaged_databases_are_refused(void)
{
	char zeros[8192] = { 0 };
	char path[128];

	metadb_start(&f);
	meta_close(f.m);
	damage(0, "this is no database at all", 27);
	damage(4096, "this is no database at all", 27);
	refused(-EIO, "damaged");
	memset(zeros, 0x5a, sizeof(zeros));
	damage(0, zeros, sizeof(zeros));
	refused(-EIO, "damaged");
	snprintf(path, sizeof(path), "%s/data.mdb", f.dir);
	CHECK_EQ(remove(path), 0);
	CHECK_EQ(metadb_open(&f), 0); /* a new database */
	metadb_end(&f);
}

static void a_cut_off_database_is_refused_and_does_not_kill(void)
{
	char path[128];

	metadb_start(&f);
	submit_many();
	metadb_pump(&f);
	meta_close(f.m);
	snprintf(path, sizeof(path), "%s/data.mdb", f.dir);
	CHECK_EQ(truncate(path, 8192), 0);
	refused(-EIO, "damaged");
	metadb_end(&f);
}

static void patch_schema_version(uint32_t version)
{
	char path[128], *p;
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/data.mdb", f.dir);
	fd = open(path, O_RDWR);
	CHECK(fd >= 0 && !fstat(fd, &st));
	p = malloc((size_t)st.st_size);
	CHECK_EQ(pread(fd, p, (size_t)st.st_size, 0), st.st_size);
	for (off_t i = 0; i + 12 < st.st_size; i++)
		if (!memcmp(p + i, "SHEAFMD", 8))
			CHECK_EQ(pwrite(fd, &version, 4, i + 8), 4);
	free(p);
	close(fd);
}

static void a_newer_schema_is_refused(void)
{
	metadb_start(&f);
	meta_close(f.m);
	patch_schema_version(SCHEMA_VERSION + 1);
	refused(-EPROTONOSUPPORT, "written by a newer Sheaf");
	patch_schema_version(SCHEMA_VERSION);
	CHECK_EQ(metadb_open(&f), 0);
	metadb_end(&f);
}

static void an_impossible_directory_is_named(void)
{
	metadb_prepare(&f);
	f.o.dir = "/proc/none/meta";
	CHECK(metadb_open(&f) < 0);
	CHECK(strstr(f.err, "/proc/none/meta"));
	f.m = NULL;
	metadb_end(&f);
}

/* ---- with a real thread ---- */

static void the_real_writer_thread_groups_what_comes_meanwhile(void)
{
	struct metadb metadb_dir;
	struct loop l;

	metadb_prepare(&f);
	metadb_dir = f; /* for the clean-up of its directory */
	CHECK_EQ(loop_init(&l, env_real()), 0);
	CHECK_EQ(meta_open(&l, &f.o, &f.m, f.err, sizeof(f.err)), 0);
	for (int i = 0; i < MANY; i++) {
		struct wire_record r;

		snprintf(names[i], sizeof(names[i]), "f%d", i);
		r = rec_name(&f, REC_CREATE, metadb_root, names[i]);
		memset(&calls[i], 0, sizeof(calls[i]));
		calls[i].f = &f;
		calls[i].c.rec = r;
		calls[i].c.arena = &f.arena;
		req_init(&calls[i].q, &l, &call_ops, 0);
		req_run(&calls[i].q);
		if (i % 100 == 0)
			loop_turn(&l, 0);
	}
	while (l.n_reqs)
		loop_turn(&l, 100 * NSEC_PER_MSEC);
	for (int i = 0; i < MANY; i++)
		CHECK(calls[i].done && !calls[i].error && calls[i].c.res.created);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.size, MANY);
	meta_close(f.m);
	loop_fini(&l);
	arena_destroy(&f.arena);
	metadb_dir.m = NULL;
	arena_init(&metadb_dir.arena, 0);
	metadb_end(&metadb_dir);
}

/* For notices of the cache bank. */
static void changes_beyond_the_list_are_counted(void)
{
	static struct touched t;
	struct db d = { .touched = &t };

	for (uint64_t i = 0; i < TOUCHED_MAX + 44; i++)
		db_touch(&d, i + 1, 7);
	CHECK_EQ(t.n, TOUCHED_MAX);
	CHECK_EQ(t.n_more, 44);
	CHECK_EQ(t.list[TOUCHED_MAX - 1].ino, TOUCHED_MAX);
	db_touch(&(struct db){ 0 }, 1, 7); /* no transaction is watched */
}

TEST_MAIN(TEST(changes_beyond_the_list_are_counted), TEST(sessions_are_durable),
	  TEST(a_retry_gets_the_same_answer_and_has_no_second_effect),
	  TEST(failures_are_stored_too), TEST(a_call_is_executed_once_whichever_session_repeats_it),
	  TEST(an_answer_to_a_call_ages), TEST(the_oldest_answers_to_calls_go),
	  TEST(sequences_wrap_around), TEST(the_end_of_a_session_takes_its_slots_and_no_others),
	  TEST(many_records_are_one_transaction), TEST(retries_within_one_transaction_execute_once),
	  TEST(submitting_while_both_batches_are_out), TEST(closing_finishes_what_is_queued),
	  TEST(a_crash_before_the_commit_leaves_nothing), TEST(a_crash_after_the_commit_leaves_all),
	  TEST(a_full_database_refuses_changes_and_recovers), TEST(nothing_moves_under_a_copy),
	  TEST(strangers_are_refused), TEST(damaged_databases_are_refused),
	  TEST(a_cut_off_database_is_refused_and_does_not_kill), TEST(a_newer_schema_is_refused),
	  TEST(an_impossible_directory_is_named),
	  TEST(the_real_writer_thread_groups_what_comes_meanwhile))
