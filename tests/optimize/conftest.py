"""What the tests here share. Models are tiny: on more than one thread they wait for each other more than they compute."""

import pytest


@pytest.fixture(autouse=True)
def one_thread():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def packed(monkeypatch):
    """How often an encoder ran packed."""
    from trireme._optimize import encoders

    calls = []
    real = encoders._packed
    monkeypatch.setattr(encoders, "_packed", lambda *args: calls.append(1) or real(*args))
    return calls


@pytest.fixture
def group(tmp_path):
    """A process group of one."""
    import torch

    torch.distributed.init_process_group("gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
