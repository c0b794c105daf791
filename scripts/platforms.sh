#!/usr/bin/env bash
# Checks that the crates compile for other platforms than that of the machine; nothing is linked or run.
# docs/devices.md says what has run. Needs rustup, which fetches the standard libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
arm=aarch64-unknown-linux-gnu windows=x86_64-pc-windows-gnu mac=aarch64-apple-darwin
rustup target add $arm $windows $mac

check() { cargo check --locked --quiet "$@"; }
packages=(-p wakegraph)
for crate in hal host cuda level-zero opencl; do packages+=(-p "wakegraph-$crate"); done

echo "$arm: the library with default features; all features, tests and examples"
check --target $arm -p wakegraph
check --target $arm --all-features --lib --tests --examples "${packages[@]}" -p wakegraph-hip -p wakegraph-nccl -p wakegraph-examples
# The tests of HIP start AMD's libraries for Linux.
echo "$windows: all features, tests and examples, except the tests of HIP"
check --target $windows --all-features --lib --tests --examples "${packages[@]}" -p wakegraph-examples
echo "$mac: the library with all features"
check --target $mac --all-features -p wakegraph
