#!/usr/bin/env bash
# Runs the tests under AddressSanitizer with its leak check: use after free, out of bounds, and whatever is still
# allocated and unreachable when a test binary ends. Submissions that are dropped or forgotten must not leak.
#
#   scripts/leaks.sh            all test binaries but those with an allocator of their own
#   scripts/leaks.sh --lib      what cargo test is to be given instead
#
# With the OpenCL runtimes and Level Zero's compiler in the environment (docs/testing.md), tests use Level Zero's test driver, too.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/sanitizer.sh

# The signal stacks are the standard library's: taking them for its own, the sanitizer fails to unmap them on some machines.
export ASAN_OPTIONS="detect_leaks=1:use_sigaltstack=0:allocator_may_return_null=1:${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$PWD/scripts/leaks.supp:${LSAN_OPTIONS:-}"

# A library that a program loads does not find the sanitizer in it, so the test driver of Level Zero comes without.
cargo build --workspace --locked --example level_zero_driver
beside_tests=target/address/$(rustc -vV | sed -n 's/^host: //p')/debug/examples
mkdir -p "$beside_tests"
cp target/debug/examples/liblevel_zero_driver.so "$beside_tests"

run_under address "" "$@"
