/* The cluster file: its values, and the error messages for invalid files. */
#include "base/base.h"

#include <unistd.h>

#include "test.h"

#define HEAD "[cluster]\nid = 01234567-89ab-cdef-0123-456789abcdef\n"
#define SERVER(n) \
	"[server." n "]\naddress = 127.0.0.1:743" n "\nroles = meta data\nstorage = server" n "\n"

static char err[512];

static struct conf *parse(const char *text)
{
	struct conf *c;
	char *copy = malloc(strlen(text) + 1);

	CHECK(copy);
	memcpy(copy, text, strlen(text)); /* without a terminator */
	err[0] = 0;
	if (conf_parse(copy, strlen(text), "/c/sheaf.conf", &c, err, sizeof(err)) < 0)
		c = NULL;
	free(copy);
	return c;
}

static void a_full_file_is_understood(void)
{
	struct conf *c =
		parse("# a comment\n"
		      "[cluster]\n"
		      "id = 01234567-89ab-cdef-0123-456789abcdef ; uuid\n"
		      "key = /etc/key\nserver_key = keys/s\nstripe_unit = 1MiB\nwidth = 1\n"
		      "timeout = 5\nlease = 7\npool = 16M\nmode = nosync\nsieve = never\n"
		      "[rdma]\nclient_driven = never\npinned_max = 2G\n"
		      "[server.1]\r\n"
		      "  name = beta\r\n"
		      "\taddress = [::1]:7431\r\n"
		      "  roles = data\r\n"
		      "  storage = /srv/b/\r\n"
		      "[server.0]\naddress = host.example:1\nroles = meta, data\nstorage = a");

	CHECK_STR(err, "");
	CHECK(c);
	CHECK_STR(c->path, "/c/sheaf.conf");
	CHECK_EQ(c->fs_id.b[15], 0xef);
	CHECK_STR(c->key_file, "/etc/key");
	CHECK_STR(c->server_key_file, "/c/keys/s");
	CHECK_EQ(c->stripe_unit, 1 << 20);
	CHECK_EQ(c->width, 1);
	CHECK_EQ(c->timeout_s, 5);
	CHECK_EQ(c->lease_s, 7);
	CHECK_EQ(c->pool_bytes, 16 << 20);
	CHECK(c->rdma.never_driven);
	CHECK_EQ(c->rdma.pinned_max, 2048 * MIB);
	CHECK(c->nosync);
	CHECK(c->never_sieve);
	CHECK_EQ(c->n_targets, 2);
	CHECK_EQ(c->targets[0].id, 0);
	CHECK_STR(c->targets[0].name, "server0");
	CHECK_STR(c->targets[0].address, "host.example:1");
	CHECK_STR(c->targets[0].storage, "/c/a");
	CHECK_EQ(c->targets[0].roles, ROLE_META | ROLE_DATA);
	CHECK_EQ(c->targets[1].id, 1);
	CHECK_STR(c->targets[1].name, "beta");
	CHECK_STR(c->targets[1].address, "[::1]:7431");
	CHECK_STR(c->targets[1].storage, "/srv/b");
	CHECK_EQ(c->targets[1].roles, ROLE_DATA);
	conf_free(c);
}

static void what_is_not_said_has_a_default(void)
{
	struct conf *c = parse("\xef\xbb\xbf" HEAD SERVER("0"));

	CHECK(c);
	CHECK_STR(c->key_file, "/c/key");
	CHECK_STR(c->server_key_file, "/c/server.key");
	CHECK_EQ(c->stripe_unit, 256 * KIB);
	CHECK_EQ(c->width, 0);
	CHECK_EQ(c->timeout_s, 30);
	CHECK_EQ(c->lease_s, 30);
	CHECK_EQ(c->pool_bytes, 64 * MIB);
	CHECK(!c->rdma.never_driven && !c->rdma.pinned_max);
	CHECK(!c->nosync);
	CHECK(!c->never_sieve);
	conf_free(c);
	conf_free(NULL);
}

