#!/usr/bin/env bash
# Checks that a crate may depend on wakegraph and on candle-core with `cuda`, and compiles the snippet of
# docs/interop.md. candle compiles its kernels with nvcc: in its place stands a program that writes empty files,
# so nothing of this can run.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD dir=target/candle
mkdir -p $dir/src $dir/bin
cat >$dir/bin/nvcc <<'END'
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
chmod +x $dir/bin/nvcc
cp Cargo.lock $dir/Cargo.lock
cat >$dir/Cargo.toml <<END
[package]
name = "uses-both"
edition = "2024"
[dependencies]
candle-core = { version = "0.11", default-features = false, features = ["cuda"] }
wakegraph = { path = "$root" }
[workspace]
END
sed -n '/^```rust,ignore$/,/^```$/p' docs/interop.md | sed '/^```/d; s/^# \?//' >$dir/src/lib.rs
grep -q candle_core $dir/src/lib.rs
PATH=$root/$dir/bin:$PATH NVCC=$root/$dir/bin/nvcc CUDA_COMPUTE_CAP=90 \
    cargo check --quiet --manifest-path $dir/Cargo.toml --target-dir $dir/target
