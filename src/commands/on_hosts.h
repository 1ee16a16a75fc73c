/* Runs a command of this host on the other hosts of the cluster file, too. */
#ifndef SHEAF_ON_HOSTS_H
#define SHEAF_ON_HOSTS_H

#include "cli/cli.h"

/* The options of a command that can run on all hosts. */
#define ON_HOSTS_ALL \
	{ \
		0, "all-hosts", NULL, "on all hosts of the cluster file, over ssh" \
	}
#define ON_HOSTS_SSH \
	{ \
		0, "ssh", "COMMAND", "instead of ssh: it gets the host and the command" \
	}

struct on_hosts;

/* Starts `sheaf --conf FILE VERB` on each other host, over `ssh` (NULL: ssh itself), all at once.
 * NULL after a message. */
struct on_hosts *on_hosts_begin(struct cli *c, const struct conf *conf, const char *ssh,
				const char *verb);
/* Waits for them, and prints what they said, each line behind its host. CLI_OK, or CLI_FAILED when
 * one failed or could not be reached. h may be NULL. */
int on_hosts_end(struct cli *c, struct on_hosts *h);

#endif
