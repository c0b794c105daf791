#!/usr/bin/env bash
# The models of the locks and wake-ups, in every interleaving with up to three preemptions.
#
#   scripts/loom.sh [TEST]
set -euo pipefail
cd "$(dirname "$0")/.."
# The cfg is our own, because dependencies read plain `loom`.
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}" RUSTFLAGS="--cfg wakegraph_loom"
cargo test --release -p wakegraph --target-dir target/loom --lib "${1:-loom_}"
