"""srun on two hosts, without MPI: a real Slurm, whose variables alone tell the ranks who they are."""

import re
import sys
import time

import pytest

from tests.trainer.runs import needs_program

from . import slurm
from .training import ENVIRONMENT, losses, trireme_qa, weights

torch = pytest.importorskip("torch")
pytestmark = [needs_program, pytest.mark.long]

FOUR = ["srun", "-N", "2", "--ntasks-per-node", "2"]
SAME_ORDER = ("a", "a", "b", "b")
SUM = """
import torch, torch.distributed as dist
dist.init_process_group("ccl")
ones = torch.ones(3)
dist.all_reduce(ones)
print(f"{int(ones[0])} ranks, this is {dist.get_rank()}", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def hosts(make_cluster, tmp_path):
    if reason := slurm.why_not():
        pytest.skip(reason)
    cluster = make_cluster(hosts=2)
    return cluster, {**slurm.start(cluster, tmp_path), **ENVIRONMENT}


@pytest.mark.parametrize("mpi", ["none", "pmi2"])
def test_a_group_of_torch_comes_up_by_itself(hosts, mpi):
    cluster, env = hosts
    said = cluster[0].run([*FOUR, f"--mpi={mpi}", sys.executable, "-c", SUM], env=env, timeout_s=120).stdout
    assert sorted(re.findall(r"(\d+) ranks, this is (\d+)", said)) == [("4", str(rank)) for rank in range(4)], said


def test_losses_are_those_of_one_host(hosts, model, data, on_one_host, tmp_path):
    cluster, env = hosts
    out = tmp_path / "out"
    done = cluster[0].run([*FOUR, *trireme_qa(model, data, out)], env=env, timeout_s=180)
    said = done.stdout + done.stderr
    assert "4 processes by Slurm: 4 ranks on 2 hosts" in said and "node1: eth0 10.77.0.2" in said, said
    assert len(losses(out)) == 16
    assert weights(out) == weights(on_one_host(trireme_qa, *SAME_ORDER))


def test_a_killed_rank_ends_the_step(hosts, model, data, tmp_path):
    """Without --kill-on-bad-exit: the other ranks end themselves."""
    cluster, env = hosts
    log = tmp_path / "srun.log"
    with open(log, "w") as output:
        program = trireme_qa(model, data, tmp_path / "out", "--num_train_epochs", 100000)
        srun = cluster[0].popen([*FOUR, *program], env=env, stdout=output, stderr=output, start_new_session=True)
    deadline = time.monotonic() + 120
    while "step 5/" not in log.read_text():
        assert srun.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    killed = time.monotonic()
    victim = cluster[1].run(["pgrep", "-o", "-f", "bin/trireme qa"]).stdout.strip()
    cluster[1].run(["kill", "-KILL", victim])
    assert srun.wait(timeout=30) != 0, log.read_text()
    assert time.monotonic() - killed < 10 and "lost rank" in log.read_text(), log.read_text()
    for host in cluster:
        assert host.run(["pgrep", "-f", "bin/trireme qa"], check=False).stdout == ""
