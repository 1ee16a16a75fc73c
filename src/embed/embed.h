/* embed: opens a file system, by a cluster file or with targets inside this process. The public
 * functions are sheaf_connect() (include/sheaf.h), sheaf_init(), sheaf_backup() and sheaf_restore()
 * (include/sheaf_admin.h). */
#ifndef SHEAF_EMBED_H
#define SHEAF_EMBED_H

#include "sheaf_admin.h"

/* Stores the text for sheaf_why() and returns r. */
int why_fail(int r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
