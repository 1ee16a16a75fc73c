/* Capabilities, and recorded data that are lost. Private to src/server. */
#ifndef SHEAF_SERVER_CAP_H
#define SHEAF_SERVER_CAP_H

#include "server/sreq.h"

/* ---- caps.c ---- */
void cap_make(const struct sreq *s, struct wire_capability *c, const struct meta_node *n,
	      uint32_t rights);
/* 0, -EKEYREJECTED (forged, or of another key), -EKEYEXPIRED (expired or fenced: fetch a fresh
 * one), -EACCES. */
int cap_check(struct sreq *s, const struct wire_capability *c, uint32_t rights);
int access_check(struct sreq *s, const struct wire_access *a, uint32_t rights); /* also -EINVAL */
/* Turns -ESTALE of the request into the error of cap_check(): a fence that was only on disk, or
 * that was set meanwhile, refused its capability. */
void cap_refused(struct sreq *s);
void cap_sign(const struct server *srv, const char *key, struct wire_capability *c);
/* A capability of this server itself, for calls to other targets. */
struct wire_capability cap_own(const struct server *srv, const struct meta_node *n,
			       uint32_t rights);

/* ---- damage.c: recorded data that are lost ---- */
static inline struct object_id object_of(const struct wire_access *a)
{
	return (struct object_id){ a->cap.ino, a->cap.obj_gen, a->index };
}
/* The object ends at `end`, before its recorded end: counts and logs that. Returns -EIO, or
 * -EKEYEXPIRED if the object was cut meanwhile. */
int object_damaged(struct sreq *s, const struct wire_access *a, uint64_t end);
/* If a read of these extents reaches into lost data: as object_damaged(); else 0. */
int read_damaged(struct sreq *s, const struct wire_access *a, const struct wire_extent *list,
		 uint32_t n, uint64_t end);
/* The same for a write that would leave zeros in place of lost data. A single extent that begins at
 * or before the end does not. */
int write_damaged(struct sreq *s, const struct wire_access *a, const struct wire_extent *list,
		  uint32_t n, uint64_t end);

#endif
