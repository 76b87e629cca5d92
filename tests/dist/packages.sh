#!/bin/sh
# Packs what `make build` built as a release is packed, and plays with it: the short form of `make test-dist`.
set -eu
cd "$(dirname "$0")/../.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${MAKE:-make}" --no-print-directory -s install BUILT=debug DESTDIR="$place" PREFIX=/usr SYSCONFDIR=/etc >&2
find "$place" -type f -perm -u=x -exec strip --strip-debug {} +
python3 tests/dist/packages.py "$place"
