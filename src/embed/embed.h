/* embed: opens a file system, by a cluster file or with targets inside this process. The public
 * functions are sheaf_connect() and sheaf_init() (include/sheaf.h). */
#ifndef SHEAF_EMBED_H
#define SHEAF_EMBED_H

#include "sheaf.h"

#endif
