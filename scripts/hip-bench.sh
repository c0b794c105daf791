#!/usr/bin/env bash
# The bench `hip` on what stands in for AMD's GPUs: AMD's own library over the HSA runtime of the tests.
#
#   scripts/hip-bench.sh [ARGUMENTS]             # as for the bench: --check, --quick, names of rows
#   VERSION=5.7.1 scripts/hip-bench.sh           # on the other version; 6.4.3 otherwise
#
# Needs what scripts/hip.sh fetches. PROFILE=dev builds without optimization.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${VERSION:-6.4.3} profile=${PROFILE:-bench}
stack=$(realpath target/hip)/$version
case $version in
    5.*) hiprtc=libamdhip64.so.5 ;;
    *) hiprtc=libhiprtc.so.6 ;;
esac
bench=$(cargo bench -p wakegraph-benches --locked --profile "$profile" --bench hip --no-run --message-format json |
    sed -nE 's/.*"executable":"([^"]+hip-[^"]*)".*/\1/p')
case $profile in
    dev) folder=target/debug && cargo build -p wakegraph-hip --locked --example hsa_runtime ;;
    *) folder=target/release && cargo build -p wakegraph-hip --locked --release --example hsa_runtime ;;
esac

front=$(mktemp -d)
trap 'rm -rf "$front"' EXIT
# The compiler under the name that the crate prefers: that of the driver's version.
for library in libhsa-runtime64.so.1 "libhiprtc.so.${version%%.*}"; do
    ln -s "$PWD/$folder/examples/libhsa_runtime.so" "$front/$library"
done
WAKEGRAPH_HSA=$front WAKEGRAPH_HSA_HIPRTC=$stack/libs/$hiprtc WAKEGRAPH_HSA_KERNELS=$PWD/target/tmp/host-kernels \
    "$stack/run" "$bench" "$@"
