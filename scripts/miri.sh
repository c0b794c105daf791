#!/usr/bin/env bash
# Runs the parts without drivers and threads of their own under Miri, which alone sees references that alias, pointers used
# beyond their provenance, and reads of uninitialised memory.
#
# Needs a nightly toolchain with the component `miri`. Not part of .ci/run.
set -euo pipefail
cd "$(dirname "$0")/.."

# The host device's memory goes through addresses, as `hal::UsmPointer`s do.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance ${MIRIFLAGS:-}"
export PROPTEST_CASES=${PROPTEST_CASES:-2}
cargo +nightly miri test --locked --no-default-features --lib -- types:: graph:: plan:: runtime::completion::latch::
cargo +nightly miri test --locked --no-default-features --test submission -- guards::
