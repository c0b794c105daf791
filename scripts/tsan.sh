#!/usr/bin/env bash
# Runs the tests under ThreadSanitizer: data races, also those that no test trips over.
#
# The standard library comes without instrumentation. What it orders by means that ThreadSanitizer does not see is listed
# in scripts/tsan.supp; of this crate only what fences order belongs there.
#
#   scripts/tsan.sh             all test binaries but those with an allocator of their own
#   scripts/tsan.sh --lib       what cargo test is to be given instead
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/sanitizer.sh

# The patterns name functions as they are called without a symbolizer, which tells of inlined ones.
export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.supp:symbolize_inline_frames=0:allocator_may_return_null=1:${TSAN_OPTIONS:-}"
# tokio with parking_lot's locks, which ThreadSanitizer sees, instead of the standard library's.
features=tokio/parking_lot run_under thread -Cunsafe-allow-abi-mismatch=sanitizer "$@"
