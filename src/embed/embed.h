/* embed: where a file system comes from: a cluster file, or targets inside this process.
 * The public functions are sheaf_connect() and sheaf_init() (include/sheaf.h). */
#ifndef SHEAF_EMBED_H
#define SHEAF_EMBED_H

#include "sheaf.h"

#endif
