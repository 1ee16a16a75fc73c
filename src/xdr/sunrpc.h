/* The filters of ONC RPC and of the protocols of NFS, generated from proto/rpc.x, mount3.x,
 * nfs3.x and nlm4.x. Apart from xdr.h, since only the gateway and its tests use them. */
#ifndef SHEAF_SUNRPC_H
#define SHEAF_SUNRPC_H

#include "xdr/xdr.h"

#include "xdr/gen/mount3.h"
#include "xdr/gen/nfs3.h"
#include "xdr/gen/nlm4.h"
#include "xdr/gen/rpc.h"

#endif
