"""Hosts with several interfaces: the one that reaches the others is found, another one can be asked for, and what is used is said."""

import sys

import pytest

from tests.multiprocess.ranks import EnvRanks
from tests.trainer.runs import BUILD, TRIREME, needs_program

from .hosts import ISLAND_ADDRESS
from .mpis import MPICH, HostfileRanks
from .training import trireme_qa

# Each kind of host has more interfaces than the last: one without carrier; one before eth0 that leads nowhere but to the host itself.
SEVERAL = [dict(dead_interface=True), dict(dead_interface=True, island=True, second_interface=True)]
BY_ETH0 = "(node0: eth0 10.77.0.1, node1: eth0 10.77.0.2)"
BY_ETH2 = "(node0: eth2 10.79.0.1, node1: eth2 10.79.0.2)"


def train_one_step(cluster, model, data, tmp_path, size: int = 4, **env) -> EnvRanks:
    program = trireme_qa(model, data, tmp_path / "out", "--max_steps", 1)
    return EnvRanks(program, size, logs=tmp_path, hosts=cluster.hosts, env={"OMP_NUM_THREADS": "1", **env})


@needs_program
@pytest.mark.parametrize("interfaces", SEVERAL, ids=["dead", "dead and island"])
def test_the_one_that_reaches_the_others_is_used(make_cluster, model, data, tmp_path, interfaces):
    with train_one_step(make_cluster(hosts=2, **interfaces), model, data, tmp_path) as ranks:
        assert BY_ETH0 in ranks.succeed(timeout_s=60)[0]


@needs_program
@pytest.mark.parametrize("variables", [{"TRIREME_IFACE": "eth2"}, {"CCL_KVS_IFACE": "eth2"}, {"TRIREME_IFACE": "eth2", "CCL_KVS_IFACE": "eth0"}], ids=str)
def test_another_one_can_be_asked_for(make_cluster, model, data, tmp_path, variables):
    cluster = make_cluster(hosts=2, dead_interface=True, second_interface=True)
    with train_one_step(cluster, model, data, tmp_path, size=2, **variables) as ranks:
        assert BY_ETH2 in ranks.succeed(timeout_s=60)[0]


@needs_program
@pytest.mark.parametrize("name", ["eth1", "eth9"])
def test_one_that_is_dead_or_does_not_exist_is_refused(make_cluster, model, data, tmp_path, name):
    cluster = make_cluster(hosts=2, dead_interface=True)
    with train_one_step(cluster, model, data, tmp_path, size=2, TRIREME_IFACE=name) as ranks:
        assert ranks.wait(timeout_s=60) == [2, 2]
    for rank in (0, 1):
        assert f"names '{name}', which is neither an interface that is up nor an address of one; this host has eth0, lo" in ranks.output(rank)


@needs_program
def test_trireme_info_says_which_it_would_use(make_cluster):
    cluster = make_cluster(hosts=1, dead_interface=True, island=True)
    text = cluster[0].run([str(TRIREME), "info"]).stdout
    assert "eth0 10.77.0.1" in text and f"docker0 {ISLAND_ADDRESS}" in text and cluster[0].dead_address not in text
    text = cluster[0].run(["env", "TRIREME_IFACE=eth0", str(TRIREME), "info"]).stdout
    assert "eth0 10.77.0.1: tried first" in text and f"docker0 {ISLAND_ADDRESS}: not used" in text


TORCH = """
import datetime, torch, torch.distributed as dist
dist.init_process_group("ccl", timeout=datetime.timedelta(seconds=60))
x = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(x)
assert x.eq(sum(range(1, dist.get_world_size() + 1))).all()
dist.destroy_process_group()
"""


def test_the_backend_for_torch(make_cluster, tmp_path):
    """CCL_LOG_LEVEL=info says the same for programs of one's own."""
    pytest.importorskip("torch")
    pytest.importorskip("trireme")
    cluster = make_cluster(hosts=2, **SEVERAL[-1])
    with EnvRanks([sys.executable, "-c", TORCH], 2, logs=tmp_path, hosts=cluster.hosts, env={"CCL_LOG_LEVEL": "info"}) as ranks:
        said = ranks.succeed(timeout_s=120)[0]
    assert "2 ranks on 2 hosts" in said and BY_ETH0 in said


def test_programs_for_oneccl(make_ssh_cluster, tmp_path):
    """The address of a kvs, which one process makes and the others are given."""
    program = BUILD / "tests" / "oneccl_programs" / "oneccl_key_value_store_cxx17"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    cluster = make_ssh_cluster(hosts=2, **SEVERAL[-1])
    with HostfileRanks(MPICH, cluster, [str(program), "launcher"], logs=tmp_path, env={"CCL_LOG_LEVEL": "info"}) as ranks:
        said = ranks.succeed(timeout_s=60)[0]
    assert "4 ranks on 2 hosts" in said and BY_ETH0 in said
