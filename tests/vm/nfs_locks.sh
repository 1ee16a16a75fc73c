#!/bin/bash
# Locks of the kernel's NFS client, whose lock manager has another network than the gateway: they conflict with those of
# a mount of Sheaf, a lock that is waited for is granted by a call to the client, and the end of its process frees it.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
PATH=$PATH:/sbin:/usr/sbin

for x in rpcbind rpc.statd; do
	command -v $x >/dev/null || { echo "skipped: the client's lock manager needs $x: apt install nfs-common rpcbind"; exit 77; }
done
. "$SHEAF_SOURCE/tests/vm/hosts.inc"

ip link set lo up && ip address add 10.8.0.1/24 dev br0 || fail "no address"
servers gw=10.8.0.2
confs+=("$SHEAF_CONF")
printf '\n[export.data]\npath = /\nsquash = none\n' >>"$SHEAF_CONF"
on gw "$sheaf" nfs start || fail "no gateway"
modprobe nfsv3 && modprobe lockd && modprobe fuse || fail "the kernel has no NFS client, or no FUSE"
mkdir -p /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/sm.bak
rpcbind -w || fail "rpcbind"
within rpcinfo -p 127.0.0.1 >/dev/null
rpc.statd || fail "rpc.statd"

mkdir m s
mount -i -t nfs -o "vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,addr=10.8.0.2,mountaddr=10.8.0.2" \
	-o mountvers=3 10.8.0.2:/data m || fail "not mounted"
mounts+=(m)
expect 0 mount s
mounts+=(s)
echo data >m/f

# hold FILE FLAGS OUT: takes a lock of the whole file, says so in OUT, and holds it until this process is killed
hold() {
	exec python3 -c '
import fcntl, sys, time
f = open(sys.argv[1], "r+")
fcntl.lockf(f, fcntl.LOCK_EX | (fcntl.LOCK_NB if sys.argv[2] == "now" else 0))
print("held", flush=True)
time.sleep(3600)' "$1" "$2" >"$3" 2>"$3.err"
}
# free FILE: nobody holds a lock of it
free() {
	python3 -c 'import fcntl, sys; fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)' "$1" 2>/dev/null
}

hold m/f now one &
holder=$!
within grep -q held one
free s/f && fail "a mount takes the lock that an NFS client has"
kill $holder
within free s/f
within free m/f

hold s/f now two &
holder=$!
within grep -q held two
free m/f && fail "an NFS client takes the lock that a mount has"
hold m/f wait three &
waiter=$!
sleep 3
grep -q held three && fail "the lock was granted while another client has it"
kill $holder
within grep -q held three
free s/f && fail "the granted lock is not there"
kill $waiter
within free s/f
on gw "$sheaf" nfs status >out
says lock
umount m && "$sheaf" umount s && mounts=()
on gw "$sheaf" nfs stop || fail "the gateway does not stop"
