#!/usr/bin/env bash
# Shows durable jobs over NATS JetStream (examples/cluster/src/bin/jobs.rs): a worker is killed with a job, which goes to
# another one, once. Installs Debian's nats-server by apt, as root or through sudo.
#
#   scripts/jobs.sh [DEVICE]
set -euo pipefail
cd "$(dirname "$0")/../examples/cluster"
export CARGO_TARGET_DIR=$PWD/../../target

if ! PATH=$PATH:/usr/sbin command -v nats-server > /dev/null; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    "${apt[@]}" update
    "${apt[@]}" install --yes --no-install-recommends nats-server >&2
fi
cargo clippy --locked --no-deps --features jobs --bin jobs -- -D warnings
cargo run --locked --release --features jobs --bin jobs -- demo --device "${1:-host}"
