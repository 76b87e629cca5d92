#!/usr/bin/env bash
# Everything to know about a GPU machine in one command: probe, conformance (bare and in a
# slice), clients, the demo, PyTorch if it is here, benchmarks if they are; then a table.
#
# usage: run.sh [--sim] [--quick] [--programs] [--only NAME,...] [--stage DIR] [--out DIR]
#
#   --sim        on a simulated node, where there is no GPU
#   --quick      less of everything: under a minute on the simulated node
#   --programs   instead: the programs that are installed here (PyTorch, JAX, llama.cpp, ffmpeg ...), each bare
#                and in half a GPU, as far as PYTHON (python3) and PATH find them; --only names some
#   --stage DIR  the built tree (default: the one this script is in, else target/stage)
#   --out DIR    keep reports there: probe.txt, probe.json, conformance-*.txt, run.json ...
#
# It needs neither cargo nor a network, starts a daemon of its own in a private directory,
# and leaves nothing behind. Exit: 0 all holds, 1 something does not, 2 it could not start.
set -uo pipefail

usage() { sed -n '5s/^# //p' "$0"; }

here=$(cd "$(dirname "$0")" && pwd)
stage= out= sim= quick= programs= only=
python=${PYTHON:-python3}
while [ $# -gt 0 ]; do
    case $1 in
        --sim) sim=1 ;;
        --quick) quick=--quick ;;
        --programs) programs=1 ;;
        --only) only=${2:?--only needs names}; shift ;;
        --stage) stage=${2:?--stage needs a directory}; shift ;;
        --out) out=${2:?--out needs a directory}; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

if [ -z "$stage" ]; then
    if [ -x "$here/../bin/tranched" ]; then stage=$here/..; else stage=$here/../../target/stage; fi
fi
for needed in bin/tranched bin/tranche lib/tranche/libtranche_preload.so tests/probe tests/conformance; do
    [ -e "$stage/$needed" ] || { echo "run.sh: $stage/$needed is not there: run make build first" >&2; exit 2; }
done
stage=$(cd "$stage" && pwd)
tests=$stage/tests
work=$(mktemp -d "${TMPDIR:-/tmp}/tranche-gpu.XXXXXX")
out=${out:-$work/out}
mkdir -p "$out" && out=$(cd "$out" && pwd)
claims=$work/claims
: >"$claims"
daemon=
exact=${sim:+--exact} # the simulated driver keeps nothing back