static void keys_have_names_files_and_roles(void)
{
	struct conf *c = parse(
		HEAD
		"trust = 192.0.2.0/24, 2001:db8::/32 10.1.2.3\n"
		"squash = 127.0.0.0/8\n"
		"[key.host]\nrole = any\n" SERVER(
			"0") "[key.alice]\nfile = /k/a\nrole = uid 1000 gid 1000  4 4294967294\n");

	CHECK_STR(err, "");
	CHECK(c && c->n_keys == 2);
	CHECK_STR(c->keys[0].name, "host");
	CHECK_STR(c->keys[0].file, "/c/host.key");
	CHECK(c->keys[0].role.any && !c->keys[0].loaded);
	CHECK_STR(c->keys[1].file, "/k/a");
	CHECK(!c->keys[1].role.any);
	CHECK_EQ(c->keys[1].role.uid, 1000);
	CHECK_EQ(c->keys[1].role.n_gids, 3);
	CHECK_EQ(c->keys[1].role.gids[2], UINT32_MAX - 1);
	CHECK(conf_key_find(c, "alice") == &c->keys[1] && !conf_key_find(c, "bob"));
	CHECK_EQ(c->n_trust, 3);
	CHECK_EQ(c->n_squash, 1);
	conf_free(c);
}

static void the_largest_cluster_is_accepted(void)
{
	static char text[CONF_MAX_TARGETS * 100 + 200];
	size_t at = 0;
	struct conf *c;

	at += (size_t)sprintf(text, HEAD);
	for (int i = CONF_MAX_TARGETS - 1; i >= 0; i--)
		at += (size_t)sprintf(
			text + at,
			"[server.%d]\naddress = h%d:1\nroles = meta data\nstorage = s%d\n", i, i,
			i);
	c = parse(text);
	CHECK(c && c->n_targets == CONF_MAX_TARGETS);
	for (uint32_t i = 0; i < c->n_targets; i++)
		CHECK_EQ(c->targets[i].id, i);
	conf_free(c);
}

