#!/bin/sh
# Builds the last commit once more, in a clone in another folder, and compares what it consists of with target/dist of
# this tree, byte for byte. `make test-reproducible` made the latter just before.
set -eu
cd "$(dirname "$0")/../.."
changed=$(git status --porcelain)
[ -z "$changed" ] || {
    echo "reproducible.sh: cannot compare two builds of one commit: this tree differs from its commit; commit or stash: $changed" >&2
    exit 1
}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
clone=$place/a/folder/elsewhere
git clone -q . "$clone"
# Tools of fixed versions, which need not be fetched again; nothing that was built by them.
mkdir "$clone/target"
cp -a target/tools "$clone/target/"
rm -rf "$clone/target/tools/zig/cache"
echo "building $(git rev-parse --short HEAD) again in $clone"
begun=$(date +%s)
"${MAKE:-make}" --no-print-directory -C "$clone" dist >"$place/log" 2>&1 || { tail -n 50 "$place/log" >&2; exit 1; }
echo "built in $(($(date +%s) - begun)) s"
if diff "target/dist/SHA256SUMS" "$clone/target/dist/SHA256SUMS"; then
    echo "both builds are the same, byte for byte:"
    cat target/dist/SHA256SUMS
    exit 0
fi
echo "files of the installation that differ:" >&2
diff -rq target/deb/root "$clone/target/deb/root" >&2 || true
exit 1
