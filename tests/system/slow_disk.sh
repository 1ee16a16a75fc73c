#!/bin/bash
# Servers on a disk that writes 20 MB/s and has little room for dirty memory: ext4 on a loop device with a
# throttle. While one client copies files as fast as it can, another writes and reads lists of small pieces. All
# data arrive, and the waits of the servers' loops are counted. With SHEAF_JUDGE_SPEED=1 no wait is longer than
# 20 ms. Needs root, a loop device and the throttle of cgroup v1.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/session.inc"
unset SHEAF_CONF SHEAF_KEY

throttle=/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device
device= number=

skip() {
	echo "$*"
	exit 77
}

end() {
	[ -n "$number" ] && echo "$number 0" >$throttle
	cleanup
	[ -n "$device" ] && losetup -d "$device"
}

[ "$(id -u)" = 0 ] || skip "needs root"
[ -w $throttle ] || skip "no throttle of cgroup v1 for disks"
truncate -s 1G disk.img && mkfs.ext4 -qF disk.img || skip "no mkfs.ext4"
trap end EXIT
device=$(losetup -f --show disk.img 2>/dev/null) || { device=; skip "no loop device"; }
mkdir disk && mount "$device" disk || skip "ext4 cannot be mounted"
mounts+=("$work/disk")
number=$(cat "/sys/block/${device##*/}/dev")
limit=/sys/block/${device##*/}/bdi/max_bytes
[ -w "$limit" ] && echo 50000000 >"$limit"

expect 0 init disk/fs --servers 2 --meta 1 --port "$(free_ports 2)"
export SHEAF_CONF=$work/disk/fs/sheaf.conf
confs+=("$SHEAF_CONF")
expect 0 start
head -c 40000000 /dev/urandom >data
expect 0 cp data sheaf:/first
sync -f disk
echo "$number 20971520" >$throttle

while "$sheaf" cp data sheaf:/again; do :; done 2>/dev/null &
writer=$!
helpers+=($writer)
expect 0 bench lists --rounds 1
kill $writer
wait $writer
echo "$number 0" >$throttle
expect 0 cp data sheaf:/again
for name in first again; do
	"$sheaf" cat /$name | cmp - data || fail "$name has other data than were written"
done

sed -n 's/^metrics = //p' "$SHEAF_CONF" | no_proxy='*' python3 -c '
import os, re, sys, urllib.request
longest = total = 0
for address in sys.stdin:
    text = urllib.request.urlopen(f"http://{address.strip()}/metrics").read().decode()
    total += int(re.search(r"^sheaf_disk_stalls_total (\d+)", text, re.M).group(1))
    ns = int(re.search(r"^sheaf_disk_longest_stall_nanoseconds (\d+)", text, re.M).group(1))
    longest = max(longest, ns)
print(f"{total} stalls, the longest of {longest / 1e6:.1f} ms")
sys.exit(os.environ.get("SHEAF_JUDGE_SPEED") == "1" and longest > 20e6)
' || fail "the loop of a server waited for longer than 20 ms"
