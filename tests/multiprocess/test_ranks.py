"""The runner of ranks itself: places, outputs, exit codes, deaths, timeouts, and no process that outlives its test."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from .ranks import EnvRanks, MpirunRanks

SLEEP = "print('ready', flush=True); import time; time.sleep(60)"
needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun (Debian: mpich)")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def places(outputs: list[str]) -> list[tuple[str, ...]]:
    return [tuple(json.loads(output)) for output in outputs]


PRINT_PLACE = """
import json, os, socket
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"]
print(json.dumps([os.environ[name] for name in names] + [socket.gethostname()]))
"""


def test_ranks_are_told_their_place(tmp_path):
    with EnvRanks(python(PRINT_PLACE), size=3, logs=tmp_path) as ranks:
        found = places(ranks.succeed(timeout_s=30))
    assert [place[:5] for place in found] == [(str(rank), "3", str(rank), "3", "127.0.0.1") for rank in range(3)]


def test_ranks_fill_the_hosts_of_a_cluster_in_order(make_cluster, tmp_path):
    cluster = make_cluster(hosts=2)
    with EnvRanks(python(PRINT_PLACE), size=3, logs=tmp_path, hosts=cluster.hosts) as ranks:
        found = places(ranks.succeed(timeout_s=30))
    address = cluster[0].address
    assert found == [
        ("0", "3", "0", "2", address, "node0"),
        ("1", "3", "1", "2", address, "node0"),
        ("2", "3", "0", "1", address, "node1"),
    ]


def test_exit_codes_and_a_killed_rank(tmp_path):
    code = f"import os, sys\nif os.environ['RANK'] == '1': sys.exit(5)\n{SLEEP}"
    with EnvRanks(python(code), size=2, logs=tmp_path) as ranks:
        ranks.wait_for_output(0, "ready")
        ranks.kill(0)
        assert ranks.wait(timeout_s=30) == [-signal.SIGKILL, 5]


def test_failure_shows_every_output(tmp_path):
    code = "import os, sys; print('I am', os.environ['RANK']); sys.exit(1)"
    with EnvRanks(python(code), size=2, logs=tmp_path) as ranks:
        with pytest.raises(AssertionError, match=r"(?s)exit codes \[1, 1\].*rank0.log\nI am 0.*rank1.log\nI am 1"):
            ranks.succeed(timeout_s=30)


def test_timeout_kills_and_names_who_still_ran(tmp_path):
    code = f"import os, sys\nif os.environ['RANK'] == '0': sys.exit(0)\n{SLEEP}"
    with EnvRanks(python(code), size=2, logs=tmp_path) as ranks:
        ranks.wait_for_output(1, "ready")
        with pytest.raises(AssertionError, match=r"processes \[1\] still ran after 0.2 s"):
            ranks.wait(timeout_s=0.2)
        assert ranks.wait(timeout_s=0) == [0, -signal.SIGKILL]


def test_nobody_waits_for_the_words_of_those_who_have_ended(tmp_path):
    with EnvRanks(python("print('ready')"), size=2, logs=tmp_path) as ranks:
        ranks.wait_for_output(1, "ready")
        with pytest.raises(AssertionError, match=r"(?s)no 'more' from rank 1, and all have ended.*rank1.log\nready"):
            ranks.wait_for_output(1, "more", timeout_s=60)


@needs_mpirun
def test_mpirun_gives_each_rank_its_log(tmp_path):
    code = "import os; print(os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK')))"
    with MpirunRanks(python(code), size=3, logs=tmp_path) as ranks:
        assert ranks.succeed(timeout_s=30) == ["0\n", "1\n", "2\n"]


@needs_mpirun
def test_a_rank_of_mpirun_can_be_killed(tmp_path):
    # With a child, as a DataLoader has; MPICH notices a death when the last copy of PMI_FD is closed.
    code = f"import os\nif os.fork() == 0: os.closerange(3, 256)\n{SLEEP}"
    with MpirunRanks(python(code), size=2, logs=tmp_path) as ranks:
        ranks.wait_for_output(1, "ready\nready")
        ranks.kill(1)
        assert ranks.wait(timeout_s=30) != [0]
        orphans = ranks.living()
    assert len(orphans) >= 1 and gone(orphans, within_s=10)


def alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(alive(pid) for pid in pids)


KILLED_TEST = """
import os, pathlib, signal, sys
from tests.multiprocess.ranks import EnvRanks, MpirunRanks
kind, sleep, logs = sys.argv[1:]
with globals()[kind]([sys.executable, "-c", sleep], size=2, logs=pathlib.Path(logs)) as ranks:
    for rank in range(2):
        ranks.wait_for_output(rank, "ready")
    print(ranks.pid(0), ranks.pid(1), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["EnvRanks", pytest.param("MpirunRanks", marks=needs_mpirun)])
def test_ranks_end_when_the_test_is_killed(kind, tmp_path):
    repository = pathlib.Path(__file__).resolve().parents[2]
    test = subprocess.run(
        [*python(KILLED_TEST), kind, SLEEP, str(tmp_path)], cwd=repository, stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert test.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in test.stdout.split()]
    assert len(pids) == 2 and os.getpid() not in pids
    assert gone(pids, within_s=10)
