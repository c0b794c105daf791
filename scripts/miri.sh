#!/usr/bin/env bash
# Runs what needs no driver under Miri, which alone sees references that alias, pointers used beyond their provenance, and
# reads of uninitialised memory. It sees data races as well, and leaks where no thread outlives the tests.
#
#   scripts/miri.sh              # everything: hours on two cores
#   scripts/miri.sh graph plan   # these parts
#
# Needs a nightly toolchain: rustup toolchain install nightly --component miri --component rust-src. Not part of .ci/run.
# Tests shrink their sizes under cfg(miri), and those that cannot run there are ignored with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."

# The host device's memory goes through addresses, as `hal::UsmPointer`s do. With one core, which is what Miri
# shows unless told otherwise, nothing would spin.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-num-cpus=2 ${MIRIFLAGS:-}"
export RUST_TEST_THREADS=1
export PROPTEST_CASES=${PROPTEST_CASES:-2}

# Miri checks the types of variadic arguments since 2026-09-09, and parking_lot_core 0.9 passes references to the
# variadic `syscall` where the kernel takes pointers. A copy of it passes pointers, with a copy of the lock file.
patched=target/miri/parking_lot_core
patch_parking_lot() {
    cargo +nightly fetch --locked
    local version
    version=$(sed -n '/^name = "parking_lot_core"$/{n;s/.*"\(.*\)"/\1/p}' Cargo.lock)
    rm -rf "$patched"
    mkdir -p target/miri
    cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"parking_lot_core-$version" "$patched"
    sed -i -e 's/^\( *\)&self\.futex,$/\1self.futex.as_ptr(),/' -e 's/^\( *\)self\.futex,$/\1self.futex.cast::<i32>(),/' \
        "$patched/src/thread_parker/linux.rs"
    cp Cargo.lock target/miri/Cargo.lock
}

# Every part names its packages: beside `examples`, which the workspace builds by default, wakegraph would have its
# default features.
miri() {
    cargo +nightly miri test --offline --no-default-features -Zunstable-options \
        --config "patch.crates-io.parking_lot_core.path='$patched'" \
        --config "resolver.lockfile-path='target/miri/Cargo.lock'" "$@"
}

# The threads of devices that are open as long as the program, and the one that drops values of users, may still
# run when the tests have ended, so Miri looks for no leaks: that is what `scripts/leaks.sh` is for.
with_threads() { MIRIFLAGS="$MIRIFLAGS -Zmiri-ignore-leaks" miri "$@"; }

# The default model of references forbids what `futures::future::join_all` does to futures that refer to themselves.
# The services, whose tests call it, run with the other model.
part() {
    printf '\n== %s (%ss)\n' "$1" "$SECONDS"
    case $1 in
        types) miri -p wakegraph -p wakegraph-hal --lib -- types:: util:: ;;
        graph) miri -p wakegraph --lib -- graph:: ;;
        plan) miri -p wakegraph --lib -- plan:: ;;
        latch) with_threads -p wakegraph --lib -- runtime::completion:: ;;
        conflicts) with_threads -p wakegraph --lib -- runtime::execution::conflicts:: ;;
        execution) with_threads -p wakegraph --lib -- runtime::execution::executable:: runtime::execution::run:: runtime::execution::submission:: ;;
        resources) with_threads -p wakegraph --lib -- runtime::resource:: ;;
        host) with_threads -p wakegraph-hal -p wakegraph-host --lib && with_threads -p wakegraph --test hal ;;
        guards) with_threads -p wakegraph --test submission -- guards:: ;;
        service) MIRIFLAGS="$MIRIFLAGS -Zmiri-tree-borrows" with_threads -p wakegraph --test service ;;
        programs) PROPTEST_CASES=${MIRI_PROGRAMS:-100} with_threads -p wakegraph-conformance --test programs ;;
        *) echo "no part $1" >&2; return 1 ;;
    esac
}

patch_parking_lot
[ $# -gt 0 ] || set -- types graph plan latch conflicts execution resources host guards service programs
for name in "$@"; do part "$name"; done
