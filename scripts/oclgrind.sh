#!/usr/bin/env bash
# Runs a program on oclgrind's simulated OpenCL device, which is `opencl:0` there, and fails when one of its kernels
# leaves its arguments, or races. (It does not report reads of unwritten memory: oclgrind mistakes filled buffers for such.)
#
#   scripts/oclgrind.sh target/debug/examples/quickstart --device opencl:0
#
# scripts/opencl-runtimes.sh installs oclgrind.
set -euo pipefail

findings=$(mktemp -d)
trap 'rm -r "$findings"' EXIT
echo /usr/lib/oclgrind/liboclgrind-rt-icd.so > "$findings/oclgrind.icd"

# oclgrind counts references to its objects without atomic operations: on several processors, a program that threads
# share is freed too early now and then.
processor=$(taskset -cp $$ | sed -E 's/.*: ([0-9]+).*/\1/')
# A kernel that races everywhere would take for ever, long after the report is clear.
status=0
OCL_ICD_VENDORS=$findings timeout "${OCLGRIND_SECONDS:-180}" taskset -c "$processor" \
    oclgrind --data-races --max-errors 20 --log "$findings/log" "$@" || status=$?
if [ -s "$findings/log" ]; then
    head -n 100 "$findings/log" >&2
    echo "error: oclgrind has found errors in the kernels of: $*" >&2
    exit 1
fi
exit "$status"
