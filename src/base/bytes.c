/* Hexadecimal text, human-readable sizes, UUIDs. */
#include "base/base.h"

#include <ctype.h>
#include <stdio.h>

void hex_encode(char *out, const void *p, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++) {
		*out++ = digits[b[i] >> 4];
		*out++ = digits[b[i] & 15];
	}
	*out = 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes exactly 2n digits to n bytes; ignores what follows. */
static int hex_bytes(uint8_t *out, size_t n, const char *hex)
{
	for (size_t i = 0; i < n; i++) {
		int hi = hex_digit(hex[2 * i]);
		int lo = hi < 0 ? -1 : hex_digit(hex[2 * i + 1]);

		if (lo < 0)
			return -EINVAL;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return 0;
}

int hex_decode(void *out, size_t n, const char *hex)
{
	if (hex_bytes(out, n, hex) < 0 || hex[2 * n])
		return -EINVAL;
	return 0;
}

/* The power of two of a unit: "", "B", "K", "KiB" and so on; or -1. Units of 1000 (KB) are refused,
 * since they are often meant as 1024. */
static int size_shift(const char *unit)
{
	static const char prefixes[] = "KMGTPE";
	const char *at;

	if (strcasecmp(unit, "") == 0 || strcasecmp(unit, "B") == 0)
		return 0;
	at = strchr(prefixes, toupper((unsigned char)unit[0]));
	if (!at || (unit[1] && strcasecmp(unit + 1, "iB") != 0))
		return -1;
	return 10 * (int)(at - prefixes + 1);
}

int parse_size(const char *s, uint64_t *out)
{
	uint64_t v = 0;
	int shift;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	for (; isdigit((unsigned char)*s); s++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	}
	while (*s == ' ')
		s++;
	shift = size_shift(s);
	if (shift < 0)
		return -EINVAL;
	if (v > UINT64_MAX >> shift)
		return -ERANGE;
	*out = v << shift;
	return 0;
}

void format_size(char *out, size_t n, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned u = 0;
	uint64_t tenths;

	while (u + 1 < ARRAY_LEN(units) && bytes >> (10 * (u + 1)))
		u++;
	if (u == 0) {
		snprintf(out, n, "%u B", (unsigned)bytes);
		return;
	}
	/* Rounded down to tenths, so that 1023.99 MiB never reads as 1024 MiB. */
	tenths = (bytes >> (10 * u)) * 10 + (((bytes >> (10 * (u - 1))) & 1023) * 10 >> 10);
	if (tenths % 10 == 0)
		snprintf(out, n, "%u %s", (unsigned)(tenths / 10), units[u]);
	else
		snprintf(out, n, "%u.%u %s", (unsigned)(tenths / 10), (unsigned)(tenths % 10),
			 units[u]);
}

/* 8-4-4-4-12 hexadecimal digits: bytes per group. */
static const uint8_t uuid_groups[] = { 4, 2, 2, 2, 6 };

void uuid_format(char out[UUID_TEXT], const struct uuid *u)
{
	const uint8_t *b = u->b;

	for (size_t i = 0; i < ARRAY_LEN(uuid_groups); i++) {
		if (i > 0)
			*out++ = '-';
		hex_encode(out, b, uuid_groups[i]);
		out += 2 * uuid_groups[i];
		b += uuid_groups[i];
	}
}

int uuid_parse(struct uuid *u, const char *s)
{
	struct uuid out;
	uint8_t *b = out.b;

	for (size_t i = 0; i < ARRAY_LEN(uuid_groups); i++) {
		if (i > 0 && *s++ != '-')
			return -EINVAL;
		if (hex_bytes(b, uuid_groups[i], s) < 0)
			return -EINVAL;
		s += 2 * uuid_groups[i];
		b += uuid_groups[i];
	}
	if (*s)
		return -EINVAL;
	*u = out;
	return 0;
}
