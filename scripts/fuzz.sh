#!/usr/bin/env bash
# Runs the random programs of crates/wakegraph-conformance/src/programs from bytes, with libFuzzer and AddressSanitizer.
#
#   scripts/fuzz.sh             for ten minutes
#   scripts/fuzz.sh 60          for 60 seconds
#
# Needs cargo-fuzz (`cargo install cargo-fuzz`) and works on the stable toolchain. It ends with an error at the first
# finding, which is left as a file in fuzz/artifacts; RUSTC_BOOTSTRAP=1 cargo fuzz run programs FILE runs that again.
set -euo pipefail
cd "$(dirname "$0")/.."

# As in scripts/leaks.sh.
export ASAN_OPTIONS="use_sigaltstack=0:${ASAN_OPTIONS:-}"
RUSTC_BOOTSTRAP=1 cargo fuzz run programs -- -max_total_time="${1:-600}" -timeout=60 -max_len=600 -len_control=0
