#include "acl_list.h"

void acl_add(struct list_acl *a, unsigned tag, unsigned perm, uint32_t id)
{
	a->e[a->n++] = (struct ace){ (uint16_t)tag, (uint16_t)perm, id };
}

struct acl_bytes acl_bytes(const struct list_acl *a)
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

void acl_random(struct list_acl *a, uint32_t (*rnd)(uint32_t n), uint32_t (*id)(uint32_t i))
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

struct acl_bytes acl_sample(void)
{
	struct list_acl a = { 0 };

	acl_add(&a, A_OWNER, 7, UINT32_MAX);
	acl_add(&a, A_USER, 5, 1001);
	acl_add(&a, A_GROUP_OBJ, 5, UINT32_MAX);
	acl_add(&a, A_MASK, 7, UINT32_MAX);
	acl_add(&a, A_OTHER, 1, UINT32_MAX);
	return acl_bytes(&a);
}

struct ace *acl_entry(struct list_acl *a, unsigned tag)
{
	for (unsigned i = 0; i < a->n; i++)
		if (a->e[i].tag == tag)
			return &a->e[i];
	return NULL;
}

unsigned acl_perm(struct list_acl *a, unsigned tag, unsigned otherwise)
{
	return acl_entry(a, tag) ? acl_entry(a, tag)->perm : otherwise;
}

unsigned acl_shows(struct list_acl *a)
{
	return acl_perm(a, A_OWNER, 0) << 6 |
	       acl_perm(a, A_MASK, acl_perm(a, A_GROUP_OBJ, 0)) << 3 | acl_perm(a, A_OTHER, 0);
}
