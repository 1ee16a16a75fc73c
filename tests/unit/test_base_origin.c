/* IP networks and their addresses; the origins whose root is squashed to nobody. */
#include "base/base.h"

#include <arpa/inet.h>

#include "test.h"

static struct origin from(const char *text)
{
	struct origin o = { { 0 }, false };
	struct ip_net n;

	CHECK_EQ(ip_net_parse(&n, text), 0);
	memcpy(o.addr, n.addr, sizeof(o.addr));
	return o;
}

static bool holds(const char *net, const char *addr)
{
	struct origin o = from(addr);
	struct ip_net n;

	CHECK_EQ(ip_net_parse(&n, net), 0);
	return ip_net_holds(&n, &o);
}

static void a_network_holds_its_addresses_and_no_others(void)
{
	CHECK(holds("192.0.2.0/24", "192.0.2.0"));
	CHECK(holds("192.0.2.0/24", "192.0.2.255"));
	CHECK(!holds("192.0.2.0/24", "192.0.3.0"));
	CHECK(holds("10.0.0.0/8", "10.255.1.2"));
	CHECK(!holds("10.0.0.0/8", "11.0.0.1"));
	CHECK(holds("10.128.0.0/9", "10.200.0.1"));
	CHECK(!holds("10.128.0.0/9", "10.127.0.1"));
	CHECK(holds("192.0.2.7", "192.0.2.7"));
	CHECK(!holds("192.0.2.7", "192.0.2.6"));
	CHECK(holds("0.0.0.0/0", "8.8.8.8"));
	CHECK(!holds("0.0.0.0/0", "2001:db8::1"));
	CHECK(holds("2001:db8::/32", "2001:db8:ffff::1"));
	CHECK(!holds("2001:db8::/32", "2001:db9::"));
	CHECK(holds("2001:db8::8/125", "2001:db8::f"));
	CHECK(!holds("2001:db8::8/125", "2001:db8::10"));
	CHECK(holds("::/0", "192.0.2.1") && holds("::/0", "fe80::1"));
	CHECK(holds("192.0.2.0/24", "::ffff:192.0.2.9")); /* an IPv4-mapped IPv6 address */
}

static void what_is_not_a_network_is_refused(void)
{
	static const char *const bad[] = { "",
					   "/",
					   "/8",
					   "10.0.0.0/",
					   "10.0.0.0/33",
					   "10.0.0.1/24",
					   "10.0.0.0/8x",
					   "10.0.0/8",
					   "::1/129",
					   "2001:db8::1/64",
					   "host",
					   "1.2.3.4/ 8",
					   "1.2.3.4/-1",
					   "1.2.3.4/+8",
					   "1.2.3.4.5",
					   "11111111111111111111111111111111111111111111111111/8" };
	struct ip_net n;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_EQ(ip_net_parse(&n, bad[i]), -EINVAL);
}

static void root_is_root_here_and_where_it_is_trusted(void)
{
	static struct conf c;
	struct origin here = { { 0 }, true }, near = from("192.0.2.9"), far = from("198.51.100.1");

	CHECK(!conf_squashes(&c, &here));
	CHECK(conf_squashes(&c, &near) && conf_squashes(&c, &far));
	CHECK_EQ(ip_net_parse(&c.trust[c.n_trust++], "192.0.2.0/24"), 0);
	CHECK(!conf_squashes(&c, &here) && !conf_squashes(&c, &near) && conf_squashes(&c, &far));
	CHECK_EQ(ip_net_parse(&c.squash[c.n_squash++], "192.0.2.9"), 0);
	CHECK(conf_squashes(&c, &near)); /* squash has priority over trust */
	near = from("192.0.2.8");
	CHECK(!conf_squashes(&c, &near));
	here = from("127.0.0.1");
	here.local = true;
	CHECK(!conf_squashes(&c, &here));
	CHECK_EQ(ip_net_parse(&c.squash[c.n_squash++], "127.0.0.0/8"), 0);
	CHECK(conf_squashes(&c, &here));
}

static void an_origin_has_a_name(void)
{
	struct origin o = from("192.0.2.9");
	char text[ORIGIN_TEXT];

	origin_format(text, &o);
	CHECK_STR(text, "192.0.2.9");
	o = from("2001:db8::1");
	origin_format(text, &o);
	CHECK_STR(text, "2001:db8::1");
	o.local = true;
	origin_format(text, &o);
	CHECK_STR(text, "this host");
}

TEST_MAIN(TEST(a_network_holds_its_addresses_and_no_others), TEST(what_is_not_a_network_is_refused),
	  TEST(root_is_root_here_and_where_it_is_trusted), TEST(an_origin_has_a_name))
