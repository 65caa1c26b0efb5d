"""What every Python test shares."""

import contextlib

import pytest

from .cluster.hosts import Cluster, why_not


@pytest.fixture
def make_cluster():
    """Cluster, with its arguments, where this machine can make one; the clusters end with the test."""
    if reason := why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as clusters:
        yield lambda **options: clusters.enter_context(Cluster(**options))
