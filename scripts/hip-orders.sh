#!/usr/bin/env bash
# Runs the suite's random programs on HIP over the HSA runtime of the tests, which carries out in random order
# whatever nothing orders: every program in as many orders, on both versions. Every result has to be right.
#
#   scripts/hip-orders.sh [PROGRAMS [ORDERS [SEED]]]    # 1000, 20, 1: the first seed of the random orders
#
# A failure names the program's seed and the runtime's: with WAKEGRAPH_RANDOM_SEED the suite begins with a program. Needs
# what scripts/hip.sh fetches. CONFORMANCE names a binary of the suite that is built; VERSIONS the versions.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${CONFORMANCE:-}" ]; then
    cargo build --workspace --locked --example hsa_runtime --example hip_calls
    CONFORMANCE=$(cargo test --workspace --locked --test conformance --no-run --message-format json |
        sed -nE 's/.*"executable":"([^"]+conformance[^"]*)".*/\1/p')
fi
programs=${1:-1000} orders=${2:-20} first=${3:-1}
export WAKEGRAPH_RANDOM_PROGRAMS=$programs
for version in ${VERSIONS:-6.4.3 5.7.1}; do
    for test in one_executable several_executables without_updates; do
        name=hip/$version/graph/random_programs/$test
        for seed in $(seq "$first" $((first + orders - 1))); do
            if ! said=$(WAKEGRAPH_HSA_SEED=$seed "$CONFORMANCE" --exact "$name" 2>&1) || [[ $said != *" 1 passed"* ]]; then
                printf '%s\nWAKEGRAPH_HSA_SEED=%s\n' "$said" "$seed"
                exit 1
            fi
        done
        echo "$name: $programs programs are right in $orders orders each (${SECONDS}s)"
    done
done
