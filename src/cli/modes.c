/* Modes as chmod takes them, octal or symbolic. A pure function. */
#include "cli/cli.h"

#define ALL_BITS 07777

/* The mode bits of a class of users: u, g, o, a; or 0. */
static mode_t class_bits(char c)
{
	switch (c) {
	case 'u':
		return S_ISUID | 0700;
	case 'g':
		return S_ISGID | 0070;
	case 'o':
		return S_ISVTX | 0007;
	case 'a':
		return ALL_BITS;
	default:
		return 0;
	}
}

/* The mode bits of the letters after an operator, for all classes; advances *s behind them. */
static mode_t value_bits(const char **s, mode_t mode)
{
	static const int shift[] = { ['u'] = 6, ['g'] = 3, ['o'] = 0 };
	mode_t bits = 0;

	if (**s == 'u' || **s == 'g' || **s == 'o')
		return (mode >> shift[(int)*(*s)++] & 7) * 0111;
	for (;; ++*s) {
		if (**s == 'r')
			bits |= 0444;
		else if (**s == 'w')
			bits |= 0222;
		else if (**s == 'x')
			bits |= 0111;
		else if (**s == 'X')
			bits |= S_ISDIR(mode) || (mode & 0111) ? 0111 : 0;
		else if (**s == 's')
			bits |= S_ISUID | S_ISGID;
		else if (**s == 't')
			bits |= S_ISVTX;
		else
			return bits;
	}
}

/* One clause: classes, then operators with permissions. */
static int clause(const char **s, mode_t mask, mode_t *mode)
{
	mode_t who = 0, bits;
	char op;

	while (class_bits(**s))
		who |= class_bits(*(*s)++);
	mask = who ? 0 : mask;
	who = who ? who : ALL_BITS;
	do {
		op = **s;
		if (op != '+' && op != '-' && op != '=')
			return -EINVAL;
		++*s;
		bits = value_bits(s, *mode) & who & ~mask;
		if (op == '=')
			*mode &= ~(who & ~mask);
		*mode = op == '-' ? *mode & ~bits : *mode | bits;
	} while (**s == '+' || **s == '-' || **s == '=');
	return 0;
}

int cli_mode_parse(const char *text, mode_t old, mode_t mask, mode_t *out)
{
	mode_t mode = 0;
	int r;

	if (*text >= '0' && *text <= '7') {
		for (; *text >= '0' && *text <= '7' && mode <= ALL_BITS; text++)
			mode = mode * 8 + (mode_t)(*text - '0');
		*out = mode;
		return *text || mode > ALL_BITS ? -EINVAL : 0;
	}
	mode = old;
	for (;;) {
		r = clause(&text, mask, &mode);
		if (r)
			return r;
		if (*text != ',')
			break;
		text++;
	}
	*out = mode & ALL_BITS;
	return *text ? -EINVAL : 0;
}
