#!/bin/sh
# Builds the programs of a cluster from Go modules into target/cluster/bin: build.sh [FOLDER]
# Go itself knows what is up to date; here only linking is saved, where nothing can have changed.
set -eu
cd "$(dirname "$0")/modules"
bin=${1:-$PWD/../../../target/cluster/bin}
mkdir -p "$bin"

# Where Go's own archive puts it; a distribution's may be too old.
PATH=/usr/local/go/bin:$PATH
export CGO_ENABLED=0
# Compilation is most of the time, and a third of it optimisation. The same as in tests/kubelet, which shares packages.
export GOFLAGS="'-gcflags=all=-N -l'"

# Kubernetes knows its version only from the linker. No -trimpath: packages that tests/kubelet has compiled are reused.
version=k8s.io/component-base/version
link="-s -w -X $version.gitVersion=v1.36.2 -X $version.gitMajor=1 -X $version.gitMinor=36"

for module in etcd containerd kubernetes; do
    made="$(go env GOVERSION) $(cat "$module/go.mod" "$module/go.sum" "../build.sh" | sha256sum)"
    [ "$(cat "$bin/.$module" 2>/dev/null)" != "$made" ] || continue
    begun=$(date +%s)
    (cd "$module" && go build -ldflags "$link" -o "$bin/" tool)
    # Its main package has the module's name.
    [ "$module" != etcd ] || mv "$bin/server" "$bin/etcd"
    echo "$made" >"$bin/.$module"
    echo "$module: built in $(($(date +%s) - begun)) s"
done
