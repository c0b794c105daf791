#!/usr/bin/env bash
# Runs the tests under AddressSanitizer with its leak check: use after free, out of bounds, and whatever is still
# allocated and unreachable when a test binary ends. Submissions that are dropped or forgotten must not leak.
#
#   scripts/leaks.sh            all test binaries but those with an allocator of their own
#   scripts/leaks.sh --lib      what cargo test is to be given instead
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/sanitizer.sh

# The signal stacks are the standard library's: taking them for its own, the sanitizer fails to unmap them on some machines.
export ASAN_OPTIONS="detect_leaks=1:use_sigaltstack=0:allocator_may_return_null=1:${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$PWD/scripts/leaks.supp:${LSAN_OPTIONS:-}"
run_under address "" "$@"
