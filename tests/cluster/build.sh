#!/bin/sh
# Builds the programs of a cluster from Go modules into target/cluster/bin: build.sh MODULE...
# Go itself knows what is up to date; here only linking is saved, where nothing can have changed.
set -eu
cd "$(dirname "$0")/modules"
bin=$PWD/../../../target/cluster/bin
mkdir -p "$bin"

# Where Go's own archive puts it; a distribution's may be too old.
PATH=/usr/local/go/bin:$PATH
export CGO_ENABLED=0
# Compilation is most of the time, and a quarter of it optimisation (etcd: 122 s of processors with it, 92 without). The same as in tests/kubelet, which shares packages.
export GOFLAGS="'-gcflags=all=-N -l'"

# Kueue's chart is a part of its module.
chart() {
    rm -rf "$bin/../kueue-chart"
    cp -r "$(cd kueue && go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/charts/kueue" "$bin/../kueue-chart"
    chmod -R u+w "$bin/../kueue-chart"
}

# Kubernetes knows its version only from the linker. No -trimpath: packages that tests/kubelet has compiled are reused.
version=k8s.io/component-base/version
versions="-X $version.gitVersion=v1.36.2 -X $version.gitMajor=1 -X $version.gitMinor=36"

for module in "$@"; do
    made="$(go env GOVERSION) $(cat "$module/go.mod" "$module/go.sum" "../build.sh" | sha256sum)"
    [ "$(cat "$bin/.$module" 2>/dev/null)" != "$made" ] || continue
    begun=$(date +%s)
    link='-s -w'
    [ "$module" != kubernetes ] || link="$link $versions"
    (cd "$module" && go build -ldflags "$link" -o "$bin/" tool)
    # Its main package has the module's name.
    [ "$module" != etcd ] || mv "$bin/server" "$bin/etcd"
    [ "$module" != kueue ] || chart
    echo "$made" >"$bin/.$module"
    echo "$module: built in $(($(date +%s) - begun)) s"
done
