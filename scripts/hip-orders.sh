#!/usr/bin/env bash
# Runs the suite's random programs on AMD's HIP over the HSA runtime of tests/hsa_runtime, which carries out in random order
# whatever nothing orders: every program in as many orders, on both versions. Every result has to be right.
#
#   scripts/hip-orders.sh [PROGRAMS [ORDERS [TEST]]]    # 1000, 20, one_executable
#
# A failure names the program's seed and the runtime's; `ORDERS=7,1` in place of the number runs these seeds only. Needs what
# scripts/hip.sh fetches. CONFORMANCE names a binary of the suite that is built; VERSIONS the versions.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=${1:-1000} orders=${2:-20} test=${3:-one_executable}
case $orders in
    *,*) seeds=${orders//,/ } ;;
    *) seeds=$(seq "$orders") ;;
esac

if [ -z "${CONFORMANCE:-}" ]; then
    cargo build --locked --example hsa_runtime --example hip_calls
    CONFORMANCE=$(cargo test --locked --test conformance --no-run --message-format json |
        sed -nE 's/.*"executable":"([^"]+conformance[^"]*)".*/\1/p')
fi
export WAKEGRAPH_RANDOM_PROGRAMS=$programs WAKEGRAPH_RANDOM_THREADS=${WAKEGRAPH_RANDOM_THREADS:-4}
for seed in $seeds; do
    for version in ${VERSIONS:-6.4.3 5.7.1}; do
        name=hip/$version/graph/random_programs/$test
        if ! said=$(WAKEGRAPH_HSA_SEED=$seed "$CONFORMANCE" --exact "$name" 2>&1) || [[ $said != *" 1 passed"* ]]; then
            printf '%s\nWAKEGRAPH_HSA_SEED=%s\n' "$said" "$seed"
            exit 1
        fi
        echo "HIP $version, order $seed: $programs programs are right (${SECONDS}s)"
    done
done
