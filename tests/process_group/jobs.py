"""Starts programs that use the backend, as ranks of a job, and reads what came of their checks."""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping

from tests.multiprocess.ranks import EnvRanks, Ranks

PROGRAMS = pathlib.Path(__file__).parent / "programs"
# A rank takes seconds to import torch, more on a machine that has other things to do.
TIMEOUT_S = 240


def command(program: str, *arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / program), *arguments]


def start(program: str, size: int, logs: pathlib.Path, *arguments: str, env: Mapping[str, str] = {}) -> EnvRanks:
    """Ranks as processes, with torchrun's variables. One thread each: ranks must not crowd each other out."""
    settings = {"OMP_NUM_THREADS": "1", "RESULTS": str(logs), "PYTHONPATH": str(PROGRAMS), **env}
    return EnvRanks(command(program, *arguments), size=size, logs=logs, env=settings)


@dataclasses.dataclass
class Outcome:
    """Of a run of checks.run(): what each rank wrote, and what all of them printed."""

    size: int
    results: list[dict[str, str]]  # by rank: error of each check, "" if it passed
    outputs: str

    def verify(self, check: str) -> None:
        for rank, errors in enumerate(self.results):
            assert check in errors, f"rank {rank} did not get to {check}\n{self.outputs}"
            assert errors[check] == "", f"rank {rank}: {errors[check]}\n{self.outputs}"


def finish(ranks: Ranks, logs: pathlib.Path, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Waits for the job. Ranks that do not end are killed, and count as what they had got to."""
    try:
        ranks.wait(timeout_s)
    except AssertionError as hung:
        print(hung)
    results = []
    for rank in range(ranks.size):
        path = logs / f"rank{rank}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        results.append({entry["check"]: entry["error"] for entry in map(json.loads, lines)})
    return Outcome(ranks.size, results, ranks.outputs())
