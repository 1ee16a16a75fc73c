#!/bin/bash
# sheaf cp and rm with several files in flight: mixed names in, within and out; signals, lost terminals, dead
# servers and full or closed directories leave nothing half-done and say so in one line.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/session.inc"
export LC_ALL=C

port=$(free_ports 3)
expect 0 init fs --servers 3 --meta 3 --port "$port" --stripe-unit 64K
confs+=("$work/fs/sheaf.conf")
sed -i 's/^timeout = .*/timeout = 5/' fs/sheaf.conf
# for copies that a stopped server only delays
sed 's/^timeout = .*/timeout = 120/' fs/sheaf.conf >fs/patient.conf
export SHEAF_CONF=$work/fs/sheaf.conf
expect 0 start

mkdir -p into tree/many tree/empty tree/a/b/c/d/e tree/sealed
: >tree/sealed/file
for ((i = 0; i < 120; i++)); do printf '%d\n' $i >tree/many/$i; done
head -c 3000001 /dev/urandom >tree/large
head -c 1048576 /dev/urandom >tree/a/block
: >tree/a/b/nothing
printf x >"tree/ a name "
printf x >$'tree/new\nline'
printf x >tree/-r
printf x >tree/--jobs
printf x >$'tree/\xff\xfe'
printf x >$'tree/\e[31mred'
ln -s nowhere tree/dangling
ln -s a/block tree/link
chmod 640 tree/large
chmod 400 tree/a/block
chmod 711 tree/a/b
chmod 500 tree/sealed

modes() {
	(cd "$1" && find . ! -type l -printf '%P %m\n' | sort)
}

# same DIR: it is the tree, byte for byte and mode for mode
same() {
	diff -r --no-dereference tree "$1" >diffs || fail "$1 is different: $(head -n 3 diffs)"
	cmp -s <(modes tree) <(modes "$1") || fail "modes in $1"
}

no_temps_outside() {
	[ -z "$(find "$1" -name '.sheaf-cp-*')" ] || fail "temporary files are left in $1"
}

no_temps_inside() {
	expect 0 ls -aR "$1"
	! grep -q sheaf-cp out || fail "temporary files are left inside"
}

server_pid() {
	cat "fs/server$1/sheafd.pid"
}

# home PATH: the number of the server that keeps it
home() {
	local ino
	ino=$("$sheaf" stat "$1" | sed -n 's/.*inode: \([0-9]*\),.*/\1/p')
	echo $(((ino >> 48) % 3))
}

# dir_on SERVER: a new directory whose names that server keeps; those of a tree in it are not server1's
dir_on() {
	local d
	for d in /on$1-{a..z}; do
		"$sheaf" mkdir -p "$d/tree" || return
		[ "$(home "$d")" = "$1" ] && [ "$(home "$d/tree")" != 1 ] && break
		"$sheaf" rm -r "$d"
	done
	"$sheaf" rm -r "$d/tree"
	echo "$d"
}

for jobs in 1 16; do
	echo "trees in, within and out, $jobs at a time"
	expect 0 cp -r --jobs $jobs tree sheaf:/tree
	[ -s err ] && fail "progress without a terminal"
	expect 0 cp --jobs $jobs -r sheaf:/tree sheaf:/copy
	expect 0 cp -rj $jobs sheaf:/copy out-tree
	same out-tree
	expect 0 cp -r --jobs $jobs tree sheaf:/ # over what is there
	mv out-tree into/tree
	expect 0 cp -r --jobs $jobs sheaf:/tree into
	same into/tree
	expect 0 rm -r --jobs $jobs /tree /copy
	expect 0 ls -a
	[ -s out ] && fail "rm -r left something"
	rm -rf into/tree
done
for args in "cp --jobs 0 a sheaf:/" "cp --jobs 65 a sheaf:/" "rm --jobs x /a"; do
	expect 2 $args
	one_line "from 1 to 64"
done

