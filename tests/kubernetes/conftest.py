import contextlib

import pytest

from tests.cluster.hosts import why_not

from .simulation import Simulation


@pytest.fixture
def simulate(tmp_path):
    """Simulation, with its arguments, where this machine can make hosts; it ends with the test."""
    if reason := why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        yield lambda job, **options: stack.enter_context(Simulation(job, tmp_path, **options))
