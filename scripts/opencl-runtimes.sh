#!/usr/bin/env bash
# Installs two OpenCL runtimes that need no GPU, Intel's for CPUs and PoCL, and the kernel checker oclgrind.
#
#   scripts/opencl-runtimes.sh [DIRECTORY]    # by default target/opencl
#   source DIRECTORY/env.sh                   # programs started from here see both runtimes, and no others
#
# For Debian and its like. Packages are installed by apt, as root or through sudo; Intel's runtime (700 MB) comes from the
# Python Package Index into DIRECTORY. What is there already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

# The first needs libraries of the second and does not say so.
intel=(intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0)
directory=$(realpath -m "${1:-target/opencl}")
packages=(ocl-icd-libopencl1 pocl-opencl-icd oclgrind python3-venv)

installed() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    "${apt[@]}" update
    "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" >&2
fi

venv=$directory/intel
library=$venv/lib/libintelocl.so
if [ "$(cat "$venv/installed" 2>/dev/null)" != "${intel[*]}" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "${intel[@]}"
    if missing=$(ldd "$library" | grep 'not found'); then
        printf 'error: %s lacks\n%s\n' "$library" "$missing" >&2
        exit 1
    fi
    echo "${intel[*]}" > "$venv/installed"
fi

# The loader reads the names of the drivers from the files of one directory. Those of Intel's package hold a path of the
# machine that it was built on.
mkdir -p "$directory/vendors" "$directory/pocl-cache"
echo "$library" > "$directory/vendors/intel-cpu.icd"
cp /etc/OpenCL/vendors/pocl.icd "$directory/vendors/pocl.icd"

cat > "$directory/env.sh" <<END
export OCL_ICD_VENDORS='$directory/vendors'
export POCL_CACHE_DIR='$directory/pocl-cache'
END
echo "source '$directory/env.sh'"
