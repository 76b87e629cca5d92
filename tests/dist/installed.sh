#!/bin/sh
# Puts what `make build` built below a folder as a release is installed, stripped: installed.sh FOLDER
# BUILT, SHIMS and THIRD_PARTY are where the Makefile has programs, libraries and licences; by default those of target/.
set -eu
cd "$(dirname "$0")/../.."
DESTDIR=$1 PREFIX=/usr SYSCONFDIR=/etc BUILT=${BUILT:-target/debug} SHIMS=${SHIMS:-target/shim} \
    THIRD_PARTY=${THIRD_PARTY:-target/third-party} systemd/install.sh install
find "$1" -type f -perm -u=x -exec strip --strip-debug {} +
