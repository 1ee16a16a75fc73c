#!/bin/bash
# tests/posix on an export, through the kernel's NFS client: conform as root and as a user, random operations, appends,
# workloads. Groups of conform that NFS version 3 cannot pass are named below, each with the reason; others must pass, and
# one that is named and passes is told.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
PATH=$PATH:/sbin:/usr/sbin
patience=300

# what the protocol, or the client, has not at all
lacks=acl,xattr,trusted,security,btime,atime,blocks,sparse,fallocate,punch,zero-range,collapse,tmpfile,whiteout,link-max
declare -A known=(
	[open_unlinked]="the client renames an open file that is removed (.nfs...)"
	[open_removed_dir]="a handle of a removed directory is stale"
	[self_removed]="the same"
	[map_unlinked]="an open file that is removed has another name"
	[two_unlinked]="the same"
	[links_are_one_file]="an open file that is removed has another name"
	[rename_kinds]="NFS has no flags of rename"
	[rename_over_open]="an open file that is replaced has another name"
	[access_real_user]="the server decides for the user of the call"
	[perm_open_files]="the server decides at each access, not at the open"
	[chown_clears_set_id]="the client keeps the bits that it has cached"
	[mknod_devices]="the client mounts without devices"
	[times_change]="NFS has no flags of rename"
	[perm_deeds]="the same"
	[self_at_once]="the same"
	[perm_dirs]="the client does not ask for the right to remove, and knows that rmdir() of a file is wrong"
	[set_id_bits]="the client sends nothing when a truncate leaves the size"
	[utimes_exact]="NFS version 3 has seconds of 32 bits, none before 1970"
	[self_crowd]="the client sets the attributes of an exclusive file by a second call, later than the time of the directory"
)

expect 0 init fs --servers 2 --meta 1 --listen 127.0.0.1
export SHEAF_CONF=$work/fs/sheaf.conf
confs+=("$SHEAF_CONF")
printf '\n[nfs]\naddress = [::]:2049\n[export.data]\npath = /\nsquash = none\n' >>"$SHEAF_CONF"
within "$sheaf" start >/dev/null # a slow guest needs longer than one command waits
within "$sheaf" nfs start >/dev/null
modprobe nfsv3 || fail "the kernel has no NFS client"
mkdir m
mount -i -t nfs -o "vers=3,nolock,proto=tcp,port=2049,mountport=2049,mountproto=tcp,actimeo=0" \
	-o "addr=127.0.0.1,mountaddr=127.0.0.1,mountvers=3" 127.0.0.1:/data m || fail "not mounted"
mounts+=(m)
cp "$SHEAF_BUILD"/tests/{conform,fsrandom,appenders} . && chmod 755 conform . || fail "no programs"
mkdir m/root m/user m/random && chown 777:777 m/user || fail "no directories"

# conforms WHO COMMAND...: runs it, and compares the groups that failed with the known ones
conforms() {
	local who=$1 bad=0 group
	shift
	echo "conform as $who"
	"$@" --lacks $lacks 2>&1 | tee "conform.$who"
	for group in $(./conform --list | awk '{ print $1 }'); do
		if grep -q "^$group\b" "conform.$who"; then
			[ -n "${known[$group]:-}" ] && continue
			echo "$who: $group:"
			grep "^$group\b" "conform.$who" | head -3
			bad=$((bad + 1))
		elif [ -n "${known[$group]:-}" ]; then
			echo "$who: $group passes, or was not run"
		fi
	done
	grep -q '^conform: .* checks' "conform.$who" || fail "conform as $who did not end"
	[ $bad = 0 ] || fail "conform as $who: $bad groups failed that are not known to"
}
conforms root ./conform m/root
conforms user setpriv --reuid 777 --regid 777 --clear-groups ./conform m/user
./fsrandom m/random --ops 3000 --seed 7 --lacks $lacks >out 2>&1 || { tail out; fail "random operations"; }
./appenders m/random >out 2>&1 || { tail out; fail "appends"; }
umount m && mounts=()
expect 0 nfs stop