echo "several arguments"
expect 0 mkdir /d
(cd tree && expect 0 cp -- -r --jobs $'new\nline' $'\xff\xfe' large sheaf:/d) || exit 1
expect 0 cp -r sheaf:/d out-d
for f in -r --jobs $'new\nline' $'\xff\xfe' large; do cmp "tree/$f" "out-d/$f" || fail "$f"; done
expect 1 cp tree/many/1 $'no\nsuch' tree/many/2 sheaf:/d
one_line "^sheaf cp: no?such: no such"
expect 0 cat /d/1 /d/2
[ "$(tr '\n' ' ' <out)" = "1 2 " ] || fail "the others were not copied"
mkdir -p x y && echo x >x/f && echo y >y/f && echo x >x/g
expect 0 cp x/f x/g y/f sheaf:/d
expect 0 cat /d/f
[ "$(cat out)" = y ] || fail "of two files with the same name the last one stays"
expect 1 rm /d/1 /d/nope /d/2
one_line "/d/nope"
expect 0 rm -r /d

# interrupted STATUS: cp has got a signal, ends with it and says so
interrupted() {
	wait $cp 2>/dev/null
	[ $? = "$1" ] || fail "not ended with status $1"
	one_line "interrupted"
}

some_temps() {
	"$sheaf" ls -aR "$1" | grep -q sheaf-cp
}

three_temps() {
	[ "$("$sheaf" ls -a "$in" | grep -c sheaf-cp)" = 3 ]
}

echo "signals leave nothing behind"
mkfifo p1 p2 p3
in=$(dir_on 2)   # server1 is stopped and killed below: these names stay to be had
held=$(dir_on 1) # and these do not
for s in INT TERM HUP; do
	"$sheaf" cp p1 p2 p3 "sheaf:$in" >out 2>err &
	cp=$!
	helpers=($cp)
	exec 7>p1 8>p2 9>p3
	head -c 3000000 /dev/zero >&7
	within three_temps
	kill -$s $cp
	interrupted $((128 + $(kill -l $s)))
	exec 7>&- 8>&- 9>&-
	expect 0 ls -a "$in"
	[ -s out ] && fail "something is left"
done

# A server that stands still holds copies in the middle.
halt() {
	helpers=("$(server_pid 1)")
	kill -STOP "${helpers[0]}"
}

