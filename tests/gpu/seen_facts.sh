#!/bin/sh
# Prints what section nulls of a probe's report saw, as rows of tests/facts/data/driver.tsv.
#
# usage: seen_facts.sh probe.json
#
# A row there needs a source that others can read: until the report is published and named in sources.tsv, these
# are candidates. Calls that ended their process have no form there and are left out.
set -eu
report=${1:?usage: seen_facts.sh probe.json}
# What the section made before its calls.
before='$stream; cuModuleLoadData(&m, ptx); cuEventCreate(&e, 0); cuEventRecord(e, s); cuGraphCreate(&g, 0)'
version=$(sed -n 's/.*"name": "cuda_driver_version", "value": \([0-9]*\).*/\1/p' "$report")
sed -n 's/^ *{"name": "\(cu[A-Za-z0-9_]*(.*)\)", "value": "\([A-Z_]*\)", .*/\1	\2/p' "$report" |
    sed -e 's/\\"/"/g' -e 's/CUDA_ERROR_//' -e 's/SPIN_PTX/ptx/' \
        -e 's/(CUfunction \*)//' -e 's/\([(,] *\)b\([,)]\)/\1\&b\2/' |
    awk -F'\t' -v version="${version:?no cuda_driver_version in the report}" -v before="$before" '
        { shape = ($1 ~ /&shape/ ? "; shape = {8:16, 8:16, 4:0x20, 4:1}" : "")
          printf "seen-%02d\t%s-%s\t%s%s; %s = %s\tprobe\n", NR, version, version, before, shape, $1, $2 }'
