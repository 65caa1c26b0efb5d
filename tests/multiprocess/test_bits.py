"""Every rank's result has the same bits, and so has every run, with any number of workers and with or without direct reads."""

import pytest

from tests.multiprocess.ccl_ranks import start


def digests(folder, size: int, **env) -> list[dict[str, str]]:
    """By rank: the digest of each result."""
    folder.mkdir()
    with start(folder, size, program="ccl_bits", **env) as ranks:
        outputs = ranks.succeed(timeout_s=120)
    return [dict(line.split(": ") for line in output.splitlines() if line != "ready") for output in outputs]


def expect_the_same_everywhere(runs: dict[str, list[dict[str, str]]], size: int) -> None:
    """Every run has the first one's results, and so has every rank as far as it has any."""
    reference = next(iter(runs.values()))
    allreduces = {name: bits for name, bits in reference[0].items() if name.startswith("allreduce")}
    assert len(allreduces) == 33 and len(set(allreduces.values())) == 33
    for rank, results in enumerate(reference):
        kinds = [name.split()[0] for name in results]
        assert [kinds.count(kind) for kind in ("allreduce", "reduce", "reduce_scatter")] == [33, 33 if rank == size - 1 else 0, 33]
        assert {name: bits for name, bits in results.items() if name in allreduces} == allreduces, f"rank {rank} differs"
    # What the root of a reduce gets is what an allreduce gives.
    assert {name: bits for name, bits in reference[-1].items() if name.startswith("reduce ")} == {
        name.removeprefix("all"): bits for name, bits in allreduces.items()
    }
    for name, results in runs.items():
        assert results == reference, f"run {name} differs"


@pytest.mark.parametrize("size", [2, 3, 4])
def test_results_have_the_same_bits_everywhere_and_always(tmp_path, size):
    runs = {}
    for workers in ("1", "2", "4"):
        for run in ("first", "again"):
            runs[f"{workers} {run}"] = digests(tmp_path / f"{workers}-{run}", size, CCL_WORKER_COUNT=workers)
    runs["staged"] = digests(tmp_path / "staged", size, TRIREME_DIRECT_READ="0")
    expect_the_same_everywhere(runs, size)


@pytest.mark.parametrize("per_host", ["1", "2"])
def test_results_have_the_same_bits_between_hosts(tmp_path, per_host):
    runs = {workers: digests(tmp_path / workers, 4, RANKS_PER_HOST=per_host, CCL_WORKER_COUNT=workers) for workers in ("1", "2", "4")}
    runs["staged"] = digests(tmp_path / "staged", 4, RANKS_PER_HOST=per_host, TRIREME_DIRECT_READ="0")
    expect_the_same_everywhere(runs, 4)