# hold SEEN ARGS...: starts cp of ARGS, which a stopped server holds, and waits until the command
# SEEN succeeds. A copy gives up after a timeout. On a busy machine it may end before its temporary
# files were seen: then it is started again.
hold() {
	local seen=$1 try start
	shift
	for try in {1..10}; do
		rm -rf out-tree into/*
		halt
		"$sheaf" cp "$@" >out 2>err &
		cp=$!
		start=$SECONDS
		while [ $((SECONDS - start)) -lt 3 ]; do # later, too little of the timeout is left
			$seen && return
			sleep 0.05
		done
		wait $cp
		kill -CONT "${helpers[0]}"
		echo "again: not seen in time: $seen"
	done
	fail "ten copies ended before this was seen: $seen"
}

# empty DIR: nothing is in it, or will be once the server has done what it was asked to
empty() {
	[ -z "$("$sheaf" ls -a "$1")" ]
}

# A write is under way when the fifth block is being read. One timeout, not one for each step, also where the server that
# stands still keeps the name: it removes it when it goes on.
for dir in "$in" "$held"; do
	"$sheaf" cp p1 "sheaf:$dir" >out 2>err &
	cp=$!
	exec 7>p1
	head -c 10 /dev/zero >&7
	within some_temps "$dir"
	halt
	head -c 5000000 /dev/zero >&7
	start=$SECONDS
	kill -INT $cp
	interrupted 130
	at_most 9 $start
	exec 7>&-
	kill -CONT "${helpers[0]}"
	if [ "$dir" = "$held" ]; then
		grep -q "may be left behind" err || fail "it does not say what may be left"
		within empty "$dir"
	else
		empty "$dir" || fail "something is left"
	fi
done

echo "a server that stands still and keeps the names"
halt
start=$SECONDS
expect 1 cp tree/large "sheaf:$held"
at_most 9 $start
one_line "server1 .*does not answer"
kill -CONT "${helpers[0]}"
within empty "$held"

temps_in() {
	[ -n "$(find "$1" -name '.sheaf-cp-*' 2>/dev/null)" ]
}

expect 0 cp -r tree sheaf:/tree
[ "$(home /tree)" != 1 ] || fail "server1 keeps /tree: another name would do"
halt
"$sheaf" --conf fs/patient.conf cp -r sheaf:/tree into >out 2>err &
cp=$!
within temps_in into
kill -INT $cp
kill -CONT "${helpers[0]}"
interrupted 130
no_temps_outside into
expect 0 cp -r sheaf:/tree into # a repeated one completes
same into/tree
rm -rf into/tree

# waits_for_it: the command has said for a second that it waits for a server
waits_for_it() {
	grep -q "waiting for" err
}

echo "a source that is replaced while cp looks at the target is copied as a whole"
echo short >short
expect 0 cp short "sheaf:$held/target"
expect 0 mkdir "$in/to"
expect 0 mv "$held/target" "$in/to/file" # the name is not server1's, the inode is
[ "$(home "$in/to/file")" = 1 ] || fail "the file has moved to another server with its name"
expect 0 cp short "sheaf:$in/file"
expect 0 cp tree/large "sheaf:$in/other"
[ "$(home "$in/other")" = 2 ] && [ "$(home "$in/to")" != 1 ] || fail "server1 keeps another name or file"
for recursive in "" -r; do
	: >err
	halt
	"$sheaf" --conf fs/patient.conf cp $recursive "sheaf:$in/file" "sheaf:$in/to" >out 2>err &
	cp=$!
	within waits_for_it
	for names in "file was" "other file"; do # nothing is replaced: server1 would have to remove it
		"$sheaf" mv "$in/${names% *}" "$in/${names#* }" || fail "mv while server1 stands still"
	done
	kill -CONT "${helpers[0]}"
	wait $cp || fail "cp of a file that is replaced"
	"$sheaf" cat "$in/to/file" | cmp - tree/large || fail "a part of the new file was copied"
	expect 0 mv "$in/file" "$in/other"
	expect 0 mv "$in/was" "$in/file"
	expect 0 cp short "sheaf:$held/target"
	expect 0 mv "$held/target" "$in/to/file"
done
expect 0 rm -r "$in/to" "$in/file" "$in/other"

# place_dir DIR yes|no: makes a directory that server1 keeps, or not. Directories in the root are spread.
place_dir() {
	local i on
	for i in {1..60}; do
		expect 0 mkdir "/place-$i"
		[ "$(home "/place-$i")" = 1 ] && on=yes || on=no
		[ $on = "$2" ] && break
		expect 0 rm -r "/place-$i"
	done
	[ $on = "$2" ] || fail "no directory on server1, or none elsewhere"
	expect 0 mv "/place-$i" "$1"
}

attributes() {
	"$sheaf" stat --json "$1" | grep -E '"(mode|uid|gid)"'
}

echo "a directory that is replaced by a link while a command is at work leads nowhere else"
place_dir "$in/foreign" no
expect 0 cp short "sheaf:$in/foreign/file"
attributes "$in/foreign/file" >before
as_root=()
[ "$(id -u)" = 0 ] && as_root=("chown -R 1234:5678")
for command in "rm -r --jobs 1" "chmod -R 700" "${as_root[@]}"; do
	: >err
	place_dir "$in/tree" no
	place_dir "$in/tree/a" yes # its turn comes first, and lasts as long as server1 stands still
	place_dir "$in/tree/b" no
	expect 0 cp short "sheaf:$in/tree/b/file"
	halt
	"$sheaf" --conf fs/patient.conf $command "$in/tree" >out 2>err.walk &
	walk=$!
	within grep -q "waiting for" err.walk
	expect 0 mv "$in/tree/b" "$in/away"
	expect 0 ln -s "$in/foreign" "$in/tree/b"
	kill -CONT "${helpers[0]}"
	wait $walk
	status=$?
	cp err.walk err
	case $command in
	rm*)
		[ $status = 1 ] || fail "$command is done with a tree in which something is left"
		one_line "^sheaf rm: $in/tree/b: it was replaced"
		;;
	*) [ $status = 0 ] || fail "$command" ;;
	esac
	attributes "$in/foreign/file" | cmp -s - before || fail "$command left its tree"
	expect 0 rm -r "$in/tree" "$in/away"
done
expect 0 rm -r "$in/foreign"

echo "what cannot be removed is told"
mkdir shut
plain=() # root may do what modes forbid, unless it lacks two capabilities
[ "$(id -u)" = 0 ] && plain=(setpriv --bounding-set=-dac_override,-dac_read_search)
halt
"${plain[@]}" "$sheaf" --conf fs/patient.conf cp sheaf:/tree/large shut >out 2>err &
cp=$!
within temps_in shut
chmod 555 shut
kill -CONT "${helpers[0]}"
wait $cp
[ $? = 1 ] || fail "a closed directory is a failure"
grep -q "^sheaf cp: shut/large: permission denied" err || fail "it does not say why"
grep -q "1 .sheaf-cp-$cp-\* left behind" err || fail "it does not say what is left"
[ "$(wc -l <err)" = 2 ] || fail "not two lines on stderr"
chmod 755 shut

# terminal PROGRAM: cp within a terminal; what it wrote is printed. "hangup" closes the terminal in the middle
terminal() {
	python3 - "$sheaf" "$@" <<'END'
import os, pty, re, select, signal, sys, time
sheaf, way, servers = sys.argv[1], sys.argv[2], int(sys.argv[3])
pid, fd = pty.fork()
if pid == 0:
    os.execv(sheaf, [sheaf, "--conf", "fs/patient.conf", "cp"] + sys.argv[4:])
said, end = b"", time.monotonic() + 60
enough = rb" files " if way == "hangup" else rb" of 3.8 MiB .*/s"
while not re.search(enough, said):  # the progress is to be seen while nothing moves
    if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
        break
    said += os.read(fd, 65536)
if way == "hangup":
    os.close(fd)
os.kill(servers, signal.SIGCONT)
while way != "hangup":
    try:
        part = os.read(fd, 65536)
    except OSError:
        break
    if not part:
        break
    said += part
_, status = os.waitpid(pid, 0)
print("status", os.waitstatus_to_exitcode(status))
print(said.decode("latin1").replace("\r", "\n"))
END
}

