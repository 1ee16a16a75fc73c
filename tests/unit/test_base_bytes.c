/* CRC-32C, hexadecimal text, sizes, UUIDs, error texts. */
#include "base/base.h"

#include "test.h"

/* The definition of CRC-32C, bit by bit. */
static uint32_t crc32c_slow(uint32_t crc, const uint8_t *p, size_t n)
{
	crc = ~crc;
	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void crc32c_gives_the_published_values(void)
{
	uint8_t buf[32] = { 0 };

	CHECK_EQ(crc32c(0, "123456789", 9), 0xe3069283);
	CHECK_EQ(crc32c(0, buf, 32), 0x8a9136aa); /* RFC 3720, B.4 */
	memset(buf, 0xff, 32);
	CHECK_EQ(crc32c(0, buf, 32), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		buf[i] = (uint8_t)i;
	CHECK_EQ(crc32c(0, buf, 32), 0x46dd794e);
	CHECK_EQ(crc32c(0, NULL, 0), 0);
}

static void crc32c_continues_and_holds_at_any_alignment(void)
{
	uint8_t buf[300];
	uint64_t rnd = 7;

	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)test_random(&rnd);
	for (size_t at = 0; at < 9; at++) {
		for (size_t n = 0; n < sizeof(buf) - at; n++) {
			uint32_t want = crc32c_slow(0, buf + at, n);

			CHECK_EQ(crc32c(0, buf + at, n), want);
			CHECK_EQ(crc32c(crc32c(0, buf + at, n / 3), buf + at + n / 3, n - n / 3),
				 want);
		}
	}
}

static void hex_goes_both_ways(void)
{
	char text[9];
	uint8_t out[4];

	hex_encode(text, "\x00\x7f\xab\xff", 4);
	CHECK_STR(text, "007fabff");
	CHECK_EQ(hex_decode(out, 4, "007fABff"), 0);
	CHECK(memcmp(out, "\x00\x7f\xab\xff", 4) == 0);
	CHECK_EQ(hex_decode(out, 4, "007fabf"), -EINVAL);
	CHECK_EQ(hex_decode(out, 4, "007fabff0"), -EINVAL);
	CHECK_EQ(hex_decode(out, 4, "007fabfg"), -EINVAL);
	CHECK_EQ(hex_decode(out, 4, ""), -EINVAL);
	CHECK_EQ(hex_decode(out, 0, ""), 0);
}

static void check_size(const char *text, int rc, uint64_t want)
{
	uint64_t v = 12345;

	CHECK_EQ(parse_size(text, &v), rc);
	CHECK_EQ(v, rc ? 12345 : want);
}

static void sizes_are_parsed(void)
{
	check_size("0", 0, 0);
	check_size("4096", 0, 4096);
	check_size("64K", 0, 65536);
	check_size("64k", 0, 65536);
	check_size("1MiB", 0, 1 << 20);
	check_size("2 GiB", 0, UINT64_C(2) << 30);
	check_size("3T", 0, UINT64_C(3) << 40);
	check_size("12B", 0, 12);
	check_size("15E", 0, UINT64_C(15) << 60);
	check_size("18446744073709551615", 0, UINT64_MAX);
	check_size("18446744073709551616", -ERANGE, 0);
	check_size("16E", -ERANGE, 0);
	check_size("", -EINVAL, 0);
	check_size("K", -EINVAL, 0);
	check_size("-1", -EINVAL, 0);
	check_size(" 1", -EINVAL, 0);
	check_size("1.5G", -EINVAL, 0);
	check_size("64KB", -EINVAL, 0);
	check_size("64Kx", -EINVAL, 0);
	check_size("64X", -EINVAL, 0);
}

static void check_format(uint64_t v, const char *want)
{
	char text[32];

	format_size(text, sizeof(text), v);
	CHECK_STR(text, want);
}

static void sizes_are_formatted(void)
{
	check_format(0, "0 B");
	check_format(1023, "1023 B");
	check_format(1024, "1 KiB");
	check_format(1536, "1.5 KiB");
	check_format(UINT64_C(3) << 29, "1.5 GiB");
	check_format(UINT64_C(1) << 40, "1 TiB");
	check_format((UINT64_C(1) << 40) - 1, "1023.9 GiB");
	check_format(UINT64_MAX, "15.9 EiB");
}

static void uuids_go_both_ways(void)
{
	static const char text[] = "01234567-89ab-cdef-0123-456789abcdef";
	char out[UUID_TEXT];
	struct uuid u, before;

	CHECK_EQ(uuid_parse(&u, text), 0);
	CHECK_EQ(u.b[0], 0x01);
	CHECK_EQ(u.b[15], 0xef);
	uuid_format(out, &u);
	CHECK_STR(out, text);
	before = u;
	CHECK_EQ(uuid_parse(&u, "0123456-789ab-cdef-0123-456789abcdef"), -EINVAL);
	CHECK_EQ(uuid_parse(&u, "01234567-89ab-cdef-0123-456789abcdef0"), -EINVAL);
	CHECK_EQ(uuid_parse(&u, "01234567-89ab-cdef-0123-456789abcde"), -EINVAL);
	CHECK_EQ(uuid_parse(&u, "01234567089ab-cdef-0123-456789abcdef"), -EINVAL);
	CHECK_EQ(uuid_parse(&u, ""), -EINVAL);
	CHECK(memcmp(&u, &before, sizeof(u)) == 0);
}

static void errors_have_a_text_either_sign(void)
{
	CHECK_STR(error_text(ENOSPC), "no space left on a storage server");
	CHECK_STR(error_text(-ENOSPC), "no space left on a storage server");
	CHECK_STR(error_text(99999), "unknown error");
	CHECK_STR(error_text(INT32_MIN), "unknown error");
	for (int e = 0; e < 134; e++)
		CHECK(error_text(e)[0]);
}

TEST_MAIN(TEST(crc32c_gives_the_published_values),
	  TEST(crc32c_continues_and_holds_at_any_alignment), TEST(hex_goes_both_ways),
	  TEST(sizes_are_parsed), TEST(sizes_are_formatted), TEST(uuids_go_both_ways),
	  TEST(errors_have_a_text_either_sign))
