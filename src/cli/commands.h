/* The subcommands. Each is defined in its own file, cmd_NAME.c, and listed in commands.c. */
#ifndef SHEAF_COMMANDS_H
#define SHEAF_COMMANDS_H

#include "cli/cli.h"

extern const struct cli_command cmd_init, cmd_start, cmd_stop, cmd_status, cmd_ls, cmd_cp, cmd_cat,
	cmd_rm, cmd_mkdir, cmd_mv, cmd_ln, cmd_stat, cmd_chmod, cmd_chown, cmd_getfattr,
	cmd_setfattr, cmd_df, cmd_requests, cmd_selfcheck, cmd_check, cmd_bench, cmd_add_server,
	cmd_backup, cmd_restore, cmd_find, cmd_key, cmd_mount, cmd_umount, cmd_explain;

int find_damaged(struct cli *c, bool json); /* `sheaf find --damaged`; returns an exit status */

#endif
