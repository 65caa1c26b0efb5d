"""torchrun on two hosts, without MPI and without ssh: an agent is started on each by hand, and the numbers are those of one host."""

import sys

import pytest

from tests.multiprocess.ranks import Ranks
from tests.trainer.runs import json_of, needs_program

from .training import ENVIRONMENT, hf_trainer, losses, trireme_qa, weights

pytest.importorskip("torch")
pytestmark = needs_program

SAME_ORDER = ("a", "a", "b", "b")


class Agents(Ranks):
    """`torchrun --nnodes ...` on each host of a cluster; rank<N>.log is the log of the Nth agent and its workers."""

    def __init__(self, cluster, program: list[str], logs, **env):
        super().__init__(len(cluster.hosts), logs)
        for host in cluster:
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(cluster.hosts)), "--nproc-per-node", "2"]
            torchrun += ["--node-rank", str(host.index), "--master-addr", "node0", "--master-port", "29500"]
            self._popen(host, [*torchrun, *program], {**ENVIRONMENT, **env}, f"rank{host.index}.log")


def test_trireme_qa(make_cluster, model, data, on_one_host, tmp_path):
    out = tmp_path / "out"
    with Agents(make_cluster(hosts=2), ["--no-python", *trireme_qa(model, data, out)], tmp_path) as agents:
        said = agents.succeed(timeout_s=180)[0]
    assert "4 processes by torchrun: 4 ranks on 2 hosts" in said and "node1: eth0 10.77.0.2" in said
    assert len(losses(out)) == 16
    assert weights(out) == weights(on_one_host(trireme_qa, *SAME_ORDER))


@pytest.mark.long
def test_hugging_faces_trainer(make_cluster, model, data, on_one_host, tmp_path):
    out = tmp_path / "out"
    with Agents(make_cluster(hosts=2), hf_trainer(model, data, out)[1:], tmp_path) as agents:
        agents.succeed(timeout_s=300)
    group = json_of(out / "group.json")
    assert (group["backend"], group["world_size"], group["packed"]) == ("ccl", 4, True)
    assert weights(out) == weights(on_one_host(hf_trainer, *SAME_ORDER))
