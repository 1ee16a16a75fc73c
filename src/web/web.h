/* web: `sheaf web`, the status page of a file system. */
#ifndef SHEAF_WEB_H
#define SHEAF_WEB_H

#include "cli/cli.h"

extern const struct cli_command cmd_web;

#endif
