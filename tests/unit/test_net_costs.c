/* The choice of a mover: always the cheapest one by the costs that were measured on its link. */
#include "net/costs.h"
#include "test.h"

static uint64_t rng = 1;

static uint64_t below(uint64_t n)
{
	return test_random(&rng) % n;
}

/* Costs of some host: each up to ten times higher or lower than usual. */
static struct net_costs some_costs(void)
{
	struct net_costs all[N_MEDIA], c;
	double *v[] = { &c.call, &c.byte,   &c.copy,	     &c.gather,	      &c.scatter,
			&c.pack, &c.unpack, &c.work_request, &c.registration, &c.page };

	net_costs_usual(all);
	c = all[MEDIUM_TCP];
	if (below(2)) { /* a network card */
		c.work_request = 100;
		c.registration = 20000;
		c.page = 90;
	}
	for (size_t i = 0; i < ARRAY_LEN(v); i++)
		*v[i] *= (double)(10 + below(991)) / 100;
	return c;
}

struct transfer {
	bool write;
	uint64_t segments, bytes, room;
};

static struct transfer some_transfer(void)
{
	struct transfer t = { .write = below(2),
			      .segments = 1 + below(2048),
			      .room = below(65537) };

	t.bytes = t.segments * (1 + below(below(2) ? 256 : 65536));
	return t;
}

static enum net_method choose(const struct net_costs *c, const struct transfer *t)
{
	return net_choose(c, t->write, t->segments, t->bytes, t->room);
}

static double cost(const struct net_costs *c, enum net_method how, const struct transfer *t)
{
	return net_cost(c, how, t->write, t->segments, t->bytes);
}

static void the_cheapest_mover_is_chosen(void)
{
	for (int i = 0; i < 100000; i++) {
		struct net_costs c = some_costs();
		struct transfer t = some_transfer();
		double chosen = cost(&c, choose(&c, &t), &t);

		CHECK(chosen <= cost(&c, METHOD_GATHER, &t));
		CHECK(t.segments == 1 || chosen <= cost(&c, METHOD_PACK, &t));
		CHECK(t.bytes > t.room || chosen <= cost(&c, METHOD_INLINE, &t));
	}
}

static void data_travel_inside_a_message_only_if_they_fit(void)
{
	for (int i = 0; i < 100000; i++) {
		struct net_costs c = some_costs();
		struct transfer t = some_transfer();

		if (choose(&c, &t) == METHOD_INLINE)
			CHECK(t.bytes <= t.room);
	}
}

static void one_piece_is_never_packed(void)
{
	for (int i = 0; i < 10000; i++) {
		struct net_costs c = some_costs();
		struct transfer t = some_transfer();

		t.segments = 1;
		CHECK(choose(&c, &t) != METHOD_PACK);
	}
}

/* A host that is slower in everything chooses alike. */
static void only_the_proportions_of_the_costs_matter(void)
{
	for (int i = 0; i < 10000; i++) {
		struct net_costs c = some_costs(), slow = c;
		struct transfer t = some_transfer();
		double *v[] = { &slow.call,	    &slow.byte, &slow.copy,   &slow.gather,
				&slow.scatter,	    &slow.pack, &slow.unpack, &slow.work_request,
				&slow.registration, &slow.page };

		for (size_t k = 0; k < ARRAY_LEN(v); k++)
			*v[k] *= 4; /* exact: the sums have the same digits */
		CHECK_EQ(choose(&c, &t), choose(&slow, &t));
	}
}

/* Below some size of a piece packing is cheaper, above it gathering, whatever the number. */
static void larger_pieces_are_not_packed_where_smaller_ones_are_not(void)
{
	for (int i = 0; i < 10000; i++) {
		struct net_costs c = some_costs();
		struct transfer t = some_transfer();
		bool gathers = false;

		c.page = 0; /* a card whose pages cost more than copies always packs */

		for (uint64_t size = 8; size <= 65536; size *= 2) {
			t.bytes = t.segments * size;
			t.room = 0;
			if (gathers)
				CHECK_EQ(choose(&c, &t), METHOD_GATHER);
			gathers = choose(&c, &t) == METHOD_GATHER;
		}
	}
}

static void the_costs_are_measured_once(void)
{
	struct net_costs a[N_MEDIA], b[N_MEDIA];

	net_costs_measure(a);
	net_costs_measure(b);
	CHECK(memcmp(a, b, sizeof(a)) == 0);
	for (int i = 0; i < N_MEDIA; i++) {
		CHECK(a[i].call > 0 && a[i].byte > 0 && a[i].copy > 0);
		CHECK(a[i].pack > 0 && a[i].unpack > 0 && a[i].gather >= 0 && a[i].scatter >= 0);
		CHECK(a[i].work_request == 0 && a[i].registration == 0 && a[i].page == 0);
	}
}

static void registrations_and_work_requests_count_for_gathering_only(void)
{
	struct net_costs all[N_MEDIA], c;

	net_costs_usual(all);
	c = all[MEDIUM_TCP];
	CHECK_EQ(net_choose(&c, false, 4, 1 << 20, 0), METHOD_GATHER);
	c.registration = 1e6;
	CHECK_EQ(net_choose(&c, false, 4, 1 << 20, 0), METHOD_PACK);
	c.registration = 0;
	c.work_request = 1e6;
	CHECK_EQ(net_choose(&c, true, 4, 1 << 20, 0), METHOD_PACK);
	c.work_request = 0;
	c.page = 1e4;
	CHECK_EQ(net_choose(&c, true, 4, 1 << 20, 0), METHOD_PACK);
}

TEST_MAIN(TEST(the_cheapest_mover_is_chosen), TEST(data_travel_inside_a_message_only_if_they_fit),
	  TEST(one_piece_is_never_packed), TEST(only_the_proportions_of_the_costs_matter),
	  TEST(larger_pieces_are_not_packed_where_smaller_ones_are_not),
	  TEST(the_costs_are_measured_once),
	  TEST(registrations_and_work_requests_count_for_gathering_only))
