#!/usr/bin/env bash
# Checks that an application may depend on wakegraph beside other crates for GPUs, in the versions that are in
# use: cargo allows one crate with `links = "OpenCL"` in a build, and cudarc's features for the versions of CUDA
# exclude each other. scripts/candle.sh has candle.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD dir=target/beside
mkdir -p $dir/src

# application DEPENDENCY: writes an application with this dependency and wakegraph.
application() {
    echo "$1"
    cp Cargo.lock $dir/Cargo.lock
    echo "pub use wakegraph::Graph; pub use ${1%% *};" >$dir/src/lib.rs
    cat >$dir/Cargo.toml <<END
[package]
name = "uses-both"
edition = "2024"
[dependencies]
$1
wakegraph = { path = "$root" }
[workspace]
END
}

compiles() {
    application "$1"
    cargo check --quiet --manifest-path $dir/Cargo.toml --target-dir target
}

resolves() {
    application "$1"
    cargo tree --quiet --manifest-path $dir/Cargo.toml >$dir/tree
}

for version in 12080 12090 13000; do
    compiles "cudarc = { version = \"0.19\", default-features = false, features = [\"std\", \"driver\", \"fallback-dynamic-loading\", \"cuda-$version\"] }"
done
compiles 'opencl3 = "0.9"'
compiles 'cl3 = "0.10"'
compiles 'ocl = "0.19"'
for version in 0.10 0.11 0.12; do resolves "opencl3 = \"$version\""; done
for version in 0.11 0.12 0.13; do resolves "cl3 = \"$version\""; done
