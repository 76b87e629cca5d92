#!/bin/sh
# Builds a release once and packs it in each form: `make dist` calls it. For this machine into target/dist, and for
# another (ARCH=aarch64) into target/dist-ARCH.
# What this machine cannot make is left out with the reason; with TRANCHE_REQUIRE=all that is a failure.
set -eu
cd "$(dirname "$0")/../.."
root=target/deb/root
machine=$(uname -m)
export ARCH="${ARCH:-$machine}"
out=target/dist$([ "$ARCH" = "$machine" ] || echo "-$ARCH")
work=target/rpm

skip() {
    if [ "${TRANCHE_REQUIRE:-}" = all ]; then
        echo "dist.sh: $1, but TRANCHE_REQUIRE=all" >&2
        exit 1
    fi
    echo "SKIP: $1" >&2
}

# Build and installation, of which the Debian package is made; the other forms hold the same files.
built() {
    rm -f target/deb/*.deb
    sh systemd/dist/build.sh "${MAKE:-make}" --no-print-directory deb
    mv target/deb/*.deb "$out/"
}

rpm() {
    command -v rpmbuild >/dev/null || { skip "no RPM package without rpmbuild (Debian package rpm)"; return; }
    rm -rf "$work"
    version=$(sed -n '/^\[workspace.package\]/,/^version/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
    rpmbuild --quiet -bb --target "$ARCH" --define "release_version $version" --define "root $PWD/$root" \
        --define "_topdir $PWD/$work" --define "_buildhost reproducible" \
        --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
        systemd/dist/tranche.spec
    # What the library in the driver's place loads is put there when a container starts, and is in no package.
    if command rpm -qp --requires "$work/RPMS/$ARCH"/*.rpm | grep -E 'libcuda|libnvidia'; then
        echo "dist.sh: the RPM package must not require these: see __requires_exclude in systemd/dist/tranche.spec" >&2
        exit 1
    fi
    mv "$work/RPMS/$ARCH"/*.rpm "$out/"
}

packed() {
    image=yes
    command -v dpkg-deb >/dev/null || { skip "no image without apt-get and dpkg-deb, as its base is Debian's"; image=no; }
    IMAGE=$image python3 systemd/dist/pack.py "$root" "$out"
    python3 systemd/dist/pack.py bounds "$out"
    cp "$root/usr/share/doc/tranche/sbom.cdx.json" "$out/sbom.cdx.json"
    cp "$root/usr/share/doc/tranche/THIRD-PARTY-LICENSES.txt" "$out/"
    (cd "$out" && sha256sum -- * >SHA256SUMS)
}

rm -rf "$out"
mkdir -p "$out"
built
python3 systemd/dist/check.py "$root"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
rpm
packed
(cd "$out" && wc -c -- * | awk '{ printf "%10.2f MB  %s\n", $1 / 1e6, $2 }')
