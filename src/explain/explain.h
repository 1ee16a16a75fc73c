/* explain: `sheaf explain`, which shows how one access travels and what it costs. */
#ifndef SHEAF_EXPLAIN_H
#define SHEAF_EXPLAIN_H

#include "cli/cli.h"

extern const struct cli_command cmd_explain;

#endif
