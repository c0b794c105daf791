#!/usr/bin/env bash
# Unpacks two versions of Intel's Level Zero driver, which start without a GPU: they check and accept every call, and
# compute nothing. Nothing is installed; everything is in DIRECTORY, by default target/level-zero.
#
#   scripts/level-zero.sh [DIRECTORY]              # both stacks and the headers
#   source DIRECTORY/compiler/env.sh               # programs started from here find Intel's compiler, which the test driver needs
#   source DIRECTORY/classic/env.sh                # programs started from here see Debian 12's loader and driver (API 1.3)
#   DIRECTORY/current/run PROGRAM ARGUMENTS        # Debian testing's (API 1.15), with its own C library
#
# The devices that they play are chosen by ProductFamilyOverride: classic skl, dg1; current bmg, dg2, pvc. A stack whose packages
# are not to be had has a file `missing` instead, which says why. Needs apt and dpkg, and no root.
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$(realpath -m "${1:-target/level-zero}")

classic=(
    libze1=1.8.12-1 intel-opencl-icd=22.43.24595.41-1 libigc1=1.0.12504.6-1+deb12u1 libigdfcl1=1.0.12504.6-1+deb12u1
    libigdgmm12=22.3.3+ds1-1 libllvmspirvlib14=14.0.0-5 libopencl-clang14=14.0.0-4 libllvm14=1:14.0.6-12
    libclang-cpp14=1:14.0.6-12 patchelf=0.14.3-1+b1
)
current=(
    libze1=1.32.0-1 libze-dev=1.32.0-1 libze-intel-gpu1=26.27.39122.14-1 libigdfcl2=2.40.14-1 libigc2=2.40.14-1
    intel-ocloc=26.27.39122.14-1
)

# The archive that the system's own apt uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | grep -v security | head -n 1)

# apt with lists and a cache of its own, that thinks nothing is installed: apt STACK SUITE COMMAND ...
apt() {
    local private=$directory/apt-$1 suite=$2
    shift 2
    mkdir -p "$private"/{lists/partial,cache/archives/partial}
    : > "$private/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" \
        > "$private/sources.list"
    cat > "$private/apt.conf" <<END
Dir::State::lists "$private/lists";
Dir::State::status "$private/status";
Dir::Cache "$private/cache";
Dir::Etc::sourcelist "$private/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "";
APT::Install-Recommends "false";
pkgCacheGen::Essential "none";
Acquire::Languages "none";
END
    APT_CONFIG=$private/apt.conf apt-get -qq "$@"
}

# unpack STACK SUITE COMMAND PACKAGES: COMMAND is `download`, or `install --download-only` to have what they depend on, too.
unpack() {
    local stack=$1 suite=$2 root=$directory/$1/root packages
    local -a command
    read -ra command <<< "$3"
    packages=("${@:4}")
    [ "$(cat "$directory/$stack/packages" 2>/dev/null)" != "${packages[*]}" ] || return 0
    rm -rf "${directory:?}/$stack"
    mkdir -p "$root"
    local said
    if ! said=$(cd "$directory/$stack" && { apt "$stack" "$suite" update && apt "$stack" "$suite" "${command[@]}" --yes "${packages[@]}"; } 2>&1)
    then
        printf 'the packages of Debian %s are not to be had: %s\n' "$suite" "$said" | tee "$directory/$stack/missing" >&2
        return 1
    fi
    local package
    for package in "$directory/$stack"/*.deb "$directory/apt-$stack/cache/archives"/*.deb; do
        [ ! -e "$package" ] || dpkg -x "$package" "$root"
    done
    rm -rf "$directory/$stack"/*.deb "$directory/apt-$stack"
    echo "${packages[*]}" > "$directory/$stack/packages"
}

# What both stacks need: a device played by the driver, and the loader's validation layer. ZE_ENABLE_HANDLE_LIFETIME=1 adds a check
# of handles, for programs that call Level Zero on one thread only: it keeps them in tables without a lock, and crashes otherwise.
environment() {
    cat <<END
export NEOReadDebugKeys=1 SetCommandStreamReceiver=1
export ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1
END
}

library=usr/lib/x86_64-linux-gnu
if unpack classic bookworm download "${classic[@]}"; then
    root=$directory/classic/root
    {
        environment
        cat <<END
export LD_LIBRARY_PATH='$root/$library'"\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
export ZE_ENABLE_ALT_DRIVERS='$root/$library/libze_intel_gpu.so.1'
export AUBDumpSubCaptureMode=1 ProductFamilyOverride="\${ProductFamilyOverride:-skl}"
END
    } > "$directory/classic/env.sh"
    echo "source '$directory/classic/env.sh'"
    # The compiler without the driver: for all tests, of which those that take the best device must not get one that computes
    # nothing.
    rm -rf "$directory/compiler"
    mkdir -p "$directory/compiler"
    find "$root/$library" -maxdepth 1 -name 'lib*.so*' ! -name 'libze*' -exec ln -s -t "$directory/compiler" {} +
    echo "export LD_LIBRARY_PATH='$directory/compiler'\"\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}\"" > "$directory/compiler/env.sh"
    echo "source '$directory/compiler/env.sh'"
fi

if unpack current testing 'install --download-only' "${current[@]}"; then
    root=$directory/current/root
    ln -sfn "$root/usr/include" "$directory/include"
    patchelf=$directory/classic/root/usr/bin/patchelf
    {
        environment
        cat <<END
export ZE_ENABLE_ALT_DRIVERS='$root/$library/libze_intel_gpu.so.1'
export UseAubStream=0 UseBindlessMode=0 HardwareInfoOverride="\${HardwareInfoOverride:-1x4x8}"
export ProductFamilyOverride="\${ProductFamilyOverride:-bmg}"
END
    } > "$directory/current/env.sh"
    # The driver needs a newer C library than the system's, so a copy of the program is bound to the one that came with it.
    cat > "$directory/current/run" <<END
#!/usr/bin/env bash
# Runs a program on the driver beside this file: a copy of it, which lies beside the program.
set -euo pipefail
source '$directory/current/env.sh'
copy=\$1.level-zero
if [ ! "\$copy" -nt "\$1" ]; then
    cp "\$1" "\$copy.\$\$"
    '$patchelf' --set-interpreter '$root/$library/ld-linux-x86-64.so.2' --force-rpath --set-rpath '$root/$library' "\$copy.\$\$"
    touch "\$copy.\$\$"
    mv "\$copy.\$\$" "\$copy"
fi
exec "\$copy" "\${@:2}"
END
    chmod +x "$directory/current/run"
    echo "$directory/current/run PROGRAM ARGUMENTS"
fi
