#!/bin/sh
# Each artefact of `make dist` on bare distributions (ROOTS="bookworm trixie"), from one line to `tranche play`.
# Those for another machine (ARCH=aarch64) are tried emulated. Where there can be no such roots, prints SKIP and why;
# with TRANCHE_REQUIRE=all that is a failure.
set -eu
cd "$(dirname "$0")/../.."

. tests/skip.sh

machine=$(uname -m)
dist=target/dist$([ "${ARCH:-$machine}" = "$machine" ] || echo "-$ARCH")
need='a bare distribution in a folder needs'
[ "$(id -u)" = 0 ] || skip "$need root"
for command in python3:python3 debootstrap:debootstrap unshare:util-linux setpriv:util-linux; do
    command -v "${command%%:*}" >/dev/null || skip "$need ${command%%:*} (package ${command##*:})"
done
refused=$(unshare --mount --pid --fork true 2>&1) || skip "$need namespaces: $refused"
# shellcheck disable=SC2086 # a list of names
python3 tests/dist/dist.py "$dist" ${ROOTS:-}
[ "$dist" = target/dist ] || { echo "the RPM package's scripts are tried with this machine's package alone"; exit; }

# The RPM package's scripts need a machine that boots.
command -v systemd-nspawn >/dev/null || skip 'a machine that boots needs systemd-nspawn (package systemd-container)'
# Its GPUs are those of the simulated node that the packages contain.
python3 tests/boot/rpm.py target/deb/root/usr/lib/tranche/play target/dist/*.rpm
