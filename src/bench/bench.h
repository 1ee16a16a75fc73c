/* bench: `sheaf bench`, which measures Sheaf and what the same machine does without it. */
#ifndef SHEAF_BENCH_H
#define SHEAF_BENCH_H

#include "cli/cli.h"

extern const struct cli_command cmd_bench;

#endif
