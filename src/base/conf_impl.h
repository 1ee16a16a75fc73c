/* Shared by conf.c and conf_values.c. Private to base. */
#ifndef SHEAF_CONF_IMPL_H
#define SHEAF_CONF_IMPL_H

#include "base/base.h"

/* clang-format off */
enum { SECTION_NONE, SECTION_CLUSTER, SECTION_RDMA, SECTION_SERVER, SECTION_KEY, SECTION_NFS,
       SECTION_EXPORT, SECTION_BANK };
/* clang-format on */

/* A target while its section is parsed. */
struct conf_row {
	struct conf_target t;
	unsigned line; /* of its section */
	unsigned seen; /* bit set of its keys */
};

struct conf_parser {
	const char *file; /* as shown in messages */
	const char *p, *end;
	unsigned line;
	int section;
	unsigned cluster_line; /* 0: not seen yet */
	unsigned seen; /* bit set of keys of [cluster] */
	unsigned rdma_line, rdma_seen; /* the same of [rdma] */
	unsigned nfs_line, nfs_seen; /* the same of [nfs] */
	unsigned bank_line, bank_seen; /* the same of [bank] */
	struct conf *c;
	char folder[CONF_PATH_MAX]; /* base of relative paths, without a final slash */
	struct conf_row *rows;
	size_t n_rows;
	unsigned key_line, key_seen; /* of the current [key.NAME] */
	unsigned export_line, export_seen; /* of the current [export.NAME] */
	int error;
	char *err;
	size_t err_len;
};

/* Keeps the first message. Returns p->error. */
__attribute__((format(printf, 3, 4))) int conf_fail(struct conf_parser *p, unsigned line,
						    const char *fmt, ...);

static inline struct conf_export *conf_this_export(struct conf_parser *p)
{
	return &p->c->exports[p->c->n_exports - 1];
}

/* ---- conf_values.c ---- */

struct conf_key {
	const char *name;
	int (*set)(struct conf_parser *p, const struct conf_key *k, const char *v, void *out);
	size_t offset; /* of `out` in the struct of its section */
	const char *example; /* of a required key */
	uint32_t min, max; /* of a number */
};

struct conf_table {
	const struct conf_key *keys;
	size_t n;
};
extern const struct conf_table conf_cluster_keys, conf_rdma_keys, conf_server_keys, conf_key_keys,
	conf_nfs_keys, conf_export_keys, conf_bank_keys;

int conf_take_name(struct conf_parser *p, const struct conf_key *k, const char *v, void *out);
/* Makes a path relative to the file's folder absolute. */
int conf_take_path(struct conf_parser *p, const struct conf_key *k, const char *v, void *out);

#endif
