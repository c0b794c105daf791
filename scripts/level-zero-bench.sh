#!/usr/bin/env bash
# The bench `level_zero` on what stands in for Intel's GPUs: the test driver, without its random delays, and Intel's
# current driver without hardware.
#
#   scripts/level-zero-bench.sh [ARGUMENTS]      # as for the bench: --check, --quick, names of rows
#
# Needs what scripts/opencl-runtimes.sh and scripts/level-zero.sh fetch.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build -p wakegraph-level-zero --locked --release --example level_zero_driver
bench=$(cargo bench -p wakegraph-benches --locked --bench level_zero --no-run --message-format json |
    sed -nE 's/.*"executable":"([^"]+level_zero[^"]*)".*/\1/p')
status=0

echo "the test driver"
(
    source target/opencl/env.sh
    export WAKEGRAPH_LEVEL_ZERO_LIBRARY=$PWD/target/release/examples/liblevel_zero_driver.so
    WAKEGRAPH_LZ_DEVICES=all WAKEGRAPH_LZ_DELAY=0 "$bench" "$@"
) || status=$?

echo "Intel's driver"
# The loader's checks are not part of the figures.
sed '/ZE_ENABLE_VALIDATION_LAYER/d' target/level-zero/current/env.sh > target/level-zero/bench.sh
sed 's|current/env.sh|bench.sh|' target/level-zero/current/run > target/level-zero/bench-run
ProductFamilyOverride=bmg bash target/level-zero/bench-run "$bench" "$@" || status=$?
exit $status