echo "progress on a terminal, also one that goes away"
expect 0 cp tree/a/block sheaf:/block
[ "$(home /block)" != 1 ] || fail "server1 keeps /block: another name would do"
halt # neither name is server1's: the size of both is known while it stands still
terminal watch "${helpers[0]}" sheaf:/tree/large sheaf:/block y >seen
expect 0 rm /block
grep -q "^status 0" seen || fail "cp in a terminal: $(cat seen)"
grep -q "^[01] files  .* of 3.8 MiB  [0-9]* %  .*/s" seen || fail "no progress: $(cat seen)"
halt
terminal watch "${helpers[0]}" -r tree "sheaf:$in" >seen # how much a tree is, is found out beside
grep -q "^status 0" seen || fail "cp -r in a terminal: $(cat seen)"
grep -q "^[0-9]* files  .* of 3.8 MiB  [0-9]* %  .*/s" seen || fail "no progress of a tree: $(cat seen)"
expect 0 rm -r "$in/tree"
halt
terminal hangup "${helpers[0]}" -r sheaf:/tree out-tree >seen
grep -q "^status -1$" seen || fail "a lost terminal: $(cat seen)"
no_temps_outside out-tree
rm -rf out-tree

echo "a large file: two threads a copy"
head -c 30000001 /dev/urandom >big
expect 0 cp big sheaf:/big
expect 0 cp --jobs 1 sheaf:/big sheaf:/big2
expect 0 cp sheaf:/big2 out-big
cmp big out-big || fail "a large file, in, within and out"
cat big | "$sheaf" cp /dev/stdin sheaf:/big2 || fail "from a pipe"
"$sheaf" cp sheaf:/big2 /dev/stdout | cmp - big || fail "from a pipe, and into one"
expect 0 cp /dev/stdin sheaf:/big2 <big
"$sheaf" cat /big2 | cmp - big || fail "from standard input, which is a file"
"$sheaf" cp sheaf:/big p1 2>err &
cp=$!
head -c 2000000 p1 >/dev/null
wait $cp
[ $? = 1 ] || fail "a reader that leaves is a failure"
one_line "^sheaf cp: p1: "
expect 0 rm /big2

