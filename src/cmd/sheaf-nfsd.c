/* The NFS gateway behind `sheaf nfs`. */
#include "nfs/nfs.h"

int main(int argc, char **argv)
{
	return nfsd_main(argc, argv);
}
