#!/bin/sh
# Builds the release before this one from the history: tests/compat/previous.sh FOLDER STAGE.
# FOLDER/COMMIT becomes a tree like STAGE, whose simulated driver it shares, with the daemon, the command and the shim of
# that release, and in `other` a shim of it that speaks another version of shared memory. It is built once: minutes, then
# nothing. Where it cannot be built, FOLDER/missing says why.
set -eu
cd "$(dirname "$0")/../.."
folder=$1 stage=$2
CARGO=${CARGO:-cargo}
commit=$(grep -v '^#' tests/compat/frozen/previous)
tree=$folder/$commit
mkdir -p "$folder"
rm -f "$folder/missing"

[ -e "$tree/complete" ] && exit 0
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
    echo "the history has no $commit (a shallow clone, or no git): git fetch --unshallow" >"$folder/missing"
    exit 0
fi

rm -rf "$tree"
mkdir -p "$tree/source" "$tree/bin" "$tree/lib/tranche" "$tree/other"
git archive "$commit" | tar -x -C "$tree/source"
# Cargo takes the crates of both releases for the same ones, so in this tree's target folder each would undo the other.
target=$(pwd)/$folder/build
# Nothing here is measured: what is not optimised is built in half of the time.
build() {
    $CARGO build --quiet --locked --target-dir "$target" --manifest-path "$tree/source/Cargo.toml" \
        --config profile.dev.opt-level=0 --config profile.dev.debug=false --config profile.shim.lto=false \
        --config profile.shim.codegen-units=16 --config profile.shim.opt-level=1 "$@"
}
build --profile shim -p tranche-preload
cp "$target/shim/libtranche_preload.so" "$tree/lib/tranche"
build -p tranche-agent -p tranche-ctl
cp "$target/debug/tranched" "$target/debug/tranche" "$tree/bin"
# What a release will be that has raised its version: nothing else about it is different.
version=$(sed -n 's/^pub const ABI: u64 = \([0-9]*\);$/\1/p' "$tree/source/proto/shm/src/lib.rs")
sed -i "s/^pub const ABI: u64 = .*/pub const ABI: u64 = $((version + 1000));/" "$tree/source/proto/shm/src/lib.rs"
build --profile shim -p tranche-preload
cp "$target/shim/libtranche_preload.so" "$tree/other"
ln -s "$(realpath "$stage/sim")" "$tree/sim"
for tool in simgpu workload; do ln -s "$(realpath "$stage/bin/$tool")" "$tree/bin/$tool"; done
rm -r "$tree/source" "$target"
touch "$tree/complete"
