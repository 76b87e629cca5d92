#!/bin/sh
# Fetches the linker and C compiler of releases into FOLDER once, and makes FOLDER/cc-ARCH of them, which
# links with the symbols that glibc GLIBC had: what it links runs on each newer one, on whichever machine it was built.
#
#   sh systemd/dist/toolchain.sh FOLDER GLIBC ARCH
set -eu
# Their versions are part of each release's bytes.
zig=0.17.1
zigbuild=0.24.1
folder=$1
glibc=$2
arch=$3
here=$(cd "$(dirname "$0")" && pwd)

fetch() {
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/pip" install -q --disable-pip-version-check --only-binary :all: "ziglang==$zig" "cargo-zigbuild==$zigbuild"
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ "$(cat "$folder/versions" 2>/dev/null)" != "$zig $zigbuild" ]; then
    fetch || {
        echo "$here/toolchain.sh: cannot install ziglang $zig and cargo-zigbuild $zigbuild into $folder by pip;" \
            "python3 with its venv module and a package index that pip reaches are needed" >&2
        exit 1
    }
    echo "$zig $zigbuild" >"$folder/versions"
fi
# `zig cc` as it is does not know some options that rustc gives; cargo-zigbuild translates them.
for tool in "cc-$arch:cc" ar:ar; do
    target=
    [ "${tool%:*}" = ar ] || target="-g0 -fno-sanitize=all -target $arch-linux-gnu.$glibc"
    cat >"$folder/${tool%:*}.new" <<END
#!/bin/sh
PATH=$folder/bin:\$PATH
export PATH
exec $folder/bin/cargo-zigbuild zig ${tool#*:} -- $target "\$@"
END
    chmod 755 "$folder/${tool%:*}.new"
    mv "$folder/${tool%:*}.new" "$folder/${tool%:*}"
done
