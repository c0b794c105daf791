#!/usr/bin/env bash
# Fetches NVIDIA's run-time compiler NVRTC from PyPI, which compiles without a GPU. Nothing is installed; everything is in
# DIRECTORY, by default target/nvrtc.
#
#   scripts/nvrtc.sh [DIRECTORY]
#   cargo test -p wakegraph-cuda --test cuda_kernels                                # every kernel in the portable dialect
#   LD_LIBRARY_PATH=$PWD/target/nvrtc cargo test -p wakegraph-cuda --lib program    # the compiler's errors
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$(realpath -m "${1:-target/nvrtc}")
[ ! -e "$directory/libnvrtc.so.12" ] || exit 0
python3 -m pip download --quiet --no-deps --dest "$directory/wheels" nvidia-cuda-nvrtc-cu12==12.9.86
for wheel in "$directory"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$directory/unpacked"; done
mv "$directory"/unpacked/nvidia/cuda_nvrtc/lib/libnvrtc*.so.12* "$directory"
rm -r "$directory/wheels" "$directory/unpacked"
