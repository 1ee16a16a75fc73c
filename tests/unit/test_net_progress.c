/* What a client takes for progress of a request whose data move by RDMA. */
#include "net/rdma.h"
#include "test.h"

#define TAG 7
#define STEP ((uint64_t)CHUNK_MAX) /* fewer bytes are no progress, but for the last ones */
#define BYTES (4 * STEP + 100)

static struct loop loop;
static struct net net = { .loop = &loop };
static struct rdma_link rdma;
static struct link l;
static struct view view = { .length = BYTES };
static struct rdma_exposed exposed;
static struct net_desc desc;

static void begin(void)
{
	loop.now = 100;
	l = (struct link){ .net = &net, .rdma = &rdma };
	exposed = (struct rdma_exposed){ .desc = &desc, .length = BYTES };
	desc = (struct net_desc){ .tag = TAG, .view = &view, .impl = &exposed, .moved = 50 };
	list_init(&l.descs);
	list_push(&l.descs, &desc.link);
}

/* A WORKING frame arrives. Is it progress? */
static bool is_progress(uint64_t tag, uint64_t bytes)
{
	struct wire_frame_head h = { .kind = FRAME_WORKING, .tag = tag, .at = bytes };
	uint64_t before = desc.moved;

	loop.now++;
	rdma_working(&l, &h);
	CHECK(desc.moved == before || (desc.moved == loop.now && l.progress == loop.now));
	return desc.moved != before;
}

static void more_bytes_are_progress(void)
{
	begin();
	CHECK(is_progress(TAG, STEP));
	CHECK(is_progress(TAG, 4 * STEP));
	CHECK(is_progress(TAG, BYTES));
}

/* So a server that sends only such frames, and moves nothing, does not keep a call for ever. */
static void the_same_bytes_or_few_more_or_more_than_all_are_none(void)
{
	begin();
	CHECK(!is_progress(TAG, 0));
	CHECK(!is_progress(TAG, STEP - 1));
	CHECK(is_progress(TAG, STEP + 50));
	CHECK(!is_progress(TAG, STEP + 50));
	CHECK(!is_progress(TAG, STEP));
	CHECK(!is_progress(TAG, 2 * STEP + 49));
	CHECK(!is_progress(TAG, BYTES + 1));
	CHECK(!is_progress(TAG, UINT64_MAX));
	CHECK(is_progress(TAG, 2 * STEP + 50));
}

static void frames_for_other_memory_are_ignored(void)
{
	begin();
	CHECK(!is_progress(TAG + 1, STEP));
	CHECK(!is_progress(TAG | TAG_STREAM, STEP));
	desc.tag |= TAG_STREAM; /* it moves by TCP */
	CHECK(!is_progress(TAG | TAG_STREAM, STEP));
	desc.tag = TAG;
	l.rdma = NULL;
	CHECK(!is_progress(TAG, STEP));
}

TEST_MAIN(TEST(more_bytes_are_progress), TEST(the_same_bytes_or_few_more_or_more_than_all_are_none),
	  TEST(frames_for_other_memory_are_ignored))
