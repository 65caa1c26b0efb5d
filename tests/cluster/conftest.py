"""What the tests of training on several hosts share."""

import functools
import pathlib

import pytest

from . import ssh


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    from tests.trainer.runs import tiny_model

    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    from tests.trainer.runs import questions

    return questions(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def on_one_host(model, data, tmp_path_factory):
    """The output folder of four processes on this machine: of which program, and with which labels of hosts if any."""
    from .training import on_this_machine

    @functools.cache
    def run(program, *labels: str) -> pathlib.Path:
        out = tmp_path_factory.mktemp("one") / "out"
        on_this_machine(program(model, data, out), *labels)
        return out

    return run


@pytest.fixture
def make_ssh_cluster(make_cluster, tmp_path):
    """make_cluster, with an sshd in each host."""
    if reason := ssh.why_not():
        pytest.skip(reason)

    def make(alive_s: int = 15, **options):
        cluster = make_cluster(**options)
        ssh.start(cluster, tmp_path, alive_s=alive_s)
        return cluster

    return make
