/* commands: the subcommands of `sheaf`, and the table of all of them. Each is defined in its own
 * file, cmd_NAME.c, and listed in commands.c. */
#ifndef SHEAF_COMMANDS_H
#define SHEAF_COMMANDS_H

#include "cli/cli.h"

/* The table for cli_main(), in the order of the help; NULL ends it. */
extern const struct cli_command *const all_commands[];

extern const struct cli_command cmd_init, cmd_start, cmd_stop, cmd_status, cmd_ls, cmd_cp, cmd_cat,
	cmd_rm, cmd_mkdir, cmd_mv, cmd_ln, cmd_stat, cmd_chmod, cmd_chown, cmd_getfattr,
	cmd_setfattr, cmd_df, cmd_requests, cmd_selfcheck, cmd_mpirun, cmd_add_server, cmd_backup,
	cmd_restore, cmd_find, cmd_calibrate, cmd_key, cmd_mount, cmd_umount, cmd_nfs, cmd_bank,
	cmd_map, cmd_format, cmd_du, cmd_ckpt, cmd_top;

/* Sends SIGHUP to the servers of this host: they read keys, networks and [bank] again (cmd_key.c).
 * what: for the message. */
struct conf;
int servers_reread(struct cli *c, const struct conf *conf, const char *what);

/* The status of the NFS gateway of this host (cmd_nfs.c), or NULL: none runs, or it does not
 * answer. */
struct json_object;
struct json_object *nfs_gateway_status(const struct conf *conf);

/* Adds what server i tells of its users and jobs: "users" and "jobs", arrays (cmd_top.c). */
void tallies_json(struct sheaf *fs, int i, struct json_object *o);

#endif
