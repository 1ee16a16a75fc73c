/* File handles: (export, inode) with a MAC, so that a client can use only what it was given. The
 * key derives from the client key of the cluster and from the file system, so all gateways make and
 * accept the same handles, also after a restart.
 *
 *   0 version  1..3 zero  4 generation  8 inode  16 export  24 MAC (16 bytes) */
#include "nfs/nfs_priv.h"

#define HANDLE_VERSION 1
#define HANDLE_SIGNED 24
#define HANDLE_MAC 16

_Static_assert(HANDLE_SIGNED + HANDLE_MAC == HANDLE_BYTES, "the MAC ends the handle");
_Static_assert(HANDLE_BYTES <= NFS3_HANDLE_MAX, "clients take no longer ones");

struct handle {
	uint8_t version, zero[3];
	uint32_t gen;
	uint64_t ino, export;
	uint8_t mac[HANDLE_MAC];
};
_Static_assert(sizeof(struct handle) == HANDLE_BYTES, "no padding");

int handles_init(struct gateway *g, char *err, size_t err_len)
{
	static const char purpose[] = "sheaf nfs file handles";
	uint8_t secret[KEY_BYTES] = { 0 }, key[MAC_BYTES];
	char name[CONF_NAME_MAX];
	int r = key_choose(g->conf, name, secret, err, err_len);

	if (r)
		return r;
	mac_make(key, secret,
		 (struct mac_part[]){ { purpose, sizeof(purpose) },
				      { &g->conf->fs_id, sizeof(g->conf->fs_id) },
				      { NULL, 0 } });
	g->handle_key = mac_key(key);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(key, sizeof(key));
	return g->handle_key ? 0 : error_explain(err, err_len, -ENOMEM, "out of memory");
}

/* The number of an export in handles: its name's, so the order in the file does not matter. */
static uint64_t export_number(const struct conf_export *e)
{
	return hash_bytes(e->name, strlen(e->name), 0x6e6673);
}

static void sign(struct gateway *g, const struct handle *h, uint8_t mac[MAC_BYTES])
{
	mac_make_with(mac, g->handle_key, (struct mac_part[]){ { h, HANDLE_SIGNED }, { NULL, 0 } });
}

bool handle_make(struct nfs_call *c, const struct sheaf_handle *h, struct wire_bytes *out)
{
	struct handle *f = call_alloc(c, sizeof(*f));
	uint8_t mac[MAC_BYTES];

	if (!f)
		return false;
	f->version = HANDLE_VERSION;
	f->gen = htole32(h->gen);
	f->ino = htole64(h->ino);
	f->export = htole64(export_number(c->export));
	sign(c->g, f, mac);
	memcpy(f->mac, mac, HANDLE_MAC);
	*out = (struct wire_bytes){ sizeof(*f), (const uint8_t *)f };
	return true;
}

uint32_t handle_enter(struct nfs_call *c, const struct wire_bytes *wire, struct sheaf_handle *out)
{
	uint8_t mac[MAC_BYTES], given[MAC_BYTES];
	struct handle f;

	if (wire->len != sizeof(f))
		return NFS3_EBADHANDLE;
	memcpy(&f, wire->p, sizeof(f));
	if (f.version != HANDLE_VERSION)
		return NFS3_EBADHANDLE;
	sign(c->g, &f, mac);
	memcpy(given, mac, sizeof(given));
	memcpy(given, f.mac, HANDLE_MAC);
	if (!mac_equal(mac, given))
		return NFS3_EBADHANDLE;
	*out = (struct sheaf_handle){ le64toh(f.ino), le32toh(f.gen) };
	c->ino = out->ino;
	for (uint32_t i = 0; i < c->conf->conf->n_exports; i++)
		if (export_number(&c->conf->conf->exports[i]) == le64toh(f.export))
			return export_enter(c, &c->conf->conf->exports[i]);
	return NFS3_ESTALE; /* the export was removed */
}
