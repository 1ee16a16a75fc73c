/* How many windows a link wants in flight, from the delays of the data that were pulled. */
#include "net/backend.h"
#include "test.h"

#define US 1000u

static struct loop loop;
static struct net net;
static struct link l;

static void begin(void)
{
	loop = (struct loop){ .now = NSEC_PER_SEC };
	net = (struct net){ .loop = &loop };
	l = (struct link){ .net = &net };
}

static void note_beside(uint64_t ns, int times, bool is_alone)
{
	for (int i = 0; i < times; i++)
		link_note_delay(&l, &(struct xfer){ .asked = loop.now - ns, .is_alone = is_alone });
}

static void note(uint64_t ns, int times)
{
	note_beside(ns, times, true);
}

static void a_near_link_keeps_the_usual_depth(void)
{
	begin();
	CHECK_EQ(link_round_trip(&l), 0);
	note(50 * US, 100);
	note(5000 * US, 100); /* its data wait for a processor */
	CHECK(!link_is_far(&l));
	CHECK_EQ(l.depth.windows, 0);
	CHECK_EQ(link_round_trip(&l), 50 * US);
}

static void a_far_link_gets_deeper_while_it_has_room(void)
{
	begin();
	note(1000 * US, 10);
	CHECK(link_is_far(&l));
	CHECK_EQ(l.depth.windows, 10);
	note(1900 * US, 10);
	CHECK_EQ(l.depth.windows, 20);
	note(3000 * US, 10); /* answers wait behind each other: it is full */
	CHECK_EQ(l.depth.windows, 20);
	note(5000 * US, 5);
	CHECK_EQ(l.depth.windows, 15);
	note(5000 * US, 50);
	CHECK_EQ(l.depth.windows, 0);
	note(1000 * US, 500);
	CHECK_EQ(l.depth.windows, 64);
}

static void a_route_that_becomes_longer_is_noticed(void)
{
	begin();
	note(1000 * US, 1);
	for (int i = 0; i < 30; i++) {
		loop.now += NSEC_PER_SEC;
		note(8000 * US, 1);
	}
	CHECK_EQ(link_round_trip(&l), 8000 * US);
	CHECK(l.depth.windows > 5);
}

/* Answers that wait behind others tell nothing of the distance, however long that lasts. */
static void a_queue_is_not_a_distance(void)
{
	begin();
	note(50 * US, 1);
	for (int i = 0; i < 100; i++) {
		loop.now += NSEC_PER_SEC;
		note_beside(5000 * US, 10, false);
	}
	CHECK_EQ(link_round_trip(&l), 50 * US);
	CHECK_EQ(l.depth.windows, 0);
}

static void a_unix_socket_is_near(void)
{
	begin();
	l.local_label[0] = 'l';
	note(5000 * US, 10);
	CHECK(!link_is_far(&l));
}

TEST_MAIN(TEST(a_near_link_keeps_the_usual_depth), TEST(a_far_link_gets_deeper_while_it_has_room),
	  TEST(a_route_that_becomes_longer_is_noticed), TEST(a_queue_is_not_a_distance),
	  TEST(a_unix_socket_is_near))
