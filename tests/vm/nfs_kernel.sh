#!/bin/bash
# The kernel's NFS client on an export: files, names, links, listings, attributes; what one client writes a Sheaf client
# reads. The gateway is killed and started again while a file is being written.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
PATH=$PATH:/sbin:/usr/sbin

expect 0 init fs --servers 2 --meta 1 --listen 127.0.0.1
export SHEAF_CONF=$work/fs/sheaf.conf
confs+=("$SHEAF_CONF")
printf '\n[nfs]\naddress = [::]:2049\n[export.data]\npath = /\nsquash = none\n[export.safe]\npath = /d\nro = yes\n' >>"$SHEAF_CONF"
within "$sheaf" start >/dev/null # a slow guest needs longer than one command waits
expect 0 mkdir /d
within "$sheaf" nfs start >/dev/null
modprobe nfsv3 || fail "the kernel has no NFS client"

# at DIR EXPORT
at() {
	mkdir -p "$1" && mount -i -t nfs -o "vers=3,nolock,proto=tcp,port=2049,mountport=2049,mountproto=tcp" \
		-o "addr=127.0.0.1,mountaddr=127.0.0.1,mountvers=3" "127.0.0.1:$2" "$1" || fail "$2 is not mounted"
	mounts+=("$1")
}
at m /data
at ro /safe

head -c 5000000 /dev/urandom >r
cp r m/d/r && cmp r m/d/r || fail "other bytes are read"
expect 0 cat /d/r
cmp r out || fail "a Sheaf client reads other bytes"
cmp r ro/r || fail "other bytes are read through the other export"
touch ro/new 2>/dev/null && fail "a file is made in an export that is read only"

mkdir m/t && tar cf - -C "$SHEAF_SOURCE" docs/man | tar xf - -C m/t && diff -r "$SHEAF_SOURCE/docs/man" m/t/docs/man ||
	fail "a tree differs"
ln -s a m/l && [ "$(readlink m/l)" = a ] || fail "no symbolic link"
ln m/d/r m/d/hard && [ "$(stat -c %h m/d/r)" = 2 ] || fail "no hard link"
mv m/d/hard m/t/moved && [ "$(stat -c %i m/t/moved)" = "$(stat -c %i m/d/r)" ] || fail "rename"
mkfifo m/fifo && [ -p m/fifo ] || fail "no pipe"
cp --preserve=all r m/p && touch -d 2001-02-03 m/p && [ "$(stat -c %Y m/p)" = "$(date -d 2001-02-03 +%s)" ] || fail "times"
install -m 444 r m/readonly && cmp r m/readonly || fail "a file without write permission is not written"
for i in $(seq 300); do : >"m/t/name$i"; done
[ "$(ls m/t | grep -c name)" = 300 ] || fail "a listing is not complete"
rm -r m/t && [ ! -e m/t ] || fail "the tree is still there"
[ -z "$(ls m/fifo/x 2>/dev/null)" ] || fail "a pipe has entries"

if command -v git >/dev/null; then
	git init -q repo && cp "$SHEAF_SOURCE"/src/nfs/*.c repo && git -C repo add . &&
		git -C repo -c user.name=t -c user.email=t@example.org commit -qm files && git clone -q repo m/clone &&
		git -C m/clone fsck --no-progress && diff -r -x .git repo m/clone || fail "a clone differs"
	git -c safe.directory='*' clone -q "$PWD/m/clone" m/clone2 && git -c safe.directory='*' -C m/clone2 status --short >out && [ ! -s out ] ||
		fail "a clone on the export differs"
fi

echo 3 >/proc/sys/vm/drop_caches
cmp r m/d/r || fail "other bytes are read without the page cache"

# a restart is not noticed
pid=$("$sheaf" nfs status --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
(for i in 1 2 3 4; do cat r; sleep 0.5; done) >m/long &
writer=$!
sleep 1
kill -9 "$pid"
within "$sheaf" nfs start >/dev/null
wait $writer || fail "the writer failed"
cat r r r r | cmp - m/long || fail "data were lost with the gateway"
expect 0 nfs status
says getattr
umount m ro && mounts=()
expect 0 nfs stop
says 'has stopped'
