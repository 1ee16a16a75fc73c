/* Which servers run on this host, and which processes are accepted as sheafd. */
#include "cli/cli.h"

#include <unistd.h>

#include "test.h"

static void loopback_is_local_and_others_are_not(void)
{
	CHECK(cli_address_is_local("127.0.0.1:7430"));
	CHECK(cli_address_is_local("127.8.9.1:1"));
	CHECK(cli_address_is_local("[::1]:7430"));
	CHECK(cli_address_is_local("0.0.0.0:7430"));
	CHECK(!cli_address_is_local("192.0.2.7:7430")); /* reserved for documentation by RFC 5737 */
	CHECK(!cli_address_is_local("nonsense"));
}

static void a_pid_file_that_names_another_program_is_not_believed(void)
{
	struct conf_target t = { .name = "server0", .address = "127.0.0.1:7430" };
	struct conf conf = { .n_targets = 1, .targets = &t };
	struct cli_daemon *d;
	char path[CLI_PATH_MAX];
	FILE *f;

	CHECK(getcwd(t.storage, sizeof(t.storage)));
	snprintf(conf.path, sizeof(conf.path), "%.900s/sheaf.conf", t.storage);
	cli_pid_path(path, &t);
	f = fopen(path, "w");
	CHECK(f);
	fprintf(f, "%d\n", getpid()); /* a running process that is not sheafd */
	fclose(f);
	d = cli_daemons_find(&conf);
	CHECK(d && d[0].here);
	CHECK_EQ(d[0].pid, 0);
	cli_daemons_free(d, 1);
	unlink(path);
}

TEST_MAIN(TEST(loopback_is_local_and_others_are_not),
	  TEST(a_pid_file_that_names_another_program_is_not_believed))
