/* The daemon behind `sheaf mount`. */
#include "mount/mount.h"

int main(int argc, char **argv)
{
	return mount_main(argc, argv);
}
