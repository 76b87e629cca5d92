#!/bin/sh
# A real cluster: run.sh build|build-all|test|short|demo|shell. It wants the tree that `make build` makes in $TRANCHE_STAGE.
# Where there can be no cluster, prints SKIP and the reason; with TRANCHE_REQUIRE=all that is a failure.
set -eu
cd "$(dirname "$0")"

. ../skip.sh

need='a cluster needs'
case $1 in
build | build-all)
    # The short form is without Kueue.
    modules='etcd containerd kubernetes'
    [ "$1" = build ] || modules="$modules kueue"
    command -v go >/dev/null || PATH=/usr/local/go/bin:$PATH
    command -v go >/dev/null || skip "$need Go 1.26"
    for module in $modules; do
        said=$(cd "modules/$module" && go mod download 2>&1) || skip "$need the modules of $module: $(echo "$said" | tail -n 1)"
    done
    # What a release's image takes of Debian. A cluster has no network to fetch it by.
    python3 ../../systemd/dist/pack.py base || true
    # Tests that wait are beside it; it waits for them.
    # shellcheck disable=SC2086
    exec nice ./build.sh $modules
    ;;
test | short | demo | shell) ;;
*)
    echo "run.sh: build, build-all, test, short, demo or shell, not \"$1\"" >&2
    exit 2
    ;;
esac

[ "$(id -u)" = 0 ] || skip "$need root"
for command in python3:python3 unshare:util-linux ip:iproute2 openssl:openssl runc:runc strip:binutils busybox:busybox-static \
    /usr/lib/cni/bridge:containernetworking-plugins; do
    command -v "${command%%:*}" >/dev/null || skip "$need ${command%%:*} (package ${command##*:})"
done
[ -e ../../target/cluster/bin/.kubernetes ] || skip "$need its programs: run.sh build"
said=$(unshare --mount --uts --ipc --net --pid --fork true 2>&1) || skip "$need namespaces: $said"
exec python3 bed.py "$@"
