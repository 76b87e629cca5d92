#!/usr/bin/env bash
# The library on 64-bit Arm, emulated: its own tests, and programs in slices of this machine's daemon. STAGE OUT [SHIM...]
set -euo pipefail
stage=$1 out=$2
shift 2
machine=aarch64-unknown-linux-gnu
cargo=${CARGO:-cargo}

skip() {
    echo "SKIP: 64-bit Arm: $1" >&2
    [ "${TRANCHE_REQUIRE:-}" != all ]
    exit
}
for command in aarch64-linux-gnu-gcc qemu-aarch64-static; do
    command -v "$command" >/dev/null || skip "there is no $command"
done
"$(rustc --print sysroot)/bin/rustc" --print target-libdir --target $machine 2>/dev/null | xargs test -d 2>/dev/null ||
    rustup target add $machine || skip "Rust's standard library for $machine cannot be had"

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
$cargo test --target $machine --no-fail-fast -p tranche-shm -p tranche-hooks -p tranche-policy --lib
for shim in "$@"; do
    # Not optimised across crates: that takes a minute more, and nothing is measured under emulation.
    $cargo build --target $machine --profile shim --config profile.shim.lto=false --config profile.shim.codegen-units=16 -p "tranche-$shim"
done
$cargo build --target $machine -p fakecuda -p fakenvml --lib

built=${CARGO_TARGET_DIR:-target}/$machine
mkdir -p "$out/replace" "$out/sim"
install -m 755 "$built/shim/libtranche_preload.so" "$out"
install -m 755 "$built/shim/libtranche_libcuda.so" "$out/replace/libcuda.so.1"
install -m 755 "$built/shim/libtranche_libnvml.so" "$out/replace/libnvidia-ml.so.1"
install -m 755 "$built/debug/libfakecuda.so" "$out/sim/libcuda.so.1"
install -m 755 "$built/debug/libfakenvml.so" "$out/sim/libnvidia-ml.so.1"
for library in cuda nvidia-ml; do
    ln -sf lib$library.so.1 "$out/sim/lib$library-real.so.1"
done
# shellcheck disable=SC2086 # two words
TRANCHE_STAGE=$stage TRANCHE_ARM=$out $cargo test --no-fail-fast ${SELECT:--p e2e} --test arm
