/* check: `sheaf check`, which compares the rows and objects of all servers, and the search for
 * files that have lost data. */
#ifndef SHEAF_CHECK_H
#define SHEAF_CHECK_H

#include "cli/cli.h"

extern const struct cli_command cmd_check;

/* `sheaf find --damaged`; returns an exit status. */
int check_find_damaged(struct cli *c, bool json);

#endif
