#!/bin/sh
# Runs a command, such as `make release`, so that cargo's output depends on the sources and on nothing of this machine:
# equal commits give equal bytes in whichever folder they lie (`make test-reproducible`).
#
#   sh systemd/dist/build.sh COMMAND...
#
#   ARCH   what it is for, x86_64 or aarch64; by default the machine that builds. Programs for the other one that the
#          build itself starts are emulated.
set -eu
cd "$(dirname "$0")/../.."

fail() {
    echo "systemd/dist/build.sh: $1" >&2
    exit 1
}

machine=$(uname -m) ARCH=${ARCH:-$(uname -m)}
case $ARCH in
x86_64 | aarch64) ;;
*) fail "cannot make a release for \"$ARCH\": set ARCH to x86_64 or aarch64" ;;
esac
target=$ARCH-unknown-linux-gnu
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
# Those of the packages are there once they were fetched.
packages=${CARGO_HOME:-$HOME/.cargo}/registry/src
cargo fetch --locked --quiet || fail "cannot fetch the packages that Cargo.lock names"
for index in "$packages"/*/; do
    [ -d "$index" ] || fail "cannot find the packages' sources in $packages, whose paths must not be in a release"
    RUSTFLAGS="${RUSTFLAGS-} --remap-path-prefix=${index%/}=/packages"
    CFLAGS="${CFLAGS-} -ffile-prefix-map=${index%/}=/packages"
done
hash=$(rustc -vV | sed -n 's/^commit-hash: //p')
RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc/$hash"
RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$PWD=/tranche"
CFLAGS="$CFLAGS -ffile-prefix-map=$PWD=/tranche"
export SOURCE_DATE_EPOCH RUSTFLAGS CFLAGS
library=$(rustc --print target-libdir --target "$target")
[ -d "$library" ] || rustup target add "$target" ||
    fail "cannot build for $target without Rust's standard library in $library; install it by \`rustup target add $target\`"
# In a folder of its own, as these options would have everything in target/ built again.
export CARGO_TARGET_DIR=target/shipped CARGO_BUILD_TARGET=$target
export CARGO_INCREMENTAL=0 LC_ALL=C TZ=UTC
# The shim's symbols, by which tests attribute instructions, are a seventh of what each program of a slice maps.
export CARGO_PROFILE_SHIM_STRIP=symbols
# Programs run on the oldest glibc that systemd/dist/glibc names. The shim does so by its own means, whichever linker it has.
tools=target/tools/zig
sh systemd/dist/toolchain.sh "$tools" "$(cat systemd/dist/glibc)" "$ARCH"
name=$(echo "$target" | tr a-z- A-Z_)
export "CARGO_TARGET_${name}_LINKER=$PWD/$tools/cc-$ARCH" "CC_$(echo "$target" | tr - _)=$PWD/$tools/cc-$ARCH"
export "AR_$(echo "$target" | tr - _)=$PWD/$tools/ar" ZIG_GLOBAL_CACHE_DIR="$PWD/$tools/cache"
linker=cc
if [ "$ARCH" != "$machine" ]; then
    linker=$ARCH-linux-gnu-gcc
    EMULATOR="qemu-$ARCH-static -L /usr/$ARCH-linux-gnu"
    for need in "$linker:gcc-$(echo "$ARCH" | tr _ -)-linux-gnu" "${EMULATOR%% *}:qemu-user-static"; do
        command -v "${need%%:*}" >/dev/null ||
            fail "cannot make a release for $ARCH on $machine without ${need%%:*} (Debian package ${need##*:})"
    done
    export EMULATOR "CARGO_TARGET_${name}_RUNNER=$EMULATOR"
fi
# What `make release` and `make deb` do otherwise for a release.
export SHIM_ENV="env CARGO_TARGET_${name}_LINKER=$linker" DEB_GLIBC
DEB_GLIBC=$(cat systemd/dist/glibc)
DEB_ARCH=$(case $ARCH in x86_64) echo amd64 ;; aarch64) echo arm64 ;; esac)
export DEB_ARCH
exec "$@"