in_temp() {
	[ -n "$("$sheaf" ls -a "$in" | grep sheaf-cp)" ]
}

# What has been read when all stands still is less than 12 MB: there is something left to change.
for change in "-s 20000000" "-s 12000000" "-s 40000000"; do
	cp big moving
	halt
	"$sheaf" --conf fs/patient.conf cp moving "sheaf:$in" >out 2>err &
	cp=$!
	within in_temp
	truncate $change moving
	kill -CONT "${helpers[0]}"
	wait $cp || fail "a source that changes its size"
	expect 0 cp "sheaf:$in/moving" out-big
	cmp moving out-big || fail "truncate $change while it is copied"
done
expect 0 rm "$in/moving"

for args in "big sheaf:$in" "sheaf:/big into"; do
	case $args in
	big*) hold in_temp $args ;;
	*) hold "temps_in into" $args ;;
	esac
	kill -INT $cp
	interrupted 130
	kill -CONT "${helpers[0]}"
	no_temps_outside into
	expect 0 ls -a "$in"
	[ -s out ] && fail "something is left"
	[ -e into/big ] && fail "an interrupted copy has its name"
done
exec 7<>p1 # somebody who does not read
"$sheaf" cp sheaf:/big p1 >out 2>err &
cp=$!
within python3 -c 'import select, sys; sys.exit(not select.select([7], [], [], 0)[0])'
kill -INT $cp
interrupted 130
exec 7>&-

for args in "big sheaf:$in" "sheaf:/big into"; do
	case $args in
	big*) hold in_temp $args ;;
	*) hold "temps_in into" $args ;;
	esac
	kill -9 "${helpers[0]}"
	start=$SECONDS
	wait $cp
	[ $? = 1 ] || fail "a dead server is a failure"
	at_most 9 $start
	one_line "server1 .*does not answer"
	no_temps_outside into
	[ -e into/big ] && fail "half a file has its name"
	expect 0 start
	expect 0 ls -a "$in"
	[ -s out ] && fail "something is left"
done

# whole_files: what has its final name is complete
whole_files() {
	(cd "$1" && find . -type f -print0) | while IFS= read -r -d '' f; do
		cmp -s "$1/$f" "tree/$f" || { echo "half-written: $f"; exit 1; }
	done || fail "a file in $1 is not what it should be"
}

echo "a server that dies in the middle: one line, nothing half-written"
hold "temps_in out-tree" -r sheaf:/tree out-tree
kill -9 "${helpers[0]}"
start=$SECONDS
wait $cp
[ $? = 1 ] || fail "a dead server is a failure"
at_most 9 $start
one_line "server1 .*does not answer"
no_temps_outside out-tree
whole_files out-tree
rm -rf out-tree
expect 0 start

# Where the dead server kept the name, nobody can remove it; that is said.
"$sheaf" cp p1 "sheaf:$held" >out 2>err &
cp=$!
exec 7>p1
head -c 10 /dev/zero >&7
within some_temps "$held"
kill -9 "$(server_pid 1)"
head -c 5000000 /dev/zero >&7
exec 7>&-
start=$SECONDS
wait $cp
[ $? = 1 ] || fail "a dead server is a failure"
at_most 9 $start
one_line "(1 .sheaf-cp-$cp-\* may be left behind): server1 .*does not answer"
expect 0 start
expect 0 ls -a "$held"
grep -qx ".sheaf-cp-$cp-0.tmp" out || fail "another name is left"
expect 0 rm "$held/.sheaf-cp-$cp-0.tmp"

# temps_in_tree: lists one directory, which server1 does not keep: ls -R would wait for server1
temps_in_tree() {
	"$sheaf" ls -a "$in/tree" 2>/dev/null | grep -q sheaf-cp
}

