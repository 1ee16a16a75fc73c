/* The places of sheaf cp: the same few calls for files inside, files of this host, and the standard
 * streams. Private to cmd_cp.c. */
#ifndef SHEAF_CP_PLACE_H
#define SHEAF_CP_PLACE_H

#include "cli/cli.h"

struct place {
	bool inside;
	bool standard; /* "-": standard input as a source, standard output as a target */
	int fd; /* of that */
	char path[CLI_PATH_MAX];
	char shown[TREE_SHOWN]; /* the path as messages show it */
};

/* Before other threads start and before all other calls. */
void place_init(void);
bool place_is_inside(const char *arg); /* begins with "sheaf:" */
/* fd: what "-" means. */
int place_parse(struct place *p, const char *arg, int fd);
int place_child(struct place *out, const struct place *dir, const char *name);
int place_stat(struct cli *c, const struct place *p, bool follow, struct stat *st);
int place_readlink(struct cli *c, const struct place *p, char out[CLI_PATH_MAX]);
int place_symlink(struct cli *c, const char *target, const struct place *p);
/* Maps the result of a chmod of this host: file systems without modes (vfat, cifs) are no
 * failure. */
int place_host_chmod(int r);
int place_chmod(struct cli *c, const struct place *p, mode_t mode);
int place_set_times(struct cli *c, const struct place *p, const struct stat *st);
/* Creates the directory with exactly this mode, regardless of the umask. */
int place_mkdir(struct cli *c, const struct place *p, mode_t mode);
int place_rename(struct cli *c, const struct place *from, const struct place *to);

#endif
