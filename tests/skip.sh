# For scripts of tests: `skip REASON` ends one that this machine cannot run, as a failure with TRANCHE_REQUIRE=all.
skip() {
    if [ "${TRANCHE_REQUIRE:-}" = all ]; then
        echo "skipped, but TRANCHE_REQUIRE=all: $1" >&2
        exit 1
    fi
    echo "SKIP: $1" >&2
    exit 0
}