static const struct {
	const char *text, *where, *says;
} wrong[] = {
	{ "", ": ", "no [cluster] section" },
	{ HEAD, ": ", "add a section [server.0]" },
	{ "id = 1\n", ":1: ", "begin with [cluster]" },
	{ "[cluster]\n" SERVER("0"), ":1: ", "[cluster] has no id" },
	{ HEAD "[cluster]\n" SERVER("0"), ":3: ", "the first is on line 1" },
	{ HEAD "colour = red\n", ":3: ", "unknown key 'colour'" },
	{ HEAD "lease = 3\n\n# x\nlease = 3\n", ":6: ", "'lease' is given twice" },
	{ HEAD "[serve]\n", ":3: ", "unknown section [serve]" },
	{ HEAD "[key.]\n", ":3: ", "is not 1 to 31 letters" },
	{ HEAD "[key.a b]\n", ":3: ", "is not 1 to 31 letters" },
	{ HEAD "[key.a]\nrole = any\n[key.a]\n", ":5: ", "a second [key.a]" },
	{ HEAD "[key.a]\nfile = x\n" SERVER("0"), ":3: ", "[key.a] has no role" },
	{ HEAD SERVER("0") "[key.a]\n", ":7: ", "[key.a] has no role" },
	{ HEAD "[key.a]\nuid = 3\n", ":4: ", "unknown key 'uid'; known in [key.NAME]: file role" },
	{ HEAD "[key.a]\nrole = all\n", ":4: ", "a role is 'any'" },
	{ HEAD "[key.a]\nrole = uid 5\n", ":4: ", "a role is 'any'" },
	{ HEAD "[key.a]\nrole = uid 5 gid\n", ":4: ", "a role is 'any'" },
	{ HEAD "[key.a]\nrole = uid x gid 5\n", ":4: ", "a role is 'any'" },
	{ HEAD "[key.a]\nrole = uid 5 gid -1\n", ":4: ", "a role is 'any'" },
	{ HEAD "[key.a]\nrole = uid 4294967295 gid 1\n", ":4: ", "a role is 'any'" },
	{ HEAD "[key.a]\nrole = uid 5 6 gid 1\n", ":4: ", "a role is 'any'" },
	{ HEAD "[key.a]\nrole = uid 5 gid 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
	  ":4: ", "1 to 15 gids" },
	{ HEAD "trust = \n", ":3: ", "trust is empty" },
	{ HEAD "trust = 192.0.2.1/24\n", ":3: ", "'192.0.2.1/24' is not a network" },
	{ HEAD "squash = host.example\n", ":3: ", "squash: 'host.example' is not a network" },
	{ HEAD "trust = 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 "
	       "1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1\n",
	  ":3: ", "more than 16 networks" },
	{ HEAD "[server.x]\n", ":3: ", "numbered 0 to 255" },
	{ HEAD "[server.]\n", ":3: ", "numbered 0 to 255" },
	{ HEAD "[server.256]\n", ":3: ", "numbered 0 to 255" },
	{ HEAD "[server.00]\n", ":3: ", "numbered 0 to 255" },
	{ HEAD "[server.0\n", ":3: ", "a section looks like" },
	{ HEAD "[a section whose name goes on and on and on and on and on and on and on]\n",
	  ":3: ", "a section looks like" },
	{ HEAD SERVER("0") SERVER("0"), ":7: ", "is on line 3 already" },
	{ HEAD SERVER("0") SERVER("2"), ":7: ", "[server.2] without a [server.1]" },
	{ HEAD SERVER("1"), ":3: ", "[server.1] without a [server.0]" },
	{ HEAD "[server.0]\n", ":3: ", "[server.0] has no address" },
	{ HEAD SERVER("0") "[server.1]\naddress = h:1\nroles = meta\n", ":7: ", "has no storage" },
	{ HEAD SERVER("0") "just words\n", ":7: ", "neither a [section] nor key = value" },
	{ HEAD "id = x\n", ":3: ", "'id' is given twice" },
	{ "[cluster]\nid = x\n", ":2: ", "is not a UUID" },
	{ HEAD "key =\n", ":3: ", "key is empty" },
	{ HEAD "stripe_unit = 5000\n", ":3: ", "multiple of 4K" },
	{ HEAD "stripe_unit = 0\n", ":3: ", "multiple of 4K" },
	{ HEAD "stripe_unit = 2G\n", ":3: ", "multiple of 4K" },
	{ HEAD "stripe_unit = 64KB\n", ":3: ", "multiple of 4K" },
	{ HEAD "width = -1\n", ":3: ", "number from 0 to 256" },
	{ HEAD "width = 2x\n", ":3: ", "number from 0 to 256" },
	{ HEAD "width = 99999999999999999999999\n", ":3: ", "number from 0 to 256" },
	{ HEAD "width = 2\n" SERVER("0"), ":1: ", "width = 2 is more than the 1 servers" },
	{ HEAD "timeout = 0\n", ":3: ", "number from 1 to" },
	{ HEAD "lease = soon\n", ":3: ", "number from 1 to" },
	{ HEAD "pool = 1K\n", ":3: ", "size from 1M" },
	{ HEAD "[rdma]\npinned_max = all\n", ":4: ", "for example: pinned_max = 64M" },
	{ HEAD "mode = fast\n", ":3: ", "sync or nosync" },
	{ HEAD "sieve = always\n", ":3: ", "auto or never" },
	{ HEAD "[server.0]\naddress = 127.0.0.1\n", ":4: ", "is not HOST:PORT" },
	{ HEAD "[server.0]\naddress = :1\n", ":4: ", "is not HOST:PORT" },
	{ HEAD "[server.0]\naddress = -oProxyCommand=x:1\n", ":4: ", "is not HOST:PORT" },
	{ HEAD "[server.0]\naddress = [-x]:1\n", ":4: ", "is not HOST:PORT" },
	{ HEAD "[server.0]\naddress = @h:1\n", ":4: ", "is not HOST:PORT" },
	{ HEAD "[server.0]\naddress = h:\n", ":4: ", "is not HOST:PORT" },
	{ HEAD "[server.0]\naddress = h:0\n", ":4: ", "is not HOST:PORT" },
	{ HEAD "[server.0]\naddress = h:65536\n", ":4: ", "is not HOST:PORT" },
	{ HEAD "[server.0]\naddress = ::1:80\n", ":4: ", "is not HOST:PORT" },
	{ HEAD "[server.0]\naddress = a b:80\n", ":4: ", "holds a character" },
	{ HEAD "[server.0]\nroles = metal\n", ":4: ", "'metal' is not a role" },
	{ HEAD "[server.0]\nroles =\n", ":4: ", "roles is empty" },
	{ HEAD "[server.0]\nname = a/b\n", ":4: ", "is not 1 to 31 letters" },
	{ HEAD "[server.0]\nname = .hidden\n", ":4: ", "is not 1 to 31 letters" },
	{ HEAD "[server.0]\nname = a23456789a23456789a23456789a2345\n",
	  ":4: ", "is not 1 to 31 letters" },
	{ HEAD "[server.0]\nkey = x\n", ":4: ", "unknown key 'key'; known in [server.N]" },
	{ HEAD SERVER("0") "[server.1]\naddress = 127.0.0.1:7430\nroles = meta\nstorage = x\n",
	  ":7: ", "has the address of [server.0]" },
	{ HEAD SERVER("0") "[server.1]\naddress = h:1\nroles = meta\nstorage = server0/\n",
	  ":7: ", "has the storage of [server.0]" },
	{ HEAD SERVER("0") "[server.1]\nname=server0\naddress = h:1\nroles = meta\nstorage = x\n",
	  ":7: ", "has the name of [server.0]" },
	{ HEAD "[server.0]\naddress = h:1\nroles = data\nstorage = x\n", ": ",
	  "no server has the role meta" },
	{ HEAD "[server.0]\naddress = h:1\nroles = meta\nstorage = x\n", ": ",
	  "no server has the role data" },
};

