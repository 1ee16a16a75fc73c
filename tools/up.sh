#!/bin/bash
# Makes a file system in DIR if there is none, starts its servers, tries them out.
#   tools/up.sh DIR SERVERS      behind `make up`
# GIVEN is empty if SERVERS is only a default. BUILD names the build directory (build), PORT the first port (the first free range from 7430 on).
# Needs bash and coreutils only. Running it again is fine: what runs stays as it is.
set -u

dir=${1-}
servers=${2-4}
build=${BUILD:-build}
sheaf=$build/bin/sheaf

die() {
	echo "up: $*" >&2
	exit 1
}

if [ -z "$dir" ]; then
	echo "usage: tools/up.sh DIR [SERVERS]" >&2
	exit 2
fi
case $servers in
'' | *[!0-9]* | 0*) die "SERVERS=$servers: not a number of servers" ;;
esac
while [ "${dir#./}" != "$dir" ]; do dir=${dir#./}; done
[ -x "$sheaf" ] || die "$sheaf is not there; run 'make' first"

# Local ports in use, as " 7430 7431 ... ": /proc lists them in hexadecimal; state 06 is TIME_WAIT.
used_ports() {
	local f local_address state rest
	printf ' '
	for f in /proc/net/tcp /proc/net/tcp6; do
		[ -r "$f" ] || continue
		while read -r _ local_address _ state rest; do
			[[ $local_address == *:* && $state != 06 ]] || continue
			printf '%d ' "0x${local_address##*:}"
		done <"$f"
	done
}

# The first port of a free range of SERVERS ports.
free_range() {
	local used first p
	used=$(used_ports)
	for ((first = 7430; first + servers <= 65536; first = p + 1)); do
		for ((p = first; p < first + servers; p++)); do
			[[ $used == *" $p "* ]] && continue 2
		done
		echo "$first"
		return
	done
	return 1
}

conf=$dir/sheaf.conf
if [ ! -e "$conf" ]; then
	if [ -e "$dir" ] && [ ! -d "$dir" ]; then
		die "$dir is not a directory; choose another: make up DIR=..."
	fi
	if [ -d "$dir" ] && [ -n "$(ls -A "$dir")" ]; then
		die "$dir is not empty and holds no sheaf.conf; choose another: make up DIR=..."
	fi
	port=${PORT:-$(free_range)} || die "no $servers free ports in a row from 7430 on; name the first: make up PORT=..."
	"$sheaf" init "$dir" --servers "$servers" --port "$port" >/dev/null || exit 1
	echo "made a file system of $servers servers in $dir, ports from $port on"
else
	has=$(grep -c '^\[server\.' "$conf")
	if [ "$has" = "$servers" ] || [ "${GIVEN-1}" = "" ]; then
		echo "found the file system in $dir"
	else
		echo "found the file system in $dir: it has $has servers, and SERVERS=$servers changes nothing;" \
			"'$sheaf --conf $conf add-server NAME' adds one, make up DIR=... SERVERS=$servers makes another file system"
	fi
fi

"$sheaf" --conf "$conf" start || die "not all servers are up; each has a log: $dir/server*/sheafd.log"
"$sheaf" --conf "$conf" selfcheck --seconds 5 | sed '/^what to try next/,$d'
[ "${PIPESTATUS[0]}" = 0 ] || die "the servers run, but the self-check failed"

mnt=$dir/mnt
mounted() {
	grep -qF " $(realpath "$mnt") " <(grep ' - fuse.sheaf ' /proc/self/mountinfo)
}
try=
if [ ! -e /dev/fuse ]; then
	echo "not mounted: there is no /dev/fuse on this machine; the sheaf command and libsheaf work without"
elif mkdir -p "$mnt" 2>/dev/null && mounted; then
	echo "it is mounted at $mnt"
	try="  ls -l $mnt            any program works there"
elif "$sheaf" --conf "$conf" mount "$mnt"; then
	echo "mounted at $mnt"
	try="  ls -l $mnt            any program works there"
else
	echo "not mounted; the sheaf command and libsheaf work without"
fi

cat <<END

Up. The cluster file is $conf. Things to try:
  $sheaf --conf $conf status
  $sheaf --conf $conf cp -r src sheaf:/src
  $sheaf --conf $conf ls -lR /src
  $sheaf --conf $conf cat /src/base/base.h
$try
'make down' stops it; the data stay.
END
