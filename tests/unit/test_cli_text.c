/* The pure helper functions of the command: arguments, paths, text output. */
#include "cli/cli.h"

#include <stdlib.h>
#include <time.h>

#include "test.h"

static const struct cli_option table[CLI_MAX_OPTIONS] = {
	{ 'l', "long", NULL, "" },
	{ 'R', NULL, NULL, "" },
	{ 0, "servers", "N", "" },
	{ 'o', "out", "FILE", "" },
};

static struct cli_parsed p;
static char err[256];

static int parse(const char *line, bool first_arg_ends)
{
	static char copy[256];
	static char *argv[32];
	int argc = 0;

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		argv[argc++] = w;
	argv[argc] = NULL;
	memset(&p, 0, sizeof(p));
	err[0] = 0;
	return cli_parse(table, first_arg_ends, argc, argv, &p, err, sizeof(err));
}

static void options_and_arguments_may_be_mixed(void)
{
	CHECK_EQ(parse("ls a -lR --servers 3 b --out=f --conf c", false), 0);
	CHECK(p.opt[0] && p.opt[1]);
	CHECK_STR(p.opt[2], "3");
	CHECK_STR(p.opt[3], "f");
	CHECK_STR(p.conf, "c");
	CHECK_EQ(p.n_args, 2);
	CHECK_STR(p.args[0], "a");
	CHECK_STR(p.args[1], "b");
}

static void what_was_not_given_is_null(void)
{
	CHECK_EQ(parse("ls", false), 0);
	CHECK(!p.opt[0] && !p.opt[1] && !p.opt[2] && !p.opt[3] && !p.conf && !p.help && !p.version);
	CHECK_EQ(p.n_args, 0);
}

static void two_dashes_end_the_options(void)
{
	CHECK_EQ(parse("rm -l -- -R --conf", false), 0);
	CHECK(p.opt[0] && !p.opt[1] && !p.conf);
	CHECK_EQ(p.n_args, 2);
	CHECK_STR(p.args[0], "-R");
}

static void before_a_subcommand_the_first_argument_ends_the_options(void)
{
	CHECK_EQ(parse("sheaf --conf x ls -l --nonsense", true), 0);
	CHECK_STR(p.conf, "x");
	CHECK(!p.opt[0]);
	CHECK_EQ(p.n_args, 3);
	CHECK_STR(p.args[0], "ls");
}

static void wrong_options_are_named(void)
{
	CHECK_EQ(parse("ls --wrong", false), -EINVAL);
	CHECK_STR(err, "unknown option '--wrong'");
	CHECK_EQ(parse("ls --wrong=3 x", false), -EINVAL);
	CHECK_STR(err, "unknown option '--wrong'");
	CHECK_EQ(parse("ls -lx", false), -EINVAL);
	CHECK_STR(err, "unknown option '-x'");
	CHECK_EQ(parse("ls --servers", false), -EINVAL);
	CHECK_STR(err, "option '--servers' needs a value");
	CHECK_EQ(parse("ls -o", false), -EINVAL);
	CHECK_STR(err, "option '-o' needs a value");
	CHECK_EQ(parse("ls --long=3", false), -EINVAL);
	CHECK_STR(err, "option '--long' takes no value");
}

static void numbers_are_whole_and_within_limits(void)
{
	uint64_t v = 0;

	CHECK_EQ(cli_number("1", 1, 9, &v), 0);
	CHECK_EQ(v, 1);
	CHECK_EQ(cli_number("18446744073709551615", 0, UINT64_MAX, &v), 0);
	CHECK(v == UINT64_MAX);
	for (const char *const *bad = (const char *const[]){ "", "0", "10", "-1", "+1", " 1", "1x",
							     "1.0", "18446744073709551617", NULL };
	     *bad; bad++)
		CHECK_EQ(cli_number(*bad, 1, 9, &v), -EINVAL);
}

