/* The cluster file: any text is either a valid cluster or one line of error. */
#include "base/base.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_cluster(const struct conf *c)
{
	unsigned roles = 0;

	assert(c->n_targets > 0 && c->n_targets <= CONF_MAX_TARGETS);
	assert(c->stripe_unit >= 4096 && c->stripe_unit % 4096 == 0);
	assert(c->key_file[0] == '/' && c->server_key_file[0] == '/');
	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct conf_target *t = &c->targets[i];

		assert(t->id == i && t->name[0] && strchr(t->address, ':') && t->storage[0] == '/');
		roles |= t->roles;
	}
	assert(roles == (ROLE_META | ROLE_DATA));
	assert(c->n_keys <= CONF_MAX_KEYS && c->n_trust <= CONF_MAX_NETS);
	for (uint32_t i = 0; i < c->n_keys; i++) {
		const struct client_key *k = &c->keys[i];

		assert(k->name[0] && k->file[0] == '/' && !k->loaded);
		assert(k->role.any ? !k->role.n_gids : k->role.n_gids > 0);
		assert(k->role.n_gids <= CONF_KEY_GIDS && conf_key_find(c, k->name) == k);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conf *c = NULL;
	char err[256] = "";
	int rc = conf_parse((const char *)data, size, "/c/sheaf.conf", &c, err, sizeof(err));

	if (rc == 0) {
		check_cluster(c);
		conf_free(c);
	} else {
		assert(rc == -EINVAL && strncmp(err, "/c/sheaf.conf:", 14) == 0);
	}
	return 0;
}
