/* The sheaf command. */
#include "commands/commands.h"

int main(int argc, char **argv)
{
	return cli_main(all_commands, argc, argv);
}
