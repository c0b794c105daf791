#!/usr/bin/env bash
# What a submission costs with everything compiled in that one can observe and nobody listening, against a
# build without: no metrics, no console, and no spans and events (tracing's `max_level_off`). The two programs,
# benches/observe.rs each, take turns. Fails beyond 1.02.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD dir=target/observe turns=${1:-15}
build() {
    mkdir -p $dir/$1/src
    cp benches/observe.rs $dir/$1/src/main.rs
    cp Cargo.lock $dir/$1/Cargo.lock
    cat >$dir/$1/Cargo.toml <<END
[package]
name = "observe"
edition = "2024"
[dependencies]
tracing = { version = "0.1", default-features = false, features = [$3] }
wakegraph = { path = "$root", default-features = false, features = ["test-util"$2] }
[workspace]
END
    cargo build --quiet --release --manifest-path $dir/$1/Cargo.toml --target-dir $dir/target
    cp $dir/target/release/observe $dir/observe-$1
}
build without "" '"max_level_off"'
build with ', "metrics", "tokio-console"' ""
for ((turn = 0; turn < turns; turn++)); do
    for variant in with without; do
        $dir/observe-$variant | sed -n "s/^submission \(.*\) ns/$variant \1/p"
    done
done >$dir/times
python3 - $dir/times <<'END'
import statistics, sys
times = {"with": [], "without": []}
for line in open(sys.argv[1]):
    variant, time = line.split()
    times[variant].append(float(time))
ours, base = (statistics.median(times[variant]) for variant in ("with", "without"))
pairs = statistics.median(a / b for a, b in zip(times["with"], times["without"]))
print(f"submission ours={ours:.1f} ns base={base:.1f} ns ratio={ours / base:.3f} of pairs={pairs:.3f} limit=1.02")
sys.exit(min(ours / base, pairs) > 1.02)
END