static void check_inside(const char *arg, const char *want)
{
	char out[CLI_PATH_MAX];

	CHECK_EQ(cli_inside_path(arg, out), 0);
	CHECK_STR(out, want);
}

static void paths_inside_become_absolute_and_plain(void)
{
	char out[CLI_PATH_MAX], *large = malloc(CLI_PATH_MAX + 8);

	check_inside("sheaf:/a/b", "/a/b");
	check_inside("sheaf:a", "/a");
	check_inside("sheaf:", "/");
	check_inside("", "/");
	check_inside("/", "/");
	check_inside("a//b/./c/", "/a/b/c");
	check_inside("/a/../b", "/b");
	check_inside("/a/b/..", "/a");
	check_inside("/../../x", "/x");
	check_inside("/..a/.b/...", "/..a/.b/...");
	CHECK(large);
	memset(large, 'x', CLI_PATH_MAX + 7);
	large[CLI_PATH_MAX + 7] = 0;
	CHECK_EQ(cli_inside_path(large, out), -ENAMETOOLONG);
	CHECK_EQ(cli_join(out, large, "y"), -ENAMETOOLONG);
	large[CLI_PATH_MAX - 2] = 0; /* with "/" and the terminator it just fits */
	CHECK_EQ(cli_inside_path(large, out), 0);
	free(large);
}

static void paths_join_and_come_apart(void)
{
	char out[CLI_PATH_MAX];

	CHECK_EQ(cli_join(out, "/", "a"), 0);
	CHECK_STR(out, "/a");
	CHECK_EQ(cli_join(out, "/a", "b"), 0);
	CHECK_STR(out, "/a/b");
	CHECK_STR(cli_basename("/a/b"), "b");
	CHECK_STR(cli_basename("b"), "b");
	CHECK_STR(cli_basename("/"), "");
	CHECK(cli_beneath("/a", "/a") && cli_beneath("/a", "/a/b") && cli_beneath("/", "/x"));
	CHECK(!cli_beneath("/a", "/ab") && !cli_beneath("/a/b", "/a"));
}

static void check_mode(mode_t mode, const char *want)
{
	char out[11];

	cli_mode_string(out, mode);
	CHECK_STR(out, want);
}

static void modes_look_as_in_ls(void)
{
	check_mode(S_IFREG | 0644, "-rw-r--r--");
	check_mode(S_IFDIR | 0755, "drwxr-xr-x");
	check_mode(S_IFLNK | 0777, "lrwxrwxrwx");
	check_mode(S_IFDIR | 01777, "drwxrwxrwt");
	check_mode(S_IFREG | 04755, "-rwsr-xr-x");
	check_mode(S_IFREG | 06644, "-rwSr-Sr--");
	check_mode(S_IFDIR | 01776, "drwxrwxrwT");
	check_mode(S_IFCHR | 0600, "crw-------");
	check_mode(S_IFIFO, "p---------");
}

static void check_duration(uint64_t ns, const char *want)
{
	char out[32];

	cli_duration(out, sizeof(out), ns);
	CHECK_STR(out, want);
}

static void durations_are_short(void)
{
	check_duration(0, "0 us");
	check_duration(250000, "250 us");
	check_duration(15 * NSEC_PER_MSEC, "15 ms");
	check_duration(59 * NSEC_PER_SEC, "59 s");
	check_duration(61 * NSEC_PER_SEC, "1m 1s");
	check_duration(3 * 3600 * NSEC_PER_SEC, "3h 0m");
	check_duration(49 * 3600 * NSEC_PER_SEC, "2d 1h");
}

static void dates_show_the_time_when_recent_else_the_year(void)
{
	struct timespec t = { 86400 * 40 + 3600, 0 };
	char out[64];

	setenv("TZ", "UTC", 1);
	tzset();
	cli_date(out, sizeof(out), &t, t.tv_sec + 60);
	CHECK_STR(out, "Feb 10 01:00");
	cli_date(out, sizeof(out), &t, t.tv_sec + 300 * 86400);
	CHECK_STR(out, "Feb 10  1970");
	cli_date(out, sizeof(out), &t, t.tv_sec - 86400);
	CHECK_STR(out, "Feb 10  1970");
}