finish() {
    [ -n "$daemon" ] && kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# ---- claims: name, value, unit, goal, yes, no or reported ----

claim() { printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$claims"; }

claim_zero() { # NAME VALUE UNIT
    if [ "$2" = 0 ]; then claim "$1" "$2" "$3" 0 yes; else claim "$1" "$2" "$3" 0 no; fi
}

# Claims of a report in the shared form: {"claims":[{"name","value","unit","goal","holds"[,"reported"]}]}
# What is reported need not hold: what was measured cannot decide it.
claims_of() { # FILE
    tr -d '\n' <"$1" | tr '{' '\n' | grep '"holds"' | while IFS= read -r line; do
        holds=$(field holds "$line") reported=$(field reported "$line")
        claim "$(field name "$line")" "$(field value "$line")" "$(field unit "$line")" "$(field goal "$line")" \
            "$([ "$holds" = true ] && echo yes || { [ "$reported" = true ] && echo reported || echo no; })"
    done
}

# One flat field of one flat JSON object, string or number.
field() { # NAME LINE
    printf '%s' "$2" | sed -n 's/.*"'"$1"'"[[:space:]]*:[[:space:]]*\("\([^"]*\)"\|\([^],} ]*\)\).*/\2\3/p'
}

phase() { printf '\n==== %s (%s s)\n' "$1" "$SECONDS"; }

in_slice() { # NAME CMD...
    local name=$1
    shift
    timeout 180 "$stage/bin/tranche" --socket "$work/run/tranched.sock" run -g 0.5 --name "$name" -- "$@"
}

# ---- the phases ----

start_node() {
    [ -n "$sim" ] || return 0
    # A driver that checkpoints processes.
    "$stage/bin/simgpu" create --preset h200x1 --driver 580 "$work/node" || exit 2
    export SIMGPU_NODE=$work/node
    # With the driver, the runtime of this project's own.
    export LD_LIBRARY_PATH=$stage/sim/580:$stage/sim:$stage/sim/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    echo "SIMULATED GPU: what follows is about the software, not about a GPU."
}

run_probe() { # OPTION...
    phase "probe"
    timeout 300 "$tests/probe" $quick --within 110 "$@" --json "$out/probe.json" | tee "$out/probe.txt"
    local status=${PIPESTATUS[0]}
    if [ "$status" = 2 ]; then
        echo "run.sh: no GPU answers here; --sim runs on a simulated one" >&2
        exit 2
    fi
    claim_zero probe_sections_failed "$(grep -c '"status": "[^dn]' "$out/probe.json")" sections
    local late
    late=$(grep -c '"status": "not begun"' "$out/probe.json")
    [ "$late" = 0 ] || claim probe_sections_not_begun "$late" sections 0 reported
}

count_of() { # WORD FILE: from the suite's closing line
    sed -n 's/.*\b\([0-9][0-9]*\) '"$1"'.*/\1/p' "$2" | tail -1
}

claim_conformance() { # WHERE
    local file=$out/conformance-$1.txt
    local failed passed skipped
    failed=$(count_of failed "$file") passed=$(count_of passed "$file") skipped=$(count_of skipped "$file")
    claim_zero "conformance_$1_failed" "${failed:-none ran}" checks
    if [ "${passed:-0}" -ge 40 ]; then
        claim "conformance_$1_passed" "$passed" checks ">= 40" yes
    else
        claim "conformance_$1_passed" "${passed:-0}" checks ">= 40" no
    fi
    # A GPU may lack a feature; the simulated one has them all.
    if [ -n "$sim" ] && [ "${TRANCHE_REQUIRE:-}" = all ]; then
        claim_zero "conformance_$1_skipped" "${skipped:-0}" checks
    fi
}

run_conformance_bare() {
    phase "conformance, bare"
    timeout 300 "$tests/conformance" $exact --json "$out/conformance-bare.json" | tee "$out/conformance-bare.txt" |
        grep -v '^ok\|^# seen'
    claim_conformance bare
}

# Public facts about drivers; those whose function is absent are listed and counted, not claimed.
run_facts() { # WHERE CMD...
    local where=$1
    shift
    [ -x "$tests/facts" ] || return 0
    phase "facts about drivers, $where"
    "$@" "$tests/facts" --json "$out/facts-$where.json" | tee "$out/facts-$where.txt"
    claim_zero "facts_${where}_failed" "$(sed -n 's/.* \([0-9]*\) failed,.*/\1/p' "$out/facts-$where.txt" | grep . || echo none)" facts
}

start_daemon() {
    phase "daemon"
    mkdir -p "$work/run" "$work/state"
    "$stage/bin/tranched" --runtime-dir "$work/run" --state-dir "$work/state" >"$out/tranched.log" 2>&1 &
    daemon=$!
    for _ in $(seq 100); do
        [ -S "$work/run/tranched.sock" ] && break
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    if [ ! -S "$work/run/tranched.sock" ]; then
        echo "run.sh: tranched did not start:" >&2
        tail -5 "$out/tranched.log" >&2
        claim daemon_starts 0 "" 1 no
        return 1
    fi
    claim daemon_starts 1 "" 1 yes
    "$stage/bin/tranche" --socket "$work/run/tranched.sock" smi
}

run_conformance_in_slice() {
    phase "conformance, in a slice"
    in_slice conformance "$tests/conformance" --in-slice $exact --json "$out/conformance-slice.json" |
        tee "$out/conformance-slice.txt" | grep -v '^ok\|^# seen'
    claim_conformance slice
    grep '^# seen' "$out/conformance-bare.txt" >"$work/seen-bare"
    grep '^# seen' "$out/conformance-slice.txt" >"$work/seen-slice"
    diff "$work/seen-bare" "$work/seen-slice"
    claim_zero answers_changed_by_a_slice "$(diff "$work/seen-bare" "$work/seen-slice" | grep -c '^[<>]')" answers
}

run_client() { # NAME CMD...
    local name=$1 line status
    shift
    line=$(in_slice "$name" "$@" 2>"$out/$name.err")
    status=$?
    printf '%s\n' "$line" | tee "$out/$name.json"
    [ "$status" = 0 ] || cat "$out/$name.err" >&2
    claim_zero "client_${name}_exit" "$status" ""
}

run_clients() {
    phase "clients, each in half a GPU"
    run_client linked "$tests/linked"
    run_client dlopened "$tests/dlopened"
    run_client threads "$tests/threads" "$([ -n "$quick" ] && echo 1 || echo 10)" 8
    run_client cap "$tests/cap"
    local report total filled
    report=$(cat "$out/cap.json")
    total=$(field total "$report") filled=$(field filled "$report")
    if [ "${filled:-0}" -gt 0 ] && [ "$filled" -le "${total:-0}" ]; then
        claim cap_overshoot_bytes 0 bytes 0 yes
    else
        claim cap_overshoot_bytes "$((${filled:-0} - ${total:-0}))" bytes 0 no
    fi
}

# A slice is parked and brought back, by sizes of its memory; the times are reported, the contents have to be equal.
run_parking() {
    phase "a slice leaves the GPU and returns"
    local mib
    for mib in 256 $([ -n "$quick" ] || echo 4096 16384); do
        park_one "$mib" || return 0
    done
}

in_node() { "$stage/bin/tranche" --socket "$work/run/tranched.sock" "$@"; }

until_line() { # WORD FILE: waits a minute for a line with the word
    for _ in $(seq 600); do
        grep -q "$1" "$2" 2>/dev/null && return 0
        sleep 0.1
    done
    return 1
}

park_one() { # MIB
    local name=parked-$1 said=$out/parked-$1.txt client begun park_ms unpark_ms status=0
    rm -f "$work/say"
    mkfifo "$work/say"
    in_slice "$name" "$tests/parked" "$1" <"$work/say" >"$said" 2>&1 &
    client=$!
    exec 3>"$work/say"
    until_line ready "$said" || { cat "$said" >&2; exec 3>&-; claim_zero "parked_$1_mib_exit" 1 ""; return 1; }
    begun=$(date +%s%3N)
    if ! in_node slice park "$name" 2>"$out/$name.err"; then
        cat "$out/$name.err" >&2
        exec 3>&-
        wait "$client"
        # Drivers before 570 cannot; whatever else a driver refuses is a finding.
        [ -z "$sim" ] && grep -q 'driver 570' "$out/$name.err" && { echo "SKIP: this driver has no checkpoint calls"; return 1; }
        claim "parked_$1_mib" refused "" parked no
        return 1
    fi
    park_ms=$(($(date +%s%3N) - begun))
    begun=$(date +%s%3N)
    in_node slice unpark "$name" || status=1
    unpark_ms=$(($(date +%s%3N) - begun))
    echo check >&3
    until_line equal "$said" || status=1
    exec 3>&-
    wait "$client" || status=1
    claim_zero "parked_$1_mib_exit" "$status" ""
    claim_zero "parked_$1_mib_contents_changed" "$(grep -c '"equal": false' "$said")" ""
    claim "parked_$1_mib_park" "$park_ms" ms "" reported
    claim "parked_$1_mib_unpark" "$unpark_ms" ms "" reported
}

run_demo() {
    phase "demo"
    timeout 120 "$stage/bin/tranche" demo --gpu "$([ -n "$sim" ] && echo sim || echo real)" --report "$out/demo.json"
    claim_zero demo_exit $? ""
    [ -s "$out/demo.json" ] && claims_of "$out/demo.json"
}

run_torch() {
    [ -z "$sim" ] || return 0
    "$python" -c 'import torch' 2>/dev/null || { echo "SKIP: PyTorch is not installed here"; return 0; }
    local allocator status
    for allocator in caching expandable; do
        phase "PyTorch in half a GPU, $allocator allocator"
        in_slice "torch-$allocator" "$python" "$tests/torch_check.py" --allocator "$allocator" >"$out/torch-$allocator.tsv"
        status=$?
        cat "$out/torch-$allocator.tsv"
        [ "$status" = 77 ] && continue
        cat "$out/torch-$allocator.tsv" >>"$claims"
        claim_zero "torch_${allocator}_exit" "$status" ""
    done
}

# Programs of others, whichever are here.
run_programs() {
    phase "programs, bare and in half a GPU"
    if ! command -v "$python" >/dev/null; then
        echo "SKIP: the checks of programs need Python 3, and there is no $python"
        [ -n "$sim" ] && [ "${TRANCHE_REQUIRE:-}" != all ] || claim programs_tried 0 "" some no
        return 0
    fi
    "$python" -B "$tests/programs/programs.py" \
        --stage "$stage" --socket "$work/run/tranched.sock" --out "$out" --claims "$claims" \
        ${sim:+--sim} ${only:+--only "$only"}
    claim_zero programs_exit $? ""
}

# The bench of compute starts a daemon of its own; on the simulated node only what is short.
run_bench() {
    [ -x "$tests/bench-compute" ] || return 0
    phase "compute: what slices get of the GPU's time"
    timeout 3000 "$tests/bench-compute" $quick $([ -n "$sim" ] && echo --gpu sim --only changes || echo --gpu real) \
        --stage "$stage" --report "$out/bench-compute.json" --plot "$out/compute-shares.svg"
    [ -s "$out/bench-compute.json" ] || claim bench_compute_report missing "" present no
    [ -s "$out/bench-compute.json" ] && claims_of "$out/bench-compute.json"
}

stop_daemon() {
    kill "$daemon" 2>/dev/null
    wait "$daemon" 2>/dev/null
    local status=$?
    daemon=
    # 143: ended by our SIGTERM before it could say goodbye; still no crash.
    if [ "$status" = 143 ]; then status=0; fi
    claim_zero daemon_exit "$status" ""
}

# ---- the end: a table for people, a report for machines ----

table() {
    phase "summary"
    { printf 'name\tvalue\tunit\tgoal\tholds\n'; cat "$claims"; } | awk -F'\t' '
        $2 ~ /^-?[0-9]+\.[0-9]+$/ { $2 = ($2 == int($2) ? int($2) : sprintf("%.1f", $2)) }
        { for (i = 1; i <= 4; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) }
          holds[NR] = $5 }
        END { for (r = 1; r <= NR; r++) printf "%-*s  %*s  %-*s  %-*s  %s\n", width[1], cell[r, 1], width[2],
              cell[r, 2], width[3], cell[r, 3], width[4], cell[r, 4], holds[r] }'
}

report() {
    local device commit
    device=$(tr -d '\n' <"$out/probe.json" | tr '{' '\n' | grep '"name": "device"')
    commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || cat "$stage/commit" 2>/dev/null || echo unknown)
    printf '{"device": "%s", "simulated": %s, "commit": "%s", "seconds": %s, "claims": [' \
        "$(field value "$device")" "$([ -n "$sim" ] && echo true || echo false)" "$commit" "$SECONDS"
    awk -F'\t' '
        { value = ($2 ~ /^-?[0-9]+(\.[0-9]+)?$/ ? $2 : "\"" $2 "\"")
          printf "%s\n  {\"name\": \"%s\", \"value\": %s, \"unit\": \"%s\", \"goal\": \"%s\", \"holds\": %s}",
                 (NR > 1 ? "," : ""), $1, value, $3, $4, ($5 == "yes" ? "true" : "false") }
        END { print "\n]}" }' "$claims"
}

start_node
if [ -n "$programs" ]; then
    run_probe --only versions
    if start_daemon; then
        run_programs
        stop_daemon
    fi
else
    run_probe
    "$tests/seen_facts.sh" "$out/probe.json" >"$out/facts-seen.tsv"
    run_conformance_bare
    run_facts bare timeout 300
    if start_daemon; then
        run_conformance_in_slice
        run_facts slice in_slice facts
        run_clients
        run_parking
        run_torch
        stop_daemon
        run_bench
    fi
    run_demo
fi
table
report >"$out/run.json"
broken=$(awk -F'\t' '$5 != "yes" && $5 != "reported"' "$claims" | wc -l)
printf '\n%s claims, %s do not hold, %s s\n' "$(wc -l <"$claims")" "$broken" "$SECONDS"
[ "$broken" = 0 ]
