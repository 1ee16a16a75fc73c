/* The backup format: a head, a row for each metadata server, then their databases one after
 * another.
 *
 * Little-endian. Private to this folder. */
#ifndef SHEAF_BACKUP_FILE_H
#define SHEAF_BACKUP_FILE_H

#include "base/base.h"

#define BACKUP_MAGIC "SHEAFBK" /* with its NUL: 8 bytes */
#define BACKUP_VERSION 1

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a backup is not converted yet");

struct backup_head {
	char magic[8];
	uint32_t version, n_parts;
	uint8_t fs[16];
	int64_t time; /* ns since 1970: when the backup began */
	uint32_t zero;
	uint32_t crc; /* crc32c of all fields before it and of the rows */
};
_Static_assert(sizeof(struct backup_head) == 48, "backup");

struct backup_part {
	uint32_t target, partition, schema;
	uint32_t crc; /* crc32c of its bytes */
	uint64_t offset, size; /* in the file */
};
_Static_assert(sizeof(struct backup_part) == 32, "backup");

struct backup {
	struct backup_head head;
	struct backup_part parts[CONF_MAX_TARGETS];
};

uint32_t backup_crc(const struct backup *b);

#endif