static void everything_wrong_is_named_with_its_line(void)
{
	char where[64];

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct conf *c = parse(wrong[i].text);

		snprintf(where, sizeof(where), "/c/sheaf.conf%s", wrong[i].where);
		if (c || strncmp(err, where, strlen(where)) != 0 || !strstr(err, wrong[i].says) ||
		    strchr(err, '\n')) {
			fprintf(stderr, "%s\ngave: %s\nnot: %s %s\n", wrong[i].text, err, where,
				wrong[i].says);
			exit(1);
		}
	}
}

static void a_line_too_long_for_the_parser_is_an_error_not_two_lines(void)
{
	static char text[4096];

	strcpy(text, HEAD "key = ");
	memset(text + strlen(text), 'x', 1500);
	CHECK(!parse(text));
	CHECK(strstr(err, ":3: the line is longer than"));
	strcpy(text, HEAD "# ");
	memset(text + strlen(text), 'x', 1500);
	strcat(text, "\n" SERVER("0"));
	conf_free(parse(text));
	CHECK_STR(err, "");
}

static void a_nul_byte_is_an_error(void)
{
	static const char text[] = HEAD "key = a\0b\n";
	struct conf *c;

	CHECK_EQ(conf_parse(text, sizeof(text) - 1, "f", &c, err, sizeof(err)), -EINVAL);
	CHECK(strstr(err, "f:3: a NUL byte"));
}

static void a_short_error_buffer_is_not_overrun(void)
{
	struct conf *c;

	for (size_t n = 0; n < 40; n++) {
		char *small = malloc(n + 1);

		CHECK(small);
		small[n] = 'x';
		CHECK_EQ(conf_parse("x\n", 2, "file", &c, small, n), -EINVAL);
		CHECK(small[n] == 'x' && (n == 0 || strlen(small) < n));
		free(small);
	}
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CHECK(f);
	fputs(text, f);
	fclose(f);
}

static void relative_paths_start_from_the_files_folder(void)
{
	struct conf *c;
	char cwd[512], want[1024];

	CHECK(getcwd(cwd, sizeof(cwd)));
	put("some.conf", HEAD SERVER("0"));
	CHECK_EQ(conf_load("./some.conf", &c, err, sizeof(err)), 0);
	snprintf(want, sizeof(want), "%s/some.conf", cwd);
	CHECK_STR(c->path, want);
	snprintf(want, sizeof(want), "%s/server0", cwd);
	CHECK_STR(c->targets[0].storage, want);
	conf_free(c);
	CHECK_EQ(conf_load("missing.conf", &c, err, sizeof(err)), -ENOENT);
	CHECK(strstr(err, "missing.conf: cannot open"));
	CHECK_EQ(conf_load(".", &c, err, sizeof(err)), -EISDIR);
}

static void exports_are_understood(void)
{
	struct conf *c = parse(HEAD SERVER("0") "[nfs]\naddress = 192.0.2.1:2050\nmemory = 8M\n"
						"metrics = 192.0.2.1:9049\n"
						"[export.all]\npath = /\n"
						"[export.home]\npath = /a/home\nro = yes\n"
						"networks = 192.0.2.0/24 2001:db8::/32\n"
						"squash = all\nanon_uid = 99\nanon_gid = 98\n"
						"insecure = yes\nmanage_gids = yes\n");

	CHECK_STR(err, "");
	CHECK(c);
	CHECK_STR(c->nfs.address, "192.0.2.1:2050");
	CHECK_EQ(c->nfs.memory, 8 << 20);
	CHECK_STR(c->nfs.metrics, "192.0.2.1:9049");
	CHECK_EQ(c->n_exports, 2);
	CHECK_STR(c->exports[0].name, "all");
	CHECK(!c->exports[0].ro && !c->exports[0].insecure && c->exports[0].n_nets == 0);
	CHECK_EQ(c->exports[0].anon_uid, NOBODY);
	CHECK_EQ(c->exports[0].squash, SQUASH_ROOT);
	CHECK_STR(c->exports[1].path, "/a/home");
	CHECK_EQ(c->exports[1].n_nets, 2);
	CHECK(c->exports[1].ro && c->exports[1].insecure && c->exports[1].manage_gids);
	CHECK_EQ(c->exports[1].squash, SQUASH_ALL);
	CHECK_EQ(c->exports[1].anon_uid, 99);
	CHECK_EQ(c->exports[1].anon_gid, 98);
	conf_free(c);
}

