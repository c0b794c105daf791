#!/usr/bin/env bash
# Runs the tests under ThreadSanitizer: data races, also those that no test trips over.
#
# Where the compiler's sysroot has the source of the standard library (`rust-src`), that is built with instrumentation, too,
# and scripts/tsan-instrumented.supp has what is suppressed. Otherwise it comes without: what it orders by means that
# ThreadSanitizer does not see is listed in scripts/tsan.supp. Of wakegraph only what fences order belongs in either.
#
#   scripts/tsan.sh             all test binaries but those with an allocator of their own
#   scripts/tsan.sh --lib       what cargo test is to be given instead
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/sanitizer.sh

if [ -e "$(rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]; then
    export build_std=std,panic_unwind,proc_macro,test
    suppressions=tsan-instrumented.supp
    extra=
else
    suppressions=tsan.supp
    extra=-Cunsafe-allow-abi-mismatch=sanitizer
fi
# The patterns name functions as they are called without a symbolizer, which tells of inlined ones.
TSAN_OPTIONS="suppressions=$PWD/scripts/$suppressions:symbolize_inline_frames=0:allocator_may_return_null=1:${TSAN_OPTIONS:-}"
export TSAN_OPTIONS
# tokio with parking_lot's locks, which ThreadSanitizer sees, instead of the standard library's.
features=tokio/parking_lot run_under thread "$extra" "$@"