static void tables_are_aligned(void)
{
	static const char *const heads[] = { "NAME", ">SIZE", "LAST" };
	struct cli_table t;
	char *text;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	CHECK(f);
	cli_table_init(&t, heads, 3);
	cli_table_add(&t, "a");
	cli_table_add(&t, "%d", 12345);
	cli_table_add(&t, "x");
	cli_table_add(&t, "longer\t%d\tyy", 1);
	CHECK_EQ(cli_table_print(&t, f), 0);
	fclose(f);
	CHECK_STR(text, "NAME     SIZE  LAST\n"
			"a       12345  x\n"
			"longer      1  yy\n");
	free(text);
}

static mode_t mode_of(const char *text, mode_t old, mode_t mask)
{
	mode_t mode = 0;

	CHECK_EQ(cli_mode_parse(text, old, mask, &mode), 0);
	return mode;
}

static void modes_are_read_as_chmod_reads_them(void)
{
	static const char *const bad[] = { "",	  "8",	  "77777", "644x", "u",
					   "u+y", "u+x,", "z+x",   ",",	   "u+x g+x" };
	mode_t mode;

	CHECK_EQ(mode_of("644", 0, 0), 0644);
	CHECK_EQ(mode_of("04755", 0, 0), 04755);
	CHECK_EQ(mode_of("0", 0777, 0), 0);
	CHECK_EQ(mode_of("u+x", 0644, 0), 0744);
	CHECK_EQ(mode_of("u+x,g-r,o=", 0644, 0), 0700);
	CHECK_EQ(mode_of("a=r", 0777, 0), 0444);
	CHECK_EQ(mode_of("ug=rw,o=r", 0, 0), 0664);
	CHECK_EQ(mode_of("+x", 0644, 022), 0755);
	CHECK_EQ(mode_of("+w", 0444, 022), 0644);
	CHECK_EQ(mode_of("=", 0777, 022), 0022);
	CHECK_EQ(mode_of("go=u", 0750, 0), 0777);
	CHECK_EQ(mode_of("o=g-w", 0670, 0), 0675);
	CHECK_EQ(mode_of("u-w+x", 0600, 0), 0500);
	CHECK_EQ(mode_of("a+X", S_IFREG | 0644, 0), 0644);
	CHECK_EQ(mode_of("a+X", S_IFREG | 0744, 0), 0755);
	CHECK_EQ(mode_of("a+X", S_IFDIR | 0644, 0), 0755);
	CHECK_EQ(mode_of("u+s,g+s,o+t", 0755, 0), 07755);
	CHECK_EQ(mode_of("u-s", 06755, 0), 02755);
	CHECK_EQ(mode_of("+t", 0777, 022), 01777);
	/* the file type is not part of the result */
	CHECK_EQ(mode_of("u+x", S_IFREG | 0644, 0), 0744);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_EQ(cli_mode_parse(bad[i], 0644, 022, &mode), -EINVAL);
}

TEST_MAIN(TEST(options_and_arguments_may_be_mixed), TEST(what_was_not_given_is_null),
	  TEST(two_dashes_end_the_options),
	  TEST(before_a_subcommand_the_first_argument_ends_the_options),
	  TEST(wrong_options_are_named), TEST(numbers_are_whole_and_within_limits),
	  TEST(paths_inside_become_absolute_and_plain), TEST(paths_join_and_come_apart),
	  TEST(modes_look_as_in_ls), TEST(modes_are_read_as_chmod_reads_them),
	  TEST(durations_are_short), TEST(dates_show_the_time_when_recent_else_the_year),
	  TEST(tables_are_aligned))
