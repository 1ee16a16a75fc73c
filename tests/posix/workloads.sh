#!/bin/bash
# What people do all day, in a directory of any file system:
#
#     workloads.sh DIR [--dir2 OTHER] [--only A,B] [--long] [--seconds N] [--lacks blocks] [--list]
#
# DIR is where they work; OTHER is DIR through another mount (or DIR itself). Each workload prints one line: ok,
# failed with the last line of what it said, or skipped with the tool that is missing. Exit status 1 when one
# failed, and its files stay in DIR/work.*. --lacks blocks: du does not see holes. --long: also PostgreSQL, and
# 100,000 entries instead of 10,000. What is made for comparison is below ${TMPDIR:-/tmp}, which must know
# extended attributes, access control lists and holes.
set -u

for bin in /usr/lib/postgresql/*/bin; do PATH=$PATH:$bin; done # where Debian has initdb and the like
all=(git compile sqlite tar rsync fio editor sparse trees listing postgres)

usage() {
	echo "usage: workloads.sh DIR [--dir2 OTHER] [--only A,B] [--long] [--seconds N] [--lacks blocks] [--list]" >&2
	exit 2
}

dir= dir2= only= long= lacks= seconds=10
while [ $# -gt 0 ]; do
	case $1 in
	--list) printf '%s\n' "${all[@]}"; exit 0 ;;
	--long) long=1 ;;
	--dir2 | --only | --seconds | --lacks)
		[ $# -gt 1 ] || usage
		declare "${1#--}=$2"
		shift
		;;
	-*) usage ;;
	*) [ -z "$dir" ] && dir=$1 || usage ;;
	esac
	shift
done
[ -d "$dir" ] || usage
dir=$(realpath "$dir")
dir2=$(realpath "${dir2:-$dir}")
scratch=$(mktemp -d "${TMPDIR:-/tmp}/workloads.XXXXXX") || exit 1
chmod 755 "$scratch"
trap 'rm -rf "$scratch"' EXIT

# ---- helpers; workloads run under set -e in $here, which is $there on the other mount ----

# missing TOOL...: the first that is not installed
missing() {
	local t
	for t; do command -v "$t" >/dev/null || { echo "$t"; return; }; done
}

say() { # a reason, and the end
	echo "$*"
	exit 1
}

# manifest DIR: a line for each name with everything that a copy must keep
manifest() {
	python3 - "$1" <<'END'
import hashlib, os, stat, sys
os.chdir(sys.argv[1])
seen = {}
for folder, dirs, files in os.walk("."):
    dirs.sort()
    for name in sorted(dirs + files, key=os.fsencode) + ([""] if folder == "." else []):
        path = os.path.join(folder, name)
        st = os.lstat(path)
        row = [ascii(path), oct(st.st_mode), f"{st.st_uid}:{st.st_gid}"]
        if not stat.S_ISDIR(st.st_mode):
            row.append(str(seen.setdefault(st.st_ino, path)).encode("unicode_escape").decode())
            row += [str(st.st_nlink), str(st.st_size)]
        if not stat.S_ISLNK(st.st_mode):
            row.append(str(st.st_mtime_ns))
        else:
            row.append(os.readlink(path))
        if stat.S_ISREG(st.st_mode):
            with open(path, "rb") as f:
                row.append(hashlib.file_digest(f, "sha256").hexdigest() if hasattr(hashlib, "file_digest")
                           else hashlib.sha256(f.read()).hexdigest())
        if stat.S_ISBLK(st.st_mode) or stat.S_ISCHR(st.st_mode):
            row.append(str(st.st_rdev))
        for a in sorted(os.listxattr(path, follow_symlinks=False)):
            if a.startswith(("user.", "system.posix_acl")):
                row.append(f"{a}={os.getxattr(path, a, follow_symlinks=False).hex()}")
        print(" ".join(row))
END
}

# rich_tree DIR: one of everything that tar and rsync know
rich_tree() {
	mkdir "$1"
	python3 - "$1" <<'END'
import os, random, struct, sys
os.chdir(sys.argv[1])
r = random.Random(7)
for d in range(12):
    os.makedirs(f"d{d}/sub {d}")
for d in range(12):
    for i in range(25):
        path = f"d{d}/sub {d}/file{i}" if i % 2 else f"d{d}/file{i}"
        with open(path, "wb") as f:
            f.write(r.randbytes(r.choice((0, 1, 100, 4096, 5000, 70000))))
        os.chmod(path, r.choice((0o644, 0o600, 0o755, 0o444)))
        os.utime(path, ns=(1, r.randrange(1, 2 * 10 ** 18)))
        if i % 5 == 0:
            os.setxattr(path, "user.comment", b"number %d\0" % i)
    os.symlink(f"file{d}", f"d{d}/link")
    os.link(f"d{d}/file2", f"d{d}/hard")
    os.link(f"d{d}/file2", f"d{(d + 1) % 12}/far{d}")
os.symlink("nowhere/at/all", "dangling")
os.symlink("/etc/passwd", "absolute")
os.mkfifo("fifo")
if os.geteuid() == 0:
    os.mknod("null", 0o020666, os.makedev(1, 3))
    for i in range(12):
        os.chown(f"d{i}/file0", 1000 + i, 2000 + i)
for name in (b"\xff\xfe", "ä€".encode(), b"new\nline", b"- dash", b"n" * 255):
    with open(name, "wb") as f:
        f.write(name)
with open("sparse", "wb") as f:
    for at in (0, 1 << 20, 40 << 20):
        f.seek(at)
        f.write(r.randbytes(5000))
    f.truncate(64 << 20)
none = 0xFFFFFFFF
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in (
    (1, 7, none), (2, 5, 1234), (4, 5, none), (8, 4, 4321), (16, 5, none), (32, 0, none)))
os.setxattr("d1/file2", "system.posix_acl_access", acl)
os.setxattr("d2", "system.posix_acl_default", acl)
os.chmod("d3", 0o1777)
os.chmod("d4", 0o2755)
for d in range(12):
    os.utime(f"d{d}/sub {d}", ns=(1, 10 ** 18 + d))
    os.utime(f"d{d}", ns=(1, 10 ** 18 + 77 * d))
END
}

# kib_of FILE: what it takes on disk, or 0 where nobody knows
kib_of() {
	if [ "$lacks" = blocks ]; then
		echo 0
	else
		du -k "$1" | cut -f1
	fi
}

same_tree() { # A B
	manifest "$1" >"$scratch/a"
	manifest "$2" >"$scratch/b"
	diff "$scratch/a" "$scratch/b" >"$scratch/diff" ||
		say "$2 differs from $1: $(grep -c '^[<>]' "$scratch/diff") lines, first: $(sed -n 2p "$scratch/diff" | cut -c1-200)"
}

# ---- workloads ----

tools_git=git
do_git() {
	git init -q -b main "$scratch/repo"
	python3 - <<'END' | git -C "$scratch/repo" fast-import --quiet
import random
r = random.Random(3)
for n in range(300):
    text = "\n".join(f"{n} {r.random()}" for _ in range(r.randrange(1, 200)))
    print(f"commit refs/heads/main\ncommitter A <a@example.com> {10 ** 9 + n} +0000\ndata <<E\ncommit {n}\nE")
    for _ in range(3):
        print(f"M 644 inline dir{r.randrange(9)}/f{r.randrange(60)}\ndata {len(text)}\n{text}")
END
	git clone -q --no-local "$scratch/repo" clone
	cd clone
	git fsck --strict --no-progress
	[ "$(git rev-list --count HEAD)" = 300 ] || say "commits are missing"
	git checkout -q HEAD~150
	git checkout -q main
	git config user.email a@example.com
	git config user.name A
	echo more >>dir0/new
	git add -A
	git commit -qm more
	git gc -q --prune=now
	git fsck --strict --no-progress
	[ -z "$(git status --porcelain)" ] || say "not clean: $(git status --porcelain | head -1)"
	[ "$(git rev-parse 'HEAD~1^{tree}')" = "$(git -C "$scratch/repo" rev-parse 'main^{tree}')" ] || say "another tree"
}

tools_compile="make cc"
do_compile() {
	local i
	mkdir src include
	for ((i = 0; i < 200; i++)); do
		printf '#pragma once\nint f%d(void);\n' $i >include/f$i.h
		printf '#include "f%d.h"\n#include "f%d.h"\nint f%d(void) { return %d; }\n' $i $(((i + 1) % 200)) $i $i >src/f$i.c
	done
	{
		for ((i = 0; i < 200; i++)); do echo "#include \"f$i.h\""; done
		echo '#include <stdio.h>'
		echo 'int main(void) { int n = 0;'
		for ((i = 0; i < 200; i++)); do echo "n += f$i();"; done
		echo 'printf("%d\n", n); return 0; }'
	} >src/main.c
	cat >Makefile <<'END'
OBJ = $(patsubst src/%.c,%.o,$(wildcard src/*.c))
prog: $(OBJ)
	cc -o $@ $^
%.o: src/%.c
	cc -Iinclude -MMD -c -o $@ $<
-include $(OBJ:.o=.d)
END
	make -j2 -s
	[ "$(./prog)" = 19900 ] || say "the program says $(./prog)"
	make -q || say "make would build again what it just built"
	echo '#define CHANGED 1' >>include/f7.h
	make -n | grep -c -e '-c -o' >"$scratch/n" || true
	[ "$(cat "$scratch/n")" = 3 ] || say "after a change of one header $(cat "$scratch/n") files are compiled, not 3"
	make -j2 -s
	[ "$(./prog)" = 19900 ] || say "the program says $(./prog)"
	make -q || say "make would build again"
}

tools_sqlite=sqlite3
do_sqlite() {
	local n=100 mode i p
	for mode in delete truncate persist; do
		rm -f db*
		sqlite3 -bail db "PRAGMA journal_mode=$mode; CREATE TABLE c(id INTEGER PRIMARY KEY, n INT);
			CREATE TABLE log(n INT); INSERT INTO c VALUES (1,0),(2,0);" >/dev/null
		{
			printf '.timeout 60000\nPRAGMA journal_mode=%s;\n' $mode
			for ((i = 0; i < n; i++)); do
				echo "BEGIN IMMEDIATE; UPDATE c SET n=n+1; INSERT INTO log SELECT n FROM c WHERE id=1; COMMIT;"
			done
		} >"$scratch/sql"
		for p in "$here" "$there"; do
			sqlite3 -bail "$p/db" <"$scratch/sql" >/dev/null &
		done
		wait -n || say "a writer failed ($mode)"
		wait -n || say "a writer failed ($mode)"
		[ "$(sqlite3 db 'SELECT sum(n) FROM c')" = $((4 * n)) ] || say "$mode: sum $(sqlite3 db 'SELECT sum(n) FROM c'), not $((4 * n))"
		[ "$(sqlite3 db 'SELECT count(DISTINCT n) FROM log')" = $((2 * n)) ] || say "$mode: lost updates"
		[ "$(sqlite3 "$there/db" 'PRAGMA integrity_check')" = ok ] || say "$mode: integrity_check"
	done
}

tools_tar=tar
do_tar() {
	rich_tree "$scratch/tree"
	local flags="--xattrs --acls --sparse --numeric-owner"
	mkdir copy "$scratch/back"
	tar $flags -cf "$scratch/one.tar" -C "$scratch/tree" .
	tar $flags -xpf "$scratch/one.tar" -C copy
	same_tree "$scratch/tree" copy
	tar $flags -cf two.tar -C copy .
	tar $flags -xpf two.tar -C "$scratch/back"
	same_tree "$scratch/tree" "$scratch/back"
	[ "$(kib_of copy/sparse)" -lt 20000 ] || say "the holes of a sparse file are gone"
}

tools_rsync=rsync
do_rsync() {
	rich_tree "$scratch/tree"
	rsync -@-1 -aHAXS "$scratch/tree/" copy/
	same_tree "$scratch/tree" copy
	rsync -@-1 -aHAXS copy/ "$scratch/back/"
	same_tree "$scratch/tree" "$scratch/back"
	[ -z "$(rsync -@-1 -aHAXSnic --delete "$scratch/tree/" copy/)" ] || say "rsync would copy again"
	rm -r copy/d5
	echo changed >>copy/d6/file1
	rsync -@-1 -aHAXSc --delete "$scratch/tree/" copy/
	same_tree "$scratch/tree" copy
}

tools_fio=fio
do_fio() {
	local common="--directory=. --size=16m --verify=crc32c --verify_fatal=1 --end_fsync=1 --minimal --output=$scratch/fio.out"
	fio $common --name=seq --rw=write --bs=128k --numjobs=2
	fio $common --name=rand --rw=randwrite --bs=4k --numjobs=2
	fio $common --name=odd --rw=randrw --bsrange=1k-60k --bs_unaligned=1 --numjobs=2
	fio $common --name=mapped --rw=randwrite --ioengine=mmap --bs=4k
	fio $common --name=aio --rw=randwrite --ioengine=libaio --iodepth=16 --bs=16k
}

tools_editor=sed
do_editor() {
	seq 1000 >text
	chmod 640 text
	ln text backup-link
	sed -i 's/^500$/five hundred/' text
	[ "$(sed -n 500p text)" = "five hundred" ] || say "sed -i"
	[ "$(sed -n 500p backup-link)" = 500 ] || say "the old file changed"
	[ "$(stat -c %a text)" = 640 ] || say "the mode changed"
	[ "$(cat "$there/text" | sed -n 500p)" = "five hundred" ] || say "the other mount sees the old file"
	if command -v vim >/dev/null; then
		vim -u NONE -es -c 'set backup writebackup backupdir=.' -c '%s/^7$/seven/' -c 'wq' text </dev/null >/dev/null
		grep -q '^seven$' text || say "vim did not save"
		[ "$(stat -c %a text)" = 640 ] || say "vim changed the mode"
		[ ! -e .text.swp ] || say "vim left its swap file"
	fi
	local i
	for ((i = 0; i < 200; i++)); do
		echo "version $i" >new
		mv new doc
		[ "$(cat "$there/doc")" = "version $i" ] || say "version $i is not there after the rename"
	done
}

tools_sparse="cp cmp du tar fallocate"
do_sparse() {
	truncate -s 64M holes
	printf data | dd of=holes bs=1 seek=30000000 conv=notrunc status=none
	cp --sparse=always holes copy
	cmp holes copy
	cp --sparse=never holes full
	cmp holes full
	cp --sparse=auto copy again
	cmp holes again
	cp --reflink=auto copy linked
	cmp holes linked
	sync -f .
	[ "$(kib_of copy)" -lt 8192 ] || say "cp --sparse=always made $(kib_of copy) KiB"
	[ "$(kib_of full)" -ge 60000 ] || [ "$lacks" = blocks ] || say "cp --sparse=never made $(kib_of full) KiB"
	cmp "$there/copy" full
	[ "$lacks" = blocks ] || sparse_blocks
}

# takes FILE MIN MAX: KiB on disk
takes() {
	[ "$(kib_of "$1")" -ge "$2" ] && [ "$(kib_of "$1")" -le "$3" ] || say "$1 takes $(kib_of "$1") KiB, not $2 to $3"
}

# Programs that go by what a file takes; each file right after its close, and without a sync.
sparse_blocks() {
	takes again 4 1024
	[ "$(du -k --apparent-size again | cut -f1)" = 65536 ] || say "du --apparent-size of a sparse file"
	tar -cSf sparse.tar holes
	takes sparse.tar 4 1024
	mkdir out
	tar -xf sparse.tar -C out
	cmp holes out/holes
	takes out/holes 4 1024
	: >room
	fallocate -n -l 8M room
	[ "$(stat -c %s room)" = 0 ] || say "fallocate -n changed the size"
	takes room 8192 9216
	fallocate -p -o 1M -l 62M full
	takes full 2048 4096
	truncate -s 1M full
	takes full 1024 2048
	truncate -s 64M full
	takes full 1024 2048
	fallocate -d full # zeros become holes
	takes full 0 1024
	: >room
	takes room 0 4
}

tools_trees="find du mv"
do_trees() {
	local i
	for ((i = 0; i < 20; i++)); do
		mkdir -p a/d$i/e/f
		for n in 1 2 3 4 5; do echo "$i $n" >a/d$i/e/f/$n; done
	done
	[ "$(find a -type f | wc -l)" = 100 ] || say "find sees $(find a -type f | wc -l) files"
	[ "$(find "$there/a" -type d | wc -l)" = 61 ] || say "find sees $(find "$there/a" -type d | wc -l) directories"
	[ "$(find a -name 3 -newermt 2000-01-01 | wc -l)" = 20 ] || say "find -newer"
	[ "$(du -a a | wc -l)" = 161 ] || say "du"
	mkdir b
	mv a/d1? b/
	[ "$(ls b | wc -l)" = 10 ] || say "mv"
	[ "$(cat b/d13/e/f/4)" = "13 4" ] || say "a moved file"
	mv b/d10/e/f/1 a/moved
	[ "$(cat "$there/a/moved")" = "10 1" ] || say "mv of a file"
	cp -a a c
	diff -r a c
	mv c b/c
	rm -r "$there/a" b
	[ -z "$(ls -A)" ] || say "rm -r left $(ls -A | head -1)"
}

tools_listing="ls xargs"
do_listing() {
	local n=10000
	[ -z "$long" ] || n=100000
	mkdir many
	(cd many && seq -f 'entry-%.0f' $n | xargs touch)
	ls -l many >"$scratch/listing"
	[ "$(grep -c entry- "$scratch/listing")" = $n ] || say "ls -l shows $(grep -c entry- "$scratch/listing") of $n"
	ls -f "$there/many" | sort >"$scratch/names"
	[ "$(uniq "$scratch/names" | wc -l)" = $((n + 2)) ] || say "ls -f shows $(uniq "$scratch/names" | wc -l) names"
	[ "$(uniq -d "$scratch/names" | wc -l)" = 0 ] || say "a name is listed twice"
	find many -name 'entry-*7' -delete
	[ "$(ls many | wc -l)" = $((n - n / 10)) ] || say "after removing every tenth there are $(ls many | wc -l)"
	rm -r many
}

# as USER COMMAND...: or as who we are, when we are not root
as() {
	local user=$1
	shift
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups -- "$@"
	else
		"$@"
	fi
}

tools_postgres="initdb pg_ctl pgbench psql setpriv"
do_postgres() {
	local user=nobody status=0
	! id postgres >/dev/null 2>&1 || user=postgres
	[ "$(id -u)" != 0 ] || chown "$user" .
	local run="as $user"
	mkdir "$scratch/sock"
	chmod 1777 "$scratch/sock"
	local to="-h $scratch/sock -U tester postgres"
	$run initdb -D "$here/data" -U tester -A trust -N >"$scratch/initdb"
	$run pg_ctl -s -w -D "$here/data" -l "$here/log" -o "-k $scratch/sock -c listen_addresses=" start
	{
		$run pgbench -q -i -s 2 $to &&
			$run pgbench -n -c 4 -j 2 -T "$seconds" $to
	} >"$scratch/pgbench" 2>&1 || status=$?
	$run pg_ctl -s -w -D "$here/data" -m immediate stop # as a crash: the log is replayed
	[ $status = 0 ] || say "pgbench: $(tail -n 1 "$scratch/pgbench")"
	$run pg_ctl -s -w -D "$here/data" -l "$here/log" -o "-k $scratch/sock -c listen_addresses=" start
	$run psql -At -h "$scratch/sock" -U tester postgres -c "SELECT (SELECT sum(abalance) FROM pgbench_accounts) =
		(SELECT sum(bbalance) FROM pgbench_branches) AND (SELECT sum(delta) FROM pgbench_history) =
		(SELECT sum(tbalance) FROM pgbench_tellers) AND (SELECT count(*) FROM pgbench_history) > 0" >"$scratch/sums"
	$run pg_ctl -s -w -D "$here/data" -m fast stop
	[ "$(cat "$scratch/sums")" = t ] || say "the sums differ after a crash"
}

# ---- running ----

run_one() {
	local name=$1 tools="tools_$1" no began=$SECONDS
	no=$(missing python3 ${!tools})
	if [ -n "$no" ]; then
		echo "skipped $name: $no is not installed"
		return 0
	fi
	rm -rf "${scratch:?}"/*
	here=$dir/work.$$.$name
	there=$dir2/work.$$.$name
	mkdir "$here" || return 1
	(set -e; cd "$here"; "do_$name") >"$scratch.log" 2>&1 </dev/null
	local status=$?
	if [ $status != 0 ]; then
		echo "failed $name: $(tail -n 1 "$scratch.log")"
		return 1
	fi
	rm -rf "$here" 2>"$scratch.log" || { echo "failed $name: rm -rf: $(tail -n 1 "$scratch.log")"; return 1; }
	echo "ok $name ($((SECONDS - began)) s)"
}

trap 'rm -rf "$scratch" "$scratch.log"' EXIT
failed=0
for name in "${all[@]}"; do
	[ -z "$only" ] || [[ ",$only," == *",$name,"* ]] || continue
	[ "$name" != postgres ] || [ -n "$long" ] || [[ ",$only," == *",postgres,"* ]] || continue
	run_one "$name" # not in a condition: that would take set -e from it
	[ $? = 0 ] || failed=1
done
exit $failed
