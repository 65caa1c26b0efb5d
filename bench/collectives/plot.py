#!/usr/bin/env python3
"""Draws latency and bandwidth against size from a results file: plot.py RESULTS.json FOLDER. Needs matplotlib."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
# Readable text in the file, and the same bytes for the same data.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "trireme", "font.size": 9})

import matplotlib.pyplot as plt  # noqa: E402  (after the choice of a backend)
from matplotlib.axes import Axes  # noqa: E402

Rows = Sequence[tuple[str, str]]  # operations and placements

STYLES = {
    "trireme": ("Trireme", "#0b5fa5", "-"),
    "trireme-shared": ("Trireme, shared buffers", "#4aa3df", "-"),
    "trireme-copy": ("Trireme, no direct reads", "#0b5fa5", ":"),
    "oneccl": ("Intel oneCCL", "#d1495b", "-"),
    "mpich": ("MPICH", "#6b7280", "-"),
}
# The operations of the overview. Broadcast is in place in every library's own form.
OVERVIEW = (
    ("reduce", "out"),
    ("broadcast", "in"),
    ("allgather", "out"),
    ("alltoall", "out"),
    ("reduce_scatter", "out"),
    ("send_recv", "out"),
)
PERCENTILES = ("p10_us", "median_us", "p90_us")
TICKS = {8: "8 B", 1 << 10: "1 KiB", 64 << 10: "64 KiB", 1 << 20: "1 MiB", 16 << 20: "16 MiB", 256 << 20: "256 MiB"}


def series(results: list[dict], op: str, placement: str, library: str, ranks: int) -> list[dict]:
    points = [
        result
        for result in results
        if "median_us" in result
        and result["calls"] == 1
        and result["dtype"] == "fp32"
        and result["bytes"] > 0
        and (result["op"], result["placement"], result["library"], result["ranks"]) == (op, placement, library, ranks)
    ]
    return sorted(points, key=lambda result: result["bytes"])


def draw_line(latency: Axes, bandwidth: Axes, points: list[dict], library: str) -> None:
    label, color, line = STYLES[library]
    sizes = [point["bytes"] for point in points]
    for axes, scale in ((latency, lambda size, us: us), (bandwidth, lambda size, us: size / us / 1e3)):
        low, middle, high = ([scale(point["bytes"], point[name]) for point in points] for name in PERCENTILES)
        axes.plot(sizes, middle, line, color=color, label=label, marker="o", markersize=2.5, linewidth=1.4)
        axes.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)


def draw_row(row: Sequence[Axes], results: list[dict], op: str, placement: str, ranks: int) -> None:
    latency, bandwidth = row
    for library in STYLES:
        points = series(results, op, placement, library, ranks)
        if points:
            draw_line(latency, bandwidth, points, library)
    latency.set_title(f"{op}, {'in place' if placement == 'in' else 'out of place'}", loc="left")
    latency.set_ylabel("microseconds")
    latency.set_yscale("log")
    bandwidth.set_ylabel("GB/s")
    bandwidth.set_ylim(bottom=0)
    for axes in row:
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(TICKS), list(TICKS.values()))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)


def draw(document: dict, rows: Rows, path: Path, ranks: int = 2) -> None:
    results = document["results"]
    rows = [
        (op, placement)
        for op, placement in rows
        if any(series(results, op, placement, library, ranks) for library in STYLES)
    ]
    if not rows:
        return
    figure, grid = plt.subplots(len(rows), 2, figsize=(9, 2.6 * len(rows)), squeeze=False, layout="constrained")
    for row, (op, placement) in zip(grid, rows, strict=True):
        draw_row(row, results, op, placement, ranks)
    handles = {label: handle for row in grid for handle, label in zip(*row[0].get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles), frameon=False)
    machine = document["machine"]
    hardware = f"{ranks} ranks on one host, {machine['cpu']}, {machine['cores']} cores"
    figure.supxlabel(f"size; fp32, {hardware}, {document['date'][:10]}; median, p10-p90 shaded", fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    print(f"wrote {path}")


def main() -> None:
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder = Path(sys.argv[2])
    draw(document, (("allreduce", "out"), ("allreduce", "in")), folder / "allreduce.svg")
    draw(document, OVERVIEW, folder / "collectives.svg")


if __name__ == "__main__":
    main()
