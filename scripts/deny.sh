#!/usr/bin/env bash
# Checks the licences, sources and versions of all dependencies with cargo-deny, by the rules of deny.toml.
#
#   scripts/deny.sh               # licences, bans and sources: needs no network
#   scripts/deny.sh advisories    # known vulnerabilities: downloads the advisory database
#
# `cargo install --locked cargo-deny` installs the tool.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# = 0 ]; then set -- bans licenses sources; fi
exec cargo deny --workspace --locked check "$@"
