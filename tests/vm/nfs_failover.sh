#!/bin/bash
# Two gateways with one address, which moves when the one that has it is killed: the kernel's client goes on. No call is
# executed twice, no data are lost, and a lock stays with its owner. Needs nfs-common and rpcbind.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
PATH=$PATH:/sbin:/usr/sbin
patience=300

for x in rpcbind rpc.statd; do
	command -v $x >/dev/null || { echo "skipped: the client's lock manager needs $x: apt install nfs-common rpcbind"; exit 77; }
done
. "$SHEAF_SOURCE/tests/vm/hosts.inc"

ip link set lo up && ip address add 10.8.0.1/24 dev br0 || fail "no address"
servers s0=10.8.0.4
confs+=("$SHEAF_CONF")
printf '\n[export.data]\npath = /\nsquash = none\n' >>"$SHEAF_CONF"
modprobe nfsv3 && modprobe lockd && modprobe fuse || fail "the kernel has no NFS client, or no FUSE"
mkdir -p /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/sm.bak
rpcbind -w || fail "rpcbind"
within rpcinfo -p 127.0.0.1 >/dev/null
rpc.statd || fail "rpc.statd"

# gateway HOST: starts one there, and says its pid
gateway() {
	ip netns exec "$1" "$sheaf-nfsd" --log "$work/$1.log" >/dev/null 2>&1 & # `on` would be another process
	echo $!
}
# takes HOST: it gets the address, and says so to all, as a program that moves addresses does
takes() {
	ip -n "$1" address add 10.8.0.9/24 dev eth0 || fail "no address for $1"
	ip neigh flush dev br0
	on s0 ip neigh flush dev eth0
}
host gw1 10.8.0.2
host gw2 10.8.0.3
takes gw1
one=$(gateway gw1)
two=$(gateway gw2)
helpers+=("$one" "$two")
within grep -q 'exports at' gw1.log
within grep -q 'exports at' gw2.log

mkdir m s
mount -i -t nfs -o "vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,addr=10.8.0.9,mountaddr=10.8.0.9,timeo=20" \
	-o mountvers=3 10.8.0.9:/data m || fail "not mounted"
mounts+=(m)
expect 0 mount s
mounts+=(s)

# names, each used once, so that a call that is executed twice is an error
names() {
	local i=0
	mkdir m/names || return 1
	while [ ! -e stop ]; do
		i=$((i + 1))
		mkdir "m/names/d$i" && echo $i >"m/names/f$i" && mv "m/names/f$i" "m/names/d$i/g" && [ "$(cat "m/names/d$i/g")" = $i ] &&
			rm "m/names/d$i/g" && rmdir "m/names/d$i" || { echo "names: round $i failed" >&2; return 1; }
	done
	echo $i >names.done
}
data() {
	local i=0
	while [ ! -e stop ]; do
		i=$((i + 1))
		dd if=r of="m/data$((i % 3))" bs=64k conv=fsync 2>dd.err && cmp r "m/data$((i % 3))" ||
			{ echo "data: round $i failed" >&2; cat dd.err >&2; return 1; }
	done
	echo $i >data.done
}
echo x >m/lock
python3 -c '
import fcntl, sys, time, os
f = open("m/lock", "r+")
fcntl.lockf(f, fcntl.LOCK_EX)
print("held", flush=True)
while not os.path.exists("end"):
    time.sleep(0.2)
fcntl.lockf(f, fcntl.LOCK_UN)
print("given back", flush=True)' >holder 2>&1 &
helpers+=($!)
within grep -q held holder
free() {
	python3 -c 'import fcntl; fcntl.lockf(open("s/lock", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null
}
head -c 300000 /dev/urandom >r
names &
n=$!
data &
d=$!

for round in 1 2 3 4; do
	sleep 5
	free && fail "the lock is free in round $round"
	if [ $((round % 2)) = 1 ]; then from=gw1 to=gw2 pid=$one; else from=gw2 to=gw1 pid=$two; fi
	kill -9 "$pid" || fail "the gateway on $from had ended"
	ip -n $from address del 10.8.0.9/24 dev eth0
	takes $to
	if [ $to = gw2 ]; then kill -HUP "$two"; else kill -HUP "$one"; fi
	[ $from = gw1 ] && one=$(gateway gw1) || two=$(gateway gw2)
	helpers+=("$one" "$two")
	free && fail "the lock is free after round $round"
done
sleep 5
touch stop
wait $n || fail "names: a call failed, or was executed twice"
wait $d || fail "data: a write or a comparison failed"
echo "$(cat names.done) rounds of names, $(cat data.done) of data"
[ -z "$(ls m/names)" ] || fail "names are left: $(ls m/names)"
free && fail "the lock is free at the end"
touch end
within grep -q 'given back' holder
within free
grep -h 'status monitor' gw?.log
umount m && { "$sheaf" umount s || ! mountpoint -q s; } && mounts=() # a slow guest ends the daemon later
