/* Parts of changes over two servers, over a restart between their two halves. */
#include "meta/meta_schema.h"
#include "meta_fake.h"

static struct fake f;

/* A directory whose name is on another server, as far as prepared. */
static uint64_t prepare_new(uint64_t pair)
{
	struct wire_record part = rec_on(&f, PART_NEW, (struct wire_handle){ 0 });
	struct wire_record r = rec_on(&f, REC_PREPARE, (struct wire_handle){ 0 });
	uint8_t bytes[PART_MAX];
	struct xdr x;

	part.mode = 0755;
	part.dir = fake_root;
	part.which = S_IFDIR | 0755;
	xdr_encoder(&x, bytes, sizeof(bytes));
	CHECK(xdr_wire_record(&x, &part));
	r.pair = pair;
	r.new_ino = meta_new_ino(f.m);
	r.data = (struct wire_bytes){ (uint32_t)xdr_used(&x), bytes };
	CHECK_EQ(fake_apply(&f, &r).status, 0);
	return r.new_ino;
}

static void the_number_of_a_prepared_directory_is_given_to_nobody_else(void)
{
	struct wire_record r;
	struct wire_handle made;
	uint64_t ino;

	fake_start(&f);
	ino = prepare_new(7);
	fake_reopen(&f);
	made = fake_make(&f, REC_CREATE, fake_root, "file");
	CHECK(made.ino > ino);
	r = rec_on(&f, REC_FINISH, (struct wire_handle){ 0 });
	r.pair = 7;
	r.flags = REC_COMMIT;
	CHECK_EQ(fake_apply(&f, &r).status, 0);
	CHECK(S_ISDIR(fake_node(&f, (struct wire_handle){ ino, 1 }).attr.mode));
	CHECK(S_ISREG(fake_node(&f, made).attr.mode));
	fake_end(&f);
}

TEST_MAIN(TEST(the_number_of_a_prepared_directory_is_given_to_nobody_else))
