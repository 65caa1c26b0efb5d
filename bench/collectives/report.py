"""Results: tables with ratios, and the JSON file with the machine they belong to."""

import datetime
import json
import os
import sys
from pathlib import Path

from session import Session

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import machine  # noqa: E402

OURS = "trireme"
METHOD = (
    "blocking calls, a barrier before each, ranks pinned where each has a core; an iteration's time is the slowest rank's"
)


def format_bytes(count: int) -> str:
    for unit, size in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}B"
    return f"{count} B"


def print_table(results: list[dict], title: str) -> None:
    """Times of all libraries side by side, and how many times faster than each peer we are."""
    libraries = list(dict.fromkeys(result["library"] for result in results))
    peers = [name for name in libraries if not name.startswith(OURS)]
    cells = {(result["library"], result["bytes"]): result for result in results}
    print(f"\n{title}: median microseconds (p10-p90), and ratios to {OURS}")
    print(f"{'':>9}" + "".join(f"{name:>30}" for name in libraries) + "".join(f"{'/ ' + name:>12}" for name in peers))
    for size in sorted({result["bytes"] for result in results}):
        row = f"{format_bytes(size):>9}"
        row += "".join(f"{_format_time(cells.get((name, size))):>30}" for name in libraries)
        row += "".join(f"{_format_ratio(cells.get((name, size)), cells.get((OURS, size))):>12}" for name in peers)
        print(row, flush=True)
    for text in dict.fromkeys(f"  {result['library']}: {result['error']}" for result in results if "error" in result):
        print(text, flush=True)


def _format_time(result: dict | None) -> str:
    if not result or "unsupported" in result:
        return "-"
    if "error" in result:
        return "error"
    return f"{result['median_us']:.1f} ({result['p10_us']:.1f}-{result['p90_us']:.1f})"


def _format_ratio(peer: dict | None, ours: dict | None) -> str:
    ratio = times_faster(peer, ours)
    return "-" if ratio is None else f"{ratio:.2f}x"


def times_faster(peer: dict | None, ours: dict | None) -> float | None:
    if not peer or not ours or "median_us" not in peer or "median_us" not in ours:
        return None
    return peer["median_us"] / ours["median_us"]


def this_machine() -> dict:
    huge_pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        **machine.describe(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "huge_pages": huge_pages.read_text().strip() if huge_pages.exists() else "none",
    }


def write_json(path: Path, session: Session) -> None:
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": this_machine(),
        "place": session.place.describe(),
        "libraries": {
            name: {"version": version, "settings": session.libraries[name].settings}
            for name, version in session.versions.items()
        },
        "method": METHOD,
        "results": session.results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"\nwrote {path}")
