#!/bin/sh
# Builds the targets as libFuzzer programs and runs each of them for SECONDS (30), from the corpus that is checked in
# and what earlier runs added in target/fuzz. What breaks a promise is kept there and named.
set -eu
cd "$(dirname "$0")/../.."
SECONDS_EACH=${SECONDS_EACH:-30}
CARGO=${CARGO:-cargo}
FOUND=target/fuzz

if ! command -v c++ >/dev/null; then
    echo "make fuzz needs a C++ compiler (c++) to build libFuzzer: install g++ or clang; \`make test\` runs the same" \
        "targets without it, over their corpora" >&2
    exit 1
fi

host=$(rustc -vV | sed -n 's/^host: //p')
# What cargo-fuzz passes, less the sanitizer, which only a nightly compiler has: here no unsafe code is fuzzed.
coverage="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS=$(echo $coverage) $CARGO build --release --target "$host" --target-dir "$FOUND/build" \
    --manifest-path tests/fuzz/libfuzzer/Cargo.toml

failed=
for source in tests/fuzz/libfuzzer/targets/*.rs; do
    target=$(basename "$source" .rs)
    mkdir -p "$FOUND/corpus/$target" "$FOUND/broken/$target"
    if "$FOUND/build/$host/release/$target" -max_total_time="$SECONDS_EACH" -timeout=10 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="$FOUND/broken/$target/" \
        "$FOUND/corpus/$target" "tests/fuzz/corpus/$target" >"$FOUND/$target.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$FOUND/$target.log")
        echo "$target: $runs inputs, every promise kept"
    else
        failed="$failed $target"
        echo "$target: A PROMISE IS BROKEN, see $FOUND/$target.log and $FOUND/broken/$target"
        grep -m 3 -E 'panicked|SUMMARY|timeout' -A1 "$FOUND/$target.log" || true
    fi
done
[ -z "$failed" ]
