/* sheaf-sim: for now only the self-test of the simulated environment. */
#include <stdio.h>
#include <string.h>

#include "sim_env.h"

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--selftest"))
		return sim_selftest();
	fprintf(stderr, "usage: sheaf-sim --selftest\n");
	return 2;
}
