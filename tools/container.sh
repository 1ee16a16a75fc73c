#!/bin/bash
# Makes a container image of Debian with the packages of build-deb/: tools/container.sh NAME [SUITE [MIRROR]]
# Needs root, debootstrap and podman. No base image is used.
set -euo pipefail

name=${1:?usage: tools/container.sh NAME [SUITE [MIRROR]]}
suite=${2-bookworm}
mirror=${3-http://deb.debian.org/debian}
debs=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build-deb

for program in debootstrap podman; do
	command -v "$program" >/dev/null || { echo "container: $program is missing: apt install $program" >&2; exit 1; }
done
ls "$debs"/sheaf-server_*.deb >/dev/null || { echo "container: $debs has no packages: run make deb" >&2; exit 1; }
root=$(mktemp -d) # the tree of the image
trap 'rm -rf --one-file-system "$root"' EXIT # debootstrap may have left mounts
debootstrap --variant=minbase "$suite" "$root" "$mirror"
mkdir "$root/debs"
cp "$debs"/libsheaf1_*.deb "$debs"/sheaf_*.deb "$debs"/sheaf-server_*.deb "$debs"/sheaf-mount_*.deb "$root/debs/"
chroot "$root" sh -c "apt-get install -y --no-install-recommends ibverbs-providers /debs/*.deb && apt-get clean"
rm -rf --one-file-system "$root/debs" "$root"/var/lib/apt/lists/*
tar -C "$root" -c . | podman import --change 'STOPSIGNAL SIGTERM' - "$name"
echo "made the image $name: podman run ... $name sheafd --conf /etc/sheaf/sheaf.conf --server NAME"
