# Sourced by leaks.sh and tsan.sh: runs tests with a sanitizer of the compiler, on the stable toolchain.

# run_under SANITIZER EXTRA_RUSTFLAGS [WHAT_TO_TEST...]
#   features: more features; build_std: crates of the standard library to build with the sanitizer
run_under() {
  local sanitizer=$1 extra=$2
  shift 2
  if [ $# -eq 0 ]; then
    set -- --lib
    local file
    for file in tests/*.rs tests/observability/{console,opentelemetry}.rs crates/*/tests/*.rs; do
      # A counting allocator would count the sanitizer's own allocations.
      grep -q '^#\[global_allocator\]' "$file" || set -- "$@" --test "$(basename "$file" .rs)"
    done
    for file in tests/*/main.rs crates/*/tests/*/main.rs; do
      grep -q '^#\[global_allocator\]' "$file" || set -- "$@" --test "$(basename "$(dirname "$file")")"
    done
  fi
  # `--test` takes no target whose features are off: tests/observability/console.rs needs one that is not on by default.
  # A target of its own keeps the flags from build scripts and procedural macros, which the compiler loads.
  local target
  target=$(rustc -vV | sed -n 's/^host: //p')
  RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$sanitizer $extra ${RUSTFLAGS:-}" PROPTEST_CASES="${PROPTEST_CASES:-32}" \
    cargo test --locked --workspace ${build_std:+-Zbuild-std="$build_std"} --features "tokio-console${features:+,$features}" --no-fail-fast --target "$target" --target-dir "target/$sanitizer" "$@"
}
