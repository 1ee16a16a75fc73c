/* Programs that end by exit() while the library's threads connect. Exit handlers run in the reverse
 * order of their registration: those of other libraries, OpenSSL among them, may run before the
 * program's own, and the library's threads run beside all of them. */
#include <openssl/crypto.h>

#include "proxy.h"

#define EXITS (SANITIZED ? 20 : 100)
#define CONNECTIONS 4
#define LINK_BYTES 1500 /* until it breaks: enough for a handshake and an open */
#define LINK_BYTES_MAX 3000

static struct cluster c;
static struct proxy x;
static char conf[CLUSTER_PATH];

static void check_root(void)
{
	struct sheaf *fs = client_connect(conf);
	struct stat st;

	CHECK_EQ(sheaf_stat(fs, "/", &st), 0);
	sheaf_disconnect(fs);
}

/* Arguments: cluster file; "own": the program initialises OpenSSL itself, as Python does. */
static void begin_child(char **arg)
{
	snprintf(conf, sizeof(conf), "%s", arg[0]);
	if (strcmp(arg[1], "own") == 0)
		CHECK(OPENSSL_init_crypto(OPENSSL_INIT_ADD_ALL_DIGESTS, NULL));
}

/* An exit handler that takes time: the clients reconnect meanwhile. */
static void work_late(void)
{
	pause_ms(20);
}

/* Exits after a number of ms, the third argument. No link lives long enough for one of the writes:
 * the helper threads reconnect all the time. */
static int exit_amid(char **arg)
{
	static const uint8_t data[LINK_BYTES_MAX];
	struct sheaf_file *f;
	struct sheaf_op *op;

	CHECK_EQ(atexit(work_late), 0);
	begin_child(arg);
	for (int i = 0; i < CONNECTIONS; i++) {
		f = open_file(client_connect(conf), "/f", O_CREAT | O_RDWR);
		CHECK_EQ(sheaf_pwrite_start(f, data, sizeof(data), 0, &op), 0);
	}
	pause_ms(atoi(arg[2]));
	exit(0);
}

/* Connects in an exit handler that runs after OpenSSL's. */
static int connect_late(char **arg)
{
	CHECK_EQ(atexit(check_root), 0);
	begin_child(arg);
	check_root();
	exit(0);
}

static int child(const char *name, char **arg)
{
	return strcmp(name, "exit") == 0 ? exit_amid(arg) : connect_late(arg);
}

static void a_program_may_exit_while_its_clients_reconnect(void)
{
	proxy_plan(&x, -1, LINK_BYTES, LINK_BYTES_MAX - LINK_BYTES);
	for (int i = 0; i < EXITS; i++) {
		char ms[8];
		pid_t pid;

		snprintf(ms, sizeof(ms), "%d", i % 25);
		pid = child_start("exit", x.conf, i % 2 ? "own" : "-", ms, NULL);
		CHECK_EQ(process_wait(pid), 0);
	}
	proxy_plan(&x, 0, 0, 0);
}

static void exit_handlers_may_connect(void)
{
	CHECK_EQ(process_wait(child_start("connect", c.conf, "-", NULL)), 0);
	CHECK_EQ(process_wait(child_start("connect", c.conf, "own", NULL)), 0);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .servers = 1 });
	cluster_start(&c);
	proxy_start(&x, &c);
}

static void end(void)
{
	proxy_stop(&x);
	cluster_stop(&c);
}

SYS_MAIN(child, begin, end, TEST(a_program_may_exit_while_its_clients_reconnect),
	 TEST(exit_handlers_may_connect))
