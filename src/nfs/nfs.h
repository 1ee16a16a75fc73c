/* nfs: the NFS gateway, sheaf-nfsd: a Sheaf file system for any NFSv3 client. */
#ifndef SHEAF_NFS_H
#define SHEAF_NFS_H

int nfsd_main(int argc, char **argv); /* exit status */

#endif
