/* CRC-32C (Castagnoli, as in iSCSI): by instruction if the processor has one, else by table. Chosen
 * at the first call; two threads may both choose. */
#include "base/base.h"

#include <endian.h>
#include <stdatomic.h>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

typedef uint32_t crc_fn(uint32_t crc, const uint8_t *p, size_t n);

/* One nibble per step: 64 bytes of table instead of 8 KiB, since the table is hardly ever used. */
static uint32_t crc32c_table(uint32_t crc, const uint8_t *p, size_t n)
{
	static const uint32_t nibble[16] = {
		0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
		0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
		0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
	};

	while (n--) {
		crc ^= *p++;
		crc = (crc >> 4) ^ nibble[crc & 15];
		crc = (crc >> 4) ^ nibble[crc & 15];
	}
	return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_hard(uint32_t crc, const uint8_t *p,
							      size_t n)
{
	uint64_t c = crc, word;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&word, p, 8);
		c = __builtin_ia32_crc32di(c, word);
	}
	crc = (uint32_t)c;
	while (n--)
		crc = __builtin_ia32_crc32qi(crc, *p++);
	return crc;
}

static bool crc32c_has_hard(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
/* In assembly since gcc and clang name these builtins differently. */
static uint32_t crc32c_hard(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t word;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&word, p, 8);
		word = le64toh(word);
		__asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
	}
	for (; n > 0; n--, p++)
		__asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
			: "+r"(crc)
			: "r"((uint32_t)*p));
	return crc;
}

static bool crc32c_has_hard(void)
{
	return getauxval(AT_HWCAP) & HWCAP_CRC32;
}
#else
#define crc32c_hard crc32c_table
static bool crc32c_has_hard(void)
{
	return false;
}
#endif

uint32_t crc32c(uint32_t crc, const void *p, size_t n)
{
	static _Atomic(crc_fn *) chosen;
	crc_fn *fn = atomic_load_explicit(&chosen, memory_order_relaxed);

	if (!fn) {
		fn = crc32c_has_hard() ? crc32c_hard : crc32c_table;
		atomic_store_explicit(&chosen, fn, memory_order_relaxed);
	}
	return ~fn(~crc, p, n);
}
