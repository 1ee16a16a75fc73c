/* Any bytes as an exported connection (without its head, whose checksum would refuse almost all of
 * them): the import refuses them, or makes a client whose own export can be imported to the same
 * state. With SHEAF_WRITE_CORPUS=DIR it writes its seeds there. */
#include "client_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct client_fixture t;

static void write_seed(const char *to, const char *name, struct client *c)
{
	struct wire_bytes b;
	char path[512];
	FILE *out;

	CHECK_EQ(client_export(c, &b), 0);
	snprintf(path, sizeof(path), "%s/%s", to, name);
	out = fopen(path, "w");
	CHECK(out && fwrite(b.p, 1, b.len, out) == b.len && fclose(out) == 0);
	free((void *)(uintptr_t)b.p);
	client_free(c);
}

static void start(void)
{
	const char *to = getenv("SHEAF_WRITE_CORPUS");
	struct client *c;

	client_fixture_start(&t);
	if (!to)
		return;
	write_seed(to, "nothing", client_fixture_new(&t));
	write_seed(to, "everything", client_fixture_with_state(&t));
	c = client_fixture_new(&t);
	client_fixture_file(c, 1, 1);
	write_seed(to, "one_file", c);
	c = client_fixture_new(&t);
	for (uint64_t i = 0; i < 40; i++) {
		const struct cfile *f = client_fixture_file(c, i, 2);

		client_fixture_lock(f, &f->holding->locks[i % 2], i, i, 2 * i, i % 3);
	}
	write_seed(to, "many_files", c);
}

static struct client *import(const struct wire_bytes *b)
{
	struct client *c = client_fixture_new(&t);

	if (client_import(c, b) == 0) {
		c->halted = false;
		return c;
	}
	client_free(c);
	return NULL;
}

/* Exports the client's state and frees the client. */
static struct wire_bytes export(struct client *c)
{
	struct wire_bytes b;

	CHECK_EQ(client_export(c, &b), 0);
	client_free(c);
	return b;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_bytes in = { (uint32_t)size, data }, first, second;
	static bool started;
	struct client *c;

	if (!started)
		start();
	started = true;
	c = import(&in);
	if (!c)
		return 0;
	first = export(c);
	c = import(&first);
	CHECK(c);
	second = export(c);
	CHECK(first.len == second.len && memcmp(first.p, second.p, first.len) == 0);
	free((void *)(uintptr_t)first.p);
	free((void *)(uintptr_t)second.p);
	return 0;
}
