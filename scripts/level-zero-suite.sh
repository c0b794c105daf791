#!/usr/bin/env bash
# The conformance suite on what stands in for Intel's GPUs: the test driver, which computes on an OpenCL device for CPUs,
# and Intel's own drivers without hardware, which compute nothing.
#
#   scripts/level-zero-suite.sh                       # what .ci/run runs: the newest device with append, Intel's drivers as skl and bmg
#   scripts/level-zero-suite.sh all                   # every device of the test driver, too: half an hour
#   scripts/level-zero-suite.sh old-execute intel     # these
#
# Needs what scripts/opencl-runtimes.sh and scripts/level-zero.sh fetch. What could not be fetched is left out, by name and with
# the reason. CONFORMANCE names a binary of the suite that is built.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${CONFORMANCE:-}" ]; then
    cargo build --workspace --locked --example level_zero_driver
    CONFORMANCE=$(cargo test --workspace --locked --test conformance --no-run --message-format json |
        sed -nE 's/.*"executable":"([^"]+conformance[^"]*)".*/\1/p')
fi
conformance=$CONFORMANCE stacks=target/level-zero
source target/opencl/env.sh

case ${1:-quick} in
    quick) devices=(all-append intel) intel_products=(bmg) ;;
    all)
        intel_products=(bmg pvc dg2)
        devices=(intel two-drivers all-and-host copy-engine-unused old-execute)
        for device in all append mutable-3e copy-engine wrap two-devices two-sub-devices; do
            devices+=("$device-append" "$device-execute")
        done
        ;;
    *) devices=("$@") intel_products=(bmg pvc dg2) ;;
esac

# Whether a stack is there.
has() {
    [ ! -e "$stacks/$1/missing" ] || { echo "ignored: $2: $(cat "$stacks/$1/missing")"; return 1; }
}

# Runs the tests of a filter, and prints what came of it, or everything if it failed or there are none.
suite() {
    local said
    if said=$("$@" 2>&1) && [[ $said != *" 0 passed"* ]]; then
        grep '^test result' <<< "$said"
    else
        printf '%s\n' "$said"
        exit 1
    fi
}

intel() {
    echo "Intel's driver of Debian 12 as skl"
    ! has classic "Intel's driver of Debian 12" ||
        (source $stacks/classic/env.sh && WAKEGRAPH_REQUIRE=level_zero suite "$conformance" --test-threads 1 level_zero/intel)
    for product in "${intel_products[@]}"; do
        echo "Intel's driver of Debian testing as $product"
        ! has current "Intel's driver of Debian testing" ||
            ProductFamilyOverride=$product WAKEGRAPH_REQUIRE=level_zero suite $stacks/current/run "$conformance" --test-threads 1 level_zero/intel
    done
}

for device in "${devices[@]}"; do
    if [ "$device" = intel ]; then
        intel
        continue
    fi
    echo "the test driver as $device"
    ! has classic "Intel's compiler, for the test driver's kernels" || (
        source $stacks/classic/env.sh
        unset ZE_ENABLE_ALT_DRIVERS
        WAKEGRAPH_REQUIRE=level_zero/$device suite "$conformance" "level_zero/$device/"
    )
done
