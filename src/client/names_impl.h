/* Operations on names, and the referral cache. Private to src/client. */
#ifndef SHEAF_NAMES_IMPL_H
#define SHEAF_NAMES_IMPL_H

#include "client/client_impl.h"

/* ---- names.c ---- */
struct wire_place name_place(struct sheaf_handle dir, const char *path, bool follow);
/* To the server that owns the place, or the inode. `error` is reported by the operation, not
 * here. */
void name_start(struct cop *op, uint32_t number, struct wire_place *p, int error);
void inode_start(struct cop *op, uint32_t number, const struct wire_handle *h, int error);

/* ---- referrals.c ---- */
void referral_add(struct cop *op, const struct wire_place *p, const struct wire_referral *r,
		  uint64_t sent_at);
void referral_walk(struct cop *op, struct wire_place *p); /* as far as referrals are cached */
void referrals_forget(struct client *c);

#endif
