#!/usr/bin/env bash
# candle-core with `cuda` beside wakegraph in one program. candle compiles its kernels with nvcc.
#
#   scripts/candle.sh             checks examples/with_candle and the snippet of docs/interop.md, with a program in
#                                 nvcc's place that writes empty files: nothing of it can run
#   scripts/candle.sh build DIR   builds examples/with_candle and its benchmark into DIR, with an nvcc from PyPI in
#                                 target/candle. They run where a CUDA driver of version 13.0 or newer, NVRTC, cuBLAS
#                                 and cuRAND are; to link, empty libraries of those names do
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD dir=$PWD/target/candle
mkdir -p "$dir"
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90}

check() {
    mkdir -p "$dir/src" "$dir/bin"
    cat >"$dir/bin/nvcc" <<'END'
#!/bin/sh
case "$*" in
*--version*) printf '\n\n\nCuda compilation tools, release 13.0, V13.0.88\n' ;;
*--list-gpu-code*) echo sm_90 ;;
esac
while [ $# -gt 0 ]; do
    case "$1" in
    -o) : >"$2" ;;
    --output-directory) to=$2 ;;
    *.cu) [ -n "${to:-}" ] && : >"$to/$(basename "$1" .cu).ptx" ;;
    esac
    shift
done
exit 0
END
    chmod +x "$dir/bin/nvcc"
    cp Cargo.lock "$dir/Cargo.lock"
    cat >"$dir/Cargo.toml" <<END
[package]
name = "uses-both"
edition = "2024"
[dependencies]
candle-core = { version = "0.11", default-features = false, features = ["cuda"] }
wakegraph = { path = "$root" }
with_candle = { path = "$root/examples/with_candle" }
[workspace]
END
    # The snippet with candle: those with other crates are theirs to check.
    awk '/^```rust,ignore$/ { inside = 1; text = ""; next }
         /^```$/ && inside { if (text ~ /candle_core/) printf "%s", text; inside = 0 }
         inside { text = text $0 "\n" }' docs/interop.md | sed 's/^# \?//' >"$dir/src/lib.rs"
    grep -q candle_core "$dir/src/lib.rs"
    export PATH=$dir/bin:$PATH NVCC=$dir/bin/nvcc
    cargo check --quiet --manifest-path "$dir/Cargo.toml" --target-dir target
    cp "$dir/Cargo.lock" examples/with_candle/Cargo.lock
    cargo check --quiet --all-targets --manifest-path examples/with_candle/Cargo.toml --target-dir target
}

fetch_nvcc() {
    [ -e "$dir/cuda/lib/libcudart.so" ] && return
    python3 -m pip download --quiet --no-deps --dest "$dir/wheels" nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 \
        nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
    for wheel in "$dir"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$dir/unpacked"; done
    rm -rf "$dir/wheels" "$dir/cuda"
    mv "$dir/unpacked/nvidia/cu13" "$dir/cuda"
    rm -rf "$dir/unpacked"
    find "$dir/cuda/bin" "$dir/cuda/nvvm/bin" -type f -exec chmod +x {} +
    ln -s libcudart.so.13 "$dir/cuda/lib/libcudart.so"
}

# What candle links to, as libraries that have the names of the functions and nothing behind them.
link_libraries() {
    mkdir -p "$dir/stubs"
    nm --undefined-only --format=just-symbols "$dir"/target/release/deps/*.rlib 2>/dev/null | sort -u >"$dir/undefined"
    stub cuda libcuda.so.1 '^cu[A-Z]'
    stub nvrtc libnvrtc.so.13 '^nvrtc[A-Z]'
    stub cublas libcublas.so.13 '^cublas[A-KM-Z]|^cublasL[^t]'
    stub cublasLt libcublasLt.so.13 '^cublasLt[A-Z]'
    stub curand libcurand.so.10 '^curand[A-Z]'
}

# stub NAME SONAME PATTERN
stub() {
    grep -E "$3" "$dir/undefined" | sed 's/.*/void &(void) {}/' |
        cc -shared -fPIC -w -Wl,-soname,"$2" -x c - -o "$dir/stubs/lib$1.so"
}

build() {
    fetch_nvcc
    mkdir -p "$1"
    cp Cargo.lock examples/with_candle/Cargo.lock
    export PATH=$dir/cuda/bin:$PATH NVCC=$dir/cuda/bin/nvcc CUDA_HOME=$dir/cuda LIBRARY_PATH=$dir/cuda/lib:$dir/stubs
    in_release() { cargo build --release --manifest-path examples/with_candle/Cargo.toml --target-dir "$dir/target" "$@"; }
    in_release --lib
    link_libraries
    in_release
    in_release --benches
    cp "$dir/target/release/with_candle" "$1/with_candle"
    cp "$(find "$dir/target/release/deps" -name 'stream_task-*' -executable -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)" \
        "$1/bench_candle"
    strip "$1/with_candle" "$1/bench_candle"
}

case "${1:-check}" in
check) check ;;
build) build "$(realpath "$2")" ;;
*) sed -n '2,8p' "$0" ;;
esac
