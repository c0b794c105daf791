#!/usr/bin/env bash
# Runs the suite's random graphs on HIP over the HSA runtime of the tests, which carries out in random order
# whatever nothing orders: every graph in as many orders, on both versions. Every result has to be right.
#
#   scripts/hip-orders.sh [GRAPHS [ORDERS [SEED]]]    # 1000, 20, 1: the seed of the random orders
#
# A failure names the graph's seed and the run: with WAKEGRAPH_RANDOM_SEED the suite begins with that seed. Needs what
# scripts/hip.sh fetches. CONFORMANCE names a binary of the suite that is built; VERSIONS the versions.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${CONFORMANCE:-}" ]; then
    cargo build --workspace --locked --example hsa_runtime --example hip_calls
    CONFORMANCE=$(cargo test --workspace --locked --test conformance --no-run --message-format json |
        sed -nE 's/.*"executable":"([^"]+conformance[^"]*)".*/\1/p')
fi
export WAKEGRAPH_RANDOM_GRAPHS=${1:-1000} WAKEGRAPH_RANDOM_RUNS=${2:-20} WAKEGRAPH_HSA_SEED=${3:-1}
for version in ${VERSIONS:-6.4.3 5.7.1}; do
    for test in on_one_device with_host_tasks several_executables_over_the_same_buffers; do
        name=hip/$version/graph/random/$test
        if ! said=$("$CONFORMANCE" --exact "$name" 2>&1) || [[ $said != *" 1 passed"* ]]; then
            printf '%s\n' "$said"
            exit 1
        fi
        echo "$name: $WAKEGRAPH_RANDOM_GRAPHS graphs are right in $WAKEGRAPH_RANDOM_RUNS orders each (${SECONDS}s)"
    done
done
