#!/usr/bin/env bash
# Checks that a crate may depend on wakegraph and on cudarc with any version of CUDA: cudarc's features for
# the versions exclude each other, so none of ours may turn one on.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD dir=target/cudarc
mkdir -p $dir/src
cp Cargo.lock $dir/Cargo.lock
echo 'pub use cudarc::driver::CudaSlice; pub use wakegraph::Graph;' >$dir/src/lib.rs
for version in 12080 12090 13000; do
    cat >$dir/Cargo.toml <<END
[package]
name = "uses-both"
edition = "2024"
[dependencies]
cudarc = { version = "0.19", default-features = false, features = ["std", "driver", "fallback-dynamic-loading", "cuda-$version"] }
wakegraph = { path = "$root" }
[workspace]
END
    echo "cudarc with cuda-$version"
    cargo check --quiet --manifest-path $dir/Cargo.toml --target-dir $dir/target
done
