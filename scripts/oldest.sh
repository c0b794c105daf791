#!/usr/bin/env bash
# Checks the library, and a kernel as users declare it, with the oldest Rust and the oldest dependencies that
# the manifests allow. Needs rustup, which fetches that Rust.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD dir=target/oldest
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml).0
rustup run "$oldest" true 2>/dev/null || rustup toolchain install "$oldest" --profile minimal --no-self-update

mkdir -p $dir/src
cat >$dir/Cargo.toml <<END
[package]
name = "oldest"
edition = "2024"
[dependencies]
wakegraph = { path = "$root", features = ["half", "hip", "level-zero", "metrics", "test-util", "tokio-console", "tower"] }
[workspace]
END
cat >$dir/src/lib.rs <<'END'
wakegraph::kernel! {
    pub fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
        each: |i, a, x, y| *y += a * x[i],
        // SAFETY: a work-item uses the elements with its index, which the shortest slice has.
        c: unsafe { "KERNEL(saxpy, (float a, SLICE(const float, x), SLICE(float, y))) {
            y[GLOBAL_ID(0)] += a * x[GLOBAL_ID(0)];
        }" },
    }
}
END
# What we do not depend on directly keeps the version of our lock file.
cp Cargo.lock $dir/Cargo.lock
versions=$(cargo metadata --format-version 1 --manifest-path $dir/Cargo.toml | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    for dependency in package["dependencies"] if package["source"] is None else []:
        if dependency["kind"] is None and dependency["source"]:
            parts = dependency["req"].lstrip("^").split(".") + ["0", "0"]
            print(dependency["name"], ".".join(parts[:3]))
' | sort -u)
while read -r name version; do
    printf '%s %s\n' "$name" "$version"
    cargo update --quiet --manifest-path $dir/Cargo.toml --package "$name" --precise "$version"
done <<<"$versions"
cargo "+$oldest" check --locked --manifest-path $dir/Cargo.toml --target-dir $dir/target
