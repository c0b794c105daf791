"""Reads `cargo metadata` and fails when a dependency states a newer Rust than the version given."""
import json
import sys


def version(text):
    return tuple(int(part) for part in (text.split(".") + ["0", "0"])[:3])


wanted = version(sys.argv[1])
newer = [
    f"{package['name']} {package['version']} needs Rust {package['rust_version']}"
    for package in json.load(sys.stdin)["packages"]
    if package.get("rust_version") and version(package["rust_version"]) > wanted
]
sys.exit("\n".join(newer) or 0)
