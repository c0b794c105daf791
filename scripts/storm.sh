#!/usr/bin/env bash
# Runs the storm of crates/wakegraph-conformance/tests/storm with many submissions: plain and fast on every device, then
# under ThreadSanitizer and under AddressSanitizer with its leak check on those without a driver, which is not instrumented.
#
#   scripts/storm.sh            100,000 submissions and requests on each device, three times; takes hours
#   scripts/storm.sh 5000       so many instead
#
# WAKEGRAPH_STORM_SEED repeats a storm: its seed is printed first. A failure names the device and the seed of its round;
# WAKEGRAPH_STORM_SEED=7 WAKEGRAPH_STORM_SUBMISSIONS=1 cargo test -p wakegraph-conformance --test storm -- --exact storm/host
# runs that round alone.
set -euo pipefail
cd "$(dirname "$0")/.."

export WAKEGRAPH_STORM_SUBMISSIONS=${1:-100000} WAKEGRAPH_STORM_SEED=${WAKEGRAPH_STORM_SEED:-$(date +%s)}
echo "WAKEGRAPH_STORM_SEED=$WAKEGRAPH_STORM_SEED"
cargo test -p wakegraph-conformance --locked --release --test storm
# Everything takes longer there, also what is in order.
export WAKEGRAPH_STORM_TIMEOUT=${WAKEGRAPH_STORM_TIMEOUT:-300}
scripts/tsan.sh --test storm -- --skip opencl
scripts/leaks.sh --test storm -- --skip opencl
