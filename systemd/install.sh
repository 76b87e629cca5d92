#!/bin/sh
# Puts everything where it belongs, or takes it away again: `make install` and `make uninstall` call it.
#
#   DESTDIR   what is put before every path     PREFIX, SYSCONFDIR   /usr and /etc, or elsewhere
#   BUILT     where the programs are            SHIMS                where the libraries are
#   THIRD_PARTY   where `make third-party` wrote licences and bill of materials
#   EMULATOR  command that starts the programs, where they are for another machine
#
# What was put and which folders were made stands in $PREFIX/lib/tranche/installed; that goes away again, and no more.
set -eu
umask 022
here=$(dirname "$0")
root=${DESTDIR:-}
list=$root$PREFIX/lib/tranche/installed
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Makes a folder and those above it, and notes the new ones.
folder() {
    [ ! -d "$root$1" ] || return 0
    folder "$(dirname "$1")"
    mkdir "$root$1"
    echo "$1/" >>"$work/list"
}

put() { # MODE SOURCE PATH
    folder "$(dirname "$3")"
    install -m "$1" "$2" "$root$3"
    echo "$3" >>"$work/list"
}

# Starts one of the programs that were built.
run() { # PROGRAM ARGUMENT...
    program=$BUILT/$1
    shift
    # shellcheck disable=SC2086 # a command with its options
    ${EMULATOR:-} "$program" "$@"
}

# A unit, or a drop-in, with the paths that it has here.
put_unit() { # SOURCE PATH
    sed "s#/usr/\(bin\|lib\)/tranche#$PREFIX/\1/tranche#g" "$1" >"$work/unit"
    put 644 "$work/unit" "$2"
}

programs() {
    for program in tranched tranche tranche-page tranche-deviceplugin tranche-dradriver tranche-nriplugin; do
        put 755 "$BUILT/$program" "$PREFIX/bin/$program"
    done
    put 755 "$BUILT/tranche-shepherd" "$PREFIX/lib/tranche/tranche-shepherd"
    put 755 "$SHIMS/libtranche_preload.so" "$PREFIX/lib/tranche/libtranche_preload.so"
    put 755 "$SHIMS/libtranche_libcuda.so" "$PREFIX/lib/tranche/replace/libcuda.so.1"
    put 755 "$SHIMS/libtranche_libnvml.so" "$PREFIX/lib/tranche/replace/libnvidia-ml.so.1"
}

# The simulated node, for `tranche play` and `tranche demo`.
simulated() {
    for program in tranche-demo simgpu workload; do
        put 755 "$BUILT/$program" "$PREFIX/lib/tranche/play/bin/$program"
    done
    run fakecuda-stage "$BUILT/libfakecuda.so" "$work/sim"
    put 755 "$work/sim/libcuda.so.1" "$PREFIX/lib/tranche/play/sim/libcuda.so.1"
    put 755 "$BUILT/libfakenvml.so" "$PREFIX/lib/tranche/play/sim/libnvidia-ml.so.1"
}

units() {
    for unit in tranched.service tranched.socket tranche-attest.socket tranche-attest.service tranche-job.socket tranche-job@.service tranche-page.service tranche-deviceplugin.service tranche-slice@.service; do
        put_unit "$here/$unit" "$PREFIX/lib/systemd/system/$unit"
    done
    for example in "$here"/examples/*; do
        put_unit "$example" "$PREFIX/share/doc/tranche/examples/${example##*/}"
    done
    put 644 "$here/tranche.sysusers" "$PREFIX/lib/sysusers.d/tranche.conf"
    put 644 "$here/tranche.tmpfiles" "$PREFIX/lib/tmpfiles.d/tranche.conf"
    # What an administrator wrote there stays.
    [ -e "$root$SYSCONFDIR/tranche/tranched.toml" ] ||
        put 644 "$here/tranched.toml" "$SYSCONFDIR/tranche/tranched.toml"
}

pages() {
    run tranche generate completions --out "$work/completions"
    put 644 "$work/completions/tranche.bash" "$PREFIX/share/bash-completion/completions/tranche"
    put 644 "$work/completions/_tranche" "$PREFIX/share/zsh/vendor-completions/_tranche"
    put 644 "$work/completions/tranche.fish" "$PREFIX/share/fish/vendor_completions.d/tranche.fish"
    run tranche generate man --out "$work/man"
    for page in "$work"/man/*; do
        put 644 "$page" "$PREFIX/share/man/man1/${page##*/}"
    done
    run tranched --manual >"$work/tranched.toml.5"
    put 644 "$work/tranched.toml.5" "$PREFIX/share/man/man5/tranched.toml.5"
    run tranched --manual=8 >"$work/tranched.8"
    put 644 "$work/tranched.8" "$PREFIX/share/man/man8/tranched.8"
}

licences() {
    put 644 "$here/../LICENSE" "$PREFIX/share/doc/tranche/LICENSE"
    for file in THIRD-PARTY-LICENSES.txt sbom.cdx.json; do
        put 644 "$THIRD_PARTY/$file" "$PREFIX/share/doc/tranche/$file"
    done
}

do_install() {
    mkdir -p "$root/"
    programs
    simulated
    units
    pages
    licences
    # Together with what an earlier installation noted, whose folders are not new any more.
    echo "$PREFIX/lib/tranche/installed" >>"$work/list"
    [ ! -e "$list" ] || cat "$list" >>"$work/list"
    sort -u "$work/list" >"$list"
    [ -n "$root" ] || echo "installed; next: $PREFIX/bin/tranche doctor --setup"
}

do_uninstall() {
    [ -e "$list" ] || { echo "there is no $list: nothing was installed there by \`make install\`" >&2; exit 1; }
    # What is within a folder before the folder.
    sort -r "$list" >"$work/list"
    while read -r path; do
        case $path in
        */) rmdir --ignore-fail-on-non-empty "$root$path" ;;
        *.toml)
            if cmp -s "$here/tranched.toml" "$root$path"; then
                rm "$root$path"
            elif [ -e "$root$path" ]; then
                echo "$root$path is kept, as it is not what was installed"
            fi
            ;;
        *) rm -f "$root$path" ;;
        esac
    done <"$work/list"
}

case ${1-} in
install | uninstall) "do_$1" ;;
*)
    echo "install.sh: install or uninstall, not \"${1-}\"" >&2
    exit 2
    ;;
esac
