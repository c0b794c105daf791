#!/usr/bin/env bash
# Checks the example `cluster`: a service in several worker processes behind gRPC, of which some are killed under load.
# Compiles tonic, which takes minutes. Needs nothing but Rust.
#
#   scripts/cluster.sh             # its tests, then three workers of which one is killed and started again, ten times
#   scripts/cluster.sh opencl:0    # with workers on another device
set -euo pipefail
cd "$(dirname "$0")/../examples/cluster"
export CARGO_TARGET_DIR=$PWD/../../target

cargo clippy --locked --no-deps --all-targets -- -D warnings
cargo test --locked
# Fails if a request does, or if a worker has no requests again within a second after its return.
cargo run --locked --release -- demo --device "${1:-host}" --kills 10
