#!/usr/bin/env python3
"""Measures the collectives of Trireme, Intel oneCCL and MPICH alternately, so that a noisy moment hits all of them.

Examples:
    bench/setup_peers.sh                              once: installs and builds the peers
    bench/collectives/run.py --quick                  five sizes of every operation on 2 ranks
    bench/collectives/run.py --json --plot            what the README shows
    bench/collectives/run.py --targets                the project's targets, PASS or FAIL
    bench/collectives/run.py --ops allreduce --ranks 2,4 --sizes 64K,1M
    bench/collectives/run.py --hosts --ranks 4        half of the ranks on each of two private hosts; needs root
"""

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import report
import targets
from libraries import BENCH, Library, Request, ThisHost, all_libraries
from session import Session
from two_hosts import two_hosts

OPS = "allreduce,reduce,broadcast,allgather,allgatherv,alltoall,alltoallv,reduce_scatter,scatter,gather,barrier,send_recv"
SIZES = "8,64,256,1K,4K,16K,64K,256K,1M,4M,16M,64M,256M"
QUICK_SIZES = "8,1K,64K,1M,16M"
UNITS = {"K": 1 << 10, "M": 1 << 20}

T = TypeVar("T")


def parse_size(text: str) -> int:
    unit = UNITS.get(text[-1].upper())
    return int(text[:-1]) * unit if unit else int(text)


def parse_list(parse: Callable[[str], T]) -> Callable[[str], list[T]]:
    return lambda text: [parse(part) for part in text.split(",")]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=parse_list(str), default=OPS.split(","), help=f"default {OPS}")
    parser.add_argument("--ranks", type=parse_list(int), default=[2])
    parser.add_argument("--sizes", type=parse_list(parse_size), help=f"default {SIZES}")
    parser.add_argument("--dtypes", type=parse_list(str), help="default fp32,bf16")
    parser.add_argument("--placements", type=parse_list(str), default=["out", "in"], help="out of place, in place")
    parser.add_argument("--libraries", type=parse_list(str), help="default: all that are built, but oneccl-default")
    parser.add_argument("--quick", action="store_true", help=f"fp32, {QUICK_SIZES}, less time a case")
    parser.add_argument("--repeat", type=int, help="jobs of each library per case, alternating; default 1, for --targets 3")
    parser.add_argument("--budget-ms", type=int, default=200, help="time for the iterations of one case")
    parser.add_argument(
        "--json", nargs="?", type=Path, const=BENCH / "results" / "collectives.json", help="write the results"
    )
    parser.add_argument("--plot", action="store_true", help="draw bench/plots from the JSON file")
    parser.add_argument("--targets", action="store_true", help="check the targets instead")
    parser.add_argument(
        "--hosts", action="store_true", help="between two private hosts (tests/cluster) instead of on this one"
    )
    parser.add_argument("--build", type=Path, default=BENCH.parent / "build" / "release", help="our build folder")
    parser.add_argument("--peers", type=Path, default=BENCH / ".peers", help="setup_peers.sh's folder")
    arguments = parser.parse_args()
    arguments.dtypes = arguments.dtypes or (["fp32"] if arguments.quick else ["fp32", "bf16"])
    if arguments.quick:
        arguments.budget_ms = min(arguments.budget_ms, 50)
    if arguments.sizes is None:
        arguments.sizes = parse_list(parse_size)(QUICK_SIZES if arguments.quick else SIZES)
    if arguments.plot and not arguments.json:
        parser.error("--plot draws what --json writes: give both")
    return arguments


def usable(libraries: dict[str, Library], wanted: list[str] | None) -> dict[str, Library]:
    """The libraries that can run. A peer that is not installed is named and left out."""
    found = {name: library for name, library in libraries.items() if not wanted or name in wanted}
    for name, library in libraries.items():
        if name in found and (missing := library.missing()):
            print(f"without {name}: {missing}", file=sys.stderr)
            del found[name]
    for program in {library.program for library in found.values()}:
        _warn_if_stale(program)
    return found


def _warn_if_stale(program: Path) -> None:
    newest = max(source.stat().st_mtime for source in (BENCH / "collectives").glob("*.[ch]*"))
    if program.stat().st_mtime < newest:
        print(f"{program} is older than its sources", file=sys.stderr)


def memory_needed(op: str, size: int, ranks: int) -> int:
    """Both buffers of all ranks."""
    per_rank = size * ranks if op in ("allgather", "allgatherv", "alltoall", "alltoallv", "scatter", "gather") else size
    return 2 * per_rank * ranks


def sizes_that_fit(op: str, sizes: list[int], ranks: int) -> tuple[int, ...]:
    if op == "barrier":
        return (0,)
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") // 2
    fitting = tuple(size for size in sizes if memory_needed(op, size, ranks) <= limit)
    for size in sizes:
        if size not in fitting:
            print(f"without {op} of {report.format_bytes(size)} on {ranks} ranks: too little memory", file=sys.stderr)
    return fitting


def measure_all(session: Session, arguments: argparse.Namespace) -> None:
    for ranks in arguments.ranks:
        for op in arguments.ops:
            sizes = sizes_that_fit(op, arguments.sizes, ranks)
            for dtype in arguments.dtypes if op != "barrier" else ["fp32"]:
                for placement in arguments.placements if op not in ("barrier", "send_recv") else ["out"]:
                    request = Request(op, sizes, ranks, dtype, placement, budget_ms=arguments.budget_ms)
                    where = "in place" if placement == "in" else "out of place"
                    report.print_table(session.measure(request, arguments.libraries), f"{op} {dtype} {where}, {ranks} ranks")


def draw(arguments: argparse.Namespace) -> None:
    """In the peers' environment, which has matplotlib."""
    python = arguments.peers / "bin" / "python"
    interpreter = str(python) if python.exists() else sys.executable
    subprocess.run([interpreter, BENCH / "collectives" / "plot.py", arguments.json, BENCH / "plots"], check=True)


def main() -> int:
    arguments = parse_arguments()
    libraries = usable(all_libraries(arguments.build.resolve(), arguments.peers.resolve()), arguments.libraries)
    passed = True
    with two_hosts() if arguments.hosts else contextlib.nullcontext(ThisHost()) as place:
        session = Session(place.adapt(libraries), place, arguments.repeat or (3 if arguments.targets else 1))
        if arguments.targets:
            passed = targets.check(session) if not arguments.hosts else targets.check_between_hosts(session)
        else:
            measure_all(session, arguments)
    if arguments.json:
        report.write_json(arguments.json, session)
    if arguments.plot:
        draw(arguments)
    wrong = [result for result in session.results if result.get("error") == "wrong answer"]
    return 0 if passed and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
