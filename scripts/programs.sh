#!/usr/bin/env bash
# Runs the random programs of crates/wakegraph-conformance/src/programs against their model on every device that is found.
#
#   scripts/programs.sh              11,000 by each test, with the devices of .ci/run more than a million over all; hours
#   scripts/programs.sh 500 host/0   so many by each test, on one device
#
# WAKEGRAPH_RANDOM_SEED sets the first seed (0), and WAKEGRAPH_RANDOM_THREADS how many threads a test has (1).
set -euo pipefail
cd "$(dirname "$0")/.."

export WAKEGRAPH_RANDOM_PROGRAMS=${1:-11000}
# A process for each test: Intel's OpenCL runtime leaks memory in each run of a command-buffer.
tests=$(cargo test -p wakegraph-conformance --locked --release --test conformance -- --list "${2:+$2/}graph/random_programs" | sed -n 's/: test$//p')
for test in $tests; do
    cargo test -p wakegraph-conformance --quiet --locked --release --test conformance -- --exact "$test"
done
