#!/usr/bin/env bash
# Checks every combination of the cargo features with Clippy.
set -euo pipefail
cd "$(dirname "$0")/.."

features=(cpu-levels cuda half hip level-zero metrics opencl tokio-console tower test-util)
for ((set = 0; set < 1 << ${#features[@]}; set++)); do
    chosen=()
    for ((at = 0; at < ${#features[@]}; at++)); do
        if ((set >> at & 1)); then chosen+=("${features[at]}"); fi
    done
    list=$(IFS=,; echo "${chosen[*]-}")
    echo "== features: ${list:-none}"
    cargo clippy --locked --quiet -p wakegraph --no-default-features --features "$list" -- -D warnings
done
