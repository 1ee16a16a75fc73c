#!/bin/bash
# How many calls the kernel's client needs to unpack and read a tree through a gateway: within 10 % of what it needs with
# the kernel's own server. Needs nfs-common, nfs-kernel-server and rpcbind.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
PATH=$PATH:/sbin:/usr/sbin
patience=300

for x in rpcbind rpc.mountd rpc.nfsd exportfs; do
	command -v $x >/dev/null || { echo "skipped: the kernel's server needs $x: apt install nfs-kernel-server rpcbind"; exit 77; }
done
modprobe nfsd && modprobe nfsv3 || fail "the kernel has no NFS server or client"
ip link set lo up
mkdir -p /run/rpcbind /var/lib/nfs/v4recovery /proc/fs/nfsd exported sheaf kernel
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd || fail "no nfsd"
mount -t tmpfs none exported && mounts+=(exported)
rpcbind -w || fail "rpcbind"
within rpcinfo -p 127.0.0.1 >/dev/null
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
exportfs -o rw,fsid=7,no_root_squash,no_subtree_check,insecure "127.0.0.1:$work/exported" || fail "exportfs"
rpc.mountd -N 4 || fail "rpc.mountd"
rpc.nfsd -N 4 2 || fail "rpc.nfsd"

expect 0 init fs --servers 2 --meta 1 --listen 127.0.0.1
export SHEAF_CONF=$work/fs/sheaf.conf
confs+=("$SHEAF_CONF")
printf '\n[nfs]\naddress = 127.0.0.1:20490\n[export.data]\npath = /\nsquash = none\n' >>"$SHEAF_CONF"
within "$sheaf" start >/dev/null
within "$sheaf" nfs start >/dev/null

mount -i -t nfs -o "vers=3,nolock,proto=tcp,port=20490,mountport=20490,mountproto=tcp,addr=127.0.0.1,mountaddr=127.0.0.1" \
	-o mountvers=3 127.0.0.1:/data sheaf || fail "the gateway's export is not mounted"
mounts+=(sheaf)
mount -t nfs -o vers=3,nolock,proto=tcp "127.0.0.1:$work/exported" kernel || fail "the kernel's export is not mounted"
mounts+=(kernel)

tar cf tree.tar -C "$SHEAF_SOURCE" docs src/nfs src/base || fail "no archive"
for at in kernel sheaf; do
	tar xf tree.tar -C $at && sync && rm -rf $at/docs/man && cp -r $at/src $at/copy && diff -r "$SHEAF_SOURCE/src/nfs" $at/src/nfs ||
		fail "unpacking at $at"
done
python3 - "$work/kernel" "$work/sheaf" <<'EOF' || fail "more calls than with the kernel's server"
import re, sys
def counts(at):
    part = re.search(rf"mounted on {re.escape(at)} with fstype nfs .*?(?=\ndevice |\Z)", open("/proc/self/mountstats").read(), re.S)
    return {n: int(k) for n, k in re.findall(r"\n\s+([A-Z]+): (\d+)", part.group(0)) if int(k)}
kernel, ours = (counts(at) for at in sys.argv[1:])
print("call           kernel  sheaf")
for name in sorted(set(kernel) | set(ours)):
    print(f"{name:12} {kernel.get(name, 0):8} {ours.get(name, 0):6}")
total = sum(ours.values()) / sum(kernel.values())
print(f"all: {total:.3f} of the kernel's")
sys.exit(total > 1.1)
EOF
umount sheaf kernel && mounts=(exported)
rpc.nfsd 0
