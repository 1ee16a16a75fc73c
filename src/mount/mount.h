/* mount: a Sheaf file system as a directory of this host, over FUSE. */
#ifndef SHEAF_MOUNT_H
#define SHEAF_MOUNT_H

/* The program sheaf-mount; its exit status. */
int mount_main(int argc, char **argv);

#endif
