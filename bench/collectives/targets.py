"""What the project promises of its collectives, measured: each line is PASS, FAIL, or SKIP where a library is absent."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from libraries import Request
from report import format_bytes, times_faster
from session import Session

K, M = 1 << 10, 1 << 20
FROM_64K = (64 * K, M, 4 * M, 16 * M, 128 * M)


@dataclass(frozen=True)
class Faster:
    """`ours` takes at most 1/factor of the time of `peer`, on 2 ranks, fp32."""

    ours: str
    peer: str
    op: str
    placement: str
    factors: dict[int, float]  # by bytes


def from_64k(factor: float) -> dict[int, float]:
    return {size: factor for size in FROM_64K}


FASTER = (
    Faster("trireme", "oneccl", "allreduce", "out", {64 * K: 3.0, M: 1.6, 4 * M: 2.0, 16 * M: 2.0, 128 * M: 2.0}),
    Faster("trireme", "oneccl", "allreduce", "in", {64 * K: 2.0, M: 1.6, 4 * M: 1.5, 16 * M: 1.5, 128 * M: 1.5}),
    Faster("trireme-shared", "oneccl", "allreduce", "out", from_64k(3.0)),
    Faster("trireme-copy", "oneccl", "allreduce", "out", from_64k(1.3)),
    Faster("trireme", "mpich", "allreduce", "out", {8: 2.0, 64: 2.0, 256: 2.0, K: 2.0}),
    Faster("trireme", "oneccl", "allgather", "out", from_64k(1.5)),
    Faster("trireme", "oneccl", "allgatherv", "out", from_64k(1.5)),
    Faster("trireme", "oneccl", "alltoall", "out", from_64k(1.5)),
    Faster("trireme", "oneccl", "broadcast", "in", from_64k(1.5)),
    Faster("trireme", "oneccl", "reduce_scatter", "out", from_64k(1.5)),
)

# bf16 moves half the bytes of fp32; the rest is what conversion may cost.
BF16_SHARE = 0.65
BF16_SIZES = (M, 4 * M, 16 * M, 128 * M)


@dataclass(frozen=True)
class Crowded:
    """Small allreduces where ranks outnumber cores or have company on them.

    Times are per call. A library that spins needs milliseconds for one where ranks outnumber cores: there fewer calls make the same average, if they last
    long enough to see the scheduler at work.
    """

    name: str
    ranks: int
    busy: bool  # a process that never sleeps on each core
    calls: dict[str, int]  # by library
    factors: dict[str, float]


CORES = len(os.sched_getaffinity(0))
CROWDED_BYTES = 8
MANY_CALLS = {"trireme": 10_000, "mpich": 500, "oneccl": 100}
MANY_FACTORS = {"mpich": 1.0, "oneccl": 20.0}
BUSY_CALLS = {"trireme": 100_000, "mpich": 100_000, "oneccl": 10_000, "oneccl-default": 10_000}
BUSY_FACTORS = {"mpich": 1.0, "oneccl": 1.0, "oneccl-default": 20.0}
CROWDED = (
    Crowded(f"4 ranks on {CORES} cores", 4, False, MANY_CALLS, MANY_FACTORS),
    Crowded(f"8 ranks on {CORES} cores", 8, False, MANY_CALLS, MANY_FACTORS),
    Crowded("2 ranks beside a busy process on each core", 2, True, BUSY_CALLS, BUSY_FACTORS),
)

# Between two hosts, two ranks on each.
BETWEEN_HOSTS_BYTES = 16 * M
BETWEEN_HOSTS_FACTORS = {"mpich": 1.0, "trireme-ring": 1.0}


class Checker:
    def __init__(self):
        self.failures = 0

    def at_least(self, name: str, least: float, peer: dict | None, ours: dict | None) -> None:
        """`ours` is at least so many times faster than `peer`."""
        ratio = times_faster(peer, ours)
        self._line(name, f"{least:g}x or more", ratio, ratio is not None and ratio >= least, peer, ours)

    def at_most(self, name: str, most: float, part: dict | None, whole: dict | None) -> None:
        """`part` takes at most that share of the time of `whole`."""
        ratio = times_faster(part, whole)
        self._line(name, f"{most:g}x or less", ratio, ratio is not None and ratio <= most, part, whole)

    def passed(self) -> bool:
        print(f"{self.failures} failed")
        return self.failures == 0

    def _line(self, name: str, wanted: str, ratio: float | None, passed: bool, *results: dict | None) -> None:
        errors = [f"{result['library']}: {result['error']}" for result in results if result and "error" in result]
        absent = any(result is None for result in results) and not errors
        self.failures += not passed and not absent
        verdict = "PASS" if passed else "SKIP" if absent else "FAIL"
        figure = f"{ratio:.2f}x" if ratio is not None else "; ".join(errors) or "not measured"
        print(f"{verdict}  {name}: {figure}, wanted {wanted}", flush=True)


def cell(results: list[dict], library: str, size: int) -> dict | None:
    return next((result for result in results if result["library"] == library and result["bytes"] == size), None)


def check_faster(session: Session, checker: Checker) -> None:
    # Targets on the same operation and placement share one measurement.
    groups = {}
    for target in FASTER:
        groups.setdefault((target.op, target.placement), []).append(target)
    for (op, placement), group in groups.items():
        sizes = tuple(sorted({size for target in group for size in target.factors}))
        names = list(dict.fromkeys(name for target in group for name in (target.ours, target.peer)))
        results = session.measure(Request(op, sizes, placement=placement), names)
        for target in group:
            for size, factor in target.factors.items():
                where = "in place" if placement == "in" else "out of place"
                name = f"{op} {where} {format_bytes(size)}, {target.ours} against {target.peer}"
                checker.at_least(name, factor, cell(results, target.peer, size), cell(results, target.ours, size))


def check_bf16(session: Session, checker: Checker) -> None:
    fp32 = session.measure(Request("allreduce", BF16_SIZES), ["trireme"])
    bf16 = session.measure(Request("allreduce", tuple(size // 2 for size in BF16_SIZES), dtype="bf16"), ["trireme"])
    for size in BF16_SIZES:
        name = f"allreduce of {size // 4} elements, time in bf16 over fp32"
        checker.at_most(name, BF16_SHARE, cell(bf16, "trireme", size // 2), cell(fp32, "trireme", size))


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", "while True: pass"], preexec_fn=lambda core=core: os.sched_setaffinity(0, {core})
        )
        for core in os.sched_getaffinity(0)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def check_crowded(session: Session, checker: Checker, target: Crowded) -> None:
    results = []
    with busy_cores() if target.busy else contextlib.nullcontext():
        for library, calls in target.calls.items():
            request = Request("allreduce", (CROWDED_BYTES,), target.ranks, calls=calls, budget_ms=1)
            results += session.measure(request, [library])
    for peer, factor in target.factors.items():
        name = f"small allreduces, {target.name}, against {peer}"
        checker.at_least(name, factor, cell(results, peer, CROWDED_BYTES), cell(results, "trireme", CROWDED_BYTES))


def check(session: Session) -> bool:
    """Prints the list; returns whether nothing failed."""
    checker = Checker()
    check_faster(session, checker)
    check_bf16(session, checker)
    for target in CROWDED:
        check_crowded(session, checker, target)
    return checker.passed()


def check_between_hosts(session: Session) -> bool:
    checker = Checker()
    size = BETWEEN_HOSTS_BYTES
    results = session.measure(Request("allreduce", (size,), ranks=4, budget_ms=2000))
    for peer, factor in BETWEEN_HOSTS_FACTORS.items():
        name = f"allreduce {format_bytes(size)} between two hosts, against {peer}"
        checker.at_least(name, factor, cell(results, peer, size), cell(results, "trireme", size))
    return checker.passed()
