#!/usr/bin/env bash
# benches/peers: wakegraph beside cuda-async, which generates its bindings from the headers of a CUDA toolkit.
#
#   scripts/peers.sh            checks it
#   scripts/peers.sh build DIR  builds it into DIR as bench_peers, which runs where a CUDA driver of version 13.0 or
#                               newer is
#
# The headers come from PyPI, and go to target/peers. Also needs libclang: on Debian, libclang-dev.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$PWD/target/peers
manifest=benches/peers/Cargo.toml

fetch_headers() {
    [ -e "$dir/cuda/include/curand.h" ] && return
    mkdir -p "$dir"
    python3 -m pip download --quiet --no-deps --dest "$dir/wheels" \
        nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-curand==10.4.0.35
    for wheel in "$dir"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$dir/unpacked"; done
    mkdir -p "$dir/cuda"
    mv "$dir/unpacked/nvidia/cu13/include" "$dir/cuda"
    rm -rf "$dir/wheels" "$dir/unpacked"
}

fetch_headers
export CUDA_TOOLKIT_PATH=$dir/cuda
cp Cargo.lock benches/peers/Cargo.lock
case "${1:-check}" in
check) cargo clippy --quiet --manifest-path $manifest --target-dir target -- -D warnings ;;
build)
    mkdir -p "$2"
    cargo build --release --manifest-path $manifest --target-dir target
    cp target/release/bench_peers "$2"
    strip "$2/bench_peers"
    ;;
*) sed -n '2,8p' "$0" ;;
esac
