/* The sheaf command. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
	return cli_main(all_commands, argc, argv);
}
