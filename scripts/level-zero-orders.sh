#!/usr/bin/env bash
# Runs the suite's random programs on the test driver, which carries out in random order whatever nothing orders:
# every program in as many orders, in both lowerings. Every result has to be right.
#
#   scripts/level-zero-orders.sh [PROGRAMS [ORDERS [TEST]]]    # 1000, 20, one_executable: about an hour
#
# A failure names the program's seed and the driver's; `ORDERS=7,1` in place of the number runs these seeds only. Needs
# what scripts/opencl-runtimes.sh and scripts/level-zero.sh fetch. CONFORMANCE names a binary of the suite that is built.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=${1:-1000} orders=${2:-20} test=${3:-one_executable}
case $orders in
    *,*) seeds=${orders//,/ } ;;
    *) seeds=$(seq "$orders") ;;
esac

source target/opencl/env.sh
source target/level-zero/classic/env.sh
unset ZE_ENABLE_ALT_DRIVERS
if [ -z "${CONFORMANCE:-}" ]; then
    cargo build --workspace --locked --example level_zero_driver
    CONFORMANCE=$(cargo test --workspace --locked --test conformance --no-run --message-format json |
        sed -nE 's/.*"executable":"([^"]+conformance[^"]*)".*/\1/p')
fi
export WAKEGRAPH_LZ_DEVICES=all
export WAKEGRAPH_RANDOM_PROGRAMS=$programs WAKEGRAPH_RANDOM_THREADS=${WAKEGRAPH_RANDOM_THREADS:-4}
for seed in $seeds; do
    for lowering in append execute; do
        name=level_zero/all-$lowering/graph/random_programs/$test
        if ! said=$(WAKEGRAPH_LZ_SEED=$seed "$CONFORMANCE" --exact "$name" 2>&1) || [[ $said != *" 1 passed"* ]]; then
            printf '%s\nWAKEGRAPH_LZ_SEED=%s\n' "$said" "$seed"
            exit 1
        fi
        echo "$lowering, order $seed: $programs programs are right (${SECONDS}s)"
    done
done
