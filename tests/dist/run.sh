#!/bin/sh
# Each artefact of `make dist` on bare distributions (ROOTS="bookworm trixie"), from one line to `tranche play`.
# Where there can be no such roots, prints SKIP and why; with TRANCHE_REQUIRE=all that is a failure.
set -eu
cd "$(dirname "$0")/../.."

. tests/skip.sh

need='a bare distribution in a folder needs'
[ "$(id -u)" = 0 ] || skip "$need root"
for command in python3:python3 debootstrap:debootstrap unshare:util-linux setpriv:util-linux; do
    command -v "${command%%:*}" >/dev/null || skip "$need ${command%%:*} (package ${command##*:})"
done
refused=$(unshare --mount --pid --fork true 2>&1) || skip "$need namespaces: $refused"
# shellcheck disable=SC2086 # a list of names
python3 tests/dist/dist.py target/dist ${ROOTS:-}

# The RPM package's scripts need a machine that boots.
command -v systemd-nspawn >/dev/null || skip 'a machine that boots needs systemd-nspawn (package systemd-container)'
python3 tests/boot/rpm.py target/stage target/dist/*.rpm
