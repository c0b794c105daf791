#!/usr/bin/env python3
"""Makes the tables and the picture of docs/benchmarks.md from what benchmarks have printed.

    scripts/benchmarks.py TITLE=LOG [TITLE=LOG ...]

Writes docs/images/benchmarks.svg, and prints a short table of what matters most, and one of all rows of each log that
have a ratio and a limit. A row that is in a log several times, by several processes, counts with the process whose ratio
is in the middle.
"""
import math
import re
import statistics
import sys
from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parent.parent / "docs/images/benchmarks.svg"
LINE = re.compile(r"^BENCH (\S+) ours=(\S+) base=(\S+) unit=(\S+) ratio=(\S+)(?: limit=(\S+))?", re.MULTILINE)
# What matters most, by the names of the rows.
SHORT = {
    "chain_1_latency_multi": "one kernel, awaited",
    "chain_100_latency_multi": "100 kernels in a chain",
    "host_hop_latency_multi": "kernel, async host task, kernel",
    "busy_chain_1_multi": "one kernel, while all cores are busy",
    "overlap_100_of_4096": "100 small kernels in C, which overlap",
    "overlap_100_of_1048576": "100 large ones",
    "update": "one argument changed, and a launch",
    "update_100_executable": "arguments of 100 kernels changed, and a launch",
    "round_trip_64k": "64 KiB up, kernel, down",
    "copy_device_8m": "8 MiB within the device",
    "copy_to_1g": "1 GiB from memory that is not pinned; by hand pinned",
    "copy_peer_8m": "8 MiB from another GPU",
    "two_devices_latency_multi": "ten kernels by turns on two GPUs",
    "stream_task_latency_multi": "calls of a library as a node",
    "throughput_64_balanced_multi": "64 tasks on four workers, runs a second; by hand one thread that never polls",
    "finalize_1000": "finalize and drop a graph of 1,000 kernels, a node",
    "side_by_side_64": "64 kernels of 200 us beside each other",
    "wait_10ms_balanced_task_core": "share of a core while waiting for 10 ms; by hand knows how long",
    "handoff_multi": "work handed to a thread and back",
    "hop_multi": "kernel, async host task, kernel",
    "fan_out_8_multi": "eight kernels beside each other",
    "chain_1": "one kernel, awaited",
    "chain_100": "100 kernels in a chain",
    "hop": "kernel, async host task, kernel",
    "busy_chain_1_async": "one kernel, while all cores are busy",
    "update_100": "arguments of 100 kernels changed",
    "deep_10": "ten runs in flight, a run",
    "deep_1000": "1,000 runs in flight, a run",
}
UNITS = {"ns": [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")]}

WIDTH, NAMES, LINE_HEIGHT, TOP = 860, 330, 17, 46


def rows(log):
    """The rows of a log in their order, each as (name, ours, base, unit, ratio, limit or None)."""
    seen = {}
    for name, ours, base, unit, ratio, limit in LINE.findall(Path(log).read_text()):
        row = (name, float(ours), float(base), unit, float(ratio), float(limit) if limit else None)
        seen.setdefault(name, []).append(row)
    for several in seen.values():
        middle = statistics.median_low([row[4] for row in several])
        yield next(row for row in several if row[4] == middle)


def quantity(value, unit):
    for size, name in UNITS.get(unit, []):
        if value >= size:
            scaled = value / size
            return f"{scaled:.0f} {name}" if scaled >= 100 else f"{scaled:.2g} {name}"
    match unit:
        case "per_second":
            return f"{value:,.0f}"
        case "percent":
            return f"{value:g} %"
    return f"{value:g} {unit}"


def short_table(groups):
    print("| | what | ours | by hand | ratio |\n|---|---|---|---|---|")
    for title, found in groups:
        for name, ours, base, unit, ratio, limit in (row for row in found if row[0] in SHORT):
            shown = f"**{ratio:.2f}**" if limit and ratio > limit else f"{ratio:.2f}"
            print(f"| {title} | {SHORT[name]} | {quantity(ours, unit)} | {quantity(base, unit)} | {shown} |")


def table(groups):
    for title, found in groups:
        print(f"\n### {title}\n\n| row | ours | by hand | ratio | limit |\n|---|---|---|---|---|")
        for name, ours, base, unit, ratio, limit in found:
            shown = f"**{ratio:.2f}**" if ratio > limit else f"{ratio:.2f}"
            print(f"| `{name}` | {quantity(ours, unit)} | {quantity(base, unit)} | {shown} | {limit:g} |")


def picture(groups):
    seen = [value for _, found in groups for row in found for value in row[4:6]] + [1]
    least, most = min(seen) / 1.1, max(seen) * 1.1

    def x_of(ratio):
        return NAMES + math.log(ratio / least) / math.log(most / least) * (WIDTH - NAMES - 60)

    height = TOP + sum(len(found) + 2 for _, found in groups) * LINE_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{NAMES}" y="16" fill="#444">time of ours / time by hand: left of 1 ours is faster; | is the limit</text>',
    ]
    for ratio in [ratio for ratio in [0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 4] if least <= ratio <= most]:
        x, colour = x_of(ratio), "#222" if ratio == 1 else "#ddd"
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 8}" stroke="{colour}"/>')
        lines.append(f'<text x="{x:.1f}" y="{TOP - 12}" text-anchor="middle" fill="#444">{ratio:g}</text>')
    y = TOP
    for title, found in groups:
        y += LINE_HEIGHT
        lines.append(f'<text x="8" y="{y}" font-weight="bold">{escape(title)}</text>')
        for name, _, _, _, ratio, limit in found:
            y += LINE_HEIGHT
            colour = "#c0392b" if ratio > limit else "#2471a3"
            start, end, mark = x_of(1), x_of(ratio), x_of(limit)
            lines.append(f'<text x="{NAMES - 8}" y="{y}" text-anchor="end">{escape(name)}</text>')
            lines.append(
                f'<line x1="{start:.1f}" y1="{y - 4}" x2="{end:.1f}" y2="{y - 4}" stroke="{colour}" stroke-width="5"/>'
            )
            lines.append(
                f'<line x1="{mark:.1f}" y1="{y - 9}" x2="{mark:.1f}" y2="{y + 1}" stroke="#888" stroke-width="1.5"/>'
            )
            lines.append(f'<text x="{WIDTH - 8}" y="{y}" text-anchor="end" fill="{colour}">{ratio:.2f}</text>')
        y += LINE_HEIGHT
    lines.append("</svg>")
    PICTURE.write_text("\n".join(lines) + "\n")


def main():
    if len(sys.argv) < 2 or any("=" not in argument for argument in sys.argv[1:]):
        sys.exit(__doc__)
    pairs = [argument.split("=", 1) for argument in sys.argv[1:]]
    groups = [(title, list(rows(log))) for title, log in pairs]
    short_table(groups)
    limited = [(title, [row for row in found if row[5]]) for title, found in groups]
    table(limited)
    picture(limited)


main()
