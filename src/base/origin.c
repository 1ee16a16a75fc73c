/* Addresses and networks: where a client comes from, and whether a network contains it. */
#include "base/base.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff }; /* prefix of an IPv4 address */

void origin_format(char out[ORIGIN_TEXT], const struct origin *o)
{
	bool v4 = memcmp(o->addr, mapped, sizeof(mapped)) == 0;

	if (o->local)
		snprintf(out, ORIGIN_TEXT, "this host");
	else if (!inet_ntop(v4 ? AF_INET : AF_INET6, o->addr + (v4 ? 12 : 0), out, ORIGIN_TEXT))
		out[0] = 0;
}

/* The first `bits` of a and b are the same. */
static bool same_bits(const uint8_t a[16], const uint8_t b[16], unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	return memcmp(a, b, whole) == 0 && (!rest || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

int ip_net_parse(struct ip_net *n, const char *text)
{
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);
	uint8_t masked[16] = { 0 };
	char host[INET6_ADDRSTRLEN], *end;
	unsigned long bits;
	bool v4;

	if (len >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = 0;
	v4 = inet_pton(AF_INET, host, n->addr + 12) == 1;
	if (v4)
		memcpy(n->addr, mapped, sizeof(mapped));
	else if (inet_pton(AF_INET6, host, n->addr) != 1)
		return -EINVAL;
	bits = v4 ? 32 : 128;
	if (slash) {
		unsigned long most = bits;

		bits = strtoul(slash + 1, &end, 10);
		if (!isdigit((unsigned char)slash[1]) || *end || bits > most)
			return -EINVAL;
	}
	n->bits = (uint8_t)(bits + (v4 ? 96 : 0));
	for (unsigned i = 0; i < n->bits; i++)
		masked[i / 8] |= n->addr[i / 8] & (0x80 >> i % 8);
	return memcmp(masked, n->addr, sizeof(masked)) == 0 ? 0 : -EINVAL;
}

bool ip_net_holds(const struct ip_net *n, const struct origin *o)
{
	return same_bits(n->addr, o->addr, n->bits);
}
