/* The table of subcommands, in the order of `sheaf --help`. */
#include "commands/commands.h"

#include "bench/bench.h"
#include "check/check.h"
#include "explain/explain.h"
#include "web/web.h"

const struct cli_command *const all_commands[] = {
	&cmd_init,	 &cmd_format,	&cmd_start,   &cmd_stop,     &cmd_status, &cmd_map,
	&cmd_df,	 &cmd_du,	&cmd_ls,      &cmd_cp,	     &cmd_cat,	  &cmd_rm,
	&cmd_mkdir,	 &cmd_mv,	&cmd_ln,      &cmd_stat,     &cmd_chmod,  &cmd_chown,
	&cmd_getfattr,	 &cmd_setfattr, &cmd_find,    &cmd_requests, &cmd_top,	  &cmd_calibrate,
	&cmd_add_server, &cmd_backup,	&cmd_restore, &cmd_check,    &cmd_key,	  &cmd_selfcheck,
	&cmd_explain,	 &cmd_bench,	&cmd_mount,   &cmd_umount,   &cmd_mpirun, &cmd_nfs,
	&cmd_bank,	 &cmd_ckpt,	&cmd_web,     NULL,
};
