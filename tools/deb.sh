#!/bin/sh
# Builds the Debian packages into DIR; behind `make deb`.
#   tools/deb.sh DIR
# The packages are built from a copy of the tree in DIR, without build directories and what git ignores,
# so they do not depend on what was built before and leave nothing in the tree. What is not committed
# yet is in them.
set -eu

if [ $# != 1 ]; then
	echo "usage: tools/deb.sh DIR" >&2
	exit 2
fi
cd "$(dirname "$0")/.."
mkdir -p "$1"
out=$(cd "$1" && pwd)
if ! command -v dpkg-buildpackage >/dev/null 2>&1 || ! command -v dh >/dev/null 2>&1; then
	echo "deb: dpkg-buildpackage and debhelper are missing; run: tools/deps.sh --deb" >&2
	exit 1
fi
version=$(dpkg-parsechangelog -S Version)
copy=$out/sheaf-$version
log=$out/build.log

rm -rf "$copy"
rm -f "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo "$out"/*.ddeb
mkdir "$copy"
if git rev-parse --git-dir >/dev/null 2>&1; then
	git ls-files -z --cached --others --exclude-standard |
		tar -c --null --no-recursion --ignore-failed-read -T - 2>/dev/null | tar -x -C "$copy"
else
	tar -c --exclude='./build*' --exclude=./run --exclude=./.git . | tar -x -C "$copy"
fi

echo "building the packages of sheaf $version; the log is $log"
if ! (cd "$copy" && unset MAKEFLAGS MAKELEVEL &&
	DEB_BUILD_OPTIONS="parallel=$(nproc) noautodbgsym ${DEB_BUILD_OPTIONS-}" \
		dpkg-buildpackage -b -us -uc) >"$log" 2>&1; then
	tail -n 40 "$log" >&2
	echo "deb: the build failed; all of it is in $log" >&2
	exit 1
fi
rm -rf "$copy"
for p in "$out"/*.deb; do
	echo "$p"
done
