#!/usr/bin/env bash
# Compiles each mistake in tests/kernel_errors, and compares the compiler's messages with the first lines of the
# file: what people read who make that mistake.
#
#   scripts/kernel-errors.sh [FILE..]
#
# The library is the one that `cargo test --workspace` has built; with that, it takes a few seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

# Parts of the messages are the compiler's own.
known=1.95
if [[ "$(rustc --version)" != "rustc $known."* ]]; then
    echo "ignored: the messages are known for Rust $known, this is $(rustc --version)"
    exit 0
fi

library=$(cargo test --locked --workspace --no-run --message-format json | python3 -c '
import json, sys
library = []
for line in sys.stdin:
    message = json.loads(line)
    if message["reason"] == "compiler-artifact" and message["target"]["name"] == "wakegraph":
        library = [name for name in message["filenames"] if name.endswith(".rlib")] or library
print(library[0])')

# A file of its own: rustc puts another file in the place of what it writes to, a device's too.
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
files=("$@")
[ $# -gt 0 ] || files=(tests/kernel_errors/*.rs)
failed=0
for file in "${files[@]}"; do
    expected=$(sed -n '/^\/\/ /!q; s/^\/\/ //p' "$file")
    log=$(rustc --edition 2024 --crate-type lib --emit "metadata=$scratch/mistake.rmeta" --allow unused \
        --extern "wakegraph=$library" -L "dependency=${library%/*}" -L "dependency=${library%/*}/deps" \
        "$file" 2>&1) || true
    said=$(grep -E '^(error|warning)(\[E[0-9]+\])?: ' <<<"$log" | grep -v '^error: aborting due to' || true)
    if [ "$said" != "$expected" ]; then
        printf '%s: the compiler says otherwise\n- expected\n%s\n- said\n%s\n%s\n' \
            "$file" "$expected" "$said" "$log"
        failed=1
    fi
done
[ "$failed" = 0 ] && echo "${#files[@]} mistakes are explained as expected"
exit "$failed"