static void wrong_exports_are_refused(void)
{
	static const char *const bad[][2] = {
		{ "[export.a]\nro = yes\n", "no path" },
		{ "[export.a]\npath = home\n", "not an absolute path" },
		{ "[export.a]\npath = /a/../b\n", "not an absolute path" },
		{ "[export.a]\npath = /a/..\n", "not an absolute path" },
		{ "[export.a]\npath = /\n[export.a]\npath = /b\n", "a second [export.a]" },
		{ "[export.a/b]\npath = /\n", "letters, digits" },
		{ "[export.a]\npath = /\nsquash = some\n", "root, all or none" },
		{ "[export.a]\npath = /\nro = true\n", "neither yes nor no" },
		{ "[export.a]\npath = /\nnetworks = here\n", "not a network" },
		{ "[nfs]\naddress = 2049\n", "not HOST:PORT" },
	};
	char text[512];

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text), HEAD SERVER("0") "%s", bad[i][0]);
		CHECK(!parse(text));
		if (!strstr(err, bad[i][1]))
			fprintf(stderr, "%s: %s\n", bad[i][0], err);
		CHECK(strstr(err, bad[i][1]));
	}
}

static void the_file_is_searched_in_the_stated_order(void)
{
	char out[256], small[4];

	unsetenv("SHEAF_CONF");
	unlink("sheaf.conf");
	if (access("/etc/sheaf/sheaf.conf", F_OK) < 0) {
		CHECK_EQ(conf_find(NULL, out, sizeof(out), err, sizeof(err)), -ENOENT);
		CHECK(strstr(err, "sheaf init DIR"));
	}
	put("sheaf.conf", "x");
	put("b.conf", "x");
	put("c.conf", "x");
	CHECK_EQ(conf_find(NULL, out, sizeof(out), err, sizeof(err)), 0);
	CHECK_STR(out, "./sheaf.conf");
	setenv("SHEAF_CONF", "b.conf", 1);
	CHECK_EQ(conf_find(NULL, out, sizeof(out), err, sizeof(err)), 0);
	CHECK_STR(out, "b.conf");
	CHECK_EQ(conf_find("c.conf", out, sizeof(out), err, sizeof(err)), 0);
	CHECK_STR(out, "c.conf");
	CHECK_EQ(conf_find("nothere", out, sizeof(out), err, sizeof(err)), -ENOENT);
	CHECK(strstr(err, "--conf"));
	setenv("SHEAF_CONF", "nothere", 1); /* the named file is missing: no other file is tried */
	CHECK_EQ(conf_find(NULL, out, sizeof(out), err, sizeof(err)), -ENOENT);
	CHECK(strstr(err, "$SHEAF_CONF"));
	setenv("SHEAF_CONF", "local:/x", 1);
	CHECK_EQ(conf_find(NULL, out, sizeof(out), err, sizeof(err)), 0);
	CHECK_STR(out, "local:/x");
	CHECK_EQ(conf_find("local:y", out, sizeof(out), err, sizeof(err)), 0);
	CHECK_STR(out, "local:y");
	CHECK_EQ(conf_find("c.conf", small, sizeof(small), err, sizeof(err)), -ENAMETOOLONG);
}

TEST_MAIN(TEST(a_full_file_is_understood), TEST(what_is_not_said_has_a_default),
	  TEST(keys_have_names_files_and_roles), TEST(the_largest_cluster_is_accepted),
	  TEST(everything_wrong_is_named_with_its_line),
	  TEST(a_line_too_long_for_the_parser_is_an_error_not_two_lines),
	  TEST(a_nul_byte_is_an_error), TEST(a_short_error_buffer_is_not_overrun),
	  TEST(relative_paths_start_from_the_files_folder), TEST(exports_are_understood),
	  TEST(wrong_exports_are_refused), TEST(the_file_is_searched_in_the_stated_order))
