/* embed: opens a file system, by a cluster file or with targets inside this process. The public
 * functions are sheaf_connect() (include/sheaf.h), sheaf_init(), sheaf_backup() and sheaf_restore()
 * (include/sheaf_admin.h). */
#ifndef SHEAF_EMBED_H
#define SHEAF_EMBED_H

#include <stdbool.h>

#include "sheaf_admin.h"

/* Stores the text for sheaf_why() and returns r. */
int why_fail(int r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- filler.c: a metadata server's reader of files that have settled ---- */

struct server_filler;
int filler_start(const char *conf, struct server_filler **out);
/* Asks it to end. True: it has; until then the server must go on. of may be NULL, also below. */
bool filler_stop(struct server_filler *of);
void filler_free(struct server_filler *of); /* after filler_stop() was true */

#endif
