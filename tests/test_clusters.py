"""docs/clusters.md: its table of what dies has the figures that bench/elastic wrote."""

import json
import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "bench" / "results" / "elastic.json"
PAGE = REPOSITORY / "docs" / "clusters.md"
# bench/elastic's faults, by how their rows begin.
ROWS = {
    "kill": "a worker (SIGKILL, a crash)",
    "host": "every process of a host",
    "silent": "a host without a word",
    "rank0": "rank 0's host without a word",
    "evict": "a host is evicted",
    "join": "a host joins",
    "stop": "a worker is stopped",
    "rendezvous": "the rendezvous' host without a word",
}


def row_of(page: str, fault: str) -> str:
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {ROWS[fault]}")]
    return row


def wrong(page: str, faults: dict[str, dict]) -> list[str]:
    """The figures that are not in their rows: tenths of a second until a fault is noticed, whole ones until training goes on or the agents have ended."""
    missing = []
    for fault, record in faults.items():
        for figure, digits in (("noticed_s", 1), ("training_s", 0), ("ended_s", 0)):
            if figure in record["median"] and f" {record['median'][figure]:.{digits}f} s" not in row_of(page, fault):
                missing.append(f"{fault}: {figure} {record['median'][figure]:.{digits}f} s")
    return missing


@pytest.mark.skipif(not RESULTS.exists(), reason="bench/elastic/run.py --json has not been run")
def test_the_table_shows_what_was_measured():
    faults = json.loads(RESULTS.read_text())["faults"]
    assert faults.keys() == ROWS.keys() and wrong(PAGE.read_text(), faults) == []


def test_a_figure_that_is_not_in_its_row_is_found():
    assert all(row_of(PAGE.read_text(), fault) for fault in ROWS)
    page = f"| {ROWS['kill']} | everybody | 0.3 s | 7 s |\n"
    assert wrong(page, {"kill": {"median": {"noticed_s": 0.31, "training_s": 7.2, "again": 9}}}) == []
    assert wrong(page, {"kill": {"median": {"noticed_s": 0.21, "training_s": 7.8, "again": 9}}}) == ["kill: noticed_s 0.2 s", "kill: training_s 8 s"]
