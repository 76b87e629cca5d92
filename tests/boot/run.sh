#!/bin/sh
# Boots a Debian of its own in namespaces, installs the package there, and has it live through what services live
# through. Packs the package first, from what `make build` built.
# Where there can be no such machine, says SKIP and why; with TRANCHE_REQUIRE=all that is a failure.
set -eu
cd "$(dirname "$0")/../.."

. tests/skip.sh

# First what needs no machine: what `make install` puts somewhere, `make uninstall` takes away, and nothing else.
install() { ${MAKE:-make} --no-print-directory -s "$1" BUILT=debug DESTDIR="$place" PREFIX=/opt/tranche >&2; }
listed() { (cd "$place" && find . | sort); }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/opt/tranche/bin" "$place/etc"
touch "$place/opt/tranche/bin/somebody-elses"
before=$(listed)
install install
ls "$place/opt/tranche/bin/tranched" "$place/etc/tranche/tranched.toml" >/dev/null
(cd "$place/opt/tranche/share/doc/tranche" && ls LICENSE THIRD-PARTY-LICENSES.txt sbom.cdx.json >/dev/null)
grep -q 'ExecStart=/opt/tranche/bin/tranched' "$place/opt/tranche/lib/systemd/system/tranched.service"
install install # as after a change
install uninstall
after=$(listed)
[ "$before" = "$after" ] || { echo "make uninstall left or took: $after" >&2; exit 1; }
echo 'make uninstall takes away what make install put, and nothing else'

need='a machine that boots needs'
[ "$(id -u)" = 0 ] || skip "$need root"
for command in python3:python3 debootstrap:debootstrap systemd-nspawn:systemd-container nsenter:util-linux; do
    command -v "${command%%:*}" >/dev/null || skip "$need ${command%%:*} (package ${command##*:})"
done
said=$(unshare --mount --uts --ipc --net --pid --fork true 2>&1) || skip "$need namespaces: $said"

# Two versions of the same, to upgrade from one to the other.
pack() { ${MAKE:-make} --no-print-directory -s deb BUILT=debug DEB_FAST=1 VERSION="$1" >&2 && ls target/deb/tranche_"$1"*.deb; }
rm -f target/deb/*.deb
older=$(pack 0.0.1)
newer=$(pack 99.0.0)
python3 tests/boot/boot.py target/stage "$older" "$newer"
