/* Where the NFS gateway of an address answers `sheaf nfs`. */
#include "base/base.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

unsigned nfs_control_address(const char *address, struct sockaddr_un *a)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "sheaf-nfsd %.90s", address);
	return (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a->sun_path + 1));
}
