#!/usr/bin/env bash
# The conformance suite on what stands in for AMD's GPUs: AMD's own HIP library in two versions over the HSA runtime of
# crates/wakegraph-hip/tests/hsa_runtime.
#
#   scripts/hip-suite.sh                         # what .ci/run runs: most tests on 6.4.3, a part on 5.7.1
#   scripts/hip-suite.sh all                     # everything on all devices, and the other tests of HIP: a quarter of an hour
#   scripts/hip-suite.sh 6.4.3-two-devices 5.7.1 # everything on these devices
#
# Needs what scripts/hip.sh fetches. CONFORMANCE names a binary of the suite that is built, beside the examples hsa_runtime and
# hip_calls.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${CONFORMANCE:-}" ]; then
    cargo build --workspace --locked --example hsa_runtime --example hip_calls
    CONFORMANCE=$(cargo test --workspace --locked --test conformance --no-run --message-format json |
        sed -nE 's/.*"executable":"([^"]+conformance[^"]*)".*/\1/p')
fi
conformance=$CONFORMANCE

# Runs tests, and prints what came of it, or everything if one failed or there are none.
suite() { # FILTER OPTIONS..
    local said
    echo "$1"
    if said=$("$conformance" "$@" 2>&1) && [[ $said == *" 0 failed"* ]] && ! grep -q '^test.*/all  *... ignored' <<< "$said"; then
        # The first result is that of the process which runs no test of HIP.
        grep '^test result' <<< "$said" | tail -n 1
    else
        printf '%s\n' "$said"
        exit 1
    fi
}

case ${1:-quick} in
    quick)
        suite hip/6.4.3/ --skip reactor-on-runtime --skip random --skip many_in_flight --skip very_often
        for topic in order kernels graph/updates; do
            suite "hip/5.7.1/$topic" --skip random
        done
        ;;
    all)
        for device in 6.4.3 6.4.3-two-devices 6.4.3-and-host 6.4.3-two-devices-without-peer-access 6.4.3-packet-capture-off \
            6.4.3-packet-capture-on 5.7.1 5.7.1-two-devices 5.7.1-and-host; do
            suite "hip/$device/"
        done
        cargo test --locked --workspace --test hip --test hip_faults --test hip_kernels --test hip_raw
        ;;
    *) for device in "$@"; do suite "hip/$device/"; done ;;
esac
