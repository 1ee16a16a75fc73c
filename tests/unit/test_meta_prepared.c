/* Parts of changes over two servers, with a restart between prepare and finish. */
#include "meta/meta_schema.h"
#include "metadb.h"

static struct metadb f;

/* Prepares a new directory of user 7 whose entry is on another server. */
static uint64_t prepare_new(uint64_t pair)
{
	struct wire_new_attr set = { .which = SET_UID, .uid = 7 };
	struct wire_record part = rec_on(&f, PART_NEW, (struct wire_handle){ 0 });

	part.n_set = 1;
	part.set = &set;

	part.mode = 0755;
	part.dir = metadb_root;
	part.which = S_IFDIR | 0755;
	return metadb_hold(&f, pair, &part);
}

static void the_number_of_a_prepared_directory_is_not_reused(void)
{
	struct wire_handle made;
	uint64_t ino;

	metadb_start(&f);
	ino = prepare_new(7);
	metadb_reopen(&f);
	made = metadb_make(&f, REC_CREATE, metadb_root, "file");
	CHECK(made.ino > ino);
	metadb_finish(&f, 7, REC_COMMIT);
	CHECK(S_ISDIR(metadb_node(&f, (struct wire_handle){ ino, 1 }).attr.mode));
	CHECK_EQ(metadb_node(&f, (struct wire_handle){ ino, 1 }).attr.uid, 7);
	CHECK(S_ISREG(metadb_node(&f, made).attr.mode));
	metadb_end(&f);
}

/* While the move of a directory is prepared, its ancestors are not known. */
static void a_climb_waits_for_a_directory_that_moves(void)
{
	struct wire_handle a, b, child, at;
	struct wire_record part;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	b = metadb_make(&f, REC_MKDIR, metadb_root, "b");
	child = metadb_make(&f, REC_MKDIR, a, "child");
	at = child;
	CHECK_EQ(meta_climb(f.m, b.ino, &at), CLIMB_ROOT);
	part = rec_on(&f, PART_MOVE, a);
	part.dir = b;
	part.flags = PART_PARENT;
	metadb_hold(&f, 7, &part);
	at = child;
	CHECK_EQ(meta_climb(f.m, b.ino, &at), -EINPROGRESS);
	at = b;
	CHECK_EQ(meta_climb(f.m, a.ino, &at), CLIMB_ROOT);
	metadb_finish(&f, 7, REC_COMMIT);
	at = child;
	CHECK_EQ(meta_climb(f.m, b.ino, &at), CLIMB_MET);
	metadb_end(&f);
}

/* A damaged tree with a cycle: the climb returns to its start, so that the coordinator can end
 * it. */
static void a_climb_in_a_circle_comes_back(void)
{
	struct wire_handle a, b, other, at;
	struct wire_record r;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	b = metadb_make(&f, REC_MKDIR, a, "b");
	other = metadb_make(&f, REC_MKDIR, metadb_root, "other");
	r = rec_name(&f, REC_RENAME, metadb_root, "a");
	r.dir2 = b;
	r.name2 = wire_text("a");
	r.flags = REC_CLIMBED;
	r.h = a;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	at = b;
	CHECK_EQ(meta_climb(f.m, other.ino, &at), CLIMB_ON);
	CHECK(at.ino == a.ino || at.ino == b.ino);
	CHECK_EQ(meta_climb(f.m, a.ino, &at), CLIMB_MET);
	metadb_end(&f);
}

/* A directory with held names is not listed until the change is finished. Other directories are. */
static void a_listing_waits_for_names_that_are_held(void)
{
	struct wire_record part = rec_on(&f, PART_ADD, (struct wire_handle){ 5, 1 });
	struct wire_readdir_args ask = { .dir = metadb_root, .max = 10 };
	struct wire_readdir_res res;
	struct wire_handle a;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	part.dir = metadb_root;
	part.name = wire_text("new");
	part.mode = S_IFREG;
	metadb_hold(&f, 7, &part);
	CHECK_EQ(meta_readdir(f.m, &ask, 4096, &res, &f.arena), -EINPROGRESS);
	ask.dir = a;
	CHECK_EQ(meta_readdir(f.m, &ask, 4096, &res, &f.arena), 0);
	ask.dir = metadb_root;
	metadb_finish(&f, 7, REC_COMMIT);
	CHECK_EQ(meta_readdir(f.m, &ask, 4096, &res, &f.arena), 0);
	CHECK_EQ(res.n_entries, 2);
	metadb_end(&f);
}

TEST_MAIN(TEST(the_number_of_a_prepared_directory_is_not_reused),
	  TEST(a_climb_waits_for_a_directory_that_moves), TEST(a_climb_in_a_circle_comes_back),
	  TEST(a_listing_waits_for_names_that_are_held))
