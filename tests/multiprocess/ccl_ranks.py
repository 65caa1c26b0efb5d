"""Ranks that run ccl_rank (ccl_rank.cpp): how tests of faults start them, and read how they failed."""

import os
import pathlib
import re

from tests.multiprocess.ranks import EnvRanks

PROGRAM = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", "build/release")).resolve() / "tests/multiprocess/ccl_rank"


def start(tmp_path: pathlib.Path, size: int, *arguments, hosts=(), **env) -> EnvRanks:
    """All ranks, when their communicator is up."""
    settings = {"STORE": str(tmp_path / "store"), **env}
    ranks = EnvRanks([str(PROGRAM), *map(str, arguments)], size=size, logs=tmp_path, hosts=hosts, env=settings)
    for rank in range(size):
        ranks.wait_for_output(rank, "ready")
    return ranks


def failure(ranks: EnvRanks, rank: int) -> tuple[int, str, str]:
    """(milliseconds since the operation began, type, message) of a rank's failure."""
    found = re.search(r"failed after (\d+) ms: (\w+): (.*)", ranks.output(rank))
    assert found, f"rank {rank} did not fail: {ranks.output(rank)}"
    return int(found[1]), found[2], found[3]
