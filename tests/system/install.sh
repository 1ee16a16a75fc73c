#!/bin/bash
# An installation works on its own: `cmake --install` into an empty directory; then a program compiled by
# pkg-config against it, the exported symbols, the man pages (complete, no groff warnings), systemd units,
# and bash completion with a file system inside the command.
set -u

build=${SHEAF_BUILD:?}
source=${SHEAF_SOURCE:?}
work=$(mktemp -d "${TMPDIR:-/tmp}/install.XXXXXX") || exit 1
trap 'cd / && rm -rf "$work"' EXIT
cd "$work" || exit 1
export LC_ALL=C

fail() {
	echo "FAILED line ${BASH_LINENO[0]}: $*" >&2
	exit 1
}

cache() {
	sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

echo "install into an empty directory"
prefix=$(cache CMAKE_INSTALL_PREFIX)
lib=$(cache CMAKE_INSTALL_LIBDIR)
DESTDIR=$work/root cmake --install "$build" >log 2>&1 || { cat log; fail "cmake --install"; }
at=$work/root$prefix
for f in bin/sheaf bin/sheaf-mount sbin/sheafd sbin/sheaf-nfsd sbin/mount.fuse.sheaf include/sheaf.h include/sheaf_handle.h "$lib/libsheaf.so" \
	"$lib/libsheaf.so.1" "$lib/pkgconfig/sheaf.pc" share/man/man1/sheaf.1 share/man/man8/sheafd.8 \
	share/man/man8/sheaf-mount.8 share/man/man8/sheaf-nfsd.8 lib/systemd/system/sheaf-nfsd.service lib/systemd/system/sheaf-web.service share/doc/sheaf/mount.md share/doc/sheaf/mnt-sheaf.mount \
	share/man/man5/sheaf.conf.5 share/man/man3/libsheaf.3 share/man/man3/sheaf_open.3 \
	share/bash-completion/completions/sheaf lib/systemd/system/sheaf@.service \
	lib/systemd/system/sheaf.target share/doc/sheaf/README.md share/doc/sheaf/examples/matrix.c; do
	[ -e "$at/$f" ] || fail "no $f in the installation"
done
grep -rl -- "$build\|$source" "$at/$lib/pkgconfig" "$at/lib/systemd" "$at/share" && fail "paths of the build"

echo "one version everywhere"
version=$("$at/bin/sheaf" --version) || fail "sheaf --version"
version=${version#sheaf }
export PKG_CONFIG_PATH=$at/$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root
[ "$(pkg-config --modversion sheaf)" = "$version" ] || fail "sheaf.pc has another version than $version"
[ "$("$at/sbin/sheafd" --version)" = "sheafd $version" ] || fail "sheafd has another version than $version"
grep -q "^sheaf ($version" "$source/debian/changelog" || fail "debian/changelog is not of $version"
for page in "$source"/docs/man/*.[1-8]; do
	grep -q "^\.TH .*\"Sheaf $version\"" "$page" || fail "$page is not of $version"
done

echo "the examples compile by pkg-config and run without servers"
san=
case $(cache SHEAF_SAN) in
asan) san=-fsanitize=address,undefined ;;
tsan) san=-fsanitize=thread ;;
esac
for example in "$source"/examples/*.c; do
	name=$(basename "$example" .c)
	"$(cache CMAKE_C_COMPILER)" $san -Wall -Wextra -Werror -o "$name" "$at/share/doc/sheaf/examples/$name.c" \
		$(pkg-config --cflags --libs sheaf) || fail "examples/$name.c does not compile"
	LD_LIBRARY_PATH=$at/$lib "./$name" "local:$work/fs" || fail "examples/$name.c"
done

echo "the library exports sheaf_* with its version, and nothing else"
nm -D --defined-only "$at/$lib/libsheaf.so.1" | awk '$2 != "A" { print $3 }' >symbols
[ -s symbols ] || fail "no symbols"
grep -v '^sheaf_[a-z0-9_]*@@SHEAF_1\.[0-9]*$' symbols && fail "these have another name or version"
sed -n 's/^SHEAF_API [^(]*\(sheaf_[a-z0-9_]*\)(.*/\1/p' "$at"/include/*.h |
	grep -vx sheaf_ckpt_open_mpi | sort >api # that one is in libsheaf-ckpt-mpich and -openmpi
[ "$(wc -l <api)" -gt 30 ] || fail "the headers declare too few calls"
sed 's/@.*//' symbols | sort | diff - api || fail "what is exported is not what the headers declare"
objdump -p "$at/$lib/libsheaf.so.1" | grep -q 'SONAME *libsheaf\.so\.1$' || fail "SONAME"
objdump -p "$at/$lib/libsheaf.so.1" "$at/bin/sheaf" "$at/sbin/sheafd" | grep 'R.*PATH' && fail "an rpath is left"

echo "man pages say all: calls, commands, options, keys of the cluster file"
man=$at/share/man
while read -r call; do
	grep -qw -- "$call" "$man/man3/libsheaf.3" || fail "libsheaf.3 does not have $call"
	[ -e "$man/man3/$call.3" ] || fail "no page $call.3"
done <api
sed 's/\\-/-/g; s/\\f[A-Z]//g' "$man/man1/sheaf.1" >page1
"$at/bin/sheaf" --help | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p' >commands
[ "$(wc -l <commands)" -gt 10 ] || fail "too few commands in sheaf --help"
while read -r command; do
	awk -v c="$command" '/^\.S[SH] / { on = $1 == ".SS" && $2 == c } on' page1 >section
	[ -s section ] || fail "sheaf.1 has no section .SS $command"
	"$at/bin/sheaf" "$command" --help |
		sed -n '/^usage/d; s/^  *\(-.*\)  .*/\1/p' | grep -o -- '--[a-z][a-z-]*' | sort -u >options
	while read -r option; do
		case $option in --conf | --help) continue ;; esac
		grep -q -- "$option\>" section || fail "sheaf.1, $command: $option is missing"
	done <options
done <commands
"$at/sbin/sheafd" --help | grep -o -- '--[a-z][a-z-]*' | sort -u >options
sed 's/\\-/-/g' "$man/man8/sheafd.8" >page8
while read -r option; do
	grep -q -- "$option\>" page8 || fail "sheafd.8: $option is missing"
done <options
sed 's/\\-/-/g' "$man/man8/sheaf-mount.8" >page8
"$at/bin/sheaf-mount" --help | grep -o -- '--[a-z][a-z-]*' | sort -u >options
sed -n 's/.*value_of(opt, "\([a-z]*=\)").*/\1/p; s/.*strcmp(opt, "\([a-z]*\)").*/\1/p' \
	"$source/src/mount/mount_opts.c" >>options
[ "$(wc -l <options)" -gt 10 ] || fail "too few options found in mount_opts.c"
while read -r option; do
	grep -q -- "$option" page8 || fail "sheaf-mount.8: $option is missing"
done <options
sed -n '/_keys\[\] = {/,/^};/s/^\t{ "\([a-z_]*\)".*/\1/p' "$source/src/base/conf_values.c" >keys
[ "$(wc -l <keys)" -gt 10 ] || fail "too few keys found in conf_values.c"
while read -r key; do
	grep -q "\"\?$key = " "$man/man5/sheaf.conf.5" || fail "sheaf.conf.5: $key is missing"
done <keys
if command -v groff >/dev/null; then
	for page in "$man"/man*/*; do
		grep -q '^\.so ' "$page" && continue
		said=$(groff -man -ww -z -Tutf8 "$page" 2>&1)
		[ -z "$said" ] || fail "groff: $said"
	done
else
	echo "(groff is not installed: the form of the man pages was not checked)"
fi

echo "systemd units"
grep -q "^ExecStart=$prefix/sbin/sheafd --conf /etc/sheaf/sheaf.conf --server %i$" \
	"$at/lib/systemd/system/sheaf@.service" || fail "ExecStart"

echo "mount(8)'s helper runs the sheaf of its installation"
ln -s "$at/sbin/mount.fuse.sheaf" mount.fuse.sheaf
./mount.fuse.sheaf only-one 2>err
[ $? = 2 ] && grep -q usage err || fail "the helper's usage"
./mount.fuse.sheaf "$work/no.conf" "$work" -f -o ro 2>err || fail "a fake mount"
./mount.fuse.sheaf "$work/no.conf" "$work" -s -v -t fuse.sheaf -o ro 2>err
[ $? = 1 ] && grep -q "^sheaf mount: $work/no.conf: " err || fail "the helper says: $(cat err)"
./mount.fuse.sheaf "$work/no.conf" "$work" -o ro -o attr=x 2>err
[ $? = 2 ] && grep -q "attr=x" err || fail "the helper says: $(cat err)"

echo "bash completion"
sheaf=$at/bin/sheaf
export SHEAF_CONF=local:$work/fs
"$sheaf" mkdir -p /alpha/deep "/al pha" /beta || fail mkdir
echo hello | "$sheaf" cp /dev/stdin sheaf:/beta/one || fail cp
mkdir hostdir && touch hostfile
. "$at/share/bash-completion/completions/sheaf"
# completed LINE: what <TAB> at its end offers, as "a|b|c"; words are cut as readline cuts them
completed() {
	local tokens
	mapfile -t tokens < <(python3 -c '
import re, sys
for w in re.findall(r"(?:\\.|[^\s:=\\])+|[:=]|\s+$", sys.argv[1]):
    print(w.strip() if w.strip() else "")' "$1")
	COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=("${tokens[@]}") COMP_CWORD=$((${#tokens[@]} - 1))
	COMPREPLY=()
	_sheaf "$sheaf" 2>>errors
	printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd '|'
}
offers() {
	local got
	got=$(completed "$1")
	[ "$got" = "$2" ] || fail "completing '$1': '$got', expected '$2'"
}
offers "sheaf sel" "selfcheck"
offers "sheaf --v" "--version"
offers "sheaf --conf host" "hostdir|hostfile"
offers "sheaf help selfc" "selfcheck"
offers "sheaf ls --rec" "--recursive"
offers "sheaf ls -" "--all|--conf|--directory|--help|--human|--json|--long|--recursive|-R|-a|-d|-h|-l"
offers "sheaf bench la" "latency"
offers "sheaf bench mo" "mount"
offers "sheaf bench all --report hostd" "hostdir"
offers "sheaf init --stripe-unit 2" "256K"
offers "sheaf init hostd" "hostdir"
offers "sheaf mount hostd" "hostdir"
offers "sheaf mount --take" "--takeover"
offers "sheaf mount -o noa" "noatime"
offers "sheaf mount -o ro,entry=5,wr" "5,writeback"
offers "sheaf umount hostd" "hostdir"
offers "sheaf ls /al" '/al\ pha|/alpha'
offers "sheaf ls /alp" "/alpha/"
offers "sheaf ls /alpha/" "/alpha/deep/"
offers "sheaf cat /beta/o" "/beta/one "
offers 'sheaf ls /al\ p' '/al\ pha/'
offers "sheaf cat beta/o" "beta/one "
offers "sheaf mv /b" "/beta/"
offers "sheaf cp host" "hostdir|hostfile"
offers "sheaf cp she" "sheaf:/"
offers "sheaf cp hostfile sheaf:/be" "/beta/"
offers "sheaf cp sheaf:/beta/" "/beta/one "
SHEAF_CONF=
offers "sheaf --conf local:$work/fs ls /be" "/beta/"
offers "sheaf --conf=local:$work/fs ls /be" "/beta/"
offers "sheaf --conf local:$work/missing ls /" ""
[ -e missing ] && fail "completion made a file system"
offers "sheaf --conf $work/no.conf ls /" ""
grep -v 'compopt' errors && fail "completion complains"
exit 0
