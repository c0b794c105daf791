#!/usr/bin/env bash
# Runs a program on oclgrind's simulated OpenCL device, which is `opencl:0` there, and fails when one of its kernels
# leaves its arguments, or races. (Reads of what nobody has written are not looked for: oclgrind takes filled buffers for such.)
#
#   scripts/oclgrind.sh target/release/examples/quickstart --device opencl:0
#
# scripts/opencl-runtimes.sh installs oclgrind.
set -euo pipefail

findings=$(mktemp -d)
trap 'rm -r "$findings"' EXIT
echo /usr/lib/oclgrind/liboclgrind-rt-icd.so > "$findings/oclgrind.icd"

# What races everywhere takes for ever, and has been told long before.
status=0
OCL_ICD_VENDORS=$findings timeout "${OCLGRIND_SECONDS:-180}" \
    oclgrind --data-races --max-errors 20 --log "$findings/log" "$@" || status=$?
if [ -s "$findings/log" ]; then
    head -n 100 "$findings/log" >&2
    echo "error: oclgrind has found errors in the kernels of: $*" >&2
    exit 1
fi
exit "$status"
