#!/bin/bash
# Four servers in one guest, eight clients in the other (vm.py --pair). The link goes down under load, at the clients'
# end or at the servers'. No client sees an error, every byte that was acknowledged is there, and every change of names
# and every append happened once (sys_outage). With clients that may use any route, and with clients that must use RDMA.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"

shared=/run/shared
export SHEAF_TEST_SLOW=1 SHEAF_TEST_RDMA="rxe0 rxe0"
seconds=(5)
[ -z "${SHEAF_TEST_LONG-}" ] || seconds=(5 60)

# The servers' guest, until the other one has ended: the link is down while there is a file `cut`.
serve() {
	local down=
	expect 0 init fs --servers 4 --listen 10.9.0.1
	export SHEAF_CONF=$work/fs/sheaf.conf
	confs+=("$SHEAF_CONF")
	# A call waits for longer than the longest interruption, and so do leases.
	sed -i 's/^timeout = .*/timeout = 200/; s/^lease = .*/lease = 400/; s|^\[cluster\]$|&\ntrust = 10.9.0.0/24|' \
		"$SHEAF_CONF"
	start_servers
	cp -r fs "$shared/fs.new" && mv "$shared/fs.new" "$shared/fs" || fail "no copy of the cluster file"
	until [ -e $shared/end ]; do
		if [ -e $shared/cut ] && [ -z "$down" ]; then
			ip link set eth0 down && down=1
		elif [ ! -e $shared/cut ] && [ -n "$down" ]; then
			ip link set eth0 up && down=
		fi
		sleep 0.2
	done
	! grep -h ' error ' fs/server*/sheafd.log || fail "errors in the servers' logs"
	expect 0 check
}

# over CUT MEND: all interruptions, by these commands
over() {
	local name
	"$SHEAF_BUILD/tests/sys_outage" --over "$SHEAF_CONF" "$1" "$2" "${seconds[@]}" || fail "$1"
	for name in $("$sheaf" ls /); do
		expect 0 rm -r "/$name"
	done
}

if [ "$SHEAF_GUEST" = 0 ]; then
	serve
	exit
fi
within test -d $shared/fs
cp -r $shared/fs fs
export SHEAF_CONF=$work/fs/sheaf.conf
for net in rdma any; do
	unset SHEAF_NET
	[ $net = any ] || export SHEAF_NET=$net
	echo "the link of the clients' host, SHEAF_NET=$net"
	over "ip link set eth0 down" "ip link set eth0 up"
	echo "the link of the servers' host, SHEAF_NET=$net"
	over "touch $shared/cut" "rm $shared/cut"
done
touch $shared/end
