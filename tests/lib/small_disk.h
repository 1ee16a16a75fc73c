/* A cluster of a metadata server (0) and a data server (1), one of which has its storage on a small
 * tmpfs. It needs the right to mount one. Errors: every error is a failed check. */
#ifndef SHEAF_TEST_SMALL_DISK_H
#define SHEAF_TEST_SMALL_DISK_H

#include "cluster.h"

/* Makes the cluster and starts it; `size` as for mount(8), for example "8m". */
void small_disk_start(struct cluster *c, int full, const char *size);
void small_disk_stop(struct cluster *c);

#endif
