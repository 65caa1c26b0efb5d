"""Ranks that run ccl_rank, or another program of this folder: how tests of faults start them, and read how they failed."""

import os
import pathlib
import re

from tests.multiprocess.ranks import EnvRanks

PROGRAMS = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", "build/release")).resolve() / "tests/multiprocess"


def start(tmp_path: pathlib.Path, size: int, *arguments, program="ccl_rank", hosts=(), **env) -> EnvRanks:
    """All ranks, when their communicator is up."""
    settings = {"STORE": str(tmp_path / "store"), **env}
    ranks = EnvRanks([str(PROGRAMS / program), *map(str, arguments)], size=size, logs=tmp_path, hosts=hosts, env=settings)
    try:
        for rank in range(size):
            ranks.wait_for_output(rank, "ready", timeout_s=150)  # ranks give up after 120 s, and say why
    except BaseException:
        ranks.close()
        raise
    return ranks


def failure(ranks: EnvRanks, rank: int) -> tuple[int, str, str]:
    """(milliseconds since the operation began, type, message) of a rank's failure."""
    found = re.search(r"failed after (\d+) ms: (\w+): (.*)", ranks.output(rank))
    assert found, f"rank {rank} did not fail: {ranks.output(rank)}"
    return int(found[1]), found[2], found[3]
