#!/bin/sh
# Packs what `make build` built as a release is packed, and plays with it: the short form of `make test-dist`.
set -eu
cd "$(dirname "$0")/../.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
tests/dist/installed.sh "$place"
python3 tests/dist/packages.py "$place"
