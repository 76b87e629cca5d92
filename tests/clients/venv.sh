#!/bin/sh
# Makes a virtual environment of the Python clients, once for each list of packages.
#
# usage: venv.sh [DIR [LIST [OPTION...]]]
# Defaults: target/venv of the source tree, requirements.txt; options are pip's.
# Prints the environment's directory. A stamp holds the checksum of the list and
# the Python version: if it matches, nothing is done and no network is needed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-$here/../../target/venv}
list=${2:-requirements.txt}
shift $(($# < 2 ? $# : 2))
python=${PYTHON:-python3}

fail() {
    echo "venv.sh: $1" >&2
    exit 1
}

command -v "$python" >/dev/null || fail "no $python found: install Python 3.10 or newer, or set PYTHON"
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python cannot make virtual environments: install its venv module (Debian and Ubuntu: apt install python3-venv)"

mkdir -p "$(dirname "$venv")"
wanted=$("$python" -V; cksum <"$here/$list")

# One maker at a time: tests run side by side.
exec 9>"$venv.lock"
flock 9
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "venv.sh: making $venv of $list (700 MB to 2.4 GB, minutes the first time)" >&2
    rm -rf "$venv"
    free=$(df -Pk "$(dirname "$venv")" | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free" -ge 3000 ] || fail "$(dirname "$venv") has $free MB free, and the packages of $list take up to 3000: make room"
    "$python" -m venv "$venv" >&2 || fail "$python -m venv $venv did not work"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" --requirement "$here/$list" >&2 ||
        fail "pip could not install $list: is the package index reachable?"
    printf '%s' "$wanted" >"$venv/stamp"
fi
cd "$venv" && pwd
