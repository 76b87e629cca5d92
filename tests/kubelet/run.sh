#!/bin/sh
# Does something with the parts of a real kubelet: run.sh build|lint|chart|test|demo. The demonstration goes to $TRANCHE_STAGE.
# Where they cannot be built, says SKIP and why; with TRANCHE_REQUIRE=all that is a failure.
set -u
cd "$(dirname "$0")" || exit 1

# Where Go's own archive puts it; a distribution's may be too old.
PATH=/usr/local/go/bin:$PATH
# cgo would only cost time: everything is there without it.
export CGO_ENABLED=0
# Compilation is most of the time, and a quarter of it optimisation (etcd: 122 s of processors with it, 92 without). The same as in tests/cluster, which shares packages.
export GOFLAGS="'-gcflags=all=-N -l'"

. ../skip.sh

need='the device manager of a real kubelet needs Go 1.26 and its modules'
command -v go >/dev/null || skip "$need: there is no go"
said=$(go mod download 2>&1) || skip "$need: $(echo "$said" | tail -n 1)"

demo=$TRANCHE_STAGE/tests/kubelet-demo
# Without what debuggers want, linking is short.
link=-ldflags='-s -w'

case $1 in
build) go build "$link" -o "$demo" ./demo && go test "$link" -run '^$' ./... >/dev/null ;;
lint)
    unformatted=$(gofmt -l .)
    [ -z "$unformatted" ] || { echo "not as gofmt would have it: $unformatted" >&2; exit 1; }
    go vet ./chart
    ;;
chart) go test "$link" -count=1 ./chart ;;
# The tests wait more than they work: more at a time than there are cores.
test) go vet ./... && go test "$link" -count=1 -parallel 6 -timeout 10m ./... ;;
demo) go build "$link" -o "$demo" ./demo && "$demo" ;;
*)
    echo "run.sh: build, lint, chart, test or demo, not \"$1\"" >&2
    exit 2
    ;;
esac
