#!/bin/sh
# Runs a command, such as `make release`, so that cargo's output depends on the sources and on nothing of this machine:
# equal commits give equal bytes in whichever folder they lie (`make test-reproducible`).
#
#   sh systemd/dist/build.sh COMMAND...
set -eu
cd "$(dirname "$0")/../.."

fail() {
    echo "systemd/dist/build.sh: $1" >&2
    exit 1
}

# Another compiler gives other bytes, and what cargo takes from outside the tree would be part of them.
pinned=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
rustc=$(rustc --version) || fail "cannot run rustc to compare it with rust-toolchain.toml; install rustup, which fetches $pinned"
case $rustc in
"rustc $pinned "*) ;;
*) fail "cannot make a release with \"$rustc\": rust-toolchain.toml has $pinned; unset RUSTUP_TOOLCHAIN, or install $pinned" ;;
esac
for variable in RUSTFLAGS CARGO_ENCODED_RUSTFLAGS RUSTC_WRAPPER CFLAGS; do
    eval "value=\${$variable-}"
    [ -z "$value" ] || fail "cannot make a release with $variable=\"$value\": it would be part of the bytes; unset it"
done

commit_time() {
    git log -1 --format=%ct 2>/dev/null || fail "cannot read the commit's time by git log in $PWD; set SOURCE_DATE_EPOCH"
}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(commit_time)}
# The folders that the compiler would name: of the packages, of the standard library, and this one.
packages=${CARGO_HOME:-$HOME/.cargo}/registry/src
for index in "$packages"/*/; do
    RUSTFLAGS="${RUSTFLAGS-} --remap-path-prefix=${index%/}=/packages"
    CFLAGS="${CFLAGS-} -ffile-prefix-map=${index%/}=/packages"
done
hash=$(rustc -vV | sed -n 's/^commit-hash: //p')
RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc/$hash"
RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$PWD=/tranche"
CFLAGS="$CFLAGS -ffile-prefix-map=$PWD=/tranche"
export SOURCE_DATE_EPOCH RUSTFLAGS CFLAGS
# In a folder of its own, as these options would have everything in target/ built again.
export CARGO_TARGET_DIR=target/shipped CARGO_BUILD_TARGET=x86_64-unknown-linux-gnu
export CARGO_INCREMENTAL=0 LC_ALL=C TZ=UTC
# Programs run on the oldest glibc that systemd/dist/glibc names. The shim does so by its own means, whichever linker it has.
tools=target/tools/zig
sh systemd/dist/toolchain.sh "$tools" "$(cat systemd/dist/glibc)"
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER="$PWD/$tools/cc" CC_x86_64_unknown_linux_gnu="$PWD/$tools/cc"
export AR_x86_64_unknown_linux_gnu="$PWD/$tools/ar" ZIG_GLOBAL_CACHE_DIR="$PWD/$tools/cache"
# What `make release` and `make deb` do otherwise for a release.
export SHIM_ENV="env CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=cc"
DEB_GLIBC=$(cat systemd/dist/glibc)
export DEB_GLIBC
exec "$@"
