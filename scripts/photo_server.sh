#!/usr/bin/env bash
# Tries the example photo_server in a real browser: uploads photos through its page, compares the results with a
# reference, and looks at its figures and probes. Writes a screenshot to target/photo_server/page.png.
#
#   scripts/photo_server.sh [DEVICE]...    # by default host
#
# For Debian and its like: Chromium comes by apt, as root or through sudo, and the driver from the Python Package Index
# into target/photo_server. What is there already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(chromium fonts-dejavu-core python3-venv)
pip=(playwright==1.65.2 numpy==2.4.6 pillow==13.0.0)
directory=target/photo_server

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
if [ "$(cat "$directory/venv/installed" 2>/dev/null)" != "${pip[*]}" ]; then
    rm -rf "$directory/venv"
    python3 -m venv "$directory/venv"
    "$directory/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "${pip[@]}"
    echo "${pip[*]}" > "$directory/venv/installed"
fi

cargo build --locked --release -p photo_server
for device in "${@:-host}"; do
    "$directory/venv/bin/python" scripts/photo_server.py target/release/photo_server "$device" "$directory"
done
