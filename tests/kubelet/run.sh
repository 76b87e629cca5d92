#!/bin/sh
# Does something with the parts of a real kubelet: run.sh build|lint|test|demo. Programs go to $TRANCHE_STAGE/tests.
# Where they cannot be built, says SKIP and why; with TRANCHE_REQUIRE=all that is a failure.
set -u
cd "$(dirname "$0")" || exit 1

# Where Go's own archive puts it; a distribution's may be too old.
PATH=/usr/local/go/bin:$PATH
# cgo would only cost time: everything is there without it.
export CGO_ENABLED=0

skip() {
    if [ "${TRANCHE_REQUIRE:-}" = all ]; then
        echo "skipped, but TRANCHE_REQUIRE=all: $1" >&2
        exit 1
    fi
    echo "SKIP: $1" >&2
    exit 0
}

need='the device manager of a real kubelet needs Go 1.26 and its modules'
command -v go >/dev/null || skip "$need: there is no go"
said=$(go mod download 2>&1) || skip "$need: $(echo "$said" | tail -n 1)"

build() {
    go test -c -ldflags='-s -w' -o "$TRANCHE_STAGE/tests/kubelet" . &&
        go build -ldflags='-s -w' -o "$TRANCHE_STAGE/tests/kubelet-demo" ./demo
}

case $1 in
build) build ;;
lint)
    unformatted=$(gofmt -l .)
    [ -z "$unformatted" ] || { echo "not as gofmt would have it: $unformatted" >&2; exit 1; }
    go vet ./...
    ;;
# The tests wait more than they work: more at a time than there are cores.
test) build && "$TRANCHE_STAGE/tests/kubelet" -test.parallel 6 -test.timeout 10m ;;
demo) build && "$TRANCHE_STAGE/tests/kubelet-demo" ;;
*)
    echo "run.sh: build, lint, test or demo, not \"$1\"" >&2
    exit 2
    ;;
esac
