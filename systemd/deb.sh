#!/bin/sh
# Packs an installed tree as a Debian package: deb.sh ROOT FOLDER [VERSION]. `make deb` calls it.
#
#   DEB_GLIBC   the oldest glibc that the programs run on; by default what dpkg-shlibdeps finds on this machine, which
#               would require the newer one of a machine that builds for older ones
#   DEB_ARCH    Debian's name of the machine that the programs are for; by default this one's
#   DEB_FAST    compresses less, in a fifth of the time
set -eu
umask 022
here=$(dirname "$0")
root=$1 folder=$2
version=${3:-$(sed -n '/^\[workspace.package\]/,/^version/s/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml")-1}
needs() { command -v "$1" >/dev/null || { echo "deb.sh: a Debian package needs $1 (Debian package $2)" >&2; exit 1; }; }
needs dpkg-deb dpkg
machine=${DEB_ARCH:-$(dpkg --print-architecture)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
cp -r "$root" "$tree"
find "$tree" -type d -exec chmod 755 {} +
rm -f "$tree/usr/lib/tranche/installed"
cat - "$here/../LICENSE" >"$tree/usr/share/doc/tranche/copyright" <<END
Copyright: Tranche developers
License: Apache-2.0

END

if [ -n "${DEB_GLIBC:-}" ]; then
    libraries="libc6 (>= $DEB_GLIBC)"
else
    needs dpkg-shlibdeps dpkg-dev
    # It wants a file that a source package has.
    mkdir "$work/debian"
    touch "$work/debian/control"
    # The libraries need no more than they do, but for the driver.
    programs=$(find "$tree/usr/bin" "$tree/usr/lib/tranche" -type f -perm -100 ! -name '*.so*')
    # shellcheck disable=SC2086 # paths of this tree
    libraries=$(cd "$work" && dpkg-shlibdeps -O $programs 2>"$work/warnings") || { cat "$work/warnings" >&2; exit 1; }
    libraries=${libraries#shlibs:Depends=}
fi

mkdir "$tree/DEBIAN"
for script in "$here"/deb/*; do install -m 755 "$script" "$tree/DEBIAN/"; done
(cd "$tree" && find etc -type f) >"$work/etc"
sed 's#^#/#' "$work/etc" | LC_ALL=C sort >"$tree/DEBIAN/conffiles"
(cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n') >"$work/files"
LC_ALL=C sort -o "$work/files" "$work/files"
(cd "$tree" && xargs -d '\n' md5sum <"$work/files") >"$work/md5sums"
size=$(cd "$tree" && xargs -d '\n' stat --format=%s <"$work/files" | awk '{ sum += $1 } END { printf "%d", sum / 1024 + 1 }')
install -m 644 "$work/md5sums" "$tree/DEBIAN/md5sums"
# systemd: its group, folders and units. init-system-helpers: deb-systemd-helper.
cat >"$tree/DEBIAN/control" <<END
Package: tranche
Version: $version
Architecture: $machine
Maintainer: Tranche developers
Section: admin
Priority: optional
Installed-Size: $size
Depends: $libraries, systemd (>= 247), init-system-helpers, passwd
Description: Slices of NVIDIA GPUs, each with its memory and its share of time
 Turns each NVIDIA GPU of a machine into slices: logical GPUs with their own
 memory cap and their own share of the GPU's time, which unmodified CUDA
 programs use as if they were whole.
END
mkdir -p "$folder"
compression=-Zxz
[ -z "${DEB_FAST:-}" ] || compression='-Zgzip -z1'
# shellcheck disable=SC2086 # two options
dpkg-deb --root-owner-group $compression --build "$tree" "$folder/tranche_${version}_$machine.deb" >/dev/null
