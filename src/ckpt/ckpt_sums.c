/* Checksums of four blocks side by side: an instruction takes three cycles, but one can begin in
 * each. Where the processor has no such instruction, one after the other. */
#include "ckpt/ckpt_impl.h"

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static void by_instruction(uint32_t out[4], const char *p)
{
	uint64_t a = UINT32_MAX, b = a, c = a, d = a, word[4];

	for (size_t at = 0; at < CKPT_BLOCK; at += 8) {
		memcpy(&word[0], p + at, 8);
		memcpy(&word[1], p + CKPT_BLOCK + at, 8);
		memcpy(&word[2], p + 2 * CKPT_BLOCK + at, 8);
		memcpy(&word[3], p + 3 * CKPT_BLOCK + at, 8);
		a = __builtin_ia32_crc32di(a, word[0]);
		b = __builtin_ia32_crc32di(b, word[1]);
		c = __builtin_ia32_crc32di(c, word[2]);
		d = __builtin_ia32_crc32di(d, word[3]);
	}
	out[0] = ~(uint32_t)a;
	out[1] = ~(uint32_t)b;
	out[2] = ~(uint32_t)c;
	out[3] = ~(uint32_t)d;
}

static bool has_instruction(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("sse4.2");
}
#else
static bool has_instruction(void)
{
	return false;
}

static void by_instruction(uint32_t out[4], const char *p)
{
	(void)out;
	(void)p;
}
#endif

void ckpt_sum_four(uint32_t out[4], const char *p)
{
	if (has_instruction()) {
		by_instruction(out, p);
		return;
	}
	for (size_t i = 0; i < 4; i++)
		out[i] = crc32c(0, p + i * CKPT_BLOCK, CKPT_BLOCK);
}
