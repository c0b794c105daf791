#!/usr/bin/env python3
"""Makes the tables and pictures of docs/benchmarks.md from what benchmarks have printed.

    scripts/benchmarks.py TITLE=FILE [TITLE=FILE ...]

A FILE whose name ends in .jsonl is of the service bench: of these it writes docs/images/services.svg, and prints tables
with the medians of the rounds. Other files are logs: of these it writes docs/images/benchmarks.svg, and prints a short
table of what matters most, and one of all rows of each log that have a ratio and a limit. A row that is in a log several
times, by several processes, counts with the process whose ratio is in the middle. Of logs of benches/peers it prints
a table with the medians of the processes.
"""
import json
import math
import re
import statistics
import sys
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
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
        if name.startswith("peer_"):
            continue
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


def peers(log):
    """The rows of benches/peers in a log, as {row: {figure: median of the processes}}."""
    found = {}
    for line in re.findall("^BENCH peer_(.*)", Path(log).read_text(), re.MULTILINE):
        name, *pairs = line.split()
        for figure, value in (pair.split("=") for pair in pairs if "=" in pair):
            if figure != "unit":
                found.setdefault(name, {}).setdefault(figure, []).append(float(value))
    return {name: {key: statistics.median(values) for key, values in row.items()} for name, row in found.items()}


def peers_table(title, found):
    print(f"\n### Peers, {title}\n")
    print("| row | runs a second | by cuda-async | ratio | cores | by cuda-async | p50, p99 in us | by cuda-async |")
    print("|---" * 8 + "|")
    for name, rate in found.items():
        if name.endswith(("_cores", "_time")):
            continue
        cores, time = found[name + "_cores"], found.get(name + "_time")
        percentiles = [
            ", ".join(f"{time[side + place] / 1000:.3g}" for place in ["p50", "p99"]) if time else ""
            for side in ["", "base_"]
        ]
        ratio = rate["ours"] / rate["base"]
        shown = f"**{ratio:.2f}**" if ratio < 1 else f"{ratio:.2f}"
        print(
            f"| `{name}` | {rate['ours']:,.0f} | {rate['base']:,.0f} | {shown} | {cores['ours']:.1f} | {cores['base']:.1f} "
            f"| {percentiles[0]} | {percentiles[1]} |"
        )