hold temps_in_tree -r tree "sheaf:$in"
kill -9 "${helpers[0]}"
wait $cp
[ $? = 1 ] || fail "a dead server is a failure"
one_line "server1 .*does not answer"
no_temps_inside "$in"
expect 0 start
expect 0 cp -r "sheaf:$in/tree" out-tree
whole_files out-tree
rm -rf out-tree
expect 0 mkdir -p "$in/tree/sealed" # the copy may have failed before it came to this directory
expect 0 chmod 500 "$in/tree/sealed" # that it is closed comes last, and may not have come
expect 0 cp -r tree "sheaf:$in"
expect 0 cp -r "sheaf:$in/tree" out-tree
same out-tree
rm -rf out-tree
kill -9 "$(server_pid 0)"
expect 1 rm -r "$in" /tree
one_line "server0 .*does not answer"
expect 0 start
expect 0 rm -r "$in"
expect 0 stop

mkdir full
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=1500k none full 2>/dev/null; then
	echo "a full target is one line"
	mounts+=("$work/full")
	expect 0 start
	expect 1 cp -r sheaf:/tree full
	one_line "no room left"
	no_temps_outside full
	whole_files full/tree
	rm -rf full/tree
	expect 1 cp sheaf:/big full
	one_line "no room left"
	[ -z "$(ls -A full)" ] || fail "half a large file is left"
	expect 0 stop
	mount -o remount,size=24m full
	rm -rf full/*
	mkdir fill
	for i in 1 2 3 4; do head -c 4000000 /dev/zero >fill/$i; done
	for i in 5 6; do head -c 8000000 /dev/zero >fill/$i; done
	expect 1 --conf "local:$work/full/fs" cp -r fill sheaf:/fill
	one_line "no space left"
	expect 0 --conf "local:$work/full/fs" ls -a /fill
	! grep -q sheaf-cp out || fail "temporary files are left inside"
else
	echo "full targets: skipped, this needs root and mounts"
fi

# As somebody who may not do everything.
chmod 711 "$work"
as=()
[ "$(id -u)" = 0 ] && as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
mkdir closed mine
chmod 555 closed
[ "$(id -u)" = 0 ] && chown 65534:65534 mine
if "${as[@]}" "$sheaf" --conf "local:$work/mine/fs" mkdir /open >out 2>err; then
	echo "a directory that is closed is one line"
	refused() {
		"${as[@]}" "$sheaf" --conf "local:$work/mine/fs" "$@" >out 2>err
		[ $? = 1 ] || fail "sheaf $*: no failure"
	}
	chmod 755 tree tree/many
	"${as[@]}" "$sheaf" --conf "local:$work/mine/fs" cp -r tree/many sheaf:/open/ || fail "cp as another"
	"${as[@]}" "$sheaf" --conf "local:$work/mine/fs" chmod 444 /open/many || fail "chmod as another"
	refused ls -l /open/many
	one_line "^sheaf ls: /open/many: permission denied"
	says "^-????????? ? ? ? ? *? 1$"
	"${as[@]}" "$sheaf" --conf "local:$work/mine/fs" chmod 755 /open/many || fail "chmod as another"
	refused cp -r sheaf:/open/many closed
	one_line "^sheaf cp: closed: permission denied"
	refused cp sheaf:/open/many/1 sheaf:/open/many/2 sheaf:/open/many/3 closed
	one_line "^sheaf cp: closed: permission denied"
	"${as[@]}" "$sheaf" --conf "local:$work/mine/fs" chmod 555 /open/many || fail "chmod as another"
	refused cp -r tree/many sheaf:/open
	one_line "^sheaf cp: sheaf:/open/many: permission denied"
	refused rm -r /open/many
	one_line "^sheaf rm: /open/many: permission denied"
	[ -z "$(find closed mine -name '.sheaf-cp*')" ] || fail "temporary files are left"
else
	echo "closed directories: skipped, another user cannot run $sheaf: $(cat err)"
fi
echo "done"
