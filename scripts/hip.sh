#!/usr/bin/env bash
# Fetches AMD's HIP runtime in two versions, and the headers of three, without installing them.
#
#   scripts/hip.sh [DIRECTORY]    # by default target/hip
#
# For Debian and its like. The packages come from Debian testing (6.4.3) and Debian 13 (5.7.1), with the C library that they
# need, and are unpacked to DIRECTORY/VERSION. A program runs on them as a copy whose dynamic linker is theirs (`patchelf`,
# which is installed by apt, as root or through sudo, like g++). AMD's HSA runtime lies in a folder of its own, `amd-hsa`: the
# tests put one that needs no GPU in its place, see crates/wakegraph-hip/tests/hsa_runtime. What is there already is left alone.
#
#   source DIRECTORY/VERSION/env.sh           # cargo then runs programs on that version, with AMD's HSA runtime (no device)
set -euo pipefail
cd "$(dirname "$0")/.."

directory=$(realpath -m "${1:-target/hip}")
# The archive that the system's own apt uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | grep -v security | head -n 1)

missing=()
command -v patchelf > /dev/null || missing+=(patchelf)
command -v g++ > /dev/null || missing+=(g++)
if [ ${#missing[@]} -gt 0 ]; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    "${apt[@]}" update
    "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" >&2
fi

# apt with lists, a cache and a status of its own, in which no package is installed: it fetches whole closures.
private() { # SUITE ARGUMENTS..
    local suite=$1 state=$directory/apt/$1
    shift
    if [ ! -e "$state/apt.conf" ]; then
        mkdir -p "$state"/{lists,cache/archives,etc}
        : > "$state/status"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$state/etc/sources.list"
        cat > "$state/apt.conf" <<END
Dir::State "$state";
Dir::State::lists "$state/lists";
Dir::State::status "$state/status";
Dir::Cache "$state/cache";
Dir::Etc::sourcelist "$state/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
Debug::NoLocking "true";
END
        APT_CONFIG=$state/apt.conf apt-get -qq update || { rm "$state/apt.conf"; return 1; }
    fi
    APT_CONFIG=$state/apt.conf "$@"
}

# The first version of a package that the suite has and that begins with the one asked for.
version_of() { # SUITE PACKAGE VERSION
    local found
    found=$(private "$1" apt-cache madison "$2" | awk -F' *[|] *' -v want="$3" 'index($2, want) == 1 {print $2; exit}')
    [ -n "$found" ] || { echo "error: Debian $1 no longer has $2 $3" >&2; exit 1; }
    echo "$found"
}

# Exits with 3, so that a caller can tell this from a mistake in what follows.
not_fetched() {
    echo "error: the packages could not be fetched" >&2
    exit 3
}

fetch() { # SUITE VERSION PACKAGE..: the first of the packages bears the version
    local suite=$1 version=$2 target=$directory/$2
    shift 2
    [ ! -e "$target/complete" ] || return 0
    rm -rf "$target"
    mkdir -p "$target/amd-hsa"
    local archives=$directory/apt/$suite/cache/archives first
    private "$suite" true || not_fetched
    rm -f "$archives"/*.deb
    first=$(version_of "$suite" "$1" "$version") || not_fetched
    first=$1=$first
    shift
    private "$suite" apt-get -qq --yes --download-only install "$first" "$@" || not_fetched
    for package in "$archives"/*.deb; do
        case ${package##*/} in
            libhsa-runtime64* | libhsakmt*) dpkg-deb --fsys-tarfile "$package" | tar -x -C "$target/amd-hsa" ;;
            *) dpkg-deb --fsys-tarfile "$package" | tar -x -C "$target" --exclude='./usr/share/*' ;;
        esac
    done
    rm -f "$archives"/*.deb

    # All libraries in one folder that a program's search path can name, and the linker beside them.
    mkdir "$target/libs"
    find "$target/usr/lib" \( -name '*.so' -o -name '*.so.*' \) -not -path '*/gconv/*' -not -path '*/audit/*' |
        while read -r library; do ln -sf "$(realpath "$library")" "$target/libs/${library##*/}"; done
    ln -s libs/ld-linux-x86-64.so.2 "$target/ld.so"
    touch "$target/complete"
}

environment() { # VERSION
    local target=$directory/$1 hsa
    hsa=$(dirname "$(find "$target/amd-hsa" -name 'libhsa-runtime64.so.1' | head -1)")
    cat > "$target/run" <<END
#!/usr/bin/env bash
# Runs a program on HIP $1: as a copy with this folder's dynamic linker and libraries. \$WAKEGRAPH_HSA names the folder with the
# HSA runtime; AMD's own is the default.
set -euo pipefail
copies=\$(mktemp -d '$target/run.XXXXXX')
trap 'rm -rf "\$copies"' EXIT
program=\$copies/\$(basename "\$1")
shift_from=\$1; shift
cp "\$shift_from" "\$program"
patchelf --set-interpreter '$target/ld.so' --force-rpath --set-rpath "\${WAKEGRAPH_HSA:-$hsa}:$target/libs" "\$program"
LD_LIBRARY_PATH='$target/libs' "\$program" "\$@"
END
    chmod +x "$target/run"
    echo "export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='$target/run'" > "$target/env.sh"
    echo "source '$target/env.sh'"
}

headers() { # SUITE VERSION
    local target=$directory/headers/$2 state=$directory/apt/$1/cache/archives
    [ ! -e "$target/complete" ] || return 0
    rm -rf "$target"
    mkdir -p "$target"
    private "$1" true || not_fetched
    local version
    version=$(version_of "$1" libamdhip64-dev "$2") || not_fetched
    rm -f "$state"/*.deb
    (cd "$state" && private "$1" apt-get -qq download "libamdhip64-dev=$version") || not_fetched
    for package in "$state"/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C "$target" ./usr/include; done
    rm -f "$state"/*.deb
    touch "$target/complete"
}

fetch testing 6.4.3 libamdhip64-6 libhiprtc6 libhiprtc-builtins6 libstdc++6
fetch trixie 5.7.1 libamdhip64-5 libhiprtc-builtins5 libstdc++6
headers bookworm 5.2.3
headers trixie 5.7.1
headers testing 6.4.3
environment 6.4.3
environment 5.7.1
