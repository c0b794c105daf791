#!/usr/bin/env bash
# Tests what tokio-console shows, with the real console-subscriber. It needs a build of its own, because
# tokio names its tasks only with `--cfg tokio_unstable`.
set -euo pipefail
cd "$(dirname "$0")/.."
# Dependencies are built without optimization: this is the only test that runs with them.
RUSTFLAGS="--cfg tokio_unstable" cargo test --locked -p wakegraph-observability --features tokio-console --test console \
    --target-dir target/tokio-unstable --config 'profile.dev.package."*".opt-level=0' "$@"
