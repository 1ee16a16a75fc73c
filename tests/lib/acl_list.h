/* Access control lists for tests: tags and permissions, and their encoding in the kernel's format
 * (setxattr(2) of system.posix_acl_access). The bytes are built here and not by the code under
 * test. */
#ifndef SHEAF_TEST_ACL_LIST_H
#define SHEAF_TEST_ACL_LIST_H

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

/* Adds an entry. */
void acl_add(struct list_acl *a, unsigned tag, unsigned perm, uint32_t id);

/* The list in the kernel's format. */
struct acl_bytes acl_bytes(const struct list_acl *a);

/* Builds a random valid list. id() returns the ids of its named users and groups. A mask is added
 * where a named entry requires one, and sometimes without need. */
void acl_random(struct list_acl *a, uint32_t (*rnd)(uint32_t n), uint32_t (*id)(uint32_t i));

/* A list with a named user. The mode that it shows is 0771. */
struct acl_bytes acl_sample(void);

/* The first entry with this tag, or NULL. */
struct ace *acl_entry(struct list_acl *a, unsigned tag);

/* The permissions of the entry with this tag; `otherwise` if there is none. */
unsigned acl_perm(struct list_acl *a, unsigned tag, unsigned otherwise);

/* The permission bits that the mode of a file with this list shows. */
unsigned acl_shows(struct list_acl *a);

#endif
