/* Access control lists for tests: tags and permissions, and their encoding in the kernel's format
 * (setxattr(2) of system.posix_acl_access). The bytes are built here and not by the code under
 * test. */
#ifndef SHEAF_ACL_TEXT_H
#define SHEAF_ACL_TEXT_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ACCESS_ACL "system.posix_acl_access"
#define DEFAULT_ACL "system.posix_acl_default"

enum { A_OWNER = 1, A_USER = 2, A_GROUP_OBJ = 4, A_GROUP = 8, A_MASK = 16, A_OTHER = 32 };

struct ace {
	uint16_t tag, perm;
	uint32_t id;
};

struct list_acl {
	unsigned n;
	struct ace e[600];
};

struct acl_bytes {
	uint32_t len;
	uint8_t b[4 + 8 * 600];
};

static inline void acl_add(struct list_acl *a, unsigned tag, unsigned perm, uint32_t id)
{
	a->e[a->n++] = (struct ace){ (uint16_t)tag, (uint16_t)perm, id };
}

static inline struct acl_bytes acl_bytes(const struct list_acl *a)
{
	struct acl_bytes out = { .len = 4 + 8 * a->n };
	uint32_t version = htole32(2);

	memcpy(out.b, &version, 4);
	for (unsigned i = 0; i < a->n; i++) {
		uint8_t *p = out.b + 4 + (size_t)8 * i;
		uint16_t tag = htole16(a->e[i].tag), perm = htole16(a->e[i].perm);
		uint32_t id = htole32(a->e[i].id);

		memcpy(p, &tag, 2);
		memcpy(p + 2, &perm, 2);
		memcpy(p + 4, &id, 4);
	}
	return out;
}

/* Builds a random valid list. id() returns the ids of its named users and groups. A mask is added
 * where a named entry requires one, and sometimes without need. */
static inline void acl_some(struct list_acl *a, uint32_t (*rnd)(uint32_t n),
			    uint32_t (*id)(uint32_t i))
{
	uint32_t users = rnd(4), groups = rnd(4), first = rnd(8);

	a->n = 0;
	acl_add(a, A_OWNER, rnd(8), UINT32_MAX);
	for (uint32_t i = 0; i < users; i++)
		acl_add(a, A_USER, rnd(8), id(first + i));
	acl_add(a, A_GROUP_OBJ, rnd(8), UINT32_MAX);
	for (uint32_t i = 0; i < groups; i++)
		acl_add(a, A_GROUP, rnd(8), id(first + 2 * i));
	if (users || groups || rnd(4) == 0)
		acl_add(a, A_MASK, rnd(8), UINT32_MAX);
	acl_add(a, A_OTHER, rnd(8), UINT32_MAX);
}

/* A list with a named user. The mode that it shows is 0771. */
static inline struct acl_bytes acl_sample(void)
{
	struct list_acl a = { 0 };

	acl_add(&a, A_OWNER, 7, UINT32_MAX);
	acl_add(&a, A_USER, 5, 1001);
	acl_add(&a, A_GROUP_OBJ, 5, UINT32_MAX);
	acl_add(&a, A_MASK, 7, UINT32_MAX);
	acl_add(&a, A_OTHER, 1, UINT32_MAX);
	return acl_bytes(&a);
}

static inline struct ace *acl_entry(struct list_acl *a, unsigned tag)
{
	for (unsigned i = 0; i < a->n; i++)
		if (a->e[i].tag == tag)
			return &a->e[i];
	return NULL;
}

static inline unsigned acl_perm(struct list_acl *a, unsigned tag, unsigned otherwise)
{
	return acl_entry(a, tag) ? acl_entry(a, tag)->perm : otherwise;
}

/* The permission bits that the mode of a file with this list shows. */
static inline unsigned acl_shows(struct list_acl *a)
{
	return acl_perm(a, A_OWNER, 0) << 6 |
	       acl_perm(a, A_MASK, acl_perm(a, A_GROUP_OBJ, 0)) << 3 | acl_perm(a, A_OTHER, 0);
}

#endif