def picture(groups):
    seen = [value for _, found in groups for row in found for value in row[4:6]] + [1]
    least, most = min(seen) / 1.1, max(seen) * 1.1

    def x_of(ratio):
        return NAMES + math.log(ratio / least) / math.log(most / least) * (WIDTH - NAMES - 60)

    height = TOP + sum(len(found) + 2 for _, found in groups) * LINE_HEIGHT
    lines = [
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
    write_picture("benchmarks.svg", height, lines)


# The contenders of the service bench with their colours; the first two are ours.
CONTENDERS = {"pool": "#1b4f72", "batcher": "#5dade2", "thread": "#b9770e", "blocking": "#f5cba7"}
OURS = ["pool", "batcher"]
TROUBLES = {
    "none": "none",
    "hang-ups": "one request in 20 is given up by its client",
    "failures": "one in 1,000 fails",
    "burst": "ten times as many clients for a third of the time",
}
FIGURES = ["per_second", "p50_us", "p99_us", "p999_us", "cores", "peak_mib", "threads"]


def services(file):
    """The figures of a file of the service bench, as {(shape, trouble, clients): {contender: {name: figure}}}: counts of
    wrong and refused requests are sums over the rounds, the others medians."""
    rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
    rounds = {}
    for row in (row for row in rows if "machine" not in row):
        cell = rounds.setdefault((row["shape"], row["trouble"], row["clients"]), {})
        cell.setdefault(row["contender"], []).append(row)
    return {key: {name: figures(of_rounds) for name, of_rounds in cell.items()} for key, cell in rounds.items()}


def figures(rounds):
    found = {name: statistics.median([row[name] for row in rounds if row[name] is not None] or [0]) for name in FIGURES}
    return found | {name: sum(row[name] for row in rounds) for name in ["wrong", "refused"]}


def milliseconds(microseconds):
    return f"{microseconds / 1000:.3g}"


def service_tables(title, found):
    print(f"\n### A service, {title}\n")
    print("Requests a second; p50, p99, p99.9 in ms; cores of the server, and its CPU time a request in us.\n")
    print(f"| shape | clients | {' | '.join(CONTENDERS)} | ours by the best other: requests, p99, cores |")
    print("|---" * (3 + len(CONTENDERS)) + "|")
    for (shape, trouble, clients), cell in found.items():
        if trouble == "none":
            shown = [service_cell(cell[name]) if name in cell else "" for name in CONTENDERS]
            print(f"| `{shape}` | {clients:,} | {' | '.join(shown)} | {beside_the_best(cell)} |")
    print(f"\n| `1k`, trouble | {' | '.join(CONTENDERS)} |\n{'|---' * (1 + len(CONTENDERS))}|")
    # Without trouble, of as many clients.
    troubled = {clients for _, trouble, clients in found if trouble != "none"}
    for (shape, trouble, clients), cell in found.items():
        if shape == "1k" and clients in troubled:
            shown = [
                f"p99 {milliseconds(cell[name]['p99_us'])} ms, {cell[name]['wrong']} wrong, {cell[name]['refused']} refused"
                if name in cell
                else ""
                for name in CONTENDERS
            ]
            print(f"| {TROUBLES[trouble]} | {' | '.join(shown)} |")
    print(f"\n| MiB at most, and threads | {' | '.join(CONTENDERS)} |\n{'|---' * (1 + len(CONTENDERS))}|")
    for shape in dict.fromkeys(shape for shape, _, _ in found):
        clients = max(clients for of_shape, trouble, clients in found if (of_shape, trouble) == (shape, "none"))
        cell = found[shape, "none", clients]
        shown = [
            f"{cell[name]['peak_mib']:g}, {cell[name]['threads']:g}" if name in cell else "" for name in CONTENDERS
        ]
        print(f"| `{shape}`, {clients:,} clients | {' | '.join(shown)} |")


def service_cell(figures):
    times = ", ".join(milliseconds(figures[name]) for name in ["p50_us", "p99_us", "p999_us"])
    cpu = figures["cores"] / (figures["per_second"] or math.nan) * 1e6
    return f"{figures['per_second']:,.0f}; {times}; {figures['cores']:.2f}, {cpu:.0f}"


def beside_the_best(cell):
    ours, others = (
        max((cell[name] for name in cell if (name in OURS) == of_ours), key=lambda one: one["per_second"], default=None)
        for of_ours in [True, False]
    )
    if not ours or not others:
        return ""
    ratios = [ours[name] / (others[name] or math.nan) for name in ["per_second", "p99_us", "cores"]]
    missed = [ratios[0] < 1, ratios[1] > 1, ratios[2] > 1]
    return ", ".join(f"**{ratio:.2f}**" if miss else f"{ratio:.2f}" for ratio, miss in zip(ratios, missed))


def services_picture(groups):
    """A row of panels for each file, a panel for each shape: bars of requests a second over clients."""
    panel, high, top = 280, 150, 34
    lines = []
    for row, (title, found) in enumerate(groups):
        base = top + (row + 1) * (high + 60) - 40
        lines.append(f'<text x="8" y="{base - high - 6}" font-weight="bold">{escape(title)}</text>')
        for column, shape in enumerate(dict.fromkeys(shape for shape, _, _ in found)):
            left = 8 + column * panel
            cells = {key[2]: cell for key, cell in found.items() if key[:2] == (shape, "none")}
            most = max(one["per_second"] for cell in cells.values() for one in cell.values()) or 1
            lines.append(f'<line x1="{left}" y1="{base}" x2="{left + panel - 24}" y2="{base}" stroke="#222"/>')
            lines.append(f'<text x="{left}" y="{base + 28}">{escape(shape)}; the highest bar is {most:,.0f}</text>')
            each = (panel - 24) / len(cells)
            for place, (clients, cell) in enumerate(cells.items()):
                wide = min(each - 8, 60) / len(CONTENDERS)
                for bar, (name, colour) in enumerate(CONTENDERS.items()):
                    tall = cell.get(name, {"per_second": 0})["per_second"] / most * (high - 24)
                    x = left + place * each + bar * wide
                    place_and_size = f'x="{x:.1f}" y="{base - tall:.1f}" width="{wide - 1:.1f}" height="{tall:.1f}"'
                    lines.append(f'<rect {place_and_size} fill="{colour}"/>')
                lines.append(f'<text x="{left + place * each:.1f}" y="{base + 13}" fill="#444">{clients:,}</text>')
    legend = ['<text x="8" y="16" fill="#444">Requests a second by clients:</text>']
    for place, (name, colour) in enumerate(CONTENDERS.items()):
        x = 180 + place * 100
        legend.append(f'<rect x="{x}" y="7" width="10" height="10" fill="{colour}"/><text x="{x + 14}" y="16">{name}</text>')
    height = top + len(groups) * (high + 60)
    write_picture("services.svg", height, [*legend, *lines])


def write_picture(name, height, lines):
    size = f'width="{WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    (IMAGES / name).write_text("\n".join([head, f'<rect {size} fill="white"/>', *lines, "</svg>"]) + "\n")


def main():
    if len(sys.argv) < 2 or any("=" not in argument for argument in sys.argv[1:]):
        sys.exit(__doc__)
    pairs = [argument.split("=", 1) for argument in sys.argv[1:]]
    of_services = [(title, services(file)) for title, file in pairs if file.endswith(".jsonl")]
    for title, found in of_services:
        service_tables(title, found)
    if of_services:
        services_picture(of_services)
    logs = [(title, log) for title, log in pairs if not log.endswith(".jsonl")]
    for title, found in [(title, peers(log)) for title, log in logs]:
        if found:
            peers_table(title, found)
    groups = [(title, found) for title, log in logs if (found := list(rows(log)))]
    if groups:
        short_table(groups)
        limited = [(title, [row for row in found if row[5]]) for title, found in groups]
        table(limited)
        picture(limited)


main()
